"""`write`: a DataFrame → shredded Parquet files with statistics → one commit.

The steps are those of Delta's own writer, in its order (`protocol/README.md`, "Steps of a write"). The driver starts a
transaction, checks what the table's features allow, brings the columns to the table's schema, plans the job and runs it
with the transaction active. The tasks write files (`task`). The driver commits their Add actions. Everything that can be
checked without the rows is checked before a file is written, and a table changes by one commit or not at all.

Invariants: only files reported by successful tasks are committed, each once. The rows are computed once, in the caller's
session and under its settings; the settings that a write needs for itself are set in a clone of that session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as t

from delta_variant.errors import TableError
from delta_variant.features import SHREDDING_PROPERTY
from delta_variant.transaction import Table, Transaction, own_session
from delta_variant.writer import clustering, constraints, evolution, job, modes, shredding_schemas
from delta_variant.writer.alignment import align, leaves, storable_schema, without_empty_text
from delta_variant.writer.arguments import (
    check_arguments,
    check_partitioning,
    compression_codec,
    delta_options,
    partition_columns,
    rows_per_file,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from delta_variant.writer.shredding_schemas import Shred


@dataclass(frozen=True)
class Commit:
    """What a write did to the table."""

    version: int
    """The version committed, or the current one where nothing was to do."""
    files: int
    rows: int
    bytes: int
    shredded: tuple[str, ...]
    """The VARIANT columns that were shredded, in at least one file."""
    left_plain: int = 0
    """Files of few rows in which a column was left plain, since shredding it would have made the file larger."""


def write(
    df: DataFrame,
    target: str | os.PathLike[str],
    mode: str = "append",
    *,
    shred: Shred | Mapping[str, str | pa.DataType] = "auto",
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    replace_where: str | None = None,
    partition_overwrite: str | None = None,
    merge_schema: bool | None = None,
    overwrite_schema: bool = False,
    compression: str | None = None,
    max_rows_per_file: int | None = None,
    txn: tuple[str, int] | None = None,
    user_metadata: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Commit:
    """Write the rows of `df` to a Delta table in one commit.

    target: a path, delta.`path`, or a table's name; text without a slash is a name. The table is created when missing,
    with the table features for VARIANT columns and their shredding.
    mode: append, overwrite, error (also errorifexists) or ignore, as in Spark. An overwrite replaces all rows; with
    replace_where those for which a predicate on partition columns is true, which must be true for the new ones too; with
    partition_overwrite="dynamic" those of the partitions that the new rows are in. Without either, the session's setting
    spark.sql.sources.partitionOverwriteMode counts.
    shred: "auto" shreds every VARIANT column, where the table allows shredding, to the schema stored in the table's property
    `delta_variant.shredding.<column>`, or else to one inferred for each file, unless that makes a file of few rows larger; a
    mapping gives the schemas (Spark DDL or Arrow types) of the columns it names, and others get the stored one or are plain;
    False writes plain.
    partition_by: for a new table; an existing table keeps its own.
    cluster_by: columns (`id`) and paths of VARIANT columns (`v:actor.id`), by which the rows are sorted, so that files hold
    narrow ranges of them. Spark samples the rows for that first: it computes `df` a second time, unless `df` is cached.
    merge_schema: columns and fields that the table lacks are added to it, and types widened where the table has type
    widening; None means what the session's spark.databricks.delta.schema.autoMerge.enabled says. Columns that `df` lacks get
    their default, or what they are generated from, or null.
    overwrite_schema: an overwrite of all rows replaces the table's schema and partitioning by those of `df` and partition_by.
    compression: zstd, snappy, gzip, lz4 or none; None means what the session's spark.sql.parquet.compression.codec is set to,
    or else zstd. max_rows_per_file: rows after which a new file begins; None means what the session's
    spark.sql.files.maxRecordsPerFile says.
    storage_options: settings of Hadoop's for the table's storage (fs.s3a.endpoint, …), which go before the session's.
    txn: an application's name and a version. A write is left out where the table has that version of the application, or
    a later one. user_metadata: text for the commit, which DESCRIBE HISTORY shows.

    Raises InvalidSchemaError for columns, rows or schemas that do not fit, NOT NULL and CHECK constraints included,
    ConflictError for what another writer committed meanwhile, TableError for a target that is not a Delta table or cannot take
    the write, UnsupportedFeatureError for a table feature, parameter or setting not handled, MalformedVariantError for Variant
    bytes the encoding does not allow. The table is then as before.
    """
    modes.check_mode(mode, replace_where, partition_overwrite, overwrite_schema=overwrite_schema)
    check_arguments(df, max_rows_per_file, txn)
    codec, max_rows = compression_codec(df.sparkSession, compression), rows_per_file(df.sparkSession, max_rows_per_file)
    options = delta_options(replace_where, partition_overwrite, merge_schema, overwrite_schema, txn, user_metadata)
    with own_session(df.sparkSession) as spark:
        table = Table.of(spark, target, storage_options)
        save_mode, properties = modes.SAVE_MODES[mode.lower()], _new_properties(df.schema, shred)
        transaction = Transaction(
            table, df.sparkSession, mode=save_mode, options=options, partition_by=partition_by, properties=properties
        )
        exists = transaction.version >= 0
        if transaction.has_been_executed() or (exists and save_mode == "Ignore"):
            return Commit(transaction.version, 0, 0, 0, ())
        if exists and save_mode == "ErrorIfExists":
            raise TableError(f"{table.name} exists already: use mode='append' or 'overwrite'")
        if not exists:
            table.check_free()
        if not exists or overwrite_schema:
            _define(transaction, df.schema, shred, partition_by, cluster_by)
        else:
            check_partitioning(partition_by, transaction.features.partition_by, table.name)
            evolution.evolve(spark, df.schema, transaction)
        features = transaction.features
        removal = modes.removal(spark, features, mode, replace_where, partition_overwrite, overwrite_schema=overwrite_schema)
        features.check_writable(overwrite=exists and removal is not None)
        plan = job.make_plan(spark, transaction, shred, cluster_by, codec, max_rows)
        source, rows = transaction.planned(df)
        rows = _checked(rows, transaction, replace_where)
        rows = job.transport(rows, transaction, plan, source, cluster_by)
        written = job.run(transaction, plan, source, rows)
        if removal is not None:
            transaction.remove(removal)
        version = transaction.commit()
    shredded = job.shredded_columns(written, features)
    return Commit(version, written.files, written.rows, written.bytes, shredded, written.left_plain)


def _new_properties(schema: t.StructType, shred: Shred | Mapping[str, str | pa.DataType]) -> dict[str, str]:
    """The properties of a table that is created for these columns."""
    has_variant = any(isinstance(kind, t.VariantType) for _, kind in leaves(schema))
    return {SHREDDING_PROPERTY: "true"} if has_variant and shred is not False else {}


def _define(
    transaction: Transaction,
    schema: t.StructType,
    shred: Shred | Mapping[str, str | pa.DataType],
    partition_by: Sequence[str],
    cluster_by: Sequence[str],
) -> None:
    """Give the table the columns and the partitioning of this write. Raises what is wrong with either."""
    schema = storable_schema(schema)
    shredding_schemas.given(shred, schema, {})
    clustering.keys(schema, cluster_by)
    partition_columns(partition_by, schema)
    transaction.update_metadata(schema)


def _checked(rows: DataFrame, transaction: Transaction, replace_where: str | None) -> DataFrame:
    """The rows with all columns of the table, computed ones included, under the table's checks."""
    features = transaction.features
    schema = t.StructType.fromJson(dict(features.schema))
    computed = constraints.computed(schema)
    rows = align(rows, schema, features.table, computed)
    further: list[Any] = []
    if computed:
        rows, further = constraints.filled(rows, transaction)
        rows = align(rows, schema, features.table)
    rows = without_empty_text(rows, features.partition_by)
    if replace_where is not None:
        modes.check_predicate(rows, replace_where, features)
        further.append(constraints.check(rows.sparkSession, "replace_where", replace_where))
    return constraints.checked(rows, transaction, further)
