"""Statements of an enabled session leave the table that they leave in a plain one: generated tables and histories.

A history of statements runs twice, on twin tables: in an enabled session and in a plain one. After each statement both tables
have the same rows, change data, row ids, schema, protocol and properties, the log has the same actions but for sizes and names,
and the metrics have the same counts. A statement that fails does so in both, with the same error. Then queries with predicates
and projections of Variant paths, in the enabled session, give the rows that a plain session reads from the same table; in
`make test` after every third version.

Tables have a VARIANT column and one in a struct, whose documents are those of optimizer/test_skipping_generated. `make
test` runs two histories that have each command once; `make soak` generates 60. For any number of others:

    EVERY_WRITE_HISTORIES=1000 python -m pytest -s tests/every_write/test_generated.py
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, example, given, note, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import delta_variant as dv
from delta_variant.constants import PREVIEW_NAMES, READS_SHREDDED
from tests.every_write.comparison import normalized, rows
from tests.generated.predicates import Predicates
from tests.generated.queries import Queries
from tests.generated.tables import NO_MAPPED_PATHS, PUSH, Table
from tests.logs import commits
from tests.strategies import column
from tests.support import collected, forget, generated, length

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HISTORIES = length("EVERY_WRITE_HISTORIES", 0, 60)
QUERIES = 3 if HISTORIES else 1
"""Queries after a statement with a generated predicate, and as many others."""

PARTITIONS = 3
LAST = 90  # no id is greater
ONE_TASK = {"spark.sql.files.minPartitionNum": "1", "spark.sql.files.openCostInBytes": "0"}
"""Settings with which one task reads all files: else sizes decide which task reads a file, and how many files it writes."""


# ------------------------------------------------------------------------------------------------------------ statements


@dataclass(frozen=True)
class Kind:
    """A kind of tables."""

    partitioned: bool = False
    change_data: bool = False
    row_tracking: bool = False
    vectors: bool = False
    mapping: str = "none"
    widening: bool = False
    shredded: bool = True

    @property
    def properties(self) -> dict[str, str]:
        named = {
            "enableChangeDataFeed": self.change_data,
            "enableRowTracking": self.row_tracking,
            "enableDeletionVectors": self.vectors,
            "enableTypeWidening": self.widening,
            "enableVariantShredding": self.shredded,
        }
        return {"delta.columnMapping.mode": self.mapping, **{f"delta.{key}": str(on).lower() for key, on in named.items()}}


@dataclass(frozen=True)
class Batch:
    """Rows that are written: their ids, in which they overlap with others, and the seed of their documents."""

    seed: int = 0
    first: int = 0
    rows: int = 12
    extra: bool = False
    """Whether there is a column that tables do not have at first."""


@dataclass(frozen=True)
class Statement:
    """A statement: `{t}` is the table, `{b}` the rows of the batch, `{where}` a condition that is made from its seed."""

    sql: str
    batch: Batch = Batch()
    where: int = 0
    mode: str = ""
    """Of a write with the DataFrame API, in place of SQL."""
    options: tuple[tuple[str, str], ...] = ()
    """Of a DataFrame's write."""


