"""The commands `demo` and `doctor`, run as a user runs them, and a session that is stopped, in a process and JVM of their own.

Each check of `doctor` finds what is really broken, says what to do, and says nothing where all is well.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from numba.core.caching import _CacheLocator

import delta_variant
from delta_variant.kernels import compiler, validate
from tests.support import SOAK

SESSION = {"Spark", "Delta Lake", "SQL extension", "catalog", "Python workers", "callbacks", "JAR", "rules", "round trip"}


def found(output):
    """The checks by their names."""
    report = json.loads(output)
    assert report["ok"] == all(check["state"] == "ok" for check in report["checks"])
    assert all(bool(check["advice"]) == (check["state"] == "problem") for check in report["checks"])
    return {check["name"]: check for check in report["checks"]}


def states(output):
    """What is not ok, by name."""
    return {name: check["state"] for name, check in found(output).items() if check["state"] != "ok"}


def test_a_machine_that_lacks_everything(tmp_path):
    """Another Python, an old package, no Java and no place for kernels are a line each; what needs them is skipped.

    The packages are those of metadata that comes first on the path. Numba can write nowhere, whichever user runs this.
    """
    package = shutil.copytree(
        Path(delta_variant.__file__).parent, tmp_path / "delta_variant", ignore=shutil.ignore_patterns("__pycache__")
    )
    (package / "kernels" / "__pycache__").touch()
    own = str(metadata.metadata("delta-variant")).replace("Requires-Python: <3.14,>=3.10", "Requires-Python: >=3.99")
    others = {f"delta_variant-{delta_variant.__version__}": own, "pyroaring-1.0.0": "Name: pyroaring\nVersion: 1.0.0\n"}
    for name, text in others.items():
        (tmp_path / f"{name}.dist-info").mkdir()
        (tmp_path / f"{name}.dist-info" / "METADATA").write_text(text)
    shared = tmp_path / "tmp"
    planted = shared / f"delta-variant-{os.geteuid()}"
    planted.mkdir(parents=True)
    planted.chmod(0o777)
    known = {key: value for key, value in os.environ.items() if not key.startswith(("NUMBA", "XDG"))}
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    environment = {**known, "HOME": "/dev/null", "JAVA_HOME": str(tmp_path), "TMPDIR": str(shared), "PYTHONPATH": paths}
    (code, done, errors), (_, text, _) = run_all(environment, ["doctor", "--json"], ["doctor"], cwd=tmp_path)
    assert (code, errors) == (1, ""), errors
    problems = dict.fromkeys(("Python", "packages", "Java", "kernel cache"), "problem")
    assert states(done) == {**problems, "kernels": "skipped", **dict.fromkeys(SESSION, "skipped")}
    checks = found(done)
    assert "needs >=3.99" in checks["Python"]["found"]
    assert checks["packages"]["found"] == "pyroaring is 1.0.0, not >=1.0.1"
    assert "pip install" in checks["packages"]["advice"]
    assert "install Java 17" in checks["Java"]["advice"]
    assert "NUMBA_CACHE_DIR" in checks["kernel cache"]["advice"]
    *lines, last = text.splitlines()
    assert len(lines) == len(checks)
    assert [line.split()[0] for line in lines] == [check["state"] for check in checks.values()]
    assert last == f"4 of {len(checks)} checks found a problem"


DEAF = """
from pyspark import SparkContext
import os, socket
server = SparkContext._gateway.java_gateway_server
address, port = server.getCallbackClient().getAddress(), server.getCallbackClient().getPort()
with socket.socket() as nobody:
    nobody.bind(("127.0.0.1", 0))
    server.resetCallbackClient(address, nobody.getsockname()[1])
os.environ["PYSPARK_PYTHON"] = "OTHER"
"""
"""The JVM calls a port at which nobody listens, and workers run a Python without packages."""

MENDED = """
server.resetCallbackClient(address, port)
os.environ["PYSPARK_PYTHON"] = sys.executable
"""

BY_HAND = """
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder._options.pop("spark.sql.extensions", None)
builder.config("spark.sql.extensions", "").getOrCreate()
"""

RESTART = """
from delta_variant.session import configure, disable, enable
from delta_variant.explanation import explain, has_rules
from delta_variant.errors import SessionError
from pyspark.sql import SparkSession

def start():
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    configure(builder.config("spark.sql.warehouse.dir", "WORK/warehouse"))._options.pop("spark.jars.packages")
    return builder.getOrCreate()  # with the class path's JARs

spark = start()
enable(spark)
spark.sql("create table delta.`WORK/t` (v variant) using delta tblproperties ('delta.enableVariantShredding' = 'true')")
for n in (1, 2):
    spark.sql(f"insert into delta.`WORK/t` select parse_json('{{\\"a\\": {n}}}')")
