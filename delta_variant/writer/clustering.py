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

    from delta_variant.messages import SortKey

CLUSTER_BY = "delta_variant.clusterBy"
"""The table property with the keys of `VariantTable.optimize`, separated by commas."""
_NO_ORDER = (t.VariantType, t.MapType)
_OPTIMIZE_WRITE = "delta.autoOptimize.optimizeWrite"
OPTIMIZE_WRITE_OF_SESSION = "spark.databricks.delta.optimizeWrite.enabled"


def keys(schema: t.StructType, cluster_by: Sequence[str]) -> list[Column]:
    """The expressions that rows are sorted by, the first key first; a path of a VARIANT column gives two of them.

    cluster_by: columns of the schema (`id`, `s.x`) and paths of VARIANT columns (`v:actor.id`, `s.w:$.ts`). A name with a dot,
    a colon or a backquote is written in backquotes. Raises InvalidSchemaError and InvalidPathError.
    """
    return [key for text in cluster_by for key in _keys(schema, text)]


def _keys(schema: t.StructType, text: str) -> list[Column]:
    try:
        names, path = paths.parse_column_path(text)
    except (InvalidPathError, InvalidSchemaError) as error:
        raise type(error)(f"cluster_by: {text}: {error}") from error
    column, data_type = _column(schema, names, text)
    if path is None:
        if isinstance(data_type, t.VariantType):
            raise InvalidSchemaError(f"cluster_by: {text} is VARIANT, which has no order: name a path in it, as in {text}:id")
        if not _has_order(data_type):
            raise InvalidSchemaError(f"cluster_by: {text} is {data_type.simpleString().upper()}, which has no order")
        return [column]
    if not isinstance(data_type, t.VariantType):
        raise InvalidSchemaError(
            f"cluster_by: {paths.dotted(names)} is {data_type.simpleString().upper()}, and only VARIANT columns have paths"
        )
    return sort_key(F.try_variant_get(column, path, "variant"))


def sort_key(value: Column) -> list[Column]:
    """What VARIANT values are sorted by: first a DOUBLE, then a STRING."""
    is_text = F.schema_of_variant(value) == "STRING"  # strings are sorted by their bytes, even if they look like numbers
    return [F.when(~is_text, F.try_variant_get(value, "$", "double")), F.try_variant_get(value, "$", "string")]


def _has_order(data_type: t.DataType) -> bool:
    """Whether Spark can sort by the type."""
    if isinstance(data_type, t.StructType):
        return all(_has_order(field.dataType) for field in data_type)
    if isinstance(data_type, t.ArrayType):
        return _has_order(data_type.elementType)
    return not isinstance(data_type, _NO_ORDER)


def _column(schema: t.StructType, names: paths.ColumnPath, text: str) -> tuple[Column, t.DataType]:
    column: Any = None
    data_type: t.DataType = schema
    for step in names:
        fields = {field.name.lower(): field for field in data_type} if isinstance(data_type, t.StructType) else {}
        field = fields.get(step.lower())
        if field is None:
            raise InvalidSchemaError(
                f"cluster_by: {text}: there is no column {paths.dotted(names)}; the columns are {', '.join(schema.names)}"
            )
        column = F.col(paths.quoted(field.name)) if column is None else column.getField(field.name)
        data_type = field.dataType
    return column, data_type


def rebalances(spark: SparkSession, properties: Mapping[str, str]) -> bool:
    """Whether Spark's rebalancing gathers the rows of a partition: by the session's setting, else the table's, else yes."""
    return (spark.conf.get(OPTIMIZE_WRITE_OF_SESSION, None) or properties.get(_OPTIMIZE_WRITE) or "true").lower() != "false"


@dataclass(frozen=True)
class Ordering:
    """The order that the user's rows already have within each task."""

    by_partition: bool
    """Whether the partition columns are the first keys, so that the rows of a partition are together."""
    keys: tuple[tuple[str, bool, bool], ...]
    """The other keys: a column of the table, whether it ascends, and whether nulls come first."""

    @classmethod
    def of(cls, source: DataFrame, ordering: Sequence[SortKey], schema: t.StructType, partition_by: Sequence[str]) -> Ordering:
        """The order of the rows of `source`, as far as the columns of the table keep it. ordering: the keys of `source`
        (`Transaction.ordering`)."""
        names = {field.name.lower(): field for field in schema}
        partition = {name.lower() for name in partition_by}
        given = [source.schema[key.column] for key in ordering]
        keys = []
        for field, key in zip(given, ordering, strict=True):
            name = field.name.lower()
            if name in partition:
                continue
            if name not in names or names[name].dataType != field.dataType:  # a cast may change the order
                break
            keys.append((names[name].name, key.ascending, key.nulls_first))
        first = {field.name.lower() for field in given[: len(partition)]}
        return cls(first == partition, tuple(keys))


def clustered(df: DataFrame, partitions: int, sort_keys: int) -> DataFrame:
    """Gives each task a range of the keys, sorts its rows by the partition values and the keys, and drops the keys.

    df: its last columns are `partitions` partition values as text, then `sort_keys` sort keys (`keys`).
    """
    data, keys = df.columns[: len(df.columns) - sort_keys], df.columns[len(df.columns) - sort_keys :]
    order = [*map(F.col, data[len(data) - partitions :]), *(F.col(name).asc_nulls_last() for name in keys)]
    return df.repartitionByRange(*order).sortWithinPartitions(*order).select(*data)


def partitioned(
    df: DataFrame, partitions: int, ordering: Ordering, aliases: Mapping[str, str], *, rebalance: bool
) -> DataFrame:
    """Brings the rows of a partition together in each task, and keeps the user's order of the rows within a partition.

    df: its last columns are `partitions` partition values as text. aliases: the names of columns in `df` by their names in the
    table. rebalance: whether Spark's rebalancing gathers the rows of a partition first.
    """
    if ordering.by_partition:
        return df
    by = [*map(F.col, df.columns[len(df.columns) - partitions :])]
    if rebalance:
        df = df.hint("rebalance", *by)
    return df.sortWithinPartitions(*by, *(_directed(F.col(aliases[name]), *how) for name, *how in ordering.keys))


def _directed(column: Column, ascending: bool, nulls_first: bool) -> Column:
    if ascending:
        return column.asc_nulls_first() if nulls_first else column.asc_nulls_last()
    return column.desc_nulls_first() if nulls_first else column.desc_nulls_last()
