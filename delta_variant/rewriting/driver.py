"""The driver's side of `optimize`, `shred` and `unshred`: which files are rewritten, the jobs that do it, and their commits.

In: a table, and what its files are to be like. Out: commits of Delta's OPTIMIZE or REORG, one for each job. Source: Delta
PROTOCOL, "Add File and Remove File": actions with `dataChange` = false rearrange rows that are in the table already.

Invariant: after any failure the jobs that are committed stay, and the next call goes on with the others.
"""

from __future__ import annotations

import hashlib
import json
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.errors import PythonException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # what PySpark programs call it
from pyspark.sql import types as T

from delta_variant import jvm, mapping, stats
from delta_variant.analysis import inspected
from delta_variant.errors import ConflictError, InvalidSchemaError, TableError, UnsupportedFeatureError
from delta_variant.features import TableFeatures
from delta_variant.paths import dotted, listed, literal, parse_bounded_path, parse_column_path, quoted
from delta_variant.progress import Progress
from delta_variant.rewriting import source
from delta_variant.rewriting.arrangement import (
    CLUSTERED_TAG,
    FULL,
    NONE,
    Files,
    Indices,
    Ranges,
    expected_bytes,
    grouped,
    to_rewrite,
)
from delta_variant.rewriting.sorting import Sorting
from delta_variant.schema.of_files import SAMPLE_ROWS
from delta_variant.transaction import Table, Transaction
from delta_variant.writer import clustering, every_write, file_sizes
from delta_variant.writer.arguments import Request, whole
from delta_variant.writer.calls import Call
from delta_variant.writer.planning import WHOLE, shred_option
from delta_variant.writer.row_sources import SortedBlocks
from delta_variant.writer.shredding_schemas import Shred, given

JOB_BYTES = 32 << 30
"""A job writes files of about so many bytes, or one set of files that belong together."""
TRIES = 3
"""How often a job is begun again after a conflict."""
_BEHIND_A_CUT = r"[\x{7f}\x{10ffff}]+$"
"""What delta-spark and this package put behind the prefix of a string, so that it is not below the string."""
_MOST_DELETED = 0.05
"""A file is rewritten if a deletion vector has more of its rows, as with Delta's OPTIMIZE."""


@dataclass(frozen=True)
class Rewritten:
    """What a rewriting did."""

    version: int | None
    """The last version that it committed; None if there was nothing to do."""
    commits: int
    files_removed: int
    files_added: int
    files_kept: int
    """How many of the files that it considered were left alone."""
    rows: int
    bytes_removed: int
    bytes_added: int


def optimize(
    table: Table,
    keys: Sequence[str] | None,
    where: str | None,
    max_file_size: int | None,
    progress: Callable[[Progress], object] | None,
) -> Rewritten:
    """Optimizes a table, as `VariantTable.optimize` says.

    table: in a session of its own.
    """
    chosen = optimizing(table)
    features = chosen.features
    cluster_by = checked_keys(
        features, listed(features.properties.get(clustering.CLUSTER_BY_PROPERTY, "")) if keys is None else keys
    )
    target = file_sizes.target_bytes(features.properties) if max_file_size is None else max_file_size
    file_bytes = whole("max_file_size", target)
    paths, partitions, files = files_of(chosen, cluster_by, where)
    sets: list[Indices] = []
    for partition in np.unique(partitions):
        of_partition = np.flatnonzero(partitions == partition)
        sets += [of_partition[indices] for indices in to_rewrite(files.some(of_partition), file_bytes)]
    tags = {CLUSTERED_TAG: f"{_hash(cluster_by)}.{uuid.uuid4().hex[:8]}"} if cluster_by else {}
    work = _Work(table, where, "auto", cluster_by, file_bytes, tags)
    jobs = [
        ([paths[i] for i in chosen], max(1, math.ceil(expected_bytes(files, chosen) / (FULL * file_bytes))))
        for chosen in grouped(sets, files.sizes, JOB_BYTES)
    ]
    return work.run(jobs, dict(zip(paths, files.sizes.tolist(), strict=True)), progress)


def cluster_by(table: Table, keys: Sequence[str] | None) -> int:
    """Stores the keys of `optimize` with the table, or removes them. Returns the version of the table."""
    if keys:
        text = literal(", ".join(checked_keys(table.features(), keys)))
        change = f"SET TBLPROPERTIES ('{clustering.CLUSTER_BY_PROPERTY}' = {text})"
    else:
        change = f"UNSET TBLPROPERTIES IF EXISTS ('{clustering.CLUSTER_BY_PROPERTY}')"
    with jvm.delta_errors(f"altering {table.name}"):
        table.spark.sql(f"ALTER TABLE {table.name} {change}")
    return int(table.snapshot().version())


