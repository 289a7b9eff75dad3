"""DDL text ⇄ shredding schema. Invariant: `parse(ddl(x))` is x, with decimals of every width as decimal128."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from delta_variant import types as t
from delta_variant.errors import InvalidSchemaError
from delta_variant.paths import quoted
from delta_variant.schema.rules import check, is_list

_BY_NAME = {name: p.arrow for p in t.PRIMITIVES if p.arrow is not None for name in (p.name, p.spark) if name}
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([\w.$-]+)|([<>(),:]))")
_NUMBER = re.compile(r"[0-9]{1,99}")


def parse(ddl: str) -> pa.DataType:
    """The shredding schema in Spark DDL text: a type (`struct<a: int>`) or the fields of an object (`a int, b array<string>`).

    The names of types are Spark's, plus time, uuid, timestamp_nanos, timestamp_ntz_nanos, and `variant` for a field without a
    type. Names in backquotes may be empty. Raises InvalidSchemaError, also for types nested some hundred levels deep.

    >>> import delta_variant as dv
    >>> print(dv.schema.parse("actor struct<id: bigint>, amount decimal(18, 2)"))
    struct<actor: struct<id: int64>, amount: decimal128(18, 2)>
    """
    try:
        schema = _Parser(ddl).whole()
        check(schema)
    except RecursionError:
        raise InvalidSchemaError(
            f"shredding schema of {len(ddl)} characters: it is nested too deeply: leave the deepest levels out"
        ) from None
    return schema


def ddl(schema: pa.DataType) -> str:
    """The Spark DDL text of a shredding schema, as `parse` takes it.

    >>> import delta_variant as dv
    >>> dv.schema.ddl(dv.schema.parse("actor struct<id: bigint>, `odd name` array<string>"))
    'actor struct<id: bigint>, `odd name` array<string>'
    """
    if pa.types.is_struct(schema) and schema.num_fields:
        return ", ".join(f"{_name(field.name)} {_type(field.type)}" for field in schema)
    return _type(schema)


def _type(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{_name(field.name)}: {_type(field.type)}' for field in kind)}>"
    if is_list(kind):
        return f"array<{_type(kind.value_type)}>"
    if pa.types.is_null(kind):
        return "variant"
    primitive = t.of_arrow(kind)
    if primitive is None:
        raise InvalidSchemaError(f"{kind} is not a type of a shredding schema")
    return f"decimal({kind.precision},{kind.scale})" if pa.types.is_decimal(kind) else primitive.spark or primitive.name


def _name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quoted(name)


class _Parser:
    def __init__(self, ddl: str) -> None:
        self.ddl = ddl
        self.tokens = list(self._scan())  # (text, is it a quoted name)
        self.at = 0

    def _scan(self) -> Iterator[tuple[str, bool]]:
        at = 0
        while self.ddl[at:].strip():
            token = _TOKEN.match(self.ddl, at)
            if token is None:
                raise InvalidSchemaError(f"shredding schema {self.ddl!r}: unexpected text at character {at}")
            yield (token[1].replace("``", "`"), True) if token[1] is not None else (token[2] or token[3], False)
            at = token.end()

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead][0] if self.at + ahead < len(self.tokens) else ""

    def fail(self, expected: str) -> InvalidSchemaError:
        found = repr(self.peek()) if self.at < len(self.tokens) else "the end"
        return InvalidSchemaError(f"shredding schema {self.ddl!r}: {expected} expected, {found} found")

    def take(self, symbol: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at] == (symbol, False):
            self.at += 1
            return True
        return False

    def need(self, symbol: str) -> None:
        if not self.take(symbol):
            raise self.fail(repr(symbol))

    def whole(self) -> pa.DataType:
        alone = len(self.tokens) < 2 or self.tokens[1] in (("<", False), ("(", False))
        schema = self.type() if alone else pa.struct(self.fields())
        if self.at < len(self.tokens):
            raise self.fail("the end")
        return schema

    def fields(self) -> list[pa.Field]:
        fields = [self.field()]
        while self.take(","):
            fields.append(self.field())
        return fields

    def field(self) -> pa.Field:
        name, is_quoted = self.tokens[self.at] if self.at < len(self.tokens) else ("", False)
        if not is_quoted and name in ("", *"<>(),:"):
            raise self.fail("a field name")
        self.at += 1
        self.take(":")
        return pa.field(name, self.type())

    def type(self) -> pa.DataType:
        name = self.peek().lower()
        self.at += 1
        if name == "struct":
            self.need("<")
            fields = self.fields()
            self.need(">")
            return pa.struct(fields)
        if name == "array":
            self.need("<")
            element = self.type()
            self.need(">")
            return pa.list_(element)
        if name in ("decimal", "dec", "numeric"):
            return self.decimal()
        if name == "variant":
            return pa.null()
        found = _BY_NAME.get(t.ALIASES.get(name, name))
        if found is None:
            self.at -= 1
            raise self.fail("a type that can be shredded")
        return found

    def decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self.take("("):
            precision = self.number()
            if self.take(","):
                scale = self.number()
            self.need(")")
        if not 1 <= precision <= t.MAX_PRECISION or not 0 <= scale <= precision:
            raise InvalidSchemaError(
                f"shredding schema {self.ddl!r}: decimal({precision}, {scale}) does not exist; the precision is 1 to "
                f"{t.MAX_PRECISION}, the scale 0 to the precision"
            )
        return pa.decimal128(precision, scale)

    def number(self) -> int:
        if not _NUMBER.fullmatch(self.peek()):
            raise self.fail("a number")
        self.at += 1
        return int(self.peek(-1))
