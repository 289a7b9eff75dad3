"""Five queries after JSONBench in other engines, over files of this package: python -m benchmarks.engines [ROWS]

The documents are those of `benchmarks.jsonbench`, a million by default, and each of a hundred has a rare key of its own. They
are written by INSERT, by a MERGE that inserts a half, and by `optimize`. Each engine asks these files and a table of ordinary
columns in turns, through a view that names the paths. Printed are seconds (medians of three), and their sums in relation to
ordinary columns. DuckDB reads Variants; the others, where they are installed (`make bench`), read the typed columns, which hold
every value of a path only where no object and no path keeps a residual.
"""

import importlib.util
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.events import session
from benchmarks.jsonbench import CREATED, PATHS, documents, timed
from benchmarks.reading import median
from delta_variant.table import VariantTable

RARE = 100
POSTS = "('app.bsky.feed.post', 'app.bsky.feed.repost', 'app.bsky.feed.like')"
WHERE = CREATED.format(kind="kind", operation="operation")
QUERIES = {
    "count by collection": "SELECT collection, count(*) AS c FROM {0} GROUP BY collection ORDER BY c DESC, 1",
    "distinct users": "SELECT collection, count(*) AS c, count(DISTINCT did) AS users FROM {0} WHERE "
    + WHERE + " GROUP BY collection ORDER BY c DESC, 1",
    "by hour": "SELECT collection, {1} AS h, count(*) AS c FROM {0} WHERE " + WHERE
    + f" AND collection IN {POSTS} GROUP BY collection, {{1}} ORDER BY 2, 1",
    "first posters": "SELECT did, min(time_us) AS moment FROM {0} WHERE " + WHERE
    + " AND collection = 'app.bsky.feed.post' GROUP BY did ORDER BY moment, 1 LIMIT 3",
    "longest spans": "SELECT did, max(time_us) - min(time_us) AS span FROM {0} WHERE " + WHERE
    + " AND collection = 'app.bsky.feed.post' GROUP BY did ORDER BY span DESC, 1 LIMIT 3",
}  # fmt: skip
HOUR = "(time_us - time_us % 3600000000)"

Run = Callable[[str], list[tuple[Any, ...]]]


def duck(files: dict[str, str]) -> tuple[Run, dict[str, str]]:
    """How DuckDB runs a query, and what each table is in its SQL."""
    database = duckdb.connect(config={"threads": 2})
    paths = ", ".join(f"v.{path}::{'BIGINT' if name == 'time_us' else 'VARCHAR'} AS {name}" for name, path in PATHS.items())
    tables = {name: f"(SELECT {'*' if name == 'columns' else paths} FROM '{where}') t" for name, where in files.items()}
    return lambda text: database.sql(text).fetchall(), tables


def fusion(files: dict[str, str]) -> tuple[Run, dict[str, str]]:
    """As `duck`, for DataFusion."""
    import datafusion  # noqa: PLC0415  # an extra

    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(2))
    for name, where in files.items():
        context.register_parquet(name.replace(" ", "_"), str(Path(where).parent))
    steps = {name: "".join(f"['typed_value']['{key}']" for key in path.split(".")) for name, path in PATHS.items()}
    paths = ", ".join(f"v{step}['typed_value'] AS {name}" for name, step in steps.items())
    tables = {name: f"(SELECT {'*' if name == 'columns' else paths} FROM {name.replace(' ', '_')}) t" for name in files}
    return lambda text: [tuple(row.values()) for row in context.sql(text).to_pylist()], tables


def house(files: dict[str, str]) -> tuple[Run, dict[str, str]]:
    """As `duck`, for ClickHouse."""
    import chdb  # noqa: PLC0415  # an extra

    steps = {name: ".".join(f"typed_value.{key}" for key in path.split(".")) for name, path in PATHS.items()}
    paths = ", ".join(f"v.{step}.typed_value AS {name}" for name, step in steps.items())
    tables = {
        name: f"(SELECT {'*' if name == 'columns' else paths} FROM file('{where}', Parquet)) t" for name, where in files.items()
    }

    def run(text: str) -> list[tuple[Any, ...]]:
        answer = json.loads(
            str(chdb.query(text + " SETTINGS max_threads = 2, output_format_json_quote_64bit_integers = 0", "JSONCompact"))
        )
        return list(map(tuple, answer["data"]))

    return run, tables


ENGINES = {"duckdb": duck, "datafusion": fusion, "chdb": house}


