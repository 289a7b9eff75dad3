"""Partitions: their values and directories, as Delta writes them.

In: batches whose last columns are the partition values in text. Out: consecutive rows of one partition, and the names of
directories and files for the log (PROTOCOL.md, "Partition Value Serialization").
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from itertools import pairwise
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from delta_variant.errors import InvalidSchemaError, UnsupportedFeatureError
from delta_variant.stats.values import timestamp_text
from delta_variant.writer.plan import Plan

Key = tuple[str | None, ...]
"""The values of the partition columns; None for null."""

_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
# ExternalCatalogUtils.escapePathName
_ESCAPED_IN_DIRECTORY = frozenset("\"#%'*/:=?\\{[]^\x7f") | frozenset(map(chr, range(32)))
_LEGAL_IN_URI = "/-_.!~'()*,;:$&+=@"  # java.net.URI, "path"


def partitions(batch: pa.RecordBatch, plan: Plan) -> Iterator[tuple[Key, pa.RecordBatch]]:
    """Yields consecutive rows with the same partition values: the values, and the rows without the partition columns."""
    count = len(plan.partition_by)
    if not count:
        yield (), batch
        return
    data = batch.select(list(range(batch.num_columns - count)))
    columns = batch.columns[-count:]
    change = np.zeros(batch.num_rows, np.bool_)
    for column in columns:
        codes = column.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False)
        change[1:] |= codes[1:] != codes[:-1]
    starts = [0, *np.flatnonzero(change).tolist(), batch.num_rows]
    for start, end in pairwise(starts):
        if start < end:
            values = zip(plan.partition_by, columns, strict=True)
            key = tuple(_partition_value(plan, name, column[start]) for name, column in values)
            yield key, data.slice(start, end - start)


def _partition_value(plan: Plan, name: str, scalar: pa.Scalar) -> str | None:
    """A value as the log stores it (PROTOCOL.md, "Partition Value Serialization"). Raises InvalidSchemaError."""
    try:
        value: str | None = scalar.as_py()
    except UnicodeDecodeError:
        raise InvalidSchemaError(
            f"partition column {name} has text that is not UTF-8: replace it, or partition by another column"
        ) from None
    if value is None or value == _NULL_PARTITION:  # Delta reads values from the names of directories
        return None
    if "\0" in value:
        raise UnsupportedFeatureError(f"partition column {name} has the character NUL, which no path can have: replace it")
    if name in plan.timestamps:
        return timestamp_text(int(value), "UTC", digits=6)
    return value


def check_ascii(path: str) -> None:
    """Raises UnsupportedFeatureError for a path that is not ASCII, which Java cannot name in a locale without UTF-8."""
    if not path.isascii():
        raise UnsupportedFeatureError(
            f"Java cannot name {path}, because the locale has no UTF-8: start Spark with LC_ALL=C.UTF-8"
        )


def directory(name: str, value: str | None) -> str:
    """The directory of a partition value, such as `day=2026-11-01`."""
    return f"{_escaped(name)}={_NULL_PARTITION if value is None else _escaped(value)}"


def _escaped(text: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED_IN_DIRECTORY else char for char in text)


def uri(path: str) -> str:
    """The path percent-encoded as by Hadoop's Path.toUri, which is what Delta writes to its log: letters beyond ASCII stay."""
    return "".join(char if _stays(char) else quote(char, safe=_LEGAL_IN_URI) for char in path)


def _stays(char: str) -> bool:
    return char > "\x7f" and unicodedata.category(char) not in ("Cc", "Zs", "Zl", "Zp")
