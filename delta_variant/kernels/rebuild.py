"""All nodes of a column at once: the columns of a shredding schema → Variants.

`survey` finds the buffers of all nodes in the structs of Arrow's C data interface, `measure` and `write` run the helpers of
`unshred` node by node, in one call each. A call of a kernel costs as much as the work on some hundred slots, and so does each
question that is asked of pyarrow. In: the steps of a column, made by `shredding.rebuilding`. A level is a node with the nodes
below it that have a slot for each of its slots: all but the elements of lists.
"""

# ruff: noqa: ANN001, ANN201, ANN202  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant import types as t
from delta_variant.kernels.compiler import address, call, called, helper, jit, pointer, span, store64, u64, view
from delta_variant.kernels.memory import ascend, is_ascii
from delta_variant.kernels.structs import BUFFER_COUNT, BUFFERS, CHILDREN, LENGTH, NULLS, OFFSET, RELEASE
from delta_variant.kernels.unshred import (
    size_fixed,
    size_lists,
    size_nulls,
    size_objects,
    size_texts,
    size_values,
    spread_lists,
    write_booleans,
    write_fixed,
    write_lists,
    write_nulls,
    write_objects,
    write_texts,
    write_values,
)

OBJECT, LIST, RESIDUAL, TEXTS, BOOLEANS, FIXED = range(6)
"""What is done at a node. RESIDUAL: it has no typed_value."""

ACTION, PARENT, INDEX, VALUE, TYPED, KIND, SIZE, STRIDE, SCALE = range(9)
LEVEL, ROW, FIRST, COUNT, NAMES, NUMBERS, REQUIRED = range(9, 16)
"""The columns of `steps`, which has a line for each node, a node before its children.

PARENT, INDEX: the node above, and which child of its typed_value the group is. VALUE, TYPED: which children of the group are
`value` and typed_value, or -1. KIND, SIZE, STRIDE, SCALE: the type id of a leaf, the bytes of a value in a Variant after header
and scale, those in Arrow, and the scale of a decimal or -1. LEVEL, ROW: the level, and the node's row of sizes there. FIRST and
COUNT: the rows of an object's children; for a list, FIRST is the level of its elements. NAMES, NUMBERS: where the tables of the
object's names start in those of all. REQUIRED: whether a missing Variant becomes a Variant null.
"""

HAS_VALUE, GROUP_BITS, GROUP_AT, VALUE_BITS, VALUE_AT, ENDS, DATA, TYPED_BITS, TYPED_AT, STRUCT, BASE, OFFSETS, TEXT = range(13)
NOT_ASCII, GROUP_FLAGS, VALUE_FLAGS, TYPED_FLAGS, MISSING, SHAPE, AROUND = range(13, 20)
"""The columns of `nodes`, with a line for each step.

HAS_VALUE: whether any slot has a `value`. …_BITS, …_AT: the address of Arrow's validity, or 0, and the slot 0 in it and in the
other buffers of that column. ENDS, DATA: the addresses of the offsets from slot 0 on and of the bytes of `value`. STRUCT: the
address of the struct of typed_value; BASE: where its children start. OFFSETS, TEXT: the addresses of the offsets from slot 0
on, and of the bytes of texts; for other leaves OFFSETS is that of the values. NOT_ASCII: whether texts have a byte that is not
ASCII. GROUP_FLAGS, …: where in the room the flags of the slots are that are set and have nothing missing around them, the flags
of missing slots, and what `size_objects` or `size_lists` keep. A place that is 0 says that all flags are set. AROUND: the place
of the flags of what is around.
"""

SLOTS, SIZES, DICTIONARY, LIVE = range(4)
"""The columns of `levels`: the slots, and where their sizes, dictionaries and flags start in the room; LIVE is 0 if all are."""

COLUMNS = 20


@helper
def _padded(size):
    """A multiple of 64 with eight spare bytes: flags are written eight at a time."""
    return (size + 8 + 63) // 64 * 64


@called
def _any_set(bits, first, count):
    """Whether any of these bits is set."""
    i, end = first, first + count
    while i < end:
        if i & 7 == 0 and i + 8 <= end:
            if bits[i >> 3]:
                return True
            i += 8
        else:
            if bits[i >> 3] >> (i & 7) & 1:
                return True
            i += 1
    return False


