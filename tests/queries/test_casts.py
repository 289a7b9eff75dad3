"""The table of casts against what `protocol/README.md` says of it, and against its kernels."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_variant import types as t
from delta_variant.errors import UnsupportedFeatureError
from delta_variant.queries import casts
from delta_variant.queries.casts.arrays import KERNELS
from delta_variant.queries.casts.table import AS_IS, BY_VARIANT, CHECKED, SAFE, kernel_of, kinds_for, reading
from delta_variant.queries.casts.values import converter

if TYPE_CHECKING:
    from collections.abc import Iterator

PROTOCOL = (Path(__file__).parents[2] / "protocol" / "README.md").read_text(encoding="utf-8")
DECIMALS = ("decimal(1,1)", "decimal(9,2)", "decimal(18,4)", "decimal(20,0)", "decimal(38,10)")
NUMBERS = (*t.INTEGERS, *DECIMALS, "float", "double")
TYPES = {
    **dict.fromkeys(("integer", "integers"), t.INTEGERS),
    **dict.fromkeys(
        ("decimal", "decimals"), ("decimal(9,2)", "decimal(18,4)", "decimal(1,1)", "decimal(38,10)", "decimal(20,0)")
    ),
    "numbers": NUMBERS,
    **dict.fromkeys(("date", "dates"), ("date",)),
    "times": ("timestamp", "timestamp_ntz"),
    "anything": (*NUMBERS, "boolean", "string", "date", "timestamp", "timestamp_ntz"),
    "a collated string": ("string collate UNICODE_CI",),
}
"""The types that a word of the protocol stands for; other words are types themselves."""
ALL = (*TYPES["anything"], "binary")


def rows(heading: str, columns: int) -> Iterator[list[str]]:
    """The rows of the first table with so many columns below a heading."""
    section = PROTOCOL.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == columns and cells[0] not in ("---", "column", "bound"):
            yield cells


def types(words: str) -> list[str]:
    """The types that some words stand for. What is in parentheses says of which files, and `;` is a comma."""
    plain = re.sub(r"\([^)]*\)|`", "", words).replace(";", ",")
    return [kind for word in map(str.strip, plain.split(",")) for kind in TYPES.get(word, (word,))]


def has_room(column: str, asked: str) -> bool:
    return all(room >= needed for room, needed in zip(t.digits(asked), t.digits(column), strict=True))


def said_of_reading(column: str, safe: str, checked: str, asked: str) -> str:
    """How the protocol says that a column answers, by the words of its row."""
    if asked == column:
        return AS_IS
    exact = asked.startswith("decimal") or (asked in t.INTEGERS and "integers and decimals that have room" in safe)
    if exact and "that have room" in safe:
        return SAFE if has_room(column, asked) else CHECKED
    words = (("each other", "float"), ("each other", "double")) if column in t.FLOATS else ()
    safe_types = {*types(safe), *(kind for word, kind in words if word in safe)}
    if asked in safe_types:
        return SAFE
    others = checked.replace("other integers and decimals", "").replace("other decimals", "")
    return CHECKED if asked in types(others) else BY_VARIANT


def test_typed_columns_answer_as_the_protocol_says():
    """The table of code and that of the protocol agree on how a typed column of each type answers each type (T5)."""
    found, said = {}, {}
    for columns, safe, checked, _, _ in rows("Typed reading", 5):
        for column in types(columns):
            for asked in ALL:
                found[column, asked] = reading(column, asked)
                said[column, asked] = said_of_reading(column, safe, checked, asked)
    assert {column for column, _ in found} == {*ALL} - {"binary"}
    assert {pair: (found[pair], said[pair]) for pair in found if found[pair] != said[pair]} == {}


def test_bounds_answer_as_the_protocol_says():
    """The table of code and that of the protocol agree on which bounds answer comparisons in which types (Q3)."""
    used, unused = set(), set()
    for bounds, asked, use, _ in rows("Predicates on bounds", 4):
        if "M3" not in bounds:
            pairs = {(casts.kind_of(bound), kind) for bound in types(bounds) for kind in types(asked)}
            (used if use == "yes" else unused).update(pairs)
    found = {(bound, kind) for kind in ALL for bound in kinds_for(kind)}
    assert found == used - {("", "")}
    assert not found & unused


def test_every_kernel_is_in_the_table():
    """The table names the kernels that there are, and no others."""
    named = {kernel_of(t.of_spark(source), t.of_spark(target)) for source in ALL for target in ALL}
    assert named - {"value", "-"} == KERNELS.keys()


VALUES = {
    pa.int8(): [0, 1, -128, 127],
    pa.int64(): [0, 1, -1, 2**63 - 1, -(2**63), 300],
    pa.decimal128(9, 2): [Decimal("0.00"), Decimal("1.50"), Decimal("-9999999.99")],
    pa.decimal128(18, 4): [Decimal("0.0001"), Decimal("-99999999999999.9999")],
    pa.float32(): [0.0, -0.5, 2.0**100],
    pa.float64(): [0.0, 0.1, 1.7e308, -1.0],
    pa.bool_(): [True, False],
    pa.string(): ["5", "-300", "2024-02-29", "2024-02-29 01:02:03.5", "2024-02-29T01:02:03Z"],
    pa.date32(): [-719162, 0, 19782],
    casts.INSTANT: [-62135596800000000, 0, 1709168523500000],
    casts.LOCAL: [-62135596800000000, 0, 1709168523500000],
}


@pytest.mark.parametrize("source", VALUES, ids=str)
def test_kernels_cast_as_single_values(source):
    """A kernel gives for an array what the casts of its values give, where it casts the array at all."""
    for target in VALUES:
        kernel = KERNELS.get(kernel_of(source, target))
        if source == target or kernel is None or target == pa.string():  # single values have no other texts
            continue
        convert = converter(source, target, dt.timezone.utc, in_variant=False)
        for value in VALUES[source]:
            found = kernel(casts.array_of([value], source), target, dt.timezone.utc)
            if found is not None:
                assert casts.values_of(found) == casts.values_of(casts.array_of([convert(value)], target)), (value, target)


@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from([pa.int8(), pa.int16(), pa.int32(), pa.int64()]))
def test_one_integer(value, target):
    """An integer alone is cast as an array with it is: NULL if the type has no room for it."""
    source = pa.int64()
    assert casts.cast_one(value, source, target, dt.timezone.utc) == casts.cast(pa.array([value], source), target)[0].as_py()


@pytest.mark.parametrize("text", ["1" * 1_000_000 + "x", "0x" + "1" * 1_000_000 + "x"], ids=["decimal", "hexadecimal"])
@pytest.mark.parametrize("target", [pa.float64(), pa.float32(), pa.decimal128(38, 2)], ids=str)
def test_long_texts_that_are_no_numbers(text, target):
    """A text of a million digits that is no number is NULL, in time linear in its length: else this would take hours."""
    assert converter(pa.string(), target, dt.timezone.utc, in_variant=False)(text) is None


@pytest.mark.parametrize("name", ["posix/Europe/Berlin", "right/UTC", "localtime", "posixrules", "Factory", "ROC"])
def test_zones_that_java_lacks(name):
    """Names of time zones that only the machine's database has are unknown, as in Spark."""
    assert casts.timestamp_of(f"2024-01-01 00:00:00 {name}", casts.zone("UTC"), local=False) is None
    with pytest.raises(UnsupportedFeatureError, match="is not a time zone"):
        casts.zone(name)
