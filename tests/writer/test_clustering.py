"""The order of rows: which task a row goes to, and in which order. Also a job of which one task fails."""

from __future__ import annotations

import json
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as t

from delta_variant import jvm
from delta_variant.errors import InvalidPathError, InvalidSchemaError, MalformedVariantError
from delta_variant.session import disable, enable
from delta_variant.stats import decode_bounds
from delta_variant.table import VariantTable
from delta_variant.writer import clustering, write

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]

SCHEMA = t.StructType([
    t.StructField("id", t.LongType()),
    t.StructField("v", t.VariantType()),
    t.StructField("a:b", t.StructType([t.StructField("x.y", t.VariantType()), t.StructField("n", t.IntegerType())])),
    t.StructField("m", t.MapType(t.StringType(), t.StringType())),
])  # fmt: skip


@pytest.mark.parametrize(
    ("cluster_by", "error", "message"),
    [
        (["w:id"], InvalidSchemaError, "cluster_by: w:id: there is no column w; the columns are id, v, a:b, m"),
        (["id.x"], InvalidSchemaError, r"there is no column id\.x"),
        (["v"], InvalidSchemaError, "v is VARIANT, which has no order: name a path in it, as in v:id"),
        (["m"], InvalidSchemaError, "m is MAP<STRING,STRING>, which has no order"),
        (["`a:b`"], InvalidSchemaError, "STRUCT<X.Y:VARIANT,N:INT>, which has no order"),
        (["id:x"], InvalidSchemaError, "id is BIGINT, and only VARIANT columns have paths"),
        (["v:a[x]"], InvalidPathError, r"cluster_by: v:a\[x\]: "),
        (["a:b"], InvalidSchemaError, "there is no column a"),
        (["`a"], InvalidSchemaError, "is not the name of a column"),
    ],
)
def test_keys_refused(spark, cluster_by, error, message):
    """A key that is no column, has no order or no paths, or is an invalid path is an error that names it."""
    with pytest.raises(error, match=message):
        clustering.keys(SCHEMA, cluster_by)


ORDERED = [
    '{"x": false}', '{"x": -1.5}', '{"x": 2}', '{"x": 2.25}', '{"x": 10}', '{"x": 1e3}',  # by value; false is 0
    '{"x": "-1"}', '{"x": "10"}', '{"x": "9"}', '{"x": "abc"}', '{"x": "ü"}',  # by bytes
    '{"x": null}', '{"y": 1}', "[]", None,
]  # fmt: skip


def arranged(df, cluster_by, partition_by=()):
    """(columns of the row, task) in the order in which tasks get them."""
    spark = df.sparkSession
    keys = jvm.scala_seq(spark, clustering.keys(df.schema, cluster_by))
    rows = jvm.companion(spark, "Clustering").clustered(df._jdf, jvm.scala_seq(spark, partition_by), keys, 1 << 20)
    rows = DataFrame(rows, spark)
    assert rows.columns == df.columns
    return [tuple(row) for row in rows.select("*", F.spark_partition_id()).collect()]


def test_values_of_any_type_have_an_order(spark):
    """Numbers by value, then texts by their bytes, then nulls and rows without the path, whatever the order they came in."""
    rows = [(i, text) for i, text in enumerate(ORDERED)]
    df = spark.createDataFrame(rows[::2][::-1] + rows[1::2], "id long, j string").select("id", F.parse_json("j").alias("v"))
    for path in ("v:x", "V:$['x']"):
        found = [row[0] for row in arranged(df, [path])]
        assert found[0] == 1
        assert found.index(0) < found.index(2)
        assert [i for i in found if 0 < i < 11] == list(range(1, 11))
        assert set(found[11:]) == {11, 12, 13, 14}
    assert [row[0] for row in arranged(df, ["v:x", "id"])][11:] == [11, 12, 13, 14]
    inside = df.select(F.struct(F.col("v").alias("x.y"), "id").alias("a:b"))
    assert [row[0][1] for row in arranged(inside, ["`a:b`.`x.y`:x", "`A:B`.id"])][1:] == [0, *range(2, 15)]


def test_tasks_get_ranges(spark):
    """Every task has its own range of keys, and the rows of one partition value follow each other."""
    df = spark.range(2000).selectExpr("id", "parse_json(concat('{\"k\":', id * 7919 % 2000, '}')) v", "id % 3 p")
    with jvm.settings(spark, {"spark.sql.adaptive.coalescePartitions.enabled": "false"}):
        rows = arranged(df.selectExpr("v:k::int k", "v"), ["v:k"])
        by_partition = arranged(df.selectExpr("p", "v:k::int k", "v"), ["v:k"], ["p"])
    assert [row[0] for row in rows] == list(range(2000))
    assert len({row[-1] for row in rows}) == 2
    assert [row[:2] for row in by_partition] == sorted(row[:2] for row in by_partition)
    assert [len({row[0] for row in by_partition if row[-1] == task}) for task in (0, 1)] == [2, 2]


