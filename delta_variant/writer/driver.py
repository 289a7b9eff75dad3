"""`write`: a DataFrame → shredded Parquet files with statistics → one commit.

The steps are those of Delta's own writer, in its order (`protocol/README.md`, "Steps of a write"). The driver starts a
transaction, checks what the table's features allow, brings the columns to the table's schema, plans the job and runs it
with the transaction active. The tasks write files (`task`). The driver commits their Add actions. Everything that can be
checked without the rows is checked before a file is written, and a table changes by one commit or not at all.

Invariants: only files reported by successful tasks are committed, each once. The rows are computed once, in the caller's
session and under its settings; the settings that a write needs for itself are set in a clone of that session.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import functions as F  # what PySpark programs call it
from pyspark.sql import types as t

from delta_variant.errors import ConflictError, TableError, UnsupportedFeatureError
from delta_variant.features import SHREDDING_PROPERTY
from delta_variant.paths import quoted
from delta_variant.transaction import Table, Transaction, own_session
from delta_variant.writer import clustering, constraints, evolution, job, modes, retyping, shredding_schemas
from delta_variant.writer.alignment import align, leaves, storable_schema, without_empty_text
from delta_variant.writer.arguments import Request, check_partitioning, partition_columns

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from delta_variant.transaction import Removal
    from delta_variant.writer.shredding_schemas import Shred


@dataclass(frozen=True)
class Commit:
    """What a write did to the table."""

    version: int
    """The version that was committed, or the current version if there was nothing to commit."""
    files: int
    rows: int
    bytes: int
    shredded: tuple[str, ...]
    """The VARIANT columns that were shredded in at least one file."""
    left_plain: int = 0
    """How many files of few rows have a column that was left plain because shredding would have made the file larger."""
    txn_version: int | None = field(default=None, compare=False)
    """If nothing was written because of `txn`: the version of the application that the table has already. Else None."""


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
    parse_json: Mapping[str, str] | None = None,
    on_error: Literal["fail", "null"] = "fail",
    corrupt: str | None = None,
) -> Commit:
    """Write the rows of `df` to a Delta table in one commit.

    Example:
        dv.write(df, "events", max_rows_per_file=50_000)
        dv.write(df, "days", mode="overwrite", replace_where="day = '2026-11-01'")

    target: a path, delta.`path`, or a table's name; text without a slash is a name. A missing table is created, with the
    table features for VARIANT columns and their shredding.
    mode: append, overwrite, error (also errorifexists) or ignore, as in Spark. An overwrite replaces all rows.
    replace_where: a predicate on partition columns. An overwrite then replaces only the rows for which it is true, and it must
    be true for the new rows too.
    partition_overwrite: with "dynamic", an overwrite replaces only the partitions that the new rows are in. If neither this nor
    replace_where is given, the session's setting spark.sql.sources.partitionOverwriteMode decides.
    shred: "auto" shreds every VARIANT column if the table allows shredding. The shredding schema is the one in the table
    property `delta_variant.shredding.<column>`, or else one inferred for each file; a file of few rows then stays plain if
    shredding would make it larger. A mapping gives the schemas (Spark DDL or Arrow types) of the columns that it names; other
    columns get the stored schema, or are plain. False writes plain files.
    partition_by: the partition columns of a new table; an existing table keeps its own.
    cluster_by: columns (`id`) and paths of VARIANT columns (`v:actor.id`) by which the rows are sorted, so that files hold
    narrow ranges of them. Spark samples the rows first, and computes `df` a second time for that unless `df` is cached.
    merge_schema: adds columns and fields that the table lacks, and widens types if the table has type widening. By default
    the session's spark.databricks.delta.schema.autoMerge.enabled decides. Columns that `df` lacks get their default value,
    their generated value, or null.
    overwrite_schema: an overwrite of all rows replaces the table's schema and partitioning by those of `df` and partition_by.
    compression: zstd, snappy, gzip, lz4 or none; by default the session's spark.sql.parquet.compression.codec, or else zstd.
    max_rows_per_file: the rows after which a new file begins; by default the session's spark.sql.files.maxRecordsPerFile.
    txn: the name of an application and the version of this write, such as ("nightly", 17). Nothing is written if the table has
    this version of the application, or a later one.
    user_metadata: text for the commit, which DESCRIBE HISTORY shows.
    storage_options: Hadoop settings for the table's storage (fs.s3a.endpoint, …). They take precedence over the session's.
    parse_json: {"v": "value"} makes the VARIANT column v of the JSON texts in the STRING or BINARY column value, as Spark's
    parse_json does, in the tasks that write the files and several times faster; v takes the place of value.
    on_error: "fail" raises InvalidJsonError for the first malformed text, "null" makes malformed texts NULL.
    corrupt: a STRING column that gets malformed texts, and NULL in all other rows; it implies on_error="null".

    Returns what was committed. Raises InvalidSchemaError for columns, rows or schemas that do not fit, including violations of
    NOT NULL and CHECK constraints; InvalidPathError for an invalid path in cluster_by or in a table property; ConflictError if
    another writer's commit conflicts with this one; TableError for a target that is not a Delta table or cannot take the write;
    UnsupportedFeatureError for a table feature, argument or setting that is not supported; MalformedVariantError for Variant
    bytes that the encoding does not allow; InvalidJsonError for malformed texts. After an error the table is as it was before.
    """
    request = Request.of(
        df, mode, shred=shred, partition_by=partition_by, cluster_by=cluster_by, replace_where=replace_where,
        partition_overwrite=partition_overwrite, merge_schema=merge_schema, overwrite_schema=overwrite_schema,
        compression=compression, max_rows_per_file=max_rows_per_file, txn=txn, user_metadata=user_metadata,
        parse_json=parse_json, on_error=on_error, corrupt=corrupt,
    )  # fmt: skip
    return write_rows(df, target, request, storage_options)[0]


def write_rows(
    df: DataFrame,
    target: str | os.PathLike[str],
    request: Request,
    storage_options: Mapping[str, str] | None,
    pieces: DataFrame | None = None,
) -> tuple[Commit, Mapping[str, int]]:
    """Write the rows as the request says. Returns the commit, and how many JSON documents were left out, by file.

    df: the rows; for a request in place, a DataFrame with the columns of the table, whose rows the transaction reads.

    pieces: pieces of Parquet files, and the columns of their directories. Tasks read these pieces instead of getting the rows
    of `df`, which are the same, if no column has to be computed.
    """
    schema = request.texts.schema(df.schema)
    with own_session(df.sparkSession) as spark:
        table = Table.of(spark, target, storage_options)
        transaction = Transaction(
            table,
            df.sparkSession,
            mode=request.save_mode,
            options=request.options,
            partition_by=request.partition_by,
            properties=_new_properties(schema, request),
        )
        exists = transaction.version >= 0
        done = transaction.executed_version()
        if done is not None or (exists and request.save_mode == "Ignore"):
            return Commit(transaction.version, 0, 0, 0, (), txn_version=done), {}
        if exists and request.save_mode == "ErrorIfExists":
            raise TableError(f"{table.name} exists already: use mode='append' or 'overwrite'")
        if transaction.identify(request.identifiers) != request.known and not request.again:
            raise ConflictError(f"another writer has committed the same input to {table.name} in between")
        if not exists:
            table.check_free()
        else:
            _check_writable(transaction, request)
        if request.in_place:
            retyping.retype(transaction, request)
        elif not exists or request.overwrite_schema:
            _define(transaction, schema, request)
        else:
            check_partitioning(request.partition_by, transaction.features.partition_by, table.name)
            evolution.evolve(spark, schema, transaction)
        features = transaction.features
        removal = _check_writable(transaction, request)
        if request.in_place:
            df = transaction.rows(df.sparkSession)
        direct = None
        if pieces is not None:
            direct = _direct(df, pieces, transaction, request)
            request = request if direct is not None else replace(request, files=None)
        plan = job.make_plan(transaction, request)
        source, rows = transaction.planned(df if direct is None else direct)
        if direct is None:
            rows = _checked(request.texts.parsed(rows), transaction, request)
        else:
            rows = without_empty_text(rows, features.partition_by)
        rows = job.transport(rows, transaction, plan, source, request)
        written = job.run(transaction, plan, source, rows)
        if removal is not None:
            transaction.remove(removal)
        version = transaction.commit()
    shredded = job.shredded_columns(written, features)
    return Commit(version, written.files, written.rows, written.bytes, shredded, written.left_plain), written.malformed


def _check_writable(transaction: Transaction, request: Request) -> Removal | None:
    """Refuses a table that cannot take the write. Returns what the write removes from it."""
    removal = modes.removal(transaction.features, request)
    removes = transaction.version >= 0 and removal is not None
    if request.in_place:
        transaction.features.check_writable(overwrite=removes, operation="VariantTable.convert", instead=retyping.ELSEWHERE)
    else:
        transaction.features.check_writable(overwrite=removes)
    return removal


def _new_properties(schema: t.StructType, request: Request) -> dict[str, str]:
    """The properties of a table that is created for these columns."""
    has_variant = any(isinstance(data_type, t.VariantType) for _, data_type in leaves(schema))
    return {SHREDDING_PROPERTY: "true"} if has_variant and request.shred is not False else {}


def _define(transaction: Transaction, schema: t.StructType, request: Request) -> None:
    """Give the table the columns and the partitioning of this write, after a check of the arguments that depend on them."""
    schema = storable_schema(schema)
    shredding_schemas.given(request.shred, schema, {})
    clustering.keys(schema, request.cluster_by)
    partition_columns(request.partition_by, schema)
    transaction.update_metadata(schema)


def _direct(df: DataFrame, pieces: DataFrame, transaction: Transaction, request: Request) -> DataFrame | None:
    """The pieces, with the table's names of partition columns; None if Spark has to compute something of the rows.

    Tasks know neither casts, defaults, constraints and physical names, nor the order of rows.
    """
    features, given = transaction.features, {field.name.lower(): field for field in df.schema}
    table = t.StructType.fromJson(dict(features.schema))
    if request.cluster_by or features.mapping != "none" or constraints.computed(table) or constraints.known(transaction):
        return None
    folders = {name.lower(): name for name in pieces.columns[1:]}
    columns = [F.col(quoted(pieces.columns[0]))]
    for column in table:
        name = column.name.lower()
        have = given.pop(name, None)
        if (have.dataType != column.dataType) if have is not None else not column.nullable:
            return None
        if (name in folders) != (column.name in features.partition_by):
            return None
        if name in folders:
            columns.append(F.col(quoted(folders[name])).alias(column.name))
    return None if given else pieces.select(*columns)


def _checked(rows: DataFrame, transaction: Transaction, request: Request) -> DataFrame:
    """The rows with all columns of the table, including computed ones, and with the table's checks.

    The columns with JSON texts follow those of the table.
    """
    features, replace_where, carried = transaction.features, request.replace_where, request.texts.carried()
    schema = t.StructType([*t.StructType.fromJson(dict(features.schema)), *carried])
    computed = constraints.computed(schema)
    rows = align(rows, schema, features.table, computed, {field.name for field in carried})
    if request.files is not None:
        for column in request.texts.columns:
            for user in constraints.users(transaction, column):
                raise UnsupportedFeatureError(
                    f"{user} of {features.table} uses {column} and needs the documents in Spark, and ingest reads them in the "
                    "tasks that write: use write(spark.read.text(…), …, parse_json={…})"
                )
    further: list[Any] = []
    if computed:
        rows, further = constraints.filled(rows, transaction, carried)
        rows = align(rows, schema, features.table)
    rows = without_empty_text(rows, features.partition_by)
    if replace_where is not None:
        modes.check_predicate(rows, replace_where, features)
        further.append(constraints.check(rows.sparkSession, "replace_where", replace_where))
    return constraints.checked(rows, transaction, further)
