"""The keys of JSON documents, from row to row: their numbers, the order of the fields of objects, and metadata.

Documents of one feed repeat the same keys in the same order, and three things that live from row to row make use of it:

* `Names` numbers the distinct keys. A key is looked up by its hash only if the prediction fails.
* `Shapes` is a trie of sequences of keys. Each object walks from a root, which belongs to the place of the object (the key that
  it is the value of), one step per key. A state predicts the next key: the one that came last time. Comparing the text with it
  takes one load for up to five bytes. The state at the end knows the order of the fields by name, and that no key is repeated.
* `Metas` holds the distinct metadata. A row's dictionary has its keys in the order in which they come first, as in Spark, so
  rows with the same keys share one metadata.

All three are caches, and may be emptied between rows. `used` says how much of each is filled.

A key may have half of a surrogate pair (`strings.UNPAIRED`). Spark numbers and sorts keys as Java strings, and encodes them
last. Half a pair then becomes `?`, so two keys can have the same bytes in the metadata. An object with such a key is sorted as
Java sorts: by UTF-16. `Names` has half a pair as three bytes that are not UTF-8, and marks the key by `word` = HALF.
"""

# ruff: noqa: ANN001, ANN201, ANN202  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from delta_variant.kernels.compiler import apart, called, copy, helper, store32, u64
from delta_variant.kernels.memory import bytes_for, compare_keys, equal, in_order, put
from delta_variant.kernels.strings import UNPAIRED

COUNT, TEXT, STATES, ORDERS, METAS, META_KEYS, META_BYTES, SERIAL, HALVES = range(9)
"""The places of `used`. HALVES: whether any key has half a surrogate pair."""
USED = 9
HALF = np.uint64(1)  # no text begins with these bytes
UNKNOWN = -1  # in place of an order of fields
TOO_LARGE = -2  # in place of the number of a metadata
MAX_SIZE = 1 << 27
"""The most bytes of a value, and of a metadata."""
_COPIED = 32  # bytes of a key that are copied at once, so many are spare
_TRIES = 16  # steps from a state that are looked at
_QUOTE, _COLON, _BACKSLASH, _UNKNOWN = (np.uint8(ord(c)) for c in '":\\?')
_ALL_BITS, _MIX = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0xFF51AFD7ED558CCD)

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]


NAME = np.dtype(
    [
        ("at", np.int64),  # in `Names.text`
        ("size", np.int32),
        ("hash", np.int32),
        ("step", np.int32),  # bytes in a text from the opening quote to the colon
        ("last", np.int32),  # where the last eight of these bytes begin, or the only ones; with HALF its size in metadata
        ("word", np.uint64),  # those eight bytes, 0 if a text has an escape in place of a character
        ("mask", np.uint64),  # the bits of them that count
        ("prefix", np.uint64),  # the first eight bytes as a number that sorts as fields do
        ("serial", np.int64),  # the last row with the key
        ("id", np.int64),  # and its id there
    ]
)
"""A key. All that is known about it is in one cache line."""


STATE = np.dtype(
    [
        ("key", np.int32),  # that leads here
        ("next", np.int32),  # the state that came next last time, 0: none
        ("next_key", np.int32),  # and its key, -1: none
        ("child", np.int32),  # the first state after this one, 0: none
        ("sibling", np.int32),  # another state after the one before, 0: none
        ("order", np.int32),  # of the fields, in `Shapes.orders`
        ("unused", np.int64),  # 32 bytes
    ]
)
"""A sequence of keys that an object begins with. State 0 is of an object whose keys are in no trie."""


class Names(NamedTuple):
    """The distinct keys, by number. In `text` each is in quotes and has a colon, as in a JSON text."""

    text: Bytes
    key: npt.NDArray[np.void]
    table: Int32s  # a hash table of numbers


class Shapes(NamedTuple):
    """States, by place the root, and by place and depth the bytes to keep for a header.

    Place 0 is the whole text, 2 k + 2 a value of key k; an odd place is an element of an array in the place before.
    """

    state: npt.NDArray[np.void]
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
def is_at(data, p, end, names, name):
    """Whether a key is at p, where a quote is, with a quote and a colon after it, and the text goes on behind them."""
    if p + name.step >= end or (u64(data, p + name.last) ^ name.word) & name.mask:
        return False
    return name.last == 0 or equal(data, p, names.text, name.at, np.int64(name.last))


