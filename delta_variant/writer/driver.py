"""`write`: a DataFrame → shredded Parquet files with statistics → one commit.

The driver resolves the table, asks its features what is allowed, aligns the columns and makes a plan; the tasks write
files (`task`); the driver commits their Add actions through Delta's transaction. Nothing is written before everything
that can be known without the rows has been checked, and a table changes by one commit or not at all.

Invariants: only files whose reports came from successful tasks are committed, each once. The caller's session stays as it is:
a write sets what it needs in a clone of its own.
"""

# ruff: noqa: SLF001 -- PySpark gives no public way to its JVM

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import types as t

from delta_variant.errors import TableError
from delta_variant.features import SHREDDING_PROPERTY
from delta_variant.transaction import Table, Transaction, java, own_session
from delta_variant.writer import clustering, constraints, evolution, job, mapping, modes, shapes
from delta_variant.writer.alignment import align, leaves, storable_schema
from delta_variant.writer.arguments import check_arguments, check_partitioning, partition_columns

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from delta_variant.writer.shapes import Shred


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
    merge_schema: bool = False,
    compression: str = "zstd",
    max_rows_per_file: int | None = None,
    txn: tuple[str, int] | None = None,
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
    `delta_variant.shredding.<column>`, or else to one inferred for each file; a mapping gives the schemas (Spark DDL or Arrow
    types) of the columns it names, and others get the stored one or are plain; False writes plain.
    partition_by: for a new table; an existing table keeps its own.
    cluster_by: columns (`id`) and paths of VARIANT columns (`v:actor.id`), by which the rows are sorted, so that files hold
    narrow ranges of them.
    merge_schema: columns and fields that the table lacks are added to it, and types widened where the table has type
    widening. Columns that `df` lacks get their default, or what they are generated from, or null.
    compression: zstd, snappy, gzip, lz4 or none. max_rows_per_file: rows after which a new file begins.
    storage_options: settings of Hadoop's for the table's storage (fs.s3a.endpoint, …), which go before the session's.
    txn: an application's name and a version. A write is left out where the table has that version of the application, or
    a later one.

    Raises InvalidSchemaError for columns, rows or schemas that do not fit, NOT NULL and CHECK constraints included,
    TableError for a target that is not a Delta table or cannot take the write, UnsupportedFeatureError for a table feature
    or parameter not handled, MalformedVariantError for Variant bytes the encoding does not allow. The table is then as
    before.
    """
    modes.check_mode(mode, replace_where, partition_overwrite)
    check_arguments(df, compression, max_rows_per_file, txn)
    with own_session(df.sparkSession) as spark:
        table = Table.of(spark, target, storage_options)
        save_mode = modes.SAVE_MODES[mode.lower()]
        transaction = Transaction(table) if table.exists() else None
        if transaction is not None:
            repeated = txn is not None and transaction.last_of(txn[0]) >= txn[1]
            if repeated or save_mode == "Ignore":
                return Commit(transaction.version, 0, 0, 0, ())
            if save_mode == "ErrorIfExists":
                raise TableError(f"{table.name} exists already: use mode='append' or 'overwrite'")
        else:
            transaction = _created(df, table, shred, partition_by, cluster_by)
        features = transaction.features
        removal = modes.removal(spark, mode, replace_where, partition_overwrite, features)
        features.check_writable(overwrite=removal is not None)
        check_partitioning(partition_by, features.partition_by, table.name)
        merged = merge_schema and evolution.merge(spark, df.schema, transaction)
        if merged:
            features = transaction.features
        plan = job.make_plan(spark, transaction, shred, cluster_by, compression, max_rows_per_file)
        rows = _rows(df, spark, transaction, replace_where)
        rows = job.transport(rows, features, plan, cluster_by)
        names = mapping.logical_names(features.schema)
        reports = job.run(rows, plan, table.name, names)
        count, size = sum(r["rows"] for r in reports), sum(r["size"] for r in reports)
        shredded = {names.get(name, name) for r in reports for name in json.loads(r["shredded"])}
        version = transaction.version
        if reports or removal is not None or txn is not None or merged or version < 0:
            by = features.partition_by if version < 0 else tuple(partition_by)
            version = transaction.commit(
                [r["add"] for r in reports],
                mode=save_mode, rows=count, size=size, partition_by=by, removal=removal, txn=txn, merged=merge_schema,
            )  # fmt: skip
    return Commit(version, len(reports), count, size, tuple(sorted(shredded)))


def _created(
    df: DataFrame,
    table: Table,
    shred: Shred | Mapping[str, str | pa.DataType],
    partition_by: Sequence[str],
    cluster_by: Sequence[str],
) -> Transaction:
    """A transaction on a new table: a path is created by the commit of the rows, a name is created now, empty."""
    schema = storable_schema(df.schema)
    shapes.given(shred, schema, {})  # for the errors of both, before there is a table
    clustering.keys(schema, cluster_by)
    columns = partition_columns(partition_by, schema)
    has_variant = any(isinstance(kind, t.VariantType) for _, kind in leaves(schema))
    properties = {SHREDDING_PROPERTY: "true"} if has_variant and shred is not False else {}
    if table.path is None:
        return Transaction(table.create(schema, columns, properties))
    transaction = Transaction(table)
    if transaction.version >= 0:
        raise TableError(f"{table.name} was created by another writer just now: write again")
    transaction.create(schema, columns, properties)
    return transaction


def _rows(df: DataFrame, spark: SparkSession, transaction: Transaction, replace_where: str | None) -> DataFrame:
    """The rows with all columns of the table, computed ones included, under the table's checks, in the write's own session."""
    features = transaction.features
    schema = t.StructType.fromJson(dict(features.schema))
    rows = DataFrame(
        java(spark).org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, df._jdf.logicalPlan()), spark
    )
    computed = constraints.computed(schema)
    rows = align(rows, schema, features.table, computed)
    further: list[Any] = []
    if computed:
        rows, further = constraints.filled(rows, transaction)
        rows = align(rows, schema, features.table)
    if replace_where is not None:
        modes.check_predicate(rows, replace_where, features)
        further.append(constraints.check(spark, "replace_where", replace_where))
    return constraints.checked(rows, transaction, further)
