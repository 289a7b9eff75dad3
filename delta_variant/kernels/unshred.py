"""Slots of a shredding schema → Variants, in two passes over the nodes (see `shredding.unshredder`).

`size_…`, from the leaves to the root, compute the size in bytes of every slot (`size`, 0: missing). `write_…`, from the root to
the leaves, get the position of every slot in the output (`to`, -1: none), write its header and pass on the positions of the
children, which take the place of their sizes. Objects are written in their smallest form, with fields in the order of
`memory.compare_keys` and values in the order of the fields; arrays likewise. `rebuild` calls these helpers node by node.

typed, valid: flags of the slots where typed_value or `value` is set and nothing around the slot is missing; empty if all are.
"""

# ruff: noqa: ANN001, ANN201, ANN202  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant import types as t
from delta_variant.kernels.compiler import copy, helper, jit
from delta_variant.kernels.memory import (
    CONFLICT,
    DUPLICATE,
    NO_KEY,
    NOT_AN_OBJECT,
    bytes_for,
    compare_keys,
    copy_exact,
    fail,
    object_size,
    open_container,
    put,
    uint,
    value_size,
    write_container,
)


@jit
def keys_of_names(keys, key_start, id_of_name):
    """Sets id_of_name[dictionary, name] to the field id of each of the schema's names that a dictionary has; others stay -1."""
    for number in range(len(key_start) - 1):
        start = key_start[number]
        for i in range(key_start[number + 1] - start - 1, -1, -1):
            if keys[start + i] < id_of_name.shape[1]:
                id_of_name[number, keys[start + i]] = i


@jit
def place(size, first, offsets):
    """Sets the Arrow offsets of rows of these sizes, from `first` on, and puts their positions in place of the sizes.

    Returns the end of the last one. The offsets are wrong if that end does not fit 32 bits.
    """
    end = np.int64(first)
    offsets[0] = end
    for i in range(len(size)):
        one = size[i]
        size[i] = end if one else -1
        end += one
        offsets[i + 1] = end
    return end


@helper
def size_values(offsets, valid, is_object, size, fault):
    """Adds the sizes of what is in `value`. Returns 0, or -1.

    A slot that has a size already is a CONFLICT, or an object, whose size includes what is in `value`.
    """
    for i in range(len(size)):
        if len(valid) == 0 or valid[i]:
            if size[i] == 0:
                size[i] = offsets[i + 1] - offsets[i]
            elif not is_object:
                return fail(fault, CONFLICT, i, 0)
    return np.int64(0)


@helper
def size_nulls(live, missing, size):
    """Makes room for a Variant null in every slot that is live and has no size, which is missing then."""
    for i in range(len(size)):
        missing[i] = (len(live) == 0 or live[i]) and size[i] == 0
        size[i] += missing[i]


@helper
def write_nulls(missing, to, out):
    """Writes a Variant null for every slot that is missing, which has no position then."""
    for i in range(len(to)):
        if missing[i]:
            if to[i] >= 0:
                out[to[i]] = 0
            to[i] = -1


@helper
def write_values(offsets, data, valid, objects, typed, to, out):
    """Copies what is in `value`, but not where it is the rest of an object. objects: whether typed_value is an object."""
    if objects and len(typed) == 0:
        return
    for i in range(len(to)):
        if to[i] >= 0 and (len(valid) == 0 or valid[i]) and not (objects and typed[i]):
            copy_exact(out, to[i], data, np.int64(offsets[i]), np.int64(offsets[i + 1] - offsets[i]))


@helper
def size_fixed(typed, one, size):
    """Sizes of primitives of one size."""
    if len(typed):
        for i in range(len(size)):
            size[i] = one if typed[i] else 0
    else:
        for i in range(len(size)):
            size[i] = one


@helper
def size_texts(offsets, typed, short, size):
    """Sizes of strings and binaries. short: whether they are strings, which may have the short form."""
    for i in range(len(size)):
        if len(typed) == 0 or typed[i]:
            n = np.int64(offsets[i + 1] - offsets[i])
            size[i] = n + 1 if short and n <= t.SHORT_STRING_MAX else n + 5
        else:
            size[i] = 0


@helper
def write_texts(offsets, data, typed, kind, to, out):
    """Writes strings or binaries, by the type id `kind`."""
    for i in range(len(to)):
        p = to[i]
        if p < 0 or not (len(typed) == 0 or typed[i]):
            continue
        start, n = np.int64(offsets[i]), np.int64(offsets[i + 1] - offsets[i])
        if kind == t.STRING and n <= t.SHORT_STRING_MAX:
            out[p] = n << 2 | t.SHORT_STRING
            p += 1
        else:
            out[p] = kind << 2
            put(out, p + 1, n, 4)
            p += 5
        copy_exact(out, p, data, start, n)


@helper
def write_booleans(bits, first, typed, to, out):
    """Writes booleans from Arrow's bitmap, whose bit `first` is slot 0."""
    for i in range(len(to)):
        if to[i] >= 0 and (len(typed) == 0 or typed[i]):
            out[to[i]] = (t.TRUE if bits[(first + i) >> 3] >> ((first + i) & 7) & 1 else t.FALSE) << 2