def load(work: Path, rows: int) -> dict[str, str]:
    """Writes the tables, and gives their Parquet files, as a glob, by name."""
    on = session(**{"spark.driver.memory": "4g", "spark.databricks.delta.snapshotPartitions": "2"})
    source = work / "documents"
    source.mkdir()
    for part in range(4):
        with (source / f"{part}.json").open("w") as file:
            for row, document in enumerate(documents(rows // 4, part)):
                if row % max(1, rows // RARE) == part:
                    document[f"rare_{part}_{row}"] = {"row": row}
                file.write(json.dumps(document) + "\n")
    texts = on.read.text(str(source))
    texts.createOrReplaceTempView("texts")
    made = "USING delta TBLPROPERTIES ('delta.enableVariantShredding' = 'true')"
    paths = {name: work / name for name in ("INSERT", "MERGE", "optimize", "columns")}
    for path in (paths["INSERT"], paths["MERGE"], paths["optimize"]):
        on.sql(f"CREATE TABLE delta.`{path}` (v VARIANT) {made}")
    taken = {"INSERT": timed(lambda: on.sql(f"INSERT INTO delta.`{paths['INSERT']}` SELECT parse_json(value) FROM texts"))[0]}
    texts.selectExpr("parse_json(value) v").repartition(16).write.format("delta").mode("append").save(str(paths["optimize"]))
    taken["optimize"] = timed(lambda: VariantTable.forPath(on, str(paths["optimize"])).optimize(["v:commit.collection"]))[0]
    on.sql(f"INSERT INTO delta.`{paths['MERGE']}` SELECT parse_json(value) FROM texts WHERE hash(value) % 2 = 0")
    merge = (
        f"MERGE INTO delta.`{paths['MERGE']}` t "
        "USING (SELECT parse_json(value) v, hash(value) % 2 = 0 AS is_there FROM texts) s "
        "ON s.is_there AND t.v:time_us::bigint = s.v:time_us::bigint AND t.v:did::string = s.v:did::string "
        "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (v) VALUES (s.v)"
    )
    taken["MERGE"] = timed(lambda: on.sql(merge))[0]
    columns = [f"v:{path}::{'bigint' if name == 'time_us' else 'string'} {name}" for name, path in PATHS.items()]
    plain = on.read.format("delta").load(str(paths["INSERT"])).selectExpr(*columns)
    taken["columns"] = timed(lambda: plain.write.format("delta").save(str(paths["columns"])))[0]
    current = {name: on.read.format("delta").load(str(path)).inputFiles() for name, path in paths.items()}
    on.stop()
    globs = {}
    for name, files in current.items():
        kept = work / "files" / name
        kept.mkdir(parents=True)
        for number, file in enumerate(files):
            Path(file.removeprefix("file:").removeprefix("//")).rename(kept / f"{number}.parquet")
        size = sum(file.stat().st_size for file in kept.iterdir()) / 2**20
        print(f"  {name:10} written in {taken[name]:6.1f} s, {size:7.1f} MiB in {len(files)} files", flush=True)
        globs[name] = f"{kept}/*.parquet"
    return globs


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    work = Path(tempfile.mkdtemp(prefix="delta-variant-engines-"))
    files = load(work, rows)
    for engine, opened in ENGINES.items():
        if not importlib.util.find_spec(engine):
            continue
        run, tables = opened(files)
        tables = {name: table for name, table in tables.items() if is_read(run, engine, name, table)}
        sums = dict.fromkeys(tables, 0.0)
        for query, text in QUERIES.items():
            asked = {name: text.format(table, HOUR) for name, table in tables.items()}
            answers = {name: run(asked[name]) for name in asked}
            same = all(answer == answers["columns"] for answer in answers.values())
            taken = median({name: (lambda run=run, text=text: run(text)) for name, text in asked.items()})
            sums = {name: sums[name] + taken[name] for name in sums}
            print(f"  {engine:10} {query:20} {shown(taken)}{'' if same else '  other rows'}", flush=True)
        ratios = "  ".join(f"{name} {taken / sums['columns']:5.2f}" for name, taken in sums.items() if name != "columns")
        print(f"  {engine:10} {'sum':20} {shown(sums)}  of ordinary columns: {ratios}", flush=True)
    shutil.rmtree(work)


def is_read(run: Run, engine: str, name: str, table: str) -> bool:
    """Whether an engine reads a table; if not, prints why."""
    try:
        run(f"SELECT count(kind) FROM {table}")
    except Exception as error:  # noqa: BLE001  # of any engine
        print(f"  {engine:10} does not read {name}: {str(error).splitlines()[0][:100]} …")
        return False
    return True


def shown(seconds: dict[str, float]) -> str:
    return "  ".join(f"{name} {taken:7.3f} s" for name, taken in seconds.items())


if __name__ == "__main__":
    main()
