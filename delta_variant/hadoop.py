"""Hadoop's side of a table's storage: a path and its Configuration in the JVM → `Storage`.

`scala/HadoopSettings.scala` reads the settings. They cross to Python as one message, which is also part of each request of a
write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from delta_variant import jvm
from delta_variant.messages import StorageSettings, decoded
from delta_variant.storage import Storage


def storage_of(spark: SparkSession, path: Any, conf: Any) -> Storage:
    """The storage of a path.

    path: Hadoop's Path. conf: its Configuration. Raises UnsupportedFeatureError for what `Storage.of` refuses, and an error of
    py4j's for a credential store that cannot be read.
    """
    found = jvm.construct(spark, "HadoopSettings", path, conf)

    def region() -> str | None:
        told = found.region()
        return str(told.get()) if told.isDefined() else None

    return storage(str(path), decoded(StorageSettings, found.json()), region)


def storage(location: str, found: StorageSettings, region: Callable[[], str | None]) -> Storage:
    """The storage of a location. region: asks for the region of its bucket; None if AWS does not tell."""
    return Storage.of(location, found.settings.get, found.settings, region)
