"""What `ingest` and `convert` have in common: files that a table takes once, as pieces that tasks read.

In: files of a listing (`scala/SourceFiles.scala`). Out: a commit of `write` for some of them at a time, with their identifiers,
until the table has all. Files that have changed since the table took them are loaded again last (`reloading`).

Invariant: each commit has a transaction identifier for every file that it took (PROTOCOL.md, "Transaction Identifiers"). A file
that the table knows, at any version, is not taken again, except by force or as a reload (W3). So an operation that was killed
is run again.
"""

# ruff: noqa: SLF001 -- PySpark gives no public way to its JVM

from __future__ import annotations

import inspect
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any, ClassVar, Generic, TypeVar

import pyarrow as pa
from pyspark.errors import PythonException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # what PySpark programs call it
from pyspark.sql import types as T

from delta_variant import errors, jvm, messages, pairs, reloading
from delta_variant.errors import DeltaVariantError, TableError, UnsupportedFeatureError
from delta_variant.hadoop import storage_of
from delta_variant.messages import Additions, Listing, decoded
from delta_variant.paths import quoted
from delta_variant.pieces import PIECE, Piece, spans
from delta_variant.progress import Progress
from delta_variant.reloading import Batch, Changed, ListedFile, Reloads, batches, committed
from delta_variant.storage import Storage
from delta_variant.transaction import Table, Transaction, own_session
from delta_variant.writer.arguments import Request
from delta_variant.writer.driver import Outcome, write, write_rows
from delta_variant.writer.partitions import uri
from delta_variant.writer.row_sources import Pieces

COMMIT_BYTES = 64 << 30
PIECE_BYTES = 128 << 20
"""Large files are read in pieces of this size."""
TASK_BYTES = 512 << 20
"""The most that one task reads, unless a single piece has more."""
OPENING = 4 << 20
"""Bytes that are read in the time that it takes to open a file."""
_RATIO = 6  # of the bytes of JSON to their compressed bytes, about
_TASK = "delta_variant task"
_WILDCARDS = frozenset("*?[{")
# The last line of the traceback of an error of this package in a task of Spark's.
_OWN_ERROR = re.compile(r"^delta_variant\.errors\.(\w+): (.*)", re.MULTILINE | re.DOTALL)
_URI = re.compile(r"(?:([\w.+-]+):)?(?://([^/]*))?(.*)", re.DOTALL)

Done = TypeVar("Done", bound="Loaded")


@dataclass(frozen=True)
class Loaded:
    """What an operation that takes files did."""

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
    changed: int = field(default=0, kw_only=True)
    """How many of the files that the table had have changed since it took them. They were left out, and are counted in
    `skipped`, or were loaded again (`changed="reload"`), and are counted in `files`."""


def check_options(operation: str, given: Iterable[str], known: Collection[str], instead: str) -> None:
    """Raises UnsupportedFeatureError for an option of `write` that an operation does not have, TypeError for an unknown one.

    known: those that it has. instead: what takes the others, for the message.
    """
    for name in given:
        if name not in known and name in inspect.signature(write).parameters:
            raise UnsupportedFeatureError(f"{operation} does not take {name}: use {instead}")
        if name not in known:
            raise TypeError(f"{operation}() got an unexpected keyword argument {name!r}")


