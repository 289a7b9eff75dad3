"""Whole columns: shred and unshred."""

import datetime as dt
import gc
import json
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_variant import binary, layouts, schema, shredding
from delta_variant.errors import DeltaVariantError, InvalidJsonError, InvalidLayoutError, MalformedVariantError
from delta_variant.shredding import json_texts, shredder
from tests.strategies import SCHEMAS, TEXTS, VARIANTS, column, same, trees, values

JSON_VALUES = trees(st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), TEXTS))


def roundtrip(rows, as_type):
    array = column(rows)
    shredded = shredding.shred(array, as_type)
    shredded.validate(full=True)
    assert shredded.type == shredding.storage_type(schema.parse(as_type) if isinstance(as_type, str) else as_type)
    back = shredding.unshred(shredded)
    back.validate(full=True)
    assert all(map(same, values(back), rows)), (values(back), rows)
    return shredded


@given(st.lists(st.one_of(VARIANTS, st.just("SQL NULL")), max_size=8), SCHEMAS)
def test_round_trip(rows, as_type):
    """unshred(shred(x, s)) equals x for any Variants and any schema."""
    roundtrip(rows, as_type)


@given(st.lists(VARIANTS, min_size=1, max_size=8))
def test_round_trip_by_the_inferred_schema(rows):
    """unshred(shred(x, s)) equals x for the schema s that is inferred from x."""
    found = schema.infer(column(rows))
    if found is not None:
        roundtrip(rows, found)


def test_the_feed(feed):
    """unshred(shred(x, s)) equals x for the records of the feed and their inferred schema."""
    found = schema.infer(feed)
    back = shredding.unshred(shredding.shred(feed, found))
    assert all(map(same, values(back), values(feed)))


# The series of VariantShredding, "Objects", without the invalid ones.
EVENTS = [
    {"event_type": "noop", "event_ts": 1729794114937},
    {"event_type": "login", "event_ts": 1729794146402, "email": "user@example.com"},
    {"error_msg": "malformed: ..."},
    "malformed: not an object",
    {"event_ts": 1729794240241, "click": "_button"},
    {"event_type": None, "event_ts": 1729794954163},
    {"event_type": "noop", "event_ts": "2024-10-24"},
    {},
    None,
    "SQL NULL",
]
STORED = [  # value, event_type.value, event_type.typed_value, event_ts.value, event_ts.typed_value
    (None, None, "noop", None, 1729794114937),
    ({"email": "user@example.com"}, None, "login", None, 1729794146402),
    ({"error_msg": "malformed: ..."}, None, None, None, None),
    "malformed: not an object",
    ({"click": "_button"}, None, None, None, 1729794240241),
    (None, "null", None, None, 1729794954163),
    (None, None, "noop", "2024-10-24", None),
    (None, None, None, None, None),
    "null",
    "SQL NULL",
]


def test_the_specification_s_objects():
    """Every row of the specification's table of objects is stored as the table says, missing and null apart (S1, F3)."""
    shredded = roundtrip(EVENTS, "event_type string, event_ts bigint")

    def one(metadata, value):
        if value is None:
            return None
        decoded = binary.decode(metadata, value)
        return "null" if decoded is None else decoded

    for row, stored in zip(shredded.to_pylist(), STORED, strict=True):
        if row is None:
            assert stored == "SQL NULL"
        elif row["typed_value"] is None:
            assert one(row["metadata"], row["value"]) == stored
        else:
            type_, ts = row["typed_value"]["event_type"], row["typed_value"]["event_ts"]
            found = (
                one(row["metadata"], row["value"]),
                one(row["metadata"], type_["value"]),
                type_["typed_value"],
                one(row["metadata"], ts["value"]),
                ts["typed_value"],
            )
            assert found == stored


def test_the_specification_s_arrays():
    """A null element is a Variant null in the element's `value`; a row that is no array is in `value` as a whole (F3)."""
    shredded = roundtrip([["comedy", "drama"], ["horror", None], [], None], "array<string>")
    assert [row["typed_value"] for row in shredded.to_pylist()] == [
        [{"value": None, "typed_value": "comedy"}, {"value": None, "typed_value": "drama"}],
        [{"value": None, "typed_value": "horror"}, {"value": b"\0", "typed_value": None}],
        [],
        None,
    ]
    assert [row["value"] for row in shredded.to_pylist()] == [None, None, None, b"\0"]


