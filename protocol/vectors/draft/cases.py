"""The draft of VariantShredding: `variant_value` and `typed_value`, objects by option 1, option 2, or as `object` and `array`.

In: rows as that draft stores them; no file carries a logical type. Out: the Variant, or an error. Where the draft says "fail or
return the `variant_value`", the error comes first and the rows are `otherwise`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from protocol.vectors.shredding.cases import EVENT_ROWS, KEYS, LOGIN_TS, NO_KEYS, TAG_ROWS
from protocol.vectors.shredding.objects import NESTED_ROWS, PLACES
from protocol.vectors.vector import LAYOUT, Row, Shredded, Vector, elements, group, h, i64, required, typed, variant

DRAFT = "Variant Shredding, draft"
VALUE = "variant_value"
TS = pa.timestamp("us", "UTC")
STRING, INT64, DOUBLE = (group(kind, name=VALUE) for kind in (pa.string(), pa.int64(), pa.float64()))
MEASUREMENT = variant(pa.int64(), name=VALUE)
TAGS = elements(STRING)
EVENT_1 = required(event_type=STRING, event_ts=group(TS, name=VALUE))
EVENT_2 = pa.struct([("event_type", pa.string()), ("event_ts", TS)])
LOCATION = pa.struct([("latitude", pa.float64()), ("longitude", pa.float64())])
NULL = (KEYS, "00", "null")

LOGOUT = (KEYS, f"02 02 03 04 00 09 10 {LOGIN_TS} 19 'logout'",
          '{"event_ts": "1970-01-21 00:29:55.057774+00:00", "event_type": "logout"}')  # fmt: skip

MISSING: Shredded = {VALUE: None, "typed_value": None}


def plain(value: str, typed: Any = None) -> Shredded:
    return {VALUE: h(value), "typed_value": typed}


def row(metadata: str, value: str | None = None, typed: Any = None, **others: Any) -> Shredded:
    return {"metadata": h(metadata), VALUE: None if value is None else h(value), "typed_value": typed, **others}


def draft(name: str, section: str, why: str, column: pa.Array, rows: list[Row] | None = None, **settings: Any) -> Vector:
    return Vector(name, f"{DRAFT}, {section}", why, column, rows, variant=False, **settings)


SCALARS = [
    draft("measurement", "Value Shredding", "The text's long column: typed, null, another type, missing, no row.",
          pa.array([row(NO_KEYS, None, 34), row(NO_KEYS, "00"), row(NO_KEYS, "0d 'n/a'"), row(NO_KEYS), None], MEASUREMENT),
          [(NO_KEYS, i64(34), "34"), (NO_KEYS, "00", "null"), (NO_KEYS, "0d 'n/a'", '"n/a"'), (NO_KEYS, "00", "null"), None]),
    draft("scalar-in-both-fields", "Value Shredding", "Both fields set, neither an object: fail, or return the variant_value.",
          pa.array([row(NO_KEYS, "0d 'n/a'", 34)], MEASUREMENT), error=LAYOUT, otherwise=[(NO_KEYS, "0d 'n/a'", '"n/a"')]),
    draft("tags", "Arrays", "The table of tags, as the draft stores it; the last row's missing element is a Variant null.",
          pa.array([row(NO_KEYS, None, [typed("comedy"), typed("drama")]), row(NO_KEYS, None, [typed("horror"), plain("00")]),
                    row(NO_KEYS, "00"), row(NO_KEYS, None, [typed("horror"), MISSING])], variant(TAGS, name=VALUE)),
          [*TAG_ROWS[:2], TAG_ROWS[3], TAG_ROWS[1]]),
    draft("underscore-field", "Backward and forward compatibility", "A field that begins with an underscore can be ignored.",
          pa.array([row(NO_KEYS, None, 34, _spark_x=1)], pa.struct([*MEASUREMENT, ("_spark_x", pa.int64())])),
          [(NO_KEYS, i64(34), "34")]),
    draft("unknown-field", "Backward and forward compatibility", "Any other field is backwards incompatible: fail.",
          pa.array([row(NO_KEYS, None, 34, x=1)], pa.struct([*MEASUREMENT, ("x", pa.int64())])), error=LAYOUT),
    draft("unknown-field-inside", "Backward and forward compatibility", "The same in a field's group.",
          pa.array([row(KEYS, None, {"event_type": typed("noop") | {"x": 1}})],
                   variant(required(event_type=pa.struct([*STRING, ("x", pa.int64())])), name=VALUE)), error=LAYOUT),
    draft("refused-uint8", "Shredded Value Types", "A type that no Variant has.",
          pa.array([row(NO_KEYS, None, 1)], variant(pa.uint8(), name=VALUE)), error=LAYOUT),
]  # fmt: skip

OPTION_1 = [
    draft("events-1", "Objects (Option 1)", "The final text's table of events, by option 1.",
          pa.array([
              row(KEYS, None, {"event_type": typed("noop"), "event_ts": typed(1729794114937)}),
              row(KEYS, "02 01 01 00 11 41 'user@example.com'",
                  {"event_type": typed("login"), "event_ts": typed(1729794146402)}),
              row(KEYS, "02 01 02 00 0f 39 'malformed: ...'", {"event_type": MISSING, "event_ts": MISSING}),
              row(KEYS, "61 'malformed: not an object'"),
              row(KEYS, "02 01 00 00 08 1d '_button'", {"event_type": MISSING, "event_ts": typed(1729794240241)}),
              row(KEYS, None, {"event_type": plain("00"), "event_ts": typed(1729794954163)}),
              row(KEYS, None, {"event_type": typed("noop"), "event_ts": plain("29 '2024-10-24'")}),
              row(KEYS, None, {"event_type": MISSING, "event_ts": MISSING}),
              row(KEYS, "00"),
              row(KEYS),
          ], variant(EVENT_1, name=VALUE)), [*EVENT_ROWS, NULL]),
    draft("field-in-both-1", "Objects (Option 1)", "A shredded field in variant_value too: fail, or use that one.",
          pa.array([row(KEYS, "02 01 04 00 07 19 'logout'", {"event_type": typed("login"), "event_ts": typed(1729795057774)})],
                   variant(EVENT_1, name=VALUE)), error=LAYOUT, otherwise=[LOGOUT]),
    draft("field-in-value-1", "Objects (Option 1)", "The same where the field's own columns are null: fail, or use it.",
          pa.array([row(KEYS, "02 01 04 00 07 19 'logout'", {"event_type": MISSING, "event_ts": typed(1729795057774)})],
                   variant(EVENT_1, name=VALUE)), [LOGOUT], otherwise="error"),
    draft("not-an-object-1", "Reconstructing a Variant", "typed_value is an object and variant_value is none: it must be.",
          pa.array([row(KEYS, "05 'a'", {"event_type": MISSING, "event_ts": MISSING})], variant(EVENT_1, name=VALUE)),
          error=LAYOUT, otherwise=[(KEYS, "05 'a'", '"a"')]),
    draft("nesting-1", "Nesting", "The first schema of the text: groups all the way down.",
          pa.array([
              row(PLACES, None, {"event_type": typed("login"), "event_ts": typed(1729794114937),
                                 "location": typed({"latitude": typed(5.5), "longitude": typed(1.5)}),
                                 "tags": typed([typed("foo"), typed("bar"), typed("baz")])}),
              row(PLACES, None, {"event_type": plain("00"), "event_ts": MISSING, "tags": plain("0d 'foo'"),
                                 "location": plain("02 01 05 00 01 04", {"latitude": typed(5.5), "longitude": MISSING})}),
              row(PLACES, "0d 'foo'"),
          ], variant(required(event_type=STRING, event_ts=group(TS, name=VALUE), tags=group(TAGS, name=VALUE),
                              location=group(required(latitude=DOUBLE, longitude=DOUBLE), name=VALUE)), name=VALUE)),
          [*NESTED_ROWS[:2], NESTED_ROWS[5]]),
]  # fmt: skip

OPTION_2 = [
    draft("events-2", "Objects (Option 2)",
          "The same events by option 2: a field that its column cannot hold, a null among them, is in variant_value.",
          pa.array([
              row(KEYS, None, {"event_type": "noop", "event_ts": 1729794114937}),
              row(KEYS, "02 01 01 00 11 41 'user@example.com'", {"event_type": "login", "event_ts": 1729794146402}),
              row(KEYS, "02 01 02 00 0f 39 'malformed: ...'", {"event_type": None, "event_ts": None}),
              row(KEYS, "61 'malformed: not an object'"),
              row(KEYS, "02 01 00 00 08 1d '_button'", {"event_type": None, "event_ts": 1729794240241}),
              row(KEYS, "02 01 04 00 01 00", {"event_type": None, "event_ts": 1729794954163}),
              row(KEYS, "02 01 03 00 0b 29 '2024-10-24'", {"event_type": "noop", "event_ts": None}),
              row(KEYS, None, {"event_type": None, "event_ts": None}),
              row(KEYS, "00"),
              row(KEYS),
          ], variant(EVENT_2, name=VALUE)), [*EVENT_ROWS, NULL]),
    draft("field-in-both-2", "Objects (Option 2)", "A field in variant_value and in its column: fail, or use the former.",
          pa.array([row(KEYS, "02 01 04 00 07 19 'logout'", {"event_type": "login", "event_ts": 1729795057774})],
                   variant(EVENT_2, name=VALUE)), error=LAYOUT, otherwise=[LOGOUT]),
    draft("nesting-2", "Nesting", "The second schema of the text: bare columns, and groups for the elements of tags.",
          pa.array([
              row(PLACES, None, {"event_type": "login", "event_ts": 1729794114937,
                                 "location": {"latitude": 5.5, "longitude": 1.5},
                                 "tags": [typed("foo"), typed("bar"), typed("baz")]}),
              row(PLACES, "02 02 01 05 00 01 05 00 0d 'foo'", {}),
              row(PLACES, None, {"location": {}, "tags": []}),
              row(PLACES, "0d 'foo'"),
          ], variant(pa.struct([("event_type", pa.string()), ("event_ts", TS), ("tags", TAGS),
                                ("location", LOCATION)]), name=VALUE)),
          [NESTED_ROWS[0], (PLACES, "02 02 01 05 00 01 05 00 0d 'foo'", '{"event_type": null, "tags": "foo"}'), NESTED_ROWS[2],
           NESTED_ROWS[5]]),
]  # fmt: skip

ABCD = "11 04 00 01 02 03 04 'abcd'"
HELLO = "02 01 02 00 06 15 'hello'"
ONE_TWO, THREE_FOUR = (f"02 02 00 01 00 02 09 0c {a} 02 01 02 00 02 0c {c}" for a, c in (("01", "02"), ("03", "04")))
ARRAY = f"03 02 00 10 20 {ONE_TWO} {THREE_FOUR}"
TABLE_ROWS: list[Row] = [
    (ABCD, f"02 02 00 01 00 09 14 {i64(123)} {HELLO}", '{"a": 123, "b": {"c": "hello"}}'),
    (ABCD, "02 02 00 01 00 06 0f 20 02 7b 00 00 00 02 01 02 00 04 0d '123'", '{"a": 1.23, "b": {"c": "123"}}'),
    (ABCD, f"02 02 00 01 00 09 0f {i64(123)} 02 01 02 00 01 00", '{"a": 123, "b": {"c": null}}'),
    (ABCD, f"02 02 00 01 00 09 0c {i64(123)} 02 00 00", '{"a": 123, "b": {}}'),
    (ABCD, f"02 02 00 03 00 09 0c {i64(123)} 10 c8 01", '{"a": 123, "d": 456}'),
    (ABCD, ARRAY, '[{"a": 1, "b": {"c": 2}}, {"a": 3, "b": {"c": 4}}]'),
]


def table(typed_object: str) -> list[Shredded]:
    """The rows of the text's table, objects in the field of this name."""

    def thing(fields: Any, value: str | None = None) -> Shredded:
        return {VALUE: None if value is None else h(value), typed_object: fields}

    def whole(a: Shredded, b: Shredded, value: str | None = None) -> Shredded:
        return {"metadata": h(ABCD), **thing({"a": a, "b": b}, value)}

    return [
        whole(typed(123), thing({"c": typed("hello")})),
        whole(plain("20 02 7b 00 00 00"), thing({"c": typed("123")})),
        whole(typed(123), thing({"c": plain("00")})),
        whole(typed(123), thing({"c": MISSING})),
        whole(typed(123), thing(None), "02 01 03 00 03 10 c8 01"),
        {"metadata": h(ABCD), **thing(None, ARRAY)},
    ]


