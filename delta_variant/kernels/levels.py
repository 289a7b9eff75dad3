"""Shreds all nodes of a level of a schema in one call: those that have a slot for each slot of the level's root.

`split` runs the helpers of `shred` and `take` for one node after the other. `finish` copies texts, and describes the columns in
structs. A call of a kernel takes as long as the work on a few hundred slots, so a node has no call of its own. In: the steps of
a level, made by `shredding.steps`.
"""

# ruff: noqa: ANN001, ANN201, ANN202  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant.kernels.compiler import address, helper, jit, span
from delta_variant.kernels.memory import is_ascii, pack_bits
from delta_variant.kernels.shred import MORE_ROOM, copy_texts, leave_all, measure_lists, split_object
from delta_variant.kernels.structs import LENGTH, NULLS, WORDS
from delta_variant.kernels.take import take_booleans, take_decimals, take_fixed, take_integers, take_texts

OBJECT, LIST, RESIDUAL, TEXTS, BOOLEANS, INTEGERS, DECIMALS, FIXED = range(8)
"""What is done at a node. RESIDUAL: it has no typed_value."""

ACTION, ROW, KIND, SIZE, SCALE, BITS, OUT, SPARE, FIRST, CHILDREN, TABLE, NAMES = range(12)
"""The columns of `steps`, which has a line for each node of a level, a node before its children.

ROW: its row of `at`. KIND, SIZE, SCALE: the type id of a leaf, the bytes of a value, the scale of a decimal. BITS, OUT: eighths
of the room before its validity, and before its values or offsets; SPARE: see `room_at`. FIRST,
CHILDREN: the rows of `at` that its children have. TABLE, NAMES: where its names or its largest decimals start in the table of
all, and how many names there are.
"""

MISSING, SIZE_OF, RESIDUALS, BYTES, TOO_LARGE, START, NOT_ASCII = range(7)
"""The columns of `found`, which has a line for each step and one for their sums.

MISSING: slots without typed_value. SIZE_OF: bytes of texts, or elements of lists. RESIDUALS, BYTES: how many residuals there
are, and their bytes. TOO_LARGE: 1 + the slot at which these are more bytes than the chunk has, or 0. START: where the texts
start in the buffer that `finish` fills; in the last line, its size. NOT_ASCII: whether a byte of the texts is not ASCII.
"""

VALUE_BUFFERS, TYPED_BUFFERS, GROUP_BUFFERS, GROUP_CHILDREN, TYPED_CHILDREN = 30, 33, 36, 37, 39
"""The words of a node after the structs of `value`, `typed_value` and the group of both: pointers to buffers and children."""


@helper
def room_at(step, column, eighth):
    """Where a buffer of a level starts. The level has 8 * eighth slots, rounded up to a multiple of 64.

    64 bytes are spared after offsets, which are one more than slots, and after integers, which are written 8 bytes at a time.
    """
    return eighth * step[column] + 64 * step[SPARE]


@helper
def _keep(rest, low, ends, found, most):
    """Adds the sizes of residuals to their ends, and makes them 0 for the next node."""
    if found[RESIDUALS] == 0:
        for i in range(low + 1):
            ends[i] = 0
    total = found[BYTES]
    for i in range(len(rest)):
        total += rest[i]
        if total > most and found[TOO_LARGE] == 0:
            found[TOO_LARGE] = low + i + 1
        ends[low + i + 1] = total
        rest[i] = 0
    found[BYTES] = total


