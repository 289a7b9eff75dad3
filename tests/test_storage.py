"""Storage: what Hadoop's settings become, what is refused, and writing to an S3 server on this machine."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys

import pyarrow as pa
import pytest
from pyarrow import fs

from delta_variant.errors import TableError, UnsupportedFeatureError
from delta_variant.storage import Storage
from delta_variant.writer.task import write_files
from tests import tasks
from tests.strategies import column

KEYS = {"fs.s3a.access.key": "the-key", "fs.s3a.secret.key": "the-secret"}
LOCAL = {"fs.s3a.endpoint": "http://127.0.0.1:9000", "fs.s3a.path.style.access": "true", **KEYS}


@pytest.mark.parametrize(
    ("location", "scheme", "root"),
    [
        ("/a/b c", "file", "/a/b c"), ("file:/a/b", "file", "/a/b"), ("file:///a/b/", "file", "/a/b"), ("/", "file", "/"),
        ("s3a://bucket/x/y", "s3", "bucket/x/y"), ("S3://bucket/a b/", "s3", "bucket/a b"), ("s3a://bucket", "s3", "bucket"),
        ("gs://bucket/x", "gs", "bucket/x"), ("abfss://box@acct.dfs.core.windows.net/x", "abfs", "box/x"),
        ("s3a://bucket/a:b?c#d%20", "s3", "bucket/a:b?c#d%20"),
    ],
)  # fmt: skip
def test_locations(location, scheme, root):
    """A location becomes a directory of pyarrow's; characters that mean something in a URI are part of names."""
    storage = Storage.of(location)
    assert (storage.scheme, storage.root) == (scheme, root)
    assert storage.has_directories == (scheme == "file")


@pytest.mark.parametrize("location", ["hdfs://host:8020/x", "wasbs://a@b/c", "dbfs:/x"])
def test_other_schemes_are_refused(location):
    """A scheme that is not handled is named, with those that are."""
    with pytest.raises(
        UnsupportedFeatureError, match=rf"is on {location.partition(':')[0]}: storage, and .* file, s3, s3a, gs"
    ):
        Storage.of(location)


