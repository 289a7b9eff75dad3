"""The optimizer rules of a Spark session, and what they did: `install`, `remove`, `explain`.

`java/SkipFiles.java` walks the plan. It calls Python once for each Delta scan with a filter on a VARIANT column above it,
or a join or an ORDER BY with LIMIT that restricts one (twice for the last). It sends the filter as JSON (`Filters.java`)
and gets a predicate on bounds (`skipping.answer`), which Java evaluates over the bounds in the log (`FileBounds.java`).

`java/TypedScans.java` runs after it and calls Python for each scan whose VARIANTs the plan uses by path (`Uses.java`):
which bounds answer MIN and MAX, if the plan asks for nothing else (`skipping.extremes`, `LogAggregates.java`); which bounds
prove that a path is in a typed column (`reading.proofs`); and how the files are read (`reading.groups`, `TypedPlan.java`).

No loop crosses py4j. A session has each rule at most once; the first one keeps the settings that `disable` restores. What
each comparison of a query proved is counted for `explain`, and for the logger `delta_variant` if the setting
`spark.delta_variant.logScans` is true.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from delta_variant import jvm, reading
from delta_variant.errors import SessionError
from delta_variant.skipping import MAX_QUESTIONS, Finding, answer, extremes, finding, leaves, questions
from delta_variant.stats import BOUNDS_TAG, BOUNDS_TAG_VALUES, NONNULL_TAG, TYPED_TAG_VALUE
from delta_variant.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

_SKIPPING, _READING = "delta_variant.SkipFiles", "delta_variant.TypedScans"
# Files are compiled once for each list that they begin: both rules and `explain` have the same classes, and their statics.
_SCAN_SOURCES = ("Bounds", "Tree", "Leaves", "Jobs", "FileBounds", "Scans")
_SKIPPING_SOURCES = (*_SCAN_SOURCES, "Question", "Filters", "Decision", "Demands", "SkipFiles")
_SOURCES = (*_SKIPPING_SOURCES, "Uses", "TypedPlan", "Footers", "LogAggregates", "TypedScans")
_log = logging.getLogger("delta_variant")


# ---- the rules in a session -------------------------------------------------------------------------------------------


class _Decide:
    """What the rules ask, in pieces (`java/Question.java`); an exception reaches Java, which keeps the plan and warns."""

    def __init__(self) -> None:
        self._pieces: dict[str, list[str]] = {}

    def apply(self, piece: str) -> str:
        number, place, text = piece.split(" ", 2)
        if place == "more":
            self._pieces.setdefault(number, []).append(text)
            return ""
        asked = json.loads("".join([*self._pieces.pop(number, ()), text]))
        answers = {"files": answer, "extremes": extremes, "proofs": reading.proofs, "groups": reading.groups}
        return json.dumps(answers[asked.pop("ask")](asked))

    class Java:
        implements = ("java.util.function.UnaryOperator",)


class _Tell:
    """What the rules have to say: why one stepped aside, and each scan as `explain` has it, where the session asks for that."""

    def accept(self, about: str, text: str) -> None:
        if about == "scan":
            _log.info("%s", Report([_scan(json.loads(text), enabled=True)]))
        elif about == "skipping":
            _log.warning("no files were skipped by Variant path, the query runs without: %s", text)
        else:
            _log.warning("no paths were read from typed columns, the query runs without: %s", text)

    class Java:
        implements = ("java.util.function.BiConsumer",)


def install(spark: SparkSession, found: Mapping[str, str | None]) -> None:
    """Add the rules to the session and try them; `found` is handed back by `remove`.

    Raises SessionError where they do not compile against the session's Spark and Delta, or do not skip a file.
    """
    jvm.start_callbacks(spark)
    try:
        decide, tell = _Decide(), _Tell()
        marks, typed_marks = jvm.scala_seq(spark, BOUNDS_TAG_VALUES), jvm.scala_seq(spark, [TYPED_TAG_VALUE])
        skipping = jvm.java_class(spark, *_SKIPPING_SOURCES)
        rule = jvm.construct(spark, skipping, decide, tell, BOUNDS_TAG, marks, NONNULL_TAG, dict(found))
        typed = jvm.construct(spark, jvm.java_class(spark, *_SOURCES), decide, tell, rule, BOUNDS_TAG, typed_marks)
        test = jvm.construct(spark, jvm.java_class(spark, *_SOURCES, "SelfTest"))
        opened = list(test.files(rule, spark._jsparkSession))  # noqa: SLF001  # no public name
    except Py4JError as error:
        lines = str(getattr(error, "java_exception", error)).strip().splitlines()
        raise _mismatch(spark, ": ".join(dict.fromkeys([lines[0], lines[-1]]))) from error
    if set(opened) != {1}:
        raise _mismatch(spark, f"queries of which 1 file of 2 can match open {opened}")
    _set_rules(spark, [*_rules(spark), rule, typed])


def _mismatch(spark: SparkSession, cause: str) -> SessionError:
    versions = "Spark {} with Delta {}".format(*jvm.versions(spark))
    return SessionError(
        f"delta-variant {__version__} cannot skip files in this session, which runs {versions} ({cause}): install the "
        "versions that its package asks for (pip install --force-reinstall delta-variant), or do without enable; "
        "writing needs none"
    )


def installed(spark: SparkSession) -> bool:
    """Whether the session has the rules."""
    return any(rule.ruleName() == _SKIPPING for rule in _rules(spark))


def remove(spark: SparkSession) -> dict[str, str | None]:
    """Take the rules out of the session; gives the `found` of `install`, empty where there were none."""
    rules = {rule.ruleName(): rule for rule in _rules(spark)}
    skipping = rules.get(_SKIPPING)
    _set_rules(spark, [rule for rule in _rules(spark) if rule.ruleName() not in {_SKIPPING, _READING}])
    return dict(skipping.found()) if skipping else {}


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
    typed_paths: tuple[str, ...] = ()  # what the query asks of Variants by path
    files_typed: int = 0  # in which these are read from typed columns; the others are left to Spark's scan
    typed_reasons: tuple[str, ...] = ()  # why not all files
    files_from_log: int = 0  # that are not opened, since the log answers MIN, MAX and COUNT(*) for them


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
            notes = [*(proved or scan.predicates), *(f"not used: {reason}" for reason in scan.reasons)]
            if scan.files_typed:
                notes.append(
                    f"typed columns in {scan.files_typed} of {scan.files_after_bounds} files: {', '.join(scan.typed_paths)}"
                )
            if scan.files_from_log:
                notes.append(f"MIN, MAX and COUNT(*) of {scan.files_from_log} files are in the log")
            notes += [*(f"by Spark's scan: {reason}" for reason in scan.typed_reasons)] or [""] * (not notes)
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
    scans = jvm.construct(spark, jvm.java_class(spark, *_SCAN_SOURCES))
    nodes = json.loads(scans.explain(df._jdf))  # noqa: SLF001  # no public name
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
    typed = json.loads(node.get("reading", "{}"))
    return Scan(
        node["table"],
        node["version"],
        *counts,
        predicates,
        tuple(dict.fromkeys(reasons)),
        findings,
        *reading.outcome(typed),
        files_from_log=typed.get("logged", 0),
    )


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
