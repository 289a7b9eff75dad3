"""What `explain` says of skipping, and what a query does if skipping fails."""

from __future__ import annotations

import contextlib
import logging
import threading
import time

import pytest

from delta_variant import jvm
from delta_variant.explanation import Report, explain
from delta_variant.messages import Bound, Compare, PruneReply
from delta_variant.paths import parse_column_path
from delta_variant.queries import requests
from delta_variant.session import disable
from delta_variant.stats import BOUNDS_TAG
from tests.optimizer.skipping.asking import opened, read
from tests.optimizer.skipping.tables import append_json, copied, create
from tests.support import collected, forget

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]


@pytest.mark.parametrize(
    "reply",
    [None, PruneReply(Compare("<", 0, 0), (Bound("min"),), (), None), "not an object"],
    ids=["error", "no such bound", "text"],
)
def test_failures_step_aside(spark, small, tmp_path, monkeypatch, caplog, reply):
    """If Python fails or its reply cannot be used, the query opens every file, with one warning."""
    path = copied(small, tmp_path / "t")

    def broken(_request):
        if reply is None:
            raise ValueError("a defect")
        return reply

    monkeypatch.setattr(requests, "answer", broken)
    with caplog.at_level(logging.WARNING, "delta_variant"):
        df = read(spark, path).where("v:id::int = 5")
        assert (len(collected(df)), opened(df)) == (1, [2])
    assert len([record for record in caplog.records if record.name == "delta_variant"]) == 1


def test_switched_off(spark, small):
    """`spark.delta_variant.dataSkipping` = `false` leaves the choice of files to Delta, and `explain` says so."""
    with jvm.settings(spark, {"spark.delta_variant.dataSkipping": "false"}):
        df = read(spark, small).where("v:id::int = 5")
        assert (len(collected(df)), opened(df)) == (1, [2])
        assert "spark.delta_variant.dataSkipping = false" in str(explain(df))
    df = read(spark, small).where("v:id::int = 5")
    assert (len(collected(df)), opened(df)) == (1, [1])


def test_other_queries_do_not_call_python(spark, table, tmp_path, monkeypatch):
    """A query without a Delta scan that has a filter on a VARIANT is planned without Python."""
    asked = []
    monkeypatch.setattr(requests, "answer", asked.append)
    read(spark, table).write.parquet(str(tmp_path / "p"))
    for df in (
        read(spark, table),
        read(spark, table).where("id = 5"),
        read(spark, table).where("id > 5 and v is not null").groupBy("id").count(),
        spark.read.parquet(str(tmp_path / "p")).where("v:id::int = 5"),
        spark.range(10).selectExpr("to_variant_object(struct(id)) v").where("v:id::int = 5"),
    ):
        collected(df)
    assert asked == []


def test_cancellation_goes_through(spark, table, monkeypatch):
    """Cancelling a query while the job over the bounds waits cancels the query; it does not go on without skipping."""
    right, planning, done = requests.answer, threading.Event(), threading.Event()
    spark.conf.set("spark.delta_variant.keptFiles", "0")
    forget(spark)

    def occupied(_):
        time.sleep(20)
        return iter(())

    def slow(request):
        """Gives the answer once both cores are busy."""
        busy = threading.Thread(
            target=lambda: suppressed(spark.sparkContext.parallelize(range(2), 2).mapPartitions(occupied).collect)
        )
        busy.start()
        while len(spark.sparkContext.statusTracker().getActiveJobsIds()) == 0:
            done.wait(0.05)
        planning.set()
        return right(request)

    def suppressed(run):
        spark.sparkContext.setJobGroup("busy", "keeps both cores busy")
        with contextlib.suppress(Exception):
            run()

    monkeypatch.setattr(requests, "answer", slow)
    outcome: list[object] = []

    def ask():
        spark.sparkContext.setJobGroup("to-be-cancelled", "a query whose job over the bounds waits")
        try:
            outcome.append(len(read(spark, table).where("v:id::int = 5").collect()))
        except Exception as error:  # noqa: BLE001  # PySpark does not convert this one
            outcome.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert planning.wait(60)
    while thread.is_alive():
        done.wait(0.1)
        spark.sparkContext.cancelJobGroup("to-be-cancelled")
    spark.sparkContext.cancelJobGroup("busy")
    spark.conf.unset("spark.delta_variant.keptFiles")
    assert "SPARK_JOB_CANCELLED" in str(outcome[0])
    monkeypatch.setattr(requests, "answer", right)
    assert explain(read(spark, table).where("v:id::int = 5")).scans[0].files_after_bounds == 1


