"""The plan of an index: what the driver tells every task. It is data, and knows no Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from delta_variant.paths import ColumnPath
from delta_variant.storage import Storage
from delta_variant.version import __version__

Path = tuple[ColumnPath, ColumnPath]
"""The physical names of a column, and the keys of a path in it."""


class DataFile(NamedTuple):
    """A data file as its Add action has it. A table may get another file under the same name."""

    path: str
    size: int
    """Its bytes."""
    time: int
    """Its modification time, in milliseconds since 1970."""


@dataclass(frozen=True)
class IndexedColumn:
    """A VARIANT column with paths that are to be indexed."""

    names: ColumnPath
    """Its physical names."""
    ids: tuple[int, ...]
    """The Parquet field ids of these names, if files are read by id; else empty."""
    paths: tuple[ColumnPath, ...]
    """The keys of each path."""


@dataclass(frozen=True)
class IndexPlan:
    """What tasks are told that build filters, the same for all tasks of a job."""

    location: Storage
    """The directory of the table."""
    table: str
    """The id of the table, in its metadata."""
    columns: tuple[IndexedColumn, ...]
    budget: float
    """The share of a file's bytes that its filters may take, all together."""
    max_columns: int
    """The most bits for a value that are of use in a table of so many files."""
    version: str = __version__
    """The version of this package on the driver."""

    @property
    def paths(self) -> list[Path]:
        """All paths, in the order of the columns."""
        return [(column.names, keys) for column in self.columns for keys in column.paths]
