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
from delta_variant.transaction import Removal
from delta_variant.writer.arguments import DYNAMIC_BY_SESSION, Request

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from delta_variant.features import TableFeatures


def removal(features: TableFeatures, request: Request) -> Removal | None:
    """What a write removes from a table; None for a write that only adds files.

    Raises UnsupportedFeatureError if the session's setting makes an overwrite dynamic that replaces the schema.
    """
    if request.save_mode != "Overwrite":
        return request.removal
    if request.replace_where is not None:
        return Removal(where=request.replace_where)
    if request.dynamic and request.overwrite_schema:
        raise UnsupportedFeatureError(
            f"overwrite_schema replaces all rows, and {DYNAMIC_BY_SESSION} is dynamic: use partition_overwrite='static'"
        )
    return Removal(dynamic=request.dynamic and bool(features.partition_by))


def check_predicate(rows: DataFrame, predicate: str, features: TableFeatures) -> None:
    """Checks the predicate of `replace_where`. rows: a DataFrame with the columns of the table.

    Raises InvalidSchemaError if the text is not a predicate on these columns, and UnsupportedFeatureError if the partition
    columns alone do not decide it.
    """
    try:
        condition = rows.where(predicate)._jdf.queryExecution().analyzed().condition()
    except (AnalysisException, ParseException) as error:
        raise InvalidSchemaError(f"replace_where={predicate!r}: {error.getMessage() or error}") from error
    names = [attribute.name() for attribute in jvm.items(condition.references().toSeq())]
    others = [name for name in names if name.lower() not in [column.lower() for column in features.partition_by]]
    subqueries = jvm.scala_object(rows.sparkSession, "org.apache.spark.sql.catalyst.expressions.SubqueryExpression")
    if others or not condition.deterministic() or subqueries.hasSubquery(condition):
        reason = f"names {', '.join(others)}" if others else "has a subquery or differs from call to call"
        partitioning = (
            f"the partition columns are {', '.join(features.partition_by)}"
            if features.partition_by
            else "it is not partitioned"
        )
        raise UnsupportedFeatureError(
            f"replace_where={predicate!r} {reason}, and delta_variant.write replaces whole partitions of {features.table} "
            f"({partitioning}): DELETE the rows and append, or write with DataFrame.write.format('delta')"
        )
