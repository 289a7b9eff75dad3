"""DELETE, UPDATE and MERGE of an enabled session, compared with twin tables that a plain session changes.

The rules find the rows, and this package writes the files. After each statement the two tables have the same rows, change data
and metrics in their history. For more generated statements:

    COMMANDS_STATEMENTS=500 COMMANDS_SEED=1 python -m pytest -s tests/every_write/test_delete_update_merge.py -k generated
"""

from __future__ import annotations

import itertools
import shutil
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.types import VariantVal

import delta_variant as dv
from delta_variant import jvm
from tests.gates import both
from tests.generated.predicates import Predicates
from tests.generated.tables import Table
from tests.logs import actions
from tests.optimizer.skipping.tables import create
from tests.support import SOAK, length, share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.interpreted]

STATEMENTS = length("COMMANDS_STATEMENTS", 3, 64)
SEED = length("COMMANDS_SEED", 901, 900)  # every sixth table, such as that of 900, has large files
PER_TABLE = 8
FILES, EACH = 12, 100
EVENT = """to_variant_object(named_struct(
    'id', id, 's', concat('k', lpad(id, 4, '0')), 'n', cast(id * 0.5 as decimal(9,1)),
    'day', date_add(date'2024-01-01', int(id)))) v"""
SHRED = {"v": "id bigint, s string, n decimal(9,1), day date"}


class Sessions(NamedTuple):
    on: SparkSession
    off: SparkSession


@pytest.fixture(scope="module")
def sessions(spark) -> Iterator[Sessions]:
    pair = Sessions(spark.newSession(), spark.newSession())
    dv.enable(pair.on)
    yield pair
    dv.disable(pair.on)


LAYOUTS: dict[str, dict[str, str]] = {
    "plain": {},
    "deletion vectors": {"delta.enableDeletionVectors": "true"},
    "everything": {
        "delta.enableDeletionVectors": "true",
        "delta.enableChangeDataFeed": "true",
        "delta.columnMapping.mode": "name",
        "delta.enableRowTracking": "true",
    },
}


def make(session: SparkSession, path: Path, properties: dict[str, str]) -> None:
    create(
        session,
        path,
        "id long, p int, v variant",
        "partitioned by (p)",
        **{"delta.enableDeletionVectors": "false"} | properties,
    )
    source = session.range(0, FILES * EACH, 1, 1)
    dv.write(source.selectExpr("id", "0 p", EVENT), path, shred=SHRED, max_rows_per_file=EACH)


@pytest.fixture(scope="module")
def bases(sessions, tmp_path_factory) -> dict[str, Path]:
    """Tables of `FILES` files, by layout."""
    root = tmp_path_factory.mktemp("commands")
    for name, properties in LAYOUTS.items():
        make(sessions.off, root / name, properties)
    return {name: root / name for name in LAYOUTS}


def copied(bases: dict[str, Path], layout: str, tmp_path: Path) -> tuple[str, str]:
    """The SQL names of a copy of the table and of its twin."""
    for name in ("on", "off"):
        shutil.copytree(bases[layout], tmp_path / name)
    return f"delta.`{tmp_path / 'on'}`", f"delta.`{tmp_path / 'off'}`"


def together(session: SparkSession, *queries: str) -> list[list[str]]:
    """The rows of each query, asked as one."""
    each = [f"select {n} n, * from ({query})" for n, query in enumerate(queries)]
    rows = session.sql(" union all ".join(each)).collect()
    return [sorted(repr(shown(row[1:])) for row in rows if row.n == n) for n in range(len(queries))]


