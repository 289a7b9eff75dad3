"""Where the value is that an error is about: the row of its file (`in_rows`), and the names of what it is in (`naming`).

In: a function that has raised an error for the rows of a batch. Out: the same error with the first row for which the function
raises one. The function is called again for half of the rows, then for half of these, and so on. A kernel cannot tell the row:
it knows the position of a value in its own buffers, which may hold the elements of lists, a chunk, or the rows that a predicate
left. Rows are counted from 0 in the file, with all row groups and deleted rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa

from delta_variant.errors import (
    CastError,
    DeltaVariantError,
    InvalidLayoutError,
    MalformedVariantError,
    TableError,
    UnsupportedFeatureError,
)

VALUE_ERRORS = (CastError, InvalidLayoutError, MalformedVariantError, TableError, UnsupportedFeatureError)
"""The errors that a value can cause."""


@contextmanager
def naming(name: object) -> Iterator[None]:
    """Errors about values in the `with` block get the name of what the value is in."""
    try:
        yield
    except VALUE_ERRORS as error:
        raise error.within(str(name)) from error


R = TypeVar("R", bound=Sized)
"""A batch, or a column of one."""
Result = TypeVar("Result")


def in_rows(function: Callable[[R], Result], rows: R, first: int | Callable[[int], int]) -> Result:
    """The result of a function of rows. An error that it raises about a value gets the row of the file.

    first: the number of the first of these rows in the file, or a function from numbers of these rows to numbers in the file.
    """
    try:
        return function(rows)
    except VALUE_ERRORS as error:
        found = _first(function, rows, error)
        if found is None:  # the error is about all rows together
            raise error.in_row(None) from error
        row, own = found
        raise own.in_row(first(row) if callable(first) else first + row) from error


def _first(function: Callable[[R], object], rows: R, error: DeltaVariantError) -> tuple[int, DeltaVariantError] | None:
    """The first row for which the function raises an error, and this error; None if it raises none for a part of the rows.

    None also if the function raises an error for an empty batch, since such an error is about the type, and if pyarrow cannot
    split the rows, since their buffers are then damaged.
    """
    start, size = 0, len(rows)
    if _error(function, rows, 0, 0) is not None:
        return None
    while size > 1:
        half = size // 2
        for at, count in ((start, half), (start + half, size - half)):
            found = _error(function, rows, at, count)
            if found is not None:
                start, size, error = at, count, found
                break
        else:
            return None
    return (start, error) if size else None


def part(rows: Any, offset: int, length: int) -> Any:
    """Some rows, without the elements of others. Functions on lists see all elements of an array, even those outside of the
    slice."""
    some = rows.slice(offset, length)
    if isinstance(some, pa.RecordBatch):
        some = pa.RecordBatch.from_arrays([pa.concat_arrays([column]) for column in some.columns], schema=some.schema)
    elif isinstance(some, pa.Array):
        some = pa.concat_arrays([some])
    return some


def _error(function: Callable[[R], object], rows: R, offset: int, length: int) -> DeltaVariantError | None:
    try:
        function(part(rows, offset, length))
    except VALUE_ERRORS as error:
        return error
    except Exception:  # noqa: BLE001  # the first error is the one to tell
        return None
    return None
