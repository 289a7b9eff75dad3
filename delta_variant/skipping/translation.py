"""A query's predicate on Variant paths → a predicate on the bounds in the Delta log, and the parts that could not be used.

Invariant: the predicate on bounds is FALSE only for a file in which no row can make the query's predicate TRUE. Examples,
for the path `a`: `a < 1` becomes `min(a) < 1`. `a = 1` becomes `min(a) <= 1 AND max(a) >= 1`; if one of the bounds is
missing, the other one still counts. `a <> 1` is FALSE if both bounds are 1. An AND uses the operands that can be
translated; an OR is used only if all of its operands can be. Rows without the path, or with a JSON null there, make none
of these predicates TRUE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delta_variant.skipping.bounds import (
    ROWS_CANNOT_MATCH,
    ROWS_MIGHT_MATCH,
    AllOf,
    AnyOf,
    Between,
    Bounds,
    Check,
    HasValues,
    Log,
    Member,
    OtherColumns,
    OtherThan,
)
from delta_variant.skipping.casts import KINDS, indexed_scale, kinds_for
from delta_variant.skipping.predicates import (
    And,
    Comparison,
    Constants,
    In,
    Leaf,
    NotNull,
    Or,
    Other,
    Path,
    Predicate,
    StartsWith,
    Unknown,
)
from delta_variant.stats import BOUNDS_TAG, NONNULL_TAG, TIMES_TAG

if TYPE_CHECKING:
    from collections.abc import Sequence

_SIDE: Final = {"<": "min", "<=": "min", ">": "max", ">=": "max"}


def translate(predicate: Predicate, log: Log) -> tuple[Bounds, list[str]]:
    """The predicate on the bounds of a file, and in words why parts of the query's predicate could not be used.

    >>> a = Path(("v",), ("a",), "int")
    >>> bounds, reasons = translate(Comparison("<", a, Constants("int", ("5",))), Log((("v",),)))
    >>> bounds.side, bounds.op, bounds.constant.texts, reasons
    ('min', '<', ('5',), [])
    """
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
                return ROWS_MIGHT_MATCH, reasons or ["one operand of an OR is not about a Variant path"]
            useful = tuple(side for side, _ in sides if side != ROWS_CANNOT_MATCH)
            return (useful[0] if len(useful) == 1 else AnyOf(useful)), []
        case Other(number):
            return OtherColumns(number), []
        case Unknown(reason):
            return ROWS_MIGHT_MATCH, [reason] if reason else []
        case leaf:
            static, found = useless(leaf, log), member(leaf, log)
            if static:
                return (found, []) if found else (ROWS_MIGHT_MATCH, [static])
            if isinstance(leaf, NotNull):
                return HasValues(leaf.path), []
            bounds = question(leaf)
            if bounds == ROWS_CANNOT_MATCH:
                return bounds, []
            all_of: list[Bounds] = [HasValues(leaf.path)] if log.nonnull else []
            all_of += [bounds] if bounds != ROWS_MIGHT_MATCH else []
            all_of += [found] if found else []
            return (all_of[0] if len(all_of) == 1 else AllOf(tuple(all_of))), []


def member(leaf: Leaf, log: Log) -> Member | None:
    """The question for the index of values: whether a row may have one of some values. None if the index cannot answer."""
    match leaf:
        case Comparison("=" | "<=>", path, constant) if not constant.null:
            constants: tuple[Constants, ...] = (constant,)
        case In(path, constants, negated=False):
            pass
        case _:
            return None
    fits = all(part.type == path.result for part in constants) and 0 < sum(part.size for part in constants) <= log.index
    return Member(path, constants) if fits and indexed_scale(path) is not None else None


def useless(leaf: Leaf, log: Log) -> str | None:
    """Why bounds cannot answer a question for any file; None if they may for some."""
    path = leaf.path
    if path.column not in log.columns:
        return f"{path}: the table's statistics have no Variant bounds for column {path.name or '.'.join(path.column)}"
    if isinstance(leaf, NotNull):
        return None if log.nonnull else f"{leaf}: no file counts the rows that lack the path (tag {NONNULL_TAG})"
    kinds = kinds_for(path.type)
    if path.text and not log.times:
        return f"{path}: times in strings count only in files whose Add has the tag {TIMES_TAG}; no file of the scan has it"
    if not kinds:
        return f"{path}: values read as {path.type} have no bounds"
    if not log.marked and not log.trust_all and all(KINDS[kind][1] for kind in kinds):
        return f"{path}: {path.type} bounds count only in files whose Add has the tag {BOUNDS_TAG}; no file of the scan has it"
    for constant in _constants(leaf):
        if constant.type != path.result:
            return f"{path}: compared with a {constant.type}"
    return None


def _constants(leaf: Leaf) -> Sequence[Constants]:
    match leaf:
        case In(_, constants):
            return constants
        case Comparison(_, _, constant) | StartsWith(_, constant):
            return [constant]
    return []


def question(leaf: Comparison | In | StartsWith) -> Bounds:
    """The predicate on bounds for one comparison: `a < 1` becomes `min(a) < 1`."""
    match leaf:
        case Comparison(op, path, constant):
            return _compared(op, path, constant)
        case In(path, constants, negated=False):
            return Between(path, constants) if any(part.size for part in constants) else ROWS_CANNOT_MATCH
        case In(path, constants):
            return ROWS_CANNOT_MATCH if any(part.null for part in constants) else OtherThan(path, constants)
        case StartsWith(path, prefix, negated):
            return _starting(path, prefix, negated)


def _compared(op: str, path: Path, constant: Constants) -> Bounds:
    """Whether a file may have a value v with `v op constant`. A comparison with NULL matches no row. As there are two booleans,
    `a <> true` is the same as `a < true`."""
    if constant.null:
        return ROWS_CANNOT_MATCH
    if op == "<>" and constant.type == "boolean":
        op = "<" if constant.texts == ("true",) else ">"
    if op == "<>":
        return OtherThan(path, (constant,))
    if op in _SIDE:
        return Check(_SIDE[op], path, op, constant)
    return Between(path, (constant,))


def _starting(path: Path, prefix: Constants, negated: bool) -> Bounds:
    """Whether a file may have a string that starts with the prefix or, if negated, one that does not. In the order of UTF-8
    bytes, the strings that start with a prefix are contiguous, and the prefix itself is the first of them."""
    if prefix.null:
        return ROWS_CANNOT_MATCH
    if negated:
        return AnyOf(tuple(Check(side, path, "NOT startswith", prefix) for side in ("min", "max")))
    not_behind = AnyOf((Check("min", path, "<=", prefix), Check("min", path, "startswith", prefix)))
    return AllOf((not_behind, Check("max", path, ">=", prefix)))
