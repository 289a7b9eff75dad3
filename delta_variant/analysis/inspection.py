"""`VariantTable.inspect`: how the files of a table store its VARIANT columns, by their footers.

In: a table. Out: a DataFrame with a row for each file, VARIANT column and path of its shredding schema; tasks read the footers.

Invariant: nothing but footers is read. A file that cannot be read has one row, with the error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from delta_variant import jvm, mapping
from delta_variant.errors import DeltaVariantError
from delta_variant.parquet import inspect
from delta_variant.schema import ddl
from delta_variant.storage import Storage
from delta_variant.transaction import Table

SCHEMA = pa.schema({
    "file": pa.string(), "column": pa.string(), "layout": pa.string(), "schema": pa.string(), "rows": pa.int64(),
    "path": pa.string(), "type": pa.string(), "typed": pa.int64(), "residual": pa.int64(), "bytes": pa.int64(),
    "residual_bytes": pa.int64(), "proven": pa.bool_(), "open": pa.bool_(), "ours": pa.bool_(), "error": pa.string(),
})  # fmt: skip


def inspected(table: Table, paths: Sequence[str] | None = None) -> DataFrame:
    """The rows of `VariantTable.inspect` without bounds. paths: of the files, by default all of the table."""
    if paths is not None:
        files = table.spark.createDataFrame([(path,) for path in paths], "path string")
    else:
        with jvm.delta_errors(f"reading {table.name}"):
            files = DataFrame(table.snapshot().allFiles().toDF(), table.spark).select("path")
    names = mapping.logical_names(table.features().schema)
    return files.mapInArrow(partial(_inspected, table.storage, names), ddl(pa.struct(list(SCHEMA))))


def _inspected(location: Storage, names: Mapping[str, str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows for files. names: logical names of columns, by physical ones where the two differ."""
    system = location.open()
    for batch in batches:
        for file in batch.column(0).to_pylist():
            try:
                with system.open_input_file(location.file(file)) as source:
                    rows = [row for column in inspect(source) for row in _rows(file, column, names)]
            except (DeltaVariantError, FileNotFoundError) as error:
                rows = [{"file": file, "error": str(error)}]
            yield pa.RecordBatch.from_pylist(rows, SCHEMA)


def _rows(file: str, column: Any, names: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    whole = {
        "file": file, "column": names.get(column.column, column.column), "layout": column.layout, "schema": column.schema,
        "rows": column.rows, "ours": column.is_ours,
    }  # fmt: skip
    if not column.paths:
        sizes = {"bytes": column.bytes, "residual_bytes": column.residual_bytes}
        yield {**whole, **sizes, "path": "$", "proven": False, "open": False}
    for path in column.paths:
        yield {**whole, **vars(path), "proven": path.is_proven, "open": path.is_open}
