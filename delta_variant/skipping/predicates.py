"""Predicates of a query on paths of VARIANT columns, as a tree of frozen dataclasses.

`requests` makes them from Catalyst's expressions. The values of constants stay in Catalyst; a predicate holds their
numbers, and the first of them as text. `negate` pushes NOT down to the leaves. `merged` joins equalities on one path into
one IN. Everything else is `Unknown`, with the reason for `explain`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SHOWN: Final = 5  # constants of a list, in texts for people
_SIMPLE_KEY: Final = re.compile(r"[A-Za-z_]\w*\Z")


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
        """The type of the compared value."""
        return self.casts[-1] if self.casts else self.type

    @property
    def place(self) -> str:
        """The path without its types, `v:a.b`."""
        steps = "".join(f".{key}" if _SIMPLE_KEY.match(key) else f"['{key}']" for key in self.keys)
        return f"{self.name or '.'.join(self.column)}:{steps.removeprefix('.') or '$'}"

    def __str__(self) -> str:
        return "::".join([self.place, self.type, *self.casts])


@dataclass(frozen=True)
class Constants:
    """A constant, or the list of an IN, whose values Catalyst holds under one `number`.

    `texts` are the first of them, for people: hex of UTF-8 for a string, which may be cut, days for a date, microseconds for a
    timestamp. NULL is no value: `size` and `texts` leave it out, `null` says whether it is there.
    """

    type: str
    texts: tuple[str, ...]
    size: int = 1
    null: bool = False
    number: int = 0

    def __str__(self) -> str:
        return _shown((self,))


def _shown(constants: Iterable[Constants]) -> str:
    """The first constants as a person would write them."""
    lists = list(constants)
    texts = [_readable(part.type, text) for part in lists for text in part.texts[:_SHOWN]][:_SHOWN]
    more = ["..."] * (sum(part.size for part in lists) > len(texts))
    return ", ".join([*texts, *more, *["NULL"] * any(part.null for part in lists)])


def _readable(of: str, text: str) -> str:
    if of == "string":
        return repr(bytes.fromhex(text).decode("utf-8", "replace"))
    if of == "date":
        return _moment(days=int(text)).removesuffix(" 00:00:00") or f"day {text}"
    if of.startswith("timestamp"):
        return _moment("Z" * (of == "timestamp"), microseconds=int(text)) or f"{text} us"
    return text


def _moment(zone: str = "", **after_epoch: int) -> str:
    """ISO text; empty outside the years 1 to 9999."""
    try:
        return str(datetime(1970, 1, 1) + timedelta(**after_epoch)) + zone  # noqa: DTZ001  # without a zone on purpose
    except OverflowError:
        return ""


@dataclass(frozen=True)
class Comparison:
    """`path op constant`, with op one of = <> < <= > >= <=>."""

    op: str
    path: Path
    constant: Constants

    def __str__(self) -> str:
        return f"{self.path} {self.op} {self.constant}"


@dataclass(frozen=True)
class In:
    """`path IN (constants)`, or NOT."""

    path: Path
    constants: tuple[Constants, ...]
    negated: bool = False

    def __str__(self) -> str:
        return f"{self.path} {'NOT ' * self.negated}IN ({_shown(self.constants)})"


@dataclass(frozen=True)
class StartsWith:
    """`startswith(path, prefix)`, or NOT."""

    path: Path
    prefix: Constants
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
    """A predicate that bounds cannot answer, and why; without a reason if it does not concern Variant paths."""

    reason: str = ""

    def __str__(self) -> str:
        return "..."


@dataclass(frozen=True)
class Other:
    """A predicate on ordinary columns, which Delta's own data skipping evaluates."""

    number: int
    text: str

    def __str__(self) -> str:
        return self.text


Leaf = Comparison | In | StartsWith | NotNull
Predicate = Leaf | And | Or | Other | Unknown

_OPPOSITE: Final = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def negate(predicate: Predicate) -> Predicate:
    """The negation: TRUE where the predicate is FALSE, FALSE where it is TRUE, NULL where it is NULL."""
    match predicate:
        case Comparison("<=>", path, _):
            return Unknown(f"{path}: NOT <=> is true for rows without the path, of which bounds say nothing")
        case Comparison(op, path, constant):
            return Comparison(_OPPOSITE[op], path, constant)
        case In(path, constants, negated):
            return In(path, constants, not negated)
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


def merged(predicate: Predicate) -> Predicate:
    """An equivalent predicate with fewer leaves.

    In an OR, equalities and INs on one path become one IN: `a = 1 OR a IN (2, 3)` is `a IN (1, 2, 3)`. In an AND, inequalities
    and NOT INs become one NOT IN. Chains of AND, and of OR, become one.
    """
    match predicate:
        case And(parts):
            return _joined(And, _flat(And, parts), negated=True)
        case Or(parts):
            return _joined(Or, _flat(Or, parts), negated=False)
        case _:
            return predicate


def _flat(kind: type[And | Or], parts: Iterable[Predicate]) -> Iterator[Predicate]:
    for part in parts:
        inner = merged(part)
        if isinstance(inner, And | Or) and isinstance(inner, kind):
            yield from inner.parts
        else:
            yield inner


def _joined(kind: type[And | Or], parts: Iterable[Predicate], *, negated: bool) -> Predicate:
    """The parts, with those that list values of one path joined where the first of them stood."""
    joined: dict[Path | int, list[Predicate]] = {}
    for number, part in enumerate(parts):
        joined.setdefault(part.path if _lists(part, negated=negated) else number, []).append(part)  # type: ignore[union-attr]
    whole = tuple(same[0] if len(same) == 1 else _list(same, negated=negated) for same in joined.values())
    return whole[0] if len(whole) == 1 else kind(whole)


def _lists(part: Predicate, *, negated: bool) -> bool:
    match part:
        case Comparison(op, _, _):
            return op in (("<>",) if negated else ("=", "<=>"))
        case In(_, _, not_in):
            return not_in == negated
        case _:
            return False


def _list(parts: Iterable[Predicate], *, negated: bool) -> In:
    constants: list[Constants] = []
    for part in parts:
        match part:
            case Comparison(_, path, constant):
                constants.append(constant)
            case In(path, several, _):
                constants += several
    return In(path, tuple(constants), negated)


def leaves(predicate: Predicate) -> Iterator[Leaf]:
    """The comparisons in a predicate, from left to right."""
    match predicate:
        case And(parts) | Or(parts):
            for part in parts:
                yield from leaves(part)
        case Other() | Unknown():
            pass
        case _:
            yield predicate
