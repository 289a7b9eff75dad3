"""Commits through Delta's own transaction: conflicts, retries, history, and how a target is understood."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as t

from delta_variant import jvm
from delta_variant.errors import ConflictError, TableError, UnsupportedFeatureError
from delta_variant.features import PREVIEW_NAMES
from delta_variant.messages import WriteReport, Written, encoded
from delta_variant.transaction import Removal, Table, Transaction, own_session

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]

SCHEMA = t.StructType([t.StructField("id", t.LongType())])


def add(directory, number: int) -> str:
    """A data file of one row, and its Add action."""
    path = Path(directory) / f"{number}.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": pa.array([number])}), path)
    action = {
        "path": path.name,
        "partitionValues": {},
        "size": path.stat().st_size,
        "modificationTime": int(time.time() * 1000),
    }
    return json.dumps({"add": {**action, "dataChange": True, "stats": json.dumps({"numRecords": 1})}})


def start(target: Table, **options) -> Transaction:
    transaction = Transaction(target, **options)
    transaction.update_metadata(SCHEMA if transaction.version < 0 else None)
    return transaction


def run(transaction: Transaction, adds: list[str], rows: int = 1) -> Written:
    """The job of a write whose tasks report these Add actions."""
    reports = [WriteReport(add=add, rows=rows, size=1) for add in adds]

    def task(number, batches):
        list(batches)
        return (encoded(report).encode() for report in reports if number == 0)

    return transaction.run(*transaction.planned(transaction.spark.range(1)), task)


@pytest.fixture(scope="module")
def base(spark, tmp_path_factory) -> Path:
    """A table with one row."""
    path = tmp_path_factory.mktemp("tables") / "base"
    transaction = start(Table.of(spark, path))
    run(transaction, [add(path, 0)])
    transaction.commit()
    return path


@pytest.fixture
def table(spark, base, tmp_path) -> Table:
    return Table.of(spark, shutil.copytree(base, tmp_path / "t"))


def ids(table: Table) -> list[int]:
    return sorted(row.id for row in table.spark.read.format("delta").load(table.path).collect())


def commit(transaction: Transaction, number: int, removal: Removal | None = None) -> int:
    run(transaction, [add(transaction.storage.root, number)])
    if removal is not None:
        transaction.remove(removal)
    return transaction.commit()


def test_appends_do_not_conflict(table):
    """Three transactions on one snapshot that append are all committed, one after the other."""
    transactions = [Transaction(table) for _ in range(3)]
    assert [commit(transaction, i) for i, transaction in enumerate(transactions, 1)] == [1, 2, 3]
    assert ids(table) == [0, 1, 2, 3]


def test_overwrite_conflicts_with_an_append_in_between(table):
    """An overwrite whose snapshot lacks appended rows is refused with Delta's message, and the table is unchanged."""
    overwrite, append = Transaction(table, mode="Overwrite"), Transaction(table)
    commit(append, 1)
    with pytest.raises(ConflictError, match="DELTA_CONCURRENT_APPEND") as caught:
        commit(overwrite, 2, Removal())
    assert "ConcurrentAppendException" in type(caught.value.__cause__).__name__
    assert ids(table) == [0, 1]


def test_overwrite_removes_every_file_in_one_version(table):
    """After an overwrite only the new rows are there, and the version before still has the old ones."""
    commit(Transaction(table), 1)
    version = commit(Transaction(table, mode="Overwrite"), 2, Removal())
    assert ids(table) == [2]
    before = table.spark.read.format("delta").option("versionAsOf", version - 1).load(table.path)
    assert sorted(row.id for row in before.collect()) == [0, 1]


def test_history_tells_mode_rows_files_and_bytes(table):
    """DESCRIBE HISTORY shows the operation, its mode and its metrics, those of removed files too."""
    commit(Transaction(table, mode="Overwrite"), 1, Removal())
    last = table.spark.sql(f"DESCRIBE HISTORY delta.`{table.path}`").first()
    assert (last.operation, last.operationParameters["mode"], last.isBlindAppend) == ("WRITE", "Overwrite", False)
    metrics = {"numFiles": "1", "numOutputRows": "1", "numOutputBytes": "1", "numRemovedFiles": "1"}
    assert metrics.items() <= last.operationMetrics.items()


