"""The writes of Delta's own commands in an enabled session: Delta's request → the tasks that make the files (`planning`).

In: a request of `scala/WritingTransaction.scala`. Out: the tasks, or the reason why Delta has to make the files itself.

Invariant: what cannot be written is not an error. It is a reason: a table feature, type, codec or property that this package
does not handle, or executors without it.
"""

from __future__ import annotations

import importlib
import logging
import sys
import threading
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from delta_variant import jvm
from delta_variant.errors import DeltaVariantError
from delta_variant.hadoop import storage_of
from delta_variant.messages import ClusterReply, ClusterRequest, WriteReply, WriteRequest
from delta_variant.storage import Storage
from delta_variant.version import __version__
from delta_variant.writer import planning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_MOST_TOLD = 1000
TOLD = frozenset({"setting", "order", "late", "write", "failed write"})
"""What `tell` is told of: a setting, the order of rows, late materialization, why Delta wrote files, also after a failure."""
_lock = threading.Lock()
_lacking: WeakKeyDictionary[SparkContext, str] = WeakKeyDictionary()
_told: set[str] = set()
_log = logging.getLogger("delta_variant")


def writes(spark: SparkSession, python: Any, call: Any) -> Any:
    """A `scala/EveryWrite.scala`. From now on, Delta asks for transactions whose files may be ours (`scala/Shared.scala`).

    python: the `scala/Python.scala` that answers it. call: the `scala/Call.scala` of a call of `write`, or None.
    """
    function = jvm.python_function(spark, _no_rows)
    jvm.loaded(spark).shared.observe()
    return jvm.construct(spark, "EveryWrite", python, function, jvm.executor_source(), call)


def _no_rows(number: int, messages: Iterator[bytes]) -> Iterator[bytes]:  # noqa: ARG001  # PySpark's signature
    return iter(())


def answer(request: WriteRequest | ClusterRequest, spark: SparkSession, writes: Any) -> WriteReply | ClusterReply:
    """The function for a write of Delta's command, or the order of its rows.

    spark: any session. writes: the `scala/EveryWrite.scala` that asks.
    """
    if isinstance(request, ClusterRequest):
        return planning.cluster(request)
    reason = _without_package(spark.sparkContext)
    if reason:
        return WriteReply(None, None, reason, is_failure=True)
    try:
        plan = planning.plan(request, storage(request, spark, writes), spark.version)
        return planning.reply(request, plan, None)
    except DeltaVariantError as error:
        return WriteReply(None, None, str(error), is_failure=False)


def tell(spark: SparkSession, about: str, text: str) -> None:
    """Logs a setting or keys that are none or, once, why Delta wrote the files of a table, or Spark read copied columns.

    A failure is a WARNING, another reason is at level INFO.
    about: one of TOLD. text: the table, and in the next lines the reason, which may be the traceback of a Python worker or a
    message of Spark's.
    """
    if about in ("setting", "order"):
        _log.warning("%s", text)
        return
    table, reason = text.split("\n", 1)
    missing = jvm.not_loaded(reason)
    if missing is not None:
        with _lock:
            _lacking[spark.sparkContext] = missing
    why = missing or (jvm.raised(reason) if "Traceback" in reason else reason.partition("\n")[0])
    done = "Spark read the VARIANT columns that were copied by" if about == "late" else "Delta itself wrote the files of"
    told = f"{done} a statement to {table}: {why}"
    if told not in _told and len(_told) < _MOST_TOLD:
        _told.add(told)
        _log.log(logging.INFO if about == "write" else logging.WARNING, "%s", told)


def storage(request: WriteRequest, spark: SparkSession, writes: Any) -> Storage:
    """Where the data files of a write go."""
    if request.location.startswith(("/", "file:")):
        return Storage.of(request.location)
    storage = writes.storage(request.number)
    with jvm.delta_errors(f"reading the storage settings of {request.location}"):
        return storage_of(spark, storage.path(), storage.conf())


def _without_package(context: SparkContext) -> str:
    """Why the executors cannot run this package's tasks; empty if they can. They are asked until they have answered once."""
    with _lock:
        if context in _lacking:
            return _lacking[context]
        if _is_own_python(context):
            answer = ""
        else:
            try:
                answer = _probe(context)
            except (Py4JError, PySparkException) as error:  # of this job, which the next write may not meet
                return f"the executors could not be asked for the version of delta-variant: {jvm.message(error)}"
        _lacking[context] = answer
        return answer


def _is_own_python(context: SparkContext) -> bool:
    """Whether the workers are processes of this Python on this machine."""
    return str(context.master).startswith("local") and context.pythonExec == sys.executable


def _probe(context: SparkContext) -> str:
    """Asks as many tasks as can run at once for the version. Functions of Python's own library need no package there.

    Raises Spark's error if the job fails for another reason than the package.
    """
    count = context.defaultParallelism
    try:
        names = context.parallelize(["delta_variant"] * count, count)
        versions = set(names.map(importlib.import_module).map(attrgetter("__version__")).collect())
    except (Py4JError, PySparkException) as error:
        missing = jvm.not_loaded(str(error))
        if missing is None:
            raise
        return missing
    others = versions - {__version__}
    if others:
        return f"the executors run delta-variant {', '.join(sorted(others))}, and the driver runs {__version__}: {jvm.SHIPPING}"
    return ""
