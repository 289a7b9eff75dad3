"""unshred: the columns of a shredding schema → Variants.

A Variant stores the sizes of its children before their bytes, so its bytes can only be written when the sizes of
everything inside are known. Rebuilding a chunk of rows therefore takes two passes over the nodes of the shredding schema.
Each pass takes node by node, over all rows of the chunk, in one kernel (`kernels.rebuild`):

1. `measure` goes from the leaves to the root. Each node computes the size in bytes of every one of its slots from those of its
   children. A slot is one row for an ordinary field, and one element inside a list; the size is 0 where the slot is
   missing. This pass also finds all errors, so that the second one cannot fail.
2. `write` goes from the root to the leaves. Each node gets the position of each of its slots in the output, writes the
   slot's header, and passes the positions of the children on. Positions come from the sizes of the first pass.

Between the passes these hold: a slot with size 0 gets no position (-1); the sizes of an object's slot are those of its
typed fields and of the fields in `value` together, each counted once; and what is in `value` was validated to the last
leaf before it is copied, with no more levels than the typed containers around it leave. `measure` stops at every node that
has a `value`, for that.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from delta_variant import schema as schemas
from delta_variant import types as t
from delta_variant.buffers import (
    NO_FLAGS,
    OFFSETS,
    PADDING,
    Bytes,
    Dictionaries,
    Faults,
    Flags,
    Int64s,
    as_binary,
    binary_array,
    bitmap,
    by_type,
    check_utf8,
    empty,
    flags_of,
    memory_at,
    storage_of,
)
from delta_variant.errors import InvalidLayoutError
from delta_variant.kernels import rebuild as k
from delta_variant.kernels.memory import NO_KEY
from delta_variant.kernels.structs import WORDS
from delta_variant.kernels.unshred import keys_of_names, place
from delta_variant.kernels.validate import MAX_DEPTH
from delta_variant.kernels.validate import validate as walk
from delta_variant.shredding.names import complete
from delta_variant.shredding.plan import UNSHREDDED, Plan, plan
from delta_variant.shredding.rebuilding import Form, Steps, form_of, formed, steps_of

CHUNK_ROWS = 1 << 14
"""The limit for rows that are rebuilt at once."""

CHUNK_SLOTS = 1 << 20
"""The limit for the slots of these rows in all nodes.

A quarter of both limits would take 0.8 to 1 times as long. But the limits are visible to callers: faults are looked for chunk
by chunk, and elements of lists are numbered by chunk.
"""

MAX_BYTES = np.iinfo(np.int32).max
TOO_LARGE = "the Variants of one array take more than 2 GiB: pass smaller arrays"


def unshred(array: pa.Array) -> pa.StructArray:
    """Rebuilds the Variants of a shredded column.

    array: struct<metadata, value?, typed_value?>, children in any order and any of Arrow's storage forms, null where the
    Variant is SQL NULL. Returns struct<metadata: binary not null, value: binary not null>; typed values have exactly the
    type of typed_value. Variants of a column that is not shredded keep their bytes, but the fields of objects are always in the
    order in which Spark finds them (protocol/README.md, E6). Raises InvalidLayoutError for an invalid layout or invalid data,
    MalformedVariantError for malformed Variant bytes.

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
    mask = bitmap(valid)
    return pa.Array.from_buffers(UNSHREDDED, len(storage), [mask], children=[column, values.array()])