FITS = [  # (value, schema, does it go into typed_value)
    (5, "tinyint", True),
    (300, "tinyint", False),
    (5, "bigint", True),
    (2**40, "int", False),
    (5, "decimal(3,2)", True),
    (10, "decimal(3,2)", False),
    (Decimal("1.5"), "decimal(3,2)", True),
    (Decimal("1.50"), "decimal(3,1)", False),
    (Decimal("-9.99"), "decimal(3,2)", True),
    (Decimal("1"), "bigint", False),
    (-(2**63), "decimal(38,18)", True),
    (-(2**63), "decimal(38,20)", False),
    (Decimal(-(10**38) + 1), "decimal(38,0)", True),
    (Decimal("0.0000000000000000000000000000000000001"), "decimal(38,38)", True),
    (7, "decimal(38,37)", True),
    (10, "decimal(38,37)", False),
    (1, "double", False),
    (1.0, "float", False),
    (1.0, "bigint", False),
    ("5", "bigint", False),
    (True, "tinyint", False),
    (True, "boolean", True),
    (dt.date(2020, 1, 1), "timestamp", False),
    (dt.datetime(2020, 1, 1), "timestamp", False),
    (dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc), "timestamp", True),
    (dt.datetime(2020, 1, 1), "timestamp_ntz", True),
    (b"x", "string", False),
    ("x" * 100, "string", True),
]


@pytest.mark.parametrize(("value", "ddl", "typed"), FITS)
def test_what_is_typed(value, ddl, typed):
    """Exact numerics are widened if nothing is lost; no other value is converted; what does not fit stays in `value` (F4)."""
    (row,) = roundtrip([value], ddl).to_pylist()
    assert (row["typed_value"] is not None, row["value"] is None) == (typed, typed)


def test_the_type_of_typed_value_comes_back():
    """unshred writes values in the type of their column, not in the type that they had before shredding (S7)."""
    (row,) = shredding.unshred(shredding.shred(column([5]), "bigint")).to_pylist()
    assert row["value"].hex() == "180500000000000000"
    (row,) = shredding.unshred(shredding.shred(column([5]), "decimal(9,2)")).to_pylist()
    assert row["value"].hex() == "2002f4010000"
    (row,) = shredding.unshred(shredding.shred(column([-0.0]), "double")).to_pylist()
    assert row["value"].hex() == "1c0000000000000080"


def test_slices_chunks_and_storage_forms():
    """Slices, large binaries, dictionaries and the other order of children give the same columns."""
    rows = [{"a": i, "b": [str(i)] * (i % 3)} for i in range(50)]
    array = column(rows)
    ddl = "a bigint, b array<string>"
    expected = shredding.shred(array, ddl).slice(7, 30).to_pylist()
    assert shredding.shred(array.slice(7, 30), ddl).to_pylist() == expected
    large = pa.StructArray.from_arrays(
        [array.field("value").cast(pa.large_binary()), array.field("metadata").dictionary_encode()], ["value", "metadata"]
    )
    assert shredding.shred(large.slice(7, 30), ddl).to_pylist() == expected
    assert values(shredding.unshred(shredding.shred(array, ddl).slice(7, 30))) == rows[7:37]


def test_every_slice_of_a_column_with_nulls():
    """Wherever a slice begins and ends within the bytes of Arrow's validity, its Variants are those of its rows."""
    rows = [
        {**({"a": i} if i % 3 else {}), **({"b": {"c": [None, "x" * i, {"d": i % 2 == 0}][: i % 4]}} if i % 5 else {"b": i})}
        for i in range(40)
    ]
    shredded = shredding.shred(column(rows), "a bigint, b struct<c: array<struct<d: boolean>>>")
    for start in range(18):
        for stop in range(start, 40, 3):
            assert values(shredding.unshred(shredded.slice(start, stop - start))) == rows[start:stop]


