"""`convert`: Parquet files in any layout, and JSON texts of a table, become VARIANT columns, once, whatever fails meanwhile."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta import DeltaTable
from pyspark.sql import functions as F
from pyspark.sql import types as t

import delta_variant as dv
from delta_variant import binary, jvm, loading, parquet, schema, shredding
from delta_variant.errors import (
    ConflictError,
    InvalidJsonError,
    InvalidLayoutError,
    InvalidSchemaError,
    MalformedVariantError,
    TableError,
    UnsupportedFeatureError,
)
from delta_variant.transaction import Transaction
from tests.contents import canonical, read, vacuum
from tests.layouts.writing import Writer
from tests.logs import adds, last, live, newest
from tests.sources import TYPES, broken, expected, rows, text, variants
from tests.support import SOAK, delta_log, share

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]

SHAPE = "id bigint, name string, at struct<x: bigint, y: string>, tags array<string>"
LAYOUTS = {
    "draft": Writer("variant_value"),
    "draft_of_object_and_array": Writer("variant_value", "object", "array"),
    "draft_of_bare_columns": Writer("variant_value", direct=lambda path: path in ("$.id", "$.at")),
    "first": Writer("untyped_value", "object", "array", own=True),
}


def write_layouts(spark, folder: Path) -> int:
    """Writes a file of each layout, and of each engine, with about 20 rows each. Returns how many rows that are."""
    folder.mkdir(parents=True)
    first = 0
    for name, writer in LAYOUTS.items():
        table = rows(first, first + 20)
        plain = table.column("v").combine_chunks()
        originals = [None if v is None else binary.decode(v["metadata"], v["value"]) for v in plain.to_pylist()]
        old = writer.write(shredding.shred(plain, schema.parse(SHAPE)), originals)
        pq.write_table(pa.table({"n": table.column("n"), "v": old}), folder / f"{name}.parquet", store_schema=False)
        first += 20
    for name, shred in (("plain", None), ("shredded", {"v": SHAPE})):
        parquet.write_table(rows(first, first + 20), folder / f"final_{name}.parquet", shred=shred)
        first += 20
    null = rows(first + 24, first + 25)  # of the next 20 rows: DuckDB makes NULL of a JSON null
    pq.write_table(pa.concat_tables([rows(first, first + 20), null]), folder / "without_annotation.parquet")
    first += 20
    texts = pa.table({"n": pa.array(range(first, first + 20), pa.int64()), "j": [text(n) for n in range(first, first + 20)]})
    assert texts.num_rows == 20
    query = "SELECT n, j::JSON::VARIANT v FROM texts WHERE j IS DISTINCT FROM 'null'"
    duckdb.sql(f"COPY ({query}) TO '{folder / 'duckdb.parquet'}' (FORMAT parquet)")
    first += 20
    for name, shredding_on in (("spark", "false"), ("spark_shredded", "true")):
        with jvm.settings(spark, {"spark.sql.variant.writeShredding.enabled": shredding_on}):
            expected(spark, first + 20, first).coalesce(1).write.parquet(str(folder / name))
        (part,) = (folder / name).glob("part*")
        part.rename(folder / f"{name}.parquet")
        for left in (folder / name).iterdir():
            left.unlink()
        (folder / name).rmdir()
        first += 20
    return first


@pytest.fixture(scope="module")
def layouts(spark, tmp_path_factory):
    """A directory with a file of each layout, and the number of rows."""
    folder = tmp_path_factory.mktemp("layouts") / "in"
    return folder, write_layouts(spark, folder)


@pytest.fixture(scope="module")
def known(spark):
    """The rows of the numbers up to 2000, with Spark's own Variants, as `canonical` has them."""
    return sorted(canonical(expected(spark, 2000)), key=lambda row: int(row[0]))


