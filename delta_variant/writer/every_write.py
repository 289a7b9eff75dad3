"""Decides for a write whether this package makes its files, and says in the log why not. `planning` makes the tasks.

In: a request of `scala/WritingTransaction.scala`. Out: the tasks, or the reason why Delta has to make the files itself.

Invariant: what cannot be written is not an error. It is a reason: a table feature, type, codec or property that this package
does not handle, or executors without it.
"""

from __future__ import annotations

import importlib
import logging
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from delta_variant import hadoop, jvm
from delta_variant.errors import DeltaVariantError
from delta_variant.messages import ClusterReply, ClusterRequest, Workers, WriteReply, WriteRequest
from delta_variant.storage import Storage
from delta_variant.version import __version__
from delta_variant.writer import planning
from delta_variant.writer.arguments import Request

if TYPE_CHECKING:
    from delta_variant.writer.task_events import EventSender

_MOST_TOLD = 1000
_DONE = {
    "late": "Spark read the VARIANT columns that were copied by a statement to",
    "blocks": "Spark sorts the rows that optimize writes to",
}
_told: set[str] = set()
_logger = logging.getLogger("delta_variant")


def writes(spark: SparkSession, python: Any, call: Any) -> Any:
    """A `scala/EveryWrite.scala`. From now on, Delta asks for transactions whose files may be ours (`scala/Shared.scala`).

    python: the `scala/Python.scala` that answers it. call: the `scala/Call.scala` of a call of `write`, or None.
    """
    function = jvm.python_function(spark, _no_rows)
    jvm.companion(spark, "Shared").observe()
    return jvm.construct(spark, "EveryWrite", python, function, call)


def _no_rows(number: int, messages: Iterator[bytes]) -> Iterator[bytes]:  # noqa: ARG001  # PySpark's signature
    return iter(())


def answer(request: WriteRequest | ClusterRequest) -> WriteReply | ClusterReply:
    """The function for a write of Delta's command, or the order of its rows."""
    if isinstance(request, ClusterRequest):
        return planning.cluster(request)
    reason = _without_package(request.workers)
    if reason is None:
        return WriteReply(probe=_probe(), python=planning.PYTHON)
    if reason:
        return WriteReply(reason=reason, is_failure=True)
    try:
        return tasks(request)
    except DeltaVariantError as error:
        return WriteReply(reason=str(error))


def tasks(request: WriteRequest, asked: Request | None = None, events: EventSender | None = None) -> WriteReply:
    """The function for a write. Raises errors of this package for what tasks do not write.

    asked: what a call of `write` asks for. events: what the tasks send their events to.
    """
    try:
        location = storage(request)
    except _RegionWantedError:
        return WriteReply(wants_region=True)
    return planning.reply(request, planning.plan(request, location, asked), events)


def tell_of_write(about: str, text: str) -> None:
    """Logs an invalid setting, invalid keys or, once for each reason, why Delta or Spark did the work of this package's tasks.

    A failure is a WARNING, another reason is at level INFO.
    about: "setting", "order" (of rows), "late" (materialization), "blocks" (of sorted rows), "write" or "failed write". text:
    the table, and in the next lines the reason, which may be the traceback of a Python worker or a message of Spark's.
    """
    if about in ("setting", "order"):
        _logger.warning("%s", text)
        return
    table, reason = text.split("\n", 1)
    why = jvm.not_loaded(reason) or (jvm.raised(reason) if "Traceback" in reason else reason.partition("\n")[0])
    told = f"{_DONE.get(about, 'Delta itself writes the files of a statement to')} {table}: {why}"
    if told not in _told and len(_told) < _MOST_TOLD:
        _told.add(told)
        _logger.log(logging.INFO if about == "write" else logging.WARNING, "%s", told)


class _RegionWantedError(Exception):
    """The region of the bucket has to be in the request."""


def storage(request: WriteRequest) -> Storage:
    """Where the data files of a write go. The request has the region of the bucket, if `tasks` asked for it."""

    def region() -> str | None:
        if request.storage.region is None:
            raise _RegionWantedError
        return request.storage.region or None

    return hadoop.storage(request.location, request.storage, region)


def _without_package(workers: Workers) -> str | None:
    """Why the executors cannot run this package's tasks; empty if they can, None if they have to be asked."""
    missing = jvm.not_loaded(workers.failure or "")
    if missing is not None:
        return missing
    if workers.versions is None:
        return "" if _is_own_python(workers) and not workers.has_failed else None
    if not workers.versions:  # because of this job, which the next write may not meet
        return f"the executors could not be asked for the version of delta-variant: {jvm.cleaned(workers.failure or '')}"
    others = sorted({*workers.versions} - {__version__})
    if others:
        return f"the executors run delta-variant {', '.join(others)}, and the driver runs {__version__}: {jvm.SHIPPING}"
    return ""


def _is_own_python(workers: Workers) -> bool:
    """Whether the workers are processes of this Python on this machine."""
    return workers.is_local and sys.executable in (workers.python, shutil.which(workers.python))


def _probe() -> str:
    """The pickled function of tasks that tell the version of this package. It needs no package there until it runs.

    Where the version is that of the driver, it fails as a write would if the executors lack what the package needs.
    """
    own = __version__

    def versions(number: int, messages: Iterator[bytes]) -> Iterator[bytes]:  # noqa: ARG001  # PySpark's signature
        found = importlib.import_module("delta_variant").__version__
        if found == own:
            importlib.import_module("delta_variant.writer.task")
        yield found.encode()

    return planning.encoded(versions)
