"""`parquet.columns`: leaf columns of one file, whatever files were read before."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_variant import nested, shredding
from delta_variant.parquet import columns
from delta_variant.parquet.tables import read_table
from tests.strategies import SPARK_SCHEMAS, VARIANTS, column

PRICES, KEYS = "price decimal(9,2)", list("abcdefghi")


@settings(max_examples=50)
@given(
    rows=st.lists(VARIANTS, min_size=1, max_size=4),
    files=st.lists(st.tuples(st.sampled_from([PRICES, *KEYS]) | SPARK_SCHEMAS, st.booleans()), min_size=2, max_size=12),
)
def test_files_of_equal_and_of_other_schemas(tmp_path_factory, rows, files):
    """Files get the types of their own footers: Arrow's types do not tell physical types of decimals apart."""
    path = tmp_path_factory.getbasetemp() / "one of many.parquet"
    for schema, as_integers in files:
        schema = f"{schema} bigint" if schema in KEYS else schema  # noqa: PLW2901  # as text
        shredded = shredding.shred(column([*rows, {"price": Decimal("1.25")}]), schema)
        table = pa.table({"v": nested.without_nulls_below_nulls(shredded, pa.field("v", shredded.type))})
        pq.write_table(table, path, store_decimal_as_integer=as_integers)
        with path.open("rb") as source:
            parquet = columns.opened(pa.PythonFile(source))
            found = pa.concat_arrays(columns.Columns(parquet, {("v",)}).variants(("v",)))
        assert found.equals(read_table(path)["v"].combine_chunks())
