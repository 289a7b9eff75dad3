"""JSON strings → Variant strings: escapes, UTF-8.

Bytes that are not UTF-8 are replaced as Java replaces them when it decodes a text: one U+FFFD for each maximal part of a
character, and one for a surrogate of three bytes. With STRICT they are a fault.

A surrogate that is escaped must be followed by its other half. With UNPAIRED it need not be, and is `?` in a value, as Java
encodes it. In a key it stays three bytes, since Java tells such keys apart and sorts them before it encodes them: see `keys`.

`write_string` knows neither; what it returns as a fault goes to `decide`, so that other strings take no longer.
"""

# ruff: noqa: ANN001, ANN201, ANN202  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant import types as t
from delta_variant.kernels.compiler import apart, called, copy, helper, move, trailing_zeros
from delta_variant.kernels.memory import put
from delta_variant.kernels.scan import bytes_between, not_ascii, string_end

END, CONTROL, ESCAPE, SURROGATE, NOT_UTF8 = range(1, 6)
UNPAIRED, STRICT, KEY, DISTINCT = 1, 2, 4, 8
"""The bits of `how`: surrogates need no other half; bytes that are not UTF-8 are a fault; the string is a key. DISTINCT is for
`parse`: fields whose keys become the same bytes are a fault."""

_QUOTE, _BACKSLASH, _U, _UNKNOWN = (np.uint8(ord(c)) for c in '"\\u?')
_UNESCAPED = np.zeros(256, np.uint8)  # by the character after a backslash; 0: no such escape
for _from, _to in zip('"\\/bfnrt', '"\\/\b\f\n\r\t', strict=True):
    _UNESCAPED[ord(_from)] = ord(_to)
_HEX = np.full(256, 16, np.int64)
for _value, _digits in enumerate("0123456789abcdef"):
    _HEX[ord(_digits)] = _HEX[ord(_digits.upper())] = _value


_lead, _lead_of_three, _lead_of_four = (bytes_between(first, 0xF4) for first in (0xC2, 0xE0, 0xF0))
_further, _from_90, _from_a0 = (bytes_between(first, 0xBF) for first in (0x80, 0x90, 0xA0))
_e0, _ed, _f0, _f4 = (bytes_between(byte, byte) for byte in (0xE0, 0xED, 0xF0, 0xF4))
_ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)


@helper
def _four_digits(data, p):
    """The number in four hexadecimal digits; at least 65,536 if there are others."""
    a, b, c, d = _HEX[data[p]], _HEX[data[p + 1]], _HEX[data[p + 2]], _HEX[data[p + 3]]
    return a << 12 | b << 8 | c << 4 | d if a | b | c | d < 16 else np.int64(1 << 16)


@helper
def _write_character(out, o, point):
    """Writes a code point as UTF-8."""
    if point < 0x80:
        out[o] = point
        return o + 1
    if point < 0x800:
        out[o], out[o + 1] = 0xC0 | point >> 6, 0x80 | point & 0x3F
        return o + 2
    if point < 0x10000:
        out[o], out[o + 1], out[o + 2] = 0xE0 | point >> 12, 0x80 | point >> 6 & 0x3F, 0x80 | point & 0x3F
        return o + 3
    out[o], out[o + 1] = 0xF0 | point >> 18, 0x80 | point >> 12 & 0x3F
    out[o + 2], out[o + 3] = 0x80 | point >> 6 & 0x3F, 0x80 | point & 0x3F
    return o + 4


@helper
def _is_utf8(data, p, quote):
    """Whether the bytes from p up to a quote are well-formed UTF-8 (Unicode, table 3-7). A bit of each mask is one byte."""
    due = np.uint64(0)  # the bytes that go on a character
    while p <= quote:
        some = _ALL_BITS >> np.uint64(63 - min(quote - p, 31))
        lead, lead_of_three, lead_of_four = _lead(data, p) & some, _lead_of_three(data, p) & some, _lead_of_four(data, p) & some
        further = _further(data, p) & some
        due |= lead << np.uint64(1) | lead_of_three << np.uint64(2) | lead_of_four << np.uint64(3)
        if (due ^ further) & some or not_ascii(data, p) & some != lead | further:
            return False
        if lead_of_three:
            from_a0, from_90 = _from_a0(data, p + 1), _from_90(data, p + 1)
            wrong = _e0(data, p) & ~from_a0 | _ed(data, p) & from_a0 | _f0(data, p) & ~from_90 | _f4(data, p) & from_90
            if wrong & some:
                return False
        due >>= np.uint64(32)
        p += 32
    return True


