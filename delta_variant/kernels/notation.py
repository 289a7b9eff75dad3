"""Scalars as JSON text: strings, numbers, dates and times, binaries, UUIDs.

In: a validated position in the bytes of a Variant. Out: text at position `o` of `out`; every function returns the position
after the text. The caller makes sure that there is room: 64 bytes are enough for everything except strings and binaries.

The format is that of Spark's `to_json`: control characters are escaped as Jackson does it; decimals are in plain notation,
without trailing zeros of the fraction; floats look like those of Java's Double.toString, NaN and infinities quoted; dates and
times look like those of java.time, years beyond 9999 with a plus sign; binaries are in Base64. Types that Spark cannot print
look like the most similar type: nanoseconds like microseconds, a time like the time of day in a timestamp.
"""

# ruff: noqa: ANN001, ANN201, ANN202  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant import types as t
from delta_variant.kernels.compiler import copy, helper, u64
from delta_variant.kernels.memory import is_utf8, sint

FULL = -2
_DAY = 86_400
_POWERS = np.array([10**k for k in range(20)], np.uint64)

_ZERO, _MINUS, _PLUS, _POINT, _COLON, _QUOTE, _SPACE, _BACKSLASH, _E = (np.uint8(ord(c)) for c in '0-+.:" \\E')
_ESCAPES = np.zeros(256, np.uint8)  # by byte, the character after the backslash; 0: the byte is not escaped
_ESCAPES[:32] = ord("u")
for _from, _to in zip('\b\t\n\f\r"\\', 'btnfr"\\', strict=True):
    _ESCAPES[ord(_from)] = ord(_to)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8).copy()
_UPPER_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8).copy()
_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8).copy()
_NOT_FINITE = np.frombuffer(b'"NaN"           "Infinity"      "-Infinity"     ', np.uint8).copy()  # sixteen bytes each

_ONES, _TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_SPACES, _QUOTES, _BACKSLASHES = (np.uint64(ord(c) * 0x0101010101010101) for c in ' "\\')


@helper
def write_string(data, p, size, out, o, room):
    """Writes `size` bytes as a JSON string. Returns the position after it, FULL if it passes `room`, -1 if it is not UTF-8.

    Eight bytes are copied at once if none of them needs an escape. A load may include bytes after the string; these are masked.
    """
    end, checked = p + size, False
    out[o] = _QUOTE
    o += 1
    while p < end:
        if o > room:
            return np.int64(FULL)
        step = min(end - p, 8)
        word = _TOPS
        if p + 8 <= len(data):
            word = u64(data, p)
            if step < 8:
                bits = np.uint64(8 * step)
                word = (word & ((np.uint64(1) << bits) - np.uint64(1))) | _SPACES << bits
        if word & _TOPS and not checked:
            if not is_utf8(data, p, end - p):
                return np.int64(-1)
            checked = True
        quotes, backslashes = word ^ _QUOTES, word ^ _BACKSLASHES
        special = (word - _SPACES & ~word) | (quotes - _ONES & ~quotes) | (backslashes - _ONES & ~backslashes)
        if special & _TOPS == 0 and p + 8 <= len(data):
            copy(out, o, data, p, 8)
            o += step
        else:
            for k in range(p, p + step):
                escape = _ESCAPES[data[k]]
                if escape == 0:
                    out[o] = data[k]
                    o += 1
                    continue
                out[o], out[o + 1] = _BACKSLASH, escape
                o += 2
                if escape == 0x75:
                    out[o] = out[o + 1] = _ZERO
                    out[o + 2], out[o + 3] = _UPPER_HEX[data[k] >> 4], _UPPER_HEX[data[k] & 15]
                    o += 4
        p += step
    out[o] = _QUOTE
    return o + 1


@helper
def _number(out, o, number, least):
    """Writes an unsigned number, with leading zeros up to `least` digits."""
    digits = 1
    while digits < 20 and number >= _POWERS[digits]:
        digits += 1
    digits = max(digits, least)
    for k in range(o + digits - 1, o - 1, -1):
        rest = number // np.uint64(10)
        out[k] = _ZERO + np.uint8(number - rest * np.uint64(10))
        number = rest
    return o + digits


