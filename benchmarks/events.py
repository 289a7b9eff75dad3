"""The data that benchmarks share: synthetic events of some 350 bytes of JSON, and a session with Delta."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import delta_variant as dv

EVENT = """to_json(named_struct(
  'ts', timestamp_micros(1700000000000000 + id * 1000000), 'id', id, 'type', concat('Event', id % 17),
  'actor', named_struct('id', id * 7919 % 1000003, 'login', concat('user', id * 7919 % 1000003)),
  'repo', named_struct('id', id * 31 % 50021, 'name', concat('org/', 'repo', id * 31 % 50021)),
  'public', id % 10 != 0, 'score', cast(id * 0.37 as double), 'amount', cast(id * 0.01 as decimal(18, 2)),
  'payload', named_struct('size', id % 100, 'ref', concat('refs/heads/b', id % 300),
    'commits', array(named_struct('sha', md5(cast(id as string)), 'n', id % 3)))))"""
"""One JSON text per `id`: 15 leaves, one of them in an array of objects."""


def session(**settings: str) -> SparkSession:
    """Two cores, zstd for everybody, bounds on for delta-spark as well."""
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "8g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.parquet.compression.codec", "zstd")
    )
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = dv.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    dv.enable(spark)
    return spark


def events(spark: SparkSession, rows: int, partitions: int = 2) -> DataFrame:
    """Columns id and v, in the order of id."""
    return spark.range(0, rows, 1, partitions).select("id", F.parse_json(F.expr(EVENT)).alias("v"))
