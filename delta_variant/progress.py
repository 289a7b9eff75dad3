"""How far a long operation is: what `ingest`, `convert` and methods of `VariantTable` tell their callers after each commit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How far an operation is, after a commit."""

    files: int
    files_total: int
    bytes: int
    """The size of these files."""
    bytes_total: int
    rows: int
