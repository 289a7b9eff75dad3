"""What each question of a query could prove, file by file, counted: `explain` in numbers.

In: the questions (`predicates.leaves`) and what the log can hold. Out: trees of bounds (`bounds`) from which Java finds one
verdict for each file and question, and the counts of the verdicts in words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delta_variant.skipping.bounds import accepted
from delta_variant.skipping.predicates import NotNull
from delta_variant.skipping.translation import question, translate, useless
from delta_variant.stats import BOUNDS_TAG

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_variant.skipping.bounds import Log, Projection
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


def verdicts(asked: Sequence[Leaf], projection: Projection) -> list[dict[str, Any]]:
    """What Java needs to find the verdicts on each question that bounds can answer.

    In the order in which it asks: `tree` FALSE is out; `question` TRUE is maybe; else the number `kind` tells the type of the
    path's bound: there is none; it is not one of `kinds` or of `marked`, which names the verdict; it is one of `marked` in a
    file without the mark; or other.
    """
    log = projection.log
    return [
        {
            "number": number,
            "tree": translate(leaf, log)[0].json(projection),
            "question": (translate(leaf, log)[0] if isinstance(leaf, NotNull) else question(leaf)).json(projection),
            "kind": None if isinstance(leaf, NotNull) else projection.number("kind", leaf.path),
            "kinds": accepted(leaf.path, log, needs_mark=False),
            "marked": accepted(leaf.path, log, needs_mark=True),
        }
        for number, leaf in enumerate(asked)
        if useless(leaf, log) is None
    ]


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
