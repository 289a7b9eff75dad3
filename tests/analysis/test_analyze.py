"""`VariantTable.analyze` on tables of all kinds and beside other writers. test_one_file tests the analysis of one file."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from functools import partial
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import delta_variant as dv
from delta_variant import jvm, stats
from delta_variant.analysis import driver
from delta_variant.errors import InvalidPathError, InvalidSchemaError, TableError
from delta_variant.paths import normalized
from tests.analysis.tables import (
    DELETION_VECTORS,
    OTHERS,
    SHAPE,
    by_delta,
    create,
    documents,
    documents_after,
    documents_by_id,
    rows,
    rows_of,
    rows_with_files,
    two_commits,
)
from tests.gates import both
from tests.logs import actions, last, live
from tests.support import scans, share

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]

NEEDLE = "v:id::bigint = 25"


def without_bounds(path, copy):
    """A copy of a table whose Add actions have no bounds and no tags."""
    shutil.copytree(path, copy)
    for commit in Path(copy, "_delta_log").glob("*.json"):
        lines = []
        for action in map(json.loads, commit.read_text().splitlines()):
            if "add" in action:
                action["add"].pop("tags", None)
                action["add"]["stats"] = re.sub(r',?"v":"[^"]*"', "", action["add"]["stats"])
            lines.append(json.dumps(action))
        commit.write_text("\n".join(lines))
    for checksum in Path(copy, "_delta_log").glob("*crc"):
        checksum.unlink()


@pytest.fixture(scope="module")
def plain(spark, tmp_path_factory):
    """A table with four plain files of delta-spark, and the bounds of v.id in them. Tests work on copies."""
    path = tmp_path_factory.mktemp("analyze") / "plain"
    create(spark, path, shredding=None)
    by_delta(spark, path)
    return path, extremes(rows_with_files(spark, path), "id")


def opened(on, path, where=NEEDLE):
    """(files opened, files read typed) by a query that the rules serve."""
    [scan] = scans(on.sql(f"SELECT v:name::string, n FROM delta.`{path}` WHERE {where}"))
    return scan.files_after_bounds, scan.files_typed


def extremes(found, path):
    """The bounds of a path of v by file, from the rows."""
    values = {}
    for row in found:
        value = row.v.toPython()
        for key in path.split("."):
            value = (value or {}).get(key)
        if value is not None:
            values.setdefault(row.file, []).append(value)
    return {file: (min(of_file), max(of_file)) for file, of_file in values.items()}


def stated(path, key):
    """The bounds of a path of column v by file, in the statistics of the files that have the marker."""
    found, name = {}, normalized(key.split("."))
    for file, add in live(path).items():
        texts = [json.loads(add["stats"])[side].get("v") for side in ("minValues", "maxValues")]
        low, high = ({} if text is None else stats.decode_bounds(text) for text in texts)
        if stats.BOUNDS_TAG in add.get("tags", {}) and (name in low or name in high):
            found[file] = low.get(name), high.get(name)
    return found


def of_stats(lines, key):
    """The bounds of a path by file, of the rows that `stats` has."""
    mine = [line for line in lines if line.path == normalized(key.split(".")) and line.source != "writer"]
    return {Path(line.file).name: (line.min.toPython(), line.max.toPython()) for line in mine}


def test_files_of_this_package(spark, on, tmp_path):
    """Of files that `write` made, `analyze` restores statistics and tags byte for byte, from footers, and does it once (B5)."""
    dv.write(rows(spark), tmp_path / "t", shred={"v": SHAPE})
    without_bounds(tmp_path / "t", tmp_path / "copy")
    told = []
    done = dv.VariantTable.forPath(spark, tmp_path / "copy").analyze(progress=told.append)
    assert (done.version, done.commits, done.files, done.from_footers, done.rows) == (1, 1, 4, 4, 40)
    assert (done.changed, done.failed, done.feature) == ((), {}, None)
    assert [(p.files, p.files_total, p.rows) for p in told] == [(4, 4, 40)]
    for path, add in live(tmp_path / "t").items():
        again = live(tmp_path / "copy")[path]
        assert (again["stats"], again["tags"]) == (add["stats"], add["tags"])
        assert again == {**add, "dataChange": False}
    assert opened(on, tmp_path / "copy") == (1, 1)
    assert dv.VariantTable.forPath(spark, tmp_path / "copy").analyze().commits == 0
    assert last(tmp_path / "copy", "commitInfo")["operation"] == "COMPUTE STATS"


def test_the_length_of_strings_that_the_table_has(spark, tmp_path):
    """`analyze` cuts strings where `write` does: at the session's length, or the table's own from Delta 4.1 on."""
    create(spark, tmp_path / "t", more="")
    spark.sql(f"ALTER TABLE delta.`{tmp_path / 't'}` SET TBLPROPERTIES ('delta.dataSkippingStringPrefixLength' = '4')")
    dv.write(rows(spark).withColumn("v", F.expr("parse_json(concat('{\"k\":\"', repeat(n, 9), '\"}'))")), tmp_path / "t")
    without_bounds(tmp_path / "t", tmp_path / "copy")
    dv.VariantTable.forPath(spark, tmp_path / "copy").analyze()
    written, analyzed = live(tmp_path / "t"), live(tmp_path / "copy")
    assert {path: add["stats"] for path, add in analyzed.items()} == {path: add["stats"] for path, add in written.items()}
    assert all(len(low) == 4 for low, _ in stated(tmp_path / "copy", "k").values())


def test_files_of_delta_spark(spark, on, tmp_path):
    """delta-spark's files get the extremes of their rows; their paths are typed afterwards, rows stay the same (B5).

    One file has a row group, the other several.
    """
    create(spark, tmp_path)
    for first, groups in ((0, 1000), (20, 3)):
        with jvm.settings(spark, {"parquet.block.row.count.limit": str(groups)}):
            by_delta(spark, tmp_path, rows(spark, first, first + 20).coalesce(1))
    assert sorted(pq.ParquetFile(tmp_path / file).num_row_groups for file in live(tmp_path)) == [1, 7]
    before = rows_with_files(spark, tmp_path)
    assert opened(on, tmp_path) == (2, 0)
    done = dv.VariantTable.forPath(spark, tmp_path).analyze()
    assert (done.files, done.from_columns) == (2, 2)
    found = rows_with_files(spark, tmp_path)
    for key in ("id", "name", "o.k", "price"):
        assert stated(tmp_path, key) == extremes(found, key), key
    assert opened(on, tmp_path) == (1, 1)
    assert documents(found) == documents(before)


def test_plain_tables(spark, on, plain, tmp_path):
    """A plain table gets the feature, and the bounds of its rows; other readers read it as before."""
    tmp_path = shutil.copytree(plain[0], tmp_path / "t")
    done = dv.VariantTable.forPath(spark, tmp_path).analyze()
    assert (done.feature, done.files, done.from_values) == ("variantShredding", 4, 4)
    assert opened(on, tmp_path) == (1, 0)
    assert stated(tmp_path, "id") == plain[1]
    by_delta(spark, tmp_path, rows(spark, 40, 50))
    spark.sql(f"DELETE FROM delta.`{tmp_path}` WHERE n = 3")
    jvm.static(spark, "org.apache.spark.sql.delta.DeltaLog").forTable(spark._jsparkSession, str(tmp_path)).checkpoint()
    assert opened(on, tmp_path) == (3, 0), "the new file and the rewritten one have no bounds"
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")  # of 10,000 tasks
    spark.sql(f"VACUUM delta.`{tmp_path}`")
    spark.conf.unset("spark.sql.sources.parallelPartitionDiscovery.parallelism")
    assert len(rows_of(spark, tmp_path)) == 49
    files = [str(tmp_path / file) for file in live(tmp_path)]
    assert duckdb.sql(f"SELECT count(*), min(n) FROM read_parquet({files})").fetchall() == [(49, 0)]


def test_tags_only(spark, on, plain, tmp_path):
    """With tags alone the protocol stays as it is, and queries skip by the tags (M4)."""
    tmp_path = shutil.copytree(plain[0], tmp_path / "t")
    done = dv.VariantTable.forPath(spark, tmp_path).analyze(tags_only=True)
    assert (done.feature, done.files) == (None, 4)
    assert "variantShredding" not in json.dumps(actions(tmp_path, "protocol"))
    assert opened(on, tmp_path) == (1, 0)
    assert of_stats(dv.VariantTable.forPath(spark, tmp_path).stats().collect(), "id") == plain[1]
    assert all('"v"' not in json.dumps(json.loads(add["stats"])["minValues"]) for add in live(tmp_path).values())
    assert dv.VariantTable.forPath(spark, tmp_path).analyze(tags_only=True).commits == 0


@pytest.mark.parametrize("mode", share(["id", "name"], 2))
def test_mapped_columns(spark, tmp_path, mode):
    """With column mapping, files have physical names and ids; renamed columns, and VARIANTs in structs, are found."""
    more = f"TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}', 'delta.enableVariantShredding' = 'true')"
    columns = "n bigint, p bigint, s struct<w: variant>"
    create(spark, tmp_path, shredding=None, columns=columns, more=f"PARTITIONED BY (p) {more}")
    by_delta(spark, tmp_path, rows(spark).selectExpr("n", "p", "struct(v AS w) AS s"))
    for old, new in (("s", "t"), ("p", "q")):
        spark.sql(f"ALTER TABLE delta.`{tmp_path}` RENAME COLUMN {old} TO {new}")
    table = dv.VariantTable.forPath(spark, tmp_path)
    done = [table.analyze(columns=["T.w"], paths=["t.w:id"], where=where) for where in ("q = 1", None)]
    assert [(one.files, one.failed) for one in done] == [(1, {}), (3, {})]
    lines = dv.VariantTable.forPath(spark, tmp_path).stats().collect()
    assert {(line.column, line.source) for line in lines} == {("t.w", "delta-variant")}
    assert of_stats(lines, "id") == extremes(rows_with_files(spark, tmp_path, "t.w AS v"), "id")


def test_partitions_deletion_vectors_and_row_ids(spark, on, tmp_path):
    """`where` chooses partitions. Deletion vectors, row ids and statistics of other columns stay as they are."""
    enabled = ", ".join(f"'delta.enable{name}' = 'true'" for name in ("VariantShredding", "DeletionVectors", "RowTracking"))
    more = f"PARTITIONED BY (p) TBLPROPERTIES ({enabled})"
    create(spark, tmp_path, shredding=None, more=more)
    by_delta(spark, tmp_path)
    spark.sql(f"DELETE FROM delta.`{tmp_path}` WHERE n IN (3, 14)")
    before = live(tmp_path)
    table = dv.VariantTable.forPath(spark, tmp_path)
    assert table.analyze(where="p < 3").files == 3
    assert table.analyze().files == 1
    for path, add in live(tmp_path).items():
        kept = re.sub(r',?"v":"[^"]*"', "", add["stats"])
        assert kept == re.sub(r',?"v":"[^"]*"', "", before[path]["stats"])
        assert {**add, "stats": 0, "tags": 0} == {**before[path], "stats": 0, "tags": 0, "dataChange": False}
    first = {int(add["partitionValues"]["p"]): add["baseRowId"] for add in before.values()}
    ids = [(n, first[n // 10] + n % 10) for n in range(40) if n not in (3, 14)]
    assert sorted(map(tuple, spark.sql(f"SELECT n, _metadata.row_id FROM delta.`{tmp_path}`").collect())) == ids
    assert opened(on, tmp_path) == (1, 1)
    with pytest.raises(TableError, match="is not a predicate on the partition columns"):
        table.analyze(where="n = 3")


def test_the_checksum_counts_files_once(spark, base, tmp_path):
    """Delta's checksum of the version has the files and bytes of the one before: the same files are in the table."""
    tmp_path = shutil.copytree(base, tmp_path / "t")
    assert dv.VariantTable.forPath(spark, tmp_path).analyze().version == 3
    sums = [json.loads((tmp_path / "_delta_log" / f"{version:020}.crc").read_text()) for version in (2, 3)]
    assert {(s["numFiles"], s["tableSizeBytes"]) for s in sums} == {(4, sum(a["size"] for a in live(tmp_path).values()))}


