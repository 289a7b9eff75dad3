"""Documents that follow each other in a stream of JSON text, found without parsing them.

In: blocks of bytes. Out: where each document begins and ends, and its line. The state between two blocks is that of `elements`,
so that files of any size are read in blocks. Between documents there may be blanks, line breaks, record separators (RFC 7464),
or nothing. Only structure is followed: braces and brackets are counted, and strings are left out. `parse` decides about the
documents.

No JSON text has a record separator. It therefore ends an incomplete document, and bytes that begin no document. Without record
separators, nothing says where the document after a broken one begins: it may be inside of the broken one.
"""

# ruff: noqa: ANN001, ANN201, ANN202  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant.kernels.compiler import allocating, called, helper, jit, trailing_zeros
from delta_variant.kernels.elements import (
    AT,
    DEPTH,
    ESCAPED,
    INSIDE,
    LINE,
    OWN_LINE,
    PLACE,
    SEEKING,
    START,
    STATE,
    STRAY,
    STRING,
    WORD,
)
from delta_variant.kernels.scan import ends_structure, string_end

RECORD_SEPARATOR = 0x1E
_QUOTE, _BACKSLASH, _NEWLINE, _TAB, _RETURN, _BLANK = (np.uint8(ord(c)) for c in '"\\\n\t\r ')
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = (np.uint8(ord(c)) for c in "{}[]")
_SEPARATOR = np.uint8(RECORD_SEPARATOR)


@jit
def documents(data, end, state, at, limit, lines):
    """Goes on at data[state[AT]], up to `end`, and returns how many documents ended; their bytes are data[at:limit].

    `data` has `scan.PADDING` spare bytes. Stops early if `at` is full, and at what no document begins with (STRAY), from which
    it goes on to a record separator once the caller has set the place to SKIPPING. A document has begun and not ended if the
    place is INSIDE; it begins at state[START]. A number or a literal, with state[WORD] = 1, may end with the file.
    """
    return _documents(data, end, state, at, limit, lines, np.int64(0))


@allocating
def documents_in_rows(data, row_at, row_limit, counts, at, limit, lines):
    """The documents of rows that are several objects or arrays each, and nothing else; counts[row] is 0 for other rows.

    Returns how many documents there are. `at` has room for half of the bytes of the rows, and one more.
    """
    state, count = np.zeros(STATE, np.int64), np.int64(0)
    for row in range(len(row_at)):
        state[:] = 0
        state[AT], before = row_at[row], count
        count += _documents(data, row_limit[row], state, at, limit, lines, count)
        is_good = state[PLACE] == SEEKING and state[AT] == row_limit[row]
        for k in range(before, count):
            is_good = is_good and data[at[k]] in (_OPEN_OBJECT, _OPEN_ARRAY)
        if not is_good:
            count = before
        counts[row] = count - before
    return count


@called
def _documents(data, end, state, at, limit, lines, first):
    """As `documents`, from at[first] on."""
    p, depth, string, escaped, place, start, own_line, line, word = (
        state[AT], state[DEPTH], state[STRING], state[ESCAPED], state[PLACE], state[START], state[OWN_LINE], state[LINE],
        state[WORD],
    )  # fmt: skip
    count = first
    while p < end and count < len(at) and place != STRAY:
        ends = False  # the open document, before p
        if string:
            if escaped:
                escaped = 0
                p += data[p] >= 0x20
                continue
            p += trailing_zeros(string_end(data, p))
        elif place == INSIDE and not word:
            p += trailing_zeros(ends_structure(data, p))
        if p >= end:
            p = end
            break
        c = data[p]
        p += 1
        line += c == _NEWLINE
        if c == _SEPARATOR:
            if place == INSIDE:
                at[count], limit[count], lines[count] = start, p - 1, own_line
                count += 1
            place, depth, string, word = SEEKING, 0, 0, 0
        elif string:
            escaped = c == _BACKSLASH
            if c == _QUOTE:
                string = 0
                ends = depth == 0
        elif word:
            if _is_blank(c):
                at[count], limit[count], lines[count] = start, p - 1, own_line
                count += 1
                place, word = SEEKING, 0
            elif not _is_of_word(c):
                place, word = STRAY, 0
        elif place == INSIDE:
            string = c == _QUOTE
            depth += (c in (_OPEN_OBJECT, _OPEN_ARRAY)) - (c in (_CLOSE_OBJECT, _CLOSE_ARRAY))
            ends = depth == 0
        elif place == SEEKING and not _is_blank(c):
            start, own_line = p - 1, line
            string, word = c == _QUOTE, _is_of_word(c)
            depth = c in (_OPEN_OBJECT, _OPEN_ARRAY)
            place = INSIDE if string or word or depth else STRAY
        if ends:
            at[count], limit[count], lines[count] = start, p, own_line
            count += 1
            place = SEEKING
    state[AT], state[DEPTH], state[STRING], state[ESCAPED], state[PLACE], state[START], state[OWN_LINE], state[LINE] = (
        p, depth, string, escaped, place, start, own_line, line,
    )  # fmt: skip
    state[WORD] = word
    return count - first


@helper
def _is_blank(byte):
    return byte in (_BLANK, _NEWLINE, _RETURN, _TAB)


@helper
def _is_of_word(byte):
    """Whether a byte may be in a number or a literal, or in what is meant to be one."""
    return 0x30 <= byte <= 0x39 or 0x61 <= byte | 0x20 <= 0x7A or byte in (0x2B, 0x2D, 0x2E)
