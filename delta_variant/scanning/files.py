"""One data file → the rows that a predicate leaves, as record batches of the columns asked for.

    footer ─▶ which leaf columns answer which column and path ─▶ row groups that can match ─▶ the predicate's columns
        ─▶ rows that match, without deleted ones ─▶ the other columns of row groups with such rows ─▶ the table's types

A path is read from the group at its place and the `value` beside it; nothing else of the VARIANT is read. A path that no typed
column has is in the `value` of the deepest group above it. In files that may not follow VariantShredding, "Objects", the
`value`s above are read too, unless the footer says that they hold no object (protocol/README.md, T2).

Invariant: rows are those of the file, in their order, and a message names the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delta_variant import layouts, skipping
from delta_variant import schema as shredding_schemas
from delta_variant import types as t
from delta_variant.errors import DeltaVariantError, InvalidLayoutError, MalformedVariantError, TableError
from delta_variant.parquet.columns import Columns, TypedColumn
from delta_variant.parquet.statistics import Footer, physical_value
from delta_variant.parquet.tables import unshredded
from delta_variant.parquet_files.fitting import fitted
from delta_variant.parquet_files.reader import is_legacy
from delta_variant.paths import ELEMENT, MAP_KEY, MAP_VALUE
from delta_variant.scanning import casts, schemas
from delta_variant.scanning.expressions import Get, Keys, Literal, Value, evaluate, inputs
from delta_variant.scanning.groups import Group
from delta_variant.scanning.pruning import Known, Predicate, TableFacts, cast_bound
from delta_variant.scanning.schemas import Field, Kind, List, Map, Struct, Variant
from delta_variant.skipping.casts import kinds_for

if TYPE_CHECKING:
    from pyarrow import fs

    from delta_variant.parquet.footer import Names
    from delta_variant.scanning.log import File
    from delta_variant.storage import Storage

_FIELD_ID = b"PARQUET:field_id"
_EMPTY_ROWS = 1 << 16


@dataclass(frozen=True)
class Output:
    """A column of the result."""

    name: str
    value: Value

    @property
    def type(self) -> pa.DataType:
        """Its Arrow type."""
        return schemas.arrow_type(self.value.kind)


@dataclass(frozen=True)
class Query:
    """What is read, the same for all files."""

    storage: Storage
    system: fs.FileSystem
    facts: TableFacts
    by_id: bool
    """Whether columns are found by their ids."""
    outputs: tuple[Output, ...]
    predicate: Predicate | None
    at: tzinfo
    whole: Struct
    """The schema of the table."""

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return pa.schema([pa.field(output.name, output.type) for output in self.outputs])


@dataclass(frozen=True)
class _Place:
    """Where a path is read from."""

    group: Names | None
    """The group, by the names of Parquet; None if the file has nothing at the path."""
    rest: Keys
    """The keys that lead on from the `value` of the group."""
    numbers: frozenset[int]
    rebuilt: bool = False
    """Whether the whole VARIANT is rebuilt first; `rest` is then the whole path."""
    typed: TypedColumn | None = None
    above: tuple[tuple[Names, Keys], ...] = ()
    """The groups above whose `value` may hold the path, and the keys from there."""


class FileReader:
    """Reads one file. Raises TableError, and errors of the codec, with its name."""

    def __init__(self, query: Query, file: File) -> None:
        self._query, self._file = query, file
        self._path = query.storage.file(file.path)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows that match."""
        with self.named(), self._query.system.open_input_file(self._path) as source:
            opened = OpenFile(self._query, self._file, source)
            with opened.parquet:
                yield from opened.rows()

    def footer(self) -> OpenFile:
        """The file for questions that its footer answers."""
        with self.named(), self._query.system.open_input_file(self._path) as source:
            return OpenFile(self._query, self._file, source)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Errors in the `with` block get the name of the file."""
        is_relative = ":" not in self._file.path.partition("/")[0] and not self._file.path.startswith("/")
        name = f"{self._query.storage.name}/{self._file.path}" if is_relative else self._file.path
        try:
            yield
        except FileNotFoundError:
            raise TableError(
                f"{name} is gone: the log of this version has it, so VACUUM or something else has deleted it: scan a newer "
                "version, or restore the file"
            ) from None
        except DeltaVariantError as error:
            raise type(error)(f"{name}: {error}") from error
        except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
            raise TableError(f"{name} cannot be read: {error}: restore the file") from error


class OpenFile:
    """An open file, and where its columns are."""

    def __init__(self, query: Query, file: File, source: Any) -> None:
        self._query, self._file = query, file
        self.parquet = pq.ParquetFile(
            source, arrow_extensions_enabled=False, coerce_int96_timestamp_unit="us", pre_buffer=query.storage.scheme != "file"
        )
        arrow = self.parquet.schema_arrow
        self._by_id = query.by_id and any(_FIELD_ID in (field.metadata or {}) for field in arrow)
        self._variants: dict[Names, pa.DataType] = {}
        self._find_variants(query.whole, pa.struct(list(arrow)), ())
        self._columns = Columns(self.parquet, self._variants)
        self._top = pa.struct(list(self._columns.schema))
        self._footer = Footer(self.parquet.metadata)
        self.is_legacy = is_legacy(self.parquet)
        self._places: dict[tuple[tuple[Field, ...], Keys], _Place] = {}

    # ---- where columns are ----------------------------------------------------------------------------------------

    def _field(self, kind: pa.DataType, field: Field) -> pa.Field | None:
        """The field of a Parquet group for a field of the table."""
        if not pa.types.is_struct(kind):
            return None
        fields = list(kind)
        if self._by_id:
            number = str(field.id).encode()
            return next((one for one in fields if (one.metadata or {}).get(_FIELD_ID) == number), None)
        exact = next((one for one in fields if one.name == field.physical), None)
        return exact or next((one for one in fields if one.name.lower() == field.physical.lower()), None)

    def _find_variants(self, kind: Kind, found: pa.DataType, names: Names) -> None:
        match kind:
            case Variant():
                if not layouts.is_variant(found, annotated=True):
                    raise InvalidLayoutError(f"column {'.'.join(names)} is VARIANT in the table, and {found} in the file")
                self._variants[names] = found
            case Struct(fields):
                for field in fields:
                    inner = self._field(found, field)
                    if inner is not None:
                        self._find_variants(field.kind, inner.type, (*names, inner.name))
            case List(element) if shredding_schemas.is_list(found):
                self._find_variants(element, found.value_type, (*names, *ELEMENT))
            case Map(key, value) if pa.types.is_map(found):
                self._find_variants(key, found.key_type, (*names, *MAP_KEY))
                self._find_variants(value, found.item_type, (*names, *MAP_VALUE))

    def _names(self, fields: Sequence[Field]) -> Names | None:
        """The names of a column in the file; None if it lacks it."""
        kind, names = self._top, []
        for field in fields:
            found = self._field(kind, field)
            if found is None:
                return None
            names.append(found.name)
            kind = found.type
        return tuple(names)

    def place(self, fields: tuple[Field, ...], keys: Keys) -> _Place:
        """Where a path of a VARIANT column is read from."""
        key = (fields, keys)
        if key not in self._places:
            names = self._names(fields)
            self._places[key] = _Place(None, (), frozenset()) if names is None else self._find(names, keys)
        return self._places[key]

    def _find(self, names: Names, keys: Keys) -> _Place:
        kind, group = self._columns.group(names), names
        above: list[tuple[int, Names, Keys]] = []
        words = {field.name for field in kind} if kind is not None and pa.types.is_struct(kind) else set()
        everything = frozenset(self._columns.leaves(names))
        if not words <= {"metadata", "value", "typed_value"} or "metadata" not in words:
            return _Place(names, keys, everything, rebuilt=True)  # an older layout
        metadata = self._columns.leaves((*names, "metadata"))[0]
        for number, key in enumerate(keys):
            assert kind is not None
            typed = _child(kind, "typed_value")
            inner = _child(typed, key) if isinstance(key, str) and typed is not None else None
            value = self._columns.leaves((*group, "value"))[0] if _child(kind, "value") is not None else None
            if inner is not None:
                above += [(value, group, keys[number:])] if value is not None else []
                kind, group = inner, (*group, "typed_value", str(key))
                continue
            rest = keys[number:]
            if isinstance(key, int) and typed is not None and shredding_schemas.is_list(typed):
                place = _Place(group, rest, frozenset([metadata, *self._columns.leaves(group)]))
            elif value is None or self._is_null(value):
                place = _Place(None, (), frozenset())
            else:
                place = _Place(group, rest, frozenset([metadata, value]))
            break
        else:
            place = self._here(group, kind, metadata, [number for number, *_ in above], keys)
        doubted = [] if self._footer.has_sparks_key else [one for one in above if self._may_hold_fields(one[0])]
        if not doubted:
            return place
        numbers = place.numbers | {metadata} | {number for number, *_ in doubted}
        return replace(place, numbers=numbers, above=tuple((names, keys) for _, names, keys in doubted))

    def _here(self, group: Names, kind: Any, metadata: int, above: list[int], keys: Keys) -> _Place:
        """A path that has a group of its own."""
        numbers = set(self._columns.leaves(group)) - {metadata}
        typed = _child(kind, "typed_value")
        value = self._columns.leaves((*group, "value"))[0] if _child(kind, "value") is not None else None
        if value is not None and self._is_null(value):
            numbers.discard(value)
            value = None
        primitive = None
        if typed is not None and not pa.types.is_nested(typed):
            number = self._columns.leaves((*group, "typed_value"))[0]
            names = tuple(key for key in keys if isinstance(key, str))
            beside = self._columns.leaves((*group, "value"))[0] if _child(kind, "value") is not None else None
            primitive = TypedColumn(names, typed, number, beside, tuple(above))
        if value is not None or primitive is None:
            numbers.add(metadata)
        return _Place(group, (), frozenset(numbers), typed=primitive)

    def _may_hold_fields(self, value: int) -> bool:
        """Whether a `value` may hold objects."""
        return not isinstance(self._footer.residual(value), int)

    def _is_null(self, number: int) -> bool:
        return self._footer.null_count(number) == self._footer.count(number)

    def typed(self, fields: tuple[Field, ...], keys: Keys, *, by_log: bool) -> pa.DataType | None:
        """The type of the typed column that holds all values of a path, if that is proven; null if no row has the path.

        by_log: whether the log proves it (T1); else the footer has to (T2, T3).
        """
        place = self.place(fields, keys)
        if not self.parquet.metadata.num_rows or (place.group is None and not place.above):
            return pa.null()
        column = place.typed
        if column is None or place.rest or place.rebuilt:
            return None
        return column.kind if by_log or self._footer.is_proven(column) else None

    # ---- rows -----------------------------------------------------------------------------------------------------

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The rows that match."""
        query, first = self._query, 0
        vector = self._file.deletion_vector
        deleted = None if vector is None else vector.rows(query.storage, query.system)
        if deleted is not None and len(deleted) and int(deleted[-1]) >= self.parquet.metadata.num_rows:
            raise TableError("its deletion vector has rows that the file has not: the log or the file is damaged")
        wanted = self._numbers(value for output in query.outputs for value in inputs(output.value))
        for number in range(self.parquet.metadata.num_row_groups):
            count = self.parquet.metadata.row_group(number).num_rows
            kept = np.ones(count, np.bool_)
            if deleted is not None:
                start, stop = np.searchsorted(deleted, [first, first + count])
                kept[(deleted[start:stop] - np.uint64(first)).astype(np.int64)] = False
            yield from self._group(number, count, kept, wanted, first)
            first += count

    def _group(
        self, number: int, count: int, kept: npt.NDArray[np.bool_], wanted: frozenset[int], first: int
    ) -> Iterator[pa.RecordBatch]:
        predicate = self._query.predicate
        if predicate is not None:
            if not predicate.may_match(RowGroupEvidence(self, number)):
                return
            asked = self._numbers(predicate.inputs)
            together = wanted <= asked
            for at, rows in self._read(number, count, asked, first):
                span = slice(at, at + rows.count)
                found = evaluate(predicate.value, rows, self._query.at, kept[span])
                kept[span] &= np.asarray(pc.fill_null(found, fill_value=False))
                if together and kept[span].any():
                    yield self._output(rows.filtered(kept[span]))
            if together:
                return
        if not kept.any():
            return
        for at, rows in self._read(number, count, wanted, first):
            mask = kept[at : at + rows.count]
            if mask.any():
                yield self._output(rows.filtered(mask))

    def _read(self, number: int, count: int, numbers: frozenset[int], first: int) -> Iterator[tuple[int, Rows]]:
        """The rows of a row group, with the number of the first of them."""
        at = 0
        if not numbers:
            for at in range(0, count, _EMPTY_ROWS):
                yield at, Rows(self, None, min(_EMPTY_ROWS, count - at), first + at)
            return
        for batch in self._columns.batches(numbers, [number], use_threads=True):
            yield at, Rows(self, batch, batch.num_rows, first + at)
            at += batch.num_rows

    def _numbers(self, values: Any) -> frozenset[int]:
        """The leaf columns that columns and paths are read from."""
        numbers: set[int] = set()
        for value in values:
            if isinstance(value, Get):
                numbers |= self.place(value.fields, value.keys).numbers
            elif self._query.facts.partition(self._file, value.fields) is None:
                names = self._names(value.fields)
                numbers |= set() if names is None else set(self._columns.leaves(names))
        return frozenset(numbers)

    def _output(self, rows: Rows) -> pa.RecordBatch:
        arrays = []
        for output in self._query.outputs:
            array = evaluate(output.value, rows, self._query.at)
            arrays.append(array if array.type == output.type else array.cast(output.type))
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * rows.count, pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=self._query.schema)

    def conformed(self, array: pa.Array, kind: Kind) -> pa.Array:
        """A column of the file, with its Variants rebuilt, in the type of the table."""
        match kind:
            case Variant():
                children = [array.field(array.type.get_field_index(name)) for name in ("metadata", "value")]
                return pa.StructArray.from_arrays(children, fields=list(schemas.arrow_type(kind)), mask=array.is_null())
            case Struct(fields):
                children = []
                for field in fields:
                    inner = self._field(array.type, field)
                    index = -1 if inner is None else array.type.get_field_index(inner.name)
                    children.append(
                        pa.nulls(len(array), schemas.arrow_type(field.kind))
                        if index < 0
                        else self.conformed(array.field(index), field.kind)
                    )
                return pa.StructArray.from_arrays(children, fields=list(schemas.arrow_type(kind)), mask=array.is_null())
            case List(element):
                if not pa.types.is_list(array.type):
                    array = array.cast(pa.list_(array.type.value_field))
                child = self.conformed(array.values, element)
                return pa.Array.from_buffers(
                    schemas.arrow_type(kind), len(array), array.buffers()[:2], offset=array.offset, children=[child]
                )
            case Map(key, value):
                built = schemas.arrow_type(kind)
                keys, items = self.conformed(array.keys, key), self.conformed(array.items, value)
                entries = pa.StructArray.from_arrays([keys, items], fields=[built.key_field, built.item_field])
                return pa.Array.from_buffers(built, len(array), array.buffers()[:2], offset=array.offset, children=[entries])
        return fitted(array, kind, is_legacy=self.is_legacy)

    # ---- for Rows and RowGroupEvidence ----------------------------------------------------------------------------

    def column_of(self, rows: Rows, fields: tuple[Field, ...]) -> pa.Array:
        """The values of a column of some rows."""
        constant = self._query.facts.partition(self._file, fields)
        if constant is not None:
            return pa.repeat(casts.made([constant.value], constant.kind)[0], rows.count)
        names, kind = self._names(fields), fields[-1].kind
        if names is None or rows.batch is None:
            return pa.nulls(rows.count, schemas.arrow_type(kind))
        array = _dig(rows.batch, names)
        if any(variant[: len(names)] == names for variant in self._variants):
            one = pa.RecordBatch.from_arrays([array], [".".join(names)])
            inside = {variant[len(names) :] for variant in self._variants if variant[: len(names)] == names}
            array = unshredded(one, lambda _, inner: inner[1:] in inside, rows.first).column(0)
        found = self.conformed(array, kind)
        return pc.utf8_rpad(found, fields[-1].length) if fields[-1].length else found

    def group_of(self, rows: Rows, fields: tuple[Field, ...], keys: Keys) -> Group:
        """What some rows have at a path."""
        place = self.place(fields, keys)
        if rows.batch is None or (place.group is None and not place.above):
            return Group(None, None, None, rows.count)
        names = self._names(fields)
        assert names is not None
        try:
            if place.rebuilt:
                plain = layouts.unshred(_dig(rows.batch, names))
                return Group(plain.field("metadata"), _dig_array(plain, ("value",)), None, rows.count).at(keys)
            parts = {
                name: None if place.group is None else _dig(rows.batch, (*place.group, name))
                for name in ("value", "typed_value")
            }
            metadata = _dig(rows.batch, (*names, "metadata"))
            if place.rest and not isinstance(place.rest[0], int):
                parts["typed_value"] = None
            if self.is_legacy and parts["typed_value"] is not None and t.is_time(parts["typed_value"].type):
                fitted(parts["typed_value"], parts["typed_value"].type, is_legacy=True)
            group = Group(metadata, parts["value"], parts["typed_value"], rows.count).at(place.rest)
            for above, rest in place.above:
                group = group.completed(metadata, _dig(rows.batch, (*above, "value")), rest)
        except (InvalidLayoutError, MalformedVariantError) as error:
            raise type(error)(f"column {'.'.join(names)}: {error}, in rows from {rows.first}") from None
        return group


