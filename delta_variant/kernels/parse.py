"""JSON texts → Variants, many rows at a time, in one pass over each text.

A value is written as soon as it is read. A container's header stands before its children but needs their sizes, so room for it
is kept: as many bytes as the last container in the same place took. If the guess is wrong, the children are moved.

Documents of one feed repeat the same keys in the same order, and three things that live from row to row make use of it:

* `Names` numbers the distinct keys. A key is looked up by its hash only if the prediction fails.
* `Shapes` is a trie of sequences of keys. Each object walks from a root, which belongs to the place of the object (the key that
  it is the value of), one step per key. A state predicts the next key: the one that came last time. Comparing the text with it
  takes one load for every eight bytes. The state at the end knows the order of the fields by name, and that no key is repeated.
* `Metas` holds the distinct metadata. A row's dictionary has its keys in the order in which they come first, as in Spark, so
  rows with the same keys share one metadata.

All three are only caches. When one of them is full, the kernel stops before a row, and the caller goes on with empty ones,
larger if they had no room for a single row.

In: the positions of the texts in `data`, which has `scan.PADDING` spare bytes. Out: Variants, for each row the number of its
metadata (-1: none), and for malformed rows the code of FAULTS and the byte. Source: RFC 8259, VariantEncoding, and what
Spark's parse_json does. Invariant: a value takes at most four times the bytes of its text, so that nothing inside a row checks
for room.
"""

# ruff: noqa: ANN001, ANN201, ANN202  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt

from delta_variant import types as t
from delta_variant.kernels.cache import cached
from delta_variant.kernels.memory import bytes_for, copy, equal, hash_bytes, put, u32, u64, write_container
from delta_variant.kernels.numbers import GOOD, LEADING_ZERO, NO_DIGIT, NO_SPACE, TOO_LONG, write_number
from delta_variant.kernels.scan import helper, move, not_blank, store16, trailing_zeros
from delta_variant.kernels.strings import CONTROL, END, ESCAPE, SURROGATE, utf16_size, write_string

DONE, NO_ROOM, NAMES_FULL, METAS_FULL = range(4)

MAX_DEPTH = 1000
MAX_STRING, MAX_NAME = 20_000_000, 50_000  # UTF-16 code units, as Jackson counts
MAX_SIZE = 1 << 27
_SMALL_HEADER = 8
SLACK = 1 << 14  # bytes of `out` kept free: small headers of the containers that are open, and stores of more bytes than needed

EMPTY, NO_VALUE, NO_NAME, NO_COLON, NO_COMMA, NO_COMMA_IN_ARRAY, NUMBER, ZERO_FIRST, ROOT_SPACE = range(10, 19)
LITERAL, DUPLICATE, DEPTH, NUMBER_SIZE, STRING_SIZE, NAME_SIZE, SIZE = range(19, 26)
FAULTS = {
    END: "the text ends inside a value",
    CONTROL: "a control character in a string is not escaped",
    ESCAPE: "unknown escape",
    SURROGATE: "an escaped surrogate without the other half",
    EMPTY: "there is no value",
    NO_VALUE: "a value is expected",
    NO_NAME: "a key in double quotes is expected",
    NO_COLON: "a colon is expected after a key",
    NO_COMMA: "a comma or a closing brace is expected",
    NO_COMMA_IN_ARRAY: "a comma or a closing bracket is expected",
    NUMBER: "a digit is expected",
    ZERO_FIRST: "a number has a leading zero",
    ROOT_SPACE: "a blank is expected after a number",
    LITERAL: "true, false or null is expected",
    DUPLICATE: "an object has two fields of the same name",
    DEPTH: f"more than {MAX_DEPTH:,} levels of nesting",
    NUMBER_SIZE: "a number has more than 1,000 digits",
    STRING_SIZE: f"a string is longer than {MAX_STRING:,} characters",
    NAME_SIZE: f"a key is longer than {MAX_NAME:,} characters",
    SIZE: "the Variant is larger than 128 MiB",
}

