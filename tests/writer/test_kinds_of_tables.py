"""Tables of every kind: what `write` leaves equals what delta-spark leaves in a twin, and what a table demands is enforced."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from delta import DeltaTable
from pyspark.sql import functions as F
from pyspark.sql import types as t

from delta_variant import jvm
from delta_variant.errors import InvalidSchemaError
from delta_variant.writer import write
from tests.contents import canonicals, read
from tests.logs import adds, newest, protocol_and_metadata
from tests.support import SOAK

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]

COLUMNS = (
    "id bigint, s string, v variant, st struct<a: int, w: variant, `d.e`: date>, ar array<struct<x: int>>, "
    "m map<string, int>, ts timestamp, p string, d date"
)
ROWS = (
    "id", "concat('text ', id) s", "parse_json(concat('{\"k\":', id, '}')) v",
    "named_struct('a', cast(id as int), 'w', parse_json('[1]'), 'd.e', date'2024-01-01') st",
    "array(named_struct('x', cast(id as int)), null) ar", "map('k', cast(id as int)) m",
    "timestamp_seconds(1700000000 + id) ts",
    "element_at(array('a b', 'ü/=', null), cast(id % 3 + 1 as int)) p", "date_add(date'1969-12-31', cast(id % 2 as int)) d",
)  # fmt: skip
NAMES = [row.rsplit(" ", 1)[-1] for row in ROWS]


@dataclass(frozen=True)
class Kind:
    """How a table is made, by SQL in which {} stands for it, and the columns that are written into it."""

    properties: str = ""
    clauses: str = ""
    columns: str = COLUMNS
    then: tuple[str, ...] = ()
    rows: tuple[str, ...] = ROWS
    rename: tuple[tuple[str, str], ...] = ()


MAPPED_BY = "'delta.columnMapping.mode' = '{}'"
RENAMED = (
    "ALTER TABLE {} RENAME COLUMN s TO `other name`",
    "ALTER TABLE {} RENAME COLUMN st.a TO b",
    "ALTER TABLE {} RENAME COLUMN p TO q",
    "ALTER TABLE {} DROP COLUMN ts",
    "ALTER TABLE {} ADD COLUMNS (ts timestamp)",
)
RENAME = (("s", "other name"), ("p", "q"))
RENAMED_ROWS = tuple(row.replace("'a', cast(id as int), 'w'", "'b', cast(id as int), 'w'") for row in ROWS)
GENERATED = ", g bigint GENERATED ALWAYS AS (id + 1), h date GENERATED ALWAYS AS (CAST(ts AS DATE))"
PARTITIONED = "PARTITIONED BY (p, d)"
KINDS = {
    "plain": Kind(),
    "partitioned": Kind(clauses=PARTITIONED),
    "mappedByName": Kind(MAPPED_BY.format("name"), PARTITIONED, then=RENAMED, rows=RENAMED_ROWS, rename=RENAME),
    "mappedById": Kind(MAPPED_BY.format("id"), PARTITIONED, then=RENAMED, rows=RENAMED_ROWS, rename=RENAME),
    "mappedLater": Kind(
        then=("ALTER TABLE {} SET TBLPROPERTIES (" + MAPPED_BY.format("name") + ")", *RENAMED),
        rows=RENAMED_ROWS,
        rename=RENAME,
    ),
    "mappedStatistics": Kind(
        MAPPED_BY.format("id") + ", 'delta.dataSkippingStatsColumns' = 's,st.`d.e`,id'",
        then=("ALTER TABLE {} RENAME COLUMN s TO `other name`",),
        rename=(("s", "other name"),),
    ),
    "randomPrefixes": Kind("'delta.randomizeFilePrefixes' = 'true'", PARTITIONED),
    "notNull": Kind(columns=COLUMNS.replace("id bigint", "id bigint NOT NULL").replace("a: int", "a: int NOT NULL")),
    "check": Kind(then=("ALTER TABLE {} ADD CONSTRAINT positive CHECK (id >= 0 AND st.a < 100)",)),
    "varchar": Kind(columns=COLUMNS.replace("s string", "s varchar(10)").replace("p string", "p char(5)")),
    "generated": Kind(columns=COLUMNS + GENERATED),
    "generatedAndGiven": Kind(
        columns=COLUMNS + GENERATED,
        clauses="PARTITIONED BY (h)",
        rows=(*ROWS, "id + 1 g"),
    ),
    "default": Kind(
        "'delta.feature.allowColumnDefaults' = 'supported'",
        columns=COLUMNS + ", n int DEFAULT 6 * 7, o string DEFAULT 'other'",
        rows=(*ROWS, "CASE WHEN id > 3 THEN 'given' END o"),
    ),
    "typeWidening": Kind(
        "'delta.enableTypeWidening' = 'true'",
        columns=COLUMNS + ", n int",
        then=("INSERT INTO {} (id, n) VALUES (1, 1)", "ALTER TABLE {} ALTER COLUMN n TYPE bigint"),
        rows=(*ROWS, "5000000000 * id n"),
    ),
    "everyFeature": Kind(
        "'delta.enableRowTracking' = 'true', 'delta.enableInCommitTimestamps' = 'true', 'delta.enableChangeDataFeed' = 'true', "
        "'delta.enableDeletionVectors' = 'true', 'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2', "
        "'delta.randomizeFilePrefixes' = 'true'",
        clauses="CLUSTER BY (id)",
        then=("INSERT INTO {} (id) VALUES (1), (2), (3)", "DELETE FROM {} WHERE id = 2"),
    ),
    "rowTracking": Kind("'delta.enableRowTracking' = 'true'"),
    "inCommitTimestamp": Kind("'delta.enableInCommitTimestamps' = 'true'"),
    "changeDataFeed": Kind("'delta.enableChangeDataFeed' = 'true'"),
    "deletionVectors": Kind(
        "'delta.enableDeletionVectors' = 'true'",
        then=("INSERT INTO {} (id) VALUES (1), (2), (3)", "DELETE FROM {} WHERE id = 2"),
    ),
    "clustering": Kind(clauses="CLUSTER BY (id)"),
    "v2Checkpoint": Kind("'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2'"),
    "appendOnly": Kind("'delta.appendOnly' = 'true'"),
    "manyDemands": Kind(
        "'delta.appendOnly' = 'true'",
        columns=COLUMNS.replace("id bigint", "id bigint NOT NULL").replace("a: int", "a: int NOT NULL")
        .replace("s string", "s varchar(10)").replace("p string", "p char(5)"),
        then=("ALTER TABLE {} ADD CONSTRAINT positive CHECK (id >= 0 AND st.a < 100)",),
    ),
    "manyValues": Kind(
        "'delta.feature.allowColumnDefaults' = 'supported', 'delta.enableTypeWidening' = 'true', "
        "'delta.dataSkippingNumIndexedCols' = '2'",
        columns=COLUMNS + GENERATED + ", n int, x int DEFAULT 6 * 7, o string DEFAULT 'other'",
        clauses="PARTITIONED BY (h)",
        then=("INSERT INTO {} (id, n) VALUES (1, 1)", "ALTER TABLE {} ALTER COLUMN n TYPE bigint"),
        rows=(*ROWS, "id + 1 g", "5000000000 * id n", "CASE WHEN id > 3 THEN 'given' END o"),
    ),
    "fewStatistics": Kind("'delta.dataSkippingNumIndexedCols' = '2'"),
    "namedStatistics": Kind("'delta.dataSkippingStatsColumns' = 'ts,st.`d.e`'"),
    "legacy": Kind(
        "'delta.minReaderVersion' = '1', 'delta.minWriterVersion' = '4'", columns="id bigint, s string", rows=ROWS[:2]
    ),
}  # fmt: skip

ALONE = {
    *("rowTracking", "inCommitTimestamp", "changeDataFeed", "deletionVectors", "v2Checkpoint", "randomPrefixes", "clustering"),
    *("appendOnly", "notNull", "check", "varchar"),
    *("default", "generated", "generatedAndGiven", "typeWidening", "fewStatistics"),
    *("plain", "partitioned", "mappedById", "namedStatistics"),
}
"""`make soak` tests each of them alone, `make test` together: in "everyFeature", "manyDemands", "manyValues" and "mapped…"."""


def make(spark, path: Path, kind: Kind) -> None:
    properties = (
        kind.properties
        if kind.columns.count("variant") == 0
        else "'delta.enableVariantShredding' = 'true'" + (", " + kind.properties if kind.properties else "")
    )
    table = f"delta.`{path}`"
    spark.sql(f"CREATE TABLE {table} ({kind.columns}) USING delta {kind.clauses} TBLPROPERTIES ({properties})")
    for statement in kind.then:
        spark.sql(statement.format(table))


def rows(spark, kind: Kind) -> Any:
    df = spark.range(0, 7, 1, 1).selectExpr(*kind.rows)
    for old, new in kind.rename:
        df = df.withColumnRenamed(old, new)
    return df


def logical_names(schema: Any) -> dict[str, str]:
    """Physical names are unique; so are the logical ones of these tables."""
    names: dict[str, str] = {}
    if isinstance(schema, dict):
        for field in schema.get("fields", ()):
            names[field["metadata"].get("delta.columnMapping.physicalName", field["name"])] = field["name"]
            names |= logical_names(field["type"])
        for key in ("elementType", "keyType", "valueType"):
            names |= logical_names(schema.get(key))
    return names


def renamed(value: Any, names: dict[str, str]) -> Any:
    return {names.get(k, k): renamed(v, names) for k, v in value.items()} if isinstance(value, dict) else value


def in_the_log(path, number: int) -> list:
    """Of every file of a version, by logical names: partition values and statistics, those of VARIANT columns left out."""
    names = logical_names(json.loads(protocol_and_metadata(path)[1]["schemaString"]))
    files = []
    for add in adds(path, number):
        stats = renamed(json.loads(add["stats"]), names)
        for bounds in (stats.get("minValues", {}), stats.get("maxValues", {})):
            bounds.pop("v", None)
            bounds.get("st", {}).pop("w", None)
        extras = {key: add.get(key) is not None for key in ("baseRowId", "defaultRowCommitVersion", "deletionVector")}
        files.append((renamed(add["partitionValues"], names), stats, extras, add["path"].count("/")))
    return sorted(files, key=str)


def schema_in(metadata: dict) -> Any:
    """The schema with every generated name replaced by its field's own."""
    text, schema = metadata["schemaString"], json.loads(metadata["schemaString"])
    for physical, logical in logical_names(schema).items():
        text = text.replace(f'"{physical}"', f'"{logical}"') if physical.startswith("col-") else text
    return json.loads(text)