@helper
def write_fixed(payload, stride, width, kind, scale, typed, to, out):
    """Writes primitives of one size: the header, the scale of a decimal (-1: no decimal), then `width` bytes of `payload`."""
    for i in range(len(to)):
        p = to[i]
        if p < 0 or not (len(typed) == 0 or typed[i]):
            continue
        out[p] = kind << 2
        p += 1
        if scale >= 0:
            out[p] = scale
            p += 1
        if width == 8:
            copy(out, p, payload, i * stride, 8)
        elif width == 4:
            copy(out, p, payload, i * stride, 4)
        else:
            copy(out, p, payload, i * stride, width)


@helper
def _sorted_rest(data, ids, id_width, count, first, keys, child_of_name, texts, key_at, key_size, order):
    """Sorts by name the fields of an object in `value` into `order`. Returns their number, or minus a fault code.

    Fields that the schema names are left out, since typed_value alone decides about them. A name that occurs twice is a fault.
    Fields should be sorted already; then nothing is moved.
    """
    fields = np.int64(0)
    for f in range(count):
        key = first + uint(data, ids + f * id_width, id_width)
        if child_of_name[keys[key]] >= 0:
            continue
        at = fields
        while at:
            before = first + uint(data, ids + order[at - 1] * id_width, id_width)
            way = compare_keys(texts, key_at[before], key_size[before], texts, key_at[key], key_size[key])
            if way == 0:
                return np.int64(-DUPLICATE)
            if way < 0:
                break
            order[at] = order[at - 1]
            at -= 1
        order[at] = f
        fields += 1
    return fields


@helper
def _keep_ids(id_of_name, dictionary, number, ids):
    """Sets ids[child] to the field id of each child in a dictionary."""
    for c in range(len(ids)):
        ids[c] = id_of_name[dictionary, number[c]]


@helper
def size_objects(
    typed, child_size, number, id_of_name, meta, offsets, data, valid, keys, key_start, key_at, key_size, texts, child_of_name,
    ids, order, size, fields, bytes_, largest, fault,
):  # fmt: skip
    """Sizes of objects whose typed_value is set. Returns 0, or -1.

    child_size[child * slots + slot]. offsets, data, valid: the residuals in `value`, which were validated; offsets is
    empty if no object has one. Sets for `write_objects`, by slot, the number of `fields`, the bytes of their values and the
    largest id. ids, order: working space, an entry for each child and for each key.
    """
    kept = np.int64(-1)
    for i in range(len(size)):
        if not (len(typed) == 0 or typed[i]):
            size[i] = 0
            continue
        if meta[i] != kept:
            kept = np.int64(meta[i])
            _keep_ids(id_of_name, kept, number, ids)
        count, total, top, least = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
        for c in range(len(ids)):
            one = child_size[c * len(size) + i]
            field_id = ids[c] if one else np.int64(0)
            count += one > 0
            total += one
            top, least = max(top, field_id), min(least, field_id)
        if least < 0:
            return fail(fault, NO_KEY, i, 0)
        if len(offsets) and (len(valid) == 0 or valid[i]):
            start, end = np.int64(offsets[i]), np.int64(offsets[i + 1])
            if data[start] & 3 != t.OBJECT:
                return fail(fault, NOT_AN_OBJECT, i, 0)
            given, id_width, width, old_ids, positions, base, _ = open_container(data, start, end)
            first = key_start[kept]
            more = _sorted_rest(data, old_ids, id_width, given, first, keys, child_of_name, texts, key_at, key_size, order)
            if more < 0:
                return fail(fault, -more, i, 0)
            for f in range(more):
                total += value_size(data, base + uint(data, positions + order[f] * width, width), end)
                top = max(top, uint(data, old_ids + order[f] * id_width, id_width))
            count += more
        fields[i], bytes_[i], largest[i] = count, total, top
        size[i] = object_size(count, total, top)
    return np.int64(0)


@helper
def _write_ids(children, slots, i, ids, at, width, out):
    """Writes the ids of a slot's typed fields. Returns the position after them."""
    for c in range(len(ids)):
        if children[c * slots + i]:
            put(out, at, ids[c], width)
            at += width
    return at


@helper
def _write_offsets(children, slots, i, count, at, base, width, out):
    """Writes the offsets of a slot's typed fields and sets their positions. Returns the bytes of all."""
    written = np.int64(0)
    for c in range(count):
        one = children[c * slots + i]
        children[c * slots + i] = base + written if one else -1
        if one:
            put(out, at, written, width)
            at += width
            written += one
    put(out, at, written, width)
    return written


