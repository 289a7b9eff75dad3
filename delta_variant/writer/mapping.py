"""Column mapping: the logical names that users write, and the physical names and field ids in files.

In: the schema of a table, in JSON as in the log. Out: the same schema with physical names, the mappings between both kinds
of names, and Parquet field ids. In both modes, `id` and `name`, data files have physical names and field ids, and partition
values and statistics use physical names (PROTOCOL.md, "Column Mapping", "Writer Requirements for Column Mapping"). Nested
ids (`delta.columnMapping.nested.ids`) are written if the schema has them.

Invariant: a schema without physical names is returned as it is, without ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from delta_variant.paths import ColumnPath, dotted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NAME = "delta.columnMapping.physicalName"
_ID = "delta.columnMapping.id"
_NESTED_IDS = "delta.columnMapping.nested.ids"
_STEPS = {"element": ("list", "element"), "key": ("key_value", "key"), "value": ("key_value", "value")}
_CHILDREN = {"elementType": _STEPS["element"], "keyType": _STEPS["key"], "valueType": _STEPS["value"]}
_FIELD_ID = b"PARQUET:field_id"


def physical_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A struct, in JSON, with the names that its files have, and no metadata."""
    physical = _physical(schema)
    assert isinstance(physical, dict)
    return physical


def _physical(kind: Any) -> Any:
    if not isinstance(kind, dict):
        return kind
    if kind["type"] != "struct":
        return {key: _physical(value) if key in _CHILDREN else value for key, value in kind.items()}
    fields = [{**f, "name": physical_name(f), "type": _physical(f["type"]), "metadata": {}} for f in kind["fields"]]
    return {**kind, "fields": fields}


def physical_name(field: Mapping[str, Any]) -> str:
    """What files call a field of a schema in JSON."""
    return str((field.get("metadata") or {}).get(_NAME, field["name"]))


def field_ids(schema: Mapping[str, Any]) -> dict[ColumnPath, int]:
    """The Parquet field id of every field that has one, by physical names."""
    ids = {}
    for _, path, field in _fields(schema):
        metadata = field.get("metadata") or {}
        if _ID in metadata:
            ids[path] = int(metadata[_ID])
        for nested, number in (metadata.get(_NESTED_IDS) or {}).items():
            steps = str(nested).removeprefix(path[-1] + ".").split(".")
            ids[path + tuple(name for step in steps for name in _STEPS[step])] = int(number)
    return ids


def physical_paths(schema: Mapping[str, Any]) -> dict[ColumnPath, ColumnPath]:
    """From logical to physical paths, of all columns and fields."""
    return {logical: physical for logical, physical, _ in _fields(schema)}


def logical_names(schema: Mapping[str, Any]) -> dict[str, str]:
    """From physical paths, as messages write them, to the logical ones, where the two differ; the longest first."""
    paths = {dotted(physical): dotted(logical) for logical, physical, _ in _fields(schema) if logical != physical}
    return dict(sorted(paths.items(), key=lambda pair: -len(pair[0])))


def _fields(
    kind: Any, logical: ColumnPath = (), physical: ColumnPath = ()
) -> Iterator[tuple[ColumnPath, ColumnPath, Mapping[str, Any]]]:
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        paths = (*logical, field["name"]), (*physical, physical_name(field))
        yield *paths, field
        yield from _fields(field["type"], *paths)
    for key, steps in _CHILDREN.items():
        yield from _fields(kind.get(key), (*logical, *steps), (*physical, *steps))


def with_field_ids(schema: pa.Schema, ids: Mapping[ColumnPath, int]) -> pa.Schema:
    """An Arrow schema whose fields carry their Parquet ids, for pyarrow's writer."""
    return pa.schema([_with_id(field, (field.name,), ids) for field in schema]) if ids else schema


def _with_id(field: pa.Field, path: ColumnPath, ids: Mapping[ColumnPath, int]) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_with_id(child, (*path, child.name), ids) for child in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(_with_id(kind.value_field, (*path, "list", "element"), ids))
    elif pa.types.is_map(kind):
        key, value = (_with_id(f, (*path, "key_value", f.name), ids) for f in (kind.key_field, kind.item_field))
        kind = pa.map_(key, value)
    field = field.with_type(kind)
    return field.with_metadata({_FIELD_ID: str(ids[path]).encode()}) if path in ids else field
