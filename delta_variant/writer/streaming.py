"""Streams: a function for `writeStream.foreachBatch` that writes each batch exactly once.

In: a target and the id of an application. Out: a function of a batch and its number. Spark may pass the same batch again
after a failure. The number is committed together with the batch's files (PROTOCOL.md, "Transaction Identifiers"), and a
batch whose number is in the table already is left out, with a warning.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

from delta_variant.errors import DeltaVariantWarning, UnsupportedFeatureError
from delta_variant.writer.driver import write


def foreach_batch(target: str | os.PathLike[str], *, app_id: str, **options: Any) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that appends each batch to a Delta table exactly once.

    Example:
        batches = stream.writeStream.foreachBatch(dv.foreach_batch("/data/events", app_id="events"))
        batches.option("checkpointLocation", "/data/checkpoint").start()

    app_id: identifies the query. Use another one for each query, and for a query with a new checkpoint, because its batch
    numbers begin again at 0; keep it when the query is restarted. options: those of `write`, except `txn`. Raises TypeError for
    an option that `write` does not have, and UnsupportedFeatureError for `txn`. Each batch that is left out because the table
    has its number gives a DeltaVariantWarning: after a restart this is the last batch at most, and with a new checkpoint rows
    are missing.
    """
    if "txn" in options:
        raise UnsupportedFeatureError("foreach_batch sets txn itself, to app_id and the number of each batch: leave txn out")
    inspect.signature(write).bind(None, target, **options)

    def write_batch(batch: DataFrame, batch_id: int) -> None:
        done = write(batch, target, **options, txn=(app_id, batch_id)).txn_version
        if done is not None:
            warnings.warn(_left_out(os.fspath(target), app_id, batch_id, done), DeltaVariantWarning, stacklevel=2)

    return write_batch


def _left_out(target: str, app_id: str, batch_id: int, done: int) -> str:
    """The warning of a batch that the table has. A restart repeats the last batch, and only another checkpoint earlier ones."""
    left_out = f"batch {batch_id} of app_id={app_id!r} was not written: {target} has its batches up to {done}"
    if batch_id == done:
        return f"{left_out}. This is right after a restart from the same checkpoint; with a new one, choose another app_id"
    return (
        f"{left_out}, and a restart repeats only the last one. The query seems to have a new or an older checkpoint, and these "
        "rows are missing: choose another app_id, and load them once more"
    )
