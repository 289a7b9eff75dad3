"""decode: Variants → Python values.

In: the bytes of one Variant, not validated. Out: the Python values in the package's table. Source: VariantEncoding.

This is the codec in plain Python, written for clarity. The kernels do the same for columns, and tests compare the two.
Invariant: a child lies within its container, and the children of a container together take no more bytes than it has, so the
work is linear in the number of bytes, whatever they contain.
"""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np

from delta_variant import paths
from delta_variant import types as t
from delta_variant.errors import MalformedVariantError
from delta_variant.kernels import memory as m
from delta_variant.kernels.validate import MAX_DEPTH

VERSION = 1
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # the origin of timestamps without a zone
EPOCH_UTC = EPOCH.replace(tzinfo=dt.timezone.utc)
MICROSECOND = dt.timedelta(microseconds=1)
_DAY = 86_400_000_000


def decode_metadata(metadata: bytes) -> list[str]:
    """The names in the dictionary of metadata, by field id. Raises MalformedVariantError.

    >>> import delta_variant as dv
    >>> metadata, value = dv.binary.encode({"id": 1, "actor": {"id": 2}})
    >>> dv.binary.decode_metadata(metadata)
    ['actor', 'id']
    """
    names, start = _names(metadata)
    try:
        return [name.decode() for name in names]
    except UnicodeDecodeError:
        raise _malformed(m.NOT_UTF8, start) from None


def _names(metadata: bytes) -> tuple[list[bytes], int]:
    """The names in the dictionary, and where the first of them starts."""
    if not metadata or metadata[0] & 0x0F != VERSION:
        raise _malformed(m.VERSION, 0)
    width = (metadata[0] >> 6) + 1
    count = _uint(metadata, 1, width)
    start = 1 + width * (count + 2)
    if count == 0 and len(metadata) == 1 + width:
        return [], start  # VariantShredding and Arrow print an empty dictionary without its one offset: 01 00
    if start > len(metadata):
        raise _malformed(m.DICTIONARY, 1)
    ends = _uints(metadata, 1 + width, count + 1, width)
    if count and (ends[0] != 0 or start + ends[-1] > len(metadata) or sorted(ends) != list(ends)):
        raise _malformed(m.DICTIONARY, 1 + width)
    return [metadata[start + a : start + b] for a, b in pairwise(ends)], start


# Bounds in a log of thousands of files have few dictionaries.
_known_names = lru_cache(1 << 8)(_names)
_SMALL = 1 << 12


def decode(metadata: bytes, value: bytes) -> Any:
    """The Python value of one Variant, by the table in `delta_variant.binary`. Raises MalformedVariantError.

    >>> import delta_variant as dv
    >>> metadata, value = dv.binary.encode({"id": 1, "tags": ["a", "b"]})
    >>> dv.binary.decode(metadata, value)
    {'id': 1, 'tags': ['a', 'b']}
    """
    keys, data = decode_metadata(bytes(metadata)), bytes(value)
    return _decoded(data, 0, _size(data, 0, len(data)), keys)


def decode_field(metadata: bytes, value: bytes, name: str) -> Any:
    """The Python value of one field of an object; None if there is no object with this field. Raises MalformedVariantError.

    Unlike `decode`, it does not look into the other fields: for objects of which few are wanted.

    >>> import delta_variant as dv
    >>> metadata, value = dv.binary.encode({"id": 1, "tags": ["a", "b"]})
    >>> dv.binary.decode_field(metadata, value, "tags")
    ['a', 'b']
    """
    (names, _), data, wanted = (_known_names if len(metadata) <= _SMALL else _names)(metadata), value, name.encode()
    _size(data, 0, len(data))
    if data[0] & 3 != t.OBJECT or wanted not in names:
        return None
    count, id_width, width, ids, offsets, base = _layout(data, 0)
    for number, field_id in enumerate(_uints(data, ids, count, id_width)):
        if field_id >= len(names):
            raise _malformed(m.BAD_FIELD_ID, 0)
        if names[field_id] == wanted:
            at = base + _uint(data, offsets + number * width, width)
            size = _size(data, at, base + _uint(data, base - width, width))
            is_container = data[at] & 3 in (t.OBJECT, t.ARRAY)
            return _decoded(data, at, size, decode_metadata(metadata) if is_container else [], depth=1)
    return None


