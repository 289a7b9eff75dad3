"""Files of JSON documents → Variants: what the tasks of `ingest` do. No Spark, no JVM.

    piece of a file ─▶ texts: blocks of bytes, and where each document is ─▶ documents: Variants, and what is malformed

This module has what the driver tells the tasks about all files; `delta_variant.pieces` is about each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from delta_variant.pieces import COMPRESSIONS
from delta_variant.storage import Storage

Form = Literal["auto", "lines", "array", "adjacent", "document"]
FORMS: tuple[Form, ...] = ("auto", "lines", "array", "adjacent", "document")
SUFFIXES = (".json", ".jsonl", ".ndjson")


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
