"""The layouts of older specifications, and metadata that lacks names: rows by hand, and rows rewritten from the final layout.

FUZZ_ROUNDS sets the length of the run of mutated bytes, FUZZ_SEED repeats one.
"""

import io
import os
import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_variant import binary, layouts, schema, shredding
from delta_variant import types as t
from delta_variant.errors import DeltaVariantError, InvalidLayoutError, MalformedVariantError
from delta_variant.shredding.names import complete, used_names
from tests.layouts.writing import B, Writer, encode, names_in
from tests.strategies import SCHEMAS, VARIANTS, column, same, values
from tests.support import length

ROWS = st.lists(st.one_of(VARIANTS, st.just("SQL NULL")), max_size=6)


def older(as_type):
    """The schema without the types that the older specifications lack."""
    if pa.types.is_struct(as_type):
        return pa.struct([field.with_type(older(field.type)) for field in as_type])
    if schema.is_list(as_type):
        return pa.list_(older(as_type.value_type))
    return as_type if pa.types.is_null(as_type) or t.of_arrow(as_type).id <= t.STRING else pa.null()


OLDER_SCHEMAS = SCHEMAS.map(older)


def struct(**fields):
    return pa.struct(list(fields.items()))


def through_parquet(array):
    """The array as pyarrow reads it from a plain file, without an Arrow schema beside it."""
    file = io.BytesIO()
    pq.write_table(pa.table({"v": array}), file, store_schema=False)
    return pq.read_table(file).column("v").combine_chunks()


def read(rows, kind):
    """The Variants of rows in some layout, which must be recognized. From Arrow and from a file they are the same."""
    assert layouts.is_variant(kind)
    array = pa.array(rows, kind)
    back = layouts.unshred(through_parquet(array))
    back.validate(full=True)
    assert back.type == shredding.UNSHREDDED
    assert layouts.unshred(array) == back
    return values(back)


# ------------------------------------------------------------------------------- the final layout rewritten as an older one


def check_rewritten(rows, as_type, writer):
    """A column rewritten in an older layout and read from a file gives the bytes that the final layout gives."""
    shredded = shredding.shred(column(rows), as_type)
    back = layouts.unshred(through_parquet(writer.write(shredded, rows)))
    back.validate(full=True)
    assert back.to_pylist() == shredding.unshred(shredded).to_pylist()


@given(ROWS, OLDER_SCHEMAS, st.sampled_from(["typed_value", "object"]), st.sampled_from(["typed_value", "array"]))
def test_the_draft_s_option_1(rows, as_type, object_, array):
    """Any Variant in any schema comes back from groups of variant_value and typed_value, object or array (S0.2)."""
    check_rewritten(rows, as_type, Writer("variant_value", object_, array))


@given(ROWS, OLDER_SCHEMAS, st.integers())
def test_the_draft_s_options_mixed(rows, as_type, seed):
    """Any Variant comes back if some fields are bare columns, with other values in the variant_value above (S0.2)."""

    def direct(path):
        return not path.endswith("[*]") and bool(random.Random(f"{seed}{path}").getrandbits(1))

    check_rewritten(rows, as_type, Writer("variant_value", direct=direct))


@given(ROWS, OLDER_SCHEMAS)
def test_spark_s_first_layout(rows, as_type):
    """Any Variant in any schema comes back, with the metadata that `binary.encode` gives it (K1)."""
    check_rewritten(rows, as_type, Writer("untyped_value", "object", "array", own=True))


@given(ROWS, SCHEMAS)
def test_the_final_layout(rows, as_type):
    """Columns of the final layout are unshredded as `shredding.unshred` does it."""
    shredded = shredding.shred(column(rows), as_type)
    assert layouts.is_variant(shredded.type)
    assert layouts.unshred(shredded) == shredding.unshred(shredded)


# ------------------------------------------------------------------------------------------------------------- the draft


def draft(value=None, keys=(), **columns):
    """A row of the draft. value: a tuple of the Variant in variant_value, None if that is null."""
    row = {"metadata": binary.encode_metadata(sorted(keys)), **columns}
    return row if value is None else {**row, "variant_value": encode(*value, sorted(keys))}


MEASUREMENT = struct(metadata=B, variant_value=B, typed_value=pa.int64())


def test_the_draft_s_table_of_value_and_typed_value():
    """A row with neither column is a Variant null, variant_value has any type, and typed_value the column's type (S0.1)."""
    rows = [draft(), draft((None,)), draft(("n/a",)), draft((2**40,)), draft(typed_value=34), None]
    assert read(rows, MEASUREMENT) == [None, None, "n/a", 2**40, 34, "SQL NULL"]
    assert layouts.unshred(pa.array(rows, MEASUREMENT))[4]["value"].as_py() == b"\x18\x22" + bytes(7)


@pytest.mark.parametrize("value", ["n/a", {"a": 1}, None])
def test_the_draft_s_invalid_values(value):
    """variant_value beside typed_value is refused unless both are objects (S0.1)."""
    with pytest.raises(InvalidLayoutError, match=r"both set.*\$, row 1"):
        read([draft(), draft((value,), "a", typed_value=1)], MEASUREMENT)
    kind = struct(metadata=B, variant_value=B, typed_value=struct(a=pa.int64()))
    if not isinstance(value, dict):
        with pytest.raises(InvalidLayoutError, match="value is not"):
            read([draft((value,), "a", typed_value={"a": 1})], kind)


