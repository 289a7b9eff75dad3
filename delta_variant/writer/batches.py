"""The size of the batches in which Spark hands rows to Python.

In: the rows of a write. Out: rows and settings for one of two ways. To keep batches to a number of bytes, Spark adds up its
buffers after every row (`python -m benchmarks.write batches`). Batches of a number of rows spare it that; what is
then to keep them small is a count of our own. Where that goes over the limit, values are left out, a mark tells the task, and
the job runs again the other way. That way is taken at once where nobody knows how large values are (arrays, maps), and where
the session says how many bytes a batch has.

Invariant: the values without a fixed size take at most BATCH_BYTES of a batch and one row, or what the session says.
"""

# ruff: noqa: SLF001 -- PySpark gives no public way to its JVM

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # what PySpark programs call it
from pyspark.sql import types as t

from delta_variant import jvm
from delta_variant.paths import quoted
from delta_variant.transaction import java, scala_object
from delta_variant.writer.task import LARGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS, BATCH_BYTES = 1 << 14, 128 << 20
"""Of the rows a power of two."""
_ROWS, _BYTES = "spark.sql.execution.arrow.maxRecordsPerBatch", "spark.sql.execution.arrow.maxBytesPerBatch"
_UNLIMITED = str(2**31 - 1)  # the number with which Spark does not count
_SIZE = "__delta_variant_size"


def by_bytes(spark: SparkSession) -> dict[str, str]:
    """The settings for batches of the bytes that the session says, or else of 64 MiB."""
    return {_ROWS: "20000", _BYTES: spark.conf.get(_BYTES, None) or "64m"}


def by_rows(df: DataFrame) -> tuple[DataFrame, str, dict[str, str]] | None:
    """The rows up to BATCH_BYTES of each BATCH_ROWS, the column that has LARGE where a row was left out, and the settings.

    None where nobody knows how large values are, and where the session says how many bytes a batch has.
    """
    spark = df.sparkSession
    fields = {field.name: field.dataType for field in df.schema}
    marked = next((name for name, kind in fields.items() if isinstance(kind, (t.VariantType, t.StringType))), None)
    if spark.conf.get(_BYTES, None) is not None or marked is None:
        return None
    columns = {name: F.col(quoted(name)) for name in fields}
    try:
        lengths = {name: [*_lengths(spark, columns[name], kind)] for name, kind in fields.items()}
    except _UnknownError:
        return None
    size = reduce(add, (F.coalesce(length, F.lit(0)) for each in lengths.values() for length in each)).cast("bigint")
    is_small = F.col(_SIZE) <= BATCH_BYTES
    mark = F.parse_json(F.lit(f'"{LARGE}"')) if isinstance(fields[marked], t.VariantType) else F.lit(LARGE)
    kept = {name: F.when(is_small, columns[name]) if lengths[name] else columns[name] for name in fields}
    kept[marked] = kept[marked].otherwise(mark)
    rows = df.withColumn(_SIZE, _counter(spark, size)).select(*(column.alias(name) for name, column in kept.items()))
    return rows, marked, {_ROWS: str(BATCH_ROWS), _BYTES: _UNLIMITED}


class _UnknownError(Exception):
    pass


def _lengths(spark: SparkSession, column: Column, kind: t.DataType) -> Iterator[Column]:
    """The bytes of every value that has no fixed size."""
    if isinstance(kind, t.StructType):
        for field in kind:
            yield from _lengths(spark, column.getField(field.name), field.dataType)
    elif isinstance(kind, t.VariantType):
        for part in ("getValue", "getMetadata"):
            yield F.octet_length(_invoke(spark, _expression(spark, column), part, "BinaryType"))
    elif isinstance(kind, (t.StringType, t.BinaryType)):
        yield F.octet_length(column)
    elif not isinstance(kind, t.AtomicType):
        raise _UnknownError


def _counter(spark: SparkSession, size: Column) -> Column:
    """The bytes since the last row whose number in its task is a multiple of BATCH_ROWS, where Spark begins a batch.

    Every task has its own copy of the java.util.concurrent.atomic.AtomicLongArray in the plan, of one number.
    """
    numbers = java(spark).java.util.concurrent.atomic.AtomicLongArray(1)
    kind = java(spark).org.apache.spark.sql.types.ObjectType(numbers.getClass())
    literal = java(spark).org.apache.spark.sql.catalyst.expressions.Literal(numbers, kind)
    anew, more = (_invoke(spark, literal, method, "LongType", F.lit(0), size) for method in ("getAndSet", "addAndGet"))
    is_first = F.monotonically_increasing_id().bitwiseAND(BATCH_ROWS - 1) == 0
    return F.when(is_first, anew * 0 + size).otherwise(more)


def _invoke(spark: SparkSession, target: Any, method: str, returns: str, *arguments: Column) -> Column:
    """A method of an object of the JVM's as a column: SQL has no function for the bytes of a Variant, and none that counts."""
    invoke = java(spark).org.apache.spark.sql.catalyst.expressions.objects.Invoke
    kind = scala_object(spark, f"org.apache.spark.sql.types.{returns}")
    given = jvm.scala_seq(spark, [_expression(spark, argument) for argument in arguments])
    none = jvm.scala_seq(spark, [])
    utils = java(spark).org.apache.spark.sql.classic.ExpressionUtils
    return Column(utils.column(invoke(target, method, kind, given, none, True, True, not arguments)))


def _expression(spark: SparkSession, column: Column) -> Any:
    return java(spark).org.apache.spark.sql.classic.ExpressionUtils.expression(column._jc)
