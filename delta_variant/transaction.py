"""Actions into the log by Delta's own transaction: target → Table → Transaction → the version committed.

In come a target as a user names it, the metadata of a table to create, and Add actions as JSON text. Out comes one
commit made by Delta's OptimisticTransaction, so conflict detection, log stores, row ids, checkpoints and hooks are
Delta's (PROTOCOL.md, "Actions"). What grows with the number of files crosses py4j as text, never one call per file.

Invariant: an append reads nothing, so that Delta may retry it behind any other commit; an overwrite reads the whole
table, so that Delta refuses it when rows came in between.
"""

# ruff: noqa: SLF001 -- PySpark gives no public way to its JVM

from __future__ import annotations

import json
import os
import re
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delta import DeltaTable
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from delta_variant import jvm
from delta_variant.errors import TableError, UnsupportedFeatureError
from delta_variant.features import TableFeatures

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_QUOTED_PATH = re.compile(r"delta\.`((?:[^`]|``)+)`", re.IGNORECASE)
_SESSION_CATALOG = "spark_catalog"
_ACTIONS_PER_CALL = 5_000  # some 20 MB of text
# Delta gives tables of its own making the name of the preview unless this is off.
_STABLE_FEATURES = {"spark.databricks.delta.variantShredding.forceUsePreviewTableFeature": "false"}


def java(spark: SparkSession) -> Any:
    """The root of the driver's Java packages."""
    return jvm.classic(spark)._jvm


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
def delta_errors(doing: str) -> Iterator[None]:
    """What Delta and Spark raise on the driver, as TableError with their message."""
    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise TableError(f"{doing} failed: {_message(error)}") from error


def _message(error: Exception) -> str:
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

    @classmethod
    def of(cls, spark: SparkSession, target: str | os.PathLike[str]) -> Table:
        """The table a user names: a path, delta.`path`, or a name.

        Text without a slash is a name, so that `events` is the table and `./events` the directory.
        """
        jvm.classic(spark)
        text = os.fspath(target)
        quoted = _QUOTED_PATH.fullmatch(text)
        if quoted:
            text = quoted[1].replace("``", "`")
        if quoted or not isinstance(target, str) or "/" in text or os.sep in text:
            return cls(spark, f"delta.`{text}`", text, None)
        return cls(spark, text, None, _catalog_entry(spark, text))

    @property
    def log(self) -> Any:
        """Delta's DeltaLog. UnsupportedFeatureError for storage other than a local disk."""
        hadoop = java(self.spark).org.apache.hadoop.fs
        session = self.spark._jsparkSession
        path = hadoop.Path(self.path or self.entry.location().toString())
        default = hadoop.FileSystem.getDefaultUri(session.sessionState().newHadoopConf())
        scheme = path.toUri().getScheme() or default.getScheme()
        if scheme != "file":
            raise UnsupportedFeatureError(
                f"{self.name} is on {scheme}: storage, and delta_variant.write writes to local disks only yet"
            )
        log = java(self.spark).org.apache.spark.sql.delta.DeltaLog
        return log.forTable(session, self.entry) if self.entry is not None else log.forTable(session, path)

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
        files = path.getFileSystem(self.spark._jsparkSession.sessionState().newHadoopConf())
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
        return Table.of(self.spark, self.name)


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


class Transaction:
    """One of Delta's transactions on a table, from its snapshot to its commit."""

    def __init__(self, table: Table) -> None:
        """Takes the table's newest snapshot; `version` is -1 where there is no table yet."""
        self._spark = table.spark
        self._table = table
        self._log = table.log
        none = jvm.option(self._spark)
        with delta_errors(f"reading {table.name}"):
            entry = jvm.option(self._spark, table.entry)
            self._delta = self._log.startTransaction(entry, none)
            self.version = int(self._delta.readVersion())

    @property
    def features(self) -> TableFeatures:
        """Of the snapshot, or of the table that `create` is to make."""
        return TableFeatures.from_json(self._table.name, self._delta.protocol().json(), self._delta.metadata().json())

    @property
    def files(self) -> int:
        """How many data files the snapshot has."""
        return int(self._delta.snapshot().numOfFiles()) if self.version >= 0 else 0

    @property
    def location(self) -> str:
        """The directory of the data files."""
        return str(self._log.dataPath().toUri().getPath())

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
            self._delta.updateMetadata(action.fromJson(json.dumps({"metaData": metadata})), False)
            self._log.createLogDirectoriesIfNotExists()

    def commit(
        self, adds: Sequence[str], *, mode: str, rows: int, size: int, partition_by: Sequence[str] = (), overwrite: bool = False
    ) -> int:
        """Commit Add actions (JSON, one each) and return the version.

        `mode` is the save mode for DESCRIBE HISTORY (Append, Overwrite, ErrorIfExists, Ignore), `rows` and `size` (bytes)
        its metrics. TableError, with Delta's message, for a conflict that Delta does not solve.
        """
        with delta_errors(f"committing to {self._table.name}"), settings(self._spark, _STABLE_FEATURES):
            actions = jvm.construct(self._spark, jvm.java_class(self._spark, "Actions"))
            if overwrite and self.version >= 0:
                actions.removeAll(self._delta)
            for start in range(0, len(adds), _ACTIONS_PER_CALL):
                actions.add("\n".join(adds[start : start + _ACTIONS_PER_CALL]))
            metrics = {"numFiles": len(adds), "numOutputRows": rows, "numOutputBytes": size}
            if overwrite:
                metrics |= {"numRemovedFiles": actions.removedFiles(), "numRemovedBytes": actions.removedBytes()}
            self._register(metrics)
            return int(self._delta.commit(actions.seq(), self._operation(mode, partition_by)))

    def _register(self, metrics: Mapping[str, int]) -> None:
        """What DESCRIBE HISTORY shows as operationMetrics."""
        context = self._spark.sparkContext._jsc.sc()
        sql_metrics = java(self._spark).org.apache.spark.sql.execution.metric.SQLMetrics
        registered = {}
        for name, value in metrics.items():
            registered[name] = sql_metrics.createMetric(context, name)
            registered[name].set(value)
        self._delta.registerSQLMetrics(self._spark._jsparkSession, jvm.scala_map(self._spark, registered))

    def _operation(self, mode: str, partition_by: Sequence[str]) -> Any:
        """DeltaOperations.Write(mode, partitionBy, …), every other argument absent."""
        write = jvm.load_class(self._spark, "org.apache.spark.sql.delta.DeltaOperations$Write")
        save_mode = getattr(java(self._spark).org.apache.spark.sql.SaveMode, mode)
        columns = jvm.option(self._spark, jvm.scala_seq(self._spark, partition_by))
        absent = [jvm.option(self._spark)] * (len(write.getConstructors()[0].getParameterTypes()) - 2)
        return jvm.construct(self._spark, write, save_mode, columns, *absent)
