"""`VariantTable.optimize`, `shred` and `unshred` on tables of all kinds and beside other writers.

test_arrangement tests which files are chosen.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

import delta_variant as dv
from delta_variant import jvm, optimizer, stats
from delta_variant.errors import InvalidPathError, InvalidSchemaError, SessionError, TableError, UnsupportedFeatureError
from delta_variant.rewriting import driver, source
from delta_variant.rewriting.arrangement import CLUSTERED_TAG
from delta_variant.writer import clustering
from tests.analysis.tables import (
    DELETION_VECTORS,
    OTHERS,
    by_delta,
    create,
    documents,
    documents_after,
    documents_by_id,
    rows,
    rows_with_files,
    two_commits,
)
from tests.contents import has_typed_value, vacuum
from tests.gates import both
from tests.logs import commits, last, live, newest
from tests.support import SOAK, forget, scans, share, without_rules

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]

SCATTERED = "struct((id * 37) % 1000 AS a, (id * 91) % 1000 AS b, concat('s', (id * 53) % 1000) AS s, id AS n)"
"""Three keys that are spread over all files."""


@pytest.fixture(scope="module", params=DELETION_VECTORS)
def base(request, spark, tmp_path_factory):
    return two_commits(spark, tmp_path_factory.mktemp("optimize") / "base", request.param)


@pytest.fixture(scope="module")
def texts(spark):
    return documents_by_id(spark)


@pytest.fixture(scope="module")
def ten(spark, tmp_path_factory):
    """A table of ten files, which no test changes."""
    path = tmp_path_factory.mktemp("optimize") / "ten"
    dv.write(scattered(spark), path)
    return path


@pytest.fixture(scope="module")
def rows_of_ten(spark, ten):
    """The rows of the table of ten files."""
    return content(spark, ten)


def scattered(spark, first=0, last=1000, files=10):
    return spark.range(first, last, 1, files).selectExpr("id AS n", "id % 2 AS p", f"parse_json(to_json({SCATTERED})) AS v")


def opened(on, path, where, shown="v:n::bigint"):
    """The files that a query opens, of so many."""
    [scan] = scans(on.sql(f"SELECT {shown} FROM delta.`{path}` WHERE {where}"))
    return scan.files_after_bounds, scan.files_total


def content(spark, path, version=None, columns="n, p, v::string"):
    """The rows of a table, by Spark's own scan."""
    of_version = "" if version is None else f" VERSION AS OF {version}"
    with without_rules(spark):
        return sorted(map(tuple, spark.sql(f"SELECT {columns} FROM delta.`{path}`{of_version}").collect()))


def part(path, count):
    """A size of files of which a table has about so many."""
    return sum(add["size"] for add in live(path).values()) // count


def test_one_key(spark, on, ten, rows_of_ten, tmp_path):
    """Each file gets a narrow range of the key, and nothing else changes; a second call does nothing (M5).

    Other readers and writers go on: time travel, delta-spark's append, checkpoint, VACUUM, DuckDB.
    """
    tmp_path = shutil.copytree(ten, tmp_path / "t")
    assert opened(on, tmp_path, "v:a::bigint = 500")[0] == 10
    table, told = dv.VariantTable.forPath(spark, tmp_path), []
    size = part(tmp_path, 8)
    done = table.optimize(cluster_by=["v:a"], max_file_size=size, progress=told.append)
    assert (done.version, done.commits, done.files_removed, done.files_kept, done.rows) == (1, 1, 10, 0, 1000)
    assert [(p.files, p.files_total, p.rows) for p in told] == [(10, 10, 1000)]
    assert done.files_added == len(live(tmp_path)) >= 5
    assert opened(on, tmp_path, "v:a::bigint = 500") == (1, done.files_added)
    changes = [next(iter(action.values())) for action in commits(tmp_path)[1] if "add" in action or "remove" in action]
    assert {change["dataChange"] for change in changes} == {False}
    info = last(tmp_path, "commitInfo")
    assert (newest(tmp_path), info["operation"], info["operationParameters"]["zOrderBy"]) == (1, "OPTIMIZE", '["v:a"]')
    assert info["operationMetrics"]["numRemovedFiles"] == "10"
    assert table.optimize(cluster_by=["v:a"], max_file_size=size).commits == 0
    assert content(spark, tmp_path, 0) == rows_of_ten
    by_delta(spark, tmp_path, scattered(spark, 1000, 1010, 1))
    jvm.static(spark, "org.apache.spark.sql.delta.DeltaLog").forTable(spark._jsparkSession, str(tmp_path)).checkpoint()
    vacuum(spark, tmp_path)
    after = content(spark, tmp_path)
    assert after[:1000] == rows_of_ten
    assert [n for n, *_ in after[1000:]] == list(range(1000, 1010))
    assert {file.name for file in tmp_path.glob("*.parquet")} == set(live(tmp_path))
    files = [str(tmp_path / file) for file in live(tmp_path)]
    assert duckdb.sql(f"SELECT count(*), sum(n) FROM read_parquet({files})").fetchall() == [
        (1010, sum(row[0] for row in after))
    ]


