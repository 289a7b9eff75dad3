"""Values and predicates over the rows of a file: a tree of frozen dataclasses, and its evaluation over Arrow arrays.

In: a tree whose names are bound to the table's fields, and `Rows`. Out: one Arrow array. Logic has three values, as in SQL.
Numbers are ordered as in Spark: NaN is equal to itself and above all others, and 0.0 equals -0.0. Strings are ordered by their
UTF-8 bytes.

Invariant: a strict cast (`::`, CAST, variant_get) that fails is an error only in rows of which the earlier operands of an AND
or an OR left the result open.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import tzinfo
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delta_variant import types as t
from delta_variant.errors import CastError
from delta_variant.locating import naming
from delta_variant.paths import Keys, dotted, steps
from delta_variant.queries import casts
from delta_variant.queries.fields import Field, Kind, Variant, type_name

Alive: TypeAlias = "npt.NDArray[np.bool_] | None"
"""The rows in which a cast may not fail; None for all."""
_LOOK = 8  # operands after which rows that are still undecided are looked for, if no cast can fail
Operand: TypeAlias = "pa.Array | pa.Scalar"


@dataclass(frozen=True)
class Column:
    """A column, or a field of structs: the table's fields that lead to it."""

    fields: tuple[Field, ...]

    @property
    def kind(self) -> Kind:
        return self.fields[-1].kind

    def __str__(self) -> str:
        return dotted([field.name for field in self.fields])


@dataclass(frozen=True)
class Get:
    """`variant_get`: the value at a path of a VARIANT column, as some type."""

    fields: tuple[Field, ...]
    keys: Keys
    kind: Kind
    strict: bool = True

    def __str__(self) -> str:
        name = f"{dotted(tuple(field.name for field in self.fields))}:{steps(self.keys)}"
        return name if isinstance(self.kind, Variant) else f"{name}::{type_name(self.kind)}"


@dataclass(frozen=True)
class SortNumber:
    """What `optimize` sorts the values at a path by first: numbers, times and booleans as DOUBLE; null for all others."""

    child: Get

    kind = pa.float64()


@dataclass(frozen=True)
class Cast:
    """A cast between types other than VARIANT."""

    child: Value
    kind: pa.DataType
    strict: bool = True

    def __str__(self) -> str:
        return f"{self.child}::{type_name(self.kind)}"


@dataclass(frozen=True)
class Literal:
    """A constant, in the form of `casts.values_of`; None for NULL."""

    value: object
    kind: pa.DataType

    @cached_property
    def scalar(self) -> pa.Scalar:
        return casts.array_of([self.value], self.kind)[0]

    def __str__(self) -> str:
        return "NULL" if self.value is None else repr(self.value)


TRUE = Literal(True, pa.bool_())


@dataclass(frozen=True)
class Comparison:
    """`left op right`, with op one of = <> < <= > >= <=>."""

    op: str
    left: Value
    right: Value

    kind = pa.bool_()


@dataclass(frozen=True)
class In:
    """`child IN (values)`. The values have the type of the child, or all are exact numbers."""

    child: Value
    values: tuple[Literal, ...]

    kind = pa.bool_()


@dataclass(frozen=True)
class IsNull:
    """`child IS NULL`."""

    child: Value

    kind = pa.bool_()


@dataclass(frozen=True)
class Like:
    """`child LIKE pattern`. `prefix` is the pattern before its first wildcard, `regex` the whole of it."""

    child: Value
    prefix: str
    regex: str

    kind = pa.bool_()


@dataclass(frozen=True)
class _Joined:
    parts: tuple[Value, ...]

    kind = pa.bool_()

    @cached_property
    def can_fail(self) -> bool:
        """Whether a cast in it can be an error."""
        return any(map(can_fail, self.parts))


class And(_Joined):
    """AND of the parts."""


class Or(_Joined):
    """OR of the parts."""


@dataclass(frozen=True)
class Not:
    """NOT of a boolean."""

    child: Value

    kind = pa.bool_()


Value: TypeAlias = "Column | Get | SortNumber | Cast | Literal | Comparison | In | IsNull | Like | And | Or | Not"


def _children(value: Value) -> tuple[Value, ...]:
    match value:
        case Column() | Get() | Literal():
            return ()
        case And(parts) | Or(parts):
            return parts
        case Comparison(_, left, right):
            return left, right
        case _:
            return (value.child,)


def can_fail(value: Value) -> bool:
    """Whether a cast in an expression can be an error."""
    match value:
        case Get(_, _, kind, True):
            return not isinstance(kind, Variant)
        case Cast(_, _, True):
            return True
        case And() | Or():
            return value.can_fail
        case _:
            return any(map(can_fail, _children(value)))


def inputs(value: Value) -> Iterator[Column | Get]:
    """The columns and paths that an expression reads."""
    if isinstance(value, Column | Get):
        yield value
    for child in _children(value):
        yield from inputs(child)


class Rows(Protocol):
    """Some rows of a file."""

    @property
    def count(self) -> int:
        """How many rows there are."""

    def column(self, fields: tuple[Field, ...]) -> pa.Array:
        """The values of a column."""

    def path(self, fields: tuple[Field, ...], keys: Keys) -> Any:
        """What the rows have at a path of a VARIANT column (`scanning.variant_groups.Group`)."""


