"""Several sources of record batches at a time, as one stream in their order.

In: functions that return batches. Out: the batches of the first, of the second, and so on, while threads run a few of them
ahead. Memory holds at most `QUEUED` batches of each. A stream that nobody reads any more ends its threads.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

QUEUED = 3
_WAIT = 0.2  # seconds until a thread looks whether the stream has been left


def _ahead(source: Callable[[], Iterator[pa.RecordBatch]], left: threading.Event) -> Iterator[pa.RecordBatch]:
    """What a source returns, in a thread of its own that is some batches ahead. Its error is raised behind its batches."""
    batches: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(QUEUED)

    def put(item: pa.RecordBatch | BaseException | None) -> bool:
        while not left.is_set():
            try:
                batches.put(item, timeout=_WAIT)
            except queue.Full:
                continue
            return True
        return False

    def run() -> None:
        last: BaseException | None = None
        try:
            if not all(map(put, source())):
                return
        except BaseException as error:  # noqa: BLE001  # raised by the thread that reads
            last = error
        put(last)

    def found() -> Iterator[pa.RecordBatch]:
        while (item := batches.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    threading.Thread(target=run, daemon=True, name="delta_variant.scan").start()
    return found()


def in_order(sources: Sequence[Callable[[], Iterator[pa.RecordBatch]]], threads: int) -> Iterator[pa.RecordBatch]:
    """The batches of all sources. Threads are daemons, so that a program can end while a stream is open."""
    left = threading.Event()
    running: list[Iterator[pa.RecordBatch]] = []
    waiting = iter(sources)
    try:
        while True:
            while len(running) < threads and (source := next(waiting, None)) is not None:
                running.append(_ahead(source, left))
            if not running:
                return
            yield from running.pop(0)
    finally:
        left.set()