@called
def _unpack(bits, first, below, flags):
    """Sets one flag for each bit from `first` on that is set, if the flag of `below` is set too; `below` may be empty."""
    shift, start, count, i = np.uint64(first & 7), first >> 3, len(flags), np.int64(0)
    while i + 8 <= count:
        eight = np.uint64(bits[start + (i >> 3)]) >> shift
        if shift:
            eight = (eight | np.uint64(bits[start + (i >> 3) + 1]) << (np.uint64(8) - shift)) & np.uint64(0xFF)
        spread = eight * np.uint64(0x0101010101010101) & np.uint64(0x8040201008040201)
        spread = (spread + np.uint64(0x7F7F7F7F7F7F7F7F)) >> np.uint64(7) & np.uint64(0x0101010101010101)
        if len(below):
            spread &= u64(below, i)
        store64(flags, i, spread)
        i += 8
    while i < count:
        flags[i] = bits[(first + i) >> 3] >> ((first + i) & 7) & 1 and (len(below) == 0 or below[i])
        i += 1


@helper
def _validity(struct):
    """The address of the validity of a struct's array; 0: all slots are valid, as far as is known."""
    if struct[NULLS] == 0 or struct[BUFFER_COUNT] == 0:
        return np.int64(0)
    return pointer(struct[BUFFERS])[0]


@helper
def _fit(struct, first, slots):
    """Whether the offsets of some slots ascend, and lead no further than the array's last one, which pyarrow has checked."""
    offsets, end = pointer(struct[BUFFERS])[1], struct[OFFSET] + struct[LENGTH]
    return ascend(view(offsets + 4 * first, slots + 1, np.int32), view(offsets, end + 1, np.int32)[end])


@jit
def survey(struct, rows, level_rows, steps, levels, nodes):
    """Finds the buffers of all nodes. Returns the size of the room, or minus that if there are texts to check; 0 for offsets
    that do not ascend, or lead out of their array.

    struct: the address of the struct of the column, which is released. level_rows: the rows of sizes of each level.
    """
    room, ascii_, fits = np.int64(0), True, True
    for number in range(len(steps)):
        if not fits:
            break
        step, node = steps[number], nodes[number]
        if number:
            above = nodes[step[PARENT]]
            group = pointer(pointer(pointer(above[STRUCT])[CHILDREN])[step[INDEX]])
            at = above[BASE] + group[OFFSET]
        else:
            group = pointer(struct)
            at = group[OFFSET]
        level = levels[step[LEVEL]]
        if step[ROW] == 0:
            if number == 0:
                level[SLOTS] = rows
            slots = level[SLOTS]
            level[SIZES] = room
            room += _padded(8 * slots * level_rows[step[LEVEL]])
            level[DICTIONARY] = room
            room += _padded(4 * slots)
            level[LIVE] = room
            room += _padded(slots)
        slots = level[SLOTS]
        flags = _padded(slots)
        node[GROUP_BITS], node[GROUP_AT] = _validity(group), at
        node[GROUP_FLAGS] = room
        room += flags if node[GROUP_BITS] else 0
        node[HAS_VALUE] = node[NOT_ASCII] = 0
        if step[VALUE] >= 0 and slots:
            value = pointer(pointer(group[CHILDREN])[step[VALUE]])
            first, bits = at + value[OFFSET], _validity(value)
            if bits == 0 or (
                value[NULLS] != value[LENGTH] and _any_set(view(bits, (first + slots + 7) >> 3, np.uint8), first, slots)
            ):
                buffers = pointer(value[BUFFERS])
                node[HAS_VALUE] = 1
                node[VALUE_BITS], node[VALUE_AT] = bits, first
                node[ENDS], node[DATA] = buffers[1] + 4 * first, buffers[2]
                fits &= _fit(value, first, slots)
                node[VALUE_FLAGS] = room
                room += flags if bits else 0
        node[MISSING] = room
        room += flags if step[REQUIRED] else 0
        action = step[ACTION]
        if action == RESIDUAL:
            continue
        node[STRUCT] = pointer(group[CHILDREN])[step[TYPED]]
        typed = pointer(node[STRUCT])
        first = at + typed[OFFSET]
        node[TYPED_BITS], node[TYPED_AT] = _validity(typed), first
        node[BASE] = first
        node[TYPED_FLAGS] = room
        room += flags if node[TYPED_BITS] else 0
        node[SHAPE] = room
        if action == OBJECT:
            room += _padded(3 * 8 * slots)
            continue
        values = pointer(typed[BUFFERS])[1]
        if action == LIST:
            room += _padded(8 * slots)
            node[OFFSETS] = values + 4 * first
            elements = levels[step[FIRST]]
            elements[SLOTS] = 0
            if slots:
                fits &= _fit(typed, first, slots)
                ends = view(node[OFFSETS], slots + 1, np.int32)
                node[BASE] = ends[0]
                elements[SLOTS] = np.int64(ends[slots]) - np.int64(ends[0])
        elif action == TEXTS:
            node[OFFSETS], node[TEXT] = values + 4 * first, pointer(typed[BUFFERS])[2]
            fits &= slots == 0 or _fit(typed, first, slots)
            if step[KIND] == t.STRING and slots and fits:
                ends = view(node[OFFSETS], slots + 1, np.int32)
                node[NOT_ASCII] = not is_ascii(view(node[TEXT] + ends[0], np.int64(ends[slots]) - ends[0], np.uint8))
                ascii_ &= node[NOT_ASCII] == 0
        elif action == BOOLEANS:
            node[OFFSETS] = values
        else:
            node[OFFSETS] = values + first * step[STRIDE]
    call(pointer(struct)[RELEASE], pointer(struct))
    return np.int64(0) if not fits else room if ascii_ else -room


