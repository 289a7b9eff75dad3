"""Modes of `write`, schema evolution, repeated writes and streams, beside what delta-spark does with the same rows."""

from __future__ import annotations

import functools
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from delta import DeltaTable
from pyspark import RDD
from pyspark.sql import functions as F

from delta_variant import jvm
from delta_variant.errors import ConflictError, DeltaVariantWarning, InvalidSchemaError, TableError, UnsupportedFeatureError
from delta_variant.session import disable, enable
from delta_variant.table import VariantTable
from delta_variant.transaction import Table, own_session
from delta_variant.writer import Commit, foreach_batch, planning, write
from tests.contents import canonicals, read
from tests.logs import actions, commits, features, newest, protocol_and_metadata
from tests.support import SOAK, deltas_own_files, share

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]


def rows(spark, start: int, end: int, text: str = "first"):
    """Ten rows a partition: p is text with an odd character, q a date, and in one row of fifty both are null."""
    return spark.range(start, end, 1, 1).selectExpr(
        "id", f"parse_json(concat('{{\"{text}\":', id, '}}')) v",
        "CASE WHEN id % 50 = 0 THEN null ELSE concat('p/', id div 10) END p",
        "date_add(date'2024-01-01', cast(id div 10 as int)) q",
    )  # fmt: skip


def removed(path, number: int) -> int:
    return sum("remove" in action for action in commits(path)[number])


@pytest.fixture(scope="module")
def base(spark, tmp_path_factory) -> Callable[[str], Path]:
    """Makes a table with these properties and some rows, partitioned, once."""

    @functools.cache
    def made(properties: str) -> Path:
        path = tmp_path_factory.mktemp("bases") / "t"
        spark.sql(
            f"CREATE TABLE delta.`{path}` (id bigint, v variant, p string, q date) USING delta PARTITIONED BY (p, q) "
            f"TBLPROPERTIES ('delta.enableVariantShredding' = 'true'{properties})"
        )
        rows(spark, 0, 60).write.format("delta").mode("append").save(str(path))
        return path

    return made


@pytest.fixture
def twins(base, tmp_path) -> Callable[..., tuple[str, str]]:
    """Makes two tables with the same rows; the names of columns are mapped where the properties say so."""

    def copies(properties: str = "") -> tuple[str, str]:
        ours, twin = (shutil.copytree(base(properties), tmp_path / name) for name in ("ours", "twin"))
        return str(ours), str(twin)

    return copies


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_replace_where(spark, twins, mapping):
    """An overwrite of some partitions removes and adds in one version, what delta-spark removes and adds."""
    ours, twin = twins(f", 'delta.columnMapping.mode' = '{mapping}'" if mapping == "name" else "")
    for predicate in share(("p = 'p/1' OR P is null", "q >= '2024-01-04' AND p <> 'p/5'", "true"), 2, int(mapping == "name")):
        new = rows(spark, 0, 60, "second").where(predicate).where("id % 2 = 0")
        new.write.format("delta").mode("overwrite").option("replaceWhere", predicate).save(twin)
        commit = write(new, ours, "overwrite", replace_where=predicate)
        found, expected = canonicals(read(spark, ours), read(spark, twin))
        assert found == expected
        assert commit.version == newest(ours)
        assert removed(ours, commit.version) == removed(twin, commit.version)
        parameters = actions(ours, "commitInfo")[-1]["operationParameters"]
        assert parameters == actions(twin, "commitInfo")[-1]["operationParameters"]
        assert (parameters["mode"], parameters["predicate"]) == ("Overwrite", predicate)


def test_replace_where_refused(spark, twins):
    """Rows outside of the predicate, and predicates that whole files cannot answer, are errors that leave the table."""
    ours, _ = twins()
    before = newest(ours)
    new = rows(spark, 10, 21)
    for predicate, message in (
        ("p = 'p/1'", r"does not conform to .* 'p = 'p/1''.* - p : p/2"),
        ("p = 'p/1' AND id > 5", "does not conform to"),
        ("nothing = 1", "nothing"),
        ("p =", "Cannot recognize the predicate 'p ='"),
    ):
        with pytest.raises(InvalidSchemaError, match=message):
            write(new, ours, "overwrite", replace_where=predicate)
    assert newest(ours) == before


