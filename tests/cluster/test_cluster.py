"""The cluster of docker/compose.yaml, started as processes: the same commands and environments, on ports of the loopback.

Only names of hosts, ports and directories differ from those in the containers.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import delta_variant
from delta_variant.storage import Storage
from tests.support import SOAK

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DOCKER = Path(__file__).parents[2] / "docker"
TASKS, ROWS = (16, 160_000) if SOAK else (8, 16_000)


class Cluster:
    """The services of the compose file. `processes` has those that run, by service."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.services = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
        self.processes: dict[str, list[subprocess.Popen]] = {}
        self.free = {port: str(_free_port()) for port in ("9000", "7077", "8080")}
        lines = (DOCKER / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
        words = [word for line in lines if line.startswith("ENV ") for word in shlex.split(line)[1:]]
        self.image = dict(word.split("=", 1) for word in words if not word.startswith("NUMBA_"))  # kernels are compiled here

    def command(self, service: str, text: str = "command", ui: str = "8081") -> tuple[list[str], dict[str, str]]:
        """The command of a service, or of its health check, and its environment. ui: the port of a worker's web page."""
        told = self.services[service]
        words = told["command"] if text == "command" else told["healthcheck"]["test"][1:]
        given = {**self.image, **{key: str(value) for key, value in told["environment"].items()}}
        known = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "SPARK_", "PYSPARK_"))}
        path = os.pathsep.join([str(Path(sys.executable).parent), sysconfig.get_path("scripts"), os.environ["PATH"]])
        own = {"PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}
        here = {key: self.here(value, ui) for key, value in given.items()}
        return [self.here(word, ui) for word in words], {**known, **here, **own}

    def here(self, text: str, ui: str = "8081") -> str:
        """A text of the image or of the compose file with the hosts, ports and directories of this machine."""
        for port, free in {**self.free, "8081": ui}.items():
            text = re.sub(rf"\b{port}\b", free, text)
        text = re.sub(r"\b(s3|master|localhost)(?=:\d)|^master$", "127.0.0.1", text)
        return text.replace("/opt/delta-variant", str(DOCKER)).replace("/home/spark", str(self.folder))

    def start(self, service: str) -> None:
        """Starts a service after those that it depends on, and waits until its health check passes."""
        for other in self.services[service].get("depends_on", ()):
            if other not in self.processes:
                self.start(other)
        if "healthcheck" not in self.services[service]:
            return
        self.processes[service] = []
        for number in range(self.services[service].get("deploy", {"replicas": 1})["replicas"]):
            ui = str(_free_port())
            words, environment = self.command(service, ui=ui)
            if "SPARK_WORKER_DIR" in environment:
                environment["SPARK_WORKER_DIR"] += f"-{number}"
            with (self.folder / f"{service}-{number}.log").open("w") as log:
                process = subprocess.Popen(words, env=environment, stdout=log, stderr=log, start_new_session=True)
            self.processes[service].append(process)
            test, environment = self.command(service, "healthcheck", ui)
            for _ in range(60):
                if subprocess.run(test, env=environment, capture_output=True, check=False).returncode == 0:
                    break
                assert process.poll() is None, Path(log.name).read_text()
                time.sleep(0.5)
            else:
                raise AssertionError(Path(log.name).read_text())

    def kill(self, service: str, number: int) -> None:
        """Kills a process and those that it has started, without a chance to clean up."""
        process = self.processes[service][number]
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def stop(self) -> None:
        for service, processes in self.processes.items():
            for number in range(len(processes)):
                self.kill(service, number)

    def objects(self, prefix: str) -> dict[str, bytes | None]:
        """The objects below a prefix of the bucket, by their names; those of Delta's log with their content."""
        from pyarrow import fs

        settings = {
            "fs.s3a.access.key": "x", "fs.s3a.secret.key": "x", "fs.s3a.path.style.access": "true",
            "fs.s3a.endpoint": self.command("demo")[1]["AWS_ENDPOINT_URL"],
        }  # fmt: skip
        storage = Storage.of(f"s3a://lake/{prefix}", settings.get)
        system = storage.open()
        found = system.get_file_info(fs.FileSelector(storage.root, recursive=True, allow_not_found=True))
        files = [info.path for info in found if info.type == fs.FileType.File]
        return {
            path.removeprefix(storage.root + "/"): system.open_input_stream(path).read() if path.endswith(".json") else None
            for path in files
        }


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Driver:
    """A process with the environment of the service `demo`, which runs `driver.py`."""

    def __init__(self, cluster: Cluster) -> None:
        self.errors = cluster.folder / "driver.log"
        words = [sys.executable, Path(__file__).with_name("driver.py")]
        environment = cluster.command("demo")[1]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with self.errors.open("w") as log:
            self.process = subprocess.Popen(words, env=environment, cwd=cluster.folder, stderr=log, **pipes)

    def ask(self, phase: str, *arguments: object) -> dict[str, Any]:
        """Runs a phase, and returns what it found."""
        self.process.stdin.write(json.dumps([phase, *arguments]) + "\n")
        self.process.stdin.flush()
        lines = (line.removeprefix("ANSWER ") for line in self.process.stdout if line.startswith("ANSWER "))
        answer = json.loads(next(lines, '{"error": "the driver has ended"}'))
        assert "error" not in answer, answer["error"] + self.errors.read_text()[-6000:]
        return answer["told"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    running = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        running.start("demo")
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def driver(cluster):
    running = Driver(cluster)
    yield running
    running.process.kill()
    running.process.wait()


@pytest.fixture(scope="module")
def packages(cluster):
    """Directories with what executors find in place of the package: another version, and none that can be loaded."""
    package = Path(delta_variant.__file__).parent
    for name, text in {"older": f"__path__.append({str(package)!r})", "without": "import nowhere"}.items():
        (cluster.folder / name / "delta_variant").mkdir(parents=True)
        (cluster.folder / name / "delta_variant" / "__init__.py").write_text(text)
    version = package.joinpath("version.py").read_text().replace(delta_variant.__version__, "0.0.9")
    (cluster.folder / "older" / "delta_variant" / "version.py").write_text(version)


def test_the_demo(cluster, driver):
    """The demo's command writes its tables to the bucket and reads them from there, with tasks on both workers: it gives the
    answers that it gives on one machine, and opens fewer files."""
    assert len(cluster.processes["worker"]) == 2
    words, environment = cluster.command("demo")
    assert shutil.which(words[0], path=environment["PATH"])
    # A task that fails is tried twice, not four times: tasks of later tests fail, each in a Python worker of its own.
    words += ["--conf", "spark.task.maxFailures=2"]
    questions, rounds = ([0, 1, 2], 3) if SOAK else ([1], 1)
    done = driver.ask("demo", words, questions, rounds)
    assert done["code"] == 0, done["errors"]
    assert "22km NNE of Hualian, Taiwan" in done["output"]
    opened = re.findall(r"(delta-\w+, \w+) +opened +(\d+) of (\d+) files", done["output"])
    tables = ["delta-variant, shredded", "delta-variant, plain", "delta-spark, shredded"]
    assert [name for name, _, _ in opened] == tables * len(questions)
    assert all(int(files) < 10 if name == tables[0] else files == total for name, files, total in opened)
    for table in ("earthquakes", "earthquakes_plain"):
        names = list(cluster.objects(f"demo/{table}"))
        assert sum(name.endswith(".parquet") for name in names) == 20
        assert "_delta_log/00000000000000000001.json" in names
    for worker in ("work-0", "work-1"):
        (log,) = (cluster.folder / worker).glob("app-*/*/stderr")
        assert "Running task" in log.read_text()


def test_two_executors(cluster, driver, packages):
    """Where executors are processes of their own, writes, appends with a shredding schema, overwrites, partitions, clustering
    and a failing task behave as in local mode: nothing that a task needs lives in the driver.

    If executors have another version of the package, or lack it, one error says so.
    """
    group = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])
    variants = pa.array([{"metadata": b"\x01\0\0", "value": b"\x0d"}], group)  # a string that ends before its last byte
    damaged = pa.table([pa.array([0]), variants], schema=pa.schema([("id", pa.int64()), ("v", group)]))
    pq.write_table(damaged, cluster.folder / "damaged")
    told = driver.ask("tables", str(cluster.folder))
    assert told.pop("malformed").startswith("MalformedVariantError: writing to ")
    here = delta_variant.__version__
    assert f"the executors run delta-variant 0.0.9 and the driver runs {here}: install the same" in told.pop("older")
    without = rf"executors cannot load delta-variant {here}, which the driver runs \(\w+: No module named 'nowhere'\): install"
    assert re.search(without, told.pop("without"))
    expected = {"write": [0, 100, ["s.w", "v"]], "partitioned": 3, "clustered": 90, "same": True, "version": 2, "executors": 2}
    assert told == expected
    assert not list((cluster.folder / "m" / "_delta_log").glob("*.json"))


