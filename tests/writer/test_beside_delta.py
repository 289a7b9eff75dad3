"""What users of delta-spark's writer rely on: `write` does it too. Some tests compare it with a twin by delta-spark."""

from __future__ import annotations

import gc
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException
from pyspark.sql import Observation
from pyspark.sql import functions as F

from delta_variant import jvm
from delta_variant.errors import DeltaVariantWarning, InvalidSchemaError, TableError, UnsupportedFeatureError
from delta_variant.paths import quoted
from delta_variant.writer import write
from delta_variant.writer.calls import Call
from tests.contents import canonical, canonicals, read
from tests.logs import actions, adds, features, newest
from tests.support import share

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]


def fields(path) -> list[dict]:
    """The columns of the newest metadata."""
    return json.loads(actions(path, "metaData")[-1]["schemaString"])["fields"]


# ---- the caller's plan ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("large", [False, True])
def test_rows_are_computed_once_and_observed(spark, tmp_path, large):
    """A user's function is called once a row, large rows or small ones, and an Observation gets its metrics."""
    calls = spark.sparkContext.accumulator(0)

    def count(number):
        calls.add(1)
        return number

    observed = Observation()
    text = "repeat(cast(id as string), 1000000)" if large else "cast(id as string)"
    df = spark.range(0, 40, 1, 2).select(F.udf(count, "long")("id").alias("id"), F.expr(text).alias("s"))
    write(df.observe(observed, F.count(F.lit(1)).alias("n"), F.sum("id").alias("sum")), tmp_path / "t")
    assert observed.get == {"n": 40, "sum": 780}
    assert calls.value == 40
    found = read(spark, tmp_path / "t").select("id", F.length("s")).collect()
    assert sorted(map(tuple, found)) == [(n, len(str(n)) * (1_000_000 if large else 1)) for n in range(40)]


def test_the_plan_of_the_rows_keeps_the_settings_of_its_session(spark, tmp_path):
    """Settings that a write needs do not reach the shuffles and functions of the user's plan."""
    with jvm.settings(spark, {"spark.sql.shuffle.partitions": "7", "spark.sql.adaptive.coalescePartitions.enabled": "false"}):
        tasks = spark.range(100).groupBy(F.expr("id % 50 k")).count().select("k", F.spark_partition_id().alias("task"))
        write(tasks, tmp_path / "t")

    def lengths(batches):
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"id": [batch.num_rows] * batch.num_rows})

    with jvm.settings(spark, {"spark.sql.execution.arrow.maxRecordsPerBatch": "3"}):
        write(spark.range(0, 9, 1, 1).mapInArrow(lengths, "id long"), tmp_path / "batches")
    in_tasks, in_batches = canonicals(read(spark, tmp_path / "t").select("task"), read(spark, tmp_path / "batches"))
    assert max(in_tasks) == ("6",)
    assert set(in_batches) == {("3",)}


def test_a_call_is_released(spark, tmp_path):
    """What a write held, such as its session and its plan, is let go of at its end, also if it fails.

    The calls of earlier tests may be held by the tracebacks of errors that they keep.
    """
    earlier = calls()
    write(spark.range(3), tmp_path / "t")
    with pytest.raises(InvalidSchemaError):
        write(spark.sql("SELECT parse_json('1') id"), tmp_path / "t")
    assert all(any(call is other for other in earlier) for call in calls())


def calls() -> list[Call]:
    gc.collect()
    return [held for held in gc.get_objects() if isinstance(held, Call)]


def test_cached_rows_are_written_as_they_are(spark, tmp_path):
    """A cached DataFrame of random numbers is not computed again."""
    df = spark.range(0, 100, 1, 2).withColumn("r", F.rand()).cache()
    expected = canonical(df)
    write(df, tmp_path / "t", cluster_by=["r"])
    assert canonical(read(spark, tmp_path / "t")) == expected
    df.unpersist()


def test_wide_tables(spark, tmp_path):
    """A table of 1,500 string columns is written and read back."""
    df = spark.range(3).select(*(F.concat(F.lit(f"x{i}-"), F.col("id")).alias(f"c{i}") for i in range(1500)))
    write(df, tmp_path / "t")
    assert read(spark, tmp_path / "t").select("c0", "c1499").orderBy("c0").first() == ("x0-0", "x1499-0")


