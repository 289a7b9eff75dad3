"""`scan`: tables read without Spark have the rows that Spark reads, whatever wrote them and whatever is asked for."""

from __future__ import annotations

import functools
import itertools
import json
import pickle
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyroaring
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import fs
from pyspark.errors import NumberFormatException

import delta_variant as dv
from delta_variant import binary, errors, nested, types, z85
from delta_variant.membership.sidecars import APPLICATION, Sidecars
from delta_variant.queries import casts, fields
from delta_variant.queries.sql import parse_any
from delta_variant.scanning.log import Log
from delta_variant.scanning.query import _storage, common
from delta_variant.storage import Storage
from tests.by_hand import FIELD, VARIANTS, by_hand, commit
from tests.sources import broken
from tests.strategies import column
from tests.support import collected, generated, length, no_thread_is_left, opened_files, share
from tests.typed_tables import ASKED, VALUES, made

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.interpreted
PREDICATES = length("SCAN_PREDICATES", 150, 5000)
SEED = length("SCAN_SEED", 7, 7)


def decoded(value: Any) -> Any:
    """Rows as Python values, with Variants decoded."""
    if isinstance(value, dict) and set(value) == {"metadata", "value"}:
        return binary.decode(**value)
    if isinstance(value, dict):
        return {key: decoded(inner) for key, inner in value.items()}
    return [decoded(inner) for inner in value] if isinstance(value, list | tuple) else value


def outcome(action: Callable[[], Any], error: type[Exception]) -> Any:
    """The result of an action, or that it raised the error."""
    try:
        return action()
    except error:
        return "error"


def listed(table: pa.Table) -> list[str]:
    """The rows of a table, in an order that depends on the rows alone."""
    return sorted(repr(decoded(row)) for row in table.to_pylist())


def by_spark(df: DataFrame) -> list[str]:
    batches = df._collect_as_arrow()  # toArrow fails for a NULL VARIANT
    return listed(pa.Table.from_batches(batches)) if batches else []


# ---- tables made by hand, without Spark ------------------------------------------------------------------------------


def test_texts_of_other_libraries(tmp_path):
    """Predicates on STRING columns skip row groups of files whose Arrow schema has large strings, as Polars writes them."""
    texts = ["a", "b", None]
    table = by_hand(tmp_path / "t", {"s": "string", "n": "long"}, [(pa.table({"s": texts, "n": [1, 2, 3]}), {})])
    for type_ in (pa.string(), pa.large_string()):
        pq.write_table(pa.table({"s": pa.array(texts, type_), "n": [1, 2, 3]}), table / "0.parquet", row_group_size=1)
        for where, rows in {"s = 'a'": [1], "s > 'a'": [2], "s is null": [3], "s like 'a%'": [1], "s < 'a'": []}.items():
            assert dv.scan(table, ["n"], where=where).read_all()["n"].to_pylist() == rows
    pl.DataFrame({"s": texts, "n": [1, 2, 3]}).write_parquet(table / "0.parquet")
    assert dv.scan(table, where="s = 'b'").read_all().to_pylist() == [{"s": "b", "n": 2}]


def test_nan_in_files_that_pyarrow_has_written_again(tmp_path):
    """The key of a file of Spark, which pyarrow keeps, does not make the bounds count that pyarrow computes without NaN."""
    rows = pa.table({"x": [1.0, float("nan"), 2.0]})
    table = by_hand(tmp_path / "t", {"x": "double"}, [(rows, {})])
    key = {"org.apache.spark.version": "4.2.0"}
    for with_schema in (True, False):
        with pq.ParquetWriter(table / "0.parquet", rows.schema, store_schema=with_schema) as writer:
            writer.write_table(rows)
            writer.add_key_value_metadata(key)
        for where in ("x > 5", "x = double('NaN')"):
            assert dv.scan(table, where=where).read_all().num_rows == 1


def test_fields_in_the_values_of_objects_that_have_columns(tmp_path):
    """A path is what the Variant as a whole has there: a field beside its own columns is ignored, by every path to it (S6)."""
    variants = column([{"a": {"b": 7}}, {"a": {"b": 8}}, {"c": 9}])
    kind = dv.shredding.shred(variants, "a struct<b bigint>").type
    missing = {"value": None, "typed_value": None}
    cells = [
        {**variants[0].as_py(), "typed_value": {"a": missing}},  # the field has columns
        {**variants[1].as_py(), "typed_value": None},  # the object is in `value`
        {**variants[2].as_py(), "typed_value": {"a": {"value": None, "typed_value": {"b": {"value": None, "typed_value": 3}}}}},
    ]
    table = by_hand(tmp_path / "t", {"v": "variant"}, [(pa.table({"v": variants}), {})], protocol=VARIANTS)
    written = pa.table({"v": pa.array(cells, kind)})
    with dv.parquet.FileWriter(table / "0.parquet", written.schema, variants=[("v",)]) as writer:
        writer.write(written.to_batches()[0])
    whole = [decoded(row)["v"] for row in dv.scan(table).read_all().to_pylist()]
    assert whole == [{}, {"a": {"b": 8}}, {"c": 9, "a": {"b": 3}}]
    paths = {"a": "v:a", "b": "v:a.b", "n": "v:a.b::int", "c": "v:c"}
    for names in (["a"], ["b"], ["n"], ["c"], list(paths)):
        found = [decoded(row) for row in dv.scan(table, {name: paths[name] for name in names}).read_all().to_pylist()]
        objects = [row.get("a", {}) for row in whole]
        wanted = {"a": [row.get("a") for row in whole], "b": [one.get("b") for one in objects], "c": [None, None, 9]}
        wanted["n"] = wanted["b"]
        assert found == [dict(zip(names, row, strict=True)) for row in zip(*(wanted[name] for name in names), strict=True)]


def test_objects_whose_only_column_is_a_list(tmp_path):
    """A list is read as a whole where it tells in which rows an object is in `value` (S6)."""
    variants = column([{"b": 7}, {"a": {"c": 1}}])
    number = pa.struct([("value", pa.binary()), ("typed_value", pa.int64())])
    element = pa.struct([("typed_value", pa.struct([pa.field(name, number, nullable=False) for name in ("c", "d")]))])
    lists = pa.struct([("typed_value", pa.list_(pa.field("element", element, nullable=False)))])
    kind = pa.struct([*variants.type, ("typed_value", pa.struct([pa.field("a", lists, nullable=False)]))])
    numbers = {"typed_value": {name: {"value": None, "typed_value": at} for at, name in enumerate("cd")}}
    cells = [
        {**variants[0].as_py(), "typed_value": {"a": {"typed_value": [numbers]}}},
        {**variants[1].as_py(), "typed_value": None},
    ]
    table = by_hand(tmp_path / "t", {"v": "variant"}, [(pa.table({"v": variants}), {})], protocol=VARIANTS)
    pq.write_table(pa.table({"v": pa.array(cells, kind)}), table / "0.parquet")
    whole = [{"a": [{"c": 0, "d": 1}], "b": 7}, {"a": {"c": 1}}]
    assert [decoded(row)["v"] for row in dv.scan(table).read_all().to_pylist()] == whole
    for path, found in {"v:a.c": [None, 1], "v:b": [7, None], "v:a[0].d": [1, None], "v:a.b.c": [None, None]}.items():
        assert [decoded(row)["x"] for row in dv.scan(table, {"x": path}).read_all().to_pylist()] == found


LIST = {"type": "array", "elementType": "string", "containsNull": True}


def viewed(kind: pa.DataType) -> pa.DataType:
    """A type with views in place of strings and binaries."""
    if nested.is_nested(kind):
        return nested.with_types(kind, [viewed(field.type) for _, field in nested.children(kind)])
    return {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()}.get(kind, kind)


@pytest.mark.parametrize("shred", [None, "s string, n bigint, l array<string>, d decimal(9,2)"])
def test_views_of_other_libraries(tmp_path, shred):
    """A file whose Arrow schema has views, as arrow-rs writes it, has the rows of a file without: by `scan` and `dataset`."""
    variants = column([{"s": "a", "n": 1, "l": ["x"]}, {"s": "b", "n": "t", "d": Decimal("1.5")}, [1], "SQL NULL", {"z": 1}])
    texts, lists = ["a", "b", None, "é" * 20, ""], [["a", None], None, [], ["x" * 20], ["b"]]
    table = pa.table({"i": range(5), "v": variants, "s": texts, "l": lists, "b": pa.array([b"a", None, b"", b"b", b"c"])})
    types = {"i": "long", "v": "variant", "s": "string", "l": LIST, "b": "binary"}
    path = by_hand(tmp_path / "t", types, [(table, {})], protocol=VARIANTS)
    written = table.set_column(1, "v", variants if shred is None else dv.shredding.shred(variants, shred))
    as_views = [pa.array(written[name].to_pylist(), viewed(written[name].type)) for name in written.column_names]
    asked = {"i": "i", "s": "v:s", "t": "v:s::string", "n": "try_variant_get(v, '$.n', 'int')", "z": "v:z", "x": "v:l[0]"}
    wheres = [None, "i = 1", "s = 'a'", "s > 'a'", "s is null", "b is null", "v:s::string = 'b'", "v:l[0]::string = 'x'"]
    answers = []
    for columns in (written.columns, as_views):
        pq.write_table(pa.table(columns, written.column_names), path / "0.parquet")
        found = [dv.scan(path, what, where=where).read_all() for what in (None, asked) for where in wheres]
        rows = dv.dataset(path, {**asked, "l": "l"})
        found += [rows.to_table(filter=where) for where in (pc.field("t") == "a", pc.field("i") > 2)]
        answers.append([(table.schema, decoded(table.to_pylist())) for table in found])
    assert answers[0] == answers[1]
    assert [len(rows) for _, rows in answers[0]][: len(wheres)] == [5, 1, 1, 2, 1, 1, 1, 1]


