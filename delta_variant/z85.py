"""Z85, the text form of bytes in the Delta log: 4 bytes, as one big-endian number, become 5 digits in base 85.

Source: ZeroMQ RFC 32. Invariants: `decode(encode(data)) == data`; the text has no character that JSON must escape.
"""

from __future__ import annotations

from delta_variant.errors import MalformedVariantError

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_PAIRS = [a + b for a in _DIGITS for b in _DIGITS]


def encode(data: bytes) -> str:
    """The text of bytes. Raises MalformedVariantError if their number is not a multiple of 4.

    >>> encode(b"Variants")
    'r:*2.vqZgd'
    """
    if len(data) % 4:
        raise MalformedVariantError(f"Z85 encodes a multiple of 4 bytes, not {len(data)}: pad them with zeros")
    return "".join(map(_group, (int.from_bytes(data[at : at + 4], "big") for at in range(0, len(data), 4))))


def decode(text: str) -> bytes:
    """The bytes of Z85 text. Raises MalformedVariantError for any other text, and for a length that is not a multiple of 5.

    >>> decode("r:*2.vqZgd")
    b'Variants'
    """
    if len(text) % 5:
        raise MalformedVariantError(f"Z85 text is a multiple of 5 characters long, not {len(text)}")
    data = bytearray()
    for at in range(0, len(text), 5):
        number = 0
        for char in text[at : at + 5]:
            if char not in _VALUES:
                raise MalformedVariantError(f"{char!r} is not a Z85 digit")
            number = number * 85 + _VALUES[char]
        if number >= 1 << 32:
            raise MalformedVariantError(f"{text[at : at + 5]!r} at character {at} is not Z85: it exceeds 4 bytes")
        data += number.to_bytes(4, "big")
    return bytes(data)


def _group(number: int) -> str:
    high, low = divmod(number, 85**4)
    return _DIGITS[high] + _PAIRS[low // 85**2] + _PAIRS[low % 85**2]