def test_paths_by_name(spark, tmp_path):
    """A path asked for by name gets bounds in files that have the marker; what is there already is not committed again."""
    wide = "to_json(map_from_entries(transform(sequence(10, 50), k -> struct(concat('c', k), id + k))))"
    dv.write(spark.range(0, 20, 1, 2).selectExpr("id AS n", f"parse_json({wide}) AS v"), tmp_path, shred={"v": ddl(10, 50)})
    table = dv.VariantTable.forPath(spark, tmp_path)
    assert stated(tmp_path, "c50") == {}
    done = table.analyze(paths=["v:c50"])
    assert (done.files, done.from_footers) == (2, 2)
    assert sorted(stated(tmp_path, "c50").values()) == [(50, 59), (60, 69)]
    assert len(stated(tmp_path, "c10")) == 2
    assert table.analyze(paths=["v:c50"]).commits == 0


def ddl(first, last):
    return ", ".join(f"c{n} bigint" for n in range(first, last + 1))


def test_files_that_cannot_be_read(spark, base, tmp_path):
    """A missing or damaged file is named in the result; the others get bounds."""
    tmp_path = shutil.copytree(base, tmp_path / "t")
    first, second, *_ = live(tmp_path)
    (tmp_path / first).unlink()
    (tmp_path / second).write_bytes(b"PAR1 is not enough")
    done = dv.VariantTable.forPath(spark, tmp_path).analyze()
    assert done.files == 2
    assert set(done.failed) == {first, second}


