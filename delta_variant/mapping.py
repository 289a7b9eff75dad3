"""Column mapping: the logical names that users write, and the physical names and field ids in files.

In: the schema of a table, in JSON as in the log. Out: the same schema with physical names, the mappings between both kinds
of names, and Parquet field ids. In both modes, `id` and `name`, data files have physical names and field ids, and partition
values and statistics use physical names (PROTOCOL.md, "Column Mapping", "Writer Requirements for Column Mapping"). Nested
ids (`delta.columnMapping.nested.ids`) are written if the schema has them.

Invariant: a schema without physical names is returned as it is, without ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as T

from delta_variant import nested
from delta_variant.parquet.columns import FIELD_ID
from delta_variant.paths import ELEMENT, MAP_KEY, MAP_VALUE, ColumnPath, dotted

if TYPE_CHECKING:
    from delta_variant.features import TableFeatures

_NAME = "delta.columnMapping.physicalName"
_ID = "delta.columnMapping.id"
_NESTED_IDS = "delta.columnMapping.nested.ids"
_STEPS = {"element": ELEMENT, "key": MAP_KEY, "value": MAP_VALUE}
_CHILDREN = {"elementType": _STEPS["element"], "keyType": _STEPS["key"], "valueType": _STEPS["value"]}


def schemas(schema: Mapping[str, Any]) -> tuple[T.StructType, T.StructType]:
    """A table's schema, given in JSON, with its logical names and with its physical names."""
    return T.StructType.fromJson(dict(schema)), T.StructType.fromJson(_physical(schema))


def _physical(data_type: Any) -> Any:
    """A type in JSON with the physical names of its fields and without their metadata."""
    if not isinstance(data_type, dict):
        return data_type
    if data_type["type"] != "struct":
        return {key: _physical(value) if key in _CHILDREN else value for key, value in data_type.items()}
    fields = [{**f, "name": physical_name(f), "type": _physical(f["type"]), "metadata": {}} for f in data_type["fields"]]
    return {**data_type, "fields": fields}


def physical_name(field: Mapping[str, Any]) -> str:
    """The name in files of a field of a schema in JSON."""
    return str((field.get("metadata") or {}).get(_NAME, field["name"]))


def field_ids(schema: Mapping[str, Any]) -> dict[ColumnPath, int]:
    """The Parquet field id of every field that has one, by physical path."""
    ids = {}
    for _, path, field in _fields(schema):
        metadata = field.get("metadata") or {}
        if _ID in metadata:
            ids[path] = int(metadata[_ID])
        for inner, number in (metadata.get(_NESTED_IDS) or {}).items():
            steps = str(inner).removeprefix(path[-1] + ".").split(".")
            ids[path + tuple(name for step in steps for name in _STEPS[step])] = int(number)
    return ids


def ids_in_files(features: TableFeatures) -> Callable[[ColumnPath], tuple[int, ...]]:
    """Returns the field ids of the names that lead to a column, by its physical path; none unless files are read by id."""
    ids = field_ids(features.schema) if features.mapping == "id" else {}
    return lambda names: tuple(ids[names[: end + 1]] for end in range(len(names))) if ids else ()


def physical_paths(schema: Mapping[str, Any]) -> dict[ColumnPath, ColumnPath]:
    """The physical path of every column and field, by its logical path."""
    return {logical: physical for logical, physical, _ in _fields(schema)}


def logical_names(schema: Mapping[str, Any]) -> dict[str, str]:
    """Logical paths by physical ones, where the two differ, the longest first; both as messages write them: `s.w`."""
    paths = {dotted(physical): dotted(logical) for logical, physical, _ in _fields(schema) if logical != physical}
    return dict(sorted(paths.items(), key=lambda pair: -len(pair[0])))


def _fields(
    data_type: Any, logical: ColumnPath = (), physical: ColumnPath = ()
) -> Iterator[tuple[ColumnPath, ColumnPath, Mapping[str, Any]]]:
    """The fields of a type in JSON, at every level: logical path, physical path, and the field itself."""
    if not isinstance(data_type, dict):
        return
    for field in data_type.get("fields", ()):
        paths = (*logical, field["name"]), (*physical, physical_name(field))
        yield *paths, field
        yield from _fields(field["type"], *paths)
    for key, steps in _CHILDREN.items():
        yield from _fields(data_type.get(key), (*logical, *steps), (*physical, *steps))


def with_field_ids(schema: pa.Schema, ids: Mapping[ColumnPath, int]) -> pa.Schema:
    """An Arrow schema whose fields carry their Parquet ids, for pyarrow's writer."""
    return pa.schema([_with_id(field, (field.name,), ids) for field in schema]) if ids else schema


def _with_id(field: pa.Field, path: ColumnPath, ids: Mapping[ColumnPath, int]) -> pa.Field:
    inside = [_with_id(child, own, ids) for own, child in nested.children(field.type, path)]
    field = field.with_type(nested.with_fields(field.type, inside))
    return field.with_metadata({FIELD_ID: str(ids[path]).encode()}) if path in ids else field
