"""Several sources of record batches at a time, as one stream in their order.

In: functions that return batches. Out: the batches of the first, of the second, and so on, while threads run a few of them
ahead. Memory holds at most `QUEUED` batches of each. A stream that nobody reads any more ends its threads.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

QUEUED = 3
_WAIT = 0.2  # seconds until a thread looks whether the stream has been left

Source = "Callable[[], Iterator[pa.RecordBatch]]"


class _Ahead:
    """What a source has returned so far."""

    def __init__(self, source: Callable[[], Iterator[pa.RecordBatch]], left: threading.Event) -> None:
        self._source, self._left = source, left
        self._queue: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(QUEUED)

    def run(self) -> None:
        """Runs the source."""
        last: BaseException | None = None
        try:
            for batch in self._source():
                if not self._put(batch):
                    return
        except BaseException as error:  # noqa: BLE001  # raised by the thread that reads
            last = error
        self._put(last)

    def _put(self, item: pa.RecordBatch | BaseException | None) -> bool:
        while not self._left.is_set():
            try:
                self._queue.put(item, timeout=_WAIT)
            except queue.Full:
                continue
            return True
        return False

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The batches, and then the error."""
        while True:
            item = self._queue.get()
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item


def in_order(sources: Sequence[Callable[[], Iterator[pa.RecordBatch]]], threads: int) -> Iterator[pa.RecordBatch]:
    """The batches of all sources. Threads are daemons, so that a program can end while a stream is open."""
    left = threading.Event()
    running: list[_Ahead] = []
    waiting = iter(sources)
    try:
        while True:
            while len(running) < threads and (source := next(waiting, None)) is not None:
                ahead = _Ahead(source, left)
                threading.Thread(target=ahead.run, daemon=True, name="delta_variant.scan").start()
                running.append(ahead)
            if not running:
                return
            yield from running[0].batches()
            running.pop(0)
    finally:
        left.set()
