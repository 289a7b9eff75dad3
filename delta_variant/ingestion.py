"""`ingest`: files of JSON documents → a Delta table with a shredded VARIANT column.

In: files, directories and globs, on any storage that `write` supports. Out: commits of `write`, whose tasks read the files
themselves (`json_files`). The driver lists the files (`java/JsonFiles.java`), leaves out those that the table has already,
divides the others into pieces and the pieces among tasks, and writes the malformed documents to a table of their own.

Invariant: a file's documents are added to the table once. Each commit has a transaction identifier for every file that it took
(PROTOCOL.md, "Transaction Identifiers"), so an ingestion that was killed is run again. The table of malformed documents has
identifiers that also name the table that they are missing in.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.errors import PythonException
from pyspark.sql import functions as F  # what PySpark programs call it

from delta_variant import jvm
from delta_variant.errors import ConflictError, InvalidPathError, InvalidSchemaError, TableError, UnsupportedFeatureError
from delta_variant.hadoop import storage_of
from delta_variant.json_files.documents import Reader
from delta_variant.json_files.pieces import COMPRESSIONS, Form, JsonFiles, Piece, is_known
from delta_variant.paths import parse_variant_path, quoted
from delta_variant.progress import Progress
from delta_variant.transaction import Table, Transaction, own_session
from delta_variant.writer.arguments import Request
from delta_variant.writer.driver import write_rows
from delta_variant.writer.partitions import uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from delta_variant.storage import Storage

DOCUMENT_BYTES = 16 << 20
COMMIT_BYTES = 64 << 30
PIECE_BYTES = 128 << 20
"""Plain files of lines are read in pieces of this size."""
TASK_BYTES = 512 << 20
"""The most that one task reads, unless a single piece has more."""
_RATIO = 6  # of the bytes of JSON to their compressed bytes, about
_OPENING = 4 << 20  # bytes that are parsed in the time that it takes to open a file
_IDENTIFIER = "delta_variant.ingest/"
_TRIES = 3
_PIECE = "delta_variant piece"
_GROUP = "delta_variant group"
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_UNREADABLE = (".xz", ".lzma", ".snappy", ".lz4", ".br", ".lzo", ".z", ".zip", ".7z", ".tar", ".tgz")
_BAD = "file string, line bigint, byte bigint, reason string, text string"
_OPTIONS: dict[str, Any] = {
    "shred": "auto", "partition_by": (), "merge_schema": None, "compression": None, "max_rows_per_file": None,
    "user_metadata": None,
}  # fmt: skip
"""The options of `write` that `ingest` has, and their defaults."""
_FIXED: dict[str, Any] = {
    "mode": "append", "cluster_by": (), "replace_where": None, "partition_overwrite": None, "overwrite_schema": False,
    "txn": None, "on_error": "fail", "corrupt": None, "parse_json": None,
}  # fmt: skip
"""The others, and what they are."""


@dataclass(frozen=True)
class Ingested:
    """What an ingestion did."""

    version: int | None
    """The last version that it committed; None if there was nothing to commit."""
    commits: int
    files: int
    """How many files were read."""
    skipped: int
    """How many files were left out because the table has them already."""
    ignored: int
    """How many files below directories were left out because of their suffix."""
    rows: int
    bytes_read: int
    """The size of the files that were read."""
    bytes_written: int
    bad: int
    """How many malformed documents were left out of the table."""


@dataclass(frozen=True)
class _File:
    name: str
    size: int
    modified: int
    """Milliseconds since 1970."""

    def identifier(self, missing_in: str = "") -> str:
        """The application of its transaction identifier. missing_in: for malformed documents, the id of the other table."""
        text = f"{self.name}\0{missing_in}" if missing_in else self.name
        return _IDENTIFIER + hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


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
    bad_records: str | os.PathLike[str] | None = None,
    max_document_bytes: int = DOCUMENT_BYTES,
    commit_bytes: int = COMMIT_BYTES,
    force: bool = False,
    progress: Callable[[Progress], object] | None = None,
    storage_options: Mapping[str, str] | None = None,
    **options: Any,
) -> Ingested:
    """Load files of JSON documents into a Delta table: one row for each document, as the VARIANT column `column`.

    Example:
        dv.ingest(spark, "s3a://logs/2026/", "events", folders={"day": "date"}, bad_records="events_bad")
        dv.ingest(spark, "trail/*.json.gz", "trail", records="$.Records", path_column="file")

    source: files, directories (with all below them) and globs, plain or compressed (.gz, .bz2, .zst). Of the files below
    directories, those whose name ends in .json, .jsonl or .ndjson are read, or all if there are none; a file that is named, or
    found by a glob, is read in any case. target: as for `write`; a missing table is created.
    Files that the table has from an earlier ingestion are left out, even if they have changed since, so the same call can be
    repeated: after a failure, or every night. DELETE and RESTORE do not change what the table has had; force=True reads all
    files, whether the table has had them or not. The table forgets files after delta.setTransactionRetentionDuration, if set.
    A file is known by its path: the same file at another path, as s3:// in the place of s3a://, is another file.
    format: "lines" (a document on each line), "array" (the elements of a top-level array), "document" (the whole file), or
    "auto": an array if a file begins with a bracket, else lines. records: the path to an array inside each document of a file,
    such as $.Records; its elements are the rows.
    path_column, modified_column: columns for the URI of the file, as in _metadata.file_path, and its modification time.
    constants: columns with the same value in all rows. folders: columns, with their types, from the folders of a path
    (`day=2026-11-01`).
    bad_records: a table for documents that are malformed or too long, with the columns file, line, byte (the first of the
    document in the decompressed file), reason, text (its beginning, if it is too long). Without it, the first is an error. If
    an earlier ingestion had no such table, or ended early, the files of the target are read once more for it.
    max_document_bytes: the size of the longest document. commit_bytes: after so many bytes of files there is a commit.
    progress: called after each commit. storage_options: as for `write`, for source and target.
    options: of `write`: shred, partition_by, merge_schema, compression, max_rows_per_file and user_metadata.

    Documents are parsed as by `binary.parse_json`, but text after a document makes it malformed and is not ignored. If the
    structure around the elements of an array is broken, the rest of the file is one malformed document. Memory does not grow
    with the size of files. Raises InvalidJsonError for the first malformed document, with its file and line; TableError
    for a file that cannot be read, and for no files; UnsupportedFeatureError for a table whose constraints or generated columns
    use `column`; and what `write` raises.
    """
    for name in options:
        if name in _FIXED:
            raise UnsupportedFeatureError(f"ingest does not take {name}: use write(spark.read.text(…), …, parse_json={{…}})")
        if name not in _OPTIONS:
            raise TypeError(f"ingest() got an unexpected keyword argument {name!r}")
    if format not in ("auto", "lines", "array", "document"):
        raise UnsupportedFeatureError(f"format={format!r} is not one of auto, lines, array, document")
    if max_document_bytes < 1 or commit_bytes < 1:
        raise UnsupportedFeatureError("max_document_bytes and commit_bytes must be 1 or more")
    keys = None if records is None else _keys(records)
    sources = [os.fspath(path) for path in ([source] if isinstance(source, str | os.PathLike) else source)]
    files, ignored = _listed(spark, sources, storage_options or {})
    ingestion = _Ingestion(
        spark, target, column, format, keys, path_column, modified_column, dict(constants or {}), dict(folders or {}),
        bad_records, max_document_bytes, dict(storage_options or {}), force, _OPTIONS | options,
    )  # fmt: skip
    return replace(ingestion.run(files, commit_bytes, progress), ignored=ignored)


def _keys(records: str) -> tuple[str, ...]:
    keys = tuple(step for step in parse_variant_path(records) if isinstance(step, str))
    if not keys or len(keys) < len(parse_variant_path(records)):
        raise InvalidPathError(f"records={records!r} must lead through objects to an array, as in $.Records")
    return keys


def _listed(spark: SparkSession, sources: Sequence[str], storage_options: Mapping[str, str]) -> tuple[list[_File], int]:
    """The files at paths and globs, in the order of their names, and how many were left out because of their suffix."""
    jvm.classic(spark)
    options = jvm.scala_map(spark, storage_options)
    with jvm.delta_errors(f"listing {', '.join(sources)}"):
        lister = jvm.construct(spark, jvm.java_class(spark, "JsonFiles"), spark._jsparkSession, options)  # noqa: SLF001
        listed = json.loads(lister.list(sources))
    if missing := [source for source in listed if isinstance(source, str)]:
        raise TableError(f"there are no files: {missing[0]} does not exist")
    named = {name: is_named for name, _, _, is_named in sorted(listed, key=itemgetter(3))}
    files = [_File(name, size, max(0, modified)) for name, size, modified in sorted({tuple(file[:3]) for file in listed})]
    if not files:
        raise TableError(f"there are no files below {', '.join(sources)}")
    wanted = [file for file in files if named[file.name] or is_known(file.name)] or files
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
    bad_records: str | os.PathLike[str] | None
    max_bytes: int
    storage_options: dict[str, str]
    force: bool
    options: dict[str, Any]

    def run(self, files: list[_File], commit_bytes: int, progress: Callable[[Progress], object] | None) -> Ingested:
        """Ingests the files that the table has not, one commit after the other."""
        done = Ingested(None, 0, 0, 0, 0, 0, 0, 0, 0)
        self._check_bad_records()
        skipped = set() if self.force else self._known(self.target, {file.identifier(): file for file in files})
        new = [file for file in files if file.name not in skipped]
        if self.bad_records is not None:  # an earlier ingestion may have ended before it wrote these
            for batch in _batches((file for file in files if file.name in skipped), commit_bytes):
                self._write_bad(batch, None)
        total = sum(file.size for file in new)
        for batch in _batches(new, commit_bytes):
            taken, done = self._commit(batch, done)
            if progress is not None:
                progress(Progress(done.files, len(new), done.bytes_read, total, done.rows))
            skipped |= {file.name for file in batch} - taken
        return replace(done, skipped=len(skipped))

    def _check_bad_records(self) -> None:
        """Raises UnsupportedFeatureError if the malformed documents would go to the table itself."""
        if self.bad_records is None:
            return
        with own_session(self.spark) as spark:
            tables = [Table.of(spark, table, self.storage_options) for table in (self.target, self.bad_records)]
            if tables[0].log.dataPath().toString() == tables[1].log.dataPath().toString():
                raise UnsupportedFeatureError(f"bad_records names the target, {self.target}: name another table")

    def _id(self) -> str:
        """The id of the target's table."""
        with own_session(self.spark) as spark:
            return str(Table.of(spark, self.target, self.storage_options).snapshot().metadata().id())

    def _known(self, table: str | os.PathLike[str], files: Mapping[str, _File]) -> set[str]:
        """The names of the files that a table has already. files: by their identifiers."""
        with own_session(self.spark) as spark:
            known = Transaction(Table.of(spark, table, self.storage_options)).identify(dict.fromkeys(files, 0))
        return {file.name for identifier, file in files.items() if identifier in known}

    def _commit(self, files: list[_File], done: Ingested) -> tuple[set[str], Ingested]:
        """Ingests files in one commit. Returns those that were taken: another ingestion may have taken some in between."""
        for attempt in range(_TRIES):
            rows, reading = self._pieces(files)
            request = Request.of(rows, **_FIXED | self.options | {"parse_json": {self.column: _PIECE}})
            identifiers = {file.identifier(): file.modified for file in files}
            request = replace(request, files=reading, identifiers=identifiers, again=self.force)
            try:
                commit, bad = write_rows(rows, self.target, request, self.storage_options)
            except ConflictError:
                known = set() if self.force else self._known(self.target, {file.identifier(): file for file in files})
                if not known or attempt == _TRIES - 1:
                    raise
                files = [file for file in files if file.name not in known]
                if not files:
                    break
            else:
                if self.bad_records is not None:
                    self._write_bad(files, set(bad))
                return {file.name for file in files}, Ingested(
                    commit.version, done.commits + 1, done.files + len(files), 0, 0, done.rows + commit.rows,
                    done.bytes_read + sum(file.size for file in files), done.bytes_written + commit.bytes,
                    done.bad + sum(bad.values()),
                )  # fmt: skip
        return set(), done

    def _pieces(self, files: Sequence[_File], *, whole: bool = False) -> tuple[DataFrame, JsonFiles]:
        """A DataFrame with a row for each piece and the columns of its file, and how the pieces are read.

        whole: whether a file is one piece.
        """
        storages: dict[str, tuple[int, Storage, str]] = {}
        pieces = [(file, piece) for file in files for piece in self._cut(file, storages, whole=whole)]
        groups = _groups([_weight(piece) for _, piece in pieces], self.spark.sparkContext.defaultParallelism)
        rows = [
            (piece.json(), uri(file.name), file.modified, *(_folder(file.name, name) for name in self.folders), group)
            for (file, piece), group in zip(pieces, groups, strict=True)
        ]
        names = [_PIECE, "path", "modified", *(f"folder{i}" for i in range(len(self.folders))), _GROUP]
        types = [pa.string(), pa.string(), pa.int64(), *(pa.string() for _ in self.folders), pa.int32()]
        values = zip(*rows, strict=True)
        table = pa.table([pa.array(list(column), kind) for column, kind in zip(values, types, strict=True)], names=names)
        columns = [F.col(quoted(_PIECE))]
        if self.path_column is not None:
            columns.append(F.col("path").alias(self.path_column))
        if self.modified_column is not None:
            columns.append(F.timestamp_millis("modified").alias(self.modified_column))
        columns += [F.lit(value).alias(name) for name, value in self.constants.items()]
        columns += [F.col(f"folder{i}").cast(kind).alias(name) for i, (name, kind) in enumerate(self.folders.items())]
        df = self.spark.createDataFrame(table).repartitionById(max(groups) + 1, F.col(quoted(_GROUP))).select(*columns)
        keys = (self.spark.conf.get("spark.sql.variant.allowDuplicateKeys", "false") or "").lower() == "true"
        given = tuple(storage for _, storage, _ in storages.values())
        return df, JsonFiles(given, self.form, self.records, self.max_bytes, self.bad_records is None, keys)

    def _cut(self, file: _File, storages: dict[str, tuple[int, Storage, str]], *, whole: bool) -> Iterator[Piece]:
        """The pieces of a file. storages: those of earlier files, by scheme and host; this one's is added."""
        scheme, host, path = re.fullmatch(r"(?:([\w.+-]+):)?(?://([^/]*))?(.*)", file.name, re.DOTALL).groups()  # type: ignore[union-attr]
        root = f"{scheme}://{host}/" if host else f"{scheme or 'file'}:/"
        if root not in storages:
            state = self.spark._jsparkSession.sessionState()  # noqa: SLF001  # PySpark gives no public way
            conf = state.newHadoopConfWithOptions(jvm.scala_map(self.spark, self.storage_options))
            storage = storage_of(self.spark, jvm.static(self.spark, "org.apache.hadoop.fs.Path")(root), conf)
            storages[root] = len(storages), storage, storage.root.rstrip("/")
        number, _, prefix = storages[root]
        piece = Piece(number, prefix + path, file.name, file.size)
        if whole or piece.compression is not None or self.records is not None or self.form in ("array", "document"):
            yield piece
            return
        for start in range(0, max(file.size, 1), PIECE_BYTES):
            end = start + PIECE_BYTES
            yield replace(piece, start=start, end=end if end < file.size else None)

    def _write_bad(self, files: Sequence[_File], bad: set[str] | None) -> None:
        """Writes the malformed documents of files to their table. bad: the files that have some; None if that is not known."""
        assert self.bad_records is not None
        target = self._id()
        for attempt in range(_TRIES):
            by_identifier = {file.identifier(target): file for file in files}
            known = set() if self.force else self._known(self.bad_records, by_identifier)
            files = [file for file in files if file.name not in known]
            if not files:
                return
            with_bad = [file for file in files if bad is None or file.name in bad]
            rows = self.spark.createDataFrame([], _BAD)
            if with_bad:
                pieces, reading = self._pieces(with_bad, whole=True)
                rows = pieces.select(quoted(_PIECE)).mapInArrow(partial(_bad_rows, reading), _BAD)
            request = Request.of(rows, **_FIXED | _OPTIONS | {"shred": False, "compression": self.options["compression"]})
            identifiers = {file.identifier(target): file.modified for file in files}
            request = replace(request, identifiers=identifiers, again=self.force)
            try:
                write_rows(rows, self.bad_records, request, self.storage_options)
            except ConflictError:
                if attempt == _TRIES - 1:
                    raise
            except PythonException as error:
                last = str(error).strip().splitlines()[-1]
                raise TableError(f"reading the malformed documents again failed: {last}") from error
            else:
                return


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


