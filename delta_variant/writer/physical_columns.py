"""Physical columns: Arrow arrays as Spark sends them → arrays as Parquet stores them.

In: Arrow arrays from Spark, VARIANT as struct<value, metadata>, timestamps in UTC. VARIANT may also be shredded, as in the file
that a row is copied from. Out: arrays of the physical schema, VARIANT as struct<metadata, value> or shredded
(VariantShredding). All fields but the children of a VARIANT are optional, as in Spark's own files. VARIANT columns at the top
or in structs can be shredded. Inside arrays and maps they stay plain, since Delta has no bounds for them.

Invariants: bytes that are not a valid Variant, or that Spark could not read back, raise an error, shredded or not. The
output shares no memory with the input, because a slice would keep its whole batch alive until the row group is full. Only
columns that stay shredded share it, since a batch of copied rows (`writer.late`) has little else.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from delta_variant import nested, shredding
from delta_variant.locating import naming
from delta_variant.paths import ColumnPath, dotted
from delta_variant.shredding.reshredder import reshred


def physical_type(
    kind: pa.DataType, path: ColumnPath, variants: frozenset[ColumnPath], shredding_schemas: Mapping[ColumnPath, pa.DataType]
) -> pa.DataType:
    """The Arrow type in which Parquet stores a column that Spark sends as `kind`: all fields optional, timestamps in UTC."""
    if path in variants:
        return shredding.storage_type(shredding_schemas.get(path))
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp("us", "UTC")
    inside = [physical_type(field.type, own, variants, shredding_schemas) for own, field in nested.children(kind, path)]
    return nested.optional(kind, inside)


def physical(
    array: pa.Array,
    target: pa.DataType,
    path: ColumnPath,
    variants: frozenset[ColumnPath],
    shredding_schemas: Mapping[ColumnPath, pa.DataType],
) -> pa.Array:
    """A column converted to its physical type. Errors name the VARIANT column."""
    if path in variants:
        with naming(f"column {dotted(path)}"):
            if path not in shredding_schemas:
                return shredding.plain(required(unshredded(array), ("metadata", "value")))
            if is_shredded(array):
                return reshred(array, shredding_schemas[path], for_spark=True)
            return shredding.shred(required(array, ("metadata",)), shredding_schemas[path], for_spark=True)
    if not any(variant[: len(path)] == path for variant in variants):
        return _copied(array if array.type == target else array.cast(target))
    if not pa.types.is_struct(target):
        array = _copied(array)  # what is inside a slice would be that of its whole batch
    parts = zip(nested.arrays(array), nested.children(target, path), strict=True)
    inside = [physical(part, field.type, own, variants, shredding_schemas) for part, (own, field) in parts]
    return nested.rebuilt(array, target, inside)


def is_shredded(array: pa.Array) -> bool:
    """Whether a VARIANT column is shredded, as those of rows that are copied may be (`writer.late`)."""
    return bool(array.type.get_field_index("typed_value") >= 0)


def unshredded(array: pa.StructArray) -> pa.StructArray:
    """The Variants of a column that may be shredded."""
    return shredding.unshred(array) if is_shredded(array) else array


def _copied(array: pa.Array) -> pa.Array:
    """A copy of the array that shares no memory with it."""
    return pa.concat_arrays([array])


def required(array: pa.Array, copied: tuple[str, ...]) -> pa.StructArray:
    """A VARIANT column with its children in the order of the specification, and without nulls in them.

    copied: the children that are written as they are, and therefore copied out of their batch. In a null row Spark sends null
    children, and pyarrow refuses nulls in required columns.
    """
    children = []
    for name in ("metadata", "value"):
        child = array.field(array.type.get_field_index(name))
        child = _copied(child) if name in copied else child
        if child.null_count:
            child = pa.Array.from_buffers(child.type, len(child), [None, *child.buffers()[1:]], offset=child.offset)
        children.append(child)
    nulls = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(shredding.UNSHREDDED), mask=nulls)
