"""What data skipping and typed reading do for a query: `explain`.

In: a DataFrame, planned again. Out: a `Report` with one `Scan` for each Delta scan: how many files it has, how many are left
after Delta's own skipping and then after skipping by bounds, what each comparison proved, which paths are read from typed
columns, and why not more. `scala/Outcomes.scala` records on the scans of a plan what the two rules did. `scala/Explain.scala`
collects that. It also lists the other leaves of the plan that read a Delta table or have VARIANT columns; the rules leave these
alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from delta_variant import jvm, messages
from delta_variant.errors import UnsupportedFeatureError
from delta_variant.queries import typed
from delta_variant.queries.findings import Finding, finding
from delta_variant.queries.predicates import leaves
from delta_variant.queries.requests import MAX_QUESTIONS, questions

SKIPPING = "delta_variant.SkipFiles"
"""The name of the optimizer rule for data skipping."""

ENABLED = "spark.delta_variant.enabled"
"""The session setting with which the rules and the writes do nothing if it is `false`."""

READER = "spark.databricks.delta.v2.enableMode"
"""Delta's setting for its DSv2 reader. By default (AUTO), Delta uses that reader only for streams of tables in Unity
Catalog."""
DSV2 = "STRICT"
"""The value with which it reads every table that a query names."""
_OTHERS = {
    "dsv2": f"this scan is by Delta's DSv2 reader ({READER} = {DSV2}), which delta-variant neither prunes nor reads from typed "
    "columns: set it to AUTO (Delta's default) or NONE, and make the DataFrame again",
    "cache": "the rows come from Spark's cache, not from files, so no file is pruned: UNCACHE TABLE or unpersist() ends that",
    "changes": "the scan reads the table's change data feed, which delta-variant does not prune",
    "stream": "the scan is that of a stream, which reads all files of each batch: explain(query), with the StreamingQuery that "
    "start() gave, says how the last batch was read",
    "batch": "the scan is that of a stream, which reads all files of each batch",
    "static": "a query with a stream is planned again for each batch: a query on this table alone shows what is pruned then",
    "files": "these files are not in a Delta table, so no log has their bounds: load them with delta_variant.convert",
    "rdd": "the rows come from an RDD (a checkpoint, a batch in foreachBatch, rows of Python), not from files",
    "rows": "the rows come from {by}, which delta-variant does not know",
}
"""By the kinds of `scala/Explain.scala`: why the rules leave a scan alone."""

_COMMANDS = ("Command", "ParsedStatement")
"""The kinds of logical plans that Spark runs when a DataFrame is made of them."""


@dataclass(frozen=True)
class Scan:
    """One scan of a query: of a Delta table, or of other rows with VARIANT columns. `reasons` says what the other rows are.

    The first three counts are None if Delta does not plan the scan file by file, and the version if it is not known.
    """

    table: str
    version: int | None
    files_total: int | None
    files_after_delta: int | None
    files_after_bounds: int | None
    predicates: tuple[str, ...]  # the query's predicates on Variant paths
    reasons: tuple[str, ...]  # why they, or parts of them, do not rule out more files
    findings: tuple[Finding, ...] = ()  # what each comparison of the predicates proved
    typed_paths: tuple[str, ...] = ()  # the Variant paths that the query uses
    files_typed: int = 0  # files in which these paths are read from typed columns; Spark's scan reads the other files
    typed_reasons: tuple[str, ...] = ()  # why they are not read from typed columns in all files
    typed_files: Mapping[str, int] = field(default_factory=dict)  # by path, the opened files in which its column is proven
    files_from_log: int = 0  # files that are not opened, because the log answers MIN, MAX and COUNT(*) for them


@dataclass(frozen=True)
class Report:
    """The scans of one query, in the order of the plan; `str` gives an aligned table."""

    scans: list[Scan]

    def __str__(self) -> str:
        if not self.scans:
            return "the plan of the query has no scan of a Delta table, and no scan with a VARIANT column"
        rows = [["table", "version", "files", "after Delta", "after bounds", "predicates, what they prove, and why not more"]]
        for scan in self.scans:
            proved = [
                f"{finding.predicate}: rules out {finding.files_ruled_out} of {scan.files_after_delta} files"
                + f", {finding.files_by_index} of them by the index" * (finding.files_by_index > 0)
                for finding in scan.findings
            ]
            notes = [*(proved or scan.predicates), *(f"not used: {reason}" for reason in scan.reasons)]
            if scan.files_typed:
                notes.append(
                    f"typed columns in {scan.files_typed} of {scan.files_after_bounds} files: {', '.join(scan.typed_paths)}"
                )
            if scan.files_from_log:
                notes.append(f"the log answers MIN, MAX and COUNT(*) for {scan.files_from_log} files")
            notes += [*(f"by Spark's scan: {reason}" for reason in scan.typed_reasons)] or [""] * (not notes)
            counts = [scan.files_total, scan.files_after_delta, scan.files_after_bounds]
            numbers = ["?" if number is None else str(number) for number in (scan.version, *counts)]
            rows.append([scan.table, *numbers, notes[0]])
            rows.extend(["", "", "", "", "", note] for note in notes[1:])
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        lines = (
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:5], widths[1:], strict=True)), row[5]]
            for row in rows
        )
        return "\n".join("  ".join(line).rstrip() for line in lines)


def explain(df: DataFrame | StreamingQuery) -> Report:
    """What data skipping and typed reading do for a query.

    Example:
        print(dv.explain(spark.sql("SELECT v:kind::int FROM events WHERE v:id::bigint = 5")))

    The query is planned again under the session's current settings; no part of it runs. Scans that are never pruned are in the
    report with the reason: cached rows, streams, change data feeds, Parquet files outside of Delta tables, Delta's DSv2 reader.
    For a StreamingQuery, the report is that of its last batch.

    Raises SessionError for a DataFrame of Spark Connect, and UnsupportedFeatureError for anything but a DataFrame or a
    StreamingQuery that has read a batch.
    """
    if isinstance(df, DataFrame):
        spark = jvm.classic(df.sparkSession)
        text = jvm.companion(spark, "Explain").explain(df._jdf)  # noqa: SLF001  # no public name
    elif isinstance(df, StreamingQuery):
        batch = df._jsq.streamingQuery().lastExecution()  # noqa: SLF001  # no public name
        if batch is None:
            raise UnsupportedFeatureError(
                f"the stream {df.name or df.id} has not read a batch yet: explain it after the first one"
            )
        spark = jvm.python_session(SparkSession.active(), batch.sparkSession())
        text = jvm.companion(spark, "Explain").planned(batch.optimizedPlan())
    else:
        raise UnsupportedFeatureError(f"explain takes a DataFrame or a StreamingQuery, not {df!r}: write explain(spark.sql(…))")
    return of(messages.decoded(tuple[messages.ScanReport, ...], text), off=why_off(spark))


def query(spark: SparkSession, text: str) -> DataFrame:
    """The DataFrame of a SQL text. Nothing of it is run.

    Raises UnsupportedFeatureError for a command (INSERT, DELETE, CREATE and so on), which `spark.sql` would run at once, and
    Spark's own errors for a text that it does not accept.
    """
    plan: Any = jvm.classic(spark)._jsparkSession.sessionState().sqlParser().parsePlan(text)  # noqa: SLF001  # no public name
    commands = [jvm.load_class(spark, f"org.apache.spark.sql.catalyst.plans.logical.{name}") for name in _COMMANDS]
    nodes = [plan]
    while nodes:
        node = nodes.pop()
        if any(command.isInstance(node) for command in commands):
            start = " ".join(text.split())[:60]
            raise UnsupportedFeatureError(
                f"{start!r} is a command ({node.nodeName()}), which Spark would run at once: name a query that selects its rows"
            )
        nodes += jvm.items(node.children())
    return spark.sql(text)


def has_rules(spark: SparkSession) -> bool:
    """Whether the session has the optimizer rules, and does not have them switched off."""
    return why_off(spark) is None


def why_off(spark: SparkSession) -> str | None:
    """Why the optimizer rules do nothing in the session, or None if they work."""
    if not any(rule.ruleName() == SKIPPING for rule in jvm.rules(spark)):
        return "delta_variant.enable(spark) was not called"
    setting = str(spark.conf.get(ENABLED, "true"))
    return None if setting.lower() == "true" else f"{ENABLED} is {setting}"


def of(scans: Iterable[messages.ScanReport], *, off: str | None = None) -> Report:
    """The report on scans that `scala/Explain.scala` described. off: why the optimizer rules do nothing, as of `why_off`."""
    return Report([_scan(scan, off) for scan in scans])


def _scan(scan: messages.ScanReport, off: str | None) -> Scan:
    skipping = scan.skipping
    findings = _findings(skipping, scan.delta or 0) if skipping else ()
    reasons = [*(skipping.reasons if skipping else ()), *(reason for finding in findings for reason in finding.reasons)]
    if scan.other is not None:
        reasons.append(_OTHERS[scan.other].format(by=scan.by))
    elif scan.delta is None:
        reasons.append("Delta does not plan this scan file by file (is spark.databricks.delta.stats.skipping off?)")
    elif skipping is None and scan.delta and off is None:
        reasons.append("the query has no filter on a Variant path here")
    elif skipping and off is None and skipping.proves and scan.bounds == scan.delta and not reasons:
        reasons.append("by its bounds, every file can have rows that match")
    if off is not None and scan.delta is not None:
        reasons.append(off)
    read = scan.reading
    return Scan(
        scan.table,
        scan.version,
        scan.total,
        scan.delta,
        scan.bounds,
        skipping.predicates if skipping else (),
        tuple(dict.fromkeys(reasons)),
        findings,
        *typed.outcome(read),
        typed_files={typed.shown(path, read.paths): path.files for path in read.paths} if read else {},
        files_from_log=read.logged if read else 0,
    )


def _findings(skipping: messages.Skipping, left: int) -> tuple[Finding, ...]:
    """What the comparisons proved. left: how many files Delta's own skipping left."""
    if skipping.request is None or skipping.tally is None:  # without `explain`, or the bounds could not be read
        return ()
    predicate, log = questions(skipping.request)
    counts: dict[int, dict[str, int]] = {}
    for tally in skipping.tally:
        counts.setdefault(tally.question, {})[tally.verdict] = tally.files
    return tuple(
        finding(leaf, log, counts.get(number, {}), left) for number, leaf in enumerate(islice(leaves(predicate), MAX_QUESTIONS))
    )
