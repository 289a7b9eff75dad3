"""Single Variants: encode, decode and to_json, with malformed bytes too."""

import datetime as dt
import enum
import json
import re
import struct
import uuid
import zoneinfo
from decimal import Decimal
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_variant import binary
from delta_variant.errors import DeltaVariantError, MalformedVariantError
from delta_variant.kernels.validate import MAX_DEPTH
from delta_variant.types import NULL
from tests.strategies import VARIANTS, same

UTC = dt.timezone.utc
EMPTY = "11 00 00"
AB = "11 02 00 01 02 61 62"  # a dictionary of a and b

# (metadata, value, Python value): the tables of the encoding specification, worked by hand, in the smallest form of each value.
SMALLEST = [
    (EMPTY, "00", None),
    (EMPTY, "04", True),
    (EMPTY, "08", False),
    (EMPTY, "0c 22", 34),
    (EMPTY, "0c 7f", 127),
    (EMPTY, "0c 80", -128),
    (EMPTY, "10 80 00", 128),
    (EMPTY, "10 7f ff", -129),
    (EMPTY, "10 00 80", -(2**15)),
    (EMPTY, "14 00 80 00 00", 2**15),
    (EMPTY, "14 ff ff ff 7f", 2**31 - 1),
    (EMPTY, "14 00 00 00 80", -(2**31)),
    (EMPTY, "18 00 00 00 80 00 00 00 00", 2**31),
    (EMPTY, "18 ff ff ff ff ff ff ff 7f", 2**63 - 1),
    (EMPTY, "18 00 00 00 00 00 00 00 80", -(2**63)),
    (EMPTY, "28 00 00 00 00 00 00 00 00 80 00 00 00 00 00 00 00 00", 2**63),
    (EMPTY, "1c 00 00 00 00 00 00 f8 3f", 1.5),
    (EMPTY, "1c 00 00 00 00 00 00 00 80", -0.0),
    (EMPTY, "1c 00 00 00 00 00 00 f0 7f", float("inf")),
    (EMPTY, "1c 00 00 00 00 00 00 f8 7f", float("nan")),
    (EMPTY, "20 02 64 00 00 00", Decimal("1.00")),
    (EMPTY, "20 02 ff ff ff ff", Decimal("-0.01")),
    (EMPTY, "20 09 ff c9 9a 3b", Decimal("0.999999999")),
    (EMPTY, "24 00 00 ca 9a 3b 00 00 00 00", Decimal(10**9)),
    (EMPTY, "24 01 39 1c dc df 02 00 00 00", Decimal("1234567890.5")),
    (EMPTY, "24 0a 01 00 00 00 00 00 00 00", Decimal("1e-10")),
    (EMPTY, "24 12 01 00 9c 58 4c 49 1f f2", Decimal("-0.999999999999999999")),
    (EMPTY, "28 00 00 00 64 a7 b3 b6 e0 0d 00 00 00 00 00 00 00 00", Decimal(10**18)),
    (EMPTY, "28 26 ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff", Decimal("-1e-38")),
    (EMPTY, "28 26 ff ff ff ff 3f 22 8a 09 7a c4 86 5a a8 4c 3b 4b", Decimal("0." + "9" * 38)),
    (EMPTY, "2c 01 00 00 00", dt.date(1970, 1, 2)),
    (EMPTY, "2c c6 06 f5 ff", dt.date(1, 1, 1)),
    (EMPTY, "2c a0 c0 2c 00", dt.date(9999, 12, 31)),
    (EMPTY, "2c a1 c0 2c 00", np.datetime64(2932897, "D")),
    (EMPTY, "2c 00 00 00 80", np.datetime64(-(2**31), "D")),
    (EMPTY, "30 40 42 0f 00 00 00 00 00", dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
    (EMPTY, "30 ff ff ff ff ff ff ff ff", dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    (EMPTY, "30 ff ff ff ff ff ff ff 7f", pd.Timestamp(np.datetime64(2**63 - 1, "us"), tz=UTC)),
    (EMPTY, "30 01 00 00 00 00 00 00 80", pd.Timestamp(np.datetime64(-(2**63) + 1, "us"), tz=UTC)),
    (EMPTY, "34 f4 01 00 00 00 00 00 00", dt.datetime(1970, 1, 1, 0, 0, 0, 500)),
    (EMPTY, "34 00 00 00 00 00 00 00 80", np.datetime64(-(2**61), ("us", 4))),
    (EMPTY, "38 00 00 00 3f", np.float32(0.5)),
    (EMPTY, "38 00 00 80 ff", np.float32("-inf")),
    (EMPTY, "3c 00 00 00 00", b""),
    (EMPTY, "3c 02 00 00 00 00 ff", b"\x00\xff"),
    (EMPTY, "01", ""),
    (EMPTY, "0d 6e 2f 61", "n/a"),
    (EMPTY, "09 c3 a9", "é"),
    (EMPTY, "fd" + "78" * 63, "x" * 63),
    (EMPTY, "40 40 00 00 00" + "78" * 64, "x" * 64),
    (EMPTY, "40 40 00 00 00" + "c3 a9" * 32, "é" * 32),
    (EMPTY, "44 40 42 0f 00 00 00 00 00", dt.time(0, 0, 1)),
    (EMPTY, "44 ff 5f d7 1d 14 00 00 00", dt.time.max),
    (EMPTY, "48 01 00 00 00 00 00 00 00", pd.Timestamp(1, unit="ns", tz=UTC)),
    (EMPTY, "48 ff ff ff ff ff ff ff ff", pd.Timestamp(-1, unit="ns", tz=UTC)),
    (EMPTY, "4c ff ff ff ff ff ff ff 7f", pd.Timestamp(2**63 - 1, unit="ns")),
    (EMPTY, "4c 01 00 00 00 00 00 00 80", pd.Timestamp(-(2**63) + 1, unit="ns")),
    (EMPTY, "4c 00 00 00 00 00 00 00 80", np.datetime64(-(2**61), ("ns", 4))),
    (EMPTY, "50 00 11 22 33 44 55 66 77 88 99 aa bb cc dd ee ff", uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")),
    (EMPTY, "03 00 00", []),
    (EMPTY, "03 02 00 02 03  0c 01  00", [1, None]),
    (EMPTY, "02 00 00", {}),
    (AB, "02 02  00 01  00 02 03  0c 01  04", {"a": 1, "b": True}),
    (AB, "02 01  01  00 07  02 01  00  00 02  0c 05", {"b": {"a": 5}}),
    ("11 01 00 00", "02 01  00  00 01  00", {"": None}),
    (
        "11 02 00 01 03 7a c3 a9",
        "02 02  00 01  00 01 02  00  04",
        {"é": True, "z": None},
    ),  # fields are in the order of UTF-8 bytes
]

# The same for forms that a reader must accept and this package never writes.
OTHER_FORMS = [
    ("01 00", "00", None),  # without an offset, as VariantShredding and Arrow print it
    ("01 00 00", "00", None),
    ("c1 00 00 00 00 00 00 00 00", "00", None),
    (EMPTY, "02 00", {}),  # without an offset, as VariantShredding prints it
    (EMPTY, "03 00", []),
    (EMPTY, "03 01  00 02  02 00", [{}]),
    (EMPTY, "14 05 00 00 00", 5),
    (EMPTY, "18 ff ff ff ff ff ff ff ff", -1),
    (EMPTY, "20 26 01 00 00 00", Decimal("1e-38")),
    (EMPTY, "20 00 ff ff ff 7f", Decimal(2**31 - 1)),
    (EMPTY, "28 02 64 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00", Decimal("1.00")),
    (EMPTY, "40 03 00 00 00 6e 2f 61", "n/a"),
    (EMPTY, "30 00 00 00 00 00 00 00 80", np.datetime64(-(2**61), ("us", 4))),
    (EMPTY, "48 00 00 00 00 00 00 00 80", np.datetime64(-(2**61), ("ns", 4))),
    (EMPTY, "48 e8 03 00 00 00 00 00 00", pd.Timestamp(1000, unit="ns", tz=UTC)),
    (EMPTY, "0c 05 99 99", 5),  # bytes after the value
    (EMPTY + "99", "0c 05", 5),
    (EMPTY, "13 01 00 00 00  00 02  0c 05", [5]),  # is_large
    (EMPTY, "07 01  00 00 02 00  0c 05", [5]),  # offsets of two, three and four bytes
    (EMPTY, "0b 01  00 00 00 02 00 00  0c 05", [5]),
    (EMPTY, "0f 01  00 00 00 00 02 00 00 00  0c 05", [5]),
    (EMPTY, "03 02  01 00 03  04  0c 05", [5, True]),  # values in another order
    (AB, "42 01 00 00 00  01  00 02  0c 05", {"b": 5}),
    (AB, "12 01  01 00  00 02  0c 05", {"b": 5}),  # ids of two, three and four bytes
    (AB, "22 01  01 00 00  00 02  0c 05", {"b": 5}),
    (AB, "32 01  01 00 00 00  00 02  0c 05", {"b": 5}),
    (AB, "7e 01 00 00 00  01 00 00 00  00 00 00 00 02 00 00 00  0c 05", {"b": 5}),
    (AB, "02 02  00 01  01 00 03  04  0c 05", {"a": 5, "b": True}),
    (EMPTY, "03 02  00 03 05  0c 05  99  0c 06", [5, 6]),  # a byte that belongs to no child
    ("01 02 00 01 02 62 61", "02 02  01 00  00 01 02  00  04", {"a": None, "b": True}),  # a dictionary that is not sorted
    ("11 02 00 01 02 62 61", "02 02  01 00  00 01 02  00  04", {"a": None, "b": True}),  # not sorted, although the flag says so
    ("01 02 00 01 02 62 61", "02 02  00 01  00 01 02  00  04", {"b": None, "a": True}),  # fields that are not sorted
    ("01 03 00 01 02 03 61 61 62", "02 02  01 02  00 01 02  00  04", {"a": None, "b": True}),  # a name that repeats
    ("01 03 00 01 02 03 61 7a 62", "02 02  00 02  00 01 02  00  04", {"a": None, "b": True}),  # a name that nothing uses
    ("41 02 00 00 00 01 00 02 00 61 62", "02 01  01  00 02  0c 05", {"b": 5}),  # a dictionary of wider offsets
    ("81 02 00 00 00 00 00 01 00 00 02 00 00 61 62", "02 01  01  00 02  0c 05", {"b": 5}),
    ("c1 02 00 00 00 00 00 00 00 01 00 00 00 02 00 00 00 61 62", "02 01  01  00 02  0c 05", {"b": 5}),
    ("31 02 00 01 02 61 62", "02 01  01  00 02  0c 05", {"b": 5}),  # a header bit that has no meaning
]


def raw(*parts):
    return tuple(bytes.fromhex(part) for part in parts)


@pytest.mark.parametrize(("metadata", "value", "expected"), SMALLEST)
def test_smallest_forms(metadata, value, expected):
    """Each value is encoded in the specification's smallest form, which decodes to the same value (E2, E5)."""
    assert binary.encode(expected) == raw(metadata, value)
    assert same(binary.decode(*raw(metadata, value)), expected)


@pytest.mark.parametrize(("metadata", "value", "expected"), OTHER_FORMS)
def test_other_forms(metadata, value, expected):
    """A form that is not the smallest decodes to the same value (E1, E2, E3, E4)."""
    assert same(binary.decode(*raw(metadata, value)), expected)


# The tables of the encoding specification again: values in the type of a column, which need not be the smallest one.
OF_A_TYPE = [
    ("0c 05", 5, pa.int8()),
    ("10 05 00", 5, pa.int16()),
    ("14 fb ff ff ff", -5, pa.int32()),
    ("18 05 00 00 00 00 00 00 00", 5, pa.int64()),
    ("1c 00 00 00 00 00 00 00 80", -0.0, pa.float64()),
    ("38 00 00 c0 3f", 1.5, pa.float32()),
    ("20 02 96 00 00 00", Decimal("1.5"), pa.decimal128(9, 2)),
    ("24 02 6a ff ff ff ff ff ff ff", Decimal("-1.5"), pa.decimal128(10, 2)),
    ("24 00 01 00 00 00 00 00 00 00", Decimal(1), pa.decimal128(18, 0)),
    ("28 01 f1 ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff", Decimal("-1.5"), pa.decimal128(19, 1)),
    ("28 26 ff ff ff ff 3f 22 8a 09 7a c4 86 5a a8 4c 3b 4b", Decimal("0." + "9" * 38), pa.decimal128(38, 38)),
    ("24 01 0f 00 00 00 00 00 00 00", Decimal("1.5"), pa.decimal64(2, 1)),
    ("04", True, pa.bool_()),
    ("08", False, pa.bool_()),
    ("05 78", "x", pa.large_string()),
    ("3c 01 00 00 00 ff", b"\xff", pa.binary()),
    ("2c ff ff ff 7f", 2**31 - 1, pa.date32()),
    ("30 00 00 00 00 00 00 00 80", -(2**63), pa.timestamp("us", "Asia/Tokyo")),
    ("34 ff ff ff ff ff ff ff 7f", 2**63 - 1, pa.timestamp("us")),
    ("48 e8 03 00 00 00 00 00 00", 1000, pa.timestamp("ns", "UTC")),
    ("44 00 00 00 00 00 00 00 00", 0, pa.time64("us")),
    ("50 00 11 22 33 44 55 66 77 88 99 aa bb cc dd ee ff", bytes.fromhex("00112233445566778899aabbccddeeff"), pa.binary(16)),
    ("00", None, pa.int64()),
]


@pytest.mark.parametrize(("value", "given", "kind"), OF_A_TYPE)
def test_arrow_scalars_keep_their_type(value, given, kind):
    """An Arrow scalar becomes the primitive that a shredded column of its type holds, alone and inside an object (E5)."""
    scalar = pa.scalar(given, kind)
    assert binary.encode(scalar) == raw(EMPTY, value)
    inside = bytes.fromhex(value)
    assert binary.encode({"a": scalar})[1] == bytes([2, 1, 0, 0, len(inside)]) + inside


@pytest.mark.parametrize("kind", [pa.uint8(), pa.timestamp("ms"), pa.date64(), pa.list_(pa.int8()), pa.float16()])
def test_arrow_scalars_that_no_column_holds(kind):
    """An Arrow type that VariantShredding does not list is refused by name."""
    value = [1] if pa.types.is_list(kind) else 1.0 if kind == pa.float16() else 1
    with pytest.raises(DeltaVariantError, match=re.escape(f"cannot hold an Arrow {kind}")):
        binary.encode(pa.scalar(value, kind))


def number(n, width):
    return n.to_bytes(width, "little")


@pytest.mark.parametrize("id_width", [1, 2, 3, 4])
@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("large", [False, True])
def test_every_width(large, width, id_width):
    """An object and an array of two children decode alike, whatever the widths of count, ids and offsets (E4)."""
    count = number(2, 4 if large else 1)
    offsets = b"".join(number(n, width) for n in (0, 2, 4))
    array = bytes([(width - 1 | large << 2) << 2 | 3]) + count + offsets + b"\x0c\x01\x0c\x02"
    assert binary.decode(*raw(EMPTY), array) == [1, 2]
    ids = number(0, id_width) + number(1, id_width)
    fields = bytes([(width - 1 | (id_width - 1) << 2 | large << 4) << 2 | 2]) + count + ids + offsets + b"\x0c\x01\x0c\x02"
    assert binary.decode(*raw(AB), fields) == {"a": 1, "b": 2}


@pytest.mark.parametrize("count", [255, 256, 70_000])
def test_many_children(count):
    """The count takes one byte for up to 255 children and four for more; ids have the smallest width (E5)."""
    metadata, value = binary.encode(list(range(count)))
    assert (value[0] & 0x10 != 0) == (count > 255)
    assert binary.decode(metadata, value) == list(range(count))
    fields = {f"k{i:05}": i for i in range(count)}
    metadata, value = binary.encode(fields)
    assert (value[0] & 0x40 != 0) == (count > 255)
    assert (value[0] >> 4 & 3) + 1 == (1 if count <= 256 else 3)
    assert binary.decode(metadata, value) == fields


@pytest.mark.parametrize(
    ("size", "width"), [(250, 1), (251, 2), (2**16 - 6, 2), (2**16 - 5, 3), (2**24 - 6, 3), (2**24 - 5, 4)]
)
def test_large_totals(size, width):
    """Offsets have the smallest width that their largest value needs, in containers and in dictionaries (E5)."""
    metadata, value = binary.encode(["x" * size])
    assert value[0] == (width - 1) << 2 | 3
    assert binary.decode(metadata, value) == ["x" * size]
    metadata, value = binary.encode({"x" * (size + 5): None})
    assert metadata[0] == (width - 1) << 6 | 0x11
    assert binary.decode(metadata, value) == {"x" * (size + 5): None}


class Number(enum.IntEnum):
    FIVE = 5


class Word(str, enum.Enum):
    A = "a"


class Pairs(dict):
    pass


class Odd(str):
    __slots__ = ()
    __hash__ = object.__hash__  # so that a dict takes it beside the equal string


NEW_YORK = zoneinfo.ZoneInfo("America/New_York")
NOON = dt.datetime(2024, 7, 1, 12)
NOON_UTC = NOON.replace(tzinfo=UTC)

# Other values that encode accepts, and what they are encoded as.
TAKEN = [
    (Number.FIVE, 5),
    (Word.A, "a"),
    ({Word.A: Word.A}, {"a": "a"}),
    (Pairs(a=(1, 2)), {"a": [1, 2]}),
    (np.bool_(True), True),
    (np.int64(5), 5),
    (np.uint64(2**64 - 1), 2**64 - 1),
    (np.float64(0.1), 0.1),
    (np.float16(0.1), np.float32(np.float16(0.1))),
    (np.str_("a"), "a"),
    (np.bytes_(b"a"), b"a"),
    (bytearray(b"a"), b"a"),
    (memoryview(b"abcd")[1:3], b"bc"),
    (memoryview(struct.pack("<2i", 1, 2)).cast("i"), struct.pack("<2i", 1, 2)),
    (10**38 - 1, Decimal(10**38 - 1)),
    (Decimal("1e3"), Decimal(1000)),
    (Decimal("-0"), Decimal(0)),
    (Decimal("-0.00"), Decimal("0.00")),
    (Decimal("0e50"), Decimal(0)),
    (dt.datetime(2024, 7, 1, 8, tzinfo=NEW_YORK), NOON_UTC),
    (dt.datetime(2024, 7, 1, 14, tzinfo=dt.timezone(dt.timedelta(hours=2))), NOON_UTC),
    (dt.datetime(2024, 11, 3, 1, 30, fold=1, tzinfo=NEW_YORK), dt.datetime(2024, 11, 3, 6, 30, tzinfo=UTC)),
    (dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=14))), dt.datetime(9999, 12, 31, 9, 59, 59, 999999, UTC)),
    (np.datetime64("2024-07-01T12", "h"), NOON),
    (np.datetime64("2024-07-01T12:00", "m"), NOON),
    (np.datetime64("2024-07-01T12:00:00", "s"), NOON),
    (np.datetime64("2024-07-01T12:00:00", "ms"), NOON),
    (np.datetime64("2024-07-01T12:00:00", "us"), NOON),
    (np.datetime64("2024-07-01T12:00:00", "ns"), pd.Timestamp("2024-07-01T12:00:00")),
    (np.datetime64(-1001, "ps"), DeltaVariantError),
    (np.datetime64(-1000, "ps"), pd.Timestamp(-1, unit="ns")),
    (np.datetime64(10**9, "as"), pd.Timestamp(1, unit="ns")),
    (np.datetime64("2024-07-01", "D"), dt.date(2024, 7, 1)),
    (np.datetime64("2024-07", "M"), dt.date(2024, 7, 1)),
    (np.datetime64("2024", "Y"), dt.date(2024, 1, 1)),
    (np.datetime64("2024-07-04", "W"), dt.date(2024, 7, 4)),
    (np.datetime64(5_000_000, "Y"), np.datetime64(5_000_000, "Y").astype("datetime64[D]")),
    (np.datetime64("NaT"), None),
    (np.datetime64("NaT", "D"), None),
    (pd.NaT, None),
    *((pd.Timestamp("2024-07-01T12:00:00").as_unit(unit), NOON) for unit in ("s", "ms", "us", "ns")),
    *((pd.Timestamp("2024-07-01T08:00:00", tz="America/New_York").as_unit(unit), NOON_UTC) for unit in ("s", "ms", "us", "ns")),
    (pd.Timestamp(1001, unit="ns", tz="America/New_York"), pd.Timestamp(1001, unit="ns", tz=UTC)),
]


