"""Files that have changed since a table took them: which they are, and how their rows are replaced.

A file is known by its path, and its transaction identifier has its modification time, so a change is known without reading. In:
the files of a listing and the times that the table has. Out: for each commit the files to load anew, and what it removes.

The old rows of a file are found in one of two ways:

    by a column with the URI of the file    DELETE of the rows that have it, by Delta, in the transaction that adds the new rows
    by the log                              the data files of the commit that took the file, if they are still whole. They have
                                            rows of all files that this commit took, so all of these are loaded anew

The column is asked first. It decides if it is certain to name all rows of the file (`Reloads._by_column`).

Invariant: one commit removes the old rows, adds the new ones and records the new times. A file whose old rows are not known for
certain is an error, before anything is written unless another writer comes in between: the plan is then made anew, after the
commits that are done.
"""

# ruff: noqa: SLF001 -- PySpark gives no public way to its JVM

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import unquote

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # what PySpark programs call it

from delta_variant import jvm
from delta_variant.errors import ConflictError, DeltaVariantWarning, TableError, UnsupportedFeatureError
from delta_variant.messages import FoundLoads, Removal, decoded
from delta_variant.paths import quoted
from delta_variant.sources import TRIES, SourceFile
from delta_variant.transaction import Table, Transaction, own_session
from delta_variant.writer.partitions import uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Changed = Literal["skip", "error", "reload"]
CHOICES: tuple[Changed, ...] = ("skip", "error", "reload")
_SHOWN = 3
_MOST_URIS = 1 << 20

Result = TypeVar("Result")


def check(changed: str, *, force: bool) -> None:
    """Raises UnsupportedFeatureError for a choice that there is not, and for one that leaves nothing to choose."""
    if changed not in CHOICES:
        raise UnsupportedFeatureError(f"changed={changed!r} is not one of {', '.join(CHOICES)}")
    if force and changed != "skip":
        raise UnsupportedFeatureError(
            f"force=True adds the rows of all files, so changed={changed!r} has no effect: leave one out"
        )


def changed_files(
    files: Sequence[SourceFile], times: Mapping[str, int], choice: Changed, target: str | os.PathLike[str]
) -> list[SourceFile]:
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
class Reload:
    """What one commit loads anew."""

    files: tuple[SourceFile, ...]
    known: Mapping[str, int]
    """The transaction identifiers that the table has for files whose rows are replaced: versions by application."""
    removal: Removal | None
    """The old rows; None if the table has none."""
    kept: DataFrame | None = None
    """Rows of removed data files that are added again."""

    def and_also(self, other: Reload) -> Reload:
        """Both in one commit. They remove the same kind of thing, and no rows are kept."""
        removal = self.removal
        if removal is not None and other.removal is not None:
            removal = Removal(removal.column, removal.texts + other.removal.texts)
        return Reload(self.files + other.files, {**self.known, **other.known}, removal or other.removal)


@dataclass(frozen=True)
class Reloads:
    """Plans reloads for one table."""

    spark: SparkSession
    target: str | os.PathLike[str]
    storage_options: Mapping[str, str]
    operation: str
    """`ingest` or `convert`."""
    column: str | None
    """The column with the URI of the file, if the table has one."""
    listed: Mapping[str, SourceFile] = field(repr=False)
    """All files of the source, by their identifiers."""
    bad_records: str | os.PathLike[str] | None = None
    """The table of malformed documents."""

    def plan(self, changed: Sequence[SourceFile], commit_bytes: int) -> list[Reload]:
        """The commits that load files anew, with whole commits of earlier loads where the log says what to remove.

        Raises TableError for a file whose old rows are not known for certain.
        """
        if not changed:
            return []
        with own_session(self.spark, self.storage_options) as spark:
            transaction = Transaction(Table.of(spark, self.target))
            transaction.features.check_writable(overwrite=True)
            times = transaction.identifiers(self.listed)
            by_column, others = self._by_column(transaction, changed, times)
            return [*_together(by_column, commit_bytes), *_together(self._by_log(transaction, others, times), commit_bytes)]

    def _by_column(
        self, transaction: Transaction, changed: Sequence[SourceFile], times: Mapping[str, int]
    ) -> tuple[list[Reload], list[SourceFile]]:
        """The reloads of files whose rows the column is certain to name, and the other files.

        Rows without the URI may be from a load without the column, so the column is certain if it has no NULLs and the URI is
        there, if it names a file that the table took in every row, or if the URI is there and the log says that the rows of the
        file are of one load.
        """
        names = {field["name"].lower(): field["name"] for field in transaction.features.schema["fields"]}
        name = names.get((self.column or "").lower())
        if name is None:
            return [], list(changed)
        reloads, others, uris = [], [], [uri(file.name) for file in changed]
        found = self._uris(transaction, name, uris)
        has_nulls = None in found
        names_all = not has_nulls and (found.issuperset(uris) or self._names_files(transaction, name))
        loads = Loads.of(transaction, self.operation) if has_nulls and len(found) > 1 else None
        for file, value in zip(changed, uris, strict=True):
            identifier = file.identifier(self.operation)
            if names_all or (value in found and (loads is None or loads.is_of_one(identifier))):
                known = {identifier: times[identifier]} if identifier in times else {}
                reloads.append(Reload((file,), known, Removal(name, (value,))))
            else:
                others.append(file)
        return reloads, others

    def _uris(self, transaction: Transaction, name: str, uris: list[str]) -> set[str | None]:
        """Those of the URIs that a column has, and None if it has NULLs."""
        with jvm.delta_errors(f"looking for the rows of changed files in {os.fspath(self.target)}"):
            rows = DataFrame(_replace(transaction).candidates(name, uris), transaction.spark)
            column = F.col(quoted(name))
            return {row[0] for row in rows.where(column.isin(uris) | column.isNull()).select(column).distinct().collect()}

    def _names_files(self, transaction: Transaction, name: str) -> bool:
        """Whether every row has the URI of a file that the table took in a column."""
        with jvm.delta_errors(f"looking for the rows of changed files in {os.fspath(self.target)}"):
            values = transaction.rows().select(F.col(quoted(name))).distinct().limit(_MOST_URIS + 1).collect()
        names = [unquote(str(value)) for (value,) in values if value is not None]
        taken = {SourceFile(name, 0, 0).identifier(self.operation) for name in names}
        return len(names) == len(values) <= _MOST_URIS and transaction.identifiers(taken).keys() == taken

    def _by_log(self, transaction: Transaction, files: Sequence[SourceFile], times: Mapping[str, int]) -> list[Reload]:
        """The reloads of whole commits."""
        if not files:
            return []
        reloads, done = [], set()
        loads = Loads.of(transaction, self.operation)
        for file in files:
            if file.name in done:
                continue
            paths, identifiers, fault = loads.of_file(file.identifier(self.operation))
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
            reloads.append(Reload(tuple(together), known, Removal(None, tuple(paths)) if paths else None))
        return reloads

    def _advice(self) -> str:
        too = "" if self.bad_records is None else f", and those of its malformed documents in {os.fspath(self.bad_records)},"
        rows = f"DELETE its rows{too} and load it alone with force=True"
        return f"{rows}; with path_column=… from the first load on, rows are found by the file's URI"


