"""Writers at once, writers that conflict, and writers that are killed: what a table holds is what was committed.

Rows carry the writer they are of, the number of the write and their own place in it, so that what is lost, doubled or cut in
half is seen. Some writers are threads of one session, as several jobs of one driver are; others are processes, each with a JVM
of its own, so that Delta's log store stands between them.

The two long tests are at full length with DELTA_VARIANT_SOAK (`make soak`): two hundred commits, fifty kills.
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

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import RDD
from pyspark.sql import SparkSession

import delta_variant as dv
from delta_variant.errors import TableError
from delta_variant.transaction import Table
from delta_variant.writer import Commit, write
from tests.contents import read
from tests.logs import newest
from tests.support import INTERPRETED, SOAK, forget, share

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]

ROWS = 6
"""Rows of every write."""


def rows(spark, writer: str, number: int = 0, tasks: int = 1, ids=None):
    return (ids or spark.range(0, ROWS, 1, tasks)).selectExpr(
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

SCRIPT = "from tests.writer.test_concurrency import obey; obey()"


def obey() -> None:
    """What a process runs: a session, then the writes that lines on its input ask for, which it reports on its output."""

    def tell(*words) -> None:
        print("@" + json.dumps(words), flush=True)

    builder = (
        SparkSession.builder.master("local[2]").config("spark.driver.memory", "1g").config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2").config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.databricks.delta.properties.defaults.checkpointInterval", "3")
        .config("spark.python.daemon.module", "tests.daemon")
    )  # fmt: skip
    for key, value in INTERPRETED.items():
        builder = builder.config(key, value)
    packages = dv.configure(builder)._options.pop("spark.jars.packages")  # they are on the class path
    assert "delta-spark" in packages
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    tell("ready", spark._jvm.ProcessHandle.current().pid())
    for line in sys.stdin:
        task, failures = json.loads(line), 0
        number = task["first"]
        while number < task["end"]:
            tell("writing", number)
            try:
                tell("done", number, perform(spark, task, number).version)
                number += 1
            except Exception as error:  # noqa: BLE001  # whatever it is, the parent judges it
                tell("failed", number, type(error).__name__, str(error))
                failures += 1
                if failures == 5:  # its JVM is gone
                    os._exit(1)
    spark.stop()


def perform(spark, task: dict, number: int) -> Commit:
    """The write of that number: it may be repeated, and every fourth replaces the table's rows where the task says so."""
    frame = rows(spark, task["writer"], number, task["tasks"])
    mode = "overwrite" if task["overwrites"] and number % 4 == 3 else "append"
    return write(frame, task["table"], mode, txn=(task["writer"], number))


class Writer:
    """A process that runs `obey`, and all processes that it starts, which a mark in their environment identifies."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._mark = f"DELTA_VARIANT_WRITER={uuid.uuid4()}"
        name, value = self._mark.split("=")
        self._process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT], env={**environment, "PYTHONPATH": os.pathsep.join(sys.path), name: value},
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
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

    def await_word(self, word: str, number: int) -> None:
        """Waits until it has told this word with this number or a higher one."""
        wait(lambda: self.last(word) >= number or self._process.poll() is not None, f"{word!r} {number} after {self.told[-3:]}")
        assert self.last(word) >= number, self.told[-3:]

    def begin(self, table, **task) -> None:
        self.await_word("ready", 0)
        self.told = [words for words in self.told if words[0] == "ready"]
        print(json.dumps({"table": str(table), **task}), file=self._process.stdin, flush=True)

    def kill(self, whom: str) -> None:
        """Sends SIGKILL to all processes or to one kind, and returns when all that must end with them has ended."""
        jvm = self.last("ready")
        victims = {"driver": [self._process.pid], "jvm": [jvm]}.get(whom) or self.processes()
        if whom == "workers":
            victims = [pid for pid in victims if pid not in (self._process.pid, jvm)]
        for pid in victims:
            _kill(pid)
        if whom == "all":  # also those that were started meanwhile
            wait(lambda: not [_kill(pid) for pid in self.processes()], "the end of all processes")
        if whom != "workers":
            wait(lambda: not self.processes(), f"the end of all processes after that of the {whom}")
            self._reap()

    def _reap(self) -> None:
        self._process.wait()
        self._ears.join()

    def processes(self) -> list[int]:
        """The ids of all its running processes, the driver's first, orphans included."""
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


