"""Checks a Parquet footer before pyarrow gets it, in one pass over its bytes.

pyarrow parses a damaged footer and then trusts it. Its accessors of column chunks cannot pass on Arrow's exceptions, which end
the process. This module checks what they trust, and that a footer does not contradict itself. Most files with one changed byte
are then an error, and do not give other rows.

In: the bytes of a footer (FileMetaData), and the number of bytes of the file before it. Out: a code of FAULTS with the numbers
of the row group and the column. Source: parquet-format, `parquet.thrift`.

Checked are the encoding (types of fields and elements, ascending ids, lengths, depth); the tree of the schema; for each row
group that its columns are those of the schema, by their paths and types, and have as many values as it has rows; that pages are
within the file, and no two columns share bytes; codecs; the lengths of histograms of levels; and the numbers of nulls. Bounds
that are shorter than a value are no error, since other writers cut those of long values: they are reported, to be removed.
"""

# ruff: noqa: ANN001, ANN201, ANN202  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant.kernels.compiler import allocating, called, helper
from delta_variant.kernels.memory import is_utf8
from delta_variant.kernels.thrift import (
    BINARY,
    DEPTH,
    I16,
    I32,
    I64,
    STRUCT,
    TRUE,
    end_of,
    integer,
    known_field,
    list_header,
    list_of,
    struct_end,
    text,
    types,
)

BAD_THRIFT, BAD_TREE, DEEP, BAD_NAME, BAD_TYPE, BAD_COUNT, NO_METADATA, ENCRYPTED, ELSEWHERE = range(1, 10)
BAD_PATH, BAD_KIND, BAD_CODEC, BAD_VALUES, BAD_PLACE, BAD_NULLS, BAD_LEVELS, BAD_ROWS, SHARED, TOO_MANY_ROWS = range(10, 20)
FAULTS = {
    BAD_THRIFT: "it is not a FileMetaData of Thrift's compact protocol",
    BAD_TREE: "the schema is not a tree of columns",
    DEEP: "the schema is nested too deeply",
    BAD_NAME: "a name is not valid UTF-8",
    BAD_TYPE: "the schema has a column of an unknown type",
    BAD_COUNT: "a row group has more or fewer columns than the schema",
    NO_METADATA: "a column chunk has no metadata",
    ENCRYPTED: "a column is encrypted",
    ELSEWHERE: "a column is in another file",
    BAD_PATH: "the path of a column chunk differs from that in the schema",
    BAD_KIND: "the type of a column chunk differs from that in the schema",
    BAD_CODEC: "a column chunk has an unknown compression",
    BAD_VALUES: "the number of values of a column differs from the rows of its row group",
    BAD_PLACE: "a column chunk is not within the file",
    BAD_NULLS: "a column chunk has more nulls than values",
    BAD_LEVELS: "the size statistics of a column chunk contradict the schema",
    BAD_ROWS: "the numbers of rows of the file and of its row groups contradict each other",
    SHARED: "two column chunks share bytes of the file",
    TOO_MANY_ROWS: "a row group has more than 2,147,483,647 rows",
}

UNSUPPORTED = {ENCRYPTED, ELSEWHERE, TOO_MANY_ROWS}
"""Faults of files that are not damaged."""

MAX_DEPTH = 100
"""As in pyarrow 26. Older versions recurse as deep as the schema says."""
_MAX_ROWS = (1 << 31) - 1  # of a row group; readers hold a flag for each row
_MAX_CODEC, _MAX_TYPE, _REPEATED = 7, 7, 2
_BYTE_ARRAY, _FIXED = 6, 7
_WIDTHS = np.array([1, 4, 8, 12, 4, 8, 0, 0])  # bytes of a value by physical type
_MAGIC = 4  # bytes
_ELEMENT_BYTES, _CHUNK_BYTES = 3, 19  # at least: the fields that must be there

CODE, GROUP, COLUMN, LEAVES, CHUNKS, CUTS, ROWS, ORDERED, LAST = range(9)
WORDS = LAST + 1
"""The words of `state`. CUTS: how many column chunks have bounds that are shorter than a value. ORDERED: whether the ranges of
column chunks ascend so far, the last one up to LAST."""

