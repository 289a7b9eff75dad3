"""Wrong input of each kind is one clear error of this package, and the table is as it was, every file of it."""

from __future__ import annotations

import json
import resource
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_variant import jvm
from delta_variant.errors import (
    InvalidPathError,
    InvalidSchemaError,
    MalformedVariantError,
    TableError,
    UnsupportedFeatureError,
)
from delta_variant.storage import Storage
from delta_variant.writer import write
from tests import tasks
from tests.logs import newest
from tests.strategies import column
from tests.support import forget

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]

GOOD = "1L id, 'x' name, parse_json('{\"k\": 1}') v, named_struct('w', parse_json('2')) s, 0 p"
TABLES = {
    "t": "(id bigint NOT NULL, name varchar(3), v variant, s struct<w: variant>, p int) USING delta PARTITIONED BY (p) "
    "TBLPROPERTIES ('delta.enableVariantShredding' = 'true')",
    "plain": "(id bigint, v variant) USING delta",
    "append-only": "(id bigint, v variant) USING delta TBLPROPERTIES ('delta.appendOnly' = 'true')",
    "identity": "(id bigint GENERATED ALWAYS AS IDENTITY, v variant) USING delta",
    "bounds": "(id bigint, v variant) USING delta TBLPROPERTIES ('delta_variant.bounds.v' = '$.a[')",
    "size": "(id bigint, v variant) USING delta TBLPROPERTIES ('delta.targetFileSize' = 'large')",
}


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory) -> Path:
    """A directory of tables, and of things that are none."""
    lake = tmp_path_factory.mktemp("lake")
    with jvm.settings(spark, {"spark.databricks.delta.allowArbitraryProperties.enabled": "true"}):  # for delta.targetFileSize
        for name, text in TABLES.items():
            spark.sql(f"CREATE TABLE delta.`{lake / name}` {text}")
    spark.sql(f"ALTER TABLE delta.`{lake / 't'}` ADD CONSTRAINT small CHECK (p < 100)")
    write(spark.sql(f"SELECT {GOOD}"), lake / "t")
    new = lake / "feature" / "_delta_log" / f"{0:020}.json"
    write(spark.sql("SELECT 1 id"), lake / "feature")
    actions = [json.loads(line) for line in new.read_text().splitlines()]
    protocol = next(action["protocol"] for action in actions if "protocol" in action)
    protocol.update(minReaderVersion=3, minWriterVersion=7, readerFeatures=[], writerFeatures=["somethingNew"])
    new.write_text("\n".join(map(json.dumps, actions)))
    for path in new.parent.glob("*.crc"):
        path.unlink()
    forget(spark)
    (lake / "other").mkdir()
    (lake / "other" / "file.txt").write_text("not a table")
    group = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])
    damaged = pa.array([{"metadata": b"\x01\0\0", "value": b"\x0d"}], group)  # a string that ends before its last byte
    pq.write_table(pa.table([pa.array([1]), damaged], names=["id", "v"]), lake / "damaged.parquet")
    spark.read.schema("id bigint, v variant").parquet(str(lake / "damaged.parquet")).createOrReplaceTempView("damaged")
    spark.sql("CREATE OR REPLACE TEMP VIEW a_view AS SELECT 1 id")
    return lake


def files(lake: Path) -> dict[str, int]:
    """Every file, of logs too, and its size."""
    return {str(path): path.stat().st_size for path in lake.rglob("*") if path.is_file()}


