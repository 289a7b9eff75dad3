"""`VariantTable.optimize`: python -m benchmarks.optimize [ROWS], or python -m benchmarks.optimize sort [ROWS [ROUNDS]]

ROWS (1,000,000) events in 100 files in random order; files that a query of one actor, or of one event, opens before and after
clustering by one key and by two; seconds, beside `write` of the same rows with `cluster_by`; and bytes. Then Bluesky-like
documents clustered by their kind: the paths that get typed columns, and what that does to size and bytes read.

sort: ROWS (2,000,000) events in 100 files become one file by one key, sorted by tasks and by Spark in alternation; seconds.
"""

import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import delta_variant as dv
from benchmarks.analyze import events
from benchmarks.events import session
from benchmarks.jsonbench import documents

FILES = 100
POST = "v:commit.collection::string = 'app.bsky.feed.post'"
POSTS = ("commit.record.text", "commit.record.reply.root.cid", "commit.collection")
"""Paths of posts, which are nine in a hundred documents, and one that all kinds have."""
_LEAST_BYTES = "spark.delta_variant.lateMaterializationBytes"
ACTOR, EVENT = "v:actor.id::bigint = 77", "v:id::bigint = 777"


def seconds(action: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def opened(spark: SparkSession, table: Path, where: str) -> str:
    [scan] = dv.explain(spark.sql(f"SELECT v:type::string FROM delta.`{table}` WHERE {where}")).scans
    return f"{scan.files_after_bounds} of {scan.files_total}"


def size(spark: SparkSession, table: Path) -> int:
    return int(spark.sql(f"DESCRIBE DETAIL delta.`{table}`").first().sizeInBytes)


def bytes_read(spark: SparkSession, query: str) -> int:
    """The bytes that the JVM reads for a query, by the kernel's count, once its plan, its footers and its code are known."""
    for _ in range(2):
        spark.sql(query).collect()
    counts = Path(f"/proc/{spark._jvm.java.lang.ProcessHandle.current().pid()}/io")  # noqa: SLF001
    before, _, after = counts.read_text(), spark.sql(query).collect(), counts.read_text()
    return int(after.split()[1]) - int(before.split()[1])


def content(spark: SparkSession, table: Path) -> tuple:
    return tuple(spark.sql(f"SELECT count(*), bit_xor(xxhash64(v::string)) FROM delta.`{table}`").first())


def scattered(spark: SparkSession, folder: Path, rows: int) -> None:
    dv.write(events(spark, rows, 4).repartition(FILES, F.rand(3)), folder / "events", max_rows_per_file=2 * rows // FILES)
    before = content(spark, folder / "events")
    table = dv.VariantTable.forPath(spark, folder / "events")
    per_file = size(spark, folder / "events") // FILES
    show = lambda: f"actor {opened(spark, folder / 'events', ACTOR)}, event {opened(spark, folder / 'events', EVENT)}"  # noqa: E731
    print(f"{rows:,} events: {show()} files opened, {size(spark, folder / 'events'):,} bytes")
    whole = spark.read.format("delta").load(str(folder / "events"))
    for keys in (["v:actor.id"], ["v:actor.id", "v:id"]):
        took, done = seconds(lambda keys=keys: table.optimize(cluster_by=keys, max_file_size=per_file))
        print(f"  by {', '.join(keys)}: {took:.1f} s, {show()} files opened, {size(spark, folder / 'events'):,} bytes")
        again, nothing = seconds(lambda keys=keys: table.optimize(cluster_by=keys, max_file_size=per_file))
        print(f"  once more: {again:.1f} s, {nothing.commits} commits")
        limit = rows // done.files_added
        anew, _ = seconds(
            lambda keys=keys, limit=limit: dv.write(
                whole, folder / "anew", "overwrite", cluster_by=keys, max_rows_per_file=limit
            )
        )
        equal = content(spark, folder / "events") == before
        print(f"  write(cluster_by=…) {anew:.1f} s, ratio {anew / took:.1f}; rows are equal: {equal}")


def kinds(spark: SparkSession, folder: Path, rows: int) -> None:
    (folder / "documents.ndjson").write_text("\n".join(json.dumps(document) for document in documents(rows)))
    texts = spark.read.text(str(folder / "documents.ndjson"))
    dv.write(texts, folder / "posts", parse_json={"v": "value"}, max_rows_per_file=rows // 20)
    table = dv.VariantTable.forPath(spark, folder / "posts")

    def show(when: str) -> None:
        found = table.inspect().where("typed > 0 OR residual > 0")
        typed = found.where("typed > 0").select("path").distinct().count()
        beside = found.agg(F.sum("residual_bytes")).first()[0] or 0
        total = size(spark, folder / "posts")
        print(f"  {when}: {total:,} bytes, {typed} typed paths, {beside:,} bytes of residuals")
        for path in POSTS:
            query = f"SELECT count(v:{path}::string), max(length(v:{path}::string)) FROM delta.`{folder / 'posts'}`"
            everything, ours = bytes_read(spark, query), bytes_read(spark, f"{query} WHERE {POST}")
            print(f"    {path}: {everything:,} bytes read, {ours:,} with a filter on the kind")

    print(f"{rows:,} documents by kind")
    show("before")
    table.optimize(cluster_by=["v:commit.collection"], max_file_size=size(spark, folder / "posts") // 20)
    show("after")


def sort(spark: SparkSession, folder: Path, rows: int, rounds: int) -> None:
    made, copy = folder / "made", folder / "copy"
    dv.write(events(spark, rows, 4).repartition(FILES, F.rand(3)), made, max_rows_per_file=2 * rows // FILES)
    found: dict[str, list[float]] = {"tasks": [], "Spark": []}
    for _ in range(rounds + 1):  # the first one warms up
        for way, least in (("tasks", "1m"), ("Spark", "1p")):
            shutil.copytree(made, copy)
            spark.conf.set(_LEAST_BYTES, least)
            took, done = seconds(lambda: dv.VariantTable.forPath(spark, copy).optimize(cluster_by=["v:actor.id"]))
            found[way].append(took)
            print(f"  {way}: {took:.1f} s, {done.files_added} file", flush=True)
            shutil.rmtree(copy)
    tasks, by_spark = (statistics.median(found[way][1:]) for way in ("tasks", "Spark"))
    print(f"{rows:,} events sorted by tasks: {tasks:.1f} s, by Spark: {by_spark:.1f} s, ratio {by_spark / tasks:.2f}")


def main() -> None:
    own = [int(number) for number in sys.argv[1:] if number != "sort"]
    folder = Path(tempfile.mkdtemp(prefix="delta-variant-optimize-"))
    spark = session()
    dv.enable(spark)
    try:
        if "sort" in sys.argv:
            sort(spark, folder, *(own + [2_000_000, 5][len(own) :]))
        else:
            rows = own[0] if own else 1_000_000
            scattered(spark, folder, rows)
            kinds(spark, folder, rows // 10)
    finally:
        spark.stop()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
