"""VariantEncoding: unshredded columns of every primitive, width and form, and of bytes that the encoding does not allow.

In: metadata and value. Out: the same bytes, and what they mean. Invariant: malformed bytes are a column of
their own.
"""

from __future__ import annotations

from itertools import product

import pyarrow as pa

from protocol.vectors.vector import MALFORMED, Row, Vector, h, row, variant

METADATA, TYPES, OBJECT, ARRAY = (
    f"VariantEncoding, {section}"
    for section in ("Metadata encoding", "Encoding types", "Value Data for Object", "Value Data for Array")
)
UNIQUE = "VariantEncoding, Field ID order and uniqueness"
M, A = "01 00 00", "01 01 00 01 'a'"
MIXED = "11 02 00 03 07 ef bf a5 f0 9f 98 80"  # U+FFE5, U+1F600
A_B, C_B_A = "11 02 00 01 02 'ab'", "01 03 00 01 02 03 'cba'"


def valid(name: str, source: str, why: str, rows: list[Row], compare: str = "bytes") -> Vector:
    """A column that comes back as it is, or with the same values."""
    stored = [None if one is None else {"metadata": h(one[0]), "value": h(one[1])} for one in rows]
    return Vector(name, source, why, pa.array(stored, variant(None)), rows, compare=compare)


def malformed(name: str, source: str, why: str, metadata: str, value: str) -> Vector:
    """A column of one Variant that is none."""
    return Vector(f"malformed-{name}", source, why, pa.array([row(metadata, value)], variant(None)), error=MALFORMED)


def number(value: int, width: int) -> str:
    return value.to_bytes(width, "little").hex()


PRIMITIVES = [
    ("00", "null"), ("04", "true"), ("08", "false"),
    ("0c 80", "-128"), ("0c 7f", "127"), ("10 00 80", "-32768"), ("10 ff 7f", "32767"),
    ("14 00 00 00 80", "-2147483648"), ("14 ff ff ff 7f", "2147483647"),
    ("18 00 00 00 00 00 00 00 80", "-9223372036854775808"), ("18 ff ff ff ff ff ff ff 7f", "9223372036854775807"),
    ("1c 9a 99 99 99 99 99 b9 3f", "0.1"), ("1c 00 00 00 00 00 00 f8 7f", '"NaN"'), ("1c 00 00 00 00 00 00 00 80", "-0.0"),
    ("20 02 ff c9 9a 3b", "9999999.99"), ("20 00 01 36 65 c4", "-999999999"), ("20 09 01 00 00 00", "0.000000001"),
    ("24 09 ff ff 63 a7 b3 b6 e0 0d", "999999999.999999999"), ("24 12 01 00 9c 58 4c 49 1f f2", "-0.999999999999999999"),
    ("28 00 ff ff ff ff 3f 22 8a 09 7a c4 86 5a a8 4c 3b 4b", "9" * 38),
    ("28 26 01 00 00 00 c0 dd 75 f6 85 3b 79 a5 57 b3 c4 b4", "-0." + "9" * 38),
    ("28 02 96" + "00" * 15, "1.5"),
    ("2c 34 4e 00 00", '"2024-10-24"'), ("2c c6 06 f5 ff", '"0001-01-01"'), ("2c a0 c0 2c 00", '"9999-12-31"'),
    ("30 a8 60 c1 13 3d 25 06 00", '"2024-10-24 18:21:54.937+00:00"'),
    ("30 ff ff ff ff ff ff ff ff", '"1969-12-31 23:59:59.999999+00:00"'),
    ("34 a8 60 c1 13 3d 25 06 00", '"2024-10-24 18:21:54.937"'), ("34 ff ff ff ff ff ff ff ff", '"1969-12-31 23:59:59.999999"'),
    ("38 00 00 c0 3f", "1.5"), ("38 00 00 80 7f", '"Infinity"'),
    ("3c 00 00 00 00", '""'), ("3c 02 00 00 00 00 ff", '"AP8="'),
    ("40 00 00 00 00", '""'), ("40 05 00 00 00 'hello'", '"hello"'),
]  # fmt: skip
NEWER = [
    ("44 ff 5f d7 1d 14 00 00 00", '"23:59:59.999999"'),
    ("48 80 72 63 2b 95 76 01 18", '"2024-10-24 18:21:54.937123456+00:00"'),
    ("4c 80 72 63 2b 95 76 01 18", '"2024-10-24 18:21:54.937123456"'),
    ("50 00112233445566778899aabbccddeeff", '"00112233-4455-6677-8899-aabbccddeeff"'),
]

