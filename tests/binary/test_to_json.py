"""JSON text: the form of every type, columns against single Variants, mutated bytes. shredding/test_spark_codec asks Spark."""

import base64
import datetime as dt
import json
import random
import re
import uuid
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_variant import binary
from delta_variant.buffers import NO_FLAGS, flags_of
from delta_variant.errors import MalformedVariantError
from tests.binary.json_texts import FLOATS, INSTANTS, SCALARS, YEARS, payload
from tests.binary.mutations import ROUNDS, SEED, mutated, surrounded
from tests.strategies import VARIANTS, column


def text_of(value):
    return binary.to_json(*binary.encode(value))


def column_text(array):
    """The JSON of a VARIANT column, after Arrow has validated the array."""
    text = binary.json_column(array.field("metadata"), array.field("value"), flags_of(array))
    text.validate(full=True)
    return text


@pytest.mark.parametrize(("value", "text"), SCALARS)
def test_scalars(value, text):
    """Every type has its text: no spaces, escapes in capitals, decimals without exponents, no zeros at the end of fractions."""
    assert text_of(value) == text


JAVA_19 = [  # Java 17 prints too many digits, or not the nearest ones
    (1e23, "1.0E23"),
    (2e23, "2.0E23"),
    (-1e-323, "-9.9E-324"),
    (np.float32(1.1754944e-38), "1.1754944E-38"),
    (np.float32(1e16), "1.0E16"),
]


@pytest.mark.parametrize(("value", "text"), FLOATS + JAVA_19)
def test_floats(value, text):
    """Floats have the form of Java's toString: no exponent from 1e-3 up to 1e7, and at least one digit after the point."""
    assert text_of(value) == text


def significant(text):
    return len(re.sub(r"^-|\.|[eE].*", "", text).strip("0"))


@given(st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.floats(width=32).map(np.float32)))
def test_floats_are_exact_and_short(value):
    """The text of a finite float reads back as this float, has few digits, and an exponent only below 1e-3 and from 1e7 on."""
    if not np.isfinite(value):
        return
    text = text_of(value)
    assert type(value)(text) == value
    assert str(value).startswith("-") == text.startswith("-")
    assert significant(text) <= max(significant(str(value)), 2)
    plain = value == 0 or 1e-3 <= abs(value) < 1e7
    assert re.fullmatch(r"-?\d+\.\d+" if plain else r"-?[1-9]\.\d+E-?\d+", text)
    assert not re.search(r"\.\d+0(E|$)", text)


@pytest.mark.parametrize(("days", "text"), YEARS)
def test_dates(days, text):
    """Years from 0 to 9999 have four digits and no sign, others a sign and at least four digits."""
    assert binary.to_json(b"\x01\x00", payload(11, 4, days)) == f'"{text}"'
    micros = days * 86_400_000_000
    if abs(micros) < 2**63:
        assert binary.to_json(b"\x01\x00", payload(13, 8, micros)) == f'"{text} 00:00:00"'


@pytest.mark.parametrize(("micros", "text"), INSTANTS)
def test_timestamps(micros, text):
    """Timestamps before year 1 and after 9999 have their text, the ends of the type too."""
    assert binary.to_json(b"\x01\x00", payload(12, 8, micros)) == f'"{text}+00:00"'
    assert binary.to_json(b"\x01\x00", payload(13, 8, micros)) == f'"{text}"'


@pytest.mark.parametrize(
    ("nanos", "text"),
    [
        (2**63 - 1, "2262-04-11 23:47:16.854775807"),
        (-(2**63), "1677-09-21 00:12:43.145224192"),
        (-1, "1969-12-31 23:59:59.999999999"),
    ],
)
def test_nanoseconds(nanos, text):
    """Nanosecond timestamps have nine digits after the point, the ends of the type too."""
    assert binary.to_json(b"\x01\x00", payload(18, 8, nanos)) == f'"{text}+00:00"'
    assert binary.to_json(b"\x01\x00", payload(19, 8, nanos)) == f'"{text}"'


@given(st.integers(-(2**31), 2**31 - 1))
def test_dates_as_numpy_counts_them(days):
    """Any date has NumPy's text, except that NumPy's years have no plus, and three digits after a minus."""
    text = json.loads(binary.to_json(b"\x01\x00", payload(11, 4, days)))
    sign, year, rest = re.fullmatch(r"([-+]?)(\d+)(-\d\d-\d\d)", text).groups()
    assert len(year) >= 4
    assert (sign == "+") == (int(year) > 9999 and sign != "-")
    assert str(np.datetime64(days, "D")) == (f"-{int(year):03}" if sign == "-" else f"{int(year):04}") + rest


def without_zeros(text):
    return text.rstrip("0") if "." in text else text


def says(parsed, value):
    """Whether parsed JSON has the content of the value, which may be nested deeper than Python's recursion limit."""
    todo = [(parsed, value)]
    while todo:
        parsed, value = todo.pop()
        if isinstance(value, dict):
            if parsed.keys() != value.keys():
                return False
            todo += [(parsed[key], child) for key, child in value.items()]
        elif isinstance(value, list):
            if len(parsed) != len(value):
                return False
            todo += zip(parsed, value, strict=True)
        elif not says_scalar(parsed, value):
            return False
    return True