def test_explain(spark, table):
    """Explain tells what is left of the files after Delta and after the bounds, and why not fewer, without running."""
    read(spark, table).createOrReplaceTempView("events")
    [scan] = explain(spark.sql("select * from events where v:id::int = 5 and id < 20")).scans
    assert (scan.files_total, scan.files_after_delta, scan.files_after_bounds) == (5, 2, 1)
    assert (scan.version, scan.predicates, scan.reasons) == (0, ("v:id::int = 5",), ())
    [finding] = scan.findings
    assert (finding.predicate, finding.path, finding.files_ruled_out, finding.reasons) == ("v:id::int = 5", "v:id", 1, ())
    [scan] = explain(spark.sql("select * from events where v:s::string = 'x' or id = 4")).scans
    assert (scan.files_after_delta, scan.files_after_bounds) == (5, 5)
    assert BOUNDS_TAG in scan.reasons[0]
    [scan] = explain(spark.sql("select * from events")).scans
    assert scan.reasons == ("the query has no filter on a Variant path here",)
    report = explain(spark.sql("select 1 from events a, events b where a.v:id::int = b.id and a.v:ts::timestamp < now()"))
    assert len(report.scans) == 2
    lines = str(report).splitlines()
    end = lines[0].index("after bounds") + len("after bounds")
    assert [line[:end].split()[-1] for line in lines[1:] if line[:end].strip()] == ["5", "5"]
    spark.conf.set("spark.delta_variant.enabled", "false")
    [scan] = explain(spark.sql("select * from events where v:id::int = 5")).scans
    spark.conf.unset("spark.delta_variant.enabled")
    assert scan.reasons == ("spark.delta_variant.enabled is false",)
    disable(spark)
    [scan] = explain(spark.sql("select * from events where v:id::int = 5")).scans
    assert scan.files_after_delta == scan.files_after_bounds == 5
    assert scan.reasons == ("delta_variant.enable(spark) was not called",)


def test_paths_can_be_used(spark, tmp_path):
    """The paths in a report are written as `analyze` and `optimize` take them, whatever the names of columns and keys are."""
    table = f"delta.`{tmp_path}/t`"
    spark.sql(f"CREATE TABLE {table} (`a.b` VARIANT) USING delta")
    spark.sql(f"""INSERT INTO {table} VALUES (parse_json('{{"it\\'s": 1, "k": 2}}'))""")
    query = (
        f"""SELECT 1 FROM {table} WHERE variant_get(`a.b`, '$["it\\'s"]', 'int') = 5 AND variant_get(`a.b`, '$.k', 'int') = 5"""
    )
    [scan] = explain(spark.sql(query)).scans
    assert {parse_column_path(finding.path) for finding in scan.findings} == {
        (("a.b",), """$["it's"]"""),
        (("a.b",), "$.k"),
    }


def test_explain_counts_files(spark, tmp_path, caplog):
    """`explain` says of each question how many files it rules out alone, and why not more; logScans logs the same."""
    create(spark, tmp_path / "t", "v variant")
    files = [['{"a": 1}'], ['{"a": 9}'], ['{"a": "x"}'], ['{"a": 1}', '{"a": "x"}'], ['{"b": 1}'], ['{"a": 5000000000}']]
    append_json(spark, tmp_path / "t", files)
    query = "v:a::int = 9 and v:a::string >= 'w'"
    with caplog.at_level(logging.DEBUG):
        [scan] = explain(read(spark, str(tmp_path / "t")).where(query)).scans
        assert not [record for record in caplog.records if record.name == "delta_variant"]
        spark.conf.set("spark.delta_variant.logScans", "true")
        read(spark, str(tmp_path / "t")).where(query).inputFiles()
        spark.conf.unset("spark.delta_variant.logScans")
    first, second = scan.findings
    assert (first.files_ruled_out, second.files_ruled_out) == (1, 0)
    assert first.reasons == (
        "string bounds for v:a, which is compared as int, in 1 of 6 files",
        "no bounds for v:a in 2 of 6 files",
        "bounds for v:a that do not fit int in 1 of 6 files",
    )
    assert "v:a::string: string bounds count only in files whose Add has the tag delta_variant.bounds" in second.reasons[0]
    assert scan.reasons == (*second.reasons, *first.reasons)
    assert "v:a::int = 9: rules out 1 of 6 files" in str(Report([scan]))
    assert "v:a::int = 9: rules out 1 of 6 files" in caplog.text


def test_explain_of_scans_that_delta_does_not_prepare(spark, table):
    """If Delta's skipping is off, the counts of files are unknown, and `explain` shows a question mark."""
    spark.conf.set("spark.databricks.delta.stats.skipping", "false")
    try:
        report = explain(read(spark, table).where("v:id::int = 5"))
    finally:
        spark.conf.unset("spark.databricks.delta.stats.skipping")
    assert report.scans[0].files_after_bounds is None
    assert "?" in str(report)