def reorganize(table: Table, where: str | None, progress: Callable[[Progress], object] | None, *, shreds: bool) -> Rewritten:
    """Rewrites files, shredded or plain, as `VariantTable.shred` and `unshred` say.

    table: in a session of its own.
    """
    chosen = reorganizing(table, shreds=shreds)
    files = chosen.add_actions(where)
    if shreds:
        files = shred_candidates(files)
        differs = F.col("schema").isNull() | _can_be_closed(chosen.features)
    else:
        differs = is_shredded()
    with jvm.delta_errors(f"reading the files of {table.name}"):
        sizes = {row.path: row.size for row in files.select("path", "size").collect()}
        states = inspected(table, list(sizes)).groupBy("file")
        rows = states.agg(F.bool_or(differs).alias("differs"), F.max("error").alias("error")).collect()
    for row in rows:
        if row.error is not None:
            raise TableError(f"{table.name} has a file that cannot be read, {row.file}: {row.error}")
    paths = sorted(row.file for row in rows if row.differs)
    sets = [np.array([i], np.int64) for i in range(len(paths))]
    groups = grouped(sets, np.array([sizes[path] for path in paths], np.int64), JOB_BYTES)
    work = _Work(table, where, "auto" if shreds else False)
    return work.run([([paths[i] for i in chosen], len(chosen)) for chosen in groups], sizes, progress)


def shred_candidates(files: DataFrame) -> DataFrame:
    """The files that `shred` opens: those without a tag that says that they are shredded, or that their writer chose plain."""
    typed = F.coalesce(F.col("tags")[stats.BOUNDS_TAG], F.lit("")) == stats.TYPED_TAG_VALUE
    return files.where(~typed & F.col("tags")[stats.PLAIN_TAG].isNull())


def is_shredded() -> Column:
    """Whether a VARIANT column is shredded, or has a layout that is older than the specification. Over rows of `inspected`."""
    return F.col("schema").isNotNull() | (F.col("layout") != "final")


def _can_be_closed(features: TableFeatures) -> Column:
    """Whether an object is open that the writer closes. Over rows of `inspected`.

    Objects in arrays stay open, and those of columns with given schemas. A file of few rows may be smaller if it is plain.
    """
    schema, _ = mapping.schemas(features.schema)
    _, closes_given = shred_option(features)
    stored = {} if closes_given else given("auto", schema, features.properties)
    is_closed = F.col("ours") | F.col("path").rlike(r"(^\$|\])\[\*\]") | F.col("column").isin(*map(dotted, stored))
    return F.col("open") & ~is_closed & (F.col("rows") >= SAMPLE_ROWS)


def optimizing(table: Table) -> Transaction:
    """The snapshot by which `optimize` chooses files. Raises UnsupportedFeatureError for a table that it refuses."""
    chosen = _planning(table, "optimize", f"run OPTIMIZE {table.name} instead")
    if chosen.clustering_columns:
        raise UnsupportedFeatureError(
            f"{table.name} is clustered by Delta (CLUSTER BY): run OPTIMIZE {table.name}, or first ALTER TABLE {table.name} "
            "CLUSTER BY NONE"
        )
    return chosen


def reorganizing(table: Table, *, shreds: bool) -> Transaction:
    """The snapshot by which `shred` and `unshred` choose files. Raises UnsupportedFeatureError and TableError."""
    columns = [field["name"] for field in table.features().schema["fields"] if '"variant"' in json.dumps(field["type"])]
    updates = ", ".join(f"{quoted(name)} = {quoted(name)}" for name in columns)
    instead = f"run UPDATE {table.name} SET {updates} instead, by which Delta rewrites all rows"  # noqa: S608  # a message
    chosen = _planning(table, "shred" if shreds else "unshred", instead)
    if shreds:
        chosen.features.check_shredding()
    return chosen


def _planning(table: Table, operation: str, instead: str) -> Transaction:
    """A transaction that is not committed, on the snapshot by which files are chosen. instead: what works if it is refused."""
    transaction = Transaction(table)
    transaction.features.check_writable(overwrite=False, operation=operation, instead=instead)
    return transaction


# ---- the files of the table ----------------------------------------------------------------------------------------------


def checked_keys(features: TableFeatures, keys: Sequence[str]) -> tuple[str, ...]:
    """The clustering keys. Raises InvalidSchemaError and InvalidPathError for those that the table cannot have."""
    if isinstance(keys, str):
        raise InvalidSchemaError(f"cluster_by={keys!r} must be a list of columns and paths: [{keys!r}]")
    schema, _ = mapping.schemas(features.schema)
    clustering.keys(schema, keys)
    for key in keys:
        column, path = parse_column_path(key)
        if path is not None:
            parse_bounded_path(key)
        elif column[0].lower() in [name.lower() for name in features.partition_by]:
            raise InvalidSchemaError(f"cluster_by: {key} is a partition column, whose values are apart already: leave it out")
    return tuple(keys)


