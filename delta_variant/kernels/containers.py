"""Objects and arrays of one JSON text: the order of their fields, and their headers."""

# ruff: noqa: ANN001, ANN201  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from delta_variant import types as t
from delta_variant.kernels.compiler import apart, called, helper, likely, move, opaque, store16, store32
from delta_variant.kernels.keys import HALF, HALVES, Int32s, Int64s, Words, is_before, is_before_in_utf16, same_bytes
from delta_variant.kernels.memory import bytes_for, write_container

_SMALL = 48  # fields


OPEN = np.dtype(
    [
        ("head", np.int64),  # where its header starts
        ("first", np.int64),  # where its first child starts
        ("base", np.int64),  # its first field in `Work.fields`
        ("place", np.int64),
        ("around", np.int64),  # the state of the container around it
        ("unused", np.int64, 3),  # 64 bytes
    ]
)
"""An open container."""


class Work(NamedTuple):
    """Working space for one row: open containers, pending fields, its keys, orders of fields, and two long numbers.

    A field is the id of its key << 32 | the lower 32 bits of its position.
    """

    stack: npt.NDArray[np.void]
    fields: Int64s
    keys: Int32s
    order: Int32s
    spare: Int32s
    prefix: Words
    wide: Words


@called
def sort_fields(names, used, work, base, count):
    """Sorts fields by key into work.order. Returns whether any have the same key; they keep their order.

    In a small object the place of a field is the number of fields before it, if the first eight bytes of their keys tell. Else
    runs of two arrays are merged. The order is that of bytes, or of UTF-16 if a key has half a surrogate pair.
    """
    apart()
    order, spare, prefix = work.order, work.spare, work.prefix
    in_utf16 = False
    if used[HALVES]:
        for k in range(count):
            in_utf16 |= names.key[work.keys[work.fields[base + k] >> 32]].word == HALF
    if count <= _SMALL and not in_utf16:
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
            return False
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
                    take = not (is_before_in_utf16(names, b, a) if in_utf16 else is_before(names, b, a))
                if take:
                    spare[k] = order[i]
                    i += 1
                else:
                    spare[k] = order[j]
                    j += 1
        for k in range(count):
            order[k] = spare[k]
        width *= 2
    before = np.int64(-1)
    for k in range(count):
        key = work.fields[base + work.order[k]] >> 32
        if key == before:
            return True
        before = key
    return False


@called
def are_alike(names, work, base, count):
    """Whether two fields of an object get the same bytes for their keys: one of them has half a surrogate pair."""
    apart()
    for k in range(count):
        key = work.keys[work.fields[base + k] >> 32]
        for other in range(count if names.key[key].word == HALF else 0):
            if work.keys[work.fields[base + other] >> 32] != key and same_bytes(
                names, key, work.keys[work.fields[base + other] >> 32]
            ):
                return True
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
        at = np.int64(np.uint32(work.fields[base + f] - first))
        end = np.int64(np.uint32(work.fields[base + f + 1] - first)) if f + 1 < count else size
        if work.spare[f]:
            work.spare[f] = -1
            continue
        move(out, first + written, first + at, end - at)
        work.fields[base + left] = work.fields[base + f] >> 32 << 32 | np.int64(np.uint32(first + written))
        work.spare[f] = left
        written += end - at
        left += 1
    kept = 0
    for k in range(count):
        if work.spare[work.order[k]] >= 0:
            work.order[kept] = work.spare[work.order[k]]
            kept += 1
    return left, written


# Offsets are stored in order, four bytes each: the next one overwrites what is too much. The last number before the first child
# is stored exactly. To save and restore the child's bytes takes longer: they have just been written one by one, and a load of
# all of them waits until the stores are in the cache.
@helper
def close_object(out, head, first, o, fields, base, count, order, order_at, ids, shapes, opened, depth):
    """Writes the header of an object whose values lie from first to o. Returns the position after the object."""
    size = o - first
    width, at = bytes_for(size), head + 2
    if likely(ids <= 0xFF) and likely(size <= 0xFF):
        offsets = at + count
        start = offsets + count + 1
        if not likely(start == first):
            _shift(out, head, first, start, size, shapes, opened, depth)
        store16(out, head, np.uint16(count << 8 | t.OBJECT))
        k = np.int64(0)
        while k < count:
            field = fields[base + order[order_at + k]]
            out[at + k] = field >> 32
            out[offsets + k] = field - first
            k = opaque(k + 1)
    elif ids <= 0xFF:
        offsets = at + count
        start = offsets + (count + 1) * width
        if not likely(start == first):
            _shift(out, head, first, start, size, shapes, opened, depth)
        store16(out, head, np.uint16(count << 8 | (width - 1) << 2 | t.OBJECT))
        k = np.int64(0)
        while k < count:
            field = fields[base + order[order_at + k]]
            out[at + k] = field >> 32
            store32(out, offsets + k * width, np.uint32(field - first))
            k = opaque(k + 1)
    else:
        largest = np.int64(0)
        for k in range(count):
            largest = max(largest, fields[base + k] >> 32)
        id_width = np.int64(bytes_for(largest))
        start = head + (5 if count > 0xFF else 2) + count * id_width + (count + 1) * width
        if not likely(start == first):
            _shift(out, head, first, start, size, shapes, opened, depth)
        at = write_container(out, head, t.OBJECT, count, id_width, width)
        offsets = at + count * id_width
        for k in range(count):
            _store(out, at + k * id_width, fields[base + order[order_at + k]] >> 32, id_width)
        for k in range(count):
            _store(out, offsets + k * width, fields[base + order[order_at + k]] - first, width)
    _store(out, offsets + count * width, size, width)
    return start + size


@helper
def close_array(out, head, first, o, fields, base, count, shapes, opened, depth):
    """Writes the header of an array whose elements lie from first to o. Returns the position after the array."""
    size = o - first
    width = bytes_for(size)
    start = head + (5 if count > 0xFF else 2) + (count + 1) * width
    if not likely(start == first):
        _shift(out, head, first, start, size, shapes, opened, depth)
    offsets = write_container(out, head, t.ARRAY, count, 0, width)
    if width == 1:
        for k in range(count):
            out[offsets + k] = fields[base + k] - first
    else:
        for k in range(count):
            store32(out, offsets + k * width, np.uint32(fields[base + k] - first))
    _store(out, offsets + count * width, size, width)
    return start + size


@helper
def _shift(out, head, first, start, size, shapes, opened, depth) -> None:
    """Moves the children of a container to `start`: its header is not as large as was expected."""
    move(out, start, first, size)
    shapes.reserve[guess_of(shapes, opened.place, depth)] = start - head


@helper
def _store(out, to, number, width) -> None:
    """Stores a number in exactly `width` bytes, 1 to 4."""
    if width == 1:
        out[to] = number
    elif width == 4:
        store32(out, to, np.uint32(number))
    else:
        store16(out, to, np.uint16(number))
        if width == 3:
            out[to + 2] = number >> 16


@helper
def guess_of(shapes, place, depth):
    """Where `reserve` has the bytes to keep for a header. Two places may share an entry: a wrong guess costs a move."""
    return (place + (depth << 5)) & (len(shapes.reserve) - 1)
