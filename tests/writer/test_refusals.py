"""What this package refuses: before a job runs, with nothing left behind, and with advice that works."""

from __future__ import annotations

import json
import re
import shutil
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from delta.tables import DeltaTable, IdentityGenerator
from pyspark.sql.types import LongType

import delta_variant as dv
from delta_variant.errors import DeltaVariantError
from tests.logs import features, last, newest
from tests.support import forget

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]

ROWS = 20
SHREDS = "'delta.enableVariantShredding' = 'true'"
DOCUMENTS = """SELECT id, parse_json(concat('{"a":', id, '}')) AS v FROM range(20)"""
TEXTS = """SELECT id, concat('{"a":', id, '}') AS v FROM range(20)"""


def identity(spark, path, always):
    """A table with an identity column."""
    named = {"generatedAlwaysAs" if always else "generatedByDefaultAs": IdentityGenerator()}
    builder = DeltaTable.create(spark).location(str(path)).addColumn("id", LongType(), **named)
    builder.addColumn("v", "VARIANT").property("delta.enableVariantShredding", "true").execute()
    spark.sql(f"INSERT INTO delta.`{path}` (v) SELECT v FROM ({DOCUMENTS})")


def created(spark, path, properties=SHREDS, more="", rows=DOCUMENTS):
    """A table of Delta's."""
    kind = "VARIANT" if rows is DOCUMENTS else "STRING"
    spark.sql(f"CREATE TABLE delta.`{path}` (id BIGINT, v {kind}) USING delta {more} TBLPROPERTIES ({properties})")
    spark.sql(f"INSERT INTO delta.`{path}` {rows}")


def upgraded(spark, path):
    """A table with a feature for writers that no Delta knows yet."""
    created(spark, path)
    protocol = last(path, "protocol")
    protocol["writerFeatures"].append("notInventedYet")
    file = path / "_delta_log" / f"{newest(path) + 1:020}.json"
    file.write_text(json.dumps({"protocol": protocol}) + "\n")


ICEBERG = "'delta.columnMapping.mode' = 'name', 'delta.enableIcebergCompatV{}' = 'true'"
KINDS = {
    "identity": lambda spark, path: identity(spark, path, always=False),
    "identity always": lambda spark, path: identity(spark, path, always=True),
    "iceberg": lambda spark, path: created(spark, path, ICEBERG.format(1)),
    "iceberg of texts": lambda spark, path: created(spark, path, ICEBERG.format(2), rows=TEXTS),
    "materialized": lambda spark, path: created(
        spark, path, f"{SHREDS}, 'delta.feature.materializePartitionColumns' = 'supported'", "PARTITIONED BY (id)",
        rows=DOCUMENTS,
    ),
    "append-only": lambda spark, path: created(spark, path, f"{SHREDS}, 'delta.appendOnly' = 'true'"),
    "clustered": lambda spark, path: created(spark, path, more="CLUSTER BY (id)"),
    "without statistics": lambda spark, path: created(spark, path, "'delta.dataSkippingNumIndexedCols' = '0'"),
    "plain": lambda spark, path: created(spark, path, "'delta.feature.variantShredding' = 'supported'"),
    "texts": lambda spark, path: created(spark, path, "'delta.enableRowTracking' = 'true'", rows=TEXTS),
    "unknown": upgraded,
}  # fmt: skip
UNSUPPORTED = r"does not handle it yet: "
WHERE = "is not a predicate on the partition columns"
IDENTITY = "has the identity column id, and all rows of a file would get one value"
BY_DELTA = "notInventedYet"
CASES = {
    "identity": {"ingest": IDENTITY},
    "identity always": {"append": "GENERATED ALWAYS AS IDENTITY", "ingest": IDENTITY},
    "iceberg": {"analyze": UNSUPPORTED + r"call analyze\(tags_only=True\)", "analyze paths and bloom": "tags_only="},
    "iceberg of texts": {"convert": UNSUPPORTED + "write to another table"},
    "append-only": {"overwrite": "only allow appends"},
    "clustered": {"optimize": "run OPTIMIZE delta.*, or first ALTER TABLE"},
    "without statistics": {"analyze": "keeps no statistics of v", "optimize": "keeps no statistics", "shred": "Switch it on"},
    "plain": {
        "shred": r"Switch it on with ALTER TABLE", "analyze where": WHERE, "analyze bloom where": WHERE,
        "optimize where": WHERE, "unshred where": WHERE, "analyze unknown": "is not a VARIANT column",
        "analyze budget": "is not a share", "bloom unknown": "is not a VARIANT column", "keys": "there is no column",
        "shred given": "leave out shred=", "replace_where": "Cannot recognize", "optimize size": "must be a whole number",
    },
    "texts": {"convert": "row ids", "drop_feature": "there is nothing to drop", "bloom unknown": "is not a VARIANT column"},
    "unknown": dict.fromkeys(
        ["append", "overwrite", "ingest", "load", "analyze", "analyze tags", "bloom", "optimize", "shred", "unshred",
         "drop_feature", "enable", "disable", "cluster_by"],
        BY_DELTA,
    ),
}  # fmt: skip
"""By kind of table, what is refused, and the message."""


