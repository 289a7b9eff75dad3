"""The cluster of docker/compose.yaml, started as processes: the same commands and environments, on ports of the loopback.

Only names of hosts, ports and directories differ from those in the containers.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import zipfile
from pathlib import Path

import pytest
import yaml

import delta_variant
from delta_variant.storage import Storage

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DOCKER = Path(__file__).parent.parent / "docker"
TASKS, ROWS = 16, 160_000


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

    def run(self, service: str, *command: str, **environment: str) -> subprocess.CompletedProcess:
        """Runs the command of a service, or another one in its place."""
        words, known = self.command(service)
        known = {**known, **environment}
        return subprocess.run(list(command) or words, env=known, capture_output=True, text=True, check=False, cwd=self.folder)

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


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    running = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        running.start("demo")
        yield running
    finally:
        running.stop()


def test_the_demo(cluster):
    """The demo's command writes its tables to the bucket and reads them from there, with tasks on both workers: it gives the
    answers that it gives on one machine, and opens fewer files."""
    assert len(cluster.processes["worker"]) == 2
    done = cluster.run("demo")
    assert done.returncode == 0, done.stderr
    assert "22km NNE of Hualian, Taiwan" in done.stdout
    opened = re.findall(r"(delta-\w+, \w+) +opened +(\d+) of (\d+) files", done.stdout)
    tables = ["delta-variant, shredded", "delta-variant, plain", "delta-spark, shredded"]
    assert [name for name, _, _ in opened] == tables * 3
    assert all(int(files) < 10 if name == tables[0] else files == total for name, files, total in opened)
    for table in ("earthquakes", "earthquakes_plain"):
        names = list(cluster.objects(f"demo/{table}"))
        assert sum(name.endswith(".parquet") for name in names) == 20
        assert "_delta_log/00000000000000000001.json" in names
    for worker in ("work-0", "work-1"):
        (log,) = (cluster.folder / worker).glob("app-*/*/stderr")
        assert "Running task" in log.read_text()


SCRIPT = """
import json, os, sys
from pathlib import Path

from pyspark.sql import SparkSession

import delta_variant as dv
from delta_variant.errors import DeltaVariantError

folder, tasks, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
builder = (
    SparkSession.builder.master(os.environ["SPARK_MASTER"]).config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2").config("spark.databricks.delta.snapshotPartitions", "1")
)
spark = dv.configure(builder).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
dv.enable(spark)
told = {}
try:
    # A second for each task, so that the test finds tasks that run.
    pause = f"if(id % {count // tasks // 10} = 0, reflect('java.lang.Thread', 'sleep', 100L), null) pause"
    rows = spark.range(0, count, 1, tasks).selectExpr(
        "id", "parse_json(concat('{\\"n\\":', id, ',\\"t\\":\\"', sha2(cast(id as string), 256), '\\"}')) v", pause
    )
    table = "s3a://lake/killed"
    dv.write(rows.limit(0), table)
    commit = dv.write(rows, table, shred={"v": "n bigint, t string"})
    told["commit"] = [commit.version, commit.rows, commit.files]
    found = spark.sql(f"SELECT count(*), count(DISTINCT v:n::bigint), sum(v:n::bigint) FROM delta.`{table}`").first()
    wrong = f"v:n::bigint <> id OR v:t::string <> sha2(cast(id as string), 256)"
    told["found"] = [*found, spark.sql(f"SELECT count(*) FROM delta.`{table}` WHERE {wrong}").first()[0]]
    hit = spark.sql(f"SELECT * FROM delta.`{table}` WHERE v:n::bigint = 5")
    told["hit"] = [hit.count(), dv.explain(hit).scans[0].files_after_bounds]

    # Executors that find something else in the place of the package, until they get it in an archive.
    spark.sparkContext.environment["PYTHONPATH"] = str(folder / "without")
    small = rows.where("id < 100").select("id", "v")
    operations = {
        "write": lambda: dv.write(small, "s3a://lake/small", shred={"v": "n bigint"}).rows,
        "analyze": lambda: dv.VariantTable.forPath(spark, table).analyze(paths=["v:other"]).files,
        "bloom": lambda: dv.VariantTable.forPath(spark, table).analyze(bloom=["v:t"], budget=0.5).indexed.files,
        "convert": lambda: dv.convert(spark, table + "/*.parquet", table + "-converted").rows,
        "inspect": lambda: dv.VariantTable.forPath(spark, table).inspect().count(),
    }
    for name, operation in operations.items():
        try:
            told[name] = operation()
        except Exception as error:
            told[name] = f"{type(error).__name__}: {error}"
    spark.sparkContext.addPyFile(str(folder / "delta_variant.zip"))
    told["shipped"] = [operations[name]() for name in ("write", "inspect")]
finally:
    spark.stop()
print("DONE", json.dumps(told))
"""


def test_a_worker_dies(cluster):
    """If a worker and its executor are killed in the middle of a write, the write succeeds on the other one: the table has each
    row once, and its log names one file of each task, all of which are there.

    Executors without the package are one error that says how to ship it, and with the package as an archive they do the work.
    """
    (cluster.folder / "without" / "delta_variant").mkdir(parents=True)
    (cluster.folder / "without" / "delta_variant" / "__init__.py").write_text("import nowhere")
    package = Path(delta_variant.__file__).parent
    with zipfile.ZipFile(cluster.folder / "delta_variant.zip", "w") as archive:
        for source in package.rglob("*.*"):
            if "__pycache__" not in source.parts:
                archive.write(source, source.relative_to(package.parent))
    (cluster.folder / "script.py").write_text(SCRIPT)
    words = [sys.executable, "script.py", str(cluster.folder), str(TASKS), str(ROWS)]
    environment = cluster.command("demo")[1]
    with (cluster.folder / "out").open("w") as out, (cluster.folder / "err").open("w") as err:
        driver = subprocess.Popen(words, env=environment, cwd=cluster.folder, stdout=out, stderr=err)
    try:
        written = 0
        while driver.poll() is None and written < 4:
            written = sum(name.endswith(".parquet") for name in cluster.objects("killed"))
            time.sleep(0.2)
        cluster.kill("worker", 1)
        begun = cluster.objects("killed")
        driver.wait()
    finally:
        driver.kill()
    last = "".join((cluster.folder / "out").read_text().splitlines()[-1:])
    assert last.startswith("DONE "), (cluster.folder / "err").read_text()[-6000:]
    told = json.loads(last.removeprefix("DONE "))
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