@helper
def _hash(data, at, size):
    """A hash of a key; there are spare bytes behind it."""
    h = np.uint64(size + 1) * _MIX
    while size > 8:
        h = (h ^ u64(data, at)) * _MIX
        h ^= h >> np.uint64(32)
        at += 8
        size -= 8
    if size > 0:
        h = (h ^ u64(data, at) << np.uint64(64 - 8 * size)) * _MIX
        h ^= h >> np.uint64(32)
    return np.int64(h * _MIX >> np.uint64(20))


@helper
def number_name(names, used, data, at, size, how):
    """The number of a key, a new one if need be; -1 if there is no room. how: of `strings`."""
    mask, hash_ = len(names.table) - 1, _hash(data, at, size)
    slot = hash_ & mask
    while names.table[slot] >= 0:
        key = np.int64(names.table[slot])
        name = names.key[key]
        if name.hash == np.int32(hash_) and name.size == size and equal(names.text, name.at + 1, data, at, size):
            return key
        slot = (slot + 1) & mask
    key, to = used[COUNT], used[TEXT]
    if key == len(names.key) or to + size + _COPIED + 16 > len(names.text):
        return np.int64(-1)
    copy(names.text, to + 1, data, at, size)
    names.text[to], names.text[to + size + 1], names.text[to + size + 2] = _QUOTE, _QUOTE, _COLON
    plain, prefix = True, np.uint64(0)
    for k in range(size):
        byte = data[at + k]
        plain = plain and byte >= 0x20 and byte not in (_QUOTE, _BACKSLASH)
    halves = np.int64(0)
    if how & UNPAIRED:
        for k in range(size):
            halves += is_half(data, at + k)
    for k in range(8):
        prefix = prefix << np.uint64(8) | np.uint64(in_order(data[at + k]) if k < size else 0)
    names.table[slot] = key
    name = names.key[key]
    name.at, name.size, name.prefix, name.hash, name.serial = to, size, prefix, hash_, -1
    name.step, name.last, name.word, name.mask = size + 3, 0, 0, _ALL_BITS
    if halves:
        name.word, name.last, used[HALVES] = HALF, size - 2 * halves, 1
    elif plain and size > 5:
        name.last, name.word = size - 5, u64(names.text, to + size - 5)
    elif plain:
        name.mask >>= np.uint64(8 * (5 - size))
        name.word = u64(names.text, to) & name.mask
    used[COUNT], used[TEXT] = key + 1, to + size + 3
    return key


@helper
def is_half(data, at):
    """Whether the three bytes of a surrogate begin there, as `strings` writes them into a key."""
    return data[at] == 0xED and data[at + 1] >= 0xA0


@helper
def _written_size(name):
    """The bytes of a key in metadata."""
    return name.last if name.word == HALF else name.size


@called
def _write_halves(out, o, names, name):
    """Writes a key to metadata as Java encodes it: `?` in place of half a surrogate pair."""
    apart()
    at, end = name.at + 1, name.at + 1 + name.size
    while at < end:
        half = is_half(names.text, at)
        out[o] = _UNKNOWN if half else names.text[at]
        at += 3 if half else 1
        o += 1


@called
def is_before_in_utf16(names, a, b):
    """Whether key a sorts before key b, by UTF-16 code units."""
    apart()
    x, y = names.key[a], names.key[b]
    i, j, x_end, y_end = x.at + 1, y.at + 1, x.at + 1 + x.size, y.at + 1 + y.size
    while i < x_end and j < y_end:
        if names.text[i] != names.text[j]:
            # One of them may be the first half of a pair, and the other the same half alone: what follows decides.
            unit, other = _code_unit(names.text, i, x_end, 0), _code_unit(names.text, j, y_end, 0)
            if unit == other:
                unit, other = _code_unit(names.text, i, x_end, 1), _code_unit(names.text, j, y_end, 1)
            return unit < other
        size = _size_of_character(names.text[i])
        for k in range(1, size):
            if names.text[i + k] != names.text[j + k]:
                return names.text[i + k] < names.text[j + k]
        i += size
        j += size
    return j < y_end


@called
def same_bytes(names, a, b):
    """Whether two keys have the same bytes in metadata."""
    apart()
    x, y = names.key[a], names.key[b]
    i, j, x_end = x.at + 1, y.at + 1, x.at + 1 + x.size
    if _written_size(x) != _written_size(y):
        return False
    while i < x_end:
        half, other = is_half(names.text, i), is_half(names.text, j)
        if (_UNKNOWN if half else names.text[i]) != (_UNKNOWN if other else names.text[j]):
            return False
        i += 3 if half else 1
        j += 3 if other else 1
    return True