VALID = [
    valid("primitives", TYPES, "The primitives of the first edition, ids 0 to 16, extremes among them.",
          [(M, *p) for p in PRIMITIVES]),
    valid("newer-primitives", TYPES, "Time, timestamps in nanoseconds and UUID, ids 17 to 20.", [(M, *p) for p in NEWER]),
    valid("decimals-of-any-scale", TYPES, "A scale may go to 38 whatever the width.",
          [(M, "20 26 01 00 00 00", "1e-38"), (M, "24 26 01 00 00 00 00 00 00 00", "1e-38"),
           (M, "20 0a 01 00 00 00", "1e-10")]),
    valid("strings", "VariantEncoding, Value encoding grammar",
          "Short strings to 63 bytes; the long form of any length means the same.",
          [(M, "01", '""'), (M, "15 'hello'", '"hello"'), (M, "09 c3 a9", '"é"'), (M, "11 f0 9f a6 86", '"🦆"'),
           (M, "05 00", '"\\u0000"'),
           (M, "fd" + "78" * 63, f'"{"x" * 63}"'), (M, "40 40 00 00 00" + "78" * 64, f'"{"x" * 64}"')]),
    valid("null-rows", METADATA, "A NULL row is no Variant; a Variant null is one.", [None, (M, "00", "null"), None]),
    valid("empty-dictionaries", METADATA,
          "No names: one offset, of any width; the texts of VariantShredding and Arrow print 01 00, without it.",
          [("01 00 00", "00", "null"), ("01 00", "00", "null"), ("11 00 00", "00", "null"), ("41 00 00 00 00", "00", "null"),
           ("81 00 00 00 00 00 00", "00", "null"), ("c1 00 00 00 00 00 00 00 00", "00", "null")]),
    valid("dictionaries", METADATA, "Sizes and offsets of one to four bytes, sorted or not, with names that nothing uses.",
          [(f"{((width - 1) << 6 | is_sorted << 4 | 1):02x}" + "".join(number(n, width) for n in (2, 0, 1, 2)) + "'ab'",
            "02 01 01 00 01 04", '{"b": true}') for width, is_sorted in product((1, 2, 3, 4), (0, 1))]
          + [(C_B_A, "02 01 00 00 01 04", '{"c": true}'), (C_B_A, "00", "null")]),
    valid("object-widths", OBJECT, "A count of one or four bytes, ids and offsets of one to four.",
          [(A, f"{((is_large << 4 | (ids - 1) << 2 | (offsets - 1)) << 2 | 2):02x}" + number(1, 4 if is_large else 1)
            + number(0, ids) + number(0, offsets) + number(1, offsets) + "04", '{"a": true}')
           for is_large, ids, offsets in product((0, 1), (1, 2, 3, 4), (1, 2, 3, 4))]),
    valid("array-widths", ARRAY, "A count of one or four bytes, offsets of one to four.",
          [(M, f"{((is_large << 2 | (offsets - 1)) << 2 | 3):02x}" + number(2, 4 if is_large else 1)
            + "".join(number(n, offsets) for n in (0, 1, 2)) + "04 08", "[true, false]")
           for is_large, offsets in product((0, 1), (1, 2, 3, 4))]),
    valid("order-of-values", OBJECT, "Fields are ordered by name, their values as they come: the text's c: 3, b: 2, a: 1.",
          [(C_B_A, "02 03 02 01 00 04 02 00 06 0c 03 0c 02 0c 01", '{"a": 1, "b": 2, "c": 3}'),
           (C_B_A, "02 03 02 01 00 00 02 04 06 0c 01 0c 02 0c 03", '{"a": 1, "b": 2, "c": 3}')]),
    valid("order-of-fields", UNIQUE, "Names in the order of UTF-8, as the text asks, and in that of UTF-16, as in Spark.",
          [(MIXED, "02 02 00 01 00 02 04 0c 01 0c 02", '{"\uffe5": 1, "\U0001f600": 2}'),
           (MIXED, "02 02 01 00 02 00 04 0c 01 0c 02", '{"\U0001f600": 2, "\uffe5": 1}')], compare="value"),
    valid("empty-containers", OBJECT, "No fields, no elements: one offset remains.",
          [(M, "02 00 00", "{}"), (M, "03 00 00", "[]"), (M, "03 02 00 03 06 02 00 00 03 00 00", "[{}, []]")]),
    valid("nested", OBJECT, "Containers in containers, the inner ones with ids of the same dictionary.",
          [(A_B, "02 02 00 01 00 06 0f 02 01 01 00 01 00 03 02 00 02 04 0c 01 0c 02", '{"a": {"b": null}, "b": [1, 2]}')]),
]  # fmt: skip

