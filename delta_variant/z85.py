"""Z85, the text form of bytes in the Delta log: 4 bytes, as one big-endian number, become 5 digits in base 85.

Source: ZeroMQ RFC 32. Invariants: `decode(encode(data)) == data`; the text has no character that JSON must escape.
"""

from __future__ import annotations

import numpy as np

from delta_variant.errors import MalformedVariantError

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_NO_DIGIT = 255
_VALUES = bytes(_DIGITS.find(chr(code)) & _NO_DIGIT for code in range(256))
"""By byte: the value of a digit; _NO_DIGIT for all others."""
_POWERS = 85 ** np.arange(4, -1, -1, dtype=np.int64)
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
    digits = text.encode("latin-1", "replace").translate(_VALUES)  # `?`, the replacement, is a digit
    if not text.isascii() or _NO_DIGIT in digits:
        char = next(char for char in text if char not in _DIGITS)
        raise MalformedVariantError(f"{char!r} is not a Z85 digit")
    numbers = np.frombuffer(digits, np.uint8).reshape(-1, 5) @ _POWERS
    if numbers.max(initial=0) >= 1 << 32:
        at = 5 * int(np.argmax(numbers >= 1 << 32))
        raise MalformedVariantError(f"{text[at : at + 5]!r} at character {at} is not Z85: it exceeds 4 bytes")
    return numbers.astype(">u4").tobytes()


def _group(number: int) -> str:
    high, low = divmod(number, 85**4)
    return _DIGITS[high] + _PAIRS[low // 85**2] + _PAIRS[low % 85**2]
