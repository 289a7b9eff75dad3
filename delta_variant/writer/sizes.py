"""How large files become: the target of a table, and an estimate of what a file will be while its rows are still in memory.

In: table properties; the bytes of row groups, in Arrow and in the file. Out: bytes. A row group is compressed as a whole when
it is full, so that what the next one takes is only known from those before it, in this file or in the last one of the task.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from delta_variant.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from delta_variant.parquet.files import FileWriter

TARGET_BYTES = 128 << 20
"""A file that is about this size is closed, and the task goes on in a new one."""

LEAST_ROWS = 256
"""Rows that go into a file at once, however close the target is: fewer cost more than they are worth."""

_PROPERTY = "delta.targetFileSize"
_SIZE = re.compile(r"(\d+)\s*([kmgtp]?)b?")  # org.apache.spark.network.util.JavaUtils, byteStringAs


def target_bytes(properties: Mapping[str, str]) -> int:
    """The size that `delta.targetFileSize` asks for (bytes, or 100mb), 128 MiB without it. Raises TableError."""
    text = properties.get(_PROPERTY)
    if text is None:
        return TARGET_BYTES
    match = _SIZE.fullmatch(text.strip().lower())
    size = int(match[1]) << 10 * " kmgtp".index(match[2] or " ") if match else 0
    if size < 1:
        raise TableError(f"{_PROPERTY} = {text!r} is not a size: write bytes, or 100mb")
    return size


class Sizes:
    """The estimate for the files of one task: bytes in the file for a byte in Arrow, as rows come and as they are written."""

    def __init__(self) -> None:
        self._come: float | None = None
        self._written: float | None = None

    @property
    def known(self) -> bool:
        """Whether a row group has been written."""
        return self._written is not None

    def learn(self, writer: FileWriter, come: int) -> None:
        """Takes in what a file's row groups have become so far. come: bytes of all its rows before they were shredded."""
        if writer.flushed_bytes:
            self._written = writer.file_bytes / writer.flushed_bytes
            self._come = self._written * (writer.flushed_bytes + writer.buffered_bytes) / max(1, come)

    def of_file(self, writer: FileWriter) -> float:
        """What the file would be, closed now; without a ratio, what it is."""
        return writer.file_bytes + writer.buffered_bytes * (self._written or 0)

    def of_rows(self, come: int) -> float:
        """What rows that are not shredded yet would be; 0 without a ratio."""
        return come * (self._come or 0)

    def rows(self, room: float, rows: pa.RecordBatch) -> int:
        """How many of these rows fill so many bytes of the file; without a ratio, so many bytes in Arrow."""
        return max(LEAST_ROWS, int(room / (self._come or 1) * rows.num_rows / max(1, rows.nbytes)) + 1)
