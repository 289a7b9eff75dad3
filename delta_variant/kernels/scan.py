"""Many bytes of text in one look.

A scan loads 32 bytes and returns one bit for each byte that ends a run; the lowest bit is the first byte. LLVM turns it into
the vector instructions of the processor. Bit 32 is always set, so that the number of trailing zeros is the length of the run,
at most 32. Loads reach up to 31 bytes beyond a text, so a buffer of texts ends with PADDING spare bytes.
"""

from __future__ import annotations

from typing import Any

from delta_variant.kernels.compiler import scanner

PADDING = 64

string_end = scanner(lambda byte: byte.any_of('"\\') | (byte < 0x20))  # or a control character
ends_structure = scanner(lambda byte: (byte | 0x20).any_of("{}") | byte.any_of('"') | (byte < 0x20))  # [ and ] become { and }
not_ascii = scanner(lambda byte: byte > 0x7F)
not_blank = scanner(lambda byte: ~byte.any_of(" \n\r\t"))
is_newline = scanner(lambda byte: byte.any_of("\n"))
not_digit = scanner(lambda byte: byte - ord("0") > 9)


def bytes_between(low: int, high: int) -> Any:
    """A scan for bytes from `low` to `high`."""
    return scanner(lambda byte: byte - low <= high - low)
