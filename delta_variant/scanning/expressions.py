"""Values and predicates over the rows of a file: a tree of frozen dataclasses, and its evaluation over Arrow arrays.

In: a tree whose names are bound to the table's fields, and `Rows`. Out: one Arrow array. Logic has three values, as in SQL.
Numbers are ordered as in Spark: NaN is equal to itself and above all others, and 0.0 equals -0.0. Strings are ordered by their
UTF-8 bytes.

Invariant: a strict cast (`::`, CAST, variant_get) that fails is an error only in rows of which the earlier operands of an AND
or an OR left the result open.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import tzinfo
from decimal import Context, Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delta_variant.errors import CastError, InvalidLayoutError, MalformedVariantError, UnsupportedFeatureError
from delta_variant.paths import step
from delta_variant.scanning import casts, schemas
from delta_variant.scanning.schemas import Field, Kind, Variant

if TYPE_CHECKING:
    from collections.abc import Iterator

Alive: TypeAlias = "npt.NDArray[np.bool_] | None"
"""The rows in which a cast may not fail; None for all."""
_EXACT = Context(prec=100)
_LOOK = 8  # operands after which rows that are still undecided are looked for, if no cast can fail
Operand: TypeAlias = "pa.Array | pa.Scalar"
Keys: TypeAlias = tuple["str | int", ...]


@dataclass(frozen=True)
class Column:
    """A column, or a field of structs: the table's fields that lead to it."""

    fields: tuple[Field, ...]

    @property
    def kind(self) -> Kind:
        """The type of its values."""
        return self.fields[-1].kind

    def __str__(self) -> str:
        return ".".join(field.name for field in self.fields)


@dataclass(frozen=True)
class Get:
    """`variant_get`: the value at a path of a VARIANT column, as some type."""

    fields: tuple[Field, ...]
    keys: Keys
    kind: Kind
    strict: bool = True

    def __str__(self) -> str:
        steps = "".join(f"[{key}]" if isinstance(key, int) else step(key) for key in self.keys)
        name = f"{'.'.join(field.name for field in self.fields)}:{steps.removeprefix('.') or '$'}"
        return name if isinstance(self.kind, Variant) else f"{name}::{schemas.spark_name(self.kind)}"


@dataclass(frozen=True)
class Cast:
    """A cast between types other than VARIANT."""

    child: Value
    kind: pa.DataType
    strict: bool = True

    def __str__(self) -> str:
        return f"{self.child}::{schemas.spark_name(self.kind)}"


@dataclass(frozen=True)
class Literal:
    """A constant, in the form of `casts.plain`; None for NULL."""

    value: object
    kind: pa.DataType

    @cached_property
    def scalar(self) -> pa.Scalar:
        """The constant in Arrow."""
        return casts.made([self.value], self.kind)[0]

    def __str__(self) -> str:
        return "NULL" if self.value is None else repr(self.value)


@dataclass(frozen=True)
class Comparison:
    """`left op right`, with op one of = <> < <= > >= <=>."""

    op: str
    left: Value
    right: Value

    kind = pa.bool_()


@dataclass(frozen=True)
class In:
    """`child IN (values)`, or NOT IN. The values have the type of the child, or all are exact numbers."""

    child: Value
    values: tuple[Literal, ...]
    negated: bool = False

    kind = pa.bool_()


@dataclass(frozen=True)
class IsNull:
    """`child IS NULL`, or IS NOT NULL."""

    child: Value
    negated: bool = False

    kind = pa.bool_()


@dataclass(frozen=True)
class Like:
    """`child LIKE pattern`, or NOT LIKE. `prefix` is the pattern before its first wildcard, `regex` the whole of it."""

    child: Value
    prefix: str
    regex: str
    negated: bool = False

    kind = pa.bool_()


@dataclass(frozen=True)
class And:
    """AND of the parts."""

    parts: tuple[Value, ...]

    kind = pa.bool_()

    @cached_property
    def can_fail(self) -> bool:
        """Whether a cast in it can be an error."""
        return any(map(can_fail, self.parts))


@dataclass(frozen=True)
class Or:
    """OR of the parts."""

    parts: tuple[Value, ...]

    kind = pa.bool_()

    @cached_property
    def can_fail(self) -> bool:
        """Whether a cast in it can be an error."""
        return any(map(can_fail, self.parts))


