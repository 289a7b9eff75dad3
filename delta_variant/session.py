"""A session with Delta, and the switch for skipping, typed reading and the writes of Delta's commands.

In: a session builder or a classic session. `configure` adds Delta's package, SQL extension and catalog to the builder. `enable`
installs the optimizer rules, has Delta's transactions write this package's files, and makes delta-spark collect bounds in files
of its own. `disable` removes the rules, after which Delta writes its own files again, and restores the settings that nobody has
changed since.

Invariant: a session has each rule at most once, however often `enable` is called, and settings of the user stay as they are.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # what PySpark programs call it

from delta_variant import explanation, jvm, optimizer, pairs
from delta_variant.constants import DEFAULTS, SETTINGS
from delta_variant.errors import DeltaVariantError, DeltaVariantWarning, SessionError
from delta_variant.features import DELTA_SETTINGS, delta_settings
from delta_variant.version import __version__
from delta_variant.writer import write

_EXTENSIONS = "spark.sql.extensions"
_CATALOG = "spark.sql.catalog.spark_catalog"
_SNAPSHOT_PARTITIONS = "spark.databricks.delta.snapshotPartitions"
_PROPERTY = re.compile(r"^[ \t]*([^\s=:#!][^\s=:]*)[ \t]*[=: \t][ \t]*(.*?)[ \t]*$", re.MULTILINE)
_JAVA = 17


def configure(builder: SparkSession.Builder, packages: Iterable[str] = ()) -> SparkSession.Builder:
    """The builder with Delta's package, SQL extension and catalog added.

    Example:
        spark = dv.configure(SparkSession.builder.master("local[2]")).getOrCreate()

    Delta's package fits this PySpark, and delta-spark if it is installed. It is not added if Delta's JAR is on the class path
    already (in Spark's directory `jars`, or by a setting), or if a version of the package is named.

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
    files: `variant` (the default: those with a VARIANT column), `all` or `off`. Delta writes what this package cannot write.

    new_sessions: whether it also changes the sessions that `newSession()` makes, from their first query on. Connect and Thrift
    servers in this driver make such a session for each client, so that clients' queries skip files too. Call `enable` before
    clients connect.

    Warns (DeltaVariantWarning) if the session reads tables with Delta's DSv2 reader, whose scans cannot be pruned.

    If Spark or Delta is newer than the versions tested, `enable` tries it: it compiles this package's classes against it, plans
    a test query, and with a local master writes and queries a test table. If all this works, there is one warning
    (DeltaVariantWarning).

    Raises SessionError on Spark Connect, for versions of Spark and Delta that are too old, and if the test query or the test
    table fails.
    """
    jvm.classic(spark).conf.unset(explanation.ENABLED)
    if not explanation.has_rules(spark):
        found, delta = jvm.versions(spark)
        if delta is None:
            raise SessionError(jvm.NO_DELTA)
        newer = pairs.is_newer(found, delta)
        wanted = delta_settings(spark.conf.get)
        optimizer.install(spark, {key: spark.conf.get(key, None) for key in wanted})
        for key, value in wanted.items():
            spark.conf.set(key, value)
        if newer:
            _try(spark, f"Spark {found} with Delta {delta}")
        if spark.conf.get(explanation.READER, None) == explanation.DSV2:
            warnings.warn(
                f"{explanation.READER} is {explanation.DSV2} in this session, so Delta's DSv2 reader scans every table that a "
                "query names. delta-variant neither prunes such scans nor reads them from typed columns. Set it to AUTO "
                f"(Delta's default) or NONE before queries are made: spark.conf.set('{explanation.READER}', 'AUTO')",
                DeltaVariantWarning,
                stacklevel=2,
            )
    if new_sessions:
        optimizer.offer(spark, SETTINGS, DEFAULTS)


def _try(spark: SparkSession, versions: str) -> None:
    """Tries versions that are newer than those tested, and warns. Disables the session again if they do not work.

    Executors of a cluster may not see the driver's files, so nothing is written there.
    """
    try:
        if str(spark.sparkContext.master).startswith("local"):
            round_trip(spark)
    except SessionError as error:
        disable(spark)
        raise SessionError(f"delta-variant cannot work with {versions}: {error.text}", advice=pairs.ADVICE) from error
    warnings.warn(
        f"this session runs {versions}, and delta-variant {__version__} was tested with {pairs.SUPPORTED}. The "
        "checks that it ran just now have passed",
        DeltaVariantWarning,
        stacklevel=3,
    )


def round_trip(spark: SparkSession) -> int:
    """Writes a table of two rows into a directory of the driver, and looks for one of them. Returns the number of its files.

    Raises SessionError if the table cannot be written or read, or if the query does not open exactly one file.
    """
    with tempfile.TemporaryDirectory(prefix="delta-variant-") as folder:
        try:
            numbers = spark.range(2).repartitionByRange(2, "id")
            rows = numbers.select(F.expr("parse_json(to_json(struct(id))) AS v"))
            files = write(rows, f"{folder}/t", shred={"v": "id bigint"}).files
            hits = spark.read.format("delta").load(f"{folder}/t").where("variant_get(v, '$.id', 'int') = 1")
            found, [scan] = hits.count(), explanation.explain(hits).scans
        except (DeltaVariantError, Py4JError, PySparkException) as error:
            text = str(error) if isinstance(error, DeltaVariantError) else jvm.message(error)
            raise SessionError(
                f"a table in {folder} cannot be written and read: {text}",
                advice="let the driver and the executors write to the session's file system (spark.hadoop.fs.defaultFS) and to "
                "TMPDIR",
            ) from error
    if (found, scan.files_total, scan.files_after_bounds) != (1, files, 1):
        raise SessionError(
            f"a query found {found} rows in {scan.files_after_bounds} of {scan.files_total} files, not 1 row in 1 file "
            f"({'; '.join(scan.reasons)})",
            advice="report this, with delta-variant doctor --json",
        )
    return files


def disable(spark: SparkSession) -> None:
    """Undo `enable`: remove the optimizer rules, and restore the settings that are still as `enable` set them.

    Example:
        dv.disable(spark)

    After `enable(spark, new_sessions=True)`, sessions that have run no query yet no longer get the rules. Those that have them
    keep them. Where the session would get the rules again, by its JAR or by `new_sessions`, this also sets
    `spark.delta_variant.enabled` to `false`. Raises SessionError on Spark Connect.
    """
    for key, value in optimizer.remove(jvm.classic(spark)).items():
        if spark.conf.get(key, None) != DELTA_SETTINGS[key]:
            continue  # it was changed after `enable`
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)
    if optimizer.may_offer(spark):
        spark.conf.set(explanation.ENABLED, "false")


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
