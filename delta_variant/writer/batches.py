"""The way of the rows from Spark into a task: Arrow record batches of a bounded size.

`java/Batches.java` makes them where the rows are, in Arrow's IPC format, and `mapInArrow` carries each as one BINARY value. Its
own batches take Spark twice as long to make, and their sizes are settings of the session, meant for the user's functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

SETTINGS: Final = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1", "spark.sql.execution.arrow.useLargeVarTypes": "false"}
"""With which `mapInArrow` carries one record batch at a time."""


def schema_of(rows: StructType, names: tuple[str, ...]) -> pa.Schema:
    """The columns of a record batch: VARIANT as struct<value, metadata>, times in UTC.

    names: of the columns, which Spark knows by their place.
    """
    fields = to_arrow_schema(rows, timezone="UTC")
    return pa.schema([field.with_name(name) for field, name in zip(fields, names, strict=True)])


def received(messages: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The record batches in a task, over the memory that they came in."""
    for carrier in messages:
        for message in carrier.column(0):
            yield pa.ipc.read_record_batch(message.as_buffer(), schema)
