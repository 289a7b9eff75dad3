"""Typed reading of streams: a batch gives what Spark's scan gives, and Spark counts its rows (T10)."""

from __future__ import annotations

import itertools
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import delta_variant as dv
from delta_variant.errors import UnsupportedFeatureError
from tests.strategies import column
from tests.support import deltas_own_files, share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

TYPED = "spark.delta_variant.typedReading"
FOOTERS = "spark.delta_variant.footerBytes"
EVENTS = "n bigint, kind string, at timestamp, o struct<x int, d decimal(18,2)>, items array<struct<p bigint, q string>>"
numbers = itertools.count()


def event(n: int, kind: Any = None) -> Any:
    """Document n. kind: its `kind`, if that is not a text."""
    document = {"n": n, "kind": kind or f"k{n % 3}", "at": pa.scalar(n * 10**6, pa.timestamp("us", "UTC")).as_py()}
    document["items"] = [{"p": n + place, "q": f"q{place}"} for place in range(n % 3)]
    return document | {"o": {"x": n % 7, "d": Decimal(n).scaleb(-2)}} if n % 5 else document


def add(spark: SparkSession, path: Any, rows: list[Any], shred: Any = EVENTS) -> None:
    """Adds a file with the rows; `id` is their number in it."""
    source = f"{path}-{next(numbers)}.parquet"
    dv.parquet.write_table(pa.table({"id": pa.array(range(len(rows)), pa.int64()), "v": column(rows)}), source)
    dv.write(spark.read.parquet(source).coalesce(1), path, shred={"v": shred} if isinstance(shred, str) else shred)


@pytest.fixture(scope="module")
def session(spark) -> Iterator[SparkSession]:
    """A session with the rules, in which footers of files of any size are read."""
    session = spark.newSession()
    session.conf.set(FOOTERS, "0")
    dv.enable(session)
    yield session
    dv.disable(session)


@pytest.fixture(scope="module")
def events(session, tmp_path_factory) -> str:
    """Three files, one with rows deleted and one in which `kind` is sometimes a number."""
    path = tmp_path_factory.mktemp("streams") / "events"
    session.sql(
        f"create table delta.`{path}` (id long, v variant) using delta tblproperties "
        "('delta.enableVariantShredding' = 'true', 'delta.enableDeletionVectors' = 'true')"
    )
    for start in (0, 30):
        add(session, path, [event(n) for n in range(start, start + 30)])
    session.sql(f"delete from delta.`{path}` where v:n::int % 10 = 3 and v:n::int < 30")
    add(session, path, [event(n, n if n % 10 == 5 else None) for n in range(60, 90)])
    return str(path)


class Run:
    """What a stream gave until there was nothing more to read, and how it read."""

    def __init__(self, stream: DataFrame, *, typed: bool = True, mode: str = "append", checkpoint: Path | None = None) -> None:
        spark = stream.sparkSession
        table = f"run_{next(numbers)}"
        spark.conf.set(TYPED, str(typed).lower())
        writer = stream.writeStream.queryName(table).outputMode(mode).trigger(availableNow=True)
        if checkpoint is not None:  # from which a memory sink starts again in complete mode only
            writer = writer.option("checkpointLocation", str(checkpoint))
        query = writer.format("memory").start()
        query.awaitTermination()
        spark.conf.unset(TYPED)
        self.rows = sorted(map(repr, spark.table(table).collect()))
        self.input = [progress["numInputRows"] for progress in query.recentProgress]
        self.query: StreamingQuery = query

    @property
    def typed(self) -> list[int]:
        """For each scan of a stream in the last batch, the files that are read from typed columns."""
        return [scan.files_typed for scan in dv.explain(self.query).scans if scan.files_total is None]


def compared(stream: DataFrame, mode: str = "append") -> Run:
    """A run with typed reading, after comparison of its rows, and of the number of rows that it reports, with Spark's scan."""
    without, typed = (Run(stream, typed=typed, mode=mode) for typed in (False, True))
    assert without.typed == [0] * len(typed.typed)
    assert (typed.rows, typed.input) == (without.rows, without.input)
    return typed


def read(spark: SparkSession, path: str, files: int = 2) -> DataFrame:
    return spark.readStream.option("maxFilesPerTrigger", files).format("delta").load(path)


