"""VariantShredding, "Shredded Value Types": a vector for each row of the table, and one for each type that is not in it.

In: values as the Parquet type stores them. Out: the Variant of exactly that type, or an error. Each column also has a null and
a value of another type, which stay in value, and a row that is NULL.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from protocol.vectors.vector import LAYOUT, Vector, elements, group, i64, required, row, typed, variant

SOURCE = "VariantShredding, Shredded Value Types"
M = "01 00 00"
TEXT = ("05 'x'", '"x"')
WIDER = ("10 e8 03", "1000")
FF = "ff " * 13
MAX_128, MIN_128 = "ff ff ff ff 3f 22 8a 09 7a c4 86 5a a8 4c 3b 4b", "01 00 00 00 c0 dd 75 f6 85 3b 79 a5 57 b3 c4 b4"
NINES = "9" * 28 + "." + "9" * 10
UINT8 = group(pa.uint8())
UUID = "00112233445566778899aabbccddeeff"


def scalar(
    name: str,
    why: str,
    kind: pa.DataType,
    values: list[tuple[Any, str, str]],
    other: tuple[str, str] = TEXT,
    *,
    storage: pa.DataType | None = None,
    **settings: Any,
) -> Vector:
    """A vector of (stored value, Variant, JSON), with the rows that every type gets. storage: what pyarrow builds kind from."""
    rows = [*(row(M, None, value) for value, _, _ in values), row(M, "00"), row(M, other[0]), None]
    expected = [*((M, value, text) for _, value, text in values), (M, "00", "null"), (M, *other), None]
    return Vector(name, SOURCE, why, pa.array(rows, variant(storage or kind)).cast(variant(kind)), expected, **settings)


def refused(
    name: str, why: str, kind: pa.DataType, value: Any, *, storage: pa.DataType | None = None, **options: Any
) -> Vector:
    """A vector whose typed_value has a type that no Variant has."""
    column = pa.array([row(M, None, value)], variant(storage or kind)).cast(variant(kind))
    return Vector(name, SOURCE, why, column, error=LAYOUT, options=options)


def decimal(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale)


def timestamps(header: str, zone: str) -> list[tuple[Any, str, str]]:
    """The extremes of the years 1 to 9999, the microsecond before the epoch, the epoch, a date of our own."""
    return [
        (-62135596800000000, f"{header} 00 40 d4 00 01 40 23 ff", f'"0001-01-01 00:00:00{zone}"'),
        (253402300799999999, f"{header} ff 5f 73 cc 0c 44 84 03", f'"9999-12-31 23:59:59.999999{zone}"'),
        (-1, f"{header} ff ff ff ff ff ff ff ff", f'"1969-12-31 23:59:59.999999{zone}"'),
        (0, f"{header} 00 00 00 00 00 00 00 00", f'"1970-01-01 00:00:00{zone}"'),
        (1729794114937000, f"{header} a8 60 c1 13 3d 25 06 00", f'"2024-10-24 18:21:54.937{zone}"'),
    ]


def nanoseconds(header: str, zone: str) -> list[tuple[Any, str, str]]:
    """The extremes of int64, the nanosecond before the epoch, the epoch, a date of our own."""
    return [
        (-(2**63), f"{header} 00 00 00 00 00 00 00 80", f'"1677-09-21 00:12:43.145224192{zone}"'),
        (2**63 - 1, f"{header} ff ff ff ff ff ff ff 7f", f'"2262-04-11 23:47:16.854775807{zone}"'),
        (-1, f"{header} ff ff ff ff ff ff ff ff", f'"1969-12-31 23:59:59.999999999{zone}"'),
        (0, f"{header} 00 00 00 00 00 00 00 00", f'"1970-01-01 00:00:00{zone}"'),
        (1729794114937123456, f"{header} 80 72 63 2b 95 76 01 18", f'"2024-10-24 18:21:54.937123456{zone}"'),
    ]


TYPES = [
    scalar("boolean", "BOOLEAN", pa.bool_(), [(True, "04", "true"), (False, "08", "false")]),
    scalar("int8", "INT32 INT(8, true): int8, and int16 in value", pa.int8(),
           [(-128, "0c 80", "-128"), (127, "0c 7f", "127"), (0, "0c 00", "0")], WIDER),
    scalar("int16", "INT32 INT(16, true)", pa.int16(),
           [(-(2**15), "10 00 80", "-32768"), (2**15 - 1, "10 ff 7f", "32767"), (0, "10 00 00", "0")], (i64(5), "5")),
    scalar("int32", "INT32", pa.int32(),
           [(-(2**31), "14 00 00 00 80", "-2147483648"), (2**31 - 1, "14 ff ff ff 7f", "2147483647"),
            (0, "14 00 00 00 00", "0")]),
    scalar("int64", "INT64: 34 comes back as int64, however small", pa.int64(),
           [(-(2**63), "18 00 00 00 00 00 00 00 80", "-9223372036854775808"),
            (2**63 - 1, "18 ff ff ff ff ff ff ff 7f", "9223372036854775807"), (34, "18 22 00 00 00 00 00 00 00", "34")], WIDER),
    scalar("float", "FLOAT: largest, smallest, negative zero, infinity, NaN", pa.float32(),
           [(np.float32(3.4028235e38), "38 ff ff 7f 7f", "3.4028235e38"), (np.float32(1e-45), "38 01 00 00 00", "1.4e-45"),
            (-0.0, "38 00 00 00 80", "-0.0"), (np.inf, "38 00 00 80 7f", '"Infinity"'), (np.nan, "38 00 00 c0 7f", '"NaN"'),
            (1.5, "38 00 00 c0 3f", "1.5")]),
    scalar("double", "DOUBLE: largest, smallest, negative zero, infinity, NaN", pa.float64(),
           [(1.7976931348623157e308, "1c ff ff ff ff ff ff ef 7f", "1.7976931348623157e308"),
            (5e-324, "1c 01 00 00 00 00 00 00 00", "4.9e-324"), (-0.0, "1c 00 00 00 00 00 00 00 80", "-0.0"),
            (-np.inf, "1c 00 00 00 00 00 00 f0 ff", '"-Infinity"'), (np.nan, "1c 00 00 00 00 00 00 f8 7f", '"NaN"'),
            (0.1, "1c 9a 99 99 99 99 99 b9 3f", "0.1")], ("38 00 00 c0 3f", "1.5")),
    scalar("decimal4", "INT32 DECIMAL(9, 2); a decimal of another scale stays in value", decimal(9, 2),
           [(Decimal("9999999.99"), "20 02 ff c9 9a 3b", "9999999.99"),
            (Decimal("-9999999.99"), "20 02 01 36 65 c4", "-9999999.99"), (Decimal("0.00"), "20 02 00 00 00 00", "0"),
            (Decimal("1.50"), "20 02 96 00 00 00", "1.5")],
           ("20 03 d2 04 00 00", "1.234")),
    scalar("decimal8", "INT64 DECIMAL(18, 9)", decimal(18, 9),
           [(Decimal("999999999.999999999"), "24 09 ff ff 63 a7 b3 b6 e0 0d", "999999999.999999999"),
            (Decimal("-999999999.999999999"), "24 09 01 00 9c 58 4c 49 1f f2", "-999999999.999999999"),
            (Decimal(0), "24 09 00 00 00 00 00 00 00 00", "0")]),
    scalar("decimal8-of-few-digits", "INT64 DECIMAL(5, 2): the physical type gives the width, not the precision", pa.int64(),
           [(99999, "24 02 9f 86 01 00 00 00 00 00", "999.99"), (150, "24 02 96 00 00 00 00 00 00 00", "1.5")], decimal=(5, 2)),
    scalar("decimal16", "FIXED_LEN_BYTE_ARRAY(16) DECIMAL(38, 10)", decimal(38, 10),
           [(Decimal(NINES), f"28 0a {MAX_128}", NINES), (Decimal(f"-{NINES}"), f"28 0a {MIN_128}", f"-{NINES}"),
            (Decimal(0), "28 0a" + "00" * 16, "0")]),
    scalar("decimal16-of-few-digits", "FIXED_LEN_BYTE_ARRAY(3) DECIMAL(5, 2): bytes mean decimal16", decimal(5, 2),
           [(Decimal("-999.99"), f"28 02 61 79 fe {FF}", "-999.99"), (Decimal("1.50"), "28 02 96" + "00" * 15, "1.5")],
           options={"store_decimal_as_integer": False}),
    scalar("decimal16-in-byte-array", "BYTE_ARRAY DECIMAL(38, 2), big-endian and as long as need be", pa.binary(),
           [(b"\xfe\x79\x61", f"28 02 61 79 fe {FF}", "-999.99"), (b"\x00\x96", "28 02 96" + "00" * 15, "1.5"),
            (bytes(15) + b"\x96", "28 02 96" + "00" * 15, "1.5")], decimal=(38, 2)),
    scalar("date", "INT32 DATE", pa.date32(),
           [(-719162, "2c c6 06 f5 ff", '"0001-01-01"'), (2932896, "2c a0 c0 2c 00", '"9999-12-31"'),
            (-1, "2c ff ff ff ff", '"1969-12-31"'), (0, "2c 00 00 00 00", '"1970-01-01"'),
            (20020, "2c 34 4e 00 00", '"2024-10-24"')]),
    scalar("time", "INT64 TIME(false, MICROS)", pa.time64("us"),
           [(0, "44 00 00 00 00 00 00 00 00", '"00:00:00"'), (86399999999, "44 ff 5f d7 1d 14 00 00 00", '"23:59:59.999999"')]),
    scalar("timestamp", "INT64 TIMESTAMP(true, MICROS); one without a zone stays in value", pa.timestamp("us", "UTC"),
           timestamps("30", "+00:00"), ("34 00 00 00 00 00 00 00 00", '"1970-01-01 00:00:00"')),
    scalar("timestamp-ntz", "INT64 TIMESTAMP(false, MICROS); one with a zone stays in value", pa.timestamp("us"),
           timestamps("34", ""), ("30 00 00 00 00 00 00 00 00", '"1970-01-01 00:00:00+00:00"')),
    scalar("timestamp-nanos", "INT64 TIMESTAMP(true, NANOS)", pa.timestamp("ns", "UTC"), nanoseconds("48", "+00:00")),
    scalar("timestamp-ntz-nanos", "INT64 TIMESTAMP(false, NANOS)", pa.timestamp("ns"), nanoseconds("4c", "")),
    scalar("binary", "BINARY", pa.binary(),
           [(b"", "3c 00 00 00 00", '""'), (b"\x00\xff", "3c 02 00 00 00 00 ff", '"AP8="'),
            (b"\xff" * 72, "3c 48 00 00 00" + "ff" * 72, f'"{"/" * 96}"')]),
    scalar("string", "BINARY STRING: up to 63 bytes as a short string", pa.string(),
           [("", "01", '""'), ("é", "09 c3 a9", '"é"'), ("x" * 63, "fd" + "78" * 63, f'"{"x" * 63}"'),
            ("x" * 64, "40 40 00 00 00" + "78" * 64, f'"{"x" * 64}"')], ("0c 01", "1")),
    scalar("uuid", "FIXED_LEN_BYTE_ARRAY(16) UUID, big-endian", pa.uuid(),
           [(bytes.fromhex(UUID), f"50 {UUID}", '"00112233-4455-6677-8899-aabbccddeeff"'),
            (bytes(16), "50" + "00" * 16, '"00000000-0000-0000-0000-000000000000"')], storage=pa.binary(16)),
]  # fmt: skip

REFUSED = [
    *(refused(f"refused-uint{bits}", f"INT({bits}, false): integers are signed", kind, 1)
      for bits, kind in ((8, pa.uint8()), (16, pa.uint16()), (32, pa.uint32()), (64, pa.uint64()))),
    refused("refused-timestamp-millis", "TIMESTAMP(false, MILLIS)", pa.timestamp("ms"), 1),
    refused("refused-timestamp-utc-millis", "TIMESTAMP(true, MILLIS)", pa.timestamp("ms", "UTC"), 1),
    refused("refused-int96", "INT96", pa.timestamp("ns"), 1, use_deprecated_int96_timestamps=True),
    refused("refused-time-millis", "INT32 TIME(false, MILLIS)", pa.time32("ms"), 1),
    refused("refused-time-nanos", "TIME(false, NANOS)", pa.time64("ns"), 1),
    refused("refused-time-utc", "TIME(true, MICROS): a Variant time has no zone", pa.time64("us"), 1,
            write_time_adjusted_to_utc=True),
    refused("refused-fixed-16", "FIXED_LEN_BYTE_ARRAY(16) without UUID", pa.binary(16), bytes(16)),
    refused("refused-fixed-4", "FIXED_LEN_BYTE_ARRAY(4)", pa.binary(4), bytes(4)),
    refused("refused-float16", "FIXED_LEN_BYTE_ARRAY(2) FLOAT16", pa.float16(), np.float16(1)),
    refused("refused-json", "BYTE_ARRAY JSON: a string is annotated STRING", pa.json_(), "1", storage=pa.string()),
    refused("refused-decimal-of-39-digits", "FIXED_LEN_BYTE_ARRAY DECIMAL(39, 2): Variant stops at 38", pa.decimal256(39, 2),
            Decimal(1)),
    refused("refused-map", "MAP", pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    refused("refused-in-a-field", "The same inside an object", required(a=UINT8), {"a": typed(1)}),
    refused("refused-in-an-element", "The same inside an array", elements(UINT8), [typed(1)]),
]  # fmt: skip

VECTORS = [*TYPES, *REFUSED]
