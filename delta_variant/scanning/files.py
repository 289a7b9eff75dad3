"""One data file → the rows that a predicate leaves, as record batches of the columns asked for.

    footer ─▶ `file_schema`: which leaf columns have which column and path ─▶ `row_groups`: those that can match
        ─▶ the predicate's columns ─▶ rows that match, without deleted ones ─▶ the other columns of row groups with such rows
        ─▶ the table's types

Invariant: rows are those of the file, in their order. A message about a value names the file, the row of the file, and the path
or column that was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from delta_variant.errors import DamagedFileError, DeltaVariantError, TableError
from delta_variant.locating import in_rows, part
from delta_variant.parquet.columns import is_between
from delta_variant.parquet.opening import error_of, opened
from delta_variant.paths import Keys
from delta_variant.queries import casts
from delta_variant.queries.evidence import TableFacts
from delta_variant.queries.expressions import Column, Get, Literal, Value, evaluate, inputs
from delta_variant.queries.fields import Field, arrow_type
from delta_variant.queries.pruning import Where
from delta_variant.scanning.file_schema import FileSchema
from delta_variant.scanning.log import File
from delta_variant.scanning.row_groups import RowGroupEvidence
from delta_variant.scanning.variant_groups import Group
from delta_variant.storage import Storage

_EMPTY_ROWS = 1 << 16
Numbers = npt.NDArray[np.int64] | None
Flags = npt.NDArray[np.bool_] | None


@dataclass(frozen=True)
class Output:
    """A column of the result."""

    name: str
    value: Value

    @property
    def type(self) -> pa.DataType:
        return arrow_type(self.value.kind)


@dataclass(frozen=True)
class Query:
    """What is read, the same for all files."""

    storage: Storage
    system: fs.FileSystem
    facts: TableFacts
    by_id: bool
    """Whether columns are found by their ids."""
    outputs: tuple[Output, ...]
    predicate: Where | None

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(output.name, output.type) for output in self.outputs])


class FileReader:
    """Reads one file. Raises TableError, and errors of the codec, with its name."""

    def __init__(self, query: Query, file: File) -> None:
        self._query, self._file = query, file
        self._path = query.storage.file(file.path)

    def batches(self, start: int = 0, end: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows that match, of the row groups that begin between these bytes of the file."""
        with self.named(), self._query.system.open_input_file(self._path) as source:
            opened = OpenFile(self._query, self._file, source)
            with opened.parquet:
                yield from opened.rows(start, end)

    def schema(self) -> FileSchema:
        """Where the file has what, and what its footer proves."""
        with self.named(), self._query.system.open_input_file(self._path) as source:
            return OpenFile(self._query, self._file, source).schema

    @contextmanager
    def named(self) -> Iterator[None]:
        """Errors in the `with` block get the name of the file."""
        is_relative = ":" not in self._file.path.partition("/")[0] and not self._file.path.startswith("/")
        name = f"{self._query.storage.name}/{self._file.path}" if is_relative else self._file.path
        try:
            yield
        except FileNotFoundError:
            raise TableError(
                f"{name} is gone: the log of this version has it, so VACUUM or something else has deleted it: scan a newer "
                "version, or restore the file"
            ) from None
        except (DamagedFileError, pa.ArrowException, UnicodeError, OSError) as error:
            if not isinstance(found := error_of(error), DamagedFileError):
                raise found.within(name) from error
            raise TableError(f"{name} cannot be read: {error}: restore the file") from error
        except DeltaVariantError as error:
            raise error.within(name) from error


