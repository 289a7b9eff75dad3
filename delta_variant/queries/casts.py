"""Casts between types: one table by (type of the values, type asked for), by the names of Spark's types.

A cell says two things. The first is how a typed column of the one type answers a query that asks for the other: `variant_get`
casts by Spark's own `Cast` in TRY mode, from BIGINT, DECIMAL, DOUBLE and so on, and raises an error if the result is NULL.
Where Spark's cast from VARIANT does something else, or refuses, the value is converted back to VARIANT first. The second, a `<`
before it, is whether bounds of the one type can answer a comparison in the other: a query casts a value before it compares it,
and Spark casts the bound in the same way, which is exact if the cast preserves the weak order, also for `<>`: if both bounds
become 5, so does every value between them. The reason for each pair: protocol/README.md, "Typed reading" and "Predicates on
bounds".
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from delta_variant import types as t

if TYPE_CHECKING:
    from delta_variant.queries.predicates import Path

AS_IS: Final = "as is"
"""The column's value is the answer."""
SAFE: Final = "safe"
"""Spark's cast of the column is the answer; no value makes it fail."""
CHECKED: Final = "checked"
"""Spark's cast of the column is the answer unless it is NULL. Then the value is cast through VARIANT, which gives the answer or
Spark's error."""
BY_VARIANT: Final = "by variant"
"""The answer is the column cast to VARIANT, and the VARIANT cast to the requested type."""

# Used for bounds: casts between numbers (truncation and rounding preserve order, overflow gives NULL), from booleans to numbers
# (0 and 1) and to strings, between timestamps and numbers (seconds), and between dates and timestamp_ntz (midnight).
# Not used: casts from numbers to booleans (-1, 0, 1 become true, false, true), from numbers, dates and times to strings, from
# strings to anything else, and casts that depend on the time zone. Of the latter, timestamp to timestamp_ntz or date, and
# timestamp_ntz to timestamp, lose the order where clocks change (in St. John's the 29th of October 2006 began twice); date to
# timestamp does not. For casts from strings to TIMES, a tag has bounds of its own.
_TABLE: Final = """
bound         row           integer  decimal  float    double   boolean  string   binary   date     timestamp timestamp_ntz
BIGINT        integer       <digits  <digits  <safe    <safe    safe     safe     -        -        <variant  -
DECIMAL       decimal       <checked <digits  <safe    <safe    safe     variant  -        -        <variant  -
FLOAT*        float         <checked <checked <variant <safe    safe     safe     -        -        <checked  -
DOUBLE*       double        <checked <checked <safe    <variant safe     safe     -        -        <checked  -
BOOLEAN*      boolean       <safe    <checked <safe    <safe    <variant <safe    -        -        -         -
STRING*       string        checked  checked  checked  checked  checked  <variant safe     checked  checked   checked
-             binary        -        -        -        -        -        variant  variant  -        -         -
DATE          date          -        -        -        -        -        safe     -        <variant checked   <checked
TIMESTAMP     timestamp     <checked <checked <checked <checked -        safe     -        safe     <variant  safe
TIMESTAMP_NTZ timestamp_ntz -        -        -        -        -        safe     -        <safe    checked   <variant
"""
"""Rows are types of values, columns the types asked for. digits: safe if the type asked for has room for all digits, else
checked; variant: by variant; -: by variant, and Spark has no cast of such a column at all.

bound: the type that `schema_of_variant` gives for such a bound, with a * if it counts only in files with the marker. String and
floating-point bounds of delta-spark can be too narrow if a row group has no footer statistics (a NaN, a value over 4 KB).
delta-spark writes no bounds for booleans."""
(_, _, *_COLUMNS), *_ROWS = (line.split() for line in _TABLE.strip().splitlines())
_CELLS: Final = {(row, column): cell for _, row, *cells in _ROWS for column, cell in zip(_COLUMNS, cells, strict=True)}
_READ: Final = {"safe": SAFE, "checked": CHECKED}
KINDS: Final = {row: (bound.rstrip("*"), bound.endswith("*")) for bound, row, *_ in _ROWS if bound != "-"}
"""Row of the table → the type of its bounds, and whether they count only in files with the marker."""
TIMES: Final = ("date", "timestamp", "timestamp_ntz")
"""The types for which strings have bounds of their own, in a tag (`stats.TIMES_TAG`)."""
_FLOATS: Final = ("float", "double")
INTEGERS: Final = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
"""Spark's integer types, and how many digits they have room for."""


@lru_cache(maxsize=None, typed=True)  # for Arrow, a type equals its name
def kind_of(data_type: str | pa.DataType) -> str:
    """The row of a type in the table; "" if it has none.

    >>> kind_of("smallint"), kind_of("decimal(9,2)"), kind_of("array<int>")
    ('integer', 'decimal', '')
    """
    if not isinstance(data_type, str):
        primitive = t.of_arrow(data_type)
        data_type = (primitive.spark if primitive is not None else None) or ""
    kind = data_type.partition("(")[0]
    return "integer" if kind in INTEGERS else kind if kind in _COLUMNS else ""


@cache
def digits(data_type: str) -> tuple[int, int]:
    """How many digits an exact type has room for before the point, and behind it.

    >>> digits("int"), digits("decimal(9,2)")
    ((10, 0), (7, 2))
    """
    if data_type in INTEGERS:
        return INTEGERS[data_type], 0
    precision, scale = data_type.removeprefix("decimal(").rstrip(")").split(",")
    return int(precision) - int(scale), int(scale)


def _has_room(source: str, target: str) -> bool:
    """Whether an exact type has all values of another."""
    return all(room >= needed for room, needed in zip(digits(target), digits(source), strict=True))


def castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether Spark casts from a Variant primitive to a type at all (`Cast.canAnsiCast`)."""
    return source == target or pa.types.is_null(source) or _CELLS.get((kind_of(source), kind_of(target)), "-") != "-"


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
        return SAFE if _has_room(room, requested) else CHECKED
    cell = _CELLS.get((kind_of(column.partition(" ")[0]), kind_of(requested.partition(" ")[0])), "-").lstrip("<")
    if cell == "digits":
        return SAFE if _has_room(column, requested) else CHECKED
    return _READ.get(cell, BY_VARIANT)


@cache
def kinds_for(requested: str) -> tuple[str, ...]:
    """The rows of KINDS whose order Spark's cast to the requested type preserves in every time zone: a query may be analyzed in
    one zone and planned in another."""
    return tuple(kind for kind in KINDS if _CELLS.get((kind, kind_of(requested)), "-").startswith("<"))


def keeps_order(source: str, target: str) -> bool:
    """Whether a cast between two Spark types never fails, and never makes the smaller of two values the larger one.

    >>> keeps_order("int", "bigint"), keeps_order("bigint", "int"), keeps_order("int", "string")
    (True, False, False)
    """
    if target in _FLOATS:
        return source == target or kind_of(source) in {"integer", "decimal", "float"}
    if _CELLS.get((kind_of(source), kind_of(target))) == "<digits":
        return _has_room(source, target)
    return {source, target} == {"date", "timestamp_ntz"}


def indexed_scale(path: Path) -> int | None:
    """The decimal places of the numbers that a path is compared with, -1 for strings; None for a type of which the index knows
    nothing.

    The index has values, and a query compares casts of them. A number that needs no more decimal places than the type asked for
    is the same number after the cast, or the cast fails. A string is the same string.
    """
    if path.text or any(target in _FLOATS for target in path.casts):
        return None
    if path.type == "string":
        return None if path.casts else -1
    return digits(path.type)[1] if kind_of(path.type) in {"integer", "decimal"} else None
