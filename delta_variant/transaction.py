"""Actions into the log by Delta's own transaction: target → Table → Transaction → the version committed.

In come a target as a user names it, the metadata of a table to create, and Add actions as JSON text. Out comes one
commit made by Delta's OptimisticTransaction, so conflict detection, log stores, row ids, checkpoints and hooks are
Delta's (PROTOCOL.md, "Actions"). What grows with the number of files crosses py4j as text, never one call per file.

Invariant: an append reads nothing, so that Delta may retry it behind any other commit; what removes files has read those
it could have removed, so that Delta refuses it when rows came in between.
"""

# ruff: noqa: SLF001 -- PySpark gives no public way to its JVM

from __future__ import annotations

import json
import os
import re
import threading
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delta import DeltaTable
from py4j.protocol import Py4JError
from pyspark import RDD
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from delta_variant import jvm
from delta_variant.errors import TableError, UnsupportedFeatureError
from delta_variant.features import TableFeatures
from delta_variant.hadoop import storage_of
from delta_variant.paths import quoted
from delta_variant.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

_QUOTED_PATH = re.compile(r"delta\.`((?:[^`]|``)+)`", re.IGNORECASE)
_SESSION_CATALOG = "spark_catalog"
_ACTIONS_PER_CALL = 5_000  # some 20 MB of text
# DeltaOperations.Write after its mode, in order.
_WRITE = (
    "partitionBy", "predicate", "userMetadata", "isDynamicPartitionOverwrite", "canOverwriteSchema", "canMergeSchema",
    "replaceOnCond", "replaceUsingCols",
)  # fmt: skip
# Delta gives tables of its own making the name of the preview unless this is off.
PREVIEW_NAMES = "spark.databricks.delta.variantShredding.forceUsePreviewTableFeature"
_STABLE_FEATURES = {PREVIEW_NAMES: "false"}
_patching = threading.Lock()


def java(spark: SparkSession) -> Any:
    """The root of the driver's Java packages."""
    return jvm.classic(spark)._jvm