SETTINGS = {
    "keys": (KEYS, {"access_key": "the-key", "secret_key": "the-secret"}),
    "session token": (
        {**KEYS, "fs.s3a.session.token": "t"}, {"access_key": "the-key", "secret_key": "the-secret", "session_token": "t"},
    ),
    "half a key": ({"fs.s3a.access.key": "k"}, {}),
    "per bucket": (
        {**KEYS, "fs.s3a.bucket.bucket.access.key": "other", "fs.s3a.bucket.else.secret.key": "x"},
        {"access_key": "other", "secret_key": "the-secret"},
    ),
    "anonymous": (
        {"fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"}, {"anonymous": True},
    ),
    "default chain": (
        {"fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider"}, {},
    ),
    "endpoint": (
        {"fs.s3a.endpoint": "minio:9000"},
        {"endpoint_override": "minio:9000", "scheme": "https", "force_virtual_addressing": True, "region": "us-east-1"},
    ),
    "endpoint without TLS": (
        {"fs.s3a.endpoint": "minio:9000", "fs.s3a.connection.ssl.enabled": "false", "fs.s3a.path.style.access": "true"},
        {"endpoint_override": "minio:9000", "scheme": "http", "force_virtual_addressing": False, "region": "us-east-1"},
    ),
    "endpoint with a scheme": (
        {"fs.s3a.endpoint": "http://h:1", "fs.s3a.endpoint.region": "eu-west-3", "fs.s3a.path.style.access": "TRUE"},
        {"endpoint_override": "h:1", "scheme": "http", "force_virtual_addressing": False, "region": "eu-west-3"},
    ),
    "AWS by region": ({"fs.s3a.endpoint": "s3.eu-central-1.amazonaws.com"}, {"region": "eu-central-1"}),
    "AWS, central": ({"fs.s3a.endpoint": "s3.amazonaws.com", "fs.s3a.endpoint.region": "ap-south-1"}, {"region": "ap-south-1"}),
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_s3(name):
    """pyarrow is told what Hadoop's S3A would do with the same settings."""
    settings, options = SETTINGS[name]
    storage = Storage.of("s3a://bucket/t", settings.get)
    assert storage.options == options
    assert isinstance(storage.open(), fs.S3FileSystem)


def test_settings_of_other_clouds():
    """Keys of Azure and the endpoint of a GCS server reach pyarrow; the account's own setting goes before the general one."""
    host = "acct.dfs.core.windows.net"
    settings = {f"fs.azure.account.key.{host}": "a2V5", "fs.azure.account.key": "no", "fs.azure.sas.fixed.token": "sas"}
    assert Storage.of(f"abfss://box@{host}/t", settings.get).options == {"account_name": "acct", "account_key": "a2V5"}
    del settings[f"fs.azure.account.key.{host}"], settings["fs.azure.account.key"]
    assert Storage.of(f"abfss://box@{host}/t", settings.get).options == {"account_name": "acct", "sas_token": "sas"}
    oauth = {"id": "i", "secret": "s", "endpoint": "https://login.microsoftonline.com/tenant/oauth2/token"}
    settings = {f"fs.azure.account.oauth2.client.{key}": value for key, value in oauth.items()}
    assert Storage.of(f"abfs://box@{host}/t", settings.get).options == {
        "account_name": "acct", "client_id": "i", "client_secret": "s", "tenant_id": "tenant",
    }  # fmt: skip
    settings = {"fs.gs.storage.root.url": "http://localhost:4443", "fs.gs.auth.type": "UNAUTHENTICATED"}
    options = {"anonymous": True, "endpoint_override": "localhost:4443", "scheme": "http"}
    assert Storage.of("gs://b/t", settings.get).options == options


def test_assumed_roles_are_refused():
    """A credentials provider that pyarrow would not stand in for is named."""
    provider = "org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider"
    with pytest.raises(UnsupportedFeatureError, match=r"AssumedRoleCredentialProvider: delta_variant\.write takes keys"):
        Storage.of("s3a://b/t", {"fs.s3a.aws.credentials.provider": provider}.get)


def test_secrets_are_not_shown():
    """A storage that is printed, in a plan or an error, does not show what opens it; sent to a task it opens the same."""
    storage = Storage.of("s3a://bucket/t", {**LOCAL, "fs.s3a.session.token": "the-token"}.get)
    texts = [
        repr(storage),
        str(storage),
        storage.name,
        str(storage.explained(PermissionError(13, "no"))),
        repr(tasks.plan("/", set(), location=storage)),
    ]
    assert not any(secret in text for secret in ("the-key", "the-secret", "the-token") for text in texts)
    assert pickle.loads(pickle.dumps(storage)) == storage


# -------------------------------------------------------------------------------------------- an S3 server on this machine


@pytest.fixture(scope="module")
def server():
    """The settings of an S3 server that has the bucket `lake`."""
    from moto.server import ThreadedMotoServer

    running = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    settings = {**LOCAL, "fs.s3a.endpoint": f"http://{host}:{port}"}
    files = fs.S3FileSystem(**{**Storage.of("s3a://lake", settings.get).options, "allow_bucket_creation": True})
    files.create_dir("lake")
    yield settings
    running.stop()


def listed(storage: Storage) -> list[str]:
    """Every object below a directory."""
    selector = fs.FileSelector(storage.root, recursive=True, allow_not_found=True)
    return sorted(info.path for info in storage.open().get_file_info(selector) if info.type == fs.FileType.File)


def uploads(storage: Storage, settings: dict[str, str]) -> int:
    """Multipart uploads that were begun and not ended."""
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=settings["fs.s3a.endpoint"],
        aws_access_key_id="x",
        aws_secret_access_key="x",
        region_name="us-east-1",
    )
    return len(client.list_multipart_uploads(Bucket=storage.root.split("/")[0]).get("Uploads", []))


def batches(count: int, *, error: BaseException | None = None):
    """Rows of 1 KiB that do not compress, then an error."""
    for start in range(0, count, 1000):
        rows = [{"n": i, "t": os.urandom(512).hex()} for i in range(start, start + 1000)]
        partition = pa.array([f"p {start % 3000 // 1000}"] * 1000)
        yield pa.RecordBatch.from_arrays([column(rows), partition], names=["v", "p"])
    if error:
        raise error


def test_files_on_s3(server):
    """Files, of one part and of several, are objects below the table's prefix, partitions included, and nothing else is."""
    storage = Storage.of("s3a://lake/tables/one", server.get)
    plan = tasks.plan("", {("v",)}, location=storage, partition_by=("p",), compression="none")
    adds = tasks.run(plan, sorted(batches(36_000), key=lambda batch: batch["p"][0].as_py()))
    assert [add["partitionValues"] for add in adds] == [{"p": f"p {i}"} for i in range(3)]
    assert listed(storage) == sorted(f"{storage.root}/{add['path'].replace('%20', ' ')}" for add in adds)
    assert {info.size for info in storage.open().get_file_info(listed(storage))} == {add["size"] for add in adds}
    assert max(add["size"] for add in adds) > 10 << 20  # pyarrow sends parts of 10 MiB
    assert uploads(storage, server) == 0


