"""Membership filters of sets of hashes: `build` and `contains` (the package's docstring has the theory).

In: distinct 64-bit hashes. Out: bytes, little-endian words. Invariants: a filter contains every hash that it was built from.
Building never fails, and is deterministic.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from delta_variant.kernels import ribbon as kernels

Hashes = npt.NDArray[np.uint64]

MIN_COLUMNS = 2
"""A filter of fewer bits a value lets a third of the other files pass, or more."""
MAX_COLUMNS = 60
MAX_VALUES = 1 << 23
"""A filter has at most so many values: building it takes 16 bytes for each."""


def shape(values: int, size: int, max_columns: int) -> tuple[int, int] | None:
    """(words of a column, words of the filter) of the best filter for a number of values in `size` bytes.

    None if there is no room for MIN_COLUMNS. A column has (5 + columns / 4) / 64 more rows than values. With 5 % more, a filter
    of 10,000 values is mostly better, by a twentieth, but now and then so many equations coincide that 40 times as many other
    values pass.

    >>> shape(1000, 1100, 10)
    (18, 137)
    """
    columns = min(8 * size / max(1, values), max_columns)
    words = max(1, math.ceil(values * (1 + (5 + columns / 4) / 64) / 64))
    total = min(size // 8, max_columns * words)
    return (words, total) if total >= MIN_COLUMNS * words else None


def build(hashes: Hashes, words: int, total: int) -> bytes:
    """A filter of distinct hashes. words, total: what `shape` gives for their number."""
    rows = np.zeros(64 * words, np.uint64)
    kernels.band(hashes, words, rows)
    solution = np.zeros(total, np.uint64)
    kernels.solve(rows, words, np.zeros(-(-total // words), np.uint64), solution)
    return solution.tobytes()


def contains(data: bytes, words: int, hashes: Hashes) -> npt.NDArray[np.bool_]:
    """For each hash, whether the filter may contain it."""
    found = np.empty(len(hashes), np.bool_)
    kernels.probe(hashes, words, np.frombuffer(data, np.uint64), found)
    return found
