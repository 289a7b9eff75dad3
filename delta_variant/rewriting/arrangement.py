"""Which files of a table are to be rewritten so that each holds a narrow range of the clustering keys. Pure.

In: for each file of one partition its size, the ranges of its keys by their bounds, and the run that it was written in, if it
has the tag of one. Out: sets of files, each of which is to be rewritten as one run.

A run is a set of files whose ranges hardly overlap. A look-up opens about one file of each run for a single key, and about
n^((k-1)/k) of its n files for one of k keys. Few runs are therefore good, and one is best, but every new file that is merged
into a large run costs a copy of that run. As in a log-structured merge tree, a run takes in the others when they have at least
a quarter of its rows. Smaller ones are merged with each other, and stay beside it. There are then two runs at most, and a
row is copied a few times however often the table grows.

    one key       the ranges are intervals. Files that overlap, directly or through others, form a component. The disjoint
                  intervals of a component with the most rows are its main run (weighted interval scheduling)
    several keys  runs are known by the tag CLUSTERED_TAG, since the ranges of a Hilbert curve's parts overlap in every
                  single key. Files without the tag are a run if their ranges overlap no more than those of a curve would

Invariant: when nothing is written in between, a second call leaves alone what the first one wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

CLUSTERED_TAG = "delta_variant.clustered"
"""The tag of a file that `optimize` wrote: a hash of the keys, a dot, and the number of the run (protocol/README.md, M5)."""
MERGED_SHARE = 4
"""A run takes in the others when they have one part in so many of its rows."""
FULL = 0.9
"""The size of a file that is aimed at, as a part of the largest: samples and compression vary."""
_SLACK = 2
"""Files are a run if a key is in at most so many times as many of them as on an ideal curve."""

Indices = NDArray[np.int64]
Ranges = NDArray[np.int64]
NONE = -1
"""The bounds of a file that has none."""


@dataclass(frozen=True)
class Files:
    """The files of one partition, in parallel arrays."""

    sizes: NDArray[np.int64]
    """In bytes. Rows in another order take another number of bytes, so runs are compared by their rows."""
    rows: NDArray[np.int64]
    low: Ranges
    """Of shape (files, keys): the rank of the smallest value of a key; NONE for a file without bounds."""
    high: Ranges
    """Of the largest value. Of strings that the log holds cut, this is the part that it holds, as in `low`."""
    runs: NDArray[np.int64]
    """The number of the run that the file was written in, for the same keys; NONE for other files."""
    many_deleted: NDArray[np.bool_]
    """Whether many rows of the file are deleted: it is then rewritten in any case."""

    def __len__(self) -> int:
        return len(self.sizes)

    def some(self, chosen: Indices) -> Files:
        return Files(*(getattr(self, field.name)[chosen] for field in fields(self)))


def to_rewrite(files: Files, target: int) -> list[Indices]:
    """The sets of files that are to be rewritten, each as indices of `files`: disordered ones, small ones, and those with
    many deleted rows.

    target: the size in bytes of new files. Files that are smaller than half of it are put together with their neighbours.
    """
    keys = files.low.shape[1]
    sets = _packed(files, np.arange(len(files)), target) if keys == 0 else _by_one_key(files, target)
    if keys > 1:
        sets = _by_several_keys(files)
    chosen = np.concatenate([np.zeros(0, np.int64), *sets])
    alone = np.setdiff1d(np.flatnonzero(files.many_deleted), chosen)
    return [*sets, *([alone] if len(alone) else [])]


# ---- one key -------------------------------------------------------------------------------------------------------------


def _by_one_key(files: Files, target: int) -> list[Indices]:
    low, high = files.low[:, 0].copy(), files.high[:, 0].copy()
    # A file without bounds may have any values, unless it was written in a run: then it has none that have an order.
    unknown = (low == NONE) & (files.runs == NONE)
    without = np.flatnonzero((low == NONE) & ~unknown)
    low[unknown], high[unknown] = NONE - 1, high.max(initial=0) + 1
    sets: list[Indices] = []
    kept: list[list[Indices]] = [[], []]  # the files of main runs that stay, and of the others
    for component in _components(np.setdiff1d(np.arange(len(files)), without), low, high):
        weights = np.where(unknown, 0, files.rows)[component]
        main = component[_disjoint(low[component], high[component], weights)]
        rest = np.setdiff1d(component, main)
        if len(rest) and MERGED_SHARE * files.rows[rest].sum() >= files.rows[main].sum():
            sets.append(component)
            continue
        kept[0].append(main)
        if unknown[rest].any() or len(_components(rest, low, high)) < len(rest):
            sets.append(rest)
        else:
            kept[1].append(rest)
    for run in (*map(np.concatenate, filter(None, kept)), without):
        in_order = run[np.lexsort((files.sizes[run], high[run], low[run]))]  # small files of one value are neighbours
        sets += _packed(files, in_order, target)
    return sets


def _components(chosen: Indices, low: NDArray[np.int64], high: NDArray[np.int64]) -> list[Indices]:
    """The files in groups that have no value in common, but for the ends of ranges; in the order of the ranges."""
    if not len(chosen):
        return []
    order = chosen[np.lexsort((high[chosen], low[chosen]))]
    starts = low[order][1:] >= np.maximum.accumulate(high[order])[:-1]
    return np.split(order, np.flatnonzero(starts) + 1)


def _disjoint(low: NDArray[np.int64], high: NDArray[np.int64], weights: NDArray[np.int64]) -> Indices:
    """Those of the intervals that overlap in no more than their ends and have the greatest weight together."""
    order = np.lexsort((low, high))
    before = np.minimum(np.searchsorted(high[order], low[order], side="right"), np.arange(len(order))).tolist()
    best = [0]
    for i, weight in enumerate(weights[order].tolist()):
        best.append(max(best[i], best[before[i]] + weight))
    taken, i = [], len(order)
    while i:
        if best[i] == best[i - 1]:
            i -= 1
        else:
            taken.append(order[i - 1])
            i = before[i - 1]
    return np.array(taken, np.int64)


def _packed(files: Files, run: Indices, target: int) -> list[Indices]:
    """Neighbours in a run that fit into one new file. Files of at least half the target stay as they are.

    A set is at most as large as the file that is aimed at. A larger one would be written as two files that are small again.
    """
    sets: list[Indices] = []
    group: list[int] = []
    total = 0
    for i, size in zip([*run.tolist(), NONE], [*files.sizes[run].tolist(), target], strict=True):
        small = 2 * size < target
        if group and (not small or total + size > FULL * target):
            if len(group) > 1:
                sets.append(np.array(group, np.int64))
            group, total = [], 0
        if small:
            group.append(i)
            total += size
    return sets


# ---- several keys --------------------------------------------------------------------------------------------------------


def _by_several_keys(files: Files) -> list[Indices]:
    runs = [np.flatnonzero(files.runs == run) for run in np.unique(files.runs[files.runs != NONE])]
    new = np.flatnonzero(files.runs == NONE)
    if len(new) and _is_run(files, new):
        runs, new = [*runs, new], new[:0]
    runs.sort(key=lambda run: -int(files.rows[run].sum()))
    if not runs:
        return [new] if len(new) else []
    main, rest = runs[0], np.concatenate([*runs[1:], new])
    if MERGED_SHARE * files.rows[rest].sum() >= files.rows[main].sum():
        return [np.concatenate([main, rest])] if len(rest) else []
    return [rest] if len(new) or len(runs) > 2 else []


def _is_run(files: Files, chosen: Indices) -> bool:
    """Whether the ranges of the files overlap no more, in each of the keys, than those of a Hilbert curve's parts."""
    count, keys = len(chosen), files.low.shape[1]
    if count > 1 and (files.low[chosen] == NONE).any():
        return False
    ideal = count ** ((keys - 1) / keys)
    return all(overlap <= _SLACK * ideal for overlap in overlaps(files, chosen))


