"""What each comparison of a query proves about the files, counted for `explain`.

In: the comparisons (`predicates.leaves`) and what the log can hold. Out: file predicates, from which the JVM computes one
verdict for each file and comparison; and the counts of verdicts, in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from delta_variant.messages import Verdict
from delta_variant.queries.bounds import LogContents, Projection, accepted, indexed, member, question, translate, useless
from delta_variant.queries.casts import TIMES
from delta_variant.queries.predicates import Leaf, NotNull
from delta_variant.stats import BOUNDS_TAG, TIMES_TAG

_OUT, _MAYBE, _NONE, _UNMARKED, _OTHER = "out", "maybe", "none", "unmarked", "other"
_INDEX, _UNINDEXED = "index", "unindexed"


@dataclass(frozen=True)
class Finding:
    """What one comparison of a query proved."""

    predicate: str
    path: str
    """`column:path`."""
    files_ruled_out: int
    """Files that this comparison alone rules out, of those that Delta's own data skipping left."""
    reasons: tuple[str, ...]
    """Why it does not rule out more files."""
    files_lacking: int = 0
    """Files without bounds for the path, or with bounds that another writer may have made too narrow."""
    files_by_index: int = 0
    """How many of the files that it rules out only the index of values does."""


def verdicts(asked: Sequence[Leaf], projection: Projection) -> tuple[Verdict, ...]:
    """What the JVM needs to compute a verdict for each file, on each comparison that bounds can answer.

    The verdict is `out` if `tree` is FALSE: the file is ruled out; but `index` if `bounds`, the tree without the index, is not.
    Otherwise it is `unindexed` if `member`, the question for the index, is NULL, and other files have filters for the path.
    Otherwise it is `maybe` if `question` is TRUE: the file may match. Otherwise the type of the path's bound (`kind`, None if
    bounds do not answer the question) gives the verdict: `none` if there is no bound;
    the type itself if it is in neither `kinds` nor `marked`; `unmarked` if it is in `marked` and the file has no marker; and
    `other` in all other cases.

    >>> from delta_variant.queries.bounds import LogContents, Projection
    >>> from delta_variant.queries.predicates import Comparison, Constants, Path
    >>> less = Comparison("<", Path(("v",), ("a",), "date"), Constants("date", ("0",)))
    >>> [verdict] = verdicts([less], Projection(LogContents((("v",),))))
    >>> verdict.tree, verdict.kinds
    (Compare(op='<', bound=0, constant=0), ('DATE', 'TIMESTAMP_NTZ'))
    """
    return tuple(
        _verdict(number, leaf, projection)
        for number, leaf in enumerate(asked)
        if useless(leaf, projection.log) is None or indexed(leaf, projection.log)
    )


def _verdict(number: int, leaf: Leaf, projection: Projection) -> Verdict:
    log = projection.log
    by_bounds = translate(leaf, replace(projection, log=replace(log, index=0)))[0]
    static = isinstance(leaf, NotNull) or useless(leaf, log) is not None
    return Verdict(
        number,
        tree=translate(leaf, projection)[0],
        bounds=by_bounds,
        member=member(leaf, projection),
        question=by_bounds if isinstance(leaf, NotNull) or static else question(leaf, projection),
        kind=None if static else projection.number("kind", leaf.path),
        kinds=accepted(leaf.path, log, needs_marker=False),
        marked=accepted(leaf.path, log, needs_marker=True),
    )


def finding(leaf: Leaf, log: LogContents, counts: Mapping[str, int], left: int) -> Finding:
    """The verdicts on one question in words. `counts` maps each verdict to the number of its files.

    left: how many files there are, for a question that has no verdicts because the log has no bounds of its column.

    >>> from delta_variant.queries.bounds import LogContents
    >>> from delta_variant.queries.predicates import Comparison, Constants, Path
    >>> less = Comparison("<", Path(("v",), ("a",), "int"), Constants("int", ("5",)))
    >>> finding(less, LogContents((("v",),)), {"out": 4, "none": 2}, left=0).reasons
    ('no bounds for v:a in 2 of 6 files',)
    """
    path, files = leaf.path, sum(counts.values())
    static = useless(leaf, log)
    if static and not indexed(leaf, log):
        return Finding(str(leaf), path.untyped, 0, (static,), left if path.column not in log.columns else 0)
    words = {
        _NONE: f"no bounds for {path.untyped} in",
        _UNMARKED: f"bounds for {path.untyped} that another writer may have made too narrow (no tag {BOUNDS_TAG}) in",
        _OTHER: f"{path.untyped} IS NOT NULL: rows that lack the path are not counted in"
        if isinstance(leaf, NotNull)
        else f"bounds for {path.untyped} that do not fit {path.result} in",
    }
    if path.type in TIMES:
        words["STRING"] = f"strings at {path.untyped}, of which the tag {TIMES_TAG} has no bounds, in"
    reasons = []
    for verdict, count in sorted(counts.items()):
        if verdict == _UNINDEXED:
            reasons.append(f"the index has no filter for {path.untyped} in {count} of {files} files")
        elif verdict not in {_OUT, _INDEX, _MAYBE}:
            compared = "string" if path.text else path.type
            text = words.get(verdict) or f"{verdict.lower()} bounds for {path.untyped}, which is compared as {compared}, in"
            reasons.append(f"{text} {count} of {files} files")
    lacking, by_index = counts.get(_NONE, 0) + counts.get(_UNMARKED, 0), counts.get(_INDEX, 0)
    return Finding(str(leaf), path.untyped, counts.get(_OUT, 0) + by_index, tuple(reasons), lacking, by_index)