spark.stop()
try:
    enable(spark)
except SessionError as error:
    assert "stopped" in str(error)
again = start()
assert not has_rules(again)
for _ in range(2):
    enable(again)
df = again.read.format("delta").load("WORK/t").where("v:a::int = 2")
assert len(df.collect()) == 1
assert [scan.files_after_bounds for scan in explain(df).scans] == [1]
again.sparkContext.setLogLevel("WARN")  # the commands have errors only
again.sparkContext._gateway.gateway_property.pool.clear()
df = again.read.format("delta").load("WORK/t").where("v:a::int = 1")
assert len(df.collect()) == 1
assert [scan.files_after_bounds for scan in explain(df).scans] == [2]
disable(again)
assert not has_rules(again)
print("as it should be")
again.stop()
"""
"""A session that is stopped, and the one after it."""

SERIES = """
import json, sys
from delta_variant.cli import main
path = [*sys.path]
for arguments in json.loads(sys.argv[1]):
    sys.path[:] = path  # without the JARs of earlier sessions, in each of which `doctor` would look for metadata
    code = 0
    try:
        main(arguments) if isinstance(arguments, list) else exec(arguments)
    except SystemExit as end:
        code = end.code or 0
    for stream in (sys.stdout, sys.stderr):
        print(f"EXIT {code}", file=stream, flush=True)
"""


def run_all(environment, *commands, cwd=None):
    """The exit code, the output and the errors of each command. All of them run in one process, and so in one JVM.

    A text among the commands is a program; the next ones find its names.
    """
    series = [sys.executable, "-c", SERIES, json.dumps(commands)]
    done = subprocess.run(series, env=environment, cwd=cwd, capture_output=True, text=True, check=False)
    outputs, errors = (re.split(r"EXIT (\w+)\n", text) for text in (done.stdout, done.stderr))
    assert len(outputs) == 2 * len(commands) + 1, done.stderr
    results = zip(outputs[1::2], outputs[::2], errors[::2], strict=False)
    return [(int(code), output, error) for code, output, error in results]


@pytest.fixture(scope="module")
def commands(jvm_environment, tmp_path_factory):
    """What became of each command, and the kernels that the demo compiled. In `make test` it asks one question twice.

    Kernels are in a copy of the cache, since tests elsewhere compile some too.
    """
    folder = tmp_path_factory.mktemp("commands")
    caches = folder / "kernels" / _CacheLocator.get_suitable_cache_subpath(validate.__file__)
    shutil.copytree(compiler.cache_directory(), caches)
    other = folder / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", other], check=True)
    python = str(other / "bin" / "python")
    series = {
        "rounds": "" if SOAK else "from delta_variant.cli import demo; demo.ROUNDS, demo.QUESTIONS = 1, demo.QUESTIONS[1:2]",
        "demo": ["demo", "--path", str(folder / "it's")],
        "kernels": f"import shutil; shutil.copytree({str(caches)!r}, {str(folder / 'after')!r})",
        "refused": ["explain", "SELEC 1"],
        "well": ["doctor", "--json"],
        "deaf": DEAF.replace("OTHER", python),
        "broken": ["doctor", "--json", "--conf", "spark.sql.catalog.spark_catalog=org.example.Catalog"],
        "mended": MENDED,
        "nowhere": ["doctor", "--json", "--conf", "spark.hadoop.fs.defaultFS=nothing://nowhere"],
        "by hand": BY_HAND,
        "without": ["doctor", "--json"],
        "restart": RESTART.replace("WORK", str(folder / "restart")),
    }
    kernels = lambda place: {path.name for path in place.glob("*.nbc")}  # noqa: E731
    before = kernels(caches)
    own = {
        "NUMBA_CACHE_DIR": str(folder / "kernels"),
        "SPARK_MASTER": "local[1]",
    }  # a second Python worker would load kernels, too
    told = dict(zip(series, run_all({**jvm_environment, **own}, *series.values()), strict=True))
    return {**told, "folder": folder / "it's", "python": python, "compiled": kernels(folder / "after") - before}


@pytest.mark.spark
@pytest.mark.slow
def test_demo(commands):
    """The demo shows answers, opened files and seconds of three tables, pictures, and commands to try, and leaves the tables.

    The shredded table opens fewer files than the plain one and delta-spark's own; workers compile no kernel.
    """
    code, output, errors = commands["demo"]
    assert code == 0, errors
    assert "22km NNE of Hualian, Taiwan" in output
    opened = re.findall(r"^  (\S+), (\S+) +opened +(\d+) of 20 files +\d+\.\d\d s$", output, re.MULTILINE)
    names = [("delta-variant", "shredded"), ("delta-variant", "plain"), ("delta-spark", "shredded")]
    assert [found[:2] for found in opened] == names * (3 if SOAK else 1)
    assert all(int(files) < 10 if (writer, layout) == names[0] else files == "20" for writer, layout, files in opened)
    time, magnitude = (output.split(f"event:properties.{key}: the range of each file")[1] for key in ("time", "mag"))
    bars = [line for line in time.split("event:properties.mag")[0].splitlines() if "│" in line]
    assert len(bars) == 20
    assert all(line.count("█") < 6 for line in bars)
    assert magnitude.count("█") > 20 * 20
    [suggested] = re.findall(r"--table (quakes=.*)", output)
    assert shlex.split(suggested) == [f"quakes={commands['folder']}/earthquakes"]
    tables = {path.name for path in commands["folder"].iterdir() if (path / "_delta_log").is_dir()}
    assert tables == {"earthquakes", "earthquakes_plain", "earthquakes_delta_spark"}
    assert "Traceback" not in errors
    assert "WARN" not in errors
    told = re.search(r"Compiled (\d+) kernels, once, in \d+ s; they are kept in", errors)
    assert len(commands["compiled"]) <= (int(told[1]) if told else 0)


@pytest.mark.spark
@pytest.mark.slow
def test_sessions(commands):
    """A session that works has no problem. Another catalog, workers without the package, a port that nobody listens at, a file
    system that does not exist and a session without Delta's extension are each found by the check for it.

    Of an error of Spark's, another command in this process shows one line: what its JVM prints stays in the log."""
    names = ("refused", "well", "broken", "nowhere", "without", "python")
    refused, well, broken, nowhere, by_hand, python = (commands[name] for name in names)
    *steps, last = refused[2].splitlines()
    assert refused[:2] == (1, "")
    assert last.startswith("Error: [PARSE_SYNTAX_ERROR]")
    assert all(line.endswith("…") for line in steps), refused

    assert (well[0], states(well[1])) == (0, {}), well
    assert found(well[1]).keys() >= SESSION

    assert broken[0] == 1
    problems = dict.fromkeys(("catalog", "Python workers", "callbacks"), "problem")
    assert states(broken[1]) == {**problems, "rules": "skipped", "round trip": "skipped"}
    checks = found(broken[1])
    assert "org.example.Catalog" in checks["catalog"]["found"]
    assert python in checks["Python workers"]["found"]
    assert "ModuleNotFoundError" in checks["Python workers"]["found"]
    assert "PYSPARK_PYTHON" in checks["Python workers"]["advice"]
    assert "127.0.0.1" in checks["callbacks"]["advice"]

    assert states(nowhere[1]) == {"round trip": "problem"}
    assert "fs.defaultFS" in found(nowhere[1])["round trip"]["advice"]

    assert states(by_hand[1]) == {"SQL extension": "problem", "round trip": "skipped"}


