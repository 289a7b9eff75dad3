"""`write` end to end: what is read back, what lands in the log, what is refused, and what others do with the table."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta import DeltaTable
from pyspark.errors import ArithmeticException
from pyspark.sql import functions as F
from pyspark.sql import types as t

from delta_variant import jvm
from delta_variant.errors import InvalidSchemaError, MalformedVariantError, TableError, UnsupportedFeatureError
from delta_variant.stats import BOUNDS_TAG
from delta_variant.writer import Commit, write
from tests.contents import canonical, canonicals, has_typed_value, read, vacuum
from tests.logs import adds, features, newest
from tests.support import SOAK, delta_log, generated, share

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]

REGULAR = [f'{{"id": {i}, "actor": {{"login": "user{i}"}}, "mag": {i / 4}}}' for i in range(100)]
ODD = [
    '{"id": 1, "actor": {"login": "a", "tags": ["x", 1, null]}, "mag": 2}',
    '{"id": 2, "actor": {"login": "b"}, "mag": 2.15, "new": true}',
    '{"id": "three", "actor": null, "mag": 2.1}',
    "[1, [2, {}]]",
    "null",
    '"text"',
    None,
    "{}",
]
DOCUMENTS = REGULAR + ODD
SHAPE = "id bigint, actor struct<login: string>, mag decimal(18, 2)"
"""A shredding schema, because `shred="auto"` leaves so few rows plain."""


@pytest.fixture(scope="module")
def documents(spark):
    """Variants of every kind, in two tasks."""
    rows = [(i, text) for i, text in enumerate(DOCUMENTS)]
    df = spark.createDataFrame(rows, "id long, j string").repartition(2, "id")
    return df.select("id", F.parse_json("j").alias("v")).localCheckpoint()


@pytest.fixture(scope="module")
def rows(documents):
    """The rows of `documents` as text."""
    return canonical(documents)


@pytest.fixture(scope="module")
def written(documents, tmp_path_factory):
    """Tables of one write each, which no test changes, and what the writes returned."""
    root = tmp_path_factory.mktemp("tables")
    shreds = {"auto": "auto", "plain": False, "shredded": {"v": SHAPE}}
    return {name: (root / name, write(documents, root / name, shred=shred)) for name, shred in shreds.items()}


@pytest.fixture(scope="module")
def one_write(written):
    """A table of one write, which no test changes."""
    return written["auto"][0]


def test_round_trip(spark, written, rows):
    """A created table holds the rows of the DataFrame, with Variants of the same types, however they are stored."""
    for name, (path, commit) in written.items():
        size = sum(add["size"] for add in adds(path, 0))
        shredded, left_plain = (("v",) if name == "shredded" else (), 2 if name == "auto" else 0)
        assert commit == Commit(0, 2, len(DOCUMENTS), size, shredded, left_plain), name
    assert canonicals(*(read(spark, path) for path, _ in written.values())) == [rows] * 3


@pytest.mark.slow
def test_scalar_types_round_trip(spark, tmp_path):
    """Every scalar that Spark can put into a Variant comes back with its type and value, shredded and not."""
    scalars = {
        "1Y": "tinyint", "-300S": "smallint", "70000": "int", "5000000000L": "bigint", "1.5D": "double",
        "cast(2.5 as float)": "float", "12.34BD": "decimal(4, 2)", "cast(1e30 as decimal(38, 2))": "decimal(38, 2)",
        "true": "boolean", "date'1500-03-01'": "date", "timestamp'1600-01-01 00:00:00.000001'": "timestamp",
        "timestamp_ntz'2024-02-29 12:00:00'": "timestamp_ntz", "X'00ff'": "binary", "'text'": "string",
        "repeat('long ', 30)": "string", "cast('NaN' as double)": "double", "-0.0D": "double",
        "date_from_unix_date(2147483647)": "date", "timestamp_micros(-9223372036854775807)": "timestamp",
    }  # fmt: skip
    columns = (f"to_variant_object(named_struct('x', {text})) AS v{i}" for i, text in enumerate(scalars))
    df = spark.range(0, 1, 1, 1).selectExpr(*columns)
    shapes = {f"v{i}": f"x {kind}" for i, kind in enumerate(scalars.values())}
    assert write(df, tmp_path / "plain", shred=False).shredded == ()
    assert set(write(df, tmp_path / "shredded", shred=shapes).shredded) == shapes.keys()
    (file,) = Path(tmp_path, "shredded").glob("*.parquet")
    in_file = [column.path for column in pq.ParquetFile(file).schema]
    assert {f"{name}.typed_value.x.typed_value" for name in shapes} <= set(in_file)
    plain, shredded, expected = canonicals(read(spark, tmp_path / "plain"), read(spark, tmp_path / "shredded"), df)
    assert plain == shredded == expected


def test_log_and_history(spark, tmp_path, documents):
    """An Add action has its size, statistics and the marker; DESCRIBE HISTORY has rows, files and bytes."""
    commit = write(documents, tmp_path / "t", shred={"v": SHAPE}, max_rows_per_file=20)
    files = adds(tmp_path / "t", 0)
    assert len(files) == commit.files >= 6
    for add in files:
        stats = json.loads(add["stats"])
        assert stats["numRecords"] <= 20
        assert {"id", "v"} <= stats["nullCount"].keys()
        assert add["tags"][BOUNDS_TAG] == "2"
        assert has_typed_value(tmp_path / "t", add)
        assert add["size"] == Path(tmp_path, "t", add["path"]).stat().st_size
    metrics = spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path / 't'}`").first().operationMetrics
    assert metrics["numFiles"] == str(commit.files)
    assert metrics["numOutputRows"] == str(commit.rows)
    assert metrics["numOutputBytes"] == str(commit.bytes)


def test_modes(spark, tmp_path, documents):
    """append, overwrite, error and ignore do what Spark's modes do; a write that does nothing returns the version."""
    path = tmp_path / "t"
    assert write(documents, path, "error").version == 0
    for mode in ("error", "errorifexists", "ErrorIfExists"):
        with pytest.raises(TableError, match="exist"):
            write(documents, path, mode)
    assert write(documents, path, "ignore") == Commit(0, 0, 0, 0, ())
    few = documents.where("id < 3")
    assert write(few, path, "append").version == 1
    assert read(spark, path).count() == len(DOCUMENTS) + 3
    assert write(few, path, "overwrite").version == 2
    found, expected = canonicals(read(spark, path), few)
    assert found == expected
    assert write(few.where("false"), path) == Commit(2, 0, 0, 0, ())
    assert write(few.where("false"), path, "overwrite").version == 3
    assert read(spark, path).count() == 0
    assert write(few.where("false"), tmp_path / "none", "ignore").version == 0
    assert read(spark, tmp_path / "none").columns == ["id", "v"]


