"""Sessions of other clients in a driver that runs this package: newSession(), Spark Connect and the Thrift server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delta_variant import explanation
from delta_variant.session import disable, enable
from tests.session.state import LIMIT, SETTINGS, rules, settings

pytestmark = pytest.mark.spark


def test_new_sessions(spark: SparkSession):
    """With new_sessions, sessions made later have the rules and settings from their first query on, once, clones of them too.
    Settings of theirs stay, `disable` restores them, and after it sessions and clones get nothing; without new_sessions, they
    never do."""
    owner = spark.newSession()
    enable(owner)
    plain = owner.newSession()
    plain.sql("SELECT 1").collect()
    assert rules(plain) == []
    for _ in range(2):
        enable(owner, new_sessions=True)
    first, second = owner.newSession(), spark.newSession()
    second.conf.set(LIMIT, "7")
    for session in (first, second):
        for _ in range(2):
            session.sql("SELECT 1").collect()
        assert rules(session) == rules(owner)
    assert [settings(first), settings(second)] == [["100", "true", "false"], ["7", "true", "false"]]
    clone = SparkSession(spark.sparkContext, first._jsparkSession.cloneSession())
    clone.sql("SELECT 1").collect()
    assert rules(clone) == rules(owner)
    disable(second)  # not the one that offered them
    assert settings(second) == ["7", None, None]
    third = owner.newSession()
    third.sql("SELECT 1").collect()
    assert rules(third) == rules(owner)
    disable(third)
    assert (rules(third), third.conf.get(SETTINGS[1], None)) == ([], None)
    third.sql("SELECT 1").collect()
    cloned = SparkSession(spark.sparkContext, third._jsparkSession.cloneSession())
    cloned.sql("SELECT 1").collect()
    assert rules(cloned) == []
    disable(owner)
    last = owner.newSession()
    last.sql("SELECT 1").collect()
    assert (rules(third), rules(last), explanation.has_rules(first)) == ([], [], True)
    for session in (first, clone):
        disable(session)


SERVER = """
import json, subprocess, sys
from pathlib import Path

from pyspark.sql import SparkSession

import delta_variant as dv
from delta_variant import jvm

folder, connect, thrift = sys.argv[1:]
builder = (
    SparkSession.builder.master("local[1]").config("spark.driver.memory", "1g").config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2").config("spark.sql.session.timeZone", "UTC")
    .config("spark.databricks.delta.snapshotPartitions", "1").config("spark.sql.warehouse.dir", folder + "/warehouse")
    .config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
    .config("spark.connect.grpc.binding.address", "127.0.0.1").config("spark.connect.grpc.binding.port", connect)
    .config("spark.hadoop.hive.server2.thrift.bind.host", "127.0.0.1")
    .config("spark.hadoop.hive.server2.thrift.port", thrift)
)
dv.configure(builder)._options.pop("spark.jars.packages")  # the servers' threads see the JARs of the class path alone
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
dv.enable(spark, new_sessions=True)
rows = spark.range(0, 100, 1, 10).selectExpr("parse_json(concat('{\\"n\\":', id, ',\\"s\\":\\"x\\"}')) v")
dv.write(rows, folder + "/table", shred={"v": "n bigint, s string"})
hive = jvm.scala_object(spark, "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2")
server = hive.startWithSparkSession(spark._jsparkSession, False)
print("READY", flush=True)
sys.stdin.read()
server.stop()
spark.stop()
"""

CLIENT = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
found = spark.sql(sys.argv[2])
print(json.dumps([type(spark).__module__, [list(row) for row in found.collect()], found._explain_string(mode="simple")]))
"""


def told(connection: Any, query: str) -> list[str]:
    """The first column of what a JDBC connection answers."""
    rows, found = connection.createStatement().executeQuery(query), []
    while rows.next():
        found.append(rows.getString(1))
    return found


@pytest.mark.slow
def test_servers(spark: SparkSession, jvm_environment: dict[str, str], tmp_path: Path):
    """Queries of Connect and Thrift clients skip files and are read typed, if the servers run in a driver with new_sessions."""
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(str(free.getsockname()[1]))
    kept = ("SPARK_DIST_CLASSPATH",)
    known = {key: value for key, value in jvm_environment.items() if key in kept or not key.startswith(("SPARK", "PYSPARK"))}
    environment = {**known, "PYTHONPATH": os.pathsep.join(sys.path), "SPARK_LOCAL_IP": "127.0.0.1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    query = f"SELECT v:n::bigint n FROM delta.`{tmp_path}/table` WHERE v:n::bigint = 5"
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen([sys.executable, "-c", SERVER, tmp_path, *ports], stderr=log, **pipes)
    try:
        assert server.stdout.readline() == "READY\n", (tmp_path / "log").read_text()[-6000:]
        client = [sys.executable, "-c", CLIENT, f"sc://127.0.0.1:{ports[0]}", query]
        done = subprocess.run(client, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        module, rows, plan = json.loads(done.stdout)
        assert module == "pyspark.sql.connect.session"
        assert rows == [[5]]
        assert "NarrowedFileIndex(1 paths)" in plan
        assert "ReadSchema: struct<v:struct<typed_value:struct<n:struct<typed_value:bigint>>>>" in plan
        driver, login = spark._jvm.org.apache.hive.jdbc.HiveDriver(), spark._jvm.java.util.Properties()
        login.setProperty("user", "anyone")
        connection = driver.connect(f"jdbc:hive2://127.0.0.1:{ports[1]}/", login)
        assert told(connection, query) == ["5"]
        assert "NarrowedFileIndex(1 paths)" in told(connection, f"EXPLAIN {query}")[0]
        connection.close()
    finally:
        server.stdin.close()
        server.wait()
