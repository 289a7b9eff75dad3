"""The table of Variant primitives: type id, name, size in bytes, type in Arrow and type in Spark; and what follows from it.

Source: Parquet VariantEncoding, "Encoding types", and VariantShredding, "Shredded Value Types". Other modules have lists of
their own: which types have bounds, how each becomes JSON, and so on. CONTRIBUTING.md names them, under "A new type of Variant".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache

import pyarrow as pa

# Basic types: the two low bits of a value's first byte.
PRIMITIVE, SHORT_STRING, OBJECT, ARRAY = range(4)

# Primitive type ids: the six high bits where the basic type is PRIMITIVE.
NULL, TRUE, FALSE, INT8, INT16, INT32, INT64, DOUBLE, DECIMAL4, DECIMAL8, DECIMAL16 = range(11)
DATE, TIMESTAMP, TIMESTAMP_NTZ, FLOAT, BINARY, STRING, TIME, TIMESTAMP_NANOS, TIMESTAMP_NTZ_NANOS, UUID = range(11, 21)

VARIABLE = -1
"""The size of a primitive whose bytes follow a 4-byte length."""

MAX_PRECISION = 38
SHORT_STRING_MAX = 63


@dataclass(frozen=True)
class Primitive:
    """One row of the table. `size` counts the bytes after the header byte; a decimal's scale byte is one of them."""

    id: int
    name: str
    size: int
    arrow: pa.DataType | None  # None: decimals get precision and scale from the shredding schema; null is never shredded
    spark: str | None  # None: Spark 4.2 cannot read it inside a Variant


PRIMITIVES = (
    Primitive(NULL, "null", 0, None, "void"),
    Primitive(TRUE, "boolean", 0, pa.bool_(), "boolean"),
    Primitive(FALSE, "boolean", 0, pa.bool_(), "boolean"),
    Primitive(INT8, "int8", 1, pa.int8(), "tinyint"),
    Primitive(INT16, "int16", 2, pa.int16(), "smallint"),
    Primitive(INT32, "int32", 4, pa.int32(), "int"),
    Primitive(INT64, "int64", 8, pa.int64(), "bigint"),
    Primitive(DOUBLE, "double", 8, pa.float64(), "double"),
    Primitive(DECIMAL4, "decimal4", 5, None, "decimal"),
    Primitive(DECIMAL8, "decimal8", 9, None, "decimal"),
    Primitive(DECIMAL16, "decimal16", 17, None, "decimal"),
    Primitive(DATE, "date", 4, pa.date32(), "date"),
    Primitive(TIMESTAMP, "timestamp", 8, pa.timestamp("us", "UTC"), "timestamp"),
    Primitive(TIMESTAMP_NTZ, "timestamp_ntz", 8, pa.timestamp("us"), "timestamp_ntz"),
    Primitive(FLOAT, "float", 4, pa.float32(), "float"),
    Primitive(BINARY, "binary", VARIABLE, pa.binary(), "binary"),
    Primitive(STRING, "string", VARIABLE, pa.string(), "string"),
    Primitive(TIME, "time", 8, pa.time64("us"), None),
    Primitive(TIMESTAMP_NANOS, "timestamp_nanos", 8, pa.timestamp("ns", "UTC"), None),
    Primitive(TIMESTAMP_NTZ_NANOS, "timestamp_ntz_nanos", 8, pa.timestamp("ns"), None),
    Primitive(UUID, "uuid", 16, pa.binary(16), None),
)

INTEGERS = ("tinyint", "smallint", "int", "bigint")
"""Spark's integer types."""
FLOATS = ("float", "double")
"""Spark's floating-point types."""
DECIMAL_DIGITS = {DECIMAL4: 9, DECIMAL8: 18, DECIMAL16: MAX_PRECISION}
"""How many digits the forms of decimals have room for."""
ALIASES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint", "real": "float", "bool": "boolean"}
"""Other names of types in Spark's SQL, and in the schema of a Delta table."""
_BY_SPARK = {p.spark: p.arrow or pa.null() for p in PRIMITIVES if p.spark is not None and p.spark != "decimal"}
_SPARK_NAMES = {kind: name for name, kind in _BY_SPARK.items()}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_BY_ARROW = {p.arrow: p for p in PRIMITIVES if p.arrow is not None and p.id != FALSE}


