"""Whose writes are this package's: those of enabled sessions, in any thread, and of no other session in the JVM."""

from __future__ import annotations

import contextlib
import importlib
import logging
from concurrent.futures import ThreadPoolExecutor

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F

import delta_variant as dv
from delta_variant.writer import planning
from tests.every_write.writers import DELTA, OURS, writers

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]

ROWS = "select id, parse_json(concat('{\"n\": ', id, '}')) v from range(0, 4, 1, 1)"


@contextlib.contextmanager
def enabled(session: SparkSession, **options):
    dv.enable(session, **options)
    try:
        yield session
    finally:
        dv.disable(session)


@pytest.fixture
def path(spark, tmp_path):
    """A table that a plain session makes."""
    spark.newSession().sql(f"create table delta.`{tmp_path}/t` (id bigint, v variant) using delta")
    return str(tmp_path / "t")


def insert(session: SparkSession, path: str) -> str:
    """Inserts rows, and returns who wrote their file."""
    session.sql(f"insert into delta.`{path}` {ROWS}")
    return writers(path)[-1]


def append(session: SparkSession, path: str) -> str:
    session.sql(ROWS).write.format("delta").mode("append").save(path)
    return writers(path)[-1]


def test_enable_and_disable(spark, path):
    """Writes are ours from `enable` to `disable`, and again after another `enable`."""
    session = spark.newSession()
    assert insert(session, path) == DELTA
    for write in (insert, append):
        with enabled(session):
            assert write(session, path) == OURS
        assert write(session, path) == DELTA


def test_other_sessions(spark, path):
    """A new session of an enabled one is not enabled, a clone is, and stays so when the other is disabled (W10)."""
    with enabled(spark.newSession()) as session:
        clone = SparkSession(session.sparkContext, session._jsparkSession.cloneSession())
        assert insert(session.newSession(), path) == DELTA
        assert insert(clone, path) == OURS
        assert insert(spark, path) == DELTA
    assert insert(clone, path) == OURS


@pytest.mark.parametrize("write", [insert, append])
def test_new_sessions(spark, path, write):
    """With `new_sessions=True` the first write of a new session is ours; after `disable` it is Delta's."""
    with enabled(spark.newSession(), new_sessions=True) as session:
        assert write(session.newSession(), path) == OURS
    assert write(session.newSession(), path) == DELTA


def test_settings(spark, path, tmp_path):
    """The session says which tables get our files, and a table's property overrides it."""
    numbers = str(tmp_path / "numbers")
    key = "delta_variant.everyWrite"
    with enabled(spark.newSession()) as session:
        session.sql(f"create table delta.`{numbers}` using delta as select 1L id")
        assert writers(numbers) == [DELTA]
        for setting, ours, of_numbers in (("all", OURS, OURS), ("off", DELTA, DELTA), ("variant", OURS, DELTA)):
            session.conf.set(f"spark.{key}", setting)
            session.sql(f"insert into delta.`{numbers}` select 2L")
            assert (insert(session, path), writers(numbers)[-1]) == (ours, of_numbers)
        for table, setting in ((path, "off"), (numbers, "all")):
            session.sql(f"alter table delta.`{table}` set tblproperties ('{key}' = '{setting}')")
        session.sql(f"insert into delta.`{numbers}` select 3L")
        assert (insert(session, path), writers(numbers)[-1]) == (DELTA, OURS)


ENCRYPTED = "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory"  # which encrypts nothing without keys


@pytest.mark.parametrize(
    ("definition", "rows", "reason"),
    [
        (
            f"(id bigint, v variant) using delta tblproperties ('parquet.crypto.factory.class' = '{ENCRYPTED}')",
            ROWS,
            "Parquet files are encrypted",
        ),
        (
            "(id bigint, v variant, p binary) using delta partitioned by (p)",
            f"select *, x'61' from ({ROWS})",
            "partition column p is BINARY",
        ),
    ],
)
def test_left_to_delta(spark, tmp_path, caplog, definition, rows, reason):
    """Delta writes encrypted files, also if a property of the table asks for them, and columns that tasks refuse; the log says
    why, once (W11)."""
    path = str(tmp_path / "t")
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.allowArbitraryProperties.enabled", "true")
    with enabled(session), caplog.at_level(logging.INFO, "delta_variant"):
        session.sql(f"create table delta.`{path}` {definition}")
        for _ in range(2):
            session.sql(f"insert into delta.`{path}` {rows}")
    assert writers(path) == [DELTA] * 2
    assert [record.levelname for record in caplog.records if reason in record.message] == ["INFO"]


