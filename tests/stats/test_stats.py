"""Statistics of files: those of delta-spark for ordinary columns, the protocol's bounds and tags for VARIANT columns."""

from __future__ import annotations

import datetime as dt
import json
import math
import uuid
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_variant import binary, paths, schema, shredding, z85
from delta_variant.errors import InvalidSchemaError, MalformedVariantError
from delta_variant.stats import (
    BOUNDS_TAG,
    BOUNDS_TAG_VALUE,
    NONNULL_TAG,
    EncodedBounds,
    FileStats,
    decode_bounds,
    encode_bounds,
    indexed_columns,
)
from delta_variant.stats.values import Extremes, json_bounds, scalar, variant_bounds
from tests.strategies import DATES, DECIMALS, INTEGERS, SPARK_VARIANTS, TEXTS, TIMESTAMPS, TIMESTAMPS_NTZ, column, same

V = ("v",)
UTC = dt.timezone.utc


SECOND = pa.array([False, True])


def collect(*batches, variants=(), indexed=None, **options):
    leaves = indexed_columns(batches[0].schema, variants) if indexed is None else indexed
    stats = FileStats(batches[0].schema, variants=variants, indexed=leaves, **options)
    for batch in batches:
        stats.update(batch)
    return json.loads(stats.json())


def texts(*parts, as_type, **options):
    """The texts of the lower and the upper bounds of a VARIANT column that was written in these parts."""
    batches = [pa.record_batch([shredding.shred(column(rows), as_type)], ["v"]) for rows in parts]
    stats = collect(*batches, variants={V}, **options)
    return tuple(stats[side].get("v") for side in ("minValues", "maxValues"))


def bounds(*parts, as_type, **options):
    """The bounds of these parts, decoded."""
    return tuple({} if text is None else decode_bounds(text) for text in texts(*parts, as_type=as_type, **options))


# ------------------------------------------------------------------------------------------------- the text of the bounds

PROPOSAL = [
    ("0S&u501fk+ze0(tB98CpzF6vU0rJl95HpNdvjbtatpi(cu0wW^cTu", {"$['a']": "min-string", "$['b']['c']": 1}),
    ("0S&u500&]LC42A9vqZe}wb#-i1}-a+cT!xdbWhT9cTx}7v<+K", {"$['a']": "variant", "$['b']['c']": 100}),
]
DELTA_SPARK = ("0rSrf791P7cT[Detpi]dt{JS4vKCC=cUaPgbWhT8cTu=Q0SSlf00i(sCQ9q2000000000o0rr9100000",
               {"$['a']": 1, "$['b']['c']": "x", "$['b']['d']": Decimal("1.5")})  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), [*PROPOSAL, DELTA_SPARK])
def test_bounds_written_by_others(text, expected):
    """Bounds written by others are decoded: the proposal's examples, whose value comes first, and delta-spark's (B1)."""
    assert decode_bounds(text) == expected


@given(
    st.dictionaries(
        st.lists(st.text(), max_size=3).map(paths.normalized), st.one_of(INTEGERS, DECIMALS, TEXTS, DATES, TIMESTAMPS)
    )
)
def test_decode_is_the_inverse_of_encode(values):
    """Any bounds come back, together and each alone, with the metadata or the value first, and with more padding (B1)."""
    text = encode_bounds(values)
    metadata, value = binary.encode(values)
    swapped = value + metadata
    for form in (text, text + "00000", z85.encode(swapped + bytes(-len(swapped) % 4))):
        assert same(decode_bounds(form), values)
        bounds = EncodedBounds(form)
        assert same({path: bounds.get(path) for path in values}, values)
        assert bounds.get("no path") is None


@given(st.one_of(st.text(max_size=60), st.text("0S&u501fk+ze0(tB98CpzF6vU0rJl95HpN", max_size=60)))
def test_damaged_text_is_one_error(text):
    """Whatever the text, it decodes to an object or raises MalformedVariantError, and so does one bound of it."""
    with suppress(MalformedVariantError):
        assert isinstance(decode_bounds(text), dict)
    with suppress(MalformedVariantError):
        EncodedBounds(text).get("$['a']")


@given(st.integers(0, 52), st.sampled_from("0aZ#~ "))
def test_one_wrong_character_is_one_error(at, char):
    """The proposal's example with one character changed, or cut, is decoded to an object or raises MalformedVariantError. One
    bound of it is the same, or that error."""
    text = PROPOSAL[0][0]
    for damaged in (text[:at] + char + text[at + 1 :], text[:at]):
        with suppress(MalformedVariantError):
            found = decode_bounds(damaged)
            assert isinstance(found, dict)
            bounds = EncodedBounds(damaged)
            assert same({path: bounds.get(path) for path in found}, found)
        with suppress(MalformedVariantError):
            EncodedBounds(damaged).get("$['a']")


