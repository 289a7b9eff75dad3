"""Which files, and which row groups of a file, can have rows for which an expression is true.

In: an expression, and what is known of the rows (`evidence`). Out: False only if no row can match. The comparisons in it become
a predicate on bounds, as those of Spark's queries do (`bounds`), which is evaluated here as the JVM evaluates it
(`scala/FilePredicates.scala`). What is about partition columns alone is evaluated on their values.

Invariant: what is not known keeps the rows.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from delta_variant import messages
from delta_variant.errors import DeltaVariantError
from delta_variant.paths import object_keys
from delta_variant.queries import bounds, casts, expressions, predicates
from delta_variant.queries.casts import TIMES, keeps_order
from delta_variant.queries.expressions import Column, Get, Keys, Literal, Value, inputs
from delta_variant.queries.fields import Field, type_name
from delta_variant.queries.predicates import FLIPPED, OPPOSITE, Path

if TYPE_CHECKING:
    from delta_variant.queries.evidence import Evidence, TableFacts

_TESTS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_MOST_VALUES = 10_000
"""A filter is asked for at most so many values."""


class Where:
    """A predicate of a scan on rows, translated once for all files."""

    def __init__(self, value: Value, facts: TableFacts) -> None:
        self.value, self._facts = value, facts
        self.inputs = tuple(dict.fromkeys(inputs(value)))
        """The columns and paths that it reads, each once."""
        self._constants: list[list[Any]] = []
        self._joined: dict[tuple[int, ...], list[Any]] = {}
        self._others: list[Value] = []
        projection = bounds.Projection(bounds.Log(facts.variants, nonnull=True, times=True, index=_MOST_VALUES))
        self._file, _ = bounds.translate(predicates.merged(self._converted(value)), projection)
        self._bounds, self._members = tuple(projection.bounds), tuple(projection.members)

    def may_match(self, evidence: Evidence) -> bool:
        """Whether a row can match."""
        return self._holds(self._file, evidence) is not False

    # ---- to the predicates of `queries` ---------------------------------------------------------------------------

    def _converted(self, value: Value, *, no: bool = False) -> predicates.Predicate:
        """The predicate for an expression or, if `no`, for its negation, which moves inward to the leaves."""
        match value:
            case expressions.Not(child):
                return self._converted(child, no=not no)
            case expressions.And(parts) | expressions.Or(parts):
                joined = predicates.And if isinstance(value, expressions.And) != no else predicates.Or
                return joined(tuple(self._converted(part, no=no) for part in parts))
            case Literal(constant, _):
                return predicates.And(()) if constant is not None and constant != no else predicates.Or(())
        if all(isinstance(one, Column) and self._facts.is_partition(one.fields) for one in inputs(value)):
            return self._other(expressions.Not(value) if no else value)
        return self._leaf(value, no=no) or predicates.Unknown(f"{value}: bounds say nothing about it")

    def _other(self, value: Value) -> predicates.Predicate:
        self._others.append(value)
        return predicates.Other(len(self._others) - 1, str(value))

    def _leaf(self, value: Value, *, no: bool) -> predicates.Predicate | None:
        match value:
            case Get() | expressions.Cast() | Column():
                return self._comparison("=", value, Literal(not no, pa.bool_()))
            case expressions.Comparison("<=>") if no:
                return None
            case expressions.Comparison(op, left, Literal() as right):
                return self._comparison(OPPOSITE[op] if no else op, left, right)
            case expressions.Comparison(op, Literal() as left, right):
                return self._comparison(FLIPPED[OPPOSITE[op] if no else op], right, left)
            case expressions.In(child, values):
                path = _path(child)
                if path is None:
                    return None
                known = [one.value for one in values if one.value is not None]
                return predicates.In(path, (self._constant(path, known, null=len(known) < len(values)),), no)
            case expressions.Like(child, prefix, _):
                path = _path(child) if prefix else None
                if path is None or path.result != "string":
                    return None
                starts = predicates.StartsWith(path, self._constant(path, [prefix]))
                return None if no else predicates.And((starts, predicates.Unknown()))
            case expressions.IsNull(child) if no:
                path = _path(child)
                return None if path is None else predicates.NotNull(path)
            case expressions.IsNull(Column()):
                return self._other(value)
        return None

    def _comparison(self, op: str, child: Value, constant: Literal) -> predicates.Predicate | None:
        path = _path(child)
        if path is None or path.result == "variant" or (op == "<=>" and constant.value is None):
            return None
        values = [] if constant.value is None else [constant.value]
        return predicates.Comparison(op, path, self._constant(path, values, null=not values))

    def _constant(self, path: Path, values: list[Any], *, null: bool = False) -> predicates.Constants:
        self._constants.append(values)
        texts = tuple("true" if value is True else str(value) for value in values)
        return predicates.Constants(path.result, texts, len(values), null, len(self._constants) - 1)

    # ---- evaluation -----------------------------------------------------------------------------------------------

    def _holds(self, predicate: messages.FilePredicate, evidence: Evidence) -> bool | None:
        match predicate:
            case messages.AllOf(parts):
                return _joined((self._holds(part, evidence) for part in parts), decisive=False)
            case messages.AnyOf(parts):
                return _joined((self._holds(part, evidence) for part in parts), decisive=True)
            case messages.OtherColumns(number):
                return None if self._may_be(self._others[number], evidence) else False
            case messages.HasValues(bound):
                return evidence.has_values(self._bounds[bound][1])
            case messages.Indexed(member, constants):
                return evidence.may_have(self._members[member], self._values(constants))
            case messages.Compare(op, bound, constant):
                found = evidence.bound(*self._bounds[bound])
                return None if found is None else _check(op, found, self._constants[constant][0])
            case messages.HasPrefix(bound, constant, negated):
                found = evidence.bound(*self._bounds[bound])
                return None if found is None else bool(found.startswith(self._constants[constant][0])) != negated
            case messages.Between(low, high, constants):
                least, largest = evidence.bound(*self._bounds[low]), evidence.bound(*self._bounds[high])
                return _between(least, largest, self._values(constants))
            case messages.Differs(low, high, constants):
                least, largest = evidence.bound(*self._bounds[low]), evidence.bound(*self._bounds[high])
                return _differs(least, largest, self._values(constants))

    def _values(self, numbers: tuple[int, ...]) -> list[Any]:
        if numbers not in self._joined:
            self._joined[numbers] = [value for number in numbers for value in self._constants[number]]
        return self._joined[numbers]

    def _may_be(self, value: Value, evidence: Evidence) -> bool:
        """Whether a predicate on partition columns is true in a file, or an ordinary column that has to be NULL may be."""
        match value:
            case expressions.IsNull(Column(fields)) if not self._facts.is_partition(fields):
                return not evidence.column(fields).no_null
        constants = {one.fields: evidence.partition(one.fields) for one in inputs(value) if isinstance(one, Column)}
        try:
            return expressions.evaluate(value, _OneRow(constants), self._facts.at)[0].as_py() is True
        except DeltaVariantError:
            return True


def _path(value: Value) -> Path | None:
    """The path or the ordinary column that a side of a comparison is, for `queries`; None if it is something else."""
    match value:
        case Get(fields) | Column(fields):
            keys = object_keys(value.keys) if isinstance(value, Get) else ()
            if keys is None:
                return None
            column, name = tuple(field.physical for field in fields), ".".join(field.name for field in fields)
            return Path(column, keys, type_name(value.kind), name=name, ordinary=isinstance(value, Column))
        case expressions.Cast(child, kind):
            inner, target = _path(child), type_name(kind)
            if inner is None:
                return None
            if inner.result == "string" and target in TIMES and not inner.casts and not inner.ordinary:
                return replace(inner, type=target, text=True)
            return replace(inner, casts=(*inner.casts, target)) if keeps_order(inner.result, target) else None
    return None


class _OneRow:
    """The partition values of a file, as one row."""

    count = 1

    def __init__(self, constants: Mapping[tuple[Field, ...], Literal | None]) -> None:
        self._constants = constants

    def column(self, fields: tuple[Field, ...]) -> pa.Array:
        constant = self._constants[fields]
        assert constant is not None
        return casts.made([constant.value], constant.kind)

    def path(self, fields: tuple[Field, ...], keys: Keys) -> NoReturn:
        raise NotImplementedError


# ---- three-valued logic over bounds ---------------------------------------------------------------------------------


def _joined(parts: Iterator[bool | None], *, decisive: bool) -> bool | None:
    """AND, which the first FALSE decides, or OR, which the first TRUE decides."""
    whole: bool | None = not decisive
    for part in parts:
        if part is decisive:
            return decisive
        whole = None if part is None else whole
    return whole


def _order(value: Any) -> Any:
    """A key for Spark's order: NaN is the largest number."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def _check(op: str, bound: Any, constant: Any) -> bool:
    return bool(_TESTS[op](_order(bound), _order(constant)))


def _between(low: Any, high: Any, values: Sequence[Any]) -> bool | None:
    fits = [
        value
        for value in values
        if not (low is not None and _check("<", value, low)) and not (high is not None and _check(">", value, high))
    ]
    return False if not fits else None if low is None or high is None else True


def _differs(low: Any, high: Any, values: Sequence[Any]) -> bool | None:
    """Whether bounds allow values other than these. Bounds of strings may be cut, so only equal whole bounds prove anything."""
    if low is None or high is None:
        return None
    return low != high or isinstance(low, float) or low not in values
