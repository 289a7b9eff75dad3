"""Bounds of the paths of a VARIANT column ⇄ their text in the Delta log.

In: {normalized path: a value that `binary.encode` takes}. Out: the metadata and then the value of a Variant object, padded with
zero bytes to a multiple of 4, in Z85. Source: Delta variantShredding, "Statistics for Variant Columns".

The proposal's two examples have the value before the metadata, and no padding: a last group of n + 1 digits stands for n bytes,
as in Ascii85. `decode_bounds` accepts both orders (the first byte of metadata ends in the bits 0001, that of an object in 10),
any number of digits and any padding. Invariant: `decode_bounds(encode_bounds(x)) == x`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from delta_variant import binary, z85
from delta_variant import types as t
from delta_variant.errors import MalformedVariantError

Item = TypeVar("Item")
Texts = TypeVar("Texts", bound="tuple[str | None, ...]")


def encode_bounds(bounds: Mapping[str, Any]) -> str:
    """The text of lower bounds, or of upper bounds. bounds: values by normalized path.

    A Python value gets the narrowest type that holds it; an Arrow scalar, like `pa.scalar(5, pa.int64())`, keeps its type. The
    two bounds of a path must have one type (Delta variantShredding). Raises DeltaVariantError for a value that Variant cannot
    hold.

    >>> import delta_variant as dv
    >>> dv.stats.encode_bounds({"$['id']": 5})
    '5DI>pbWhTgwg7T:0rr933<uRh'
    """
    data = b"".join(binary.encode(dict(bounds)))
    return z85.encode(data + bytes(-len(data) % 4))


def longest_fitting(items: Sequence[Item], encode: Callable[[Sequence[Item]], Texts], size: int) -> Texts:
    """The texts that `encode` returns for as many of the first items as give at most `size` characters together."""
    fits, too_many, fitting = 0, len(items) + 1, encode(items[:0])
    while too_many - fits > 1:
        count = len(items) if too_many > len(items) else (fits + too_many) // 2
        texts = encode(items[:count])
        if sum(len(text or "") for text in texts) <= size:
            fits, fitting = count, texts
        else:
            too_many = count
    return fitting


def decode_bounds(text: str) -> dict[str, Any]:
    """The bounds in a text, by normalized path, as `binary.decode` returns them. Raises MalformedVariantError.

    Outside the years 1 to 9999, dates are numpy.datetime64[D] and timestamps pandas.Timestamp.

    >>> import delta_variant as dv
    >>> dv.stats.decode_bounds("5DI>pbWhTgwg7T:0rr933<uRh")
    {"$['id']": 5}
    """
    bounds = binary.decode(*_parts(text))
    if not isinstance(bounds, dict):
        raise MalformedVariantError(f"bounds are a Variant object, not {bounds!r}")
    return bounds


class EncodedBounds:
    """The bounds in a text, each decoded when it is read. Raises MalformedVariantError, also when a bound is read.

    >>> import delta_variant as dv
    >>> dv.stats.EncodedBounds("5DI>pbWhTgwg7T:0rr933<uRh").get("$['id']")
    5
    """

    def __init__(self, text: str) -> None:
        self._metadata, self._value = _parts(text)

    def get(self, path: str) -> Any:
        """The bound of a normalized path; None if there is none."""
        return binary.decode_field(self._metadata, self._value, path)


def _parts(text: str) -> tuple[bytes, bytes]:
    """The metadata and the value in a text."""
    missing = -len(text) % 5
    data = z85.decode(text + "#" * missing)  # the largest digit, as in Ascii85: the bytes that remain are exact
    data = data[: len(data) - missing]
    if data[:1] and data[0] & 0x0F == binary.VERSION:
        size = _metadata_size(data)
        return data[:size], data[size:]
    size = _object_size(data)
    return data[size:], data[:size]


def _metadata_size(data: bytes) -> int:
    width = (data[0] >> 6) + 1
    count = _uint(data, 1, width)
    last = 1 + width * (count + 1)
    return last + width + _uint(data, last, width)


def _object_size(data: bytes) -> int:
    if not data or data[0] & 3 != t.OBJECT:
        raise MalformedVariantError(f"bounds start with metadata or with an object, not with {data[:1].hex() or 'nothing'}")
    header = data[0] >> 2
    offset_width, id_width, count_width = (header & 3) + 1, (header >> 2 & 3) + 1, 4 if header & 16 else 1
    count = _uint(data, 1, count_width)
    last = 1 + count_width + count * (id_width + offset_width)
    return last + offset_width + _uint(data, last, offset_width)


def _uint(data: bytes, at: int, width: int) -> int:
    if at + width > len(data):
        raise MalformedVariantError(f"bounds: {at + width} bytes or more expected, but there are {len(data)}")
    return int.from_bytes(data[at : at + width], "little")
