"""Rows that are sorted by way of blocks (`rewriting.sorting`, `writer.blocks`): all rows, in order, a range in each file."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import datetime, timezone
from decimal import Decimal
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import delta_variant as dv
from delta_variant.arrow import VariantArray
from delta_variant.features import TableFeatures
from delta_variant.rewriting import sorting
from delta_variant.storage import Storage
from delta_variant.writer import blocks

if TYPE_CHECKING:
    from pathlib import Path

DOUBLES = st.sampled_from([0.0, -0.0, 1.5, math.inf, -math.inf, math.nan]) | st.floats(-9, 9)
TEXTS = st.text("abé1\U0001f600", max_size=2)
KINDS = {
    "double": (pa.float64(), DOUBLES),
    "string": (pa.string(), TEXTS),
    "long": (pa.int64(), st.integers(-3, 3)),
    "decimal(9,2)": (pa.decimal128(9, 2), st.integers(-3, 3).map(lambda number: Decimal(number) / 4)),
    "timestamp": (pa.timestamp("us", "UTC"), st.integers(0, 9).map(lambda n: datetime.fromtimestamp(n, timezone.utc))),
    "date": (pa.date32(), st.dates()),
    "boolean": (pa.bool_(), st.booleans()),
    "binary": (pa.binary(), st.binary(max_size=2)),
}
VALUES = st.none() | st.booleans() | st.integers(-3, 3) | st.just(2**60) | DOUBLES | TEXTS | st.just(Decimal("1.50"))
DOCUMENTS = st.none() | st.just({}) | VALUES.map(lambda value: {"a": value, "b": 1})
SHREDDINGS = [None, "a bigint", "a string", "a double", "a decimal(9,2)", "b bigint"]


class Made:
    """A table of generated files, and how its rows are sorted."""

    def __init__(self, data: st.DataObject, folder: Path) -> None:
        count = data.draw(st.integers(1, 60))
        kinds = data.draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=3))
        self.keys = data.draw(st.permutations(["v:a", *(f"k{number}" for number in range(len(kinds)))]))
        self.keys = self.keys[: data.draw(st.integers(1, len(self.keys)))]
        columns = {"v": VariantArray.from_pylist(data.draw(st.lists(DOCUMENTS, min_size=count, max_size=count)))}
        for number, name in enumerate(kinds):
            kind, values = KINDS[name]
            columns[f"k{number}"] = pa.array(data.draw(st.lists(st.none() | values, min_size=count, max_size=count)), kind)
        self.rows = pa.table({**columns, "row": pa.array(range(count))})
        self.values = {name: self.rows[name].to_pylist() for name in columns if name != "v"}
        self.values["v:a"] = [(value or {}).get("a") for value in columns["v"].to_pylist()]
        self.partitions = data.draw(st.lists(st.sampled_from([None, "a"]), min_size=count, max_size=count))
        types = {"v": "variant", **{f"k{number}": name for number, name in enumerate(kinds)}, "row": "long", "p": "string"}
        fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
        self.features = TableFeatures("t", frozenset(), {}, {"type": "struct", "fields": fields}, ("p",), "id")
        self.storage = Storage.of(str(folder))
        self.actions = [self._file(data, folder, number, of) for number, of in enumerate(self._files(data))]

    def _files(self, data: st.DataObject) -> list[list[int]]:
        size = data.draw(st.integers(1, 70))
        found = []
        for partition in (None, "a"):
            rows = [row for row, value in enumerate(self.partitions) if value == partition]
            found += [rows[start : start + size] for start in range(0, len(rows), size)]
        return found

    def _file(self, data: st.DataObject, folder: Path, number: int, rows: list[int]) -> str:
        ddl = data.draw(st.sampled_from(SHREDDINGS))
        path = folder / f"{number}.parquet"
        dv.parquet.write_table(self.rows.take(pa.array(rows)), path, shred=ddl and {"v": ddl})
        values = {"p": self.partitions[rows[0]]}
        return json.dumps({"add": {"path": path.name, "size": path.stat().st_size, "partitionValues": values}})

    @property
    def sorting(self) -> sorting.Sorting:
        found = sorting.Sorting.of(self.features, self.storage, self.keys, "UTC")
        assert found is not None
        return found

    def tasks(self) -> list[pa.RecordBatch]:
        parts = [text for action in self.actions for text, _ in sorting.parts(action)]
        return [pa.RecordBatch.from_pydict({"part": [part]}) for part in parts]

    def position(self, row: int) -> tuple[Any, ...]:
        """What a row is sorted by, but for the texts of numbers."""
        return (ordered(self.partitions[row]), *map(ordered, (self.values[key][row] for key in self.keys)))


def ordered(value: Any) -> tuple[Any, ...]:
    """Numbers, NaN, then other values by their texts or in their own order, then nulls."""
    if value is None:
        return (3,)
    if isinstance(value, bool | int | float | Decimal):
        return (1,) if math.isnan(value) else (0, float(value))
    return (2, value.encode() if isinstance(value, str) else value)


def merged(made: Made, sent: list[pa.RecordBatch]) -> dict[int, list[int]]:
    """The rows of each new file, as the tasks of the second stage write them."""
    schema, found = pa.schema([("row", pa.int64())]), {}
    for number in sorted({block[blocks.FILE][0].as_py() for block in sent}):
        of_file = sorted((block for block in sent if block[blocks.FILE][0].as_py() == number), key=lambda one: repr(one["p"]))
        read = blocks.rows_of(schema, (one.drop_columns([blocks.FILE]) for one in of_file))
        rows = []
        for batch in read:
            assert batch["p"].to_pylist() == [made.partitions[row] for row in batch["row"].to_pylist()]
            rows += batch["row"].to_pylist()
        found[number] = rows
    return found


@pytest.mark.parametrize(("size", "most"), [(1, 2), (1, 128), (200, 3), (200, 128), (1 << 20, 2), (1 << 20, 128)])
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_order(monkeypatch, tmp_path_factory, size, most, data):
    """Each new file has a range of the rows, in order within its partitions, whatever the sizes are; each row is in one file.

    Pieces of blocks may arrive in any order, and rows with equal keys may have any. With several keys, rows have the order of a
    curve.
    """
    monkeypatch.setattr(sorting, "BLOCK_BYTES", size)
    for name in ("MERGE_BYTES", "BATCH_BYTES", "GROUP_BYTES"):
        monkeypatch.setattr(blocks, name, size)
    monkeypatch.setattr(blocks, "PIECE_BYTES", max(size, 100))
    monkeypatch.setattr(blocks, "MOST_BLOCKS", most)
    made, ranges = Made(data, tmp_path_factory.mktemp("files")), data.draw(st.integers(1, 4))
    how, tasks = made.sorting, made.tasks()
    sample = [pa.ipc.open_stream(one[0][0].as_py()).read_all() for one in sorting.sampled(how.of_keys, 1000, iter(tasks))]
    how = how.with_ranges(pa.concat_tables(sample), ranges)
    sent = data.draw(st.permutations(list(sorting.sorted_blocks(how, iter(data.draw(st.permutations(tasks)))))))
    found = merged(made, sent)
    assert sorted(row for rows in found.values() for row in rows) == list(range(made.rows.num_rows))
    assert set(found) <= set(range(ranges))
    if len(made.keys) == 1:
        for rows in found.values():  # partitions come as they are sent, and their rows in order
            for partition in (None, "a"):
                positions = [made.position(row) for row in rows if made.partitions[row] == partition]
                assert positions == sorted(positions)
        spans = [(min(map(made.position, rows)), max(map(made.position, rows))) for rows in found.values()]
        assert all(before[1] <= after[0] for before, after in pairwise(spans))


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), min_size=20, max_size=200), data=st.data())
def test_many_blocks(monkeypatch, keys, data):
    """A few blocks are merged at once, and rows with equal keys have the order of the first stage, however pieces arrive."""
    rows = [[(key, 10 * number + at) for at, key in enumerate(sorted(block))] for number, block in enumerate(keys)]
    tables = [pa.table({f"{blocks.KEY}0": [key for key, _ in block], "row": [row for _, row in block]}) for block in rows]
    at_once, merged = [], blocks._merged
    with monkeypatch.context() as patch:
        patch.setattr(blocks, "MOST_BLOCKS", 4)
        patch.setattr(blocks, "GROUP_BYTES", 1)
        patch.setattr(blocks, "PIECE_BYTES", 400)
        patch.setattr(blocks, "_merged", lambda some: at_once.append(len(some)) or merged(some))
        made = [piece for number, table in enumerate(tables) for piece in blocks.pieces_of(table, number // 3, number)]
        assert len(made) > len(tables)
        sent = [pa.RecordBatch.from_pydict({blocks.BLOCK: piece}) for piece in data.draw(st.permutations(made))]
        read = list(blocks.rows_of(pa.schema([("row", pa.int64())]), iter(sent)))
    found = [row for batch in read for row in batch["row"].to_pylist()]
    assert found == [row for _, row in sorted(row for block in rows for row in block)]
    assert max(at_once) == 4


@pytest.mark.parametrize(("dimensions", "bits"), [(1, 5), (2, 4), (3, 3), (4, 2), (6, 1)])
def test_hilbert(dimensions, bits):
    """The curve visits each point once, and each step goes to a neighbour."""
    points = np.array(list(product(range(1 << bits), repeat=dimensions)), np.int64).T
    places = sorting.hilbert(points, bits)
    assert sorted(places) == list(range(points.shape[1]))
    assert (np.abs(np.diff(points[:, np.argsort(places)])).sum(0) == 1).all()


def test_ranges_of_a_sample():
    """Ranges have about as many rows, by the rows that each row of the sample stands for."""
    numbers = np.arange(1000)
    weights = np.where(numbers < 500, 3.0, 1.0)
    sample = pa.table({"k": numbers, sorting._WEIGHT: weights})
    ends = sorting._ends(sample, ["k"], 4)["k"].to_pylist()
    assert ends == [166, 333, 499]
    _, found = sorting._ranks(sample.select(["k"]), pa.table({"k": ends}))
    assert [weights[found == number].sum() for number in range(4)] == [501, 501, 498, 500]


def test_parts_of_a_file(tmp_path, monkeypatch):
    """Each row group of a file is in one of its parts."""
    path = tmp_path / "0.parquet"
    pa.parquet.write_table(pa.table({"row": range(1000)}), path, row_group_size=90)
    monkeypatch.setattr(sorting, "PART_BYTES", 1000)
    schema = {"type": "struct", "fields": [{"name": "row", "type": "long", "nullable": True, "metadata": {}}]}
    how = sorting.Sorting.of(TableFeatures("t", frozenset(), {}, schema, (), "id"), Storage.of(str(tmp_path)), ["row"], "UTC")
    action = json.dumps({"add": {"path": path.name, "size": path.stat().st_size, "partitionValues": {}}})
    parts = sorting.parts(action)
    assert len(parts) > 2
    assert sum(size for _, size in parts) == path.stat().st_size
    batches = [pa.RecordBatch.from_pydict({"part": [text]}) for text, _ in parts]
    read = [[row for batch in found for row in batch["row"].to_pylist()] for _, found in sorting._read(how.query, batches)]
    assert sorted(row for rows in read for row in rows) == list(range(1000))
    assert sum(map(bool, read)) > 2


def test_what_spark_would_run():
    """`unpacked`, by which Spark runs the second stage itself, gives the rows of all blocks in the types of a schema."""
    rows = pa.table({f"{blocks.KEY}0": [1, 3], "row": pa.array([20, 30], pa.int32())})
    sent = [
        pa.RecordBatch.from_pydict({blocks.BLOCK: piece, "p": [p]})
        for p, part in (("a", rows), ("b", rows.slice(1)))
        for piece in blocks.pieces_of(part, 0, 0)
    ]
    schema = pa.schema([("row", pa.int64()), ("p", pa.string())])
    found = pa.Table.from_batches(list(blocks.unpacked(schema, iter(sent))), schema)
    assert found.to_pylist() == [{"row": 20, "p": "a"}, {"row": 30, "p": "a"}, {"row": 30, "p": "b"}]
    assert list(blocks.unpacked(schema, iter([]))) == []


def test_left_to_spark(tmp_path):
    """Spark sorts by structs and arrays, and tables with types that `scan` does not read."""
    inner = {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]}
    storage = Storage.of(str(tmp_path))
    for kind, key in ((inner, "k"), ({"type": "array", "elementType": "long", "containsNull": True}, "k"), ("interval", "row")):
        fields = [{"name": name, "type": of, "nullable": True, "metadata": {}} for name, of in (("k", kind), ("row", "long"))]
        features = TableFeatures("t", frozenset(), {}, {"type": "struct", "fields": fields}, (), "id")
        assert sorting.Sorting.of(features, storage, [key], "UTC") is None


def test_another_version(tmp_path):
    """A task of another version of the package fails, and `optimize` then has Spark sort the rows."""
    schema = {"type": "struct", "fields": [{"name": "row", "type": "long", "nullable": True, "metadata": {}}]}
    how = sorting.Sorting.of(TableFeatures("t", frozenset(), {}, schema, (), "id"), Storage.of(str(tmp_path)), ["row"], "UTC")
    for task in (
        sorting.sorted_blocks(replace(how, version="0.0"), iter([])),
        sorting.sampled(replace(how, version="0.0"), 1, iter([])),
    ):
        with pytest.raises(RuntimeError, match="install the same version"):
            next(task)
