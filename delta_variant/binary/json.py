"""to_json: Variants → the text of Spark's `to_json`, with timestamps in UTC.

In: one Variant, or the metadata and values of a column. Out: text, or an Arrow array of texts. `kernels.json` writes the text;
this module allocates its buffers and computes the digits of floating-point numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delta_variant.buffers import (
    NO_FLAGS,
    PADDING,
    Bytes,
    Faults,
    Flags,
    Int64s,
    Variants,
    as_binary,
    bitmap,
    buffers_of,
    flags_of,
)
from delta_variant.errors import MalformedVariantError
from delta_variant.kernels import json

_CHUNK_ROWS = 1 << 16
_CHUNK_BYTES = 1 << 20  # of text, which stays in the cache until the digits of floats are inserted
_FLOAT_BYTES = 32  # more than the text of any float


def to_json(metadata: bytes, value: bytes) -> str:
    """The JSON text that Spark's `to_json` gives for the Variant, with timestamps in UTC. Raises MalformedVariantError.

    Floats have the fewest digits that identify them, as in Java 19 and later; on Java 17 Spark prints more digits for some.

    >>> import delta_variant as dv
    >>> dv.binary.to_json(*dv.binary.encode({"id": 1, "tags": ["a", None]}))
    '{"id":1,"tags":["a",null]}'
    """
    column = json_column(pa.array([bytes(metadata)], pa.binary()), pa.array([bytes(value)], pa.binary()), NO_FLAGS)
    return str(column[0].as_py())


def json_column(metadata: pa.Array, value: pa.Array, valid: Flags) -> pa.Array:
    """The JSON texts of the Variants of a column, as `to_json` writes them. Raises MalformedVariantError.

    metadata, value: binary arrays in any of Arrow's forms. valid: one flag per row, empty if every row is a Variant. Returns
    strings, null for rows that are not valid; large strings if they take more than 2 GiB.

    >>> import numpy as np, pyarrow as pa, delta_variant as dv
    >>> metadata, value = (pa.array([data]) for data in dv.binary.encode({"id": 1}))
    >>> dv.binary.json_column(metadata, value, valid=np.ones(1, np.uint8)).to_pylist()
    ['{"id":1}']
    """
    metadata, value = as_binary(metadata), as_binary(value)
    if value.null_count and (flags_of(value) < (valid if len(valid) else 1)).any():
        raise MalformedVariantError("value: a row that is not NULL has no value")
    text, sizes = pa.BufferOutputStream(), [np.zeros(1, np.int64)]
    for start in range(0, len(value), _CHUNK_ROWS):
        rows = slice(start, start + _CHUNK_ROWS)
        for part, ends in _json_texts(metadata[rows], value[rows], valid[rows], Faults(start)):
            text.write(part[: ends[-1]])
            sizes.append(np.diff(ends))
    ends = np.cumsum(np.concatenate(sizes))
    large = ends[-1] > np.iinfo(np.int32).max
    buffers = [bitmap(valid), pa.py_buffer(ends if large else ends.astype(np.int32)), text.getvalue()]
    return pa.Array.from_buffers(pa.large_string() if large else pa.string(), len(value), buffers)


def _json_texts(metadata: pa.Array, value: pa.Array, valid: Flags, faults: Faults) -> Iterator[tuple[Bytes, Int64s]]:
    """Yields the text of as many rows at a time as fit into a buffer, with the Arrow offsets of the rows in it."""
    variants = Variants.open(metadata, value, valid, faults)
    rows, keys = len(value), variants.keys
    name, first = keys.names
    quoted_ends = np.empty(len(first), np.int64)
    quoted = np.empty(int(keys.key_size[first].sum()) * 6 + len(first) * 3 + PADDING, np.uint8)  # \u0000: six bytes for one
    json.quote_names(keys.data, keys.key_at, keys.key_size, first, quoted, quoted_ends)
    source = (variants.data, variants.at, variants.limit, variants.dictionary, keys.start, name, quoted, quoted_ends)
    row, out, floats = 0, np.empty(_CHUNK_BYTES, np.uint8), _Floats.empty(_CHUNK_BYTES // _FLOAT_BYTES)
    ends = np.empty(rows + 1, np.int64)
    while row < rows:
        done, used = json.write_rows(*source, row, out, ends, floats.positions, floats.bits, floats.is_single, faults.report)
        if faults.check(done, "$") == 0:
            out, floats = np.empty(2 * len(out), np.uint8), _Floats.empty(2 * len(floats.positions))
            continue
        yield floats.into(out, ends[: done + 1], used) if used else out, ends[: done + 1]
        row += done


@dataclass(frozen=True, eq=False)
class _Floats:
    """The floating-point numbers of a text: their positions and their bits."""

    positions: Int64s
    bits: npt.NDArray[np.uint64]
    is_single: npt.NDArray[np.bool_]

    @classmethod
    def empty(cls, room: int) -> _Floats:
        return cls(np.empty(room, np.int64), np.empty(room, np.uint64), np.empty(room, np.bool_))

    def into(self, text: Bytes, ends: Int64s, count: int) -> Bytes:
        """The text with the digits of the first `count` floats; adjusts the offsets `ends`.

        Arrow computes the digits: the shortest that distinguish a number from its neighbors.
        """
        positions, bits, is_single = self.positions[:count], self.bits[:count], self.is_single[:count]
        doubles, singles = bits[~is_single].view(np.float64), bits[is_single].astype(np.uint32).view(np.float32)
        digits = [part for numbers in (doubles, singles) for part in buffers_of(pc.cast(pa.array(numbers), pa.string()))]
        out = np.empty(int(ends[-1]) + _FLOAT_BYTES * count, np.uint8)
        json.place_floats(text, ends, positions, bits, is_single, *digits, out)
        return out
