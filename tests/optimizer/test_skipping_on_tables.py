"""Skipping in Spark on tables of all kinds, whatever wrote their files and logs. test_table tests the class `VariantTable`."""

from __future__ import annotations

import functools
import itertools
import json
import logging
import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from delta_variant import binary, jvm, z85
from delta_variant.session import disable, enable
from delta_variant.stats import BOUNDS_TAG, BOUNDS_TAG_VALUE, decode_bounds, encode_bounds
from delta_variant.writer import write
from tests.logs import actions
from tests.optimizer.skipping.asking import opened
from tests.optimizer.skipping.tables import copied, create
from tests.support import SOAK, collected, delta_log, deltas_own_files, forget

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]

VALUE = "to_variant_object(named_struct('n', {0}, 's', concat('k', lpad(cast({0} as string), 3, '0'))))"
EVENT = VALUE.format("id")
DELTA = "spark.databricks.delta."


@pytest.fixture(scope="module", autouse=True)
def _skipping(spark):
    enable(spark)
    yield
    disable(spark)


@pytest.fixture(scope="module")
def plain(spark):
    """A session that was never enabled: the oracle, and a writer of files without bounds."""
    return spark.newSession()


def tens(spark, first, *more, value=EVENT):
    """One partition of ten rows: their id, v made of it, and more columns."""
    return spark.range(first, first + 10, 1, 1).selectExpr("id", f"{value} v", *more)


def append(frame, path):
    """Appends with delta-spark: with bounds in an enabled session, without in a plain one."""
    with deltas_own_files(frame.sparkSession):
        frame.write.format("delta").mode("append").save(path)


@pytest.fixture(scope="module")
def ours(spark, tmp_path_factory):
    """Four files that this package wrote, of ten rows each, three of them in version 1; tests work on copies."""
    retention = dict.fromkeys(("delta.deletedFileRetentionDuration", "delta.logRetentionDuration"), "interval 5000 weeks")
    path = create(spark, tmp_path_factory.mktemp("tables") / "ours", **retention)
    assert write(spark.range(0, 30, 1, 1).selectExpr("id", f"{EVENT} v"), path, max_rows_per_file=10).files == 3
    write(tens(spark, 30), path)
    return path


def ids(df):
    return sorted(row[0] for row in collected(df))


@pytest.fixture(scope="module")
def ask(spark):
    """A function that gives the ids of a query's rows, which opens so many files."""

    def question(path, predicate, files):
        df = spark.read.format("delta").load(str(path)).where(predicate).select("id")
        found = ids(df)
        assert opened(df) == [files], predicate
        return found

    return question


@pytest.fixture(scope="module")
def ask_all(spark, plain):
    """Like `ask` for several predicates, given with the files that each opens. They are the branches of one query.

    expected: the ids for each of them; by default those that one query without skipping gives, which evaluates all of them.
    `at`: the same version in SQL, in which the last predicate is asked once more.
    """

    def question(path, wanted, expected=None, at=None, **options):
        table = spark.read.options(**options).format("delta").load(str(path))
        files, last = list(wanted.values()), list(wanted)[-1]
        frames = [table.where(predicate) for predicate in wanted]
        if expected is None:
            oracle = plain.read.options(**options).format("delta").load(str(path))
            every = collected(oracle.selectExpr("id", *(f"({predicate}) p{n}" for n, predicate in enumerate(wanted))))
            expected = [sorted(row.id for row in every if row[f"p{number}"]) for number in range(len(wanted))]
        if at is not None:
            frames.append(spark.sql(f"select * from delta.`{path}` {at} where {last}"))
            files.append(wanted[last])
        numbered = [frame.select(F.lit(number).alias("q"), "id") for number, frame in enumerate(frames)]
        df = functools.reduce(DataFrame.unionAll, numbered)
        rows = collected(df)
        found = [sorted(row.id for row in rows if row.q == number) for number in range(len(frames))]
        assert (found, opened(df)) == ([*expected, *expected[-1:] * (at is not None)], files), wanted

    return question


def change_adds(spark, path, change):
    """Rewrites the commits with every Add action changed by `change(number, add)`."""
    number = 0
    for log in sorted(Path(path, "_delta_log").glob("0*[0-9].json")):
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for line in lines:
            if "add" in line:
                change(number, line["add"])
                number += 1
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
        for checksum in (log.with_name(f".{log.name}.crc"), log.with_suffix(".crc"), log.with_name(f".{log.stem}.crc.crc")):
            checksum.unlink(missing_ok=True)
    forget(spark)