def test_several_keys(spark, on, ten, rows_of_ten, tmp_path):
    """Along a Hilbert curve, a look-up by either key opens few of the files; a second call does nothing (M5)."""
    tmp_path = shutil.copytree(ten, tmp_path / "t")
    table = dv.VariantTable.forPath(spark, tmp_path)
    size = part(tmp_path, 24)
    done = table.optimize(cluster_by=["v:a", "v:b"], max_file_size=size)
    assert done.files_added >= 16
    for where in ("v:a::bigint = 500", "v:b::bigint = 500"):
        assert opened(on, tmp_path, where)[0] <= done.files_added / 2, where
    assert table.optimize(cluster_by=["v:a", "v:b"], max_file_size=size).commits == 0
    assert content(spark, tmp_path) == rows_of_ten


def test_appends_are_merged_when_they_have_grown(spark, on, tmp_path):
    """A small append is left beside the order; several are put in an order of their own; many are merged with the rest."""
    shred = {"v": "a bigint, b bigint, s string, n bigint"}
    dv.write(scattered(spark, 0, 8000, 2), tmp_path, shred=shred)
    table, size = dv.VariantTable.forPath(spark, tmp_path), part(tmp_path, 2)
    table.optimize(cluster_by=["v:a"], max_file_size=size)
    many = len(live(tmp_path))
    dv.write(scattered(spark, 8000, 8100, 1), tmp_path, shred=shred)
    assert table.optimize(cluster_by=["v:a"], max_file_size=size).commits == 0
    assert opened(on, tmp_path, "v:a::bigint = 500") == (2, many + 1)
    dv.write(scattered(spark, 8100, 8200, 1), tmp_path, shred=shred)
    done = table.optimize(cluster_by=["v:a"], max_file_size=size)
    assert (done.files_removed, done.files_kept) == (2, many)
    dv.write(scattered(spark, 8200, 14000, 1), tmp_path, shred=shred)
    done = table.optimize(cluster_by=["v:a"], max_file_size=size)
    assert done.files_kept == 0
    assert opened(on, tmp_path, "v:a::bigint = 500")[0] == 1


@pytest.mark.parametrize("mode", share(["name", "none", "id"], 3))
def test_partitions_deletion_vectors_row_ids_and_mapped_columns(spark, on, tmp_path, mode):
    """Rows keep their ids and versions, deleted rows stay so, `where` chooses partitions, names are mapped (W5)."""
    enabled = ", ".join(f"'delta.enable{name}' = 'true'" for name in ("VariantShredding", "DeletionVectors", "RowTracking"))
    mapped = "" if mode == "none" else f", 'delta.columnMapping.mode' = '{mode}'"
    more = f"PARTITIONED BY (p) TBLPROPERTIES ({enabled}{mapped})"
    create(spark, tmp_path, shredding=None, more=more)
    by_delta(spark, tmp_path, scattered(spark, files=4))
    dv.write(scattered(spark, 1000, 1100, 1), tmp_path)
    if mode != "none":
        spark.sql(f"ALTER TABLE delta.`{tmp_path}` RENAME COLUMN v TO w")
    v = "v" if mode == "none" else "w"
    spark.sql(f"DELETE FROM delta.`{tmp_path}` WHERE n % 10 = 3")
    columns = f"n, p, {v}::string, _metadata.row_id, _metadata.row_commit_version"
    before = content(spark, tmp_path, columns=columns)
    table, size = dv.VariantTable.forPath(spark, tmp_path), part(tmp_path, 14)
    done = [table.optimize([f"{v}:a"], where, size) for where in ("p = 1", None)]
    assert [one.files_removed for one in done] == [5, 5]
    assert [one.files_kept for one in done] == [0, done[0].files_added]
    assert not any(add.get("deletionVector") for add in live(tmp_path).values())
    assert opened(on, tmp_path, f"{v}:a::bigint = 500", "n")[0] <= 2
    spark.sql(f"UPDATE delta.`{tmp_path}` SET p = 0 WHERE n = 4")
    after = content(spark, tmp_path, columns=columns)
    assert [row[:4] for row in after] == [row[:4] for row in before]
    assert [row for row in after if row[0] != 4] == [row for row in before if row[0] != 4]
    with pytest.raises(TableError, match="is not a predicate on the partition columns"):
        table.optimize([f"{v}:a"], where="n = 3")