STREAMS = {
    "select id, v:n::int, v:kind::string, v:o.x::bigint, v:o::struct<d double> from s": "append",
    "select id, v:n from s where v:kind::string = 'k1' and v:n::bigint is not null": "append",
    "select id, e.value:p::int p, e.value:q::string q from s, lateral variant_explode(v:items) e": "append",
    "select v:kind::string k, sum(v:n::bigint), max(v:o.d::decimal(18,2)) from s group by 1 having k <> 'k1'": "complete",
    "select window(v:at::timestamp, '20 seconds') w, count(v:n::int) c from s group by 1": "complete",
    "select s.id, t.v:n::int from s join t on s.v:n::bigint = t.v:n::bigint": "append",
    "select a.v:n::int, b.v:o.x::int from s a join s b on a.v:n::bigint = b.v:n::bigint + 30": "append",
    "select v:n::bigint n from s union all select v:o.x::bigint from s": "append",
    "select distinct v:kind::string from s": "complete",
    "select id, try_variant_get(v, '$.kind', 'int') from s where v:items[0].p::int > 3": "append",
}


@pytest.mark.slow
def test_streams_give_the_rows_of_sparks_scan(session, events):
    """The rows of a stream, and the number of rows that it reports, are those of Spark's scan, if each scan of it is read from
    typed columns. In one batch values have other types (T10)."""
    read(session, events).createOrReplaceTempView("s")
    session.read.format("delta").load(events).createOrReplaceTempView("t")
    for text, mode in share(STREAMS.items(), 2):
        run = compared(session.sql(text), mode)
        assert run.typed == [1] * len(run.typed) != [], text
        assert run.rows, text


def test_typed_reading_of_streams_may_be_switched(session, tmp_path):
    """A stream with state goes on from the same checkpoint when typed reading is switched on or off (T10)."""
    path = tmp_path / "grows"
    text = "select v:kind::string k, v:o::struct<x int> o, sum(v:n::bigint) s, max(v:o.d::double) m from s group by 1, 2"
    for start, typed in enumerate((True, False, True)):
        add(session, path, [event(n) for n in range(start * 20, start * 20 + 20)])
        read(session, str(path)).createOrReplaceTempView("s")
        run = Run(session.sql(text), typed=typed, mode="complete", checkpoint=tmp_path / "state")
        assert run.typed == [int(typed)]
        assert run.input == [20]
        batch = session.sql(text.replace("from s", f"from delta.`{path}`")).collect()
        assert run.rows == sorted(map(repr, batch))


def test_files_that_come_after_the_start(session, tmp_path):
    """Files of commits after the start of a stream are read from typed columns. Those of an OPTIMIZE are not read, and those of
    Delta's own writer give the rows of Spark's scan (T10)."""
    path = tmp_path / "t"
    add(session, path, [event(n) for n in range(20)])
    query = read(session, str(path)).selectExpr("v:n::bigint n").writeStream.format("memory").queryName("later").start()
    try:
        query.processAllAvailable()
        add(session, path, [event(n) for n in range(20, 40)])
        query.processAllAvailable()
        [scan] = dv.explain(query).scans
        assert (scan.files_total, scan.files_after_bounds, scan.files_typed) == (None, 1, 1)
        assert scan.typed_paths == ("v:n",)
        session.sql(f"optimize delta.`{path}`")
        with deltas_own_files(session):
            session.sql(f"insert into delta.`{path}` select id, parse_json('{{\"n\": 40}}') from range(1)")
        query.processAllAvailable()
        assert sorted(row.n for row in session.table("later").collect()) == list(range(41))
    finally:
        query.stop()


def test_a_batch_is_read_in_one_way(session, tmp_path):
    """Spark counts the rows of a stream by the leaves of its plan. So files whose typed columns differ are left to Spark's scan
    if they are in one batch, and read from typed columns in batches of their own (T10)."""
    path = tmp_path / "t"
    for shred in (EVENTS, "n int, kind string", False):
        add(session, path, [event(n) for n in range(20)], shred)
    text = "select v:n::bigint, v:kind::string from s"
    runs = {}
    for files in (1, 2, 3):
        read(session, str(path), files).createOrReplaceTempView("s")
        runs[files] = Run(session.sql(text))
    assert [run.input for run in runs.values()] == [[20, 20, 20], [40, 20], [60]]
    assert runs[1].rows == runs[2].rows == runs[3].rows
    [scan] = dv.explain(runs[3].query).scans
    assert scan.files_typed == 0
    assert "a batch of a stream is read in one way, and its files differ" in scan.typed_reasons
    session.read.format("delta").load(str(path)).createOrReplaceTempView("s")
    assert sorted(map(repr, session.sql(text).collect())) == runs[1].rows


