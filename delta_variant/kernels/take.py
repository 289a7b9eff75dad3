"""Leaves: values that have the type of their column.

`take_…` helpers read the slots of one leaf. They return the number of slots with a residual, or -1.
"""

# ruff: noqa: ANN001, ANN201  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant import types as t
from delta_variant.kernels.compiler import called, copy, helper, high_product, store64, u32, u64
from delta_variant.kernels.memory import OVERLAP, SCALE, SIZES, fail, sint, value_size

_POW10 = np.array([10**k for k in range(20)], np.uint64)


@helper
def leave(data, p, limit, i, rest, fault):
    """Makes the whole Variant of slot i its residual. Returns 1, or -1."""
    rest[i] = value_size(data, p, limit)
    if rest[i] < 0:
        return fail(fault, -rest[i], i, p)
    return np.int64(1)


@called
def take_integers(data, at, limit, widest, width, out, valid, rest, fault):
    """Takes integers of at most the column's width; widest: the type id of that width. `out` has 8 spare bytes."""
    left, safe = np.int64(0), len(data) - 8
    for i in range(len(at)):
        p, end, number = np.int64(at[i]), np.int64(limit[i]), np.int64(0)
        valid[i] = 0
        if p >= 0:
            kind = np.int64(data[p] >> 2) if p < end and data[p] & 3 == t.PRIMITIVE else np.int64(0)
            if t.INT8 <= kind <= widest and p + 1 + (1 << kind - t.INT8) <= end:
                if p < safe:
                    unused = 64 - (8 << kind - t.INT8)
                    number = np.int64(u64(data, p + 1)) << unused >> unused
                else:
                    number = sint(data, p + 1, 1 << kind - t.INT8)
                valid[i] = 1
            elif leave(data, p, end, i, rest, fault) < 0:
                return np.int64(-1)
            else:
                left += 1
        store64(out, i * width, np.uint64(number))
    return left


@called
def take_booleans(data, at, limit, out, valid, rest, fault):
    """Takes booleans, one byte each."""
    left = np.int64(0)
    for i in range(len(at)):
        p, end = np.int64(at[i]), np.int64(limit[i])
        if p < 0:
            out[i] = valid[i] = 0
            continue
        if p < end and (data[p] == t.TRUE << 2 or data[p] == t.FALSE << 2):
            out[i] = data[p] == t.TRUE << 2
            valid[i] = 1
        elif leave(data, p, end, i, rest, fault) < 0:
            return np.int64(-1)
        else:
            out[i] = valid[i] = 0
            left += 1
    return left


@called
def take_fixed(data, at, limit, kind, size, out, valid, rest, fault):
    """Takes primitives of one type id whose payload, of `size` bytes, is the column's value as it is."""
    left = np.int64(0)
    for k in range(len(at) * size):
        out[k] = 0
    for i in range(len(at)):
        p, end = np.int64(at[i]), np.int64(limit[i])
        if p < 0:
            valid[i] = 0
            continue
        if p + 1 + size <= end and data[p] == kind << 2:
            if size == 8:
                copy(out, i * 8, data, p + 1, 8)
            elif size == 4:
                copy(out, i * 4, data, p + 1, 4)
            else:
                copy(out, i * size, data, p + 1, size)
            valid[i] = 1
        elif leave(data, p, end, i, rest, fault) < 0:
            return np.int64(-1)
        else:
            valid[i] = 0
            left += 1
    return left


@called
def take_texts(data, at, limit, kind, offsets, valid, rest, fault):
    """Takes strings (long ones, and short ones if kind is STRING) or binaries: at[slot] becomes the position of a text's bytes.

    offsets[0] is set; the other Arrow offsets follow from it.
    """
    left, total = np.int64(0), np.int64(offsets[0])
    for i in range(len(at)):
        p, end = np.int64(at[i]), np.int64(limit[i])
        if p >= 0:
            size, start = np.int64(-1), p
            if p < end:
                head = np.int64(data[p])
                if kind == t.STRING and head & 3 == t.SHORT_STRING:
                    size, start = head >> 2, p + 1
                elif head == kind << 2 and p + 5 <= end:
                    size, start = np.int64(u32(data, p + 1)), p + 5
            if size >= 0 and start + size <= end:
                at[i], valid[i] = start, 1
                total += size
                if total > len(data):
                    return fail(fault, OVERLAP, i, p)
            elif leave(data, p, end, i, rest, fault) < 0:
                return np.int64(-1)
            else:
                valid[i] = 0
                left += 1
        else:
            valid[i] = 0
        offsets[i + 1] = total
    return left


@called
def take_decimals(data, at, limit, scale, largest, out, valid, rest, fault):
    """Takes integers and decimals as decimals of `scale`: out[2 * slot] and the word after it are set to the unscaled value.

    largest[k] is the largest magnitude, (low, high), that can be multiplied by 10**k within the column's precision.
    """
    left, zero = np.int64(0), np.uint64(0)
    for i in range(len(at)):
        p, end = np.int64(at[i]), np.int64(limit[i])
        if p < 0:
            out[2 * i] = out[2 * i + 1] = valid[i] = 0
            continue
        kind = np.int64(data[p] >> 2) if p < end and data[p] & 3 == t.PRIMITIVE else np.int64(0)
        low, high, negative, up = zero, zero, False, np.int64(-1)
        if t.INT8 <= kind <= t.INT64 and p + 1 + (1 << kind - t.INT8) <= end:
            number = sint(data, p + 1, 1 << kind - t.INT8)
            negative, low, up = number < 0, np.uint64(number), scale
        elif t.DECIMAL4 <= kind <= t.DECIMAL16 and p + 1 + SIZES[kind] <= end:
            if data[p + 1] > t.MAX_PRECISION:
                return fail(fault, SCALE, i, p + 1)
            up = scale - np.int64(data[p + 1])
            if kind == t.DECIMAL16:
                low, high = u64(data, p + 2), u64(data, p + 10)
                negative = np.int64(high) < 0
                if negative:
                    high = ~high + (np.uint64(1) if low == zero else zero)
            else:
                number = sint(data, p + 2, 4 if kind == t.DECIMAL4 else 8)
                negative, low = number < 0, np.uint64(number)
        if negative:
            low = ~low + np.uint64(1)
        if up >= 0 and (high < largest[up, 1] or (high == largest[up, 1] and low <= largest[up, 0])):
            if up > 19:
                low, high = low * _POW10[19], high_product(low, _POW10[19]) + high * _POW10[19]
                low, high = low * _POW10[up - 19], high_product(low, _POW10[up - 19]) + high * _POW10[up - 19]
            elif up:
                low, high = low * _POW10[up], high_product(low, _POW10[up]) + high * _POW10[up]
            if negative:
                low = ~low + np.uint64(1)
                high = ~high + (np.uint64(1) if low == zero else zero)
            out[2 * i], out[2 * i + 1] = low, high
            valid[i] = 1
        elif leave(data, p, end, i, rest, fault) < 0:
            return np.int64(-1)
        else:
            out[2 * i] = out[2 * i + 1] = valid[i] = 0
            left += 1
    return left
