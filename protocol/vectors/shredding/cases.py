"""VariantShredding: the tables of the text, row for row, and what the text says beside them.

In: rows as they are stored. Out: what a reader must return, or refuse. Invariant: reassembled objects and arrays are in their
smallest form, an object's fields and their values in the order of the names' UTF-8 bytes.
"""

from __future__ import annotations

import pyarrow as pa

from protocol.vectors.shredding import objects
from protocol.vectors.vector import (
    LAYOUT,
    MALFORMED,
    MISSING,
    Vector,
    binary,
    elements,
    group,
    h,
    i64,
    required,
    row,
    typed,
    variant,
)

VALUES, ARRAYS, OBJECTS = (f"VariantShredding, {section}" for section in ("Value Shredding", "Arrays", "Objects"))
NO_KEYS = "01 00"  # as the text prints it, without the one offset of an empty dictionary
TS = pa.timestamp("us", "UTC")
STRING, INT64 = group(pa.string()), group(pa.int64())

MEASUREMENT = variant(pa.int64())
TAGS = variant(elements(STRING))

MEASUREMENTS = [
    Vector(
        "measurement", VALUES,
        "The series 34, null, n/a, 100 in a required group. The text prints 13 6E 2F 61 for n/a; 0x13 is an array, 0x0d a "
        "short string of three bytes.",
        pa.array([row(NO_KEYS, None, 34), row(NO_KEYS, "00"), row(NO_KEYS, "0d 'n/a'"), row(NO_KEYS, None, 100)], MEASUREMENT),
        [(NO_KEYS, i64(34), "34"), (NO_KEYS, "00", "null"), (NO_KEYS, "0d 'n/a'", '"n/a"'), (NO_KEYS, i64(100), "100")],
        required=True,
    ),
    Vector(
        "measurement-as-printed", VALUES,
        "The same n/a with the byte that the text prints, 0x13: an array with a four-byte count, cut off.",
        pa.array([row(NO_KEYS, "13 6e 2f 61")], MEASUREMENT), error=MALFORMED, required=True,
    ),
    Vector(
        "missing-at-the-top", VALUES, "Both fields null where a value is required: Variant null.",
        pa.array([row(NO_KEYS), row(NO_KEYS, None, 1)], MEASUREMENT),
        [(NO_KEYS, "00", "null"), (NO_KEYS, i64(1), "1")], required=True,
    ),
    Vector(
        "null-column", VALUES, "An optional group that is null is no Variant at all, unlike a Variant null.",
        pa.array([None, row(NO_KEYS, "00"), row(NO_KEYS, None, 1)], MEASUREMENT),
        [None, (NO_KEYS, "00", "null"), (NO_KEYS, i64(1), "1")],
    ),
    Vector(
        "scalar-in-both-fields", VALUES, "Both fields set, and typed_value is no object: engines should fail.",
        pa.array([row(NO_KEYS, "0d 'n/a'", 34)], MEASUREMENT), error=LAYOUT, otherwise=[(NO_KEYS, i64(34), "34")],
    ),
    Vector(
        "null-and-scalar", VALUES, "A Variant null beside a typed_value is a value too: both fields are set.",
        pa.array([row(NO_KEYS, "00", 34)], MEASUREMENT), error=LAYOUT, otherwise=[(NO_KEYS, i64(34), "34")],
    ),
    Vector(
        "value-of-the-shredded-type", VALUES, "value may hold any type, the one of typed_value too, and keeps its own width.",
        pa.array([row(NO_KEYS, "0c 22"), row(NO_KEYS, i64(34))], MEASUREMENT),
        [(NO_KEYS, "0c 22", "34"), (NO_KEYS, i64(34), "34")],
    ),
    Vector(
        "without-value", VALUES, "The group has no value column: every Variant is typed.",
        pa.array([row(NO_KEYS, None, 34), None], variant(pa.int64(), value=False)), [(NO_KEYS, i64(34), "34"), None],
    ),
    Vector(
        "without-typed-value", VALUES, "An unshredded column: metadata and value pass as they are.",
        pa.array([row(NO_KEYS, "0c 22"), None], variant(None)), [(NO_KEYS, "0c 22", "34"), None],
    ),
    Vector(
        "other-order-of-fields", VALUES, "Fields are found by name, not by position.",
        pa.array(
            [row(NO_KEYS, None, 34), row(NO_KEYS, "0d 'n/a'")],
            pa.struct([("typed_value", pa.int64()), ("value", pa.binary()), pa.field("metadata", pa.binary(), False)]),
        ),
        [(NO_KEYS, i64(34), "34"), (NO_KEYS, "0d 'n/a'", '"n/a"')],
    ),
    Vector(
        "without-metadata", VALUES, "metadata is required.",
        pa.array([{"value": h("00")}], pa.struct([("value", pa.binary()), ("typed_value", pa.int64())])),
        error=LAYOUT,
    ),
    Vector(
        "null-metadata", VALUES, "metadata is required: a row without it has no Variant.",
        pa.array([{"metadata": None, "value": None, "typed_value": 1}],
                 pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.int64())])),
        error=MALFORMED,
    ),
    Vector(
        "unknown-field", VALUES, "A field that is none of the three has no meaning.",
        pa.array([row(NO_KEYS, None, 1) | {"extra": 1}], pa.struct([*MEASUREMENT, ("extra", pa.int64())])), error=LAYOUT,
    ),
    Vector(
        "underscore-field", VALUES,
        "A field that begins with an underscore may be ignored: the older texts say so, this one is silent.",
        pa.array([row(NO_KEYS, None, 1) | {"_extra": 1}], pa.struct([*MEASUREMENT, ("_extra", pa.int64())])),
        [(NO_KEYS, i64(1), "1")], otherwise="error",
    ),
]  # fmt: skip