def operations(spark, path, documents):
    table = dv.VariantTable.forPath(spark, path)
    rows = spark.range(3).selectExpr("id", "parse_json('{\"a\": 1}') AS v" if "text" not in path.name else "'{}' AS v")
    return {
        "append": lambda: dv.write(rows, path),
        "overwrite": lambda: dv.write(rows, path, mode="overwrite"),
        "shred given": lambda: dv.write(rows, path, shred={"v": "a int"}),
        "replace_where": lambda: dv.write(rows, path, mode="overwrite", replace_where="id ="),
        "ingest": lambda: dv.ingest(spark, documents, path, column="v"),
        "ingest beside": lambda: dv.ingest(spark, documents, path.parent / "beside", column="v", bad_records=path),
        "load": lambda: dv.convert(spark, documents.replace(".json", ".parquet"), path),
        "analyze": table.analyze,
        "analyze tags": lambda: table.analyze(tags_only=True),
        "analyze where": lambda: table.analyze(where="id = 1"),
        "analyze unknown": lambda: table.analyze(paths=["w:a"]),
        "analyze budget": lambda: table.analyze(bloom=["v:a"], budget=2),
        "analyze paths and bloom": lambda: table.analyze(paths=["v:a"], bloom=["v:a"], budget=1.0),
        "bloom": lambda: table.analyze(bloom=["v:a"], budget=1.0),
        "bloom unknown": lambda: table.analyze(paths=["v:a"] if "text" not in path.name else None, bloom=["w:a"]),
        "analyze bloom where": lambda: table.analyze(bloom=["v:a"], where="id = 1"),
        "optimize": lambda: table.optimize(cluster_by=["id"]),
        "optimize where": lambda: table.optimize(cluster_by=["v:a"], where="id = 1"),
        "optimize size": lambda: table.optimize(max_file_size=0),
        "keys": lambda: table.cluster_by(["w:a"]),
        "cluster_by": lambda: table.cluster_by(["v:a"]),
        "shred": table.shred,
        "unshred": table.unshred,
        "unshred where": lambda: table.unshred(where="id = 1"),
        "enable": table.enable_shredding,
        "disable": table.disable_shredding,
        "drop_feature": table.drop_feature,
        "convert": lambda: table.convert({"v": "v"}),
    }