def test_needs_no_spark(numbers):
    """`scan` imports neither PySpark nor py4j, and works where only the codec's dependencies are used."""
    rows = f"dv.scan({str(numbers)!r}, where='n > 3').read_all().num_rows"
    code = f"import sys, delta_variant as dv; print({rows}, 'pyspark' in sys.modules or 'py4j' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["6", "False"]


def test_readers_of_the_stream(numbers):
    """DuckDB, Polars and pandas read the stream, and DuckDB joins it."""
    reader = dv.scan(numbers, where="n >= 2")  # noqa: F841  # DuckDB finds it by its name
    assert duckdb.sql("select sum(n), count(*) from reader").fetchall() == [(44, 8)]
    assert pl.DataFrame(dv.scan(numbers, ["n"]).read_all())["n"].sum() == 45
    assert dv.scan(numbers).read_pandas()["n"].tolist() == list(range(10))


def test_files_without_matches_are_not_opened(numbers):
    """Files that statistics rule out are not opened: here they are gone, and nobody notices."""
    (numbers / "1.parquet").unlink()
    assert dv.scan(numbers, where="n < 5 and n <> 2").read_all()["n"].to_pylist() == [0, 1, 3, 4]


def test_a_file_that_is_gone(numbers):
    """A file that VACUUM deleted is an error that names the file and says what to do, after the rows of earlier files."""
    (numbers / "1.parquet").unlink()
    reader = dv.scan(numbers)
    assert reader.read_next_batch().num_rows == 5
    with pytest.raises(errors.TableError, match=r"1\.parquet is gone.*VACUUM"):
        reader.read_all()


def test_a_damaged_file(numbers):
    """A file that is no Parquet is an error that names it."""
    (numbers / "0.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(errors.TableError, match=r"0\.parquet"):
        dv.scan(numbers).read_all()


def test_an_index_that_cannot_be_listed(tmp_path):
    """A file in place of a directory of the index says nothing."""
    rows = pa.table({"v": column([{"a": n} for n in range(9)])})
    root = by_hand(tmp_path / "t", {"v": "variant"}, [(rows, {})], protocol=VARIANTS)
    commit(root, 1, [{"txn": {"appId": APPLICATION, "version": 1}}])
    storage = Storage.of(str(root))
    folder = Path(Sidecars(storage, storage.open(), "t")._folder((("v",), ("a",))))
    folder.parent.mkdir()
    folder.write_text("")
    assert dv.scan(root, where="v:a::int = 1").read_all().num_rows == 1


def test_a_path_that_begins_with_two_slashes(numbers):
    """Is the path with one, as for the operating system."""
    assert dv.scan(f"/{numbers}").read_all().equals(dv.scan(numbers).read_all())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"columns": ["m"]}, errors.TableError, "there is no column m: there are n, d, collated, v"),
        ({"columns": ["n:a"]}, errors.InvalidPathError, "is bigint, not VARIANT"),
        ({"columns": "n"}, errors.TableError, "columns is a list"),
        ({"where": "m = 1"}, errors.TableError, "there is no column m"),
        ({"where": "abs(n) = 1"}, errors.UnsupportedFeatureError, r"ABS\(n\)"),
        ({"where": "n + 1 = 2"}, errors.UnsupportedFeatureError, r"n \+ 1"),
        ({"where": "true = n < 2"}, errors.UnsupportedFeatureError, "needs parentheses"),
        ({"where": "n in (select 1)"}, errors.UnsupportedFeatureError, "SELECT"),
        ({"where": "n"}, errors.UnsupportedFeatureError, "bigint, not a predicate"),
        ({"where": "n ="}, errors.UnsupportedFeatureError, "cannot be parsed"),
        ({"where": "n = 'x'"}, errors.CastError, "cannot be cast to bigint"),
        ({"where": "n = true"}, errors.UnsupportedFeatureError, "compares bigint with boolean"),
        ({"where": "d = 5.5 or d in (n, 1)"}, errors.UnsupportedFeatureError, "more than 38 digits"),
        ({"where": "d in (5L)"}, errors.UnsupportedFeatureError, "more than 38 digits"),
        ({"where": "cast(n as time) = 1"}, errors.UnsupportedFeatureError, "time is not a type"),
        ({"where": "collated in ('a')"}, errors.UnsupportedFeatureError, "collation"),
        ({"where": "v:a in (1, 2)"}, errors.UnsupportedFeatureError, "give the path a type"),
        ({"where": "v in (null)"}, errors.UnsupportedFeatureError, "give the path a type"),
        ({"where": "n" + "::string::int" * 300 + " = 1"}, errors.UnsupportedFeatureError, "nested too deep"),
        ({"where": "true" + " = true" * 1500}, errors.UnsupportedFeatureError, "nested too deep"),
        ({"where": f"cast(n as string) like '{'_' * 70_000}'"}, errors.UnsupportedFeatureError, "more than 50,000 characters"),
        ({"where": 5}, errors.TableError, "where is a text"),
        ({"path": None}, errors.TableError, "path is a directory or a location, .*not None"),
        ({"path": b"/t"}, errors.TableError, "path is a directory"),
        ({"path": "/t\0"}, errors.TableError, "path is a directory"),
        ({"path": "/t\ud800"}, errors.TableError, "path is a directory"),
        ({"path": "s3a:///x"}, errors.TableError, "s3a:///x has no bucket: write it as s3a://bucket/path"),
        ({"path": "gs://"}, errors.TableError, "has no bucket"),
        ({"path": "abfss://x"}, errors.TableError, "write it as abfss://container@account/path"),
        ({"columns": 5}, errors.TableError, "columns is a list"),
        ({"columns": iter(["n"])}, errors.TableError, "columns is a list"),
        ({"columns": {"\ud800": "n"}}, errors.TableError, "is not a valid column name"),
        ({"columns": {"a": "v:['\ud800']"}}, errors.InvalidPathError, "half a surrogate"),
        ({"where": "v:`\ud800`::int = 1"}, errors.InvalidPathError, "half a surrogate"),
        ({"timezone": []}, errors.UnsupportedFeatureError, "is not a time zone"),
        ({"timezone": "posix/Europe/Berlin"}, errors.UnsupportedFeatureError, "is not a time zone"),
        ({"storage_options": 5}, errors.TableError, "storage_options is a dict"),
        ({"storage_options": "abc"}, errors.TableError, "storage_options is a dict"),
        ({"columns": [5]}, errors.TableError, "columns is a list of texts"),
        ({"version": "0"}, errors.TableError, "is not a version"),
        ({"version": 7}, errors.TableError, "no version 7: the newest is 0"),
        ({"version": 0, "timestamp": "2024-01-01"}, errors.TableError, "not both"),
        ({"timestamp": "yesterday"}, errors.TableError, "is not a time"),
        ({"timestamp": "1999-01-01"}, errors.TableError, "no version at that time"),
        ({"timestamp": "2999-01-01"}, errors.TableError, "no version as late as that"),
        ({"timezone": "Mars/Olympus"}, errors.UnsupportedFeatureError, "is not a time zone"),
    ],
)
def test_what_is_refused(tmp_path, arguments, error, message):
    """Each mistake in the arguments is an error of this package that names it, before a file is read."""
    schema = {"n": "long", "d": "decimal(38,20)", "collated": "string collate UTF8_LCASE", "v": "variant"}
    root = by_hand(tmp_path / "t", schema, [], protocol=VARIANTS)
    for read in (dv.scan, dv.dataset):
        if read is dv.scan or "where" not in arguments:
            with pytest.raises(error, match=message):
                read(**{"path": root, **arguments})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("v:a::array<int>", "array<int> is not a type"),
        ("v:a::int::string", "is not a column"),
        ("v:a::int AS n", "n is not a type"),
        ("v:a[-1]", "not a Variant path"),
        ("v:`b.c`", "more than one step"),
        ("variant_get(v, '$.a', 'int')::string", "is not a column"),
    ],
)
def test_columns_that_are_refused(tmp_path, text, message):
    """Text that is neither a column nor a path is refused. It is never a path to a key that no row has."""
    root = by_hand(tmp_path / "t", {"v": "variant"}, [], protocol=VARIANTS)
    with pytest.raises(errors.DeltaVariantError, match=message):
        dv.scan(root, [text])


@pytest.mark.parametrize("names", [["a", "a", "b"], ["b", "a", "a"]], ids="".join)
def test_names_that_are_there_twice(tmp_path, names):
    """A column that a file has twice cannot be read, and the others can."""
    table = pa.Table.from_arrays([pa.array([number], pa.int64()) for number in range(3)], names)
    root = by_hand(tmp_path / "t", {"a": "long", "b": "long"}, [(table, {})])
    assert dv.scan(root, ["b"]).read_all()["b"].to_pylist() == [names.index("b")]
    with pytest.raises(errors.TableError, match="more than one column a"):
        dv.scan(root).read_all()


