"""Predicates of a query on paths of VARIANT columns and on ordinary columns: the normal form of its filters, as a tree.

`filters` makes them from Catalyst's filters and from expressions. Unlike an expression, a predicate is not evaluated on rows:
`bounds` turns it into one on the bounds of a file. NOT is only in the leaves, each of which compares one path with constants.
The values of constants stay where they are; a predicate holds their numbers, and the first of them as text. `merged` joins
equalities on one path into one IN. Ordinary columns are an `Other`, which Delta evaluates, or in `scan` a `Path` that is
`ordinary`. Everything else is `Unknown`, with the reason for `explain`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeVar

from delta_variant.paths import dotted, steps

K = TypeVar("K")
P = TypeVar("P")
C = TypeVar("C")
_SHOWN: Final = 5  # constants of a list that `explain` shows


@dataclass(frozen=True)
class Path:
    """`variant_get(column, keys, type)`, followed by `casts` in that order; types are written as in Spark's catalog.

    `text`: the path is read as a string, and the string is cast to `type`, as in `CAST(v:a::string AS TIMESTAMP)`. `ordinary`:
    the column is not VARIANT, there are no keys, and `type` is its own; only `scan` asks bounds for such.
    """

    column: tuple[str, ...]  # physical names; more than one for a VARIANT inside structs
    keys: tuple[str, ...]
    type: str = "variant"
    casts: tuple[str, ...] = ()
    name: str = ""  # the column's name in the query, with backquotes where it needs them
    text: bool = False
    ordinary: bool = False

    @property
    def result(self) -> str:
        """The type of the compared value."""
        return self.casts[-1] if self.casts else self.type

    @property
    def untyped(self) -> str:
        """The path without its types: `v:a.b`."""
        return f"{self.name or dotted(self.column)}:{steps(self.keys)}"

    def __str__(self) -> str:
        return "::".join([self.untyped, *["string"] * self.text, self.type, *self.casts])


@dataclass(frozen=True)
class Constants:
    """A constant, or the list of an IN. The values themselves stay in Catalyst or in `pruning`, under one `number`.

    `type` is empty for values that are compared as they are with a path of any type. They get its type.
    `size` is the number of values, and `texts` has the first of them as text: a string as the hex of its UTF-8 bytes, which may
    be cut; a date as days and a timestamp as microseconds since 1970. NULL does not count as a value; `null` says whether it is
    in the list.
    """

    type: str
    texts: tuple[str, ...]
    size: int = 1
    null: bool = False
    number: int = 0

    def __str__(self) -> str:
        return _shown((self,))


def _shown(constants: Iterable[Constants]) -> str:
    """The first constants, in a form for people."""
    lists = list(constants)
    texts = [_readable(part.type, text) for part in lists for text in part.texts[:_SHOWN]][:_SHOWN]
    more = ["..."] * (sum(part.size for part in lists) > len(texts))
    return ", ".join([*texts, *more, *["NULL"] * any(part.null for part in lists)])


def _readable(data_type: str, text: str) -> str:
    if data_type == "string":
        return repr(bytes.fromhex(text).decode("utf-8", "replace"))
    if data_type == "date":
        return _moment(days=int(text)).removesuffix(" 00:00:00") or f"day {text}"
    if data_type.startswith("timestamp"):
        return _moment("Z" * (data_type == "timestamp"), microseconds=int(text)) or f"{text} us"
    return text


def _moment(zone: str = "", **after_epoch: int) -> str:
    """The moment as ISO text; empty outside the years 1 to 9999."""
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
    """`path IN (constants)`, or `path NOT IN (constants)` if negated."""

    path: Path
    constants: tuple[Constants, ...]
    negated: bool = False

    def __str__(self) -> str:
        return f"{self.path} {'NOT ' * self.negated}IN ({_shown(self.constants)})"


@dataclass(frozen=True)
class StartsWith:
    """`startswith(path, prefix)`, or its NOT if negated."""

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
class _Joined:
    parts: tuple[Predicate, ...]

    def __str__(self) -> str:
        return f"({f' {type(self).__name__.upper()} '.join(map(str, self.parts))})"


class And(_Joined):
    """The AND of the parts."""


class Or(_Joined):
    """The OR of the parts."""


@dataclass(frozen=True)
class Unknown:
    """A predicate that bounds cannot answer, and why. The reason is empty if the predicate does not concern Variant paths."""

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

OPPOSITE: Final = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
FLIPPED: Final = {"=": "=", "<>": "<>", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def negate(predicate: Predicate) -> Predicate:
    """The negation: TRUE where the predicate is FALSE, FALSE where it is TRUE, NULL where it is NULL.

    >>> a = Path(("v",), ("a",), "int")
    >>> str(negate(Comparison("<", a, Constants("int", ("5",)))))
    'v:a::int >= 5'
    """
    match predicate:
        case Comparison("<=>", path, _):
            return Unknown(f"{path}: NOT <=> is true for rows without the path, and bounds say nothing about these")
        case Comparison(op, path, constant):
            return Comparison(OPPOSITE[op], path, constant)
        case In(path, constants, negated):
            return In(path, constants, not negated)
        case StartsWith(path, prefix, negated):
            return StartsWith(path, prefix, not negated)
        case NotNull(path):
            return Unknown(f"{path} IS NULL: bounds say nothing about rows without the path")
        case And(parts):
            return Or(tuple(map(negate, parts)))
        case Or(parts):
            return And(tuple(map(negate, parts)))
        case Other(_, text):
            return Unknown(f"NOT ({text}): not a comparison with a constant")
        case Unknown():
            return predicate


def merged(predicate: Predicate) -> Predicate:
    """An equivalent predicate with no more leaves than the given one, and often fewer.

    In an OR, equalities and INs on one path become one IN: `a = 1 OR a IN (2, 3)` becomes `a IN (1, 2, 3)`. In an AND,
    inequalities and NOT INs on one path become one NOT IN. An AND inside an AND is flattened, and so is an OR inside an OR.

    >>> a = Path(("v",), ("a",), "int")
    >>> str(merged(Or((Comparison("=", a, Constants("int", ("1",))), In(a, (Constants("int", ("2", "3"), 2),))))))
    'v:a::int IN (1, 2, 3)'
    """
    if not isinstance(predicate, And | Or):
        return predicate
    negated = isinstance(predicate, And)

    def listed(part: Predicate) -> tuple[Path, Sequence[Constants]] | None:
        """The path and the values, if a part says that the path has one of them or, if negated, none of them."""
        match part:
            case Comparison("<>", path, constant) if negated:
                return path, [constant]
            case Comparison("=" | "<=>", path, constant) if not negated:
                return path, [constant]
            case In(path, constants, no) if no == negated:
                return path, constants
        return None

    whole = joined(_flat(type(predicate), predicate.parts), listed, lambda path, values: In(path, values, negated))
    return whole[0] if len(whole) == 1 else type(predicate)(whole)


def _flat(operator: type[And | Or], parts: Iterable[Predicate]) -> Iterator[Predicate]:
    for part in map(merged, parts):
        yield from part.parts if isinstance(part, And | Or) and isinstance(part, operator) else [part]


def joined(
    parts: Iterable[P], listed: Callable[[P], tuple[K, Iterable[C]] | None], made: Callable[[K, tuple[C, ...]], P]
) -> tuple[P, ...]:
    """The parts, of which those that list values of one key are one part, at the position of the first of them.

    listed: the key and the values of a part; None for other parts. made: the part for a key and the values of several parts.
    """
    groups: dict[K | int, tuple[list[P], list[C]]] = {}
    for number, part in enumerate(parts):
        key, values = listed(part) or (number, ())
        same, together = groups.setdefault(key, ([], []))
        same.append(part)
        together += values
    return tuple(
        same[0] if len(same) == 1 else made(key, tuple(values))  # type: ignore[arg-type]  # a number has one part
        for key, (same, values) in groups.items()
    )


def leaves(predicate: Predicate) -> Iterator[Leaf]:
    """The comparisons in a predicate, from left to right.

    >>> a, b = (Path(("v",), (key,), "int") for key in "ab")
    >>> [str(leaf) for leaf in leaves(And((NotNull(a), Or((Unknown(), NotNull(b))))))]
    ['v:a::int IS NOT NULL', 'v:b::int IS NOT NULL']
    """
    match predicate:
        case And(parts) | Or(parts):
            for part in parts:
                yield from leaves(part)
        case Other() | Unknown():
            pass
        case _:
            yield predicate