# ---- checkpoints -----------------------------------------------------------------------------------------------------

CHECKPOINTS = {
    "classic": ({}, {}),
    "multi-part": ({}, {"checkpoint.partSize": "2"}),
    "v2-json": ({"delta.checkpointPolicy": "v2"}, {"checkpointV2.topLevelFileFormat": "json", "checkpoint.partSize": "2"}),
    "v2-parquet": (
        {"delta.checkpointPolicy": "v2"},
        {"checkpointV2.topLevelFileFormat": "parquet", "checkpoint.partSize": "2"},
    ),
}


STATISTICS = ["json", "struct", "both"]
EACH_ONCE = zip(CHECKPOINTS, itertools.cycle(STATISTICS))


@pytest.mark.parametrize(("kind", "statistics"), list(itertools.product(CHECKPOINTS, STATISTICS) if SOAK else EACH_ONCE))
def test_checkpoints(spark, ask, ours, tmp_path, kind, statistics):
    """Bounds and marker are read from a checkpoint of any kind, if the commits before it are gone."""
    properties, settings = CHECKPOINTS[kind]
    properties = {
        **properties,
        "delta.checkpoint.writeStatsAsJson": str(statistics != "struct").lower(),
        "delta.checkpoint.writeStatsAsStruct": str(statistics != "json").lower(),
    }
    path = copied(ours, tmp_path / "t")
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    spark.sql(f"alter table delta.`{path}` set tblproperties ({listed})")
    checkpoint(spark, path, settings)
    assert ask(path, "v:n::int = 15 or v:s::string = 'k031'", 2) == [15, 31]


def checkpoint(spark, path, settings):
    """Makes a checkpoint of the newest version, and deletes the commits before it."""
    for key, value in settings.items():
        spark.conf.set(DELTA + key, value)
    try:
        log = delta_log(spark).forTable(spark._jsparkSession, path)
        version = log.unsafeVolatileSnapshot().version()
        log.createCheckpointAtVersion(version)
    finally:
        for key in settings:
            spark.conf.unset(DELTA + key)
    for old in range(version):
        for file in Path(path, "_delta_log").glob(f"*{old:020}.*"):
            file.unlink()
    forget(spark)


# ---- versions, copies, maintenance -----------------------------------------------------------------------------------


def test_time_travel(spark, ask, ask_all, ours, tmp_path):
    """A version, by number or by time, is skipped by the bounds of its own files."""
    path = copied(ours, tmp_path / "t")
    spark.sql(f"delete from delta.`{path}` where id >= 20")
    write(tens(spark, 30, value=VALUE.format("-id")), path)
    for version, log in enumerate(sorted(Path(path, "_delta_log").glob("0*[0-9].json"))):
        os.utime(log, (1_600_000_000 + 3600 * version,) * 2)  # 2020-09-13 12:26:40, and an hour more for each commit
    forget(spark)
    low, high = [*range(15)], [*range(16, 30)]
    for options, at, files, expected in (
        ({}, "", {"v:n::int = 35": 0, "v:n::int = -35": 1, "v:s::string = 'k015'": 1}, [[], [35], [15]]),
        ({"versionAsOf": "3"}, "version as of 3", {"v:n::int = 35": 0, "v:s::string < 'k015'": 2}, [[], low]),
        ({"versionAsOf": "1"}, "version as of 1", {"v:n::int = 35": 0, "v:s::string > 'k015'": 2}, [[], high]),
        ({"timestampAsOf": "2020-09-13 15:00:00"}, "timestamp as of '2020-09-13 15:00:00'", {"v:n::int = 35": 1}, [[35]]),
        ({"timestampAsOf": "2020-09-13 13:26:40"}, "timestamp as of '2020-09-13 13:26:40'", {"v:n::int = 35": 0}, [[]]),
    ):
        ask_all(path, files, expected, at, **options)
    assert ask(f"{path}@v2", "v:n::int = 35", 1) == [35]


