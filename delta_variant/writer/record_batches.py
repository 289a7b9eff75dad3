"""Arrow record batches on their way from Spark into a task: their schema on the driver, and how a task reads them.

`scala/Batches.java` makes the batches in the executor's JVM: one IPC message each, of at most 16,384 rows or about 8 MiB.
PySpark's `mapInArrow` is slower, and takes its batch size from session settings that are meant for the user's own
functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator


def received(messages: Iterator[bytes], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Decodes the record batches in a task, without copying the messages."""
    for message in messages:
        batch = pa.ipc.read_record_batch(pa.py_buffer(message), schema)
        del message  # so that only the batch keeps its memory alive
        yield batch
        del batch


def fitted(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches with the types of a schema, whose columns they have in its order."""
    for batch in batches:
        columns = [c if c.type == f.type else c.cast(f.type) for c, f in zip(batch.columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
