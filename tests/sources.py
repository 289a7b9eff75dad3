"""Rows and files that `ingest` and `convert` take."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from pyspark.sql import functions as F

from delta_variant import binary
from delta_variant import types as t
from tests.contents import read

TYPES = {
    "int8": (pa.int8(), [-128, None], pa.int8()), "uint8": (pa.uint8(), [255, None], pa.int16()),
    "uint16": (pa.uint16(), [65535], pa.int32()), "uint32": (pa.uint32(), [2**32 - 1], pa.int64()),
    "uint64": (pa.uint64(), [2**64 - 1], pa.decimal128(20, 0)), "float": (pa.float32(), [0.5], pa.float32()),
    "large": (pa.large_string(), ["x", None], pa.string()), "view": (pa.string_view(), ["x", None], pa.string()),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["x", None, "x"], pa.string()),
    "fixed": (pa.binary(3), [b"abc", None], pa.binary()),
    "decimal": (pa.decimal128(38, 3), [Decimal("1.500")], pa.decimal128(38, 3)),
    "date": (pa.date64(), [dt.date(2026, 1, 2)], pa.date32()),
    "millis": (pa.timestamp("ms", "Asia/Tokyo"), [dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc)], pa.timestamp("us", "UTC")),
    "local": (pa.timestamp("s"), [dt.datetime(2026, 1, 2)], pa.timestamp("us")),
    "list": (pa.large_list(pa.struct([("a", pa.uint8())])), [[{"a": 1}, None], None, []],
             pa.list_(pa.field("element", pa.struct([("a", pa.int16())])))),
    "pair": (pa.list_(pa.int32(), 2), [[1, 2], [3, None]], pa.list_(pa.field("element", pa.int32()))),
    "no_pair": (pa.list_(pa.int32(), 2), [[1, 2], None, [3, None]], pa.list_(pa.field("element", pa.int32()))),
    "map": (pa.map_(pa.string(), pa.large_string()), [[("k", "v"), ("l", None)], None, []],
            pa.map_(pa.field("key", pa.string(), False), pa.field("value", pa.string()))),
}  # fmt: skip


def broken(rows: int, at: int, kind: str) -> pa.Table:
    """Rows of which one has a value that is not allowed, or that Spark cannot hold, at a path of `v`."""
    made = [binary.encode({"id": n, "in": [n, str(n)], "text": "x" * (n % 50)}) for n in range(rows)]
    metadata, value = made[at]
    if kind == "byte":  # of the number in the list
        value = binary.encode({"id": at, "in": [dt.date(2024, 1, 1), "x"], "text": ""})[1]
        value = bytes([63 << 2]).join(value.rsplit(bytes([t.DATE << 2]), 1))  # the id may be the same byte
    elif kind == "cast":
        metadata, value = binary.encode({"id": at, "in": ["text"]})
    elif kind == "time":
        metadata, value = binary.encode({"id": at, "in": [{"at": dt.time(12)}]})
    made[at] = metadata, value
    variant = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
    return pa.table({"n": list(range(rows)), "v": pa.array([{"metadata": m, "value": v} for m, v in made], variant)})


def text(n: int) -> str | None:
    """A document, or NULL."""
    odd = {3: None, 4: "null", 5: '["x", 1]', 6: '{"id": "six", "at": {"x": null, "z": [1, {}]}}', 7: '"text"', 8: "{}"}
    regular = {"id": n, "name": f"n{n % 3}", "at": {"x": n, "y": str(n)}, "tags": ["a", "b"], f"k{n % 2}": {"deep": [n]}}
    return odd.get(n % 20, json.dumps(regular))


def variants(first: int, last: int) -> pa.Array:
    return binary.parse_json(pa.array([text(n) for n in range(first, last)], pa.string()))


def rows(first: int, last: int) -> pa.Table:
    return pa.table({"n": pa.array(range(first, last), pa.int64()), "v": variants(first, last)})


def expected(spark, last: int, first: int = 0):
    """The rows that the numbers give, with Spark's own Variants."""
    texts = spark.createDataFrame([(n, text(n)) for n in range(first, last)], "n long, j string")
    return texts.select("n", F.parse_json("j").alias("v"))


def lines(start: int, end: int, bad: tuple[int, ...] = ()) -> str:
    """A document on each line, of the numbers from start to end; those in `bad` are cut off."""
    texts = [json.dumps({"id": n, "name": f"n{n % 7}", "at": {"x": n / 8}}) for n in range(start, end)]
    return "".join((text[:-3] if n in bad else text) + "\n" for n, text in enumerate(texts, start))


def ids(spark, table) -> list[int]:
    return sorted(row.id for row in read(spark, table).selectExpr("v:id::int id").collect())


def bad_lines(spark, table) -> Counter:
    return Counter((Path(row.file).name, row.line, row.text) for row in read(spark, table).collect())
