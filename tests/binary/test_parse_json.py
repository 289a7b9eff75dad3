"""JSON texts → Variants: the cases of RFC 8259 by hand, rows among other rows, generated texts against Spark's parse_json."""

import json
import math
import random
import re
import struct
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delta_variant import binary
from delta_variant.binary import parse as module
from delta_variant.binary.parse import parse_texts
from delta_variant.errors import DeltaVariantError, InvalidJsonError, InvalidLayoutError
from delta_variant.kernels.parse import FAULTS
from delta_variant.shredding import UNSHREDDED
from tests.strategies import VARIANTS, same
from tests.support import length


def encoded(text):
    return text if isinstance(text, bytes) else text.encode()


def parsed(texts, **settings):
    """The (metadata, value) of each text, or what is wrong with it, in a column that Arrow finds nothing wrong with."""
    column = pa.array([None if text is None else encoded(text) for text in texts], pa.large_binary())
    array, faults = parse_texts(column, **settings)
    array.validate(full=True)
    assert array.type == UNSHREDDED
    found = [None if row is None else (row["metadata"], row["value"]) for row in array.to_pylist()]
    for row, code in zip(faults.row, faults.code, strict=True):
        assert found[row] is None
        found[row] = FAULTS[int(code)]
    return found


def value_of(text):
    (found,) = parsed([text])
    assert isinstance(found, tuple), (text, found)
    return binary.decode(*found)


SCALARS = [
    ("null", None),
    (" true\n", True),
    ("\tfalse\r", False),
    ("0", 0),
    ("-0", 0),
    ("127", 127),
    ("-129", -129),
    ("9223372036854775807", 2**63 - 1),
    ("-9223372036854775808", -(2**63)),
    ("9223372036854775808", Decimal(2**63)),
    ("9" * 38, Decimal("9" * 38)),
    ("9" * 39, 1e39),
    ("1.50", Decimal("1.50")),
    ("-0.0", Decimal("0.0")),
    ("0." + "0" * 37 + "1", Decimal("1e-38")),
    ("0." + "0" * 38 + "1", 1e-39),
    ("-" + "1" * 30 + "." + "2" * 8, Decimal("-" + "1" * 30 + "." + "2" * 8)),
    ("1" * 30 + "." + "2" * 9, float("1" * 30)),
    ("1e2", 100.0),
    ("-1.5E+003", -1500.0),
    ("-0e0", -0.0),
    ("1e400", float("inf")),
    ("-1e-400", -0.0),
    ("1e" + "9" * 500, float("inf")),
    ('""', ""),
    ('"\\"\\\\\\/\\b\\f\\n\\r\\t"', '"\\/\b\f\n\r\t'),
    ('"\\u0041\\u00e9\\u20AC\\uD83D\\uDE00\\u0000"', "Aé€\U0001f600\0"),
    ('"é€\U0001f600\x7f\u2028"', "é€\U0001f600\x7f\u2028"),
    ('"' + "x" * 63 + '"', "x" * 63),
    ('"' + "x" * 64 + '"', "x" * 64),
    ('"' + "x" * 62 + '\\n"', "x" * 62 + "\n"),
    ('"' + "x" * 63 + '\\u00e9"', "x" * 63 + "é"),
    ("[]", []),
    (" [ ] ", []),
    ("{}", {}),
    ("{ }", {}),
    ('[1, [2,{"a" : [3]}], {}]', [1, [2, {"a": [3]}], {}]),
    ('{"b":1,"a":{"b":2},"":[]}', {"": [], "a": {"b": 2}, "b": 1}),
    (json.dumps(list(range(300))), list(range(300))),
    (json.dumps({str(k): "x" * k for k in range(300)}), {str(k): "x" * k for k in range(300)}),
]


@pytest.mark.parametrize(("text", "value"), SCALARS, ids=[text[:20] for text, _ in SCALARS])
def test_values(text, value):
    """The value and its type: the narrowest integer, decimals with their zeros, the nearest double."""
    (found,) = parsed([text])
    assert same(binary.decode(*found), value)
    if isinstance(value, (int, float, Decimal)):
        scale = -value.as_tuple().exponent if isinstance(value, Decimal) else None
        assert type(binary.decode(*found)) is type(value) or value == 2**63
        assert scale is None or binary.decode(*found) == value


