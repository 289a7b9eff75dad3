"""The bounds of a table's files put together, path by path: `VariantTable.summary`.

In: the rows of `VariantTable.stats`, and the number of files. Out: a DataFrame with a row for each path.

A look-up opens the files whose range holds the value, and the files without bounds. Only the ends of ranges are known to be
values of the path, so look-ups of these are counted. In the order of the ends, each lower end opens a range and each upper end
closes one. A running sum counts the open ranges. The median of these counts is the measure. A range without a lower end begins
before all others, and one without an upper end never closes.

Bounds are compared as rows are sorted (`writer.clustering.sort_key`): values that can be cast to DOUBLE by that number, all
others by their text. A path whose bounds are of several kinds has an order for each kind, and a look-up of one kind also opens
the files of the other kinds.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from delta_variant.writer.clustering import sort_key

_NUMBERS = "^(TINYINT|SMALLINT|INT|BIGINT|FLOAT|DOUBLE|DECIMAL.*)$"
_PATH = ("column", "path")
_STEPS = {"min": 1, "max": -1}
"""By how much an end of a range changes the number of open ranges."""


def summary(stats: DataFrame, files_total: int) -> DataFrame:
    """One row for each path, as `VariantTable.summary` says. stats: the rows of `VariantTable.stats`."""
    kind = F.when(F.col("type").rlike(_NUMBERS), F.lit("NUMBER")).otherwise(F.col("type"))
    rows = stats.withColumn("kind", kind)
    for side in ("min", "max"):
        rows = rows.withColumn(f"{side}_key", F.when(F.col(side).isNotNull(), F.struct(*_key(side))))
    whole = common_type(F.schema_of_variant_agg, F.col("min"), F.col("max"))
    several = F.array_join(F.array_sort(F.collect_set("type")), ", ")
    paths = rows.groupBy(*_PATH).agg(
        F.when(whole == "VARIANT", several).otherwise(whole).alias("type"),
        _whole("min", F.min_by("min", "min_key")),
        _whole("max", F.max_by("max", "max_key")),
        F.count_distinct("file").alias("files"),
    )
    total = F.lit(files_total).cast("bigint")
    opened = (F.ceil("open") + total - F.col("files")).alias("opened")
    found = paths.join(_open(rows), [*_PATH])
    return found.select(*_PATH, "type", "min", "max", "files", total.alias("files_total"), opened)


def common_type(of: Callable[[Column], Column], low: Column, high: Column) -> Column:
    """The type that both bounds fit; VARIANT if there is none. of: `schema_of_variant`, or its aggregate for many rows."""
    return F.regexp_extract(of(F.to_variant_object(F.array(low, high))), "^ARRAY<(.*)>$", 1)


def _key(side: str) -> list[Column]:
    """The sort key of the bounds in a column. Integers beyond the precision of a DOUBLE are compared exactly."""
    number, text = map(F.expr, sort_key(side))
    exact = F.when(number.isNotNull(), F.try_variant_get(side, "$", "decimal(38,0)"))
    return [number.alias("number"), exact.alias("exact"), F.when(number.isNull(), text).alias("text")]


def _whole(side: str, bound: Column) -> Column:
    """A bound of all files together, if each of them has one and they are of one kind."""
    return F.when((F.count_distinct("kind") == 1) & (F.count(side) == F.count("file")), bound).alias(side)


def _open(rows: DataFrame) -> DataFrame:
    """For each path, the median number of files with bounds that a look-up of an end of a range opens."""
    of_path, of_kind = Window.partitionBy(*_PATH), Window.partitionBy(*_PATH, "kind")
    rows = rows.withColumn("others", F.count("file").over(of_path) - F.count("file").over(of_kind))
    sides = F.array(*(F.struct(F.col(f"{side}_key").alias("key"), F.lit(step).alias("step")) for side, step in _STEPS.items()))
    ends = rows.select(*_PATH, "kind", "others", F.explode(sides).alias("end")).select(*_PATH, "kind", "others", "end.*")
    ends = ends.where(F.col("key").isNotNull() | (F.col("step") == 1))  # a lower end that is not known is before all others
    order = [F.col(f"key.{name}") for name in ("number", "exact", "text")]
    running = F.sum("step").over(
        Window.partitionBy(*_PATH, "kind").orderBy(F.col("key").isNotNull(), *order, F.col("step").desc())
    )
    ending = F.when(F.col("step") == -1, F.count("step").over(Window.partitionBy(*_PATH, "kind", *order, "step")))
    open_ = running + F.coalesce(ending, F.lit(0)) + F.col("others")  # ranges that end here hold the value too
    counted = ends.select(*_PATH, "key", open_.alias("open"))
    return counted.where(F.col("key").isNotNull()).groupBy(*_PATH).agg(F.percentile("open", F.lit(0.5)).alias("open"))
