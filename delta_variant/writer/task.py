"""One task on an executor: Arrow batches of its rows → Parquet files → one report per file.

In: the columns of the table, VARIANT as struct<value, metadata>, or batches that the sources of the plan make such rows of
(`row_sources`); then one text column for each partition column. Rows with the same partition values are adjacent. Out: for
every file its Add action (PROTOCOL.md, "Add File and Remove File"). This module does not know Spark: the plan is data.

A file whose rows all fit into the sample for inference is encoded in memory. If it is small, it is encoded twice, shredded
and plain, and the smaller one is kept, with the bounds of the shredded one. If files are to be smaller than the sample, the
first rows are encoded once more, for an estimate of how many rows a file takes.

A VARIANT column is plain if the plan has no schema for it and infers none, if inference finds no path worth shredding, or if a
small file is smaller so. The last two get the tag PLAIN_TAG. Only the last one is `left_plain` in a report.

Invariants: memory holds the sample that a shredding schema is inferred from, two batches, one slice of one while it is
shredded, and two row groups. Each is bounded in bytes, but a single row is never divided. A file has one partition value
and one shredding schema. A task that fails deletes its files. Files that a killed task leaves behind are in no commit;
VACUUM deletes them. Filters (`membership`) of files that are in no commit count for none.
"""

from __future__ import annotations

import ctypes
import gc
import io
import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from delta_variant import errors, nested, stats
from delta_variant.errors import DeltaVariantError, InvalidJsonError, TableError
from delta_variant.locating import naming
from delta_variant.mapping import with_field_ids
from delta_variant.membership.data_files import index_file
from delta_variant.membership.plan import DataFile
from delta_variant.membership.sidecars import Sidecars
from delta_variant.messages import Failure, WriteReport, encoded
from delta_variant.parquet.columns import leaf_count
from delta_variant.parquet.files import ROW_GROUP_BYTES, FileWriter
from delta_variant.paths import ColumnPath, dotted
from delta_variant.schema.of_files import SAMPLE_BYTES, SAMPLE_ROWS, Inference, named_apart, shreddable
from delta_variant.version import check_version
from delta_variant.writer.file_sizes import Sizes
from delta_variant.writer.partitions import Key, check_ascii, directory, partitions, uri
from delta_variant.writer.physical_columns import physical, physical_type, unshredded
from delta_variant.writer.plan import IS_CHANGE, Plan
from delta_variant.writer.row_sources import ahead, received

if TYPE_CHECKING:
    from delta_variant.writer.task_events import EventSender

SLICE_BYTES = 8 << 20
"""Rows are shredded in slices of this size, because a slice and its shredded columns are in memory at the same time."""
LEAF_BYTES = 8 << 10
"""A file of at most this many bytes per inferred leaf column is encoded plain as well. A leaf column adds up to 600 bytes."""
LEAST_LEAF_BYTES = 2 << 10
"""As long as nothing is known of how rows compress, a row group has at least this much Arrow memory for each typed column."""
_CHANGE_DATA, _CHANGED = "_change_data", "true"


def write_messages(
    plan: Plan, schema: pa.Schema, events: EventSender | None, number: int, messages: Iterator[bytes]
) -> Iterator[bytes]:
    """Runs one task as Spark calls it: from serialized record batches to WriteReports in JSON.

    number: the number of the task. The reports are those of `write_files`. Without `events`, which would cancel the job, an
    error of this package is raised, so that Spark fails the job.
    """
    for report in write_files(plan, received(messages, schema), number, events):
        if report.error is not None and events is None:
            raise getattr(errors, report.error.name)(_without_values(report.error))
        yield encoded(report).encode()


def _without_values(error: Failure) -> str:
    """The message of an error without the values of a row, which messages about JSON texts have: it is logged."""
    return "a text is not valid JSON" if error.name == InvalidJsonError.__name__ else error.text


