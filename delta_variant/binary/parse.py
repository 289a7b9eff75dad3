"""parse_json: JSON texts → Variants, as Spark's `parse_json` makes them.

In: texts in any of Arrow's forms. Out: a column of unshredded Variants. `kernels.parse` does the work on as many rows at a time as
fit into its buffers; this module owns the buffers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from delta_variant.buffers import PADDING, Bytes, Flags, Int64s, bitmap, flags_of
from delta_variant.errors import InvalidJsonError, InvalidLayoutError
from delta_variant.kernels import parse as k
from delta_variant.kernels.numbers import WORDS
from delta_variant.kernels.scan import PADDING as SCAN_PADDING

_BATCH_ROWS = 1 << 14
_BATCH_BYTES = 1 << 21  # of Variants: they stay in the cache until they are copied
_NAMES = 1 << 13
_MAX_BYTES = np.iinfo(np.int32).max
_VARIANT = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])


def parse_json(
    array: pa.Array | pa.ChunkedArray, *, errors: str = "raise", allow_duplicate_keys: bool = False
) -> pa.StructArray:
    """Parses JSON texts into Variants, with the types, and the bytes, that Spark 4.2's `parse_json` gives.

    array: strings or binaries in any of Arrow's forms. Returns struct<metadata: binary not null, value: binary not null>, NULL
    where the text is NULL. errors: "raise" raises InvalidJsonError for the first text that Spark refuses, "null" makes it NULL,
    as `try_parse_json` does. allow_duplicate_keys: the last of equal keys counts, as with spark.sql.variant.allowDuplicateKeys;
    without it they are an error. Raises InvalidLayoutError for other types, and for more than 2 GiB of Variants.

    As in Spark, an integer takes the narrowest type; other numbers become decimals if they have no exponent and up to 38 digits,
    else doubles, infinite ones if they are out of range. What follows a complete value is ignored, but a number must be followed
    by a blank; bytes that are not UTF-8 become U+FFFD; levels of nesting (1,000), digits of a number (1,000), the lengths of
    strings (20,000,000) and of keys (50,000), and the Variant (128 MiB) are limited.

    Three things are not as in Spark. Fields are in the order of the specification, by bytes; Spark sorts by UTF-16, where
    characters beyond U+FFFF come before U+E000. `true`, `false` or `null` directly followed by a character beyond ASCII is an
    error; Spark ignores some of these characters. Within a text of more than 32,768 characters, Spark may take one or two digits
    more than 1,000.

    >>> import delta_variant as dv
    >>> column = dv.binary.parse_json(pa.array(['{"id": 1, "price": 2.50}', None]))
    >>> dv.binary.decode(**column[0].as_py())
    {'id': 1, 'price': Decimal('2.50')}
    >>> dv.binary.parse_json(pa.array(["{", "[]"]), errors="null").null_count
    1
    """
    if errors not in ("raise", "null"):
        raise ValueError(f'errors is "raise" or "null", not {errors!r}')
    variants, faults = parse_texts(array, allow_duplicate_keys=allow_duplicate_keys)
    if errors == "raise" and len(faults.row):
        raise faults.error()
    return variants


@dataclass(frozen=True, eq=False)
class JsonFaults:
    """The malformed texts of a column: their rows, what is wrong (a code of kernels.parse.FAULTS), and at which byte."""

    row: Int64s
    code: Bytes
    byte: Int64s

    def error(self) -> InvalidJsonError:
        """The error for the first of them."""
        more = f", and {len(self.row) - 1:,} more rows" if len(self.row) > 1 else ""
        return InvalidJsonError(
            f"not valid JSON: {k.FAULTS[int(self.code[0])]} (at row {self.row[0]}, byte {self.byte[0]}{more}); "
            'errors="null" makes such rows NULL'
        )


def parse_texts(array: pa.Array | pa.ChunkedArray, *, allow_duplicate_keys: bool = False) -> tuple[pa.StructArray, JsonFaults]:
    """The Variants of JSON texts, NULL for malformed ones too, and these. Raises InvalidLayoutError."""
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    parser, valid, first = _Parser(allow_duplicate_keys), [], 0
    for chunk in chunks:
        valid.append(parser.parse(chunk, first))
        first += len(chunk)
    faults = JsonFaults(*(np.concatenate(parts) for parts in (parser.bad_rows, parser.bad_codes, parser.bad_bytes)))
    flags = np.concatenate([np.ones(0, np.uint8), *(v for v in valid)])
    flags[faults.row] = 0
    children = [parser.metadata.array(), parser.value.array()]
    return pa.Array.from_buffers(_VARIANT, first, [bitmap(flags)], children=children), faults


class _Binaries:
    """A binary array that grows."""

    def __init__(self) -> None:
        self.stream, self.ends, self.size = pa.BufferOutputStream(), [np.zeros(1, np.int32)], 0

    def append(self, ends: Int64s, data: Bytes) -> None:
        """Adds values that end at `ends` in `data`."""
        if self.size + int(ends[-1]) > _MAX_BYTES:
            raise InvalidLayoutError("the Variants of one array take more than 2 GiB: pass smaller arrays")
        self.stream.write(data[: ends[-1]])
        self.ends.append((ends + self.size).astype(np.int32))
        self.size += int(ends[-1])

    def array(self) -> pa.Array:
        self.stream.write(bytes(PADDING))
        ends = np.concatenate(self.ends)
        return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), self.stream.getvalue()])


class _Parser:
    """The buffers and caches of the kernel, and what it gave so far."""

    def __init__(self, allow_duplicate_keys: bool) -> None:
        self.allow = allow_duplicate_keys
        self.metadata, self.value = _Binaries(), _Binaries()
        self.bad_rows, self.bad_codes, self.bad_bytes = (
            [np.empty(0, np.int64)],
            [np.empty(0, np.uint8)],
            [np.empty(0, np.int64)],
        )
        self.out = np.empty(_BATCH_BYTES, np.uint8)
        self.clear(_NAMES)

    def clear(self, names: int) -> None:
        """Empties the caches. names: room for so many distinct keys."""
        states, metas = 2 * names, names
        self.room = names
        self.names = k.Names(
            text=np.empty(64 * names, np.uint8), at=np.empty(names, np.int64), size=np.empty(names, np.int64),
            words=np.empty(names, np.int64), last=np.empty(names, np.uint64), prefix=np.empty(names, np.uint64),
            table=np.full(2 * names, -1, np.int32), serial=np.empty(names, np.int64), id=np.empty(names, np.int32),
        )  # fmt: skip
        self.shapes = k.Shapes(
            key=np.empty(states, np.int32), next=np.empty(states, np.int32), child=np.empty(states, np.int32),
            sibling=np.empty(states, np.int32), order=np.empty(states, np.int32), orders=np.empty(8 * states, np.int32),
            root=np.full(2 * names + 4, -1, np.int32), reserve=np.zeros(2 * names + 4, np.int32),
        )  # fmt: skip
        self.metas = k.Metas(
            table=np.full(2 * metas, -1, np.int32), hash=np.empty(metas, np.uint64), key_ends=np.empty(metas, np.int64),
            keys=np.empty(16 * metas, np.int32), ends=np.empty(metas, np.int64), bytes=np.empty(256 * metas, np.uint8),
        )  # fmt: skip
        self.used = np.zeros(8, np.int64)

    def parse(self, array: pa.Array, first_row: int) -> Flags:
        """Parses an array and keeps the Variants. Returns one flag for each text that is not NULL."""
        data, at, limit, valid = _texts(array)
        longest = int((limit - at).max(initial=0))
        room = longest // 2 + 2
        work = k.Work(
            stack=np.empty((k.MAX_DEPTH, 6), np.int64), fields=np.empty(room, np.int64), keys=np.empty(room, np.int32),
            order=np.empty(room, np.int32), spare=np.empty(room, np.int32), wide=np.empty((2, WORDS), np.uint64),
        )  # fmt: skip
        rows = min(_BATCH_ROWS, len(at))
        ends, meta = np.empty(rows + 1, np.int64), np.empty(rows, np.int32)
        code, where = np.empty(rows, np.uint8), np.empty(rows, np.int64)
        row = 0
        while row < len(at):
            batch, fresh = slice(row, row + rows), self.used[k.SERIAL] == 0
            done, why = k.parse_rows(
                data, at[batch], limit[batch], 0, self.allow, self.names, self.shapes, self.metas, work, self.used,
                self.out, ends, meta, code, where,
            )  # fmt: skip
            if done:
                self.value.append(ends[1 : done + 1], self.out)
                self._write_metadata(meta[:done])
            if (bad := np.flatnonzero(code[:done])).size:
                self.bad_rows.append(bad + (first_row + row))
                self.bad_codes.append(code[bad])
                self.bad_bytes.append(where[bad])
            if why == k.NAMES_FULL:
                self.clear(self.room if done or not fresh else 2 * self.room)
            elif why == k.NO_ROOM and not done:
                self.out = np.empty(4 * int(limit[row] - at[row]) + k.SLACK, np.uint8)
            row += done
        return valid

    def _write_metadata(self, meta: k.Int32s) -> None:
        size = np.diff(self.metas.ends[: self.used[k.METAS]], prepend=0)
        ends = np.cumsum(np.where(meta >= 0, size[meta], 0)) if len(size) else np.zeros(len(meta), np.int64)
        out = np.empty(int(ends[-1]), np.uint8)
        k.write_metadata(meta, self.metas.ends, self.metas.bytes, ends, out)
        self.metadata.append(ends, out)


def _texts(array: pa.Array) -> tuple[Bytes, Int64s, Int64s, Flags]:
    """The bytes of texts with spare bytes at the end, start and end of each (start -1: NULL), and a flag for each that is not NULL.

    Raises InvalidLayoutError.
    """
    kind = array.type
    if pa.types.is_dictionary(kind) or pa.types.is_null(kind):
        array = array.cast(kind.value_type if pa.types.is_dictionary(kind) else pa.string())
        kind = array.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        array = array.cast(pa.large_binary())
        kind = array.type
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    if not wide and not pa.types.is_string(kind) and not pa.types.is_binary(kind):
        raise InvalidLayoutError(f"parse_json takes strings or binaries, not {array.type}")
    _, offsets, text = array.buffers()
    ends = np.frombuffer(offsets or bytes(8), np.int64 if wide else np.int32)[array.offset :][: len(array) + 1].astype(np.int64)
    data = np.frombuffer(text or b"", np.uint8)
    if not len(array):
        ends = np.zeros(1, np.int64)
    if len(data) < ends[-1] + SCAN_PADDING:
        start = int(ends[0])
        padded = np.zeros(int(ends[-1]) - start + SCAN_PADDING, np.uint8)
        padded[: ends[-1] - start] = data[start : ends[-1]]
        data, ends = padded, ends - start
    valid, at = flags_of(array), ends[:-1]
    if len(valid):
        at = np.where(valid, at, -1)
    return data, at, ends[1:], valid if len(valid) else np.ones(len(array), np.uint8)
