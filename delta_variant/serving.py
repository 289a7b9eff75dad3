"""The Python process of a driver without Python: `python -m delta_variant.serving`, which `scala/PythonProcess.scala` starts.

In: frames on standard input. Out: frames on standard output. A frame is a line: a number, what it is, and JSON.

    1 ask {"is":"PruneRequest",…}      →   1 reply {"predicate":…}, or 1 error "ValueError: …"
    0 tell ["skipping","…"]            →
                                       ←   0 ready "the digest of this version", first of all
                                       ←   0 log ["WARNING","…"], what a Python driver says in its log

Requests are answered in several threads, and each reply has the number of its request. Everything else that is printed goes to
standard error. The process ends when its standard input does, and so with the JVM.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import IO

from delta_variant import answers, jars, messages

_THREADS = 8


class _Replies(logging.Handler):
    """Writes frames, also for the records of the log."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__()
        self._stream, self._writing = stream, threading.Lock()

    def write(self, number: int, what: str, text: str) -> None:
        with self._writing:
            self._stream.write(f"{number} {what} {text}\n".encode())
            self._stream.flush()

    def emit(self, record: logging.LogRecord) -> None:
        self.write(0, "log", json.dumps([record.levelname, record.getMessage()]))


def serve(requests: IO[bytes], stream: IO[bytes]) -> None:
    """Answers requests until there are no more."""
    replies = _Replies(stream)
    logger = logging.getLogger("delta_variant")
    logger.addHandler(replies)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    replies.write(0, "ready", json.dumps(jars.digest()))
    with ThreadPoolExecutor(_THREADS) as threads:
        for line in requests:
            threads.submit(_answer, line.decode(), replies)


def _answer(line: str, replies: _Replies) -> None:
    number, what, text = line.split(" ", 2)
    try:
        if what == "tell":
            answers.tell(*json.loads(text))
        else:
            replies.write(int(number), "reply", messages.encoded(answers.reply(messages.decoded(messages.Request, text))))
    except BrokenPipeError:  # the JVM is gone
        os._exit(1)
    except Exception as error:  # noqa: BLE001  # of this request alone
        replies.write(int(number), "error", json.dumps(f"{type(error).__name__}: {error}"))


def main() -> None:
    """Serves on the standard streams, and keeps other code from using them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in spark-sql cancels the query
    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, stream)
    os._exit(0)  # without waiting for what other packages started


if __name__ == "__main__":
    main()
