"""`ingest`: files of JSON documents → a Delta table with a shredded VARIANT column.

In: files, directories and globs, on any storage that `write` supports. Out: commits of `write`, whose tasks read the files
themselves (`json_files`). The driver lists the files, leaves out those that the table has already, divides the others into
pieces and the pieces among tasks (`sources`), and writes the malformed documents to a table of their own.

Invariant: a file's documents are added to the table once. The table of malformed documents has identifiers that also name the
table that they are missing in.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import functions as F  # what PySpark programs call it
from pyspark.sql import types as t

from delta_variant import extraction, reloading, sources
from delta_variant.errors import InvalidPathError, InvalidSchemaError, TableError, UnsupportedFeatureError
from delta_variant.json_files.documents import Reader
from delta_variant.json_files.pieces import COMPRESSIONS, FORMS, Form, JsonFiles, Piece, is_known
from delta_variant.paths import parse_variant_path, quoted
from delta_variant.progress import Progress
from delta_variant.reloading import Changed, Reload, Reloads
from delta_variant.sources import COMMIT_BYTES, OPENING, PIECE_BYTES, TASK_BYTES, Loaded, Pieces, SourceFile
from delta_variant.transaction import Table, own_session
from delta_variant.writer.arguments import Request
from delta_variant.writer.driver import Commit, write_rows
from delta_variant.writer.json_texts import parsing
from delta_variant.writer.partitions import uri

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

DOCUMENT_BYTES = 16 << 20
_RATIO = 6  # of the bytes of JSON to their compressed bytes, about
_OPERATION = "ingest"
_PIECE = "delta_variant piece"
_GROUP = "delta_variant group"
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_UNREADABLE = (".xz", ".lzma", ".snappy", ".lz4", ".br", ".lzo", ".z", ".zip", ".7z", ".tar", ".tgz")
_BAD = "file string, line bigint, byte bigint, reason string, text string"
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
    Files that the table has from an earlier ingestion are left out, so the same call can be repeated: after a failure, or every
    night. DELETE and RESTORE do not change what the table has had; force=True reads all files, whether the table has had them
    or not. The table forgets files after delta.setTransactionRetentionDuration, if set.
    A file is known by its path: the same file at another path, as s3:// in the place of s3a://, is another file.
    changed: what happens to files whose modification time is not the one that the table took them with. "skip" leaves them out
    with a DeltaVariantWarning, and "error" is a TableError before anything is written. "reload" replaces their rows, and their
    malformed documents in bad_records: one commit removes the old rows and adds the new ones, with the arguments of this call.
    The old rows are those with the file's URI in path_column. Without such a column they are in the data files of the commit
    that took the file; the other files of this commit are then read again too, and must be in the source. Where data files
    have been rewritten since (OPTIMIZE, DELETE, UPDATE), it is not known which rows these are, and reload is a TableError.
    format: "lines" (a document on each line), "array" (the elements of a top-level array), "adjacent" (documents one after the
    other, with blanks, line breaks, record separators (RFC 7464) or nothing between them), "document" (the whole file), or
    "auto", for which the beginning of each file decides: an array if it begins with a bracket; adjacent if it begins with a
    record separator, or with an object and a document that begins on its first line ends on another one, or its first line is
    several documents (the first two complete objects or arrays) and is the only line, or longer than a document may be; else
    lines, where a line that is several complete objects or arrays is several rows. Large plain files of lines are read by
    several tasks, all others by one each.
    records: the path to an array inside each document of a file, such as $.Records; its elements are the rows.
    path_column, modified_column: columns for the URI of the file, as in _metadata.file_path, and its modification time.
    constants: columns with the same value in all rows. folders: columns, with their types, from the folders of a path
    (`day=2026-11-01`). columns: columns out of the document, as SQL expressions over the columns of the row: v:id::bigint is an
    error for a value that is no number, and NULL where the path is missing; try_variant_get(v, '$.id', 'bigint') is NULL for
    both. Spark computes them, under the session's settings; the documents go through Spark for that, which takes longer.
    bad_records: a table for documents that are malformed or too long, with the columns file, line, byte (the first of the
    document in the decompressed file), reason, text (its beginning, if it is too long). Without it, the first is an error. If
    an earlier ingestion had no such table, or ended early, the files of the target are read once more for it.
    max_document_bytes: the size of the longest document. commit_bytes: after so many bytes of files there is a commit.
    progress: called after each commit. storage_options: as for `write`, for source and target.
    options: of `write`: shred, partition_by, merge_schema, compression, max_rows_per_file and user_metadata.

    Documents are parsed as by `binary.parse_json`, under the session's settings for Spark's parse_json. But text after a
    document makes it malformed, and so does a byte that is not UTF-8; Spark ignores the one and replaces the other. A file of
    UTF-16 or UTF-32 is one malformed document. If the structure around the elements of an array is broken, the rest of the file
    is one malformed document. So is the rest after adjacent documents from where no document begins, or none ends, up to the
    next record separator. Memory does not grow with the size of files.

    Raises InvalidJsonError for the first malformed document, with its file and line; InvalidSchemaError for columns that are no
    expressions, or need other rows (aggregates, window functions) or make more (explode), and for two columns of one name;
    TableError for a file that cannot be read, and for no files; UnsupportedFeatureError for a table whose constraints or
    generated columns use `column`, unless there are `columns`; what `write` raises; and the errors of Spark's casts.
    """
    sources.check_options("ingest", options, _OPTIONS, "write(spark.read.text(…), …, parse_json={…})")
    if format not in FORMS:
        raise UnsupportedFeatureError(f"format={format!r} is not one of {', '.join(FORMS)}")
    if max_document_bytes < 1 or commit_bytes < 1:
        raise UnsupportedFeatureError("max_document_bytes and commit_bytes must be 1 or more")
    reloading.check(changed, force=force)
    keys = None if records is None else _keys(records)
    places = [os.fspath(path) for path in ([source] if isinstance(source, str | os.PathLike) else source)]
    files, ignored = _listed(spark, places, storage_options or {})
    ingestion = _Ingestion(
        spark, target, column, format, keys, path_column, modified_column, dict(constants or {}), dict(folders or {}),
        dict(columns or {}), bad_records, max_document_bytes, dict(storage_options or {}), force, changed, options,
    )  # fmt: skip
    ingestion.check_columns()
    return replace(ingestion.run(files, commit_bytes, progress), ignored=ignored)


