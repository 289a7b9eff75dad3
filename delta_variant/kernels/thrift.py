"""Finds where a value of Thrift's compact protocol ends. A Parquet footer has tens of thousands of values, without lengths.

In: the bytes, the position where the value starts, and its type. Out: the position where it ends; -1 if the bytes are no such
value. A boolean has no bytes as a field, and one byte in a list. Source: Thrift, "Thrift Compact Protocol Encoding".
"""

# ruff: noqa: ANN001, ANN201, ANN202  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant.kernels.memory import allocating, jit

TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)

_DEPTH = 32
_FIELDS = -1  # marks a struct, in place of the number of elements that a list has left


@jit
def _varint(data, at):
    """An unsigned number and the position where it ends, which is past the end of the bytes if the number is cut off."""
    value = shift = 0
    while at < len(data):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    return 0, len(data) + 1


@allocating
def value_end(data, at, kind):
    """The position where the value at `at` ends, or -1.

    The walk keeps, for each list and struct around its position, the number of elements left (_FIELDS for a struct) and their
    type.
    """
    left, kinds = np.empty(_DEPTH, np.int64), np.empty(_DEPTH, np.int64)
    depth = -1
    in_list = False
    while True:
        if kind in (LIST, SET, STRUCT):
            depth += 1
            if depth == _DEPTH:
                return -1
            left[depth] = _FIELDS
            if kind != STRUCT:
                if at >= len(data):
                    return -1
                left[depth], kinds[depth] = data[at] >> 4, data[at] & 15
                at += 1
                if left[depth] == 15:
                    left[depth], at = _varint(data, at)
        elif kind == I8 or (in_list and (kind in (TRUE, FALSE))):
            at += 1
        elif kind in (I16, I32, I64):
            _, at = _varint(data, at)
        elif kind == DOUBLE:
            at += 8
        elif kind == BINARY:
            size, at = _varint(data, at)
            at += size
        elif kind not in (TRUE, FALSE):
            return -1
        while depth >= 0:
            if at < 0 or at > len(data):
                return -1
            in_list = left[depth] != _FIELDS
            if in_list and left[depth] > 0:
                left[depth] -= 1
                kind = kinds[depth]
                break
            if not in_list:
                if at == len(data):
                    return -1
                header = data[at]
                at += 1
                if header != 0:
                    kind = header & 15
                    if header >> 4 == 0:
                        _, at = _varint(data, at)
                    break
            depth -= 1
        if depth < 0:
            return at if 0 <= at <= len(data) else -1
