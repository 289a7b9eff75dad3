"""A query's predicate on Variant paths → a predicate on the bounds in the Delta log, and what could not be used.

The invariant: the bounds predicate is FALSE only for a file in which no row can make the query's predicate TRUE. So `<` looks
at the minimum alone, `=` at whichever bounds are there, `<>` at whether they are one value, AND at the sides that help, and OR
only where all its sides do. A row without the path, or with a JSON null there, makes none of these TRUE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delta_variant.skipping.bounds import (
    ROWS_CANNOT_MATCH,
    ROWS_MIGHT_MATCH,
    AllOf,
    AnyOf,
    Bounds,
    Check,
    HasValues,
    Log,
    OtherColumns,
    OtherThan,
)
from delta_variant.skipping.casts import KINDS, kinds_for
from delta_variant.skipping.predicates import (
    And,
    Comparison,
    In,
    Leaf,
    Literal,
    NotNull,
    Or,
    Other,
    Path,
    Predicate,
    StartsWith,
    Unknown,
)
from delta_variant.stats import BOUNDS_TAG, NONNULL_TAG

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_RANGES: Final = 64  # an IN of more values is looked up as that many ranges
_MAX_EXCLUDED: Final = 1000  # values of a NOT IN; leaving out some only keeps more files


def translate(predicate: Predicate, log: Log) -> tuple[Bounds, list[str]]:
    """The predicate on a file's bounds, and in words why parts of the query could not be used."""
    match predicate:
        case And(parts):
            sides = [translate(part, log) for part in parts]
            reasons = [reason for _, reasons in sides for reason in reasons]
            if any(side == ROWS_CANNOT_MATCH for side, _ in sides):
                return ROWS_CANNOT_MATCH, reasons
            useful = tuple(side for side, _ in sides if side != ROWS_MIGHT_MATCH)
            return (useful[0] if len(useful) == 1 else AllOf(useful)), reasons
        case Or(parts):
            sides = [translate(part, log) for part in parts]
            if any(side == ROWS_MIGHT_MATCH for side, _ in sides):
                reasons = [reason for _, reasons in sides for reason in reasons]
                return ROWS_MIGHT_MATCH, reasons or ["one side of an OR is not about a Variant path"]
            useful = tuple(side for side, _ in sides if side != ROWS_CANNOT_MATCH)
            return (useful[0] if len(useful) == 1 else AnyOf(useful)), []
        case Other(number):
            return OtherColumns(number), []
        case Unknown(reason):
            return ROWS_MIGHT_MATCH, [reason] if reason else []
        case leaf:
            static = useless(leaf, log)
            if static or isinstance(leaf, NotNull):
                return (ROWS_MIGHT_MATCH, [static]) if static else (HasValues(leaf.path), [])
            bounds = question(leaf)
            if not log.nonnull or bounds == ROWS_CANNOT_MATCH:
                return bounds, []
            return (HasValues(leaf.path) if bounds == ROWS_MIGHT_MATCH else AllOf((HasValues(leaf.path), bounds))), []


def useless(leaf: Leaf, log: Log) -> str | None:
    """Why no file's bounds can answer a question; None where one might."""
    path = leaf.path
    if path.column not in log.columns:
        return f"{path}: the table's statistics hold no Variant bounds for column {path.name or '.'.join(path.column)}"
    if isinstance(leaf, NotNull):
        return None if log.nonnull else f"{leaf}: no file counts its rows without the path (tag {NONNULL_TAG})"
    kinds = kinds_for(path.type)
    if not kinds:
        return f"{path}: values read as {path.type} have no bounds"
    if not log.marked and not log.trust_all and all(KINDS[kind][1] for kind in kinds):
        return f"{path}: {path.type} bounds count only in files whose Add has the tag {BOUNDS_TAG}; none here has"
    for literal in _literals(leaf):
        if literal.type != path.result:
            return f"{path}: compared with a {literal.type}"
        if literal.type == "timestamp_ntz" and literal.text is not None and str(literal).endswith("us"):
            return f"{path}: {literal} is outside the years 1 to 9999"
    return None


def _literals(leaf: Leaf) -> Sequence[Literal]:
    match leaf:
        case In(_, literals):
            return literals
        case Comparison(_, _, literal) | StartsWith(_, literal):
            return [literal]
    return []


def question(leaf: Comparison | In | StartsWith) -> Bounds:
    """What a leaf asks of the bounds."""
    match leaf:
        case Comparison(op, path, literal):
            return _range(op, path, literal, literal)
        case In(path, literals, negated):
            return _none_of(path, literals) if negated else _any_range(path, literals)
        case StartsWith(path, prefix, negated):
            return _starting(path, prefix, negated)


def _range(op: str, path: Path, low: Literal, high: Literal) -> Bounds:
    """Whether a value v with `v op low` may be there; for op `=`, one with low <= v <= high. NULL equals nothing."""
    if low.text is None:
        return ROWS_CANNOT_MATCH
    if op == "<>" and low.type == "boolean":
        op, low = "=", Literal("boolean", "false" if low.text == "true" else "true")
        high = low
    if op == "<>":
        return OtherThan(path, (low,))
    if op in {"=", "<=>"}:
        return AllOf((Check("min", path, "<=", high), Check("max", path, ">=", low)))
    return Check("min" if op in {"<", "<="} else "max", path, op, low)


def _starting(path: Path, prefix: Literal, negated: bool) -> Bounds:
    """By UTF-8 bytes, what starts with a prefix lies together, from the prefix itself on."""
    if prefix.text is None:
        return ROWS_CANNOT_MATCH
    if negated:
        return AnyOf(tuple(Check(side, path, "NOT startswith", prefix) for side in ("min", "max")))
    not_behind = AnyOf((Check("min", path, "<=", prefix), Check("min", path, "startswith", prefix)))
    return AllOf((not_behind, Check("max", path, ">=", prefix)))


def _none_of(path: Path, literals: Sequence[Literal]) -> Bounds:
    if any(literal.text is None for literal in literals):
        return ROWS_CANNOT_MATCH
    # Spark's InSet takes -0.0 and 0.0 for two values, bounds of zero stand for either.
    floating = path.result in {"float", "double"}
    excluded = {literal for literal in literals if not (floating and literal.order == (False, 0.0))}
    ordered = sorted(excluded, key=lambda literal: literal.order)
    return OtherThan(path, tuple(ordered[:_MAX_EXCLUDED])) if ordered else ROWS_MIGHT_MATCH


def _any_range(path: Path, literals: Sequence[Literal]) -> Bounds:
    ordered = sorted({literal for literal in literals if literal.text is not None}, key=lambda literal: literal.order)
    step = -(-len(ordered) // _MAX_RANGES) or 1
    runs = [ordered[at : at + step] for at in range(0, len(ordered), step)]
    return AnyOf(tuple(_range("=", path, run[0], run[-1]) for run in runs))
