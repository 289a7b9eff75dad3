"""The optimizer rule in one Spark session, and what it did: `install`, `remove`, `explain`.

`java/SkipFiles.java` walks the plan and calls back once per Delta scan that has a filter on a VARIANT column: in comes the
filter as JSON (`Filters.java`), out goes the predicate on bounds (`skipping.answer`), which Java evaluates over what Delta
keeps of the log (`FileBounds.java`). No loop crosses py4j. A session carries at most one rule; the rule itself carries what
`disable` has to restore. What each question of the query could prove is counted for `explain`, and for the logger
`delta_variant` where the setting `spark.delta_variant.logScans` is true.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from delta_variant import jvm
from delta_variant.errors import SessionError
from delta_variant.skipping import MAX_QUESTIONS, Finding, answer, finding, leaves, questions
from delta_variant.stats import BOUNDS_TAG, BOUNDS_TAG_VALUES, NONNULL_TAG
from delta_variant.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

_CLASS = "delta_variant.SkipFiles"
_SOURCES = ("Bounds", "Tree", "Jobs", "FileBounds", "Filters", "Decision", "SkipFiles")
_log = logging.getLogger("delta_variant")


# ---- the rule in a session -------------------------------------------------------------------------------------------


class _Translate:
    """The rule's question; an exception reaches Java, which keeps the plan and warns."""

    def apply(self, request: str) -> str:
        return json.dumps(answer(json.loads(request)))

    class Java:
        implements = ("java.util.function.UnaryOperator",)


class _Tell:
    """What the rule has to say: why it stepped aside, and each scan as `explain` has it, where the session asks for that."""

    def accept(self, level: str, text: str) -> None:
        if level == "scan":
            _log.info("%s", Report([_scan(json.loads(text), enabled=True)]))
        else:
            _log.warning("no files were skipped by Variant path, the query runs without: %s", text)

    class Java:
        implements = ("java.util.function.BiConsumer",)


def install(spark: SparkSession, found: Mapping[str, str | None]) -> None:
    """Add the rule to the session and try it; `found` is handed back by `remove`.

    Raises SessionError where the rule does not compile against the session's Spark and Delta, or does not skip a file.
    """
    jvm.start_callbacks(spark)
    try:
        rule = _rule(
            spark, _Translate(), _Tell(), BOUNDS_TAG, jvm.scala_seq(spark, BOUNDS_TAG_VALUES), NONNULL_TAG, dict(found)
        )
        test = jvm.construct(spark, jvm.java_class(spark, *_SOURCES, "SelfTest"))
        opened = list(test.files(rule, spark._jsparkSession))  # noqa: SLF001  # no public name
    except Py4JError as error:
        lines = str(getattr(error, "java_exception", error)).strip().splitlines()
        raise _mismatch(spark, ": ".join(dict.fromkeys([lines[0], lines[-1]]))) from error
    if set(opened) != {1}:
        raise _mismatch(spark, f"queries of which 1 file of 2 can match open {opened}")
    _set_rules(spark, [*_rules(spark), rule])


def _mismatch(spark: SparkSession, cause: str) -> SessionError:
    versions = "Spark {} with Delta {}".format(*jvm.versions(spark))
    return SessionError(
        f"delta-variant {__version__} cannot skip files in this session, which runs {versions} ({cause}): install the "
        "versions that its package asks for (pip install --force-reinstall delta-variant), or do without enable; "
        "writing needs none"
    )


def _rule(spark: SparkSession, *arguments: Any) -> Any:
    return jvm.construct(spark, jvm.java_class(spark, *_SOURCES), *arguments)


def installed(spark: SparkSession) -> bool:
    """Whether the session has the rule."""
    return any(rule.ruleName() == _CLASS for rule in _rules(spark))


def remove(spark: SparkSession) -> dict[str, str | None]:
    """Take the rule out of the session; gives the `found` of `install`, empty where there was no rule."""
    rules = _rules(spark)
    ours = [rule for rule in rules if rule.ruleName() == _CLASS]
    _set_rules(spark, [rule for rule in rules if rule not in ours])
    return dict(ours[0].found()) if ours else {}


