"""Pieces of files, and how to read JSON documents in them: what the driver of `ingest` tells its tasks."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyarrow import fs

    from delta_variant.storage import Storage

Form = Literal["auto", "lines", "array", "adjacent", "document"]
FORMS: tuple[Form, ...] = ("auto", "lines", "array", "adjacent", "document")
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
SUFFIXES = (".json", ".jsonl", ".ndjson")


@dataclass(frozen=True)
class Piece:
    """A part of a file. A line belongs to the piece in which it begins."""

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
        """The piece as text."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Piece:
        """The piece from its text."""
        return cls(**json.loads(text))

    @property
    def compression(self) -> str | None:
        """The compression of the file, by its suffix; None for plain files."""
        return next((name for suffix, name in COMPRESSIONS.items() if self.path.lower().endswith(suffix)), None)


def opener(storages: Sequence[Storage]) -> Callable[[Piece], fs.FileSystem]:
    """Gives the file systems of pieces in one task, each opened at its first use."""
    opened = cache(lambda number: storages[number].open())
    return lambda piece: opened(piece.storage)


@dataclass(frozen=True)
class JsonFiles:
    """How the files are read; the same for all pieces."""

    storages: tuple[Storage, ...]
    form: Form
    """How documents stand in a file: one a line, as the elements of an array, one after the other, or one a file. "auto":
    `forms`."""
    records: tuple[str, ...] | None
    """The keys that lead from each document to the array whose elements are the rows; None if documents are rows."""
    max_bytes: int
    """The bytes that a document may have."""
    fails: bool
    """Whether a malformed document fails the task; else it is left out and counted."""
    allow_duplicate_keys: bool
    validate_unicode: bool = True


def is_known(name: str) -> bool:
    """Whether the name of a file says that it has JSON, compressed or not."""
    name = name.lower()
    for suffix in COMPRESSIONS:
        name = name.removesuffix(suffix)
    return name.endswith(SUFFIXES)
