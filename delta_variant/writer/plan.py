"""The plan of a write: what the driver (`planning`) tells every task (`task`). It is data, and knows no Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from delta_variant.membership.plan import IndexPlan
from delta_variant.paths import ColumnPath
from delta_variant.storage import Storage
from delta_variant.version import __version__
from delta_variant.writer.row_sources import RowSource

IS_CHANGE = "__is_cdc"
"""The first of the partition columns, if some of the rows are change data: "true" for those that are."""


@dataclass(frozen=True)
class Plan:
    """The instructions of a write, the same for all of its tasks."""

    location: Storage
    """The directory of the table."""
    variants: frozenset[ColumnPath]
    """The VARIANT columns, as paths of Parquet groups."""
    partition_by: tuple[str, ...] = ()
    timestamps: frozenset[str] = frozenset()
    """TIMESTAMP columns. As partition values they arrive as microseconds since 1970; the log has them as UTC timestamps."""
    shredding_schemas: Mapping[ColumnPath, pa.DataType] = field(default_factory=dict)
    """Shredding schemas given by the user, or stored with the table."""
    infer: bool = False
    """Whether the other VARIANT columns get a schema inferred from the first rows of each file. Their objects are closed."""
    compression: str = "zstd"
    max_rows: int | None = None
    """Rows after which a file ends; None for no limit."""
    max_bytes: int = 128 << 20
    """Bytes after which a file ends."""
    footer: Mapping[str, str] = field(default_factory=dict)
    """Key-value metadata for the Parquet footer."""
    annotates: bool = True
    """Whether VARIANT groups get Parquet's logical type."""
    names_unicode: bool = True
    """Whether Java finds files whose names are not ASCII."""
    string_prefix: int = 32
    tight_bounds: bool = False
    with_statistics: frozenset[ColumnPath] | None = None
    """The leaf columns that get statistics; None for all."""
    tags: bool = False
    """Whether files get the tags that say more about paths than the statistics may (`stats.tags`)."""
    field_ids: Mapping[ColumnPath, int] = field(default_factory=dict)
    """Parquet field ids of columns and of the fields inside them; empty without column mapping."""
    random_prefix: int = 0
    """The length of the names of random directories for files; 0 if files go to the directory of their partition."""
    first_bounds: Mapping[ColumnPath, tuple[ColumnPath, ...]] = field(default_factory=dict)
    """For VARIANT columns, the paths that get bounds before all others, each as its keys."""
    index: IndexPlan | None = None
    """The paths whose filters are written with the files; None if there are none."""
    sources: tuple[RowSource, ...] = ()
    """What makes rows of the batches, one after the other; nothing if batches have the rows."""
    closes_given: bool = False
    """Whether the objects of columns with given schemas are closed too."""
    identity_columns: Mapping[str, bool] = field(default_factory=dict)
    """Columns whose highest value (True) or lowest value (False) is reported: Delta keeps it for identity columns."""
    version: str = __version__
    """The version of this package on the driver."""