@dataclass(frozen=True)
class Not:
    """NOT of a boolean, where it cannot be moved inward."""

    child: Value

    kind = pa.bool_()


Value: TypeAlias = "Column | Get | Cast | Literal | Comparison | In | IsNull | Like | And | Or | Not"

_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def negated(value: Value) -> Value:
    """NOT of a boolean, moved inward to the comparisons."""
    match value:
        case Comparison(op, left, right) if op in _OPPOSITE:
            return Comparison(_OPPOSITE[op], left, right)
        case In(child, values, no):
            return In(child, values, not no)
        case IsNull(child, no):
            return IsNull(child, not no)
        case Like(child, prefix, regex, no):
            return Like(child, prefix, regex, not no)
        case And(parts):
            return Or(tuple(map(negated, parts)))
        case Or(parts):
            return And(tuple(map(negated, parts)))
        case Not(child):
            return child
        case Literal(constant, kind):
            return Literal(None if constant is None else not constant, kind)
    return Not(value)


def can_fail(value: Value) -> bool:
    """Whether a cast in an expression can be an error."""
    match value:
        case Get(_, _, kind, strict):
            return strict and not isinstance(kind, Variant)
        case Cast(child, _, strict):
            return strict or can_fail(child)
        case Column() | Literal():
            return False
        case And() | Or():
            return value.can_fail
        case Comparison(_, left, right):
            return can_fail(left) or can_fail(right)
        case _:
            return can_fail(value.child)


def inputs(value: Value) -> Iterator[Column | Get]:
    """The columns and paths that an expression reads."""
    match value:
        case Column() | Get():
            yield value
        case Literal():
            pass
        case And(parts) | Or(parts):
            for part in parts:
                yield from inputs(part)
        case Comparison(_, left, right):
            yield from inputs(left)
            yield from inputs(right)
        case _:
            yield from inputs(value.child)


class Values(Protocol):
    """What a path has in some rows (`files.Group`)."""

    def variant(self) -> pa.Array:
        """The values as VARIANT; NULL where the path is missing."""

    def cast(self, kind: pa.DataType, at: tzinfo) -> tuple[pa.Array, npt.NDArray[np.bool_] | None]:
        """The values as another type, and where that fails; None if nowhere."""

    def missing(self) -> pa.Array:
        """Whether the path is missing."""


class Rows(Protocol):
    """Some rows of a file."""

    @property
    def count(self) -> int:
        """How many rows there are."""

    def column(self, fields: tuple[Field, ...]) -> pa.Array:
        """The values of a column."""

    def path(self, fields: tuple[Field, ...], keys: Keys) -> Values:
        """What the rows have at a path of a VARIANT column."""


def evaluate(value: Value, rows: Rows, at: tzinfo, alive: Alive = None) -> pa.Array:
    """The values of an expression. at: the time zone of the session. Raises CastError for a strict cast that fails."""
    match value:
        case Column(fields):
            return rows.column(fields)
        case Get(fields, keys, kind, strict):
            with _naming(value):
                found = rows.path(fields, keys)
                if isinstance(kind, Variant):
                    return found.variant()
                assert isinstance(kind, pa.DataType)
                array, failed = found.cast(kind, at)
            if strict and failed is not None:
                _check(value, failed, alive)
            return array
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
        case In(child, constants, no):
            return _in(evaluate(child, rows, at, alive), constants, negated=no)
        case IsNull(child, no):
            if isinstance(child, Get) and isinstance(child.kind, Variant):
                with _naming(child):
                    missing = rows.path(child.fields, child.keys).missing()
            else:
                missing = evaluate(child, rows, at, alive).is_null()
            return pc.invert(missing) if no else missing
        case Like(child, _, regex, no):
            found = pc.match_substring_regex(evaluate(child, rows, at, alive), regex)
            return pc.invert(found) if no else found
        case Not(child):
            return pc.invert(evaluate(child, rows, at, alive))
        case And(parts):
            return _joined(parts, rows, at, alive, decisive=False, can_fail=value.can_fail)
        case Or(parts):
            return _joined(parts, rows, at, alive, decisive=True, can_fail=value.can_fail)


@contextmanager
def _naming(value: Get) -> Iterator[None]:
    """Errors about the values of a path name it."""
    try:
        yield
    except (InvalidLayoutError, MalformedVariantError, UnsupportedFeatureError) as error:
        raise error.within(str(value)) from error


