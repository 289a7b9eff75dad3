"""Rows that are sorted by way of blocks (`writer.blocks`): the same rows in the same order as one sort of all of them."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delta_variant.storage import Storage
from delta_variant.writer import blocks

NUMBERS = st.none() | st.sampled_from([0.0, -0.0, 1.5, math.inf, -math.inf, math.nan]) | st.floats(-9, 9)
KINDS = {
    pa.float64(): NUMBERS,
    pa.string(): st.none() | st.text("abé\U0001f600", max_size=2),
    pa.int64(): st.none() | st.integers(-3, 3),
    pa.decimal128(9, 2): st.none() | st.integers(-3, 3).map(lambda number: Decimal(number) / 4),
    pa.timestamp("us", "UTC"): st.none() | st.integers(0, 9).map(lambda second: datetime.fromtimestamp(second, UTC)),
    pa.bool_(): st.none() | st.booleans(),
    pa.binary(): st.none() | st.binary(max_size=2),
}


@st.composite
def tables(draw) -> pa.Table:
    """Rows as Spark sends them: the number of a file, a place, keys, a partition column and the number of the row."""
    rows = draw(st.integers(1, 60))
    kinds = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=3))
    columns = {
        blocks.FILE: pa.array(draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows)), pa.int32()),
        blocks.PLACE: pa.nulls(rows, pa.struct([("file", pa.string()), ("row", pa.int64())])),
    }
    for number, kind in enumerate(kinds):
        values = draw(st.lists(KINDS[kind], min_size=rows, max_size=rows))
        columns[f"{blocks.KEY}{number}"] = pa.array(values, kind)
    columns["p"] = pa.array(draw(st.lists(st.sampled_from([None, "", "a"]), min_size=rows, max_size=rows)), pa.string())
    columns["row"] = pa.array(range(rows))
    return pa.table(columns)


@pytest.mark.parametrize("size", [1, 200, 1 << 20])
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_order(monkeypatch, tmp_path, size, data):
    """The rows of each file and partition have the order of pyarrow's sort of all rows, whatever the sizes are.

    Blocks may arrive in any order, and rows with equal keys may have any.
    """
    for name in ("BLOCK_BYTES", "MERGE_BYTES", "_BATCH_BYTES"):
        monkeypatch.setattr(blocks, name, size)
    table = data.draw(tables())
    sorting = blocks.Sorting(Storage.of(str(tmp_path)), {}, ("p",))
    batches = table.to_batches(max_chunksize=data.draw(st.integers(1, 70)))
    made = data.draw(st.permutations(list(blocks.sorted_blocks(sorting, iter(batches)))))
    keys = [name for name in table.column_names if name.startswith(blocks.KEY)]
    ordered = table.take(blocks._order(table, keys))
    rows_of = table.to_pylist()
    schema = pa.schema([("row", pa.int64())])
    for number in range(3):
        sent = sorted((block for block in made if block[blocks.FILE][0].as_py() == number), key=partition)
        rows = [batch.drop_columns([blocks.FILE]) for batch in sent]
        found = [
            pair
            for batch in blocks.Reader(schema).batches(iter(rows))
            for pair in zip(batch["p"].to_pylist(), batch["row"].to_pylist(), strict=True)
        ]
        of_file = [row for row in ordered.to_pylist() if row[blocks.FILE] == number]
        expected = [(row["p"], row["row"]) for row in sorted(of_file, key=lambda row: repr(row["p"]))]
        assert sorted(found, key=repr) == sorted(expected, key=repr)
        assert [(p, key_of(rows_of[row], keys)) for p, row in found] == [(p, key_of(rows_of[row], keys)) for p, row in expected]


def key_of(row: dict, keys: list[str]) -> list[str]:
    """The keys of a row, NaN like NaN, and 0.0 like -0.0."""
    return [repr(row[key] + 0.0 if isinstance(row[key], float) else row[key]) for key in keys]


def partition(block: pa.RecordBatch) -> str:
    return repr(block["p"][0].as_py())


def test_what_spark_would_run(tmp_path):
    """`unpacked`, by which Spark runs the second stage itself, gives the rows of all blocks in the types of a schema."""
    table = pa.table(
        {
            blocks.FILE: pa.array([0, 0, 0], pa.int32()),
            blocks.PLACE: pa.nulls(3, pa.struct([("file", pa.string()), ("row", pa.int64())])),
            f"{blocks.KEY}0": [3, 1, 2],
            "p": ["a", "b", "a"],
            "row": pa.array([30, 10, 20], pa.int32()),
        }
    )
    sorting = blocks.Sorting(Storage.of(str(tmp_path)), {}, ("p",))
    made = [block.drop_columns([blocks.FILE]) for block in blocks.sorted_blocks(sorting, iter(table.to_batches()))]
    schema = pa.schema([("row", pa.int64()), ("p", pa.string())])
    found = pa.Table.from_batches(list(blocks.unpacked(schema, iter(made))), schema)
    assert found.to_pylist() == [{"row": 20, "p": "a"}, {"row": 30, "p": "a"}, {"row": 10, "p": "b"}]
    assert list(blocks.unpacked(schema, iter([]))) == []


def test_another_version(tmp_path):
    """A task of another version of the package fails, and `optimize` then has Spark sort the rows."""
    sorting = blocks.Sorting(Storage.of(str(tmp_path)), {}, (), version="0.0")
    with pytest.raises(RuntimeError, match="install the same version"):
        next(blocks.sorted_blocks(sorting, iter([])))
