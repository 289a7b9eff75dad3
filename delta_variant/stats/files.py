"""The statistics of one file, collected from the batches that go into it.

In: record batches of the physical schema, VARIANT columns shredded or not. Out: the JSON of the Add action's `stats`.

A path of a VARIANT column has bounds if it ends in a typed primitive, is reached through objects only, and never has a value
of another type in this file: wherever its `value` is set, a JSON null included, there is none (Delta variantShredding). Which
columns count is Delta's rule: leaves in the schema's order, a VARIANT being one, arrays and maps too, though these have null
counts only.
"""

from __future__ import annotations

import json
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from delta_variant import paths
from delta_variant.errors import InvalidSchemaError
from delta_variant.stats.bounds import encode_bounds
from delta_variant.stats.values import STRING_PREFIX, Extremes, has_order, is_string, json_bounds, variant_bounds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

Names = tuple[str, ...]

MAX_PATHS = 32
MAX_BOUNDS_SIZE = 4096
"""Characters of Variant bounds in one file's statistics: every scan that Delta plans carries them."""

_NO_PATHS: Mapping[Names, Sequence[Names]] = MappingProxyType({})
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s`.,]+))\s*([.,]|$)")


def indexed_columns(
    schema: pa.Schema, variants: Collection[Names], num_indexed: int = 32, stats_columns: str | None = None
) -> list[Names]:
    """The leaf columns that have statistics.

    schema: without partition columns. num_indexed: `delta.dataSkippingNumIndexedCols`, -1 for all. stats_columns: the text
    of `delta.dataSkippingStatsColumns`, which goes before it. Raises InvalidSchemaError for a text that is not a list of names.
    """
    leaves = [names for field in schema for names in _leaves(field.type, (field.name,), variants)]
    if stats_columns is None:
        return leaves if num_indexed < 0 else leaves[:num_indexed]
    chosen = _parse_columns(stats_columns)
    return [names for names in leaves if any(tuple(map(str.lower, names[: len(c)])) == c for c in chosen)]


class FileStats:
    """Collects the statistics of one file.

    schema: the physical schema of the batches. variants: the paths of VARIANT columns in it. indexed: the leaves to have
    statistics (`indexed_columns`). string_prefix: characters kept of a string. max_paths: bounds for each VARIANT column.
    first: by VARIANT column, the keys of paths whose bounds go before those of others.
    tight_bounds: whether to say that the bounds are exact, as Delta does where the table has deletion vectors.
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

        def column(kind: pa.DataType, names: Names) -> _Column | None:
            if names in groups or not pa.types.is_struct(kind):
                is_variant = names in groups
                if names not in leaves:
                    return None
                return (
                    _Variant(string_prefix, max_paths, budget, first.get(names, ()))
                    if is_variant
                    else _Leaf(kind, string_prefix)
                )
            children = [(i, field.name, column(field.type, (*names, field.name))) for i, field in enumerate(kind)]
            kept = [(i, name, child) for i, name, child in children if child is not None]
            return _Struct(kept) if kept or not names else None

        root = column(pa.struct(list(schema)), ())
        assert root is not None
        self._root = root

    def update(self, batch: pa.RecordBatch) -> None:
        """Takes rows in."""
        self._rows += batch.num_rows
        self._root.add(batch.to_struct_array())

    def json(self) -> str:
        """The statistics of the rows so far."""
        nulls = self._root.null_count()
        members = {"numRecords": str(self._rows)}
        if self._root.ordered:
            members |= {"minValues": self._root.bound(0) or "{}", "maxValues": self._root.bound(1) or "{}"}
        if nulls != "{}":
            members["nullCount"] = nulls
        if self._tight_bounds:
            members["tightBounds"] = "true"
        return _object(members)


class _Column(Protocol):
    """Collects the statistics of one column; gives them as JSON, side 0 the smallest and 1 the largest value."""

    ordered: bool
    """Whether the column has a place in minValues and maxValues."""

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
        self._first = {keys: place for place, keys in enumerate(first)}
        self._nulls = 0
        self._paths: dict[Names, _Path | None] = {}  # None: ruled out
        self._texts: tuple[str | None, str | None] | None = None

    def add(self, values: pa.Array) -> None:
        self._texts = None
        self._nulls += values.null_count
        self._add(values, ())

    def _add(self, group: pa.Array, keys: Names) -> None:
        """Takes in a group of `value` and `typed_value`, the Variants at one path."""
        at = group.type.get_field_index("typed_value")
        if at < 0 or group.null_count == len(group):
            return
        children = _children(group)
        typed = children[at]
        if pa.types.is_struct(typed.type):
            for field, child in zip(typed.type, _children(typed), strict=True):
                self._add(child, (*keys, field.name))
        elif has_order(typed.type) or pa.types.is_boolean(typed.type):
            path = self._paths.setdefault(keys, _Path(typed.type))
            rest = group.type.get_field_index("value")
            others = 0 if rest < 0 else len(group) - children[rest].null_count
            if not keys:  # a row that is not NULL has a value: where both are null it is a JSON null
                others += typed.null_count - group.null_count
            if others:
                self._paths[keys] = None
            elif path is not None:
                path.add(typed)

    def null_count(self) -> str:
        return str(self._nulls)

    def bound(self, side: int) -> str | None:
        if self._texts is None:
            self._texts = self._bounds()
        text = self._texts[side]
        return None if text is None else f'"{text}"'

    def _bounds(self) -> tuple[str | None, str | None]:
        """The most useful paths, as many as are allowed and fit."""
        known = [(path.rank(self._prefix), keys, path) for keys, path in self._paths.items() if path is not None]
        known.sort(key=lambda ranked: (self._first.get(ranked[1], len(self._first)), ranked[0], len(ranked[1])))
        both = {paths.normalized(keys): variant_bounds(path, self._prefix) for _, keys, path in known[: self._max_paths]}
        while True:
            low, high = ({path: pair[side] for path, pair in both.items() if pair[side] is not None} for side in (0, 1))
            texts = encode_bounds(low) if low else None, encode_bounds(high) if high else None
            size = len(texts[0] or "") + len(texts[1] or "")
            if size <= self._budget:
                return texts
            both = dict(list(both.items())[: min(len(both) - 1, len(both) * self._budget // size)])


class _Path(Extremes):
    """The values at one path of a VARIANT column, all of one type."""

    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(kind)
        self._missing = False

    def add(self, values: pa.Array) -> None:
        self._missing = self._missing or values.null_count > 0
        super().add(values)

    def rank(self, prefix: int) -> tuple[int, bool]:
        """How little a bound is likely to skip: numbers and times first, paths that every row has first."""
        if pa.types.is_boolean(self.kind):
            return 3, self._missing
        if is_string(self.kind):
            return (1 if len(self.low or b"") <= prefix else 2), self._missing
        return 0, self._missing


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