INSERTS = [
    "insert into {t} (id, p, v, s, n, l) select id, p, v, s, n, l from {b}",
    "insert into {t} by name select n, s, v, p, id from {b}",
    "insert into {t} (v, id, p) select v, id, p from {b}",
    "insert into {t} (id, p, v, s, n, l) select id, p, s.w, named_struct('w', v), n, l from {b} where {where}",
    "insert into {t} (id, p, v, s, n) select id, p, v, named_struct('w', s.w), n from {t} where {where}",
    """insert into {t} (id, p, v, n) values (1, 1, parse_json('{"a": 5, "b": "x", "o": {"x": 2.5}}'), 7), (2, null, null, 0)""",
    "insert overwrite {t} (id, p, v, s, n) select id, p, v, s, n from {b} where {where}",
    "insert into {t} replace where p = 1 (id, p, v, s, n, l) select id, 1 p, v, s, n, l from {b}",
    "insert into {t} (id, p, v, s, n, l) select id, p, v, s, n, l from {b} order by n, id desc",
    "insert into {t} (id, p, n, l) select id, p, n, array(v) l from {b} where false",
]
FRAMES = [
    ("append", ()),
    ("append", (("maxRecordsPerFile", "5"),)),
    ("append", (("mergeSchema", "true"),)),
    ("overwrite", ()),
    ("overwrite", (("partitionOverwriteMode", "dynamic"),)),
    ("overwrite", (("replaceWhere", "p = 1"),)),
    ("overwrite", (("overwriteSchema", "true"),)),
]
SETS = [
    "n = n + 1",
    "v = s.w",
    "s.w = v, n = 0",
    "v = null, l = array(v)",
    "l = array(parse_json('[1.25]'), null)",
    "p = p + 1",
    """v = parse_json(concat('{"a": ', id, ', "o": {"x": "', n, '"}}'))""",
    "s = named_struct('w', to_variant_object(named_struct('a', id, 'b', 'text')))",
]
MATCHED = [
    "",
    "when matched then update set *",
    "when matched and t.n > 3 then update set v = b.v when matched then delete",
    "when matched and b.id % 2 = 0 then delete when matched then update set n = b.n, s = named_struct('w', b.v)",
    "when matched then delete",
]
NOT_MATCHED = [
    "when not matched then insert *",
    "when not matched and b.id % 3 > 0 then insert (id, p, v) values (b.id, b.p, b.s.w)",
    "",
]
NOT_BY_SOURCE = [
    "",
    "when not matched by source and t.id % 2 = 0 then delete",
    "when not matched by source and t.id % 3 = 1 then update set v = s.w, n = -1",
]
CONDITIONS = [
    "t.id = b.id",
    "t.id = b.id and t.p = b.p",
    "t.id = b.id and variant_get(t.v, '$.a', 'string') <=> variant_get(b.v, '$.a', 'string')",
]
OTHERS = [
    "optimize {t}",
    "optimize {t}",
    "optimize {t} where p = 1",
    "optimize {t} zorder by (id)",
    "reorg table {t} apply (purge)",
    "restore table {t} to version as of {version}",
    "alter table {t} add columns (extra variant)",
    "alter table {t} add columns (s.extra bigint)",
    "alter table {t} alter column n type bigint",
    "alter table {t} set tblproperties ('delta.enableVariantShredding' = 'true')",
    "alter table {t} set tblproperties ('delta.enableVariantShredding' = 'false')",
]

SEEDS = st.integers(0, 2**20)
BATCHES = st.builds(Batch, SEEDS, st.integers(0, 60), st.integers(1, 30), st.booleans())


def merge(condition: str, matched: str, missing: str, by_source: str, *, evolution: bool) -> str:
    clauses = f"{matched} {missing} {by_source}".strip() or MATCHED[1]
    return f"merge {'with schema evolution ' * evolution}into {{t}} t using {{b}} b on {condition} {clauses}"


MERGES = st.builds(
    merge,
    *map(st.sampled_from, (CONDITIONS, MATCHED, NOT_MATCHED, NOT_BY_SOURCE)),
    evolution=st.booleans(),
)
STATEMENTS = st.one_of(
    st.builds(Statement, st.sampled_from(INSERTS), BATCHES, SEEDS),
    st.builds(
        lambda frame, batch: Statement("", batch, 0, *frame),
        st.sampled_from(FRAMES),
        BATCHES,
    ),
    st.builds(Statement, st.sampled_from(SETS).map("update {{t}} set {} where {{where}}".format), where=SEEDS),
    st.builds(Statement, st.just("delete from {t} where {where}"), where=SEEDS),
    st.builds(Statement, MERGES, BATCHES),
    st.builds(Statement, st.sampled_from(OTHERS), where=SEEDS),
)
KINDS = st.builds(
    Kind, *[st.booleans()] * 4, st.sampled_from(["none", "none", "name", "id"]), widening=st.booleans(), shredded=st.booleans()
)


# ----------------------------------------------------------------------------------------------------------- twin tables