BROKEN = [
    *("", " ", "tru", "True", "nul", "nan", "NaN", "-Infinity", "undefined", "'a'", "\ufeff1", "\0", "\u00a01"),
    *("-", "+1", ".5", "1.", "1.e5", "1e", "1e+", "01", "-01", "00", "0x1", "1f", "1,", "1]", "--1", "1_0", "1x", "true1"),
    *(
        "[",
        "]",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1,,2]",
        "[1 2]",
        "[1}",
        "[true false]",
        "[1]]"[:2],
        '["a"',
        "[1.2.3]",
        "[1e5.2]",
    ),
    *("{", "}", '{"a"', '{"a"}', '{"a":', '{"a":}', '{"a":1', '{"a":1,', '{"a":1,}', '{"a":1]', "{a:1}", "{1:1}", '{"a" 1}'),
    *('{"a":1 "b":2}', '{"a":1,"a":2}', '{"a":1,"\\u0061":2}', '{"x":[{"a":1,"b":2,"a":3}]}', '{"a"b":1}', '{"a":1,,"b":2}'),
    *('"', '"a', '"\\', '"\\"', '"\\x"', '"\\\'"', '"\\u"', '"\\u12"', '"\\u123g"', '"\\U0041"', '"\n"', '"\x00"', '"\x1f"'),
    *('"\\ud83d"', '"\\ude00"', '"\\ud83dx"', '"\\ud83d\\n"', '"\\ud83d\\u0041"', '"\\ude00\\ud83d"', '{"\\ud83d":1}'),
    *("//c\n1", "/**/1", "#\n1", "[1,\x0b2]", "[1,\x0c2]", b"\xff1", b"1\xff", b"[\xc3\xa9]"),
    *(
        "[" * 1001 + "]" * 1001,
        '{"a":' * 1001 + "1" + "}" * 1001,
        "1" * 1001,
        "[" + "1" * 1000 + "e1]",
        '{"' + "k" * 50_001 + '":1}',
    ),
]


@pytest.mark.parametrize("text", BROKEN, ids=[ascii(text)[:20] for text in BROKEN])
def test_broken_texts(text):
    """A text that is not JSON is refused with a reason, alone and between others, and is NULL on request."""
    (reason,) = parsed([text])
    assert reason in FAULTS.values()
    good = '{"a":[1,{"b":"x"}]}'
    assert parsed([good, text, good]) == [*parsed([good]), reason, *parsed([good])]
    column = pa.array([b"1", encoded(text), None], pa.binary())
    with pytest.raises(InvalidJsonError, match=f"{re.escape(reason)} .at row 1, byte [0-9]+.; errors=") as error:
        binary.parse_json(column)
    assert isinstance(error.value, DeltaVariantError)
    assert binary.parse_json(column, errors="null").is_null().to_pylist() == [False, True, True]


TOLERATED = [
    *("1 2", "{}x", "[]]", '"a"b', "true,", "null]", "[1]\0", "1\n]"),
    *(b'"\xff"', b'"\xe3\x81"', b'"\xed\xa0\x80"', b'"\xf0\x9f\x98a"', b'"\xc0\x80"', b'"\xf4\x90\x80\x80"', b'{"\xff":1}'),
    *("[" * 1000 + "]" * 1000, "1" * 1000, "0." + "1" * 1000, "1" * 999 + "e1", '{"' + "k" * 50_000 + '":1}'),
]


def test_what_spark_tolerates():
    """Text after a complete value is ignored, bytes that are not UTF-8 become U+FFFD, and limits include their last number."""
    found = parsed(TOLERATED)
    assert all(isinstance(one, tuple) for one in found)
    values = [binary.decode(*one) for one in found[:8]]
    assert values == [1, {}, [], "a", True, None, [1], 1]
    values = [binary.decode(*one) for one in found[8:15]]
    assert values == ["\ufffd", "\ufffd", "\ufffd", "\ufffda", "\ufffd\ufffd", "\ufffd" * 4, {"\ufffd": 1}]


def test_duplicate_keys():
    """On request the last of equal keys counts; the dictionary keeps the keys of values that are dropped, as Spark's does."""
    texts = ['{"a":1,"b":2,"a":"x"}', '{"a":{"c":1},"a":[]}', '{"b":{"b":1,"b":2},"b":{"b":3,"c":4,"b":5}}', '{"a":1}']
    found = parsed(texts, allow_duplicate_keys=True)
    assert [binary.decode(*one) for one in found] == [{"a": "x", "b": 2}, {"a": []}, {"b": {"b": 5, "c": 4}}, {"a": 1}]
    assert [len(binary.decode_metadata(one[0])) for one in found] == [2, 2, 2, 1]