@pytest.mark.parametrize("keys", [["v:a"], ["s.t"], ["v:s", "n"], ["v:a", "v:b"]])
def test_blocks(spark, on, tmp_path, monkeypatch, keys):
    """By way of sorted blocks, files get the rows that Spark's own sort gives them, and the statistics of `write` (M5).

    With several keys, the curves differ, and so do the files. The table has partitions, deletion vectors, NOT NULL, a CHECK
    constraint, and Variants at the top and in a struct.
    """
    more = "PARTITIONED BY (p) TBLPROPERTIES ('delta.enableVariantShredding' = 'true', 'delta.enableDeletionVectors' = 'true')"
    columns = "n BIGINT NOT NULL, p INT, v VARIANT, s STRUCT<w: VARIANT, t: TIMESTAMP>"
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/t` ({columns}) USING delta {more}")
    rows = scattered(spark, files=4).selectExpr("n", "int(p) p", "v", "struct(v AS w, timestamp_seconds(n * 37 % 1000) AS t) s")
    by_delta(spark, tmp_path / "t", rows)
    dv.write(rows.where("n < 100"), tmp_path / "t")
    spark.sql(f"ALTER TABLE delta.`{tmp_path}/t` ADD CONSTRAINT positive CHECK (n >= 0)")
    spark.sql(f"DELETE FROM delta.`{tmp_path}/t` WHERE n % 10 = 3")
    shown = "n, p, v::string, s.w::string, s.t"
    before, size = content(spark, tmp_path / "t", columns=shown), part(tmp_path / "t", 8)
    made = []
    merged = source.merged
    monkeypatch.setattr(source, "merged", lambda *arguments: made.append(merged(*arguments)) or made[-1])
    found = []
    for least in ("0", "1g"):
        path = shutil.copytree(tmp_path / "t", tmp_path / least)
        spark.conf.set("spark.delta_variant.lateMaterializationBytes", least)
        try:
            done = dv.VariantTable.forPath(spark, path).optimize(keys, max_file_size=size)
        finally:
            spark.conf.unset("spark.delta_variant.lateMaterializationBytes")
        assert content(spark, path, columns=shown) == before
        files = live(path).values()
        assert not any(add.get("deletionVector") for add in files)
        statistics = sorted(
            json.dumps([add["partitionValues"], json.loads(add["stats"]), sorted(add["tags"].keys() - {CLUSTERED_TAG})])
            for add in files
        )
        found.append((done.files_removed, done.rows, *([statistics] if len(keys) == 1 else [])))
        assert done.files_added >= 8
    assert found[0] == found[1]
    assert len(made) == 1


def test_blocks_that_fail(spark, ten, rows_of_ten, tmp_path, monkeypatch, caplog):
    """If a task fails to make blocks, Spark sorts the rows, and the log says why."""
    path = shutil.copytree(ten, tmp_path / "t")

    @dataclass(frozen=True)
    class OfAnotherVersion(driver.Sorting):
        version: str = "0.0"

    monkeypatch.setattr(driver, "Sorting", OfAnotherVersion)
    spark.conf.set("spark.delta_variant.lateMaterializationBytes", "0")
    try:
        done = dv.VariantTable.forPath(spark, path).optimize(["v:a"])
    finally:
        spark.conf.unset("spark.delta_variant.lateMaterializationBytes")
    assert (done.commits, done.rows) == (1, 1000)
    assert content(spark, path) == rows_of_ten
    assert "Spark sorts the rows" in caplog.text
    assert "the driver runs 0.0" in caplog.text


@pytest.mark.parametrize("rewrite", ["optimize", "cluster", "shred", "unshred"])
def test_a_file_that_cannot_be_read(spark, rows_of_ten, tmp_path, rewrite):
    """A file that is missing or damaged is an error, also in a session that ignores such files, and no row is lost."""
    path = tmp_path / "t"
    dv.write(scattered(spark, files=3), path, shred=False if rewrite == "shred" else {"v": "a bigint"})
    table = dv.VariantTable.forPath(spark, path)
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta_variant.shredding.v' = 'a bigint')")
    table.disable_shredding() if rewrite == "unshred" else table.enable_shredding()
    file = path / next(iter(live(path)))
    data, version = file.read_bytes(), newest(path)
    calls = {
        "optimize": table.optimize,
        "cluster": lambda: table.optimize(["v:a"], max_file_size=part(path, 4)),
        "shred": table.shred,
        "unshred": table.unshred,
    }
    ignored = dict.fromkeys(("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"), "true")
    for damaged in (None, data[:4] + bytes(len(data) // 3) + data[4 + len(data) // 3 :]):
        file.unlink() if damaged is None else file.write_bytes(damaged)
        with jvm.settings(spark, ignored), pytest.raises(TableError, match=r"FAILED_READ_FILE|is gone|cannot be read"):
            calls[rewrite]()
        assert newest(path) == version
    file.write_bytes(data)
    calls[rewrite]()
    assert newest(path) > version
    assert content(spark, path) == rows_of_ten


def test_stored_keys(spark, ten, tmp_path):
    """`optimize()` takes the keys that `cluster_by` has stored, and later writes give their paths bounds first."""
    tmp_path = shutil.copytree(ten, tmp_path / "t")
    table = dv.VariantTable.forPath(spark, tmp_path)
    table.cluster_by(["v:['a']", "n"])
    assert table.optimize(max_file_size=part(tmp_path, 4)).files_added > 1
    assert json.loads(last(tmp_path, "commitInfo")["operationParameters"]["zOrderBy"]) == ["v:['a']", "n"]
    assert clustering.CLUSTER_BY_PROPERTY in last(tmp_path, "metaData")["configuration"]
    table.cluster_by(None)
    assert clustering.CLUSTER_BY_PROPERTY not in last(tmp_path, "metaData")["configuration"]


def test_small_files_are_packed(spark, ten, rows_of_ten, tmp_path):
    """Without keys, files that are smaller than half of the size are put together, each kind of partition for itself."""
    shutil.copytree(ten, tmp_path / "t")
    done = dv.VariantTable.forPath(spark, tmp_path / "t").optimize()
    assert (done.files_removed, done.files_added, done.rows) == (10, 1, 1000)
    assert dv.VariantTable.forPath(spark, tmp_path / "t").optimize().commits == 0
    dv.write(scattered(spark, files=1), tmp_path / "u", partition_by=["p"], max_rows_per_file=200)
    done = dv.VariantTable.forPath(spark, tmp_path / "u").optimize()
    assert (done.files_removed, done.files_added, done.rows) == (6, 2, 1000)
    assert content(spark, tmp_path / "u") == rows_of_ten


def test_ordinary_columns_and_strings(spark, tmp_path):
    """Ordinary columns and strings are keys too. Strings longer than their bounds do not make files look out of order (M5).

    Bounds of strings that begin alike cannot be told apart: no order would help a query, so files stay as they are.
    """
    long = "struct(concat(repeat('x', 40), (id * 37) % 1000) AS s, sha1(string(id)) AS h)"
    rows = spark.range(0, 1000, 1, 8).selectExpr(
        "id * 7 % 1000 AS n", "sha1(string(id + 1)) AS h", f"parse_json(to_json({long})) AS v"
    )
    dv.write(rows, tmp_path)
    table = dv.VariantTable.forPath(spark, tmp_path)
    for key in (["h"], ["v:h"], ["n"]):
        size = part(tmp_path, 8)
        assert table.optimize(key, max_file_size=size).files_added > 1
        table.optimize(key, max_file_size=size)  # packs files that have become smaller by their order
        assert table.optimize(key, max_file_size=size).commits == 0
    assert table.optimize(["v:s"], max_file_size=size).commits == 0
    found = spark.sql(f"SELECT _metadata.file_name, min(n), max(n) FROM delta.`{tmp_path}` GROUP BY 1 ORDER BY 2").collect()
    assert all(a[2] <= b[1] for a, b in itertools.pairwise(found))
    assert len(found) > 1


def test_every_file_has_its_own_schema(spark, tmp_path):
    """Clustered by a discriminator, a file shreds the paths of its kind, which are too rare in the table."""
    kind = "concat('{\"kind\": \"k', id % 30, '\", \"x', id % 30, '\": ', id, ', \"n\": ', id, '}')"
    rows = spark.range(0, 60_000, 1, 2).selectExpr("id AS n", "0 AS p", f"parse_json({kind}) AS v")
    dv.write(rows, tmp_path)
    assert ("v", "typed_value", "n") in typed(tmp_path)
    assert ("v", "typed_value", "x7") not in typed(tmp_path)
    dv.VariantTable.forPath(spark, tmp_path).optimize(["v:kind"], max_file_size=part(tmp_path, 40))
    assert {("v", "typed_value", f"x{kind}") for kind in range(30)} <= typed(tmp_path)


def typed(path):
    """The typed columns that have values, by their places in the files' schemas, without the last step."""
    found = set()
    for file in live(path):
        metadata = pq.ParquetFile(path / file).metadata
        for group, column in itertools.product(range(metadata.num_row_groups), range(metadata.num_columns)):
            chunk = metadata.row_group(group).column(column)
            *steps, leaf = chunk.path_in_schema.split(".")
            if leaf == "typed_value" and chunk.statistics.null_count < chunk.num_values:
                found.add(tuple(steps))
    return found


def test_errors(spark, ten, tmp_path):
    """Wrong keys and tables that Delta clusters are refused before anything is read; an empty table is in order."""
    create(spark, tmp_path / "empty")
    assert dv.VariantTable.forPath(spark, tmp_path / "empty").optimize(["V:a", "n"]).commits == 0
    table = dv.VariantTable.forPath(spark, ten)
    for keys, error, text in [
        ("v:a", InvalidSchemaError, r"must be a list"),
        (["v"], InvalidSchemaError, "no order"),
        (["x"], InvalidSchemaError, "no column x"),
        (["v:a[0]"], InvalidPathError, "through an array"),
    ]:
        with pytest.raises(error, match=text):
            table.optimize(keys)
        with pytest.raises(error, match=text):
            table.cluster_by(keys)
    with pytest.raises(UnsupportedFeatureError, match="max_file_size=0"):
        table.optimize(max_file_size=0)
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 'u'}` (n bigint, v variant) USING delta CLUSTER BY (n)")
    with pytest.raises(UnsupportedFeatureError, match="clustered by Delta"):
        dv.VariantTable.forPath(spark, tmp_path / "u").optimize(["v:a"])


