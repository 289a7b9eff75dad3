"""The record batches that tasks get against those that Spark makes of the same rows, for every type of a Delta column."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark import RDD
from pyspark.serializers import NoOpSerializer
from pyspark.sql import types as t

from delta_variant import jvm, pairs
from delta_variant.writer import row_sources
from tests.support import length

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]

DAYS = st.dates(dt.date(1700, 1, 1), dt.date(2400, 1, 1))
TIMES = st.datetimes(dt.datetime(1971, 1, 1), dt.datetime(2400, 1, 1))
ATOMIC: list[tuple[t.DataType, st.SearchStrategy[Any]]] = [
    (t.BooleanType(), st.booleans()),
    *((kind, st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)) for kind, bits in
      ((t.ByteType(), 8), (t.ShortType(), 16), (t.IntegerType(), 32), (t.LongType(), 64))),
    (t.FloatType(), st.floats(width=32, allow_nan=False)),
    (t.DoubleType(), st.floats(allow_nan=False)),
    *((t.DecimalType(precision, scale), st.integers(-(10**precision) + 1, 10**precision - 1).map(
        lambda unscaled, scale=scale: Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))))
      for precision, scale in ((9, 2), (18, 0), (18, 18), (19, 3), (38, 10))),
    (t.StringType(), st.text(st.characters(codec="utf-8"), max_size=20)),
    (t.BinaryType(), st.binary(max_size=20)),
    (t.DateType(), DAYS),
    (t.TimestampType(), TIMES),
    (t.TimestampNTZType(), TIMES),
]  # fmt: skip


def nested(inner: st.SearchStrategy[tuple[t.DataType, Any]]) -> st.SearchStrategy[tuple[t.DataType, Any]]:
    """Types with a strategy for their values: an array, a map and a struct of what is within."""
    arrays = inner.map(lambda of: (t.ArrayType(of[0]), st.lists(st.none() | of[1], max_size=4)))
    maps = inner.map(lambda of: (t.MapType(t.IntegerType(), of[0]), st.dictionaries(st.integers(0, 9), st.none() | of[1])))
    structs = st.lists(inner, min_size=1, max_size=3).map(
        lambda fields: (
            t.StructType([t.StructField(f"f{at}", kind) for at, (kind, _) in enumerate(fields)]),
            st.tuples(*(st.none() | values for _, values in fields)),
        )
    )
    return arrays | maps | structs


COLUMNS = st.lists(st.recursive(st.sampled_from(ATOMIC), nested, max_leaves=4), min_size=1, max_size=8)


@st.composite
def frames(draw: st.DrawFn) -> tuple[t.StructType, list[tuple[Any, ...]]]:
    columns = draw(COLUMNS)
    schema = t.StructType([t.StructField(f"c{at}", kind) for at, (kind, _) in enumerate(columns)])
    return schema, draw(st.lists(st.tuples(*(st.none() | values for _, values in columns)), max_size=20))


def made(spark: SparkSession, df: DataFrame) -> list[pa.RecordBatch]:
    """The record batches that a write makes of the rows."""
    rows, location = df._jdf.queryExecution().toRdd(), jvm.scala_option(spark)
    batches = jvm.companion(spark, "WriteFiles").batches(spark._jsparkSession, rows, df._jdf.schema(), location)
    messages = RDD(batches.toJavaRDD(), spark.sparkContext, NoOpSerializer())
    return list(row_sources.received(iter(messages.map(bytes).collect()), pairs.arrow_schema(df.schema)))


def assert_equal(ours: list[pa.RecordBatch], df: DataFrame) -> None:
    theirs = df.toArrow()
    table = pa.Table.from_batches(ours, pairs.arrow_schema(df.schema))
    table.validate(full=True)
    assert table.cast(theirs.schema).equals(theirs)


@settings(
    max_examples=length("WRITER_BATCHES", 10, 60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(frame=frames())
def test_values_are_those_of_sparks_own_batches(spark: SparkSession, frame: tuple[t.StructType, list[tuple[Any, ...]]]) -> None:
    """Record batches have the values that Spark's own have, for any rows of any types but VARIANT."""
    schema, rows = frame
    df = spark.createDataFrame(rows, schema).coalesce(1)
    assert_equal(made(spark, df), df)


def test_variants_wherever_they_are(spark: SparkSession) -> None:
    """Record batches have the bytes of Variants at the top, in structs, in arrays and in maps, with nulls at each place."""
    df = spark.range(0, 3000, 1, 1).selectExpr(
        "if(id % 3 = 0, null, parse_json(concat('{\"a\": [', id, ', null]}'))) v",
        "if(id % 5 = 0, null, named_struct('v', if(id % 7 = 0, null, parse_json('1')), 'empty', '')) s",
        "if(id % 4 = 0, null, array(parse_json(string(id)), null, parse_json('{}'))) a",
        "map('k', parse_json(string(id)), string(id), null) m",
    )
    ours = pa.Table.from_batches(made(spark, df))
    ours.validate(full=True)
    assert ours.to_pylist(maps_as_pydicts="strict") == [_plain(row) for row in df.collect()]


def _plain(value: Any) -> Any:
    """A value of `collect` in the form of Arrow's."""
    if isinstance(value, t.VariantVal):
        return {"value": value.value, "metadata": value.metadata}
    if isinstance(value, t.Row):
        value = value.asDict()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def test_nan_and_negative_zero_stay_bit_for_bit(spark: SparkSession) -> None:
    """NaN and -0.0 have the bits that they have in Spark's own batches, for float and for double."""
    values = "if(id % 2 = 0, {0}('NaN'), {0}('-0.0')) {0}"
    df = spark.range(0, 100, 1, 1).selectExpr(values.format("float"), values.format("double"))
    [ours], theirs = made(spark, df), df.toArrow().combine_chunks()
    for name in df.columns:
        assert ours[name].buffers()[1].to_pybytes() == theirs[name].chunk(0).buffers()[1].to_pybytes()


def test_a_batch_ends_at_its_rows_or_its_bytes(spark: SparkSession) -> None:
    """A batch ends at 16,384 rows, or with the row by which it reaches 8 MiB; no rows give no batch."""
    narrow = made(spark, spark.range(0, 40000, 1, 1).toDF("id"))
    assert [batch.num_rows for batch in narrow] == [16384, 16384, 40000 - 2 * 16384]
    large = made(spark, spark.range(0, 20, 1, 1).selectExpr("id", "repeat('x', 3000000) text"))
    assert [batch.num_rows for batch in large] == [3, 3, 3, 3, 3, 3, 2]
    one = made(spark, spark.range(0, 3, 1, 1).selectExpr("id", "repeat('x', if(id = 1, 50000000, 1)) text"))
    assert [batch.num_rows for batch in one] == [2, 1]
    assert made(spark, spark.range(0, 0, 1, 1).toDF("id")) == []
