"""Where no Python driver is: spark-sql, a Connect server as Spark's script starts it, and a session with the JAR.

The JAR and the setting spark.sql.extensions are all that they get. The Python process of the JVM is killed, and made useless,
while clients ask and write.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pyspark
import pytest

import delta_variant as dv
from delta_variant import jars, jvm, messages, stats
from delta_variant.cli.servers import EXTENSIONS
from delta_variant.messages import Workers
from delta_variant.writer import every_write
from tests import logs
from tests.support import SOAK

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HOME = Path(pyspark.__file__).parent
FILES, ROWS = 100, 10_000
KILLS = 2 if SOAK else 1
"""How often the Python process is killed before a query and during it, and then during a write."""
DOCUMENT = "parse_json(to_json(named_struct('id', id, 'kind', id % 7)))"


@pytest.fixture(scope="module")
def table(spark, tmp_path_factory):
    """A table of a hundred files."""
    path = tmp_path_factory.mktemp("without") / "table"
    session = spark.newSession()
    rows = session.range(0, ROWS, 1, 1).selectExpr(f"{DOCUMENT} v")
    commit = dv.write(rows, path, shred={"v": "id bigint, kind bigint"}, max_rows_per_file=ROWS // FILES)
    assert commit.files == FILES
    return path


@pytest.fixture
def settings(spark, tmp_path):
    """The options of spark-submit."""
    return {
        "spark.master": "local[2]" if SOAK else "local[1]",  # a second Python worker would load kernels, too
        "spark.driver.memory": "1g",
        "spark.jars": str(jvm.loaded(spark).jar.path),
        "spark.sql.extensions": EXTENSIONS,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.connect.grpc.binding.address": "127.0.0.1",
    }


@pytest.fixture
def environment(jvm_environment, tmp_path):
    """The environment of Spark's scripts: with Delta's JARs on the class path, and without what PySpark has set."""
    known = {k: v for k, v in jvm_environment.items() if not k.startswith(("SPARK", "PYSPARK")) or k == "SPARK_DIST_CLASSPATH"}
    return {
        **known,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOG_DIR": str(tmp_path),
        "SPARK_PID_DIR": str(tmp_path),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(dv.__file__).parents[1]),
    }


def options(settings):
    return [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]


def test_spark_sql(table, settings, environment, tmp_path):
    """With the JAR and the extension alone, spark-sql opens one file of a hundred, and INSERT writes this package's file. A
    setting switches both off."""
    name, before = f"delta.`{table}`", logs.newest(table)
    statements = f"""
        INSERT INTO {name} SELECT {DOCUMENT} FROM range({ROWS}, {ROWS + 5000}, 1, 1);
        SET spark.delta_variant.logScans = true;
        SELECT concat('kind: ', v:kind::int) FROM {name} WHERE v:id::bigint = 5;
        SET spark.delta_variant.everyWrite = on;
        INSERT INTO {name} SELECT {DOCUMENT} FROM range(1);
        EXPLAIN SELECT v:kind::int FROM {name} WHERE v:id::bigint = 5;
        SET spark.delta_variant.enabled = false;
        INSERT INTO {name} SELECT {DOCUMENT} FROM range({ROWS}, {ROWS + 5000}, 1, 1);
        EXPLAIN SELECT v:kind::int FROM {name} WHERE v:id::bigint = 6;
    """
    if not SOAK:  # Hive's catalog makes a database for itself
        settings["spark.sql.catalogImplementation"] = "in-memory"
    command = [HOME / "bin" / "spark-sql", *options(settings), "-e", statements]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "kind: 5" in done.stdout
    on, off = done.stdout.split("spark.delta_variant.enabled\tfalse")
    assert ("NarrowedFileIndex(1 paths)" in on, "NarrowedFileIndex" in off) == (True, False), done.stdout + done.stderr
    assert ("ReadSchema: struct<v:struct<typed_value:" in on, "typed_value" in off) == (True, False)
    (by_delta,) = logs.adds(table, before + 3)
    assert stats.BOUNDS_TAG not in (by_delta.get("tags") or {})
    (add,) = logs.adds(table, before + 1)
    assert add["tags"][stats.BOUNDS_TAG] == stats.TYPED_TAG_VALUE
    said = [line for line in done.stderr.splitlines() if "delta_variant" in line]  # no process, rule or write has failed
    assert len(said) == 1
    assert "spark.delta_variant.everyWrite is on, which is not one of variant, all, off" in said[0]


CLIENT = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
for line in sys.stdin:
    found = spark.sql(json.loads(line))
    print(json.dumps([[list(row) for row in found.collect()], found._explain_string(mode="simple")]), flush=True)
"""


