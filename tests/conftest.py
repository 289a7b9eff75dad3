"""One Spark session for each process of the run, with the real Delta JARs: a JVM start costs more than most tests."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import zstandard
from hypothesis import settings

import delta_variant as dv
from delta_variant import arrow
from tests import s3, tasks
from tests.strategies import column
from tests.support import SOAK, interpreted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

# Else pyarrow would read VARIANT columns as this type in all tests that come after the first import of `delta_variant.arrow`.
pa.unregister_extension_type(arrow.NAME)

# The files that take longest, in the order in which --dist loadfile hands them out: the processes end at about the same time.
LONGEST = [
    "every_write/scenarios",
    "other_pairs",
    "rewriting/optimize",
    "optimizer/typed_reading",
    "reloading",
    "session/without_driver",
    "cli/doctor",
    "package",
    "docs/pages",
    "writer/concurrency",
    "conversion",
    "optimizer/skipping/queries",
    "optimizer/skipping_on_tables",
    "writer/write",
    "writer/late",
    "analysis/analyze",
    "rewriting/killed",
    "writer/modes",
    "analysis/index_of_values",
    "every_write/generated",
    "every_write/killed_statements",
    "analysis/same_place",
    "every_write/delete_update_merge",
    "ingestion",
    "writer/spark_cache",
    "every_write/two_statements",
    "optimizer/skipping_generated",
    "session/connect",
    "scanning/scan",
    "writer/conflicts",
    "writer/kinds_of_tables",
    "writer/refusals",
    "writer/beside_delta",
    "jars",
    "writer/json_texts",
    "optimizer/skipping/values",
    "optimizer/typed_reading_generated",
    "cli/cli",
    "storage/locations",
    "optimizer/skipping/versions",
    "docs/notebook",
    "parquet/stubs",
    "scanning/sql_texts",
    "optimizer/skipping/moments_in_strings",
    "optimizer/skipping/predicates",
    "binary/order_of_fields",
    "optimizer/scans_left_alone",
    "damaged_files/damaged_files",
    "session/enable",
    "binary/parse_json",
    "writer/errors",
    "end_to_end",
    "stats/stats",
    "every_write/sessions",
    "transaction",
    "writer/clustering",
    "shredding/spark_codec",
    "optimizer/skipping/explain",
    "table",
    "protocol/vectors",
    "writer/record_batches",
]

# For the JVMs of all processes. Tests run most code a few times, in as many JVMs as cores: the threads of G1 cost more than
# they save, and so does C2, except in the session of many tests (`spark`). Without C2 the code cache has 48 MiB: Spark's code
# fills it in minutes, and a full one ends all compilation.
# C1 compiles a method after 0.4 of its usual number of calls: a twelfth of the CPU time. To verify the classes of JARs takes a
# tenth of a driver's start. PySpark tells the JVM, for errors, where each column of a DataFrame was made: 0.7 of the 0.9 ms
# that `F.col` or a cast takes.
os.environ.setdefault(
    "JAVA_TOOL_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:CompileThresholdScaling=0.4 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=512m "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote "
    "-Dspark.python.sql.dataFrameDebugging.enabled=false",
)

# For one module of six minutes, planning took 163 s of CPU time with C1 and 101 s with C2, and compilation 16 and 113 s. It
# takes 200 s in 21 minutes: C2 is for sessions that last as long.
C2 = "-XX:TieredStopAtLevel=4 -XX:CompileThresholdScaling=1"

# Hadoop is that of PySpark 4.2. hadoop-aws asks for a bundle of 600 MB: these modules of it are what S3A needs.
S3A = [
    "org.apache.hadoop:hadoop-aws:3.5.0",
    *(f"software.amazon.awssdk:{module}:2.35.4" for module in ("s3", "s3-transfer-manager", "sts")),
]

# The first call of a kernel compiles it: no deadline. Hypothesis's own number of examples is for `make soak`.
settings.register_profile("default", deadline=None, max_examples=100 if SOAK else 40)
settings.load_profile("default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: number for number, name in enumerate(LONGEST)}

    def place(item: pytest.Item) -> int:
        module = item.path.relative_to(Path(__file__).parent).as_posix().removesuffix(".py").replace("test_", "")
        return order.get(module, len(order))

    items.sort(key=place)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process of the run at a time."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A classic session on two cores with Delta configured; delta_variant.enable is left to the tests."""
    from pyspark.sql import SparkSession

    from delta_variant.errors import SessionError
    from delta_variant.session import check_java, configure
    from tests import local_files

    try:
        check_java()
    except SessionError as error:
        pytest.exit(str(error), returncode=1)
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "3g")
        .config("spark.driver.extraJavaOptions", f"{C2} -Xms1500m -Xmn700m -XX:MetaspaceSize=400m")  # fewer collections
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        # Each task of a job over the log generates code for all columns of the log: two tasks took an eighth longer than one.
        .config("spark.databricks.delta.snapshotPartitions", "1")
        # The state of a log of a few commits as rows, not as their bytes, and short texts of plans for a UI that is not there:
        # with the larger heap an eighth of the CPU time.
        .config("spark.databricks.delta.snapshotCache.storageLevel", "MEMORY_ONLY")
        .config("spark.sql.ui.explainMode", "simple")
        .config("spark.sql.ui.retainedExecutions", "100")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.daemon.module", "tests.daemon")  # and where it is found:
        .config("spark.executorEnv.PYTHONPATH", str(Path(__file__).parents[1]))
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.jars.packages", ",".join(S3A))
        .config("spark.jars.excludes", "software.amazon.awssdk:bundle")
    )
    shared = tmp_path_factory.getbasetemp().parent
    with locked(shared / "session.lock"):  # Ivy's cache is not made for processes that fill it at once
        session = configure(builder).getOrCreate()
    with locked(shared / "kernels.lock"):  # without `make test`, each process would compile the kernels
        tasks.compile_kernels()
    session.sparkContext.setLogLevel("ERROR")
    local_files.install(session, tmp_path_factory.mktemp("classes"))
    yield session
    session.stop()


