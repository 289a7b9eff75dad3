"""Reads some leaf columns of one file: whole VARIANT columns, or typed columns of them without their `value`.

In: an open file, and the names of its VARIANT groups. Out: record batches with the columns asked for, everything else pruned,
also inside structs. Source: VariantShredding, "Objects": the typed columns that are reached through objects only.

Invariant: decimals inside VARIANT groups have the width of their physical type (`physical.exact_schema`), and strings and
binaries are no views.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from delta_variant import layouts, nested
from delta_variant import schema as schemas
from delta_variant.locating import in_rows
from delta_variant.parquet import opening
from delta_variant.parquet.footer import Names, of
from delta_variant.parquet.physical import exact_schema, schema_without_views, with_types
from delta_variant.shredding.reshredder import is_canonical, with_residuals

BATCH_BYTES = 8 << 20
_TEXTS = 1 << 15  # rows of a batch if a text takes less than _CODE bytes: a dictionary then hides how long it is
_CODE = 4
_BUFFER_BYTES = 1 << 20
FIELD_ID = b"PARQUET:field_id"
"""The key of a field's id in the metadata that pyarrow gives the field."""
_GROUP = {"metadata", "value", "typed_value"}
_REMEMBERED = 8
"""How many schemas of files are remembered, and how many selections of leaf columns of each."""
_FEW = 4
"""A batch stays shredded if at most one row in so many has to be rebuilt later."""


@dataclass(frozen=True)
class TypedColumn:
    """A primitive typed column of a VARIANT group that is reached through objects only. Leaf columns are given by number."""

    keys: Names
    """The path of its values in the Variant."""
    kind: pa.DataType
    number: int
    value: int | None
    """The `value` beside it; None if there is none."""
    above: tuple[int, ...]
    """The `value` of each object above it."""


def opened(source: Any, footer: bytes | None = None) -> pq.ParquetFile:
    """Opens a file for `Columns`, which read page by page (`opening.opened`). It reads nothing but the footer from the end of
    the file.
    """
    footer = of(source) if footer is None else footer
    return opening.opened(source, footer, buffer_size=_BUFFER_BYTES)


def group_of(schema: pa.Schema, names: Names, ids: Sequence[int]) -> Names | None:
    """The names that lead to a column in a file; None if the file lacks it.

    names: its physical names in the table. ids: the Parquet field ids of these names, if files are read by id; else empty.
    """
    fields, group = list(schema), []
    for depth, name in enumerate(names):
        if ids:
            found = [field for field in fields if (field.metadata or {}).get(FIELD_ID) == str(ids[depth]).encode()]
        else:
            found = [field for field in fields if field.name == name]
        if not found:
            return None
        group.append(found[0].name)
        fields = list(found[0].type) if pa.types.is_struct(found[0].type) else []
    return tuple(group)


class _Schema:
    """What follows from the schema of a file, the same for all files that have it."""

    def __init__(self, file: pq.ParquetFile, variants: frozenset[Names]) -> None:
        self._parquet, self._arrow, self._variants = file.schema, file.schema_arrow.remove_metadata(), variants
        self.exact = schema_without_views(exact_schema(file, lambda _, names: names in variants)).remove_metadata()
        self.top = pa.struct(list(self.exact))
        self._kept: dict[tuple[int, ...], pa.Schema] = {}
        self._leaves: dict[Names, range] = {}
        self._groups: dict[Names, tuple[pa.StructType, list[int]]] = {}

    def is_of(self, file: pq.ParquetFile, variants: frozenset[Names]) -> bool:
        """Whether a file has this schema. Arrow's schema has the groups and the ids; Parquet's has the leaf columns."""
        same = variants == self._variants and file.schema_arrow.remove_metadata().equals(self._arrow, check_metadata=True)
        return bool(same and file.schema.equals(self._parquet))

    def group(self, names: Names) -> pa.DataType | None:
        kind: pa.DataType | None = self.top
        for name in names:
            kind = child(kind, name)
        return kind

    def leaves(self, names: Names) -> range:
        if names not in self._leaves:
            kind, firsts = self._inside(names[:-1])
            index = kind.get_field_index(names[-1])
            self._leaves[names] = range(firsts[index], firsts[index + 1])
        return self._leaves[names]

    def _inside(self, names: Names) -> tuple[pa.StructType, list[int]]:
        """The type of a group, the first leaf column of each field in it, and that behind the group."""
        if names not in self._groups:
            kind, first = self.group(names), self.leaves(names).start if names else 0
            assert kind is not None
            self._groups[names] = kind, list(accumulate((leaf_count(field.type) for field in kind), initial=first))
        return self._groups[names]

    def kept(self, numbers: Sequence[int]) -> pa.Schema:
        """The schema with these leaf columns alone."""
        key = tuple(numbers)
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) == _REMEMBERED:
                self._kept.clear()
            found = self._kept[key] = pa.schema(_kept(list(self.exact), 0, frozenset(numbers)))
        return found