def test_the_draft_s_arrays():
    """Elements are in one of their columns, missing ones are Variant nulls, and a row that is no array is in variant_value."""
    element = struct(variant_value=B, typed_value=pa.string())
    kind = struct(metadata=B, variant_value=B, typed_value=pa.list_(element))
    comedy = [{"typed_value": "comedy"}, {"typed_value": "drama"}]
    rows = [comedy, [{"typed_value": "horror"}, {"variant_value": b"\0"}, {}, None], []]
    found = read([*(draft(typed_value=row) for row in rows), draft((["x"],)), draft(("x",)), draft()], kind)
    assert found == [["comedy", "drama"], ["horror", None, None, None], [], ["x"], "x", None]
    with pytest.raises(InvalidLayoutError, match="both set"):
        read([draft(([],), typed_value=comedy)], kind)
    with pytest.raises(InvalidLayoutError, match=r"both set.*, in element 1 \(at \$\[\*\]"):
        read([draft(typed_value=[{}, {"variant_value": b"\0", "typed_value": ""}])], kind)


@pytest.mark.parametrize("offset", [2**31 - 1, -(2**31), -1])
@pytest.mark.parametrize("name", ["metadata", "variant_value"])
def test_offsets_that_lead_out_of_a_buffer(name, offset):
    """Offsets that lead out of their buffers are InvalidLayoutError in a draft, too, whichever rows can be told apart."""
    metadata, value = binary.encode({"id": 1})
    columns = {"metadata": metadata, "variant_value": value}
    arrays = []
    for child, data in columns.items():
        ends = [offset if child == name and n == 2 else n * len(data) for n in range(5)]
        buffers = [None, pa.py_buffer(np.array(ends, np.int32)), pa.py_buffer(data * 4)]
        arrays.append(pa.Array.from_buffers(pa.binary(), 4, buffers))
    with pytest.raises(InvalidLayoutError, match="offsets"):
        layouts.unshred(pa.StructArray.from_arrays(arrays, list(columns)))


def test_a_draft_is_no_final_layout():
    """`validate` and `plain` name the columns that they take, if they get a draft."""
    draft_ = pa.array([{"metadata": b"\x01\0\0", "variant_value": b"\0"}])
    for function in (shredding.validate, shredding.plain):
        with pytest.raises(InvalidLayoutError, match="takes a struct"):
            function(draft_)


EVENT_TS = pa.timestamp("us", "UTC")
OPTION_1 = struct(
    metadata=B,
    variant_value=B,
    typed_value=struct(
        event_type=struct(variant_value=B, typed_value=pa.string()), event_ts=struct(variant_value=B, typed_value=pa.int64())
    ),
)
OPTION_2 = struct(metadata=B, variant_value=B, typed_value=struct(event_type=pa.string(), event_ts=pa.int64()))
EVENT = ["email", "event_type", "event_ts"]


def test_objects_by_option_1():
    """A field whose own columns are null is taken from the object's variant_value, or is missing (S0.3)."""
    rows = [
        draft(keys=EVENT, typed_value={"event_type": {"typed_value": "noop"}, "event_ts": {"typed_value": 1}}),
        draft(({"email": "x"},), EVENT, typed_value={"event_type": {"variant_value": b"\0"}, "event_ts": {}}),
        draft(keys=EVENT, typed_value={"event_type": {}, "event_ts": None}),
        draft(("no object",), EVENT),
        draft(({"event_ts": 5},), EVENT),
        draft(({"event_ts": 5, "email": 6},), EVENT, typed_value={"event_type": {"typed_value": "noop"}, "event_ts": {}}),
    ]
    assert read(rows, OPTION_1) == [
        {"event_type": "noop", "event_ts": 1},
        {"email": "x", "event_type": None},
        {},
        "no object",
        {"event_ts": 5},
        {"event_type": "noop", "event_ts": 5, "email": 6},
    ]


def test_objects_by_option_2():
    """A field whose bare column is null is taken from the object's variant_value, or is missing (S0.3)."""
    rows = [
        draft(keys=EVENT, typed_value={"event_type": "noop", "event_ts": 1}),
        draft(({"email": "x"},), EVENT, typed_value={"event_ts": 1}),
        draft(({"event_type": None, "event_ts": "y"},), EVENT, typed_value={}),
        draft(keys=EVENT, typed_value={}),
        draft(([1],), EVENT),
        draft(keys=EVENT),
    ]
    assert read(rows, OPTION_2) == [
        {"event_type": "noop", "event_ts": 1},
        {"email": "x", "event_ts": 1},
        {"event_type": None, "event_ts": "y"},
        {},
        [1],
        None,
    ]


@pytest.mark.parametrize("kind", [OPTION_1, OPTION_2])
def test_a_field_in_two_places(kind):
    """A field both in the object's variant_value and in its own columns is refused, with an error that names it (S0.3)."""
    field = {"typed_value": 1} if kind == OPTION_1 else 1
    with pytest.raises(InvalidLayoutError, match=r"variant_value has a field that is set .*\$\.event_ts"):
        read([draft(({"event_ts": 1},), EVENT, typed_value={"event_ts": field})], kind)


TAGS = pa.list_(struct(variant_value=B, typed_value=pa.string()))
NESTED_1 = struct(
    metadata=B,
    variant_value=B,
    typed_value=struct(
        event_type=struct(variant_value=B, typed_value=pa.string()),
        event_ts=struct(variant_value=B, typed_value=EVENT_TS),
        location=struct(
            variant_value=B,
            typed_value=struct(
                latitude=struct(variant_value=B, typed_value=pa.float64()),
                longitude=struct(variant_value=B, typed_value=pa.float64()),
            ),
        ),
        tags=struct(variant_value=B, typed_value=TAGS),
    ),
)
NESTED_2 = struct(
    metadata=B,
    variant_value=B,
    typed_value=struct(
        event_type=pa.string(), event_ts=EVENT_TS, location=struct(latitude=pa.float64(), longitude=pa.float64()), tags=TAGS
    ),
)


