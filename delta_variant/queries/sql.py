"""The text of a predicate or of a column → an expression whose names are bound to the table's fields.

`lexing` reads strings, names and paths by Spark's rules, and sqlglot parses the rest in the dialect of Databricks, which has
`v:path::type`. This module takes a subset of the tree, listed in `scan`, and gives it Spark's types: literals, implicit casts
(ANSI mode) and LIKE. Everything else is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import tzinfo
from decimal import Decimal
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from delta_variant import schema as shredding_schemas
from delta_variant import types as t
from delta_variant.errors import CastError, InvalidPathError, InvalidSchemaError, UnsupportedFeatureError
from delta_variant.paths import Keys, parse_column, parse_variant_path
from delta_variant.queries import casts, lexing
from delta_variant.queries.expressions import And, Cast, Column, Comparison, Get, In, IsNull, Like, Literal, Not, Or, Value
from delta_variant.queries.fields import Kind, Struct, Variant, resolved, type_name
from delta_variant.queries.predicates import joined

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NullSafeEQ: "<=>",
}  # fmt: skip
_DIALECT = "databricks"
_EXPRESSION = re.compile(r"\s*(?:try_)?variant_get\s*\(|(?:`[^`]*`|[^`:])*:", re.IGNORECASE)
_PLACEHOLDER = re.compile(rf"\b{lexing.PLACEHOLDER}([0-9]+)\b")
_PLAIN = re.compile(r"`([A-Za-z_][A-Za-z0-9_]*)`")
_TESTS = (exp.In, exp.Between, exp.Like, exp.Is, exp.NullSafeNEQ)
# In Spark, comparisons bind before tests and NOT, from left to right, and a test is not an operand of either: `a = b IS NULL`
# is `(a = b) IS NULL`. In sqlglot tests bind first. IS NOT DISTINCT FROM is a NullSafeEQ there.
_NO_LEFT = (*_TESTS, exp.Escape, exp.Not, exp.NullSafeEQ)
_NO_RIGHT = (*_COMPARISONS, *_TESTS, exp.Escape, exp.Not)
_LONG, _INT = pa.int64(), pa.int32()
_NAMES = {exp.DType.TIME: "time", exp.DType.UUID: "uuid", exp.DType.TIMESTAMPLTZ: "timestamp"}
_MAX_LIKE = 50_000  # RE2 refuses some 64,000 `_`; before the first wildcard it takes millions of characters
_BOOLEAN, _STRING = pa.bool_(), pa.string()


def parse_where(text: str, schema: Struct, at: tzinfo) -> Value:
    """A predicate. Raises UnsupportedFeatureError for what is not supported, InvalidPathError for a path that is none, and
    TableError for a column that is not there."""
    read = lexing.read(text)
    with _parsing(text, "a predicate"):
        return _Binder(schema, at, text, read.paths).boolean(sqlglot.parse_one(read.sql, dialect=_DIALECT))


def parse_column_text(text: str, schema: Struct, at: tzinfo) -> Column | Get:
    """A column or a path, as `v:actor.id` or `v:actor.id::bigint` or `try_variant_get(v, '$.actor.id', 'bigint')`.

    Text with a colon is an expression of Spark SQL. Text without is the name of a column, as in `DataFrame.select`.
    """
    if not _EXPRESSION.match(text):
        return Column(resolved(schema, parse_column(text.strip())))
    found = parse_any(text, schema, at)
    if isinstance(found, Column | Get):
        return found
    raise UnsupportedFeatureError(f"{text!r} is not a column: scan returns columns and paths; cast them afterwards")


def without_type(text: str) -> str:
    """The text of a column without its type: what stands before the first `::`.

    >>> without_type("v:a :: bigint"), without_type("v:['x::y']")
    ('v:a', "v:['x::y']")
    """
    typed = [token.at for token in lexing.tokens(text) if token.text == "::"] if _EXPRESSION.match(text) else []
    return text[: typed[0] if typed else None].strip()


def parse_any(text: str, schema: Struct, at: tzinfo) -> Value:
    """Any supported expression."""
    read = lexing.read(text)
    with _parsing(text, "an expression"):
        return _Binder(schema, at, text, read.paths).value(sqlglot.parse_one(read.sql, dialect=_DIALECT))


@contextmanager
def _parsing(text: str, what: str) -> Iterator[None]:
    """Makes one error of what sqlglot raises while a text is parsed and while its parts are written as SQL."""
    try:
        yield
    except (SqlglotError, RecursionError) as error:
        deep = isinstance(error, RecursionError) or isinstance(error.__cause__, RecursionError)
        reason = "it is nested too deep" if deep else re.sub(r"\x1b\[\d*m", "", str(error)).splitlines()[0]
        raise UnsupportedFeatureError(f"{text!r} cannot be parsed as {what} of Spark: {reason}") from None


def _type(name: str, text: str) -> Kind:
    try:
        kind = shredding_schemas.parse(name)
    except InvalidSchemaError:
        kind = pa.struct([])
    if pa.types.is_null(kind):
        return Variant()
    if t.read_as(kind) is None:
        raise UnsupportedFeatureError(f"{text!r}: {name} is not a type that scan can cast to: use numbers, string, boolean, "
                                      "binary, date, timestamp, timestamp_ntz or variant")  # fmt: skip
    return kind


def _listed(part: Value) -> tuple[Value, list[Literal]] | None:
    """The value that a part says to be equal to a constant, and the constant."""
    match part:
        case Comparison("=", left, Literal() as constant):
            return left, [constant]
    return None


class _Binder:
    """Binds the nodes of one text."""

    def __init__(self, schema: Struct, at: tzinfo, text: str, paths: Sequence[tuple[str, Keys]]) -> None:
        self._schema, self._zone, self._text, self._paths = schema, at, text, paths

    def spelled(self, node: exp.Expr) -> str:
        """A node as SQL, with names and paths as users write them."""
        spelled = {str(number): text for number, (text, _) in enumerate(self._paths)}
        return _PLACEHOLDER.sub(lambda match: spelled.get(match[1], match[0]), _PLAIN.sub(r"\1", node.sql(dialect=_DIALECT)))

    def refuse(self, node: exp.Expr | str, why: str = "is not supported") -> UnsupportedFeatureError:
        shown = node if isinstance(node, str) else self.spelled(node)
        return UnsupportedFeatureError(
            f"{shown} in {self._text!r} {why}: scan takes AND, OR, NOT, comparisons, IN, BETWEEN, IS NULL and LIKE over "
            "columns, v:path::type, casts and literals. Filter the rows afterwards, for example with DuckDB"
        )

    def value(self, node: exp.Expr) -> Value:
        op = _COMPARISONS.get(type(node))
        if (op and (isinstance(node.this, _NO_LEFT) or isinstance(node.expression, _NO_RIGHT))) or (
            isinstance(node, _TESTS) and isinstance(node.this, _NO_LEFT)
        ):
            raise self.refuse(node, "needs parentheses (Spark reads comparisons from left to right, and tests like IN last)")
        if op:
            return self.compare(op, self.value(node.this), self.value(node.expression), node)
        handler: Callable[[Any], Value] | None = getattr(self, f"_on_{type(node).__name__.lower()}", None)
        if handler is None:
            raise self.refuse(node)
        return handler(node)

    def boolean(self, node: exp.Expr) -> Value:
        """The expression of a node that has to be a boolean."""
        found = self.value(node)
        if isinstance(found, Literal) and found.value is None:
            return Literal(None, _BOOLEAN)
        if found.kind != _BOOLEAN:
            raise self.refuse(node, f"is {type_name(found.kind)}, not a predicate")
        return found

    def _on_paren(self, node: exp.Paren) -> Value:
        return self.value(node.this)

    def _on_and(self, node: exp.And) -> Value:
        return And(self._parts(node, exp.And))

    def _on_or(self, node: exp.Or) -> Value:
        return Or(joined(self._parts(node, exp.Or), _listed, In))  # an IN is looked up

    def _parts(self, node: exp.Expr, kind: type[exp.Expr]) -> tuple[Value, ...]:
        """The operands of a chain, however deep it is."""
        parts: list[Value] = []
        todo = [node]
        while todo:
            here = todo.pop()
            if type(here) is kind:
                todo += [here.expression, here.this]
            else:
                parts.append(self.boolean(here))
        return tuple(parts)

    def _on_not(self, node: exp.Not) -> Value:
        return Not(self.boolean(node.this))

    def _on_is(self, node: exp.Is) -> Value:
        if isinstance(node.expression, exp.Null):
            return IsNull(self.value(node.this))
        if isinstance(node.expression, exp.Boolean):
            return Comparison("<=>", self.boolean(node.this), Literal(bool(node.expression.this), _BOOLEAN))
        raise self.refuse(node)

    def _on_nullsafeneq(self, node: exp.NullSafeNEQ) -> Value:
        return Not(self.compare("<=>", self.value(node.this), self.value(node.expression), node))

    def _on_between(self, node: exp.Between) -> Value:
        if node.args.get("symmetric"):
            raise self.refuse(node)
        child = self.value(node.this)  # Spark does not pad the constants of BETWEEN for a CHAR
        low = self.compare(">=", child, self.value(node.args["low"]), node, pads=False)
        return And((low, self.compare("<=", child, self.value(node.args["high"]), node, pads=False)))

    def _on_in(self, node: exp.In) -> Value:
        child = self.value(node.this)
        listed = [self.value(part) for part in node.expressions]
        if not listed or any(node.args.get(name) is not None for name in ("query", "unnest", "field")):
            raise self.refuse(node)
        is_constant = all(isinstance(part, Literal) for part in listed)
        if not is_constant and any(isinstance(part, Column) and part.fields[-1].length for part in (child, *listed)):
            raise self.refuse(node, "has a CHAR in an IN with columns: write it with = and OR")
        child = self._uncollated(child, node)
        kinds = [child.kind, *(part.kind for part in listed if not pa.types.is_null(part.kind))]
        if all(isinstance(kind, pa.DataType) and t.is_exact(kind) for kind in kinds):
            self._exact([_digits(kind) for kind in kinds if isinstance(kind, pa.DataType)], node)
        else:
            target = kinds[0]
            for kind in kinds:
                target = self._common(target, kind, node)
            listed = [self._padded(part, child, node) for part in listed]
            child = self._as(child, target)
            listed = [self._as(part, target) for part in listed]
        if not is_constant:
            return Or(tuple(self.compare("=", child, part, node) for part in listed))
        return In(child, tuple(part for part in listed if isinstance(part, Literal)))

    def _on_like(self, node: exp.Like, escape: str = "\\") -> Value:
        child, pattern = self.value(node.this), self.value(node.expression)
        if child.kind != _STRING or not isinstance(pattern, Literal):
            raise self.refuse(node)
        if pattern.value is None:
            return Literal(None, _BOOLEAN)
        found = _like_regex(str(pattern.value), escape)
        if found is None:
            raise self.refuse(node, f"has {escape!r} before a character that is not a wildcard")
        if len(str(pattern.value)) - len(found[0]) > _MAX_LIKE:
            raise self.refuse("LIKE", f"has more than {_MAX_LIKE:,} characters from the first wildcard on")
        like = Like(self._uncollated(child, node), *found)
        return Not(like) if node.args.get("negate") else like

    def _on_escape(self, node: exp.Escape) -> Value:
        escape = self.value(node.expression)
        if not isinstance(node.this, exp.Like) or not isinstance(escape, Literal) or len(str(escape.value)) != 1:
            raise self.refuse(node)
        return self._on_like(node.this, str(escape.value))

    def _on_startswith(self, node: exp.StartsWith) -> Value:
        child, prefix = self.value(node.this), self.value(node.expression)
        if child.kind != _STRING or not isinstance(prefix, Literal) or not isinstance(prefix.value, str):
            raise self.refuse(node)
        return Like(self._uncollated(child, node), prefix.value, rf"(?s)\A{re.escape(prefix.value)}")

    # ---- columns and paths ----------------------------------------------------------------------------------------

    def _on_column(self, node: exp.Column) -> Value:
        return Column(resolved(self._schema, [part.name for part in node.parts]))

    def _on_dot(self, node: exp.Dot) -> Value:
        inner = self.value(node.this)
        if not isinstance(inner, Column) or not isinstance(node.expression, exp.Identifier):
            raise self.refuse(node)
        return Column(resolved(self._schema, [*(field.name for field in inner.fields), node.expression.name]))

    def _on_jsonextract(self, node: exp.JSONExtract) -> Value:
        if not node.args.get("variant_extract"):
            raise self.refuse(node)
        parts = [getattr(part, "this", None) for part in node.expression.expressions[1:]]
        placeholder = _PLACEHOLDER.fullmatch(str(parts[0])) if len(parts) == 1 else None
        if placeholder is None:  # sqlglot takes more for paths than Spark: v:a::string[0]
            raise self.refuse(node)
        return self._at(self.value(node.this), self._paths[int(placeholder[1])][1], node)

    def _at(self, child: Value, keys: Keys, node: exp.Expr) -> Get:
        if isinstance(child, Column) and isinstance(child.kind, Variant):
            return Get(child.fields, keys, Variant())
        if isinstance(child, Get) and isinstance(child.kind, Variant):
            return replace(child, keys=child.keys + keys)
        what = self.spelled(node.this if isinstance(node, exp.JSONExtract) else node.expressions[0])
        raise InvalidPathError(f"{self._text!r}: {what} is {type_name(child.kind)}, not VARIANT: leave out the path")

    def _on_anonymous(self, node: exp.Anonymous) -> Value:
        name = str(node.this).lower()
        if name not in ("variant_get", "try_variant_get") or len(node.expressions) not in (2, 3):
            raise self.refuse(node)
        arguments = [self.value(part) for part in node.expressions]
        texts = [part.value for part in arguments[1:] if isinstance(part, Literal) and isinstance(part.value, str)]
        if len(texts) < len(arguments) - 1:
            raise self.refuse(node)
        try:
            keys = parse_variant_path(texts[0])
        except InvalidPathError as error:
            raise InvalidPathError(f"{self._text!r}: {error}") from None
        found = self._at(arguments[0], keys, node)
        if not texts[1:]:
            return replace(found, strict=name == "variant_get")
        if re.split(r"[\s(<]", texts[1].strip().lower())[0] not in lexing.TYPES:
            raise UnsupportedFeatureError(f"{self._text!r}: {texts[1]} is not a type of Spark")
        return _typed(found, _type(texts[1], self._text), strict=name == "variant_get")

    # ---- casts ----------------------------------------------------------------------------------------------------

    def _on_cast(self, node: exp.Cast) -> Value:
        strict = not isinstance(node, exp.TryCast)
        name = _NAMES.get(node.to.this, node.to.sql(dialect="spark").lower())
        child, target = self.value(node.this), _type(name, self._text)
        if isinstance(child.kind, Variant):
            if isinstance(child, Column):
                child = Get(child.fields, (), Variant())
            assert isinstance(child, Get)
            return _typed(child, target, strict=strict)
        if not isinstance(target, pa.DataType) or not isinstance(child.kind, pa.DataType) or pa.types.is_nested(child.kind):
            raise self.refuse(node)
        if not casts.castable(child.kind, target):
            raise self.refuse(node, f"casts {type_name(child.kind)} to {type_name(target)}, which Spark refuses")
        if isinstance(child, Column) and child.fields[-1].length and target == _STRING:
            return Cast(child, target, strict=False)  # a string with the spaces of the CHAR, which comparisons do not pad
        return self._as(child, target, strict=strict)

    _on_trycast = _on_cast

    def _as(self, child: Value, target: Kind, *, strict: bool = True) -> Value:
        """A cast; that of a literal is computed now."""
        assert isinstance(target, pa.DataType)
        if child.kind == target:
            return child
        if not isinstance(child, Literal):
            return Cast(child, target, strict)
        if child.value is None:
            return Literal(None, target)
        found = casts.cast_one(child.value, child.kind, target, self._zone)
        if found is None and strict:
            raise CastError(f"{child} in {self._text!r} cannot be cast to {type_name(target)}")
        return Literal(found, target)

    # ---- literals -------------------------------------------------------------------------------------------------

    def _on_null(self, _: exp.Null) -> Value:
        return Literal(None, pa.null())

    def _on_boolean(self, node: exp.Boolean) -> Value:
        return Literal(bool(node.this), _BOOLEAN)

    def _on_literal(self, node: exp.Literal) -> Value:
        if node.is_string:
            return Literal(str(node.this), _STRING)
        text = str(node.this)
        if "e" in text.lower():
            if float(text) == float("inf"):
                raise self.refuse(node, "is too large for a double")
            return Literal(float(text), pa.float64())
        number = Decimal(text)
        if "." not in text:
            for kind, limit in ((_INT, 2**31), (_LONG, 2**63)):
                if number < limit:
                    return Literal(int(number), kind)
        _, digits, exponent = number.as_tuple()
        scale = -int(exponent)
        precision = max(len(digits), scale, 1)
        if precision > t.MAX_PRECISION:
            raise self.refuse(node, "has more than 38 digits")
        return Literal(number, pa.decimal128(precision, scale))

    def _on_neg(self, node: exp.Neg) -> Value:
        inner = node.this
        if isinstance(inner, exp.Literal) and str(inner.this) in ("2147483648", "9223372036854775808"):
            return Literal(-int(inner.this), _INT if inner.this == "2147483648" else _LONG)
        found = self.value(inner)
        if (
            not isinstance(found, Literal)
            or isinstance(found.value, bool | str | bytes)
            or not (t.is_exact(found.kind) or pa.types.is_floating(found.kind))
        ):
            raise self.refuse(node)
        number: Any = found.value
        if number is None:
            return found
        return replace(found, value=number.copy_negate() if isinstance(number, Decimal) else -number)

    # ---- types ----------------------------------------------------------------------------------------------------

    def compare(self, op: str, left: Value, right: Value, node: exp.Expr, *, pads: bool = True) -> Value:
        """A comparison, with the casts that Spark adds to its sides. pads: whether constants get the length of a CHAR."""
        kinds = (left.kind, right.kind)
        for side, other in ((right, left), (left, right)):
            if op == "<=>" and isinstance(side, Literal) and side.value is None:
                return IsNull(other)
        left, right = self._uncollated(left, node), self._uncollated(right, node)
        if pads:
            left, right = self._padded(left, right, node), self._padded(right, left, node)
        if all(isinstance(kind, pa.DataType) and t.is_exact(kind) for kind in kinds):
            self._exact([_digits(left), _digits(right)], node)
        else:
            target = self._common(*kinds, node)
            left, right = self._as(left, target), self._as(right, target)
        return Comparison(op, left, right)

    def _uncollated(self, value: Value, node: exp.Expr) -> Value:
        if isinstance(value, Column) and value.fields[-1].collated:
            raise self.refuse(node, "compares a string with a collation")
        return value

    def _padded(self, value: Value, other: Value, node: exp.Expr) -> Value:
        """A literal as Spark compares it with a CHAR: both have the length of the longer one."""
        length = other.fields[-1].length if isinstance(other, Column) else 0
        own = value.fields[-1].length if isinstance(value, Column) else 0
        if own and length and own != length:
            raise self.refuse(node, "compares CHARs of different lengths")
        if not length or not isinstance(value, Literal) or not isinstance(value.value, str):
            return value
        more = value.value[length:].lstrip(" ")
        if more[:1] and more[0] < " ":
            raise self.refuse(node, "compares a CHAR with a longer text that has a control character")
        return replace(value, value=value.value if more else value.value[:length].ljust(length))

    def _common(self, left: Kind, right: Kind, node: exp.Expr) -> pa.DataType:
        """The type in which Spark compares two types (ANSI mode)."""
        if (
            not isinstance(left, pa.DataType)
            or not isinstance(right, pa.DataType)
            or any(map(pa.types.is_nested, (left, right)))
        ):
            raise self.refuse(node, "compares a VARIANT, struct, list or map: give the path a type, as in v:a::bigint")
        if left == right or pa.types.is_null(right):
            return left
        if pa.types.is_null(left):
            return right
        numbers = [t.is_exact(kind) or pa.types.is_floating(kind) for kind in (left, right)]
        if all(numbers):
            if pa.types.is_integer(left) and pa.types.is_integer(right):
                return t.wider(left, right)
            if t.is_exact(left) and t.is_exact(right):
                return self._exact([_digits(left), _digits(right)], node)
            return pa.float64()
        if _STRING in (left, right):
            other = right if left == _STRING else left
            if pa.types.is_binary(other):
                raise self.refuse(node, "compares a string with a binary")
            return _LONG if pa.types.is_integer(other) else pa.float64() if any(numbers) else other
        if t.is_time(left) and t.is_time(right):
            return casts.INSTANT if casts.INSTANT in (left, right) else casts.LOCAL
        raise self.refuse(node, f"compares {type_name(left)} with {type_name(right)}")

    def _exact(self, digits: Sequence[tuple[int, int]], node: exp.Expr) -> pa.DataType:
        """The decimal in which Spark compares exact numbers with so many digits before and after the point."""
        found = t.decimal_with(digits)
        if pa.types.is_decimal256(found):
            raise self.refuse(node, "compares numbers of more than 38 digits together, which Spark rounds (cast one of them)")
        return found


def _typed(path: Get, kind: Kind, *, strict: bool) -> Get:
    """A path that is asked for as a type. As VARIANT it cannot fail, and files do not choose another type for it."""
    return replace(path, kind=kind, strict=strict and not isinstance(kind, Variant))


def _digits(value: Value | pa.DataType) -> tuple[int, int]:
    """The digits before and after the point of an exact number: of a type, or of a whole literal itself."""
    kind = value if isinstance(value, pa.DataType) else value.kind
    if isinstance(value, Literal) and isinstance(value.value, int) and not pa.types.is_decimal(kind):
        return len(str(abs(value.value))), 0
    before, after = t.digits(kind)
    return before + (kind == _LONG), after  # Spark compares BIGINT as decimal(20,0)


def _like_regex(pattern: str, escape: str) -> tuple[str, str] | None:
    """The fixed beginning of a LIKE pattern, and the pattern as a regular expression; None if an escape stands before another
    character, or at the end."""
    prefix, regex, fixed = "", "", True
    for escaped, char in re.findall(rf"({re.escape(escape)}?)(.?)", pattern, re.DOTALL):
        if char and char in "_%" and not escaped:
            regex, fixed = regex + (".*" if char == "%" else "."), False
            continue
        if escaped and char not in ("_", "%", escape):
            return None
        regex += re.escape(char)
        prefix += char if fixed else ""
    return prefix, rf"(?s)\A{regex}\z"
