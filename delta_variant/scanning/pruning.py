"""Which files, and which row groups of a file, can have rows for which a predicate is true.

In: a predicate, and what is known of the rows: the log (`LogEvidence`) or the statistics in a footer
(`row_groups.RowGroupEvidence`). Out: False only if no row can match. Comparisons of Variant paths are translated by `skipping`,
as those of Spark's queries are, and its predicates on bounds are evaluated here in Python; ordinary columns have Delta's
minimum, maximum and null count, or the value of their partition.

Invariant: what is not known, damaged, or of another type keeps the rows.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, tzinfo
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from delta_variant import messages, skipping
from delta_variant import types as t
from delta_variant.errors import DeltaVariantError
from delta_variant.paths import normalized
from delta_variant.scanning import casts, schemas
from delta_variant.scanning.expressions import (
    And,
    Cast,
    Column,
    Comparison,
    Get,
    In,
    IsNull,
    Keys,
    Like,
    Literal,
    Not,
    Or,
    Value,
    Values,
    evaluate,
    inputs,
)
from delta_variant.scanning.schemas import Field, Kind, Struct, Variant, spark_name
from delta_variant.skipping.bounds import accepted
from delta_variant.skipping.casts import TIMES
from delta_variant.stats import BOUNDS_TAG, BOUNDS_TAG_VALUES, NONNULL_TAG, TIMES_TAG, decode_bounds, place

if TYPE_CHECKING:
    from delta_variant.scanning.index import Index
    from delta_variant.scanning.log import File

_FLIPPED = {"=": "=", "<>": "<>", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MOST_VALUES = 10_000
"""A filter is asked for at most so many values."""
_MILLISECOND = 999  # statistics have times rounded down to milliseconds


@dataclass(frozen=True)
class Known:
    """What is known of the values of an ordinary column. Bounds are in the form of `casts.plain`."""

    low: Any = None
    high: Any = None
    all_null: bool = False
    no_null: bool = False


class Evidence(Protocol):
    """What is known of some rows."""

    def column(self, fields: tuple[Field, ...]) -> Known | None:
        """Of an ordinary column."""

    def bound(self, side: str, path: skipping.Path) -> Any:
        """The minimum or the maximum of a path, cast as the path says; None if it is not known."""

    def has_values(self, path: skipping.Path) -> bool | None:
        """Whether any row has the path; None if that is not known."""

    def may_have(self, path: skipping.Path, values: Sequence[Any]) -> bool | None:
        """Whether a row may have one of these values at a path; None if that is not known."""

    def partition(self, fields: tuple[Field, ...]) -> Literal | None:
        """The value that a column has in all rows."""


class Predicate:
    """A predicate, translated once for all files."""

    def __init__(self, value: Value, schema: Struct, at: tzinfo) -> None:
        self.value, self._at = value, at
        self.inputs = tuple(dict.fromkeys(inputs(value)))
        """The columns and paths that it reads, each once."""
        self._constants: list[list[Any]] = []
        self._joined: dict[tuple[int, ...], list[Any]] = {}
        self._others: list[Value] = []
        log = skipping.Log(tuple(_variants(schema, ())), nonnull=True, times=True, index=_MOST_VALUES)
        projection = skipping.Projection(log)
        self._file, _ = skipping.translate(skipping.merged(self._converted(value)), projection)
        self._bounds, self._members = tuple(projection.bounds), tuple(projection.members)

    def may_match(self, evidence: Evidence) -> bool:
        """Whether a row can match."""
        return self._holds(self._file, evidence) is not False

    # ---- to the predicates of `skipping` --------------------------------------------------------------------------

    def _converted(self, value: Value) -> skipping.Predicate:
        match value:
            case And(parts):
                return skipping.And(tuple(map(self._converted, parts)))
            case Or(parts):
                return skipping.Or(tuple(map(self._converted, parts)))
            case Literal(constant, _):
                return skipping.And(()) if constant is True else skipping.Or(())
        if not any(isinstance(one, Get) for one in inputs(value)):
            self._others.append(value)
            return skipping.Other(len(self._others) - 1, str(value))
        found = self._leaf(value)
        return skipping.Unknown(f"{value}: bounds say nothing about it") if found is None else found

    def _leaf(self, value: Value) -> skipping.Predicate | None:
        match value:
            case Get() | Cast():
                return self._comparison("=", value, Literal(True, pa.bool_()))
            case Not(Get() as child):
                return self._comparison("=", child, Literal(False, pa.bool_()))
            case Comparison(op, left, Literal() as right):
                return self._comparison(op, left, right)
            case Comparison(op, Literal() as left, right):
                return self._comparison(_FLIPPED[op], right, left)
            case In(child, values, no):
                path = _path(child)
                if path is None:
                    return None
                known = [one.value for one in values if one.value is not None]
                return skipping.In(path, (self._constant(path, known, null=len(known) < len(values)),), no)
            case Like(child, prefix, _, no):
                path = _path(child) if prefix else None
                if path is None or path.result != "string":
                    return None
                starts = skipping.StartsWith(path, self._constant(path, [prefix]))
                return None if no else skipping.And((starts, skipping.Unknown()))
            case IsNull(child, negated=True):
                path = _path(child)
                return None if path is None else skipping.NotNull(path)
        return None

    def _comparison(self, op: str, child: Value, constant: Literal) -> skipping.Predicate | None:
        path = _path(child)
        if path is None or path.result == "variant" or (op == "<=>" and constant.value is None):
            return None
        values = [] if constant.value is None else [constant.value]
        return skipping.Comparison(op, path, self._constant(path, values, null=not values))

    def _constant(self, path: skipping.Path, values: list[Any], *, null: bool = False) -> skipping.Constants:
        self._constants.append(values)
        texts = tuple("true" if value is True else str(value) for value in values)
        return skipping.Constants(path.result, texts, len(values), null, len(self._constants) - 1)

    # ---- evaluation -----------------------------------------------------------------------------------------------

    def _holds(self, predicate: messages.FilePredicate, evidence: Evidence) -> bool | None:
        match predicate:
            case messages.AllOf(parts):
                return _all(self._holds(part, evidence) for part in parts)
            case messages.AnyOf(parts):
                found = _all(_not(self._holds(part, evidence)) for part in parts)
                return _not(found)
            case messages.OtherColumns(number):
                return None if self._ordinary(self._others[number], evidence) else False
            case messages.HasValues(bound):
                return evidence.has_values(self._bounds[bound][1])
            case messages.Indexed(member, constants):
                return evidence.may_have(self._members[member], self._values(constants))
            case messages.Compare(op, bound, constant):
                found = evidence.bound(*self._bounds[bound])
                return None if found is None else _check(op, found, self._constants[constant][0])
            case messages.HasPrefix(bound, constant, negated):
                found = evidence.bound(*self._bounds[bound])
                return None if found is None else bool(found.startswith(self._constants[constant][0])) != negated
            case messages.Between(low, high, constants):
                least, largest = evidence.bound(*self._bounds[low]), evidence.bound(*self._bounds[high])
                return _between(least, largest, self._values(constants))
            case messages.Differs(low, high, constants):
                least, largest = evidence.bound(*self._bounds[low]), evidence.bound(*self._bounds[high])
                return _differs(least, largest, self._values(constants))

    def _values(self, numbers: tuple[int, ...]) -> list[Any]:
        if numbers not in self._joined:
            self._joined[numbers] = [value for number in numbers for value in self._constants[number]]
        return self._joined[numbers]

    def _ordinary(self, value: Value, evidence: Evidence) -> bool:
        """Whether a row can match a predicate on ordinary columns."""
        columns = [one for one in inputs(value) if isinstance(one, Column)]
        partition = {column.fields: evidence.partition(column.fields) for column in columns}
        if all(constant is not None for constant in partition.values()):
            try:
                constants = {fields: one for fields, one in partition.items() if one is not None}
                return evaluate(value, _OneRow(constants), self._at)[0].as_py() is True
            except DeltaVariantError:
                return True
        match value:
            case Comparison(op, left, Literal(constant, _)):
                return self._compared(op, left, constant, evidence)
            case Comparison(op, Literal(constant, _), right):
                return self._compared(_FLIPPED[op], right, constant, evidence)
            case In(child, values, no):
                known = [one.value for one in values if one.value is not None]
                if no and len(known) < len(values):
                    return False
                range_ = self._range(child, evidence)
                if range_ is None:
                    return True
                found = (_differs if no else _between)(range_.low, range_.high, known)
                return not range_.all_null and found is not False
            case Like(child, prefix, _, negated=False) if prefix:
                range_ = self._range(child, evidence)
                if range_ is None:
                    return True
                behind = range_.low is not None and range_.low > prefix and not range_.low.startswith(prefix)
                return not (range_.all_null or behind or (range_.high is not None and range_.high < prefix))
            case IsNull(Column(fields), no):
                range_ = evidence.column(fields)
                return range_ is None or not (range_.all_null if no else range_.no_null)
        return True

    def _compared(self, op: str, child: Value, constant: Any, evidence: Evidence) -> bool:
        if constant is None:
            return op == "<=>"
        found = self._range(child, evidence)
        if found is None:
            return True
        if found.all_null:
            return False
        if op in ("=", "<=>"):
            return _between(found.low, found.high, [constant]) is not False
        if op == "<>":
            return _differs(found.low, found.high, [constant]) is not False
        bound = found.low if op[0] == "<" else found.high
        return bound is None or _check(op, bound, constant)

    def _range(self, value: Value, evidence: Evidence) -> Known | None:
        """What is known of a column, or of casts of it that keep the order."""
        if isinstance(value, Column):
            return evidence.column(value.fields)
        if not isinstance(value, Cast) or not skipping.keeps_order(spark_name(value.child.kind), spark_name(value.kind)):
            return None
        inner = self._range(value.child, evidence)
        source = value.child.kind
        if inner is None or not isinstance(source, pa.DataType):
            return None
        return replace(
            inner, low=_cast(inner.low, source, value.kind, self._at), high=_cast(inner.high, source, value.kind, self._at)
        )


def _cast(value: Any, source: pa.DataType, target: pa.DataType, at: tzinfo) -> Any:
    return None if value is None else casts.plain(casts.cast(casts.made([value], source), target, at))[0]


def _variants(kind: Kind, names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(kind, Variant):
        yield names
    elif isinstance(kind, Struct):
        for field in kind.fields:
            yield from _variants(field.kind, (*names, field.physical))


def _path(value: Value) -> skipping.Path | None:
    """The path that a side of a comparison is, for `skipping`; None if it is something else."""
    if isinstance(value, Get):
        keys = tuple(key for key in value.keys if isinstance(key, str))
        if len(keys) < len(value.keys):
            return None
        column = tuple(field.physical for field in value.fields)
        return skipping.Path(column, keys, spark_name(value.kind), name=".".join(field.name for field in value.fields))
    if not isinstance(value, Cast):
        return None
    inner, target = _path(value.child), spark_name(value.kind)
    if inner is None:
        return None
    if inner.result == "string" and not inner.casts and target in TIMES:
        return replace(inner, type=target, text=True)
    return replace(inner, casts=(*inner.casts, target)) if skipping.keeps_order(inner.result, target) else None


class _OneRow:
    """The partition values of a file, as one row."""

    count = 1

    def __init__(self, constants: Mapping[tuple[Field, ...], Literal]) -> None:
        self._constants = constants

    def column(self, fields: tuple[Field, ...]) -> pa.Array:
        constant = self._constants[fields]
        return casts.made([constant.value], constant.kind)

    def path(self, fields: tuple[Field, ...], keys: Keys) -> Values:
        raise NotImplementedError


# ---- three-valued logic over bounds ---------------------------------------------------------------------------------


def _all(parts: Iterator[bool | None]) -> bool | None:
    whole: bool | None = True
    for part in parts:
        if part is False:
            return False
        whole = None if part is None else whole
    return whole


def _not(value: bool | None) -> bool | None:  # three-valued
    return None if value is None else not value


def _order(value: Any) -> Any:
    """A key for Spark's order: NaN is the largest number."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def _keys(*values: Any) -> list[Any]:
    """Keys of values that are compared with each other: if any is a float, all are."""
    floats = any(isinstance(value, float) for value in values)
    return [_order(float(value) if floats and isinstance(value, int | Decimal) else value) for value in values]


