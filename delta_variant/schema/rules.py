"""Which Arrow types are shredding schemas."""

from __future__ import annotations

import pyarrow as pa

from delta_variant import types as t
from delta_variant.errors import InvalidSchemaError


def check(schema: pa.DataType, path: str = "$") -> None:
    """Raises InvalidSchemaError, by path, where the type has no shredded form."""
    if pa.types.is_null(schema):
        return
    if pa.types.is_struct(schema):
        names = [field.name for field in schema]
        if not names:
            raise InvalidSchemaError(f"shredding schema at {path}: an object needs at least one field")
        if len(set(names)) < len(names):
            raise InvalidSchemaError(f"shredding schema at {path}: two fields have the same name")
        for field in schema:
            check(field.type, f"{path}.{field.name}")
    elif is_list(schema):
        check(schema.value_type, f"{path}[*]")
    elif t.of_arrow(schema) is None:
        raise InvalidSchemaError(f"shredding schema at {path}: Variant has no type for {schema}")


def is_list(schema: pa.DataType) -> bool:
    """Any of Arrow's forms of a list without a fixed size."""
    return isinstance(schema, (pa.ListType, pa.LargeListType, pa.ListViewType, pa.LargeListViewType))
