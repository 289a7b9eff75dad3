"""Rows that are written anew in an order: sorted blocks → the rows of a file.

The second stage of an external merge sort; `rewriting.sorting` has the first. In: blocks, each an Arrow stream with sorted rows
of one partition. A task gets those of the file that it writes. Out: the rows of its blocks, merged.

Invariant: memory holds about `MERGE_BYTES`. The blocks are in a temporary file.
"""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delta_variant.parquet.physical import with_types
from delta_variant.parquet.tables import beside

MERGE_BYTES = 16 << 20
FILE, BLOCK = "delta_variant file", "delta_variant block"
"""Columns: the number of a new file; a block."""
KEY = "delta_variant key "
"""How the names of the columns with keys begin. Rows are sorted by the first, then by the next; nulls come last."""
ORDER = b"delta_variant order"
"""The metadata with the order of blocks, so that the order of rows with equal keys does not depend on Spark's exchange."""
_LOCAL = "SPARK_LOCAL_DIRS"  # which Spark sets for its workers


def rows_of(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of blocks, followed by the partition columns of their blocks.

    schema: the columns of the rows, without partition columns. batches: with blocks, and with partition columns after them;
    those of a partition are together.
    """
    each = (batch.slice(number, 1) for batch in batches for number in range(batch.num_rows))
    for _, blocks in groupby(each, lambda row: [column[0].as_py() for column in row.columns[1:]]):
        with tempfile.TemporaryFile(dir=os.environ.get(_LOCAL, "").split(",")[0] or None) as file:
            ends = [0]
            for row in blocks:
                file.write(_bytes(row.column(0)))
                ends.append(file.tell())
                own = row.select(range(1, row.num_columns))
            file.flush()
            merged = _merged([_Block(file.fileno(), *part) for part in pairwise(ends)])
            for batch in _ahead(merged):
                yield beside(with_types(batch.select(schema.names), schema), own)


def _ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, of which a thread makes the next one meanwhile."""
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, batches, None)
        while (batch := following.result()) is not None:
            following = thread.submit(next, batches, None)
            yield batch


def _bytes(block: pa.Array) -> pa.Buffer:
    """The bytes of the only value of an array of binaries. A scalar would be a copy of them."""
    _, offsets, data = block.buffers()
    start, end = np.frombuffer(offsets, np.int32, 2, 4 * block.offset)
    return data.slice(start, end - start)


def unpacked(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of blocks as Spark has them, for mapInArrow; `rows_of` gives them to the tasks of a write.

    schema: PySpark's, with the partition columns at the end.
    """
    for batch in batches:
        count = batch.num_columns - 1
        read = rows_of(pa.schema(list(schema)[: len(schema) - count]), chain([batch], batches))
        yield from (with_types(rows, schema) for rows in read)


def order_of(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """The indexes of rows in the order of some columns."""
    return pc.sort_indices(rows, [(name, "ascending") for name in names])


def _keys(rows: pa.Table) -> list[str]:
    return [name for name in rows.schema.names if name.startswith(KEY)]


def _merged(blocks: list[_Block]) -> Iterator[pa.RecordBatch]:
    """The rows of sorted blocks in their order, without the keys."""
    heads = sorted((_Head(block, MERGE_BYTES // len(blocks)) for block in blocks), key=lambda head: head.order)
    while heads:
        least = min(head.last for head in heads)
        rows = pa.concat_tables([head.until(least) for head in heads])
        heads = [head for head in heads if not head.is_empty]
        keys = _keys(rows)
        rows = rows.take(order_of(rows, keys)) if len(blocks) > 1 else rows
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
    """The next rows of a block. Memory holds one or two times `size` bytes of them."""

    def __init__(self, block: _Block, size: int) -> None:
        stream = pa.ipc.open_stream(pa.PythonFile(block, mode="r"))
        self.order = stream.schema.metadata[ORDER]
        self._parts = _parts(stream, size)
        self._rows = pa.Table.from_batches([next(self._parts)])
        self._least = self._rows.num_rows
        self._see()

    def until(self, key: tuple[Any, ...]) -> pa.Table:
        """Takes the rows up to this key."""
        end = bisect_right(range(self._rows.num_rows), key, key=self._key)
        taken, self._rows = self._rows.slice(0, end), self._rows.slice(end)
        # With a few rows more, each step of a merge would be about a few rows.
        while self._rows.num_rows < self._least and (part := next(self._parts, None)) is not None:
            self._rows = pa.concat_tables([self._rows, pa.Table.from_batches([part])])
        self._see()
        return taken

    @property
    def is_empty(self) -> bool:
        return not self._rows.num_rows

    def _see(self) -> None:
        self._keys = [self._rows.column(name) for name in _keys(self._rows)]
        self.last = () if self.is_empty else self._key(self._rows.num_rows - 1)

    def _key(self, row: int) -> tuple[Any, ...]:
        """The keys of a row in the order that `order_of` gives them: nulls are last, and NaN is before them."""
        values = [column[row].as_py() for column in self._keys]
        return tuple((value is None, value != value, None if value != value else value) for value in values)  # noqa: PLR0124


def _parts(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        step = max(1, batch.num_rows * size // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step)
