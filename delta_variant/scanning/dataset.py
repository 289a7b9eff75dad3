"""The public function `dataset`: a version of a table as a `pyarrow.dataset.Dataset`, which other libraries query.

    filter ─▶ `pushed`: a predicate ─▶ files, row groups and rows that can match, as in `scan`
        ─▶ the filter itself, and the columns asked for, by pyarrow, batch by batch in the thread of each file

DuckDB calls `scanner` and its `to_reader`, Polars `to_batches` and `head`, DataFusion `get_fragments` and their `scanner`.
pyarrow's class makes `to_table`, `to_batches`, `head` and `take` of `scanner`. Whatever bypasses `scanner` reads by a pointer,
which would end the process if it were null. So the dataset is a union with one file that is not there, whose name, in pyarrow's
error, says what to use.

Invariant: rows are those for which pyarrow finds the filter true. A batch is read when it is asked for, but for those ahead in
`stream`; pyarrow's own scanner would read a stream to its end, however slow its reader is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import acero

from delta_variant import nested
from delta_variant.arrow import VariantType
from delta_variant.errors import TableError, UnsupportedFeatureError
from delta_variant.parquet import opening, physical
from delta_variant.queries import arrow_filters
from delta_variant.queries.pruning import Where
from delta_variant.scanning.files import Query
from delta_variant.scanning.log import File, Snapshot
from delta_variant.scanning.query import batches, matching, opened, with_types
from delta_variant.shredding import UNSHREDDED

_NOWHERE = "a dataset of delta_variant is read by scanner(), to_table() and to_batches() only"


def dataset(
    path: str | os.PathLike[str],
    columns: Sequence[str] | Mapping[str, str] | None = None,
    *,
    version: int | None = None,
    timestamp: str | datetime | None = None,
    timezone: str = "UTC",
    storage_options: Mapping[str, str] | None = None,
) -> TableDataset:
    """A Delta table, without Spark, as a `pyarrow.dataset.Dataset`: DuckDB, Polars, DataFusion and pandas query it.

    path, columns, version, timestamp, timezone, storage_options: as for `scan`. A dict names paths for queries:
    `columns={"actor": "v:actor.id::bigint"}`. A VARIANT is the extension type `arrow.parquet.variant` of `delta_variant.arrow`,
    of which DuckDB 2.0 and later read paths: `SELECT v.actor.id`. A path without a type has the type that the footers of all
    files prove. They are read first, unless each path has a type.

    A query reads the columns that it needs. Its filter on columns, and on paths that are columns here, skips the files and row
    groups that `scan` would skip with the same predicate: comparisons with literals, lists, NULL tests, prefixes, booleans,
    AND, OR and NOT. What a library does not hand over, it filters itself: DuckDB's `EXPLAIN` and Polars' `explain` show it. A
    filter on a path of DuckDB's own, `v.a = 5`, is never handed over.

    The version is that of the time of the call: all queries have the same rows, until files of it are deleted (VACUUM). Make
    another dataset for newer rows. Queries may run concurrently. Each holds in memory what a `scan` does.

    Returns a dataset with `schema`, `scanner`, `to_table`, `to_batches`, `head`, `take`, `count_rows`, `filter` and
    `get_fragments`, one for each file. It can be pickled, with its storage_options. A filter that is handed over has pyarrow's
    meaning, as with every dataset of pyarrow. DuckDB hands over only filters that mean the same in both. In Polars and
    DataFusion NaN is the largest number: the filter `x > 1`, handed over, loses rows with NaN. Polars finds NULL by
    `~x.is_in(…)`. `scan_pyarrow_dataset(…, allow_pyarrow_filter=False)` lets Polars filter all rows itself.

    Raises what `scan` raises; UnsupportedFeatureError for `join`, `join_asof`, `sort_by` and `replace_schema`.

    >>> import delta_variant as dv, duckdb
    >>> events = dv.dataset("events", {"kind": "v:kind::string", "id": "v:id::bigint"})
    >>> duckdb.sql("SELECT kind, count(*) FROM events WHERE id < 5 GROUP BY ALL ORDER BY ALL").fetchall()
    [('like', 1), ('view', 4)]
    """
    query, snapshot = opened(path, columns, version, timestamp, timezone, storage_options)
    options = {"version": snapshot.version, "timezone": timezone, "storage_options": dict(storage_options or {})}
    known = columns if columns is None else dict(columns) if isinstance(columns, Mapping) else list(columns)
    place = query.storage.root if query.storage.scheme == "file" else os.fspath(path)  # wherever it is opened anew
    return TableDataset(with_types(query, snapshot.files), snapshot, snapshot.files, (place, known, options))


class TableDataset(ds.UnionDataset):  # type: ignore[misc]  # pyarrow ships no types
    """The rows of some files of a version, maybe with a filter. `dataset` makes it."""

    def __init__(
        self, query: Query, snapshot: Snapshot, files: Sequence[File], arguments: tuple[Any, ...], where: Any = None
    ) -> None:
        schema = pa.schema([pa.field(output.name, _extended(output.type)) for output in query.outputs])
        super().__init__(schema, [opening.missing(schema, _NOWHERE)])
        self._query, self._snapshot, self._files = query, snapshot, files
        self._arguments, self._where = arguments, where

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (*self._arguments, self._where)

    def __repr__(self) -> str:
        return f"delta_variant.dataset({self._arguments[0]!r}, version={self._snapshot.version}): {len(self._files)} files"

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, Any] | None = None,
        filter: Any = None,  # noqa: A002  # pyarrow's name
        **_: Any,
    ) -> TableScanner:
        """Some columns of the rows that match, as often as they are asked for.

        columns: names, or expressions by name. filter: an expression. pyarrow's other options change nothing.
        """
        where = self._both(filter)
        names = self.schema.names if columns is None else list(columns)
        values = list(columns.values()) if isinstance(columns, Mapping) else list(map(pc.field, names))
        needed = arrow_filters.columns_of(values if where is None else [*values, where])
        self._check(needed or ())
        query, files = self._pushed(where)
        read = [output for output in query.outputs if needed is None or output.name in needed]
        read.sort(key=lambda output: names.index(output.name) if output.name in names else len(names))
        return TableScanner(replace(query, outputs=tuple(read)), files, names, values, where, self.schema)

    def count_rows(self, filter: Any = None, **_: Any) -> int:  # noqa: A002  # pyarrow's name
        """How many rows there are, for which no column is read but those of the filter."""
        return self.scanner([], filter).count_rows()

    def filter(self, expression: Any) -> TableDataset:
        return TableDataset(self._query, self._snapshot, self._files, self._arguments, self._both(expression))

    def get_fragments(self, filter: Any = None) -> Iterator[TableFragment]:  # noqa: A002  # pyarrow's name
        """The files that can match, one by one."""
        where = self._both(filter)
        for file in self._pushed(where)[1]:
            yield TableFragment(self, file)

    def of(self, file: File) -> TableDataset:
        """The rows of one of the files."""
        return TableDataset(self._query, self._snapshot, [file], self._arguments, self._where)

    def _both(self, where: Any) -> Any:
        return where if self._where is None else self._where if where is None else self._where & where

    def _check(self, names: Iterable[str]) -> None:
        missing = [name for name in names if name not in self.schema.names]
        if missing:
            raise TableError(f"there is no column {missing[0]} in the dataset: there are {', '.join(self.schema.names)}")

    def _pushed(self, where: Any) -> tuple[Query, Sequence[File]]:
        """The query with what is known of a filter, and the files that can match."""
        values = {output.name: output.value for output in self._query.outputs}
        found = None if where is None else arrow_filters.predicate_of(where, values)
        query = self._query if found is None else replace(self._query, predicate=Where(found, self._query.facts))
        return query, matching(query, self._files, self._snapshot)


def _refused(name: str) -> Any:
    def refuse(*_: Any, **__: Any) -> None:
        raise UnsupportedFeatureError(
            f"a dataset of delta_variant has no {name}: make a table of the rows, with to_table(columns, filter)"
        )

    return refuse


for _name in ("join", "join_asof", "sort_by", "replace_schema"):
    setattr(TableDataset, _name, _refused(_name))


def _unpickled(path: str, columns: Any, options: Mapping[str, Any], where: Any) -> TableDataset:
    made = dataset(path, columns, **options)
    return made if where is None else made.filter(where)


class TableFragment:
    """The rows of one file, in the form that DataFusion asks for. It can be pickled, as its dataset can."""

    def __init__(self, rows: TableDataset, file: File) -> None:
        self._rows, self._file = rows, file

    def scanner(self, schema: Any = None, **options: Any) -> TableScanner:  # noqa: ARG002  # it is the dataset's
        return self._rows.of(self._file).scanner(**options)


class TableScanner:
    """What `TableDataset.scanner` returns, with the methods of a `pyarrow.dataset.Scanner`. Each call reads anew."""

    def __init__(
        self, query: Query, files: Sequence[File], names: list[str], values: list[Any], where: Any, whole: pa.Schema
    ) -> None:
        self._query, self._files, self._where, self.dataset_schema = query, files, where, whole
        self._names, self._values = names, values
        read = [output.name for output in query.outputs]
        self._as_read = where is None and names == read and list(map(str, values)) == read
        self._schema = pa.schema([pa.field(output.name, _extended(output.type)) for output in query.outputs])
        self.projected_schema: pa.Schema = self._answer(pa.Table.from_batches([], self._schema)).schema

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        return batches(self._query, self._files, self._finished)

    def to_table(self) -> pa.Table:
        return self.to_reader().read_all()

    def head(self, num_rows: int) -> pa.Table:
        found, left = [], num_rows
        if left > 0:
            for batch in self.to_batches():
                found.append(batch.slice(0, left))
                left -= found[-1].num_rows
                if left <= 0:
                    break
        return pa.Table.from_batches(found, self.projected_schema)

    def take(self, indices: Any) -> pa.Table:
        indices = pa.array(indices)
        wanted = np.unique(indices.drop_null().to_numpy(zero_copy_only=False).astype(np.int64))
        found, first, high = [], 0, 0
        for batch in self.to_batches() if len(wanted) else ():
            low, high = np.searchsorted(wanted, [first, first + batch.num_rows])
            found.append(batch.take(pa.array(wanted[low:high] - first)))
            first += batch.num_rows
            if high == len(wanted):
                break
        outside = [*wanted[wanted < 0], *wanted[high:]]
        if outside:
            raise pa.lib.ArrowIndexError(f"Index {outside[0]} out of bounds")
        return pa.Table.from_batches(found, self.projected_schema).take(pc.index_in(indices.cast(pa.int64()), pa.array(wanted)))

    def count_rows(self) -> int:
        return sum(batch.num_rows for batch in self.to_batches())

    def _finished(self, found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches of a file as the answer has them."""
        for batch in found:
            arrays = [_as(array, field.type) for array, field in zip(batch.columns, self._schema, strict=True)]
            whole = pa.RecordBatch.from_arrays(arrays, schema=self._schema) if arrays else batch
            yield from [whole] if self._as_read else self._answer(pa.Table.from_batches([whole])).to_batches()

    def _answer(self, rows: pa.Table) -> pa.Table:
        """What pyarrow makes of rows, in the thread that calls."""
        steps = [acero.Declaration("table_source", acero.TableSourceNodeOptions(rows))]
        if self._where is not None:
            steps.append(acero.Declaration("filter", acero.FilterNodeOptions(self._where)))
        steps.append(acero.Declaration("project", acero.ProjectNodeOptions(self._values, self._names)))
        return acero.Declaration.from_sequence(steps).to_table(use_threads=False)


def _extended(kind: pa.DataType) -> pa.DataType:
    """A type of `scan` with VARIANT as the extension type."""
    return physical.replaced(kind, (), lambda inner, _: VariantType() if inner == UNSHREDDED else None)


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """An array of `scan` in its type of `_extended`."""
    if array.type == kind:
        return array
    if isinstance(kind, VariantType):
        return kind.wrap_array(array)
    fields = [field for _, field in nested.children(kind)]
    inside = [_as(inner, field.type) for inner, field in zip(nested.arrays(array), fields, strict=True)]
    return nested.rebuilt(array, kind, inside)
