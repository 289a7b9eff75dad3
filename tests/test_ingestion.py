"""`ingest`: files of JSON documents land in a table once, whatever fails in between; what is malformed lands beside them."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import functions as F

import delta_variant as dv
from delta_variant import loading
from delta_variant.errors import (
    InvalidJsonError,
    InvalidPathError,
    InvalidSchemaError,
    TableError,
    UnsupportedFeatureError,
)
from delta_variant.loading import Loader
from tests.contents import canonicals, read
from tests.logs import adds
from tests.sources import bad_lines, ids, lines

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]


def test_as_by_write(spark, tmp_path):
    """The rows, statistics and tags are those of a write of Spark's Variants of the same lines."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text(lines(0, 500))
    done = dv.ingest(spark, tmp_path / "in", tmp_path / "ours")
    assert (done.version, done.commits, done.files, done.rows, done.skipped, done.bad) == (0, 1, 1, 500, 0, 0)
    assert done.bytes_read == (tmp_path / "in" / "a.jsonl").stat().st_size
    texts = spark.read.text(str(tmp_path / "in"))
    dv.write(texts.select(F.parse_json("value").alias("v")), tmp_path / "twin")
    found, expected = canonicals(read(spark, tmp_path / "ours"), read(spark, tmp_path / "twin"))
    assert found == expected
    (ours,), (twin,) = adds(tmp_path / "ours", 0), adds(tmp_path / "twin", 0)
    assert (ours["stats"], ours["tags"], ours["size"]) == (twin["stats"], twin["tags"], twin["size"])


def test_pieces_of_a_large_file(spark, tmp_path, monkeypatch):
    """A file of lines is read in pieces by several tasks, each line once; several commits take several files."""
    monkeypatch.setattr(loading, "PIECE_BYTES", 1_000)
    monkeypatch.setattr(loading, "TASK_BYTES", 5_000)
    for number in range(3):
        (tmp_path / f"{number}.json").write_text(lines(number * 300, number * 300 + 300))
    seen: list[dv.Progress] = []
    done = dv.ingest(spark, f"{tmp_path}/[0-9].json", tmp_path / "t", commit_bytes=20_000, progress=seen.append)
    assert ids(spark, tmp_path / "t") == list(range(900))
    assert done.commits == len(seen) == 3
    assert [p.files for p in seen] == [1, 2, 3]
    assert (seen[-1].rows, seen[-1].bytes, seen[-1].files_total) == (900, seen[-1].bytes_total, 3)
    assert max(len(adds(tmp_path / "t", number)) for number in range(3)) > 2


def test_files_that_are_there_already(spark, tmp_path):
    """Repeated, an ingestion takes only new files, and of those that two ingestions take at once, each once (W3)."""
    (tmp_path / "a.json").write_text(lines(0, 50))
    dv.ingest(spark, tmp_path / "*.json", tmp_path / "t")
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(lines(50, 100).encode()))
    done = dv.ingest(spark, [tmp_path / "a.json", tmp_path / "b.json.gz"], tmp_path / "t")
    assert (done.files, done.skipped, done.rows) == (1, 1, 50)
    assert dv.ingest(spark, tmp_path / "*.json*", tmp_path / "t").version is None
    for number in range(2, 5):
        (tmp_path / f"{number}.json").write_text(lines(number * 50, number * 50 + 50))
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda _: dv.ingest(spark, tmp_path / "*.json*", tmp_path / "t"), range(3)))
    assert ids(spark, tmp_path / "t") == list(range(250))
    assert sum(result.rows for result in results) == 150