def test_many_chunks(monkeypatch):
    """A column larger than a chunk is shredded and unshredded as a whole."""
    monkeypatch.setattr("delta_variant.shredding.shredder.CHUNK_BYTES", 100)
    monkeypatch.setattr("delta_variant.shredding.unshredder.CHUNK_ROWS", 7)
    roundtrip([{"a": i, "b": ["x"] * (i % 4), **({"c": i} if i % 2 else {})} for i in range(100)], "a bigint, b array<string>")


@given(st.lists(st.one_of(VARIANTS, st.just("SQL NULL")), min_size=1, max_size=8), SCHEMAS, st.integers(1, 200))
def test_many_blocks(rows, as_type, count):
    """The blocks of a chunk change nothing: the columns are those of a chunk of one block."""
    array = column((rows * count)[:count])
    expected = shredding.shred(array, as_type)
    with mock.patch.object(shredder, "BLOCK_BYTES", 1):
        shredded = shredding.shred(array, as_type)
    shredded.validate(full=True)
    assert str(shredded.to_pylist()) == str(expected.to_pylist())  # NaN is not equal to itself


def test_the_first_fault_in_many_blocks():
    """The fault that is reported is the first one of the first node that has one, whichever block it is in."""
    metadata, value = binary.encode({"a": 1, "b": 1})
    assert value.endswith(b"\x0c\x01\x0c\x01")
    wrong_b, wrong_a = value[:-2] + b"\xfc\x01", value[:-4] + b"\xfc\x01\x0c\x01"
    rows = [value] * 70 + [wrong_b] + [value] * 70 + [wrong_a] * 2
    array = pa.array([{"metadata": metadata, "value": row} for row in rows], shredding.UNSHREDDED)
    for block_bytes in (1, 1 << 20):
        with mock.patch.object(shredder, "BLOCK_BYTES", block_bytes):
            with pytest.raises(MalformedVariantError, match=r"unknown primitive type \(at \$\.a, row 141\)"):
                shredding.shred(array, "a bigint, b bigint")
            with pytest.raises(MalformedVariantError, match=r"unknown primitive type \(at \$\.b, row 70\)"):
                shredding.shred(array, "b bigint, a bigint")


def test_the_first_fault_of_a_column():
    """The fault that is reported is the first one of the first node that has one, with a list before what follows it."""
    shredded = shredding.shred(column([{"a": [i, "x"], "b": "y"} for i in range(9)]), "a array<bigint>, b bigint")
    fields = shredded.field("typed_value")

    def spoilt(group, slots):
        texts = [b"\xff" if i in slots else text for i, text in enumerate(group.field("value").to_pylist())]
        return pa.StructArray.from_arrays([pa.array(texts, pa.binary()), group.field("typed_value")], fields=list(group.type))

    lists = fields.field("a").field("typed_value")
    elements = pa.ListArray.from_arrays(lists.offsets, spoilt(lists.values, {11, 13}))
    a, b = fields.field("a"), spoilt(fields.field("b"), {2})
    for wrong, place in ((elements, r"element 11 \(at \$\.a\[\*\]\)"), (lists, r"\$\.b, row 2")):
        inner = pa.StructArray.from_arrays([a.field("value"), wrong], ["value", "typed_value"])
        typed = pa.StructArray.from_arrays([inner, b], ["a", "b"])
        array = pa.StructArray.from_arrays([shredded.field("metadata"), typed], ["metadata", "typed_value"])
        with pytest.raises(MalformedVariantError, match=place):
            shredding.unshred(array)


def test_unshred_lets_go_of_a_column():
    """A column that was unshredded, or refused, is freed when the caller drops it."""
    array = column([{"a": i, "b": ["x" * (i % 50)] * (i % 3), "c": {"d": i}} for i in range(20_000)])
    gc.collect()  # what other tests have left
    before = pa.total_allocated_bytes()
    shredded = shredding.shred(array, "a bigint, b array<string>")
    shredding.unshred(shredded)
    wrong = pa.StructArray.from_arrays(
        [shredded.field("metadata"), pa.array([b"\xff"] * len(array)), shredded.field("typed_value")],
        ["metadata", "value", "typed_value"],
    )
    with pytest.raises(MalformedVariantError):
        shredding.unshred(wrong)
    del shredded, wrong
    gc.collect()
    assert pa.total_allocated_bytes() == before