_COUNT, _TEXT, _STATES, _ORDERS, METAS, META_KEYS, META_BYTES, SERIAL = range(8)  # indices of `used`
_UNKNOWN, _REPEATED = -1, -2  # in place of an order of fields
_TRIES = 16  # steps from a state that are looked at
_QUOTE, _COMMA, _COLON, _MINUS, _BACKSLASH = (np.uint8(ord(c)) for c in '",:-\\')
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = (np.uint8(ord(c)) for c in "{}[]")
_TRUE, _FALSE, _NULL = (np.uint32(int.from_bytes(word, "little")) for word in (b"true", b"alse", b"null"))
_ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

_DIGEST = hashlib.blake2b(digest_size=4)
for _name in ("../types.py", "memory.py", "scan.py", "numbers.py", "strings.py"):
    _DIGEST.update(Path(__file__).parent.joinpath(_name).read_bytes())


def jit(kernel: Any) -> Any:
    """`memory.jit` without reference counts (`scan.helper` says why), and with the helpers of this kernel in its name."""
    kernel.__qualname__ += f"-{_DIGEST.hexdigest()}"
    return cached(nb.njit(nogil=True, _nrt=False)(kernel))


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


class Work(NamedTuple):
    """Working space for one row: open containers, pending fields, its keys, orders of fields, and two long numbers."""

    stack: Int64s
    fields: Int64s
    keys: Int32s
    order: Int32s
    spare: Int32s
    wide: Words


@helper
def _skip_blanks(data, p, end):
    while p < end and data[p] <= 0x20:
        n = trailing_zeros(not_blank(data, p))
        if n == 0:
            break
        p += n
    return min(p, end)


@helper
def _matches(data, p, names, key):
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
def _number_name(names, used, data, at, size):
    """The number of a key, a new one if need be; -1 if there is no room."""
    mask = len(names.table) - 1
    slot = hash_bytes(data, at, size) & mask
    while names.table[slot] >= 0:
        key = np.int64(names.table[slot])
        if names.size[key] == size and equal(names.text, names.at[key], data, at, size):
            return key
        slot = (slot + 1) & mask
    key, to = used[_COUNT], used[_TEXT]
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
    used[_COUNT], used[_TEXT] = key + 1, to + 8 * words
    return key


@helper
def _is_before(names, a, b):
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
def _new_state(shapes, used, key, sibling):
    """A state without steps; -1 if there is no room."""
    state = used[_STATES]
    if state == len(shapes.key):
        return np.int64(-1)
    used[_STATES] = state + 1
    shapes.key[state], shapes.sibling[state], shapes.order[state] = key, sibling, _UNKNOWN
    shapes.next[state] = shapes.child[state] = -1
    return state


@helper
def _step(shapes, used, state, key):
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
    child = _new_state(shapes, used, key, shapes.child[state])
    if child >= 0:
        shapes.child[state] = shapes.next[state] = child
    return child


@helper
def _sort(names, work, base, count):
    """Sorts fields by key into work.order: merges runs of two arrays. Fields of the same key keep their order."""
    order, spare = work.order, work.spare
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
                    take = not _is_before(names, b, a)
                if take:
                    spare[k] = order[i]
                    i += 1
                else:
                    spare[k] = order[j]
                    j += 1
        for k in range(count):
            order[k] = spare[k]
        width *= 2


@helper
def _has_repeated(work, base, count):
    """Whether two fields in work.order have the same key."""
    before = np.int64(-1)
    for k in range(count):
        key = work.fields[base + work.order[k]] >> 32
        if key == before:
            return True
        before = key
    return False