def test_who_wrote_the_files(spark, plain, ask_all, tmp_path):
    """Files with and without bounds, with and without the marker, are skipped by what each of them has, in partitions too."""
    path = create(spark, tmp_path / "t", "id long, p int, v variant", "partitioned by (p)")
    p = "cast(id div 20 as int) p"
    append(tens(spark, 0, p), path)
    append(tens(plain, 10, p), path)
    write(tens(spark, 20, p), path)
    write(tens(spark, 30, p), path, shred=False)
    spark.sql(f"alter table delta.`{path}` set tblproperties ('delta.enableVariantShredding' = 'false')")
    append(tens(spark, 40, p), path)
    assert [bounds(add) is not None for add in actions(path, "add")] == [True, False, True, False, False]
    wanted = {
        "v:n::int = 5": 4,
        "v:n::int = 25": 4,
        "v:n::int = 45": 3,
        "p = 0 and v:n::int = 5": 2,
        "p = 0 and v:n::int = 25": 1,
        "p = 1 and v:n::int = 25": 2,
        "p = 2 and v:n::int = 45": 1,
        "p < 2 or v:n::int = 45": 5,
        "p = 0 and v:n::int = 500 or p = 1 and v:n::int = 25": 3,
        "v:s::string = 'k500'": 4,
        "p = 0 and v:s::string = 'k500'": 2,
        "p = 1 and v:s::string = 'k500'": 1,
        "p = 3 and v:n::int = 5": 0,
    }
    ask_all(path, wanted)


def bounds(add):
    """The lower bounds of column v in an Add action."""
    text = json.loads(add["stats"]).get("minValues", {}).get("v")
    return None if text is None else decode_bounds(text)


@pytest.mark.parametrize("mode", ["name", "id"])
def test_column_mapping(spark, ask, ask_all, tmp_path, mode):
    """Columns that have swapped names keep their bounds; one dropped and added again has none of the old one's."""
    path = create(
        spark, tmp_path / "t", "id long, v variant, w variant, s struct<v variant>", **{"delta.columnMapping.mode": mode}
    )
    more = (f"{VALUE.format('-id')} w", f"named_struct('v', {VALUE.format('id + 100')}) s")
    append(spark.range(0, 40, 1, 4).selectExpr("id", f"{EVENT} v", *more), path)
    change_adds(spark, path, lambda number, add: add.update(tags={BOUNDS_TAG: BOUNDS_TAG_VALUE} if number % 2 else None))
    for old, new in (("v", "x"), ("w", "v"), ("x", "w"), ("s", "t")):
        spark.sql(f"alter table delta.`{path}` rename column {old} to {new}")
    wanted = {
        "v:n::int = -15": 1,
        "w:n::int = 15": 1,
        "v:n::int = 15": 0,
        "v:n::int > -25 and w:n::int > 15": 2,
        "t.v:n::int = 115": 1,
        "t.v:s::string = 'k500'": 2,
    }
    ask_all(path, wanted, [[15], [15], [], [*range(16, 25)], [15], []])
    spark.sql(f"alter table delta.`{path}` drop column w")
    spark.sql(f"alter table delta.`{path}` add column w variant")
    assert ask(path, "w:n::int = 15", 4) == []
    append(tens(spark, 40, f"{EVENT} w", f"named_struct('v', {EVENT}) t"), path)
    wanted = {"w:n::int = 45": 5, "t.v:n::int = 45": 1, "w:n::int = 500": 4, "v:n::int = -15": 1}
    ask_all(path, wanted, [[45], [45], [], [15]])