def test_tables_by_name(spark, documents):
    """A name that is missing becomes a managed table with the features, one that exists is appended to."""
    spark.sql("DROP TABLE IF EXISTS default.by_name")
    assert write(documents.where("id < 3"), "default.by_name", partition_by=["ID"]).rows == 3
    assert write(documents.where("id = 1"), "by_name").files == 1
    assert spark.table("by_name").count() == 4
    detail = spark.sql("DESCRIBE DETAIL by_name").first()
    assert detail.partitionColumns == ["id"]
    assert {"variantShredding", "variantType"} <= set(detail.tableFeatures)
    with pytest.raises(TableError, match="exist"):
        write(documents, "spark_catalog.default.by_name", "error")
    spark.sql("DROP TABLE by_name")


SPECIAL = [
    "plain", "a b", "a=b", "a%b", "100%25", "a/b", "a:b", "ü€😀", "\u2003wide\u00a0", "a\tb\nc", " ", "", None,
    "\\x\"'[]{}?#*&^", "a\u0001\u007f", "café", "trailing ", "..", "a+b,c;d@e!$(f)~",
]  # fmt: skip


PARTITIONED = (
    "n", "parse_json(cast(n as string)) v", "s", "timestamp_micros(1700000000000000 + k * 1001) t",
    "cast(timestamp_micros(k * 1000000) as timestamp_ntz) ntz", "date_add(date'1582-01-01', k) d", "k % 2 = 0 b",
    "cast(k * 1.1 as decimal(20, 5)) dec", "k * 1e10 + 0.1 f", "cast(k as tinyint) y", "k * 5000000000 l",
)  # fmt: skip


def partition_values(path, version: int) -> list:
    """What the log says of the partitions of a version's files, and the directory of the first partition column."""
    return sorted(
        (sorted((k, str(v)) for k, v in add["partitionValues"].items()), add["path"].split("/t=")[0])
        for add in adds(path, version)
    )


