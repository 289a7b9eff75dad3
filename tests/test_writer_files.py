"""Files of a task: how large they become, and what the storage refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_variant.errors import TableError
from delta_variant.storage import Storage
from delta_variant.writer import sizes
from delta_variant.writer.task import write_files
from tests import tasks
from tests.strategies import column

TARGET = 512 << 10


@pytest.mark.parametrize(
    ("text", "size"),
    [(None, 128 << 20), ("1000", 1000), ("100mb", 100 << 20), ("64 MB", 64 << 20), ("1g", 1 << 30), ("2K", 2048), ("5b", 5)],
)
def test_target_size(text, size):
    """delta.targetFileSize is bytes or a number with a unit, as Spark reads sizes."""
    assert sizes.target_bytes({} if text is None else {"delta.targetFileSize": text}) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5g", "big", "10 apples"])
def test_target_size_refused(text):
    """Anything else is an error that names the property."""
    with pytest.raises(TableError, match=r"delta.targetFileSize = .* is not a size: write bytes, or 100mb"):
        sizes.target_bytes({"delta.targetFileSize": text})


def random_batches(count: int, rows: int, seed: int = 0) -> list[pa.RecordBatch]:
    """Rows of some 300 bytes, most of them random."""
    random = np.random.default_rng(seed)
    batches = []
    for _ in range(count):
        texts = random.bytes(128 * rows).hex()
        documents = [
            {"t": texts[256 * i : 256 * i + 256], "n": int(n)} for i, n in enumerate(random.integers(0, 1 << 62, rows))
        ]
        batches.append(pa.RecordBatch.from_arrays([pa.array(random.random(rows)), column(documents)], names=["x", "v"]))
    return batches


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_files_end_near_the_target(tmp_path, compression):
    """Files but the last are within a tenth of the target, batches larger or smaller than that, and no row is lost."""
    for batches in (random_batches(1, 16_000), random_batches(32, 500)):
        plan = tasks.plan(tmp_path, {("v",)}, max_bytes=TARGET, compression=compression)
        adds = tasks.run(plan, batches)
        assert len(adds) >= 4
        assert sum(add["rows"] for add in adds) == 16_000
        assert all(0.9 * TARGET < add["size"] < 1.1 * TARGET for add in adds[1:-1])
        assert 0.5 * TARGET < adds[0]["size"] < 1.3 * TARGET  # until its first row group nobody knows how well rows compress
        groups = [pq.ParquetFile(tmp_path / add["path"]).num_row_groups for add in adds]
        assert max(groups[1:]) == 1


def test_rows_per_file(tmp_path):
    """No file has more rows than asked for, and all but the last have exactly that many."""
    for rows in (250, 700, 9_000):
        counts = [add["rows"] for add in tasks.run(tasks.plan(tmp_path, {("v",)}, max_rows=rows), random_batches(7, 300))]
        assert counts == [rows] * (2100 // rows) + ([2100 % rows] if 2100 % rows else [])


def test_every_partition_has_a_file_of_its_own(tmp_path):
    """A task's rows, sorted by partition, become one file for each partition value, in its directory."""
    batch = random_batches(1, 100)[0].append_column("p", pa.array([str(i // 30) for i in range(100)]))
    adds = tasks.run(tasks.plan(tmp_path, {("v",)}, partition_by=("p",)), [batch.slice(0, 50), batch.slice(50)])
    assert [(add["partitionValues"]["p"], add["rows"]) for add in adds] == [("0", 30), ("1", 30), ("2", 30), ("3", 10)]
    assert all(add["path"].startswith(f"p={add['partitionValues']['p']}/part-") for add in adds)


def test_a_task_that_fails_deletes_its_files(tmp_path):
    """Whatever ends a task, an error in its input or the end of its consumer, its files are gone."""

    def batches(error: BaseException):
        yield from random_batches(6, 500)
        raise error

    for error in (ValueError("no more"), KeyboardInterrupt(), GeneratorExit()):
        with pytest.raises(type(error)):
            list(write_files(tasks.plan(tmp_path, {("v",)}, max_rows=400), batches(error)))
        assert list(tmp_path.iterdir()) == []


FULL = """
import resource, signal, sys
import pytest
from delta_variant.errors import TableError
from tests import tasks
from tests.test_writer_files import random_batches

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
with pytest.raises(TableError) as error:
    tasks.run(tasks.plan(sys.argv[1], {("v",)}, max_rows=4_000, infer=False), random_batches(10, 1_000))
print(error.value)
"""


def test_no_room(tmp_path):
    """Where the operating system takes no more bytes there is one error with the directory and the way out, and no file."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", FULL, tmp_path], env=environment, text=True, capture_output=True, check=False)
    assert done.stdout.strip() == f"cannot write to {tmp_path}: File too large: make room there", done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs a directory where root may not write")
def test_no_right():
    """A directory where nobody may write is one error with its name and the way out."""
    with pytest.raises(
        TableError, match=r"cannot write to /sys/kernel: Permission denied: give the user that the tasks run as the right"
    ):
        tasks.run(tasks.plan("/sys/kernel", {("v",)}), random_batches(1, 10))


def test_other_errors_of_the_storage_are_tried_again(tmp_path):
    """A directory that is missing may be there the next time: the error is not put into a report, so that Spark tries again."""
    with pytest.raises(FileNotFoundError):
        list(write_files(tasks.plan(tmp_path / "none", {("v",)}), iter(random_batches(1, 10))))


def test_bounds_of_files_in_a_row(tmp_path):
    """Every file has the statistics of its own rows."""
    batches = [pa.RecordBatch.from_arrays([column([{"n": i} for i in range(100)])], names=["v"])]
    adds = tasks.run(tasks.plan(tmp_path, {("v",)}, max_rows=25), batches)
    assert len({json.dumps(add["stats"]) for add in adds}) == 4
    assert all(a["stats"]["maxValues"] != b["stats"]["maxValues"] for a, b in pairwise(adds))
    assert Storage.of(str(tmp_path)).name == str(tmp_path)
