"""Predicates on the paths of a generated table, as SQL."""

from __future__ import annotations

import datetime as dt
import math
import random
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyspark
from packaging.version import Version

from delta_variant.paths import steps
from tests.generated.values import POSITIONS, STYLES, Spot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delta_variant.paths import Keys
    from tests.generated.tables import Table


HAS_PATHS = Version(pyspark.__version__) >= Version("4.1")
"""Whether Spark has `v:a.b`."""
INTEGERS = ("tinyint", "smallint", "int", "bigint")
DECIMALS = ("decimal(38,0)", "decimal(38,10)", "decimal(10,2)", "decimal(5,1)")
NUMBERS = (*INTEGERS, *DECIMALS, "float", "double")
MOMENTS = ("date", "timestamp", "timestamp_ntz")
TYPES = (*NUMBERS, "string", *MOMENTS, "boolean")
NATURAL: dict[str, Sequence[str]] = {
    "int": NUMBERS,
    "exact": NUMBERS,
    "double": ("double", "float", "decimal(38,10)", "int"),
    "float": ("double", "float"),
    "string": ("string",),
    "spelled": ("string", *MOMENTS, *MOMENTS),
    "date": MOMENTS,
    "timestamp": MOMENTS,
    "timestamp_ntz": MOMENTS,
    "boolean": ("boolean", "int"),
    "binary": ("binary", "string"),
}
CASTS: dict[str, Sequence[str]] = {  # what ANSI allows
    **dict.fromkeys(NUMBERS, (*NUMBERS, *NUMBERS, "string", "boolean", "timestamp")),
    "string": TYPES,
    "date": ("timestamp", "timestamp_ntz", "string"),
    "timestamp": ("date", "timestamp_ntz", "string", "bigint", "double", "decimal(38,10)"),
    "timestamp_ntz": ("date", "timestamp", "string"),
    "boolean": ("int", "bigint", "double", "string"),
    "binary": ("string",),
}
_KIND_OF = {**dict.fromkeys(INTEGERS, "int"), **dict.fromkeys(DECIMALS, "exact")}
_SUFFIXES = {"Y": 2**7, "S": 2**15, "L": 2**63}


class Sql(NamedTuple):
    """A piece of a query, and the same with casts that cannot fail."""

    asked: str
    safe: str

    @classmethod
    def of(cls, form: str, *parts: Sql | str) -> Sql:
        both = [part if isinstance(part, Sql) else cls(part, part) for part in parts]
        return cls(form.format(*(part.asked for part in both)), form.format(*(part.safe for part in both)))


