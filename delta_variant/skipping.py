"""A query's predicate on Variant paths → a predicate on the bounds in the Delta log. Pure: no Spark, no JVM.

In comes the query's predicate, out goes a predicate on one file's bounds (`stats.minValues`, `stats.maxValues`, `tags`):
a tree whose `sql` Spark evaluates for every file of the table. Bounds: Delta variantShredding, "Statistics for Variant
Columns".

The invariant: the bounds predicate is FALSE only for a file in which no row can make the query's predicate TRUE. A NULL
keeps the file, and everything unknown is NULL: a missing bound, a bound of another type, a bound that does not fit
the type the query asks for. So `<` looks at the minimum alone, `=` at whichever bounds are there, AND at the sides that
help, and OR only where all its sides do.

A query casts the value before it compares; the bound is cast the same way. That is exact as long as the cast keeps
the (weak) order; `_CLASSES_FOR` lists for each type the kinds of bounds for which it does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from delta_variant.paths import normalized
from delta_variant.stats import BOUNDS_TAG, BOUNDS_TAG_VALUE

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


# ---- the query's side ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Path:
    """`variant_get(column, keys, type)`, then `casts` in that order; types in Spark's catalog notation."""

    column: tuple[str, ...]  # physical names; more than one for a VARIANT inside structs
    keys: tuple[str, ...]
    type: str = "variant"
    casts: tuple[str, ...] = ()
    name: str = ""  # how the query calls the column

    @property
    def result(self) -> str:
        """The type that the comparison sees."""
        return self.casts[-1] if self.casts else self.type

    def __str__(self) -> str:
        simple = re.compile(r"[A-Za-z_]\w*\Z")
        steps = "".join(f".{key}" if simple.match(key) else f"['{key}']" for key in self.keys)
        path = f"{self.name or '.'.join(self.column)}:{steps.removeprefix('.') or '$'}"
        return "::".join([path, self.type, *self.casts])


@dataclass(frozen=True)
class Literal:
    """A value as exact text: hex of UTF-8 for a string, days for a date, microseconds for a timestamp; None is NULL."""

    type: str
    text: str | None

    def __str__(self) -> str:
        if self.text is None:
            return "NULL"
        if self.type == "string":
            return repr(bytes.fromhex(self.text).decode("utf-8", "replace"))
        if self.type == "date":
            return _moment(days=int(self.text)).removesuffix(" 00:00:00") or f"day {self.text}"
        if self.type.startswith("timestamp"):
            return _moment("Z" * (self.type == "timestamp"), microseconds=int(self.text)) or f"{self.text} us"
        return self.text

    @property
    def sql(self) -> str:
        """A Spark expression that is this value whatever the session's settings for quotes, ANSI and time zone are."""
        if self.type == "string":
            return f"CAST(X'{self.text}' AS STRING)"
        if self.type == "date":
            return f"date_from_unix_date(CAST('{self.text}' AS INT))"
        if self.type == "timestamp":
            return f"timestamp_micros(CAST('{self.text}' AS BIGINT))"
        return f"CAST('{self if self.type == 'timestamp_ntz' else self.text}' AS {self.type})"

    @property
    def order(self) -> Any:
        """A sort key among literals of the same type, Spark's order."""
        text = self.text or ""
        if self.type == "string":
            return bytes.fromhex(text)
        if self.type in {"float", "double"}:
            return (text == "NaN", 0.0 if text == "NaN" else float(text))
        return Decimal(text)


def _moment(zone: str = "", **after_epoch: int) -> str:
    """ISO text; empty outside the years 1 to 9999."""
    try:
        return str(datetime(1970, 1, 1) + timedelta(**after_epoch)) + zone  # noqa: DTZ001  # without a zone on purpose
    except OverflowError:
        return ""


@dataclass(frozen=True)
class Comparison:
    """`path op literal`, with op one of = < <= > >=."""

    op: str
    path: Path
    literal: Literal

    def __str__(self) -> str:
        return f"{self.path} {self.op} {self.literal}"


@dataclass(frozen=True)
class In:
    """`path IN (literals)`."""

    path: Path
    literals: tuple[Literal, ...]

    def __str__(self) -> str:
        shown = [*map(str, self.literals[:5]), *(["..."] if len(self.literals) > 5 else [])]
        return f"{self.path} IN ({', '.join(shown)})"


