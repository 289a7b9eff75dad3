"""Files of a task: their size, errors of the storage, small files, and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_variant import binary
from delta_variant.errors import TableError
from delta_variant.parquet import read_table
from delta_variant.parquet.files import ROW_GROUP_BYTES
from delta_variant.stats import BOUNDS_TAG, NONNULL_TAG, decode_bounds
from delta_variant.storage import Storage
from delta_variant.writer import file_sizes
from delta_variant.writer.physical_columns import physical, physical_type
from delta_variant.writer.task import write_files
from tests import tasks
from tests.strategies import column, values

TARGET = 512 << 10


@pytest.mark.parametrize(
    ("text", "size"),
    [(None, 128 << 20), ("1000", 1000), ("100mb", 100 << 20), ("64 MB", 64 << 20), ("1g", 1 << 30), ("2K", 2048), ("5b", 5)],
)
def test_target_size(text, size):
    """delta.targetFileSize is bytes or a number with a unit, as Spark reads sizes."""
    assert file_sizes.target_bytes({} if text is None else {"delta.targetFileSize": text}) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5g", "big", "10 apples"])
def test_target_size_refused(text):
    """Any other text is an error that names the property."""
    with pytest.raises(TableError, match=r"delta.targetFileSize = .* is not a size: write bytes, or 100mb"):
        file_sizes.target_bytes({"delta.targetFileSize": text})


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
        assert 0.5 * TARGET < adds[0]["size"] < 1.3 * TARGET  # how well rows compress is not known before its first row group
        groups = [pq.ParquetFile(tmp_path / add["path"]).num_row_groups for add in adds]
        assert max(groups[1:]) == 1


IMPORTED = """
import sys
import pyarrow as pa
from tests import tasks

batches, directory = sys.argv[1:]
tasks.run(tasks.plan(directory, {("v",)}), list(pa.ipc.open_stream(batches)))
print([name for name in ("pandas", "delta_variant.jvm", "delta_variant.writer.driver") if name in sys.modules])
"""


def test_a_task_does_not_import_pandas_or_the_driver(tmp_path):
    """A task that infers a schema, shreds, and computes bounds of numbers, booleans, strings and times leaves both alone.

    pyarrow imports pandas for most conversions of Python values, which would take 0.8 s in each new Python worker.
    """
    documents = [
        {"n": n, "d": Decimal(n) / 4, "f": n / 3, "b": n > 0, "s": f"x{n}", "t": "2024-01-01T00:00:00Z"} for n in range(3000)
    ]
    batch = pa.RecordBatch.from_arrays([column([*documents, {"n": None}])], names=["v"])
    with pa.OSFile(str(tmp_path / "batches"), "wb") as file, pa.ipc.new_stream(file, batch.schema) as writer:
        writer.write_batch(batch)
    command = [sys.executable, "-c", IMPORTED, tmp_path / "batches", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr
    [written] = tmp_path.glob("*.parquet")
    assert len(pq.read_schema(written).field("v").type.field("typed_value").type) == len(documents[0])


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
    """A task that ends by an error, an interrupt or GeneratorExit deletes its files."""

    def batches(error: BaseException):
        yield from random_batches(6, 500)
        raise error

    for error in (ValueError("no more"), KeyboardInterrupt(), GeneratorExit()):
        with pytest.raises(type(error)):
            write_files(tasks.plan(tmp_path, {("v",)}, max_rows=400), batches(error))
        assert list(tmp_path.iterdir()) == []


FULL = """
import resource, signal, sys
import pytest
from delta_variant.errors import TableError
from tests import tasks
from tests.writer.test_task_files import random_batches

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
with pytest.raises(TableError) as error:
    tasks.run(tasks.plan(sys.argv[1], {("v",)}, max_rows=4_000, infer=False), random_batches(10, 1_000))
print(error.value)
"""


def test_no_room(tmp_path):
    """If the operating system takes no more bytes, there is one error with the directory and the way out, and no file."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", FULL, tmp_path], env=environment, text=True, capture_output=True, check=False)
    assert done.stdout.strip() == f"cannot write to {tmp_path}: File too large: make room there", done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs a directory where root may not write")
def test_no_right():
    """A directory that cannot be written to is one error with its name and the way out."""
    with pytest.raises(
        TableError, match=r"cannot write to /sys/kernel: Permission denied: give the user that the tasks run as the right"
    ):
        tasks.run(tasks.plan("/sys/kernel", {("v",)}), random_batches(1, 10))


def test_other_errors_of_the_storage_are_tried_again(tmp_path):
    """An error that another attempt may not meet, as of a file in place of the table's directory, is raised and not
    reported, so that Spark repeats the task."""
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        write_files(tasks.plan(tmp_path / "file", {("v",)}), iter(random_batches(1, 10)))


# ------------------------------------------------------------------------------------------------------------ small files