@pytest.fixture(scope="module")
def spares(jvm_environment):
    """Makes sure that so many processes wait for a task. A test may leave one here that has done its task."""
    waiting: list[Writer] = []

    def made(count: int) -> list[Writer]:
        while len(waiting) < count:
            waiting.append(Writer(jvm_environment))
        return waiting

    yield made
    for process in waiting:
        process.kill("all")


# ------------------------------------------------------------------------------------------------------- writers at once

COMMITS = 25 if SOAK else 2
"""Commits of each of the writers."""
PROCESSES = 2 if SOAK else 1
"""How many of them are processes; six are threads."""


@linux
@pytest.mark.slow
def test_eight_writers_and_readers(spark, spares, tmp_path):
    """Six threads and two processes append at once (`make test`: one): nothing is lost, none doubled, every version is whole.

    Each read meanwhile finds whole writes, of each writer the first ones without a gap, and no fewer than the read before.
    Two of the threads do every write twice under one number, which must not show.
    """
    path, to_df = tmp_path / "t", RDD.toDF
    write(rows(spark, "first"), path)
    processes = spares(PROCESSES)
    for i, process in enumerate(processes):
        process.begin(path, writer=f"process {i}", first=0, end=COMMITS, tasks=1, overwrites=False)
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
            time.sleep(4)  # else reads take most of two cores
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
        assert all(reader.result() for reader in readers)
    assert not [words for process in processes for words in process.told if words[0] == "failed"]
    everyone = [*(f"thread {i}" for i in range(6)), *(f"process {i}" for i in range(PROCESSES))]
    assert writes_in(read(spark, path)) == {"first": [0], **{name: list(range(COMMITS)) for name in everyone}}
    assert RDD.toDF is to_df
    versions_are_readable(spark, path, 1 + len(everyone) * COMMITS)


def versions_are_readable(spark, path: Path, versions: int) -> None:
    """Each version is the one before and a whole write: by log and files for all, and by Delta itself for every tenth."""
    for actions in log(path):
        (add,) = (action["add"] for action in actions if "add" in action)
        assert not any("remove" in action for action in actions)
        assert pq.read_metadata(path / unquote(add["path"])).num_rows == ROWS
    assert newest(path) == versions - 1
    forget(spark)
    for number in range(versions - 1, -1, -10):
        frame = spark.read.format("delta").option("versionAsOf", number).load(str(path))
        assert sum(map(len, writes_in(frame).values())) == number + 1


# -------------------------------------------------------------------------------------------------- writers that conflict


def held(spark, gate: Path):
    """Ids that are delivered when the file `open` exists; the file `reached` is created when they are asked for."""
    gate.mkdir()

    def pass_on(batches):
        (gate / "reached").touch()
        for _ in range(12_000):
            if (gate / "open").exists():
                break
            time.sleep(0.01)
        yield from batches

    return spark.range(0, ROWS, 1, 1).mapInArrow(pass_on, "id long")


IN_0, IN_1 = {"where": "p = 0"}, {"where": "p = 1"}
OVERWRITE = {"mode": "overwrite"}
REPLACE = {**OVERWRITE, "replace_where": "p = 0", **IN_0}
CONFLICTS = {
    "an append elsewhere": (REPLACE, IN_1, None),
    "an append into what is replaced": (REPLACE, IN_0, "CONCURRENT_APPEND"),
    "an append under an overwrite": (OVERWRITE, {}, "CONCURRENT_APPEND"),
    "an append into another partition under a dynamic overwrite": (
        {**OVERWRITE, "partition_overwrite": "dynamic", **IN_0}, IN_1, None,
    ),
    "two overwrites": (OVERWRITE, OVERWRITE, "CONCURRENT"),
    "an overwrite under an append": ({}, OVERWRITE, None),
    "a new column under an append": ({}, {"merge_schema": True, "also": "1 extra"}, "METADATA_CHANGED|metadata"),
    "an append under a new column": ({"merge_schema": True, "also": "1 extra"}, {}, None),
}  # fmt: skip