# ---- advice --------------------------------------------------------------------------------------------------------------


def test_advice(spark, on, tmp_path):
    """Advice names what helps, and following it saves about the files that it promises; then there is no advice."""
    create(spark, tmp_path, shredding=None, more="TBLPROPERTIES ('delta_variant.shredding.v' = 'a bigint, b bigint, n bigint')")
    by_delta(spark, tmp_path, scattered(spark))
    table = dv.VariantTable.forPath(spark, tmp_path)
    look_up = f"SELECT v:n::bigint FROM delta.`{tmp_path}` WHERE v:a::bigint = 500"
    with pytest.raises(SessionError, match="enable"):
        table.advise([look_up])
    for query in (look_up, spark.sql(look_up)):
        with pytest.raises(InvalidSchemaError, match="must be a list of SQL texts and DataFrames"):
            table.advise(query)
    dv.enable(spark)
    try:
        with pytest.raises(UnsupportedFeatureError, match="is a command"):  # which Spark would run
            table.advise(["DROP TABLE IF EXISTS nothing"])
        advice = {(one.action, one.paths): one for one in table.advise([look_up, spark.sql(look_up)])}
        assert advice["bound", ("v:a",)].files_saved == 20
        assert (advice["shred", ("v:a", "v:n")].queries, advice["shred", ("v:a", "v:n")].files_saved) == (2, 20)
        assert not any(action == "cluster" for action, _ in advice)
        table.enable_shredding()
        table.shred()
        table.analyze()
        [advice] = table.advise([look_up])
        assert (advice.action, advice.paths, advice.files_saved) == ("cluster", ("v:a",), 9)
        other = look_up.replace("v:a::bigint = 500", "v:b::bigint BETWEEN 20 AND 30")
        assert {one.paths for one in table.advise([look_up, other])} == {("v:a",), ("v:b",), ("v:a", "v:b")}
        table.optimize(["v:a"], max_file_size=part(tmp_path, 10))
        assert opened(on, tmp_path, "v:a::bigint = 500")[0] == 1
        assert table.advise([look_up]) == []
        with pytest.raises(TableError, match="none of the queries reads"):
            table.advise(["SELECT 1"])
    finally:
        dv.disable(spark)


