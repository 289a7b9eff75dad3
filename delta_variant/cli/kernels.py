"""Compiles the kernels of a write, or loads them from their cache, in this process.

In: documents and a shredding schema. They are written to a temporary directory by the code of a task. Out: how many kernels
were compiled and how many loaded, the seconds, and the directory of the cache. Python workers that start later load them;
without this, each would compile them.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import pyarrow as pa

from delta_variant import binary
from delta_variant.errors import DeltaVariantError
from delta_variant.kernels import compiler
from delta_variant.schema import parse
from delta_variant.storage import Storage
from delta_variant.writer.plan import Plan
from delta_variant.writer.row_sources import received
from delta_variant.writer.task import write_files

_ROWS = 200
_VARIANT = pa.struct([pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)])


@dataclass(frozen=True)
class Kernels:
    """The kernels of a write."""

    compiled: int
    loaded: int
    """From the cache on disk."""
    seconds: float
    directory: str | None
    """The directory of the cache; None if no directory can be written to, so that each process compiles for itself."""


def compiled(documents: Sequence[str], shredding_schema: str) -> Kernels:
    """Compiles or loads the kernels that write these documents with a shredding schema, and plain.

    documents: JSON texts. shredding_schema: DDL.
    """
    start, before = time.monotonic(), compiler.counts()
    rows = [binary.encode(json.loads(text, parse_float=Decimal)) for text in documents[:_ROWS]]
    variants = pa.array([{"metadata": metadata, "value": value} for metadata, value in rows], _VARIANT)
    batch = pa.RecordBatch.from_arrays([variants], ["v"])
    message = batch.serialize().to_pybytes()  # Numba treats read-only arrays as a different type
    with tempfile.TemporaryDirectory(prefix="delta-variant-") as folder:
        plan = Plan(
            Storage.of(folder), frozenset({("v",)}), shredding_schemas={("v",): parse(shredding_schema)}, infer=True, tags=True
        )  # fmt: skip
        for each in (plan, replace(plan, shredding_schemas={}, infer=False)):
            for report in write_files(each, received(iter([message]), batch.schema)):
                if report.error is not None:
                    raise DeltaVariantError(report.error.text)
    misses, hits = (after - earlier for after, earlier in zip(compiler.counts(), before, strict=True))
    return Kernels(misses, hits, time.monotonic() - start, compiler.cache_directory())
