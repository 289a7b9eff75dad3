"""`write`: a DataFrame → shredded Parquet files with statistics → one commit.

The commit is that of Delta's own writer, which runs in a clone of the caller's session; its files are those of this package
(`calls`). What is done here comes before: arguments are checked, the rows are brought into the order of the files, and JSON
texts become VARIANT columns.

Invariants: only files reported by successful tasks are committed, each once, and a table changes by one commit or not at all.
The rows are computed once, under the settings of the caller's session.
"""

# ruff: noqa: SLF001 -- PySpark gives no public way to its JVM

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # what PySpark programs call it
from pyspark.sql import types as T

from delta_variant import jvm
from delta_variant.errors import InvalidSchemaError
from delta_variant.features import TableFeatures
from delta_variant.paths import quoted
from delta_variant.transaction import SESSION_CATALOG, Table, Transaction, own_session
from delta_variant.writer import clustering, retyping, shredding_schemas
from delta_variant.writer.arguments import CLUSTER_BY_OPTION, Request, check_partitioning, partition_columns
from delta_variant.writer.calls import Call
from delta_variant.writer.column_types import leaves, type_name
from delta_variant.writer.json_texts import JsonTexts
from delta_variant.writer.shredding_schemas import Shred

_RUN_ON_FILES = "spark.sql.runSQLOnFiles"  # without it, there is no table delta.`path`
_SHREDDING_BY_DEFAULT = "spark.databricks.delta.properties.defaults.enableVariantShredding"
_APPLICATION_OF_SESSION = "spark.databricks.delta.write.txnAppId"
_VERSION_OF_SESSION = "spark.databricks.delta.write.txnVersion"


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