def test_errors(spark, tmp_path):
    """Columns and paths that cannot have bounds are errors before anything changes."""
    create(spark, tmp_path, more="TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '2')", shredding=None)
    table = dv.VariantTable.forPath(spark, tmp_path)
    for arguments, error, text in [
        ({"columns": ["n"]}, InvalidSchemaError, "n is not a VARIANT column"),
        ({"columns": ["x"]}, InvalidSchemaError, "x is not a VARIANT column"),
        ({"paths": ["v"]}, InvalidPathError, "write it as v:actor.id"),
        ({"paths": ["v:a[0]"]}, InvalidPathError, "through objects"),
        ({"columns": "vs"}, InvalidSchemaError, "columns='vs' must be a list: ['vs']"),  # not the columns v and s
        ({"paths": "v:a"}, InvalidSchemaError, "paths='v:a' must be a list: ['v:a']"),
        ({"bloom": "v:a"}, InvalidSchemaError, "bloom='v:a' must be a list: ['v:a']"),
        ({}, TableError, "keeps no statistics of v"),
    ]:
        with pytest.raises(error, match=re.escape(text)):
            table.analyze(**arguments)


# ---- beside other writers ------------------------------------------------------------------------------------------------


CHANGING = ("overwrite", "DELETE", "UPDATE", "MERGE", "OPTIMIZE", "analyze", "RESTORE")
"""Those that change or remove files of the table."""
CONFLICTS = {
    **dict.fromkeys(("overwrite", "DELETE", "UPDATE", "MERGE"), "ConcurrentAppendException"),
    "RESTORE": "ConcurrentWriteException",
}
"""Delta's error if the analysis commits before them."""
CASES = share(itertools.product(OTHERS, ("first", "second")), 3, 1)
"""The other writer, and whether the analysis is the first to begin. Those that `make test` lacks it has in test_optimize."""