def test_many_actions(spark, tmp_path):
    """Twelve thousand Add actions are all committed."""
    table = Table.of(spark, tmp_path / "t")
    transaction = start(table)
    one = json.loads(add(transaction.storage.root, 0))
    written = run(transaction, [json.dumps(one).replace("0.parquet", f"{n}.parquet") for n in range(12_000)])
    assert (written.files, written.rows, written.bytes) == (12_000, 12_000, 12_000)
    assert transaction.commit() == 0
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{tmp_path / 't'}`").first()
    assert detail.numFiles == 12_000


def test_creation_uses_the_stable_feature(spark, tmp_path):
    """A new table has variantShredding and variantType, although the session asks for previews; the session is unchanged."""
    schema = t.StructType([t.StructField("v", t.VariantType())])
    with jvm.settings(spark, {PREVIEW_NAMES: "true"}):
        with own_session(spark) as own:
            transaction = Transaction(Table.of(own, tmp_path / "t"), properties={"delta.enableVariantShredding": "true"})
            transaction.update_metadata(schema)
            transaction.commit()
        assert spark.conf.get(PREVIEW_NAMES) == "true"
        features = Table.of(spark, tmp_path / "t").features()
    assert {"variantType", "variantShredding"} <= features.names
    assert not [name for name in features.names if name.endswith("-preview")]
    assert features.shredding


def test_delta_refuses_names_before_the_commit(spark, tmp_path):
    """A column name that Delta does not allow is an error when the table is created, not after files were written."""
    transaction = Transaction(Table.of(spark, tmp_path / "t"))
    with pytest.raises(TableError, match=r"(?s)creating delta\.`.*a b"):
        transaction.update_metadata(t.StructType([t.StructField("a b", t.LongType())]))


def test_targets(spark, tmp_path):
    """Text with a slash, a Path and delta.`path` are paths; other text is a table's name."""
    place = f"{tmp_path}/some table"
    assert Table.of(spark, place).path == place
    assert Table.of(spark, Path("name")).path == "name"
    assert Table.of(spark, f"delta.`{place}`").path == place
    assert Table.of(spark, "DELTA.`a``b`").path == "a`b"
    assert Table.of(spark, "default.nothing_here").path is None
    assert not Table.of(spark, "nothing_here").exists()


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        ("delta.`hdfs://host/t`", UnsupportedFeatureError, "hdfs: storage"),
        ("other.db.t", UnsupportedFeatureError, "catalog other"),
        ("not a name", TableError, "finding the table 'not a name'"),
    ],
)
def test_targets_refused(spark, target, error, message):
    """A target that cannot be written to is one error that names it."""
    with pytest.raises(error, match=message):
        Table.of(spark, target).exists()


def test_what_is_not_a_delta_table_is_refused(spark, tmp_path):
    """Directories with other files, files, Parquet tables and views are told apart from missing and empty ones."""
    (tmp_path / "empty").mkdir()
    assert not Table.of(spark, tmp_path / "empty").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x.txt").write_text("x")
    (tmp_path / "file").write_text("x")
    for name in ("full", "file"):
        with pytest.raises(TableError, match="not a Delta table"):
            Table.of(spark, tmp_path / name).exists()
    spark.range(1).write.mode("overwrite").saveAsTable("plain_parquet", format="parquet")
    spark.range(1).createOrReplaceTempView("some_view")
    spark.sql("CREATE OR REPLACE VIEW kept_view AS SELECT 1 AS id")
    for name in ("plain_parquet", "some_view", "kept_view"):
        with pytest.raises(TableError, match=r"is not a Delta table|is a temporary view"):
            Table.of(spark, name)


def test_settings_come_back_after_an_error(spark):
    """After `jvm.settings`, settings have their former values or are unset, even if the block fails."""
    spark.conf.set("spark.sql.shuffle.partitions", "3")

    def fail() -> None:
        with jvm.settings(spark, {"spark.sql.shuffle.partitions": "5", "delta_variant.none": "1"}):
            assert spark.conf.get("spark.sql.shuffle.partitions") == "5"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    assert spark.conf.get("delta_variant.none", None) is None
    spark.conf.set("spark.sql.shuffle.partitions", "2")
