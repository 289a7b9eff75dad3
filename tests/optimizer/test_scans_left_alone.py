"""`explain` of scans that the rules leave alone: each is in the report, with the reason and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delta.tables import DeltaTable

from delta_variant import explanation
from delta_variant.errors import TableError
from delta_variant.explanation import Report, explain
from delta_variant.session import disable, enable
from delta_variant.table import VariantTable
from delta_variant.writer import write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]

NAME = "spark_catalog.default.explained"
FIVE = "v:n::bigint = 5"


@pytest.fixture(scope="module")
def path(spark: SparkSession) -> Iterator[str]:
    """The path of a table of four files, which each hold their own range of v:n, in the catalog as `explained`."""
    spark.sql(
        "CREATE TABLE explained (id BIGINT, v VARIANT) USING delta "
        "TBLPROPERTIES ('delta.enableVariantShredding' = 'true', 'delta.enableChangeDataFeed' = 'true')"
    )
    write(numbers(spark), "explained", shred={"v": "n bigint"}, max_rows_per_file=5)
    yield spark.sql("DESCRIBE DETAIL explained").head().location
    spark.sql("DROP TABLE explained")


@pytest.fixture
def session(spark: SparkSession, path: str) -> Iterator[SparkSession]:
    """A session of its own, with the rules."""
    assert path
    session = spark.newSession()
    enable(session)
    yield session
    disable(session)
    spark.catalog.clearCache()  # which all sessions share


def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(0, 20, 1, 1).selectExpr("id", "parse_json(to_json(struct(id AS n))) AS v")


def unknown(df: DataFrame) -> list[tuple[str, str]]:
    """The tables and the reasons of a query's scans, none of which has counts, questions or typed columns."""
    scans = explain(df).scans
    for scan in scans:
        assert (scan.files_total, scan.files_after_delta, scan.files_after_bounds, scan.files_typed) == (None, None, None, 0)
        assert (scan.predicates, scan.findings) == ((), ())
        assert scan.reasons[0] in str(Report([scan]))
    return [(scan.table, *scan.reasons) for scan in scans]


def test_delta_s_dsv2_reader(session, path):
    """Scans by Delta's DSv2 reader are listed with table, version and the setting that ends it, however the table is named."""
    asked = f"SELECT id FROM explained WHERE {FIVE}"
    [planned] = explain(session.sql(asked)).scans
    session.conf.set(explanation.READER, "STRICT")
    queries = {
        asked: (NAME, 1),
        f"SELECT id FROM explained VERSION AS OF 0 WHERE {FIVE}": (NAME, 0),
        f"SELECT id FROM delta.`{path}` WHERE {FIVE}": (f"delta.`{path}`", 1),
        "SELECT max(v:n::bigint) FROM explained LIMIT 1": (NAME, 1),
        f"SELECT 1 WHERE EXISTS (SELECT 1 FROM explained WHERE {FIVE})": (NAME, 1),
    }
    frames = {session.sql(query): scan for query, scan in queries.items()}
    frames |= {
        session.read.table("explained").where(FIVE): (NAME, 1),
        DeltaTable.forName(session, "explained").toDF(): (NAME, 1),
    }
    for df, expected in frames.items():
        assert "BatchScan" in df._jdf.queryExecution().executedPlan().toString()
        [(_, reason)] = unknown(df)
        [scan] = explain(df).scans
        assert (scan.table, scan.version) == expected
        assert f"DSv2 reader ({explanation.READER} = STRICT)" in reason
        assert "set it to AUTO (Delta's default) or NONE, and make the DataFrame again" in reason
    assert [row.id for row in session.sql(asked).collect()] == [5]
    assert len(explain(session.sql("SELECT a.id FROM explained a JOIN explained b ON a.id = b.id")).scans) == 2
    with pytest.raises(TableError, match=r"none of the queries .* explained .*v2\.enableMode = STRICT"):
        VariantTable.forName(session, "explained").advise([asked])
    [of_path] = explain(session.read.format("delta").load(path).where(FIVE)).scans
    assert of_path.files_after_bounds == 1  # such a DataFrame has the classical reader in every mode
    session.conf.set(explanation.READER, "AUTO")
    assert explain(session.sql(asked)).scans == [planned]
    assert planned.files_after_bounds == 1


