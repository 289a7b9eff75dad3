"""The arguments of `write` → a `Request`: checked as far as no table is needed, with the session's settings as defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import types as t

from delta_variant.errors import InvalidSchemaError, UnsupportedFeatureError
from delta_variant.writer.column_types import check_types
from delta_variant.writer.json_texts import JsonTexts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from delta_variant.json_files.pieces import JsonFiles
    from delta_variant.messages import Removal
    from delta_variant.parquet_files.reader import ParquetFiles
    from delta_variant.writer.shredding_schemas import Shred

CLUSTER_BY = "delta_variant.cluster_by"
"""The option, setting (after `spark.`) and table property with the keys by which new rows are sorted."""
SHRED = "delta_variant.shred"
"""Those for whether VARIANT columns are shredded: `auto` or `false`."""
_SAVE_MODES = {
    "append": "Append",
    "overwrite": "Overwrite",
    "error": "ErrorIfExists",
    "errorifexists": "ErrorIfExists",
    "ignore": "Ignore",
}
_CODECS = ("zstd", "snappy", "gzip", "lz4", "none")
# Spark's names of codecs, where they differ. Its `lz4` is Hadoop's framing, which nobody but Hadoop reads.
_SPARK_CODECS = {"uncompressed": "none", "lz4_raw": "lz4"}
_CODEC_OF_SESSION, _ROWS_OF_SESSION = "spark.sql.parquet.compression.codec", "spark.sql.files.maxRecordsPerFile"
_NO_PARTITION = (t.VariantType, t.StructType, t.ArrayType, t.MapType, t.BinaryType)


@dataclass(frozen=True)
class Request:
    """What a write is asked to do, apart from its rows and its table; the same from the first step to the last."""

    save_mode: str
    """Spark's name of the mode: Append, Overwrite, ErrorIfExists or Ignore."""
    shred: Shred | Mapping[str, str | pa.DataType]
    partition_by: tuple[str, ...]
    cluster_by: tuple[str, ...]
    overwrite_schema: bool
    compression: str
    max_rows: int | None
    """The rows after which a file ends; None for no limit."""
    options: Mapping[str, str]
    """The arguments as options of Delta's DataFrameWriter."""
    texts: JsonTexts
    files: JsonFiles | ParquetFiles | None = None
    """How tasks read the files whose pieces the rows name; None if the rows are rows."""
    identifiers: Mapping[str, int] = field(default_factory=dict)
    """Transaction identifiers to commit besides `txn`: versions by application."""
    again: bool = False
    """Whether the table may have them already."""
    known: Mapping[str, int] = field(default_factory=dict)
    """Those that the table has, and that this write replaces, with their rows (`removal`)."""
    removal: Removal | None = None
    """What is removed, if the mode does not say it."""
    max_bytes: int | None = None
    """Bytes after which a file ends; None for the target size of the table's files."""

    @property
    def follows_options(self) -> bool:
        """Whether options, properties and settings say how VARIANT columns are shredded, for new rows."""
        return self.shred == "auto" and self.max_bytes is None

    @classmethod
    def of(
        cls,
        df: DataFrame,
        mode: str,
        *,
        shred: Shred | Mapping[str, str | pa.DataType] = "auto",
        partition_by: Sequence[str] = (),
        cluster_by: Sequence[str] = (),
        replace_where: str | None = None,
        partition_overwrite: str | None = None,
        merge_schema: bool | None = None,
        overwrite_schema: bool = False,
        compression: str | None = None,
        max_rows_per_file: int | None = None,
        txn: tuple[str, int] | None = None,
        user_metadata: str | None = None,
        parse_json: Mapping[str, str] | None = None,
        on_error: str = "fail",
        corrupt: str | None = None,
    ) -> Request:
        """The request of a call of `write`, with its arguments.

        Raises UnsupportedFeatureError, and InvalidSchemaError for lists of columns that are text and for columns with texts.
        """
        _check_rows(df)
        spark = df.sparkSession
        _check_mode(mode, replace_where, partition_overwrite, overwrite_schema=overwrite_schema)
        if max_rows_per_file is not None and max_rows_per_file < 1:
            raise UnsupportedFeatureError(f"max_rows_per_file={max_rows_per_file} must be 1 or more")
        if txn is not None and not _is_txn(txn):
            raise UnsupportedFeatureError(f"txn={txn!r} is not an application and its version: write txn=('my-job', 7)")
        for name, listed in (("partition_by", partition_by), ("cluster_by", cluster_by)):
            if isinstance(listed, str):
                raise InvalidSchemaError(f"{name}={listed!r} must be a list of columns: [{listed!r}]")
        return cls(
            save_mode=_SAVE_MODES[mode.lower()],
            shred=shred,
            partition_by=tuple(partition_by),
            cluster_by=tuple(cluster_by),
            overwrite_schema=overwrite_schema,
            compression=_codec(spark, compression),
            max_rows=_max_rows(spark, max_rows_per_file),
            options=_options(
                replace_where, partition_overwrite, merge_schema, overwrite_schema, txn, user_metadata, cluster_by
            ),
            texts=JsonTexts.of(df.schema, parse_json, on_error, corrupt),
        )

    @classmethod
    def rewriting(
        cls, spark: SparkSession, shred: Shred | Mapping[str, str | pa.DataType], cluster_by: Sequence[str], max_bytes: int
    ) -> Request:
        """The request for rows that the table has already."""
        texts = JsonTexts({}, fails=True, corrupt=None)
        return cls(
            save_mode="Overwrite", shred=shred, partition_by=(), cluster_by=tuple(cluster_by), overwrite_schema=False,
            compression=_codec(spark, None), max_rows=_max_rows(spark, None), options={}, texts=texts, max_bytes=max_bytes,
        )  # fmt: skip


