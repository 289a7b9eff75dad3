"""`write(parse_json=…)`: JSON texts become VARIANT columns in the tasks, as they do by Spark's `parse_json`."""

from __future__ import annotations

import json
import shutil

import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as t

from delta_variant.errors import InvalidJsonError, InvalidSchemaError, UnsupportedFeatureError
from delta_variant.writer import foreach_batch, write
from tests.contents import canonicals, read
from tests.logs import adds

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]

BROKEN = '{"id": 1, "name": '
VALIDATE = "spark.sql.variant.validateUnicodeInJsonParsing"


def texts(spark, rows: int = 300):
    """Objects, and now and then another value, a JSON null, or NULL."""
    return spark.range(0, rows, 1, 2).selectExpr(
        "id", "CASE WHEN id % 50 = 7 THEN null WHEN id % 50 = 8 THEN 'null' WHEN id % 50 = 9 THEN '[1, 2.50]' "
        "ELSE concat('{\"id\": ', id, ', \"name\": \"n', id % 7, '\", \"at\": {\"x\": ', id / 8, '}}') END value",
    )  # fmt: skip


def table(spark, path, columns: str, more: str = "") -> str:
    spark.sql(
        f"CREATE TABLE delta.`{path}` ({columns}) USING delta {more.partition('TBLPROPERTIES')[0]} "
        f"TBLPROPERTIES ('delta.enableVariantShredding' = 'true'{more.partition('TBLPROPERTIES')[2]})"
    )
    return str(path)


def described(path, version: int) -> list[tuple[str, str]]:
    """The statistics and tags of the files that a version added."""
    return sorted((add["stats"], json.dumps(add["tags"], sort_keys=True)) for add in adds(path, version))


def test_as_by_way_of_a_variant(spark, tmp_path):
    """The rows, statistics and tags are those of a write of Spark's Variants, for a new table and for an existing one."""
    string, binary, twin = (tmp_path / name for name in ("string", "binary", "twin"))
    for version in range(2):
        write(texts(spark).select("id", F.parse_json("value").alias("v")), twin)
        for ours in (string, binary):
            write(texts(spark).withColumn("value", F.col("value").cast(ours.name)), ours, parse_json={"v": "value"})
            assert described(ours, version) == described(twin, version)
    by_string, by_binary, rows = canonicals(*(read(spark, path) for path in (string, binary, twin)))
    assert by_string == by_binary == rows
    for ours in (string, binary):
        assert read(spark, ours).schema == t.StructType().add("id", t.LongType()).add("v", t.VariantType())


def test_a_malformed_text_fails(spark, tmp_path):
    """The error shows the column, what is wrong and where, the text before it and the row; the table is as before."""
    write(texts(spark, 10), tmp_path / "t", parse_json={"v": "value"})
    rows = texts(spark).union(spark.createDataFrame([(1234, BROKEN)], "id bigint, value string"))
    with pytest.raises(InvalidJsonError) as error:
        write(rows, tmp_path / "t", parse_json={"v": "value"})
    for part in ("column v", "the text ends inside a value", "at byte 18 of 18", "name", "id : 1234", "on_error"):
        assert part in str(error.value)
    assert read(spark, tmp_path / "t").count() == 10


def test_malformed_texts_become_null(spark, tmp_path):
    """With on_error="null" the rows are those of Spark's try_parse_json; corrupt= keeps the texts, and those only."""
    rows = texts(spark).withColumn("value", F.expr(f"if(id % 10 = 3, '{BROKEN}', value)"))
    write(rows, tmp_path / "null", parse_json={"v": "value"}, on_error="null")
    write(rows, tmp_path / "kept", parse_json={"v": "value"}, corrupt="_corrupt")
    null, kept = (read(spark, tmp_path / name) for name in ("null", "kept"))
    texts_kept = kept.where("_corrupt IS NOT NULL").select("id", "_corrupt", F.lit("a text"))
    expected, as_null, as_kept, corrupt = canonicals(
        rows.select("id", F.try_parse_json("value").alias("v")), null, kept.select("id", "v"), texts_kept
    )
    assert as_null == as_kept == expected
    assert corrupt == {(str(id_), BROKEN, "a text"): 1 for id_ in range(3, 300, 10)}


def test_bytes_that_are_no_text_are_kept_as_text(spark, tmp_path):
    """A malformed BINARY that is not UTF-8 gets U+FFFD for what is not."""
    rows = spark.createDataFrame([(b'{"a": "\xff',)], "value binary")
    write(rows, tmp_path / "t", parse_json={"v": "value"}, corrupt="bad")
    assert read(spark, tmp_path / "t").select("v", "bad").collect()[0].bad == '{"a": "\ufffd'