@pytest.mark.parametrize(("value", "meant"), TAKEN)
def test_what_encode_takes(value, meant):
    """Subclasses, NumPy and pandas scalars, zones and units are encoded as the value they stand for, or refused."""
    if meant is DeltaVariantError:
        with pytest.raises(DeltaVariantError):
            binary.encode(value)
    else:
        assert same(binary.decode(*binary.encode(value)), meant)


REFUSED = [
    (object(), "builtins.object"),
    ({1, 2}, "builtins.set"),
    (dt.timedelta(1), "timedelta"),
    (np.timedelta64(1, "s"), "timedelta64"),
    (np.array([1]), "ndarray"),
    (1j, "complex"),
    ({1: 2}, "must be a str, not 1"),
    ({"a": 1, Odd("a"): 2}, "two fields"),
    (Decimal("NaN"), "use a float"),
    (Decimal("sNaN"), "use a float"),
    (Decimal("Infinity"), "use a float"),
    (10**38, "38 digits"),
    (-(10**38), "38 digits"),
    (1 << 50_000, "38 digits"),
    (Decimal(10**38), "38 digits"),
    (Decimal("1e1000000"), "38 digits"),
    (Decimal("1e-39"), "38 digits"),
    (Decimal("1." + "0" * 38), "38 digits"),
    ("\ud800", "Unicode"),
    ({"\udfff": 1}, "Unicode"),
    (dt.time(1, tzinfo=UTC), "time zone"),
    (np.datetime64(2**62, "s"), "64 bits"),
    (np.datetime64(6_000_000, "Y"), "32 bits"),
    (np.datetime64(2**62, "Y"), "32 bits"),
    (np.datetime64(2**31, "D"), "32 bits"),
    (np.datetime64(1, "as"), "whole nanoseconds"),
    (pd.Timedelta(1), "Timedelta"),
]


