"""Python's replies to the rules and the writes of enabled sessions, and what it logs for them.

In: requests of `scala/SkipFiles.scala`, `scala/TypedScans.scala` and `scala/WritingTransaction.scala`, by py4j (`callbacks`) or
by a pipe (`serving`). Out: replies. A request has everything that its reply depends on, so any process of this version can
answer it. Modules are imported by the first request that needs them: queries need neither PySpark nor the modules for writes.
"""

# ruff: noqa: PLC0415 -- see above

from __future__ import annotations

import logging

from delta_variant import messages

_logger = logging.getLogger("delta_variant")


def reply(request: messages.Request) -> messages.Reply:
    """The reply to a request. After an exception, the query keeps its plan, or Delta makes the files of the write; the JVM
    reports it."""
    match request:
        case messages.PruneRequest():
            from delta_variant.queries import requests

            return requests.answer(request)
        case messages.ExtremesRequest():
            from delta_variant.queries import requests

            return requests.extremes(request)
        case messages.ProofsRequest():
            from delta_variant.queries import typed

            return typed.proofs(request)
        case messages.GroupsRequest():
            from delta_variant.queries import typed

            return typed.groups(request)
        case messages.WriteRequest() | messages.ClusterRequest():
            from delta_variant.writer import every_write

            return every_write.answer(request)


def tell(about: str, text: str) -> None:
    """Logs why a rule left the plan unchanged, why Delta wrote files itself, or, if the session asks for it, a scan as
    `explain` shows it."""
    if about in ("skipping", "reading"):
        what = "data skipping by Variant path" if about == "skipping" else "typed reading"
        _logger.warning("%s failed, so the query runs without it: %s", what, text)
    elif about == "scan":
        from delta_variant import explanation

        _logger.info("%s", explanation.of([messages.decoded(messages.ScanReport, text)]))
    else:
        from delta_variant.writer import every_write

        every_write.tell_of_write(about, text)
