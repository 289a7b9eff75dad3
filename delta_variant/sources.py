"""What `ingest` and `convert` have in common: files that a table takes once, as pieces that tasks read.

In: files of a listing (`scala/SourceFiles.scala`). Out: the files of each commit, their identifiers, and the pieces of each
task.

Invariant: each commit has a transaction identifier for every file that it took (PROTOCOL.md, "Transaction Identifiers"). A file
that the table knows, at any version, is not taken again, except by force or as a reload (W3). So an operation that was killed
is run again.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.errors import PythonException

from delta_variant import errors, jvm
from delta_variant.errors import ConflictError, DeltaVariantError, TableError, UnsupportedFeatureError
from delta_variant.hadoop import storage_of
from delta_variant.json_files.pieces import Piece
from delta_variant.messages import Listing, decoded
from delta_variant.transaction import Table, Transaction, own_session
from delta_variant.writer.arguments import Request

if TYPE_CHECKING:
    import os

    from pyspark.sql import SparkSession

    from delta_variant.storage import Storage

COMMIT_BYTES = 64 << 30
PIECE_BYTES = 128 << 20
"""Large files are read in pieces of this size."""
TASK_BYTES = 512 << 20
"""The most that one task reads, unless a single piece has more."""
OPENING = 4 << 20
"""Bytes that are read in the time that it takes to open a file."""
TRIES = 3
# The last line of the traceback of an error of this package in a task of Spark's.
_OWN_ERROR = re.compile(r"^delta_variant\.errors\.(\w+): (.*)", re.MULTILINE | re.DOTALL)
_PLACE = re.compile(r"(?:([\w.+-]+):)?(?://([^/]*))?(.*)", re.DOTALL)

Result = TypeVar("Result")


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
    `skipped`, or were loaded anew (`changed="reload"`), and are counted in `files`."""


@dataclass(frozen=True)
class SourceFile:
    """A file of a listing."""

    name: str
    """As Hadoop's Path prints it."""
    size: int
    modified: int
    """Milliseconds since 1970."""
    folders: tuple[str | None, ...] = ()
    """The values of the columns of its directories, as text."""

    def has_time(self, time: int | None) -> bool:
        """Whether a time is its modification time. Some stores tell milliseconds in a listing and seconds of a named file."""
        if time is None or time // 1000 != self.modified // 1000:
            return False
        return time == self.modified or 0 in (time % 1000, self.modified % 1000)

    def identifier(self, operation: str, missing_in: str = "") -> str:
        """The application of its transaction identifier. missing_in: for malformed documents, the id of the other table."""
        text = f"{self.name}\0{missing_in}" if missing_in else self.name
        return f"delta_variant.{operation}/{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"


def listed(spark: SparkSession, method: str, storage_options: Mapping[str, str], sources: Sequence[str], *more: Any) -> Listing:
    """What a method of `SourceFiles` returns for paths and globs. Raises TableError for what it cannot list."""
    jvm.classic(spark)
    options = jvm.scala_map(spark, storage_options)
    with jvm.delta_errors(f"listing {', '.join(sources)}"):
        lister = jvm.construct(spark, "SourceFiles", spark._jsparkSession, options)  # noqa: SLF001
        found = decoded(Listing, getattr(lister, method)(sources, *more))
    if found.unmatched:
        raise TableError(f"there are no files: {found.unmatched[0]} does not exist")
    if not found.files:
        raise TableError(f"there are no files below {', '.join(sources)}")
    return found


def check_options(operation: str, given: Iterable[str], known: Collection[str], instead: str) -> None:
    """Raises UnsupportedFeatureError for an option of `write` that an operation does not have, TypeError for one of neither.

    known: those that it has. instead: what takes the others, for the message.
    """
    for name in given:
        if name not in known and name in inspect.signature(Request.of).parameters:
            raise UnsupportedFeatureError(f"{operation} does not take {name}: use {instead}")
        if name not in known:
            raise TypeError(f"{operation}() got an unexpected keyword argument {name!r}")


