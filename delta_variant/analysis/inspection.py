"""`VariantTable.inspect`: what the files of a table hold of their VARIANT columns, by their footers.

In: a table. Out: a DataFrame with a row for each file, VARIANT column and path of its shredding schema; tasks read the footers.

Invariant: nothing but footers is read. A file that cannot be read has one row, with the error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame

from delta_variant import jvm
from delta_variant.errors import DeltaVariantError
from delta_variant.hadoop import storage_of
from delta_variant.parquet import inspect
from delta_variant.storage import Storage
from delta_variant.transaction import Table
from delta_variant.writer import mapping

SCHEMA = (
    "file string, column string, layout string, schema string, rows bigint, path string, type string, typed bigint, "
    "residual bigint, bytes bigint, residual_bytes bigint, proven boolean, error string"
)
_COLUMNS = {
    "file": pa.string(), "column": pa.string(), "layout": pa.string(), "schema": pa.string(), "rows": pa.int64(),
    "path": pa.string(), "type": pa.string(), "typed": pa.int64(), "residual": pa.int64(), "bytes": pa.int64(),
    "residual_bytes": pa.int64(), "proven": pa.bool_(), "error": pa.string(),
}  # fmt: skip
_URI = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/]*))?(.*)", re.DOTALL)


def inspected(table: Table) -> DataFrame:
    """The rows of `VariantTable.inspect` without bounds."""
    spark = table.spark
    with jvm.delta_errors(f"reading {table.name}"):
        location = storage_of(spark, table.log.dataPath(), table.log.newDeltaHadoopConf())
        files = DataFrame(table.snapshot().allFiles().toDF(), spark).select("path")
    names = mapping.logical_names(table.features().schema)
    return files.mapInArrow(partial(_inspected, location, names), SCHEMA)


def _inspected(location: Storage, names: Mapping[str, str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows for files. names: logical names of columns, by physical ones where the two differ."""
    system = location.open()
    for batch in batches:
        for file in batch.column(0).to_pylist():
            try:
                with system.open_input_file(_place(location, file)) as source:
                    rows = [row for column in inspect(source) for row in _rows(file, column, names)]
            except (DeltaVariantError, FileNotFoundError, pa.ArrowInvalid) as error:
                rows = [{"file": file, "error": str(error)}]
            yield pa.RecordBatch.from_pylist(rows, pa.schema(_COLUMNS))


def _rows(file: str, column: Any, names: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    whole = {
        "file": file, "column": names.get(column.column, column.column), "layout": column.layout, "schema": column.schema,
        "rows": column.rows,
    }  # fmt: skip
    if not column.paths:
        yield {**whole, "path": "$", "bytes": column.bytes, "residual_bytes": column.residual_bytes, "proven": False}
    for path in column.paths:
        yield {
            **whole, "path": path.path, "type": path.type, "typed": path.typed, "residual": path.residual,
            "bytes": path.bytes, "residual_bytes": path.residual_bytes, "proven": path.is_proven,
        }  # fmt: skip


def _place(location: Storage, path: str) -> str:
    """The path of a data file as the file system of the table names it. path: as in the log, percent-encoded, perhaps a URI."""
    match = _URI.fullmatch(path)
    assert match is not None
    scheme, host, rest = match[1], match[2] or "", unquote(match[3])
    if scheme is None and not rest.startswith("/"):
        return f"{location.root}/{rest}"
    return rest if location.scheme == "file" else f"{host.rpartition('@')[0] or host}{rest}"
