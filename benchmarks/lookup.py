"""Look-ups of scattered values, with the index of values and without: python -m benchmarks.lookup [ROWS | writes | footers]

    events     ROWS (1,000,000) events in 100 files, in random order of their id; `v:id::bigint` and `v:uuid::string`
    bluesky    ROWS documents like Bluesky's in 100 files; `v:commit.cid::string`

For each path: the bytes of the index and of the data, the seconds to build it beside those in which Spark reads the path, the
files that 40 look-ups open without the index and with it, and the milliseconds to plan and to run one. If 1 % of the data's
size has no room for useful filters, the index is built again with 3 % and 8 %.

    writes     a write whose table names v:uuid and v:id as paths to be indexed, and one whose table does not, in turns

    footers    Parquet's own Bloom filters in nested columns like typed ones, 100 files of 10,000 strings: with and without, in
               turns, the bytes of the files, the rows that Spark's scan reads for one string, and its milliseconds
"""

import hashlib
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import delta_variant as dv
from benchmarks.events import EVENT, session
from benchmarks.jsonbench import documents

FILES, ASKED, ROUNDS = 100, 40, 9
BUDGETS = 0.01, 0.03, 0.08
SHA = "sha1(cast(id AS string))"
UUID = (
    "concat_ws('-', "
    + ", ".join(f"substr({SHA}, {at}, {size})" for at, size in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12)))
    + ")"
)


