"""Pairs of Spark and Delta: which of them this package supports, and the JAR of Delta that a session takes.

In: the versions of Spark and Delta, and the settings of a session that is yet to start. Out: the JAR that is there, or the
Maven coordinate of the one to download. Differences between versions of PySpark are at the end of this module. Differences
between the pairs in the JVM are in `scala/Pairs.scala`.

PySpark and delta-spark are looked for, not required: a platform brings its own, and Delta's may be a JAR without a Python
package.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_variant.errors import SessionError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

SUPPORTED = "Spark 4.0.1 to 4.2 with Delta 4.2 to 4.4, or Spark 4.0.1 with Delta 4.0.1"
EXTRA = "pip install 'delta-variant[spark]'"
"""Installs a pair where there is none."""
ADVICE = (
    f"install versions that delta-variant supports, {SUPPORTED} ({EXTRA} brings a pair), or do without enable: queries are "
    "right without it, and open every file"
)
"""What to do where this package cannot work with a pair."""
_OLDEST_SPARK, _OLDEST_DELTA = (4, 0, 1), (4, 2)
_WITH_OLDEST_SPARK = (4, 0, 1)  # Delta 4.1 is refused: docs/reference/support.md says why
_NEWEST_SPARK, _NEWEST_DELTA = (4, 2), (4, 4)
PACKAGES = "spark.jars.packages"
_LATEST = "4.4.0"  # the newest Delta whose JARs are published: 4.4.1 is on the Python index alone
# Delta has a JAR for each of these versions of Spark, from this version of Delta on. The JAR of Delta 4.0 is for Spark 4.0.
_FIRST: dict[tuple[int, ...], tuple[int, ...]] = {(4, 0): (4, 0), (4, 1): (4, 1), (4, 2): (4, 4)}
_CLASS_PATHS = {"spark.jars": ",", "spark.driver.extraClassPath": os.pathsep}


def is_newer(spark: str, delta: str) -> bool:
    """Whether a version is newer than those that were tested. Raises SessionError for older ones."""
    is_first = _number(spark)[:2] == _OLDEST_SPARK[:2] and _WITH_OLDEST_SPARK <= _number(delta) < (4, 1)
    if _number(spark) < _OLDEST_SPARK or (_number(delta) < _OLDEST_DELTA and not is_first):
        raise SessionError(f"delta-variant does not support Spark {spark} with Delta {delta}", advice=ADVICE)
    return _number(spark)[:2] > _NEWEST_SPARK or _number(delta)[:2] > _NEWEST_DELTA


def installed(name: str) -> str | None:
    """The version of a Python package; None if it is not installed, or a directory without metadata."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def spark_home() -> Path | None:
    """The directory of the Spark that a session would run; None if there is no PySpark."""
    home = os.environ.get("SPARK_HOME")
    if home:
        return Path(home)
    found = find_spec("pyspark")
    return Path(found.origin).parent if found is not None and found.origin else None


def delta(settings: Mapping[str, str]) -> Path | str:
    """Delta's JAR on the class path of a session, or the Maven coordinate of the one that it downloads.

    A coordinate among the settings comes first, then a JAR on the class path, then the coordinate that fits this PySpark.
    Raises SessionError if Delta has published none.
    """
    coordinates = (settings.get(PACKAGES) or "").split(",")
    named = next((name.strip() for name in coordinates if name.strip().startswith("io.delta:delta-spark")), None)
    if named is not None:
        return named
    jar = _on_class_path(settings)
    if jar is not None:
        return jar
    from pyspark import __version__ as spark  # noqa: PLC0415  # doctor runs without PySpark

    return coordinate(spark, installed("delta-spark"))


def _on_class_path(settings: Mapping[str, str]) -> Path | None:
    home = spark_home()
    entries = [home / "jars" / "*"] if home is not None else []
    for key, separator in _CLASS_PATHS.items():
        named = [entry.removeprefix("file:") for entry in (settings.get(key) or "").split(separator)]
        entries += [Path(entry) for entry in named if not re.match(r"\w+://", entry)]
    files = (file for entry in entries for file in (entry.parent.glob("*.jar") if entry.name == "*" else [entry]))
    return next((file for file in files if file.name.startswith("delta-spark_") and file.is_file()), None)


def coordinate(spark: str, delta: str | None) -> str:
    """The Maven coordinate of Delta's JAR for this PySpark, and for this delta-spark if it is installed.

    Raises SessionError if Delta has published none.
    """
    minor = _number(spark)[:2]
    version = delta or _LATEST
    number = _number(version)
    first = _FIRST.get(minor)
    if first is None and (minor < min(_FIRST) or number <= _number(_LATEST)):
        raise SessionError(f"Delta {version} has no JAR for Spark {spark}", advice=EXTRA)
    if first is not None and number[:2] < first:
        wanted = ".".join(map(str, max(first, _OLDEST_DELTA)))
        raise SessionError(
            f"Delta {version} has no JAR for Spark {spark}",
            advice=f"install delta-spark {wanted} or newer beside it (pip install --no-deps)",
        )
    suffix = "" if number[:2] == (4, 0) else f"_{minor[0]}.{minor[1]}"
    return f"io.delta:delta-spark{suffix}_2.13:{version}"


def arrow_schema(rows: StructType) -> pa.Schema:
    """PySpark's Arrow schema of rows, with timestamps in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415  # doctor runs without PySpark

    # Before Spark 4.2, UTC was the default, and the function had no such argument.
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(rows, **zone)


def by_number(rows: DataFrame, tasks: int, number: Column) -> DataFrame:
    """The rows in so many tasks. Each task gets the rows of one number, from 0 on."""
    if hasattr(rows, "repartitionById"):  # from Spark 4.1 on
        return rows.repartitionById(tasks, number)
    from pyspark.sql import functions as F  # noqa: PLC0415  # doctor runs without PySpark

    # Spark chooses the task by the hash of a key, so each task needs a key with its hash.
    hashed = rows.sparkSession.range(32 * tasks).groupBy(F.pmod(F.hash("id"), F.lit(tasks)).alias("task")).agg(F.min("id"))
    keys: dict[int, int] = dict(hashed.collect())
    return rows.repartition(tasks, F.element_at(F.array(*(F.lit(keys[task]) for task in range(tasks))), number + 1))


def _number(version: str) -> tuple[int, ...]:
    """4.1.1-amzn-0 as 4, 1, 1."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
