"""Spark's casts between types that have an order, strings and binaries, for Arrow arrays.

In: an array, and the type asked for. Out: an array of that type, null where the cast fails: this is Spark's TRY mode, which
`variant_get` has, too. Callers that follow ANSI mode compare the nulls. Source: Spark 4.2, `Cast`, `UTF8StringUtils`,
`SparkDateTimeUtils`.

Common pairs are computed by Arrow or NumPy. All others are computed in Python, once for each distinct value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone, tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from delta_variant import types as t
from delta_variant.errors import UnsupportedFeatureError
from delta_variant.stats.values import timestamp_text

INSTANT, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
_MICROS, _DAY = 1_000_000, 86_400_000_000
_EPOCH = date(1970, 1, 1).toordinal()
_CYCLE_DAYS, _CYCLE_YEARS = 146_097, 400
_CYCLE = _CYCLE_DAYS * _DAY
_FIRST, _LAST = (date(2, 1, 1).toordinal() - _EPOCH) * _DAY, (date(9998, 1, 1).toordinal() - _EPOCH) * _DAY
_EXACT = Context(prec=100)
_LONG = range(-(2**63), 2**63)
_DAYS = range(-(2**31), 2**31)
_INTEGER = re.compile(r"[+-]?0*(\d{1,19})", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_FLOAT = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]?", re.ASCII)
_HEX = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+)[fFdD]?", re.ASCII)
_JAVA_NAN = ("+NaN", "-NaN")
_SPECIAL = {"inf": math.inf, "+inf": math.inf, "infinity": math.inf, "+infinity": math.inf, "-inf": -math.inf,
            "-infinity": -math.inf, "nan": math.nan}  # fmt: skip
_BOOLEANS = {**dict.fromkeys(("t", "true", "y", "yes", "1"), True), **dict.fromkeys(("f", "false", "n", "no", "0"), False)}
_DATE = re.compile(r"([+-]?)(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.DOTALL | re.ASCII)
_CLOCK = r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?(.*))?)?"  # a zone stands after seconds only
_TIME = re.compile(rf"([+-]?)(\d{{4,6}})(?:-(\d{{1,2}})(?:-(\d{{1,2}})(?:[ T]{_CLOCK})?)?)?", re.DOTALL | re.ASCII)
_TODAY = re.compile(rf"(?:T(?=\d)|(?=\d{{1,2}}:)){_CLOCK}", re.DOTALL | re.ASCII)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(?=\d{1,2}(?::|$)|\d{4}$|\d{6}$)(\d{1,2})(?::?(\d{1,2})(?::?(\d{2}))?)?", re.ASCII)
_JAVA_TRIMMED = "".join(map(chr, range(33)))  # what Java trims, for numbers
_TRIMMED = _JAVA_TRIMMED + "\x7f"  # what Spark trims, for all others
_SHORT_ZONES = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires", "ART": "Africa/Cairo",
    "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka", "CAT": "Africa/Harare",
    "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai", "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland", "PLT": "Asia/Karachi", "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
    "EST": "-05:00", "MST": "-07:00", "HST": "-10:00",
}  # fmt: skip
"""Java's `ZoneId.SHORT_IDS`."""
_MAX_OFFSET = 18 * 3600


@lru_cache(maxsize=64)
def zone(name: str) -> tzinfo:
    """A time zone: a region, or an offset as +02:00. Raises UnsupportedFeatureError for a name that is none."""
    found = _zone_of(name) if isinstance(name, str) else None
    if found is None:
        raise UnsupportedFeatureError(f"timezone={name!r} is no time zone: write it as Europe/Berlin or +02:00")
    return found