_KIND, _LENGTH, _DEFINITION, _REPETITION, _ELEMENT = range(5)
"""The columns of `leaves`: physical type, its length, levels, and the number of the schema element."""
_LEFT = _KIND
"""Of groups around an element, in place of a type: how many children are to come."""
_PARENT, _NAME, _NAME_END = range(3)
"""The columns of `elements`."""
START, SIZE, CUT = range(3)
"""The columns of `ranges`. CUT: whether bounds are shorter than a value."""


@helper
def _fail(state, code):
    state[CODE] = code
    return np.int64(-1)


_TEXTS, _I32S, _I64S, _STRUCTS = (list_of(kind) for kind in (BINARY, I32, I64, STRUCT))
_FILE = types(I32, _STRUCTS, I64, _STRUCTS, _STRUCTS, BINARY, _STRUCTS, STRUCT, BINARY)
_SCHEMA_ELEMENT = types(I32, I32, I32, BINARY, I32, I32, I32, I32, I32, STRUCT)
_LOGICAL_TYPE = types(*8 * [STRUCT], 0, *9 * [STRUCT])
_ROW_GROUP = types(_STRUCTS, I64, I64, _STRUCTS, I64, I64, I16)
_COLUMN_CHUNK = types(BINARY, I64, STRUCT, I64, I32, I64, I32, STRUCT, BINARY)
_META_DATA = types(I32, _I32S, _TEXTS, I32, I64, I64, I64, _STRUCTS, I64, I64, I64, STRUCT, _STRUCTS, I64, I32, STRUCT, STRUCT)
_STATISTICS = types(BINARY, BINARY, I64, I64, BINARY, BINARY, TRUE, TRUE)
_SIZE_STATISTICS = types(I64, _I64S, _I64S)
_GEOSPATIAL_STATISTICS = types(STRUCT, _I32S)


@helper
def _number(data, at, kind):
    """A number; the position is past the end of the bytes if it does not fit its type."""
    value, at = integer(data, at)
    return value, at if kind == I64 or -(1 << 31) <= value < 1 << 31 else len(data) + 1


@called
def _element(data, at, state, element):
    """Reads a SchemaElement into `element`: type, length, repetition, children, name, its end. Returns its end, or -1."""
    element[0], element[1], element[2], element[3], element[4], element[5] = -1, 0, 0, 0, -1, -1
    number = np.int64(0)
    left, kinds = element[8 : 8 + DEPTH], element[8 + DEPTH :]
    while True:
        number, kind, at = known_field(data, at, number, _SCHEMA_ELEMENT)
        if at > len(data):
            return _fail(state, BAD_THRIFT)
        if number == 0:
            break
        if number in (1, 2, 3, 5):
            value, at = _number(data, at, kind)
            element[3 if number == 5 else number - 1] = value
        elif number == 4:
            element[4], at = text(data, at)
            element[5] = at
        elif number == 10:
            at = struct_end(data, at, _LOGICAL_TYPE, left, kinds)
        else:
            at = end_of(data, at, kind, left, kinds)
        if not 0 <= at <= len(data):
            return _fail(state, BAD_THRIFT)
    if element[4] < 0 or not is_utf8(data, element[4], element[5] - element[4]):
        return _fail(state, BAD_NAME)
    if element[3] < 0 or not 0 <= element[2] <= _REPEATED:
        return _fail(state, BAD_TREE)
    if not -1 <= element[0] <= _MAX_TYPE or (element[0] == _FIXED and element[1] <= 0):
        return _fail(state, BAD_TYPE)
    return np.int64(at)


