"""Checks Variants down to the last leaf, for bytes that no other kernel decodes.

In: Variants and their dictionaries. Out: 0, or -1 and the first fault. Source: Parquet VariantEncoding. Invariant: a child lies
within its container, and the children of a container together take no more bytes than it has, so a walk visits no more values
than its Variant has bytes.
"""

# ruff: noqa: ANN001, ANN201  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant import types as t
from delta_variant.kernels.compiler import allocating, helper, u32, u64
from delta_variant.kernels.memory import (
    BAD_FIELD_ID,
    DEPTH,
    DIGITS,
    DUPLICATE,
    NOT_UTF8,
    OVERLAP,
    REFUSED,
    SCALE,
    TIME_OF_DAY,
    fail,
    is_utf8,
    open_container,
    sint,
    uint,
    value_size,
)

MAX_DEPTH = 1024
"""Levels of nesting: more than the JSON parsers of other systems accept (Spark's stops at 1,000)."""

_LIMIT_HIGH, _LIMIT_LOW = np.uint64(10**38 >> 64), np.uint64(10**38 & (1 << 64) - 1)
_DAY = 86_400_000_000


@helper
def payload_fault(data, p, kind):
    """The code of the fault if a primitive's bytes are not a value of its type, else 0."""
    if t.DECIMAL4 <= kind <= t.DECIMAL16:
        if data[p + 1] > t.MAX_PRECISION:
            return np.int64(SCALE)
        if kind == t.DECIMAL16:
            low, high = u64(data, p + 2), u64(data, p + 10)
            if np.int64(high) < 0:
                low = ~low + np.uint64(1)
                high = ~high + np.uint64(low == 0)
            if high > _LIMIT_HIGH or (high == _LIMIT_HIGH and low >= _LIMIT_LOW):
                return np.int64(DIGITS)
    elif kind == t.TIME and not 0 <= sint(data, p + 1, 8) < _DAY:
        return np.int64(TIME_OF_DAY)
    return np.int64(0)


@helper
def open_frame(frame, depth, count, width, offsets, base):
    """Opens a container in a walk through a valid Variant. `next_child` gives its children, one after the other.

    frame: (MAX_DEPTH, 5) numbers, a line for each open container: (next child, children, offset width, position of the
    offsets, of the first child).
    """
    frame[depth, 0], frame[depth, 1], frame[depth, 2] = 0, count, width
    frame[depth, 3], frame[depth, 4] = offsets, base


@helper
def next_child(data, frame, depth):
    """(position of the next value, number of containers that stay open); the position is -1 at the end of the walk."""
    while depth and frame[depth - 1, 0] == frame[depth - 1, 1]:
        depth -= 1
    if not depth:
        return np.int64(-1), depth
    f = frame[depth - 1, 0]
    frame[depth - 1, 0] += 1
    return frame[depth - 1, 4] + uint(data, frame[depth - 1, 3] + f * frame[depth - 1, 2], frame[depth - 1, 2]), depth


@allocating
def validate(data, at, limit, dictionary, key_start, number, numbers, refused, levels, fault):
    """Checks the Variant of every slot with at[slot] >= 0. Returns 0, or -1.

    number[key]: a number below `numbers` that keys of the same dictionary share if they are the same name. refused: a bit for
    each type id of primitives that are a fault. levels: how deep containers may be nested, at most MAX_DEPTH.
    """
    stack = np.empty((MAX_DEPTH, 7), np.int64)
    seen, serial = np.zeros(numbers, np.int64), np.int64(0)
    for i in range(len(at)):
        if at[i] < 0:
            continue
        p, end, left, depth = at[i], limit[i], limit[i] - at[i], 0
        next_ = count = offsets = width = base = np.int64(0)
        first = key_start[dictionary[i]]
        known = key_start[dictionary[i] + 1] - first
        while True:
            size = value_size(data, p, end)
            if size < 0:
                return fail(fault, -size, i, p)
            left -= size
            if left < 0:
                return fail(fault, OVERLAP, i, p)
            basic, kind = data[p] & 3, np.int64(data[p] >> 2)
            if basic >= t.OBJECT:
                if depth >= levels:
                    return fail(fault, DEPTH, i, p)
                outer = stack[depth]
                outer[0], outer[1], outer[2], outer[3], outer[4] = next_, count, offsets, width, base
                outer[5], outer[6] = end, left
                depth += 1
                count, id_width, width, ids, offsets, base, left = open_container(data, p, end)
                next_, end = np.int64(0), base + left
                serial += 1
                for f in range(count if basic == t.OBJECT else 0):
                    field_id = uint(data, ids + f * id_width, id_width)
                    if field_id >= known:
                        return fail(fault, BAD_FIELD_ID, i, ids + f * id_width)
                    if seen[number[first + field_id]] == serial:
                        return fail(fault, DUPLICATE, i, ids + f * id_width)
                    seen[number[first + field_id]] = serial
            elif basic == t.SHORT_STRING:
                if not is_utf8(data, p + 1, kind):
                    return fail(fault, NOT_UTF8, i, p)
            elif kind == t.STRING:
                if not is_utf8(data, p + 5, np.int64(u32(data, p + 1))):
                    return fail(fault, NOT_UTF8, i, p)
            else:
                wrong = payload_fault(data, p, kind) if not refused >> kind & 1 else np.int64(REFUSED)
                if wrong:
                    return fail(fault, wrong, i, p)
            while depth and next_ == count:
                depth -= 1
                outer = stack[depth]
                next_, count, offsets, width, base = outer[0], outer[1], outer[2], outer[3], outer[4]
                end, left = outer[5], outer[6]
            if not depth:
                break
            p = base + uint(data, offsets + next_ * width, width)
            next_ += 1
    return np.int64(0)