@pytest.mark.parametrize("value", [1, "a", [1], None])
def test_a_variant_that_is_no_object_is_no_bounds(value):
    """Bounds are an object; another Variant is refused."""
    data = b"".join(binary.encode(value))
    with pytest.raises(MalformedVariantError, match="object"):
        decode_bounds(z85.encode(data + bytes(-len(data) % 4)))


# ------------------------------------------------------------------------------------------------- bounds of Variant paths


def test_paths_have_bounds():
    """Typed primitives reached through objects have bounds by normalized path; arrays and what is in them have none (B2)."""
    rows = [{"a": {"b": i, "it's": f"s{i}"}, "l": [i], "o": {"l": [{"x": i}]}} for i in range(3)]
    assert bounds(
        rows, as_type="a struct<b: bigint, `it's`: string>, l array<bigint>, o struct<l: array<struct<x: bigint>>>"
    ) == (
        {"$['a']['b']": 0, "$['a']['it\\'s']": "s0"},
        {"$['a']['b']": 2, "$['a']['it\\'s']": "s2"},
    )


TYPES = {
    "boolean": (False, True),
    "tinyint": (-128, 127),
    "smallint": (-1, 300),
    "int": (-1, 70_000),
    "bigint": (-(2**63), 2**63 - 1),
    "float": (np.float32(-1.1), np.float32(3e38)),
    "double": (-math.inf, 1e300),
    "decimal(5,2)": (Decimal("-1.50"), Decimal("3.00")),
    "decimal(10,2)": (Decimal("-1.50"), Decimal("3.00")),
    "decimal(38,10)": (Decimal("-1.0000000001"), Decimal("3.0000000000")),
    "date": (dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    "timestamp": (dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
    "timestamp_ntz": (dt.datetime(1582, 10, 4), dt.datetime(2024, 2, 29, 1, 2, 3, 4)),
    "string": ("", "é"),
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("as_field", [True, False])
def test_every_ordered_type(kind, as_field):
    """The bounds are the values themselves, both in the column's type, for fields and for Variants that are scalars (B3)."""
    low, high = TYPES[kind]
    wrap = (lambda v: {"a": v}) if as_field else (lambda v: v)
    leaf = schema.parse(f"a {kind}").field(0).type
    found = texts([wrap(high)], [wrap(low), wrap(high)], ["SQL NULL"], as_type=pa.struct([("a", leaf)]) if as_field else leaf)
    path = "$['a']" if as_field else "$"
    assert same([decode_bounds(text) for text in found], [{path: low}, {path: high}])
    assert found == tuple(encode_bounds({path: pa.scalar(value, leaf)}) for value in (low, high))


def test_types_without_bounds():
    """Paths of binaries and of UUIDs have no bounds (B3)."""
    row = {"a": b"x", "b": 1, "u": uuid.UUID(int=7)}
    assert bounds([row], as_type="a binary, b bigint, u uuid") == ({"$['b']": 1}, {"$['b']": 1})


RULED_OUT = {
    "a value of another type": [{"a": "x"}],
    "a JSON null": [{"a": None}],
    "an object": [{"a": {}}],
    "a number that does not fit": [{"a": 2**70}],
}


@pytest.mark.parametrize("rows", RULED_OUT.values(), ids=RULED_OUT)
@pytest.mark.parametrize("first", [True, False])
def test_a_value_of_another_type_rules_the_path_out(rows, first):
    """A path has no bounds if its value in one row, of any batch, is not of the column's type (B2)."""
    rows = [{"b": 1, **row} for row in rows]
    others = [{"a": 1, "b": 1}]
    parts = [rows, others] if first else [others, rows]
    assert bounds(*parts, others, as_type="a bigint, b bigint") == ({"$['b']": 1}, {"$['b']": 1})


def test_rows_without_the_path_do_not_matter():
    """Rows without the path, because they lack a field, have no object above it or are NULL, do not change its bounds (B2)."""
    rows = [{"a": {"b": 1}}, {}, {"a": {}}, {"a": "x"}, {"a": None}, "x", None, "SQL NULL", {"a": {"b": 2, "c": 3}}]
    assert bounds(rows, as_type="a struct<b: bigint>") == ({"$['a']['b']": 1}, {"$['a']['b']": 2})
    assert bounds([{}, "SQL NULL"], as_type="a bigint") == ({}, {})


def test_an_object_in_value_rules_its_paths_out():
    """If another writer has left an object in `value` as a whole, the paths through it have no bounds (B2)."""
    shredded = shredding.shred(column([{"a": {"b": 1}, "c": 1}] * 2), "a struct<b: bigint>, c bigint")
    a = shredded.field("typed_value").field("a")
    for left, expected in (
        (binary.encode({"b": 9})[1], {"$['c']": 1}),
        (binary.encode("x")[1], {"$['a']['b']": 1, "$['c']": 1}),
    ):
        changed = pa.StructArray.from_arrays(
            [
                pa.array([None, left]),
                pa.StructArray.from_arrays(a.field(1).flatten(), fields=list(a.field(1).type), mask=SECOND),
            ],
            fields=list(a.type),
        )
        typed = pa.StructArray.from_arrays(
            [changed, shredded.field("typed_value").field("c")], fields=list(shredded.type.field("typed_value").type)
        )
        array = pa.StructArray.from_arrays([*shredded.flatten()[:2], typed], fields=list(shredded.type))
        stats = collect(pa.record_batch([array], ["v"]), variants={V})
        assert decode_bounds(stats["maxValues"]["v"]) == expected


def test_a_scalar_root_with_a_json_null():
    """A scalar root has no bounds if a row is a JSON null, which is in `value` or has neither value nor typed_value (B2)."""
    assert bounds([1, None], as_type=pa.int64()) == ({}, {})
    shredded = shredding.shred(column([1, 2, "SQL NULL"]), pa.int64())
    missing = pa.StructArray.from_arrays(
        [shredded.field(0), shredded.field(1), pa.array([1, None, None], pa.int64())],
        fields=list(shredded.type),
        mask=pa.array([False, False, True]),
    )
    assert "v" not in collect(pa.record_batch([missing], ["v"]), variants={V})["minValues"]


def test_what_lies_under_a_null_does_not_count():
    """Values in Arrow's buffers under a null struct do not count."""
    shredded = shredding.shred(column([{"a": 1}, {"a": 99}]), "a bigint")
    masked = pa.StructArray.from_arrays(shredded.flatten(), fields=list(shredded.type), mask=pa.array([False, True]))
    ordinary = pa.StructArray.from_arrays([pa.array([1, 99])], ["a"], mask=pa.array([False, True]))
    stats = collect(pa.record_batch([masked, ordinary], ["v", "s"]), variants={V})
    assert decode_bounds(stats["maxValues"]["v"]) == {"$['a']": 1}
    assert stats["maxValues"]["s"] == {"a": 1}
    assert stats["nullCount"] == {"v": 1, "s": {"a": 1}}


def test_nan_rules_a_path_out():
    """A path with a NaN in any batch has neither bound, for double and for float (B3)."""
    for nan, kind in ((math.nan, "double"), (np.float32(math.nan), "float")):
        number = type(nan)(1)
        for parts in ([[{"a": nan}]], [[{"a": number}], [{"a": nan}]], [[{"a": nan}, {"a": number}], [{"a": number}]]):
            assert bounds(*parts, as_type=f"a {kind}") == ({}, {})


@pytest.mark.parametrize("rows", [[0.0], [-0.0], [0.0, -0.0]])
def test_zeros_are_widened(rows):
    """A zero minimum is written as -0.0 and a zero maximum as 0.0, whichever zeros the rows have (B3)."""
    low, high = bounds([{"a": row} for row in rows], as_type="a double")
    assert str(low["$['a']"]) == "-0.0"
    assert str(high["$['a']"]) == "0.0"


CUT = [
    (["x" * 32], "x" * 32, "x" * 32),
    (["x" * 33], "x" * 32, "x" * 32 + "\U0010ffff"),
    (["é" * 40, "a"], "a", "é" * 32 + "\U0010ffff"),
    (["\U0001f600" * 33], "\U0001f600" * 32, "\U0001f600" * 32 + "\U0010ffff"),
    (["\U0010ffff" * 33], "\U0010ffff" * 32, "\U0010ffff" * 33),
    (["\U0010ffff" * 34], "\U0010ffff" * 32, None),
    (["x" * 32 + "\U0010ffffy"], "x" * 32, None),
]


@pytest.mark.parametrize(("rows", "low", "high"), CUT)
def test_long_strings_are_cut(rows, low, high):
    """Bounds are cut to 32 characters; a cut maximum gets U+10FFFF, and is left out if that is not above the value (B3)."""
    found = bounds([{"a": row} for row in rows], as_type="a string")
    assert found == ({"$['a']": low}, {} if high is None else {"$['a']": high})


def test_strings_are_ordered_by_their_bytes():
    """Bounds of strings are in the order of UTF-8, not of UTF-16: U+FFFF is below U+10000 (B3)."""
    found = bounds([{"a": "\U00010000"}, {"a": "\uffff"}], as_type="a string")
    assert found == ({"$['a']": "\uffff"}, {"$['a']": "\U00010000"})


FAR = {
    "date": (-(2**31), 2**31 - 1),
    "timestamp": (-(2**63) + 1, 2**63 - 1),
    "timestamp_ntz": (-62_135_596_800_000_001, 253_402_300_800_000_000),
}


@pytest.mark.parametrize("kind", FAR)
def test_values_outside_pythons_calendar(kind):
    """Dates and times before year 1 and after 9999 have exact bounds (B3)."""
    leaf = schema.parse(f"a {kind}").field(0).type
    ends = [pa.scalar(end, leaf) for end in FAR[kind]]
    rows = [{"a": binary.decode(*binary.encode(end))} for end in ends]
    found = texts(rows, [{"a": binary.decode(*binary.encode(pa.scalar(0, leaf)))}], as_type=f"a {kind}")
    assert found == tuple(encode_bounds({"$['a']": end}) for end in ends)
    assert same([decode_bounds(text) for text in found], [{"$['a']": row["a"]} for row in rows])


def test_strings_that_are_not_utf8_have_no_bounds():
    """A string that is not UTF-8 has neither bound, for paths and for ordinary columns."""
    text = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")])
    extremes = Extremes(pa.string())
    extremes.add(text)
    assert variant_bounds(extremes, 32) == (None, None)
    assert json_bounds(extremes, 32) == (None, None)


NUMBERS = [0, 1, -1, 127, -128]
OF_FIXED_SIZE = {
    pa.bool_(): [False, True],
    pa.int8(): NUMBERS,
    **{
        kind: [*NUMBERS, 1 << 31, -(1 << 63), (1 << 63) - 1]
        for kind in (pa.int64(), pa.timestamp("us"), pa.timestamp("ns", "UTC"))
    },
    **{kind: [*NUMBERS, 1 << 30, -(1 << 31)] for kind in (pa.int32(), pa.date32())},
    **{kind: [0.0, -0.0, 1.5, -math.inf] for kind in (pa.float32(), pa.float64())},
    pa.decimal128(4, 2): [Decimal("0.00"), Decimal("-99.99")],
    pa.decimal128(38, 10): [Decimal("0.0000000001"), Decimal("-" + "9" * 28 + "." + "9" * 10)],
}


@pytest.mark.parametrize("kind", OF_FIXED_SIZE, ids=str)
def test_scalars_are_arrows(kind):
    """A bound for a Variant path is the scalar that Arrow makes of the value, to the last digit and the sign of a zero."""
    for value in OF_FIXED_SIZE[kind]:
        found, expected = scalar(value, kind), pa.scalar(value, kind)
        assert found.type == kind
        assert pa.repeat(found, 1).buffers()[1].to_pybytes() == pa.repeat(expected, 1).buffers()[1].to_pybytes()


SCALARS = st.one_of(st.none(), INTEGERS, DECIMALS, st.floats(), TEXTS, DATES, TIMESTAMPS, TIMESTAMPS_NTZ, st.booleans())
OBJECTS = st.one_of(
    st.fixed_dictionaries({"a": SCALARS}, optional={"b": SCALARS}),
    *(st.fixed_dictionaries({"a": kind, "b": kind}) for kind in (INTEGERS, TEXTS, st.floats(), TIMESTAMPS)),
)
PART = st.lists(st.one_of(st.just("SQL NULL"), SPARK_VARIANTS, OBJECTS), max_size=6)


@given(st.one_of(st.lists(PART, min_size=1, max_size=3), st.lists(st.lists(OBJECTS, max_size=6), min_size=1, max_size=3)))
def test_bounds_enclose_every_value(parts):
    """A path with bounds has values of one type, all within the bounds and all in its typed column (B2, B3, M1).

    In rows without the path, the typed column is null. This holds for any rows and the schema inferred from them.
    """
    rows = [row for part in parts for row in part]
    as_type = schema.infer(column(rows))
    if as_type is None:
        return
    shredded = shredding.shred(column(rows), as_type)
    for side, found in zip(("low", "high"), bounds(*parts, as_type=as_type), strict=True):
        for path, bound in found.items():
            keys = paths.parse_normalized(path)
            values = [at(row, keys) for row in rows]
            for value in (value for found in values for value in found):
                assert type(value) is type(bound) or {type(value), type(bound)} <= {int, Decimal}
                a, b = (value.encode(), bound.encode()) if isinstance(value, str) else (value, bound)
                assert a >= b if side == "low" else a <= b
            assert typed(shredded, keys) == [found[0] if found else None for found in values]


def at(row, keys):
    """The value at a path, if there is one."""
    for key in keys:
        if not isinstance(row, dict) or key not in row:
            return []
        row = row[key]
    return [] if isinstance(row, str) and row == "SQL NULL" and not keys else [row]


def typed(shredded, keys):
    """The values of a path by its typed columns alone: `typed_value` of every key on the way, and null under null."""
    array = pc.struct_field(shredded, "typed_value")
    for key in keys:
        array = pc.struct_field(pc.struct_field(array, [array.type.get_field_index(key)]), "typed_value")
    return array.to_pylist()


def test_the_most_useful_paths_are_kept():
    """Numbers and times come first, then short strings, long ones and booleans; of each, paths in every row come first (B4)."""
    row = {"flag": True, "long": "x" * 50, "short": "x", "n": 1, "t": dt.datetime(2024, 1, 1, tzinfo=UTC)}
    rows, as_type = [{**row, "rare": 1}, row], "flag boolean, long string, rare int, short string, n int, t timestamp"
    order = ["n", "t", "rare", "short", "long", "flag"]
    for count in range(1, 7):
        low, _ = bounds(rows, as_type=as_type, max_paths=count)
        assert low.keys() == {f"$['{name}']" for name in order[:count]}


def test_the_bounds_stay_small():
    """Bounds take at most 4,096 characters of the JSON, whatever the number and length of paths and columns (B4)."""
    row = {f"{'k' * 60}{i}": "v" * 40 for i in range(40)} | {f"n{i}": i for i in range(40)}
    array = shredding.shred(column([row]), schema.infer(column([row] * 20)))
    for columns in (1, 2, 5):
        names = [f"v{i}" for i in range(columns)]
        stats = collect(pa.record_batch([array] * columns, names), variants={(name,) for name in names})
        sizes = [len(stats[side][name]) for name in names for side in ("minValues", "maxValues")]
        assert sum(sizes) <= 4096
        assert all(decode_bounds(stats["minValues"][name])["$['n0']"] == 0 for name in names)


def test_columns_inside_structs_and_lists():
    """The bounds of a VARIANT in a struct are under the struct's name; one in an array has only a null count."""
    array = shredding.shred(column([{"a": 1}, "SQL NULL"]), "a bigint")
    plain = column([{"a": 1}, {"a": 2}])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), plain)
    batch = pa.record_batch([pa.StructArray.from_arrays([array, plain], ["v", "p"]), lists], ["s", "l"])
    stats = collect(batch, variants={("s", "v"), ("s", "p"), ("l", "list", "element")})
    assert decode_bounds(stats["minValues"]["s"]["v"]) == {"$['a']": 1}
    assert stats["minValues"].keys() == {"s"}
    assert stats["minValues"]["s"].keys() == {"v"}
    assert stats["nullCount"] == {"s": {"v": 1, "p": 0}, "l": 0}


# ------------------------------------------------------------------------------------- the tag for paths without bounds


def nonnull(*parts, as_type, names=("v",)):
    """What the tag says of a VARIANT column that was written in these parts."""
    text = nonnull_text(*parts, as_type=as_type, names=names)
    return None if text is None else decode_bounds(text)


def nonnull_text(*parts, as_type, names=("v",)):
    """The same as it stands in the log."""
    stats = None
    for rows in parts:
        values = shredding.shred(column(rows), as_type)
        for name in reversed(names[1:]):
            values = pa.StructArray.from_arrays([values], [name])
        batch = pa.record_batch([values], [names[0]])
        stats = stats or FileStats(batch.schema, variants={names}, indexed={names})
        stats.update(batch)
    return stats.tags().get(NONNULL_TAG)


def test_paths_with_json_nulls_are_in_the_tag():
    """The tag has the counts of nulls and of missing paths, and bounds of the other rows; it has no path with bounds (M2)."""
    rows = [{"a": {"b": 1, "c": None}}, {"a": {"b": 2, "c": "x"}, "d": 1}, {"a": {"b": 3}}, "x", "SQL NULL", {"d": None}]
    assert nonnull(rows, [{"a": {"c": "y"}, "d": 7}], ["SQL NULL"], as_type="a struct<b: bigint, c: string>, d bigint") == {
        "$['v']['a']": {"['c']": [1, 5, "x", "y"]},
        "$['v']": {"['d']": [1, 5, 1, 7]},
    }
    assert nonnull([{"a": 1}, {}], as_type="a bigint") is None


def test_paths_without_values_are_in_the_tag():
    """A path without values is in the tag with its counts and no bounds (M2)."""
    assert nonnull([{"a": None}, {}, "SQL NULL"], as_type="a bigint, b string") == {
        "$['v']": {"['a']": [1, 2], "['b']": [0, 3]}
    }


@pytest.mark.parametrize("rows", RULED_OUT.values(), ids=RULED_OUT)
def test_a_value_of_another_type_is_not_in_the_tag(rows):
    """A path in the tag has values of one type, and JSON nulls (M2)."""
    found = nonnull([{"a": 5}], rows, [{"a": None}], as_type="a bigint")
    assert found == ({"$['v']": {"['a']": [2, 0, 5, 5]}} if rows == [{"a": None}] else None)


def test_nan_is_the_largest_number_in_the_tag():
    """NaN is the largest number in the tag, and of NaNs alone the smallest too (M2)."""
    [low, high] = nonnull([{"a": math.nan}, {"a": -1.5}], as_type="a double")["$['v']"]["['a']"][2:]
    assert (low, math.isnan(high)) == (-1.5, True)
    alone = nonnull([{"a": math.nan}], as_type="a double")["$['v']"]["['a']"]
    assert [*map(math.isnan, alone[2:])] == [True, True]


@pytest.mark.parametrize(
    ("as_type", "values"),
    [("a bigint", [5, 300]), ("a decimal(38,4)", [Decimal("-1.5000"), Decimal("900000.2500")])],
)
def test_exact_numbers_have_their_smallest_form_in_the_tag(as_type, values):
    """Whatever the type of the column, the tag has numbers in the narrowest type that holds them (M2, E5)."""
    text = nonnull_text([*({"a": value} for value in values), {"a": None}], as_type=as_type)
    assert text == encode_bounds({"$['v']": {"['a']": [1, 0, *values]}})


def test_bounds_without_an_exact_form_are_null_in_the_tag():
    """A maximum that bounds leave out is a JSON null in the tag, which thus tells that there are values (M2)."""
    texts = {"a": chr(0x10FFFF) * 40}
    assert nonnull([texts, {"a": None}], as_type="a string")["$['v']"]["['a']"] == [1, 0, chr(0x10FFFF) * 32, None]


def test_scalar_roots_and_columns_inside_structs_are_in_the_tag():
    """A path in the tag begins with the column's names; the last step of a scalar Variant is the column's last name (M2)."""
    assert nonnull([1, None, "SQL NULL"], as_type=pa.int64()) == {"$": {"['v']": [1, 1, 1, 1]}}
    assert nonnull([1, None], as_type=pa.int64(), names=("s", "it's")) == {"$['s']": {"['it\\'s']": [1, 0, 1, 1]}}
    assert nonnull([{"a": None}], as_type="a int", names=("s", "w")) == {"$['s']['w']": {"['a']": [1, 0]}}


def test_tags_stay_small():
    """The tags have at most 512 characters, names included; numbers come before strings, of which some fit (M2)."""
    columns = [f"a string with a long name {i}" for i in range(20)] + [f"n{i}" for i in range(5)]
    row = {name: 1 if name.startswith("n") else "text " * 9 for name in columns}
    types = ", ".join(f"`{name}` {'bigint' if name.startswith('n') else 'string'}" for name in columns)
    stats = FileStats(pa.schema([("v", shredding.shred(column([row]), types).type)]), variants={V}, indexed={V})
    stats.update(pa.record_batch([shredding.shred(column([row, dict.fromkeys(columns)]), types)], ["v"]))
    text = stats.tags()[NONNULL_TAG]
    assert len(BOUNDS_TAG + BOUNDS_TAG_VALUE + NONNULL_TAG + text) <= 512
    kept = {path for paths in decode_bounds(text).values() for path in paths}
    assert kept >= {f"['n{i}']" for i in range(5)}
    assert len(kept) > 5


@given(st.lists(st.lists(st.sampled_from([{}, {"a": None}, {"a": 1}, {"a": -3}, "SQL NULL", 7]), max_size=4), min_size=1))
def test_the_tag_or_the_bounds_know_every_path(parts):
    """For any rows in any batches, either the bounds have the path, or the tag has it with its counts and extremes (M2)."""
    rows = [row for part in parts for row in part]
    values = [row["a"] for row in rows if isinstance(row, dict) and row.get("a") is not None]
    nulls = sum(isinstance(row, dict) and row.get("a", 0) is None for row in rows)
    tag = nonnull(*parts, as_type="a bigint")
    if values and not nulls:
        assert tag is None
        assert bounds(*parts, as_type="a bigint") == ({"$['a']": min(values)}, {"$['a']": max(values)})
    else:
        missing = len(rows) - len(values) - nulls
        extremes = [min(values), max(values)] if values else []
        assert tag == {"$['v']": {"['a']": [nulls, missing, *extremes]}}


# --------------------------------------------------------------------------------------------------------- indexed columns

SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("S", pa.struct([("x", pa.int64()), ("Y", pa.struct([("z", pa.string())])), ("v", shredding.UNSHREDDED)])),
        ("l", pa.list_(pa.int64())),
        ("b.c", pa.int64()),
    ]
)
LEAVES = [("a",), ("S", "x"), ("S", "Y", "z"), ("S", "v"), ("l",), ("b.c",)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, LEAVES),
        ({"num_indexed": 3}, LEAVES[:3]),
        ({"num_indexed": 0}, []),
        ({"num_indexed": -1}, LEAVES),
        ({"stats_columns": "s.y, A"}, [("a",), ("S", "Y", "z")]),
        ({"stats_columns": "s", "num_indexed": 1}, [("S", "x"), ("S", "Y", "z"), ("S", "v")]),
        ({"stats_columns": "`b.c`,S.`v`"}, [("S", "v"), ("b.c",)]),
        ({"stats_columns": "b.c"}, []),
        ({"stats_columns": " "}, []),
    ],
)
def test_indexed_columns(options, expected):
    """The leaves in the schema's order, up to a number or by name without regard to case; a VARIANT is one leaf."""
    assert indexed_columns(SCHEMA, {("S", "v")}, **options) == expected


