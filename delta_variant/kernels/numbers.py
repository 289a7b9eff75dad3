"""JSON numbers → Variant primitives, as Spark's `parse_json` chooses them.

An integer of 64 bits takes the narrowest integer type. Any other number without an exponent becomes a decimal if it has up to
38 digits, and as many after the point, all of them kept: 1.50 has scale 2. The rest are doubles, the nearest ones. -0 is the
integer 0, and -0.0 the decimal 0.0.

Doubles are computed by the method of Eisel and Lemire ("Number parsing at a gigabyte per second", 2021): the first 19 digits
times a power of ten, which is known to 128 bits. If more digits follow, and the number with one more in its last digit gives
another double, the text is compared with the middle of the two in exact arithmetic. Digits are read eight at a time.
"""

# ruff: noqa: ANN001, ANN201, ANN202  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant import types as t
from delta_variant.kernels.compiler import helper, high_product, leading_zeros, likely, store32, store64, trailing_zeros, u64
from delta_variant.kernels.scan import not_digit

GOOD, NO_DIGIT, LEADING_ZERO, TOO_LONG, NO_SPACE = range(5)

MAX_DIGITS = 1000
"""The digits that Jackson takes in one number."""

_SMALLEST, _LARGEST = -342, 308  # powers of ten: with others, 19 digits give 0 or infinity


def _power_of_five(exponent: int) -> int:
    """The first 128 bits of 5**exponent; rounded up for negative exponents, as Eisel and Lemire have it."""
    power: int = 5 ** abs(exponent)
    if exponent >= 0:
        return power << 128 >> power.bit_length()
    precision = power.bit_length() + 127 if exponent >= -27 else 2 * power.bit_length() + 128
    reciprocal = (1 << precision) // power + 1
    return reciprocal >> reciprocal.bit_length() - 128


_FIVES = [_power_of_five(exponent) for exponent in range(_SMALLEST, _LARGEST + 1)]
_HIGH = np.array([five >> 64 for five in _FIVES], np.uint64)
_LOW = np.array([five & (1 << 64) - 1 for five in _FIVES], np.uint64)
_TENS = np.array([10**k for k in range(20)], np.uint64)
_LIMIT_HIGH, _LIMIT_LOW = np.uint64(10**38 >> 64), np.uint64(10**38 & (1 << 64) - 1)
_FIVE_TO = np.array([5**k for k in range(28)], np.uint64)
WORDS = 256  # 1,000 digits take 52 words, 5**1342 takes 49, a shift up to 39
_ZEROS = np.uint64(0x3030303030303030)
_NINES_TO_BITS, _HIGHEST_BITS = np.uint64(0x7676767676767676), np.uint64(0x8080808080808080)  # 9 + 0x76 = 0x7F
_INFINITE, _FRACTION = np.uint64(0x7FF0000000000000), np.uint64((1 << 52) - 1)
_ZERO, _MINUS, _PLUS, _POINT, _E = (np.uint8(ord(c)) for c in "0-+.e")
_SIGN = np.uint64(1 << 63)


@helper
def _digits_from(data, p, end):
    """The number of digits from p on."""
    n = trailing_zeros(not_digit(data, p))
    if n == 32:
        while p + n < end and trailing_zeros(not_digit(data, p + n)) == 32:
            n += 32
        if p + n < end:
            n += trailing_zeros(not_digit(data, p + n))
    return min(n, end - p)


@helper
def _up_to_eight(data, p, n):
    """The number in n digits, 1 to 8: pairs of digits, then of pairs, then of fours are added, all in one word."""
    return _in_eight(u64(data, p) - _ZEROS << np.uint64(64 - 8 * n))


