"""What is known of some rows of a file: of its partition values, its columns and its paths (`Evidence`).

In: an Add action (`LogEvidence`), or the statistics in a footer (`scanning.row_groups`). Out: values and bounds in the form of
`casts.values_of`. Paths have the bounds of this package and Delta (protocol/README.md, B1 to M3), ordinary columns Delta's
minimum, maximum and null count.

Invariant: what is not known, damaged, or of another type is None, which keeps the rows.
"""

from __future__ import annotations

import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, tzinfo
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa

from delta_variant import types as t
from delta_variant.errors import DeltaVariantError
from delta_variant.paths import Keys, normalized, object_keys
from delta_variant.queries import casts
from delta_variant.queries.casts import KINDS, TIMES, kind_of, kinds_for
from delta_variant.queries.expressions import Literal
from delta_variant.queries.fields import Field, Struct, Variant, type_name
from delta_variant.queries.predicates import Path
from delta_variant.stats import BOUNDS_TAG, BOUNDS_TAG_VALUES, NONNULL_TAG, TIMES_TAG, EncodedBounds, place

Asked: TypeAlias = "Callable[[Path, Sequence[Any]], bool | None]"
_TYPES = {bool: pa.bool_(), int: pa.int64(), str: pa.string()}
_STATISTICS = json.JSONDecoder(parse_float=Decimal)  # a float is another number than a long decimal
_MILLISECOND = 999  # statistics have times rounded down to milliseconds
_FAR = 18 * 3_600_000_000  # no time zone is further from UTC
# Every file is asked for the same paths.
_normalized, _place = lru_cache(normalized), lru_cache(place)