def orders(count: int) -> list[dict]:
    return [
        {"id": i, "user": {"name": f"user {i % 7}", "mail": "@" if i % 3 else None}, "ok": i % 2 == 0, "parts": [i, i + 1]}
        for i in range(count)
    ]


SHAPE = pa.struct([
    ("id", pa.int64()), ("ok", pa.bool_()), ("parts", pa.list_(pa.int64())),
    ("user", pa.struct([("mail", pa.string()), ("name", pa.string())])),
])  # fmt: skip


@pytest.mark.parametrize("count", [2, 20, 150])
def test_small_files_stay_small(tmp_path, count):
    """A file of few rows is plain, as without shredding, and has the bounds and the tag for nulls of a shredded one (F6)."""
    rows = orders(count)
    batch = pa.RecordBatch.from_arrays([column(rows)], names=["v"])
    [auto] = tasks.run(tasks.plan(tmp_path, {("v",)}, tags=True), [batch])
    [plain] = tasks.run(tasks.plan(tmp_path, {("v",)}, infer=False), [batch])
    [shredded] = tasks.run(tasks.plan(tmp_path, {("v",)}, shredding_schemas={("v",): SHAPE}, tags=True), [batch])
    assert (auto["left_plain"], auto["shredded"], auto["size"]) == (True, (), plain["size"])
    assert (shredded["left_plain"], shredded["shredded"]) == (False, ("v",))
    assert auto["size"] < shredded["size"]
    assert auto["stats"] == shredded["stats"]
    assert decode_bounds(auto["stats"]["maxValues"]["v"])["$['id']"] == count - 1
    assert (auto["tags"][BOUNDS_TAG], shredded["tags"][BOUNDS_TAG]) == ("1", "2")
    assert auto["tags"][NONNULL_TAG] == shredded["tags"][NONNULL_TAG]
    assert not plain.get("tags")
    assert pq.read_metadata(tmp_path / auto["path"]).num_columns == 2
    assert (tmp_path / auto["path"]).stat().st_size == auto["size"]
    assert values(read_table(tmp_path / auto["path"])["v"].combine_chunks()) == rows


def test_files_that_shredding_makes_smaller_are_shredded(tmp_path):
    """Files that shredding makes smaller are shredded, with several VARIANT columns and files too (F6)."""
    rows = orders(3000)
    other = pa.array(range(3000))
    batch = pa.RecordBatch.from_arrays([column(rows), other, column(rows)], names=["v", "i", "w"])
    adds = tasks.run(tasks.plan(tmp_path, {("v",), ("w",)}, max_rows=1500), [batch])
    assert [(add["left_plain"], add["shredded"], add["tags"][BOUNDS_TAG]) for add in adds] == [(False, ("v", "w"), "2")] * 2
    [plain] = tasks.run(tasks.plan(tmp_path, {("v",), ("w",)}, infer=False), [batch])
    assert sum(add["size"] for add in adds) < plain["size"]


@pytest.mark.parametrize(
    ("rows", "size", "plain"), [(8191, 1, True), (8192, 1, False), (500, 30_000, True), (800, 30_000, False)]
)
def test_which_files_are_encoded_in_both_forms(tmp_path, rows, size, plain):
    """A file that shredding makes larger is left plain if it has less than 8,192 rows and 16 MiB (F6)."""
    document = {f"k{n}": 1 for n in range(60)} | {"text": "x" * size}
    batch = pa.RecordBatch.from_arrays([column([document] * rows)], names=["v"])
    [add] = tasks.run(tasks.plan(tmp_path, {("v",)}), [batch])
    assert (add["left_plain"], add["rows"]) == (plain, rows)


@pytest.mark.parametrize("given", [False, True])
def test_a_small_target_does_not_make_wide_documents_larger(tmp_path, given):
    """Files of 400 paths end near a small target, with one row group, whether the shredding schema is given or inferred.

    With an inferred schema they are left plain where that is smaller (F6).
    """
    random = np.random.default_rng(0)
    rows = [{f"k{n:03}": f"{v:x}" for n, v in enumerate(random.integers(0, 1 << 16, 400))} for _ in range(1600)]
    batches = [pa.RecordBatch.from_arrays([column(rows[at : at + 100])], names=["v"]) for at in range(0, len(rows), 100)]
    shape = pa.struct([(f"k{n:03}", pa.string()) for n in range(400)])
    schemas = {("v",): shape} if given else {}
    [whole] = tasks.run(tasks.plan(tmp_path, {("v",)}, shredding_schemas=schemas), batches)
    target = whole["size"] // 4
    adds = tasks.run(tasks.plan(tmp_path, {("v",)}, max_bytes=target, shredding_schemas=schemas), batches)
    assert sum(add["rows"] for add in adds) == len(rows)
    assert len(adds) >= 4
    assert max(add["size"] for add in adds) < 1.3 * target
    assert {pq.ParquetFile(tmp_path / add["path"]).num_row_groups for add in adds} == {1}
    assert given or sum(add["size"] for add in adds) < 1.2 * whole["size"]
    found = [value for add in adds for value in values(read_table(tmp_path / add["path"])["v"].combine_chunks())]
    assert found == rows


