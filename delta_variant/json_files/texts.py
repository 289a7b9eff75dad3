"""The documents of a piece as text: blocks of decompressed bytes, where each document begins and ends, and in which line.

Memory holds one block and the document that goes beyond it, whatever the size of the file. The next block overwrites the last.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import fs

from delta_variant.buffers import Bytes, Int64s, view
from delta_variant.errors import TableError
from delta_variant.json_files import JsonFiles
from delta_variant.json_files.forms import BLANKS, BOM, encoding, form_of
from delta_variant.kernels import elements as k
from delta_variant.kernels.adjacent import RECORD_SEPARATOR, documents
from delta_variant.kernels.lines import line_ends
from delta_variant.kernels.scan import PADDING
from delta_variant.pieces import Piece

Find = Callable[[Int64s, Int64s, Int64s, Int64s], int]

if TYPE_CHECKING:
    from typing_extensions import Self

BLOCK = 8 << 20
"""Bytes that are read and parsed at once."""
_TAIL = 64 << 10  # read beyond the end of a piece at once: its last line ends there
KEPT = 64 << 10
"""Bytes that are kept of a document that is too long."""
LONGER = "longer than max_document_bytes="
"""How the reason for such a document begins."""
_ELEMENTS = 1 << 14
_NEWLINE = ord("\n")


@dataclass
class Texts:
    """Documents in a block. They are valid until the next block."""

    data: Bytes
    at: Int64s
    limit: Int64s
    """Document i is data[at[i]:limit[i]]."""
    line: Int64s | None
    """The lines in which they begin, from 1; None in a piece that does not begin with its file."""
    offset: int
    """The byte of the decompressed file that data[0] is."""
    reason: str | None = None
    """Why none of them is a document; None if they may be documents."""
    may_be_blank: bool = False
    """Whether a document without a value is an empty line, and not malformed."""
    may_be_several: bool = False
    """Whether each may be several documents, one after the other."""


def texts(piece: Piece, files: JsonFiles, file_system: fs.FileSystem) -> Iterator[Texts]:
    """The documents of a piece. Raises OSError, for damaged files too, and TableError for a file that has another size."""
    with ExitStack() as opened:
        source = opened.enter_context(_Source(piece, file_system))
        head = source if source.offset == 0 else opened.enter_context(_Source(piece, file_system, start=0))
        wide = encoding(head)
        form = files.form if files.records is None and wide is None else "array"
        if form == "auto":
            form = form_of(head, files)
        if form != "lines" and piece.start:
            return  # the first piece has it all
        if wide is not None:
            yield _told(source.beginning(KEPT), 1, 0, f"the file is {wide}: convert it to UTF-8")
        elif form == "array":
            yield from _elements(source, files.records or (), files.max_bytes)
        elif form == "adjacent":
            yield from _adjacent(source, files.max_bytes)
        elif form == "document":
            yield from _whole(source, files.max_bytes)
        else:
            yield from _lines(source, piece, files.max_bytes, may_be_several=files.form == "auto")


def counted_line(piece: Piece, file_system: fs.FileSystem, offset: int) -> int:
    """The line of a byte, from 1, for a piece that does not begin its file: reads the file again, up to there."""
    line = 1
    with _Source(piece, file_system, start=0) as source:
        while source.offset < offset and source.read(BLOCK):
            seen = min(source.filled, offset - source.offset)
            line += int(np.count_nonzero(source.data[:seen] == _NEWLINE))
            source.consume(source.filled)
    return line


class _Source:
    """The decompressed bytes of a file, from a position on: those that are read and not yet consumed."""

    def __init__(self, piece: Piece, file_system: fs.FileSystem, start: int | None = None) -> None:
        self._piece, self._fs = piece, file_system
        # One byte before the piece tells whether a line begins with it.
        self.offset = max(0, piece.start - 1) if start is None else start
        """The byte of the decompressed file that data[0] is."""
        self.data: Bytes = np.empty(BLOCK + PADDING, np.uint8)
        self.filled = 0

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            stream: Any = opened.enter_context(self._fs.open_input_file(self._piece.path))
            if stream.size() != self._piece.size:
                raise TableError(
                    f"{self._piece.name} had {self._piece.size:,} bytes when it was listed, and has {stream.size():,} now: "
                    "ingest files that do not change any more, and begin again"
                )
            if self.offset:
                stream.seek(self.offset)
            if self._piece.compression is not None:
                # python-zstandard's reader takes a frame that was cut off for a whole one; pyarrow raises an error.
                stream = opened.enter_context(pa.CompressedInputStream(stream, self._piece.compression))
            self._stream = stream
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    def read(self, size: int) -> int:
        """Reads up to `size` more bytes and returns how many; 0 at the end of the file."""
        wanted = self.filled + size + PADDING
        if wanted > len(self.data):
            grown = np.empty(max(wanted, len(self.data) * 3 // 2), np.uint8)
            grown[: self.filled] = self.data[: self.filled]
            self.data = grown
        got = int(self._stream.readinto(self.data[self.filled : self.filled + size].data))
        self.filled += got
        return got

    def consume(self, size: int) -> None:
        self.data[: self.filled - size] = self.data[size : self.filled].copy()
        self.filled -= size
        self.offset += size

    def beginning(self, size: int) -> bytes:
        """Up to so many bytes from the beginning, read if need be; fewer at the end of the file."""
        while self.filled < size and self.read(size - self.filled):
            pass
        return self.data[: min(size, self.filled)].tobytes()

    def after_mark(self) -> int:
        """Where the text begins: behind a byte order mark."""
        return len(BOM) if self.offset == 0 and self.data[: self.filled][: len(BOM)].tobytes() == BOM else 0


def _lines(source: _Source, piece: Piece, max_bytes: int, *, may_be_several: bool) -> Iterator[Texts]:
    line = 1 if piece.start == 0 else None
    end = piece.end if piece.end is not None else np.iinfo(np.int64).max
    is_skipping = piece.start > 0  # up to the end of a line: one of the piece before, or one that is too long
    scanned, at_end = 0, False
    while not at_end and source.offset < end:
        left = end - source.offset - source.filled
        at_end = not source.read(min(left, BLOCK) if left > 0 else _TAIL)
        ends = np.empty(source.filled - scanned, np.int64)
        breaks = ends[: line_ends(source.data, scanned, source.filled, ends)]
        if at_end and source.filled and (not len(breaks) or breaks[-1] != source.filled - 1):
            breaks = np.append(breaks, source.filled)
        starts = np.append(0, breaks[:-1] + 1) if len(breaks) else breaks
        lines = None if line is None else np.arange(line, line + len(starts))
        if len(breaks):
            first = int(is_skipping)
            is_skipping = False
            count = int(np.searchsorted(starts, end - source.offset))  # those that begin in the piece
            if first == 0 and count:
                starts[0] += source.after_mark()
            if count > first:
                rows = slice(first, count)
                own = None if lines is None else lines[rows]
                at, limit = starts[rows], breaks[rows]
                yield Texts(source.data, at, limit, own, source.offset, may_be_blank=True, may_be_several=may_be_several)
            if count < len(starts):
                return
            line = None if line is None else line + len(starts)
            source.consume(min(int(breaks[-1]) + 1, source.filled))
        if is_skipping:
            source.consume(source.filled)
        elif source.filled > max_bytes and source.offset < end:
            yield _cut(source, line, max_bytes)
            is_skipping = True
            source.consume(source.filled)
        scanned = source.filled


def _cut(source: _Source, line: int | None, max_bytes: int, start: int = 0) -> Texts:
    """A document that is too long, as far as it is kept."""
    at, limit = np.array([start]), np.array([min(source.filled, start + KEPT)])
    return Texts(source.data, at, limit, None if line is None else np.array([line]), source.offset, too_long(max_bytes))


def too_long(max_bytes: int) -> str:
    """The reason for a document with more bytes."""
    return f"{LONGER}{max_bytes:,}"


def _whole(source: _Source, max_bytes: int) -> Iterator[Texts]:
    while source.filled <= max_bytes and source.read(BLOCK):
        pass
    if source.filled > max_bytes:
        yield _cut(source, 1, max_bytes)
    elif source.data[source.after_mark() : source.filled].tobytes().strip(BLANKS):
        one = np.array([1])
        yield Texts(source.data, np.array([source.after_mark()]), np.array([source.filled]), one, 0)


def _elements(source: _Source, records: tuple[str, ...], max_bytes: int) -> Iterator[Texts]:
    written = [json.dumps(key, ensure_ascii=False)[1:-1].encode() for key in records]
    keys = np.frombuffer(b"".join(written) or b"\0", np.uint8)
    key_ends = np.cumsum([len(key) for key in written], dtype=np.int64)

    def find(state: Int64s, at: Int64s, limit: Int64s, lines: Int64s) -> int:
        return int(k.elements(source.data, source.filled, state, keys, key_ends, at, limit, lines))

    yield from _found(source, find, max_bytes, records)


def _adjacent(source: _Source, max_bytes: int) -> Iterator[Texts]:
    def find(state: Int64s, at: Int64s, limit: Int64s, lines: Int64s) -> int:
        return int(documents(source.data, source.filled, state, at, limit, lines))

    yield from _found(source, find, max_bytes, None)


def _found(source: _Source, find: Find, max_bytes: int, records: tuple[str, ...] | None) -> Iterator[Texts]:
    """What a kernel finds in a file. records: None for adjacent documents."""
    state = np.zeros(k.STATE, np.int64)
    state[k.LINE], state[k.START] = 1, -1
    at, limit, lines = (np.empty(_ELEMENTS, np.int64) for _ in range(3))
    is_first, is_cut = True, False
    before = b""  # the beginning of the open document, as far as it is not in the block
    while source.read(BLOCK) or is_first:
        if is_first:
            state[k.AT], is_first = source.after_mark(), False
        while state[k.AT] < source.filled:
            count = find(state, at, limit, lines)
            first, is_cut = int(is_cut and count > 0), is_cut and count == 0  # the rest of an element that was too long
            if count > first:
                rows = slice(first, count)
                yield Texts(source.data, at[rows].copy(), limit[rows].copy(), lines[rows].copy(), source.offset)
            if state[k.PLACE] > k.INSIDE:
                if not is_cut:  # the text behind a number or a literal that was cut does not begin a document
                    yield _refused(source, state, before, records)
                is_cut = False
                if records is not None and state[k.PLACE] != k.NO_ARRAY:
                    return
                state[k.PLACE] = k.SKIPPING if records is None else k.SEEKING
        is_open = state[k.PLACE] == k.INSIDE
        begin = int(state[k.START]) if is_open else source.filled
        if is_open and not is_cut and source.filled - begin > max_bytes:
            yield _cut(source, int(state[k.OWN_LINE]), max_bytes, begin)
            is_cut = True
        if is_cut:
            begin = source.filled
        before = _beginning(source, state, before, begin)
        state[k.AT] -= begin
        state[k.ROOT] -= begin
        state[k.START] = 0 if is_open else state[k.START]
        source.consume(begin)
    if records is None and state[k.PLACE] == k.INSIDE and state[k.WORD] and not is_cut:
        yield Texts(source.data, np.array([0]), np.array([source.filled]), state[[k.OWN_LINE]], source.offset)
    elif (state[k.DEPTH] or (records is None and state[k.PLACE] == k.INSIDE)) and not is_cut:
        is_open = state[k.PLACE] == k.INSIDE
        text = source.data[: min(source.filled, KEPT)].tobytes() if is_open else before
        line, offset = (k.OWN_LINE, 0) if is_open else (k.ROOT_LINE, int(state[k.ROOT]))
        yield _told(text, int(state[line]), source.offset + offset, "the file ends inside a document")


def _beginning(source: _Source, state: Int64s, before: bytes, end: int) -> bytes:
    """The open document up to a byte of the block, as far as it is kept."""
    root = int(state[k.ROOT])
    text = b"" if root >= 0 else before
    return text + source.data[max(root, 0) : end][: KEPT - len(text)].tobytes()


def _refused(source: _Source, state: Int64s, before: bytes, records: tuple[str, ...] | None) -> Texts:
    """What the kernel stopped at."""
    place, has_array = state[k.PLACE], state[k.ARRAYS] > 0
    if place == k.STRAY:
        start = int(state[k.START])
        while source.filled - start < KEPT and source.read(KEPT):
            pass
        text = source.data[start : min(source.filled, start + KEPT)].tobytes()
        reason = "text between documents"
        if records is None:
            text, _, _ = text.partition(bytes([RECORD_SEPARATOR]))
        if records == ():
            reason = "text after the array" if has_array else "the file is not an array"
            reason += '; format="adjacent" is for documents that follow each other'
        return _told(text, int(state[k.LINE]), source.offset + start, reason)
    text = _beginning(source, state, before, int(state[k.AT]))
    path = "".join(f".{key}" for key in records or ())
    reason = f"the document has no array at ${path}" if place == k.NO_ARRAY else "its braces and brackets do not match"
    return _told(text, int(state[k.ROOT_LINE]), source.offset + int(state[k.ROOT]), reason)


def _told(text: bytes, line: int, offset: int, reason: str) -> Texts:
    return Texts(view(pa.py_buffer(text)), np.zeros(1, np.int64), np.array([len(text)]), np.array([line]), offset, reason)
