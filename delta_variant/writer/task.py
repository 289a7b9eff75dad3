"""One task on an executor: Arrow batches of its rows → Parquet files → one report per file.

In come the aligned columns as `mapInArrow` delivers them, VARIANT as struct<value, metadata>, followed by one column per
partition column with the partition value in text, and the rows sorted by those. Out comes, for every file, its Add action
(PROTOCOL.md, "Add File and Remove File"). Nothing here knows Spark: the plan is data.

Invariants: memory holds the batches that a shape is inferred from, one batch more, and a row group. A file is one
partition value and one shape. A task that fails deletes its files; what is left after a kill nobody refers to.
"""

from __future__ import annotations

import json
import time
import unicodedata
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from pyarrow import fs

from delta_variant import schema as schemas
from delta_variant import stats
from delta_variant.errors import DeltaVariantError, InvalidSchemaError
from delta_variant.parquet.files import ROW_GROUP_BYTES, FileWriter
from delta_variant.writer.columns import Path, check_nulls, physical, physical_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Key = tuple[str | None, ...]

SAMPLE_ROWS = 8192
"""Rows at the start of a file that its shape is inferred from."""
REPORT = pa.schema([
    ("add", pa.string()), ("rows", pa.int64()), ("size", pa.int64()), ("shredded", pa.string()), ("error", pa.string()),
])  # fmt: skip
REPORT_DDL = "add string, rows bigint, size bigint, shredded string, error string"

_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
# ExternalCatalogUtils.escapePathName
_ESCAPED_IN_DIRECTORY = frozenset("\"#%'*/:=?\\{[]^\x7f") | frozenset(map(chr, range(32)))
_LEGAL_IN_URI = "/-_.!~'()*,;:$&+=@"  # java.net.URI, "path"
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # naive on purpose: the text says Z


@dataclass(frozen=True)
class Plan:
    """What every task of a write is told."""

    location: str
    """Directory of the table."""
    variants: frozenset[Path]
    """VARIANT columns, as paths of Parquet groups."""
    not_null: tuple[Path, ...]
    """Columns, and fields of structs, that must not be null."""
    partition_by: tuple[str, ...]
    timestamps: frozenset[str]
    """Partition columns whose text is microseconds since 1970, to be written as Delta writes UTC timestamps."""
    shapes: Mapping[str, pa.DataType]
    """Shredding schemas given by the user."""
    infer: bool
    """Whether the other VARIANT columns get a schema from the first rows of each file."""
    compression: str
    max_rows: int | None
    max_bytes: int
    footer: Mapping[str, str]
    num_indexed: int
    """delta.dataSkippingNumIndexedCols."""
    stats_columns: str | None
    """delta.dataSkippingStatsColumns."""
    string_prefix: int
    tight_bounds: bool
    nonnull: bool
    """Whether files get the tag for paths without bounds."""

    @property
    def columns(self) -> tuple[str, ...]:
        """VARIANT columns at the top, which are the ones to be shredded."""
        return tuple(sorted(path[0] for path in self.variants if len(path) == 1))