@helper
def write_integer(out, o, number):
    """Writes a signed number."""
    magnitude = np.uint64(number)
    if number < 0:
        out[o] = _MINUS
        o += 1
        magnitude = ~magnitude + np.uint64(1)
    return _number(out, o, magnitude, 1)


@helper
def _wide_number(out, o, low, high):
    """Writes an unsigned number of 128 bits, not 0, in groups of nine digits by long division; `out` has room for 45 digits."""
    nine, bits, mask = np.uint64(1_000_000_000), np.uint64(32), np.uint64(0xFFFFFFFF)
    a, b, c, d = high >> bits, high & mask, low >> bits, low & mask
    end = at = o + 45
    while a | b | c | d:
        b |= a % nine << bits
        c |= b % nine << bits
        d |= c % nine << bits
        at -= 9
        _number(out, at, d % nine, 9)
        a, b, c, d = a // nine, b // nine, c // nine, d // nine
    while out[at] == _ZERO:
        at += 1
    for k in range(at, end):
        out[o] = out[k]
        o += 1
    return o


@helper
def write_decimal(data, p, kind, out, o, digits):
    """Writes a decimal in plain notation. `digits` is working space."""
    scale, low, high, negative = np.int64(data[p + 1]), np.uint64(0), np.uint64(0), False
    if kind == t.DECIMAL16:
        low, high = u64(data, p + 2), u64(data, p + 10)
        negative = np.int64(high) < 0
        if negative:
            low = ~low + np.uint64(1)
            high = ~high + np.uint64(low == 0)
    else:
        number = sint(data, p + 2, 4 if kind == t.DECIMAL4 else 8)
        negative, low = number < 0, np.uint64(number)
        if negative:
            low = ~low + np.uint64(1)
    if negative:
        out[o] = _MINUS
        o += 1
    size = _wide_number(digits, 0, low, high) if high else _number(digits, 0, low, 1)
    whole = size - scale
    while size > max(whole, 0) and digits[size - 1] == _ZERO:
        size -= 1
    for k in range(whole):
        out[o + k] = digits[k]
    o += max(whole, 0)
    if whole <= 0:
        out[o] = _ZERO
        o += 1
    if size > max(whole, 0):
        out[o] = _POINT
        o += 1
        for k in range(whole, size):
            out[o] = digits[k] if k >= 0 else _ZERO
            o += 1
    return o


@helper
def write_base64(data, p, size, out, o):
    """Writes `size` bytes in Base64, quoted."""
    out[o] = _QUOTE
    o += 1
    for k in range(0, size, 3):
        bits = np.int64(data[p + k]) << 16
        if k + 1 < size:
            bits |= np.int64(data[p + k + 1]) << 8
        if k + 2 < size:
            bits |= np.int64(data[p + k + 2])
        out[o], out[o + 1] = _BASE64[bits >> 18], _BASE64[bits >> 12 & 63]
        out[o + 2] = _BASE64[bits >> 6 & 63] if k + 1 < size else np.uint8(0x3D)
        out[o + 3] = _BASE64[bits & 63] if k + 2 < size else np.uint8(0x3D)
        o += 4
    out[o] = _QUOTE
    return o + 1


@helper
def _date(out, o, days):
    """Writes the date that is `days` after 1970-01-01, in the proleptic Gregorian calendar.

    In this computation years begin in March, so that February 29 is the last day of a leap year.
    """
    days += 719_468  # since 0000-03-01
    era = days // 146_097
    day = days - era * 146_097
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    year += 400 * era + (month >= 10)
    if year < 0 or year > 9999:
        out[o] = _MINUS if year < 0 else _PLUS
        o += 1
    o = _number(out, o, np.uint64(abs(year)), 4)
    out[o] = _MINUS
    o = _number(out, o + 1, np.uint64(month + 3 if month < 10 else month - 9), 2)
    out[o] = _MINUS
    return _number(out, o + 1, np.uint64(day + 1), 2)


