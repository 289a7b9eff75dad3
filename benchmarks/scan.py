"""`scan` against DuckDB over the same files: python -m benchmarks.scan [ROWS]

ROWS (400,000) documents like Bluesky's, shredded, in eight files in the order of their time. In turns, DuckDB on two threads
and `scan`, both to one Arrow table: all of the column, four paths, and filters that few rows pass. Printed are the medians of
five rounds after one to warm up, and ratios; above 1, `scan` is faster. The rows of both are compared once. Last, `scan` as
DuckDB's source, and as ClickHouse's where the package chdb is installed.
"""

import importlib.util
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import delta_variant as dv
from benchmarks.events import session
from benchmarks.jsonbench import START, documents

FILES, ROUNDS = 8, 5
PATHS = {"did": "string", "time_us": "bigint", "commit.collection": "string", "commit.operation": "string"}
DUCK = {"string": "varchar", "bigint": "bigint"}


def table(work: Path, rows: int) -> Path:
    """The table, written with Spark."""
    source = work / "documents"
    source.mkdir()
    with (source / "0.json").open("w") as file:
        file.writelines(json.dumps(document) + "\n" for document in documents(rows))
    spark = session(**{"spark.driver.memory": "4g"})
    texts = spark.read.text(str(source), wholetext=False).coalesce(1)
    dv.write(texts, work / "t", parse_json={"v": "value"}, max_rows_per_file=-(-rows // FILES))
    spark.stop()
    return work / "t"


def comparable(found: pa.Table) -> list[Any]:
    """The rows without their order; Variants as Python values."""
    columns = []
    for column in found.columns:
        kind = column.type.storage_type if isinstance(column.type, pa.BaseExtensionType) else column.type
        values = column.to_pylist()
        if pa.types.is_struct(kind) and {"metadata", "value"} <= {field.name for field in kind}:
            import delta_variant.arrow  # noqa: PLC0415  # registers the type, which DuckDB returns

            values = delta_variant.arrow.to_json(column).to_pylist()
            values = [json.dumps(json.loads(text), sort_keys=True) for text in values]
        columns.append(values)
    return sorted(zip(*columns, strict=True), key=repr)


def measured(name: str, duck: Callable[[], pa.Table], ours: Callable[[], pa.Table]) -> None:
    """Runs both in turns and prints their medians."""
    taken: dict[str, list[float]] = {"duckdb": [], "scan": []}
    rows = 0
    for round_ in range(1 + ROUNDS):
        for key, run in (("duckdb", duck), ("scan", ours)):
            start = time.perf_counter()
            found = run()
            if round_:
                taken[key].append(time.perf_counter() - start)
            rows = found.num_rows
    same = comparable(duck()) == comparable(ours())
    medians = {key: statistics.median(values) for key, values in taken.items()}
    print(
        f"  {name:28} {rows:9,} rows  duckdb {1000 * medians['duckdb']:8.1f} ms  scan {1000 * medians['scan']:8.1f} ms  "
        f"{medians['duckdb'] / medians['scan']:6.2f} times as fast  {'equal rows' if same else 'ROWS DIFFER'}",
        flush=True,
    )


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 400_000
    work = Path(tempfile.mkdtemp(prefix="delta-variant-scan-"))
    path = table(work, rows)
    duck = duckdb.connect(config={"threads": 2})
    files = f"read_parquet('{path}/*.parquet')"
    typed = [f"v:{name}::{kind}" for name, kind in PATHS.items()]
    selected = ", ".join(f'v.{name}::{DUCK[kind]} "v:{name}"' for name, kind in PATHS.items())

    def ask(text: str) -> Callable[[], pa.Table]:
        return lambda: duck.sql(text).to_arrow_table()

    hour = 3_600_000_000
    first = START + hour // 2
    person = dv.scan(path, ["v:did::string"], f"v:time_us::bigint >= {first}").read_next_batch().column(0)[0].as_py()
    minute = f"BETWEEN {first} AND {first + hour // 100}"
    list_ = "= 'app.bsky.graph.list'"
    filters = {
        "1 % of the time": (f"v:time_us::bigint {minute}", f"v.time_us::bigint {minute}"),
        "one person": (f"v:did::string = '{person}'", f"v.did::varchar = '{person}'"),
        "a rare collection": (f"v:commit.collection::string {list_}", f"v.commit.collection::varchar {list_}"),
    }
    measured("the whole column", ask(f"SELECT v FROM {files}"), lambda: dv.scan(path).read_all())
    measured("four paths", ask(f"SELECT {selected} FROM {files}"), lambda: dv.scan(path, typed).read_all())
    for name, (ours, theirs) in filters.items():
        for what, columns, listed in (("paths", typed, selected), ("documents", None, "v")):
            duck_query = ask(f"SELECT {listed} FROM {files} WHERE {theirs}")
            measured(f"{what}, {name}", duck_query, lambda c=columns, w=ours: dv.scan(path, c, w).read_all())

    def through(text: str) -> Callable[[], pa.Table]:
        def run() -> pa.Table:
            reader = dv.scan(path, {"c": "v:commit.collection::string"})
            return duckdb.sql(text.format("reader"), connection=duck).to_arrow_table() if reader else pa.table({})

        return run

    count = "SELECT c, count(*) n FROM {} GROUP BY 1"
    direct = f"(SELECT v.commit.collection::varchar c FROM {files})"
    measured("count, scan into DuckDB", ask(count.format(direct)), through(count))
    if importlib.util.find_spec("chdb"):
        import chdb  # noqa: PLC0415  # an extra

        reader = dv.scan(path, {"c": "v:commit.collection::string"})  # noqa: F841  # ClickHouse finds it by its name
        found = str(chdb.query("SELECT count(), uniqExact(c) FROM Python(reader)")).strip()
        [counted] = duck.sql(f"SELECT count(*), count(DISTINCT c) FROM {direct}").fetchall()
        print(f"  scan into ClickHouse: {'equal counts' if found == f'{counted[0]},{counted[1]}' else 'COUNTS DIFFER'}")
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
