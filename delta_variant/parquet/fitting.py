"""Arrow arrays of one file → arrays of the types that a table has.

In: a column as pyarrow reads it, with Variants as struct<metadata, value>. Out: the same values in another type: fields by
name, without regard to case, and null where the file has none. Invariant: a value that the type cannot hold is an error, and
so is a time in the calendar that Spark had before version 3, where it means another time today.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delta_variant import nested
from delta_variant.errors import TableError, UnsupportedFeatureError
from delta_variant.paths import ColumnPath, dotted

VARIANT = pa.struct([pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False, {b"variant": b"true"})])
"""VARIANT in record batches of PySpark."""
_VERSION, _LEGACY = b"org.apache.spark.version", (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
# RebaseDateTime.lastSwitchJulianDay and lastSwitchJulianTs: from here on both of Spark's calendars agree, in every time zone.
_DAY, _MICROSECOND = -141427, -2208988800000000


def is_marked_variant(kind: pa.DataType, _path: ColumnPath = ()) -> bool:
    """Whether a type is VARIANT as PySpark has it: marked in the metadata of a field."""
    index = kind.get_field_index("metadata") if pa.types.is_struct(kind) else -1
    return index >= 0 and (kind.field(index).metadata or {}).get(b"variant") == b"true"


def is_legacy(metadata: pq.FileMetaData) -> bool:
    """Whether times may be in the calendar that Spark had before version 3 (DataSourceUtils.getRebaseSpec; 3.1 for INT96)."""
    keys = metadata.metadata or {}
    return any(key in keys for key in _LEGACY) or keys.get(_VERSION, b"4") < b"3.1.0"


def fitted(array: pa.Array, kind: pa.DataType, path: ColumnPath = (), *, is_legacy: bool) -> pa.Array:
    """The array with another type.

    path: its name, for messages. is_legacy: whether dates and timestamps are in the calendar that Spark had before version 3.
    Raises UnsupportedFeatureError for such a time on which the calendars differ, and TableError for a value that the type
    cannot hold.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), kind)
    if is_marked_variant(kind):
        children = [array.field(array.type.get_field_index(field.name)) for field in kind]
        return nested.rebuilt(array, kind, children)
    if pa.types.is_struct(kind):
        numbers = {field.name.lower(): number for number, field in enumerate(array.type)}
        children = [
            fitted(array.field(numbers[field.name.lower()]), field.type, (*path, field.name), is_legacy=is_legacy)
            if field.name.lower() in numbers
            else pa.nulls(len(array), field.type)
            for field in kind
        ]
        return nested.rebuilt(array, kind, children)
    if nested.is_nested(kind):
        if pa.types.is_list(kind) and not pa.types.is_list(array.type):
            array = array.cast(pa.list_(array.type.value_field))
        parts = zip(nested.arrays(array), nested.children(kind, path), strict=True)
        return nested.rebuilt(array, kind, [fitted(part, field.type, own, is_legacy=is_legacy) for part, (own, field) in parts])
    if is_legacy:
        _check_calendar(array, path)
    try:
        return array if array.type == kind else array.cast(kind)
    except pa.ArrowInvalid as error:
        raise TableError(f"{_named(path)}{error}") from error


def _named(path: ColumnPath) -> str:
    return f"column {dotted(path)}: " if path else ""


def _check_calendar(array: pa.Array, path: ColumnPath) -> None:
    if pa.types.is_date(array.type):
        first, limit = pc.min(array.cast(pa.date32()).cast(pa.int32())).as_py(), _DAY
    elif pa.types.is_timestamp(array.type):
        first, limit = pc.min(array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())).as_py(), _MICROSECOND
    else:
        return
    if first is not None and first < limit:
        raise UnsupportedFeatureError(
            f"{_named(path)}dates before 1582-10-15 or times before 1900 are in the calendar that Spark had before version 3",
            advice="read the file with Spark and write it again",
        )
