"""Variants of many dictionaries → Variants of one dictionary per row, for Spark's first layout, where each value has metadata.

`split` separates metadata and value. The caller then validates the values, so that the other loops only follow offsets. `mark`
finds the names that the values use. `measure_metadata` and `write_metadata` build the metadata of a row from all its names,
sorted; `measure_values` and `write_values` rewrite its values with ids of the new metadata, in the smallest form. `find_fields`
is used for all older layouts.

Containers are numbered in the order in which the walks through the Variants (`validate.open_frame`) reach them.
"""

# ruff: noqa: ANN001, ANN201, ANN202  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant import types as t
from delta_variant.kernels.compiler import allocating, copy, helper, jit
from delta_variant.kernels.memory import (
    BAD_FIELD_ID,
    DICTIONARY,
    DUPLICATE,
    OVERLAP,
    TRUNCATED,
    VERSION,
    bytes_for,
    fail,
    object_size,
    open_container,
    put,
    uint,
    value_size,
    write_container,
)
from delta_variant.kernels.validate import MAX_DEPTH, next_child, open_frame


@jit
def split(data, offsets, valid, starts, fault):
    """Sets starts[2 i] and starts[2 i + 1] to the starts of slot i's metadata and value, as Arrow offsets. Returns 0, or -1.

    Source: Spark's first layout, "Parquet Layout": header, dictionary size and last offset give the start of the value.
    """
    slots = len(offsets) - 1
    for i in range(slots):
        at, limit = np.int64(offsets[i]), np.int64(offsets[i + 1])
        starts[2 * i] = starts[2 * i + 1] = at
        if len(valid) and not valid[i]:
            continue
        if at >= limit or data[at] & 0x0F != 1:
            return fail(fault, VERSION, i, at)
        width = np.int64(data[at] >> 6) + 1
        if at + 1 + width > limit:
            return fail(fault, DICTIONARY, i, at)
        texts = at + 1 + width * (uint(data, at + 1, width) + 2)
        if texts > limit:
            return fail(fault, DICTIONARY, i, at)
        value = texts + uint(data, texts - width, width)
        if value >= limit:
            return fail(fault, TRUNCATED if value == limit else DICTIONARY, i, at)
        starts[2 * i + 1] = value
    starts[2 * slots] = offsets[slots]
    return np.int64(0)


@allocating
def mark(data, at, limit, dictionary, key_start, rank, row, names, stamp, pairs, found, fault):
    """Finds the names that each row uses. Returns 0, or -1.

    `pairs` gets row[slot] * names + rank[key] for every key that a value uses, once for each value. `found` is set to (number
    of pairs, number of containers). rank: by key, the number of its name. stamp: by key, all -1. `pairs` has room for one entry
    per three bytes, since a field takes an id, an offset and a value, which may not overlap.
    """
    frame = np.empty((MAX_DEPTH, 5), np.int64)
    count_of_pairs, containers = np.int64(0), np.int64(0)
    for i in range(len(at)):
        p, depth = at[i], 0
        first = key_start[dictionary[i]]
        while p >= 0:
            if data[p] & 3 >= t.OBJECT:
                count, id_width, width, ids, offsets, base, total = open_container(data, p, limit[i])
                containers += 1
                size, before = np.int64(0), np.int64(-1)
                for f in range(count):
                    size += value_size(data, base + uint(data, offsets + f * width, width), limit[i])
                if size > total:
                    return fail(fault, OVERLAP, i, p)
                if data[p] & 3 == t.OBJECT:
                    for f in range(count):
                        key = first + uint(data, ids + f * id_width, id_width)
                        if rank[key] == before:
                            return fail(fault, DUPLICATE, i, ids + f * id_width)
                        before = rank[key]
                        if stamp[key] != i and count_of_pairs < len(pairs):
                            stamp[key] = i
                            pairs[count_of_pairs] = row[i] * names + rank[key]
                            count_of_pairs += 1
                open_frame(frame, depth, count, width, offsets, base)
                depth += 1
            p, depth = next_child(data, frame, depth)
    found[0], found[1] = count_of_pairs, containers
    return np.int64(0)


@jit
def measure_metadata(start, ranks, name_at, size):
    """Sets size[row] to the size in bytes of the row's metadata.

    Its names are ranks[start[row]:start[row + 1]]. Name n lies from name_at[n] to name_at[n + 1].
    """
    for row in range(len(size)):
        count, total = start[row + 1] - start[row], np.int64(0)
        for k in range(start[row], start[row + 1]):
            total += name_at[ranks[k] + 1] - name_at[ranks[k]]
        size[row] = 1 + bytes_for(max(count, total)) * (count + 2) + total


@jit
def write_metadata(start, ranks, name_at, texts, offsets, out):
    """Writes the metadata that `measure_metadata` measured: sorted strings, in the smallest form."""
    for row in range(len(start) - 1):
        at, count, total = np.int64(offsets[row]), start[row + 1] - start[row], np.int64(0)
        for k in range(start[row], start[row + 1]):
            total += name_at[ranks[k] + 1] - name_at[ranks[k]]
        width = bytes_for(max(count, total))
        out[at] = 1 | 1 << 4 | (width - 1) << 6
        put(out, at + 1, count, width)
        at += 1 + width
        put(out, at, 0, width)
        base, end = at + width * (count + 1), np.int64(0)
        for k in range(start[row], start[row + 1]):
            size = name_at[ranks[k] + 1] - name_at[ranks[k]]
            copy(out, base + end, texts, name_at[ranks[k]], size)
            end += size
            at += width
            put(out, at, end, width)


