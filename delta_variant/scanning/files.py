"""One data file → the rows that a predicate leaves, as record batches of the columns asked for.

    footer ─▶ `places`: which leaf columns have which column and path ─▶ `row_groups`: those that can match
        ─▶ the predicate's columns ─▶ rows that match, without deleted ones ─▶ the other columns of row groups with such rows
        ─▶ the table's types

Invariant: rows are those of the file, in their order. A message about a value names the file, the row of the file, and the path
or column that was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from delta_variant import layouts, nested
from delta_variant import types as t
from delta_variant.errors import DamagedFileError, DeltaVariantError, TableError
from delta_variant.locating import VALUE_ERRORS, in_rows, part
from delta_variant.parquet.fitting import fitted
from delta_variant.parquet.footer import Names
from delta_variant.parquet.opening import opened, told
from delta_variant.parquet.tables import unshredded
from delta_variant.parquet_files.reader import is_between
from delta_variant.paths import Keys
from delta_variant.queries import casts
from delta_variant.queries.evidence import TableFacts
from delta_variant.queries.expressions import Get, Value, evaluate, inputs
from delta_variant.queries.fields import Field, Kind, List, Map, Struct, Variant, arrow_type
from delta_variant.queries.pruning import Where
from delta_variant.scanning.log import File
from delta_variant.scanning.places import Places
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
        """Its Arrow type."""
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
        """The columns of the result."""
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

    def places(self) -> Places:
        """Where the file has what, and what its footer proves."""
        with self.named(), self._query.system.open_input_file(self._path) as source:
            return OpenFile(self._query, self._file, source).places

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
            if not isinstance(found := told(error), DamagedFileError):
                raise found.within(name) from error
            raise TableError(f"{name} cannot be read: {error}: restore the file") from error
        except DeltaVariantError as error:
            raise error.within(name) from error


class OpenFile:
    """An open file."""

    def __init__(self, query: Query, file: File, source: Any) -> None:
        self._query, self._file = query, file
        self.parquet = opened(source, coerce_int96_timestamp_unit="us", pre_buffer=query.storage.scheme != "file")
        self.places = Places(self.parquet, query.facts.schema, by_id=query.by_id)

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
                    low, high = np.searchsorted(deleted, [first, first + count])
                    kept[(deleted[low:high] - np.uint64(first)).astype(np.int64)] = False
                yield from self._group(number, count, kept, wanted, first)
            first += count

    def _group(
        self, number: int, count: int, kept: npt.NDArray[np.bool_], wanted: frozenset[int], first: int
    ) -> Iterator[pa.RecordBatch]:
        predicate = self._query.predicate
        if predicate is not None:
            if not predicate.may_match(RowGroupEvidence(self.places, number, self._file, self._query.facts)):
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
        for batch in self.places.columns.batches(numbers, [number], use_threads=True):
            yield at, Rows(self, batch, batch.num_rows, first + at)
            at += batch.num_rows

    def _numbers(self, values: Any) -> frozenset[int]:
        """The leaf columns that columns and paths are read from."""
        numbers: set[int] = set()
        for value in values:
            if isinstance(value, Get):
                numbers |= self.places.place(value.fields, value.keys).numbers
            elif self._query.facts.partition(self._file, value.fields) is None:
                names = self.places.names(value.fields)
                numbers |= set() if names is None else set(self.places.columns.leaves(names))
        return frozenset(numbers)

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

    def conformed(self, array: pa.Array, kind: Kind) -> pa.Array:
        """A column of the file, with its Variants rebuilt, in the type of the table."""
        match kind:
            case Variant():
                children = [array.field(array.type.get_field_index(name)) for name in ("metadata", "value")]
            case Struct(fields):
                children = []
                for field in fields:
                    inner = self.places.field(array.type, field)
                    index = -1 if inner is None else array.type.get_field_index(inner.name)
                    children.append(
                        pa.nulls(len(array), arrow_type(field.kind))
                        if index < 0
                        else self.conformed(array.field(index), field.kind)
                    )
            case List(element):
                if not pa.types.is_list(array.type):
                    array = array.cast(pa.list_(array.type.value_field))
                children = [self.conformed(array.values, element)]
            case Map(key, value):
                children = [self.conformed(array.keys, key), self.conformed(array.items, value)]
            case _:
                return fitted(array, kind, is_legacy=self.places.is_legacy)
        return nested.rebuilt(array, arrow_type(kind), children)

    # ---- for Rows -------------------------------------------------------------------------------------------------

    def column_of(self, rows: Rows, fields: tuple[Field, ...]) -> pa.Array:
        """The values of a column of some rows."""
        constant = self._query.facts.partition(self._file, fields)
        if constant is not None:
            return pa.repeat(casts.made([constant.value], constant.kind)[0], rows.count)
        names, kind = self.places.names(fields), fields[-1].kind
        if names is None or rows.batch is None:
            return pa.nulls(rows.count, arrow_type(kind))
        array = _dig(rows.batch, names)
        if any(variant[: len(names)] == names for variant in self.places.variants):
            one = pa.RecordBatch.from_arrays([array], [".".join(field.name for field in fields)])
            inside = {variant[len(names) :] for variant in self.places.variants if variant[: len(names)] == names}
            array = unshredded(one, lambda _, inner: inner[1:] in inside, 0).column(0)
        try:
            found = self.conformed(array, kind)
        except VALUE_ERRORS as error:
            raise error.within(f"column {'.'.join(field.name for field in fields)}") from error
        return pc.utf8_rpad(found, fields[-1].length) if fields[-1].length else found

    def group_of(self, rows: Rows, fields: tuple[Field, ...], keys: Keys) -> Group:
        """What some rows have at a path."""
        place = self.places.place(fields, keys)
        if rows.batch is None or (place.group is None and not place.above):
            return Group(None, None, None, rows.count)
        names = self.places.names(fields)
        assert names is not None
        if place.rebuilt:
            plain = layouts.unshred(_dig(rows.batch, names))
            return Group(plain.field("metadata"), pc.struct_field(plain, "value"), None, rows.count).at(keys)
        parts = {
            name: None if place.group is None else _dig(rows.batch, (*place.group, name)) for name in ("value", "typed_value")
        }
        metadata = _dig(rows.batch, (*names, "metadata"))
        if place.rest and not isinstance(place.rest[0], int):
            parts["typed_value"] = None
        if self.places.is_legacy and parts["typed_value"] is not None and t.is_time(parts["typed_value"].type):
            fitted(parts["typed_value"], parts["typed_value"].type, is_legacy=True)
        group = Group(metadata, parts["value"], parts["typed_value"], rows.count).at(place.rest)
        for above, rest in place.above:
            group = group.completed(metadata, _dig(rows.batch, (*above, "value")), rest)
        return group


def _dig(batch: pa.RecordBatch, names: Names) -> Any:
    """The column at some names, null where a struct above it is; None if it was not read."""
    array = batch.to_struct_array()
    for name in names:
        index = array.type.get_field_index(name) if pa.types.is_struct(array.type) else -1
        if index < 0:
            return None
        array = pc.struct_field(array, [index])
    return array


class Rows:
    """Some rows of a file (`expressions.Rows`). first: the first of them. kept: which of the rows from there on they are.

    alive: for which of them a predicate is asked.
    """

    def __init__(
        self, file: OpenFile, batch: pa.RecordBatch | None, count: int, first: int, kept: Numbers = None, alive: Flags = None
    ) -> None:
        self._file, self.batch, self.count, self._first, self._kept, self.alive = file, batch, count, first, kept, alive
        self._columns: dict[Any, pa.Array] = {}
        self._groups: dict[Any, Group] = {}

    def filtered(self, mask: npt.NDArray[np.bool_]) -> Rows:
        """The rows that the mask keeps."""
        if mask.all():
            return self
        batch = None if self.batch is None else self.batch.filter(pa.array(mask))
        kept = np.flatnonzero(mask) if self._kept is None else self._kept[mask]
        return Rows(self._file, batch, len(kept), self._first, kept)

    def number(self, row: int) -> int:
        """The number of a row in the file."""
        return self._first + (row if self._kept is None else int(self._kept[row]))

    def __len__(self) -> int:
        return self.count

    def slice(self, offset: int, length: int) -> Rows:
        """Some of the rows."""
        span = slice(offset, offset + length)
        batch = None if self.batch is None else part(self.batch, offset, length)
        kept = np.arange(offset, offset + length) if self._kept is None else self._kept[span]
        return Rows(self._file, batch, length, self._first, kept, None if self.alive is None else self.alive[span])

    def column(self, fields: tuple[Field, ...]) -> pa.Array:
        """The values of a column."""
        if fields not in self._columns:
            self._columns[fields] = self._file.column_of(self, fields)
        return self._columns[fields]

    def path(self, fields: tuple[Field, ...], keys: Keys) -> Group:
        """What the rows have at a path of a VARIANT column."""
        if (fields, keys) not in self._groups:
            self._groups[fields, keys] = self._file.group_of(self, fields, keys)
        return self._groups[fields, keys]