def test_malformed_documents(spark, tmp_path):
    """The first is an error with file and line, and nothing is committed; with bad_records they are there, each once."""
    (tmp_path / "a.json").write_text(lines(0, 40, bad=(3, 17)))
    (tmp_path / "b.json").write_text(lines(40, 80))
    with pytest.raises(InvalidJsonError, match=r"a\.json, line 4: not a JSON document: the text ends inside a value"):
        dv.ingest(spark, tmp_path / "*.json", tmp_path / "t")
    assert not list(tmp_path.glob("t/_delta_log/*.json"))
    dv.ingest(spark, tmp_path / "*.json", tmp_path / "t", bad_records=tmp_path / "bad", max_document_bytes=100)
    (tmp_path / "c.json").write_text(lines(80, 81) + '{"id": 81, "long": "' + "x" * 100 + '"}\n')
    done = dv.ingest(spark, tmp_path / "*.json", tmp_path / "t", bad_records=tmp_path / "bad", max_document_bytes=100)
    assert (done.rows, done.bad) == (1, 1)
    assert ids(spark, tmp_path / "t") == [n for n in range(81) if n not in (3, 17)]
    *earlier, last = sorted(read(spark, tmp_path / "bad").collect(), key=lambda row: row.file)
    wanted = {("a.json", n + 1, lines(n, n + 1, bad=(n,)).rstrip("\n")) for n in (3, 17)}
    assert len(earlier) == 2
    assert {(Path(row.file).name, row.line, row.text) for row in earlier} == wanted
    assert (Path(last.file).name, last.line) == ("c.json", 2)
    assert (last.reason, last.byte) == ("longer than max_document_bytes=100", len(lines(80, 81)))


def test_malformed_documents_of_an_ingestion_that_ended_early(spark, tmp_path):
    """If an ingestion ended between its two commits, the next one writes the malformed documents of its files (W3)."""
    (tmp_path / "a.json").write_text(lines(0, 40, bad=(3,)))
    dv.ingest(spark, tmp_path / "a.json", tmp_path / "t", bad_records=tmp_path / "lost")
    dv.ingest(spark, tmp_path / "a.json", tmp_path / "t", bad_records=tmp_path / "bad")
    assert bad_lines(spark, tmp_path / "bad") == bad_lines(spark, tmp_path / "lost") != Counter()


def test_columns_of_files(spark, tmp_path):
    """Columns with the path, the time, constants and folders have the types of write, and tables are partitioned by them."""
    for day in ("2026-11-01", "2026-11-02", "__HIVE_DEFAULT_PARTITION__"):
        folder = tmp_path / "in" / f"day={day}" / "k=a%2Fb c"
        folder.mkdir(parents=True)
        (folder / "x y.json").write_text(lines(0, 10))
        os.utime(folder / "x y.json", (1_700_000_000, 1_700_000_000))
    (tmp_path / "in" / "_SUCCESS").write_text("")
    dv.ingest(
        spark, tmp_path / "in", tmp_path / "t", folders={"day": "date", "k": "string"}, path_column="file",
        modified_column="at", constants={"source": "test", "n": 7}, partition_by=["day"],
    )  # fmt: skip
    found = read(spark, tmp_path / "t")
    types = {"file": "string", "at": "timestamp", "source": "string", "n": "int", "day": "date", "k": "string", "v": "variant"}
    assert {field.name: field.dataType.simpleString() for field in found.schema} == types
    rows = found.selectExpr("cast(day AS string) day", "k", "source", "n", "unix_seconds(at) at", "file").collect()
    assert Counter(tuple(row)[:5] for row in rows) == {
        (day, "a/b c", "test", 7, 1_700_000_000): 10 for day in ("2026-11-01", "2026-11-02", None)
    }
    uris = spark.read.text(str(tmp_path / "in"), recursiveFileLookup=True).select("_metadata.file_path")
    assert {row.file for row in rows} == {row.file_path for row in uris.collect()}
    assert {add["partitionValues"]["day"] for add in adds(tmp_path / "t", 0)} == {"2026-11-01", "2026-11-02", None}
    with pytest.raises(InvalidSchemaError, match=r"in no folder hour="):
        dv.ingest(spark, tmp_path / "in", tmp_path / "u", folders={"hour": "int"})


