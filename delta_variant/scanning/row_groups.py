"""What a footer says of the rows of a row group (`pruning.Evidence`).

In: a file's footer, and a row group's number. Out: minima, maxima and null counts of ordinary and of typed columns, in the form
of `casts.plain`. Invariant: a statistic that cannot be trusted is not known, which keeps the row group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from delta_variant import types as t
from delta_variant.parquet.statistics import physical_value
from delta_variant.scanning import casts, schemas
from delta_variant.scanning.pruning import Known, cast_bound
from delta_variant.scanning.schemas import Struct
from delta_variant.skipping.casts import kinds_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_variant import skipping
    from delta_variant.scanning.expressions import Literal
    from delta_variant.scanning.log import File
    from delta_variant.scanning.places import Place, Places
    from delta_variant.scanning.pruning import TableFacts
    from delta_variant.scanning.schemas import Field, Kind


class RowGroupEvidence:
    """What a footer says of the rows of a row group."""

    def __init__(self, places: Places, number: int, file: File, facts: TableFacts) -> None:
        self._places, self._group = places, places.parquet.metadata.row_group(number)
        self._file, self._facts = file, facts
        self._known: dict[tuple[Field, ...], Known | None] = {}

    def partition(self, fields: tuple[Field, ...]) -> Literal | None:
        """The value of a partition column."""
        return self._facts.partition(self._file, fields)

    def column(self, fields: tuple[Field, ...]) -> Known | None:
        """What is known of an ordinary column."""
        if fields not in self._known:
            self._known[fields] = self._column(fields)
        return self._known[fields]

    def _column(self, fields: tuple[Field, ...]) -> Known | None:
        constant = self.partition(fields)
        if constant is not None:
            null = constant.value is None
            return Known(constant.value, constant.value, all_null=null, no_null=not null)
        kind, names = fields[-1].kind, self._places.names(fields)
        if names is None:
            return Known(all_null=True)
        found = self._places.columns.group(names)
        if (
            not isinstance(kind, pa.DataType)
            or found is None
            or pa.types.is_nested(found)
            or any(f.collated or f.length for f in fields)
        ):
            return None
        low, high, nulls, values = self._statistics(self._places.columns.leaves(names)[0], found)
        if found != kind and low is not None:
            low, high = (casts.plain(casts.cast(casts.made([one], found), kind))[0] for one in (low, high))
        return Known(low, high, all_null=nulls == values, no_null=nulls == 0)

    def has_values(self, path: skipping.Path) -> bool | None:
        """Whether a row has the path."""
        place = self._place(path)
        if place is None or place.rest or place.rebuilt or place.above:
            return None
        if place.group is None:
            return False
        if place.typed is None:
            return None
        numbers = [n for n in (place.typed.number, place.typed.value) if n is not None]
        return None if not all(self._is_null(number) for number in numbers) else False

    def may_have(self, path: skipping.Path, values: Sequence[Any]) -> bool | None:  # noqa: ARG002  # filters are for whole files
        """Nothing is known of single values."""
        return None

    def bound(self, side: str, path: skipping.Path) -> Any:
        """The minimum or the maximum of a path."""
        place = self._place(path)
        column = None if place is None or place.rest or place.rebuilt or place.above else place.typed
        if column is None or path.text:
            return None
        if column.value is not None and not self._only_json_nulls(column.value):
            return None
        kind = column.kind
        if pa.types.is_decimal(kind):
            kind = pa.decimal128(kind.precision, kind.scale)
        if _kind_name(kind) not in kinds_for(path.type):
            return None
        low, high, _, _ = self._statistics(column.number, kind)
        value = low if side == "min" else high
        return None if value is None else cast_bound(value, kind, path, self._facts.at)

    def _place(self, path: skipping.Path) -> Place | None:
        schema: Kind = self._places.schema
        fields: list[Field] = []
        for name in path.column:
            field = next((f for f in schema.fields if f.physical == name), None) if isinstance(schema, Struct) else None
            if field is None:
                return None
            fields.append(field)
            schema = field.kind
        return self._places.place(tuple(fields), path.keys)

    def _is_null(self, number: int) -> bool:
        statistics = self._group.column(number).statistics
        return bool(statistics is not None and statistics.has_null_count and statistics.null_count == self._values(number))

    def _values(self, number: int) -> int:
        return int(self._group.column(number).num_values)

    def _only_json_nulls(self, number: int) -> bool:
        statistics = self._group.column(number).statistics
        if statistics is None or not statistics.has_null_count:
            return False
        if statistics.null_count == self._values(number):
            return True
        return bool(statistics.has_min_max and statistics.min_raw == statistics.max_raw == b"\0")

    def _statistics(self, number: int, kind: pa.DataType) -> tuple[Any, Any, int | None, int]:
        """The minimum and the maximum as `casts.plain` has them, if they can be trusted; the numbers of nulls and values."""
        chunk = self._group.column(number)
        statistics = chunk.statistics
        if statistics is None:
            return None, None, None, chunk.num_values
        nulls = statistics.null_count if statistics.has_null_count else None
        # Writers other than this package leave NaN out, and dates of Spark's old calendar are other days.
        unsafe = pa.types.is_floating(kind) and not self._places.footer.is_ours
        unsafe |= t.is_time(kind) and self._places.is_legacy
        unsafe |= pa.types.is_timestamp(kind) and (kind.unit != "us" or chunk.physical_type != "INT64")
        unsafe |= not (
            t.is_exact(kind) or pa.types.is_floating(kind) or t.is_string(kind) or t.is_time(kind) or pa.types.is_boolean(kind)
        )
        if unsafe or not statistics.has_min_max:
            return None, None, nulls, chunk.num_values
        return _raw(statistics.min_raw, kind), _raw(statistics.max_raw, kind), nulls, chunk.num_values


def _raw(raw: Any, kind: pa.DataType) -> Any:
    """A value of a footer in the form of `casts.plain`."""
    value = physical_value(kind, raw)
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _kind_name(kind: pa.DataType) -> str:
    """The kind of a bound in `skipping.casts`."""
    if t.is_exact(kind):
        return "exact"
    if pa.types.is_floating(kind):
        return "approximate"
    return schemas.spark_name(pa.string() if t.is_string(kind) else kind)
