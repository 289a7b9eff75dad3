"""encode: Python values → Variants, in the smallest exact form; Arrow scalars in the form of their type.

In: the values in the package's table. Out: (metadata, value). Source: VariantEncoding. Invariant: the dictionary has each name
of the value exactly once and no other name, sorted by UTF-8 bytes. Fields are in the order of `field_order`.
"""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from delta_variant import types as t
from delta_variant.binary.decoder import EPOCH, EPOCH_UTC, MICROSECOND, VERSION
from delta_variant.errors import DeltaVariantError
from delta_variant.kernels.validate import MAX_DEPTH

MAX_SIZE = 2**31 - 1


def encode(obj: Any) -> tuple[bytes, bytes]:
    """The (metadata, value) bytes of a Python value in the smallest exact form, by the table in `delta_variant.binary`.

    The dictionary is sorted, and Spark finds every field. Raises DeltaVariantError for a value that Variant cannot hold.

    >>> import delta_variant as dv
    >>> metadata, value = dv.binary.encode({"id": 1})
    >>> metadata.hex(" "), value.hex(" ")
    ('11 01 00 02 69 64', '02 01 00 00 02 0c 01')
    """
    obj = obj.as_py() if isinstance(obj, pa.ExtensionScalar) else obj
    try:
        names = sorted(_names(obj))
        return _metadata(names), _encode(obj, {name: i for i, name in enumerate(names)}, list(map(field_order, names)))
    except UnicodeEncodeError as e:
        raise DeltaVariantError(f"a string is not valid Unicode: {e}") from None


def field_order(name: bytes) -> bytes:
    """A sort key of the name of a field, in UTF-8, for the order of Java's strings, in which Spark looks fields up.

    See protocol/README.md, E6, and `kernels.memory.in_order`, which does the same in kernels.

    >>> sorted(["\U0001f600", "\uffe5", "z"], key=lambda name: field_order(name.encode()))
    ['z', '\U0001f600', '\uffe5']
    """
    return name.translate(_IN_ORDER)


_IN_ORDER = bytes.maketrans(b"\xee\xef", b"\xfe\xff")


def encode_metadata(keys: list[str]) -> bytes:
    """Metadata with the dictionary `keys`, which must be sorted by their UTF-8 bytes and unique.

    >>> import delta_variant as dv
    >>> dv.binary.decode_metadata(dv.binary.encode_metadata(["actor", "id"]))
    ['actor', 'id']
    """
    return _metadata([key.encode() for key in keys])


def _metadata(names: list[bytes]) -> bytes:
    offsets = np.cumsum([0, *map(len, names)])
    width = _width(max(int(offsets[-1]), len(names)))
    header = VERSION | 1 << 4 | (width - 1) << 6
    return bytes([header]) + b"".join(int(n).to_bytes(width, "little") for n in (len(names), *offsets)) + b"".join(names)


