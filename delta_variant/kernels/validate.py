"""Whether Variants are well-formed through and through, for bytes that nothing else takes apart."""

# ruff: noqa: ANN001, ANN201  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant import types as t
from delta_variant.kernels.memory import (
    BAD_FIELD_ID,
    DEPTH,
    DUPLICATE,
    NOT_UTF8,
    OVERLAP,
    SCALE,
    TRUNCATED,
    fail,
    is_utf8,
    jit,
    open_container,
    u32,
    uint,
    value_size,
)

MAX_DEPTH = 1024
"""More than any JSON parser of the field lets through (Spark's stops at 1,000)."""


@jit
def validate(data, at, limit, dictionary, key_start, fault):
    """Walks every Variant that starts at at[slot] >= 0. Returns 0, or -1."""
    frame = np.empty((MAX_DEPTH, 5), np.int64)  # next child, children, width, offsets, base
    for i in range(len(at)):
        if at[i] < 0:
            continue
        p, end, depth, budget = at[i], limit[i], 0, limit[i] - at[i]
        known = key_start[dictionary[i] + 1] - key_start[dictionary[i]]
        while True:
            size = value_size(data, p, end)
            if size < 0:
                return fail(fault, -size, i, p)
            budget -= 1
            if budget < 0:
                return fail(fault, OVERLAP, i, p)
            basic, kind = data[p] & 3, np.int64(data[p] >> 2)
            if basic >= t.OBJECT:
                if depth == MAX_DEPTH:
                    return fail(fault, DEPTH, i, p)
                count, id_width, width, ids, offsets, base, total = open_container(data, p, end)
                before = np.int64(-1)
                for f in range(count):
                    if uint(data, offsets + f * width, width) >= total:
                        return fail(fault, TRUNCATED, i, offsets + f * width)
                    if basic == t.OBJECT:
                        field_id = uint(data, ids + f * id_width, id_width)
                        if field_id >= known:
                            return fail(fault, BAD_FIELD_ID, i, ids + f * id_width)
                        if field_id == before:
                            return fail(fault, DUPLICATE, i, ids + f * id_width)
                        before = field_id
                frame[depth, 0], frame[depth, 1], frame[depth, 2] = 0, count, width
                frame[depth, 3], frame[depth, 4] = offsets, base
                depth += 1
            elif basic == t.SHORT_STRING:
                if not is_utf8(data, p + 1, kind):
                    return fail(fault, NOT_UTF8, i, p)
            elif kind == t.STRING:
                if not is_utf8(data, p + 5, np.int64(u32(data, p + 1))):
                    return fail(fault, NOT_UTF8, i, p)
            elif t.DECIMAL4 <= kind <= t.DECIMAL16 and data[p + 1] > t.MAX_PRECISION:
                return fail(fault, SCALE, i, p + 1)
            while depth and frame[depth - 1, 0] == frame[depth - 1, 1]:
                depth -= 1
            if not depth:
                break
            top = frame[depth - 1]
            p = top[4] + uint(data, top[3] + top[0] * top[2], top[2])
            top[0] += 1
    return np.int64(0)
