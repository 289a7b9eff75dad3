"""VariantShredding, nesting and reassembly: deeper schemas, names, dictionaries, and the merging of value with typed_value.

In and out as in `cases`. Invariant: as there.
"""

from __future__ import annotations

import pyarrow as pa

from protocol.vectors.vector import MISSING, Vector, binary, elements, group, i64, required, row, typed, variant

NESTING = "VariantShredding, Nesting"
REBUILD = "VariantShredding, Reconstructing a Shredded Variant"
STRING, INT64, INT8, DOUBLE = (group(kind) for kind in (pa.string(), pa.int64(), pa.int8(), pa.float64()))

# ids: event_ts 0, event_type 1, latitude 2, location 3, longitude 4, tags 5
PLACES = "11 06 00 08 12 1a 22 2b 2f 'event_tsevent_typelatitudelocationlongitudetags'"
PLACE = required(
    event_type=STRING,
    event_ts=group(pa.timestamp("us", "UTC")),
    location=group(required(latitude=DOUBLE, longitude=DOUBLE)),
    tags=group(elements(STRING)),
)
NOTHING = dict.fromkeys(("event_type", "event_ts", "location", "tags"), MISSING)
NOWHERE = {"latitude": MISSING, "longitude": MISSING}
LATITUDE = "1c 00 00 00 00 00 00 16 40"  # 5.5

WHERE = '"location": {"latitude": 5.5, "longitude": 1.5}, "tags": ["foo", "bar", "baz"]'

NESTED_COLUMN = [
    row(PLACES, None, {"event_type": typed("login"), "event_ts": typed(1729794114937),
                       "location": typed({"latitude": typed(5.5), "longitude": typed(1.5)}),
                       "tags": typed([typed("foo"), typed("bar"), typed("baz")])}),
    row(PLACES, None, {"event_type": binary("00"), "event_ts": MISSING, "tags": binary("0d 'foo'"),
                       "location": binary("02 01 05 00 01 04", {"latitude": typed(5.5), "longitude": MISSING})}),
    row(PLACES, None, NOTHING | {"location": typed(NOWHERE), "tags": typed([])}),
    row(PLACES, None, NOTHING | {"location": binary("00"), "tags": typed([binary("0c 01"), typed("bar")])}),
    row(PLACES, None, NOTHING),
    row(PLACES, "0d 'foo'"),
]  # fmt: skip
NESTED_ROWS = [
    (PLACES, "02 04 00 01 03 05 00 09 0f 28 3a 30 79 85 c3 bf 92 01 00 00 15 'login' 02 02 02 04 00 09 12" + LATITUDE
     + "1c 00 00 00 00 00 00 f8 3f 03 03 00 04 08 0c 0d 'foo' 0d 'bar' 0d 'baz'",
     f'{{"event_ts": "1970-01-21 00:29:54.114937+00:00", "event_type": "login", {WHERE}}}'),
    (PLACES, f"02 03 01 03 05 00 01 12 16 00 02 02 02 05 00 09 0a {LATITUDE} 04 0d 'foo'",
     '{"event_type": null, "location": {"latitude": 5.5, "tags": true}, "tags": "foo"}'),
    (PLACES, "02 02 03 05 00 03 06 02 00 00 03 00 00", '{"location": {}, "tags": []}'),
    (PLACES, "02 02 03 05 00 01 0c 00 03 02 00 02 06 0c 01 0d 'bar'", '{"location": null, "tags": [1, "bar"]}'),
    (PLACES, "02 00 00", "{}"),
    (PLACES, "0d 'foo'", '"foo"'),
]  # fmt: skip

A_B, B = "11 02 00 01 02 'ab'", required(b=INT64)
NO_A, A_IS = {"a": MISSING}, lambda group: {"a": group}
LEVELS_COLUMN = [
    row(A_B, "00"), row(A_B, None, NO_A), row(A_B, None, A_IS(binary("00"))),
    row(A_B, None, A_IS(typed({"b": MISSING}))), row(A_B, None, A_IS(typed({"b": binary("00")}))),
    row(A_B, None, A_IS(typed({"b": typed(1)}))), row(A_B, None, A_IS(binary("0c 05"))),
    row(A_B, None, A_IS(binary("02 01 00 00 01 04", {"b": typed(1)}))), row(A_B, "02 01 01 00 01 08", NO_A), None,
]  # fmt: skip
LEVELS_ROWS = [
    (A_B, "00", "null"), (A_B, "02 00 00", "{}"), (A_B, "02 01 00 00 01 00", '{"a": null}'),
    (A_B, "02 01 00 00 03 02 00 00", '{"a": {}}'), (A_B, "02 01 00 00 06 02 01 01 00 01 00", '{"a": {"b": null}}'),
    (A_B, f"02 01 00 00 0e 02 01 01 00 09 {i64(1)}", '{"a": {"b": 1}}'), (A_B, "02 01 00 00 02 0c 05", '{"a": 5}'),
    (A_B, f"02 01 00 00 11 02 02 00 01 00 01 0a 04 {i64(1)}", '{"a": {"a": true, "b": 1}}'),
    (A_B, "02 01 01 00 01 08", '{"b": false}'), None,
]  # fmt: skip

C_B_A = "01 03 00 01 02 03 'cba'"
NAMES = "11 05 00 01 02 05 06 08 'Aaa.bzé'"

TEXT = "78" * 300
THREE_HUNDRED = "51 2c 01" + "".join((3 * i).to_bytes(2, "little").hex() for i in range(301)) + "".join(
    f"{i:03}".encode().hex() for i in range(300)
)  # fmt: skip