@pytest.mark.parametrize("case", share(CONFLICTS, 2))
def test_one_write_while_another_runs(spark, tmp_path, case):
    """Of two writes at once both take effect, or Delta refuses the one that commits last, which takes none.

    The first has taken its snapshot and waits in its job while the second runs from beginning to end.
    """
    first, second, refused = CONFLICTS[case]
    path, gate = tmp_path / "t", tmp_path / "gate"
    write(rows(spark, "old"), path, partition_by=["p"])

    def run(writer: str, options: dict, ids=None) -> Commit:
        options = dict(options)
        frame = rows(spark, writer, ids=ids).where(options.pop("where", "true"))
        return write(frame.selectExpr("*", options.pop("also", "p p")) if "also" in options else frame, path, **options)

    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(run, "first", first, held(spark, gate))
        wait(lambda: (gate / "reached").exists() or waiting.done(), "the job of the first write")
        try:
            assert run("second", second).version == 1
        finally:
            (gate / "open").touch()
        if refused:
            with pytest.raises(TableError, match=rf"writing to delta\.`.*` failed: .*({refused})") as error:
                waiting.result()
            assert "\tat " not in str(error.value)
        else:
            assert waiting.result().version == 2
    expected = after([] if refused else [("first", first)], after([("second", second)], {("old", 0), ("old", 1)}))
    assert {tuple(row) for row in read(spark, path).select("writer", "p").distinct().collect()} == expected
    assert newest(path) == (1 if refused else 2)


def after(writes, found: set[tuple[str, int]]) -> set[tuple[str, int]]:
    """What a table holds, writer and partition, after these writes one after another."""
    for writer, options in writes:
        partitions = [p for p in (0, 1) if options.get("where") in (None, f"p = {p}")]
        if options.get("mode") == "overwrite":
            whole = "where" not in options
            found = {(other, p) for other, p in found if not whole and p not in partitions}
        found = found | {(writer, p) for p in partitions}
    return found


def test_two_writes_create_one_table(spark, tmp_path):
    """Of two writes that find no table the one that ends last is refused; done again, it appends."""
    path, gate = tmp_path / "t", tmp_path / "gate"
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(write, rows(spark, "first", ids=held(spark, gate)), path)
        wait(lambda: (gate / "reached").exists() or waiting.done(), "the job of the first write")
        try:
            assert write(rows(spark, "second"), path).version == 0
        finally:
            (gate / "open").touch()
        with pytest.raises(TableError, match=r"writing to delta\.`.*` failed: ") as error:
            waiting.result()
    assert "\tat " not in str(error.value)
    assert writes_in(read(spark, path)) == {"second": [0]}
    assert write(rows(spark, "first"), path).version == 1
    assert writes_in(read(spark, path)) == {"first": [0], "second": [0]}


# -------------------------------------------------------------------------------------------------- writers that are killed

TASK = {"writer": "job", "tasks": 3, "overwrites": True}
FILES = 3
"""Files of a write of TASK, one for each task; two tasks run at a time."""
VICTIMS = ["all"] * 24 + ["driver"] * 3 + ["jvm"] * 3 + ["workers"] * 20
if not SOAK:
    VICTIMS = ["all", "workers", "driver"]
MOMENTS = ("called", "some files", "all files", "log", "committed")