def test_the_memory_of_columns():
    """A column lives as long as any part of it, in any thread, and its memory is freed with the last one."""
    rows = [{"a": i, "b": {"c": ["x" * (i % 50)] * (i % 3)}, "d": None} for i in range(20_000)]
    array, ddl = column(rows), "a bigint, b struct<c: array<string>>, d double"

    def last_part():
        return shredding.shred(array, ddl).field("typed_value").field("b").field("typed_value").field("c").field("typed_value")

    expected, before = last_part().to_pylist(), pa.total_allocated_bytes()
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda _: last_part(), range(20)))
        assert pa.total_allocated_bytes() > before
        assert all(part.to_pylist() == expected for part in parts)
        for done in [pool.submit(parts.pop) for _ in range(20)]:
            done.result()
    del done
    gc.collect()
    assert pa.total_allocated_bytes() == before


def test_an_object_of_many_fields_after_small_ones():
    """Objects may have more fields than the working space of a kernel; rows before them keep their fields and residuals."""
    large = {f"k{i:03}": i for i in range(300)}
    rows = [{"k007": 1, "x": 2}, "text", large, None, {"k299": "no number"}]
    shredded = shredding.shred(column(rows), "k007 bigint, k299 bigint")
    assert shredded.field("typed_value").field("k299").field("typed_value").to_pylist() == [None, None, 299, None, None]
    assert values(shredding.unshred(shredded)) == rows


def test_columns_that_are_not_variants():
    """A column that is no VARIANT, or a typed column of another type, raises InvalidLayoutError."""
    for array in (pa.array([1]), pa.array([{"value": b""}]), shredding.shred(column([1]), "int")):
        with pytest.raises(InvalidLayoutError, match="struct<metadata"):
            shredding.shred(array, "int")
    with pytest.raises(InvalidLayoutError, match=r"at \$\.a: .*uint8"):
        shredding.unshred(
            pa.array(
                [],
                pa.struct(
                    [("metadata", pa.binary()), ("typed_value", pa.struct([("a", pa.struct([("typed_value", pa.uint8())]))]))]
                ),
            )
        )


@pytest.mark.parametrize("function", [
    lambda array: shredding.shred(array, "int"), shredding.unshred, shredding.validate, shredding.plain, layouts.unshred,
])  # fmt: skip
def test_what_is_no_array(function):
    """A column of several chunks is refused with the way out, and what is no column is refused; inference takes the chunks."""
    chunked = pa.chunked_array([column([{"a": 1}]), column([{"a": 2}])])
    with pytest.raises(InvalidLayoutError, match=r"not ChunkedArray: pass column\.combine_chunks\(\)$"):
        function(chunked)
    with pytest.raises(InvalidLayoutError, match="not NoneType"):
        function(None)
    assert schema.infer(chunked) == schema.infer(chunked.combine_chunks())


def test_invalid_rows_are_refused():
    """value and typed_value both set are refused unless both are objects, even if value is a Variant null (S2)."""
    leaf = shredding.storage_type(pa.int64())
    row = {"metadata": b"\x01\x00", "value": b"\x00", "typed_value": 1}
    with pytest.raises(InvalidLayoutError, match="both set"):
        shredding.unshred(pa.array([row], leaf))
    inner = {"a": {"value": None, "typed_value": 1}}
    with pytest.raises(InvalidLayoutError, match="value is not"):
        shredding.unshred(
            pa.array(
                [{"metadata": b"\x01\x01\x00\x01a", "value": b"\x00", "typed_value": inner}],
                shredding.storage_type(schema.parse("a bigint")),
            )
        )


