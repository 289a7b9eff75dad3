"""`write`: a DataFrame → shredded Parquet files with statistics → one commit.

The driver resolves the table, asks its features what is allowed, aligns the columns and makes a plan; the tasks write
files (`task`); the driver commits their Add actions through Delta's transaction. Nothing is written before everything
that can be known without the rows has been checked, and a table changes by one commit or not at all.

Invariant: only files whose reports came from successful tasks are committed, each once.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

import pyarrow as pa
from pyspark.errors import PythonException
from pyspark.sql import functions as F  # what PySpark programs call it
from pyspark.sql import types as t

from delta_variant import errors, stats
from delta_variant import schema as schemas
from delta_variant import types as variant_types
from delta_variant.errors import DeltaVariantError, InvalidSchemaError, TableError, UnsupportedFeatureError
from delta_variant.features import SHREDDING_PROPERTY
from delta_variant.transaction import Table, Transaction, settings
from delta_variant.writer.alignment import align, check_types, leaves, not_null, storable_schema
from delta_variant.writer.task import REPORT_DDL, Plan, filesystem, write_files

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Commit", "write"]

TARGET_BYTES = 128 << 20
"""A file that has reached this size is closed, and the task goes on in a new one."""
_MODES = {
    "append": "Append",
    "overwrite": "Overwrite",
    "error": "ErrorIfExists",
    "errorifexists": "ErrorIfExists",
    "ignore": "Ignore",
}
_CODECS = ("zstd", "snappy", "gzip", "lz4", "none")
_TRANSPORT = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    # Whole Variants are wanted. Pushed into the scan, each is put together again for itself: a tenth of the JVM's work.
    "spark.sql.variant.pushVariantIntoScan": "false",
}
_STRING_PREFIX = "spark.databricks.io.skipping.stringPrefixLength"
_NO_PARTITION = (t.VariantType, t.StructType, t.ArrayType, t.MapType, t.BinaryType)
_PARTITION = "__delta_variant_partition_{}"

Shred = Literal["auto", False]


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
    compression: str = "zstd",
    max_rows_per_file: int | None = None,
    txn: tuple[str, int] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Commit:
    """Write the rows of `df` to a Delta table in one commit.

    target: a path, delta.`path`, or a table's name; text without a slash is a name. The table is created when missing,
    with the table features for VARIANT columns and their shredding.
    mode: append, overwrite (all rows), error (also errorifexists) or ignore, as in Spark.
    shred: "auto" shreds every VARIANT column to a schema inferred for each file, where the table allows shredding, and
    else writes plain; a mapping gives the schemas (Spark DDL or Arrow types) of the columns it names, and others are
    plain; False writes plain.
    partition_by: for a new table; an existing table keeps its own.
    compression: zstd, snappy, gzip, lz4 or none. max_rows_per_file: rows after which a new file begins.

    Raises InvalidSchemaError for columns or schemas that do not fit, TableError for a target that is not a Delta table or
    cannot take the write, UnsupportedFeatureError for a table feature or parameter not handled, MalformedVariantError for
    Variant bytes the encoding does not allow. The table is then as before.
    """
    later = {"cluster_by": cluster_by, "replace_where": replace_where, "txn": txn, "storage_options": storage_options}
    _check_arguments(df, mode, compression, max_rows_per_file, later)
    table = Table.of(df.sparkSession, target)
    save_mode = _MODES[mode.lower()]
    exists = table.exists()
    if exists and save_mode == "ErrorIfExists":
        raise TableError(f"{table.name} exists already: use mode='append' or 'overwrite'")
    if exists and save_mode == "Ignore":
        return Commit(Transaction(table).version, 0, 0, 0, ())
    transaction = Transaction(table) if exists else _created(df, table, shred, partition_by)
    features = transaction.features
    overwrite = save_mode == "Overwrite"
    features.check_writable(overwrite=overwrite)
    if [name.lower() for name in partition_by or features.partition_by] != [name.lower() for name in features.partition_by]:
        raise InvalidSchemaError(
            f"{table.name} is partitioned by {list(features.partition_by)}, not {list(partition_by)}: leave partition_by out"
        )
    schema = t.StructType.fromJson(dict(features.schema))
    plan = _plan(df.sparkSession, transaction, schema, shred, compression, max_rows_per_file)
    reports = _run(_transport(align(df, schema, table.name), schema, plan), plan, table.name)
    rows, size = sum(r["rows"] for r in reports), sum(r["size"] for r in reports)
    shredded = tuple(sorted({name for r in reports for name in json.loads(r["shredded"])}))
    version = transaction.version
    if reports or overwrite or version < 0:
        by = features.partition_by if version < 0 else tuple(partition_by)
        adds = [r["add"] for r in reports]
        version = transaction.commit(adds, mode=save_mode, rows=rows, size=size, partition_by=by, overwrite=overwrite)
    return Commit(version, len(reports), rows, size, shredded)


def _check_arguments(df: DataFrame, mode: str, compression: str, max_rows: int | None, later: Mapping[str, object]) -> None:
    """Everything that is wrong whatever the table is."""
    for name, value in later.items():
        if value:
            raise UnsupportedFeatureError(f"write({name}=…) is not supported yet: leave it out")
    if df.isStreaming:
        raise UnsupportedFeatureError("write takes a batch: call it in writeStream.foreachBatch")
    if mode.lower() not in _MODES:
        raise UnsupportedFeatureError(f"mode={mode!r} is not one of {', '.join(_MODES)}")
    if compression not in _CODECS:
        raise UnsupportedFeatureError(f"compression={compression!r} is not one of {', '.join(_CODECS)}")
    if max_rows is not None and max_rows < 1:
        raise UnsupportedFeatureError(f"max_rows_per_file={max_rows} must be 1 or more")
    check_types(df.schema)


def _created(
    df: DataFrame, table: Table, shred: Shred | Mapping[str, str | pa.DataType], partition_by: Sequence[str]
) -> Transaction:
    """A transaction on a new table: a path is created by the commit of the rows, a name is created now, empty."""
    schema = storable_schema(df.schema)
    _shapes(shred, schema)  # for its errors, before there is a table
    columns = _partition_columns(partition_by, schema)
    has_variant = any(isinstance(kind, t.VariantType) for _, kind in leaves(schema))
    properties = {SHREDDING_PROPERTY: "true"} if has_variant and shred is not False else {}
    if table.path is None:
        return Transaction(table.create(schema, columns, properties))
    transaction = Transaction(table)
    if transaction.version >= 0:
        raise TableError(f"{table.name} was created by another writer just now: write again")
    transaction.create(schema, columns, properties)
    return transaction


def _partition_columns(partition_by: Sequence[str], schema: t.StructType) -> list[str]:
    """The columns as the schema spells them; InvalidSchemaError where a table cannot be partitioned so."""
    if isinstance(partition_by, str):
        raise InvalidSchemaError(f"partition_by={partition_by!r} must be a list of columns: [{partition_by!r}]")
    spelled = {name.lower(): name for name in schema.names}
    columns = []
    for name in partition_by:
        if name.lower() not in spelled:
            raise InvalidSchemaError(f"partition_by: there is no column {name}; the columns are {', '.join(schema.names)}")
        columns.append(spelled[name.lower()])
        kind = schema[columns[-1]].dataType
        if isinstance(kind, _NO_PARTITION):
            raise InvalidSchemaError(f"partition_by: {name} is {kind.simpleString().upper()} and cannot be a partition column")
    if columns and len(set(columns)) >= len(schema.names):
        raise InvalidSchemaError("partition_by: a table needs a column that is not a partition column")
    return columns


def _shapes(shred: Shred | Mapping[str, str | pa.DataType], schema: t.StructType) -> dict[str, pa.DataType]:
    """The shredding schemas a user gave, by column as the table spells it."""
    if shred is False or shred == "auto":
        return {}
    if not hasattr(shred, "items"):
        raise InvalidSchemaError(f"shred={shred!r} must be 'auto', False, or a mapping from VARIANT columns to their schemas")
    columns = {field.name.lower(): field for field in schema}
    shapes = {}
    for name, given in shred.items():
        column = columns.get(name.lower())
        if column is None or not isinstance(column.dataType, t.VariantType):
            found = "not a column" if column is None else column.dataType.simpleString().upper()
            raise InvalidSchemaError(f"shred: {name} is {found}, and only VARIANT columns can be shredded")
        shape = schemas.parse(given) if isinstance(given, str) else given
        schemas.check(shape)
        _check_readable(shape, column.name)
        shapes[column.name] = shape
    return shapes


def _check_readable(shape: pa.DataType, path: str) -> None:
    """UnsupportedFeatureError, by path, for a leaf that Spark 4.2 fails to read."""
    if pa.types.is_struct(shape):
        for field in shape:
            _check_readable(field.type, f"{path}.{field.name}")
    elif schemas.is_list(shape):
        _check_readable(shape.value_type, f"{path}[*]")
    elif not pa.types.is_null(shape):
        primitive = variant_types.of_arrow(shape)
        if primitive is None or primitive.spark is None:
            raise UnsupportedFeatureError(
                f"shred: {path} is {shape}, which Spark cannot read in a Variant: leave the field out"
            )


def _plan(
    spark: SparkSession,
    transaction: Transaction,
    schema: t.StructType,
    shred: Shred | Mapping[str, str | pa.DataType],
    compression: str,
    max_rows: int | None,
) -> Plan:
    """Raises what is wrong with `shred` for this table."""
    features = transaction.features
    shapes = _shapes(shred, schema)
    if shapes:
        features.check_shredding()
    data = t.StructType([field for field in schema if field.name not in features.partition_by])
    variants = frozenset(path for path, kind in leaves(data) if isinstance(kind, t.VariantType))
    return Plan(
        location=transaction.location,
        variants=variants,
        not_null=tuple(not_null(schema)),
        partition_by=features.partition_by,
        timestamps=frozenset(f.name for f in schema if isinstance(f.dataType, t.TimestampType)),
        shapes=shapes,
        infer=shred == "auto" and features.shredding and any(len(path) == 1 for path in variants),
        compression=compression,
        max_rows=max_rows,
        max_bytes=TARGET_BYTES,
        footer={"org.apache.spark.version": spark.version},  # without it Spark shifts or refuses old dates
        num_indexed=int(features.properties.get("delta.dataSkippingNumIndexedCols", "32")),
        stats_columns=features.properties.get("delta.dataSkippingStatsColumns"),
        string_prefix=int(spark.conf.get(_STRING_PREFIX, "32") or 32),
        tight_bounds="deletionVectors" in features.names,
        nonnull=transaction.files < stats.MAX_TAGGED_FILES,
    )


def _transport(df: DataFrame, schema: t.StructType, plan: Plan) -> DataFrame:
    """The columns as tasks expect them: those of the file, then the partition values in text, sorted by them."""
    if not plan.partition_by:
        return df
    data = [_column(name) for name in schema.names if name not in plan.partition_by]
    values = []
    for i, name in enumerate(plan.partition_by):
        if isinstance(schema[name].dataType, t.BinaryType):
            raise UnsupportedFeatureError(f"partition column {name} is BINARY, which has no text: partition by another column")
        text = (F.unix_micros(_column(name)) if name in plan.timestamps else _column(name)).cast("string")
        values.append(F.nullif(text, F.lit("")).alias(_PARTITION.format(i)))
    return df.select(*data, *values).sortWithinPartitions(*(_PARTITION.format(i) for i in range(len(values))))


def _column(name: str) -> Any:
    return F.col(f"`{name.replace('`', '``')}`")


def _run(df: DataFrame, plan: Plan, table: str) -> list[Any]:
    """The job. Raises what a task raised of this package's errors, and TableError for what went wrong otherwise."""
    try:
        with settings(df.sparkSession, _TRANSPORT):
            reports = df.mapInArrow(partial(write_files, plan), REPORT_DDL).collect()
    except PythonException as error:
        last = [line for line in str(error).splitlines() if line.strip() and not line.startswith("\t")]
        advice = ": set PYSPARK_PYTHON to a Python that has delta-variant" if "ModuleNotFoundError" in last[-1] else ""
        raise TableError(f"writing the files of {table} failed: {last[-1]}{advice}") from error
    failed = next((json.loads(r["error"]) for r in reports if r["error"]), None)
    if failed:
        _delete(plan, [json.loads(r["add"])["add"]["path"] for r in reports if r["add"]])
        name, message = failed
        raise getattr(errors, name, DeltaVariantError)(f"writing to {table}: {message}")
    return reports


def _delete(plan: Plan, paths: list[str]) -> None:
    """Best effort: VACUUM finds what stays."""
    files, root = filesystem(plan.location)
    for path in paths:
        with suppress(OSError):
            files.delete_file(f"{root}/{unquote(path)}")
