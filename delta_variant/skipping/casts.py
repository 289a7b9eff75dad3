"""Which bounds can answer a comparison: one table by (type of the bound, type asked for).

A query casts a value before it compares it, and Spark casts the bound in the same way. This is exact if the cast preserves
the weak order, also for `<>`: if both bounds become 5, so does every value between them. The reason for each pair:
protocol/README.md, "Predicates on bounds".
"""

from __future__ import annotations

from typing import Final

KINDS: Final[dict[str, tuple[tuple[str, ...], bool]]] = {
    "exact": (("BIGINT", "DECIMAL"), False),
    "approximate": (("DOUBLE", "FLOAT"), True),
    "boolean": (("BOOLEAN",), True),
    "string": (("STRING",), True),
    "date": (("DATE",), False),
    "timestamp": (("TIMESTAMP",), False),
    "timestamp_ntz": (("TIMESTAMP_NTZ",), False),
}
"""Kind of bound: the types `schema_of_variant` gives for it, and whether only marked files can be trusted with it.

delta-spark's own are too narrow where a row group has no footer statistics (a NaN, a value over 4 KB); booleans' it does not
write."""

# Used: between numbers (truncation and rounding keep the order, overflow gives NULL), false and true as 0 and 1 and as text,
# instants as seconds and seconds as instants, dates as midnights without a zone and back.
# Not used: numbers as booleans (-1, 0, 1 are true, false, true); numbers, dates and times as text, and text as anything else;
# and what depends on the zone: timestamp as timestamp_ntz or date and back, which lose the order where clocks change (in
# St. John's the 29th of October 2006 began twice), and date as timestamp.
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
_DIGITS: Final = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}


def kinds_for(asked: str) -> tuple[str, ...]:
    """The kinds of bounds whose order Spark's cast to that type keeps, whatever the session's time zone is; a query may have
    been resolved under another zone than it is planned in."""
    return KINDS_FOR.get(asked.partition("(")[0], ())


def keeps_order(source: str, target: str) -> bool:
    """Whether a cast between these Spark types never fails and never turns a smaller value into a larger one."""
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