@pytest.mark.parametrize("text", ["a,", ",", "a b", "`a", "a..b"])
def test_a_list_of_columns_that_is_none(text):
    """Text that is no list of column names is an error."""
    with pytest.raises(InvalidSchemaError, match="dataSkippingStatsColumns"):
        indexed_columns(SCHEMA, (), stats_columns=text)


def test_columns_that_are_not_indexed():
    """Columns that are not indexed have neither bounds nor null counts, and a struct without an indexed leaf is not named."""
    batch = pa.RecordBatch.from_pylist([{"a": 1, "S": {"x": 2}}], SCHEMA)
    stats = collect(batch, variants={("S", "v")}, indexed=[("a",)])
    assert stats == {"numRecords": 1, "minValues": {"a": 1}, "maxValues": {"a": 1}, "nullCount": {"a": 0}}
    assert collect(batch, variants={("S", "v")}, indexed=[]) == {"numRecords": 1}
    assert collect(batch, indexed=[], tight_bounds=True) == {"numRecords": 1, "tightBounds": True}


# ------------------------------------------------------------------------------------------- ordinary columns, delta-spark


class Twin:
    """Writes the rows of a query into one file with delta-spark, and returns its statistics and ours of the same rows."""

    def __init__(self, spark, path):
        self.spark, self.path, self.count = spark, path, 0

    def __call__(self, query, properties=None, exact=False):
        self.count += 1
        path, options = f"{self.path}/{self.count}", properties or {}
        frame = self.spark.sql(query).coalesce(1)
        frame.write.format("delta").options(**options).save(path)
        actions = map(json.loads, Path(f"{path}/_delta_log/{0:020d}.json").read_text().splitlines())
        [theirs] = [action["add"]["stats"] for action in actions if "add" in action]
        return [json.loads(text, parse_float=Decimal if exact else float) for text in (theirs, self.ours(frame, options))]

    def ours(self, frame, options):
        table = frame.toArrow()
        variants = {(field.name,) for field in frame.schema if field.dataType.simpleString() == "variant"}
        count, names = (options.get(f"delta.dataSkipping{name}") for name in ("NumIndexedCols", "StatsColumns"))
        indexed = indexed_columns(table.schema, variants, int(count or 32), names)
        stats = FileStats(table.schema, variants=variants, indexed=indexed)
        for batch in table.to_batches(max_chunksize=2):
            stats.update(batch)
        return stats.json()