def _width(number: int) -> int:
    if number > MAX_SIZE:
        raise DeltaVariantError("the value is larger than the 2 GiB that a Variant can hold")
    return max(1, (number.bit_length() + 7) // 8)


def _names(obj: Any) -> set[bytes]:
    """The names of all fields in a value, as UTF-8."""
    found: set[bytes] = set()
    todo = [(obj, 0)]
    while todo:
        item, depth = todo.pop()
        if not isinstance(item, (dict, list, tuple)):
            continue
        if depth == MAX_DEPTH:
            raise DeltaVariantError(f"the value is nested too deeply (more than {MAX_DEPTH} levels, or it contains itself)")
        if isinstance(item, dict):
            for key in item:
                if not isinstance(key, str):
                    raise DeltaVariantError(f"a key of an object must be a str, not {key!r}")
            names = {key.encode() for key in item}
            if len(names) < len(item):
                raise DeltaVariantError("an object has two fields of the same name")
            found |= names
        todo += [(child, depth + 1) for child in (item.values() if isinstance(item, dict) else item)]
    return found


def _encode(obj: Any, ids: dict[bytes, int], order: list[bytes]) -> bytes:
    todo: list[tuple[Any, list[int] | None]] = [(obj, None)]  # a container is visited again, with field ids, after its children
    done: list[bytes] = []
    while todo:
        item, field_ids = todo.pop()
        if not isinstance(item, (dict, list, tuple)):
            done.append(_encode_scalar(item))
        elif field_ids is None:
            fields = {ids[key.encode()]: child for key, child in item.items()} if isinstance(item, dict) else {}
            field_ids = sorted(fields, key=order.__getitem__)
            todo.append((item, field_ids))
            todo += [(child, None) for child in reversed([fields[i] for i in field_ids] if isinstance(item, dict) else item)]
        else:
            first = len(done) - len(item)
            done[first:] = [_container(t.OBJECT if isinstance(item, dict) else t.ARRAY, field_ids, done[first:])]
    return done[0]


def _container(basic: int, ids: list[int], values: list[bytes]) -> bytes:
    ends = np.cumsum([0, *map(len, values)])
    width = _width(int(ends[-1]))
    large = len(values) > 0xFF
    parts = [len(values).to_bytes(4 if large else 1, "little")]
    header = width - 1
    if basic == t.ARRAY:
        header |= large << 2
    else:
        id_width = _width(max(ids, default=0))
        header |= (id_width - 1) << 2 | large << 4
        parts += [i.to_bytes(id_width, "little") for i in ids]
    parts += [int(end).to_bytes(width, "little") for end in ends]
    return b"".join([bytes([header << 2 | basic]), *parts, *values])


def _encode_scalar(obj: Any) -> bytes:
    for kind, encoder in _ENCODERS:
        if isinstance(obj, kind) and not isinstance(obj, np.timedelta64):  # a subclass of NumPy's integers
            return encoder(obj)
    raise DeltaVariantError(f"a Variant cannot hold a {type(obj).__module__}.{type(obj).__qualname__}")


def _primitive(type_id: int, payload: bytes = b"") -> bytes:
    return bytes([type_id << 2]) + payload


def _sized(type_id: int, payload: bytes) -> bytes:
    _width(len(payload))
    return _primitive(type_id, len(payload).to_bytes(4, "little") + payload)


def _encode_int(value: int) -> bytes:
    value = int(value)
    for type_id, width in ((t.INT8, 1), (t.INT16, 2), (t.INT32, 4), (t.INT64, 8)):
        if -(1 << 8 * width - 1) <= value < 1 << 8 * width - 1:
            return _primitive(type_id, value.to_bytes(width, "little", signed=True))
    if abs(value) >= 10**t.MAX_PRECISION:
        raise DeltaVariantError(f"a Variant holds integers of at most {t.MAX_PRECISION} digits; use a float")
    return _encode_decimal(Decimal(value))


def _encode_decimal(value: Decimal) -> bytes:
    if not value.is_finite():
        raise DeltaVariantError(f"a Variant decimal cannot hold {value}; use a float")
    sign, digits, exponent = value.as_tuple()
    scale, zeros = max(-int(exponent), 0), max(int(exponent), 0) if value else 0
    precision = max(len(digits) + zeros, scale)  # Spark refuses a scale beyond the precision of the width
    if precision > t.MAX_PRECISION:
        raise DeltaVariantError(f"a Variant decimal has at most {t.MAX_PRECISION} digits; {value:.3E} has {precision}")
    unscaled = int("".join(map(str, digits))) * 10**zeros
    type_id, width = (t.DECIMAL4, 4) if precision <= 9 else (t.DECIMAL8, 8) if precision <= 18 else (t.DECIMAL16, 16)
    return _primitive(type_id, bytes([scale]) + (-unscaled if sign else unscaled).to_bytes(width, "little", signed=True))


def _encode_string(value: str) -> bytes:
    text = value.encode()
    if len(text) <= t.SHORT_STRING_MAX:
        return bytes([len(text) << 2 | t.SHORT_STRING]) + text
    return _sized(t.STRING, text)


def _encode_instant(nanoseconds: int, *, zoned: bool, as_nanos: bool) -> bytes:
    """A timestamp. as_nanos: in the type that counts nanoseconds, which Spark cannot read."""
    if as_nanos:
        kind, count = t.TIMESTAMP_NANOS if zoned else t.TIMESTAMP_NTZ_NANOS, nanoseconds
    else:
        kind, count = t.TIMESTAMP if zoned else t.TIMESTAMP_NTZ, nanoseconds // 1000
    if not -(2**63) <= count < 2**63:
        raise DeltaVariantError("a Variant timestamp is a count from 1970 in 64 bits; this one is out of that range")
    return _primitive(kind, struct.pack("<q", count))


def _encode_datetime(value: dt.datetime) -> bytes:
    if hasattr(value, "to_datetime64"):  # a pandas.Timestamp, in nanoseconds by default
        exact = value.to_datetime64()
        if np.isnat(exact):
            return _primitive(t.NULL)
        nanoseconds = _nanoseconds(exact)
        return _encode_instant(nanoseconds, zoned=value.tzinfo is not None, as_nanos=nanoseconds % 1000 != 0)
    zoned = value.utcoffset() is not None
    microseconds = (value - (EPOCH_UTC if zoned else EPOCH)) // MICROSECOND
    return _encode_instant(microseconds * 1000, zoned=zoned, as_nanos=False)


_UNITS = {"h": Fraction(3600 * 10**9), "m": Fraction(60 * 10**9)}  # in nanoseconds
_UNITS.update((unit, Fraction(10**9, 1000**n)) for n, unit in enumerate(("s", "ms", "us", "ns", "ps", "fs", "as")))


def _nanoseconds(value: np.datetime64) -> int:
    unit, multiple = np.datetime_data(value.dtype)
    nanoseconds = int(value.astype(np.int64)) * multiple * _UNITS[unit]
    if nanoseconds.denominator != 1:
        raise DeltaVariantError(f"a Variant timestamp has whole nanoseconds; {value} has a fraction of one: round it")
    return nanoseconds.numerator


def _encode_datetime64(value: np.datetime64) -> bytes:
    """A date if the unit is days or longer, else a timestamp, as NumPy's own `item` distinguishes them."""
    if np.isnat(value):
        return _primitive(t.NULL)
    unit, multiple = np.datetime_data(value.dtype)
    if unit in _UNITS:
        return _encode_instant(_nanoseconds(value), zoned=False, as_nanos=_UNITS[unit] <= 1)
    overflows = abs(int(value.astype(np.int64))) * multiple >= 2**32  # in any unit; NumPy's conversion overflows silently
    days = 2**31 if overflows else int(value.astype("datetime64[D]").astype(np.int64))
    if not -(2**31) <= days < 2**31:
        raise DeltaVariantError(f"a Variant date is a count of days from 1970 in 32 bits; {value} is out of that range")
    return _primitive(t.DATE, struct.pack("<i", days))


def _encode_time(value: dt.time) -> bytes:
    if value.tzinfo is not None:
        raise DeltaVariantError(f"a Variant time has no time zone; {value!r} has one: remove it")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return _primitive(t.TIME, struct.pack("<q", seconds * 1_000_000 + value.microsecond))


def _encode_arrow(value: pa.Scalar) -> bytes:
    """The primitive that a typed column of the scalar's type holds. Arrow and Variant have the same bytes for fixed sizes."""
    if not value.is_valid:
        return _primitive(t.NULL)
    kind = t.of_arrow(value.type)
    if kind is None:
        raise DeltaVariantError(f"a Variant cannot hold an Arrow {value.type}")
    if kind.size == t.VARIABLE or kind.id == t.TRUE:
        return _encode_scalar(value.as_py())
    payload = pa.repeat(value, 1).buffers()[1].to_pybytes()
    if pa.types.is_decimal(value.type):
        payload = bytes([value.type.scale]) + payload
    return _primitive(kind.id, payload[: kind.size])


_ENCODERS: tuple[tuple[Any, Callable[[Any], bytes]], ...] = (
    (type(None), lambda _: _primitive(t.NULL)),
    ((bool, np.bool_), lambda b: _primitive(t.TRUE if b else t.FALSE)),
    (str, _encode_string),
    ((int, np.integer), _encode_int),
    ((np.float32, np.float16), lambda f: _primitive(t.FLOAT, struct.pack("<f", f))),
    (float, lambda f: _primitive(t.DOUBLE, struct.pack("<d", f))),
    (Decimal, _encode_decimal),
    (dt.datetime, _encode_datetime),
    (dt.date, lambda d: _primitive(t.DATE, struct.pack("<i", (d - EPOCH.date()).days))),
    (dt.time, _encode_time),
    (np.datetime64, _encode_datetime64),
    ((bytes, bytearray, memoryview), lambda b: _sized(t.BINARY, bytes(b))),
    (uuid.UUID, lambda u: _primitive(t.UUID, u.bytes)),
    (pa.Scalar, _encode_arrow),
)