@called
def _schema(data, at, state, elements, leaves, around, element):
    """Reads the tree of the schema. Returns its end, or -1. around: room for the groups around, see _LEFT."""
    count, _, at = list_header(data, at)
    if at > len(data) or count > len(elements):
        return _fail(state, BAD_THRIFT)
    depth = np.int64(-1)
    for number in range(count):
        at = _element(data, at, state, element)
        if at < 0:
            return at
        while depth >= 0 and around[depth, _LEFT] == 0:
            depth -= 1
        if (depth < 0) != (number == 0):
            return _fail(state, BAD_TREE)
        definition = repetition = np.int64(0)
        parent = np.int64(-1)
        if number:
            around[depth, _LEFT] -= 1
            definition = around[depth, _DEFINITION] + (element[2] != 0)
            repetition = around[depth, _REPETITION] + (element[2] == _REPEATED)
            parent = around[depth, _ELEMENT]
        elements[number, _PARENT], elements[number, _NAME], elements[number, _NAME_END] = parent, element[4], element[5]
        if number and element[3] == 0 and element[0] >= 0:
            leaf = state[LEAVES]
            leaves[leaf, _KIND], leaves[leaf, _LENGTH], leaves[leaf, _ELEMENT] = element[0], element[1], number
            leaves[leaf, _DEFINITION], leaves[leaf, _REPETITION] = definition, repetition
            state[LEAVES] += 1
        else:
            depth += 1
            if depth == MAX_DEPTH:
                return _fail(state, DEEP)
            around[depth, _LEFT], around[depth, _ELEMENT] = element[3], number
            around[depth, _DEFINITION], around[depth, _REPETITION] = definition, repetition
    while depth >= 0 and around[depth, _LEFT] == 0:
        depth -= 1
    return _fail(state, BAD_TREE) if depth >= 0 or count == 0 else np.int64(at)


@called
def _path(data, at, state, elements, element):
    """Compares the path of a column chunk with that of its schema element. Returns its end, or -1."""
    count, _, at = list_header(data, at)
    depth = np.int64(0)
    above = element
    while elements[above, _PARENT] >= 0:
        above = elements[above, _PARENT]
        depth += 1
    if at > len(data):
        return _fail(state, BAD_THRIFT)
    if count != depth:
        return _fail(state, BAD_PATH)
    for step in range(depth):
        above = element
        for _ in range(depth - 1 - step):
            above = elements[above, _PARENT]
        at, end = text(data, at)
        if end > len(data):
            return _fail(state, BAD_THRIFT)
        name = elements[above, _NAME]
        if end - at != elements[above, _NAME_END] - name:
            return _fail(state, BAD_PATH)
        for k in range(end - at):
            if data[at + k] != data[name + k]:
                return _fail(state, BAD_PATH)
        at = end
    return np.int64(at)


@called
def _statistics(data, at, state, leaf, found):
    """Reads Statistics. Returns their end, or -1. found: the number of nulls, -1 without; whether bounds are too short."""
    number = np.int64(0)
    while True:
        number, kind, at = known_field(data, at, number, _STATISTICS)
        if at > len(data) or number == 0:
            return np.int64(at) if at <= len(data) else _fail(state, BAD_THRIFT)
        if number in (1, 2, 5, 6):
            start, at = text(data, at)
            width = leaf[_LENGTH] if leaf[_KIND] == _FIXED else _WIDTHS[leaf[_KIND]]
            if at - start < width:
                found[1] = 1
        elif number == 3:
            found[0], at = integer(data, at)
            if found[0] < 0:
                return _fail(state, BAD_NULLS)
        else:
            at = end_of(data, at, kind, found[2 : 2 + DEPTH], found[2 + DEPTH :])
        if not 0 <= at <= len(data):
            return _fail(state, BAD_THRIFT)


@called
def _sizes(data, at, state, leaf, scratch):
    """Checks SizeStatistics. Returns their end, or -1."""
    number = np.int64(0)
    while True:
        number, kind, at = known_field(data, at, number, _SIZE_STATISTICS)
        if at > len(data) or number == 0:
            return np.int64(at) if at <= len(data) else _fail(state, BAD_THRIFT)
        if number == 1:
            value, at = integer(data, at)
            if leaf[_KIND] != _BYTE_ARRAY or value < 0:
                return _fail(state, BAD_LEVELS)
        elif number in (2, 3):
            count, _, at = list_header(data, at)
            if at <= len(data) and count and count != 1 + (leaf[_REPETITION] if number == 2 else leaf[_DEFINITION]):
                return _fail(state, BAD_LEVELS)
            for _ in range(count):
                if at > len(data):
                    break
                _, at = integer(data, at)
        else:
            at = end_of(data, at, kind, scratch[:DEPTH], scratch[DEPTH:])
        if not 0 <= at <= len(data):
            return _fail(state, BAD_THRIFT)


