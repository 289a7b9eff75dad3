"""What the rows of a file have at a path of a VARIANT column: columns of a Parquet group → Variants, or values of one type.

In: `metadata`, and the `value` and `typed_value` of the group at the path, or of a group above it. Out: Arrow arrays. A row
whose `value` and `typed_value` are null lacks the path. Source: Parquet VariantShredding.

Typed values are cast as columns. The values beside them are shredded, those of each type by itself, and cast as columns too.
The result is that of Spark's `variant_get`.
"""

from __future__ import annotations

import datetime as dt
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delta_variant import binary, shredding
from delta_variant import types as t
from delta_variant.buffers import NO_FLAGS
from delta_variant.errors import UnsupportedFeatureError
from delta_variant.paths import Keys
from delta_variant.queries import casts

_JSON_NULL = b"\0"


class Group:
    """The values of some rows at a path.

    metadata: binary, null only where a row is NULL; None if neither `value` nor a nested `typed_value` is there. value: binary.
    typed: the typed column.
    """

    def __init__(self, metadata: pa.Array | None, value: pa.Array | None, typed: pa.Array | None, count: int) -> None:
        self._metadata, self._count = metadata, count
        self._casts: dict[Any, tuple[pa.Array, npt.NDArray[np.bool_] | None]] = {}
        self._value = None if value is None or value.null_count == count else value
        self._typed = None if typed is None or typed.null_count == count else typed

    def missing(self) -> pa.Array:
        return pc.invert(self._present)

    @cached_property
    def _present(self) -> pa.Array:
        parts = [part.is_valid() for part in (self._value, self._typed) if part is not None]
        if not parts:
            return pa.repeat(pa.scalar(False), self._count)
        return parts[0] if len(parts) == 1 else pc.or_(*parts)

    def variant(self) -> pa.Array:
        columns = {"metadata": self._metadata, "value": self._value, "typed_value": self._typed}
        found = {name: column for name, column in columns.items() if column is not None}
        if self._value is None and self._typed is None:
            return pa.nulls(self._count, shredding.UNSHREDDED)
        if self._metadata is None:  # typed primitives need no names
            found = {"metadata": pa.repeat(pa.scalar(b"\x01\x00\x00", pa.binary()), self._count), **found}
        array = pa.StructArray.from_arrays(list(found.values()), list(found), mask=pc.invert(self._present))
        return shredding.unshred(array)

    def at(self, keys: Keys) -> Group:
        """The values at a path from here, which no typed column above it holds."""
        if not keys:
            return self
        variants = self.variant()
        schema: pa.DataType = pa.null()
        for key in reversed(keys):
            schema = pa.struct([(key, schema)]) if isinstance(key, str) else pa.list_(schema)
        node = shredding.shred(variants, schema)
        for key in keys:
            typed = pc.struct_field(node, "typed_value")
            node = pc.struct_field(typed, [typed.type.get_field_index(key)]) if isinstance(key, str) else _element(typed, key)
        return Group(variants.field("metadata"), pc.struct_field(node, "value"), None, self._count)

    def completed(self, metadata: pa.Array, value: pa.Array, typed: pa.Array, keys: Keys) -> Group:
        """The values with those that a group above has in `value`, at a path from there, in rows without its `typed_value`."""
        rows = np.flatnonzero(np.asarray(pc.and_(value.is_valid(), typed.is_null())))
        some = pa.array(rows)
        found = Group(metadata.take(some), value.take(some), None, len(rows)).at(keys) if len(rows) else self
        if found is self or pc.all(found.missing()).as_py():
            return self
        both = pc.coalesce(self.variant(), _scattered(found.variant(), rows, self._count))
        return Group(both.field("metadata"), pc.struct_field(both, "value"), None, self._count)

    def sort_numbers(self, at: dt.tzinfo) -> pa.Array:
        """The values as DOUBLE; null for strings, even if they look like numbers, and for what has no number."""
        numbers, _ = self.cast(pa.float64(), at)
        is_text = np.zeros(self._count, np.bool_)
        if self._typed is not None and t.is_string(self._typed.type):
            is_text |= np.asarray(self._typed.is_valid())
        if self._value is not None:
            heads = pc.fill_null(pc.binary_slice(self._value, 0, 1), fill_value=_JSON_NULL).dictionary_encode()
            texts = [_type_of(head) == pa.string() for head in heads.dictionary.to_pylist()]
            is_text |= np.array(texts)[np.asarray(heads.indices)]
        return pc.if_else(pa.array(is_text), pa.scalar(None, pa.float64()), numbers) if is_text.any() else numbers

    def cast(self, kind: pa.DataType, at: dt.tzinfo) -> tuple[pa.Array, npt.NDArray[np.bool_] | None]:
        """The values as a type, and where that fails; None if nowhere. A predicate may ask for it thousands of times."""
        if (kind, at) not in self._casts:
            self._casts[kind, at] = self._cast(kind, at)
        return self._casts[kind, at]

    def _cast(self, kind: pa.DataType, at: dt.tzinfo) -> tuple[pa.Array, npt.NDArray[np.bool_] | None]:
        if self._typed is not None and pa.types.is_nested(self._typed.type):  # other fields of an object may be in `value`
            return self._rest(self.variant(), kind, at)
        result, failed = pa.nulls(self._count, kind), None
        if self._typed is not None:
            result = cast_typed(self._typed, kind, at)
            if result.null_count > self._typed.null_count:
                failed = np.asarray(pc.and_(self._typed.is_valid(), result.is_null()))
        if self._value is not None:
            beside = pa.StructArray.from_arrays(
                [self._metadata, self._value], ["metadata", "value"], mask=self._value.is_null()
            )
            others, failures = self._rest(beside, kind, at)
            result = others if self._typed is None else pc.coalesce(result, others)
            failed = failed if failures is None else failures if failed is None else failed | failures
        return result, failed

    def _rest(self, variants: pa.Array, kind: pa.DataType, at: dt.tzinfo) -> tuple[pa.Array, npt.NDArray[np.bool_] | None]:
        """Casts Variants of any type: those of each type as a column."""
        metadata, value = variants.field("metadata"), pc.struct_field(variants, "value")
        heads = pc.fill_null(pc.binary_slice(value, 0, 2), fill_value=_JSON_NULL).dictionary_encode()
        types: dict[pa.DataType | None, list[int]] = {}
        for number, head in enumerate(heads.dictionary.to_pylist()):
            types.setdefault(_type_of(head), []).append(number)
        whole, failed = pa.nulls(self._count, kind), np.zeros(self._count, np.bool_)
        for source, numbers in types.items():
            if source == pa.null():
                continue
            rows = np.flatnonzero(np.isin(np.asarray(heads.indices), numbers))
            some = pa.array(rows)
            if source is not None:
                found = cast_typed(shredding.shred(variants.take(some), source).field("typed_value"), kind, at)
            elif pa.types.is_string(kind):
                found = binary.json_column(metadata.take(some), value.take(some), NO_FLAGS).cast(kind)
            else:
                found = pa.nulls(len(rows), kind)
            failed[rows] = np.asarray(found.is_null())
            whole = found if len(rows) == self._count else pc.coalesce(whole, _scattered(found, rows, self._count))
        return whole, failed if failed.any() else None