def test_advice_is_not_to_shred_what_stays_plain(on, tmp_path):
    """Where `shred` would open no file, it is not advised. A path is one path of `explain` in each of Spark's spellings."""
    create(on, tmp_path)
    rows = 'SELECT parse_json(concat(\'{"two words": \', id, \', "s": "x"}\')) AS v FROM range(0, 20, 1, 1)'
    on.sql(f"INSERT INTO delta.`{tmp_path}` (v) {rows}")
    table = dv.VariantTable.forPath(on, tmp_path)
    spelled = ["v:['two words']::int", "v:`two words`::int", "variant_get(v, '$[\"two words\"]', 'int')", "v:s::string"]
    query = f"SELECT {', '.join(spelled)} FROM delta.`{tmp_path}`"
    [scan] = dv.explain(on.sql(query)).scans
    assert scan.typed_files == {"v:['two words']": 0, "v:s": 0}
    assert table.shred().files_removed == 0
    assert table.advise([query]) == []


def test_advice_on_columns_that_cannot_be_keys(spark, tmp_path):
    """A path whose column has a dot in its name, or is of an older version of the table, has no advice on clustering."""
    table, shredded = f"delta.`{tmp_path}`", "'delta.enableVariantShredding' = 'true'"
    dv.enable(spark)
    try:
        for name in ("`my.v`", "v"):
            rows = f"SELECT parse_json(concat('{{\"a\": ', id % 100, '}}')) AS {name} FROM range(0, 400, 1, 4)"
            spark.sql(f"CREATE OR REPLACE TABLE {table} USING delta TBLPROPERTIES ({shredded}) AS {rows}")
        by_dots = f"SELECT count(*) FROM {table} VERSION AS OF 0 WHERE `my.v`:a::bigint = 5"
        older = f"SELECT count(*) FROM {table} VERSION AS OF 1 WHERE v:a::bigint = 5"
        spark.sql(f"CREATE OR REPLACE TABLE {table} USING delta AS SELECT 1 AS id, parse_json('1') AS w")
        advice = dv.VariantTable.forPath(spark, tmp_path).advise([by_dots, older])
    finally:
        dv.disable(spark)
    assert [one for one in advice if one.action == "cluster"] == []