def _child(kind: Any, name: str) -> pa.DataType | None:
    """The type of a field; None if there is none."""
    if kind is None or not pa.types.is_struct(kind):
        return None
    index = kind.get_field_index(name)
    return None if index < 0 else kind.field(index).type


def _dig(batch: pa.RecordBatch, names: Names) -> Any:
    """The column at some names, null where a struct above it is; None if it was not read."""
    index = batch.schema.get_field_index(names[0])
    return None if index < 0 else _dig_array(batch.column(index), names[1:])


def _dig_array(array: pa.Array, names: Names) -> Any:
    for name in names:
        index = array.type.get_field_index(name) if pa.types.is_struct(array.type) else -1
        if index < 0:
            return None
        array = pc.struct_field(array, [index])
    return array


class Rows:
    """Some rows of a file (`expressions.Rows`)."""

    def __init__(self, file: OpenFile, batch: pa.RecordBatch | None, count: int, first: int) -> None:
        self._file, self.batch, self.count, self.first = file, batch, count, first
        self._columns: dict[Any, pa.Array] = {}
        self._groups: dict[Any, Group] = {}

    def filtered(self, mask: npt.NDArray[np.bool_]) -> Rows:
        """The rows that the mask keeps."""
        if mask.all():
            return self
        batch = None if self.batch is None else self.batch.filter(pa.array(mask))
        return Rows(self._file, batch, int(mask.sum()), self.first)

    def column(self, fields: tuple[Field, ...]) -> pa.Array:
        """The values of a column."""
        if fields not in self._columns:
            self._columns[fields] = self._file.column_of(self, fields)
        return self._columns[fields]

    def path(self, fields: tuple[Field, ...], keys: Keys) -> Group:
        """What the rows have at a path of a VARIANT column."""
        if (fields, keys) not in self._groups:
            self._groups[fields, keys] = self._file.group_of(self, fields, keys)
        return self._groups[fields, keys]