def shown(value: Any) -> Any:
    """A value whose text says all of it: of a VARIANT the values, by type, and exact numbers, whose bytes are those of the
    file's typed columns, by number."""
    if isinstance(value, VariantVal):
        return "variant", shown(dv.binary.decode(value.metadata, value.value))
    if isinstance(value, tuple | list):
        return [shown(item) for item in value]
    if isinstance(value, dict):
        return {key: shown(value[key]) for key in sorted(value)}
    return Fraction(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else value


def states(session: SparkSession, *tables: str) -> list[list[str]]:
    """The rows of each table."""
    return together(session, *(f"select *, typeof(variant_get(v, '$.n')) from {table}" for table in tables))


def history(table: str) -> list[Any]:
    """The operation and the metrics of each commit in the log, without times and sizes."""
    found = actions(table[7:-1], "commitInfo")
    kept = [{k: v for k, v in info["operationMetrics"].items() if not k.endswith(("Ms", "Bytes"))} for info in found]
    return [(info["operation"], info["isBlindAppend"], metrics) for info, metrics in zip(found, kept, strict=True)]


def executed(session: SparkSession, statement: str) -> str:
    """The result of a statement, or the type and the condition of its error."""
    try:
        return repr(session.sql(statement).collect())
    except (PySparkException, Py4JJavaError) as error:
        return f"fails: {type(error).__name__} {getattr(error, 'getCondition', lambda: None)()}"


class Scanned:
    """How many files the scans of a session's queries open."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark, self.store = spark, spark._jsparkSession.sharedState().statusStore()
        self.seen = max(self.executions(), default=-1)

    def executions(self) -> list[int]:
        """The executions that the session's store still has."""
        self.spark._jsc.sc().listenerBus().waitUntilEmpty()
        return [execution.executionId() for execution in jvm.items(self.store.executionsList())]

    def files(self) -> list[int]:
        """Files read by each Parquet scan, by its metrics. Scans of Delta's log are not among them: it is JSON here."""
        found = []
        for execution in (number for number in self.executions() if number > self.seen):
            values = self.store.executionMetrics(execution)
            nodes = self.store.planGraph(execution).allNodes()
            for node in map(nodes.apply, range(nodes.size())):
                for metric in map(node.metrics().apply, range(node.metrics().size())):
                    value = values.get(metric.accumulatorId())
                    if node.name().startswith("Scan parquet") and metric.name() == "number of files read" and value.isDefined():
                        found.append(int(value.get().replace(",", "")))
        return found


NEW = 'parse_json(concat(\'{{"id":\', s.i, \',"s":"new"}}\'))'
SOURCE = "(select * from values {values} s(i, w)) s"
MATCHED = "when matched then update set v = " + NEW
INSERT = "when not matched then insert (id, p, v) values (s.i, 0, " + NEW + ")"


def merge(source: str, on: str, *clauses: str) -> str:
    return f"merge into {{table}} t using {source} on {on} {' '.join(clauses)}"


def values(*rows: str) -> str:
    return SOURCE.format(values=", ".join(f"({row})" for row in rows))


ID = "t.v:id::bigint = s.i"
# Statements, and how many files of the table a scan of the statement may open at most.
COMMANDS = {
    "delete a row": ("delete from {table} where v:id::bigint = 5", 1),
    "delete a range": ("delete from {table} where v:s::string between 'k0250' and 'k0330' and v:n::double > 130", 2),
    "delete a file": ("delete from {table} where v:id::int < 100", 1),
    "delete nothing": ("delete from {table} where v:id::bigint = -5", 1),
    "delete by OR": ("delete from {table} where v:id::bigint = 7 or v:day::date = date'2024-01-20' or id = 950", 3),
    "update a row": ("update {table} set v = parse_json('1') where v:id::smallint = 703", 1),
    "update by a path": (
        "update {table} set v = to_variant_object(named_struct('n', v:n::decimal(9,1))) where v:n::double > 590",
        1,
    ),
    "merge": (merge(values("501L, 'x'", "502L, 'y'", "5000L, 'z'"), ID, MATCHED, INSERT), 1),
    "merge with nulls": (merge(values("501L, 'x'", "null, 'y'"), ID, MATCHED), 1),
    "merge by text": (merge(values("501L, 'k0501'", "2L, 'k0001'"), "t.v:s::string = s.w", MATCHED, INSERT), 2),
    "merge by two paths": (merge(values("501L, 'k0501'", "2L, 'k0001'"), f"t.v:s::string = s.w and {ID}", MATCHED, INSERT), 2),
    "merge that inserts": (merge(values("501L, 'x'", "5000L, 'z'"), ID, INSERT), 1),
    "merge that deletes": (merge(values("501L, 'x'", "1101L, 'z'"), ID, "when matched and s.w > 'x' then delete"), 2),
    "merge of many keys": (
        merge("(select id i from range(400, 30000)) s", f"{ID} and t.id < 550", "when matched then delete"),
        8,
    ),
    "merge nothing": (merge(values("5000L, 'x'"), ID, MATCHED, INSERT), 1),
    "merge a constant": (merge(values("501L, 'x'"), "t.v:id::bigint = 501 and s.i = 501", MATCHED), 1),
    "merge two for one": (merge(values("501L, 'x'", "501L, 'y'"), ID, MATCHED), 1),
    "merge the others": (
        merge(values("501L, 'x'"), ID, MATCHED, "when not matched by source and t.v:id::bigint < 20 then delete"),
        FILES,
    ),
    "merge a table": (merge("(select v:id::bigint i from {table} where id between 100 and 110) s", ID, MATCHED), 1),
}


CASES = list(itertools.product(COMMANDS, LAYOUTS))
"""`make test` runs a DELETE, an UPDATE and a MERGE, each on a layout of its own; `make soak` all."""


@pytest.mark.parametrize(("command", "layout"), share(CASES, 19))
def test_changes_what_it_changes_without(sessions, bases, tmp_path, command, layout):
    """A statement leaves the rows, history and change data that it leaves in its twin, and opens few files (Q5)."""
    on, off = copied(bases, layout, tmp_path)
    statement, most = COMMANDS[command]
    scanned = Scanned(sessions.on)
    said = executed(sessions.on, statement.format(table=on))
    files = scanned.files()
    assert said == executed(sessions.off, statement.format(table=off))
    found, wanted = states(sessions.off, on, off)
    assert found == wanted
    assert history(on) == history(off)
    if layout == "everything":
        changes = "select * except (_commit_timestamp) from table_changes('{}', 1)"
        found, wanted = together(sessions.off, *(changes.format(table) for table in (on, off)))
        assert found == wanted
    assert 0 < max(files) <= most, files


PAIRS = [("delete a row", "merge"), ("merge", "update a row")]


@pytest.mark.parametrize("first", list(COMMANDS) if SOAK else sorted({first for first, _ in PAIRS}))
def test_conflicts_as_without(sessions, bases, gate, tmp_path, first):
    """Two statements at once succeed or conflict as they do without the rules: what Delta registers as read is the same."""
    seconds = list(COMMANDS) if SOAK else [second for one, second in PAIRS if one == first]
    for number, second in enumerate(seconds):
        tables = copied(bases, "plain", tmp_path / str(number))
        found = []
        for session, table in zip(sessions, tables, strict=True):
            actions = [partial(_run, session, COMMANDS[name][0].format(table=table)) for name in (first, second)]
            found.append(both(session, gate, table, *actions))
        assert found[0] == found[1], second
        on, off = states(sessions.off, *tables)
        assert on == off, second
        print(f"{first:20} beside {second:20} {', '.join(found[0])}")


def _run(session: SparkSession, statement: str) -> None:
    session.sql(statement).collect()


# ---- generated --------------------------------------------------------------------------------------------------------


class Statements:
    """Statements about one generated table."""

    def __init__(self, table: Table) -> None:
        self.table, self.rng, self.predicates = table, table.rng, Predicates(table)

    def any(self) -> str:
        where = self.predicates.tree(1)
        condition = where.asked if self.rng.random() < 0.3 else where.safe
        value = "to_variant_object(named_struct('a', id, 'b', 'x'))"
        return self.rng.choice(
            [
                f"delete from {{table}} where {condition}",
                f"update {{table}} set v = {value} where {condition}",
                *[self.merged()] * 2,
            ]
        )

    def merged(self) -> str:
        """A MERGE whose source has the values of a path in some of the table's rows."""
        operand, kind, _ = self.predicates.operand(["bigint", "string", "int", "date", "decimal(18,2)"])
        source = (
            f"(select distinct k from (select {operand.safe} k from {{table}} where id % 11 = {self.rng.randrange(11)} "
            f"union all select cast(null as {kind})) where k is not null)"
        )
        target = operand.safe
        clauses = self.rng.choice(
            [
                ["when matched then delete"],
                ["when matched then update set s = named_struct('w', t.v)"],
                ["when not matched then insert (id) values (-1)"],
                ["when matched and id % 2 = 0 then delete", "when not matched then insert (id) values (-2)"],
            ]
        )
        return f"merge into {{table}} t using {source} x on {target} = x.k {' '.join(clauses)}"


def test_generated(spark, tmp_path):
    """Generated statements on generated tables give the results, errors and rows that they give in the twins."""
    spark.sparkContext.setLogLevel("OFF")  # tasks fail where a cast does
    counts = {"statements": 0, "fail": 0, "change": 0}
    for seed in range(SEED, SEED + -(-STATEMENTS // PER_TABLE)):
        on, off = spark.newSession(), spark.newSession()
        table = Table(seed, tmp_path / f"c{seed}")
        for session in (on, off):
            for key, value in table.settings.items():
                session.conf.set(key, value)
        dv.enable(on)
        table.build(on, off)
        for session in (on, off):  # Spark's scan of a shredded VARIANT needs generated code for its casts
            session.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
        twin = tmp_path / f"c{seed}-twin"
        shutil.copytree(table.path, twin)
        made = Statements(table)
        for _ in range(min(PER_TABLE, STATEMENTS)):
            statement = made.any()
            said = executed(off, statement.format(table=f"delta.`{twin}`"))
            found = executed(on, statement.format(table=table.name))
            counts["statements"] += 1
            counts["fail"] += said.startswith("fails")
            if said.startswith("fails"):
                assert found == said, statement
                continue
            assert found == said, (seed, statement)
            found, wanted = together(off, *(f"select id, p, v, s from {name}" for name in (table.name, f"delta.`{twin}`")))
            assert found == wanted, (seed, statement)
            counts["change"] += "num_affected_rows=0" not in said
        dv.disable(on)
    spark.sparkContext.setLogLevel("ERROR")
    print(f"COMMANDS_SEED={SEED}: {counts}")
    assert counts["change"] > counts["statements"] / 4