@helper
def _new_id(ranks, start, end, rank):
    """The index of `rank` within ranks[start:end], which is ascending and contains it."""
    low, high = start, end
    while low < high:
        middle = (low + high) >> 1
        if ranks[middle] < rank:
            low = middle + 1
        else:
            high = middle
    return low - start


@allocating
def measure_values(data, at, limit, dictionary, key_start, rank, row, start, ranks, largest, inner, size):
    """Sets size[slot] to the size in bytes of the value with new ids.

    Sets by container, for `write_values`, `largest` to its largest id (-1: an array) and `inner` to the bytes of its children.
    """
    frame, number = np.empty((MAX_DEPTH, 5), np.int64), np.empty(MAX_DEPTH, np.int64)
    containers = np.int64(0)
    for i in range(len(at)):
        p, depth = at[i], 0
        first, low, high = key_start[dictionary[i]], start[row[i]], start[row[i] + 1]
        size[i] = 0
        while p >= 0:
            if data[p] & 3 >= t.OBJECT:
                count, id_width, width, ids, offsets, base, _ = open_container(data, p, limit[i])
                largest[containers] = -1
                if data[p] & 3 == t.OBJECT:
                    largest[containers] = 0
                    for f in range(count):
                        key = first + uint(data, ids + f * id_width, id_width)
                        largest[containers] = max(largest[containers], _new_id(ranks, low, high, rank[key]))
                inner[containers], number[depth] = 0, containers
                containers += 1
                open_frame(frame, depth, count, width, offsets, base)
                depth += 1
            elif depth:
                inner[number[depth - 1]] += value_size(data, p, limit[i])
            else:
                size[i] = value_size(data, p, limit[i])
            open_ = depth
            p, depth = next_child(data, frame, depth)
            while open_ > depth:  # containers that ended with this value
                open_ -= 1
                own, count = number[open_], frame[open_, 1]
                if largest[own] >= 0:
                    whole = object_size(count, inner[own], largest[own])
                else:
                    whole = 1 + (4 if count > 0xFF else 1) + (count + 1) * bytes_for(inner[own]) + inner[own]
                if open_:
                    inner[number[open_ - 1]] += whole
                else:
                    size[i] = whole


@allocating
def write_values(data, at, limit, dictionary, key_start, rank, row, start, ranks, largest, inner, out_at, out):
    """Writes the values that `measure_values` measured to the positions out_at, which are the Arrow offsets for `size`."""
    frame = np.empty((MAX_DEPTH, 5), np.int64)
    new = np.empty((MAX_DEPTH, 3), np.int64)  # of open containers: next offset, its width, first child
    containers = np.int64(0)
    for i in range(len(at)):
        p, depth, to = at[i], 0, np.int64(out_at[i])
        first, low, high = key_start[dictionary[i]], start[row[i]], start[row[i] + 1]
        while p >= 0:
            if data[p] & 3 >= t.OBJECT:
                count, id_width, width, ids, offsets, base, _ = open_container(data, p, limit[i])
                new_id_width, new_width = bytes_for(max(largest[containers], 0)), bytes_for(inner[containers])
                to = write_container(out, to, data[p] & 3, count, new_id_width, new_width)
                if data[p] & 3 == t.OBJECT:
                    for f in range(count):
                        key = first + uint(data, ids + f * id_width, id_width)
                        put(out, to, _new_id(ranks, low, high, rank[key]), new_id_width)
                        to += new_id_width
                put(out, to + count * new_width, inner[containers], new_width)
                new[depth, 0], new[depth, 1], new[depth, 2] = to, new_width, to + (count + 1) * new_width
                to = new[depth, 2]
                containers += 1
                open_frame(frame, depth, count, width, offsets, base)
                depth += 1
            else:
                one = value_size(data, p, limit[i])
                copy(out, to, data, p, one)
                to += one
            p, depth = next_child(data, frame, depth)
            if depth:
                put(out, new[depth - 1, 0], to - new[depth - 1, 2], new[depth - 1, 1])
                new[depth - 1, 0] += new[depth - 1, 1]


@jit
def find_fields(data, offsets, valid, typed, dictionary, keys, key_start, names, slot, name, at, size, fault):
    """Finds the fields of objects in `value` whose names the typed object beside them has too. Returns their number, or -1.

    keys: by key, the number of its name among those of the typed object; `names` for any other key. Writes the slot, the name,
    the position and the size of as many fields as there is room for.
    """
    count_of_fields = np.int64(0)
    for i in range(len(offsets) - 1):
        p, limit = np.int64(offsets[i]), np.int64(offsets[i + 1])
        if not typed[i] or (len(valid) and not valid[i]) or p >= limit or data[p] & 3 != t.OBJECT:
            continue
        count, id_width, width, ids, offsets_, base, total = open_container(data, p, limit)
        if count < 0:
            return fail(fault, -count, i, p)
        first, taken = key_start[dictionary[i]], np.int64(0)
        known = key_start[dictionary[i] + 1] - first
        for f in range(count):
            field_id = uint(data, ids + f * id_width, id_width)
            if field_id >= known:
                return fail(fault, BAD_FIELD_ID, i, ids + f * id_width)
            if keys[first + field_id] == names:
                continue
            source = base + uint(data, offsets_ + f * width, width)
            one = value_size(data, source, limit)
            taken += one
            if one < 0 or taken > total:
                return fail(fault, -one if one < 0 else OVERLAP, i, source)
            if count_of_fields < len(slot):
                slot[count_of_fields], name[count_of_fields] = i, keys[first + field_id]
                at[count_of_fields], size[count_of_fields] = source, one
            count_of_fields += 1
    return count_of_fields
