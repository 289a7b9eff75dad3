"""JSON texts → Variants, many rows at a time, in one pass over each text.

A value is written as soon as it is read. A container's header stands before its children but needs their sizes, so room for it
is kept: as many bytes as the last container in the same place took. If the guess is wrong, the children are moved.

What documents of one feed have in common is kept from row to row: see `keys`. When such a cache is full, the kernel stops
before a row, and the caller goes on with empty caches, larger ones if they had no room for a single row.

In: the positions of the texts in `data`, which has `scan.PADDING` spare bytes. Out: Variants, for each row the number of its
metadata (-1: none), and for malformed rows the code of FAULTS and the byte. Source: RFC 8259, VariantEncoding, and what
Spark's parse_json does. Invariant: a value takes at most four times the bytes of its text, so that nothing inside a row checks
for room.
"""

# ruff: noqa: ANN001, ANN201, ANN202  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant import types as t
from delta_variant.kernels.compiler import apart, called, copy, helper, jit, likely, trailing_zeros, u32
from delta_variant.kernels.containers import are_alike, close_array, close_object, guess_of, keep_last, sort_fields
from delta_variant.kernels.keys import (
    HALVES,
    MAX_SIZE,
    ORDERS,
    SERIAL,
    STATES,
    TOO_LARGE,
    forget,
    is_at,
    meta_of,
    new_state,
    number_name,
    step,
)
from delta_variant.kernels.numbers import GOOD, LEADING_ZERO, NO_DIGIT, NO_SPACE, TOO_LONG, write_number
from delta_variant.kernels.scan import not_blank
from delta_variant.kernels.strings import (
    CONTROL,
    DISTINCT,
    END,
    ESCAPE,
    KEY,
    NOT_UTF8,
    STRICT,
    SURROGATE,
    decide,
    utf16_size,
    write_string,
)

DONE, NO_ROOM, NAMES_FULL, METAS_FULL = range(4)

MAX_DEPTH = 1000
MAX_STRING, MAX_NAME = 20_000_000, 50_000  # UTF-16 code units, as Jackson counts
_SMALL_HEADER = 8
_ARRAY = -1  # in place of a state
SLACK = 1 << 14  # bytes of `out` kept free: small headers of the containers that are open, and stores of more bytes than needed

EMPTY, NO_VALUE, NO_NAME, NO_COLON, NO_COMMA, NO_COMMA_IN_ARRAY, NUMBER, ZERO_FIRST, ROOT_SPACE = range(10, 19)
LITERAL, DUPLICATE, DEPTH, NUMBER_SIZE, STRING_SIZE, NAME_SIZE, SIZE, NOT_AT_END = range(19, 27)
NAN, INFINITY, WIDE, MARK = range(27, 31)
FAULTS = {
    END: "the text ends inside a value",
    CONTROL: "a control character in a string is not escaped",
    ESCAPE: "unknown escape",
    SURROGATE: "an escaped surrogate without the other half",
    NOT_UTF8: "a byte is not UTF-8 (the text may be Latin-1 or Windows-1252): convert it to UTF-8",
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
    NOT_AT_END: "there is text after the value",
    NAN: "a value is NaN, which JSON lacks",
    INFINITY: "a value is Infinity, which JSON lacks",
    WIDE: "the text is UTF-16 or UTF-32: convert it to UTF-8",
    MARK: "a byte order mark stands before the value",
}

_QUOTE, _COMMA, _COLON, _MINUS = (np.uint8(ord(c)) for c in '",:-')
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = (np.uint8(ord(c)) for c in "{}[]")
_TRUE, _FALSE, _NULL = (np.uint32(int.from_bytes(word, "little")) for word in (b"true", b"alse", b"null"))


@called
def _after_blanks(data, p, end):
    apart()  # inlined, the constants of a scan are loaded anew for each value
    while p < end and data[p] <= 0x20:
        n = trailing_zeros(not_blank(data, p))
        if n == 0:
            break
        p += n
    return min(p, end)


@helper
def _skip_blanks(data, p, end):
    if data[p] > 0x20:
        return p
    if data[p] == 0x20 and data[p + 1] > 0x20:
        return min(p + 1, end)
    return _after_blanks(data, p, end)


