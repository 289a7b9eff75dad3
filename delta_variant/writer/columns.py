"""Columns as Spark sends them → columns as Parquet holds them.

In: Arrow arrays from Spark, VARIANT as struct<value, metadata>, timestamps in UTC. Out: arrays of the physical schema, VARIANT
as struct<metadata, value> or shredded (VariantShredding), everything but the children of a VARIANT optional, as in Spark's own
files. A VARIANT at the top or in structs can be shredded, one inside an array or a map stays plain, for which Delta has no
bounds.

Invariants: bytes that are no Variant, or one that Spark cannot read back, do not pass, shredded or not. What comes out shares
no memory with what comes in: until its row group is full, a slice would keep all of the batch that Spark sent.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from delta_variant import shredding
from delta_variant.errors import DeltaVariantError, InvalidSchemaError
from delta_variant.paths import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Path = tuple[str, ...]

_PLAIN = re.compile(r"[\w-]+")
_SHOWN, _SHOWN_LENGTH = 8, 50  # columns of a row in an error, characters of each


def physical_type(kind: pa.DataType, path: Path, variants: frozenset[Path], shapes: Mapping[Path, pa.DataType]) -> pa.DataType:
    """How Parquet is to hold a column that Spark delivers as `kind`: everything optional, timestamps in UTC."""

    def child(data_type: pa.DataType, *steps: str) -> pa.DataType:
        return physical_type(data_type, (*path, *steps), variants, shapes)

    if path in variants:
        return shredding.storage_type(shapes.get(path))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, child(f.type, f.name)) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", child(kind.value_type, "list", "element")))
    if pa.types.is_map(kind):
        key, value = child(kind.key_type, "key_value", "key"), child(kind.item_type, "key_value", "value")
        return pa.map_(pa.field("key", key, False), pa.field("value", value))
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp("us", "UTC")
    return kind


def physical(
    array: pa.Array, target: pa.DataType, path: Path, variants: frozenset[Path], shapes: Mapping[Path, pa.DataType]
) -> pa.Array:
    """A column in its physical type. Errors name the VARIANT column."""
    if path in variants:
        with naming(path):
            if path in shapes:
                return shredding.shred(_required(array, ("metadata",)), shapes[path], for_spark=True)
            plain = _required(array, ("metadata", "value"))
            shredding.validate(plain, for_spark=True)
            return plain
    if not any(variant[: len(path)] == path for variant in variants):
        return _copied(array if array.type == target else array.cast(target))
    nulls = array.is_null() if array.null_count else None
    if pa.types.is_struct(target):
        children = [physical(array.field(i), f.type, (*path, f.name), variants, shapes) for i, f in enumerate(target)]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=nulls)
    entry: Callable[..., pa.Array] = lambda values, kind, *steps: physical(values, kind, (*path, *steps), variants, shapes)  # noqa: E731
    array = _copied(array)  # `keys`, `items` and `values` are all that a batch has, whatever slice of it this is
    if pa.types.is_map(target):
        keys = entry(array.keys, target.key_type, "key_value", "key")
        items = entry(array.items, target.item_type, "key_value", "value")
        entries = pa.StructArray.from_arrays([keys, items], fields=[target.key_field, target.item_field])
    else:
        entries = entry(array.values, target.value_type, "list", "element")
    return pa.Array.from_buffers(target, len(array), array.buffers()[:2], offset=array.offset, children=[entries])


def _copied(array: pa.Array) -> pa.Array:
    """The array in memory of its own."""
    return pa.concat_arrays([array])


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Puts the column's name in front of what goes wrong with its values."""
    try:
        yield
    except DeltaVariantError as error:
        raise type(error)(f"column {dotted(path)}: {error}") from error


def dotted(path: Path) -> str:
    """A column's name as users write it."""
    return ".".join(name if _PLAIN.fullmatch(name) else quoted(name) for name in path)


def _required(array: pa.Array, copied: tuple[str, ...]) -> pa.StructArray:
    """A VARIANT column with its children in the order of the specification, and not null as its type says they are.

    copied: those that go into the file as they are. Spark sends nulls under a null row, which pyarrow does not write into
    required columns.
    """
    children = []
    for name in ("metadata", "value"):
        child = array.field(array.type.get_field_index(name))
        child = _copied(child) if name in copied else child
        if child.null_count:
            child = pa.Array.from_buffers(child.type, len(child), [None, *child.buffers()[1:]], offset=child.offset)
        children.append(child)
    nulls = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(shredding.UNSHREDDED), mask=nulls)


def check_nulls(rows: pa.RecordBatch, not_null: tuple[Path, ...]) -> None:
    """InvalidSchemaError for a null where the table says NOT NULL; a field is not asked for under a null parent."""
    names = set(rows.schema.names)
    for path in not_null:
        if path[0] not in names:
            continue  # a partition column
        array = rows.column(path[0])
        present = None
        for name in path[1:]:
            present = array.is_valid() if present is None else pc.and_(present, array.is_valid())
            array = array.field(name)
        if not array.null_count:
            continue
        nulls = array.is_null() if present is None else pc.and_(present, array.is_null())
        missing = pc.sum(nulls).as_py()
        if missing:
            raise InvalidSchemaError(
                f"column {'.'.join(path)} is NOT NULL and {missing} of {len(array)} rows have null there, "
                f"the first of them with values:{_shown(rows, pc.index(nulls, True).as_py())}"
            )


def _shown(rows: pa.RecordBatch, at: int) -> str:
    """Some values of a row, in the form that Delta's errors have."""
    simple = [name for name, kind in zip(rows.schema.names, rows.schema.types, strict=True) if not pa.types.is_nested(kind)]
    values = ((name, rows.column(name)[at].as_py()) for name in simple[:_SHOWN])
    return "".join(f" - {name} : {'null' if value is None else str(value)[:_SHOWN_LENGTH]}" for name, value in values)
