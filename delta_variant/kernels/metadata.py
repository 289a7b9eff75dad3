"""Dictionaries: each distinct metadata of a chunk is read once, and its keys are looked up among the names of a schema."""

# ruff: noqa: ANN001, ANN201, ANN202  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant.kernels.compiler import called, helper, jit, u64
from delta_variant.kernels.memory import DICTIONARY, NOT_UTF8, VERSION, equal, fail, hash_bytes, is_utf8, uint


@jit
def starts(offsets, valid, at, limit):
    """Sets at[row] and limit[row] to the start and the end of each row's Variant; at[row] is -1 for a row that is not valid."""
    for row in range(len(at)):
        at[row] = offsets[row] if len(valid) == 0 or valid[row] else -1
        limit[row] = offsets[row + 1]


@jit
def intern_metadata(data, offsets, at, table, meta, first):
    """Numbers the distinct metadata of a chunk. Returns how many there are.

    meta[row] is set to the number of the row's metadata, first[number] to the first row that has it. `table` is a hash table
    whose size is a power of two, all entries -1. Rows with at[row] < 0 are ignored; their meta[row] is 0.
    """
    count, mask, previous = 0, len(table) - 1, np.int64(-1)
    for row in range(len(meta)):
        if at[row] < 0:
            meta[row] = 0
            continue
        start, size = np.int64(offsets[row]), np.int64(offsets[row + 1] - offsets[row])
        if previous >= 0:
            p = np.int64(offsets[previous])
            if size == offsets[previous + 1] - p and equal(data, start, data, p, size):
                meta[row] = meta[previous]
                previous = row
                continue
        previous = row
        slot = hash_bytes(data, start, size) & mask
        while True:
            number = table[slot]
            if number < 0:
                table[slot] = number = count
                first[count] = row
                count += 1
                break
            p = np.int64(offsets[first[number]])
            if size == offsets[first[number] + 1] - p and equal(data, start, data, p, size):
                break
            slot = (slot + 1) & mask
        meta[row] = number
    return count


@jit
def measure_dictionaries(data, offsets, first, count, start, fault):
    """Sets start[number] to the index of a dictionary's first key among the keys of all. Returns the number of keys, or -1."""
    total = np.int64(0)
    for number in range(count):
        at, limit = np.int64(offsets[first[number]]), np.int64(offsets[first[number] + 1])
        if at >= limit or data[at] & 0x0F != 1:
            return fail(fault, VERSION, first[number], 0)
        width = np.int64(data[at] >> 6) + 1
        if at + 1 + width > limit:
            return fail(fault, DICTIONARY, first[number], 1)
        size = uint(data, at + 1, width)
        # VariantShredding and Arrow print an empty dictionary without its one offset: 01 00.
        if at + 1 + width * (size + 2) > limit and (size or at + 1 + width != limit):
            return fail(fault, DICTIONARY, first[number], 1)
        start[number] = total
        total += size
    start[count] = total
    return total


_LOW_BITS, _HIGH_BITS, _TO_F0 = (np.uint64(byte * 0x0101010101010101) for byte in (0x7F, 0x80, 0x10))


@helper
def _from_f0(word):
    """A number whose _HIGH_BITS say which of eight bytes are F0 or above."""
    return ((word & _LOW_BITS) + _TO_F0) & word


@called
def _has_both(data, at, size):
    """Whether any of these bytes is F0 or above, and another one EE or EF."""
    found = np.int64(0)
    for k in range(at, at + size):
        found |= np.int64(data[k] >= 0xEE) << np.int64(data[k] >= 0xF0)
    return found == 3


@helper
def _mixes(data, at, size):
    """Whether keys, one after the other in UTF-8, have a character from U+E000 to U+FFFF and one beyond these."""
    i, end, found = at, at + size, np.uint64(0)
    if size < 8:
        return _has_both(data, at, size)
    while i + 32 <= end:
        found |= _from_f0(u64(data, i)) | _from_f0(u64(data, i + 8))
        found |= _from_f0(u64(data, i + 16)) | _from_f0(u64(data, i + 24))
        i += 32
    while i + 8 <= end:
        found |= _from_f0(u64(data, i))
        i += 8
    found |= _from_f0(u64(data, end - 8))
    return found & _HIGH_BITS != 0 and _has_both(data, at, size)