def check_others(spark, path, found) -> None:
    """DuckDB and pyarrow read the files of a table; delta-spark changes, compacts, checkpoints and vacuums it.

    The table has columns n and v. found: its rows.
    """
    check_readers(path, found)
    updated = F.parse_json(F.lit('"updated"'))
    wanted = Counter((row[0], '"updated"', "STRING", *row[3:]) if row[0] == "1" else row for row in found.elements())
    table = DeltaTable.forPath(spark, str(path))
    table.update("n = 1", {"v": updated})
    spark.sql(f"INSERT INTO delta.`{path}` (n, v) VALUES (1000L, parse_json('7'))")
    table.delete("n = 1000")
    table.optimize().executeCompaction()
    delta_log(spark).forTable(spark._jsparkSession, str(path)).checkpoint()
    vacuum(spark, path)
    assert canonical(read(spark, path)) == wanted


def check_readers(path, found) -> None:
    """DuckDB and pyarrow read the files of a table with columns n and v. found: its rows."""
    files = sorted(str(path / unquote(file)) for file in live(path))
    read_by_duckdb = duckdb.sql(f"SELECT n, v::JSON::VARCHAR FROM read_parquet({files}, union_by_name = true)").fetchall()
    assert {n: j and json.loads(j) for n, j in read_by_duckdb} == {int(n): j and json.loads(j) for n, j, *_ in found.elements()}
    assert sum(pq.read_table(file).num_rows for file in files) == found.total()
    assert sum(parquet.read_table(file).num_rows for file in files) == found.total()


# --------------------------------------------------------------------------------------------------------------- folders


def test_every_layout(spark, tmp_path, layouts, known):
    """Files of every layout and engine give the Variants of Spark's parse_json, in one table that others read.

    `make soak` has them change it, too, as test_texts_of_a_table does in `make test`.
    """
    folder, count = layouts
    done = dv.convert(spark, folder, tmp_path / "t")
    assert (done.version, done.commits, done.files, done.rows, done.skipped, done.ignored) == (0, 1, 10, count, 0, 0)
    assert done.bytes_read == sum(path.stat().st_size for path in folder.glob("*.parquet"))
    found = read(spark, tmp_path / "t")
    assert found.schema == t.StructType().add("n", t.LongType()).add("v", t.VariantType())
    rows = canonical(found)
    assert rows == Counter(known[:count])
    again = dv.convert(spark, folder, tmp_path / "t")
    assert (again.version, again.files, again.skipped) == (None, 0, 10)
    check_others(spark, tmp_path / "t", rows) if SOAK else check_readers(tmp_path / "t", rows)


def test_through_spark(spark, tmp_path, layouts, known):
    """Where Spark has to compute something of the rows, they are the same: sorted, checked, cast, with mapped names."""
    folder, count = layouts
    dv.convert(spark, folder, tmp_path / "sorted", cluster_by=["v:id"], shred={"v": SHAPE})
    assert canonical(read(spark, tmp_path / "sorted")) == Counter(known[:count])
    spark.sql(
        f"CREATE TABLE delta.`{tmp_path / 'wide'}` (n decimal(20,0), v variant, m bigint GENERATED ALWAYS AS "
        "(cast(n AS bigint) % 2), d string DEFAULT 'x') USING delta PARTITIONED BY (m) TBLPROPERTIES ("
        "'delta.columnMapping.mode' = 'name', 'delta.enableVariantShredding' = 'true', "
        "'delta.feature.allowColumnDefaults' = 'supported', 'delta.constraints.c' = 'n >= 0')"
    )
    dv.convert(spark, folder, tmp_path / "wide")
    found = canonical(read(spark, tmp_path / "wide").select("n", "v", "m", "d"))
    assert found == Counter((*row, str(int(row[0]) % 2), "x") for row in known[:count])
    spark.sql(
        f"CREATE TABLE delta.`{tmp_path / 'strict'}` (n bigint, v variant) USING delta TBLPROPERTIES "
        "('delta.constraints.d' = 'n >= 100')"
    )
    with pytest.raises(InvalidSchemaError, match="constraint d"):
        dv.convert(spark, folder, tmp_path / "strict")