@helper
def _keep_last(work, base, count, out, first, size):
    """Drops each field whose key comes again, and closes the gaps. Returns (fields left, bytes of their values).

    work.order is that of all fields; it becomes that of the fields left.
    """
    for k in range(count):
        work.spare[work.order[k]] = (
            k + 1 < count and work.fields[base + work.order[k]] >> 32 == work.fields[base + work.order[k + 1]] >> 32
        )
    left, written = 0, np.int64(0)
    for f in range(count):
        at = work.fields[base + f] & 0xFFFFFFFF
        end = work.fields[base + f + 1] & 0xFFFFFFFF if f + 1 < count else size
        if work.spare[f]:
            work.spare[f] = -1
            continue
        move(out, first + written, first + at, end - at)
        work.fields[base + left] = work.fields[base + f] >> 32 << 32 | written
        work.spare[f] = left
        written += end - at
        left += 1
    kept = 0
    for k in range(count):
        if work.spare[work.order[k]] >= 0:
            work.order[kept] = work.spare[work.order[k]]
            kept += 1
    return left, written


@helper
def _close(out, head, first, o, basic, fields, base, count, order, order_at, ids, shapes, guess):
    """Writes the header of a container whose children lie from first to o. Returns the position after the container."""
    size, id_width = o - first, np.int64(0)
    width = bytes_for(size)
    if basic == t.OBJECT:
        id_width = np.int64(1)
        if ids > 256:
            largest = np.int64(0)
            for k in range(count):
                largest = max(largest, fields[base + k] >> 32)
            id_width = np.int64(bytes_for(largest))
    header = 1 + (4 if count > 0xFF else 1) + count * id_width + (count + 1) * width
    if head + header != first:
        move(out, head + header, first, size)
        shapes.reserve[guess] = header
    to = write_container(out, head, basic, count, id_width, width)
    if basic == t.OBJECT:
        if id_width == 1 and width == 1:
            for k in range(count):
                field = fields[base + order[order_at + k]]
                out[to + k] = field >> 32
                out[to + count + k] = field & 0xFF
        elif id_width == 1 and width == 2:
            for k in range(count):
                field = fields[base + order[order_at + k]]
                out[to + k] = field >> 32
                store16(out, to + count + 2 * k, np.uint16(field))
        else:
            for k in range(count):
                field = fields[base + order[order_at + k]]
                put(out, to + k * id_width, field >> 32, id_width)
                put(out, to + count * id_width + k * width, field & 0xFFFFFFFF, width)
        to += count * id_width
    elif width == 1:
        for k in range(count):
            out[to + k] = fields[base + k]
    elif width == 2:
        for k in range(count):
            store16(out, to + 2 * k, np.uint16(fields[base + k]))
    else:
        for k in range(count):
            put(out, to + k * width, fields[base + k], width)
    put(out, to + count * width, size, width)
    return head + header + size


@helper
def _meta_of(metas, used, names, keys, count, hash_):
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


@helper
def _guess(shapes, place, depth):
    """Where `reserve` has the bytes to keep for a header. Two places may share an entry: a wrong guess costs a move."""
    return (place + 37 * depth) & (len(shapes.reserve) - 1)


