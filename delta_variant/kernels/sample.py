"""Counts what a column holds, path by path: a tree of the keys of all objects, with counts of rows and of types at every node.

Node 0 is the column. A child is a field, or stands for the elements of an array (a name of -1 bytes). Parents come before their
children. The tree has room for a fixed number of nodes. If a column has more paths, it is walked again without a tree, to count
the rows of paths by hash, and then with nodes only for paths whose hash has enough rows. The result does not depend on the
order of the rows.
"""

# ruff: noqa: ANN001, ANN201, ANN202  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant import types as t
from delta_variant.kernels.compiler import allocating, helper, jit, u64
from delta_variant.kernels.memory import (
    BAD_FIELD_ID,
    OVERLAP,
    SCALE,
    equal,
    fail,
    hash_bytes,
    open_container,
    sint,
    uint,
    value_size,
)

OBJECTS, ARRAYS = len(t.PRIMITIVES), len(t.PRIMITIVES) + 1
CLASSES = len(t.PRIMITIVES) + 2
"""The first columns of `counts`: one for each primitive type id, one for objects and one for arrays."""

NARROW = 18
NARROW_SCALES = CLASSES
NARROW_DIGITS = NARROW_SCALES + NARROW + 1
"""The next columns, for exact numerics of up to 18 digits: one for each scale and each number of digits before the point."""

WIDE_SCALES = NARROW_DIGITS + NARROW + 1
WIDE_DIGITS = WIDE_SCALES + t.MAX_PRECISION + 1
COLUMNS = WIDE_DIGITS + t.MAX_PRECISION + 1
"""The last columns are the same for exact numerics of 19 to 38 digits."""

DIGITS = (NARROW_SCALES, NARROW_DIGITS, WIDE_SCALES, WIDE_DIGITS)

MAX_DEPTH = 32
"""Containers nested deeper are not entered. pyarrow does not read Parquet schemas of over 100 levels; an array takes three."""

_ELEMENTS = 1
_TENS_LOW = np.array([10**k & (1 << 64) - 1 for k in range(39)], np.uint64)
_TENS_HIGH = np.array([10**k >> 64 for k in range(39)], np.uint64)


@helper
def _cell(parent, name, cells):
    """The index in `cells` that counts the rows of a path, from its parent's index and the hash of its name."""
    h = (np.uint64(parent) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(name)) * np.uint64(0xFF51AFD7ED558CCD)
    return np.int64(h >> np.uint64(32)) & (len(cells) - 1)


@helper
def _child(parent, name, data, at, size, used, parents, name_at, name_size, table, cells, cell_of, least):
    """The node of a key below `parent`, created if it is new; -1 if too few rows have it, -2 if there is no room."""
    mask = len(table) - 1
    slot = (name + parent * 0x9E3779B1) & mask
    while table[slot] >= 0:
        node = table[slot]
        if (
            parents[node] == parent
            and name_size[node] == size
            and (size <= 0 or at == name_at[node] or equal(data, at, data, name_at[node], size))
        ):
            return node
        slot = (slot + 1) & mask
    node = used[0]
    if len(cells):
        cell = _cell(cell_of[parent], name, cells)
        if cells[cell] < least:
            return np.int64(-1)
    if node == len(parents):
        return np.int64(-2)
    if len(cells):
        cell_of[node] = cell
    parents[node], name_at[node], name_size[node], table[slot], used[0] = parent, at, size, node, node + 1
    return node


@helper
def _digits(low, high):
    """The number of decimal digits of an unsigned 128-bit number; 0 for zero."""
    digits = 0
    while digits < 39 and (high > _TENS_HIGH[digits] or (high == _TENS_HIGH[digits] and low >= _TENS_LOW[digits])):
        digits += 1
    return digits


@helper
def _count_exact(data, p, kind, node, counts):
    """Counts the scale of an integer or a decimal and its digits before the point. Returns False if the scale is above 38."""
    scale, low, high = np.int64(0), np.uint64(0), np.uint64(0)
    if kind == t.DECIMAL16:
        low, high = u64(data, p + 2), u64(data, p + 10)
        if np.int64(high) < 0:
            low = ~low + np.uint64(1)
            high = ~high + (np.uint64(1) if low == np.uint64(0) else np.uint64(0))
    else:
        number = sint(data, p + 1, 1 << kind - t.INT8) if kind <= t.INT64 else sint(data, p + 2, 4 if kind == t.DECIMAL4 else 8)
        low = np.uint64(-number if number < 0 else number)
    if kind > t.INT64:
        scale = np.int64(data[p + 1])
        if scale > t.MAX_PRECISION:
            return False
    digits = max(_digits(low, high) - scale, 0)
    if digits + scale <= NARROW:
        counts[node, NARROW_SCALES + scale] += 1
        counts[node, NARROW_DIGITS + digits] += 1
    elif digits + scale <= t.MAX_PRECISION:
        counts[node, WIDE_SCALES + scale] += 1
        counts[node, WIDE_DIGITS + digits] += 1
    return True


