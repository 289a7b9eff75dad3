"""Where a file has the columns and paths of a table: names, or ids, of the table's fields → leaf columns of Parquet.

In: the footer of a file, and the table's schema. Out: the names of a column in the file, and the `Place` of a path: its group,
the leaf columns that have its values, and the typed column if it is one.

A path is read from the group at its place and the `value` beside it. A path that no typed column has is in the `value` of the
deepest group above it. In files that may not follow VariantShredding, "Objects", the `value`s above are read too, unless the
footer says that they hold no object (protocol/README.md, T2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from delta_variant import layouts
from delta_variant import schema as shredding_schemas
from delta_variant.errors import InvalidLayoutError
from delta_variant.parquet.columns import Columns, TypedColumn, child
from delta_variant.parquet.footer import Names
from delta_variant.parquet.statistics import Footer
from delta_variant.paths import ELEMENT, MAP_KEY, MAP_VALUE, Keys, object_keys
from delta_variant.queries.fields import Field, Kind, List, Map, Struct, Variant

_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True)
class Place:
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


class Places:
    """Where one file has what. `columns` reads its leaf columns, `footer` has its statistics, `variants` its VARIANT groups."""

    def __init__(self, parquet: pq.ParquetFile, schema: Struct, *, by_id: bool) -> None:
        self.parquet, self.schema = parquet, schema
        arrow = parquet.schema_arrow
        self._by_id = by_id and any(_FIELD_ID in (field.metadata or {}) for field in arrow)
        self.variants: dict[Names, pa.DataType] = {}
        self._find_variants(schema, pa.struct(list(arrow)), ())
        self.columns = Columns(parquet, self.variants)
        self._top = pa.struct(list(self.columns.schema))
        self.footer = Footer(parquet.metadata)
        self.is_legacy = self.footer.is_legacy
        """Whether dates and timestamps are in the calendar that Spark had before version 3."""
        self._places: dict[tuple[tuple[Field, ...], Keys], Place] = {}

    def field(self, kind: pa.DataType, field: Field) -> pa.Field | None:
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
                self.variants[names] = found
            case Struct(fields):
                for field in fields:
                    inner = self.field(found, field)
                    if inner is not None:
                        self._find_variants(field.kind, inner.type, (*names, inner.name))
            case List(element) if shredding_schemas.is_list(found):
                self._find_variants(element, found.value_type, (*names, *ELEMENT))
            case Map(key, value) if pa.types.is_map(found):
                self._find_variants(key, found.key_type, (*names, *MAP_KEY))
                self._find_variants(value, found.item_type, (*names, *MAP_VALUE))

    def names(self, fields: Sequence[Field]) -> Names | None:
        """The names of a column in the file; None if it lacks it."""
        kind, names = self._top, []
        for field in fields:
            found = self.field(kind, field)
            if found is None:
                return None
            names.append(found.name)
            kind = found.type
        return tuple(names)

    def place(self, fields: tuple[Field, ...], keys: Keys) -> Place:
        """Where a path of a VARIANT column is read from."""
        key = (fields, keys)
        if key not in self._places:
            names = self.names(fields)
            self._places[key] = Place(None, (), frozenset()) if names is None else self._find(names, keys)
        return self._places[key]

    def _find(self, names: Names, keys: Keys) -> Place:
        kind, group = self.columns.group(names), names
        above: list[tuple[int, Names, Keys]] = []
        words = {field.name for field in kind} if kind is not None and pa.types.is_struct(kind) else set()
        everything = frozenset(self.columns.leaves(names))
        if not words <= {"metadata", "value", "typed_value"} or "metadata" not in words:
            return Place(names, keys, everything, rebuilt=True)  # an older layout
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
                place = Place(group, rest, frozenset([metadata, *self.columns.leaves(group)]))
            elif value is None or self.footer.is_null(value):
                place = Place(None, (), frozenset())
            else:
                place = Place(group, rest, frozenset([metadata, value]))
            break
        else:
            place = self._here(group, kind, metadata, [number for number, *_ in above], keys)
        doubted = [] if self.footer.has_sparks_key else [one for one in above if self._may_hold_fields(one[0])]
        if not doubted:
            return place
        numbers = place.numbers | {metadata} | {number for number, *_ in doubted}
        return replace(place, numbers=numbers, above=tuple((names, keys) for _, names, keys in doubted))

    def _here(self, group: Names, kind: Any, metadata: int, above: list[int], keys: Keys) -> Place:
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
        return Place(group, (), frozenset(numbers), typed=primitive)

    def _may_hold_fields(self, value: int) -> bool:
        """Whether a `value` may hold objects."""
        return not isinstance(self.footer.residual(value), int)

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
        return column.kind if by_log or self.footer.is_proven(column) else None
