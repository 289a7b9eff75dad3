"""Spark's first shredding layout: `object`, `array`, `typed_value` and `untyped_value`, which is metadata ‖ value.

In: rows as that text stores them; no file carries a logical type. Out: the Variant by value, because the file holds no
metadata of the whole, or an error.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from protocol.vectors.draft.cases import ABCD, ARRAY, NESTED_ARRAYS, TABLE_ROWS, nested_arrays
from protocol.vectors.vector import LAYOUT, Row, Shredded, Vector, elements, h, i64, typed

VALUE = "untyped_value"
M = "01 00 00"


def untyped(value: str, metadata: str = M) -> Shredded:
    return {VALUE: h(metadata + value)}


def leaf(kind: pa.DataType) -> pa.StructType:
    return pa.struct([(VALUE, pa.binary()), ("typed_value", kind)])


def listed(of: pa.DataType, *, nullable: bool = False) -> pa.StructType:
    return pa.struct([(VALUE, pa.binary()), ("array", elements(of, nullable=nullable))])


def thing(**fields: pa.DataType) -> pa.StructType:
    return pa.struct([(VALUE, pa.binary()), ("object", pa.struct(list(fields.items())))])


def first(name: str, section: str, why: str, column: pa.Array, rows: list[Row] | None = None, **settings: Any) -> Vector:
    return Vector(name, f"Spark's shredding.md, {section}", why, column, rows, variant=False, compare="value", **settings)


INT64 = leaf(pa.int64())
TABLE = thing(a=INT64, b=thing(c=leaf(pa.string())))
D = "11 01 00 01 'd'"
ONE_TO_THREE = "03 03 00 02 04 06 0c 01 0c 02 0c 03"
HELLO_456 = "02 02 02 03 00 06 09 15 'hello' 10 c8 01"

TABLE_COLUMN = [
    {"object": {"a": typed(123), "b": {"object": {"c": typed("hello")}}}},
    {"object": {"a": untyped("20 02 7b 00 00 00"), "b": {"object": {"c": typed("123")}}}},
    {"object": {"a": untyped(ONE_TO_THREE), "b": {"object": {"c": untyped("00")}}}},
    {"object": {"a": typed(123), "b": None}, **untyped("02 01 00 00 03 10 c8 01", "11 01 00 01 'c'")},
    {"object": {"a": typed(123), "b": {"object": {"c": typed("hello")}, **untyped("02 01 00 00 03 10 c8 01", D)}}},
    untyped(ARRAY, ABCD),
    {"object": {"a": None, "b": {"object": {"c": None}}}},
    {"object": {"a": {}, "b": {}}},
    {"object": {"a": None, "b": untyped("00")}},
    untyped("00"),
    None,
]
TABLE_EXPECTED = [
    *TABLE_ROWS[:2],
    (ABCD, f"02 02 00 01 00 0c 12 {ONE_TO_THREE} 02 01 02 00 01 00", '{"a": [1, 2, 3], "b": {"c": null}}'),
    (ABCD, f"02 02 00 02 00 09 0c {i64(123)} 10 c8 01", '{"a": 123, "c": 456}'),
    (ABCD, f"02 02 00 01 00 09 19 {i64(123)} {HELLO_456}", '{"a": 123, "b": {"c": "hello", "d": 456}}'),
    TABLE_ROWS[5],
    (ABCD, "02 01 01 00 03 02 00 00", '{"b": {}}'),
    (ABCD, "02 00 00", "{}"),
    (ABCD, "02 01 01 00 01 00", '{"b": null}'),
    (ABCD, "00", "null"),
    None,
]

SCALAR = pa.array([typed(34), untyped("0d 'n/a'"), untyped("00")], INT64)
NESTED = pa.struct([("object", pa.struct([("a", listed(INT64, nullable=True)),
                                          ("b", INT64)])), (VALUE, pa.binary())])  # fmt: skip
SCALAR_ROWS: list[Row] = [(M, i64(34), "34"), (M, "0d 'n/a'", '"n/a"'), (M, "00", "null")]


def nested_value(value: str) -> bytes:
    """The untyped values of the nested example, each with a metadata of its own; only one has a name, c."""
    if value.startswith("02 01 02"):
        return h("11 01 00 01 'c' 02 01 00" + value.removeprefix("02 01 02"))
    return h(M + value)


VECTORS = [
    first("table", "Parquet Example", "The six rows of the text's table, then missing fields, a null, and no row.",
          pa.array(TABLE_COLUMN, TABLE), TABLE_EXPECTED),
    first("scalars", "Parquet Layout", "typed_value, untyped_value, a Variant null.", SCALAR, SCALAR_ROWS),
    first("metadata-and-value", "Parquet Layout",
          "The text's bytes 01 01 00 02 h i, then the value: the dictionary's last offset tells where; wider offsets too.",
          pa.array([untyped("02 01 00 00 01 04", "01 01 00 02 'hi'"),
                    untyped("02 01 01 00 01 04", "51 02 00 00 00 01 00 03 00 'ahi'"),
                    untyped("04", "01 00 00")], INT64),
          [("11 01 00 02 'hi'", "02 01 00 00 01 04", '{"hi": true}'), ("11 01 00 02 'hi'", "02 01 00 00 01 04", '{"hi": true}'),
           (M, "04", "true")]),
    first("without-untyped-value", "Parquet Layout", "untyped_value may be absent.",
          pa.array([{"object": {"a": {"typed_value": 1}}}, {"object": {"a": None}}],
                   pa.struct([("object", pa.struct([("a", pa.struct([("typed_value", pa.int64())]))]))])),
          [("11 01 00 01 'a'", f"02 01 00 00 09 {i64(1)}", '{"a": 1}'), (M, "02 00 00", "{}")]),
    first("without-typed-value", "Parquet Layout", "typed_value may be absent.",
          pa.array([{"object": {"a": untyped("0c 01")}}], thing(a=pa.struct([(VALUE, pa.binary())]))),
          [("11 01 00 01 'a'", "02 01 00 00 02 0c 01", '{"a": 1}')]),
    first("nested-arrays", "Nested Parquet Example", "The text's arrays of objects of arrays.",
          pa.array(nested_arrays(VALUE, nested_value), listed(NESTED, nullable=True)), NESTED_ARRAYS),
    first("scalar-in-both-fields", "Parquet Layout", "typed_value and untyped_value are both set: invalid.",
          pa.array([typed(34) | untyped("0d 'n/a'")], INT64), error=LAYOUT),
    first("array-in-both-fields", "Unshredded values", "array and untyped_value are both set: only one may be.",
          pa.array([{"array": [typed(34)], **untyped("0d 'n/a'")}], listed(INT64)), error=LAYOUT),
    first("not-an-object", "Reconstructing a Variant", "object is set and untyped_value is no object: ambiguous.",
          pa.array([{"object": {"a": None, "b": None}, **untyped("0c 01")}], TABLE), error=LAYOUT),
    first("field-in-both", "Reconstructing a Variant",
          "A field in untyped_value and in its own columns: the algorithm takes these, and the other where they are null.",
          pa.array([{"object": {"a": typed(1), "b": None}, **untyped("02 01 00 00 02 0c 02", "11 01 00 01 'a'")},
                    {"object": {"a": None, "b": None}, **untyped("02 01 00 00 02 0c 02", "11 01 00 01 'a'")}], TABLE),
          [("11 01 00 01 'a'", f"02 01 00 00 09 {i64(1)}", '{"a": 1}'),
           ("11 01 00 01 'a'", "02 01 00 00 02 0c 02", '{"a": 2}')]),
    first("underscore-field", "Backward and forward compatibility", "Fields that begin with an underscore are ignored.",
          pa.array([typed(34) | {"_spark_x": 1, "_metadata_key_paths": 1}],
                   pa.struct([*INT64, ("_spark_x", pa.int64()), ("_metadata_key_paths", pa.int64())])), SCALAR_ROWS[:1]),
    first("unknown-field", "Backward and forward compatibility", "Any other field must be assumed incompatible: fail.",
          pa.array([typed(34) | {"x": 1}], pa.struct([*INT64, ("x", pa.int64())])), error=LAYOUT),
    first("unknown-field-inside", "Backward and forward compatibility", "The same in a field's group.",
          pa.array([{"object": {"a": typed(34) | {"x": 1}}}], thing(a=pa.struct([*INT64, ("x", pa.int64())]))), error=LAYOUT),
]  # fmt: skip
