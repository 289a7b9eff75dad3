"""One Variant: encode, decode, JSON, and what malformed bytes do."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_variant import binary
from delta_variant.errors import DeltaVariantError, MalformedVariantError
from tests.strategies import VARIANTS, same

EMPTY = bytes.fromhex("110000")

# (Python value, value bytes, JSON text): the encoding specification's tables, worked by hand.
SCALARS = [
    (None, "00", "null"),
    (True, "04", "true"),
    (False, "08", "false"),
    (34, "0c22", "34"),
    (-1, "0cff", "-1"),
    (1000, "10e803", "1000"),
    (2**31 - 1, "14ffffff7f", "2147483647"),
    (-(2**63), "180000000000000080", "-9223372036854775808"),
    (2**63, "28000000000000000080" + "00" * 8, "9223372036854775808"),
    (1.5, "1c000000000000f83f", "1.5"),
    (Decimal("1.00"), "200264000000", "1"),
    (Decimal("-0.01"), "2002ffffffff", "-0.01"),
    (Decimal("1234567890.5"), "2401391cdcdf02000000", "1234567890.5"),
    (dt.date(1970, 1, 2), "2c01000000", '"1970-01-02"'),
    (dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.timezone.utc), "3040420f0000000000", '"1970-01-01 00:00:01+00:00"'),
    (dt.datetime(1970, 1, 1, 0, 0, 0, 500), "34f401000000000000", '"1970-01-01 00:00:00.0005"'),
    (np.float32(0.5), "380000003f", "0.5"),
    (b"\x00\xff", "3c0200000000ff", '"AP8="'),
    ("n/a", "0d6e2f61", '"n/a"'),
    ("x" * 64, "4040000000" + "78" * 64, '"' + "x" * 64 + '"'),
    (dt.time(0, 0, 1), "4440420f0000000000", '"00:00:01"'),
    ([], "030000", "[]"),
    ([1, None], "0302000203" + "0c0100", "[1,null]"),
    ({}, "020000", "{}"),
]


@pytest.mark.parametrize(("value", "encoded", "json"), SCALARS)
def test_scalars(value, encoded, json):
    """The bytes of every primitive are the specification's, in the smallest form, and come back as the same value."""
    metadata, bytes_ = binary.encode(value)
    assert metadata == EMPTY
    assert bytes_.hex() == encoded
    assert same(binary.decode(metadata, bytes_), value)
    assert binary.to_json(metadata, bytes_) == json


def test_objects():
    """Field ids are in the order of the names, whatever the order of the fields."""
    metadata, value = binary.encode({"b": 2, "a": {"c": "x"}})
    assert metadata.hex() == "1103" + "00010203" + "616263"
    assert value.hex() == "0202" + "0001" + "000709" + "02010200020578" + "0c02"
    assert binary.decode(metadata, value) == {"a": {"c": "x"}, "b": 2}
    assert binary.to_json(metadata, value) == '{"a":{"c":"x"},"b":2}'


@given(VARIANTS)
def test_round_trip(value):
    """decode inverts encode: exact numerics by numeric value, everything else by type and value."""
    assert same(binary.decode(*binary.encode(value)), value)


@pytest.mark.parametrize("count", [255, 256, 70_000])
def test_large_containers(count):
    """Counts above 255 and wide offsets and ids survive."""
    assert binary.decode(*binary.encode(list(range(count)))) == list(range(count))
    fields = {f"k{i:05}": i for i in range(count)}
    assert binary.decode(*binary.encode(fields)) == fields


def test_deep_nesting_does_not_recurse():
    """A thousand levels, as many as Spark's parser admits, decode and print."""
    metadata, value = EMPTY, b"\x00"
    for _ in range(1000):
        size = len(value)
        width = (size.bit_length() + 7) // 8
        value = bytes([3 | (width - 1) << 2, 1]) + bytes(width) + size.to_bytes(width, "little") + value
    assert binary.to_json(metadata, value) == "[" * 1000 + "null" + "]" * 1000
    deep = binary.decode(metadata, value)
    for _ in range(1000):
        (deep,) = deep
    assert deep is None


@pytest.mark.parametrize("value", [object(), {1: 2}, Decimal("NaN"), 10**38, Decimal("1e-39"), "\ud800", {"\ud800": 1}])
def test_what_a_variant_cannot_hold(value):
    """One error of the family, never another."""
    with pytest.raises(DeltaVariantError):
        binary.encode(value)


def test_a_value_that_contains_itself():
    """Cycles end in the same error."""
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(DeltaVariantError, match="nested too deeply"):
        binary.encode(loop)


MALFORMED = [
    ("", "00", "metadata: version 1"),
    ("02 00 00", "00", "metadata: version 1"),
    ("01 05 00", "00", "metadata"),
    ("01 01 00 05 61", "00", "metadata"),
    ("01 01 01 01 61", "00", "metadata"),
    ("01 01 00 01 ff", "00", "UTF-8"),
    ("01 00", "", "1 bytes expected at byte 0"),
    ("01 00", "0c", "bytes expected"),
    ("01 00", "fc", "unknown primitive type"),
    ("01 00", "40 ff ff ff 7f", "bytes expected"),
    ("01 00", "05 ff", "UTF-8"),
    ("01 00", "02 01 00 00 01 00", "field id 0"),
    ("01 00", "03 01 00 05 00", "bytes expected"),
    ("01 00", "20 27 00 00 00 00", "decimal4"),
    ("01 00", "44 ff ff ff ff ff ff ff ff", "time"),
    ("01 01 00 01 61", "02 02 00 00 00 01 02 00 00", "two fields 'a'"),
    ("01 00", "13 ff ff ff ff 00", "bytes expected"),
]


@pytest.mark.parametrize(("metadata", "value", "message"), MALFORMED)
def test_malformed_bytes(metadata, value, message):
    """Malformed bytes name what is wrong, in the one error, for values and for JSON."""
    for read in (binary.decode, binary.to_json):
        with pytest.raises(MalformedVariantError, match=message):
            read(bytes.fromhex(metadata), bytes.fromhex(value))


@given(st.binary(max_size=40), st.binary(max_size=60))
def test_any_bytes_give_a_value_or_the_error(metadata, value):
    """No bytes raise anything but MalformedVariantError."""
    for data in (metadata, b"\x01\x01\x00\x01a"):
        try:
            binary.decode(data, value)
        except MalformedVariantError:
            pass


def test_overlapping_children_are_refused():
    """Children that share bytes cannot blow a small value up."""
    value = b"\x00"
    for _ in range(40):
        offsets = bytes([0] * 8) + len(value).to_bytes(1, "little")
        value = bytes([3, 8]) + offsets + value
        if len(value) > 200:
            break
    with pytest.raises(MalformedVariantError, match="overlap"):
        binary.decode(b"\x01\x00", value)