def test_partitions_are_written_as_delta_writes_them(spark, tmp_path):
    """Partition values and directories of every type, special characters and nulls equal those of a twin by delta-spark."""
    rows = [(i, text, None if i == 3 else i) for i, text in enumerate(SPECIAL)]
    df = spark.createDataFrame(rows, "n int, s string, k int").selectExpr(*PARTITIONED).localCheckpoint()
    by = ["s", "t", "ntz", "d", "b", "dec", "f", "y", "l"]
    twin, ours = tmp_path / "twin", tmp_path / "ours"
    df.write.format("delta").partitionBy(*by).save(str(twin))
    assert write(df, ours, partition_by=by).files == len(SPECIAL)
    assert partition_values(ours, 0) == partition_values(twin, 0)
    asked = share(SPECIAL, 6)
    of_each = (read(spark, ours).where(F.col("s").eqNullSafe(text or None)) for text in asked)
    found, expected, *counts = canonicals(read(spark, ours), df.withColumn("s", F.expr("nullif(s, '')")), *of_each)
    assert found == expected
    assert [count.total() for count in counts] == [1 if text else 2 for text in asked]


@pytest.mark.slow
def test_vacuum_keeps_partitions_with_special_characters(spark, tmp_path):
    """VACUUM finds every file by the path in the log: it deletes what DELETE removed and nothing else."""
    df = spark.createDataFrame(list(enumerate(SPECIAL)), "n int, s string")
    files = write(df, tmp_path / "t", partition_by=["s"]).files
    DeltaTable.forPath(spark, str(tmp_path / "t")).delete("s = 'plain'")
    vacuum(spark, tmp_path / "t")
    assert len(list(Path(tmp_path, "t").rglob("*.parquet"))) == files - 1
    assert sorted(row.n for row in read(spark, tmp_path / "t").select("n").collect()) == list(range(1, len(SPECIAL)))


def test_partition_times_of_every_year(spark, tmp_path):
    """Partition values may be before the year 1 and after 9999, where Python's calendar ends."""
    moments = [-(10**17), -62_135_596_800_000_001, 253_402_300_800_000_000, 2**63 - 1]
    texts = ", ".join(f"timestamp_micros({micros}L)" for micros in moments)
    df = spark.range(1).selectExpr("id", f"explode(array({texts})) t").selectExpr("id", "t", "date_add(cast(t as date), 1) d")
    write(df, tmp_path / "t", partition_by=["t", "d"])
    written = read(spark, tmp_path / "t")
    each = (written, df, written.where(f"t > timestamp_micros({moments[1]}L)"))
    found, expected, later = canonicals(*(rows.selectExpr("unix_micros(t)", "unix_date(d)") for rows in each))
    assert found == expected
    assert later.total() == 2


