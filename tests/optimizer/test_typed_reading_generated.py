"""Typed reading changes no result: generated tables and queries, compared with the same session without it.

The tables are those of test_skipping_generated: files of this package and of delta-spark, shredded and plain, with and without
bounds, changed by DML. Queries use paths wherever SQL takes an expression. With typed reading a query has the same rows, types
and bytes of Variants, and no error that it does not have without. `make test` runs 10 queries, `make soak` 5,000. For others:

    NEVER_DIFFERENT_QUERIES=5000 NEVER_DIFFERENT_SEED=1 python -m pytest -s tests/optimizer/test_typed_reading_generated.py
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import delta_variant as dv
from tests.optimizer.test_skipping_generated import Predicates, Sql, Table
from tests.support import length, prepared

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUERIES = length("NEVER_DIFFERENT_QUERIES", 10, 5000)
SEED = length("NEVER_DIFFERENT_SEED", 500, 500)
PER_TABLE = 100
RATES = ((0, 0, 0.05, 0.3), (0, 0, 0.3), (*[0] * 20, 0.2), (*[0] * 20, 0.15))  # few paths that are not of one type
SETTING = "spark.delta_variant.typedReading"
_COLUMN = re.compile(r"(?<![\w.$'\"])(v|s|id|p)(?=[.:,)\s]|$)")


class Queries:
    """Queries about one table."""

    def __init__(self, table: Table) -> None:
        self.table, self.rng = table, table.rng
        self.predicates = Predicates(table)

    def any(self) -> str:
        forms = [self.projection] * 2 + [self.aggregate] * 2 + [self.functions, self.join, self.semi_join, self.window]
        forms += [self.ordered, self.union, self.subquery, self.generator, self.whole, self.outer, self.metadata]
        forms += [self.extremes, self.cube]
        return self.rng.choice(forms)()

    def value(self, alias: str = "t") -> str:
        """A path read as some type and cast to string, so that rows can be compared; or the Variant at the path."""
        rng = self.rng
        spot = rng.choice(self.table.spots)
        if rng.random() < 0.15:
            return self._of(alias, self.predicates.get(spot, "variant").asked)
        return f"cast({self.scalar(alias)} as string)"

    def scalar(self, alias: str = "t") -> str:
        operand, _, _ = self.predicates.operand()
        asked = operand.asked if self.rng.random() < 0.2 else operand.safe
        return self._of(alias, f"{asked}")

    def _of(self, alias: str, text: str) -> str:
        """The expression on the columns of that alias."""
        return _COLUMN.sub(rf"{alias}.\1", text)

    def where(self, alias: str = "t") -> str:
        if self.rng.random() < 0.4:
            return ""
        tree = self.predicates.tree(1)
        sql = tree if self.rng.random() < 0.3 else Sql(tree.safe, tree.safe)
        return f"where {self._of(alias, sql.asked)}"

    def projection(self) -> str:
        columns = [f"{self.value()} c{n}" for n in range(self.rng.randrange(1, 4))]
        return f"select id, {', '.join(columns)} from {self.name} t {self.where()}"

    @property
    def name(self) -> str:
        return self.table.name

    def aggregate(self) -> str:
        functions = [f"{self.rng.choice(['min', 'max', 'count', 'first_value'])}({self.scalar()})" for _ in range(2)]
        functions = [
            text.replace("first_value", "bit_xor(xxhash64") + ")" * text.startswith("first_value") for text in functions
        ]
        listed = ", ".join(f"cast({text} as string)" for text in functions)
        return f"select cast({self.scalar()} as string) k, count(*), {listed} from {self.name} t {self.where()} group by 1"

    def functions(self) -> str:
        asked = self.scalar()
        return (
            f"select count({asked}), cast(max({asked}) as string), count(distinct {asked}), "
            f"count(*) filter (where {self._of('t', self.predicates.tree(0).safe)}) from {self.name} t {self.where()}"
        )

    def extremes(self) -> str:
        """Aggregates that the log may answer."""
        functions = [f"cast({self.rng.choice(['min', 'max'])}({self.scalar()}) as string)" for _ in range(2)]
        return f"select {', '.join(functions)}, count(*) from {self.name} t"

    def cube(self) -> str:
        keys = f"cast({self.scalar()} as string) k, id % 3 l"
        largest = f"cast(max({self.scalar()}) as string)"
        return f"select {keys}, count(*), {largest} from {self.name} t {self.where()} group by cube(1, 2)"

    def join(self) -> str:
        kind = self.rng.choice(["join", "left join", "full join"])
        condition = f"cast({self.scalar('a')} as string) = cast({self.scalar('b')} as string)"
        if self.rng.random() < 0.5:
            condition += " and a.id < b.id"
        return (
            f"select a.id, b.id, {self.value('a')}, {self.value('b')} from {self.name} a {kind} {self.name} b on {condition} "
            f"{self.where('a')}"
        )

    def semi_join(self) -> str:
        inner = f"select cast({self.scalar('b')} as string) from {self.name} b {self.where('b')}"
        return f"select id, {self.value()} from {self.name} t where cast({self.scalar()} as string) in ({inner})"

    def window(self) -> str:
        return (
            f"select id, {self.value()}, row_number() over (partition by {self.scalar()} order by {self.scalar()}, id) from "
            f"{self.name} t {self.where()}"
        )

    def ordered(self) -> str:
        return f"select id, {self.value()} from {self.name} t {self.where()} order by {self.scalar()}, id limit 7"

    def union(self) -> str:
        return f"{self.projection_of_one()} union all {self.projection_of_one()}"

    def projection_of_one(self) -> str:
        return f"select id, cast({self.scalar()} as string) c from {self.name} t {self.where()}"

    def subquery(self) -> str:
        asked = self.scalar()
        inner = f"(select max(cast({asked.replace('t.', 'u.')} as string)) from {self.name} u)"
        columns = f"id, {self.value()}, {inner} m"
        return f"with t as (select * from {self.name}) select {columns} from t where cast({asked} as string) < {inner}"

    def generator(self) -> str:
        texts = f"cast({self.scalar()} as string), cast({self.scalar()} as string)"
        return f"select id, e, {self.value()} from {self.name} t lateral view explode(array({texts})) x as e {self.where()}"

    def whole(self) -> str:
        return f"select id, {self.value()}, t.v, t.s from {self.name} t {self.where()}"

    def outer(self) -> str:
        """A query with a cast that is needed in some rows only."""
        predicate = self._of("b", self.predicates.tree(1).safe)
        operand, _, _ = self.predicates.operand()
        conditional = f"case when {predicate} then cast({self._of('b', operand.asked)} as string) end"
        return f"select a.id, {conditional}, b.v is null from {self.name} a left join {self.name} b on a.id = b.id + 1"

    def metadata(self) -> str:
        return f"select id, _metadata.file_name, _metadata.file_size, {self.value()} from {self.name} t {self.where()}"


class Compared:
    """Compares queries on one table with typed reading and without."""

    def __init__(self, session: SparkSession, table: Table, queries: int) -> None:
        self.session, self.table = session, table
        self.counts: Counter[str] = Counter(tables=1)
        self.wrong: list[str] = []
        made = Queries(table)
        for _ in range(queries):
            self.compare(made.any())

    def compare(self, query: str) -> None:
        self.counts["queries"] += 1
        if self.table.seed % 4:
            query = prepared(self.session, query)
        without, _ = self._rows(query, typed=False)
        found, plan = self._rows(query, typed=True)
        self.counts["typed"] += "typed_value" in plan
        self.counts["typed and by Spark's scan"] += "typed_value" in plan and "Union" in plan
        self.counts["from the log"] += "logged#" in plan
        self.counts["fail"] += isinstance(without, str)
        self.counts["rows"] += len(without) if isinstance(without, list) else 0
        if isinstance(without, list) and without != found:
            first: Any = found
            if isinstance(found, list):
                pairs = zip(without, found, strict=False)
                first = next((pair for pair in pairs if pair[0] != pair[1]), (len(without), len(found)))
            self.wrong.append(f"seed {self.table.seed}: {query}\n  {first}\n  {self.table.settings}\n  {self.table.history}")
            print(self.wrong[-1])

    def _rows(self, query: str, *, typed: bool) -> tuple[list[Any] | str, str]:
        self.session.conf.set(SETTING, str(typed).lower())
        plan = ""
        try:
            df = self.session.sql(query)
            plan = df._jdf.queryExecution().optimizedPlan().toString() if typed else ""
            return sorted(map(repr, df.collect())), plan
        except (PySparkException, Py4JJavaError) as error:
            return str(error), plan


def compared(spark: SparkSession, seed: int, root: Path, queries: int) -> Compared:
    """Makes one table and compares queries on it."""
    session = spark.newSession()
    table = Table(seed, root / f"d{seed}", change=0.1, rates=RATES)
    settings = {
        **table.settings,
        "spark.sql.parquet.enableVectorizedReader": table.rng.choice(["true", "true", "false"]),
        "spark.sql.caseSensitive": table.rng.choice(["false", "true"]),
        "spark.sql.adaptive.enabled": table.rng.choice(["false", "true"]),
        "spark.delta_variant.footerBytes": table.rng.choice(["0", "0", "262144"]),  # these files are small
    }
    # Spark's scan of a shredded VARIANT needs generated code for its casts; the writers of the table do not.
    codegen = {
        "spark.sql.codegen.factoryMode": "FALLBACK",
        "spark.sql.codegen.wholeStage": table.rng.choice(["true", "false", "false"]),
    }
    for key, value in settings.items():
        session.conf.set(key, value)
    dv.enable(session)
    try:
        table.build(session, session)
        for key, value in codegen.items():
            session.conf.set(key, value)
        return Compared(session, table, queries)
    finally:
        dv.disable(session)


def test_never_different(spark, tmp_path):
    """Queries give the rows, types and bytes that they give without typed reading, and no new error (T5)."""
    spark.sparkContext.setLogLevel("OFF")  # tasks fail where a cast does
    seeds = range(SEED, SEED + -(-QUERIES // PER_TABLE))
    each = [compared(spark, seed, tmp_path, min(PER_TABLE, QUERIES)) for seed in seeds]
    spark.sparkContext.setLogLevel("ERROR")
    counts = sum((one.counts for one in each), Counter())
    wrong = [text for one in each for text in one.wrong]
    print(f"NEVER_DIFFERENT_SEED={SEED}: {dict(counts)}")
    assert not wrong, "\n\n".join(wrong[:20])
    assert counts["typed"] > counts["queries"] / 20
    assert counts["from the log"] or QUERIES < 5000
    assert counts["fail"] < counts["queries"] / 2
