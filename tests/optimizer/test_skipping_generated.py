"""Skipping loses no row: generated tables and predicates, compared with a session without skipping.

For each table, an aggregation without skipping finds the files in which a row matches a predicate. A query with this predicate
must plan to open all of them. Some of the predicates also run as whole queries: a query that succeeds without skipping has the
same rows with it. A pair is one predicate on one table.

A cast that fails makes a query fail, so the aggregation uses the same predicate with try_variant_get and try_cast. If the query
succeeds, both predicates are TRUE for the same rows. A lost file is an error only if the query succeeds without skipping.

Most tables have files and row groups of a few rows. One table in six has large files too, of several row groups, in which types
change and new paths appear after the rows that a writer samples to choose a shredding schema.

`make test` checks the same 200 pairs each time, on a table with small files and on one with large files too. `make soak` checks
up to 20,000. For any number of others, from another seed:

    NEVER_WRONG_PAIRS=1000000 NEVER_WRONG_SEED=1 python -m pytest -s tests/optimizer/test_skipping_generated.py

Delta runs a job over the log for every filtered scan. To save these jobs, the predicates of a table are planned over one scan
that Delta has prepared for all files, in which the rule sees what it sees in separate queries. Whole queries run Delta's job.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

import delta_variant as dv
from delta_variant import jvm
from delta_variant.errors import DeltaVariantError
from tests.generated.predicates import Predicates, Sql
from tests.generated.tables import LARGE, PUSH, RATES, Table
from tests.support import length

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PAIRS = length("NEVER_WRONG_PAIRS", 160, 20_000)
SEED = length("NEVER_WRONG_SEED", 101, 101)
PER_TABLE, PER_LARGE_TABLE = (1000, 200) if PAIRS >= 10_000 else (80, 40)
WHOLE = length("NEVER_WRONG_WHOLE", 3, 10)  # of a table's predicates that run as whole queries
PER_PLAN = 50  # predicates planned as one query, a UNION ALL
PER_AGGREGATION = 100
SOURCES = [
    "{}",
    "(select * from {})",
    "(select id, p, v, named_struct('w', s.w) s from {})",
    "(select * from {} where v is not null or p >= 0)",
]


class Check:
    """Checks the predicates on one table in both sessions."""

    def __init__(self, table: Table, on: SparkSession, off: SparkSession) -> None:
        self.table, self.on, self.off = table, on, off
        self.counts: Counter[str] = Counter(tables=1)
        self.wrong: list[str] = []
        trees = [Predicates(table).tree(3) for _ in range(PER_LARGE_TABLE if table.large else PER_TABLE)]
        # Most queries with casts that can fail do fail on these tables, and then there is little to compare.
        self.predicates = [tree if table.rng.random() < 0.3 else Sql(tree.safe, tree.safe) for tree in trees]
        self.matching: dict[int, set[str]] = {}
        self.kept: dict[int, set[str]] = {}
        self.files: set[str] = set()

    def run(self) -> None:
        everything = range(len(self.predicates))
        prepared = self.on.sql(f"select * from {self.table.name}")._jdf.queryExecution().optimizedPlan()
        dataset = jvm.static(self.on, "org.apache.spark.sql.classic.Dataset").ofRows(self.on._jsparkSession, prepared)
        DataFrame(dataset, self.on).createOrReplaceTempView("prepared")
        self._apart(everything, PER_AGGREGATION, self._aggregate, self._refuse)
        self._apart(self.matching, PER_PLAN, self._plan, self._fail)
        self.counts["pairs"] = len(self.kept)
        self.counts["decisions"] = len(self.kept) * len(self.files)
        for number, kept in self.kept.items():
            matching = self.matching[number]
            self.counts["without a match"] += len(self.files - matching)
            self.counts["skipped"] += len(self.files - kept)
            if not matching <= kept:
                self._confirm(number, matching - kept)
        for number in self.table.rng.sample(sorted(self.kept), min(WHOLE, len(self.kept))):
            self._whole(number)

    def _apart(self, numbers: Iterable[int], size: int, action: Callable, failed: Callable) -> None:
        """Runs the action on `size` predicates at a time. If one fails, it halves their number until this one is alone."""
        numbers = list(numbers)
        for some in [numbers[at : at + size] for at in range(0, len(numbers), size)]:
            try:
                action(some)
            except (PySparkException, Py4JJavaError) as error:
                if len(some) == 1:
                    failed(some[0], error)
                else:
                    self._apart(some, -(-len(some) // 2), action, failed)

    def _aggregate(self, numbers: list[int]) -> None:
        listed = ", ".join(f"bool_or({self.predicates[number].safe})" for number in numbers)
        self.off.conf.set(PUSH, "false")
        try:
            rows = self.off.sql(
                f"select element_at(split(_metadata.file_path, '/'), -1), {listed} from {self.table.name} group by 1"
            ).collect()
        finally:
            self.off.conf.set(PUSH, self.table.settings[PUSH])
        self.files = {row[0] for row in rows}
        for at, number in enumerate(numbers):
            self.matching[number] = {row[0] for row in rows if row[at + 1]}

    def _refuse(self, number: int, error: Exception) -> None:
        self.counts["refused by Spark"] += 1
        print(f"seed {self.table.seed}, Spark refuses {self.predicates[number].safe}: {str(error)[:300]}")

    def _plan(self, numbers: list[int]) -> None:
        """Reads the kept files from the optimized plan, which has no branch that Spark proves empty."""
        branches = []
        for number in numbers:
            source = SOURCES[number % len(SOURCES)].format("prepared")
            branches.append(f"select {number} q from {source} where {self.predicates[number].asked}")
        plan = self.on.sql(" union all ".join(branches))._jdf.queryExecution().optimizedPlan()
        kept: dict[int, set[str]] = {number: set() for number in numbers}
        for branch in _branches(plan):
            found = re.search(r"\b(\d+) AS q#", branch.expressions().mkString(" "))
            leaves = branch.collectLeaves()
            if found and leaves.size() and leaves.apply(0).nodeName().startswith("LogicalRelation"):
                paths = leaves.apply(0).relation().location().inputFiles()
                kept[int(found[1])] |= {unquote(path.rsplit("/", 1)[-1]) for path in paths}
        self.kept |= kept

    def _fail(self, number: int, error: Exception) -> None:
        """Planning failed with skipping."""
        if isinstance(self._rows(self.off, number), list):
            self._report(number, f"fails to plan with skipping only: {error}")
        else:
            self.counts["fail with and without"] += 1

    def _rows(self, session: SparkSession, number: int) -> list[Any] | str:
        """The rows of the query, or its error."""
        query = f"select id, p, to_json(v) j from {self.table.name} where {self.predicates[number].asked}"
        try:
            return sorted(session.sql(query).collect(), key=repr)
        except (PySparkException, Py4JJavaError) as error:
            return str(error)

    def _whole(self, number: int) -> None:
        without, found = self._rows(self.off, number), self._rows(self.on, number)
        self.counts["whole queries"] += 1
        self.counts["whole queries that fail without skipping"] += isinstance(without, str)
        if isinstance(without, list) and without != found:
            self._report(number, f"rows without skipping: {without}\n  with: {found}")

    def _confirm(self, number: int, lost: set[str]) -> None:
        without = self._rows(self.off, number)
        if isinstance(without, str):
            self.counts["files too few where the query fails"] += 1
            return
        found = self._rows(self.on, number)
        if without == found:  # Spark's own pushdown of the path changes the rows
            self.counts["files too few for the rows without push-down"] += 1
            print(f"seed {self.table.seed}, only without push-down: {self.predicates[number].asked}")
            return
        rows = f"{len(without)} rows without skipping, with: {len(found) if isinstance(found, list) else found}"
        self._report(number, f"{rows}; files too few: {sorted(lost)}", lost)

    def _report(self, number: int, text: str, lost: Iterable[str] = ()) -> None:
        table, predicate = self.table, self.predicates[number]
        lines = [f"seed {table.seed}: {text}", f"where {predicate.asked}", f"safe: {predicate.safe}", str(table.settings)]
        lines += table.history
        for name in sorted(lost)[:1]:
            rows = self.off.sql(
                f"select id, to_json(v), to_json(s.w), schema_of_variant(v) from {table.name} "
                f"where _metadata.file_path like '%{name}' and {predicate.safe}"
            ).collect()
            lines += [f"{name}:", *map(str, rows[:3]), *_statistics(table.path, name)]
        self.wrong.append("\n  ".join(lines))
        print(self.wrong[-1])


def _branches(plan: Any) -> Iterator[Any]:
    """The plans under a UNION ALL. Typed reading may have put another union in place of one."""
    if plan.nodeName() == "Union":
        for at in range(plan.children().size()):
            yield from _branches(plan.children().apply(at))
    else:
        yield plan


def _statistics(path: Path, name: str) -> Iterator[str]:
    """Tags, number of rows and bounds of a file in the log."""
    for log in sorted((path / "_delta_log").glob("*.json")):
        for action in map(json.loads, log.read_text().splitlines()):
            if "add" in action and unquote(action["add"]["path"]).endswith(name):
                stats = json.loads(action["add"]["stats"])
                yield f"{log.name}: tags {action['add'].get('tags')}, {stats.get('numRecords')} rows"
                for side in ("minValues", "maxValues"):
                    for column_name, text in stats.get(side, {}).items():
                        try:
                            yield f"{side}.{column_name} {dv.stats.decode_bounds(text)}"
                        except (DeltaVariantError, TypeError, AttributeError):
                            yield f"{side}.{column_name} {text}"


def check(spark: SparkSession, seed: int, root: Path, **options: Any) -> Check:
    """Makes one table and checks predicates on it."""
    on, off = spark.newSession(), spark.newSession()
    table = Table(seed, root / f"t{seed}", **options)
    for session in (on, off):
        for key, value in table.settings.items():
            session.conf.set(key, value)
    dv.enable(on)
    try:
        table.build(on, off)
        checked = Check(table, on, off)
        checked.run()
        return checked
    finally:
        dv.disable(on)


def checked(spark: SparkSession, seeds: Iterable[int], root: Path, **options: Any) -> Counter[str]:
    """Checks a table for each seed, and returns the counts of all."""
    spark.sparkContext.setLogLevel("OFF")  # tasks fail where a cast does
    with ThreadPoolExecutor(2) as threads:
        checks = list(threads.map(lambda seed: check(spark, seed, root, **options), seeds))
    spark.sparkContext.setLogLevel("ERROR")
    counts = sum((one.counts for one in checks), Counter())
    wrong = [text for one in checks for text in one.wrong]
    print(f"NEVER_WRONG_SEED={SEED}: {dict(counts)}")
    assert not wrong, "\n\n".join(wrong[:20])
    return counts


def test_never_wrong(spark, tmp_path):
    """Every file with a row that matches is opened; a query that succeeds without skipping has the same rows with it."""
    print(f"NEVER_WRONG_SEED={SEED}")
    counts = checked(spark, range(SEED, SEED + -(-PAIRS // PER_TABLE)), tmp_path)
    assert counts["skipped"] > counts["without a match"] / 10
    assert counts["refused by Spark"] < counts["pairs"] / 50


def test_never_wrong_about_times_in_strings(spark, tmp_path):
    """The same holds if every path has strings that spell times, of one form in most files, in any session time zone (Q8)."""
    seeds = [seed for seed in range(SEED, SEED + PAIRS) if seed % LARGE][: -(-PAIRS // 500)]
    counts = checked(
        spark, seeds, tmp_path, kinds=["spelled"], change=0.0, rates=((0, 0, 0, 0.02), *RATES[1:3], (0, 0, 0, 0.05))
    )
    assert counts["skipped"] > counts["without a match"] / 20  # half of the files are delta-spark's, and have no tag