def test_advice_for_a_session(spark, ten, tmp_path):
    """Without queries, advice is for those that the session has run since `enable`, each once. No command is run again."""
    for name in ("t", "gone"):
        shutil.copytree(ten, tmp_path / name)
    table = dv.VariantTable.forPath(spark, tmp_path / "t")
    look_up = f"SELECT v:n::bigint FROM delta.`{tmp_path / 't'}` WHERE v:a::bigint = {{}}"
    spark.sql(look_up.format(1)).collect()
    dv.enable(spark)
    try:
        with pytest.raises(TableError, match="no query of this session"):
            table.advise()
        for value in (500, 501, 501):
            spark.sql(look_up.format(value)).collect()
        spark.sql(f"SELECT v FROM delta.`{tmp_path / 'gone'}` WHERE v:a::bigint = 1").collect()
        shutil.rmtree(tmp_path / "gone")
        forget(spark)
        spark.sql(f"INSERT INTO delta.`{tmp_path / 't'}` SELECT * FROM delta.`{tmp_path / 't'}` WHERE v:b::bigint = 7")
        assert (newest(tmp_path / "t"), last(tmp_path / "t", "commitInfo")["operation"]) == (1, "WRITE")
        advice = {(one.action, one.paths): one.queries for one in table.advise()}
        assert advice["cluster", ("v:a",)] == 2
        assert advice["cluster", ("v:b",)] == 1, "the query of INSERT"
        assert newest(tmp_path / "t") == 1
    finally:
        dv.disable(spark)
    assert optimizer.queries(spark) == []


# ---- shred and unshred ---------------------------------------------------------------------------------------------------


