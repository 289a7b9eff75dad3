"""What a query asks of the paths of VARIANT columns, as a tree of frozen dataclasses.

Made by `optimizer` from Catalyst's expressions. The constants are exact text, so that nothing is lost between the JVM and SQL.
`negate` pushes NOT down to the leaves; what has no leaf of its own is `Unknown`, with the reason for `explain`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator


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

    @property
    def place(self) -> str:
        """The path without its types, `v:a.b`."""
        simple = re.compile(r"[A-Za-z_]\w*\Z")
        steps = "".join(f".{key}" if simple.match(key) else f"['{key}']" for key in self.keys)
        return f"{self.name or '.'.join(self.column)}:{steps.removeprefix('.') or '$'}"

    def __str__(self) -> str:
        return "::".join([self.place, self.type, *self.casts])


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
class NotNull:
    """`path IS NOT NULL`."""

    path: Path

    def __str__(self) -> str:
        return f"{self.path} IS NOT NULL"


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


@dataclass(frozen=True)
class Other:
    """A predicate on ordinary columns, which Delta's own skipping answers."""

    number: int
    text: str

    def __str__(self) -> str:
        return self.text


Leaf = Comparison | In | StartsWith | NotNull
Predicate = Leaf | And | Or | Other | Unknown

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
        case NotNull(path):
            return Unknown(f"{path} IS NULL: bounds say nothing of rows without the path")
        case And(parts):
            return Or(tuple(map(negate, parts)))
        case Or(parts):
            return And(tuple(map(negate, parts)))
        case Other(_, text):
            return Unknown(f"NOT ({text}): not a comparison with a constant")
        case Unknown():
            return predicate


def leaves(predicate: Predicate) -> Iterator[Leaf]:
    """The questions in a predicate, from left to right."""
    match predicate:
        case And(parts) | Or(parts):
            for part in parts:
                yield from leaves(part)
        case Other() | Unknown():
            pass
        case _:
            yield predicate