@helper
def _part_of_character(data, i, end):
    """(bytes from i on that are a character, or the part that one U+FFFD replaces; whether they are a character)."""
    lead = data[i]
    if lead < 0x80:
        return 1, True
    second = data[i + 1] if i + 1 < end else np.uint8(0)
    third = data[i + 2] if i + 2 < end else np.uint8(0)
    if 0xC2 <= lead <= 0xDF:
        good = second & 0xC0 == 0x80
        return 2 if good else 1, good
    if lead & 0xF0 == 0xE0:
        if second & 0xC0 != 0x80 or (lead == 0xE0 and second < 0xA0):
            return 1, False
        if third & 0xC0 != 0x80:
            return 2, False
        return 3, not (lead == 0xED and second >= 0xA0)
    if 0xF0 <= lead <= 0xF4:
        if second & 0xC0 != 0x80 or (lead == 0xF0 and second < 0x90) or (lead == 0xF4 and second > 0x8F):
            return 1, False
        if third & 0xC0 != 0x80:
            return 2, False
        good = i + 3 < end and data[i + 3] & 0xC0 == 0x80
        return 4 if good else 3, good
    return 1, False


@helper
def _replace(out, start, end):
    """Replaces what is not UTF-8 in out[start:end]; returns the new end. Uses three times the room behind it."""
    o, i = end, start
    while i < end:
        size, good = _part_of_character(out, i, end)
        if good:
            for k in range(size):
                out[o + k] = out[i + k]
            o += size
        else:
            out[o], out[o + 1], out[o + 2] = 0xEF, 0xBF, 0xBD
            o += 3
        i += size
    move(out, start, end, o - end)
    return start + o - end


@helper
def utf16_size(out, start, end):
    """The length of a text in UTF-16 code units."""
    size = np.int64(0)
    for i in range(start, end):
        size += (out[i] & 0xC0 != 0x80) + (out[i] >= 0xF0)
    return size


@helper
def write_string(data, p, end, out, o):
    """Writes the string whose opening quote is before p. Returns (position after its text, after the value, 0 or a fault).

    With the fault NOT_UTF8 it is written nevertheless. `decide` says what becomes of faults.
    """
    size = trailing_zeros(string_end(data, p))
    if p + size < end and size < 32 and data[p + size] == _QUOTE and trailing_zeros(not_ascii(data, p)) >= size:
        out[o] = size << 2 | t.SHORT_STRING
        copy(out, o + 1, data, p, 32)
        return p + size + 1, o + 1 + size, 0
    return _write_longer(data, p, end, out, o)