@called
def _metadata(data, at, state, elements, leaf, found):
    """Reads ColumnMetaData into `found`: values, start, size, where data pages start. Returns its end, or -1."""
    number = np.int64(0)
    has = np.int64(0)
    dictionary = np.int64(0)
    nulls = found[8:]
    nulls[0], nulls[1] = -1, 0
    while True:
        number, kind, at = known_field(data, at, number, _META_DATA)
        if at > len(data):
            return _fail(state, BAD_THRIFT)
        if number == 0:
            break
        if number < 16:
            has |= np.int64(1) << number
        if number == 1:
            value, at = _number(data, at, kind)
            if at <= len(data) and value != leaf[_KIND]:
                return _fail(state, BAD_KIND)
        elif number == 3:
            at = _path(data, at, state, elements, leaf[_ELEMENT])
        elif number == 4:
            value, at = _number(data, at, kind)
            if not 0 <= value <= _MAX_CODEC:
                return _fail(state, BAD_CODEC)
        elif number in (5, 6, 7, 9, 11):
            value, at = integer(data, at)
            if value < 0:
                return _fail(state, BAD_PLACE if number != 5 else BAD_VALUES)
            if number == 5:
                found[0] = value
            elif number == 7:
                found[2] = value
            elif number == 9:
                found[1] = value
            elif number == 11:
                dictionary = value
        elif number == 12:
            at = _statistics(data, at, state, leaf, nulls)
        elif number == 16:
            at = _sizes(data, at, state, leaf, nulls[2:])
        elif number == 17:
            at = struct_end(data, at, _GEOSPATIAL_STATISTICS, nulls[2 : 2 + DEPTH], nulls[2 + DEPTH :])
        else:
            at = end_of(data, at, kind, nulls[2 : 2 + DEPTH], nulls[2 + DEPTH :])
        if at < 0 and state[CODE]:
            return at
        if not 0 <= at <= len(data):
            return _fail(state, BAD_THRIFT)
    if has & 0b1011111110 != 0b1011111110:  # 1 to 7 and 9 are required
        return _fail(state, BAD_THRIFT)
    if nulls[0] > found[0]:
        return _fail(state, BAD_NULLS)
    state[CUTS] += nulls[1]
    found[3] = found[1]
    if 0 < dictionary < found[1]:
        found[1] = dictionary
    return np.int64(at)


@called
def _chunk(data, at, end, state, elements, leaf, found):
    """Checks a ColumnChunk. Returns its end, or -1."""
    number = np.int64(0)
    has_metadata = False
    while True:
        number, kind, at = known_field(data, at, number, _COLUMN_CHUNK)
        if at > len(data):
            return _fail(state, BAD_THRIFT)
        if number == 0:
            break
        if number == 3:
            has_metadata = True
            at = _metadata(data, at, state, elements, leaf, found)
            if at < 0:
                return at
        elif number == 1:
            start, at = text(data, at)
            if start < at <= len(data):
                return _fail(state, ELSEWHERE)
        elif number in (8, 9):
            return _fail(state, ENCRYPTED)
        else:
            at = end_of(data, at, kind, found[10 : 10 + DEPTH], found[10 + DEPTH :])
        if not 0 <= at <= len(data):
            return _fail(state, BAD_THRIFT)
    if not has_metadata:
        return _fail(state, NO_METADATA)
    if found[0] == 0:  # pyarrow writes other offsets then
        found[2] = 0
    elif found[1] < _MAGIC or found[1] > end or found[2] > end - found[1] or found[3] >= found[1] + found[2]:
        return _fail(state, BAD_PLACE)
    return np.int64(at)


