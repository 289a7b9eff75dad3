"""Variants → JSON text, many rows at a time.

In: the rows of a chunk, its dictionaries, and the quoted text of their names. Out: the text of as many rows as fit into `out`,
without the digits of floating-point numbers. `write_rows` lists the positions and the bits of these numbers, the caller
computes the shortest digits of all of them at once, and `place_floats` inserts the digits.

Fields keep the order of the object; `notation` defines the format of scalars. Source: VariantEncoding. Invariant: text is
written only for Variants that are well-formed down to the last leaf. A child lies within its container, and the children of a
container together take no more bytes than it has, so a walk visits no more values than its Variant has bytes.
"""

# ruff: noqa: ANN001, ANN201  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant import types as t
from delta_variant.kernels.compiler import allocating, copy, jit, u32, u64
from delta_variant.kernels.memory import (
    BAD_FIELD_ID,
    DEPTH,
    DUPLICATE,
    NOT_UTF8,
    OVERLAP,
    fail,
    open_container,
    sint,
    uint,
    value_size,
)
from delta_variant.kernels.notation import (
    FULL,
    write_base64,
    write_decimal,
    write_float,
    write_integer,
    write_quoted,
    write_string,
)
from delta_variant.kernels.validate import MAX_DEPTH, payload_fault

_SLACK = 2 * MAX_DEPTH  # bytes of `out` kept free: for a number, `true` or `null`, and for the ends of open containers
_WORDS = np.frombuffer(b"null    true    false   ", np.uint8).copy()  # by type id, eight bytes each
_COLON = np.uint8(ord(":"))
_SIGN = np.uint64(1 << 63)


@jit
def quote_names(data, key_at, key_size, first, out, ends):
    """Writes every name as it stands in an object: quoted, with a colon.

    first[name]: a key with that name. ends[name] is set to the end of its text in `out`, which has room for the worst case.
    """
    o = np.int64(0)
    for name in range(len(ends)):
        o = write_string(data, key_at[first[name]], key_size[first[name]], out, o, len(out))
        out[o] = _COLON
        o += 1
        ends[name] = o


