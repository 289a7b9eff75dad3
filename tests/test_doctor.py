"""The command `doctor`: each check finds what is really broken, says what to do, and says nothing where all is well."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import delta_variant
from tests.test_cli import COMMAND, run

SESSION = {"Spark", "Delta Lake", "SQL extension", "catalog", "Python workers", "callbacks", "rules", "round trip"}


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
    """Another Python, another PySpark, no Java and no place for kernels are a line each; what needs them is skipped.

    The packages are those of metadata that comes first on the path. Numba can write nowhere, whichever user runs this.
    """
    package = shutil.copytree(
        Path(delta_variant.__file__).parent, tmp_path / "delta_variant", ignore=shutil.ignore_patterns("__pycache__")
    )
    (package / "kernels" / "__pycache__").touch()
    own = str(metadata.metadata("delta-variant")).replace("Requires-Python: <3.14,>=3.10", "Requires-Python: >=3.99")
    others = {f"delta_variant-{delta_variant.__version__}": own, "pyspark-4.1.0": "Name: pyspark\nVersion: 4.1.0\n"}
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
    done, text = (
        subprocess.run(
            [*COMMAND, "doctor", *options], env=environment, capture_output=True, text=True, check=False, cwd=tmp_path
        )
        for options in (["--json"], [])
    )
    assert (done.returncode, done.stderr) == (1, ""), done.stderr
    problems = dict.fromkeys(("Python", "packages", "Java", "kernel cache"), "problem")
    assert states(done.stdout) == {**problems, "kernels": "skipped", **dict.fromkeys(SESSION, "skipped")}
    checks = found(done.stdout)
    assert "needs >=3.99" in checks["Python"]["found"]
    assert checks["packages"]["found"] == "pyspark is 4.1.0, not <=4.2.0,>=4.2"
    assert "pip install" in checks["packages"]["advice"]
    assert "install Java 17" in checks["Java"]["advice"]
    assert "NUMBA_CACHE_DIR" in checks["kernel cache"]["advice"]
    *lines, last = text.stdout.splitlines()
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


SERIES = """
import json, sys
from delta_variant.cli import main
for arguments in json.loads(sys.argv[1]):
    code = "program"
    try:
        main(arguments) if isinstance(arguments, list) else exec(arguments)
    except SystemExit as end:
        code = end.code or 0
    for stream in (sys.stdout, sys.stderr):
        print(f"EXIT {code}", file=stream, flush=True)
"""


def run_all(environment, *commands):
    """The exit code, the output and the errors of each command. All of them run in one process, and so in one JVM.

    A text among the commands is a program that runs between them.
    """
    series = [sys.executable, "-c", SERIES, json.dumps(commands)]
    done = subprocess.run(series, env=environment, capture_output=True, text=True, check=False)
    outputs, errors = (re.split(r"EXIT (\w+)\n", text) for text in (done.stdout, done.stderr))
    assert len(outputs) == 2 * len(commands) + 1, done.stderr
    results = zip(outputs[1::2], outputs[::2], errors[::2], strict=False)
    return [(int(code), output, error) for code, output, error in results if code != "program"]


@pytest.mark.spark
@pytest.mark.slow
def test_sessions(jvm_environment, tmp_path):
    """A session that works has no problem. Another catalog, workers without the package, a port that nobody listens at, a file
    system that does not exist and a session without Delta's extension are each found by the check for it.

    Of an error of Spark's, another command in this process shows one line: what its JVM prints stays in the log."""
    other = tmp_path / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", other], check=True)
    python = str(other / "bin" / "python")
    refused, well, broken, nowhere, by_hand = run_all(
        jvm_environment,
        ["explain", "SELEC 1"],
        ["doctor", "--json"],
        DEAF.replace("OTHER", python),
        ["doctor", "--json", "--conf", "spark.sql.catalog.spark_catalog=org.example.Catalog"],
        MENDED,
        ["doctor", "--json", "--conf", "spark.hadoop.fs.defaultFS=nothing://nowhere"],
        BY_HAND,
        ["doctor", "--json"],
    )
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
def test_without_a_repository(tmp_path):
    """If Delta's JARs cannot be downloaded, `doctor` says how to get them, and other commands name `doctor`."""
    settings = tmp_path / "ivy.xml"
    resolver = f'<filesystem name="none"><artifact pattern="{tmp_path}/[artifact].[ext]"/></filesystem>'
    settings.write_text(f'<ivysettings><settings defaultResolver="none"/><resolvers>{resolver}</resolvers></ivysettings>')
    conf = ["--conf", f"spark.jars.ivy={tmp_path / 'ivy'}", "--conf", f"spark.jars.ivySettings={settings}"]
    done = run("doctor", "--json", *conf)
    assert done.returncode == 1
    assert "downloads Delta's JARs once" in done.stderr
    checks = found(done.stdout)
    assert checks["Spark"]["found"] == "Delta's JARs cannot be downloaded"
    assert "spark.jars.ivySettings" in checks["Spark"]["advice"]
    assert states(done.stdout) == {"Spark": "problem", **dict.fromkeys(SESSION - {"Spark"}, "skipped")}
    other = run("stats", "./t", *conf)
    assert (other.returncode, other.stdout) == (1, "")
    assert other.stderr.splitlines()[-1].startswith("Error: Spark did not start: ")
    assert other.stderr.splitlines()[-1].endswith("ask delta-variant doctor")
    assert len(other.stderr.splitlines()) == 2