def field_ids(path, number: int) -> dict[str, int]:
    """The Parquet field ids of a version's first file, by logical names, partition columns left out, which delta-spark adds."""
    metadata = protocol_and_metadata(path)[1]
    names = logical_names(json.loads(metadata["schemaString"]))
    schema = pq.ParquetFile(Path(path, unquote(adds(path, number)[0]["path"]))).schema_arrow

    def ids(fields, parents=""):
        for field in fields:
            name = f"{parents}{names.get(field.name, field.name)}"
            if field.metadata and b"PARQUET:field_id" in field.metadata:
                yield name, int(field.metadata[b"PARQUET:field_id"])
            kind = field.type
            if hasattr(kind, "fields"):
                yield from ids(kind.fields, name + ".")

    return {name: number for name, number in ids(schema) if name not in metadata["partitionColumns"]}


@pytest.mark.parametrize("name", KINDS if SOAK else [name for name in KINDS if name not in ALONE])
def test_twins(spark, tmp_path, name):
    """Twins of `write` and delta-spark have equal data, schema, protocol, partition values, statistics and field ids (W1)."""
    kind, ours, twin = KINDS[name], tmp_path / "ours", tmp_path / "twin"
    make(spark, ours, kind)
    shutil.copytree(ours, twin)
    df = rows(spark, kind)
    df.write.format("delta").mode("append").save(str(twin))
    shapes = {"st.w": "array<bigint>", "v": "k bigint"} if "variant" in kind.columns else {}
    commit = write(df, ours, shred=shapes or "auto")
    assert commit.version == newest(twin)
    assert commit.shredded == tuple(shapes)
    assert read(spark, ours).schema == read(spark, twin).schema
    found, expected = canonicals(read(spark, ours), read(spark, twin))
    assert found == expected
    (protocol, metadata), (their_protocol, theirs) = protocol_and_metadata(ours), protocol_and_metadata(twin)
    assert protocol == their_protocol
    assert schema_in(metadata) == schema_in(theirs)
    assert (metadata["partitionColumns"], metadata["configuration"].keys()) == (
        theirs["partitionColumns"], theirs["configuration"].keys(),
    )  # fmt: skip
    assert in_the_log(ours, commit.version) == in_the_log(twin, commit.version)
    assert field_ids(ours, commit.version) == field_ids(twin, commit.version)