def test_shred_and_unshred(spark, on, tmp_path):
    """Files get the layout that the table is to have, one for one; rows and ids stay; a second call does nothing (W5)."""
    enabled = "'delta.enableRowTracking' = 'true', 'delta.enableDeletionVectors' = 'true'"
    properties = f"TBLPROPERTIES ({enabled}, 'delta_variant.shredding.v' = 'a bigint, n bigint')"
    create(spark, tmp_path, shredding=None, more=f"PARTITIONED BY (p) {properties}")
    by_delta(spark, tmp_path, scattered(spark, files=2))
    spark.sql(f"DELETE FROM delta.`{tmp_path}` WHERE n = 5")
    table, columns = dv.VariantTable.forPath(spark, tmp_path), "n, p, v::string, _metadata.row_id"
    before = content(spark, tmp_path, columns=columns)
    with pytest.raises(TableError, match="must not hold shredded files"):
        table.shred()
    table.enable_shredding()
    done = [table.shred(where) for where in ("p = 0", None, None)]
    assert [(one.files_removed, one.files_added) for one in done] == [(2, 2), (2, 2), (0, 0)]
    assert {has_typed_value(tmp_path, add) for add in live(tmp_path).values()} == {True}
    assert opened(on, tmp_path, "p = 1 AND v:n::bigint = 7") == (1, 4)
    assert content(spark, tmp_path, columns=columns) == before
    table.disable_shredding()
    done = [table.unshred(), table.unshred()]
    assert [(one.files_removed, one.files_added) for one in done] == [(4, 4), (0, 0)]
    assert {has_typed_value(tmp_path, add) for add in live(tmp_path).values()} == {False}
    assert content(spark, tmp_path, columns=columns) == before
    commit = last(tmp_path, "commitInfo")
    assert (commit["operation"], commit["operationParameters"]["applyPurge"]) == ("REORG", False)


def test_objects_that_others_left_open_are_closed(spark, tmp_path):
    """Files of other writers in which a field of an object has no column are rewritten, once.

    Those stay whose objects hold JSON nulls, are in arrays or in few rows, or have a given schema.
    """

    def add(document, rare, rows=10_000):
        value = f"parse_json(if(id % 1000 = 999, '{rare}', '{document}')) AS v"
        by_delta(spark, tmp_path, spark.range(0, rows, 1, 1).selectExpr("id AS n", "id % 2 AS p", value))

    create(spark, tmp_path)
    add('{"a": 1}', '{"a": 1, "rare": {"x": 1}}')
    add('{"o": {"a": 1}}', '{"o": {"a": 1, "rare": 1}}')
    add('{"o": {"a": 1}}', '{"o": null}')
    add('[{"a": 1}]', '[{"a": 1}, {"rare": 1}]')
    add('{"a": 1}', '{"a": 1, "rare": 1}', rows=2000)
    table = dv.VariantTable.forPath(spark, tmp_path)
    assert table.inspect().where("open").count() == 4
    before = content(spark, tmp_path)
    [done, again] = [table.shred() for _ in range(2)]
    assert (done.files_removed, done.files_added, done.files_kept, again.commits) == (2, 2, 3, 0)
    assert content(spark, tmp_path) == before
    assert table.inspect().where("ours").selectExpr("count(DISTINCT file)", "count_if(open)").first() == (2, 0)
    spark.sql(f"ALTER TABLE delta.`{tmp_path}` SET TBLPROPERTIES ('delta_variant.shredding.v' = 'a int')")
    add('{"a": 1}', '{"a": 1, "rare": 1}')
    assert table.shred().commits == 0
    spark.sql(f"ALTER TABLE delta.`{tmp_path}` SET TBLPROPERTIES ('delta_variant.shred' = 'CLOSED')")
    assert table.shred().files_removed == 1
    assert table.inspect().where("ours AND open").count() == 0


def test_files_left_plain_are_left_alone(spark, tmp_path):
    """A file that the writer leaves plain says so in a tag, and `shred` does not write it again and again (M6)."""
    few = spark.range(0, 3, 1, 1).selectExpr("id AS n", f"parse_json(to_json({SCATTERED})) AS v")
    dv.write(few, tmp_path, shred=False)
    dv.VariantTable.forPath(spark, tmp_path).enable_shredding()
    dv.VariantTable.forPath(spark, tmp_path).analyze()
    [done, again] = [dv.VariantTable.forPath(spark, tmp_path).shred() for _ in range(2)]
    assert (done.files_added, again.commits) == (1, 0)
    [add] = live(tmp_path).values()
    assert add["tags"][stats.PLAIN_TAG] == "1"