@helper
def _some(place, slots):
    """How many flags there are at a place in the room: none if all are set."""
    return slots if place else np.int64(0)


@helper
def _unpacked(bits, first, around, place, start, slots):
    """Sets the flags of a column within those around it. Returns their place: that of those around it if all are set."""
    if bits == 0:
        return around
    _unpack(
        view(bits, (first + slots + 7) >> 3, np.uint8),
        first,
        view(start + around, _some(around, slots), np.uint8),
        view(start + place, slots, np.uint8),
    )
    return place


@jit
def measure(
    order, begin, steps, levels, nodes, room, dictionary, keys, key_start, key_at, key_size, texts, id_of_name, child_of_name,
    numbers, work, fault,
):  # fmt: skip
    """Sets the sizes of all slots. order: each step twice, 2 * step before its children and 2 * step + 1 after them.

    Returns the end of `order`; or, if the `value`s of a node are to be validated, their place in `order`; or, if something is
    wrong with a node, minus its place in `order`, minus 1. After a validation, `begin` is the next place. `work`: an entry for
    each child of any object, and for each key.
    """
    start = address(room)
    if begin == 0:
        metas = view(start + levels[0, DICTIONARY], len(dictionary), np.int32)
        for i in range(len(dictionary)):
            metas[i] = dictionary[i]
    for place in range(begin, len(order)):
        number = order[place] >> 1
        step, node = steps[number], nodes[number]
        action, level = step[ACTION], levels[step[LEVEL]]
        slots = level[SLOTS]
        meta = view(start + level[DICTIONARY], slots, np.int32)
        if order[place] & 1 == 0:
            around = level[LIVE] if step[ROW] == 0 else nodes[step[PARENT], TYPED_FLAGS]
            if number == 0:
                around = np.int64(0)
            inside = _unpacked(node[GROUP_BITS], node[GROUP_AT], around, node[GROUP_FLAGS], start, slots)
            node[AROUND] = inside if number == 0 else around
            if node[HAS_VALUE]:
                node[VALUE_FLAGS] = _unpacked(node[VALUE_BITS], node[VALUE_AT], inside, node[VALUE_FLAGS], start, slots)
            if action == RESIDUAL:
                node[TYPED_FLAGS] = inside
            else:
                node[TYPED_FLAGS] = _unpacked(node[TYPED_BITS], node[TYPED_AT], inside, node[TYPED_FLAGS], start, slots)
            if action == LIST:
                inner = levels[step[FIRST]]
                inner[LIVE] = inner[LIVE] if node[TYPED_FLAGS] else 0
                if slots:
                    spread_lists(
                        view(node[OFFSETS], slots + 1, np.int32),
                        view(start + node[TYPED_FLAGS], _some(node[TYPED_FLAGS], slots), np.uint8),
                        meta,
                        view(start + inner[LIVE], _some(inner[LIVE], inner[SLOTS]), np.uint8),
                        view(start + inner[DICTIONARY], inner[SLOTS], np.int32),
                    )
            if node[HAS_VALUE]:
                return np.int64(place)
            continue
        size = view(start + level[SIZES] + 8 * step[ROW] * slots, slots, np.int64)
        typed, has_value = view(start + node[TYPED_FLAGS], _some(node[TYPED_FLAGS], slots), np.uint8), node[HAS_VALUE]
        valid = view(start + node[VALUE_FLAGS], _some(node[VALUE_FLAGS] if has_value else 0, slots), np.uint8)
        ends = view(node[ENDS], slots + 1 if has_value else 0, np.int32)
        done = np.int64(0)
        if action == OBJECT:
            count, shape = step[COUNT], start + node[SHAPE]
            done = size_objects(
                typed, view(start + level[SIZES] + 8 * step[FIRST] * slots, count * slots, np.int64),
                span(numbers, step[NUMBERS], count, np.int64), id_of_name, meta, ends,
                view(node[DATA], ends[slots] if has_value else 0, np.uint8), valid, keys, key_start, key_at, key_size,
                texts, span(child_of_name, step[NAMES], id_of_name.shape[1] + 1, np.int32),
                span(work, 0, count, np.int64), span(work, count, len(key_at), np.int64), size,
                view(shape, slots, np.int64), view(shape + 8 * slots, slots, np.int64),
                view(shape + 16 * slots, slots, np.int64), fault,
            )  # fmt: skip
        elif action == LIST:
            if slots:
                elements = levels[step[FIRST]]
                size_lists(
                    view(node[OFFSETS], slots + 1, np.int32),
                    typed,
                    view(start + elements[SIZES], elements[SLOTS], np.int64),
                    size,
                    view(start + node[SHAPE], slots, np.int64),
                )
        elif action == TEXTS:
            size_texts(view(node[OFFSETS], slots + 1, np.int32), typed, step[KIND] == t.STRING, size)
        elif action == RESIDUAL:
            for i in range(slots):
                size[i] = 0
        else:
            size_fixed(typed, 1 + step[SIZE] + (step[SCALE] >= 0), size)
        if done == 0 and has_value:
            done = size_values(ends, valid, action == OBJECT, size, fault)
        if done < 0:
            return np.int64(-1 - place)
        if step[REQUIRED]:
            size_nulls(
                view(start + node[AROUND], _some(node[AROUND], slots), np.uint8),
                view(start + node[MISSING], slots, np.uint8),
                size,
            )
    return np.int64(len(order))


