"""One Variant: Python value ↔ (metadata, value) bytes, and bytes → JSON text.

In: the two byte strings of the Variant binary encoding (version 1). Out: natural Python values, or the reverse.

| Variant                  | decode gives                          | encode takes                                        |
| ------------------------ | ------------------------------------- | --------------------------------------------------- |
| null, boolean            | None, bool                            | None, bool                                          |
| int8 … int64             | int                                   | int: the narrowest that holds it, decimal16 beyond  |
| decimal4, 8, 16          | Decimal, scale kept                   | Decimal: the narrowest that holds the unscaled value|
| double, float            | float, numpy.float32                  | float, numpy.float32                                |
| string, binary           | str, bytes                            | str, bytes                                          |
| date                     | datetime.date                         | datetime.date                                       |
| timestamp, …_ntz         | datetime with UTC, without a zone     | datetime aware, naive                               |
| the same in nanoseconds  | pandas.Timestamp                      | pandas.Timestamp with nanoseconds                   |
| time, uuid               | datetime.time, uuid.UUID              | datetime.time, uuid.UUID                            |
| array, object            | list, dict                            | list or tuple, dict with str keys                   |

Dates and timestamps outside Python's years 1 to 9999 decode to numpy.datetime64. Malformed bytes raise MalformedVariantError
and are never read past their end. Invariant: `decode(*encode(x)) == x`. Nothing here recurses over bytes; columns of Variants
go through `shredding`, not through here.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
import struct
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from delta_variant import types as t
from delta_variant.errors import DeltaVariantError, MalformedVariantError

VERSION = 1
MAX_SIZE = 2**31 - 1
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # the origin of timestamps without a zone
_EPOCH_UTC = _EPOCH.replace(tzinfo=dt.timezone.utc)
_MICROSECOND = dt.timedelta(microseconds=1)


# ---------------------------------------------------------------------------------------------------------------- encode


def encode(obj: Any) -> tuple[bytes, bytes]:
    """The (metadata, value) bytes of a Python value, in the smallest exact form; see the module's table.

    The dictionary is sorted. Raises DeltaVariantError for a value that Variant cannot hold.
    """
    try:
        keys = sorted(_keys(obj, set()), key=lambda key: key.encode())
        ids = {key: i for i, key in enumerate(keys)}
        return encode_metadata(keys), _encode(obj, ids)
    except RecursionError:
        raise DeltaVariantError("the value is nested too deeply (or contains itself) to be encoded") from None
    except UnicodeEncodeError as e:
        raise DeltaVariantError(f"a string is not valid Unicode: {e}") from None


def encode_metadata(keys: list[str]) -> bytes:
    """Metadata whose dictionary is `keys`, which are sorted by their UTF-8 bytes and unique."""
    texts = [key.encode() for key in keys]
    size = sum(map(len, texts))
    width = _width(max(size, len(texts)))
    offsets = np.cumsum([0, *map(len, texts)])
    header = VERSION | 1 << 4 | (width - 1) << 6
    return bytes([header]) + b"".join(int(n).to_bytes(width, "little") for n in (len(texts), *offsets)) + b"".join(texts)


def _width(number: int) -> int:
    if number > MAX_SIZE:
        raise DeltaVariantError("the value is larger than 2 GiB, which Variant cannot hold")
    return max(1, (number.bit_length() + 7) // 8)


def _keys(obj: Any, found: set[str]) -> set[str]:
    if isinstance(obj, dict):
        for key, child in obj.items():
            if not isinstance(key, str):
                raise DeltaVariantError(f"a key of an object must be a str, not {key!r}")
            found.add(key)
            _keys(child, found)
    elif isinstance(obj, (list, tuple)):
        for child in obj:
            _keys(child, found)
    return found


def _encode(obj: Any, ids: dict[str, int]) -> bytes:
    if isinstance(obj, dict):
        fields = sorted((ids[key], _encode(child, ids)) for key, child in obj.items())
        return _container(t.OBJECT, [i for i, _ in fields], [value for _, value in fields])
    if isinstance(obj, (list, tuple)):
        return _container(t.ARRAY, None, [_encode(child, ids) for child in obj])
    for kind, encoder in _ENCODERS:
        if isinstance(obj, kind):
            return encoder(obj)
    raise DeltaVariantError(f"a Variant cannot hold {obj!r} of type {type(obj).__name__}")


def _container(basic: int, ids: list[int] | None, values: list[bytes]) -> bytes:
    ends = np.cumsum([0, *map(len, values)])
    width = _width(int(ends[-1]))
    large = len(values) > 0xFF
    parts = [len(values).to_bytes(4 if large else 1, "little")]
    header = width - 1
    if ids is None:
        header |= large << 2
    else:
        id_width = _width(max(ids, default=0))
        header |= (id_width - 1) << 2 | large << 4
        parts += [i.to_bytes(id_width, "little") for i in ids]
    parts += [int(end).to_bytes(width, "little") for end in ends]
    return b"".join([bytes([header << 2 | basic]), *parts, *values])


def _primitive(type_id: int, payload: bytes = b"") -> bytes:
    return bytes([type_id << 2]) + payload


def _encode_int(value: int) -> bytes:
    value = int(value)
    for type_id, width in ((t.INT8, 1), (t.INT16, 2), (t.INT32, 4), (t.INT64, 8)):
        if -(1 << 8 * width - 1) <= value < 1 << 8 * width - 1:
            return _primitive(type_id, value.to_bytes(width, "little", signed=True))
    return _encode_decimal(Decimal(value))


def _encode_decimal(value: Decimal) -> bytes:
    if not value.is_finite():
        raise DeltaVariantError(f"a Variant decimal cannot hold {value}; use a float")
    sign, digits, exponent = value.as_tuple()
    unscaled, scale = int("".join(map(str, digits)) or "0"), -int(exponent)
    if scale < 0:
        unscaled, scale = unscaled * 10**-scale, 0
    precision = max(len(str(unscaled)), scale)  # Spark refuses a scale beyond the precision of the width
    if precision > t.MAX_PRECISION:
        raise DeltaVariantError(f"a Variant decimal has at most {t.MAX_PRECISION} digits; {value} has more")
    type_id, width = (t.DECIMAL4, 4) if precision <= 9 else (t.DECIMAL8, 8) if precision <= 18 else (t.DECIMAL16, 16)
    return _primitive(type_id, bytes([scale]) + (-unscaled if sign else unscaled).to_bytes(width, "little", signed=True))


def _encode_string(value: str) -> bytes:
    text = value.encode()
    if len(text) <= t.SHORT_STRING_MAX:
        return bytes([len(text) << 2 | t.SHORT_STRING]) + text
    return _primitive(t.STRING, len(text).to_bytes(4, "little") + text)


def _encode_datetime(value: dt.datetime) -> bytes:
    origin = _EPOCH if value.tzinfo is None else _EPOCH_UTC
    nanos = getattr(value, "nanosecond", 0)
    if nanos:  # a pandas.Timestamp: its own int is the count of nanoseconds since the epoch
        kind, count = (t.TIMESTAMP_NTZ_NANOS if value.tzinfo is None else t.TIMESTAMP_NANOS), value.value  # type: ignore[attr-defined]
    else:
        if type(value) is not dt.datetime and hasattr(value, "to_pydatetime"):
            value = value.to_pydatetime()
        kind, count = (t.TIMESTAMP_NTZ if value.tzinfo is None else t.TIMESTAMP), (value - origin) // _MICROSECOND
    return _primitive(kind, struct.pack("<q", count))


def _encode_datetime64(value: np.datetime64) -> bytes:
    unit = np.datetime_data(value.dtype)[0]
    if np.isnat(value):
        return _primitive(t.NULL)
    if unit == "D":
        return _primitive(t.DATE, struct.pack("<i", value.astype(np.int64)))
    if unit == "ns":
        return _primitive(t.TIMESTAMP_NTZ_NANOS, struct.pack("<q", value.astype(np.int64)))
    return _primitive(t.TIMESTAMP_NTZ, struct.pack("<q", value.astype("datetime64[us]").astype(np.int64)))


def _encode_time(value: dt.time) -> bytes:
    if value.tzinfo is not None:
        raise DeltaVariantError(f"a Variant time has no time zone; {value!r} has one")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return _primitive(t.TIME, struct.pack("<q", seconds * 1_000_000 + value.microsecond))


_ENCODERS: tuple[tuple[Any, Callable[[Any], bytes]], ...] = (
    (type(None), lambda _: _primitive(t.NULL)),
    ((bool, np.bool_), lambda b: _primitive(t.TRUE if b else t.FALSE)),
    (str, _encode_string),
    ((int, np.integer), _encode_int),
    (np.float32, lambda f: _primitive(t.FLOAT, struct.pack("<f", f))),
    (float, lambda f: _primitive(t.DOUBLE, struct.pack("<d", f))),
    (Decimal, _encode_decimal),
    (dt.datetime, _encode_datetime),
    (dt.date, lambda d: _primitive(t.DATE, struct.pack("<i", (d - _EPOCH.date()).days))),
    (dt.time, _encode_time),
    (np.datetime64, _encode_datetime64),
    ((bytes, bytearray, memoryview), lambda b: _primitive(t.BINARY, len(b).to_bytes(4, "little") + bytes(b))),
    (uuid.UUID, lambda u: _primitive(t.UUID, u.bytes)),
)


# ---------------------------------------------------------------------------------------------------------------- decode


class _Reader:
    """Checked access to the bytes of one Variant. Positions are byte offsets into `value`."""

    def __init__(self, metadata: bytes, value: bytes) -> None:
        self.value = bytes(value)
        self.keys = decode_metadata(bytes(metadata))
        self.budget = len(self.value)  # every value takes at least one byte: more visits mean overlapping children

    def uint(self, at: int, width: int) -> int:
        self.need(at, width)
        return int.from_bytes(self.value[at : at + width], "little")

    def need(self, at: int, size: int) -> None:
        if at + size > len(self.value):
            raise MalformedVariantError(f"value: {size} bytes expected at byte {at}, but it ends at byte {len(self.value)}")

    def visit(self, at: int) -> tuple[int, int]:
        """The basic type and the header of the value at `at`."""
        self.need(at, 1)
        self.budget -= 1
        if self.budget < 0:
            raise MalformedVariantError(f"value: the children of a container overlap (byte {at})")
        return self.value[at] & 3, self.value[at] >> 2

    def children(self, at: int) -> Iterator[tuple[str | None, int]]:
        """(key, position) of an object's fields, (None, position) of an array's elements, in order."""
        basic, header = self.value[at] & 3, self.value[at] >> 2
        width, id_width = (header & 3) + 1, (header >> 2 & 3) + 1 if basic == t.OBJECT else 0
        count_width = 4 if header & (0x10 if basic == t.OBJECT else 0x04) else 1
        count = self.uint(at + 1, count_width)
        ids = at + 1 + count_width
        offsets = ids + count * id_width
        base = offsets + (count + 1) * width
        self.need(at, base - at)
        self.need(base, self.uint(offsets + count * width, width))
        seen = set()
        for i in range(count):
            key = None
            if basic == t.OBJECT:
                key_id = self.uint(ids + i * id_width, id_width)
                if key_id >= len(self.keys):
                    raise MalformedVariantError(
                        f"value: field id {key_id} at byte {ids + i * id_width} is outside a dictionary of {len(self.keys)}"
                    )
                key = self.keys[key_id]
                if key in seen:
                    raise MalformedVariantError(f"value: the object at byte {at} has two fields {key!r}")
                seen.add(key)
            yield key, base + self.uint(offsets + i * width, width)

    def primitive(self, at: int, type_id: int) -> bytes:
        """The payload of the primitive at `at`."""
        if type_id >= len(t.PRIMITIVES):
            raise MalformedVariantError(f"value: unknown primitive type {type_id} at byte {at}")
        size, start = t.PRIMITIVES[type_id].size, at + 1
        if size == t.VARIABLE:
            size, start = self.uint(at + 1, 4), at + 5
        self.need(start, size)
        return self.value[start : start + size]

    def text(self, at: int, payload: bytes) -> str:
        try:
            return payload.decode()
        except UnicodeDecodeError:
            raise MalformedVariantError(f"value: the string at byte {at} is not valid UTF-8") from None

    def scalar(self, at: int, basic: int, header: int) -> Any:
        """The Python value of the primitive or short string at `at`."""
        if basic == t.SHORT_STRING:
            self.need(at + 1, header)
            return self.text(at, self.value[at + 1 : at + 1 + header])
        payload = self.primitive(at, header)
        if header == t.STRING:
            return self.text(at, payload)
        try:
            return _DECODERS[header](payload)
        except (OverflowError, ValueError):
            raise MalformedVariantError(f"value: {payload.hex()} at byte {at} is not a {t.PRIMITIVES[header].name}") from None


def decode_metadata(metadata: bytes) -> list[str]:
    """The dictionary of a metadata byte string. Raises MalformedVariantError."""
    if not metadata or metadata[0] & 0x0F != VERSION:
        raise MalformedVariantError(
            f"metadata: version {VERSION} expected, but it starts with {metadata[:1].hex() or 'nothing'}"
        )
    width = (metadata[0] >> 6) + 1
    count = int.from_bytes(metadata[1 : 1 + width], "little")
    if len(metadata) == 1 + width and count == 0:
        return []  # the texts of VariantShredding and of Arrow leave out the one offset of an empty dictionary: 01 00
    start = 1 + width * (count + 2)
    if start > len(metadata):
        raise MalformedVariantError(f"metadata: {start} bytes expected for {count} keys, but it has {len(metadata)}")
    ends = [int.from_bytes(metadata[at : at + width], "little") for at in range(1 + width, start, width)]
    if ends[0] != 0 or start + ends[-1] > len(metadata) or any(a > b for a, b in pairwise(ends)):
        raise MalformedVariantError("metadata: the offsets of the dictionary do not fit its bytes")
    try:
        return [metadata[start + a : start + b].decode() for a, b in pairwise(ends)]
    except UnicodeDecodeError:
        raise MalformedVariantError("metadata: a key is not valid UTF-8") from None


def decode(metadata: bytes, value: bytes) -> Any:
    """The Python value of one Variant; see the module's table. Raises MalformedVariantError."""
    reader, root = _Reader(metadata, value), [None]
    todo: list[tuple[Callable[[Any], None], int]] = [(partial(root.__setitem__, 0), 0)]
    while todo:
        put, at = todo.pop()
        basic, header = reader.visit(at)
        if basic in (t.PRIMITIVE, t.SHORT_STRING):
            put(reader.scalar(at, basic, header))
            continue
        children = list(reader.children(at))
        into: Any = {} if basic == t.OBJECT else [None] * len(children)
        put(into)
        slots = (key if basic == t.OBJECT else i for i, (key, _) in enumerate(children))
        todo += reversed([(partial(into.__setitem__, slot), child) for slot, (_, child) in zip(slots, children, strict=True)])
    return root[0]


