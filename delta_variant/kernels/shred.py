"""Objects and lists, and the residuals of all nodes.

`split_…` helpers and kernels find the children of objects and arrays, and `gather…` kernels copy bytes: residuals into `value`,
texts into their column. `split_object`, `measure_lists` and `leave_all` return the number of slots with a residual, or -1.
"""

# ruff: noqa: ANN001, ANN201, ANN202  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant import types as t
from delta_variant.kernels.compiler import called, copy, helper, jit
from delta_variant.kernels.memory import (
    BAD_FIELD_ID,
    DUPLICATE,
    OVERLAP,
    TRUNCATED,
    bytes_for,
    equal,
    fail,
    object_size,
    open_container,
    put,
    uint,
    value_size,
    write_container,
)
from delta_variant.kernels.take import leave

MORE_ROOM = np.int64(-2)
"""The result of `split_object` if an object has fault[1] fields, more than the working space."""


@helper
def _residual(data, ids, id_width, offsets, width, base, count, limit, keys, start, child_of_name):
    """(number of fields, bytes of their values, largest id) of an object's fields that the schema does not name.

    The number is minus a fault code if a value reaches past `limit`.
    """
    fields, size, largest = np.int64(0), np.int64(0), np.int64(0)
    for f in range(count):
        field_id = uint(data, ids + f * id_width, id_width)
        if child_of_name[keys[start + field_id]] < 0:
            one = value_size(data, base + uint(data, offsets + f * width, width), limit)
            if one < 0:
                return one, size, largest
            fields += 1
            size += one
            largest = max(largest, field_id)
    return fields, size, largest


@helper
def _locate(data, offsets, width, base, children, count, i, child_at, stride):
    """Sets the positions of an object's fields, by child; -1: none. Returns the largest offset."""
    last = np.int64(0)
    for f in range(count):
        offset = uint(data, offsets + f * width, width)
        last = max(last, offset)
        if children[f] >= 0:
            child_at[children[f] * stride + i] = base + offset
    return last


@helper
def _leave_out(child_at, stride, i, typed):
    """Says that slot i is not an object, so it has no children."""
    typed[i] = 0
    for at in range(i, len(child_at), stride):
        child_at[at] = -1


@called
def split_object(data, at, limit, meta, keys, key_start, child_of_name, child_at, stride, typed, rest, children, fault):
    """Finds the fields of objects. Returns the number of slots with a residual, -1, or MORE_ROOM.

    Sets child_at[child * stride + slot] to the position of a field, or -1, and typed[slot] to whether the Variant is an object.
    The residual of an object is an object of the fields that the schema does not name; any other Variant is a residual as a
    whole.

    Successive objects mostly have the same fields, so `children`, working space, keeps what the last list of field ids means.
    """
    left = np.int64(0)
    kept_ids, kept_count, kept_width, kept_meta, unnamed = np.int64(0), np.int64(-1), np.int64(0), np.int64(-1), np.int64(0)
    for i in range(len(at)):
        p, end = np.int64(at[i]), np.int64(limit[i])
        if p < 0:
            _leave_out(child_at, stride, i, typed)
            continue
        if p >= end or data[p] & 3 != t.OBJECT:
            _leave_out(child_at, stride, i, typed)
            if leave(data, p, end, i, rest, fault) < 0:
                return np.int64(-1)
            left += 1
            continue
        count, id_width, width, ids, offsets, base, total = open_container(data, p, end)
        if count < 0:
            return fail(fault, -count, i, p)
        start = key_start[meta[i]]
        if (
            count != kept_count
            or id_width != kept_width
            or meta[i] != kept_meta
            or not equal(data, ids, data, kept_ids, count * id_width)
        ):
            known, unnamed = key_start[meta[i] + 1] - start, np.int64(0)
            if count > len(children):
                fault[1] = count
                return MORE_ROOM
            for f in range(count):
                field_id = uint(data, ids + f * id_width, id_width)
                if field_id >= known:
                    return fail(fault, BAD_FIELD_ID, i, ids + f * id_width)
                child = child_of_name[keys[start + field_id]]
                children[f] = child
                if child < 0:
                    unnamed += 1
                else:
                    for g in range(f):
                        if children[g] == child:
                            return fail(fault, DUPLICATE, i, ids + f * id_width)
            kept_ids, kept_count, kept_width, kept_meta = ids, count, id_width, np.int64(meta[i])
        if (count - unnamed) * stride < len(child_at):
            _leave_out(child_at, stride, i, typed)
        typed[i] = 1
        if width == 1:
            last = _locate(data, offsets, 1, base, children, count, i, child_at, stride)
        elif width == 2:
            last = _locate(data, offsets, 2, base, children, count, i, child_at, stride)
        else:
            last = _locate(data, offsets, width, base, children, count, i, child_at, stride)
        if last >= total and count:
            return fail(fault, TRUNCATED, i, offsets)
        if unnamed:
            fields, size, largest = _residual(data, ids, id_width, offsets, width, base, count, end, keys, start, child_of_name)
            if fields < 0:
                return fail(fault, -fields, i, p)
            if size > total:
                return fail(fault, OVERLAP, i, p)
            rest[i] = object_size(fields, size, largest)
            left += 1
    return left


