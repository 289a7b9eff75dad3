"""Arrow arrays ↔ the NumPy views that `kernels` work on, and the dictionaries of a chunk of Variants.

In: any of Arrow's storage forms. Out: flat arrays, one entry per slot, and back. This module knows no shredding schemas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delta_variant import nested
from delta_variant.errors import InvalidLayoutError, MalformedVariantError, UnsupportedFeatureError
from delta_variant.kernels import memory, metadata
from delta_variant.kernels.order import order_fields

Flags = npt.NDArray[np.uint8]
Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

Result = TypeVar("Result")

NO_FLAGS: Flags = np.empty(0, np.uint8)
"""If a kernel takes one flag per slot, an empty array says that all are set."""

_PYARROW = int(pa.__version__.partition(".")[0])

VIEWS = (pa.ListViewType, pa.LargeListViewType)

PADDING = 32
"""Spare bytes at the end of a buffer that `kernels` writes, so that short copies need not be exact."""


_POOLED = range(1 << 16, 1 << 22)
_FEW = _POOLED.start // 8
"""Fewer items than these are below the range, since no type here has more than 8 bytes; small batches need no size computed."""


def empty(shape: int | tuple[int, ...], kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """np.empty, with memory from Arrow's pool for arrays of 64 KiB to 4 MiB.

    The pool keeps what is freed. NumPy may return it to the system, and pages that are new take up to 2 µs each. For larger
    arrays NumPy asks for huge pages.
    """
    if isinstance(shape, int) and shape < _FEW:
        return np.empty(shape, kind)
    size = (math.prod(shape) if isinstance(shape, tuple) else shape) * np.dtype(kind).itemsize
    return np.ndarray(shape, kind, pa.allocate_buffer(size)) if size in _POOLED else np.empty(shape, kind)


def by_type(function: Callable[[pa.DataType], Result]) -> Callable[[pa.DataType], Result]:
    """Caches a function's results for the last 16 types.

    Types are compared, not hashed: Arrow hashes a type by its text, which takes 30 µs for a column of 14 leaves. A type is
    compared with itself in almost no time.
    """
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


def size_of(data: pa.Array | pa.RecordBatch) -> int:
    """The bytes of the rows of an array or a batch.

    With pyarrow before 25, the bytes of the whole buffers if there are views among the types, whichever slice of them the rows
    are: there `nbytes` raises an error (22, 23) or crashes the process (24, for a view without a data buffer).
    """
    if _PYARROW < 25 and _any_view(pa.struct(list(data.schema)) if isinstance(data, pa.RecordBatch) else data.type):
        return int(data.get_total_buffer_size())
    return int(data.nbytes)


def _is_or_has(kind: pa.DataType, wanted: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type, or one inside it, is wanted."""
    if isinstance(kind, pa.BaseExtensionType):
        return _is_or_has(kind.storage_type, wanted)
    if wanted(kind):
        return True
    if isinstance(kind, _ENCODED):
        return _is_or_has(kind.value_type, wanted)
    return any(_is_or_has(kind.field(i).type, wanted) for i in range(kind.num_fields))


_ENCODED = (pa.DictionaryType, pa.RunEndEncodedType)


def _is_view(kind: pa.DataType) -> bool:
    return isinstance(kind, VIEWS) or pa.types.is_binary_view(kind) or pa.types.is_string_view(kind)


@by_type
def _any_view(kind: pa.DataType) -> bool:
    return _is_or_has(kind, _is_view)


@by_type
def _any_indirect(kind: pa.DataType) -> bool:
    return _is_or_has(kind, lambda inner: isinstance(inner, _ENCODED) or _is_view(inner))


def bitmap(valid: Flags) -> pa.Buffer | None:
    """Arrow's validity buffer for one flag per slot; None if all are set."""
    return None if memory.all_set(valid) else pa.py_buffer(np.packbits(valid, bitorder="little"))


def validity(valid: Flags) -> tuple[pa.Buffer | None, int]:
    """Arrow's validity buffer for one flag per slot, None if all are set, and how many are not."""
    bits = bitmap(valid)
    return bits, 0 if bits is None else len(valid) - int(np.count_nonzero(valid))