def test_forms(spark, tmp_path):
    """Arrays, arrays inside documents and whole files have their rows; a directory without JSON suffixes is read as a whole."""
    (tmp_path / "trail").mkdir()
    (tmp_path / "trail" / "1.json.gz").write_bytes(gzip.compress(json.dumps({"Records": [{"id": 1}, {"id": 2}]}).encode()))
    dv.ingest(spark, tmp_path / "trail", tmp_path / "t", records="$.Records")
    (tmp_path / "arrays").mkdir()
    (tmp_path / "arrays" / "log").write_text(json.dumps([{"id": 3}, {"id": 4}], indent=1))
    dv.ingest(spark, tmp_path / "arrays", tmp_path / "t")
    (tmp_path / "5.json").write_text(json.dumps({"id": 5}, indent=1))
    dv.ingest(spark, tmp_path / "5.json", tmp_path / "t", format="document")
    assert ids(spark, tmp_path / "t") == [1, 2, 3, 4, 5]


def test_adjacent_documents(spark, tmp_path, monkeypatch):
    """As Firehose and `jq .` write them, they are rows, compressed or not, and what is malformed among them has its place."""
    monkeypatch.setattr(loading, "PIECE_BYTES", 10)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id":1}{"id":2}\n{"id":3} {"id":4}')
    (tmp_path / "in" / "b.json").write_text('{\n  "id": 5\n}\n{\n  "id": 6\n}\n')
    (tmp_path / "in" / "c.json.gz").write_bytes(gzip.compress(b'{"id":7}{"id":8}{"id":oops}{"id":9}'))
    done = dv.ingest(spark, tmp_path / "in", tmp_path / "t", bad_records=tmp_path / "bad", path_column="file")
    assert (ids(spark, tmp_path / "t"), done.rows, done.bad) == (list(range(1, 10)), 9, 1)
    (bad,) = read(spark, tmp_path / "bad").collect()
    assert (Path(bad.file).name, bad.line, bad.byte, bad.text) == ("c.json.gz", 1, 16, '{"id":oops}')
    files = read(spark, tmp_path / "t").selectExpr("v:id::int id", "file").collect()
    assert {row.id: Path(row.file).name[0] for row in files} == dict(zip(range(1, 10), "aaaabbccc", strict=True))
    (tmp_path / "d.json").write_text(
        '"x"\n\x1e{"id": 10}\n\x1e{"id": \n\x1e{"id": 11, "long": "' + "x" * 90 + '"}\n\x1e{"id": 12}\n'
    )
    more = {"format": "adjacent", "bad_records": tmp_path / "bad", "max_document_bytes": 80, "path_column": "file"}
    done = dv.ingest(spark, tmp_path / "d.json", tmp_path / "t", **more)
    assert (done.rows, done.bad) == (3, 2)
    found = read(spark, tmp_path / "bad").where("file LIKE '%d.json'").collect()
    assert sorted((row.line, row.byte, row.text[:8]) for row in found) == [(3, 17, '{"id": \n'), (4, 26, '{"id": 1')]


def test_settings_of_the_session(spark, tmp_path):
    """Equal keys and halves of surrogate pairs are taken if the session's parse_json takes them."""
    (tmp_path / "a.jsonl").write_text('{"t": "ab\\ud83d", "t": "\\ude00"}\n{"\\ud83d": 1}\n')
    settings = ["spark.sql.variant.allowDuplicateKeys", "spark.sql.variant.validateUnicodeInJsonParsing"]
    with pytest.raises(InvalidJsonError, match=r"line 1: .*without the other half"):
        dv.ingest(spark, tmp_path / "a.jsonl", tmp_path / "t")
    for name, value in zip(settings, ("true", "FALSE"), strict=True):
        spark.conf.set(name, value)
    try:
        dv.ingest(spark, tmp_path / "a.jsonl", tmp_path / "t")
        found, expected = canonicals(
            read(spark, tmp_path / "t"), spark.read.text(str(tmp_path / "a.jsonl")).select(F.parse_json("value").alias("v"))
        )
    finally:
        for name in settings:
            spark.conf.unset(name)
    assert found == expected


