"""`parquet.inspect`: what is refused. What it finds is in the tests of the command and of the modules that write."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_variant import errors, parquet
from tests.vectors import EXPECTED, FILES

PARQUET = [name for name, path in FILES.items() if path.suffix == ".parquet"]


@pytest.mark.parametrize("name", PARQUET)
def test_layouts_that_are_not_allowed(name):
    """`inspect` reads the footer of a vector, or raises the kind of error that `read_table` raises for it."""
    try:
        parquet.inspect(FILES[name])
    except errors.DeltaVariantError as error:
        with pytest.raises(type(error)):
            parquet.read_table(FILES[name])


@pytest.mark.parametrize("name", ["shredding/elements-without-a-group", "shredding/fields-without-a-group"])
def test_what_is_no_group(name):
    """A field or an element without a group is an invalid layout, and the error names the file, the column and the path."""
    assert EXPECTED[name]["error"] == "layout"
    with pytest.raises(errors.InvalidLayoutError, match=rf"{name}.parquet: column v: at \$.*a group of value and typed_value"):
        parquet.inspect(FILES[name])


def test_two_levels_of_a_list(tmp_path):
    """A list in place of the group of an element, as a list without its annotation is read, is an invalid layout."""
    kind = pa.struct(
        [pa.field("metadata", pa.binary(), False), ("value", pa.binary()), ("typed_value", pa.list_(pa.list_(pa.int8())))]
    )
    pq.write_table(pa.table({"v": pa.array([], kind)}), tmp_path / "f")
    for read in (parquet.inspect, parquet.read_table):
        with pytest.raises(errors.InvalidLayoutError, match=r"column v: at \$\[\*\]: a group of value and typed_value"):
            read(tmp_path / "f")
