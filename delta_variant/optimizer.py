"""The optimizer rules of a Spark session: `install`, `offer` (to new sessions), `remove`; and what it ran: `queries`.

`scala/SkipFiles.scala` walks the plan. It calls Python once for each Delta scan whose VARIANT columns are restricted by a
filter, a join, or an ORDER BY with LIMIT (twice for the last). It sends the filters (`Filters.scala`) and gets a predicate on
bounds (`queries.requests.answer`), which is evaluated over the bounds in the log (`FileBounds.scala`).

`scala/TypedScans.scala` runs after it and calls Python for each scan whose VARIANTs the plan uses by path (`Uses.scala`):
which bounds answer MIN and MAX, if the plan asks for nothing else (`extremes`, `LogAggregates.scala`); which bounds
prove that a path is in a typed column (`queries.typed.proofs`); and how the files are read (`groups`, `TypedPlan.scala`).

No loop crosses py4j. A session has each rule at most once; the first one keeps the settings that `disable` restores. What
the rules did is recorded on the scans for `report`, and goes to the logger `delta_variant` if the setting
`spark.delta_variant.logScans` is true.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from delta_variant import callbacks, jars, jvm, messages, report, transaction
from delta_variant.errors import SessionError
from delta_variant.queries import requests, typed
from delta_variant.version import __version__
from delta_variant.writer import every_write

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

_READING = "delta_variant.TypedScans"
_QUERIES = f"{jvm.PACKAGE}.Queries"
_RULES = frozenset({report.SKIPPING, _READING})
_log = logging.getLogger("delta_variant")


class _Session:
    """Answers the requests of a session's rules and writes, and logs what they tell."""

    def __init__(self, spark: SparkSession) -> None:
        self.python = callbacks.Callbacks(spark, self._reply, self._tell).python
        """The `scala/Python.scala` of the session."""

    def _reply(self, request: messages.Request) -> messages.Reply:
        """An exception leaves the plan unchanged, and the JVM warns."""
        match request:
            case messages.PruneRequest():
                return requests.answer(request)
            case messages.ExtremesRequest():
                return requests.extremes(request)
            case messages.ProofsRequest():
                return typed.proofs(request)
            case messages.GroupsRequest():
                return typed.groups(request)
            case messages.WriteRequest() | messages.ClusterRequest():
                return every_write.answer(request)

    def _tell(self, about: str, text: str) -> None:
        """Logs why a rule left the plan unchanged, why Delta wrote files itself, and, if the session asks for it, each scan as
        `explain` shows it."""
        if about == "scan":
            _log.info("%s", report.of([messages.decoded(messages.ScanReport, text)], enabled=True))
        elif about in every_write.TOLD:
            every_write.tell(about, text)
        else:
            what = "data skipping by Variant path" if about == "skipping" else "typed reading"
            _log.warning("%s failed, so the query runs without it: %s", what, text)


def install(spark: SparkSession, found: Mapping[str, str | None]) -> None:
    """Add the rules to the session, after a test. `found` has the settings that `enable` changes, as they were before; `remove`
    returns it.

    Raises SessionError if the rules do not compile against the session's Spark and Delta, or do not skip a file in the test.
    """
    try:
        session, shared, tags = _Session(spark), jvm.loaded(spark).shared, transaction.tags(spark)
        python = session.python
        writes = every_write.writes(spark, python, None)
        rule = jvm.construct(spark, "SkipFiles", python, tags, shared, dict(found), writes)
        typed = jvm.construct(spark, "TypedScans", python, tags, shared)
        opened = list(jvm.construct(spark, "SelfTest", rule, spark._jsparkSession).opened())  # noqa: SLF001  # no public name
    except Py4JError as error:
        lines = str(getattr(error, "java_exception", error)).strip().splitlines()
        raise _mismatch(spark, ": ".join(dict.fromkeys([lines[0], lines[-1]]))) from error
    if set(opened) != {1}:
        raise _mismatch(spark, f"queries of which 1 file of 2 can match open {opened}")
    jvm.set_rules(spark, [*jvm.rules(spark), rule, typed])
    if _listener(spark) is None:
        spark._jsparkSession.listenerManager().register(jvm.construct(spark, "Queries"))  # noqa: SLF001  # no public name


def queries(spark: SparkSession) -> list[DataFrame]:
    """The last queries over Delta tables with VARIANT columns that the session has run since it has the rules, each once.

    They can be planned again, under the session's settings of now (`scala/Queries.scala`).
    """
    listener = _listener(spark)
    return [] if listener is None else [jvm.data_frame(spark, plan) for plan in listener.plans(spark._jsparkSession)]  # noqa: SLF001


def _listener(spark: SparkSession) -> Any:
    """The `scala/Queries.scala` of the session; None if there is none."""
    listeners = spark._jsparkSession.listenerManager().listListeners()  # noqa: SLF001  # no public name
    return next((one for one in listeners if one.getClass().getName() == _QUERIES), None)


def offer(spark: SparkSession, settings: Mapping[str, str], defaults: Mapping[str, str]) -> None:
    """Lets the sessions that are made from this one have its rules (`scala/NewSessions.scala`), and these settings;
    `defaults` if they do not have others."""
    ours = [rule for rule in jvm.rules(spark) if rule.ruleName() in _RULES]
    given = ours, dict(settings), dict(defaults), _Session(spark).python, jvm.loaded(spark).shared
    jvm.construct(spark, "NewSessions", *given).offer(spark._jsparkSession)  # noqa: SLF001


def _mismatch(spark: SparkSession, cause: str) -> SessionError:
    versions = "Spark {} with Delta {}".format(*jvm.versions(spark))
    return SessionError(
        f"delta-variant {__version__} cannot skip files in this session, which runs {versions} ({cause})",
        advice=f"{jars.REINSTALL}, or do not call enable, which write does not need",
    )


def remove(spark: SparkSession) -> dict[str, str | None]:
    """Remove the rules from the session, and offer them to no new one. Returns the `found` of `install`, which is empty if the
    session had no rules."""
    rules = {rule.ruleName(): rule for rule in jvm.rules(spark)}
    skips = rules.get(report.SKIPPING)
    jvm.set_rules(spark, [rule for rule in jvm.rules(spark) if rule.ruleName() not in _RULES])
    listener = _listener(spark)
    if listener is not None:
        spark._jsparkSession.listenerManager().unregister(listener)  # noqa: SLF001  # no public name
    if skips:
        offer(spark, {}, {})
    return dict(skips.found()) if skips else {}
