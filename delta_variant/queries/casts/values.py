"""Spark's casts of single values, in the form of `arrays.values_of`: for pairs of types without a kernel, and for literals.

In: the types and the time zone of the session. Out: a function of a value, which gives None where the cast fails. Source: Spark
4.2, `Cast`, `UTF8StringUtils`, `SparkDateTimeUtils`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone, tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from delta_variant import types as t
from delta_variant.errors import UnsupportedFeatureError
from delta_variant.queries.casts.table import castable
from delta_variant.stats.values import timestamp_text

INSTANT, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
_MICROS, DAY = 1_000_000, 86_400_000_000
_EPOCH = date(1970, 1, 1).toordinal()
_CYCLE = 146_097 * DAY  # 400 years
_FIRST, _LAST = (date(2, 1, 1).toordinal() - _EPOCH) * DAY, (date(9998, 1, 1).toordinal() - _EPOCH) * DAY
EXACT = Context(prec=100)
"""Decimals of every type, and sums and products of two, are exact in it."""
_LONG = range(-(2**63), 2**63)
_DAYS = range(-(2**31), 2**31)
_INTEGER = re.compile(r"[+-]?0*(\d{1,19})", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+(?:\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_FLOAT = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]?", re.ASCII)
_HEX = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?\d+)[fFdD]?", re.ASCII)
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
_UNKNOWN_TO_JAVA = re.compile(r"(?:posix|right)/.*|localtime|posixrules|Factory|ROC", re.DOTALL)
_MAX_OFFSET = 18 * 3600


def zone(name: str) -> tzinfo:
    """A time zone: a region, or an offset as +02:00. Raises UnsupportedFeatureError for a name that is none."""
    found = _zone_of(name) if isinstance(name, str) else None
    if found is None:
        raise UnsupportedFeatureError(f"timezone={name!r} is not a time zone: write it as Europe/Berlin or +02:00")
    return found


def converter(source: pa.DataType, target: pa.DataType, at: tzinfo, *, in_variant: bool) -> Callable[[Any], Any]:
    """The cast of one value, None where it fails. in_variant: as for `arrays.cast`."""
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
            return lambda value: local(value) // DAY
        if pa.types.is_integer(target):
            limits = t.limits(target)
            return lambda value: _limited(value // _MICROS, limits)
        if pa.types.is_floating(target):
            return lambda value: _as_float(float(value) / _MICROS, target)
        return lambda value: _as_decimal(Decimal(value).scaleb(-6, EXACT), target)
    if target == INSTANT:
        return partial(_micros, in_variant=in_variant)
    if pa.types.is_integer(target):
        limits = t.limits(target)
        if pa.types.is_decimal(source) and target != pa.int64():
            return lambda value: _as_integer(float(value), limits)
        return lambda value: _as_integer(value, limits)
    if pa.types.is_decimal(source) and pa.types.is_float32(target):
        return lambda value: _nearest_float(str(value))
    if pa.types.is_floating(target):
        return lambda value: _as_float(float(value), target)
    return lambda value: _as_decimal(value, target)


def _limited(value: int, limits: range = _LONG) -> int | None:
    return value if value in limits else None


def _as_integer(value: Any, limits: range) -> int | None:
    if isinstance(value, float):
        if not math.isfinite(value) or math.floor(value) > float(limits[-1]) or math.ceil(value) < float(limits[0]):
            return None
        return max(limits[0], min(limits[-1], math.trunc(value)))
    return _limited(int(value), limits)


def _as_float(value: float, target: pa.DataType) -> float:
    if pa.types.is_float32(target):
        with np.errstate(over="ignore"):
            return float(np.float32(value))
    return value


def _as_decimal(value: Any, target: pa.DataType) -> Decimal | None:
    number = Decimal(repr(value) if isinstance(value, float) else value)
    if not number.is_finite() or number.adjusted() > 60:
        return None
    rounded = number.quantize(Decimal(1).scaleb(-target.scale), ROUND_HALF_UP, EXACT)
    return rounded if rounded.copy_abs() < Decimal(10) ** (target.precision - target.scale) else None


def _micros(seconds: Any, *, in_variant: bool) -> int | None:
    """The microseconds of a number of seconds. Too many in a column, but not in a Variant, wrap around as decimals, and become
    the first or the last timestamp as integers."""
    if isinstance(seconds, float):
        product = seconds * _MICROS
        return _limited(int(product)) if math.isfinite(product) else None
    micros = int(EXACT.multiply(Decimal(seconds), Decimal(_MICROS)))
    if in_variant or micros in _LONG:
        return _limited(micros)
    if isinstance(seconds, Decimal):
        return (micros - _LONG.start) % 2**64 + _LONG.start
    return _LONG[0] if micros < 0 else _LONG[-1]


def _to_micros(source: pa.DataType, at: tzinfo) -> Callable[[int], int | None]:
    if source == INSTANT:
        return lambda value: value
    scale = 1 if source == LOCAL else DAY
    return lambda value: _limited(instant(value * scale, at))


def _to_local(source: pa.DataType, at: tzinfo) -> Callable[[int], Any]:
    if source == INSTANT:
        return lambda value: value + _offset(value, timezone.utc, at)
    scale = 1 if source == LOCAL else DAY
    return lambda value: _limited(value * scale)


def instant(local: int, at: tzinfo) -> int:
    """The instant of a local time. In a gap it is as long after the gap's beginning; of two instants it is the first."""
    return local - _offset(local, at, at)


