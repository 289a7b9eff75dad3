"""Shredding schemas: DDL text and inference."""

import datetime as dt
import uuid
from decimal import Decimal
from functools import reduce
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from delta_variant import schema, shredding
from delta_variant.errors import InvalidSchemaError, MalformedVariantError
from delta_variant.schema import inference
from tests.strategies import SCHEMAS, VARIANTS, column, values

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
    ("`` int, `<` struct<``: int>", pa.struct([("", pa.int32()), ("<", pa.struct([("", pa.int32())]))])),
    ("array<" * 100 + "int" + ">" * 100, reduce(lambda kind, _: pa.list_(kind), range(100), pa.int32())),
]


@pytest.mark.parametrize(("ddl", "type_"), DDL)
def test_ddl(ddl, type_):
    """Spark's DDL text gives the Arrow type of the same structure."""
    assert schema.parse(ddl) == type_


@pytest.mark.parametrize(
    "ddl",
    [
        *("", "a", "a int,", "struct<>", "struct<a int", "a foo", "a map<int, int>", "decimal(39, 0)", "decimal(2,3)"),
        *("a int b", "a int, a int", "a interval", "array<int", "a decimal(x)", "a int %", "``", "a ``", "` int", "``a`` int"),
        *("a decimal(\u00b2, 1)", "a decimal(\u0661\u0660, 2)", f"a decimal({'1' * 5000})"),
        *(f"{start * 3000}int{'>' * 3000}" for start in ("array<", "struct<a:")),
    ],
)
def test_invalid_ddl(ddl):
    """Any other text raises InvalidSchemaError."""
    with pytest.raises(InvalidSchemaError, match="shredding schema"):
        schema.parse(ddl)


@given(SCHEMAS)
def test_ddl_is_parsed_back(type_):
    """The DDL of a shredding schema gives this schema, whatever its names."""
    assert schema.parse(schema.ddl(type_)) == type_


@pytest.mark.parametrize("type_", [pa.uint8(), pa.map_(pa.string(), pa.int8()), pa.struct([]), pa.float16(), pa.duration("s")])
def test_types_without_a_shredded_form(type_):
    """A type that the specification's table lacks is refused, with its path."""
    with pytest.raises(InvalidSchemaError, match=r"\$\.a"):
        schema.check(pa.struct([("a", type_)]))


def inferred(values, **kwargs):
    return schema.infer(column(values), **kwargs)


def sampled(*parts):
    """One sample merged from those of lists of values."""
    whole = schema.Sample()
    for part in parts:
        sample = schema.Sample()
        sample.add(column(part))
        whole.merge(sample)
    return whole


def stored(group, path="$"):
    """By path of each typed leaf of a shredded column: how many values are typed, and how many in `value`, nulls aside."""
    rest, typed = group.field("value"), group.field("typed_value")
    if pa.types.is_struct(typed.type):
        fields = zip(typed.type, (typed.field(i) for i in range(typed.type.num_fields)), strict=True)
        return {leaf: n for field, child in fields for leaf, n in stored(child, f"{path}.{field.name}").items()}
    if pa.types.is_list(typed.type):
        return stored(typed.flatten(), f"{path}[*]")
    others = [value for value in rest.to_pylist() if value not in (None, b"\0")]
    return {path: (len(typed) - typed.null_count, len(others))}


def test_one_exact_numeric():
    """Integers and decimals of several scales are one decimal; integers alone are bigint."""
    values = [Decimal("2"), 2, Decimal("2.1"), Decimal("2.15")] * 10
    assert inferred([{"mag": v, "n": i} for i, v in enumerate(values)]) == pa.struct(
        [("mag", pa.decimal128(18, 2)), ("n", pa.int64())]
    )


def shape(value):
    """The scale of an exact number, and the lowest precision of a decimal that holds it at this scale."""
    _, digits, exponent = Decimal(value).as_tuple()
    return -exponent, max(len(digits), -exponent)


def fits(value, kind):
    if kind == pa.int64():
        return isinstance(value, int)
    _, digits, exponent = Decimal(value).as_tuple()
    unscaled = int("".join(map(str, digits)))
    return -exponent <= kind.scale and unscaled * 10 ** (kind.scale + exponent) < 10**kind.precision