@allocating
def write_rows(
    data, at, limit, dictionary, key_start, name, names, name_ends, row, out, start, float_at, float_bits, is_single, fault
):  # fmt: skip
    """Writes as many rows, from `row` on, as fit into `out`.

    start[k] is set to the start of the text of row + k; one more entry is the end of the last text. A row with at[row] < 0 has
    no text. Returns (rows written, floating-point numbers in them); the first is -1 after a fault.
    """
    room, floats, done = len(out) - _SLACK, np.int64(0), np.int64(0)
    seen, serial = np.zeros(len(name_ends), np.int64), np.int64(0)
    stack = np.empty((MAX_DEPTH, 9), np.int64)
    digits = np.empty(64, np.uint8)
    o = start[0] = np.int64(0)
    for i in range(row, len(at)):
        p, end, left, depth, known_floats = at[i], limit[i], limit[i] - at[i], 0, floats
        next_ = count = ids = id_width = offsets = width = base = np.int64(0)
        first = known = np.int64(0)
        if p >= 0:
            first = key_start[dictionary[i]]
            known = key_start[dictionary[i] + 1] - first
        while p >= 0:
            if o > room or floats == len(float_at):
                return done, known_floats
            size = value_size(data, p, end)
            if size < 0:
                return fail(fault, -size, i, p), floats
            left -= size
            if left < 0:
                return fail(fault, OVERLAP, i, p), floats
            basic, kind = data[p] & 3, np.int64(data[p] >> 2)
            if basic >= t.OBJECT:
                if depth == MAX_DEPTH:
                    return fail(fault, DEPTH, i, p), floats
                outer = stack[depth]
                outer[0], outer[1], outer[2], outer[3], outer[4] = next_, count, ids, id_width, offsets
                outer[5], outer[6], outer[7], outer[8] = width, base, end, left
                depth += 1
                count, id_width, width, ids, offsets, base, left = open_container(data, p, end)
                next_, end = np.int64(0), base + left
                serial += 1
                for f in range(count if id_width else 0):
                    field_id = uint(data, ids + f * id_width, id_width)
                    if field_id >= known:
                        return fail(fault, BAD_FIELD_ID, i, ids + f * id_width), floats
                    if seen[name[first + field_id]] == serial:
                        return fail(fault, DUPLICATE, i, ids + f * id_width), floats
                    seen[name[first + field_id]] = serial
                out[o] = 0x7B if id_width else 0x5B
                o += 1
            elif basic == t.SHORT_STRING or kind == t.STRING:
                if basic == t.SHORT_STRING:
                    o = write_string(data, p + 1, kind, out, o, room)
                else:
                    o = write_string(data, p + 5, size - 5, out, o, room)
                if o == FULL:
                    return done, known_floats
                if o < 0:
                    return fail(fault, NOT_UTF8, i, p), floats
            elif t.INT8 <= kind <= t.INT64:
                o = write_integer(out, o, sint(data, p + 1, 1 << kind - t.INT8))
            elif kind <= t.FALSE:
                copy(out, o, _WORDS, kind * 8, 8)
                o += 4 + (kind == t.FALSE)
            elif t.DECIMAL4 <= kind <= t.DECIMAL16:
                wrong = payload_fault(data, p, kind)
                if wrong:
                    return fail(fault, wrong, i, p), floats
                o = write_decimal(data, p, kind, out, o, digits)
            elif kind in (t.DOUBLE, t.FLOAT):
                float_at[floats], is_single[floats] = o, kind == t.FLOAT
                float_bits[floats] = u64(data, p + 1) if kind == t.DOUBLE else np.uint64(u32(data, p + 1))
                floats += 1
                o += 1  # a byte that `place_floats` replaces
            elif kind == t.BINARY:
                if o + (size // 3 + 1) * 4 > room:
                    return done, known_floats
                o = write_base64(data, p + 5, size - 5, out, o)
            else:
                wrong = payload_fault(data, p, kind)
                if wrong:
                    return fail(fault, wrong, i, p), floats
                o = write_quoted(data, p, kind, out, o)
            while depth and next_ == count:
                out[o] = 0x7D if id_width else 0x5D
                o += 1
                depth -= 1
                outer = stack[depth]
                next_, count, ids, id_width, offsets = outer[0], outer[1], outer[2], outer[3], outer[4]
                width, base, end, left = outer[5], outer[6], outer[7], outer[8]
            if not depth:
                break
            if next_:
                out[o] = 0x2C
                o += 1
            if id_width:
                number = name[first + uint(data, ids + next_ * id_width, id_width)]
                n = name_ends[number - 1] if number else np.int64(0)
                size = name_ends[number] - n
                if o + size > room:
                    return done, known_floats
                copy(out, o, names, n, 16)
                if size > 16:
                    copy(out, o + 16, names, n + 16, size - 16)
                o += size
            p = base + uint(data, offsets + next_ * width, width)
            next_ += 1
        done += 1
        start[done] = o
    return done, floats


@allocating
def place_floats(text, start, float_at, float_bits, is_single, ends, digits, single_ends, single_digits, out):
    """Copies the rows of `text` to `out`, inserts the digits of every floating-point number, and adjusts `start`.

    ends, digits: the shortest digits of the doubles, in any notation, as Arrow offsets and bytes; single_…: those of the
    floats. `out` has 32 bytes more than `text` for each number.
    """
    o, p, doubles, singles, work = np.int64(0), np.int64(0), 0, 0, np.empty(40, np.uint8)
    row = 0
    for f in range(len(float_at)):
        while start[row + 1] <= float_at[f]:
            row += 1
            start[row] += o - p
        copy(out, o, text, p, float_at[f] - p)
        o += float_at[f] - p
        p = float_at[f] + 1
        if is_single[f]:
            i, end, tiny, exponent = single_ends[singles], single_ends[singles + 1], 1.40129846432481707, -45
            o = write_float(single_digits, i, end, float_bits[f] & np.uint64(0x7FFFFFFF), tiny, exponent, out, o, work)
            singles += 1
        else:
            i, end, tiny, exponent = ends[doubles], ends[doubles + 1], 4.94065645841246544, -324
            o = write_float(digits, i, end, float_bits[f] & ~_SIGN, tiny, exponent, out, o, work)
            doubles += 1
    while row + 1 < len(start):
        row += 1
        start[row] += o - p
    copy(out, o, text, p, start[row] - o)
