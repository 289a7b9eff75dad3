"""Files of JSON → a shredded table with bounds, four ways: python -m benchmarks.ingest [ROWS] | steps | columns | memory

Documents like Bluesky's, and events, a million of each by default, as files of JSON lines. In alternation, on two cores:

    delta   delta-spark: read.text, parse_json, its own shredded write (bounds on, by its internal setting)
    spark   read.text and parse_json, then `write`
    text    read.text, then `write(parse_json=…)`
    ingest  `ingest`

Printed are medians of five rounds after one to warm up, rows a second, ratios within rounds, and the size of the tables.
`steps` prints what one task needs for each step, without Spark. `columns` compares `ingest` with columns out of the document,
and with one of them as the partition column, to `ingest` without. `memory` prints the peak of a Python worker over files of 16
MB to 1 GB, plain and compressed.
"""

import gzip
import io
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import delta_variant as dv
from benchmarks.events import EVENT, session
from benchmarks.jsonbench import documents
from delta_variant import schema, shredding, stats
from delta_variant.features import delta_settings
from delta_variant.json_files import JsonFiles
from delta_variant.json_files.documents import Reader
from delta_variant.parquet.files import ROW_GROUP_BYTES, FileWriter
from delta_variant.pieces import Piece
from delta_variant.storage import Storage

ROUNDS = 5
FILES = 4


