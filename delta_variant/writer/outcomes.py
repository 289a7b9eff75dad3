"""What tasks tell the driver while the job still runs: the files of each that ended well, or the error of one that did not.

In: pairs from every task that ended, by an accumulator of Spark's, of which there is one for all writes of a driver. Out: the
first error, and the files so far. The first error cancels the job, under a tag of its own, if tasks wait to be started, which
would write for nothing. Those that run are left to end where none waits: a task cut off near its end may leave files behind.

Invariant: nothing here decides what is committed. A task that Spark runs twice tells twice, and only reports, which are the
rows of the job's result, count.
"""

# ruff: noqa: SLF001 -- PySpark gives no public way to its JVM

from __future__ import annotations

import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError
from pyspark import Accumulator, SparkContext
from pyspark.accumulators import AccumulatorParam

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

_TAGS = "spark.job.tags"
_Told = list[tuple[str, str, str]]
"""A job's tag, then ("", a file's path) or (an error's class, its message)."""


class _HandedOn(AccumulatorParam[_Told]):
    """In tasks it collects. On the driver it keeps nothing and hands on what arrives."""

    def zero(self, value: _Told) -> _Told:  # noqa: ARG002  # Spark's signature
        return []

    def addInPlace(self, value1: _Told, value2: _Told) -> _Told:  # noqa: N802  # Spark's name
        if not _jobs:
            return value1 + value2
        for tag, error, text in value2:
            job = _jobs.get(tag)
            if job is not None:
                job.take(error, text)
        return value1


_jobs: dict[str, Outcomes] = {}
_told: WeakKeyDictionary[SparkContext, Accumulator[_Told]] = WeakKeyDictionary()


class Telling:
    """What a task is given to tell with."""

    def __init__(self, accumulator: Accumulator[_Told], tag: str) -> None:
        self._accumulator, self._tag = accumulator, tag

    def add(self, outcome: Sequence[tuple[str, str]]) -> None:
        """Takes ("", a file's path) or (an error's class, its message)."""
        self._accumulator.add([(self._tag, error, text) for error, text in outcome])


class Outcomes:
    """Of the tasks of one job."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._tag = f"delta-variant-{uuid.uuid4()}"
        self.error: tuple[str, str] | None = None
        """Class and message of the first error."""
        self.files: list[str] = []
        """Files of the tasks that have ended, as the file system knows them."""

    @contextmanager
    def watched(self) -> Iterator[Telling]:
        """A job started in the block is cancelled when a task tells of an error."""
        if self._context not in _told:
            _told[self._context] = self._context.accumulator([], _HandedOn())
        _jobs[self._tag] = self
        self._context.addJobTag(self._tag)
        try:
            yield Telling(_told[self._context], self._tag)
        finally:
            self._context.removeJobTag(self._tag)
            del _jobs[self._tag]

    def take(self, error: str, text: str) -> None:
        """What a task told."""
        if not error:
            self.files.append(text)
        elif self.error is None:
            self.error = (error, text)
            with suppress(Py4JError):  # the job ends by itself, and nothing may fail in the thread that we are called in
                self._cancel()

    def _cancel(self) -> None:
        """The scheduler waits for us here, so that its counts stand still; the task that failed is among those left."""
        context = self._context._jsc.sc()
        jobs, left = context.dagScheduler().activeJobs().iterator(), -1
        while jobs.hasNext():
            job = jobs.next()
            if self._tag in (job.properties().getProperty(_TAGS) or ""):
                left += job.numPartitions() - job.numFinished()
        if left > context.defaultParallelism():
            context.cancelJobsWithTag(self._tag)