def write_files(
    plan: Plan, batches: Iterator[pa.RecordBatch], number: int = 0, events: EventSender | None = None
) -> list[WriteReport]:
    """Runs one task, and returns a report for each of its files.

    A report has the Add action in JSON (`add`), the counts of rows and bytes (`rows`, `size`), the names of the shredded
    columns (`shredded`), and whether the file is plain because shredding would have made it larger (`left_plain`). If JSON
    documents were left out, one more report has their number by file (`malformed`), and no Add action.

    An error of this package is returned, not raised: the only report then has its class and message (`error`). If a task
    raises an error, Spark runs it again, over the same rows. A storage error that would occur again is also returned. All
    other errors are raised.
    """
    _freeze_objects()
    try:
        check_version(plan.version)
    except RuntimeError as error:
        return [WriteReport(error=Failure(TableError.__name__, str(error)))]
    task = _Task(plan, number)
    malformed: Counter[str] = Counter()
    reports: list[WriteReport] = []
    failure: DeltaVariantError | None = None
    try:
        for source in plan.sources:
            batches = source.rows(batches, malformed)
        batches = ahead(batches) if plan.sources else batches
        for batch in batches:
            task.add(batch)
            del batch  # before the next one is read
        reports = task.close()
        if malformed:
            reports.append(WriteReport(malformed=malformed))
    except BaseException as error:
        task.abort()
        explained = plan.location.explained(error) if isinstance(error, OSError) else error
        if not isinstance(explained, DeltaVariantError):
            raise
        failure = explained
    if failure is not None:
        reports = [WriteReport(error=Failure(type(failure).__name__, str(failure)))]
    if events is not None:
        events.add([("", path) for path in task.paths] if failure is None else [(type(failure).__name__, str(failure))])
    del task
    _release()
    return reports


def _release() -> None:
    """Returns freed memory to the system. A worker runs many tasks, and what they leave behind would add up to 60 MiB."""
    pa.default_memory_pool().release_unused()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc
        trim(0)


@cache
def _freeze_objects() -> None:
    """Exempts the objects of Numba and pyarrow from garbage collection, once in a worker.

    PySpark collects garbage after every task. Going through these objects takes 50 ms, and finds none that imports left behind.
    """
    gc.freeze()