def test_the_users_sort_is_kept_in_partitions(spark, tmp_path):
    """Rows that the user has sorted are sorted in every file, by the partition first or not, as delta-spark keeps them."""
    df = spark.range(0, 1200, 1, 4).select(F.hash("id").alias("ts"), (F.col("id") % 3).cast("string").alias("p"))
    cases = {
        "by the partition": df.repartition(2, "p").sortWithinPartitions("p", F.desc_nulls_first("ts")),
        "by another column": df.repartition(2, "p").sortWithinPartitions(F.desc("ts")),
        "not gathered": df.sortWithinPartitions(F.desc("ts")),
    }
    for name, rows in cases.items():
        with jvm.settings(spark, {"spark.databricks.delta.optimizeWrite.enabled": str(name != "not gathered").lower()}):
            write(rows, tmp_path / name, partition_by=["p"])
        files = adds(tmp_path / name, 0)
        assert len(files) == (12 if name == "not gathered" else 3)
        for add in files:
            found = pq.ParquetFile(tmp_path / name / add["path"]).read(["ts"])["ts"].to_pylist()
            assert found == sorted(found, reverse=True)
    expected, *each = canonicals(df, *(read(spark, tmp_path / name) for name in cases))
    assert each == [expected] * 3


# ---- names ------------------------------------------------------------------------------------------------------------------


NAMES = ["a.b", "tick`s", "日本", "typed_value", "c0", "p0", "k0", "C1", "x'y", 'q"q', "per%20cent", "a:b", "$"]


def test_names_of_any_kind(spark, tmp_path):
    """Columns, fields and partition columns may have names that look like internal names or like paths."""
    columns = [F.col("id").alias(name) for name in NAMES]
    inside = F.struct(*(F.col("id").cast("string").alias(name) for name in NAMES)).alias("s")
    df = spark.range(6).select(*columns, inside, F.expr("parse_json(concat('{\"k\":', id, '}'))").alias("v"))
    write(df, tmp_path / "t", cluster_by=["v:k", "`a.b`"])
    by = ("a.b", "日本", "tick`s", "p0", "per%20cent", "C1")
    part = df.select(*(F.col(quoted(name)).cast("string").alias(name) for name in by), "v")
    path = tmp_path / "partitioned"
    write(part, path, partition_by=[name.upper() for name in by])
    second, third = (" AND ".join(f"{quoted(name)} = '{i}'" for name in by) for i in (1, 2))
    write(part.where(second), path, "overwrite", replace_where=second)
    write(part.where(third), path, "overwrite", partition_overwrite="dynamic")
    for found, expected in ((read(spark, tmp_path / "t"), df), (read(spark, path), part)):
        rows, wanted = canonicals(found, expected)
        assert rows == wanted


# ---- values -----------------------------------------------------------------------------------------------------------------


def test_empty_text_in_a_partition_is_null_before_it_is_checked(spark, tmp_path):
    """An empty string in a partition column is null for CHECK, NOT NULL and replace_where, and in the table."""
    spark.sql(
        f"CREATE TABLE delta.`{tmp_path}/t` (id int, p string) USING delta PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.constraints.c' = 'p IS NOT NULL')"
    )
    df = spark.createDataFrame([(1, "a"), (2, "")], "id int, p string")
    with pytest.raises(InvalidSchemaError, match=r"CHECK constraint c .* violated by row with values: - p : null"):
        write(df, tmp_path / "t")
    write(df, tmp_path / "free", partition_by=["p"])
    with pytest.raises(InvalidSchemaError, match="does not conform to"):
        write(df.where("id = 2"), tmp_path / "free", "overwrite", replace_where="p = ''")
    write(df.where("id = 2"), tmp_path / "free", "overwrite", replace_where="p IS NULL")
    assert {tuple(row) for row in read(spark, tmp_path / "free").collect()} == {(1, "a"), (2, None)}


