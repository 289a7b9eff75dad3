"""The order of the rows of a write: which task gets a row, and where in the task it comes.

In: rows with their partition values in the last columns, and what `cluster_by=` names. Out: the same rows, those of one
partition together, and within a partition, where there are keys, rows of near keys together: ranges of keys go to the tasks in
turn, and each task sorts its own, so that every file covers a narrow range.

A key is a column, or a path of a VARIANT column, whose values may be of another type in every row: numbers, times and booleans
go by their value as a double, then everything by its text. Rows without the path, and nulls, come last.

Partitions alone are gathered by Spark's rebalancing: small ones share a task, and a large one gets a task for about as many
bytes as a file is to have. `delta.autoOptimize.optimizeWrite` = `false` turns that off; the rows then
stay in the task that they are in, which writes a file for every partition it has rows of.

Invariant: no row is lost or changed, and an error in a name comes before any row is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # what PySpark programs call it
from pyspark.sql import types as t

from delta_variant import paths
from delta_variant.errors import InvalidPathError, InvalidSchemaError
from delta_variant.writer.shapes import parse_name, rooted, split

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

_NO_ORDER = (t.VariantType, t.MapType)
_OPTIMIZE_WRITE = "delta.autoOptimize.optimizeWrite"


def keys(schema: t.StructType, cluster_by: Sequence[str]) -> list[Column]:
    """What rows are sorted by, over columns of that schema, the first key first.

    cluster_by: columns (`id`, `s.x`) and paths of VARIANT columns (`v:actor.id`, `s.w:$.ts`); a name with a dot, a colon or a
    backquote stands in backquotes. Raises InvalidSchemaError and InvalidPathError.
    """
    if isinstance(cluster_by, str):
        raise InvalidSchemaError(f"cluster_by={cluster_by!r} must be a list of columns: [{cluster_by!r}]")
    return [key for text in cluster_by for key in _keys(schema, text)]


def _keys(schema: t.StructType, text: str) -> list[Column]:
    name, path = split(text)
    column, kind = _column(schema, name, text)
    if path is None:
        if isinstance(kind, t.VariantType):
            raise InvalidSchemaError(f"cluster_by: {text} is VARIANT, which has no order: name a path in it, as in {text}:id")
        if isinstance(kind, _NO_ORDER):
            raise InvalidSchemaError(f"cluster_by: {text} is {kind.simpleString().upper()}, which has no order")
        return [column]
    if not isinstance(kind, t.VariantType):
        raise InvalidSchemaError(f"cluster_by: {name} is {kind.simpleString().upper()}, and only VARIANT columns have paths")
    path = rooted(path)
    try:
        paths.parse_variant_path(path)
    except InvalidPathError as error:
        raise InvalidPathError(f"cluster_by: {text}: {error}") from error
    value = F.try_variant_get(column, path, "variant")
    is_text = F.schema_of_variant(value) == "STRING"  # whose order is that of its bytes, also where it reads as a number
    return [F.when(~is_text, F.try_variant_get(column, path, "double")), F.try_variant_get(column, path, "string")]


def _column(schema: t.StructType, name: str, text: str) -> tuple[Column, t.DataType]:
    column: Any = None
    kind: t.DataType = schema
    for step in parse_name(name):
        fields = {field.name.lower(): field for field in kind} if isinstance(kind, t.StructType) else {}
        field = fields.get(step.lower())
        if field is None:
            raise InvalidSchemaError(
                f"cluster_by: {text}: there is no column {name}; the columns are {', '.join(schema.names)}"
            )
        column = F.col(paths.quoted(field.name)) if column is None else column.getField(field.name)
        kind = field.dataType
    return column, kind


def arranged(df: DataFrame, partitions: int, sort_keys: int, properties: Mapping[str, str]) -> DataFrame:
    """The rows in the order in which tasks take them, without the sort keys.

    df: its last columns are `partitions` partition values in text, then `sort_keys` of `keys`.
    """
    names = [*map(paths.quoted, df.columns)]
    data, keys = names[: len(names) - sort_keys], names[len(names) - sort_keys :]
    by = data[len(data) - partitions :]
    order = [*map(F.col, by), *(F.col(name).asc_nulls_last() for name in keys)]
    if keys:
        df = df.repartitionByRange(*order)
    elif by and properties.get(_OPTIMIZE_WRITE, "true").lower() != "false":
        df = df.hint("rebalance", *map(F.col, by))
    return df.sortWithinPartitions(*order).select(*data) if order else df
