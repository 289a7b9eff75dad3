"""Python objects that the JVM calls (`scala/Python.scala`): requests in chunks → replies, and texts for the log.

An exception in a reply reaches the JVM as an exception there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from delta_variant import jvm, messages


class Callbacks:
    """The functions that the JVM calls, until `close`. py4j keeps such objects until the JVM drops its references."""

    def __init__(self, spark: SparkSession, reply: Callable[[Any], messages.Reply], tell: Callable[[str, str], object]) -> None:
        """tell: gets a subject and a text."""
        jvm.start_callbacks(spark)
        self._replies, self._told = _Replies(reply), _Told(tell)
        self.python = jvm.construct(spark, "PythonDriver", self._replies, self._told)
        """The `scala/Python.scala` that calls them."""

    def close(self) -> None:
        """Lets go of the functions, and of what they hold."""
        self._replies.reply = self._told.tell = None


class _Replies:
    def __init__(self, reply: Callable[[Any], messages.Reply]) -> None:
        self.reply: Callable[[Any], messages.Reply] | None = reply
        self._chunks: dict[str, list[str]] = {}

    def apply(self, chunk: str) -> str:
        number, position, text = chunk.split(" ", 2)
        if position == "more":
            self._chunks.setdefault(number, []).append(text)
            return ""
        assert self.reply is not None
        request = messages.decoded(messages.Request, "".join([*self._chunks.pop(number, ()), text]))
        return messages.encoded(self.reply(request))

    class Java:
        implements = ("java.util.function.UnaryOperator",)


class _Told:
    def __init__(self, tell: Callable[[str, str], object]) -> None:
        self.tell: Callable[[str, str], object] | None = tell

    def accept(self, about: str, text: str) -> None:
        if self.tell is not None:
            self.tell(about, text)

    class Java:
        implements = ("java.util.function.BiConsumer",)
