"""Streams: a function for `writeStream.foreachBatch` that writes each batch exactly once.

In: a target and the id of an application. Out: a function of a batch and its number. Spark may pass the same batch again
after a failure. The number is committed together with the batch's files (PROTOCOL.md, "Transaction Identifiers"), and a
batch whose number is in the table already is skipped.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from delta_variant.errors import UnsupportedFeatureError
from delta_variant.writer.driver import write

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from pyspark.sql import DataFrame


def foreach_batch(target: str | os.PathLike[str], *, app_id: str, **options: Any) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that appends each batch to a Delta table exactly once.

    Example:
        batches = stream.writeStream.foreachBatch(dv.foreach_batch("/data/events", app_id="events"))
        batches.option("checkpointLocation", "/data/checkpoint").start()

    app_id: identifies the query. Use another one for each query, and for a query with a new checkpoint, because its batch
    numbers begin again at 0; keep it when the query is restarted. options: those of `write`, except `txn`. Raises TypeError for
    an option that `write` does not have, and UnsupportedFeatureError for `txn`.
    """
    if "txn" in options:
        raise UnsupportedFeatureError("foreach_batch sets txn itself, to app_id and the number of each batch: leave txn out")
    inspect.signature(write).bind(None, target, **options)

    def write_batch(batch: DataFrame, batch_id: int) -> None:
        write(batch, target, **options, txn=(app_id, batch_id))

    return write_batch
