"""What the rows of a file have at a path of a VARIANT column: columns of a Parquet group → Variants, or values of one type.

In: `metadata`, and the `value` and `typed_value` of the group at the path, or of a group above it. Out: Arrow arrays. A row
whose `value` and `typed_value` are null lacks the path. Source: Parquet VariantShredding.

Typed values are cast as columns. The values beside them are shredded to the type that fits most of them and cast as columns
too; the few that are left are cast one by one. The result is that of Spark's `variant_get`.
"""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delta_variant import binary, shredding
from delta_variant import schema as schemas
from delta_variant import types as t
from delta_variant.buffers import NO_FLAGS
from delta_variant.errors import UnsupportedFeatureError
from delta_variant.scanning import casts

if TYPE_CHECKING:
    from delta_variant.scanning.expressions import Keys

_JSON_NULL = b"\0"
_TIMES = (pa.types.is_time, lambda kind: pa.types.is_timestamp(kind) and kind.unit == "ns")


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
        """Whether rows lack the path."""
        return pc.invert(self._present)

    @cached_property
    def _present(self) -> pa.Array:
        parts = [part.is_valid() for part in (self._value, self._typed) if part is not None]
        if not parts:
            return pa.repeat(pa.scalar(False), self._count)
        return parts[0] if len(parts) == 1 else pc.or_(*parts)

    def variant(self) -> pa.Array:
        """The values as VARIANT."""
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
        plain = self.variant()
        schema: pa.DataType = pa.null()
        for key in reversed(keys):
            schema = pa.struct([(key, schema)]) if isinstance(key, str) else pa.list_(schema)
        node = shredding.shred(plain, schema)
        for key in keys:
            typed = pc.struct_field(node, "typed_value")
            node = pc.struct_field(typed, [typed.type.get_field_index(key)]) if isinstance(key, str) else _element(typed, key)
        return Group(plain.field("metadata"), pc.struct_field(node, "value"), None, self._count)

    def completed(self, metadata: pa.Array, value: pa.Array, keys: Keys) -> Group:
        """The values with those that the `value` of a group above has at a path from there, where this group has none."""
        rows = pa.array(np.flatnonzero(np.asarray(value.is_valid())))
        found = Group(metadata.take(rows), value.take(rows), None, len(rows)).at(keys) if len(rows) else self
        if found is self or pc.all(found.missing()).as_py():
            return self
        places = np.full(self._count, -1, np.int64)
        places[np.asarray(rows)] = np.arange(len(rows))
        both = pc.coalesce(self.variant(), found.variant().take(pa.array(places, mask=places < 0)))
        return Group(both.field("metadata"), pc.struct_field(both, "value"), None, self._count)

    def cast(self, kind: pa.DataType, at: dt.tzinfo) -> tuple[pa.Array, npt.NDArray[np.bool_] | None]:
        """The values as a type, and where that fails; None if nowhere. A predicate may ask for it thousands of times."""
        if (kind, at) not in self._casts:
            self._casts[kind, at] = self._cast(kind, at)
        return self._casts[kind, at]

    def _cast(self, kind: pa.DataType, at: dt.tzinfo) -> tuple[pa.Array, npt.NDArray[np.bool_] | None]:
        result: pa.Array | None = None
        failed: npt.NDArray[np.bool_] | None = None
        if self._typed is not None:
            if pa.types.is_nested(self._typed.type):  # an object or a list, whose other fields may be in `value`
                return self._rest(self.variant(), kind, at)
            result = cast_typed(self._typed, kind, at)
            if result.null_count > self._typed.null_count:
                failed = np.asarray(pc.and_(self._typed.is_valid(), result.is_null()))
        if self._value is None:
            return (pa.nulls(self._count, kind) if result is None else result), failed
        beside = pa.StructArray.from_arrays([self._metadata, self._value], ["metadata", "value"], mask=self._value.is_null())
        others, failures = self._rest(beside, kind, at)
        if failures is not None:
            failed = failures if failed is None else failed | failures
        return (others if result is None else pc.coalesce(result, others)), failed

    def _rest(self, variants: pa.Array, kind: pa.DataType, at: dt.tzinfo) -> tuple[pa.Array, npt.NDArray[np.bool_] | None]:
        """Casts Variants of any type."""
        value = variants.field("value")
        asked = pc.and_(
            variants.is_valid(), pc.fill_null(pc.not_equal(value, pa.scalar(_JSON_NULL, value.type)), fill_value=False)
        )
        rows = np.flatnonzero(np.asarray(asked))
        if not len(rows):
            return pa.nulls(self._count, kind), None
        some = variants.take(pa.array(rows))
        found = _cast_variants(some, kind, at)
        places = np.full(self._count, -1, np.int64)
        places[rows] = np.arange(len(rows))
        array = found.take(pa.array(places, mask=places < 0))
        if not found.null_count:
            return array, None
        return array, np.asarray(pc.and_(asked, array.is_null()))


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
        texts = [None if one is None else str(uuid.UUID(bytes=one)) for one in array.to_pylist()]
        return pa.array(texts, kind) if pa.types.is_string(kind) else pa.nulls(len(array), kind)
    if any(is_time(source) for is_time in _TIMES):
        raise UnsupportedFeatureError(
            f"a value is {source}, which Spark cannot read in a Variant", advice="read the VARIANT column"
        )
    if pa.types.is_decimal(source):
        array = array.cast(pa.decimal128(source.precision, source.scale))
        if pa.types.is_string(kind):
            encoded = array.dictionary_encode()
            shown = [_decimal_text(one) for one in encoded.dictionary.to_pylist()]
            return pa.array(shown, kind).take(encoded.indices)
    elif t.is_string(source):
        array = array.cast(pa.string())
    elif t.is_binary(source):
        array = array.cast(pa.binary())
    elif pa.types.is_timestamp(source):
        array = array.cast(casts.LOCAL if source.tz is None else casts.INSTANT)
    if not casts.castable(array.type, kind):
        return pa.nulls(len(array), kind)
    return casts.cast(array, kind, at, in_variant=True)