@pytest.fixture(scope="module", params=DELETION_VECTORS)
def base(request, spark, tmp_path_factory):
    return two_commits(spark, tmp_path_factory.mktemp("analyze") / "base", request.param)


@pytest.fixture(scope="module")
def texts(spark):
    return documents_by_id(spark)


@pytest.mark.slow
@pytest.mark.parametrize(("other", "order"), CASES)
def test_beside_other_writers(spark, gate, base, texts, tmp_path, other, order):
    """An analysis steps around what others changed; others end as Delta has it when files are added that they have read (W4).

    No row is lost or comes back, and bounds hold for the rows of every file.
    """
    path = str(tmp_path / "t")
    shutil.copytree(base, path)
    if other == "RESTORE":
        by_delta(spark, path, rows(spark, 50, 60))
    results = []
    ours = lambda: results.append(dv.VariantTable.forPath(spark, path).analyze())  # noqa: E731
    theirs = partial(OTHERS[other], spark)
    if order == "first":
        assert both(spark, gate, path, ours, partial(theirs, path)) == ("done", "done")
    else:
        assert both(spark, gate, path, partial(theirs, path), ours) == (CONFLICTS.get(other, "done"), "done")
    found = rows_with_files(spark, path)
    assert documents(found) == documents_after(texts, other, done=order == "first" or other not in CONFLICTS)
    for key in ("id", "name"):
        of_log, of_rows = stated(path, key), extremes(found, key)
        for file in of_log.keys() & of_rows.keys():
            assert of_log[file][0] <= of_rows[file][0] <= of_rows[file][1] <= of_log[file][1], file
    [done] = results
    if order == "first":
        kept = {file for file, add in live(base).items() if live(path).get(file, {}).get("size") == add["size"]}
        assert bool(done.changed) == (other in CHANGING), "the files that the other writer changed are named"
        assert done.files + len(done.changed) == 4 + (other == "RESTORE")
        assert all(stats.BOUNDS_TAG in live(path)[file].get("tags", {}) for file in kept - set(done.changed))