@dataclass(frozen=True)
class And:
    """True where all parts are."""

    parts: tuple[Predicate, ...]

    def __str__(self) -> str:
        return f"({' AND '.join(map(str, self.parts))})"


@dataclass(frozen=True)
class Or:
    """True where a part is."""

    parts: tuple[Predicate, ...]

    def __str__(self) -> str:
        return f"({' OR '.join(map(str, self.parts))})"


@dataclass(frozen=True)
class Unknown:
    """Something the bounds say nothing about, and why; no reason where there is nothing to tell the user."""

    reason: str = ""

    def __str__(self) -> str:
        return "..."


Predicate = Comparison | In | And | Or | Unknown


# ---- the bounds' side ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Check:
    """`bound op literal`; `side` is min or max."""

    side: str
    path: Path
    op: str
    literal: Literal

    def sql(self, trust_all: bool = False) -> str:
        """NULL where the file has no such bound, or one of a type whose order the path's type does not keep."""
        return f"({_bound(self.side, self.path, trust_all)} {self.op} {self.literal.sql})"


@dataclass(frozen=True)
class AllOf:
    """Conjunction; of nothing, TRUE."""

    parts: tuple[Bounds, ...]

    def sql(self, trust_all: bool = False) -> str:
        """See Check."""
        return f"({' AND '.join(part.sql(trust_all) for part in self.parts)})" if self.parts else "true"


@dataclass(frozen=True)
class AnyOf:
    """Disjunction; of nothing, FALSE."""

    parts: tuple[Bounds, ...]

    def sql(self, trust_all: bool = False) -> str:
        """See Check."""
        return f"({' OR '.join(part.sql(trust_all) for part in self.parts)})" if self.parts else "false"


Bounds = Check | AllOf | AnyOf

ROWS_MIGHT_MATCH: Final = AllOf(())
ROWS_CANNOT_MATCH: Final = AnyOf(())

# Kind of bound: the types `schema_of_variant` gives for it, and whether only marked files can be trusted with it:
# delta-spark's own are too narrow where a row group has no footer statistics (a NaN, a value over 4 KB).
_CLASSES: Final[dict[str, tuple[str, bool]]] = {
    "exact": ("({0} = 'BIGINT' OR {0} LIKE 'DECIMAL%')", False),
    "approximate": ("{0} IN ('DOUBLE', 'FLOAT')", True),
    "string": ("{0} = 'STRING'", True),
    "date": ("{0} = 'DATE'", False),
    "timestamp": ("{0} = 'TIMESTAMP'", False),
    "timestamp_ntz": ("{0} = 'TIMESTAMP_NTZ'", False),
}
# Type asked for: the kinds of bounds whose order Spark's cast to that type keeps. Truncation, rounding and overflow to
# NULL keep it; between strings and anything else nothing does, and between dates and timestamps the time zone decides.
_CLASSES_FOR: Final[dict[str, tuple[str, ...]]] = {
    "tinyint": ("exact",),
    "smallint": ("exact",),
    "int": ("exact",),
    "bigint": ("exact",),
    "decimal": ("exact",),
    "float": ("exact", "approximate"),
    "double": ("exact", "approximate"),
    "string": ("string",),
    "date": ("date",),
    "timestamp": ("timestamp",),
    "timestamp_ntz": ("timestamp_ntz",),
}
_DIGITS: Final = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_MAX_RANGES: Final = 64  # an IN of more values is looked up as that many ranges


