"""unshred: the columns of a shredding schema → Variants.

A Variant stores the sizes of its children before their bytes, so its bytes can only be written when the sizes of
everything inside are known. Rebuilding a chunk of rows therefore takes two passes over the nodes of the shredding schema,
and each pass is one kernel per node, over all rows of the chunk:

1. `measure` goes from the leaves to the root. Each node computes the size in bytes of every one of its slots from those of its
   children. A slot is one row for an ordinary field, and one element inside a list; the size is 0 where the slot is
   missing. This pass also finds all errors, so that the second one cannot fail.
2. `write` goes from the root to the leaves. Each node gets the position of each of its slots in the output, writes the
   slot's header, and passes the positions of the children on. Positions come from the sizes of the first pass.

Between the passes these hold: a slot with size 0 gets no position (-1); the sizes of an object's slot are those of its
typed fields and of the fields in `value` together, each counted once; and what is in `value` was validated to the last
leaf before it is copied.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from delta_variant import schema as schemas
from delta_variant import types as t
from delta_variant.buffers import (
    NO_FLAGS,
    PADDING,
    Bytes,
    Dictionaries,
    Faults,
    Flags,
    Int32s,
    Int64s,
    as_binary,
    binary_array,
    bitmap,
    both,
    buffers_of,
    by_type,
    check_utf8,
    empty,
    flags_of,
    storage_of,
)
from delta_variant.errors import InvalidLayoutError
from delta_variant.kernels import unshred as k
from delta_variant.kernels.memory import NO_KEY
from delta_variant.kernels.validate import validate as walk
from delta_variant.shredding.names import complete
from delta_variant.shredding.plan import UNSHREDDED, Node, Plan, plan

CHUNK_ROWS = 1 << 14
"""The limit for rows that are rebuilt at once."""

CHUNK_SLOTS = 1 << 20
"""The limit for the slots of these rows in all nodes: with 256 leaves, 4,080 rows take 17 ns a leaf, 2,040 rows 18 ns."""

MAX_BYTES = np.iinfo(np.int32).max
TOO_LARGE = "the Variants of one array take more than 2 GiB: pass smaller arrays"


def unshred(array: pa.Array) -> pa.StructArray:
    """Rebuilds the Variants of a shredded column.

    array: struct<metadata, value?, typed_value?>, children in any order and any of Arrow's storage forms, null where the
    Variant is SQL NULL. Returns struct<metadata: binary not null, value: binary not null>; typed values have exactly the
    type of typed_value. Variants of a column that is not shredded keep their bytes. Raises InvalidLayoutError for an invalid
    layout or invalid data, MalformedVariantError for malformed Variant bytes.

    >>> import delta_variant as dv
    >>> events = dv.arrow.VariantArray.from_pylist([{"id": 1}, {"id": "one"}])
    >>> shredded = dv.shredding.shred(events, "id bigint")
    >>> [dv.binary.decode(**row) for row in dv.shredding.unshred(shredded).to_pylist()]
    [{'id': 1}, {'id': 'one'}]
    """
    storage, _ = storage_of(array, "unshred")
    schema = _plan_of(storage.type)
    column, valid, values = storage.field("metadata"), flags_of(storage), _Values(len(storage))
    rows = max(1, min(CHUNK_ROWS, CHUNK_SLOTS // schema.nodes))
    parts, replaced = [], column.type != pa.binary()
    for start in range(0, len(storage), rows):
        chunk = _Chunk(schema, storage[start : start + rows], valid[start : start + rows], start)
        parts.append(chunk.unshred(values))
        replaced |= parts[-1] is not chunk.metadata
    if replaced:
        if sum(part.nbytes for part in parts) > MAX_BYTES:
            raise InvalidLayoutError(TOO_LARGE)
        column = pa.concat_arrays(parts) if parts else pa.array([], pa.binary())
    mask = bitmap(valid) if len(valid) else None
    return pa.Array.from_buffers(UNSHREDDED, len(storage), [mask], children=[column, values.array()])


class _Values:
    """The Variants of all rows, which are added chunk by chunk."""

    def __init__(self, rows: int) -> None:
        self.rows, self.done, self.end = rows, 0, 0
        self.offsets, self.data = empty(rows + 1, np.int32), empty(PADDING, np.uint8)
        self.offsets[0] = 0

    def add(self, size: Int64s) -> Int64s:
        """Makes room for the Variants of the next rows. Returns their positions; -1 where the size is 0."""
        to, before = empty(len(size), np.int64), self.end
        self.end = k.place(size, before, self.offsets[self.done :], to)
        if self.end > MAX_BYTES:
            raise InvalidLayoutError(TOO_LARGE)
        self.done += len(size)
        if self.end + PADDING > len(self.data):
            expected = self.end * self.rows // self.done
            if self.done < self.rows:
                expected += expected // 16
            data = empty(min(expected, MAX_BYTES) + PADDING, np.uint8)
            data[:before] = self.data[:before]
            self.data = data
        return to

    def array(self) -> pa.Array:
        return binary_array(self.offsets, self.data[: self.end + PADDING], NO_FLAGS, pa.binary())


@by_type
def _plan_of(storage: pa.DataType) -> Plan:
    return plan(schema_of(storage))


def schema_of(storage: pa.DataType) -> pa.DataType:
    """The shredding schema of a VARIANT column, from its storage type; pa.null(): not shredded. Raises InvalidLayoutError.

    >>> import delta_variant as dv
    >>> print(dv.shredding.schema_of(dv.shredding.storage_type(dv.schema.parse("id bigint"))))
    struct<id: int64>
    """
    if not pa.types.is_struct(storage) or storage.get_field_index("metadata") < 0:
        raise InvalidLayoutError(
            f"at $: a VARIANT column is a struct of metadata with value, typed_value or both, not {storage}"
        )
    return _schema_of_group(storage, "$", {"metadata", "value", "typed_value"})


def _schema_of_group(group: pa.DataType, path: str, allowed: set[str]) -> pa.DataType:
    fields = [field for field in group if not field.name.startswith("_")] if pa.types.is_struct(group) else []
    names = {field.name for field in fields}
    if len(names) < len(fields) or not names <= allowed or not names & {"value", "typed_value"}:
        raise InvalidLayoutError(f"at {path}: a group of value and typed_value expected, not {group}")
    for name in names & {"metadata", "value"}:
        if not t.is_binary(group.field(name).type):
            raise InvalidLayoutError(f"at {path}: {name} is binary, not {group.field(name).type}")
    if "typed_value" not in names:
        return pa.null()
    typed = group.field("typed_value").type
    if pa.types.is_struct(typed):
        found = [(f.name, _schema_of_group(f.type, f"{path}.{f.name}", {"value", "typed_value"})) for f in typed]
        if not found or len({name for name, _ in found}) < len(found):
            raise InvalidLayoutError(f"at {path}: an object needs fields, each once, not {typed}")
        return pa.struct(found)
    if schemas.is_list(typed):
        return pa.list_(_schema_of_group(typed.value_type, f"{path}[*]", {"value", "typed_value"}))
    if t.of_arrow(typed) is None:
        raise InvalidLayoutError(f"at {path}: Variant has no type for a typed_value of {typed}")
    return typed


class _Chunk:
    """Rows that are rebuilt at once."""

    def __init__(self, schema: Plan, storage: pa.StructArray, valid: Flags, first_row: int) -> None:
        self.plan, self.storage, self.valid, self.faults = schema, storage, valid, Faults(first_row)
        self.metadata = as_binary(storage.field("metadata"))
        rows = len(storage)
        at = self.valid.astype(np.int64) - 1 if len(self.valid) else np.zeros(rows, np.int64)
        self.dictionary = empty(rows, np.int32)
        self.keys = Dictionaries.read(self.metadata, at, self.dictionary, self.faults)
        self.order = empty(len(self.keys.key_at), np.int64)
        self.names = self.keys.look_up(schema.names)
        self.id_of_name = np.full((len(self.keys.start) - 1, len(self.plan.numbers)), -1, np.int64)
        k.keys_of_names(self.names, self.keys.start, self.id_of_name)

    def unshred(self, values: _Values) -> pa.Array:
        """Adds the Variants to `values` and returns their metadata, which is complete."""
        size = empty(len(self.storage), np.int64)
        root = _group(self, self.plan.root, self.storage, self.dictionary, NO_FLAGS, required=True)
        try:
            root.measure(self.valid, size)
        except InvalidLayoutError:
            if self.faults.report[0] != NO_KEY:
                raise
            return _Chunk(self.plan, complete(self.storage), self.valid, self.faults.first_row).unshred(values)
        root.write(values.add(size), values.data)
        return self.metadata


_Residuals: TypeAlias = tuple[Int32s, Bytes, Flags]
NO_RESIDUALS: _Residuals = (np.empty(0, np.int32), np.empty(0, np.uint8), NO_FLAGS)


class _Column(Protocol):
    """What holds the Variants of one node."""

    def measure(self, live: Flags, size: Int64s) -> None:
        """Sets the size in bytes of every slot; 0 if it is missing or not live, which means that it is below a missing slot."""

    def write(self, to: Int64s, out: Bytes) -> None:
        """Writes every slot to its position; -1 if it has none."""


def _group(
    chunk: _Chunk, node: Node, columns: pa.StructArray, dictionary: Int32s, present: Flags, *, required: bool = False
) -> _Column:
    """The Variants that the columns `value` and `typed_value` of a group hold together.

    present: flags of the slots where the group is not null. required: whether a missing Variant becomes a Variant null.
    """
    kind, residuals, typed = columns.type, NO_RESIDUALS, None
    index = kind.get_field_index("value")
    if index >= 0 and (value := columns.field(index)).null_count < len(value):
        value = as_binary(value)
        residuals = (*buffers_of(value), flags_of(value))
    index = kind.get_field_index("typed_value")
    if index >= 0:
        typed = _typed(chunk, node, columns.field(index), dictionary, residuals)
        if residuals is NO_RESIDUALS and len(present) == 0 and not required:
            return typed
    return _Group(chunk, node, dictionary, present, required, residuals, typed)


def _typed(chunk: _Chunk, node: Node, array: pa.Array, dictionary: Int32s, residuals: _Residuals) -> _Column:
    primitive = node.primitive
    if primitive is not None:
        return _Texts(primitive, array, node.path) if primitive.size == t.VARIABLE else _Fixed(primitive, array)
    if pa.types.is_struct(array.type):
        return _Object(chunk, node, array, dictionary, residuals)
    return _List(chunk, node, array, dictionary)


class _Group:
    """A group with Variants in `value`, with nulls, or with missing Variants that become Variant nulls."""

    def __init__(
        self,
        chunk: _Chunk,
        node: Node,
        dictionary: Int32s,
        present: Flags,
        required: bool,
        residuals: _Residuals,
        typed: _Column | None,
    ) -> None:
        self.chunk, self.node, self.dictionary, self.present, self.required = chunk, node, dictionary, present, required
        self.offsets, self.data, self.value_valid = residuals
        self.has_value, self.typed = residuals is not NO_RESIDUALS, typed

    def measure(self, live: Flags, size: Int64s) -> None:
        required, live, faults = live, both(live, self.present), self.chunk.faults
        if self.has_value:
            self._validate(both(live, self.value_valid))
        if self.typed is not None:
            self.typed.measure(live, size)
        else:
            size.fill(0)
        if self.has_value:
            alone = live
            if isinstance(self.typed, _Object):  # where typed_value is an object, its size includes its residual in `value`
                alone = both(live, (size == 0).view(np.uint8))
            faults.check(k.size_values(self.offsets, self.value_valid, alone, size, faults.report), self.node.path)
        if self.required:
            self.missing = both(required, (size == 0).view(np.uint8))
            size += self.missing

    def _validate(self, live: Flags) -> None:
        """Validates what is in `value` to the last leaf: it is copied, and nothing else looks inside it."""
        at = self.offsets[:-1].astype(np.int64)
        if len(live):
            at[live == 0] = -1
        limit, keys, faults = self.offsets[1:].astype(np.int64), self.chunk.keys, self.chunk.faults
        faults.check(walk(self.data, at, limit, self.dictionary, keys.start, *keys.names, 0, faults.report), self.node.path)

    def write(self, to: Int64s, out: Bytes) -> None:
        every = to
        if self.required and len(self.present):  # a list element that is null has a Variant null, whatever its children hold
            to = np.where(self.present, to, -1)
        if self.typed is not None:
            self.typed.write(to, out)
        if self.has_value:
            alone = to
            if isinstance(self.typed, _Object):
                alone = np.where(self.typed.valid, -1, to) if len(self.typed.valid) else np.full_like(to, -1)
            k.write_values(self.offsets, self.data, self.value_valid, alone, out)
        if self.required:
            k.write_nulls(self.missing, every, out)


class _Fixed:
    """typed_value of a primitive of fixed size."""

    def __init__(self, primitive: t.Primitive, array: pa.Array) -> None:
        self.primitive, self.array, self.valid = primitive, array, flags_of(array)

    def measure(self, live: Flags, size: Int64s) -> None:
        alive, one = both(live, self.valid), 1 + self.primitive.size
        if len(alive):
            np.multiply(alive, one, out=size)
        else:
            size.fill(one)

    def write(self, to: Int64s, out: Bytes) -> None:
        array, primitive = self.array, self.primitive
        payload = np.frombuffer(array.buffers()[1] or b"", np.uint8)
        if primitive.id == t.TRUE:
            k.write_booleans(payload, array.offset, self.valid, to, out)
            return
        decimal = primitive.id in (t.DECIMAL4, t.DECIMAL8, t.DECIMAL16)
        kind = array.type.storage_type if isinstance(array, pa.ExtensionArray) else array.type
        stride, scale = kind.bit_width // 8, kind.scale if decimal else -1
        source = payload[array.offset * stride :]
        k.write_fixed(source, stride, primitive.size - decimal, primitive.id, scale, self.valid, to, out)


class _Texts:
    """typed_value of a string or a binary."""

    def __init__(self, primitive: t.Primitive, array: pa.Array, path: str) -> None:
        array = array if array.type == primitive.arrow else array.cast(primitive.arrow)
        self.primitive, self.valid = primitive, flags_of(array)
        self.offsets, self.data = buffers_of(array)
        if primitive.id == t.STRING:
            check_utf8(array, self.data[self.offsets[0] : self.offsets[-1]], path)

    def measure(self, live: Flags, size: Int64s) -> None:
        k.size_texts(self.offsets, self.valid, live, self.primitive.id == t.STRING, size)

    def write(self, to: Int64s, out: Bytes) -> None:
        k.write_texts(self.offsets, self.data, self.valid, self.primitive.id, to, out)


class _Object:
    """typed_value of an object, whose residual is in `value`."""

    def __init__(self, chunk: _Chunk, node: Node, array: pa.StructArray, dictionary: Int32s, residuals: _Residuals) -> None:
        self.chunk, self.node, self.dictionary, self.residuals = chunk, node, dictionary, residuals
        self.valid = flags_of(array)
        groups = [(node.children[i], array.field(i)) for i in node.by_name]
        self.children = [_group(chunk, child, group, dictionary, flags_of(group)) for child, group in groups]

    def measure(self, live: Flags, size: Int64s) -> None:
        inner = both(live, self.valid)
        self.child_size = empty((len(self.children), len(size)), np.int64)
        for row, child in zip(self.child_size, self.children, strict=True):
            child.measure(inner, row)
        self.ids, self.shape = empty(len(self.children), np.int64), empty((3, len(size)), np.int64)
        chunk, node, keys = self.chunk, self.node, self.chunk.keys
        result = k.size_objects(
            self.valid, live, self.child_size, node.name_numbers, chunk.id_of_name, self.dictionary, *self.residuals,
            chunk.names, keys.start, keys.key_at, keys.key_size, keys.data, node.child_of_name, self.ids, chunk.order,
            size, *self.shape, chunk.faults.report,
        )  # fmt: skip
        chunk.faults.check(result, node.path)

    def write(self, to: Int64s, out: Bytes) -> None:
        child_to = empty(self.child_size.shape, np.int64)
        chunk, node, keys = self.chunk, self.node, self.chunk.keys
        k.write_objects(
            self.valid, self.child_size, node.name_numbers, chunk.id_of_name, self.dictionary, *self.residuals, chunk.names,
            keys.start, keys.key_at, keys.key_size, keys.data, chunk.plan.names.names, chunk.plan.names.ends,
            node.child_of_name, self.ids, chunk.order, *self.shape, to, child_to, out,
        )  # fmt: skip
        for row, child in zip(child_to, self.children, strict=True):
            child.write(row, out)


class _List:
    """typed_value of an array."""

    def __init__(self, chunk: _Chunk, node: Node, array: pa.Array, dictionary: Int32s) -> None:
        if not pa.types.is_list(array.type):
            array = array.cast(pa.list_(array.type.value_field))
        self.dictionary, self.valid = dictionary, flags_of(array)
        offsets, _ = buffers_of(array)
        self.offsets = offsets - offsets[0]
        elements = array.values[int(offsets[0]) : int(offsets[-1])]
        self.element_live = empty(len(elements), np.uint8)
        self.element_dictionary = empty(len(elements), np.int32)
        inner = (chunk, node.children[0], elements, self.element_dictionary, flags_of(elements))
        self.element = _group(*inner, required=True)

    def measure(self, live: Flags, size: Int64s) -> None:
        k.spread_lists(self.offsets, self.valid, live, self.dictionary, self.element_live, self.element_dictionary)
        self.element_size, self.bytes = empty(len(self.element_live), np.int64), empty(len(size), np.int64)
        self.element.measure(self.element_live, self.element_size)
        k.size_lists(self.offsets, self.valid, live, self.element_size, size, self.bytes)

    def write(self, to: Int64s, out: Bytes) -> None:
        element_to = np.full(len(self.element_size), -1, np.int64)
        k.write_lists(self.offsets, self.valid, self.element_size, self.bytes, to, element_to, out)
        self.element.write(element_to, out)