def test_changes_by_others_on_mapped_tables(spark, tmp_path):
    """delta-spark updates, deletes, merges, optimizes and reads what `write` left in a table with mapped columns, by id."""
    path = str(tmp_path / "t")
    kind = replace(KINDS["mappedById"], clauses="PARTITIONED BY (p)")
    make(spark, tmp_path / "t", kind)
    df = rows(spark, kind)
    write(df.union(df), path)
    table = DeltaTable.forPath(spark, path)
    table.update("id = 2", {"v": "parse_json('\"updated\"')"})
    table.delete("st.b = 5")
    source = df.where("id = 6").withColumn("id", F.lit(66))
    table.alias("t").merge(source.alias("s"), "t.id = s.id").whenNotMatchedInsertAll().execute()
    table.optimize().executeCompaction()
    found = read(spark, path).selectExpr("id", "`other name`", "st.b", "coalesce(v:k::int, 100)")
    expected = [(i, f"text {i}", i, 100 if i == 2 else i) for i in (0, 1, 2, 3, 4, 6)]
    assert sorted(map(tuple, found.collect())) == sorted([*expected, *expected, (66, "text 6", 6, 6)])


DEMANDING = """CREATE TABLE {} (id bigint NOT NULL, name varchar(3), twice bigint GENERATED ALWAYS AS (id * 2),
    s struct<code: char(2), n: int NOT NULL>, v variant) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name',
    'delta.constraints.positive' = 'id > 0', 'delta.constraints.lower' = 'lower(name) = name')"""
