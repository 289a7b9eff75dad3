"""The optimizer rule in one Spark session, and what it did: `install`, `remove`, `explain`.

`java/SkipFiles.java` walks the plan and calls back once per Delta scan that has a filter on a VARIANT column: in comes
the filter as JSON (`Filters.java`), out goes the bounds predicate as SQL (`answer`), which Java evaluates over Delta's parsed
statistics (`Bounds.java`). No loop crosses py4j. A session carries at most one rule; the rule itself carries what `disable`
has to restore. What each question of the query could prove is counted for `explain`, and where the logger `delta_variant` is
at debug level.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from delta_variant import jvm
from delta_variant.errors import InvalidPathError
from delta_variant.paths import parse_variant_path
from delta_variant.skipping import (
    ROWS_MIGHT_MATCH,
    And,
    Comparison,
    Finding,
    In,
    Literal,
    Log,
    NotNull,
    Or,
    Other,
    Path,
    Predicate,
    StartsWith,
    Unknown,
    finding,
    keeps_order,
    leaves,
    negate,
    translate,
    verdicts,
)
from delta_variant.stats import BOUNDS_TAG, BOUNDS_TAG_VALUE, NONNULL_TAG

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

_CLASS = "delta_variant.SkipFiles"
_FLIPPED = {"=": "=", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_log = logging.getLogger("delta_variant")


# ---- the rule in a session -------------------------------------------------------------------------------------------


class _Translate:
    """The rule's question; an exception reaches Java, which keeps the plan and warns."""

    def apply(self, request: str) -> str:
        return json.dumps(answer(json.loads(request)))

    class Java:
        implements = ("java.util.function.UnaryOperator",)


class _Tell:
    """What the rule has to say: why it stepped aside, and at debug level each scan as `explain` has it."""

    def accept(self, level: str, text: str) -> None:
        if level == "debug":
            _log.debug("%s", Report([_scan(json.loads(text), enabled=True)]))
        else:
            _log.warning("no files were skipped by Variant path, the query runs without: %s", text)

    class Java:
        implements = ("java.util.function.BiConsumer",)


def install(spark: SparkSession, found: Mapping[str, str | None]) -> None:
    """Add the rule to the session; `found` is handed back by `remove`."""
    jvm.start_callbacks(spark)
    rule = _rule(spark, _Translate(), _Tell(), BOUNDS_TAG, BOUNDS_TAG_VALUE, NONNULL_TAG, dict(found))
    _set_rules(spark, [*_rules(spark), rule])


def _rule(spark: SparkSession, *arguments: Any) -> Any:
    return jvm.construct(spark, jvm.java_class(spark, "Bounds", "Filters", "SkipFiles"), *arguments)


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


# ---- one request -----------------------------------------------------------------------------------------------------


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """The reply to one scan's request `{"filters": [...], "columns": [[name, ...], ...], "marked": bool, "nonnull": bool,
    "trust_all": bool, "explain": bool}`, where `columns` have bounds as VARIANT in Delta's parsed statistics.

    `sql` is the bounds predicate, or None where nothing can be proved; `predicates` what the query asks of Variant paths;
    `reasons` why parts of it are not used; `verdicts`, if wanted, SQL that tells for each file what each question proves.
    """
    asked, log = _asked(request)
    bounds, reasons = translate(asked, log)
    reply: dict[str, Any] = {
        "sql": None if bounds == ROWS_MIGHT_MATCH else bounds.sql(log),
        "predicates": [str(part) for part in asked.parts if not isinstance(part, Unknown)],
        "reasons": reasons,
        "log": _log.isEnabledFor(logging.DEBUG),
    }
    if request["explain"] or reply["log"]:
        reply |= {"request": request, "verdicts": verdicts(list(leaves(asked)), log)}
    return reply


def _asked(request: Mapping[str, Any]) -> tuple[And, Log]:
    filters = [_predicate(node) for node in request["filters"]]
    # Spark infers IS NOT NULL from the comparisons beside it.
    implied = {leaf.path for part in filters if not isinstance(part, (NotNull, Or)) for leaf in leaves(part)}
    filters = [part for part in filters if not (isinstance(part, NotNull) and part.path in implied)]
    columns = tuple(map(tuple, request["columns"]))
    return And(tuple(filters)), Log(columns, *(request[key] for key in ("marked", "nonnull", "trust_all")))


