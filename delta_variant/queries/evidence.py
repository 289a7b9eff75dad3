"""What is known of some rows of a file: of its partition values, its columns and its paths (`Evidence`).

In: an Add action (`LogEvidence`), or the statistics in a footer (`scanning.row_groups`). Out: values and bounds in the form of
`casts.plain`. Paths have the bounds of this package and Delta (protocol/README.md, B1 to M3), ordinary columns Delta's minimum,
maximum and null count.

Invariant: what is not known, damaged, or of another type is None, which keeps the rows.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, tzinfo
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa

from delta_variant import types as t
from delta_variant.errors import DeltaVariantError
from delta_variant.paths import normalized, object_keys
from delta_variant.queries import casts
from delta_variant.queries.casts import KINDS, TIMES, kind_of, kinds_for
from delta_variant.queries.expressions import Literal
from delta_variant.queries.fields import Field, Kind, Struct, Variant, type_name
from delta_variant.stats import BOUNDS_TAG, BOUNDS_TAG_VALUES, NONNULL_TAG, TIMES_TAG, decode_bounds, place

if TYPE_CHECKING:
    from delta_variant.queries.expressions import Keys
    from delta_variant.queries.predicates import Path

Asked: TypeAlias = "Callable[[Path, Sequence[Any]], bool | None]"
_MILLISECOND = 999  # statistics have times rounded down to milliseconds
_FAR = 18 * 3_600_000_000  # no time zone is further from UTC


class AddAction(Protocol):
    """What the log says of a file. Partition values are texts, by the physical names of the columns."""

    @property
    def path(self) -> str: ...
    @property
    def partition(self) -> Mapping[str, str | None]: ...
    @property
    def stats(self) -> Mapping[str, Any]: ...
    @property
    def tags(self) -> Mapping[str, str]: ...


class TableFacts:
    """What is the same for all files of a table."""

    def __init__(self, schema: Struct, partition_columns: frozenset[str], at: tzinfo) -> None:
        self.at, self._schema, self._partition_columns = at, schema, partition_columns
        self.variants = tuple(_variants(schema, ()))
        self._fields: dict[tuple[str, ...], tuple[Field, ...]] = {}

    def fields(self, column: tuple[str, ...]) -> tuple[Field, ...]:
        """The fields that lead to a column, by their physical names."""
        if column not in self._fields:
            found: list[Field] = []
            kind: Kind = self._schema
            for name in column:
                assert isinstance(kind, Struct)
                found.append(next(field for field in kind.fields if field.physical == name))
                kind = found[-1].kind
            self._fields[column] = tuple(found)
        return self._fields[column]

    def is_partition(self, fields: tuple[Field, ...]) -> bool:
        """Whether these lead to a partition column."""
        return len(fields) == 1 and fields[0].name in self._partition_columns

    def partition(self, file: AddAction, fields: tuple[Field, ...]) -> Literal | None:
        """The value of a partition column in a file; None for other columns. Raises DeltaVariantError if it is no value."""
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
                f"{file.path}: its partition value {text!r} is no {type_name(field.kind)}: the log is damaged"
            )
        return Literal(found.ljust(field.length) if field.length else found, field.kind)


@dataclass(frozen=True)
class Known:
    """What is known of the values of an ordinary column. Bounds are in the form of `casts.plain`."""

    min: Any = None
    max: Any = None
    all_null: bool = False
    no_null: bool = False


class Evidence(ABC):
    """What is known of some rows of a file."""

    def __init__(self, file: AddAction, table: TableFacts) -> None:
        self._file, self._table = file, table
        self._known: dict[tuple[Field, ...], Known] = {}

    def partition(self, fields: tuple[Field, ...]) -> Literal | None:
        """The value that a partition column has in all rows."""
        return self._table.partition(self._file, fields)

    def column(self, fields: tuple[Field, ...]) -> Known:
        """What is known of an ordinary column."""
        if fields not in self._known:
            self._known[fields] = self._column(fields)
        return self._known[fields]

    def bound(self, side: str, path: Path) -> Any:
        """The minimum or the maximum of a path or of an ordinary column, cast as the path says; None if it is not known."""
        if not path.ordinary:
            return self._bound(side, path)
        fields = self._table.fields(path.column)
        value, kind = getattr(self.column(fields), side), fields[-1].kind
        return cast_bound(value, kind, path.casts, self._table.at) if isinstance(kind, pa.DataType) else None

    def has_values(self, path: Path) -> bool | None:
        """Whether any row has the path, or a value in the ordinary column; None if that is not known."""
        if not path.ordinary:
            return self._has_values(path)
        return not self.column(self._table.fields(path.column)).all_null

    def may_have(self, path: Path, values: Sequence[Any]) -> bool | None:  # noqa: ARG002  # filters are for whole files
        """Whether a row may have one of these values at a path; None if that is not known."""
        return None

    @abstractmethod
    def _column(self, fields: tuple[Field, ...]) -> Known: ...

    @abstractmethod
    def _bound(self, side: str, path: Path) -> Any: ...

    @abstractmethod
    def _has_values(self, path: Path) -> bool | None: ...


def _variants(kind: Kind, names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(kind, Variant):
        yield names
    elif isinstance(kind, Struct):
        for field in kind.fields:
            yield from _variants(field.kind, (*names, field.physical))


# ---- the log --------------------------------------------------------------------------------------------------------


class LogEvidence(Evidence):
    """What the Add action of a file says of its rows. index: whether the file may have one of some values at a path."""

    def __init__(self, file: AddAction, table: TableFacts, index: Asked | None = None) -> None:
        super().__init__(file, table)
        self._index, self._marked = index, file.tags.get(BOUNDS_TAG) in BOUNDS_TAG_VALUES
        self._decoded: dict[str, Mapping[str, Any]] = {}

    def _column(self, fields: tuple[Field, ...]) -> Known:
        names, kind = [field.physical for field in fields], fields[-1].kind
        if any(field.collated for field in fields):
            return Known()
        rows, nulls = self._file.stats.get("numRecords"), _member(self._file.stats, ["nullCount", *names])
        counted = isinstance(rows, int) and isinstance(nulls, int)
        low = high = None
        if isinstance(kind, pa.DataType) and not fields[-1].length:
            low = _stored(_member(self._file.stats, ["minValues", *names]), kind)
            high = _stored(_member(self._file.stats, ["maxValues", *names]), kind)
            if pa.types.is_float64(kind):
                low, high = _widened(low, high)
            if pa.types.is_floating(kind) and not self._marked:
                high = None  # writers other than Spark leave NaN, the largest number, out of the maximum
            if pa.types.is_timestamp(kind) and high is not None:
                high += _MILLISECOND
        return Known(low, high, all_null=counted and nulls == rows, no_null=counted and nulls == 0)

    def may_have(self, path: Path, values: Sequence[Any]) -> bool | None:
        return None if self._index is None else self._index(path, values)

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
        return any(normalized(found) in self._object((side, names)) for side in ("minValues", "maxValues"))

    def _found(self, side: str, path: Path) -> tuple[Any, pa.DataType] | None:
        """A bound and its type."""
        value = self._object((f"{side}Values", path.column)).get(normalized(path.keys))
        if value is None:
            array = self._tagged(NONNULL_TAG, path)
            value = array[2 if side == "min" else 3] if array is not None and len(array) > 3 else None
        return None if value is None else _typed(value)

    def _object(self, key: tuple[str, tuple[str, ...]]) -> Mapping[str, Any]:
        return self._bounds(_member(self._file.stats, [key[0], *key[1]]))

    def _bounds(self, text: Any) -> Mapping[str, Any]:
        """The bounds in a text, decoded once; none if it is damaged."""
        if not isinstance(text, str) or not text:
            return {}
        if text not in self._decoded:
            self._decoded[text] = {}
            with contextlib.suppress(DeltaVariantError, ValueError):
                self._decoded[text] = decode_bounds(text)
        return self._decoded[text]

    def _tagged(self, tag: str, path: Path) -> list[Any] | None:
        parent, last = place(path.column, path.keys)
        inner = self._bounds(self._file.tags.get(tag)).get(parent)
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
    if isinstance(value, bool):
        return value, pa.bool_()
    if isinstance(value, int):
        return value, pa.int64()
    if isinstance(value, Decimal):
        return value, pa.decimal128(38, max(0, -int(value.as_tuple().exponent)))
    if isinstance(value, float | np.float32):
        return float(value), pa.float64()
    if isinstance(value, str):
        return value, pa.string()
    if isinstance(value, np.datetime64):
        return int(value.astype("datetime64[D]").astype(np.int64)), pa.date32()
    if isinstance(value, datetime):  # and pandas.Timestamp
        stamp = pd.Timestamp(value)
        micros = stamp.as_unit("us").asm8.astype("datetime64[us]").astype(np.int64)  # in UTC; its `value` is in nanoseconds
        return int(micros), casts.LOCAL if stamp.tzinfo is None else casts.INSTANT
    if isinstance(value, date):
        return value.toordinal() - date(1970, 1, 1).toordinal(), pa.date32()
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
        if pa.types.is_float32(kind):
            return float(np.float32(value))
        if pa.types.is_floating(kind):
            return float(value)
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
