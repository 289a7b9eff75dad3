"""Objects and arrays of one JSON text: the order of their fields, and their headers."""

# ruff: noqa: ANN001, ANN201  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from delta_variant import types as t
from delta_variant.kernels.keys import Int32s, Int64s, Words, is_before
from delta_variant.kernels.memory import bytes_for, helper, u32, write_container
from delta_variant.kernels.scan import move, store32

_SMALL = 48  # fields


class Work(NamedTuple):
    """Working space for one row: open containers, pending fields, its keys, orders of fields, and two long numbers."""

    stack: Int64s
    fields: Int64s
    keys: Int32s
    order: Int32s
    spare: Int32s
    prefix: Words
    wide: Words


@helper
def sort_fields(names, work, base, count):
    """Sorts fields by key into work.order. Fields of the same key keep their order.

    In a small object the place of a field is the number of fields before it, if the first eight bytes of their keys tell. Else
    runs of two arrays are merged.
    """
    order, spare, prefix = work.order, work.spare, work.prefix
    if count <= _SMALL:
        for k in range(count):
            prefix[k] = names.key[work.keys[work.fields[base + k] >> 32]].prefix
        told = True
        for k in range(count):
            before = same = 0
            for other in range(count):
                before += prefix[other] < prefix[k]
                same += prefix[other] == prefix[k]
            order[before] = k
            told = told and same == 1
        if told:
            return
    for k in range(count):
        order[k] = k
    width = 1
    while width < count:
        for left in range(0, count, 2 * width):
            middle, right = min(left + width, count), min(left + 2 * width, count)
            i, j = left, middle
            for k in range(left, right):
                take = j == right
                if i < middle and j < right:
                    a, b = work.keys[work.fields[base + order[i]] >> 32], work.keys[work.fields[base + order[j]] >> 32]
                    take = not is_before(names, b, a)
                if take:
                    spare[k] = order[i]
                    i += 1
                else:
                    spare[k] = order[j]
                    j += 1
        for k in range(count):
            order[k] = spare[k]
        width *= 2


@helper
def has_repeated(work, base, count):
    """Whether two fields in work.order have the same key."""
    before = np.int64(-1)
    for k in range(count):
        key = work.fields[base + work.order[k]] >> 32
        if key == before:
            return True
        before = key
    return False


@helper
def keep_last(work, base, count, out, first, size):
    """Drops each field whose key comes again, and closes the gaps. Returns (fields left, bytes of their values).

    work.order is that of all fields; it becomes that of the fields left.
    """
    for k in range(count):
        work.spare[work.order[k]] = (
            k + 1 < count and work.fields[base + work.order[k]] >> 32 == work.fields[base + work.order[k + 1]] >> 32
        )
    left, written = 0, np.int64(0)
    for f in range(count):
        at = work.fields[base + f] & 0xFFFFFFFF
        end = work.fields[base + f + 1] & 0xFFFFFFFF if f + 1 < count else size
        if work.spare[f]:
            work.spare[f] = -1
            continue
        move(out, first + written, first + at, end - at)
        work.fields[base + left] = work.fields[base + f] >> 32 << 32 | written
        work.spare[f] = left
        written += end - at
        left += 1
    kept = 0
    for k in range(count):
        if work.spare[work.order[k]] >= 0:
            work.order[kept] = work.spare[work.order[k]]
            kept += 1
    return left, written


@helper
def close(out, head, first, o, basic, fields, base, count, order, order_at, ids, shapes, guess):
    """Writes the header of a container whose children lie from first to o. Returns the position after the container."""
    size, id_width = o - first, np.int64(0)
    width = bytes_for(size)
    if basic == t.OBJECT:
        id_width = np.int64(1)
        if ids > 256:
            largest = np.int64(0)
            for k in range(count):
                largest = max(largest, fields[base + k] >> 32)
            id_width = np.int64(bytes_for(largest))
    header = 1 + (4 if count > 0xFF else 1) + count * id_width + (count + 1) * width
    if head + header != first:
        move(out, head + header, first, size)
        shapes.reserve[guess] = header
    to = write_container(out, head, basic, count, id_width, width)
    offsets = to + count * id_width
    # Four bytes of each number are stored, in order: the next one overwrites what is too much, and the first child comes back.
    child = u32(out, head + header)
    if basic == t.ARRAY:
        for k in range(count):
            store32(out, to + k * width, np.uint32(fields[base + k]))
    elif id_width == 1:
        for k in range(count):
            field = fields[base + order[order_at + k]]
            out[to + k] = field >> 32
            store32(out, offsets + k * width, np.uint32(field))
    else:
        for k in range(count):
            store32(out, to + k * id_width, np.uint32(fields[base + order[order_at + k]] >> 32))
        for k in range(count):
            store32(out, offsets + k * width, np.uint32(fields[base + order[order_at + k]]))
    store32(out, offsets + count * width, np.uint32(size))
    store32(out, head + header, child)
    return head + header + size


@helper
def guess_of(shapes, place, depth):
    """Where `reserve` has the bytes to keep for a header. Two places may share an entry: a wrong guess costs a move."""
    return (place + 37 * depth) & (len(shapes.reserve) - 1)