@dataclass(kw_only=True)
class Loader(ABC, Generic[Done]):
    """A call of `ingest` or `convert`. A subclass says what its files are, and writes some of them."""

    operation: ClassVar[str]
    """Its name in identifiers."""
    spark: SparkSession
    target: str | os.PathLike[str]
    bad_records: str | os.PathLike[str] | None = None
    folders: Mapping[str, str | T.DataType]
    """The columns of directories, with their types."""
    path_column: str | None
    modified_column: str | None
    commit_bytes: int
    force: bool
    changed: Changed
    progress: Callable[[Progress], object] | None
    storage_options: Mapping[str, str]
    options: Mapping[str, Any]
    """Those of `write`."""
    missing_in: str = ""
    """The id of the table that lacks malformed documents, if the target gets these."""

    @abstractmethod
    def write(self, batch: Batch) -> Outcome:
        """Commits the rows of files."""

    def begin(self, wanted: Sequence[ListedFile], there: Collection[ListedFile]) -> None:
        """What comes before the first commit. there: the files that the table has, and that have not changed."""

    def end(self, done: Done, files: Sequence[ListedFile], bad: Mapping[str, int]) -> Done:  # noqa: ARG002
        """What comes after a commit. bad: the malformed documents that were left out. Returns the totals with them."""
        return done

    def parts(self, piece: Piece) -> Iterable[Piece]:
        """The pieces of a whole file for several tasks."""
        return cut(piece, PIECE_BYTES)

    def values(self, file: ListedFile) -> Sequence[str | None]:
        """The values of the columns of the directories of a file, as text."""
        return file.folders

    # ---- what is read ----------------------------------------------------------------------------------------------------

    def listed(self, method: str, source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *more: Any) -> Listing:
        """What a method of `SourceFiles` returns for paths and globs. Raises TableError for what it cannot list."""
        paths = [os.fspath(path) for path in ([source] if isinstance(source, str | os.PathLike) else source)]
        if not paths:
            raise TableError("there are no files: the list of sources is empty")
        jvm.classic(self.spark)
        options = jvm.scala_map(self.spark, self.storage_options)
        with jvm.delta_errors(f"listing {', '.join(paths)}"):
            lister = jvm.construct(self.spark, "SourceFiles", self.spark._jsparkSession, options)
            found = decoded(Listing, getattr(lister, method)(paths, *more))
        if found.unmatched:
            name = found.unmatched[0]
            is_glob = not _WILDCARDS.isdisjoint(name)
            advice = r". If *, ?, [ or { are part of its name, put a backslash before them: a\[1].json" if is_glob else ""
            raise TableError(f"there are no files: {name} does not exist{advice}")
        if not found.files:
            raise TableError(f"there are no files below {', '.join(paths)}")
        return found

    def pieces(
        self, files: Sequence[ListedFile], parts: Callable[[Piece], Iterable[Piece]]
    ) -> tuple[DataFrame, tuple[Storage, ...]]:
        """A DataFrame with a row for each piece and what is known of its file, and the storages that the pieces name."""
        storages: dict[str, Storage] = {}
        found = [(file, piece) for file in files for piece in parts(self._piece(file, storages))]
        values = [self.values(file) for file, _ in found]
        columns = {
            PIECE: pa.array([piece.json() for _, piece in found], pa.string()),
            "path": pa.array([uri(file.name) for file, _ in found], pa.string()),
            "modified": pa.array([file.modified for file, _ in found], pa.int64()),
            **{f"folder{i}": pa.array([row[i] for row in values], pa.string()) for i in range(len(self.folders))},
        }
        rows = in_tasks(self.spark, columns, [_weight(piece) for _, piece in found], TASK_BYTES)
        return rows, tuple(storages.values())

    def _piece(self, file: ListedFile, storages: dict[str, Storage]) -> Piece:
        """A whole file. storages: those of earlier files, by their roots; that of this file is added."""
        scheme, host, path = _URI.fullmatch(file.name).groups()  # type: ignore[union-attr]
        root = f"{scheme}://{host}/" if host else f"{scheme or 'file'}:/"
        if root not in storages:
            state = self.spark._jsparkSession.sessionState()
            conf = state.newHadoopConfWithOptions(jvm.scala_map(self.spark, self.storage_options))
            storages[root] = storage_of(self.spark, jvm.static(self.spark, "org.apache.hadoop.fs.Path")(root), conf)
        prefix = storages[root].root.rstrip("/")
        return Piece(list(storages).index(root), prefix + path, file.name, file.size)

    def of_files(self) -> list[Column]:
        """The columns for the URI and the time of the file, over the rows of `pieces`."""
        columns = [] if self.path_column is None else [F.col("path").alias(self.path_column)]
        return columns + ([] if self.modified_column is None else [F.timestamp_millis("modified").alias(self.modified_column)])

    def of_folders(self) -> list[Column]:
        """The columns of directories, over the rows of `pieces`."""
        return [F.col(f"folder{i}").cast(kind).alias(name) for i, (name, kind) in enumerate(self.folders.items())]

    # ---- what is written -------------------------------------------------------------------------------------------------

    @contextmanager
    def table(self) -> Iterator[Table]:
        """The target, in a session of its own."""
        with own_session(self.spark, self.storage_options) as spark:
            yield Table.of(spark, self.target)

    def check_writable(self, *, overwrite: bool = False) -> None:
        """Refuses a table that `write` refuses, before files are read for it. overwrite: whether rows are to be removed."""
        with self.table() as table:
            transaction = Transaction(table)
            if transaction.version >= 0:
                transaction.features.check_writable(overwrite=overwrite)

    def times(self, files: Iterable[ListedFile]) -> dict[str, int]:
        """The modification times with which the table took files, by their names; none if all are to be read."""
        if self.force:
            return {}
        names = {file.identifier(self.operation, self.missing_in): file.name for file in files}
        with self.table() as table:
            return {names[identifier]: time for identifier, time in Transaction(table).identifiers(names).items()}

    def loaded(self, files: Sequence[ListedFile]) -> set[str]:
        """The names of the files that the table took as they are now."""
        times = self.times(files)
        return {file.name for file in files if file.has_time(times.get(file.name))}

    def save(
        self,
        rows: DataFrame,
        batch: Batch,
        pieces: Pieces | None,
        doing: str = "reading the files",
        **options: Any,
    ) -> Outcome:
        """Commits the rows of a batch. pieces: what the rows are pieces of; None if they are rows. options: of `write`."""
        own = {file.identifier(self.operation, self.missing_in): file.modified for file in batch.files}
        additions = Additions({**batch.known, **own}, batch.known, self.force, batch.removal)
        request = Request.of(rows, "append", pieces=pieces, additions=additions, **options)
        with own_errors(doing):
            return write_rows(rows, self.target, request, self.storage_options)

    def _planned(self, files: Sequence[ListedFile], changed: Sequence[ListedFile]) -> list[Batch]:
        """How changed files are loaded again. files: all of the source."""
        if not changed:
            return []
        listed = {file.identifier(self.operation): file for file in files}
        with self.table() as table:
            of = Reloads(Transaction(table), self.target, self.operation, self.path_column, listed, self.bad_records)
            return of.plan(changed, self.commit_bytes)

    def run(self, files: Sequence[ListedFile], done: Done) -> Done:
        """Loads the files that the table does not have, and those that have changed if they are to be, commit by commit.

        done: what was done before. Returns the totals with this.
        """
        bad = None if self.bad_records is None else replace(self, target=self.bad_records)
        for table in filter(None, (self, bad)):
            table.check_writable()
        times = self.times(files)
        changed = reloading.changed_files(files, times, self.changed, self.target)
        anew = changed if self.changed == "reload" else []
        if anew and bad is not None:
            bad.check_writable(overwrite=True)
        plan = partial(self._planned, files)
        reloads = plan(anew)
        there = {file for file in files if file.name in times}.difference(*(batch.files for batch in reloads))
        wanted = [file for file in files if file not in there]
        self.begin(wanted, there.difference(changed))
        total = sum(file.size for file in wanted)

        new = batches((Batch([file]) for file in wanted if file.name not in times), self.commit_bytes)
        commits = [committed(batch.files, self.write, self.times, again=False) for batch in new]
        commits.append(committed(anew, self.write, self.loaded, plan, reloads, again=True))
        for batch, (commit, malformed) in chain.from_iterable(commits):
            done = self.end(done, batch.files, malformed)
            done = replace(
                done, version=commit.version, commits=done.commits + 1, files=done.files + len(batch.files),
                rows=done.rows + commit.rows, bytes_read=done.bytes_read + sum(file.size for file in batch.files),
                bytes_written=done.bytes_written + commit.bytes,
            )  # fmt: skip
            if self.progress is not None:
                self.progress(Progress(done.files, len(wanted), done.bytes_read, total, done.rows))
        return replace(done, skipped=len(files) - done.files, changed=len(changed))