@pytest.mark.spark
@pytest.mark.slow
def test_stop_and_start(commands):
    """The session after spark.stop() can be enabled, and skips; if Python has lost the rule, queries run without skipping."""
    code, output, errors = commands["restart"]
    assert (code, output.strip()) == (0, "as it should be"), errors
    assert "skipping stepped aside" in (commands["folder"] / "spark.log").read_text()  # where the demo sent its JVM's messages


@pytest.mark.spark
@pytest.mark.slow
def test_without_a_repository(tmp_path):
    """If Delta's JARs cannot be downloaded, `doctor` says how to get them, and other commands name `doctor`."""
    settings = tmp_path / "ivy.xml"
    resolver = f'<filesystem name="none"><artifact pattern="{tmp_path}/[artifact].[ext]"/></filesystem>'
    settings.write_text(f'<ivysettings><settings defaultResolver="none"/><resolvers>{resolver}</resolvers></ivysettings>')
    conf = ["--conf", f"spark.jars.ivy={tmp_path / 'ivy'}", "--conf", f"spark.jars.ivySettings={settings}"]
    doctor, (code, output, errors) = run_all(os.environ, ["doctor", "--json", *conf], ["stats", "./t", *conf])
    assert doctor[0] == 1
    assert "downloads Delta's JARs once" in doctor[2]
    checks = found(doctor[1])
    assert checks["Spark"]["found"] == "Delta's JARs cannot be downloaded"
    assert "spark.jars.ivySettings" in checks["Spark"]["advice"]
    assert states(doctor[1]) == {"Spark": "problem", **dict.fromkeys(SESSION - {"Spark"}, "skipped")}
    assert (code, output) == (1, "")
    assert errors.splitlines()[-1].startswith("Error: Spark did not start: ")
    assert errors.splitlines()[-1].endswith("ask delta-variant doctor")
    assert len(errors.splitlines()) == 2
