"""A table as a user names it, the session in which it is written, and Delta's transactions on it.

In: a target: a path or a name. Out: the table's log, snapshot and features; and transactions for what Delta has no command for.

Invariant: data that grows with the number of files stays in the JVM.
"""

# ruff: noqa: SLF001 -- PySpark gives no public way to its JVM

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from delta_variant import jvm
from delta_variant.errors import TableError, UnsupportedFeatureError
from delta_variant.features import TableFeatures, delta_settings
from delta_variant.hadoop import storage_of
from delta_variant.messages import Bound, ColumnNames, FilePaths, Identifiers, OpenedFiles, decoded, encoded
from delta_variant.paths import normalized, quoted
from delta_variant.stats import place
from delta_variant.storage import Storage

_QUOTED_PATH = re.compile(r"delta\.`((?:[^`]|``)+)`", re.IGNORECASE)
SESSION_CATALOG = "spark_catalog"


@contextmanager
def own_session(spark: SparkSession, storage_options: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A clone of the session that has the settings of a write and is the active session of this thread in a `with` block.

    Delta uses the active session, so files that Delta writes in it have bounds.

    storage_options: Hadoop's settings for file systems (`fs.…`), which take precedence over the session's. Raises
    UnsupportedFeatureError for others.
    """
    for key in storage_options or {}:
        if not key.startswith("fs."):
            raise UnsupportedFeatureError(f"storage_options: {key} is not a setting of Hadoop's, such as fs.s3a.endpoint")
    with jvm.cloned_session(spark) as clone:
        for key, value in {**delta_settings(clone.conf.get), **(storage_options or {})}.items():
            clone.conf.set(key, value)
        yield clone


@dataclass(frozen=True)
class Table:
    """A table's name and location, whether it exists or not."""

    spark: SparkSession
    name: str
    """Its name in messages."""
    path: str | None
    """Its absolute path; None for a table that is given by its name."""
    identifier: Any = None
    """Spark's TableIdentifier, with the database, of a table that is given by its name."""
    entry: Any = None
    """Its CatalogTable in the JVM; None if the catalog does not have the table."""

    @classmethod
    def of(cls, spark: SparkSession, target: str | os.PathLike[str]) -> Table:
        """The table at a target: a path, delta.`path`, or a name.

        Text without a slash is a name: `events` is the table, `./events` the directory. A relative path is below Hadoop's
        working directory, as for Spark: for local files, the directory in which the JVM was started.

        Raises UnsupportedFeatureError for another catalog, TableError for a view and for a table of another format.
        """
        jvm.classic(spark)
        text = os.fspath(target)
        found = _QUOTED_PATH.fullmatch(text)
        if found:
            text = found[1].replace("``", "`")
        if found or not isinstance(target, str) or "/" in text or os.sep in text:
            path = _absolute(spark, text)
            return cls(spark, f"delta.{quoted(path)}", path)
        return cls(spark, text, None, *_in_catalog(spark, text))

    @property
    def log(self) -> Any:
        """Delta's DeltaLog. Raises UnsupportedFeatureError for storage that `write` does not support."""
        state, location = self.spark._jsparkSession.sessionState(), self.path
        if location is None:
            location = state.catalog().defaultTablePath(self.identifier) if self.entry is None else self.entry.location()
        path = jvm.static(self.spark, "org.apache.hadoop.fs.Path")(location)
        default = jvm.static(self.spark, "org.apache.hadoop.fs.FileSystem").getDefaultUri(state.newHadoopConf())
        Storage.of(str(path if path.toUri().getScheme() else default))
        with jvm.delta_errors(f"opening {self.name}"):
            log = jvm.static(self.spark, "org.apache.spark.sql.delta.DeltaLog")
            return log.forTable(self.spark._jsparkSession, path if self.entry is None else self.entry)

    def snapshot(self) -> Any:
        """Delta's newest Snapshot; its version is -1 if there is no table."""
        with jvm.delta_errors(f"reading {self.name}"):
            # tableExists() would answer from a snapshot in Delta's cache, even if the directory was deleted since.
            return self.log.update(False, jvm.scala_option(self.spark), jvm.scala_option(self.spark))

    def statistics(self, snapshot: Any) -> Any:
        """What the log of a snapshot says of VARIANT columns (`scala/LogStatistics.scala`)."""
        return jvm.construct(self.spark, "LogStatistics", snapshot)

    @property
    def storage(self) -> Storage:
        """Where the data files are."""
        log = self.log
        with jvm.delta_errors(f"reading the storage settings of {self.name}"):
            return storage_of(self.spark, log.dataPath(), log.newDeltaHadoopConf())

    def features(self, *, to_change: bool = False, of: Any = None) -> TableFeatures:
        """The table features of the newest snapshot.

        to_change: raises UnsupportedFeatureError if Delta does not know a feature and would refuse every commit. of: another
        snapshot.
        """
        snapshot = self.snapshot() if of is None else of
        if to_change:
            _check_protocol(self, self.log, snapshot.protocol())
        return TableFeatures.from_json(self.name, snapshot.protocol().json(), snapshot.metadata().json())

    def exists(self) -> bool:
        """Whether there is a Delta table. Raises TableError for a path where something else is."""
        return self.entry is not None or self.found() is not None

    def found(self) -> Any:
        """Delta's newest Snapshot; None if there is no table. Raises TableError for a path where something else is."""
        if self.path is None and self.entry is None:
            return None
        snapshot = self.snapshot()
        if int(snapshot.version()) >= 0:
            return snapshot
        path = self.log.dataPath()
        files = path.getFileSystem(self.spark._jsparkSession.sessionState().newHadoopConf())
        # An empty log, with data files beside it, is what a writer leaves that was killed while it created the table.
        foreign = self.path is not None and files.exists(path) and not files.exists(self.log.logPath())
        if foreign and (files.getFileStatus(path).isFile() or len(files.listStatus(path))):
            shown = path.toUri().getPath()
            raise TableError(f"{shown} is not a Delta table and not empty: choose another path, or CONVERT TO DELTA")
        return None


def _check_protocol(table: Table, log: Any, protocol: Any) -> None:
    """Raises UnsupportedFeatureError for features that Delta does not know: it reads the table and refuses every commit."""
    try:
        log.protocolWrite(protocol)
    except (Py4JError, PySparkException) as error:
        known = jvm.scala_object(table.spark, "org.apache.spark.sql.delta.TableFeature").allSupportedFeaturesMap()
        listed = json.loads(protocol.json())["protocol"].get("writerFeatures") or ()
        names = ", ".join(name for name in listed if not known.contains(name.lower()))
        said = (
            f"the table feature {names} of {table.name} is in the protocol" if names else f"{table.name} is of a later protocol"
        )
        raise UnsupportedFeatureError(
            f"{said}, and this release of Delta does not write such tables: use a release that does ({jvm.message(error)})"
        ) from error


def _absolute(spark: SparkSession, path: str) -> str:
    """The path with the directory that a relative one is in, which Delta's catalog refuses."""
    if path.startswith("/"):
        return path
    with jvm.delta_errors(f"opening {path}"):
        found = jvm.static(spark, "org.apache.hadoop.fs.Path")(path)
        if found.isAbsolute() or found.toUri().getScheme():
            return path
        conf = spark._jsparkSession.sessionState().newHadoopConf()
        return str(found.getFileSystem(conf).makeQualified(found))


def _in_catalog(spark: SparkSession, name: str) -> tuple[Any, Any]:
    """The TableIdentifier of a name, and its CatalogTable if there is one. Raises TableError for views and other formats."""
    state = spark._jsparkSession.sessionState()
    with jvm.delta_errors(f"finding the table {name!r}"):
        parts = jvm.items(state.sqlParser().parseMultipartIdentifier(name))
        catalog = parts[0] if len(parts) > 2 else spark.catalog.currentCatalog()
        if catalog != SESSION_CATALOG or len(parts) > 3:
            raise UnsupportedFeatureError(
                f"{name} is in the catalog {catalog}, and delta_variant supports only tables of {SESSION_CATALOG} and paths: "
                "use the table's path"
            )
        given = jvm.static(spark, "org.apache.spark.sql.catalyst.TableIdentifier")
        database = jvm.scala_option(spark, parts[-2] if len(parts) > 1 else None)
        if state.catalog().isTempView(given(parts[-1], database)):
            raise TableError(f"{name} is a temporary view: write to the table behind it")
        identifier = given(
            parts[-1], jvm.scala_option(spark, parts[-2] if len(parts) > 1 else state.catalog().getCurrentDatabase())
        )
        if not state.catalog().tableExists(identifier):
            return identifier, None
        entry = state.catalog().getTableMetadata(identifier)
    provider = entry.provider()
    if provider.isEmpty() or provider.get().lower() != "delta":
        raise TableError(f"{name} is not a Delta table ({provider.get() if provider.isDefined() else 'a view'})")
    return identifier, entry


def bounded_columns(statistics: Any) -> tuple[tuple[str, ...], ...]:
    """The VARIANT columns that `Table.statistics` are about, by their physical names."""
    return decoded(ColumnNames, statistics.columnNames()).columns


class Transaction:
    """One of Delta's transactions on a table, for what Delta has no command for (`scala/Rewrite.scala`)."""

    def __init__(self, table: Table) -> None:
        """Starts a transaction on the table's newest snapshot; `version` is -1 if there is no table yet.

        table: in the session of a call of `write` (`writer.calls`), if files are written. Raises UnsupportedFeatureError for
        features that Delta does not know, TableError for other failures.
        """
        self.spark = table.spark
        self._table = table
        self.log = table.log
        """Delta's DeltaLog."""
        with jvm.delta_errors(f"reading {table.name}"):
            entry = jvm.scala_option(self.spark, table.entry)
            self._rewrite = jvm.construct(self.spark, "Rewrite", self.spark._jsparkSession, self.log, entry)
            self.delta = self._rewrite.transaction()
            """Delta's OptimisticTransaction."""
            self.version = int(self.delta.readVersion())
            protocol = self.delta.protocol()
        _check_protocol(table, self.log, protocol)

    @cached_property
    def features(self) -> TableFeatures:
        return TableFeatures.from_json(self._table.name, self.delta.protocol().json(), self.delta.metadata().json())

    @property
    def clustering_columns(self) -> list[str]:
        """The names of the columns by which Delta itself clusters the table (CLUSTER BY)."""
        with jvm.delta_errors(f"reading the clustering columns of {self._table.name}"):
            info = jvm.scala_object(self.spark, "org.apache.spark.sql.delta.skipping.clustering.ClusteringColumnInfo")
            return list(jvm.items(info.extractLogicalNames(self.delta.snapshot())))

    def identifiers(self, applications: Iterable[str]) -> dict[str, int]:
        """Which of these applications have transaction identifiers in the snapshot, with their versions."""
        asked = encoded(Identifiers(dict.fromkeys(applications, 0)))
        with jvm.delta_errors(f"reading {self._table.name}"):
            return dict(decoded(Identifiers, self._rewrite.identifiers(asked)).versions)

    def replace_metadata(self, schema: str, properties: Mapping[str, str]) -> None:
        """Give the table another schema, in the JSON that Delta stores, and further properties. All its files must be removed.

        Raises TableError for what Delta refuses.
        """
        with jvm.delta_errors(f"changing the schema of {self._table.name}"):
            old = self.delta.metadata()
            configuration = old.configuration()
            for key, value in properties.items():
                configuration = configuration.updated(key, value)
            new = old.copy(
                old.id(), old.name(), old.description(), old.format(), schema, old.partitionColumns(), configuration,
                old.createdTime(),
            )  # fmt: skip
            self.delta.updateMetadataForTableOverwrite(new)

    def rows(self) -> DataFrame:
        """The rows of the snapshot. They do not come from Spark's cache, which may be older."""
        with jvm.delta_errors(f"reading {self._table.name}"):
            return DataFrame(self._rewrite.rows(), self.spark)

    def add_actions(self, where: str | None, bounds: Sequence[tuple[str, Sequence[str], Sequence[str]]] = ()) -> DataFrame:
        """A row for each file of the partitions that `where` selects: the columns of its Add action, with parsed statistics.

        bounds: what else the rows have, as VARIANT columns with these numbers as names. For each of them the side (`min`,
        `max`), the VARIANT column by its physical names, and the keys of the path.
        """
        with jvm.delta_errors(f"reading the log of {self._table.name}"):
            statistics = self._table.statistics(self.delta.snapshot())
            numbers = {names: number for number, names in enumerate(bounded_columns(statistics))}
            asked = [
                encoded(Bound(side, column=numbers.get(tuple(column), -1), key=normalized(keys), tag=place(column, keys)))
                for side, column, keys in bounds
            ]
            return DataFrame(self._rewrite.files(where, statistics, asked), self.spark)

    def open(self, paths: Sequence[str]) -> DataFrame:
        """The rows of these files, or of those that the table still has; with row tracking, with the columns that keep ids."""
        with jvm.delta_errors(f"reading {self._table.name}"):
            return DataFrame(self._rewrite.open(encoded(FilePaths(tuple(paths)))), self.spark)

    def opened(self, *, with_actions: bool) -> OpenedFiles:
        """The files that `open` found.

        with_actions: whether tasks are to read them. There are no actions if Spark has to: if files have few bytes, or are
        outside of the table's directory, or if ids of rows are kept.
        """
        return decoded(OpenedFiles, self._rewrite.opened(with_actions))

    def replace(
        self, rows: DataFrame, where: str | None, cluster_by: Sequence[str], tags: Mapping[str, str], task_bytes: int,
        *, reorganizes: bool,
    ) -> None:  # fmt: skip
        """Write rows in place of the opened files, and commit. Raises what Delta raises.

        where, cluster_by: what DESCRIBE HISTORY shows, as REORG or as OPTIMIZE. tags: of all new files. task_bytes: about how
        many bytes of a partition a task is to get; 0 if rows stay as they are.
        """
        self._rewrite.replace(rows._jdf, reorganizes, where, list(cluster_by), dict(tags), task_bytes)

    def overwrite(self, rows: DataFrame, options: Mapping[str, str]) -> None:
        """Write rows in place of all others, and commit. options: of Delta's DataFrameWriter. Raises what Delta raises."""
        self._rewrite.overwrite(rows._jdf, dict(options))
