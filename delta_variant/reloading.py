"""The files of a listing and the batches that are committed; which files have changed, and how their rows are replaced.

A file is known by its path, and its transaction identifier has its modification time, so a change is known without reading. In:
the files of a listing and the times that the table has. Out: for each commit the files to load again, and what it removes.

The old rows of a file are found in one of two ways:

    by a column with the URI of the file    DELETE of the rows that have it, by Delta, in the transaction that adds the new rows
    by the log                              the data files of the commit that took the file, if they are still whole. They have
                                            rows of all files that this commit took, so all of these are loaded again

The column is used if it is certain to name all rows of the file (`Reloads._by_column`), and else the log.

Invariant: one commit removes the old rows, adds the new ones and records the new times. A file whose old rows are not known for
certain is an error, and nothing is written. If another writer commits in between, the plan is made again, and such an error can
come after the commits that are done.
"""

# ruff: noqa: SLF001 -- PySpark gives no public way to its JVM

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # what PySpark programs call it

from delta_variant import jvm
from delta_variant.errors import ConflictError, DeltaVariantWarning, TableError, UnsupportedFeatureError
from delta_variant.messages import Candidates, FilePaths, FoundLoads, Removal, decoded, encoded
from delta_variant.paths import quoted
from delta_variant.transaction import Transaction
from delta_variant.writer.partitions import uri

Changed = Literal["skip", "error", "reload"]
CHOICES: tuple[Changed, ...] = ("skip", "error", "reload")
TRIES = 3
_SHOWN = 3
_MOST_URIS = 1 << 20

Result = TypeVar("Result")


@dataclass(frozen=True)
class ListedFile:
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


def check(changed: str, *, force: bool) -> None:
    """Raises UnsupportedFeatureError for a choice that there is not, and for one that leaves nothing to choose."""
    if changed not in CHOICES:
        raise UnsupportedFeatureError(f"changed={changed!r} is not one of {', '.join(CHOICES)}")
    if force and changed != "skip":
        raise UnsupportedFeatureError(
            f"force=True adds the rows of all files, so changed={changed!r} has no effect: leave one out"
        )


def changed_files(
    files: Sequence[ListedFile], times: Mapping[str, int], choice: Changed, target: str | os.PathLike[str]
) -> list[ListedFile]:
    """The files that the table took with another modification time. times: those that the table has, by name.

    A DeltaVariantWarning says which they are if they are to be left out. Raises TableError if they are to be an error.
    """
    changed = [file for file in files if file.name in times and not file.has_time(times[file.name])]
    if changed and choice != "reload":
        names = ", ".join(file.name for file in changed[:_SHOWN]) + (", …" if len(changed) > _SHOWN else "")
        what = "file has" if len(changed) == 1 else "files have"
        told = f"{len(changed):,} {what} changed since {os.fspath(target)} took them: {names}"
        replaces = "changed='reload' replaces their rows"
        if choice == "error":
            raise TableError(f"{told}; {replaces}, and changed='skip' leaves them out")
        warnings.warn(f"{told}. They were left out; {replaces}", DeltaVariantWarning, stacklevel=4)
    return changed


@dataclass(frozen=True)
class Batch:
    """What one commit loads."""

    files: Sequence[ListedFile] = ()
    known: Mapping[str, int] = field(default_factory=dict)
    """The transaction identifiers that the table has for files whose rows are replaced: versions by application."""
    removal: Removal | None = None
    """The old rows; None if the table has none."""
    kept: DataFrame | None = None
    """Rows of removed data files that are added again."""


def batches(parts: Iterable[Batch], commit_bytes: int) -> Iterator[Batch]:
    """The batches, put together as far as their files have `commit_bytes`.

    Those that remove something all remove rows by one column, or all remove data files, and keep no rows.
    """
    batch: list[Batch] = []
    size = 0
    for part in parts:
        more = sum(file.size for file in part.files)
        if batch and size + more > commit_bytes:
            yield _joined(batch)
            batch, size = [], 0
        batch.append(part)
        size += more
    if batch:
        yield _joined(batch)


def _joined(batch: Sequence[Batch]) -> Batch:
    removals = [part.removal for part in batch if part.removal is not None]
    texts = tuple(text for removal in removals for text in removal.texts)
    removal = Removal(removals[0].column, texts) if removals else None
    known = {identifier: version for part in batch for identifier, version in part.known.items()}
    return Batch([file for part in batch for file in part.files], known, removal)