def objects(name: str, **fields: pa.DataType) -> pa.StructType:
    """A group whose object is in the field of this name."""
    return pa.struct([(VALUE, pa.binary()), (name, required(**fields))])


def metadata_and(kind: pa.StructType) -> pa.StructType:
    return pa.struct([pa.field("metadata", pa.binary(), False), *kind])


def listed(of: pa.DataType) -> pa.StructType:
    """A group whose array is in a field of this name, elements optional as the text has them."""
    return pa.struct([(VALUE, pa.binary()), ("array", elements(of, nullable=True))])


A, B = f"03 03 00 09 12 1b {i64(1)} {i64(2)} {i64(3)}", f"03 03 00 09 12 1b {i64(4)} {i64(5)} {i64(6)}"
ABC = "11 03 00 01 02 03 'abc'"
FIRST, SECOND = f"02 02 00 01 00 21 2a {A} {i64(100)}", f"02 02 00 01 00 21 2a {B} {i64(200)}"
EXTRA = f"02 03 00 01 02 00 21 2a 35 {A} {i64(100)} 29 'unexpected'"
NESTED_ARRAYS: list[Row] = [
    (ABC, f"03 02 00 31 62 {FIRST} {SECOND}", '[{"a": [1, 2, 3], "b": 100}, {"a": [4, 5, 6], "b": 200}]'),
    (ABC, f"03 03 00 3e 6f 7d {EXTRA} {SECOND} 35 'not an object'",
     '[{"a": [1, 2, 3], "b": 100, "c": "unexpected"}, {"a": [4, 5, 6], "b": 200}, "not an object"]'),
    (ABC, f"03 01 00 1a 02 01 00 00 15 03 03 00 02 06 0f 0c 01 0d 'two' {i64(3)}", '[{"a": [1, "two", 3]}]'),
    (ABC, "02 00 00", "{}"),
]  # fmt: skip