@jit
def split(data, root, limit, meta, keys, key_start, steps, names, largest, at, work, room, ends, found, fault):
    """Takes a level of a schema apart. Returns the number of steps that went well, or MORE_ROOM.

    root[slot] is the position of the Variant of the root; at[block, row, slot] becomes that of the Variant of a node in slot
    block * at.shape[2] + slot. All nodes take the slots of one block before those of the next, so that their bytes stay in the
    cache. After a fault later blocks only take the steps before it: what is reported is the first fault of the first node that
    has one.

    Fills `room` with zeros for columns without a value, and with validity, values and offsets of all nodes; ends[step] with the
    offsets of the residuals of nodes that have some. `work`: six bytes for each slot of a block, and four for each field of an
    object.
    """
    count, stop, block_size = len(limit), len(steps), at.shape[2]
    eighth = (count + 63) // 64 * 8
    rest = span(work, 2 * block_size, block_size, np.int32)
    children = span(work, 6 * block_size, (len(work) - 6 * block_size) // 4, np.int32)
    for number in range(len(found)):
        for column in range(found.shape[1]):
            found[number, column] = 0
    for i in range(block_size):
        rest[i] = 0
    for byte in range(4 * count + 4):
        room[byte] = 0
    for block in range(len(at)):
        low = block * block_size
        size = min(block_size, count - low)
        roots, rows = span(root, low, size, np.int64), block * at.shape[1]
        for i in range(size):
            at[block, 0, i] = roots[i]
        spans, metas = span(limit, low, size, np.int32), span(meta, low, size, np.int32)
        valid, flags, sizes = (
            span(work, 0, size, np.uint8),
            span(work, block_size, size, np.uint8),
            span(rest, 0, size, np.int32),
        )
        for number in range(stop):
            step, result = steps[number], found[number]
            action, kind, width, out_at = step[ACTION], step[KIND], step[SIZE], room_at(step, OUT, eighth)
            slots, out = (
                span(at, (rows + step[ROW]) * block_size, size, np.int32),
                span(room, out_at + low * width, size * width, np.uint8),
            )
            if action == OBJECT:
                known = span(names, step[TABLE], step[NAMES], np.int32)
                fields = span(at, (rows + step[FIRST]) * block_size, step[CHILDREN] * block_size, np.int32)
                left = split_object(
                    data, slots, spans, metas, keys, key_start, known, fields, block_size, valid, sizes, children, fault
                )
                if left == MORE_ROOM:
                    return left
            elif action in (LIST, TEXTS):
                offsets = span(room, out_at + low * 4, size + 1, np.int32)
                if low == 0:
                    offsets[0] = 0
                if action == LIST:
                    left = measure_lists(data, slots, spans, offsets, valid, sizes, fault)
                else:
                    left = take_texts(data, slots, spans, kind, offsets, valid, sizes, fault)
                result[SIZE_OF] = offsets[size]
            elif action == RESIDUAL:
                left = leave_all(data, slots, spans, sizes, fault)
            elif action == BOOLEANS:
                left = take_booleans(data, slots, spans, flags, valid, sizes, fault)
                pack_bits(flags, span(room, out_at + low // 8, (size + 7) // 8, np.uint8))
            elif action == DECIMALS:
                words = span(room, out_at + low * 16, 2 * size, np.uint64)
                left = take_decimals(data, slots, spans, step[SCALE], largest[step[TABLE] :], words, valid, sizes, fault)
            elif action == FIXED:
                left = take_fixed(data, slots, spans, kind, width, out, valid, sizes, fault)
            else:
                left = take_integers(data, slots, spans, kind, width, out, valid, sizes, fault)
            if left < 0:
                fault[1] += low
                stop = number
                for i in range(size):
                    sizes[i] = 0
                break
            if action != RESIDUAL:
                bits_at = room_at(step, BITS, eighth)
                result[MISSING] += pack_bits(valid, span(room, bits_at + low // 8, (size + 7) // 8, np.uint8))
            if left or result[RESIDUALS]:
                _keep(sizes, low, ends[number], result, len(data))
                result[RESIDUALS] += left
    total = np.int64(0)
    for number in range(stop):
        if steps[number, ACTION] == TEXTS:
            found[number, START] = total
            total += (found[number, SIZE_OF] + 32 + 63) // 64 * 64
    found[len(steps), START] = total
    return np.int64(stop)


@jit
def finish(data, steps, places, count, at, room, found, stop, texts, words):
    """Copies the bytes of all texts of a level to `texts`, and describes its columns in the structs at places[step] of `words`.

    count: of slots. stop: how many steps `split` has done.
    """
    block_size = at.shape[2]
    eighth = (count + 63) // 64 * 8
    for block in range(len(at)):
        low = block * block_size
        size = min(block_size, count - low)
        for number in range(stop):
            step, result = steps[number], found[number]
            if step[ACTION] == TEXTS and result[SIZE_OF]:
                slots = span(at, (block * at.shape[1] + step[ROW]) * block_size, size, np.int32)
                offsets = span(room, room_at(step, OUT, eighth) + low * 4, size + 1, np.int32)
                copy_texts(data, slots, offsets, span(texts, result[START], result[SIZE_OF] + 32, np.uint8))
                written = span(texts, result[START] + offsets[0], np.int64(offsets[size] - offsets[0]), np.uint8)
                result[NOT_ASCII] |= not is_ascii(written)
    for number in range(stop):
        step, result = steps[number], found[number]
        node = places[number]
        for part in range(3):
            words[node + part * WORDS + LENGTH] = count
            words[node + VALUE_BUFFERS + part] = address(room)
        words[node + NULLS] = count
        if step[ACTION] != RESIDUAL:
            words[node + WORDS + NULLS] = result[MISSING]
            if result[MISSING]:
                words[node + TYPED_BUFFERS] = address(room) + room_at(step, BITS, eighth)
            if step[ACTION] != OBJECT:
                words[node + TYPED_BUFFERS + 1] = address(room) + room_at(step, OUT, eighth)
            if step[ACTION] == TEXTS:
                words[node + TYPED_BUFFERS + 2] = address(texts) + result[START]
