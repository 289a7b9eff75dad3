"""The steps by which a shredded column is rebuilt, as `kernels.rebuild` reads them, and the forms of columns that it takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from delta_variant import types as t
from delta_variant.buffers import Int32s, Int64s, as_binary, bitmap, buffers_of, flags_of
from delta_variant.kernels import rebuild as k
from delta_variant.shredding.plan import Node


@dataclass(frozen=True, eq=False)
class Steps:
    """The nodes of a column, each before its children, with what the kernels need to know of them: see `kernels.rebuild`."""

    nodes: tuple[Node, ...]
    steps: Int64s
    order: Int64s
    level_rows: Int64s
    child_of_name: Int32s
    numbers: Int64s
    most: int
    """The largest number of fields of an object."""


def steps_of(root: Node, storage: pa.StructType) -> Steps:
    """The steps for a column in plain form."""
    builder = _Builder()
    builder.add(root, storage, (0, 0), (builder.level(), 0), required=True)
    lines, order, rows = (np.array(table, np.int64) for table in (builder.lines, builder.order, builder.level_rows))
    names, numbers = np.array(builder.names, np.int32), np.array(builder.numbers, np.int64)
    most = max(len(node.children) for node in builder.nodes)
    return Steps(tuple(builder.nodes), lines, order, rows, names, numbers, most)


class _Builder:
    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.lines: list[list[int]] = []
        self.order: list[int] = []
        self.level_rows: list[int] = []
        self.names: list[int] = []
        self.numbers: list[int] = []

    def level(self) -> int:
        """A new level, of one row."""
        self.level_rows.append(1)
        return len(self.level_rows) - 1

    def add(self, node: Node, group: pa.StructType, above: tuple[int, int], place: tuple[int, int], *, required: bool) -> None:
        """Adds a node and those below it. above: `k.PARENT` and `k.INDEX`; place: `k.LEVEL` and `k.ROW`."""
        number, line = len(self.lines), [0] * (k.REQUIRED + 1)
        self.nodes.append(node)
        self.lines.append(line)
        self.order.append(2 * number)
        value, typed = (group.get_field_index(name) for name in ("value", "typed_value"))
        line[k.PARENT], line[k.INDEX] = above
        line[k.LEVEL], line[k.ROW] = place
        line[k.ACTION], line[k.VALUE], line[k.TYPED], line[k.REQUIRED] = k.RESIDUAL, value, typed, required
        if typed >= 0:
            self._typed(number, line, node, group.field(typed).type)
        self.order.append(2 * number + 1)

    def _typed(self, number: int, line: list[int], node: Node, kind: pa.DataType) -> None:
        if node.primitive is not None:
            self._leaf(line, node.primitive, kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind)
        elif pa.types.is_struct(kind):
            level = line[k.LEVEL]
            first, count = self.level_rows[level], len(node.children)
            line[k.ACTION], line[k.FIRST], line[k.COUNT] = k.OBJECT, first, count
            line[k.NAMES], line[k.NUMBERS] = len(self.names), len(self.numbers)
            self.names += node.child_of_name.tolist()
            self.numbers += node.name_numbers.tolist()
            self.level_rows[level] += count
            for row, i in enumerate(node.by_name, first):
                self.add(node.children[i], kind.field(i).type, (number, i), (level, row), required=False)
        else:
            line[k.ACTION], line[k.FIRST] = k.LIST, self.level()
            self.add(node.children[0], kind.value_type, (number, 0), (line[k.FIRST], 0), required=True)

    @staticmethod
    def _leaf(line: list[int], primitive: t.Primitive, kind: pa.DataType) -> None:
        line[k.KIND], line[k.SCALE] = primitive.id, -1
        if primitive.size == t.VARIABLE:
            line[k.ACTION] = k.TEXTS
        elif primitive.id == t.TRUE:
            line[k.ACTION] = k.BOOLEANS
        else:
            line[k.ACTION], line[k.SIZE], line[k.STRIDE] = k.FIXED, primitive.size, kind.bit_width // 8
            if primitive.id in (t.DECIMAL4, t.DECIMAL8, t.DECIMAL16):
                line[k.SIZE], line[k.SCALE] = primitive.size - 1, kind.scale


def is_plain(group: pa.DataType) -> bool:
    """Whether a group has the forms that `kernels.rebuild` takes: binary, string and list, not their large and other forms."""
    for column in group:
        kind = column.type
        if column.name == "typed_value":
            primitive = t.of_arrow(kind)
            if pa.types.is_struct(kind):
                plain = all(is_plain(field.type) for field in kind)
            elif primitive is None:
                plain = pa.types.is_list(kind) and is_plain(kind.value_type)
            else:
                plain = primitive.size != t.VARIABLE or kind == primitive.arrow
        else:
            plain = column.name != "value" or kind == pa.binary()
        if not plain:
            return False
    return True


def plain(group: pa.StructArray) -> pa.StructArray:
    """A group with `value` and typed_value in plain form, without columns whose names begin with an underscore."""
    children = {}
    for i, field in enumerate(group.type):
        if field.name == "value":
            children[field.name] = as_binary(group.field(i))
        elif field.name == "typed_value":
            children[field.name] = _typed(group.field(i))
        elif field.name == "metadata":
            children[field.name] = group.field(i)
    return _struct(group, list(children), list(children.values()))


def _typed(array: pa.Array) -> pa.Array:
    kind, primitive = array.type, t.of_arrow(array.type)
    if pa.types.is_struct(kind):
        return _struct(array, [field.name for field in kind], [plain(array.field(i)) for i in range(kind.num_fields)])
    if primitive is not None:
        return array.cast(primitive.arrow) if primitive.size == t.VARIABLE and kind != primitive.arrow else array
    if not pa.types.is_list(kind):
        array = array.cast(pa.list_(kind.value_field))
    offsets, _ = buffers_of(array)
    elements = plain(array.values[int(offsets[0]) : int(offsets[-1])])
    valid = flags_of(array)
    buffers = [bitmap(valid) if len(valid) else None, pa.py_buffer(offsets - offsets[0])]
    return pa.Array.from_buffers(pa.list_(elements.type), len(array), buffers, children=[elements])


def _struct(array: pa.StructArray, names: list[str], children: list[pa.Array]) -> pa.StructArray:
    """A struct of these children that is null where another is."""
    kind, valid = pa.struct([(name, child.type) for name, child in zip(names, children, strict=True)]), flags_of(array)
    return pa.Array.from_buffers(kind, len(array), [bitmap(valid) if len(valid) else None], children=children)