def test_batches(spark, base, tmp_path, monkeypatch):
    """Files are committed in batches, and progress is told after each."""
    path = tmp_path / "t"
    shutil.copytree(base, path)
    monkeypatch.setattr(driver, "BATCH_FILES", 2)
    told = []
    done = dv.VariantTable.forPath(spark, path).analyze(progress=told.append)
    assert done.files == 4
    assert done.commits <= len(told) == 2
    assert [p.files for p in told][-1] == 4


# ---- inspect -------------------------------------------------------------------------------------------------------------


def test_inspect(spark, tmp_path):
    """`inspect` has layout, schema, counts and bounds of each file and path, and what the footer and the log prove."""
    dv.write(rows(spark, 0, 10), tmp_path, shred={"v": "id bigint, name bigint, o struct<k: bigint>"})
    dv.write(rows(spark, 10, 20), tmp_path, shred=False)
    shredded, plain = live(tmp_path)
    found = dv.VariantTable.forPath(spark, tmp_path).inspect().collect()
    lines = {(row.file, row.path): row for row in found}
    assert {path for file, path in lines if file == shredded} == {"$", "$['id']", "$['name']", "$['o']", "$['o']['k']"}
    ident = lines[shredded, "$['id']"]
    assert (ident.type, ident.typed, ident.residual, ident.proven) == ("bigint", 10, 0, True)
    assert (ident.min, ident.max, ident.rows, ident.layout) == ("0", "9", 10, "final")
    assert ident.schema == "id bigint, name bigint, o struct<k: bigint>"
    name = lines[shredded, "$['name']"]
    assert (name.typed, name.residual, name.proven, name.min) == (0, 10, False, None)
    assert lines[shredded, "$['o']['k']"].typed == 3
    assert lines[shredded, "$"].residual == 10, "rows with a price, which has no typed column"
    whole = lines[plain, "$"]
    assert (whole.schema, whole.type, whole.rows) == (None, None, 10)
    (tmp_path / plain).unlink()
    [broken] = dv.VariantTable.forPath(spark, tmp_path).inspect().where("error IS NOT NULL").collect()
    assert broken.file == plain