def overlaps(files: Files, chosen: Indices) -> Iterator[float]:
    """For each key: with how many of the chosen files the range of one overlaps in more than an end, itself included."""
    for key in range(files.low.shape[1]):
        low, high = files.low[chosen, key], files.high[chosen, key]
        begun = np.searchsorted(np.sort(low), high, side="left")  # ranges that begin before the end of this one
        ended = np.searchsorted(np.sort(high), low, side="right")  # of those, the ones that end before it begins
        points = np.sort(low[low == high])
        single = low == high  # a single value is its own end
        equal = np.searchsorted(points, low, side="right") - np.searchsorted(points, low, side="left")
        counts = begun - ended + np.where(single, equal + 1, 0)
        yield float(np.maximum(counts, 1).mean()) if len(counts) else 0.0


def expected_bytes(files: Files, chosen: Indices) -> int:
    """The size of the chosen files in order: by that of files that are in order, or else by the size that they have."""
    known = np.flatnonzero(files.runs != NONE)
    known = known if len(known) else chosen
    return int(files.rows[chosen].sum() * files.sizes[known].sum() / max(1, files.rows[known].sum()))


def grouped(sets: Sequence[Indices], sizes: NDArray[np.int64], most: int) -> list[Indices]:
    """The sets in groups of at most about `most` bytes, each of which one job writes."""
    groups: list[Indices] = []
    group: list[Indices] = []
    total = 0
    for files in sets:
        size = int(sizes[files].sum())
        if group and total + size > most:
            groups.append(np.concatenate(group))
            group, total = [], 0
        group.append(files)
        total += size
    return [*groups, np.concatenate(group)] if group else groups