def _check(op: str, bound: Any, constant: Any) -> bool:
    left, right = _keys(bound, constant)
    return bool({"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[op])


def _between(low: Any, high: Any, values: Sequence[Any]) -> bool | None:
    fits = [
        value
        for value in values
        if not (low is not None and _check("<", value, low)) and not (high is not None and _check(">", value, high))
    ]
    return False if not fits else None if low is None or high is None else True


def _differs(low: Any, high: Any, values: Sequence[Any]) -> bool | None:
    """Whether bounds allow values other than these. Bounds of strings may be cut, so only equal whole bounds prove anything."""
    if low is None or high is None:
        return None
    one, other, *_ = _keys(low, high)
    if one != other or isinstance(low, float):
        return True
    return not any(_keys(low, value)[0] == _keys(low, value)[1] for value in values)


# ---- the log --------------------------------------------------------------------------------------------------------


class LogEvidence:
    """What the Add action of a file says of its rows, and its filters, if there is an index of values."""

    def __init__(self, file: File, table: TableFacts, index: Index | None = None) -> None:
        self._file, self._table, self._index = file, table, index
        self._marked = file.tags.get(BOUNDS_TAG) in BOUNDS_TAG_VALUES
        self._decoded: dict[Any, Mapping[str, Any]] = {}
        self._known: dict[tuple[Field, ...], Known | None] = {}

    def partition(self, fields: tuple[Field, ...]) -> Literal | None:
        return self._table.partition(self._file, fields)

    def column(self, fields: tuple[Field, ...]) -> Known | None:
        if fields not in self._known:
            self._known[fields] = self._column(fields)
        return self._known[fields]

    def _column(self, fields: tuple[Field, ...]) -> Known | None:
        constant = self.partition(fields)
        if constant is not None:
            null = constant.value is None
            return Known(constant.value, constant.value, all_null=null, no_null=not null)
        names, kind = [field.physical for field in fields], fields[-1].kind
        if any(field.collated for field in fields):
            return None
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

    def has_values(self, path: skipping.Path) -> bool | None:
        array = self._tagged(NONNULL_TAG, path)
        if array is None:
            return None
        return len(array) > 2 or (path.result == "variant" and array[0] > 0)

    def may_have(self, path: skipping.Path, values: Sequence[Any]) -> bool | None:
        return None if self._index is None else self._index.may_have(self._file, path, values)

    def bound(self, side: str, path: skipping.Path) -> Any:
        try:
            found = self._found(side, path)
            if found is not None:
                name, value, kind = found
                log = self._table.log
                if name in accepted(path, log, needs_marker=False) or (
                    self._marked and name in accepted(path, log, needs_marker=True)
                ):
                    return cast_bound(value, kind, path, self._table.at)
            if path.type in TIMES and self._marked:
                return self._time(side, path)
        except (DeltaVariantError, ValueError, TypeError, KeyError, IndexError, OverflowError, ArithmeticError):
            pass  # damaged statistics say nothing
        return None

    def has_bounds(self, fields: tuple[Field, ...], keys: Keys) -> bool:
        """Whether statistics have bounds for a path (protocol/README.md, T1)."""
        if not all(isinstance(key, str) for key in keys):
            return False
        names, place_ = tuple(field.physical for field in fields), normalized([str(key) for key in keys])
        return any(place_ in self._object((side, names)) for side in ("minValues", "maxValues"))

    def _found(self, side: str, path: skipping.Path) -> tuple[str, Any, pa.DataType] | None:
        """A bound, with the names of its type in Spark and in Arrow."""
        value = self._object((f"{side}Values", path.column)).get(normalized(path.keys))
        if value is None:
            array = self._tagged(NONNULL_TAG, path)
            value = array[2 if side == "min" else 3] if array is not None and len(array) > 3 else None
        return None if value is None else _typed(value)

    def _object(self, key: tuple[str, tuple[str, ...]]) -> Mapping[str, Any]:
        if key not in self._decoded:
            self._decoded[key] = {}
            text = _member(self._file.stats, [key[0], *key[1]])
            with contextlib.suppress(DeltaVariantError, ValueError):
                self._decoded[key] = decode_bounds(text) if isinstance(text, str) else {}
        return self._decoded[key]

    def _tagged(self, tag: str, path: skipping.Path) -> list[Any] | None:
        if tag not in self._decoded:
            self._decoded[tag] = {}
            with contextlib.suppress(DeltaVariantError, ValueError):
                self._decoded[tag] = decode_bounds(self._file.tags[tag]) if self._file.tags.get(tag) else {}
        parent, last = place(path.column, path.keys)
        inner = self._decoded[tag].get(parent)
        found = inner.get(last) if isinstance(inner, dict) else None
        return found if isinstance(found, list) and len(found) >= 2 else None

    def _time(self, side: str, path: skipping.Path) -> Any:
        """The first or the last of the times that strings spell (protocol/README.md, M3)."""
        array = self._tagged(TIMES_TAG, path)
        if array is None:
            return None
        first = side == "min"
        name, value, kind = _typed(array[0 if first else 1])
        if path.type == "timestamp":
            if name == "TIMESTAMP_NTZ":  # an instant in some time zone
                value += (-1 if first else 1) * 18 * 3_600_000_000
                kind = casts.INSTANT
        elif len(array) > 3:
            name, value, kind = _typed(array[2 if first else 3])
        elif name == "TIMESTAMP":
            kind = casts.LOCAL
        return cast_bound(value, kind, path, self._table.at)


def cast_bound(value: Any, kind: pa.DataType, path: skipping.Path, at: tzinfo) -> Any:
    """A bound in the type that a path is compared in; None if the cast fails."""
    for name in (path.type, *path.casts):
        target = schemas.of_spark(name)
        value, kind = _cast(value, kind, target, at), target
    return value


def _typed(value: Any) -> tuple[str, Any, pa.DataType]:
    """A bound as `binary.decode` returns it: the name of its type, its plain value and its Arrow type."""
    if isinstance(value, bool):
        return "BOOLEAN", value, pa.bool_()
    if isinstance(value, int):
        return "BIGINT", value, pa.int64()
    if isinstance(value, Decimal):
        return "DECIMAL", value, pa.decimal128(38, max(0, -int(value.as_tuple().exponent)))
    if isinstance(value, float | np.float32):
        return "DOUBLE", float(value), pa.float64()
    if isinstance(value, str):
        return "STRING", value, pa.string()
    if isinstance(value, np.datetime64):
        return "DATE", int(value.astype("datetime64[D]").astype(np.int64)), pa.date32()
    if isinstance(value, datetime):  # and pandas.Timestamp
        micros, kind = casts.moment(value)
        return "TIMESTAMP_NTZ" if kind == casts.LOCAL else "TIMESTAMP", micros, kind
    if isinstance(value, date):
        return "DATE", value.toordinal() - date(1970, 1, 1).toordinal(), pa.date32()
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
            return _cast(str(value), pa.string(), kind, casts.zone("UTC"))
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


class TableFacts:
    """What is the same for all files of a table."""

    def __init__(self, schema: Struct, partition_columns: frozenset[str], at: tzinfo) -> None:
        self.at, self._partition_columns = at, partition_columns
        self.log = skipping.Log(tuple(_variants(schema, ())), nonnull=True, times=True)

    def partition(self, file: File, fields: tuple[Field, ...]) -> Literal | None:
        """The value of a partition column in a file; None for other columns. Raises DeltaVariantError if it is no value."""
        field = fields[0]
        if len(fields) > 1 or field.name not in self._partition_columns:
            return None
        assert isinstance(field.kind, pa.DataType)
        text = file.partition.get(field.physical)
        if not text:
            return Literal(None, field.kind)
        found = _cast(text, pa.string(), field.kind, self.at)
        if found is None:
            raise DeltaVariantError(
                f"{file.path}: its partition value {text!r} is no {spark_name(field.kind)}: the log is damaged"
            )
        return Literal(found.ljust(field.length) if field.length else found, field.kind)