def test_partition_timestamps_in_other_time_zones(spark, tmp_path):
    """A partition timestamp is written in UTC, whatever zone the session has, the hour that comes twice included."""
    start = 1_699_163_400
    with jvm.settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        df = spark.range(5).selectExpr("id", f"timestamp_seconds({start} + id * 1800) t")
        write(df, tmp_path / "t", partition_by=["t"])
        found, rows = canonicals(read(spark, tmp_path / "t"), df)
    assert found == rows
    expected = {datetime.fromtimestamp(start + i * 1800, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000000Z") for i in range(5)}
    assert {add["partitionValues"]["t"] for add in adds(tmp_path / "t", 0)} == expected


def test_few_files_for_partitions(spark, tmp_path):
    """A task writes one file per partition value, whatever the order of its rows, and no file has more rows than asked for."""
    df = spark.range(0, 1000, 1, 1).selectExpr("id", "id % 4 p", "parse_json(cast(id as string)) v")
    assert write(df, tmp_path / "t", partition_by=["p"]).files == 4
    assert write(df, tmp_path / "t", max_rows_per_file=100).files == 12
    found, expected = canonicals(read(spark, tmp_path / "t"), df.union(df))
    assert found == expected


@pytest.mark.slow
def test_large_files_roll(spark, tmp_path, monkeypatch):
    """A file that has reached the target size is closed, and the rows go on in the next."""
    monkeypatch.setattr("delta_variant.writer.file_sizes.TARGET_BYTES", 1 << 18)
    df = spark.range(0, 15_000, 1, 1).selectExpr("id", "to_variant_object(named_struct('t', md5(cast(id as string)))) v")
    files = adds(tmp_path / "t", write(df, tmp_path / "t", compression="none").version)
    assert len(files) > 1
    with generated(spark):
        found = read(spark, tmp_path / "t").selectExpr("id", "v:t::string").collect()
    assert sorted(map(tuple, found)) == [(i, hashlib.md5(b"%d" % i).hexdigest()) for i in range(15_000)]


NESTED = (
    "id",
    "named_struct('inner', parse_json(j), 'n', id, 'deep', named_struct('v', parse_json(j))) s",
    "array(parse_json(j), null, parse_json('1')) a",
    "map('k', parse_json(j), 'none', null) m",
    "array(named_struct('x', parse_json(j), 't', timestamp_seconds(id))) o",
    "CASE WHEN id % 2 = 0 THEN named_struct('v', parse_json(j)) END h",
)


def test_nested_variants(spark, tmp_path):
    """VARIANT columns inside structs are shredded, inside arrays and maps plain; Spark reads them from table and file."""
    df = spark.createDataFrame(list(enumerate(ODD)), "id long, j string").selectExpr(*NESTED)
    commit = write(df, tmp_path / "t", shred=dict.fromkeys(("h.v", "s.deep.v", "s.inner"), SHAPE))
    assert commit.shredded == ("h.v", "s.deep.v", "s.inner")
    files = [str(tmp_path / "t" / add["path"]) for add in adds(tmp_path / "t", 0)]
    with jvm.settings(spark, {"spark.sql.session.timeZone": "Asia/Kolkata"}):  # Arrow timestamps in a zone of their own
        write(df, tmp_path / "t")
        found, expected = canonicals(read(spark, tmp_path / "t"), df.union(df))
    assert found == expected
    assert spark.read.parquet(*files).schema["s"].dataType["inner"].dataType == t.VariantType()
    assert duckdb.sql(f"SELECT count(s.inner) FROM read_parquet({files})").fetchall() == [
        (len(ODD) - 2,)
    ]  # DuckDB counts no JSON null


def test_columns_by_name(spark, tmp_path):
    """Columns are found by name without case, in any order; missing ones are null; safe casts happen, in structs too."""
    spark.sql(
        f"CREATE TABLE delta.`{tmp_path / 't'}` (id bigint, name string, v variant, d double, "
        "s struct<a: bigint, b: string>) USING delta"
    )
    df = spark.sql("SELECT parse_json('{}') V, 7 ID, named_struct('B', 8, 'A', 1) S, 1.5BD d")
    write(df, tmp_path / "t")
    row = read(spark, tmp_path / "t").select("id", "name", F.to_json("v"), "d", "s").first()
    assert tuple(row) == (7, None, "{}", 1.5, (1, "8"))


@pytest.fixture(scope="module")
def strict(spark, tmp_path_factory):
    """A table without rows, which no test changes."""
    path = tmp_path_factory.mktemp("tables") / "strict"
    spark.sql(f"CREATE TABLE delta.`{path}` (id bigint NOT NULL, v variant, s struct<a: int NOT NULL>) USING delta")
    return path


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT 1L id, parse_json('1') v, 1 extra", r"(?s)schema mismatch .*root.* extra: integer"),
        ("SELECT parse_json('1') v", "Column id, which has a NOT NULL constraint, is missing"),
        ("SELECT 1L id, '{}' v", "column v is STRING in the DataFrame and VARIANT in .*parse_json"),
        ("SELECT 'x' id, parse_json('1') v", "column id is STRING in the DataFrame and BIGINT in .*cast"),
        ("SELECT 1L id, 2L ID, parse_json('1') v", "duplicate column.*id, ID"),
        ("SELECT 1L id, named_struct('a', 1, 'c', 2) s", r"(?s)schema mismatch .*root.* c: integer"),
        ("SELECT 1L id, named_struct('a', array(1)) s", r"cannot cast .*ARRAY<INT>.* to .*INT"),
        ("SELECT cast(null as bigint) id", "NOT NULL constraint violated for column: id"),
        ("SELECT 1L id, named_struct('a', cast(null as int)) s", r"NOT NULL constraint violated for column: s\.a"),
    ],
)
def test_columns_that_do_not_fit(spark, strict, query, message):
    """A column that is unknown, missing, ambiguous, of another type or null where it must not be is one error by name."""
    with pytest.raises(InvalidSchemaError, match=message):
        write(spark.sql(query), strict)
    assert newest(strict) == 0
    assert not list(strict.glob("*.parquet"))


