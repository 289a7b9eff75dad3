"""The tasks of Delta's own commands in an enabled session: Delta's request → the PySpark function that writes the files.

In: what Delta's transaction knows of the table, and the columns of its rows, in the names and the order of
`scala/WritingTransaction.scala`. Out: the pickled function, or the reason why Delta has to write the files itself. The rows
have passed Delta's own checks, so tasks check nothing but what the encoding and Parquet require.

Invariant: what cannot be written is not an error. It is a reason: a table feature, type, codec or property that this package
does not handle, or executors without it.
"""

from __future__ import annotations

import base64
import importlib
import json
import logging
import sys
import threading
from dataclasses import asdict, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import types as t

from delta_variant import jvm
from delta_variant.errors import DeltaVariantError, UnsupportedFeatureError
from delta_variant.features import TableFeatures
from delta_variant.hadoop import storage_of
from delta_variant.membership import APPLICATION
from delta_variant.messages import WriteReply, WriteRequest
from delta_variant.paths import ColumnPath, quoted
from delta_variant.storage import Storage
from delta_variant.version import __version__
from delta_variant.writer import job, record_batches
from delta_variant.writer.alignment import check_types, leaves
from delta_variant.writer.arguments import sparks_codec
from delta_variant.writer.plan import JsonColumns
from delta_variant.writer.task import write_messages

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from delta_variant.writer.plan import Plan

_FIELD_ID = "parquet.field.id"
_WHOLE = 1 << 62
"""The size after which a file ends: a task of Delta's writes one file, however large."""
_UNKNOWN = 1 << 31
"""The files of a table whose log would have to be read to count them."""
_MOST_TOLD = 1000
_lock = threading.Lock()
_lacking: WeakKeyDictionary[SparkContext, str] = WeakKeyDictionary()
_told: set[str] = set()
_log = logging.getLogger("delta_variant")


def answer(request: WriteRequest, spark: SparkSession, writes: Any) -> WriteReply:
    """The function for a write. spark: any session. writes: the `scala/EveryWrite.scala` that asks."""
    reason = _without_package(spark.sparkContext)
    if reason:
        return WriteReply(None, None, reason, is_failure=True)
    columns = t.StructType.fromJson(json.loads(request.columns))
    try:
        plan = _plan(request, columns, spark, writes)
    except DeltaVariantError as error:
        return WriteReply(None, None, str(error), is_failure=False)
    rows = _rows(request, columns)
    schema = record_batches.schema_of(rows, tuple(rows.names))
    task = jvm.pickled(partial(write_messages, plan, schema, None))
    return WriteReply(base64.b64encode(task).decode(), APPLICATION if plan.index else None, "", is_failure=False)


def tell(spark: SparkSession, text: str, *, is_failure: bool) -> None:
    """Logs, once, why Delta wrote the files of a table: a failure as a WARNING, another reason at level INFO.

    text: the table, and in the next lines the reason, which may be the traceback of a Python worker or a message of Spark's.
    """
    table, reason = text.split("\n", 1)
    missing = jvm.not_loaded(reason)
    if missing is not None:
        with _lock:
            _lacking[spark.sparkContext] = missing
    why = missing or (jvm.raised(reason) if "Traceback" in reason else reason.partition("\n")[0])
    told = f"Delta itself wrote the files of a statement to {table}: {why}"
    if told not in _told and len(_told) < _MOST_TOLD:
        _told.add(told)
        _log.log(logging.WARNING if is_failure else logging.INFO, "%s", told)


def _plan(request: WriteRequest, columns: t.StructType, spark: SparkSession, writes: Any) -> Plan:
    """Raises DeltaVariantError for what tasks do not write."""
    features = TableFeatures.from_json(f"delta.{quoted(request.location)}", request.protocol, request.metadata)
    features.check_files()
    check_types(columns)
    by = request.partition_by
    for field in job.schemas(features.schema)[1]:
        if field.name in by and isinstance(field.dataType, t.BinaryType):
            raise UnsupportedFeatureError(f"partition column {field.name} is BINARY")
    plan = job.table_plan(
        features,
        _storage(request, spark, writes),
        files=_UNKNOWN if request.files is None else request.files,
        spark_version=spark.version,
        compression=sparks_codec(request.compression),
        max_rows=request.max_rows if request.max_rows > 0 else None,
        string_prefix=request.string_prefix,
    )
    texts = None if request.texts is None else JsonColumns(corrupt=None, **asdict(request.texts))
    variants = frozenset(path for path, kind in leaves(columns) if isinstance(kind, t.VariantType))
    if not variants <= plan.variants:
        raise UnsupportedFeatureError("VARIANT columns of the rows are not those of the table")
    ids: dict[ColumnPath, int] = {(field.name,): field.metadata[_FIELD_ID] for field in columns if _FIELD_ID in field.metadata}
    return replace(
        plan,
        variants=variants,
        shredding_schemas={path: schema for path, schema in plan.shredding_schemas.items() if path in variants},
        infer=plan.infer and bool(variants),
        partition_by=by,
        max_bytes=_WHOLE,
        steps=request.steps,
        field_ids={**ids, **plan.field_ids},
        json=texts,
    )


def _storage(request: WriteRequest, spark: SparkSession, writes: Any) -> Storage:
    if request.location.startswith(("/", "file:")):
        return Storage.of(request.location)
    storage = writes.storage(request.number)
    with jvm.delta_errors(f"reading the storage settings of {request.location}"):
        return storage_of(spark, storage.path(), storage.conf())


def _rows(request: WriteRequest, columns: t.StructType) -> t.StructType:
    """The columns of the rows: those of files, with texts in the place of Variants to be parsed, then the partition values."""
    texts = request.texts.columns if request.texts else ()
    kinds = [t.StructField(field.name, t.StringType()) if field.name in texts else field for field in columns]
    return t.StructType([*kinds, *(t.StructField(name, t.StringType()) for name in request.partition_by)])


def _without_package(context: SparkContext) -> str:
    """Why the executors cannot run this package's tasks; empty if they can. They are asked until they have answered once."""
    with _lock:
        if context in _lacking:
            return _lacking[context]
        if _is_own_python(context):
            answer = ""
        else:
            try:
                answer = _probe(context)
            except (Py4JError, PySparkException) as error:  # of this job, which the next write may not meet
                return f"the executors could not be asked for the version of delta-variant: {jvm.message(error)}"
        _lacking[context] = answer
        return answer


def _is_own_python(context: SparkContext) -> bool:
    """Whether the workers are processes of this Python on this machine."""
    return str(context.master).startswith("local") and context.pythonExec == sys.executable


def _probe(context: SparkContext) -> str:
    """Asks as many tasks as can run at once for the version. Functions of Python's own library need no package there.

    Raises Spark's error if the job fails for another reason than the package.
    """
    count = context.defaultParallelism
    try:
        names = context.parallelize(["delta_variant"] * count, count)
        versions = set(names.map(importlib.import_module).map(attrgetter("__version__")).collect())
    except (Py4JError, PySparkException) as error:
        missing = jvm.not_loaded(str(error))
        if missing is None:
            raise
        return missing
    others = versions - {__version__}
    if others:
        return f"the executors run delta-variant {', '.join(sorted(others))}, and the driver runs {__version__}: {jvm.SHIPPING}"
    return ""