def _batches(files: Iterable[_File], commit_bytes: int) -> Iterator[list[_File]]:
    """The files of each commit."""
    batch: list[_File] = []
    size = 0
    for file in files:
        if batch and size + file.size > commit_bytes:
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.size
    if batch:
        yield batch


def _weight(piece: Piece) -> int:
    """About how many bytes of JSON a piece has, and as many as are read in the time that it takes to open it."""
    size = (piece.size if piece.end is None else piece.end) - piece.start
    return size * (_RATIO if piece.compression is not None else 1) + _OPENING


def _groups(sizes: Sequence[int], cores: int) -> list[int]:
    """The number of the task that reads each piece: as many tasks as cores, or more if a task would read more than TASK_BYTES.

    Neighbours stay together, since they may be of one partition.
    """
    total = sum(sizes)
    tasks = max(1, min(len(sizes), max(cores, -(-total // TASK_BYTES))))
    groups, before = [], 0
    for size in sizes:
        groups.append(min(tasks - 1, (before + size // 2) * tasks // total))
        before += size
    return groups


def _folder(name: str, column: str) -> str | None:
    """The value of a column in the folders of a path, as Hive writes it."""
    found = re.search(rf"/{re.escape(column)}=([^/]*)/", name, re.IGNORECASE)
    if found is None:
        raise InvalidSchemaError(f"folders: {name} is in no folder {column}=…")
    value = unquote(found[1])
    return None if value == _NULL_PARTITION else value
