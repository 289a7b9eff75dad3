"""The values of a path in one file as 64-bit hashes: `Values`.

In: Arrow arrays of one type, a typed column. Out: the distinct hashes, and the kind and scale that queries need for a look-up.
Source: `protocol/README.md`, "The index of values", I2.

Strings are hashed as their UTF-8 bytes. Integers and decimals are one class, exact numbers: 5, 5.0 and 5.00 have one hash.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from delta_variant.buffers import buffers_of
from delta_variant.kernels import ribbon
from delta_variant.membership.ribbon import MAX_VALUES, Hashes
from delta_variant.types import is_exact, is_string

STRING, EXACT = "string", "exact"
_MANY = 1 << 16
"""Hashes are merged when there are so many new ones, or as many as distinct ones so far."""
_SIZE = 17  # of a number: 16 bytes of its digits, one of its scale


def kind_of(data_type: pa.DataType) -> str | None:
    """The kind of filters for the values of a typed column; None for types that have none.

    >>> kind_of(pa.int8()), kind_of(pa.decimal64(18, 2)), kind_of(pa.float64())
    ('exact', 'exact', None)
    """
    return STRING if is_string(data_type) else EXACT if is_exact(data_type) else None


class Values:
    """Collects the distinct values of a path in a file.

    kind: STRING or EXACT. scale: how many decimal places the values need. They are kept as hashes: 16 bytes for each at most.
    """

    def __init__(self, kind: str) -> None:
        self.kind, self.scale = kind, 0
        self._hashes: Hashes = np.empty(0, np.uint64)
        self._pending: list[Hashes] = []
        self._pending_count = 0

    def add(self, values: pa.Array) -> bool:
        """Adds an array of the kind; nulls are ignored. False if the values can have no filter: not UTF-8, or far too many."""
        values = values.drop_null()
        if not len(values):
            return True
        if self.kind == STRING:
            hashes = hash_strings(values)
        else:
            digits, scales = _numbers(values)
            self.scale = max(self.scale, int(scales.max()))
            hashes = _hash_numbers(digits, scales)
        if hashes is None:
            return False
        self._pending.append(hashes)
        self._pending_count += len(hashes)
        if self._pending_count < max(_MANY, len(self._hashes)):
            return True
        return len(self.hashes) <= MAX_VALUES

    @property
    def hashes(self) -> Hashes:
        """The distinct hashes, sorted."""
        if self._pending:
            found = np.concatenate([self._hashes, *self._pending])
            found.sort()  # an eighth of the time of np.unique, which has a hash table
            distinct = np.ones(len(found), np.bool_)
            np.not_equal(found[1:], found[:-1], out=distinct[1:])
            self._hashes, self._pending, self._pending_count = found[distinct], [], 0
        return self._hashes


def hash_strings(values: pa.Array) -> Hashes | None:
    """The hash of each string of an array without nulls. None if one is not UTF-8: Spark changes it when it reads it."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return None
    ends, data = buffers_of(values)
    hashes = np.empty(len(values), np.uint64)
    ribbon.hash_texts(data, ends, hashes)
    return hashes


def hash_numbers(values: pa.Array) -> Hashes:
    """The hash of each integer or decimal of an array without nulls."""
    return _hash_numbers(*_numbers(values))


def _numbers(values: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Numbers without zeros at the end of their decimal places: digits, the low and the high half of an int128, and scales."""
    scale = values.type.scale if pa.types.is_decimal(values.type) else 0
    if pa.types.is_decimal(values.type):
        width = values.type.byte_width
        raw = np.frombuffer(values.buffers()[1], np.uint8)[values.offset * width : (values.offset + len(values)) * width]
        words = raw.view(np.int32).astype(np.int64) if width == 4 else raw.view(np.int64)
        words = words.reshape(len(values), max(1, width // 8))
        low = words[:, 0].copy()
        high = words[:, 1].copy() if words.shape[1] > 1 else low >> 63
    else:
        low = values.to_numpy().astype(np.int64)
        high = low >> 63
    scales = np.full(len(low), scale, np.int64)
    narrow = high == low >> 63
    for _ in range(scale):
        longer = narrow & (scales > 0) & (low % 10 == 0)
        if not longer.any():
            break
        low[longer] //= 10
        scales[longer] -= 1
    for row in np.flatnonzero(~narrow & (scales > 0)).tolist():
        digits, left = (int(high[row]) << 64) | (int(low[row]) & (1 << 64) - 1), scale
        while left and digits % 10 == 0:
            digits, left = digits // 10, left - 1
        low[row], high[row], scales[row] = _signed(digits), digits >> 64, left
    return np.stack([low, np.where(narrow, low >> 63, high)], axis=1), scales


def _signed(digits: int) -> int:
    low = digits & (1 << 64) - 1
    return low - (1 << 64) if low >> 63 else low


def _hash_numbers(digits: npt.NDArray[np.int64], scales: npt.NDArray[np.int64]) -> Hashes:
    data = np.empty((len(digits), _SIZE), np.uint8)
    data[:, :16] = np.ascontiguousarray(digits).view(np.uint8).reshape(len(digits), 16)
    data[:, 16] = scales
    hashes = np.empty(len(digits), np.uint64)
    ribbon.hash_texts(data.reshape(-1), np.arange(len(digits) + 1, dtype=np.int64) * _SIZE, hashes)
    return hashes
