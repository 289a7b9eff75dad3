"""Rows that are written anew in an order: rows that say where their Variants are → sorted blocks → the rows of files.

An external merge sort in two stages of tasks. In: the rows of files with their keys and the number of the new file that each
goes to, without their VARIANT columns. A task of the first stage reads those columns in the files (`writer.late`), sorts as
many rows as take `BLOCK_BYTES`, and makes one block, an Arrow stream, of those of each new file. Spark sends blocks to the
tasks of the second stage, which write files. Out: in such a task, the rows of its blocks, merged.

Spark would rebuild each Variant, send it and sort it as a row of its own.

Invariants: memory holds a few times `BLOCK_BYTES` in the first stage, and about `MERGE_BYTES` in the second, whose blocks are
in a temporary file. A block has rows of one partition.
"""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_right
from dataclasses import dataclass
from itertools import chain, count, groupby, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from delta_variant.parquet.physical import with_types
from delta_variant.parquet.tables import beside
from delta_variant.version import __version__, check_version
from delta_variant.writer import late

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from delta_variant.storage import Storage

BLOCK_BYTES = 16 << 20
MERGE_BYTES = 16 << 20
FILE, PLACE, BLOCK = "delta_variant file", "delta_variant place", "delta_variant block"
"""Columns: the number of a new file; the URI of an old file and the index of a row in it; a block."""
KEY = "delta_variant key "
"""How the names of the columns with keys begin. Rows are sorted by the first, then by the next; nulls come last."""
_GROUP = "delta_variant group"
_ORDER = b"delta_variant order"  # of blocks, by which the order of rows with equal keys does not depend on Spark's exchange
_BATCH_BYTES = 1 << 20  # of a block; the merge may take less at once
_LOCAL = "SPARK_LOCAL_DIRS"  # which Spark sets for its workers


@dataclass(frozen=True)
class Sorting:
    """How rows are sorted into blocks."""

    location: Storage
    """The directory of the table."""
    variants: Mapping[str, tuple[int, ...]]
    """The VARIANT columns that tasks read, as in `row_sources.LateVariants`."""
    partition_by: tuple[str, ...]
    version: str = __version__
    """The version of this package on the driver."""


def sorted_blocks(sorting: Sorting, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task of the first stage. In: batches with FILE, PLACE, the keys and other columns. Out: FILE, BLOCK, partition columns.

    Raises what `late.materialized` does.
    """
    check_version(sorting.version)
    context = TaskContext.get()
    task, number = context.partitionId() if context else 0, count()
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in late.materialized((_placed(batch, sorting) for batch in batches), sorting.location, sorting.variants):
        pending.append(batch)
        size += batch.nbytes
        if size >= BLOCK_BYTES:
            yield from _blocks(pending, sorting, (task, next(number)))
            pending, size = [], 0
    if pending:
        yield from _blocks(pending, sorting, (task, next(number)))


def _placed(batch: pa.RecordBatch, sorting: Sorting) -> pa.RecordBatch:
    """The rows with places in the VARIANT columns."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    place = columns.pop(PLACE)
    return pa.RecordBatch.from_pydict({**columns, **dict.fromkeys(sorting.variants, place)})


def _blocks(batches: list[pa.RecordBatch], sorting: Sorting, order: tuple[int, int]) -> Iterator[pa.RecordBatch]:
    rows = pa.Table.from_batches(batches).combine_chunks()
    batches.clear()
    apart = [FILE, *sorting.partition_by]
    groups = np.zeros(rows.num_rows, np.int64)
    for name in apart:
        codes = rows[name].combine_chunks().dictionary_encode(null_encoding="encode")
        groups = groups * len(codes.dictionary) + codes.indices.to_numpy()
        groups = pa.array(groups).dictionary_encode().indices.to_numpy().astype(np.int64)
    keys = _keys(rows)
    for key in keys:
        if pa.types.is_temporal(rows[key].type):
            number = pa.int64() if rows[key].type.bit_width == 64 else pa.int32()
            rows = rows.set_column(rows.schema.get_field_index(key), key, rows[key].cast(number))
    rows = rows.append_column(_GROUP, pa.array(groups))
    rows = rows.take(_order(rows, [_GROUP, *keys]))
    starts = np.searchsorted(rows[_GROUP].to_numpy(), np.arange(groups.max() + 2))
    kept = rows.drop_columns([_GROUP, *apart]).replace_schema_metadata({_ORDER: f"{order[0]:09} {order[1]:09}"})
    step = max(1, kept.num_rows * _BATCH_BYTES // max(1, kept.nbytes))
    for start, end in pairwise(starts.tolist()):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, kept.schema) as stream:
            stream.write_table(kept.slice(start, end - start), max_chunksize=step)
        first = rows.slice(start, 1).combine_chunks()
        data = sink.getvalue()
        block = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(np.array([0, len(data)], np.int32)), data])
        yield pa.RecordBatch.from_pydict(
            {FILE: first[FILE].chunk(0), BLOCK: block, **{name: first[name].chunk(0) for name in sorting.partition_by}}
        )