def test_columns_out_of_documents(spark, tmp_path):
    """They are what a query of the documents gives, by Spark's casts in its time zone, and may partition the table."""
    rows = [
        {"id": 1, "at": "2026-11-01T23:30:00Z", "n": "7", "who": {"name": "a"}},
        {"id": "2", "at": "2026-11-02T12:00:00+02:00", "n": "x", "who": {"name": "b"}},
        {"id": 3.9, "at": None, "n": 1e3},
        {"at": "2026-11-02", "n": {}, "who": {"name": None}},
    ]
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1" / "a.json").write_text("".join(json.dumps(row) + "\n" for row in rows) + "{\n")
    (tmp_path / "day=1" / "b.json").write_text("".join(json.dumps(rows[0] | {"id": n}) + "\n" for n in range(100)))
    columns = {
        "id": "doc:id::bigint", "on": "doc:at::timestamp::date", "n": "try_variant_get(doc, '$.n', 'int')",
        "name": "upper(doc:who.name::string)", "who": "doc:who", "file": "concat(part, '/', regexp_extract(path, '[^/]+$', 0))",
    }  # fmt: skip
    options = {
        "column": "doc", "columns": columns, "partition_by": ["on", "name"], "path_column": "path", "folders": {"day": "int"},
        "constants": {"part": "p"}, "bad_records": tmp_path / "bad",
    }  # fmt: skip
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        done = dv.ingest(spark, tmp_path / "day=1", tmp_path / "t", **options)
        texts = spark.read.text(f"{tmp_path}/day=1/*.json").where("value <> '{'").select(
            F.parse_json("value").alias("doc"), F.col("_metadata.file_path").alias("path"), F.lit(1).alias("day"),
            F.lit("p").alias("part"),
        )  # fmt: skip
        twin = texts.select("*", *(F.expr(text).alias(name) for name, text in columns.items()))
        found = read(spark, tmp_path / "t")
        assert {f.name: f.dataType for f in found.schema} == {f.name: f.dataType for f in twin.schema}
        ours, expected = canonicals(found.select(twin.columns), twin)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert ours == expected
    assert ours.total() == done.rows == 104
    assert (done.bad, [row.line for row in read(spark, tmp_path / "bad").collect()]) == (1, [5])
    partitions = {tuple(add["partitionValues"].values()) for add in adds(tmp_path / "t", 0)}
    assert partitions == {("2026-11-02", "A"), ("2026-11-02", "B"), (None, None), ("2026-11-02", None)}
    assert dv.ingest(spark, tmp_path / "day=1", tmp_path / "t", **options).version is None


def test_columns_out_of_documents_in_a_table(spark, tmp_path):
    """They take the types of the table, and constraints and generated columns may use them and the documents."""
    spark.sql(
        f"CREATE TABLE delta.`{tmp_path / 't'}` (v variant, id decimal(10, 0), twice bigint GENERATED ALWAYS AS "
        "(cast(id * 2 AS bigint)), text string GENERATED ALWAYS AS (cast(v AS string))) "
        "USING delta TBLPROPERTIES ('delta.enableVariantShredding' = 'true', 'delta.columnMapping.mode' = 'name', "
        "'delta.constraints.c' = \"variant_get(v, '$.id', 'bigint') = id\")"
    )
    (tmp_path / "a.json").write_text(lines(0, 20))
    dv.ingest(spark, tmp_path / "a.json", tmp_path / "t", columns={"ID": "v:id::bigint"})
    found, expected = canonicals(
        read(spark, tmp_path / "t").selectExpr("id", "twice", "parse_json(text):id::int same"),
        spark.range(20).selectExpr("cast(id AS decimal(10, 0)) id", "id * 2 twice", "cast(id AS int) same"),
    )
    assert found == expected
    (tmp_path / "b.json").write_text(lines(20, 30))
    with pytest.raises(InvalidSchemaError, match="CHECK constraint c"):
        dv.ingest(spark, tmp_path / "b.json", tmp_path / "t", columns={"id": "v:id::bigint + 1"})


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({"n": "v:name::bigint"}, SparkRuntimeException, "INVALID_VARIANT_CAST"),
        ({"n": "w:name::bigint"}, InvalidSchemaError, r"columns: n='w:name::bigint' is not an expression over v, file, .*w"),
        ({"n": "v:name::"}, InvalidSchemaError, "is not an expression"),
        ({"n": "v:name::nothing"}, InvalidSchemaError, "is not an expression"),
        ({"n": "explode(array(1, 2))"}, InvalidSchemaError, r"columns: n='explode.* one value for each row.* in a query"),
        ({"n": "explode(cast(v:list AS array<int>))"}, InvalidSchemaError, r"columns: n='explode.* one value for each row"),
        ({"i": "v:id::int", "n": "stack(2, 1, 2)"}, InvalidSchemaError, "columns: n='stack"),
        ({"n": "count(*)"}, InvalidSchemaError, r"columns: n='count\(\*\)' is not an expression over v"),
        ({"n": "row_number() OVER (ORDER BY file)"}, InvalidSchemaError, r"columns: n='row_number.* one value for each row"),
        ({"n": "max(v:id::int) OVER ()"}, InvalidSchemaError, r"columns: n='max.* one value for each row"),
        ({"n": "*"}, InvalidSchemaError, r"columns: n='\*' is not an expression"),
        ({"i": "v:id::int", "n": "i + 1"}, InvalidSchemaError, "columns: n='i.* is not an expression"),
        ({"V": "v:id::int"}, InvalidSchemaError, "has a column V already"),
        ({"FILE": "v:id::int"}, InvalidSchemaError, "has a column FILE already"),
        ({"n": "v:id::int", "N": "v:id::int"}, InvalidSchemaError, "has a column N already"),
        ({"k": "v:id::int"}, InvalidSchemaError, "has a column k already"),
    ],
)
def test_columns_that_do_not_fit(spark, tmp_path, columns, error, message):
    """A value that cannot be cast is Spark's error, what is no expression or no new name is ours; nothing is committed."""
    (tmp_path / "a.json").write_text(lines(0, 3))
    with pytest.raises(error, match=message):
        dv.ingest(spark, tmp_path / "a.json", tmp_path / "t", columns=columns, path_column="file", constants={"k": 1})
    assert not list(tmp_path.glob("t/_delta_log/*.json"))


