"""Columns in another shredding schema: the same as Variants that are rebuilt and shredded."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import delta_variant as dv
from delta_variant.errors import DeltaVariantError, UnsupportedFeatureError
from delta_variant.shredding import reshredder
from delta_variant.shredding.reshredder import is_canonical, reshred, with_residuals
from tests.strategies import SCHEMAS, VARIANTS, column, trees
from tests.support import SOAK

KEYS = st.sampled_from("abc")
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1000, 1000),
    st.decimals(-100, 100, places=2),
    st.decimals(-9, 9, places=3),
    st.text(max_size=2),
)
LEAVES = st.sampled_from(
    [pa.int8(), pa.int64(), pa.decimal128(4, 2), pa.decimal128(9, 2), pa.decimal128(18, 3), pa.string(), pa.bool_(), pa.null()]
)
FEW_SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(pa.list_),
        st.dictionaries(KEYS, inner, min_size=1).map(lambda fields: pa.struct(list(fields.items()))),
    ),
    max_leaves=6,
)
"""Schemas that often have paths and types in common."""
METADATA = [dv.binary.encode_metadata(sorted(names)) for names in ("", "a", "ab", "abc")] + [b"\1\2\0\1\2ba", b"\2"]
VALUES = [None, b"\0", b"\0\0", b"\x0c\5", b"\x02\0\0", b"\x02\1\0\0\2\x0c\7", b"\3\0\0", b"\5x", b"", b"\xfc"]
"""Metadata and Variants that another writer may have in their places, or that are malformed."""


def of_schema(kind: pa.DataType) -> st.SearchStrategy:
    """Variants most of which fit a schema."""
    if pa.types.is_struct(kind):
        fields = {field.name: of_schema(field.type) for field in kind}
        return st.fixed_dictionaries({}, optional=fields) if fields else st.just({})
    if pa.types.is_list(kind):
        return st.lists(of_schema(kind.value_type), max_size=3)
    return SCALARS


@st.composite
def columns(draw) -> tuple[pa.StructArray, pa.DataType]:
    """A shredded column, which may be a slice, and another schema."""
    if draw(st.booleans()):
        schemas, others = FEW_SCHEMAS, trees(SCALARS)
    else:
        schemas, others = SCHEMAS, VARIANTS
    own = draw(schemas.filter(lambda kind: not pa.types.is_null(kind)))
    documents = draw(st.lists(st.one_of(of_schema(own), of_schema(own), others, st.just("SQL NULL")), max_size=12))
    array = dv.shredding.shred(column(documents), own)
    return array[draw(st.integers(0, len(array))) :], draw(st.one_of(st.just(own), schemas))


def edited(array: pa.StructArray, data: st.DataObject) -> pa.StructArray:
    """The column as another writer may have it: some residuals and metadata are others, valid or not."""
    rows = array.to_pylist()
    for row in filter(None, rows):
        row["metadata"] = data.draw(st.sampled_from([row["metadata"]] * 5 + METADATA))
        for group in data.draw(st.lists(st.sampled_from(list(groups(row))), max_size=1)):
            group["value"] = data.draw(st.sampled_from(VALUES))
    return pa.array(rows, array.type)


def groups(group: dict):
    """The group and those inside."""
    yield group
    typed = group.get("typed_value")
    for inner in typed.values() if isinstance(typed, dict) else typed if isinstance(typed, list) else ():
        yield from groups(inner)


def result(convert) -> str:
    """The content of a column, NaN and the sign of zero included, and its type; or that it is refused."""
    try:
        array = convert()
    except DeltaVariantError:
        return "an error"
    array.validate(full=True)
    return repr((array.type, array.to_pylist()))


@settings(max_examples=3000 if SOAK else 400, deadline=None)
@given(columns(), st.booleans(), st.data())
def test_the_same_as_rebuilt(given, is_edited, data):
    """The columns, residuals and metadata are those of the Variants shredded to the schema, or both are refused. Rows that can
    be copied are valid."""
    array, schema = given
    array = edited(array, data) if is_edited else array
    rebuilt = result(lambda: dv.shredding.shred(dv.shredding.unshred(array), schema))
    assert result(lambda: reshred(array, schema)) == rebuilt
    if rebuilt != "an error":
        copied = array.filter(pa.array(~with_residuals(array)))
        event("some rows are copied" if len(copied) else "no rows are copied")
        own = dv.shredding.schema_of(array.type)
        assert result(lambda: dv.shredding.shred(dv.shredding.unshred(copied), own)) == result(lambda: copied)


@pytest.mark.parametrize(
    ("own", "wanted"),
    [
        ("a bigint, b string", "a bigint, b string"),
        ("a bigint, b string, rare string", "a bigint, b string"),
        ("a bigint, b string", "a bigint, b string, rare string"),
        ("a bigint, b string", "a decimal(18, 2), b string"),
        ("a decimal(9, 2), b string", "a decimal(18, 3), b string"),
        ("a bigint, b string, c array<struct<d: bigint>>", "b string, a bigint, c array<struct<d: bigint, e: string>>"),
    ],
)
def test_rows_are_copied(own, wanted, monkeypatch):
    """Rows without residuals are copied into schemas with the same or wider types, with fewer fields, and with more."""
    rows = [{"a": n, "b": f"x{n}", "c": [{"d": n}]} if "c array" in own else {"a": n, "b": f"x{n}"} for n in range(50)]
    array = dv.shredding.shred(column([*rows, "SQL NULL", {"a": None}]), own)
    expected = dv.shredding.shred(dv.shredding.unshred(array), wanted)
    monkeypatch.setattr(reshredder, "shred", None)
    assert result(lambda: reshred(array, dv.schema.parse(wanted))) == result(lambda: expected)


def test_metadata_without_a_name():
    """Rows whose metadata lacks a name of their fields get metadata that has it, as Spark needs it."""
    array = dv.shredding.shred(column([{"a": 1}, {"b": 2}, {"a": 1}, {}, {"a": 3}, {"a": 4}]), "a bigint, b bigint")
    metadata = [dv.binary.encode_metadata(names) for names in (["a"], ["a"], ["b"], [], ["a", "b"], ["a"])]
    lacking = pa.StructArray.from_arrays(
        [pa.array(metadata, pa.binary()), array.field("value"), array.field("typed_value")], fields=list(array.type)
    )
    assert with_residuals(lacking).tolist() == [False, True, True, False, False, False]
    expected = dv.shredding.shred(dv.shredding.unshred(lacking), "a bigint, b bigint")
    assert result(lambda: reshred(lacking, dv.schema.parse("a bigint, b bigint"))) == result(lambda: expected)


def test_errors_have_the_row():
    """An error about a row that is rebuilt has its number in the column."""
    array = dv.shredding.shred(column([{"a": 1}] * 7 + [{"t": dt.time(12)}] + [{"a": 2}] * 7), "a bigint, t time")
    with pytest.raises(UnsupportedFeatureError, match=r"\$\.t is a time.*\(row 7\)"):
        reshred(array, dv.schema.parse("a bigint"), for_spark=True)


def test_columns_of_other_forms():
    """Columns that other writers shred in forms of their own are rebuilt: they are not canonical."""
    canonical = dv.shredding.storage_type(dv.schema.parse("a bigint"))
    assert is_canonical(canonical)
    assert not is_canonical(dv.shredding.UNSHREDDED)
    fields = {field.name: field for field in canonical}
    for others in (
        [fields["value"], fields["metadata"], fields["typed_value"]],
        [fields["metadata"], fields["typed_value"]],
        [fields["metadata"], pa.field("value", pa.large_binary()), fields["typed_value"]],
        [fields["metadata"].with_nullable(True), fields["value"], fields["typed_value"]],
    ):
        assert not is_canonical(pa.struct(others))
    assert not is_canonical(pa.struct([fields["metadata"], pa.field("variant_value", pa.binary())]))


@pytest.mark.parametrize(("kind", "unscaled"), [(pa.decimal128(4, 2), 1_234_567), (pa.decimal128(38, 0), 10**38)])
def test_decimals_beyond_their_precision(kind, unscaled):
    """Decimals with more digits than their type, as files of other writers may have them, are not copied."""
    numbers = b"".join(number.to_bytes(16, "little") for number in (123, unscaled, 2))
    typed = pa.Array.from_buffers(kind, 3, [None, pa.py_buffer(numbers)])
    columns = [pa.array([dv.binary.encode_metadata([])] * 3, pa.binary()), pa.nulls(3, pa.binary()), typed]
    array = pa.StructArray.from_arrays(columns, fields=list(dv.shredding.storage_type(kind)))
    assert with_residuals(array).all()
    rebuilt = result(lambda: dv.shredding.shred(dv.shredding.unshred(array), kind))
    assert result(lambda: reshred(array, kind)) == rebuilt