@jit
def parse_rows(
    data, at, limit, row, allow_duplicates, how, names, shapes, metas, work, used, out, o, start, meta, code, where
):  # fmt: skip
    """Parses as many rows, from `row` on, as fit into `out`, from o on, and the caches. Returns (rows, why it stopped).

    how: UNPAIRED, STRICT and DISTINCT of `strings`. With STRICT text after a complete value, other than blanks, is a fault too.
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
        if used[STATES] == 0 or used[STATES] + 256 > len(shapes.state):
            forget(shapes, used)
        row_start, last_end, fault = o, o + MAX_SIZE, 0
        used[SERIAL] += 1
        serial, ids, hash_ = used[SERIAL], np.int64(0), np.uint64(0)
        depth, top, place, wants_key = 0, np.int64(0), np.int64(0), False
        state = np.int64(0)
        while True:
            if wants_key:
                if data[p] != _QUOTE:
                    p = _skip_blanks(data, p, end)
                    if p >= end or data[p] != _QUOTE:
                        fault = NO_NAME if p < end else END
                        break
                before = shapes.state[state]
                key, predicted = np.int64(before.next_key), False
                if key >= 0:
                    name = names.key[key]
                    predicted = is_at(data, p, end, names, name)
                if likely(predicted):
                    state = np.int64(before.next)
                    p += name.step
                else:
                    q, to, fault = write_string(data, p + 1, end, out, o)
                    if fault:
                        q, to, fault = decide(data, p + 1, end, out, o, how | KEY, q, to, fault)
                        if fault:
                            p = q
                            break
                    text = o + 1 if out[o] & 3 == t.SHORT_STRING else o + 5
                    if to - text > MAX_NAME and utf16_size(out, text, to) > MAX_NAME:
                        fault = NAME_SIZE
                        break
                    p = q
                    key = number_name(names, used, out, text, to - text, how)
                    if key < 0:
                        return done, NAMES_FULL
                    state = step(shapes, used, state, key)
                    name = names.key[key]
                    p = _skip_blanks(data, p, end)
                    if p >= end or data[p] != _COLON:
                        fault = NO_COLON if p < end else END
                        break
                    p += 1
                if name.serial != serial:
                    name.serial, name.id, work.keys[ids] = serial, ids, key
                    ids += 1
                    hash_ = (hash_ ^ np.uint64(key + 1)) * np.uint64(0x9E3779B97F4A7C15)
                    hash_ ^= hash_ >> np.uint64(32)
                fields[top] = name.id << 32 | np.int64(np.uint32(o))
                top += 1
                place = 2 * key + 2
                wants_key = False
            c = data[p]
            if c <= 0x20:
                p = _skip_blanks(data, p, end)
                c = data[p]
            if p >= end:
                p, fault = end, END if depth else EMPTY
                break
            if c == _QUOTE:
                q, to, fault = write_string(data, p + 1, end, out, o)
                if fault:
                    q, to, fault = decide(data, p + 1, end, out, o, how, q, to, fault)
                    if fault:
                        p = q
                        break
                if to - o > MAX_STRING and utf16_size(out, o + 5, to) > MAX_STRING:
                    fault = STRING_SIZE
                    break
                p, o = q, to
            elif c - _MINUS <= 12:  # -./0123456789
                while True:  # the numbers of an array follow each other here: a tenth less than by the outer loop
                    p, to, result = write_number(data, p, end, depth == 0, out, o, work.wide)
                    if result != GOOD or state != _ARRAY or data[p] != _COMMA or p + 1 >= end or data[p + 1] - _MINUS > 12:
                        break
                    p += 1
                    c, o = data[p], to
                    fields[top] = o
                    top += 1
                if result != GOOD:
                    fault = NUMBER
                    if c in (0x2E, 0x2F):
                        fault = NO_VALUE
                    elif result == NO_DIGIT and p >= end:
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
                depth += 1
                opened = stack[depth]
                opened.head, opened.base, opened.place, opened.around = o, top, place, state
                kept = np.int64(shapes.reserve[guess_of(shapes, place, depth)])
                if kept > _SMALL_HEADER and o + kept + 4 * (end - p) + SLACK > len(out):
                    kept = np.int64(_SMALL_HEADER)  # the guess is from another, larger container
                o += kept
                opened.first = o
                p += 1
                if c == _OPEN_OBJECT:
                    state = np.int64(shapes.root[place])
                    if state == 0:
                        shapes.root[place] = state = new_state(shapes, used, -1, 0)
                    wants_key = data[p] == _QUOTE
                    if not wants_key:
                        p = _skip_blanks(data, p, end)
                        wants_key = p < end and data[p] != _CLOSE_OBJECT
                    if wants_key:
                        continue
                else:
                    state = np.int64(_ARRAY)
                    p = _skip_blanks(data, p, end)
                    if p < end and data[p] != _CLOSE_ARRAY:
                        fields[top] = o
                        top += 1
                        place ^= 1
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
                c = data[p]
                if c <= 0x20:
                    p = _skip_blanks(data, p, end)
                    c = data[p]
                if p >= end:
                    fault = END
                    break
                if c == _COMMA:
                    p += 1
                    if state != _ARRAY:
                        wants_key = True
                    else:
                        fields[top] = o
                        top += 1
                        place = stack[depth].place ^ 1
                    break
                opened = stack[depth]
                head, first, base = opened.head, opened.first, opened.base
                count = top - base
                if state == _ARRAY:
                    if c != _CLOSE_ARRAY:
                        fault = NO_COMMA_IN_ARRAY
                        break
                    o = close_array(out, head, first, o, fields, base, count, shapes, opened, depth)
                elif c != _CLOSE_OBJECT:
                    fault = NO_COMMA
                    break
                else:
                    order, order_at = shapes.orders, np.int64(shapes.state[state].order)
                    if not likely(order_at >= 0):
                        order, order_at = work.order, np.int64(0)
                        if sort_fields(names, used, work, base, count):
                            if not allow_duplicates:
                                fault = DUPLICATE
                                break
                            count, size = keep_last(work, base, count, out, first, o - first)
                            o = first + size
                        elif how & DISTINCT and used[HALVES] and are_alike(names, work, base, count):
                            fault = DUPLICATE
                            break
                        elif state and used[ORDERS] + count <= len(shapes.orders):
                            shapes.state[state].order = used[ORDERS]
                            for k in range(count):
                                shapes.orders[used[ORDERS] + k] = order[k]
                            used[ORDERS] += count
                    o = close_object(out, head, first, o, fields, base, count, order, order_at, ids, shapes, opened, depth)
                if o > last_end:
                    fault = SIZE
                    break
                p += 1
                top, state = base, opened.around
                depth -= 1
            if fault or depth == 0:
                break
        if how & STRICT and not fault and p < end:
            p = _skip_blanks(data, p, end)
            fault = NOT_AT_END if p < end else 0
        if fault:
            o = row_start
            code[done], where[done] = _named(data, at[i], p, end, fault), p - at[i]
        else:
            meta[done] = meta_of(metas, used, names, work.keys, ids, hash_)
            if meta[done] == TOO_LARGE:
                o = row_start
                meta[done], code[done], where[done] = -1, SIZE, 0
            elif meta[done] < 0:
                return done, METAS_FULL
        start[done + 1] = o
    return len(at) - row, DONE


@called
def _named(data, at, p, end, fault):
    """The code for what is often in texts and not JSON, at p; else the fault that was found there."""
    apart()
    if at + 2 <= end and (end - at) % 2 == 0:
        first, second = data[at], data[at + 1]  # of UTF-16 and UTF-32: one of them is 0 or both are, or they are FE and FF
        is_mark = first | second == 0xFF and first & second == 0xFE
        if is_mark or (first == 0) != (second == 0) or (first == 0 and (end - at) % 4 == 0):
            return WIDE
    if p + 3 <= end and data[p] == 0xEF and data[p + 1] == 0xBB and data[p + 2] == 0xBF and fault in (NO_VALUE, NOT_AT_END):
        return MARK
    if fault not in (NO_VALUE, LITERAL, NUMBER):
        return fault
    p -= p > at and data[p - 1] == _MINUS
    p += p < end and data[p] == _MINUS
    if p + 3 > end:
        return fault
    first, second, third = data[p] | 0x20, data[p + 1] | 0x20, data[p + 2] | 0x20
    if first == 0x6E and second == 0x61 and third == 0x6E:
        return NAN
    if first == 0x69 and second == 0x6E and third == 0x66:
        return INFINITY
    return fault


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