_schemas: deque[_Schema] = deque(maxlen=_REMEMBERED)


def _schema_of(file: pq.ParquetFile, variants: frozenset[Names]) -> _Schema:
    """The schema of a file; that of an earlier file if it is equal."""
    found = next((one for one in tuple(_schemas) if one.is_of(file, variants)), None)
    if found is None:
        found = _Schema(file, variants)
        _schemas.appendleft(found)
    return found


class Columns:
    """The columns of a file that `opened` returned.

    variants: its VARIANT groups, each as the names that lead to it. Raises InvalidLayoutError for types that Variant does not
    have.
    """

    def __init__(self, file: pq.ParquetFile, variants: Collection[Names]) -> None:
        self._file = file
        self.metadata = file.metadata
        self._schema = _schema_of(file, frozenset(variants))
        self.schema = self._schema.exact

    def group(self, names: Names) -> pa.DataType | None:
        """The type of a column or a field of structs; None if the file lacks it."""
        return self._schema.group(names)

    def leaves(self, names: Names) -> range:
        """The numbers of the leaf columns of a group."""
        return self._schema.leaves(names)

    def validity(self, names: Names) -> range:
        """The leaf columns of a group by which rows without the group are found at least cost: one, or those of a list."""
        first, kind = self.leaves(names).start, self.group(names)
        assert kind is not None
        return min(_units(kind, first), key=lambda unit: sum(map(self.size, unit)))

    def size(self, number: int) -> int:
        """The compressed size of a leaf column."""
        groups = (self.metadata.row_group(i) for i in range(self.metadata.num_row_groups))
        return sum(group.column(number).total_compressed_size for group in groups)

    def typed_columns(self, names: Names) -> Iterator[TypedColumn]:
        """The typed columns of a VARIANT group in the final layout; none of a plain group or one of another layout."""
        yield from _typed(self.group(names), self.leaves(names).start, (), ())

    def variants(self, names: Names, row_group: int = 0) -> Iterator[pa.Array]:
        """The Variants of a group, batch by batch; null where a struct above it is. Errors name the row of the file.

        row_group: the number of the first row group that is read.
        """
        return self._converted(names, row_group, layouts.unshred)

    def shredded(self, names: Names, row_group: int = 0) -> Iterator[pa.Array]:
        """As `variants`, but a batch stays shredded if most of its rows can be copied into another schema (`reshredder`)."""
        return self._converted(names, row_group, _shredded if is_canonical(self.group(names)) else layouts.unshred)

    def _converted(self, names: Names, row_group: int, convert: Callable[[pa.Array], pa.Array]) -> Iterator[pa.Array]:
        first = sum(self.metadata.row_group(number).num_rows for number in range(row_group))
        for batch in self.batches(self.leaves(names), range(row_group, self.metadata.num_row_groups)):
            yield in_rows(lambda rows: convert(nested.in_batch(rows, names)), batch, first)
            first += batch.num_rows

    def batches(
        self, numbers: Collection[int], row_groups: Iterable[int] | None = None, *, use_threads: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The rows of these leaf columns, in batches of about 8 MiB and of one row group at most.

        row_groups: their numbers; None for all. use_threads: whether Arrow's threads decode the columns.
        """
        numbers = sorted(numbers)
        schema = self._schema.kept(numbers)
        for number in range(self.metadata.num_row_groups) if row_groups is None else row_groups:
            group = self.metadata.row_group(number)
            chunks = [group.column(i) for i in numbers]
            size = sum(chunk.total_uncompressed_size for chunk in chunks)
            rows = max(1, min(group.num_rows, group.num_rows * BATCH_BYTES // max(1, size)))
            if any(c.physical_type == "BYTE_ARRAY" and c.total_uncompressed_size < _CODE * c.num_values for c in chunks):
                rows = min(rows, _TEXTS)
            for batch in opening.batches(self._file, rows, [number], numbers, use_threads=use_threads):
                yield opening.check_texts(with_types(batch, schema))


def _shredded(array: pa.StructArray) -> pa.StructArray:
    """The column as it is; its Variants if many rows have to be rebuilt, or if nulls make it large: in Arrow, one takes 4 to 16
    bytes in each column.

    Few such rows are rebuilt later. They are tried here, where an error about one of them gets the row of the file.
    """
    if array.nbytes > 2 * BATCH_BYTES:
        return layouts.unshred(array)
    residual = with_residuals(array)
    count = np.count_nonzero(residual)
    if _FEW * count > len(array):
        return layouts.unshred(array)
    if count:
        layouts.unshred(array.filter(pa.array(residual)))
    return array


def child(kind: pa.DataType | None, name: str) -> pa.DataType | None:
    """The type of a field of a struct; None if there is none."""
    if kind is None or not pa.types.is_struct(kind):
        return None
    index = kind.get_field_index(name)
    return None if index < 0 else kind.field(index).type


def leaf_count(kind: pa.DataType) -> int:
    return sum(leaf_count(kind.field(i).type) for i in range(kind.num_fields)) if pa.types.is_nested(kind) else 1


def _units(kind: pa.DataType, first: int) -> Iterator[range]:
    """The leaf columns inside that are read together: lists are read as a whole. first: the number of the first one."""
    if not pa.types.is_struct(kind):
        yield range(first, first + leaf_count(kind))
        return
    for field in kind:
        yield from _units(field.type, first)
        first += leaf_count(field.type)


def _kept(fields: list[pa.Field], first: int, numbers: frozenset[int]) -> list[pa.Field]:
    """The fields with the leaf columns in `numbers`. first: the number of the first leaf column of the fields."""
    kept = []
    for field in fields:
        count = leaf_count(field.type)
        if pa.types.is_struct(field.type):
            inner = _kept(list(field.type), first, numbers)
            kept += [field.with_type(pa.struct(inner))] if inner else []
        elif numbers.intersection(range(first, first + count)):  # lists are read as a whole
            kept.append(field)
        first += count
    return kept


def _typed(group: pa.DataType | None, first: int, keys: Names, above: tuple[int, ...]) -> Iterator[TypedColumn]:
    if group is None or not pa.types.is_struct(group) or not {field.name for field in group} <= _GROUP:
        return
    numbers: dict[str, int] = {}
    for field in group:
        numbers[field.name] = first
        first += leaf_count(field.type)
    typed = group.field(group.get_field_index("typed_value")).type if "typed_value" in numbers else pa.null()
    value = numbers.get("value")
    if pa.types.is_struct(typed):
        at = numbers["typed_value"]
        for field in typed:
            yield from _typed(field.type, at, (*keys, field.name), above if value is None else (*above, value))
            at += leaf_count(field.type)
    elif "typed_value" in numbers and not schemas.is_list(typed):
        yield TypedColumn(keys, typed, numbers["typed_value"], value, above)


def is_between(group: pq.RowGroupMetaData, start: int, end: int | None) -> bool:
    """Whether a row group begins between these bytes of its file. end: None for the end of the file."""
    column = group.column(0) if group.num_columns else None
    begins = 0 if column is None else int(column.dictionary_page_offset or column.data_page_offset)
    return start <= begins and (end is None or begins < end)