def test_a_file_that_is_added_again(session, tmp_path):
    """A file that RESTORE adds again in the same batch is read again, with and without typed reading (T10)."""
    path = tmp_path / "t"
    add(session, path, [event(n) for n in range(20)])
    session.sql(f"delete from delta.`{path}`")
    session.sql(f"restore table delta.`{path}` to version as of 0")
    stream = session.readStream.option("startingVersion", 0).option("ignoreChanges", "true").format("delta").load(str(path))
    run = compared(stream.selectExpr("v:n::int n"))
    assert (run.typed, run.input) == ([2], [40])


@pytest.mark.parametrize(
    ("schemas", "typed"),
    [
        (["a struct<x int>", "a struct<x int, b struct<y int>>"], 0),
        (["a struct<x int, b struct<y int>>", "a struct<x int, b struct<y int>>"], 2),
        (["a struct<b struct<c int>>", "a struct<b struct<c int>>"], 2),
        (["x int", "a struct<x int>"], 0),
    ],
)
def test_residuals_of_several_files(session, tmp_path, schemas, typed):
    """Files of a batch are read alike if the same `value` columns have a path, and by Spark's scan otherwise (T10)."""
    path = tmp_path / "t"
    for number, schema in enumerate(schemas):
        values = [{"c": n, "y": n} if n % 3 else {"c": "text"} if number else {"y": n} for n in range(20)]
        add(session, path, [{"x": n, "a": {"x": n, "b": value}} for n, value in enumerate(values)], schema)
    read(session, str(path)).createOrReplaceTempView("s")
    assert compared(session.sql("select id, v:a.b.c::string c, v:a.x::int x from s")).typed == [typed]


def test_small_files_beside_a_larger_one(session, tmp_path):
    """The footers of a batch are read if one of its files is as large as the setting says (T10)."""
    path = tmp_path / "t"
    add(session, path, [event(n) for n in range(2)])
    add(session, path, [event(n) for n in range(500)])
    largest = max(file.stat().st_size for file in path.glob("*.parquet"))
    try:
        for least, typed in ((largest, 2), (largest + 1, 0)):
            session.conf.set(FOOTERS, str(least))
            assert Run(read(session, str(path)).selectExpr("v:n::int")).typed == [typed]
    finally:
        session.conf.set(FOOTERS, "0")


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_and_partitioned_tables(session, tmp_path, mode):
    """Column mapping and partitions: the rows are those of Spark's scan; mapped by id, files are left to it (T10)."""
    path = tmp_path / "t"
    session.sql(
        f"create table delta.`{path}` (id long, p int, v variant) using delta partitioned by (p) tblproperties "
        f"('delta.enableVariantShredding' = 'true', 'delta.columnMapping.mode' = '{mode}', "
        "'delta_variant.shredding.v' = 'n int')"
    )
    session.sql(f"insert into delta.`{path}` select id, id % 2, parse_json(concat('{{\"n\": ', id, '}}')) from range(20)")
    read(session, str(path)).createOrReplaceTempView("s")
    run = compared(session.sql("select id, p, v:n::int n from s where p = 1"))
    assert len(run.rows) == 10
    assert bool(sum(run.typed)) == (mode == "name")


def test_explain_of_streams(session, events, tmp_path):
    """`explain` reports the last batch of a StreamingQuery. It says if there is none, and if the session is off."""
    stream = read(session, events).selectExpr("v:n::int")
    report = dv.explain(Run(stream).query)
    assert "typed columns in 1 of 1 files: v:n" in str(report)
    assert "a stream, which reads all files of each batch" in str(report)
    [whole] = dv.explain(Run(read(session, events).selectExpr("to_json(v)")).query).scans
    assert whole.typed_paths == ()
    session.conf.set("spark.delta_variant.enabled", "false")
    [off] = dv.explain(Run(stream).query).scans
    session.conf.unset("spark.delta_variant.enabled")
    assert (off.files_typed, off.reasons[1:]) == (0, ("spark.delta_variant.enabled is false",))
    empty = tmp_path / "empty"
    session.sql(f"create table delta.`{empty}` (v variant) using delta")
    waiting = read(session, str(empty)).writeStream.format("memory").queryName("waiting").start()
    try:
        with pytest.raises(UnsupportedFeatureError, match=r"the stream waiting has not read a batch yet"):
            dv.explain(waiting)
    finally:
        waiting.stop()