@dataclass(frozen=True)
class Loads:
    """The commits of a table that took files (`scala/Loads.scala`)."""

    _loads: Any

    @classmethod
    def of(cls, transaction: Transaction, operation: str) -> Loads:
        """Those of an operation, from the log up to the snapshot of a transaction."""
        spark, delta = transaction.spark, transaction.delta
        with jvm.delta_errors("reading the log"):
            prefix = f"delta_variant.{operation}/"
            return cls(jvm.construct(spark, "Loads", transaction.log, transaction.version, prefix, delta.catalogTable()))

    def of_file(self, *identifiers: str) -> tuple[list[str], dict[str, int], str | None]:
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

    def is_of_one(self, identifier: str) -> bool:
        """Whether all rows of a file are certain to come from one load."""
        with jvm.delta_errors("reading the log"):
            return bool(self._loads.isOfOne(identifier))


def of_values(
    table: tuple[SparkSession, str | os.PathLike[str], Mapping[str, str]],
    operation: str,
    column: str,
    values: Mapping[str, str],
) -> Reload:
    """What replaces the rows with some texts in a column. table: session, target and storage options.

    values: the texts by the identifiers of their files. Tables of malformed documents are shared, and another table may have
    documents of the same file there: as long as the data files with the rows are whole, only rows in these are removed.
    Otherwise nothing says whose the rows are, and those of other tables are removed with them.
    """
    if not values:
        return Reload((), {}, None)
    spark, target, options = table
    texts = tuple(values.values())
    with own_session(spark, options) as own:
        transaction = Transaction(Table.of(own, target))
        paths, identifiers, fault = Loads.of(transaction, operation).of_file(*values)
        if fault is not None:
            return Reload((), transaction.identifiers(values), Removal(column, texts))
        known = transaction.identifiers(identifiers)
        if not paths:
            return Reload((), known, None)
        with jvm.delta_errors(f"reading data files of {os.fspath(target)}"):
            rows = _replace(transaction).open(paths)
        if rows is None:
            raise ConflictError(f"another writer has changed data files of {os.fspath(target)}")
        others = F.col(quoted(column)).isNull() | ~F.col(quoted(column)).isin(list(texts))
        kept = jvm.data_frame(spark, rows.logicalPlan()).where(others)
        return Reload((), known, Removal(None, tuple(paths)), kept)


def _replace(transaction: Transaction) -> Any:
    """What changes rows in a transaction (`scala/Replace.scala`)."""
    spark = transaction.spark
    return jvm.construct(spark, "Replace", spark._jsparkSession, transaction.delta)


def _together(reloads: Sequence[Reload], commit_bytes: int) -> Iterator[Reload]:
    """Reloads of one kind, several in a commit."""
    batch: Reload | None = None
    for reload in reloads:
        size = sum(file.size for file in (*(batch.files if batch else ()), *reload.files))
        if batch is not None and size > commit_bytes:
            yield batch
            batch = reload
        else:
            batch = reload if batch is None else batch.and_also(reload)
    if batch is not None:
        yield batch


def reloaded(
    changed: Sequence[SourceFile],
    plan: Callable[[Sequence[SourceFile]], list[Reload]],
    write: Callable[[Reload], Result],
    times_of: Callable[[Sequence[SourceFile]], Mapping[str, int]],
    first: list[Reload],
) -> Iterator[tuple[Reload, Result]]:
    """Commits reloads, and plans anew what is left where another writer came in between.

    first: the plan for all. times_of: the modification times that the table has. Raises what `write` and `plan` raise; a plan
    that is made anew may be refused after commits that are done.
    """
    left, reloads = list(changed), first
    for attempt in range(TRIES):
        try:
            for reload in reloads:
                yield reload, write(reload)
                left = [file for file in left if file not in reload.files]
        except ConflictError:  # noqa: PERF203  # a commit takes seconds
            times = times_of(left)
            left = [file for file in left if not file.has_time(times.get(file.name))]
            if not left:
                return
            if attempt == TRIES - 1:
                raise
            reloads = plan(left)
        else:
            return
