"""`in_rows`: an error about a value gets the row of the file, whatever the function of the rows is."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_variant.errors import InvalidLayoutError, MalformedVariantError
from delta_variant.locating import in_rows


@given(st.integers(1, 500), st.data(), st.integers(0, 1 << 40))
def test_the_first_row(rows, data, first):
    """Of several rows that fail, the first is named, by its number in the file; the rest of the message stays."""
    bad = data.draw(st.sets(st.integers(0, rows - 1), min_size=1))

    def fail(part: pa.RecordBatch) -> int:
        if found := [row for row in part.column(0).to_pylist() if row in bad]:
            raise MalformedVariantError(f"column v: {max(found)} is bad", at="$.a", row=len(part), advice="mend it")
        return len(part)

    batch = pa.record_batch([pa.array(range(rows))], ["n"])
    told = rf"^column v: {min(bad)} is bad \(at \$\.a, row {{}}\): mend it$"
    with pytest.raises(MalformedVariantError, match=told.format(first + min(bad))):
        in_rows(fail, batch, first)
    with pytest.raises(MalformedVariantError, match=told.format(2 * min(bad))):
        in_rows(fail, batch, lambda row: 2 * row)
    good = batch.slice(0, min(bad))
    assert in_rows(fail, good, first) == len(good)


@given(st.integers(0, 50))
def test_errors_that_are_about_no_row(rows):
    """An error about the type, or about all rows together, has no row, whatever the function said."""
    array = pa.array(range(rows), pa.int64())

    def refused(_: pa.Array) -> None:
        raise InvalidLayoutError("another type is expected", row=3)

    def together(part: pa.Array) -> None:
        if len(part) == rows:
            raise InvalidLayoutError("too many", row=3)

    for function, told in ((refused, "another type is expected"), (together, "too many")):
        if function is together and rows == 1:
            continue
        with pytest.raises(InvalidLayoutError, match=f"^{told}$"):
            in_rows(function, array, 7)


def test_rows_that_cannot_be_taken_apart():
    """If pyarrow cannot give a part of the rows, the error of the function stays, without a row."""
    offsets, data = pa.py_buffer(np.array([0, 1, 2**31 - 1, 3, 4], np.int32)), pa.py_buffer(b"abcd")
    array = pa.Array.from_buffers(pa.binary(), 4, [None, offsets, data])

    def refused(part: pa.Array) -> None:
        if len(part) > 1:
            raise InvalidLayoutError("damaged", row=1)

    with pytest.raises(pa.ArrowException):
        pa.concat_arrays([array[:2]])
    with pytest.raises(InvalidLayoutError, match=r"^damaged$"):
        in_rows(refused, array[:2], 0)
