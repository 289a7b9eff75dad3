"""Parquet files of any writer: which columns they have, and how the rows of their pieces are read. Without Spark."""

from __future__ import annotations

import datetime as dt
import itertools
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delta_variant import loading, parquet
from delta_variant.errors import (
    DamagedFileError,
    DeltaVariantError,
    InvalidLayoutError,
    InvalidSchemaError,
    MalformedVariantError,
    TableError,
    UnsupportedFeatureError,
)
from delta_variant.parquet.fitting import VARIANT
from delta_variant.parquet_files.reader import ParquetFiles, Reader
from delta_variant.parquet_files.spark_schema import merged, variants
from delta_variant.pieces import Piece
from delta_variant.storage import Storage
from tests.sources import TYPES, broken
from tests.strategies import column
from tests.support import length
from tests.vectors import FILES
from tests.versions import needs_pyarrow


def piece(path) -> Piece:
    return Piece(0, str(path), str(path), Path(path).stat().st_size)


def files(columns=None, dropped=(), schema=None) -> ParquetFiles:
    asked = None if columns is None else frozenset(tuple(name.split(".")) for name in columns)
    return ParquetFiles((Storage.of("/"),), asked, frozenset(dropped), schema)


def schema_of(path, **options) -> pa.Schema:
    return Reader(files(**options)).columns(piece(path))


def rows_of(path, schema=None, **options) -> pa.Table:
    schema = schema or merged([(str(path), schema_of(path, **options))])
    return pa.Table.from_batches(list(Reader(files(schema=schema, **options)).rows(piece(path))), schema)


@pytest.mark.parametrize("name", [name for name, path in FILES.items() if path.suffix == ".parquet"])
def test_every_layout(name):
    """A file of each layout gives the Variants, or the error, that `parquet.read_table` gives."""
    path = FILES[name]
    try:
        wanted = parquet.read_table(path).column("v").to_pylist()
    except DeltaVariantError as error:
        with pytest.raises(type(error), match=name):
            rows_of(path)
    else:
        table = rows_of(path)
        assert table.schema.field("v").type.equals(VARIANT, check_metadata=True)
        assert table.column("v").to_pylist() == wanted


NO_PAIR = pytest.param("no_pair", marks=needs_pyarrow(26, "does not read back NULL in a column of lists of fixed size"))


@pytest.mark.parametrize("name", [NO_PAIR if name == "no_pair" else name for name in TYPES])
def test_types(tmp_path, name):
    """Each type that Spark has, in any of Arrow's forms, becomes Spark's type, with the values that were written."""
    kind, values, expected = TYPES[name]
    array = pa.array(values * 3, kind)
    pq.write_table(pa.table({"c": array}), tmp_path / "a.parquet")
    table = rows_of(tmp_path / "a.parquet")
    assert table.schema.field("c").type == expected
    table.validate(full=True)
    assert table.column("c").to_pylist() == values * 3


def test_enums_and_int96(tmp_path):
    """ENUM is text, as for Spark; INT96 is an instant, in years where nanoseconds overflow too."""
    duckdb.sql(f"COPY (SELECT 'x'::ENUM('x', 'y') e) TO '{tmp_path / 'e.parquet'}' (FORMAT parquet)")
    assert rows_of(tmp_path / "e.parquet").to_pylist() == [{"e": "x"}]
    times = [dt.datetime(2026, 1, 2), dt.datetime(1900, 1, 2)]
    table = pa.table({"t": pa.array(times, pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "t.parquet", use_deprecated_int96_timestamps=True)
    assert rows_of(tmp_path / "t.parquet").column("t").to_pylist() == [time.replace(tzinfo=dt.timezone.utc) for time in times]


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (pa.time64("us"), "another type"), (pa.timestamp("ns"), "microseconds"), (pa.float16(), "another type"),
        (pa.duration("us"), "another type"), (pa.decimal256(50, 3), "another type"), (pa.uuid(), "another type"),
    ],
)  # fmt: skip
def test_types_refused(tmp_path, kind, advice):
    """A type that Spark has not is refused with the file and the column, which can be dropped."""
    struct = pa.struct([("x", kind)])
    pq.write_table(pa.table({"id": [1], "s": pa.nulls(1, struct)}), tmp_path / "a.parquet")
    with pytest.raises(InvalidSchemaError, match=rf"a\.parquet: column s\.x is .*which Spark does not have: .*{advice}"):
        schema_of(tmp_path / "a.parquet")
    assert rows_of(tmp_path / "a.parquet", dropped=["s"]).to_pylist() == [{"id": 1}]


