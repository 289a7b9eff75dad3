"""The bounds of the paths of one VARIANT column in one file.

In: shredded Arrow arrays of the column, or what a footer says of a path in all rows of the file. Out: the JSON of the column in
minValues, maxValues and nullCount, and its entries for the tags.

A path has bounds if it ends in a typed primitive, is reached through objects only, and never has a value of another type in
this file. It has none if its `value` is set in any row, even with a JSON null (Delta variantShredding), or if an object above
it is in `value` as a whole, which VariantShredding forbids. The typed column of a path with bounds therefore holds every value
of the file at this path, and null in rows without the path. Paths that are excluded only by JSON nulls or a NaN go into the
`nonnull` tag, and paths whose strings all spell a time into the `times` tag (`tags`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delta_variant import nested, paths
from delta_variant import types as t
from delta_variant.stats.bounds import encode_bounds, longest_fitting
from delta_variant.stats.tags import encode_tags
from delta_variant.stats.values import Extremes, Times, has_order, variant_bounds

Names = tuple[str, ...]

_JSON_NULL = b"\0"


class VariantStats:
    """Collects the bounds of one VARIANT column of one file.

    prefix: how many characters of a string are kept. max_paths: the limit for paths with bounds. budget: the limit for the
    characters of their two texts. first: the paths that get bounds before all others. wanted: those that do not count for
    max_paths.
    """

    ordered = True

    def __init__(
        self, prefix: int, max_paths: int, budget: int, first: Sequence[Names], wanted: frozenset[Names] = frozenset()
    ) -> None:
        self._prefix, self._max_paths, self._budget, self._wanted = prefix, max_paths, budget, wanted
        self._first = {keys: position for position, keys in enumerate(first)}
        self._nulls = 0
        self._paths: dict[Names, _Path | None] = {}  # None: the path can have no bounds
        self._in_tag: frozenset[Names] = frozenset()
        self._texts: tuple[str | None, str | None] | None = None

    def add(self, values: pa.Array) -> None:
        """Adds rows of the column, shredded or not."""
        self._texts = None
        self._nulls += values.null_count
        self._add(values, ())

    def state(self, keys: Names, kind: pa.DataType, extremes: tuple[Any, Any], counts: tuple[int, int]) -> None:
        """States what all rows of the file have at a path, instead of `add`.

        kind: the type of its typed column. extremes: the smallest and the largest value (`values.Extremes`), None without
        values. counts: the rows with a JSON null, and those without the path.
        """
        path = self._paths[keys] = _Path(kind)
        path.low, path.high = extremes
        path.counts = list(counts)
        path.times = None

    def put_into_tag(self, keys: Iterable[Names]) -> None:
        """Leaves these paths out of minValues and maxValues, and puts their bounds into the `nonnull` tag."""
        self._texts = None
        self._in_tag = frozenset(keys)

    @property
    def bounded(self) -> Mapping[Names, Extremes]:
        """The paths that the protocol allows bounds for."""
        return {keys: path for keys, path in self._paths.items() if path and path.bounded}

    def null_count(self) -> str:
        return str(self._nulls)

    def bound(self, side: int) -> str | None:
        """The JSON of the column in minValues (0) or maxValues (1); None without bounds."""
        if self._texts is None:
            self._texts = self._bounds()
        text = self._texts[side]
        return None if text is None else f'"{text}"'

    def nonnull(self) -> list[tuple[tuple[int, bool], Names, list[Any]]]:
        """(rank, keys, array for the tag) of each path that has no bounds although its values have one type."""
        known = ((keys, path) for keys, path in self._paths.items() if path and (keys in self._in_tag or not path.bounded))
        return [
            (path.rank(self._prefix), keys, [*path.counts, *map(_smallest, path.bounds(self._prefix))]) for keys, path in known
        ]

    def times(self) -> list[tuple[tuple[int, bool, int], Names, list[Any]]]:
        """(rank, keys, array for the tag) of each path whose strings all spell a time."""
        known = ((keys, path, path.times.bounds()) for keys, path in self._paths.items() if path and path.times)
        return [((self._rank(keys), path.is_missing, len(keys)), keys, array) for keys, path, array in known if array]

    def _add(self, group: pa.Array, keys: Names, *, reached: bool = True) -> None:
        """Adds the Variants at one path.

        group: the group of `value` and `typed_value`. reached: whether it holds all Variants at the path, because no object
        above it is in `value` as a whole.
        """
        at = group.type.get_field_index("typed_value")
        if at < 0:
            return
        children = nested.flattened(group)
        typed, value = children[at], group.type.get_field_index("value")
        if pa.types.is_struct(typed.type):
            reached = reached and (value < 0 or not _has_objects(children[value], typed))
            for field, child in zip(typed.type, nested.flattened(typed), strict=True):
                self._add(child, (*keys, field.name), reached=reached)
        elif has_order(typed.type) or pa.types.is_boolean(typed.type):
            path = self._paths.setdefault(keys, _Path(typed.type))
            nulls = 0 if value < 0 else json_nulls(children[value])
            if path is None or nulls is None or not reached:
                self._paths[keys] = None
                return
            missing = typed.null_count - nulls
            if not keys:  # a row that is not NULL has a value: if both columns are null, it is a JSON null
                nulls, missing = nulls + missing - group.null_count, group.null_count
            path.take(typed, nulls, missing)

    def _rank(self, keys: Names) -> int:
        """The position of a path in the list of paths that get bounds before all others."""
        return self._first.get(keys, sys.maxsize)

    def _bounds(self) -> tuple[str | None, str | None]:
        """The texts of the lower and the upper bounds, of as many paths as are allowed and fit, the most useful first."""
        kept = ((keys, path) for keys, path in self._paths.items() if path and path.bounded and keys not in self._in_tag)
        known = [(path.rank(self._prefix), keys, path) for keys, path in kept]
        known.sort(key=lambda ranked: (self._rank(ranked[1]), ranked[0], len(ranked[1])))
        others = [keys for _, keys, _ in known if keys not in self._wanted]
        left_out = set(others[self._max_paths :])
        both = [(paths.normalized(keys), path.bounds(self._prefix)) for _, keys, path in known if keys not in left_out]

        def encoded(kept: Sequence[tuple[str, list[Any]]]) -> tuple[str | None, str | None]:
            low, high = ({path: pair[side] for path, pair in kept if pair[side] is not None} for side in (0, 1))
            return encode_bounds(low) if low else None, encode_bounds(high) if high else None

        return longest_fitting(both, encoded, self._budget)


def tags(columns: Iterable[tuple[Names, VariantStats]]) -> dict[str, str]:
    """The tags that say more about paths than the statistics may, by their names (`stats.tags`).

    columns: the VARIANT columns of a file by their physical names.
    """
    named = list(columns)
    nonnull = [(rank, names, keys, array) for names, variant in named for rank, keys, array in variant.nonnull()]
    times = [(rank, names, keys, array) for names, variant in named for rank, keys, array in variant.times()]
    return encode_tags(*([entry[1:] for entry in sorted(some, key=lambda entry: entry[0])] for some in (nonnull, times)))


class _Path(Extremes):
    """The values at one path of a VARIANT column, all of one type, JSON nulls aside."""

    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(kind)
        self.counts = [0, 0]  # JSON nulls, rows without the path
        self.times = Times() if t.is_string(kind) else None

    def take(self, values: pa.Array, nulls: int, missing: int) -> None:
        self.counts[0] += nulls
        self.counts[1] += missing
        self.add(values)
        if self.times is not None:
            self.times.add(values)

    @property
    def is_missing(self) -> bool:
        """Whether some row may lack the path."""
        return self.counts[1] > 0

    @property
    def bounded(self) -> bool:
        """Whether the protocol allows bounds for the path."""
        return self.low is not None and not self.counts[0] and not self.has_nan

    def bounds(self, prefix: int) -> list[Any]:
        """[minimum, maximum] as `binary.encode` takes them, None for one that has no form there; [] without values."""
        return list(variant_bounds(self, prefix)) if self.low is not None or self.has_nan else []

    def rank(self, prefix: int) -> tuple[int, bool]:
        """The order in which paths get bounds, the most useful first: numbers and times, and paths that every row has."""
        if pa.types.is_boolean(self.kind):
            return 3, self.is_missing
        if t.is_string(self.kind):
            return (1 if len(self.low or b"") <= prefix else 2), self.is_missing
        return 0, self.is_missing


def json_nulls(values: pa.Array) -> int | None:
    """The number of Variants if all of them are JSON nulls; None if one is not."""
    if values.null_count == len(values):
        return 0
    present = values.drop_null()
    if present[0].as_py() != _JSON_NULL or pc.any(pc.not_equal(present, present[0])).as_py():
        return None
    return len(present)


def _has_objects(values: pa.Array, typed: pa.Array) -> bool:
    """Whether `value` holds whole objects, beside a null `typed_value`: their fields are in no typed column."""
    if values.null_count == len(values):
        return False
    whole = values.filter(pc.and_(values.is_valid(), typed.is_null()))
    return any(first[0] & 3 == t.OBJECT for first in pc.binary_slice(whole, 0, 1).unique().to_pylist())


def _smallest(bound: Any) -> Any:
    """Converts exact numbers to their smallest form: a tag has little room, and does not state types."""
    return bound.as_py() if isinstance(bound, pa.Scalar) and t.is_exact(bound.type) else bound