@helper
def _size_of_character(lead):
    """The bytes of a character of UTF-8."""
    return 1 + (lead >= 0xC0) + (lead >= 0xE0) + (lead >= 0xF0)


@helper
def _code_unit(text, at, end, number):
    """The first or the second code unit of UTF-16 from the character at `at` on; -1 at the end."""
    for _ in range(2):
        if at >= end:
            break
        size = _size_of_character(text[at])
        point = np.int64(text[at]) & (0xFF >> size + (size > 1))
        for k in range(1, size):
            point = point << 6 | np.int64(text[at + k]) & 0x3F
        if point >= 0x10000:
            return 0xD7C0 + (point >> 10) if number == 0 else 0xDC00 + (point & 0x3FF)
        if number == 0:
            return point
        number -= 1
        at += size
    return np.int64(-1)


@helper
def is_before(names, a, b):
    """Whether key a comes before key b in the order of fields."""
    x, y = names.key[a], names.key[b]
    if x.prefix != y.prefix:
        return x.prefix < y.prefix
    same = min(8, x.size, y.size)
    return compare_keys(names.text, x.at + 1 + same, x.size - same, names.text, y.at + 1 + same, y.size - same) < 0


@helper
def forget(shapes, used):
    """Begins the trie anew."""
    used[STATES] = used[ORDERS] = 0
    new_state(shapes, used, -1, 0)
    for k in range(len(shapes.root)):
        shapes.root[k] = 0


@helper
def new_state(shapes, used, key, sibling):
    """A state without steps; 0 if there is no room."""
    number = used[STATES]
    if number == len(shapes.state):
        return np.int64(0)
    used[STATES] = number + 1
    state = shapes.state[number]
    state.key, state.sibling, state.order = key, sibling, UNKNOWN
    state.next = state.child = 0
    state.next_key = -1
    return number


@helper
def step(shapes, used, before, key):
    """The state after a key, which becomes the prediction; 0 if there is no room for one."""
    if before == 0:
        return np.int64(0)
    state = shapes.state[before]
    child = np.int64(state.child)
    for _ in range(_TRIES):
        if child == 0 or shapes.state[child].key == key:
            break
        child = np.int64(shapes.state[child].sibling)
    if child == 0:
        child = new_state(shapes, used, key, state.child)
        if child:
            state.child = child
    elif shapes.state[child].key != key:
        return np.int64(0)
    if child:
        state.next, state.next_key = child, key
    return child


@helper
def meta_of(metas, used, names, keys, count, hash_):
    """The number of the metadata with these keys in this order, a new one if need be; -1 if there is no room, TOO_LARGE."""
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
        texts += _written_size(names.key[keys[k]])
    width = bytes_for(max(texts, count))
    size = 1 + width * (count + 2) + texts
    if size > MAX_SIZE:
        return np.int64(TOO_LARGE)
    if number == len(metas.hash) or start + count > len(metas.keys) or o + size + _COPIED > len(metas.bytes):
        return np.int64(-1)
    metas.bytes[o] = 1 | (width - 1) << 6
    put(metas.bytes, o + 1, count, width)
    o += 1 + width
    text, base = np.int64(0), o + (count + 1) * width
    for k in range(count):
        metas.keys[start + k] = keys[k]
        store32(metas.bytes, o + k * width, np.uint32(text))  # what is too much is overwritten
        text += _written_size(names.key[keys[k]])
    put(metas.bytes, o + count * width, text, width)
    text = np.int64(0)
    for k in range(count):
        name = names.key[keys[k]]
        if name.word == HALF:
            _write_halves(metas.bytes, base + text, names, name)
        elif name.size <= _COPIED:
            copy(metas.bytes, base + text, names.text, name.at + 1, _COPIED)
        else:
            copy(metas.bytes, base + text, names.text, name.at + 1, np.int64(name.size))
        text += _written_size(name)
    metas.table[slot], metas.hash[number], metas.key_ends[number], metas.ends[number] = (
        number,
        hash_,
        start + count,
        base + text,
    )
    used[METAS], used[META_KEYS], used[META_BYTES] = number + 1, start + count, base + text
    return number
