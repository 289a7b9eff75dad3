"""`convert`: Parquet files with Variants in any layout → a Delta table with shredded VARIANT columns.

In: files, directories and globs, on any storage that `write` supports. Out: commits of `write`. The driver lists the files,
leaves out those that the table has already, and merges the columns of the others, which a job reads from their footers. The
tasks of each commit read the files themselves (`parquet_files`). If the table has constraints, computed columns, mapped names
or other types, or if rows are sorted, the rows go through Spark instead.

Invariant: a file's rows are added to the table once (`loading`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # what PySpark programs call it
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from delta_variant import loading, pairs, reloading
from delta_variant.errors import InvalidSchemaError, TableError, UnsupportedFeatureError
from delta_variant.loading import COMMIT_BYTES, Loaded, Loader, own_errors
from delta_variant.parquet.physical import with_types
from delta_variant.parquet_files.reader import ParquetFiles, Reader
from delta_variant.parquet_files.spark_schema import merged, variants
from delta_variant.paths import ColumnPath, dotted, parse_column, quoted
from delta_variant.pieces import PIECE, Piece
from delta_variant.progress import Progress
from delta_variant.reloading import Batch, Changed, ListedFile
from delta_variant.shredding.shredder import UNREADABLE
from delta_variant.writer.arguments import whole
from delta_variant.writer.driver import Outcome
from delta_variant.writer.row_sources import ParquetPieces

_SUFFIXES = (".parquet", ".parq", ".pq")
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
    Partition directories (`day=2026-11-01`) become columns, with the types that Spark infers; of a single glob, those from its
    first wildcard on. folders gives the types of such columns. A new table is partitioned by them, or by the columns of
    partition_by.
    columns: the VARIANT columns (`v`, `s.w`; `a.list.element`, as Parquet names the elements of a list). By default these are
    the groups that the files annotate as VARIANT, and those whose structure is that of a layout (`layouts.is_variant`); other
    columns keep their types. drop: columns to leave out.
    The table gets the columns of all files, and null where a file lacks one. Columns of one name must have one type.
    path_column, modified_column: columns for the URI of the file, as in _metadata.file_path, and its modification time.
    Files that were loaded before are left out, so the same call can be repeated: after a failure, or for new files. force=True
    reads all files. A file is identified by its path. changed: what happens to files that have changed since they were loaded,
    as for `ingest`: "skip", "error" or "reload".
    commit_bytes: there is a commit after about so many bytes of files. progress: called after each commit. storage_options: as
    for `write`, for source and target. options: shred, cluster_by, merge_schema, compression, max_rows_per_file, user_metadata,
    as for `write`.

    Returns counts of files, rows and bytes. Raises InvalidSchemaError for columns that differ between files or have a type that
    Spark does not have, and if no column is VARIANT; InvalidLayoutError and MalformedVariantError for malformed Variants;
    TableError for a file that cannot be read, for no files, and for a source that is a Delta table or holds the target; and
    what `write` raises. Messages about a value name the file, the column or the path, and the row of the file, from 0.
    """
    loading.check_options("convert", options, _OPTIONS, "write(dv.VariantTable.forPath(…).toDF(), …)")
    for name, given in (("columns", columns), ("drop", drop)):
        if isinstance(given, str):
            raise InvalidSchemaError(f"{name}={given!r} must be a list of columns: [{given!r}]")
    commit_bytes = whole("commit_bytes", commit_bytes)
    reloading.check(changed, force=force)
    asked = None if columns is None else frozenset(tuple(map(str.lower, parse_column(name))) for name in columns)
    conversion = _Conversion(
        spark=spark, target=target, columns=asked, drop=frozenset(map(str.lower, drop)), folders={}, path_column=path_column,
        modified_column=modified_column, commit_bytes=commit_bytes, force=force, changed=changed, progress=progress,
        storage_options=dict(storage_options or {}), options=options,
    )  # fmt: skip
    files, ignored = conversion.found(source, folders or {})
    return conversion.run(files, Converted(None, 0, 0, 0, ignored, 0, 0, 0))