def test_names_in_a_locale_without_unicode(spark, tmp_path, caplog):
    """Where the locale has no UTF-8, Java names no tables and partitions that are not ASCII. Delta writes such rows, or fails
    as it does without this package. Other files are ours."""
    system, place = spark._jvm.System, f"delta.`{tmp_path}/t`"
    known = system.getProperty("sun.jnu.encoding")
    with enabled(spark.newSession()) as session:
        session.sql(f"create table {place} (id bigint, v variant, p string) using delta partitioned by (p)")
        system.setProperty("sun.jnu.encoding", "ANSI_X3.4-1968")
        try:
            for partition, writer in (("e", OURS), ("é", DELTA)):
                session.sql(f"insert into {place} select *, '{partition}' from ({ROWS})")
                assert writers(str(tmp_path / "t"))[-1] == writer
            other = str(tmp_path / "é")
            session.sql(f"create table delta.`{other}` (id bigint, v variant) using delta")
            assert insert(session, other) == DELTA
        finally:
            system.setProperty("sun.jnu.encoding", known)
        assert sorted(session.table(place).groupBy("p").count().collect()) == [("e", 4), ("é", 4)]
    assert "LC_ALL=C.UTF-8" in caplog.text


def failing(_number, messages):
    """The function of tasks that fail when they have read their rows."""
    for _ in messages:
        pass
    raise RuntimeError("tasks of this test fail")


def test_tasks_that_fail(spark, tmp_path, caplog, monkeypatch):
    """If tasks fail, and not because of a row, Delta writes the files, and counts rows as if nothing had happened (W11)."""
    found = {}
    for kind in ("plain", "failing"):
        path, session = str(tmp_path / kind), spark.newSession()
        session.sql(f"create table delta.`{path}` (id bigint, v variant) using delta")
        session.sql(f"insert into delta.`{path}` {ROWS}")
        with contextlib.ExitStack() as stack:
            if kind == "failing":
                stack.enter_context(enabled(session))
                stack.enter_context(monkeypatch.context()).setattr(planning, "partial", lambda *_: failing)
            merged = session.sql(
                f"merge into delta.`{path}` t using ({ROWS}) s on t.id = s.id + 2 when matched then update set * "
                "when not matched then insert *"
            ).collect()
            updated = session.sql(f"update delta.`{path}` set id = id + 10 where id % 2 = 0").collect()
        history = session.sql(f"describe history delta.`{path}`").select("operation", "operationMetrics").limit(2).collect()
        counts = [(name, {k: v for k, v in metrics.items() if k.endswith("Rows") or "Rows" in k}) for name, metrics in history]
        found[kind] = merged, updated, counts, sorted(session.sql(f"select id from delta.`{path}`").collect())
        assert writers(path) == [DELTA] * len(writers(path))
    assert found["failing"] == found["plain"]
    assert any("tasks of this test fail" in r.message and r.levelname == "WARNING" for r in caplog.records)


