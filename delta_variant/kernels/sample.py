"""What a column holds, path by path: a tree of the keys of all objects, with counts of types at every node.

Node 0 is the column; a child is a field, or the elements of an array (name of -1 bytes). The tree has room for a fixed number
of nodes and bytes of names; what comes after is not counted.
"""

# ruff: noqa: ANN001, ANN201, ANN202  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant import types as t
from delta_variant.kernels.memory import (
    BAD_FIELD_ID,
    OVERLAP,
    copy,
    equal,
    fail,
    hash_bytes,
    helper,
    jit,
    open_container,
    sint,
    u64,
    uint,
    value_size,
)

OBJECTS, ARRAYS = len(t.PRIMITIVES), len(t.PRIMITIVES) + 1
CLASSES = len(t.PRIMITIVES) + 2
"""Columns of `counts`: one per primitive type id, then objects and arrays."""

MAX_DEPTH = 64


@helper
def _child(parent, data, at, size, used, parents, name_at, name_size, names, table):
    """The node of a key below `parent`, made where it is new and there is room; -1 where there is none."""
    mask = len(table) - 1
    slot = ((hash_bytes(data, at, size) if size >= 0 else np.int64(0)) + parent * 0x9E3779B1) & mask
    while table[slot] >= 0:
        node = table[slot]
        if parents[node] == parent and name_size[node] == size and (size <= 0 or equal(data, at, names, name_at[node], size)):
            return node
        slot = (slot + 1) & mask
    node, room = used[0], used[1]
    if node == len(parents) or room + max(size, 0) > len(names):
        return np.int64(-1)
    parents[node], name_at[node], name_size[node] = parent, room, size
    if size > 0:
        copy(names, room, data, at, size)
    table[slot] = node
    used[0], used[1] = node + 1, room + max(size, 0)
    return node


@helper
def _digits(low, high):
    """Decimal digits of an unsigned 128-bit number, 0 for zero."""
    if high == 0:
        digits = 0
        while low:
            low //= np.uint64(10)
            digits += 1
        return digits
    size = np.float64(high) * 18446744073709551616.0 + np.float64(low)
    return min(np.int64(np.log10(size)) + 1, 38)


@helper
def _count_exact(data, p, kind, node, whole, scales):
    """Digits in front of the point, and behind it, of an integer or a decimal."""
    scale, high = np.int64(0), np.uint64(0)
    if kind <= t.INT64:
        number = sint(data, p + 1, 1 << kind - t.INT8)
        low = np.uint64(-number if number < 0 else number)
    else:
        scale = np.int64(data[p + 1])
        if kind == t.DECIMAL16:
            low, high = u64(data, p + 2), u64(data, p + 10)
            if np.int64(high) < 0:
                high, low = ~high, ~low
        else:
            number = sint(data, p + 2, 4 if kind == t.DECIMAL4 else 8)
            low = np.uint64(-number if number < 0 else number)
    whole[node, min(max(_digits(low, high) - scale, 0), 39)] += 1
    scales[node, min(scale, 39)] += 1


@jit
def walk(
    data, at, limit, dictionary, key_data, key_start, key_at, key_size,
    used, parents, name_at, name_size, names, table, counts, whole, scales, fault,
):  # fmt: skip
    """Counts every value of every row: counts[node, class], and digits of exact numerics in `whole` and `scales`.

    used = [nodes, bytes of names]. Returns 0, or -1.
    """
    frame = np.empty((MAX_DEPTH, 7), np.int64)  # node, next child, children, ids or -1, widths, offsets, base
    for row in range(len(at)):
        if at[row] < 0:
            continue
        node, p, depth, budget = np.int64(0), at[row], 0, limit[row] - at[row]
        first = key_start[dictionary[row]]
        known = key_start[dictionary[row] + 1] - first
        while True:
            size = value_size(data, p, limit[row])
            if size < 0:
                return fail(fault, -size, row, p)
            budget -= 1
            if budget < 0:
                return fail(fault, OVERLAP, row, p)
            basic, kind = data[p] & 3, np.int64(data[p] >> 2)
            if basic >= t.OBJECT:
                counts[node, OBJECTS if basic == t.OBJECT else ARRAYS] += 1
                if depth < MAX_DEPTH:
                    count, id_width, width, ids, offsets, base, _ = open_container(data, p, limit[row])
                    frame[depth, 0], frame[depth, 1], frame[depth, 2] = node, 0, count
                    frame[depth, 3] = ids if basic == t.OBJECT else -1
                    frame[depth, 4], frame[depth, 5], frame[depth, 6] = id_width << 3 | width, offsets, base
                    depth += 1
            elif basic == t.SHORT_STRING:
                counts[node, t.STRING] += 1
            else:
                counts[node, kind if kind != t.FALSE else t.TRUE] += 1
                if t.INT8 <= kind <= t.INT64 or t.DECIMAL4 <= kind <= t.DECIMAL16:
                    _count_exact(data, p, kind, node, whole, scales)
            node = np.int64(-1)
            while depth and node < 0:
                top = frame[depth - 1]
                if top[1] == top[2]:
                    depth -= 1
                    continue
                p = top[6] + uint(data, top[5] + top[1] * (top[4] & 7), top[4] & 7)
                if top[3] < 0:
                    node = _child(top[0], key_data, 0, -1, used, parents, name_at, name_size, names, table)
                else:
                    field_id = uint(data, top[3] + top[1] * (top[4] >> 3), top[4] >> 3)
                    if field_id >= known:
                        return fail(fault, BAD_FIELD_ID, row, top[3])
                    key = first + field_id
                    node = _child(top[0], key_data, key_at[key], key_size[key], used, parents, name_at, name_size, names, table)
                top[1] += 1
            if node < 0:
                break
    return np.int64(0)