@dataclass(frozen=True)
class Reloads:
    """Finds the old rows of files in one table."""

    transaction: Transaction
    """One that is not committed."""
    target: str | os.PathLike[str]
    operation: str
    """`ingest` or `convert`."""
    column: str | None
    """The column with the URI of the file, if the table has one."""
    listed: Mapping[str, ListedFile] = field(default_factory=dict)
    """All files of the source, by their identifiers."""
    bad_records: str | os.PathLike[str] | None = None
    """The table of malformed documents."""

    def plan(self, changed: Sequence[ListedFile], commit_bytes: int) -> list[Batch]:
        """The commits that load files again, with whole commits of earlier loads where the log says what to remove.

        Raises TableError for a file whose old rows are not known for certain.
        """
        self.transaction.features.check_writable(overwrite=True)
        times = self.transaction.identifiers(self.listed)
        by_column, others = self._by_column(changed, times)
        return [*batches(by_column, commit_bytes), *batches(self._by_log(others, times), commit_bytes)]

    def of_values(self, values: Mapping[str, str], users: SparkSession) -> Batch:
        """What replaces the rows with some texts in the column, of those files that the table has taken.

        values: the texts by the identifiers of their files. users: the session of the new rows. Tables of malformed documents
        are shared, and another table may have documents of the same file there: as long as the data files with the rows are
        whole, only rows in these are removed. Otherwise nothing says whose the rows are, and those of other tables are removed
        with them.
        """
        known = self.transaction.identifiers(values)
        if not known:
            return Batch()
        assert self.column is not None
        texts, column = tuple(values[identifier] for identifier in known), F.col(quoted(self.column))
        paths, identifiers, fault = self._in_log(*known)
        if fault is not None:
            return Batch((), known, Removal(self.column, texts))
        known = self.transaction.identifiers(identifiers)
        if not paths:
            return Batch((), known)
        with jvm.delta_errors(f"reading data files of {os.fspath(self.target)}"):
            rows = self._replace.open(encoded(FilePaths(tuple(paths))))
        if rows is None:
            raise ConflictError(f"another writer has changed data files of {os.fspath(self.target)}")
        kept = jvm.data_frame(users, rows.logicalPlan()).where(column.isNull() | ~column.isin(list(texts)))
        return Batch((), known, Removal(None, tuple(paths)), kept)

    def _by_column(self, changed: Sequence[ListedFile], times: Mapping[str, int]) -> tuple[list[Batch], list[ListedFile]]:
        """The reloads of files whose rows the column is certain to name, and the other files.

        Rows without the URI may be from a load without the column, so the column is certain if it has no NULLs and the URI is
        there, if it names a file that the table took in every row, or if the URI is there and the log says that the rows of the
        file are of one load.
        """
        names = {field["name"].lower(): field["name"] for field in self.transaction.features.schema["fields"]}
        name = names.get((self.column or "").lower())
        if name is None:
            return [], list(changed)
        reloads, others, uris = [], [], [uri(file.name) for file in changed]
        found = self._uris(name, uris)
        has_nulls = None in found
        names_all = not has_nulls and (found.issuperset(uris) or self._names_files(name))
        by_load = has_nulls and len(found) > 1
        for file, value in zip(changed, uris, strict=True):
            identifier = file.identifier(self.operation)
            if names_all or (value in found and (not by_load or self._is_of_one_load(identifier))):
                known = {identifier: times[identifier]} if identifier in times else {}
                reloads.append(Batch((file,), known, Removal(name, (value,))))
            else:
                others.append(file)
        return reloads, others

    def _uris(self, name: str, uris: list[str]) -> set[str | None]:
        """Those of the URIs that a column has, and None if it has NULLs."""
        with jvm.delta_errors(f"looking for the rows of changed files in {os.fspath(self.target)}"):
            rows = DataFrame(self._replace.candidates(encoded(Candidates(name, tuple(uris)))), self.transaction.spark)
            column = F.col(quoted(name))
            return {row[0] for row in rows.where(column.isin(uris) | column.isNull()).select(column).distinct().collect()}

    def _names_files(self, name: str) -> bool:
        """Whether every row has the URI of a file that the table took in a column."""
        with jvm.delta_errors(f"looking for the rows of changed files in {os.fspath(self.target)}"):
            values = self.transaction.rows().select(F.col(quoted(name))).distinct().limit(_MOST_URIS + 1).collect()
        names = [unquote(str(value)) for (value,) in values if value is not None]
        taken = {ListedFile(name, 0, 0).identifier(self.operation) for name in names}
        return len(names) == len(values) <= _MOST_URIS and self.transaction.identifiers(taken).keys() == taken

    def _by_log(self, files: Sequence[ListedFile], times: Mapping[str, int]) -> list[Batch]:
        if not files:
            return []
        reloads, done = [], set()
        for file in files:
            if file.name in done:
                continue
            paths, identifiers, fault = self._in_log(file.identifier(self.operation))
            if missing := [identifier for identifier in identifiers if identifier not in self.listed]:
                fault = f"its rows are in data files with those of {len(missing):,} files that are not in this listing"
            if fault is not None:
                raise TableError(
                    f"{file.name} has changed, and which rows of {os.fspath(self.target)} are the old ones of this file is not "
                    f"known: {fault}. {self._advice()}"
                )
            together = [self.listed[identifier] for identifier in sorted(identifiers)]
            done |= {other.name for other in together}
            known = {identifier: times[identifier] for identifier in identifiers if identifier in times}
            reloads.append(Batch(together, known, Removal(None, tuple(paths)) if paths else None))
        return reloads

    def _advice(self) -> str:
        too = "" if self.bad_records is None else f", and those of its malformed documents in {os.fspath(self.bad_records)},"
        rows = f"DELETE its rows{too} and load it alone with force=True"
        return f"{rows}; with path_column=… from the first load on, rows are found by the file's URI"

    @cached_property
    def _loads(self) -> Any:
        """The commits of the table that took files (`scala/Loads.scala`), up to the snapshot of the transaction."""
        by, prefix = self.transaction, f"delta_variant.{self.operation}/"
        with jvm.delta_errors("reading the log"):
            return jvm.construct(by.spark, "Loads", by.log, by.version, prefix, by.delta.catalogTable())

    def _in_log(self, *identifiers: str) -> tuple[list[str], dict[str, int], str | None]:
        """The data files with the rows of files, all files that have rows there, and why this is not known, or None."""
        with jvm.delta_errors("reading the log"):
            found = decoded(FoundLoads, self._loads.of(list(identifiers)))
        fault = next((load.fault for load in found.loads if load.fault), None)
        if found.missing:
            fault = f"the log begins with version {found.oldest}, after the commit that took the file"
        taken = dict.fromkeys(identifiers, 0)
        for load in found.loads:
            taken |= load.identifiers
        return sorted({path for load in found.loads for path in load.files}), taken, fault

    def _is_of_one_load(self, identifier: str) -> bool:
        """Whether all rows of a file are certain to come from one load."""
        with jvm.delta_errors("reading the log"):
            return bool(self._loads.isOfOne(identifier))

    @cached_property
    def _replace(self) -> Any:
        """What changes rows in the transaction (`scala/Replace.scala`)."""
        spark = self.transaction.spark
        return jvm.construct(spark, "Replace", spark._jsparkSession, self.transaction.delta)


def committed(
    files: Sequence[ListedFile],
    write: Callable[[Batch], Result],
    taken: Callable[[Sequence[ListedFile]], Collection[str]],
    plan: Callable[[Sequence[ListedFile]], Iterable[Batch]] = lambda files: [Batch(files)],
    first: Iterable[Batch] | None = None,
    *,
    again: bool,
) -> Iterator[tuple[Batch, Result]]:
    """Commits files, by default in one batch, and plans again what is left where another writer came in between.

    taken: the names of files that the table has already. plan: the batches of files. first: those of all, if they are known.
    again: whether a conflict about something else than these files is tried again too. Raises what `write` and `plan` raise; a
    plan that is made again may be refused after commits that are done.
    """
    left, batches = files, plan(files) if first is None else first
    for attempt in range(TRIES):
        try:
            for batch in batches:
                yield batch, write(batch)
                done = set(batch.files)
                left = [file for file in left if file not in done]
        except ConflictError:  # noqa: PERF203  # a commit takes seconds
            there = taken(left)
            left = [file for file in left if file.name not in there]
            if not left:
                return
            if attempt == TRIES - 1 or not (there or again):
                raise
            batches = plan(left)
        else:
            return
