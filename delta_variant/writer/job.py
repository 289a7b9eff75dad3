"""The Spark job of a write: rows with the table's columns → files → reports of the files.

In: a DataFrame in the write's own session, and the requirements of the table. Out: one report per file (`task`). Columns
get their physical names (`mapping`), partition values become text (PROTOCOL.md, "Partition Value Serialization"), and rows
of one partition are brought together.

Invariant: a failure of a task reaches the caller as one error of this package, with the logical names of columns. A failure of
the DataFrame itself stays Spark's error.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import functions as F  # what PySpark programs call it
from pyspark.sql import types as t

from delta_variant import errors, jvm, membership, stats
from delta_variant.errors import DeltaVariantError, InvalidJsonError, InvalidSchemaError, TableError, UnsupportedFeatureError
from delta_variant.parquet_files.reader import PIECE, ParquetFiles
from delta_variant.paths import ColumnPath, quoted
from delta_variant.stats.files import column_names
from delta_variant.writer import clustering, file_sizes, indexing, json_texts, mapping, record_batches, shredding_schemas
from delta_variant.writer.alignment import field_names, leaves, not_null, nullable
from delta_variant.writer.plan import Plan
from delta_variant.writer.task import write_messages
from delta_variant.writer.task_events import TaskEvents

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from delta_variant.features import TableFeatures
    from delta_variant.json_files.pieces import JsonFiles
    from delta_variant.messages import Written
    from delta_variant.storage import Storage
    from delta_variant.transaction import Transaction
    from delta_variant.writer.arguments import Request
    from delta_variant.writer.plan import JsonColumns
    from delta_variant.writer.shredding_schemas import Shred

# How many bytes Spark gives to one task after a shuffle; here the target size of a file.
_TASK_BYTES = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
STRING_PREFIX = "spark.databricks.io.skipping.stringPrefixLength"
_VIOLATION = "DeltaInvariantViolationException"
_WORKER_GONE = "Python worker exited unexpectedly"
_IN_A_TASK = re.compile(r'File "[^"\n]*\bdelta_variant[/\\]writer[/\\]task\.py"')


def make_plan(transaction: Transaction, request: Request) -> Plan:
    """Makes the plan that every task gets.

    Raises InvalidSchemaError, InvalidPathError, UnsupportedFeatureError and TableError for arguments and properties that do
    not fit the table.
    """
    features = transaction.features
    schema, physical = schemas(features.schema)
    plan = table_plan(
        features,
        transaction.storage,
        files=transaction.files,
        spark_version=transaction.spark.version,
        shred=request.shred,
        cluster_by=request.cluster_by,
        compression=request.compression,
        max_rows=request.max_rows,
        string_prefix=int(transaction.spark.conf.get(STRING_PREFIX, "32") or 32),
    )
    json = request.texts.plan(transaction.spark, schema, physical)
    data = t.StructType([field for field in physical if field.name not in plan.partition_by])
    return replace(
        plan,
        not_null=tuple(not_null(physical)),
        json=json if request.files is None else None,
        files=_files(request, data, json),
    )


def table_plan(
    features: TableFeatures,
    location: Storage,
    *,
    files: int,
    spark_version: str,
    shred: Shred | Mapping[str, str | pa.DataType] = "auto",
    cluster_by: Sequence[str] = (),
    compression: str,
    max_rows: int | None,
    string_prefix: int,
) -> Plan:
    """What a table asks of its files, in a plan for rows that have all of its columns. Raises as `make_plan`.

    files: how many the table has. spark_version: for the footers. string_prefix: how many characters of a string bounds keep.
    """
    schema, physical = schemas(features.schema)
    names = dict(zip(schema.names, physical.names, strict=True))
    given = shredding_schemas.given(shred, schema, features.properties)
    clustering.keys(schema, cluster_by)
    if shred not in ("auto", False):
        features.check_shredding(", or leave out shred=")
    by = tuple(names[name] for name in features.partition_by)
    data = t.StructType([field for field in physical if field.name not in by])
    variants = frozenset(path for path, kind in leaves(data) if isinstance(kind, t.VariantType))
    physical_paths = mapping.physical_paths(features.schema)
    first = shredding_schemas.first_bounds(schema, features.properties, cluster_by)
    to_index = indexing.stored(schema, features.properties)
    budget = indexing.share(None, features.properties)
    return Plan(
        location=location,
        variants=variants,
        not_null=(),
        partition_by=by,
        timestamps=frozenset(f.name for f in physical if isinstance(f.dataType, t.TimestampType)),
        shredding_schemas={physical_paths[path]: wanted for path, wanted in given.items()} if features.shredding else {},
        infer=shred == "auto" and features.shredding and bool(variants),
        compression=compression,
        max_rows=max_rows,
        max_bytes=file_sizes.target_bytes(features.properties),
        footer={"org.apache.spark.version": spark_version},  # without this key Spark shifts or refuses old dates
        string_prefix=string_prefix,
        indexed=frozenset(_indexed(features, data, variants, physical_paths)),
        tight_bounds="deletionVectors" in features.names,
        tags=files < stats.MAX_TAGGED_FILES,
        field_ids=mapping.field_ids(features.schema),
        random_prefix=features.random_prefix,
        first_bounds={physical_paths[path]: keys for path, keys in first.items()},
        index=indexing.plan(location, features, to_index, budget, files) if to_index else None,
    )


def _files(request: Request, data: t.StructType, json: JsonColumns | None) -> JsonFiles | ParquetFiles | None:
    """How tasks read the files. data: the columns of the table without the partition columns, by their physical names."""
    if isinstance(request.files, ParquetFiles):
        return replace(request.files, schema=record_batches.schema_of(data, tuple(data.names)))
    return request.files and replace(request.files, column=json.columns[0] if json and json.columns else "")


def schemas(schema: Mapping[str, Any]) -> tuple[t.StructType, t.StructType]:
    """A table's schema, given in JSON, with its logical names and with its physical names."""
    return t.StructType.fromJson(dict(schema)), t.StructType.fromJson(mapping.physical_schema(schema))


