"""The codec compared with Spark's: files in both directions and JSON text, for generated Variants and shredding schemas."""

import datetime as dt
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delta_variant import binary, parquet, schema, shredding
from delta_variant.buffers import NO_FLAGS
from tests.binary import json_texts
from tests.strategies import SPARK_SCHEMAS, SPARK_VARIANTS, column, same, values
from tests.support import length

pytestmark = pytest.mark.spark

few = settings(
    max_examples=length("SPARK_CODEC_EXAMPLES", 6, 50),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
ROWS = st.lists(st.one_of(SPARK_VARIANTS, st.just("SQL NULL")), min_size=20, max_size=60)


def spark_values(df):
    """The Variants of column v, in the order of n."""
    rows = [row.v for row in df.orderBy("n").collect()]
    return ["SQL NULL" if v is None else binary.decode(bytes(v.metadata), bytes(v.value)) for v in rows]


def table(rows):
    return pa.table({"n": pa.array(range(len(rows)), pa.int64()), "v": column(rows)})


def assert_same(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert same(one, other)


def spark_can_read(as_type):
    """Spark does not read a shredded column whose root has no type."""
    return not pa.types.is_null(as_type)


def ddl(as_type):
    """Spark's name of a shredding schema."""
    if pa.types.is_struct(as_type):
        return f"struct<{','.join('`' + f.name.replace('`', '``') + '`:' + ddl(f.type) for f in as_type)}>"
    if pa.types.is_list(as_type):
        return f"array<{ddl(as_type.value_type)}>"
    if pa.types.is_decimal(as_type):
        return f"decimal({as_type.precision},{as_type.scale})"
    names = {
        pa.null(): "variant",
        pa.bool_(): "boolean",
        pa.int8(): "tinyint",
        pa.int16(): "smallint",
        pa.int32(): "int",
        pa.int64(): "bigint",
        pa.float32(): "float",
        pa.float64(): "double",
        pa.string(): "string",
        pa.binary(): "binary",
        pa.date32(): "date",
        pa.timestamp("us"): "timestamp_ntz",
        pa.timestamp("us", "UTC"): "timestamp",
    }
    return names[as_type]


@few
@given(rows=ROWS, as_type=SPARK_SCHEMAS.filter(spark_can_read))
def test_spark_reads_what_is_written_here(spark, tmp_path, rows, as_type):
    """A file shredded here, to any schema, reads with Spark as the Variants that went in."""
    path = str(tmp_path / "ours.parquet")
    parquet.write_table(table(rows), path, shred={"v": as_type})
    assert_same(spark_values(spark.read.parquet(path)), rows)


@few
@given(rows=ROWS)
def test_spark_reads_inferred_schemas(spark, tmp_path, rows):
    """A file shredded to the schema inferred from its rows reads with Spark as the Variants that went in."""
    path = str(tmp_path / "ours.parquet")
    parquet.write_table(table(rows), path, shred="auto")
    assert_same(spark_values(spark.read.parquet(path)), rows)


@few
@given(rows=ROWS, as_type=SPARK_SCHEMAS.filter(spark_can_read))
def test_what_spark_writes_is_read_here(spark, tmp_path, rows, as_type):
    """A file that Spark shredded, to any schema, reads here as Spark reads it, and as the Variants that went in."""
    plain, shredded = str(tmp_path / "plain.parquet"), str(tmp_path / "spark")
    parquet.write_table(table(rows), plain)
    confs = {
        "spark.sql.variant.writeShredding.enabled": "true",
        "spark.sql.variant.forceShreddingSchemaForTest": ddl(as_type),
    }
    for key, value in confs.items():
        spark.conf.set(key, value)
    try:
        spark.read.parquet(plain).coalesce(1).write.mode("overwrite").parquet(shredded)
    finally:
        for key in confs:
            spark.conf.unset(key)
    (file,) = (tmp_path / "spark").glob("*.parquet")
    read = parquet.read_table(file)
    assert read.column_names == ["n", "v"]
    assert_same(values(read["v"].combine_chunks()), rows)
    assert_same(spark_values(spark.read.parquet(shredded)), rows)
    stored = pq.read_schema(file).field("v").type
    assert "typed_value" in [stored.field(i).name for i in range(stored.num_fields)]


def spark_json(spark, path, array):
    """Spark's to_json of a VARIANT column."""
    parquet.write_table(pa.table({"n": pa.array(range(len(array)), pa.int64()), "v": array}), path)
    return [row.json for row in spark.read.parquet(path).orderBy("n").selectExpr("to_json(v) AS json").collect()]


@few
@given(rows=st.lists(SPARK_VARIANTS, min_size=20, max_size=60))
def test_json_is_spark_s(spark, tmp_path, rows):
    """to_json gives the text of Spark's to_json, except for floats of which Java 17 prints more digits than needed."""
    array = column(rows)
    ours = binary.json_column(array.field("metadata"), array.field("value"), NO_FLAGS).to_pylist()
    for theirs, text in zip(spark_json(spark, str(tmp_path / "plain.parquet"), array), ours, strict=True):
        if theirs != text:
            with np.errstate(over="ignore"):
                assert json.loads(theirs, parse_float=np.float32) == json.loads(text, parse_float=np.float32)


def test_json_of_every_form_is_spark_s(spark, tmp_path):
    """to_json gives the text of Spark's to_json for the values in json_texts' tables, as far as Spark has their types."""
    tables = [value for value, _ in json_texts.SCALARS + json_texts.FLOATS]
    encoded = [binary.encode(value) for value in tables if not isinstance(value, (pd.Timestamp, dt.time))]
    encoded += [(b"\x01\x00", json_texts.payload(11, 4, days)) for days, _ in json_texts.YEARS]
    encoded += [(b"\x01\x00", json_texts.payload(kind, 8, micros)) for micros, _ in json_texts.INSTANTS for kind in (12, 13)]
    encoded += [binary.encode(one) for c in range(0x180) for one in (chr(c), {f"a{chr(c)}b": chr(c) * 9})]
    metadata, value = (pa.array(parts, pa.binary()) for parts in zip(*encoded, strict=True))
    array = pa.StructArray.from_arrays([metadata, value], fields=list(shredding.UNSHREDDED))
    ours = binary.json_column(metadata, value, NO_FLAGS).to_pylist()
    assert spark_json(spark, str(tmp_path / "plain.parquet"), array) == ours


def test_every_scalar_shreds_as_itself(spark, tmp_path):
    """All values of every primitive that Spark knows, extremes included, are typed here and read by Spark."""
    import datetime as dt
    from decimal import Decimal

    cases = {
        "boolean": [True, False],
        "bigint": [2**63 - 1, -(2**63), 0],
        "decimal(38,10)": [Decimal("9999999999999999999999999999.9999999999"), Decimal("-0.0000000001")],
        "decimal(18,9)": [Decimal("999999999.999999999"), Decimal("-999999999.999999999")],
        "decimal(9,0)": [999999999, -999999999],
        "float": [np.float32(3.4e38), np.float32("-inf"), np.float32("nan"), np.float32(-0.0)],
        "double": [1.7e308, float("nan"), -0.0, float("inf")],
        "date": [dt.date.min, dt.date.max, dt.date(1582, 10, 4)],
        "timestamp": [dt.datetime.min.replace(tzinfo=dt.timezone.utc), dt.datetime.max.replace(tzinfo=dt.timezone.utc)],
        "timestamp_ntz": [dt.datetime.min, dt.datetime.max],
        "string": ["", "é" * 5000, "\0"],
        "binary": [b"", b"\xff" * 5000],
    }
    for n, (type_, rows) in enumerate(cases.items()):
        path = str(tmp_path / f"{n}.parquet")
        array = shredding.shred(column(rows), schema.parse(type_))
        assert array.field("value").null_count == len(rows), type_
        parquet.write_table(pa.table({"n": range(len(rows)), "v": array}), path)
        assert_same(spark_values(spark.read.parquet(path)), rows)