def cast(array: pa.Array, target: pa.DataType, at: tzinfo = timezone.utc, *, in_variant: bool = False) -> pa.Array:
    """The array as Spark casts it in TRY mode; null where the cast fails, and where Spark has no cast.

    target: a type of `PRIMITIVES` that Spark has. at: the time zone of the session. in_variant: whether the values are those of
    Variants. Seconds too large for a timestamp are then null; those of columns become the last timestamp, or wrap around if
    they are decimals. Decimals become INT through DOUBLE, in columns those of more than 18 digits.
    """
    source = array.type
    if source == target:
        return array
    if len(array) == array.null_count or pa.types.is_null(source):
        return pa.nulls(len(array), target)
    if in_variant and pa.types.is_decimal(source) and pa.types.is_integer(target) and target != pa.int64():
        array = cast(array, pa.float64())
        source = array.type
    found = _fast(array, source, target, at)
    return found if found is not None else _by_value(array, target, at, in_variant=in_variant)


def castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether Spark casts from a Variant primitive to a type at all (`Cast.canAnsiCast`)."""
    if source == target or pa.types.is_null(source) or t.is_string(target):
        return True
    if t.is_string(source):
        return True
    if t.is_binary(source) or t.is_binary(target):
        return False
    if pa.types.is_date(source):
        return t.is_time(target)
    if pa.types.is_date(target):
        return t.is_time(source)
    if LOCAL in (source, target):
        return t.is_time(source) and t.is_time(target)
    if INSTANT in (source, target):
        other = target if source == INSTANT else source
        return not pa.types.is_boolean(other)
    return True


def _fast(array: pa.Array, source: pa.DataType, target: pa.DataType, at: tzinfo) -> pa.Array | None:
    if pa.types.is_integer(source):
        if pa.types.is_integer(target):
            return _within(array, np.iinfo(target.to_pandas_dtype()), target)
        if pa.types.is_floating(target):
            return array.cast(target, safe=False)
        if pa.types.is_boolean(target):
            return pc.not_equal(array, pa.scalar(0, source))
        if pa.types.is_string(target):
            return array.cast(target)
    if pa.types.is_floating(source) and pa.types.is_floating(target):
        return array.cast(target, safe=False)
    if pa.types.is_boolean(source) and (pa.types.is_integer(target) or pa.types.is_string(target)):
        return array.cast(target)
    if pa.types.is_decimal(source) and source.precision <= 18:
        return _decimals(array, source, target)
    if source == INSTANT and at is timezone.utc and target == LOCAL:
        return array.view(pa.int64()).view(LOCAL)
    if source == LOCAL and at is timezone.utc and target == INSTANT:
        return array.view(pa.int64()).view(INSTANT)
    if pa.types.is_timestamp(source) and pa.types.is_date(target) and (source == LOCAL or at is timezone.utc):
        days = np.floor_divide(np.asarray(array.view(pa.int64()).fill_null(0)), _DAY).astype(np.int32)
        return pa.array(days, pa.int32(), mask=np.asarray(array.is_null())).view(pa.date32())
    if pa.types.is_string(source):
        return _strings(array, target)
    return None


def _within(array: pa.Array, limits: Any, target: pa.DataType) -> pa.Array:
    ends = pc.min_max(array)
    if ends["min"].as_py() < limits.min or ends["max"].as_py() > limits.max:
        wide = array.cast(pa.int64())
        fits = pc.and_(pc.greater_equal(wide, int(limits.min)), pc.less_equal(wide, int(limits.max)))
        array = pc.if_else(fits, wide, pa.scalar(None, pa.int64()))
    return array.cast(target)


def _decimals(array: pa.Array, source: pa.DataType, target: pa.DataType) -> pa.Array | None:
    """Casts of decimals of up to 18 digits, by their unscaled values."""
    wide = array.cast(pa.decimal128(source.precision, source.scale)) if source.bit_width != 128 else array
    unscaled = np.frombuffer(wide.buffers()[1], np.int64)[2 * wide.offset : 2 * (wide.offset + len(wide)) : 2]
    mask = np.asarray(array.is_null())
    unscaled = np.where(mask, 0, unscaled)
    if pa.types.is_floating(target) and np.abs(unscaled).max() < 1 << 53:
        doubles = unscaled / np.float64(10) ** source.scale
        if pa.types.is_float64(target):
            return pa.array(doubles, target, mask=mask)
    if pa.types.is_integer(target):
        power = 10**source.scale
        whole = np.where(unscaled < 0, -(-unscaled // power), unscaled // power)
        return _within(pa.array(whole, pa.int64(), mask=mask), np.iinfo(target.to_pandas_dtype()), target)
    if pa.types.is_boolean(target):
        return pa.array(unscaled != 0, target, mask=mask)
    room = target.precision - target.scale >= source.precision - source.scale if pa.types.is_decimal(target) else False
    return wide.cast(target) if room and target.scale >= source.scale else None


def _strings(array: pa.Array, target: pa.DataType) -> pa.Array | None:
    """Casts of strings that Arrow takes as a whole; None if any of them has another form."""
    if pa.types.is_binary(target):
        return array.cast(target)
    whole = None
    if pa.types.is_integer(target):
        whole = r"^[+-]?[0-9]{1,18}$"
    elif target in (INSTANT, LOCAL, pa.date32()):
        form = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
        whole = f"{form}$" if target == pa.date32() else rf"{form}[ T][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,6}})?"
        whole += "" if target == pa.date32() else "(Z|[+-][0-9]{2}:[0-9]{2})$" if target == INSTANT else "$"
    if whole is None or not pc.all(pc.match_substring_regex(array, whole)).as_py():
        return None
    try:
        if pa.types.is_integer(target):
            return _within(array.cast(pa.int64()), np.iinfo(target.to_pandas_dtype()), target)
        if target == INSTANT and pc.any(pc.match_substring_regex(array, "[+-][0-9]{2}:[0-9]{2}$")).as_py():
            return None
        return array.cast(target)
    except pa.ArrowInvalid:
        return None


# ---- value by value -------------------------------------------------------------------------------------------------


def _by_value(array: pa.Array, target: pa.DataType, at: tzinfo, *, in_variant: bool) -> pa.Array:
    encoded = array.dictionary_encode()
    convert = _converter(array.type, target, at)
    if target == INSTANT and not in_variant and not t.is_time(array.type) and not t.is_string(array.type):
        convert = _seconds_of_column
    values = [None if value is None else convert(value) for value in plain(encoded.dictionary)]
    return made(values, target).take(encoded.indices)


def plain(array: pa.Array) -> list[Any]:
    """The values as ints (also for dates, in days, and timestamps, in microseconds), floats, Decimals, bools, str, bytes."""
    if pa.types.is_date(array.type):
        array = array.view(pa.int32())
    elif pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    return list(array.to_pylist())


def made(values: list[Any], kind: pa.DataType) -> pa.Array:
    """The inverse of `plain`."""
    if pa.types.is_date(kind):
        return pa.array(values, pa.int32()).view(kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).view(kind)
    if pa.types.is_decimal(kind):
        values = [
            None if value is None else Decimal(value).quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
            for value in values
        ]
    return pa.array(values, kind)


def moment(value: datetime) -> tuple[int, pa.DataType]:
    """The microseconds of a time as `binary.decode` returns it, and its type."""
    stamp = pd.Timestamp(value)
    micros = int(stamp.as_unit("us").asm8.astype("datetime64[us]").astype(np.int64))  # in UTC; its `value` is in nanoseconds
    return micros, LOCAL if stamp.tzinfo is None else INSTANT


def _converter(source: pa.DataType, target: pa.DataType, at: tzinfo) -> Callable[[Any], Any]:
    if not castable(source, target):
        return lambda _: None
    if pa.types.is_string(target):
        return _to_string(source, at)
    if pa.types.is_string(source):
        return _from_string(target, at)
    if pa.types.is_boolean(target):
        return lambda value: value != 0
    if t.is_time(source):
        to_micros = _to_micros(source, at) if target != LOCAL else _to_local(source, at)
        if pa.types.is_timestamp(target):
            return to_micros
        if pa.types.is_date(target):
            local = _to_local(source, at)
            return lambda value: local(value) // _DAY
        if pa.types.is_integer(target):
            limits = np.iinfo(target.to_pandas_dtype())
            return lambda value: _limited(value // _MICROS, limits.min, limits.max)
        if pa.types.is_floating(target):
            return lambda value: _as_float(float(value) / _MICROS, target)
        return lambda value: _as_decimal(Decimal(value).scaleb(-6, _EXACT), target)
    if target == INSTANT:
        return _number_to_micros
    if pa.types.is_integer(target):
        limits = np.iinfo(target.to_pandas_dtype())
        if pa.types.is_decimal(source) and target != pa.int64():
            return lambda value: _as_integer(float(value), limits.min, limits.max)
        return lambda value: _as_integer(value, limits.min, limits.max)
    if pa.types.is_decimal(source) and pa.types.is_float32(target):
        return lambda value: _nearest_float(str(value))
    if pa.types.is_floating(target):
        return lambda value: _as_float(float(value), target)
    return lambda value: _as_decimal(_decimal_of(value), target)


def _limited(value: int, least: int, most: int) -> int | None:
    return value if least <= value <= most else None


def _as_integer(value: Any, least: int, most: int) -> int | None:
    if isinstance(value, float):
        if not math.isfinite(value) or math.floor(value) > float(most) or math.ceil(value) < float(least):
            return None
        return max(least, min(most, math.trunc(value)))
    return _limited(int(value), int(least), int(most))


def _as_float(value: float, target: pa.DataType) -> float:
    if pa.types.is_float32(target):
        with np.errstate(over="ignore"):
            return float(np.float32(value))
    return value


def _decimal_of(value: Any) -> Decimal | None:
    if isinstance(value, float):
        return Decimal(repr(value)) if math.isfinite(value) else None
    return Decimal(int(value)) if isinstance(value, bool) else Decimal(value)


def _as_decimal(value: Decimal | None, target: pa.DataType) -> Decimal | None:
    if value is None or not value.is_finite() or value.adjusted() > 60:
        return None
    rounded = value.quantize(Decimal(1).scaleb(-target.scale), ROUND_HALF_UP, _EXACT)
    return rounded if rounded.copy_abs() < Decimal(10) ** (target.precision - target.scale) else None


def _number_to_micros(value: Any) -> int | None:
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        micros = value * _MICROS
        return int(micros) if math.isfinite(micros) and int(micros) in _LONG else None
    micros = _decimal_micros(value) if isinstance(value, Decimal) else value * _MICROS
    return micros if micros in _LONG else None


def _decimal_micros(seconds: Decimal) -> int:
    return int(_EXACT.multiply(seconds, Decimal(_MICROS)))


def _seconds_of_column(value: Any) -> int | None:
    found = _number_to_micros(value)
    if found is not None or isinstance(value, float):
        return found
    if isinstance(value, Decimal):
        micros = _decimal_micros(value)
        return (micros - _LONG.start) % 2**64 + _LONG.start
    return _LONG.start if value < 0 else _LONG.stop - 1


def _to_micros(source: pa.DataType, at: tzinfo) -> Callable[[int], int | None]:
    """To an instant."""
    if source == INSTANT:
        return lambda value: value
    scale = 1 if source == LOCAL else _DAY
    return lambda value: _checked(instant(value * scale, at))


def _to_local(source: pa.DataType, at: tzinfo) -> Callable[[int], Any]:
    """To a local time."""
    if source == INSTANT:
        return lambda value: value + _offset_at(value, at)
    scale = 1 if source == LOCAL else _DAY
    return lambda value: _checked(value * scale)


def _checked(micros: int) -> int | None:
    return micros if micros in _LONG else None


def instant(local: int, at: tzinfo) -> int:
    """The instant of a local time. In a gap it is as long after the gap's beginning; of two instants it is the first."""
    if at is timezone.utc:
        return local
    offset = _moment(local).replace(tzinfo=at).utcoffset() or timedelta(0)
    return local - _micros(offset)