def test_existing_tables(spark, tmp_path, layouts, known):
    """A table keeps its partitioning; NOT NULL is checked; columns that it lacks are refused, or added with merge_schema."""
    folder, count = layouts
    more = "USING delta TBLPROPERTIES ('delta.enableVariantShredding' = 'true')"
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 'n'}` (n bigint, v variant NOT NULL) {more}")
    with pytest.raises(InvalidSchemaError, match="NOT NULL constraint violated for column: v"):
        dv.convert(spark, folder, tmp_path / "n")
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 'm'}` (other string, v variant) {more}")
    with pytest.raises(InvalidSchemaError, match=r"(?s)schema mismatch.*root.* n: "):
        dv.convert(spark, folder, tmp_path / "m")
    assert dv.convert(spark, folder, tmp_path / "m", drop=["N"]).rows == count
    dv.convert(spark, folder, tmp_path / "m", force=True, merge_schema=True)
    assert canonical(read(spark, tmp_path / "m").where("n IS NOT NULL").select("n", "v")) == Counter(known[:count])


def test_directories(spark, tmp_path):
    """Columns of directories have Spark's types and values: nulls, escapes, empty names; they partition a new table."""
    days = {"day=2026-11-01": 0, "day=__HIVE_DEFAULT_PARTITION__": 10, "day=2026-11-02": 20}
    for day, first in days.items():
        for key, more in (("k=a%2Fb c", 0), ("k=é", 5)):
            folder = tmp_path / "in" / day / key
            folder.mkdir(parents=True)
            parquet.write_table(rows(first + more, first + more + 5), folder / "x y.parquet", shred="auto")
    (tmp_path / "in" / "_SUCCESS").write_text("")
    (tmp_path / "in" / "notes.txt").write_text("not Parquet")
    with pytest.raises(InvalidSchemaError, match=r"folders: no file is in a folder hour=…; the folders are day, k"):
        dv.convert(spark, tmp_path / "in", tmp_path / "t", folders={"hour": "int"})
    done = dv.convert(spark, tmp_path / "in", tmp_path / "t")
    assert (done.files, done.rows, done.ignored) == (6, 30, 1)
    found = read(spark, tmp_path / "t")
    plain = spark.read.option("pathGlobFilter", "*.parquet").parquet(str(tmp_path / "in"))
    assert [(f.name, f.dataType) for f in found.schema] == [(f.name, f.dataType) for f in plain.schema]
    rows_found = canonical(found)
    assert rows_found == canonical(plain)
    assert {(add["partitionValues"]["day"], add["partitionValues"]["k"]) for add in adds(tmp_path / "t", 0)} == {
        (day, k) for day in ("2026-11-01", "2026-11-02", None) for k in ("a/b c", "é")
    }
    other = dv.convert(
        spark, f"{tmp_path}/in/day=2026*", tmp_path / "u", folders={"day": "string"}, partition_by=["n"], drop=["k"]
    )
    assert other.rows == 20
    kinds = {f.name: f.dataType.simpleString() for f in read(spark, tmp_path / "u").schema}
    assert kinds == {"n": "bigint", "v": "variant", "day": "string"}
    assert sorted(row.n for row in read(spark, tmp_path / "u").where("day = '2026-11-02'").collect()) == list(range(20, 30))
    check_others(spark, tmp_path / "t", rows_found) if SOAK else check_readers(tmp_path / "t", rows_found)


