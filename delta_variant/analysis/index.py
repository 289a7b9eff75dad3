"""The driver's side of the index of values (`membership`): which files lack filters, the job that builds them, the commit.

In: a table, and paths. Out: files in the table's directory, and a transaction identifier that tells queries that there are
some. Source: `protocol/README.md`, "The index of values".

Invariants: no Add action and no metadata is changed, so other writers see no conflict. After any failure, written filters stay,
and the next call builds the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from delta_variant import mapping
from delta_variant.analysis.task import IndexReport, index_files
from delta_variant.features import TableFeatures
from delta_variant.membership.plan import DataFile, IndexPlan, Path
from delta_variant.membership.sidecars import APPLICATION, Sidecars
from delta_variant.paths import ColumnPath, dotted, steps
from delta_variant.progress import Progress
from delta_variant.transaction import Table
from delta_variant.writer import indexing

_BATCH_FILES = 5000
_TASKS_PER_CORE, _FILES_PER_TASK = 4, 8


@dataclass(frozen=True)
class Indexed:
    """What an analysis did for the index of values."""

    files: int
    """How many files lacked filters."""
    filters: int
    """How many filters they have got, at most one for each path."""
    bytes: int
    """The size of these filters on disk."""
    bytes_data: int
    """The size of the files."""
    bytes_read: int
    no_room: dict[str, int]
    """By path, how many files have no room for a useful filter: ask for fewer paths, or raise `budget`."""
    mixed: dict[str, int]
    """By path, how many files have values of several types, or of one that has no filters."""
    failed: dict[str, str]
    """Files that could not be read, and why."""


def index(
    table: Table, features: TableFeatures, asked: Mapping[ColumnPath, Sequence[ColumnPath]], analysis: Any, budget: float,
    progress: Callable[[Progress], object] | None, *, everything: bool,
) -> tuple[Indexed, int]:  # fmt: skip
    """Builds the filters that files of a table lack. Returns also the version of the commit, -1 without one.

    asked: paths by the logical names of their columns. analysis: the `scala/Analysis.scala` of the files, after `start`.
    everything: whether these are all files of the table. If so, the small files of the index are put together too.
    """
    spark = table.spark
    files = {DataFile(*row) for row in DataFrame(analysis.listed(), spark).select("path", "size", "modificationTime").collect()}
    physical = mapping.physical_paths(features.schema)
    names = {(physical[column], keys): f"{dotted(column)}:{steps(keys)}" for column, paths in asked.items() for keys in paths}
    plan = indexing.plan(table.storage, features, asked, budget, int(table.snapshot().numOfFiles()))
    todo = list(_lacking(plan, files, names))
    context = spark.sparkContext
    total, looked, whole = IndexReport(), 0, sum(file.size for file, _ in todo)
    counts: Counter[tuple[Path, str]] = Counter()
    for first in range(0, len(todo), _BATCH_FILES):
        batch = todo[first : first + _BATCH_FILES]
        cores = context.defaultParallelism
        tasks = min(len(batch), _TASKS_PER_CORE * cores, max(cores, len(batch) // _FILES_PER_TASK))
        for report in context.parallelize(batch, tasks).mapPartitions(partial(index_files, plan)).collect():
            counts.update(report.counts)
            total.written += report.written
            total.read += report.read
            total.failed.update(report.failed)
        looked += sum(file.size for file, _ in batch)
        if progress is not None:
            progress(Progress(first + len(batch), len(todo), looked, whole, 0))
    if everything:
        sidecars = Sidecars(plan.location, plan.location.open(), plan.table)
        for path in plan.paths:
            sidecars.compact(path, files)
    version = int(analysis.announce(APPLICATION, bool(total.written))) if files else -1

    def of_kind(kind: str) -> dict[str, int]:
        return {names[path]: count for (path, found), count in counts.items() if found == kind}

    filters = sum(count for (_, kind), count in counts.items() if kind not in {"small", "mixed"})
    no_room, mixed = of_kind("small"), of_kind("mixed")
    return Indexed(len(todo), filters, total.written, whole, total.read, no_room, mixed, total.failed), version


def _lacking(plan: IndexPlan, files: Collection[DataFile], paths: Iterable[Path]) -> Iterator[tuple[DataFile, frozenset[Path]]]:
    """The files that lack an entry for some of the paths, with these paths."""
    sidecars = Sidecars(plan.location, plan.location.open(), plan.table)
    known: dict[Path, set[DataFile]] = {}
    for path in paths:
        known[path] = {one.file for one in sidecars.entries(path) if one.kind != "small" or one.budget >= plan.budget}
    for file in sorted(files):
        lacking = frozenset(path for path in known if file not in known[path])
        if lacking:
            yield file, lacking
