"""Long operations that are killed in the middle: each leaves a whole table, and the next call does what is left. The same for
calls whose Python workers are killed.

In the first test one process has all operations in its threads and is killed when each has made some of its commits: to start
Spark takes longer than any of them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JError

import delta_variant as dv
from delta_variant import parquet, stats
from delta_variant.errors import TableError
from tests import sources
from tests.analysis import indexed, tables
from tests.contents import canonical, read
from tests.logs import live
from tests.support import INTERPRETED, deltas_own_files, forget, share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.interpreted]

OPERATIONS = """
import json, os, signal, sys, threading
from pathlib import Path
from pyspark.sql import SparkSession
import delta_variant as dv
from delta_variant.analysis import driver, index
from delta_variant.rewriting import driver as rewriting
driver.BATCH_FILES, index._BATCH_FILES, rewriting.JOB_BYTES = 1, 5, 1  # several commits of each operation
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.memory", "2g")
builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.databricks.delta.snapshotPartitions", "1")
for key, value in json.loads(sys.argv[3]).items():
    builder = builder.config(key, value)
dv.configure(builder)._options.pop("spark.jars.packages")  # they are on the class path
spark = builder.getOrCreate()
root, commits = Path(sys.argv[1]), int(sys.argv[2])
together = threading.Barrier(6, lambda: os.killpg(os.getpgid(0), signal.SIGKILL), timeout=300)
def wait_from(files):
    return lambda progress: progress.files >= files and together.wait()