@pytest.fixture(scope="module")
def tables(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("refusals")
    for kind, make in KINDS.items():
        make(spark, folder / kind)
    return folder


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    file = tmp_path_factory.mktemp("documents") / "documents.json"
    file.write_text('{"a": 1}\n')
    rows = pa.table({"id": [1], "v": dv.arrow.VariantArray.from_pylist([{"a": 1}])})
    dv.parquet.write_table(rows, file.with_suffix(".parquet"))
    return str(file)


def listing(path):
    return sorted((str(file.relative_to(path)), file.stat().st_mtime_ns) for file in path.rglob("*"))


def refused(spark, call):
    """The message of the error that a call raises, and how many jobs it ran."""
    group = str(uuid.uuid4())
    spark.sparkContext.setJobGroup(group, group)
    try:
        with pytest.raises(DeltaVariantError) as error:
            call()
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    return str(error.value), len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


@pytest.mark.parametrize("kind", CASES)
def test_nothing_is_left_behind(spark, tables, documents, kind):
    """A refusal comes before the first job, and leaves the directory of the table and its version as they were (W8)."""
    path = tables / kind
    for name, message in CASES[kind].items():
        call = operations(spark, path, documents)[name]
        before = listing(path)
        refused(spark, call)  # Delta may read the log for it, and keeps what it has read
        found, jobs = refused(spark, call)
        assert re.search(message, found), (name, found)
        assert listing(path) == before, name
        assert jobs == 0, name
        assert not (tables / "beside").exists()


NEW = {
    "BINARY": ("1L AS id", {"partition_by": ["b"]}),
    "partition": ("1L AS id", {"partition_by": ["nope"]}),
    "keys": ("1L AS id", {"cluster_by": ["w:a"]}),
    "shred": ("1L AS id", {"shred": {"w": "a int"}}),
    "interval": ("INTERVAL '1' DAY AS i", {}),
}


@pytest.mark.parametrize("name", NEW)
def test_no_table_is_begun(spark, tmp_path, name):
    """A table that cannot be created leaves no directory, with or without a name in the catalog (W8)."""
    columns, arguments = NEW[name]
    rows = spark.range(1).selectExpr(columns, "CAST('x' AS BINARY) AS b", "parse_json('1') AS v")
    refused(spark, lambda: dv.write(rows, tmp_path / "new", **arguments))
    assert not (tmp_path / "new").exists()


# ---- the advice ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def copy(spark, tables, tmp_path):
    def of(kind):
        forget(spark)
        return Path(shutil.copytree(tables / kind, tmp_path / kind))

    return of


def rows_of(spark, path):
    return spark.read.format("delta").load(str(path)).count()


def shredded(spark, path):
    """Whether the files of a table are shredded."""
    return {row.schema is not None for row in dv.VariantTable.forPath(spark, path).inspect().select("schema").collect()}


@pytest.mark.parametrize("kind", ["identity", "identity always", "iceberg", "materialized"])
def test_tables_that_once_were_refused(spark, copy, kind):
    """Tables with identity columns, IcebergCompat or partition columns in files are written, and rewritten (W8)."""
    path = copy(kind)
    rows = spark.range(3).selectExpr("id", "parse_json('1') AS v").drop(*(["id"] if kind == "identity always" else []))
    assert dv.write(rows, path).rows == 3
    table = dv.VariantTable.forPath(spark, path)
    table.optimize()
    if kind != "iceberg":
        table.unshred()
        assert shredded(spark, path) == {False}
        table.shred()
        assert rows_of(spark, path) == ROWS + 3
    assert spark.read.format("delta").load(str(path)).where("v:a::int >= 0").count() == ROWS


def test_optimize_with_delta(spark, copy):
    """Where `optimize` refuses a table that Delta clusters, the statements of its message put files together (W8)."""
    path = copy("clustered")
    message, _ = refused(spark, dv.VariantTable.forPath(spark, path).optimize)
    [statement] = re.findall(r"run (OPTIMIZE delta\.`[^`]*`)", message)
    before = newest(path)
    spark.sql(statement)
    assert newest(path) == before + 1
    [statement] = re.findall(r"ALTER TABLE delta\.`[^`]*` CLUSTER BY NONE", message)
    spark.sql(statement)
    dv.VariantTable.forPath(spark, path).optimize(cluster_by=["v:a"])
    assert rows_of(spark, path) == ROWS


def test_further_advice(spark, copy, tmp_path):
    """What other messages advise does what was asked for (W8)."""
    path = copy("iceberg")
    table = dv.VariantTable.forPath(spark, path)
    assert table.analyze(tags_only=True).files > 0
    assert "variantShredding" not in features(path)
    assert table.analyze(bloom=["v:a"], budget=1.0).indexed.filters > 0

    path = copy("append-only")
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.appendOnly' = 'false')")
    dv.write(spark.range(1), path, mode="overwrite")
    assert rows_of(spark, path) == 1

    path = copy("plain")
    message, _ = refused(spark, dv.VariantTable.forPath(spark, path).shred)
    [statement] = re.findall(r"ALTER TABLE .*\)", message)
    spark.sql(statement)
    assert dv.VariantTable.forPath(spark, path).shred().files_added > 0

    for kind in ("texts", "iceberg of texts"):
        table = dv.VariantTable.forPath(spark, copy(kind))
        assert "write to another table" in refused(spark, lambda table=table: table.convert({"v": "v"}))[0]
        assert dv.write(table.toDF(), tmp_path / f"{kind} converted", parse_json={"v": "v"}).rows == ROWS


def test_a_table_without_variants(spark, copy):
    """An analysis of a table without VARIANT columns has nothing to do, and does not change the table (W8)."""
    for kind in ("texts", "iceberg of texts"):
        path = copy(kind)
        before = listing(path)
        assert dv.VariantTable.forPath(spark, path).analyze().version is None
        assert dv.VariantTable.forPath(spark, path).analyze(tags_only=True).version is None
        assert listing(path) == before