def test_what_the_table_computes_and_checks(spark, tmp_path):
    """Generated columns, CHECK constraints, partition columns, mapped names and sort keys see the Variants."""
    by_text = table(
        spark, tmp_path / "text",
        "id bigint, v variant, n bigint GENERATED ALWAYS AS (id + 1), bad string, p string",
        "PARTITIONED BY (p) TBLPROPERTIES, 'delta.columnMapping.mode' = 'name', "
        "'delta.constraints.positive' = \"variant_get(v, '$.id', 'bigint') >= 0\"",
    )  # fmt: skip
    by_variant = shutil.copytree(by_text, tmp_path / "variant")
    rows = texts(spark).where("value LIKE '{%'").withColumn("p", F.expr("concat('p', id % 3)"))
    write(rows, by_text, parse_json={"V": "VALUE"}, corrupt="bad", cluster_by=["v:at.x"])
    write(rows.select("id", F.parse_json("value").alias("v"), "p"), by_variant, cluster_by=["v:at.x"])
    found, expected, computed = canonicals(
        read(spark, by_text), read(spark, by_variant), read(spark, by_text).where("n = id + 1")
    )
    assert found == expected == computed
    assert found.total() == 282
    broken = spark.createDataFrame([(1, '{"id": -1}', "p")], "id bigint, value string, p string")
    with pytest.raises(InvalidSchemaError, match="positive"):
        write(broken, by_text, parse_json={"v": "value"})
    malformed = spark.createDataFrame([(1, BROKEN, "p")], "id bigint, value string, p string")
    with pytest.raises(InvalidJsonError, match="MALFORMED_RECORD") as error:  # Spark parses what a constraint uses
        write(malformed, by_text, parse_json={"v": "value"})
    assert BROKEN in str(error.value)
    with pytest.raises(InvalidSchemaError, match="positive"):
        write(malformed, by_text, parse_json={"v": "value"}, on_error="null")


def test_columns_that_the_table_lacks(spark, tmp_path):
    """merge_schema adds the VARIANT column and the one for malformed texts; without it they are unknown columns."""
    write(spark.range(3), tmp_path / "t")
    rows = texts(spark, 20)
    with pytest.raises(InvalidSchemaError, match=r"(?s)schema mismatch .*root.* v: variant"):
        write(rows, tmp_path / "t", parse_json={"v": "value"})
    write(rows, tmp_path / "t", parse_json={"v": "value"}, corrupt="bad", merge_schema=True)
    assert read(spark, tmp_path / "t").columns == ["id", "v", "bad"]
    assert read(spark, tmp_path / "t").where("v IS NOT NULL").count() == 19


def test_several_columns_and_a_text_of_the_same_name(spark, tmp_path):
    """Each VARIANT column stands where its text stood; two can have one text, and a text its own name."""
    rows = spark.createDataFrame([("1", 7, "[2]")], "a string, n int, b string")
    write(rows, tmp_path / "t", parse_json={"a": "a", "c": "b", "d": "b"})
    found = read(spark, tmp_path / "t")
    assert found.columns == ["a", "n", "c", "d"]
    assert found.select(F.to_json("a"), "n", F.to_json("c"), F.to_json("d")).first() == ("1", 7, "[2]", "[2]")


def test_equal_keys(spark, tmp_path):
    """They are an error, and the last counts with spark.sql.variant.allowDuplicateKeys, as for Spark's parse_json."""
    rows = spark.createDataFrame([('{"a": 1, "a": 2}',)], "value string")
    with pytest.raises(InvalidJsonError, match="two fields of the same name"):
        write(rows, tmp_path / "t", parse_json={"v": "value"})
    spark.conf.set("spark.sql.variant.allowDuplicateKeys", "true")
    try:
        write(rows, tmp_path / "t", parse_json={"v": "value"})
    finally:
        spark.conf.unset("spark.sql.variant.allowDuplicateKeys")
    assert read(spark, tmp_path / "t").select(F.to_json("v")).first()[0] == '{"a":2}'


