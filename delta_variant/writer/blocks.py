"""Rows that are rewritten in an order: sorted blocks → the rows of a file.

The second stage of an external merge sort; `rewriting.sorting` has the first. In: blocks in pieces, each block an Arrow stream
with sorted rows of one partition. A task gets those of the file that it writes. Out: the rows of its blocks, merged.

A task may get thousands of small blocks, one of each 16 MiB of all files. Each block that is merged takes memory and, in each
step, time. Many blocks are therefore first merged into fewer ones.

Invariant: memory holds a few times `MERGE_BYTES`, and `BATCH_BYTES` of each of `MOST_BLOCKS` blocks. The blocks are in a
temporary file.
"""

from __future__ import annotations

import os
import struct
import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain, groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delta_variant.parquet.physical import with_types
from delta_variant.parquet.tables import beside

MERGE_BYTES = 8 << 20
MOST_BLOCKS = 128
"""The most blocks that are merged at once."""
BATCH_BYTES = 512 << 10
"""The size of the record batches of a block."""
GROUP_BYTES = 4 << 20
"""The least size of blocks, compressed, that are merged into one while there are too many. Their rows take some 16 MiB."""
FILE, BLOCK = "delta_variant file", "delta_variant block"
"""Columns: the number of a new file; a piece of a block."""
KEY = "delta_variant key "
"""How the names of the columns with keys begin. Rows are sorted by the first, then by the next; nulls come last."""
PIECE_BYTES = 1_000_000
"""The size of the pieces in which Spark moves blocks: a task gets 250 MiB in 0.8 s; in pieces of 8 MB it took up to 3.7 s."""
_HEADER = struct.Struct(">IIQ")
"""How a piece begins: the numbers of its task in the first stage, of its block and of itself. So the order of rows with equal
keys does not depend on Spark's exchange."""
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
_LOCAL = "SPARK_LOCAL_DIRS"  # which Spark sets for its workers