def _indexed(
    features: TableFeatures,
    data: t.StructType,
    variants: Collection[ColumnPath],
    physical_paths: Mapping[ColumnPath, ColumnPath],
) -> list[ColumnPath]:
    """The leaf columns that get statistics, by their physical names, as the table's properties say.

    data: the columns of the table without the partition columns, by their physical names.
    """
    count = int(features.properties.get("delta.dataSkippingNumIndexedCols", "32"))
    named = features.properties.get("delta.dataSkippingStatsColumns")
    if named is not None:
        folded = {tuple(map(str.lower, logical)): physical for logical, physical in physical_paths.items()}
        paths = [folded.get(parts, parts) for parts in column_names(named)]
        named = ",".join(".".join(map(quoted, path)) for path in paths)
    return stats.indexed_columns(record_batches.schema_of(data, tuple(data.names)), variants, count, named)


def transport(df: DataFrame, transaction: Transaction, plan: Plan, source: DataFrame, request: Request) -> DataFrame:
    """Brings the rows into the form that tasks expect: the columns of the file, then the partition values as text.

    Tasks get JSON texts in the place of the VARIANT columns that they become, and pieces of Parquet files in the place of all
    columns of the file.

    The rows are in the order in which the files are to have them. Columns are found by position, so that internal names
    cannot collide with a user's. source: the DataFrame of the user. Raises UnsupportedFeatureError for a BINARY partition
    column.
    """
    features, cluster_by = transaction.features, request.cluster_by
    data: dict[str, Column] = {}
    values: dict[str, Column] = {}
    schema, physical_schema = schemas(features.schema)
    both = list(zip(schema, physical_schema, strict=True))
    renamed = {a.name for a, b in both if list(field_names(a.dataType)) != list(field_names(b.dataType))}
    if not (plan.partition_by or cluster_by or renamed or request.texts.columns):
        return df
    has_pieces = isinstance(plan.files, ParquetFiles)
    if has_pieces:
        data[PIECE] = F.col(quoted(PIECE)).alias("c0")
    for field, physical in both:
        if has_pieces and physical.name not in plan.partition_by:
            continue
        column = request.texts.transported(field.name)
        if column is None or physical.name in plan.partition_by:
            column = F.col(quoted(field.name))
        if physical.name in plan.partition_by:
            if isinstance(field.dataType, t.BinaryType):
                raise UnsupportedFeatureError(
                    f"partition column {field.name} is BINARY, which delta_variant.write does not handle: choose another column"
                )
            text = F.unix_micros(column) if physical.name in plan.timestamps else column
            values[physical.name] = text.cast("string").alias(f"p{len(values)}")
            continue
        if field.name in renamed:
            column = column.cast(nullable(physical.dataType))
        data[field.name] = column.alias(f"c{len(data)}")
    by = [values[name] for name in plan.partition_by]
    keys = [key.alias(f"k{i}") for i, key in enumerate(clustering.keys(schema, cluster_by))]
    rows = df.select(*data.values(), *by, *keys)
    if keys:
        return clustering.clustered(rows, len(by), len(keys))
    if not by:
        return rows
    ordering = clustering.Ordering.of(source, transaction.ordering(source), schema, features.partition_by)
    # Pieces of files are few and small rows. Tasks have got what they shall read.
    rebalance = plan.files is None and clustering.rebalances(df.sparkSession, features.properties)
    aliases = {name: f"c{i}" for i, name in enumerate(data)}
    return clustering.partitioned(rows, len(by), ordering, aliases, rebalance=rebalance)


