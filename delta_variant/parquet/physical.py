"""Restores the details of a Parquet column's type that a Variant's type depends on and that Arrow's type lacks.

In: a Parquet file's leaf columns and the Arrow schema that pyarrow gives them. Out: that schema, with more exact types inside
VARIANT groups. Source: VariantShredding, "Shredded Value Types": a column's physical type decides between decimal4, decimal8
and decimal16, where Arrow has one decimal128.

Invariant: a leaf of a VARIANT group whose physical and logical type are not a row of that table is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delta_variant import buffers, nested
from delta_variant import types as t
from delta_variant.errors import InvalidLayoutError, UnsupportedFeatureError
from delta_variant.parquet.footer import Names
from delta_variant.paths import dotted

_LOGICAL = {
    "BOOLEAN": {"NONE"},
    "INT32": {"NONE", "INT", "DECIMAL", "DATE"},
    "INT64": {"NONE", "INT", "DECIMAL", "TIME", "TIMESTAMP"},
    "FLOAT": {"NONE"},
    "DOUBLE": {"NONE"},
    "BYTE_ARRAY": {"NONE", "STRING", "DECIMAL"},
    "FIXED_LEN_BYTE_ARRAY": {"DECIMAL", "UUID"},
}
"""By physical type, the logical types in the table. Signs, widths and units are checked with the Arrow type."""

_DECIMALS = {
    "INT32": (t.DECIMAL4, pa.decimal32),
    "INT64": (t.DECIMAL8, pa.decimal64),
    "BYTE_ARRAY": (t.DECIMAL16, pa.decimal256),
    "FIXED_LEN_BYTE_ARRAY": (t.DECIMAL16, pa.decimal256),
}
"""By physical type, the Variant decimal and the Arrow type that gives this decimal for every precision."""


def exact_schema(file: pq.ParquetFile, is_variant: Callable[[pa.DataType, Names], bool]) -> pa.Schema:
    """The file's Arrow schema, with decimals inside VARIANT groups in the width of their physical type.

    file: opened with `arrow_extensions_enabled=False`, because pyarrow's own reader of VARIANT groups fails for layouts that it
    does not know. is_variant: whether a group of this Arrow type and with these names is a VARIANT. Raises InvalidLayoutError.
    """
    columns = (file.schema.column(i) for i in range(len(file.schema)))

    def in_variant(kind: pa.DataType, names: Names) -> pa.DataType | None:
        return None if pa.types.is_nested(kind) else _typed_leaf(kind, names, next(columns))

    def anywhere(kind: pa.DataType, names: Names) -> pa.DataType | None:
        if is_variant(kind, names):
            return replaced(kind, names, in_variant)
        if pa.types.is_nested(kind):
            return None
        return pa.uuid() if next(columns).logical_type.type == "UUID" else kind

    fields = [field.with_type(replaced(field.type, (field.name,), anywhere)) for field in file.schema_arrow]
    return pa.schema(fields, file.schema_arrow.metadata)


def replaced(kind: pa.DataType, names: Names, replace: Callable[[pa.DataType, Names], pa.DataType | None]) -> pa.DataType:
    """A type with some types inside it replaced. `replace` returns the new type; None: look inside."""
    found = replace(kind, names)
    if found is not None:
        return found
    return nested.with_types(kind, [replaced(field.type, path, replace) for path, field in nested.children(kind, names)])


LARGE = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
"""The forms of strings and binaries that hold whatever their views hold."""


def schema_without_views(schema: pa.Schema) -> pa.Schema:
    """The schema with lists, strings and binaries in place of their views, from which pyarrow can neither take nor filter."""

    def plain(kind: pa.DataType, _names: Names) -> pa.DataType | None:
        return pa.string() if pa.types.is_string_view(kind) else pa.binary() if pa.types.is_binary_view(kind) else None

    return pa.schema([field.with_type(replaced(field.type, (field.name,), plain)) for field in schema], schema.metadata)


def with_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the types of a schema, whose columns it has in its order."""
    columns = [with_type(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def with_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array with another type, with lists in place of list views.

    What is inside is cast by itself: pyarrow's cast of a struct refuses nulls of a field that is declared non-nullable, also
    where the struct is null.
    """
    return _cast(buffers.without_views(array), kind)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if isinstance(array, pa.RunEndEncodedArray):
        return _cast(pc.run_end_decode(array), kind)
    if isinstance(array, pa.ExtensionArray) and nested.is_nested(kind):
        return _cast(array.storage, kind)
    if _same_form(array.type, kind):
        parts = zip(nested.arrays(array), nested.children(kind), strict=True)
        return nested.rebuilt(array, kind, [_cast(part, field.type) for part, (_, field) in parts])
    large = LARGE.get(array.type)
    if large is None:
        return array.cast(kind)
    try:
        return array.cast(large).cast(kind)  # pyarrow 26 casts views of more than 2 GiB to wrong offsets
    except pa.ArrowInvalid as error:
        raise UnsupportedFeatureError(f"a column takes more than 2 GiB in one batch: {error}") from error


def _same_form(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether two types differ only in what is inside, field by field."""
    if type(one) is not type(other) or not nested.is_nested(one) or one.num_fields != other.num_fields:
        return False
    if pa.types.is_struct(one):
        return all(field.name == twin.name for field, twin in zip(one, other, strict=True))
    return not pa.types.is_fixed_size_list(one) or bool(one.list_size == other.list_size)


def _typed_leaf(kind: pa.DataType, names: Names, column: Any) -> pa.DataType:
    """The exact type of a leaf of a VARIANT group."""
    physical, logical = column.physical_type, column.logical_type.type
    in_utc = logical == "TIME" and json.loads(column.logical_type.to_json())["isAdjustedToUTC"]
    if in_utc or logical not in _LOGICAL.get(physical, ()):
        parquet_type = physical if logical == "NONE" else f"{physical} {column.logical_type}"
        raise InvalidLayoutError(f"at {dotted(names)}: Variant has no type for a Parquet column of {parquet_type}")
    primitive = t.of_arrow(kind)
    if logical != "DECIMAL" or primitive is None:
        return kind
    decimal, make = _DECIMALS[physical]
    if kind.precision > t.DECIMAL_DIGITS[decimal]:
        raise InvalidLayoutError(
            f"at {dotted(names)}: a Parquet column of {physical} has room for {t.DECIMAL_DIGITS[decimal]} digits, not for "
            f"decimal({kind.precision},{kind.scale})"
        )
    return kind if primitive.id == decimal else make(kind.precision, kind.scale)
