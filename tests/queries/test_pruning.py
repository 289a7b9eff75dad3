"""What a predicate rules out by what the log says of a file."""

from __future__ import annotations

import json
import random
from datetime import timezone

import pyarrow as pa

from delta_variant.queries.evidence import AddAction, LogEvidence, TableFacts
from delta_variant.queries.expressions import Column, In, Literal
from delta_variant.queries.fields import Field, Struct
from delta_variant.queries.pruning import Where


class Counted(int):
    """A number that counts its comparisons."""

    comparisons = 0

    def __lt__(self, other: int) -> bool:
        Counted.comparisons += 1
        return int(self) < int(other)

    def __le__(self, other: int) -> bool:
        Counted.comparisons += 1
        return int(self) <= int(other)

    def __gt__(self, other: int) -> bool:
        Counted.comparisons += 1
        return int(self) > int(other)


def test_long_lists():
    """A list of any length rules out the files without one of its values, for a few comparisons with each file."""
    field, numbers = Field("n", "n", None, pa.int64()), random.Random(5).sample(range(100_000), 4_000)
    facts = TableFacts(Struct((field,)), frozenset(), timezone.utc)
    where = Where(In(Column((field,)), tuple(Literal(Counted(number), pa.int64()) for number in numbers)), facts)

    def may_match(low: int | None, high: int | None) -> bool:
        stats = {"numRecords": 9, "minValues": {"n": low}, "maxValues": {"n": high}}
        return where.may_match(LogEvidence(AddAction("f", 1, 0, {}, json.dumps(stats), {}, None), facts))

    assert may_match(None, None)  # the list is sorted once
    Counted.comparisons = 0
    files = [(start, start + start % 40) for start in range(0, 100_000, 500 // 3)]
    files += [(number, number) for number in numbers[:100]]
    assert [may_match(*file) for file in files] == [any(low <= n <= high for n in numbers) for low, high in files]
    assert [may_match(max(numbers) + 1, None), may_match(None, min(numbers) - 1)] == [False, False]
    assert [may_match(max(numbers), None), may_match(None, min(numbers))] == [True, True]
    assert Counted.comparisons < 20 * len(files)