def test_malformed_documents_with_columns(spark, tmp_path):
    """Without bad_records the first one is the error that it is without columns."""
    (tmp_path / "a.json").write_text(lines(0, 5, bad=(3,)))
    with pytest.raises(InvalidJsonError, match=r"a\.json, line 4: not a JSON document: the text ends inside a value"):
        dv.ingest(spark, tmp_path / "a.json", tmp_path / "t", columns={"n": "v:id::int"})
    assert not list(tmp_path.glob("t/_delta_log/*.json"))


def test_tables_of_all_kinds(spark, tmp_path):
    """Mapped names, generated columns, constraints and another column's name work; expressions over documents are refused."""
    spark.sql(
        f"CREATE TABLE delta.`{tmp_path / 't'}` (event variant, day date, month int GENERATED ALWAYS AS (month(day))) "
        "USING delta TBLPROPERTIES ('delta.enableVariantShredding' = 'true', 'delta.columnMapping.mode' = 'name')"
    )
    (tmp_path / "day=2026-11-01").mkdir()
    (tmp_path / "day=2026-11-01" / "a.json").write_text(lines(0, 20))
    dv.ingest(spark, tmp_path / "day=*", tmp_path / "t", column="event", folders={"day": "date"})
    spark.sql(f"ALTER TABLE delta.`{tmp_path / 't'}` ADD CONSTRAINT c CHECK (month > 10)")
    for day, done in (("2026-11-02", 2 * 20), ("2026-10-01", None)):
        (tmp_path / f"day={day}").mkdir()
        (tmp_path / f"day={day}" / "b.json").write_text(lines(20, 40))
        with nullcontext() if done else pytest.raises(InvalidSchemaError, match="CHECK constraint c"):
            dv.ingest(spark, tmp_path / f"day={day}", tmp_path / "t", column="event", folders={"day": "date"})
    spark.sql(f"ALTER TABLE delta.`{tmp_path / 't'}` ADD CONSTRAINT d CHECK (variant_get(Event, '$.id', 'int') >= 0)")
    (tmp_path / "day=2026-11-02" / "c.json").write_text(lines(0, 20))
    with pytest.raises(
        UnsupportedFeatureError, match=r"Spark needs the documents, as for a constraint or a generated column of"
    ):
        dv.ingest(spark, tmp_path / "day=2026-11-02", tmp_path / "t", column="event", folders={"day": "date"})
    found = read(spark, tmp_path / "t")
    first, every = canonicals(found.where("month = 11 AND event:id::int < 20").select("month"), found.select("month"))
    assert (first, every) == ({("11",): 20}, {("11",): 40})
    spark.sql(
        f"CREATE TABLE delta.`{tmp_path / 'u'}` (v variant, text string GENERATED ALWAYS AS (cast(v AS string))) USING delta "
        "TBLPROPERTIES ('delta.enableVariantShredding' = 'true')"
    )
    with pytest.raises(UnsupportedFeatureError, match="Spark needs the documents, as for a constraint"):
        dv.ingest(spark, tmp_path / "day=2026-11-02", tmp_path / "u")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"mode": "overwrite"}, UnsupportedFeatureError, "does not take mode"),
        ({"cluster_by": ["v:id"]}, UnsupportedFeatureError, "does not take cluster_by"),
        ({"format": "csv"}, UnsupportedFeatureError, "auto, lines, array, adjacent, document"),
        ({"max_document_bytes": 0}, UnsupportedFeatureError, "1 or more"),
        ({"records": "$[0]"}, InvalidPathError, r"as in \$\.Records"),
        ({"path_column": "v"}, InvalidSchemaError, "has a column v already"),
        ({"shredding": "auto"}, TypeError, "shredding"),
        ({"replace_where": "day = 1"}, UnsupportedFeatureError, "does not take replace_where"),
        ({"constants": {"x": {"a": 1}}}, InvalidSchemaError, "constants: x={'a': 1} is not a value of a type that Spark has"),
        ({"constants": {"x": object()}}, InvalidSchemaError, "constants: x="),
        ({"folders": {"day": "integr"}}, InvalidSchemaError, "folders: day='integr' is not a type that a text can be cast to"),
        ({"folders": {"day": "array<int>"}}, InvalidSchemaError, "folders: day='array<int>'"),
    ],
)
def test_arguments(spark, tmp_path, options, error, message):
    """What does not fit is one error, before a file is read."""
    (tmp_path / "a.json").write_text(lines(0, 3))
    with pytest.raises(error, match=message):
        dv.ingest(spark, tmp_path / "a.json", tmp_path / "t", **options)
    assert not (tmp_path / "t").exists()


