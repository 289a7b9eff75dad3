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

        df.writeStream.foreachBatch(dv.foreach_batch("/data/events", app_id="events")).start()

    app_id: one for each query, the same after every restart, and another when the query gets a new checkpoint, whose numbers
    begin again at 0. options: those of `write`, but for `txn`. Raises TypeError for an option that `write` does not have.
    """
    if "txn" in options:
        raise UnsupportedFeatureError("foreach_batch sets txn itself, from app_id and the number of each batch: leave it out")
    inspect.signature(write).bind(None, target, **options)

    def write_batch(batch: DataFrame, batch_id: int) -> None:
        write(batch, target, **options, txn=(app_id, batch_id))

    return write_batch
