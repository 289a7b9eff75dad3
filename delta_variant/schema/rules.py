"""Which Arrow types are shredding schemas."""

from __future__ import annotations

import pyarrow as pa

from delta_variant import types as t
from delta_variant.errors import InvalidSchemaError


def check(schema: pa.DataType, path: str = "$") -> None:
    """Raises InvalidSchemaError, with the path, if a type cannot be a shredding schema.

    >>> import pyarrow as pa, delta_variant as dv
    >>> dv.schema.check(pa.struct([("id", pa.uint8())]))
    Traceback (most recent call last):
    delta_variant.errors.InvalidSchemaError: shredding schema at $.id: Variant has no type for uint8
    """
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
    """Whether a type is any of Arrow's forms of a list without a fixed size.

    >>> import pyarrow as pa, delta_variant as dv
    >>> dv.schema.is_list(pa.large_list(pa.int8())), dv.schema.is_list(pa.list_(pa.int8(), 2))
    (True, False)
    """
    return isinstance(schema, (pa.ListType, pa.LargeListType, pa.ListViewType, pa.LargeListViewType))