def chosen(listed: Sequence[messages.SourceFile], is_known: Callable[[str], bool]) -> tuple[list[ListedFile], int]:
    """The files to read, in the order of their names, and how many were left out because of their name.

    Files below directories are read if their name is known, or if that of none is; those that are named, in any case.
    """
    named = {file.path for file in listed if file.named}
    files = sorted({file.path: file for file in listed}.values(), key=attrgetter("path"))
    wanted = [file for file in files if file.path in named or is_known(file.path)] or files
    chosen = [ListedFile(file.path, file.size, max(0, file.modified), file.values or ()) for file in wanted]
    return chosen, len(files) - len(chosen)


def in_tasks(spark: SparkSession, columns: Mapping[str, pa.Array], sizes: Sequence[int], task_bytes: int) -> DataFrame:
    """A DataFrame with a row for each piece, in as many tasks as cores, or more if a task would read more than task_bytes.

    sizes: about how many bytes are read for each row. Neighbours stay together, since they may be of one partition.
    """
    total = sum(sizes)
    tasks = max(1, min(len(sizes), max(spark.sparkContext.defaultParallelism, -(-total // task_bytes))))
    starts = accumulate(sizes, initial=0)
    numbers = [min(tasks - 1, (start + size // 2) * tasks // total) for start, size in zip(starts, sizes, strict=False)]
    rows = spark.createDataFrame(pa.table({**columns, _TASK: pa.array(numbers, pa.int32())}))
    return pairs.by_number(rows, max(numbers, default=0) + 1, F.col(quoted(_TASK))).drop(_TASK)


def _weight(piece: Piece) -> int:
    """About how many bytes a piece has, and as many as are read in the time that it takes to open it."""
    size = (piece.size if piece.end is None else piece.end) - piece.start
    return size * (1 if piece.compression is None else _RATIO) + OPENING


def cut(piece: Piece, piece_bytes: int) -> Iterator[Piece]:
    """A whole file in pieces of so many bytes."""
    for start, end in spans(piece.size, piece_bytes):
        yield replace(piece, start=start, end=end)


@contextmanager
def own_errors(doing: str) -> Iterator[None]:
    """Raises an error of this package in a task of Spark's as itself, and other errors of Python there as TableError."""
    try:
        yield
    except PythonException as error:
        text = str(error)
        own = _OWN_ERROR.search(text)
        if own is not None:
            raise getattr(errors, own[1], DeltaVariantError)(own[2].strip().splitlines()[0]) from error
        raise TableError(f"{doing} failed: {jvm.not_loaded(text) or text.strip().splitlines()[-1]}") from error
