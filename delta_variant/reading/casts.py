"""From the value of a typed column to the result of Spark's cast from VARIANT: one table by (type of the column, type asked
for).

`variant_get` casts by Spark's own `Cast` in TRY mode, from BIGINT, DECIMAL, DOUBLE and so on, and raises an error if the
result is NULL. Where Spark's cast from VARIANT does something else, or refuses, the value is converted back to VARIANT
first. The reason for each pair: protocol/README.md, "Typed reading".
"""

from __future__ import annotations

from typing import Final

AS_IS: Final = "as is"
"""The column's value is the answer."""
SAFE: Final = "safe"
"""Spark's cast of the column is the answer; no value fails."""
CHECKED: Final = "checked"
"""Spark's cast of the column is the answer unless it is NULL: then the cast of the value as a Variant is, or its error."""
BY_VARIANT: Final = "by variant"
"""The cast of the value as a Variant is the answer."""

_DIGITS: Final = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_WIDTHS: Final = tuple(_DIGITS)
INTEGERS: Final = frozenset(_DIGITS)
"""The types of integers."""
_FLOATS: Final = ("float", "double")
_TABLE: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "integer": (("float", "double", "boolean", "string"), ()),
    "decimal": (("float", "double", "boolean"), _WIDTHS),
    "float": (("double", "boolean", "string"), (*_WIDTHS, "decimal", "timestamp")),
    "double": (("float", "boolean", "string"), (*_WIDTHS, "decimal", "timestamp")),
    "boolean": ((*_WIDTHS, "float", "double", "string"), ("decimal",)),
    "string": (("binary",), (*_WIDTHS, *_FLOATS, "decimal", "boolean", "date", "timestamp", "timestamp_ntz")),
    "date": (("string",), ("timestamp", "timestamp_ntz")),
    "timestamp": (("date", "timestamp_ntz", "string"), (*_WIDTHS, *_FLOATS, "decimal")),
    "timestamp_ntz": (("date", "string"), ("timestamp",)),
}
"""Kind of column: the types asked for that are SAFE, and those that are CHECKED; all others are BY_VARIANT. Between numbers of
whole digits it is the digits that decide."""


def cast(column: str, asked: str, room: str | None = None) -> str:
    """How a column of that Spark type answers a use that asks for that type; `room` is the smallest type of integers that has
    room for the values, where that is known. `void` is the type of a path that no row has."""
    if column in {asked, "void"}:
        return AS_IS
    if room in INTEGERS and asked in INTEGERS:
        return SAFE if _DIGITS[asked] >= _DIGITS[room] else CHECKED
    kind = "integer" if column in _DIGITS else _head(column)
    if kind in {"integer", "decimal"} and (asked in _DIGITS or _head(asked) == "decimal"):
        if kind == "decimal" and asked in _DIGITS:
            return CHECKED
        (digits, scale), (most, places) = _decimal(column), _decimal(asked)
        return SAFE if most - places >= digits - scale and places >= scale else CHECKED
    safe, checked = _TABLE.get(kind, ((), ()))
    return SAFE if _head(asked) in safe else CHECKED if _head(asked) in checked else BY_VARIANT


def _head(data_type: str) -> str:
    return data_type.partition("(")[0].partition(" ")[0]


def _decimal(data_type: str) -> tuple[int, int]:
    if data_type in _DIGITS:
        return _DIGITS[data_type], 0
    precision, scale = data_type.removeprefix("decimal(").rstrip(")").split(",")
    return int(precision), int(scale)
