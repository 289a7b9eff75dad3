"""What a filter of pyarrow says, as a predicate that rules out files, row groups and rows.

In: the expression that DuckDB, Polars or DataFusion hands over, and what each column of the dataset is. Out: a predicate of
`expressions` that is true in every row for which pyarrow finds the filter true, and maybe in more: the filter itself is
evaluated on what is left. What cannot be said so is left out, which costs skipping and no rows.

pyarrow shows an expression in one exact form, its pickle: an IPC file with the literals and options as columns of one row, and
the tree as pairs of texts in the metadata of its schema (`arrow::compute::Serialize`). Its text lacks types and parts of lists,
and Substrait has neither lists nor safe casts.

What is different here from pyarrow, and when it matters:

- NaN. Here it is the largest number, and equal to itself; in pyarrow every comparison but `!=` is false for it. So `x > 1` has
  more rows here, which is allowed, but NOT of it has fewer: `>` and `>=` of floats are left out below NOT.
- `is_in` is false for NULL in pyarrow, not NULL, and finds NULL in a list that has it. So it is left out below NOT. Its list is
  cast to the column's type; only lists of that type are taken.
- Numbers of different types are compared as the larger type in pyarrow. Only exact numbers are compared with exact ones, and
  floats with numbers that their type has.
- A time is compared in the finer unit. Only those that the column's type has are taken.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from delta_variant import types as t
from delta_variant.queries import casts
from delta_variant.queries.expressions import And, Column, Comparison, Get, In, IsNull, Like, Literal, Not, Or, Value
from delta_variant.queries.fields import Struct
from delta_variant.queries.predicates import FLIPPED, OPPOSITE

_COMPARISONS = {"equal": "=", "not_equal": "<>", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}
_AND, _OR = ("and", "and_kleene"), ("or", "or_kleene")
_BOOLEAN, _LONG = pa.bool_(), pa.int64()
_FALSE = Literal(False, _BOOLEAN)
_UNITS = {"s": 1_000_000, "ms": 1000, "us": 1}
_POINTER = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


@dataclass(frozen=True)
class _Field:
    """A column, or a field of a struct in it."""

    names: tuple[str, ...]


@dataclass
class _Call:
    """A function of pyarrow."""

    name: str
    arguments: list[_Node] = field(default_factory=list)
    options: Mapping[str, Any] = field(default_factory=dict)


_Node: TypeAlias = "_Field | _Call | pa.Scalar"


def columns_of(expressions: Iterable[Any]) -> frozenset[str] | None:
    """The columns that expressions of pyarrow read; None if that is not known."""
    names: set[str] = set()
    for expression in expressions:
        read = _read(expression)
        if read is None:
            return None
        todo = [read]
        while todo:
            node = todo.pop()
            if isinstance(node, _Field):
                names.add(node.names[0])
            elif isinstance(node, _Call):
                todo += node.arguments
    return frozenset(names)


def predicate_of(expression: Any, columns: Mapping[str, Value]) -> Value | None:
    """A predicate that is true wherever a filter of pyarrow is; None if nothing is known."""
    read = _read(expression)
    try:
        return None if read is None else _Reading(columns).weaker(read, no=False)
    except RecursionError:
        return None


# ---- the form of expressions ----------------------------------------------------------------------------------------


def _read(expression: Any) -> _Node | None:
    """The tree of an expression; None if pyarrow cannot write it, or writes it in another form than is known here."""
    try:
        with pa.ipc.open_file(expression.__reduce__()[1][0]) as file:
            return _tree(_metadata(file.schema), file.get_batch(0))
    except (pa.ArrowException, KeyError, ValueError, IndexError, TypeError, AttributeError):
        return None


def _tree(pairs: Sequence[tuple[str, str]], batch: pa.RecordBatch) -> _Node:
    open_, nested = [_Call("")], 0
    names: list[str] = []
    for key, value in pairs:
        match key:
            case "call":
                open_.append(_Call(value))
            case "end":
                done = open_.pop()
                open_[-1].arguments.append(done)
            case "options":
                open_[-1].options = dict(batch.column(int(value))[0])
            case "literal":
                open_[-1].arguments.append(batch.column(int(value))[0])
            case "nested_field_ref":
                nested = int(value)
            case "field_ref":
                names.append(value)
                if len(names) >= nested:
                    open_[-1].arguments.append(_Field(tuple(names)))
                    names, nested = [], 0
            case _:
                raise KeyError(key)
    [root], [whole] = open_, open_[0].arguments
    return whole if root is open_[0] else root


def _metadata(schema: pa.Schema) -> list[tuple[str, str]]:
    """The metadata of a schema, with keys that occur twice, which `Schema.metadata` drops. Source: Arrow C data interface."""
    capsule = schema.__arrow_c_schema__()
    place = ctypes.cast(_POINTER(capsule, b"arrow_schema"), ctypes.POINTER(ctypes.c_void_p * 3)).contents[2]
    if not place:
        return []

    def read(at: int) -> int:
        return ctypes.cast(at, ctypes.POINTER(ctypes.c_int32)).contents.value

    texts, at = [], place + 4
    for _ in range(2 * read(place)):
        texts.append(ctypes.string_at(at + 4, read(at)).decode())
        at += 4 + read(at)
    return list(zip(texts[::2], texts[1::2], strict=True))


# ---- predicates -----------------------------------------------------------------------------------------------------


class _Reading:
    """Predicates on the columns of a dataset. Below NOT (`no`), what is asked for is where pyarrow finds a part false."""

    def __init__(self, columns: Mapping[str, Value]) -> None:
        self._columns = columns

    def weaker(self, node: _Node, *, no: bool) -> Value | None:
        match node:
            case pa.BooleanScalar():
                return Literal(node.as_py() is (not no), _BOOLEAN)
            case _Field():
                found = self._column(node)
                return None if found is None or found.kind != _BOOLEAN else Not(found) if no else found
            case _Call("invert", [child]):
                return self.weaker(child, no=not no)
            case _Call(name, parts) if name in (*_AND, *_OR):
                return _joined([self.weaker(part, no=no) for part in parts], And if (name in _AND) != no else Or)
            case _Call("if_else", [_, one, other]):  # DuckDB wraps its lists so
                return _joined([self.weaker(part, no=no) for part in (one, other)], Or)
            case _Call(name, [_Field() as child, *rest], options):
                found = self._column(child)
                if found is None:
                    return None
                if name in _COMPARISONS and len(rest) == 1:
                    return _compared(_COMPARISONS[name], found, rest[0], no=no)
                return _tested(name, found, options, no=no)
            case _Call(name, [pa.Scalar() as constant, _Field() as child]) if name in _COMPARISONS:
                found = self._column(child)
                return None if found is None else _compared(FLIPPED[_COMPARISONS[name]], found, constant, no=no)
        return None

    def _column(self, node: _Field) -> Column | Get | None:
        """A column or a path, if its type is plain, and its values are in the table as they are in the dataset."""
        found = self._columns.get(node.names[0])
        for name in node.names[1:]:
            fields = found.kind.fields if isinstance(found, Column) and isinstance(found.kind, Struct) else ()
            inner = next((one for one in fields if one.name == name), None)
            found = None if inner is None or not isinstance(found, Column) else Column((*found.fields, inner))
        if not isinstance(found, Column | Get) or not isinstance(found.kind, pa.DataType) or pa.types.is_nested(found.kind):
            return None
        if isinstance(found, Column) and any(one.length or one.collated for one in found.fields):
            return None
        return found


def _joined(parts: Sequence[Value | None], kind: type[And | Or]) -> Value | None:
    known = [part for part in parts if part is not None]
    if not known or (kind is Or and len(known) < len(parts)):
        return None
    flat = [inner for part in known for inner in (part.parts if isinstance(part, And | Or) and type(part) is kind else (part,))]
    return kind(tuple(flat))


def _compared(op: str, column: Column | Get, constant: _Node, *, no: bool) -> Value | None:
    literal = _literal(constant, column.kind) if isinstance(constant, pa.Scalar) else None
    if literal is None or (no and op in (">", ">=") and pa.types.is_floating(column.kind)):
        return None
    return Comparison(OPPOSITE[op] if no else op, column, literal)


def _tested(name: str, column: Column | Get, options: Mapping[str, Any], *, no: bool) -> Value | None:
    kind = column.kind
    match name:
        case "is_valid":
            return IsNull(column) if no else Not(IsNull(column))
        case "is_null" if not options["nan_is_null"].as_py():
            return Not(IsNull(column)) if no else IsNull(column)
        case "starts_with" if not options["ignore_case"].as_py() and kind == pa.string():
            prefix = options["pattern"].as_py()
            found = Like(column, prefix, rf"(?s)\A{re.escape(prefix)}")
            return Not(found) if no else found
        case "is_in" if not no:
            values = options["value_set"].values
            alike = values.type == kind or all(map(pa.types.is_integer, (values.type, kind)))
            if not alike and not (t.is_string(values.type) and t.is_string(kind)):
                return None
            literals = [_literal(value, kind) for value in values if value.is_valid]
            known = tuple(literal for literal in literals if literal is not None)
            if len(known) < len(literals):
                return None
            found_in = In(column, known) if known else _FALSE
            return Or((found_in, IsNull(column))) if values.null_count else found_in
    return None


def _literal(scalar: pa.Scalar, kind: Any) -> Literal | None:
    """A literal that a column of some type is compared with, in a type that has it exactly; None if pyarrow may round."""
    own = scalar.type
    if not scalar.is_valid:
        return None
    if t.is_exact(kind):
        if pa.types.is_integer(own):
            return Literal(scalar.as_py(), _LONG) if -(2**63) <= scalar.as_py() < 2**63 else None
        return Literal(scalar.as_py(), own) if pa.types.is_decimal128(own) and own.scale >= 0 else None
    if pa.types.is_floating(kind):
        if not pa.types.is_floating(own) and not pa.types.is_integer(own):
            return None
        number = float(scalar.as_py())
        with np.errstate(over="ignore"):
            stays = number == scalar.as_py() and (pa.types.is_float64(kind) or float(np.float32(number)) == number)
        return Literal(number, kind) if stays else None
    if pa.types.is_timestamp(kind):
        factor = _UNITS.get(own.unit, 0) if pa.types.is_timestamp(own) and own.tz == kind.tz else 0
        number = scalar.value * factor if factor else 2**63
        return Literal(number, kind) if -(2**63) <= number < 2**63 else None
    if own == kind or (t.is_string(kind) and t.is_string(own)):
        return Literal(casts.values_of(pa.repeat(scalar, 1))[0], kind)
    return None