Outcome = tuple[Commit, Mapping[str, int]]
"""A commit, and how many JSON documents were left out because they are malformed, by file."""


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
    replace_where: a predicate. An overwrite then replaces only the rows for which it is true, and it must be true for the new
    rows too. On partition columns it removes whole files; for other columns Delta reads the files that may have such rows.
    partition_overwrite: with "dynamic", an overwrite replaces only the partitions that the new rows are in. If neither this nor
    replace_where is given, the session's setting spark.sql.sources.partitionOverwriteMode decides.
    shred: "auto" shreds every VARIANT column if the table allows shredding. The shredding schema is the one in the table
    property or setting `delta_variant.shredding.<column>`, or else one inferred for each file; a small file then stays
    plain if shredding would make it larger. A mapping gives the schemas (Spark DDL or Arrow types) of the columns that it
    names; other columns get the stored schema, or are plain. False writes plain files.
    partition_by: the partition columns of a new table; an existing table keeps its own.
    cluster_by: columns (`id`) and paths of VARIANT columns (`v:actor.id`) by which the rows are sorted, so that files hold
    narrow ranges of them; by default those of the table property or setting `delta_variant.cluster_by`. Spark samples the rows
    first, and computes `df` a second time for that unless `df` is cached.
    merge_schema: adds columns and fields that the table lacks, and widens types if the table has type widening. By default
    the session's spark.databricks.delta.schema.autoMerge.enabled decides. Columns are found by name. Those that `df` lacks get
    their default value, their generated value, the next value of an identity column, or null.
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
    NOT NULL and CHECK constraints and of replace_where; InvalidPathError for an invalid path in cluster_by, a table property or
    a setting; ConflictError if another writer's commit conflicts with this one; TableError for a target that is not a Delta
    table or cannot take the write; UnsupportedFeatureError for a table feature, type, argument or setting that is not
    supported; MalformedVariantError for Variant bytes that the encoding does not allow; InvalidJsonError for malformed texts.
    What Delta refuses has Delta's message. Errors in computing the rows, such as those of user-defined functions, are Spark's.
    After an error the table is as it was before.
    """
    request = Request.of(
        df, mode, shred=shred, partition_by=partition_by, cluster_by=cluster_by, replace_where=replace_where,
        partition_overwrite=partition_overwrite, merge_schema=merge_schema, overwrite_schema=overwrite_schema,
        compression=compression, max_rows_per_file=max_rows_per_file, txn=txn, user_metadata=user_metadata,
        parse_json=parse_json, on_error=on_error, corrupt=corrupt,
    )  # fmt: skip
    return write_rows(df, target, request, storage_options)[0]


def write_rows(
    df: DataFrame, target: str | os.PathLike[str], request: Request, storage_options: Mapping[str, str] | None
) -> Outcome:
    with own_session(df.sparkSession, storage_options) as spark:
        table = Table.of(spark, target)
        snapshot = table.found()
        features = None if snapshot is None else table.features(to_change=True, of=snapshot)
        is_new = features is None or request.save_mode in ("ErrorIfExists", "Ignore")
        schema = request.texts.schema(df.schema)
        if features is None or is_new or request.overwrite_schema:
            shredding_schemas.given(request.shred, schema, {})
            by = partition_columns(request.partition_by, schema)
        else:
            check_partitioning(request.partition_by, features.partition_by, table.name)
            _check_types(schema, request.texts, features, spark)
            by = []
        clustering.keys(schema, request.cluster_by)
        spark.conf.set(_RUN_ON_FILES, "true")
        if request.additions.identifiers:  # the commits of one session's identifier would be one, and others left out
            _forget_identifier(spark)
        call = Call(spark, df.sparkSession, request, table.name)
        with call.running("writing to"):
            rows = jvm.data_frame(spark, df._jdf.logicalPlan())
            _run(request.texts.parsed(rows), table, request, by, is_new=is_new)
        _take_back_identifier(df.sparkSession, spark)
        return _committed(table, call, request)


def _check_types(rows: T.StructType, texts: JsonTexts, features: TableFeatures, spark: SparkSession) -> None:
    """Raises InvalidSchemaError for a column that Spark's rules for storing values do not allow: Delta would cast all.

    A column that is made of texts has to be VARIANT, and that for malformed ones STRING.

    Delta checks the types inside structs, arrays and maps, and the names of columns.
    """
    wanted = {column.name.lower(): column.dataType for column in T.StructType.fromJson(dict(features.schema))}
    cast = jvm.scala_object(spark, "org.apache.spark.sql.catalyst.expressions.Cast")
    for column in rows:
        have, want = column.dataType, wanted.get(column.name.lower(), column.dataType)
        nested = (T.StructType, T.ArrayType, T.MapType)
        if have == want or (isinstance(have, nested) and isinstance(want, nested)):
            continue
        if column.name in texts.columns or column.name == texts.corrupt:
            raise InvalidSchemaError(f"parse_json: {column.name} is {type_name(want)} in the table, and not {type_name(have)}")
        if not cast.canANSIStoreAssign(jvm.data_type(spark, have), jvm.data_type(spark, want)):
            way = "make it one with parse_json={…}" if isinstance(want, T.VariantType) else "cast it first"
            raise InvalidSchemaError(
                f"column {column.name} is {type_name(have)} in the DataFrame and {type_name(want)} in {features.table}: {way}"
            )


def _run(rows: DataFrame, table: Table, request: Request, partition_by: Sequence[str], *, is_new: bool) -> None:
    """Runs the command of Delta's writer. Columns of a table that exists are found by name, and cast as by Spark's writers."""
    options = {**request.options, "optimizeWrite": "false"}  # which would undo the order of the rows
    if not is_new and not request.overwrite_schema:
        path = None if table.path is None else f"{SESSION_CATALOG}.delta.{quoted(str(table.log.dataPath()))}"
        into = rows.writeTo(path or table.name).options(**options)
        if request.save_mode == "Overwrite":
            into.overwrite(F.lit(True))
        else:
            into.append()
        return
    if is_new and request.shred is not False and any(isinstance(kind, T.VariantType) for _, kind in leaves(rows.schema)):
        rows.sparkSession.conf.set(_SHREDDING_BY_DEFAULT, "true")
    writer = rows.write.format("delta").mode(request.save_mode).options(**options).partitionBy(*partition_by)
    if table.path is not None:
        writer.save(table.path)
    else:
        writer.saveAsTable(table.name)


def retype(table: Table, request: Request) -> Commit:
    """Make VARIANT columns of columns of JSON texts of a table, in one commit. table: in a session of its own."""
    call = Call(table.spark, table.spark, request, table.name)
    transaction = Transaction(table)
    retyping.retype(transaction, request)
    rows = transaction.rows()
    clustering.keys(request.texts.schema(rows.schema), request.cluster_by)
    options = {name: value for name, value in request.options.items() if name in ("userMetadata", CLUSTER_BY_OPTION)}
    _forget_identifier(table.spark)
    with call.running("writing to"):
        transaction.overwrite(request.texts.parsed(rows), options)
    return _committed(table, call, request)[0]


def _committed(table: Table, call: Call, request: Request) -> Outcome:
    version, done = call.version, None
    if version is None:
        version = int(table.snapshot().version())
        application = request.options.get("txnAppId") or table.spark.conf.get(_APPLICATION_OF_SESSION, None)
        if not call.has_begun and application:
            done = Transaction(table).identifiers([application]).get(application)
    written = call.written
    commit = Commit(version, written.files, written.rows, written.bytes, call.shredded, written.left_plain, txn_version=done)
    return commit, written.malformed


def _forget_identifier(spark: SparkSession) -> None:
    spark.conf.unset(_APPLICATION_OF_SESSION)
    spark.conf.unset(_VERSION_OF_SESSION)


def _take_back_identifier(users: SparkSession, own: SparkSession) -> None:
    """Delta takes the version of `txnVersion` out of the settings of the session in which it is committed."""
    taken = own.conf.get(_APPLICATION_OF_SESSION, None) is not None and own.conf.get(_VERSION_OF_SESSION, None) is None
    if taken and users.conf.get(_VERSION_OF_SESSION, None) is not None:
        users.conf.unset(_VERSION_OF_SESSION)