HORROR = "03 02 00 07 08 19 'horror' 00"
TAG_ROWS = [
    (NO_KEYS, "03 02 00 07 0d 19 'comedy' 15 'drama'", '["comedy", "drama"]'),
    (NO_KEYS, HORROR, '["horror", null]'),
    (NO_KEYS, "03 03 00 07 0d 15 19 'comedy' 15 'drama' 1d 'romance'", '["comedy", "drama", "romance"]'),
    (NO_KEYS, "00", "null"),
]
TAG_COLUMN = [
    row(NO_KEYS, None, [typed("comedy"), typed("drama")]),
    row(NO_KEYS, None, [typed("horror"), binary("00")]),
    row(NO_KEYS, None, [typed("comedy"), typed("drama"), typed("romance")]),
    row(NO_KEYS, "00"),
]
A_B = "11 02 00 01 02 'ab'"

LISTS = [
    Vector("tags", ARRAYS, "The four rows of the text's table.", pa.array(TAG_COLUMN, TAGS), TAG_ROWS),
    Vector(
        "arrays-and-others", ARRAYS, "An empty array is typed; what is no array is in value; elements of another type too.",
        pa.array([row(NO_KEYS, None, []), row(NO_KEYS, "11 'noop'"), row(NO_KEYS, None, [binary("0c 01"), typed("é")])], TAGS),
        [(NO_KEYS, "03 00 00", "[]"), (NO_KEYS, "11 'noop'", '"noop"'), (NO_KEYS, "03 02 00 02 05 0c 01 09 'é'", '[1, "é"]')],
    ),
    Vector(
        "array-in-both-fields", ARRAYS, "A shredded array must not conflict with value.",
        pa.array([row(NO_KEYS, "03 00 00", [typed("comedy")])], TAGS), error=LAYOUT,
        otherwise=[(NO_KEYS, "03 01 00 07 19 'comedy'", '["comedy"]')],
    ),
    Vector(
        "element-in-both-fields", ARRAYS, "Neither may an element's typed_value with its value.",
        pa.array([row(NO_KEYS, None, [binary("00", "comedy")])], TAGS), error=LAYOUT,
        otherwise=[(NO_KEYS, "03 01 00 07 19 'comedy'", '["comedy"]')],
    ),
    Vector(
        "missing-element", ARRAYS, "An element is required: where both fields are null it is a Variant null.",
        pa.array([row(NO_KEYS, None, [typed("horror"), MISSING])], TAGS), [(NO_KEYS, HORROR, '["horror", null]')],
    ),
    Vector(
        "elements-without-value", ARRAYS, "value may be omitted from the element group.",
        pa.array([row(NO_KEYS, None, [typed("comedy"), typed("drama")])], variant(elements(group(pa.string(), value=False)))),
        TAG_ROWS[:1],
    ),
    Vector(
        "elements-without-typed-value", ARRAYS, "typed_value may be omitted from the element group.",
        pa.array([row(NO_KEYS, None, [binary("19 'horror'"), binary("00")])], variant(elements(group(None)))),
        [(NO_KEYS, HORROR, '["horror", null]')],
    ),
    Vector(
        "elements-of-nothing", ARRAYS, "At least one of the element's two fields must be present.",
        pa.array([row(NO_KEYS, None, [{"_x": 1}])], variant(elements(pa.struct([("_x", pa.int64())])))), error=LAYOUT,
    ),
    Vector(
        "elements-without-a-group", ARRAYS, "The element must be a group.",
        pa.array([row(NO_KEYS, None, ["comedy"])], variant(elements(pa.string()))), error=LAYOUT,
    ),
    Vector(
        "optional-elements", ARRAYS, "The element group must be required; a null one can only be a missing element.",
        pa.array([row(NO_KEYS, None, [typed("horror"), None])], variant(elements(STRING, nullable=True))),
        [(NO_KEYS, HORROR, '["horror", null]')], otherwise="error",
    ),
    Vector(
        "arrays-of-arrays", ARRAYS, "Elements can be shredded as arrays in turn.",
        pa.array([row(NO_KEYS, None, [typed([typed(1), binary("04")]), typed([]), binary("0c 05")])],
                 variant(elements(group(elements(INT64))))),
        [(NO_KEYS, f"03 03 00 0f 12 14 03 02 00 09 0a {i64(1)} 04 03 00 00 0c 05", "[[1, true], [], 5]")],
    ),
    Vector(
        "arrays-of-objects", ARRAYS, "Elements can be shredded as objects, wholly, in part or not at all.",
        pa.array([row(A_B, None, [typed({"a": typed(1)}), binary("02 01 01 00 01 04", {"a": typed(2)}), typed({"a": MISSING}),
                                  binary("00")])],
                 variant(elements(group(required(a=INT64))))),
        [(A_B, f"03 04 00 0e 1f 22 23 02 01 00 00 09 {i64(1)} 02 02 00 01 00 09 0a {i64(2)} 04 02 00 00 00",
          '[{"a": 1}, {"a": 2, "b": true}, {}, null]')],
    ),
    Vector(
        "array-of-256", "VariantEncoding, Value Data for Array", "More than 255 elements: a four-byte count.",
        pa.array([row(NO_KEYS, None, [typed(i - 128) for i in range(256)])], variant(elements(group(pa.int8())))),
        [(NO_KEYS, "17 00 01 00 00" + b"".join((2 * i).to_bytes(2, "little") for i in range(257)).hex()
          + bytes(byte for i in range(256) for byte in (0x0C, i ^ 0x80)).hex(), str(list(range(-128, 128))))],
    ),
]  # fmt: skip

