"""The optimizer rules of a Spark session: `install`, `offer` (to new sessions), `remove`; and `queries`, which it has run.

`scala/SkipFiles.scala` walks the plan. It calls Python once for each Delta scan whose VARIANT columns are restricted by a
filter, a join, or an ORDER BY with LIMIT. It sends the filters (`Filters.scala`) and gets a predicate on bounds
(`queries.requests.answer`), which is evaluated over the bounds in the log (`FileBounds.scala`). For ORDER BY with LIMIT, a call
before that finds the bounds of the sort key.

`scala/TypedScans.scala` runs after it and calls Python for each scan whose VARIANTs the plan uses by path (`Uses.scala`):
which bounds answer MIN and MAX, if the plan asks for nothing else (`extremes`, `LogAggregates.scala`); which bounds
prove that a path is in a typed column (`queries.typed.proofs`); and how the files are read (`groups`, `TypedPlan.scala`).

No loop crosses py4j. A session has each rule at most once. The rule for skipping keeps the settings that `disable` restores.
What the rules did is recorded on the scans for `explanation`, and goes to the logger `delta_variant` if the setting
`spark.delta_variant.logScans` is true. `answers` makes the replies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from delta_variant import answers, callbacks, explanation, jvm, pairs
from delta_variant.errors import SessionError
from delta_variant.version import __version__
from delta_variant.writer import every_write

_READING = "delta_variant.TypedScans"
_QUERIES = f"{jvm.PACKAGE}.Queries"
_RULES = frozenset({explanation.SKIPPING, _READING})


def install(spark: SparkSession, previous: Mapping[str, str | None]) -> None:
    """Add the rules to the session, after a test. `previous` has the settings that `enable` changes, as they were before;
    `remove` returns it.

    Raises SessionError if the rules do not compile against the session's Spark and Delta, or do not skip a file in the test.
    """
    try:
        python = _python(spark)
        writes = every_write.writes(spark, python, None)
        rule = jvm.construct(spark, "SkipFiles", python, dict(previous), writes)
        typed = jvm.construct(spark, "TypedScans", python)
        opened = list(jvm.construct(spark, "SelfTest", rule, spark._jsparkSession).opened())  # noqa: SLF001  # no public name
    except Py4JError as error:
        lines = str(getattr(error, "java_exception", error)).strip().splitlines()
        raise _mismatch(spark, ": ".join(dict.fromkeys([lines[0], lines[-1]]))) from error
    if set(opened) != {1}:
        raise _mismatch(spark, f"test queries opened {opened} of 2 files, and only 1 can match")
    jvm.set_rules(spark, [*jvm.rules(spark), rule, typed])
    if _listener(spark) is None:
        spark._jsparkSession.listenerManager().register(jvm.construct(spark, "Queries"))  # noqa: SLF001  # no public name


def _python(spark: SparkSession) -> Any:
    """A `scala/Python.scala` that asks this process."""
    return callbacks.Callbacks(spark, answers.reply, answers.tell).python


def queries(spark: SparkSession) -> list[DataFrame]:
    """The last queries over Delta tables with VARIANT columns that the session has run since it got the rules, each once.

    They can be planned again, under the session's current settings (`scala/Queries.scala`).
    """
    listener = _listener(spark)
    return [] if listener is None else [jvm.data_frame(spark, plan) for plan in listener.plans(spark._jsparkSession)]  # noqa: SLF001


def _listener(spark: SparkSession) -> Any:
    """The `scala/Queries.scala` of the session; None if there is none."""
    listeners = spark._jsparkSession.listenerManager().listListeners()  # noqa: SLF001  # no public name
    return next((one for one in listeners if one.getClass().getName() == _QUERIES), None)


def offer(spark: SparkSession, settings: Mapping[str, str], defaults: Mapping[str, str]) -> None:
    """Gives the rules and `settings` to the sessions that are made from this one (`scala/NewSessions.scala`). Of `defaults`, a
    session gets those that it has not set."""
    ours = [rule for rule in jvm.rules(spark) if rule.ruleName() in _RULES]
    given = ours, dict(settings), dict(defaults), _python(spark)
    jvm.construct(spark, "NewSessions", *given).offer(spark._jsparkSession)  # noqa: SLF001


def may_offer(spark: SparkSession) -> bool:
    """Whether the session, or a clone of it, may be given rules at its next query: by `offer`, or by the JAR."""
    return jvm.is_loaded(spark) and bool(jvm.companion(spark, "NewSessions").mayOffer(spark._jsparkSession))  # noqa: SLF001


def _mismatch(spark: SparkSession, cause: str) -> SessionError:
    versions = "Spark {} with Delta {}".format(*jvm.versions(spark))
    return SessionError(
        f"delta-variant {__version__} cannot skip files in this session, which runs {versions} ({cause})",
        advice=pairs.ADVICE,
    )


def remove(spark: SparkSession) -> dict[str, str | None]:
    """Remove the rules from the session, and stop offering them to new sessions. Returns the `previous` settings of `install`,
    or an empty dict if the session had no rules."""
    rules = {rule.ruleName(): rule for rule in jvm.rules(spark)}
    skips = rules.get(explanation.SKIPPING)
    jvm.set_rules(spark, [rule for rule in jvm.rules(spark) if rule.ruleName() not in _RULES])
    listener = _listener(spark)
    if listener is not None:
        spark._jsparkSession.listenerManager().unregister(listener)  # noqa: SLF001  # no public name
    if skips:
        offer(spark, {}, {})
    return dict(skips.previous()) if skips else {}