def test_forms_of_paths(tmp_path):
    """Keys in backquotes and in brackets, spaces around the type, and names of columns in any case."""
    rows = [{"a b": 1, "l": [5, {"c.d": 6}], "x::y": 7}]
    root = by_hand(tmp_path / "t", {"v": "variant"}, [(pa.table({"v": column(rows)}), {})], protocol=VARIANTS)
    texts = {"V:`a b` :: int": 1, "v:['a b']::int": 1, "v: l[0]::int": 5, "v:l[1]['c.d']::int": 6, "v:['x::y']::int": 7}
    for text, value in texts.items():
        table = dv.scan(root, [text], where=f"{text} = {value}").read_all()
        assert table.to_pylist() == [{text.rpartition("::")[0].strip(): value}], text
    assert dv.scan(root, ["v:['x::y']"]).read_all()["v:['x::y']"].null_count == 0


def test_streams_can_be_left(numbers):
    """A stream that is left ends its threads."""
    reader = dv.scan(numbers)
    reader.read_next_batch()
    reader.close()
    del reader
    assert no_thread_is_left()


def test_batches_of_repeated_texts(tmp_path):
    """A batch stays small if texts are long and repeated, so that the file has next to nothing of them."""
    root = by_hand(tmp_path / "t", {"s": "string"}, [])
    long = pa.array([letter * 1000 for letter in "ab"]).take(pa.array([n % 2 for n in range(200_000)]))
    pq.write_table(pa.table({"s": long}), root / "x.parquet")
    commit(
        root, 1, [{"add": {"path": "x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}}]
    )
    sizes = [batch.nbytes for batch in dv.scan(root)]
    assert sum(sizes) > 190 << 20 > 5 * max(sizes)


def test_zeros_and_nans_in_a_list(tmp_path):
    """In IN, as in comparisons, 0.0 equals -0.0 and NaN equals NaN; NULL is unknown."""
    table = pa.table({"x": pa.array([0.0, -0.0, float("nan"), 1.5, None])})
    root = by_hand(tmp_path / "t", {"x": "double"}, [(table, {})])
    cases = {
        "x in (0e0)": 2, "x in (-0e0, 1.5e0)": 3, "x in (cast('NaN' as double))": 1, "x not in (cast('NaN' as double), 1e0)": 3,
        "x not in (0e0, null)": 0, "x in (null)": 0, "x not in (2e0)": 4,
    }  # fmt: skip
    assert {where: dv.scan(root, where=where).read_all().num_rows for where in cases} == cases


@pytest.mark.spark
def test_lists_with_columns(spark, tmp_path):
    """IN compares all operands in one type, as Spark does, also if columns are among them."""
    big = 2**53
    table = pa.table(
        {
            "n": pa.array([big, big + 1, 5], pa.int64()), "i": pa.array([1, 5, 9], pa.int32()),
            "x": pa.array([big, 0.0, 5.0]), "s": ["5.0", "05", "5"],
            "m": pa.array([Decimal(big + 1)] * 3, pa.decimal128(20, 0)), "f": pa.array([0.1, 0.5, 1.0], pa.float32()),
        }
    )  # fmt: skip
    kinds = {"n": "long", "i": "integer", "x": "double", "s": "string", "m": "decimal(20,0)", "f": "float"}
    root = by_hand(tmp_path / "t", kinds, [(table, {})])
    rows = spark.read.parquet(str(next(root.glob("*.parquet"))))
    for where in (
        f"n in (x, {big + 1})", f"n not in (x, {big + 1})", f"m in (x, {big})", "s in (x, '5')", "s in (i, '5.0')",
        "s in (i, '7')", "i in (s, '5.0')", "s not in (i, '7')", "f in (x, 0.1)", "f in (x, 0.1f)", f"{big + 1} in (n, x)",
        "i in (n, null)", "n in (i, 5d)", "'1e2' in (5S, x, 1f)", "i in (n, 5)", "s in (s, 5)",
    ):  # fmt: skip
        found = [outcome(lambda: dv.scan(root, where=where).read_all().to_pylist(), errors.CastError)]  # noqa: B023
        found.append(outcome(lambda: [row.asDict() for row in rows.where(where).collect()], NumberFormatException))  # noqa: B023
        assert found[0] == found[1], where


def test_comparisons_of_nothing_but_nulls(numbers):
    """NULL with NULL is NULL, as in Spark; for <=> it is TRUE, and a value is not NULL."""
    cases = {
        "null = null": 0, "null <> null": 0, "null < null": 0, "null between null and null": 0, "null in (null)": 0,
        "(null = null) is null": 10, "null <=> null": 10, "null is distinct from null": 0, "n = 1 or null = null": 1,
        "null <=> 1": 0, "1 <=> null": 0, "n <=> null": 0,
    }  # fmt: skip
    assert {where: dv.scan(numbers, where=where).read_all().num_rows for where in cases} == cases


@pytest.mark.parametrize(
    "stats", ["nothing", '{"minValues": {"n": "x"}, "maxValues": [1]}', "[1]", '{"numRecords": "5", "nullCount": 5}', "{"]
)
def test_damaged_statistics_keep_the_file(tmp_path, stats):
    """A file with damaged statistics is read."""
    root = by_hand(tmp_path / "t", {"n": "long"}, [(pa.table({"n": pa.array([1, 2], pa.int64())}), {"stats": stats})])
    assert dv.scan(root, where="n = 2 and n is not null").read_all().num_rows == 1


def test_floats_of_other_writers(tmp_path):
    """A NaN, the largest number for Spark, is found although the statistics of its writer leave it out."""
    table = pa.table({"x": pa.array([1.0, float("nan"), -0.0])})
    stats = json.dumps({"numRecords": 3, "minValues": {"x": 0.0}, "maxValues": {"x": 1.0}, "nullCount": {"x": 0}})
    root = by_hand(tmp_path / "t", {"x": "double"}, [(table, {"stats": stats})])
    counts = {
        where: dv.scan(root, where=where).read_all().num_rows
        for where in ("x > 5e0", "x = 0", "x <> 1", "x >= cast('NaN' as double)")
    }
    assert counts == {"x > 5e0": 1, "x = 0": 1, "x <> 1": 2, "x >= cast('NaN' as double)": 1}


def test_bounds_of_long_decimals(tmp_path):
    """Bounds of decimals with more digits than a double are compared exactly."""
    values = [Decimal("1234567890123456789.5")]
    text = '{"numRecords": 1, "minValues": {"d": 1234567890123456789.5}, "maxValues": {"d": 1234567890123456789.5}}'
    table = pa.table({"d": pa.array(values, pa.decimal128(38, 10))})
    root = by_hand(tmp_path / "t", {"d": "decimal(38,10)"}, [(table, {"stats": text})])
    for where in ("d < 1234567890123456790", "d = 1234567890123456789.5", "d > 1234567890123456789", "d between 0 and 1e19"):
        assert dv.scan(root, where=where).read_all()["d"].to_pylist() == values, where
    assert not dv.scan(root, where="d = 1234567890123456789.4").read_all().num_rows


def test_bounds_of_widened_floats(tmp_path):
    """A FLOAT that has become DOUBLE is found, although the log has its shortest digits, which are below it."""
    value = struct.unpack("f", struct.pack("f", 1 / 3))[0]
    text = json.dumps({"numRecords": 1, "minValues": {"x": 0.33333334}, "maxValues": {"x": 0.33333334}, "nullCount": {"x": 0}})
    table = pa.table({"x": pa.array([value], pa.float32())})
    tags = {"delta_variant.bounds": "2"}  # bounds that have NaN in them
    root = by_hand(tmp_path / "t", {"x": "double"}, [(table, {"stats": text, "tags": tags})])
    assert dv.scan(root, where="x > 0.33333334e0").read_all()["x"].to_pylist() == [value]


def test_char(tmp_path):
    """Values of CHAR(n) are padded to n characters, as is what they are compared with. Statistics have them unpadded."""
    names, padded = ["a", "\u00e9b", None, "a \t", "abcd"], ["a   ", "\u00e9b  ", None, "a \t ", "abcd"]
    text = json.dumps({"numRecords": 5, "minValues": {"c": "a"}, "maxValues": {"c": "\u00e9b"}, "nullCount": {"c": 1}})
    root = by_hand(tmp_path / "t", {}, [(pa.table({"c": names, "n": list(range(5))}), {"stats": text})])
    path = root / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    kinds = {"c": "char(4)", "n": "varchar(2)", "nested": "array<char(3)>", "p": "char(2)"}
    fields = [
        {"name": name, "type": {"n": "long"}.get(name, "string"), **FIELD, "metadata": {"__CHAR_VARCHAR_TYPE_STRING": kind}}
        for name, kind in kinds.items()
    ]
    actions[1]["metaData"] |= {"schemaString": json.dumps({"type": "struct", "fields": fields}), "partitionColumns": ["p"]}
    actions[2]["add"]["partitionValues"] = {"p": "x"}
    commit(root, 0, actions)
    assert dv.scan(root, ["c", "p"]).read_all().to_pylist() == [{"c": value, "p": "x "} for value in padded]
    for where, want in {
        "c = 'a'": [0], "c = 'a     '": [0], "c in ('a', 'abcd')": [0, 4], "c > 'a'": [1, 4], "c <= 'a  '": [0, 3],
        "c like 'a'": [],
        "c like 'a%'": [0, 3, 4], "c <> 'abcdx'": [0, 1, 3, 4], "c < 'abcdx' and p = 'x'": [0, 3, 4],
        "p = 'x    '": [0, 1, 2, 3, 4], "c is not null": [0, 1, 3, 4],
        "c between 'a' and 'a'": [], "not c between 'a' and 'a'": [0, 1, 3, 4], "'x' between p and p": [],  # as in Spark
        "cast(c as string) = 'a'": [], "c::string = 'a   '": [0], "cast(p as string) = 'x'": [],
        "p::string like 'x_'": [0, 1, 2, 3, 4],
    }.items():  # fmt: skip
        assert dv.scan(root, ["n"], where).read_all()["n"].to_pylist() == want, where
    with pytest.raises(errors.UnsupportedFeatureError, match="nested has CHAR"):
        dv.scan(root, ["nested"])
    with pytest.raises(errors.UnsupportedFeatureError, match="CHAR in an IN with columns"):
        dv.scan(root, ["n"], "c in (p, 'a')")


@pytest.mark.parametrize("text", ["v:a::variant", "cast(v:a as variant)", "variant_get(v, '$.a', 'variant')"])
def test_a_path_as_variant(tmp_path, text):
    """A path that is asked for as VARIANT stays one, where a path without a type has the type of the files."""
    files = [(pa.table({"v": column([{"a": 1}, {"a": None}, {}])}), {"shred": {"v": "a bigint"}})]
    root = by_hand(tmp_path / "t", {"v": "variant"}, files)
    assert dv.scan(root, ["v:a"]).schema.field(0).type == pa.int64()
    found = dv.scan(root, {"x": text}).read_all()["x"].combine_chunks()
    assert dv.arrow.to_json(found).to_pylist() == ["1", "null", None]


@pytest.mark.parametrize("shred", [None, {"v": "a decimal(38,20)"}, {"v": "a bigint"}])
def test_decimals_of_more_digits_than_their_width(tmp_path, shred):
    """5E-20 fits the 4 bytes of a decimal4, whose 9 digits its scale exceeds: it is read alike, however the file has it."""
    value = bytes([types.DECIMAL4 << 2, 20]) + (5).to_bytes(4, "little")
    rows = pa.array([{"metadata": b"\x11\x01\x00\x01a", "value": b"\x02\x01\x00\x00\x06" + value}], dv.shredding.UNSHREDDED)
    root = by_hand(tmp_path / "t", {"v": "variant"}, [(pa.table({"v": rows}), {"shred": shred})])
    columns = {"d": "v:a::double", "s": "v:a::string", "m": "v:a::decimal(38,20)", "i": "v:a::int"}
    assert dv.scan(root, columns).read_all().to_pylist() == [
        {"d": 5e-20, "s": "0.00000000000000000005", "m": Decimal("5E-20"), "i": 0}
    ]


INTEGERS = {"type": "array", "elementType": "integer", "containsNull": True}


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (INTEGERS, pa.array([1, None], pa.int32())),
        (INTEGERS, pa.array([{"n": 1}, None])),
        ({"type": "map", "keyType": "integer", "valueType": "integer", "valueContainsNull": True}, pa.array([[1], None])),
        ({"type": "struct", "fields": [{"name": "n", "type": "integer", **FIELD}]}, pa.array([1, None], pa.int32())),
    ],
    ids=["number for list", "struct for list", "list for map", "number for struct"],
)
def test_files_with_other_forms_of_a_column(tmp_path, kind, found):
    """A list, map or struct of the table that is something else in a file is an error with both types, never a guess; a column
    of nulls has every form."""
    wrong = by_hand(tmp_path / "wrong", {"c": kind}, [(pa.table({"c": found}), {})])
    with pytest.raises(errors.TableError, match=r"0\.parquet: column c: it is \S+<.*> in the table, and .* in the file"):
        dv.scan(wrong).read_all()
    nulls = by_hand(tmp_path / "nulls", {"c": kind}, [(pa.table({"c": pa.nulls(2)}), {})])
    assert dv.scan(nulls).read_all().to_pylist() == [{"c": None}] * 2


def test_files_of_other_writers(tmp_path):
    """Shredded files of DuckDB, whose `value` may hold typed fields, give the paths that their Variants have."""
    rows = [{"a": n, "o": {"b": f"x{n}"}} for n in range(50)] + [{"a": "text"}, {"o": 5}, [1], None, {"o": {"c": 1}}]
    root = by_hand(tmp_path / "t", {"v": "variant"}, [], protocol=VARIANTS)
    texts = ", ".join(f"('{json.dumps(row)}')" for row in rows)
    duckdb.sql(f"copy (select t::json::variant v from (values {texts}) x(t)) to '{root}/duck.parquet'")
    add = {"path": "duck.parquet", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    commit(root, 1, [{"add": add}])
    whole = [decoded(row["v"]) for row in dv.scan(root).read_all().to_pylist()]
    assert whole == rows
    found = dv.scan(root, {"b": "v:o.b::string", "o": "v:o", "a": "try_variant_get(v, '$.a', 'bigint')"}).read_all().to_pylist()
    objects = [row if isinstance(row, dict) else {} for row in rows]
    inner = [row.get("o") if isinstance(row.get("o"), dict) else {} for row in objects]
    assert [row["b"] for row in found] == [row.get("b") for row in inner]
    assert [decoded(row["o"]) if row["o"] else None for row in found] == [row.get("o") for row in objects]
    assert [row["a"] for row in found] == [row.get("a") if isinstance(row.get("a"), int) else None for row in objects]


def test_row_groups(tmp_path, monkeypatch):
    """Row groups that a footer rules out are not read, by ordinary and by typed columns; the others give their rows."""
    from delta_variant.scanning.files import OpenFile

    rows = [
        {"a": n, "s": f"x{n:03}", "f": n / 2, "d": Decimal(n) / 4, "o": {"m": "text" if n == 55 else n}} for n in range(100)
    ]
    shape = "a int, s string, f double, d decimal(9,2), o struct<m: bigint>"
    table = pa.table({"n": pa.array(range(100), pa.int32()), "v": dv.shredding.shred(column(rows), shape)})
    root = by_hand(tmp_path / "t", {"n": "integer", "v": "variant", "w": "variant"}, [], protocol=VARIANTS)
    pq.write_table(table, root / "x.parquet", row_group_size=10)
    add = {"path": "x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    commit(root, 1, [{"add": add}])
    read: list[int] = []
    before = OpenFile._read
    monkeypatch.setattr(OpenFile, "_read", lambda self, number, *more: read.append(number) or before(self, number, *more))
    cases = {
        "n = 57": ({5}, [57]),
        "n >= 98 or v:a::bigint = 3": ({0, 9}, [3, 98, 99]),
        "v:s::string = 'x010'": ({1}, [10]),
        "v:s::string like 'x00%'": ({0}, list(range(10))),
        "v:d::decimal(9,2) > 24.25": ({9}, [98, 99]),
        "v:f::double < 1e0": (set(range(10)), [0, 1]),  # floats of other writers
        "try_variant_get(v, '$.o.m', 'int') = 12": ({1, 5}, [12]),  # a text is in the `value` of the sixth row group
        "v:nothing::int = 1": (set(), []),
        "w:a::int = 1 or v:a is null": (set(range(10)), []),
        "not v:a::int >= 2": ({0}, [0, 1]),
        "v:a::int is not null and n < 0": (set(), []),
    }
    for text, (groups, want) in cases.items():
        read.clear()
        assert dv.scan(root, ["n"], text).read_all()["n"].to_pylist() == want, text
        assert set(read) == groups, text


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize(("kind", "stored"), [("timestamp", None), ("timestamp_ntz", "UTC")])
def test_row_groups_of_the_other_timestamp(tmp_path, kind, stored, zone):
    """A file whose timestamps have no zone where the column's have one, or the reverse, has them in UTC, also in its footer."""
    features = {"readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz"]}
    root = by_hand(tmp_path / "t", {"t": kind}, [], protocol={"minReaderVersion": 3, "minWriterVersion": 7, **features})
    noon = pa.array([1_767_268_800_000_000]).cast(pa.timestamp("us", stored))
    pq.write_table(pa.table({"t": noon}), root / "x.parquet")
    add = {"path": "x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    commit(root, 1, [{"add": add}])
    literal = "timestamp'2026-01-01 12:00:00Z'" if kind == "timestamp" else "timestamp_ntz'2026-01-01 12:00:00'"
    for text, count in ((f"t = {literal}", 1), (f"t <= {literal}", 1), (f"t < {literal}", 0), (f"t > {literal}", 0)):
        assert dv.scan(root, ["t"], text, timezone=zone).read_all().num_rows == count, text


def test_damaged_bounds_keep_the_file(tmp_path):
    """Bounds and tags that cannot be decoded, or are of another type, say nothing."""
    table = pa.table({"v": column([{"a": 1, "t": "2024-01-01"}])})
    bounds = dv.stats.encode_bounds({"$['a']": "text", "$['t']": 5})
    other = dv.stats.encode_bounds({"$['v']": 5})
    for number, (text, tag) in enumerate([("?", "?"), ("00000", "00000"), (bounds, other), (5, bounds), ("", "")]):
        stats = json.dumps({"numRecords": 1, "minValues": {"v": text}, "maxValues": {"v": text}})
        tags = {"delta_variant.bounds": "2", "delta_variant.nonnull": tag, "delta_variant.times": tag}
        root = by_hand(tmp_path / str(number), {"v": "variant"}, [(table, {"stats": stats, "tags": tags})], protocol=VARIANTS)
        for where in ("v:a::int = 1", "v:t::date = date'2024-01-01'", "v:a::int is not null"):
            assert dv.scan(root, where=where).read_all().num_rows == 1, (number, where)


def test_types_of_paths(tmp_path):
    """A path without a type has a common type of the typed columns, if all files prove one, and else is VARIANT."""
    files = [
        [{"i": n, "d": n, "m": "x", "n": None if n % 2 else n, "only": n} for n in range(20)],
        [{"i": n, "d": Decimal(n) / 4, "m": n, "n": n} for n in range(20)],
    ]
    root = by_hand(tmp_path / "t", {"v": "variant"}, [(pa.table({"v": column(rows)}), {}) for rows in files], protocol=VARIANTS)
    table = dv.scan(root, ["v:i", "v:d", "v:m", "v:n", "v:only", "v:nothing"]).read_all()
    kinds = {name: table.schema.field(name).type for name in table.column_names}
    assert pa.types.is_integer(kinds["v:i"])
    assert pa.types.is_integer(kinds["v:n"])
    assert pa.types.is_decimal(kinds["v:d"])
    assert pa.types.is_struct(kinds["v:m"])
    assert pa.types.is_struct(kinds["v:nothing"])
    whole = [row for rows in files for row in rows]
    for name in kinds:
        assert [decoded(value) for value in table[name].to_pylist()] == [row.get(name[2:]) for row in whole], name


def test_common_types():
    """Common types hold every value of each of them."""
    assert common([pa.int8(), pa.null(), pa.int64()]) == pa.int64()
    assert common([pa.int32(), pa.decimal128(9, 2)]) == pa.decimal128(12, 2)
    assert common([pa.int64(), pa.decimal128(38, 30)]) is None
    assert common([pa.float32(), pa.float64()]) == pa.float64()
    assert common([pa.string(), pa.int8()]) is None
    assert common([pa.int8(), None]) is None
    assert common([pa.null()]) is None


def test_strict_casts_of_rows_that_are_not_asked_for(tmp_path):
    """A cast that fails is an error only in rows that earlier operands of an AND leave open; try_variant_get never fails."""
    table = pa.table({"n": pa.array([1, 2], pa.int64()), "v": column([{"a": "x"}, {"a": 5}])})
    root = by_hand(tmp_path / "t", {"n": "long", "v": "variant"}, [(table, {})], protocol=VARIANTS)
    assert dv.scan(root, ["v:a::int"], "n = 2 and v:a::int = 5").read_all().to_pylist() == [{"v:a": 5}]
    assert dv.scan(root, ["try_variant_get(v, '$.a', 'int')"]).read_all().column(0).to_pylist() == [None, 5]
    for arguments in ({"columns": ["v:a::int"]}, {"where": "v:a::int = 5"}):
        with pytest.raises(errors.CastError, match=r"0\.parquet: v:a::int: a value cannot be cast to int"):
            dv.scan(root, **arguments).read_all()


def vector(rows: Iterable[int]) -> dict[str, Any]:
    """A deletion vector in the log."""
    bitmap = pyroaring.BitMap64(rows)
    data = struct.pack("<i", 1681511377) + bitmap.serialize()
    text = z85.encode(data + bytes(-len(data) % 4))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": len(bitmap)}


@settings(max_examples=length("DELTA_VARIANT_EXAMPLES", 15, 300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 2000), st.data(), st.sampled_from(["byte", "cast"]), st.integers(1, 4), st.booleans())
def test_the_row_of_an_error(tmp_path, rows, data, kind, groups, inside):
    """An error about a value names the file, what was asked for, and the row of the file, deleted rows included."""
    at = data.draw(st.integers(0, rows - 1))
    deleted = data.draw(st.sets(st.integers(0, rows - 1).filter(lambda row: row != at), max_size=5))
    table, name, schema = broken(rows, at, kind), "v", {"n": "long", "v": "variant"}
    if inside:
        table = pa.table({"n": table["n"], "s": pa.StructArray.from_arrays([table["v"].combine_chunks()], ["v"])})
        fields = [{"name": "v", "type": "variant", **FIELD}]
        name, schema = "s.v", {"n": "long", "s": {"type": "struct", "fields": fields}}
    root = by_hand(Path(tempfile.mkdtemp(dir=tmp_path)) / "t", schema, [], protocol={
        **VARIANTS, "readerFeatures": ["variantType", "deletionVectors"], "writerFeatures": ["variantType", "deletionVectors"]
    })  # fmt: skip
    pq.write_table(table, root / "x.parquet", row_group_size=-(-rows // groups))
    add = {"path": "x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    commit(root, 1, [{"add": {**add, **({"deletionVector": vector(deleted)} if deleted else {})}}])
    path = {"byte": f"{name}:text::string", "cast": f"{name}:in[0]::int"}[kind]
    asked = [{"columns": [path]}, {"columns": ["n", path], "where": f"n >= {at}"}, {"where": f"n >= 0 and {path} is null"}]
    if kind == "byte":
        asked.append({"columns": [name.partition(".")[0]]})
    for arguments in asked:
        with pytest.raises(errors.CastError if kind == "cast" else errors.MalformedVariantError) as raised:
            dv.scan(root, **arguments).read_all()
        what = path if "where" in arguments or ":" in arguments["columns"][0] else f"column {name.partition('.')[0]}"
        assert f"/x.parquet: {what}: " in str(raised.value)
        assert re.search(rf"\brow {at}\)", str(raised.value)), raised.value
    if rows > 1:
        others = dv.scan(root, [path], f"n <> {at}").read_all()
        assert others.num_rows == rows - 1 - len(deleted)


def test_java_floats():
    """Doubles become the texts of Java."""
    texts = {0.0: "0.0", 1e7: "1.0E7", 123456.0: "123456.0", 0.001: "0.001", 1e-4: "1.0E-4", 1.5e300: "1.5E300", -2.5: "-2.5"}
    texts |= {5e-324: "4.9E-324", float("inf"): "Infinity", float("-inf"): "-Infinity"}
    assert casts.cast(pa.array(texts), pa.string()).to_pylist() == list(texts.values())


# ---- tables of Spark -------------------------------------------------------------------------------------------------

EVENT = (
    'parse_json(case when id % 7 = 0 then \'{"a": null, "k": "x"}\' when id % 11 = 0 then \'{"a": "12", "k": 5}\' '
    "when id % 13 = 0 then '[1, {\"b\": 2}]' when id % 17 = 0 then null else to_json(struct(id a, "
    "cast(id / 4 as decimal(10,2)) d, struct('n' || id % 10 name, id * 2 n) o, array(id, id + 1) l, id % 2 = 0 b, id / 3 f, "
    "timestamp_micros(1700000000000000 + id * 1000000) ts)) end)"
)
PARTITIONS = {
    "ps": "case when id % 4 > 0 then 'a b/' || id % 4 end", "pi": "cast(id % 3 as int)", "pb": "id % 2 = 0",
    "pd": "date'2024-02-29' + cast(id % 3 as int)",
    "pt": "timestamp'2024-01-01 10:00:00.5' + make_interval(0, 0, 0, cast(id % 2 as int))",
    "pn": "timestamp_ntz'2024-03-10 02:30:00'", "pm": "cast(id % 2 / 4 as decimal(5,2))", "pf": "cast(id % 2 as double)",
}  # fmt: skip


COLUMNS = {
    "i": ("int", "if(id % 9 = 0, null, cast(id as int))"), "h": ("smallint", "cast(id % 300 as smallint)"),
    "f": ("float", "cast(id / 3 as float)"), "x": ("double", "if(id = 77, double('NaN'), id / 7)"),
    "m": ("decimal(12,2)", "cast(id / 4 as decimal(12,2))"), "t": ("string", "if(id % 50 = 0, null, 'n' || id)"),
    "day": ("date", "date'2023-11-14' + cast(id / 100 as int)"),
    "at": ("timestamp", "timestamp_micros(1700000000000000 + id * 1000001)"),
    "local": ("timestamp_ntz", "cast(timestamp_micros(1700000000000000 + id * 999999) as timestamp_ntz)"),
    "b": ("boolean", "id % 100 < 50"), "s.y": ("bigint", "id * 3"), "n": ("int", "cast(null as int)"),
}  # fmt: skip


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One table of each kind."""
    root = tmp_path_factory.mktemp("tables")
    events = spark.range(0, 400, 1, 2).selectExpr("id", f"{EVENT} v")
    paths = {
        name: str(root / name)
        for name in (
            "ours",
            "spark",
            "plain",
            "partitions",
            "mapped",
            "ids",
            "deleted",
            "widened",
            "nested",
            "json",
            "parquet",
            "parts",
            "clean",
            "columns",
        )
    }
    dv.write(events, paths["ours"])
    plain = [f"{text} {name}" for name, (_, text) in COLUMNS.items() if name != "s.y"]
    many = spark.range(0, 400, 1, 4).selectExpr("id", *plain, "named_struct('y', id * 3) s", f"{EVENT} v")
    many.write.format("delta").option("delta.enableVariantShredding", "true").save(paths["columns"])
    shredding = {"delta.enableVariantShredding": "true"}
    events.write.format("delta").options(**shredding).save(paths["spark"])
    dv.write(events, paths["plain"], shred=False)
    clean = "parse_json(to_json(struct(id a, cast(id / 4 as decimal(10,2)) d, 'n' || id % 10 s, id % 2 = 0 b)))"
    dv.write(spark.range(0, 400, 1, 1).selectExpr("id", f"{clean} v"), paths["clean"], max_rows_per_file=50)

    some = spark.range(0, 24, 1, 1).selectExpr(
        "id", "parse_json('{\"a\":' || id || '}') v", *(f"{text} {name}" for name, text in PARTITIONS.items())
    )
    dv.write(some, paths["partitions"], partition_by=list(PARTITIONS))

    for name in ("mapped", "ids"):
        mode = "name" if name == "mapped" else "id"
        spark.sql(
            f"create table delta.`{paths[name]}` (id long, s struct<x: int, w: variant>, p string, v variant) using delta "
            f"partitioned by (p) tblproperties ('delta.columnMapping.mode' = '{mode}', 'delta.enableVariantShredding' = 'true')"
        )
        struct = "named_struct('x', cast(id as int), 'w', parse_json('{\"q\":' || id || '}')) s"
        row = f"select id, {struct}, string(id % 2) p, {EVENT} v"
        spark.sql(f"insert into delta.`{paths[name]}` {row} from range(40)")
        spark.sql(f"alter table delta.`{paths[name]}` rename column v to `w x`")
        spark.sql(f"alter table delta.`{paths[name]}` rename column s.x to y")
        spark.sql(f"alter table delta.`{paths[name]}` rename column p to part")
        spark.sql(f"alter table delta.`{paths[name]}` add column added int")
        spark.sql(f"alter table delta.`{paths[name]}` drop column id")

    dv.write(events, paths["deleted"])
    spark.sql(f"alter table delta.`{paths['deleted']}` set tblproperties ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"delete from delta.`{paths['deleted']}` where id % 5 = 2")
    spark.sql(f"delete from delta.`{paths['deleted']}` where id in (3, 4, 299)")

    spark.sql(
        f"create table delta.`{paths['widened']}` (id byte, f float, d decimal(5,2), t date, v variant) using delta "
        "tblproperties ('delta.enableTypeWidening' = 'true', 'delta.feature.timestampNtz' = 'supported')"
    )
    spark.sql(
        f"insert into delta.`{paths['widened']}` "
        "select cast(id as byte), id / 3, id / 4, date'2024-01-01', parse_json('1') from range(10)"
    )
    types = {"id": "long", "f": "double", "d": "decimal(12,4)", "t": "timestamp_ntz"}
    wider = ", ".join(f"{name} type {kind}" for name, kind in types.items())
    spark.sql(f"alter table delta.`{paths['widened']}` alter column {wider}")
    spark.sql(
        f"insert into delta.`{paths['widened']}` "
        "select id * 10000000000, id / 3, id / 4, timestamp_ntz'2024-01-01 01:02:03', null from range(10)"
    )

    whole = "named_struct('w', v, 'n', id) s, array(v, null) l, map('k', v, 'z', null) m, array(named_struct('w', v)) ls"
    events.limit(60).selectExpr(
        "id",
        whole.split(" s,", maxsplit=1)[0] + " s",
        "array(v, cast(null as variant)) l",
        "map('k', v) m",
        "array(named_struct('w', v)) ls",
    ).write.format("delta").options(**shredding).save(paths["nested"])

    for name in ("json", "parquet", "parts"):
        as_struct = ", 'delta.checkpoint.writeStatsAsJson' = 'false', 'delta.checkpoint.writeStatsAsStruct' = 'true'"
        properties = as_struct if name == "parts" else ", 'delta.checkpointPolicy' = 'v2'"
        spark.conf.set("spark.databricks.delta.checkpointV2.topLevelFileFormat", "json" if name == "json" else "parquet")
        if name == "parts":
            spark.conf.set("spark.databricks.delta.checkpoint.partSize", "2")
        spark.sql(
            f"create table delta.`{paths[name]}` (id long, v variant) using delta "
            # Every commit to `parts` gets a checkpoint, so that there is one before the newest.
            f"tblproperties ('delta.checkpointInterval' = '{1 if name == 'parts' else 2}'{properties})"
        )
        for start in (0, 20):
            rows = spark.range(start, start + 20, 1, 1).selectExpr("id", f"{EVENT} v")
            dv.write(rows, paths[name], max_rows_per_file=10)
        spark.sql(f"delete from delta.`{paths[name]}` where id between 20 and 29")
        spark.conf.unset("spark.databricks.delta.checkpointV2.topLevelFileFormat")
        spark.conf.unset("spark.databricks.delta.checkpoint.partSize")
        for old in range(2):  # a checkpoint has to replace them
            (Path(paths[name]) / "_delta_log" / f"{old:020}.json").unlink()
    return paths


KINDS = (
    "ours",
    "columns",
    "spark",
    "plain",
    "clean",
    "partitions",
    "mapped",
    "ids",
    "deleted",
    "widened",
    "nested",
    "json",
    "parquet",
    "parts",
)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_every_kind_of_table(spark, tables, kind):
    """All columns have the rows that Spark reads: partitions, mapped columns, deletion vectors, widened types, checkpoints."""
    table = dv.scan(tables[kind]).read_all()
    assert listed(table) == by_spark(spark.read.format("delta").load(tables[kind]))
    assert table.num_rows


@pytest.mark.spark
@pytest.mark.slow
def test_kinds_of_checkpoints(tables):
    """The tables have the checkpoints that the test above is about."""
    names = {
        kind: [path.name for path in Path(tables[kind], "_delta_log").glob("*.checkpoint*")]
        for kind in ("json", "parquet", "parts")
    }
    assert any(name.endswith(".json") and len(name) > 40 for name in names["json"])
    assert any(name.endswith(".parquet") and len(name) > 50 for name in names["parquet"])
    assert any(".checkpoint.0000000002." in name for name in names["parts"])
    assert list(Path(tables["json"], "_delta_log", "_sidecars").glob("*.parquet"))


@pytest.mark.spark
@pytest.mark.slow
def test_damaged_checkpoints(spark, tables, tmp_path):
    """A damaged hint is ignored. So is a damaged checkpoint that older ones and commits can replace; else it is an error."""
    copy = Path(shutil.copytree(tables["parts"], tmp_path / "copy"))
    log = copy / "_delta_log"
    (log / "_last_checkpoint").write_text('{"version": 99, "size": ')
    want = listed(dv.scan(tables["parts"]).read_all())
    assert listed(dv.scan(copy).read_all()) == want
    newest = max(path.name[:20] for path in log.glob("*.checkpoint.*"))
    for path in log.glob(f"{newest}.checkpoint.*"):
        path.write_bytes(b"PAR1")
    assert listed(dv.scan(copy).read_all()) == want
    for path in log.glob("*.checkpoint.*"):
        path.write_bytes(b"PAR1")
    with pytest.raises(errors.TableError, match=r"checkpoint.*damaged"):
        dv.scan(copy)


@pytest.mark.spark
@pytest.mark.slow
def test_time_travel(spark, tables):
    """Each version that Spark can read has its rows, by number and by time."""
    for kind in ("deleted", "json"):
        path = tables[kind]
        history = spark.sql(f"describe history delta.`{path}`").select("version", "timestamp").collect()
        for row in history:
            if kind == "json" and row["version"] < 2:
                with pytest.raises(errors.TableError, match="commit"):
                    dv.scan(path, version=row["version"])
                continue
            want = by_spark(spark.read.format("delta").option("versionAsOf", row["version"]).load(path))
            assert listed(dv.scan(path, version=row["version"]).read_all()) == want
            at = row["timestamp"].replace(tzinfo=None)
            assert listed(dv.scan(path, timestamp=str(at)).read_all()) == want, (kind, row)
    log = Log(_storage(tables["ours"], {}), _storage(tables["ours"], {}).open())
    assert log.snapshot(0).version == 0


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["i", "p"])
def test_kinds_of_deletion_vectors(spark, tables, tmp_path, kind):
    """Deletion vectors in the log and at absolute paths delete the rows that those with a UUID delete."""
    copy = Path(shutil.copytree(tables["deleted"], tmp_path / "a copy"))
    changed = 0
    for path in copy.rglob(".*.crc"):  # Hadoop's checksums of local files
        path.unlink()
    for path in copy.joinpath("_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            vector = (line.get("add") or line.get("remove") or {}).get("deletionVector")
            if vector and vector["storageType"] == "u":
                changed += 1
                import uuid

                name = f"deletion_vector_{uuid.UUID(bytes=z85.decode(vector['pathOrInlineDv'][-20:]))}.bin"
                file = copy / vector["pathOrInlineDv"][:-20] / name
                if kind == "p":
                    vector |= {"storageType": "p", "pathOrInlineDv": file.absolute().as_uri()}
                else:
                    data = file.read_bytes()[vector["offset"] + 4 :][: vector["sizeInBytes"]]
                    vector |= {"storageType": "i", "pathOrInlineDv": z85.encode(data + bytes(-len(data) % 4))}
                    del vector["offset"]
        path.write_text("\n".join(map(json.dumps, lines)))
    assert changed
    want = listed(dv.scan(tables["deleted"]).read_all())
    assert listed(dv.scan(copy).read_all()) == want
    assert by_spark(spark.read.format("delta").load(str(copy))) == want


@pytest.mark.spark
@pytest.mark.slow
def test_damaged_deletion_vectors(tables, tmp_path):
    """A deletion vector with a flipped bit, and one that is gone, are errors."""
    copy = Path(shutil.copytree(tables["deleted"], tmp_path / "copy"))
    for file in copy.rglob("deletion_vector_*.bin"):
        data = bytearray(file.read_bytes())
        data[-6] ^= 1
        file.write_bytes(data)
    with pytest.raises(errors.TableError, match="checksum"):
        dv.scan(copy).read_all()
    for file in copy.rglob("deletion_vector_*.bin"):
        file.unlink()
    with pytest.raises(errors.TableError, match=r"deletion vector .* is gone"):
        dv.scan(copy).read_all()


# ---- values ----------------------------------------------------------------------------------------------------------

CASTS = [asked for asked in ASKED if "<" not in asked and asked != "variant"]
SHORTER = {("5.0E-324", "4.9E-324"), ("-1.0E-45", "-1.4E-45")}
JAVA_17 = {("float", "string"), ("double", "string"), ("mixed", "string")}  # prints more digits than needed for some numbers


def physical(table: pa.Table) -> list[dict[str, Any]]:
    """Rows with dates and timestamps as integers: Python's end with the year 9999."""
    columns = {}
    for name, chunks in zip(table.column_names, table.columns, strict=True):
        values = chunks.combine_chunks()
        values = values.view(pa.int32()) if pa.types.is_date(values.type) else values
        columns[name] = values.view(pa.int64()) if pa.types.is_timestamp(values.type) else values
    return pa.table(columns).to_pylist()


TYPED = [pa.scalar(value, kind) for kind, some in VALUES.values() for value in some]
EVERY = [
    {"mixed": value, **{key: some[row % len(some)] for key, (_, some) in VALUES.items()}} for row, value in enumerate(TYPED)
]


@pytest.fixture(scope="module")
def every_type(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], str]:
    """Makes the table of EVERY, and of rows without values, shredded or not, once."""

    def make(shredded: bool) -> str:
        path = tmp_path_factory.mktemp("every") / "t"
        if shredded:
            shape = pa.struct([(key, kind) for key, (kind, _) in VALUES.items()])
            return made(spark, path, [[*EVERY, {}, "SQL NULL", dict.fromkeys(VALUES)]], shape)
        source = path.with_suffix(".parquet")
        dv.parquet.write_table(pa.table({"id": pa.array(range(len(EVERY)), pa.int64()), "v": column(EVERY)}), source)
        dv.write(spark.read.parquet(str(source)).coalesce(1), path, shred=False)
        return str(path)

    return functools.cache(make)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("shredded", "zone"),
    # In `make test` each form in one zone.
    share(itertools.product([True, False], ["UTC", "America/St_Johns"]), 3),
)
def test_every_type_as_every_other(spark, every_type, zone, shredded):
    """A path of each type, read as each type, has the value of Spark's try_variant_get, from typed columns and from bytes."""
    rows, longest, path = EVERY, len(EVERY), every_type(shredded)
    keys = ["mixed", *VALUES]
    gets = {f"{key}_{number}": (key, asked) for key in keys for number, asked in enumerate(CASTS)}
    columns = {name: f"try_variant_get(v, '$.{key}', '{asked}')" for name, (key, asked) in gets.items()}
    variants = {key: f"to_json(v:{key})" for key in keys} if zone == "UTC" else {}
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        df = spark.read.format("delta").load(path)
        with generated(spark):
            asked = df.selectExpr("id", *(f"{text} {name}" for name, text in columns.items())).toArrow()
            texts = df.selectExpr("id", *(f"{text} `{key}`" for key, text in variants.items())).collect() if variants else []
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    want = {row["id"]: row for row in physical(asked)}
    found = physical(dv.scan(path, {"id": "id", **columns}, timezone=zone).read_all())
    if variants:
        by_id = {row["id"]: row for row in texts}
        ours = dv.scan(path, {"id": "id", **{key: f"try_variant_get(v, '$.{key}', 'variant')" for key in keys}}).read_all()
        for key in set(keys) - {"mixed", "float", "double"}:
            json_texts = dv.arrow.to_json(ours[key]).to_pylist()
            assert json_texts == [by_id[number][key] for number in ours["id"].to_pylist()], key
    wrong = [
        (gets[name], repr(rows[row["id"]].get(gets[name][0])) if row["id"] < longest else "", row[name], want[row["id"]][name])
        for row in found
        for name in columns
        if repr(row[name]) != repr(want[row["id"]][name])
        and not (gets[name] in JAVA_17 and (row[name], want[row["id"]][name]) in SHORTER)
    ]
    assert not wrong, "\n".join(map(repr, wrong[:40]))


ODD = [
    "12", " 12 ", "12\x7f", "\u0661", "1.5", "5.", ".5", "0x1p3", "-NaN", "nan", "-inf", "1f", "1e400", "0e100", "1" * 5000,
    "9" * 38, "1.00000017881393432617187499", "1.000000178813934326171875", "true", "Y", "off", "2024-1-1", "2024-01-01T", "1:",
    "2024-01-01 x", "2024-01-01 \u00e9", "2024-01-01 10", "2024-01-01 10:00", "2024-01-01 10:00Z", "2024-01-01 10:00:00.5Z",
    "2024-01-01 24:00:00", "2024-01-01 10:00:00+1", "2024-01-01 10:00:00+1:2", "2024-01-01 10:00:00+0130",
    "2024-01-01 10:00:00+123", "2024-01-01 10:00:00 PST", "2024-01-01 10:00:00 UTC+2", "2024-01-01 10:00:00 Europe/Paris",
    "+12345-01-01", "-0001-01-01", "1e-99999999999999999999",
]  # fmt: skip


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_odd_strings_as_every_type(spark, zone):
    """A string is cast to each type as Spark casts it: its spaces, digits, exponents, special numbers, times and zones."""
    kinds = [kind for kind in CASTS if kind not in ("string", "binary")]
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        df = spark.createDataFrame([(number, text) for number, text in enumerate(ODD)], "id int, s string").coalesce(1)
        casted = (f"try_cast(s as {kind}) `{number}`" for number, kind in enumerate(kinds))
        with generated(spark):
            want = physical(df.selectExpr("id", *casted).toArrow())
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    types = [dv.schema.parse(kind) for kind in kinds]
    found = [casts.values_of(casts.cast(pa.array(ODD), kind, casts.zone(zone))) for kind in types]
    wrong = [
        (ODD[row["id"]][:50], kind, found[number][row["id"]], row[str(number)])
        for row in want
        for number, kind in enumerate(kinds)
        if repr(found[number][row["id"]]) != repr(row[str(number)])
    ]
    assert not wrong, wrong


LARGE = {
    "bigint": [2**63 - 1, -(2**63), 9223372036855], "double": [1e300, 9.3e12, 127.9, -128.9, -0.0],
    "decimal(38,10)": [Decimal("9999999999999999999999999999.9999999999"), Decimal("-1234567890123456789.5"), Decimal(2**63)],
    "decimal(38,20)": [Decimal("-0.99999999999999999999"), Decimal("127.99999999999999999999"), Decimal("2147483647.99999999")],
    "decimal(38,26)": [Decimal("1.00000017881393432617187499"), Decimal("1.000000178813934326171875")],
}  # fmt: skip


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("in_variant", [False, True])
def test_large_numbers_as_every_type(spark, in_variant):
    """Numbers at the limits of a type become what they become in Spark, in columns and, where that differs, in Variants."""
    kinds = ["tinyint", "int", "bigint", "float", "double", "decimal(38,0)", "decimal(5,2)", "timestamp", "boolean"]
    form = "try_variant_get(cast({} as variant), '$', '{}')" if in_variant else "try_cast({} as {})"
    rows = itertools.zip_longest(*(map(str, values) for values in LARGE.values()))
    texts = spark.createDataFrame([*rows], ", ".join(f"s{n} string" for n in range(len(LARGE)))).coalesce(1)
    numbers = texts.selectExpr(*(f"cast(s{n} as {source}) x{n}" for n, source in enumerate(LARGE)))
    casted = (f"{form.format(f'x{n}', kind)} `{source} {kind}`" for n, source in enumerate(LARGE) for kind in kinds)
    with generated(spark):  # interpreted, Spark 4.2 rounds some decimals otherwise when it casts them to timestamps
        want = numbers.selectExpr(*casted).toArrow()
    for source, values in LARGE.items():
        array = casts.array_of(values, dv.schema.parse(source))
        for kind in kinds:
            found = casts.cast(array, dv.schema.parse(kind), in_variant=in_variant)
            wanted = want[f"{source} {kind}"].combine_chunks()[: len(values)]
            assert casts.values_of(found) == casts.values_of(wanted), (source, kind)


# ---- predicates ------------------------------------------------------------------------------------------------------


class Predicates:
    """Predicates about the tables `ours`, `clean` and others with the columns id and v."""

    def __init__(self, seed: int, columns: Any = ()) -> None:
        self.rng, self.columns = random.Random(seed), dict(columns)

    def tree(self, depth: int) -> str:
        if depth == 0 or self.rng.random() < 0.3:
            return self.leaf()
        form = self.rng.choice(["{} and {}", "{} or {}", "not ({})", "({} or {}) and {}"])
        return form.format(*(f"({self.tree(depth - 1)})" for _ in range(form.count("{}"))))

    def operand(self) -> tuple[str, str]:
        """A column or a path, and what it is compared with."""
        rng = self.rng
        if self.columns and rng.random() < 0.7:
            name = rng.choice(list(self.columns))
            return name, self.columns[name][0]
        kind = rng.choice(
            ["int", "bigint", "double", "decimal(12,2)", "string", "boolean", "timestamp", "date", "smallint", "float"]
        )
        path = rng.choice(["a", "d", "o.n", "o.name", "l[1]", "b", "f", "ts", "k", "s", "nothing"])
        if rng.random() < 0.2:
            return "id", "bigint"
        keys = {"name": "o.name"}.get(path, path)
        form = rng.choice(["try_variant_get(v, '$.{}', '{}')", "try_cast(v:{} as {})"])
        return form.format(keys, kind), kind

    def constant(self, kind: str) -> str:
        rng, number = self.rng, self.rng.choice([0, 1, 5, 100, 199, 399, 1000, -1])
        match kind:
            case "string":
                return rng.choice(["'n1'", "'n'", "'12'", "'5'", "'2023-11-14T22:15:00.000Z'", "''", "'true'"])
            case "boolean":
                return rng.choice(["true", "false"])
            case "timestamp_ntz":
                return rng.choice(
                    [f"timestamp_ntz'2023-11-14 22:1{number % 10}:00.5'", "'2023-11-14 22:17:00'", "date'2023-11-15'"]
                )
            case "timestamp":
                return rng.choice(
                    [f"timestamp'2023-11-14 22:1{number % 10}:00'", "timestamp'2023-11-14T22:14:00Z'", "'2023-11-14 22:15:00'"]
                )
            case "date":
                return rng.choice(["date'2023-11-14'", "'2023-11-15'", "date'2024-01-01'"])
        return rng.choice(
            [str(number), f"{number}.25", f"{number}e0", f"{number}L", f"cast({number} as decimal(10,3))", f"'{number}'"]
        )

    def leaf(self) -> str:
        rng = self.rng
        operand, kind = self.operand()
        form = rng.random()
        if form < 0.1:
            return f"{operand} is {rng.choice(['', 'not '])}null"
        if form < 0.2:
            values = ", ".join(self.constant(kind) for _ in range(rng.randrange(1, 4)))
            values = ", ".join(text for text in values.split(", ")) + rng.choice(["", "", ", null"])
            return f"{operand} {rng.choice(['', 'not '])}in ({values})"
        if form < 0.3:
            return f"{operand} {rng.choice(['', 'not '])}between {self.constant(kind)} and {self.constant(kind)}"
        if kind == "string" and form < 0.5:
            pattern = rng.choice(["n%", "%1", "n_", "%", "n1", "2023%Z", r"n\\%"])
            return f"{operand} {rng.choice(['', 'not '])}like '{pattern}'"
        if kind == "boolean" and form < 0.5:
            return rng.choice([operand, f"not {operand}", f"{operand} is true"])
        sides = [operand, self.constant(kind) if rng.random() < 0.95 else "null"]
        if rng.random() < 0.2:
            sides.reverse()
        return rng.choice(["=", "<>", "<", "<=", ">", ">=", "<=>", "!="]).join([f"{sides[0]} ", f" {sides[1]}"])


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "zone"),
    [
        ("ours", "UTC"),
        ("clean", "UTC"),
        ("deleted", "America/St_Johns"),
        ("spark", "UTC"),
        ("columns", "UTC"),
        ("columns", "Asia/Tokyo"),
    ],
)
def test_predicates(spark, tables, kind, zone):
    """Generated predicates leave exactly the rows for which Spark finds them true."""
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        compare_predicates(spark, tables[kind], Predicates(SEED + len(kind + zone), COLUMNS if kind == "columns" else ()), zone)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def compare_predicates(spark: SparkSession, path: str, made_: Predicates, zone: str) -> None:
    predicates = [made_.tree(2) for _ in range(PREDICATES // 6)]
    df = spark.read.format("delta").load(path)
    kept = []
    for text in predicates:  # analysis alone: text that Spark refuses is no predicate
        try:
            df.selectExpr(f"({text}) p").schema  # noqa: B018  # analyzed here
            kept.append(text)
        except Exception as error:  # noqa: BLE001
            assert "DATATYPE_MISMATCH" in str(error), (text, str(error)[:300])
    rows = collected(df.selectExpr("id", *(f"({text}) p{number}" for number, text in enumerate(kept))))
    wrong = []
    for number, text in enumerate(kept):
        try:
            found: Any = sorted(dv.scan(path, ["id"], text, timezone=zone).read_all()["id"].to_pylist())
        except errors.DeltaVariantError as error:
            found = repr(error)
        wanted = sorted(row["id"] for row in rows if row[f"p{number}"])
        if found != wanted:
            wrong.append((text, str(found)[:200], str(wanted)[:200]))
    assert not wrong, "\n\n".join(map(repr, wrong[:20])) + f"\n{len(wrong)} of {len(kept)}"
    assert len(kept) > PREDICATES // 12


LITERALS = [
    "'it''s'", '"a""b"', "'a' 'b'", "'a''' 'b'", "r'a\\nb'", "'\\n\\t\\\\\\'\\\"'", "'a\\%b\\_c'", "'\\q\\u0041\\101'", "''",
    "''''", "1.5e3BD", "0.001", "5.", "-2147483648", "-9223372036854775808", "1e3", "1.5f", "date'2024-1-1'",
    "timestamp'2024-01-01'",
]  # fmt: skip


@pytest.mark.spark
@pytest.mark.slow
def test_literals(spark):
    """A literal has the value and the type that it has in Spark: doubled quotes, escapes, numbers, times."""
    [row] = physical(spark.range(1).selectExpr(*(f"{text} l{number}" for number, text in enumerate(LITERALS))).toArrow())
    schema = fields.Struct(())
    found = [parse_any(text, schema, casts.zone("UTC")) for text in LITERALS]
    assert [one.value for one in found] == list(row.values())


@pytest.mark.spark
@pytest.mark.slow
def test_predicates_on_partitions_and_ordinary_columns(spark, tables):
    """Partition values, statistics of ordinary columns, and fields of structs answer as Spark does."""
    texts = {
        "partitions": [
            "ps = 'a b/1'", "ps is null", "pi in (1, 2)", "pb", "not pb", "pd = date'2024-03-01'", "pd > '2024-02-29'",
            "pt = timestamp'2024-01-01 10:00:00.5'", "pt > pd", "pn = timestamp_ntz'2024-03-10 02:30:00'", "pm = 0.25",
            "pf < 0.5", "ps like 'a b%' and pi <> 0", "cast(pi as string) = '1'", "ps <=> null or v:a::int = 7",
        ],
        "mapped": ["s.y = 5", "s.w:q::int >= 38", "part = '1'", "`w x`:a::string = '12'", "added is null", "added = 1"],
        "ids": ["s.y = 5", "s.w:q::int >= 38", "part = '1'", "`w x`:a::string = '12'", "added is null"],
        "widened": ["id > 20000000000", "f < 1", "d = 0.75", "t = date'2024-01-01'", "t > '2024-01-01 00:00:01'"],
        "nested": ["s.n < 5", "s.w:a::string = '12'", "s is not null"],
    }  # fmt: skip
    for kind, predicates in texts.items():
        df = spark.read.format("delta").load(tables[kind])
        rows = collected(df.selectExpr(*(f"({text}) p{n}" for n, text in enumerate(predicates))))
        want = {text: sum(bool(row[n]) for row in rows) for n, text in enumerate(predicates)}
        assert {text: dv.scan(tables[kind], where=text).read_all().num_rows for text in predicates} == want, kind


@pytest.mark.spark
@pytest.mark.slow
def test_bounds_rule_out_files(tables, monkeypatch):
    """A predicate on a path opens only the files whose bounds can match; numbers, strings and their prefixes."""
    opened = opened_files(monkeypatch)
    want = {
        "v:a::bigint = 60": 1, "v:a::int < 50": 1, "v:a::bigint in (1, 399)": 2, "v:d::decimal(12,2) >= 90": 1,
        "v:a::bigint = 1000": 0,
        "v:s::string like 'x%'": 0, "id = 5 or v:a::bigint = 399": 2, "v:nothing::int = 1": 8, "not v:a::bigint >= 50": 1,
        "v:a::double < 10.5": 1, "v:a::string = '5'": 8,
    }  # fmt: skip
    found = {}
    for text in want:
        opened.clear()
        dv.scan(tables["clean"], where=text).read_all()
        found[text] = len(opened)
    assert found == want


@pytest.mark.spark
@pytest.mark.slow
def test_object_storage(tables, server):
    """A table on S3 is read with Hadoop's settings, deletion vectors included, by `scan` and by a dataset that is pickled."""
    storage = Storage.of("s3a://lake/scanned", server.get)
    local, s3 = fs.LocalFileSystem(), storage.open()
    fs.copy_files(tables["deleted"], storage.root, source_filesystem=local, destination_filesystem=s3)
    scanned = dv.scan("s3a://lake/scanned", storage_options=server).read_all()
    assert listed(scanned) == listed(dv.scan(tables["deleted"]).read_all())
    dataset = pickle.loads(pickle.dumps(dv.dataset("s3a://lake/scanned", storage_options=server)))
    assert listed(dataset.to_table()) == listed(scanned)
    with pytest.raises(errors.TableError, match="is not a Delta table"):
        dv.scan("s3a://lake/nothing", storage_options=server)