def _decoded(data: bytes, start: int, total: int, keys: list[str], depth: int = 0) -> Any:
    """The Python value at a position. total: its size in bytes. depth: how many containers it is in."""
    root: Any = [None]
    todo: list[tuple[Any, Any, int, int, int]] = [(root, 0, start, total, depth)]
    while todo:
        into, slot, at, size, depth = todo.pop()
        if data[at] & 3 in (t.PRIMITIVE, t.SHORT_STRING):
            into[slot] = _decode_scalar(data, at, size)
            continue
        if depth == MAX_DEPTH:
            raise _malformed(m.DEPTH, at)
        names, children = _children(data, at, keys)
        item: Any = [None] * len(children) if names is None else {}
        into[slot] = item
        slots = range(len(children)) if names is None else names
        todo += reversed([(item, key, *child, depth + 1) for key, child in zip(slots, children, strict=True)])
    return root[0]


def find(metadata: bytes, value: bytes, kinds: Collection[int]) -> tuple[str, int] | None:
    """Finds the first primitive that has one of these type ids (`delta_variant.types`).

    Returns its path, as `variant_get` takes it, and its type id; None if there is no such primitive. Raises
    MalformedVariantError.

    >>> import delta_variant as dv
    >>> from delta_variant.types import DOUBLE
    >>> path, type_id = dv.binary.find(*dv.binary.encode({"tags": ["a", 2.5]}), kinds={DOUBLE})
    >>> path
    '$.tags[1]'
    """
    keys, data = decode_metadata(bytes(metadata)), bytes(value)
    _size(data, 0, len(data))
    todo = [("$", 0, 0)]
    while todo:
        path, at, depth = todo.pop()
        if data[at] & 3 == t.PRIMITIVE and data[at] >> 2 in kinds:
            return path, data[at] >> 2
        if data[at] & 3 in (t.OBJECT, t.ARRAY):
            if depth == MAX_DEPTH:
                raise _malformed(m.DEPTH, at)
            names, children = _children(data, at, keys)
            steps = [f"[{i}]" for i in range(len(children))] if names is None else [paths.step(name) for name in names]
            todo += reversed([(path + step, child, depth + 1) for step, (child, _) in zip(steps, children, strict=True)])
    return None


def _malformed(code: int, at: int) -> MalformedVariantError:
    return MalformedVariantError(f"{m.FAULTS[code]} (at byte {at})")