@pytest.fixture(scope="module")
def twin(spark, tmp_path_factory):
    return Twin(spark, tmp_path_factory.mktemp("twin"))


TIMES = "timestamp_micros(x) t, cast(timestamp_micros(x) as timestamp_ntz) n"
FLOATS = "select cast(x as float) f, cast(x as double) d"
QUERIES = {
    "integers": """select cast(x as byte) b, cast(x as short) s, cast(x as int) i, x l, x * 72057594037927936L m
                   from values (1L), (-128L), (null), (127L) t(x)""",
    "floats": f"{FLOATS} from values ('1.1'), ('-0.3'), (null), ('1e-10'), ('1e10'), ('16777216') t(x)",
    "infinities": f"{FLOATS} from values ('1'), ('-Infinity'), ('Infinity') t(x)",
    "some NaN": f"{FLOATS} from values ('1.5'), ('NaN'), (null), ('Infinity') t(x)",
    "only NaN": f"{FLOATS} from values ('NaN'), (null) t(x)",
    "zeros": f"{FLOATS} from values ('-0.0'), ('0.0') t(x)",
    "extreme doubles": "select cast(x as double) d from values ('4.9e-324'), ('1.7976931348623157e308'), ('-1e-300') t(x)",
    "booleans and binary": "select true b, cast('abc' as binary) x, 1 i",
    "only booleans": "select x from values (true), (null) t(x)",
    "dates": """select x, date_add(date'9999-12-31', y) a, date_add(date'0001-01-01', -y) b
                from values (date'0001-01-01', 1), (date'1582-10-04', 400), (date'2024-02-29', 0), (null, null) t(x, y)""",
    "times": f"select {TIMES} from values (1700000000123456L), (-1700000000123456L), (null) t(x)",
    "times far away": f"select {TIMES} from values (253402300800000001L), (-62135596800000001L) t(x)",
    "ends of time": f"""select {TIMES}, date_from_unix_date(y) d
                        from values (9223372036854775807L, 2147483647), (-9223372036854775808L, -2147483648) t(x, y)""",
    "strings": "select x from values ('b'), ('é'), (null), ('a'), ('') t(x)",
    "strings with escapes": r"""select x from values ('"\\'), ('\t\n'), ('/') t(x)""",
    "long strings": "select repeat(x, 40) s, concat(repeat('z', 32), x) t from values ('é'), ('a'), ('z') t(x)",
    "nested": """select named_struct('p', x, 'q', named_struct('r', cast(x as string), 'b', true), 'l', array(x)) s,
                 if(x = 2, null, named_struct('y', x)) n from values (1), (2), (null) t(x)""",
    "collections": """select array(x) l, map('k', x) m, if(x = 1, null, array(x)) n, if(x = 1, null, map('k', x)) o
                      from values (1), (2) t(x)""",
    "only nulls": "select cast(null as int) i, cast(null as string) s, cast(null as struct<a: int>) t from range(3)",
    "more than 32": f"select {', '.join(f'{i} c{i}' for i in range(30))}, named_struct('a', 1, 'l', array(1), 'c', 3) s, 4 d",
    "exactly 32": f"select {', '.join(f'{i} c{i}' for i in range(32))}, named_struct('a', 1) s",
}


