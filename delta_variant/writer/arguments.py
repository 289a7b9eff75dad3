"""What is wrong with a call of `write` whatever its table is, or before there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as t

from delta_variant.errors import InvalidSchemaError, UnsupportedFeatureError
from delta_variant.writer.alignment import check_types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

_CODECS = ("zstd", "snappy", "gzip", "lz4", "none")
# What Spark's setting calls codecs; `lz4` there is Hadoop's framing, which nobody but Hadoop reads.
_SPARK_CODECS = {"uncompressed": "none", "lz4_raw": "lz4"}
_CODEC_OF_SESSION, _ROWS_OF_SESSION = "spark.sql.parquet.compression.codec", "spark.sql.files.maxRecordsPerFile"
_NO_PARTITION = (t.VariantType, t.StructType, t.ArrayType, t.MapType, t.BinaryType)


def check_arguments(df: DataFrame, max_rows: int | None, txn: tuple[str, int] | None) -> None:
    """Raises UnsupportedFeatureError."""
    if df.isStreaming:
        raise UnsupportedFeatureError("write takes a batch: pass foreach_batch(…) to writeStream.foreachBatch")
    if max_rows is not None and max_rows < 1:
        raise UnsupportedFeatureError(f"max_rows_per_file={max_rows} must be 1 or more")
    if txn is not None and not _is_txn(txn):
        raise UnsupportedFeatureError(f"txn={txn!r} is not an application and its version: ('my-job', 7)")
    check_types(df.schema)


def compression_codec(spark: SparkSession, given: str | None) -> str:
    """The codec of the files: the one given, the one that the session is set to, or zstd. Raises UnsupportedFeatureError."""
    named = f"compression={given!r}"
    if given is None:
        given = (spark.conf.get(_CODEC_OF_SESSION, "zstd") or "zstd").lower()
        named = f"{_CODEC_OF_SESSION}={given}"
        given = _SPARK_CODECS.get(given, given)
    if given not in _CODECS:
        raise UnsupportedFeatureError(f"{named} is not one of {', '.join(_CODECS)}")
    return given


def rows_per_file(spark: SparkSession, given: int | None) -> int | None:
    """Rows after which a file ends: the number given, or the session's; None for any number."""
    if given is not None:
        return given
    rows = int(spark.conf.get(_ROWS_OF_SESSION, None) or 0)
    return rows if rows > 0 else None


def delta_options(
    replace_where: str | None,
    partition_overwrite: str | None,
    merge_schema: bool | None,
    overwrite_schema: bool,
    txn: tuple[str, int] | None,
    user_metadata: str | None,
) -> dict[str, str]:
    """The arguments as options of Delta's DataFrameWriter; what is not given is left to the session."""
    given: dict[str, str | None] = {
        "replaceWhere": replace_where,
        "partitionOverwriteMode": partition_overwrite,
        "mergeSchema": None if merge_schema is None else str(merge_schema).lower(),
        "overwriteSchema": "true" if overwrite_schema else None,
        "txnAppId": txn and txn[0],
        "txnVersion": None if txn is None else str(txn[1]),
        "userMetadata": user_metadata,
    }
    return {name: value for name, value in given.items() if value is not None}


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
