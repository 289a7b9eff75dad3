"""A query's predicate on Variant paths → a predicate on the bounds in the Delta log. Pure: no Spark, no JVM.

In comes the query's predicate, out goes a predicate on one file's bounds (`stats.minValues`, `stats.maxValues`, `tags`):
a tree whose `sql` Spark evaluates for every file of the table. Bounds: Delta variantShredding, "Statistics for Variant
Columns".

The invariant: the bounds predicate is FALSE only for a file in which no row can make the query's predicate TRUE. A NULL
keeps the file, and everything unknown is NULL: a missing bound, a bound of another type, a bound that does not fit
the type the query asks for. So `<` looks at the minimum alone, `=` at whichever bounds are there, `<>` at whether they are
one value, AND at the sides that help, and OR only where all its sides do. A row without the path makes none of these TRUE.

A query casts the value before it compares; the bound is cast the same way. That is exact as long as the cast keeps
the (weak) order, which is all that is asked of it, for `<>` too: where both bounds become 5, so does what lies between.
`_KINDS_FOR` lists for each type the kinds of bounds for which it does.
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
        if self.type == "boolean":
            return text == "true"
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
    """`path op literal`, with op one of = <> < <= > >= <=>."""

    op: str
    path: Path
    literal: Literal

    def __str__(self) -> str:
        return f"{self.path} {self.op} {self.literal}"


@dataclass(frozen=True)
class In:
    """`path IN (literals)`, or NOT."""

    path: Path
    literals: tuple[Literal, ...]
    negated: bool = False

    def __str__(self) -> str:
        shown = [*map(str, self.literals[:5]), *(["..."] if len(self.literals) > 5 else [])]
        return f"{self.path} {'NOT ' * self.negated}IN ({', '.join(shown)})"


@dataclass(frozen=True)
class StartsWith:
    """`startswith(path, prefix)`, or NOT."""

    path: Path
    prefix: Literal
    negated: bool = False

    def __str__(self) -> str:
        return f"{'NOT ' * self.negated}startswith({self.path}, {self.prefix})"


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


Predicate = Comparison | In | StartsWith | And | Or | Unknown

_OPPOSITE: Final = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def negate(predicate: Predicate) -> Predicate:
    """What is TRUE exactly where the predicate is FALSE; NULL stays NULL."""
    match predicate:
        case Comparison("<=>", path, _):
            return Unknown(f"{path}: NOT <=> is true for rows without the path, of which bounds say nothing")
        case Comparison(op, path, literal):
            return Comparison(_OPPOSITE[op], path, literal)
        case In(path, literals, negated):
            return In(path, literals, not negated)
        case StartsWith(path, prefix, negated):
            return StartsWith(path, prefix, not negated)
        case And(parts):
            return Or(tuple(map(negate, parts)))
        case Or(parts):
            return And(tuple(map(negate, parts)))
        case Unknown():
            return predicate


# ---- the bounds' side ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Check:
    """`bound op literal`; `side` is min or max, op one of < <= > >=, startswith, NOT startswith."""

    side: str
    path: Path
    op: str
    literal: Literal

    def sql(self, trust_all: bool = False) -> str:
        """NULL where the file has no such bound, or one of a type whose order the path's type does not keep."""
        bound = _bound(self.side, self.path, trust_all)
        if self.op.endswith("startswith"):
            return f"({self.op}({bound}, {self.literal.sql}))"
        return f"({bound} {self.op} {self.literal.sql})"


@dataclass(frozen=True)
class OtherThan:
    """Whether the path has values other than these: FALSE where its bounds are one value, and that one is here."""

    path: Path
    literals: tuple[Literal, ...]

    def sql(self, trust_all: bool = False) -> str:
        """See Check."""
        low, high = (_bound(side, self.path, trust_all) for side in ("min", "max"))
        return f"({low} <> {high} OR {low} NOT IN ({', '.join(literal.sql for literal in self.literals)}))"


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


Bounds = Check | OtherThan | AllOf | AnyOf

ROWS_MIGHT_MATCH: Final = AllOf(())
ROWS_CANNOT_MATCH: Final = AnyOf(())