def _decimal(payload: bytes) -> Decimal:
    scale, unscaled = payload[0], int.from_bytes(payload[1:], "little", signed=True)
    if scale > t.MAX_PRECISION:
        raise ValueError(scale)
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _int64(payload: bytes) -> int:
    return int.from_bytes(payload, "little", signed=True)


def _date(payload: bytes) -> Any:
    days = _int64(payload)
    try:
        return dt.date.fromordinal(days + _EPOCH.toordinal())
    except (OverflowError, ValueError):
        return np.datetime64(days, "D")


def _timestamp(payload: bytes, origin: dt.datetime) -> Any:
    micros = _int64(payload)
    try:
        return origin + micros * _MICROSECOND
    except OverflowError:
        return np.datetime64(micros, "us")


def _nanoseconds(payload: bytes, zone: str | None) -> Any:
    import pandas as pd  # noqa: PLC0415  # half a second to import, and only nanoseconds need it

    return pd.Timestamp(_int64(payload), unit="ns", tz=zone)


def _time(payload: bytes) -> dt.time:
    micros = _int64(payload)
    if not 0 <= micros < 86_400_000_000:
        raise ValueError(micros)
    return (_EPOCH + micros * _MICROSECOND).time()


_DECODERS: dict[int, Callable[[bytes], Any]] = {
    t.NULL: lambda _: None,
    t.TRUE: lambda _: True,
    t.FALSE: lambda _: False,
    **dict.fromkeys((t.INT8, t.INT16, t.INT32, t.INT64), _int64),
    **dict.fromkeys((t.DECIMAL4, t.DECIMAL8, t.DECIMAL16), _decimal),
    t.DOUBLE: lambda b: struct.unpack("<d", b)[0],
    t.FLOAT: lambda b: np.frombuffer(b, "<f4")[0],
    t.DATE: _date,
    t.TIMESTAMP: partial(_timestamp, origin=_EPOCH_UTC),
    t.TIMESTAMP_NTZ: partial(_timestamp, origin=_EPOCH),
    t.TIMESTAMP_NANOS: partial(_nanoseconds, zone="UTC"),
    t.TIMESTAMP_NTZ_NANOS: partial(_nanoseconds, zone=None),
    t.TIME: _time,
    t.BINARY: bytes,
    t.UUID: lambda b: uuid.UUID(bytes=b),
}