def test_no_files(spark, tmp_path):
    """A source that has no files, or is not there, is an error."""
    (tmp_path / "in").mkdir()
    for source in (tmp_path / "in", tmp_path / "none", tmp_path / "*.json", []):
        with pytest.raises(TableError, match="there are no files"):
            dv.ingest(spark, source, tmp_path / "t")


def test_names_with_wildcards(spark, tmp_path):
    """A file whose name has brackets is found if they are escaped, and the error for a name that is a glob says how."""
    (tmp_path / "a[1].json").write_text(lines(0, 3))
    with pytest.raises(TableError, match=r"/a\[1\]\.json does not exist\. If .* put a backslash before them"):
        dv.ingest(spark, tmp_path / "a[1].json", tmp_path / "t")
    assert dv.ingest(spark, f"{tmp_path}/a\\[1].json", tmp_path / "t").rows == 3


def test_which_files_are_read(spark, tmp_path):
    """A named file is read whatever its suffix, one below a directory if its suffix says JSON. No compression is ignored."""
    (tmp_path / "in").mkdir()
    names = ["a.json", "b.log", "c.ndjson.gz", "d"]
    for number, name in enumerate(names):
        text = lines(number, number + 1).encode()
        (tmp_path / "in" / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    done = dv.ingest(spark, tmp_path / "in", tmp_path / "t")
    assert (done.files, done.ignored, done.rows) == (2, 2, 2)
    done = dv.ingest(spark, [tmp_path / "in" / "b.log", tmp_path / "in" / "a.json"], tmp_path / "t")
    assert (done.files, done.ignored, done.skipped) == (1, 0, 1)
    done = dv.ingest(spark, tmp_path / "in" / "{d,e}", tmp_path / "t")
    assert ids(spark, tmp_path / "t") == [0, 1, 2, 3]
    (tmp_path / "in" / "e.json.xz").write_text("compressed")
    with pytest.raises(TableError, match=r"e\.json\.xz: its compression is none of \.gz, \.bz2, \.zst"):
        dv.ingest(spark, tmp_path / "in" / "e*", tmp_path / "t")


def test_once_more(spark, tmp_path):
    """force=True reads files that the table has had, after a DELETE for example. Files from before 1970 are known too (W3)."""
    (tmp_path / "a.json").write_text(lines(0, 5, bad=(3,)))
    os.utime(tmp_path / "a.json", (-1000, -1000))
    for force, rows in ((False, 4), (False, 0), (True, 4)):
        done = dv.ingest(spark, tmp_path / "a.json", tmp_path / "t", bad_records=tmp_path / "bad", force=force)
        assert done.rows == rows
    assert read(spark, tmp_path / "t").count() == 8
    assert read(spark, tmp_path / "bad").count() == 2


def test_tables_of_malformed_documents(spark, tmp_path):
    """Two tables may share one; a table is not its own (W3)."""
    for number in range(2):
        (tmp_path / f"{number}.json").write_text(lines(0, 5, bad=(number,)))
    for target in ("t", "u"):
        dv.ingest(spark, tmp_path / "*.json", tmp_path / target, bad_records=tmp_path / "bad")
    assert read(spark, tmp_path / "bad").count() == 4
    with pytest.raises(UnsupportedFeatureError, match="bad_records names the target"):
        dv.ingest(spark, tmp_path / "*.json", tmp_path / "t", bad_records=f"{tmp_path}/../{tmp_path.name}/t/")


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (
            json.dumps({"a": 1}, indent=1).encode(),
            {"format": "lines"},
            'line 1: .*; format="adjacent" is for documents in several',
        ),
        (
            b'{"a": 1}\n{"a": 2}{"a": 3',
            {},
            'line 2: .*; format="adjacent" is for documents in several lines, or several in a line',
        ),
        (b'{"a": 1}\n{"a": 2}', {"format": "document"}, 'line 1: .*; format="adjacent" is for several documents in a file'),
        (lines(0, 2).encode("utf-16"), {}, "line 1: .*the file is UTF-16: convert it to UTF-8; bad_records"),
        ('{"a": "é"}'.encode("latin-1"), {}, "line 1: .*a byte is not UTF-8 .*Latin-1.*: convert it to UTF-8, at byte 7"),
        (b'{"a": NaN}', {}, "line 1: .*a value is NaN, which JSON lacks, at byte 6"),
        (b'{"a": 1}\n{"a": -Infinity}', {}, "line 2: .*a value is Infinity, which JSON lacks"),
        (b"[1]\n[2]\n", {}, 'line 2: .* text after the array; format="adjacent" is for'),
        (b'{"Rows": [1]}', {"records": "$.Records"}, r"the document has no array at \$\.Records"),
    ],
)
def test_advice(spark, tmp_path, content, options, message):
    """What is likely to be meant is in the message."""
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InvalidJsonError, match=message):
        dv.ingest(spark, tmp_path / "a.json", tmp_path / "t", **options)


def test_a_file_that_changed(spark, tmp_path, monkeypatch):
    """A file that is rewritten between its listing and its reading is an error, and nothing is committed."""
    (tmp_path / "a.json").write_text(lines(0, 5))
    listed = Loader.listed
    monkeypatch.setattr(Loader, "listed", lambda *args: (listed(*args), (tmp_path / "a.json").write_text(lines(0, 6)))[0])
    with pytest.raises(TableError, match=r"a\.json had \d+ bytes when it was listed"):
        dv.ingest(spark, tmp_path / "a.json", tmp_path / "t")
    assert not list(tmp_path.glob("t/_delta_log/*.json"))
