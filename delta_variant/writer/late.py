"""Late materialization: VARIANT columns whose rows say where a Variant is → the Variants.

In: batches with struct<file, row, variant> in the places of VARIANT columns (`scala/LateVariants.scala`): `file` is the URI of
a file of the table, and `row` the index of a row in the file, deleted rows included; if `file` is null, the Variant is in
`variant`. Out: the same rows with struct<metadata, value>, or shredded as in their files (`shredding.reshredder`).

A command that rewrites files copies most of their rows. Spark's scan would rebuild each Variant in the JVM, one value after the
other, and send it here to be shredded; the kernels of this package do it column by column, and the file is read here.

Invariants: a file is read from its beginning to its end as long as rows come in that order; other orders are correct, and slow.
At most `_OPEN` files are open. Memory holds a batch of each, and as many rows as have Variants of about `SLICE_BYTES`, at least
one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import groupby, pairwise

import numpy as np
import pyarrow as pa
from pyarrow import fs

from delta_variant.buffers import Int64s
from delta_variant.errors import TableError
from delta_variant.locating import naming
from delta_variant.parquet.columns import Columns, group_of, opened
from delta_variant.parquet.footer import Names
from delta_variant.parquet.opening import CountedFile, reading
from delta_variant.shredding import UNSHREDDED
from delta_variant.shredding.shredder import concatenated
from delta_variant.storage import Storage
from delta_variant.writer.physical_columns import required, unshredded

SLICE_BYTES = 8 << 20
_MOST_BYTES = 4 * SLICE_BYTES
"""Rows with more Variants than that are read again in smaller slices."""
_OPEN = 8
_LEAST_ROWS = 1024
"""Runs of rows in one shredding schema stay shredded if their mean length is at least this."""
_FIRST_ROWS = 1024
"""The rows of a slice as long as the size of Variants is not known."""


class _TooLargeError(Exception):
    """The Variants of a slice are larger than those before."""


def materialized(
    batches: Iterator[pa.RecordBatch], location: Storage, columns: Mapping[str, tuple[int, ...]]
) -> Iterator[pa.RecordBatch]:
    """The batches with the Variants of these columns. location: the directory of the table. columns: their field ids, by name.

    Raises what reading a file does: FileNotFoundError, DamagedFileError, InvalidLayoutError, MalformedVariantError.
    """
    files = _Files(location, columns)
    try:
        for batch in batches:
            start = 0
            while start < batch.num_rows:
                rows = _of_few_files(batch.slice(start, files.slice_rows), columns)
                try:
                    found = _with_variants(rows, columns, files)
                except _TooLargeError:
                    continue
                yield from found
                start += rows.num_rows
    finally:
        files.close()


def _of_few_files(rows: pa.RecordBatch, late: Collection[str]) -> pa.RecordBatch:
    """The first of these rows, as far as all of their files can be open at once: each column of a slice reads all of them."""
    if len(late) > 1:
        for name in late:
            numbers = rows.column(name).field("file").dictionary_encode().indices.fill_null(0).to_numpy()
            rows = rows.slice(0, int(np.argmax(numbers >= _OPEN)) or len(numbers))
    return rows


def _with_variants(rows: pa.RecordBatch, late: Collection[str], files: _Files) -> list[pa.RecordBatch]:
    """The rows with their Variants, in batches in each of which a column has one type."""
    found = {}
    for name in late:
        with naming(f"column {name}"):
            found[rows.schema.get_field_index(name)] = _variants(rows.column(name), name, files)
    ends = {number: np.cumsum([len(part) for part in parts]) for number, parts in found.items()}
    batches = []
    for start, end in pairwise([0, *np.unique(np.concatenate(list(ends.values()))).tolist()]):
        columns = rows.slice(start, end - start).columns
        for number, parts in found.items():
            part = int(np.searchsorted(ends[number], end))
            columns[number] = parts[part].slice(start - (ends[number][part] - len(parts[part])), end - start)
        batches.append(pa.RecordBatch.from_arrays(columns, rows.schema.names))
    return batches


def _variants(column: pa.StructArray, name: str, files: _Files) -> list[pa.StructArray]:
    """The Variants of one column, in the order of its rows. Each array has another type than the one before."""
    file, row = column.field(0), column.field(1)
    known = file.dictionary_encode()
    is_late = file.is_valid().to_numpy(zero_copy_only=False)
    late_rows = np.flatnonzero(is_late)
    numbers = known.indices.fill_null(0).to_numpy()[late_rows]
    index = row.fill_null(0).to_numpy()[late_rows]
    order = np.lexsort((index, numbers))
    starts = np.searchsorted(numbers[order], np.arange(len(known.dictionary) + 1))
    parts: list[pa.StructArray] = []
    for number, uri in enumerate(known.dictionary.to_pylist()):
        parts += files.variants(uri, name, index[order[starts[number] : starts[number + 1]]])
    if len(late_rows) < len(column):
        parts.append(required(column.field(2).filter(pa.array(~is_late)), ()))
    found = np.empty(len(column), np.int64)
    found[late_rows[order]] = np.arange(len(late_rows))
    found[~is_late] = np.arange(len(late_rows), len(column))
    runs = [list(run) for _, run in groupby(parts, lambda part: part.type)]
    is_ordered = (np.diff(found) == 1).all()
    if len(runs) > 1 and not (is_ordered and len(column) >= _LEAST_ROWS * len(runs)):
        runs = [[unshredded(part) for part in parts]]
    arrays = [concatenated(run) for run in runs]
    return arrays if is_ordered else [arrays[0].take(pa.array(found))]


class _Files:
    """The files of the table. The last used ones are open."""

    def __init__(self, location: Storage, ids: Mapping[str, tuple[int, ...]]) -> None:
        self._location, self._ids = location, ids
        self._system = location.open()
        self._open: dict[str, _File] = {}  # the last used one last
        self._row_bytes = 0.0  # the largest average so far

    @property
    def slice_rows(self) -> int:
        """About how many rows have Variants of `SLICE_BYTES`."""
        return max(1, int(SLICE_BYTES / self._row_bytes)) if self._row_bytes else _FIRST_ROWS

    def variants(self, uri: str, name: str, indices: Int64s) -> list[pa.StructArray]:
        """The Variants of a column at rows of a file, in the order of the rows. indices: of the rows, ascending."""
        file = self._open.pop(uri, None)
        if file is None:
            if len(self._open) == _OPEN:
                self._open.pop(next(iter(self._open))).source.close()
            file = _File(self._system, self._location.file(uri), self._ids)
        self._open[uri] = file
        parts, size, rows = [], 0, 0
        with reading(file.source):
            while rows < len(indices):
                parts.append(file.columns[name].next(indices[rows:]))
                size, rows = size + parts[-1].nbytes, rows + len(parts[-1])
                self._row_bytes = max(self._row_bytes, size / rows)
                if size > _MOST_BYTES and rows > 1 and self.slice_rows < len(indices):
                    raise _TooLargeError
        return parts

    def close(self) -> None:
        for file in self._open.values():
            file.source.close()


class _File:
    def __init__(self, system: fs.FileSystem, path: str, ids: Mapping[str, tuple[int, ...]]) -> None:
        self.source = CountedFile(system.open_input_file(path))
        with reading(self.source):
            file = opened(self.source)
            folded = {name.casefold(): name for name in file.schema_arrow.names}  # Spark takes a name in another case, too
            names = {name: name if name in file.schema_arrow.names else folded.get(name.casefold(), name) for name in ids}
            groups = {name: group_of(file.schema_arrow, (names[name],), own) for name, own in ids.items()}
            parquet = Columns(file, {group for group in groups.values() if group is not None})
            self.columns = {name: _OpenColumn(parquet, group) for name, group in groups.items()}


class _OpenColumn:
    """A VARIANT column of an open file, which is read forward; one that the file lacks is null."""

    def __init__(self, file: Columns, group: Names | None) -> None:
        self._file, self._group = file, group
        rows = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
        self._starts = np.cumsum([0, *rows])  # of row groups, and the end of the file
        self._batches: Iterator[pa.Array] | None = None
        self._first, self._batch = 0, pa.nulls(0, UNSHREDDED)

    def next(self, indices: Int64s) -> pa.StructArray:
        """The Variants at the first of these rows, as far as one batch has them."""
        if self._group is None:
            return pa.nulls(len(indices), UNSHREDDED)
        if not self._first <= indices[0] < self._first + len(self._batch):
            self._seek(int(indices[0]))
        rows = indices[: np.searchsorted(indices, self._first + len(self._batch))] - self._first
        if (np.diff(rows) == 1).all():
            return self._batch.slice(rows[0], len(rows))
        return self._batch.take(pa.array(rows))

    def _seek(self, row: int) -> None:
        """Reads on to the batch with a row. Row groups between are left out; for a row behind, its row group is read again."""
        assert self._group is not None
        number = int(np.searchsorted(self._starts, row, "right")) - 1
        end = self._first + len(self._batch)
        if self._batches is None or row < self._first or self._starts[number] > end:
            self._batches = self._file.shredded(self._group, number)
            end = int(self._starts[number])
        while row >= end:
            batch = next(self._batches, None)
            if batch is None:
                raise TableError(f"a file has no row {row}: it was replaced after Spark read it: run the statement again")
            self._first, self._batch = end, batch
            end += len(batch)