def of_arrow(data_type: pa.DataType) -> Primitive | None:
    """The primitive that a typed column of this Arrow type holds; None if the specification has none.

    decimal32, decimal64 and decimal256 are decimal4, decimal8 and decimal16. decimal128, which most programs use for all of
    them, gives the smallest of these that its precision fits. Large and view forms count as plain strings and binaries.

    >>> of_arrow(pa.decimal128(18, 2)).name
    'decimal8'
    """
    if pa.types.is_decimal(data_type):
        if not 0 <= data_type.scale <= data_type.precision <= MAX_PRECISION:
            return None
        if not pa.types.is_decimal128(data_type):
            return PRIMITIVES[{4: DECIMAL4, 8: DECIMAL8}.get(data_type.byte_width, DECIMAL16)]
        return PRIMITIVES[next(form for form, digits in DECIMAL_DIGITS.items() if data_type.precision <= digits)]
    if pa.types.is_large_string(data_type) or pa.types.is_string_view(data_type):
        return PRIMITIVES[STRING]
    if pa.types.is_large_binary(data_type) or pa.types.is_binary_view(data_type):
        return PRIMITIVES[BINARY]
    if isinstance(data_type, pa.UuidType):  # read, never made: pyarrow can neither take from nor flatten lists of it
        return PRIMITIVES[UUID]
    if pa.types.is_timestamp(data_type) and data_type.tz is not None:
        data_type = pa.timestamp(data_type.unit, "UTC")
    return _BY_ARROW.get(data_type)


def of_spark(name: str) -> pa.DataType:
    """The Arrow type of a name in Spark. Raises KeyError for the names of other types."""
    decimal = _DECIMAL.fullmatch(name)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _BY_SPARK[ALIASES.get(name, name)]


def spark_name(data_type: pa.DataType) -> str:
    """The name of a type as in Spark's catalog, `decimal(10,2)`; for types that Spark does not have, their name in Arrow."""
    if pa.types.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    return _SPARK_NAMES.get(data_type, str(data_type))


def read_as(data_type: pa.DataType) -> pa.DataType | None:
    """The type in which Spark reads a typed column of a Variant; None if it cannot."""
    primitive = of_arrow(data_type)
    if primitive is None or primitive.spark is None:
        return None
    return pa.decimal128(data_type.precision, data_type.scale) if primitive.spark == "decimal" else primitive.arrow


@lru_cache(maxsize=None, typed=True)  # for Arrow, a type equals its name
def digits(data_type: str | pa.DataType) -> tuple[int, int]:
    """How many digits an exact type, or the type of that name in Spark, has room for before the point, and behind it.

    >>> digits("int"), digits("decimal(9,2)"), digits(pa.int8())
    ((10, 0), (7, 2), (3, 0))
    """
    kind = of_spark(data_type) if isinstance(data_type, str) else data_type
    return (kind.precision - kind.scale, kind.scale) if pa.types.is_decimal(kind) else (len(str(limits(kind)[-1])), 0)


def decimal_with(rooms: Iterable[tuple[int, int]]) -> pa.DataType:
    """The decimal that has all values of types with so many `digits`: a decimal256 if they are more than 38 together."""
    before, behind = map(max, zip(*rooms, strict=True))
    return (pa.decimal128 if before + behind <= MAX_PRECISION else pa.decimal256)(before + behind, behind)


def wider(*types: pa.DataType) -> pa.DataType:
    """The type that has all values of some exact types: the widest of integers, else a decimal.

    >>> wider(pa.int8(), pa.int32()), wider(pa.int32(), pa.decimal128(4, 2))
    (DataType(int32), Decimal128Type(decimal128(12, 2)))
    """
    if all(map(pa.types.is_integer, types)):
        return max(types, key=lambda kind: kind.bit_width)
    return decimal_with(map(digits, types))


@cache
def limits(data_type: pa.DataType) -> range:
    return range(-(1 << data_type.bit_width - 1), 1 << data_type.bit_width - 1)


def is_exact(data_type: pa.DataType) -> bool:
    """Whether a type is an integer or a decimal: the exact numerics (VariantEncoding, "Exact Numeric")."""
    return bool(pa.types.is_integer(data_type) or pa.types.is_decimal(data_type))


def is_string(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def is_time(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_date(data_type) or pa.types.is_timestamp(data_type))


def is_binary(data_type: pa.DataType) -> bool:
    """Whether a type is any of Arrow's forms of binary, dictionary-encoded and run-end-encoded ones included."""
    if pa.types.is_dictionary(data_type) or pa.types.is_run_end_encoded(data_type):
        data_type = data_type.value_type
    return any(is_form(data_type) for is_form in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view))