SCHEMA, UNSUPPORTED = InvalidSchemaError, UnsupportedFeatureError
# kind: (the columns of the rows, target, arguments, error, message). A target that begins with a dot is in the directory.
CASES = {
    "schema": [
        (f"{GOOD}, 1 extra", "./t", {}, SCHEMA, r"(?s)writing to delta\.`.*/t` failed: .*schema mismatch.* extra: integer"),
        (GOOD.replace("'w'", "'u'"), "./t", {}, SCHEMA, r"(?s)schema mismatch.* u: variant"),
        ("'x' name", "./t", {}, SCHEMA, r"writing to .*/t` failed: .*Column id, which has a NOT NULL constraint, is missing"),
        (GOOD.replace("1L id", "'x' id"), "./t", {}, SCHEMA, r"column id is STRING .* and BIGINT in .*/t`: cast it first"),
        ("1L id, '{}' v", "./t", {}, SCHEMA, r"column v is STRING .* and VARIANT in .*/t`: make it one with parse_json"),
        ("1L id, 1L ID", "./t", {}, SCHEMA, "duplicate column.*: id, ID"),
        ("cast(null as bigint) id, 0 p", "./t", {}, SCHEMA, r"writing to .*/t` failed: .*NOT NULL .* violated for column: id"),
        ("1L id, 100 p", "./t", {}, SCHEMA, r"/t` failed: .* constraint small .* violated by row with values: - p : 100"),
        ("1L id, 'long' name, 0 p", "./t", {}, SCHEMA, r"writing to .*/t` failed: .*name.*(3|length)"),
        ("'x' id, 1 new", "./t", {"merge_schema": True}, SCHEMA, "column id is STRING"),
        ("interval 1 day d", "./new", {}, UNSUPPORTED, "column d is INTERVAL DAY, which delta_variant.write does not handle"),
        ("named_struct('t', time'10:00') s", "./new", {}, UNSUPPORTED, r"column s\.t is TIME\(6\), which"),
        ("1 a, 2 `a b`", "./new", {}, TableError, r"writing to delta\.`.*/new` failed: .*a b"),
        ("1 a, 2 b", "./new", {"partition_by": ["c"]}, SCHEMA, "partition_by: there is no column c; the columns are a, b"),
        ("1 a, 2 b", "./new", {"partition_by": ["a", "b"]}, SCHEMA, "partition_by: a table needs a column that is not"),
        ("1 a, 2 b", "./new", {"partition_by": "a"}, SCHEMA, r"partition_by='a' must be a list of columns: \['a'\]"),
        ("1 a, parse_json('1') v", "./new", {"partition_by": ["v"]}, SCHEMA, "partition_by: v is VARIANT and cannot be"),
        (GOOD, "./t", {"partition_by": ["name"]}, SCHEMA, r"/t` is partitioned by \['p'\], not \['name'\]: leave partition_by"),
        ("*, 0 p FROM damaged", "./t", {}, MalformedVariantError, r"writing to .*/t`: column v: "),
    ],
    "mode": [
        (GOOD, "./t", {"mode": None}, UNSUPPORTED, "mode=None is not one of append"),
        (GOOD, "./t", {"mode": "upsert"}, UNSUPPORTED, "mode='upsert' is not one of append, overwrite, error"),
        (GOOD, "./t", {"mode": "error"}, TableError, r"/t` failed: .*DELTA_PATH_EXISTS"),
        (GOOD, "./t", {"replace_where": "p = 0"}, UNSUPPORTED, "replace_where says what an overwrite replaces"),
        (GOOD, "./t", {"mode": "overwrite", "partition_overwrite": "some"}, UNSUPPORTED, "'some' is not one of static"),
        (GOOD, "./t", {"mode": "overwrite", "replace_where": "p = 1"}, SCHEMA, r"does not conform to .* 'p = 1'"),
        (GOOD, "./t", {"mode": "overwrite", "replace_where": "p ="}, SCHEMA, "Cannot recognize the predicate 'p ='"),
        (GOOD, "./t", {"mode": "overwrite", "replace_where": "id = 2"}, SCHEMA, "does not conform to .* 'id = 2'"),
        ("1L id", "./append-only", {"mode": "overwrite"}, TableError, "/append-only` failed: .*only allow appends"),
    ],
    "shape": [
        (GOOD, "./t", {"shred": {"id": "int"}}, SCHEMA, "shred: id is BIGINT; the VARIANT columns that can be shredded are v"),
        (GOOD, "./t", {"shred": {"w": "a int"}}, SCHEMA, "shred: there is no column w; "),
        (GOOD, "./t", {"shred": {"v": "a strng"}}, SCHEMA, "shred: column v: .*strng"),
        (GOOD, "./t", {"shred": {"s.w": "a time"}}, UNSUPPORTED, r"shred: s\.w\.a is time64\[us\], which Spark cannot read"),
        (GOOD, "./new", {"shred": {"v": pa.struct([("n", pa.timestamp("ns"))])}}, UNSUPPORTED, r"v\.n is timestamp\[ns\]"),
        (GOOD, "./t", {"shred": "always"}, SCHEMA, "shred='always' must be 'auto', False, or a mapping"),
        ("1L id", "./plain", {"shred": {"v": "a int"}}, TableError, r"/plain` must not hold shredded files: .* SET TBLPROP"),
    ],
    "path syntax": [
        (GOOD, "./t", {"cluster_by": ["v:a[x]"]}, InvalidPathError, r"cluster_by: v:a\[x\]: "),
        (GOOD, "./t", {"cluster_by": ["v:$..a"]}, InvalidPathError, r"cluster_by: v:\$\.\.a: "),
        (GOOD, "./t", {"cluster_by": ["id:a"]}, SCHEMA, "cluster_by: id is BIGINT, and only VARIANT columns have paths"),
        (GOOD, "./t", {"cluster_by": ["v"]}, SCHEMA, "cluster_by: v is VARIANT, which has no order: name a path in it"),
        (GOOD, "./new", {"cluster_by": ["nothing"]}, SCHEMA, "cluster_by: .*nothing"),
        (GOOD, "./t", {"cluster_by": "v:a"}, SCHEMA, r"cluster_by='v:a' must be a list of columns"),
        (GOOD, "./t", {"shred": {"s.": "a int"}}, SCHEMA, "'s.' is not the name of a column: write a.b"),
        ("1L id", "./bounds", {}, InvalidPathError, r"property delta_variant\.bounds\.v: '\$\.a\[' is not a"),
    ],
    "unknown option": [
        (GOOD, "./t", {"unknown": 1}, TypeError, "unexpected keyword argument 'unknown'"),
        (GOOD, "./t", {"compression": "brotli"}, UNSUPPORTED, "compression='brotli' is not one of zstd, snappy"),
        (GOOD, "./t", {"max_rows_per_file": 0}, UNSUPPORTED, "max_rows_per_file=0 must be a whole number, 1 or more"),
        (GOOD, "./t", {"max_rows_per_file": "5"}, UNSUPPORTED, "max_rows_per_file='5' must be a whole number"),
        (GOOD, "./t", {"partition_by": None}, SCHEMA, "partition_by=None must be a list of columns$"),
        (GOOD, "./t", {"txn": ("job",)}, UNSUPPORTED, r"txn=\('job',\) is not an application and its version"),
        (GOOD, "./t", {"txn": ("job", -1)}, UNSUPPORTED, r"txn=\('job', -1\) is not an application and its version"),
        (GOOD, "./t", {"storage_options": {"key": "x"}}, UNSUPPORTED, "storage_options: key is not a setting of Hadoop's"),
        ("1L id", "./size", {}, TableError, "delta.targetFileSize = 'large' is not a size: write bytes, or 100mb"),
    ],
    "unsupported feature": [
        ("1L id, parse_json('1') v", "./identity", {}, SCHEMA, "GENERATED ALWAYS AS IDENTITY column id is not supported"),
        ("1 id", "./feature", {}, UNSUPPORTED, "table feature somethingNew of .*/feature` is in the protocol"),
        (GOOD, "hdfs://host:8020/t", {}, UNSUPPORTED, "hdfs://host:8020/t is on hdfs: storage"),
        (GOOD, "other.base.t", {}, UNSUPPORTED, "other.base.t is in the catalog other"),
        (GOOD, "a_view", {}, TableError, "a_view is a temporary view: write to the table behind it"),
        (GOOD, "./other", {}, TableError, "/other is not a Delta table and not empty: choose another path"),
        (GOOD, "./other/file.txt", {}, TableError, "/other/file.txt is not a Delta table"),
    ],
    "permission": [
        (GOOD, "./other/file.txt/t", {}, TableError, r"/other/file.txt/t` failed: .*file.txt"),
        (GOOD, "/sys/kernel/t", {}, TableError, r"/sys/kernel/t` failed: .*/sys/kernel/t"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "target", "arguments", "error", "message"),
    [pytest.param(*case, id=f"{kind} {i}") for kind, cases in CASES.items() for i, case in enumerate(cases)],
)
def test_wrong_input(spark, lake, columns, target, arguments, error, message):
    """Each wrong input is an error of its class with the expected message, without a stack, and no file changes."""
    name = target.removeprefix("./")
    before, number = files(lake), newest(lake / name) if name in TABLES else None
    with pytest.raises(error, match=message) as raised:
        write(spark.sql(f"SELECT {columns}"), target if name == target else lake / name, **arguments)
    text = str(raised.value)
    assert "\tat " not in text
    assert "JVM stacktrace" not in text
    assert len(text) < 600 or "Table schema:" in text
    assert files(lake) == before
    assert number is None or newest(lake / name) == number


def test_streams_are_refused(spark, lake):
    """A streaming DataFrame is refused with the advice to use foreach_batch, and no file changes."""
    before = files(lake)
    with pytest.raises(UnsupportedFeatureError, match=r"write takes a batch: pass foreach_batch\(…\)"):
        write(spark.readStream.format("delta").load(str(lake / "t")), lake / "t")
    assert files(lake) == before


# ------------------------------------------------------------------------------------------ what the storage does not take


linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /sys, where root may not write, and /proc")


def random_rows(spark, path: Path, partition: int = 0):
    """About 300 KB that do not compress."""
    rows = pa.table([pa.array(range(1, 1001)), pa.array(list(np.random.default_rng(1).bytes(300_000).hex(" ", 300).split()))],
                    names=["id", "text"])  # fmt: skip
    pq.write_table(rows, path)
    return spark.read.parquet(str(path)).selectExpr("id", "to_variant_object(named_struct('t', text)) v", f"{partition} p")


@linux
def test_no_right_to_write(spark, lake):
    """A directory in which a task may not create files, here that of a partition, is one error, and no file changes."""
    (lake / "t" / "p=7").symlink_to("/sys/kernel")
    before = files(lake)
    with pytest.raises(TableError, match=r"writing to .*/t`: cannot write to .*/t: Permission denied: give the user that the "):
        write(spark.sql(f"SELECT {GOOD}").selectExpr("* EXCEPT (p)", "7 p"), lake / "t")
    assert files(lake) == before
    (lake / "t" / "p=7").unlink()


@contextmanager
def limited(pids: list[int], size: int):
    """Limits the size of files that these processes, and those that they start, can write."""
    limits = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids}
    try:
        for pid, (_, hard) in limits.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))
        yield
    finally:
        for pid, limit in limits.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)


