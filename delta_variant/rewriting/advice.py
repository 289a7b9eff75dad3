"""`VariantTable.advise`: what to cluster by, what to bound and what to shred, for the queries that a table is asked.

In: queries, as `explain` reports on them, and the bounds in the log. Out: advice, each with the files that it would save.

    cluster   a comparison leaves m files, since d files overlap at a value of its path on average. In files ordered by the path
              it leaves about m / d; by k paths along a Hilbert curve, n^((k-1)/k) times as many
    bound     files without bounds for the path of a comparison, all of which are opened
    shred     files in which no typed column is proven for a path that a query uses, so that it is rebuilt row by row
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import numpy as np
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from delta_variant.errors import DeltaVariantError, InvalidSchemaError, SessionError, TableError
from delta_variant.explanation import Scan, explain, has_rules
from delta_variant.explanation import query as query_of
from delta_variant.optimizer import queries as ran
from delta_variant.rewriting.arrangement import NONE, overlaps
from delta_variant.rewriting.driver import checked_keys, files_of, optimizing, reorganizing, shred_candidates
from delta_variant.transaction import Table

_FEW = 2
"""A path at whose values fewer files than this overlap on average is in order."""


@dataclass(frozen=True)
class Advice:
    """What would make the queries faster."""

    action: Literal["cluster", "bound", "shred"]
    paths: tuple[str, ...]
    queries: int
    """How many of the queries it serves."""
    files_saved: int
    """How many files fewer these queries would open, all together; for `shred`, read row by row. An estimate."""
    reason: str
    call: str
    """What does it."""


def advise(table: Table, queries: Iterable[str | DataFrame] | None) -> list[Advice]:
    """Advice for these queries, as `VariantTable.advise` says."""
    if isinstance(queries, str | DataFrame):
        raise InvalidSchemaError("queries must be a list of SQL texts and DataFrames, also for one query")
    spark = table.spark
    if not has_rules(spark):
        raise SessionError(
            "advise needs to know what data skipping does for the queries: call delta_variant.enable(spark) first"
        )
    name = str(table.log.dataPath()) if table.entry is None else str(table.entry.identifier().unquotedString())
    scans = [scan for scan in (_ran(spark) if queries is None else _scans(spark, queries)) if scan.table == name]
    if not scans and queries is None:
        raise TableError(f"no query of this session has read {table.name} since enable: name queries that do")
    if not scans:
        raise TableError(f"none of the queries reads {table.name}: pass queries that do")
    if all(scan.files_after_delta is None for scan in scans):
        raise TableError(
            f"none of the queries reads files of {table.name} that Delta has chosen one by one: {scans[0].reasons[0]}"
        )
    found = [*_to_bound(table, scans), *_to_shred(table, scans), *_to_cluster(table, scans)]
    return sorted(found, key=lambda advice: -advice.files_saved)


def _scans(spark: SparkSession, queries: Iterable[str | DataFrame]) -> Iterator[Scan]:
    for query in queries:
        yield from explain(query_of(spark, query) if isinstance(query, str) else query).scans


def _ran(spark: SparkSession) -> Iterator[Scan]:
    """The scans of the queries that the session has run. Those that cannot be planned any more are left out."""
    for df in ran(spark):
        with suppress(PySparkException, Py4JError):  # of a table that is gone
            yield from explain(df).scans


def _to_bound(table: Table, scans: Sequence[Scan]) -> Iterable[Advice]:
    more = ""
    try:
        table.features().check_new_bounds()
    except DeltaVariantError:
        more = ", tags_only=True"
    lacking: dict[str, list[int]] = defaultdict(list)
    for scan in scans:
        for path, files in {finding.path: finding.files_lacking for finding in scan.findings if finding.files_lacking}.items():
            lacking[path].append(min(files, scan.files_after_bounds or 0))
    for path, each in lacking.items():
        if sum(each):
            reason = f"up to {max(each):,} files have no bounds for {path} that can be used"
            yield Advice("bound", (path,), len(each), sum(each), reason, f"table.analyze(paths=[{path!r}]{more})")


def _to_shred(table: Table, scans: Sequence[Scan]) -> Iterable[Advice]:
    try:
        snapshot = reorganizing(table, shreds=False)
    except DeltaVariantError:
        return  # a table that `shred` refuses, whatever its properties are
    plain: dict[str, int] = {}  # by path, in how many files no typed column is proven
    saved = []
    for scan in scans:
        opened = scan.files_after_bounds or 0
        lacking = {path: opened - files for path, files in scan.typed_files.items() if files < opened}
        plain |= {path: max(files, plain.get(path, 0)) for path, files in lacking.items()}
        saved += [max(lacking.values())] if lacking else []
    if plain and not shred_candidates(snapshot.add_actions(None)).isEmpty():
        worst = max(plain, key=lambda path: plain[path])
        reason = f"no typed column is proven for {worst} in up to {plain[worst]:,} files that queries open"
        call = "table.enable_shredding(); table.shred(); table.analyze()"
        yield Advice("shred", tuple(plain), len(saved), sum(saved), reason, call)


def _to_cluster(table: Table, scans: Sequence[Scan]) -> Iterable[Advice]:
    """Advice for each path that queries compare, and for the two best if they serve different queries."""
    asked: dict[str, list[tuple[int, int, int]]] = defaultdict(list)  # number of the scan, files left by the path, files opened
    for number, scan in enumerate(scans):
        for finding in scan.findings:
            left = (scan.files_after_delta or 0) - finding.files_ruled_out
            if finding.files_lacking < left:
                asked[finding.path].append((number, left, scan.files_after_bounds or 0))
    saved: dict[str, dict[int, int]] = {}
    overlap: dict[str, float] = {}
    count = 1
    try:
        snapshot = optimizing(table)
    except DeltaVariantError:
        return  # a table that `optimize` refuses
    for path, questions in asked.items():
        try:
            _, _, files = files_of(snapshot, checked_keys(snapshot.features, [path]), None)
        except DeltaVariantError:
            continue  # a path through an array, which has no bounds; a column of an older version
        ranged = np.flatnonzero(files.low[:, 0] != NONE)
        [overlap[path]] = overlaps(files, ranged)
        count = max(count, len(files))
        if overlap[path] >= _FEW:
            saved[path] = _saved(questions, overlap[path])
            reason = f"{overlap[path]:.0f} of {len(files):,} files overlap at a value of {path}, on average"
            yield _clustering((path,), saved[path], reason)
    best = sorted(saved, key=lambda path: -sum(saved[path].values()))[:2]
    if len(best) == 2 and set(saved[best[1]]) - set(saved[best[0]]):
        both: dict[int, int] = defaultdict(int)
        for path in best:
            for number, files_saved in _saved(asked[path], overlap[path] / count**0.5).items():
                both[number] = max(both[number], files_saved)
        yield _clustering((best[0], best[1]), both, f"queries compare {best[0]} and {best[1]}, not always both")


def _saved(questions: Iterable[tuple[int, int, int]], divisor: float) -> dict[int, int]:
    """For each scan, the files that it opens fewer if its comparison leaves so many times fewer files."""
    return {number: int(max(0, opened - max(1, left / max(1, divisor)))) for number, left, opened in questions}


def _clustering(paths: tuple[str, ...], saved: dict[int, int], reason: str) -> Advice:
    call = f"table.optimize(cluster_by={list(paths)!r})"
    return Advice("cluster", paths, len(saved), sum(saved.values()), reason, call)
