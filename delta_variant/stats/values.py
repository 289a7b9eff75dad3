"""The minimum and the maximum of one column of one file, and their forms in the Delta log.

In: Arrow arrays of one type. Out: for ordinary columns JSON as delta-spark 4.4 writes it, for Variant paths values for
`binary.encode`. Values are compared as Spark compares them: strings by their UTF-8 bytes, NaN above everything.

Invariants: no value is below `low` or above `high`. A string that is not UTF-8 has no bound. Every date and timestamp has
one, also in years that Python's calendar lacks.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Context
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delta_variant.buffers import Bytes, Int32s, Int64s, buffers_of, floats, view
from delta_variant.kernels import times
from delta_variant.kernels.texts import text_extremes
from delta_variant.types import is_string

_MICROS = {"s": 1_000_000, "ms": 1000, "us": 1}
_MICROS_A_DAY = 86_400_000_000
_EPOCH_ORDINAL = dt.date(1970, 1, 1).toordinal()
_DAYS_IN_400_YEARS = 146_097
_LOCAL, _INSTANT = pa.timestamp("us"), pa.timestamp("us", "UTC")
_EXACT = Context(prec=76)  # the most digits of a decimal in Arrow
_LAST_ASCII, _LAST_CHARACTER = "\x7f", "\U0010ffff"


def has_order(kind: pa.DataType) -> bool:
    """Whether Delta keeps a minimum and a maximum of ordinary columns of this type."""
    return (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or is_string(kind)
        or pa.types.is_date32(kind)
        or (pa.types.is_timestamp(kind) and kind.unit in _MICROS)
    )


class Extremes:
    """The smallest and the largest value of the arrays added so far.

    kind: the column's type. low, high: ints for integers, dates (in days) and timestamps (in their unit), floats, Decimals,
    bytes for strings, bools; None before the first value. They are never NaN; has_nan says whether one was added.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self.low: Any = None
        self.high: Any = None
        self.has_nan = False

    def add(self, values: pa.Array) -> None:
        """Adds an array of the type; nulls are ignored."""
        if values.null_count == len(values):
            return
        if pa.types.is_floating(self.kind):
            low, high = self._floats(values)
        else:
            low, high = _strings(values) if is_string(self.kind) else self._others(values)
        if low is not None:
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)

    def _floats(self, values: pa.Array) -> tuple[Any, Any]:
        numbers = floats(values)
        if math.isnan(numbers.min()):
            self.has_nan = True
            numbers = numbers[~np.isnan(numbers)]
            if not len(numbers):
                return None, None
        return float(numbers.min()), float(numbers.max())

    def _others(self, values: pa.Array) -> tuple[Any, Any]:
        if pa.types.is_date32(self.kind):
            values = values.view(pa.int32())
        elif pa.types.is_timestamp(self.kind):
            values = values.view(pa.int64())
        bounds = pc.min_max(values)
        return bounds["min"].as_py(), bounds["max"].as_py()


def _strings(values: pa.Array) -> tuple[bytes, bytes]:
    rows = np.empty(2, np.int64)
    text_extremes(*_texts(values), rows)
    low, high = (values[row].as_buffer().to_pybytes() for row in rows.tolist())
    return low, high


def _texts(values: pa.Array) -> tuple[Bytes, Int32s | Int64s, Bytes, int]:
    """Strings as kernels take them: bytes, offsets, Arrow's bitmap of valid ones (empty if all are), and its first bit."""
    ends, data = buffers_of(values)
    return data, ends, view(values.buffers()[0] if values.null_count else None), values.offset


class Times:
    """The earliest and the latest time in strings, if every string spells a time (`kernels.times` lists the forms)."""

    def __init__(self) -> None:
        self._result = np.zeros(5, np.int64)
        self._all = True

    def add(self, values: pa.Array) -> None:
        """Adds an array of strings; nulls are ignored."""
        if self._all and values.null_count < len(values):
            self._all = bool(times.time_extremes(*_texts(values), self._result))

    def bounds(self) -> list[Any]:
        """The bounds for the tag (`stats.tags`); [] without strings, or if one of them spells no time."""
        forms = int(self._result[times.FORMS])
        if not self._all or not forms:
            return []
        local = [scalar(at, _LOCAL) for at in self._result[[times.LOW_LOCAL, times.HIGH_LOCAL]].tolist()]
        if forms & times.LOCAL:
            return local
        instants = [scalar(at, _INSTANT) for at in self._result[[times.LOW_INSTANT, times.HIGH_INSTANT]].tolist()]
        return instants + local if forms & times.AHEAD else instants


# ----------------------------------------------------------------------------------------------------- ordinary columns


