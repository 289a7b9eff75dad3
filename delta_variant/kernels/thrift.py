"""Thrift's compact protocol: numbers, the headers of fields, and where values end. Values carry no length.

In: the bytes, the position where something starts, and its type. Out: the position where it ends; a position past the end of
the bytes, or -1, if the bytes are not such a value. A boolean has no bytes as a field, and one byte in a list. Source: Thrift,
"Thrift Compact Protocol Encoding".
"""

# ruff: noqa: ANN001, ANN201  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant.kernels.compiler import allocating, called, helper

TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)

DEPTH = 32
"""How deep values may be nested that are passed over."""
_FIELDS = -1  # marks a struct, in place of the number of elements that a list has left


@helper
def varint(data, at):
    """An unsigned number of 64 bits, and the position where it ends, past the end of the bytes if it is cut off or longer."""
    if at < len(data) and data[at] < 0x80:
        return np.int64(data[at]), at + 1
    value = np.int64(0)
    for shift in range(0, 64, 7):
        if at >= len(data):
            break
        byte = np.int64(data[at])
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
    return np.int64(0), len(data) + 1


@called
def integer(data, at):
    """A signed number, and the position where it ends."""
    value, at = varint(data, at)
    return ((value >> 1) & np.int64(0x7FFFFFFFFFFFFFFF)) ^ -(value & 1), at


@called
def text(data, at):
    """Where a text starts, and where it ends: past the end of the bytes if it does not fit."""
    size, at = varint(data, at)
    return at, at + size if 0 <= size <= len(data) - at else len(data) + 1


@called
def list_header(data, at):
    """The length of a list, the type of its elements, and where they start.

    The position is past the end of the bytes, and the length 0, if they cannot have so many elements.
    """
    if at >= len(data):
        return np.int64(0), np.int64(0), len(data) + 1
    count, kind = np.int64(data[at]) >> 4, np.int64(data[at]) & 15
    at += 1
    if count == 15:
        count, at = varint(data, at)
    if not 0 <= count <= len(data) - at:
        return np.int64(0), kind, len(data) + 1
    return count, kind, at


@helper
def field(data, at, last):
    """The id of a field, its type, and where its value starts. The id is 0 at the end of the struct.

    last: the id of the field before. The position is past the end of the bytes if they are not a field, or if ids do not
    ascend: those of every writer do.
    """
    if at >= len(data):
        return np.int64(0), np.int64(0), len(data) + 1
    header = np.int64(data[at])
    at += 1
    if header == 0:
        return np.int64(0), header, at
    number = last + (header >> 4)
    if header >> 4 == 0:
        number, at = integer(data, at)
    return number, header & 15, at if last < number < 1 << 15 else len(data) + 1


_ELEMENT = 4  # the type of the elements of a list is stored so many bits above LIST


def list_of(kind):
    """The type of a list of elements of a type, for `types`."""
    return LIST | kind << _ELEMENT


def types(*kinds: int):
    """The types of the fields 1, 2, … of a struct, for `known_field`: 0 for an id that is not used, TRUE for a boolean."""
    return np.array((0, *kinds))


@helper
def known_field(data, at, last, kinds):
    """`field`; the position is past the end of the bytes also if the field has another type than in `kinds`, or other elements.

    Generated readers of Thrift pass over a field of another type. They read elements of a list as the type that they expect,
    whatever the list says, and would find other fields after it than a reader that believes the list.
    """
    number, kind, at = field(data, at, last)
    if at <= len(data) and 0 < number < len(kinds) and kinds[number]:
        wanted = kinds[number]
        if kind != wanted & 15 and not (wanted == TRUE and kind == FALSE):
            return number, kind, len(data) + 1
        if wanted >> _ELEMENT:
            count, inner, _ = list_header(data, at)
            if count and inner != wanted >> _ELEMENT:
                return number, kind, len(data) + 1
    return number, kind, at


@called
def end_of(data, at, kind, left, kinds):
    """The position where the value at `at` ends, or -1.

    left, kinds: room for what the walk keeps for each list and struct around its position: the number of elements left
    (_FIELDS for a struct), and their type.
    """
    depth = -1
    in_list = False
    while True:
        if kind in (LIST, SET, STRUCT):
            depth += 1
            if depth == DEPTH:
                return np.int64(-1)
            left[depth] = _FIELDS
            if kind != STRUCT:
                left[depth], kinds[depth], at = list_header(data, at)
        elif kind == I8 or (in_list and (kind in (TRUE, FALSE))):
            at += 1
        elif kind in (I16, I32, I64):
            _, at = varint(data, at)
        elif kind == DOUBLE:
            at += 8
        elif kind == BINARY:
            _, at = text(data, at)
        elif kind not in (TRUE, FALSE):
            return np.int64(-1)
        while depth >= 0:
            if at > len(data):
                return np.int64(-1)
            in_list = left[depth] != _FIELDS
            if in_list and left[depth] > 0:
                left[depth] -= 1
                kind = kinds[depth]
                break
            if not in_list:
                if at == len(data):
                    return np.int64(-1)
                header = np.int64(data[at])
                at += 1
                if header != 0:
                    kind = header & 15
                    if header >> 4 == 0:
                        _, at = varint(data, at)
                    break
            depth -= 1
        if depth < 0:
            return np.int64(at) if at <= len(data) else np.int64(-1)


@called
def struct_end(data, at, known, left, kinds):
    """The position where a struct ends, or -1; the types of its fields are checked. known: as `known_field`."""
    number = np.int64(0)
    while True:
        number, kind, at = known_field(data, at, number, known)
        if at > len(data) or number == 0:
            return np.int64(at) if at <= len(data) else np.int64(-1)
        at = end_of(data, at, kind, left, kinds)
        if at < 0:
            return np.int64(-1)


@allocating
def value_end(data, at, kind):
    """The position where the value at `at` ends, or -1."""
    return end_of(data, at, kind, np.empty(DEPTH, np.int64), np.empty(DEPTH, np.int64))