def _keys(rows: pa.Table | pa.RecordBatch) -> list[str]:
    return [name for name in rows.schema.names if name.startswith(KEY)]


def _order(rows: pa.Table, names: list[str]) -> pa.Array:
    return pc.sort_indices(rows, [(name, "ascending") for name in names])


class Reader:
    """Reads blocks for one task of the second stage."""

    def __init__(self, schema: pa.Schema) -> None:
        """schema: the columns of the rows, without partition columns."""
        self._schema = schema

    def batches(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of blocks, followed by the partition columns of their blocks.

        rows: batches with blocks, and with partition columns after them; those of a partition are together.
        """
        each = (batch.slice(number, 1) for batch in rows for number in range(batch.num_rows))
        for _, blocks in groupby(each, lambda row: [column[0].as_py() for column in row.columns[1:]]):
            with tempfile.TemporaryFile(dir=os.environ.get(_LOCAL, "").split(",")[0] or None) as file:
                ends = [0]
                for row in blocks:
                    file.write(row.column(0)[0].as_buffer())
                    ends.append(file.tell())
                    own = row.select(range(1, row.num_columns))
                file.flush()
                merged = _merged([_Block(file.fileno(), *part) for part in pairwise(ends)])
                for batch in merged:
                    yield beside(with_types(batch.select(self._schema.names), self._schema), own)


def unpacked(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of blocks as Spark has them, for mapInArrow; `Reader` does it in the tasks of a write.

    schema: PySpark's, with the partition columns at the end.
    """
    for batch in batches:
        count = batch.num_columns - 1
        reader = Reader(pa.schema(list(schema)[: len(schema) - count]))
        yield from (with_types(rows, schema) for rows in reader.batches(chain([batch], batches)))


def _merged(blocks: list[_Block]) -> Iterator[pa.RecordBatch]:
    """The rows of sorted blocks in their order, without the keys."""
    heads = sorted((_Head(block, MERGE_BYTES // len(blocks)) for block in blocks), key=lambda head: head.order)
    while heads:
        least = min(head.last for head in heads)
        rows = pa.Table.from_batches([head.until(least) for head in heads])
        heads = [head for head in heads if not head.is_empty]
        keys = _keys(rows)
        rows = rows.take(_order(rows, keys)) if len(blocks) > 1 else rows
        yield from rows.drop_columns(keys).combine_chunks().to_batches()


class _Block:
    """A block in a file, for reading. To map the file would count it as memory of the process."""

    closed = False

    def __init__(self, file: int, start: int, end: int) -> None:
        self._file, self._at, self._end = file, start, end

    def read(self, size: int) -> bytes:
        data = os.pread(self._file, min(size, self._end - self._at), self._at)
        self._at += len(data)
        return data


class _Head:
    """The next rows of a block, of which memory holds one or two times `size` bytes."""

    def __init__(self, block: _Block, size: int) -> None:
        stream = pa.ipc.open_stream(pa.PythonFile(block, mode="r"))
        self.order = stream.schema.metadata[_ORDER]
        self._parts = _parts(stream, size)
        self._rows = next(self._parts)
        self._least = self._rows.num_rows
        self._see()

    def until(self, key: tuple[Any, ...]) -> pa.RecordBatch:
        """Takes the rows up to this key."""
        end = bisect_right(range(self._rows.num_rows), key, key=self._key)
        taken, self._rows = self._rows.slice(0, end), self._rows.slice(end)
        # With a few rows more, each step of a merge would be about a few rows.
        while self._rows.num_rows < self._least and (part := next(self._parts, None)) is not None:
            self._rows = pa.concat_batches([self._rows, part])
        self._see()
        return taken

    @property
    def is_empty(self) -> bool:
        return not self._rows.num_rows

    def _see(self) -> None:
        self._keys = [self._rows.column(name) for name in _keys(self._rows)]
        self.last = () if self.is_empty else self._key(self._rows.num_rows - 1)

    def _key(self, row: int) -> tuple[Any, ...]:
        """The keys of a row in the order that `_order` gives them: nulls are last, and NaN is before them."""
        values = [column[row].as_py() for column in self._keys]
        return tuple((value is None, value != value, None if value != value else value) for value in values)  # noqa: PLR0124


def _parts(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        step = max(1, batch.num_rows * size // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step)