EDGES = ["\ud7ff", "\ue000", "\uefff", "\uf000", "\uffff", "\U00010000", "\U0001f600", "\U0010ffff", "\x7f"]
"""Characters around those that UTF-8 and UTF-16 order differently."""


def test_order_of_fields():
    """Fields are in the order of UTF-16: prefixes, zero bytes, characters beyond U+FFFF, objects of any size (E6)."""
    keys = ["", "\0", "\0\0", "a", "a\0", "ab", "abcdefgh", "abcdefgh\0", "abcdefghi", "abcdefgi", "é", "\ue000", "\U0001f600"]
    keys = list(dict.fromkeys([*keys, *(prefix + edge for prefix in ("", "abcdefg", "abcdefgh", "\uffff") for edge in EDGES)]))
    rng = random.Random(1)
    for count in (2, 13, 40, 48, 49, 300):
        names = keys[:count] + [f"key {k}" for k in range(count - len(keys))]
        for _ in range(3):
            rng.shuffle(names)
            ((metadata, value),) = parsed([json.dumps(dict.fromkeys(names, 1))])
            assert list(binary.decode(metadata, value)) == sorted(names, key=lambda name: name.encode("utf-16-be"))
            assert list(binary.decode_metadata(metadata)) == names


def test_forms_of_arrow():
    """Texts may come in any of Arrow's forms, as slices and in chunks; an error counts rows from the first chunk."""
    texts = ['{"a":1}', None, "[2.5]", '"é"']
    expected = [None if text is None else value_of(text) for text in texts]
    plain = pa.array(texts)
    forms = [
        plain.cast(kind) for kind in (pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view())
    ]
    forms += [
        plain,
        plain.dictionary_encode(),
        pa.array(["x", *texts, "{"]).slice(1, 4),
        pa.chunked_array([plain[:1], plain[1:]]),
    ]
    for form in forms:
        assert [row and binary.decode(**row) for row in binary.parse_json(form).to_pylist()] == expected
    for empty in (pa.array([], pa.string()), pa.chunked_array([], pa.string()), pa.array(["1"])[:0]):
        assert binary.parse_json(empty).to_pylist() == []
    assert binary.parse_json(pa.nulls(2)).to_pylist() == [None, None]
    with pytest.raises(InvalidJsonError, match=r"row 5, byte 3, and 1 more rows"):
        binary.parse_json(pa.chunked_array([texts, ["1", "[1,]", "x"]]))
    with pytest.raises(InvalidLayoutError, match="takes strings or binaries, not int64"):
        binary.parse_json(pa.array([1]))
    with pytest.raises(ValueError, match="errors is"):
        binary.parse_json(plain, errors="ignore")


def test_texts_end_anywhere():
    """A text ends where its row does, whatever bytes follow in the buffer."""
    for text in ("12", "-1.5", '"abc"', '{"key":"value"}', "[1e5,null]", '"' + "x" * 70 + '"'):
        for end in range(len(text) + 1):
            data = text + text + " " * 64
            alone = pa.array([text[:end].encode()], pa.binary())
            offsets = pa.py_buffer(np.array([0, end, len(data)], np.int32))
            among = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(data.encode())])
            found = [parse_texts(array) for array in (alone, among)]
            assert found[0][0].to_pylist() == found[1][0].to_pylist()
            assert found[0][1].code.tolist() == found[1][1].code.tolist()


def test_many_keys():
    """More keys, metadata and shapes than the caches hold, in one row or in many, come out right."""
    rows = [{f"k{row}_{k}": row} for row in range(20_000) for k in range(1)]
    rows += [{f"{k}": k for k in range(30_000)}, {"a": 1}] + [
        {f"{k}": {f"{k * 7}": []} for k in range(row, row + 50)} for row in range(500)
    ]
    found = parsed([json.dumps(row) for row in rows])
    assert [binary.decode(*one) for one in found] == rows


@pytest.mark.parametrize("keys", [254, 255, 256, 257, 66_000])
def test_small_objects_among_many_keys(keys):
    """Objects and arrays of any size come out right beside more keys than one or two bytes number."""
    row = {f"{k}": {f"{k}": k, "0": {"0": [k]}} for k in range(keys)}
    row |= {"x": {"a": 1}, "y": [{"a": "z" * size} for size in (0, 200, 250, 260, 70_000)]}
    assert [binary.decode(*one) for one in parsed([json.dumps(row)] * 2)] == [row] * 2


