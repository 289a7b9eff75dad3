"""`ingest`: files of JSON documents → a Delta table with a shredded VARIANT column.

In: files, directories and globs, on any storage that `write` supports. Out: commits of `write`, whose tasks read the files
themselves (`json_files`). The driver lists the files, leaves out those that the table has already, divides the others into
pieces and the pieces among tasks (`loading`), and writes the malformed documents to a table of their own.

Invariant: a file's documents are added to the table once. Each file is also recorded in the table of malformed documents,
together with the table that these documents were left out of.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # what PySpark programs call it
from pyspark.sql.pandas.types import from_arrow_schema

from delta_variant import extraction, loading, reloading
from delta_variant.errors import InvalidPathError, InvalidSchemaError, TableError, UnsupportedFeatureError
from delta_variant.json_files import FORMS, Form, JsonFiles, is_known
from delta_variant.json_files.documents import Reader
from delta_variant.loading import COMMIT_BYTES, Loaded, Loader
from delta_variant.paths import parse_variant_path, quoted
from delta_variant.pieces import COMPRESSIONS, PIECE, Piece
from delta_variant.progress import Progress
from delta_variant.reloading import Batch, Changed, ListedFile, Reloads, batches, committed
from delta_variant.transaction import Table, Transaction
from delta_variant.writer.arguments import whole
from delta_variant.writer.driver import Outcome
from delta_variant.writer.row_sources import JsonPieces

DOCUMENT_BYTES = 16 << 20
_DUPLICATE_KEYS, _VALIDATE = "spark.sql.variant.allowDuplicateKeys", "spark.sql.variant.validateUnicodeInJsonParsing"
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_UNREADABLE = (".xz", ".lzma", ".snappy", ".lz4", ".br", ".lzo", ".z", ".zip", ".7z", ".tar", ".tgz")
_BAD = pa.schema(
    {"file": pa.string(), "line": pa.int64(), "byte": pa.int64(), "reason": pa.string(), "text": pa.string()}.items()
)
_OPTIONS = ("shred", "partition_by", "merge_schema", "compression", "max_rows_per_file", "user_metadata")
"""The options of `write` that `ingest` has."""


@dataclass(frozen=True)
class Ingested(Loaded):
    """What an ingestion did."""

    bad: int
    """How many malformed documents were left out of the table."""


def ingest(
    spark: SparkSession,
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    target: str | os.PathLike[str],
    *,
    column: str = "v",
    format: Form = "auto",  # noqa: A002  # Spark's word
    records: str | None = None,
    path_column: str | None = None,
    modified_column: str | None = None,
    constants: Mapping[str, Any] | None = None,
    folders: Mapping[str, str] | None = None,
    columns: Mapping[str, str] | None = None,
    bad_records: str | os.PathLike[str] | None = None,
    max_document_bytes: int = DOCUMENT_BYTES,
    commit_bytes: int = COMMIT_BYTES,
    force: bool = False,
    changed: Changed = "skip",
    progress: Callable[[Progress], object] | None = None,
    storage_options: Mapping[str, str] | None = None,
    **options: Any,
) -> Ingested:
    """Load files of JSON documents into a Delta table: one row for each document, as the VARIANT column `column`.

    Example:
        dv.ingest(spark, "s3a://logs/2026/", "events", folders={"day": "date"}, bad_records="events_bad")
        dv.ingest(spark, "trail/*.json.gz", "trail", records="$.Records", path_column="file")
        dv.ingest(spark, "feed/", "feed", columns={"day": "v:created_at::date"}, partition_by=["day"])

    source: files, directories (with all below them) and globs, plain or compressed (.gz, .bz2, .zst). Of the files below
    directories, those whose name ends in .json, .jsonl or .ndjson are read, or all if there are none; a file that is named, or
    found by a glob, is read in any case. target: as for `write`; a missing table is created.
    Files that were loaded before are left out, so the same call can be repeated: after a failure, or every night. They still
    count as loaded after DELETE and RESTORE; force=True reads all files. The table forgets files after
    delta.setTransactionRetentionDuration, if set.
    A file is identified by its path: the same file at another path, as s3:// instead of s3a://, is another file.
    changed: what happens to files whose modification time has changed since they were loaded. "skip" leaves them out
    with a DeltaVariantWarning, and "error" is a TableError before anything is written. "reload" replaces their rows, and their
    malformed documents in bad_records: one commit removes the old rows and adds the new ones, with the arguments of this call.
    The old rows are those with the file's URI in path_column. Without such a column they are in the data files of the commit
    that took the file; the other files of this commit are then read again too, and must be in the source. Where data files
    have been rewritten since (OPTIMIZE, DELETE, UPDATE), it is not known which rows these are, and reload is a TableError.
    format: "lines" (a document on each line), "array" (the elements of a top-level array), "adjacent" (documents one after the
    other, with blanks, line breaks, record separators (RFC 7464) or nothing between them), "document" (the whole file), or
    "auto": the beginning of each file decides.
    * A file that begins with a bracket is an array.
    * A file that begins with a record separator is adjacent documents. So is one that begins with an object if a document on
      its first line ends on a later line. So is one whose first line is several documents, of which the first two are complete
      objects or arrays, if it has no other line, or if the line is longer than a document may be.
    * Any other file is lines. A line of several complete objects or arrays is several rows.
    Large plain files of lines are read by several tasks, all others by one each.
    records: the path to an array inside each document of a file, such as $.Records; its elements are the rows.
    path_column, modified_column: columns for the URI of the file, as in _metadata.file_path, and its modification time.
    constants: columns with the same value in all rows. folders: columns, with their types, from the folders of a path
    (`day=2026-11-01`). columns: columns out of the document, as SQL expressions over the columns of the row: v:id::bigint is an
    error for a value that is not a number, and NULL where the path is missing; try_variant_get(v, '$.id', 'bigint') is NULL for
    both. Spark computes them, under the session's settings; the documents go through Spark for that, which takes longer.
    bad_records: a table for documents that are malformed or too long, with the columns file, line, byte (the first of the
    document in the decompressed file), reason, text (its beginning, if it is too long). Without it, the first malformed
    document is an error. If an earlier ingestion had no such table, or ended early, the files of the target are read once more
    for it.
    max_document_bytes: the size of the longest document. commit_bytes: there is a commit after about so many bytes of files.
    progress: called after each commit. storage_options: as for `write`, for source and target.
    options: of `write`: shred, partition_by, merge_schema, compression, max_rows_per_file and user_metadata.

    Documents are parsed as by `binary.parse_json`, under the session's settings for Spark's parse_json. But text after a
    document makes it malformed, and so does a byte that is not UTF-8; Spark ignores the one and replaces the other. A file of
    UTF-16 or UTF-32 is one malformed document. If the structure around the elements of an array is broken, the rest of the file
    is one malformed document. Among adjacent documents, text that begins no document, and a document that never ends, is one
    malformed document up to the next record separator. Memory does not grow with the size of files.

    Raises InvalidJsonError for the first malformed document, with its file and line; InvalidSchemaError for columns that are
    not expressions on one row (aggregates, window functions, explode), for two columns of one name, and for constants and types
    of folders that Spark does not have; TableError for a file that cannot be read, and for no files; UnsupportedFeatureError
    for a table whose constraints or generated columns use `column`, unless there are `columns`; what `write` raises; and the
    errors of Spark's casts.
    """
    loading.check_options("ingest", options, _OPTIONS, "write(spark.read.text(…), …, parse_json={…})")
    if format not in FORMS:
        raise UnsupportedFeatureError(f"format={format!r} is not one of {', '.join(FORMS)}")
    max_document_bytes = whole("max_document_bytes", max_document_bytes)
    commit_bytes = whole("commit_bytes", commit_bytes)
    reloading.check(changed, force=force)
    ingestion = _Ingestion(
        spark=spark, target=target, column=column, form=format, records=None if records is None else _keys(records),
        path_column=path_column, modified_column=modified_column, constants=dict(constants or {}), folders=dict(folders or {}),
        columns=dict(columns or {}), bad_records=bad_records, max_bytes=max_document_bytes, commit_bytes=commit_bytes,
        force=force, changed=changed, progress=progress, storage_options=dict(storage_options or {}), options=options,
    )  # fmt: skip
    files, ignored = ingestion.found(source)
    ingestion.check_columns()
    ingestion.check_bad_records()
    return ingestion.run(files, Ingested(None, 0, 0, 0, ignored, 0, 0, 0, 0))


def _keys(records: str) -> tuple[str, ...]:
    keys = tuple(step for step in parse_variant_path(records) if isinstance(step, str))
    if not keys or len(keys) < len(parse_variant_path(records)):
        raise InvalidPathError(f"records={records!r} must lead through objects to an array, as in $.Records")
    return keys


@dataclass(kw_only=True)
class _Ingestion(Loader[Ingested]):
    operation = "ingest"
    column: str
    form: Form
    records: tuple[str, ...] | None
    constants: Mapping[str, Any]
    folders: Mapping[str, str]
    columns: Mapping[str, str]
    max_bytes: int

    def found(self, source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[list[ListedFile], int]:
        """The files at paths and globs, in the order of their names, and how many were left out because of their suffix."""
        files, ignored = loading.chosen(self.listed("list", source).files, is_known)
        for file in files:
            if file.name.lower().endswith(_UNREADABLE):
                raise TableError(
                    f"cannot read {file.name}: its compression is none of {', '.join(COMPRESSIONS)}: compress it again"
                )
        return files, ignored

    def check_columns(self) -> None:
        """Raises InvalidSchemaError if two columns have one name, and for columns that Spark cannot make."""
        taken: set[str] = set()
        of_files = [name for name in (self.path_column, self.modified_column) if name is not None]
        for name in [self.column, *of_files, *self.constants, *self.folders, *self.columns]:
            if name.lower() in taken:
                raise InvalidSchemaError(f"a row has a column {name} already: choose another name for one of the two")
            taken.add(name.lower())
        rows = self.spark.range(0)
        for name, value in self.constants.items():
            with _refused(f"constants: {name}={value!r} is not a value of a type that Spark has"):
                rows.select(F.lit(value))
        for name, kind in self.folders.items():
            with _refused(f"folders: {name}={kind!r} is not a type that a text can be cast to"):
                rows.select(F.lit("").cast(kind))
        if self.columns:
            documents, _ = extraction.documents(*self._pieces([], self.parts))
            extraction.check(self._rows(documents), self.columns)

    def check_bad_records(self) -> None:
        """Raises UnsupportedFeatureError if the malformed documents would go to the table itself."""
        if self.bad_records is None:
            return
        with self.table() as table:
            bad = Table.of(table.spark, self.bad_records)
            if table.log.dataPath().toString() == bad.log.dataPath().toString():
                raise UnsupportedFeatureError(f"bad_records names the target, {self.target}: name another table")

    def begin(self, wanted: Sequence[ListedFile], there: Collection[ListedFile]) -> None:  # noqa: ARG002
        """Writes the malformed documents of files that the table has: an earlier ingestion may have ended before it did."""
        if self.bad_records is not None:
            for batch in batches((Batch([file]) for file in sorted(there, key=attrgetter("name"))), self.commit_bytes):
                self._write_bad(batch.files, None)

    def end(self, done: Ingested, files: Sequence[ListedFile], bad: Mapping[str, int]) -> Ingested:
        """Writes the malformed documents of the files of a commit."""
        if self.bad_records is not None:
            self._write_bad(files, set(bad))
        return replace(done, bad=done.bad + sum(bad.values()))

    def write(self, batch: Batch) -> Outcome:
        """Commits the documents of files, and counts the malformed ones."""
        pieces, reading = self._pieces(batch.files, self.parts)
        if self.columns:
            documents, malformed = extraction.documents(pieces, reading)
            rows = extraction.computed(self._rows(documents), self.columns)
            commit, _ = self.save(rows, batch, None, **self.options)
            return commit, malformed()
        return self.save(self._rows(pieces), batch, JsonPieces(reading), **self.options, parse_json={self.column: self.column})

    def parts(self, piece: Piece) -> Iterable[Piece]:
        is_whole = piece.compression is not None or self.records is not None or self.form in ("array", "adjacent", "document")
        return [piece] if is_whole else super().parts(piece)

    def values(self, file: ListedFile) -> Sequence[str | None]:
        return [_folder(file.name, name) for name in self.folders]

    def _pieces(self, files: Sequence[ListedFile], parts: Callable[[Piece], Iterable[Piece]]) -> tuple[DataFrame, JsonFiles]:
        """A DataFrame with a row for each piece and what is known of its file, and how the pieces are read."""
        df, storages = self.pieces(files, parts)

        def is_on(setting: str, default: str) -> bool:
            return (self.spark.conf.get(setting, default) or "").strip().lower() == "true"

        settings = is_on(_DUPLICATE_KEYS, "false"), is_on(_VALIDATE, "true")
        return df, JsonFiles(storages, self.form, self.records, self.max_bytes, self.bad_records is None, *settings)

    def _rows(self, df: DataFrame) -> DataFrame:
        """The documents, or their pieces, and the columns of their files."""
        constants = [F.lit(value).alias(name) for name, value in self.constants.items()]
        return df.select(F.col(quoted(PIECE)).alias(self.column), *self.of_files(), *constants, *self.of_folders())

    def _write_bad(self, files: Sequence[ListedFile], bad: set[str] | None) -> None:
        """Writes the malformed documents of files to their table, in place of those from before the files changed.

        bad: the files that have some; None if that is not known.
        """
        assert self.bad_records is not None
        with self.table() as table:
            to = replace(self, target=self.bad_records, missing_in=str(table.snapshot().metadata().id()))

        def write(batch: Batch) -> Outcome:
            schema = from_arrow_schema(_BAD)
            rows = self.spark.createDataFrame([], schema)
            if with_bad := [file for file in batch.files if bad is None or file.name in bad]:
                pieces, reading = self._pieces(with_bad, lambda piece: [piece])
                rows = pieces.select(quoted(PIECE)).mapInArrow(partial(_bad_rows, reading), schema)
            names = {} if to.force else {file.identifier(to.operation, to.missing_in): file.name for file in batch.files}
            with to.table() as table:
                replaced = Reloads(Transaction(table), to.target, to.operation, "file").of_values(names, self.spark)
            if replaced.kept is not None:
                rows = rows.unionByName(replaced.kept, allowMissingColumns=True)
            batch = replace(replaced, files=batch.files)
            doing, compression = "reading the malformed documents again", self.options.get("compression")
            return to.save(rows, batch, None, doing, shred=False, compression=compression)

        there = to.loaded(files)
        if missing := [file for file in files if file.name not in there]:
            list(committed(missing, write, to.loaded, again=True))


@contextmanager
def _refused(told: str) -> Iterator[None]:
    """Raises InvalidSchemaError for a column that PySpark or Spark refuses."""
    try:
        yield
    except (PySparkException, Py4JError, ArithmeticError, AttributeError, TypeError, ValueError) as error:
        reason, _, _ = str(error).strip().partition("\n")
        raise InvalidSchemaError(f"{told}: {reason}") from error


def _bad_rows(reading: JsonFiles, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    reader = Reader(reading)
    for piece in Piece.each(batches):
        for _, malformed in reader.documents(piece):
            rows = [(bad.name, bad.line, bad.offset, bad.reason, bad.text.decode(errors="replace")) for bad in malformed]
            if rows:
                yield pa.RecordBatch.from_pylist([dict(zip(_BAD.names, row, strict=True)) for row in rows], _BAD)


def _folder(name: str, column: str) -> str | None:
    """The value of a column in the folders of a path, as Hive writes it."""
    found = re.search(rf"/{re.escape(column)}=([^/]*)/", name, re.IGNORECASE)
    if found is None:
        raise InvalidSchemaError(f"folders: {name} is in no folder {column}=…")
    value = unquote(found[1])
    return None if value == _NULL_PARTITION else value
