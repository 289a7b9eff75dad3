"""`VariantTable.analyze` beside rewriting the same files: python -m benchmarks.analyze [FILES] [ROWS]

    small   FILES (10,000) shredded files of 100 events without bounds; `analyze`, and rewriting them by `write`
    large   a shredded table of ROWS (2,000,000) events in 16 files without bounds: bytes that `analyze` reads, and its bounds
    plain   the same table, plain: `analyze`, and rewriting it shredded by `write`

Printed are seconds, the ratio, the share of the bytes that were read, and the files that a query of one row opens. The table
without bounds is a copy of one that `write` made, whose log has lost bounds and tags.
"""

import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import delta_variant as dv
from benchmarks.events import EVENT, session


def events(spark: SparkSession, rows: int, files: int):
    return spark.range(0, rows, 1, files).select(F.parse_json(F.expr(EVENT)).alias("v"))


def without_bounds(table: Path, copy: Path) -> None:
    """A copy of a table whose Add actions have no bounds of VARIANT columns and no tags."""
    shutil.copytree(table, copy)
    for commit in (copy / "_delta_log").glob("*.json"):
        lines = []
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                action["add"].pop("tags", None)
                action["add"]["stats"] = re.sub(r',?"v":"[^"]*"', "", action["add"]["stats"])
            lines.append(json.dumps(action))
        commit.write_text("\n".join(lines))
    for checksum in (copy / "_delta_log").glob("*crc"):
        checksum.unlink()


def seconds(action: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def opened(spark: SparkSession, table: Path, rows: int) -> str:
    query = spark.sql(f"SELECT v:type::string FROM delta.`{table}` WHERE v:id::bigint = {rows // 2}")
    [scan] = dv.explain(query).scans
    return f"{scan.files_after_bounds} of {scan.files_total} files, {scan.files_typed} typed"


def bounds(table: Path) -> dict:
    found = {}
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                found[action["add"]["path"]] = json.loads(action["add"]["stats"])["minValues"].get("v")
    return found


def compare(spark: SparkSession, name: str, table: Path, rows: int, *, files: int, shredded: bool) -> None:
    before = opened(spark, table, rows)
    took, done = seconds(lambda: dv.VariantTable.forPath(spark, table).analyze())
    print(f"{name}: analyze {took:.2f} s, {done}")
    print(f"  read {done.bytes_read:,} of {done.bytes:,} bytes ({100 * done.bytes_read / done.bytes:.2f} %)")
    print(f"  one row opens {before} before, {opened(spark, table, rows)} after")
    whole = spark.read.format("delta").load(str(table))
    per_file = rows // files
    rewriting, _ = seconds(
        lambda: dv.write(whole, table.with_name(f"{table.name}-anew"), max_rows_per_file=per_file if shredded else None)
    )
    print(f"  rewriting {rewriting:.2f} s, ratio {rewriting / took:.1f}")


def main() -> None:
    files, rows = [int(text) for text in sys.argv[1:]] + [10_000, 2_000_000][len(sys.argv) - 1 :]
    folder = Path(tempfile.mkdtemp(prefix="delta-variant-analyze-"))
    spark = session()
    dv.enable(spark)
    try:
        dv.write(events(spark, 200, 2), folder / "warm-up")
        dv.VariantTable.forPath(spark, folder / "warm-up").analyze(paths=["v:type"])
        shape = {"v": "id bigint, type string, amount decimal(18,2), actor struct<id: bigint, login: string>"}
        dv.write(events(spark, 100 * files, 4), folder / "small0", max_rows_per_file=100, shred=shape)
        without_bounds(folder / "small0", folder / "small")
        compare(spark, f"{files:,} small files", folder / "small", 100 * files, files=files, shredded=True)
        dv.write(events(spark, rows, 16), folder / "large0")
        without_bounds(folder / "large0", folder / "large")
        compare(spark, f"{rows:,} events", folder / "large", rows, files=16, shredded=True)
        print(f"  bounds as those of write: {bounds(folder / 'large') == bounds(folder / 'large0')}")
        dv.write(events(spark, rows, 16), folder / "plain", shred=False)
        compare(spark, f"{rows:,} plain events", folder / "plain", rows, files=16, shredded=False)
    finally:
        spark.stop()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
