"""A predicate on what the log knows of one file, as SQL that Spark evaluates for every file of the table.

The row of a file has `path`, `marked`, `nonnull` and, for each VARIANT column with statistics, `min0`, `max0`, `min1` and so
on, in the order of `Log.columns`. `min0` and `max0` are Variant objects {normalized path: bound} (Delta variantShredding,
"Statistics for Variant Columns"), `nonnull` is the tag for paths that have no bounds there (`stats.tags`).

Everything unknown is NULL, which keeps the file: a missing bound, a bound of another type, a bound that does not fit the type
the query asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from delta_variant.paths import normalized
from delta_variant.skipping.casts import KINDS, kinds_for
from delta_variant.stats import place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delta_variant.skipping.predicates import Literal, Path


@dataclass(frozen=True)
class Log:
    """What the log of a table can hold."""

    columns: tuple[tuple[str, ...], ...]
    """The VARIANT columns with statistics, in physical names."""
    marked: bool = True
    """Whether any file's bounds were computed from values."""
    nonnull: bool = False
    """Whether any file has the tag for paths without bounds."""
    trust_all: bool = False
    """Whether every file's bounds count for every kind of value."""


@dataclass(frozen=True)
class Check:
    """`bound op literal`; `side` is min or max, op one of < <= > >=, startswith, NOT startswith."""

    side: str
    path: Path
    op: str
    literal: Literal

    def sql(self, log: Log) -> str:
        """NULL where the file has no such bound, or one of a type whose order the path's type does not keep."""
        value = bound(self.side, self.path, log)
        if self.op.endswith("startswith"):
            return f"({self.op}({value}, {self.literal.sql}))"
        return f"({value} {self.op} {self.literal.sql})"


@dataclass(frozen=True)
class OtherThan:
    """Whether the path has values other than these: FALSE where its bounds are one value, and that one is here."""

    path: Path
    literals: tuple[Literal, ...]

    def sql(self, log: Log) -> str:
        """See Check."""
        low, high = (bound(side, self.path, log) for side in ("min", "max"))
        return f"({low} <> {high} OR {low} NOT IN ({', '.join(literal.sql for literal in self.literals)}))"


@dataclass(frozen=True)
class HasValues:
    """Whether a row has the path: FALSE where the file counts none, NULL where it does not count. Asked where `Log.nonnull`.

    JSON nulls are values for a query that asks for the Variant itself, and not for others.
    """

    path: Path

    def sql(self, log: Log) -> str:  # noqa: ARG002  # as the others
        """See Check."""
        counts = f"array_size({_entry(self.path, 'array<variant>')})"
        if self.path.result != "variant":
            return f"({counts} <> 2)"
        return f"({counts} <> 2 OR {_entry(self.path, 'bigint', 0)} > 0)"


@dataclass(frozen=True)
class OtherColumns:
    """Whether rows might match a predicate on ordinary columns: FALSE or NULL."""

    number: int

    def sql(self, log: Log) -> str:  # noqa: ARG002  # as the others
        """See Check."""
        return f"other{self.number}"


@dataclass(frozen=True)
class AllOf:
    """Conjunction; of nothing, TRUE."""

    parts: tuple[Bounds, ...]

    def sql(self, log: Log) -> str:
        """See Check."""
        return f"({' AND '.join(part.sql(log) for part in self.parts)})" if self.parts else "true"


@dataclass(frozen=True)
class AnyOf:
    """Disjunction; of nothing, FALSE."""

    parts: tuple[Bounds, ...]

    def sql(self, log: Log) -> str:
        """See Check."""
        return f"({' OR '.join(part.sql(log) for part in self.parts)})" if self.parts else "false"


Bounds = Check | OtherThan | HasValues | OtherColumns | AllOf | AnyOf

ROWS_MIGHT_MATCH: Final = AllOf(())
ROWS_CANNOT_MATCH: Final = AnyOf(())


def found(side: str, path: Path, log: Log) -> str:
    """SQL for the bound as VARIANT, of whatever type; NULL where there is none."""
    stated = _get(f"{side}{log.columns.index(path.column)}", (normalized(path.keys),), "variant")
    if not log.nonnull:
        return stated
    return f"coalesce({stated}, {_entry(path, 'variant', 2 if side == 'min' else 3)})"


def kind(variant: str) -> str:
    """SQL for the type of a bound, as KINDS has it."""
    return f"substring_index(schema_of_variant({variant}), '(', 1)"


def one_of(variant: str, types: Iterable[str]) -> str:
    """SQL for whether a bound is of one of these types."""
    listed = ", ".join(f"'{name}'" for name in types)
    return f"{kind(variant)} IN ({listed})"


def accepted(path: Path, log: Log, *, needs_mark: bool) -> list[str]:
    """The types of bounds that answer a question on the path: those of marked files only, or those of any."""
    kinds = [KINDS[name] for name in kinds_for(path.type)]
    return [name for names, mark in kinds if (mark and not log.trust_all) == needs_mark for name in names]


def bound(side: str, path: Path, log: Log) -> str:
    """SQL for the bound in the type that the comparison sees; NULL where it does not count."""
    variant = found(side, path, log)
    guards = []
    for needs_mark in (False, True):
        types = accepted(path, log, needs_mark=needs_mark)
        guards += [f"({one_of(variant, types)}{' AND marked' * needs_mark})"] if types else []
    # `timestamp` means timestamp_ntz where spark.sql.timestampType says so.
    sql_type = {"timestamp": "timestamp_ltz"}.get(path.type, path.type)
    value = f"CASE WHEN {' OR '.join(guards)} THEN try_variant_get({variant}, '$', '{sql_type}') END"
    for cast in path.casts:
        value = f"try_cast({value} AS {cast})"
    return value


def _entry(path: Path, data_type: str, at: int | None = None) -> str:
    """SQL for the path's entry in the tag, or for one of its elements."""
    return _get("nonnull", place(path.column, path.keys), data_type, "" if at is None else f"[{at}]")


def _get(variant: str, keys: tuple[str, ...], data_type: str, suffix: str = "") -> str:
    """SQL for what lies at these keys of a Variant."""
    steps = ""
    for quotes, run in groupby(keys, lambda key: '"' in key):
        if quotes:  # Spark's path syntax knows no escapes, and the key may have quotes of both kinds
            for key in run:
                variant = (
                    f"try_element_at(try_variant_get({variant}, {_text('$' + steps)}, 'map<string,variant>'), {_text(key)})"
                )
                steps = ""
        else:
            steps += "".join(f'["{key}"]' for key in run)
    return f"try_variant_get({variant}, {_text('$' + steps + suffix)}, '{data_type}')"


def _text(text: str) -> str:
    """SQL for a string, in hex: no setting changes how it parses."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"
