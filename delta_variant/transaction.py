"""Delta's own transaction, step by step: target → Table → Transaction → the version committed.

In: a target as a user names it, the options of a write, and the plan of a job that writes files. Out: one commit by
Delta's OptimisticTransaction. The steps are those of Delta's WriteIntoDelta, each by Delta's own method, called through
`scala/Write.scala`; only the data files are not written by Delta. Conflict detection, schema merging, log stores, row ids,
checkpoints and post-commit hooks are therefore Delta's (PROTOCOL.md, "Actions"; `protocol/README.md`, "Steps of a write").

Invariants: everything that a write reads from the table is read in its transaction. An error after a successful commit says
that the table is committed. Data that grows with the number of files stays in the JVM.
"""

# ruff: noqa: SLF001 -- PySpark gives no public way to its JVM

from __future__ import annotations

import json
import os
import re
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from delta_variant import jvm, stats
from delta_variant.errors import ConflictError, DeltaVariantWarning, TableError, UnsupportedFeatureError
from delta_variant.features import TableFeatures, delta_settings
from delta_variant.hadoop import storage_of
from delta_variant.messages import Identifiers, SortKey, Written, decoded, encoded
from delta_variant.paths import quoted
from delta_variant.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

_QUOTED_PATH = re.compile(r"delta\.`((?:[^`]|``)+)`", re.IGNORECASE)
_SESSION_CATALOG = "spark_catalog"


@contextmanager
def own_session(spark: SparkSession) -> Iterator[SparkSession]:
    """A clone of the session that has the settings of a write and is the active session of this thread in a `with` block.

    Delta uses the active session, so files that Delta writes in it, such as those of an auto compaction after the commit,
    have bounds.
    """
    with jvm.cloned_session(spark) as clone:
        for key, value in delta_settings(clone.conf.get).items():
            clone.conf.set(key, value)
        yield clone


