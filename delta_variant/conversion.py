"""`convert`: Parquet files with Variants in any layout → a Delta table with shredded VARIANT columns.

In: files, directories and globs, on any storage that `write` supports. Out: commits of `write`. The driver lists the files,
leaves out those that the table has already, and merges the columns of the others, which a job reads from their footers. The
tasks of each commit read the files themselves (`parquet_files`). If the table has constraints, computed columns, mapped names
or other types, or if rows are sorted, the rows go through Spark instead.

Invariant: a file's rows are added to the table once (`sources`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # what PySpark programs call it
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from delta_variant import messages, reloading, sources
from delta_variant.errors import InvalidSchemaError, TableError, UnsupportedFeatureError
from delta_variant.json_files.pieces import Piece
from delta_variant.parquet_files.columns import merged, variants
from delta_variant.parquet_files.reader import PIECE, ParquetFiles, Reader
from delta_variant.paths import ColumnPath, dotted, parse_column, quoted
from delta_variant.progress import Progress
from delta_variant.reloading import Changed, Reload, Reloads
from delta_variant.shredding.shredder import UNREADABLE
from delta_variant.sources import COMMIT_BYTES, OPENING, PIECE_BYTES, TASK_BYTES, Loaded, Pieces, SourceFile, own_errors
from delta_variant.transaction import Table, own_session
from delta_variant.writer.arguments import Request
from delta_variant.writer.driver import Commit, write_rows
from delta_variant.writer.partitions import uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OPERATION = "convert"
_SUFFIXES = (".parquet", ".parq", ".pq")
_GROUP = "delta_variant group"
_SCHEMAS = "file string, schema binary"
_OPTIONS = ("shred", "partition_by", "cluster_by", "merge_schema", "compression", "max_rows_per_file", "user_metadata")
"""The options of `write` that `convert` has."""


@dataclass(frozen=True)
class Converted(Loaded):
    """What a conversion did."""


def convert(
    spark: SparkSession,
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    target: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    folders: Mapping[str, str] | None = None,
    path_column: str | None = None,
    modified_column: str | None = None,
    commit_bytes: int = COMMIT_BYTES,
    force: bool = False,
    changed: Changed = "skip",
    progress: Callable[[Progress], object] | None = None,
    storage_options: Mapping[str, str] | None = None,
    **options: Any,
) -> Converted:
    """Load Parquet files with Variants, of any engine and in any layout, into a Delta table.

    Example:
        dv.convert(spark, "s3a://lake/spark-4.0/", "events")
        dv.convert(spark, "drafts/*.parquet", "events", columns=["v"], cluster_by=["v:actor.id"])

    source: files, directories (with all below them) and globs. Of the files below directories, those whose name ends in
    .parquet, .parq or .pq are read, or all if there are none. target: as for `write`; a missing table is created.
    Columns of directories (`day=2026-11-01`) are found, and their types inferred, as by Spark; below a single glob, from its
    first wildcard on. folders gives the types of columns of directories. A new table is partitioned by these columns, or by
    those of partition_by.
    columns: the VARIANT columns (`v`, `s.w`; `a.list.element`, as Parquet names the elements of a list). By default these are
    the groups that the files annotate as VARIANT, and those whose structure is that of a layout (`layouts.is_variant`); other
    columns keep their types. drop: columns that the table does not get.
    The table gets the columns of all files, and null where a file lacks one. Columns of one name must have one type.
    path_column, modified_column: columns for the URI of the file, as in _metadata.file_path, and its modification time.
    Files that the table has from an earlier conversion are left out, so the same call can be repeated: after a failure, or for
    new files. force=True reads all files. A file is known by its path. changed: what happens to files that have changed since
    the table took them, as for `ingest`: "skip", "error" or "reload".
    commit_bytes: after so many bytes of files there is a commit. progress: called after each commit. storage_options: as for
    `write`, for source and target. options: shred, cluster_by, merge_schema, compression, max_rows_per_file, user_metadata, as
    for `write`.

    Returns counts of files, rows and bytes. Raises InvalidSchemaError for columns that differ between files or have a type that
    Spark has not, and if no column is VARIANT; InvalidLayoutError and MalformedVariantError for Variants that are none;
    TableError for a file that cannot be read, for no files, and for a source that is a Delta table or holds the target; and
    what `write` raises. Messages about a value name the file, the column or the path, and the row of the file, from 0.
    """
    sources.check_options("convert", options, _OPTIONS, "write(dv.VariantTable.forPath(…).toDF(), …)")
    for name, given in (("columns", columns), ("drop", drop)):
        if isinstance(given, str):
            raise InvalidSchemaError(f"{name}={given!r} must be a list of columns: [{given!r}]")
    if commit_bytes < 1:
        raise UnsupportedFeatureError("commit_bytes must be 1 or more")
    reloading.check(changed, force=force)
    asked = None if columns is None else frozenset(tuple(map(str.lower, parse_column(name))) for name in columns)
    conversion = _Conversion(
        spark, target, asked, frozenset(map(str.lower, drop)), path_column, modified_column, dict(storage_options or {}), force,
        changed, options,
    )  # fmt: skip
    places = [os.fspath(path) for path in ([source] if isinstance(source, str | os.PathLike) else source)]
    types = ", ".join(f"{quoted(name)} {kind}" for name, kind in (folders or {}).items())
    found = sources.listed(spark, "listFolders", conversion.storage_options, places, types)
    for table in found.tables:
        raise TableError(
            f"{table} is a Delta table: read it with spark.read.format('delta') and use write, or VariantTable.convert"
        )
    conversion.check_target([file.path for file in found.files], found.directories)
    schema = t.StructType.fromJson(json.loads(found.schema)) if found.schema else t.StructType()
    for name in folders or {}:
        if name.lower() not in map(str.lower, schema.names):
            raise InvalidSchemaError(f"folders: no file is in a folder {name}=…; the folders are {', '.join(schema.names)}")
    files, ignored = _wanted(found.files, schema, conversion.drop)
    schema = t.StructType([field for field in schema if field.name.lower() not in conversion.drop])
    return replace(conversion.run(files, schema, commit_bytes, progress), ignored=ignored)


def _wanted(
    listed: Sequence[messages.SourceFile], folders: t.StructType, dropped: Collection[str]
) -> tuple[list[SourceFile], int]:
    """The files to read, in the order of their names, and how many were left out because of their suffix.

    folders: the columns of directories. dropped: those that are not needed, in lower case. Raises TableError for a file that is
    in none of the directories.
    """
    kept = [i for i, name in enumerate(folders.names) if name.lower() not in dropped]
    named = {file.path: file for file in listed if file.named or not file.path.rpartition("/")[2].startswith("_")}  # _metadata
    all_files = [file for _, file in sorted(named.items())]
    wanted = [file for file in all_files if file.named or file.path.lower().endswith(_SUFFIXES)] or all_files
    files = []
    for file in wanted:
        if folders and not file.values:
            raise TableError(f"{file.path} is in no folder {folders.names[0]}=…, and other files are: convert it alone")
        values = file.values or ()
        files.append(SourceFile(file.path, file.size, max(0, file.modified), tuple(values[i] for i in kept)))
    return files, len(all_files) - len(files)


@dataclass(frozen=True)
class _Conversion:
    spark: SparkSession
    target: str | os.PathLike[str]
    columns: frozenset[ColumnPath] | None
    drop: frozenset[str]
    path_column: str | None
    modified_column: str | None
    storage_options: dict[str, str]
    force: bool
    changed: Changed
    options: dict[str, Any]

    def check_target(self, files: Sequence[str], directories: Sequence[str]) -> None:
        """Raises TableError if source and table overlap: VACUUM would delete files, or the table's own would be read."""
        with own_session(self.spark, self.storage_options) as spark:
            directory = str(Table.of(spark, self.target).log.dataPath()).rstrip("/") + "/"
        if inside := [name for name in files if name.startswith(directory)]:
            raise TableError(f"{inside[0]} is in the directory of the table, {self.target}: choose another directory")
        for source in directories:
            if directory.startswith(source.rstrip("/") + "/"):
                raise TableError(
                    f"the table {self.target} would be in {source}, whose files are read: choose another directory"
                )

    def run(
        self,
        files: list[SourceFile],
        folders: t.StructType,
        commit_bytes: int,
        progress: Callable[[Progress], object] | None,
    ) -> Converted:
        """Converts the files that the table has not, and those that have changed if they are to be, commit by commit."""
        done = Converted(None, 0, 0, 0, 0, 0, 0, 0)
        sources.check_writable(self.spark, self.target, self.storage_options)
        times = self._times(files)
        changed = reloading.changed_files(files, times, self.changed, self.target)
        listed = {file.identifier(_OPERATION): file for file in files}
        reloads_of = Reloads(self.spark, self.target, self.storage_options, _OPERATION, self.path_column, listed)
        plan = partial(reloads_of.plan, commit_bytes=commit_bytes)
        reloads = plan(changed) if self.changed == "reload" else []
        new = [file for file in files if file.name not in times]
        wanted = [*new, *(file for reload in reloads for file in reload.files)]
        if not wanted:
            return replace(done, skipped=len(files), changed=len(changed))
        write = partial(self._write, self._schema(wanted, folders), folders)
        total = sum(file.size for file in wanted)

        def count(taken: Sequence[SourceFile], commit: Commit | None) -> None:
            nonlocal done
            if commit is not None:
                done = Converted(
                    commit.version, done.commits + 1, done.files + len(taken), 0, 0, done.rows + commit.rows,
                    done.bytes_read + sum(file.size for file in taken), done.bytes_written + commit.bytes,
                )  # fmt: skip
            if progress is not None:
                progress(Progress(done.files, len(wanted), done.bytes_read, total, done.rows))

        for batch in sources.batches(new, commit_bytes):
            count(*sources.committed(batch, write, self._times))

        def write_again(reload: Reload) -> Commit:
            if set(reload.files) <= set(wanted):
                return write(reload.files, reload)
            return self._write(self._schema(reload.files, folders), folders, reload.files, reload)  # planned anew

        for reload, commit in reloading.reloaded(changed if reloads else [], plan, write_again, self._times, reloads):
            count(reload.files, commit)
        return replace(done, skipped=len(files) - done.files, changed=len(changed))

    def _times(self, files: Sequence[SourceFile]) -> dict[str, int]:
        """The modification times with which the table took files, by their names; none if all are to be read."""
        if self.force:
            return {}
        by_identifier = {file.identifier(_OPERATION): file for file in files}
        return sources.known(self.spark, self.target, self.storage_options, by_identifier)

    def _exists(self) -> bool:
        with own_session(self.spark, self.storage_options) as spark:
            return Table.of(spark, self.target).exists()

    def _schema(self, files: Sequence[SourceFile], folders: t.StructType) -> pa.Schema:
        """The columns of the files, without those that their directories give. Raises InvalidSchemaError."""
        pieces, reading = self._pieces(files, folders, whole=True)
        with own_errors("reading the footers"):
            rows = pieces.select(quoted(PIECE)).mapInArrow(partial(_schemas, reading), _SCHEMAS).collect()
        schema = merged((row.file, pa.ipc.read_schema(pa.py_buffer(row.schema))) for row in sorted(rows))
        for name in (self.path_column, self.modified_column):
            if name is not None and name.lower() in map(str.lower, [*schema.names, *folders.names]):
                raise InvalidSchemaError(f"the files have a column {name} already: choose another name, or drop the column")
        found = set(variants(schema))
        missing = [dotted(path) for path in self.columns or () if path not in found]
        if (missing or not found) and not self._exists():
            if missing:
                raise InvalidSchemaError(f"columns: no file has {missing[0]}; the columns are {', '.join(schema.names)}")
            raise InvalidSchemaError(
                f"none of the columns {', '.join(schema.names)} is a VARIANT: name those that are with columns=[…], or use "
                "CONVERT TO DELTA"
            )
        return schema

    def _write(
        self, schema: pa.Schema, folders: t.StructType, files: Sequence[SourceFile], reload: Reload | None = None
    ) -> Commit:
        pieces, reading = self._pieces(files, folders)
        reading = replace(reading, schema=schema)
        columns = t.StructType([*from_arrow_schema(schema), *pieces.schema.fields[1:]])
        rows = pieces.mapInArrow(partial(_rows, reading, to_arrow_schema(columns, timezone="UTC")), columns)
        options = self.options
        if options.get("partition_by") is None:
            options = options | {"partition_by": () if self._exists() else tuple(folders.names)}
        identifiers = {file.identifier(_OPERATION): file.modified for file in files}
        request = replace(Request.of(rows, "append", **options), files=reading, identifiers=identifiers, again=self.force)
        if reload is not None:
            request = replace(request, known=reload.known, removal=reload.removal)
        try:
            with own_errors("reading the files"):
                return write_rows(rows, self.target, request, self.storage_options)[0]
        except UnsupportedFeatureError as error:
            if UNREADABLE not in str(error):
                raise
            # What is written has no names of files and no numbers of their rows any more: the files are read once more.
            check = partial(_checked, replace(reading, for_spark=True))
            with own_errors("reading the files"):
                found = sorted(pieces.select(quoted(PIECE)).mapInArrow(check, "error string").collect())
            if found:
                raise UnsupportedFeatureError(found[0].error) from error
            raise

    def _pieces(
        self, files: Sequence[SourceFile], folders: t.StructType, *, whole: bool = False
    ) -> tuple[DataFrame, ParquetFiles]:
        """A DataFrame with a row for each piece and the columns of its file and directories, and how the pieces are read.

        whole: whether a file is one piece.
        """
        of_files = Pieces(self.spark, self.storage_options)
        cut = [
            (file, piece)
            for file in files
            for piece in ([of_files.of(file)] if whole else sources.cut(of_files.of(file), PIECE_BYTES))
        ]
        weights = [OPENING if whole else _size(piece) + OPENING for _, piece in cut]
        groups = sources.groups(weights, self.spark.sparkContext.defaultParallelism, TASK_BYTES)
        rows = [
            (piece.json(), uri(file.name), file.modified, *file.folders, group)
            for (file, piece), group in zip(cut, groups, strict=True)
        ]
        names = [PIECE, "path", "modified", *(f"folder{i}" for i in range(len(folders))), _GROUP]
        types = [pa.string(), pa.string(), pa.int64(), *(pa.string() for _ in folders), pa.int32()]
        values = zip(*rows, strict=True)
        table = pa.table([pa.array(list(column), kind) for column, kind in zip(values, types, strict=True)], names=names)
        columns = [F.col(f"folder{i}").cast(field.dataType).alias(field.name) for i, field in enumerate(folders)]
        if self.path_column is not None:
            columns.append(F.col("path").alias(self.path_column))
        if self.modified_column is not None:
            columns.append(F.timestamp_millis("modified").alias(self.modified_column))
        df = self.spark.createDataFrame(table).repartitionById(max(groups) + 1, F.col(quoted(_GROUP)))
        dropped = self.drop | {name.lower() for name in folders.names}
        return df.select(F.col(quoted(PIECE)), *columns), ParquetFiles(of_files.storages, self.columns, dropped)


def _size(piece: Piece) -> int:
    return (piece.size if piece.end is None else piece.end) - piece.start


def _schemas(reading: ParquetFiles, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The different schemas of the files of a task, each with the first file that has it."""
    reader, known = Reader(reading), set()
    for batch in batches:
        for text in batch.column(0).to_pylist():
            piece = Piece.of(text)
            schema = reader.columns(piece).serialize().to_pybytes()
            if schema not in known:
                known.add(schema)
                yield pa.RecordBatch.from_arrays(
                    [pa.array([piece.name]), pa.array([schema], pa.binary())], names=["file", "schema"]
                )


def _checked(reading: ParquetFiles, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first value in the pieces of a task that Spark cannot read, in words."""
    try:
        for _ in Reader(reading).batches(batches):
            pass
    except UnsupportedFeatureError as error:
        yield pa.RecordBatch.from_arrays([pa.array([str(error)])], names=["error"])


def _rows(reading: ParquetFiles, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of pieces, in record batches of PySpark's schema."""
    for batch in Reader(reading).batches(batches):
        columns = [c if c.type == f.type else c.cast(f.type) for c, f in zip(batch.columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
