"""Writers at once, writers that conflict, and writers that are killed: what a table holds is what was committed.

Rows carry the writer they are of, the number of the write and their own place in it, so that what is lost, doubled or cut in
half is seen. Some writers are threads of one session, as several jobs of one driver are; others are processes, each with a JVM
of its own, so that Delta's log store stands between them.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from pyspark import RDD
from pyspark.sql import SparkSession

import delta_variant as dv
from delta_variant.errors import TableError
from delta_variant.transaction import Table
from delta_variant.writer import write
from tests.test_writer import read, version

pytestmark = pytest.mark.spark

ROWS = 6
"""Of every write, in two partitions."""


def rows(spark, writer: str, number: int, tasks: int = 1):
    return spark.range(0, ROWS, 1, tasks).selectExpr(
        f"'{writer}' writer", f"{number}L number", "id part", "id % 2 p",
        f"parse_json(concat('{{\"n\":', {number * ROWS}L + id, '}}')) v",
    )  # fmt: skip


def writes_in(frame) -> dict[str, list[int]]:
    """The numbers of every writer's writes; each of them is there with all its rows, once."""
    found = Counter(map(tuple, frame.selectExpr("writer", "number", "part", "p", "v:n::bigint").collect()))
    writes = sorted({(writer, number) for writer, number, *_ in found})
    assert found == Counter((w, n, part, part % 2, n * ROWS + part) for w, n in writes for part in range(ROWS))
    return {writer: [n for w, n in writes if w == writer] for writer in {w for w, _ in writes}}


def log(path) -> list[list[dict]]:
    """The actions of every version. Each file of the log is whole, and no version is missing."""
    files = sorted(Path(path, "_delta_log").glob("*.json"))
    assert [int(file.stem) for file in files] == list(range(len(files)))
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


def wait(condition, what: str) -> None:
    for _ in range(60_000):
        if condition():
            return
        time.sleep(0.002)
    pytest.fail(f"waited in vain for {what}")


# --------------------------------------------------------------------------------------------------- processes that write

SCRIPT = "import sys; from tests.test_writer_concurrency import obey; obey(*sys.argv[1:])"
# Most of what a short-lived JVM does is to load and compile classes: 17 s of processor time without these, 11 s with them.
QUICK_JVM = "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def obey(jars: str, java_options: str) -> None:
    """The process: a session, then writes as lines on its input tell, which it reports on its output."""

    def tell(*words) -> None:
        print("@" + json.dumps(words), flush=True)

    builder = (
        SparkSession.builder.master("local[2]").config("spark.driver.memory", "1g").config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2").config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.databricks.delta.properties.defaults.checkpointInterval", "3")
        .config("spark.driver.extraClassPath", jars).config("spark.driver.extraJavaOptions", java_options)
    )  # fmt: skip
    packages = dv.configure(builder)._options.pop("spark.jars.packages")  # they are in `jars`, and need no resolving
    assert "delta-spark" in packages
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    tell("ready", spark._jvm.ProcessHandle.current().pid())
    for line in sys.stdin:
        task, failures = json.loads(line), 0
        number = task["first"]
        while number < task["end"] and failures < 5:
            tell("writing", number)
            try:
                tell("done", number, perform(spark, task, number).version)
                number += 1
            except Exception as error:  # noqa: BLE001  # whatever it is, the parent judges it
                failures += 1
                tell("failed", number, type(error).__name__, str(error))
    spark.stop()


def perform(spark, task: dict, number: int):
    """The write of that number: it may be repeated, and every fourth replaces the table's rows where the task says so."""
    frame = rows(spark, task["writer"], number, task["tasks"])
    mode = "overwrite" if task["overwrites"] and number % 4 == 3 else "append"
    return write(frame, task["table"], mode, partition_by=["p"], txn=(task["writer"], number))