def _predicate(node: Mapping[str, Any]) -> Predicate:
    if node.get("aside"):
        return Unknown()
    if "other" in node:
        return Other(node["other"], node["text"])
    op = node.get("op")
    if op == "not":
        return negate(_predicate(node["args"][0]))
    if op == "isnull":
        return negate(_predicate({**node, "op": "isnotnull"}))
    if op in {"and", "or"}:
        parts = tuple(_predicate(part) for part in node["args"])
        return And(parts) if op == "and" else Or(parts)
    if op is None:
        path = _operand(node)
        if isinstance(path, Path) and path.result == "boolean":
            return Comparison("=", path, Literal("boolean", "true"))
        return Unknown(f"{node.get('unknown', 'a value of its own')}: not a comparison with a constant")
    first, *others = (_operand(side) for side in node["args"])
    if isinstance(first, Literal) and op in _FLIPPED:
        op, first, others = _FLIPPED[op], others[0], [first]
    unknown = next((side for side in (first, *others) if isinstance(side, Unknown)), None)
    if unknown is not None:
        return unknown
    literals = tuple(side for side in others if isinstance(side, Literal))
    if isinstance(first, Path) and len(literals) == len(others):
        return _test(op, first, literals, node.get("escape", ""))
    return Unknown(f"{first} {op}: not a comparison with a constant")


def _test(op: str, path: Path, literals: tuple[Literal, ...], escape: str) -> Predicate:
    """The predicate `path op literals`; in `<=>` NULL is no constant like others, since it is what a missing path equals."""
    if op == "in":
        return In(path, literals)
    if op == "isnotnull":
        return NotNull(path)
    if op == "startswith":
        return StartsWith(path, literals[0])
    if op == "like" and literals[0].text is not None:
        fixed = re.split(b"[%_]|" + re.escape(escape.encode()), bytes.fromhex(literals[0].text))[0]
        if fixed:
            return And((StartsWith(path, replace(literals[0], text=fixed.hex())), Unknown()))
        return Unknown(f"{path} LIKE {literals[0]}: the pattern has no fixed beginning")
    if op in _FLIPPED and not (op == "<=>" and literals[0].text is None):
        return Comparison(op, path, literals[0])
    return Unknown(f"{path} {op}: not a comparison with a constant")


def _operand(node: Mapping[str, Any]) -> Path | Literal | Unknown:
    if "literal" in node:
        return Literal(node["type"], node["literal"])
    if "column" in node:
        return Path(tuple(node["column"]), (), name=node["name"])
    if "get" in node or "cast" in node:
        inner = _operand(node.get("get") or node["cast"])
        return _narrowed(inner, node) if isinstance(inner, Path) else Unknown("an expression on a constant")
    return Unknown(f"{node.get('unknown', 'an expression')}: not a Variant path")


def _narrowed(path: Path, node: Mapping[str, Any]) -> Path | Unknown:
    target = node["type"]
    if path.result == "variant":
        try:
            steps = parse_variant_path(node.get("path", "$"))
        except InvalidPathError as error:
            return Unknown(str(error))
        keys = tuple(step for step in steps if isinstance(step, str))
        if len(keys) < len(steps):
            return Unknown(f"{path.name}: {node['path']} goes through an array, which has no bounds")
        return replace(path, keys=path.keys + keys, type=target)
    if "cast" in node and keeps_order(path.result, target):
        return replace(path, casts=(*path.casts, target))
    return Unknown(f"{path}: a cast to {target} does not keep the order")


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
    elif outcome.get("sql") and node["bounds"] == node["delta"] and not reasons:
        reasons.append("each file can match")
    counts = (node.get("total"), node.get("delta"), node.get("bounds"))
    predicates = tuple(outcome.get("predicates", ()))
    return Scan(node["table"], node["version"], *counts, predicates, tuple(dict.fromkeys(reasons)), findings)


def _findings(outcome: Mapping[str, Any]) -> tuple[Finding, ...]:
    if "request" not in outcome:
        return ()
    asked, log = _asked(outcome["request"])
    counts: dict[int, dict[str, int]] = {}
    for number, verdict, files in outcome.get("tally", ()):
        counts.setdefault(number, {})[verdict] = files
    return tuple(finding(leaf, log, counts.get(number, {})) for number, leaf in enumerate(leaves(asked)))