# ids: click 0, email 1, error_msg 2, event_ts 3, event_type 4
KEYS = "11 05 00 05 0a 13 1b 25 'clickemailerror_msgevent_tsevent_type'"
EVENT = required(event_type=STRING, event_ts=group(TS))
LOGIN_TS = "30 6e e8 d1 bf 92 01 00 00"  # 1729795057774
LOGIN = (KEYS, f"02 02 03 04 00 09 0f {LOGIN_TS} 15 'login'",
         '{"event_ts": "1970-01-21 00:29:55.057774+00:00", "event_type": "login"}')  # fmt: skip
LOGIN_FIELDS = {"event_type": typed("login"), "event_ts": typed(1729795057774)}
NO_FIELDS = {"event_type": MISSING, "event_ts": MISSING}

EVENT_COLUMN = [
    row(KEYS, None, {"event_type": typed("noop"), "event_ts": typed(1729794114937)}),
    row(KEYS, "02 01 01 00 11 41 'user@example.com'", {"event_type": typed("login"), "event_ts": typed(1729794146402)}),
    row(KEYS, "02 01 02 00 0f 39 'malformed: ...'", NO_FIELDS),
    row(KEYS, "61 'malformed: not an object'"),
    row(KEYS, "02 01 00 00 08 1d '_button'", {"event_type": MISSING, "event_ts": typed(1729794240241)}),
    row(KEYS, None, {"event_type": binary("00"), "event_ts": typed(1729794954163)}),
    row(KEYS, None, {"event_type": typed("noop"), "event_ts": binary("29 '2024-10-24'")}),
    row(KEYS, None, NO_FIELDS),
    row(KEYS, "00"),
]
EVENT_ROWS = [
    (KEYS, "02 02 03 04 00 09 0e 30 79 85 c3 bf 92 01 00 00 11 'noop'",
     '{"event_ts": "1970-01-21 00:29:54.114937+00:00", "event_type": "noop"}'),
    (KEYS, "02 03 01 03 04 00 11 1a 20 41 'user@example.com' 30 62 00 c4 bf 92 01 00 00 15 'login'",
     '{"email": "user@example.com", "event_ts": "1970-01-21 00:29:54.146402+00:00", "event_type": "login"}'),
    (KEYS, "02 01 02 00 0f 39 'malformed: ...'", '{"error_msg": "malformed: ..."}'),
    (KEYS, "61 'malformed: not an object'", '"malformed: not an object"'),
    (KEYS, "02 02 00 03 00 08 11 1d '_button' 30 f1 6e c5 bf 92 01 00 00",
     '{"click": "_button", "event_ts": "1970-01-21 00:29:54.240241+00:00"}'),
    (KEYS, "02 02 03 04 00 09 0a 30 b3 53 d0 bf 92 01 00 00 00",
     '{"event_ts": "1970-01-21 00:29:54.954163+00:00", "event_type": null}'),
    (KEYS, "02 02 03 04 00 0b 10 29 '2024-10-24' 11 'noop'", '{"event_ts": "2024-10-24", "event_type": "noop"}'),
    (KEYS, "02 00 00", "{}"),
    (KEYS, "00", "null"),
]  # fmt: skip

