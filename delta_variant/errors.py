"""The errors that this package raises: one family, so that `except DeltaVariantError` catches all of them.

A message says what is wrong, where (table, column, path, file, row, byte), and what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class DeltaVariantError(Exception):
    """The base class of all errors of this package.

    at: the path of the value that the error is about. row: its row, from 0, in the array or the file that was read.
    advice: what to do.
    """

    def __init__(self, text: str = "", *, at: str | None = None, row: int | None = None, advice: str | None = None) -> None:
        super().__init__(text)
        self.text, self.at, self.row, self.advice = text, at, row, advice

    def __str__(self) -> str:
        places = [*([] if self.at is None else [f"at {self.at}"]), *([] if self.row is None else [f"row {self.row}"])]
        told = f"{self.text} ({', '.join(places)})" if places else self.text
        return told if self.advice is None else f"{told}: {self.advice}"

    def within(self, name: str) -> Self:
        """The error with the name of what the value is in."""
        return type(self)(f"{name}: {self.text}", at=self.at, row=self.row, advice=self.advice)

    def in_row(self, row: int | None) -> Self:
        """The error with another row."""
        return type(self)(self.text, at=self.at, row=row, advice=self.advice)


class MalformedVariantError(DeltaVariantError, ValueError):
    """Variant bytes that the binary encoding does not allow."""


class InvalidJsonError(DeltaVariantError, ValueError):
    """A text that is not JSON, or that Spark's parse_json refuses for another reason."""


class InvalidLayoutError(DeltaVariantError, ValueError):
    """A Parquet or Arrow layout of a VARIANT column that the shredding specification does not allow."""


class DamagedFileError(InvalidLayoutError):
    """A file that is not Parquet, or whose parts contradict each other."""


class InvalidSchemaError(DeltaVariantError, ValueError):
    """A shredding schema, or a DataFrame's schema, that does not fit what it is used for."""


class InvalidPathError(DeltaVariantError, ValueError):
    """Text that is not a path into a VARIANT column."""


class CastError(DeltaVariantError, ValueError):
    """A value that cannot be cast to the type that a query asks for."""


class TableError(DeltaVariantError):
    """A table that is missing, is not Delta, or cannot take the operation."""


class ConflictError(TableError):
    """Another writer has committed a conflicting change in between. The table is as that writer left it: try again."""


class UnsupportedFeatureError(DeltaVariantError, NotImplementedError):
    """A feature of the table, the session or the data that this package does not handle (yet)."""


class SessionError(DeltaVariantError, RuntimeError):
    """A Spark session, or a machine, that cannot run the operation."""


class DeltaVariantWarning(UserWarning):
    """Something that the user should know and that does not stop the operation."""
