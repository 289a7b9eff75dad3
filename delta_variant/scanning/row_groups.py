"""What a footer says of the rows of a row group (`queries.evidence`).

In: a file's footer, and a row group's number. Out: minima, maxima and null counts of ordinary and of typed columns, in the form
of `casts.values_of`. Invariant: a statistic that cannot be trusted is not known, which keeps the row group.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa

from delta_variant import types as t
from delta_variant.parquet.columns import TypedColumn
from delta_variant.parquet.statistics import Footer, physical_value
from delta_variant.queries.casts import cast_one, kind_of, kinds_for
from delta_variant.queries.evidence import ColumnStatistics, Evidence, TableFacts, cast_bound
from delta_variant.queries.fields import Field
from delta_variant.queries.predicates import Path
from delta_variant.scanning.file_schema import FileSchema, PathGroup
from delta_variant.scanning.log import File


class RowGroupEvidence(Evidence):
    """What a footer says of the rows of a row group."""

    def __init__(self, schema: FileSchema, number: int, file: File, table: TableFacts) -> None:
        super().__init__(file, table)
        self._schema, self._footer = schema, Footer(schema.parquet.metadata, [number])
        self._group = schema.parquet.metadata.row_group(number)

    def _column(self, fields: tuple[Field, ...]) -> ColumnStatistics:
        kind, names = fields[-1].kind, self._schema.names(fields)
        if names is None:
            return ColumnStatistics(all_null=True)
        found = self._schema.columns.group(names)
        if (
            not isinstance(kind, pa.DataType)
            or found is None
            or pa.types.is_nested(found)
            or any(f.collated or f.length for f in fields)
        ):
            return ColumnStatistics()
        number = self._schema.columns.leaves(names)[0]
        source = t.read_as(found)
        low = high = None
        if source is not None:
            # A timestamp without a zone, in a file of a TIMESTAMP column, is one in UTC (`parquet.fitting`).
            low, high = (cast_one(value, source, kind, dt.timezone.utc) for value in self._extremes(number, source))
        nulls = self._footer.null_count(number)
        return ColumnStatistics(low, high, all_null=nulls == self._footer.count(number), no_null=nulls == 0)

    def _has_values(self, path: Path) -> bool | None:
        found = self._path_group(path)
        if found is None:
            return None
        if found.group is None:
            return False
        numbers = [] if found.typed is None else [found.typed.number, found.typed.value]
        return False if numbers and all(number is None or self._footer.is_null(number) for number in numbers) else None

    def _bound(self, side: str, path: Path) -> Any:
        found = self._path_group(path)
        column: TypedColumn | None = None if found is None else found.typed
        if column is None or path.text or (column.value is not None and isinstance(self._footer.residual(column.value), str)):
            return None
        kind = t.read_as(column.kind)
        if kind is None or kind_of(kind) not in kinds_for(path.type):
            return None
        low, high = self._extremes(column.number, kind)
        return cast_bound(low if side == "min" else high, kind, (path.type, *path.casts), self._table.at)

    def _path_group(self, path: Path) -> PathGroup | None:
        """Where a path is; None if that is not one group."""
        found = self._schema.path_group(self._table.fields[path.column], path.keys)
        return None if found.rest or found.rebuilt or found.above else found

    def _extremes(self, number: int, kind: pa.DataType) -> tuple[Any, Any]:
        """The minimum and the maximum as `casts.values_of` has them, if they can be trusted."""
        chunk = self._group.column(number)
        statistics = chunk.statistics
        # Writers other than this package leave NaN out, and dates of Spark's old calendar are other days.
        unsafe = pa.types.is_floating(kind) and not self._footer.is_ours
        unsafe |= t.is_time(kind) and self._schema.is_legacy
        unsafe |= pa.types.is_timestamp(kind) and (kind.unit != "us" or chunk.physical_type != "INT64")
        unsafe |= not (
            t.is_exact(kind) or pa.types.is_floating(kind) or t.is_string(kind) or t.is_time(kind) or pa.types.is_boolean(kind)
        )
        if unsafe or statistics is None or not statistics.has_min_max:
            return None, None
        return _raw(statistics.min_raw, kind), _raw(statistics.max_raw, kind)


def _raw(raw: Any, kind: pa.DataType) -> Any:
    """A value of a footer in the form of `casts.values_of`."""
    value = physical_value(kind, raw)
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