EXACT_TYPES = [pa.int64(), *(pa.decimal128(18, s) for s in range(19)), *(pa.decimal128(38, s) for s in range(39))]
TENS = st.builds(lambda k, off: 10**k + off, st.integers(1, 38), st.integers(-1, 0)).filter(lambda n: n < 10**38)
EXACT = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-100, 100),
    st.builds(
        lambda n, sign, scale: Decimal((sign, tuple(map(int, str(n))), -scale)),
        st.one_of(TENS, st.integers(0, 1000), st.integers(0, 10**38 - 1)),
        st.integers(0, 1),
        st.integers(0, 38),
    ),
)


@given(st.lists(EXACT, min_size=1, max_size=12))
@example([Decimal(-(10**37)), Decimal("0.1"), Decimal("0.1")])
@example([Decimal(10**17), Decimal("0.1")])
@example([Decimal("12345678901234567.8")])
def test_the_type_of_exact_numerics(values):
    """Exact numerics get the first of bigint, decimal(18, s) and decimal(38, s) that fits the most values.

    There is no type if that is not more than half of the values. Exactly the values that fit are typed.
    """
    fitting = [sum(fits(value, kind) for value in values) for kind in EXACT_TYPES]
    most = max(fitting)
    found = inferred(values)
    if most * 2 > len(values):
        assert found == EXACT_TYPES[fitting.index(most)]
        assert stored(shredding.shred(column(values), found)) == {"$": (most, len(values) - most)}
    else:
        assert found is None


@given(st.lists(EXACT, min_size=1, max_size=12))
@example([Decimal("0.1")] * 5 + [Decimal("0.11")])
@example([Decimal("0.1")] * 11 + [Decimal("0.123456789")])
@example([1] * 8 + [Decimal("0.1")])
def test_the_type_of_exact_numerics_in_arrays(values):
    """Elements have the first type that takes the fewest digits, of those that fit more than half of them.

    A value of a smaller scale than its type takes a digit for each missing place, a value that does not fit takes eight.
    """

    def digits(kind):
        misfits = len(values) - fitting[kind]
        if kind == pa.int64():
            return 8 * misfits
        zeros = [kind.scale - scale for scale, length in map(shape, values) if scale <= kind.scale and length <= kind.precision]
        return 8 * misfits + sum(zeros)

    fitting = {kind: sum(fits(value, kind) for value in values) for kind in EXACT_TYPES}
    possible = [kind for kind in EXACT_TYPES if fitting[kind] * 2 > len(values)]
    found = inferred([values])
    if possible:
        best = min(possible, key=digits)
        assert found == pa.list_(best)
        assert stored(shredding.shred(column([values]), found)) == {"$[*]": (fitting[best], len(values) - fitting[best])}
    else:
        assert found is None


def test_elements_of_objects_in_arrays():
    """Fields of objects in arrays get their types as elements do, whatever the type of the same values outside of the array."""
    prices = [Decimal(i).scaleb(-2) for i in range(1, 99)] + [Decimal("0.30000000000000004")]
    price = inferred([{"price": price, "items": [{"price": price}]} for price in prices])
    assert price.field("price").type == pa.decimal128(18, 17)
    assert price.field("items").type.value_type == pa.struct([("price", pa.decimal128(18, 2))])


@pytest.mark.parametrize(
    ("outlier", "kind"),
    [
        (Decimal("0.000000000000000001"), pa.decimal128(38, 18)),  # one type fits all values
        (10**18, pa.decimal128(38, 2)),
        (Decimal(10**37), pa.decimal128(18, 2)),  # no type fits all values
        (Decimal(1).scaleb(-38), pa.decimal128(18, 2)),
        (1e300, pa.decimal128(18, 2)),
        ("n/a", pa.decimal128(18, 2)),
        (None, pa.decimal128(18, 2)),
    ],
)
def test_an_outlier_among_exact_numerics(outlier, kind):
    """An outlier widens the type if one type then fits all values, which gives the path bounds; else it changes nothing."""
    assert inferred([*(Decimal(i).scaleb(-2) for i in range(123_00, 124_00)), Decimal(10), 7, outlier]) == kind