def test_which_columns_are_variants(tmp_path):
    """By default what has the structure of a layout is VARIANT, at every depth; named columns are, and the others are not."""
    plain = column([{"a": 1}, None])
    lists = pa.array([[row] for row in plain.to_pylist()], pa.list_(plain.type))
    structs = pa.StructArray.from_arrays([plain, pa.array([1, 2])], ["w", "n"])
    pq.write_table(pa.table({"v": plain, "s": structs, "l": lists, "n": [1, 2]}), tmp_path / "a.parquet")
    schema = schema_of(tmp_path / "a.parquet")
    assert list(variants(schema)) == [("v",), ("s", "w"), ("l", "list", "element")]
    found = rows_of(tmp_path / "a.parquet")
    assert found.column("v").to_pylist() == plain.to_pylist()
    assert found.column("s").to_pylist() == structs.to_pylist()
    assert found.column("l").to_pylist() == lists.to_pylist()
    named = schema_of(tmp_path / "a.parquet", columns=["s.w"])
    assert list(variants(named)) == [("s", "w")]
    assert rows_of(tmp_path / "a.parquet", columns=["s.w"]).column("v").to_pylist() == plain.to_pylist()
    with pytest.raises(InvalidLayoutError, match=r"a\.parquet: columns: n: a VARIANT column is a struct"):
        schema_of(tmp_path / "a.parquet", columns=["n"])


def test_files_of_several_schemas(tmp_path):
    """Files lack columns and fields, which are null; names differ by case; a column that is null has any type."""
    first = pa.table({"Id": [1], "s": [{"x": 1}], "l": [[{"a": 1}]], "n": pa.nulls(1)})
    second = pa.table({"s": [{"y": "t", "X": 2}], "ID": [2], "l": [[{"b": 2}]], "n": ["text"], "more": [True]})
    paths = [tmp_path / "1.parquet", tmp_path / "2.parquet"]
    for path, table in zip(paths, (first, second), strict=True):
        pq.write_table(table, path)
    schema = merged([(str(path), schema_of(path)) for path in paths])
    assert schema.names == ["Id", "s", "l", "n", "more"]
    rows = pa.concat_tables([rows_of(path, schema) for path in paths]).to_pylist()
    assert rows == [
        {"Id": 1, "s": {"x": 1, "y": None}, "l": [{"a": 1, "b": None}], "n": None, "more": None},
        {"Id": 2, "s": {"x": 2, "y": "t"}, "l": [{"a": None, "b": 2}], "n": "text", "more": True},
    ]


def test_schemas_that_do_not_fit():
    """Types that differ are refused with both files, and columns that have no type in any file with their name."""
    one, two = pa.schema([("s", pa.struct([("x", pa.int32())]))]), pa.schema([("s", pa.struct([("x", pa.int64())]))])
    with pytest.raises(InvalidSchemaError, match=r"column s\.x is int32 in one and int64 in two"):
        merged([("one", one), ("two", two)])
    plain = pa.schema([("v", pa.struct([("value", pa.binary()), ("metadata", pa.binary())]))])
    with pytest.raises(InvalidSchemaError, match=r"column v is VARIANT in one and struct.* in two: .*columns=\[…\]"):
        merged([("one", pa.schema([("v", VARIANT)])), ("two", plain)])
    with pytest.raises(InvalidSchemaError, match=r"column s\.x is null in every file"):
        merged([("one", pa.schema([("s", pa.struct([("x", pa.null())]))]))])


def test_names_that_differ_by_case(tmp_path):
    """Two columns or fields of one file that Delta takes for one are refused."""
    s = pa.array([{"a": 1, "A": 2}], pa.struct([("a", pa.int64()), ("A", pa.int64())]))
    pq.write_table(pa.table({"s": s}), tmp_path / "a.parquet")
    with pytest.raises(InvalidSchemaError, match=r"a\.parquet: two columns are called s\.A"):
        schema_of(tmp_path / "a.parquet")