# ------------------------------------------------------------------------------------------------------------------ JSON


def to_json(metadata: bytes, value: bytes) -> str:
    """The JSON text that Spark's `to_json` gives for the Variant, with timestamps in UTC. Raises MalformedVariantError."""
    reader, out = _Reader(metadata, value), []
    todo: list[str | int] = [0]  # text to emit, or a position to visit
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            out.append(item)
            continue
        basic, header = reader.visit(item)
        if basic in (t.PRIMITIVE, t.SHORT_STRING):
            out.append(_json_scalar(reader.scalar(item, basic, header)))
            continue
        inner: list[str | int] = []
        for key, child in reader.children(item):
            inner += [","] if inner else []
            inner += [f"{_quote(key)}:", child] if key is not None else [child]
        opening, closing = "{}" if basic == t.OBJECT else "[]"
        todo += reversed([opening, *inner, closing])
    return "".join(out)


def _json_scalar(value: Any) -> str:
    for kind, write in _JSON_WRITERS:
        if isinstance(value, kind):
            return write(value)
    raise AssertionError(type(value))


_JSON_ESCAPES = str.maketrans(
    {chr(n): f"\\u{n:04X}" for n in range(32)}
    | {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
)


def _quote(text: str) -> str:
    return f'"{text.translate(_JSON_ESCAPES)}"'


def _json_float(value: Any) -> str:
    """Java's Double.toString and Float.toString: plain from 1e-3 up to 1e7, else d.dE±n, with a digit behind the point."""
    if not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return np.format_float_positional(value, trim="0")
    mantissa, exponent = np.format_float_scientific(value, trim="0", exp_digits=1).split("e")
    return f"{mantissa}E{int(exponent)}"


def _json_decimal(value: Decimal) -> str:
    text = f"{value:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def _json_clock(value: dt.datetime | dt.time) -> str:
    text = value.isoformat(" ") if isinstance(value, dt.datetime) else value.isoformat()
    clock, plus, zone = text.partition("+")
    clock = clock.rstrip("0") if "." in clock else clock
    return f'"{clock}{plus}{zone}"'


_JSON_WRITERS: tuple[tuple[Any, Callable[[Any], str]], ...] = (
    (type(None), lambda _: "null"),
    (bool, lambda b: "true" if b else "false"),
    (str, _quote),
    (int, str),
    ((float, np.float32), _json_float),
    (Decimal, _json_decimal),
    ((dt.datetime, dt.time), _json_clock),
    ((dt.date, uuid.UUID, np.datetime64), lambda v: f'"{v}"'),
    (bytes, lambda b: f'"{base64.b64encode(b).decode()}"'),
)
