"""The order of the rows of a write: which task gets a row, and at which position.

In: rows with their partition values in the last columns, and the argument `cluster_by=`. Out: the same rows. Rows of one
partition are together. With `cluster_by`, rows with similar keys are together too: each task gets a range of the keys and
sorts its rows, so that every file covers a narrow range.

A key is a column, or a path of a VARIANT column, whose values may have different types in different rows: numbers, times
and booleans are sorted by their value as a double, then all others by their text. Rows without the path, and nulls, come
last.

Without keys, the rows of a partitioned table are gathered by Spark's rebalancing: small partitions share a task, and a
large one gets a task for about as many bytes as a file is to have. `spark.databricks.delta.optimizeWrite.enabled` or
`delta.autoOptimize.optimizeWrite` = `false` turn that off; each task then writes a file for every partition that it has
rows of. Rows that the user has sorted keep that order within their partition, and rows sorted by partition are not moved.

Invariant: no row is lost or changed, and errors in names are raised before any row is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # what PySpark programs call it
from pyspark.sql import types as t

from delta_variant import paths
from delta_variant.errors import InvalidPathError, InvalidSchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

_NO_ORDER = (t.VariantType, t.MapType)
_OPTIMIZE_WRITE = "delta.autoOptimize.optimizeWrite"
_OPTIMIZE_WRITE_OF_SESSION = "spark.databricks.delta.optimizeWrite.enabled"


def keys(schema: t.StructType, cluster_by: Sequence[str]) -> list[Column]:
    """What rows are sorted by, over columns of that schema, the first key first.

    cluster_by: columns (`id`, `s.x`) and paths of VARIANT columns (`v:actor.id`, `s.w:$.ts`); a name with a dot, a colon or a
    backquote stands in backquotes. Raises InvalidSchemaError and InvalidPathError.
    """
    if isinstance(cluster_by, str):
        raise InvalidSchemaError(f"cluster_by={cluster_by!r} must be a list of columns: [{cluster_by!r}]")
    return [key for text in cluster_by for key in _keys(schema, text)]


def _keys(schema: t.StructType, text: str) -> list[Column]:
    try:
        names, path = paths.parse_column_path(text)
    except (InvalidPathError, InvalidSchemaError) as error:
        raise type(error)(f"cluster_by: {text}: {error}") from error
    column, kind = _column(schema, names, text)
    if path is None:
        if isinstance(kind, t.VariantType):
            raise InvalidSchemaError(f"cluster_by: {text} is VARIANT, which has no order: name a path in it, as in {text}:id")
        if isinstance(kind, _NO_ORDER):
            raise InvalidSchemaError(f"cluster_by: {text} is {kind.simpleString().upper()}, which has no order")
        return [column]
    if not isinstance(kind, t.VariantType):
        raise InvalidSchemaError(
            f"cluster_by: {paths.dotted(names)} is {kind.simpleString().upper()}, and only VARIANT columns have paths"
        )
    value = F.try_variant_get(column, path, "variant")
    is_text = F.schema_of_variant(value) == "STRING"  # whose order is that of its bytes, also where it reads as a number
    return [F.when(~is_text, F.try_variant_get(column, path, "double")), F.try_variant_get(column, path, "string")]


def _column(schema: t.StructType, names: paths.ColumnPath, text: str) -> tuple[Column, t.DataType]:
    column: Any = None
    kind: t.DataType = schema
    for step in names:
        fields = {field.name.lower(): field for field in kind} if isinstance(kind, t.StructType) else {}
        field = fields.get(step.lower())
        if field is None:
            raise InvalidSchemaError(
                f"cluster_by: {text}: there is no column {paths.dotted(names)}; the columns are {', '.join(schema.names)}"
            )
        column = F.col(paths.quoted(field.name)) if column is None else column.getField(field.name)
        kind = field.dataType
    return column, kind


def rebalances(spark: SparkSession, properties: Mapping[str, str]) -> bool:
    """Whether the rows of a partition are gathered: what the session says, else the table, else yes."""
    return (spark.conf.get(_OPTIMIZE_WRITE_OF_SESSION, None) or properties.get(_OPTIMIZE_WRITE) or "true").lower() != "false"


@dataclass(frozen=True)
class Ordering:
    """How the rows of a user come sorted, within each of their tasks."""

    by_partition: bool
    """Whether the partition columns are the first keys, so that the rows of a partition are together."""
    keys: tuple[tuple[str, bool, bool], ...]
    """The other keys: a column of the table, whether it ascends, and whether nulls come first."""

    @classmethod
    def of(
        cls, source: DataFrame, ordering: Sequence[tuple[int, bool, bool]], schema: t.StructType, partition_by: Sequence[str]
    ) -> Ordering:
        """From the numbers of columns of `source` (`Transaction.ordering`), as far as the table's columns keep that order."""
        names = {field.name.lower(): field for field in schema}
        partition = {name.lower() for name in partition_by}
        given = [source.schema[at] for at, _, _ in ordering]
        keys = []
        for field, (_, ascending, nulls_first) in zip(given, ordering, strict=True):
            name = field.name.lower()
            if name in partition:
                continue
            if name not in names or names[name].dataType != field.dataType:  # a cast may change the order
                break
            keys.append((names[name].name, ascending, nulls_first))
        first = {field.name.lower() for field in given[: len(partition)]}
        return cls(first == partition, tuple(keys))


def clustered(df: DataFrame, partitions: int, sort_keys: int) -> DataFrame:
    """The rows of a write with keys, in the order in which tasks take them, without the keys.

    df: its last columns are `partitions` partition values in text, then `sort_keys` of `keys`.
    """
    data, keys = df.columns[: len(df.columns) - sort_keys], df.columns[len(df.columns) - sort_keys :]
    order = [*map(F.col, data[len(data) - partitions :]), *(F.col(name).asc_nulls_last() for name in keys)]
    return df.repartitionByRange(*order).sortWithinPartitions(*order).select(*data)


def partitioned(df: DataFrame, partitions: int, ordering: Ordering, places: Mapping[str, str], *, rebalance: bool) -> DataFrame:
    """The rows of a partitioned table, in the order in which tasks take them.

    df: its last columns are `partitions` partition values in text. places: the columns of `df` by those of the table.
    rebalance: whether the rows of a partition are gathered.
    """
    if ordering.by_partition:
        return df
    by = [*map(F.col, df.columns[len(df.columns) - partitions :])]
    if rebalance:
        df = df.hint("rebalance", *by)
    return df.sortWithinPartitions(*by, *(_directed(F.col(places[name]), *how) for name, *how in ordering.keys))


def _directed(column: Column, ascending: bool, nulls_first: bool) -> Column:
    if ascending:
        return column.asc_nulls_first() if nulls_first else column.asc_nulls_last()
    return column.desc_nulls_first() if nulls_first else column.desc_nulls_last()