@dataclass(frozen=True)
class Table:
    """A table's name and location, whether it exists or not."""

    spark: SparkSession
    name: str
    """Its name in messages."""
    path: str | None
    """As the user gave it; None for a table that is given by its name."""
    identifier: Any = None
    """Spark's TableIdentifier, with the database, of a table that is given by its name."""
    entry: Any = None
    """Its CatalogTable in the JVM; None if the catalog does not have the table."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Hadoop settings for its storage, `fs.…`. They take precedence over the session's."""

    @classmethod
    def of(cls, spark: SparkSession, target: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Table:
        """The table at a target: a path, delta.`path`, or a name.

        Text without a slash is a name: `events` is the table, `./events` the directory. Raises UnsupportedFeatureError for an
        option that is not a setting of Hadoop's file systems and for another catalog, TableError for a view and for a table
        of another format.
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
            return cls(spark, f"delta.{quoted(text)}", text, options=options)
        return cls(spark, text, None, *_in_catalog(spark, text), options=options)

    @property
    def log(self) -> Any:
        """Delta's DeltaLog. Raises UnsupportedFeatureError for storage that `write` does not support."""
        path = jvm.static(self.spark, "org.apache.hadoop.fs.Path")(self._location())
        default = jvm.static(self.spark, "org.apache.hadoop.fs.FileSystem").getDefaultUri(self._hadoop_conf())
        Storage.of(str(path if path.toUri().getScheme() else default))
        with jvm.delta_errors(f"opening {self.name}"):
            log = jvm.static(self.spark, "org.apache.spark.sql.delta.DeltaLog")
            options = jvm.scala_map(self.spark, self.options)
            return log.forTable(self.spark._jsparkSession, path if self.entry is None else self.entry, options)

    def _location(self) -> Any:
        """Where the table is or will be, as a path or a URI."""
        if self.path is not None:
            return self.path
        if self.entry is not None:
            return self.entry.location()
        return self.spark._jsparkSession.sessionState().catalog().defaultTablePath(self.identifier)

    def _hadoop_conf(self) -> Any:
        state = self.spark._jsparkSession.sessionState()
        return state.newHadoopConfWithOptions(jvm.scala_map(self.spark, self.options))

    def snapshot(self) -> Any:
        """Delta's newest Snapshot; its version is -1 if there is no table."""
        with jvm.delta_errors(f"reading {self.name}"):
            # tableExists() would answer from a snapshot in Delta's cache, even if the directory was deleted since.
            return self.log.update(False, jvm.option(self.spark), jvm.option(self.spark))

    def statistics(self, snapshot: Any) -> Any:
        """What the log of a snapshot says of VARIANT columns (`scala/LogStatistics.scala`)."""
        return jvm.construct(self.spark, "LogStatistics", snapshot, tags(self.spark))

    @property
    def storage(self) -> Storage:
        """Where the data files are."""
        log = self.log
        with jvm.delta_errors(f"reading the storage settings of {self.name}"):
            return storage_of(self.spark, log.dataPath(), log.newDeltaHadoopConf())

    def features(self, *, to_change: bool = False) -> TableFeatures:
        """The table features of the newest snapshot.

        to_change: raises UnsupportedFeatureError if Delta does not know a feature and would refuse every commit.
        """
        snapshot = self.snapshot()
        if to_change:
            _check_protocol(self, self.log, snapshot.protocol())
        return TableFeatures.from_json(self.name, snapshot.protocol().json(), snapshot.metadata().json())

    def exists(self) -> bool:
        """Whether there is a Delta table. Raises TableError for a path where something else is."""
        if self.path is None:
            return self.entry is not None
        if int(self.snapshot().version()) >= 0:
            return True
        self.check_free()
        return False

    def check_free(self) -> None:
        """Raises TableError if the location of a new table holds something else."""
        path = self.log.dataPath()
        files = path.getFileSystem(self._hadoop_conf())
        # An empty log, with data files beside it, is what a writer leaves that was killed while it created the table.
        foreign = files.exists(path) and not files.exists(self.log.logPath())
        if foreign and (files.getFileStatus(path).isFile() or len(files.listStatus(path))):
            shown = path.toUri().getPath()
            raise TableError(f"{shown} is not a Delta table and not empty: choose another path, or CONVERT TO DELTA")


def tags(spark: SparkSession) -> Any:
    """The names of the tags that say of Add actions what their statistics do not (`scala/Tags.scala`)."""
    values = list(stats.BOUNDS_TAG_VALUES), [stats.TYPED_TAG_VALUE]
    return jvm.construct(spark, "Tags", stats.BOUNDS_TAG, *values, stats.NONNULL_TAG, stats.TIMES_TAG)


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


def _in_catalog(spark: SparkSession, name: str) -> tuple[Any, Any]:
    """The TableIdentifier of a name, and its CatalogTable if there is one. Raises TableError for views and other formats."""
    state = spark._jsparkSession.sessionState()
    with jvm.delta_errors(f"finding the table {name!r}"):
        parts = jvm.items(state.sqlParser().parseMultipartIdentifier(name))
        catalog = parts[0] if len(parts) > 2 else spark.catalog.currentCatalog()
        if catalog != _SESSION_CATALOG or len(parts) > 3:
            raise UnsupportedFeatureError(
                f"{name} is in the catalog {catalog}, and delta_variant supports only tables of {_SESSION_CATALOG} and paths: "
                "use the table's path"
            )
        given = jvm.static(spark, "org.apache.spark.sql.catalyst.TableIdentifier")
        database = jvm.option(spark, parts[-2] if len(parts) > 1 else None)
        if state.catalog().isTempView(given(parts[-1], database)):
            raise TableError(f"{name} is a temporary view: write to the table behind it")
        identifier = given(parts[-1], jvm.option(spark, parts[-2] if len(parts) > 1 else state.catalog().getCurrentDatabase()))
        if not state.catalog().tableExists(identifier):
            return identifier, None
        entry = state.catalog().getTableMetadata(identifier)
    provider = entry.provider()
    if provider.isEmpty() or provider.get().lower() != "delta":
        raise TableError(f"{name} is not a Delta table ({provider.get() if provider.isDefined() else 'a view'})")
    return identifier, entry


@dataclass(frozen=True)
class Removal:
    """What a commit removes: all files, or what one of the fields selects."""

    where: str | None = None
    """A predicate on partition columns, in SQL: the files for which it is true."""
    dynamic: bool = False
    """The files of the partitions that files are added to."""
    rows: tuple[str, tuple[str, ...]] | None = None
    """A column and texts: the rows that have one of these texts in it."""
    files: tuple[str, ...] | None = None
    """The paths of data files."""


class Transaction:
    """One of Delta's transactions on a table, from its snapshot to its commit."""

    _steps = "Write"
    """The Scala class of its steps."""

    def __init__(
        self,
        table: Table,
        users: SparkSession | None = None,
        *,
        mode: str = "Append",
        options: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Starts a transaction on the table's newest snapshot; `version` is -1 if there is no table yet.

        users: the session in which the rows are computed, by default the table's. mode: a save mode (Append, Overwrite,
        ErrorIfExists, Ignore). options: those of Delta's DataFrameWriter. partition_by, properties: of a table to be created.
        """
        self.spark = table.spark
        """The session of the table: the write's own."""
        self._table = table
        self.log = table.log
        """Delta's DeltaLog."""
        with jvm.delta_errors(f"reading {table.name}"):
            self._write = jvm.construct(
                self.spark,
                self._steps,
                self.spark._jsparkSession,
                (users or self.spark)._jsparkSession,
                self.log,
                jvm.option(self.spark, table.entry),
                mode,
                dict(options or {}),
                list(partition_by),
                dict(properties or {}),
            )
            self.delta = self._write.transaction()
            """Delta's OptimisticTransaction."""
            self.version = int(self.delta.readVersion())
            protocol = self.delta.protocol()
        _check_protocol(table, self.log, protocol)

    @cached_property
    def features(self) -> TableFeatures:
        """The table features of the snapshot or, after `update_metadata`, of the changed table."""
        return TableFeatures.from_json(self._table.name, self.delta.protocol().json(), self.delta.metadata().json())

    @property
    def storage(self) -> Storage:
        """Where the data files go."""
        return self._table.storage

    @property
    def files(self) -> int:
        """How many data files the snapshot has: from its checksum file if there is one, since counting them takes a job."""
        if self.version < 0:
            return 0
        with jvm.delta_errors(f"reading {self._table.name}"):
            snapshot = self.delta.snapshot()
            checksum = snapshot.checksumOpt()
            return int(checksum.get().numFiles() if checksum.isDefined() else snapshot.numOfFiles())

    @property
    def clustering_columns(self) -> list[str]:
        """The names of the columns by which Delta itself clusters the table (CLUSTER BY)."""
        with jvm.delta_errors(f"reading the clustering columns of {self._table.name}"):
            info = jvm.scala_object(self.spark, "org.apache.spark.sql.delta.skipping.clustering.ClusteringColumnInfo")
            return list(jvm.items(info.extractLogicalNames(self.delta.snapshot())))

    def executed_version(self) -> int | None:
        """The version of this write's application (`txnAppId`) in the table, if it is this write's version or a later one.

        Else None; if the application then records another version in between, Delta refuses the commit.
        """
        version = self._write.executedVersion()
        return None if version is None else int(version)

    def identify(self, identifiers: Mapping[str, int]) -> dict[str, int]:
        """Commit transaction identifiers with the rest: versions by application. Returns those that the table has already.

        If another writer commits one of them in between, Delta refuses the commit.
        """
        return dict(decoded(Identifiers, self._write.identify(encoded(Identifiers(identifiers)))).versions)

    def announce(self, application: str) -> None:
        """Commit the first transaction identifier of an application too, if the table has none. This never conflicts."""
        with jvm.delta_errors(f"reading {self._table.name}"):
            self._write.announce(application)

    @property
    def merges_schema(self) -> bool:
        """Whether columns that the table lacks are added to it, by the option of the write or the session's setting."""
        return bool(self._write.canMergeSchema())

    def update_metadata(self, schema: StructType | None) -> None:
        """Create the table, or merge or overwrite its schema, as mode and options say.

        schema: None for rows that have the schema of the table. Delta derives the protocol and gives new columns their ids.
        Raises TableError for names, types and changes that Delta refuses.
        """
        doing = "creating" if self.version < 0 else "changing the schema of"
        with jvm.delta_errors(f"{doing} {self._table.name}"):
            parsed = schema and jvm.data_type(self.spark, schema)
            self._write.updateMetadata(parsed or self.delta.metadata().schema())
        self.__dict__.pop("features", None)

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
        self.__dict__.pop("features", None)

    def rows(self, users: SparkSession) -> DataFrame:
        """The rows of the snapshot, as a DataFrame of a session. They do not come from Spark's cache, which may be older."""
        with jvm.delta_errors(f"reading {self._table.name}"):
            return jvm.data_frame(users, self._write.rows().logicalPlan())

    def planned(self, df: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Returns the rows of a DataFrame, to be planned anew in its own session, and a placeholder for them in this session.

        The placeholder is a DataFrame with the same columns and no rows. `run` puts the rows in its place.
        """
        source = jvm.data_frame(df.sparkSession, df._jdf.logicalPlan())
        return source, DataFrame(self._write.placeholder(source._jdf.schema()), self.spark)

    def ordering(self, source: DataFrame) -> tuple[SortKey, ...]:
        """How the rows of a DataFrame are sorted within its tasks, from its physical plan; the DataFrame is not run."""
        return decoded(tuple[SortKey, ...], self._write.ordering(source._jdf))

    def run(self, source: DataFrame, rows: DataFrame, task: Callable[[int, Iterator[bytes]], Iterator[bytes]]) -> Written:
        """Run a job that writes files, and keep their Add actions. Returns the totals, or the first error that a task reported.

        source: the rows, as `planned` returned them; the listeners of their session are told of the job. rows: a DataFrame over
        their placeholder. task: a function from the number of a task and the record batches of its rows
        (`writer.record_batches`) to WriteReports in JSON (`writer.task`). Raises what Spark raises.
        """
        function = jvm.python_function(self.spark, task)
        with jvm.delta_errors(f"creating {self._table.name}"):
            self._write.createLog()
        return decoded(Written, self._write.run(source._jdf, rows._jdf, function, jvm.executor_source()))

    def remove(self, removal: Removal) -> None:
        """Remove files. The transaction thereby reads them, so conflicts about them are detected. Call it after `run`.

        Raises ConflictError if the table does not have `removal.files` any more.
        """
        if self.version < 0:
            return
        with jvm.delta_errors(f"reading {self._table.name}"):
            if removal.rows is not None:
                self._write.removeRows(removal.rows[0], list(removal.rows[1]))
            elif removal.files is not None:
                if not self._write.removeFiles(list(removal.files)):
                    raise ConflictError(f"another writer has changed files of {self._table.name} that were to be replaced")
            elif removal.where is not None:
                self._write.removeWhere(removal.where)
            elif removal.dynamic:
                self._write.removePartitions()
            else:
                self._write.removeAll()

    def commit(self) -> int:
        """Commit, put a new table that was given by its name into the catalog, and return the version.

        If there is nothing to commit, this is the version of the snapshot. Raises ConflictError if another writer's commit
        conflicts, and TableError for other failures, both with Delta's message; the table is then as it was. If one of Delta's
        hooks fails after the commit, this is a DeltaVariantWarning.
        """
        is_new_name = self.version < 0 and self._table.identifier is not None and self._table.entry is None
        try:
            with jvm.delta_errors(f"committing to {self._table.name}"):
                self._commit(is_new_name)
        except TableError as error:
            if self._write.conflict():
                raise ConflictError(str(error)) from error.__cause__
            if self._write.version() < 0:
                raise
            done = f"{self._table.name} is committed as version {self._write.version()}"
            warnings.warn(f"{done}; a step of Delta's after that failed: {error}", DeltaVariantWarning, stacklevel=4)
        version = int(self._write.version())
        if version < 0:
            return self.version
        if is_new_name:
            self._register()
        return version

    def _commit(self, is_new_name: bool) -> None:
        self._write.commit(is_new_name)

    def _register(self) -> None:
        location = self._table._location()
        try:
            self._write.register(self._table.identifier, location)
        except (Py4JError, PySparkException) as error:
            raise TableError(
                f"{self._table.name} is committed at {location}, but could not be put into the catalog: "
                f"{jvm.message(error)}: run CREATE TABLE … USING delta LOCATION '{location}'"
            ) from error