@pytest.mark.parametrize(("value", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_a_variant_cannot_hold(value, message):
    """A value that no Variant can hold raises DeltaVariantError with the reason, alone and inside containers."""
    for one in (value, [value], {"a": value}):
        with pytest.raises(DeltaVariantError, match=message):
            binary.encode(one)


def nested(depth):
    value = None
    for _ in range(depth):
        value = [value]
    return value


def test_deep_nesting_does_not_recurse():
    """MAX_DEPTH levels are encoded, decoded and printed as JSON; encode, decode, to_json and find refuse one more."""
    metadata, value = binary.encode(nested(MAX_DEPTH))
    assert binary.to_json(metadata, value) == "[" * MAX_DEPTH + "null" + "]" * MAX_DEPTH
    deep = binary.decode(metadata, value)
    for _ in range(MAX_DEPTH):
        (deep,) = deep
    assert deep is None
    with pytest.raises(DeltaVariantError, match="nested too deeply"):
        binary.encode(nested(MAX_DEPTH + 1))
    offsets = bytes([3 | 2 << 2, 1]) + number(0, 3) + number(len(value), 3)
    assert binary.find(metadata, value, kinds={NULL}) == ("$" + "[0]" * MAX_DEPTH, NULL)
    for read in (binary.decode, binary.to_json, partial(binary.find, kinds={NULL})):
        with pytest.raises(MalformedVariantError, match="nested too deeply"):
            read(metadata, offsets + value)


def test_a_value_that_contains_itself():
    """A list that contains itself, directly and inside a dict, raises DeltaVariantError."""
    loop: list[object] = []
    loop.extend([loop, {"a": loop}, loop])
    with pytest.raises(DeltaVariantError, match="contains itself"):
        binary.encode(loop)


# (metadata, value, text of the message), the same for decode and to_json.
MALFORMED = [
    ("", "00", "metadata: version 1"),
    ("02 00 00", "00", "metadata: version 1"),
    ("00 00 00", "00", "metadata: version 1"),
    ("01", "00", "metadata"),
    ("01 05 00", "00", "metadata"),
    ("41 00 00 00", "00", "metadata"),
    ("01 01 00", "00", "metadata"),
    ("01 01 00 05 61", "00", "metadata"),
    ("01 01 01 01 61", "00", "metadata"),
    ("01 02 00 02 01 61 61", "00", "metadata"),
    ("c1 ff ff ff ff 00 00 00 00", "00", "metadata"),
    ("01 01 00 01 ff", "00", "UTF-8"),
    ("01 02 00 01 02 c3 a9", "00", "UTF-8"),  # one character, split between two names
    ("01 00", "", "ends before"),
    ("01 00", "0c", "ends before"),
    ("01 00", "1c 00 00 00 00 00 00 00", "ends before"),
    ("01 00", "50" + "00" * 15, "ends before"),
    ("01 00", "54", "unknown primitive type"),
    ("01 00", "fc", "unknown primitive type"),
    ("01 00", "09 61", "ends before"),
    ("01 00", "40 ff ff ff 7f", "ends before"),
    ("01 00", "3c ff ff ff ff 00", "ends before"),
    ("01 00", "40 01 00 00", "ends before"),
    ("01 00", "05 ff", "UTF-8"),
    ("01 00", "0d ed a0 80", "UTF-8"),  # a surrogate
    ("01 00", "40 02 00 00 00 c0 80", "UTF-8"),  # an overlong form
    ("01 00", "11 f4 90 80 80", "UTF-8"),  # beyond U+10FFFF
    ("01 00", "09 e2 82", "UTF-8"),
    ("01 00", "20 27 00 00 00 00", "decimal"),
    ("01 00", "28 ff" + "00" * 16, "decimal"),
    ("01 00", "28 00 00 00 00 00 40 22 8a 09 7a c4 86 5a a8 4c 3b 4b", "decimal"),  # 10**38
    ("01 00", "28 00" + "00" * 15 + "80", "decimal"),
    ("01 00", "44 ff ff ff ff ff ff ff ff", "time"),
    ("01 00", "44 00 60 d7 1d 14 00 00 00", "time"),  # 24:00
    ("01 00", "02 01 00 00 01 00", "field id"),
    (AB, "02 01  02  00 01  00", "field id"),
    (AB, "32 01  00 00 00 80  00 01  00", "field id"),
    (AB, "02 02  00 00  00 01 02  00 00", "two fields"),
    (AB, "02 03  00 01 00  00 01 02 03  00 00 00", "two fields"),
    ("01 02 00 01 02 61 61", "02 02  00 01  00 01 02  00 00", "two fields"),  # one name under two ids
    ("01 00", "03 01 00 05 00", "ends before"),
    ("01 00", "03 01", "ends before"),
    ("01 00", "02", "ends before"),
    ("01 00", "0a 00 00", "ends before"),
    ("01 00", "03 ff 00", "ends before"),
    ("01 00", "13 ff ff ff ff 00", "ends before"),
    ("01 00", "42 ff ff ff 7f 00", "ends before"),
    ("01 00", "03 01  01 01  00 00", "ends before"),  # a child that starts where its container ends
    ("01 00", "03 01  00 01  0c 05", "ends before"),  # a child that ends after its container
    ("01 00", "03 01  00 00  00", "ends before"),
    ("01 00", "03 02  00 00 01  00", "overlap"),  # two children that share a byte
    ("01 00", "03 02  00 01 02  0c 00", "overlap"),
    ("01 00", "03 01  00 06  03 01  00 03  0c 05", "ends before"),
]


@pytest.mark.parametrize(("metadata", "value", "message"), MALFORMED)
def test_malformed_bytes(metadata, value, message):
    """decode and to_json raise MalformedVariantError for malformed bytes, with what is wrong (E1, E2, E3, E4)."""
    for read in (binary.decode, binary.to_json):
        with pytest.raises(MalformedVariantError, match=message):
            read(*raw(metadata, value))


def test_overlapping_children_are_refused():
    """Children that share bytes are refused, so that a small value cannot decode to an exponentially large one (E4)."""
    value = b"\x00"
    while len(value) < 200:
        value = bytes([3, 8]) + bytes(8) + bytes([len(value)]) + value
    with pytest.raises(MalformedVariantError, match="overlap"):
        binary.decode(b"\x01\x00", value)


@given(VARIANTS)
def test_round_trip(value):
    """decode inverts encode: exact numerics by numeric value, everything else by type and value."""
    assert same(binary.decode(*binary.encode(value)), value)


@given(VARIANTS, st.data())
def test_every_prefix_is_malformed(value, data):
    """A value without its last bytes is malformed, except for an empty container's one offset; so is one byte of metadata."""
    metadata, encoded = binary.encode(value)
    with pytest.raises(MalformedVariantError):
        binary.decode(
            metadata,
            encoded[: data.draw(st.integers(0, len(encoded) - (2 if isinstance(value, (dict, list)) and not value else 1)))],
        )
    with pytest.raises(MalformedVariantError):
        binary.decode(metadata[: data.draw(st.integers(0, 1))], encoded)


def outcome(read, metadata, value):
    try:
        return read(metadata, value)
    except MalformedVariantError:
        return MalformedVariantError


@given(st.one_of(st.binary(max_size=40), st.just(bytes.fromhex("01 03 00 01 02 03 61 62 61"))), st.binary(max_size=60))
def test_any_bytes_give_a_value_or_the_error(metadata, value):
    """No bytes raise anything but MalformedVariantError, and decode and to_json refuse the same ones."""
    decoded, text = outcome(binary.decode, metadata, value), outcome(binary.to_json, metadata, value)
    assert (decoded is MalformedVariantError) == (text is MalformedVariantError)
    if text is not MalformedVariantError:
        json.loads(text)
