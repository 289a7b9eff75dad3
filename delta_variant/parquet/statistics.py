"""What a Parquet footer proves of a typed column: its extremes, and how many rows have a JSON null or lack the path.

In: a footer, and the numbers of the typed column and of the `value`s beside and above it. Out: `PathStatistics`,
`UnreadLeaves` (the leaf columns from which bounds have to be computed), or None if the path can have no bounds.
Source: Parquet, `Statistics`; Delta variantShredding, "Statistics for Variant Columns".

A minimum and a maximum count only if every row group with values has both, since a row group without them may hold anything.
Writers differ in how they treat NaN, zeros and long strings. Bounds of FLOAT and DOUBLE therefore count only in files of this
package, and no longer once pyarrow has written them again, since pyarrow leaves NaN out of bounds. Bounds of strings
count only in files of pyarrow, which writes them whole or not at all.

Invariant: a `PathStatistics` equals what reading the columns would give.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from delta_variant import types as t
from delta_variant.parquet.columns import TypedColumn
from delta_variant.parquet.fitting import is_legacy

WRITER = b"org.apache.spark.version"
"""The key of files of Spark and of this package. Both follow VariantShredding, "Objects": a typed field is never in `value`."""
_ARROW_SCHEMA = b"ARROW:schema"
_JSON_NULL = b"\0"
_LARGEST = {32: float(np.finfo(np.float32).max), 64: float(np.finfo(np.float64).max)}
"""The largest finite number by the bits of a type. pyarrow before 25 states it as the minimum of a row group that has infinity
alone, and its negative as the maximum of one that has negative infinity alone."""

Residual = int | Literal["values", "unknown"]


@dataclass(frozen=True)
class PathStatistics:
    """What all rows of a file have at a path."""

    extremes: tuple[Any, Any]
    """The smallest and the largest value, as in `values.Extremes`; None without values."""
    nulls: int
    missing: int


@dataclass(frozen=True)
class UnreadLeaves:
    """The leaf columns that tell what the footer does not."""

    numbers: frozenset[int]


class Footer:
    """The statistics in a footer. row_groups: the numbers of those that are asked about; None for all."""

    def __init__(self, metadata: pq.FileMetaData, row_groups: Iterable[int] | None = None) -> None:
        self._metadata = metadata
        self._groups = [metadata.row_group(i) for i in (range(metadata.num_row_groups) if row_groups is None else row_groups)]
        keys = metadata.metadata or {}
        self.has_sparks_key = WRITER in keys
        """Whether Spark or this package wrote the file."""
        self.is_ours = self.has_sparks_key and self._by_pyarrow and self._has_our_form
        """Whether this package wrote the file."""
        self.is_legacy = is_legacy(metadata)
        """Whether its dates and timestamps are in the calendar that Spark had before version 3."""

    @property
    def _by_pyarrow(self) -> bool:
        return (self._metadata.created_by or "").startswith("parquet-cpp-arrow")

    @property
    def _has_our_form(self) -> bool:
        """Whether there are page indexes, and no schema of Arrow. A file that pyarrow reads and writes again keeps its keys."""
        chunks = (group.column(0) for group in self._groups if self._metadata.num_columns)
        return _ARROW_SCHEMA not in (self._metadata.metadata or {}) and all(chunk.has_offset_index for chunk in chunks)

    def of(self, column: TypedColumn, null_rows: int | None, *, read: bool = False) -> PathStatistics | UnreadLeaves | None:
        """What the footer proves of a typed column.

        null_rows: how many rows are NULL, if that is known; it matters at the root only. read: whether the values are wanted
        even if their extremes are known.
        """
        if self.is_legacy and t.is_time(column.kind):
            return None
        residual: Residual = 0 if column.value is None else self.residual(column.value)
        if residual == "values" or (not column.keys and null_rows is None):
            return None
        above = [] if self.has_sparks_key else [number for number in column.above if isinstance(self.residual(number), str)]
        absent = self.null_count(column.number)
        if not (read or above or absent is None or isinstance(residual, str)):
            extremes = self._extremes(column)
            if extremes is not None:
                nulls = residual if column.keys else absent - (null_rows or 0)
                return PathStatistics(extremes, nulls, absent - nulls)
        beside = [column.value] if residual and column.value is not None else []
        return UnreadLeaves(frozenset([column.number, *beside, *above]))

    def is_proven(self, column: TypedColumn) -> bool:
        """Whether the typed column has all values at its path, so that a query may read it (`protocol/README.md`, T2)."""
        if pa.types.is_floating(column.kind) or (self.is_legacy and t.is_time(column.kind)):
            return False
        above = () if self.has_sparks_key else column.above
        values = [number for number in (column.value, *above) if number is not None]
        return all(isinstance(self.residual(number), int) for number in values)

    def count(self, number: int) -> int:
        """How many values and nulls a leaf column has."""
        return sum(group.column(number).num_values for group in self._groups)

    def null_count(self, number: int) -> int | None:
        """The number of rows in which a leaf column is null; None if the footer does not say."""
        count = 0
        for group in self._groups:
            statistics = group.column(number).statistics
            if statistics is None or not statistics.has_null_count:
                return None
            count += statistics.null_count
        return count

    def is_null(self, number: int) -> bool:
        """Whether a leaf column is null in all rows."""
        return self.null_count(number) == self.count(number)

    def residual(self, number: int) -> Residual:
        """The number of JSON nulls in a `value`, if it holds nothing else."""
        nulls = 0
        for group in self._groups:
            column = group.column(number)
            statistics = column.statistics
            if statistics is None or not statistics.has_null_count:
                return "unknown"
            present = column.num_values - statistics.null_count
            if present and not (statistics.has_min_max and statistics.min_raw == statistics.max_raw == _JSON_NULL):
                return "values"
            nulls += present
        return nulls

    def _extremes(self, column: TypedColumn) -> tuple[Any, Any] | None:
        """The smallest and the largest value; None if the footer does not prove them."""
        kind = column.kind
        if pa.types.is_floating(kind) and not self.is_ours:
            return None
        if t.is_string(kind) and not self._by_pyarrow:
            return None
        lows, highs = [], []
        for group in self._groups:
            chunk = group.column(column.number)
            if chunk.statistics.null_count == chunk.num_values:
                continue
            if not chunk.statistics.has_min_max:
                return None
            low, high = (physical_value(kind, raw) for raw in (chunk.statistics.min_raw, chunk.statistics.max_raw))
            if pa.types.is_floating(kind) and (low == _LARGEST[kind.bit_width] or high == -_LARGEST[kind.bit_width]):
                return None
            lows.append(low)
            highs.append(high)
        return (min(lows), max(highs)) if lows else (None, None)


def physical_value(kind: pa.DataType, raw: Any) -> Any:
    """A value of the statistics, raw, in the form that `values.Extremes` has."""
    if not pa.types.is_decimal(kind):
        return raw
    unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -kind.scale))