def files_of(snapshot: Transaction, cluster_by: Sequence[str], where: str | None) -> tuple[list[str], NDArray[np.int64], Files]:
    """The files of the partitions that `where` selects: their paths, the numbers of their partitions, and their ranges.

    Raises TableError for a key of which Delta keeps no statistics.
    """
    physical = {tuple(map(str.lower, path)): names for path, names in mapping.physical_paths(snapshot.features.schema).items()}
    names = {key: physical[tuple(map(str.lower, parse_column_path(key)[0]))] for key in cluster_by}
    ends = [(side, key) for key in dict.fromkeys(cluster_by) for side in ("min", "max")]
    of_paths = [(side, key) for side, key in ends if parse_column_path(key)[1] is not None]
    add = snapshot.add_actions(where, [(side, names[key], parse_bounded_path(key)[1]) for side, key in of_paths])
    records, deleted = F.col("stats.numRecords"), F.coalesce("deletionVector.cardinality", F.lit(0))
    columns = [
        F.col("path"), F.col("size"), (records - deleted).alias("rows"), F.to_json("partitionValues").alias("partition"),
        F.col("tags")[CLUSTERED_TAG].alias("run"),
        F.coalesce(deleted > records * _MOST_DELETED, F.lit(False)).alias("many_deleted"),
    ]  # fmt: skip
    for side, key in ends:
        if (side, key) in of_paths:
            end = F.struct(*map(F.expr, clustering.sort_key(f"`{of_paths.index((side, key))}`")))
        else:
            end = _statistic(snapshot.features.table, add, side, names[key], key)
        columns.append(end.alias(f"{side} {key}"))
    table = add.select(*columns).toArrow().combine_chunks()
    ranges = [_ranks(table[f"min {key}"], table[f"max {key}"]) for key in cluster_by]
    low, high = (
        np.stack([both[end] for both in ranges], 1) if ranges else np.zeros((len(table), 0), np.int64) for end in (0, 1)
    )
    of_keys = pc.starts_with(table["run"], f"{_hash(cluster_by)}.") if cluster_by else pa.nulls(len(table), pa.bool_())
    runs = pc.if_else(of_keys, table["run"], None).combine_chunks().dictionary_encode().indices.fill_null(NONE)
    sizes, many_deleted = _numbers(table["size"]), table["many_deleted"].to_numpy()
    counted = table["rows"].is_valid().to_numpy()
    rows_each = _numbers(table["rows"].fill_null(0))
    bytes_each = sizes[counted].sum() / max(1, rows_each[counted].sum()) or 1
    rows_each = np.where(counted, rows_each, (sizes / bytes_each).astype(np.int64))
    files = Files(sizes, rows_each, low, high, _numbers(runs), many_deleted)
    partitions = table["partition"].combine_chunks().dictionary_encode().indices
    return table["path"].to_pylist(), _numbers(partitions.fill_null(NONE)), files


def _statistic(table: str, add: DataFrame, side: str, names: Sequence[str], key: str) -> Column:
    """The smallest or the largest value of an ordinary column, from the statistics of a file. names: those of the column."""
    found: Any = add.schema
    for name in (steps := ("stats", f"{side}Values", *names)):
        if not isinstance(found, T.StructType) or name not in found.names:
            raise TableError(
                f"{table} keeps no statistics of {key}: Delta keeps them for the first "
                "delta.dataSkippingNumIndexedCols columns, and not for all types"
            )
        found = found[name].dataType
    return F.col(".".join(map(quoted, steps)))


def _ranks(low: pa.ChunkedArray, high: pa.ChunkedArray) -> tuple[Ranges, Ranges]:
    """The ranks of the ends of ranges among all of these ends; NONE where one of the two is missing."""
    if pa.types.is_struct(low.type):  # a sort key: a double or, if it is null, a string
        number, text = (_rank(_ends(pc.struct_field(low, i), pc.struct_field(high, i))) for i in (0, 1))
        ranks = np.where(number != NONE, number, np.where(text != NONE, number.max(initial=NONE) + 1 + text, NONE))
    else:
        ranks = _rank(_ends(low, high))
    first, last = ranks[: len(low)], ranks[len(low) :]
    known = (first != NONE) & (last != NONE)
    return np.where(known, first, NONE), np.where(known, last, NONE)