@pytest.mark.parametrize("payload", ["00" + "ff" * 15 + "7f", "00" + "00" * 15 + "80", "26" + "ff" * 15 + "7f"])
def test_decimals_that_no_decimal_holds(payload):
    """Sixteen bytes can hold 39 digits, which no precision fits; they count as exact numerics that do not fit."""
    huge = {"metadata": b"\x01\0\0", "value": bytes.fromhex("28" + payload)}
    rows = pa.concat_arrays([column([1, 2]), pa.array([huge], column([]).type)])
    assert schema.infer(rows) == pa.int64()
    assert schema.infer(rows[1:]) is None
    assert schema.infer(rows[2:]) is None


def test_a_scale_above_38():
    """Inference refuses a decimal with a scale above 38 as malformed."""
    rows = pa.array([{"metadata": b"\x01\0\0", "value": bytes.fromhex("202701000000")}], column([]).type)
    with pytest.raises(MalformedVariantError, match="scale above 38"):
        schema.infer(rows)


def test_nearly_one_type():
    """A path has the type that more than half of its values have, and the others stay in `value`; at half it has none."""
    rows = [{"a": "x" if i % 10 else i, "b": "x" if i % 5 < 3 else i, "c": "x" if i % 2 else i, "d": 1} for i in range(100)]
    found = inferred(rows)
    assert found == pa.struct([("a", pa.string()), ("b", pa.string()), ("d", pa.int64())])
    assert stored(shredding.shred(column(rows), found)) == {"$.a": (90, 10), "$.b": (60, 40), "$.d": (100, 0)}


def test_integers_and_floats_are_two_types():
    """The encoding specification has two classes of numbers: a double is no exact numeric."""
    assert inferred([{"a": i if i % 3 else i / 2, "b": i / 2 if i % 3 else i} for i in range(99)]) == pa.struct(
        [("a", pa.int64()), ("b", pa.float64())]
    )


def test_mostly_objects():
    """A path is entered where more than half of its values are objects, or arrays, whatever the others are."""
    rows = [{"o": {"x": i} if i % 5 < 3 else "gone", "l": [i] if i % 5 < 3 else {"y": i}} for i in range(100)]
    found = inferred(rows)
    assert found == pa.struct([("l", pa.list_(pa.int64())), ("o", pa.struct([("x", pa.int64())]))])
    assert inferred([{"o": {"x": i} if i % 5 < 2 else "gone"} for i in range(100)]) == pa.struct([("o", pa.string())])


@given(st.lists(VARIANTS, max_size=12))
def test_more_than_half_is_typed(values):
    """What is inferred is a schema, and `shred` types more than half of what its leaves are given, nulls aside."""
    found = inferred(values)
    if found is not None:
        schema.check(found)
        assert all(typed > left for typed, left in stored(shredding.shred(column(values), found)).values())


def test_nulls_rare_fields_and_empty_objects_cost_nothing():
    """Nulls, rare fields and empty objects and arrays get no column, and do not change the columns of others."""
    rows = [{"a": None if i % 3 else 1.5, "b": None, "e": {}, "l": [], **({"rare": 1} if i == 7 else {})} for i in range(100)]
    assert inferred(rows) == pa.struct([("a", pa.float64())])
    assert inferred(rows, max_leaves=1) == inferred(rows)
    assert inferred([{}, None, {}, "SQL NULL"]) is None
    assert inferred([]) is None


def test_rare_is_under_one_in_twenty():
    """A path is rare if fewer than one row in twenty has it, null or not, or fewer than one in 200 a value; NULL rows aside."""
    rows = [{"z": 0, **({"a": i} if i < 10 else {}), **({"b": i} if i < 9 else {})} for i in range(200)]
    rows = [{**row, "c": i or None, "d": None if i else 1} for i, row in enumerate(rows)] + ["SQL NULL"] * 50
    names = [field.name for field in inferred(rows)]
    assert names == ["a", "c", "d", "z"]
    assert [field.name for field in inferred([*rows, {"z": 0, "d": None}])] == ["c", "z"]


def test_rare_in_arrays():
    """A path in an array is rare if fewer than one element in twenty has it, or fewer than one row in twenty the array."""
    rows = [{"c": [{"n": j, **({"rare": j} if j == 7 else {})} for j in range(30)]} for _ in range(20)]
    assert inferred(rows) == pa.struct([("c", pa.list_(pa.struct([("n", pa.int64())])))])
    rows = [{"id": i, **({"long": list(range(1000))} if i == 7 else {})} for i in range(21)]
    assert inferred(rows) == pa.struct([("id", pa.int64())])


