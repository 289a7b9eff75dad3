"""Puts the fields of objects in the order in which Spark looks them up.

Only ids and offsets change places. The values of fields stay where they are, so a Variant keeps its size.
"""

# ruff: noqa: ANN001, ANN201, ANN202  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant import types as t
from delta_variant.kernels.compiler import allocating, helper
from delta_variant.kernels.memory import DEPTH, OVERLAP, compare_keys, fail, open_container, put, uint, value_size
from delta_variant.kernels.validate import MAX_DEPTH, next_child, open_frame


@helper
def _is_before(a, b, first, key_at, key_size, texts):
    """Whether field a comes before field b. A field is its id << 32 | its offset. first: the first key of the dictionary."""
    x, y = first + (a >> 32), first + (b >> 32)
    return compare_keys(texts, key_at[x], key_size[x], texts, key_at[y], key_size[y]) < 0


@helper
def _sort(fields, spare, count, first, key_at, key_size, texts) -> None:
    """Sorts fields by merging runs. spare: working space."""
    width = 1
    while width < count:
        for left in range(0, count, 2 * width):
            middle, right = min(left + width, count), min(left + 2 * width, count)
            i, j = left, middle
            for k in range(left, right):
                if j == right or (i < middle and not _is_before(fields[j], fields[i], first, key_at, key_size, texts)):
                    spare[k] = fields[i]
                    i += 1
                else:
                    spare[k] = fields[j]
                    j += 1
        for k in range(count):
            fields[k] = spare[k]
        width *= 2


@helper
def _mark(seen, at, size):
    """Sets the flags of some bytes. Returns whether any was set."""
    again = False
    for k in range(at, at + size):
        again = again or seen[k] != 0
        seen[k] = 1
    return again


_LOOK, _MARK, _CHANGE = range(3)


@allocating
def order_fields(data, at, limit, dictionary, key_start, key_at, key_size, texts, changes, fault):
    """Puts the fields of all objects in order. Returns how many Variants have objects that were not, or -1.

    The Variant of slot i, which must be valid, is data[at[i]:limit[i]]; at[i] is -1 if there is none. With changes = False
    nothing is written, and the first Variant that is not in order ends the search.

    A Variant that has to change is walked twice more. Values that share bytes are a fault: ids and offsets of one could be the
    bytes of another.
    """
    frame, fields, spare = np.empty((MAX_DEPTH, 5), np.int64), np.empty(256, np.int64), np.empty(256, np.int64)
    seen, unordered = np.zeros(0, np.uint8), np.int64(0)
    for i in range(len(at)):
        start, end, first, turn = np.int64(at[i]), np.int64(limit[i]), key_start[dictionary[i]], _LOOK
        if start < 0:
            continue
        while turn <= _CHANGE:
            p, depth, is_ordered = start, 0, True
            while p >= 0:
                if data[p] & 3 < t.OBJECT:
                    if turn == _MARK and _mark(seen, p - start, value_size(data, p, end)):
                        return fail(fault, OVERLAP, i, p)
                    p, depth = next_child(data, frame, depth)
                    continue
                count, id_width, width, ids, offsets, base, _ = open_container(data, p, end)
                if turn == _MARK:
                    if _mark(seen, p - start, base - p):
                        return fail(fault, OVERLAP, i, p)
                elif data[p] & 3 == t.OBJECT:
                    if count > len(fields):
                        fields, spare = np.empty(2 * count, np.int64), np.empty(2 * count, np.int64)
                    own = True
                    for f in range(count):
                        fields[f] = uint(data, ids + f * id_width, id_width) << 32 | uint(data, offsets + f * width, width)
                        own = own and (f == 0 or _is_before(fields[f - 1], fields[f], first, key_at, key_size, texts))
                    if not own and turn == _LOOK:
                        is_ordered = False
                        break
                    if not own:
                        _sort(fields, spare, count, first, key_at, key_size, texts)
                        for f in range(count):
                            put(data, ids + f * id_width, fields[f] >> 32, id_width)
                            put(data, offsets + f * width, fields[f] & 0xFFFFFFFF, width)
                if depth == MAX_DEPTH:
                    return fail(fault, DEPTH, i, p)
                open_frame(frame, depth, count, width, offsets, base)
                p, depth = next_child(data, frame, depth + 1)
            if turn == _LOOK:
                if is_ordered:
                    break
                unordered += 1
                if not changes:
                    return unordered
                seen = np.zeros(end - start, np.uint8)
            turn += 1
    return unordered
