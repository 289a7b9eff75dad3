"""A query's predicate on Variant paths → a predicate on what the log says of a file, and the parts that could not be used.

`translate` makes a `messages.FilePredicate`, which the JVM evaluates for every file of a scan (`scala/FilePredicates.scala`),
and `queries.pruning` in Python. It refers to bounds, and to paths of the index of values, by number: `Projection` lists each
distinct bound once, and Spark's own expressions read it from the log (`scala/LogStatistics.scala`), so evaluating the predicate
costs only its comparisons. Constants have the numbers that the request gave them.

Invariant: the predicate on bounds is FALSE only for a file in which no row can make the query's predicate TRUE. Examples,
for the path `a`: `a < 1` becomes `min(a) < 1`. `a = 1` becomes `min(a) <= 1 AND max(a) >= 1`; if one of the bounds is
missing, the other one still counts. `a <> 1` is FALSE if both bounds are 1. An AND uses the operands that can be
translated; an OR is used only if all of its operands can be. Rows without the path, or with a JSON null there, make none
of these predicates TRUE. Unknown results are NULL, which keeps the file: for a missing bound, a bound of another type, or a
bound that does not fit into the type that the query asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from delta_variant import types as t
from delta_variant.membership.sidecars import path_text
from delta_variant.messages import (
    AllOf,
    AnyOf,
    Between,
    Bound,
    Compare,
    Differs,
    FilePredicate,
    HasPrefix,
    HasValues,
    Indexed,
    Member,
    OtherColumns,
)
from delta_variant.paths import dotted, normalized
from delta_variant.queries.casts import KINDS, TIMES, kind_of, kinds_for
from delta_variant.queries.predicates import (
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
from delta_variant.stats import BOUNDS_TAG, NONNULL_TAG, TIMES_TAG, place

_SIDE: Final = {"<": "min", "<=": "min", ">": "max", ">=": "max"}
ROWS_MIGHT_MATCH: Final = AllOf(())
ROWS_CANNOT_MATCH: Final = AnyOf(())


@dataclass(frozen=True)
class LogContents:
    """What the log can hold about the files of one scan."""

    columns: tuple[tuple[str, ...], ...]
    """The VARIANT columns in the schema of Delta's statistics, by their physical names."""
    marked: bool = True
    """Whether any file has the marker, which says that this package computed its bounds from the values."""
    nonnull: bool = False
    """Whether any file has the tag for paths without bounds (`stats.NONNULL_TAG`)."""
    times: bool = False
    """Whether any file has the tag for strings that spell times (`stats.TIMES_TAG`)."""
    exact: bool = False
    """Whether only bounds count that are values of the file; else bounds may also be wider."""
    index: int = 0
    """For how many values of a path the index may be asked in each file; 0 if the table has none."""
    trust_all: bool = False
    """Whether bounds of every type count in files without the marker too (`spark.delta_variant.trustAllBounds`)."""


@dataclass
class Projection:
    """The distinct bounds that predicates compare, and the distinct paths of which they ask the index, in the order of their
    numbers.

    A bound is a pair (side, path). The side says what is read from the log for the path:

        min, max    the minimum or the maximum
        kind        the type of the path's bound, as KINDS spells it: BIGINT
        values      whether any row has a value at the path: FALSE if the tag (protocol/README.md, M2) shows that none has,
                    NULL if the tag does not list the path
    """

    log: LogContents
    bounds: dict[tuple[str, Path], int] = field(default_factory=dict)
    members: dict[Path, int] = field(default_factory=dict)

    def number(self, side: str, path: Path) -> int:
        """The number of a bound, which is added if it is new."""
        return self.bounds.setdefault((side, path), len(self.bounds))

    def member(self, path: Path) -> int:
        """The number of a path in the index, which is added if it is new."""
        return self.members.setdefault(path, len(self.members))

    @property
    def size(self) -> tuple[int, int]:
        return len(self.bounds), len(self.members)

    def shrink(self, size: tuple[int, int]) -> None:
        """Forget the bounds and members that were added since it had this size, because no predicate uses them."""
        while len(self.bounds) > size[0]:
            self.bounds.popitem()
        while len(self.members) > size[1]:
            self.members.popitem()

    def read(self) -> tuple[Bound, ...]:
        """Each bound as the JVM reads it: its location in the log, the types that it may have, and the types that it is cast
        to."""
        return tuple(self._bound(side, path) for side, path in self.bounds)

    def asked(self) -> tuple[Member, ...]:
        """Each path of `members`: its name in the index, and the decimal places of the numbers that it is compared with."""
        return tuple(map(_member, self.members))

    def _bound(self, side: str, path: Path) -> Bound:
        return Bound(
            side,
            column=self.log.columns.index(path.column),
            key=normalized(path.keys),
            tag=place(path.column, path.keys) if self.log.nonnull else None,
            times=place(path.column, path.keys) if self.log.times and path.type in TIMES else None,
            exact=self.log.exact,
            kinds=accepted(path, self.log, needs_marker=False),
            marked=accepted(path, self.log, needs_marker=True),
            types=(path.type, *path.casts),
        )


