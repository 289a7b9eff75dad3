"""The rows of files that are written anew, in the order and in the tasks in which they are to be written.

In: the rows, the clustering keys, and the number of files to make. Out: the same rows, each task with those of one file.

One key: a task gets a range of the key's values. Several keys: a task gets a range of a Hilbert curve through the space of the
keys, each of which is divided into RANGES ranges of about as many rows; Delta's OPTIMIZE ZORDER BY has the expressions. The
bounds of ranges come from samples, for which Spark reads the keys alone.
"""

# ruff: noqa: SLF001 -- PySpark gives no public way to its JVM

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # what PySpark programs call it
from pyspark.sql import types as T

from delta_variant import jvm, pairs
from delta_variant.paths import quoted
from delta_variant.writer import clustering
from delta_variant.writer.blocks import BLOCK, FILE, KEY, PLACE, Sorting, sorted_blocks, unpacked

RANGES = 1000
"""Into how many ranges the values of each of several keys are divided."""
SAMPLED = "1000"
"""How many rows are sampled for each range: the sizes of files differ by about 3 %."""
_SAMPLE = "spark.sql.execution.rangeExchange.sampleSizePerPartition"
_POSITION = "delta_variant position"
_NESTED = (T.StructType, T.ArrayType)


def clustered(
    rows: DataFrame, schema: T.StructType, cluster_by: Sequence[str], partition_by: Sequence[str], files: int,
    placed: tuple[DataFrame, Sorting] | None = None,
) -> DataFrame:  # fmt: skip
    """The rows in `files` tasks, each with a range of the keys, sorted by them.

    schema: the columns of the table; `rows` may have more. partition_by: partition columns, which come before the keys. placed:
    the rows with their places (`Transaction.placed`), and how tasks sort them into blocks; None if Spark is to sort rows.
    """
    spark = rows.sparkSession
    keys = [[F.expr(text) for text in clustering.keys(schema, [key])] for key in cluster_by]
    partitions = [F.col(quoted(name)) for name in partition_by]
    position = keys[0] if len(keys) == 1 else [_hilbert(spark, [F.struct(*key) for key in keys])]
    named = [key.alias(f"{KEY}{number}") for number, key in enumerate(position)]
    columns = rows.columns
    if any(isinstance(field.dataType, _NESTED) for field in rows.select(*named).schema):
        placed = None  # pyarrow does not sort by them
    if placed is not None:
        rows, sorting = placed
    spark.conf.set(_SAMPLE, SAMPLED)
    rows = rows.withColumn(_POSITION, F.struct(*partitions, *named))
    if files > 1:
        rows = rows.withColumn(FILE, _range(spark, F.col(_POSITION), files))
    if placed is not None:
        return _merged(rows, schema, partition_by, files, sorting)
    rows = pairs.by_number(rows, files, F.col(quoted(FILE))) if files > 1 else rows.coalesce(1)
    return rows.sortWithinPartitions(*partitions, F.col(_POSITION)).select(*(quoted(name) for name in columns))


def _merged(rows: DataFrame, schema: T.StructType, partition_by: Sequence[str], files: int, sorting: Sorting) -> DataFrame:
    """The rows by way of sorted blocks."""
    position = rows.schema[_POSITION].dataType
    assert isinstance(position, T.StructType)
    keys = [F.col(f"{quoted(_POSITION)}.{quoted(name)}") for name in position.names if name.startswith(KEY)]
    file = F.col(quoted(FILE)) if files > 1 else F.lit(0).alias(FILE)
    read = [quoted(name) for name in schema.names if name not in sorting.variants]
    partitions = [schema[name] for name in partition_by]
    block = T.StructType([T.StructField(FILE, T.IntegerType()), T.StructField(BLOCK, T.BinaryType()), *partitions])
    made = rows.select(file, quoted(PLACE), *keys, *read).mapInArrow(partial(sorted_blocks, sorting), block)
    sent = pairs.by_number(made, files, F.col(quoted(FILE))).drop(FILE)
    columns = T.StructType([*(field for field in schema if field.name not in partition_by), *partitions])
    merged = sent.mapInArrow(partial(unpacked, pairs.arrow_schema(columns)), columns)
    return merged.select(*(quoted(name) for name in schema.names))


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
