"""What a predicate on the log refers to: bounds, and paths of the index of values, by their numbers.

`translation` makes a `messages.FilePredicate`, a predicate on what the log says of one file, which the JVM evaluates for every
file of a scan (`scala/FilePredicates.scala`), and `scanning.pruning` in Python. It refers to bounds by number: `Projection`
lists each distinct bound once, and Spark's own expressions read it from the log (`scala/LogStatistics.scala`), so evaluating
the predicate costs only its comparisons. Constants have the numbers that the request gave them.

Unknown results are NULL, which keeps the file: for a missing bound, a bound of another type, or a bound that does not fit
into the type that the query asks for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from delta_variant.membership import place as indexed_place
from delta_variant.messages import AllOf, AnyOf, Bound, FilePredicate, Member
from delta_variant.paths import normalized
from delta_variant.skipping.casts import KINDS, TIMES, indexed_scale, kinds_for
from delta_variant.stats import place

if TYPE_CHECKING:
    from delta_variant.skipping.predicates import Path


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
    """The distinct bounds that predicates compare, and the distinct paths of which they ask the index, in the order of their
    numbers.

    A bound is a pair (side, path). The side says what is read from the log for the path:

        min, max    the minimum or the maximum
        kind        the type of the path's bound, as KINDS spells it: BIGINT
        values      whether any row has a value at the path: FALSE if the tag (protocol/README.md, M2) shows that none has,
                    NULL if the tag does not list the path
    """

    log: Log
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
        """How many bounds and members there are."""
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
    return Member(indexed_place(path.column, path.keys), scale)


ROWS_MIGHT_MATCH: Final = AllOf(())
ROWS_CANNOT_MATCH: Final = AnyOf(())


def size(predicate: FilePredicate) -> int:
    """The largest number of comparisons that a predicate makes for one file."""
    return sum(map(size, predicate.parts)) if isinstance(predicate, AllOf | AnyOf) else 1


def accepted(path: Path, log: Log, *, needs_marker: bool) -> tuple[str, ...]:
    """The types of bounds that can answer a question about the path: those that count only in files with the marker, or those
    that count in every file. None can if the path is read as a string first; then the tag of times may."""
    kinds = [KINDS[name] for name in kinds_for(path.type) if not path.text]
    return tuple(name for names, marked_only in kinds if (marked_only and not log.trust_all) == needs_marker for name in names)