def test_a_worker_dies(cluster, driver, packages):
    """If a worker and its executor are killed in the middle of a write, the write succeeds on the other one: the table has each
    row once, and its log names one file of each task, all of which are there.

    Executors without the package are one error that says how to ship it, and with the package as an archive they do the work.
    """
    package = Path(delta_variant.__file__).parent
    with zipfile.ZipFile(cluster.folder / "delta_variant.zip", "w") as archive:
        for source in package.rglob("*.*"):
            if "__pycache__" not in source.parts:
                archive.write(source, source.relative_to(package.parent))
    with ThreadPoolExecutor() as threads:
        phase = threads.submit(driver.ask, "killed", str(cluster.folder), TASKS, ROWS)
        written = 0
        while not phase.done() and written < 2:
            written = sum(name.endswith(".parquet") for name in cluster.objects("killed"))
            time.sleep(0.2)
        cluster.kill("worker", 1)
        begun = cluster.objects("killed")
        told = phase.result()
    log = "_delta_log/{:020}.json".format
    assert log(1) not in begun
    assert written < TASKS
    assert told.pop("commit") == [1, ROWS, TASKS]
    assert told.pop("found") == [ROWS, ROWS, ROWS * (ROWS - 1) // 2, 0]
    assert told.pop("hit") == [1, 1]
    objects = cluster.objects("killed")
    adds = [json.loads(line)["add"] for line in objects[log(1)].splitlines() if b'"add"' in line]
    assert len({add["path"] for add in adds}) == TASKS
    assert {json.loads(add["stats"])["numRecords"] for add in adds} == {ROWS // TASKS}
    assert {add["path"] for add in adds} <= set(objects)
    assert told.pop("shipped") == [100, 3 * TASKS]  # inspect has a row for v, v:n and v:t
    assert "ModuleNotFoundError: No module named 'nowhere'" in told.pop("inspect")  # raised where the caller collects it
    advice = "the executors cannot load delta-variant .*No module named 'nowhere'.*--py-files"
    assert set(told) == {"write", "analyze", "bloom", "convert"}
    assert all(re.match(rf"TableError: \w+ [^\n]*{advice}", text) for text in told.values()), told
