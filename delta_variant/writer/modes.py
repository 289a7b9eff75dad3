"""Save modes: which files a write removes, and which rows it may add instead.

In: mode, `replace_where`, `partition_overwrite` and the table. Out: a `Removal`, or None for a write that only adds files.
Only whole files are removed, so a predicate may use partition columns only: it is then true for all rows of a file, or for
none.

Invariant: a removal that could not be complete is refused, by name, before anything is written.
"""

# ruff: noqa: SLF001 -- PySpark gives no public way to its JVM

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException

from delta_variant import jvm
from delta_variant.errors import InvalidSchemaError, UnsupportedFeatureError
from delta_variant.transaction import Removal, scala_object

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from delta_variant.features import TableFeatures

SAVE_MODES = {
    "append": "Append",
    "overwrite": "Overwrite",
    "error": "ErrorIfExists",
    "errorifexists": "ErrorIfExists",
    "ignore": "Ignore",
}
_DYNAMIC_BY_SESSION = "spark.sql.sources.partitionOverwriteMode"


def check_mode(mode: str, replace_where: str | None, partition_overwrite: str | None, *, overwrite_schema: bool) -> None:
    """UnsupportedFeatureError for a mode that is none, and for what only an overwrite can do."""
    if str(mode).lower() not in SAVE_MODES:
        raise UnsupportedFeatureError(f"mode={mode!r} is not one of {', '.join(SAVE_MODES)}")
    if partition_overwrite is not None and partition_overwrite.lower() not in ("static", "dynamic"):
        raise UnsupportedFeatureError(f"partition_overwrite={partition_overwrite!r} is not one of static, dynamic")
    given = {
        "replace_where": replace_where,
        "partition_overwrite": partition_overwrite,
        "overwrite_schema": overwrite_schema or None,
    }
    for name, value in given.items():
        if value is not None and mode.lower() != "overwrite":
            raise UnsupportedFeatureError(f"{name} says what an overwrite replaces: use it with mode='overwrite'")
    partial = {"replace_where": replace_where is not None, "partition_overwrite='dynamic'": _is_dynamic(partition_overwrite)}
    chosen = [name for name, is_chosen in {**partial, "overwrite_schema": overwrite_schema}.items() if is_chosen]
    if len(chosen) > 1:
        raise UnsupportedFeatureError(f"{' and '.join(chosen)} exclude each other: leave one out")


def removal(
    spark: SparkSession,
    features: TableFeatures,
    mode: str,
    replace_where: str | None,
    partition_overwrite: str | None,
    *,
    overwrite_schema: bool,
) -> Removal | None:
    """What a write in this mode removes from a table. Without `partition_overwrite` the session says, as for Spark's own
    writes. Raises UnsupportedFeatureError.
    """
    if mode.lower() != "overwrite":
        return None
    if replace_where is not None:
        return Removal(where=replace_where)
    dynamic = _is_dynamic(partition_overwrite or spark.conf.get(_DYNAMIC_BY_SESSION, None))
    if dynamic and overwrite_schema:
        raise UnsupportedFeatureError(
            f"overwrite_schema replaces all rows, and {_DYNAMIC_BY_SESSION} is dynamic: use partition_overwrite='static'"
        )
    return Removal(dynamic=dynamic and bool(features.partition_by))


def _is_dynamic(mode: str | None) -> bool:
    return (mode or "").lower() == "dynamic"


def check_predicate(rows: DataFrame, predicate: str, features: TableFeatures) -> None:
    """Raises InvalidSchemaError for a predicate that is none on the table's columns, `rows`, and UnsupportedFeatureError for
    one that needs more than the partition to be decided.
    """
    try:
        condition = rows.where(predicate)._jdf.queryExecution().analyzed().condition()
    except (AnalysisException, ParseException) as error:
        raise InvalidSchemaError(f"replace_where={predicate!r}: {error.getMessage() or error}") from error
    names = [attribute.name() for attribute in jvm.items(condition.references().toSeq())]
    others = [name for name in names if name.lower() not in [column.lower() for column in features.partition_by]]
    subqueries = scala_object(rows.sparkSession, "org.apache.spark.sql.catalyst.expressions.SubqueryExpression")
    if others or not condition.deterministic() or subqueries.hasSubquery(condition):
        reason = f"names {', '.join(others)}" if others else "has a subquery or differs from call to call"
        by = (
            f"the partition columns are {', '.join(features.partition_by)}"
            if features.partition_by
            else "it is not partitioned"
        )
        raise UnsupportedFeatureError(
            f"replace_where={predicate!r} {reason}, and delta_variant.write replaces whole partitions of {features.table} "
            f"({by}): DELETE the rows and append, or write with DataFrame.write.format('delta')"
        )
