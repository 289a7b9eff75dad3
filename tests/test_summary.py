"""The bounds of all files put together, against a count by hand."""

from __future__ import annotations

import json
import statistics
from datetime import date, timedelta

import pytest

from delta_variant.summary import summary

pytestmark = pytest.mark.spark

FILES = 9
DAYS = [date(2026, 11, day) for day in range(1, 8)]
# By path, the bounds of some of the files; None is a bound that a file does not have.
RANGES = {
    "$['apart']": [(n * 10, n * 10 + 5) for n in range(9)],
    "$['touching']": [(n, n + 1) for n in range(7)],
    "$['whole']": [(0, 100)] * 9,
    "$['mixed numbers']": [(1, 2.5), (2, 3), (2.75, 10), (-5, 1)],
    "$['large']": [(2**53, 2**53 + 1), (2**53 + 1, 2**53 + 2)],
    "$['texts']": [("a", "c"), ("b", "d"), ("10", "9"), ("é", "ü")],
    "$['days']": [(day, day + timedelta(2)) for day in DAYS],
    "$['open']": [(None, 5), (3, None), (4, 4), (10, 11)],
    "$['one value']": [(7, 7)] * 3,
    "$['prices']": [(0.5, 74.75), (2.5, 30.25)],
}


def opened(ranges):
    """The median of the files that hold an end of a range, and of the files without bounds."""
    ends = [end for both in ranges for end in both if end is not None]
    held = [sum((low is None or low <= end) and (high is None or end <= high) for low, high in ranges) for end in ends]
    return -(-statistics.median(held) // 1) + FILES - len(ranges)


def sql(value):
    """A bound as an expression of Spark."""
    if value is None:
        return "cast(null AS variant)"
    return f"cast(date'{value}' AS variant)" if isinstance(value, date) else f"parse_json('{json.dumps(value)}')"


def stats(spark, ranges):
    """Rows as those of `VariantTable.stats`."""
    rows = [
        f"SELECT '{n}' AS file, 'v' AS column, '{path[3:-2]}' AS path, {sql(low)} AS min, {sql(high)} AS max"
        for path, of_path in ranges.items()
        for n, (low, high) in enumerate(of_path)
    ]
    frame = spark.sql(" UNION ALL ".join(rows))
    return frame.selectExpr("*", "schema_of_variant(coalesce(min, max)) AS type")


def test_ranges(spark):
    """For each path: its type, the bounds of the whole, the files that have bounds, and the median that a look-up opens.

    Oracle: Python, over every end of every range.
    """
    found = {
        row.path: row
        for row in summary(stats(spark, RANGES), FILES).selectExpr("*", "to_json(min) l", "to_json(max) h").collect()
    }
    assert len(found) == len(RANGES)
    for path, ranges in RANGES.items():
        row = found[path[3:-2]]
        assert (row.files, row.files_total, row.opened) == (len(ranges), FILES, opened(ranges)), (path, row)
        for shown, side, of in ((row.l, 0, min), (row.h, 1, max)):
            ends = [both[side] for both in ranges]
            whole = None if None in ends else of(ends)
            assert shown == (None if whole is None else json.dumps(whole, ensure_ascii=False, default=str)), path
    assert found["mixed numbers"].type.startswith("DECIMAL")
    assert found["prices"].type == "DECIMAL(4,2)"
    assert (found["texts"].type, found["days"].type) == ("STRING", "DATE")


def test_several_kinds(spark):
    """A path of numbers in some files and of strings in others has both types, and no bounds; files of the other are opened."""
    rows = stats(spark, {"$['a']": [(1, 2), (3, 4), ("x", "y")]})
    [row] = summary(rows, 4).collect()
    assert (row.type, row.min, row.max, row.files, row.opened) == ("BIGINT, STRING", None, None, 3, 3)


def test_nothing(spark):
    """Without bounds there are no rows."""
    assert summary(stats(spark, {"$['a']": [(1, 2)]}).where("false"), 3).collect() == []