def says_scalar(parsed, value):
    if isinstance(value, (float, np.floating)):
        if not np.isfinite(value):
            return parsed == {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
        return type(value)(parsed) == value and np.signbit(type(value)(parsed)) == np.signbit(value)
    if isinstance(value, bytes):
        return base64.b64decode(parsed, validate=True) == value
    if isinstance(value, np.datetime64) or getattr(value, "year", 1) not in range(1, 10_000):
        return isinstance(parsed, str)  # YEARS and INSTANTS test these
    if isinstance(value, dt.datetime):
        clock, plus, zone = value.isoformat(" ").partition("+")
        return parsed == without_zeros(clock) + plus + zone
    if isinstance(value, dt.time):
        return parsed == without_zeros(value.isoformat())
    if isinstance(value, (dt.date, uuid.UUID)):
        return parsed == str(value)
    return parsed == value and isinstance(parsed, bool) == isinstance(value, bool)


@given(VARIANTS)
def test_json_says_what_the_value_is(value):
    """A JSON parser reads the value back from the text."""
    assert says(json.loads(text_of(value), parse_float=Decimal), value)


@given(st.text(max_size=40), st.integers(0, 9))
def test_strings_wherever_they_lie(text, behind):
    """A string is the same whether bytes follow it in the buffer or not."""
    (_, value), tail = binary.encode(text), b"\xff" * behind
    array = surrounded(b"\x01\x00", value, tail)
    assert json.loads(column_text(array)[0].as_py()) == text
    assert column_text(array)[0].as_py() == text_of(text)


@given(st.lists(st.one_of(VARIANTS, st.just("SQL NULL")), max_size=30), st.integers(0, 5))
def test_columns(rows, start):
    """A column, or a slice of one, gives what its Variants give one by one, and null for SQL NULL."""
    array = column(rows).slice(start)
    text = column_text(array)
    assert text.type == pa.string()
    assert text.to_pylist() == [None if row == "SQL NULL" else text_of(row) for row in rows[start:]]


def test_forms_of_arrow():
    """Metadata and values may come in any of Arrow's forms of binary."""
    array = column([{"a": 1}, {"a": "x" * 100}, {"b": [1.5]}])
    metadata, value = array.field("metadata"), array.field("value")
    expected = ['{"a":1}', f'{{"a":"{"x" * 100}"}}', '{"b":[1.5]}']
    for one in (metadata, metadata.dictionary_encode(), metadata.cast(pa.large_binary()), metadata.cast(pa.binary_view())):
        for other in (value, value.cast(pa.large_binary()), value.cast(pa.binary_view())):
            assert binary.json_column(one, other, NO_FLAGS).to_pylist() == expected


def test_a_null_without_an_excuse():
    """A row without a value is an error unless it is SQL NULL."""
    metadata, value = pa.array([b"\x01\x00"] * 2, pa.binary()), pa.array([b"\x00", None], pa.binary())
    assert binary.json_column(metadata, value, np.array([1, 0], np.uint8)).to_pylist() == ["null", None]
    for valid in (NO_FLAGS, np.array([0, 1], np.uint8)):
        with pytest.raises(MalformedVariantError, match="has no value"):
            binary.json_column(metadata, value, valid)


def test_long_columns():
    """Columns of more rows than are written at a time keep the order of rows, and an error names its row."""
    documents = [{"n": i, "x": i / 8, "s": "é" * (i % 50)} for i in range(1000)] + ["SQL NULL"]
    array = pa.concat_arrays([column(documents)] * 80)
    assert column_text(array).to_pylist() == [None if d == "SQL NULL" else text_of(d) for d in documents] * 80
    value = array.field("value").to_pylist()
    value[70_000] = b"\xfc"
    with pytest.raises(MalformedVariantError, match=r"unknown primitive type .*row 70000"):
        binary.json_column(array.field("metadata"), pa.array(value, pa.binary()), flags_of(array))


@pytest.mark.parametrize(
    "document",
    [
        {"text": "\x01" * 1_000_000, "k" * 300_000: "y"},
        [{"k" * 1000: None}] * 5000,
        [1.5, np.float32(0.1)] * 100_000,
        b"\x07" * 3_000_000,
    ],
    ids=["text", "keys", "floats", "binary"],
)
def test_large_documents(document):
    """A document larger than the output buffer is written whole, between small ones."""
    small = {"a": 1.5}
    text = column_text(column([small, document, small]))
    assert text[0].as_py() == text[2].as_py() == '{"a":1.5}'
    assert says(json.loads(text[1].as_py(), parse_float=Decimal), document)


def test_fields_keep_their_order():
    """Fields come in the order of the object, which need not be that of the names."""
    assert (
        binary.to_json(bytes.fromhex("01 02 00 01 02 62 61"), bytes.fromhex("02 02 00 01 00 01 02 00 04"))
        == '{"b":null,"a":true}'
    )


def result(read, *arguments):
    try:
        return read(*arguments)
    except MalformedVariantError:
        return None


def test_mutated_variants(record_property):
    """JSON of a mutated Variant is refused if decode refuses it, and has its value otherwise, whatever bytes are around it."""
    record_property("seed", SEED)
    rng = random.Random(SEED)
    good = 0
    for round_ in range(ROUNDS):
        metadata, value = mutated(rng)
        context = (f"FUZZ_SEED={SEED}, round {round_}", metadata.hex(), value.hex())
        one, other = (result(column_text, surrounded(metadata, value, around)) for around in (b"\x00", b"\xff"))
        assert one == other, context
        try:
            decoded = binary.decode(metadata, value)
        except MalformedVariantError:
            assert one is None, context
        else:
            assert one is not None, context
            assert says(json.loads(one[0].as_py(), parse_float=Decimal), decoded), context
            good += 1
    assert 0 < good < ROUNDS