def test_texts_that_go_on_in_the_next_row():
    """A text that ends where a key, a colon or a number could go on does not read the next one."""
    texts = [
        '{"ab":1}',
        "{",
        '"ab":1}',
        '{"ab',
        '":1}',
        '{"ab"',
        ":1}",
        '{"ab":',
        "1}",
        '{"ab":1',
        "2}",
        '{"ab":1,',
        '"ab":1}',
        "[.5]",
    ]
    assert [text for text, one in zip(texts, parsed(texts), strict=True) if not isinstance(one, str)] == [
        '{"ab":1}',
        '"ab":1}',
        '"ab":1}',
    ]


def test_long_rows():
    """Rows larger than the buffers come out whole, among small ones."""
    documents = [[1], ["x" * 3_000_000], {"a": [1.5e300] * 100_000}, [[]] * 200_000, "é" * 2_000_000, [1]]
    assert [binary.decode(*one) for one in parsed([json.dumps(d) for d in documents])] == documents


def test_sizes_of_metadata():
    """The keys of a document may take no more than 128 MiB, as its value may."""
    key = "k" * 49_990
    text = "{" + ",".join(f'"{key}{number}":1' for number in range(2_700)) + "}"
    assert parsed([text]) == ["the Variant is larger than 128 MiB"]


def test_lengths_of_strings():
    """A string may have 20,000,000 characters, which are counted as in UTF-16."""
    good, long = "x" * 19_999_998 + "\U0001f600", "x" * 19_999_999 + "\U0001f600"
    found = parsed([f'"{good}"', f'["{long}"]', '"' + "é" * 20_000_001 + '"'])
    assert binary.decode(*found[0]) == good
    assert found[1] == found[2] == "a string is longer than 20,000,000 characters"


NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(lambda x: f"{x!r}e0" if "e" not in repr(x) else repr(x)),
    st.builds(lambda w, q: f"{w}e{q}", st.integers(0, 10**25), st.integers(-350, 310)),
    st.builds(lambda w, f, q: f"-{w}.{f}E{q:+}", st.integers(0, 10**40), st.integers(0, 10**40), st.integers(-350, 310)),
)


@given(NUMBERS)
def test_doubles(text):
    """A number with an exponent becomes the nearest double."""
    assert same(value_of(text), float(text))


@given(st.integers(0, 2**63 - 2**52 - 1), st.integers(-1, 1), st.integers(0, 30))
def test_doubles_between_two_doubles(bits, way, zeros):
    """So does one in the middle of two doubles, to the even one, and one that differs from it in a far digit."""
    bits %= 0x7FF0000000000000
    low = struct.unpack("<d", bits.to_bytes(8, "little"))[0]
    middle = Fraction(low) + Fraction(math.ulp(low)) / 2
    twos = middle.denominator.bit_length() - 1  # middle = digits / 10**twos
    digits = middle.numerator * 5**twos * 10**zeros + way
    text = f"{digits}e{-twos - zeros}"
    if len(str(digits)) < 990 and digits > 0:
        assert same(value_of(text), float(text))


def rendered(value, rng):
    """One of the JSON texts of a value of None, booleans, numbers, strings, lists and dicts."""

    def blanks():
        return rng.choice(["", "", "", " ", "\n  ", "\t\r\n", " " * 40])

    def quoted(text):
        units = [escaped(char) if rng.random() < 0.2 or char < " " or char in '"\\' else char for char in text]
        return f'"{"".join(units)}"'

    def escaped(char):
        short = {"\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t", '"': '"', "\\": "\\", "/": "/"}
        if char in short and rng.random() < 0.7:
            return "\\" + short[char]
        units = char.encode("utf-16-be", "surrogatepass").hex()
        units = units if rng.random() < 0.5 else units.upper()
        return "".join("\\u" + units[k : k + 4] for k in range(0, len(units), 4))

    if isinstance(value, dict):
        inner = ",".join(f"{blanks()}{quoted(k)}{blanks()}:{blanks()}{rendered(v, rng)}{blanks()}" for k, v in value.items())
        return "{" + inner + blanks() + "}"
    if isinstance(value, list):
        return "[" + ",".join(blanks() + rendered(v, rng) + blanks() for v in value) + (blanks() if not value else "") + "]"
    if isinstance(value, str):
        return quoted(value)
    return value.text if isinstance(value, Number) else json.dumps(value)


class Number:
    """A number by its text."""

    def __init__(self, text):
        self.text = text