VIOLATIONS = {
    "SELECT -1L id, 'abc' name": r"CHECK constraint positive \(id > 0\) violated by row with values: - id : -1",
    "SELECT 1L id, 'ABC' name": r"CHECK constraint lower \(lower\(name\) = name\) violated by row with values: - name : ABC",
    "SELECT 1L id, 'abcd' name": "CHAR|length",
    "SELECT 1L id, 'abc   ' name": "CHAR|length",
    "SELECT 1L id, 'abc' name, named_struct('code', 'xyz', 'n', 1) s": r"length\(s\.`?code`?\) <= 2",
    "SELECT 1L id, 'abc' name, 3L twice": r"Generated Column \(twice <=> \(id \* .*2.*\)\) violated by row",
    "SELECT cast(null as bigint) id, 'abc' name": r"positive \(id > 0\) violated by row with values: - id : null",
    "SELECT 1L id, 'abc' name, named_struct('n', cast(null as int)) s": r"NOT NULL constraint violated for column: s\.n",
    "SELECT 'x' name": "`id` cannot be resolved",
}


def test_rows_that_a_table_refuses(spark, tmp_path):
    """A row that violates a constraint is an error that names the constraint and the row; the table is unchanged."""
    path = tmp_path / "t"
    spark.sql(DEMANDING.format(f"delta.`{path}`"))
    before = newest(path)
    struct = F.expr("named_struct('code', 'ab', 'n', 1)").alias("s")  # Delta refuses rows without a struct that has NOT NULL
    good = spark.sql("SELECT 5L id, 'abc' name").select("*", struct)
    for query, message in VIOLATIONS.items():
        bad = spark.sql(query)
        bad = bad if "s" in bad.columns else bad.select("*", struct)
        with pytest.raises(InvalidSchemaError, match=message):
            write(good.unionByName(bad, allowMissingColumns=True).coalesce(1) if "id" in bad.columns else bad, path)
    assert newest(path) == before
    with pytest.raises(InvalidSchemaError, match=r"constraint lower .* - name : null"):  # NULL is not true
        write(good.drop("name"), path)
    write(good, path)
    assert read(spark, path).select("id", "name", "twice").collect() == [(5, "abc", 10)]


def test_invariants(spark, tmp_path):
    """An invariant in the metadata of a column, as writers of version 2 keep it, is enforced."""
    invariant = {"delta.invariants": json.dumps({"expression": {"expression": "x < 10"}})}
    schema = t.StructType([t.StructField("x", t.IntegerType(), True, invariant)])
    DeltaTable.create(spark).location(str(tmp_path / "t")).addColumns(schema).execute()
    with pytest.raises(InvalidSchemaError, match=r"\(x < 10\) violated by row with values: - x : 11"):
        write(spark.sql("SELECT 11 x"), tmp_path / "t")
    assert write(spark.sql("SELECT 9 x"), tmp_path / "t").rows == 1


def test_checks_do_not_move_below_what_drops_rows(spark, tmp_path):
    """A row that the DataFrame drops in a filter, a join or a limit violates nothing."""
    path = tmp_path / "t"
    spark.sql(f"CREATE TABLE delta.`{path}` (id bigint) USING delta TBLPROPERTIES ('delta.constraints.small' = 'id < 3')")
    df = spark.range(0, 10, 1, 1)
    for kept in (df.where("id < 2"), df.join(spark.range(0, 2, 1, 1), "id"), df.limit(2)):
        assert write(kept, path).rows == 2
    assert sorted(row.id for row in read(spark, path).collect()) == [0, 0, 0, 1, 1, 1]


def test_constraints_follow_the_session(spark, tmp_path):
    """Constraints and defaults are evaluated by the caller's settings, not by those of the write's own casts."""
    path = tmp_path / "t"
    number = "'delta.constraints.number' = 'coalesce(cast(s as int), 1) > 0'"
    spark.sql(f"CREATE TABLE delta.`{path}` (s string) USING delta TBLPROPERTIES ({number})")
    with jvm.settings(spark, {"spark.sql.ansi.enabled": "false"}):
        assert write(spark.sql("SELECT 'text' s"), path).rows == 1
        assert spark.conf.get("spark.sql.ansi.enabled") == "false"
