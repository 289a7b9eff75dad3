"""Finds the names that the typed columns of a row use, and adds the missing ones to its metadata.

In: a column of struct<metadata, value?, typed_value?>. Out: which of the schema's names each row uses, or the same column with
metadata that has all of these names. Source: VariantShredding, "Variant Metadata": all field names of a Variant, whether
shredded or not, must be present in the metadata. The worked example of a shredded object in Arrow's canonical extension
`arrow.parquet.variant` omits the shredded names. Its meaning is clear, so such columns are read. Invariant: `complete` only
appends to dictionaries, so every field id in `value` stays valid, and a row that lacks no name keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delta_variant import binary, nested
from delta_variant import schema as schemas
from delta_variant.buffers import Dictionaries, Faults, Int64s, NameTable, as_binary

Used = npt.NDArray[np.bool_]

MATRIX = 1 << 22
"""The limit for entries of the (rows, names) matrix; longer columns are processed in chunks of rows."""


def fields_of(array: pa.StructArray) -> list[tuple[str, pa.Array]]:
    """The fields of a struct by name, null wherever the struct is."""
    return [(field.name, child) for field, child in zip(array.type, nested.flattened(array), strict=True)]


def columns_of(group: pa.StructArray) -> dict[str, pa.Array]:
    """The columns of a shredded group by name, null wherever the group is; names that begin with an underscore are ignored."""
    return {name: column for name, column in fields_of(group) if not name.startswith("_")}


def elements_of(array: pa.Array) -> tuple[Int64s, pa.Array]:
    """(number of elements of each slot, elements of all slots) of a list in any of Arrow's forms; a null slot has none."""
    return np.asarray(pc.list_value_length(array).fill_null(0)).astype(np.int64), array.flatten()


def names_of(group: pa.DataType) -> list[str]:
    """The distinct names of all shredded fields of a group's type, in the order of their first occurrence."""
    return list(dict.fromkeys(_names(group)))


def _names(group: pa.DataType) -> Iterator[str]:
    for column in group if pa.types.is_struct(group) else ():
        if column.name.startswith("_"):
            continue
        if pa.types.is_struct(column.type):
            for field in column.type:
                yield field.name
                yield from _names(field.type)
        elif schemas.is_list(column.type):
            yield from _names(column.type.value_type)


def used_names(array: pa.StructArray) -> tuple[list[str], Used]:
    """(names_of(array.type), flags of the shape (row, name) that say whether the row has a shredded field of that name).

    array: a group whose fields and elements are groups too, at every level. In a group every struct column is an object and
    every list column an array, whatever their names. A row has a field if any column of the field's group is set, and so is
    everything around the group. Elements of a list belong to the row of the list.
    """
    names = names_of(array.type)
    used = np.zeros((len(array), len(names)), np.bool_)
    _mark(array, np.arange(len(array)), {name: n for n, name in enumerate(names)}, used)
    return names, used


def _mark(group: pa.StructArray, rows: Int64s, numbers: dict[str, int], used: Used) -> None:
    for column in columns_of(group).values():
        if column.null_count == len(column):
            continue
        if pa.types.is_struct(column.type):
            for name, field in fields_of(column):
                set_ = [np.asarray(inner.is_valid()) for inner in columns_of(field).values()]
                used[rows[np.logical_or.reduce(set_)], numbers[name]] = True
                _mark(field, rows, numbers, used)
        elif schemas.is_list(column.type):
            lengths, elements = elements_of(column)
            _mark(elements, np.repeat(rows, lengths), numbers, used)


def complete(array: pa.StructArray) -> pa.StructArray:
    """The same column, with metadata that has the name of every shredded field of its row.

    array: struct<metadata, value?, typed_value?>, a layout that `unshred` accepts. Names that a row's metadata lacks are
    appended to its dictionary, sorted by their UTF-8 bytes; the flag for sorted strings is then set if the whole dictionary is
    sorted. The metadata column becomes pa.binary(). Raises MalformedVariantError.
    """
    rows = max(1, MATRIX // max(1, len(names_of(array.type))))
    chunks = [_completed(array[start : start + rows], start) for start in range(0, len(array), rows)]
    index = array.type.get_field_index("metadata")
    children = nested.arrays(array)
    children[index] = pa.concat_arrays(chunks) if chunks else as_binary(children[index])
    return nested.rebuilt(array, nested.with_types(array.type, [child.type for child in children]), children)


def _completed(array: pa.StructArray, first_row: int) -> pa.Array:
    """The metadata of some rows. Python code runs once per distinct pair of a dictionary and the names that it lacks."""
    metadata = as_binary(array.field("metadata"))
    names, used = used_names(array)
    if not used.any():
        return metadata
    number = np.empty(len(array), np.int32)
    keys = Dictionaries.read(metadata, np.where(array.is_valid(), 0, -1), number, Faults(first_row))
    has = np.zeros((len(keys.start) - 1, len(names) + 1), np.bool_)  # the last column is for keys that the schema does not name
    has[np.repeat(np.arange(len(has)), np.diff(keys.start)), keys.look_up(NameTable.of(names))] = True
    lacks = used & ~has[number, :-1]
    rows = np.flatnonzero(lacks.any(axis=1))
    if not len(rows):
        return metadata
    which = np.hstack([number[rows, None].view(np.uint8), np.packbits(lacks[rows], axis=1)])
    _, first, inverse = np.unique(which, axis=0, return_index=True, return_inverse=True)
    extended = [_extended(metadata[row].as_py(), [names[n] for n in np.flatnonzero(lacks[row])]) for row in rows[first]]
    mask = np.zeros(len(array), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(metadata, mask, pa.array(extended, pa.binary()).take(pa.array(inverse.reshape(-1))))


def _extended(metadata: bytes, names: list[str]) -> bytes:
    keys = binary.decode_metadata(metadata) + sorted(names, key=str.encode)
    encoded = bytearray(binary.encode_metadata(keys))
    if any(a.encode() >= b.encode() for a, b in pairwise(keys)):
        encoded[0] &= ~0x10
    return bytes(encoded)
