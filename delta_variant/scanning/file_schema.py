"""Where a file has the columns and paths of a table: names, or ids, of the table's fields → leaf columns of Parquet → values.

In: the footer of a file, the table's schema, and the leaf columns that were read. Out: the names of a column in the file, and
its values in the type of the table; the `PathGroup` of a path: its group, the leaf columns that have its values, and the typed
column if it is one; and the values at the path.

A path is read from its group and the `value` beside it. A path that no typed column has is in the `value` of the deepest group
above it. In files that may not follow VariantShredding, "Objects", the `value`s above are read too, unless the footer says that
they hold no object (protocol/README.md, T2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delta_variant import layouts, nested
from delta_variant import schema as shredding_schemas
from delta_variant import types as t
from delta_variant.errors import InvalidLayoutError, TableError
from delta_variant.locating import naming
from delta_variant.parquet.columns import FIELD_ID, Columns, TypedColumn, child
from delta_variant.parquet.fitting import fitted
from delta_variant.parquet.footer import Names
from delta_variant.parquet.statistics import Footer
from delta_variant.parquet.tables import unshredded
from delta_variant.paths import ELEMENT, MAP_KEY, MAP_VALUE, Keys, dotted, object_keys
from delta_variant.queries.fields import Field, Kind, List, Map, Struct, Variant, arrow_type, type_name
from delta_variant.scanning.variant_groups import Group


@dataclass(frozen=True)
class PathGroup:
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


class FileSchema:
    """Where one file has what. `columns` reads its leaf columns, `footer` has its statistics, `variants` its VARIANT groups."""

    def __init__(self, parquet: pq.ParquetFile, schema: Struct, *, by_id: bool) -> None:
        self.parquet = parquet
        arrow = parquet.schema_arrow
        self._by_id = by_id and any(FIELD_ID in (field.metadata or {}) for field in arrow)
        self.variants: dict[Names, pa.DataType] = {}
        self._find_variants(schema, pa.struct(list(arrow)), ())
        self.columns = Columns(parquet, self.variants)
        self._top = pa.struct(list(self.columns.schema))
        self._fields: dict[Names, _Fields] = {}
        self.footer = Footer(parquet.metadata)
        self.is_legacy = self.footer.is_legacy
        """Whether dates and timestamps are in the calendar that Spark had before version 3."""
        self._groups: dict[tuple[tuple[Field, ...], Keys], PathGroup] = {}

    def _find_variants(self, kind: Kind, found: pa.DataType, names: Names) -> None:
        match kind:
            case Variant():
                if not layouts.is_variant(found, annotated=True):
                    raise InvalidLayoutError(f"column {dotted(names)} is VARIANT in the table, and {found} in the file")
                self.variants[names] = found
            case Struct(fields):
                group = _Fields(found, by_id=self._by_id)
                for field in fields:
                    inner = group.of(field)
                    if inner is not None:
                        self._find_variants(field.kind, inner.type, (*names, inner.name))
            case List(element) if shredding_schemas.is_list(found):
                self._find_variants(element, found.value_type, (*names, *ELEMENT))
            case Map(key, value) if pa.types.is_map(found):
                self._find_variants(key, found.key_type, (*names, *MAP_KEY))
                self._find_variants(value, found.item_type, (*names, *MAP_VALUE))

    def names(self, fields: Sequence[Field]) -> Names | None:
        """The names of a column in the file; None if it lacks it."""
        names: Names = ()
        kind = self._top
        for field in fields:
            if names not in self._fields:
                self._fields[names] = _Fields(kind, by_id=self._by_id)
            found = self._fields[names].of(field)
            if found is None:
                return None
            index, names = kind.get_field_index(found.name), (*names, found.name)
            if index < 0:
                raise TableError(f"the file has more than one column {dotted(names)}: rewrite it with other names")
            kind = found.type
        return names

    def leaves(self, fields: Sequence[Field]) -> set[int]:
        """The leaf columns of a column; none if the file lacks it."""
        names = self.names(fields)
        return set() if names is None else set(self.columns.leaves(names))

    def path_group(self, fields: tuple[Field, ...], keys: Keys) -> PathGroup:
        """Where a path of a VARIANT column is read from."""
        key = (fields, keys)
        if key not in self._groups:
            names = self.names(fields)
            self._groups[key] = PathGroup(None, (), frozenset()) if names is None else self._find(names, keys)
        return self._groups[key]

    def _find(self, names: Names, keys: Keys) -> PathGroup:
        kind, group = self.columns.group(names), names
        above: list[tuple[int, Names, Keys]] = []
        words = {field.name for field in kind} if kind is not None and pa.types.is_struct(kind) else set()
        everything = frozenset(self.columns.leaves(names))
        if not words <= {"metadata", "value", "typed_value"} or "metadata" not in words:
            return PathGroup(names, keys, everything, rebuilt=True)  # an older layout
        metadata = self.columns.leaves((*names, "metadata"))[0]
        for number, key in enumerate(keys):
            assert kind is not None
            typed = child(kind, "typed_value")
            inner = child(typed, key) if isinstance(key, str) and typed is not None else None
            value = self.columns.leaves((*group, "value"))[0] if child(kind, "value") is not None else None
            if inner is not None:
                above += [(value, group, keys[number:])] if value is not None else []
                kind, group = inner, (*group, "typed_value", str(key))
                continue
            rest = keys[number:]
            if isinstance(key, int) and typed is not None and shredding_schemas.is_list(typed):
                found = PathGroup(group, rest, frozenset([metadata, *self.columns.leaves(group)]))
            elif value is None or self.footer.is_null(value):
                found = PathGroup(None, (), frozenset())
            else:
                found = PathGroup(group, rest, frozenset([metadata, value]))
            break
        else:
            found = self._here(group, kind, metadata, [number for number, *_ in above], keys)
        doubted = (
            [] if self.footer.has_sparks_key else [one for one in above if not isinstance(self.footer.residual(one[0]), int)]
        )
        if not doubted:
            return found
        numbers = found.numbers | {metadata} | {number for number, *_ in doubted}
        for _, above_names, _ in doubted:  # in which rows `typed_value` is null
            objects = (*above_names, "typed_value")
            if not numbers.intersection(self.columns.leaves(objects)):
                numbers |= {*self.columns.validity(objects)}
        return replace(found, numbers=numbers, above=tuple((names, keys) for _, names, keys in doubted))

    def _here(self, group: Names, kind: Any, metadata: int, above: list[int], keys: Keys) -> PathGroup:
        """A path that has a group of its own."""
        numbers = set(self.columns.leaves(group)) - {metadata}
        typed = child(kind, "typed_value")
        beside = self.columns.leaves((*group, "value"))[0] if child(kind, "value") is not None else None
        has_values = beside is not None and not self.footer.is_null(beside)
        if not has_values:
            numbers -= {beside}
        primitive = None
        if typed is not None and not pa.types.is_nested(typed):
            number = self.columns.leaves((*group, "typed_value"))[0]
            primitive = TypedColumn(object_keys(keys) or (), typed, number, beside, tuple(above))
        if has_values or primitive is None:
            numbers.add(metadata)
        return PathGroup(group, (), frozenset(numbers), typed=primitive)

    def typed(self, fields: tuple[Field, ...], keys: Keys, *, by_log: bool) -> pa.DataType | None:
        """The type of the typed column that holds all values of a path, if that is proven; null if no row has the path.

        by_log: whether the log proves it (T1); else the footer has to (T2, T3).
        """
        found = self.path_group(fields, keys)
        if not self.parquet.metadata.num_rows or (found.group is None and not found.above):
            return pa.null()
        column = found.typed
        if column is None or found.rest or found.rebuilt:
            return None
        return column.kind if by_log or self.footer.is_proven(column) else None

    # ---- values -------------------------------------------------------------------------------------------------------

    def column(self, batch: pa.RecordBatch | None, count: int, fields: tuple[Field, ...]) -> pa.Array:
        """The values of a column in `count` rows. batch: the leaf columns that were read of them; None without any."""
        names, kind = self.names(fields), fields[-1].kind
        if names is None or batch is None:
            return pa.nulls(count, arrow_type(kind))
        array = nested.in_batch(batch, names)
        if any(variant[: len(names)] == names for variant in self.variants):
            one = pa.RecordBatch.from_arrays([array], [dotted([field.name for field in fields])])
            inside = {variant[len(names) :] for variant in self.variants if variant[: len(names)] == names}
            array = unshredded(one, lambda _, inner: inner[1:] in inside, 0).column(0)
        with naming(f"column {dotted([field.name for field in fields])}"):
            found = self._conformed(array, kind)
        return pc.utf8_rpad(found, fields[-1].length) if fields[-1].length else found

    def group(self, batch: pa.RecordBatch | None, count: int, fields: tuple[Field, ...], keys: Keys) -> Group:
        """What rows have at a path. batch, count: as for `column`."""
        source = self.path_group(fields, keys)
        if batch is None or (source.group is None and not source.above):
            return Group(None, None, None, count)
        names = self.names(fields)
        assert names is not None
        if source.rebuilt:
            plain = layouts.unshred(nested.in_batch(batch, names))
            return Group(plain.field("metadata"), pc.struct_field(plain, "value"), None, count).at(keys)
        parts = {
            name: None if source.group is None else nested.in_batch(batch, (*source.group, name))
            for name in ("value", "typed_value")
        }
        metadata = nested.in_batch(batch, (*names, "metadata"))
        if source.rest and not isinstance(source.rest[0], int):
            parts["typed_value"] = None
        if self.is_legacy and parts["typed_value"] is not None and t.is_time(parts["typed_value"].type):
            fitted(parts["typed_value"], parts["typed_value"].type, is_legacy=True)
        group = Group(metadata, parts["value"], parts["typed_value"], count).at(source.rest)
        for above, rest in source.above:
            value, typed = (nested.in_batch(batch, (*above, name)) for name in ("value", "typed_value"))
            group = group.completed(metadata, value, typed, rest)
        return group

    def _conformed(self, array: pa.Array, kind: Kind) -> pa.Array:
        """A column of the file, with its Variants rebuilt, in the type of the table."""
        if pa.types.is_null(array.type):
            return pa.nulls(len(array), arrow_type(kind))
        if not isinstance(kind, pa.DataType) and not _has_form(array.type, kind):
            raise TableError(f"it is {type_name(kind)} in the table, and {array.type} in the file")
        match kind:
            case Variant():
                children = [array.field(array.type.get_field_index(name)) for name in ("metadata", "value")]
            case Struct(fields):
                children, group = [], _Fields(array.type, by_id=self._by_id)
                for field in fields:
                    inner = group.of(field)
                    index = -1 if inner is None else array.type.get_field_index(inner.name)
                    children.append(
                        pa.nulls(len(array), arrow_type(field.kind))
                        if index < 0
                        else self._conformed(array.field(index), field.kind)
                    )
            case List(element):
                if not pa.types.is_list(array.type):
                    array = array.cast(pa.list_(array.type.value_field))
                children = [self._conformed(array.values, element)]
            case Map(key, value):
                children = [self._conformed(array.keys, key), self._conformed(array.items, value)]
            case _:
                return fitted(array, kind, is_legacy=self.is_legacy)
        return nested.rebuilt(array, arrow_type(kind), children)


class _Fields:
    """The fields of a Parquet group, by id, or by name and then by name in another case."""

    def __init__(self, kind: pa.DataType, *, by_id: bool) -> None:
        self._by_id, self._numbers = by_id, dict[Any, int]()
        self._fields = list(kind) if pa.types.is_struct(kind) else []
        if by_id:
            known: list[list[Any]] = [[(field.metadata or {}).get(FIELD_ID) for field in self._fields]]
        else:
            names = [field.name for field in self._fields]
            known = [names, [name.lower() for name in names]]
        for keys in known:
            for number, key in enumerate(keys):
                self._numbers.setdefault(key, number)

    def of(self, field: Field) -> pa.Field | None:
        """The one of a field of the table."""
        keys = (str(field.id).encode(),) if self._by_id else (field.physical, field.physical.lower())
        number = next((self._numbers[key] for key in keys if key in self._numbers), None)
        return None if number is None else self._fields[number]


def _has_form(found: pa.DataType, kind: Kind) -> bool:
    """Whether a type of a file has the form of a nested type of the table."""
    match kind:
        case List():
            return shredding_schemas.is_list(found) or pa.types.is_fixed_size_list(found)
        case Map():
            return bool(pa.types.is_map(found))
    return bool(pa.types.is_struct(found))