class _Task:
    """Divides the rows of a task into files. A file ends where the partition changes, at `max_rows`, and at `max_bytes`."""

    def __init__(self, plan: Plan, number: int) -> None:
        self._plan, self._number = plan, number
        self._fs = plan.location.open()
        self._inference = Inference()
        self._sizes = Sizes()
        self._key: Key | None = None
        self._file: _File | None = None
        self._pending: list[pa.RecordBatch] = []  # rows of a file whose shredding schema is not known yet
        self._pending_bytes = 0
        self._rows = 0  # of the current file, including pending ones
        self._reports: list[WriteReport] = []
        self._path = ""  # of the current file, relative to the table
        self._sidecars = None if plan.index is None else Sidecars(plan.location, self._fs, plan.index.table)
        self.paths: list[str] = []

    def add(self, batch: pa.RecordBatch) -> None:
        for key, rows in partitions(batch, self._plan):
            if key != self._key:
                self._finish()
                self._key = key
            while rows.num_rows:
                room = self._room(rows)
                self._take(rows.slice(0, room))
                rows = rows.slice(room)  # noqa: PLW2901  # the rows that are left
                if self._rows == self._plan.max_rows or self._estimate() >= self._plan.max_bytes:
                    self._finish()

    def _room(self, rows: pa.RecordBatch) -> int:
        """How many of these rows are added to the current file next; at least one."""
        buffered = 0 if self._sizes.known or self._file is None else self._file.writer.buffered_bytes
        room = self._sizes.rows(self._plan.max_bytes - max(self._estimate(), buffered), rows)
        if self._plan.max_rows is not None:
            room = min(room, self._plan.max_rows - self._rows)
        if self._file is None and self._plan.infer:
            space = SAMPLE_BYTES - self._pending_bytes
            room = min(room, SAMPLE_ROWS - self._rows, max(1, space * rows.num_rows // max(1, rows.nbytes)))
        return room

    def _estimate(self) -> float:
        """The estimated size of the current file if it were closed now."""
        if self._file is not None:
            return self._sizes.of_file(self._file.writer)
        return self._sizes.of_rows(self._pending_bytes)

    def close(self) -> list[WriteReport]:
        self._finish()
        if self._sidecars is not None:
            self._sidecars.flush()
        return self._reports

    def abort(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.abort()
        for path in self.paths:
            with suppress(OSError):
                self._fs.delete_file(path)

    def _take(self, rows: pa.RecordBatch) -> None:
        self._rows += rows.num_rows
        if self._file is not None:
            self._file.write(rows)
            self._sizes.learn(self._file.writer, self._file.incoming_bytes)
            return
        self._pending.append(rows)
        self._pending_bytes += rows.nbytes
        if self._rows >= SAMPLE_ROWS or self._pending_bytes >= SAMPLE_BYTES or not self._plan.infer:
            pending = self._taken()
            schemas = self._schemas(pending)
            self._file = self._encoder(self._sink(), pending, schemas)
        elif self._pending_bytes >= self._plan.max_bytes and not self._sizes.known:  # how well do these rows compress?
            _, file = self._smaller(self._pending)
            self._sizes.learn(file.writer, file.incoming_bytes)

    def _taken(self) -> list[pa.RecordBatch]:
        """The pending rows, which are pending no more."""
        rows, self._pending, self._pending_bytes = self._pending, [], 0
        return rows

    def _write_small(self) -> None:
        """Writes a file whose rows are all pending."""
        shredded, kept = self._smaller(self._taken())
        with self._sink() as sink:
            sink.write(kept.sink.getbuffer())
        self._report(shredded, kept)

    def _smaller(self, rows: list[pa.RecordBatch]) -> tuple[_File, _File]:
        """The shredded encoding of a file, and the one to keep: if the file is small, the smaller one of shredded and plain."""
        schemas = self._schemas(rows)
        shredded = kept = self._in_memory(rows, schemas)
        inferred = sum(leaf_count(schema) for path, schema in schemas.items() if path not in self._plan.shredding_schemas)
        if inferred and shredded.size <= LEAF_BYTES * inferred:
            plain = self._in_memory(rows, self._plan.shredding_schemas)
            kept = plain if plain.size <= shredded.size else shredded
        return shredded, kept

    def _in_memory(self, rows: list[pa.RecordBatch], schemas: Mapping[ColumnPath, pa.DataType]) -> _File:
        file = self._encoder(io.BytesIO(), rows, schemas)
        file.close()
        return file

    def _encoder(self, sink: Any, rows: list[pa.RecordBatch], schemas: Mapping[ColumnPath, pa.DataType]) -> _File:
        least = LEAST_LEAF_BYTES * sum(map(leaf_count, schemas.values()))
        group_bytes = ROW_GROUP_BYTES if self._sizes.known else min(ROW_GROUP_BYTES, max(self._plan.max_bytes, least))
        file = _File(self._plan, sink, rows[0].schema, schemas, group_bytes)
        for batch in rows:
            file.write(batch)
        return file

    def _sink(self) -> pa.NativeFile:
        """Opens a new file for rows of the current partition."""
        values, is_change = self._partition()
        folders = [_CHANGE_DATA] * is_change + [directory(name, value) for name, value in values.items()]
        if self._plan.random_prefix:
            folders = [uuid.uuid4().hex[: self._plan.random_prefix]]
        folder = "/".join(folders)
        if not self._plan.names_unicode:
            check_ascii(folder)
        extension = "" if self._plan.compression == "none" else f".{self._plan.compression}"
        name = f"{'cdc' if is_change else 'part'}-{self._number:05d}-{uuid.uuid4()}.c000{extension}.parquet"
        root = self._plan.location.root
        # A stream starts a new table without a directory.
        if self._plan.location.has_directories and (folder or not self.paths):
            self._fs.create_dir(f"{root}/{folder}")
        self._path = f"{folder}/{name}" if folder else name
        self.paths.append(f"{root}/{self._path}")
        return self._fs.open_output_stream(self.paths[-1])

    def _partition(self) -> tuple[dict[str, str | None], bool]:
        """The values of the partition columns, and whether the rows are change data."""
        values = dict(zip(self._plan.partition_by, self._key or (), strict=True))
        return values, values.pop(IS_CHANGE, None) == _CHANGED

    def _schemas(self, rows: list[pa.RecordBatch]) -> dict[ColumnPath, pa.DataType]:
        """The shredding schemas, by column, of a file that begins with these rows. Columns that stay plain are left out."""
        schemas = dict(self._plan.shredding_schemas)
        if not self._plan.infer:
            return schemas
        for path in shreddable(rows[0].schema, self._plan.variants):
            if path not in schemas:
                with naming(f"column {dotted(path)}"):
                    # Its nulls include those of the structs above it: Spark sends a null struct with null fields.
                    sample = pa.chunked_array([unshredded(nested.column(batch, path)) for batch in rows]).slice(0, SAMPLE_ROWS)
                    schema = self._inference.schema(path, sample)
                if schema is not None:
                    schemas[path] = schema
        return schemas

    def _finish(self) -> None:
        if self._pending:
            self._write_small()
        elif self._file is not None:
            self._file.close()
            self._file.sink.close()
            self._report(self._file, self._file)
        self._file = None
        self._rows = 0

    def _report(self, shredded: _File, kept: _File) -> None:
        """Adds the report of a file. shredded: its shredded encoding, which has the bounds. kept: the one that was written."""
        # How a few plain rows compress says little about a large shredded file.
        if kept is shredded or kept.incoming_bytes >= self._plan.max_bytes:
            self._sizes.learn(kept.writer, kept.incoming_bytes)
        values, is_change = self._partition()
        file = {"path": uri(self._path), "partitionValues": values, "size": kept.size}
        action = {"cdc": {**file, "dataChange": False}} if is_change else {"add": self._add(file, shredded, kept)}
        report = WriteReport(
            add=json.dumps(action, ensure_ascii=False, separators=(",", ":")), rows=kept.rows, size=kept.size,
            shredded=tuple(sorted(map(dotted, kept.shredding_schemas))), left_plain=kept is not shredded and not is_change,
            high_water_marks=kept.high_water_marks,
        )  # fmt: skip
        self._reports.append(report)

    def _add(self, file: Mapping[str, Any], shredded: _File, kept: _File) -> dict[str, Any]:
        """The Add action of a file, and its filters. file: the fields that it shares with other actions."""
        now = int(time.time() * 1000)
        add: dict[str, Any] = {**file, "modificationTime": now, "dataChange": True, "stats": shredded.stats.json()}
        if shredded.shredding_schemas:
            readable = kept is shredded and all(map(named_apart, kept.shredding_schemas.values()))
            marker = stats.TYPED_TAG_VALUE if readable else stats.BOUNDS_TAG_VALUE
            add["tags"] = {stats.BOUNDS_TAG: marker, **(shredded.stats.tags() if self._plan.tags else {})}
        if self._plan.infer and kept.has_plain:
            add.setdefault("tags", {})[stats.PLAIN_TAG] = "1"
        if self._plan.index is not None and self._sidecars is not None:
            with self._fs.open_input_file(self.paths[-1]) as source:
                written = DataFile(add["path"], kept.size, now)
                self._sidecars.add(index_file(source, written, self._plan.index, self._plan.index.paths))
        return add


class _File:
    """A Parquet file that is being written, and its statistics."""

    def __init__(
        self, plan: Plan, sink: Any, schema: pa.Schema, schemas: Mapping[ColumnPath, pa.DataType], group_bytes: int
    ) -> None:
        self._plan, self.sink, self.shredding_schemas = plan, sink, schemas
        fields = [pa.field(f.name, physical_type(f.type, (f.name,), plan.variants, schemas)) for f in schema]
        self._schema = with_field_ids(pa.schema(fields), plan.field_ids)
        self.has_plain = not set(shreddable(schema, plan.variants)) <= set(schemas)
        self.rows = self.size = 0
        self.high_water_marks: dict[str, int] = {}
        self.incoming_bytes = 0  # of its rows as Spark sent them
        self.stats = stats.FileStats(
            self._schema,
            variants=plan.variants,
            indexed=nested.columns(self._schema, plan.variants) if plan.with_statistics is None else plan.with_statistics,
            string_prefix=plan.string_prefix,
            first=plan.first_bounds,
            tight_bounds=plan.tight_bounds,
        )
        self.writer = FileWriter(
            sink,
            self._schema,
            variants=plan.variants,
            annotates=plan.annotates,
            closed=[path for path in schemas if plan.closes_given or path not in plan.shredding_schemas],
            compression=plan.compression,
            row_group_bytes=group_bytes,
            metadata=plan.footer,
        )

    def write(self, rows: pa.RecordBatch) -> None:
        step = max(1, rows.num_rows * SLICE_BYTES // max(1, rows.nbytes))
        for start in range(0, rows.num_rows, step):
            self._write(rows.slice(start, step))

    def _write(self, rows: pa.RecordBatch) -> None:
        columns = [
            physical(values, target.type, (target.name,), self._plan.variants, self.shredding_schemas)
            for values, target in zip(rows.columns, self._schema, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self.stats.update(batch)
        for name, grows in self._plan.identity_columns.items():
            values = batch.column(name)
            if values.null_count < len(values):
                mark = (pc.max if grows else pc.min)(values).as_py()
                self.high_water_marks[name] = (max if grows else min)(mark, self.high_water_marks.get(name, mark))
        self.writer.write(batch)
        self.rows += rows.num_rows
        self.incoming_bytes += rows.nbytes

    def close(self) -> None:
        self.size = self.writer.close()

    def abort(self) -> None:
        self.writer.abort()
        self.sink.close()