table = lambda name: dv.VariantTable.forPath(spark, str(root / name))
operations = [
    lambda: table("analyze").analyze(progress=wait_from(commits)),
    lambda: table("index").analyze(bloom=["v:cid"], budget=0.1, progress=wait_from(5 * commits)),
    lambda: table("unshred").unshred(progress=wait_from(commits)),
    lambda: dv.convert(spark, root / "parquet", root / "convert", commit_bytes=1, progress=wait_from(commits)),
    lambda: dv.ingest(spark, root / "json", root / "ingest", bad_records=root / "bad", commit_bytes=30_000,
        progress=wait_from(commits)),
    lambda: dv.ingest(spark, root / "changed", root / "reload", bad_records=root / "reload_bad", path_column="file",
        changed="reload", commit_bytes=1, progress=wait_from(commits)),
]
threads = [threading.Thread(target=operation, daemon=True) for operation in operations]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize("commits", share([1, 3], 2))
def test_killed(spark, jvm_environment, tmp_path, commits):
    """Killed after some of its commits and begun again, each operation completes, and rows are there once (W3, W5, W9, I1)."""
    names = ("analyze", "index", "unshred", "parquet", "convert", "json", "ingest", "bad", "changed", "reload", "reload_bad")
    paths = {name: tmp_path / name for name in names}
    tables.create(spark, paths["analyze"])
    tables.by_delta(spark, paths["analyze"], tables.rows(spark, 0, 80))
    dv.write(tables.rows(spark, 0, 60), paths["unshred"], shred={"v": tables.SHAPE})
    whole = {name: tables.rows_of(spark, paths[name]) for name in ("analyze", "unshred")}
    dv.write(indexed.rows(spark), paths["index"])
    paths["parquet"].mkdir()
    for n in range(6):
        parquet.write_table(sources.rows(n * 50, n * 50 + 50), paths["parquet"] / f"{n}.parquet", shred="auto")
    paths["json"].mkdir()
    for n in range(6):
        lines = sources.lines(n * 500, n * 500 + 500, bad=(n * 500 + 7,))
        (paths["json"] / f"{n:02}.json").write_text(lines)
    paths["changed"].mkdir()
    for first, last, bad in ((0, 20, 7), (10, 40, 11)):
        for n in range(0, 300, 50):
            file = paths["changed"] / f"{n:03}.json"
            file.write_text(sources.lines(n + first, n + last, bad=(n + bad,)))
            os.utime(file, (1_700_000_000 + first, 1_700_000_000 + first))
        if not first:
            dv.ingest(spark, paths["changed"], paths["reload"], bad_records=paths["reload_bad"], path_column="file")

    environment = {**jvm_environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", OPERATIONS, str(tmp_path), str(commits), json.dumps(INTERPRETED)]
    ended = subprocess.run(command, env=environment, start_new_session=True, capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()[-4000:]
    forget(spark)

    marked = sum(stats.BOUNDS_TAG in add.get("tags", {}) for add in live(paths["analyze"]).values())
    assert commits <= marked < 8
    plain = sum(stats.BOUNDS_TAG not in add.get("tags", {}) for add in live(paths["unshred"]).values())
    assert commits <= plain < 6
    assert tables.rows_of(spark, paths["analyze"]) == whole["analyze"]
    assert tables.rows_of(spark, paths["unshred"]) == whole["unshred"]
    assert indexed.sidecars(paths["index"])
    assert 50 * commits <= read(spark, paths["convert"]).count() < 300
    assert len(sources.ids(spark, paths["ingest"])) < 6 * 499

    before = [n for n in range(300) if n % 50 < 20 and n % 50 != 7]
    after = [n for n in range(300) if 10 <= n % 50 < 40 and n % 50 != 11]
    found = sources.ids(spark, paths["reload"])
    assert len(before) < len(found) < len(after)
    assert set(found) < {*before, *after}

    table = lambda name: dv.VariantTable.forPath(spark, str(paths[name]))  # noqa: E731
    assert table("analyze").analyze().files == 8 - marked
    assert tables.rows_of(spark, paths["analyze"]) == whole["analyze"]
    done = table("index").analyze(bloom=["v:cid"], budget=0.1).indexed
    assert (done.files, done.filters, done.failed) == (indexed.FILES - 5 * commits,) * 2 + ({},)
    rewritten = table("unshred").unshred()
    assert (rewritten.files_removed, rewritten.files_kept) == (6 - plain, plain)
    assert tables.rows_of(spark, paths["unshred"]) == whole["unshred"]
    converted = dv.convert(spark, paths["parquet"], paths["convert"])
    assert converted.skipped + converted.files == 6
    found = canonical(read(spark, paths["convert"]))
    assert found == canonical(sources.expected(spark, 300))
    dv.ingest(spark, paths["json"], paths["ingest"], bad_records=paths["bad"])
    assert sources.ids(spark, paths["ingest"]) == [n for n in range(3000) if n % 500 != 7]
    cut = [sources.lines(n, n + 1, bad=(n,)).rstrip("\n") for n in range(7, 3000, 500)]
    assert sources.bad_lines(spark, paths["bad"]) == Counter((f"{i:02}.json", 8, text) for i, text in enumerate(cut))
    dv.ingest(spark, paths["changed"], paths["reload"], bad_records=paths["reload_bad"], path_column="file", changed="reload")
    assert sources.ids(spark, paths["reload"]) == after
    cut = {(f"{n:03}.json", 2, sources.lines(n + 11, n + 12, bad=(n + 11,)).rstrip("\n")): 1 for n in range(0, 300, 50)}
    assert sources.bad_lines(spark, paths["reload_bad"]) == cut


@contextmanager
def killed_workers(spark: SparkSession) -> Iterator[None]:
    """Kills the Python workers of the session's tasks as long as the block runs."""
    ended = threading.Event()

    def kill() -> None:
        while not ended.wait(0.02):
            with suppress(Py4JError):  # a process has ended meanwhile
                for daemon in spark._jvm.java.lang.ProcessHandle.current().children().toArray():
                    for worker in daemon.children().toArray():
                        worker.destroyForcibly()

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_killed_workers(spark, tmp_path):
    """If the Python workers of a call are killed, the caller gets a TableError, the table stays as it is, and the next call
    succeeds."""
    path = tmp_path / "t"
    with deltas_own_files(spark):
        rows = spark.range(0, 60, 1, 2).selectExpr("id n", "parse_json('{\"n\": ' || id || '}') v")
        rows.write.format("delta").save(str(path))
    spark.sql(f"alter table delta.`{path}` set tblproperties ('delta.enableVariantShredding' = 'true')")
    rows, files = tables.rows_of(spark, path), live(path)
    table = dv.VariantTable.forPath(spark, str(path))
    for call in (table.shred, table.unshred):
        with killed_workers(spark), pytest.raises(TableError, match=r"reading the files of .* failed: .*"):
            call()
        assert live(path) == files
        call()
        assert tables.rows_of(spark, path) == rows
        files = live(path)
