"""Hashes of values, and ribbon filters over them (`membership` has the theory).

In: the buffers of an Arrow string array, or distinct hashes. Out: 64-bit hashes; the words of a filter; whether a filter has
hashes. A filter has columns of bits, one word after the other. `words` is the number of words in a full column: a filter of
2 * words + 3 words has two full columns and one whose bits after its third word are zero and not stored.

Source: xxHash specification 0.1.1, "XXH64"; Dillinger, Hübschle-Schneider, Sanders and Walzer, "Fast Succinct Retrieval and
Approximate Membership Using Ribbon" (SEA 2022), "homogeneous ribbon filter".
"""

# ruff: noqa: ANN001, ANN201, ANN202  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant.kernels.compiler import helper, high_product, jit, population, u32, u64

_P1, _P2, _P3 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)
_P4, _P5 = np.uint64(0x85EBCA77C2B2AE63), np.uint64(0x27D4EB2F165667C5)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_ZERO, _ONE = np.uint64(0), np.uint64(1)


@helper
def _rotated(x, bits):
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@helper
def _round(state, word):
    return _rotated(state + word * _P2, 31) * _P1


@helper
def _merged(state, lane):
    return (state ^ _round(_ZERO, lane)) * _P1 + _P4


@helper
def _xxh64(data, at, end):
    """XXH64 of some bytes, with the seed 0."""
    size = end - at
    if size >= 32:
        a, b, c, d = _P1 + _P2, _P2, _ZERO, _ZERO - _P1
        while end - at >= 32:
            a, b = _round(a, u64(data, at)), _round(b, u64(data, at + 8))
            c, d = _round(c, u64(data, at + 16)), _round(d, u64(data, at + 24))
            at += 32
        state = _rotated(a, 1) + _rotated(b, 7) + _rotated(c, 12) + _rotated(d, 18)
        state = _merged(_merged(_merged(_merged(state, a), b), c), d)
    else:
        state = _P5
    state += np.uint64(size)
    while end - at >= 8:
        state = _rotated(state ^ _round(_ZERO, u64(data, at)), 27) * _P1 + _P4
        at += 8
    if end - at >= 4:
        state = _rotated(state ^ (np.uint64(u32(data, at)) * _P1), 23) * _P2 + _P3
        at += 4
    while at < end:
        state = _rotated(state ^ (np.uint64(data[at]) * _P5), 11) * _P1
        at += 1
    state = (state ^ (state >> np.uint64(33))) * _P2
    state = (state ^ (state >> np.uint64(29))) * _P3
    return state ^ (state >> np.uint64(32))


@jit
def hash_texts(data, offsets, hashes):
    """Sets hashes[i] to XXH64 of data[offsets[i]:offsets[i + 1]]."""
    for i in range(len(hashes)):
        hashes[i] = _xxh64(data, np.int64(offsets[i]), np.int64(offsets[i + 1]))


@helper
def _mixed(x):
    """The finalizer of SplitMix64: a permutation whose every bit depends on every bit."""
    x = (x ^ (x >> np.uint64(30))) * _M1
    x = (x ^ (x >> np.uint64(27))) * _M2
    return x ^ (x >> np.uint64(31))


@helper
def _start(value, words):
    """The first of the 64 rows of a hash: the upper half of its product with the number of possible rows, below 2**32."""
    rows = np.uint64(words) * np.uint64(64) - np.uint64(63)
    return np.int64(high_product(value, rows))


@jit
def band(hashes, words, rows):
    """Gaussian elimination: sets rows[i] to the coefficients of an equation that begins at row i, 0 for a free row.

    rows: zeros, 64 * words of them.
    """
    for value in hashes:
        at, equation = _start(value, words), _mixed(value) | _ONE
        while equation != _ZERO:
            if rows[at] == _ZERO:
                rows[at] = equation
                break
            equation ^= rows[at]
            if equation != _ZERO:
                while equation & _ONE == _ZERO:
                    equation >>= _ONE
                    at += 1


@jit
def solve(rows, words, states, solution):
    """Sets `solution`, all columns of a filter, so that every equation of `rows` is 0. Free rows get pseudo-random bits.

    states: a word for each column, the last of which may be shorter; zeros.
    """
    for row in range(64 * words - 1, -1, -1):
        equation = rows[row]
        free = _mixed(np.uint64(row) + _P3)
        word = row >> 6
        columns = (len(solution) - word - 1) // words + 1
        for column in range(columns):
            state = states[column] << _ONE
            bit = (free >> np.uint64(column)) & _ONE if equation == _ZERO else population(state & equation) & _ONE
            states[column] = state | bit
            if row & 63 == 0:
                solution[column * words + word] = states[column]


@jit
def probe(hashes, words, solution, found):
    """Sets found[i] to whether the filter may have hashes[i]: no for a hash that it was not made of, most of the time."""
    for i in range(len(hashes)):
        at, equation = _start(hashes[i], words), _mixed(hashes[i]) | _ONE
        word, shift = at >> 6, np.uint64(at & 63)
        found[i] = True
        column = word
        while column < len(solution):
            last = column + (1 if shift != _ZERO else 0)
            if last >= len(solution):
                break
            bits = solution[column] >> shift
            if shift != _ZERO:
                bits |= solution[last] << (np.uint64(64) - shift)
            if population(bits & equation) & _ONE:
                found[i] = False
                break
            column += words
