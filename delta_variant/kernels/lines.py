"""Where the lines of a text end."""

# ruff: noqa: ANN001, ANN201  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant.kernels.compiler import jit, trailing_zeros
from delta_variant.kernels.scan import is_newline


@jit
def line_ends(data, at, end, out):
    """Writes the positions of the newlines in data[at:end] to `out`, and returns how many there are.

    `data` has `scan.PADDING` spare bytes. `out` has room for end - at positions.
    """
    count = 0
    for block in range(at, end, 32):
        bits = is_newline(data, block) & np.uint64(0xFFFFFFFF)
        while bits:
            newline = block + trailing_zeros(bits)
            if newline < end:
                out[count] = newline
                count += 1
            bits &= bits - np.uint64(1)
    return count