@helper
def write_objects(
    typed, sizes, number, id_of_name, meta, offsets, data, valid, keys, key_start, key_at, key_size, texts, names, name_ends,
    child_of_name, ids, order, fields, bytes_, largest, to, out,
):  # fmt: skip
    """Writes headers, ids and offsets of objects, and the fields of residuals.

    sizes[child * slots + slot]: the sizes of the children, which become their positions. Children are sorted by name;
    number[child] is the number of the name in the schema's name table. The fields of a residual are merged in between.
    ids, order: working space, as for `size_objects`.
    """
    children, slots = len(ids), len(to)
    kept, kept_ids = np.int64(-1), np.int64(-1)  # a dictionary, and where the ids of all children in it are in `out`
    for i in range(len(to)):
        if to[i] < 0 or not (len(typed) == 0 or typed[i]):
            for c in range(children):
                sizes[c * slots + i] = -1
            continue
        if meta[i] != kept:
            kept, kept_ids = np.int64(meta[i]), np.int64(-1)
            _keep_ids(id_of_name, kept, number, ids)
        id_width, width = bytes_for(largest[i]), bytes_for(bytes_[i])
        at_id = write_container(out, to[i], t.OBJECT, fields[i], id_width, width)
        at_offset = at_id + fields[i] * id_width
        base = at_offset + (fields[i] + 1) * width
        if len(offsets) == 0 or (len(valid) and not valid[i]):
            if fields[i] < children:
                _write_ids(sizes, slots, i, ids, at_id, id_width, out)
            elif kept_ids >= 0:
                copy_exact(out, at_id, out, kept_ids, children * id_width)
            else:
                kept_ids = at_id
                _write_ids(sizes, slots, i, ids, at_id, id_width, out)
            if width == 1:
                _write_offsets(sizes, slots, i, children, at_offset, base, 1, out)
            elif width == 2:
                _write_offsets(sizes, slots, i, children, at_offset, base, 2, out)
            else:
                _write_offsets(sizes, slots, i, children, at_offset, base, width, out)
            continue
        written, end, first, f = np.int64(0), np.int64(offsets[i + 1]), key_start[kept], 0
        count, old_id_width, old_width, old_ids, old_offsets, old_base, _ = open_container(data, np.int64(offsets[i]), end)
        count = _sorted_rest(data, old_ids, old_id_width, count, first, keys, child_of_name, texts, key_at, key_size, order)
        for c in range(children + 1):
            if c < children and sizes[c * slots + i] == 0:
                sizes[c * slots + i] = -1
                continue
            while f < count:  # fields of the residual that come before this child
                field_id = uint(data, old_ids + order[f] * old_id_width, old_id_width)
                if c < children:
                    key, n = first + field_id, number[c]
                    start = name_ends[n - 1] if n else np.int64(0)
                    if compare_keys(texts, key_at[key], key_size[key], names, start, name_ends[n] - start) > 0:
                        break
                source = old_base + uint(data, old_offsets + order[f] * old_width, old_width)
                one = value_size(data, source, end)
                put(out, at_id, field_id, id_width)
                put(out, at_offset, written, width)
                copy(out, base + written, data, source, one)
                at_id += id_width
                at_offset += width
                written += one
                f += 1
            if c < children:
                put(out, at_id, ids[c], id_width)
                put(out, at_offset, written, width)
                one = sizes[c * slots + i]
                sizes[c * slots + i] = base + written
                at_id += id_width
                at_offset += width
                written += one
        put(out, at_offset, written, width)


@helper
def spread_lists(offsets, typed, meta, element_live, element_meta):
    """Sets for every element of all lists the dictionary of its row and, unless that is empty, whether its list is live."""
    first = offsets[0]
    for i in range(len(meta)):
        for e in range(offsets[i] - first, offsets[i + 1] - first):
            element_meta[e] = meta[i]
        if len(element_live):
            for e in range(offsets[i] - first, offsets[i + 1] - first):
                element_live[e] = typed[i]


@helper
def size_lists(offsets, typed, element_size, size, bytes_):
    """Sizes of arrays and, in `bytes_`, of their elements together; a missing element counts as a Variant null."""
    first = offsets[0]
    for i in range(len(size)):
        if not (len(typed) == 0 or typed[i]):
            size[i] = 0
            continue
        total = np.int64(0)
        for e in range(offsets[i] - first, offsets[i + 1] - first):
            total += element_size[e]
        count = np.int64(offsets[i + 1] - offsets[i])
        bytes_[i] = total
        size[i] = 1 + (4 if count > 0xFF else 1) + (count + 1) * bytes_for(total) + total


@helper
def write_lists(offsets, typed, elements, bytes_, to, out):
    """Writes headers and offsets of arrays. elements: the sizes of the elements, which become their positions."""
    first = offsets[0]
    for i in range(len(to)):
        if to[i] < 0 or not (len(typed) == 0 or typed[i]):
            for e in range(offsets[i] - first, offsets[i + 1] - first):
                elements[e] = -1
            continue
        count, width = np.int64(offsets[i + 1] - offsets[i]), bytes_for(bytes_[i])
        at = write_container(out, to[i], t.ARRAY, count, 0, width)
        base, written = at + (count + 1) * width, np.int64(0)
        for e in range(offsets[i] - first, offsets[i + 1] - first):
            put(out, at, written, width)
            at += width
            one = elements[e]
            elements[e] = base + written
            written += one
        put(out, at, written, width)