def test_clustered_files(spark, tmp_path):
    """With `cluster_by` no two files overlap on the path, which has bounds although 40 paths of numbers compete (B4)."""
    fields = ", ".join(f"'a{i}', id" for i in range(40))
    df = spark.range(0, 1000, 1, 4).selectExpr(
        "id", f"parse_json(to_json(named_struct({fields}, 'z', named_struct('t', concat('text ', id * 7919 % 1000))))) v"
    )
    assert write(df, tmp_path / "t", cluster_by=["v:z.t"], max_rows_per_file=200).files >= 5
    ranges = sorted(
        tuple(decode_bounds(stats[side]["v"])["$['z']['t']"] for side in ("minValues", "maxValues"))
        for stats in statistics(tmp_path / "t")
    )
    assert all(low[1] < high[0] for low, high in pairwise(ranges))
    assert spark.read.format("delta").load(str(tmp_path / "t")).selectExpr("sum(id)").first()[0] == 499_500
    with pytest.raises(InvalidSchemaError, match="there is no column w"):
        write(df, tmp_path / "t", cluster_by=["w:x"])


@pytest.mark.parametrize("source", ["option", "setting", "property"])
def test_keys_for_ordinary_writers(spark, tmp_path, source):
    """An option, a setting and a table property cluster what Delta's own commands write, also texts that tasks parse (W12)."""
    path, keys = tmp_path / "t", "v:z.t"
    text = "to_json(named_struct('z', named_struct('t', id * 7919 % 1000)))"
    df = spark.range(0, 1000, 1, 4).selectExpr("id", f"parse_json({text}) v")
    write(df.limit(0), path)
    options = {"maxRecordsPerFile": "200", **({"delta_variant.cluster_by": keys} if source == "option" else {})}
    if source == "property":
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta_variant.cluster_by' = '{keys}')")
    settings = {"spark.delta_variant.cluster_by": keys} if source == "setting" else {}
    enable(spark)
    try:
        with jvm.settings(spark, settings):
            df.write.format("delta").mode("append").options(**options).save(str(path))
    finally:
        disable(spark)
    sides = ("minValues", "maxValues")
    ranges = sorted(tuple(decode_bounds(stats[side]["v"])["$['z']['t']"] for side in sides) for stats in statistics(path))
    assert len(ranges) >= 5
    assert all(low[1] < high[0] for low, high in pairwise(ranges))
    assert spark.read.format("delta").load(str(path)).selectExpr("sum(id)").first()[0] == 499_500


def test_keys_are_for_new_rows(spark, tmp_path):
    """A property with keys does not change the order in which `optimize` writes, and keys that rows lack change nothing."""
    path = tmp_path / "t"
    df = spark.range(0, 40_000, 1, 4).selectExpr("id", "parse_json(to_json(named_struct('a', id * 7919 % 40000, 'b', id))) v")
    with jvm.settings(spark, {"spark.delta_variant.cluster_by": "w:x"}):
        assert write(df, path).rows == 40_000
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta_variant.cluster_by' = 'v:b')")
    assert VariantTable.forPath(spark, path).optimize(["v:a"], max_file_size=1 << 13).files_added > 2
    ranges = sorted(
        tuple(decode_bounds(stats[side]["v"])["$['a']"] for side in ("minValues", "maxValues")) for stats in statistics(path)
    )
    assert all(low[1] < high[0] for low, high in pairwise(ranges))


def test_shredding_for_ordinary_writers(spark, tmp_path):
    """Options say whether and how the files of Delta's own commands are shredded, and go before table properties (W12)."""
    path = tmp_path / "t"
    df = spark.range(0, 30_000, 1, 1).selectExpr("id", "parse_json(concat('{\"a\":', id, ',\"b\":1}')) v")
    write(df.limit(0), path)
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta_variant.shredding.v' = 'b int')")
    enable(spark)
    try:
        for option, fields in (
            ({}, ["b"]),
            ({"delta_variant.shredding.v": "a bigint"}, ["a"]),
            ({"delta_variant.shredding.v": "a bigint", "delta_variant.shred": "closed"}, ["a", "b"]),
            ({"delta_variant.shred": "false"}, []),
        ):
            before = set(path.glob("*.parquet"))
            df.write.format("delta").mode("append").options(**option).save(str(path))
            (file,) = set(path.glob("*.parquet")) - before
            column = pq.read_schema(file).field("v").type
            typed = column.field("typed_value").type if column.get_field_index("typed_value") >= 0 else []
            assert [field.name for field in typed] == fields
    finally:
        disable(spark)


