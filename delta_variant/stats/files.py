"""The statistics of one file, collected from the batches that go into it.

In: record batches of the physical schema, VARIANT columns shredded or not. Out: the JSON of the Add action's `stats`.

A path of a VARIANT column has bounds if it ends in a typed primitive, is reached through objects only, and never has a
value of another type in this file. It has none if its `value` is set in any row, even with a JSON null (Delta
variantShredding), or if an object above it is in `value` as a whole, which VariantShredding forbids. The typed column of a
path with bounds therefore holds every value of the file at this path, and null in rows without the path. Paths that are
excluded only by JSON nulls or a NaN go into the `nonnull` tag, and paths whose strings all spell a time into the `times` tag
(`tags`).

Delta decides which columns have statistics: the first leaves of the schema. A VARIANT counts as one leaf, and so do arrays and
maps, which have null counts only.
"""

from __future__ import annotations

import json
import re
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from delta_variant import paths
from delta_variant import types as t
from delta_variant.errors import InvalidSchemaError
from delta_variant.stats.bounds import encode_bounds, longest_fitting
from delta_variant.stats.tags import encode_tags
from delta_variant.stats.values import STRING_PREFIX, Extremes, Times, has_order, is_string, json_bounds, variant_bounds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

Names = tuple[str, ...]

MAX_PATHS = 32
MAX_BOUNDS_SIZE = 4096
"""The limit for characters of Variant bounds in one file's statistics: every scan that Delta plans carries them."""