@dataclass(kw_only=True)
class _Conversion(Loader[Converted]):
    operation = "convert"
    columns: frozenset[ColumnPath] | None
    drop: frozenset[str]
    schema: pa.Schema = field(init=False)
    """The columns of the files whose footers were read first."""
    read: Collection[ListedFile] = ()
    """These files."""

    def found(
        self, source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], folders: Mapping[str, str]
    ) -> tuple[list[ListedFile], int]:
        """The files to read, in the order of their names, and how many were left out because of their suffix.

        folders: types of columns of directories. All of these columns that are not dropped become `self.folders`. Raises
        TableError for a file that is in none of the directories.
        """
        types = ", ".join(f"{quoted(name)} {kind}" for name, kind in folders.items())
        found = self.listed("listFolders", source, types)
        for table in found.tables:
            raise TableError(
                f"{table} is a Delta table: read it with spark.read.format('delta') and use write, or VariantTable.convert"
            )
        self._check_target([file.path for file in found.files], found.directories)
        schema = T.StructType.fromJson(json.loads(found.schema)) if found.schema else T.StructType()
        for name in folders:
            if name.lower() not in map(str.lower, schema.names):
                raise InvalidSchemaError(f"folders: no file is in a folder {name}=…; the folders are {', '.join(schema.names)}")
        kept = [i for i, name in enumerate(schema.names) if name.lower() not in self.drop]
        self.folders = {schema.names[i]: schema[i].dataType for i in kept}
        visible = [file for file in found.files if file.named or not file.path.rpartition("/")[2].startswith("_")]  # _metadata
        files, ignored = loading.chosen(visible, lambda name: name.lower().endswith(_SUFFIXES))
        for file in files:
            if schema and not file.folders:
                raise TableError(f"{file.name} is in no folder {schema.names[0]}=…, and other files are: convert it alone")
        return [replace(file, folders=tuple(file.folders[i] for i in kept)) for file in files], ignored

    def _check_target(self, files: Sequence[str], directories: Sequence[str]) -> None:
        """Raises TableError if source and table overlap: VACUUM would delete files, or the table's own would be read."""
        with self.table() as table:
            directory = str(table.log.dataPath()).rstrip("/") + "/"
        if inside := [name for name in files if name.startswith(directory)]:
            raise TableError(f"{inside[0]} is in the directory of the table, {self.target}: choose another directory")
        for source in directories:
            if directory.startswith(source.rstrip("/") + "/"):
                raise TableError(
                    f"the table {self.target} would be in {source}, whose files are read: choose another directory"
                )

    def begin(self, wanted: Sequence[ListedFile], there: Collection[ListedFile]) -> None:  # noqa: ARG002
        """Reads the columns of all files that are to be converted."""
        if wanted:
            self.schema, self.read = self._merged(wanted), frozenset(wanted)

    def _exists(self) -> bool:
        with self.table() as table:
            return table.exists()

    def _merged(self, files: Sequence[ListedFile]) -> pa.Schema:
        """The columns of the files, without those that their directories give. Raises InvalidSchemaError."""
        pieces, reading = self._pieces(files, lambda piece: [replace(piece, end=0)])  # the footer alone
        with own_errors("reading the footers"):
            rows = pieces.select(quoted(PIECE)).mapInArrow(partial(_schemas, reading), _SCHEMAS).collect()
        schema = merged((row.file, pa.ipc.read_schema(pa.py_buffer(row.schema))) for row in sorted(rows))
        for name in (self.path_column, self.modified_column):
            if name is not None and name.lower() in map(str.lower, [*schema.names, *self.folders]):
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

    def write(self, batch: Batch) -> Outcome:
        """Commits the rows of files. A reload that was planned again may have files that were not to be converted at first."""
        schema = self.schema if set(batch.files).issubset(self.read) else self._merged(batch.files)
        pieces, reading = self._pieces(batch.files, self.parts)
        reading = replace(reading, schema=schema)
        columns = T.StructType([*from_arrow_schema(schema), *pieces.schema.fields[1:]])
        rows = pieces.mapInArrow(partial(_rows, reading, pairs.arrow_schema(columns)), columns)
        options = self.options
        if options.get("partition_by") is None:
            options = {**options, "partition_by": () if self._exists() else tuple(self.folders)}
        try:
            return self.save(rows, batch, ParquetPieces(reading), **options)
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

    def _pieces(self, files: Sequence[ListedFile], parts: Callable[[Piece], Iterable[Piece]]) -> tuple[DataFrame, ParquetFiles]:
        """A DataFrame with a row for each piece and the columns of its file and directories, and how the pieces are read."""
        df, storages = self.pieces(files, parts)
        dropped = self.drop | {name.lower() for name in self.folders}
        df = df.select(F.col(quoted(PIECE)), *self.of_folders(), *self.of_files())
        return df, ParquetFiles(storages, self.columns, dropped)


def _schemas(reading: ParquetFiles, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The different schemas of the files of a task, each with the first file that has it."""
    reader, known = Reader(reading), set()
    for piece in Piece.each(batches):
        schema = reader.columns(piece).serialize().to_pybytes()
        if schema not in known:
            known.add(schema)
            yield pa.RecordBatch.from_pydict({"file": [piece.name], "schema": pa.array([schema], pa.binary())})


def _checked(reading: ParquetFiles, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first value in the pieces of a task that Spark cannot read, in words."""
    try:
        for _ in Reader(reading).batches(batches):
            pass
    except UnsupportedFeatureError as error:
        yield pa.RecordBatch.from_arrays([pa.array([str(error)])], names=["error"])


def _rows(reading: ParquetFiles, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of pieces, in record batches of PySpark's schema."""
    return (with_types(batch, schema) for batch in Reader(reading).batches(batches))