@called
def _write_longer(data, p, end, out, o):
    """As `write_string`, for any string."""
    apart()
    text = p
    start = w = o + 1  # of a short string
    ascii_only = True
    while True:
        window, marks = p, string_end(data, p)
        while True:
            stop = window + trailing_zeros(marks)
            copy(out, w, data, p, 32)
            w += stop - p
            p = stop
            if p >= end:
                return end, o, END
            if p == window + 32 or data[p] != _BACKSLASH:
                break
            if p + 1 >= end:
                return end, o, END
            if data[p + 1] != _U:
                out[w] = _UNESCAPED[data[p + 1]]
                if out[w] == 0:
                    return p, o, ESCAPE
                p += 2
                w += 1
            else:
                if p + 6 > end:
                    return end, o, END
                point = _four_digits(data, p + 2)
                if point == 0x10000:
                    return p, o, ESCAPE
                if 0xD800 <= point < 0xE000:
                    if point >= 0xDC00 or p + 12 > end or data[p + 6] != _BACKSLASH or data[p + 7] != _U:
                        return p, o, SURROGATE
                    low = _four_digits(data, p + 8)
                    if not 0xDC00 <= low < 0xE000:
                        return p, o, SURROGATE
                    point = 0x10000 + (point - 0xD800 << 10) + (low - 0xDC00)
                    p += 6
                w = _write_character(out, w, point)
                p += 6
            if p >= window + 32:
                break
            marks &= _ALL_BITS << np.uint64(p - window)
        ascii_only = ascii_only and trailing_zeros(not_ascii(data, window)) >= min(p - window, 32)
        if w - start > t.SHORT_STRING_MAX and start == o + 1:
            move(out, o + 5, start, w - start)
            start += 4
            w += 4
        if p < window + 32:
            if data[p] == _QUOTE:
                break
            return p, o, CONTROL
    fault = 0
    if not ascii_only and not _is_utf8(data, text, p):
        fault = NOT_UTF8
        w = _replace(out, start, w)
        if w - start > t.SHORT_STRING_MAX and start == o + 1:
            move(out, o + 5, start, w - start)
            start += 4
            w += 4
    if start == o + 1:
        out[o] = (w - start) << 2 | t.SHORT_STRING
    else:
        out[o] = t.STRING << 2
        put(out, o + 1, w - start, 4)
    return p + 1, w, fault


@called
def decide(data, p, end, out, o, how, after, to, fault):
    """What `write_string` is to return, after it has returned (after, to, fault)."""
    apart()
    if fault == SURROGATE and how & UNPAIRED:
        after, to, fault = _write_unpaired(data, p, end, out, o, how)
    if fault == NOT_UTF8:
        if how & STRICT:
            return _first_bad(data, p, after), o, NOT_UTF8
        fault = 0
    return after, to, fault


@helper
def _first_bad(data, p, end):
    """The first byte that is not UTF-8."""
    while p < end:
        size, good = _part_of_character(data, p, end)
        if not good:
            break
        p += size
    return p


@helper
def _write_unpaired(data, p, end, out, o, how):
    """As `write_string`, for a string with half a surrogate pair."""
    text, start = p, o + 5
    w = part = start  # what is behind the last half of a key is not checked yet
    while p < end and data[p] != _QUOTE:
        if data[p] < 0x20:
            return p, o, CONTROL
        if data[p] != _BACKSLASH:
            out[w] = data[p]
            p += 1
            w += 1
            continue
        if p + 1 >= end or (data[p + 1] == _U and p + 6 > end):
            return end, o, END
        if data[p + 1] != _U:
            out[w] = _UNESCAPED[data[p + 1]]
            if out[w] == 0:
                return p, o, ESCAPE
            p += 2
            w += 1
            continue
        point, low = _four_digits(data, p + 2), np.int64(0)
        if point == 0x10000:
            return p, o, ESCAPE
        if 0xD800 <= point < 0xDC00 and p + 12 <= end and data[p + 6] == _BACKSLASH and data[p + 7] == _U:
            low = _four_digits(data, p + 8)
        if 0xDC00 <= low < 0xE000:
            point = 0x10000 + (point - 0xD800 << 10) + (low - 0xDC00)
            p += 6
        elif 0xD800 <= point < 0xE000 and how & KEY:
            part = w = _replace(out, part, w)
        elif 0xD800 <= point < 0xE000:
            point = np.int64(_UNKNOWN)
        w = _write_character(out, w, point)
        p += 6
        if 0xD800 <= point < 0xE000:
            part = w
    if p >= end:
        return end, o, END
    w = _replace(out, part, w)
    size = w - start
    if size <= t.SHORT_STRING_MAX:
        out[o] = size << 2 | t.SHORT_STRING
        move(out, o + 1, start, size)
        w -= 4
    else:
        out[o] = t.STRING << 2
        put(out, o + 1, size, 4)
    return p + 1, w, 0 if _first_bad(data, text, p) == p else NOT_UTF8
