"""The rows of files that are written anew, in the order and in the tasks in which they are to be written.

In: the rows, the clustering keys, and the number of files to make. Out: the same rows, each task with those of one file.

One key: a task gets a range of the key's values. Several keys: a task gets a range of a Hilbert curve through the space of the
keys, each of which is divided into RANGES ranges of about as many rows; Delta's OPTIMIZE ZORDER BY has the expressions. The
bounds of ranges come from samples, for which Spark reads the keys alone.
"""

# ruff: noqa: SLF001 -- PySpark gives no public way to its JVM

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # what PySpark programs call it
from pyspark.sql import types as t

from delta_variant import jvm, pairs
from delta_variant.paths import quoted
from delta_variant.writer import clustering

RANGES = 1000
"""Into how many ranges the values of each of several keys are divided."""
SAMPLED = "1000"
"""How many rows are sampled for each range: the sizes of files differ by about 3 %."""
_SAMPLE = "spark.sql.execution.rangeExchange.sampleSizePerPartition"
_ID, _POSITION = "delta_variant task", "delta_variant position"


def clustered(
    rows: DataFrame, schema: t.StructType, cluster_by: Sequence[str], partition_by: Sequence[str], files: int
) -> DataFrame:
    """The rows in `files` tasks, each with a range of the keys, sorted by them.

    schema: the columns of the table; `rows` may have more. partition_by: partition columns, which come before the keys.
    """
    spark = rows.sparkSession
    keys = [[F.expr(text) for text in clustering.keys(schema, [key])] for key in cluster_by]
    partitions = [F.col(quoted(name)) for name in partition_by]
    position = keys[0] if len(keys) == 1 else [_hilbert(spark, [F.struct(*key) for key in keys])]
    columns = rows.columns
    spark.conf.set(_SAMPLE, SAMPLED)
    placed = rows.withColumn(_POSITION, F.struct(*partitions, *position))
    order = [F.col(_POSITION)]
    if files > 1:
        placed = placed.withColumn(_ID, _range(spark, F.col(_POSITION), files))
        placed = pairs.by_number(placed, files, F.col(quoted(_ID)))
    else:
        placed = placed.coalesce(1)
    return placed.sortWithinPartitions(*partitions, *order).select(*(quoted(name) for name in columns))


def _range(spark: SparkSession, key: Column, ranges: int) -> Column:
    """The number of the range that a value lies in, of so many ranges with about as many rows."""
    functions = jvm.scala_object(spark, "org.apache.spark.sql.delta.skipping.MultiDimClusteringFunctions")
    return Column(functions.range_partition_id(key._jc, ranges))


def _hilbert(spark: SparkSession, keys: Sequence[Column]) -> Column:
    """The position on a Hilbert curve through the space of the keys."""
    hilbert = jvm.scala_object(spark, "org.apache.spark.sql.delta.skipping.HilbertClustering")
    return Column(hilbert.getClusteringExpression(jvm.scala_seq(spark, [key._jc for key in keys]), RANGES))


def packed(file_bytes: int) -> Mapping[str, str]:
    """The settings with which a task of a scan gets about so many bytes of files."""
    return {
        "spark.sql.files.maxPartitionBytes": str(file_bytes),
        "spark.sql.files.openCostInBytes": "0",
        "spark.sql.files.minPartitionNum": "1",
    }


def one_by_one() -> Mapping[str, str]:
    """The settings with which a task of a scan gets one file, the whole of it."""
    whole = str((1 << 62) - 1)
    return {
        "spark.sql.files.maxPartitionBytes": whole,
        "spark.sql.files.openCostInBytes": whole,
    }
