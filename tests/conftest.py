"""One Spark session for each process of the run, with the real Delta JARs: a JVM start costs more than most tests."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import zstandard
from hypothesis import settings

from tests import jvms, tasks
from tests.strategies import column
from tests.support import SOAK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# The files that take longest, in the order in which --dist loadfile hands them out: two processes end at about the same time.
LONGEST = [
    "optimizer",
    "reading",
    "tables",
    "optimize",
    "convert",
    "writer",
    "cluster",
    "writer_concurrency",
    "commands",
    "writer_tables",
    "local_cluster",
    "scan",
    "ingestion",
    "cli",
    "docs",
    "doctor",
    "index",
    "killed",
    "package",
    "writer_modes",
    "never_wrong",
    "writer_delta",
    "storage",
    "writer_conflicts",
    "session",
    "connect",
    "analyze",
    "never_different",
    "parse_json",
    "arrow",
    "writer_json",
    "writer_errors",
    "end_to_end",
    "quickstart",
    "writer_batches",
    "kernel_cache",
    "vectors",
]

# For the JVMs of all processes. Tests run most code a few times, in as many JVMs as cores: C2 and the threads of G1 cost more
# than they save. Without C2 the code cache has 48 MiB: Spark's code fills it in minutes, and a full one ends all compilation.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=512m")

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

settings.register_profile("default", deadline=None)  # the first call of a kernel compiles it
settings.load_profile("default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


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
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        # Each task of a job over the log generates code for all columns of the log: two tasks took an eighth longer than one.
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.daemon.module", "tests.daemon")  # and where it is found:
        .config("spark.executorEnv.PYTHONPATH", str(Path(__file__).parents[1]))
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    )
    shared = tmp_path_factory.getbasetemp().parent
    process = os.environ.get("PYTEST_XDIST_WORKER")
    if process == "gw1":  # while gw0 starts its session
        with locked(shared / "kernels.lock"):
            tasks.compile_kernels(tmp_path_factory.mktemp("kernels"))
    with locked(shared / "session.lock"):  # Ivy's cache is not made for two processes that fill it at once
        session = configure(builder).getOrCreate()
    if process not in {None, "gw1"}:
        with locked(shared / "kernels.lock"):
            tasks.compile_kernels(tmp_path_factory.mktemp("kernels"))
    session.sparkContext.setLogLevel("ERROR")
    local_files.install(session, tmp_path_factory.mktemp("classes"))
    yield session
    session.stop()


@pytest.fixture(scope="module", autouse=True)
def _interpreted(request: pytest.FixtureRequest) -> Iterator[None]:
    """Lets Spark interpret expressions in the modules that are marked so, in the sessions that tests make too.

    A job over a few rows, such as Delta's own over a log of three commits, takes longer to generate and compile than to run.
    `support.collected` and `support.generated` run what Spark cannot interpret. Other modules have Spark's default, and so has
    every test in `make soak`. Tests without Spark in a marked module start no session.
    """
    here = [item for item in request.session.items if item.getparent(pytest.Module) is request.node]
    needed = any(item.get_closest_marker("spark") for item in here)
    if SOAK or not needed or request.node.get_closest_marker("interpreted") is None:
        yield
        return
    session = request.getfixturevalue("spark")
    of_new_sessions = session.sparkContext._jsc.sc().conf()
    for key, value in INTERPRETED.items():
        of_new_sessions.set(key, value)
        session.conf.set(key, value)
    yield
    for key in INTERPRETED:
        of_new_sessions.remove(key)
        session.conf.unset(key)


@pytest.fixture(scope="session")
def jvm_environment(spark: SparkSession, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """The environment of a process that starts JVMs, in which they start faster."""
    with locked(tmp_path_factory.getbasetemp().parent / "classes.lock"):
        return {**os.environ, **jvms.environment(spark, request.config.cache.mkdir("classes"))}


@pytest.fixture(scope="session")
def feed():
    """The bundled feed as a VARIANT column, numbers exact."""
    packed = resources.files("delta_variant").joinpath("data/earthquakes.ndjson.zst").read_bytes()
    lines = zstandard.ZstdDecompressor().decompress(packed).splitlines()
    return column([json.loads(line, parse_float=Decimal) for line in lines])