def test_stored_schemas_and_bounds(spark, tmp_path):
    """A write uses the shredding schema stored with the table unless it is given another, and bounds the stored paths first."""
    path = tmp_path / "t"
    fields = ", ".join(f"'a{i}', id" for i in range(40))
    df = spark.range(0, 20, 1, 1).selectExpr(
        f"parse_json(to_json(named_struct({fields}, 'b', id % 2 = 0))) v", "named_struct('w', parse_json(cast(id as string))) s"
    )
    write(df.limit(0), path)
    spark.sql(
        f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta_variant.shredding.s.w' = 'decimal(9, 1)', "
        "'delta_variant.bounds.v' = '$.b, $.a39')"
    )
    assert write(df, path).shredded == ("s.w",)  # v, whose schema is inferred, is smaller plain, and has bounds
    (stats,) = statistics(path)
    assert set(decode_bounds(stats["minValues"]["s"]["w"]).values()) == {0}
    assert {"$['b']", "$['a39']"} <= decode_bounds(stats["maxValues"]["v"]).keys()
    assert write(df, path, shred={"s.w": "string"}).shredded == ("s.w",)
    assert "s" not in statistics(path)[0]["minValues"] or not statistics(path)[0]["minValues"]["s"]
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta_variant.shredding.v' = 'a strng')")
    with pytest.raises(InvalidSchemaError, match=r"table property delta_variant\.shredding\.v: column v: "):
        write(df, path)
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableVariantShredding' = 'false')")
    with pytest.raises(InvalidSchemaError):
        write(df, path)
    assert write(df, path, shred=False).shredded == ()


def statistics(path):
    """Of the files that the newest version added."""
    log = max(path.glob("_delta_log/*.json")).read_text().splitlines()
    return [json.loads(action["add"]["stats"]) for action in map(json.loads, log) if "add" in action]


def test_few_files_from_many_tasks(spark, tmp_path):
    """A partition value gets one file, from however many tasks its rows come, unless the table says one per task."""
    df = spark.range(0, 400, 1, 8).selectExpr("id", "id % 5 p", "parse_json(cast(id as string)) v")
    assert write(df, tmp_path / "t", partition_by=["p"]).files == 5
    spark.sql(f"ALTER TABLE delta.`{tmp_path / 't'}` SET TBLPROPERTIES ('delta.autoOptimize.optimizeWrite' = 'false')")
    assert write(df, tmp_path / "t").files == 40


def test_large_partitions_have_many_tasks(spark, tmp_path, monkeypatch):
    """All rows in one partition: several tasks write it, and no file is much larger than its target."""
    monkeypatch.setattr("delta_variant.writer.file_sizes.TARGET_BYTES", 1 << 20)
    text = "concat(md5(cast(id as string)), md5(cast(-id as string)))"
    df = spark.range(0, 60_000, 1, 8).selectExpr("id", "'all' p", f"parse_json(concat('{{\"t\":\"', {text}, '\"}}')) v")
    assert write(df, tmp_path / "t", partition_by=["p"]).files > 2
    files = list((tmp_path / "t").glob("p=all/*.parquet"))
    assert len({file.name.split("-")[1] for file in files}) > 1
    assert max(file.stat().st_size for file in files) < 1.5 * (1 << 20)


def test_the_first_error_ends_the_job(spark, tmp_path):
    """The first error of a task is raised as this package's error, and ends the job before all tasks have left files."""
    write(spark.sql("SELECT 1L id, parse_json('1') v"), tmp_path / "t")
    df = spark.range(0, 400, 1, 100).selectExpr("id", "parse_json(cast(id as string)) v")
    group = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])
    variants = pa.array([{"metadata": b"\x01\0\0", "value": b"\x0d"}], group)  # a string that ends before its last byte
    damaged = pa.table([pa.array([0]), variants], schema=pa.schema([("id", pa.int64()), ("v", group)]))
    pq.write_table(damaged, tmp_path / "damaged")
    first = spark.read.schema("id long, v variant").parquet(str(tmp_path / "damaged"))
    context = spark.sparkContext
    context.setJobGroup("ends", "")
    try:
        with pytest.raises(MalformedVariantError, match=r"writing to delta\.`.*`: column v: "):
            write(first.union(df), tmp_path / "t")
        context._jsc.sc().listenerBus().waitUntilEmpty()
        states = [context.statusTracker().getJobInfo(job).status for job in context.statusTracker().getJobIdsForGroup("ends")]
    finally:
        context._jsc.clearJobGroup()
    assert "FAILED" in states
    assert len(list((tmp_path / "t").glob("*.parquet"))) < 50
    assert spark.read.format("delta").load(str(tmp_path / "t")).count() == 1