def translate(predicate: Predicate, bounded: Collection[tuple[str, ...]], *, marked: bool = True) -> tuple[Bounds, list[str]]:
    """The predicate on a file's bounds, and in words why parts of the query could not be used.

    `bounded` names the columns for which the table's statistics can hold Variant bounds at all; `marked` tells whether
    any file's bounds are to be trusted for every kind of value.
    """
    match predicate:
        case Comparison(op, path, literal):
            reason = _useless(path, [literal], bounded, marked)
            return (ROWS_MIGHT_MATCH, [reason]) if reason else (_range(op, path, literal, literal), [])
        case In(path, literals):
            reason = _useless(path, literals, bounded, marked)
            return (ROWS_MIGHT_MATCH, [reason]) if reason else (_any_range(path, literals), [])
        case And(parts):
            sides = [translate(part, bounded, marked=marked) for part in parts]
            reasons = [reason for _, reasons in sides for reason in reasons]
            if any(side == ROWS_CANNOT_MATCH for side, _ in sides):
                return ROWS_CANNOT_MATCH, reasons
            useful = tuple(side for side, _ in sides if side != ROWS_MIGHT_MATCH)
            return (useful[0] if len(useful) == 1 else AllOf(useful)), reasons
        case Or(parts):
            sides = [translate(part, bounded, marked=marked) for part in parts]
            if any(side == ROWS_MIGHT_MATCH for side, _ in sides):
                reasons = [reason for _, reasons in sides for reason in reasons]
                return ROWS_MIGHT_MATCH, reasons or ["one side of an OR is not about a Variant path"]
            useful = tuple(side for side, _ in sides if side != ROWS_CANNOT_MATCH)
            return (useful[0] if len(useful) == 1 else AnyOf(useful)), []
        case Unknown(reason):
            return ROWS_MIGHT_MATCH, [reason] if reason else []


def _useless(path: Path, literals: Sequence[Literal], bounded: Collection[tuple[str, ...]], marked: bool) -> str | None:
    kinds = _CLASSES_FOR.get(path.type.partition("(")[0])
    if path.column not in bounded:
        return f"{path}: the table's statistics hold no Variant bounds for column {path.name or '.'.join(path.column)}"
    if kinds is None:
        return f"{path}: values read as {path.type} have no bounds"
    if not marked and all(_CLASSES[kind][1] for kind in kinds):
        return f"{path}: {path.type} bounds count only in files whose Add has the tag {BOUNDS_TAG}; none here has"
    if any('"' in key for key in path.keys):
        return f"{path}: Spark's path syntax has no way to look up a key with a double quote"
    for literal in literals:
        if literal.type != path.result:
            return f"{path}: compared with a {literal.type}"
        if literal.type == "timestamp_ntz" and literal.text is not None and str(literal).endswith("us"):
            return f"{path}: {literal} is outside the years 1 to 9999"
    return None


def _range(op: str, path: Path, low: Literal, high: Literal) -> Bounds:
    """Whether a value v with `v op low` may be there; for op `=`, one with low <= v <= high. NULL equals nothing."""
    if low.text is None:
        return ROWS_CANNOT_MATCH
    if op == "=":
        return AllOf((Check("min", path, "<=", high), Check("max", path, ">=", low)))
    return Check("min" if op in {"<", "<="} else "max", path, op, low)


def _any_range(path: Path, literals: Sequence[Literal]) -> Bounds:
    ordered = sorted({literal for literal in literals if literal.text is not None}, key=lambda literal: literal.order)
    step = -(-len(ordered) // _MAX_RANGES) or 1
    runs = [ordered[at : at + step] for at in range(0, len(ordered), step)]
    return AnyOf(tuple(_range("=", path, run[0], run[-1]) for run in runs))


def _bound(side: str, path: Path, trust_all: bool) -> str:
    values = ".".join([f"stats.{side}Values", *(f"`{name.replace('`', '``')}`" for name in path.column)])
    bound_key = '$["' + normalized(path.keys) + '"]'
    key = f"CAST(X'{bound_key.encode().hex()}' AS STRING)"  # hex: no setting changes how it parses
    found = f"schema_of_variant(try_variant_get({values}, {key}, 'variant'))"
    marked = f"try_element_at(tags, '{BOUNDS_TAG}') = '{BOUNDS_TAG_VALUE}'"
    guards = []
    for name in _CLASSES_FOR[path.type.partition("(")[0]]:
        is_class, needs_mark = _CLASSES[name]
        guard = is_class.format(found)
        guards.append(f"({guard} AND {marked})" if needs_mark and not trust_all else guard)
    # `timestamp` means timestamp_ntz where spark.sql.timestampType says so.
    sql_type = {"timestamp": "timestamp_ltz"}.get(path.type, path.type)
    bound = f"CASE WHEN {' OR '.join(guards)} THEN try_variant_get({values}, {key}, '{sql_type}') END"
    for cast in path.casts:
        bound = f"try_cast({bound} AS {cast})"
    return bound


def keeps_order(source: str, target: str) -> bool:
    """Whether a cast between these Spark types never fails and never turns a smaller value into a larger one."""
    if target in {"float", "double"}:
        return source in _DIGITS or source.startswith("decimal") or source in {"float", target}
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