def test_the_draft_s_nesting():
    """The two schemas of the draft's "Nesting" give the same event."""
    event = {"event_type": "x", "location": {"latitude": 1.5, "longitude": -0.0}, "tags": ["a", None]}
    keys = sorted(["event_type", "event_ts", "location", "latitude", "longitude", "tags", "more"])
    tags = [{"typed_value": "a"}, {"variant_value": b"\0"}]

    def typed(value):
        return {"typed_value": value}

    place = {"latitude": typed(1.5), "longitude": typed(-0.0)}
    one = {"event_type": typed("x"), "location": typed(place), "tags": typed(tags)}
    elsewhere = {**one, "location": {"variant_value": encode({"more": 1}, keys), "typed_value": {}}, "tags": {}}
    rows = [draft(keys=keys, typed_value=one), draft(keys=keys, typed_value=elsewhere)]
    assert read(rows, NESTED_1) == [event, {"event_type": "x", "location": {"more": 1}}]
    two = {"event_type": "x", "location": event["location"], "tags": tags}
    moved = draft(({"location": {"more": 1}, "tags": 1},), keys, typed_value={"event_type": "x"})
    empty = draft(keys=keys, typed_value={"location": {"latitude": 2.0}, "tags": []})
    assert read([draft(keys=keys, typed_value=two), moved, empty], NESTED_2) == [
        event,
        {"event_type": "x", "location": {"more": 1}, "tags": 1},
        {"location": {"latitude": 2.0}, "tags": []},
    ]


def test_the_draft_s_table_of_variants():
    """Every row of the draft's table gives its Variant, from the columns that the notes describe."""
    leaf, keys = struct(variant_value=B, typed_value=pa.string()), "abcd"
    kind = struct(
        metadata=B,
        variant_value=B,
        object=struct(a=struct(variant_value=B, typed_value=pa.int64()), b=struct(variant_value=B, object=struct(c=leaf))),
    )
    array = [{"a": 1, "b": {"c": 2}}, {"a": 3, "b": {"c": 4}}]
    a_123 = {"variant_value": encode(123, keys)}
    table = [
        ({"a": 123, "b": {"c": "hello"}}, {"a": {"typed_value": 123}, "b": {"object": {"c": {"typed_value": "hello"}}}}, None),
        (
            {"a": 1.23, "b": {"c": "123"}},
            {"a": {"variant_value": encode(1.23, keys)}, "b": {"object": {"c": {"typed_value": "123"}}}},
            None,
        ),
        ({"a": 123, "b": {"c": None}}, {"a": a_123, "b": {"object": {"c": {"variant_value": b"\0"}}}}, None),
        ({"a": 123, "b": {}}, {"a": a_123, "b": {"object": {"c": None}}}, None),
        ({"a": 123, "d": 456}, {"a": {"typed_value": 123}, "b": None}, ({"d": 456},)),
        (array, None, (array,)),
    ]
    assert read([draft(rest, keys, object=typed) for _, typed, rest in table], kind) == [variant for variant, _, _ in table]


def nested_array(value):
    """The type of the specifications' nested example, without metadata."""
    leaf = pa.struct([("typed_value", pa.int64()), (value, B)])
    fields = struct(a=pa.struct([(value, B), ("array", pa.list_(leaf))]), b=leaf)
    return pa.struct([(value, B), ("array", pa.list_(pa.struct([(value, B), ("object", fields)])))])


def test_the_draft_s_nested_array():
    """The draft's nested example is read, with elements that are partly shredded, no object, or missing."""
    keys = "abc"

    def element(a, b):
        return {"object": {"a": {"array": [{"typed_value": n} for n in a]}, "b": {"typed_value": b}}}

    first = {**element([1, 2, 3], 100), "variant_value": encode({"c": "unexpected"}, keys)}
    rows = [
        draft(keys=keys, array=[element([1, 2, 3], 100), element([4, 5, 6], 200)]),
        draft(keys=keys, array=[first, element([4, 5, 6], 200), {"variant_value": encode("not an object", keys)}]),
        draft(keys=keys, array=[None, {}, {"object": {"a": {"array": [None]}}}]),
    ]
    assert read(rows, pa.struct([("metadata", B), *nested_array("variant_value")])) == [
        [{"a": [1, 2, 3], "b": 100}, {"a": [4, 5, 6], "b": 200}],
        [{"a": [1, 2, 3], "b": 100, "c": "unexpected"}, {"a": [4, 5, 6], "b": 200}, "not an object"],
        [None, None, {"a": [None]}],
    ]


# ---------------------------------------------------------------------------------------------------- Spark's first layout