def nested_arrays(value: str, of: Any = h) -> list[Shredded]:
    """The text's two arrays, one with elements of several types, and an object. value: the name of the untyped field;
    of: how it holds Variants."""

    def thing(a: list[Any], b: Any, rest: str | None = None) -> Shredded:
        numbers = [{"typed_value": one} if isinstance(one, int) else {value: of(one)} for one in a]
        fields = {"a": {"array": numbers}, "b": None if b is None else {"typed_value": b}}
        return {value: None if rest is None else of(rest), "object": fields}

    return [
        {"array": [thing([1, 2, 3], 100), thing([4, 5, 6], 200)]},
        {
            "array": [
                thing([1, 2, 3], 100, "02 01 02 00 0b 29 'unexpected'"),
                thing([4, 5, 6], 200),
                {value: of("35 'not an object'")},
            ]
        },
        {"array": [thing(["0c 01", "0d 'two'", 3], None)]},
        {value: of("02 00 00")},
    ]


INNER = pa.struct([("object", pa.struct([("a", listed(INT64)), ("b", INT64)])), (VALUE, pa.binary())])
OBJECTS_AND_ARRAYS = [
    draft("table", "Nesting", "The text's table with objects in typed_value.",
          pa.array(table("typed_value"), metadata_and(objects("typed_value", a=INT64, b=objects("typed_value", c=STRING)))),
          TABLE_ROWS),
    draft("table-of-object", "Nesting", "The same with objects in object, as the heads of its columns have it.",
          pa.array(table("object"), metadata_and(objects("object", a=INT64, b=objects("object", c=STRING)))), TABLE_ROWS),
    draft("nested-arrays", "Nested Parquet Example", "The text's arrays of objects of arrays, in array and object.",
          pa.array([{"metadata": h(ABC)} | one for one in nested_arrays(VALUE)], metadata_and(listed(INNER))), NESTED_ARRAYS),
]  # fmt: skip

VECTORS = [*SCALARS, *OPTION_1, *OPTION_2, *OBJECTS_AND_ARRAYS]