def json_bounds(extremes: Extremes, prefix: int) -> tuple[str | None, str | None]:
    """The smallest and the largest value as JSON, as delta-spark writes it; None if there is none."""
    if extremes.has_nan:
        return ('"NaN"' if extremes.low is None else _json(extremes.kind, extremes.low)), '"NaN"'
    if extremes.low is None:
        return None, None
    if is_string(extremes.kind):
        return _json_strings(extremes.low, extremes.high, prefix)
    return _json(extremes.kind, extremes.low), _json(extremes.kind, extremes.high)


def _json(kind: pa.DataType, value: Any) -> str:
    if pa.types.is_date32(kind):
        return f'"{_date_text(value)}"'
    if pa.types.is_timestamp(kind):
        return f'"{timestamp_text(value * _MICROS[kind.unit], kind.tz)}"'
    if pa.types.is_floating(kind):
        if math.isinf(value):
            return '"Infinity"' if value > 0 else '"-Infinity"'
        return str(np.float32(value)) if pa.types.is_float32(kind) else repr(value)
    return str(value)


def _json_strings(low: bytes, high: bytes, prefix: int) -> tuple[str | None, str | None]:
    try:
        first, last = low.decode()[:prefix], _cut_up(high.decode(), prefix)
    except UnicodeDecodeError:
        return None, None
    return json.dumps(first, ensure_ascii=False), None if last is None else json.dumps(last, ensure_ascii=False)


def _cut_up(text: str, prefix: int) -> str | None:
    """A string of about `prefix` UTF-16 units that is not below the text, by delta-spark's rules; None if there is none.

    The character after the cut is replaced by a larger one: U+007F if that is enough, else U+10FFFF.
    """
    units = size = 0
    if len(text.encode("utf-16-le")) // 2 <= prefix:
        return text
    if prefix == 0:
        return None
    while units < prefix:
        units += 2 if text[size] > "\uffff" else 1
        size += 1
    while size < len(text) and text[size] == _LAST_CHARACTER:
        units += 2
        size += 1
    if units > 2 * prefix:
        return None
    if size == len(text):
        return text
    return text[:size] + (_LAST_ASCII if text[size] < _LAST_ASCII else _LAST_CHARACTER)


def _date_text(days: int) -> str:
    """A date in ISO 8601, with a sign before years that do not have four digits. Unlike Python's calendar, takes any int."""
    cycles, days = divmod(days + _EPOCH_ORDINAL - 1, _DAYS_IN_400_YEARS)
    date = dt.date.fromordinal(days + 1)
    year = date.year + 400 * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{date.month:02d}-{date.day:02d}"


def timestamp_text(micros: int, zone: str | None, digits: int = 3) -> str:
    """A timestamp in ISO 8601, rounded down to `digits` decimals of a second; statistics have three. A zone becomes UTC."""
    days, micros = divmod(micros, _MICROS_A_DAY)
    seconds, micros = divmod(micros, 1_000_000)
    time = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{micros:06d}"[: 9 + digits]
    return f"{_date_text(days)}T{time}{'' if zone is None else 'Z'}"


# -------------------------------------------------------------------------------------------------------- Variant paths


def variant_bounds(extremes: Extremes, prefix: int) -> tuple[Any, Any]:
    """The smallest and the largest value for a Variant object, both of the column's type; None if there is none.

    Arrow scalars keep the type (`binary.encode`), since the two bounds of a path must have one type (Delta variantShredding).
    """
    kind, low, high = extremes.kind, extremes.low, extremes.high
    if extremes.has_nan:  # the largest number, as Spark orders them
        low, high = math.nan if low is None else low, math.nan
    if low is None:
        return None, None
    if is_string(kind):
        return _variant_strings(low, high, prefix)
    if pa.types.is_floating(kind):
        low, high = -0.0 if low == 0 else low, 0.0 if high == 0 else high  # either zero may be in the file
    return scalar(low, kind), scalar(high, kind)


def scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """An Arrow scalar of a type of fixed size. value: as `Extremes` holds it.

    Unlike `pa.scalar`, this does not import pandas, which takes 0.8 s in each new Python worker.
    """
    if pa.types.is_decimal(kind):
        data = int(value.scaleb(kind.scale, _EXACT)).to_bytes(kind.byte_width, "little", signed=True)
    elif pa.types.is_floating(kind):
        data = np.dtype(f"f{kind.byte_width}").type(value).tobytes()
    else:
        data = int(value).to_bytes(-(-kind.bit_width // 8), "little", signed=not pa.types.is_boolean(kind))
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(data)])[0]


def _variant_strings(low: bytes, high: bytes, prefix: int) -> tuple[str | None, str | None]:
    try:
        first, last = low.decode(), high.decode()
    except UnicodeDecodeError:
        return None, None
    cut = last if len(last) <= prefix else last[:prefix] + _LAST_CHARACTER
    return first[:prefix], cut if cut.encode() >= high else None