class OpenFile:
    """An open file."""

    def __init__(self, query: Query, file: File, source: Any) -> None:
        self._query, self._file = query, file
        self.parquet = opened(source, pre_buffer=query.storage.scheme != "file")
        self.schema = FileSchema(self.parquet, query.facts.schema, by_id=query.by_id)

    def rows(self, start: int = 0, end: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows that match, of the row groups that begin between these bytes of the file."""
        query, first = self._query, 0
        vector = self._file.deletion_vector
        rows = self.parquet.metadata.num_rows
        deleted = None if vector is None else vector.rows(query.storage, query.system, rows)
        wanted = self._numbers(value for output in query.outputs for value in inputs(output.value))
        for number in range(self.parquet.metadata.num_row_groups):
            group = self.parquet.metadata.row_group(number)
            count = group.num_rows
            if is_between(group, start, end):
                kept = np.ones(count, np.bool_)
                if deleted is not None:
                    low, high = np.searchsorted(deleted, np.array([first, first + count], deleted.dtype))
                    kept[(deleted[low:high] - np.uint64(first)).astype(np.int64)] = False
                yield from self._group(number, count, kept, wanted, first)
            first += count

    def _group(
        self, number: int, count: int, kept: npt.NDArray[np.bool_], wanted: frozenset[int], first: int
    ) -> Iterator[pa.RecordBatch]:
        predicate = self._query.predicate
        if predicate is not None:
            if not predicate.may_match(RowGroupEvidence(self.schema, number, self._file, self._query.facts)):
                return
            asked = self._numbers(predicate.inputs)
            together = wanted <= asked
            for at, rows in self._read(number, count, asked, first):
                span = slice(at, at + rows.count)
                rows.alive = kept[span]
                found = in_rows(self._matches, rows, rows.number)
                kept[span] &= np.asarray(pc.fill_null(found, fill_value=False))
                if together and kept[span].any():
                    yield self._output(rows.filtered(kept[span]))
            if together:
                return
        if not kept.any():
            return
        for at, rows in self._read(number, count, wanted, first):
            mask = kept[at : at + rows.count]
            if mask.any():
                yield self._output(rows.filtered(mask))

    def _read(self, number: int, count: int, numbers: frozenset[int], first: int) -> Iterator[tuple[int, Rows]]:
        """The rows of a row group, with the number of the first of them."""
        at = 0
        if not numbers:
            for at in range(0, count, _EMPTY_ROWS):
                yield at, Rows(self, None, min(_EMPTY_ROWS, count - at), first + at)
            return
        for batch in self.schema.columns.batches(numbers, [number], use_threads=True):
            yield at, Rows(self, batch, batch.num_rows, first + at)
            at += batch.num_rows

    def _numbers(self, values: Iterable[Column | Get]) -> frozenset[int]:
        """The leaf columns that columns and paths are read from."""
        numbers: set[int] = set()
        for value in values:
            if isinstance(value, Get):
                numbers |= self.schema.path_group(value.fields, value.keys).numbers
            elif self.constant(value.fields) is None:
                numbers |= self.schema.leaves(value.fields)
        return frozenset(numbers)

    def constant(self, fields: tuple[Field, ...]) -> Literal | None:
        """The value of a partition column; None for other columns."""
        return self._query.facts.partition(self._file, fields)

    def _matches(self, rows: Rows) -> pa.Array:
        assert self._query.predicate is not None
        return evaluate(self._query.predicate.value, rows, self._query.facts.at, rows.alive)

    def _output(self, rows: Rows) -> pa.RecordBatch:
        return in_rows(self._columns, rows, rows.number)

    def _columns(self, rows: Rows) -> pa.RecordBatch:
        arrays = []
        for output in self._query.outputs:
            array = evaluate(output.value, rows, self._query.facts.at)
            arrays.append(array if array.type == output.type else array.cast(output.type))
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * rows.count, pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=self._query.schema)


class Rows:
    """Some rows of a file (`expressions.Rows`).

    first: the number of the first row in the file. kept: the offsets from `first` of the rows that are left; None: all.
    alive: the rows for which a cast that fails is an error.
    """

    def __init__(
        self, file: OpenFile, batch: pa.RecordBatch | None, count: int, first: int, kept: Numbers = None, alive: Flags = None
    ) -> None:
        self._file, self.batch, self.count, self._first, self._kept, self.alive = file, batch, count, first, kept, alive
        self._columns: dict[Any, pa.Array] = {}
        self._groups: dict[Any, Group] = {}

    def filtered(self, mask: npt.NDArray[np.bool_]) -> Rows:
        if mask.all():
            return self
        batch = None if self.batch is None else self.batch.filter(pa.array(mask))
        kept = np.flatnonzero(mask) if self._kept is None else self._kept[mask]
        return Rows(self._file, batch, len(kept), self._first, kept)

    def number(self, row: int) -> int:
        return self._first + (row if self._kept is None else int(self._kept[row]))

    def __len__(self) -> int:
        return self.count

    def slice(self, offset: int, length: int) -> Rows:
        span = slice(offset, offset + length)
        batch = None if self.batch is None else part(self.batch, offset, length)
        kept = np.arange(offset, offset + length) if self._kept is None else self._kept[span]
        return Rows(self._file, batch, length, self._first, kept, None if self.alive is None else self.alive[span])

    def column(self, fields: tuple[Field, ...]) -> pa.Array:
        if fields not in self._columns:
            constant = self._file.constant(fields)
            self._columns[fields] = (
                self._file.schema.column(self.batch, self.count, fields)
                if constant is None
                else pa.repeat(casts.array_of([constant.value], constant.kind)[0], self.count)
            )
        return self._columns[fields]

    def path(self, fields: tuple[Field, ...], keys: Keys) -> Group:
        if (fields, keys) not in self._groups:
            self._groups[fields, keys] = self._file.schema.group(self.batch, self.count, fields, keys)
        return self._groups[fields, keys]