def flags_of(array: pa.Array) -> Flags:
    """One flag per slot from Arrow's validity; empty if all slots are valid."""
    if not array.null_count:
        return NO_FLAGS
    bits = array.buffers()[0]
    if bits is None:  # of type null
        return np.zeros(len(array), np.uint8)
    start, end = array.offset, array.offset + len(array)
    return np.unpackbits(np.frombuffer(bits, np.uint8, count=-(-end // 8)), count=end, bitorder="little")[start:]


def both(a: Flags, b: Flags) -> Flags:
    """The flags that are set in both."""
    return b if len(a) == 0 else a if len(b) == 0 else a & b


class _Memory:
    __slots__ = ("__array_interface__", "owner")

    def __init__(self, address: int, size: int, owner: object) -> None:
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,), "data": (address, False)}
        self.owner = owner


def memory_at(address: int, size: int, owner: object) -> Bytes:
    """The bytes at an address, for kernels that read them. The array keeps the owner of the memory alive."""
    return np.asarray(_Memory(address, size, owner)) if size else np.empty(0, np.uint8)


def view(buffer: pa.Buffer | None, kind: npt.DTypeLike = np.uint8) -> npt.NDArray[Any]:
    """The items of a buffer, for kernels that read them; none if there is no buffer.

    The array is writable even if the buffer is not, as those of Arrow's IPC and of Python's bytes: Numba has another type for
    arrays that are not, and would compile each kernel once more.
    """
    if buffer is None:
        return np.empty(0, kind)
    return np.frombuffer(buffer, kind) if buffer.is_mutable else memory_at(buffer.address, buffer.size, buffer).view(kind)


def binary_array(offsets: Int32s, data: Bytes, valid: Flags, kind: pa.DataType) -> pa.Array:
    """A binary or string array; `data` may have spare bytes after the last offset."""
    return pa.Array.from_buffers(kind, len(offsets) - 1, [bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(data)])


OFFSETS = "the offsets of an array of {} do not ascend, or lead out of its buffers"
_LARGE = frozenset(kind.id for kind in (pa.large_string(), pa.large_binary(), pa.large_list(pa.null())))


def buffers_of(array: pa.Array) -> tuple[Int32s | Int64s, Bytes]:
    """The offsets, int64 in the large types, and the bytes of a binary, string or list array; a list has no bytes.

    Raises InvalidLayoutError for offsets that do not ascend, or lead out of the bytes or the elements: pyarrow does not check
    them in what it gets by IPC or the C data interface.
    """
    integer = np.int64 if array.type.id in _LARGE else np.int32
    _, offsets, *bytes_ = array.buffers()[:3]
    ends = view(offsets, integer)[array.offset : array.offset + len(array) + 1] if offsets else np.zeros(1, integer)
    data = view(bytes_[0] if bytes_ else None)
    size = len(array.values) if pa.types.is_list(array.type) or pa.types.is_large_list(array.type) else len(data)
    if len(ends) != len(array) + 1 or not memory.are_offsets(ends, size):
        raise InvalidLayoutError(OFFSETS.format(array.type))
    return ends, data


def floats(array: pa.Array) -> npt.NDArray[Any]:
    """The values of a floating-point array, without nulls.

    Unlike `pa.Array.to_numpy`, this does not import pandas, which takes 0.8 s in each new Python worker.
    """
    values, width = array.drop_null(), array.type.byte_width
    return np.frombuffer(values.buffers()[1] or b"", f"f{width}", len(values), values.offset * width)


def check_utf8(strings: pa.Array, path: str) -> None:
    """Raises MalformedVariantError if strings are not UTF-8. Kernels say which columns are ASCII and need no such check."""
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid:
        raise MalformedVariantError("a string is not valid UTF-8", at=path) from None


def as_binary(array: pa.Array) -> pa.Array:
    """Converts any of Arrow's forms of binary, dictionary-encoded and run-end-encoded ones included, to pa.binary().

    Raises InvalidLayoutError for other types and for more than 2 GiB.
    """
    kind = array.type
    if kind == pa.binary():
        return array
    if pa.types.is_dictionary(kind):  # not by dictionary_decode: pyarrow cannot take from views
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
        raise InvalidLayoutError("metadata or value takes more than 2 GiB in one array: pass smaller arrays") from None


def check(array: pa.Array, what: str) -> None:
    """Raises InvalidLayoutError for an array from elsewhere whose buffers do not have the size that its type asks for, and for
    anything but an array.

    what: the calling function, for the message. Offsets are left to `buffers_of` and `kernels.rebuild`, which look at those of
    the rows in question: pyarrow's full check of a slice takes as long as that of the whole array. Views and indices of
    dictionaries get that check.
    """
    if not isinstance(array, pa.Array):
        chunked = ": pass column.combine_chunks()" if isinstance(array, pa.ChunkedArray) else ""
        raise InvalidLayoutError(f"{what} takes a pyarrow.Array, not {type(array).__name__}{chunked}")
    try:
        array.validate(full=_any_indirect(array.type))
    except pa.ArrowException as error:
        raise InvalidLayoutError(f"{what} takes a valid array: {error}") from None


def storage_of(array: pa.Array, what: str) -> tuple[pa.StructArray, dict[str, pa.Array]]:
    """Removes the extension type of a VARIANT column, and replaces list views in it by lists.

    what: the calling function, for the message. Returns the struct array and its children by name. Raises InvalidLayoutError if
    the array is not a struct with metadata, has two children of one name, or is invalid (`check`).
    """
    check(array, what)
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
    """The array with lists in place of list views, inside structs, lists and maps too."""
    if isinstance(array.type, VIEWS):
        array = _list_of_view(array)
    if not nested.is_nested(array.type) or not _has_views(array.type):
        return array
    inside = [without_views(child) for child in nested.arrays(array)]
    return nested.rebuilt(array, nested.with_types(array.type, [child.type for child in inside]), inside)


def _list_of_view(array: pa.Array) -> pa.ListArray:
    """Converts a list view to a list. pyarrow's cast omits the last offset, and is wrong for slices (versions 22, 24, 26)."""
    kind, valid, width = array.type, flags_of(array), 4 if isinstance(array.type, pa.ListViewType) else 8
    offsets = np.zeros(len(array) + 1, np.int64)
    if len(array):
        sizes = np.frombuffer(array.buffers()[2], f"i{width}", len(array), array.offset * width)
        np.cumsum(sizes if len(valid) == 0 else sizes * valid, out=offsets[1:])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise InvalidLayoutError(f"an array of {kind} has more than 2^31 elements: pass smaller arrays")
    buffers = [bitmap(valid), pa.py_buffer(offsets.astype(np.int32))]
    return pa.Array.from_buffers(pa.list_(kind.value_field), len(array), buffers, children=[array.flatten()])


def hash_table(entries: int) -> Int64s:
    """An empty open-addressing hash table that is at most half full with this many entries."""
    table: Int64s = empty(1 << (2 * entries + 1).bit_length(), np.int64)
    table.fill(-1)
    return table


@dataclass(frozen=True, eq=False)
class NameTable:
    """A hash table from names to their numbers, for kernels. The names are concatenated in `names` and end at `ends`."""

    names: Bytes
    ends: Int64s
    table: Int64s

    @classmethod
    def of(cls, names: Iterable[str]) -> NameTable:
        """The table of names, which are numbered in their order."""
        texts = [name.encode() for name in names]
        self = cls(
            np.frombuffer(b"".join(texts) + bytes(PADDING), np.uint8),
            np.cumsum([len(text) for text in texts], dtype=np.int64),
            hash_table(len(texts)),
        )
        metadata.fill_name_table(self.names, self.ends, self.table)
        return self


class Faults:
    """The report of a kernel about malformed bytes, (code, slot, byte), and the error that it becomes.

    first_row: the number of the row in slot 0, for the message.
    """

    def __init__(self, first_row: int) -> None:
        self.report = np.zeros(3, np.int64)
        self.first_row = first_row

    def check(self, result: int, path: str) -> int:
        """Returns a kernel's result, or raises the error that the kernel reported. path: the node that it worked on."""
        return self.fail(path) if result < 0 else result

    def fail(self, path: str) -> NoReturn:
        """Raises the error that a kernel reported."""
        code, slot, _ = (int(n) for n in self.report)
        in_list = "[*]" in path
        text = f"{memory.FAULTS[code]}, in element {slot}" if in_list else memory.FAULTS[code]
        row = None if in_list else self.first_row + slot
        errors = {memory.REFUSED: UnsupportedFeatureError, **dict.fromkeys(memory.LAYOUT_FAULTS, InvalidLayoutError)}
        raise errors.get(code, MalformedVariantError)(text, at=path, row=row)


@dataclass(frozen=True, eq=False)
class Dictionaries:
    """The dictionaries of a chunk, one for each distinct metadata.

    Key i of dictionary d is entry start[d] + i of key_at and key_size, its position and size in `data`. mixed: whether some
    dictionary has keys that are in another order in UTF-8 than in UTF-16.
    """

    data: Bytes
    start: Int64s
    key_at: Int64s
    key_size: Int64s
    mixed: bool

    @classmethod
    def read(cls, column: pa.Array, at: Int64s, number: Int32s, faults: Faults) -> Dictionaries:
        """Reads the metadata of the rows with at[row] >= 0, and sets number[row] to the number of the row's dictionary.

        Raises MalformedVariantError.
        """
        offsets, data = buffers_of(column)
        first = empty(len(at), np.int64)
        count = metadata.intern_metadata(data, offsets, at, hash_table(len(at)), number, first)
        start = np.zeros(count + 1, np.int64)
        source = (data, offsets, first, count, start)
        total = faults.check(metadata.measure_dictionaries(*source, faults.report), "$")
        key_at, key_size = np.empty(total, np.int64), np.empty(total, np.int64)
        mixed = faults.check(metadata.read_dictionaries(*source, key_at, key_size, faults.report), "$")
        return cls(data, start, key_at, key_size, mixed > 0)

    @cached_property
    def numbers(self) -> tuple[Int64s, int]:
        """For each key a number that only keys of the same name share in its dictionary, and a limit for these numbers."""
        number, most = np.empty(len(self.key_at), np.int64), int(np.diff(self.start).max(initial=0))
        metadata.number_keys(self.data, self.start, self.key_at, self.key_size, hash_table(most), number)
        return number, most

    @cached_property
    def names(self) -> tuple[Int64s, Int64s]:
        """For each key the number of its name among the distinct names of the chunk, and for each name a key that has it."""
        name, first = np.empty(len(self.key_at), np.int64), np.empty(len(self.key_at), np.int64)
        count = metadata.number_names(self.data, self.key_at, self.key_size, hash_table(len(name)), name, first)
        return name, first[:count]

    def order(
        self, data: Bytes, at: Int64s, limit: Int64s, dictionary: Int32s, faults: Faults, *, changes: bool = True
    ) -> bool:
        """Puts the fields of objects in valid Variants in order (`kernels.order`). Returns whether any were not.

        Fields are expected in the order of their names' bytes or in that of UTF-16. These are the same, and nothing is looked
        at, unless the dictionaries are `mixed`. Without `changes` nothing is written. Raises MalformedVariantError.
        """
        keys = (self.start, self.key_at, self.key_size, self.data)
        return self.mixed and faults.check(order_fields(data, at, limit, dictionary, *keys, changes, faults.report), "$") > 0

    def look_up(self, table: NameTable) -> Int32s:
        """For each key the number of the name in the table that equals it; the count of names if none does."""
        found = np.empty(len(self.key_at), np.int32)
        metadata.look_up_names(self.data, self.key_at, self.key_size, table.names, table.ends, table.table, found)
        return found


@dataclass(frozen=True, eq=False)
class Variants:
    """The Variants of some rows.

    The Variant of a row starts at at[row] in `data` (-1: NULL), ends by limit[row], and uses the dictionary dictionary[row] of
    `keys`.
    """

    data: Bytes
    at: Int64s
    limit: Int64s
    dictionary: Int32s
    keys: Dictionaries

    @property
    def low(self) -> int:
        """Where the first of them starts."""
        return int(self.at[0] if self.at[0] >= 0 else self.limit[0])

    def ordered(self, faults: Faults) -> Variants:
        """The same Variants, which must be valid, with the fields of all objects in order: a copy unless they are.

        Raises MalformedVariantError for a Variant that has to change and has values that overlap.
        """
        if not self.keys.order(self.data, self.at, self.limit, self.dictionary, faults, changes=False):
            return self
        low, high = self.low, int(self.limit[-1])
        data: Bytes = np.zeros(high - low + PADDING, np.uint8)
        data[: high - low] = self.data[low:high]
        found = Variants(data, np.where(self.at < 0, -1, self.at - low), self.limit - low, self.dictionary, self.keys)
        self.keys.order(data, found.at, found.limit, self.dictionary, faults)
        return found

    def take(self, rows: Int64s | slice) -> Variants:
        """Those of some rows, which ascend."""
        return Variants(self.data, self.at[rows], self.limit[rows], self.dictionary[rows], self.keys)

    @classmethod
    def open(cls, metadata_column: pa.Array, value: pa.Array, valid: Flags, faults: Faults) -> Variants:
        """Finds the Variants of a column. Raises MalformedVariantError.

        metadata_column, value: pa.binary(). valid: one flag per row, empty if no row is NULL.
        """
        offsets, data = buffers_of(value)
        rows = len(value)
        at, limit, dictionary = empty(rows, np.int64), empty(rows, np.int64), empty(rows, np.int32)
        metadata.starts(offsets, valid, at, limit)
        return cls(data, at, limit, dictionary, Dictionaries.read(metadata_column, at, dictionary, faults))