NAMES = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=3)


@given(st.dictionaries(NAMES, st.integers(5, 100), min_size=1, max_size=8), st.integers(1, 8))
def test_the_budget_goes_to_the_most_frequent_paths(counts, budget):
    """The budget goes to the most frequent paths; between equal counts the names decide."""
    assume(len({name.lower() for name in counts}) == len(counts))
    rows = [{name: 1 for name, count in counts.items() if i < count} for i in range(100)]
    best = sorted(counts, key=lambda name: (-counts[name], name.encode()))[:budget]
    assert inferred(rows, max_leaves=budget) == pa.struct([(name, pa.int64()) for name in sorted(best)])


def test_the_budget_and_arrays():
    """A path that every row has goes before one in arrays, however long these are."""
    rows = [{"a": [{"x": i, "y": i}] * 5, "m": {"x": {"z": i}}, "o": [i] if i % 2 else []} for i in range(10)]
    m = pa.struct([("x", pa.struct([("z", pa.int64())]))])
    x, xy = (pa.list_(pa.struct([(name, pa.int64()) for name in names])) for names in ("x", "xy"))
    assert inferred(rows, max_leaves=0) is None
    assert inferred(rows, max_leaves=1) == pa.struct([("m", m)])
    assert inferred(rows, max_leaves=2) == pa.struct([("a", x), ("m", m)])
    assert inferred(rows, max_leaves=3) == pa.struct([("a", xy), ("m", m)])
    assert inferred(rows, max_leaves=4) == pa.struct([("a", xy), ("m", m), ("o", pa.list_(pa.int64()))])


def test_lists_of_objects():
    """The fields of objects in arrays are inferred as other fields are."""
    rows = [{"c": [{"sha": "x", "n": i}, {"sha": "y", "n": None}]} for i in range(4)]
    assert inferred(rows) == pa.struct([("c", pa.list_(pa.struct([("n", pa.int64()), ("sha", pa.string())])))])


def test_the_root_may_be_a_scalar_or_a_list():
    """The schema of scalars is a scalar, and that of arrays a list."""
    assert inferred(["a", "b"]) == pa.string()
    assert inferred([[1], [2, 3]]) == pa.list_(pa.int64())


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, pa.bool_()),
        (dt.date(2024, 1, 1), pa.date32()),
        (dt.datetime(2024, 1, 1), pa.timestamp("us")),
        (dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc), pa.timestamp("us", "UTC")),
        (dt.time(1), pa.time64("us")),
        (b"x", pa.binary()),
        (np.float32(1), pa.float32()),
        (uuid.UUID(int=1), pa.binary(16)),
        ("2024-01-01", pa.string()),
    ],
)
def test_scalars(value, kind):
    """Every other primitive is inferred as its own type, if more than half of the values have it."""
    assert inferred([value] * 3 + [1]) == kind
    assert inferred([not value if value is True else value, value, 1, 2]) is None


@given(st.lists(VARIANTS, max_size=12), st.randoms())
def test_order_does_not_matter(values, random):
    """The schema of a sample depends on its values, not on their order."""
    assert inferred(random.sample(values, len(values))) == inferred(values)


@given(st.lists(st.lists(VARIANTS, max_size=6), max_size=4), st.randoms())
def test_samples_merge(parts, random):
    """The schema of a whole is that of its parts' samples merged, in any order, or of its parts as arrays of one sample."""
    whole = inferred([value for part in parts for value in part])
    assert sampled(*random.sample(parts, len(parts))).schema() == whole
    assert schema.infer([column(part) for part in parts]) == whole


def with_keys_of_data(rows, keys):
    """Rows of two frequent fields and some that no other row has."""
    return [
        {"id": i, "at": {"x": i / 2}, **{f"{i * keys + j:x}": {"n": j} for j in range(keys)}, **({"rare": 1} if i == 7 else {})}
        for i in rows
    ]


FREQUENT = pa.struct([("at", pa.struct([("x", pa.float64())])), ("id", pa.int64())])


