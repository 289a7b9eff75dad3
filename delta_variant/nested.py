"""What is inside an Arrow type or array, by the names that it has in a Parquet schema.

In: structs, maps, and lists in every form. Out: their fields and arrays, and types and arrays of the same form with others in
them. The names that lead on are those of `paths`: of a field of a struct its name, `ELEMENT`, `MAP_KEY` and `MAP_VALUE`.
Other types have nothing inside, extension types neither. Invariant: `rebuilt(array, array.type, arrays(array))` equals `array`,
also if it is a slice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delta_variant.paths import ELEMENT, MAP_KEY, MAP_VALUE, ColumnPath

_LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType)


def is_nested(kind: pa.DataType) -> bool:
    """Whether a type is a struct, a map or a list."""
    return isinstance(kind, (pa.StructType, pa.MapType, *_LISTS))


def children(kind: pa.DataType, names: ColumnPath = ()) -> list[tuple[ColumnPath, pa.Field]]:
    """The fields inside a type, and the names that lead to them. names: those that lead to the type.

    >>> children(pa.list_(pa.field("element", pa.int8())), ("a",))
    [(('a', 'list', 'element'), pyarrow.Field<element: int8>)]
    """
    if pa.types.is_struct(kind):
        return [((*names, field.name), field) for field in kind]
    if pa.types.is_map(kind):
        return [((*names, *MAP_KEY), kind.key_field), ((*names, *MAP_VALUE), kind.item_field)]
    return [((*names, *ELEMENT), kind.value_field)] if isinstance(kind, _LISTS) else []


def leaves(
    kind: pa.DataType, names: ColumnPath = (), ends: Callable[[pa.DataType, ColumnPath], bool] = lambda *_: False
) -> Iterator[tuple[ColumnPath, pa.DataType]]:
    """Yields the types inside a type that have nothing inside, or at which it `ends`, with the names that lead to them.

    Keys of maps are left out: they hold no Variants.
    """
    if not is_nested(kind) or ends(kind, names):
        yield names, kind
        return
    for path, field in children(kind, names)[pa.types.is_map(kind) :]:
        yield from leaves(field.type, path, ends)


def columns(schema: pa.Schema, variants: Collection[ColumnPath]) -> list[ColumnPath]:
    """The columns of a schema and the fields of its structs. `variants`, lists and maps count as one each."""

    def ends(kind: pa.DataType, names: ColumnPath) -> bool:
        return names in variants or not pa.types.is_struct(kind)

    return [names for names, _ in leaves(pa.struct(list(schema)), (), ends)]


def with_types(kind: pa.DataType, types: Sequence[pa.DataType]) -> pa.DataType:
    """A type of the same form whose fields have other types."""
    return with_fields(kind, [field.with_type(inner) for (_, field), inner in zip(children(kind), types, strict=True)])


def with_fields(kind: pa.DataType, fields: Sequence[pa.Field]) -> pa.DataType:
    """A type of the same form with other fields inside; list views, which pyarrow cannot cast, become lists."""
    if pa.types.is_struct(kind):
        return pa.struct(fields)
    if pa.types.is_map(kind):
        return pa.map_(*fields)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(*fields, kind.list_size)
    return pa.large_list(*fields) if pa.types.is_large_list(kind) else pa.list_(*fields) if fields else kind


def optional(kind: pa.DataType, types: Sequence[pa.DataType]) -> pa.DataType:
    """A type of the same form with other types inside, as Spark has it: lists of one form, and fields that may be null."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, inner) for field, inner in zip(kind, types, strict=True)])
    if pa.types.is_map(kind):
        return pa.map_(pa.field("key", types[0], False), pa.field("value", types[1]))
    return pa.list_(pa.field("element", types[0])) if types else kind


def column(batch: pa.RecordBatch, names: ColumnPath) -> pa.Array:
    """The column at the top or in structs that the names lead to. Its nulls are its own, not those of the structs around it."""
    array = batch.column(names[0])
    for name in names[1:]:
        array = array.field(array.type.get_field_index(name))
    return array


def flattened(array: pa.StructArray) -> list[pa.Array]:
    """The fields of a struct, null wherever the struct is."""
    return list(array.flatten()) if array.null_count else [array.field(i) for i in range(array.type.num_fields)]


def field_at(array: pa.Array, names: ColumnPath) -> Any:
    """What the names lead to in structs, null wherever a struct around it is; None if there is nothing."""
    for name in names:
        index = array.type.get_field_index(name) if pa.types.is_struct(array.type) else -1
        if index < 0:
            return None
        # Without nulls to add, there is no need to copy the list of all children, which takes 0.4 ms of a thousand.
        array = pc.struct_field(array, [index]) if array.null_count else array.field(index)
    return array


