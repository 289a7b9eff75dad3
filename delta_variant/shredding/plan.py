"""The plan of a shredding schema: the Arrow types of its columns, and its nodes with what the kernels need to know of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from delta_variant import schema as schemas
from delta_variant import types as t
from delta_variant.binary.encoder import field_order
from delta_variant.buffers import Int32s, Int64s, NameTable, by_type

UNSHREDDED = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])


def storage_type(as_type: pa.DataType | None) -> pa.StructType:
    """The Arrow type of a VARIANT column that is shredded to a schema; for None, of one that is not shredded.

    >>> import pyarrow as pa, delta_variant as dv
    >>> print(dv.shredding.storage_type(pa.int64()))
    struct<metadata: binary not null, value: binary, typed_value: int64>
    """
    if as_type is None:
        return UNSHREDDED
    return pa.struct([pa.field("metadata", pa.binary(), False), *group_type(as_type)])


def group_type(schema: pa.DataType) -> pa.StructType:
    """The type of a field or an element: struct<value, typed_value>."""
    value = pa.field("value", pa.binary())
    return pa.struct([value] if pa.types.is_null(schema) else [value, pa.field("typed_value", typed_type(schema))])


def typed_type(schema: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(schema):
        return pa.struct([pa.field(f.name, group_type(f.type), False) for f in schema])
    if schemas.is_list(schema):
        return pa.list_(pa.field("element", group_type(schema.value_type), False))
    primitive = t.of_arrow(schema)
    assert primitive is not None
    return primitive.arrow or pa.decimal128(schema.precision, schema.scale)


@dataclass(frozen=True, eq=False)
class Node:
    """One node of a shredding schema, with what the kernels need to know of it."""

    path: str
    depth: int  # how many typed containers are around it
    schema: pa.DataType
    group: pa.StructType  # struct<value, typed_value>
    typed: pa.DataType | None  # of typed_value; kept here, since making a type takes longer than making a small column
    primitive: t.Primitive | None
    children: tuple[Node, ...]
    child_of_name: Int32s  # number of a name → child; -1 if this object has no field of that name
    by_name: tuple[int, ...]  # the children in the order of fields
    name_numbers: Int64s  # of the children, in that order


@dataclass(frozen=True, eq=False)
class Plan:
    """A shredding schema as the kernels need it: its nodes, and all names in it, numbered."""

    root: Node
    nodes: int
    storage: pa.StructType
    numbers: dict[str, int]
    names: NameTable


@by_type
def plan(schema: pa.DataType) -> Plan:
    """The plan of a shredding schema. Raises InvalidSchemaError."""
    schemas.check(schema)
    numbers: dict[str, int] = {}
    _number_names(schema, numbers)
    root = _node(schema, "$", 0, numbers)
    return Plan(root, _count(root), storage_type(schema), numbers, NameTable.of(numbers))


def _count(node: Node) -> int:
    return 1 + sum(map(_count, node.children))


def _number_names(schema: pa.DataType, numbers: dict[str, int]) -> None:
    if pa.types.is_struct(schema):
        for field in schema:
            numbers.setdefault(field.name, len(numbers))
            _number_names(field.type, numbers)
    elif schemas.is_list(schema):
        _number_names(schema.value_type, numbers)


def _node(schema: pa.DataType, path: str, depth: int, numbers: dict[str, int]) -> Node:
    children: tuple[Node, ...] = ()
    child_of_name = np.full(len(numbers) + 1, -1, np.int32)
    names: list[str] = []
    if pa.types.is_struct(schema):
        children = tuple(_node(f.type, f"{path}.{f.name}", depth + 1, numbers) for f in schema)
        names = [field.name for field in schema]
        for i, name in enumerate(names):
            child_of_name[numbers[name]] = i
    elif schemas.is_list(schema):
        children = (_node(schema.value_type, f"{path}[*]", depth + 1, numbers),)
    typed = None if pa.types.is_null(schema) else typed_type(schema)
    by_name = tuple(sorted(range(len(names)), key=lambda i: field_order(names[i].encode())))
    name_numbers = np.array([numbers[names[i]] for i in by_name], np.int64)
    about = (group_type(schema), typed, t.of_arrow(schema))
    return Node(path, depth, schema, *about, children, child_of_name, by_name, name_numbers)
