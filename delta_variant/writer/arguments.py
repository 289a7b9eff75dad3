"""What is wrong with a call of `write` whatever its table is, or before there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as t

from delta_variant.errors import InvalidSchemaError, UnsupportedFeatureError
from delta_variant.writer.alignment import check_types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

_CODECS = ("zstd", "snappy", "gzip", "lz4", "none")
_NO_PARTITION = (t.VariantType, t.StructType, t.ArrayType, t.MapType, t.BinaryType)


def check_arguments(df: DataFrame, compression: str, max_rows: int | None, txn: tuple[str, int] | None) -> None:
    """Raises UnsupportedFeatureError."""
    if df.isStreaming:
        raise UnsupportedFeatureError("write takes a batch: pass foreach_batch(…) to writeStream.foreachBatch")
    if compression not in _CODECS:
        raise UnsupportedFeatureError(f"compression={compression!r} is not one of {', '.join(_CODECS)}")
    if max_rows is not None and max_rows < 1:
        raise UnsupportedFeatureError(f"max_rows_per_file={max_rows} must be 1 or more")
    if txn is not None and not _is_txn(txn):
        raise UnsupportedFeatureError(f"txn={txn!r} is not an application and its version: ('my-job', 7)")
    check_types(df.schema)


def _is_txn(txn: object) -> bool:
    if not isinstance(txn, tuple) or len(txn) != 2:
        return False
    app_id, version = txn
    return isinstance(app_id, str) and bool(app_id) and isinstance(version, int) and 0 <= version < 1 << 63


def partition_columns(partition_by: Sequence[str], schema: t.StructType) -> list[str]:
    """The columns as the schema spells them; InvalidSchemaError where a table cannot be partitioned so."""
    if isinstance(partition_by, str):
        raise InvalidSchemaError(f"partition_by={partition_by!r} must be a list of columns: [{partition_by!r}]")
    spelled = {name.lower(): name for name in schema.names}
    columns = []
    for name in partition_by:
        if name.lower() not in spelled:
            raise InvalidSchemaError(f"partition_by: there is no column {name}; the columns are {', '.join(schema.names)}")
        columns.append(spelled[name.lower()])
        kind = schema[columns[-1]].dataType
        if isinstance(kind, _NO_PARTITION):
            raise InvalidSchemaError(f"partition_by: {name} is {kind.simpleString().upper()} and cannot be a partition column")
    if columns and len(set(columns)) >= len(schema.names):
        raise InvalidSchemaError("partition_by: a table needs a column that is not a partition column")
    return columns


def check_partitioning(partition_by: Sequence[str], existing: Sequence[str], table: str) -> None:
    """InvalidSchemaError where a table is partitioned in another way."""
    if partition_by and [name.lower() for name in partition_by] != [name.lower() for name in existing]:
        raise InvalidSchemaError(
            f"{table} is partitioned by {list(existing)}, not {list(partition_by)}: leave partition_by out"
        )
