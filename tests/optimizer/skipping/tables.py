"""Tables of events, in files that hold consecutive ids."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from delta_variant.stats import BOUNDS_TAG, BOUNDS_TAG_VALUE
from tests.support import deltas_own_files, forget

EVENT = """to_variant_object(named_struct(
    'id', id, 'small', cast(id as smallint), 'dec', cast(id + 0.25 as decimal(10,2)), 'd', cast(id as double),
    's', concat('k', lpad(cast(id as string), 3, '0')), 'day', date_add(date'2024-01-01', cast(id as int)),
    'ts', timestamp_micros(id * 1000001), 'ntz', cast(timestamp_micros(id * 1000001) as timestamp_ntz),
    'o', named_struct('x', -id)))"""


def create(spark, path, columns="id long, v variant", partition_by="", **properties):
    properties = {"delta.enableVariantShredding": "true", **properties}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    spark.sql(f"create table delta.`{path}` ({columns}) using delta {partition_by} tblproperties ({listed})")
    return str(path)


def events(spark, path, rows=50, files=5, **properties):
    """`rows` events in `files` files of delta-spark that hold consecutive ids, in one commit."""
    source = spark.range(0, rows, 1, files).selectExpr("id", f"{EVENT} v")
    properties = {"delta.enableVariantShredding": "true", **properties}
    with deltas_own_files(spark):
        source.write.format("delta").options(**properties).save(str(path))
    return str(path)


def copied(table, path):
    shutil.copytree(table, path)
    return str(path)


def json_files(spark, files) -> DataFrame:
    """The column v with a partition, which becomes a file, for each list of JSON texts; `file` has its number."""
    texts = spark.range(0, len(files), 1, len(files)).select(F.col("id").alias("file"), F.explode(F.lit(files)[F.col("id")]))
    return texts.selectExpr("file", "parse_json(col) v")


def append_json(spark, path, files):
    """One commit of delta-spark with a file for each list of JSON texts."""
    with deltas_own_files(spark):
        json_files(spark, files).select("v").write.format("delta").mode("append").save(str(path))


def mark(spark, path, values=(BOUNDS_TAG_VALUE,)):
    """Gives every Add action of the log the marker, which says that its bounds were computed from the values.

    values: of the marker, in the order of the files, and from the first one again.
    """
    value = itertools.cycle(values)
    for log in Path(path, "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                action["add"]["tags"] = {**(action["add"].get("tags") or {}), BOUNDS_TAG: next(value)}
        log.write_text("".join(json.dumps(action) + "\n" for action in actions))
        log.with_name(f".{log.name}.crc").unlink(missing_ok=True)
    forget(spark)
