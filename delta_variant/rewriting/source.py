"""The rows of files that are rewritten, in the order and in the tasks in which they are to be written.

In: the files, the clustering keys, and the number of files to make. Out: the rows, each task with those of one file. Tasks read
and sort them (`merged`), or Spark does (`clustered`).

One key: a task gets a range of the key's values. Several keys: a task gets a range of a Hilbert curve through the space of the
keys. Each key is divided into ranges of about as many rows. Where Spark sorts, Delta's OPTIMIZE ZORDER BY has the
expressions, and Spark samples the keys for the bounds of ranges.
"""

# ruff: noqa: SLF001 -- PySpark gives no public way to its JVM

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # what PySpark programs call it
from pyspark.sql import types as T

from delta_variant import jvm, pairs
from delta_variant.loading import in_tasks
from delta_variant.paths import quoted
from delta_variant.rewriting.sorting import PART_BYTES, Sorting, parts, sampled, sorted_blocks
from delta_variant.writer import clustering
from delta_variant.writer.blocks import BLOCK, FILE, KEY, unpacked

RANGES = 1000
"""Into how many ranges the values of each of several keys are divided."""
SAMPLED = 1000
"""How many rows are sampled for each range: the sizes of files differ by about 3 %."""
MOST_SAMPLED = 1_000_000
"""How many rows are sampled for all ranges."""
_SAMPLE = "spark.sql.execution.rangeExchange.sampleSizePerPartition"
_POSITION = "delta_variant position"


def merged(spark: SparkSession, sorting: Sorting, actions: Sequence[str], schema: T.StructType, files: int) -> DataFrame:
    """The rows of files in `files` tasks, each with a range of the keys, sorted by them by tasks (`sorting`).

    actions: the JSON of the Add actions of the files. schema: the columns of the table.
    """
    found = [part for action in actions for part in parts(action)]
    texts = pa.array([text for text, _ in found])
    rows = in_tasks(spark, {"part": texts}, [size for _, size in found], PART_BYTES)
    if files > 1 or len(sorting.keys) > 1:
        sorting = _with_ranges(sorting, rows, len(found), files)
    partitions = [schema[name] for name in sorting.partition_by]
    kind = T.StructType([T.StructField(FILE, T.IntegerType()), T.StructField(BLOCK, T.BinaryType()), *partitions])
    made = rows.mapInArrow(partial(sorted_blocks, sorting), kind)
    sent = pairs.by_number(made, files, F.col(quoted(FILE))).drop(FILE)
    columns = T.StructType([*(field for field in schema if field.name not in sorting.partition_by), *partitions])
    merged = sent.mapInArrow(partial(unpacked, pairs.arrow_schema(columns)), columns)
    return merged.select(*(quoted(name) for name in schema.names))


def _with_ranges(sorting: Sorting, parts: DataFrame, count: int, files: int) -> Sorting:
    """The sorting with the ends of ranges, for which tasks read a sample of the rows of so many parts."""
    most = min(SAMPLED * max(files, sorting.ranges_of_key), MOST_SAMPLED)
    task = partial(sampled, sorting.of_keys, max(1, most // count))
    found = parts.mapInArrow(task, T.StructType([T.StructField(BLOCK, T.BinaryType())])).collect()
    return sorting.with_ranges(pa.concat_tables([pa.ipc.open_stream(row[0]).read_all() for row in found]), files)


def clustered(
    rows: DataFrame, schema: T.StructType, cluster_by: Sequence[str], partition_by: Sequence[str], files: int
) -> DataFrame:
    """The rows in `files` tasks, each with a range of the keys, sorted by them by Spark.

    schema: the columns of the table; `rows` may have more. partition_by: partition columns, which come before the keys.
    """
    spark = rows.sparkSession
    keys = [[F.expr(text) for text in clustering.keys(schema, [key])] for key in cluster_by]
    partitions = [F.col(quoted(name)) for name in partition_by]
    position = keys[0] if len(keys) == 1 else [_hilbert(spark, [F.struct(*key) for key in keys])]
    named = [key.alias(f"{KEY}{number}") for number, key in enumerate(position)]
    columns = rows.columns
    spark.conf.set(_SAMPLE, str(SAMPLED))
    rows = rows.withColumn(_POSITION, F.struct(*partitions, *named))
    if files > 1:
        rows = rows.withColumn(FILE, _range(spark, F.col(_POSITION), files))
    rows = pairs.by_number(rows, files, F.col(quoted(FILE))) if files > 1 else rows.coalesce(1)
    return rows.sortWithinPartitions(*partitions, F.col(_POSITION)).select(*(quoted(name) for name in columns))


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