_NO_PATHS: Mapping[Names, Sequence[Names]] = MappingProxyType({})
_JSON_NULL = b"\0"
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s`.,]+))\s*([.,]|$)")


def indexed_columns(
    schema: pa.Schema, variants: Collection[Names], num_indexed: int = 32, stats_columns: str | None = None
) -> list[Names]:
    """The leaf columns that have statistics.

    schema: without partition columns. variants: the paths of VARIANT columns in it, each of which is one leaf. num_indexed: the
    value of `delta.dataSkippingNumIndexedCols`, -1 for all. stats_columns: the text of `delta.dataSkippingStatsColumns`, which
    takes precedence. Raises InvalidSchemaError for a text that is not a list of columns.

    >>> import pyarrow as pa, delta_variant as dv
    >>> schema = pa.schema([("id", pa.int64()), ("v", dv.shredding.UNSHREDDED), ("note", pa.string())])
    >>> dv.stats.indexed_columns(schema, variants=[("v",)], num_indexed=2)
    [('id',), ('v',)]
    """
    leaves = [names for field in schema for names in _leaves(field.type, (field.name,), variants)]
    if stats_columns is None:
        return leaves if num_indexed < 0 else leaves[:num_indexed]
    chosen = _parse_columns(stats_columns)
    return [names for names in leaves if any(tuple(map(str.lower, names[: len(c)])) == c for c in chosen)]


class FileStats:
    """Collects the statistics of one file.

    schema: the physical schema of the batches. variants: the paths of VARIANT columns in it. indexed: the leaves that get
    statistics (`indexed_columns`). string_prefix: how many characters of a string are kept. max_paths: the limit for paths with
    bounds in each VARIANT column. first: by VARIANT column, the paths that get bounds before all others. tight_bounds: whether
    to state that the bounds are exact, as Delta does if the table has deletion vectors.

    >>> import pyarrow as pa, delta_variant as dv
    >>> batch = pa.record_batch([pa.array([3, 1, None])], ["id"])
    >>> stats = dv.stats.FileStats(batch.schema, variants=[], indexed=[("id",)])
    >>> stats.update(batch)
    >>> stats.json()
    '{"numRecords":3,"minValues":{"id":1},"maxValues":{"id":3},"nullCount":{"id":1}}'
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        variants: Collection[Names],
        indexed: Collection[Names],
        string_prefix: int = STRING_PREFIX,
        max_paths: int = MAX_PATHS,
        first: Mapping[Names, Sequence[Names]] = _NO_PATHS,
        tight_bounds: bool = False,
    ) -> None:
        self._rows = 0
        self._tight_bounds = tight_bounds
        leaves, groups = frozenset(indexed), frozenset(variants)
        budget = MAX_BOUNDS_SIZE // max(1, len(groups & leaves))

        self._variants: list[tuple[Names, _Variant]] = []

        def column(kind: pa.DataType, names: Names) -> _Column | None:
            if names in groups and names in leaves:
                self._variants.append((names, _Variant(string_prefix, max_paths, budget, first.get(names, ()))))
                return self._variants[-1][1]
            if names in groups or not pa.types.is_struct(kind):
                return _Leaf(kind, string_prefix) if names in leaves else None
            children = [(i, field.name, column(field.type, (*names, field.name))) for i, field in enumerate(kind)]
            kept = [(i, name, child) for i, name, child in children if child is not None]
            return _Struct(kept) if kept or not names else None

        root = column(pa.struct(list(schema)), ())
        assert root is not None
        self._root = root

    def update(self, batch: pa.RecordBatch) -> None:
        """Adds rows."""
        self._rows += batch.num_rows
        self._root.add(batch.to_struct_array())

    def json(self) -> str:
        """The statistics of the rows so far, as JSON for the Add action."""
        nulls = self._root.null_count()
        members = {"numRecords": str(self._rows)}
        if self._root.ordered:
            members |= {"minValues": self._root.bound(0) or "{}", "maxValues": self._root.bound(1) or "{}"}
        if nulls != "{}":
            members["nullCount"] = nulls
        if self._tight_bounds:
            members["tightBounds"] = "true"
        return _object(members)

    def tags(self) -> dict[str, str]:
        """The tags that say more about paths than the statistics may, by their names (`stats.tags`)."""
        nonnull = [(rank, names, keys, array) for names, variant in self._variants for rank, keys, array in variant.nonnull()]
        times = [(rank, names, keys, array) for names, variant in self._variants for rank, keys, array in variant.times()]
        return encode_tags(*([entry[1:] for entry in sorted(some, key=lambda entry: entry[0])] for some in (nonnull, times)))


class _Column(Protocol):
    """Collects the statistics of one column and returns them as JSON. side: 0 for the minimum, 1 for the maximum."""

    ordered: bool
    """Whether the column appears in minValues and maxValues."""

    def add(self, values: pa.Array) -> None: ...

    def null_count(self) -> str: ...

    def bound(self, side: int) -> str | None: ...


class _Struct:
    """A struct whose fields are columns. A field is null where the struct is."""

    def __init__(self, fields: list[tuple[int, str, _Column]]) -> None:
        self._fields = fields
        self.ordered = any(column.ordered for _, _, column in fields)

    def add(self, values: pa.Array) -> None:
        children = _children(values)
        for i, _, column in self._fields:
            column.add(children[i])

    def null_count(self) -> str:
        return _object({name: column.null_count() for _, name, column in self._fields})

    def bound(self, side: int) -> str | None:
        bounds = {name: column.bound(side) for _, name, column in self._fields if column.ordered}
        return _object({name: bound for name, bound in bounds.items() if bound is not None})


class _Leaf:
    """An ordinary column."""

    def __init__(self, kind: pa.DataType, prefix: int) -> None:
        self.ordered = has_order(kind)
        self._extremes, self._prefix, self._nulls = Extremes(kind), prefix, 0

    def add(self, values: pa.Array) -> None:
        self._nulls += values.null_count
        if self.ordered:
            self._extremes.add(values)

    def null_count(self) -> str:
        return str(self._nulls)

    def bound(self, side: int) -> str | None:
        return json_bounds(self._extremes, self._prefix)[side]


class _Variant:
    """A VARIANT column, shredded or not."""

    ordered = True

    def __init__(self, prefix: int, max_paths: int, budget: int, first: Sequence[Names]) -> None:
        self._prefix, self._max_paths, self._budget = prefix, max_paths, budget
        self._first = {keys: position for position, keys in enumerate(first)}
        self._nulls = 0
        self._paths: dict[Names, _Path | None] = {}  # None: the path can have no bounds
        self._texts: tuple[str | None, str | None] | None = None

    def add(self, values: pa.Array) -> None:
        self._texts = None
        self._nulls += values.null_count
        self._add(values, ())

    def _add(self, group: pa.Array, keys: Names, *, reached: bool = True) -> None:
        """Adds the Variants at one path.

        group: the group of `value` and `typed_value`. reached: whether it holds all Variants at the path, because no object
        above it is in `value` as a whole.
        """
        at = group.type.get_field_index("typed_value")
        if at < 0:
            return
        children = _children(group)
        typed, value = children[at], group.type.get_field_index("value")
        if pa.types.is_struct(typed.type):
            reached = reached and (value < 0 or not _has_objects(children[value], typed))
            for field, child in zip(typed.type, _children(typed), strict=True):
                self._add(child, (*keys, field.name), reached=reached)
        elif has_order(typed.type) or pa.types.is_boolean(typed.type):
            path = self._paths.setdefault(keys, _Path(typed.type))
            nulls = 0 if value < 0 else _json_nulls(children[value])
            if path is None or nulls is None or not reached:
                self._paths[keys] = None
                return
            missing = typed.null_count - nulls
            if not keys:  # a row that is not NULL has a value: if both columns are null, it is a JSON null
                nulls, missing = nulls + missing - group.null_count, group.null_count
            path.take(typed, nulls, missing)

    def null_count(self) -> str:
        return str(self._nulls)

    def bound(self, side: int) -> str | None:
        if self._texts is None:
            self._texts = self._bounds()
        text = self._texts[side]
        return None if text is None else f'"{text}"'

    def nonnull(self) -> list[tuple[tuple[int, bool], Names, list[Any]]]:
        """(rank, keys, array for the tag) of each path that has no bounds although its values have one type."""
        known = ((path.rank(self._prefix), keys, path) for keys, path in self._paths.items() if path and not path.bounded)
        return [(rank, keys, [*path.counts, *map(_smallest, path.bounds(self._prefix))]) for rank, keys, path in known]

    def times(self) -> list[tuple[tuple[int, bool, int], Names, list[Any]]]:
        """(rank, keys, array for the tag) of each path whose strings all spell a time."""
        known = ((keys, path, path.times.bounds()) for keys, path in self._paths.items() if path and path.times)
        return [((self._rank(keys), path.counts[1] > 0, len(keys)), keys, array) for keys, path, array in known if array]

    def _rank(self, keys: Names) -> int:
        """The position of a path in the list of paths that get bounds before all others."""
        return self._first.get(keys, sys.maxsize)

    def _bounds(self) -> tuple[str | None, str | None]:
        """The texts of the lower and the upper bounds, of as many paths as are allowed and fit, the most useful first."""
        known = [(path.rank(self._prefix), keys, path) for keys, path in self._paths.items() if path and path.bounded]
        known.sort(key=lambda ranked: (self._rank(ranked[1]), ranked[0], len(ranked[1])))
        both = [(paths.normalized(keys), path.bounds(self._prefix)) for _, keys, path in known[: self._max_paths]]

        def encoded(kept: Sequence[tuple[str, list[Any]]]) -> tuple[str | None, str | None]:
            low, high = ({path: pair[side] for path, pair in kept if pair[side] is not None} for side in (0, 1))
            return encode_bounds(low) if low else None, encode_bounds(high) if high else None

        return longest_fitting(both, encoded, self._budget)


class _Path(Extremes):
    """The values at one path of a VARIANT column, all of one type, JSON nulls aside."""

    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(kind)
        self.counts = [0, 0]  # JSON nulls, rows without the path
        self.times = Times() if is_string(kind) else None

    def take(self, values: pa.Array, nulls: int, missing: int) -> None:
        self.counts[0] += nulls
        self.counts[1] += missing
        self.add(values)
        if self.times is not None:
            self.times.add(values)

    @property
    def bounded(self) -> bool:
        """Whether the protocol allows bounds for the path."""
        return self.low is not None and not self.counts[0] and not self.has_nan

    def bounds(self, prefix: int) -> list[Any]:
        """[minimum, maximum] as `binary.encode` takes them, None for one that has no form there; [] without values."""
        return list(variant_bounds(self, prefix)) if self.low is not None or self.has_nan else []

    def rank(self, prefix: int) -> tuple[int, bool]:
        """The order in which paths get bounds, the most useful first: numbers and times, and paths that every row has."""
        missing = self.counts[1] > 0
        if pa.types.is_boolean(self.kind):
            return 3, missing
        if is_string(self.kind):
            return (1 if len(self.low or b"") <= prefix else 2), missing
        return 0, missing


def _json_nulls(values: pa.Array) -> int | None:
    """The number of Variants if all of them are JSON nulls; None if one is not."""
    count: int = len(values) - values.null_count
    if count and pc.any(pc.not_equal(values, pa.scalar(_JSON_NULL, values.type))).as_py():
        return None
    return count


def _has_objects(values: pa.Array, typed: pa.Array) -> bool:
    """Whether `value` holds whole objects, beside a null `typed_value`: their fields are in no typed column."""
    if values.null_count == len(values):
        return False
    whole = values.filter(pc.and_(values.is_valid(), typed.is_null()))
    return any(first[0] & 3 == t.OBJECT for first in pc.binary_slice(whole, 0, 1).unique().to_pylist())


def _smallest(bound: Any) -> Any:
    """Converts exact numbers to their smallest form: a tag has little room, and does not state types."""
    return bound.as_py() if isinstance(bound, pa.Scalar) and t.is_exact(bound.type) else bound


def _children(group: pa.Array) -> list[pa.Array]:
    """The fields of a struct, null where the struct is."""
    return list(group.flatten()) if group.null_count else [group.field(i) for i in range(group.type.num_fields)]


def _object(members: dict[str, str]) -> str:
    return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{text}" for name, text in members.items()) + "}"


def _leaves(kind: pa.DataType, names: Names, variants: Collection[Names]) -> Iterator[Names]:
    if names in variants or not pa.types.is_struct(kind):
        yield names
    else:
        for field in kind:
            yield from _leaves(field.type, (*names, field.name), variants)


def _parse_columns(text: str) -> list[Names]:
    """A comma-separated list of names with dots and backquotes, in lower case."""
    columns: list[Names] = []
    names: list[str] = []
    at = 0
    while text.strip():
        match = _NAME.match(text, at)
        if match is None:
            raise InvalidSchemaError(f"delta.dataSkippingStatsColumns: {text!r} is not a list of columns (at character {at})")
        names.append((match[1].replace("``", "`") if match[1] else match[2]).lower())
        if match[3] != ".":
            columns.append(tuple(names))
            names = []
        if not match[3]:
            break
        at = match.end()
    return columns
