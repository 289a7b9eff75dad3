"""How documents stand in a file, by its beginning: what `format="auto"` finds, and encodings that are not UTF-8.

Every piece of a file finds the form of the file by itself. Only the beginning of the file therefore counts: its first line, and
one document that may go beyond it. "auto" is

* an array, if the first byte that is not blank is a bracket;
* adjacent documents, if that byte is a record separator;
* adjacent documents too, if that byte is a brace, and a complete document that begins on the first line ends on another, or the
  first line is several documents, of which the first two are complete objects or arrays, and is the only line that is not
  blank, or is longer than a document may be;
* lines otherwise. Then a line that is several complete objects or arrays is several rows (`documents`).

A file of lines whose first line is cut off is still one of lines: the following lines would have to complete it to a JSON text.
"""

from __future__ import annotations

import json
from typing import Protocol

import numpy as np

from delta_variant.binary.parse import Parser
from delta_variant.buffers import Bytes
from delta_variant.json_files import Form, JsonFiles
from delta_variant.kernels import elements as k
from delta_variant.kernels.adjacent import RECORD_SEPARATOR, documents

BOM = b"\xef\xbb\xbf"
BLANKS = b" \t\r\n"
_PEEKED, _MOST_PEEKED = 4 << 10, 8 << 20
_DOCUMENTS = 1 << 10
_BY_FIRST: dict[int, Form] = {ord("["): "array", RECORD_SEPARATOR: "adjacent"}
_ENCODINGS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
"""Byte order marks, the longer ones first."""


class Beginning(Protocol):
    """A file from its first byte on, as far as it has been read."""

    data: Bytes
    filled: int

    def read(self, size: int) -> int:
        """Reads up to so many more bytes; 0 at the end of the file."""

    def beginning(self, size: int) -> bytes:
        """Up to so many bytes from the beginning."""


def encoding(head: Beginning) -> str | None:
    """UTF-16 or UTF-32, if the file is that; None for UTF-8 and anything else.

    Without a byte order mark, the zeros of the first characters tell. Fewer than four bytes tell nothing, nor
    does a single zero.
    """
    first = head.beginning(8)
    for mark, name in _ENCODINGS.items():
        if first.startswith(mark):
            return name
    zeros = [byte == 0 for byte in first]
    if zeros[:4] == [True, True, True, False]:
        return "UTF-32" if all(zeros[4:5]) else None
    if zeros[:4] == [False, True, True, True]:
        return "UTF-32" if all(zeros[7:]) else None
    return "UTF-16" if zeros[:4] in ([True, False, True, False], [False, True, False, True]) else None


def form_of(head: Beginning, files: JsonFiles) -> Form:
    """The form of a file for which "auto" was asked."""
    first = _first(head)
    if first is None or head.data[first] != ord("{"):
        return "lines" if first is None else _BY_FIRST.get(int(head.data[first]), "lines")
    found = _FirstLine(head, first, files)
    if found.last_spans_lines and found.is_document(-1):
        return "adjacent"
    several = len(found.at) > 1 and head.data[found.at[1]] in b"{[" and found.is_document(0) and found.is_document(1)
    return "adjacent" if several and found.is_only_line else "lines"


class _FirstLine:
    """The documents that begin on the first line of a file.

    at, limit: where they begin and end. last_spans_lines: whether the last of them ends on another line. is_only_line: whether
    the line has documents only, and there is no other line that is not blank, or this one is longer than a document may be.
    """

    def __init__(self, head: Beginning, first: int, files: JsonFiles) -> None:
        self._head, self._files = head, files
        self.at, self.limit = np.empty(0, np.int64), np.empty(0, np.int64)
        state = np.zeros(k.STATE, np.int64)
        state[k.AT], state[k.LINE] = first, 1
        at, limit, lines = (np.empty(_DOCUMENTS, np.int64) for _ in range(3))
        size, ends = _PEEKED, False
        while True:
            if state[k.AT] >= head.filled:
                decides = state[k.PLACE] == k.INSIDE and (state[k.LINE] > 1 or len(self.at) < 2)  # the open document
                if head.filled - (state[k.START] if decides else first) > files.max_bytes:
                    break
                if ends := not head.read(size):
                    break
                size = min(2 * size, _MOST_PEEKED)
            count = documents(head.data, head.filled, state, at, limit, lines)
            own = int(np.count_nonzero(lines[:count] == 1))
            self.at, self.limit = np.append(self.at, at[:own]), np.append(self.limit, limit[:own])
            if own < count or state[k.PLACE] == k.STRAY or (state[k.PLACE] == k.INSIDE and state[k.OWN_LINE] > 1):
                break  # there is something on another line, or no document on this one
        line, _, others = head.data[first : head.filled].tobytes().partition(b"\n")
        has_others = state[k.PLACE] == k.STRAY and state[k.LINE] == 1 and state[k.AT] - first <= files.max_bytes
        self.is_only_line = not has_others and (len(line) > files.max_bytes or (ends and not others.strip(BLANKS)))
        self.last_spans_lines = bool(len(self.at)) and ord("\n") in head.data[self.at[-1] : self.limit[-1]]

    def is_document(self, number: int) -> bool:
        """Whether the structure of a document is right, and it is not too long.

        Structure is right as well where only a value is at fault: NaN, a duplicate key, a number that is too large.
        """
        at, limit = self.at[[number]], self.limit[[number]]
        if limit[0] - at[0] > self._files.max_bytes:
            return False
        parser = Parser(
            allow_duplicate_keys=self._files.allow_duplicate_keys, validate_unicode=self._files.validate_unicode, strict=True
        )
        parser.add(self._head.data, at, limit)
        _, faults = parser.finish()
        return not len(faults.row) or _has_structure(self._head.data[at[0] : limit[0]].tobytes())


def _has_structure(text: bytes) -> bool:
    """Whether a text is JSON for Python's decoder, which takes NaN, duplicate keys, and numbers of any size.

    `Parser` stops at the first fault, and does not tell whether the structure behind it is right.
    """
    try:
        json.loads(text.decode(errors="replace"), parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return True


def _first(head: Beginning) -> int | None:
    """The first byte that is neither blank nor of a byte order mark; None if there is none nearby."""
    at = len(BOM) if head.beginning(len(BOM)) == BOM else 0
    while True:
        seen = head.data[at : head.filled].tobytes().lstrip(BLANKS)
        if seen:
            return head.filled - len(seen)
        at = head.filled
        if at > _MOST_PEEKED or not head.read(_PEEKED):
            return None
