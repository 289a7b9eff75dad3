"""Typed reading changes no result: generated tables and queries, compared with the same session without it.

The tables are those of test_skipping_generated: files of this package and of delta-spark, shredded and plain, with and without
bounds, changed by DML. Queries use paths wherever SQL takes an expression. With typed reading a query has the same rows, types
and bytes of Variants, and no error that it does not have without. Every fifth query is asked of a stream of another table
with the same columns, too, if Spark takes it for one. `make test` runs 10 queries, `make soak` 5,000. For others:

    NEVER_DIFFERENT_QUERIES=5000 NEVER_DIFFERENT_SEED=1 python -m pytest -s tests/optimizer/test_typed_reading_generated.py
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

import delta_variant as dv
from tests.generated.queries import Queries
from tests.generated.tables import NEEDS_CODEGEN, Table
from tests.support import length, prepared

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUERIES = length("NEVER_DIFFERENT_QUERIES", 10, 5000)
SEED = length("NEVER_DIFFERENT_SEED", 501, 501)
PER_TABLE = 100
STREAMED = 5
"""Of how many queries one is asked of a stream, too."""
ELEMENTS = re.compile(r"typed_value\[\d+\]\.typed_value|typed_value\.typed_value")  # one element, or all of an array
SETTING = "spark.delta_variant.typedReading"


class Compared:
    """Compares queries on one table with typed reading and without."""

    def __init__(self, session: SparkSession, table: Table, queries: int) -> None:
        self.session, self.table = session, table
        self.counts: Counter[str] = Counter(tables=1)
        self.wrong: list[str] = []
        made, alike = Queries(table), table.alike(session)
        for number in range(queries):
            query = made.any()
            self.compare(query)
            if number % STREAMED == 0:
                self.compare_streams(query, alike)

    def compare_streams(self, query: str, path: Path) -> None:
        """Compares the query on a stream of the table at a path."""
        files = self.table.rng.choice([1, 2, 1000])
        stream = self.session.readStream.option("maxFilesPerTrigger", files).format("delta").load(str(path))
        stream.createOrReplaceTempView("streamed")
        query = query.replace(self.table.name, "streamed")
        without, counted, _ = self._streamed(query, typed=False)
        if without is not None:
            found, counts, plan = self._streamed(query, typed=True)
            self.counts["streams"] += 1
            self.counts["typed streams"] += "typed_value" in plan
            self.differ(f"a stream of {files} files: {query}", without, found)
            # Row groups that a filter excludes are not read.
            is_equal = counts == counted or ("where" in query and sum(counts) < sum(counted))
            if isinstance(without, list) and not is_equal:
                self.wrong.append(f"seed {self.table.seed}: {query}\n  {counts} rows were read, and not {counted}")

    def _streamed(self, query: str, *, typed: bool) -> tuple[list[Any] | str | None, list[int], str]:
        """What a stream gives, the rows that it reports to have read, and the plan of its last batch.

        None if Spark makes no stream of the query.
        """
        self.session.conf.set(SETTING, str(typed).lower())
        for mode in ("append", "complete"):
            try:
                writer = self.session.sql(query).writeStream.outputMode(mode).format("memory").queryName("rows_of_stream")
                stream = writer.trigger(availableNow=True).start()
            except AnalysisException:
                continue
            try:
                stream.awaitTermination()
                rows = sorted(map(repr, self.session.table("rows_of_stream").collect()))
            except (PySparkException, Py4JJavaError) as error:
                return str(error), [], ""
            batch = stream._jsq.streamingQuery().lastExecution()
            plan = "" if batch is None else batch.optimizedPlan().toString()
            return rows, [progress["numInputRows"] for progress in stream.recentProgress], plan
        return None, [], ""

    def compare(self, query: str) -> None:
        self.counts["queries"] += 1
        if self.table.seed % 4:
            query = prepared(self.session, query)
        without, _ = self._rows(query, typed=False)
        found, plan = self._rows(query, typed=True)
        self.counts["typed"] += "typed_value" in plan
        self.counts["elements"] += bool(ELEMENTS.search(plan))
        self.counts["exploded"] += "posexplode(" in plan
        self.counts["structs"] += "named_struct(" in plan
        self.counts["residuals"] += "newInstance(" in plan
        self.counts["typed and by Spark's scan"] += "typed_value" in plan and "Union" in plan
        self.counts["from the log"] += "logged#" in plan
        self.counts["fail"] += isinstance(without, str)
        self.counts["rows"] += len(without) if isinstance(without, list) else 0
        self.differ(query, without, found)

    def differ(self, query: str, without: list[Any] | str, found: list[Any] | str | None) -> None:
        """Keeps a query whose results differ, unless the first is an error."""
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
    table = Table(seed, root / f"d{seed}", change=0.1)
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
        "spark.sql.codegen.wholeStage": table.rng.choice(["true", *["true" if NEEDS_CODEGEN else "false"] * 2]),
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
    """Queries give the rows, types and bytes that they give without typed reading, and no new error (T5, T7, T8, T9, T10)."""
    spark.sparkContext.setLogLevel("OFF")  # tasks fail where a cast does
    seeds = range(SEED, SEED + -(-QUERIES // PER_TABLE))
    each = [compared(spark, seed, tmp_path, min(PER_TABLE, QUERIES)) for seed in seeds]
    spark.sparkContext.setLogLevel("ERROR")
    counts = sum((one.counts for one in each), Counter())
    wrong = [text for one in each for text in one.wrong]
    print(f"NEVER_DIFFERENT_SEED={SEED}: {dict(counts)}")
    assert not wrong, "\n\n".join(wrong[:20])
    assert counts["typed"] > counts["queries"] / 20
    forms = ("from the log", "elements", "exploded", "structs", "residuals", "typed streams")
    assert all(counts[form] for form in forms) or QUERIES < 5000
    assert counts["fail"] < counts["queries"] / 2