@called
def _row_group(data, at, end, state, elements, leaves, ranges, found):
    """Checks a RowGroup. Returns its end, or -1."""
    number = np.int64(0)
    rows = np.int64(-1)
    size = np.int64(-1)
    flat = least = np.int64(-1)  # values of the columns without repetition, and the fewest of the others
    seen = False
    while True:
        number, kind, at = known_field(data, at, number, _ROW_GROUP)
        if at > len(data):
            return _fail(state, BAD_THRIFT)
        if number == 0:
            break
        if number == 1:
            count, _, at = list_header(data, at)
            if at > len(data):
                return _fail(state, BAD_THRIFT)
            if count != state[LEAVES]:
                return _fail(state, BAD_COUNT)
            seen = True
            for column in range(count):
                state[COLUMN] = column
                at = _chunk(data, at, end, state, elements, leaves[column], found)
                if at < 0:
                    return at
                values = found[0]
                if leaves[column, _REPETITION] == 0:
                    if flat >= 0 and values != flat:
                        return _fail(state, BAD_VALUES)
                    flat = values
                elif least < 0 or values < least:
                    least = values
                chunk = state[CHUNKS]
                state[CHUNKS] += 1
                ranges[chunk, START], ranges[chunk, SIZE], ranges[chunk, CUT] = found[1], found[2], found[9]
                if found[2]:
                    if found[1] < state[LAST]:
                        state[ORDERED] = 0
                    state[LAST] = found[1] + found[2]
            state[COLUMN] = -1
        elif number in (2, 3):
            value, at = integer(data, at)
            if value < 0:
                return _fail(state, BAD_ROWS)
            if number == 3:
                rows = value
            else:
                size = value
        else:
            at = end_of(data, at, kind, found[10 : 10 + DEPTH], found[10 + DEPTH :])
        if not 0 <= at <= len(data):
            return _fail(state, BAD_THRIFT)
    if not seen or rows < 0 or size < 0:
        return _fail(state, BAD_THRIFT)
    if (flat >= 0 and flat != rows) or (least >= 0 and least < rows):
        return _fail(state, BAD_VALUES)
    if rows > _MAX_ROWS:
        return _fail(state, TOO_MANY_ROWS)
    state[ROWS] += rows
    return np.int64(at)


@allocating
def check(data, end, state):
    """Checks a footer. Returns the ranges of its column chunks, a line each: see START.

    data: its bytes. end: the bytes of the file before it. state: zeros; see CODE. Whether ranges that are not in order overlap
    is for the caller to find out.
    """
    state[GROUP] = state[COLUMN] = -1
    state[ORDERED] = 1
    rows = np.int64(-1)
    number = at = np.int64(0)
    has_schema = has_groups = is_signed = False
    scratch = np.empty(10 + 2 * DEPTH, np.int64)
    elements, leaves, ranges = np.empty((0, 3), np.int64), np.empty((0, 5), np.int64), np.empty((0, 3), np.int64)
    while True:
        number, kind, at = known_field(data, at, number, _FILE)
        if at > len(data) or number == 0:
            break
        if number == 2:
            has_schema = True
            count, _, _ = list_header(data, at)
            count = min(count, len(data) // _ELEMENT_BYTES)
            elements, leaves = np.empty((count, 3), np.int64), np.empty((count, 5), np.int64)
            at = _schema(data, at, state, elements, leaves, np.empty((MAX_DEPTH, 5), np.int64), scratch)
        elif number == 3:
            rows, at = integer(data, at)
        elif number == 4 and has_schema:
            has_groups = True
            count, _, at = list_header(data, at)
            ranges = np.empty((min(count * state[LEAVES], len(data) // _CHUNK_BYTES), 3), np.int64)
            for group in range(count if at <= len(data) else 0):
                state[GROUP] = group
                at = _row_group(data, at, end, state, elements, leaves, ranges, scratch)
                if at < 0:
                    break
            if at >= 0:
                state[GROUP] = -1
        elif number == 4:
            at = _fail(state, BAD_THRIFT)
        else:
            is_signed |= number == 8
            at = end_of(data, at, kind, scratch[:DEPTH], scratch[DEPTH:])
        if at < 0:
            break
    if state[CODE] == 0:
        if not 0 <= at <= len(data) or not has_groups or rows < 0 or (at < len(data) and not is_signed):
            state[CODE] = BAD_THRIFT
        elif rows != state[ROWS]:
            state[CODE] = BAD_ROWS
    return ranges[: state[CHUNKS]]
