"""The plan of an analysis: what the driver tells every task. It is data, and knows no Spark."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from delta_variant.paths import ColumnPath
from delta_variant.storage import Storage
from delta_variant.version import __version__


@dataclass(frozen=True)
class AnalyzedColumn:
    """A VARIANT column that has statistics."""

    names: ColumnPath
    """Its physical names, which statistics use."""
    ids: tuple[int, ...]
    """The Parquet field ids of these names, if files are read by id; else empty."""
    asked: bool
    """Whether bounds of this column are asked for; those of other columns are kept."""
    schema: pa.DataType | None
    """The shredding schema that is stored with the table."""
    paths: tuple[ColumnPath, ...]
    """The paths that are asked for by name. Every file is to have bounds for them, beyond the usual number."""
    first: tuple[ColumnPath, ...]
    """The paths that get bounds before all others, those of `paths` included."""


@dataclass(frozen=True)
class AnalysisPlan:
    """The instructions of an analysis, the same for all of its tasks."""

    location: Storage
    """The directory of the table."""
    columns: tuple[AnalyzedColumn, ...]
    by_name: bool
    """Whether columns or paths are asked for by name, so that files with the marker may lack them."""
    string_prefix: int
    tags: bool
    """Whether files get the tags for what statistics have no place for (`stats.tags`)."""
    tags_only: bool
    """Whether bounds go into the tags, because the table must not have them in its statistics."""
    loses_bounds: bool = False
    """Whether Delta can have dropped the bounds of files that this package wrote."""
    version: str = __version__
    """The version of this package on the driver."""