def test_values_out_of_range_are_an_error(spark, tmp_path):
    """A value that its column cannot hold fails the write, also where the session's own casts give null."""
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 't'}` (b tinyint) USING delta")
    with jvm.settings(spark, {"spark.sql.ansi.enabled": "false"}), pytest.raises(Exception, match="CAST_OVERFLOW"):
        write(spark.sql("SELECT 1000 b"), tmp_path / "t")
    assert newest(tmp_path / "t") == 0


@pytest.mark.parametrize(
    ("shred", "error", "message"),
    [
        ({"id": "int"}, InvalidSchemaError, "id is BIGINT; the VARIANT columns"),
        ({"w": "int"}, InvalidSchemaError, "there is no column w"),
        ({"v": "a strng"}, InvalidSchemaError, "a type that can be shredded"),
        ({"v": "a struct<b: array<time>>"}, UnsupportedFeatureError, r"v\.a\.b\[\*\] is time64\[us\], which Spark cannot read"),
        ({"v": "a uuid"}, UnsupportedFeatureError, r"v\.a is"),
        ({"v": pa.struct([("n", pa.timestamp("ns"))])}, UnsupportedFeatureError, r"v\.n is timestamp\[ns\]"),
        ("always", InvalidSchemaError, "must be 'auto', False, or a mapping"),
    ],
)
def test_schemas_refused(spark, one_write, tmp_path, documents, shred, error, message):
    """A shredding schema for a column that is no VARIANT, of invalid text, or of types that Spark cannot read is an error."""
    for path in (one_write, tmp_path / "new"):
        with pytest.raises(error, match=message):
            write(documents, path, shred=shred)
    assert newest(one_write) == 0
    assert not (tmp_path / "new").exists()


def test_the_property_is_obeyed(spark, tmp_path, documents):
    """Files are shredded only if the property is exactly `true`; given schemas are refused otherwise, with the way out (F2)."""
    path = tmp_path / "t"
    spark.sql(f"CREATE TABLE delta.`{path}` (id bigint, v variant) USING delta")
    df = spark.range(0, 3000, 1, 1).selectExpr("id", "parse_json(concat('{\"id\":', id, '}')) v")  # makes shredding worth it
    for value in (None, "false", "TRUE", "true"):
        if value is not None:
            spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableVariantShredding' = '{value}')")
        commit = write(df, path)
        assert commit.shredded == (("v",) if value == "true" else ())
        assert all(has_typed_value(path, add) == (value == "true") for add in adds(path, commit.version))
        if value == "true":
            assert write(documents.where("id < 3"), path, shred={"V": "id bigint"}).shredded == ("v",)
        else:
            assert not any(add.get("tags") for add in adds(path, commit.version))
            with pytest.raises(TableError, match="SET TBLPROPERTIES"):
                write(documents, path, shred={"v": "id bigint"})
            assert newest(path) == commit.version
    found, once, few = canonicals(read(spark, path), df, documents.where("id < 3"))
    assert found == Counter({row: 4 * times for row, times in once.items()}) + few


def test_preview_features_keep_their_names(spark, tmp_path, documents, rows):
    """A table with the preview features is shredded, and keeps its features (F2)."""
    path = tmp_path / "t"
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id bigint, v variant) USING delta TBLPROPERTIES ("
        "'delta.enableVariantShredding' = 'true', 'delta.feature.variantType-preview' = 'supported', "
        "'delta.feature.variantShredding-preview' = 'supported')"
    )
    before = features(path)
    assert {"variantType-preview", "variantShredding-preview"} <= before
    assert write(documents, path, shred={"v": SHAPE}).shredded == ("v",)
    assert features(path) == before
    assert canonical(read(spark, path)) == rows


FEATURES = {
    "appendOnly": "'delta.appendOnly' = 'true'",
    "changeDataFeed": "'delta.enableChangeDataFeed' = 'true'",
    "checkpointProtection": "'delta.feature.checkpointProtection' = 'supported'",
    "deletionVectors": "'delta.enableDeletionVectors' = 'true'",
    "domainMetadata": "'delta.feature.domainMetadata' = 'supported'",
    "inCommitTimestamp": "'delta.enableInCommitTimestamps' = 'true'",
    "rowTracking": "'delta.enableRowTracking' = 'true'",
    "typeWidening": "'delta.enableTypeWidening' = 'true'",
    "v2Checkpoint": "'delta.checkpointPolicy' = 'v2'",
    "vacuumProtocolCheck": "'delta.feature.vacuumProtocolCheck' = 'supported'",
}
TOGETHER = [["appendOnly"], [feature for feature in FEATURES if feature != "appendOnly"]]


@pytest.mark.slow
@pytest.mark.parametrize("used", [[feature] for feature in FEATURES] if SOAK else TOGETHER, ids=" ".join)
def test_table_features_that_delta_handles(spark, tmp_path, used):
    """On a table that uses the features, delta-spark reads, changes and checkpoints what append and overwrite leave.

    `make soak` tests each feature by itself.
    """
    path = tmp_path / "t"
    properties = ", ".join(FEATURES[feature] for feature in used)
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id int, v variant, n timestamp_ntz) USING delta TBLPROPERTIES ({properties}, "
        "'delta.enableVariantShredding' = 'true')"
    )
    assert set(used) <= features(path)
    df = spark.range(0, 10, 1, 1).selectExpr(
        "cast(id as int) id", "parse_json(concat('{\"k\":', id, '}')) v", "timestamp_ntz'2024-01-01 00:00:00' n"
    )
    df.write.format("delta").mode("append").save(str(path))
    table = DeltaTable.forPath(spark, str(path))
    if "typeWidening" in used:
        spark.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN id TYPE bigint")
        table = DeltaTable.forPath(spark, str(path))
    if "appendOnly" not in used:
        table.delete("id = 3")
    assert write(df, path, shred={"v": "k bigint"}).shredded == ("v",)
    assert read(spark, path).count() == (20 if "appendOnly" in used else 19)
    if "appendOnly" in used:
        with pytest.raises(TableError, match="only allow appends"):
            write(df, path, "overwrite")
        return
    table.delete("id = 4")
    table.update("id = 5", {"v": F.parse_json(F.lit("null"))})
    delta_log(spark).forTable(spark._jsparkSession, str(path)).checkpoint()
    with generated(spark):
        assert sorted(row.id for row in read(spark, path).where("v:k::int > 6").collect()) == [7, 7, 8, 8, 9, 9]
    overwritten = write(df, path, "overwrite").version
    found, expected = canonicals(read(spark, path), df)
    assert found == expected
    if "rowTracking" in used:
        assert len({row.row_id for row in read(spark, path).select("_metadata.row_id").collect()}) == 10
    if "changeDataFeed" in used:
        changes = spark.sql(f"SELECT _change_type FROM table_changes_by_path('{path}', {overwritten})")
        assert Counter(row[0] for row in changes.collect()) == {"insert": 10, "delete": 17}
    if "inCommitTimestamp" in used:
        first = json.loads(Path(path, "_delta_log", f"{overwritten:020}.json").read_text().splitlines()[0])
        assert first["commitInfo"]["inCommitTimestamp"] > 0


def test_clustered_tables_take_appends(spark, tmp_path, documents, rows):
    """An append to a liquid clustered table leaves the clustering in place, and OPTIMIZE clusters the rows."""
    path = tmp_path / "t"
    spark.sql(f"CREATE TABLE delta.`{path}` (id bigint, v variant) USING delta CLUSTER BY (id)")
    assert write(documents, path, max_rows_per_file=60).files > 1
    DeltaTable.forPath(spark, str(path)).optimize().executeCompaction()
    assert canonical(read(spark, path)) == rows
    assert spark.sql(f"DESCRIBE DETAIL delta.`{path}`").first().clusteringColumns == ["id"]


def test_identity_columns_are_filled(spark, tmp_path):
    """Rows without the identity column of a table get its next values, as by Delta, and rows with it are refused (W1)."""
    path = tmp_path / "t"
    spark.sql(f"CREATE TABLE delta.`{path}` (id bigint GENERATED ALWAYS AS IDENTITY, v variant) USING delta")
    for _ in range(2):
        write(spark.range(3).selectExpr("to_variant_object(named_struct('n', id)) v"), path)
    ids = [row.id for row in read(spark, path).select("id").collect()]
    assert len(set(ids)) == 6
    with pytest.raises(InvalidSchemaError, match="GENERATED ALWAYS AS IDENTITY column id"):
        write(spark.sql("SELECT 1L id, parse_json('1') v"), path)


def test_iceberg_compat_tables(spark, tmp_path):
    """Files of a table with IcebergCompatV2 have the tag that Delta's own have (W1)."""
    path, properties = tmp_path / "t", "'delta.enableIcebergCompatV2' = 'true', 'delta.columnMapping.mode' = 'name'"
    spark.sql(f"CREATE TABLE delta.`{path}` (id bigint) USING delta TBLPROPERTIES ({properties})")
    commit = write(spark.range(3), path)
    assert [add["tags"]["ICEBERG_COMPAT_VERSION"] for add in adds(path, commit.version)] == ["2"] * commit.files
    assert sorted(row.id for row in read(spark, path).collect()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"cluster_by": "id"}, InvalidSchemaError, r"cluster_by='id' must be a list of columns: \['id'\]"),
        ({"replace_where": "id = 1"}, UnsupportedFeatureError, "replace_where says what an overwrite replaces"),
        ({"partition_overwrite": "dynamic"}, UnsupportedFeatureError, "partition_overwrite says what an overwrite replaces"),
        ({"mode": "overwrite", "partition_overwrite": "some"}, UnsupportedFeatureError, "'some' is not one of static, dynamic"),
        (
            {"mode": "overwrite", "replace_where": "id = 1", "partition_overwrite": "dynamic"},
            UnsupportedFeatureError,
            "exclude each other",
        ),
        ({"txn": "a"}, UnsupportedFeatureError, "txn='a' is not an application and its version"),
        ({"txn": ("a", -1)}, UnsupportedFeatureError, r"txn=\('a', -1\) is not"),
        ({"storage_options": {"a": "b"}}, UnsupportedFeatureError, "storage_options: a is not a setting of Hadoop's"),
        ({"mode": "upsert"}, UnsupportedFeatureError, "mode='upsert' is not one of append"),
        ({"compression": "zip"}, UnsupportedFeatureError, "compression='zip' is not one of zstd"),
        ({"max_rows_per_file": 0}, UnsupportedFeatureError, "max_rows_per_file=0"),
        ({"partition_by": "id"}, InvalidSchemaError, r"must be a list of columns: \['id'\]"),
        ({"partition_by": ["x"]}, InvalidSchemaError, "there is no column x; the columns are id, v"),
        ({"partition_by": ["id", "v"]}, InvalidSchemaError, "not a partition column|cannot be a partition column"),
        ({"partition_by": ["v"]}, InvalidSchemaError, "v is VARIANT and cannot be a partition column"),
    ],
)
def test_arguments_refused(tmp_path, documents, arguments, error, message):
    """A parameter that is not supported, or has no meaning, is one error before anything is written."""
    with pytest.raises(error, match=message):
        write(documents, tmp_path / "t", **arguments)
    assert not (tmp_path / "t").exists()


def test_other_partitioning_is_refused(spark, tmp_path, documents):
    """An existing table keeps its partitioning; asking for another is an error."""
    few = documents.where("id < 3")
    write(few, tmp_path / "t", partition_by=["id"])
    with pytest.raises(InvalidSchemaError, match=r"is partitioned by \['id'\], not \['v'\]"):
        write(few, tmp_path / "t", partition_by=["v"])
    assert write(few, tmp_path / "t", partition_by=["ID"]).version == 1


def test_types_refused(spark, tmp_path):
    """A column of a type that Delta tables lack is an error that names it."""
    with pytest.raises(UnsupportedFeatureError, match=r"column s\.n is VOID"):
        write(spark.sql("SELECT named_struct('n', null) s"), tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_not_a_table(spark, tmp_path, documents):
    """A directory with something else in it is refused, and stays as it was."""
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "x.txt").write_text("x")
    with pytest.raises(TableError, match="not a Delta table"):
        write(documents, tmp_path / "t")
    assert [path.name for path in (tmp_path / "t").iterdir()] == ["x.txt"]


MALFORMED = [b"\x02\x01\x05\x00\xff", b"\x10", b"", b"\xff\xff\xff"]


@pytest.mark.parametrize(("shred", "start"), [("auto", 0), (False, 1), ({"v": "a bigint"}, 2)])
def test_malformed_variants(spark, tmp_path, one_write, shred, start):
    """Bytes that are no Variant are one error that names the column; the version and the directory are as before."""
    group = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])
    before = sorted(one_write.glob("*.parquet"))
    for value in share(MALFORMED, 3, start):
        variants = [{"metadata": b"\x01\x00\x00", "value": data} for data in (b"\x0c\x01", b"\x00", value)]
        table = pa.table([pa.array(range(3)), pa.array(variants, group)], schema=pa.schema([("id", pa.int64()), ("v", group)]))
        pq.write_table(table, tmp_path / "damaged.parquet")
        df = spark.read.schema("id long, v variant").parquet(str(tmp_path / "damaged.parquet"))
        with pytest.raises(MalformedVariantError, match=r"writing to delta\.`.*`: column v: "):
            write(df.union(spark.sql("SELECT 9L, parse_json('1')")), one_write, shred=shred)
    assert newest(one_write) == 0
    assert sorted(one_write.glob("*.parquet")) == before


def test_disk_errors_are_one_clear_error(spark, tmp_path, documents):
    """An error of the operating system is raised as TableError with its reason."""
    write(documents.where("id < 3"), tmp_path / "t", partition_by=["id"])
    (tmp_path / "t" / "id=777").write_text("in the way")
    with pytest.raises(TableError, match=r"writing the files of .* failed: .*Error: .*id=777"):
        write(documents.withColumn("id", F.lit(777)), tmp_path / "t")
    assert newest(tmp_path / "t") == 0


def test_the_users_own_errors_stay(spark, tmp_path):
    """An error in the DataFrame's own plan is Spark's, as without this package."""
    with pytest.raises(ArithmeticException, match="DIVIDE_BY_ZERO"):
        write(spark.range(1).selectExpr("1 / id x"), tmp_path / "t")


def test_a_failed_creation_can_be_repeated(spark, tmp_path, documents, rows):
    """After a write that failed while it created the table there is no table, and the next write makes it."""
    with pytest.raises(ArithmeticException):
        write(spark.range(1).selectExpr("1 / id x"), tmp_path / "t")
    assert write(documents, tmp_path / "t").version == 0
    assert canonical(read(spark, tmp_path / "t")) == rows


def test_an_ordinary_delta_table(spark, tmp_path, documents, rows):
    """delta-spark merges, optimizes, checkpoints and vacuums a table of `write`, and reads older versions."""
    path = str(tmp_path / "t")
    write(documents, path, max_rows_per_file=40)
    table = DeltaTable.forPath(spark, path)
    source = spark.sql("SELECT explode(array(2L, 5L, 1000L)) id, parse_json('{\"merged\": true}') v")
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id").whenMatchedDelete("t.id = 5")
    merge.whenMatchedUpdateAll("try_variant_get(t.v, '$.id', 'bigint') = 2").whenNotMatchedInsertAll().execute()
    changed = canonical(read(spark, path))
    assert changed.total() == 108
    assert sum(times for row, times in changed.items() if row[1] == '{"merged":true}') == 2
    table.optimize().executeCompaction()
    delta_log(spark).forTable(spark._jsparkSession, path).checkpoint()
    assert list(Path(path, "_delta_log").glob("*.checkpoint*"))
    vacuum(spark, path)
    assert canonical(read(spark, path)) == changed
    write(documents, path, "overwrite")
    earlier = spark.read.format("delta").option("versionAsOf", 2).load(path)
    assert canonicals(earlier, read(spark, path)) == [changed, rows]


def test_duckdb_reads_the_files(written, documents):
    """DuckDB reads the Parquet files, shredded and not, and finds VARIANT columns in them."""
    expected = documents.select("id", F.to_json("v")).collect()
    for name in ("shredded", "plain"):
        files = f"'{written[name][0]}/*.parquet'"
        kinds = dict(duckdb.sql(f"SELECT column_name, column_type FROM (DESCRIBE FROM {files})").fetchall())
        assert kinds == {"id": "BIGINT", "v": "VARIANT"}
        found = duckdb.sql(f"SELECT id, v::JSON::VARCHAR FROM {files}").fetchall()
        assert {i: j and json.loads(j) for i, j in found} == {i: j and json.loads(j) for i, j in expected}
