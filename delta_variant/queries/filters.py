"""A filter → a predicate on paths: the filters of Catalyst, which are messages, and the expressions of `scan`.

Both are trees of the same nodes, so one function reads both. NOT moves inward to the comparisons, each of which becomes a
comparison of one path with constants. What bounds cannot answer becomes `Unknown`, with the reason for `explain`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from delta_variant import messages
from delta_variant.errors import InvalidPathError
from delta_variant.paths import dotted, object_keys, parse_variant_path
from delta_variant.queries import expressions, predicates
from delta_variant.queries.casts import TIMES, keeps_order
from delta_variant.queries.expressions import TRUE, Cast, Column, Get, IsNull, Literal, Value, inputs
from delta_variant.queries.fields import Field, type_name
from delta_variant.queries.predicates import FLIPPED, And, Constants, Or, Path, Predicate, StartsWith, Unknown, negate

Side: TypeAlias = Path | Constants | Unknown


class Filters:
    """Reads the filters of one query.

    operands: those that messages name by their numbers. is_partition: whether fields lead to a partition column. Expressions
    that have no bounds get numbers in `others`, and the constants of expressions in `constants`.
    """

    def __init__(
        self, operands: Sequence[messages.Operand] = (), is_partition: Callable[[tuple[Field, ...]], bool] = lambda _: False
    ) -> None:
        self._operands, self._is_partition = [self._side(operand) for operand in operands], is_partition
        self.others: list[Value] = []
        self.constants: list[list[Any]] = []

    def predicate(self, node: messages.Filter | Value, *, no: bool = False) -> Predicate:
        """The predicate for a filter or, if `no`, for its NOT."""
        match node:
            case messages.Not(part) | expressions.Not(part):
                return self.predicate(part, no=not no)
            case messages.And(parts) | expressions.And(parts):
                return (Or if no else And)(tuple(self.predicate(part, no=no) for part in parts))
            case messages.Or(parts) | expressions.Or(parts):
                return (And if no else Or)(tuple(self.predicate(part, no=no) for part in parts))
            case Literal(constant):
                return And(()) if constant is not None and constant != no else Or(())
        if not isinstance(node, messages.Message) and self._has_no_bounds(node, no=no):
            self.others.append(expressions.Not(node) if no else node)
            return predicates.Other(len(self.others) - 1, str(node))
        found = self._leaf(node)
        return negate(found) if no != isinstance(node, messages.IsNull | IsNull) else found

    def _has_no_bounds(self, node: Value, *, no: bool) -> bool:
        """Whether an expression is about partition columns only, or is the IS NULL of a column, which statistics count."""
        of_partition = all(isinstance(one, Column) and self._is_partition(one.fields) for one in inputs(node))
        return of_partition or (not no and isinstance(node, IsNull) and isinstance(node.child, Column))

    def _leaf(self, node: messages.Filter | Value) -> Predicate:
        """The predicate for a filter without AND, OR and NOT; for IS NULL, that for IS NOT NULL."""
        match node:
            case messages.Comparison(op, left, right) | expressions.Comparison(op, left, right):
                return _tested(op, self._side(left), self._side(right))
            case messages.In(value, listed) | expressions.In(value, listed):
                return _tested("in", self._side(value), self._side(listed))
            case messages.StartsWith(value, prefix):
                return _tested("startswith", self._side(value), self._side(prefix))
            case messages.Like(value, prefix) | expressions.Like(value, prefix):
                return _tested("like", self._side(value), self._side(prefix))
            case messages.IsNull(value) | messages.IsNotNull(value) | IsNull(value):
                path = self._side(value)
                return predicates.NotNull(path) if isinstance(path, Path) else _unknown("isnotnull", path)
            case Get() | Cast() | Column():
                return _tested("=", self._side(node), self._side(TRUE))
            case messages.Ordinary(number, text):
                return predicates.Other(number, text)
            case messages.Unknown(text):
                return Unknown(f"{text}: not a comparison with a constant")
        return Unknown()

    def _side(self, value: messages.Side | messages.Operand | Value | tuple[Literal, ...] | str) -> Side:
        """A side of a comparison, the list of an IN, or the beginning of a pattern."""
        match value:
            case messages.OperandNumber(number):
                return self._operands[number]
            case messages.Constant(number, of, texts, size, null):
                return Constants(of, texts, size, null, number)
            case messages.Column(column, name):
                return Path(column, (), name=name)
            case messages.Get(of, path, target):
                return narrowed(self._side(of), path, target)
            case messages.CastOf(of, target):
                return _cast(self._side(of), target)
            case messages.Unknown(text):
                return Unknown(f"{text}: not a Variant path")
            case Column(fields) | Get(fields):
                column, name = tuple(field.physical for field in fields), dotted(tuple(field.name for field in fields))
                if isinstance(value, Column):
                    return Path(column, (), type_name(value.kind), name=name, ordinary=True)
                return _at(Path(column, (), name=name), value.keys, str(value), type_name(value.kind))
            case Cast(child, kind):
                return _cast(self._side(child), type_name(kind))
            case Literal(constant):
                return self._numbered([constant])
            case str():
                return self._numbered([value])
            case tuple():
                return self._numbered([one.value for one in value])
        return Unknown(f"{value}: not a path")

    def _numbered(self, values: list[Any]) -> Constants:
        known = [value for value in values if value is not None]
        self.constants.append(known)
        texts = tuple("true" if value is True else str(value) for value in known)
        return Constants("", texts, len(known), len(known) < len(values), len(self.constants) - 1)


def _tested(op: str, left: Side, right: Side) -> Predicate:
    """The predicate `path op constants`. `path <=> NULL` is unknown, because it is true for rows without the path."""
    if isinstance(left, Constants) and op in FLIPPED:
        op, left, right = FLIPPED[op], right, left
    if isinstance(left, Path) and isinstance(right, Constants):
        path, constants = left, right if right.type else replace(right, type=left.result)
        match op:
            case "in":
                return predicates.In(path, (constants,))
            case "startswith":
                return StartsWith(path, constants)
            case "like" if constants.texts == ("",):
                return Unknown(f"{path} LIKE: the pattern has no fixed beginning")
            case "like":  # the constant is the part of the pattern before its first wildcard or escape
                return And((StartsWith(path, constants), Unknown()))
            case _ if op in FLIPPED and not (op == "<=>" and constants.null):
                return predicates.Comparison(op, path, constants)
    return right if isinstance(right, Unknown) and not isinstance(left, Unknown) else _unknown(op, left)


def _unknown(op: str, first: Side) -> Unknown:
    return first if isinstance(first, Unknown) else Unknown(f"{first} {op}: not a comparison with a constant")


def narrowed(of: Side, path: str, target: str) -> Side:
    """`variant_get` of a VARIANT."""
    try:
        return _at(of, parse_variant_path(path), path, target)
    except InvalidPathError as error:
        return Unknown(str(error))


def _at(of: Side, steps: Sequence[str | int], text: str, target: str) -> Side:
    if not isinstance(of, Path):
        return of
    if of.result != "variant":
        return Unknown(f"{of}: not a VARIANT")
    keys = object_keys(steps)
    if keys is None:
        return Unknown(f"{of.name}: {text} goes through an array, which has no bounds")
    return replace(of, keys=of.keys + keys, type=target)


def _cast(of: Side, target: str) -> Side:
    if not isinstance(of, Path):
        return of if isinstance(of, Unknown) else Unknown(f"{of}: not a path")
    if of.result == "variant":
        return replace(of, type=target)
    if of.result == "string" and target in TIMES and not of.ordinary:
        return replace(of, type=target, text=True)
    if keeps_order(of.result, target):
        return replace(of, casts=(*of.casts, target))
    return Unknown(f"{of}: a cast to {target} can fail or change the order of values")
