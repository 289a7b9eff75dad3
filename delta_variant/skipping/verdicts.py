"""What each comparison of a query proves about the files, counted for `explain`.

In: the comparisons (`predicates.leaves`) and what the log can hold. Out: trees of bounds (`bounds`), from which Java
computes one verdict for each file and comparison; and the counts of verdicts, in words.
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
    """What Java needs to compute the verdicts on each comparison that bounds can answer.

    Java decides in this order. If `tree` is FALSE, the file is ruled out. If `question` is TRUE, the file may match.
    Otherwise the verdict comes from the type of the path's bound (`kind`): there is no bound; its type is in neither
    `kinds` nor `marked`, and names the verdict; its type is in `marked` and the file has no marker; or another cause.
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