def _keys(records: str) -> tuple[str, ...]:
    keys = tuple(step for step in parse_variant_path(records) if isinstance(step, str))
    if not keys or len(keys) < len(parse_variant_path(records)):
        raise InvalidPathError(f"records={records!r} must lead through objects to an array, as in $.Records")
    return keys


def _listed(spark: SparkSession, places: Sequence[str], storage_options: Mapping[str, str]) -> tuple[list[SourceFile], int]:
    """The files at paths and globs, in the order of their names, and how many were left out because of their suffix."""
    found = sources.listed(spark, "list", storage_options, places)
    named = {file.path for file in found.files if file.named}
    listed = {file.path: file for file in found.files}  # one of them, if a file changes while it is listed
    files = [SourceFile(path, file.size, max(0, file.modified)) for path, file in sorted(listed.items())]
    wanted = [file for file in files if file.name in named or is_known(file.name)] or files
    for file in wanted:
        if file.name.lower().endswith(_UNREADABLE):
            raise TableError(f"cannot read {file.name}: its compression is none of {', '.join(COMPRESSIONS)}: compress it anew")
    return wanted, len(files) - len(wanted)


@dataclass(frozen=True)
class _Ingestion:
    spark: SparkSession
    target: str | os.PathLike[str]
    column: str
    form: Form
    records: tuple[str, ...] | None
    path_column: str | None
    modified_column: str | None
    constants: dict[str, Any]
    folders: dict[str, str]
    columns: dict[str, str]
    bad_records: str | os.PathLike[str] | None
    max_bytes: int
    storage_options: dict[str, str]
    force: bool
    changed: Changed
    options: dict[str, Any]

    def run(self, files: list[SourceFile], commit_bytes: int, progress: Callable[[Progress], object] | None) -> Ingested:
        """Ingests the files that the table has not, and those that have changed if they are to be, commit by commit."""
        self._check_bad_records()
        for table in (self.target, self.bad_records):
            if table is not None:
                sources.check_writable(self.spark, table, self.storage_options)
        times = self._times(files)
        changed = reloading.changed_files(files, times, self.changed, self.target)
        plan = partial(self._reloads(files).plan, commit_bytes=commit_bytes)
        if changed and self.changed == "reload" and self.bad_records is not None:
            sources.check_writable(self.spark, self.bad_records, self.storage_options, overwrite=True)
        reloads = plan(changed) if self.changed == "reload" else []
        again = {file for reload in reloads for file in reload.files}
        skipped = {file for file in files if file.name in times} - again
        if self.bad_records is not None:  # an earlier ingestion may have ended before it wrote these
            for batch in sources.batches(sorted(skipped.difference(changed), key=attrgetter("name")), commit_bytes):
                self._write_bad(batch, None)
        wanted = [file for file in files if file not in skipped]
        done, total = Ingested(None, 0, 0, 0, 0, 0, 0, 0, 0), sum(file.size for file in wanted)

        def count(taken: Sequence[SourceFile], result: tuple[Commit, Mapping[str, int]] | None) -> None:
            nonlocal done
            done = self._done(done, taken, result)
            if progress is not None:
                progress(Progress(done.files, len(wanted), done.bytes_read, total, done.rows))

        for batch in sources.batches((file for file in wanted if file.name not in times), commit_bytes):
            count(*sources.committed(batch, self._write, self._times))
        for reload, result in reloading.reloaded(changed if reloads else [], plan, self._reload, self._times, reloads):
            count(reload.files, result)
        return replace(done, skipped=len(files) - done.files, changed=len(changed))

    def check_columns(self) -> None:
        """Raises InvalidSchemaError if two columns have one name, and for columns out of the document that are none."""
        taken: set[str] = set()
        of_files = [name for name in (self.path_column, self.modified_column) if name is not None]
        for name in [self.column, *of_files, *self.constants, *self.folders, *self.columns]:
            if name.lower() in taken:
                raise InvalidSchemaError(f"a row has a column {name} already: choose another name for one of the two")
            taken.add(name.lower())
        if self.columns:
            kinds = {_PIECE: t.VariantType(), "path": t.StringType(), "modified": t.LongType()}
            kinds |= {f"folder{i}": t.StringType() for i in range(len(self.folders))}
            schema = t.StructType([t.StructField(name, kind) for name, kind in kinds.items()])
            rows = self._rows(self.spark.createDataFrame([], schema), self._documents())
            extraction.check(rows, self.columns)

    def _check_bad_records(self) -> None:
        """Raises UnsupportedFeatureError if the malformed documents would go to the table itself."""
        if self.bad_records is None:
            return
        with own_session(self.spark, self.storage_options) as spark:
            tables = [Table.of(spark, table) for table in (self.target, self.bad_records)]
            if tables[0].log.dataPath().toString() == tables[1].log.dataPath().toString():
                raise UnsupportedFeatureError(f"bad_records names the target, {self.target}: name another table")

    def _id(self) -> str:
        """The id of the target's table."""
        with own_session(self.spark, self.storage_options) as spark:
            return str(Table.of(spark, self.target).snapshot().metadata().id())

    def _times(self, files: Sequence[SourceFile]) -> dict[str, int]:
        """The modification times with which the target took files, by their names; none if all are to be read."""
        if self.force:
            return {}
        by_identifier = {file.identifier(_OPERATION): file for file in files}
        return sources.known(self.spark, self.target, self.storage_options, by_identifier)

    def _reloads(self, files: Sequence[SourceFile]) -> Reloads:
        listed = {file.identifier(_OPERATION): file for file in files}
        return Reloads(self.spark, self.target, self.storage_options, _OPERATION, self.path_column, listed, self.bad_records)

    def _done(self, done: Ingested, taken: Sequence[SourceFile], result: tuple[Commit, Mapping[str, int]] | None) -> Ingested:
        """Writes the malformed documents of a commit, and returns the totals with it. taken: the files of the commit."""
        if result is None:
            return done
        commit, bad = result
        if self.bad_records is not None:
            self._write_bad(taken, set(bad))
        return Ingested(
            commit.version, done.commits + 1, done.files + len(taken), 0, 0, done.rows + commit.rows,
            done.bytes_read + sum(file.size for file in taken), done.bytes_written + commit.bytes,
            done.bad + sum(bad.values()),
        )  # fmt: skip

    def _reload(self, reload: Reload) -> tuple[Commit, Mapping[str, int]]:
        return self._write(reload.files, reload)

    def _write(self, files: Sequence[SourceFile], reload: Reload | None = None) -> tuple[Commit, Mapping[str, int]]:
        pieces, reading = self._pieces(files)
        identifiers = {file.identifier(_OPERATION): file.modified for file in files}
        asked: dict[str, Any] = {"identifiers": identifiers, "again": self.force}
        if reload is not None:
            asked |= {"known": reload.known, "removal": reload.removal}
        if self.columns:
            malformed = extraction.MalformedCounts(pieces)
            rows = extraction.documents(pieces, _PIECE, reading, malformed)
            rows = extraction.computed(self._rows(rows, self._documents()), self.columns)
            request = replace(Request.of(rows, "append", **self.options), **asked)
            with sources.own_errors("reading the files"):
                commit, _ = write_rows(rows, self.target, request, self.storage_options)
            return commit, malformed.by_file()
        rows = self._rows(pieces, F.col(quoted(_PIECE)))
        request = Request.of(rows, "append", **self.options, parse_json={self.column: _PIECE})
        return write_rows(rows, self.target, replace(request, files=reading, **asked), self.storage_options)

    def _pieces(self, files: Sequence[SourceFile], *, whole: bool = False) -> tuple[DataFrame, JsonFiles]:
        """A DataFrame with a row for each piece and what is known of its file, and how the pieces are read.

        whole: whether a file is one piece.
        """
        of_files = Pieces(self.spark, self.storage_options)
        pieces = [(file, piece) for file in files for piece in self._cut(of_files.of(file), whole=whole)]
        weights = [_weight(piece) for _, piece in pieces]
        groups = sources.groups(weights, self.spark.sparkContext.defaultParallelism, TASK_BYTES)
        rows = [
            (piece.json(), uri(file.name), file.modified, *(_folder(file.name, name) for name in self.folders), group)
            for (file, piece), group in zip(pieces, groups, strict=True)
        ]
        names = [_PIECE, "path", "modified", *(f"folder{i}" for i in range(len(self.folders))), _GROUP]
        types = [pa.string(), pa.string(), pa.int64(), *(pa.string() for _ in self.folders), pa.int32()]
        values = zip(*rows, strict=True)
        table = pa.table([pa.array(list(column), kind) for column, kind in zip(values, types, strict=True)], names=names)
        df = self.spark.createDataFrame(table).repartitionById(max(groups) + 1, F.col(quoted(_GROUP))).drop(_GROUP)
        fails = self.bad_records is None
        return df, JsonFiles(of_files.storages, self.form, self.records, self.max_bytes, fails, **parsing(self.spark))

    def _documents(self) -> Column:
        return F.col(quoted(_PIECE)).alias(self.column)

    def _rows(self, df: DataFrame, documents: Column) -> DataFrame:
        """The documents and the columns of their files."""
        columns = [documents]
        if self.path_column is not None:
            columns.append(F.col("path").alias(self.path_column))
        if self.modified_column is not None:
            columns.append(F.timestamp_millis("modified").alias(self.modified_column))
        columns += [F.lit(value).alias(name) for name, value in self.constants.items()]
        columns += [F.col(f"folder{i}").cast(kind).alias(name) for i, (name, kind) in enumerate(self.folders.items())]
        return df.select(*columns)

    def _cut(self, piece: Piece, *, whole: bool) -> Iterator[Piece]:
        """The pieces of a file."""
        if whole or piece.compression is not None or self.records is not None or self.form in ("array", "adjacent", "document"):
            return iter([piece])
        return sources.cut(piece, PIECE_BYTES)

    def _write_bad(self, files: Sequence[SourceFile], bad: set[str] | None) -> None:
        """Writes the malformed documents of files to their table, in the place of those from before the files changed.

        bad: the files that have some; None if that is not known.
        """
        assert self.bad_records is not None
        bad_records, target = self.bad_records, self._id()
        by_identifier = {file.identifier(_OPERATION, target): file for file in files}
        times: dict[str, int] = {}

        def written(files: Sequence[SourceFile]) -> set[str]:
            """The names of the files whose documents the table has."""
            nonlocal times
            times = {} if self.force else sources.known(self.spark, bad_records, self.storage_options, by_identifier)
            return {file.name for file in files if file.has_time(times.get(file.name))}

        def write(files: Sequence[SourceFile]) -> None:
            with_bad = [file for file in files if bad is None or file.name in bad]
            rows = self.spark.createDataFrame([], _BAD)
            if with_bad:
                pieces, reading = self._pieces(with_bad, whole=True)
                rows = pieces.select(quoted(_PIECE)).mapInArrow(partial(_bad_rows, reading), _BAD)
            identifiers = {file.identifier(_OPERATION, target): file.modified for file in files}
            old = {i: by_identifier[i].name for i in identifiers if by_identifier[i].name in times}
            table = self.spark, bad_records, self.storage_options
            replaced = reloading.of_values(table, _OPERATION, "file", old)
            if replaced.kept is not None:
                rows = rows.unionByName(replaced.kept, allowMissingColumns=True)
            request = Request.of(rows, "append", shred=False, compression=self.options.get("compression"))
            request = replace(
                request, identifiers={**replaced.known, **identifiers}, again=self.force, known=replaced.known,
                removal=replaced.removal,
            )  # fmt: skip
            with sources.own_errors("reading the malformed documents again"):
                write_rows(rows, bad_records, request, self.storage_options)

        there = written(files)
        if missing := [file for file in files if file.name not in there]:
            sources.committed(missing, write, written, again=True)