class Writer:
    """A process that obeys, and all that it starts, which is known by a mark in its environment."""

    def __init__(self, spark, java_options: str = "") -> None:
        jars = spark.sparkContext.getConf().get("spark.jars").replace("file://", "").replace(",", ":")
        self._mark = f"DELTA_VARIANT_WRITER={uuid.uuid4()}"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        name, value = self._mark.split("=")
        self._process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, jars, f"{QUICK_JVM} {java_options}"],
            env={**environment, name: value},
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.told: list[list] = []
        self._ears = Thread(target=self._listen, daemon=True)
        self._ears.start()

    def _listen(self) -> None:
        for line in self._process.stdout:
            if line.startswith("@"):
                self.told.append(json.loads(line[1:]))

    def last(self, word: str) -> int:
        """The last number that it told after this word, -1 without one."""
        return max((words[1] for words in list(self.told) if words[0] == word), default=-1)

    def begin(self, table, **task) -> None:
        wait(lambda: self.last("ready") >= 0 or self._process.poll() is not None, "a session")
        given = {"table": str(table), "writer": "job", "tasks": 1, "overwrites": False, **task}
        print(json.dumps(given), file=self._process.stdin, flush=True)

    def end(self) -> None:
        """Lets it end by itself."""
        self._process.stdin.close()
        wait(lambda: not self.processes(), "the end of a process")
        self._reap()

    def kill(self, whom: str) -> None:
        """SIGKILL to all processes, or to one kind of them. Comes back when what has to end for that has ended."""
        jvm = self.last("ready")
        victims = {"driver": [self._process.pid], "jvm": [jvm]}.get(whom) or self.processes()
        if whom == "workers":
            victims = [pid for pid in victims if pid not in (self._process.pid, jvm)]
        for pid in victims:
            _kill(pid)
        if whom == "all":  # those that were born meanwhile, too
            wait(lambda: not [_kill(pid) for pid in self.processes()], "the end of all processes")
        if whom != "workers":
            wait(lambda: not self.processes(), f"the end of all processes after that of the {whom}")
            self._reap()

    def _reap(self) -> None:
        self._process.wait()
        self._ears.join()

    def processes(self) -> list[int]:
        """All that run, the driver's first, however they were orphaned."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self._mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:  # it has ended, or is not ours
                continue
        return sorted(found)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


linux = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the processes of a writer in /proc")

# ------------------------------------------------------------------------------------------------------- writers at once

COMMITS = 25


@linux
@pytest.mark.slow
def test_eight_writers_and_readers(spark, tmp_path):
    """Six threads and two processes append two hundred times: nothing is lost or doubled, and every version can be read.

    Each read meanwhile finds whole writes, of each writer the first ones without a gap, and no fewer than the read before.
    Two of the threads do every write twice under one number, which must not show.
    """
    path, to_df = tmp_path / "t", RDD.toDF
    write(rows(spark, "first", 0), path, partition_by=["p"])
    processes = [Writer(spark), Writer(spark)]
    for i, process in enumerate(processes):
        process.begin(path, writer=f"process {i}", first=0, end=COMMITS)
    working = True

    def append(writer: str, *, repeats: bool) -> None:
        for number in range(COMMITS):
            txn = (writer, number) if repeats else None
            commit = write(rows(spark, writer, number), path, txn=txn)
            assert commit.rows == ROWS
            if repeats:
                again = write(rows(spark, writer, number), path, txn=txn)
                assert (again.files, again.rows) == (0, 0)
                assert again.version >= commit.version

    def look() -> int:
        before: dict[str, list[int]] = {}
        reads = 0
        while working:
            writes = writes_in(read(spark, path))
            assert all(numbers == list(range(len(numbers))) for numbers in writes.values())
            assert all(len(numbers) <= len(writes.get(writer, ())) for writer, numbers in before.items())
            before, reads = writes, reads + 1
        return reads

    with ThreadPoolExecutor(8) as threads:
        readers = [threads.submit(look) for _ in range(2)]
        writers = [threads.submit(append, f"thread {i}", repeats=i < 2) for i in range(6)]
        try:
            for writer in writers:
                writer.result()
            for process in processes:
                wait(lambda p=process: p.last("done") == COMMITS - 1, "the last write of a process")
        finally:
            working = False
            for process in processes:
                process.kill("all")
        assert all(reader.result() for reader in readers)
    assert not [words for process in processes for words in process.told if words[0] == "failed"]
    everyone = [*(f"thread {i}" for i in range(6)), *(f"process {i}" for i in range(2))]
    assert writes_in(read(spark, path)) == {"first": [0], **{name: list(range(COMMITS)) for name in everyone}}
    assert RDD.toDF is to_df
    every_version_is_readable(spark, path, 1 + len(everyone) * COMMITS)


def every_version_is_readable(spark, path, versions: int) -> None:
    """Delta reads each version's rows, and each holds one write more than the one before."""
    assert len(log(path)) == version(spark, path) + 1 == versions
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def count(number: int) -> int:
        frame = spark.read.format("delta").option("versionAsOf", number).load(str(path))
        return frame.where("v:n::bigint >= 0").count()

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(count, range(versions))) == [(i + 1) * ROWS for i in range(versions)]
