"""Arrow's examples of the canonical extension `arrow.parquet.variant`, in IPC files: its storage forms, and its worked buffers.

In: the buffers as the text prints them; where they contradict the rows they are printed for, the rows count, and a comment says
so. Out: the Variants. Invariant: validity is least significant bit first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from protocol.vectors.shredding.cases import MEASUREMENT, NO_KEYS, TAG_COLUMN, TAG_ROWS, TAGS
from protocol.vectors.shredding.objects import NESTED_COLUMN, NESTED_ROWS, PLACE
from protocol.vectors.vector import MALFORMED, Row, Vector, group, h, i64, required, variant

SOURCE = "Arrow, Canonical Extension Examples, Parquet Variant Extension"
A = "11 01 00 01 'a'"
UNSHREDDED: list[Row] = [(A, "02 01 00 00 02 0c 01", '{"a": 1}'), None, (A, "00", "null"), (A, "0d 'n/a'", '"n/a"')]


def example(name: str, why: str, column: pa.Array, rows: list[Row] | None, section: str = "", **settings: Any) -> Vector:
    return Vector(name, SOURCE + section, why, column, rows, arrow=True, **settings)


def bits(*words: str) -> pa.Buffer:
    """A validity bitmap as the text prints it, byte by byte."""
    return pa.py_buffer(bytes(int(word, 2) for word in words))


def buffer(kind: str, *numbers: int) -> pa.Buffer:
    return pa.py_buffer(np.array(numbers, kind).tobytes())


def array(kind: pa.DataType, count: int, *buffers: pa.Buffer | None, children: list[pa.Array] | None = None) -> pa.Array:
    return pa.Array.from_buffers(kind, count, list(buffers), children=children)


def texts(kind: pa.DataType, offsets: list[int], data: str, *valid: str) -> pa.Array:
    """A binary or string array of these buffers."""
    return array(kind, len(offsets) - 1, bits(*valid) if valid else None, buffer("<i4", *offsets), pa.py_buffer(h(data)))


def unshredded(metadata: pa.DataType, value: pa.DataType, *, swapped: bool = False) -> pa.Array:
    """Rows of metadata and value in these forms."""
    names = pa.array([h(A)] * 4)
    values = pa.array([h("02 01 00 00 02 0c 01"), None, h("00"), h("0d 'n/a'")]).cast(value)
    if pa.types.is_dictionary(metadata):
        names = pa.DictionaryArray.from_arrays(pa.array([0] * 4, metadata.index_type), pa.array([h(A)]))
    elif pa.types.is_run_end_encoded(metadata):
        names = pa.RunEndEncodedArray.from_arrays(pa.array([4], pa.int32()), pa.array([h(A)]))
    else:
        names = names.cast(metadata)
    fields = [pa.field("metadata", names.type, False), pa.field("value", value)]
    children, order = [names, values], [1, 0] if swapped else [0, 1]
    mask = pa.array([False, True, False, False])
    return pa.StructArray.from_arrays([children[i] for i in order], fields=[fields[i] for i in order], mask=mask)


def measurement(valid: str) -> pa.Array:
    """The first worked example."""
    metadata = texts(pa.binary(), [0, 2, 4, 6, 8], "01 00 01 00 01 00 01 00")
    value = texts(pa.binary(), [0, 0, 1, 5, 5], "00 0d 'n/a'", "00000110")  # the text prints 0x13, an array, for 0x0d
    typed = array(pa.int64(), 4, bits("00001001"), buffer("<i8", 34, 0, 0, 100))
    return array(MEASUREMENT, 4, bits(valid), children=[metadata, value, typed])


def tags() -> pa.Array:
    """The second worked example."""
    element = TAGS.field("typed_value").type.value_type
    inner = [
        texts(pa.binary(), [0, 0, 0, 0, 1, 1, 1, 1], "00", "00001000"),
        texts(pa.string(), [0, 6, 11, 17, 17, 23, 28, 35], "'comedydramahorrorcomedydramaromance'", "01110111"),
    ]
    elements = array(element, 7, None, children=inner)
    offsets = buffer("<i4", 0, 2, 4, 7, 7)
    typed = array(TAGS.field("typed_value").type, 4, bits("00000111"), offsets, children=[elements])
    children = [texts(pa.binary(), [0, 2, 4, 6, 8], "01 00" * 4), texts(pa.binary(), [0, 0, 0, 0, 1], "00", "00001000"), typed]
    return array(TAGS, 4, bits("00000111"), children=children)


EVENT = variant(required(event_type=group(pa.string()), event_ts=group(pa.timestamp("us", "UTC"))))


def events() -> pa.Array:
    """The third worked example. Its metadata lacks the shredded names."""
    metadata = "01 00 01 01 00 05 'email' 01 01 00 09 'error_msg' 01 00 01 01 00 05 'click'" + "01 00" * 5
    email, error = "02 01 00 00 11 41 'user@example.com'", "02 01 00 00 0d 31 'malformed...'"
    others = "61 'malformed: not an object' 02 01 00 00 08 1d '_button'"
    value = texts(
        pa.binary(), [0, 0, 22, 40, 65, 78, 78, 78, 78, 79, 79], f"{email} {error} {others} 00", "00011110", "00000001"
    )
    # The text prints this bitmap from the other end, 01000000; its own offsets and rows have the null in slot 5.
    type_value = texts(pa.binary(), [0] * 6 + [1] * 5, "00", "00100000", "00000000")
    type_typed = texts(pa.string(), [0, 4, 9, 9, 9, 9, 9, 13, 13, 13, 13], "'nooploginnoop'", "01000011", "00000000")
    ts_value = texts(pa.binary(), [0] * 7 + [11] * 4, "29 '2024-10-24'", "01000000", "00000000")
    ticks = [1729794114937, 1729794146402, 0, 0, 1729794240241, 1729794954163, 0, 0, 0, 0]
    ts_typed = array(pa.timestamp("us", "UTC"), 10, bits("00110011", "00000000"), buffer("<i8", *ticks))
    typed = EVENT.field("typed_value").type
    fields = [
        array(typed.field(i).type, 10, None, children=children)
        for i, children in enumerate(([type_value, type_typed], [ts_value, ts_typed]))
    ]
    offsets = [0, 2, 11, 24, 26, 35, 37, 39, 41, 43, 45]
    children = [texts(pa.binary(), offsets, metadata), value, array(typed, 10, bits("11110111", "00000000"), children=fields)]
    return array(EVENT, 10, bits("11111111", "00000001"), children=children)


BOTH = "11 02 00 08 12 'event_tsevent_type'"
EMAIL, CLICK = "11 03 00 05 0d 17 'emailevent_tsevent_type'", "11 02 00 05 0d 'clickevent_ts'"
EVENT_ROWS: list[Row] = [
    (BOTH, "02 02 00 01 00 09 0e 30 79 85 c3 bf 92 01 00 00 11 'noop'",
     '{"event_ts": "1970-01-21 00:29:54.114937+00:00", "event_type": "noop"}'),
    (EMAIL, "02 03 00 01 02 00 11 1a 20 41 'user@example.com' 30 62 00 c4 bf 92 01 00 00 15 'login'",
     '{"email": "user@example.com", "event_ts": "1970-01-21 00:29:54.146402+00:00", "event_type": "login"}'),
    ("01 01 00 09 'error_msg'", "02 01 00 00 0d 31 'malformed...'", '{"error_msg": "malformed..."}'),
    (NO_KEYS, "61 'malformed: not an object'", '"malformed: not an object"'),
    (CLICK, "02 02 00 01 00 08 11 1d '_button' 30 f1 6e c5 bf 92 01 00 00",
     '{"click": "_button", "event_ts": "1970-01-21 00:29:54.240241+00:00"}'),
    (BOTH, "02 02 00 01 00 09 0a 30 b3 53 d0 bf 92 01 00 00 00",
     '{"event_ts": "1970-01-21 00:29:54.954163+00:00", "event_type": null}'),
    (BOTH, "02 02 00 01 00 0b 10 29 '2024-10-24' 11 'noop'", '{"event_ts": "2024-10-24", "event_type": "noop"}'),
    (NO_KEYS, "02 00 00", "{}"),
    (NO_KEYS, "00", "null"),
    None,
]  # fmt: skip

NA = (NO_KEYS, "0d 'n/a'", '"n/a"')
LARGE_ELEMENT = pa.field("element", pa.struct([("value", pa.large_binary()), ("typed_value", pa.large_string())]), False)
LARGE = pa.struct([
    pa.field("metadata", pa.large_binary(), False), ("value", pa.large_binary()), ("typed_value", pa.large_list(LARGE_ELEMENT)),
])  # fmt: skip


def views() -> pa.Array:
    """The rows of tags in view types: the lists out of order, one of them inside the other's elements."""
    element = pa.struct([("value", pa.binary_view()), ("typed_value", pa.string_view())])
    inner = pa.array([{"value": None, "typed_value": text} for text in ("horror", None, "comedy", "drama", "romance")], element)
    inner = pa.StructArray.from_arrays(
        [pa.array([None, h("00"), None, None, None], pa.binary_view()), inner.field("typed_value")], fields=list(element)
    )
    lists = pa.list_view(pa.field("element", element, False))
    typed = array(lists, 4, bits("00000111"), buffer("<i4", 2, 0, 2, 0), buffer("<i4", 2, 2, 3, 0), children=[inner])
    metadata = pa.array([h(NO_KEYS)] * 4, pa.binary_view())
    value = pa.array([None, None, None, h("00")], pa.binary_view())
    fields = [pa.field("metadata", metadata.type, False), pa.field("value", value.type), pa.field("typed_value", lists)]
    return pa.StructArray.from_arrays([metadata, value, typed], fields=fields)