@helper
def _in_eight(word):
    """The number in eight digits, each a byte from 0 to 9, the first one the lowest."""
    word = (word * np.uint64(10) + (word >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    word = (word * np.uint64(100) + (word >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    return (word * np.uint64(10000) + (word >> np.uint64(32))) & np.uint64(0xFFFFFFFF)


@helper
def _digits(data, p, n):
    """The number in n digits, 0 to 19."""
    if n <= 8:
        return _up_to_eight(data, p, n) if n else np.uint64(0)
    number = _up_to_eight(data, p, 8)
    if n <= 16:
        return number * _TENS[n - 8] + _up_to_eight(data, p + 8, n - 8)
    number = number * _TENS[8] + _up_to_eight(data, p + 8, 8)
    return number * _TENS[n - 16] + _up_to_eight(data, p + 16, n - 16)


@helper
def _add_digits(data, p, n, low, high):
    """(low, high) * 10**n + the number in n digits: unsigned numbers of 128 bits."""
    while n > 0:
        part = min(n, 18)
        ten = _TENS[part]
        high = high * ten + high_product(low, ten)
        low *= ten
        more = _digits(data, p, part)
        low += more
        high += np.uint64(low < more)
        p += part
        n -= part
    return low, high


@helper
def _write_integer(out, o, number):
    """Writes the narrowest integer that holds a number. Eight bytes are stored whatever its size."""
    double = (
        (number != np.int64(np.int8(number))) + (number != np.int64(np.int16(number))) + (number != np.int64(np.int32(number)))
    )
    out[o] = t.INT8 + double << 2
    store64(out, o + 1, np.uint64(number))
    return o + 1 + (1 << double)


@helper
def _write_decimal(out, o, low, high, scale, negative):
    """Writes the narrowest decimal that holds low + 2**64 * high, below 10**38, at this scale."""
    four = (high == 0) & (scale <= 9) & (low < _TENS[9])
    eight = (high == 0) & (scale <= 18) & (low < _TENS[18])
    double = 2 - four - eight
    if negative:
        low = ~low + np.uint64(1)
        high = ~high + np.uint64(low == 0)
    out[o], out[o + 1] = t.DECIMAL4 + double << 2, scale
    store64(out, o + 2, low)
    store64(out, o + 10, high)
    return o + 2 + (4 << double)


@helper
def _put_double(out, o, bits, negative):
    out[o] = t.DOUBLE << 2
    store64(out, o + 1, bits | (_SIGN if negative else np.uint64(0)))
    return o + 9


@helper
def _double_bits(w, q):
    """The bits of the double nearest to w * 10**q."""
    if w == 0 or q < _SMALLEST:
        return np.uint64(0)
    if q > _LARGEST:
        return _INFINITE
    shift = leading_zeros(w)
    w <<= np.uint64(shift)
    upper, lower = high_product(w, _HIGH[q - _SMALLEST]), w * _HIGH[q - _SMALLEST]
    if upper & np.uint64(0x1FF) == np.uint64(0x1FF):
        more = high_product(w, _LOW[q - _SMALLEST])
        lower += more
        upper += np.uint64(lower < more)
    top = upper >> np.uint64(63)
    cut = top + np.uint64(9)
    mantissa = upper >> cut
    exponent = (217_706 * q >> 16) + 1086 + np.int64(top) - shift
    if exponent <= 0:  # subnormal; a carry into bit 52 gives the smallest normal number
        if exponent <= -63:
            return np.uint64(0)
        mantissa >>= np.uint64(1 - exponent)
        return (mantissa + (mantissa & np.uint64(1))) >> np.uint64(1)
    if lower <= 1 and -4 <= q <= 23 and mantissa & np.uint64(3) == np.uint64(1) and mantissa << cut == upper:
        mantissa &= ~np.uint64(1)  # exactly between two doubles: to the even one
    mantissa = (mantissa + (mantissa & np.uint64(1))) >> np.uint64(1)
    if mantissa >= np.uint64(1 << 53):
        mantissa = np.uint64(1 << 52)
        exponent += 1
    if exponent >= 2047:
        return _INFINITE
    return (mantissa & _FRACTION) | np.uint64(exponent) << np.uint64(52)


@helper
def _multiply(number, size, factor, carry):
    """number * factor + carry, in place: `size` words, the lowest first. Returns the new size."""
    for k in range(size):
        low = number[k] * factor
        high = high_product(number[k], factor)
        low += carry
        number[k], carry = low, high + np.uint64(low < carry)
    if carry:
        number[size] = carry
        size += 1
    return size


@helper
def _scale(number, size, fives, twos):
    """number * 5**fives * 2**twos, in place. Returns the new size."""
    while fives > 0:
        size = _multiply(number, size, _FIVE_TO[min(fives, 27)], np.uint64(0))
        fives -= 27
    while twos > 0:
        size = _multiply(number, size, np.uint64(1) << np.uint64(min(twos, 63)), np.uint64(0))
        twos -= 63
    return size


@helper
def _round_exactly(data, p, whole, fraction, exponent, bits, wide):
    """The bits of the double nearest to a text between the doubles `bits` and `bits` + 1.

    text: digits * 10**ten. middle: number * 2**two. Both are multiplied until they are integers. wide: room for both.
    """
    a, b = wide[0], wide[1]
    a_size, b_size = 0, 1
    for k in range(whole + fraction):
        a_size = _multiply(a, a_size, np.uint64(10), np.uint64(data[p + k + (k >= whole)] - _ZERO))
    ten, two = exponent - fraction, np.int64(bits >> np.uint64(52)) - 1076
    b[0] = (bits & _FRACTION) << np.uint64(1) | np.uint64(1)
    if two > -1076:
        b[0] |= np.uint64(1 << 53)
    else:
        two = np.int64(-1075)
    a_size = _scale(a, a_size, ten, ten - two)
    b_size = _scale(b, b_size, -ten, two - ten)
    if a_size != b_size:
        return bits + np.uint64(a_size > b_size)
    for k in range(a_size - 1, -1, -1):
        if a[k] != b[k]:
            return bits + np.uint64(a[k] > b[k])
    return bits + (bits & np.uint64(1))


@helper
def _write_double(data, p, whole, fraction, exponent, negative, out, o, wide):
    """Writes a double: `whole` digits at p, then, after a point, `fraction` digits."""
    if whole + fraction <= 19:
        number = _digits(data, p, whole)
        if fraction:
            number = number * _TENS[fraction] + _digits(data, p + whole + 1, fraction)
        bits = _double_bits(number, exponent - fraction)
    else:
        number, used, zeros = np.uint64(0), 0, True
        ten = exponent  # of the last digit in the number
        exact = True
        for k in range(whole + fraction):
            digit = data[p + k + (k >= whole)] - _ZERO
            zeros = zeros and digit == 0
            if used == 19:
                ten += k < whole
                exact = exact and digit == 0
                continue
            number = number * np.uint64(10) + np.uint64(digit)
            used += not zeros
            ten -= k >= whole
        bits = _double_bits(number, ten)
        if not exact and bits != _double_bits(number + np.uint64(1), ten):
            bits = _round_exactly(data, p, whole, fraction, exponent, bits, wide)
    return _put_double(out, o, bits, negative)


@helper
def _count(word):
    """How many digits, bytes from 0 to 9, a word begins with."""
    # The highest bit of each byte that is not a digit. A carry goes only to bytes behind the first of them.
    other = (word + _NINES_TO_BITS | word) & _HIGHEST_BITS
    return trailing_zeros(other) >> 3 if other != 0 else 8


@helper
def _first(word, n):
    """The number in the first n digits of a word, 0 to 8."""
    half = np.uint64(32 - 4 * n)
    return _in_eight(word << half << half)


@helper
def write_number(data, p, end, in_root, out, o, wide):
    """Writes the number at p. Returns (position after its text, position after the value, GOOD or what is wrong).

    The digits of short numbers are converted from the words in which their end is found: up to 7 before a point and 16 after
    it, or up to 15 of an integer. With a function of its own for what follows a point, events took a tenth longer.
    """
    negative = data[p] == _MINUS
    p += negative
    word = u64(data, p) ^ _ZEROS
    whole = _count(word)
    if likely(whole < 8):
        q, first, following = p + whole, np.uint8(word), data[p + whole]
        if likely((first - np.uint8(1) < 9 or (first == 0 and whole == 1)) and q <= end and not in_root):
            number = _first(word, whole)
            if following == _POINT:
                word = u64(data, q + 1) ^ _ZEROS
                fraction = _count(word)
                if fraction < 8:
                    number = number * _TENS[fraction] + _first(word, fraction)
                else:
                    last = u64(data, q + 9) ^ _ZEROS
                    more = _count(last)
                    fraction += more
                    number = (number * _TENS[8] + _in_eight(word)) * _TENS[more] + _first(last, more)
                q += 1 + fraction
                following = data[q]
                if fraction and whole + fraction <= 19 and q <= end and following - _ZERO > 9:
                    if following | 0x20 == _E:
                        minus = data[q + 1] == _MINUS
                        q += 1 + (minus or data[q + 1] == _PLUS)
                        word = u64(data, q) ^ _ZEROS
                        places = _count(word)
                        q += places
                        if 0 < places < 8 and q <= end:
                            exponent = np.int64(_first(word, places))
                            bits = _double_bits(number, (-exponent if minus else exponent) - fraction)
                            return q, _put_double(out, o, bits, negative), GOOD
                    elif whole + fraction <= 18:
                        return q, _write_decimal(out, o, number, np.uint64(0), fraction, negative), GOOD
            elif following | 0x20 != _E:
                number = np.int64(number)
                double = (number - negative > 0x7F) + (number - negative > 0x7FFF)  # 7 digits are an int32
                out[o] = t.INT8 + double << 2
                store32(out, o + 1, np.uint32(-number if negative else number))
                return q, o + 1 + (1 << double), GOOD
        whole = min(whole, end - p)
    else:
        last = u64(data, p + 8) ^ _ZEROS
        more = _count(last)
        if more < 8:
            q = p + 8 + more
            if np.uint8(word) != 0 and q <= end and not in_root and data[q] != _POINT and data[q] | 0x20 != _E:
                number = np.int64(_in_eight(word) * _TENS[more] + _first(last, more))
                return q, _write_integer(out, o, -number if negative else number), GOOD
        whole = _digits_from(data, p, end)
    return _write_longer(data, p, negative, whole, end, in_root, out, o, wide)


@helper
def _write_longer(data, p, negative, whole, end, in_root, out, o, wide):
    """Writes the number with `whole` digits at p, before a point."""
    if whole == 0:
        return p, o, NO_DIGIT
    if data[p] == _ZERO and whole > 1:
        return p, o, LEADING_ZERO
    q = p + whole
    fraction, exponent, places = np.int64(0), np.int64(0), np.int64(0)
    if q < end and data[q] == _POINT:
        fraction = _digits_from(data, q + 1, end)
        if fraction == 0:
            return q + 1, o, NO_DIGIT
        q += 1 + fraction
    if q < end and data[q] | 0x20 == _E:
        q += 1
        minus = q < end and data[q] == _MINUS
        q += minus or (q < end and data[q] == _PLUS)
        places = _digits_from(data, q, end)
        if places == 0:
            return q, o, NO_DIGIT
        for k in range(places):
            exponent = min(exponent * 10 + (data[q + k] - _ZERO), 100_000)
        exponent = -exponent if minus else exponent
        q += places
    if in_root and q < end and data[q] not in (0x20, 0x09, 0x0A, 0x0D):
        return q, o, NO_SPACE
    if whole + fraction + places >= MAX_DIGITS:
        # Jackson has two loops. That for a number with a leading zero, or at the end of the text, counts one digit less for
        # each of the fraction and the exponent that the number does not have.
        less = (fraction == 0) + (places == 0) if data[p] == _ZERO or q == end else 0
        if whole + fraction + places - (less if fraction + places else 0) > MAX_DIGITS:
            return p - negative, o, TOO_LONG
    if places == 0 and fraction <= 38:
        if whole + fraction <= 18:
            number = _digits(data, p, whole)
            if fraction == 0:
                return q, _write_integer(out, o, -np.int64(number) if negative else np.int64(number)), GOOD
            number = number * _TENS[fraction] + _digits(data, p + whole + 1, fraction)
            return q, _write_decimal(out, o, number, np.uint64(0), fraction, negative), GOOD
        if whole <= 38:
            low, high = _add_digits(data, p, whole, np.uint64(0), np.uint64(0))
            if fraction == 0 and high == 0 and low <= _SIGN - np.uint64(not negative):
                return q, _write_integer(out, o, np.int64(~low + np.uint64(1) if negative else low)), GOOD
            if whole + fraction <= 38 or (whole == 1 and data[p] == _ZERO):
                low, high = _add_digits(data, p + whole + 1, fraction, low, high)
                if high < _LIMIT_HIGH or (high == _LIMIT_HIGH and low < _LIMIT_LOW):
                    return q, _write_decimal(out, o, low, high, fraction, negative), GOOD
    return q, _write_double(data, p, whole, fraction, exponent, negative, out, o, wide), GOOD
