"""What all kernels share: numbers of any width, copies, the headers of Variant values, UTF-8, and the codes of faults."""

# ruff: noqa: ANN001, ANN201  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant import types as t
from delta_variant.kernels.compiler import called, copy, helper, jit, u16, u32, u64

TRUNCATED, BAD_TYPE, BAD_FIELD_ID, DUPLICATE, OVERLAP, VERSION, DICTIONARY, SCALE, DEPTH = range(1, 10)
CONFLICT, NOT_AN_OBJECT, NO_KEY, NOT_UTF8, DIGITS, TIME_OF_DAY, REFUSED = range(10, 17)
FAULTS = {
    TRUNCATED: "value: the data ends before the Variant does",
    BAD_TYPE: "value: unknown primitive type",
    BAD_FIELD_ID: "value: a field id is outside the dictionary",
    DUPLICATE: "value: an object has two fields of the same name",
    OVERLAP: "value: the children of a container overlap",
    VERSION: "metadata: version 1 expected",
    DICTIONARY: "metadata: the offsets of the dictionary do not fit its bytes",
    SCALE: "value: a decimal has a scale above 38",
    DEPTH: "value: nested too deeply",
    CONFLICT: "value and typed_value are both set, and are not the two parts of an object",
    NOT_AN_OBJECT: "typed_value is an object, but value is not",
    NO_KEY: "the metadata lacks the name of a shredded field",
    NOT_UTF8: "a string or a key is not valid UTF-8",
    DIGITS: "value: a decimal has more than 38 digits",
    TIME_OF_DAY: "value: a time is not within one day",
    REFUSED: "value: a primitive of a type that is refused",
}
LAYOUT_FAULTS = {CONFLICT, NOT_AN_OBJECT, NO_KEY}

SIZES = np.array([p.size for p in t.PRIMITIVES], np.int64)
_PRIMITIVES = len(t.PRIMITIVES)


@helper
def uint(data, at, width):
    """The unsigned number in `width` bytes, 1 to 4."""
    if width == 1:
        return np.int64(data[at])
    if width == 2:
        return np.int64(u16(data, at))
    if width == 3:
        return np.int64(u16(data, at)) | np.int64(data[at + 2]) << 16
    return np.int64(u32(data, at))


@helper
def sint(data, at, width):
    """The signed number in `width` bytes: 1, 2, 4 or 8."""
    if width == 1:
        return np.int64(np.int8(data[at]))
    if width == 2:
        return np.int64(np.int16(u16(data, at)))
    if width == 4:
        return np.int64(np.int32(u32(data, at)))
    return np.int64(u64(data, at))


@helper
def equal(a, i, b, j, size):
    """Whether `size` bytes are the same in `a` from i on and in `b` from j on."""
    k = 0
    while k + 32 <= size:
        low = (u64(a, i + k) ^ u64(b, j + k)) | (u64(a, i + k + 8) ^ u64(b, j + k + 8))
        high = (u64(a, i + k + 16) ^ u64(b, j + k + 16)) | (u64(a, i + k + 24) ^ u64(b, j + k + 24))
        if low | high:
            return False
        k += 32
    while k + 8 <= size:
        if u64(a, i + k) != u64(b, j + k):
            return False
        k += 8
    while k < size:
        if a[i + k] != b[j + k]:
            return False
        k += 1
    return True


@helper
def in_order(byte):
    """A byte of a key in UTF-8 as a number. Keys that are compared by these numbers are in the order of UTF-16, as in Java.

    UTF-16 has the characters beyond U+FFFF, whose first byte is F0 to F4 in UTF-8, before U+E000 to U+FFFF, whose first byte is
    EE or EF. All other pairs of characters have the same order in both, and no other byte of a character is above ED.
    """
    return np.int64(byte) | np.int64(byte >= 0xEE) << 4