def test_variants_inside(spark, tmp_path):
    """VARIANTs in structs, lists and maps, in files that differ, and columns of other types arrive as Spark reads them."""
    (tmp_path / "in").mkdir()
    query = (
        "SELECT id n, parse_json(concat('[', id, ']')) v, named_struct('w', parse_json('{{\"a\": 1}}'), 'x', {x}) s, "
        "array(parse_json('1'), null) l, map('k', parse_json('\"m\"')) m, cast(id AS decimal(9,2)) d, "
        "timestamp_micros(id) t, cast(timestamp_micros(id) AS timestamp_ntz) u, cast('x' AS binary) b, id % 2 = 0 f{more} "
        "FROM range({first}, {last})"
    )
    for first, x, more in ((0, "1", ""), (10, "null", ", 'text' e")):
        frame = spark.sql(query.format(first=first, last=first + 10, x=f"cast({x} AS int)", more=more))
        frame.coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
    dv.convert(spark, tmp_path / "in", tmp_path / "t")
    found, plain = read(spark, tmp_path / "t"), spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "in"))
    columns = sorted(found.columns)
    assert sorted((f.name, f.dataType.simpleString()) for f in found.schema) == sorted(
        (f.name, f.dataType.simpleString()) for f in plain.schema
    )
    assert canonical(found.select(*columns)) == canonical(plain.select(*columns))
    (tmp_path / "bad").mkdir()
    for name, values in (("2", [1]), ("3", ["text"])):
        pq.write_table(pa.table({"x": values, "v": variants(0, 1)}), tmp_path / "bad" / f"{name}.parquet")
    with pytest.raises(InvalidSchemaError, match=r"column x is .* in .*2\.parquet.* and .* in .*3\.parquet"):
        dv.convert(spark, tmp_path / "bad", tmp_path / "u")


def test_large_files_and_several_commits(spark, tmp_path, known, monkeypatch):
    """Files are read in pieces by several tasks, and a commit takes several files; every row is there once."""
    monkeypatch.setattr(loading, "PIECE_BYTES", 5_000)
    monkeypatch.setattr(loading, "TASK_BYTES", 20_000)
    (tmp_path / "in").mkdir()
    for number in range(4):
        parquet.write_table(rows(number * 500, number * 500 + 500), tmp_path / "in" / f"{number}.parquet", shred="auto")
    size = max(file.stat().st_size for file in (tmp_path / "in").iterdir())
    seen: list[dv.Progress] = []
    done = dv.convert(spark, tmp_path / "in", tmp_path / "t", commit_bytes=2 * size, progress=seen.append)
    assert (done.version, done.commits, done.files, done.rows) == (1, 2, 4, 2000)
    assert [(p.files, p.files_total, p.rows) for p in seen] == [(2, 4, 1000), (4, 4, 2000)]
    assert canonical(read(spark, tmp_path / "t")) == Counter(known)


@pytest.mark.parametrize("options", [{}, {"cluster_by": ["n"]}, {"path_column": "file"}])
def test_the_row_of_an_error(spark, tmp_path, options, monkeypatch):
    """A value that Spark cannot hold, or that is none, is an error with the file, the path and the row of the file."""
    monkeypatch.setattr(loading, "PIECE_BYTES", 20_000)
    for kind, error in (("time", UnsupportedFeatureError), ("byte", MalformedVariantError)):
        (tmp_path / kind).mkdir()
        for number, at in enumerate((None, 1777)):
            table = rows(0, 2000) if at is None else broken(2000, at, kind)
            pq.write_table(table, tmp_path / kind / f"{number}.parquet", row_group_size=700)
        with pytest.raises(error, match=r"/1\.parquet: column v: .*\$\.in\b.*\brow 1777\)|/1\.parquet: column v: .*row 1777\)"):
            dv.convert(spark, tmp_path / kind, tmp_path / "t", columns=["v"], **options)
    assert not list((tmp_path / "t").glob("_delta_log/*.json"))