class _Values:
    """The Variants of all rows, which are added chunk by chunk."""

    def __init__(self, rows: int) -> None:
        self.rows, self.done, self.end = rows, 0, 0
        self.offsets, self.data = empty(rows + 1, np.int32), empty(PADDING, np.uint8)
        self.offsets[0] = 0

    def add(self, size: Int64s) -> None:
        """Makes room for the Variants of the next rows. Puts their positions in place of their sizes; -1 for 0."""
        before = self.end
        self.end = place(size, before, self.offsets[self.done :])
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
        names = self.keys.look_up(schema.names)
        id_of_name = np.full((len(self.keys.start) - 1, len(self.plan.numbers)), -1, np.int64)
        keys_of_names(names, self.keys.start, id_of_name)
        self.steps, form = _steps_of(storage.type)
        self.columns = formed(storage, form)
        self.known = (names, self.keys.start, self.keys.key_at, self.keys.key_size, self.keys.data)
        self.tables = (id_of_name, self.steps.child_of_name, self.steps.numbers)

    def unshred(self, values: _Values) -> pa.Array:
        """Adds the Variants to `values` and returns their metadata, which is complete."""
        steps, rows, struct = self.steps, len(self.storage), pa.py_buffer(np.empty(WORDS, np.int64))
        self.levels: Int64s = np.empty((len(steps.level_rows), 4), np.int64)
        self.nodes: Int64s = np.empty((len(steps.steps), k.COLUMNS), np.int64)
        self.columns._export_to_c(struct.address)  # noqa: SLF001  # the C data interface
        size = k.survey(struct.address, rows, steps.level_rows, steps.steps, self.levels, self.nodes)
        if size == 0:
            raise InvalidLayoutError(OFFSETS.format(self.storage.type))
        if size < 0:
            self._check_texts()
        self.room: Bytes = np.ndarray(abs(size), np.uint8, pa.allocate_buffer(abs(size)))  # Arrow's pool keeps it for others
        self.work = np.empty(steps.most + len(self.keys.key_at), np.int64)
        try:
            self._measure()
        except InvalidLayoutError:
            if self.faults.report[0] != NO_KEY:
                raise
            return _Chunk(self.plan, complete(self.storage), self.valid, self.faults.first_row).unshred(values)
        values.add(self.room[: 8 * rows].view(np.int64))
        names = self.plan.names
        k.write(
            steps.steps, self.levels, self.nodes, self.room, *self.known, names.names, names.ends, *self.tables, self.work,
            values.data,
        )  # fmt: skip
        if self.keys.mixed:
            self._order(values)
        return self.metadata

    def _order(self, values: _Values) -> None:
        """Puts the fields of objects that were copied from `value` in order; all others are."""
        ends = values.offsets[values.done - len(self.storage) : values.done + 1].astype(np.int64)
        at = np.where(ends[1:] > ends[:-1], ends[:-1], np.int64(-1))
        self.keys.order(values.data, at, ends[1:], self.dictionary, self.faults)

    def _measure(self) -> None:
        """Sets the sizes of all slots, and validates what is in `value` to the last leaf: it is copied as it is."""
        steps, at = self.steps, 0
        source = (steps.steps, self.levels, self.nodes, self.room, self.dictionary, *self.known, *self.tables, self.work)
        while (at := k.measure(steps.order, at, *source, self.faults.report)) < len(steps.order):
            number = int(steps.order[at if at >= 0 else -1 - at]) >> 1
            if at < 0:
                self.faults.fail(steps.nodes[number].path)
            self._validate(number)
            at += 1

    def _validate(self, number: int) -> None:
        node, (slots, _, dictionary, _) = self.nodes[number], self.levels[self.steps.steps[number, k.LEVEL]].tolist()
        at, limit = empty(slots, np.int64), empty(slots, np.int64)
        size = k.residuals(node, slots, self.room, at, limit)
        data = memory_at(int(node[k.DATA]), size, self.columns)
        numbers, keys, about = (
            self.room[dictionary : dictionary + 4 * slots].view(np.int32),
            self.keys,
            self.steps.nodes[number],
        )
        source = (data, at, limit, numbers, keys.start, *keys.numbers, 0)
        self.faults.check(walk(*source, MAX_DEPTH - about.depth, self.faults.report), about.path)

    def _check_texts(self) -> None:
        """Checks texts that are not ASCII. Raises MalformedVariantError."""
        for number in np.flatnonzero(self.nodes[:, k.NOT_ASCII]).tolist():
            node, slots = self.nodes[number].tolist(), int(self.levels[self.steps.steps[number, k.LEVEL], k.SLOTS])
            first, bits, offsets = node[k.TYPED_AT] & 7, node[k.TYPED_BITS], node[k.OFFSETS]
            places = [
                (bits and bits + (node[k.TYPED_AT] >> 3), (first + slots + 7) >> 3),
                (offsets - 4 * first, 4 * (first + slots + 1)),
                (node[k.TEXT], int(memory_at(offsets + 4 * slots, 4, self.columns).view(np.int32)[0])),
            ]
            buffers = [pa.foreign_buffer(at, size, self.columns) if at else None for at, size in places]
            check_utf8(pa.Array.from_buffers(pa.string(), slots, buffers, offset=first), self.steps.nodes[number].path)


@by_type
def _steps_of(storage: pa.DataType) -> tuple[Steps, Form | None]:
    """The steps for a column, and the form that it must have."""
    form = form_of(storage)
    return steps_of(_plan_of(storage).root, form.kind if form else storage), form
