"""The writer where executors are processes of their own: nothing that a task needs may live in the driver."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import delta_variant

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCRIPT = """
import json, sys
from pathlib import Path

from pyspark.sql import SparkSession, functions as F

import delta_variant as dv
from delta_variant.errors import DeltaVariantError

directory = Path(sys.argv[1])
builder = (
    SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.driver.memory", "1g")
    .config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    .config("spark.databricks.delta.snapshotPartitions", "1")
    .config("spark.sql.session.timeZone", "UTC").config("spark.executorEnv.PYTHONPATH", ":".join(sys.path))
)
dv.configure(builder)._options.pop("spark.jars.packages")  # they are on the class path
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")


def rows(start, count, tasks=3):
    return spark.range(start, start + count, 1, tasks).selectExpr(
        "id", "id % 3 p", "parse_json(concat('{\\"n\\":', id, ',\\"t\\":\\"', md5(cast(id as string)), '\\"}')) v",
        "named_struct('w', parse_json(cast(id as string))) s", "timestamp_seconds(id) ts",
    )


def same(expected):
    columns = "id, p, v:n::bigint, s.w::bigint, unix_seconds(ts)"
    branches = [f"select '{name}', {columns} from delta.`{directory / name}` {at}" for name, at in expected]
    found = sorted(map(tuple, spark.sql(" union all ".join(branches)).collect()))
    assert found == sorted((name, i, i % 3, i, i, i) for (name, _), ids in expected.items() for i in ids), found


def error_of(frame, name, **options):
    try:
        dv.write(frame, directory / name, **options)
    except DeltaVariantError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


told = {}
try:
    first = dv.write(rows(0, 100), directory / "t", shred={"v": "n bigint", "s.w": "bigint"})
    told["write"] = [first.version, first.rows, list(first.shredded)]
    dv.write(rows(100, 100), directory / "t", shred={"v": "n bigint"})
    dv.write(rows(0, 50), directory / "t", "overwrite", max_rows_per_file=10)
    told["partitioned"] = dv.write(rows(0, 90), directory / "p", partition_by=["p"]).files
    dv.write(rows(0, 90), directory / "c", cluster_by=["v:n"])
    same({("t", "version as of 1"): range(200), ("t", ""): range(50), ("p", ""): range(90), ("c", ""): range(90)})
    damaged = spark.read.schema(rows(0, 1).select("id", "v").schema).parquet(str(directory / "damaged"))
    told["malformed"] = error_of(rows(0, 50).select("id", "v").union(damaged), "m")
    told["version"] = spark.sql(f"DESCRIBE HISTORY delta.`{directory / 't'}`").first().version
    told["executors"] = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    for name in ("older", "without"):  # what the workers find before the package itself
        spark.sparkContext.environment["PYTHONPATH"] = str(directory / name)
        told[name] = error_of(rows(0, 1), f"to-{name}")
finally:
    spark.stop()
print("DONE", json.dumps(told))
"""


def test_two_executors(jvm_environment, tmp_path):
    """Writes, appends with a shredding schema, overwrites, partitions, clustering and a failing task behave as in local mode.

    If executors have another version of the package, or lack it, one error says so.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    group = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])
    variants = pa.array([{"metadata": b"\x01\0\0", "value": b"\x0d"}], group)  # a string that ends before its last byte
    damaged = pa.table([pa.array([0]), variants], schema=pa.schema([("id", pa.int64()), ("v", group)]))
    pq.write_table(damaged, tmp_path / "damaged")
    package = Path(delta_variant.__file__).parent
    for name, text in {"older": f"__path__.append({str(package)!r})", "without": "import nowhere"}.items():
        (tmp_path / name / "delta_variant").mkdir(parents=True)
        (tmp_path / name / "delta_variant" / "__init__.py").write_text(text)
    (tmp_path / "older" / "delta_variant" / "version.py").write_text("__version__ = '0.0.9'")
    environment = {
        **jvm_environment,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path], env=environment, cwd=tmp_path, text=True, capture_output=True, check=False
    )
    last = "".join(done.stdout.splitlines()[-1:])
    assert last.startswith("DONE "), done.stdout[-3000:] + done.stderr[-6000:]
    told = json.loads(last.removeprefix("DONE "))
    assert told.pop("malformed").startswith("MalformedVariantError: writing to ")
    here = delta_variant.__version__
    assert f"the executors run delta-variant 0.0.9 and the driver runs {here}: install the same" in told.pop("older")
    without = rf"executors cannot load delta-variant {here}, which the driver runs \(\w+: No module named 'nowhere'\): install"
    assert re.search(without, told.pop("without"))
    assert told == {"write": [0, 100, ["s.w", "v"]], "partitioned": 3, "version": 2, "executors": 2}
    assert not (tmp_path / "m" / "_delta_log").exists() or not list((tmp_path / "m" / "_delta_log").glob("*.json"))
