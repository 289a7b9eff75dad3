"""Files that have changed since `ingest` or `convert` took them: reported, refused, or loaded again, each row once."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import delta_variant as dv
from delta_variant import ingestion, parquet
from delta_variant.errors import DeltaVariantWarning, InvalidSchemaError, TableError, UnsupportedFeatureError
from delta_variant.reloading import ListedFile
from delta_variant.writer import planning
from tests.contents import read
from tests.logs import commits, last, live, newest
from tests.sources import rows as variants

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]

_clock = itertools.count(1_700_000_000)


class Json:
    """Files of JSON lines and `ingest`."""

    load = staticmethod(dv.ingest)
    suffix = ".jsonl"

    @staticmethod
    def put(path: Path, numbers, time: float | None = None) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps({"id": n}) + "\n" if n >= 0 else f'{{"id": {n}\n' for n in numbers))
        time = next(_clock) if time is None else time
        os.utime(path, (time, time))
        return path

    @staticmethod
    def found(spark, table) -> list[int]:
        return sorted(row[0] for row in read(spark, table).selectExpr("v:id::int").collect())


class Parquet:
    """Files of Parquet and `convert`."""

    load = staticmethod(dv.convert)
    suffix = ".parquet"

    @staticmethod
    def put(path: Path, numbers, time: float | None = None) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        first = min(numbers)
        assert sorted(numbers) == list(range(first, first + len(numbers)))
        parquet.write_table(variants(first, first + len(numbers)), path)
        time = next(_clock) if time is None else time
        os.utime(path, (time, time))
        return path

    @staticmethod
    def found(spark, table) -> list[int]:
        return sorted(row.n for row in read(spark, table).select("n").collect())


KINDS = pytest.mark.parametrize("kind", [Json, Parquet], ids=["ingest", "convert"])


@pytest.mark.parametrize("path_column", [None, "origin"])
@KINDS
def test_reload(spark, tmp_path, kind, path_column):
    """Of three files of a commit, one grew, one was corrected and one stayed: each has its newest rows, once (W9)."""
    options = {} if path_column is None else {"path_column": path_column}
    files = [tmp_path / "in" / f"it's {name}{kind.suffix}" for name in "abc"]
    for number, file in enumerate(files):
        kind.put(file, range(number * 100, number * 100 + 3))
    kind.load(spark, tmp_path / "in", tmp_path / "t", **options)
    kind.put(files[0], range(8))
    kind.put(files[1], range(150, 152), time=1_600_000_000.25)  # older than what the table has
    kind.put(tmp_path / "in" / f"new{kind.suffix}", range(500, 504))
    with pytest.warns(DeltaVariantWarning, match=r"2 files have changed since .*/t took them: .*a\.\w+, .*b\.\w+\. .*'reload'"):
        done = kind.load(spark, tmp_path / "in", tmp_path / "t", **options)
    assert (done.changed, done.files, done.skipped, done.rows) == (2, 1, 3, 4)
    before = newest(tmp_path / "t")
    with pytest.raises(TableError, match=r"2 files have changed since .*a\.\w+, .*b\.\w+; changed='reload' replaces"):
        kind.load(spark, tmp_path / "in", tmp_path / "t", changed="error", **options)
    assert newest(tmp_path / "t") == before
    done = kind.load(spark, tmp_path / "in", tmp_path / "t", changed="reload", **options)
    again = 2 if path_column else 3
    assert (done.changed, done.files, done.skipped, done.commits) == (2, again, 4 - again, 1)
    rows = [*range(8), *range(150, 152), *range(200, 203), *range(500, 504)]
    assert kind.found(spark, tmp_path / "t") == rows
    if path_column:
        origins = Counter(Path(row[0]).name for row in read(spark, tmp_path / "t").select(path_column).collect())
        assert sorted(origins.values()) == [2, 3, 4, 8]
    for changed in ("reload", "error", "skip"):
        done = kind.load(spark, tmp_path / "in", tmp_path / "t", changed=changed, **options)
        assert (done.version, done.changed, done.skipped) == (None, 0, 4)
    assert newest(tmp_path / "t") == before + 1


def test_arguments(spark, tmp_path):
    """Choices that there are not, or that leave nothing to choose, are refused; so is a column that files have already."""
    file = Parquet.put(tmp_path / "a.parquet", range(3))
    for load in (dv.ingest, dv.convert):
        with pytest.raises(UnsupportedFeatureError, match="changed='again' is not one of skip, error, reload"):
            load(spark, file, tmp_path / "t", changed="again")
        for changed in ("reload", "error"):
            with pytest.raises(UnsupportedFeatureError, match="force=True"):
                load(spark, file, tmp_path / "t", changed=changed, force=True)
    with pytest.raises(InvalidSchemaError, match="a column N already"):
        dv.convert(spark, file, tmp_path / "t", path_column="N")
    assert not (tmp_path / "t").exists()


def sql(spark, text: str, table: Path) -> None:
    spark.sql(text.replace("{t}", f"delta.`{table}`"))


def take(spark, folder: Path, table: Path, **options):
    return dv.ingest(spark, folder, table, changed="reload", **options)


def test_what_happened_since(spark, tmp_path):
    """Without a path column, whole commits are loaded again while their data files are whole, whatever others became (W9)."""
    folder, table = tmp_path / "in", tmp_path / "t"
    a, b, c, d = (folder / f"{name}.jsonl" for name in "abcd")
    Json.put(a, [0, 1])
    Json.put(b, [10, 11])
    dv.ingest(spark, folder, table)
    Json.put(c, [20])
    dv.ingest(spark, folder, table)
    spark.sql(f"INSERT INTO delta.`{table}` SELECT parse_json('{{\"id\": 1000}}')")
    dv.ingest(spark, c, table, force=True)
    dv.VariantTable.forPath(spark, table).analyze()
    others = {path for path, add in live(table).items()}
    Json.put(d, [])
    dv.ingest(spark, folder, table)
    # c twice, by force: both loads are replaced; d was empty.
    Json.put(c, [21, 22])
    Json.put(d, [30])
    done = take(spark, folder, table)
    assert (done.changed, done.files, done.rows) == (2, 2, 3)
    assert Json.found(spark, table) == [0, 1, 10, 11, 21, 22, 30, 1000]
    assert len(others & live(table).keys()) == len(others) - 2
    # A reload can be loaded again itself, and so can what came back by RESTORE.
    Json.put(c, [23])
    take(spark, folder, table)
    version = newest(table)
    Json.put(a, [2])
    take(spark, folder, table)
    assert Json.found(spark, table) == [2, 10, 11, 23, 30, 1000]
    sql(spark, f"RESTORE {{t}} TO VERSION AS OF {version}", table)
    assert Json.found(spark, table) == [0, 1, 10, 11, 23, 30, 1000]
    Json.put(b, [12])
    take(spark, folder, table)
    assert Json.found(spark, table) == [2, 12, 23, 30, 1000]
    # DELETE of whole data files moves no rows: the file's rows come back, as they are now.
    sql(spark, "DELETE FROM {t}", table)
    Json.put(c, [24])
    take(spark, folder, table)
    assert Json.found(spark, table) == [24]


def test_old_rows_that_are_not_known(spark, tmp_path):
    """If the old rows may be anywhere, a reload is one error before anything is written; the way out leads on (W9)."""
    folder = tmp_path / "in"
    a, b, c = (folder / name for name in ("a.jsonl", "b.jsonl", "z/c.jsonl"))
    times = [next(_clock) for _ in range(3)]

    def before() -> None:
        for file, numbers, time in zip((a, b, c), ([0, 1], [10], [20]), times, strict=True):
            Json.put(file, numbers, time)

    before()
    dv.ingest(spark, [a, b], tmp_path / "t")
    dv.ingest(spark, folder, tmp_path / "t")
    cases = {
        "DELETE FROM {t} WHERE v:id::int = 10": "DELETE in version 2",
        "INSERT OVERWRITE {t} SELECT * FROM {t} WHERE v:id::int < 1000": "WRITE in version 2",
        "b is gone": "with those of 1 files that are not in this listing",
        "the log is cleaned up": "the log begins with version 1",
        "OPTIMIZE {t}": "OPTIMIZE in version 2",
        "RESTORE {t} TO VERSION AS OF 1": "RESTORE in version 3 has brought back data files from before version 1",
    }
    for number, (since, reason) in enumerate(cases.items()):
        before()
        table = Path(shutil.copytree(tmp_path / "t", tmp_path / str(number)))
        if since == "b is gone":
            b.unlink()
        elif since == "the log is cleaned up" or since.startswith("RESTORE"):
            if since.startswith("RESTORE"):
                Json.put(a, [3])
                take(spark, folder, table)
                sql(spark, since, table)
            dv.VariantTable.forPath(spark, table)._table.log.checkpoint()
            (table / "_delta_log" / f"{0:020}.json").unlink()
        else:
            sql(spark, since, table)
        Json.put(a, [0, 1, 2])
        version = newest(table)
        with pytest.raises(TableError, match=rf"a\.jsonl has changed, and .*{reason}.*DELETE its rows and load it alone"):
            take(spark, folder, table)
        assert newest(table) == version
    sql(spark, "DELETE FROM {t} WHERE v:id::int < 10", table)
    dv.ingest(spark, a, table, force=True)
    Json.put(folder / "new.jsonl", [30])
    done = take(spark, folder, table)
    assert (done.changed, done.rows) == (0, 1)
    assert Json.found(spark, table) == [0, 1, 2, 10, 20, 30]


def test_a_path_column_that_came_later(spark, tmp_path):
    """Rows from before the path column are found by the log; then, and after OPTIMIZE, by the column (W9)."""
    folder, table = tmp_path / "in", tmp_path / "t"
    a, b = Json.put(folder / "a.jsonl", [0, 1]), Json.put(folder / "b.jsonl", [10])
    dv.ingest(spark, folder, table)
    Json.put(a, [2])
    done = take(spark, folder, table, path_column="file", merge_schema=True)
    assert (done.files, Json.found(spark, table)) == (2, [2, 10])
    sql(spark, "OPTIMIZE {t}", table)
    Json.put(b, [11, 12])
    done = take(spark, folder, table, path_column="FILE")
    assert (done.files, Json.found(spark, table)) == (1, [2, 11, 12])
    # a file whose rows are all deleted has none to replace
    sql(spark, "DELETE FROM {t} WHERE v:id::int = 2", table)
    Json.put(a, [3])
    take(spark, folder, table, path_column="file")
    assert Json.found(spark, table) == [3, 11, 12]


def test_a_path_column_with_other_values(spark, tmp_path):
    """Old rows in which the path column has another text or NULL are replaced too, or the reload is refused (W9)."""
    folder, table = tmp_path / "in", tmp_path / "t"
    a, _ = Json.put(folder / "a.jsonl", [0, 1]), Json.put(folder / "b.jsonl", [10])
    dv.ingest(spark, folder, table, constants={"file": "here"})
    Json.put(a, [2])
    take(spark, folder, table, path_column="file")
    assert Json.found(spark, table) == [2, 10]
    dv.ingest(spark, a, table, force=True)
    Json.put(a, [3])
    take(spark, folder, table, path_column="file")
    assert Json.found(spark, table) == [3, 10]
    dv.ingest(spark, a, table, force=True)
    sql(spark, "OPTIMIZE {t}", table)
    Json.put(a, [4])
    with pytest.raises(
        TableError, match=r"a\.jsonl has changed, and .*OPTIMIZE in version 5.*DELETE its rows and load it alone"
    ):
        take(spark, folder, table, path_column="file")
    assert Json.found(spark, table) == [3, 3, 10]


def test_times_in_seconds():
    """A time in whole seconds and one in milliseconds of the same second are one time (W3). Other times differ."""
    for modified in (5_000, 5_250):
        file = ListedFile("file:/a", 1, modified)
        same = {5_000, 5_250} if modified == 5_250 else {5_000, 5_250, 5_999}
        assert {time for time in (4_000, 4_999, 5_000, 5_250, 5_999, 6_000) if file.has_time(time)} == same
        assert not file.has_time(None)


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_tables_of_all_kinds(spark, tmp_path, vectors):
    """Partitions, mapped names, constraints, row ids, vectors and the change feed are right; append-only tables refuse (W9)."""
    table = tmp_path / "t"
    spark.sql(
        f"CREATE TABLE delta.`{table}` (v variant, file string, day date) USING delta PARTITIONED BY (day) TBLPROPERTIES ("
        f"'delta.enableDeletionVectors' = '{vectors}', 'delta.columnMapping.mode' = 'name', "
        "'delta.enableRowTracking' = 'true', 'delta.enableVariantShredding' = 'true', 'delta.enableChangeDataFeed' = 'true', "
        "'delta.constraints.c' = 'year(day) > 2000')"
    )
    for number in range(4):
        Json.put(tmp_path / "in" / f"day=2026-11-0{number % 2 + 1}" / f"{number}.jsonl", range(number * 10, number * 10 + 3))
    options = {"folders": {"day": "date"}, "path_column": "file"}
    dv.ingest(spark, tmp_path / "in", table, **options)
    before = newest(table)
    Json.put(tmp_path / "in" / "day=2026-11-01" / "2.jsonl", [25, 26])
    Json.put(tmp_path / "in" / "day=2026-11-02" / "1.jsonl", [11, 12, 13])
    done = take(spark, tmp_path / "in", table, **options)
    assert (done.files, done.rows, done.commits, newest(table)) == (2, 5, 1, before + 1)
    assert Json.found(spark, table) == [0, 1, 2, 11, 12, 13, 25, 26, 30, 31, 32]
    info = last(table, "commitInfo")
    assert (info["operation"], info["operationParameters"]["mode"]) == ("WRITE", "Overwrite")
    assert "2.jsonl" in info["operationParameters"]["predicate"]
    metrics = info["operationMetrics"]
    assert (metrics["numDeletedRows"], int(metrics["numOutputRows"]) - int(metrics.get("numCopiedRows", 0))) == ("6", 5)
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", newest(table))
    changes = Counter()
    for row in feed.load(str(table)).selectExpr("v:id::int id", "_change_type = 'insert' added").collect():
        changes[row.id] += 1 if row.added else -1
    assert {n: count for n, count in changes.items() if count} == {20: -1, 21: -1, 22: -1, 25: 1, 26: 1, 10: -1, 13: 1}
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    Json.put(tmp_path / "in" / "day=2026-11-01" / "2.jsonl", [27])
    with pytest.raises(TableError, match="append-only"):
        take(spark, tmp_path / "in", table, **options)


def bad(spark, table) -> list[tuple[str, str]]:
    return sorted((Path(row.file).name, row.text) for row in read(spark, table).collect())


def test_malformed_documents(spark, tmp_path, monkeypatch):
    """The malformed documents of a file are replaced with its rows, also if an attempt ended between the commits (W9)."""
    folder, table, other, bads = (tmp_path / name for name in ("in", "t", "u", "bad"))
    a = Json.put(folder / "a.jsonl", [1, -2, -3])
    Json.put(folder / "b.jsonl", [10, -11])
    for target in (table, other):
        dv.ingest(spark, folder, target, bad_records=bads)
    others = [("a.jsonl", '{"id": -2'), ("a.jsonl", '{"id": -3'), ("b.jsonl", '{"id": -11')]
    assert bad(spark, bads) == sorted(others * 2)
    Json.put(a, [1, -3, -4])
    monkeypatch.setattr(ingestion._Ingestion, "_write_bad", lambda *_: 1 / 0 if _[2] is not None else None)
    with pytest.raises(ZeroDivisionError):
        take(spark, folder, table, bad_records=bads)
    monkeypatch.undo()
    assert (Json.found(spark, table), bad(spark, bads)) == ([1, 10], sorted(others * 2))
    mine = [("a.jsonl", '{"id": -3'), ("a.jsonl", '{"id": -4'), ("b.jsonl", '{"id": -11')]
    assert dv.ingest(spark, folder, table, bad_records=bads).changed == 0
    assert bad(spark, bads) == sorted(mine + others)
    Json.put(a, [5])
    done = take(spark, folder, table, bad_records=bads)
    assert (done.bad, Json.found(spark, table)) == (1, [5, 10])  # that of b, which is read again too
    assert bad(spark, bads) == sorted([mine[2], *others])
    Json.put(folder / "b.jsonl", [-12])
    before = newest(table)
    sql(spark, "ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'true')", bads)
    with pytest.raises(TableError, match=r"bad.*append-only"):
        take(spark, folder, table, bad_records=bads)
    assert newest(table) == before
    sql(spark, "ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'false')", bads)
    take(spark, folder, table, bad_records=bads)
    assert bad(spark, bads) == sorted([("b.jsonl", '{"id": -12'), *others])
    # Once the rows have been moved, those of the file are found by its name.
    sql(spark, "OPTIMIZE {t}", bads)
    Json.put(folder / "b.jsonl", [-13])
    take(spark, folder, table, bad_records=bads)
    assert bad(spark, bads) == [*others[:2], ("b.jsonl", '{"id": -13')]
    sql(spark, "UPDATE {t} SET v = v", table)
    Json.put(a, [6])
    with pytest.raises(TableError, match=r"DELETE its rows, and those of its malformed documents in .*/bad, and load it alone"):
        take(spark, folder, table, bad_records=bads)


@pytest.mark.parametrize("path_column", [None, "file"])
def test_at_the_same_time(spark, tmp_path, path_column):
    """Reloads of the same files at the same time replace them once, and new files are there once (W9)."""
    options = {} if path_column is None else {"path_column": path_column}
    for number in range(5):
        Json.put(tmp_path / "in" / f"{number}.jsonl", range(number * 10, number * 10 + 3))
    dv.ingest(spark, tmp_path / "in", tmp_path / "t", **options)
    for number in range(4):
        Json.put(tmp_path / "in" / f"{number}.jsonl", range(number * 10 + 1, number * 10 + 5))
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda _: take(spark, tmp_path / "in", tmp_path / "t", **options), range(3)))
    assert Json.found(spark, tmp_path / "t") == [n * 10 + i for n in range(4) for i in range(1, 5)] + [40, 41, 42]
    assert sum(one.commits for one in done) == 1
    if path_column:  # the log names the first three
        predicate = last(tmp_path / "t", "commitInfo")["operationParameters"]["predicate"]
        assert (predicate.count("jsonl"), predicate[-11:]) == (3, " and 1 more")


@pytest.mark.parametrize("path_column", [None, "file"])
def test_another_writer_in_between(spark, tmp_path, monkeypatch, path_column):
    """A change between plan and commit is seen: the reload is planned again, with what the other writer left (W9)."""
    options = {} if path_column is None else {"path_column": path_column}
    table = tmp_path / "t"
    Json.put(tmp_path / "in" / "a.jsonl", [0, 1])
    dv.ingest(spark, tmp_path / "in", table, **options)
    Json.put(tmp_path / "in" / "a.jsonl", [2])
    plan = planning.plan

    def after_another():
        monkeypatch.undo()
        others = "OPTIMIZE {t}" if path_column else "DELETE FROM {t}"
        sql(spark, others, table)
        spark.sql(f"INSERT INTO delta.`{table}` (v) VALUES (parse_json('{{\"id\": 1000}}'))")

    def after_another_threads(*args):  # this one has an active transaction
        with ThreadPoolExecutor(1) as thread:
            thread.submit(after_another).result()
        return plan(*args)

    sql(spark, "INSERT INTO {t} (v) VALUES (parse_json('{\"id\": 999}'))", table)
    monkeypatch.setattr(planning, "plan", after_another_threads)
    take(spark, tmp_path / "in", table, **options)
    assert Json.found(spark, table) == ([2, 999, 1000] if path_column else [2, 1000])
    assert sum("txn" in action for action in commits(table)[-1]) == 1
