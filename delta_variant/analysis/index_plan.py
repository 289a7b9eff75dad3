"""The plan of an index: what the driver tells every task. It is data, and knows no Spark."""

from __future__ import annotations

from dataclasses import dataclass

from delta_variant.analysis.plan import Column
from delta_variant.storage import Storage
from delta_variant.version import __version__


@dataclass(frozen=True)
class IndexPlan:
    """The instructions of a job that builds filters, the same for all of its tasks."""

    location: Storage
    """The directory of the table."""
    columns: tuple[Column, ...]
    """The columns, whose `paths` are those to be indexed."""
    budget: float
    """The share of a file's bytes that its filters may take, all together."""
    max_columns: int
    """The most bits for a value that are of use in a table of so many files."""
    version: str = __version__
    """The version of this package on the driver."""
