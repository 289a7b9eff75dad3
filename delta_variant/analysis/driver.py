"""The driver's side of `analyze`: which files lack bounds, the job that computes them, and the commits.

In: a table, and which columns, paths and partitions are asked for. Out: commits of Delta's "COMPUTE STATS", one for each batch
of files. Source: Delta PROTOCOL, "Add File and Remove File": an Add action of a file that the table has replaces the old one.

Invariant: after any failure, committed batches stay, and the next call goes on with the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from pyspark.sql import types as T

from delta_variant import jvm, mapping, stats
from delta_variant.analysis.index import Indexed, index
from delta_variant.analysis.plan import AnalysisPlan, AnalyzedColumn
from delta_variant.analysis.task import analyze_messages, remove_messages
from delta_variant.errors import InvalidSchemaError, TableError
from delta_variant.features import SHREDDING_FEATURES, TableFeatures
from delta_variant.messages import AnalysisSize, AnalyzedBatch, Committed, decoded
from delta_variant.paths import ColumnPath, dotted, parse_bounded_path, parse_column
from delta_variant.progress import Progress
from delta_variant.transaction import Table, bounded_columns
from delta_variant.writer import indexing, shredding_schemas
from delta_variant.writer.column_types import leaves

BATCH_FILES = 5000
"""A commit has about so many files, 20 MiB of statistics at most."""


@dataclass(frozen=True)
class Analyzed:
    """What an analysis did."""

    version: int | None
    """The last version that it committed; None if there was nothing to commit."""
    commits: int
    files: int
    """How many files have got bounds."""
    from_footers: int
    """Of these, how many from their footers alone."""
    from_columns: int
    """How many from typed columns too."""
    from_values: int
    """How many from whole VARIANT columns too."""
    rows: int
    bytes: int
    """The size of the files that were looked at."""
    bytes_read: int
    changed: tuple[str, ...]
    """Files that another writer changed or removed meanwhile. They were left out."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Files that could not be read, and why. They were left out."""
    feature: str | None = None
    """The table feature that the table has got."""
    indexed: Indexed | None = None
    """What was done for the index of values, if one was asked for."""


_NOTHING = Analyzed(None, 0, 0, 0, 0, 0, 0, 0, 0, ())


def analyze(
    table: Table,
    columns: Sequence[str] | None,
    paths: Sequence[str] | None,
    where: str | None,
    *,
    tags_only: bool,
    bloom: Sequence[str] | None,
    budget: float | None,
    progress: Callable[[Progress], object] | None,
) -> Analyzed:
    """Analyzes a table, as `VariantTable.analyze` says. table: in a session of its own.

    All arguments are checked before the table is changed or a file is written.
    """
    for name, given in (("columns", columns), ("paths", paths), ("bloom", bloom)):
        if isinstance(given, str):
            raise InvalidSchemaError(f"{name}={given!r} must be a list: [{given!r}]")
    features, done = table.features(to_change=True), _NOTHING
    share = indexing.share(budget, features.properties)
    by_name = columns is not None or paths is not None
    to_index: Mapping[ColumnPath, Sequence[ColumnPath]] = _asked(features, None, bloom) if bloom else {}
    if bloom is None and not by_name:
        schema = T.StructType.fromJson(dict(features.schema))
        to_index = shredding_schemas.paths_of(schema, features.properties, indexing.BLOOM)
    if where is not None:
        with jvm.delta_errors(f"analyzing {table.name}"):
            _analysis(table, everything=True).check(where)
    if by_name or not bloom:
        plan = _plan(table, features, _asked(features, columns, paths), tags_only=tags_only, by_name=by_name)
        if plan.columns:
            feature = _prepared(table, features, tags_only=tags_only)
            done = _run(table, partial(analyze_messages, plan), where, all_files=by_name, progress=progress)
            done = replace(done, feature=feature)
    if to_index:
        with jvm.delta_errors(f"indexing {table.name}"):
            analysis = _analysis(table, everything=True)
            analysis.start(BATCH_FILES, where)
            indexed, version = index(table, features, to_index, analysis, share, progress, everything=where is None)
            done = replace(done, indexed=indexed)
            if version >= 0:
                done = replace(done, version=version, commits=done.commits + 1)
    return done


def _analysis(table: Table, *, everything: bool) -> Any:
    """The files of a table (`scala/Analysis.scala`). everything: whether files with the marker are included."""
    spark = table.spark
    entry = jvm.scala_option(spark, table.entry)
    return jvm.construct(spark, "Analysis", spark._jsparkSession, table.log, entry, everything)  # noqa: SLF001


def remove_bounds(table: Table) -> Analyzed:
    """Removes the bounds of VARIANT columns, and the tags of this package, from all files of a table."""
    with jvm.delta_errors(f"reading {table.name}"):
        columns = bounded_columns(table.statistics(table.snapshot()))
    return _run(table, partial(remove_messages, columns), None, all_files=True, progress=None)


def _run(
    table: Table,
    task: Callable[[int, Iterator[bytes]], Iterator[bytes]],
    where: str | None,
    *,
    all_files: bool,
    progress: Callable[[Progress], object] | None,
) -> Analyzed:
    """Runs the jobs of an analysis, batch by batch. all_files: files with the marker too."""
    spark, done = table.spark, _NOTHING
    function = jvm.python_function(spark, task)
    with jvm.delta_errors(f"analyzing {table.name}"):
        analysis = _analysis(table, everything=all_files)
        size = decoded(AnalysisSize, analysis.start(BATCH_FILES, where))
        files = 0
        for number in range(size.batches):
            batch = decoded(AnalyzedBatch, analysis.run(number, function))
            done = _sum(done, batch, decoded(Committed, analysis.commit()))
            files += batch.files
            if progress is not None:
                progress(Progress(files, size.files, done.bytes, size.bytes, done.rows))
    return done


