"""reshred: the columns of one shredding schema → those of another.

A row without residuals has the same typed columns in every schema that has their paths with their types. Such rows are copied,
column by column. All others are rebuilt as Variants, and shredded. A JSON null is no residual: every schema has it in `value`.
Source: VariantShredding.

Invariant: the result is that of `shred(unshred(array), as_type)`.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from delta_variant import nested
from delta_variant import schema as schemas
from delta_variant import types as t
from delta_variant.buffers import Dictionaries, Faults, buffers_of, by_type, empty, flags_of
from delta_variant.errors import InvalidLayoutError
from delta_variant.locating import in_rows
from delta_variant.shredding.plan import Plan, plan, storage_type
from delta_variant.shredding.shredder import concatenated, shred
from delta_variant.shredding.unshredder import schema_of, unshred

Mask = npt.NDArray[np.bool_]


def reshred(array: pa.StructArray, as_type: pa.DataType, *, for_spark: bool = False) -> pa.StructArray:
    """The column in another shredding schema. It may share memory with `array`.

    array: one whose type `is_canonical`. Raises what `unshred` and `shred` raise.
    """
    wanted = plan(as_type)
    carried, differs = _carried(array, wanted)
    count = int(np.count_nonzero(differs))
    if not count:
        return carried

    def rebuilt(rows: pa.StructArray) -> pa.StructArray:
        return shred(unshred(rows), as_type, for_spark=for_spark)

    if 2 * count > len(array):
        return in_rows(rebuilt, array, 0)
    numbers = np.flatnonzero(differs)
    others = in_rows(rebuilt, array.take(pa.array(numbers)), lambda row: int(numbers[row]))
    order = np.arange(len(array))
    order[numbers] = np.arange(len(array), len(array) + count)
    return concatenated([carried, others]).take(pa.array(order))


def with_residuals(array: pa.StructArray) -> Mask:
    """The rows that cannot be copied into any schema.

    They have residuals, or invalid columns, or metadata that lacks a name. array: one whose type `is_canonical`. Raises
    MalformedVariantError for malformed metadata.
    """
    return _carried(array, plan(schema_of(array.type)))[1]


@by_type
def is_canonical(kind: pa.DataType) -> bool:
    """Whether a type is the one that `shred` gives a column of its shredding schema."""
    try:
        schema = schema_of(kind)
    except InvalidLayoutError:  # an older layout, perhaps
        return False
    return not pa.types.is_null(schema) and bool(kind == storage_type(schema))


def _carried(array: pa.StructArray, wanted: Plan) -> tuple[pa.StructArray, Mask]:
    """The columns moved to a schema, and the rows for which they are wrong, so that these have to be rebuilt."""
    level, is_null = _Level(len(array)), array.is_null() if array.null_count else None
    columns = nested.arrays(array)
    columns[1:] = level.columns(columns[1:], wanted.root.group)
    level.differs |= ~_any_set(columns[1:])
    valid = _set(array)
    _add_lacking(level, columns[0], valid, wanted)
    level.differs &= valid
    return pa.StructArray.from_arrays(columns, fields=list(wanted.storage), mask=is_null), level.differs


class _Level:
    """All groups with one slot for each row, or for each element of one column of lists.

    differs: the slots for which a column is wrong. names: the names of fields, each with columns one of which is set in every
    slot that has the field.
    """

    def __init__(self, count: int) -> None:
        self.count, self.differs = count, np.zeros(count, np.bool_)
        self.names: list[tuple[str, list[pa.Array]]] = []
        self._nulls = pa.nulls(count, pa.binary())

    def columns(self, own: list[pa.Array], kind: pa.StructType) -> list[pa.Array]:
        """The columns of a group in another type. own: `value`, and `typed_value` if it has one."""
        value, *typed = own
        if value.null_count < self.count:
            is_set = _set(value)
            self.differs |= is_set & ~_are_json_nulls(value)
            for column in typed:
                self.differs |= is_set & _set(column)
        else:
            value = self._nulls
        if kind.num_fields == 1:
            for column in typed:
                self.differs |= _set(column)
            return [value]
        typed_kind = kind.field(1).type
        return [value, self._typed(typed[0], typed_kind) if typed else self._missing(typed_kind)]

    def _typed(self, typed: pa.Array, kind: pa.DataType) -> pa.Array:
        """A `typed_value` in another type."""
        own = typed.type
        if pa.types.is_struct(own) and pa.types.is_struct(kind):
            return self._object(typed, kind)
        if schemas.is_list(own) and schemas.is_list(kind):
            return self._list(typed, kind)
        found = _valid(typed) if own == kind else _widened(typed, kind)
        if found is None:
            self.differs |= _set(typed)
            return self._missing(kind)
        return found

    def _object(self, typed: pa.StructArray, kind: pa.StructType) -> pa.StructArray:
        groups = {field.name: nested.arrays(part) for field, part in zip(typed.type, nested.arrays(typed), strict=True)}
        self.names += groups.items()
        inside = []
        for field in kind:
            own = groups.pop(field.name, None)
            if own is None:
                inside.append(self._missing_group(field.type))
            else:
                inside.append(pa.StructArray.from_arrays(self.columns(own, field.type), fields=list(field.type)))
        for own in groups.values():
            self.differs |= _any_set(own)
        return pa.StructArray.from_arrays(inside, fields=list(kind), mask=typed.is_null() if typed.null_count else None)

    def _list(self, typed: pa.ListArray, kind: pa.ListType) -> pa.ListArray:
        offsets, _ = buffers_of(typed)
        elements = typed.values[int(offsets[0]) : int(offsets[-1])]
        offsets = offsets - offsets[0]
        below = _Level(len(elements))
        columns = below.columns(nested.arrays(elements), kind.value_type)
        below.differs |= ~_any_set(columns)
        if below.differs.any():
            before = np.concatenate([[0], np.cumsum(below.differs)])
            self.differs |= before[offsets[1:]] > before[offsets[:-1]]
        self.names += [(name, [typed]) for name, _ in below.names]
        inside = pa.StructArray.from_arrays(columns, fields=list(kind.value_type))
        mask = typed.is_null() if typed.null_count else None
        return pa.ListArray.from_arrays(pa.array(offsets), inside, type=kind, mask=mask)

    def _missing(self, kind: pa.DataType) -> pa.Array:
        """A `typed_value` that is null everywhere, without nulls in fields that must not be null."""
        if not pa.types.is_struct(kind):
            return pa.nulls(self.count, kind)
        inside = [self._missing_group(field.type) for field in kind]
        return pa.StructArray.from_arrays(inside, fields=list(kind), mask=self._nulls.is_null())

    def _missing_group(self, kind: pa.StructType) -> pa.StructArray:
        columns = [self._nulls, *(self._missing(field.type) for field in list(kind)[1:])]
        return pa.StructArray.from_arrays(columns, fields=list(kind))


def _valid(typed: pa.Array) -> pa.Array | None:
    """The column; None if it has decimals with more digits than their type: other writers' files may have them."""
    if pa.types.is_decimal(typed.type):
        try:
            typed.validate(full=True)
        except pa.ArrowInvalid:
            return None
    return typed


