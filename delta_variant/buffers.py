"""Arrow arrays ↔ the NumPy views that `kernels` work on, and the dictionaries of a chunk of Variants.

In: any of Arrow's storage forms. Out: flat arrays, one entry per slot, and back. Nothing here knows a shredding schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delta_variant.errors import InvalidLayoutError, MalformedVariantError
from delta_variant.kernels import memory, metadata

Flags = npt.NDArray[np.uint8]
Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

NO_FLAGS: Flags = np.empty(0, np.uint8)
"""Where a kernel takes one flag per slot, an empty array says that all are set."""

PADDING = 16
"""Room behind the bytes that `kernels` writes, so that short copies need not be exact."""


def bitmap(valid: Flags) -> pa.Buffer | None:
    """Arrow's validity buffer of one flag per slot."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def flags_of(array: pa.Array) -> Flags:
    """One flag per slot from Arrow's validity; empty where all slots are valid."""
    return np.asarray(array.is_valid()).view(np.uint8) if array.null_count else NO_FLAGS


def both(a: Flags, b: Flags) -> Flags:
    """Slots flagged in both."""
    return b if len(a) == 0 else a if len(b) == 0 else a & b


def binary_array(offsets: Int32s, data: Bytes, valid: Flags, kind: pa.DataType) -> pa.Array:
    """A binary or string array; `data` may have bytes to spare behind the last offset."""
    return pa.Array.from_buffers(kind, len(offsets) - 1, [bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(data)])


def buffers_of(array: pa.Array) -> tuple[Int32s, Bytes]:
    """The offsets and the bytes of a binary, string or list array (bytes: empty for a list)."""
    _, offsets, *data = array.buffers()[:3]
    ends = np.frombuffer(offsets or bytes(4), np.int32)[array.offset : array.offset + len(array) + 1]
    return ends, np.frombuffer(data[0] if data and data[0] is not None else b"", np.uint8)


def as_binary(array: pa.Array) -> pa.Array:
    """Any of Arrow's forms of binary, dictionary- and run-end-encoded ones too, as pa.binary()."""
    if pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    elif pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array if array.type == pa.binary() else array.cast(pa.binary())


def storage_of(array: pa.Array, what: str) -> tuple[pa.StructArray, dict[str, pa.Array]]:
    """A VARIANT column without its extension type, and its children by name. Raises InvalidLayoutError."""
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    if pa.types.is_struct(storage.type):
        children = {storage.type.field(i).name: storage.field(i) for i in range(storage.type.num_fields)}
        if "metadata" in children and len(children) == storage.type.num_fields:
            return storage, children
    raise InvalidLayoutError(f"{what} takes a VARIANT column, struct<metadata: binary, value: binary, …>, not {array.type}")


def hash_table(entries: int) -> Int64s:
    """An empty open-addressing table, at most half full with so many entries."""
    return np.full(1 << (2 * entries + 1).bit_length(), -1, np.int64)


@dataclass(frozen=True, eq=False)
class NameTable:
    """A hash table from names to their numbers, for kernels."""

    names: Bytes
    ends: Int64s
    table: Int64s

    @classmethod
    def of(cls, names: Iterable[str]) -> NameTable:
        texts = [name.encode() for name in names]
        self = cls(
            np.frombuffer(b"".join(texts) + bytes(PADDING), np.uint8),
            np.cumsum([len(text) for text in texts], dtype=np.int64),
            hash_table(len(texts)),
        )
        metadata.fill_name_table(self.names, self.ends, self.table)
        return self


class Faults:
    """Where kernels report malformed bytes, and what becomes of the report."""

    def __init__(self, first_row: int) -> None:
        self.report = np.zeros(3, np.int64)
        self.first_row = first_row

    def check(self, result: int, path: str) -> int:
        """Passes a kernel's result on, or raises what the kernel found."""
        return self.fail(path) if result < 0 else result

    def fail(self, path: str) -> NoReturn:
        code, slot, _ = (int(n) for n in self.report)
        where = f"{path}, row {self.first_row + slot}" if "[*]" not in path else f"{path}, element {slot}"
        error = InvalidLayoutError if code in memory.LAYOUT_FAULTS else MalformedVariantError
        raise error(f"{memory.FAULTS[code]} (at {where})")


@dataclass(frozen=True, eq=False)
class Dictionaries:
    """The distinct metadata of a chunk. Key i of dictionary d is entry start[d] + i of the flat arrays."""

    data: Bytes
    start: Int64s
    key_at: Int64s
    key_size: Int64s

    @classmethod
    def read(cls, column: pa.Array, at: Int64s, number: Int32s, faults: Faults) -> Dictionaries:
        """Reads the metadata of the rows where at[row] >= 0; number[row] becomes the row's dictionary."""
        offsets, data = buffers_of(column)
        first = np.empty(len(at), np.int64)
        count = metadata.intern_metadata(data, offsets, at, hash_table(len(at)), number, first)
        start = np.zeros(count + 1, np.int64)
        source = (data, offsets, first, count, start)
        total = faults.check(metadata.measure_dictionaries(*source, faults.report), "$")
        key_at, key_size = np.empty(total, np.int64), np.empty(total, np.int64)
        faults.check(metadata.read_dictionaries(*source, key_at, key_size, faults.report), "$")
        return cls(data, start, key_at, key_size)

    def look_up(self, table: NameTable) -> Int32s:
        """For each key the number of the name that equals it; the count of names where none does."""
        found = np.empty(len(self.key_at), np.int32)
        metadata.look_up_names(self.data, self.key_at, self.key_size, table.names, table.ends, table.table, found)
        return found
