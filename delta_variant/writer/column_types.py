"""The types of columns that `write` handles, and the parts of types: VARIANT and other leaves, and their paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as t

from delta_variant.errors import UnsupportedFeatureError
from delta_variant.paths import ELEMENT, MAP_KEY, MAP_VALUE

if TYPE_CHECKING:
    from collections.abc import Iterable

_ATOMIC = (
    t.BooleanType, t.ByteType, t.ShortType, t.IntegerType, t.LongType, t.FloatType, t.DoubleType, t.DecimalType, t.StringType,
    t.BinaryType, t.DateType, t.TimestampType, t.TimestampNTZType, t.VariantType,
)  # fmt: skip


def _children(data_type: t.DataType, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], t.DataType]]:
    """The types inside a type, and their paths as Parquet names them (`list`, `element`; `key_value`, `key`, `value`)."""
    if isinstance(data_type, t.StructType):
        return [((*path, field.name), field.dataType) for field in data_type]
    if isinstance(data_type, t.MapType):
        return [((*path, *MAP_KEY), data_type.keyType), ((*path, *MAP_VALUE), data_type.valueType)]
    return [((*path, *ELEMENT), data_type.elementType)] if isinstance(data_type, t.ArrayType) else []


def type_name(data_type: t.DataType) -> str:
    """The name of a type in messages: `BIGINT`."""
    return data_type.simpleString().upper()


def check_types(schema: t.StructType) -> None:
    """Raises UnsupportedFeatureError, with the column, for a type that `write` does not handle."""
    for path, data_type in leaves(schema):
        collated = isinstance(data_type, t.StringType) and data_type.collation not in (None, "UTF8_BINARY")
        if type(data_type) not in _ATOMIC or collated:
            raise UnsupportedFeatureError(
                f"column {'.'.join(path)} is {type_name(data_type)}, which delta_variant.write does not handle: cast or drop it"
            )


def leaves(data_type: t.DataType, path: tuple[str, ...] = ()) -> Iterable[tuple[tuple[str, ...], t.DataType]]:
    """The types without children, and their paths; nothing for a schema without columns."""
    children = _children(data_type, path)
    for own, inner in children:
        yield from leaves(inner, own)
    if path and not children:
        yield path, data_type
