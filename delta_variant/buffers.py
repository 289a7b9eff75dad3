"""Arrow arrays ↔ the NumPy views that `kernels` work on, and the dictionaries of a chunk of Variants.

In: any of Arrow's storage forms. Out: flat arrays, one entry per slot, and back. Nothing here knows a shredding schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import NoReturn, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delta_variant.errors import InvalidLayoutError, MalformedVariantError, UnsupportedFeatureError
from delta_variant.kernels import memory, metadata

Flags = npt.NDArray[np.uint8]
Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

Result = TypeVar("Result")

NO_FLAGS: Flags = np.empty(0, np.uint8)
"""Where a kernel takes one flag per slot, an empty array says that all are set."""

VIEWS = (pa.ListViewType, pa.LargeListViewType)

PADDING = 16
"""Room behind the bytes that `kernels` writes, so that short copies need not be exact."""


def by_type(function: Callable[[pa.DataType], Result]) -> Callable[[pa.DataType], Result]:
    """Keeps a function's results for the last types. An Arrow type hashes by its text, which takes 30 µs for a column of 14
    leaves, and compares to itself in no time."""
    kept: tuple[tuple[pa.DataType, Result], ...] = ()

    @wraps(function)
    def result_of(kind: pa.DataType) -> Result:
        nonlocal kept  # replaced as a whole, so that threads need no lock
        for known, result in kept:
            if known == kind:
                return result
        result = function(kind)
        kept = ((kind, result), *kept[:15])
        return result

    return result_of


def bitmap(valid: Flags) -> pa.Buffer | None:
    """Arrow's validity buffer of one flag per slot."""
    return None if valid.tobytes().find(0) < 0 else pa.py_buffer(np.packbits(valid, bitorder="little"))


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


def check_utf8(strings: pa.Array, data: Bytes, path: str) -> None:
    """Raises MalformedVariantError where strings, whose bytes are `data`, are not UTF-8; ASCII is cheap to check."""
    if len(data) and data.max() > 0x7F:
        try:
            strings.validate(full=True)
        except pa.ArrowInvalid:
            raise MalformedVariantError(f"a string is not valid UTF-8 (at {path})") from None


def as_binary(array: pa.Array) -> pa.Array:
    """Any of Arrow's forms of binary, dictionary- and run-end-encoded ones too, as pa.binary(). Raises InvalidLayoutError."""
    kind = array.type
    if kind == pa.binary():
        return array
    if pa.types.is_dictionary(kind):  # not dictionary_decode: pyarrow takes from no views
        return as_binary(array.dictionary).take(array.indices)
    if pa.types.is_run_end_encoded(kind):
        runs, plain = array.run_ends, pa.run_end_encoded(kind.run_end_type, pa.binary())
        children = [runs, as_binary(array.values)]
        return pc.run_end_decode(pa.Array.from_buffers(plain, len(array), [None], offset=array.offset, children=children))
    if not pa.types.is_large_binary(kind) and not pa.types.is_binary_view(kind):
        raise InvalidLayoutError(f"metadata and value are binary, large_binary or binary_view, not {kind}")
    try:
        return array.cast(pa.binary())
    except pa.ArrowInvalid:
        raise InvalidLayoutError("metadata or value take more than 2 GiB in one array; hand it over in smaller ones") from None


def storage_of(array: pa.Array, what: str) -> tuple[pa.StructArray, dict[str, pa.Array]]:
    """A VARIANT column without its extension type and with lists for list views, and its children by name.

    Raises InvalidLayoutError.
    """
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    if pa.types.is_struct(storage.type):
        storage = without_views(storage) if _column_has_views(storage.type) else storage
        children = {storage.type.field(i).name: storage.field(i) for i in range(storage.type.num_fields)}
        if "metadata" in children and len(children) == storage.type.num_fields:
            return storage, children
    raise InvalidLayoutError(f"{what} takes a VARIANT column, struct<metadata: binary, value: binary, …>, not {array.type}")


def _has_views(kind: pa.DataType) -> bool:
    return isinstance(kind, VIEWS) or any(_has_views(kind.field(i).type) for i in range(kind.num_fields))


_column_has_views = by_type(_has_views)


def without_views(array: pa.Array) -> pa.Array:
    """The array with its list views as lists, inside structs and lists too."""
    if isinstance(array.type, VIEWS):
        array = _list_of_view(array)
    kind = array.type
    if not _has_views(kind):
        return array
    if pa.types.is_struct(kind):
        children = [without_views(array.field(i)) for i in range(kind.num_fields)]
        fields = [kind.field(i).with_type(child.type) for i, child in enumerate(children)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        elements, make = without_views(array.values), pa.list_ if pa.types.is_list(kind) else pa.large_list
        built = make(kind.value_field.with_type(elements.type))
        return pa.Array.from_buffers(built, len(array), array.buffers()[:2], offset=array.offset, children=[elements])
    return array


def _list_of_view(array: pa.Array) -> pa.ListArray:
    """A list view as a list. pyarrow's cast leaves out the last offset, and is wrong on slices (22, 24, 26)."""
    kind, valid, width = array.type, flags_of(array), 4 if isinstance(array.type, pa.ListViewType) else 8
    offsets = np.zeros(len(array) + 1, np.int64)
    if len(array):
        sizes = np.frombuffer(array.buffers()[2], f"i{width}", len(array), array.offset * width)
        np.cumsum(sizes if len(valid) == 0 else sizes * valid, out=offsets[1:])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise InvalidLayoutError(f"a {kind} of more than 2^31 elements in one array; hand it over in smaller ones")
    buffers = [bitmap(valid) if len(valid) else None, pa.py_buffer(offsets.astype(np.int32))]
    return pa.Array.from_buffers(pa.list_(kind.value_field), len(array), buffers, children=[array.flatten()])


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
        family = {memory.REFUSED: UnsupportedFeatureError, **dict.fromkeys(memory.LAYOUT_FAULTS, InvalidLayoutError)}
        raise family.get(code, MalformedVariantError)(f"{memory.FAULTS[code]} (at {where})")


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

    @cached_property
    def names(self) -> tuple[Int64s, Int64s]:
        """For each key the number of its text among the texts of the chunk, and for each text a key that has it."""
        name, first = np.empty(len(self.key_at), np.int64), np.empty(len(self.key_at), np.int64)
        count = metadata.number_names(self.data, self.key_at, self.key_size, hash_table(len(name)), name, first)
        return name, first[:count]

    def look_up(self, table: NameTable) -> Int32s:
        """For each key the number of the name that equals it; the count of names where none does."""
        found = np.empty(len(self.key_at), np.int32)
        metadata.look_up_names(self.data, self.key_at, self.key_size, table.names, table.ends, table.table, found)
        return found


@dataclass(frozen=True, eq=False)
class Variants:
    """The Variants of some rows: at[row] in `data` (-1: NULL), within limit[row], with the dictionary of that number."""

    data: Bytes
    at: Int64s
    limit: Int64s
    dictionary: Int32s
    keys: Dictionaries

    @classmethod
    def open(cls, metadata_column: pa.Array, value: pa.Array, valid: Flags, faults: Faults) -> Variants:
        """metadata_column, value: pa.binary(); valid: one flag per row, empty where no row is NULL."""
        offsets, data = buffers_of(value)
        rows = len(value)
        at, limit, dictionary = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int32)
        metadata.starts(offsets, valid, at, limit)
        return cls(data, at, limit, dictionary, Dictionaries.read(metadata_column, at, dictionary, faults))