def _offset_at(micros: int, at: tzinfo) -> int:
    if at is timezone.utc:
        return 0
    offset = _moment(micros).replace(tzinfo=timezone.utc).astimezone(at).utcoffset() or timedelta(0)
    return _micros(offset)


def _micros(delta: timedelta) -> int:
    return (delta.days * 86400 + delta.seconds) * _MICROS + delta.microseconds


def _moment(micros: int) -> datetime:
    """A moment of the same day of the calendar in the years 2 to 9998, which Python's zones take: all repeats in 400 years."""
    cycles = max(0, -(-(_FIRST - micros) // _CYCLE)) or min(0, -((micros - _LAST) // _CYCLE) - 1 if micros > _LAST else 0)
    return datetime(1970, 1, 1) + timedelta(microseconds=micros + cycles * _CYCLE)  # noqa: DTZ001  # a zone is added


# ---- strings --------------------------------------------------------------------------------------------------------


def _to_string(source: pa.DataType, at: tzinfo) -> Callable[[Any], str | None]:
    if pa.types.is_boolean(source):
        return lambda value: "true" if value else "false"
    if pa.types.is_decimal(source):
        return lambda value: format(value, "f")
    if pa.types.is_float32(source):
        return lambda value: java_float(float(str(np.float32(value))))
    if pa.types.is_floating(source):
        return java_float
    if pa.types.is_date(source):
        return lambda value: timestamp_text(value * _DAY, None).partition("T")[0]
    if t.is_binary(source):
        return lambda value: value.decode("utf-8", "replace")
    local = _to_local(source, at)
    return lambda value: _time_text(local(value))


def _time_text(local: int) -> str:
    text = timestamp_text(local, None, 6).replace("T", " ")
    return text.rstrip("0").rstrip(".") if "." in text else text


def java_float(value: float) -> str:
    """A double as Java prints it: 1.0E10, 1.0E-5, 100.0. For a float pass the double with its shortest digits."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + int(exponent)  # digits before the point
    minus = "-" if sign else ""
    if 1e-3 <= abs(value) < 1e7:
        if point <= 0:
            return f"{minus}0.{'0' * -point}{text}"
        return f"{minus}{text[:point].ljust(point, '0')}.{text[point:] or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"


def _from_string(target: pa.DataType, at: tzinfo) -> Callable[[str], Any]:
    if pa.types.is_boolean(target):
        return lambda text: _BOOLEANS.get(text.strip(_TRIMMED).lower())
    if pa.types.is_integer(target):
        limits = np.iinfo(target.to_pandas_dtype())
        return lambda text: _integer(text.strip(_TRIMMED), limits)
    if pa.types.is_floating(target):
        return lambda text: _float(text.strip(_JAVA_TRIMMED), is_float=pa.types.is_float32(target))
    if pa.types.is_decimal(target):
        return lambda text: _decimal(text.strip(_JAVA_TRIMMED), target)
    if pa.types.is_date(target):
        return date_of
    return lambda text: timestamp_of(text, at, local=target == LOCAL)


def _integer(text: str, limits: Any) -> int | None:
    found = _INTEGER.fullmatch(text)  # Python refuses to read more than 4,300 digits
    return None if found is None else _limited(-int(found[1]) if text[0] == "-" else int(found[1]), limits.min, limits.max)


def _float(text: str, *, is_float: bool) -> float | None:
    """A number as Java's `Double.valueOf` or `Float.valueOf` reads it."""
    found = _FLOAT.fullmatch(text)
    if found:
        return _nearest_float(found[1]) if is_float else float(found[1])
    found = _HEX.fullmatch(text)
    if found:
        try:
            double = float.fromhex(found[1])
        except OverflowError:
            double = -math.inf if text[0] == "-" else math.inf
        return _as_float(double, pa.float32()) if is_float else double
    return math.nan if text in _JAVA_NAN else _SPECIAL.get(text.lower())


def _nearest_float(text: str) -> float:
    """The float next to a number. Its double may be half way between two floats where the number is not."""
    double = float(text)
    found = _as_float(double, pa.float32())
    if not double or not math.isfinite(double) or not math.isfinite(found):
        return found
    exact = Decimal(text)
    other = _as_float(math.nextafter(double, math.inf if exact > Decimal(double) else -math.inf), pa.float32())
    is_half = other != found and math.isfinite(other) and Fraction(found) + Fraction(other) == 2 * Fraction(double)
    return other if is_half and exact != Decimal(double) else found


def _decimal(text: str, target: pa.DataType) -> Decimal | None:
    if not _DECIMAL.fullmatch(text):
        return None
    try:
        return _as_decimal(Decimal(text), target)
    except InvalidOperation:
        return None


def _days(sign: str, year: str, month: str | None, day: str | None) -> int | None:
    """Days since 1970, in every year."""
    number = -int(year) if sign == "-" else int(year)
    cycles, inside = divmod(number - 1, _CYCLE_YEARS)
    try:
        found = date(inside + 1, int(month or 1), int(day or 1)).toordinal()
    except ValueError:
        return None
    return found + cycles * _CYCLE_DAYS - _EPOCH


def date_of(text: str) -> int | None:
    """The days of a date in a text, as Spark's `stringToDate` takes it."""
    found = _DATE.fullmatch(text.strip(_TRIMMED))
    days = None if found is None else _days(*found.groups())
    return days if days is not None and days in _DAYS else None


def timestamp_of(text: str, at: tzinfo, *, local: bool) -> int | None:
    """The microseconds of a time in a text, as Spark's `stringToTimestamp` takes it. local: without a zone (TIMESTAMP_NTZ), a
    zone in the text is ignored."""
    trimmed, today = text.strip(_TRIMMED), None
    found = _TIME.fullmatch(trimmed)
    if found is None and not local and text.startswith("T") == trimmed.startswith("T"):
        today = _TODAY.fullmatch(trimmed)  # a time of the current day
    clock = found or today
    if clock is None:
        return None
    hour, minute, second, fraction, suffix = clock.groups()[-5:]
    hours, minutes, seconds = (int(part or 0) for part in (hour, minute, second))
    if hours > 23 or minutes > 59 or seconds > 59:
        return None
    place = at
    if suffix and suffix.strip(_JAVA_TRIMMED):
        named = _zone_of(suffix.strip(_JAVA_TRIMMED))
        if named is None:
            return None
        place = named
    days = _days(*found.groups()[:4]) if found else datetime.now(place).toordinal() - _EPOCH
    if days is None:
        return None
    micros = ((days * 24 + hours) * 60 + minutes) * 60 * _MICROS + seconds * _MICROS + int((fraction or "").ljust(6, "0")[:6])
    try:
        return _checked(micros if local else instant(micros, place))
    except (OverflowError, ValueError):
        return None


def _zone_of(text: str) -> tzinfo | None:
    if text in ("Z", "UTC", "GMT", "UT", "Etc/UTC"):
        return timezone.utc
    text = _SHORT_ZONES.get(text, text)
    found = _OFFSET.fullmatch(text)
    if found:
        hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:])
        total = hours * 3600 + minutes * 60 + seconds
        if minutes > 59 or seconds > 59 or total > _MAX_OFFSET:
            return None
        return timezone(timedelta(seconds=-total if found[1] == "-" else total))
    try:
        return ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        return None
