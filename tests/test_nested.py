"""What is inside types and arrays: its names are those of Parquet, and an array is what is rebuilt from it."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_variant import nested
from tests.versions import needs_pyarrow

INNER = pa.struct([("a", pa.int64()), ("B", pa.list_(pa.string()))])
KINDS = {
    "struct": pa.struct([pa.field("s", INNER, metadata={"k": "v"}), ("n", pa.int8())]),
    "list": pa.list_(pa.field("x", INNER, nullable=False)),
    "large_list": pa.large_list(INNER),
    "fixed_size_list": pa.list_(INNER, 2),
    "map": pa.map_(pa.string(), pa.map_(pa.int32(), INNER)),
}
ROW = {"a": 1, "B": ["x", None]}
ROWS = {
    "struct": [{"s": ROW, "n": 1}, None, {"s": None, "n": None}, {"s": ROW, "n": 2}],
    "map": [[("k", [(1, ROW)])], None, [], [("l", None), ("m", [(2, ROW), (3, None)])]],
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_names_are_those_of_parquet(tmp_path, kind):
    """The names that lead to leaves are those of pyarrow's file, and nothing of a type is lost when it is put together."""
    pq.write_table(pa.table({"c": pa.nulls(0, kind)}), tmp_path / "f")
    columns = pq.read_metadata(tmp_path / "f").schema
    found = [columns.column(i).path for i in range(len(columns))]
    values = [path for path in found if not path.endswith("key_value.key")]
    assert [".".join(names) for names, _ in nested.leaves(kind, ("c",))] == values
    assert nested.with_fields(kind, [field for _, field in nested.children(kind)]).equals(kind, check_metadata=True)


@pytest.mark.parametrize("form", KINDS)
def test_arrays_are_rebuilt(form):
    """An array is equal to what is rebuilt from the arrays inside it, and so is every slice of it."""
    kind = KINDS[form]
    array = pa.array(ROWS.get(form, [[ROW, ROW], None, [ROW, ROW], [ROW, ROW]]), kind)
    for part in (array, array[1:], array[2:3], array[:0]):
        again = nested.rebuilt(part, kind, nested.arrays(part))
        again.validate(full=True)
        assert again.equals(part)


REQUIRED = pa.struct([pa.field("a", pa.int64(), False), pa.field("b", pa.list_(pa.field("x", pa.string(), False)), False)])
BELOW = {
    "struct": pa.struct([pa.field("s", REQUIRED, False), pa.field("u", pa.binary(2), False), pa.field("d", pa.bool_())]),
    "list": pa.list_(REQUIRED),
    "fixed_size_list": pa.list_(pa.field("x", REQUIRED, False), 2),
    "map": pa.map_(pa.string(), pa.field("value", REQUIRED)),
}
ITEM = {"a": 1, "b": ["x", ""]}
ITEMS = {
    "struct": [{"s": ITEM, "u": b"uu", "d": None}, {"s": {"a": 2, "b": []}, "u": b"vv", "d": True}],
    "list": [[ITEM, None], []],
    "fixed_size_list": [[ITEM, ITEM], [ITEM, ITEM]],
    "map": [[("k", ITEM), ("l", None)], []],
}


FIXED = pytest.param("fixed_size_list", marks=needs_pyarrow(26, "does not write NULL in a column of lists of fixed size"))


@pytest.mark.parametrize("form", [FIXED if form in FIXED.values else form for form in BELOW])
def test_nulls_below_nulls_are_filled(tmp_path, form):
    """pyarrow writes an array without nulls below nulls, which is equal to the array, also for slices; other nulls stay."""
    array = pa.array(ITEMS[form], BELOW[form])
    array = pa.concat_arrays([array.take(pa.array([1, None, 0, None])), pa.nulls(2, array.type)])
    for part in (array, array[1:4], array[3:], array[:1], array[:0]):
        field = pa.field("c", part.type)
        filled = nested.without_nulls_below_nulls(part, field)
        filled.validate(full=True)
        assert filled.to_pylist() == part.to_pylist()
        pq.write_table(pa.table([filled], pa.schema([field])), tmp_path / "f")
        assert pq.read_table(tmp_path / "f")["c"].to_pylist() == part.to_pylist()


def test_nulls_that_are_not_below_nulls_stay():
    """An array with a null of a non-nullable field outside of nulls is refused by the writer still."""
    field = pa.field("c", pa.struct([pa.field("a", pa.int64(), False)]))
    array = pa.StructArray.from_arrays(
        [pa.array([None, None, 1])], fields=list(field.type), mask=pa.array([True, False, False])
    )
    assert nested.without_nulls_below_nulls(array, field).field("a").null_count == 2
