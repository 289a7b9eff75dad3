"""Groups of the older layouts → groups of the final one, as Arrow arrays.

In: the columns of a group whose type `recognition.check` has accepted. `read` makes a tree of them, in which a column is null
wherever something around it is null. Out, by `Group.columns`: value and typed_value, which share the bytes and the leaves that
they were read from. Most columns are only renamed; three cases need more:

* A field that is typed directly becomes a group with a typed_value.
* A field of an object that is in the bytes of that object, while its own columns are null, is moved to its own value, because
  readers of the final layout ignore it in the bytes.
* If several of object, array and typed_value have values in a chunk, the first one becomes typed_value; the others are
  unshredded into value. The final layout has only one typed_value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delta_variant import schema as schemas
from delta_variant import shredding
from delta_variant.buffers import (
    PADDING,
    Bytes,
    Dictionaries,
    Faults,
    Int32s,
    Int64s,
    NameTable,
    as_binary,
    binary_array,
    bitmap,
    buffers_of,
    flags_of,
)
from delta_variant.errors import DeltaVariantError, InvalidLayoutError, MalformedVariantError
from delta_variant.kernels.rekey import find_fields
from delta_variant.kernels.shred import gather
from delta_variant.layouts.recognition import TYPED, Words, is_group
from delta_variant.shredding.names import columns_of, elements_of, fields_of

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows that the slots of a tree belong to, with their metadata."""

    metadata: pa.Array
    valid: Bools
    words: Words

    @cached_property
    def dictionaries(self) -> tuple[Dictionaries, Int32s]:
        """The distinct dictionaries, and the number of each row's dictionary."""
        number = np.empty(len(self.metadata), np.int32)
        return Dictionaries.read(self.metadata, np.where(self.valid, 0, -1), number, Faults(0)), number


class Typed(Protocol):
    """The column object, array or typed_value of a group: where it is set, and its form as typed_value of the final layout."""

    valid: Bools

    def groups(self) -> Iterator[Group]: ...

    def typed_value(self, rows: Rows, value: pa.Array | None) -> pa.Array: ...


@dataclass(eq=False)
class Group:
    """One node of the schema. rows: the row of each slot. Columns without any value are omitted."""

    path: str
    rows: Int64s
    value: pa.Array | None
    typed: list[Typed]

    def walk(self) -> Iterator[Group]:
        """This group and all groups below it."""
        yield self
        for typed in self.typed:
            for group in typed.groups():
                yield from group.walk()

    @property
    def present(self) -> Bools:
        """The slots where any column is set."""
        flags = [typed.valid for typed in self.typed]
        if self.value is not None:
            flags.append(np.asarray(self.value.is_valid()))
        return np.logical_or.reduce(flags) if flags else np.zeros(len(self.rows), np.bool_)

    def columns(self, rows: Rows) -> dict[str, pa.Array]:
        """value, typed_value or both. Raises InvalidLayoutError, MalformedVariantError."""
        if len(self.typed) > 1:
            if (np.sum([typed.valid for typed in self.typed], axis=0) > 1).any():
                raise InvalidLayoutError("only one of object, array and typed_value may be set", at=self.path)
            for typed in self.typed[1:]:
                self._fold(typed, rows)
        columns = {}
        if self.typed:
            columns["typed_value"] = self.typed[0].typed_value(rows, self.value)
        if self.value is not None or not columns:
            columns["value"] = self.value if self.value is not None else pa.nulls(len(self.rows), pa.binary())
        return columns

    def struct(self, rows: Rows) -> pa.StructArray:
        """The same columns as a struct without nulls."""
        columns = self.columns(rows)
        return pa.StructArray.from_arrays(list(columns.values()), list(columns))

    def put(self, value: pa.Array) -> None:
        """Sets the value where it is null."""
        self.value = value if self.value is None else pc.coalesce(self.value, value)

    def _fold(self, typed: Typed, rows: Rows) -> None:
        """Unshreds a typed column into the value."""
        if self.value is not None and (typed.valid & np.asarray(self.value.is_valid())).any():
            raise InvalidLayoutError(f"{rows.words.value} is set beside a typed value that is not an object", at=self.path)
        columns = [rows.metadata.take(pa.array(self.rows)), typed.typed_value(rows, None)]
        array = pa.StructArray.from_arrays(columns, ["metadata", "typed_value"], mask=pa.array(~typed.valid))
        try:
            self.put(dict(fields_of(shredding.unshred(array)))["value"])
        except DeltaVariantError as error:
            raise type(error)(error.text, at=f"{self.path}{(error.at or '$')[1:]}", advice=error.advice) from None