def objects(df) -> list:
    """The Variants as Python values: Spark has no schema for an object that is sorted by keys that became `?`."""
    return sorted((json.loads(row.v) for row in df.select(F.to_json("v").alias("v")).collect()), key=str)


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_halves_of_surrogate_pairs(spark, tmp_path, kind):
    """They are an error or NULL, or `?` with spark.sql.variant.validateUnicodeInJsonParsing=false, as for Spark's parse_json.

    Only objects with two keys that both become `?` are malformed here: no reader can tell their fields apart.
    """
    good = [r'{"t": "ab\ud83d", "\ude00": "\ude00\ud83d"}', r'["\ud83d\u0041"]', '{"a": 1}']
    alike = r'{"\ud83d": 1, "\ud83e": 2}'
    rows = spark.createDataFrame([(text,) for text in good], "value string").withColumn("value", F.col("value").cast(kind))
    spark.conf.set(VALIDATE, "false")
    try:
        for name, more in {"fail": {}, "null": {"on_error": "null"}, "corrupt": {"corrupt": "bad"}}.items():
            write(rows, tmp_path / name, parse_json={"v": "value"}, **more)
        broken = rows.union(spark.createDataFrame([(alike,)], "value string").select(F.col("value").cast(kind)))
        write(broken, tmp_path / "alike", parse_json={"v": "value"}, corrupt="bad")
        wanted = objects(rows.select(F.parse_json(F.col("value").cast("string")).alias("v")))
        assert all(objects(read(spark, tmp_path / name)) == wanted for name in ("fail", "null", "corrupt"))
    finally:
        spark.conf.unset(VALIDATE)
    assert [row.bad for row in read(spark, tmp_path / "alike").where("bad IS NOT NULL").select("bad").collect()] == [alike]
    with pytest.raises(InvalidJsonError, match="without the other half"):
        write(rows, tmp_path / "strict", parse_json={"v": "value"})
    write(rows, tmp_path / "strict", parse_json={"v": "value"}, on_error="null")
    assert read(spark, tmp_path / "strict").where("v IS NOT NULL").count() == 1


def test_null_is_not_null(spark, tmp_path):
    """A malformed text in a NOT NULL column is an error, also with on_error="null"."""
    path = table(spark, tmp_path / "t", "v variant NOT NULL")
    rows = spark.createDataFrame([(BROKEN,)], "value string")
    with pytest.raises(InvalidSchemaError, match="NOT NULL"):
        write(rows, path, parse_json={"v": "value"}, on_error="null")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"parse_json": {"v": "text"}}, InvalidSchemaError, "no column text"),
        ({"parse_json": {"v": "id"}}, InvalidSchemaError, "id is BIGINT"),
        ({"parse_json": {"id": "value"}}, InvalidSchemaError, "has a column id already"),
        ({"parse_json": {"v": "value"}, "corrupt": "ID"}, InvalidSchemaError, "has a column ID already"),
        ({"parse_json": {"v": "value", "w": "value"}, "corrupt": "c"}, UnsupportedFeatureError, "names several"),
        ({"parse_json": {"v": "value"}, "on_error": "skip"}, UnsupportedFeatureError, "fail, null"),
        ({"parse_json": "value"}, InvalidSchemaError, "must map"),
        ({"corrupt": "c"}, UnsupportedFeatureError, "use them with it"),
        ({"on_error": "null"}, UnsupportedFeatureError, "use them with it"),
    ],
)
def test_arguments(spark, tmp_path, options, error, message):
    """What does not fit is one error, before anything is written."""
    with pytest.raises(error, match=message):
        write(texts(spark, 3), tmp_path / "t", **options)
    assert not (tmp_path / "t").exists()


def test_a_table_whose_column_is_text(spark, tmp_path):
    """A column that is STRING in the table does not become VARIANT."""
    write(texts(spark, 3), tmp_path / "t")
    with pytest.raises(InvalidSchemaError, match="value is STRING in the table, and not VARIANT"):
        write(texts(spark, 3), tmp_path / "t", parse_json={"value": "value"})


def test_streams(spark, tmp_path):
    """foreach_batch takes the arguments: a stream of text files lands shredded, malformed lines in their column.

    The settings of the session for parse_json apply.
    """
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"id": n}) for n in range(49)] + [r'{"id": 49, "half": "\ud83d"}', BROKEN]
    (tmp_path / "in" / "1.txt").write_text("\n".join(lines) + "\n")
    stream = spark.readStream.schema("value string").text(str(tmp_path / "in"))
    batches = foreach_batch(tmp_path / "t", app_id="texts", parse_json={"v": "value"}, corrupt="_corrupt")
    query = stream.writeStream.foreachBatch(batches).option("checkpointLocation", str(tmp_path / "c"))
    spark.conf.set(VALIDATE, "false")
    try:
        query.trigger(availableNow=True).start().awaitTermination()
    finally:
        spark.conf.unset(VALIDATE)
    found = read(spark, tmp_path / "t")
    rows = found.selectExpr("v:id::int id", "_corrupt").collect()
    assert sorted(row.id for row in rows if row.id is not None) == list(range(50))
    assert [row._corrupt for row in rows if row._corrupt is not None] == [BROKEN]