def _asked(
    features: TableFeatures, columns: Sequence[str] | None, paths: Sequence[str] | None
) -> dict[ColumnPath, list[ColumnPath]]:
    """The requested VARIANT columns, by their logical names, with the requested paths of each.

    Raises InvalidSchemaError for a column that is not VARIANT, InvalidPathError for a path that can have no bounds.
    """
    schema = T.StructType.fromJson(dict(features.schema))
    variants = {path for path, kind in leaves(schema) if isinstance(kind, T.VariantType)}
    known = {tuple(map(str.lower, path)): path for path in variants}

    def named(names: ColumnPath, text: str) -> ColumnPath:
        path = known.get(tuple(map(str.lower, names)))
        if path is None:
            raise InvalidSchemaError(f"{text}: {dotted(names)} is not a VARIANT column of {features.table}")
        return path

    asked: dict[ColumnPath, list[ColumnPath]] = {}
    for text in columns or ():
        asked.setdefault(named(parse_column(text), text), [])
    for text in paths or ():
        names, keys = parse_bounded_path(text)
        asked.setdefault(named(names, text), []).append(keys)
    return asked or dict.fromkeys(variants, cast("list[ColumnPath]", []))


def _plan(
    table: Table, features: TableFeatures, asked: Mapping[ColumnPath, Sequence[ColumnPath]], *, tags_only: bool, by_name: bool
) -> AnalysisPlan:
    """The plan for the tasks. Raises TableError if Delta keeps no statistics of the columns that are asked for."""
    with jvm.delta_errors(f"reading {table.name}"):
        snapshot = table.snapshot()
        with_statistics = set(bounded_columns(table.statistics(snapshot)))
        counted = {field["name"]: field["type"] for field in json.loads(snapshot.statsSchema().json())["fields"]}
        few = int(snapshot.numOfFiles()) < stats.MAX_TAGGED_FILES
    schema, _ = mapping.schemas(features.schema)
    physical = mapping.physical_paths(features.schema)
    variants = {physical[path] for path, kind in shredding_schemas.in_structs(schema) if kind == "variant"}
    if tags_only:  # tags need no statistics
        with_statistics |= variants
    elif features.names.isdisjoint(SHREDDING_FEATURES):
        # With the feature, the VARIANT columns have bounds whose nulls Delta counts.
        with_statistics |= variants & set(mapping.physical_paths(counted.get("nullCount") or {}))
    ids = mapping.ids_in_files(features)
    given = shredding_schemas.given("auto", schema, features.properties)
    first = shredding_schemas.first_bounds(schema, features.properties)
    planned = []
    for logical, names in physical.items():
        if names in with_statistics:
            paths = tuple(dict.fromkeys(asked.get(logical, ())))
            planned.append(
                AnalyzedColumn(
                    names,
                    ids(names),
                    logical in asked,
                    given.get(logical),
                    paths,
                    tuple(dict.fromkeys([*paths, *first.get(logical, ())])),
                )
            )
    lacking = [dotted(logical) for logical in asked if physical[logical] not in with_statistics]
    if lacking and (by_name or not planned):
        raise TableError(
            f"{table.name} keeps no statistics of {', '.join(lacking)}: Delta keeps them for the first "
            "delta.dataSkippingNumIndexedCols columns, and not inside arrays and maps"
        )
    pairs = jvm.companion(table.spark, "Pairs")
    prefix = pairs.stringPrefix(table.spark._jsparkSession, snapshot.metadata())  # noqa: SLF001  # no public name
    loses_bounds = not tags_only and not pairs.readsBounds()
    return AnalysisPlan(table.storage, tuple(planned), by_name, prefix, few, tags_only, loses_bounds)


def _prepared(table: Table, features: TableFeatures, *, tags_only: bool) -> str | None:
    """Gives the table the feature for shredding, or the property that announces tags. Returns the name of a new feature."""
    feature = None
    if tags_only:
        if int(table.snapshot().numOfFiles()) >= stats.MAX_TAGGED_FILES:
            raise TableError(
                f"{table.name} has {stats.MAX_TAGGED_FILES:,} files or more, for which tags would make planning slow: call "
                "analyze without tags_only"
            )
        properties = {} if features.properties.get(stats.TAGS_ONLY) == "true" else {stats.TAGS_ONLY: "true"}
    elif features.names.isdisjoint(SHREDDING_FEATURES):
        features.check_new_bounds()
        feature = features.shredding_feature
        if not feature.endswith("-preview"):
            feature = str(jvm.companion(table.spark, "Pairs").shreddingFeature())
        properties = {f"delta.feature.{feature}": "supported"}
    else:
        properties = {}
    for name, value in properties.items():
        with jvm.delta_errors(f"altering {table.name}"):
            table.spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('{name}' = '{value}')")
    return feature


def _sum(done: Analyzed, batch: AnalyzedBatch, committed: Committed) -> Analyzed:
    """The totals after another batch."""
    return Analyzed(
        committed.version if committed.files else done.version,
        done.commits + bool(committed.files),
        done.files + committed.files,
        done.from_footers + batch.sources.get("footer", 0),
        done.from_columns + batch.sources.get("columns", 0),
        done.from_values + batch.sources.get("values", 0),
        done.rows + batch.rows,
        done.bytes + batch.bytes,
        done.bytes_read + batch.read,
        (*done.changed, *committed.changed),
        {**done.failed, **batch.failed},
        done.feature,
    )
