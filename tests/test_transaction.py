"""How a target is understood, and the session of a write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from delta_variant import jvm
from delta_variant.constants import PREVIEW_NAMES
from delta_variant.errors import TableError, UnsupportedFeatureError
from delta_variant.transaction import Table
from delta_variant.writer import write

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]


def test_creation_uses_the_stable_feature(spark, tmp_path):
    """A new table has variantShredding and variantType, although the session asks for previews; the session is unchanged."""
    with jvm.settings(spark, {PREVIEW_NAMES: "true"}):
        write(spark.sql("SELECT parse_json('1') v"), tmp_path / "t")
        assert spark.conf.get(PREVIEW_NAMES) == "true"
        features = Table.of(spark, tmp_path / "t").features()
    assert {"variantType", "variantShredding"} <= features.names
    assert not [name for name in features.names if name.endswith("-preview")]
    assert features.shredding


@pytest.mark.parametrize("on_files", ["true", "false"])
def test_relative_paths(spark, tmp_path, on_files):
    """A relative path is one to every write, whatever the session says of queries on paths."""
    path = os.path.relpath(tmp_path / "t", spark._jvm.System.getProperty("user.dir"))
    with jvm.settings(spark, {"spark.sql.runSQLOnFiles": on_files}):
        for mode in ("append", "append", "overwrite"):
            write(spark.range(3), path, mode)
    assert spark.read.format("delta").load(str(tmp_path / "t")).count() == 3
    assert spark.read.format("delta").option("versionAsOf", 1).load(str(tmp_path / "t")).count() == 6


def test_targets(spark, tmp_path):
    """Text with a slash, a Path and delta.`path` are paths, which become absolute; other text is a table's name."""
    place = f"{tmp_path}/some table"
    here = f"file:{spark._jvm.System.getProperty('user.dir')}"
    assert Table.of(spark, place).path == place
    assert Table.of(spark, Path("name")).path == f"{here}/name"
    assert Table.of(spark, "file:/some table").path == "file:/some table"
    assert Table.of(spark, f"delta.`{place}`").path == place
    assert Table.of(spark, "DELTA.`a``b`").path == f"{here}/a`b"
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
