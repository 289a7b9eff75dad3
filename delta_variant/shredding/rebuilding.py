"""The steps that rebuild a shredded column, as `kernels.rebuild` reads them, and the forms of columns that it takes."""

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
    """The steps for a column that has the forms that `kernels.rebuild` takes."""
    builder = _Builder()
    builder.add(root, storage, (0, 0), (builder.level(), 0), required=True)
    lines, order, rows = (np.array(table, np.int64) for table in (builder.lines, builder.order, builder.level_rows))
    names, numbers = np.concatenate([np.empty(0, np.int32), *builder.names]), np.array(builder.numbers, np.int64)
    most = max(len(node.children) for node in builder.nodes)
    return Steps(tuple(builder.nodes), lines, order, rows, names, numbers, most)


class _Builder:
    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.lines: list[list[int]] = []
        self.order: list[int] = []
        self.level_rows: list[int] = []
        self.names: list[Int32s] = []
        self.name_count = 0
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
            line[k.NAMES], line[k.NUMBERS] = self.name_count, len(self.numbers)
            self.names.append(node.child_of_name)
            self.name_count += len(node.child_of_name)
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


@dataclass(frozen=True, eq=False)
class Form:
    """How an array is brought into the forms that `kernels.rebuild` takes: binary, string and list, not their large and other
    forms.

    Types are kept here, since making a type takes longer than making a small array.
    """

    kind: pa.DataType
    children: tuple[tuple[int, Form | None], ...]  # of a struct, those that are kept; elements of a list; None: has these forms


def form_of(group: pa.StructType) -> Form | None:
    """The form of a group. None: it has these forms as it is.

    Columns whose names begin with an underscore are left out, and metadata in another form than binary, which is read before:
    pyarrow 22 ends the process when it exports views that have no buffer of long values.
    """
    children: dict[int, Form | None] = {}
    for i, field in enumerate(group):
        if field.name == "typed_value":
            children[i] = _form_of_typed(field.type)
        elif field.name == "value":
            children[i] = Form(pa.binary(), ()) if field.type != pa.binary() else None
        elif field.name == "metadata" and field.type == pa.binary():
            children[i] = None
    return _form_of_struct(group, children)


def _form_of_typed(kind: pa.DataType) -> Form | None:
    primitive = t.of_arrow(kind)
    if pa.types.is_struct(kind):
        return _form_of_struct(kind, {i: form_of(field.type) for i, field in enumerate(kind)})
    if primitive is not None:
        return Form(primitive.arrow, ()) if primitive.size == t.VARIABLE and kind != primitive.arrow else None
    inner = form_of(kind.value_type)
    if inner is None and pa.types.is_list(kind):
        return None
    return Form(pa.list_(kind.value_type if inner is None else inner.kind), ((0, inner),))


def _form_of_struct(kind: pa.StructType, children: dict[int, Form | None]) -> Form | None:
    if len(children) == kind.num_fields and not any(children.values()):
        return None
    fields = [pa.field(kind.field(i).name, form.kind if form else kind.field(i).type) for i, form in children.items()]
    return Form(pa.struct(fields), tuple(children.items()))


def formed(array: pa.Array, form: Form | None) -> pa.Array:
    """The array in a form."""
    if form is None:
        return array
    kind, count, buffers = form.kind, len(array), [None]
    if not form.children:
        if array.null_count == count:
            return pa.nulls(count, kind)
        return as_binary(array) if kind == pa.binary() else array.cast(kind)
    if array.null_count:
        buffers = [array.buffers()[0] if array.offset == 0 else bitmap(flags_of(array))]
    if pa.types.is_struct(kind):
        children = [formed(array.field(i), inner) for i, inner in form.children]
    else:
        if not pa.types.is_list(array.type):
            array = array.cast(pa.list_(array.type.value_field))
        offsets, _ = buffers_of(array)
        children = [formed(array.values[int(offsets[0]) : int(offsets[-1])], form.children[0][1])]
        buffers.append(pa.py_buffer(offsets - offsets[0]))
    return pa.Array.from_buffers(kind, count, buffers, children=children)