@pytest.mark.spark
@pytest.mark.parametrize("name", QUERIES)
def test_ordinary_columns_are_delta_sparks(twin, name):
    """Statistics of ordinary columns equal those of delta-spark, for every type, extremes, nulls and nesting."""
    theirs, ours = twin(QUERIES[name])
    assert ours == theirs


@pytest.mark.spark
def test_decimals_are_delta_sparks(twin):
    """Statistics of decimals equal those of delta-spark, digit by digit."""
    theirs, ours = twin(
        """select cast(x as decimal(10,2)) a, cast(x as decimal(38,10)) b, cast(x as decimal(5,0)) c,
           cast('1e-38' as decimal(38,38)) d, cast(repeat('9', 38) as decimal(38,0)) e, cast('0.0000001' as decimal(20,10)) f
           from values ('1.1'), ('-300'), (null) t(x)""",
        exact=True,
    )
    assert ours == theirs


@pytest.mark.spark
@pytest.mark.parametrize(
    "properties",
    [
        {"delta.dataSkippingNumIndexedCols": "0"},
        {"delta.dataSkippingNumIndexedCols": "2"},
        {"delta.dataSkippingNumIndexedCols": "-1"},
        {"delta.dataSkippingStatsColumns": "s.D, v"},
        {"delta.dataSkippingStatsColumns": ""},
        {"delta.dataSkippingStatsColumns": "S"},
    ],
)
def test_properties_are_obeyed_like_delta_spark_does(twin, properties):
    """The properties for the number and the list of indexed columns choose the columns that delta-spark chooses."""
    theirs, ours = twin("select 1 a, parse_json('1') v, named_struct('c', 1, 'd', 2) s, array(1) l, 2 z", properties)
    assert ours == theirs


