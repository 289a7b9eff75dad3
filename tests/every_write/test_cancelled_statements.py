"""Statements that users cancel by the methods of their session: they end with Spark's error, and the table stays as it is."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext

import delta_variant as dv
from delta_variant.errors import DeltaVariantError
from tests import logs

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]


@pytest.fixture
def path(spark, tmp_path):
    """A table that a plain session makes."""
    spark.newSession().sql(f"create table delta.`{tmp_path}/t` (id bigint, v variant, tags string) using delta")
    return str(tmp_path / "t")


def insert(rows, path):
    rows.createOrReplaceTempView("rows")
    rows.sparkSession.sql(f"insert into delta.`{path}` select * from rows")


def append(rows, path):
    rows.write.format("delta").mode("append").save(path)


def merge(rows, path):
    rows.createOrReplaceTempView("rows")
    rows.sparkSession.sql(f"merge into delta.`{path}` t using rows s on t.id = s.id when not matched then insert *")


STATEMENTS = {"INSERT": insert, "append": append, "MERGE": merge, "write": dv.write}


def rows_of(session, tags):
    """Rows with a column that a function makes in the task that writes them."""

    def add(batches):
        for batch in batches:
            yield pa.record_batch([batch["id"], pa.array([tags()] * batch.num_rows, pa.string())], ["id", "tags"])

    rows = session.range(0, 4, 1, 1).mapInArrow(add, "id bigint, tags string")
    return rows.selectExpr("id", "parse_json(concat('{\"n\": ', id, '}')) v", "tags")


@pytest.mark.parametrize("statement", STATEMENTS)
def test_tags_of_jobs(spark, on, path, statement):
    """The job of a write has the session's tag, and the tags that the user gives, as in a plain session."""
    for session in (on,) if statement == "write" else (spark.newSession(), on):
        session.addTag("mine")
        STATEMENTS[statement](rows_of(session, lambda: TaskContext.get().getLocalProperty("spark.job.tags")), path)
        session.clearTags()
        rows = spark.newSession().read.format("delta").load(path)
        (found,) = {tuple(row.tags.split(",")) for row in rows.collect()}
        assert session._jsparkSession.sessionJobTag() in found
        assert any(tag.endswith("-mine") for tag in found)
        spark.newSession().sql(f"delete from delta.`{path}`")
    assert not spark.sparkContext.getJobTags()


@pytest.mark.parametrize("statement", STATEMENTS)
def test_interrupt_all(on, path, tmp_path, statement):
    """`interruptAll` ends a statement in the middle of its job, and nothing is committed."""
    reached = tmp_path / "reached"

    def wait():
        reached.touch()
        time.sleep(600)

    def run():
        with pytest.raises((Py4JJavaError, DeltaVariantError), match="SPARK_JOB_CANCELLED"):
            STATEMENTS[statement](rows_of(on, wait), path)

    before = logs.newest(path)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(run)
        while not reached.exists() and not running.done():
            time.sleep(0.01)
        assert on.interruptAll()
        running.result()
    assert logs.newest(path) == before
    assert on.read.format("delta").load(path).count() == 0


CALLS = (
    lambda table: table.analyze(paths=["v:n"], bloom=["v:n"]),
    lambda table: table.optimize(["v:n"]),
    lambda table: table.unshred(),
    lambda table: table.shred(),
)


def test_tags_of_calls(spark, on, path):
    """All jobs of a call have the tag of the session that it is made in, although they run in a clone of the session."""
    append(rows_of(spark.newSession(), lambda: None), path)
    on.sql(f"alter table delta.`{path}` set tblproperties ('delta.enableVariantShredding' = 'true')")
    tracker = on.sparkContext._jsc.sc().statusTracker()
    for call in CALLS:
        before = set(tracker.getJobIdsForGroup(None))
        call(dv.VariantTable.forPath(on, path))
        jobs = set(tracker.getJobIdsForGroup(None)) - before
        assert jobs
        assert jobs <= set(tracker.getJobIdsForTag(on._jsparkSession.sessionJobTag()))