def _member(path: Path) -> Member:
    scale = indexed_scale(path)
    assert scale is not None
    return Member(path_text(path.column, path.keys), scale)


def size(predicate: FilePredicate) -> int:
    """The largest number of comparisons that a predicate makes for one file."""
    return sum(map(size, predicate.parts)) if isinstance(predicate, AllOf | AnyOf) else 1


def accepted(path: Path, log: LogContents, *, needs_marker: bool) -> tuple[str, ...]:
    """The types of bounds that can answer a question about the path: those that count only in files with the marker, or those
    that count in every file. None can if the path is read as a string first; then the tag of times may."""
    kinds = [KINDS[kind] for kind in kinds_for(path.type) if not path.text]
    return tuple(name for name, marked_only in kinds if (marked_only and not log.trust_all) == needs_marker)


def translate(predicate: Predicate, projection: Projection) -> tuple[FilePredicate, list[str]]:
    """The predicate on the bounds of a file, and in words why parts of the query's predicate could not be used.

    The bounds that it compares are added to the projection.

    >>> a, projection = Path(("v",), ("a",), "int"), Projection(LogContents((("v",),)))
    >>> translate(Comparison("<", a, Constants("int", ("5",))), projection)
    (Compare(op='<', bound=0, constant=0), [])
    >>> [side for side, _ in projection.bounds]
    ['min']
    """
    size = projection.size
    match predicate:
        case And(parts):
            sides = [translate(part, projection) for part in parts]
            reasons = [reason for _, reasons in sides for reason in reasons]
            if any(side == ROWS_CANNOT_MATCH for side, _ in sides):
                projection.shrink(size)
                return ROWS_CANNOT_MATCH, reasons
            useful = tuple(side for side, _ in sides if side != ROWS_MIGHT_MATCH)
            return (useful[0] if len(useful) == 1 else AllOf(useful)), reasons
        case Or(parts):
            sides = [translate(part, projection) for part in parts]
            if any(side == ROWS_MIGHT_MATCH for side, _ in sides):
                projection.shrink(size)
                reasons = [reason for _, reasons in sides for reason in reasons]
                return ROWS_MIGHT_MATCH, reasons or ["one operand of an OR is not about a Variant path"]
            useful = tuple(side for side, _ in sides if side != ROWS_CANNOT_MATCH)
            return (useful[0] if len(useful) == 1 else AnyOf(useful)), []
        case Other(number):
            return OtherColumns(number), []
        case Unknown(reason):
            return ROWS_MIGHT_MATCH, [reason] if reason else []
        case leaf:
            static, found = useless(leaf, projection.log), member(leaf, projection)
            if static:
                return (found, []) if found else (ROWS_MIGHT_MATCH, [static])
            if isinstance(leaf, NotNull):
                return HasValues(projection.number("values", leaf.path)), []
            bounds = question(leaf, projection)
            if bounds == ROWS_CANNOT_MATCH:
                return bounds, []
            all_of: list[FilePredicate] = [HasValues(projection.number("values", leaf.path))] if projection.log.nonnull else []
            all_of += [bounds] if bounds != ROWS_MIGHT_MATCH else []
            all_of += [found] if found else []
            return (all_of[0] if len(all_of) == 1 else AllOf(tuple(all_of))), []


