"""The way of the rows from Spark into a task: Arrow record batches of a bounded size.

`java/Batches.java` makes them where the rows are, each a message of Arrow's IPC format. The batches of `mapInArrow` would take
longer, and their sizes are settings of the session, meant for the user's functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType


def schema_of(rows: StructType, names: tuple[str, ...]) -> pa.Schema:
    """The columns of a record batch: VARIANT as struct<value, metadata>, times in UTC.

    names: of the columns, which Spark knows by their place.
    """
    fields = to_arrow_schema(rows, timezone="UTC")
    return pa.schema([field.with_name(name) for field, name in zip(fields, names, strict=True)])


def received(messages: Iterator[bytes], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The record batches in a task, over the memory that they came in."""
    for message in messages:
        batch = pa.ipc.read_record_batch(pa.py_buffer(message), schema)
        del message  # nothing but the batch holds it while the next one is read
        yield batch
        del batch