def _ends(low: pa.ChunkedArray, high: pa.ChunkedArray) -> pa.ChunkedArray:
    """The lower ends and then the upper ones. The upper end of cut strings becomes the part that the log holds of the largest.

    A minimum is cut to a prefix. A maximum is a prefix with a character behind it that makes it larger.
    """
    if pa.types.is_string(low.type):
        high = pc.replace_substring_regex(high, _BEHIND_A_CUT, "")
    return pa.chunked_array([*low.chunks, *high.chunks], low.type)


def _rank(values: pa.ChunkedArray) -> Ranges:
    known = pc.unique(values).drop_null()
    return _numbers(pc.index_in(values, known.take(pc.sort_indices(known)), skip_nulls=True).fill_null(NONE))


def _numbers(array: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    return np.asarray(array.to_numpy(zero_copy_only=False) if isinstance(array, pa.Array) else array.to_numpy(), np.int64)


# ---- the jobs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Work:
    """What the jobs of an operation are to do."""

    table: Table
    where: str | None
    shred: Shred
    cluster_by: tuple[str, ...] = ()
    file_bytes: int | None = None
    """The size of new files; None for one new file in place of each old one."""
    tags: Mapping[str, str] = field(default_factory=dict)

    def run(
        self,
        jobs: Sequence[tuple[Sequence[str], int]],
        sizes: Mapping[str, int],
        progress: Callable[[Progress], object] | None,
    ) -> Rewritten:
        """Runs jobs: the files that each rewrites, and the number of new files. sizes: of all files that were considered."""
        paths = [path for job, _ in jobs for path in job]
        done = Rewritten(None, 0, 0, 0, len(sizes) - len(paths), 0, 0, 0)
        total = sum(sizes[path] for path in paths)
        files = 0
        for job, count in jobs:
            done = self._tried(job, count, done, by_blocks=bool(self.cluster_by))
            files += len(job)
            if progress is not None:
                progress(Progress(files, len(paths), done.bytes_removed, total, done.rows))
        return done

    def _tried(self, paths: Sequence[str], files: int, done: Rewritten, tries: int = TRIES, *, by_blocks: bool) -> Rewritten:
        """Runs a job. After a conflict it is run again, with the files that the table still has.

        by_blocks: whether rows may be sorted by way of blocks. If a task fails to make some, the job is run again without.
        """
        try:
            return self._job(paths, files, done, by_blocks=by_blocks)
        except ConflictError:
            if tries == 1:
                raise
            tries -= 1
        except PythonException as error:
            if not by_blocks:
                raise
            every_write.tell_of_write("blocks", f"{self.table.log.dataPath()}\n{error}")
            by_blocks = False
        return self._tried(paths, files, done, tries, by_blocks=by_blocks)

    def _job(self, paths: Sequence[str], files: int, done: Rewritten, *, by_blocks: bool) -> Rewritten:
        table, spark, file_bytes = self.table, self.table.spark, self.file_bytes
        most = WHOLE if file_bytes is None else 2 * file_bytes
        read = SortedBlocks() if by_blocks else None
        call = Call(spark, spark, Request.rewriting(spark, self.shred, self.cluster_by, most, read), table.name)
        with call.running("writing to"):
            transaction = Transaction(table)
            rows = transaction.open(paths)
            opened = transaction.opened(with_actions=by_blocks and transaction.features.mapping == "none")
            if not opened.count:
                return done
            settings: Mapping[str, str] = {}
            task_bytes = 0
            if file_bytes is None:
                settings = source.one_by_one()
            elif self.cluster_by:
                rows = self._sorted(transaction, rows, opened.actions, files)
            else:
                settings, task_bytes = source.packed(file_bytes), file_bytes
            with jvm.settings(spark, settings):
                transaction.replace(rows, self.where, self.cluster_by, self.tags, task_bytes, reorganizes=file_bytes is None)
        written = call.written
        return Rewritten(
            call.version, done.commits + 1, done.files_removed + opened.count, done.files_added + written.files,
            done.files_kept, done.rows + written.rows, done.bytes_removed + opened.bytes, done.bytes_added + written.bytes,
        )  # fmt: skip

    def _sorted(self, transaction: Transaction, rows: DataFrame, actions: Sequence[str] | None, files: int) -> DataFrame:
        """The rows of the opened files in the order of the keys, in a task for each new file.

        actions: those of the files, if tasks may read and sort their rows. Spark does it where the keys do not allow that.
        """
        spark, features = self.table.spark, transaction.features
        schema, _ = mapping.schemas(features.schema)
        if actions is not None:
            timezone = str(spark.conf.get("spark.sql.session.timeZone"))
            how = Sorting.of(features, self.table.storage, self.cluster_by, timezone)
            if how is not None:
                return source.merged(spark, how, actions, schema, files)
        return source.clustered(rows, schema, self.cluster_by, features.partition_by, files)


def _hash(keys: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()[:8]