def workers(jvm: int) -> list[int]:
    """The Python processes of a JVM's tasks."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except FileNotFoundError:
            continue
    daemons = [pid for pid, parent in parents.items() if parent == jvm]
    return daemons + [pid for pid, parent in parents.items() if parent in daemons]


@linux
def test_no_room_for_files(spark, lake, tmp_path):
    """If a data file cannot be written for lack of room, there is one error with the way out, and no file is left."""
    df = random_rows(spark, tmp_path / "rows.parquet")
    write(spark.sql(f"SELECT {GOOD}"), lake / "t")  # so that there are workers
    before, jvm = files(lake), spark._jvm.ProcessHandle.current().pid()
    with limited(workers(jvm), 100_000):
        for target in ("t", "new"):
            with pytest.raises(TableError, match=rf"writing to .*/{target}`: cannot write to .*: File too large: make room"):
                write(df, lake / target)
            assert {name for name in files(lake) if "/_delta_log/" not in name} == {
                name for name in before if "/_delta_log/" not in name
            }
    assert files(lake) == before
    assert write(df, lake / "t").rows == 1000


@linux
def test_no_room_for_the_commit(spark, lake):
    """If there is room for the files and none for the log, the commit is one error, and the table keeps its version."""
    df = spark.range(1, 61, 1, 1).selectExpr("id", "parse_json(cast(id as string)) v", "cast(id as int) p")
    path = lake / "t"
    before, number = files(path), newest(path)
    small = limited([spark._jvm.ProcessHandle.current().pid()], 8_000)  # the commit of sixty files takes 30 KB
    with small, pytest.raises(TableError, match=r"writing to .*/t` failed: .*File too large") as raised:
        write(df, path)
    assert "\tat " not in str(raised.value)
    assert sum(name.endswith(".parquet") for name in files(path).keys() - before) == 60  # for VACUUM
    assert newest(path) == number
    assert write(df, path).version == number + 1


@pytest.mark.parametrize("reason", ["INVALID_ACCESS_KEY_ID", "ACCESS_DENIED"])
def test_no_right_on_s3(server, reason):
    """Keys that an S3 server does not know, or that give no right to write, are one error with its reason."""
    import boto3

    endpoint, options = server["fs.s3a.endpoint"], {"region_name": "us-east-1"}
    given = {**server, "fs.s3a.access.key": "nobodys", "fs.s3a.secret.key": "key"}
    if reason == "ACCESS_DENIED":
        client = boto3.client("iam", endpoint_url=endpoint, aws_access_key_id="x", aws_secret_access_key="x", **options)
        client.create_user(UserName="reader")
        made = client.create_access_key(UserName="reader")["AccessKey"]
        given |= {"fs.s3a.access.key": made["AccessKeyId"], "fs.s3a.secret.key": made["SecretAccessKey"]}
    storage = Storage.of("s3a://lake/tables/t", given.get)
    batch = pa.RecordBatch.from_arrays([column([1, 2])], names=["v"])
    refused = pytest.raises(TableError, match=rf"cannot write to s3://lake/tables/t: {reason}: check the bucket, its policy")
    with checked_keys(endpoint), refused as error:
        tasks.run(tasks.plan("", {("v",)}, location=storage), [batch])
    assert not any(secret in str(error.value) for secret in (given["fs.s3a.access.key"], given["fs.s3a.secret.key"]))


@contextmanager
def checked_keys(endpoint: str):
    """moto checks keys and permissions in this block."""

    def after(calls: str) -> None:
        kind = {"Content-Type": "text/plain"}
        request = urllib.request.Request(f"{endpoint}/moto-api/reset-auth", calls.encode(), kind, method="POST")
        urllib.request.urlopen(request).close()

    after("0")
    try:
        yield
    finally:
        after("inf")