def seconds(action: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def opened(spark: SparkSession, table: Path, path: str, literals: list[str]) -> list[int]:
    found = []
    for literal in literals:
        [scan] = dv.explain(spark.sql(f"SELECT v FROM delta.`{table}` WHERE v:{path} = {literal}")).scans
        found.append(scan.files_after_bounds)
    return found


def milliseconds(query: Callable[[], object]) -> float:
    return 1000 * statistics.median(seconds(query)[0] for _ in range(ROUNDS))


def compare(spark: SparkSession, table: Path, path: str, literals: list[str], absent: str) -> None:
    files = list(table.glob("*.parquet"))
    data = sum(file.stat().st_size for file in files)
    text = f"SELECT v:{path} FROM delta.`{table}` WHERE v:{path} = {literals[0]}"

    def plan() -> None:
        spark.sql(text)._jdf.queryExecution().optimizedPlan()  # noqa: SLF001  # no public name

    def run() -> None:
        spark.sql(text).collect()

    run()
    before, planned, ran = opened(spark, table, path, literals), milliseconds(plan), milliseconds(run)
    reading, _ = seconds(lambda: spark.sql(f"SELECT max(v:{path}) FROM delta.`{table}`").collect())
    for budget in BUDGETS:
        indexing = dv.VariantTable.forPath(spark, table)
        building, done = seconds(lambda: indexing.analyze(bloom=[f"v:{path.partition('::')[0]}"], budget=budget))  # noqa: B023
        index = done.indexed
        print(f"  {path}, at most {100 * budget:g} % of {data:,} bytes: {index.filters} filters for {index.files} files")
        print(
            f"    {index.bytes:,} bytes, {100 * index.bytes / data:.2f} %; built in {building:.2f} s, read in {reading:.2f} s"
        )
        if not index.filters:
            continue
        run()
        after, none = opened(spark, table, path, literals), opened(spark, table, path, [absent])
        now, took = milliseconds(plan), milliseconds(run)
        mean = statistics.mean
        print(f"    files opened: {mean(before):.1f}, with the index {mean(after):.2f}, at most {max(after)}; absent {none[0]}")
        print(f"    planning {planned:.1f} ms, with it {now:.1f}; the query {ran:.0f} and {took:.0f}, ratio {ran / took:.1f}")
        break


def tables(spark: SparkSession, folder: Path, rows: int) -> None:
    """Writes the tables `events` and `bluesky`, 100 files each."""
    event = EVENT.replace("'ts'", f"'uuid', {UUID}, 'ts'", 1)
    shuffled = spark.range(rows).select(F.parse_json(F.expr(event)).alias("v")).repartition(FILES, F.rand(1))
    dv.write(shuffled, folder / "events")
    source = folder / "documents"
    source.mkdir()
    for part in range(FILES):
        with (source / f"{part}.json").open("w") as file:
            file.writelines(json.dumps(document) + "\n" for document in documents(rows // FILES, part))
    lines = spark.read.text(str(source)).repartition(FILES, F.rand(1))
    dv.write(lines, folder / "bluesky", parse_json={"v": "value"})


def writes(spark: SparkSession, folder: Path) -> None:
    event = EVENT.replace("'ts'", f"'uuid', {UUID}, 'ts'", 1)
    rows = spark.range(0, 1_000_000, 1, 8).select(F.parse_json(F.expr(event)).alias("v"))
    rows.write.parquet(str(folder / "rows"))
    rows = spark.read.parquet(str(folder / "rows"))
    kinds = {"with filters": ", 'delta_variant.bloom.v' = 'uuid, id', 'delta_variant.indexBudget' = '0.03'", "without": ""}
    for name, more in kinds.items():
        properties = f"'delta.enableVariantShredding' = 'true'{more}"
        spark.sql(f"CREATE TABLE delta.`{folder / name}` (v VARIANT) USING delta TBLPROPERTIES ({properties})")
    taken: dict[str, list[float]] = {name: [] for name in kinds}
    for round_ in range(6):
        for name in kinds:
            spent, _ = seconds(lambda: dv.write(rows, folder / name, mode="overwrite"))  # noqa: B023
            if round_:
                taken[name].append(spent)
    for name, spent in taken.items():
        print(f"  {name}: {statistics.median(spent):.2f} s, {min(spent):.2f} to {max(spent):.2f}")
    print(f"  ratio {statistics.median(taken['with filters']) / statistics.median(taken['without']):.2f}")


def footers(spark: SparkSession, folder: Path) -> None:
    count, leaf = 10_000, "s.typed_value.id.typed_value"
    options = {"with": {leaf: {"ndv": count, "fpp": 0.01}}, "without": None}
    for name, option in options.items():
        (folder / name).mkdir()
        for part in range(FILES):
            ids = [hashlib.sha1(str(n).encode()).hexdigest() for n in range(part, count * FILES, FILES)]
            others = [hashlib.sha1(str(-n).encode()).hexdigest() * 3 for n in range(count)]
            rows = [
                {"typed_value": {"id": {"typed_value": text}}, "other": other} for text, other in zip(ids, others, strict=True)
            ]
            pq.write_table(
                pa.table({"s": rows}), folder / name / f"{part}.parquet", bloom_filter_options=option, use_dictionary=False
            )
    frames = {name: spark.read.parquet(str(folder / name)) for name in options}
    wanted = {name: frame.where(f"{leaf} = sha1('77')").select("s.other") for name, frame in frames.items()}
    taken: dict[str, list[float]] = {name: [] for name in options}
    for _ in range(ROUNDS):
        for name, query in wanted.items():
            taken[name].append(seconds(query.collect)[0])
    for name, query in wanted.items():
        size = sum(file.stat().st_size for file in (folder / name).glob("*.parquet"))
        scan = query._jdf.queryExecution().executedPlan().collectLeaves().apply(0)  # noqa: SLF001  # no public name
        read = scan.metrics().apply("numOutputRows").value()
        print(f"  {name}: {size:,} bytes, {read:,} rows read, {1000 * statistics.median(taken[name]):.0f} ms")


def main() -> None:
    others = {"footers": footers, "writes": writes}
    rows = int(sys.argv[1]) if sys.argv[1:] and sys.argv[1] not in others else 1_000_000
    folder = Path(tempfile.mkdtemp(prefix="delta-variant-lookup-"))
    spark = session(**{"spark.driver.memory": "4g", "spark.databricks.delta.optimizeWrite.enabled": "false"})
    try:
        if sys.argv[1:] and sys.argv[1] in others:
            others[sys.argv[1]](spark, folder)
            return
        tables(spark, folder, rows)
        for name, path, absent in (
            ("events", "uuid::string", "'a'"), ("events", "id::bigint", "-1"), ("bluesky", "commit.cid::string", "'a'"),
        ):  # fmt: skip
            print(f"{name}, {rows:,} rows")
            found = spark.sql(f"SELECT v:{path} x FROM delta.`{folder / name}` WHERE v:{path} IS NOT NULL").sample(
                0.001, seed=1
            )
            literals = [repr(row.x) for row in found.limit(ASKED).collect()]
            compare(spark, folder / name, path, literals, absent)
    finally:
        spark.stop()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
