"""shred: Variants → the columns of a shredding schema, from the root down, one kernel for each node and all rows of a chunk."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delta_variant import binary
from delta_variant import schema as schemas
from delta_variant import types as t
from delta_variant.buffers import (
    PADDING,
    Bytes,
    Faults,
    Flags,
    Int32s,
    Int64s,
    Variants,
    as_binary,
    binary_array,
    bitmap,
    buffers_of,
    check_utf8,
    empty,
    flags_of,
    storage_of,
    validity,
)
from delta_variant.errors import InvalidLayoutError, MalformedVariantError, UnsupportedFeatureError
from delta_variant.kernels import shred as k
from delta_variant.kernels.memory import OVERLAP, REFUSED
from delta_variant.kernels.validate import validate as walk
from delta_variant.shredding.plan import Node, Plan, plan

CHUNK_BYTES = 8 << 20
"""Variants are shredded in chunks of about this size, which stay in the cache while all nodes are processed."""

CHUNK_ROWS = 1 << 20


_INTEGERS: dict[int, npt.DTypeLike] = {size: np.dtype(f"i{size}") for size in (1, 2, 4, 8)}
_UNREADABLE = (t.TIME, t.TIMESTAMP_NANOS, t.TIMESTAMP_NTZ_NANOS)
"""Primitives that Spark 4.2 treats as malformed bytes. It reads UUIDs, but not from typed columns."""


def shred(array: pa.Array, as_type: pa.DataType | str, *, for_spark: bool = False) -> pa.StructArray:
    """Shreds a VARIANT column to a shredding schema: an Arrow type or DDL text.

    array: struct<metadata: binary, value: binary>, children in either order, null where the Variant is SQL NULL. Returns an
    array of `storage_type(as_type)`; the metadata is passed on, not copied. If nothing is lost, integers are stored as wider
    integers or as decimals, and decimals as decimals of the same or a larger scale. No other value is converted; what does not
    fit stays in `value`. Raises MalformedVariantError, InvalidSchemaError, InvalidLayoutError; with for_spark also
    UnsupportedFeatureError, with the path, if a value that stays in `value` is one that Spark cannot read.

    >>> import delta_variant as dv
    >>> events = dv.arrow.VariantArray.from_pylist([{"id": 1}, {"id": "one"}])
    >>> shredded = dv.shredding.shred(events, "id bigint")
    >>> shredded.field("typed_value").field("id").field("typed_value").to_pylist()
    [1, None]
    """
    schema = plan(schemas.parse(as_type) if isinstance(as_type, str) else as_type)
    array, children = storage_of(array, "shred")
    if set(children) != {"metadata", "value"}:
        raise InvalidLayoutError(f"shred takes a struct<metadata: binary, value: binary>, not {array.type}")
    metadata, value, valid = as_binary(children["metadata"]), as_binary(children["value"]), flags_of(array)
    if value.null_count and pc.any(pc.and_not(array.is_valid(), value.is_valid())).as_py():
        raise MalformedVariantError("value: a row that is not NULL has no value")
    ends, chunks, start = buffers_of(value)[0], [], 0
    while start < len(array):
        stop = min(start + CHUNK_ROWS, len(array))
        if ends[stop] - ends[start] > CHUNK_BYTES:
            stop = max(start + 1, int(np.searchsorted(ends[:stop], int(ends[start]) + CHUNK_BYTES, "right")) - 1)
        rows = slice(start, stop)
        try:
            chunks.append(_Chunk(schema, metadata[rows], value[rows], valid[rows], start, _bits(for_spark)).shred())
        except UnsupportedFeatureError:
            validate(array, for_spark=for_spark)  # a node knows only its own slots; this error names the row and the path
            raise
        start = stop
    if not chunks:
        return pa.nulls(0, schema.storage)
    nulls = pa.nulls(len(array), pa.binary())
    columns = [_concatenated(list(parts), nulls) for parts in zip(*chunks, strict=True)] if len(chunks) > 1 else chunks[0]
    mask = bitmap(valid) if len(valid) else None
    return pa.Array.from_buffers(schema.storage, len(array), [mask], children=[metadata, *columns])


def _concatenated(parts: list[pa.Array], nulls: pa.Array) -> pa.Array:
    """The arrays as one. `nulls` replaces those that are all null: 4 bytes a row less for each node without residuals."""
    kind = parts[0].type
    if kind == nulls.type and all(part.null_count == len(part) for part in parts):
        return nulls
    if not pa.types.is_struct(kind):
        return pa.concat_arrays(parts)
    children = [_concatenated([part.field(i) for part in parts], nulls) for i in range(kind.num_fields)]
    valid = [flags_of(part) if part.null_count else np.ones(len(part), np.uint8) for part in parts]
    return pa.Array.from_buffers(kind, len(nulls), [bitmap(np.concatenate(valid))], children=children)


def validate(array: pa.Array, *, for_spark: bool = False) -> None:
    """Checks every Variant of an unshredded column down to the last leaf.

    array: struct<metadata, value>. Raises MalformedVariantError; with for_spark also UnsupportedFeatureError, with the path,
    for a value that Spark 4.2 fails to read.

    >>> import datetime, delta_variant as dv
    >>> events = dv.arrow.VariantArray.from_pylist([{"at": datetime.time(12)}])
    >>> dv.shredding.validate(events, for_spark=True)
    Traceback (most recent call last):
    delta_variant.errors.UnsupportedFeatureError: $.at is a time, which Spark cannot read in a Variant (row 0)
    """
    array, children = storage_of(array, "validate")
    faults = Faults(0)
    metadata, value = as_binary(children["metadata"]), as_binary(children["value"])
    rows = Variants.open(metadata, value, flags_of(array), faults)
    source = (rows.data, rows.at, rows.limit, rows.dictionary, rows.keys.start, *rows.keys.names)
    result, row = walk(*source, _bits(for_spark), faults.report), int(faults.report[1])
    if result < 0 and faults.report[0] == REFUSED:
        path, type_id = binary.find(metadata[row].as_py(), value[row].as_py(), _UNREADABLE) or ("$", t.TIME)
        raise UnsupportedFeatureError(
            f"{path} is a {t.PRIMITIVES[type_id].name}, which Spark cannot read in a Variant (row {row})"
        )
    faults.check(result, "$")


def _bits(for_spark: bool) -> int:
    """A bit for each type id that is refused."""
    return sum(1 << type_id for type_id in _UNREADABLE) if for_spark else 0


@dataclass(eq=False)
class _Slots:
    """The Variants of one node: where each starts (-1: missing), where its row ends, and which dictionary it uses."""

    at: Int32s
    limit: Int32s
    dictionary: Int32s


class _Chunk:
    """Rows that are shredded together."""

    def __init__(self, schema: Plan, metadata: pa.Array, value: pa.Array, valid: Flags, first_row: int, refused: int) -> None:
        self.plan, self.refused = schema, refused
        self.faults = Faults(first_row)
        self.no_value: dict[int, pa.Array] = {}
        self.no_residual: dict[int, Int64s] = {}
        self.flags: dict[int, Flags] = {}
        self.starts: dict[int, Int32s] = {}
        rows = Variants.open(metadata, value, valid, self.faults)
        self.data, self.keys = rows.data, rows.keys
        self.slots = _Slots(rows.at.astype(np.int32), rows.limit.astype(np.int32), rows.dictionary)
        self.names = self.keys.look_up(schema.names)

    def shred(self) -> list[pa.Array]:
        """The columns of the root, [value, typed_value]."""
        return self._columns(self.plan.root, self.slots)

    def _columns(self, node: Node, slots: _Slots) -> list[pa.Array]:
        """[value, typed_value] of a node; [value] of a node without a type."""
        residual_size = self._residual_size(len(slots.at))
        if node.primitive is not None:
            take = self._texts if node.primitive.size == t.VARIABLE else self._fixed
            residuals, typed = take(node, node.primitive, slots, residual_size)
        elif node.typed is None:
            residuals = k.leave_all(self.data, slots.at, slots.limit, residual_size, self.faults.report)
            return [self._value(node, slots, residual_size, self._residuals(node, residuals))]
        elif node.by_name:
            return self._object(node, slots, residual_size)
        else:
            residuals, typed = self._list(node, slots, residual_size)
        return [self._value(node, slots, residual_size, residuals), typed]

    def _object(self, node: Node, slots: _Slots, residual_size: Int64s) -> list[pa.Array]:
        count = len(slots.at)
        child_at, typed = empty((len(node.children), count), np.int32), self._flags(count)
        source = (self.data, slots.at, slots.limit, slots.dictionary, self.names, self.keys.start, node.child_of_name)
        into, children = (child_at, typed, residual_size), empty(256, np.int32)
        while (result := k.split_object(*source, *into, children, self.faults.report)) == k.MORE_ROOM:
            children = empty(int(self.faults.report[1]), np.int32)
        residuals = self._residuals(node, result)
        if residuals:
            offsets, out = self._room(node, residual_size)
            k.gather_objects(*source, typed, offsets, out)
            value = self._checked(node, slots, residual_size, offsets, out)
        else:
            value = self._no_value(count)
        bits, nulls = validity(typed)
        fields = []
        for child, at in zip(node.children, child_at, strict=True):
            columns = self._columns(child, _Slots(at, slots.limit, slots.dictionary))
            fields.append(pa.Array.from_buffers(child.group, count, [None], 0, children=columns))
        return [value, pa.Array.from_buffers(node.typed, count, [bits], nulls, children=fields)]

    def _list(self, node: Node, slots: _Slots, residual_size: Int64s) -> tuple[int, pa.Array]:
        count = len(slots.at)
        offsets, typed = empty(count + 1, np.int32), self._flags(count)
        source = (self.data, slots.at, slots.limit)
        residuals = self._residuals(node, k.measure_lists(*source, offsets, typed, residual_size, self.faults.report))
        elements = int(offsets[-1])
        inner = _Slots(*(empty(elements, np.int32) for _ in range(3)))
        into = (inner.at, inner.limit, inner.dictionary)
        self.faults.check(k.split_lists(*source, slots.dictionary, typed, *into, self.faults.report), node.path)
        bits, nulls = validity(typed)
        child = node.children[0]
        element = pa.Array.from_buffers(child.group, elements, [None], 0, children=self._columns(child, inner))
        return residuals, pa.Array.from_buffers(node.typed, count, [bits, pa.py_buffer(offsets)], nulls, children=[element])

    def _fixed(self, node: Node, primitive: t.Primitive, slots: _Slots, residual_size: Int64s) -> tuple[int, pa.Array]:
        count = len(slots.at)
        valid = self._flags(count)
        source, sink = (self.data, slots.at, slots.limit), (valid, residual_size, self.faults.report)
        out: npt.NDArray[np.generic]
        if primitive.id == t.TRUE:
            flags = empty(count, np.uint8)
            residuals = k.take_booleans(*source, flags, *sink)
            out = np.packbits(flags, bitorder="little")
        elif primitive.id in (t.INT8, t.INT16, t.INT32, t.INT64):
            out = empty(count, _INTEGERS[primitive.size])
            residuals = k.take_integers(*source, primitive.id, out, *sink)
        elif primitive.id in (t.DECIMAL4, t.DECIMAL8, t.DECIMAL16):
            out = empty((count, 2), np.uint64)
            low, high = _largest(node.schema.precision, node.schema.scale)
            residuals = k.take_decimals(*source, node.schema.scale, low, high, out, *sink)
        else:
            out = np.zeros((count, primitive.size), np.uint8)
            residuals = k.take_fixed(*source, primitive.id, out, *sink)
        residuals = self._residuals(node, residuals)
        bits, nulls = validity(valid)
        return residuals, pa.Array.from_buffers(node.typed, count, [bits, pa.py_buffer(out)], nulls)

    def _texts(self, node: Node, primitive: t.Primitive, slots: _Slots, residual_size: Int64s) -> tuple[int, pa.Array]:
        count = len(slots.at)
        start, offsets, valid = self._starts(count), empty(count + 1, np.int32), self._flags(count)
        source, sink = (self.data, slots.at, slots.limit), (valid, residual_size, self.faults.report)
        residuals = self._residuals(node, k.take_texts(*source, primitive.id, start, offsets, *sink))
        size = int(offsets[-1])
        out = empty(size + PADDING, np.uint8)
        k.gather(self.data, start, offsets, out)
        bits, nulls = validity(valid)
        typed = pa.Array.from_buffers(node.typed, count, [bits, pa.py_buffer(offsets), pa.py_buffer(out)], nulls)
        if primitive.id == t.STRING:
            check_utf8(typed, out[:size], node.path)
        return residuals, typed

    def _flags(self, count: int) -> Flags:
        """Working space, which nodes with as many slots share: 12,500 objects of 64 leaves take 5 % less time for it."""
        if count not in self.flags:
            self.flags[count] = empty(count, np.uint8)
        return self.flags[count]

    def _starts(self, count: int) -> Int32s:
        """Working space likewise."""
        if count not in self.starts:
            self.starts[count] = empty(count, np.int32)
        return self.starts[count]

    def _residual_size(self, count: int) -> Int64s:
        """Room for the sizes of residuals, all 0. Nodes share it as long as none of them has a residual."""
        if count not in self.no_residual:
            self.no_residual[count] = np.zeros(count, np.int64)
        return self.no_residual[count]

    def _residuals(self, node: Node, result: int) -> int:
        """The number of residuals that a kernel returned; raises the error that it reported."""
        if self.faults.check(result, node.path):
            self.no_residual.clear()
        return result

    def _value(self, node: Node, slots: _Slots, residual_size: Int64s, residuals: int) -> pa.Array:
        """`value` of a node whose residuals are whole Variants."""
        if not residuals:
            return self._no_value(len(slots.at))
        offsets, out = self._room(node, residual_size)
        k.gather(self.data, slots.at, offsets, out)
        return self._checked(node, slots, residual_size, offsets, out)

    def _checked(self, node: Node, slots: _Slots, residual_size: Int64s, offsets: Int32s, out: Bytes) -> pa.Array:
        """`value` with the residuals in `out`, which are validated to the last leaf: nothing has looked inside them before."""
        set_ = residual_size > 0
        at, limit = np.where(set_, offsets[:-1], np.int64(-1)), offsets[1:].astype(np.int64)
        source, report = (slots.dictionary, self.keys.start, *self.keys.names), self.faults.report
        self.faults.check(walk(out, at, limit, *source, self.refused, report), node.path)
        return binary_array(offsets, out, set_.view(np.uint8), pa.binary())

    def _room(self, node: Node, residual_size: Int64s) -> tuple[Int32s, Bytes]:
        """Arrow offsets for residuals of these sizes, and an empty buffer for their bytes."""
        ends = np.cumsum(residual_size)
        if (wrong := int(np.searchsorted(ends, len(self.data), "right"))) < len(ends):
            self.faults.report[:] = OVERLAP, wrong, 0
            self.faults.fail(node.path)
        offsets = empty(len(ends) + 1, np.int32)
        offsets[0], offsets[1:] = 0, ends
        return offsets, empty(int(offsets[-1]) + PADDING, np.uint8)

    def _no_value(self, count: int) -> pa.Array:
        if count not in self.no_value:
            self.no_value[count] = pa.nulls(count, pa.binary())
        return self.no_value[count]


@lru_cache(maxsize=256)
def _largest(precision: int, scale: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """The largest unscaled value that can be multiplied by 10**up within the precision: its (low, high) words, by `up`."""
    largest = [(10**precision - 1) // 10**up for up in range(scale + 1)]
    low, high = [n & (1 << 64) - 1 for n in largest], [n >> 64 for n in largest]
    return np.array(low, np.uint64), np.array(high, np.uint64)