NATIVE = {"variantShredding.parseFooterForStats": "true", "stats.limitPerVariant": "100"}


@pytest.mark.spark
def test_bounds_of_variants_are_delta_sparks(twin, spark):
    """Paths of integers, decimals and strings have the bounds that delta-spark gives them."""
    query = """select parse_json(to_json(named_struct('i', x, 'd', x * 1.25, 's', concat('it''s ', x),
               'o', named_struct('l', x * x), 'r', if(x = 1, null, x), 'n', array(x)))) v from values (1), (2), (3) t(x)"""
    for name, value in NATIVE.items():
        spark.conf.set(f"spark.databricks.delta.{name}", value)
    try:
        theirs, _ = twin(query, {"delta.enableVariantShredding": "true"})
    finally:
        for name in NATIVE:
            spark.conf.unset(f"spark.databricks.delta.{name}")
    array = spark.sql(query).toArrow()["v"].combine_chunks()
    batch = pa.record_batch([shredding.shred(array, schema.infer(array))], ["v"])
    ours = collect(batch, variants={V})
    for side in ("minValues", "maxValues"):
        assert same(decode_bounds(ours[side]["v"]), decode_bounds(theirs[side]["v"]))
    assert decode_bounds(ours["minValues"]["v"])["$['r']"] == 2


@pytest.mark.spark
@given(
    text=st.text(st.sampled_from("a\x7e\x7f\x80é\uffff\U0001f600\U0010ffff"), min_size=25, max_size=80),
    prefix=st.sampled_from([0, 1, 5, 32]),
)
def test_strings_are_cut_like_delta_spark_does(spark, text, prefix):
    """A maximum is cut as delta-spark's own function cuts it."""
    cut = spark._jvm.org.apache.spark.sql.delta.stats.StatisticsCollection.truncateMaxStringAgg(prefix, text)
    extremes = Extremes(pa.string())
    extremes.add(pa.array([text]))
    low, high = json_bounds(extremes, prefix)
    assert (None if high is None else json.loads(high)) == cut
    assert json.loads(low) == text[:prefix]