@helper
def _clock(out, o, ticks, places):
    """Writes hh:mm:ss and the fraction of a second, which has up to `places` digits and no trailing zeros."""
    per_second = np.int64(_POWERS[places])
    seconds = ticks // per_second
    fraction = ticks - seconds * per_second
    o = _number(out, o, np.uint64(seconds // 3600), 2)
    out[o] = _COLON
    o = _number(out, o + 1, np.uint64(seconds // 60 % 60), 2)
    out[o] = _COLON
    o = _number(out, o + 1, np.uint64(seconds % 60), 2)
    if fraction:
        out[o] = _POINT
        o = _number(out, o + 1, np.uint64(fraction), places)
        while out[o - 1] == _ZERO:
            o -= 1
    return o


@helper
def write_quoted(data, p, kind, out, o):
    """Writes a date, a timestamp, a time or a UUID, quoted."""
    out[o] = _QUOTE
    o += 1
    if kind == t.UUID:
        for k in range(16):
            if k in (4, 6, 8, 10):
                out[o] = _MINUS
                o += 1
            out[o], out[o + 1] = _HEX[data[p + 1 + k] >> 4], _HEX[data[p + 1 + k] & 15]
            o += 2
    elif kind == t.DATE:
        o = _date(out, o, sint(data, p + 1, 4))
    elif kind == t.TIME:
        o = _clock(out, o, sint(data, p + 1, 8), 6)
    else:
        places = 9 if kind >= t.TIMESTAMP_NANOS else 6
        ticks, per_day = sint(data, p + 1, 8), _DAY * np.int64(_POWERS[places])
        days = ticks // per_day
        o = _date(out, o, days)
        out[o] = _SPACE
        o = _clock(out, o + 1, ticks - days * per_day, places)
        if kind in (t.TIMESTAMP, t.TIMESTAMP_NANOS):
            out[o], out[o + 1], out[o + 2], out[o + 3], out[o + 4], out[o + 5] = _PLUS, _ZERO, _ZERO, _COLON, _ZERO, _ZERO
            o += 6
    out[o] = _QUOTE
    return o + 1


@helper
def write_float(text, i, end, magnitude, tiny, tiny_exponent, out, o, digits):
    """Writes the floating-point number whose shortest digits are text[i:end], in Java's notation.

    That is plain notation from 1e-3 up to 1e7, else d.dE±n, with at least one digit after the point. tiny * 10**tiny_exponent
    is the smallest number of the type.
    """
    negative = text[i] == _MINUS
    i += negative
    if text[i] > 0x39:
        word = 0 if text[i] == 0x6E else 1 + negative
        copy(out, o, _NOT_FINITE, 16 * word, 16)
        return o + (5 if word == 0 else 9 + word)
    size, point, exponent = np.int64(0), np.int64(-1), np.int64(0)
    while i < end and text[i] != 0x65:
        if text[i] == _POINT:
            point = size
        else:
            digits[size] = text[i]
            size += 1
        i += 1
    for k in range(i + 2, end):
        exponent = exponent * 10 + text[k] - 0x30
    if i < end and text[i + 1] == _MINUS:
        exponent = -exponent
    exponent += (point if point >= 0 else size) - 1
    first = np.int64(0)
    while first < size - 1 and digits[first] == _ZERO:
        first += 1
    while size > first + 1 and digits[size - 1] == _ZERO:
        size -= 1
    exponent = exponent - first if magnitude else np.int64(0)
    if size == first + 1 and 0 < magnitude < 128:
        exponent = _two_digits(magnitude * tiny, tiny_exponent, digits)
        first, size = np.int64(0), np.int64(2 if digits[1] != _ZERO else 1)
    if negative:
        out[o] = _MINUS
        o += 1
    plain = -3 <= exponent < 7
    ones = exponent if plain else np.int64(0)  # the index of the digit before the point
    for k in range(min(ones, 0), max(ones + 2, size - first)):
        out[o] = digits[first + k] if 0 <= k < size - first else _ZERO
        o += 1
        if k == ones:
            out[o] = _POINT
            o += 1
    if plain:
        return o
    out[o] = _E
    return write_integer(out, o + 1, exponent)


@helper
def _two_digits(number, exponent, digits):
    """Sets `digits` to the two digits nearest to number * 10**exponent; returns the power of ten of the first one.

    If one digit is enough to identify a number, Java prints the nearest two: 4.9E-324, not 5.0E-324. This makes a difference
    for the smallest numbers only.
    """
    while number >= 10:
        number /= 10
        exponent += 1
    tenths = np.int64(np.rint(number * 10))
    if tenths == 100:
        tenths, exponent = np.int64(10), exponent + 1
    digits[0], digits[1] = _ZERO + np.uint8(tenths // 10), _ZERO + np.uint8(tenths % 10)
    return np.int64(exponent)
