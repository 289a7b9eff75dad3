"""A predicate on the statistics of one file, which Java evaluates for every file of a scan (`java/Tree.java`).

A tree refers to bounds by number. `Projection` lists each distinct bound once, and Spark's own expressions read it from the log
(`java/Bounds.java`), so evaluating a tree costs only its comparisons. Constants have the numbers that the request gave them.

    ["all", tree, ...]  ["any", tree, ...]         AND, OR; of nothing, TRUE and FALSE
    ["<", bound, constant]                         and <= > >= startswith, "NOT startswith"
    ["between", min, max, [constant, ...]]         whether a value of these lists lies between two bounds
    ["differs", min, max, [constant, ...]]         whether the path has other values than those of these lists
    ["values", bound]                              whether a row has the path
    ["member", path, [constant, ...]]              whether, by the index of values, a row may have one of these values
    ["other", number]                              what Delta's skipping says of a predicate on ordinary columns

Unknown results are NULL, which keeps the file: for a missing bound, a bound of another type, or a bound that does not fit
into the type that the query asks for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from delta_variant.membership import place as indexed_place
from delta_variant.paths import normalized
from delta_variant.skipping.casts import KINDS, TIMES, indexed_scale, kinds_for
from delta_variant.stats import place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_variant.skipping.predicates import Constants, Path


@dataclass(frozen=True)
class Log:
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
    """The distinct bounds that trees compare, in the order of their numbers.

    A bound is a pair (side, path). The side says what Java reads from the log for the path:

        min, max    the minimum or the maximum
        kind        the type of the path's bound, as KINDS spells it: BIGINT
        values      whether any row has a value at the path: FALSE if the tag (protocol/README.md, M2) shows that none has,
                    NULL if the tag does not list the path
    """

    log: Log
    bounds: dict[tuple[str, Path], int] = field(default_factory=dict)
    members: dict[Path, int] = field(default_factory=dict)
    """The distinct paths of which the index is asked."""

    def number(self, side: str, path: Path) -> int:
        """The number of a bound, which is added if it is new."""
        return self.bounds.setdefault((side, path), len(self.bounds))

    def json(self) -> list[dict[str, Any]]:
        """Each bound as `java/Bounds.java` reads it: its location in the log, the types that it may have, and the types that it
        is cast to."""
        return [self._bound(side, path) for side, path in self.bounds]

    def members_json(self) -> list[dict[str, Any]]:
        """Each path of `members` as `java/Index.java` reads it: its name in the index, and the decimal places of the numbers
        that it is compared with, -1 for strings."""
        return [{"place": indexed_place(path.column, path.keys), "scale": indexed_scale(path)} for path in self.members]

    def _bound(self, side: str, path: Path) -> dict[str, Any]:
        return {
            "side": side,
            "column": self.log.columns.index(path.column),
            "key": normalized(path.keys),
            "tag": place(path.column, path.keys) if self.log.nonnull else None,
            "times": place(path.column, path.keys) if self.log.times and path.type in TIMES else None,
            "exact": self.log.exact,
            "kinds": accepted(path, self.log, needs_marker=False),
            "marked": accepted(path, self.log, needs_marker=True),
            "types": [path.type, *path.casts],
        }


@dataclass(frozen=True)
class Check:
    """Whether `bound op constant` holds. `side` is min or max; `op` is one of < <= > >= startswith, NOT startswith.

    NULL if the file has no such bound, or if the cast from the bound's type to the path's type does not preserve order.
    """

    side: str
    path: Path
    op: str
    constant: Constants

    def json(self, projection: Projection) -> list[Any]:
        """The tree as JSON, in the form that the module describes."""
        return [self.op, projection.number(self.side, self.path), self.constant.number]


@dataclass(frozen=True)
class Between:
    """Whether a constant lies between the bounds of the path. FALSE if none does, which one bound alone can prove."""

    path: Path
    constants: tuple[Constants, ...]

    def json(self, projection: Projection) -> list[Any]:
        """The tree as JSON, in the form that the module describes."""
        return ["between", *_both(self.path, projection), _numbers(self.constants)]


@dataclass(frozen=True)
class OtherThan:
    """Whether the path has values other than the constants. FALSE if both bounds are the same value, and it is a constant."""

    path: Path
    constants: tuple[Constants, ...]

    def json(self, projection: Projection) -> list[Any]:
        """The tree as JSON, in the form that the module describes."""
        return ["differs", *_both(self.path, projection), _numbers(self.constants)]


def _both(path: Path, projection: Projection) -> tuple[int, int]:
    return projection.number("min", path), projection.number("max", path)


def _numbers(constants: Sequence[Constants]) -> list[int]:
    return [part.number for part in constants if part.size]


@dataclass(frozen=True)
class Member:
    """Whether a row may have one of the constants at the path, by the index of values. NULL for a file without a filter."""

    path: Path
    constants: tuple[Constants, ...]

    def json(self, projection: Projection) -> list[Any]:
        """The tree as JSON, in the form that the module describes."""
        number = projection.members.setdefault(self.path, len(projection.members))
        return ["member", number, _numbers(self.constants)]


@dataclass(frozen=True)
class HasValues:
    """Whether any row has a value at the path: the side `values` of `Projection`. Used only if `Log.nonnull` is set.

    JSON nulls are values only for a query that requests the path as VARIANT.
    """

    path: Path

    def json(self, projection: Projection) -> list[Any]:
        """The tree as JSON, in the form that the module describes."""
        return ["values", projection.number("values", self.path)]


@dataclass(frozen=True)
class OtherColumns:
    """What Delta's data skipping says of a predicate on ordinary columns: FALSE if no row of the file can match, else NULL."""

    number: int

    def json(self, projection: Projection) -> list[Any]:  # noqa: ARG002  # as the others
        """The tree as JSON, in the form that the module describes."""
        return ["other", self.number]


@dataclass(frozen=True)
class AllOf:
    """AND of the parts; TRUE if there are none."""

    parts: tuple[Bounds, ...]

    def json(self, projection: Projection) -> list[Any]:
        """The tree as JSON, in the form that the module describes."""
        return ["all", *(part.json(projection) for part in self.parts)]


@dataclass(frozen=True)
class AnyOf:
    """OR of the parts; FALSE if there are none."""

    parts: tuple[Bounds, ...]

    def json(self, projection: Projection) -> list[Any]:
        """The tree as JSON, in the form that the module describes."""
        return ["any", *(part.json(projection) for part in self.parts)]


Bounds = Check | Between | OtherThan | Member | HasValues | OtherColumns | AllOf | AnyOf

ROWS_MIGHT_MATCH: Final = AllOf(())
ROWS_CANNOT_MATCH: Final = AnyOf(())


def size(bounds: Bounds) -> int:
    """The largest number of comparisons that a tree makes for one file."""
    return sum(map(size, bounds.parts)) if isinstance(bounds, AllOf | AnyOf) else 1


def accepted(path: Path, log: Log, *, needs_marker: bool) -> list[str]:
    """The types of bounds that can answer a question about the path: those that count only in files with the marker, or those
    that count in every file. None can if the path is read as a string first; then the tag of times may."""
    kinds = [KINDS[name] for name in kinds_for(path.type) if not path.text]
    return [name for names, marked_only in kinds if (marked_only and not log.trust_all) == needs_marker for name in names]