DIGITS = st.text("0123456789", min_size=1, max_size=45)
TEXTS_OF_NUMBERS = st.one_of(
    st.from_regex(r"-?(0|[1-9][0-9]{0,44})(\.[0-9]{1,44})?([eE][-+]?[0-9]{1,3})?", fullmatch=True),
    st.integers(-(2**70), 2**70).map(str),
    st.builds(lambda digits, zeros: f"0.{'0' * zeros}{digits}", DIGITS, st.integers(0, 40)),
)
STRINGS = st.one_of(st.text(max_size=8), st.text('ab/"\\\n\té€\U0001f600', min_size=20, max_size=100))


def wide(seed, inner):
    """An object of about 32 to 60 fields, whose keys UTF-8 and UTF-16 order differently."""
    rng = random.Random(seed)
    starts, ends = ["", "a", "abcdefg", "abcdefgh", *EDGES], ["", "a", "b", "ab", *EDGES]
    keys = rng.sample([start + edge + end for start in starts for edge in EDGES for end in ends], rng.randrange(31, 60))
    return {**dict.fromkeys(keys, seed), "in": inner}


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), TEXTS_OF_NUMBERS.map(Number), STRINGS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(st.one_of(st.sampled_from(["a", "b", "id"]), STRINGS), inner, max_size=6),
    ),
    max_leaves=15,
)


@given(st.lists(st.one_of(VARIANTS.filter(lambda v: isinstance(v, (list, dict))), st.none()), max_size=20))
def test_to_json_and_back(rows):
    """The text of to_json parses, to a Variant that has the same text: numbers and strings keep their digits and characters."""
    texts = [None if row is None else binary.to_json(*binary.encode(row)) for row in rows]
    for text, found in zip(texts, parsed(texts), strict=True):
        assert found is None if text is None else json.loads(binary.to_json(*found)) == json.loads(text)


def mutated(text, rng):
    """A text with bytes deleted, inserted, changed or cut off."""
    data = bytearray(encoded(text))
    for _ in range(rng.randrange(1, 4)):
        at, way = rng.randrange(len(data) + 1), rng.randrange(5)
        if way == 0:
            del data[at : at + 1]
        elif way == 1:
            data.insert(at, rng.choice(b'{}[]",:\\ \n0123456789-+.eEtfnu\x00\x1f\x80\xff\xe3\xed'))
        elif way == 2 and at < len(data):
            data[at] = rng.randrange(256)
        elif way == 3:
            del data[at:]
        else:
            data[at:at] = data[at : at + rng.randrange(20)]
    return bytes(data)


OF_ANOTHER_KIND = re.compile(rb"[ \n\t\r]*(true|false|null)[\x80-\xff]")
"""What only Spark accepts: a literal followed by some characters that belong to no word."""


SETTINGS = {
    "allow_duplicate_keys": "spark.sql.variant.allowDuplicateKeys",
    "validate_unicode": "spark.sql.variant.validateUnicodeInJsonParsing",
}


def assert_as_spark(spark, texts, **settings):
    """Spark accepts the same texts and gives the same bytes. Returns the number of texts that are accepted."""
    for name, value in settings.items():
        spark.conf.set(SETTINGS[name], str(value).lower())
    try:
        frame = spark.createDataFrame(pa.table({"n": range(len(texts)), "t": pa.array(texts, pa.binary())}))
        rows = sorted(frame.selectExpr("n", "try_parse_json(cast(t as string)) AS v").collect(), key=lambda row: row.n)
    finally:
        for name in settings:
            spark.conf.unset(SETTINGS[name])
    good = 0
    for text, row, found in zip(texts, rows, parsed(texts, **settings), strict=True):
        if row.v is None:
            assert isinstance(found, str), (text, found)
        elif not OF_ANOTHER_KIND.match(text):
            assert found == (bytes(row.v.metadata), bytes(row.v.value)), text
            good += 1
    return good


@pytest.mark.spark
def test_tables_as_spark(spark):
    """Every text in the tables of this file is accepted or refused as Spark does it, with Spark's bytes."""
    texts = [encoded(text) for text in [text for text, _ in SCALARS] + BROKEN + TOLERATED]
    assert assert_as_spark(spark, texts) == len(SCALARS) + len(TOLERATED)
    assert_as_spark(spark, texts, allow_duplicate_keys=True)