def _rules(spark: SparkSession) -> list[Any]:
    return jvm.items(jvm.classic(spark)._jsparkSession.experimental().extraOptimizations())  # noqa: SLF001  # no public name


def _set_rules(spark: SparkSession, rules: list[Any]) -> None:
    experimental = spark._jsparkSession.experimental()  # noqa: SLF001  # no public name
    getattr(experimental, "extraOptimizations_$eq")(jvm.scala_seq(spark, rules))


# ---- explain ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scan:
    """One Delta scan of a query. A count is None where Delta does not plan the scan file by file."""

    table: str
    version: int
    files_total: int | None
    files_after_delta: int | None
    files_after_bounds: int | None
    predicates: tuple[str, ...]  # what the query asks of Variant paths
    reasons: tuple[str, ...]  # why (a part of) that could not rule files out
    findings: tuple[Finding, ...] = ()  # what each question of the predicates could prove


@dataclass(frozen=True)
class Report:
    """The Delta scans of one query, in the order of the plan; `str` gives an aligned table."""

    scans: list[Scan]

    def __str__(self) -> str:
        rows = [["table", "version", "files", "after Delta", "after bounds", "predicates, what they prove, and why not more"]]
        for scan in self.scans:
            proved = [
                f"{finding.predicate}: rules out {finding.files_ruled_out} of {scan.files_after_delta} files"
                for finding in scan.findings
            ]
            notes = [*(proved or scan.predicates), *(f"not used: {reason}" for reason in scan.reasons)] or [""]
            counts = [scan.files_total, scan.files_after_delta, scan.files_after_bounds]
            numbers = [str(scan.version), *("?" if count is None else str(count) for count in counts)]
            rows.append([scan.table, *numbers, notes[0]])
            rows.extend(["", "", "", "", "", note] for note in notes[1:])
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        lines = (
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:5], widths[1:], strict=True)), row[5]]
            for row in rows
        )
        return "\n".join("  ".join(line).rstrip() for line in lines)


def explain(df: DataFrame) -> Report:
    """What skipping does for the query, planned anew under the session's present settings; runs no part of the query.

    Raises SessionError on a DataFrame of Spark Connect.
    """
    spark = jvm.classic(df.sparkSession)
    enabled = installed(spark)
    nodes = json.loads(_rule(spark, *[None] * 6).describe(df._jdf))  # noqa: SLF001  # no public name
    return Report([_scan(node, enabled) for node in nodes])


def _scan(node: Mapping[str, Any], enabled: bool) -> Scan:
    outcome = json.loads(node.get("outcome", "{}"))
    findings = _findings(outcome)
    reasons = [*outcome.get("reasons", ()), *(reason for finding in findings for reason in finding.reasons)]
    if "delta" not in node:
        reasons.append("Delta does not plan this scan file by file (is spark.databricks.delta.stats.skipping off?)")
    elif not enabled:
        reasons.append("delta_variant.enable(spark) was not called")
    elif not outcome and node["delta"]:
        reasons.append("the query has no filter on a Variant path here")
    elif outcome.get("tree") and node["bounds"] == node["delta"] and not reasons:
        reasons.append("each file can match")
    counts = (node.get("total"), node.get("delta"), node.get("bounds"))
    predicates = tuple(outcome.get("predicates", ()))
    return Scan(node["table"], node["version"], *counts, predicates, tuple(dict.fromkeys(reasons)), findings)


def _findings(outcome: Mapping[str, Any]) -> tuple[Finding, ...]:
    if "request" not in outcome:
        return ()
    if "tally" not in outcome and outcome["bounds"]:
        return ()  # nothing could be read
    asked, log = questions(outcome["request"])
    counts: dict[int, dict[str, int]] = {}
    for number, verdict, files in outcome.get("tally", ()):
        counts.setdefault(number, {})[verdict] = files
    return tuple(finding(leaf, log, counts.get(number, {})) for number, leaf in enumerate(islice(leaves(asked), MAX_QUESTIONS)))