BYTES_256 = bytes(range(256)).hex()
SHORTS_257 = "".join(i.to_bytes(2, "little").hex() for i in range(257))
REST_256 = f"46 00 01 00 00 {BYTES_256} {SHORTS_257} {'00' * 256}"
WHOLE_257 = f"56 01 01 00 00 {SHORTS_257} {SHORTS_257} 02 01 {'00' * 256} 0c 07"
JSON_257 = "{" + "".join(f'"{i:03}": null, ' for i in range(256)) + '"256": 7}'

VECTORS = [
    Vector("nesting", NESTING, "The text's event with location and tags: whole, in part, empty, of other types, missing.",
           pa.array(NESTED_COLUMN, variant(PLACE)), NESTED_ROWS),
    Vector("missing-null-and-empty", NESTING, "Missing, null, an empty object and another type are kept apart at every level.",
           pa.array(LEVELS_COLUMN, variant(required(a=group(B)))), LEVELS_ROWS),
    Vector("unsorted-dictionary", REBUILD,
           "Field ids follow the dictionary, fields follow their names; those of value are merged in between.",
           pa.array([row(C_B_A, "02 02 02 00 00 01 02 00 04", {"b": typed(7)})], variant(required(b=INT64))),
           [(C_B_A, f"02 03 02 01 00 00 01 0a 0b 00 {i64(7)} 04", '{"a": null, "b": 7, "c": true}')]),
    Vector("residual-in-another-form", REBUILD,
           "An object in value may be large, have four-byte ids and offsets, and values in another order than its fields; "
           "merged, the object takes its smallest form; alone in value, it passes as it is.",
           pa.array([
               row(C_B_A, "7e 01 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00 04", {"b": typed(7)}),
               row(C_B_A, "02 02 02 00 02 00 03 0c 07 04", {"b": typed(7)}),
               row(C_B_A, "7e 01 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00 04", {"b": MISSING}),
               row(C_B_A, "7e 00 00 00 00 00 00 00 00", {"b": MISSING}),
           ], variant(required(b=INT64))),
           [(C_B_A, f"02 02 01 00 00 09 0a {i64(7)} 04", '{"b": 7, "c": true}'),
            (C_B_A, f"02 03 02 01 00 00 01 0a 0c 04 {i64(7)} 0c 07", '{"a": true, "b": 7, "c": 7}'),
            (C_B_A, "02 01 00 00 01 04", '{"c": true}'), (C_B_A, "02 00 00", "{}")]),
    Vector("names", NESTING, "Names are case-sensitive, may have dots, and are ordered by their UTF-8 bytes: é comes after z.",
           pa.array([row(NAMES, "02 02 01 03 00 02 04 0c 03 0c 05", {"é": typed(6), "a.b": typed(4), "A": typed(2)})],
                    variant(required(**{"é": INT8, "a.b": INT8, "A": INT8}))),
           [(NAMES, "02 05 00 01 02 03 04 00 02 04 06 08 0a 0c 02 0c 03 0c 04 0c 05 0c 06",
             '{"A": 2, "a": 3, "a.b": 4, "z": 5, "é": 6}')]),
    Vector("empty-name", NESTING, "A name may be empty.",
           pa.array([row("11 01 00 00", None, {"": typed(6)})], variant(required(**{"": INT8}))),
           [("11 01 00 00", "02 01 00 00 02 0c 06", '{"": 6}')]),
    Vector("name-not-in-metadata", "VariantShredding, Variant Metadata",
           "The metadata must hold the shredded names. Arrow's example leaves them out; a reader may add them.",
           pa.array([row("01 00", None, {"a": typed(7)}), row("11 01 00 01 'z'", "02 01 00 00 01 04", {"a": typed(7)})],
                    variant(required(a=INT64))),
           [("11 01 00 01 'a'", f"02 01 00 00 09 {i64(7)}", '{"a": 7}'),
            ("11 02 00 01 02 'az'", f"02 02 00 01 00 09 0a {i64(7)} 04", '{"a": 7, "z": true}')],
           otherwise="error", compare="value"),
    Vector("wide-offsets", "VariantEncoding, Value Data for Object", "Values of 256 bytes and more: two-byte offsets.",
           pa.array([row(A_B, None, {"a": typed("x" * 300), "b": typed(7)})], variant(required(a=STRING, b=INT64))),
           [(A_B, f"06 02 00 01 00 00 31 01 3a 01 40 2c 01 00 00 {TEXT} {i64(7)}", f'{{"a": "{"x" * 300}", "b": 7}}')]),
    Vector("wide-ids", "VariantEncoding, Value Data for Object",
           "Two-byte ids where the largest id of the object needs them, and only there.",
           pa.array([row(THREE_HUNDRED, None, {"000": typed(1), "299": typed(2)}),
                     row(THREE_HUNDRED, None, {"000": typed(1), "299": MISSING})],
                    variant(required(**{"000": INT8, "299": INT8}))),
           [(THREE_HUNDRED, "12 02 00 00 2b 01 00 02 04 0c 01 0c 02", '{"000": 1, "299": 2}'),
            (THREE_HUNDRED, "02 01 00 00 02 0c 01", '{"000": 1}')]),
    Vector("object-of-257", "VariantEncoding, Value Data for Object",
           "More than 255 fields: a four-byte count. 256 of them in value, one typed.",
           pa.array([row(THREE_HUNDRED, REST_256, {"256": typed(7)})], variant(required(**{"256": INT8}))),
           [(THREE_HUNDRED, WHOLE_257, JSON_257)]),
]  # fmt: skip