class RowGroupEvidence:
    """What a footer says of the rows of a row group."""

    def __init__(self, file: OpenFile, number: int) -> None:
        self._open, self._group = file, file.parquet.metadata.row_group(number)
        self._known: dict[tuple[Field, ...], Known | None] = {}

    def partition(self, fields: tuple[Field, ...]) -> Literal | None:
        """The value of a partition column."""
        return self._open._query.facts.partition(self._open._file, fields)  # noqa: SLF001  # its own file

    def column(self, fields: tuple[Field, ...]) -> Known | None:
        """What is known of an ordinary column."""
        if fields not in self._known:
            self._known[fields] = self._column(fields)
        return self._known[fields]

    def _column(self, fields: tuple[Field, ...]) -> Known | None:
        constant = self.partition(fields)
        if constant is not None:
            null = constant.value is None
            return Known(constant.value, constant.value, all_null=null, no_null=not null)
        kind, names = fields[-1].kind, self._open._names(fields)  # noqa: SLF001
        if names is None:
            return Known(all_null=True)
        found = self._open._columns.group(names)  # noqa: SLF001
        if (
            not isinstance(kind, pa.DataType)
            or found is None
            or pa.types.is_nested(found)
            or any(f.collated or f.length for f in fields)
        ):
            return None
        low, high, nulls, values = self._statistics(self._open._columns.leaves(names)[0], found)  # noqa: SLF001
        if found != kind and low is not None:
            low, high = (casts.plain(casts.cast(casts.made([one], found), kind))[0] for one in (low, high))
        return Known(low, high, all_null=nulls == values, no_null=nulls == 0)

    def has_values(self, path: skipping.Path) -> bool | None:
        """Whether a row has the path."""
        place = self._place(path)
        if place is None or place.rest or place.rebuilt or place.above:
            return None
        if place.group is None:
            return False
        if place.typed is None:
            return None
        numbers = [n for n in (place.typed.number, place.typed.value) if n is not None]
        return None if not all(self._is_null(number) for number in numbers) else False

    def bound(self, side: str, path: skipping.Path) -> Any:
        """The minimum or the maximum of a path."""
        place = self._place(path)
        column = None if place is None or place.rest or place.rebuilt or place.above else place.typed
        if column is None or path.text:
            return None
        if column.value is not None and not self._only_json_nulls(column.value):
            return None
        kind = column.kind
        if pa.types.is_decimal(kind):
            kind = pa.decimal128(kind.precision, kind.scale)
        if _kind_name(kind) not in kinds_for(path.type):
            return None
        low, high, _, _ = self._statistics(column.number, kind)
        value = low if side == "min" else high
        return None if value is None else cast_bound(value, kind, path, self._open._query.at)  # noqa: SLF001

    def _place(self, path: skipping.Path) -> _Place | None:
        schema: Kind = self._open._query.whole  # noqa: SLF001
        fields: list[Field] = []
        for name in path.column:
            field = next((f for f in schema.fields if f.physical == name), None) if isinstance(schema, Struct) else None
            if field is None:
                return None
            fields.append(field)
            schema = field.kind
        return self._open.place(tuple(fields), path.keys)

    def _is_null(self, number: int) -> bool:
        statistics = self._group.column(number).statistics
        return bool(statistics is not None and statistics.has_null_count and statistics.null_count == self._values(number))

    def _values(self, number: int) -> int:
        return int(self._group.column(number).num_values)

    def _only_json_nulls(self, number: int) -> bool:
        statistics = self._group.column(number).statistics
        if statistics is None or not statistics.has_null_count:
            return False
        if statistics.null_count == self._values(number):
            return True
        return bool(statistics.has_min_max and statistics.min_raw == statistics.max_raw == b"\0")

    def _statistics(self, number: int, kind: pa.DataType) -> tuple[Any, Any, int | None, int]:
        """The minimum and the maximum as `casts.plain` has them, if they can be trusted; the numbers of nulls and values."""
        chunk = self._group.column(number)
        statistics = chunk.statistics
        if statistics is None:
            return None, None, None, chunk.num_values
        nulls = statistics.null_count if statistics.has_null_count else None
        # Writers other than this package leave NaN out, and dates of Spark's old calendar are other days.
        unsafe = pa.types.is_floating(kind) and not self._open._footer.is_ours  # noqa: SLF001
        unsafe |= t.is_time(kind) and self._open.is_legacy
        unsafe |= pa.types.is_timestamp(kind) and (kind.unit != "us" or chunk.physical_type != "INT64")
        unsafe |= not (
            t.is_exact(kind) or pa.types.is_floating(kind) or t.is_string(kind) or t.is_time(kind) or pa.types.is_boolean(kind)
        )
        if unsafe or not statistics.has_min_max:
            return None, None, nulls, chunk.num_values
        return _raw(statistics.min_raw, kind), _raw(statistics.max_raw, kind), nulls, chunk.num_values


def _raw(raw: Any, kind: pa.DataType) -> Any:
    """A value of a footer in the form of `casts.plain`."""
    value = physical_value(kind, raw)
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _kind_name(kind: pa.DataType) -> str:
    """The kind of a bound in `skipping.casts`."""
    if t.is_exact(kind):
        return "exact"
    if pa.types.is_floating(kind):
        return "approximate"
    return schemas.spark_name(pa.string() if t.is_string(kind) else kind)
