"""What Spark's rules ask about the bounds of one scan → the reply that the JVM evaluates.

`answer`: which files can match the filters of the scan (`scala/Filters.scala`, `scala/SkipFiles.scala`)? An unknown filter
keeps every file.

`extremes`: which bounds answer MIN and MAX of Variant paths (`scala/LogAggregates.scala`)? A cast that preserves order
(`casts`) maps the smallest bound to the smallest value. This needs bounds that are values of the file, which the JVM checks,
and that are not cut: strings may be (protocol/README.md, B3), so text and casts to text are excluded.
"""

from __future__ import annotations

from typing import Final

from delta_variant import messages
from delta_variant.queries import predicates
from delta_variant.queries.bounds import LogContents, Projection, size, translate
from delta_variant.queries.casts import kinds_for
from delta_variant.queries.filters import Filters, narrowed
from delta_variant.queries.findings import verdicts
from delta_variant.queries.predicates import And, Path, Unknown, leaves

MAX_COMPARISONS: Final = 2_000
"""Comparisons of bounds for one file. An IN of any length counts as one."""
MAX_ALL_COMPARISONS: Final = 100_000_000
"""Comparisons of bounds for all files of a scan, which take about a second."""
MAX_BOUNDS: Final = 128
"""Distinct bounds. A path has two, and a file of this package has bounds for 32 paths of a column."""
MAX_ALL_BOUNDS: Final = 4_000_000
"""Bounds that are read for all files of a scan, which takes a few seconds the first time."""
MAX_PROBES: Final = 1_000_000
"""Values that the index is asked for by one comparison, for all files of a scan, which takes a tenth of a second."""
MAX_QUESTIONS: Final = 128
"""Questions of one query for which `explain` counts files."""


def answer(request: messages.PruneRequest) -> messages.PruneReply:
    """The reply to a request.

    With `explain`, it has the query's predicates on Variant paths, why parts of them are not used, and from what the JVM
    computes what each question proves of a file. `questions` makes the questions of the request again.

    >>> from delta_variant.messages import Column, Comparison, Constant, Get, OperandNumber
    >>> less = Comparison("<", OperandNumber(0), Constant(0, "int", ("5",), size=1, has_null=False))
    >>> of = Get(Column(("v",), "v"), "$.a", "int")
    >>> log = {"marked": True, "nonnull": False, "times": False, "index": False, "exact": False, "trust_all": False}
    >>> answer(messages.PruneRequest((of,), (less,), (("v",),), files=10, **log, explain=False)).predicate
    AllOf(parts=(Compare(op='<', bound=0, constant=0),))
    """
    predicate, log = questions(request)
    parts, projection, reasons = _affordable(predicate, log, max(request.files, 1))
    proves = bool(projection.bounds or projection.members)
    explanation = _explanation(predicate, projection, reasons) if request.explain else None
    return messages.PruneReply(messages.AllOf(parts) if proves else None, projection.read(), projection.asked(), explanation)


def _explanation(predicate: And, projection: Projection, reasons: list[str]) -> messages.Explanation:
    each = list(leaves(predicate))
    if len(each) > MAX_QUESTIONS:
        reasons.append(
            f"the query has {len(each):,} questions: files are counted for the first {MAX_QUESTIONS} of them, and not "
            "counted for the others, which can prune files all the same"
        )
    shown = tuple(str(part) for part in predicate.parts if not isinstance(part, Unknown))
    return messages.Explanation(shown, tuple(reasons), verdicts(each[:MAX_QUESTIONS], projection))


def _affordable(
    predicate: And, log: LogContents, files: int
) -> tuple[tuple[messages.FilePredicate, ...], Projection, list[str]]:
    """The predicates for the parts that fit into the budget of planning, the bounds that they compare, and why other parts are
    left out."""
    used: list[messages.FilePredicate] = []
    reasons: list[str] = []
    count, projection = 0, Projection(log)
    for part in predicate.parts:
        before = projection.size
        bounds, unused = translate(part, projection)
        reasons += unused
        comparisons, read = count + size(bounds), len(projection.bounds)
        long = comparisons > min(MAX_COMPARISONS, MAX_ALL_COMPARISONS / files)
        if long or read > min(MAX_BOUNDS, MAX_ALL_BOUNDS / files):
            projection.shrink(before)
            earlier = f", with the {count:,} of earlier predicates," if count else ""
            reasons.append(
                f"the predicate that contains {next(leaves(part), part)}: {size(bounds):,} comparisons{earlier} of {read:,} "
                f"bounds are too many for {files:,} files"
            )
        else:
            used.append(bounds)
            count = comparisons
    return tuple(used), projection, reasons


def questions(request: messages.PruneRequest) -> tuple[And, LogContents]:
    """The query's predicate on Variant paths, and what the log can hold about the scan's files."""
    read = Filters(request.operands)
    filters = [read.predicate(one) for one in request.filters]
    # Spark infers IS NOT NULL from other comparisons of the path. It adds nothing to them.
    implied = {
        leaf.path for part in filters if not isinstance(part, predicates.NotNull | predicates.Or) for leaf in leaves(part)
    }
    filters = [part for part in filters if not (isinstance(part, predicates.NotNull) and part.path in implied)]
    whole = predicates.merged(And(tuple(filters)))
    log = LogContents(
        request.columns,
        marked=request.marked,
        nonnull=request.nonnull,
        times=request.times,
        exact=request.exact,
        index=MAX_PROBES // max(1, request.files) if request.index else 0,
        trust_all=request.trust_all,
    )
    return whole if isinstance(whole, And) else And((whole,)), log


# ---- MIN and MAX ------------------------------------------------------------------------------------------------------


def extremes(request: messages.ExtremesRequest) -> messages.ExtremesReply:
    """The bounds to read for MIN and MAX of some paths: for each path, in that order, its minimum and its maximum, and last the
    number of rows. There are none if one of the paths has no such bounds.

    >>> request = messages.ExtremesRequest(columns=(("v",),), paths=(messages.TypedPath(("v",), "$.id", "bigint"),))
    >>> [bound.side for bound in extremes(request).bounds]
    ['min', 'max', 'rows']
    """
    log = LogContents(request.columns, times=True, exact=True)
    bounds: list[messages.Bound] = []
    for requested in request.paths:
        path = narrowed(Path(requested.column, ()), requested.path, requested.type)
        if not isinstance(path, Path) or path.column not in log.columns:
            return messages.ExtremesReply(())
        if path.type.startswith("string") or not kinds_for(path.type):
            return messages.ExtremesReply(())
        both = Projection(log)
        both.number("min", path)
        both.number("max", path)
        bounds += both.read()
    return messages.ExtremesReply((*bounds, messages.Bound("rows")))
