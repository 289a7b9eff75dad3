"""From the value of a typed column to the result of Spark's cast from VARIANT: one table by (type of the column, requested
type).

`variant_get` casts by Spark's own `Cast` in TRY mode, from BIGINT, DECIMAL, DOUBLE and so on, and raises an error if the
result is NULL. Where Spark's cast from VARIANT does something else, or refuses, the value is converted back to VARIANT
first. The reason for each pair: protocol/README.md, "Typed reading".
"""

from __future__ import annotations

from typing import Final

AS_IS: Final = "as is"
"""The column's value is the answer."""
SAFE: Final = "safe"
"""Spark's cast of the column is the answer; no value makes it fail."""
CHECKED: Final = "checked"
"""Spark's cast of the column is the answer unless it is NULL. Then the value is cast through VARIANT, which gives the answer or
Spark's error."""
BY_VARIANT: Final = "by variant"
"""The answer is the column cast to VARIANT, and the VARIANT cast to the requested type."""

_DIGITS: Final = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_WIDTHS: Final = tuple(_DIGITS)
INTEGERS: Final = frozenset(_DIGITS)
"""Spark's integer types."""
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
"""Type of the column → the requested types that are SAFE, and those that are CHECKED; all others are BY_VARIANT. Between
integers and decimals, `cast` compares the digits instead."""


def cast(column: str, requested: str, room: str | None = None) -> str:
    """How a column of one Spark type answers a use that requests another: AS_IS, SAFE, CHECKED or BY_VARIANT.

    `column` is `void` for a path that no row has. `room` is the smallest integer type that holds all values of the column, if
    that is known.

    >>> cast("int", "bigint"), cast("bigint", "int"), cast("bigint", "int", "smallint"), cast("int", "date")
    ('safe', 'checked', 'safe', 'by variant')
    """
    if column in {requested, "void"}:
        return AS_IS
    if room in INTEGERS and requested in INTEGERS:
        return SAFE if _DIGITS[requested] >= _DIGITS[room] else CHECKED
    kind = "integer" if column in _DIGITS else _head(column)
    if kind in {"integer", "decimal"} and (requested in _DIGITS or _head(requested) == "decimal"):
        if kind == "decimal" and requested in _DIGITS:
            return CHECKED
        (digits, scale), (requested_digits, requested_scale) = _decimal(column), _decimal(requested)
        return SAFE if requested_digits - requested_scale >= digits - scale and requested_scale >= scale else CHECKED
    safe, checked = _TABLE.get(kind, ((), ()))
    return SAFE if _head(requested) in safe else CHECKED if _head(requested) in checked else BY_VARIANT


def _head(data_type: str) -> str:
    return data_type.partition("(")[0].partition(" ")[0]


def _decimal(data_type: str) -> tuple[int, int]:
    if data_type in _DIGITS:
        return _DIGITS[data_type], 0
    precision, scale = data_type.removeprefix("decimal(").rstrip(")").split(",")
    return int(precision), int(scale)