def test_metadata_that_lacks_a_shredded_name():
    """A name that metadata lacks is added to it in the rows that use it, and in no others (S8)."""
    rows = [
        {"metadata": b"\x01\x00", "value": None, "typed_value": {"a": {"value": None, "typed_value": 1}}},
        {"metadata": b"\x01\x00", "value": b"\x00", "typed_value": None},
    ]
    found = shredding.unshred(pa.array(rows, shredding.storage_type(schema.parse("a bigint")))).to_pylist()
    assert [binary.decode(**row) for row in found] == [{"a": 1}, None]
    assert found[1]["metadata"] == b"\x01\x00"


def test_a_rest_that_is_not_sorted():
    """A partly shredded object has its fields in the order of names, whatever their order in `value`, and each once (S7)."""
    metadata = binary.encode_metadata(["a", "b", "c", "d"])

    def partly(*ids):
        value = bytes([2, len(ids), *ids, *range(0, 2 * len(ids) + 1, 2)]) + b"".join(bytes([12, i]) for i in ids)
        typed = {"b": {"value": None, "typed_value": 7}}
        return pa.array([{"metadata": metadata, "value": value, "typed_value": typed}], shredding.storage_type(as_type))

    as_type = schema.parse("b bigint")
    (row,) = shredding.unshred(partly(3, 0, 2)).to_pylist()
    assert binary.decode(**row) == {"a": 0, "b": 7, "c": 2, "d": 3}
    assert row["value"][2:6] == bytes([0, 1, 2, 3])
    with pytest.raises(MalformedVariantError, match="two fields of the same name"):
        shredding.unshred(partly(0, 2, 0))


def test_missing_where_a_value_is_required():
    """A row or an element with neither value nor typed_value is a Variant null (S1)."""
    array = pa.array([{"metadata": b"\x01\x00", "value": None, "typed_value": None}], shredding.storage_type(pa.int64()))
    assert values(shredding.unshred(array)) == [None]
    elements = [{"value": None, "typed_value": None}, {"value": None, "typed_value": 3}]
    array = pa.array(
        [{"metadata": b"\x01\x00", "value": None, "typed_value": elements}], shredding.storage_type(pa.list_(pa.int64()))
    )
    assert values(shredding.unshred(array)) == [[None, 3]]
    groups = pa.list_(pa.field("element", pa.struct([("value", pa.binary()), ("typed_value", pa.int64())])))
    storage = pa.struct([pa.field("metadata", pa.binary(), False), ("typed_value", groups)])
    array = pa.array([{"metadata": b"\x01\x00", "typed_value": [None, elements[1]]}], storage)
    assert values(shredding.unshred(array)) == [[None, 3]]


@pytest.mark.parametrize("ddl", ["bigint", "a bigint", "array<bigint>", "variant", "a struct<b: string>, c array<double>"])
@given(data=st.data())
def test_any_bytes_give_a_column_or_the_error(ddl, data):
    """Mutated Variants are shredded to a valid Arrow array, or raise MalformedVariantError."""
    rows = data.draw(st.lists(VARIANTS, min_size=1, max_size=3))
    mutated = []
    for row in rows:
        metadata, value = (bytearray(b) for b in binary.encode(row))
        for buffer in (metadata, value):
            for _ in range(data.draw(st.integers(0, 3))):
                buffer[data.draw(st.integers(0, len(buffer) - 1))] = data.draw(st.integers(0, 255))
        mutated.append({"metadata": bytes(metadata), "value": bytes(value)[: data.draw(st.integers(0, len(value)))]})
    array = pa.array(mutated, shredding.UNSHREDDED)
    try:
        shredding.shred(array, ddl).validate(full=True)
    except DeltaVariantError as e:
        assert isinstance(e, MalformedVariantError)


def test_overlapping_fields_cannot_blow_up():
    """An object whose fields share one value is malformed, however small it is (E4)."""
    text = binary.encode("x" * 200)[1]
    count = 100
    offsets = bytes(count) + len(text).to_bytes(1, "little")
    value = bytes([2, count]) + bytes(range(count)) + offsets + text
    metadata = binary.encode_metadata([f"{i:02}" for i in range(count)])
    with pytest.raises(MalformedVariantError, match="overlap"):
        shredding.shred(pa.array([{"metadata": metadata, "value": value}], shredding.UNSHREDDED), "a int")