def test_spark_s_table_of_variants():
    """Every row of the specification's table gives its Variant, with the metadata of this Variant alone (K1, K3)."""
    leaf = struct(untyped_value=B, typed_value=pa.string())
    kind = struct(
        untyped_value=B,
        object=struct(a=struct(untyped_value=B, typed_value=pa.int64()), b=struct(untyped_value=B, object=struct(c=leaf))),
    )
    array = [{"a": 1, "b": {"c": 2}}, {"a": 3, "b": {"c": 4}}]
    hello = {"object": {"c": {"typed_value": "hello"}}}
    table = [
        ({"a": 123, "b": {"c": "hello"}}, {"object": {"a": {"typed_value": 123}, "b": hello}}),
        (
            {"a": 1.23, "b": {"c": "123"}},
            {"object": {"a": {"untyped_value": own(1.23)}, "b": {"object": {"c": {"typed_value": "123"}}}}},
        ),
        (
            {"a": [1, 2, 3], "b": {"c": None}},
            {"object": {"a": {"untyped_value": own([1, 2, 3])}, "b": {"object": {"c": {"untyped_value": own(None)}}}}},
        ),
        ({"a": 123, "c": 456}, {"object": {"a": {"typed_value": 123}}, "untyped_value": own({"c": 456})}),
        (
            {"a": 123, "b": {"c": "hello", "d": 456}},
            {"object": {"a": {"typed_value": 123}, "b": {**hello, "untyped_value": own({"d": 456})}}},
        ),
        (array, {"untyped_value": own(array)}),
        ({"b": {}}, {"object": {"a": {}, "b": {"object": {}}}}),
        ({}, {"object": {}}),
        (None, {}),
    ]
    assert read([row for _, row in table], kind) == [variant for variant, _ in table]
    back = layouts.unshred(pa.array([row for _, row in table], kind))
    assert [row["metadata"] for row in back.to_pylist()] == [binary.encode(variant)[0] for variant, _ in table]


def test_spark_s_leaves():
    """A leaf is missing, of any type or of the column's type; untyped_value beside typed_value is refused (K2)."""
    kind = struct(object=struct(a=struct(untyped_value=B, typed_value=pa.int64()), b=struct(untyped_value=B)))
    rows = [{"a": {}}, {"a": {"untyped_value": own("x")}}, {"a": {"typed_value": 1}}, {"b": {"untyped_value": own(None)}}]
    assert read([{"object": row} for row in rows], kind) == [{}, {"a": "x"}, {"a": 1}, {"b": None}]
    with pytest.raises(InvalidLayoutError, match=r"both set.*\$\.a"):
        read([{"object": {"a": {"typed_value": 1, "untyped_value": own(None)}}}], kind)


def test_spark_s_nested_array():
    """The specification's nested example is read, with elements that are partly shredded, no object, or missing (K3)."""

    def element(a, b):
        return {"object": {"a": {"array": [{"typed_value": n} for n in a]}, "b": {"typed_value": b}}}

    first = {**element([1, 2, 3], 100), "untyped_value": own({"c": "unexpected"})}
    rows = [
        {"array": [element([1, 2, 3], 100), element([4, 5, 6], 200)]},
        {"array": [first, element([4, 5, 6], 200), {"untyped_value": own("not an object")}]},
        {"array": [None, {"object": {"a": {"untyped_value": own({"z": 1})}}}]},
        {"array": []},
        {"untyped_value": own({"no": "array"})},
    ]
    expected = [
        [{"a": [1, 2, 3], "b": 100}, {"a": [4, 5, 6], "b": 200}],
        [{"a": [1, 2, 3], "b": 100, "c": "unexpected"}, {"a": [4, 5, 6], "b": 200}, "not an object"],
        [None, {"a": {"z": 1}}],
        [],
        {"no": "array"},
    ]
    assert read(rows, nested_array("untyped_value")) == expected
    back = layouts.unshred(pa.array(rows, nested_array("untyped_value")))
    assert [row["metadata"] for row in back.to_pylist()] == [binary.encode(variant)[0] for variant in expected]


def test_where_the_value_starts():
    """The specification's metadata 01 01 00 02 h i ends where the value starts, and is rebuilt with the sorted flag (K1)."""
    value = bytes([2, 1, 0, 0, 2, t.INT8 << 2, 7])
    array = pa.array([{"untyped_value": b"\x01\x01\x00\x02hi" + value}], struct(untyped_value=B))
    (row,) = layouts.unshred(array).to_pylist()
    assert row == {"metadata": b"\x11\x01\x00\x02hi", "value": value}


def test_a_field_that_is_in_untyped_value():
    """A field in untyped_value counts only if its own columns are null (K2)."""
    kind = struct(untyped_value=B, object=struct(a=struct(untyped_value=B, typed_value=pa.int64())))
    rest = own({"a": 1, "b": 2})
    rows = [{"untyped_value": rest, "object": {}}, {"untyped_value": rest, "object": {"a": {"typed_value": 3}}}]
    assert read([*rows, {"untyped_value": rest}], kind) == [{"a": 1, "b": 2}, {"a": 3, "b": 2}, {"a": 1, "b": 2}]


@pytest.mark.parametrize("value", ["untyped_value", "variant_value"])
def test_object_array_and_typed_value_together(value):
    """A group may have object, array and typed_value; if more than one of them is set, it is refused, at any depth (K1)."""

    def group(inner):
        fields = [(value, B), ("object", struct(a=inner)), ("array", pa.list_(inner)), ("typed_value", pa.int64())]
        return pa.struct(fields)

    inner, bytes_ = group(pa.struct([(value, B)])), own if value == "untyped_value" else lambda obj: encode(obj, "ab")
    anything = [
        ({"typed_value": 1}, 1),
        ({"array": [{value: bytes_("x")}, None]}, ["x", None]),
        ({"object": {"a": {value: bytes_({"b": 1})}}}, {"a": {"b": 1}}),
        ({"object": {}, value: bytes_({"b": 1})}, {"b": 1}),
        ({value: bytes_(None)}, None),
    ]
    rows = [row for row, _ in anything] + [{"array": [row for row, _ in anything]}]
    rows += [{"object": {"a": row}} for row, _ in anything]
    expected = [x for _, x in anything] + [[x for _, x in anything]] + [{"a": x} for _, x in anything]
    kind = group(inner)
    if value == "variant_value":
        kind, rows = pa.struct([("metadata", B), *kind]), [draft(keys="ab", **row) for row in rows]
    assert read([*rows, None], kind) == [*expected, "SQL NULL"]
    for two in ({"array": [], "typed_value": 1}, {"object": {}, "array": []}):
        row = {"object": {"a": two}} if value == "untyped_value" else draft(keys="ab", object={"a": two})
        with pytest.raises(InvalidLayoutError, match=r"only one of object, array and typed_value .*\$\.a"):
            layouts.unshred(pa.array([*rows, row], kind))
    clash = {"typed_value": 1, value: bytes_(1)}
    row = {"object": {"a": clash}} if value == "untyped_value" else draft(keys="ab", object={"a": clash})
    with pytest.raises(InvalidLayoutError, match=r"\$\.a"):
        layouts.unshred(pa.array([*rows, row], kind))


