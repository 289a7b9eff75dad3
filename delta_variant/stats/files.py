"""The statistics of one file, collected from the batches that go into it.

In: record batches of the physical schema, VARIANT columns shredded or not. Out: the JSON of the Add action's `stats`.

`variants` says which paths of a VARIANT column have bounds.

Delta decides which columns have statistics: the first leaves of the schema. A VARIANT counts as one leaf, and so do arrays and
maps, which have null counts only.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa

from delta_variant import nested
from delta_variant.errors import InvalidSchemaError
from delta_variant.stats.rewriting import json_object
from delta_variant.stats.values import Extremes, has_order, json_bounds
from delta_variant.stats.variants import VariantStats, tags

Names = tuple[str, ...]

STRING_PREFIX = 32
"""How many characters of a string the log keeps: spark.databricks.io.skipping.stringPrefixLength."""
MAX_PATHS = 32
MAX_BOUNDS_SIZE = 4096
"""The limit for characters of Variant bounds in one file's statistics: every scan that Delta plans carries them."""

_NO_PATHS: Mapping[Names, Sequence[Names]] = MappingProxyType({})
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s`.,]+))\s*([.,]|$)")


def indexed_columns(
    schema: pa.Schema, variants: Collection[Names], num_indexed: int = 32, stats_columns: str | None = None
) -> list[Names]:
    """The leaf columns that have statistics.

    schema: without partition columns. variants: the paths of VARIANT columns in it; each is one leaf. num_indexed: the value of
    `delta.dataSkippingNumIndexedCols`, -1 for all. stats_columns: the text of `delta.dataSkippingStatsColumns`, which takes
    precedence. Raises InvalidSchemaError for a text that is not a list of columns.

    >>> import pyarrow as pa, delta_variant as dv
    >>> schema = pa.schema([("id", pa.int64()), ("v", dv.shredding.UNSHREDDED), ("note", pa.string())])
    >>> dv.stats.indexed_columns(schema, variants=[("v",)], num_indexed=2)
    [('id',), ('v',)]
    """
    leaves = nested.columns(schema, variants)
    if stats_columns is None:
        return leaves if num_indexed < 0 else leaves[:num_indexed]
    chosen = column_names(stats_columns)
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

        self._variants: list[tuple[Names, VariantStats]] = []

        def column(kind: pa.DataType, names: Names) -> _Column | None:
            if names in groups and names in leaves:
                self._variants.append((names, VariantStats(string_prefix, max_paths, budget, first.get(names, ()))))
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
        return json_object(members)

    def tags(self) -> dict[str, str]:
        """The tags that say more about paths than the statistics may, by their names (`stats.tags`)."""
        return tags(self._variants)


class _Struct:
    """A struct whose fields are columns. A field is null where the struct is.

    Each column has its statistics as JSON. side: 0 for the minimum, 1 for the maximum. ordered: whether the column appears in
    minValues and maxValues.
    """

    def __init__(self, fields: list[tuple[int, str, _Column]]) -> None:
        self._fields = fields
        self.ordered: bool = any(column.ordered for _, _, column in fields)

    def add(self, values: pa.Array) -> None:
        children = nested.flattened(values)
        for i, _, column in self._fields:
            column.add(children[i])

    def null_count(self) -> str:
        return json_object({name: column.null_count() for _, name, column in self._fields})

    def bound(self, side: int) -> str | None:
        bounds = {name: column.bound(side) for _, name, column in self._fields if column.ordered}
        return json_object({name: bound for name, bound in bounds.items() if bound is not None})


class _Leaf:
    """An ordinary column."""

    def __init__(self, kind: pa.DataType, prefix: int) -> None:
        self.ordered: bool = has_order(kind)
        self._extremes, self._prefix, self._nulls = Extremes(kind), prefix, 0

    def add(self, values: pa.Array) -> None:
        self._nulls += values.null_count
        if self.ordered:
            self._extremes.add(values)

    def null_count(self) -> str:
        return str(self._nulls)

    def bound(self, side: int) -> str | None:
        return json_bounds(self._extremes, self._prefix)[side]


_Column = VariantStats | _Struct | _Leaf


def column_names(text: str) -> list[Names]:
    """The names of a text of `delta.dataSkippingStatsColumns`: a list with commas, dots and backquotes. They are in lower case.

    Raises InvalidSchemaError for a text that is not such a list.

    >>> column_names("id, `Actor`.id")
    [('id',), ('actor', 'id')]
    """
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