VECTORS = [
    example("unshredded", "metadata and value as binary.", unshredded(pa.binary(), pa.binary()), UNSHREDDED, ", Unshredded"),
    example("unshredded-value-first", "The fields in the other order.", unshredded(pa.binary(), pa.binary(), swapped=True),
            UNSHREDDED, ", Unshredded"),
    example("unshredded-dictionary-and-view", "metadata as dictionary<int8, binary>, value as binary_view.",
            unshredded(pa.dictionary(pa.int8(), pa.binary()), pa.binary_view()), UNSHREDDED, ", Unshredded"),
    example("unshredded-run-ends", "metadata run-end-encoded, value as large_binary.",
            unshredded(pa.run_end_encoded(pa.int32(), pa.binary()), pa.large_binary()), UNSHREDDED, ", Unshredded"),
    example("measurement", "The worked buffers; the struct's bitmap turned round, as the text prints it from the other end: "
            "the null is row 1, and the Variant null under it does not count.", measurement("00001101"),
            [(NO_KEYS, i64(34), "34"), None, NA, (NO_KEYS, i64(100), "100")], ", Simple Shredding"),
    example("measurement-as-printed", "The same with the struct's bitmap as printed: row 1 a Variant null, row 2 NULL.",
            measurement("00001011"), [(NO_KEYS, i64(34), "34"), (NO_KEYS, "00", "null"), None, (NO_KEYS, i64(100), "100")],
            ", Simple Shredding"),
    example("measurement-0x13", "n/a with the header that the text prints, 0x13: a truncated array.",
            array(MEASUREMENT, 1, None, children=[texts(pa.binary(), [0, 2], "01 00"),
                                                  texts(pa.binary(), [0, 4], "13 6e 2f 61"),
                                                  array(pa.int64(), 1, bits("00000000"), buffer("<i8", 0))]),
            None, ", Simple Shredding", error=MALFORMED),
    example("tags", "The worked buffers: the last row is NULL, by the struct's bitmap.", tags(), [*TAG_ROWS[:3], None],
            ", Shredding an Array"),
    example("tags-large", "The same rows as large binaries, strings and lists.", pa.array(TAG_COLUMN, LARGE), TAG_ROWS,
            ", Shredding an Array"),
    example("tags-views", "The same rows as views; the list view's lists overlap.", views(), TAG_ROWS, ", Shredding an Array"),
    example("events", "The worked buffers: metadata without the shredded names, to be added by the reader.", events(),
            EVENT_ROWS, ", Shredding an Object", compare="value"),
    example("nesting", "The last schema, with rows for it.", pa.array(NESTED_COLUMN, variant(PLACE)), NESTED_ROWS,
            ", Putting it all together"),
]  # fmt: skip