def check_writable(
    spark: SparkSession,
    target: str | os.PathLike[str],
    storage_options: Mapping[str, str],
    *,
    overwrite: bool = False,
) -> None:
    """Refuses a table that `write` refuses, before files are read for it. overwrite: whether rows are to be removed."""
    with own_session(spark, storage_options) as own:
        transaction = Transaction(Table.of(own, target))
        if transaction.version >= 0:
            transaction.features.check_writable(overwrite=overwrite)


def known(
    spark: SparkSession,
    target: str | os.PathLike[str],
    storage_options: Mapping[str, str],
    files: Mapping[str, SourceFile],
) -> dict[str, int]:
    """The modification times with which a table took files, by their names. files: by their identifiers."""
    with own_session(spark, storage_options) as own:
        there = Transaction(Table.of(own, target)).identifiers(files)
    return {files[identifier].name: version for identifier, version in there.items()}


def committed(
    files: list[SourceFile],
    write: Callable[[list[SourceFile]], Result],
    known_of: Callable[[list[SourceFile]], Collection[str]],
    *,
    again: bool = False,
) -> tuple[list[SourceFile], Result | None]:
    """Writes files in one commit. Returns those that were taken: another writer may have taken some in between.

    write: commits files. known_of: the names of those that the table has. again: whether a conflict about something else than
    these files is tried again too. Raises what `write` raises.
    """
    for attempt in range(TRIES):
        try:
            return files, write(files)
        except ConflictError:  # noqa: PERF203  # a commit takes seconds
            there = known_of(files)
            if not (there or again) or attempt == TRIES - 1:
                raise
            files = [file for file in files if file.name not in there]
            if not files:
                break
    return [], None


def batches(files: Iterable[SourceFile], commit_bytes: int) -> Iterator[list[SourceFile]]:
    """The files of each commit."""
    batch: list[SourceFile] = []
    size = 0
    for file in files:
        if batch and size + file.size > commit_bytes:
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.size
    if batch:
        yield batch


def groups(sizes: Sequence[int], cores: int, task_bytes: int) -> list[int]:
    """The number of the task that reads each piece: as many tasks as cores, or more if a task would read more than task_bytes.

    Neighbours stay together, since they may be of one partition.
    """
    total = sum(sizes)
    tasks = max(1, min(len(sizes), max(cores, -(-total // task_bytes))))
    numbers, before = [], 0
    for size in sizes:
        numbers.append(min(tasks - 1, (before + size // 2) * tasks // total))
        before += size
    return numbers


@dataclass(frozen=True)
class Pieces:
    """Cuts files into pieces, and keeps the storages that their pieces name."""

    spark: SparkSession
    storage_options: Mapping[str, str]
    _storages: dict[str, tuple[int, Storage, str]] = field(default_factory=dict)

    @property
    def storages(self) -> tuple[Storage, ...]:
        """The storages of the files that were cut, by their numbers."""
        return tuple(storage for _, storage, _ in self._storages.values())

    def of(self, file: SourceFile) -> Piece:
        """A whole file."""
        scheme, host, path = _PLACE.fullmatch(file.name).groups()  # type: ignore[union-attr]
        root = f"{scheme}://{host}/" if host else f"{scheme or 'file'}:/"
        if root not in self._storages:
            state = self.spark._jsparkSession.sessionState()  # noqa: SLF001  # PySpark gives no public way
            conf = state.newHadoopConfWithOptions(jvm.scala_map(self.spark, self.storage_options))
            storage = storage_of(self.spark, jvm.static(self.spark, "org.apache.hadoop.fs.Path")(root), conf)
            self._storages[root] = len(self._storages), storage, storage.root.rstrip("/")
        number, _, prefix = self._storages[root]
        return Piece(number, prefix + path, file.name, file.size)


def cut(piece: Piece, piece_bytes: int) -> Iterator[Piece]:
    """A whole file in pieces of so many bytes."""
    for start in range(0, max(piece.size, 1), piece_bytes):
        end = start + piece_bytes
        yield replace(piece, start=start, end=end if end < piece.size else None)


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
