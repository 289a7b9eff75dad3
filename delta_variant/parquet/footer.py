"""Reads and checks Parquet footers, and edits them where pyarrow has no option: the VARIANT logical type, and minima and maxima
that must not be used.

In: the bytes of a footer (FileMetaData, Thrift compact protocol). Out: the names of its VARIANT groups, or the same footer
with the type inserted, or without the statistics of some column chunks. Source: parquet-format, `parquet.thrift`.

The schema is a list of elements in depth-first order, each with the number of its children. An element carries no length, so
the type is inserted before its stop byte: field 10 (logicalType, a union), in it field 16 (VARIANT, a struct), in it field 1
(specification_version, i8) = 1. Inside VARIANT groups, columns of 16 bytes without a logical type get UUID (field 14, an empty
struct), the only type of that size in VariantShredding. Everything else is copied byte by byte.

Everything that a footer refers to, page indexes included, lies before it, so its offsets stay correct when it grows or shrinks.
Readers find a column index only through the footer, so removing the reference has the effect of deleting the index.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from delta_variant.errors import DamagedFileError, InvalidSchemaError, UnsupportedFeatureError
from delta_variant.kernels import footers as kernel
from delta_variant.kernels.thrift import I8, STRUCT
from delta_variant.parquet import thrift
from delta_variant.paths import dotted

Names = tuple[str, ...]
"""The names that lead to a group or a column of the Parquet schema, `list`, `element`, `key_value`, `key`, `value` included."""

MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
_END = 8  # the length of the footer and the magic bytes

# Fields of FileMetaData, SchemaElement and LogicalType
_SCHEMA, _TYPE, _TYPE_LENGTH, _NAME, _NUM_CHILDREN, _LOGICAL_TYPE, _UUID, _VARIANT = 2, 1, 2, 4, 5, 10, 14, 16
_FIXED_LEN_BYTE_ARRAY = 7

# Fields of FileMetaData, RowGroup, ColumnChunk, ColumnMetaData and Statistics
_ROW_GROUPS, _COLUMNS, _META_DATA, _STATISTICS, _ENCODING_STATS = 4, 1, 3, 12, 13
_COLUMN_ORDERS, _UNCOMPRESSED, _COMPRESSED = 7, 2, 6
_COLUMN_INDEX = (6, 7)  # its offset and its length
_BOUNDS = (1, 2, 5, 6, 7, 8)  # minimum and maximum, in the old and the new fields, and whether they are exact

_VARIANT_TYPE = bytes([STRUCT, _VARIANT << 1, 1 << 4 | I8, 1, 0, 0])
"""The union of field 10: field 16 in the long form, in it field 1 = 1, then the two stop bytes."""

_UUID_TYPE = bytes([_UUID << 4 | STRUCT, 0, 0])

_TYPE_ORDER = bytes([1 << 4 | STRUCT, 0, 0])
"""A ColumnOrder: the union with an empty TypeDefinedOrder in field 1."""


class _Element(NamedTuple):
    """A SchemaElement, with the number of its children, the id of its last field and the position of its stop byte."""

    names: Names
    children: int
    is_variant: bool
    is_16_bytes: bool
    last_field: int
    stop: int


class NewField(NamedTuple):
    """A field that a footer does not have: its schema elements, and by row group the ColumnChunks of its leaf columns.

    Each ColumnChunk comes with the bytes of its pages, first those that are not compressed.
    """

    elements: Sequence[bytes]
    chunks: Sequence[Sequence[tuple[bytes, int, int]]]


def variant_groups(footer: bytes) -> set[Names]:
    """The groups that carry the VARIANT logical type."""
    return {element.names for element in _elements(footer) if element.is_variant}


def annotated(footer: bytes, variants: Collection[Names]) -> bytes:
    """The footer with the logical type VARIANT on these groups, and UUID on columns of 16 bytes in them that have none.

    Raises InvalidSchemaError for a group that is not in the footer or has a logical type already.
    """
    out, copied, left = [], 0, set(variants)
    inside: Names | None = None
    for element in _elements(footer):
        if element.names in variants:
            inside = element.names
        logical = b""
        if element.last_field < _LOGICAL_TYPE:
            if element.names in left:
                logical = _VARIANT_TYPE
                left.discard(element.names)
            elif element.is_16_bytes and inside is not None and element.names[: len(inside)] == inside:
                logical = _UUID_TYPE
        if logical:
            out += [footer[copied : element.stop], bytes([(_LOGICAL_TYPE - element.last_field) << 4 | STRUCT]), logical]
            copied = element.stop
    if left:
        raise InvalidSchemaError(f"no group of the file can be a VARIANT column: {sorted(dotted(names) for names in left)}")
    return b"".join([*out, footer[copied:]])


def with_safe_floats(footer: bytes, floats: Collection[int], with_nan: Collection[tuple[int, int]]) -> bytes:
    """The footer without the statistics that make readers lose rows of FLOAT and DOUBLE columns.

    floats: the numbers of these leaf columns. with_nan: their column chunks with a NaN, as (number of the row group, number of
    the column). These chunks lose their minimum and maximum, in the statistics and in the column index, because pyarrow ignores
    NaN in both, while Spark treats it as the largest number. All chunks of these columns lose their encoding statistics. If
    these say that every page is dictionary-encoded, parquet-mr looks a literal up in the dictionary to skip row groups, and
    there 0.0 and -0.0 are two values, which are equal in Spark.
    """

    def edits(number: int, column: int) -> dict[int, thrift.Edit | None] | None:
        if column not in floats:
            return None
        has_nan = (number, column) in with_nan
        inside = {_ENCODING_STATS: None} | (_without_bounds(footer) if has_nan else {})
        metadata: dict[int, thrift.Edit | None] = {_META_DATA: lambda at: thrift.edited(footer, at, inside)}
        return metadata | dict.fromkeys(_COLUMN_INDEX) if has_nan else metadata

    return _with_chunks(footer, edits)


def _without_bounds(footer: bytes) -> dict[int, thrift.Edit | None]:
    """The edits of ColumnMetaData that remove its minimum and its maximum."""
    return {_STATISTICS: lambda at: thrift.edited(footer, at, dict.fromkeys(_BOUNDS))}


def _with_chunks(footer: bytes, edits: Callable[[int, int], dict[int, thrift.Edit | None] | None]) -> bytes:
    """The footer with its column chunks edited. edits: by the numbers of row group and column; None leaves the chunk."""

    def row_group(number: int, at: int) -> tuple[bytes, int]:
        def chunk(column: int, at: int) -> tuple[bytes, int]:
            changes = edits(number, column)
            return thrift.struct(footer, at) if changes is None else thrift.edited(footer, at, changes)

        return thrift.edited(footer, at, {_COLUMNS: lambda at: thrift.edited_list(footer, at, chunk)})

    return thrift.edited(footer, 0, {_ROW_GROUPS: lambda at: thrift.edited_list(footer, at, row_group)})[0]


def with_fields(footer: bytes, added: Mapping[Names, Sequence[NewField]]) -> bytes:
    """The footer with fields added to groups, behind those that the groups have."""
    elements = list(_elements(footer))
    starts = [_schema(footer)[1], *(element.stop + 1 for element in elements)]
    schema: list[bytes] = []
    columns: list[int | tuple[NewField, int]] = []  # in the new order: the number of an old one, or a leaf of a new field
    numbers = itertools.count()

    def add(at: int) -> int:
        element, new = elements[at], added.get(elements[at].names, ())
        count = thrift.number(element.children + len(new))
        edits: dict[int, thrift.Edit | None] = {_NUM_CHILDREN: lambda at: (count, thrift.varint(footer, at)[1])}
        schema.append(thrift.edited(footer, starts[at], edits)[0] if new else footer[starts[at] : starts[at + 1]])
        if not element.children:
            columns.append(next(numbers))
        after = at + 1
        for _ in range(element.children):
            after = add(after)
        for field in new:
            schema.extend(field.elements)
            columns.extend((field, leaf) for leaf in range(len(field.chunks[0])))
        return after

    add(0)

    def listed(at: int, new: Callable[[NewField, int], bytes]) -> tuple[bytes, int]:
        """A list of structs, one for each column, with new ones."""
        count, _, at = thrift.list_header(footer, at)
        old = []
        for _ in range(count):
            element, at = thrift.struct(footer, at)
            old.append(element)
        return thrift.list_of(STRUCT, [old[c] if isinstance(c, int) else new(*c) for c in columns]), at

    def row_group(number: int, at: int) -> tuple[bytes, int]:
        chunks = [chunk for fields in added.values() for field in fields for chunk in field.chunks[number]]

        def plus(more: int) -> thrift.Edit:
            def edit(at: int) -> tuple[bytes, int]:
                size, end = thrift.varint(footer, at)
                return thrift.number((size >> 1) + more), end

            return edit

        edits: dict[int, thrift.Edit | None] = {
            _COLUMNS: lambda at: listed(at, lambda field, leaf: field.chunks[number][leaf][0]),
            _UNCOMPRESSED: plus(sum(uncompressed for _, uncompressed, _ in chunks)),
            _COMPRESSED: plus(sum(size for _, _, size in chunks)),
        }
        return thrift.edited(footer, at, edits)

    whole: dict[int, thrift.Edit | None] = {
        _SCHEMA: lambda _: (thrift.list_of(STRUCT, schema), starts[-1]),
        _ROW_GROUPS: lambda at: thrift.edited_list(footer, at, row_group),
        _COLUMN_ORDERS: lambda at: listed(at, lambda *_: _TYPE_ORDER),
    }
    return thrift.edited(footer, 0, whole)[0]


def split(tail: bytes) -> tuple[bytes, bytes]:
    """Splits the last bytes of a file: (bytes before the footer, footer)."""
    size = struct.unpack("<I", tail[-8:-4])[0]
    return tail[: -8 - size], tail[-8 - size : -8]


def joined(footer: bytes) -> bytes:
    """The end of a file: the footer, its length and the magic bytes."""
    return footer + struct.pack("<I", len(footer)) + MAGIC


def of(source: Any, ahead: int = _END) -> bytes:
    """The checked footer of an open file.

    ahead: how many bytes are read at once; a footer that is not in them is read on its own. By default, nothing but the footer
    is read.

    Raises DamagedFileError if the file is not Parquet or its footer is damaged, and UnsupportedFeatureError if the footer or
    columns are encrypted, or columns are in other files.
    """
    size = source.seek(0, 2)
    source.seek(max(0, size - ahead))
    end = bytes(source.read(ahead))
    length = int.from_bytes(end[-_END:-4], "little")
    if end.endswith(_ENCRYPTED_MAGIC) and length <= size - _END:
        raise UnsupportedFeatureError("the footer is encrypted: read the file with Spark and its keys")
    if len(end) < _END or not end.endswith(MAGIC) or length > size - _END:
        raise DamagedFileError("the file is not Parquet")
    before = size - _END - length
    if length + _END <= len(end):
        return checked(end[-_END - length : -_END], before)
    source.seek(before)
    return checked(bytes(source.read(length)), before)


def checked(footer: bytes, end: int) -> bytes:
    """The footer, if it contradicts neither itself nor the size of the file, without bounds that are shorter than a value.

    end: the bytes of the file before it. pyarrow gets only such footers. Many of the others would end the process, and some
    would give wrong rows. Raises as `of`.
    """
    state = np.zeros(kernel.WORDS, np.int64)
    chunks = kernel.check(np.frombuffer(footer, np.uint8), end, state)
    code = int(state[kernel.CODE])
    if not code and not state[kernel.ORDERED]:
        starts, sizes = chunks[chunks[:, kernel.SIZE] > 0, : kernel.CUT].T
        order = np.argsort(starts)
        code = kernel.SHARED if (np.diff(starts[order]) < sizes[order][:-1]).any() else 0
    if code:
        places = zip(("row group", "column"), state[[kernel.GROUP, kernel.COLUMN]].tolist(), strict=True)
        place = "".join(f", {name} {number}" for name, number in places if number >= 0)
        if code in kernel.UNSUPPORTED:
            raise UnsupportedFeatureError(f"{kernel.FAULTS[code]}{place}")
        raise DamagedFileError(f"the footer is damaged: {kernel.FAULTS[code]}{place}")
    if not state[kernel.CUTS]:
        return footer
    cut = {divmod(int(number), int(state[kernel.LEAVES])) for number in np.flatnonzero(chunks[:, kernel.CUT])}
    edits: dict[int, thrift.Edit | None] = {_META_DATA: lambda at: thrift.edited(footer, at, _without_bounds(footer))}
    return _with_chunks(footer, lambda number, column: edits if (number, column) in cut else None)


def _schema(footer: bytes) -> tuple[int, int]:
    """How many elements the schema has, and where the first one starts."""
    at = next(start for field, _, start, _ in thrift.fields(footer, 0) if field == _SCHEMA)
    count, _, at = thrift.list_header(footer, at)
    return count, at


def _elements(footer: bytes) -> Iterator[_Element]:
    count, at = _schema(footer)
    parents: list[Names | None] = [None]  # of the elements to come, the next one last
    for _ in range(count):
        name, children, is_variant, fixed, length, last_field, stop = "", 0, False, False, 0, 0, at
        for field, _, start, end in thrift.fields(footer, at):
            if field == _TYPE:
                fixed = thrift.varint(footer, start)[0] >> 1 == _FIXED_LEN_BYTE_ARRAY
            elif field == _TYPE_LENGTH:
                length = thrift.varint(footer, start)[0] >> 1
            elif field == _NAME:
                name = footer[thrift.varint(footer, start)[1] : end].decode()
            elif field == _NUM_CHILDREN:
                children = thrift.varint(footer, start)[0] >> 1
            elif field == _LOGICAL_TYPE:
                is_variant = any(kind == _VARIANT for kind, *_ in thrift.fields(footer, start))
            last_field, stop = field, end
        if not stop > at:
            raise InvalidSchemaError("a schema element of the footer is empty")
        parent = parents.pop()
        names = () if parent is None else (*parent, name)
        parents += [names] * children
        yield _Element(names, children, is_variant, fixed and length == 16, last_field, stop)
        at = stop + 1