class Twins:
    """A table in an enabled session, its twin in a plain one, and the comparison of both."""

    def __init__(self, enabled: SparkSession, plain: SparkSession, root: Path, kind: Kind, seed: int) -> None:
        self.sessions = {"ours": enabled, "theirs": plain}
        self.kind, self.root = kind, root
        self.table = Table(seed, root / "ours", change=0.1, rows=LAST, files=PARTITIONS)
        # `enable` has Delta call the feature by its final name.
        self.settings = {**self.table.settings, PREVIEW_NAMES: "false", "spark.delta_variant.lateMaterializationBytes": "0"}
        if NO_MAPPED_PATHS:
            self.settings[PUSH] = "false"
        self.versions = 0
        self.row_ids: set[int] = set()
        self.equal_row_ids: set[int] = set()
        """Those of the same rows in both. New ids follow the order of rows, which in the case of files follows their sizes."""
        self.counts: Counter[str] = Counter()
        self.batches: dict[Batch, str] = {}
        for session in self.sessions.values():
            for key, value in self.settings.items():
                session.conf.set(key, value)
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in kind.properties.items())
        partitions = "partitioned by (p)" * kind.partitioned
        self.statement(
            Statement(
                "create table {t} (id bigint, p int, v variant, s struct<w: variant>, n int, l array<variant>) using delta "
                f"{partitions} tblproperties ({listed})"
            )
        )

    def name(self, twin: str) -> str:
        return f"delta.`{self.root / twin}`"

    # -- what is run

    def statement(self, statement: Statement) -> None:
        """Runs a statement on both tables, and compares them."""
        rng = Random(statement.where)
        predicates = Predicates(self.table)
        predicates.rng = rng
        where = rng.choice([f"id % 3 = {rng.randrange(3)}", f"p = {rng.randrange(PARTITIONS)}", *[predicates.tree(1).safe] * 4])
        sql = statement.sql.replace("{where}", where)
        sql = sql.replace("{version}", str(rng.randrange(max(self.versions, 1))))
        batch = ""
        if "{b}" in sql or not sql:
            batch = f"(select *, array(s.w, v) l from {self._batch(statement.batch)})"
            sql = sql.replace("{b}", batch)
        told = sql or f"{batch}.write.mode({statement.mode!r}).options({dict(statement.options)})"
        note(told)
        copies = bool(batch) and not sql.startswith("merge")
        for key, value in ONE_TASK.items():
            for session in self.sessions.values():
                session.conf.unset(key) if copies else session.conf.set(key, value)
        outcomes = [
            outcome(lambda session=session, twin=twin: self._run(session, twin, sql, statement, batch))
            for twin, session in self.sessions.items()
        ]
        self.counts[f"{(sql or statement.mode).split()[0]} {'failed' if isinstance(outcomes[0], str) else 'done'}"] += 1
        same(*outcomes, told)
        self.compare(told, in_order=copies)

    def _run(self, session: SparkSession, twin: str, sql: str, statement: Statement, batch: str) -> Any:
        if not sql:
            rows = session.sql(f"select * from {batch}").where("p = 1" if "replaceWhere" in dict(statement.options) else "true")
            writer = rows.write.format("delta").mode(statement.mode).options(**dict(statement.options))
            return writer.save(str(self.root / twin))
        casts = "{where}" in statement.sql or "::" in sql  # of what Spark reads from shredded VARIANTs
        with generated(session) if casts else contextlib.nullcontext():
            found = session.sql(sql.replace("{t}", self.name(twin))).collect()
        return [] if sql.startswith(("optimize", "reorg", "restore")) else list(map(tuple, found))

    def _batch(self, batch: Batch) -> str:
        """A view of the rows of a batch, which are in two files, so that two tasks write them."""
        if batch not in self.batches:
            table, view = self.table, f"batch{len(self.batches)}"
            folder = self.root / view
            folder.mkdir()
            table.rng = Random(batch.seed)
            halves = [batch.rows - batch.rows // 2, batch.rows // 2]
            first = batch.first
            for size in filter(None, halves):
                ids = range(first, first + size)
                first += size
                documents = [
                    column(table._documents([spot for spot in table.spots if spot.column == name], size))
                    for name in ("v", "s.w")
                ]
                structs = pa.StructArray.from_arrays(documents[1:], ["w"])
                columns = {
                    "id": pa.array(ids, pa.int64()),
                    "p": pa.array([n % PARTITIONS for n in ids], pa.int32()),
                    "v": documents[0],
                    "s": structs,
                    "n": pa.array([n % 7 for n in ids], pa.int32()),
                }
                if batch.extra:
                    columns["extra"] = documents[0]
                pq.write_table(pa.table(columns), folder / f"{first}.parquet")  # Spark 4.0 cannot read the logical type VARIANT
            schema = "id bigint, p int, v variant, s struct<w: variant>, n int" + ", extra variant" * batch.extra
            for session in self.sessions.values():
                session.read.schema(schema).parquet(str(folder)).createOrReplaceTempView(view)
            self.batches[batch] = view
        return self.batches[batch]

    # -- what is compared

    def compare(self, told: str, *, in_order: bool) -> None:
        """Compares what the statement did.

        in_order: whether the rows that it wrote were in the same order in both sessions.
        """
        logs = [commits(self.root / twin) for twin in self.sessions]
        same(*map(len, logs), told)
        for version in range(self.versions, len(logs[0])):
            same(*(normalized(log[version], in_order=in_order) for log in logs), told)
        changed, self.versions = range(self.versions, len(logs[0])), len(logs[0])
        self._marks(logs, changed)
        if not changed:
            return
        plain = self.sessions["theirs"]
        metadata = ["_metadata.row_commit_version", "_metadata.row_id"] * self.kind.row_tracking
        ours, theirs = (rows(plain.table(self.name(twin)), metadata) for twin in self.sessions)
        if self.kind.row_tracking:
            ids = {row[-1] for row in ours}
            self.equal_row_ids |= (ids - self.row_ids) if in_order else set()
            self.row_ids |= ids
            ours, theirs = (self._known(found) for found in (ours, theirs))
        same(ours, theirs, told)
        self.counts["rows"] += len(ours)
        if self.kind.change_data:
            first, last = changed[0], changed[-1]
            ours, theirs = (
                outcome(lambda twin=twin: rows(changes(plain, self.root / twin, first, last))) for twin in self.sessions
            )
            same(ours, theirs, told)
            self.counts["change data"] += len(ours)
        if HISTORIES or self.versions % 3 == 0:
            self._queries(told)

    def _known(self, found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """The rows with those row ids that both twins must have."""
        assert len({row[-1] for row in found}) == len(found)
        return sorted(((*row[:-1], row[-1] if row[-1] in self.equal_row_ids else None) for row in found), key=repr)

    def _marks(self, logs: list[list[list[dict[str, Any]]]], versions: range) -> None:
        """Every file of the enabled session is this package's, and none of the other's."""
        for twin, log in zip(self.sessions, logs, strict=True):
            before = {add["path"] for commit in log[: versions.start] for add in _files(commit)}
            for version in versions:
                for add in _files(log[version]):
                    if add["path"] not in before:
                        created_by = pq.read_metadata(self.root / twin / unquote(add["path"])).created_by
                        assert created_by.startswith("parquet-cpp-arrow" if twin == "ours" else "parquet-mr")
                        self.counts[f"files {twin}"] += 1

    def _queries(self, told: str) -> None:
        """Compares queries of the enabled session's table with those of a plain one."""
        made = Queries(self.table)
        made.rng = made.predicates.rng = rng = Random(f"{self.table.seed} {self.versions}")
        forms = [made.projection, made.aggregate, made.functions, made.join, made.semi_join, made.union, made.subquery]
        forms += [made.generator, made.whole, made.outer, made.metadata, made.extremes, made.cube]
        queries = [f"select id, p, n from {made.name} where {made.predicates.tree(2).safe}" for _ in range(QUERIES)]
        queries += [rng.choice(forms)() for _ in range(QUERIES)]
        for query in queries:
            found = {}
            for twin, session in self.sessions.items():
                try:
                    found[twin] = sorted(map(repr, collected(session.sql(query))))
                except (PySparkException, Py4JJavaError) as error:
                    found[twin] = str(error)
            self.counts["queries"] += 1
            self.counts["queries that fail"] += isinstance(found["theirs"], str)
            assert found["ours"] == found["theirs"] or isinstance(found["theirs"], str), f"{told}\n{query}"


def same(ours: Any, theirs: Any, told: str) -> None:
    """Asserts that both are equal; else shows what each has that the other lacks, for a statement."""
    if ours != theirs:
        lists = [list(each) if isinstance(each, list | tuple) else [each] for each in (ours, theirs)]
        only = [[one for one in lists[side] if one not in lists[1 - side]] for side in (0, 1)]
        pytest.fail(f"{told}\nonly enabled: {only[0]}\nonly plain:   {only[1]}")


def outcome(action: Callable[[], Any]) -> Any:
    """What an action returns; of an error the class and SQLSTATE."""
    try:
        return action()
    except PySparkException as error:
        return f"{error.getCondition()} {error.getSqlState()}"
    except Py4JJavaError as error:
        found = error.java_exception
        while found is not None:
            if hasattr(found, "getSqlState"):
                return f"{found.getCondition()} {found.getSqlState()}"
            found = found.getCause()
        return error.java_exception.getClass().getName()


def changes(spark: SparkSession, path: Path, first: int, last: int) -> DataFrame:
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    return reader.option("startingVersion", first).option("endingVersion", last).load(str(path)).drop("_commit_timestamp")


def _files(commit: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [action[kind] for action in commit for kind in ("add", "cdc") if kind in action]


# ----------------------------------------------------------------------------------------------------------------- tests


@pytest.fixture(scope="module")
def sessions(spark):
    """An enabled session and a plain one."""
    enabled, plain = spark.newSession(), spark.newSession()
    plain.conf.set(READS_SHREDDED, "true")  # which is not the default of Spark 4.0
    dv.enable(enabled)
    spark.sparkContext.setLogLevel("OFF")  # tasks fail where a cast does
    yield enabled, plain
    spark.sparkContext.setLogLevel("ERROR")
    dv.disable(enabled)


EACH = [
    Statement(INSERTS[0], Batch(1, 0, 24)),
    Statement("update {t} set v = s.w, n = n + 1 where id % 2 = 0"),
    Statement(merge(CONDITIONS[0], MATCHED[3], NOT_MATCHED[0], NOT_BY_SOURCE[2], evolution=True), Batch(2, 10, 24, extra=True)),
    Statement("delete from {t} where {where}", where=3),
    Statement("optimize {t}"),
    Statement("", Batch(3, 5, 12), 0, "overwrite", (("replaceWhere", "p = 1"),)),
]
MORE = [
    Statement("", Batch(4, 0, 30), 0, "append", (("maxRecordsPerFile", "5"),)),
    Statement("alter table {t} alter column n type bigint"),
    Statement(merge(CONDITIONS[1], MATCHED[2], NOT_MATCHED[1], NOT_BY_SOURCE[1], evolution=False), Batch(5, 20, 20)),
    Statement(INSERTS[6], Batch(6, 0, 20), 4),
    Statement("restore table {t} to version as of 1"),
    Statement("alter table {t} add columns (s.extra bigint)"),
    Statement(INSERTS[5]),
]


@settings(
    max_examples=max(HISTORIES, 1),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink] if HISTORIES else [Phase.explicit],
    suppress_health_check=list(HealthCheck),
)
@example(Kind(partitioned=True, change_data=True, row_tracking=True, vectors=True), 1, EACH)
@example(Kind(mapping="name", widening=True, change_data=True), 2, MORE)
@given(KINDS, SEEDS, st.lists(STATEMENTS, min_size=3, max_size=8))
def test_twins(sessions, tmp_path_factory, kind, seed, statements):
    """Every statement of an enabled session has the effects of the same statement in a plain one, and is read as written
    (W10)."""
    root = tmp_path_factory.mktemp("twins")
    note(f"{root} {kind}")
    twins = Twins(*sessions, root, kind, seed)
    first = replace(Statement(INSERTS[0]), batch=Batch(seed, 0, 30))
    for statement in [first, *statements]:
        twins.statement(statement)
    forget(sessions[0])
    print(dict(twins.counts))