@given(st.lists(VARIANTS, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_values_get_the_smallest_form(rows, rng):
    """Values with wide offsets, shuffled children and unused names become what `binary.encode` writes (K1)."""
    stored = []
    for row in rows:
        names = [*names_in(row), "unused", "zz"]
        rng.shuffle(names)
        metadata = bytearray(binary.encode_metadata(names))
        metadata[0] &= ~0x10
        stored.append({"untyped_value": bytes(metadata) + encode(row, names, rng)})
    assert layouts.unshred(pa.array(stored, struct(untyped_value=B))).to_pylist() == column(rows).to_pylist()


def test_large_values():
    """Large objects, arrays and strings and 1,000 levels are read in a column; 1,100 levels are refused (E4)."""
    deep = 1
    for _ in range(500):
        deep = {"d": [deep]}
    rows = [{f"name {i}": [i] * (i % 3) for i in range(1000)}, {"x" * 300: "y" * 70_000}, list(range(70_000)), deep, {}]
    stored = pa.array([{"untyped_value": own(row)} for row in rows], struct(untyped_value=B))
    assert layouts.unshred(stored).to_pylist() == column(rows).to_pylist()
    over = b"\x11\0\0" + binary.encode(1)[1]
    for _ in range(1100):
        over = over[:3] + bytes([3 << 2 | t.ARRAY, 1]) + bytes(4) + (len(over) - 3).to_bytes(4, "little") + over[3:]
    with pytest.raises(MalformedVariantError, match="nested too deeply"):
        layouts.unshred(pa.array([{"untyped_value": over}], struct(untyped_value=B)))


def test_overlapping_children_cannot_blow_up():
    """An array whose elements share their bytes is malformed, however small it is (E4)."""
    text, count = binary.encode("x" * 200)[1], 100
    value = bytes([t.ARRAY, count]) + bytes(count) + len(text).to_bytes(1, "little") + text
    with pytest.raises(MalformedVariantError, match="overlap"):
        layouts.unshred(pa.array([{"untyped_value": b"\x11\0\0" + value}], struct(untyped_value=B)))


# ---------------------------------------------------------------------------------------- recognition, and what is refused


LEAF = struct(untyped_value=B, typed_value=pa.int64())
TYPED_LEAF = struct(typed_value=pa.int64())
SUB = struct(a=pa.int64())
RECOGNISED = [
    struct(metadata=B, value=B),
    struct(metadata=B, value=B, typed_value=pa.uint8()),
    struct(metadata=pa.large_binary(), value=pa.binary_view(), _x=pa.int64()),
    struct(metadata=pa.dictionary(pa.int32(), B), typed_value=pa.string()),
    struct(metadata=B, typed_value=SUB),
    struct(metadata=B, variant_value=B),
    struct(metadata=B, variant_value=B, typed_value=SUB, _spark_x=pa.int64(), _metadata_key_paths=B),
    struct(metadata=B, variant_value=B, unknown=pa.int64()),
    struct(metadata=B, object=struct(a=struct(variant_value=B))),
    struct(untyped_value=B),
    struct(untyped_value=B, _x=SUB),
    struct(untyped_value=B, object=SUB),
    struct(untyped_value=B, typed_value=pa.int64(), unknown=B),
    struct(object=struct(a=LEAF, b=TYPED_LEAF)),
    struct(array=pa.list_(TYPED_LEAF), typed_value=pa.string()),
    struct(array=pa.list_(struct(object=struct(a=struct(array=pa.list_(LEAF))))), _x=B),
]
ORDINARY = [
    B,
    pa.list_(B),
    struct(metadata=B),
    struct(metadata=B, _x=B),
    struct(value=B, typed_value=pa.int64()),
    struct(metadata=pa.string(), value=B),
    struct(metadata=B, value=pa.int64()),
    struct(metadata=B, value=B, unknown=B),
    struct(metadata=B, variant_value=pa.string()),
    struct(metadata=B, object=SUB),
    struct(metadata=B, object=struct(a=struct(b=pa.string()))),
    struct(metadata=B, array=pa.list_(pa.int64())),
    struct(metadata=B, object=struct(a=struct(variant_value=B)), unknown=B),
    struct(untyped_value=pa.string(), typed_value=pa.string()),
    struct(untyped_value=B, unknown=B),
    struct(typed_value=pa.int64()),
    struct(variant_value=B, typed_value=pa.int64()),
    struct(object=SUB),
    struct(object=struct(a=LEAF, b=pa.int64())),
    struct(object=struct(a=TYPED_LEAF), id=pa.int64()),
    struct(array=pa.list_(pa.int64())),
    struct(array=pa.list_(struct(typed_value=SUB))),
    struct(object=pa.string(), array=pa.list_(LEAF)),
]


@pytest.mark.parametrize("kind", RECOGNISED, ids=str)
def test_layouts_that_are_recognised(kind):
    """A struct with the columns of a layout is recognized as a VARIANT; columns that begin with an underscore do not matter."""
    assert layouts.is_variant(kind)


@pytest.mark.parametrize("kind", ORDINARY, ids=str)
def test_structs_that_are_ordinary(kind):
    """A struct that only shares some names with a layout is no VARIANT, unless the file annotates it as one."""
    assert not layouts.is_variant(kind)
    assert layouts.is_variant(kind, annotated=True)


REFUSED = [
    (B, "a VARIANT column is a struct"),
    (struct(typed_value=pa.int64()), "a VARIANT column is a struct"),
    (struct(metadata=B, unknown=B), r"at \$: .*unknown"),
    (struct(metadata=B, value=B, unknown=B), r"at \$: "),
    (struct(metadata=B, variant_value=B, unknown=B), r"at \$: unknown columns \['unknown'\]"),
    (struct(metadata=B, variant_value=B, value=B), r"at \$: "),
    (
        struct(metadata=B, variant_value=B, typed_value=struct(a=struct(typed_value=B, x=B))),
        r"at \$\.a: unknown columns \['x'\]",
    ),
    (struct(metadata=B, variant_value=B, typed_value=struct(a=pa.uint8())), r"at \$\.a: .*uint8"),
    (struct(metadata=B, variant_value=B, typed_value=pa.time64("us")), r"at \$: .*time64"),
    (struct(metadata=B, variant_value=B, typed_value=pa.list_(pa.list_(pa.uint8()))), r"at \$\[\*\]\[\*\]: .*uint8"),
    (struct(metadata=B, variant_value=B, typed_value=pa.struct([("a", B), ("a", B)])), r"at \$: .*each of them once"),
    (struct(metadata=B, variant_value=B, object=struct(a=B), typed_value=struct(a=B)), r"at \$: one struct"),
    (struct(metadata=B, variant_value=B, array=SUB), r"at \$: array is a list"),
    (struct(metadata=pa.string(), variant_value=B), r"at \$: metadata is binary"),
    (pa.struct([("metadata", B), ("variant_value", B), ("variant_value", B)]), r"at \$: .*once"),
    (
        struct(metadata=B, variant_value=B, typed_value=struct(a=struct(variant_value=pa.string()))),
        r"\$\.a: variant_value is binary",
    ),
    (struct(untyped_value=B, typed_value=pa.int64(), metadata=pa.string(), value=B), r"at \$: "),
    (struct(untyped_value=B, object=struct(a=pa.int64())), r"at \$\.a: untyped_value.*int64"),
    (struct(untyped_value=B, object=struct(a=struct(untyped_value=B, x=B))), r"at \$\.a: unknown columns \['x'\]"),
    (struct(untyped_value=B, typed_value=SUB), r"at \$: .*struct"),
    (struct(untyped_value=B, array=pa.list_(pa.int64())), r"at \$\[\*\]: "),
]


@pytest.mark.parametrize(("kind", "message"), REFUSED, ids=lambda case: str(case)[:60])
def test_types_that_are_refused(kind, message):
    """A type or a column that no layout has is an error that names the place."""
    for rows in ([], [None]):
        with pytest.raises(InvalidLayoutError, match=message):
            layouts.unshred(pa.array(rows, kind))


def test_columns_that_an_underscore_hides():
    """Columns that begin with an underscore are ignored; fields of objects with such names are ordinary fields."""
    kind = struct(
        metadata=B,
        variant_value=B,
        _x=pa.int64(),
        typed_value=struct(_id=pa.int64(), a=struct(variant_value=B, typed_value=pa.int64(), _y=struct(z=B))),
    )
    keys = ["_id", "a"]
    row = draft(keys=keys, _x=5, typed_value={"_id": 1, "a": {"typed_value": 2, "_y": {"z": b""}}})
    assert read([row], kind) == [{"_id": 1, "a": 2}]
    kind = struct(untyped_value=B, _x=pa.int64(), object=struct(_id=struct(typed_value=pa.int64(), _y=pa.int64())))
    assert read([{"_x": 5, "object": {"_id": {"typed_value": 1}}}, {"object": {"_id": {"_y": 5}}}], kind) == [{"_id": 1}, {}]


def test_names_that_are_those_of_columns():
    """Fields named object and array are read as ordinary fields."""
    kind = struct(
        metadata=B, variant_value=B, typed_value=struct(ref=struct(object=struct(sha=pa.string())), object=B, array=B)
    )
    row = {"ref": {"object": {"sha": "x"}}, "array": b"y"}
    assert read([draft(keys=["ref", "object", "sha", "array"], typed_value=row)], kind) == [row]


# --------------------------------------------------------------------------------------------- slices, chunks, storage forms


def test_slices_chunks_and_storage_forms(monkeypatch):
    """Slices, chunks, views and values under NULL rows make no difference, even if all fields and elements are bare (S0.2)."""
    rows = [{"a": i, "b": [str(i)] * (i % 3), **({"c": i} if i % 7 else {})} if i % 5 else "SQL NULL" for i in range(100)]
    shredded = shredding.shred(column(rows), "a bigint, b array<string>")
    for writer in (Writer("variant_value", direct=lambda path: True), Writer("untyped_value", "object", "array", own=True)):
        stored = writer.write(shredded, rows)
        expected = layouts.unshred(stored)
        assert all(map(same, values(expected), rows))
        assert layouts.unshred(stored[13:77]) == expected[13:77]
        view = pa.struct([f.with_type(pa.binary_view()) if f.type == B else f for f in stored.type])
        assert layouts.unshred(stored.cast(view)) == expected
        with monkeypatch.context() as patch:
            patch.setattr(layouts, "CHUNK_ROWS", 7)
            assert layouts.unshred(stored) == expected
        hidden = pa.StructArray.from_arrays(
            [stored.field(i) for i in range(stored.type.num_fields)],
            fields=list(stored.type),
            mask=pa.array([i % 2 == 0 or row is None for i, row in enumerate(stored.to_pylist())]),
        )
        nulls = [row if row is not None and i % 2 else None for i, row in enumerate(expected.to_pylist())]
        assert layouts.unshred(hidden).to_pylist() == nulls
    monkeypatch.setattr(layouts, "CHUNK_ROWS", 49)
    stored = [{"untyped_value": own(1)}] * 100 + [{"untyped_value": b"\x11\0\0\xff"}]
    with pytest.raises(MalformedVariantError, match=r"row 100\)"):
        layouts.unshred(pa.array(stored, struct(untyped_value=B)))


def test_lists_of_other_forms():
    """Large lists and list views are read as arrays, without the elements under null lists."""
    elements = pa.array([{"untyped_value": own(i)} for i in range(6)], struct(untyped_value=B))
    null = pa.array([False, True, False])
    for kind in (pa.ListArray, pa.LargeListArray):
        lists = kind.from_arrays(pa.array([0, 2, 4, 6], pa.int64() if kind is pa.LargeListArray else None), elements, mask=null)
        assert values(layouts.unshred(pa.StructArray.from_arrays([lists], ["array"]))) == [[0, 1], None, [4, 5]]
    lists = pa.ListViewArray.from_arrays(pa.array([4, 0, 0], pa.int32()), pa.array([2, 0, 3], pa.int32()), elements)
    assert values(layouts.unshred(pa.StructArray.from_arrays([lists], ["array"]))) == [[4, 5], [], [0, 1, 2]]


@pytest.mark.parametrize("form", [pc.run_end_encode, pc.dictionary_encode, lambda array: array.cast(pa.large_binary())])
def test_forms_of_bytes(form):
    """metadata and variant_value may be run-end- or dictionary-encoded, or large binary, with NULL rows."""
    rows = [{"a": "x"}, "SQL NULL", {"a": "x"}, [1]]
    plain = column(rows)
    parts = [form(plain.field(i)) for i in range(2)]
    array = pa.StructArray.from_arrays(parts, ["metadata", "variant_value"], mask=plain.is_null())
    assert layouts.is_variant(array.type)
    assert values(layouts.unshred(array)) == rows
    assert values(layouts.unshred(array[1:])) == rows[1:]


def test_metadata_of_the_draft_that_lack_names():
    """In the draft, too, metadata may lack names that only typed columns use (S8)."""
    assert read([draft(keys=["email"], typed_value={"event_type": "x"})], OPTION_2) == [{"event_type": "x"}]


# ---------------------------------------------------------------------------------------------------------- malformed bytes


ROUNDS = length("FUZZ_ROUNDS", 400, 1000)
SEED = int(os.environ.get("FUZZ_SEED", str(random.randrange(2**32))))


def mutated(data, rng):
    """Bytes after flips, overwritten sizes, truncations and insertions."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(max(1, min(len(data), rng.choice([4, 16, 1000]))))
        action = rng.randrange(4)
        if action == 0 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif action == 1:
            data[at : at + 4] = rng.choice([b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\0", b"\xff", b"\0"])
        elif action == 2:
            del data[at:]
        else:
            data[at:at] = data[: rng.randrange(9)]
    return bytes(data)


def around(array, filler):
    """The array between two rows whose bytes are all the filler."""
    rows = array.to_pylist()

    def filled(value):
        if isinstance(value, dict):
            return {key: filled(child) for key, child in value.items()}
        return filler * 40 if isinstance(value, bytes) else value

    return pa.array([filled(rows[0]), *rows, filled(rows[0])], array.type).slice(1, len(rows))


def test_mutated_bytes(record_property):
    """Mutated values and metadata give a column or an error of this package, whatever bytes are around them."""
    record_property("seed", SEED)
    rng = random.Random(SEED)
    rows = [
        {"a": 1, "b": {"c": "é" * 40, "d": [1, None, {"e": True}]}, "f": 2},
        [{"a": {"z": "y"}}],
        {f"k{i}": i for i in range(300)},
    ]
    schemas = [
        schema.parse(ddl) for ddl in ("a string, b struct<d: array<struct<a: int>>>", "array<struct<a: string>>", "variant")
    ]
    writers = [Writer("untyped_value", "object", "array", own=True), Writer("variant_value", direct=lambda path: len(path) % 2)]
    good = 0
    for round_ in range(ROUNDS):
        row, as_type, writer = rng.choice(rows), rng.choice(schemas), rng.choice(writers)
        array = writer.write(shredding.shred(column([row]), as_type), [row])

        def change(value):
            if isinstance(value, dict):
                return {key: change(child) for key, child in value.items()}
            if isinstance(value, list):
                return [change(child) for child in value]
            return mutated(value, rng) if isinstance(value, bytes) and rng.random() < 0.5 else value

        broken = pa.array([change(array.to_pylist()[0])], array.type)
        outcomes = []
        for filler in (b"\0", b"\xff"):
            try:
                back = layouts.unshred(around(broken, filler))
                back.validate(full=True)
                outcomes.append(back.to_pylist())
                good += 1
            except DeltaVariantError as error:
                assert isinstance(error, (MalformedVariantError, InvalidLayoutError))
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1], (f"FUZZ_SEED={SEED}, round {round_}", broken)
    assert 0 < good < 2 * ROUNDS


# ---------------------------------------------------------------------------------------------- metadata that lacks names


def test_arrow_s_worked_example():
    """The rows of Arrow's shredded object, whose metadata lacks the shredded names, get these names and are read (S8)."""

    def metadata(*names):
        return binary.encode_metadata(list(names)).replace(b"\x11", b"\x01", 1) if names else b"\x01\x00"

    def row(name, value, type_=None, ts=None):
        fields = None if type_ == ts == "no object" else {"event_type": type_ or {}, "event_ts": ts or {}}
        rest = None if value is None else encode(value, [name])
        return {"metadata": metadata(name) if name else metadata(), "value": rest, "typed_value": fields}

    typed = [{"typed_value": text} for text in ("noop", "login")]
    kind = struct(
        metadata=B,
        value=B,
        typed_value=struct(event_type=struct(value=B, typed_value=pa.string()), event_ts=struct(value=B, typed_value=EVENT_TS)),
    )
    ts = [{"typed_value": n} for n in (1729794114937, 1729794146402, 1729794240241, 1729794954163)]
    rows = [
        row("", None, typed[0], ts[0]),
        row("email", {"email": "user@example.com"}, typed[1], ts[1]),
        row("error_msg", {"error_msg": "malformed..."}),
        row("", "malformed: not an object", "no object", "no object"),
        row("click", {"click": "_button"}, None, ts[2]),
        row("", None, {"value": b"\0"}, ts[3]),
        row("", None, typed[0], {"value": encode("2024-10-24", [])}),
        row("", None),
        row("", None, "no object", "no object") | {"value": b"\0"},
        None,
    ]
    array = pa.array(rows, kind)
    completed = complete(array)
    before, after = ([x and x["metadata"] for x in a.to_pylist()] for a in (array, completed))
    assert [a == b for a, b in zip(before, after, strict=True)] == [
        False,
        False,
        True,
        True,
        False,
        False,
        False,
        True,
        True,
        True,
    ]
    assert after[0] == binary.encode_metadata(["event_ts", "event_type"])
    assert (after[1][0], after[4][0]) == (0x11, 0x11)  # still sorted: "email" and "click" are before the appended names
    assert binary.decode_metadata(after[4]) == ["click", "event_ts"]
    assert layouts.unshred(completed) == layouts.unshred(array)
    assert [x if isinstance(x, str) or x is None else sorted(x) for x in values(layouts.unshred(array))] == [
        ["event_ts", "event_type"],
        ["email", "event_ts", "event_type"],
        ["error_msg"],
        "malformed: not an object",
        ["click", "event_ts"],
        ["event_ts", "event_type"],
        ["event_ts", "event_type"],
        [],
        None,
        "SQL NULL",
    ]


class Reduced(Writer):
    """The final layout, with metadata that has only the names used in `value`."""

    def group(self, row, original, kind, path):
        if path != "$":
            return super().group(row, original, kind, path)
        self.found = set()
        super().group(row, original, kind, path)
        self.keys, self.found = sorted(self.found, key=str.encode), None
        return {**super().group(row, original, kind, path), "metadata": binary.encode_metadata(self.keys)}

    def encode(self, obj):
        if self.found is None:
            return super().encode(obj)
        self.found.update(names_in(obj))
        return b""


@given(ROWS, OLDER_SCHEMAS)
def test_metadata_without_the_shredded_names(rows, as_type):
    """Names that only typed columns use are appended in the rows that use them; existing ids stay valid (S8)."""
    shredded = shredding.shred(column(rows), as_type)
    stored = Reduced("value").write(shredded, rows)
    completed = complete(stored)
    completed.validate(full=True)
    assert all(map(same, values(shredding.unshred(completed)), values(shredding.unshred(shredded))))
    names, used = used_names(stored)
    for before, after, flags in zip(stored.to_pylist(), completed.to_pylist(), used, strict=True):
        if before is None:
            assert after is None
            continue
        old, new = (binary.decode_metadata(row["metadata"]) for row in (before, after))
        lacks = {name for name, flag in zip(names, flags, strict=True) if flag} - set(old)
        assert new == old + sorted(lacks, key=str.encode)
        assert lacks or before["metadata"] == after["metadata"]
        assert not lacks or (after["metadata"][0] & 0x10 != 0) == (new == sorted(new, key=str.encode))
        assert {**after, "metadata": None} == {**before, "metadata": None}
    assert complete(completed) == completed


def test_which_names_a_row_uses(monkeypatch):
    """A row uses a name if a column of the field is set in it, or in one of its elements, and all columns above are set."""
    kind = shredding.storage_type(schema.parse("a int, l array<struct<x: int, a: struct<y: variant>>>"))
    x, y = (
        {"typed_value": {"x": {"typed_value": 1}, "a": {}}},
        {"typed_value": {"x": {}, "a": {"typed_value": {"y": {"value": b"\0"}}}}},
    )

    def row(a, elements):
        return {"metadata": b"\x01\0", "typed_value": {"a": a, "l": {"typed_value": elements}}}

    rows = [row({}, None), row({"value": b"\0"}, []), row({}, [x, x]), None, row({}, [{"value": b"\0"}, y])]
    names, used = used_names(pa.array(rows, kind))
    assert names == ["a", "l", "x", "y"]
    assert [[names[n] for n in np.flatnonzero(flags)] for flags in used] == [[], ["a", "l"], ["l", "x"], [], ["a", "l", "y"]]
    expected = complete(pa.array(rows, kind))
    monkeypatch.setattr("delta_variant.shredding.names.MATRIX", 5)
    assert complete(pa.array(rows, kind)) == expected
    assert complete(pa.array(rows, kind)[2:]) == expected[2:]


def own(obj):
    return b"".join(binary.encode(obj))
