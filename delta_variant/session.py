"""A session with Delta, and the switch for skipping, typed reading and the writes of Delta's commands.

In: a session builder or a classic session. `configure` adds Delta's package, SQL extension and catalog to the builder.
`enable` installs the optimizer rules, has Delta's transactions write this package's files, and makes delta-spark collect bounds
in files of its own. `disable` removes the rules, with which the writes go, and restores the settings that nobody has changed
since.

Invariant: a session has each rule at most once, however often `enable` is called, and settings of the user stay as they are.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from delta_variant import jvm, optimizer, pairs, report
from delta_variant.constants import DEFAULTS, SETTINGS
from delta_variant.errors import DeltaVariantWarning, SessionError
from delta_variant.features import DELTA_SETTINGS, delta_settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

_EXTENSIONS = "spark.sql.extensions"
_CATALOG = "spark.sql.catalog.spark_catalog"
_SNAPSHOT_PARTITIONS = "spark.databricks.delta.snapshotPartitions"
_PROPERTY = re.compile(r"^[ \t]*([^\s=:#!][^\s=:]*)[ \t]*[=: \t][ \t]*(.*?)[ \t]*$", re.MULTILINE)
_JAVA = 17
_SPARK_VERSION, _DELTA_VERSION = "4.2", "4.4"


def configure(builder: SparkSession.Builder, packages: Iterable[str] = ()) -> SparkSession.Builder:
    """The builder with Delta's package, SQL extension and catalog added.

    Example:
        spark = dv.configure(SparkSession.builder.master("local[2]")).getOrCreate()

    Delta's package is the one that fits this PySpark, and delta-spark if it is installed. None is added where Delta's JAR is on
    the class path already, in Spark's directory `jars` or by a setting, and none beside one that is named.

    packages: further Maven coordinates. Packages, extensions and a catalog of the builder or of spark-defaults.conf are kept.

    With a local master, workers run the Python of this process unless PYSPARK_PYTHON is set: PySpark alone would take the
    python3 of the PATH, which may not have this package. The state of a table's log is then kept in as many partitions as the
    machine has cores, unless spark.databricks.delta.snapshotPartitions is set: with Delta's default, the first query of a table
    runs 50 tasks.

    Raises SessionError if Delta has published no JAR for this PySpark and this delta-spark.
    """
    options = {**defaults(), **builder._options}  # noqa: SLF001  # a builder has no public getter
    wanted = [*_names(options.get(pairs.PACKAGES)), *packages]
    delta = pairs.delta({**options, pairs.PACKAGES: ",".join(wanted)})
    if isinstance(delta, str) and delta not in wanted:
        wanted.insert(0, delta)
    if wanted:
        builder = builder.config(pairs.PACKAGES, ",".join(dict.fromkeys(wanted)))
    extensions = [*_names(options.get(_EXTENSIONS)), "io.delta.sql.DeltaSparkSessionExtension"]
    builder = builder.config(_EXTENSIONS, ",".join(dict.fromkeys(extensions)))
    if _CATALOG not in options:
        builder = builder.config(_CATALOG, "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    if str(options.get("spark.master", "")).startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if _SNAPSHOT_PARTITIONS not in options:
            builder = builder.config(_SNAPSHOT_PARTITIONS, str(os.cpu_count() or 1))
    return builder


def defaults() -> dict[str, str]:
    """The settings of spark-defaults.conf, which holds what the builder does not set."""
    file = Path(os.environ.get("SPARK_CONF_DIR") or Path(pairs.spark_home() or "", "conf"), "spark-defaults.conf")
    try:
        text = file.read_text(encoding="utf-8")
    except OSError:
        return {}
    return dict(_PROPERTY.findall(re.sub(r"\\\n[ \t]*", "", text)))


def _names(setting: object) -> list[str]:
    return [name.strip() for name in str(setting or "").split(",") if name.strip()]


def enable(spark: SparkSession, *, new_sessions: bool = False) -> None:
    """Let the session's queries skip files by Variant path, and Delta's commands write shredded files with bounds.

    Example:
        dv.enable(spark)
        spark.sql("INSERT INTO events SELECT parse_json(value) FROM texts")
        hits = spark.sql("SELECT v FROM events WHERE variant_get(v, '$.id', 'long') = 5")

    This changes the session and those cloned from it later (streams). A second call does nothing more. The session setting
    `spark.delta_variant.everyWrite`, or the table property `delta_variant.everyWrite`, says which tables get this package's
    files: `variant` (the default: those with a VARIANT column), `all` or `off`. What this package cannot write, Delta writes.

    new_sessions: whether it also changes the sessions that `newSession()` makes, from their first query on. Connect and Thrift
    servers in this driver make such a session for each client, so that clients' queries skip files too. Call `enable` before
    clients connect.

    Warns (DeltaVariantWarning) if the session reads tables with Delta's DSv2 reader, whose scans cannot be pruned.

    Raises SessionError on Spark Connect, for versions of Spark and Delta that this package does not support, and if a query of
    its own does not skip the files that it should.
    """
    if not report.has_rules(jvm.classic(spark)):
        _check_versions(*jvm.versions(spark))
        wanted = delta_settings(spark.conf.get)
        optimizer.install(spark, {key: spark.conf.get(key, None) for key in wanted})
        for key, value in wanted.items():
            spark.conf.set(key, value)
        if spark.conf.get(report.READER, None) == report.DSV2:
            warnings.warn(
                f"{report.READER} is {report.DSV2} in this session, so Delta's DSv2 reader scans every table that a query "
                "names. delta-variant neither prunes such scans nor reads them from typed columns. Set it to AUTO (Delta's "
                f"default) or NONE before queries are made: spark.conf.set('{report.READER}', 'AUTO')",
                DeltaVariantWarning,
                stacklevel=2,
            )
    if new_sessions:
        optimizer.offer(spark, SETTINGS, DEFAULTS)


def _check_versions(spark: str, delta: str | None) -> None:
    if delta is None:
        raise SessionError(jvm.NO_DELTA)
    known = (f"{_SPARK_VERSION}.", f"{_DELTA_VERSION}.")
    if not (spark.startswith(known[0]) and delta.startswith(known[1])):
        raise SessionError(
            f"this session runs Spark {spark} with Delta {delta}, and delta_variant.enable supports Spark {_SPARK_VERSION} "
            f"with Delta {_DELTA_VERSION} alone",
            advice=f"install pyspark {_SPARK_VERSION}.* and delta-spark {_DELTA_VERSION}.*, or do without enable (queries are "
            "right without it, and open every file)",
        )


def disable(spark: SparkSession) -> None:
    """Undo `enable`: remove the optimizer rules, and restore the settings that are still as `enable` set them.

    Example:
        dv.disable(spark)

    After `enable(spark, new_sessions=True)`, sessions that run their first query later get no rules. Those that have rules keep
    them. Does nothing in a session without the rules. Raises SessionError on Spark Connect.
    """
    for key, value in optimizer.remove(jvm.classic(spark)).items():
        if spark.conf.get(key, None) != DELTA_SETTINGS[key]:
            continue  # it was changed after `enable`
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


def check_java() -> str:
    """The version and the path of the Java that Spark would start. Raises SessionError if it is missing or older than 17.

    Example:
        from delta_variant.session import check_java

        print(check_java())  # 17, /usr/lib/jvm/java-17-openjdk/bin/java
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    advice = f"install Java {_JAVA} (Debian: apt-get install openjdk-{_JAVA}-jre-headless) or point JAVA_HOME at one"
    if java is None or shutil.which(java) is None:
        raise SessionError(f"Spark needs Java {_JAVA} or newer and {java or 'java'} was not found", advice=advice)
    text = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603  # the java Spark itself would run
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    if found is None or int(found[1]) < _JAVA:
        version = f"is version {found[1]}" if found else "does not tell its version"
        raise SessionError(f"Spark needs Java {_JAVA} or newer and {java} {version}", advice=advice)
    return f"{found[1]}, {java}"
