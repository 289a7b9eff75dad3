"""The VARIANT logical type in a Parquet footer, which pyarrow can neither write nor show.

In: the bytes of a footer (FileMetaData, Thrift compact protocol). Out: the names of its VARIANT groups, or the same footer
with the type inserted. Source: parquet-format `parquet.thrift`, SchemaElement and LogicalType; Thrift compact protocol.

The schema is a list of elements in depth-first order, each with the number of its children. An element carries no length,
so the type is an insertion before its stop byte: field 10 (logicalType, a union) holding field 16 (VARIANT, a struct)
holding field 1 (specification_version, i8) = 1. Inside VARIANT groups, columns of 16 bytes without a logical type get UUID
(field 14, an empty struct), the only one of that size that VariantShredding has. Everything else is copied byte by byte.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from delta_variant.errors import InvalidSchemaError

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterator

Names = tuple[str, ...]
"""What leads to a group or a column of the Parquet schema; `list`, `element`, `key_value`, `key`, `value` count."""

MAGIC = b"PAR1"

# Thrift compact types
_TRUE, _FALSE, _I8, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)

# Fields of FileMetaData, SchemaElement and LogicalType
_SCHEMA, _TYPE, _TYPE_LENGTH, _NAME, _NUM_CHILDREN, _LOGICAL_TYPE, _UUID, _VARIANT = 2, 1, 2, 4, 5, 10, 14, 16
_FIXED_LEN_BYTE_ARRAY = 7

_VARIANT_TYPE = bytes([_STRUCT, _VARIANT << 1, 1 << 4 | _I8, 1, 0, 0])
"""The union of field 10: field 16 in the long form, in it field 1 = 1, the two stop bytes."""

_UUID_TYPE = bytes([_UUID << 4 | _STRUCT, 0, 0])


class _Element(NamedTuple):
    """A SchemaElement: its last field's id, and where its stop byte is."""

    names: Names
    is_variant: bool
    is_16_bytes: bool
    last_field: int
    stop: int


def variant_groups(footer: bytes) -> set[Names]:
    """The groups that carry the VARIANT logical type."""
    return {element.names for element in _elements(footer) if element.is_variant}


def annotated(footer: bytes, variants: Collection[Names]) -> bytes:
    """The footer with the VARIANT logical type on these groups, and UUID on the columns in them that hold one.

    Raises InvalidSchemaError for a group the type cannot be put on.
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
            out += [footer[copied : element.stop], bytes([(_LOGICAL_TYPE - element.last_field) << 4 | _STRUCT]), logical]
            copied = element.stop
    if left:
        raise InvalidSchemaError(f"no group of the file can be a VARIANT column: {sorted('.'.join(names) for names in left)}")
    return b"".join([*out, footer[copied:]])


def split(tail: bytes) -> tuple[bytes, bytes]:
    """The last bytes of a file, as what comes before the footer and the footer."""
    size = struct.unpack("<I", tail[-8:-4])[0]
    return tail[: -8 - size], tail[-8 - size : -8]


def joined(footer: bytes) -> bytes:
    """A footer as it ends a file: with its length and the magic bytes."""
    return footer + struct.pack("<I", len(footer)) + MAGIC


def read(path: str | os.PathLike[str]) -> bytes:
    """The footer of a file that pyarrow could open."""
    with Path(path).open("rb") as file:
        file.seek(-8, 2)
        size = struct.unpack("<I", file.read(4))[0]
        file.seek(-8 - size, 2)
        return file.read(size)


def _elements(footer: bytes) -> Iterator[_Element]:
    at = next(start for field, _, start, _ in _fields(footer, 0) if field == _SCHEMA)
    count, _, at = _list_header(footer, at)
    parents: list[Names | None] = [None]  # of the elements to come, the next one last
    for _ in range(count):
        name, children, is_variant, fixed, length, last_field, stop = "", 0, False, False, 0, 0, at
        for field, _, start, end in _fields(footer, at):
            if field == _TYPE:
                fixed = _varint(footer, start)[0] >> 1 == _FIXED_LEN_BYTE_ARRAY
            elif field == _TYPE_LENGTH:
                length = _varint(footer, start)[0] >> 1
            elif field == _NAME:
                name = footer[_varint(footer, start)[1] : end].decode()
            elif field == _NUM_CHILDREN:
                children = _varint(footer, start)[0] >> 1
            elif field == _LOGICAL_TYPE:
                is_variant = any(kind == _VARIANT for kind, *_ in _fields(footer, start))
            last_field, stop = field, end
        if not stop > at:
            raise InvalidSchemaError("a schema element of the footer is empty")
        parent = parents.pop()
        names = () if parent is None else (*parent, name)
        parents += [names] * children
        yield _Element(names, is_variant, fixed and length == 16, last_field, stop)
        at = stop + 1


def _fields(data: bytes, at: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of a struct: id, type, where the value starts and where it ends."""
    field = 0
    while data[at]:
        delta, kind = data[at] >> 4, data[at] & 15
        at += 1
        if delta:
            field += delta
        else:
            zigzag, at = _varint(data, at)
            field = zigzag >> 1  # ids are positive
        end = at if kind in (_TRUE, _FALSE) else _after(data, at, kind)
        yield field, kind, at, end
        at = end


def _after(data: bytes, at: int, kind: int) -> int:
    """Where a value of this type ends; booleans as they are in lists."""
    if kind in (_I16, _I32, _I64):
        return _varint(data, at)[1]
    if kind in (_TRUE, _FALSE, _I8):
        return at + 1
    if kind == _DOUBLE:
        return at + 8
    if kind == _BINARY:
        size, at = _varint(data, at)
        return at + size
    if kind in (_LIST, _SET):
        count, kind, at = _list_header(data, at)
        for _ in range(count):
            at = _after(data, at, kind)
        return at
    if kind == _STRUCT:
        for *_, end in _fields(data, at):
            at = end
        return at + 1
    raise InvalidSchemaError(f"the footer holds a value of Thrift type {kind}, which FileMetaData does not have")


def _list_header(data: bytes, at: int) -> tuple[int, int, int]:
    """A list's length, the type of its elements, where they start."""
    count, kind = data[at] >> 4, data[at] & 15
    if count < 15:
        return count, kind, at + 1
    count, at = _varint(data, at + 1)
    return count, kind, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