@jit
def read_dictionaries(data, offsets, first, count, start, key_at, key_size, fault):
    """Sets key_at and key_size to the position and the size of every key in `data`.

    Returns in how many dictionaries the order of fields may not be that of their names' bytes (`memory.compare_keys`), or -1.
    """
    mixed = np.int64(0)
    for number in range(count):
        at, limit = np.int64(offsets[first[number]]), np.int64(offsets[first[number] + 1])
        width = np.int64(data[at] >> 6) + 1
        size = start[number + 1] - start[number]
        if size == 0:
            continue
        text = at + 1 + width * (size + 2)
        before = uint(data, at + 1 + width, width)
        if before != 0:
            return fail(fault, DICTIONARY, first[number], 1 + width)
        for i in range(size):
            end = uint(data, at + 1 + width * (i + 2), width)
            if end < before or text + end > limit:
                return fail(fault, DICTIONARY, first[number], 1 + width * (i + 2))
            if not is_utf8(data, text + before, end - before):
                return fail(fault, NOT_UTF8, first[number], text + before)
            key_at[start[number] + i], key_size[start[number] + i] = text + before, end - before
            before = end
        mixed += _mixes(data, text, before)
    return mixed


@jit
def fill_name_table(names, name_ends, table):
    """Fills a hash table from the bytes of a name to its number.

    `names` holds the names one after the other, and name_ends[number] is the end of each. `table` is a hash table whose size is
    a power of two, all entries -1.
    """
    mask, start = len(table) - 1, np.int64(0)
    for number in range(len(name_ends)):
        slot = hash_bytes(names, start, name_ends[number] - start) & mask
        while table[slot] >= 0:
            slot = (slot + 1) & mask
        table[slot] = number
        start = name_ends[number]


@helper
def _bit(data, at, size):
    """One of 64 bits, by the size of a key and its last byte."""
    last = np.int64(data[at + size - 1]) if size else np.int64(0)
    return np.uint64(1) << np.uint64((last + 11 * size) & 63)


@jit
def look_up_names(data, key_at, key_size, names, name_ends, table, found):
    """Sets found[key] to the number of the schema's name that equals the key; to the count of names if none does."""
    mask, none = len(table) - 1, len(name_ends)
    sketch, start = np.uint64(0), np.int64(0)
    for end in name_ends:
        sketch |= _bit(names, start, end - start)
        start = end
    for key in range(len(found)):
        found[key] = none
        if not sketch & _bit(data, key_at[key], key_size[key]):
            continue
        slot = hash_bytes(data, key_at[key], key_size[key]) & mask
        while table[slot] >= 0:
            number = table[slot]
            start = name_ends[number - 1] if number else np.int64(0)
            if name_ends[number] - start == key_size[key] and equal(data, key_at[key], names, start, key_size[key]):
                found[key] = number
                break
            slot = (slot + 1) & mask


@jit
def number_keys(data, start, key_at, key_size, table, number):
    """Gives each key a number: keys of one dictionary have the same number if they are the same name.

    They are below the number of keys of the dictionary. `table` is a hash table for the largest dictionary, whose size is a
    power of two, all entries -1. All dictionaries use it one after the other, so that it stays in the processor's cache.
    """
    mask = len(table) - 1
    for dictionary in range(len(start) - 1):
        first = start[dictionary]
        for key in range(first, start[dictionary + 1]):
            slot = hash_bytes(data, key_at[key], key_size[key]) & mask
            while table[slot] >= first:
                other = table[slot]
                if key_size[other] == key_size[key] and equal(data, key_at[other], data, key_at[key], key_size[key]):
                    break
                slot = (slot + 1) & mask
            if table[slot] < first:
                table[slot] = key
            number[key] = table[slot] - first


@jit
def number_names(data, key_at, key_size, table, name, first):
    """Numbers the distinct names among the keys of all dictionaries. Returns how many there are.

    name[key] is set to the number of the key's name, first[name] to the first key with that name. `table` is a hash table whose
    size is a power of two, all entries -1.
    """
    count, mask = 0, len(table) - 1
    for key in range(len(name)):
        slot = hash_bytes(data, key_at[key], key_size[key]) & mask
        while table[slot] >= 0:
            other = first[table[slot]]
            if key_size[other] == key_size[key] and equal(data, key_at[other], data, key_at[key], key_size[key]):
                break
            slot = (slot + 1) & mask
        if table[slot] < 0:
            table[slot] = count
            first[count] = key
            count += 1
        name[key] = table[slot]
    return count
