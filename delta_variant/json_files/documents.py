"""The documents of files as rows: pieces in, record batches of Variants out, and what became of malformed documents.

Invariant: every document of a file is in exactly one of its pieces, and is either a row or malformed. Blank lines are neither.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import pyarrow as pa

from delta_variant.binary.parse import Parser
from delta_variant.buffers import Int64s
from delta_variant.errors import InvalidJsonError, TableError
from delta_variant.json_files import Form, JsonFiles
from delta_variant.json_files.texts import KEPT, LONGER, Texts, counted_line, texts, too_long
from delta_variant.kernels.adjacent import documents_in_rows
from delta_variant.kernels.parse import EMPTY, FAULTS, NOT_AT_END
from delta_variant.kernels.strings import END
from delta_variant.pieces import Piece, opener

_SHOWN = 50  # bytes of a document in a message
_ROWS = 1 << 16  # the most rows of a batch, whose other columns have the same values in each
_BATCH_ROWS, _BATCH_BYTES = 1 << 14, 4 << 20  # batches with less are put together
# What pyarrow says of data that is not compressed in the way that the suffix says, or damaged.
_DAMAGED = re.compile(r"inflate|decompress|compressed stream", re.IGNORECASE)


@dataclass(frozen=True)
class Malformed:
    """A document that is not a row."""

    name: str
    """The file."""
    line: int | None
    """The line in which it begins, from 1; None if the piece does not begin with the file."""
    offset: int
    """Its first byte in the decompressed file."""
    reason: str
    text: bytes
    """The document, or its beginning if it is too long."""
    byte: int
    """The byte of the document at which it is malformed."""

    def error(self, line: int, form: Form) -> InvalidJsonError:
        """The error for it. line: the line in which it begins. form: as it was asked for."""
        before = self.text[max(0, self.byte - _SHOWN) : self.byte].decode(errors="replace")
        advice = "bad_records='…' writes such documents to a table of their own"
        if form in ("auto", "lines", "document") and self.reason in (FAULTS[END], FAULTS[NOT_AT_END]):
            several = (
                "several documents in a file" if form == "document" else "documents in several lines, or several in a line"
            )
            advice = f'format="adjacent" is for {several}; {advice}'
        if self.reason.startswith(LONGER):
            return InvalidJsonError(f"{self.name}, line {line}: a document {self.reason}: raise that limit; {advice}")
        where = f", at byte {self.byte:,} of it, after {before!r}" if self.byte else ""
        return InvalidJsonError(f"{self.name}, line {line}: not a JSON document: {self.reason}{where}; {advice}")


class Reader:
    """Reads pieces for one task. Its parser keeps the keys that it saw."""

    def __init__(self, files: JsonFiles) -> None:
        self._files = files
        self._parser = Parser(
            allow_duplicate_keys=files.allow_duplicate_keys, validate_unicode=files.validate_unicode, strict=True
        )
        self._file_system = opener(files.storages)

    def batches(self, rows: Iterator[pa.RecordBatch], column: str, malformed: Counter[str]) -> Iterator[pa.RecordBatch]:
        """One row for each document: the columns of its piece, with the Variant in place of the piece.

        column: the one with pieces (`Piece.json`). malformed: counts the documents that are left out, by file. Raises
        InvalidJsonError for a malformed document if `JsonFiles.fails`.
        """
        small: list[pa.RecordBatch] = []
        count = size = 0
        for batch in self._batches(rows, column, malformed):
            is_large = batch.num_rows >= _BATCH_ROWS or batch.nbytes >= _BATCH_BYTES
            if not is_large:
                small.append(batch)
                count, size = count + batch.num_rows, size + batch.nbytes
            if small and (is_large or count >= _BATCH_ROWS or size >= _BATCH_BYTES):
                yield pa.concat_batches(small)
                small, count, size = [], 0, 0
            if is_large:
                yield batch
        if small:
            yield pa.concat_batches(small)

    def _batches(self, rows: Iterator[pa.RecordBatch], column: str, malformed: Counter[str]) -> Iterator[pa.RecordBatch]:
        for pieces in rows:
            index = pieces.schema.get_field_index(column)
            for number, text in enumerate(pieces.column(column).to_pylist()):
                piece = Piece.of(text)
                for variants, bad in self.documents(piece):
                    if bad and self._files.fails:
                        first = bad[0]
                        line = first.line or counted_line(piece, self._file_system(piece), first.offset)
                        raise first.error(line, self._files.form)
                    if bad:
                        malformed[piece.name] += len(bad)
                    for start in range(0, len(variants), _ROWS):
                        some = variants.slice(start, _ROWS)
                        own = pa.array(np.full(len(some), number))
                        columns = [some if i == index else other.take(own) for i, other in enumerate(pieces.columns)]
                        yield pa.RecordBatch.from_arrays(columns, schema=pieces.schema.set(index, pa.field(column, some.type)))

    def documents(self, piece: Piece) -> Iterator[tuple[pa.StructArray, list[Malformed]]]:
        """The documents of a piece, block by block: Variants, and what is malformed.

        Raises TableError for files that cannot be read, and OSError if a second attempt may succeed.
        """
        storage = self._files.storages[piece.storage]
        try:
            for block in texts(piece, self._files, self._file_system(piece)):
                yield self._parsed(piece, block)
        except OSError as error:
            reason = f"cannot read {piece.name}: {error}"
            lasts = isinstance(error, FileNotFoundError | PermissionError) or storage.explained(error) is not None
            if lasts or (piece.compression is not None and _DAMAGED.search(str(error))):
                raise TableError(reason) from error
            raise OSError(reason) from error

    def _parsed(self, piece: Piece, block: Texts) -> tuple[pa.StructArray, list[Malformed]]:
        if block.reason is not None:
            return pa.nulls(0, pa.struct([])), [_malformed(piece, block, i, block.reason, 0) for i in range(len(block.at))]
        size = block.limit - block.at
        is_long = size > self._files.max_bytes
        self._parser.add(block.data, np.where(is_long, -1, block.at), block.limit)
        variants, faults = self._parser.finish()
        reason = too_long(self._files.max_bytes)
        malformed = [_malformed(piece, block, int(i), reason, 0, KEPT) for i in np.flatnonzero(is_long)]
        reasons = {
            int(row): (FAULTS[int(code)], int(byte))
            for row, code, byte in zip(faults.row, faults.code, faults.byte, strict=True)
            if code != EMPTY or not block.may_be_blank
        }
        if block.may_be_several and (rows := faults.row[faults.code == NOT_AT_END]).size:
            variants = self._split(block, variants, rows, reasons)
        elif variants.null_count:
            variants = variants.drop_null()
        malformed += [_malformed(piece, block, row, *reason) for row, reason in reasons.items()]
        return variants, sorted(malformed, key=attrgetter("offset"))

    def _split(
        self, block: Texts, variants: pa.StructArray, rows: Int64s, reasons: dict[int, tuple[str, int]]
    ) -> pa.StructArray:
        """The Variants that are not null, and in their places those of lines that are several objects or arrays.

        rows: the lines that may be. reasons: what is wrong with which line; one that is several documents is taken out, or gets
        the reason of the first of them that is malformed.
        """
        room, counts = int((block.limit[rows] - block.at[rows]).sum()) // 2 + 1, np.empty(len(rows), np.int64)
        at, limit, lines = (np.empty(room, np.int64) for _ in range(3))
        count = documents_in_rows(block.data, block.at[rows], block.limit[rows], counts, at, limit, lines)
        at, limit, row = at[:count], limit[:count], np.repeat(rows, counts)
        self._parser.add(block.data, at, limit)
        several, faults = self._parser.finish()
        for done in np.unique(row).tolist():
            del reasons[done]
        for number in reversed(range(len(faults.row))):
            bad = int(faults.row[number])
            reasons[int(row[bad])] = faults.reason(number), int(at[bad] - block.at[row[bad]] + faults.byte[number])
        good = ~np.isin(row, row[faults.row])
        starts = np.append(block.at[variants.is_valid().to_numpy(zero_copy_only=False)], at[good])
        return pa.concat_arrays([variants.drop_null(), several.filter(pa.array(good))]).take(pa.array(np.argsort(starts)))


def _malformed(piece: Piece, block: Texts, row: int, reason: str, byte: int, most: int | None = None) -> Malformed:
    at, limit = int(block.at[row]), int(block.limit[row])
    line = None if block.line is None else int(block.line[row])
    text = block.data[at:limit][:most].tobytes()
    return Malformed(piece.name, line, block.offset + at, reason, text, byte)