def test_failed_tasks_leave_nothing_on_s3(server):
    """Files that are done, one that is being uploaded in parts, and the upload itself: all are gone after an error."""
    storage = Storage.of("s3a://lake/tables/failed", server.get)
    for limits in ({"max_rows": 5_000}, {"max_bytes": 1 << 30}):
        plan = tasks.plan("", {("v",)}, location=storage, compression="none", **limits)
        rows = (batch.select(["v"]) for batch in batches(25_000, error=ValueError("no more")))
        with pytest.raises(ValueError, match="no more"):
            list(write_files(plan, rows))
        assert listed(storage) == []
        assert uploads(storage, server) == 0


def test_a_bucket_that_is_not_there(server):
    """What no retry can mend is one error with the location and the server's reason."""
    storage = Storage.of("s3a://nowhere/t", server.get)
    with pytest.raises(TableError, match="cannot write to s3://nowhere/t: NO_SUCH_BUCKET: check the bucket"):
        tasks.run(tasks.plan("", {("v",)}, location=storage), [batch.select(["v"]) for batch in batches(1000)])


HADOOP = "3.5.0"  # of PySpark 4.2
AWS = "2.35.4"  # of hadoop-aws, which asks for a bundle of 600 MB: these modules of it are what S3A needs
PACKAGES = [
    f"org.apache.hadoop:hadoop-aws:{HADOOP}",
    *(f"software.amazon.awssdk:{module}:{AWS}" for module in ("s3", "s3-transfer-manager", "sts")),
]
SESSION = """
import json, sys
from pyspark.sql import SparkSession, functions as F
import delta_variant as dv
from delta_variant.errors import DeltaVariantError

settings, packages, table = json.loads(sys.argv[1])
builder = (
    SparkSession.builder.master("local[2]").config("spark.driver.memory", "1g").config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2").config("spark.databricks.delta.snapshotPartitions", "2")
    .config("spark.jars.packages", ",".join(packages)).config("spark.jars.excludes", "software.amazon.awssdk:bundle")
)
endpoint = {key: value for key, value in settings.items() if not key.endswith(".key")}
for key, value in endpoint.items():
    builder = builder.config(f"spark.hadoop.{key}", value)
spark = dv.configure(builder).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
keys = {key: value for key, value in settings.items() if key not in endpoint}

def rows(start, count):
    return spark.range(start, start + count, 1, 2).selectExpr(
        "id", "id % 2 p", "parse_json(concat('{\\"n\\":', id, '}')) v", "named_struct('w', parse_json(cast(id as string))) s"
    )

def read():
    frame = spark.read.format("delta").options(**keys).load(table)
    return sorted(tuple(row) for row in frame.selectExpr("id", "p", "v:n::bigint", "s.w::bigint").collect())

def same(expected):
    assert read() == sorted((i, i % 2, i, i) for i in expected), read()

done = []
try:
    dv.write(rows(0, 10), table, storage_options=keys, partition_by=["p"])
    done.append(dv.write(rows(10, 10), table, storage_options=keys).version)
    same(range(20))
    done.append(dv.write(rows(0, 5), table, "overwrite", storage_options=keys).version)
    same(range(5))
    try:
        dv.write(rows(5, 5).withColumn("v", F.expr("if(id > 7, raise_error('no more'), v)")), table, storage_options=keys)
    except Exception as error:
        done.append("no more" in str(error))
    same(range(5))
    try:
        dv.write(rows(0, 1), "s3a://nowhere/t", storage_options=keys)
    except DeltaVariantError as error:
        done.append(type(error).__name__)
finally:
    spark.stop()
print("DONE", json.dumps(done))
"""


@pytest.mark.slow
@pytest.mark.spark
def test_tables_on_s3(server):
    """Files by pyarrow and commits by Delta, with keys in `storage_options` only: write, append, overwrite, a failing task."""
    table = "s3a://lake/tables/spark"
    arguments = json.dumps([server, PACKAGES, table])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", SESSION, arguments], env=environment, text=True, capture_output=True, check=False
    )
    assert done.stdout.splitlines()[-1:] == ['DONE [1, 2, true, "TableError"]'], done.stderr[-5000:]
    assert "the-secret" not in done.stdout + done.stderr
    storage = Storage.of(table, server.get)
    files = listed(storage)
    logs = [path for path in files if path.endswith(".json")]
    actions = [json.loads(line) for path in logs for line in storage.open().open_input_stream(path).read().splitlines()]
    added = {f"{storage.root}/{action['add']['path']}" for action in actions if "add" in action}
    assert added <= set(files)
    assert len(added) == 6
    assert uploads(storage, server) == 0
