"""The sources of a write's rows: batches as Spark sends them → the rows that a task writes.

If Spark sends the rows themselves, there is no source. Else there is one of these, or the first two together:

    LateVariants   a VARIANT column has places in older files, and the Variants are read there (`writer.late`)
    ParsedTexts    a VARIANT column has JSON texts
    JsonPieces     a column has pieces of JSON files, whose documents are the rows (`json_files`)
    ParquetPieces  the first column has pieces of Parquet files (`parquet_files`)
    SortedBlocks   the first column has pieces of blocks of sorted rows (`writer.blocks`)

A source is a part of the plan, and has no state. `planning` chooses it by the request, and `task` gets the rows from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delta_variant.binary.parse import parse_texts
from delta_variant.errors import InvalidJsonError, UnsupportedFeatureError
from delta_variant.json_files import JsonFiles, documents
from delta_variant.locating import naming
from delta_variant.messages import TextColumns, WriteRequest
from delta_variant.parquet_files import reader
from delta_variant.parquet_files.reader import ParquetFiles
from delta_variant.paths import quoted
from delta_variant.storage import Storage
from delta_variant.writer import blocks, late

Batches = Iterator[pa.RecordBatch]

if TYPE_CHECKING:
    from typing_extensions import Self

_SHOWN, _SHOWN_LENGTH = 8, 50  # columns of a row in a message, characters of each


def received(messages: Iterator[bytes], schema: pa.Schema) -> Batches:
    """Decodes the record batches in a task, without copying the messages.

    `scala/Batches.java` makes them in the executor's JVM: one IPC message each, of at most 16,384 rows or about 8 MiB.
    PySpark's `mapInArrow` is slower, and takes its batch size from session settings that are meant for users' own
    functions.
    """
    for message in messages:
        batch = pa.ipc.read_record_batch(pa.py_buffer(message), schema)
        del message  # so that only the batch keeps its memory alive
        yield batch
        del batch


def ahead(batches: Batches) -> Batches:
    """The same batches. A thread makes the next one while the task shreds and writes the last one."""
    with ThreadPoolExecutor(1) as thread:
        try:
            following = thread.submit(next, batches, None)
        except RuntimeError:  # there may be no more threads
            yield from batches
            return
        while (batch := following.result()) is not None:
            following = thread.submit(next, batches, None)
            yield batch
            del batch


class RowSource(ABC):
    """Makes the rows of a write in its tasks."""

    @abstractmethod
    def rows(self, batches: Batches, malformed: Counter[str]) -> Batches:
        """The rows, with the partition columns at the end. Raises errors of this package, and OSError.

        batches: as Spark sends them. malformed: counts JSON documents that are left out, by file.
        """


class Pieces(RowSource):
    """What a call has in place of rows. Tasks that write read it, unless Spark needs the rows."""

    name: ClassVar[str]
    """Its name in `Additions.pieces`."""

    @abstractmethod
    def planned(self, request: WriteRequest, columns: pa.Schema) -> Self | None:
        """The source as tasks get it; None if Spark reads the pieces. columns: those of files, in the types of the rows."""


@dataclass(frozen=True)
class LateVariants(RowSource):
    location: Storage
    """The directory of the table."""
    columns: Mapping[str, tuple[int, ...]]
    """The field ids of the columns, by name; no ids unless files are read by id."""

    def rows(self, batches: Batches, malformed: Counter[str]) -> Batches:  # noqa: ARG002
        return late.materialized(batches, self.location, self.columns)


@dataclass(frozen=True)
class ParsedTexts(RowSource):
    texts: TextColumns

    def rows(self, batches: Batches, malformed: Counter[str]) -> Batches:  # noqa: ARG002
        return map(self._parsed, batches)

    def _parsed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        for name in self.texts.columns:
            texts = rows.column(name)
            with naming(f"column {name}"):
                variants, faults = parse_texts(
                    texts,
                    allow_duplicate_keys=self.texts.allow_duplicate_keys,
                    validate_unicode=self.texts.validate_unicode,
                    distinct=True,
                )
            if len(faults.row) and self.texts.fails:
                row, byte = int(faults.row[0]), int(faults.byte[0])
                text = texts[row].as_buffer().to_pybytes()
                before = text[max(0, byte - _SHOWN_LENGTH) : byte].decode(errors="replace")
                raise InvalidJsonError(
                    f"column {name}: a text is not valid JSON: {faults.reason(0)}, at byte {byte} of {len(text)}, after "
                    f"{before!r}, in the row with values:{_shown(rows, row)}; on_error='null' makes such texts NULL, and "
                    "corrupt='…' keeps them in a column"
                )
            rows = rows.set_column(rows.schema.get_field_index(name), name, variants)
            if self.texts.corrupt is not None and len(faults.row):
                is_valid = np.ones(len(texts), np.bool_)
                is_valid[faults.row] = False
                kept = pc.if_else(pa.array(is_valid), pa.scalar(None, texts.type), texts)
                rows = rows.set_column(rows.schema.get_field_index(self.texts.corrupt), self.texts.corrupt, _text(kept))
        return rows


@dataclass(frozen=True)
class JsonPieces(Pieces):
    name = "json"
    files: JsonFiles
    column: str = ""
    """The VARIANT column, by its physical name; empty while it is not known."""

    def planned(self, request: WriteRequest, columns: pa.Schema) -> Self:  # noqa: ARG002
        if request.texts is None or len(request.texts.columns) != 1:
            raise UnsupportedFeatureError(
                "Spark needs the documents, as for a constraint or a generated column of "
                f"delta.{quoted(request.location)} that uses them, and ingest reads them in the tasks that write: use "
                "write(spark.read.text(…), …, parse_json={…})"
            )
        return replace(self, column=request.texts.columns[0])

    def rows(self, batches: Batches, malformed: Counter[str]) -> Batches:
        return documents.Reader(self.files).batches(batches, self.column, malformed)


@dataclass(frozen=True)
class _WholeRows(Pieces):
    name = "rows"
    schema: pa.Schema = field(default=pa.schema([]), kw_only=True)
    """The columns that pieces have, which are the first of the rows; empty while they are not known."""

    def planned(self, request: WriteRequest, columns: pa.Schema) -> Self | None:
        read = [column for column in columns if column.name in request.from_pieces]
        return replace(self, schema=pa.schema(read)) if read else None


@dataclass(frozen=True)
class ParquetPieces(_WholeRows):
    files: ParquetFiles

    def rows(self, batches: Batches, malformed: Counter[str]) -> Batches:  # noqa: ARG002
        return reader.Reader(replace(self.files, schema=self.schema)).batches(batches)


@dataclass(frozen=True)
class SortedBlocks(_WholeRows):
    def rows(self, batches: Batches, malformed: Counter[str]) -> Batches:  # noqa: ARG002
        return blocks.rows_of(self.schema, batches)


def _text(array: pa.Array) -> pa.Array:
    """Strings; bytes that are not UTF-8 become U+FFFD."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if v is None else v.decode(errors="replace") for v in array.to_pylist()], pa.string())


def _shown(rows: pa.RecordBatch, row: int) -> str:
    """Some values of a row, in the format of Delta's own error messages."""
    names = rows.schema.names  # those of partition columns are there twice
    simple = [i for i, kind in enumerate(rows.schema.types) if not pa.types.is_nested(kind) and names.index(names[i]) == i]
    values = ((names[i], rows.column(i)[row].as_py()) for i in simple[:_SHOWN])
    return "".join(f" - {name} : {'null' if value is None else str(value)[:_SHOWN_LENGTH]}" for name, value in values)
