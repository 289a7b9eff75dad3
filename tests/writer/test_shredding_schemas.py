"""Shredding schemas of a write: given, stored, inferred; VARIANTs in structs; values Spark cannot read; bounds chosen first."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as t

from delta_variant import shredding
from delta_variant.errors import InvalidPathError, InvalidSchemaError, UnsupportedFeatureError
from delta_variant.parquet import read_table
from delta_variant.schema.of_files import Inference
from delta_variant.stats import decode_bounds
from delta_variant.writer import shredding_schemas
from tests import tasks
from tests.strategies import column, values

SCHEMA = t.StructType([
    t.StructField("id", t.LongType()),
    t.StructField("v", t.VariantType()),
    t.StructField("Odd.Name", t.VariantType()),
    t.StructField("s", t.StructType([
        t.StructField("w", t.VariantType()),
        t.StructField("deep", t.StructType([t.StructField("x y", t.VariantType())])),
    ])),
    t.StructField("a", t.ArrayType(t.VariantType())),
])  # fmt: skip


def test_the_users_schema_goes_before_the_stored_one():
    """Schemas come from `shred`, then from properties, without regard to case; properties of other columns are ignored."""
    properties = {
        "delta_variant.shredding.V": "a int", "delta_variant.shredding.s.W": "b string",
        "delta_variant.shredding.gone": "a int", "delta_variant.shredding.id": "a int", "delta.appendOnly": "false",
    }  # fmt: skip
    stored = {("v",): pa.struct([("a", pa.int32())]), ("s", "w"): pa.struct([("b", pa.string())])}
    assert shredding_schemas.given("auto", SCHEMA, properties) == stored
    assert shredding_schemas.given(False, SCHEMA, properties) == {}
    given = {"S.DEEP.`x y`": "c int", "`odd.name`": pa.struct([("d", pa.int8())]), "v": "e date"}
    assert shredding_schemas.given(given, SCHEMA, properties) == {
        ("v",): pa.struct([("e", pa.date32())]), ("s", "w"): stored["s", "w"],
        ("s", "deep", "x y"): pa.struct([("c", pa.int32())]), ("Odd.Name",): pa.struct([("d", pa.int8())]),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("shred", "properties", "error", "message"),
    [
        ({"id": "int"}, {}, InvalidSchemaError, "shred: id is BIGINT; the VARIANT columns"),
        ({"s": "int"}, {}, InvalidSchemaError, "shred: s is STRUCT<.*; the VARIANT columns"),
        ({"a": "int"}, {}, InvalidSchemaError, "shred: a is ARRAY<VARIANT>"),
        ({"w": "int"}, {}, InvalidSchemaError, "shred: there is no column w; "),
        ({"Odd.Name": "int"}, {}, InvalidSchemaError, r"no column Odd\.Name; .* are v, `Odd\.Name`, s\.w, s\.deep\.`x y`$"),
        ({"s.w": "a strng"}, {}, InvalidSchemaError, r"shred: column s\.w: .*a type that can be shredded"),
        ({"s.w": "a uuid"}, {}, UnsupportedFeatureError, r"s\.w\.a is fixed_size_binary\[16\], which Spark cannot read"),
        ("auto", {"shredding.v": "a array<time>"}, UnsupportedFeatureError, r"shredding.v: v\.a\[\*\] is time"),
        ("auto", {"shredding.v": "a strng"}, InvalidSchemaError, "table property delta_variant.shredding.v: column v: "),
        ("always", {}, InvalidSchemaError, "must be 'auto', False, or a mapping"),
    ],
)  # fmt: skip
def test_schemas_refused(shred, properties, error, message):
    """A wrong column, invalid text, or a type that Spark cannot read is one error that names its origin."""
    with pytest.raises(error, match=message):
        shredding_schemas.given(shred, SCHEMA, {f"delta_variant.{key}": value for key, value in properties.items()})


def test_chosen_bounds():
    """A property lists paths in the syntax of variant_get, separated by commas; paths into arrays are refused (B4).

    Those of cluster_by come before them.
    """
    properties = {"delta_variant.bounds.v": " $.actor.id, ts,$['a,b'][\"c.d\"] ,", "delta_variant.bounds.a": "x"}
    assert shredding_schemas.first_bounds(SCHEMA, properties) == {("v",): (("actor", "id"), ("ts",), ("a,b", "c.d"))}
    ordered = shredding_schemas.first_bounds(SCHEMA, properties, ["v:z.t", "id", "v:ts"])
    assert ordered == {("v",): (("z", "t"), ("ts",), ("actor", "id"), ("a,b", "c.d"))}
    with pytest.raises(InvalidPathError, match=r"delta_variant.bounds.v: \$.tags\[0\] leads into an array"):
        shredding_schemas.first_bounds(SCHEMA, {"delta_variant.bounds.v": "$.tags[0]"})
    with pytest.raises(InvalidPathError, match="is not a Variant path"):
        shredding_schemas.first_bounds(SCHEMA, {"delta_variant.bounds.v": "$.a[x]"})


def test_numbers_of_a_task_agree():
    """After a file with decimals or long numbers on a path, the next files of the task have a type with room for them."""
    inference = Inference()

    def inferred(name, rows):
        return inference.schema((name,), pa.chunked_array([column(rows)]))

    files = [
        [{"n": 1, "x": "a"}], [{"n": Decimal("2.25"), "x": "b"}], [{"n": 3}], [{"n": 10**17, "x": 1}], [{"n": "text"}],
    ]  # fmt: skip
    found = [inferred("v", rows * 10) for rows in files]
    exact = pa.decimal128(18, 2)
    assert [shape.field("n").type for shape in found] == [pa.int64(), exact, exact, pa.decimal128(38, 2), pa.string()]
    assert [shape.field("x").type for shape in found if "x" in [f.name for f in shape]] == [
        pa.string(),
        pa.string(),
        pa.int64(),
    ]
    assert inferred("w", [1]) == pa.int64()
    assert inferred("w", [[1]]) == pa.list_(pa.int64())
    assert inferred("w", [[Decimal("0.5")]]) == pa.list_(pa.decimal128(18, 1))


def nested(rows: list) -> pa.RecordBatch:
    """s: struct<w, n, deep: struct<v>>, a: list<struct<v>>, m: map<string, variant>; every other s is null."""
    variants = column(rows)
    null = pa.array([i % 2 == 1 for i in range(len(rows))])
    deep = pa.StructArray.from_arrays([variants], names=["v"], mask=null)
    under = variants.filter(pa.compute.invert(null)).take(pa.array([None if i % 2 else i // 2 for i in range(len(rows))]))
    s = pa.StructArray.from_arrays([under, pa.array(range(len(rows))), deep], names=["w", "n", "deep"], mask=null)
    a = pa.ListArray.from_arrays(range(len(rows) + 1), pa.StructArray.from_arrays([variants], names=["v"]))
    m = pa.MapArray.from_arrays(range(len(rows) + 1), pa.array(["k"] * len(rows)), variants)
    return pa.RecordBatch.from_arrays([s, a, m], names=["s", "a", "m"])


NESTED = {
    ("s", "w"), ("s", "deep", "v"), ("a", "list", "element", "v"), ("m", "key_value", "value"),
}  # fmt: skip


@pytest.mark.parametrize("given", [{}, {("s", "w"): pa.struct([("id", pa.int64())])}])
def test_nested_variants(tmp_path, given):
    """VARIANT fields of structs are shredded, inferred or as given, with bounds under the struct; in arrays and maps plain."""
    rows = [{"id": i, "tag": f"t{i:04}"} for i in range(4000)]  # few rows would be left plain
    plan = tasks.plan(tmp_path, NESTED, shredding_schemas=given)
    batch = nested(rows)
    (add,) = tasks.run(plan, [batch])
    written = tasks.schema(plan, add)
    inferred = pa.struct([("id", pa.int64()), ("tag", pa.string())])
    fields = {path: written.field(path[0]).type for path in NESTED}
    assert fields["s", "w"].field("w").type == shredding.storage_type(given.get(("s", "w"), inferred))
    assert fields["s", "deep", "v"].field("deep").type.field("v").type == shredding.storage_type(inferred)
    assert fields["a", "list", "element", "v"].value_type.field("v").type == shredding.UNSHREDDED
    assert written.field("m").type.item_type == shredding.UNSHREDDED
    low, high = (add["stats"][side]["s"] for side in ("minValues", "maxValues"))
    tags = {} if given else {"$['tag']": "t0000"}
    assert decode_bounds(low["w"]) == {"$['id']": 0, **tags}
    assert decode_bounds(high["deep"]["v"]) == {"$['id']": 3998, "$['tag']": "t3998"}
    assert add["stats"]["nullCount"]["s"] == {"w": 2000, "n": 2000, "deep": {"v": 2000}}
    back = read_table(tmp_path / add["path"])
    s = back.column("s").combine_chunks()
    for path in (["w"], ["deep", "v"]):
        array = s
        for name in path:
            array = array.field(name)
        assert values(array) == ["SQL NULL" if i % 2 else row for i, row in enumerate(rows)]
    assert pq.read_table(tmp_path / add["path"]).column("a").to_pylist() == batch.column("a").to_pylist()


UNREADABLE = [dt.time(1, 2), pd.Timestamp("2024-01-01 00:00:00.000000001"), pd.Timestamp("2024-01-01 00:00:00.1", tz="UTC")]
UNREADABLE[2] += pd.Timedelta(1, "ns")


@pytest.mark.parametrize("shape", [None, pa.null(), pa.struct([("a", pa.int64()), ("b", pa.list_(pa.null()))]), "auto"])
@pytest.mark.parametrize("value", UNREADABLE, ids=["time", "timestamp_ntz_nanos", "timestamp_nanos"])
def test_values_that_spark_cannot_read(tmp_path, value, shape):
    """A TIME or nanosecond value is refused by column, path and row, wherever it lies and however the column is stored."""
    rows = [{"a": i, "b": [1, {"c d": 2}]} for i in range(20)] + [{"a": 1, "b": [1, {"c d": [value]}]}]
    batches = [pa.RecordBatch.from_arrays([column(rows)], names=["v"])]
    given = {("v",): shape} if isinstance(shape, pa.DataType) else {}
    plan = tasks.plan(tmp_path, {("v",)}, shredding_schemas=given, infer=shape == "auto")
    with pytest.raises(
        UnsupportedFeatureError, match=r"column v: \$\.b\[1\]\['c d'\]\[0\] is a tim.*, which Spark cannot.*row 20"
    ):
        tasks.run(plan, batches)
    assert list(tmp_path.iterdir()) == []
    inside = pa.RecordBatch.from_arrays([pa.ListArray.from_arrays([0, 21], column(rows))], names=["l"])
    with pytest.raises(UnsupportedFeatureError, match=r"column l\.list\.element: "):
        tasks.run(tasks.plan(tmp_path, {("l", "list", "element")}), [inside])


def test_uuids_stay_plain(tmp_path):
    """Inference leaves UUIDs in `value`, where Spark can read them, and makes no typed columns for them."""
    rows = [{"u": uuid.UUID(int=i), "n": i, "l": [uuid.UUID(int=i)]} for i in range(2000)]
    plan = tasks.plan(tmp_path, {("v",), ("w",)})
    batch = pa.RecordBatch.from_arrays([column(rows), column([row["u"] for row in rows])], names=["v", "w"])
    (add,) = tasks.run(plan, [batch])
    assert tasks.schema(plan, add).field("v").type == shredding.storage_type(pa.struct([("n", pa.int64())]))
    assert tasks.schema(plan, add).field("w").type == shredding.UNSHREDDED
    assert values(read_table(tmp_path / add["path"]).column("v").combine_chunks()) == rows


def test_chosen_bounds_go_first(tmp_path):
    """Of too many paths, those chosen have bounds first, then numbers; 32 paths have bounds, in at most 4 KiB (B4)."""
    rows = [{**{f"n{i:02}": i for i in range(40)}, "text": "x" * 20, **{f"t{i:02}": f"{i}" * 20 for i in range(40)}}] * 3
    batch = pa.RecordBatch.from_arrays([column(rows)], names=["v"])
    for first, expected in (((), 0), ((("text",), ("t39",), ("gone",)), 2)):
        (add,) = tasks.run(tasks.plan(tmp_path, {("v",)}, first_bounds={("v",): first}), [batch])
        sides = [add["stats"][side]["v"] for side in ("minValues", "maxValues")]
        bounds = decode_bounds(sides[0])
        assert sum(map(len, sides)) <= 4096
        assert len(bounds) == 32
        assert len(bounds.keys() & {"$['text']", "$['t39']"}) == expected
        assert sum(key.startswith("$['n") for key in bounds) == 32 - expected
