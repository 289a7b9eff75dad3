"""What each question of a query could prove, file by file, counted: `explain` in numbers.

In: the questions (`predicates.leaves`) and what the log can hold. Out: SQL that gives each file one verdict a question, for
Spark to count, and the counts in words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta_variant.skipping.bounds import accepted, found, kind, one_of
from delta_variant.skipping.predicates import NotNull
from delta_variant.skipping.translation import question, translate, useless
from delta_variant.stats import BOUNDS_TAG

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_variant.skipping.bounds import Log
    from delta_variant.skipping.predicates import Leaf

_OUT, _MAYBE, _NONE, _UNMARKED, _OTHER = "out", "maybe", "none", "unmarked", "other"


@dataclass(frozen=True)
class Finding:
    """One question of a query on a Variant path."""

    predicate: str
    path: str
    """`column:path`."""
    files_ruled_out: int
    """By this question alone, of the files that Delta left."""
    reasons: tuple[str, ...]
    """Why others could not be ruled out by it."""


def verdicts(asked: Sequence[Leaf], log: Log) -> str | None:
    """SQL for one struct<number, verdict> a file and question; None where no question can be answered."""
    each = [
        f"named_struct('number', {number}, 'verdict', {_verdict(leaf, log)})"
        for number, leaf in enumerate(asked)
        if useless(leaf, log) is None
    ]
    return f"explode(array({', '.join(each)}))" if each else None


def _verdict(leaf: Leaf, log: Log) -> str:
    bounds = translate(leaf, log)[0]
    cases = [f"WHEN NOT {bounds.sql(log)} THEN '{_OUT}'"]
    if isinstance(leaf, NotNull):
        cases.append(f"WHEN {bounds.sql(log)} THEN '{_MAYBE}'")
    else:
        variant = f"coalesce({found('min', leaf.path, log)}, {found('max', leaf.path, log)})"
        marked, others = (accepted(leaf.path, log, needs_mark=needs_mark) for needs_mark in (True, False))
        cases.append(f"WHEN {question(leaf).sql(log)} THEN '{_MAYBE}'")
        cases.append(f"WHEN {variant} IS NULL THEN '{_NONE}'")
        cases.append(f"WHEN NOT {one_of(variant, [*marked, *others])} THEN {kind(variant)}")
        if marked:
            cases.append(f"WHEN {one_of(variant, marked)} AND NOT marked THEN '{_UNMARKED}'")
    return f"CASE {' '.join(cases)} ELSE '{_OTHER}' END"


def finding(leaf: Leaf, log: Log, counts: Mapping[str, int]) -> Finding:
    """The verdicts on one question (verdict → files) in words."""
    path, files = leaf.path, sum(counts.values())
    static = useless(leaf, log)
    if static:
        return Finding(str(leaf), path.place, 0, (static,))
    words = {
        _NONE: f"no bounds for {path.place} in",
        _UNMARKED: f"bounds for {path.place} that another writer may have made too narrow (no tag {BOUNDS_TAG}) in",
        _OTHER: f"{path.place} IS NOT NULL: rows without the path not counted in"
        if isinstance(leaf, NotNull)
        else f"bounds for {path.place} that do not fit {path.result} in",
    }
    reasons = []
    for verdict, count in sorted(counts.items()):
        if verdict not in {_OUT, _MAYBE}:
            text = words.get(verdict) or f"{verdict.lower()} bounds, {path.type} question, for {path.place} in"
            reasons.append(f"{text} {count} of {files} files")
    return Finding(str(leaf), path.place, counts.get(_OUT, 0), tuple(reasons))
