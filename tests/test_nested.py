"""What is inside types and arrays: its names are those of Parquet, and an array is what is rebuilt from it."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_variant import nested

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
