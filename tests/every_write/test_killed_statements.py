"""Statements of an enabled session that are killed in the middle: tables are whole, and a stream goes on exactly once.

One process has all of them in its threads. A MERGE and an OPTIMIZE have written their files and are held before they commit. A
stream is in the job of a batch, or has just committed one that its checkpoint does not yet say to be done. Then SIGKILL ends
the process, its JVM and its Python workers.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import delta_variant as dv
from tests import logs
from tests.every_write.comparison import rows
from tests.every_write.writers import OURS, writers
from tests.gates import gates
from tests.support import INTERPRETED, forget, share

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.interpreted]

BATCHES, KILLED = 5, 2
"""Batches of the stream, and in which of them it is killed."""
SIZE = 6
"""Rows of a batch."""
DOCUMENT = "to_variant_object(named_struct('n', id, 's', concat('text ', id)))"
TABLE = f"select id, id % 3 p, {DOCUMENT} v from range"
STATEMENTS = {
    "MERGE": f"merge into delta.`{{}}` t using (select id, 1L p, {DOCUMENT} v from range(20, 60)) s on t.id = s.id "
    "when matched and s.id % 2 = 0 then delete when matched then update set v = s.v when not matched then insert *",
    "OPTIMIZE": "optimize delta.`{}`",
}


def work() -> None:
    """What the process does that is killed, in the folder and until the moment that its arguments say."""
    root, moment, options = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "2g")
    for key, value in {
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        **options,
    }.items():
        builder = builder.config(key, value)
    dv.configure(builder)._options.pop("spark.jars.packages")  # they are on the class path
    spark = builder.getOrCreate()
    dv.enable(spark)
    new_gate = gates(spark)

    def run(gate, name: str) -> None:
        gate.install()
        spark.sql(STATEMENTS[name].format(root / name))

    with ThreadPoolExecutor(2) as threads:
        for name in STATEMENTS:
            gate = new_gate()
            threads.submit(run, gate, name)
            assert gate.reached()
        start(spark, root, hold=moment == "job")
        commit = root / "stream" / "_delta_log" / f"{KILLED + 1:020}.json"
        sign = root / "reached" if moment == "job" else commit
        while not sign.exists():
            time.sleep(0.001)
        os.killpg(os.getpgid(0), signal.SIGKILL)


def start(spark: SparkSession, root: Path, *, hold: bool):
    """Starts the stream, a batch for each file. It may stop in the job of one: the file `reached` tells when."""

    def pass_on(batches):
        for batch in batches:
            if hold and KILLED * SIZE in batch["id"].to_pylist():
                (root / "reached").touch()
                time.sleep(600)
            yield batch

    source = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).parquet(str(root / "source"))
    made = source.mapInArrow(pass_on, "id bigint").selectExpr("id", f"{DOCUMENT} v")
    writer = made.writeStream.format("delta").option("checkpointLocation", str(root / "checkpoint"))
    return writer.trigger(availableNow=True).start(str(root / "stream"))


@pytest.mark.parametrize("moment", share(["commit", "job"], 2))
def test_killed(spark, jvm_environment, tmp_path, moment):
    """What was not committed is not there. The same statements then do what they do in plain sessions, and the stream goes on
    (W10)."""
    for n in range(BATCHES):
        frame = spark.range(n * SIZE, (n + 1) * SIZE, 1, 1)
        frame.coalesce(1).write.parquet(str(tmp_path / f"{n}"))
        (tmp_path / "source").mkdir(exist_ok=True)
        (file,) = (tmp_path / f"{n}").glob("*.parquet")
        shutil.move(file, tmp_path / "source" / f"{n}.parquet")
        os.utime(tmp_path / "source" / f"{n}.parquet", (1_700_000_000 + n, 1_700_000_000 + n))
    enabled, plain = spark.newSession(), spark.newSession()
    plain.sql(f"create table delta.`{tmp_path}/stream` (id bigint, v variant) using delta")
    dv.enable(enabled)
    tables = [str(tmp_path / name) for name in STATEMENTS]
    for path in tables:
        for first in (0, 15):
            frame = enabled.sql(f"{TABLE}({first}, {first + 15})")
            frame.write.format("delta").mode("append").partitionBy("p").save(path)
        shutil.copytree(path, path + " plain")
    before = [read(plain, path) for path in tables]

    command = [sys.executable, "-c", "from tests.every_write.test_killed_statements import work; work()"]
    command += [str(tmp_path), moment, json.dumps(INTERPRETED)]
    environment = {**jvm_environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(command, env=environment, start_new_session=True, capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()[-4000:]
    forget(spark)

    for path, expected in zip(tables, before, strict=True):
        assert logs.newest(path) == 1
        assert read(plain, path) == expected
        assert len(set(Path(path).rglob("*.parquet"))) > len(logs.live(path))  # files of the write that was cut off
    done = KILLED + 1 if moment == "commit" else KILLED
    assert logs.newest(tmp_path / "stream") == done
    assert ids(plain, tmp_path / "stream") == list(range(done * SIZE))

    start(enabled, tmp_path, hold=False).awaitTermination()
    assert ids(plain, tmp_path / "stream") == list(range(BATCHES * SIZE))
    assert logs.newest(tmp_path / "stream") == BATCHES
    for path, statement in zip(tables, STATEMENTS.values(), strict=True):
        enabled.sql(statement.format(path))
        plain.sql(statement.format(path + " plain"))
        assert read(plain, path) == read(plain, path + " plain")
        assert logs.newest(path) == 2
    assert {writer for path in (*tables, tmp_path / "stream") for writer in writers(path)} == {OURS}
    dv.disable(enabled)


def read(spark: SparkSession, path: str) -> list:
    return rows(spark.table(f"delta.`{path}`"))


def ids(spark: SparkSession, path: Path) -> list[int]:
    return sorted(row.id for row in spark.table(f"delta.`{path}`").select("id").collect())
