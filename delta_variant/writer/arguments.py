"""The arguments of `write` → a `Request`: checked as far as no table is needed, with the session's settings as defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from delta_variant.errors import InvalidSchemaError, UnsupportedFeatureError
from delta_variant.messages import Additions
from delta_variant.parquet.files import PARQUETS_NAMES
from delta_variant.writer.column_types import check_types
from delta_variant.writer.json_texts import JsonTexts

if TYPE_CHECKING:
    import pyarrow as pa

    from delta_variant.writer.row_sources import Pieces
    from delta_variant.writer.shredding_schemas import Shred

CLUSTER_BY_OPTION = "delta_variant.cluster_by"
"""The option, setting (after `spark.`) and table property with the keys by which new rows are sorted."""
SHRED = "delta_variant.shred"
"""Those for whether VARIANT columns are shredded: `auto` or `false`."""
_SAVE_MODES = {
    "append": "Append", "overwrite": "Overwrite", "error": "ErrorIfExists", "errorifexists": "ErrorIfExists",
    "ignore": "Ignore",
}  # fmt: skip
_CODECS = ("zstd", "snappy", "gzip", "lz4", "none")
_CODEC_OF_SESSION, _ROWS_OF_SESSION = "spark.sql.parquet.compression.codec", "spark.sql.files.maxRecordsPerFile"
_NO_PARTITION = (T.VariantType, T.StructType, T.ArrayType, T.MapType, T.BinaryType)


@dataclass(frozen=True)
class Request:
    """What a write is asked to do, apart from its rows and its table: the arguments of `write`, and what its callers add."""

    mode: str
    shred: Shred | Mapping[str, str | pa.DataType] = "auto"
    partition_by: Sequence[str] = ()
    cluster_by: Sequence[str] = ()
    replace_where: str | None = None
    partition_overwrite: str | None = None
    merge_schema: bool | None = None
    overwrite_schema: bool = False
    txn: tuple[str, int] | None = None
    user_metadata: str | None = None
    compression: str = "zstd"
    max_rows: int | None = None
    """The rows after which a file ends; None for no limit."""
    texts: JsonTexts = field(default_factory=JsonTexts)
    pieces: Pieces | None = None
    """What the rows are pieces of; None if they are rows."""
    additions: Additions = field(default_factory=Additions)
    """What is committed besides; `calls` fills in `pieces`."""
    max_bytes: int | None = None
    """Bytes after which a file ends; None for the target size of the table's files."""
    has_new_rows: bool = True
    """Whether the rows are new to the table: options and properties then say how VARIANT columns are shredded by "auto"."""

    @classmethod
    def of(
        cls,
        df: DataFrame,
        mode: str,
        *,
        compression: str | None = None,
        max_rows_per_file: int | None = None,
        parse_json: Mapping[str, str] | None = None,
        on_error: str = "fail",
        corrupt: str | None = None,
        **others: Any,
    ) -> Request:
        """The request of a call of `write`, with its arguments. others: those that are fields.

        Raises UnsupportedFeatureError, and InvalidSchemaError for lists of columns that are text and for columns with texts.
        """
        if not isinstance(df, DataFrame):
            raise UnsupportedFeatureError(f"write takes a DataFrame of Spark, not a {type(df).__name__}: make one of it first")
        if df.isStreaming:
            raise UnsupportedFeatureError("write takes a batch: pass foreach_batch(…) to writeStream.foreachBatch")
        check_types(df.schema)
        asked = cls(mode, **others)
        _check_mode(asked)
        if max_rows_per_file is not None:
            max_rows_per_file = whole("max_rows_per_file", max_rows_per_file)
        if asked.txn is not None and not _is_txn(asked.txn):
            raise UnsupportedFeatureError(f"txn={asked.txn!r} is not an application and its version: write txn=('my-job', 7)")
        for name, listed in (("partition_by", asked.partition_by), ("cluster_by", asked.cluster_by)):
            if isinstance(listed, str):
                raise InvalidSchemaError(f"{name}={listed!r} must be a list of columns: [{listed!r}]")
            if not isinstance(listed, Iterable):
                raise InvalidSchemaError(f"{name}={listed!r} must be a list of columns")
        return replace(
            asked,
            partition_by=tuple(asked.partition_by),
            cluster_by=tuple(asked.cluster_by),
            compression=_codec(df.sparkSession, compression),
            max_rows=_max_rows(df.sparkSession, max_rows_per_file),
            texts=JsonTexts.of(df.schema, parse_json, on_error, corrupt),
        )

    @classmethod
    def rewriting(
        cls,
        spark: SparkSession,
        shred: Shred | Mapping[str, str | pa.DataType],
        cluster_by: Sequence[str],
        max_bytes: int,
        pieces: Pieces | None,
    ) -> Request:
        """The request for rows that the table has already. pieces: if the rows may be pieces."""
        return cls(
            "overwrite", shred, cluster_by=cluster_by, compression=_codec(spark, None), max_rows=_max_rows(spark, None),
            pieces=pieces, max_bytes=max_bytes, has_new_rows=False,
        )  # fmt: skip

    @property
    def save_mode(self) -> str:
        """Spark's name of the mode: Append, Overwrite, ErrorIfExists or Ignore."""
        return _SAVE_MODES[self.mode.lower()]

    @property
    def options(self) -> dict[str, str]:
        """The arguments as options of Delta's DataFrameWriter, and the keys as one of ours.

        Those that are not given are left out: the session decides.
        """
        application, version = self.txn or (None, None)
        given = {
            "replaceWhere": self.replace_where,
            "partitionOverwriteMode": self.partition_overwrite,
            "mergeSchema": None if self.merge_schema is None else str(self.merge_schema).lower(),
            "overwriteSchema": "true" if self.overwrite_schema else None,
            "txnAppId": application,
            "txnVersion": None if version is None else str(version),
            "userMetadata": self.user_metadata,
            CLUSTER_BY_OPTION: ", ".join(self.cluster_by) or None,
        }
        return {name: value for name, value in given.items() if value is not None}


