"""The types of columns that `write` handles, and the parts of types: VARIANT and other leaves, and their paths."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import types as T

from delta_variant.errors import UnsupportedFeatureError
from delta_variant.paths import ELEMENT, MAP_KEY, MAP_VALUE, dotted

_ATOMIC = (
    T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType, T.DecimalType, T.StringType,
    T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType, T.VariantType,
)  # fmt: skip


def _children(data_type: T.DataType, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], T.DataType]]:
    """The types inside a type, and their paths as Parquet names them (`list`, `element`; `key_value`, `key`, `value`)."""
    if isinstance(data_type, T.StructType):
        return [((*path, field.name), field.dataType) for field in data_type]
    if isinstance(data_type, T.MapType):
        return [((*path, *MAP_KEY), data_type.keyType), ((*path, *MAP_VALUE), data_type.valueType)]
    return [((*path, *ELEMENT), data_type.elementType)] if isinstance(data_type, T.ArrayType) else []


def type_name(data_type: T.DataType) -> str:
    """The name of a type in messages: `BIGINT`."""
    return data_type.simpleString().upper()


def check_types(schema: T.StructType) -> None:
    """Raises UnsupportedFeatureError, with the column, for a type that `write` does not handle."""
    for path, data_type in leaves(schema):
        collated = isinstance(data_type, T.StringType) and data_type.collation not in (None, "UTF8_BINARY")
        if type(data_type) not in _ATOMIC or collated:
            raise UnsupportedFeatureError(
                f"column {dotted(path)} is {type_name(data_type)}, which delta_variant.write does not handle: cast or drop it"
            )


def leaves(data_type: T.DataType, path: tuple[str, ...] = ()) -> Iterable[tuple[tuple[str, ...], T.DataType]]:
    """The types without children, and their paths; nothing for a schema without columns."""
    children = _children(data_type, path)
    for own, inner in children:
        yield from leaves(inner, own)
    if path and not children:
        yield path, data_type