@jit
def parse_rows(data, at, limit, row, allow_duplicates, names, shapes, metas, work, used, out, o, start, meta, code, where):
    """Parses as many rows, from `row` on, as fit into `out`, from o on, and the caches. Returns (rows, why it stopped).

    start[k] is set to the start of the Variant of row + k; one more entry is the end of the last one. A row with at[row] < 0
    has none.
    """
    stack, fields = work.stack, work.fields
    start[0] = o
    for i in range(row, len(at)):
        done = i - row
        p, end = at[i], limit[i]
        meta[done], code[done] = -1, 0
        if p < 0:
            start[done + 1] = o
            continue
        if o + 4 * (end - p) + SLACK > len(out):
            return done, NO_ROOM
        if used[_STATES] + 256 > len(shapes.key):  # the trie begins anew
            used[_STATES] = used[_ORDERS] = 0
            for k in range(len(shapes.root)):
                shapes.root[k] = -1
        row_start, fault = o, 0
        used[SERIAL] += 1
        serial, ids, hash_ = used[SERIAL], np.int64(0), np.uint64(0)
        depth, top, place, wants_key, is_object = 0, np.int64(0), np.int64(0), False, False
        head = first = base = own_place = np.int64(0)
        state = np.int64(-1)
        while True:
            if wants_key:
                p = _skip_blanks(data, p, end)
                if p >= end or data[p] != _QUOTE:
                    fault = NO_NAME if p < end else END
                    break
                key = np.int64(-1)
                if state >= 0:
                    after = np.int64(shapes.next[state])
                    if after >= 0 and _matches(data, p + 1, names, shapes.key[after]):
                        key, state = np.int64(shapes.key[after]), after
                        p += names.size[key] + 2
                if key < 0:
                    q, to, fault = write_string(data, p + 1, end, out, o)
                    if fault:
                        p = q
                        break
                    text = o + 1 if out[o] & 3 == t.SHORT_STRING else o + 5
                    if to - text > MAX_NAME and utf16_size(out, text, to) > MAX_NAME:
                        fault = NAME_SIZE
                        break
                    p = q
                    key = _number_name(names, used, out, text, to - text)
                    if key < 0:
                        return done, NAMES_FULL
                    if state >= 0:
                        state = _step(shapes, used, state, key)
                if p > end:
                    p, fault = end, END
                    break
                if names.serial[key] != serial:
                    names.serial[key], names.id[key], work.keys[ids] = serial, ids, key
                    ids += 1
                    hash_ = (hash_ ^ np.uint64(key + 1)) * np.uint64(0x9E3779B97F4A7C15)
                    hash_ ^= hash_ >> np.uint64(32)
                fields[top] = np.int64(names.id[key]) << 32 | (o - first)
                top += 1
                p = _skip_blanks(data, p, end)
                if p >= end or data[p] != _COLON:
                    fault = NO_COLON if p < end else END
                    break
                p += 1
                place = 2 * key + 2
                wants_key = False
            p = _skip_blanks(data, p, end)
            if p >= end:
                fault = END if depth else EMPTY
                break
            c = data[p]
            if c == _QUOTE:
                q, to, fault = write_string(data, p + 1, end, out, o)
                if fault == 0 and to - o > MAX_STRING and utf16_size(out, o + 5, to) > MAX_STRING:
                    q, fault = p, STRING_SIZE
                p = q
                if fault:
                    break
                o = to
            elif c - np.uint8(0x30) <= 9 or c == _MINUS:
                p, to, result = write_number(data, p, end, depth == 0, out, o, work.wide)
                if result != GOOD:
                    fault = NUMBER
                    if result == NO_DIGIT and p >= end:
                        fault = END
                    elif result == LEADING_ZERO:
                        fault = ZERO_FIRST
                    elif result == TOO_LONG:
                        fault = NUMBER_SIZE
                    elif result == NO_SPACE:
                        fault = ROOT_SPACE
                    break
                o = to
            elif c in (_OPEN_OBJECT, _OPEN_ARRAY):
                if depth == MAX_DEPTH:
                    fault = DEPTH
                    break
                stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3] = head, first, base, state
                stack[depth, 4], stack[depth, 5] = own_place, is_object
                depth += 1
                own_place, is_object = place, c == _OPEN_OBJECT
                head = o
                kept = np.int64(shapes.reserve[_guess(shapes, place, depth)])
                if kept > _SMALL_HEADER and o + kept + 4 * (end - p) + SLACK > len(out):
                    kept = np.int64(_SMALL_HEADER)  # the guess is from another, larger container
                o = first = head + kept
                base = top
                p = _skip_blanks(data, p + 1, end)
                if is_object:
                    state = np.int64(shapes.root[place])
                    if state < 0:
                        state = _new_state(shapes, used, -1, -1)
                        shapes.root[place] = state
                    wants_key = p < end and data[p] != _CLOSE_OBJECT
                    if wants_key:
                        continue
                elif p < end and data[p] != _CLOSE_ARRAY:
                    fields[top] = 0
                    top += 1
                    place = own_place ^ 1
                    continue
            else:
                size = 4
                if p + 4 <= end and u32(data, p) == _TRUE:
                    out[o] = t.TRUE << 2
                elif p + 4 <= end and u32(data, p) == _NULL:
                    out[o] = t.NULL << 2
                elif p + 5 <= end and c == 0x66 and u32(data, p + 1) == _FALSE:
                    out[o] = t.FALSE << 2
                    size = 5
                else:
                    fault = LITERAL if c in (0x74, 0x66, 0x6E) else NO_VALUE
                    break
                if depth == 0 and p + size < end:
                    after_it = data[p + size]
                    if after_it >= 0x80 or (after_it >= 0x30 and after_it | 0x20 != 0x7D and _is_word(after_it)):
                        fault = LITERAL
                        break
                p += size
                o += 1
            # A value is complete: the next one, or the end of containers.
            while depth:
                if p < end and data[p] <= 0x20:
                    p = _skip_blanks(data, p, end)
                if p >= end:
                    fault = END
                    break
                c = data[p]
                if c == _COMMA:
                    p += 1
                    if is_object:
                        wants_key = True
                    else:
                        fields[top] = o - first
                        top += 1
                        place = own_place ^ 1
                    break
                if c != (_CLOSE_OBJECT if is_object else _CLOSE_ARRAY):
                    fault = NO_COMMA if is_object else NO_COMMA_IN_ARRAY
                    break
                count, guess = top - base, _guess(shapes, own_place, depth)
                if is_object:
                    order = np.int64(shapes.order[state]) if state >= 0 else np.int64(_REPEATED)
                    if order >= 0:
                        o = _close(out, head, first, o, t.OBJECT, fields, base, count, shapes.orders, order, ids, shapes, guess)
                    else:
                        _sort(names, work, base, count)
                        if _has_repeated(work, base, count):
                            if not allow_duplicates:
                                fault = DUPLICATE
                                break
                            count, size = _keep_last(work, base, count, out, first, o - first)
                            o = first + size
                        elif state >= 0 and used[_ORDERS] + count <= len(shapes.orders):
                            shapes.order[state] = used[_ORDERS]
                            for k in range(count):
                                shapes.orders[used[_ORDERS] + k] = work.order[k]
                            used[_ORDERS] += count
                        o = _close(out, head, first, o, t.OBJECT, fields, base, count, work.order, 0, ids, shapes, guess)
                else:
                    o = _close(out, head, first, o, t.ARRAY, fields, base, count, work.order, 0, ids, shapes, guess)
                if o - row_start > MAX_SIZE:
                    fault = SIZE
                    break
                p += 1
                top = base
                depth -= 1
                head, first, base, state = stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3]
                own_place, is_object = stack[depth, 4], stack[depth, 5] != 0
            if fault or depth == 0:
                break
        if fault:
            o = row_start
            code[done], where[done] = fault, p - at[i]
        else:
            meta[done] = _meta_of(metas, used, names, work.keys, ids, hash_)
            if meta[done] < 0:
                return done, METAS_FULL
        start[done + 1] = o
    return len(at) - row, DONE


@helper
def _is_word(byte):
    """Whether an ASCII byte goes on a word, as Jackson says: a letter, a digit, an underscore or DEL."""
    return byte <= 0x39 or 0x61 <= byte | 0x20 <= 0x7A or byte in (0x5F, 0x7F)


@jit
def write_metadata(meta, ends, texts, offsets, out):
    """Writes the metadata of each row to `out`, where it ends at offsets[row]; a row with meta[row] < 0 has none."""
    for row in range(len(meta)):
        if meta[row] >= 0:
            start = ends[meta[row] - 1] if meta[row] else np.int64(0)
            size = ends[meta[row]] - start
            copy(out, offsets[row] - size, texts, start, size)