BROKEN = [
    malformed("metadata-empty", METADATA, "No header.", "", "00"),
    malformed("metadata-version", METADATA, "Version 2.", "02 00 00", "00"),
    malformed("metadata-truncated", METADATA, "Two names, offsets for one.", "01 02 00 01", "00"),
    malformed("metadata-size-overflow", METADATA, "More names than bytes.", "c1 ff ff ff ff 00 00 00 00", "00"),
    malformed("metadata-first-offset", METADATA, "The first offset is always 0.", "01 01 01 02 'ab'", "00"),
    malformed("metadata-descending-offsets", METADATA, "A name of negative length.", "01 02 00 02 01 'ab'", "00"),
    malformed("metadata-offset-past-the-end", METADATA, "The last name ends behind the last byte.", "01 01 00 05 'ab'", "00"),
    malformed("metadata-name-not-utf8", METADATA, "Names are UTF-8.", "01 01 00 01 ff", "02 01 00 00 01 00"),
    malformed("value-empty", TYPES, "A Variant takes at least one byte.", M, ""),
    malformed("int64-truncated", TYPES, "Two of eight bytes.", M, "18 01 02"),
    malformed("decimal-truncated", TYPES, "A scale, and no value.", M, "20 02"),
    malformed("decimal-scale", TYPES, "Scales end at 38.", M, "20 27 01 00 00 00"),
    malformed("unknown-primitive", TYPES, "No primitive has the id 21.", M, "54 00 00 00 00"),
    malformed("unknown-primitive-63", TYPES, "No primitive has the id 63.", M, "fc"),
    malformed("short-string-truncated", TYPES, "Five bytes announced, two there.", M, "15 'he'"),
    malformed("string-truncated", TYPES, "A length beyond the value.", M, "40 06 00 00 00 'hello'"),
    malformed("string-overflow", TYPES, "A length that does not fit 31 bits.", M, "40 ff ff ff ff 'hello'"),
    malformed("binary-truncated", TYPES, "A length of which three bytes are there.", M, "3c 01 00 00"),
    malformed("string-not-utf8", TYPES, "A slash in two bytes: UTF-8 has no overlong forms.", M, "09 c0 af"),
    malformed("string-of-a-surrogate", TYPES, "Half of a surrogate pair: UTF-8 has none.", M, "0d ed a0 80"),
    malformed("object-truncated", OBJECT, "A header, and no count.", A, "02"),
    malformed("object-without-offsets", OBJECT, "One field without its offsets.", A, "02 01 00"),
    malformed("object-count-overflow", OBJECT, "More fields than bytes.", A, "42 ff ff ff ff 00 00 00"),
    malformed("object-field-id", OBJECT, "A field id outside the dictionary.", A, "02 01 01 00 01 00"),
    malformed("object-field-offset", OBJECT, "A field that starts behind the last one's end.", A, "02 01 00 05 01 00"),
    malformed("object-end", OBJECT, "The last offset is behind the last byte.", A, "02 01 00 00 09 00"),
    malformed("object-same-field-twice", UNIQUE, "One id twice.", A, "02 02 00 00 00 01 02 04 08"),
    malformed("object-same-name-twice", UNIQUE, "One name twice, by two ids.",
              "01 02 00 01 02 'aa'", "02 02 00 01 00 01 02 04 08"),
    malformed("array-count-overflow", ARRAY, "More elements than bytes.", M, "13 ff ff ff ff 00 00"),
    malformed("array-element-offset", ARRAY, "An element that starts behind the array's end.", M, "03 01 07 01 00"),
    malformed("array-end", ARRAY, "The last offset is behind the last byte.", M, "03 01 00 09 00"),
    malformed("array-element-truncated", ARRAY, "An element longer than the array.", M, "03 01 00 02 18 01"),
    malformed("deep-inside", ARRAY, "An unknown primitive, four levels down.", A,
              "03 01 00 0f 02 01 00 00 0a 03 01 00 06 02 01 00 00 01 54"),
]  # fmt: skip

VECTORS = [*VALID, *BROKEN]
