"""Column chunks that pyarrow does not write: pages of levels and values, offset indexes, and what a footer says of them.

In: Arrow values without nulls, the definition level of each row, and a sink. Out: bytes in the sink, and a `Chunk`. Values are
bigint, double, string, boolean or binary, in the encoding PLAIN; columns have no repetition levels. Source: parquet-format,
`parquet.thrift`, "Data Pages", "Encodings".
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from delta_variant.buffers import Bytes, buffers_of, view
from delta_variant.kernels.pages import plain_texts
from delta_variant.kernels.thrift import BINARY, I32, I64, LIST, STRUCT
from delta_variant.parquet import thrift

_PAGE_BYTES = 1 << 20
_MAX_RUNS = 1 << 10
_DATA_PAGE, _PLAIN, _RLE = 0, 0, 3
_BYTE_ARRAY = 6
_TYPES = {pa.bool_(): 0, pa.int64(): 2, pa.float64(): 5, pa.binary(): _BYTE_ARRAY, pa.string(): _BYTE_ARRAY}
_REQUIRED, _OPTIONAL = thrift.number(0), thrift.number(1)
_STRING = (6, I32, thrift.number(0)), (10, STRUCT, thrift.struct_of((1, STRUCT, thrift.struct_of())))
"""The fields of a schema element that make it a string: the converted type, and the logical type."""

Levels = npt.NDArray[np.uint8]


@dataclass
class Chunk:
    """A column chunk."""

    pages: tuple[tuple[int, int, int], ...]  # for each page its offset, its size, and the number of its first row
    uncompressed: int
    rows: int
    nulls: int
    only: bytes | None  # the one value of all rows that are not null, if it is known
    index: tuple[int, int] = (0, 0)  # offset and size of the offset index

    @property
    def size(self) -> int:
        return sum(size for _, size, _ in self.pages)

    def described(self, names: Sequence[str], kind: pa.DataType, codec: int) -> bytes:
        """Its ColumnChunk in a footer. names: those that lead to the column. codec: its number in Parquet."""
        statistics = [(3, I64, thrift.number(self.nulls))]
        if self.only is not None:
            statistics += [(at, BINARY, thrift.text(self.only)) for at in (5, 6)]  # the largest value, the smallest value
        metadata = thrift.struct_of(
            (1, I32, thrift.number(_TYPES[kind])),
            (2, LIST, thrift.list_of(I32, [thrift.number(encoding) for encoding in (_PLAIN, _RLE)])),
            (3, LIST, thrift.list_of(BINARY, [thrift.text(name.encode()) for name in names])),
            (4, I32, thrift.number(codec)),
            (5, I64, thrift.number(self.rows)),
            (6, I64, thrift.number(self.uncompressed)),
            (7, I64, thrift.number(self.size)),
            (9, I64, thrift.number(self.pages[0][0])),
            (12, STRUCT, thrift.struct_of(*statistics)),
        )
        offset, size = self.index
        at = (4, I64, thrift.number(offset)), (5, I32, thrift.number(size))
        return thrift.struct_of((2, I64, thrift.number(0)), (3, STRUCT, metadata), *at)


class ChunkWriter:
    """Writes column chunks to a file, and their offset indexes at the end. codec: compresses the pages; None for no
    compression."""

    def __init__(self, sink: pa.NativeFile, codec: pa.Codec | None) -> None:
        self._sink, self._codec = sink, codec
        self._chunks: list[Chunk] = []

    def nulls(self, levels: bytes, rows: int, count: int) -> list[Chunk]:
        """Writes some chunks without values, which have the same bytes. levels: as `encoded` makes them."""
        page, uncompressed = self._page(levels, (), rows)
        return [self._kept(Chunk(((*self._write(page), 0),), uncompressed, rows, rows, None)) for _ in range(count)]

    def values(self, levels: Levels, highest: int, values: pa.ChunkedArray) -> Chunk:
        """Writes a chunk. levels: of all rows; those at `highest` have one of the values each."""
        rows = np.flatnonzero(levels == highest)
        breaks = np.flatnonzero(np.diff(_positions(values) // _PAGE_BYTES)) + 1
        pages, sizes = [], []
        for (start, stop), (first, last) in zip(
            pairwise([0, *rows[breaks].tolist(), len(levels)]), pairwise([0, *breaks.tolist(), len(values)]), strict=True
        ):
            plain = _plain(values.slice(first, last - first))
            page, uncompressed = self._page(encoded(levels[start:stop], highest), plain, stop - start)
            pages.append((*self._write(page), start))
            sizes.append(uncompressed)
        return self._kept(Chunk(tuple(pages), sum(sizes), len(levels), len(levels) - len(rows), _only(values)))

    def finish(self) -> None:
        """Writes the offset indexes: without them Spark skips no pages of other columns. Readers get all indexes at once."""
        for chunk in self._chunks:
            places = [thrift.struct_of(*_integers(*page, kinds=(I64, I32, I64))) for page in chunk.pages]
            chunk.index = self._write(thrift.struct_of((1, LIST, thrift.list_of(STRUCT, places))))

    def _kept(self, chunk: Chunk) -> Chunk:
        self._chunks.append(chunk)
        return chunk

    def _write(self, page: bytes) -> tuple[int, int]:
        """The offset and the size of a page."""
        offset = self._sink.tell()
        self._sink.write(page)
        return offset, len(page)

    def _page(self, levels: bytes, values: Iterable[memoryview], rows: int) -> tuple[bytes, int]:
        """A page with its header, and the size of both if the page were not compressed."""
        body = b"".join([len(levels).to_bytes(4, "little"), levels, *values])
        data = body if self._codec is None else self._codec.compress(body, asbytes=True)
        checksum = zlib.crc32(data)
        about = thrift.struct_of(*_integers(rows, _PLAIN, _RLE, _RLE))
        sizes = _integers(_DATA_PAGE, len(body), len(data), checksum - (checksum >> 31 << 32))
        header = thrift.struct_of(*sizes, (5, STRUCT, about))
        return header + data, len(header) + len(body)


def _integers(*values: int, kinds: Sequence[int] | None = None) -> list[tuple[int, int, bytes]]:
    """Fields from the id 1 on; i32 if their kinds are not given."""
    kinds = [I32] * len(values) if kinds is None else kinds
    return [(at, kind, thrift.number(value)) for at, (kind, value) in enumerate(zip(kinds, values, strict=True), 1)]


def group(name: str, children: int) -> bytes:
    return thrift.struct_of((3, I32, _REQUIRED), (4, BINARY, thrift.text(name.encode())), (5, I32, thrift.number(children)))


def leaf(name: str, kind: pa.DataType) -> bytes:
    logical = _STRING if kind == pa.string() else ()
    fields = ((1, I32, thrift.number(_TYPES[kind])), (3, I32, _OPTIONAL), (4, BINARY, thrift.text(name.encode())))
    return thrift.struct_of(*fields, *logical)


def encoded(levels: Levels, highest: int) -> bytes:
    """Definition levels in the hybrid of run lengths and packed bits: as runs if these are few, or else as packed bits."""
    starts = np.flatnonzero(np.diff(levels)) + 1
    if len(starts) < min(_MAX_RUNS, len(levels) // 16):
        edges = [0, *starts.tolist(), len(levels)]
        return b"".join(thrift.unsigned((stop - start) << 1) + bytes([levels[start]]) for start, stop in pairwise(edges))
    width, groups = highest.bit_length(), -(-len(levels) // 8)
    eights = np.zeros((groups, 8), np.uint8)
    eights.ravel()[: len(levels)] = levels
    words = np.zeros(groups, "<u8")
    for place in range(8):
        words |= eights[:, place].astype(np.uint64) << np.uint64(width * place)
    return thrift.unsigned(groups << 1 | 1) + words.view(np.uint8).reshape(groups, 8)[:, :width].tobytes()


def _only(values: pa.ChunkedArray) -> bytes | None:
    """The byte that each of some binaries is; None if they are not all the same byte."""
    if values.type != pa.binary() or len(values) == 0:
        return None
    first = values[0].as_py()
    same = len(first) == 1 and all(
        bool((np.diff(ends) == 1).all() and (data[ends[0] : ends[-1]] == first[0]).all())
        for ends, data in map(buffers_of, values.chunks)
    )
    return first if same else None


def _positions(values: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """The end of each value, in bytes from the start of the first."""
    if _TYPES[values.type] != _BYTE_ARRAY:
        return 8 * np.arange(1, len(values) + 1)
    sizes = [np.diff(buffers_of(chunk)[0]) for chunk in values.chunks]
    return np.cumsum(np.concatenate(sizes), dtype=np.int64)


def _plain(values: pa.ChunkedArray) -> list[memoryview]:
    """Values in the encoding PLAIN: numbers as they are, booleans as bits, and each text or binary with its length in front."""
    if _TYPES[values.type] == _BYTE_ARRAY:
        return [_sized(chunk) for chunk in values.chunks]
    array = pa.concat_arrays(values.chunks)
    if pa.types.is_boolean(values.type):
        array = array.cast(pa.uint8())
        return [np.packbits(view(array.buffers()[1])[array.offset :][: len(array)], bitorder="little").data]
    return [view(array.buffers()[1], np.int64)[array.offset :][: len(array)].data]


def _sized(texts: pa.Array) -> memoryview:
    ends, data = buffers_of(texts)
    out: Bytes = np.empty(4 * len(texts) + int(ends[-1] - ends[0]), np.uint8)
    plain_texts(data, ends, out)
    return out.data
