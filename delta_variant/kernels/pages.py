"""Texts and binaries in Parquet's encoding PLAIN. In: the buffers of an Arrow array. Out: the bytes of a page.

Source: parquet-format, "Encodings", PLAIN.
"""

# ruff: noqa: ANN001, ANN201  # Numba infers the types
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from delta_variant.kernels.compiler import copy, jit
from delta_variant.kernels.memory import put


@jit
def plain_texts(data, offsets, out):
    """Writes each text to `out`, with its size in four bytes in front. offsets: of the texts in `data`."""
    to = np.int64(0)
    for i in range(len(offsets) - 1):
        size = np.int64(offsets[i + 1] - offsets[i])
        put(out, to, size, 4)
        copy(out, to + 4, data, offsets[i], size)
        to += size + 4