class Server:
    """A Connect server, and a client of it."""

    def __init__(self, settings, environment, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        # What sbin/start-connect-server.sh runs, which is not in the wheel of PySpark.
        main = "org.apache.spark.sql.connect.service.SparkConnectServer"
        daemon = [HOME / "sbin" / "spark-daemon.sh", "submit", main, "1", "--name", "Spark Connect server"]
        words = [*daemon, *options({**settings, "spark.connect.grpc.binding.port": port})]
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                ["bash", *words], cwd=folder, env={**environment, "SPARK_NO_DAEMONIZE": "1"}, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        while "Spark Connect server started at" not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.1)  # a core that reads the log is missed by the server
        client = [sys.executable, "-c", CLIENT, f"sc://127.0.0.1:{port}"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        # The client needs nothing of this package.
        self.client = subprocess.Popen(client, env={**environment, "PYTHONPATH": ""}, cwd=folder, **pipes)

    def start(self, query):
        self.client.stdin.write(json.dumps(query) + "\n")
        self.client.stdin.flush()

    def result(self):
        """The rows and the plan of the query that was started."""
        line = self.client.stdout.readline()
        assert line, self.client.communicate()[1] + self.log.read_text()[-6000:]
        return json.loads(line)

    def ask(self, query):
        self.start(query)
        return self.result()

    def serving(self):
        """The Python processes that answer the JVM."""
        return [process for process, words in self._processes() if b"delta_variant.serving" in words]

    def _processes(self):
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if os.getsid(int(place.name)) == self.process.pid:
                    yield int(place.name), (place / "cmdline").read_bytes().split(b"\0")
            except OSError:  # it has ended
                continue

    def kill_serving(self):
        for process in self.serving():
            os.kill(process, signal.SIGKILL)

    def kill_jvm(self):
        for process, words in self._processes():
            if words[0].endswith(b"java"):
                os.kill(process, signal.SIGKILL)

    def warnings(self):
        return [line for line in self.log.read_text().splitlines() if "WARN delta_variant" in line]

    def stop(self):
        self.client.kill()
        self.client.communicate()
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def python(environment, tmp_path):
    """A Python that starts as long as there is no file `broken` beside it."""
    script = tmp_path / "python"
    text = f'#!/bin/sh\n[ -e "{tmp_path}/broken" ] && echo "no module" >&2 && exit 1\nexec "{sys.executable}" "$@"\n'
    script.write_text(text)
    script.chmod(0o755)
    environment["PYSPARK_PYTHON"] = str(script)
    return tmp_path / "broken"


@pytest.fixture
def server(table, settings, environment, python, tmp_path):
    running = Server(settings, environment, tmp_path)
    yield running
    running.stop()


def test_a_connect_server(table, server, python):
    """A client without the package skips files and writes this package's files. Killed processes are replaced: queries and
    writes meanwhile are right. With a Python that does not start they are as without the package, and the log says so once."""
    query = f"SELECT v:kind::int k FROM delta.`{table}` WHERE v:id::bigint = 5"
    insert = f"INSERT INTO delta.`{table}` SELECT {DOCUMENT} FROM range({{}}, {{}}, 1, 1)"
    count = f"SELECT count(*) n, sum(v:id::bigint) s FROM delta.`{table}` WHERE v:id::bigint >= 1000000"

    rows, plan = server.ask(query)
    assert (rows, "NarrowedFileIndex(1 paths)" in plan, "typed_value" in plan) == ([[5]], True, True)
    server.ask(insert.format(1_000_000, 1_005_000))
    assert logs.last(table, "add")["tags"][stats.BOUNDS_TAG] == stats.TYPED_TAG_VALUE
    (first,) = server.serving()

    for n in range(1, KILLS + 1):
        server.kill_serving()
        server.start(query)
        server.kill_serving()
        assert server.result()[0] == [[5]]
        server.start(insert.format(1_000_000 + 5000 * n, 1_005_000 + 5000 * n))
        server.kill_serving()
        server.result()
    rows, plan = server.ask(count)
    written = 5000 * (KILLS + 1)
    assert rows == [[written, sum(range(1_000_000, 1_000_000 + written))]]
    rows, plan = server.ask(query)
    assert (rows, "NarrowedFileIndex(1 paths)" in plan) == ([[5]], True)
    assert server.serving() != [first]
    before = server.warnings()  # of processes that were killed: before their first answer, or after it
    assert all("is started again" in line or "has no Python that answers" in line for line in before), before

    python.touch()
    server.kill_serving()
    for n in range(KILLS + 1, KILLS + 3):
        rows, plan = server.ask(query)
        assert (rows, "NarrowedFileIndex" in plan) == ([[5]], False)
        server.ask(insert.format(1_000_000 + 5000 * n, 1_005_000 + 5000 * n))
    written += 10_000
    assert server.ask(count)[0] == [[written, sum(range(1_000_000, 1_000_000 + written))]]
    told = server.warnings()[len(before) :]
    assert len(told) == 1, told
    assert "has no Python that answers" in told[0]
    assert told[0].endswith("ended with code 1: no module")

    python.unlink()
    for _ in range(60):
        time.sleep(0.3)
        rows, plan = server.ask(query)
        if "NarrowedFileIndex(1 paths)" in plan:
            break
    else:
        raise AssertionError(server.warnings())

    server.kill_jvm()
    for _ in range(100):
        if not server.serving():
            return
        time.sleep(0.1)
    raise AssertionError("the Python process has not ended with its JVM")


@pytest.mark.skipif(not SOAK, reason="waits two minutes for a reply")
def test_a_python_that_hangs(table, server):
    """A process that does not answer is waited for once: then it is ended, and queries run at once, as without the package."""
    query = f"SELECT v:kind::int k FROM delta.`{table}` WHERE v:id::bigint = 5"
    assert server.ask(query)[0] == [[5]]
    (process,) = server.serving()
    os.kill(process, signal.SIGSTOP)
    for _ in range(3):
        rows, plan = server.ask(query)
        assert (rows, "NarrowedFileIndex" in plan, server.serving()) == ([[5]], False, [])
    (told,) = server.warnings()
    assert told.endswith("took more than 120 seconds for a reply")


SESSION = """
import json, sys
import delta_variant as dv
from delta_variant import jvm
from pyspark.sql import SparkSession

SETTING = "spark.databricks.delta.variantShredding.parseFooterForStats"  # which is replaced, and restored
table, settings = sys.argv[1], json.loads(sys.argv[2])
builder = SparkSession.builder
for key, value in settings.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()

def asked(session):
    hits = session.sql(f"SELECT v:kind::int k FROM delta.`{table}` WHERE v:id::bigint = 5")
    return [hits.collect()[0][0], "NarrowedFileIndex(1 paths)" in hits._jdf.queryExecution().toString(),
            [rule.ruleName() for rule in jvm.rules(session)]]

off = spark.newSession()
dv.disable(off)  # before its first query
found = {"off": asked(off), "extension": asked(spark.newSession())}
found["clone"] = asked(SparkSession(spark.sparkContext, off._jsparkSession.cloneSession()))
dv.enable(off)
found["on"] = asked(off)
dv.enable(spark)
found["enabled"] = asked(spark)
explained = dv.explain(spark.sql(f"SELECT 1 FROM delta.`{table}` WHERE v:id::int = 5"))
found["opened"] = [scan.files_after_bounds for scan in explained.scans]
dv.disable(spark)
found["disabled"] = asked(spark)
dv.disable(given := spark.newSession())
given.conf.set(SETTING, "false")
given.conf.unset("spark.delta_variant.enabled")
found["given"] = [asked(given)[1:], dv.disable(given), asked(given)[1:], given.conf.get(SETTING, None)]
found["jar"] = str(jvm.loaded(spark).jar.path)
print(json.dumps(found))
"""


def test_a_python_driver(spark, table, settings, environment, tmp_path):
    """A PySpark session with the JAR and the extension needs no `enable`. `enable` works in it all the same, with that JAR. So
    does `disable`: before the first query, for clones, and with the settings from before."""
    del settings["spark.connect.grpc.binding.address"]
    rules = ["delta_variant.SkipFiles", "delta_variant.TypedScans"]
    command = [sys.executable, "-c", SESSION, table, json.dumps(settings)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "off": [5, False, []],
        "extension": [5, True, rules],
        "clone": [5, False, []],
        "on": [5, True, rules],
        "enabled": [5, True, rules],
        "opened": [1],
        "disabled": [5, False, []],
        "given": [[True, rules], None, [False, []], "false"],
        "jar": settings["spark.jars"],
    }


def extended(spark, loader):
    """How many check rules the extension adds to a session's, by the class of a loader."""
    extensions = jvm.static(spark, "org.apache.spark.sql.SparkSessionExtensions")()
    java_class = loader.loadClass(f"{jvm.PACKAGE}.Extensions")
    apply = next(method for method in java_class.getMethods() if method.getName() == "apply")  # py4j knows classes by name
    arguments = jvm.static(spark, "java.util.ArrayList")()
    arguments.add(extensions)
    apply.invoke(java_class.newInstance(), arguments.toArray())
    return extensions.buildCheckRules(spark._jsparkSession).size()


def below(spark, jar, parent):
    """A class loader for a JAR."""
    urls = spark.sparkContext._gateway.new_array(jvm.static(spark, "java.net.URL"), 1)
    urls[0] = jvm.static(spark, "java.io.File")(str(jar)).toURI().toURL()
    return jvm.static(spark, "java.net.URLClassLoader")(urls, parent)


def test_other_versions(spark, tmp_path):
    """For a Delta that the JAR was not compiled for, and without Delta, the extension does nothing and does not fail."""
    jar, loader = jvm.loaded(spark).jar.path, jvm._loader(spark)
    other = tmp_path / "other.jar"
    with zipfile.ZipFile(jar) as archive, zipfile.ZipFile(other, "w") as changed:
        for name in archive.namelist():
            text = archive.read(name)
            changed.writestr(name, text.replace(b'"delta":"', b'"delta":"9.') if name.endswith("constants.json") else text)
    assert extended(spark, jvm.loaded(spark).loader) == 1
    assert extended(spark, below(spark, other, loader)) == 0
    while "MutableURLClassLoader" in loader.getClass().getName():
        loader = loader.getParent()
    assert extended(spark, below(spark, jar, loader)) == 0  # Delta's classes are in the loader above


def test_the_jar(spark, tmp_path):
    """The JAR has what the JVM needs beside classes, and the digest by which it knows its Python."""
    with zipfile.ZipFile(jvm.loaded(spark).jar.path) as archive:
        found = messages.decoded(messages.Constants, archive.read(f"{jars._FOLDER}/constants.json"))
        assert f"{jars._FOLDER}/Batches.java" in archive.namelist()
    assert (found.digest, found.version, found.spark) == (jars.digest(), dv.__version__, spark.version)


def test_serving(tmp_path):
    """An error in an answer is one of that request; what is printed disturbs no answer; the process ends with its input."""
    program = """
from delta_variant import answers, serving
reply = answers.reply
answers.reply = lambda request: print("printed", flush=True) or reply(request)
serving.main()
"""
    asked = [
        '1 ask {"is":"GroupsRequest","uses":[],"groups":[]}',
        '2 ask {"is":"GroupsRequest"}',
        '0 tell ["setting","a text"]',
        '3 ask {"is":"ExtremesRequest","columns":[],"paths":[]}',
    ]
    done = subprocess.run(
        [sys.executable, "-c", program], input="\n".join(asked) + "\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    ready, *lines = done.stdout.splitlines()
    assert ready == f'0 ready "{jars.digest()}"'
    replies = dict(line.split(" ", 1) for line in lines)
    assert replies.keys() == {"0", "1", "2", "3"}
    assert replies["0"] == 'log ["WARNING", "a text"]'
    assert replies["1"] == 'reply {"groups":[]}'
    assert replies["2"].startswith('error "ValueError: GroupsRequest.uses is missing')
    assert replies["3"].startswith("reply ")
    assert done.stderr.count("printed") == 2


MISSING = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'delta_variant'\n"


@pytest.mark.parametrize(
    ("workers", "reason"),
    [
        (Workers(sys.executable, True, None, None), ""),
        (Workers("other", True, None, None), None),
        (Workers(sys.executable, False, None, None), None),
        (Workers("other", False, None, "ValueError: of a function of the user's"), None),
        (Workers(sys.executable, True, None, None, has_failed=True), None),
        (Workers("other", False, (dv.__version__,), None), ""),
        (
            Workers("other", False, ("0.0.9", dv.__version__), None),
            "the executors run delta-variant 0.0.9",
        ),
        (Workers("other", False, (), "no room"), "the executors could not be asked for the version of delta-variant: no room"),
        (Workers("other", False, (), MISSING), "the executors cannot load delta-variant"),
        (Workers("other", False, None, MISSING), "the executors cannot load delta-variant"),
    ],
)
def test_workers(workers, reason):
    """Executors are asked for their version unless they are this Python; what follows depends on the request alone."""
    found = every_write._without_package(workers)
    assert found == reason if not reason else found.startswith(reason)


def test_the_probe():
    """The function that asks executors needs no package before it runs, and then tells what is missing."""
    program = """
import base64, pickle, sys
sys.modules["delta_variant"] = None
function = pickle.loads(base64.b64decode(sys.argv[1]))[0]
try:
    print(list(function(0, iter(()))))
except ImportError as error:
    print(type(error).__name__, error)
"""
    task = every_write._probe()
    ask = [sys.executable, "-c", program, task]
    done = subprocess.run(ask, capture_output=True, text=True, check=False)
    assert (done.returncode, "delta_variant" in done.stdout) == (0, True), done.stderr
    ask[2] = program.replace('sys.modules["delta_variant"] = None', "")
    assert subprocess.run(ask, capture_output=True, text=True, check=False).stdout == f"[{dv.__version__.encode()}]\n"
