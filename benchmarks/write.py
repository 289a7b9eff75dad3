"""`write` against delta-spark with bounds on: python -m benchmarks.write [events | wide | deep | keys [ROWS]]
The memory of `write` alone: python -m benchmarks.write memory [KILOBYTES]

Both write the same VARIANT column, read from the same unshredded Parquet files, into a new table with
delta.enableVariantShredding = true, zstd both, in alternation; the medians of the rounds after two to warm up are compared.
Each kind of data has a session of its own, so that the peak memory of its Python workers is its own.

* events: 15 leaves, one of them in an array of objects; 1,000,000 and 5,000,000 rows
* wide: 200 leaves in one object; 100,000 rows
* deep: 8 levels of objects with 3 leaves each; 1,000,000 rows
* keys: an object with 15 keys of 20,000, which are data; 100,000 rows
* memory: the peak of a Python worker for documents of 1 KB to 1 MB, half text and half an array of objects
"""

import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import delta_variant as dv
from benchmarks.events import EVENT, session

WARM_UP, ROUNDS = 2, 7
LEAVES = ("id * {} % 100003", "concat('text', id * {} % 1009)", "id * 0.{}", "id % {} = 0", "timestamp_seconds(id * {})")
"""Integers, strings, decimals, booleans, and times in text; of each `wide` has forty."""
LEVEL = "'id', id * {} % 50021, 'name', concat('name', id % {}), 'size', id % 100 * 0.5, 'in', named_struct({})"


def wide() -> str:
    fields = (f"'f{i}', {LEAVES[i % len(LEAVES)].format(i + 11)}" for i in range(200))
    return f"to_json(named_struct({', '.join(fields)}))"


def deep() -> str:
    inner = "'end', id"
    for i in range(8):
        inner = LEVEL.format(i + 7, i + 31, inner)
    return f"to_json(named_struct({inner}))"


KEYS = """to_json(named_struct('day', date_from_unix_date(id % 400), 'counts', map_from_arrays(
  transform(sequence(1, 15), i -> concat('user_', (id * 31 + i * 997) % 20011)),
  transform(sequence(1, 15), i -> named_struct('clicks', id * i % 51, 'views', id * i % 503)))))"""
DATA = {"events": EVENT, "wide": wide(), "deep": deep(), "keys": KEYS}
RUNS = (("events", 1_000_000), ("events", 5_000_000), ("wide", 100_000), ("deep", 1_000_000), ("keys", 100_000))
DOCUMENT = """to_json(named_struct('id', id, 'text', concat_ws('', transform(sequence(1, {0}), i -> sha2(concat(id, i), 256))),
  'items', transform(sequence(1, {0}), i -> named_struct('n', i, 'sku', substr(sha2(concat(i, id), 256), 1, 48)))))"""
"""Of 64 bytes for each number up to {0} in either half."""
KILOBYTES, MEGABYTES, FILE_SIZES = (1, 16, 100, 1024), 400, ("16mb", "128mb", "1gb")


def compare(kind: str, rows: int) -> None:
    """The two in alternation."""
    work = Path(tempfile.mkdtemp(prefix="delta-variant-write-"))
    spark = session(**{"spark.delta_variant.everyWrite": "off"})  # delta-spark's files are its own
    source = str(work / "source")
    spark.conf.set("spark.sql.variant.writeShredding.enabled", "false")
    spark.range(0, rows, 1, 2).select("id", F.parse_json(F.expr(DATA[kind])).alias("v")).write.parquet(source)
    spark.conf.set("spark.sql.variant.writeShredding.enabled", "true")

    def ours(table: Path) -> None:
        dv.write(spark.read.parquet(source), table)

    def delta_spark(table: Path) -> None:
        spark.read.parquet(source).write.format("delta").mode("append").save(str(table))

    steps = (("write", ours), ("delta-spark", delta_spark))
    seconds: dict[str, list[float]] = {name: [] for name, _ in steps}
    size: dict[str, int] = {}
    for round_ in range(WARM_UP + ROUNDS):
        for name, action in steps:
            table = work / name
            shutil.rmtree(table, ignore_errors=True)
            spark.sql(
                f"CREATE TABLE delta.`{table}` (id LONG, v VARIANT) USING delta "
                "TBLPROPERTIES ('delta.enableVariantShredding' = 'true')"
            )
            start = time.perf_counter()
            action(table)
            if round_ >= WARM_UP:
                seconds[name].append(time.perf_counter() - start)
            size[name] = sum(file.stat().st_size for file in table.glob("*.parquet"))
            assert spark.read.format("delta").load(str(table)).count() == rows
    print(f"{kind}, {rows:,} rows, {source_bytes(source) / rows:.0f} bytes a row in plain Parquet")
    for name, runs in seconds.items():
        median = statistics.median(runs)
        print(f"  {name:12} {median:6.2f} s  {rows / median:>10,.0f} rows/s  {size[name] / rows:6.1f} bytes/row")
    ratio = statistics.median(b / a for a, b in zip(*seconds.values(), strict=True))
    print(f"  {'ratio':12} {ratio:6.2f} (median of {ROUNDS} pairs)")
    print(f"  peak memory of a Python worker: {worker_memory(spark) >> 20} MiB", flush=True)
    spark.stop()
    shutil.rmtree(work)


def memory(kilobytes: int) -> None:
    """The peak of a worker over tables whose files are small and large."""
    work = Path(tempfile.mkdtemp(prefix="delta-variant-write-"))
    spark = session(**{"spark.databricks.delta.allowArbitraryProperties.enabled": "true"})
    rows, source = MEGABYTES * 1024 // kilobytes, str(work / "source")
    documents = F.parse_json(F.expr(DOCUMENT.format(kilobytes * 8)))
    spark.conf.set("spark.sql.variant.writeShredding.enabled", "false")
    spark.range(0, rows, 1, 8).select("id", documents.alias("v")).write.parquet(source)
    for size in FILE_SIZES:
        spark.sql(
            f"CREATE TABLE delta.`{work / size}` (id LONG, v VARIANT) USING delta "
            f"TBLPROPERTIES ('delta.enableVariantShredding' = 'true', 'delta.targetFileSize' = '{size}')"
        )
        assert dv.write(spark.read.parquet(source).coalesce(2), work / size).rows == rows
    peak = worker_memory(spark) >> 20
    print(f"memory, documents of {kilobytes:>4} KB, files of {', '.join(FILE_SIZES)}: {peak} MiB at most", flush=True)
    spark.stop()
    shutil.rmtree(work)


def source_bytes(source: str) -> int:
    return sum(file.stat().st_size for file in Path(source).glob("*.parquet"))


def worker_memory(spark: SparkSession) -> int:
    """Bytes: the most that any of the workers that still run, which are used again from job to job, has had in memory."""

    def peak(_: int) -> int:
        time.sleep(0.2)  # so that every worker gets one of the tasks
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

    return max(spark.sparkContext.parallelize(range(8), 8).map(peak).collect())


def main() -> None:
    if len(sys.argv) > 2:
        kind, number = sys.argv[1], int(sys.argv[2].replace("_", ""))
        if kind == "memory":
            memory(number)
        else:
            compare(kind, number)
        return
    runs = [*RUNS, *(("memory", kilobytes) for kilobytes in KILOBYTES)]
    if len(sys.argv) == 2:
        runs = [run for run in runs if run[0] == sys.argv[1]]
        runs = runs if sys.argv[1] == "memory" else runs[:1]
    for kind, number in runs:
        subprocess.run([sys.executable, "-m", "benchmarks.write", kind, str(number)], check=True)


if __name__ == "__main__":
    main()
