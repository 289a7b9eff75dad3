"""The target size of files, and an estimate of a file's size while its rows are still in memory.

In: table properties; the bytes of row groups, in Arrow memory and in the file. Out: bytes. A row group is compressed as a whole
when it is full, so the size of the next one is estimated from earlier ones, in this file or in the task's previous file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa

from delta_variant.errors import TableError
from delta_variant.parquet.files import FileWriter

TARGET_BYTES = 128 << 20
"""The size of files without `delta.targetFileSize`: the task closes a file of about this size and opens a new one."""

LEAST_ROWS = 256
"""The least number of rows that are added to a file at once, even if the target is closer: fewer rows cost too much time."""

_PROPERTY = "delta.targetFileSize"
_SIZE = re.compile(r"(\d+)\s*([kmgtp]?)b?")  # org.apache.spark.network.util.JavaUtils, byteStringAs


def target_bytes(properties: Mapping[str, str]) -> int:
    """The value of `delta.targetFileSize` (bytes, or text such as 100mb), or else 128 MiB. Raises TableError for other text."""
    text = properties.get(_PROPERTY)
    if text is None:
        return TARGET_BYTES
    match = _SIZE.fullmatch(text.strip().lower())
    size = int(match[1]) << 10 * " kmgtp".index(match[2] or " ") if match else 0
    if size < 1:
        raise TableError(f"{_PROPERTY} = {text!r} is not a size: write bytes, or 100mb")
    return size


class Sizes:
    """Estimates sizes for the files of one task, by the ratio of bytes in the file to bytes in Arrow memory."""

    def __init__(self) -> None:
        self._of_incoming: float | None = None  # file bytes per byte of rows before they are shredded
        self._of_physical: float | None = None  # file bytes per byte of rows in physical columns

    @property
    def known(self) -> bool:
        """Whether a row group has been written."""
        return self._of_physical is not None

    def learn(self, writer: FileWriter, incoming_bytes: int) -> None:
        """Updates the ratios from the row groups that a file has so far.

        incoming_bytes: the size in Arrow memory of all its rows before they were shredded.
        """
        if writer.flushed_bytes:
            self._of_physical = writer.file_bytes / writer.flushed_bytes
            self._of_incoming = self._of_physical * (writer.flushed_bytes + writer.buffered_bytes) / max(1, incoming_bytes)

    def of_file(self, writer: FileWriter) -> float:
        """The size of the file if it were closed now; without a ratio, its present size."""
        return writer.file_bytes + writer.buffered_bytes * (self._of_physical or 0)

    def of_rows(self, incoming_bytes: int) -> float:
        """The size that rows of so many bytes in Arrow memory, not yet shredded, would have in the file; 0 without a ratio."""
        return incoming_bytes * (self._of_incoming or 0)

    def rows(self, room: float, rows: pa.RecordBatch) -> int:
        """How many of these rows fill `room` bytes of the file; without a ratio, `room` bytes of Arrow memory."""
        return max(LEAST_ROWS, int(room / (self._of_incoming or 1) * rows.num_rows / max(1, rows.nbytes)) + 1)
