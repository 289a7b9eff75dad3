"""parse_json: JSON texts → Variants, as Spark's `parse_json` makes them.

In: texts in any of Arrow's forms. Out: a column of unshredded Variants. `kernels.parse` does the work on as many rows at a
time as fit into its buffers and caches; this module owns them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from delta_variant.buffers import PADDING, Bytes, Int64s, bitmap, buffers_of, check, flags_of
from delta_variant.errors import InvalidJsonError, InvalidLayoutError
from delta_variant.kernels import keys
from delta_variant.kernels import parse as k
from delta_variant.kernels.containers import OPEN, Work
from delta_variant.kernels.numbers import WORDS
from delta_variant.kernels.scan import PADDING as SCAN_PADDING
from delta_variant.kernels.strings import DISTINCT, STRICT, UNPAIRED
from delta_variant.types import is_string

_BATCH_ROWS = 1 << 14
_LONG_ROW = 1 << 20
_NAMES, _MOST_NAMES = 1 << 12, 1 << 17  # distinct keys in the cache: at first, and unless one row has more
_METAS = 1 << 12
_GUESSES = 1 << 12
_MAX_BYTES = np.iinfo(np.int32).max
_VARIANT = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])


def parse_json(
    array: pa.Array | pa.ChunkedArray,
    *,
    errors: str = "raise",
    allow_duplicate_keys: bool = False,
    validate_unicode: bool = True,
) -> pa.StructArray:
    r"""Parses JSON texts into Variants, with the types, and the bytes, that Spark 4.2's `parse_json` gives.

    array: strings or binaries in any of Arrow's forms. Returns struct<metadata: binary not null, value: binary not null>, NULL
    where the text is NULL. errors: "raise" raises InvalidJsonError for the first text that Spark refuses, "null" makes it NULL,
    as `try_parse_json` does. allow_duplicate_keys: the last of equal keys counts, as with spark.sql.variant.allowDuplicateKeys;
    without it they are an error. validate_unicode: False takes an escaped surrogate without its other half, such as `\ud83d`,
    and writes `?` in its place, as with spark.sql.variant.validateUnicodeInJsonParsing=false; with it they are an error. Raises
    InvalidLayoutError for other types, and for more than 2 GiB of Variants.

    Two keys may both become `?`. Spark then writes two fields of that name, and so does this function. Such a Variant is
    malformed, and every reader of this package refuses it; `write`, `ingest` and `shred_json` refuse the text.

    As in Spark, an integer takes the narrowest type. Other numbers become decimals if they have no exponent and up to 38
    digits, else doubles; beyond the range of doubles they are infinite. What follows a complete value is ignored, but after a
    number there must be a blank. Bytes that are not UTF-8 become U+FFFD. Limits are 1,000 levels of nesting, 1,000 digits of a
    number, 20,000,000 characters of a string, 50,000 of a key, and 128 MiB of a Variant.

    Two things differ. A `true`, `false` or `null` that is directly followed by a character beyond ASCII is an error; Spark
    ignores some of these characters. In texts of more than 32,768 characters Spark may allow two digits more.

    >>> import pyarrow as pa, delta_variant as dv
    >>> column = dv.binary.parse_json(pa.array(['{"id": 1, "price": 2.50}', None]))
    >>> dv.binary.decode(**column[0].as_py())
    {'id': 1, 'price': Decimal('2.50')}
    >>> dv.binary.parse_json(pa.array(["{", "[]"]), errors="null").null_count
    1
    """
    if errors not in ("raise", "null"):
        raise ValueError(f'errors is "raise" or "null", not {errors!r}')
    variants, faults = parse_texts(array, allow_duplicate_keys=allow_duplicate_keys, validate_unicode=validate_unicode)
    if errors == "raise" and len(faults.row):
        raise faults.error()
    return variants


@dataclass(frozen=True, eq=False)
class JsonFaults:
    """The malformed texts of a column: their rows, what is wrong (a code of kernels.parse.FAULTS), and at which byte."""

    row: Int64s
    code: Bytes
    byte: Int64s

    def reason(self, number: int) -> str:
        return k.FAULTS[int(self.code[number])]

    def error(self) -> InvalidJsonError:
        more = f", and {len(self.row) - 1:,} more rows" if len(self.row) > 1 else ""
        return InvalidJsonError(
            f"not valid JSON: {self.reason(0)} (at row {self.row[0]}, byte {self.byte[0]}{more}); "
            'errors="null" makes such rows NULL'
        )


def parse_texts(
    array: pa.Array | pa.ChunkedArray,
    *,
    allow_duplicate_keys: bool = False,
    validate_unicode: bool = True,
    distinct: bool = False,
) -> tuple[pa.StructArray, JsonFaults]:
    """The Variants of JSON texts, NULL for malformed ones too, and these. Options: as for Parser. Raises InvalidLayoutError."""
    parser = Parser(allow_duplicate_keys=allow_duplicate_keys, validate_unicode=validate_unicode, distinct=distinct)
    for chunk in array.chunks if isinstance(array, pa.ChunkedArray) else [array]:
        parser.add(*texts_of(chunk))
    return parser.finish()


class _Binaries:
    """A binary array that grows: kernels write into `data`, from `size` on."""

    def __init__(self) -> None:
        self.buffer = pa.allocate_buffer(PADDING, resizable=True)
        self.ends, self.size = [np.zeros(1, np.int32)], 0

    def reserve(self, room: int) -> None:
        """Makes room for so many bytes."""
        if self.size + room > self.buffer.size:
            self.data: Bytes = np.empty(0, np.uint8)
            self.buffer.resize(max(self.size + room, self.buffer.size * 3 // 2))
        self.data = np.frombuffer(self.buffer, np.uint8)

    def append(self, ends: Int64s) -> None:
        """Adds values that were written, and end at `ends`."""
        if ends[-1] > _MAX_BYTES:
            raise InvalidLayoutError("the Variants of one array take more than 2 GiB: pass smaller arrays")
        self.ends.append(ends.astype(np.int32))
        self.size = int(ends[-1])

    def array(self) -> pa.Array:
        """The array; nothing can be added afterwards."""
        self.data = np.empty(0, np.uint8)
        self.buffer.resize(self.size + PADDING, shrink_to_fit=True)
        ends = np.concatenate(self.ends)
        return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), self.buffer])


class Parser:
    """The buffers and caches of the kernel, and what it gave so far. The caches of keys outlast a column.

    distinct: whether an object is malformed if two of its keys become the same text. strict: whether also text after a complete
    value, and a byte that is not UTF-8, are malformed; Spark ignores the text and replaces the byte.
    """

    def __init__(
        self,
        *,
        allow_duplicate_keys: bool = False,
        validate_unicode: bool = True,
        distinct: bool = False,
        strict: bool = False,
    ) -> None:
        self.allow = allow_duplicate_keys
        self.how = UNPAIRED * (not validate_unicode) | DISTINCT * (distinct or strict) | STRICT * strict
        self.begin()
        self.clear(_NAMES)

    def begin(self) -> None:
        self.rows = 0
        self.metadata, self.value = _Binaries(), _Binaries()
        self.flags = [np.empty(0, np.uint8)]
        self.bad = [JsonFaults(np.empty(0, np.int64), np.empty(0, np.uint8), np.empty(0, np.int64))]

    def finish(self) -> tuple[pa.StructArray, JsonFaults]:
        """The Variants of the column, NULL for malformed texts too, and these. Then the next column begins."""
        faults = JsonFaults(*(np.concatenate([getattr(bad, name) for bad in self.bad]) for name in ("row", "code", "byte")))
        flags = np.concatenate(self.flags)
        flags[faults.row] = 0
        children = [self.metadata.array(), self.value.array()]
        variants = pa.Array.from_buffers(_VARIANT, self.rows, [bitmap(flags)], children=children)
        self.begin()
        return variants, faults

    def clear(self, names: int) -> None:
        """Empties the caches of keys and shapes, and so that of metadata. names: room for so many distinct keys."""
        states, self.room = 4 * names, names
        self.names = keys.Names(np.empty(64 * names, np.uint8), np.empty(names, keys.NAME), np.full(2 * names, -1, np.int32))
        self.shapes = keys.Shapes(
            state=np.empty(states, keys.STATE), orders=np.empty(4 * states, np.int32), root=np.empty(2 * names + 2, np.int32),
            reserve=np.zeros(_GUESSES, np.int32),
        )  # fmt: skip
        self.used = np.zeros(keys.USED, np.int64)
        self.clear_metas(_METAS)

    def clear_metas(self, metas: int) -> None:
        """Empties the cache of metadata. metas: room for so many, of 16 keys and 256 bytes each on average."""
        self.metas = keys.Metas(
            table=np.full(2 * metas, -1, np.int32), hash=np.empty(metas, np.uint64), key_ends=np.empty(metas, np.int64),
            keys=np.empty(16 * metas, np.int32), ends=np.empty(metas, np.int64), bytes=np.empty(256 * metas, np.uint8),
        )  # fmt: skip
        self.used[[keys.METAS, keys.META_KEYS, keys.META_BYTES]] = 0

    def add(self, data: Bytes, at: Int64s, limit: Int64s) -> None:
        """Parses texts and keeps the Variants. A text is data[at:limit], or NULL if `at` is -1; `limit` never decreases."""
        size, longest = int(limit[-1] - limit[0] if len(at) else 0), int(np.where(at < 0, 0, limit - at).max(initial=0))
        # Variants take about as many bytes as their texts. What is reserved and not written to costs no memory.
        self.value.reserve(size + 5 * min(longest, _LONG_ROW) + k.SLACK)
        padded = int(np.searchsorted(limit, len(data) - SCAN_PADDING, "right"))
        self._parse(data, at[:padded], limit[:padded], longest)
        if padded < len(at):
            at, limit = at[padded:], limit[padded:]
            start = int(np.where(at < 0, limit, at)[0])
            tail = np.zeros(int(limit[-1]) - start + SCAN_PADDING, np.uint8)
            tail[:-SCAN_PADDING] = data[start : limit[-1]]
            self._parse(tail, np.where(at < 0, -1, at - start), limit - start, longest)

    def _parse(self, data: Bytes, at: Int64s, limit: Int64s, longest: int) -> None:
        """Parses texts of up to `longest` bytes, with SCAN_PADDING bytes behind the last of them."""
        self.flags.append((at >= 0).astype(np.uint8))
        room = longest // 2 + 2 + k.MAX_DEPTH  # an array that is open in another has an entry for one byte of text
        work = Work(
            stack=np.empty(k.MAX_DEPTH + 1, OPEN), fields=np.empty(room, np.int64), keys=np.empty(room, np.int32),
            order=np.empty(room, np.int32), spare=np.empty(room, np.int32), prefix=np.empty(room, np.uint64),
            wide=np.empty((2, WORDS), np.uint64),
        )  # fmt: skip
        rows = min(_BATCH_ROWS, len(at))
        ends, meta = np.empty(rows + 1, np.int64), np.empty(rows, np.int32)
        code, where = np.empty(rows, np.uint8), np.empty(rows, np.int64)
        row = 0
        while row < len(at):
            batch, no_metas = slice(row, row + rows), self.used[keys.METAS] == 0
            done, why = k.parse_rows(
                data, at[batch], limit[batch], 0, self.allow, self.how, self.names, self.shapes, self.metas, work, self.used,
                self.value.data, self.value.size, ends, meta, code, where,
            )  # fmt: skip
            if done:
                self.value.append(ends[1 : done + 1])
                self._write_metadata(meta[:done])
            if (bad := np.flatnonzero(code[:done])).size:
                self.bad.append(JsonFaults(bad + (self.rows + row), code[bad], where[bad]))
            if why == k.NAMES_FULL:
                self.clear(2 * self.room if self.room < _MOST_NAMES or no_metas else self.room)
            elif why == k.METAS_FULL:
                self.clear_metas(_METAS if done or not no_metas else 2 * len(self.metas.hash))
            elif why == k.NO_ROOM and not done:
                self.value.reserve(4 * int(limit[row] - at[row]) + k.SLACK)
            row += done
        self.rows += len(at)

    def _write_metadata(self, meta: keys.Int32s) -> None:
        size = np.diff(self.metas.ends[: self.used[keys.METAS]], prepend=0)
        size = np.append(size, 0)  # of the metadata -1
        ends = np.cumsum(size[meta]) + self.metadata.size
        self.metadata.reserve(int(ends[-1]) - self.metadata.size + PADDING)
        k.write_metadata(meta, self.metas.ends, self.metas.bytes, ends, self.metadata.data)
        self.metadata.append(ends)


def texts_of(array: pa.Array) -> tuple[Bytes, Int64s, Int64s]:
    """The bytes of texts, and start and end of each; start -1: NULL. Raises InvalidLayoutError."""
    check(array, "parse_json")
    kind = array.type
    if pa.types.is_dictionary(kind) or pa.types.is_null(kind):
        array = array.cast(kind.value_type if pa.types.is_dictionary(kind) else pa.string())
        kind = array.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        array = array.cast(pa.large_binary())
        kind = array.type
    if not is_string(kind) and not pa.types.is_binary(kind) and not pa.types.is_large_binary(kind):
        raise InvalidLayoutError(f"parse_json takes strings or binaries, not {array.type}")
    offsets, data = buffers_of(array)
    ends = offsets.astype(np.int64)
    valid, at = flags_of(array), ends[:-1]
    if len(valid):
        at = np.where(valid, at, -1)
    return data, at, ends[1:]