@dataclass(frozen=True)
class AddAction:
    """What the log says of a file."""

    path: str
    size: int
    modification_time: int
    partition: Mapping[str, str | None]
    """The texts of its partition values, by the physical names of the columns."""
    stats_text: str | None
    tags: Mapping[str, str]
    parsed: Mapping[str, Any] | None
    """The statistics of a checkpoint that has them as a struct only."""

    @cached_property
    def stats(self) -> Mapping[str, Any]:
        """The statistics; empty if there are none, or if they are damaged."""
        if self.stats_text is None:
            return self.parsed or {}
        try:
            found = _STATISTICS.decode(self.stats_text)
        except (ValueError, ArithmeticError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


class TableFacts:
    """What is the same for all files of a table."""

    def __init__(self, schema: Struct, partition_columns: frozenset[str], at: tzinfo) -> None:
        self.schema, self.at, self._partition_columns = schema, at, partition_columns
        self.fields = {tuple(field.physical for field in fields): fields for fields in _columns(schema, ())}
        """The fields that lead to each column, by their physical names."""
        self.variants = tuple(names for names, fields in self.fields.items() if isinstance(fields[-1].kind, Variant))

    def is_partition(self, fields: tuple[Field, ...]) -> bool:
        """Whether these lead to a partition column."""
        return len(fields) == 1 and fields[0].name in self._partition_columns

    def partition(self, file: AddAction, fields: tuple[Field, ...]) -> Literal | None:
        """The value of a partition column in a file; None for other columns. Raises DeltaVariantError for a damaged one."""
        field = fields[0]
        if not self.is_partition(fields):
            return None
        assert isinstance(field.kind, pa.DataType)
        text = file.partition.get(field.physical)
        if not text:
            return Literal(None, field.kind)
        found = casts.cast_one(text, pa.string(), field.kind, self.at)
        if found is None:
            raise DeltaVariantError(
                f"{file.path}: its partition value {text!r} is not a {type_name(field.kind)}: the log is damaged"
            )
        return Literal(found.ljust(field.length) if field.length else found, field.kind)


@dataclass(frozen=True)
class ColumnStatistics:
    """What is known of the values of an ordinary column. Bounds are in the form of `casts.values_of`."""

    min: Any = None
    max: Any = None
    all_null: bool = False
    no_null: bool = False


class Evidence(ABC):
    """What is known of some rows of a file.

    may_have: whether a row may have one of some values at a path; None if that is not known.
    """

    def __init__(self, file: AddAction, table: TableFacts, may_have: Asked | None = None) -> None:
        self.file, self._table = file, table
        self.may_have: Asked = may_have or (lambda _path, _values: None)
        self._known: dict[tuple[Field, ...], ColumnStatistics] = {}
        self._bounds: dict[tuple[str, Path], Any] = {}

    def column(self, fields: tuple[Field, ...]) -> ColumnStatistics:
        if fields not in self._known:
            self._known[fields] = self._column(fields)
        return self._known[fields]

    def bound(self, side: str, path: Path) -> Any:
        """The minimum or the maximum of a path or of an ordinary column, cast as the path says; None if it is not known."""
        if (side, path) not in self._bounds:
            self._bounds[side, path] = self._of_column(side, path) if path.ordinary else self._bound(side, path)
        return self._bounds[side, path]

    def _of_column(self, side: str, path: Path) -> Any:
        fields = self._table.fields[path.column]
        value, kind = getattr(self.column(fields), side), fields[-1].kind
        return cast_bound(value, kind, path.casts, self._table.at) if isinstance(kind, pa.DataType) else None

    def has_values(self, path: Path) -> bool | None:
        """Whether any row has the path, or a value in the ordinary column; None if that is not known."""
        if not path.ordinary:
            return self._has_values(path)
        return not self.column(self._table.fields[path.column]).all_null

    @abstractmethod
    def _column(self, fields: tuple[Field, ...]) -> ColumnStatistics: ...

    @abstractmethod
    def _bound(self, side: str, path: Path) -> Any: ...

    @abstractmethod
    def _has_values(self, path: Path) -> bool | None: ...


def _columns(struct: Struct, above: tuple[Field, ...]) -> Iterator[tuple[Field, ...]]:
    for field in struct.fields:
        yield (*above, field)
        if isinstance(field.kind, Struct):
            yield from _columns(field.kind, (*above, field))


# ---- the log --------------------------------------------------------------------------------------------------------


class LogEvidence(Evidence):
    """What the Add action of a file says of its rows."""

    def __init__(self, file: AddAction, table: TableFacts, may_have: Asked | None = None) -> None:
        super().__init__(file, table, may_have)
        self._marked = file.tags.get(BOUNDS_TAG) in BOUNDS_TAG_VALUES
        self._decoded: dict[str, EncodedBounds | None] = {}

    def _column(self, fields: tuple[Field, ...]) -> ColumnStatistics:
        names, kind = [field.physical for field in fields], fields[-1].kind
        if any(field.collated for field in fields):
            return ColumnStatistics()
        rows, nulls = self.file.stats.get("numRecords"), _member(self.file.stats, ["nullCount", *names])
        counted = isinstance(rows, int) and isinstance(nulls, int)
        low = high = None
        if isinstance(kind, pa.DataType) and not fields[-1].length:
            low = _stored(_member(self.file.stats, ["minValues", *names]), kind)
            high = _stored(_member(self.file.stats, ["maxValues", *names]), kind)
            if pa.types.is_float64(kind):
                low, high = _widened(low, high)
            if pa.types.is_floating(kind) and not self._marked:
                high = None  # writers other than Spark leave NaN, the largest number, out of the maximum
            if pa.types.is_timestamp(kind) and high is not None:
                high += _MILLISECOND
        return ColumnStatistics(low, high, all_null=counted and nulls == rows, no_null=counted and nulls == 0)

    def _has_values(self, path: Path) -> bool | None:
        array = self._tagged(NONNULL_TAG, path)
        if array is None:
            return None
        return len(array) > 2 or (path.result == "variant" and array[0] > 0)

    def _bound(self, side: str, path: Path) -> Any:
        try:
            found = None if path.text else self._found(side, path)
            if found is not None:
                row = kind_of(found[1])
                if row in kinds_for(path.type) and (self._marked or not KINDS[row][1]):
                    return cast_bound(*found, (path.type, *path.casts), self._table.at)
            if path.type in TIMES and self._marked:
                return self._time(side, path)
        except (DeltaVariantError, ValueError, TypeError, KeyError, IndexError, OverflowError, ArithmeticError):
            pass  # damaged statistics say nothing
        return None

    def has_bounds(self, fields: tuple[Field, ...], keys: Keys) -> bool:
        """Whether statistics have bounds for a path (protocol/README.md, T1)."""
        found, names = object_keys(keys), tuple(field.physical for field in fields)
        if found is None:
            return False
        return any(self._logged(side, names, normalized(found)) is not None for side in ("minValues", "maxValues"))

    def _found(self, side: str, path: Path) -> tuple[Any, pa.DataType] | None:
        """A bound and its type."""
        value = self._logged(f"{side}Values", path.column, _normalized(path.keys))
        if value is None:
            array = self._tagged(NONNULL_TAG, path)
            value = array[2 if side == "min" else 3] if array is not None and len(array) > 3 else None
        return None if value is None else _typed(value)

    def _logged(self, side: str, names: Sequence[str], path: str) -> Any:
        return self._bound_in(_member(self.file.stats, [side, *names]), path)

    def _bound_in(self, text: Any, path: str) -> Any:
        """A bound in a text; None if there is none, or if the text is damaged there."""
        if not isinstance(text, str) or not text:
            return None
        with contextlib.suppress(DeltaVariantError, ValueError):
            if text not in self._decoded:
                self._decoded[text] = None
                self._decoded[text] = EncodedBounds(text)
            bounds = self._decoded[text]
            return None if bounds is None else bounds.get(path)
        return None

    def _tagged(self, tag: str, path: Path) -> list[Any] | None:
        parent, last = _place(path.column, path.keys)
        inner = self._bound_in(self.file.tags.get(tag), parent)
        found = inner.get(last) if isinstance(inner, dict) else None
        return found if isinstance(found, list) and len(found) >= 2 else None

    def _time(self, side: str, path: Path) -> Any:
        """The first or the last of the times that strings spell (protocol/README.md, M3)."""
        array = self._tagged(TIMES_TAG, path)
        if array is None:
            return None
        first = side == "min"
        value, kind = _typed(array[0 if first else 1])
        if path.type == "timestamp":
            if kind == casts.LOCAL:  # an instant in some time zone
                value, kind = value + (-_FAR if first else _FAR), casts.INSTANT
        elif len(array) > 3:
            value, kind = _typed(array[2 if first else 3])
        elif kind == casts.INSTANT:
            kind = casts.LOCAL
        return cast_bound(value, kind, (path.type, *path.casts), self._table.at)


def cast_bound(value: Any, kind: pa.DataType, names: Sequence[str], at: tzinfo) -> Any:
    """A bound, cast to types one after the other; None if a cast fails."""
    for name in names:
        target = t.of_spark(name)
        value, kind = casts.cast_one(value, kind, target, at), target
    return value


def _typed(value: Any) -> tuple[Any, pa.DataType]:
    """A bound as `binary.decode` returns it: its plain value and its Arrow type."""
    if type(value) in _TYPES:
        return value, _TYPES[type(value)]
    if isinstance(value, Decimal):
        return value, pa.decimal128(38, max(0, -int(value.as_tuple().exponent)))
    if isinstance(value, float | np.float32):
        return float(value), pa.float64()
    if isinstance(value, datetime):  # and pandas.Timestamp
        stamp = pd.Timestamp(value)
        micros = stamp.as_unit("us").asm8.astype("datetime64[us]").astype(np.int64)  # in UTC; its `value` is in nanoseconds
        return int(micros), casts.LOCAL if stamp.tzinfo is None else casts.INSTANT
    if isinstance(value, np.datetime64 | date):
        return int(np.asarray(value, "datetime64[D]").astype(np.int64)), pa.date32()
    raise TypeError(type(value).__name__)


def _member(stats: Mapping[str, Any], names: Sequence[str]) -> Any:
    found: Any = stats
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _stored(value: Any, kind: pa.DataType) -> Any:
    """A bound of an ordinary column, in JSON or in a Parquet checkpoint, in plain form; None if it is damaged."""
    try:
        if value is None or isinstance(value, dict | list):
            return None
        if t.is_time(kind):
            return casts.cast_one(str(value), pa.string(), kind, casts.zone("UTC"))
        if t.is_string(kind):
            return value if isinstance(value, str) else None
        if pa.types.is_floating(kind):
            return float(np.float32(value) if pa.types.is_float32(kind) else value)
        if pa.types.is_integer(kind):
            return value if isinstance(value, int) and not isinstance(value, bool) else None
        if pa.types.is_decimal(kind) and isinstance(value, int | float | Decimal) and not isinstance(value, bool):
            return Decimal(str(value))
    except (ValueError, ArithmeticError):
        return None
    return None


def _widened(low: float | None, high: float | None) -> tuple[float | None, float | None]:
    """Bounds of a DOUBLE column. If it was FLOAT, the log has a float's digits, which are another double."""
    with np.errstate(over="ignore"):
        low = None if low is None else min(low, float(np.float32(low)))
        return low, None if high is None else max(high, float(np.float32(high)))
