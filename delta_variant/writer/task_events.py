"""Events that tasks send to the driver while the job is still running: the files of a finished task, or the error of a
failed one.

In: events of every finished task, through one Spark accumulator for all writes of a driver. Out: the first error, and the files
so far. The first error cancels the job, by a job tag, if more tasks are left than can run at once. Otherwise these tasks
finish, because a task that is cancelled near its end may leave files behind.

Invariant: events do not decide what is committed; only the rows of the job's result do. A task that Spark runs twice sends its
events twice.
"""

# ruff: noqa: SLF001 -- PySpark gives no public way to its JVM

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError
from pyspark import Accumulator, SparkContext
from pyspark.accumulators import AccumulatorParam

from delta_variant.messages import Failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TAGS = "spark.job.tags"
_Events = list[tuple[str, str, str]]
"""Each is the tag of a job, followed by ("", path of a file) or (class of an error, its message)."""


class _Forwarding(AccumulatorParam[_Events]):
    """Collects events in a task. On the driver, passes each event to its job and keeps none."""

    def zero(self, value: _Events) -> _Events:  # noqa: ARG002  # Spark's signature
        return []

    def addInPlace(self, value1: _Events, value2: _Events) -> _Events:  # noqa: N802  # Spark's name
        if not _jobs:
            return value1 + value2
        for tag, error, text in value2:
            job = _jobs.get(tag)
            if job is not None:
                job.receive(error, text)
        return value1


_jobs: dict[str, TaskEvents] = {}
_accumulators: WeakKeyDictionary[SparkContext, Accumulator[_Events]] = WeakKeyDictionary()


class EventSender:
    """Sends the events of a task to the driver."""

    def __init__(self, accumulator: Accumulator[_Events], tag: str) -> None:
        self._accumulator, self._tag = accumulator, tag

    def add(self, events: Sequence[tuple[str, str]]) -> None:
        """Sends events: ("", path of a file) or (class of an error, its message)."""
        self._accumulator.add([(self._tag, error, text) for error, text in events])


class TaskEvents:
    """Receives the events of one job's tasks on the driver."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._tag = f"delta-variant-{uuid.uuid4()}"
        self.error: Failure | None = None
        """The first error."""
        self.files: list[str] = []
        """Paths of the files of finished tasks, in the file system."""

    @contextmanager
    def watched(self) -> Iterator[EventSender]:
        """Tags the jobs that start in a `with` block, so that the first error of their tasks can cancel them.

        Yields the sender to be passed to the tasks.
        """
        if self._context not in _accumulators:
            _accumulators[self._context] = self._context.accumulator([], _Forwarding())
        _jobs[self._tag] = self
        self._context.addJobTag(self._tag)
        try:
            yield EventSender(_accumulators[self._context], self._tag)
        finally:
            self._context.removeJobTag(self._tag)
            del _jobs[self._tag]

    def receive(self, error: str, text: str) -> None:
        """Takes one event of a task."""
        if not error:
            self.files.append(text)
        elif self.error is None:
            self.error = Failure(error, text)
            with suppress(Py4JError):  # the job ends anyway, and an exception here would end Spark's accumulator thread
                self._cancel()

    def _cancel(self) -> None:
        """Cancels the job if more tasks are left than can run at once.

        The scheduler's thread waits for this call, so its counts do not change meanwhile.
        """
        context = self._context._jsc.sc()
        jobs, left = context.dagScheduler().activeJobs().iterator(), -1
        while jobs.hasNext():
            job = jobs.next()
            if self._tag in (job.properties().getProperty(_TAGS) or ""):
                left += job.numPartitions() - job.numFinished()
        if left > context.defaultParallelism():
            context.cancelJobsWithTag(self._tag)
