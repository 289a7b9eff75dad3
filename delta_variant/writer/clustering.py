"""The keys by which the rows of a write are sorted: columns and paths, as SQL expressions.

A key is a column, or a path of a VARIANT column, whose values may have different types in different rows: numbers, times
and booleans are sorted by their value as a double, then all others by their text. Rows without the path, and nulls, come
last. `scala/Clustering.scala` gives each task a range of the keys.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import types as T

from delta_variant import paths
from delta_variant.errors import InvalidPathError, InvalidSchemaError

CLUSTER_BY_PROPERTY = "delta_variant.clusterBy"
"""The table property with the keys of `VariantTable.optimize`, separated by commas."""
_NO_ORDER = (T.VariantType, T.MapType)


def keys(schema: T.StructType, cluster_by: Sequence[str]) -> list[str]:
    """The SQL expressions that rows are sorted by, the first key first; a path of a VARIANT column gives two of them.

    cluster_by: columns of the schema (`id`, `s.x`) and paths of VARIANT columns (`v:actor.id`, `s.w:$.ts`). A name with a dot,
    a colon or a backquote is written in backquotes. Raises InvalidSchemaError and InvalidPathError.
    """
    return [key for text in cluster_by for key in _keys(schema, text)]


def _keys(schema: T.StructType, text: str) -> list[str]:
    try:
        names, path = paths.parse_column_path(text)
    except (InvalidPathError, InvalidSchemaError) as error:
        raise type(error)(f"cluster_by: {text}: {error}") from error
    column, data_type = _column(schema, names, text)
    if path is None:
        if isinstance(data_type, T.VariantType):
            raise InvalidSchemaError(f"cluster_by: {text} is VARIANT, which has no order: name a path in it, as in {text}:id")
        if not _has_order(data_type):
            raise InvalidSchemaError(f"cluster_by: {text} is {data_type.simpleString().upper()}, which has no order")
        return [column]
    if not isinstance(data_type, T.VariantType):
        raise InvalidSchemaError(
            f"cluster_by: {paths.dotted(names)} is {data_type.simpleString().upper()}, and only VARIANT columns have paths"
        )
    return sort_key(f"try_variant_get({column}, {paths.literal(path)}, 'variant')")


def sort_key(value: str) -> list[str]:
    """What VARIANT values are sorted by: first a DOUBLE, then a STRING. value: as a SQL expression, like the result."""
    is_text = f"schema_of_variant({value}) = 'STRING'"  # strings are sorted by their bytes, even if they look like numbers
    number = f"CASE WHEN NOT ({is_text}) THEN try_variant_get({value}, '$', 'double') END"
    return [number, f"try_variant_get({value}, '$', 'string')"]


def _has_order(data_type: T.DataType) -> bool:
    """Whether Spark can sort by the type."""
    if isinstance(data_type, T.StructType):
        return all(_has_order(field.dataType) for field in data_type)
    if isinstance(data_type, T.ArrayType):
        return _has_order(data_type.elementType)
    return not isinstance(data_type, _NO_ORDER)


def _column(schema: T.StructType, names: paths.ColumnPath, text: str) -> tuple[str, T.DataType]:
    found: list[str] = []
    data_type: T.DataType = schema
    for step in names:
        fields = {field.name.lower(): field for field in data_type} if isinstance(data_type, T.StructType) else {}
        field = fields.get(step.lower())
        if field is None:
            raise InvalidSchemaError(
                f"cluster_by: {text}: there is no column {paths.dotted(names)}; the columns are {', '.join(schema.names)}"
            )
        found.append(paths.quoted(field.name))
        data_type = field.dataType
    return ".".join(found), data_type