@pytest.mark.spark
def test_limits_as_spark(spark):
    """Digits are counted as Jackson counts them, in either of its loops, and so are levels and the lengths of keys."""
    texts = []
    for n in (998, 999, 1000, 1001, 1002):
        forms = ["1" * n, "0." + "1" * n, "1" * n + ".5", "1." + "1" * n, "1" * n + "e1", "1e" + "0" * n, "0e" + "0" * n]
        forms += ["1." + "1" * (n - 4) + "e+12", "0." + "1" * (n - 4) + "E-12"]
        texts += [f(sign + form) for form in forms for sign in ("", "-") for f in ("{}".format, "[{}]".format, "{} ".format)]
        texts += ["[" * n + "]" * n, '{"a":' * n + "1" + "}" * n]
    for n in (49_999, 50_000, 50_001):
        texts += [
            f'{{"{"k" * n}":1}}',
            f'{{"{"é" * n}":1}}',
            f'{{"{"k" * (n - 2)}\U0001f600":1}}',
            f'{{"\\u006b{"k" * (n - 1)}":1}}',
        ]
    assert 0 < assert_as_spark(spark, [encoded(text) for text in texts]) < len(texts)


PARTS = [
    *(
        "",
        "a",
        "z",
        "?",
        "\\n",
        "\\u0041",
        "\\u00e9",
        "é",
        "\\ud7ff",
        "\\ue000",
        "\ue000",
        "\uffff",
        "\U0001f600",
        "\U00010000",
    ),
    *("\\ud83d", "\\uD800", "\\udbff", "\\udc00", "\\uDFFF", "\\ud83d\\ude00", "\\ude00\\ud83d", "\\ud83d\\ud83d\\ude00"),
    *(
        "\\ud83d\\u0041",
        "\\ud83d\\",
        "\\ud83d\\u12",
        "\\ud83d\\ud",
        "\\ud83dx",
        "x" * 27,
        "x" * 61,
        b"\xff",
        b"\xed\xa0\x80",
        b"\xe9",
    ),
]
"""Halves of surrogate pairs and neighbours: characters before and behind them, other escapes, bytes that are not UTF-8."""


def texts_with_halves(count, rng):
    """Documents whose strings and keys are made of PARTS; some objects have 33 fields, some strings are long."""

    def string(most):
        chosen = [rng.choice(PARTS) for _ in range(rng.randrange(most))]
        return b'"' + b"".join(map(encoded, chosen)) + b'"'

    def document():
        fields = [string(4) + b":" + (string(6) if rng.random() < 0.5 else b"1") for _ in range(rng.choice([1, 2, 3, 5, 33]))]
        return rng.choice([b"{" + b",".join(fields) + b"}", string(8), b"[" + string(5) + b"]"])

    return [document() for _ in range(count)]


def sorts_alike(text):
    """Whether bytes and UTF-16 sort the keys of a text alike, or one of them has half a pair: UTF-16 decides then."""
    keys = json.loads(java_decoded(text), object_pairs_hook=lambda pairs: "".join(key for key, _ in pairs), strict=False)
    high = any(char >= "\ue000" for char in keys if char <= "\uffff")
    return not (high and max(keys, default="") > "\uffff") or any("\ud800" <= char <= "\udfff" for char in keys)


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(length("PARSE_JSON_HALVES", 1, 100)))
def test_halves_of_surrogate_pairs_as_spark(spark, seed):
    """Half a surrogate pair is refused, or with validate_unicode=False taken as Spark takes it, in values and keys, wherever it
    is: the same bytes, the same order of fields, and keys that differ although their bytes are the same."""
    texts = texts_with_halves(800, random.Random(seed))
    texts = [text for text in texts if not text.startswith(b"{") or not is_json(text) or sorts_alike(text)]
    texts += [rb'{"\ud83d":1,"?":2,"\ud83e":3,"\ud83d":4}', rb'{"a":{"\ud83d":1}}', rb'{"a":{"\ud83d":1},"b":{"\ud83d":[]}}']
    counts = [assert_as_spark(spark, texts, validate_unicode=validate) for validate in (True, False)]
    assert 100 < counts[0] < counts[1] < len(texts)
    assert_as_spark(spark, texts, validate_unicode=False, allow_duplicate_keys=True)


def is_json(text):
    """Whether Python can read a text after Java has decoded it."""
    try:
        json.loads(java_decoded(text), strict=False)
    except ValueError:
        return False
    return True