@helper
def compare_keys(a, i, size, b, j, other):
    """Compares the keys a[i:i + size] and b[j:j + other] in the order of fields: negative, zero or positive."""
    for k in range(min(size, other)):
        if a[i + k] != b[j + k]:
            return in_order(a[i + k]) - in_order(b[j + k])
    return size - other


@helper
def copy_exact(out, to, data, at, size):
    """memcpy(out + to, data + at, size), by moves of fixed size if there are at most 32 bytes; up to 31 of them may overlap."""
    if size > 32:
        copy(out, to, data, at, size)
    elif size >= 16:
        copy(out, to, data, at, 16)
        copy(out, to + size - 16, data, at + size - 16, 16)
    elif size >= 8:
        copy(out, to, data, at, 8)
        copy(out, to + size - 8, data, at + size - 8, 8)
    elif size >= 4:
        copy(out, to, data, at, 4)
        copy(out, to + size - 4, data, at + size - 4, 4)
    else:
        for k in range(size):
            out[to + k] = data[at + k]


@helper
def hash_bytes(data, at, size):
    h = np.uint64(size) + np.uint64(0x9E3779B97F4A7C15)
    k = 0
    while k + 8 <= size:
        h = (h ^ u64(data, at + k)) * np.uint64(0xFF51AFD7ED558CCD)
        h ^= h >> np.uint64(32)
        k += 8
    while k < size:
        h = (h ^ np.uint64(data[at + k])) * np.uint64(0xC4CEB9FE1A85EC53)
        h ^= h >> np.uint64(29)
        k += 1
    return np.int64((h * np.uint64(0xFF51AFD7ED558CCD)) >> np.uint64(20))


@helper
def fail(fault, code, slot, at):
    """Sets `fault` to a code of FAULTS, the slot and the byte; returns -1, the result of a kernel that fails."""
    fault[0], fault[1], fault[2] = code, slot, at
    return np.int64(-1)


@helper
def value_size(data, at, limit):
    """The size in bytes of the Variant at `at`, children included; minus a fault code if it is unknown or reaches past `limit`.

    Children are not looked at.
    """
    if at >= limit:
        return np.int64(-TRUNCATED)
    basic, header = data[at] & 3, np.int64(data[at] >> 2)
    if basic == t.SHORT_STRING:
        size = 1 + header
    elif basic == t.PRIMITIVE:
        if header >= _PRIMITIVES:
            return np.int64(-BAD_TYPE)
        size = 1 + SIZES[header]
        if size == 0:
            size = 5 + np.int64(u32(data, at + 1)) if at + 5 <= limit else np.int64(5)
    else:
        width = (header & 3) + 1
        id_width = (header >> 2 & 3) + 1 if basic == t.OBJECT else np.int64(0)
        count_width = 4 if header & (0x10 if basic == t.OBJECT else 0x04) else 1
        size = np.int64(1 + count_width)
        if at + size <= limit:
            count = uint(data, at + 1, count_width)
            if count == 0 and at + size == limit:  # VariantShredding writes an empty object without its one offset: 02 00
                return size
            size += count * id_width + (count + 1) * width
            if at + size <= limit:
                size += uint(data, at + size - width, width)
    return size if at + size <= limit else np.int64(-TRUNCATED)


@helper
def open_container(data, at, limit):
    """(count, id width, offset width, position of the ids, of the offsets, of the first child, bytes of all children).

    For an array the id width is 0. The count is minus a fault code if the container reaches past `limit`.
    """
    is_object, header = data[at] & 3 == t.OBJECT, np.int64(data[at] >> 2)
    width = (header & 3) + 1
    id_width = (header >> 2 & 3) + 1 if is_object else np.int64(0)
    count_width = 4 if header & (0x10 if is_object else 0x04) else 1
    ids = at + 1 + count_width
    if ids > limit:
        return np.int64(-TRUNCATED), id_width, width, at, at, at, np.int64(0)
    count = uint(data, at + 1, count_width)
    if count == 0 and ids == limit:
        return count, id_width, width, ids, ids, ids, count
    offsets = ids + count * id_width
    base = offsets + (count + 1) * width
    if base > limit:
        return np.int64(-TRUNCATED), id_width, width, at, at, at, np.int64(0)
    total = uint(data, base - width, width)
    if base + total > limit:
        return np.int64(-TRUNCATED), id_width, width, at, at, at, np.int64(0)
    return count, id_width, width, ids, offsets, base, total