class Target:
    """A table that is written to under kills: its writes are numbered as its versions are."""

    def __init__(self, spark, path: Path) -> None:
        self.spark, self.path = spark, path
        self.known: set[Path] = set()
        """The data files after the last check."""

    def files(self) -> set[Path]:
        return set(self.path.rglob("*.parquet")) - set(self.path.glob("_delta_log/*"))

    def entries(self) -> set[str]:
        return {entry.name for entry in self.path.glob("_delta_log/*")}

    def await_moment(self, moment: str, chance: random.Random) -> None:
        """Waits until the files of a write that was just called show this moment, then for a random time."""
        files, entries = self.files(), self.entries()
        versions = sum(name.endswith(".json") for name in entries)
        count = chance.randint(1, FILES - 1) if moment == "some files" else FILES
        seen, longest = {
            "called": (lambda: True, 1.5),
            "some files": (lambda: len(self.files() - files) >= count, 0.02),
            "all files": (lambda: len(self.files() - files) >= count, 0.4),
            "log": (lambda: self.entries() != entries, 0.02),
            "committed": (lambda: sum(name.endswith(".json") for name in self.entries()) > versions, 0.2),
        }[moment]
        wait(seen, f"the moment {moment!r} of a write")
        time.sleep(chance.uniform(0, longest))

    def check(self, number: int, done: int) -> str:
        """After a kill in the write of that number: all before it are there, and it is there as a whole or not at all.

        `done` is the last number whose write had returned. Returns where in the write the kill was, as the files tell.
        """
        versions = log(self.path)
        assert [action["txn"]["version"] for actions in versions for action in actions if "txn" in action] == list(
            range(len(versions))
        )
        assert max(number, done + 1) <= len(versions) <= number + 1
        adds = [action["add"] for actions in versions for action in actions if "add" in action]
        for add in adds:
            file = self.path / unquote(add["path"])
            assert file.stat().st_size == add["size"]
            assert pq.read_metadata(file).num_rows == json.loads(add["stats"])["numRecords"]
        forget(self.spark)
        self.same(len(versions))
        if len(versions) > number:
            return "after the commit"
        new = self.files() - self.known - {self.path / unquote(add["path"]) for add in adds}
        if not new:
            return "before the first file"
        return "between the files and the commit" if len([file for file in new if complete(file)]) == FILES else "in the job"

    def same(self, count: int) -> None:
        """Checks that the table is what its first `count` writes make."""
        table = Table.of(self.spark, self.path)
        assert table.exists() == (count > 0)
        if count:
            start = max((n for n in range(count) if n % 4 == 3), default=0)
            assert newest(self.path) == count - 1
            assert writes_in(read(self.spark, self.path)) == {"job": list(range(start, count))}

    def repeat(self, number: int, *, committed: bool) -> None:
        """The write that was cut off, done again: it goes through, or is left out where it had been committed."""
        commit = perform(self.spark, {"table": str(self.path), **TASK}, number)
        assert (commit.version, commit.files) == (number, 0 if committed else FILES)
        self.known = self.files()


def complete(file: Path) -> bool:
    try:
        return pq.read_metadata(file).num_rows > 0
    except pa.ArrowInvalid:
        return False


@linux
@pytest.mark.slow
def test_killed(spark, spares, tmp_path):
    """Whenever a writer is killed, its table is at a committed version, and the same write done again makes it whole.

    Of fifty SIGKILLs, 24 are to all processes of a writer (the driver, its JVM, the Python workers), three to the driver only,
    three to the JVM only, and twenty to the workers only: then the driver survives and writes again. `make test` has three: to
    all, to the driver, to the workers.
    The writer appends, and overwrites with every fourth write; every third writer begins without a table. The kills are spread
    over a write by the files that it leaves, plus a random time. Every third version has a checkpoint.
    """
    chance = random.Random(6)
    victims = chance.sample(VICTIMS, len(VICTIMS))
    moments = [MOMENTS[i % len(MOMENTS)] for i in range(len(VICTIMS))]
    ends = sum(whom != "workers" for whom in victims) + (victims[-1] == "workers")  # of writers: so many are needed
    waiting = spares(2)
    stages: Counter[tuple[str, bool]] = Counter()
    cut_off: Counter[str] = Counter()
    targets: list[Target] = []
    writer, number, writers = None, 0, 0
    try:
        for whom, moment in zip(victims, moments, strict=True):
            if writer is None:
                writer = waiting.pop(0)
                if writers + 2 < ends:
                    spares(2)
                if writers % 3 == 0:
                    targets.append(Target(spark, tmp_path / f"t{len(targets)}"))
                    number = 0
                target, writers = targets[-1], writers + 1
                writer.begin(target.path, first=number, end=1 << 30, **TASK)
            number += chance.choice((0, 0, 0, 1))
            writer.await_word("writing", number)
            target.await_moment(moment, chance)
            writer.kill(whom)
            number = writer.last("writing")
            if whom == "workers":
                writer.await_word("done", number)
                cut_off.update(words[2] for words in writer.told if words[:2] == ["failed", number])
                target.known = target.files()
            else:
                stage = target.check(number, writer.last("done"))
                stages[stage, number == 0] += 1
                target.repeat(number, committed=stage == "after the commit")
                writer = None
            number += 1
    finally:
        if writer:
            writer.kill("all")
    targets[-1].same(number)
    print(f"kills by where they were, and whether there was no table before: {dict(stages)}; without workers: {dict(cut_off)}")
    assert len({stage for stage, _ in stages}) > 1
    assert any(created for _, created in stages)
    if SOAK:
        assert {stage for stage, _ in stages} >= {"before the first file", "in the job", "after the commit"}
        assert cut_off
