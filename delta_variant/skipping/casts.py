"""Which bounds can answer a comparison: one table by (type of the bound, requested type).

A query casts a value before it compares it, and Spark casts the bound in the same way. This is exact if the cast preserves
the weak order, also for `<>`: if both bounds become 5, so does every value between them. The reason for each pair:
protocol/README.md, "Predicates on bounds".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from delta_variant.skipping.predicates import Path

KINDS: Final[dict[str, tuple[tuple[str, ...], bool]]] = {
    "exact": (("BIGINT", "DECIMAL"), False),
    "approximate": (("DOUBLE", "FLOAT"), True),
    "boolean": (("BOOLEAN",), True),
    "string": (("STRING",), True),
    "date": (("DATE",), False),
    "timestamp": (("TIMESTAMP",), False),
    "timestamp_ntz": (("TIMESTAMP_NTZ",), False),
}
"""Kind of bound → the types that `schema_of_variant` gives for it, and whether it counts only in files with the marker.

String and floating-point bounds of delta-spark can be too narrow if a row group has no footer statistics (a NaN, a value over
4 KB). delta-spark writes no bounds for booleans."""

# Used: casts between numbers (truncation and rounding preserve order, overflow gives NULL), from booleans to numbers (0 and 1)
# and to strings, between timestamps and numbers (seconds), and between dates and timestamp_ntz (midnight).
# Not used: casts from numbers to booleans (-1, 0, 1 become true, false, true), from numbers, dates and times to strings, from
# strings to anything else, and casts that depend on the time zone. Of the latter, timestamp to timestamp_ntz or date, and
# timestamp_ntz to timestamp, lose the order where clocks change (in St. John's the 29th of October 2006 began twice); date to
# timestamp does not. For casts from strings to TIMES, a tag has bounds of its own.
_NUMBERS: Final = ("exact", "approximate", "boolean", "timestamp")
KINDS_FOR: Final[dict[str, tuple[str, ...]]] = {
    "tinyint": _NUMBERS,
    "smallint": _NUMBERS,
    "int": _NUMBERS,
    "bigint": _NUMBERS,
    "decimal": _NUMBERS,
    "float": _NUMBERS,
    "double": _NUMBERS,
    "boolean": ("boolean",),
    "string": ("string", "boolean"),
    "date": ("date", "timestamp_ntz"),
    "timestamp": ("timestamp", "exact", "approximate"),
    "timestamp_ntz": ("timestamp_ntz", "date"),
}
TIMES: Final = ("date", "timestamp", "timestamp_ntz")
"""The types for which strings have bounds of their own, in a tag (`stats.TIMES_TAG`)."""
_INEXACT: Final = ("float", "double")
_DIGITS: Final = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}


def kinds_for(requested: str) -> tuple[str, ...]:
    """The kinds of bounds whose order Spark's cast to the requested type preserves in every time zone: a query may be analyzed
    in one zone and planned in another."""
    return KINDS_FOR.get(requested.partition("(")[0], ())


def indexed_scale(path: Path) -> int | None:
    """The decimal places of the numbers that a path is compared with, -1 for strings; None for a type of which the index knows
    nothing.

    The index has values, and a query compares casts of them. A number that needs no more decimal places than the type asked for
    is the same number after the cast, or the cast fails. A string is the same string.
    """
    if path.text or any(target in _INEXACT for target in path.casts):
        return None
    if path.type == "string":
        return None if path.casts else -1
    if path.type.startswith("decimal("):
        return _decimal(path.type)[1]
    return 0 if path.type in _DIGITS else None


def keeps_order(source: str, target: str) -> bool:
    """Whether a cast between two Spark types never fails, and never makes the smaller of two values the larger one.

    >>> keeps_order("int", "bigint"), keeps_order("bigint", "int"), keeps_order("int", "string")
    (True, False, False)
    """
    if target in {"float", "double"}:
        return source in _DIGITS or source.startswith("decimal") or source in {"float", target}
    if {source, target} == {"date", "timestamp_ntz"}:
        return True
    if target in _DIGITS:
        return source in _DIGITS and _DIGITS[source] <= _DIGITS[target]
    if target.startswith("decimal(") and (source in _DIGITS or source.startswith("decimal(")):
        from_precision, from_scale = (_DIGITS[source], 0) if source in _DIGITS else _decimal(source)
        precision, scale = _decimal(target)
        return precision - scale >= from_precision - from_scale and scale >= from_scale
    return False


def _decimal(data_type: str) -> tuple[int, int]:
    precision, scale = data_type.removeprefix("decimal(").rstrip(")").split(",")
    return int(precision), int(scale)