def test_rows_in_sparks_cache(session, path, tmp_path):
    """Rows in Spark's cache are listed with the table that they were read from, or as what was cached, if they are VARIANTs."""
    reason = "the rows come from Spark's cache, not from files, so no file is pruned: UNCACHE TABLE or unpersist() ends that"
    session.sql("CACHE LAZY TABLE explained")
    assert unknown(session.sql(f"SELECT id FROM explained WHERE {FIVE}")) == [(NAME, reason)]
    session.sql("UNCACHE TABLE explained")
    half = session.read.format("delta").load(path).where("id > 3").select("id").persist()
    assert unknown(half.where("id = 5")) == [(path, reason)]
    half.unpersist()
    made = numbers(session).select("v").persist()
    assert unknown(made.where(FIVE)) == [("InMemoryRelation", reason)]
    numbers(session).write.parquet(str(tmp_path / "files"))
    files = session.read.parquet(str(tmp_path / "files")).persist()
    assert unknown(files.where(FIVE)) == [(f"file:{tmp_path / 'files'}", reason)]
    assert explain(numbers(session).select("id").persist()).scans == []


def test_streams(session, path):
    """Sources of streams are listed, by name and by path, in every mode of Delta's reader, and so are tables beside them."""
    for mode in ("AUTO", "STRICT"):
        session.conf.set(explanation.READER, mode)
        by_name = session.readStream.table("explained").where(FIVE)
        by_path = session.readStream.format("delta").load(path).where(FIVE)
        for df, table in [(by_name, NAME), (by_path, path)]:
            [(found, reason)] = unknown(df)
            assert found == table
            assert "the scan is that of a stream" in reason
        [_, (table, reason)] = unknown(by_path.join(session.read.table("explained"), "id"))
        assert table == NAME
        assert "planned again for each batch" in reason
    assert explain(session.readStream.format("rate").load()).scans == []


def test_other_scans(session, path, tmp_path):
    """Change data feeds, files outside of Delta tables and checkpoints are listed with what they are; constants are not."""
    feed = session.sql(f"SELECT id FROM table_changes('explained', 1) WHERE {FIVE}")
    of_path = session.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1).load(path)
    assert [(table, "change data feed" in reason) for df in (feed, of_path) for table, reason in unknown(df)] == [
        (NAME, True),
        (path, True),
    ]
    session.conf.set("spark.databricks.delta.changelogV2.enabled", "true")
    session.sql(
        f"CREATE TABLE delta.`{tmp_path / 'c'}` (v VARIANT) USING delta TBLPROPERTIES ('delta.enableRowTracking' = 'true')"
    )
    [(table, reason)] = unknown(session.sql(f"SELECT 1 FROM delta.`{tmp_path / 'c'}` CHANGES FROM VERSION 0"))
    assert str(tmp_path / "c") in table
    assert "change data feed" in reason
    numbers(session).write.parquet(str(tmp_path / "files"))
    for sources, reason in [("parquet", "not in a Delta table"), ("", "ParquetTable, which delta-variant does not know")]:
        session.conf.set("spark.sql.sources.useV1SourceList", sources)
        [(table, told)] = unknown(session.read.parquet(str(tmp_path / "files")).where(FIVE))
        assert str(tmp_path / "files") in table
        assert reason in told
    [(_, reason)] = unknown(session.read.table("explained").localCheckpoint(eager=False).where(FIVE))
    assert "an RDD (a checkpoint, a batch in foreachBatch" in reason
    for query in ("SELECT parse_json('1') AS v", "SELECT count(*) FROM explained", "SELECT id FROM explained WHERE false"):
        found = explain(session.sql(query))
        assert found.scans == []
        assert "no scan of a Delta table" in str(found)
