"""Thrift's compact protocol as trees that tests change: bytes → structs of fields → other bytes.

A struct is a list of [id, type, value], a list is [type of its elements, [elements]], a number is an int, a text is bytes. A
`Raw` is a value that is written as it is, whatever the type of its field.
"""

from __future__ import annotations

from typing import Any

TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_NUMBERS = (I16, I32, I64)
EDGES = (
    0, 1, -1, 2, 3, 5, 7, 8, 15, 16, 31, 100, 127, 128, 255, 32767, 32768, 65535, 65536, 1 << 20, (1 << 24) + 1, 2**31 - 1,
    2**31, -(2**31), 2**32, 2**33, 2**40, 2**56, 2**62, 2**63 - 1, -(2**63),
)  # fmt: skip
"""Numbers that sizes, counts and enumerations are replaced by."""


class Raw(bytes):
    """The bytes of a value, which its type does not describe."""


def decode(data: bytes, at: int = 0) -> tuple[list[Any], int]:
    """(the struct that begins at a byte, where it ends)."""
    fields, last = [], 0
    while data[at]:
        delta, kind = data[at] >> 4, data[at] & 15
        at += 1
        if delta:
            last += delta
        else:
            number, at = _varint(data, at)
            last = _signed(number)
        value, at = (kind == TRUE, at) if kind in (TRUE, FALSE) else _value(data, at, kind)
        fields.append([last, kind, value])
    return fields, at + 1


def encode(struct: list[Any], last: int = 0) -> bytes:
    """The bytes of a struct. last: the id of the field before."""
    out = bytearray()
    for number, kind, value in struct:
        is_flag = kind in (TRUE, FALSE) and not isinstance(value, Raw)
        written = (TRUE if value else FALSE) if is_flag else kind
        delta = number - last if 0 < number - last < 16 else 0
        out.append(delta << 4 | written)
        out += b"" if delta else _number(number)
        last = number
        out += b"" if is_flag else _encoded(kind, value)
    return bytes(out) + b"\0"


def nodes(struct: list[Any], path: tuple[int, ...] = ()) -> list[tuple[Any, Any, int, tuple[int, ...]]]:
    """All values: (the list that holds it, its index there, its type, the ids that lead to it)."""
    found = []
    for field in struct:
        found.append((field, 2, field[1], (*path, field[0])))
        found += _inside(field[2], field[1], (*path, field[0]))
    return found


def _inside(value: Any, kind: int, path: tuple[int, ...]) -> list[Any]:
    if isinstance(value, Raw):
        return []
    if kind == STRUCT:
        return nodes(value, path)
    found = []
    if kind in (LIST, SET):
        for number, element in enumerate(value[1]):
            found.append((value[1], number, value[0], path))
            found += _inside(element, value[0], path)
    return found


def mutate(rng: Any, struct: list[Any]) -> None:
    """Changes one value, field, element, type or length somewhere in a struct."""
    every = [node for node in nodes(struct) if not isinstance(node[0][node[1]], Raw)]
    if not every:
        return
    holder, at, kind, _ = rng.choice(every)
    value, action = holder[at], rng.randrange(10)
    if action == 8:
        _retype(rng, holder, at, kind)
    elif action == 9:
        _hide(rng, rng.choice([struct, *(node[0][node[1]] for node in every if node[2] == STRUCT)]))
    elif action == 0 and kind == STRUCT and value:
        del value[rng.randrange(len(value))]
    elif action == 1 and kind == STRUCT and value:
        value.insert(rng.randrange(len(value) + 1), _copied(rng.choice(value)))
    elif action == 2 and kind in (LIST, SET) and value[1]:
        if rng.random() < 0.5:
            del value[1][rng.randrange(len(value[1]))]
        else:
            value[1].insert(rng.randrange(len(value[1]) + 1), _copied(rng.choice(value[1])))
    elif action == 3:  # the value of another node of this type
        same = [node for node in every if node[2] == kind and (kind != LIST or node[0][node[1]][0] == value[0])]
        other = rng.choice(same)
        holder[at] = _copied(other[0][other[1]])
    elif action == 4 and len(holder) == 3 and at == 2 and isinstance(holder[0], int):
        holder[0] = rng.choice([holder[0] + 1, max(1, holder[0] - 1), rng.randrange(1, 30)])
    elif kind in _NUMBERS or kind == I8:
        step = value + rng.choice([1, -1, 8, -8, 100])
        holder[at] = rng.choice([step, value ^ 1 << rng.randrange(40), -value, rng.choice(EDGES), rng.choice(EDGES)])
        if kind == I8:
            holder[at] &= 0xFF
    elif kind in (TRUE, FALSE):
        holder[at] = not value
    elif kind == BINARY:
        holder[at] = rng.choice(
            [b"", value[:-1], value + b"\0", value * 2, b"\xff" * len(value), rng.randbytes(rng.randrange(20))]
        )
    elif kind in (LIST, SET):
        holder[at] = rng.choice([[value[0], []], [value[0], value[1] * 2], [value[0], value[1][:1] * 200]])