def test_history_of_a_table(spark, ask_all, ours, tmp_path):
    """The marker stays if Delta adds a file again; files that delta-spark has rewritten have bounds and no marker."""
    path = copied(ours, tmp_path / "t")
    table = f"delta.`{path}`"
    spark.sql(f"alter table {table} set tblproperties ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"delete from {table} where id in (12, 15, 17)")
    assert actions(path, "add")[-1]["deletionVector"]
    ask_all(path, {"v:s::string in ('k015', 'k016')": 1, "v:s::string = 'k500'": 0}, [[16], []])
    with deltas_own_files(spark):
        spark.sql(f"reorg table {table} apply (purge)")
    ask_all(path, {"v:n::int = 500": 0, "v:s::string = 'k500'": 1}, [[], []])
    with deltas_own_files(spark):
        spark.sql(f"optimize {table}")
    wanted = {"v:n::int = 500": 0, "v:s::string = 'k016'": 1, "v:s::string = 'k500'": 1}
    ask_all(path, wanted, [[], [16], []])
    spark.sql(f"restore table {table} to version as of 1")
    wanted = {"v:s::string in ('k005', 'k035')": 1, "v:n::int between 8 and 12": 2}
    ask_all(path, wanted, [[5], [8, 9, 10, 11, 12]])


def test_shallow_clones(spark, ask, ours, tmp_path):
    """A clone's files, which lie in another table's directory, are skipped like its own."""
    path = str(tmp_path / "clone")
    spark.sql(f"create table delta.`{path}` shallow clone delta.`{ours}`")
    write(tens(spark, 100), path)
    assert ask(path, "v:n::int in (15, 105)", 2) == [15, 105]
    with deltas_own_files(spark):
        spark.sql(f"update delta.`{path}` set id = -id where v:n::int = 15")
    assert ask(path, "v:n::int = 15", 1) == [-15]
    assert ask(path, "v:s::string = 'k105'", 2) == [105]
    assert ask(ours, "v:n::int = 15", 1) == [15]


def test_converted_tables(spark, ask, tmp_path):
    """Files that a conversion took over have no bounds and are opened; those written later are skipped."""
    path = str(tmp_path / "t")
    spark.range(0, 40, 1, 4).selectExpr("id", f"{EVENT} v").write.parquet(path)
    spark.sql(f"convert to delta parquet.`{path}`")
    assert ask(path, "v:n::int = 15", 4) == [15]
    spark.sql(f"alter table delta.`{path}` set tblproperties ('delta.enableVariantShredding' = 'true')")
    write(tens(spark, 40), path)
    assert ask(path, "v:n::int = 45", 5) == [45]
    assert ask(path, "v:s::string = 'k500'", 4) == []


# ---- bounds that are damaged or too narrow ---------------------------------------------------------------------------


def _packed(data):
    return z85.encode(data + bytes(-len(data) % 4))


_GOOD = b"".join(binary.encode({"$['n']": 10, "$['s']": "k010"}))
DAMAGED = {
    "not z85": "nothing ~~~ like it",
    "of an odd length": _packed(_GOOD)[:-3],
    "empty": "",
    "a number": 5,
    "an object": {"$['n']": 10},
    "an array": [10],
    "true": True,
    "null": None,
    "bytes that are no Variant": _packed(b"\xff" * 40),
    "zeros": _packed(bytes(40)),
    "metadata alone": _packed(b"\x01\x00\x00"),
    "a value cut short": _packed(_GOOD[:-8]),
    "a Variant array": _packed(b"".join(binary.encode([10]))),
    "a Variant number": _packed(b"".join(binary.encode(10))),
    "a Variant null": _packed(b"".join(binary.encode(None))),
    "an object in the path's place": encode_bounds({"$['n']": {"n": 10}}),
}


@pytest.fixture(scope="module")
def damaged(spark, ours, tmp_path_factory):
    """A table with the files of `ours`, and the second and third of them once more for each damage, named by its number.

    The second has a damaged lower bound, the third both. The function asks by a job or on the driver.
    """
    path = copied(ours, tmp_path_factory.mktemp("damaged") / "t")
    _, lower, upper, _ = actions(path, "add")
    lines = []
    for number, text in enumerate(DAMAGED.values()):
        for add, sides in ((lower, ("minValues",)), (upper, ("minValues", "maxValues"))):
            stats = json.loads(add["stats"])
            for side in sides:
                stats[side]["v"] = text
            name = f"damage-{number}-{len(sides)}.parquet"
            shutil.copy(Path(path, add["path"]), Path(path, name))
            lines.append(json.dumps({"add": {**add, "path": name, "stats": json.dumps(stats)}}) + "\n")
    versions = len(list(Path(path, "_delta_log").glob("0*[0-9].json")))
    Path(path, "_delta_log", f"{versions:020}.json").write_text("".join(lines))
    forget(spark)

    def asked(by_job):
        spark.conf.set("spark.delta_variant.keptFiles", "0" if by_job else "5000")
        df = spark.read.format("delta").load(path).where("v:n::int = 5 or v:s::string = 'k500'").select("id")
        found = (ids(df), opened(df), {Path(file).name for file in df.inputFiles()})
        spark.conf.unset("spark.delta_variant.keptFiles")
        return found

    return asked


@pytest.fixture(scope="module")
def damages(damaged):
    """What was found and logged, asked once in both ways."""
    logged = []
    handler = logging.Handler()
    handler.emit = logged.append
    logger = logging.getLogger("delta_variant")
    logger.addHandler(handler)
    found = [damaged(by_job=by_job) for by_job in (False, True)]
    logger.removeHandler(handler)
    return found, [record for record in logged if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_bounds(damages, damage):
    """Bounds that cannot be decoded count as absent, on their side and in their file only, without a warning."""
    found, warnings = damages
    number = list(DAMAGED).index(damage)
    for rows, files, names in found:
        assert {f"damage-{number}-1.parquet", f"damage-{number}-2.parquet"} <= names
        # The second and third file of `ours` itself are ruled out, as is the fourth: damage in one file is not seen in another.
        assert (rows, files) == ([5], [1 + 2 * len(DAMAGED)])
    assert not warnings


NARROW = {
    "a value over 4 KB": ("s", "case when id = 150 then repeat('z', 5000) else concat('k', id) end", "v:s::string > 'y'"),
    "a NaN": ("d", "case when id = 150 then double('NaN') else double(id) end", "v:d::double > 1000"),
}


@pytest.fixture(scope="module")
def narrow(spark, tmp_path_factory):
    """The same rows in one file of three row groups by delta-spark, and in one of this package."""
    folder = tmp_path_factory.mktemp("narrow")
    values = ", ".join(f"'{key}', {value}" for key, value, _ in NARROW.values())
    frame = spark.range(0, 300, 1, 1).selectExpr("id", f"to_variant_object(named_struct('n', id, {values})) v")
    theirs, ours = create(spark, folder / "delta-spark"), create(spark, folder / "ours")
    with jvm.settings(spark, {"parquet.block.row.count.limit": "100"}):
        append(frame, theirs)
    write(frame, ours)
    return theirs, ours


@pytest.mark.parametrize("case", NARROW)
def test_bounds_that_are_too_narrow(spark, ask, ask_all, narrow, case):
    """String and floating-point bounds of delta-spark, which can be too narrow, do not count without the marker (M1).

    delta-spark takes a row group without footer statistics for an empty one, so its bounds leave out a row. A session that
    trusts all bounds loses that row, which proves that they are too narrow. The same rows written by this package are found.
    """
    key, _, predicate = NARROW[case]
    theirs, ours = narrow
    [add] = actions(theirs, "add")
    assert pq.ParquetFile(Path(theirs, add["path"])).num_row_groups == 3
    highest = decode_bounds(json.loads(add["stats"])["maxValues"]["v"])
    assert highest[f"$['{key}']"] == {"s": "k99", "d": 299.0}[key]
    assert highest["$['n']"] == 299
    assert ask(theirs, predicate, 1) == [150]
    with jvm.settings(spark, {"spark.delta_variant.trustAllBounds": "true"}):
        assert ask(theirs, predicate, 0) == []
    ask_all(ours, {predicate: 1, "v:n::int > 1000": 0}, [[150], []])


# ---- plans -----------------------------------------------------------------------------------------------------------


def test_streams_are_left_alone(spark, ask, ours, tmp_path):
    """A stream with a filter on a path gives the rows of the batch query, of old files and of those that come later."""
    path = copied(ours, tmp_path / "t")
    found = []

    def run():
        stream = spark.readStream.format("delta").load(path).where("v:n::int in (5, 25, 45)")
        query = stream.writeStream.foreachBatch(lambda batch, _: found.extend(ids(batch)))
        query.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start().awaitTermination()

    run()
    assert found == [5, 25]
    write(tens(spark, 40), path)
    run()
    assert sorted(found) == [5, 25, 45]
    assert ask(path, "v:n::int in (5, 25, 45)", 3) == [5, 25, 45]


def test_unions_reuse_exchanges(spark, ours):
    """Equal branches of a union over a pruned scan shuffle the table once."""
    settings = {"spark.sql.adaptive.enabled": "false", "spark.sql.autoBroadcastJoinThreshold": "-1"}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        branches = [
            spark.read.format("delta").load(ours).where("v:n::int < 20").groupBy(F.expr("v:n::int % 3 k")).count()
            for _ in range(2)
        ]
        union = branches[0].unionAll(branches[1])
        assert sorted(collected(union)) == [(0, 7), (0, 7), (1, 7), (1, 7), (2, 6), (2, 6)]
        assert "ReusedExchange" in union._jdf.queryExecution().executedPlan().toString()
        assert opened(union) == [2]
    finally:
        for key in settings:
            spark.conf.unset(key)
