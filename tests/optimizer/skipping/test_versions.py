"""Tables that change: their files are skipped by what the log says of them now."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from delta_variant import jvm
from delta_variant.explanation import explain
from delta_variant.queries import requests
from delta_variant.session import disable, enable
from tests.optimizer.skipping.asking import opened, read, rows
from tests.optimizer.skipping.tables import EVENT, append_json, copied, create, events, mark
from tests.support import collected, deltas_own_files, forget, prepared, scans

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]


def test_files_without_bounds_stay(spark, small, tmp_path):
    """A file written without bounds is opened by every query."""
    path = copied(small, tmp_path / "some")
    disable(spark)
    spark.range(100, 110, 1, 1).selectExpr("id", f"{EVENT} v").write.format("delta").mode("append").save(path)
    enable(spark)
    df = read(spark, path).where("v:id::int = 5")
    assert (len(collected(df)), opened(df)) == (1, [2])
    df = read(spark, path).where("v:id::int = 105")
    assert (len(collected(df)), opened(df)) == (1, [1])


def test_deletion_vectors(spark, tmp_path):
    """Rows deleted by deletion vectors stay deleted in pruned scans."""
    path = events(spark, tmp_path / "dv", **{"delta.enableDeletionVectors": "true"})
    spark.sql(f"delete from delta.`{path}` where id % 2 = 0")
    df = read(spark, path).where("v:id::int between 4 and 7").select("id")
    assert ([row.id for row in rows(df)], opened(df)) == ([5, 7], [1])


def test_partitions(spark, tmp_path):
    """Partition filters, static and dynamic, and path predicates narrow the same scan."""
    path = create(spark, tmp_path / "parts", "id long, p int, v variant", "partitioned by (p)")
    source = spark.range(0, 40, 1, 4).selectExpr("id", "cast(id % 2 as int) p", f"{EVENT} v")
    with deltas_own_files(spark):
        source.write.format("delta").mode("append").save(path)
    df = read(spark, path).where("p = 1 and v:id::int < 20").select("id")
    assert (len(collected(df)), opened(df)) == (10, [2])
    read(spark, path).createOrReplaceTempView("parts")
    join = "select a.id from parts a join (select 1 p) b on a.p = b.p where a.v:id::int < 20"
    assert [row.id for row in sorted(collected(spark.sql(join)))] == list(range(1, 20, 2))


def test_column_mapping(spark, tmp_path):
    """Bounds are found under the physical name of a renamed column."""
    path = events(spark, tmp_path / "mapped", **{"delta.columnMapping.mode": "name"})
    spark.sql(f"alter table delta.`{path}` rename column v to w")
    df = read(spark, path).where("w:id::int = 5")
    assert (len(collected(df)), opened(df)) == (1, [1])


def test_checkpoints_and_time_travel(spark, tmp_path):
    """Bounds are read from checkpoints with statistics as structs, and in older versions of the table."""
    properties = {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpointInterval": "1"}
    path = events(spark, tmp_path / "checkpointed", **properties)
    spark.sql(f"delete from delta.`{path}` where id >= 30")
    assert list(Path(path, "_delta_log").glob("*.checkpoint.parquet"))
    forget(spark)
    df = read(spark, path).where("v:id::int > 45")
    assert (len(collected(df)), opened(df)) == (0, [0])
    df = spark.read.format("delta").option("versionAsOf", 0).load(path).where("v:id::int > 45")
    assert (len(collected(df)), opened(df)) == (4, [1])


def test_a_job_decides_as_the_driver_does(spark, marked):
    """A job over the bounds, as for large tables, keeps the files that the driver keeps for small tables."""
    predicates = ["v:id::int = 5", "v:s::string like 'k01%'", "v:d::double in (3, 37.0)"]
    predicates += ["v:day::date >= '2024-02-04' or v:ntz::timestamp_ntz < '1970-01-01 00:00:10'", "v:nothing::int = 1"]
    form = f"select 1 from delta.`{marked}` where "
    queries = [prepared(spark, form + predicate) for predicate in predicates]
    # Delta keeps all files, or a few.
    queries += [f"{form}id >= {first} and v:id::int in (5, 45)" for first in (0, 30)]
    files = []
    for kept in ("5000", "0", "0"):
        spark.conf.set("spark.delta_variant.keptFiles", kept)
        files.append([scan.files_after_bounds for scan in scans(spark.sql(" union all ".join(queries)))])
    spark.conf.unset("spark.delta_variant.keptFiles")
    assert files[0] == files[1] == files[2] == [1, 1, 2, 3, 5, 2, 1]


def kept_rows(spark, path):
    """The rows of the log that the driver has cached of a table's newest version."""
    name = jvm.static(spark, "org.apache.hadoop.fs.Path")(f"file:{path}", "_delta_log").toString()
    of_table = [files for files in jvm.companion(spark, "Shared").bounds().asMap().values() if files.version().table() == name]
    newest = max(of_table, key=lambda files: files.version().number())
    return list(newest.rows().get())