def _decimal_text(value: Any) -> str:
    """A Variant's decimal has no zeros at its end."""
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _cast_variants(variants: pa.Array, kind: pa.DataType, at: dt.tzinfo) -> pa.Array:
    """Casts Variants, none of them NULL or a JSON null: those of the commonest type as a column, the others one by one."""
    typed = schemas.infer(variants)
    if typed is None or pa.types.is_nested(typed) or pa.types.is_null(typed):
        return _one_by_one(variants, kind, at)
    shredded = shredding.shred(variants, typed)
    result, value = cast_typed(shredded.field("typed_value"), kind, at), shredded.field("value")
    if value.null_count == len(value):
        return result
    rows = np.flatnonzero(np.asarray(value.is_valid()))
    others = _one_by_one(variants.take(pa.array(rows)), kind, at)
    places = np.arange(len(value))
    places[rows] = len(value) + np.arange(len(rows))
    return pa.concat_arrays([result, others]).take(pa.array(places))


def _one_by_one(variants: pa.Array, kind: pa.DataType, at: dt.tzinfo) -> pa.Array:
    metadata, value = variants.field("metadata"), variants.field("value")
    texts = binary.json_column(metadata, value, NO_FLAGS) if pa.types.is_string(kind) else None
    found: list[Any] = []
    known: dict[bytes, Any] = {}
    for row, data in enumerate(value.to_pylist()):
        if data[0] & 3 in (t.OBJECT, t.ARRAY):
            found.append(None if texts is None else texts[row].as_py())
            continue
        if data not in known:
            known[data] = _scalar(binary.decode(b"\x01\x00\x00", data), kind, at)
        found.append(known[data])
    return casts.made(found, kind)


def _scalar(value: Any, kind: pa.DataType, at: dt.tzinfo) -> Any:
    array = _array_of(value)
    found = pa.nulls(1, kind) if array is None else cast_typed(array, kind, at)
    return casts.plain(found)[0]


def _array_of(value: Any) -> pa.Array | None:
    """A scalar that `binary.decode` returned as an array of its type; None for a type that Spark casts to nothing."""
    if isinstance(value, Decimal):
        scale = max(0, -int(value.as_tuple().exponent))
        return pa.array([value], pa.decimal128(38, scale))
    if isinstance(value, bool):
        return pa.array([value])
    if isinstance(value, int):
        return pa.array([value], pa.int64())
    if isinstance(value, float | np.float32):
        return pa.array([float(value)], pa.float32() if isinstance(value, np.float32) else pa.float64())
    if isinstance(value, uuid.UUID):
        return pa.array([value.bytes], pa.binary(16))
    if isinstance(value, str | bytes):
        return pa.array([value])
    if isinstance(value, np.datetime64):
        return casts.made([int(value.astype("datetime64[D]").astype(np.int64))], pa.date32())
    if isinstance(value, dt.datetime):
        micros, kind = casts.moment(value)
        return casts.made([micros], kind)
    if isinstance(value, dt.date):
        return pa.array([value], pa.date32())
    return None