def rows_of(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of blocks, followed by the partition columns of their blocks.

    schema: the columns of the rows, without partition columns. batches: with pieces of blocks in any order, and with partition
    columns after them; those of a partition are together.
    """
    each = (batch.slice(number, 1) for batch in batches for number in range(batch.num_rows))
    for _, pieces in groupby(each, lambda row: [column[0].as_py() for column in row.columns[1:]]):
        with closing(_File()) as file:
            for row in pieces:
                file.add(_bytes(row.column(0)))
                own = row.select(range(1, row.num_columns))
            for batch in _rows(file):
                yield beside(with_types(batch.select(schema.names), schema), own)


def _rows(file: _File) -> Iterator[pa.RecordBatch]:
    """The rows of all blocks of a file, without the keys. Closes the file when fewer blocks are in another one."""
    found = file.blocks()
    if len(found) > MOST_BLOCKS:
        with closing(_File()) as fewer:
            for group in _groups(found):
                fewer.add_merged(group)
            file.close()
            yield from _rows(fewer)
        return
    for rows in _merged(found):
        yield from rows.drop_columns(_keys(rows)).combine_chunks().to_batches()


def _groups(blocks: list[_Block]) -> Iterator[list[_Block]]:
    """Blocks that are merged into one each: at least `MOST_BLOCKS`, and at least `GROUP_BYTES`."""
    group: list[_Block] = []
    size = 0
    for block in blocks:
        group.append(block)
        size += block.size
        if len(group) >= MOST_BLOCKS and size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _bytes(piece: pa.Array) -> pa.Buffer:
    """The bytes of the only value of an array of binaries. A scalar would be a copy of them."""
    _, offsets, data = piece.buffers()
    start, end = np.frombuffer(offsets, np.int32, 2, 4 * piece.offset)
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


def block_of(rows: pa.Table) -> pa.Buffer:
    """Sorted rows as a block."""
    sink = pa.BufferOutputStream()
    _write(sink, iter([rows]))
    return sink.getvalue()


def pieces_of(rows: pa.Table, task: int, number: int) -> Iterator[pa.Array]:
    """The pieces of a block, each an array of one binary. task, number: the place of the block among others."""
    block = memoryview(block_of(rows))
    for piece, start in enumerate(range(0, len(block), PIECE_BYTES)):
        data = _HEADER.pack(task, number, piece) + block[start : start + PIECE_BYTES]
        offsets = np.array([0, len(data)], np.int32)
        yield pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _write(sink: pa.NativeFile, tables: Iterator[pa.Table]) -> None:
    """Writes the rows of tables, of which there is one at least, as a block."""
    first = next(tables)
    with pa.ipc.new_stream(sink, first.schema, options=_OPTIONS) as stream:
        for rows in chain([first], tables):
            stream.write_table(rows, max_chunksize=max(1, rows.num_rows * BATCH_BYTES // max(1, rows.nbytes)))


def _merged(blocks: list[_Block]) -> Iterator[pa.Table]:
    """The rows of sorted blocks in their order."""
    heads = [_Head(block, MERGE_BYTES // len(blocks)) for block in blocks]
    while heads:
        least = min((head.last for head in heads if head.has_more), default=None)
        rows = pa.concat_tables([head.all() if least is None else head.until(least) for head in heads])
        heads = [head for head in heads if not head.is_empty]
        yield rows.take(order_of(rows, _keys(rows))) if len(blocks) > 1 else rows


class _File:
    """Blocks in a temporary file."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(dir=os.environ.get(_LOCAL, "").split(",")[0] or None)  # noqa: SIM115
        self._pieces: list[tuple[tuple[int, ...], int, int]] = []
        """The places of pieces, and where each begins and ends."""

    def add(self, piece: pa.Buffer) -> None:
        start = self._file.tell()
        self._file.write(piece.slice(_HEADER.size))
        self._pieces.append((_HEADER.unpack_from(piece), start, self._file.tell()))

    def add_merged(self, blocks: list[_Block]) -> None:
        start = self._file.tell()
        _write(pa.PythonFile(self._file, mode="w"), _merged(blocks))
        self._pieces.append(((0, len(self._pieces), 0), start, self._file.tell()))

    def blocks(self) -> list[_Block]:
        """The blocks in the order in which the first stage made them."""
        self._file.flush()
        of_blocks = groupby(sorted(self._pieces), lambda piece: piece[0][:-1])
        return [_Block(self._file.fileno(), [(start, end) for _, start, end in pieces]) for _, pieces in of_blocks]

    def close(self) -> None:
        self._file.close()


class _Block:
    """A block in a file, for reading. To map the file would count it as memory of the process."""

    closed = False

    def __init__(self, file: int, pieces: list[tuple[int, int]]) -> None:
        """pieces: where each begins and ends."""
        self._file, self._pieces = file, pieces[::-1]
        self.size = sum(end - start for start, end in pieces)

    def read(self, size: int) -> bytes:
        found = []
        while size and self._pieces:
            start, end = self._pieces.pop()
            data = os.pread(self._file, min(size, end - start), start)
            found.append(data)
            size -= len(data)
            if start + len(data) < end:
                self._pieces.append((start + len(data), end))
        return b"".join(found)


class _Head:
    """The next rows of a block. Memory holds one or two times `size` bytes of them."""

    def __init__(self, block: _Block, size: int) -> None:
        self._parts = _parts(pa.ipc.open_stream(pa.PythonFile(block, mode="r")), size)
        self._rows = pa.Table.from_batches([next(self._parts)])
        self._next = next(self._parts, None)
        self._least = self._rows.num_rows
        self._see()

    @property
    def has_more(self) -> bool:
        """Whether the block has rows after the last one."""
        return self._next is not None

    def all(self) -> pa.Table:
        """Takes the rows."""
        taken, self._rows = self._rows, self._rows.slice(self._rows.num_rows)
        return taken

    def until(self, key: tuple[Any, ...]) -> pa.Table:
        """Takes the rows up to this key."""
        end = bisect_right(range(self._rows.num_rows), key, key=self._key)
        taken, self._rows = self._rows.slice(0, end), self._rows.slice(end)
        # With a few rows more, each step of a merge would be about a few rows.
        while self._rows.num_rows < self._least and self._next is not None:
            self._rows = pa.concat_tables([self._rows, pa.Table.from_batches([self._next])])
            self._next = next(self._parts, None)
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
