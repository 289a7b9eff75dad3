"""The earliest and the latest value of a string column whose strings are all dates or timestamps.

In: the buffers of an Arrow string array. Out: extremes in microseconds since 1970, and which forms there were. The forms:

    2024-11-21                          a date
    2024-11-21T16:09:37                 a local time; a blank may stand for T
    2024-11-21T16:09:37.095             with 1 to 9 digits of a second's fraction; Spark drops those after the sixth
    2024-11-21T16:09:37Z                an instant: with Z, UTC after a blank, +hh:mm, +hhmm, or +hh, of up to 18:00 hours

Spark's casts from string accept all of these, and more. The years are 0001 to 9999, in the proleptic Gregorian calendar.

Successive strings often are of one month. It is computed once, and compared with the next string's in one step: 2024-11- has
eight bytes. So has 16:09:37, which is checked and taken apart as one number.
"""

# ruff: noqa: ANN001, ANN201, ANN202  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant.kernels.compiler import helper, jit, u64

LOW_INSTANT, HIGH_INSTANT, LOW_LOCAL, HIGH_LOCAL, FORMS = range(5)
"""The positions in the kernel's result."""
LOCAL, INSTANT, AHEAD = 1, 2, 4
"""The forms, as bits: strings without an offset, strings with one, and strings whose offset is not zero."""

_ZEROS = np.uint64(0x3030303030303030)
_TOO_LARGE = np.uint64(0x7676767676767676)  # becomes 0x80 or more if a digit above 9 is added to a byte of it
_HIGH_BITS = np.uint64(0x8080808080808080)
_DASHES, _DASH_BYTES = np.uint64(0x2D00002D00000000), np.uint64(0xFF0000FF00000000)  # of 0000-00-, from its last byte on
_COLONS, _COLON_BYTES = np.uint64(0x00003A00003A0000), np.uint64(0x0000FF0000FF0000)  # of 00:00:00
_DAYS_BEFORE = np.cumsum([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])  # the month, in a year without a leap day
_DAYS_TO_1970 = 719_162  # from the year 1 on
_SECOND, _DAY = 1_000_000, 86_400_000_000
_UNITS = 10 ** np.arange(6, -1, -1)  # microseconds in the last digit of a fraction, by the number of its digits
_MAX_OFFSET = 18 * 60


@helper
def _digits(word, marks, marked):
    """Eight bytes as digits; bytes of `marked` must be those of `marks` and become 0. All bits are set if they are not."""
    digits = (word & ~marked) ^ (_ZEROS & ~marked)
    if (word & marked) != marks or (((digits + _TOO_LARGE) | digits) & _HIGH_BITS) != np.uint64(0):
        return ~np.uint64(0)
    return digits


@helper
def _pairs(digits):
    """In each byte, the number of two digits that begins there."""
    return digits * np.uint64(10) + (digits >> np.uint64(8))


@helper
def _byte(pairs, at):
    return np.int64((pairs >> np.uint64(8 * at)) & np.uint64(255))


@helper
def _two(data, at):
    """The number of two digits in a text; negative if they are not digits."""
    tens, ones = np.int64(data[at]) - 48, np.int64(data[at + 1]) - 48
    return tens * 10 + ones if 0 <= tens <= 9 and 0 <= ones <= 9 else np.int64(-1)


@helper
def _month(word):
    """(days from 1970 to the day before a month, its days), from the eight bytes of 2024-11-; (0, 0) for another text."""
    digits = _digits(word, _DASHES, _DASH_BYTES)
    pairs = _pairs(digits)
    year, month = _byte(pairs, 0) * 100 + _byte(pairs, 2), _byte(pairs, 5)
    if digits == ~np.uint64(0) or year < 1 or month < 1 or month > 12:
        return np.int64(0), np.int64(0)
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    before = year - 1
    days = 365 * before + before // 4 - before // 100 + before // 400 + _DAYS_BEFORE[month - 1] - _DAYS_TO_1970 - 1
    return days + (leap and month > 2), _DAYS_BEFORE[month] - _DAYS_BEFORE[month - 1] + (leap and month == 2)


@helper
def _offset(data, at, end):
    """The offset of a time in minutes, from the text that ends it, other than Z; -1 << 62 if it is none."""
    none = np.int64(-1) << 62
    size = end - at
    if size == 4 and data[at] == 0x20:
        return np.int64(0) if data[at + 1] == 0x55 and data[at + 2] == 0x54 and data[at + 3] == 0x43 else none
    if size < 3 or size > 6 or size == 4 or (data[at] != 0x2B and data[at] != 0x2D) or (size == 6 and data[at + 3] != 0x3A):
        return none
    hours, minutes = _two(data, at + 1), _two(data, end - 2) if size > 3 else np.int64(0)
    if hours < 0 or minutes < 0 or minutes > 59 or hours * 60 + minutes > _MAX_OFFSET:
        return none
    return hours * 60 + minutes if data[at] == 0x2B else -hours * 60 - minutes


@jit
def time_extremes(data, offsets, valid, first, result):
    """Adds strings to `result`: five numbers, of which all but FORMS mean nothing before the first string. `valid`: Arrow's
    bitmap from bit `first` on, or empty.

    False, at the first string that is neither a date nor a timestamp, or if some strings have an offset and others have none.
    """
    low, high, low_local, high_local, forms = result[0], result[1], result[2], result[3], result[4]
    none = np.int64(-1) << 62
    known, days, days_in = np.uint64(0), np.int64(0), np.int64(0)
    for row in range(len(offsets) - 1):
        if len(valid) and not (valid[(first + row) >> 3] >> ((first + row) & 7)) & 1:
            continue
        at, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        if end - at < 10:
            return False
        month, day = u64(data, at), _two(data, at + 8)
        if month != known:
            known = month
            days, days_in = _month(month)
        if day < 1 or day > days_in:
            return False
        local, offset, form = (days + day) * _DAY, np.int64(0), LOCAL
        if end - at > 10:
            if end - at < 19 or (data[at + 10] != 0x54 and data[at + 10] != 0x20):
                return False
            clock = _digits(u64(data, at + 11), _COLONS, _COLON_BYTES)
            pairs = _pairs(clock)
            hour, minute, second = _byte(pairs, 0), _byte(pairs, 3), _byte(pairs, 6)
            if clock == ~np.uint64(0) or hour > 23 or minute > 59 or second > 59:
                return False
            local += ((hour * 60 + minute) * 60 + second) * _SECOND
            at += 19
            if at < end and data[at] == 0x2E:
                at += 1
                start, fraction = at, np.int64(0)
                while at < end and 0x30 <= data[at] <= 0x39:
                    if at < start + 6:
                        fraction = fraction * 10 + np.int64(data[at]) - 48
                    at += 1
                if at == start or at > start + 9:
                    return False
                local += fraction * _UNITS[min(at - start, 6)]
            if at + 1 == end and data[at] == 0x5A:
                form = INSTANT
            elif at < end:
                offset = _offset(data, at, end)
                if offset == none:
                    return False
                form = INSTANT | AHEAD if offset != 0 else INSTANT
        instant = local - offset * 60 * _SECOND
        if forms == 0:
            low, high, low_local, high_local = instant, instant, local, local
        forms |= form
        if forms & LOCAL and forms & INSTANT:
            return False
        low, high = min(low, instant), max(high, instant)
        low_local, high_local = min(low_local, local), max(high_local, local)
    result[0], result[1], result[2], result[3], result[4] = low, high, low_local, high_local, forms
    return True