def test_named_columns(spark, tmp_path):
    """A struct that looks like a VARIANT stays a struct if the VARIANT columns are named."""
    look = pa.array([{"metadata": b"m", "value": b"v"}], pa.struct([("metadata", pa.binary()), ("value", pa.binary())]))
    pq.write_table(pa.table({"v": variants(0, 1), "look": look}), tmp_path / "a.parquet")
    with pytest.raises(MalformedVariantError, match=r"a\.parquet: column look.*columns=\[…\] says which columns are VARIANT"):
        dv.convert(spark, tmp_path / "a.parquet", tmp_path / "t")
    dv.convert(spark, tmp_path / "a.parquet", tmp_path / "t", columns=["V"])
    assert read(spark, tmp_path / "t").select("look.*").collect() == [(b"m", b"v")]
    with pytest.raises(InvalidLayoutError, match=r"columns: look\.value"):
        dv.convert(spark, tmp_path / "a.parquet", tmp_path / "u", columns=["look.value"])
    with pytest.raises(InvalidSchemaError, match="columns: no file has w; the columns are v, look"):
        dv.convert(spark, tmp_path / "a.parquet", tmp_path / "u", columns=["w"])


def test_types_as_spark_reads_them(spark, tmp_path):
    """Columns of every type that Spark has arrive as Spark reads them, whatever Arrow calls them."""
    (tmp_path / "in").mkdir()
    for name, (kind, values, _) in TYPES.items():
        table = pa.table({name: pa.array(values * 2, kind), "v": variants(0, 2 * len(values))})
        pq.write_table(table, tmp_path / "in" / f"{name}.parquet")
    dv.convert(spark, tmp_path / "in", tmp_path / "t", columns=["v"])
    found, plain = read(spark, tmp_path / "t"), spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "in"))
    columns = sorted(TYPES)
    assert [found.schema[name].dataType for name in columns] == [plain.schema[name].dataType for name in columns]
    assert canonical(found.select(columns)) == canonical(plain.select(columns))


def test_sources_refused(spark, tmp_path):
    """What is no source of Variants, or overlaps with the table, is an error before anything is written."""
    source = tmp_path / "in"
    source.mkdir()
    pq.write_table(pa.table({"n": [1]}), source / "a.parquet")
    with pytest.raises(InvalidSchemaError, match="none of the columns n is a VARIANT"):
        dv.convert(spark, source, tmp_path / "t")
    with pytest.raises(TableError, match="would be in"):
        dv.convert(spark, source, source / "t")
    with pytest.raises(TableError, match="is in the directory of the table"):
        dv.convert(spark, source, tmp_path)
    parquet.write_table(rows(0, 5), source / "a.parquet")
    (source / "day=1").mkdir()
    parquet.write_table(rows(5, 9), source / "day=1" / "b.parquet")
    with pytest.raises(TableError, match=r"a\.parquet is in no folder day="):
        dv.convert(spark, source, tmp_path / "t")
    dv.convert(spark, source / "a.parquet", tmp_path / "t")
    with pytest.raises(TableError, match="is a Delta table"):
        dv.convert(spark, tmp_path / "t", tmp_path / "u")
    (tmp_path / "none").mkdir()
    for nothing in (tmp_path / "none", tmp_path / "nowhere", tmp_path / "*.parquet"):
        with pytest.raises(TableError, match="there are no files"):
            dv.convert(spark, nothing, tmp_path / "u")
    (tmp_path / "b.parquet").write_bytes(b"text")
    with pytest.raises(InvalidLayoutError, match=r"b\.parquet: the file is not Parquet"):
        dv.convert(spark, tmp_path / "b.parquet", tmp_path / "u")
    assert not (tmp_path / "u").exists()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"mode": "overwrite"}, UnsupportedFeatureError, "does not take mode"),
        ({"columns": "v"}, InvalidSchemaError, r"must be a list of columns: \['v'\]"),
        ({"commit_bytes": 0}, UnsupportedFeatureError, "1 or more"),
        ({"shredding": "auto"}, TypeError, "shredding"),
    ],
)
def test_arguments(spark, tmp_path, options, error, message):
    """What does not fit is one error, before a file is read."""
    with pytest.raises(error, match=message):
        dv.convert(spark, tmp_path, tmp_path / "t", **options)


# ------------------------------------------------------------------------------------------------------- columns of texts


