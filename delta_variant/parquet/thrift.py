"""Thrift's compact protocol, as far as Parquet uses it: finds values, copies structs with changes, and writes new ones.

In: bytes written by a Parquet writer, and positions in them. Out: positions, or new bytes. Only requested values are decoded. A
struct carries no length: each of its fields begins with its type and the difference between its id and that of the field
before, and a zero byte ends the struct. Source: Thrift, "Thrift Compact Protocol Encoding".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from delta_variant.errors import InvalidSchemaError
from delta_variant.kernels.thrift import STRUCT, value_end

Edit = Callable[[int], tuple[bytes, int]]
"""The position where a value starts → (its new bytes, the position where the old ones end)."""


def fields(data: bytes, at: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields the fields of a struct: (id, type, start of the value, end of the value)."""
    field = 0
    while data[at]:
        field, kind, at = _field(data, at, field)
        end = _after(data, at, kind)
        yield field, kind, at, end
        at = end


def edited(data: bytes, at: int, edits: Mapping[int, Edit | None]) -> tuple[bytes, int]:
    """(the struct with the values of some fields edited, the position where the old struct ends).

    edits: by field id; None removes the field.
    """
    out, field, last = [], 0, 0
    while data[at]:
        field, kind, start = _field(data, at, field)
        edit = edits.get(field)
        if edit is not None:
            value, at = edit(start)
        else:
            at = _after(data, start, kind)
            value = data[start:at]
        if edit is not None or field not in edits:
            out += [_header(field, last, kind), value]
            last = field
    return b"".join([*out, b"\0"]), at + 1


def edited_list(data: bytes, start: int, edit: Callable[[int, int], tuple[bytes, int]]) -> tuple[bytes, int]:
    """(the list with every element edited, the position where the old list ends).

    edit: called with an element's number and the position where it starts.
    """
    count, _, at = list_header(data, start)
    out = [data[start:at]]
    for number in range(count):
        element, at = edit(number, at)
        out.append(element)
    return b"".join(out), at


def struct(data: bytes, at: int) -> tuple[bytes, int]:
    """(the struct as it is, the position where it ends)."""
    end = _after(data, at, STRUCT)
    return data[at:end], end


def struct_of(*fields: tuple[int, int, bytes]) -> bytes:
    """A struct of fields: (id, type, value), by ascending ids."""
    out, last = [], 0
    for field, kind, value in fields:
        out += [_header(field, last, kind), value]
        last = field
    return b"".join([*out, b"\0"])


def list_of(kind: int, elements: Sequence[bytes]) -> bytes:
    """A list of elements of one type."""
    count = len(elements)
    return b"".join([bytes([count << 4 | kind]) if count < 15 else bytes([0xF0 | kind]) + unsigned(count), *elements])


def text(data: bytes) -> bytes:
    """A string or a binary."""
    return unsigned(len(data)) + data


def number(value: int) -> bytes:
    """A signed number, of up to 64 bits."""
    return unsigned((value << 1) ^ (value >> 63))


def unsigned(value: int) -> bytes:
    """An unsigned number, as `varint` reads it."""
    out = []
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def list_header(data: bytes, at: int) -> tuple[int, int, int]:
    """(the length of a list, the type of its elements, the position where they start)."""
    count, kind = data[at] >> 4, data[at] & 15
    if count < 15:
        return count, kind, at + 1
    count, at = varint(data, at + 1)
    return count, kind, at


def varint(data: bytes, at: int) -> tuple[int, int]:
    """(an unsigned number, the position where it ends). Signed numbers are stored doubled, with the sign in the last bit."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _field(data: bytes, at: int, last: int) -> tuple[int, int, int]:
    """(the id of a field, its type, the position where its value starts). last: the id of the field before."""
    delta, kind = data[at] >> 4, data[at] & 15
    if delta:
        return last + delta, kind, at + 1
    zigzag, at = varint(data, at + 1)
    return zigzag >> 1, kind, at  # ids are positive


def _header(field: int, last: int, kind: int) -> bytes:
    """The header of a field; in the long form if its id is more than 15 above that of the field before."""
    if field - last < 16:
        return bytes([field - last << 4 | kind])
    return bytes([kind]) + unsigned(field << 1)


def _after(data: bytes, at: int, kind: int) -> int:
    """The position where the value of a field ends."""
    end: int = value_end(data, at, kind)
    if end < 0:
        raise InvalidSchemaError(f"the footer has no value of Thrift type {kind} at byte {at}")
    return end