def _widened(typed: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Integers as wider integers or as decimals, and decimals as decimals of at least their scale; None for other types, and
    if a value does not fit."""
    own = typed.type
    if not (t.is_exact(own) and t.is_exact(kind)):
        return None
    if pa.types.is_integer(kind):
        return typed.cast(kind) if pa.types.is_integer(own) and own.bit_width < kind.bit_width else None
    if pa.types.is_decimal(own) and own.scale > kind.scale:
        return None
    try:
        return typed.cast(pa.decimal128(t.MAX_PRECISION, kind.scale)).cast(kind)
    except pa.ArrowInvalid:
        return None


def _add_lacking(level: _Level, metadata: pa.Array, valid: Mask, wanted: Plan) -> None:
    """Adds the rows whose metadata lacks a name of their fields to those that differ. Raises MalformedVariantError."""
    number, faults = empty(len(metadata), np.int32), Faults(0)
    keys = Dictionaries.read(metadata, valid.astype(np.int64) - 1, number, faults)
    has = np.zeros((len(keys.start) - 1, len(wanted.numbers) + 1), np.bool_)  # the last column: of other names
    has[np.repeat(np.arange(len(has)), np.diff(keys.start)), keys.look_up(wanted.names)] = True
    for name, columns in level.names:
        if (at := wanted.numbers.get(name)) is not None and not has[:, at].all():
            level.differs |= _any_set(columns) & ~has[number, at]


def _set(array: pa.Array) -> Mask:
    flags = flags_of(array)
    return flags.view(np.bool_) if len(flags) else np.ones(len(array), np.bool_)


def _any_set(arrays: list[pa.Array]) -> Mask:
    """Where one of the arrays is not null."""
    return reduce(or_, map(_set, arrays))


def _are_json_nulls(value: pa.Array) -> Mask:
    """Where a `value` is a JSON null, which is a byte 0."""
    ends, data = buffers_of(value)
    is_null: Mask = np.diff(ends) == 1
    at = np.flatnonzero(is_null)
    is_null[at] = data[ends[at]] == 0
    return is_null