def count_same(spark, before, after):
    """How many Java objects are in both lists of rows."""
    same = spark._jvm.java.lang.System.identityHashCode
    return len({same(row) for row in before} & {same(row) for row in after})


def test_a_commit_costs_its_own_files(spark, tmp_path):
    """The first query after a commit decodes the bounds of the files whose paths, statistics or tags are new, and no others."""
    path = events(spark, tmp_path / "growing", rows=40, files=4, **{"delta.enableDeletionVectors": "true"})

    def ask(predicate="v:id::int = 5"):
        df = read(spark, path).where(predicate).select("id")
        return [row.id for row in rows(df)], opened(df)[0]

    def decoded(change, *asked):
        before = kept_rows(spark, path)
        change()
        found = ask(*asked)
        after = kept_rows(spark, path)
        return found, len(after) - count_same(spark, before, after)

    more = spark.range(100, 110, 1, 1).selectExpr("id", f"{EVENT} v")
    assert ask() == ([5], 1)
    assert decoded(lambda: more.write.format("delta").mode("append").save(path)) == (([5], 1), 1)
    gone = "id in (25, 33) or id between 10 and 19"  # two files get deletion vectors, one is removed
    assert decoded(lambda: spark.sql(f"delete from delta.`{path}` where {gone}")) == (([5], 1), 2)
    assert decoded(lambda: mark(spark, path)) == (([5], 1), 4)
    of_two = [read(spark, path).where(predicate) for predicate in ("v:id::int = 105", "v:s::string = 'k105'")]
    df = of_two[0].unionAll(of_two[1]).unionAll(read(spark, path).where("v:id::int = 33")).select("id")
    assert ([row.id for row in rows(df)], opened(df)) == ([105, 105], [1, 1, 1])
    assert decoded(lambda: spark.sql(f"restore table delta.`{path}` to version as of 0"), "v:id::int = 33")[0] == ([33], 1)


def test_statistics_that_change_in_place(spark, small, tmp_path):
    """A file whose statistics change in the log is skipped by the new ones: cached bounds are not found by the path alone."""
    path = copied(small, tmp_path / "changing")
    assert explain(read(spark, path).where("v:id::int = 5")).scans[0].files_after_bounds == 1
    for log in Path(path, "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                stats = json.loads(action["add"]["stats"])
                action["add"]["stats"] = json.dumps({key: stats[key] for key in stats if key not in {"minValues", "maxValues"}})
        log.write_text("".join(json.dumps(action) + "\n" for action in actions))
        log.with_name(f".{log.name}.crc").unlink(missing_ok=True)
    forget(spark)
    assert explain(read(spark, path).where("v:id::int = 5")).scans[0].files_after_bounds == 2


def test_a_version_that_cannot_be_read_is_not_tried_again(spark, small, tmp_path, monkeypatch, caplog):
    """If a version's bounds cannot be read, all files are opened with one warning, and the next version is skipped again."""
    path = copied(small, tmp_path / "broken")
    spark.conf.set("spark.delta_variant.keptFiles", "0")
    right = requests.answer

    def wrong(request):
        reply = right(request)
        return replace(reply, bounds=tuple(replace(bound, column=99) for bound in reply.bounds))

    monkeypatch.setattr(requests, "answer", wrong)
    with caplog.at_level(logging.WARNING, "delta_variant"):
        for _ in range(2):
            df = read(spark, path).where("v:id::int = 5")
            assert (len(collected(df)), opened(df)) == (1, [2])
            monkeypatch.setattr(requests, "answer", right)
    assert len([record for record in caplog.records if record.name == "delta_variant"]) == 1
    [scan] = explain(read(spark, path).where("v:id::int = 5")).scans
    assert "the bounds of this version could not be read" in scan.reasons[-1]
    append_json(spark, path, [['{"id": 100}']])
    assert explain(read(spark, path).where("v:id::int = 5")).scans[0].files_after_bounds == 1
    spark.conf.unset("spark.delta_variant.keptFiles")