@allocating
def walk(
    data, at, limit, dictionary, key_data, key_start, key_at, key_size,
    parents, name_at, name_size, table, cells, cell_of, least, deepest, rows, seen, counts, fault,
):  # fmt: skip
    """Counts every value of every row: rows[node] counts the rows that have the path, counts[node] its values, see COLUMNS.

    deepest: how many levels of containers are entered, at most MAX_DEPTH.
    If `counts` is empty, there are no nodes, and rows[cell] counts the rows of paths by hash; this makes `cells`. If `cells` is
    not empty, only paths whose cell has at least `least` rows get a node. Returns the number of nodes, 0 if there is no room
    for them, or -1.
    """
    sketching = len(counts) == 0
    used = np.ones(1, np.int64)
    hashes = np.zeros(len(key_at), np.int64)  # of the keys that a row has had
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
            if seen[node] != row:
                seen[node] = row
                rows[node] += 1
            basic, kind = data[p] & 3, np.int64(data[p] >> 2)
            if basic >= t.OBJECT:
                if not sketching:
                    counts[node, OBJECTS if basic == t.OBJECT else ARRAYS] += 1
                if depth < deepest:
                    count, id_width, width, ids, offsets, base, _ = open_container(data, p, limit[row])
                    frame[depth, 0], frame[depth, 1], frame[depth, 2] = node, 0, count
                    frame[depth, 3] = ids if basic == t.OBJECT else -1
                    frame[depth, 4], frame[depth, 5], frame[depth, 6] = id_width << 3 | width, offsets, base
                    depth += 1
            elif not sketching:
                if basic == t.SHORT_STRING:
                    kind = np.int64(t.STRING)
                counts[node, kind if kind != t.FALSE else t.TRUE] += 1
                exact = t.INT8 <= kind <= t.INT64 or t.DECIMAL4 <= kind <= t.DECIMAL16
                if exact and not _count_exact(data, p, kind, node, counts):
                    return fail(fault, SCALE, row, p)
            node = np.int64(-1)
            while depth and node < 0:
                top = frame[depth - 1]
                if top[1] == top[2]:
                    depth -= 1
                    continue
                p = top[6] + uint(data, top[5] + top[1] * (top[4] & 7), top[4] & 7)
                name, name_start, name_bytes = np.int64(_ELEMENTS), np.int64(0), np.int64(-1)
                if top[3] >= 0:
                    field_id = uint(data, top[3] + top[1] * (top[4] >> 3), top[4] >> 3)
                    if field_id >= known:
                        return fail(fault, BAD_FIELD_ID, row, top[3])
                    key = first + field_id
                    name_start, name_bytes = key_at[key], key_size[key]
                    if hashes[key] == 0:
                        hashes[key] = hash_bytes(key_data, name_start, name_bytes)
                    name = hashes[key]
                top[1] += 1
                if sketching:
                    node = _cell(top[0], name, rows)
                else:
                    node = _child(
                        top[0], name, key_data, name_start, name_bytes,
                        used, parents, name_at, name_size, table, cells, cell_of, least,
                    )  # fmt: skip
                    if node == -2:
                        return np.int64(0)
            if node < 0:
                break
    return used[0]


@jit
def count_fields(
    data, at, limit, dictionary, key_data, key_start, key_at, key_size, name_of_key, table, first, counts, fault
):  # fmt: skip
    """Sets counts[name] to how many of the objects have a field of each name. Returns how many names there are, or -1.

    first[name]: a key that has the name. name_of_key[key] is -1 for all keys; only keys of fields are looked up. `table` is a
    hash table for len(first) names. Stops when there are as many names.
    """
    found, mask = np.int64(0), len(table) - 1
    for row in range(len(at)):
        fields, id_width, _, ids, _, _, _ = open_container(data, at[row], limit[row])
        if fields < 0:
            return fail(fault, -fields, row, at[row])
        before = key_start[dictionary[row]]
        known = key_start[dictionary[row] + 1] - before
        for field in range(fields):
            field_id = uint(data, ids + field * id_width, id_width)
            if field_id >= known:
                return fail(fault, BAD_FIELD_ID, row, ids)
            key = before + field_id
            if name_of_key[key] < 0:
                slot = hash_bytes(key_data, key_at[key], key_size[key]) & mask
                while table[slot] >= 0:
                    other, size = first[table[slot]], key_size[key]
                    if key_size[other] == size and equal(key_data, key_at[other], key_data, key_at[key], size):
                        break
                    slot = (slot + 1) & mask
                if table[slot] < 0:
                    table[slot], first[found] = found, key
                    found += 1
                name_of_key[key] = table[slot]
            counts[name_of_key[key]] += 1
            if found == len(first):
                return found
    return found
