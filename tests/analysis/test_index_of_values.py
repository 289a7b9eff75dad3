"""The index of values of tables: `analyze(bloom=…)`, and the queries that it serves.

membership/test_filters tests the filters without Spark.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import shutil
from decimal import Decimal
from functools import partial

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import delta_variant as dv
from delta_variant import explanation, jvm
from delta_variant.errors import InvalidPathError, InvalidSchemaError, TableError
from delta_variant.membership import sidecars as index_files
from delta_variant.scanning.files import FileReader
from delta_variant.transaction import Table
from tests.analysis.indexed import FILES, ROWS, rows, sidecars
from tests.gates import both
from tests.generated.predicates import string
from tests.logs import live
from tests.strategies import column
from tests.support import forget, scans, share, without_rules

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]

PATHS = ["v:cid", "v:n", "v:o.price"]
NEEDLE = "v:cid::string = sha1('77')"


def append(spark, path, first=0, last=ROWS, files=FILES, **options):
    """Appends these rows in so many files."""
    assert dv.write(rows(spark, first, last, files), path, **options).files == files


def digest(number):
    """The cid of a row."""
    return hashlib.sha1(str(number).encode()).hexdigest()


@pytest.fixture(scope="module")
def bare(spark, tmp_path_factory):
    """A table without an index, whose bounds rule out no file for a value in the middle. No test changes it."""
    path = tmp_path_factory.mktemp("index") / "bare"
    append(spark, path)
    return path


@pytest.fixture(scope="module")
def base(spark, bare):
    """The same table with an index in each file."""
    path = shutil.copytree(bare, bare.parent / "base")
    done = table(spark, path).analyze(bloom=PATHS, budget=0.5)
    assert (done.files, done.commits, done.version) == (0, 1, 1), "bounds are not computed"
    assert (done.indexed.files, done.indexed.filters) == (FILES, 3 * FILES)
    assert (done.indexed.no_room, done.indexed.mixed, done.indexed.failed) == ({}, {}, {})
    return path


@pytest.fixture
def copy(base, tmp_path):
    shutil.copytree(base, tmp_path / "t")
    return tmp_path / "t"


def table(spark, path):
    return dv.VariantTable.forPath(spark, path)


def opened(on, path, number=77, *, rows=1, version=""):
    """How many files the look-up of a row opens. It finds the row, or none if the table has it no longer."""
    query = on.sql(f"SELECT id, v:cid::string AS cid FROM delta.`{path}` {version} WHERE v:cid::string = sha1('{number}')")
    [scan] = scans(query)
    assert [tuple(row) for row in query.collect()] == [(number, digest(number))] * rows
    return scan.files_after_bounds


def opened_by_each(on, source, predicates, wanted):
    """How many files the query of each predicate opens, in one union of them. wanted: the rows that they must have."""
    query = "SELECT {} AS number, id, v:cid::string AS cid FROM {} WHERE {}"
    union = on.sql(" UNION ALL ".join(query.format(number, source, where) for number, where in enumerate(predicates)))
    counts = [scan.files_after_bounds for scan in scans(union)]
    assert len(counts) == len(predicates)
    found = [[] for _ in predicates]
    for row in union.collect():
        found[row.number].append((row.id, row.cid))
    for where, ids in zip(predicates, found, strict=True):
        assert sorted(ids) == wanted[where], where
    return counts


def known(on, source, predicates):
    """The rows for each predicate, by one full scan without rules."""
    columns = ", ".join(f"({where}) AS p{number}" for number, where in enumerate(predicates))
    with without_rules(on):
        found = on.sql(f"SELECT id, v:cid::string AS cid, {columns} FROM {source}").collect()
    return {where: sorted((row.id, row.cid) for row in found if row[f"p{number}"]) for number, where in enumerate(predicates)}


LOOKUPS = {
    NEEDLE: (1, 2),
    "sha1('77') = variant_get(v, '$.cid', 'string')": (1, 2),
    "v:cid::string <=> sha1('77')": (1, 2),
    "v:cid::string IN (sha1('77'), sha1('3999'), 'x')": (2, 4),
    "v:cid::string = 'x'": (0, 2),
    "v:n::bigint = 2000": (1, 3),
    "v:n::int = 2000L": (1, 3),
    "v:n::decimal(10,2) = 2000.00": (1, 3),
    "v:o.price::decimal(10,2) = 20.25": (1, 3),
    "v:o.price::decimal(10,3) = 20.25": (1, 3),
    "v:n::bigint = 2000 OR v:cid::string = sha1('77')": (1, 5),
    "v:n::bigint = 2000 AND id < 10": (0, 2),
    "v:cid::string = sha1('77') AND v:few::int > -1": (1, 2),
}
"""Predicates that the index answers: the least and the most files that they open."""
OTHERS = [
    "v:cid::string <> sha1('77')",
    "NOT v:cid::string = sha1('77')",
    "v:cid::string > sha1('77') AND v:cid::string < sha1('78')",
    "upper(v:cid::string) = upper(sha1('77'))",
    "collate(v:cid::string, 'UTF8_LCASE') = 'D321D6F7CCF98B51540EC9D933F20898AF3BD71E'",
    "v:n::double = 2000",
    "v:n::string = '2000'",
    "v:o.price::int = 20",
    "v:o.price::decimal(10,1) = 20.2",
    "v:few::int = 2",
    "v:cid::string = sha1('77') OR v:few::int = 2",
]
"""Predicates that it does not answer, because equal values of the query may be different values of the file."""


BESIDE_DAMAGE = [NEEDLE, "v:n::bigint = 2000", "v:o.price::decimal(10,2) = 20.25", "v:cid::string = sha1('1234')"]


@pytest.fixture(scope="module")
def in_base(on, base):
    """The rows of the table for each predicate, without rules."""
    return known(on, f"delta.`{base}`", list(dict.fromkeys([*LOOKUPS, *OTHERS, *BESIDE_DAMAGE])))


@pytest.fixture(scope="module")
def opened_in_base(on, base, in_base):
    """How many files each predicate opens; its rows are those of a full scan."""
    predicates = [*LOOKUPS, *OTHERS]
    return dict(zip(predicates, opened_by_each(on, f"delta.`{base}`", predicates, in_base), strict=True))


@pytest.mark.parametrize("where", [where for where in LOOKUPS if "collate" not in where and "2000L" not in where])
def test_lookups_without_spark(base, in_base, opened_in_base, where, monkeypatch):
    """`scan` opens the files that Spark opens, and has its rows (I4). For a single file, Spark does not ask the index."""
    seen = []
    batches = FileReader.batches
    monkeypatch.setattr(FileReader, "batches", lambda self: seen.append(self) or batches(self))
    literal = re.sub(r"sha1\('(\w+)'\)", lambda found: repr(hashlib.sha1(found[1].encode()).hexdigest()), where)
    found = dv.scan(base, ["id"], literal).read_all()["id"].to_pylist()
    assert sorted(found) == [ident for ident, _ in in_base[where]]
    assert len(seen) <= opened_in_base[where]


@pytest.mark.parametrize("where", LOOKUPS)
def test_lookups(opened_in_base, where):
    """A look-up opens the files that have the value, and few others; its rows are those of a full scan (I4)."""
    least, most = LOOKUPS[where]
    assert least <= opened_in_base[where] <= most


def test_what_the_index_does_not_answer(opened_in_base):
    """A comparison whose cast may make different values equal, and one that is no equality, is left to bounds (I4)."""
    for where in OTHERS:
        assert opened_in_base[where] > FILES / 2, where


def test_explained(on, base):
    """`explain` says how many files the index rules out, and how many have no filter."""
    [scan] = dv.explain(on.sql(f"SELECT v FROM delta.`{base}` WHERE {NEEDLE}")).scans
    [finding] = scan.findings
    assert finding.files_ruled_out == FILES - scan.files_after_bounds
    assert finding.files_by_index >= finding.files_ruled_out - 3
    text = str(explanation.Report([scan]))
    assert f"rules out {finding.files_ruled_out} of {FILES} files, {finding.files_by_index} of them by the index" in text
    assert not finding.reasons
    [scan] = dv.explain(on.sql(f"SELECT v FROM delta.`{base}` WHERE v:few::int = 2")).scans
    assert scan.findings[0].files_by_index == 0


def test_joins_and_commands(spark, on, base, copy):
    """Keys of a join, and DELETE, UPDATE and MERGE, are looked up as constants are (I4)."""
    query = on.sql(f"SELECT id FROM delta.`{base}` JOIN (VALUES (sha1('77')), (sha1('78'))) k(c) ON v:cid::string = c")
    [scan] = [scan for scan in scans(query) if scan.files_total]
    assert scan.files_after_bounds <= 4
    assert sorted(row.id for row in query.collect()) == [77, 78]
    assert on.sql(f'UPDATE delta.`{copy}` SET v = parse_json(\'{{"cid": "new"}}\') WHERE {NEEDLE}').first()[0] == 1
    assert on.sql(f"DELETE FROM delta.`{copy}` WHERE v:cid::string IN (sha1('78'), 'new')").first()[0] == 2
    assert opened(on, copy, rows=0) <= 2, "the rewritten file has no filter"
    assert on.sql(f"SELECT count(*) FROM delta.`{copy}`").first()[0] == ROWS - 2


def test_every_value_is_found(spark, on, tmp_path):
    """Whatever the value, its file is opened: the driver has the hashes and the filters of the tasks (I2, I3)."""
    texts = ["", " ", "a", "é", "\U0001f600" * 3, "it's", *("x" * size for size in (3, 4, 7, 8, 31, 32, 33, 63, 64, 100, 5000))]
    numbers = [
        "0",
        "5",
        "-5",
        "5.50",
        "0.001",
        "-0.25",
        "9223372036854775807",
        "1" * 30,
        "12345678901234567890.123456",
        "-" + "9" * 33 + ".5",
    ]
    documents = [{"s": text, "n": Decimal(number)} for text, number in itertools.zip_longest(texts, numbers, fillvalue="0")]
    documents = [{**document, "s": document["s"] or ""} for document in documents]
    source = str(tmp_path / "source.parquet")
    dv.parquet.write_table(pa.table({"part": [number % 4 for number in range(len(documents))], "v": column(documents)}), source)
    dv.write(spark.read.parquet(source).repartitionByRange(4, "part"), tmp_path / "t")
    assert table(spark, tmp_path / "t").analyze(bloom=["v:s", "v:n"], budget=1.0).indexed.filters == 8
    asked = []
    for document in documents:
        scale = max(0, -document["n"].as_tuple().exponent)
        equal = f"try_variant_get(v, '$.n', 'decimal(38,{scale})') = {document['n']:f}BD"
        asked.append(f"v:s::string = {string(document['s'])} AND {equal}")
    query = "SELECT {} AS number FROM delta.`{}` WHERE {}"
    union = " UNION ALL ".join(query.format(number, tmp_path / "t", where) for number, where in enumerate(asked))
    found = {row.number for row in on.sql(union).collect()}
    assert [where for number, where in enumerate(asked) if number not in found] == []


# ---- what becomes of it ---------------------------------------------------------------------------------------------------


def test_appended_files_are_kept(spark, on, copy):
    """Files that were added since have no filter and are opened; the next analysis indexes them alone (I1)."""
    append(spark, copy, ROWS, ROWS + 400, 2)
    rows(spark, ROWS + 400, ROWS + 600, 1).write.format("delta").mode("append").save(str(copy))
    assert 4 <= opened(on, copy) <= 5
    [scan] = dv.explain(on.sql(f"SELECT v FROM delta.`{copy}` WHERE {NEEDLE}")).scans
    assert f"the index has no filter for v:cid in 3 of {FILES + 3} files" in scan.reasons
    assert opened(on, copy, 4500) <= 5
    done = table(spark, copy).analyze(bloom=PATHS, budget=0.5).indexed
    assert (done.files, done.filters) == (3, 9)
    assert opened(on, copy) <= 2
    before = {file: file.stat().st_mtime_ns for file in sidecars(copy)}
    done = table(spark, copy).analyze(bloom=PATHS, budget=0.5)
    assert (done.indexed.files, done.commits) == (0, 0)
    assert before == {file: file.stat().st_mtime_ns for file in sidecars(copy)}


def test_written_filters(spark, on, tmp_path):
    """Paths of the table property get filters with the files of every write, and by `analyze` those of other writers (I1)."""
    append(spark, tmp_path, 0, 400, 4)
    assert not sidecars(tmp_path)
    properties = "'delta_variant.bloom.v' = 'cid, o.price', 'delta_variant.indexBudget' = '0.5'"
    spark.sql(f"ALTER TABLE delta.`{tmp_path}` SET TBLPROPERTIES ({properties})")
    append(spark, tmp_path, 400, ROWS, FILES - 4)
    log = Table.of(spark, f"delta.`{tmp_path}`").log
    assert log.update(False, jvm.scala_option(spark), jvm.scala_option(spark)).transactions().contains(index_files.APPLICATION)
    [priced] = [number for number in range(ROWS) if number * 31 % 4001 == 2025]
    wanted = {"v:cid::string = sha1('777')": 777, "v:o.price::decimal(10,2) = 20.25": priced}
    found = {where: [(number, digest(number))] for where, number in wanted.items()}
    assert max(opened_by_each(on, f"delta.`{tmp_path}`", list(found), found)) <= 4 + 2
    done = table(spark, tmp_path).analyze()
    assert (done.indexed.files, done.indexed.filters) == (4, 8)
    assert opened(on, tmp_path, 777) <= 2
    optimized = table(spark, tmp_path).optimize(cluster_by=["v:n"], max_file_size=20_000)
    assert optimized.files_added > 3
    assert table(spark, tmp_path).analyze().indexed.files == 0
    assert opened(on, tmp_path, 777) <= 2
    append(spark, tmp_path, 0, 400, 4, mode="overwrite")
    assert opened(on, tmp_path) <= 2
    spark.sql(f"ALTER TABLE delta.`{tmp_path}` SET TBLPROPERTIES ('delta_variant.indexBudget' = '2')")
    with pytest.raises(TableError, match=r"table property .*indexBudget=2 is not a share"):
        append(spark, tmp_path, 0, 1, 1)


def test_small_files_are_put_together(spark, on, copy, monkeypatch):
    """Many small files of the index become one. Entries of removed files go, but not those of young ones (I1)."""
    properties = "'delta_variant.bloom.v' = 'cid', 'delta_variant.indexBudget' = '0.5'"
    spark.sql(f"ALTER TABLE delta.`{copy}` SET TBLPROPERTIES ({properties})")
    folder = copy / index_files.directory(("v",), ("cid",))
    for first in range(ROWS, ROWS + 150, 50):
        append(spark, copy, first, first + 50, 1)
    before = len(list(folder.glob("*.parquet")))
    assert before >= 4
    table(spark, copy).analyze()
    assert len(list(folder.glob("*.parquet"))) == before
    monkeypatch.setattr(index_files, "MANY", 2)
    spark.sql(f"DELETE FROM delta.`{copy}` WHERE id >= {ROWS + 50} AND id < {ROWS + 100}")
    table(spark, copy).analyze()
    left = list(folder.glob("*.parquet"))
    assert len(left) == 2, "the others in one file, and a young one with the filter of a removed file"
    assert opened(on, copy, ROWS + 120) <= 2
    assert opened(on, copy, ROWS + 70, rows=0) <= 1
    for file in left:
        os.utime(file, (0, 0))
    monkeypatch.setattr(index_files, "MANY", 0)
    table(spark, copy).analyze()
    [file] = folder.glob("*.parquet")
    assert pq.read_table(file).num_rows == FILES + 2
    assert opened(on, copy) <= 2


DAMAGES = ["missing", "empty", "cut", "changed", "text", "foreign", "all changed"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_index(on, copy, in_base, damage):
    """Whatever becomes of the files of the index, no row is lost, and the data files of damaged ones are kept (I1)."""
    some = sidecars(copy)
    for number, file in enumerate(some):
        data = file.read_bytes()
        if damage == "all changed" or number % 2:
            continue_at = len(data) // 3
            made = {
                "missing": None,
                "empty": b"",
                "cut": data[: len(data) // 2],
                "changed": data[:continue_at] + bytes([data[continue_at] ^ 0xFF]) + data[continue_at + 1 :],
                "all changed": bytes(byte ^ 0xA5 for byte in data),
                "text": b"not Parquet",
                "foreign": some[number - 1].read_bytes() if some[number - 1].parent != file.parent else b"",
            }[damage]
            file.unlink()
            if made is not None:
                file.write_bytes(made)
    asked = [NEEDLE, *share(BESIDE_DAMAGE[1:], 3, DAMAGES.index(damage) % 3)]
    count, *_ = opened_by_each(on, f"delta.`{copy}`", asked, in_base)
    assert count == FILES if damage == "all changed" else count >= 1


def test_another_file_of_the_same_name(on, copy):
    """A filter counts only for a file of the size that it was made for (I1)."""
    folder = copy / index_files.directory(("v",), ("cid",))
    for file in folder.iterdir():
        found = pq.read_table(file)
        sizes = found.column("size").to_pylist()
        changed = found.set_column(1, "size", [[size + 1 for size in sizes]])
        pq.write_table(changed.replace_schema_metadata(found.schema.metadata), file)
    assert opened(on, copy) == FILES


VACUUM = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # of 10,000 tasks
}


@pytest.mark.slow
def test_kept_by_vacuum_and_read_by_others(spark, on, copy):
    """VACUUM, checkpoints, RESTORE, time travel and clones leave rows as they are; other engines read the table (I1)."""
    kept = sidecars(copy)
    spark.sql(f"DELETE FROM delta.`{copy}` WHERE id < 300")
    for name, value in VACUUM.items():
        spark.conf.set(name, value)
    spark.sql(f"VACUUM delta.`{copy}` RETAIN 0 HOURS")
    for name in VACUUM:
        spark.conf.unset(name)
    assert sidecars(copy) == kept
    jvm_log = Table.of(spark, f"delta.`{copy}`").log
    jvm_log.checkpoint(jvm_log.update(False, jvm.scala_option(spark), jvm.scala_option(spark)), jvm.scala_option(spark))
    forget(spark)
    assert opened(on, copy, 777) <= 4
    spark.sql(f"OPTIMIZE delta.`{copy}`")
    assert opened(on, copy, 777) == 1
    files = [str(copy / file) for file in live(copy)]
    assert duckdb.sql(f"SELECT count(*) FROM read_parquet({files})").fetchall() == [(ROWS - 300,)]
    assert sum(pq.read_table(file, columns=["id"]).num_rows for file in files) == ROWS - 300


@pytest.mark.slow
def test_versions_and_clones(spark, on, copy, tmp_path):
    """Older and restored versions, shallow clones and copied directories have the rows that they have without an index (I1)."""
    append(spark, copy, ROWS, ROWS + 200, 1)
    assert opened(on, copy, version="VERSION AS OF 0") == FILES, "before it was announced"
    assert opened(on, copy, version="VERSION AS OF 1") <= 2
    spark.sql(f"RESTORE TABLE delta.`{copy}` TO VERSION AS OF 0")
    assert opened(on, copy) <= 2
    clone = tmp_path / "clone"
    spark.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{copy}`")
    assert opened(on, clone) == FILES, "the files of a clone are elsewhere"
    table(spark, clone).analyze(bloom=["v:cid"], budget=0.5)
    assert opened(on, clone) <= 2
    moved = tmp_path / "moved"
    shutil.copytree(copy, moved)
    assert opened(on, moved) <= 2


def rows_in_log(path):
    """The number of rows of a table without deletion vectors."""
    return sum(json.loads(add["stats"])["numRecords"] for add in live(path).values())


@pytest.mark.slow
def test_concurrent_append(spark, gate, copy):
    """An append and an analysis at the same time are both done, whichever commits first, and no row is lost (I1)."""
    bare = copy.parent / "bare"
    append(spark, bare, 0, 400, 4)
    for order in (0, 1):
        path = copy.parent / f"t{order}"
        shutil.copytree(bare, path)
        results = []
        ours = lambda: results.append(table(spark, path).analyze(bloom=["v:cid"], budget=0.2))  # noqa: B023, E731
        theirs = lambda: rows(spark, 400, 500, 1).write.format("delta").mode("append").save(str(path))  # noqa: B023, E731
        assert both(spark, gate, str(path), *([ours, theirs] if order else [theirs, ours])) == ("done", "done")
        assert rows_in_log(path) == 500
        assert results[0].indexed.filters >= 4


@pytest.mark.slow
def test_concurrent_writes(spark, gate, on, tmp_path):
    """Two writes that both announce the index are both done (I1)."""
    append(spark, tmp_path, 0, 400, 4)
    properties = "'delta_variant.bloom.v' = 'cid', 'delta_variant.indexBudget' = '0.5'"
    spark.sql(f"ALTER TABLE delta.`{tmp_path}` SET TBLPROPERTIES ({properties})")
    writes = [partial(append, spark, tmp_path, first, first + 200, 1) for first in (400, 600)]
    assert both(spark, gate, str(tmp_path), *writes) == ("done", "done")
    assert rows_in_log(tmp_path) == 800
    assert opened(on, tmp_path, 777) <= 5


def test_room_and_types(spark, bare, tmp_path):
    """The index takes at most its share of the data's size; the result names paths without room, or without a type (I3)."""
    path = shutil.copytree(bare, tmp_path / "t")
    done = table(spark, path).analyze(bloom=["v:cid", "v:o"]).indexed
    assert done.no_room.keys() == {"v:cid"}
    assert done.mixed == {"v:o": FILES}
    done = table(spark, path).analyze(bloom=["v:cid"], budget=0.5).indexed
    assert (done.filters, done.no_room) == (FILES, {})
    assert 0 < done.bytes < 0.5 * done.bytes_data


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"bloom": ["id:a"]}, InvalidSchemaError),
        ({"bloom": ["v:a[0]"]}, InvalidPathError),
        ({"bloom": ["v:a"], "budget": 0}, TableError),
    ],
)
def test_refused(spark, base, arguments, error):
    """A column that is not VARIANT, a path through an array and a budget that is none are errors."""
    with pytest.raises(error):
        table(spark, base).analyze(**arguments)