@helper
def bytes_for(number):
    """The width of an unsigned number: 1 to 4 bytes."""
    return 1 if number < 0x100 else 2 if number < 0x10000 else 3 if number < 0x1000000 else 4


@helper
def object_size(fields, size, largest):
    """The size in bytes of an object in its smallest form. size: bytes of its values; largest: its largest field id."""
    return 1 + (4 if fields > 0xFF else 1) + fields * bytes_for(largest) + (fields + 1) * bytes_for(size) + size


@helper
def put(out, at, number, width):
    """Writes a number in `width` bytes, little-endian."""
    for k in range(width):
        out[at + k] = number >> (8 * k) & 0xFF


@helper
def write_container(out, at, basic, count, id_width, width):
    """Writes the header and the count of an object or an array; returns the position after them."""
    large = count > 0xFF
    if basic == t.OBJECT:
        out[at] = (width - 1 | (id_width - 1) << 2 | large << 4) << 2 | basic
    else:
        out[at] = (width - 1 | large << 2) << 2 | basic
    if large:
        put(out, at + 1, count, 4)
        return at + 5
    out[at + 1] = count
    return at + 2


@helper
def ascend(ends, last):
    """Whether offsets ascend from 0 or more to at most `last`."""
    fits = ends[0] >= 0 and ends[len(ends) - 1] <= last
    for i in range(len(ends) - 1):
        fits &= ends[i] <= ends[i + 1]
    return fits


@jit
def are_offsets(ends, last):
    """`ascend` as a kernel."""
    return ascend(ends, last)


@jit
def all_set(flags):
    """Whether all flags are set."""
    bits = np.uint8(1)
    for flag in flags:
        bits = np.uint8(bits & (flag != 0))
    return bits == 1


@called
def pack_bits(flags, bits):
    """Sets Arrow's validity bits, one for each flag, which is 0 or 1. Returns how many flags are not set."""
    full = len(flags) >> 3
    unset = np.int64(len(flags))
    for k in range(full):
        eight = u64(flags, 8 * k)
        unset -= np.int64(eight * np.uint64(0x0101010101010101) >> np.uint64(56))
        bits[k] = eight * np.uint64(0x0102040810204080) >> np.uint64(56)
    if full < len(bits):
        last = np.int64(0)
        for k in range(8 * full, len(flags)):
            unset -= np.int64(flags[k])
            last |= np.int64(flags[k]) << (k - 8 * full)
        bits[full] = last
    return unset


@called
def is_ascii(data):
    """Whether all bytes are ASCII."""
    bits = np.uint8(0)
    for byte in data:
        bits = np.uint8(bits | byte)
    return bits < 0x80


@helper
def is_utf8(data, at, size):
    """Whether `size` bytes are well-formed UTF-8 (Unicode, table 3-7)."""
    i, end = at, at + size
    while i < end:
        if i + 8 <= end and u64(data, i) & np.uint64(0x8080808080808080) == 0:
            i += 8
            continue
        lead = data[i]
        if lead < 0x80:
            i += 1
            continue
        more = 1 if 0xC2 <= lead <= 0xDF else 2 if 0xE0 <= lead <= 0xEF else 3 if 0xF0 <= lead <= 0xF4 else 0
        if more == 0 or i + more >= end:
            return False
        second = data[i + 1]
        if (lead == 0xE0 and second < 0xA0) or (lead == 0xED and second > 0x9F):
            return False
        if (lead == 0xF0 and second < 0x90) or (lead == 0xF4 and second > 0x8F):
            return False
        for k in range(1, more + 1):
            if data[i + k] & 0xC0 != 0x80:
                return False
        i += more + 1
    return True
