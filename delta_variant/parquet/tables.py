"""Whole tables: VARIANT columns are shredded when a file is written and rebuilt when it is read. No Spark, no JVM.

In Arrow a VARIANT column is struct<metadata: binary, value: binary>. In a file it is a group with the VARIANT logical type, or
a group without it whose fields are those of a layout. Invariant: read_table returns the Variants that write_table was given.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from delta_variant import layouts, nested, shredding
from delta_variant import schema as schemas
from delta_variant import types as t
from delta_variant.errors import InvalidLayoutError, InvalidSchemaError
from delta_variant.locating import in_rows, naming
from delta_variant.parquet import footer, opening, physical
from delta_variant.parquet.files import FileWriter
from delta_variant.parquet.footer import Names

IsVariant = Callable[[pa.DataType, Names], bool]

BATCH_ROWS = 1 << 16
INFERENCE_ROWS = 4096


def write_table(
    table: pa.Table,
    path: str | os.PathLike[str],
    *,
    shred: Mapping[str, pa.DataType | str] | str | None = None,
    compression: str | None = "zstd",
) -> None:
    """Writes a table to a Parquet file.

    A VARIANT column is a struct<metadata: binary, value: binary>, in either order and in any form of binary, or a shredded
    column, with or without the extension type arrow.parquet.variant. shred: for each column its shredding schema, an Arrow type
    or DDL text; "auto" infers the schemas of the columns that are not shredded, and closes their objects; None writes columns
    as they are. compression: as for `FileWriter`. Raises InvalidSchemaError, InvalidLayoutError, MalformedVariantError,
    and UnsupportedFeatureError for other compressions.

    >>> import pyarrow as pa, delta_variant as dv
    >>> table = pa.table({"v": dv.arrow.VariantArray.from_pylist([{"id": 1}])})
    >>> dv.parquet.write_table(table, "events.parquet", shred={"v": "id bigint"})
    >>> dv.parquet.read_table("events.parquet").num_rows
    1
    """
    if not isinstance(table, pa.Table):
        raise InvalidLayoutError(f"write_table takes a pyarrow.Table, not a {type(table).__name__}: make one with pa.table")
    try:
        table.validate(full=True)
    except pa.ArrowException as error:
        raise InvalidLayoutError(f"write_table takes a valid table: {error}") from None
    table = _storable(table)
    schemas_by_column = _shredding_schemas(table, shred)
    batches = table.to_batches(max_chunksize=BATCH_ROWS) or [_no_rows(table.schema)]
    stored = _stored(batches[0].slice(0, 0), schemas_by_column).schema
    closed = [(name,) for name in schemas_by_column] if shred == "auto" else []
    with FileWriter(path, stored, variants=set(_variants(stored)), closed=closed, compression=compression) as writer:
        for batch in batches:
            writer.write(_stored(batch, schemas_by_column))


def read_table(path: str | os.PathLike[str]) -> pa.Table:
    """Reads a Parquet file; VARIANT columns are returned as struct<metadata: binary not null, value: binary not null>.

    VARIANT columns are those with the logical type, and those of any layout that `layouts` recognizes, inside structs, lists
    and maps too. Their Variants are rebuilt byte for byte and validated to the last leaf. Raises, with the name of the file:
    DamagedFileError for a file that is damaged or not Parquet, UnsupportedFeatureError for what is encrypted and for
    strings that are not UTF-8, and with the column and the row of the file, from 0, InvalidLayoutError and
    MalformedVariantError.

    >>> import pyarrow as pa, delta_variant as dv
    >>> table = pa.table({"v": dv.arrow.VariantArray.from_pylist([{"id": 1}])})
    >>> dv.parquet.write_table(table, "events.parquet", shred="auto")
    >>> [dv.binary.decode(**row) for row in dv.parquet.read_table("events.parquet")["v"].to_pylist()]
    [{'id': 1}]
    """
    with naming(os.fspath(path)), pa.OSFile(os.fspath(path)) as source, opening.reading():
        data = footer.of(source)
        file, annotated = opening.opened(source, data), footer.variant_groups(data)

        def is_variant(kind: pa.DataType, names: Names) -> bool:
            return layouts.is_variant(kind, annotated=names in annotated)

        exact = physical.exact_schema(file, is_variant)
        schema = unshredded(_no_rows(exact), is_variant, 0).schema
        batches, rows = [], 0
        for batch in opening.batches(file, BATCH_ROWS):
            batches.append(unshredded(opening.check_texts(physical.with_types(batch, exact)), is_variant, rows))
            rows += batch.num_rows
        return pa.Table.from_batches(batches, schema)


def _shredding_schemas(table: pa.Table, shred: Mapping[str, Any] | str | None) -> dict[str, pa.DataType]:
    if shred is not None and shred != "auto" and not isinstance(shred, Mapping):
        raise InvalidSchemaError(f'shred is None, "auto" or a schema for each column, not {shred!r}')
    if shred is None:
        return {}
    if shred == "auto":
        plain = [f.name for f in table.schema if _looks_final(f.type) and f.type.get_field_index("typed_value") < 0]
        _check_names(table, plain)
        found = {name: schemas.infer(table.column(name).slice(0, INFERENCE_ROWS).combine_chunks()) for name in plain}
        return {name: schema for name, schema in found.items() if schema is not None}
    assert not isinstance(shred, str)
    _check_names(table, shred)
    for name in shred:
        if name not in table.column_names or not _looks_final(table.schema.field(name).type):
            raise InvalidSchemaError(f"{name} is not a VARIANT column of the table, which has {table.schema.names}")
        if not isinstance(shred[name], str | pa.DataType):
            raise InvalidSchemaError(f"shred: the schema of {name} is an Arrow type or a text, not {shred[name]!r}")
    return {name: schemas.parse(schema) if isinstance(schema, str) else schema for name, schema in shred.items()}


def _check_names(table: pa.Table, shredded: Iterable[str]) -> None:
    """Raises InvalidSchemaError if two columns have the name of one that is to be shredded."""
    for name in shredded:
        if table.column_names.count(name) > 1:
            raise InvalidSchemaError(f"{name} is the name of more than one column: rename them, or write with shred=None")


def _stored(batch: pa.RecordBatch, schemas_by_column: Mapping[str, pa.DataType]) -> pa.RecordBatch:
    """The batch in the form of the file: VARIANT columns are shredded, or plain binaries with the metadata first."""

    def stored(field: pa.Field, column: pa.Array) -> pa.Array:
        if not _looks_final(field.type):
            return column
        given = shredding.schema_of(field.type)
        schema = schemas_by_column.get(field.name, given)
        if not pa.types.is_null(given) and schema == given and field.type == shredding.storage_type(given):
            return column
        plain = shredding.unshred(column)
        return plain if pa.types.is_null(schema) else shredding.shred(plain, schema)

    columns = [stored(field, column) for field, column in zip(batch.schema, batch.columns, strict=True)]
    return _with_columns(batch.schema, columns)


def _storable(table: pa.Table) -> pa.Table:
    """The table with every arrow.parquet.variant replaced by its storage, without views of lists, strings and binaries, without
    binaries in run ends, and without nulls of non-nullable fields below nulls.

    pyarrow's writer crashes on that type, and refuses those nulls. pyarrow cannot take a sample of views, and its casts of list
    views are wrong.
    """

    def storage(kind: pa.DataType, names: Names) -> pa.DataType | None:
        if isinstance(kind, pa.BaseExtensionType):
            is_variant = kind.extension_name == "arrow.parquet.variant"
            return physical.replaced(kind.storage_type, names, storage) if is_variant else kind
        plain = kind.value_type if pa.types.is_run_end_encoded(kind) and t.is_binary(kind) else kind
        found = physical.LARGE.get(plain, plain)
        return None if found == kind else found

    fields = [field.with_type(physical.replaced(field.type, (field.name,), storage)) for field in table.schema]

    def stored(chunk: pa.Array, field: pa.Field) -> pa.Array:
        return nested.without_nulls_below_nulls(physical.with_type(chunk, field.type), field)

    columns = [
        pa.chunked_array([stored(chunk, field) for chunk in column.chunks], field.type)
        for column, field in zip(table.columns, fields, strict=True)
    ]
    return pa.table(columns, schema=pa.schema(fields, table.schema.metadata))


def unshredded(batch: pa.RecordBatch, is_variant: IsVariant, first_row: int, *, for_spark: bool = False) -> pa.RecordBatch:
    """The batch with every VARIANT in it unshredded.

    first_row: its first row's number in the file. for_spark: whether a value that Spark cannot read is an error. Errors name
    the column and the row of the file.
    """
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        with naming(f"column {name}"):
            rebuilt = partial(_rebuilt, names=(name,), is_variant=is_variant, for_spark=for_spark)
            columns.append(in_rows(rebuilt, column, first_row))
    return _with_columns(batch.schema, columns)


def _with_columns(schema: pa.Schema, columns: list[pa.Array]) -> pa.RecordBatch:
    fields = [field.with_type(column.type) for field, column in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, schema.metadata))


def _rebuilt(array: pa.Array, names: Names, is_variant: IsVariant, *, for_spark: bool) -> pa.Array:
    """The array with every VARIANT in it unshredded, inside structs, lists and maps too."""
    kind = array.type
    if is_variant(kind, names):
        plain = layouts.unshred(array)
        if for_spark:
            shredding.validate(plain, for_spark=True)
        return plain
    if not any(is_variant(inner, path) for path, inner in nested.leaves(kind, names, is_variant)):
        return array
    parts = zip(nested.children(kind, names), nested.arrays(array), strict=True)
    inside = [_rebuilt(part, path, is_variant, for_spark=for_spark) for (path, _), part in parts]
    return nested.rebuilt(array, nested.with_types(kind, [part.type for part in inside]), inside)


def _variants(schema: pa.Schema) -> Iterator[Names]:
    for field in schema:
        yield from (names for names, kind in nested.leaves(field.type, (field.name,), _looks_final) if _looks_final(kind))


def _looks_final(kind: pa.DataType, _names: Names = ()) -> bool:
    """Whether a type has the fields of a VARIANT column in the final layout: metadata with value, typed_value or both."""
    names = [field.name for field in kind] if pa.types.is_struct(kind) else []
    if "metadata" not in names or len(names) < 2 or len(set(names)) < len(names):
        return False
    return set(names) <= {"metadata", "value", "typed_value"} and all(
        t.is_binary(field.type) for field in kind if field.name != "typed_value"
    )


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def beside(batch: pa.RecordBatch, row: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, followed by the columns of one other row, which has the same values in all rows."""
    same = pa.array(np.zeros(batch.num_rows, np.int64))
    names = [*batch.schema.names, *row.schema.names]
    return pa.RecordBatch.from_arrays([*batch.columns, *(column.take(same) for column in row.columns)], names=names)