def _check_mode(mode: str, replace_where: str | None, partition_overwrite: str | None, *, overwrite_schema: bool) -> None:
    """Raises UnsupportedFeatureError for unknown modes, and for arguments that need an overwrite or exclude each other."""
    if str(mode).lower() not in _SAVE_MODES:
        raise UnsupportedFeatureError(f"mode={mode!r} is not one of {', '.join(_SAVE_MODES)}")
    if partition_overwrite is not None and partition_overwrite.lower() not in ("static", "dynamic"):
        raise UnsupportedFeatureError(f"partition_overwrite={partition_overwrite!r} is not one of static, dynamic")
    given = {
        "replace_where": replace_where,
        "partition_overwrite": partition_overwrite,
        "overwrite_schema": overwrite_schema or None,
    }
    for name, value in given.items():
        if value is not None and mode.lower() != "overwrite":
            raise UnsupportedFeatureError(f"{name} says what an overwrite replaces: use it with mode='overwrite'")
    partial = {"replace_where": replace_where is not None, "partition_overwrite='dynamic'": _is_dynamic(partition_overwrite)}
    chosen = [name for name, is_chosen in {**partial, "overwrite_schema": overwrite_schema}.items() if is_chosen]
    if len(chosen) > 1:
        raise UnsupportedFeatureError(f"{' and '.join(chosen)} exclude each other: leave one out")


def _is_dynamic(mode: str | None) -> bool:
    return (mode or "").lower() == "dynamic"


def _check_rows(df: DataFrame) -> None:
    """Raises UnsupportedFeatureError for a stream, and for columns of types that `write` does not handle."""
    if df.isStreaming:
        raise UnsupportedFeatureError("write takes a batch: pass foreach_batch(…) to writeStream.foreachBatch")
    check_types(df.schema)


def _codec(spark: SparkSession, given: str | None) -> str:
    """The codec of the files: the argument, else the session's setting, else zstd. Raises UnsupportedFeatureError."""
    if given is None:
        return sparks_codec(spark.conf.get(_CODEC_OF_SESSION, None))
    if given not in _CODECS:
        raise UnsupportedFeatureError(f"compression={given!r} is not one of {', '.join(_CODECS)}")
    return given


def sparks_codec(name: str | None) -> str:
    """The codec that an option or a setting of Spark names; zstd for None. Raises UnsupportedFeatureError."""
    given = (name or "zstd").lower()
    found = _SPARK_CODECS.get(given, given)
    if found not in _CODECS:
        raise UnsupportedFeatureError(f"{_CODEC_OF_SESSION}={given} is not one of {', '.join(_CODECS)}")
    return found


def _max_rows(spark: SparkSession, given: int | None) -> int | None:
    """The rows after which a file ends: the argument, else the session's setting; None for no limit."""
    if given is not None:
        return given
    rows = int(spark.conf.get(_ROWS_OF_SESSION, None) or 0)
    return rows if rows > 0 else None


def _options(
    replace_where: str | None,
    partition_overwrite: str | None,
    merge_schema: bool | None,
    overwrite_schema: bool,
    txn: tuple[str, int] | None,
    user_metadata: str | None,
    cluster_by: Sequence[str],
) -> dict[str, str]:
    """The arguments as options of Delta's DataFrameWriter, and the keys as one of ours.

    Those that are not given are left out: the session decides.
    """
    given: dict[str, str | None] = {
        "replaceWhere": replace_where,
        "partitionOverwriteMode": partition_overwrite,
        "mergeSchema": None if merge_schema is None else str(merge_schema).lower(),
        "overwriteSchema": "true" if overwrite_schema else None,
        "txnAppId": txn and txn[0],
        "txnVersion": None if txn is None else str(txn[1]),
        "userMetadata": user_metadata,
        CLUSTER_BY: ", ".join(cluster_by) or None,
    }
    return {name: value for name, value in given.items() if value is not None}


def _is_txn(txn: object) -> bool:
    if not isinstance(txn, tuple) or len(txn) != 2:
        return False
    app_id, version = txn
    return isinstance(app_id, str) and bool(app_id) and isinstance(version, int) and 0 <= version < 1 << 63


def partition_columns(partition_by: Sequence[str], schema: t.StructType) -> list[str]:
    """The columns as the schema spells them. Raises InvalidSchemaError if a table cannot be partitioned by them."""
    spelled = {name.lower(): name for name in schema.names}
    columns = []
    for name in partition_by:
        if name.lower() not in spelled:
            raise InvalidSchemaError(f"partition_by: there is no column {name}; the columns are {', '.join(schema.names)}")
        columns.append(spelled[name.lower()])
        data_type = schema[columns[-1]].dataType
        if isinstance(data_type, _NO_PARTITION):
            raise InvalidSchemaError(
                f"partition_by: {name} is {data_type.simpleString().upper()} and cannot be a partition column"
            )
    if columns and len(set(columns)) >= len(schema.names):
        raise InvalidSchemaError("partition_by: a table needs a column that is not a partition column")
    return columns


def check_partitioning(partition_by: Sequence[str], existing: Sequence[str], table: str) -> None:
    """Raises InvalidSchemaError if the table is partitioned by other columns than those given."""
    if partition_by and [name.lower() for name in partition_by] != [name.lower() for name in existing]:
        raise InvalidSchemaError(
            f"{table} is partitioned by {list(existing)}, not {list(partition_by)}: leave partition_by out"
        )