def write_files(plan: Plan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The task: yields one batch of REPORT rows.

    An error of this package's family is a row of its own, with its class and message, so that it reaches the driver as
    it is and Spark does not try the same rows again.
    """
    task = _Task(plan)
    try:
        for batch in batches:
            task.add(batch)
        reports = task.close()
    except DeltaVariantError as error:
        task.abort()
        reports = [{"error": json.dumps([type(error).__name__, str(error)])}]
    except BaseException:
        task.abort()
        raise
    yield pa.RecordBatch.from_pylist(reports, REPORT)


def filesystem(location: str) -> tuple[fs.FileSystem, str]:
    """Where files go, and the directory's name there: the one place that knows about storage."""
    return fs.LocalFileSystem(), location


class _Task:
    """Cuts the rows into files: at changes of the partition, at `max_rows` and at `max_bytes`."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._fs, self._root = filesystem(plan.location)
        self._number = _task_number()
        self._key: Key | None = None
        self._file: _File | None = None
        self._pending: list[pa.RecordBatch] = []  # rows of a file whose shape is not known yet
        self._rows = 0  # of the current file, pending ones included
        self._reports: list[dict[str, Any]] = []
        self._paths: list[str] = []

    def add(self, batch: pa.RecordBatch) -> None:
        limit = self._plan.max_rows or batch.num_rows + self._rows
        for key, rows in _partitions(batch, self._plan):
            if key != self._key:
                self._finish()
                self._key = key
            while rows.num_rows:
                room = max(limit - self._rows, 0)
                self._take(rows.slice(0, room))
                rows = rows.slice(room)  # noqa: PLW2901  # what is left of the loop's value
                full = self._file is not None and self._file.size >= self._plan.max_bytes
                if full or self._rows == self._plan.max_rows:
                    self._finish()

    def close(self) -> list[dict[str, Any]]:
        self._finish()
        return self._reports

    def abort(self) -> None:
        if self._file is not None:
            self._file.abort()
        for path in self._paths:
            with suppress(OSError):
                self._fs.delete_file(path)

    def _take(self, rows: pa.RecordBatch) -> None:
        self._rows += rows.num_rows
        if self._file is not None:
            self._file.write(rows)
            return
        self._pending.append(rows)
        if not self._plan.infer or self._rows >= SAMPLE_ROWS:
            self._open()

    def _open(self) -> None:
        pending, self._pending = self._pending, []
        shapes = _shapes(self._plan, pending)
        directory = "/".join(_directory(n, v) for n, v in zip(self._plan.partition_by, self._key or (), strict=True))
        extension = "" if self._plan.compression == "none" else f".{self._plan.compression}"
        name = f"part-{self._number:05d}-{uuid.uuid4()}.c000{extension}.parquet"
        relative = f"{directory}/{name}" if directory else name
        if directory:
            self._fs.create_dir(f"{self._root}/{directory}")
        self._paths.append(f"{self._root}/{relative}")
        self._file = _File(self._plan, self._fs.open_output_stream(self._paths[-1]), pending[0].schema, shapes, relative)
        for rows in pending:
            self._file.write(rows)

    def _finish(self) -> None:
        if self._pending:
            self._open()
        if self._file is not None:
            values = dict(zip(self._plan.partition_by, self._key or (), strict=True))
            self._reports.append(self._file.close(values))
        self._file = None
        self._rows = 0


class _File:
    """One Parquet file: physical columns, their statistics, and its Add action."""

    def __init__(
        self, plan: Plan, sink: pa.NativeFile, schema: pa.Schema, shapes: Mapping[str, pa.DataType], path: str
    ) -> None:
        self._plan, self._sink, self._path, self._shapes = plan, sink, path, shapes
        fields = [pa.field(f.name, physical_type(f.type, (f.name,), plan.variants, shapes)) for f in schema]
        self._schema = pa.schema(fields)
        self._rows = 0
        self._stats = stats.FileStats(
            self._schema,
            variants=plan.variants,
            indexed=stats.indexed_columns(self._schema, plan.variants, plan.num_indexed, plan.stats_columns),
            string_prefix=plan.string_prefix,
            tight_bounds=plan.tight_bounds,
        )
        self._writer = FileWriter(
            sink,
            self._schema,
            variants=plan.variants,
            compression=plan.compression,
            row_group_bytes=min(ROW_GROUP_BYTES, plan.max_bytes),
            metadata=plan.footer,
        )

    @property
    def size(self) -> int:
        """Bytes that have left for the file; the row group in memory is not among them."""
        return int(self._sink.tell())

    def write(self, rows: pa.RecordBatch) -> None:
        check_nulls(rows, self._plan.not_null)
        columns = []
        for column, target in zip(rows.columns, self._schema, strict=True):
            shape = self._shapes.get(target.name)
            with _naming(target.name):
                columns.append(physical(column, target.type, (target.name,), self._plan.variants, shape))
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self._stats.update(batch)
        self._writer.write(batch)
        self._rows += rows.num_rows

    def close(self, partition_values: Mapping[str, str | None]) -> dict[str, Any]:
        size = self._writer.close()
        self._sink.close()
        add: dict[str, Any] = {
            "path": _uri(self._path),
            "partitionValues": partition_values,
            "size": size,
            "modificationTime": int(time.time() * 1000),
            "dataChange": True,
            "stats": self._stats.json(),
        }
        if self._shapes:
            nonnull = self._stats.nonnull() if self._plan.nonnull else None
            tags = {stats.BOUNDS_TAG: stats.BOUNDS_TAG_VALUE, stats.NONNULL_TAG: nonnull}
            add["tags"] = {name: text for name, text in tags.items() if text}
        line = json.dumps({"add": add}, ensure_ascii=False, separators=(",", ":"))
        return {"add": line, "rows": self._rows, "size": size, "shredded": json.dumps(sorted(self._shapes))}

    def abort(self) -> None:
        self._writer.abort()
        self._sink.close()


def _task_number() -> int:
    from pyspark import TaskContext  # noqa: PLC0415  # the only thing of Spark's that a task asks for

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


# ------------------------------------------------------------------------------------------------------------ partitions


def _partitions(batch: pa.RecordBatch, plan: Plan) -> Iterator[tuple[Key, pa.RecordBatch]]:
    """Runs of rows of one partition, without the partition columns."""
    count = len(plan.partition_by)
    data = batch.select(list(range(batch.num_columns - count)))
    if not count:
        yield (), data
        return
    columns = batch.columns[-count:]
    change = np.zeros(batch.num_rows, np.bool_)
    for column in columns:
        codes = column.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False)
        change[1:] |= codes[1:] != codes[:-1]
    starts = [0, *np.flatnonzero(change).tolist(), batch.num_rows]
    for start, end in pairwise(starts):
        if start < end:
            values = zip(plan.partition_by, columns, strict=True)
            key = tuple(_partition_value(plan, name, column[start].as_py()) for name, column in values)
            yield key, data.slice(start, end - start)


def _partition_value(plan: Plan, name: str, value: str | None) -> str | None:
    """PROTOCOL.md, "Partition Value Serialization"; an empty string is null there."""
    if not value:
        if (name,) in plan.not_null:
            raise InvalidSchemaError(
                f"column {name} is NOT NULL and a row has null (or an empty string, which partitions cannot hold)"
            )
        return None
    if name in plan.timestamps:
        return (_EPOCH + timedelta(microseconds=int(value))).isoformat(timespec="microseconds") + "Z"
    return value


def _directory(name: str, value: str | None) -> str:
    return f"{_escaped(name)}={_NULL_PARTITION if value is None else _escaped(value)}"


def _escaped(text: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED_IN_DIRECTORY else char for char in text)


def _uri(path: str) -> str:
    """The path as Hadoop's Path.toUri gives it, which is what Delta puts into its log: letters beyond ASCII stay."""
    return "".join(char if _stays(char) else quote(char, safe=_LEGAL_IN_URI) for char in path)


def _stays(char: str) -> bool:
    return char > "\x7f" and unicodedata.category(char) not in ("Cc", "Zs", "Zl", "Zp")


@contextmanager
def _naming(column: str) -> Iterator[None]:
    """Puts the column's name in front of what goes wrong with its values."""
    try:
        yield
    except DeltaVariantError as error:
        raise type(error)(f"column {column}: {error}") from error


def _shapes(plan: Plan, rows: list[pa.RecordBatch]) -> dict[str, pa.DataType]:
    """The shredding schema of each column that gets one in this file."""
    shapes = dict(plan.shapes)
    if plan.infer:
        for name in plan.columns:
            if name not in shapes:
                sample = pa.chunked_array([batch.column(name) for batch in rows]).slice(0, SAMPLE_ROWS)
                with _naming(name):
                    inferred = schemas.infer(sample.chunks)
                if inferred is not None:
                    shapes[name] = inferred
    return shapes