@jit
def residuals(node, slots, room, at, limit):
    """Sets where the `value`s of a node start and end; at[slot] is -1 if a slot has none."""
    ends, valid = (
        view(node[ENDS], slots + 1, np.int32),
        view(address(room) + node[VALUE_FLAGS], _some(node[VALUE_FLAGS], slots), np.uint8),
    )
    for i in range(slots):
        at[i] = ends[i] if len(valid) == 0 or valid[i] else -1
        limit[i] = ends[i + 1]
    return np.int64(ends[slots])


@jit
def write(
    steps, levels, nodes, room, keys, key_start, key_at, key_size, texts, names, name_ends, id_of_name, child_of_name, numbers,
    work, out,
):  # fmt: skip
    """Writes all slots. The room has the positions of the root in place of its sizes, and else what `measure` left."""
    start = address(room)
    for number in range(len(steps)):
        step, node = steps[number], nodes[number]
        action, level = step[ACTION], levels[step[LEVEL]]
        slots = level[SLOTS]
        to = view(start + level[SIZES] + 8 * step[ROW] * slots, slots, np.int64)
        typed, has_value = view(start + node[TYPED_FLAGS], _some(node[TYPED_FLAGS], slots), np.uint8), node[HAS_VALUE]
        valid = view(start + node[VALUE_FLAGS], _some(node[VALUE_FLAGS] if has_value else 0, slots), np.uint8)
        ends = view(node[ENDS], slots + 1 if has_value else 0, np.int32)
        data = view(node[DATA], ends[slots] if has_value else 0, np.uint8)
        if step[REQUIRED]:
            write_nulls(view(start + node[MISSING], slots, np.uint8), to, out)
        if action == OBJECT:
            count, shape = step[COUNT], start + node[SHAPE]
            write_objects(
                typed, view(start + level[SIZES] + 8 * step[FIRST] * slots, count * slots, np.int64),
                span(numbers, step[NUMBERS], count, np.int64), id_of_name,
                view(start + level[DICTIONARY], slots, np.int32), ends, data, valid, keys, key_start, key_at, key_size,
                texts, names, name_ends, span(child_of_name, step[NAMES], id_of_name.shape[1] + 1, np.int32),
                span(work, 0, count, np.int64), span(work, count, len(key_at), np.int64), view(shape, slots, np.int64),
                view(shape + 8 * slots, slots, np.int64), view(shape + 16 * slots, slots, np.int64), to, out,
            )  # fmt: skip
        elif action == LIST:
            if slots:
                elements = levels[step[FIRST]]
                write_lists(
                    view(node[OFFSETS], slots + 1, np.int32),
                    typed,
                    view(start + elements[SIZES], elements[SLOTS], np.int64),
                    view(start + node[SHAPE], slots, np.int64),
                    to,
                    out,
                )
        elif action == TEXTS:
            if slots:
                offsets = view(node[OFFSETS], slots + 1, np.int32)
                write_texts(offsets, view(node[TEXT], offsets[slots], np.uint8), typed, step[KIND], to, out)
        elif action == BOOLEANS:
            write_booleans(view(node[OFFSETS], (node[TYPED_AT] + slots + 7) >> 3, np.uint8), node[TYPED_AT], typed, to, out)
        elif action == FIXED:
            payload = view(node[OFFSETS], step[STRIDE] * slots, np.uint8)
            write_fixed(payload, step[STRIDE], step[SIZE], step[KIND], step[SCALE], typed, to, out)
        if has_value:
            write_values(ends, data, valid, action == OBJECT, typed, to, out)