class Predicates:
    """Generates predicates on one table."""

    def __init__(self, table: Table) -> None:
        self.table, self.rng = table, table.rng

    def tree(self, depth: int) -> Sql:
        choice = self.rng.random()
        if depth == 0 or choice < 0.4:
            return self.atom()
        if choice < 0.52:
            return Sql.of("not ({})", self.tree(depth - 1))
        return Sql.of(self.rng.choice(["({} and {})", "({} or {})"]), self.tree(depth - 1), self.tree(depth - 1))

    def atom(self) -> Sql:
        forms = [self.comparison, self.member, self.between, self.text, self.null, self.ordinary, self.odd, self.constant]
        return self.rng.choices(forms, [45, 14, 9, 9, 6, 4, 12, 1])[0]()

    # -- operands

    def operand(self, types: Sequence[str] = TYPES) -> tuple[Sql, str, Spot]:
        """A path read as one of the types, mostly that of its values; this type; and the path."""
        rng, spot = self.rng, self.rng.choice(self.table.spots)
        for _ in range(20):
            if set(NATURAL[spot.kind]) & set(types):
                break
            spot = rng.choice(self.table.spots)
        natural = [kind for kind in NATURAL[spot.kind] if kind in types]
        kind = rng.choice(natural if natural and rng.random() < 0.8 else types)
        if rng.random() < 0.8:
            return self.get(spot, kind), kind, spot
        first = rng.choice(NATURAL[spot.kind])
        chain = [first]
        if rng.random() < 0.3:
            chain.append(rng.choice(CASTS[first]))
        if kind not in CASTS[chain[-1]]:
            return self.get(spot, kind), kind, spot
        found = self.get(spot, first)
        for target in [*chain[1:], kind]:
            found = self.cast(found, target)
        return found, kind, spot

    def type(self, kind: str) -> str:
        other = self.table.settings["spark.sql.timestampType"] == "TIMESTAMP_NTZ"
        return "timestamp_ltz" if kind == "timestamp" and other else kind

    def get(self, spot: Spot, kind: str) -> Sql:
        rng, kind = self.rng, self.type(kind)
        name, keys = spot.column, spot.keys
        simple = all(isinstance(key, int) or (key.isascii() and key.isidentifier()) for key in keys)
        if simple and keys and HAS_PATHS and rng.random() < 0.5:
            found = f"{name}:{steps(keys)}"
        elif not keys:
            found = name
        else:
            if len(keys) > 1 and rng.random() < 0.3:
                name, keys = f"variant_get({name}, {self.steps(keys[:1])}, 'variant')", keys[1:]
            path = self.steps(keys)
            form = rng.randrange(3)
            if form == 0:
                return Sql(f"variant_get({name}, {path}, '{kind}')", f"try_variant_get({name}, {path}, '{kind}')")
            if form == 1:
                return Sql.of("{}", f"try_variant_get({name}, {path}, '{kind}')")
            found = f"variant_get({name}, {path}, 'variant')"
        safe = f"try_cast({found} as {kind})"
        return Sql(rng.choice([f"{found}::{kind}", f"cast({found} as {kind})", safe]), safe)

    def steps(self, keys: Keys) -> str:
        text = "$"
        for key in keys:
            if isinstance(key, int):
                text += f"[{key}]"
                continue
            quote = '"' if "'" in key else self.rng.choice("\"'")
            dotted = not set(".[") & set(key) and self.rng.random() < 0.6
            text += f".{key}" if dotted else f"[{quote}{key}{quote}]"
        return string(text)

    def cast(self, value: Sql, kind: str) -> Sql:
        kind = self.type(kind)
        if self.rng.random() < 0.3:
            return Sql.of("try_cast({} as " + kind + ")", value)
        return Sql(f"cast({value.asked} as {kind})", f"{'try_' * self.table.ansi}cast({value.safe} as {kind})")

    # -- literals

    def literal(self, kind: str, spot: Spot) -> str:
        """A literal to compare a value of the type with, often of another type that Spark casts."""
        rng = self.rng
        if rng.random() < 0.02:
            return rng.choice(["null", f"cast(null as {self.type(kind)})"])
        if kind in NUMBERS:
            if rng.random() < 0.2:
                kind = rng.choice(["int", "decimal(10,2)", "double", "float"])
            value = spot.any(rng, _KIND_OF.get(kind, kind))
            return f"'{value}'" if rng.random() < 0.03 and kind in INTEGERS and value in range(100) else constant(rng, value)
        if kind == "string" and spot.kind == "spelled":
            kind = "spelled"
        if kind in MOMENTS and rng.random() < 0.2:
            kind = rng.choice(MOMENTS)
            if rng.random() < 0.3:
                return f"'{spot.moment(rng.randrange(POSITIONS)).date()}'"
        return constant(rng, spot.any(rng, kind))

    # -- atoms

    def comparison(self) -> Sql:
        value, kind, spot = self.operand()
        sides = [value, self.literal(kind, spot)]
        if self.rng.random() < 0.2:
            sides.reverse()
        return Sql.of("({} " + self.rng.choice(["=", "=", "=", "<", "<=", ">", ">=", "<=>", "<>"]) + " {})", *sides)

    def member(self) -> Sql:
        value, kind, spot = self.operand()
        count = self.rng.choice([1, 2, 3, 5, 12, 30, 90])
        if count > 10 and self.rng.random() < 0.7:  # close together, so that something can be skipped
            start = self.rng.randrange(POSITIONS - 10)
            kinds = _KIND_OF.get(kind, kind)
            listed = [constant(self.rng, spot.value(self.rng, kinds, start + at % 10)) for at in range(count)]
        else:
            listed = [self.literal(kind, spot) for _ in range(count)]
        return Sql.of("({} " + self.rng.choice(["in", "in", "in", "not in"]) + " ({}))", value, ", ".join(listed))

    def between(self) -> Sql:
        value, kind, spot = self.operand()
        form = self.rng.choice(["({} between {} and {})", "({} not between {} and {})", "({0} >= {1} and {0} < {2})"])
        return Sql.of(form, value, self.literal(kind, spot), self.literal(kind, spot))

    def text(self) -> Sql:
        rng = self.rng
        value, _, spot = self.operand(("string",))
        text = spot.any(rng, "string")
        start = text[: rng.randrange(len(text[:40]) + 1)]
        if rng.random() < 0.4:
            function = rng.choice(["startswith", "startswith", "startswith", "endswith", "contains", "instr"])
            return Sql.of("({}({}, {})" + " > 0" * (function == "instr") + ")", function, value, string(start))
        escaped = re.sub(r"([%_\\])", r"\\\1", start)
        pattern = rng.choice(["{}%", "{}%", "{}%", "%{}%", "%{}", "{}", "{}_%", "{}%x", "_{}%"]).format(escaped)
        return Sql.of("({} " + rng.choice(["like", "like", "like", "not like", "ilike"]) + " {})", value, string(pattern))

    def null(self) -> Sql:
        value, _, spot = self.operand()
        if self.rng.random() < 0.4:
            value = Sql.of("variant_get({}, {}, 'variant')", spot.column, self.steps(spot.keys))
        return Sql.of(self.rng.choice(["({} is null)", "({} is not null)"]), value)

    def ordinary(self) -> Sql:
        name, most = self.rng.choice([("id", self.table.rows), ("p", self.table.files)])
        return Sql.of("({} {} {})", name, self.rng.choice(["=", "<", ">=", "<>"]), str(self.rng.randrange(most)))

    def odd(self) -> Sql:
        """What looks like a comparison with a path and must not be taken for one."""
        rng, spot = self.rng, self.rng.choice(self.table.spots)
        value, kind, place = self.operand()
        against = self.literal(kind, place)
        compared = Sql.of("({} " + rng.choice(["=", "<", ">", "<=>", "<>"]) + " {})", value, against)
        number, text = self.get(spot, "double"), self.get(spot, "string")
        size = constant(rng, spot.any(rng, "double"))
        same = self.get(rng.choice(self.table.spots), kind)
        whole = Sql.of("variant_get({}, {}, 'variant')", spot.column, self.steps(spot.keys))
        forms: list[Callable[[], Sql]] = [
            lambda: Sql.of("(coalesce({}, {}) = {})", value, against, against),
            lambda: Sql.of("(if({}, {}, {}) = {})", compared, value, against, against),
            lambda: Sql.of("(case when {} then true end)", compared),
            lambda: Sql.of("(case when {} then false else {} end)", self.comparison(), compared),
            lambda: Sql.of("(nullif({}, {}) is null)", value, against),
            lambda: Sql.of("({} " + rng.choice(["<=> true", "<=> false", "= false", "is not true", "is null"]) + ")", compared),
            lambda: Sql.of("({} " + rng.choice(["<>", "<=>"]) + " {})", compared, self.comparison()),
            lambda: Sql.of("(-({}) < {})", number, size),
            lambda: Sql.of("(abs({}) > {})", number, size),
            lambda: Sql.of("({} - 1.5D >= {})", number, size),
            lambda: Sql.of("(greatest({}, {}) = {})", value, same, against),
            lambda: Sql.of("(upper({}) = {})", text, string(STYLES[spot.style](5, spot).upper())),
            lambda: Sql.of("(length({}) > 3)", text),
            lambda: Sql.of("(collate({}, 'UTF8_LCASE') = {})", text, string(spot.any(rng, "string").upper())),
            lambda: Sql.of("({} < {} collate UTF8_LCASE)", text, string(spot.any(rng, "string").upper())),
            lambda: Sql.of("({} " + rng.choice(["=", "<=", "<=>"]) + " {})", value, same),
            lambda: Sql.of("({} = id)", self.get(spot, "bigint")),
            lambda: Sql.of("(is_variant_null({}))", whole),
            lambda: Sql.of("(schema_of_variant({}) = 'BIGINT')", whole),
            lambda: Sql.of("(to_json({}) = '5')", whole),
            lambda: Sql.of("(try_variant_get({}, '$.c[0]', 'int') = 5)", spot.column),
        ]
        return rng.choice(forms)()

    def constant(self) -> Sql:
        return Sql.of(
            "{}", self.rng.choice(["(1 = 1)", "(5 < 3)", "cast(null as boolean)", "('a' = 'b')", "(cast(null as int) = 5)"])
        )


def string(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0") + "'"


def constant(rng: random.Random, value: Any) -> str:
    """SQL for a value."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        suffix = rng.choice([""] * 6 + [suffix for suffix, limit in _SUFFIXES.items() if -limit < value < limit])
        return f"{value}{suffix}" if value != -(2**63) else "(-9223372036854775807 - 1)"
    if isinstance(value, Decimal):
        return f"{value:f}BD"
    if isinstance(value, np.float32):
        return f"cast('{value}' as float)"
    if isinstance(value, float):
        return f"{value!r}D" if math.isfinite(value) else f"double('{value}')"
    if isinstance(value, str):
        return string(value)
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, np.datetime64):
        return f"date_from_unix_date({int(value.astype(np.int64))})"
    if isinstance(value, dt.datetime):
        text = value.replace(tzinfo=None).isoformat(" ")
        return f"timestamp'{text}Z'" if value.tzinfo else f"timestamp_ntz'{text}'"
    return f"date'{value.isoformat()}'"
