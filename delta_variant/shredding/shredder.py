"""shred: Variants → the columns of a shredding schema, a chunk of rows at a time, and all nodes of a level in one kernel.

The columns are Arrow arrays of the C data interface: importing all of them at once takes a third of the time of making each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delta_variant import binary, nested
from delta_variant import schema as schemas
from delta_variant import types as t
from delta_variant.buffers import (
    NO_FLAGS,
    PADDING,
    Bytes,
    Faults,
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
from delta_variant.kernels import levels as k
from delta_variant.kernels.memory import OVERLAP, REFUSED
from delta_variant.kernels.shred import MORE_ROOM, gather, gather_objects, split_lists
from delta_variant.kernels.structs import LENGTH, NULLS, PRIVATE, WORDS
from delta_variant.kernels.validate import MAX_DEPTH
from delta_variant.kernels.validate import validate as walk
from delta_variant.shredding.plan import Plan, plan
from delta_variant.shredding.steps import Level, Step, tree

CHUNK_BYTES = 32 << 20
CHUNK_SLOTS = 1 << 25
"""The limits of a chunk: the bytes of its Variants, and the slots of all nodes. A slot takes 4 bytes of working space."""

BLOCK_BYTES = 1 << 19
"""The nodes of a chunk are passed by blocks of about this size, which stay in the cache."""

IMPORTED_HEIGHT = 30
"""How many nodes above each other Arrow imports at once. It refuses more than 64 levels, and a node takes two."""

_HOLDER = pa.binary_view()
"""The type of an array that holds any number of buffers."""

_UNREADABLE = (t.TIME, t.TIMESTAMP_NANOS, t.TIMESTAMP_NTZ_NANOS)
"""Primitives that Spark 4.2 treats as malformed bytes. It reads UUIDs, but not from typed columns."""
UNREADABLE = "which Spark cannot read in a Variant"
"""The reason in errors about values of these types."""


def shred(array: pa.Array, as_type: pa.DataType | str, *, for_spark: bool = False) -> pa.StructArray:
    """Shreds a VARIANT column to a shredding schema: an Arrow type or DDL text.

    array: struct<metadata: binary, value: binary>, children in either order, null where the Variant is SQL NULL. Returns an
    array of `storage_type(as_type)`; the metadata is passed on, not copied. If nothing is lost, integers are stored as wider
    integers or as decimals, and decimals as decimals of the same or a larger scale. No other value is converted; what does not
    fit stays in `value`, with the fields of objects in the order in which Spark finds them (protocol/README.md, E6).

    Raises MalformedVariantError, InvalidSchemaError, InvalidLayoutError; with for_spark also UnsupportedFeatureError, with the
    path, if a value that stays in `value` is one that Spark cannot read.

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
        stop = min(start + max(1, CHUNK_SLOTS // schema.nodes), len(array))
        if ends[stop] - ends[start] > CHUNK_BYTES:
            stop = max(start + 1, int(np.searchsorted(ends[:stop], int(ends[start]) + CHUNK_BYTES, "right")) - 1)
        rows = slice(start, stop)
        part = (metadata, value, valid) if stop - start == len(array) else (metadata[rows], value[rows], valid[rows])
        faults = Faults(start)
        try:
            opened = _ordered(Variants.open(*part, faults), faults)
            chunks.append(_Chunk(schema, opened, faults, _bits(for_spark)).shred())
        except UnsupportedFeatureError:
            validate(array, for_spark=for_spark)  # a node knows only its own slots; this error names the row and the path
            raise
        start = stop
    if not chunks:
        return pa.nulls(0, schema.storage)
    columns = chunks[0] if len(chunks) == 1 else [concatenated(list(parts)) for parts in zip(*chunks, strict=True)]
    mask = bitmap(valid)
    return pa.Array.from_buffers(schema.storage, len(array), [mask], children=[metadata, *columns])


def shred_valid(rows: Variants, as_type: pa.DataType) -> list[pa.Array]:
    """The columns [value, typed_value] of a schema for Variants that `shred` has validated before, and put in order."""
    return _Chunk(plan(as_type), rows, Faults(0), refused=None).shred()


def concatenated(parts: list[pa.Array], nulls: pa.Array | None = None) -> pa.Array:
    """The arrays as one. Arrays that are all null become `nulls`, which saves 4 bytes a row for each node without residuals."""
    kind = parts[0].type
    nulls = pa.nulls(sum(map(len, parts)), pa.binary()) if nulls is None else nulls
    if kind == nulls.type and all(part.null_count == len(part) for part in parts):
        return nulls
    if not pa.types.is_struct(kind):
        return pa.concat_arrays(parts)
    children = [concatenated([part.field(i) for part in parts], nulls) for i in range(kind.num_fields)]
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
    _validated(array, "validate", for_spark=for_spark)


def plain(array: pa.Array) -> pa.StructArray:
    """An unshredded column as the files of a table have it: validated, with fields in the order in which Spark finds them.

    array: struct<metadata, value>. Returns the same array if nothing has to change (protocol/README.md, E6). Raises what
    `validate` raises with for_spark.

    >>> import delta_variant as dv
    >>> events = dv.arrow.VariantArray.from_pylist([{"id": 1}]).storage
    >>> dv.shredding.plain(events) is events
    True
    """
    rows, storage = _validated(array, "plain", for_spark=True)
    ordered = rows.ordered(Faults(0))
    if ordered is rows:
        return storage
    kept = {field.name: child for field, child in zip(storage.type, nested.arrays(storage), strict=True)}
    offsets = np.append(ordered.low, ordered.limit).astype(np.int32)
    kept["value"] = binary_array(offsets, ordered.data, flags_of(kept["value"]), pa.binary())
    return nested.rebuilt(
        storage, nested.with_types(storage.type, [child.type for child in kept.values()]), list(kept.values())
    )


def _validated(array: pa.Array, what: str, *, for_spark: bool) -> tuple[Variants, pa.StructArray]:
    """The Variants of a column and its storage. what: the calling function. Raises what `validate` raises."""
    storage, children = storage_of(array, what)
    if "value" not in children:
        raise InvalidLayoutError(f"{what} takes a struct<metadata: binary, value: binary>, not {array.type}")
    faults = Faults(0)
    metadata, value = as_binary(children["metadata"]), as_binary(children["value"])
    rows = Variants.open(metadata, value, flags_of(storage), faults)
    result, row = _walked(rows, _bits(for_spark), faults), int(faults.report[1])
    if result < 0 and faults.report[0] == REFUSED:
        path, type_id = binary.find(metadata[row].as_py(), value[row].as_py(), _UNREADABLE) or ("$", t.TIME)
        raise UnsupportedFeatureError(f"{path} is a {t.PRIMITIVES[type_id].name}, {UNREADABLE}", row=row)
    faults.check(result, "$")
    return rows, storage


def _bits(for_spark: bool) -> int:
    """A bit for each type id that is refused."""
    return sum(1 << type_id for type_id in _UNREADABLE) if for_spark else 0


def _ordered(rows: Variants, faults: Faults) -> Variants:
    """The same Variants with their fields in order, which only those whose dictionaries are `mixed` may not have."""
    if not rows.keys.mixed:
        return rows
    faults.check(_walked(rows, 0, faults), "$")
    return rows.ordered(faults)


def _walked(rows: Variants, refused: int, faults: Faults) -> int:
    """The result of the kernel that goes through Variants down to the last leaf."""
    source = (rows.data, rows.at, rows.limit, rows.dictionary, rows.keys.start, *rows.keys.numbers)
    return int(walk(*source, refused, MAX_DEPTH, faults.report))


@dataclass(eq=False)
class _Slots:
    """The Variants of the root of a level: where each starts (-1: missing), where its row ends, which dictionary it uses."""

    at: Int64s
    limit: Int32s
    dictionary: Int32s


class _Chunk:
    """Rows that are shredded together. The structs of `words` describe their columns; `buffers` keeps what these need.

    refused: a bit for each type id that is refused in residuals. None: residuals are valid.
    """

    def __init__(self, schema: Plan, rows: Variants, faults: Faults, refused: int | None) -> None:
        self.tree, self.faults, self.refused = tree(schema.root), faults, refused
        self.data, self.keys = rows.data, rows.keys
        self.slots = _Slots(rows.at, rows.limit.astype(np.int32), rows.dictionary)
        self.names = self.keys.look_up(schema.names)
        self.size = int(rows.limit[-1] - rows.limit[0])
        self.words: Int64s = np.empty(len(self.tree.words), np.int64)
        self.buffers: list[pa.Buffer] = []

    def shred(self) -> list[pa.Array]:
        """The columns of the root, [value, typed_value]."""
        self.base = self._keep(self.words)
        np.multiply(self.tree.pointers, self.base, out=self.words)
        self.words += self.tree.words
        self._level(self.tree.level, self.slots)
        group = self._group(self.tree.level.order[0])
        return [group.field(i) for i in range(group.type.num_fields)]

    def _group(self, step: Step) -> pa.Array:
        """The group of a node, with all columns below it."""
        node, place = step.node, step.place
        if step.height <= IMPORTED_HEIGHT:
            return self._imported(place + 2 * WORDS, node.group)
        count, nulls = int(self.words[place + LENGTH]), int(self.words[place + WORDS + NULLS])
        sizes = ((count + 7) >> 3, 4 * count + 4) if step.action == k.LIST else ((count + 7) >> 3,)
        addresses = self.words[place + k.TYPED_BUFFERS :][: len(sizes)].tolist()
        buffers = [pa.foreign_buffer(at, size, self.buffers) if at else None for at, size in zip(addresses, sizes, strict=True)]
        children = [self._group(child) for child in step.children]
        typed = pa.Array.from_buffers(node.typed, count, buffers, nulls, children=children)
        columns = [self._imported(place, pa.binary()), typed]
        return pa.Array.from_buffers(node.group, count, [None], 0, children=columns)

    def _imported(self, place: int, kind: pa.DataType) -> pa.Array:
        """The array that a struct describes."""
        struct: Int64s = np.empty(WORDS, np.int64)
        buffer = pa.py_buffer(struct)
        holder = pa.Array.from_buffers(_HOLDER, 0, [None, buffer, *self.buffers])
        holder._export_to_c(buffer.address)  # noqa: SLF001  # the C data interface
        self.words[place + PRIVATE] = buffer.address
        return pa.Array._import_from_c(self.base + 8 * place, kind)  # noqa: SLF001

    def _level(self, plan: Level, slots: _Slots) -> None:
        """Shreds a level and what is below it. The error of a node is raised when the nodes before it are done."""
        count, report = len(slots.at), self.faults.report
        blocks = (self.size + 8 * count * plan.rows) // BLOCK_BYTES + 1
        block = (count // blocks + 63) // 64 * 64 or 64
        shape = max(1, -(-count // block)), plan.rows, block
        at: Int32s = np.ndarray(shape, np.int32, pa.allocate_buffer(4 * math.prod(shape)))
        room, ends = self._room(plan.room(count)), empty((len(plan.steps), count + 1), np.int32)
        found, fields = np.empty((len(plan.steps) + 1, k.NOT_ASCII + 1), np.int64), 256
        source = (self.data, slots.at, slots.limit, slots.dictionary, self.names, self.keys.start, *plan.tables)
        while (done := k.split(*source, at, empty(6 * block + 4 * fields, np.uint8), room, ends, found, report)) == MORE_ROOM:
            fields = int(report[1])
        fault = report.copy() if done < len(plan.steps) else report
        texts = self._room(int(found[-1, k.START]) + PADDING)
        k.finish(self.data, plan.steps, plan.places, count, at, room, found, done, texts, self.words)
        for number, (step, result) in enumerate(zip(plan.order, found.tolist(), strict=False)):
            if number == done:
                report[:] = fault
                self.faults.fail(step.node.path)
            if result[k.NOT_ASCII] and step.node.typed == pa.string():
                strings = texts[result[k.START] : result[k.START] + result[k.SIZE_OF]]
                column = binary_array(plan.offsets(step, room, count), strings, NO_FLAGS, pa.string())
                check_utf8(column, step.node.path)
            if step.elements is not None:
                elements = result[k.SIZE_OF]
                inner = _Slots(empty(elements, np.int64), *empty((2, elements), np.int32))
                lists = (_row(at, step, count), slots.limit, slots.dictionary, plan.offsets(step, room, count))
                ok = split_lists(self.data, *lists, inner.at, inner.limit, inner.dictionary, report)
                self.faults.check(ok, step.node.path)
                self._level(step.elements, inner)
            if result[k.TOO_LARGE]:
                report[:] = OVERLAP, result[k.TOO_LARGE] - 1, 0
                self.faults.fail(step.node.path)
            if result[k.RESIDUALS]:
                self._residuals(step, slots, _row(at, step, count), ends[number].copy(), result[k.BYTES])

    def _residuals(self, step: Step, slots: _Slots, at: Int32s, offsets: Int32s, size: int) -> None:
        """Makes `value` of a node, and validates it to the last leaf if nothing has looked inside residuals before."""
        node, out, report = step.node, self._room(size + PADDING), self.faults.report
        out_at = self.buffers[-1].address
        if step.action == k.OBJECT:
            source = (self.data, at, slots.limit, slots.dictionary, self.names, self.keys.start, node.child_of_name)
            gather_objects(*source, offsets, out)
        else:
            gather(self.data, at, offsets, out)
        set_ = offsets[1:] > offsets[:-1]
        if self.refused is not None:
            start, limit = np.where(set_, offsets[:-1], np.int64(-1)), offsets[1:].astype(np.int64)
            keys = (slots.dictionary, self.keys.start, *self.keys.numbers)
            self.faults.check(walk(out, start, limit, *keys, self.refused, MAX_DEPTH - node.depth, report), node.path)
        bits, nulls = validity(set_.view(np.uint8))
        value = self.words[step.place :]
        value[NULLS] = nulls
        value[k.VALUE_BUFFERS : k.VALUE_BUFFERS + 3] = bits.address if bits else 0, self._keep(offsets), out_at
        if bits:
            self.buffers.append(bits)

    def _room(self, size: int) -> Bytes:
        """Memory that is kept as long as the columns, from Arrow's pool whatever its size."""
        self.buffers.append(pa.allocate_buffer(size))
        room: Bytes = np.ndarray(size, np.uint8, self.buffers[-1])
        return room

    def _keep(self, array: npt.NDArray[Any]) -> int:
        """Keeps an array as long as the columns. Returns its address."""
        buffer = pa.py_buffer(array)
        self.buffers.append(buffer)
        return int(buffer.address)


def _row(at: Int32s, step: Step, count: int) -> Int32s:
    """The positions of a node."""
    row: Int32s = at[0, step.row] if len(at) == 1 else at[:, step.row].reshape(-1)
    return row[:count]
