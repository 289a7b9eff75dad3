"""The keys of JSON documents, from row to row: their numbers, the order of the fields of objects, and metadata.

Documents of one feed repeat the same keys in the same order, and three things that live from row to row make use of it:

* `Names` numbers the distinct keys. A key is looked up by its hash only if the prediction fails.
* `Shapes` is a trie of sequences of keys. Each object walks from a root, which belongs to the place of the object (the key that
  it is the value of), one step per key. A state predicts the next key: the one that came last time. Comparing the text with it
  takes one load for every eight bytes. The state at the end knows the order of the fields by name, and that no key is repeated.
* `Metas` holds the distinct metadata. A row's dictionary has its keys in the order in which they come first, as in Spark, so
  rows with the same keys share one metadata.

All three are only caches, and may be emptied between rows. In `used` stands how much of them is used.
"""

# ruff: noqa: ANN001, ANN201  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from delta_variant.kernels.memory import bytes_for, copy, equal, hash_bytes, put, u64
from delta_variant.kernels.scan import helper

COUNT, TEXT, STATES, ORDERS, METAS, META_KEYS, META_BYTES, SERIAL = range(8)  # indices of `used`
UNKNOWN, REPEATED = -1, -2  # in place of an order of fields
_TRIES = 16  # steps from a state that are looked at
_QUOTE, _BACKSLASH = np.uint8(ord('"')), np.uint8(ord("\\"))
_ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]


class Names(NamedTuple):
    """The distinct keys, by number. In `text` a quote follows each, as in a JSON text."""

    text: Bytes
    at: Int64s
    size: Int64s
    words: Int64s  # of eight bytes, to compare with a text; 0: the key has an escape there
    last: Words  # the bits of the last word that count
    prefix: Words  # the first eight bytes as a number that sorts like them
    table: Int32s  # a hash table of numbers
    serial: Int64s  # the last row with the key
    id: Int32s  # and its id there


class Shapes(NamedTuple):
    """States, by place the root, and by place and depth the bytes to keep for a header.

    Place 0 is the whole text, 2 k + 2 a value of key k; an odd place is an element of an array in the place before.
    """

    key: Int32s
    next: Int32s
    child: Int32s
    sibling: Int32s
    order: Int32s
    orders: Int32s
    root: Int32s
    reserve: Int32s


class Metas(NamedTuple):
    """The distinct metadata, by number: hashes, their keys, and their bytes, which end at ends[number]."""

    table: Int32s
    hash: Words
    key_ends: Int64s
    keys: Int32s
    ends: Int64s
    bytes: Bytes


@helper
def matches(data, p, names, key):
    """Whether a key and its closing quote are at p."""
    words, at = names.words[key], names.at[key]
    if words == 0:
        return False
    for _ in range(words - 1):
        if u64(data, p) != u64(names.text, at):
            return False
        p += 8
        at += 8
    return (u64(data, p) ^ u64(names.text, at)) & names.last[key] == 0


@helper
def number_name(names, used, data, at, size):
    """The number of a key, a new one if need be; -1 if there is no room."""
    mask = len(names.table) - 1
    slot = hash_bytes(data, at, size) & mask
    while names.table[slot] >= 0:
        key = np.int64(names.table[slot])
        if names.size[key] == size and equal(names.text, names.at[key], data, at, size):
            return key
        slot = (slot + 1) & mask
    key, to = used[COUNT], used[TEXT]
    if key == len(names.size) or to + size + 16 > len(names.text):
        return np.int64(-1)
    copy(names.text, to, data, at, size)
    names.text[to + size] = _QUOTE
    plain, prefix = True, np.uint64(0)
    for k in range(size):
        byte = data[at + k]
        plain = plain and byte >= 0x20 and byte not in (_QUOTE, _BACKSLASH)
    for k in range(8):
        prefix = prefix << np.uint64(8) | np.uint64(data[at + k] if k < size else 0)
    words = (size + 8) >> 3
    names.table[slot], names.at[key], names.size[key], names.prefix[key] = key, to, size, prefix
    names.words[key] = words if plain else 0
    names.last[key] = _ALL_BITS >> np.uint64(8 * (8 * words - size - 1))
    names.serial[key] = -1
    used[COUNT], used[TEXT] = key + 1, to + 8 * words
    return key


@helper
def is_before(names, a, b):
    """Whether key a sorts before key b, by bytes."""
    if names.prefix[a] != names.prefix[b]:
        return names.prefix[a] < names.prefix[b]
    size = min(names.size[a], names.size[b])
    for k in range(size):
        x, y = names.text[names.at[a] + k], names.text[names.at[b] + k]
        if x != y:
            return x < y
    return names.size[a] < names.size[b]


@helper
def new_state(shapes, used, key, sibling):
    """A state without steps; -1 if there is no room."""
    state = used[STATES]
    if state == len(shapes.key):
        return np.int64(-1)
    used[STATES] = state + 1
    shapes.key[state], shapes.sibling[state], shapes.order[state] = key, sibling, UNKNOWN
    shapes.next[state] = shapes.child[state] = -1
    return state


@helper
def step(shapes, used, state, key):
    """The state after a key, which becomes the prediction; -1 if there is no room for one."""
    child = np.int64(shapes.child[state])
    for _ in range(_TRIES):
        if child < 0:
            break
        if shapes.key[child] == key:
            shapes.next[state] = child
            return child
        child = np.int64(shapes.sibling[child])
    if child >= 0:
        return np.int64(-1)
    child = new_state(shapes, used, key, shapes.child[state])
    if child >= 0:
        shapes.child[state] = shapes.next[state] = child
    return child


@helper
def meta_of(metas, used, names, keys, count, hash_):
    """The number of the metadata with these keys in this order, a new one if need be; -1 if there is no room."""
    mask = len(metas.table) - 1
    slot = np.int64(hash_ >> np.uint64(20)) & mask
    while metas.table[slot] >= 0:
        number = np.int64(metas.table[slot])
        start = metas.key_ends[number - 1] if number else np.int64(0)
        if metas.hash[number] == hash_ and metas.key_ends[number] - start == count:
            same = True
            for k in range(count):
                same = same and metas.keys[start + k] == keys[k]
            if same:
                return number
        slot = (slot + 1) & mask
    number, start, o = used[METAS], used[META_KEYS], used[META_BYTES]
    texts = np.int64(0)
    for k in range(count):
        texts += names.size[keys[k]]
    width = bytes_for(max(texts, count))
    size = 1 + width * (count + 2) + texts
    if number == len(metas.hash) or start + count > len(metas.keys) or o + size > len(metas.bytes):
        return np.int64(-1)
    metas.bytes[o] = 1 | (width - 1) << 6
    put(metas.bytes, o + 1, count, width)
    o += 1 + width
    text, base = np.int64(0), o + (count + 1) * width
    for k in range(count):
        metas.keys[start + k] = keys[k]
        put(metas.bytes, o + k * width, text, width)
        copy(metas.bytes, base + text, names.text, names.at[keys[k]], names.size[keys[k]])
        text += names.size[keys[k]]
    put(metas.bytes, o + count * width, text, width)
    metas.table[slot], metas.hash[number], metas.key_ends[number], metas.ends[number] = (
        number,
        hash_,
        start + count,
        base + text,
    )
    used[METAS], used[META_KEYS], used[META_BYTES] = number + 1, start + count, base + text
    return number
