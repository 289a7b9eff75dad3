"""Pieces of files: what `ingest` and `convert` tell a task to read. They are sent as text, in a column of rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache

import pyarrow as pa
from pyarrow import fs

from delta_variant.storage import Storage

PIECE = "delta_variant piece"
"""The column with pieces in the rows that a task gets; it is the first."""
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


@dataclass(frozen=True)
class Piece:
    """A part of a file. A line belongs to the piece in which it begins, and so does a row group."""

    storage: int
    """The number of its storage among those of `JsonFiles` or `ParquetFiles`."""
    path: str
    """As pyarrow's file system names the file."""
    name: str
    """The file in messages, and in the column for paths: a URI."""
    size: int
    start: int = 0
    end: int | None = None
    """The bytes of the piece; None for the end of the file."""

    def json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Piece:
        return cls(**json.loads(text))

    @classmethod
    def each(cls, batches: Iterable[pa.RecordBatch]) -> Iterator[Piece]:
        """The pieces in the first column of batches."""
        return (cls.of(text) for batch in batches for text in batch.column(0).to_pylist())

    @property
    def compression(self) -> str | None:
        """The compression of the file, by its suffix; None for plain files."""
        return next((name for suffix, name in COMPRESSIONS.items() if self.path.lower().endswith(suffix)), None)


def spans(size: int, length: int) -> Iterator[tuple[int, int | None]]:
    """Where the parts of a file begin and end, each of so many bytes. size: of the file. The last one has no end."""
    for start in range(0, max(size, 1), length):
        yield start, start + length if start + length < size else None


def opener(storages: Sequence[Storage]) -> Callable[[Piece], fs.FileSystem]:
    """Gives the file systems of pieces in one task, each opened at its first use."""
    opened = cache(lambda number: storages[number].open())
    return lambda piece: opened(piece.storage)
