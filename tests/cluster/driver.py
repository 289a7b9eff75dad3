"""The driver of test_cluster.py, which starts once for all tests, and so do its executors.

A line on standard input names a phase and its arguments. A line on standard output has what the phase found, or its error.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import delta_variant as dv
from delta_variant.cli import demo as of_demo
from delta_variant.cli import main
from delta_variant.errors import DeltaVariantError


def demo(words: list[str], questions: list[int], rounds: int) -> dict[str, Any]:
    """The command, in this process, with some of its questions, each asked so often. Its session stays."""
    of_demo.QUESTIONS = tuple(of_demo.QUESTIONS[n] for n in questions)
    of_demo.ROUNDS = rounds
    output, errors, code = io.StringIO(), io.StringIO(), None
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            main(words[1:], prog_name=words[0])
        except SystemExit as end:
            code = end.code
    return {"code": code, "output": output.getvalue(), "errors": errors.getvalue()}


def tables(folder: str) -> dict[str, Any]:
    """Tables in a local directory."""
    spark, directory = session(), Path(folder)

    def rows(start: int, count: int) -> DataFrame:
        return spark.range(start, start + count, 1, 3).selectExpr(
            "id", "id % 3 p", "parse_json(concat('{\"n\":', id, ',\"t\":\"', md5(cast(id as string)), '\"}')) v",
            "named_struct('w', parse_json(cast(id as string))) s", "timestamp_seconds(id) ts",
        )  # fmt: skip

    def error_of(frame: DataFrame, name: str) -> str:
        try:
            dv.write(frame, directory / name)
        except DeltaVariantError as error:
            return f"{type(error).__name__}: {error}"
        return "no error"

    first = dv.write(rows(0, 100), directory / "t", shred={"v": "n bigint", "s.w": "bigint"})
    dv.write(rows(100, 100), directory / "t", shred={"v": "n bigint"})
    dv.write(rows(0, 50), directory / "t", "overwrite", max_rows_per_file=10)
    told = {
        "write": [first.version, first.rows, list(first.shredded)],
        "partitioned": dv.write(rows(0, 90), directory / "p", partition_by=["p"]).files,
        "clustered": dv.write(rows(0, 90), directory / "c", cluster_by=["v:n"]).rows,
    }
    expected = {("t", "version as of 1"): range(200), ("t", ""): range(50), ("p", ""): range(90), ("c", ""): range(90)}
    columns = "id, p, v:n::bigint, s.w::bigint, unix_seconds(ts)"
    branches = [f"select '{name}', {columns} from delta.`{directory / name}` {at}" for name, at in expected]
    found = sorted(map(tuple, spark.sql(" union all ".join(branches)).collect()))
    told["same"] = found == sorted((name, i, i % 3, i, i, i) for (name, _), ids in expected.items() for i in ids)
    damaged = spark.read.schema(rows(0, 1).select("id", "v").schema).parquet(str(directory / "damaged"))
    told["malformed"] = error_of(rows(0, 50).select("id", "v").union(damaged), "m")
    told["version"] = spark.sql(f"DESCRIBE HISTORY delta.`{directory / 't'}`").first().version
    told["executors"] = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    for name in ("older", "without"):
        with executors_find(spark, directory / name):
            told[name] = error_of(rows(0, 1), f"to-{name}")
    return told


def killed(folder: str, tasks: int, count: int) -> dict[str, Any]:
    """A write in the middle of which the caller kills a worker, its table, and executors that lack the package."""
    spark, table = session(), "s3a://lake/killed"
    # A second for each task, so that the caller finds tasks that run.
    pause = f"if(id % {count // tasks // 10} = 0, reflect('java.lang.Thread', 'sleep', 100L), null) pause"
    rows = spark.range(0, count, 1, tasks).selectExpr(
        "id", "parse_json(concat('{\"n\":', id, ',\"t\":\"', sha2(cast(id as string), 256), '\"}')) v", pause
    )
    dv.write(rows.limit(0), table)
    commit = dv.write(rows, table, shred={"v": "n bigint, t string"})
    wrong = "v:n::bigint <> id OR v:t::string <> sha2(cast(id as string), 256)"
    figures = f"count(*), count(DISTINCT v:n::bigint), sum(v:n::bigint), count_if({wrong})"
    hit = spark.sql(f"SELECT * FROM delta.`{table}` WHERE v:n::bigint = 5")
    told: dict[str, Any] = {
        "commit": [commit.version, commit.rows, commit.files],
        "found": list(spark.sql(f"SELECT {figures} FROM delta.`{table}`").first()),
        "hit": [hit.count(), dv.explain(hit).scans[0].files_after_bounds],
    }
    small = rows.where("id < 100").select("id", "v")
    operations = {
        "write": lambda: dv.write(small, "s3a://lake/small", shred={"v": "n bigint"}).rows,
        "analyze": lambda: dv.VariantTable.forPath(spark, table).analyze(paths=["v:other"]).files,
        "bloom": lambda: dv.VariantTable.forPath(spark, table).analyze(bloom=["v:t"], budget=0.5).indexed.files,
        "convert": lambda: dv.convert(spark, table + "/*.parquet", table + "-converted").rows,
        "inspect": lambda: dv.VariantTable.forPath(spark, table).inspect().count(),
    }
    with executors_find(spark, Path(folder, "without")):
        for name, operation in operations.items():
            try:
                told[name] = operation()
            except Exception as error:  # noqa: BLE001  # the test reads what it is
                told[name] = f"{type(error).__name__}: {error}"
        spark.sparkContext.addPyFile(str(Path(folder, "delta_variant.zip")))
        told["shipped"] = [operations[name]() for name in ("write", "inspect")]
    return told


def session() -> SparkSession:
    """The session, which the first phase starts."""
    builder = (
        SparkSession.builder.master(os.environ["SPARK_MASTER"])
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.databricks.delta.snapshotPartitions", "1")
    )
    spark = dv.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    dv.enable(spark)
    return spark


@contextlib.contextmanager
def executors_find(spark: SparkSession, directory: Path):
    """Has new Python workers look for the package in a directory before they find it elsewhere."""
    environment = spark.sparkContext.environment
    environment["PYTHONPATH"] = str(directory)
    try:
        yield
    finally:
        del environment["PYTHONPATH"]


SparkSession.stop = lambda self: None
for line in sys.stdin:
    name, *arguments = json.loads(line)
    try:
        answer = {"told": {"demo": demo, "tables": tables, "killed": killed}[name](*arguments)}
    except Exception:  # noqa: BLE001  # it is the answer
        answer = {"error": traceback.format_exc()}
    print("ANSWER", json.dumps(answer), flush=True)