# ---- the feature ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mapped", share([True, False], 2))
def test_drop_feature(spark, tmp_path, mapped):
    """The protocol loses the feature; rows, history and other statistics stay; readers that do not know it start here (W6)."""
    mode = ", 'delta.columnMapping.mode' = 'name'" if mapped else ""
    more = f"TBLPROPERTIES ('delta.enableVariantShredding' = 'true'{mode})"
    create(spark, tmp_path, shredding=None, columns="n bigint, p bigint, v variant", more=more)
    dv.write(rows(spark), tmp_path, shred={"v": "id bigint"})
    dv.write(rows(spark, 40, 80).coalesce(1), tmp_path, shred=False)
    table = dv.VariantTable.forPath(spark, tmp_path)
    assert table.analyze().files == 1
    before = newest(tmp_path)
    version = table.drop_feature()
    protocol = last(tmp_path, "protocol")
    assert not any("variantShredding" in name for name in [*protocol["readerFeatures"], *protocol["writerFeatures"]])
    assert "variantType" in protocol["readerFeatures"]
    assert "delta.enableVariantShredding" not in last(tmp_path, "metaData")["configuration"]
    assert (newest(tmp_path), last(tmp_path, "commitInfo")["operation"]) == (version, "DROP FEATURE")
    for add in live(tmp_path).values():
        found = json.loads(add["stats"])
        assert found["numRecords"]
        assert len(found["minValues"]) == 2, "the bounds of n and p"
        assert not any(name.startswith("delta_variant") for name in add.get("tags", {}))
    assert {has_typed_value(tmp_path, add) for add in live(tmp_path).values()} == {False}
    history = content(spark, tmp_path, before)
    assert [row[0] for row in history] == list(range(80))
    checkpoints = sorted(int(file.name[:20]) for file in Path(tmp_path, "_delta_log").glob("*.checkpoint*.parquet"))
    assert checkpoints[-1] == version
    assert len(checkpoints) >= 4
    by_delta(spark, tmp_path, rows(spark, 80, 90))
    spark.sql(f"DELETE FROM delta.`{tmp_path}` WHERE n = 3")
    vacuum(spark, tmp_path)
    after = content(spark, tmp_path)
    assert after[:79] == [row for row in history if row[0] != 3]
    assert [row[0] for row in after[79:]] == list(range(80, 90))
    with pytest.raises(TableError, match="nothing to drop"):
        table.drop_feature()
    table.enable_shredding()
    assert table.shred().commits == 1


def test_drop_feature_of_columns_without_statistics(spark, tmp_path):
    """Delta keeps no statistics of a column, and the bounds in its tags are dropped."""
    more = "TBLPROPERTIES ('delta.enableVariantShredding' = 'true', 'delta.dataSkippingNumIndexedCols' = '1')"
    create(spark, tmp_path, shredding=None, columns="n bigint, p bigint, v variant", more=more)
    by_delta(spark, tmp_path, rows(spark).coalesce(1))
    table = dv.VariantTable.forPath(spark, tmp_path)
    table.analyze(tags_only=True)
    [add] = live(tmp_path).values()
    assert stats.NONNULL_TAG in add["tags"]
    table.drop_feature()
    [add] = live(tmp_path).values()
    assert not any(name.startswith("delta_variant") for name in add.get("tags", {}))
    assert not any("variantShredding" in name for name in last(tmp_path, "protocol")["readerFeatures"])


# ---- beside other writers ------------------------------------------------------------------------------------------------

REWRITINGS = {
    "optimize": lambda table: table.optimize(["v:id"], max_file_size=1 << 12),
    "shred": lambda table: table.shred(),
    "unshred": lambda table: table.unshred(),
}  # fmt: skip
ORDERS = ("first", "second")
ALL = itertools.product(REWRITINGS, OTHERS, ORDERS)
SOME = zip(itertools.cycle(REWRITINGS), ("our append", "analyze", "UPDATE", "UPDATE"), itertools.cycle(ORDERS))
CASES = list(ALL if SOAK else SOME)
"""Our operation, the other writer, and whether ours is the first to begin."""


@pytest.mark.slow
@pytest.mark.parametrize(("ours", "other", "order"), CASES)
def test_beside_other_writers(spark, gate, base, texts, tmp_path, ours, other, order):
    """A rewriting is begun again without the files that others changed; others get Delta's own conflict (W5).

    No row is lost or comes back.
    """
    path = str(tmp_path / "t")
    shutil.copytree(base, path)
    if other == "RESTORE":
        by_delta(spark, path, rows(spark, 50, 60))
    act = lambda: REWRITINGS[ours](dv.VariantTable.forPath(spark, path))  # noqa: E731
    theirs = partial(OTHERS[other], spark, path)
    ended = both(spark, gate, path, *((act, theirs) if order == "first" else (theirs, act)))
    mine, other_end = ended if order == "first" else ended[::-1]
    assert mine == "done"
    assert other_end == "done" or (order == "second" and re.fullmatch("Concurrent[A-Za-z]+Exception", other_end))
    assert documents(rows_with_files(spark, path)) == documents_after(texts, other, done=other_end == "done")