def bluesky(_: SparkSession | None, folder: Path, rows: int) -> None:
    for part in range(FILES):
        with (folder / f"{part}.jsonl").open("w") as file:
            for document in documents(rows // FILES, part):
                file.write(json.dumps(document, separators=(",", ":")) + "\n")


def events(spark: SparkSession, folder: Path, rows: int) -> None:
    spark.range(0, rows, 1, FILES).select(F.expr(EVENT)).write.mode("overwrite").text(str(folder))
    for file in folder.glob("part-*"):
        file.rename(file.with_suffix(".jsonl"))


def size(table: Path) -> int:
    return sum(file.stat().st_size for file in table.glob("*.parquet"))


def compare(spark: SparkSession, name: str, source: Path, rows: int) -> None:
    off, work = spark.newSession(), source.parent
    for key, value in delta_settings(off.conf.get).items():
        off.conf.set(key, value)

    def delta(table: Path) -> None:
        off.sql(f"CREATE TABLE delta.`{table}` (v VARIANT) USING delta TBLPROPERTIES ('delta.enableVariantShredding' = 'true')")
        parsed = off.read.text(str(source)).select(F.parse_json("value").alias("v"))
        parsed.write.format("delta").mode("append").save(str(table))

    ways: dict[str, Callable[[Path], object]] = {
        "delta": delta,
        "spark": lambda table: dv.write(spark.read.text(str(source)).select(F.parse_json("value").alias("v")), table),
        "text": lambda table: dv.write(spark.read.text(str(source)), table, parse_json={"v": "value"}),
        "ingest": lambda table: dv.ingest(spark, source, table),
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    for round_ in range(ROUNDS + 1):
        for way, load in ways.items():
            shutil.rmtree(work / way, ignore_errors=True)
            start = time.perf_counter()
            load(work / way)
            if round_:
                times[way].append(time.perf_counter() - start)
    assert spark.read.format("delta").load(str(work / "ingest")).count() == rows
    text = sum(file.stat().st_size for file in source.iterdir())
    print(f"{name}: {rows:,} documents, {text / 1e6:,.0f} MB of JSON")
    for way, taken in times.items():
        ratio = statistics.median(other / own for other, own in zip(times["delta"], taken, strict=True))
        median, stored = statistics.median(taken), size(work / way) / 1e6
        print(f"  {way:8}{median:7.2f} s {rows / median:12,.0f} rows/s {stored:8.1f} MB   {ratio:.2f} times delta-spark")
    own = statistics.median(a / b for a, b in zip(times["spark"], times["ingest"], strict=True))
    print(f"  ingest is {own:.2f} times as fast as write with Spark's parse_json", flush=True)


def steps(work: Path, rows: int) -> None:
    """Prints the time of each step of a task on documents like Bluesky's, the best of three runs."""
    bluesky(None, work, rows)
    pieces = [Piece(0, str(file), file.name, file.stat().st_size).json() for file in sorted(work.glob("*.jsonl"))]
    files = JsonFiles((Storage.of(str(work)),), "lines", None, 1 << 24, fails=True, allow_duplicate_keys=False)
    made: dict[str, list[pa.RecordBatch]] = {}

    def read() -> None:
        made["plain"] = list(Reader(files).batches(iter([pa.record_batch({"v": pieces})]), "v", Counter()))

    def shred() -> None:
        columns = [shredding.shred(batch.column("v"), shape, for_spark=True) for batch in made["plain"]]
        made["shredded"] = [pa.RecordBatch.from_arrays([column], names=["v"]) for column in columns]

    def bounds() -> None:
        found = stats.FileStats(kind, variants=variants, indexed=indexed, string_prefix=32, first={}, tight_bounds=True)
        for batch in made["shredded"]:
            found.update(batch)
        found.json()

    def encode() -> None:
        options = {"compression": "zstd", "row_group_bytes": ROW_GROUP_BYTES, "metadata": {}}
        writer = FileWriter(io.BytesIO(), kind, variants=variants, **options)
        for batch in made["shredded"]:
            writer.write(batch)
        writer.close()

    def timed(step: Callable[[], None]) -> None:
        taken = []
        for _ in range(4):
            start = time.perf_counter()
            step()
            taken.append(time.perf_counter() - start)
        print(f"  {step.__name__:8}{min(taken[1:]):6.2f} s", flush=True)

    print(f"{rows:,} documents, {sum(file.stat().st_size for file in work.glob('*.jsonl')) / 1e6:,.0f} MB of JSON")
    timed(read)
    shape = schema.infer(made["plain"][0].column("v").slice(0, 8192))
    timed(shred)
    kind, variants = made["shredded"][0].schema, frozenset([("v",)])
    indexed = stats.indexed_columns(kind, variants, 32, None)
    timed(bounds)
    timed(encode)


def with_columns(work: Path, rows: int) -> None:
    """Prints the time of `ingest` with two columns out of the document, in relation to `ingest` without: medians of rounds."""
    (work / "in").mkdir()
    bluesky(None, work / "in", rows)
    two = {"columns": {"kind": "v:kind::string", "time": "v:time_us::bigint"}}
    ways: dict[str, dict[str, object]] = {"without": {}, "columns": two, "partitioned": two | {"partition_by": ["kind"]}}
    times: dict[str, list[float]] = {way: [] for way in ways}
    spark = session()
    for round_ in range(ROUNDS + 1):
        for way, options in ways.items():
            shutil.rmtree(work / way, ignore_errors=True)
            start = time.perf_counter()
            dv.ingest(spark, work / "in", work / way, **options)
            if round_:
                times[way].append(time.perf_counter() - start)
    spark.stop()
    for way, taken in times.items():
        ratio = statistics.median(own / other for own, other in zip(taken, times["without"], strict=True))
        print(f"  {way:12}{statistics.median(taken):7.2f} s   {ratio:.2f} times as long as without", flush=True)


def peak_of_workers(spark: SparkSession) -> int:
    """The largest resident memory, in KiB, that a Python worker has had."""

    def peak(_: object) -> list[int]:
        import resource  # noqa: PLC0415  # in the worker

        return [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]

    return max(spark.sparkContext.parallelize(range(2), 2).mapPartitions(peak).collect())


def memory(work: Path) -> None:
    lines = "".join(json.dumps(document, separators=(",", ":")) + "\n" for document in documents(36_000)).encode()
    print(f"{'MB':>6} {'form':8} peak of a worker, MiB")
    for megabytes in (16, 128, 1024):
        for form, suffix in (("plain", "jsonl"), ("gzip", "jsonl.gz"), ("array", "json")):
            file = work / f"{megabytes}.{suffix}"
            with gzip.open(file, "wb", 1) if form == "gzip" else file.open("wb") as sink:
                for number in range(max(1, megabytes // 16)):
                    array = b"[" if number == 0 else b","
                    sink.write(array + b",".join(lines.splitlines()) if form == "array" else lines)
                if form == "array":
                    sink.write(b"]")
            spark = session()
            dv.ingest(spark, file, work / "t" / form / str(megabytes))
            print(f"{file.stat().st_size / 1e6:6.0f} {form:8} {peak_of_workers(spark) / 1024:.0f}", flush=True)
            spark.stop()
            file.unlink()


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        if sys.argv[1:] == ["memory"]:
            memory(Path(directory))
            return
        if sys.argv[1:] == ["columns"]:
            with_columns(Path(directory), 200_000)
            return
        if sys.argv[1:] == ["steps"]:
            steps(Path(directory), 500_000)
            return
        rows = int(sys.argv[1].replace("_", "")) if len(sys.argv) > 1 else 1_000_000
        spark = session()
        for name, make in (("bluesky", bluesky), ("events", events)):
            source = Path(directory, name, "in")
            source.mkdir(parents=True)
            make(spark, source, rows)
            compare(spark, name, source, rows)
        spark.stop()


if __name__ == "__main__":
    main()
