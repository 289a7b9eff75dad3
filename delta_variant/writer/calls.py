"""A call of `write`, `ingest`, `convert` or a rewriting: Delta's command in a session of its own, whose files are ours.

In: what the call asks for beside Delta's options. Out: the totals of the files, the version that was committed, and errors of
this package. Delta's transactions find the call through an optimizer rule of the session, which leaves every plan as it is
(`scala/EveryWrite.scala`). `scala/Call.scala` has what the commit adds, and the outcome.

Invariant: a failure of a task, a conflict, and what Delta refuses about the table reach the caller as one error of this
package, with the logical names of columns. A failure of the rows themselves stays Spark's error.
"""

# ruff: noqa: SLF001 -- PySpark gives no public way to its JVM

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import SparkSession

from delta_variant import callbacks, errors, jvm, mapping
from delta_variant.errors import DeltaVariantError, DeltaVariantWarning
from delta_variant.messages import ClusterReply, ClusterRequest, Failure, WriteReply, WriteRequest, Written, decoded, encoded
from delta_variant.writer import every_write, planning
from delta_variant.writer.arguments import Request
from delta_variant.writer.task_events import EventSender, TaskEvents

_WORKER_GONE = "Python worker exited unexpectedly"
_IN_A_TASK = re.compile(r'File "[^"\n]*\bdelta_variant[/\\]writer[/\\]task\.py"')
_UNKNOWN_FEATURES = re.compile("DELTA_(UNSUPPORTED_FEATURES_FOR|INVALID_PROTOCOL_VERSION)")
_SCHEMAS = "\nroot\n"  # as Delta shows the schemas of a table and of rows that do not fit
_MALFORMED = "MALFORMED_RECORD_IN_PARSING"
_OF_ROWS = ("22", "23", "44", "42601", "42703", "42711", "42808", "42846", "42K09", "42K0E", "KD007", "42KDG", "42P10")
"""How the SQLSTATEs of errors begin that are about columns, types and values, and not about the table."""