def _uint(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(data[at : at + width], "little")


def _uints(data: bytes, at: int, count: int, width: int) -> Sequence[int]:
    """Numbers that follow each other. The caller has checked that they are there."""
    part = data[at : at + count * width]
    if width == 1:
        return part
    return [int.from_bytes(part[i : i + width], "little") for i in range(0, len(part), width)]


def _layout(data: bytes, at: int) -> tuple[int, int, int, int, int, int]:
    """(count, id width, offset width, position of the ids, of the offsets, of the first child) of the container at `at`."""
    is_object, header = data[at] & 3 == t.OBJECT, data[at] >> 2
    width, id_width = (header & 3) + 1, (header >> 2 & 3) + 1 if is_object else 0
    ids = at + 1 + (4 if header & (0x10 if is_object else 0x04) else 1)
    count = _uint(data, at + 1, ids - at - 1)
    offsets = ids + count * id_width
    return count, id_width, width, ids, offsets, offsets + (count + 1) * width


def _size(data: bytes, at: int, end: int) -> int:
    """The size in bytes of the value at `at`, which must not reach past `end`. Children are not looked at."""
    size = 1
    if at < end:
        basic, header = data[at] & 3, data[at] >> 2
        if basic == t.SHORT_STRING:
            size += header
        elif basic != t.PRIMITIVE:
            count, _, width, ids, _, base = _layout(data, at)
            if count == 0 and ids == end:  # VariantShredding writes an empty object without its one offset: 02 00
                return ids - at
            size = base - at + (_uint(data, base - width, width) if base <= end else 0)
        elif header >= len(t.PRIMITIVES):
            raise _malformed(m.BAD_TYPE, at)
        elif t.PRIMITIVES[header].size == t.VARIABLE:
            size += 4 + _uint(data, at + 1, 4)
        else:
            size += t.PRIMITIVES[header].size
    if at + size > end:
        raise _malformed(m.TRUNCATED, at)
    return size


def _children(data: bytes, at: int, keys: list[str]) -> tuple[list[str] | None, list[tuple[int, int]]]:
    """The names of an object's fields (None for an array), and (position, size in bytes) of every child."""
    count, id_width, width, ids, offsets, base = _layout(data, at)
    total = _uint(data, base - width, width)
    starts = [base + start for start in _uints(data, offsets, count, width)]
    children = [(child, _size(data, child, base + total)) for child in starts]
    if sum(size for _, size in children) > total:
        raise _malformed(m.OVERLAP, at)
    if not id_width:
        return None, children
    field_ids = _uints(data, ids, count, id_width)
    if field_ids and max(field_ids) >= len(keys):
        raise _malformed(m.BAD_FIELD_ID, at)
    names = [keys[i] for i in field_ids]
    if len(set(names)) < count:
        raise _malformed(m.DUPLICATE, at)
    return names, children


def _decode_scalar(data: bytes, at: int, size: int) -> Any:
    """The Python value of a primitive or a short string."""
    header = data[at] >> 2
    try:
        if data[at] & 3 == t.SHORT_STRING:
            return data[at + 1 : at + size].decode()
        return _DECODERS[header](data[at + 1 : at + size])
    except UnicodeDecodeError:
        raise _malformed(m.NOT_UTF8, at) from None
    except ValueError:
        text = data[at + 1 : at + size].hex()
        raise MalformedVariantError(f"value: {text} at byte {at} is not a {t.PRIMITIVES[header].name}") from None


def _decimal(payload: bytes) -> Decimal:
    scale, unscaled = payload[0], _int(payload[1:])
    if scale > t.MAX_PRECISION or abs(unscaled) >= 10**t.MAX_PRECISION:
        raise ValueError
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _int(payload: bytes) -> int:
    return int.from_bytes(payload, "little", signed=True)


def _date(payload: bytes) -> Any:
    days = _int(payload)
    try:
        return dt.date.fromordinal(days + EPOCH.toordinal())
    except (OverflowError, ValueError):
        return np.datetime64(days, "D")


def _timestamp(payload: bytes, origin: dt.datetime) -> Any:
    count = _int(payload)
    try:
        return origin + count * MICROSECOND
    except OverflowError:
        return _pandas_timestamp(payload, "us", origin.tzinfo)


def _pandas_timestamp(payload: bytes, unit: Any, zone: dt.tzinfo | None) -> Any:
    import pandas as pd  # noqa: PLC0415  # the import takes half a second, and few values need it

    count = _int(payload)
    if count == -(2**63):
        return np.datetime64(count // 4, (unit, 4))
    return pd.Timestamp(np.datetime64(count, unit), tz=zone)


def _time(payload: bytes) -> dt.time:
    micros = _int(payload)
    if not 0 <= micros < _DAY:
        raise ValueError
    return (EPOCH + micros * MICROSECOND).time()


_DECODERS: dict[int, Callable[[bytes], Any]] = {
    t.NULL: lambda _: None,
    t.TRUE: lambda _: True,
    t.FALSE: lambda _: False,
    **dict.fromkeys((t.INT8, t.INT16, t.INT32, t.INT64), _int),
    **dict.fromkeys((t.DECIMAL4, t.DECIMAL8, t.DECIMAL16), _decimal),
    t.DOUBLE: lambda b: struct.unpack("<d", b)[0],
    t.FLOAT: lambda b: np.frombuffer(b, "<f4")[0],
    t.DATE: _date,
    t.TIMESTAMP: partial(_timestamp, origin=EPOCH_UTC),
    t.TIMESTAMP_NTZ: partial(_timestamp, origin=EPOCH),
    t.TIMESTAMP_NANOS: partial(_pandas_timestamp, unit="ns", zone=dt.timezone.utc),
    t.TIMESTAMP_NTZ_NANOS: partial(_pandas_timestamp, unit="ns", zone=None),
    t.TIME: _time,
    t.STRING: lambda b: b[4:].decode(),
    t.BINARY: lambda b: b[4:],
    t.UUID: lambda b: uuid.UUID(bytes=b),
}
