"""The elements of arrays in a stream of JSON text, found without parsing them.

In: blocks of bytes, and the keys that lead from the root of each document to the array; without keys, the root is the array,
and the only document. Out: where each element begins and ends, and its line. The state between two blocks is a small array
(STATE), so that files of any size are read in blocks. Only structure is followed: braces, brackets, commas, strings. `parse`
decides about the elements. Where the structure is broken, the kernel stops and says why (STRAY, UNBALANCED, NO_ARRAY).
"""

# ruff: noqa: ANN001, ANN201  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant.kernels.compiler import jit

AT, DEPTH, KINDS, ESCAPED, STRING, MATCHED, KEY, PLACE, START, OWN_LINE, LINE, ROOT, ROOT_LINE, ARRAYS = range(14)
"""The places of the state: the next byte; how many containers are open, and for each of the outer 63 outside of elements a
bit, 1 for an array; whether the last byte was a backslash; whether a string is open; how many keys lead to the innermost
object that is on the path; how many bytes of the next key matched in the open string, -1 if one did not; where we are
(SEEKING to NO_ARRAY); the start and the line of the open element; the line of the next byte; the start and the line of the
open document, and how many arrays it has so far."""
STATE = 14
WORD = KEY
"""For `adjacent`, which has no keys: whether the open document is a number or a literal."""
SEEKING, NAMED, BEFORE, SKIPPING, INSIDE, STRAY, UNBALANCED, NO_ARRAY = range(8)
"""Outside of the array; behind the colon of a key that is on the path; in the array before an element; in text that is no
document, up to a record separator (`adjacent`); in an element; at a byte that no document begins with; at a bracket that
closes a brace, or the other way round; behind a document that has no such array. After the last three the kernel has stopped.
It can go on after NO_ARRAY, which the caller then sets to SEEKING."""

_QUOTE, _BACKSLASH, _COMMA, _COLON, _NEWLINE, _TAB, _RETURN, _BLANK = (np.uint8(ord(c)) for c in '"\\,:\n\t\r ')
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = (np.uint8(ord(c)) for c in "{}[]")
_KINDS = 63


@jit
def elements(data, end, state, keys, key_ends, at, limit, lines):
    """Goes on at data[state[AT]], up to `end`, and returns how many elements ended; their bytes are data[at:limit].

    keys, key_ends: the keys of the path, one after the other, as they are written between quotes, and where each ends. Stops
    early if `at` is full, and at a value that is not an array; state[AT] may then be less than `end`. An element has begun and
    not ended if state[PLACE] is INSIDE; it begins at state[START].
    """
    p, depth, kinds, escaped, string, matched, key, place, start, own_line, line, root, root_line, arrays = (
        state[AT], state[DEPTH], state[KINDS], state[ESCAPED], state[STRING], state[MATCHED], state[KEY], state[PLACE],
        state[START], state[OWN_LINE], state[LINE], state[ROOT], state[ROOT_LINE], state[ARRAYS],
    )  # fmt: skip
    wanted, count = len(key_ends), 0
    while p < end and count < len(at) and place <= INSIDE:
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
        if c in (_BLANK, _NEWLINE, _RETURN, _TAB):
            continue
        opens, closes = c in (_OPEN_OBJECT, _OPEN_ARRAY), c in (_CLOSE_OBJECT, _CLOSE_ARRAY)
        if place in (BEFORE, INSIDE):
            base = wanted + 1
            if place == BEFORE:
                if c == _CLOSE_ARRAY and start == -2:  # an array without elements
                    place, depth, start = SEEKING, depth - 1, np.int64(-1)
                    continue
                place, start, own_line = INSIDE, p - 1, line
            if depth == base and c in (_COMMA, _CLOSE_ARRAY):
                at[count], limit[count], lines[count] = start, p - 1, own_line
                count += 1
                if c == _COMMA:
                    place, start = BEFORE, np.int64(-1)
                else:
                    place, depth, start = SEEKING, depth - 1, np.int64(-1)
            elif c == _QUOTE:
                string = 1
            elif opens:
                depth += 1
            elif closes and depth > base:
                depth -= 1
            continue
        if depth == 0:
            if not opens or (wanted == 0 and (c == _OPEN_OBJECT or arrays)):
                place, start = STRAY, p - 1
                continue
            root, root_line, matched = p - 1, line, np.int64(0)
            arrays = np.int64(0)
        if c == _QUOTE:
            string = 1
            key = np.int64(0) if depth == matched + 1 and matched < wanted and place == SEEKING else np.int64(-1)
            if place == NAMED:
                place, key = SEEKING, np.int64(-1)
        elif c == _COLON:
            first = key_ends[matched - 1] if matched else np.int64(0)
            if place == SEEKING and depth == matched + 1 and matched < wanted and key == key_ends[matched] - first:
                place = NAMED
        elif opens:
            if c == _OPEN_ARRAY and ((place == NAMED and matched == wanted - 1) or (wanted == 0 and depth == 0)):
                place, start, arrays = BEFORE, np.int64(-2), arrays + 1
            else:
                if c == _OPEN_OBJECT and place == NAMED and matched < wanted - 1:
                    matched += 1
                place = SEEKING
            if depth < _KINDS:
                kinds = kinds & ~(np.int64(1) << depth) | np.int64(c == _OPEN_ARRAY) << depth
            depth += 1
            key = np.int64(-1)
        elif closes:
            key = np.int64(-1)
            depth -= 1
            if depth < _KINDS and (kinds >> depth & 1) != (c == _CLOSE_ARRAY):
                place, start = UNBALANCED, root
                continue
            matched = min(matched, max(depth - 1, np.int64(0)))
            if place == NAMED:
                place = SEEKING
            if depth == 0 and wanted and not arrays:
                place, start = NO_ARRAY, root
        else:
            if place == NAMED:
                place = SEEKING
            key = np.int64(-1)
    state[AT], state[DEPTH], state[KINDS], state[ESCAPED], state[STRING], state[MATCHED], state[KEY], state[PLACE] = (
        p, depth, kinds, escaped, string, matched, key, place,
    )  # fmt: skip
    state[START], state[OWN_LINE], state[LINE], state[ROOT], state[ROOT_LINE], state[ARRAYS] = (
        start, own_line, line, root, root_line, arrays,
    )  # fmt: skip
    return count