class Call:
    """A call whose Delta command runs in a session."""

    def __init__(self, spark: SparkSession, users: SparkSession, request: Request, table: str) -> None:
        """spark: the session, which is the call's own. users: the session of the rows. table: its name in messages."""
        self._spark, self._request, self._table = spark, request, table
        self._events = TaskEvents(spark)
        self._sender: EventSender | None = None
        self._error: DeltaVariantError | None = None
        self._write: WriteRequest | None = None
        pieces = "" if request.pieces is None else request.pieces.name
        self._call = jvm.construct(spark, "Call", users._jsparkSession, encoded(replace(request.additions, pieces=pieces)))
        self._callbacks = callbacks.Callbacks(spark, self._reply, every_write.tell_of_write)
        writes = every_write.writes(spark, self._callbacks.python, self._call)
        rule = jvm.construct(spark, "EveryWrite$SessionOfCall", writes)
        others = [other for other in jvm.rules(spark) if other.ruleName() != rule.ruleName()]  # of an earlier call
        jvm.set_rules(spark, [rule, *others])

    @property
    def has_begun(self) -> bool:
        """Whether a transaction began to make files. It does not if the table already has this version of `txn`."""
        return bool(self._call.hasBegun())

    @property
    def version(self) -> int | None:
        version = int(self._call.version())
        return version if version >= 0 else None

    @property
    def written(self) -> Written:
        return decoded(Written, self._call.written())

    @property
    def shredded(self) -> tuple[str, ...]:
        """The logical names of the VARIANT columns that were shredded in at least one file."""
        names = self._names
        return tuple(sorted({names.get(name, name) for columns in self.written.shredded for name in columns}))

    @property
    def _names(self) -> Mapping[str, str]:
        """The logical names of columns by the physical ones, where the two differ."""
        return {} if self._write is None else mapping.logical_names(planning.features(self._write).schema)

    @contextmanager
    def running(self, doing: str) -> Iterator[None]:
        """Runs Delta's command in a `with` block, after which the call has ended. doing: for messages, such as "writing to".

        The first error of a task cancels the job. If the command fails before its commit, the files of finished tasks are
        deleted here; the other tasks delete their own. A failure after the commit is a DeltaVariantWarning.
        """
        try:
            with self._events.watched() as self._sender:
                yield
        except BaseException as error:
            if self.version is not None:
                if not isinstance(error, Py4JError | PySparkException):
                    raise
                done = f"{self._table} is committed as version {self.version}"
                told = f"{done}; a step of Delta's after that failed: {jvm.message(error)}"
                warnings.warn(told, DeltaVariantWarning, stacklevel=5)
                return
            self._delete_files()
            own = self._own_error(error, f"{doing} {self._table}")
            if own is None:
                raise
            raise own from (None if own is self._error else error)
        finally:
            self.close()

    def close(self) -> None:
        """Ends a call, whose session is not used any more."""
        self._callbacks.close()

    def _reply(self, request: WriteRequest | ClusterRequest) -> WriteReply | ClusterReply:
        # The keys of the call are checked. Rows that Delta copies, as in an auto compaction, are not those of the call.
        if isinstance(request, ClusterRequest) or not request.is_call:
            return every_write.answer(request)
        self._write = request
        try:
            return every_write.tasks(request, self._request, self._sender)
        except DeltaVariantError as error:
            self._error = error
            return WriteReply(reason=str(error))

    def _own_error(self, error: BaseException, doing: str) -> DeltaVariantError | None:
        """An error as one of this package if it is about the table, its files or what the call asks for, else None."""
        if self._error is not None:
            return self._error
        reported = self._call.error()  # also by a task of another version of this package, which sends no events
        failed = self._events.error or (None if reported is None else decoded(Failure, reported))
        if failed is not None:
            text = failed.text if self._request.texts.columns else failed.text.split("; on_error=")[0]  # no arguments to advise
            return getattr(errors, failed.name, DeltaVariantError)(f"{doing}: {_in_logical_names(text, self._names)}")
        if not isinstance(error, Py4JError | PySparkException):
            return None
        text = jvm.message(error)
        text = text if _SCHEMAS in text else " ".join(text.split())
        cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
        if self._call.conflict():
            return errors.ConflictError(f"{doing} failed: {text}")
        if isinstance(error, PythonException):
            advice = jvm.not_loaded(str(error))
            if advice is None and not _IN_A_TASK.search(str(error)):
                return None
            return errors.TableError(f"writing the files of {self._table} failed: {advice or jvm.raised(str(error))}")
        if _WORKER_GONE in str(error):
            return errors.TableError(
                f"writing the files of {self._table} failed: a Python worker was killed, perhaps for lack of memory: try again"
            )
        if cause is None:
            return None
        failures = jvm.companion(self._spark, "Failures")
        refusal = failures.refusal(cause)
        if refusal is not None:
            return errors.UnsupportedFeatureError(f"{doing}: {refusal}")
        condition, state = (str(part) for part in failures.condition(cause))
        if self._request.texts.columns and condition.startswith(_MALFORMED):
            return errors.InvalidJsonError(
                f"{doing}: {text}; on_error='null' makes such texts NULL, and corrupt='…' keeps them"
            )
        if condition == "TABLE_OR_VIEW_ALREADY_EXISTS" and self._request.save_mode in ("Append", "Overwrite"):
            return errors.ConflictError(f"{doing} failed: {text}")  # another writer has created it in between
        if condition == "CAST_OVERFLOW_IN_TABLE_INSERT":
            return errors.InvalidSchemaError(f"{doing} failed: {text}")
        if not failures.isOfTable(cause):
            return None
        if _UNKNOWN_FEATURES.match(condition):
            return errors.UnsupportedFeatureError(f"{doing} failed: {text}")
        error_class = errors.InvalidSchemaError if state.startswith(_OF_ROWS) else errors.TableError
        return error_class(f"{doing} failed: {text}")

    def _delete_files(self) -> None:
        """Deletes the files of finished tasks as far as possible, if no commit can have them; VACUUM deletes the rest."""
        if self._write is None or not self._events.files or self._call.isCommitting():
            return
        storage = every_write.storage(self._write).open()
        for file in self._events.files:
            with suppress(OSError):
                storage.delete_file(file)


def _in_logical_names(text: str, names: Mapping[str, str]) -> str:
    """A message of a task with logical names in place of physical ones."""
    if not names:
        return text
    physical = "|".join(map(re.escape, names))
    return re.sub(rf"(?<!\S)(column|-) ({physical})(?![\w-])", lambda found: f"{found[1]} {names[found[2]]}", text)