def _offset(micros: int, of: tzinfo, at: tzinfo) -> int:
    """By how much one zone is ahead of UTC at a time of another zone."""
    if at is timezone.utc:
        return 0
    offset = _moment(micros).replace(tzinfo=of).astimezone(at).utcoffset() or timedelta(0)
    return offset // timedelta(microseconds=1)


def _moment(micros: int) -> datetime:
    """A moment of the same day of the calendar in the years 2 to 9998, which Python's zones take: all repeats in 400 years."""
    cycles = max(0, -(-(_FIRST - micros) // _CYCLE)) or min(0, -((micros - _LAST) // _CYCLE) - 1 if micros > _LAST else 0)
    return datetime(1970, 1, 1) + timedelta(microseconds=micros + cycles * _CYCLE)  # noqa: DTZ001  # a zone is added


# ---- strings --------------------------------------------------------------------------------------------------------


def _to_string(source: pa.DataType, at: tzinfo) -> Callable[[Any], str | None]:
    if pa.types.is_decimal(source):
        return lambda value: format(value, "f")
    if pa.types.is_date(source):
        return lambda value: timestamp_text(value * DAY, None).partition("T")[0]
    if t.is_binary(source):
        return lambda value: value.decode("utf-8", "replace")
    local = _to_local(source, at)
    return lambda value: _time_text(local(value))


def _time_text(local: int) -> str:
    text = timestamp_text(local, None, 6).replace("T", " ")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _from_string(target: pa.DataType, at: tzinfo) -> Callable[[str], Any]:
    if pa.types.is_boolean(target):
        return lambda text: _BOOLEANS.get(text.strip(_TRIMMED).lower())
    if pa.types.is_integer(target):
        limits = t.limits(target)
        return lambda text: _integer(text.strip(_TRIMMED), limits)
    if pa.types.is_floating(target):
        return lambda text: _float(text.strip(_JAVA_TRIMMED), is_float=pa.types.is_float32(target))
    if pa.types.is_decimal(target):
        return lambda text: _decimal(text.strip(_JAVA_TRIMMED), target)
    if pa.types.is_date(target):
        return date_of
    return lambda text: timestamp_of(text, at, local=target == LOCAL)


def _integer(text: str, limits: range) -> int | None:
    found = _INTEGER.fullmatch(text)  # Python refuses to read more than 4,300 digits
    return None if found is None else _limited(-int(found[1]) if text[0] == "-" else int(found[1]), limits)


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
    try:
        return int(np.datetime64(f"{sign.replace('+', '')}{year}-{month or '1':0>2}-{day or '1':0>2}", "D").astype(np.int64))
    except ValueError:
        return None


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
        return _limited(micros if local else instant(micros, place))
    except (OverflowError, ValueError):
        return None


@lru_cache(maxsize=64)
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
        return None if _UNKNOWN_TO_JAVA.fullmatch(text) else ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        return None
