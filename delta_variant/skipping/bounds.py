"""A predicate on the statistics of one file, which Java evaluates for every file of a scan (`java/Tree.java`).

A tree refers to bounds by number. `Projection` lists each distinct bound once, and Spark's own expressions read it from the log
(`java/Bounds.java`), so evaluating a tree costs only its comparisons. Constants have the numbers that the request gave them.

    ["all", tree, ...]  ["any", tree, ...]         AND, OR; of nothing, TRUE and FALSE
    ["<", bound, constant]                         and <= > >= startswith, "NOT startswith"
    ["between", min, max, [constant, ...]]         whether a value of these lists lies between two bounds
    ["differs", min, max, [constant, ...]]         whether the path has other values than those of these lists
    ["values", bound]                              whether a row has the path
    ["other", number]                              what Delta's skipping says of a predicate on ordinary columns

Unknown results are NULL, which keeps the file: for a missing bound, a bound of another type, or a bound that does not fit
into the type that the query asks for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from delta_variant.paths import normalized
from delta_variant.skipping.casts import KINDS, kinds_for
from delta_variant.stats import place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_variant.skipping.predicates import Constants, Path


@dataclass(frozen=True)
class Log:
    """What the log of a table can hold."""

    columns: tuple[tuple[str, ...], ...]
    """The VARIANT columns with statistics, in physical names."""
    marked: bool = True
    """Whether any file's bounds were computed from values."""
    nonnull: bool = False
    """Whether any file has the tag for paths without bounds."""
    trust_all: bool = False
    """Whether every file's bounds count for every kind of value."""


@dataclass
class Projection:
    """The distinct bounds that trees compare, in the order of their numbers.

    A bound is (side, path), side one of min and max; `kind`, the type of the bound that a path has, as KINDS names it; and
    `values`, whether any row has the path: FALSE where the file counts none, NULL where it does not count.
    """

    log: Log
    bounds: dict[tuple[str, Path], int] = field(default_factory=dict)

    def number(self, side: str, path: Path) -> int:
        """The number of a bound."""
        return self.bounds.setdefault((side, path), len(self.bounds))

    def json(self) -> list[dict[str, Any]]:
        """Each bound, as `java/Bounds.java` reads it: where it stands, its possible types, and those that it is cast to."""
        return [self._bound(side, path) for side, path in self.bounds]

    def _bound(self, side: str, path: Path) -> dict[str, Any]:
        return {
            "side": side,
            "column": self.log.columns.index(path.column),
            "key": normalized(path.keys),
            "tag": place(path.column, path.keys) if self.log.nonnull else None,
            "kinds": accepted(path, self.log, needs_mark=False),
            "marked": accepted(path, self.log, needs_mark=True),
            "types": [path.type, *path.casts],
        }


@dataclass(frozen=True)
class Check:
    """`bound op constant`; `side` is min or max, op one of < <= > >= startswith, NOT startswith.

    NULL where the file has no such bound, or one of a type whose order the path's type does not keep.
    """

    side: str
    path: Path
    op: str
    constant: Constants

    def json(self, projection: Projection) -> list[Any]:
        """See the module."""
        return [self.op, projection.number(self.side, self.path), self.constant.number]


@dataclass(frozen=True)
class Between:
    """Whether one of these values lies between the bounds of the path: FALSE if none does, for which one bound may be
    enough."""

    path: Path
    constants: tuple[Constants, ...]

    def json(self, projection: Projection) -> list[Any]:
        """See the module."""
        return ["between", *_both(self.path, projection), _numbers(self.constants)]


@dataclass(frozen=True)
class OtherThan:
    """Whether the path has other values than these: FALSE if both bounds are the same value, and it is one of these."""

    path: Path
    constants: tuple[Constants, ...]

    def json(self, projection: Projection) -> list[Any]:
        """See the module."""
        return ["differs", *_both(self.path, projection), _numbers(self.constants)]


def _both(path: Path, projection: Projection) -> tuple[int, int]:
    return projection.number("min", path), projection.number("max", path)


def _numbers(constants: Sequence[Constants]) -> list[int]:
    return [part.number for part in constants if part.size]


@dataclass(frozen=True)
class HasValues:
    """Whether a row has the path: FALSE where the file counts none, NULL where it does not count. Asked where `Log.nonnull`.

    JSON nulls are values for a query that asks for the Variant itself, and not for others.
    """

    path: Path

    def json(self, projection: Projection) -> list[Any]:
        """See the module."""
        return ["values", projection.number("values", self.path)]


@dataclass(frozen=True)
class OtherColumns:
    """Whether rows might match a predicate on ordinary columns: FALSE or NULL."""

    number: int

    def json(self, projection: Projection) -> list[Any]:  # noqa: ARG002  # as the others
        """See the module."""
        return ["other", self.number]


@dataclass(frozen=True)
class AllOf:
    """Conjunction; of nothing, TRUE."""

    parts: tuple[Bounds, ...]

    def json(self, projection: Projection) -> list[Any]:
        """See the module."""
        return ["all", *(part.json(projection) for part in self.parts)]


@dataclass(frozen=True)
class AnyOf:
    """Disjunction; of nothing, FALSE."""

    parts: tuple[Bounds, ...]

    def json(self, projection: Projection) -> list[Any]:
        """See the module."""
        return ["any", *(part.json(projection) for part in self.parts)]


Bounds = Check | Between | OtherThan | HasValues | OtherColumns | AllOf | AnyOf

ROWS_MIGHT_MATCH: Final = AllOf(())
ROWS_CANNOT_MATCH: Final = AnyOf(())


def size(bounds: Bounds) -> int:
    """How many comparisons a tree makes for one file at most."""
    return sum(map(size, bounds.parts)) if isinstance(bounds, AllOf | AnyOf) else 1


def accepted(path: Path, log: Log, *, needs_mark: bool) -> list[str]:
    """The types of bounds that answer a question on the path: those of marked files only, or those of any."""
    kinds = [KINDS[name] for name in kinds_for(path.type)]
    return [name for names, mark in kinds if (mark and not log.trust_all) == needs_mark for name in names]