@pytest.mark.parametrize("seed", range(3))
def test_more_paths_than_there_is_room_for(seed):
    """Keys that are data push no frequent path out of the sample, in any order of rows, and the sample stays bounded."""
    rows = with_keys_of_data(range(4000), 6)
    sample = schema.Sample()
    sample.add(column(Random(seed).sample(rows, len(rows))))
    assert sample.schema() == FREQUENT
    assert len(sample._keys) <= inference.MAX_PATHS


def test_samples_with_more_paths_than_there_is_room_for():
    """Merged samples with too many paths keep the frequent paths, and stay bounded."""
    parts = [with_keys_of_data(range(i, i + 1000), 12) for i in range(0, 4000, 1000)]
    for whole in (sampled(*parts), sampled(*reversed(parts))):
        assert whole.schema() == FREQUENT
        assert len(whole._keys) <= inference.MAX_PATHS


def test_one_row_with_too_many_paths():
    """One row with 40,000 paths gives no schema."""
    assert inferred([{f"k{i}": i for i in range(40_000)}]) is None


def test_names_that_readers_cannot_take():
    """Empty names, names with a NUL, and all spellings of a name but the most frequent stay in `value`."""
    rows = [{"": 1, "a\0b": 1, "ID": 1, "ä": 1, **({"id": "x", "Id": 2} if i else {"Ä": 1})} for i in range(100)]
    assert inferred(rows) == pa.struct([("ID", pa.int64()), ("ä", pa.int64())])
    assert inferred([{"id": 1, "Id": {"x": 1}}] * 3) == pa.struct([("Id", pa.struct([("x", pa.int64())]))])


def depth(kind):
    return 1 + max(depth(kind.field(i).type) for i in range(kind.num_fields)) if kind.num_fields else 0


@given(st.lists(VARIANTS, max_size=12), st.integers(0, 4))
def test_the_depth_of_a_sample(rows, depth):
    """Paths of at most as many keys as the depth of a sample have the types of a whole sample, and longer ones have none."""
    whole, shallow = schema.Sample(), schema.Sample(depth)
    for sample in (whole, shallow):
        sample.add(column(rows))
    paths = {tuple(name.decode() for name in path) for path in paths_of(whole) if None not in path}
    for path in paths:
        assert shallow.schema_of([path]) == (whole.schema_of([path]) if len(path) <= depth else None)


def paths_of(sample):
    """Every path of a sample, as the names that lead to it; None stands for elements."""
    paths = [()]
    for parent, name in sample._keys[1:]:
        paths.append((*paths[parent], name))
    return paths


def test_deep(tmp_path):
    """Paths are entered 32 levels deep, and a Parquet file of such a schema can be read."""
    chain = 1
    for i in range(50):
        chain = {"down": [chain] if i >= 38 else chain, "id": i}
    found, rows = inferred([chain] * 3), [chain] * 3
    assert depth(found) == 32
    assert str(found).count("list<") == 12
    pq.write_table(pa.table({"v": shredding.shred(column(rows), found)}), tmp_path / "deep.parquet")
    (read,) = pq.read_table(tmp_path / "deep.parquet").column("v").chunks
    assert values(shredding.unshred(read)) == rows


def test_arrays_in_arrays():
    """Arrays are entered twelve levels deep; thirteen levels give no schema."""
    twelve = [1]
    for _ in range(11):
        twelve = [twelve]
    assert str(inferred([twelve] * 3)).count("list<") == 12
    assert inferred([[twelve]] * 3) is None


def test_the_feed(feed):
    """On real data every scalar outside of arrays is typed, `mag` as one exact numeric; what is left are the nulls."""
    found = schema.infer(feed)
    properties = found.field("properties").type
    assert properties.field("mag").type == pa.decimal128(18, 2)
    assert properties.field("time").type == pa.int64()
    assert properties.field("alert").type == pa.string()  # null in all but twelve rows
    coordinate = found.field("geometry").type.field("coordinates").type.value_type
    assert coordinate == pa.decimal128(18, 4)
    typed = stored(shredding.shred(feed, found))
    rows = values(feed)
    assert len(typed) == 30
    fitting = sum(fits(number, coordinate) for row in rows for number in row["geometry"]["coordinates"])
    assert typed["$.geometry.coordinates[*]"] == (fitting, 3 * len(rows) - fitting)
    for name in rows[0]["properties"]:
        assert typed[f"$.properties.{name}"] == (sum(row["properties"][name] is not None for row in rows), 0)