def member(leaf: Leaf, projection: Projection) -> Indexed | None:
    """The question for the index of values: whether a row may have one of some values. None if the index cannot answer."""
    constants = indexed(leaf, projection.log)
    return Indexed(projection.member(leaf.path), _numbers(constants)) if constants else None


def indexed(leaf: Leaf, log: LogContents) -> Sequence[Constants]:
    """The constants of which one has to be in a file with rows that match, by the index of values; none if it cannot answer."""
    match leaf:
        case Comparison("=" | "<=>", path, constant) if not constant.null:
            constants: tuple[Constants, ...] = (constant,)
        case In(path, constants, negated=False):
            pass
        case _:
            return ()
    if path.ordinary or not all(part.type == path.result for part in constants):
        return ()
    fits = 0 < sum(part.size for part in constants) <= log.index
    return constants if fits and indexed_scale(path) is not None else ()


def indexed_scale(path: Path) -> int | None:
    """The decimal places of the numbers that a path is compared with, -1 for strings; None for a type of which the index knows
    nothing.

    The index has values, and a query compares casts of them. A number that needs no more decimal places than the type asked for
    is the same number after the cast, or the cast fails. A string is the same string.
    """
    if path.text or any(target in t.FLOATS for target in path.casts):
        return None
    if path.type == "string":
        return None if path.casts else -1
    return t.digits(path.type)[1] if kind_of(path.type) in {"integer", "decimal"} else None


def _numbers(constants: Sequence[Constants]) -> tuple[int, ...]:
    return tuple(part.number for part in constants if part.size)


def useless(leaf: Leaf, log: LogContents) -> str | None:
    """Why bounds cannot answer a question for any file; None if they may for some."""
    path = leaf.path
    if path.ordinary:
        return None
    if path.column not in log.columns:
        return f"{path}: the table's statistics have no Variant bounds for column {path.name or dotted(path.column)}"
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


def question(leaf: Comparison | In | StartsWith, projection: Projection) -> FilePredicate:
    """The predicate on bounds for one comparison: `a < 1` becomes `min(a) < 1`."""
    match leaf:
        case Comparison(op, path, constant):
            return _compared(op, path, constant, projection)
        case In(path, constants, negated=False):
            return Between(*_both(path, projection), _numbers(constants)) if _numbers(constants) else ROWS_CANNOT_MATCH
        case In(path, constants):
            no_row = any(part.null for part in constants)
            return ROWS_CANNOT_MATCH if no_row else Differs(*_both(path, projection), _numbers(constants))
        case StartsWith(path, prefix, negated):
            return _starting(path, prefix, projection, negated=negated)


def _both(path: Path, projection: Projection) -> tuple[int, int]:
    return projection.number("min", path), projection.number("max", path)


def _compared(op: str, path: Path, constant: Constants, projection: Projection) -> FilePredicate:
    """Whether a file may have a value v with `v op constant`. A comparison with NULL matches no row. As there are two booleans,
    `a <> true` is the same as `a < true`."""
    if constant.null:
        return ROWS_CANNOT_MATCH
    if op == "<>" and constant.type == "boolean":
        op = "<" if constant.texts == ("true",) else ">"
    if op in _SIDE:
        return Compare(op, projection.number(_SIDE[op], path), constant.number)
    return (Differs if op == "<>" else Between)(*_both(path, projection), (constant.number,))


def _starting(path: Path, prefix: Constants, projection: Projection, *, negated: bool) -> FilePredicate:
    """Whether a file may have a string that starts with the prefix or, if negated, one that does not. In the order of UTF-8
    bytes, the strings that start with a prefix are contiguous, and the prefix itself is the first of them."""
    if prefix.null:
        return ROWS_CANNOT_MATCH
    low, high = _both(path, projection)
    if negated:
        return AnyOf(tuple(HasPrefix(bound, prefix.number, negated=True) for bound in (low, high)))
    not_behind = AnyOf((Compare("<=", low, prefix.number), HasPrefix(low, prefix.number, negated=False)))
    return AllOf((not_behind, Compare(">=", high, prefix.number)))
