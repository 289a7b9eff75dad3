"""Rows and dictionaries: the distinct metadata of a chunk, read once, their keys looked up among the names of a schema."""

# ruff: noqa: ANN001, ANN201  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant.kernels.memory import DICTIONARY, NOT_UTF8, VERSION, equal, fail, hash_bytes, is_utf8, jit, uint


@jit
def starts(offsets, valid, at, limit):
    """Where the Variant of each row starts and ends; `valid` is empty where every row has one."""
    for row in range(len(at)):
        at[row] = offsets[row] if len(valid) == 0 or valid[row] else -1
        limit[row] = offsets[row + 1]


@jit
def intern_metadata(data, offsets, at, table, meta, first):
    """Numbers the distinct metadata of a chunk: meta[row] = number, first[number] = row. Returns how many there are.

    `table` is a hash table of a power of two entries, all -1. Rows where at[row] < 0 take part in nothing.
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
    """start[number] = where the keys of a metadata begin in a flat table of all keys. Returns their number, or -1."""
    total = np.int64(0)
    for number in range(count):
        at, limit = np.int64(offsets[first[number]]), np.int64(offsets[first[number] + 1])
        if at >= limit or data[at] & 0x0F != 1:
            return fail(fault, VERSION, first[number], 0)
        width = np.int64(data[at] >> 6) + 1
        if at + 1 + width > limit:
            return fail(fault, DICTIONARY, first[number], 1)
        size = uint(data, at + 1, width)
        # The texts of VariantShredding and of Arrow leave out the one offset of an empty dictionary: 01 00.
        if at + 1 + width * (size + 2) > limit and (size or at + 1 + width != limit):
            return fail(fault, DICTIONARY, first[number], 1)
        start[number] = total
        total += size
    start[count] = total
    return total


@jit
def read_dictionaries(data, offsets, first, count, start, key_at, key_size, fault):
    """Where each key of each dictionary lies in `data`. Returns 0, or -1."""
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
    return np.int64(0)


@jit
def fill_name_table(names, name_ends, table):
    """A hash table from the bytes of a name to its number, for names concatenated in `names`."""
    mask, start = len(table) - 1, np.int64(0)
    for number in range(len(name_ends)):
        slot = hash_bytes(names, start, name_ends[number] - start) & mask
        while table[slot] >= 0:
            slot = (slot + 1) & mask
        table[slot] = number
        start = name_ends[number]


@jit
def look_up_names(data, key_at, key_size, names, name_ends, table, found):
    """found[key] = the number of the schema's name that equals the key, or the number of names where none does."""
    mask, none = len(table) - 1, len(name_ends)
    for key in range(len(found)):
        slot = hash_bytes(data, key_at[key], key_size[key]) & mask
        found[key] = none
        while table[slot] >= 0:
            number = table[slot]
            start = name_ends[number - 1] if number else np.int64(0)
            if name_ends[number] - start == key_size[key] and equal(data, key_at[key], names, start, key_size[key]):
                found[key] = number
                break
            slot = (slot + 1) & mask


@jit
def number_names(data, key_at, key_size, table, name, first):
    """name[key] = the number of the key's text, first[name] = a key with that text. Returns how many texts there are.

    `table` is a hash table of a power of two entries, all -1.
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