COLUMNS = "n bigint NOT NULL COMMENT 'number', value string COMMENT 'text', p bigint"


def make(spark, path, columns: str = COLUMNS, more: str = "", also=()):
    """A table of delta-spark with texts, whose rows have the numbers from 0 to 59, and others."""
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta PARTITIONED BY (p) {more}")
    texts = spark.createDataFrame([*((n, text(n), n % 2) for n in range(60)), *also], "n long, value string, p long")
    texts.coalesce(1).write.format("delta").mode("append").save(str(path))
    return dv.VariantTable.forPath(spark, path)


def test_texts_of_a_table(spark, tmp_path, known):
    """A column of texts becomes VARIANT in its place; all else stays, and old versions; others read and change the table."""
    properties = "'delta.enableDeletionVectors' = 'true', 'delta.logRetentionDuration' = 'interval 9 days'"
    more = f"COMMENT 'events' TBLPROPERTIES ({properties}, 'delta.constraints.c' = 'n >= 0')"
    table = make(spark, tmp_path / "t", more=more)
    spark.sql(f"DELETE FROM delta.`{tmp_path / 't'}` WHERE n % 10 = 9")
    version = newest(tmp_path / "t")
    commit = table.convert({"v": "value"})
    assert (commit.version, commit.rows) == (version + 1, 54)
    found = read(spark, tmp_path / "t")
    rows = canonical(found)
    assert rows == Counter((*row, str(n % 2)) for n, row in enumerate(known[:60]) if n % 10 != 9)
    kept, features = last(tmp_path / "t", "metaData"), last(tmp_path / "t", "protocol")
    assert (kept["partitionColumns"], kept["description"]) == (["p"], "events")
    assert kept["configuration"].items() >= {
        "delta.logRetentionDuration": "interval 9 days", "delta.constraints.c": "n >= 0",
        "delta.enableVariantShredding": "true",
    }.items()  # fmt: skip
    assert {"variantType", "variantShredding"} <= set(features["readerFeatures"]) & set(features["writerFeatures"])
    fields = [(f.name, f.dataType.simpleString(), f.nullable, f.metadata.get("comment")) for f in found.schema]
    assert fields == [("n", "bigint", False, "number"), ("v", "variant", True, "text"), ("p", "bigint", True, None)]
    old = spark.read.format("delta").option("versionAsOf", version).load(str(tmp_path / "t"))
    assert sorted(old.collect()) == [(n, text(n), n % 2) for n in range(60) if n % 10 != 9]
    again = table.convert({"v": "value"})
    assert (again.version, again.files) == (version + 1, 0)
    dv.write(found.limit(0), tmp_path / "t")
    check_others(spark, tmp_path / "t", rows)


@pytest.mark.parametrize("mode", share(["id", "name"], 2))
def test_texts_of_a_mapped_table(spark, tmp_path, known, mode):
    """A table with column mapping gets a new physical column; the other columns keep theirs, and the name may stay."""
    table = make(spark, tmp_path / "t", more=f"TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}')")
    spark.sql(f"ALTER TABLE delta.`{tmp_path / 't'}` RENAME COLUMN n TO number")
    before = {field["name"]: field["metadata"] for field in table._table.features().schema["fields"]}
    table.convert({"value": "value"})
    after = {field["name"]: field["metadata"] for field in table._table.features().schema["fields"]}
    assert (after["number"], after["p"]) == (before["number"], before["p"])
    key = "delta.columnMapping.physicalName"
    assert after["value"][key] != before["value"][key]
    dv.write(read(spark, tmp_path / "t").where("number < 3"), tmp_path / "t")
    assert canonical(read(spark, tmp_path / "t").select("number", "value")) == Counter([*known[:60], *known[:3]])
    spark.sql(f"DELETE FROM delta.`{tmp_path / 't'}` WHERE try_variant_get(value, '$.id', 'int') = 1")
    left = Counter(row for row in [*known[:60], *known[:3]] if row[0] != "1")
    assert canonical(read(spark, tmp_path / "t").select("number", "value")) == left


