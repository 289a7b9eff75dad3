"""The elements of arrays in a stream of JSON text, found without parsing them.

In: blocks of bytes, and the keys that lead from the root of each document to the array; without keys, the root is the array.
Out: where each element begins and ends, and its line. The state between two blocks is a small array (STATE), so that files of
any size are read in blocks. Only structure is followed: braces, brackets, commas, strings. `parse` decides about the elements.
"""

# ruff: noqa: ANN001, ANN201  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numba as nb
import numpy as np

from delta_variant.kernels.cache import cached

AT, DEPTH, ESCAPED, STRING, MATCHED, KEY, PLACE, START, OWN_LINE, LINE, ARRAYS = range(11)
"""The places of the state: the next byte; the open containers; whether the last byte was a backslash; whether a string is open;
how many keys lead to the innermost object that is on the path; how many bytes of the next key matched in the open string, -1 if
one did not; where we are (SEEKING to INSIDE); the start and the line of the open element; the line of the next byte; how many
arrays were found."""
STATE = 11
SEEKING, NAMED, BEFORE, INSIDE = range(4)
"""Outside of the array; behind the colon of a key that is on the path; in the array before an element; in an element."""

_QUOTE, _BACKSLASH, _COMMA, _COLON, _NEWLINE = (np.uint8(ord(c)) for c in '"\\,:\n')
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = (np.uint8(ord(c)) for c in "{}[]")


@cached
@nb.njit(nogil=True, boundscheck=False)
def elements(data, end, state, keys, key_ends, at, limit, lines):
    """Goes on at data[state[AT]], up to `end`, and returns how many elements ended; their bytes are data[at:limit].

    keys, key_ends: the keys of the path, one after the other, as they are written between quotes, and where each ends. Stops
    early if `at` is full; state[AT] is then less than `end`. An element has begun and not ended if
    state[PLACE] is INSIDE; it begins at state[START].
    """
    p, depth, escaped, string, matched, key, place, start, own_line, line, arrays = (
        state[AT], state[DEPTH], state[ESCAPED], state[STRING], state[MATCHED], state[KEY], state[PLACE], state[START],
        state[OWN_LINE], state[LINE], state[ARRAYS],
    )  # fmt: skip
    wanted, count = len(key_ends), 0
    while p < end and count < len(at):
        c = data[p]
        p += 1
        if c == _NEWLINE:
            line += 1
        if string:
            if escaped:
                escaped = 0
            elif c == _BACKSLASH:
                escaped = 1
            elif c == _QUOTE:
                string = 0
                continue
            if key >= 0 and place == SEEKING:
                first = key_ends[matched - 1] if matched else np.int64(0)
                key = key + 1 if first + key < key_ends[matched] and keys[first + key] == c else np.int64(-1)
            continue
        if c <= 0x20:
            continue
        if place in (BEFORE, INSIDE):
            base = wanted + 1
            if place == BEFORE:
                if c == _CLOSE_ARRAY and start == -2:  # an array without elements
                    place, depth, start = SEEKING, depth - 1, np.int64(-1)
                    continue
                place, start, own_line = INSIDE, p - 1, line
            if depth == base and (c in (_COMMA, _CLOSE_ARRAY)):
                at[count], limit[count], lines[count] = start, p - 1, own_line
                count += 1
                if c == _COMMA:
                    place, start = BEFORE, np.int64(-1)
                else:
                    place, depth, start = SEEKING, depth - 1, np.int64(-1)
                continue
            if c == _QUOTE:
                string = 1
            elif c in (_OPEN_OBJECT, _OPEN_ARRAY):
                depth += 1
            elif (c in (_CLOSE_OBJECT, _CLOSE_ARRAY)) and depth > base:
                depth -= 1
            continue
        if c == _QUOTE:
            string = 1
            key = np.int64(0) if depth == matched + 1 and matched < wanted and place == SEEKING else np.int64(-1)
            if place == NAMED:
                place, key = SEEKING, np.int64(-1)
        elif c == _COLON:
            first = key_ends[matched - 1] if matched else np.int64(0)
            if place == SEEKING and depth == matched + 1 and matched < wanted and key == key_ends[matched] - first:
                place = NAMED
        elif c in (_OPEN_OBJECT, _OPEN_ARRAY):
            if c == _OPEN_ARRAY and ((place == NAMED and matched == wanted - 1) or (wanted == 0 and depth == 0)):
                place, start, arrays = BEFORE, np.int64(-2), arrays + 1
            else:
                if c == _OPEN_OBJECT and place == NAMED and matched < wanted - 1:
                    matched += 1
                place = SEEKING
            depth += 1
            key = np.int64(-1)
        elif c in (_CLOSE_OBJECT, _CLOSE_ARRAY):
            depth = max(depth - 1, np.int64(0))
            matched = min(matched, max(depth - 1, np.int64(0)))
            key = np.int64(-1)
        else:
            if place == NAMED:
                place = SEEKING
            key = np.int64(-1)
    state[AT], state[DEPTH], state[ESCAPED], state[STRING], state[MATCHED], state[KEY], state[PLACE], state[START] = (
        p, depth, escaped, string, matched, key, place, start,
    )  # fmt: skip
    state[OWN_LINE], state[LINE], state[ARRAYS] = own_line, line, arrays
    return count