class _Leaf:
    def __init__(self, array: pa.Array) -> None:
        self.array, self.valid = array, np.asarray(array.is_valid())

    def groups(self) -> Iterator[Group]:
        return iter(())

    def typed_value(self, rows: Rows, value: pa.Array | None) -> pa.Array:  # noqa: ARG002  # see Typed
        return self.array


class _Object:
    def __init__(self, array: pa.StructArray, slots: Int64s, path: str, words: Words) -> None:
        self.valid, self.path = np.asarray(array.is_valid()), path
        self.fields = {name: _child(field, slots, f"{path}.{name}", words) for name, field in fields_of(array)}
        self.rows = slots

    def groups(self) -> Iterator[Group]:
        return iter(self.fields.values())

    def typed_value(self, rows: Rows, value: pa.Array | None) -> pa.Array:
        if value is not None:
            self._move_fields(rows, value)
        children = [field.struct(rows) for field in self.fields.values()]
        fields = [pa.field(name, child.type, nullable=False) for name, child in zip(self.fields, children, strict=True)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=pa.array(~self.valid))

    def _move_fields(self, rows: Rows, value: pa.Array) -> None:
        """Moves fields from the bytes of objects to the values of their own groups."""
        dictionaries, number = rows.dictionaries
        offsets, data = buffers_of(value)
        keys, faults, none = dictionaries.look_up(NameTable.of(self.fields)), Faults(0), np.empty(0, np.int64)
        source = (data, offsets, flags_of(value), self.valid, number[self.rows], keys, dictionaries.start, len(self.fields))
        count = faults.check(find_fields(*source, none, none, none, none, faults.report), self.path)
        if not count:
            return
        slot, name, at, size = (np.empty(count, np.int64) for _ in range(4))
        find_fields(*source, slot, name, at, size, faults.report)
        for n, field in enumerate(self.fields.values()):
            of = np.flatnonzero(name == n)
            if len(np.unique(slot[of])) < len(of):
                raise MalformedVariantError("value: an object has two fields of the same name", at=field.path)
            in_columns = field.present[slot[of]]
            if rows.words.direct and in_columns.any():
                raise InvalidLayoutError(f"{rows.words.value} has a field that is set in columns of its own", at=field.path)
            of = of[~in_columns]
            if len(of):
                field.put(_scattered(data, slot[of], at[of], size[of], len(self.rows)))


class _List:
    def __init__(self, array: pa.Array, slots: Int64s, path: str, words: Words) -> None:
        self.valid = np.asarray(array.is_valid())
        lengths, elements = elements_of(array)
        self.offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]).astype(np.int32)
        self.element = _child(elements, np.repeat(slots, lengths), f"{path}[*]", words)

    def groups(self) -> Iterator[Group]:
        return iter((self.element,))

    def typed_value(self, rows: Rows, value: pa.Array | None) -> pa.Array:  # noqa: ARG002  # see Typed
        element = self.element.struct(rows)
        kind = pa.list_(pa.field("element", element.type, nullable=False))
        buffers = [bitmap(self.valid.view(np.uint8)), pa.py_buffer(self.offsets)]
        return pa.Array.from_buffers(kind, len(self.valid), buffers, children=[element])


def read(columns: dict[str, pa.Array], slots: Int64s, path: str, words: Words) -> Group:
    """The tree of a group. slots: the row of each slot."""
    found = {name: column for name, column in columns.items() if column.null_count < len(slots)}
    value = as_binary(found[words.value]) if words.value in found else None
    return Group(path, slots, value, [_typed(found[name], slots, path, words) for name in TYPED if name in found])


def _child(array: pa.Array, slots: Int64s, path: str, words: Words) -> Group:
    """A field or an element, which is a group or typed directly."""
    columns = columns_of(array) if is_group(array.type, words) else {"typed_value": array}
    return read(columns, slots, path, words)


def _typed(array: pa.Array, slots: Int64s, path: str, words: Words) -> Typed:
    if pa.types.is_struct(array.type):
        return _Object(array, slots, path, words)
    if schemas.is_list(array.type):
        return _List(array, slots, path, words)
    return _Leaf(array)


def _scattered(data: Bytes, slot: Int64s, at: Int64s, size: Int64s, count: int) -> pa.Array:
    """A binary array of `count` slots with data[at:at + size] in some of them, null in the others."""
    start, sizes, valid = np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.uint8)
    start[slot], sizes[slot], valid[slot] = at, size, 1
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]).astype(np.int32)
    out = np.empty(int(offsets[-1]) + PADDING, np.uint8)
    gather(data, start, offsets, out)
    return binary_array(offsets, out, valid, pa.binary())