def _scattered(array: pa.Array, rows: npt.NDArray[np.int64], count: int) -> pa.Array:
    """The values of some rows at their places among all rows; null in the others."""
    places = np.full(count, -1, np.int64)
    places[rows] = np.arange(len(rows))
    return array.take(pa.array(places, mask=places < 0))


def _element(lists: pa.Array, number: int) -> pa.Array:
    """The elements of that number; null where a list is shorter."""
    offsets = np.asarray(lists.offsets).astype(np.int64)
    at = offsets[:-1] + number
    absent = (at >= offsets[1:]) | np.asarray(lists.is_null())
    return lists.values.take(pa.array(at, mask=absent))


def cast_typed(array: pa.Array, kind: pa.DataType, at: dt.tzinfo) -> pa.Array:
    """The values of a typed column as `variant_get` casts them; null where that fails."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    source = array.type
    if pa.types.is_fixed_size_binary(source) and not pa.types.is_decimal(source):
        return casts.texts(array) if pa.types.is_string(kind) else pa.nulls(len(array), kind)
    plain = t.read_as(source)
    if plain is None:
        raise UnsupportedFeatureError(
            f"a value is {source}, which Spark cannot read in a Variant", advice="read the VARIANT column"
        )
    array = array.cast(plain)
    if pa.types.is_decimal(plain) and pa.types.is_string(kind):
        return casts.texts(array)
    if not casts.castable(array.type, kind):
        return pa.nulls(len(array), kind)
    return casts.cast(array, kind, at, in_variant=True)


def _type_of(head: bytes) -> pa.DataType | None:
    """The type of a Variant that begins with these bytes: null for a JSON null, None for an object or an array."""
    if head == _JSON_NULL:
        return pa.null()
    basic, number = head[0] & 3, head[0] >> 2
    if basic in (t.OBJECT, t.ARRAY):
        return None
    if basic == t.SHORT_STRING:
        return pa.string()
    if number in t.DECIMAL_DIGITS and len(head) > 1 and head[1] <= t.MAX_PRECISION:
        digits = t.DECIMAL_DIGITS[number]
        return pa.decimal128(digits if head[1] <= digits else t.MAX_PRECISION, head[1])  # 5E-20 is a decimal4, too
    known = t.PRIMITIVES[number] if number < len(t.PRIMITIVES) else t.PRIMITIVES[t.TRUE]
    return known.arrow or pa.bool_()  # where none is right, shredding says what is wrong