def run(transaction: Transaction, plan: Plan, source: DataFrame, rows: DataFrame) -> Written:
    """Runs the job, and returns the totals of its reports.

    source: the DataFrame of the user. rows: what `transport` returned. Raises the first error of this package in a task, and
    TableError for other failures of tasks. A failure of the DataFrame itself stays Spark's error.

    The first error of a task cancels the job. If the job fails, the files of finished tasks are deleted here; the other tasks
    delete their own.
    """
    table, names = transaction.features.table, mapping.logical_names(transaction.features.schema)
    events = TaskEvents(rows.sparkSession)
    data = [name for name in schemas(transaction.features.schema)[1].names if name not in plan.partition_by]
    if isinstance(plan.files, ParquetFiles):
        data = [PIECE]
    schema = record_batches.schema_of(rows.schema, (*data, *plan.partition_by))
    cancelled: BaseException | None = None
    try:
        with events.watched() as sender, jvm.settings(rows.sparkSession, {_TASK_BYTES: str(plan.max_bytes)}):
            written = transaction.run(source, rows, partial(write_messages, plan, schema, sender))
    except BaseException as error:
        _delete(plan, events.files)
        if events.error is None:
            explained = _explained(error, table)
            if explained is None:
                raise
            raise explained from error
        cancelled = error
    else:
        if written.error is None:
            if plan.index is not None and written.files:
                transaction.announce(membership.APPLICATION)
            return written
        events.error = events.error or written.error
        _delete(plan, events.files)
    kind = getattr(errors, events.error.name, DeltaVariantError)
    raise kind(f"writing to {table}: {_in_logical_names(events.error.text, names)}") from cancelled


def shredded_columns(written: Written, features: TableFeatures) -> tuple[str, ...]:
    """The logical names of the VARIANT columns that were shredded in at least one file."""
    names = mapping.logical_names(features.schema)
    return tuple(sorted({names.get(name, name) for columns in written.shredded for name in columns}))


def _explained(error: BaseException, table: str) -> DeltaVariantError | None:
    """Spark's exception as an error of this package if it is about files or rows of the table, else None."""
    text = str(error)
    if isinstance(error, (Py4JJavaError, PySparkException)) and (malformed := json_texts.malformed(jvm.message(error))):
        return InvalidJsonError(f"writing to {table}: {malformed}")
    if isinstance(error, PythonException):
        advice = jvm.not_loaded(text)
        if advice is None and not _IN_A_TASK.search(text):
            return None
        return TableError(f"writing the files of {table} failed: {advice or jvm.raised(text)}")
    if isinstance(error, Py4JJavaError) and str(error.java_exception.getClass().getName()).endswith(_VIOLATION):
        return InvalidSchemaError(f"writing to {table}: {' '.join(jvm.message(error).split())}")
    if isinstance(error, Py4JJavaError) and _WORKER_GONE in text:
        return TableError(
            f"writing the files of {table} failed: a Python worker was killed, perhaps for lack of memory: try again"
        )
    return None


def _in_logical_names(text: str, names: Mapping[str, str]) -> str:
    """A message of a task with logical names in the place of physical ones."""
    if not names:
        return text
    physical = "|".join(map(re.escape, names))
    return re.sub(rf"(?<!\S)(column|-) ({physical})(?![\w-])", lambda found: f"{found[1]} {names[found[2]]}", text)


def _delete(plan: Plan, files: list[str]) -> None:
    """Deletes files as far as possible; VACUUM deletes the rest."""
    storage = plan.location.open()
    for file in files:
        with suppress(OSError):
            storage.delete_file(file)