@pytest.mark.parametrize("predicate", ["id > 5", "p = 'p/1' AND id > 5"])
def test_replace_where_on_other_columns(spark, twins, predicate):
    """A predicate on other columns than those of partitions replaces rows as delta-spark does it."""
    ours, twin = twins("")
    new = rows(spark, 10, 21).where(predicate)
    new.write.format("delta").mode("overwrite").option("replaceWhere", predicate).save(twin)
    commit = write(new, ours, "overwrite", replace_where=predicate)
    found, expected = canonicals(read(spark, ours), read(spark, twin))
    assert found == expected
    assert commit.rows == new.count()


@pytest.mark.parametrize("by", ["argument", "session"])
def test_dynamic_overwrite(spark, twins, by):
    """Only the partitions that new rows are in are replaced, nulls among them, as delta-spark does it."""
    ours, twin = twins(", 'delta.columnMapping.mode' = 'name'" if by == "session" else "")
    new = rows(spark, 45, 58, "second")
    new.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "dynamic").save(twin)
    if by == "argument":
        commit = write(new, ours, "overwrite", partition_overwrite="dynamic")
    else:
        with jvm.settings(spark, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
            commit = write(new, ours, "overwrite")
    found, expected = canonicals(read(spark, ours), read(spark, twin))
    assert found == expected
    assert removed(ours, commit.version) == removed(twin, commit.version) == 3
    assert actions(ours, "commitInfo")[-1]["operationParameters"]["isDynamicPartitionOverwrite"] is True


@pytest.mark.parametrize("properties", share(["", ", 'delta.columnMapping.mode' = 'name'"], 2))
def test_static_overwrite_in_a_dynamic_session(spark, twins, tmp_path, properties):
    """Everything is replaced where the argument says so, and where the table has no partitions."""
    ours, _ = twins(properties)
    new = rows(spark, 45, 58, "second")
    with jvm.settings(spark, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
        write(new, ours, "overwrite", partition_overwrite="static")
        write(new.drop("p", "q"), tmp_path / "plain")
        write(new.drop("p", "q"), tmp_path / "plain", "overwrite")
    found, expected = canonicals(read(spark, ours), new)
    assert found == expected
    assert read(spark, tmp_path / "plain").count() == 13


def test_append_only_tables_refuse_to_remove(spark, twins):
    """Every mode that removes files is refused, and the table stays."""
    ours, _ = twins(", 'delta.appendOnly' = 'true'")
    new = rows(spark, 10, 20)
    for arguments in ({}, {"replace_where": "p = 'p/1'"}, {"partition_overwrite": "dynamic"}):
        with pytest.raises(TableError, match="only allow appends"):
            write(new, ours, "overwrite", **arguments)
    assert newest(ours) == 1
    assert write(new, ours).version == 2


EVOLVED = (
    "2L id", "named_struct('a', 1, 'new', named_struct('x', 1S)) s", "array(named_struct('y', 1, 'z', 'text')) l",
    "map('k', named_struct('n', 1, 'o', true)) m", "parse_json('{\"k\": 1}') added", "'text' `new name`",
)  # fmt: skip


@pytest.mark.parametrize("mapping", share(["none", "name", "id"], 2))
def test_merge_schema(spark, tmp_path, mapping):
    """`merge_schema` adds new columns and fields as delta-spark does; they are null in the rows of older files."""
    ours, twin = str(tmp_path / "ours"), str(tmp_path / "twin")
    spark.sql(
        f"CREATE TABLE delta.`{ours}` (id bigint NOT NULL, gone int, s struct<a: int>, l array<struct<y: int>>, "
        f"m map<string, struct<n: int>>) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = '{mapping}')"
    )
    spark.sql(f"INSERT INTO delta.`{ours}` (id, gone, s) VALUES (1, 1, struct(1))")
    shutil.copytree(ours, twin)
    columns = [column for column in EVOLVED if mapping != "none" or "new name" not in column]
    df = spark.range(1).selectExpr(*columns)
    with pytest.raises(InvalidSchemaError, match=r"(?s)schema mismatch .*mergeSchema.*added: variant"):
        write(df, ours)
    df.write.format("delta").mode("append").option("mergeSchema", "true").save(twin)
    write(df, ours, merge_schema=True)
    assert read(spark, ours).schema == read(spark, twin).schema
    found, expected = canonicals(read(spark, ours), read(spark, twin))
    assert found == expected
    (protocol, metadata), (their_protocol, theirs) = protocol_and_metadata(ours), protocol_and_metadata(twin)
    assert protocol == their_protocol
    assert shape(json.loads(metadata["schemaString"])) == shape(json.loads(theirs["schemaString"]))
    before = newest(ours)
    write(df, ours, merge_schema=True)  # nothing new: no metadata in the commit
    assert "metaData" not in Path(ours, "_delta_log", f"{before + 1:020}.json").read_text()


def shape(kind):
    """A schema without the random parts of physical names."""
    if isinstance(kind, dict):
        return {key: "col" if key == "delta.columnMapping.physicalName" else shape(value) for key, value in kind.items()}
    return [shape(item) for item in kind] if isinstance(kind, list) else kind


def test_types_widen_where_the_table_allows_it(spark, tmp_path):
    """With type widening a wider type in the rows widens the column as delta-spark does; without, it is an error by name."""
    ours, twin = str(tmp_path / "ours"), str(tmp_path / "twin")
    wide = spark.sql("SELECT 5000000000L n, named_struct('x', 1.5D) s, array(1L) a")
    spark.sql(f"CREATE TABLE delta.`{ours}` (n int, s struct<x: float>, a array<bigint>) USING delta")
    spark.sql(f"INSERT INTO delta.`{ours}` VALUES (1, struct(1), array(1))")
    with pytest.raises(InvalidSchemaError, match="CAST_OVERFLOW_IN_TABLE_INSERT"):
        write(wide, ours, merge_schema=True)
    spark.sql(f"ALTER TABLE delta.`{ours}` SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    shutil.copytree(ours, twin)
    wide.write.format("delta").mode("append").option("mergeSchema", "true").save(twin)
    write(wide, ours, merge_schema=True)
    assert json.loads(protocol_and_metadata(ours)[1]["schemaString"]) == json.loads(
        protocol_and_metadata(twin)[1]["schemaString"]
    )
    assert protocol_and_metadata(ours)[0] == protocol_and_metadata(twin)[0]
    found, expected = canonicals(read(spark, ours), read(spark, twin))
    assert found == expected
    with pytest.raises(InvalidSchemaError, match="column n is STRING in the DataFrame and BIGINT"):
        write(spark.sql("SELECT 'x' n"), ours, merge_schema=True)


def test_columns_that_others_depend_on_do_not_widen(spark, tmp_path):
    """Delta's own rule: a column that a generated one is computed from keeps its type."""
    path = tmp_path / "t"
    spark.sql(
        f"CREATE TABLE delta.`{path}` (n int, g int GENERATED ALWAYS AS (n + 1)) USING delta "
        "TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
    )
    before = newest(path)
    with pytest.raises(InvalidSchemaError, match=r"Column n has data type INT and cannot be altered"):
        write(spark.sql("SELECT 5000000000L n"), path, merge_schema=True)
    assert newest(path) == before


def test_repeated_writes(spark, tmp_path):
    """A write with the number of an earlier write of its application, or a smaller number, does nothing."""
    path = tmp_path / "t"
    df = rows(spark, 0, 5)
    assert write(df, path, txn=("job", 7)).version == 0
    for again in (7, 3):
        assert write(df, path, txn=("job", again)) == Commit(0, 0, 0, 0, ())
        assert write(df, path, "overwrite", txn=("job", again)) == Commit(0, 0, 0, 0, ())
        assert write(df, path, "error", txn=("job", again)) == Commit(0, 0, 0, 0, ())
    assert write(df, path, txn=("other", 7)).version == 1
    assert write(df, path, txn=("job", 8)).version == 2
    assert write(df.where("false"), path, txn=("job", 9)) == Commit(3, 0, 0, 0, ())
    assert write(df, path, txn=("job", 9)).version == 3
    assert read(spark, path).count() == 15
    assert actions(path, "commitInfo")[2]["isBlindAppend"]


def test_one_of_two_writes_with_one_number_is_refused(spark, tmp_path, monkeypatch):
    """Of two writes with the same number at once, Delta commits one and refuses the other."""
    path = tmp_path / "t"
    write(rows(spark, 0, 5), path)
    plan = planning.plan

    def after_another():
        monkeypatch.setattr(planning, "plan", plan)
        assert write(rows(spark, 5, 10), path, txn=("job", 1)).version == 1

    def after_another_threads(*args):  # this one has an active transaction
        with ThreadPoolExecutor(1) as thread:
            thread.submit(after_another).result()
        return plan(*args)

    monkeypatch.setattr(planning, "plan", after_another_threads)
    with pytest.raises(ConflictError, match="CONCURRENT_TRANSACTION"):
        write(rows(spark, 5, 10), path, txn=("job", 1))
    assert read(spark, path).count() == 10


def test_streams_write_each_batch_once(spark, tmp_path):
    """A stream whose last batch is passed again after a failure writes each row once."""
    source, target, checkpoint = (str(tmp_path / name) for name in ("source", "target", "checkpoint"))
    write(rows(spark, 0, 20), source, max_rows_per_file=10)

    def run() -> None:
        stream = spark.readStream.format("delta").option("maxFilesPerTrigger", "1").load(source)
        function = foreach_batch(target, app_id="query", partition_by=["p"])
        stream.writeStream.foreachBatch(function).option("checkpointLocation", checkpoint).trigger(
            availableNow=True
        ).start().awaitTermination()

    run()
    batches = newest(target)
    assert batches >= 1
    for commit in Path(checkpoint, "commits").iterdir():  # as if the query had ended before it noted its last batch
        if commit.name.strip(".").split(".")[0] == str(batches):
            commit.unlink()
    with pytest.warns(DeltaVariantWarning, match="This is right after a restart"):
        run()
    write(rows(spark, 20, 25), source)
    run()
    found, expected = canonicals(read(spark, target), rows(spark, 0, 25))
    assert found == expected
    assert newest(target) == batches + 1
    assert {"variantShredding", "variantType"} <= features(target)
    with pytest.raises(UnsupportedFeatureError, match="foreach_batch sets txn itself"):
        foreach_batch(target, app_id="query", txn=("a", 1))
    with pytest.raises(TypeError, match="nothing"):
        foreach_batch(target, app_id="query", nothing=1)
    with pytest.raises(UnsupportedFeatureError, match="foreach_batch"):
        write(spark.readStream.format("delta").load(source), target)


def test_the_session_stays_as_it_is(spark, tmp_path):
    """A write sets what it needs in a clone: what the caller, or another thread, reads meanwhile is unchanged."""
    to_df, active = RDD.toDF, spark._jvm.org.apache.spark.sql.classic.SparkSession.getActiveSession
    before = dict(spark.conf.getAll)
    with own_session(spark) as own:
        own.conf.set("spark.sql.ansi.enabled", "false")
        assert dict(spark.conf.getAll) == before
        assert active().get().conf().get("spark.sql.ansi.enabled") == "false"
    assert active().get().equals(spark._jsparkSession)
    df = spark.sql("SELECT 1 id, parse_json('1') v")
    df.createOrReplaceTempView("one_row")
    write(spark.table("one_row"), tmp_path / "t")
    assert dict(spark.conf.getAll) == before
    assert RDD.toDF is to_df
    assert active().get().equals(spark._jsparkSession)


@pytest.mark.parametrize("made", ["plain", "variantShredding-preview", "variantType-preview", "without"])
def test_the_property_is_switched(spark, tmp_path, made):
    """enable_shredding adds missing features, the preview of shredding if a table has a preview; disabling keeps them (F2)."""
    properties = f"'delta.feature.{made}' = 'supported'" if made.endswith("-preview") else "'a' = 'b'"
    kind = "bigint" if made == "without" else "variant"
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 't'}` (id bigint, v {kind}) USING delta TBLPROPERTIES ({properties})")
    table = Table.of(spark, tmp_path / "t")
    before = table.features()
    assert not before.shredding
    switch = VariantTable.forPath(spark, tmp_path / "t")
    assert switch.enable_shredding() == 1
    on = table.features()
    assert on.shredding
    name = "variantShredding-preview" if made.endswith("-preview") else "variantShredding"
    assert {feature for feature in on.names if feature.startswith("variantShredding")} == {name}
    type_name = "variantType-preview" if made == "variantType-preview" else "variantType"
    assert {feature for feature in on.names if feature.startswith("variantType")} == {type_name}
    if made != "without":
        df = spark.range(0, 20, 1, 1).selectExpr("id", "parse_json(concat('{\"k\":', id, '}')) v")
        assert write(df, tmp_path / "t", shred={"v": "k bigint"}).shredded == ("v",)
        DeltaTable.forPath(spark, str(tmp_path / "t")).update("id = 1", {"v": F.parse_json(F.lit("null"))})
    switch.disable_shredding()
    off = table.features()
    assert off.names == on.names
    assert off.properties["delta.enableVariantShredding"] == "false"
    if made != "without":
        assert write(df, tmp_path / "t").shredded == ()
        assert read(spark, tmp_path / "t").count() == 40


def test_others_write_the_same_table(spark, tmp_path):
    """INSERT, UPDATE, DELETE, MERGE, streams and OPTIMIZE of delta-spark work on tables of `write`; every file has bounds.

    Each changes other rows. `make soak` looks at the table after each of them.
    """
    table, source = f"delta.`{tmp_path / 't'}`", tmp_path / "source"
    row = "SELECT {0}L id, parse_json('{{\"k\": {0}}}') v"
    write(spark.range(0, 4, 1, 1).selectExpr("id", "parse_json(concat('{\"k\":', id, '}')) v"), tmp_path / "t")
    found = VariantTable.forPath(spark, tmp_path / "t")
    expected = {i: i for i in range(4)}
    merge = "ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = parse_json('{\"k\": 10}') WHEN NOT MATCHED THEN INSERT *"
    steps = [
        (f"INSERT INTO {table} {row.format(4)}", {0: 0, 1: 1, 2: 2, 3: 3, 4: 4}),
        (f"UPDATE {table} SET v = parse_json('{{\"k\": 20}}') WHERE id = 2", {0: 0, 1: 1, 2: 20, 3: 3, 4: 4}),
        (f"DELETE FROM {table} WHERE id = 0", {1: 1, 2: 20, 3: 3, 4: 4}),
        (f"MERGE INTO {table} t USING ({row.format(5)} UNION ALL {row.format(1)}) s {merge}", {1: 10, 2: 20, 3: 3, 4: 4, 5: 5}),
    ]

    def check():
        assert {r.id: r.k for r in spark.sql(f"SELECT id, v:k::int k FROM {table}").collect()} == expected
        files = {name.rpartition("/")[2] for name in read(spark, tmp_path / "t").inputFiles()}
        bounded = found.stats().where("path = \"$['k']\"").collect()
        assert {r.file.rpartition("/")[2] for r in bounded} == files
        return files

    enable(spark)
    try:
        with deltas_own_files(spark):
            for statement, expected in steps:  # noqa: B007  # check reads it
                spark.sql(statement)
                if SOAK:
                    check()
            spark.sql(row.format(6)).write.format("delta").save(str(source))
            stream = spark.readStream.format("delta").load(str(source)).writeStream.format("delta")
            options = {"checkpointLocation": str(tmp_path / "checkpoint")}
            stream.trigger(availableNow=True).options(**options).start(str(tmp_path / "t")).awaitTermination()
            expected[6] = 6
            if SOAK:
                check()
            write(spark.sql(row.format(7)), tmp_path / "t")
            expected[7] = 7
            check()
            spark.sql(f"OPTIMIZE {table}")
            assert len(check()) == 1
    finally:
        disable(spark)