def _joined(parts: tuple[Value, ...], rows: Rows, at: tzinfo, alive: Alive, *, decisive: bool, can_fail: bool) -> pa.Array:
    """AND, which the first FALSE decides, or OR, which the first TRUE decides."""
    whole = pa.repeat(pa.scalar(not decisive), rows.count)
    for number, part in enumerate(parts):
        found = evaluate(part, rows, at, alive)
        whole = pc.or_kleene(whole, found) if decisive else pc.and_kleene(whole, found)
        if not can_fail and number % _LOOK:
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
        kind = schemas.spark_name(value.kind)
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
    if pa.types.is_floating(left.type):
        return _floats(op, left, right)
    return {"=": pc.equal, "<": pc.less, "<=": pc.less_equal}[op](left, right)


def _floats(op: str, left: Operand, right: Operand) -> Operand:
    nan, other = pc.is_nan(left), pc.is_nan(right)
    if op == "=":
        return pc.or_(pc.equal(left, right), pc.and_(nan, other))
    if op == "<":
        return pc.or_(pc.less(left, right), pc.and_(pc.invert(nan), other))
    return pc.or_(pc.less_equal(left, right), other)


def _aligned(left: Operand, right: Operand) -> tuple[Operand, Operand]:
    """Both arrays in a type in which Arrow compares them exactly."""
    kinds = (left.type, right.type)
    if pa.types.is_boolean(left.type):
        return left.cast(pa.uint8()), right.cast(pa.uint8())
    if not any(map(pa.types.is_decimal, kinds)) or left.type == right.type:
        if all(map(pa.types.is_integer, kinds)) and left.type != right.type:
            return left.cast(pa.int64()), right.cast(pa.int64())
        return left, right
    scale = max(kind.scale if pa.types.is_decimal(kind) else 0 for kind in kinds)
    digits = max(kind.precision - kind.scale if pa.types.is_decimal(kind) else 19 for kind in kinds)
    wide = pa.decimal128(digits + scale, scale) if digits + scale <= 38 else pa.decimal256(digits + scale, scale)
    return left.cast(wide), right.cast(wide)


def _in(array: pa.Array, constants: tuple[Literal, ...], *, negated: bool) -> pa.Array:
    values = [constant for constant in constants if constant.value is not None]
    if pa.types.is_floating(array.type):  # for Arrow, 0.0 and -0.0 are two values, and so are two NaNs
        found = pc.is_in(_one_zero(array), value_set=_one_zero(pa.array([value.value for value in values], array.type)))
        if any(value.value != value.value for value in values):
            found = pc.or_(found, pc.fill_null(pc.is_nan(array), fill_value=False))
    else:
        known = [value.value for value in values if _has(array.type, value.value)]
        found = pc.is_in(array, value_set=casts.made(known, array.type))
    unknown = array.is_null()
    if len(values) < len(constants):
        unknown = pc.or_(unknown, pc.invert(found))
    found = pc.if_else(unknown, pa.scalar(None, pa.bool_()), found)
    return pc.invert(found) if negated else found


def _one_zero(array: pa.Array) -> pa.Array:
    """The array with 0.0 in the place of -0.0."""
    return pc.add(array, pa.scalar(0.0, array.type))


def _has(kind: pa.DataType, value: Any) -> bool:
    """Whether a type has a value. Of other types than exact numbers, constants have the type already."""
    if pa.types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        return bool(value == int(value) and limits.min <= value <= limits.max)
    if pa.types.is_decimal(kind):
        digits = Decimal(value)
        fits = digits.copy_abs() < Decimal(10) ** (kind.precision - kind.scale)
        return bool(fits) and -int(digits.normalize(_EXACT).as_tuple().exponent) <= kind.scale
    return True


def like_regex(pattern: str, escape: str) -> tuple[str, str] | None:
    """The fixed beginning of a LIKE pattern, and the pattern as a regular expression; None if an escape stands before another
    character, or at the end."""
    prefix, regex, fixed, at = "", "", True, 0
    while at < len(pattern):
        char = pattern[at]
        if char == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in ("_", "%", escape):
                return None
            regex += re.escape(pattern[at])
            prefix += pattern[at] if fixed else ""
        elif char in "_%":
            regex, fixed = regex + (".*" if char == "%" else "."), False
        else:
            regex += re.escape(char)
            prefix += char if fixed else ""
        at += 1
    return prefix, rf"(?s)\A{regex}\z"