# Kind of bound: the types `schema_of_variant` gives for it, and whether only marked files can be trusted with it:
# delta-spark's own are too narrow where a row group has no footer statistics (a NaN, a value over 4 KB), and booleans'
# it does not write.
_KINDS: Final[dict[str, tuple[tuple[str, ...], bool]]] = {
    "exact": (("BIGINT", "DECIMAL"), False),
    "approximate": (("DOUBLE", "FLOAT"), True),
    "boolean": (("BOOLEAN",), True),
    "string": (("STRING",), True),
    "date": (("DATE",), False),
    "timestamp": (("TIMESTAMP",), False),
    "timestamp_ntz": (("TIMESTAMP_NTZ",), False),
}
# Type asked for: the kinds of bounds whose order Spark's cast to that type keeps, whatever the session's time zone is; a
# query may have been resolved under another zone than it is planned in.
#   Used: between numbers (truncation and rounding keep the order, overflow gives NULL), false and true as 0 and 1 and as
#   text, instants as seconds and seconds as instants, dates as midnights without a zone and back.
#   Not used: numbers as booleans (-1, 0, 1 are true, false, true); numbers, dates and times as text, and text as anything
#   else; and what depends on the zone: timestamp as timestamp_ntz or date and back, which lose the order where clocks
#   change (in St. John's the 29th of October 2006 began twice), and date as timestamp.
_NUMBERS: Final = ("exact", "approximate", "boolean", "timestamp")
_KINDS_FOR: Final[dict[str, tuple[str, ...]]] = {
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
_MAX_RANGES: Final = 64  # an IN of more values is looked up as that many ranges
_MAX_EXCLUDED: Final = 1000  # values of a NOT IN; leaving out some only keeps more files


def translate(predicate: Predicate, bounded: Collection[tuple[str, ...]], *, marked: bool = True) -> tuple[Bounds, list[str]]:
    """The predicate on a file's bounds, and in words why parts of the query could not be used.

    `bounded` names the columns for which the table's statistics can hold Variant bounds at all; `marked` tells whether
    any file's bounds are to be trusted for every kind of value.
    """
    match predicate:
        case Comparison(op, path, literal):
            reason = _useless(path, [literal], bounded, marked)
            return (ROWS_MIGHT_MATCH, [reason]) if reason else (_range(op, path, literal, literal), [])
        case In(path, literals, negated):
            reason = _useless(path, literals, bounded, marked)
            bounds = _none_of(path, literals) if negated else _any_range(path, literals)
            return (ROWS_MIGHT_MATCH, [reason]) if reason else (bounds, [])
        case StartsWith(path, prefix, negated):
            reason = _useless(path, [prefix], bounded, marked)
            return (ROWS_MIGHT_MATCH, [reason]) if reason else (_starting(path, prefix, negated), [])
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
    kinds = _KINDS_FOR.get(path.type.partition("(")[0])
    if path.column not in bounded:
        return f"{path}: the table's statistics hold no Variant bounds for column {path.name or '.'.join(path.column)}"
    if kinds is None:
        return f"{path}: values read as {path.type} have no bounds"
    if not marked and all(_KINDS[kind][1] for kind in kinds):
        return f"{path}: {path.type} bounds count only in files whose Add has the tag {BOUNDS_TAG}; none here has"
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
    if op == "<>" and low.type == "boolean":
        op, low = "=", Literal("boolean", "false" if low.text == "true" else "true")
        high = low
    if op == "<>":
        return OtherThan(path, (low,))
    if op in {"=", "<=>"}:
        return AllOf((Check("min", path, "<=", high), Check("max", path, ">=", low)))
    return Check("min" if op in {"<", "<="} else "max", path, op, low)


def _starting(path: Path, prefix: Literal, negated: bool) -> Bounds:
    """By UTF-8 bytes, what starts with a prefix lies together, from the prefix itself on."""
    if prefix.text is None:
        return ROWS_CANNOT_MATCH
    if negated:
        return AnyOf(tuple(Check(side, path, "NOT startswith", prefix) for side in ("min", "max")))
    not_behind = AnyOf((Check("min", path, "<=", prefix), Check("min", path, "startswith", prefix)))
    return AllOf((not_behind, Check("max", path, ">=", prefix)))


def _none_of(path: Path, literals: Sequence[Literal]) -> Bounds:
    if any(literal.text is None for literal in literals):
        return ROWS_CANNOT_MATCH
    # Spark's InSet takes -0.0 and 0.0 for two values, bounds of zero stand for either.
    floating = path.result in {"float", "double"}
    excluded = {literal for literal in literals if not (floating and literal.order == (False, 0.0))}
    ordered = sorted(excluded, key=lambda literal: literal.order)
    return OtherThan(path, tuple(ordered[:_MAX_EXCLUDED])) if ordered else ROWS_MIGHT_MATCH


def _any_range(path: Path, literals: Sequence[Literal]) -> Bounds:
    ordered = sorted({literal for literal in literals if literal.text is not None}, key=lambda literal: literal.order)
    step = -(-len(ordered) // _MAX_RANGES) or 1
    runs = [ordered[at : at + step] for at in range(0, len(ordered), step)]
    return AnyOf(tuple(_range("=", path, run[0], run[-1]) for run in runs))


def _bound(side: str, path: Path, trust_all: bool) -> str:
    source = ".".join([f"stats.{side}Values", *(f"`{name.replace('`', '``')}`" for name in path.column)])
    key = normalized(path.keys)
    if '"' in key:  # Spark's path syntax knows no escapes, and the key has quotes of both kinds
        source, at = f"try_element_at(try_variant_get({source}, '$', 'map<string,variant>'), {_text(key)})", "'$'"
    else:
        at = _text(f'$["{key}"]')
    kind = f"substring_index(schema_of_variant(try_variant_get({source}, {at}, 'variant')), '(', 1)"
    guards = []
    for needs_mark in (False, True):
        kinds = [_KINDS[name] for name in _KINDS_FOR[path.type.partition("(")[0]]]
        names = [f"'{name}'" for kind_names, mark in kinds if (mark and not trust_all) == needs_mark for name in kind_names]
        marked = f" AND try_element_at(tags, '{BOUNDS_TAG}') = '{BOUNDS_TAG_VALUE}'" * needs_mark
        guards += [f"({kind} IN ({', '.join(names)}){marked})"] if names else []
    # `timestamp` means timestamp_ntz where spark.sql.timestampType says so.
    sql_type = {"timestamp": "timestamp_ltz"}.get(path.type, path.type)
    bound = f"CASE WHEN {' OR '.join(guards)} THEN try_variant_get({source}, {at}, '{sql_type}') END"
    for cast in path.casts:
        bound = f"try_cast({bound} AS {cast})"
    return bound


def _text(text: str) -> str:
    """SQL for a string, in hex: no setting changes how it parses."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


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