def evaluate(value: Value, rows: Rows, at: tzinfo, alive: Alive = None) -> pa.Array:
    """The values of an expression. at: the time zone of the session. Raises CastError for a strict cast that fails."""
    match value:
        case Column(fields):
            return rows.column(fields)
        case Get(fields, keys, kind, strict):
            with naming(value):
                found = rows.path(fields, keys)
                if isinstance(kind, Variant):
                    return found.variant()
                assert isinstance(kind, pa.DataType)
                array, failed = found.cast(kind, at)
            if strict and failed is not None:
                _check(value, failed, alive)
            return array
        case SortNumber(Get(fields, keys) as path):
            with naming(path):
                return rows.path(fields, keys).sort_numbers(at)
        case Cast(child, kind, strict):
            source = evaluate(child, rows, at, alive)
            array = casts.cast(source, kind, at)
            if strict and array.null_count > source.null_count:
                _check(value, np.asarray(pc.and_(source.is_valid(), array.is_null())), alive)
            return array
        case Literal():
            return pa.repeat(value.scalar, rows.count)
        case Comparison(op, left, right):
            sides = [side.scalar if isinstance(side, Literal) else evaluate(side, rows, at, alive) for side in (left, right)]
            found = compared(op, *sides)
            return pa.repeat(found, rows.count) if isinstance(found, pa.Scalar) else found
        case In(child, constants):
            return _in(evaluate(child, rows, at, alive), constants)
        case IsNull(child):
            if isinstance(child, Get) and isinstance(child.kind, Variant):
                with naming(child):
                    return rows.path(child.fields, child.keys).missing()
            return evaluate(child, rows, at, alive).is_null()
        case Like(child, _, regex):
            return pc.match_substring_regex(evaluate(child, rows, at, alive), regex)
        case Not(child):
            return pc.invert(evaluate(child, rows, at, alive))
        case And() | Or():
            return _joined(value, rows, at, alive)


def _joined(value: And | Or, rows: Rows, at: tzinfo, alive: Alive) -> pa.Array:
    """AND, which the first FALSE decides, or OR, which the first TRUE decides."""
    decisive = isinstance(value, Or)
    whole = pa.repeat(pa.scalar(not decisive), rows.count)
    for number, part in enumerate(value.parts):
        found = evaluate(part, rows, at, alive)
        whole = pc.or_kleene(whole, found) if decisive else pc.and_kleene(whole, found)
        if not value.can_fail and number % _LOOK:
            continue
        undecided = np.asarray(pc.fill_null(pc.not_equal(whole, decisive), fill_value=True))
        if not undecided.any():
            break
        alive = undecided if alive is None else alive & undecided
    return whole


def _check(value: Get | Cast, failed: npt.NDArray[np.bool_], alive: Alive) -> None:
    wrong = failed if alive is None else failed & alive
    if wrong.any():
        text = "try_variant_get" if isinstance(value, Get) else "try_cast"
        kind = type_name(value.kind)
        raise CastError(
            f"{value}: a value cannot be cast to {kind}",
            row=int(np.argmax(wrong)),
            advice=f"use {text}, which gives NULL for it",
        )


# ---- comparisons ----------------------------------------------------------------------------------------------------


def compared(op: str, left: Operand, right: Operand) -> Operand:
    """The comparison of two arrays or scalars of one type, or of exact numbers."""
    left, right = _aligned(left, right)
    if op == "<=>":
        same = pc.fill_null(compared("=", left, right), fill_value=False)
        return pc.or_(same, pc.and_(pc.is_null(left), pc.is_null(right)))
    if op == "<>":
        return pc.invert(compared("=", left, right))
    if op in (">", ">="):
        return compared("<" if op == ">" else "<=", right, left)
    return {"=": pc.equal, "<": pc.less, "<=": pc.less_equal}[op](left, right)


def _aligned(left: Operand, right: Operand) -> tuple[Operand, Operand]:
    """Both arrays in a type in which Arrow compares them exactly."""
    if pa.types.is_boolean(left.type) or pa.types.is_null(left.type):
        return left.cast(pa.uint8()), right.cast(pa.uint8())
    if pa.types.is_floating(left.type):
        return _ordered(left), _ordered(right)
    if left.type == right.type or not t.is_exact(left.type) or not t.is_exact(right.type):
        return left, right
    wide = t.wider(left.type, right.type)
    return left.cast(wide), right.cast(wide)


def _in(array: pa.Array, constants: tuple[Literal, ...]) -> pa.Array:
    values = [constant for constant in constants if constant.value is not None]
    kinds = {constant.kind for constant in values} or {array.type}
    kind = kinds.pop() if len(kinds) == 1 else t.wider(*kinds)
    found = pc.is_in(*_aligned(array, casts.array_of([value.value for value in values], kind)))
    unknown = array.is_null()
    if len(values) < len(constants):
        unknown = pc.or_(unknown, pc.invert(found))
    return pc.if_else(unknown, pa.scalar(None, pa.bool_()), found)


def _ordered(values: Operand) -> Operand:
    """Floats as integers in the same order: NaN is equal to itself and above all others, and 0.0 equals -0.0."""
    array = values if isinstance(values, pa.Array) else pa.array([values.as_py()], values.type)
    numbers = np.asarray(array.cast(pa.float64()).fill_null(0)) + 0.0  # no -0.0
    bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)
    whole = pa.array(bits ^ ((bits >> 63) & np.iinfo(np.int64).max), mask=np.asarray(array.is_null()))
    return whole if array is values else whole[0]