def _bad_rows(reading: JsonFiles, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    reader = Reader(reading)
    names = ["file", "line", "byte", "reason", "text"]
    for batch in batches:
        for text in batch.column(0).to_pylist():
            for _, malformed in reader.documents(Piece.of(text)):
                rows = [(bad.name, bad.line, bad.offset, bad.reason, bad.text.decode(errors="replace")) for bad in malformed]
                if rows:
                    kinds = [pa.string(), pa.int64(), pa.int64(), pa.string(), pa.string()]
                    columns = [
                        pa.array(list(values), kind) for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)
                    ]
                    yield pa.RecordBatch.from_arrays(columns, names=names)


def _weight(piece: Piece) -> int:
    """About how many bytes of JSON a piece has, and as many as are read in the time that it takes to open it."""
    size = (piece.size if piece.end is None else piece.end) - piece.start
    return size * (_RATIO if piece.compression is not None else 1) + OPENING


def _folder(name: str, column: str) -> str | None:
    """The value of a column in the folders of a path, as Hive writes it."""
    found = re.search(rf"/{re.escape(column)}=([^/]*)/", name, re.IGNORECASE)
    if found is None:
        raise InvalidSchemaError(f"folders: {name} is in no folder {column}=…")
    value = unquote(found[1])
    return None if value == _NULL_PARTITION else value