@pytest.fixture(scope="module", autouse=True)
def _interpreted(request: pytest.FixtureRequest) -> Iterator[None]:
    """Lets Spark interpret expressions in the modules that are marked so. Other modules have Spark's default.

    Tests without Spark in such a module start no session.
    """
    here = [item for item in request.session.items if item.getparent(pytest.Module) is request.node]
    needed = any(item.get_closest_marker("spark") for item in here)
    if not needed or request.node.get_closest_marker("interpreted") is None:
        yield
    else:
        with interpreted(request.getfixturevalue("spark")):
            yield


@pytest.fixture(scope="session")
def jvm_environment(spark: SparkSession) -> dict[str, str]:
    """The environment of a process that starts JVMs, with Delta's JARs on their class path: a builder without
    `spark.jars.packages` resolves nothing."""
    # Only Delta's JARs: the others would shadow Spark's versions of the same.
    jars = [jar for jar in spark.sparkContext.getConf().get("spark.jars", "").split(",") if "/io.delta_" in jar]
    return {**os.environ, "SPARK_DIST_CLASSPATH": os.pathsep.join(jar.removeprefix("file://") for jar in jars)}


@pytest.fixture(scope="module")
def on(spark: SparkSession) -> Iterator[SparkSession]:
    """A session of its own with the rules."""
    session = spark.newSession()
    dv.enable(session)
    yield session
    dv.disable(session)


@pytest.fixture(scope="session")
def gate(spark: SparkSession) -> Callable[[], Any]:
    """Makes gates, which hold a writer before its commit (`tests.gates`)."""
    from tests.gates import gates

    return gates(spark)


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    """The settings of an S3 server that has the bucket `lake`, in eu-north-1."""
    with s3.server() as settings:
        yield settings


@pytest.fixture(scope="session")
def feed():
    """The bundled feed as a VARIANT column, numbers exact."""
    packed = resources.files("delta_variant").joinpath("data/earthquakes.ndjson.zst").read_bytes()
    lines = zstandard.ZstdDecompressor().decompress(packed).splitlines()
    return column([json.loads(line, parse_float=Decimal) for line in lines])
