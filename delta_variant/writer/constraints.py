"""Constraints and computed columns of a table, by Delta's own expressions.

In: rows that have the types of the table. Out: the same rows with default values and generated columns filled in, below a
node of Delta's. That node fails the job at the first row that violates a CHECK constraint, an invariant, the length of a
CHAR or VARCHAR, the expression of a generated column, or a check that the write adds (`replace_where`). NULL violates a
CHECK, as false does (PROTOCOL.md, "Column Invariants", "CHECK Constraints", "Generated Columns", "Default Columns").

NOT NULL is not checked here: tasks check the validity of whole columns, which costs nothing.

Invariant: the optimizer cannot move a check below an operator that drops rows, because it does not know Delta's node.
"""

# ruff: noqa: SLF001 -- PySpark gives no public way to its JVM

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import types as t

from delta_variant import jvm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructField, StructType

    from delta_variant.transaction import Transaction

_GENERATED = "delta.generationExpression"
_COMPUTED = ("CURRENT_DEFAULT", _GENERATED)
_DELTA = "org.apache.spark.sql.delta."
_CONSTRAINTS = _DELTA + "constraints."


def computed(schema: StructType) -> frozenset[str]:
    """The columns, in lower case, whose value the table computes if a write leaves them out."""
    return frozenset(field.name.lower() for field in schema if not field.metadata.keys().isdisjoint(_COMPUTED))


def users(transaction: Transaction, column: str) -> list[str]:
    """The CHECK constraints, invariants and generated columns whose expressions use a column, for messages."""
    parser = transaction.spark._jsparkSession.sessionState().sqlParser()
    with jvm.delta_errors("reading the constraints of the table"):
        expressions = [(f"the CHECK constraint {c.name()}", c.expression()) for c in known(transaction)]
        expressions += [
            (f"the generated column {field.name}", parser.parseExpression(field.metadata[_GENERATED]))
            for field in t.StructType.fromJson(dict(transaction.features.schema))
            if _GENERATED in field.metadata
        ]
        return [name for name, expression in expressions if column.lower() in _names(expression)]


def known(transaction: Transaction) -> list[Any]:
    """Delta's constraints of the table, NOT NULL aside."""
    functions = jvm.scala_object(transaction.spark, _CONSTRAINTS + "Constraints")
    found = functions.getAll(transaction.delta.metadata(), transaction.spark._jsparkSession)
    return [constraint for constraint in jvm.items(found) if constraint.getClass().getSimpleName() != "NotNull"]


def _names(expression: Any) -> set[str]:
    """The parts, in lower case, of the names of columns in an expression of the parser."""
    leaves = jvm.items(expression.collectLeaves())
    columns = [leaf for leaf in leaves if leaf.getClass().getSimpleName() == "UnresolvedAttribute"]
    return {part.lower() for column in columns for part in jvm.items(column.nameParts())}


def filled(df: DataFrame, transaction: Transaction, carried: Sequence[StructField]) -> tuple[DataFrame, list[Any]]:
    """Adds the computed columns that are missing. carried: columns of `df` that are not the table's, and are kept.

    Returns the rows, whose columns may be in any order, and constraints that check the generated columns that `df` has itself.
    """
    delta = transaction.delta
    defaults = jvm.scala_object(df.sparkSession, _DELTA + "ColumnWithDefaultExprUtils")
    schema = delta.metadata().schema()
    for field in carried:
        schema = schema.add(field.name, jvm.data_type(df.sparkSession, field.dataType))
    with jvm.delta_errors("computing default values and generated columns"):
        result = defaults.addDefaultExprsOrReturnConstraints(
            transaction.log, delta.protocol(), df._jdf.queryExecution(), schema, df._jdf, False
        )
    return DataFrame(result._1(), df.sparkSession), jvm.items(result._2())


def check(spark: SparkSession, name: str, predicate: str) -> Any:
    """A constraint that a write adds, under a name for messages: every row must satisfy the predicate, given in SQL."""
    expression = spark._jsparkSession.sessionState().sqlParser().parseExpression(predicate)
    return jvm.construct(spark, jvm.load_class(spark, _CONSTRAINTS + "Constraints$Check"), name, expression)


def checked(df: DataFrame, transaction: Transaction, further: Sequence[Any]) -> DataFrame:
    """The rows below a node that checks the table's constraints and the further ones; `df` itself if there are none.

    The session of `df` must be the write's own.
    """
    spark = df.sparkSession
    with jvm.delta_errors("reading the constraints of the table"):
        metadata, functions = transaction.delta.metadata(), jvm.scala_object(spark, _CONSTRAINTS + "Constraints")
        constraints = [*known(transaction), *further]
        if not constraints:
            return df
        every = jvm.scala_seq(spark, constraints)
        functions.validateCheckConstraints(spark._jsparkSession, every, transaction.log, metadata.schema())
        _add_strategy(spark)
        plan = df._jdf.queryExecution().analyzed()
        checks = jvm.scala_object(spark, _CONSTRAINTS + "DeltaInvariantCheckerExec").buildInvariantChecks(
            plan.output(), every, spark._jsparkSession
        )
        node = jvm.construct(spark, jvm.load_class(spark, _CONSTRAINTS + "DeltaInvariantChecker"), plan, checks)
        return jvm.data_frame(spark, node)


def _add_strategy(spark: SparkSession) -> None:
    """Lets the session plan Delta's node in a logical plan. Delta itself uses the node only in physical plans."""
    methods = spark._jsparkSession.experimental()
    strategy = jvm.scala_object(spark, _CONSTRAINTS + "DeltaInvariantCheckerStrategy")
    getattr(methods, "extraStrategies_$eq")(jvm.scala_seq(spark, [*jvm.items(methods.extraStrategies()), strategy]))
