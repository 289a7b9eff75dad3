"""Shredding schemas: DDL text and inference."""

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_variant import schema
from delta_variant.errors import InvalidSchemaError
from tests.strategies import VARIANTS, column

DDL = [
    ("bigint", pa.int64()),
    ("decimal(18, 2)", pa.decimal128(18, 2)),
    ("a int", pa.struct([("a", pa.int32())])),
    ("a: INT, `b c` string", pa.struct([("a", pa.int32()), ("b c", pa.string())])),
    ("struct<a:array<struct<b:double>>>", pa.struct([("a", pa.list_(pa.struct([("b", pa.float64())])))])),
    ("array<timestamp_ntz>", pa.list_(pa.timestamp("us"))),
    (
        "ts timestamp, d date, f float, x binary, ok boolean",
        pa.struct(
            [("ts", pa.timestamp("us", "UTC")), ("d", pa.date32()), ("f", pa.float32()), ("x", pa.binary()), ("ok", pa.bool_())]
        ),
    ),
    ("v variant, n decimal", pa.struct([("v", pa.null()), ("n", pa.decimal128(10, 0))])),
    ("`a``b` tinyint", pa.struct([("a`b", pa.int8())])),
]


@pytest.mark.parametrize(("ddl", "type_"), DDL)
def test_ddl(ddl, type_):
    """Spark's DDL text gives the Arrow type of the same shape."""
    assert schema.parse(ddl) == type_


@pytest.mark.parametrize(
    "ddl",
    [
        *("", "a", "a int,", "struct<>", "struct<a int", "a foo", "a map<int, int>", "decimal(39, 0)", "decimal(2,3)"),
        *("a int b", "a int, a int", "a interval", "array<int", "a decimal(x)", "a int %"),
    ],
)
def test_invalid_ddl(ddl):
    """Anything else is one error that shows the text, or the path within it."""
    with pytest.raises(InvalidSchemaError, match="shredding schema"):
        schema.parse(ddl)


@pytest.mark.parametrize("type_", [pa.uint8(), pa.map_(pa.string(), pa.int8()), pa.struct([]), pa.float16(), pa.duration("s")])
def test_types_without_a_shredded_form(type_):
    """What the specification's table lacks is refused by path."""
    with pytest.raises(InvalidSchemaError, match=r"\$\.a"):
        schema.check(pa.struct([("a", type_)]))


def inferred(values, **kwargs):
    return schema.infer(column(values), **kwargs)


def test_one_exact_numeric():
    """Integers and decimals of several scales are one decimal; integers alone are bigint."""
    values = [Decimal("2"), 2, Decimal("2.1"), Decimal("2.15")] * 10
    assert inferred([{"mag": v, "n": i} for i, v in enumerate(values)]) == pa.struct(
        [("mag", pa.decimal128(18, 2)), ("n", pa.int64())]
    )


def test_nearly_one_type():
    """A path with nine values in ten of one class has that type, one with fewer has none."""
    rows = [{"a": "x" if i % 10 else i, "b": "x" if i % 5 else i, "c": 1} for i in range(100)]
    assert inferred(rows) == pa.struct([("a", pa.string()), ("c", pa.int64())])


def test_nulls_rare_fields_and_empty_objects_cost_nothing():
    """They neither get a column nor spoil one."""
    rows = [{"a": None if i % 3 else 1.5, "b": None, "e": {}, "l": [], **({"rare": 1} if i == 7 else {})} for i in range(100)]
    assert inferred(rows) == pa.struct([("a", pa.float64())])
    assert inferred([{}, None, {}]) is None


def test_the_budget_goes_to_the_most_frequent_paths():
    """Not to the first ones of the alphabet."""
    rows = [{"z": 1, "a": 2, "m": {"x": 3}} if i % 2 else {"z": 1, "m": {"x": 3}} for i in range(10)]
    assert inferred(rows, max_leaves=2) == pa.struct([("m", pa.struct([("x", pa.int64())])), ("z", pa.int64())])


def test_lists_of_objects():
    """Elements are inferred as fields are."""
    rows = [{"c": [{"sha": "x", "n": i}, {"sha": "y", "n": None}]} for i in range(4)]
    assert inferred(rows) == pa.struct([("c", pa.list_(pa.struct([("n", pa.int64()), ("sha", pa.string())])))])


def test_the_root_may_be_a_scalar_or_a_list():
    """A schema need not be an object."""
    assert inferred(["a", "b"]) == pa.string()
    assert inferred([[1], [2, 3]]) == pa.list_(pa.int64())


@given(st.lists(VARIANTS, max_size=12), st.randoms())
def test_order_does_not_matter(values, random):
    """The schema of a sample depends on its values, not on their order, nor on how the sample was cut."""
    whole = inferred(values)
    shuffled = random.sample(values, len(values))
    cut = random.randint(0, len(values))
    first, second = schema.Sample(), schema.Sample()
    first.add(column(shuffled[cut:]))
    second.add(column(shuffled[:cut]))
    first.merge(second)
    assert first.schema() == whole
    if whole is not None:
        schema.check(whole)


def test_the_feed(feed):
    """On real data every path that is mostly one type gets a column, `mag` as one exact numeric."""
    found = schema.infer(feed)
    properties = found.field("properties").type
    assert properties.field("mag").type == pa.decimal128(18, 2)
    assert properties.field("time").type == pa.int64()
    assert found.field("geometry").type.field("coordinates").type == pa.list_(pa.decimal128(18, 7))
    assert "alert" not in [f.name for f in properties]  # null in all but a few rows