def in_batch(batch: pa.RecordBatch, names: ColumnPath) -> Any:
    """What the names lead to in a batch, as `field_at` finds it in structs."""
    index = batch.schema.get_field_index(names[0])
    return None if index < 0 else field_at(batch.column(index), names[1:])


def arrays(array: pa.Array) -> list[pa.Array]:
    """The arrays inside an array, in the order of `children`. Those of a list or a map are whole, also if it is a slice."""
    kind = array.type
    if pa.types.is_struct(kind):
        return [array.field(i) for i in range(kind.num_fields)]
    return [array.keys, array.items] if pa.types.is_map(kind) else [array.values] if isinstance(kind, _LISTS) else []


def rebuilt(array: pa.Array, kind: pa.DataType, inside: Sequence[pa.Array]) -> pa.Array:
    """An array with others inside, as many as `arrays` returns. kind: its type, of the same form, with their types."""
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays(inside, fields=list(kind), mask=array.is_null() if array.null_count else None)
    if pa.types.is_map(kind):
        inside = [pa.StructArray.from_arrays(inside, fields=[kind.key_field, kind.item_field])]
    return pa.Array.from_buffers(kind, len(array), array.buffers()[: kind.num_buffers], offset=array.offset, children=inside)


def without_nulls_below_nulls(array: pa.Array, field: pa.Field) -> pa.Array:
    """The array of a field, without the nulls that non-nullable fields inside have below a null.

    Such nulls are valid, and pyarrow makes them (`take`, `if_else`, `pa.nulls`), but its Parquet writer refuses them. They
    become what their slots hold, which no reader sees. If a field has other nulls, all of its nulls stay. List views are not
    taken.

    >>> kind = pa.struct([pa.field("a", pa.int8(), nullable=False)])
    >>> without_nulls_below_nulls(pa.nulls(2, kind), pa.field("s", kind)).field("a").null_count
    0
    """
    return _filled(array, field, np.zeros(len(array), np.bool_)) if _has_refused_nulls(array, field) else array


def _has_refused_nulls(array: pa.Array, field: pa.Field) -> bool:
    if not field.nullable and array.null_count:
        return True
    parts = zip(arrays(array), children(array.type), strict=True)
    return any(_has_refused_nulls(part, inner) for part, (_, inner) in parts)


def _filled(array: pa.Array, field: pa.Field, hidden: npt.NDArray[np.bool_]) -> pa.Array:
    """The array without nulls that are `hidden`, where its field or one inside is non-nullable."""
    kind, nulls = array.type, np.asarray(array.is_null())
    inside = arrays(array)
    if inside:
        below = hidden | nulls if pa.types.is_struct(kind) else _in_no_list(array, hidden | nulls)
        inside = [_filled(part, inner, below) for part, (_, inner) in zip(inside, children(kind), strict=True)]
        array = rebuilt(array, kind, inside)
    if field.nullable or not array.null_count or not hidden[nulls].all():
        return array
    if pa.types.is_struct(kind) and inside:
        return pa.StructArray.from_arrays(inside, fields=list(kind))
    if pa.types.is_map(kind):
        inside = [pa.StructArray.from_arrays(inside, fields=[kind.key_field, kind.item_field])]
    if isinstance(array, pa.ExtensionArray):
        return kind.wrap_array(_filled(array.storage, field.with_type(kind.storage_type), hidden))
    if pa.types.is_dictionary(kind):
        if not len(array.dictionary):
            return array
        return pa.DictionaryArray.from_arrays(array.indices.fill_null(0), array.dictionary, ordered=kind.ordered)
    buffers = [None, *array.buffers()[1 : kind.num_buffers]]
    return pa.Array.from_buffers(kind, len(array), buffers, null_count=0, offset=array.offset, children=inside)


def _in_no_list(array: pa.Array, hidden: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which elements are in no list, or map, but hidden ones."""
    if pa.types.is_fixed_size_list(array.type):
        starts = (array.offset + np.arange(len(array))) * array.type.list_size
        ends = starts + array.type.list_size
    else:
        offsets = np.asarray(array.offsets).astype(np.int64)
        starts, ends = offsets[:-1], offsets[1:]
    steps = np.zeros(len(arrays(array)[0]) + 1, np.int64)
    np.add.at(steps, starts[~hidden], 1)
    np.add.at(steps, ends[~hidden], -1)
    return np.asarray(np.cumsum(steps)[:-1] == 0)