def whole(name: str, given: object) -> int:
    """An argument that is a number of rows or bytes. Raises UnsupportedFeatureError for any other."""
    if not isinstance(given, Integral) or isinstance(given, bool) or given < 1:
        raise UnsupportedFeatureError(f"{name}={given!r} must be a whole number, 1 or more")
    return int(given)


def _check_mode(asked: Request) -> None:
    """Raises UnsupportedFeatureError for unknown modes, and for arguments that need an overwrite or exclude each other."""
    mode, partitions = str(asked.mode).lower(), asked.partition_overwrite
    if mode not in _SAVE_MODES:
        raise UnsupportedFeatureError(f"mode={asked.mode!r} is not one of {', '.join(_SAVE_MODES)}")
    if partitions is not None and partitions.lower() not in ("static", "dynamic"):
        raise UnsupportedFeatureError(f"partition_overwrite={partitions!r} is not one of static, dynamic")
    for name in ("replace_where", "partition_overwrite", "overwrite_schema"):
        if getattr(asked, name) not in (None, False) and mode != "overwrite":
            raise UnsupportedFeatureError(f"{name} says what an overwrite replaces: use it with mode='overwrite'")
    partial = {
        "replace_where": asked.replace_where is not None,
        "partition_overwrite='dynamic'": (partitions or "").lower() == "dynamic",
        "overwrite_schema": asked.overwrite_schema,
    }
    chosen = [name for name, is_chosen in partial.items() if is_chosen]
    if len(chosen) > 1:
        raise UnsupportedFeatureError(f"{' and '.join(chosen)} exclude each other: leave one out")


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
    found = PARQUETS_NAMES.get(given, given)  # Spark's `lz4` is Hadoop's framing, which nobody but Hadoop reads
    if found not in _CODECS:
        raise UnsupportedFeatureError(f"{_CODEC_OF_SESSION}={given} is not one of {', '.join(_CODECS)}")
    return found


def _max_rows(spark: SparkSession, given: int | None) -> int | None:
    """The rows after which a file ends: the argument, else the session's setting; None for no limit."""
    if given is not None:
        return given
    rows = int(spark.conf.get(_ROWS_OF_SESSION, None) or 0)
    return rows if rows > 0 else None


def _is_txn(txn: object) -> bool:
    if not isinstance(txn, tuple) or len(txn) != 2:
        return False
    app_id, version = txn
    return isinstance(app_id, str) and bool(app_id) and isinstance(version, int) and 0 <= version < 1 << 63


def partition_columns(partition_by: Sequence[str], schema: T.StructType) -> list[str]:
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
