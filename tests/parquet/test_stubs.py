"""Closed objects: files keep every Variant, and no object keeps a residual as long as there is room for stubs."""

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_variant import binary, schema, shredding
from delta_variant.errors import InvalidSchemaError, MalformedVariantError
from delta_variant.parquet import FileWriter, footer, read_table, stubs, write_table
from tests.strategies import KEYS, SCHEMAS, SPARK_VARIANTS, column, same, values

INTEGERS = st.integers(1 - 10**38, 10**38 - 1)  # of at most 38 digits
DOCUMENTS = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"id": st.integers(0, 9), "o": st.one_of(st.none(), st.dictionaries(KEYS, SPARK_VARIANTS, max_size=4))},
            optional={"a": INTEGERS, "b": SPARK_VARIANTS, "A": st.just(1), "é": st.text(), "": st.just(0)},
        ),
        SPARK_VARIANTS,
        st.just("SQL NULL"),
    ),
    min_size=1,
    max_size=40,
)
SHREDDED = ["id bigint, o struct<a: bigint, c: struct<x: string>>", "id bigint", "o struct<a: string>", "a variant, b double"]


@pytest.fixture(scope="module", autouse=True)
def room():
    """Room for stubs in row groups of a few bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stubs, "SHARE", 1 << 40)
        yield


def write(path, documents, shred, *, in_struct=False, batch=7, closed=True, **options):
    """Writes a VARIANT column, alone or in a struct that is null in every fifth row."""
    names, array = ("v",), shredding.shred(column(documents), shred)
    if in_struct:
        is_null = pa.array([row % 5 == 4 for row in range(len(documents))])
        names, array = ("s", "v"), pa.StructArray.from_arrays([array], names=["v"], mask=is_null)
    table = pa.table({names[0]: array, "row": pa.array(range(len(documents)))})
    with FileWriter(path, table.schema, variants=[names], closed=[names] if closed else [], **options) as file:
        for part in table.to_batches(max_chunksize=batch):
            file.write(part)


def chunks(path, *names):
    """The column chunks of a leaf column, one for each row group."""
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    at = [column.path for column in map(metadata.schema.column, range(metadata.num_columns))].index(".".join(names))
    return [group.column(at) for group in groups]


def is_closed(path, *names):
    """Whether the `value` of an object is null in every row."""
    return all(chunk.statistics.null_count == chunk.num_values for chunk in chunks(path, *names, "value"))


@given(
    DOCUMENTS,
    st.one_of(st.sampled_from(SHREDDED), SCHEMAS),
    st.integers(1, 5000),
    st.sampled_from(["zstd", "none", "snappy", "gzip", "lz4", "brotli"]),
    st.booleans(),
    st.integers(1, 9),
)
def test_every_variant_is_kept(tmp_path_factory, documents, shred, group, compression, in_struct, batch):
    """Files with closed objects hold the same Variants, in any number of row groups, and in structs that are null (F8).

    The footer passes the checks of `footer.checked`, which `read_table` makes.
    """
    path = tmp_path_factory.mktemp("closing") / "f"
    write(path, documents, shred, in_struct=in_struct, batch=batch, row_group_bytes=group, compression=compression)
    table = read_table(path)
    found = [value for chunk in (table["s"] if in_struct else table["v"]).chunks for value in chunk_values(chunk, in_struct)]
    expected = ["SQL NULL" if in_struct and row % 5 == 4 else document for row, document in enumerate(documents)]
    assert all(map(same, found, expected))
    assert table["row"].to_pylist() == list(range(len(documents)))


def chunk_values(chunk, in_struct):
    """The Python values of a VARIANT column, which may be in a struct."""
    return (
        values(pa.array([row and row["v"] for row in chunk.to_pylist()], chunk.type.field("v").type))
        if in_struct
        else values(chunk)
    )


@given(DOCUMENTS, st.sampled_from(SHREDDED), st.integers(1, 3000))
def test_keys_stand_in_one_place(tmp_path_factory, documents, shred, group):
    """No residual of an object has a key that is a field of its `typed_value`, which VariantShredding forbids (F8)."""
    path = tmp_path_factory.mktemp("closing") / "f"
    write(path, documents, shred, row_group_bytes=group)
    for row in pq.read_table(path)["v"].to_pylist():
        if row is not None:
            check_apart(row["metadata"], row)


def check_apart(metadata, group):
    typed, value = group.get("typed_value"), group.get("value")
    if isinstance(typed, dict):
        assert value is None or not binary.decode(metadata, value).keys() & typed.keys()
        for child in typed.values():
            check_apart(metadata, child)


def test_a_key_may_come_up_in_any_row_group(tmp_path):
    """All keys of a file have columns, whichever row group they come up in, whatever their values (F8)."""
    documents = [{"id": n, "o": {"a": n}} for n in range(400)]
    for row, key in enumerate(["first", "x", "null", "late", "x", "object"]):
        documents[70 * row][key] = [1, "text", None, True, 2.5, {"deep": [1]}][row]
    documents[333]["o"]["inner"] = b"\1"
    write(tmp_path / "f", documents, SHREDDED[0], row_group_bytes=4000)
    assert pq.read_metadata(tmp_path / "f").num_row_groups > 4
    assert is_closed(tmp_path / "f", "v")
    assert is_closed(tmp_path / "f", "v", "typed_value", "o")
    counts = [
        sum(chunk.num_values - chunk.statistics.null_count for chunk in chunks(tmp_path / "f", "v", "typed_value", "x", leaf))
        for leaf in ("value", "typed_value")
    ]
    assert counts == [1, 1]  # a number, and before it the text, whose type the stub has
    nulls = [c.statistics for c in chunks(tmp_path / "f", "v", "typed_value", "null", "value") if c.statistics.has_min_max]
    assert [(statistics.min, statistics.max) for statistics in nulls] == [(b"\0", b"\0")]
    write(tmp_path / "g", documents, SHREDDED[0], row_group_bytes=4000, closed=False)
    assert not is_closed(tmp_path / "g", "v")


def test_what_cannot_be_closed(tmp_path, monkeypatch):
    """Objects keep their residuals if there are too many keys, or a name that other readers cannot read (F8)."""
    monkeypatch.setattr(stubs, "MAX_STUBS", 3)
    documents = [{"id": n, **extra} for n, extra in enumerate([{}, {"x": 1}, {"y": 1}, {"z": 1, "x": 2}])]
    write(tmp_path / "f", documents, "id bigint")
    assert is_closed(tmp_path / "f", "v")
    for extra in ({"w": 1}, {"": 1}, {"a\0b": 1}, {"ID": 1}, {"X": 1}, {"n" * 257: 1}):
        write(tmp_path / "f", [*documents, {"id": 9, **extra}], "id bigint")
        assert not is_closed(tmp_path / "f", "v")
        assert pq.read_metadata(tmp_path / "f").num_columns == 5  # row, metadata, value, and two of id
    write(tmp_path / "f", [*documents, {"id": "no number"}], "id bigint")
    assert is_closed(tmp_path / "f", "v")
    assert not is_closed(tmp_path / "f", "v", "typed_value", "id")


def test_long_values_are_in_several_pages(tmp_path):
    """A stub with more than a MiB has more pages, whose rows the offset index tells."""
    documents = [{"id": n, **({"x": str(n) * 100_000} if n % 3 else {})} for n in range(99)]
    write(tmp_path / "f", documents, "id bigint")
    assert all(map(same, values(read_table(tmp_path / "f")["v"].combine_chunks()), documents))
    [chunk] = chunks(tmp_path / "f", "v", "typed_value", "x", "value")
    assert chunk.num_values == 99
    assert chunk.has_offset_index


def test_many_values_are_in_several_pages(tmp_path):
    """The numbers and booleans of a stub follow each other from page to page, and from batch to batch."""
    texts = [f'{{"id": {n}, "x": {n * n}, "y": {"true" if n % 3 else "false"}}}' for n in range(300_000)]
    array = shredding.shred(binary.parse_json(pa.array(texts)), "id bigint")
    batch = pa.record_batch([array], ["v"])
    with FileWriter(tmp_path / "f", batch.schema, variants=[("v",)], closed=[("v",)]) as file:
        for start in range(0, len(batch), 70_001):
            file.write(batch.slice(start, 70_001))
    stub = pc.struct_field(pq.read_table(tmp_path / "f")["v"].combine_chunks(), ["typed_value"])
    assert pc.struct_field(stub, ["x", "typed_value"]).to_pylist() == [n * n for n in range(300_000)]
    assert pc.struct_field(stub, ["y", "typed_value"]).to_pylist() == [n % 3 > 0 for n in range(300_000)]


def test_footers_add_up(tmp_path):
    """The sizes of a row group are the sums of those of its columns, stubs included, and each has an order."""
    write(tmp_path / "f", [{"id": n, f"k{n}": n} for n in range(50)], "id bigint", row_group_bytes=1500)
    metadata = pq.read_metadata(tmp_path / "f")
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = [group.column(i) for i in range(group.num_columns)]
        assert group.total_byte_size == sum(column.total_uncompressed_size for column in columns)
    assert metadata.num_columns == 5 + 2 * 50
    assert footer.variant_groups(footer.of(pa.OSFile(str(tmp_path / "f")))) == {("v",)}


def test_duckdb_reads_stubs(tmp_path):
    """DuckDB gives the same values with stubs as without."""
    documents = [{"id": n, "o": {"a": n % 3, **({f"k{n % 4}": [n]} if n % 9 == 0 else {})}} for n in range(300)]
    documents[7]["rare"] = {"deep": "x"}
    query = "SELECT v.id::bigint, v.o.a::bigint, v.o.k1::varchar, v.rare.deep::varchar FROM '{}' ORDER BY row"
    answers = []
    for closed in (True, False):
        write(tmp_path / f"{closed}.parquet", documents, SHREDDED[0], row_group_bytes=4000, closed=closed)
        answers.append(duckdb.sql(query.format(tmp_path / f"{closed}.parquet")).fetchall())
    assert answers[0] == answers[1]
    assert answers[0][7] == (7, 1, None, "x")


@pytest.mark.parametrize("names", [("v",), ("s", "v")])
def test_values_under_nulls(tmp_path, names):
    """Where a column or a struct around it is NULL, what Arrow has beneath the null is no value of a stub (F8)."""
    documents = [{"id": n, "o": {"a": n}, "rare": n} for n in range(20)]
    array, is_null = shredding.shred(column(documents), SHREDDED[0]), pa.array([n % 2 == 0 for n in range(20)])
    fields = list(array.type) if len(names) == 1 else [pa.field("v", array.type)]
    inside = [array.field(field.name) for field in fields] if len(names) == 1 else [array]
    table = pa.table({names[0]: pa.StructArray.from_arrays(inside, fields=fields, mask=is_null), "row": range(20)})
    with FileWriter(tmp_path / "f.parquet", table.schema, variants=[names], closed=[names]) as file:
        file.write(table.to_batches()[0])
    path = ".".join(names)
    found = duckdb.sql(
        f"SELECT row, {path}.rare::INT, {names[0]} IS NULL FROM '{tmp_path / 'f.parquet'}' ORDER BY row"
    ).fetchall()
    assert found == [(n, None, True) if n % 2 == 0 else (n, n, False) for n in range(20)]
    assert [
        chunk.statistics.null_count for chunk in chunks(tmp_path / "f.parquet", *names, "typed_value", "rare", "typed_value")
    ] == [10]


def test_malformed_residuals_are_an_error(tmp_path):
    """A residual with a key that the dictionary lacks, which no other reader could read, raises an error of this package."""
    array = shredding.shred(column([{"id": 1, "rare": 2}]), "id bigint")
    bad = bytearray(array.field("value")[0].as_py())
    bad[2] = 9  # the number of its only key
    inside = [array.field("metadata"), pa.array([bytes(bad)]), array.field("typed_value")]
    batch = pa.record_batch([pa.StructArray.from_arrays(inside, fields=list(array.type))], ["v"])
    with (
        pytest.raises(MalformedVariantError),
        FileWriter(tmp_path / "f", batch.schema, variants=[("v",)], closed=[("v",)]) as file,
    ):
        file.write(batch)
    assert not (tmp_path / "f").exists()


def test_columns_that_cannot_be_closed(tmp_path):
    """Names that lead to no column raise an error, and leave no file; a column that is not shredded has nothing to close."""
    table = pa.table({"v": column([{"id": 1}])})
    with pytest.raises(InvalidSchemaError, match="w is not a VARIANT column"):
        FileWriter(tmp_path / "f", table.schema, variants=[("v",)], closed=[("w",)])
    assert not (tmp_path / "f").exists()
    with FileWriter(tmp_path / "f", table.schema, variants=[("v",)], closed=[("v",)]) as file:
        file.write(table.to_batches()[0])
    assert values(read_table(tmp_path / "f")["v"].combine_chunks()) == [{"id": 1}]


def test_tables_are_closed(tmp_path):
    """`write_table` closes the objects of columns whose schemas are inferred, and of no others."""
    documents = [{"id": n} for n in range(100)] + [{"id": 1, "rare": 1}]
    for shred, expected in (("auto", True), ({"v": schema.parse("id bigint")}, False)):
        write_table(pa.table({"v": column(documents)}), tmp_path / "f", shred=shred)
        assert is_closed(tmp_path / "f", "v") == expected


@pytest.mark.spark
@pytest.mark.parametrize("vectorized", [True, False])
def test_spark_reads_stubs(spark, tmp_path, vectorized):
    """Spark without this package's rules reads whole Variants and paths, also if it skips pages by their indexes."""
    documents = [
        {"id": n, "o": {"a": n, "c": {"x": "y" * 50}}, **({f"k{n % 7}": n} if n % 13 == 0 else {})} for n in range(30_000)
    ]
    write(tmp_path / "f.parquet", documents, SHREDDED[0], row_group_bytes=1 << 20, batch=1000)
    write(tmp_path / "plain.parquet", documents, SHREDDED[0], closed=False, batch=1000)
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
    try:
        found, expected = (spark.read.parquet(str(tmp_path / name)) for name in ("f.parquet", "plain.parquet"))
        for rows in ("row = 20800", "row BETWEEN 12990 AND 13010", "row % 1000 = 3"):
            for what in ("to_json(v)", "v:k0::bigint", "v:o.c.x::string", "to_json(variant_get(v, '$.o'))"):
                answers = [df.where(rows).selectExpr("row", what).sort("row").collect() for df in (found, expected)]
                assert answers[0] == answers[1]
                assert answers[0]
    finally:
        spark.conf.unset("spark.sql.parquet.enableVectorizedReader")
