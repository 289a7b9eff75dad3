"""Whole tables: VARIANT columns shredded on the way into a file, put together on the way out. No Spark, no JVM.

In Arrow a VARIANT column is struct<metadata: binary, value: binary>; in a file it is a group with the VARIANT logical type,
or without it one whose fields are those of the shredding layout. Invariant: read_table gives the Variants write_table got.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from delta_variant import schema as schemas
from delta_variant import shredding
from delta_variant.errors import InvalidSchemaError
from delta_variant.parquet import footer
from delta_variant.parquet.files import FileWriter

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from delta_variant.parquet.footer import Names

BATCH_ROWS = 1 << 16
INFERENCE_ROWS = 4096


def write_table(
    table: pa.Table,
    path: str | os.PathLike[str],
    *,
    shred: Mapping[str, pa.DataType | str] | str | None = None,
    compression: str = "zstd",
) -> None:
    """Writes a table to a Parquet file.

    A VARIANT column is a struct<metadata: binary, value: binary>, in either order and in any form of binary, or a shredded
    one. shred: by column its shredding schema, an Arrow type or DDL; "auto" to infer the schemas of the columns that are not
    shredded; None to write them as they are. Raises InvalidSchemaError, MalformedVariantError.
    """
    schemas_by_column = _shredding_schemas(table, shred)
    batches = (_stored(batch, schemas_by_column) for batch in table.to_batches(max_chunksize=BATCH_ROWS))
    physical = _stored(_no_rows(table.schema), schemas_by_column).schema
    with FileWriter(path, physical, variants=set(_variants(physical)), compression=compression) as writer:
        for batch in batches:
            writer.write(batch)


def read_table(path: str | os.PathLike[str]) -> pa.Table:
    """Reads a Parquet file; VARIANT columns come back as struct<metadata: binary not null, value: binary not null>.

    Raises InvalidLayoutError, MalformedVariantError.
    """
    with pq.ParquetFile(path) as file:
        annotated = footer.variant_groups(footer.read(path))
        schema = _plain(_no_rows(file.schema_arrow), annotated).schema
        groups = (file.read_row_group(i).combine_chunks() for i in range(file.num_row_groups))
        return pa.Table.from_batches([_plain(batch, annotated) for group in groups for batch in group.to_batches()], schema)


def _shredding_schemas(table: pa.Table, shred: Mapping[str, Any] | str | None) -> dict[str, pa.DataType]:
    if isinstance(shred, str) and shred != "auto":
        raise InvalidSchemaError(f'shred is None, "auto" or a schema for each column, not {shred!r}')
    if shred is None:
        return {}
    if shred == "auto":
        plain = [f.name for f in table.schema if _is_variant(f.type) and f.type.get_field_index("typed_value") < 0]
        found = {name: schemas.infer(_as_one(table.column(name).slice(0, INFERENCE_ROWS))) for name in plain}
        return {name: schema for name, schema in found.items() if schema is not None}
    assert not isinstance(shred, str)
    for name in shred:
        if name not in table.column_names or not _is_variant(table.schema.field(name).type):
            raise InvalidSchemaError(f"{name} is not a VARIANT column of the table, which has {table.schema.names}")
    return {name: schemas.parse(schema) if isinstance(schema, str) else schema for name, schema in shred.items()}


def _stored(batch: pa.RecordBatch, schemas_by_column: Mapping[str, pa.DataType]) -> pa.RecordBatch:
    """The batch as it goes into the file: VARIANT columns shredded, or in plain binary with the metadata first."""

    def stored(field: pa.Field, column: pa.Array) -> pa.Array:
        schema = schemas_by_column.get(field.name)
        if schema is not None:
            return shredding.shred(_unshredded(column), schema)
        return _unshredded(column) if _is_variant(field.type) and not _is_shredded(field.type) else column

    columns = [stored(field, column) for field, column in zip(batch.schema, batch.columns, strict=True)]
    return _with_columns(batch.schema, columns)


def _plain(batch: pa.RecordBatch, annotated: set[Names]) -> pa.RecordBatch:
    columns = [
        _put_together(column, (name,), annotated) for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return _with_columns(batch.schema, columns)


def _with_columns(schema: pa.Schema, columns: list[pa.Array]) -> pa.RecordBatch:
    fields = [field.with_type(column.type) for field, column in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, schema.metadata))


def _put_together(array: pa.Array, names: Names, annotated: set[Names]) -> pa.Array:
    """The array with every VARIANT in it unshredded, inside structs, lists and maps too."""
    kind = array.type
    if names in annotated or _is_variant(kind):
        return _unshredded(array)
    if not any(_is_variant(kind) or names_ in annotated for names_, kind in _groups(kind, names)):
        return array
    if pa.types.is_struct(kind):
        children = [_put_together(array.field(i), (*names, field.name), annotated) for i, field in enumerate(kind)]
        fields = [field.with_type(child.type) for field, child in zip(kind, children, strict=True)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
    if pa.types.is_map(kind):
        keys = _put_together(array.keys, (*names, "key_value", "key"), annotated)
        items = _put_together(array.items, (*names, "key_value", "value"), annotated)
        entries = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field.with_type(items.type)])
        built = pa.map_(kind.key_field, entries.type.field(1))
        return pa.Array.from_buffers(built, len(array), array.buffers()[:2], offset=array.offset, children=[entries])
    element = _put_together(array.values, (*names, "list", "element"), annotated)
    built = pa.list_(kind.value_field.with_type(element.type))
    return pa.Array.from_buffers(built, len(array), array.buffers()[:2], offset=array.offset, children=[element])


def _unshredded(array: pa.Array) -> pa.StructArray:
    if _is_shredded(array.type):
        return shredding.unshred(array)
    children = [array.field(array.type.get_field_index(name)).cast(pa.binary()) for name in ("metadata", "value")]
    return pa.StructArray.from_arrays(children, fields=list(shredding.UNSHREDDED), mask=array.is_null())


def _variants(schema: pa.Schema) -> Iterator[Names]:
    for field in schema:
        yield from (names for names, kind in _groups(field.type, (field.name,)) if _is_variant(kind))


def _groups(kind: pa.DataType, names: Names) -> Iterator[tuple[Names, pa.DataType]]:
    """This type and those inside it, by their names in a Parquet schema; nothing inside a VARIANT."""
    yield names, kind
    if pa.types.is_struct(kind) and not _is_variant(kind):
        for field in kind:
            yield from _groups(field.type, (*names, field.name))
    elif schemas.is_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from _groups(kind.value_type, (*names, "list", "element"))
    elif pa.types.is_map(kind):
        yield from _groups(kind.item_type, (*names, "key_value", "value"))


def _is_variant(kind: pa.DataType) -> bool:
    """Whether a type is a shredding layout: metadata, in any form of binary, and value, typed_value or both."""
    if not pa.types.is_struct(kind) or kind.get_field_index("metadata") < 0:
        return False
    names = {field.name for field in kind}
    metadata = kind.field("metadata").type
    is_binary = pa.types.is_binary(metadata) or pa.types.is_large_binary(metadata) or pa.types.is_binary_view(metadata)
    return is_binary and len(names) > 1 and names <= {"metadata", "value", "typed_value"} and kind.num_fields == len(names)


def _is_shredded(kind: pa.DataType) -> bool:
    return bool(kind.get_field_index("typed_value") >= 0)


def _as_one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