EVENTS = [
    Vector(
        "events", OBJECTS, "The valid rows of the text's table but the last.",
        pa.array(EVENT_COLUMN, variant(EVENT)), EVENT_ROWS,
    ),
    Vector(
        "event-missing", OBJECTS, "The last valid row of the table: missing at the top, and so Variant null.",
        pa.array([row(KEYS)], variant(EVENT)), [(KEYS, "00", "null")],
    ),
    Vector(
        "invalid-1-field-in-value-too", OBJECTS,
        "INVALID in the table: event_type is shredded and in value. The typed columns count: readers need not look into value.",
        pa.array([row(KEYS, "02 01 04 00 06 15 'login'", LOGIN_FIELDS), row(KEYS, "02 01 04 00 07 19 'logout'", LOGIN_FIELDS)],
                 variant(EVENT)),
        [LOGIN, LOGIN], otherwise="error",
    ),
    Vector(
        "invalid-1-where-missing", OBJECTS,
        "The same where the typed columns say that event_type is missing: so it is, for readers of these columns and for all.",
        pa.array([row(KEYS, "02 01 04 00 06 15 'login'", {"event_type": MISSING, "event_ts": typed(1729795057774)})],
                 variant(EVENT)),
        [(KEYS, f"02 01 03 00 09 {LOGIN_TS}", '{"event_ts": "1970-01-21 00:29:55.057774+00:00"}')], otherwise="error",
    ),
    Vector(
        "invalid-2-object-in-value", OBJECTS, "INVALID in the table: an object in value, typed_value null. Value counts.",
        pa.array([row(KEYS, "02 01 04 00 06 15 'login'")], variant(EVENT)),
        [(KEYS, "02 01 04 00 06 15 'login'", '{"event_type": "login"}')], otherwise="error",
    ),
    Vector(
        "invalid-3-not-an-object", OBJECTS,
        "INVALID in the table: typed_value is set and value is no object. The algorithm asserts it is; the note beside the "
        "table asks for an object.",
        pa.array([row(KEYS, "05 'a'", NO_FIELDS)], variant(EVENT)), error=LAYOUT, otherwise=[(KEYS, "02 00 00", "{}")],
    ),
    Vector(
        "invalid-4-empty-object-in-value", OBJECTS, "INVALID in the table: an empty object in value, typed_value null.",
        pa.array([row(KEYS, "02 00 00")], variant(EVENT)), [(KEYS, "02 00 00", "{}")], otherwise="error",
    ),
    Vector(
        "invalid-4-as-printed", OBJECTS,
        "The same with the bytes that the table prints, 02 00, which lack the one offset of an object of no fields.",
        pa.array([row(KEYS, "02 00")], variant(EVENT)), [(KEYS, "02 00", "{}")], otherwise="error",
    ),
    Vector(
        "field-in-both-columns", OBJECTS, "value and typed_value of a field are both set: engines should fail.",
        pa.array([row(KEYS, None, {"event_type": binary("00", "noop"), "event_ts": MISSING})], variant(EVENT)),
        error=LAYOUT, otherwise=[(KEYS, "02 01 04 00 05 11 'noop'", '{"event_type": "noop"}')],
    ),
    Vector(
        "fields-without-a-group", OBJECTS, "A shredded field is a group, never a bare column.",
        pa.array([row(KEYS, None, {"event_type": "noop"})], variant(pa.struct([("event_type", pa.string())]))), error=LAYOUT,
    ),
    Vector(
        "fields-of-nothing", OBJECTS, "A field's group has value, typed_value or both.",
        pa.array([row(KEYS, None, {"event_type": {"_x": 1}})], variant(required(event_type=pa.struct([("_x", pa.int64())])))),
        error=LAYOUT,
    ),
    Vector(
        "optional-fields", OBJECTS, "A field's group must be required; a null one can only be a missing field.",
        pa.array([row(KEYS, None, {"event_type": None, "event_ts": typed(1729795057774)})],
                 variant(pa.struct([("event_type", STRING), ("event_ts", group(TS))]))),
        [(KEYS, f"02 01 03 00 09 {LOGIN_TS}", '{"event_ts": "1970-01-21 00:29:55.057774+00:00"}')], otherwise="error",
    ),
    Vector(
        "fields-without-value", OBJECTS, "A field's group may lack value, and typed_value.",
        pa.array([row(KEYS, None, {"event_type": typed("login"), "event_ts": binary(LOGIN_TS)}), row(KEYS, None, NO_FIELDS)],
                 variant(required(event_type=group(pa.string(), value=False), event_ts=group(None)), value=False)),
        [LOGIN, (KEYS, "02 00 00", "{}")],
    ),
]  # fmt: skip

VECTORS = [*MEASUREMENTS, *LISTS, *EVENTS, *objects.VECTORS]