@given(st.lists(st.one_of(JSON_VALUES, st.just("SQL NULL")), max_size=8), SCHEMAS, st.integers(1, 60))
def test_json_texts(rows, as_type, chunk_bytes):
    """shred_json(texts, s) is shred(parse_json(texts), s), wherever a chunk ends, in pieces of an array and in slices too."""
    texts = pa.array([None, *(None if row == "SQL NULL" else json.dumps(row) for row in rows)])
    expected = shredding.shred(binary.parse_json(texts), as_type)
    with mock.patch.object(json_texts, "CHUNK_BYTES", chunk_bytes):
        assert shredding.shred_json(texts, as_type).equals(expected)
        assert shredding.shred_json(texts.slice(1), as_type).equals(expected.slice(1))
        both = shredding.shred_json(pa.chunked_array([texts, texts.slice(1)]), as_type)
        assert both.equals(pa.concat_arrays([expected, expected.slice(1)]))


def test_malformed_json_texts():
    """A malformed text is an error with its row, or a NULL row."""
    texts = pa.array(['{"id": 1}', "{", None, '{"id": 2, "id": 3}'])
    with pytest.raises(InvalidJsonError, match="row 1, byte 1"):
        shredding.shred_json(texts, "id bigint")
    shredded = shredding.shred_json(texts, "id bigint", errors="null", allow_duplicate_keys=True)
    assert [None if v == "SQL NULL" else v for v in values(shredding.unshred(shredded))] == [{"id": 1}, None, None, {"id": 3}]
    assert len(shredding.shred_json(pa.array([], pa.string()), "id bigint")) == 0


# -------------------------------------------------------------------------------------------------------- hostile arrays


@pytest.mark.parametrize("typed", [pa.string(), pa.list_(pa.int64()), pa.int64(), pa.struct([("b", pa.string())])], ids=str)
@pytest.mark.parametrize("claimed", [40_000, 65_536])
def test_children_that_reach_beyond_their_element(typed, claimed):
    """Elements whose children claim the bytes behind them are malformed; their sizes would add up to more than 2 GiB."""
    child = (19 if pa.types.is_list(typed) else 16 << 2, claimed)
    element = bytes([2, 1, 0, 0, 5, child[0]]) + claimed.to_bytes(4, "little")
    count = 65_536
    offsets = b"".join((i * len(element)).to_bytes(4, "little") for i in range(count + 1))
    value = bytes([0b11111]) + count.to_bytes(4, "little") + offsets + element * count + bytes(claimed)
    array = pa.StructArray.from_arrays(
        [pa.array([b"\x11\x01\x00\x01a"], pa.binary()), pa.array([value], pa.binary())], ["metadata", "value"]
    )
    with pytest.raises(MalformedVariantError):
        shredding.shred(array, pa.list_(pa.struct([("a", typed)])))


@pytest.mark.parametrize(
    "element",
    [
        {"typed_value": ["y" * 3000] * 4},
        {"typed_value": [{"a": {"typed_value": 5}}] * 4},
        {"typed_value": [[{"typed_value": n} for n in range(40)]] * 4},
        {"value": [bytes([16 << 2]) + (2000).to_bytes(4, "little") + b"x" * 2000] * 4},
    ],
    ids=["text", "object", "list", "value"],
)
def test_null_elements_above_children_that_are_set(element):
    """An element of a list that is null is a Variant null, although Arrow lets its children hold something."""
    children = [pa.array(rows, pa.binary() if name == "value" else None) for name, rows in element.items()]
    kind = pa.struct([pa.field(name, child.type) for name, child in zip(element, children, strict=True)])
    elements = pa.Array.from_buffers(kind, 4, [pa.py_buffer(b"\x0a")], children=children)
    lists = pa.ListArray.from_arrays(pa.array([0, 4], pa.int32()), elements)
    metadata = column([{"a": 1}]).field("metadata")
    array = pa.StructArray.from_arrays([metadata, lists], ["metadata", "typed_value"])
    [row] = values(shredding.unshred(array))
    assert (row[0], row[2]) == (None, None)
    assert row[1] == row[3] != None  # noqa: E711
    shredding.validate(shredding.unshred(array))
