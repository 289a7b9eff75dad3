"""The shredding schemas that are given for VARIANT columns, and the paths that get bounds first.

In: the argument `shred=`, and the table's properties. Out: shredding schemas by column. The argument goes before the property,
and the property before inference (`schema.of_files`). Only VARIANT columns at the top and in structs are shredded; those in
arrays and maps stay plain.

The property `delta_variant.shredding.<column>` holds a schema as DDL text. `delta_variant.bounds.<column>` holds paths in
the syntax of `variant_get`, separated by commas. Columns are written as in SQL (`s.w`, odd names in backquotes).
Properties of dropped or non-VARIANT columns are ignored.

Invariant: Spark can read every schema that this module returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from delta_variant import schema as shredding_schema
from delta_variant.errors import DeltaVariantError, InvalidPathError, InvalidSchemaError, UnsupportedFeatureError
from delta_variant.paths import ColumnPath, dotted, listed, parse_column, parse_column_path, parse_variant_path, rooted
from delta_variant.schema.of_files import is_readable
from delta_variant.writer.clustering import CLUSTER_BY_PROPERTY

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Shred = Literal["auto", False]

SHREDDING = "delta_variant.shredding."
BOUNDS = "delta_variant.bounds."


def given(
    shred: Shred | Mapping[str, str | pa.DataType], schema: StructType, properties: Mapping[str, str]
) -> dict[ColumnPath, pa.DataType]:
    """The shredding schemas that are given by `shred` or stored with the table, by column as the schema spells it.

    They do not depend on rows. Empty if `shred` is False. Raises InvalidSchemaError for text that is not a shredding schema and
    for a column that is not VARIANT, UnsupportedFeatureError for a shredding schema that Spark cannot read.
    """
    if shred is False:
        return {}
    schemas = {
        path: _checked(text, path, f"table property {key}") for path, key, text in _stored(schema, properties, SHREDDING)
    }
    if shred == "auto":
        return schemas
    if not hasattr(shred, "items"):
        raise InvalidSchemaError(f"shred={shred!r} must be 'auto', False, or a mapping from VARIANT columns to their schemas")
    columns = _columns(schema)
    for name, wanted in shred.items():
        path, type_name = columns.get(_folded(parse_column(name)), ((), ""))
        if type_name != "variant":
            variants = ", ".join(dotted(path) for path, kind in columns.values() if kind == "variant") or "none"
            found = f"{name} is {type_name.upper()}" if type_name else f"there is no column {name}"
            raise InvalidSchemaError(f"shred: {found}; the VARIANT columns that can be shredded are {variants}")
        schemas[path] = _checked(wanted, path, "shred")
    return schemas


def first_bounds(
    schema: StructType, properties: Mapping[str, str], cluster_by: Sequence[str] = ()
) -> dict[ColumnPath, tuple[ColumnPath, ...]]:
    """The paths that get bounds first, by VARIANT column: those of `cluster_by`, then those of the table properties.

    Each path is given as its keys. A path of `cluster_by` that leads into an array is left out; one of the property for bounds
    raises InvalidPathError, as does invalid text.
    """
    columns = _columns(schema)
    chosen: dict[ColumnPath, tuple[ColumnPath, ...]] = {}
    for text in (*cluster_by, *listed(properties.get(CLUSTER_BY_PROPERTY, ""))):
        column, variant_path = parse_column_path(text)
        path, type_name = columns.get(_folded(column), ((), ""))
        if type_name == "variant" and variant_path is not None:
            steps = parse_variant_path(variant_path)
            if all(isinstance(step, str) for step in steps):
                chosen[path] = (*chosen.get(path, ()), tuple(map(str, steps)))
    for path, keys in paths_of(schema, properties, BOUNDS).items():
        chosen[path] = tuple(dict.fromkeys((*chosen.get(path, ()), *keys)))
    return chosen


def paths_of(schema: StructType, properties: Mapping[str, str], prefix: str) -> dict[ColumnPath, tuple[ColumnPath, ...]]:
    """The keys of the paths that the properties `<prefix><column>` list, by VARIANT column.

    Raises InvalidPathError for text that is not a path, and for a path that leads into an array.
    """
    found: dict[ColumnPath, tuple[ColumnPath, ...]] = {}
    for path, key, text in _stored(schema, properties, prefix):
        keys = [_keys(item, key) for item in listed(text)]
        found[path] = tuple(dict.fromkeys((*found.get(path, ()), *keys)))
    return found


def _stored(schema: StructType, properties: Mapping[str, str], prefix: str) -> Iterator[tuple[ColumnPath, str, str]]:
    """The properties `<prefix><column>`: the VARIANT column, the name and the text of each."""
    columns = _columns(schema)
    for key, text in properties.items():
        if key.startswith(prefix):
            path, type_name = columns.get(_folded(parse_column(key[len(prefix) :])), ((), ""))
            if type_name == "variant":
                yield path, key, text


def _columns(schema: StructType) -> dict[ColumnPath, tuple[ColumnPath, str]]:
    """The columns and fields of a schema, with the names of their types, by their paths in lower case."""
    return {_folded(path): (path, type_name) for path, type_name in in_structs(schema)}


def _keys(text: str, key: str) -> ColumnPath:
    try:
        steps = parse_variant_path(rooted(text))
    except InvalidPathError as error:
        raise InvalidPathError(f"table property {key}: {error}") from error
    keys = tuple(step for step in steps if isinstance(step, str))
    if len(keys) < len(steps):
        raise InvalidPathError(f"table property {key}: {text} leads into an array, and only paths through objects count here")
    return keys


def _checked(wanted: str | pa.DataType, path: ColumnPath, origin: str) -> pa.DataType:
    if not isinstance(wanted, str | pa.DataType):
        raise InvalidSchemaError(f"{origin}: the schema of {dotted(path)} is an Arrow type or a text, not {wanted!r}")
    try:
        schema = shredding_schema.parse(wanted) if isinstance(wanted, str) else wanted
        shredding_schema.check(schema)
    except DeltaVariantError as error:
        raise type(error)(f"{origin}: column {dotted(path)}: {error}") from error
    leaf = next(_unreadable(schema, dotted(path)), None)
    if leaf is not None:
        raise UnsupportedFeatureError(f"{origin}: {leaf}, which Spark cannot read in a Variant: leave the field out")
    return schema


def _unreadable(schema: pa.DataType, path: str) -> Iterator[str]:
    """The leaves that Spark 4.2 fails to read, with their types."""
    if pa.types.is_struct(schema):
        for field in schema:
            yield from _unreadable(field.type, f"{path}.{field.name}")
    elif shredding_schema.is_list(schema):
        yield from _unreadable(schema.value_type, f"{path}[*]")
    elif not pa.types.is_null(schema) and not is_readable(schema):
        yield f"{path} is {schema}"


def in_structs(schema: Any, parents: ColumnPath = ()) -> Iterator[tuple[ColumnPath, str]]:
    """All columns and fields of structs, with the names of their types."""
    for field in schema.fields:
        path = (*parents, field.name)
        yield path, field.dataType.simpleString()
        if hasattr(field.dataType, "fields"):
            yield from in_structs(field.dataType, path)


def _folded(path: ColumnPath) -> ColumnPath:
    return tuple(name.lower() for name in path)
