"""What several test modules need: lengths for `make test` and `make soak`, and the scans of a query."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import DataFrame, Row

from delta_variant import explanation, jvm
from delta_variant.messages import ScanReport, decoded
from delta_variant.scanning import query

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    import pytest
    from pyspark.sql import SparkSession

T = TypeVar("T")

SOAK = "DELTA_VARIANT_SOAK" in os.environ
"""Whether the tests run at full length, as `make soak` has them."""

INTERPRETED = {} if SOAK else {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings with which Spark interprets expressions; none in `make soak`."""


def share(cases: Iterable[T], step: int, start: int = 0) -> list[T]:
    """Every `step`-th of the cases; all of them in `make soak`."""
    return list(cases) if SOAK else list(cases)[start::step]


def length(variable: str, short: int, full: int) -> int:
    """How many cases a test generates, which the environment variable of that name can say."""
    return int(os.environ.get(variable, full if SOAK else short))


def opened_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the files that `scan` and datasets open from now on."""
    opened: list[str] = []

    class Counting(query.FileReader):
        def batches(self) -> Iterator[pa.RecordBatch]:
            opened.append(self._file.path)
            return super().batches()

    monkeypatch.setattr(query, "FileReader", Counting)
    return opened


def no_thread_is_left() -> bool:
    """Whether the threads of `scan` and datasets have ended, or end within five seconds."""
    for _ in range(100):
        if not [thread for thread in threading.enumerate() if thread.name == "delta_variant.scan"]:
            return True
        time.sleep(0.05)
    return False


def scans(df: DataFrame) -> list[explanation.Scan]:
    """The Delta scans in a query's own plan. `explain` plans the query anew, which takes a job of Delta's for each scan."""
    plan: Any = df._jdf.queryExecution().optimizedPlan()
    found = decoded(tuple[ScanReport, ...], jvm.companion(df.sparkSession, "Explain").planned(plan))
    return explanation.of(found, off=explanation.why_off(df.sparkSession)).scans


def prepared(spark: SparkSession, query: str) -> str:
    """The query on temporary views of its tables, whose files Delta has listed once: each plan of a table takes a job for that.

    The rules see the same as in a plan of the table itself. Queries with `_metadata`, which views do not have, and with EXISTS,
    which renames the columns of a view that stands on both sides, stay as they are.
    """
    return query if "_metadata" in query or "exists" in query else re.sub("delta\\.`([^`]+)`", partial(_view, spark), query)


def _view(spark: SparkSession, table: re.Match[str]) -> str:
    newest = max(Path(table[1], "_delta_log").glob("*.json"))
    return viewed(spark, f"select * from {table[0]}", str(newest))


def viewed(spark: SparkSession, query: str, version: str = "") -> str:
    """A temporary view of a query on one table, planned once for each text and version of the table."""
    name = "prepared_" + hashlib.blake2s((query + version).encode(), digest_size=8).hexdigest()
    if not spark.catalog.tableExists(name):
        plan = spark.sql(query)._jdf.queryExecution().optimizedPlan()
        dataset = jvm.static(spark, "org.apache.spark.sql.classic.Dataset").ofRows(spark._jsparkSession, plan)
        DataFrame(dataset, spark).createTempView(name)
    return name


def delta_log(spark: SparkSession) -> Any:
    """Delta's class DeltaLog, found by its full name."""
    return jvm.static(spark, "org.apache.spark.sql.delta.DeltaLog")


def forget(spark: SparkSession) -> None:
    """Makes Delta read logs from storage again."""
    delta_log(spark).clearCache()


@contextlib.contextmanager
def without_rules(spark: SparkSession) -> Iterator[None]:
    """The session without the optimizer rules that it has. `disable` and `enable` would test the rules once more."""
    rules = jvm.rules(spark)
    jvm.set_rules(spark, [])
    try:
        yield
    finally:
        jvm.set_rules(spark, rules)


def deltas_own_files(spark: SparkSession) -> contextlib.AbstractContextManager[None]:
    """Delta itself makes the data files of the writes in the block, as in a session that is not enabled."""
    return jvm.settings(spark, {"spark.delta_variant.everyWrite": "off"})


@contextlib.contextmanager
def interpreted(spark: SparkSession) -> Iterator[None]:
    """The session with interpreted expressions, and the sessions that are made meanwhile; in `make soak` as it is.

    A job over a few rows, such as Delta's own over a log of three commits, takes longer to generate and compile than to run.
    """
    of_new_sessions = spark.sparkContext._jsc.sc().conf()
    for key, value in INTERPRETED.items():
        of_new_sessions.set(key, value)
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in INTERPRETED:
            of_new_sessions.remove(key)
            spark.conf.unset(key)


def generated(spark: SparkSession) -> contextlib.AbstractContextManager[None]:
    """The session with generated code, without which Spark 4.2 cannot cast what it reads from a shredded VARIANT."""
    return jvm.settings(spark, {"spark.sql.codegen.factoryMode": "FALLBACK"})


def collected(df: DataFrame) -> list[Row]:
    """The rows of a DataFrame, planned as the session has it, with Delta's jobs over its log, and run with generated code."""
    df._jdf.queryExecution().executedPlan()
    with generated(df.sparkSession):
        return df.collect()
