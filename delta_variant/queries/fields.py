"""The columns of a Delta table: the JSON of its schema in the log → fields with logical and physical names, and their types.

Source: Delta PROTOCOL.md, "Schema Serialization Format" and "Column Mapping". A VARIANT is
struct<metadata: binary not null, value: binary not null>, as `parquet.read_table` returns it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from delta_variant import types as t
from delta_variant.errors import TableError, UnsupportedFeatureError
from delta_variant.paths import dotted
from delta_variant.shredding import UNSHREDDED

_COLLATIONS = "__COLLATIONS"
_CHAR = "__CHAR_VARCHAR_TYPE_STRING"


@dataclass(frozen=True)
class Variant:
    """The type VARIANT."""


@dataclass(frozen=True)
class Struct:
    """A struct."""

    fields: tuple[Field, ...]

    def field(self, name: str) -> Field | None:
        """The field of that name, without regard to case; None if there is none."""
        return next((field for field in self.fields if field.name.lower() == name.lower()), None)


@dataclass(frozen=True)
class List:
    """A list."""

    element: Kind


@dataclass(frozen=True)
class Map:
    """A map."""

    key: Kind
    value: Kind


NESTED_CHAR = -1
"""The length of a column that has CHARs inside it."""
Kind: TypeAlias = "pa.DataType | Variant | Struct | List | Map"


@dataclass(frozen=True)
class Field:
    """A column, or a field of a struct."""

    name: str
    physical: str
    """Its name in Parquet files, statistics and partition values."""
    id: int | None
    """Its id in Parquet files, if columns are mapped."""
    kind: Kind
    collated: bool = False
    """Whether its strings, or those inside it, have a collation."""
    length: int = 0
    """The length of a CHAR, to which readers pad its values: files and statistics have them unpadded. 0 for other types."""


def arrow_type(kind: Kind) -> pa.DataType:
    match kind:
        case Variant():
            return UNSHREDDED
        case Struct(fields):
            return pa.struct([pa.field(field.name, arrow_type(field.kind)) for field in fields])
        case List(element):
            return pa.list_(pa.field("element", arrow_type(element)))
        case Map(key, value):
            return pa.map_(arrow_type(key), arrow_type(value))
    return kind


def type_name(kind: Kind) -> str:
    """The name of a type in Spark, `variant` and `decimal(10,2)`; for types with fields, that in Arrow."""
    return "variant" if isinstance(kind, Variant) else t.spark_name(arrow_type(kind))


def parse(schema: Mapping[str, Any], *, mapped: bool) -> Struct:
    """The schema of a table. mapped: whether columns have physical names. Raises UnsupportedFeatureError for unknown types."""
    return Struct(tuple(_field(field, mapped=mapped) for field in schema["fields"]))


def _field(field: Mapping[str, Any], *, mapped: bool) -> Field:
    metadata, name = field.get("metadata") or {}, str(field["name"])
    physical, number = name, None
    if mapped:
        physical = metadata.get("delta.columnMapping.physicalName", name)
        number = metadata.get("delta.columnMapping.id")
    collated = _COLLATIONS in metadata or "collate" in str(field["type"])
    declared = str(metadata.get(_CHAR, "")).lower()
    char = re.fullmatch(r"char\((\d+)\)", declared)
    length = int(char[1]) if char else NESTED_CHAR if re.search(r"\bchar\(", declared) else 0
    return Field(name, physical, number, _kind(field["type"], name, mapped=mapped), collated, length)


def _kind(kind: Any, name: str, *, mapped: bool) -> Kind:
    if isinstance(kind, str):
        if kind == "variant":
            return Variant()
        kind = kind.partition(" collate ")[0]
        try:
            return t.of_spark(kind)
        except KeyError:
            raise UnsupportedFeatureError(
                f"column {name} is {kind}, a type that delta_variant.scan does not know: use Spark"
            ) from None
    match kind["type"]:
        case "struct":
            return parse(kind, mapped=mapped)
        case "array":
            return List(_kind(kind["elementType"], name, mapped=mapped))
        case "map":
            return Map(_kind(kind["keyType"], name, mapped=mapped), _kind(kind["valueType"], name, mapped=mapped))
    raise UnsupportedFeatureError(f"column {name} has a type that delta_variant.scan does not know: use Spark")


def resolved(schema: Struct, names: Sequence[str]) -> tuple[Field, ...]:
    """The fields that lead to a column or a field of structs. Raises TableError, with the names that there are."""
    fields: list[Field] = []
    kind: Kind = schema
    for name in names:
        field = kind.field(name) if isinstance(kind, Struct) else None
        if field is None:
            known = ", ".join(f.name for f in kind.fields) if isinstance(kind, Struct) else ""
            inside = f"{dotted([f.name for f in fields])} is not a struct" if not known else f"there are {known}"
            raise TableError(f"there is no column {dotted(names)}: {inside}")
        if field.length == NESTED_CHAR:
            raise UnsupportedFeatureError(
                f"column {field.name} has CHAR inside it, which delta_variant.scan cannot pad: leave it out, or use Spark"
            )
        fields.append(field)
        kind = field.kind
    return tuple(fields)
