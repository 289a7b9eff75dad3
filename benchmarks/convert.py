"""Parquet files with Variants → a shredded table with bounds: python -m benchmarks.convert [ROWS] | memory

A million events by default, in files of Spark's that are plain, and shredded, which Spark can read too. In alternation, on two
cores:

    spark     spark.read.parquet, then `write`
    convert   `convert`, whose tasks read the files
    through   `convert` into a table with a constraint, so that the rows go through Spark

Printed are medians of five rounds after one to warm up, rows a second, and ratios within rounds. `memory` prints the peak of a
Python worker over files of one row group, whose pages are much smaller than their values.
"""

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

import delta_variant as dv
from benchmarks.events import events, session
from benchmarks.ingest import peak_of_workers
from delta_variant import jvm

ROUNDS = 5
FILES = 4


def compare(spark: SparkSession, name: str, source: Path, rows: int) -> None:
    work = source.parent

    def through(table: Path) -> None:
        spark.sql(
            f"CREATE TABLE delta.`{table}` (id bigint, v variant) USING delta TBLPROPERTIES "
            "('delta.enableVariantShredding' = 'true', 'delta.constraints.c' = 'id >= 0')"
        )
        dv.convert(spark, source, table)

    ways: dict[str, Callable[[Path], object]] = {
        "spark": lambda table: dv.write(spark.read.parquet(str(source)), table),
        "convert": lambda table: dv.convert(spark, source, table),
        "through": through,
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    for round_ in range(ROUNDS + 1):
        for way, load in ways.items():
            shutil.rmtree(work / way, ignore_errors=True)
            start = time.perf_counter()
            load(work / way)
            if round_:
                times[way].append(time.perf_counter() - start)
    for way in ways:
        assert spark.read.format("delta").load(str(work / way)).count() == rows
    print(f"{name}: {rows:,} events, {sum(file.stat().st_size for file in source.glob('*.parquet')) / 1e6:,.0f} MB of Parquet")
    for way, taken in times.items():
        ratio = statistics.median(other / own for other, own in zip(times["spark"], taken, strict=True))
        median = statistics.median(taken)
        print(f"  {way:8}{median:7.2f} s {rows / median:12,.0f} rows/s   {ratio:.2f} times spark", flush=True)


def memory(work: Path) -> None:
    print(f"{'rows':>8} {'bytes a row':>12} {'MB':>6} peak of a worker, MiB")
    for rows, size in ((1_000_000, 1_000), (100_000, 10_000), (10_000, 100_000), (1_000, 1_000_000)):
        file = work / f"{rows}.parquet"
        one = dv.arrow.VariantArray.from_pylist([{"id": 1, "text": "x" * size}]).storage
        repeated = one.take(pa.array([0] * min(rows, 100_000_000 // size)))
        with pq.ParquetWriter(file, pa.schema([("v", one.type)]), compression="zstd") as writer:
            table = pa.table({"v": pa.chunked_array([repeated] * -(-rows // len(repeated)))})
            writer.write_table(table, row_group_size=rows)
        spark = session()
        dv.convert(spark, file, work / "t" / str(rows))
        peak = peak_of_workers(spark) / 1024
        print(f"{rows:8} {size:12} {file.stat().st_size / 1e6:6.1f} {peak:.0f}", flush=True)
        spark.stop()
        file.unlink()


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        if sys.argv[1:] == ["memory"]:
            memory(Path(directory))
            return
        rows = int(sys.argv[1].replace("_", "")) if len(sys.argv) > 1 else 1_000_000
        spark = session()
        for name, shredded in (("plain", "false"), ("shredded", "true")):
            source = Path(directory, name, "in")
            with jvm.settings(spark, {"spark.sql.variant.writeShredding.enabled": shredded}):
                events(spark, rows, FILES).write.parquet(str(source))
            compare(spark, name, source, rows)
        spark.stop()


if __name__ == "__main__":
    main()
