"""The table of casts by (type of the values, type asked for), in the names of Spark's types, and what it says of each pair.

A pair has two lines. In the upper line, `<` says that bounds of the one type answer a comparison in the other. A query casts
values and then compares them. The bound is cast in the same way. The answer is exact if the cast keeps the order, even if it
makes different values equal. This holds for `<>` too: if both bounds become 5, so does every value between them.

The word behind it says how a typed column of the one type answers a query that asks for the other: `variant_get` casts by
Spark's own `Cast` in TRY mode, from BIGINT, DECIMAL, DOUBLE and so on, and raises an error if the result is NULL. Where Spark's
cast from VARIANT does something else, or refuses, the value is converted back to VARIANT first.

The lower line has the kernel of `arrays` that casts without Spark. The reason for each pair: protocol/README.md, "Typed
reading" and "Predicates on bounds".

Not in the table: casts after `variant_get`, which must keep the order and never fail (`keeps_order`); and strings that spell
times, which have bounds of their own (TIMES, in the tag TIMES_TAG).
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Final

import pyarrow as pa

from delta_variant import types as t

AS_IS: Final = "as is"
"""The column's value is the answer."""
SAFE: Final = "safe"
"""Spark's cast of the column is the answer; no value makes it fail."""
CHECKED: Final = "checked"
"""Spark's cast of the column is the answer unless it is NULL. Then the value is cast through VARIANT, which gives the answer or
Spark's error."""
BY_VARIANT: Final = "by variant"
"""The answer is the column cast to VARIANT, and the VARIANT cast to the requested type."""

_TABLE: Final = """
row           bound          integer  decimal  float    double   boolean  string   binary   date     timestamp timestamp_ntz
integer       BIGINT         <digits  <digits  <safe    <safe    safe     safe     -        -        <variant  -
                             within   value    nearest  nearest  nonzero  arrow    -        -        value     -
decimal       DECIMAL        <checked <digits  <safe    <safe    safe     variant  -        -        <variant  -
                             unscaled unscaled value    unscaled unscaled value    -        -        value     -
float         FLOAT*         <checked <checked <variant <safe    safe     safe     -        -        <checked  -
                             value    value    nearest  nearest  value    texts    -        -        value     -
double        DOUBLE*        <checked <checked <safe    <variant safe     safe     -        -        <checked  -
                             value    value    nearest  nearest  value    texts    -        -        value     -
boolean       BOOLEAN*       <safe    <checked <safe    <safe    <variant <safe    -        -        -         -
                             arrow    value    value    value    value    arrow    -        -        -         -
string        STRING*        checked  checked  checked  checked  checked  <variant safe     checked  checked   checked
                             parsed   value    value    value    value    value    arrow    parsed   parsed    parsed
binary        -              -        -        -        -        -        variant  variant  -        -         -
                             -        -        -        -        -        value    value    -        -         -
date          DATE           -        -        -        -        -        safe     -        <variant checked   <checked
                             -        -        -        -        -        value    -        value    value     value
timestamp     TIMESTAMP      <checked <checked <checked <checked -        safe     -        safe     <variant  safe
                             value    value    value    value    -        value    -        days     instants  instants
timestamp_ntz TIMESTAMP_NTZ  -        -        -        -        -        safe     -        <safe    checked   <variant
                             -        -        -        -        -        value    -        days     instants  instants
"""
"""Rows are types of values, columns the types asked for. digits: safe if the type asked for has room for all digits, else
checked; variant: by variant; -: by variant, and Spark has no cast of such a column at all. value: no kernel.

bound: the type that `schema_of_variant` gives for such a bound, with a * if it counts only in files with the marker. String and
floating-point bounds of delta-spark can be too narrow if a row group has no footer statistics (a NaN, a value over 4 KB).
delta-spark writes no bounds for booleans."""
(_, _, *_COLUMNS), *_LINES = (line.split() for line in _TABLE.strip().splitlines())
_CELLS: Final = {
    (row, column): (cell, kernel)
    for (row, _, *cells), kernels in zip(_LINES[::2], _LINES[1::2], strict=True)
    for column, cell, kernel in zip(_COLUMNS, cells, kernels, strict=True)
}
_ARRAY: Final = "array<"
_READ: Final = {"safe": SAFE, "checked": CHECKED}
KINDS: Final = {row: (bound.rstrip("*"), bound.endswith("*")) for row, bound, *_ in _LINES[::2] if bound != "-"}
"""Row of the table → the type of its bounds, and whether they count only in files with the marker."""
TIMES: Final = ("date", "timestamp", "timestamp_ntz")
"""The types for which strings have bounds of their own, in a tag (`stats.TIMES_TAG`)."""


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
    return "integer" if kind in t.INTEGERS else kind if kind in _COLUMNS else ""


def _pair(source: str | pa.DataType, target: str | pa.DataType) -> tuple[str, str]:
    return _CELLS.get((kind_of(source), kind_of(target)), ("-", "-"))


def _has_room(source: str, target: str) -> bool:
    """Whether an exact type has all values of another."""
    return all(room >= needed for room, needed in zip(t.digits(target), t.digits(source), strict=True))


def castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether Spark casts from a Variant primitive to a type at all (`Cast.canAnsiCast`)."""
    return source == target or pa.types.is_null(source) or kernel_of(source, target) != "-"


def kernel_of(source: pa.DataType, target: pa.DataType) -> str:
    """The kernel that casts arrays; `value` if there is none for the pair, and `-` if Spark has no cast."""
    return _pair(source, target)[1]


def reading(column: str, requested: str, room: str | None = None) -> str:
    """How a column of one Spark type answers a use that requests another: AS_IS, SAFE, CHECKED or BY_VARIANT. A cast of arrays
    is made element by element.

    `column` is `void` for a path that no row has. `room` is the smallest integer type that holds all values of the column, if
    that is known.

    >>> reading("int", "bigint"), reading("bigint", "int"), reading("bigint", "int", "smallint"), reading("int", "date")
    ('safe', 'checked', 'safe', 'by variant')
    """
    if column in {requested, "void"}:
        return AS_IS
    if column.startswith(_ARRAY) and requested.startswith(_ARRAY):
        # A cast in TRY mode would not tell an element that it makes NULL from one that is NULL.
        return SAFE if reading(column[len(_ARRAY) : -1], requested[len(_ARRAY) : -1]) in {AS_IS, SAFE} else BY_VARIANT
    if room in t.INTEGERS and requested in t.INTEGERS:
        return SAFE if _has_room(room, requested) else CHECKED
    cell = _pair(column.partition(" ")[0], requested.partition(" ")[0])[0].lstrip("<")
    if cell == "digits":
        return SAFE if _has_room(column, requested) else CHECKED
    return _READ.get(cell, BY_VARIANT)


@cache
def kinds_for(requested: str) -> tuple[str, ...]:
    """The rows of KINDS whose order Spark's cast to the requested type preserves in every time zone: a query may be analyzed in
    one zone and planned in another."""
    return tuple(kind for kind in KINDS if _pair(kind, requested)[0].startswith("<"))


def keeps_order(source: str, target: str) -> bool:
    """Whether a cast between two Spark types never fails, and never makes the smaller of two values the larger one.

    >>> keeps_order("int", "bigint"), keeps_order("bigint", "int"), keeps_order("int", "string")
    (True, False, False)
    """
    if target in t.FLOATS:
        return source == target or kind_of(source) in {"integer", "decimal", "float"}
    if _pair(source, target)[0] == "<digits":
        return _has_room(source, target)
    return {source, target} == {"date", "timestamp_ntz"}