def test_a_given_schema_is_followed_in_small_files_too(tmp_path):
    """In a small file, a column with a given schema is shredded, and one with an inferred schema is left plain (F6)."""
    batch = pa.RecordBatch.from_arrays([column(orders(20)), column(orders(20))], names=["v", "w"])
    plan = tasks.plan(tmp_path, {("v",), ("w",)}, shredding_schemas={("v",): SHAPE})
    [add] = tasks.run(plan, [batch])
    assert (add["left_plain"], add["shredded"], add["tags"][BOUNDS_TAG]) == (True, ("v",), "1")
    assert "$['id']" in decode_bounds(add["stats"]["minValues"]["w"])


# ----------------------------------------------------------------------------------------------------------------- memory


def large_batches(count: int, size: int) -> Iterator[pa.RecordBatch]:
    """Batches of 32 MiB, made when they are asked for, of documents of `size` bytes."""
    metadata, value = binary.encode({"id": 1, "text": "x" * size})
    rows = (32 << 20) // size
    for _ in range(count):
        yield pa.RecordBatch.from_arrays(
            [pa.StructArray.from_arrays([pa.array([value] * rows), pa.array([metadata] * rows)], ["value", "metadata"])], ["v"]
        )


@pytest.mark.parametrize("size", [16 << 10, 100 << 10, 1 << 20])
def test_memory_is_bounded(tmp_path, size):
    """However large documents and file are, buffers take less than two row groups, and 64 MiB for batches and encoded pages."""
    plan = tasks.plan(tmp_path, {("v",)}, max_bytes=1 << 30)
    write_files(plan, large_batches(1, size))  # kernels are compiled
    before = pa.total_allocated_bytes()
    peak = 0

    def watched():
        nonlocal peak
        for batch in large_batches(8, size):
            peak = max(peak, pa.total_allocated_bytes() - before)
            yield batch

    tracemalloc.start()
    try:
        assert len(write_files(plan, watched())) == 1
        assert peak + tracemalloc.get_traced_memory()[1] < 2 * ROW_GROUP_BYTES + (64 << 20)
    finally:
        tracemalloc.stop()


def test_what_is_written_lets_go_of_the_batch():
    """Columns in their physical type, shredded, plain and ordinary ones, share no memory with the batch from Spark."""
    given = column([{"a": 1}, "SQL NULL", {"a": 2, "b": "x"}])
    array = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), given)
    columns = {
        "v": given,
        "p": given,
        "s": pa.array(["a", None, "b"]),
        "l": array,
        "st": pa.StructArray.from_arrays([given, pa.array([1, 2, 3])], ["w", "i"]),
    }
    variants = frozenset({("v",), ("p",), ("l", "list", "element"), ("st", "w")})
    shapes = {("v",): pa.struct([("a", pa.int64())]), ("st", "w"): pa.struct([("a", pa.int64())])}
    for name, values_in in columns.items():
        ours = buffers(values_in)
        target = physical_type(values_in.type, (name,), variants, shapes)
        found = buffers(physical(values_in, target, (name,), variants, shapes))
        assert not ours & found, name


def buffers(array: pa.Array) -> set[int]:
    return {buffer.address for buffer in array.buffers() if buffer is not None and buffer.size}


def test_a_sample_is_bounded_in_bytes(tmp_path):
    """A schema is inferred from the first 16 MiB, however few rows: paths that appear later get stubs."""
    parts = [{"text": "x" * (100 << 10)}] * 200, [{"late": i} for i in range(200)]
    plan = tasks.plan(tmp_path, {("v",)})
    [add] = tasks.run(plan, [pa.RecordBatch.from_arrays([column(rows)], names=["v"]) for rows in parts])
    fields = tasks.schema(plan, add).field("v").type.field("typed_value").type
    assert {field.name: field.type.field("typed_value").type for field in fields} == {"text": pa.string(), "late": pa.int64()}


def test_bounds_of_files_in_a_row(tmp_path):
    """Every file has the statistics of its own rows."""
    batches = [pa.RecordBatch.from_arrays([column([{"n": i} for i in range(100)])], names=["v"])]
    adds = tasks.run(tasks.plan(tmp_path, {("v",)}, max_rows=25), batches)
    assert len({json.dumps(add["stats"]) for add in adds}) == 4
    assert all(a["stats"]["maxValues"] != b["stats"]["maxValues"] for a, b in pairwise(adds))
    assert Storage.of(str(tmp_path)).name == str(tmp_path)