def test_halves_of_surrogate_pairs():
    """They are `?`, one for each, also where the cache of keys knows the text, and bytes that are not UTF-8 stay replaced."""
    row = rb'{"\ud83d\udc4d":1,"\ud83d":"\udc4d\ud83d","?":"\ud83d\ud83d\udc4d","\udc4d":{"\udc4d":1}}'
    found = parsed([row, row, rb'{"\udc4d":2}', b'{"\xed\xb1\x8d":2}', b'{"\xff\\ud83d\xff":1}'], validate_unicode=False)
    assert found[0] == found[1]
    assert binary.decode_metadata(found[0][0]) == ["\U0001f44d", "?", "?", "?"]
    assert b"\x09??" in found[0][1]
    assert b"\x15?\xf0\x9f\x91\x8d" in found[0][1]
    assert [binary.decode_metadata(one[0]) for one in found[2:]] == [["?"], ["\ufffd"], ["\ufffd?\ufffd"]]
    assert binary.parse_json(pa.array([r'["\ud83d"]']), validate_unicode=False)[0].as_py()["value"].endswith(b"\x05?")
    with pytest.raises(InvalidJsonError, match="without the other half"):
        binary.parse_json(pa.array([r'["\ud83d"]']))


NAMED = [
    *((text, "NaN") for text in ("NaN", "[NaN]", '{"a":nan}', "-NaN", "[1,-nan]")),
    *((text, "Infinity") for text in ("Infinity", "[-Infinity]", '{"a":+Infinity}'[:5] + "inf}", "[-inf]")),
    *(('{"é":1}'.encode(code), "UTF-16 or UTF-32") for code in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be")),
    *(
        ("\ufeff{}", "byte order mark"),
        ("1 2", None),
        ("nul", "true, false or null"),
        ("-", "the text ends"),
        ("-i", "a digit"),
    ),
    *(("n", "true, false or null"), ('"\0"', "control character"), ("\0", "a value is expected")),
]


@pytest.mark.parametrize(("text", "reason"), NAMED, ids=[ascii(text) for text, _ in NAMED])
def test_what_json_lacks_is_named(text, reason):
    """NaN, Infinity, other encodings and byte order marks are named; what only resembles them is not."""
    (found,) = parsed([text])
    assert isinstance(found, tuple) if reason is None else reason in found


DOCUMENTS = length("PARSE_JSON_DOCUMENTS", 20, 80)
"""How many documents are in one query at most."""


@pytest.mark.spark
@settings(max_examples=length("PARSE_JSON", 3, 400), suppress_health_check=list(HealthCheck))
@given(st.lists(JSON, min_size=DOCUMENTS // 2, max_size=DOCUMENTS), st.integers(0, 2**32), st.booleans())
def test_generated_texts_as_spark(spark, documents, seed, allow_duplicate_keys):
    """Generated texts, in many renderings, and what mutations make of them: Spark accepts the same, with its bytes (E6)."""
    rng = random.Random(seed)
    documents = [*documents, *(wide(seed + n, document) for n, document in enumerate(documents[:8]))]
    texts = [encoded(rendered(document, rng)) for document in documents]
    broken = [mutated(text, rng) for text in texts for _ in range(3)]
    assert assert_as_spark(spark, texts) == len(texts)
    assert_as_spark(spark, broken, allow_duplicate_keys=allow_duplicate_keys)


class Guarded(module._Binaries):
    """A binary array with bytes behind its room that nothing may write to."""

    def reserve(self, room):
        self.memory = np.full(self.size + room + (1 << 20), 0xA5, np.uint8)
        self.data = self.memory[: self.size + room]


def test_the_working_space_has_room_for_open_arrays(monkeypatch):
    """An open array takes an entry of the pending fields for one byte of text, and nothing is written behind them."""
    kernel, guards = module.k.parse_rows, []

    def guarded(data, at, limit, *arguments):
        position = next(i for i, argument in enumerate(arguments) if isinstance(argument, module.Work))
        room = len(arguments[position].fields)
        memory = np.full(room + 4096, 0x5A5A, np.int64)
        guards.append(memory[room:])
        work = arguments[position]._replace(fields=memory[:room])
        return kernel(data, at, limit, *arguments[:position], work, *arguments[position + 1 :])

    monkeypatch.setattr(module.k, "parse_rows", guarded)
    for text in ("[" * 1000, "[" * 999 + '{"a":', '[{"a":' * 499, "[[1,2," * 300):
        assert binary.parse_json(pa.array([text]), errors="null").null_count == 1
    assert len(guards) == 4
    assert all((guard == 0x5A5A).all() for guard in guards)


SMALL = [
    "[[1]]",
    '[{"a":[[],[[2]]]}]',
    "[" * 500 + "7" + "]" * 500,
    '[{},[],{"a":{"b":[]}}]',
    '["\\n\\u00e9\\\\"]',
    '"' + "\\t" * 70 + '"',
    "[" + "1e1," * 5000 + '"\\ud83d\\ude00\\n"]',
    json.dumps({f"{k}": {} for k in range(300)}),
]


@pytest.mark.parametrize("small", SMALL)
def test_nothing_is_written_outside_the_buffer(small):
    """A text of few bytes takes little room, although containers in the same place had headers of many bytes before."""
    large = "[" + ",".join(["[" + ",".join(["1"] * 70_000) + "]", '{"a":[' + "[],[[2]]," * 40_000 + "1]}"]) + "]"
    parser = module.Parser()
    parser.add(*module.texts_of(pa.array([large, "[" * 500 + ",".join(["1"] * 70_000) + "]" * 500])))
    parser.value = guarded = Guarded()
    parser.add(*module.texts_of(pa.array([small])))
    assert (guarded.memory[len(guarded.data) :] == 0xA5).all()
    found = guarded.data[: guarded.size].tobytes()
    assert found == binary.parse_json(pa.array([small]))[0].as_py()["value"]


@pytest.mark.parametrize("size", [1, 7, 8, 31, 32, 33, 200])
def test_nothing_is_written_outside_the_caches(size):
    """Keys and metadata that do not fit into the caches any more are not written behind them."""
    memory = np.full(2 * 8192, 0xA5, np.uint8)
    parser = module.Parser()
    parser.names = parser.names._replace(text=memory[:4096])
    parser.metas = parser.metas._replace(bytes=memory[8192:-4096])
    texts = pa.array([f'{{"{f"{row:x}".rjust(size, "k")}":0,"{f"{row + 1:x}".rjust(size, "k")}":0}}' for row in range(600)])
    parser.add(*module.texts_of(texts))
    assert (memory[4096:8192] == 0xA5).all()
    assert (memory[-4096:] == 0xA5).all()
    assert (memory[:4096] != 0xA5).any()
    assert parser.finish()[0].to_pylist() == binary.parse_json(texts, errors="null").to_pylist()


def test_the_end_of_the_buffer():
    """The last texts of a buffer without spare bytes are parsed as all others, wherever they start, NULLs among them."""
    texts = ['{"a":[1,{"b":"x"}]}', None, '"' + "y" * 63 + '"', "12", None, "[true]", '"\\n"', ""]
    expected = parsed(texts)
    for first in range(len(texts)):
        for last in range(first, len(texts)):
            data = "".join(text or "" for text in texts[: last + 1]).encode()
            ends = np.cumsum([0] + [len(text or "") for text in texts[: last + 1]]).astype(np.int32)
            valid = pa.array([text is not None for text in texts[: last + 1]]).buffers()[1]
            column = pa.Array.from_buffers(pa.binary(), last + 1, [valid, pa.py_buffer(ends), pa.py_buffer(data)])[first:]
            array, faults = parse_texts(column)
            rows = [None if row is None else (row["metadata"], row["value"]) for row in array.to_pylist()]
            for row, code in zip(faults.row, faults.code, strict=True):
                rows[row] = FAULTS[int(code)]
            assert rows == expected[first : last + 1]


def test_characters_at_every_offset():
    """Characters and what is not UTF-8 are told apart wherever they are in a scan: at its end, across two, before the quote."""
    second = (0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0)
    parts = [
        bytes([lead, byte]) for lead in (0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5) for byte in second
    ]
    parts = [part + b"\x80" * more for part in parts for more in range(4)]
    texts = [b"x" * at + part + tail for at in (0, 27, 28, 29, 30, 31, 32, 61) for part in parts for tail in (b"", b"z")]
    for text, found in zip(texts, parsed([b'"' + text + b'"' for text in texts]), strict=True):
        assert binary.decode(*found) == java_decoded(text)


def java_decoded(text):
    """A text as Java decodes it: like Python, but with one U+FFFD for a surrogate of three bytes, or its first two."""
    return re.sub(rb"\xed[\xa0-\xbf][\x80-\xbf]?", "\ufffd".encode(), text).decode(errors="replace")


def test_escapes_at_every_offset():
    """Escapes are found wherever they are in a scan: at its end, across two, one after another, before the quote."""
    escapes = [("\\n", "\n"), ("\\\\", "\\"), ('\\"', '"'), ("\\u00e9", "é"), ("\\ud83d\\ude00", "\U0001f600"), ("é", "é")]
    rng = random.Random(1)
    for at in range(70):
        for _ in range(20):
            chosen = [rng.choice([*escapes, ("x" * (k := rng.randrange(34)), "x" * k)]) for _ in range(rng.randrange(1, 8))]
            text = "x" * at + "".join(escaped for escaped, _ in chosen)
            assert value_of(f'["{text}"]') == ["x" * at + "".join(plain for _, plain in chosen)]
