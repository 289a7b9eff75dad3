"""Which files `optimize` rewrites: properties of `rewriting.arrangement`, without Spark."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_variant.rewriting import arrangement
from delta_variant.rewriting.arrangement import FULL, NONE, Files, grouped, overlaps, to_rewrite

TARGET = 100
intervals = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(1, 200)), max_size=25)


def files(ranges, runs=None, many_deleted=None):
    """Files with these (low, high) by key, and sizes."""
    sizes = np.array([size for *_, size in ranges], np.int64)
    ends = np.array([keys for *keys, _ in ranges], np.int64).reshape(len(ranges), len(ranges[0]) // 2 if ranges else 1, 2)
    runs = [NONE] * len(ranges) if runs is None else runs
    many_deleted = [False] * len(ranges) if many_deleted is None else many_deleted
    return Files(sizes, sizes, ends[:, :, 0], ends[:, :, 1], np.array(runs, np.int64), np.array(many_deleted, bool))


def one_key(rows):
    return files([(low, low + width, size) for low, width, size in rows])


def overlap(a, b):
    """Whether two ranges have more than an end in common; a range of one value has no inside."""
    return max(a[0], b[0]) < min(a[1], b[1]) or (a[0] < b[0] == b[1] < a[1]) or (b[0] < a[0] == a[1] < b[1])


def deepest(ranges):
    """With how many files a value can have to do that is not an end of any of them."""
    points = sorted({end for both in ranges for end in both})
    middles = [(a + b) / 2 for a, b in itertools.pairwise(points)]
    return max((sum(low < point < high for low, high in ranges) for point in middles), default=0)


@given(intervals)
def test_few_runs_are_left(rows):
    """The files that stay form two runs at most: no value lies inside more than two of their ranges."""
    found = one_key(rows)
    moved = set(np.concatenate([[], *to_rewrite(found, TARGET)]).astype(int))
    kept = [(found.low[i, 0], found.high[i, 0]) for i in range(len(found)) if i not in moved]
    assert deepest(kept) <= 2


@given(intervals)
def test_sets_are_apart(rows):
    """Each file is in one set at most."""
    sets = to_rewrite(one_key(rows), TARGET)
    together = np.concatenate([[], *sets])
    assert len(together) == len(set(together))


@given(intervals)
def test_nothing_to_do(rows):
    """Disjoint files of the right size stay, in whichever order they are."""
    ends = np.cumsum([width for _, width, _ in rows])
    apart = [(end - width, end, TARGET) for end, (_, width, _) in zip(ends, rows, strict=True)]
    assert to_rewrite(files(apart[::-1]), TARGET) == []


@settings(max_examples=300)
@given(st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=15), max_size=20))
def test_it_comes_to_rest(contents):
    """Files with real values, sorted and divided as `optimize` does it: after three calls there is nothing to do."""
    held = [(sorted(values), NONE) for values in contents]
    for run in range(4):
        rows = [(values[0], values[-1], 10 * len(values)) for values, _ in held]
        sets = to_rewrite(files(rows, [number for _, number in held]), TARGET)
        assert run < 3 or sets == []
        moved = {int(i) for chosen in sets for i in chosen}
        new = []
        for chosen in sets:
            values = np.sort(np.concatenate([held[i][0] for i in chosen]))
            new += [(part.tolist(), run) for part in np.array_split(values, math.ceil(10 * len(values) / (FULL * TARGET)))]
        held = [*(one for i, one in enumerate(held) if i not in moved), *new]
    assert sorted(itertools.chain(*(values for values, _ in held))) == sorted(itertools.chain(*contents))


@given(intervals)
def test_the_main_run(rows):
    """Those of the intervals that are kept are disjoint, and no other disjoint ones weigh more (by trying all of them)."""
    rows = rows[:9]
    low, high, weights = (
        np.array(values, np.int64) for values in zip(*[(a, a + w, s) for a, w, s in rows or [(0, 0, 1)]], strict=True)
    )
    chosen = arrangement._disjoint(low, high, weights)
    best = 0
    for count in range(len(low) + 1):
        for some in itertools.combinations(range(len(low)), count):
            if not any(overlap((low[a], high[a]), (low[b], high[b])) for a, b in itertools.combinations(some, 2)):
                best = max(best, int(weights[list(some)].sum()))
    assert int(weights[chosen].sum()) == best
    assert not any(overlap((low[a], high[a]), (low[b], high[b])) for a, b in itertools.combinations(chosen, 2))


@given(intervals.filter(len))
def test_overlaps(rows):
    """The measured overlap is the mean number of files that a file overlaps with, itself included (by comparing all pairs)."""
    found = one_key(rows)
    ranges = list(zip(found.low[:, 0].tolist(), found.high[:, 0].tolist(), strict=True))
    counts = [1 + sum(overlap(a, b) for j, b in enumerate(ranges) if i != j) for i, a in enumerate(ranges)]
    [measured] = overlaps(found, np.arange(len(found)))
    assert measured == pytest.approx(np.mean(counts))


def test_a_small_file_does_not_move_a_large_run():
    """A new file that overlaps with all others stays until there are many; then they are merged, first with each other."""
    large = [(i, i + 1, TARGET) for i in range(100)]
    assert to_rewrite(files([*large, (0, 100, 60)]), TARGET) == []
    [rest] = to_rewrite(files([*large, (0, 100, 60), (5, 90, 60)]), TARGET)
    assert rest.tolist() == [100, 101]
    [everything] = to_rewrite(files([*large, *[(0, 100, TARGET)] * 25]), TARGET)
    assert len(everything) == 125


def test_files_without_bounds():
    """A file without bounds may have any values and is rewritten, with others if it is large; one of a run has none (M5)."""
    ranged = [(i, i + 1, TARGET) for i in range(9)]
    found = files([*ranged, *[(NONE, NONE, TARGET)] * 3], [NONE] * 11 + [1])
    [rest] = to_rewrite(found, TARGET)
    assert rest.tolist() == [9, 10]
    [everything] = to_rewrite(files([*ranged[:4], (NONE, NONE, TARGET)]), TARGET)
    assert everything.tolist() == [4, 0, 1, 2, 3]
    [alone] = to_rewrite(files([(NONE, NONE, TARGET)]), TARGET)
    assert alone.tolist() == [0]


def test_small_neighbours_are_packed():
    """Neighbours that fit into one file are put together, without the keys too; a large file between them keeps them apart."""
    sizes = [30, 30, 30, 30, 100, 20, 70, 20]
    assert [s.tolist() for s in to_rewrite(files([(i, i + 1, n) for i, n in enumerate(sizes)]), TARGET)] == [[0, 1, 2]]
    none = Files(np.array(sizes), np.array(sizes), *(np.zeros((8, 0), np.int64),) * 2, np.full(8, NONE), np.zeros(8, bool))
    assert [s.tolist() for s in to_rewrite(none, TARGET)] == [[0, 1, 2]]


def test_files_with_many_deleted_rows():
    """They are rewritten even if they are in order."""
    found = files([(i, i + 1, TARGET) for i in range(4)], many_deleted=[False, True, False, False])
    assert [s.tolist() for s in to_rewrite(found, TARGET)] == [[1]]


def test_several_keys():
    """A grid of files is in order by two keys, files that span both are not; runs are merged when they have grown."""
    grid = [(i, i + 1, j, j + 1, TARGET) for i in range(8) for j in range(8)]
    spanning = [(0, 8, 0, 8, TARGET)] * 20
    assert to_rewrite(files(grid), TARGET) == []
    [everything] = to_rewrite(files(spanning), TARGET)
    assert len(everything) == 20
    assert to_rewrite(files([*grid, *spanning[:8]], [1] * 64 + [2] * 8), TARGET) == []
    [some] = to_rewrite(files([*grid, *spanning[:8]], [1] * 64 + [NONE] * 8), TARGET)
    assert some.tolist() == list(range(64, 72))
    [merged] = to_rewrite(files([*grid, *spanning], [1] * 64 + [2] * 20), TARGET)
    assert len(merged) == 84
    [lacking] = to_rewrite(files([*grid, (NONE, NONE, 0, 1, 5), (0, 1, 0, 1, 5)], [1] * 64 + [NONE] * 2), TARGET)
    assert lacking.tolist() == [64, 65]


def test_expected_bytes():
    """The size of rows in order is that of rows that are in order already, or else the one that they have."""
    found = Files(
        np.array([50, 10, 10]),
        np.array([5, 10, 10]),
        *[np.zeros((3, 1), np.int64)] * 2,
        np.array([1, NONE, NONE]),
        np.zeros(3, bool),
    )
    assert arrangement.expected_bytes(found, np.array([1, 2])) == 200
    assert arrangement.expected_bytes(found.some(np.array([1, 2])), np.array([0, 1])) == 20


@given(st.lists(st.integers(1, 50), max_size=20), st.integers(1, 60))
def test_jobs(sizes, most):
    """Jobs have all sets, in order, each of them whole; a job of several sets has at most so many bytes."""
    sets = [np.array([i]) for i in range(len(sizes))]
    found = grouped(sets, np.array(sizes, np.int64), most)
    assert [i for job in found for i in job] == list(range(len(sizes)))
    assert all(len(job) == 1 or sum(sizes[i] for i in job) <= most for job in found)