def test_pieces(tmp_path):
    """Whatever the size of the pieces, each row group is in one of them."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": range(1000), "v": column([{"n": n} for n in range(1000)])}), path, row_group_size=70)
    schema = merged([(str(path), schema_of(path))])
    for size in (100, 3_000, 1 << 20):
        found = Reader(files(schema=schema))
        ids = [batch.column("id").to_pylist() for part in loading.cut(piece(path), size) for batch in found.rows(part)]
        assert [id_ for batch in ids for id_ in batch] == list(range(1000))


def test_batches_are_bounded_in_bytes(tmp_path):
    """Values that are large only once they are decoded do not make large batches."""
    path = tmp_path / "a.parquet"
    plain = column([{"long": "y" * (50 if n < 100 else 20_000)} for n in range(500)])
    pq.write_table(pa.table({"v": plain}), path, row_group_size=250)
    assert path.stat().st_size < 200_000
    small = Reader(files(schema=pa.schema([("v", VARIANT)])), batch_bytes=1 << 20, first_rows=16)
    batches = list(small.rows(piece(path)))
    assert [v for batch in batches for v in batch.column("v").to_pylist()] == plain.to_pylist()
    large = [batch for batch in batches if batch.nbytes > 2 << 20]
    assert len(large) == 1  # the first that is larger than those before
    assert max(batch.num_rows for batch in batches) > 40


@pytest.mark.parametrize("key", ["org.apache.spark.legacyDateTime", "org.apache.spark.version"])
def test_times_of_spark_2(tmp_path, key):
    """Times on which Spark's two calendars differ are refused; others are the same in both."""
    for year in (1500, 1999):
        table = pa.table({"d": [[dt.date(year, 1, 1)]]}).replace_schema_metadata({key: "2.4.8"})
        pq.write_table(table, tmp_path / f"{year}.parquet")
    assert rows_of(tmp_path / "1999.parquet").to_pylist() == [{"d": [dt.date(1999, 1, 1)]}]
    with pytest.raises(
        UnsupportedFeatureError, match=r"1500\.parquet: column d\.list\.element: dates before 1582-10-15.*row 0"
    ):
        rows_of(tmp_path / "1500.parquet")


def test_files_that_cannot_be_read(tmp_path):
    """A file that is no Parquet, damaged, gone or changed is one error with its name."""
    good = tmp_path / "a.parquet"
    pq.write_table(pa.table({"t": [str(n) for n in range(1000)]}), good)
    data = bytearray(good.read_bytes())
    (tmp_path / "b.parquet").write_bytes(b"text")
    data[50:200] = bytes(150)
    (tmp_path / "c.parquet").write_bytes(data)
    with pytest.raises(DamagedFileError, match=r"b\.parquet: the file is not Parquet"):
        rows_of(tmp_path / "b.parquet")
    with pytest.raises(DamagedFileError, match=r"c\.parquet: the file is damaged"):
        rows_of(tmp_path / "c.parquet")
    with pytest.raises(TableError, match=r"a\.parquet: it had 7 bytes when it was listed"):
        Reader(files()).columns(replace(piece(good), size=7))
    with pytest.raises(TableError, match=r"cannot read .*d\.parquet"):
        Reader(files()).columns(Piece(0, str(tmp_path / "d.parquet"), "d.parquet", 7))


@settings(max_examples=length("DELTA_VARIANT_EXAMPLES", 25, 300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(1, 3000),
    st.data(),
    st.sampled_from(["byte", "time"]),
    st.integers(1, 4),
    st.sampled_from(["", "struct", "list"]),
)
def test_the_row_of_an_error(tmp_path, rows, data, kind, groups, inside):
    """An error about a value names the file, the path and the row of the file, in whatever row group, batch and piece."""
    at = data.draw(st.integers(0, rows - 1))
    table = broken(rows, at, kind)
    values = table["v"].combine_chunks()
    if inside == "struct":
        table = pa.table({"n": table["n"], "s": pa.StructArray.from_arrays([values], ["v"])})
    elif inside:  # two elements in most rows, none in others
        sizes = [1 if n in (at, rows - 1) else 2 * (n % 3 > 0) for n in range(rows)]
        offsets = list(itertools.accumulate(sizes, initial=0))
        taken = [n for n, size in enumerate(sizes) for _ in range(size)]
        table = pa.table({"n": table["n"], "s": pa.ListArray.from_arrays(offsets, values.take(pa.array(taken)))})
    path = tmp_path / "broken.parquet"
    if kind == "time" and not inside and groups == 1:
        parquet.write_table(table, path, shred="auto")
    else:
        pq.write_table(table, path, row_group_size=-(-rows // groups))
    reading = replace(files(schema=merged([(str(path), schema_of(path))])), for_spark=True)
    where = rf"broken\.parquet: column {'s' if inside else 'v'}: .*\$.*\brow {at}\)"
    pieces, failed = list(loading.cut(piece(path), max(1, path.stat().st_size // 3))), 0
    limit = data.draw(st.sampled_from([8 << 20, 20_000]))
    for own in pieces:
        try:
            reader = Reader(reading, batch_bytes=limit)
            found = [n for batch in reader.rows(own) for n in batch.column(0).to_pylist()]
        except DeltaVariantError as error:
            failed += 1
            assert isinstance(error, UnsupportedFeatureError if kind == "time" else MalformedVariantError)
            assert re.search(where, str(error)), error
        else:
            assert at not in found
    assert failed == 1
    with pytest.raises(MalformedVariantError, match=where) if kind == "byte" else nullcontext():
        parquet.read_table(path)