def _retype(rng: Any, holder: list[Any], at: int, kind: int) -> None:
    """Gives a field, or the elements of a list, another type, and keeps the bytes."""
    value, other = holder[at], rng.randrange(1, 14)
    if kind in (LIST, SET) and rng.random() < 0.7:
        data = _encoded(kind, value)
        holder[at] = Raw(bytes([data[0] & 0xF0 | other]) + data[1:])
    elif len(holder) == 3 and at == 2 and isinstance(holder[0], int):
        holder[1:] = [other, Raw(b"" if kind in (TRUE, FALSE) else _encoded(kind, value))]


def _hide(rng: Any, struct: list[Any]) -> None:
    """Puts what follows a field, damaged, into its bytes: a reader that expects another type there goes on within them."""
    if len(struct) < 2:
        return
    number = rng.randrange(len(struct))
    last, kind, value = struct[number]
    rest = _copied(struct[number + 1 :])
    if rest:
        mutate(rng, rest)
    inside = encode(rest, last)
    text = _unsigned(len(inside)) + inside
    if kind in (LIST, SET) and not isinstance(value, Raw):
        struct[number][2] = Raw(bytes([0x10 | BINARY]) + text)
    else:
        struct[number][1:] = [BINARY, Raw(text)]


def _copied(value: Any) -> Any:
    return [_copied(one) for one in value] if isinstance(value, list) else value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _signed(number: int) -> int:
    return number >> 1 ^ -(number & 1)


def _unsigned(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def _number(number: int) -> bytes:
    return _unsigned((number << 1 ^ number >> 63) & 0xFFFFFFFFFFFFFFFF)


def _value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind == STRUCT:
        return decode(data, at)
    if kind in (LIST, SET):
        count, inner = data[at] >> 4, data[at] & 15
        at += 1
        if count == 15:
            count, at = _varint(data, at)
        elements = []
        for _ in range(count):
            if inner in (TRUE, FALSE):
                element, at = data[at] == TRUE, at + 1
            else:
                element, at = _value(data, at, inner)
            elements.append(element)
        return [inner, elements], at
    if kind == I8:
        return data[at], at + 1
    if kind == DOUBLE:
        return data[at : at + 8], at + 8
    number, at = _varint(data, at)
    if kind == BINARY:
        return data[at : at + number], at + number
    return _signed(number), at


def _encoded(kind: int, value: Any) -> bytes:
    if isinstance(value, Raw):
        return value
    if kind == STRUCT:
        return encode(value)
    if kind in (LIST, SET):
        inner, elements = value
        size = len(elements)
        header = bytes([size << 4 | inner]) if size < 15 else bytes([0xF0 | inner]) + _unsigned(size)
        if inner in (TRUE, FALSE):
            return header + bytes(TRUE if one else FALSE for one in elements)
        return header + b"".join(_encoded(inner, one) for one in elements)
    if kind == I8:
        return bytes([value & 0xFF])
    if kind == DOUBLE:
        return value
    if kind == BINARY:
        return _unsigned(len(value)) + value
    return _number(value)