def test_malformed_texts(spark, tmp_path):
    """A malformed text is an error and the table stays as it was; it can become NULL, and be kept in a column.

    Half a surrogate pair is malformed unless the session's parse_json takes it.
    """
    table = make(spark, tmp_path / "t", also=[(60, '{"a": ', 0), (61, r'{"a": "\ud83d"}', 0)])
    version = table._table.snapshot().version()
    with pytest.raises(InvalidJsonError, match="column v: a text is not valid JSON"):
        table.convert({"v": "value"})
    assert table._table.snapshot().version() == version
    spark.conf.set("spark.sql.variant.validateUnicodeInJsonParsing", "false")
    try:
        table.convert({"v": "value"}, corrupt="bad")
    finally:
        spark.conf.unset("spark.sql.variant.validateUnicodeInJsonParsing")
    found = read(spark, tmp_path / "t")
    assert found.columns == ["n", "v", "p", "bad"]
    assert found.where("n = 61").selectExpr("v:a::string").first() == ("?",)
    assert found.where("bad IS NOT NULL").select("n", "v", "bad").collect() == [(60, None, '{"a": ')]


def test_texts_that_are_used(spark, tmp_path):
    """What uses the column, or would be lost, is refused by name, and the table stays as it was."""
    cases = {
        "the generated column g": ("n bigint, value string, p bigint, g int GENERATED ALWAYS AS (length(value))", ""),
        "the default value of value": (
            "n bigint, value string DEFAULT '{}', p bigint", "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
        ),
        "has row ids": ("n bigint, value string, p bigint", "TBLPROPERTIES ('delta.enableRowTracking' = 'true')"),
        "the property delta_variant.clusterBy": (
            "n bigint, value string, p bigint", "TBLPROPERTIES ('delta_variant.clusterBy' = 'n,value')"
        ),
        "the property delta.dataSkippingStatsColumns": (
            "n bigint, value string, p bigint", "TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'n,value')"
        ),
        "the CHECK constraint k of .* uses value": (
            "n bigint, value string, p bigint", "TBLPROPERTIES ('delta.constraints.k' = 'value IS NULL OR n < 1000')"
        ),
    }  # fmt: skip
    for number, (message, (names, more)) in enumerate(cases.items()):
        path = tmp_path / str(number)
        spark.sql(f"CREATE TABLE delta.`{path}` ({names}) USING delta PARTITIONED BY (p) {more}")
        table = dv.VariantTable.forPath(spark, path)
        with pytest.raises(UnsupportedFeatureError, match=message):
            table.convert({"v": "value"})
        assert table._table.snapshot().version() == 0
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 'l'}` (n bigint, value string) USING delta CLUSTER BY (value)")
    with pytest.raises(UnsupportedFeatureError, match=r"the clustering of .* uses value"):
        dv.VariantTable.forPath(spark, tmp_path / "l").convert({"v": "value"})
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 'p'}` (n bigint, value string) USING delta PARTITIONED BY (value)")
    with pytest.raises(InvalidSchemaError, match="value is a partition column"):
        dv.VariantTable.forPath(spark, tmp_path / "p").convert({"v": "value"})


def test_texts_beside_another_writer(spark, tmp_path, monkeypatch):
    """Rows that another writer adds between the reading and the commit are a conflict, and are not lost."""
    table = make(spark, tmp_path / "t")
    overwrite = Transaction.overwrite

    def after_an_append(*args):
        monkeypatch.undo()
        spark.sql(f"INSERT INTO delta.`{tmp_path / 't'}` VALUES (60, '1', 0)")
        return overwrite(*args)

    monkeypatch.setattr(Transaction, "overwrite", after_an_append)
    with pytest.raises(ConflictError):
        table.convert({"v": "value"})
    assert table.convert({"v": "value"}).rows == 61
