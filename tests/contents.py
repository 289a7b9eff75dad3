"""What tables of Delta hold: their rows as text, and the files of VARIANT columns."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as t

from delta_variant import jvm
from delta_variant.paths import quoted


def canonical(df) -> Counter:
    """The rows as text: every VARIANT as its JSON and its schema, so that types count and the order of rows does not.

    Integers and decimals are one type, exact numerics.
    """
    return canonicals(df)[0]


def canonicals(*dfs: DataFrame) -> list[Counter]:
    """The rows of each DataFrame as `canonical` has them, asked as one query."""
    each = (df.select(F.lit(n), *texts(df)) for n, df in enumerate(dfs))
    rows = [tuple(row) for row in functools.reduce(DataFrame.unionAll, each).collect()]
    return [Counter(row[1:] for row in rows if row[0] == n) for n in range(len(dfs))]


def texts(df: DataFrame) -> list[Column]:
    columns = []
    for field in df.schema:
        column = F.col(quoted(field.name))
        if isinstance(field.dataType, t.VariantType):
            exact = F.regexp_replace(F.schema_of_variant(column), r"BIGINT|DECIMAL\(\d+,\d+\)", "EXACT")
            columns += [F.to_json(column), exact]
        elif isinstance(field.dataType, (t.StructType, t.ArrayType, t.MapType)):
            columns.append(F.to_json(column))
        else:
            columns.append(column.cast("string"))
    return columns


def read(spark, path):
    return spark.read.format("delta").load(str(path))


def vacuum(spark, path) -> None:
    few_tasks = {
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
    }
    with jvm.settings(spark, {"spark.databricks.delta.retentionDurationCheck.enabled": "false", **few_tasks}):
        spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")


def has_typed_value(path, add) -> bool:
    metadata = pq.ParquetFile(Path(path, unquote(add["path"]))).metadata.row_group(0)
    return any(".typed_value" in metadata.column(i).path_in_schema for i in range(metadata.num_columns))