@jit
def gather_objects(data, at, limit, meta, keys, key_start, child_of_name, out_at, out):
    """Writes the residuals that `split_object` measured to the positions out_at, which are the Arrow offsets for `rest`."""
    for i in range(len(at)):
        to, size = np.int64(out_at[i]), np.int64(out_at[i + 1] - out_at[i])
        if size == 0:
            continue
        if data[at[i]] & 3 != t.OBJECT:
            copy(out, to, data, at[i], size)
            continue
        count, id_width, width, ids, offsets, base, _ = open_container(data, at[i], limit[i])
        start = key_start[meta[i]]
        fields, total, largest = _residual(
            data, ids, id_width, offsets, width, base, count, limit[i], keys, start, child_of_name
        )
        new_id_width, new_width = bytes_for(largest), bytes_for(total)
        new_ids = write_container(out, to, t.OBJECT, fields, new_id_width, new_width)
        new_offsets = new_ids + fields * new_id_width
        new_base = new_offsets + (fields + 1) * new_width
        written = np.int64(0)
        for f in range(count):
            field_id = uint(data, ids + f * id_width, id_width)
            if child_of_name[keys[start + field_id]] >= 0:
                continue
            source = base + uint(data, offsets + f * width, width)
            one = value_size(data, source, limit[i])
            put(out, new_ids, field_id, new_id_width)
            put(out, new_offsets, written, new_width)
            copy(out, new_base + written, data, source, one)
            new_ids += new_id_width
            new_offsets += new_width
            written += one
        put(out, new_offsets, written, new_width)


@called
def measure_lists(data, at, limit, offsets, typed, rest, fault):
    """Sets the Arrow `offsets` of lists, which follow from offsets[0]. Returns the number of slots with a residual, or -1.

    typed[slot] is set to 1 for an array; any other Variant is a residual as a whole. Children that overlap could have more
    elements than `data` has bytes, which is a fault, here and for the bytes of texts.
    """
    left, total = np.int64(0), np.int64(offsets[0])
    for i in range(len(at)):
        p, end = np.int64(at[i]), np.int64(limit[i])
        typed[i] = 0
        if p >= 0:
            if p < end and data[p] & 3 == t.ARRAY:
                count = open_container(data, p, end)[0]
                if count < 0:
                    return fail(fault, -count, i, p)
                typed[i] = 1
                total += count
                if total > len(data):
                    return fail(fault, OVERLAP, i, p)
            else:
                rest[i] = value_size(data, p, end)
                if rest[i] < 0:
                    return fail(fault, -rest[i], i, p)
                left += 1
        offsets[i + 1] = total
    return left


@jit
def split_lists(data, at, limit, meta, elements, child_at, child_limit, child_meta, fault):
    """Finds the elements of all arrays; each becomes a slot of the child. Returns 0, or -1. elements: the lists' offsets."""
    slot = 0
    for i in range(len(at)):
        if elements[i] == elements[i + 1]:
            continue
        count, _, width, _, offsets, base, total = open_container(data, at[i], limit[i])
        budget = total
        for e in range(count):
            element = base + uint(data, offsets + e * width, width)
            size = value_size(data, element, limit[i])
            if size < 0:
                return fail(fault, -size, i, element)
            budget -= size
            if budget < 0:
                return fail(fault, OVERLAP, i, at[i])
            child_at[slot], child_limit[slot], child_meta[slot] = element, element + size, meta[i]
            slot += 1
    return np.int64(0)


@called
def leave_all(data, at, limit, rest, fault):
    """Makes every Variant a residual."""
    left = np.int64(0)
    for i in range(len(at)):
        if at[i] >= 0:
            if leave(data, np.int64(at[i]), np.int64(limit[i]), i, rest, fault) < 0:
                return np.int64(-1)
            left += 1
    return left


@called
def copy_texts(data, start, offsets, out):
    """Copies the bytes of `data` from start[i] to out[offsets[i]:offsets[i + 1]]. `out` has 32 bytes past the last offset."""
    safe = len(data) - 32
    for i in range(len(start)):
        to, size = np.int64(offsets[i]), np.int64(offsets[i + 1] - offsets[i])
        if size == 0:
            continue
        if start[i] > safe:
            copy(out, to, data, start[i], size)
        elif size <= 16:
            copy(out, to, data, start[i], 16)
        elif size <= 32:
            copy(out, to, data, start[i], 32)
        else:
            copy(out, to, data, start[i], size)


@jit
def gather(data, start, offsets, out):
    """`copy_texts` as a kernel."""
    copy_texts(data, start, offsets, out)