def scala_object(spark: SparkSession, name: str) -> Any:
    """A Scala object, of JARs of `spark.jars.packages` too."""
    return jvm.load_class(spark, f"{name}$").getField("MODULE$").get(None)


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Session settings for the length of a `with` block; restored, or unset again, on every way out."""
    before = {key: spark.conf.get(key, None) for key in values}
    try:
        for key, value in values.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            spark.conf.unset(key) if old is None else spark.conf.set(key, old)


@contextmanager
def own_session(spark: SparkSession) -> Iterator[SparkSession]:
    """A clone of the session, active in this thread for the length of a `with` block: what is set in it is its own.

    It has the session's settings, temporary views, functions and optimizer rules. Delta asks for the active session.
    """
    cloned = jvm.classic(spark)._jsparkSession.cloneSession()
    with _patching:
        to_df = RDD.toDF  # every session made replaces it
        clone = SparkSession(spark.sparkContext, cloned)
        RDD.toDF = to_df  # type: ignore[method-assign]
    sessions = java(spark).org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(clone._jsparkSession)
    try:
        yield clone
    finally:
        sessions.setActiveSession(before.get()) if before.isDefined() else sessions.clearActiveSession()


@contextmanager
def delta_errors(doing: str) -> Iterator[None]:
    """What Delta and Spark raise on the driver, as TableError with their message."""
    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise TableError(f"{doing} failed: {message(error)}") from error


def message(error: Exception) -> str:
    """What an error of the JVM says, without its stack."""
    cause = getattr(error, "java_exception", None)
    text = str(error) if cause is None else str(cause.getMessage() or cause)
    return text.split("\n\nJVM stacktrace:")[0].split("\n\tat ")[0].strip()


@dataclass(frozen=True)
class Table:
    """Where a table is, whether it exists or not."""

    spark: SparkSession
    name: str
    """How messages call it."""
    path: str | None
    """As the user gave it; None for a table that is known by its name."""
    entry: Any
    """Its CatalogTable in the JVM; None without one."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of Hadoop's for its storage, `fs.…`, which go before the session's."""

    @classmethod
    def of(cls, spark: SparkSession, target: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Table:
        """The table a user names: a path, delta.`path`, or a name.

        Text without a slash is a name, so that `events` is the table and `./events` the directory. UnsupportedFeatureError
        for an option that is none of Hadoop's file systems.
        """
        jvm.classic(spark)
        options = dict(options or {})
        for key in options:
            if not key.startswith("fs."):
                raise UnsupportedFeatureError(f"storage_options: {key} is not a setting of Hadoop's, such as fs.s3a.endpoint")
        text = os.fspath(target)
        found = _QUOTED_PATH.fullmatch(text)
        if found:
            text = found[1].replace("``", "`")
        if found or not isinstance(target, str) or "/" in text or os.sep in text:
            return cls(spark, f"delta.{quoted(text)}", text, None, options)
        return cls(spark, text, None, _catalog_entry(spark, text), options)

    @property
    def log(self) -> Any:
        """Delta's DeltaLog. UnsupportedFeatureError for storage that files cannot be written to."""
        hadoop = java(self.spark).org.apache.hadoop.fs
        path = hadoop.Path(self.path or self.entry.location().toString())
        default = hadoop.FileSystem.getDefaultUri(self._hadoop_conf())
        Storage.of(str(path if path.toUri().getScheme() else default))
        with delta_errors(f"opening {self.name}"):
            log = java(self.spark).org.apache.spark.sql.delta.DeltaLog
            options = jvm.scala_map(self.spark, self.options)
            return log.forTable(self.spark._jsparkSession, path if self.entry is None else self.entry, options)

    def _hadoop_conf(self) -> Any:
        state = self.spark._jsparkSession.sessionState()
        return state.newHadoopConfWithOptions(jvm.scala_map(self.spark, self.options))

    def exists(self) -> bool:
        """Whether there is a Delta table; TableError for a path where something else is."""
        if self.path is None:
            return self.entry is not None
        log = self.log
        none = jvm.option(self.spark)
        with delta_errors(f"reading {self.name}"):
            # tableExists() answers from the snapshot in Delta's cache, of a directory that may be gone.
            if int(log.update(False, none, none).version()) >= 0:
                return True
        path = log.dataPath()
        files = path.getFileSystem(self._hadoop_conf())
        # An empty log stands beside the files of a writer that was killed while it created the table.
        foreign = files.exists(path) and not files.exists(log.logPath())
        if foreign and (files.getFileStatus(path).isFile() or len(files.listStatus(path))):
            raise TableError(f"{self.path} is not a Delta table and not empty: choose another path, or CONVERT TO DELTA")
        return False

    def create(self, schema: StructType, partition_by: Sequence[str], properties: Mapping[str, str]) -> Table:
        """Create a table that is known by its name, empty, and return it."""
        with delta_errors(f"creating {self.name}"), settings(self.spark, _STABLE_FEATURES):
            builder = DeltaTable.create(self.spark).tableName(self.name).addColumns(schema)
            for key, value in properties.items():
                builder = builder.property(key, value)
            builder.partitionedBy(*partition_by).execute()
        return Table.of(self.spark, self.name, self.options)


def _catalog_entry(spark: SparkSession, name: str) -> Any:
    """The CatalogTable of that name, None if there is none; an error where it is a view or not a Delta table."""
    state = spark._jsparkSession.sessionState()
    with delta_errors(f"finding the table {name!r}"):
        parts = jvm.items(state.sqlParser().parseMultipartIdentifier(name))
        catalog = parts[0] if len(parts) > 2 else spark.catalog.currentCatalog()
        if catalog != _SESSION_CATALOG or len(parts) > 3:
            raise UnsupportedFeatureError(
                f"{name} is in the catalog {catalog}, and delta_variant.write knows tables of {_SESSION_CATALOG} and paths"
            )
        database = jvm.option(spark, parts[-2] if len(parts) > 1 else None)
        identifier = java(spark).org.apache.spark.sql.catalyst.TableIdentifier(parts[-1], database)
        if state.catalog().isTempView(identifier):
            raise TableError(f"{name} is a temporary view: write to the table behind it")
        if not state.catalog().tableExists(identifier):
            return None
        entry = state.catalog().getTableMetadata(identifier)
    provider = entry.provider()
    if provider.isEmpty() or provider.get().lower() != "delta":
        raise TableError(f"{name} is not a Delta table ({provider.get() if provider.isDefined() else 'a view'})")
    return entry


@dataclass(frozen=True)
class Removal:
    """Which files a commit removes: all of them, unless one of the two says less."""

    where: str | None = None
    """A predicate on partition columns, in SQL: the files for which it is true."""
    dynamic: bool = False
    """The files of the partitions that files are added to."""


class Transaction:
    """One of Delta's transactions on a table, from its snapshot to its commit."""

    def __init__(self, table: Table) -> None:
        """Takes the table's newest snapshot; `version` is -1 where there is no table yet."""
        self._spark = table.spark
        self._table = table
        self.log = table.log
        """Delta's DeltaLog."""
        none = jvm.option(self._spark)
        with delta_errors(f"reading {table.name}"):
            entry = jvm.option(self._spark, table.entry)
            self.delta = self.log.startTransaction(entry, none)
            """Delta's OptimisticTransaction."""
            self.version = int(self.delta.readVersion())

    @property
    def features(self) -> TableFeatures:
        """Of the snapshot, or of the table that `create` is to make."""
        return TableFeatures.from_json(self._table.name, self.delta.protocol().json(), self.delta.metadata().json())

    @property
    def storage(self) -> Storage:
        """Where the data files go."""
        with delta_errors(f"reading the storage settings of {self._table.name}"):
            return storage_of(self._spark, self.log.dataPath(), self.log.newDeltaHadoopConf())

    @property
    def files(self) -> int:
        """How many data files the snapshot has: by its checksum file, where it has one, as to add up the log takes a job."""
        if self.version < 0:
            return 0
        with delta_errors(f"reading {self._table.name}"):
            snapshot = self.delta.snapshot()
            checksum = snapshot.checksumOpt()
            return int(checksum.get().numFiles() if checksum.isDefined() else snapshot.numOfFiles())

    def create(self, schema: StructType, partition_by: Sequence[str], properties: Mapping[str, str]) -> None:
        """Put a new table's metadata into this transaction; Delta derives the protocol, and checks names and types."""
        metadata = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema.json(),
            "partitionColumns": list(partition_by),
            "configuration": dict(properties),
            "createdTime": int(time.time() * 1000),
        }
        with delta_errors(f"creating {self._table.name}"), settings(self._spark, _STABLE_FEATURES):
            action = java(self._spark).org.apache.spark.sql.delta.actions.Action
            self.delta.updateMetadata(action.fromJson(json.dumps({"metaData": metadata})), False)
            self.log.createLogDirectoriesIfNotExists()

    def change_schema(self, schema: str) -> None:
        """Put another schema (JSON) into this transaction; Delta checks it and gives new columns their ids."""
        with delta_errors(f"changing the schema of {self._table.name}"):
            metadata = json.loads(self.delta.metadata().json())
            metadata["metaData"]["schemaString"] = schema
            action = java(self._spark).org.apache.spark.sql.delta.actions.Action
            self.delta.updateMetadata(action.fromJson(json.dumps(metadata)), False)

    def last_of(self, app_id: str) -> int:
        """The version of the last transaction that this application recorded in the table, -1 without one.

        Delta then refuses the commit if the application records another one in between.
        """
        return int(self.delta.txnVersion(app_id))

    def commit(
        self,
        adds: Sequence[str],
        *,
        mode: str,
        rows: int,
        size: int,
        partition_by: Sequence[str] = (),
        removal: Removal | None = None,
        txn: tuple[str, int] | None = None,
        merged: bool = False,
    ) -> int:
        """Commit Add actions (JSON, one each) and return the version.

        `removal` says which files go in the same version. `mode`, the save mode (Append, Overwrite, ErrorIfExists, Ignore),
        and `merged`, whether columns were allowed to come in, are for DESCRIBE HISTORY, `rows` and `size` (bytes) its
        metrics. `txn` is an application and its version, to be recorded with the files. TableError, with Delta's message,
        for a conflict that Delta does not solve.
        """
        with delta_errors(f"committing to {self._table.name}"), settings(self._spark, _STABLE_FEATURES):
            actions = jvm.construct(self._spark, jvm.java_class(self._spark, "Actions"))
            for start in range(0, len(adds), _ACTIONS_PER_CALL):
                actions.add("\n".join(adds[start : start + _ACTIONS_PER_CALL]))
            if removal is not None and self.version >= 0:
                self._remove(actions, removal)
            if txn is not None:
                recorded = {"appId": txn[0], "version": txn[1], "lastUpdated": int(time.time() * 1000)}
                actions.add(json.dumps({"txn": recorded}))
            metrics = {"numFiles": len(adds), "numOutputRows": rows, "numOutputBytes": size}
            if removal is not None:
                metrics |= {"numRemovedFiles": actions.removedFiles(), "numRemovedBytes": actions.removedBytes()}
            self._register(metrics)
            return int(self.delta.commit(actions.seq(), self._operation(mode, partition_by, removal, merged=merged)))

    def _remove(self, actions: Any, removal: Removal) -> None:
        if removal.where is not None:
            parser = self._spark._jsparkSession.sessionState().sqlParser()
            actions.removeWhere(self.delta, jvm.scala_seq(self._spark, [parser.parseExpression(removal.where)]))
        elif removal.dynamic:
            actions.removePartitions(self.delta)
        else:
            actions.removeAll(self.delta)

    def _register(self, metrics: Mapping[str, int]) -> None:
        """What DESCRIBE HISTORY shows as operationMetrics."""
        context = self._spark.sparkContext._jsc.sc()
        sql_metrics = java(self._spark).org.apache.spark.sql.execution.metric.SQLMetrics
        registered = {}
        for name, value in metrics.items():
            registered[name] = sql_metrics.createMetric(context, name)
            registered[name].set(value)
        self.delta.registerSQLMetrics(self._spark._jsparkSession, jvm.scala_map(self._spark, registered))

    def _operation(self, mode: str, partition_by: Sequence[str], removal: Removal | None, *, merged: bool) -> Any:
        """DeltaOperations.Write, for DESCRIBE HISTORY."""
        write = jvm.load_class(self._spark, "org.apache.spark.sql.delta.DeltaOperations$Write")
        known = {
            "partitionBy": jvm.scala_seq(self._spark, partition_by),
            "predicate": removal.where if removal else None,
            "isDynamicPartitionOverwrite": True if removal and removal.dynamic else None,
            "canMergeSchema": True if merged else None,
        }
        save_mode = getattr(java(self._spark).org.apache.spark.sql.SaveMode, mode)
        options = [jvm.option(self._spark, known.get(name)) for name in _WRITE]
        return jvm.construct(self._spark, write, save_mode, *options)