def test_observed_rows_of_tasks_that_fail(spark, tmp_path, monkeypatch):
    """If a task fails after others have succeeded, observed metrics and the progress of streams have each row once."""

    def third(number, messages):  # it begins when one of the first two has ended, since there are two cores
        return failing(number, messages) if number == 2 else iter(())

    source = str(tmp_path / "source")
    spark.newSession().range(0, 1000, 1, 3).write.format("delta").save(source)
    count = F.count("id").alias("rows")
    found = {}
    for kind in ("plain", "failing"):
        path, session = str(tmp_path / kind), spark.newSession()
        session.sql(f"create table delta.`{path}` (id bigint, v variant) using delta")
        with contextlib.ExitStack() as stack:
            if kind == "failing":
                stack.enter_context(enabled(session))
                stack.enter_context(monkeypatch.context()).setattr(planning, "partial", lambda *_: third)
            session.conf.set("spark.sql.files.openCostInBytes", "0")  # so that each file has a task
            batch = Observation()
            rows = session.range(0, 1000, 1, 3).observe(batch, count, F.sum("id"))
            rows.write.format("delta").mode("append").save(path)
            rows = session.readStream.format("delta").load(source).observe("stream", count)
            writer = rows.writeStream.format("delta").option("checkpointLocation", f"{path}-checkpoint")
            query = writer.trigger(availableNow=True).start(path)
            query.awaitTermination()
            progress = [(each.numInputRows, each.observedMetrics) for each in query.recentProgress if each.numInputRows]
        found[kind] = batch.get, progress
        assert session.table(f"delta.`{path}`").count() == 2000
    assert found["failing"] == found["plain"]
    assert found["plain"] == ({"rows": 1000, "sum(id)": 499_500}, [(1000, {"stream": (1000,)})])


def test_fields_that_the_rows_lack(spark, tmp_path):
    """Rows without a VARIANT field of a struct are written by the tasks."""
    path, session = str(tmp_path / "t"), spark.newSession()
    session.sql(f"create table delta.`{path}` (id bigint, s struct<a: int, v: variant>) using delta")
    with enabled(session):
        session.sql("select 1L id, named_struct('a', 1) s").write.format("delta").mode("append").save(path)
    assert writers(path) == [OURS]
    assert session.sql(f"select s.a, s.v from delta.`{path}`").collect() == [(1, None)]


def streamed(session: SparkSession, path: str, source: str) -> list[str]:
    """Appends the rows of a Parquet folder by a stream, and returns who wrote the files."""
    before = len(writers(path))
    query = batches(session, source).format("delta").option("checkpointLocation", f"{path}-{before}")
    query.start(path).awaitTermination()
    return writers(path)[before:]


def batches(session: SparkSession, source: str):
    rows = session.readStream.schema("id bigint").parquet(source).selectExpr("id", "to_variant_object(named_struct('n', id)) v")
    return rows.writeStream.trigger(availableNow=True)


def test_streams(spark, path, tmp_path):
    """A stream is its session's when it starts, also where a function writes its batches."""
    source = str(tmp_path / "source")
    spark.range(0, 5, 1, 1).write.parquet(source)

    def write(batch, number):
        batch.write.format("delta").mode("append").save(path)

    with enabled(spark.newSession()) as session:
        assert streamed(session, path, source) == [OURS]
        assert streamed(spark.newSession(), path, source) == [DELTA]
        query = batches(session, source).foreachBatch(write).option("checkpointLocation", f"{path}-function")
        query.start().awaitTermination()
        assert writers(path)[-1] == OURS
    assert spark.read.format("delta").load(path).count() == 15


def test_threads(spark, tmp_path):
    """Threads of an enabled session and of a plain one that write at once do not disturb each other."""
    with enabled(spark.newSession()) as session, ThreadPoolExecutor(4) as threads:
        cases = [(each, str(tmp_path / f"t{n}")) for n, each in enumerate([session, spark.newSession()] * 2)]
        list(threads.map(lambda case: [append(*case) for _ in range(3)], cases))
    assert [writers(path) for _, path in cases] == [[OURS] * 3, [DELTA] * 3] * 2


def test_a_function_that_fails_to_import(spark, path):
    """A function of the user's that cannot import something of this package fails its own statement, and no other (W11)."""

    def imports(number):
        importlib.import_module("delta_variant.of_the_user")
        return number

    with enabled(spark.newSession()) as session:
        session.udf.register("imports", imports, "bigint")
        assert insert(session, path) == OURS
        with pytest.raises(Py4JJavaError, match=r"delta_variant\.of_the_user"):
            session.sql(f"insert into delta.`{path}` select imports(id), v from ({ROWS})")
        assert insert(session, path) == OURS