def test_metadata_of_columns_comes_along(spark, tmp_path):
    """A new table has the comments, lengths, defaults and other metadata that the columns of the DataFrame have."""
    spark.sql(
        f"CREATE TABLE delta.`{tmp_path}/source` (a varchar(5) COMMENT 'text', b char(3), c int DEFAULT 5) USING delta "
        "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    spark.sql(f"INSERT INTO delta.`{tmp_path}/source` VALUES ('abc', 'xyz', 1)")
    df = read(spark, tmp_path / "source").withColumn("d", F.lit(1).alias("d", metadata={"unit": "m"}))
    df.write.format("delta").save(f"{tmp_path}/twin")
    write(df, tmp_path / "t")
    assert fields(tmp_path / "t") == fields(tmp_path / "twin")
    with pytest.raises(InvalidSchemaError, match=r"(?i)length"):
        write(df.withColumn("a", F.lit("too long")), tmp_path / "t")


# ---- settings and options ---------------------------------------------------------------------------------------------------


def test_settings_of_the_session(spark, tmp_path):
    """Rows a file, codec, metadata of the commit and a transaction identifier come from the session where no argument says."""
    session = {
        "spark.sql.files.maxRecordsPerFile": "100",
        "spark.sql.parquet.compression.codec": "gzip",
        "spark.databricks.delta.commitInfo.userMetadata": "from the session",
        "spark.databricks.delta.write.txnAppId": "app",
        "spark.databricks.delta.write.txnVersion": "7",
    }
    df = spark.range(0, 250, 1, 1)
    with jvm.settings(spark, session):
        assert write(df, tmp_path / "t").files == 3
        assert write(df, tmp_path / "t").files == 0
        assert write(df, tmp_path / "u", compression="snappy", max_rows_per_file=200, user_metadata="given").files == 2
    codecs = {pq.ParquetFile(path).metadata.row_group(0).column(0).compression for path in (tmp_path / "t").glob("*.parquet")}
    assert codecs == {"GZIP"}
    assert [actions(tmp_path / name, "commitInfo")[0]["userMetadata"] for name in ("t", "u")] == ["from the session", "given"]
    brotli = {"spark.sql.parquet.compression.codec": "brotli"}
    with jvm.settings(spark, brotli), pytest.raises(UnsupportedFeatureError, match=r"compression\.codec=brotli is not one of"):
        write(df, tmp_path / "t")


def test_schemas_merge_by_the_session(spark, tmp_path):
    """autoMerge lets new columns in, unless merge_schema says no."""
    write(spark.range(0, 1, 1, 1), tmp_path / "t")
    more = spark.range(0, 1, 1, 1).withColumn("more", F.lit(1))
    with jvm.settings(spark, {"spark.databricks.delta.schema.autoMerge.enabled": "true"}):
        with pytest.raises(InvalidSchemaError, match=r"(?s)schema mismatch.*more: integer"):
            write(more, tmp_path / "t", merge_schema=False)
        write(more, tmp_path / "t")
    assert read(spark, tmp_path / "t").columns == ["id", "more"]


def test_overwrite_schema(spark, tmp_path):
    """The schema and the partitioning of a table are replaced together with its rows, as delta-spark does it."""
    new = spark.range(0, 5, 1, 1).selectExpr("cast(id as string) id", "parse_json('{\"a\": 1}') v", "id % 2 q")
    ours, twin = str(tmp_path / "ours"), str(tmp_path / "twin")
    spark.range(0, 3, 1, 1).selectExpr("id", "id p").write.format("delta").partitionBy("p").save(ours)
    shutil.copytree(ours, twin)
    new.write.format("delta").mode("overwrite").option("overwriteSchema", "true").partitionBy("q").save(twin)
    with pytest.raises(InvalidSchemaError, match="column id is STRING in the DataFrame and BIGINT in"):
        write(new, ours, "overwrite")
    write(new, ours, "overwrite", overwrite_schema=True, partition_by=["q"])
    found, expected = canonicals(read(spark, ours), new)
    assert found == expected
    assert fields(ours) == fields(twin)
    assert actions(ours, "commitInfo")[1]["operationParameters"] == actions(twin, "commitInfo")[1]["operationParameters"]
    for arguments, message in (
        ({"mode": "append"}, "use it with mode='overwrite'"),
        ({"mode": "overwrite", "replace_where": "q = 1"}, "replace_where and overwrite_schema exclude each other"),
    ):
        with pytest.raises(UnsupportedFeatureError, match=message):
            write(new, ours, overwrite_schema=True, **arguments)


def test_overwrites_keep_the_clustering_as_delta_does(spark, tmp_path):
    """What an overwrite leaves of liquid clustering is what delta-spark's overwrite leaves."""
    ours, twin = str(tmp_path / "ours"), str(tmp_path / "twin")
    spark.sql(f"CREATE TABLE delta.`{ours}` (id long) USING delta CLUSTER BY (id)")
    shutil.copytree(ours, twin)
    spark.range(0, 5, 1, 1).write.format("delta").mode("overwrite").save(twin)
    write(spark.range(0, 5, 1, 1), ours, "overwrite")
    domains, theirs = ({d["domain"]: d for d in actions(path, "domainMetadata")} for path in (ours, twin))
    assert domains == theirs != {}
    assert features(ours) == features(twin)


# ---- after and around a commit ----------------------------------------------------------------------------------------------


def test_files_are_compacted_after_a_commit(spark, tmp_path):
    """Auto compaction follows a commit as it follows delta-spark's, and the compacted file has Variant bounds."""
    with jvm.settings(spark, {"spark.databricks.delta.autoCompact.minNumFiles": "2"}):
        spark.sql(
            f"CREATE TABLE delta.`{tmp_path}/t` (id long, v variant) USING delta TBLPROPERTIES "
            "('delta.autoOptimize.autoCompact' = 'true', 'delta.enableVariantShredding' = 'true')"
        )
        for i in range(2):
            write(spark.range(i, i + 1, 1, 1).selectExpr("id", "to_variant_object(named_struct('a', id)) v"), tmp_path / "t")
    assert [commit["operation"] for commit in actions(tmp_path / "t", "commitInfo")] == [
        "CREATE TABLE",
        "WRITE",
        "WRITE",
        "OPTIMIZE",
    ]
    (compacted,) = adds(tmp_path / "t", 3)
    assert json.loads(compacted["stats"])["minValues"].keys() == {"id", "v"}


def test_a_hook_that_fails_does_not_look_like_a_commit_that_failed(spark, tmp_path):
    """What fails after the commit is a warning, and the Commit is returned."""
    write(spark.range(3), tmp_path / "t")
    spark.sql(
        f"ALTER TABLE delta.`{tmp_path}/t` SET TBLPROPERTIES ('delta.compatibility.symlinkFormatManifest.enabled' = 'true')"
    )
    Path(tmp_path, "t", "_symlink_format_manifest").write_text("a file where the hook makes a directory")
    with pytest.warns(DeltaVariantWarning, match=r"is committed as version 2; a step of Delta's after that failed: .*"):
        commit = write(spark.range(3), tmp_path / "t")
    assert (commit.version, commit.rows) == (2, 3)
    assert read(spark, tmp_path / "t").count() == 6


def test_a_creation_by_name_happens_or_not(spark):
    """A write by name that fails leaves no table, and one that succeeds leaves it with its rows in version 0."""
    spark.sql("DROP TABLE IF EXISTS made_by_name")
    fails = F.udf(lambda number: 1 // number, "long")
    for mode in share(("ignore", "append", "overwrite", "error"), 2):
        with pytest.raises(PythonException, match="ZeroDivisionError"):
            write(spark.range(5).select(fails("id").alias("id")), "made_by_name", mode)
        assert not spark.catalog.tableExists("made_by_name")
    assert write(spark.range(5), "made_by_name", "ignore").version == 0
    assert spark.table("made_by_name").count() == 5
    detail = spark.sql("DESCRIBE EXTENDED made_by_name").where("col_name IN ('Type', 'Provider')").collect()
    assert {row.data_type for row in detail} == {"MANAGED", "delta"}
    place = Path(spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:"), "made_by_name")
    assert [commit["operation"] for commit in actions(place, "commitInfo")] == ["CREATE TABLE AS SELECT"]
    with pytest.raises(TableError, match="already exists"):
        write(spark.range(5), "made_by_name", "error")
    assert write(spark.range(5), "made_by_name", "overwrite").version == 1
    spark.sql("DROP TABLE made_by_name")
    assert not place.exists()


def test_nothing_to_commit(spark, tmp_path):
    """A write without rows that changes nothing commits no version, as delta-spark's does not."""
    write(spark.range(3), tmp_path / "t")
    assert write(spark.range(0), tmp_path / "t").version == 0
    assert newest(tmp_path / "t") == 0
