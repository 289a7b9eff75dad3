"""Storage: locations, secrets, and writing to a local S3 server. test_storage_settings tests the settings."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import time

import pyarrow as pa
import pytest
from pyarrow import fs

from delta_variant.binary import parse_json
from delta_variant.errors import TableError, UnsupportedFeatureError
from delta_variant.storage import Storage
from delta_variant.writer.task import write_files
from tests import tasks

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


def test_secrets_are_not_shown():
    """The text of a storage, in a plan and in an error too, has no secrets; the storage survives pickling."""
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


# ------------------------------------------------------------------------------------------------------- a local S3 server


@pytest.fixture(scope="module")
def server():
    """The settings of an S3 server that has the bucket `lake`, in eu-north-1."""
    from moto.server import ThreadedMotoServer

    running = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    settings = {**LOCAL, "fs.s3a.endpoint": f"http://{host}:{port}"}
    north = {**settings, "fs.s3a.endpoint.region": "eu-north-1"}
    files = fs.S3FileSystem(**Storage.of("s3a://lake", north.get).options, allow_bucket_creation=True)
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
        texts = [f'{{"n": {i}, "t": "{os.urandom(512).hex()}"}}' for i in range(start, start + 1000)]
        partition = pa.array([f"p {start % 3000 // 1000}"] * 1000)
        yield pa.RecordBatch.from_arrays([parse_json(pa.array(texts)), partition], names=["v", "p"])
    if error:
        raise error


def test_files_on_s3(server):
    """Files of one part and of several are objects below the table's prefix, partitions included, and nothing else is there."""
    storage = Storage.of("s3a://lake/tables/one", server.get)
    plan = tasks.plan("", {("v",)}, location=storage, partition_by=("p",), compression="none")
    adds = tasks.run(plan, sorted(batches(36_000), key=lambda batch: batch["p"][0].as_py()))
    assert [add["partitionValues"] for add in adds] == [{"p": f"p {i}"} for i in range(3)]
    assert listed(storage) == sorted(f"{storage.root}/{add['path'].replace('%20', ' ')}" for add in adds)
    assert {info.size for info in storage.open().get_file_info(listed(storage))} == {add["size"] for add in adds}
    assert max(add["size"] for add in adds) > 10 << 20  # pyarrow sends parts of 10 MiB
    assert uploads(storage, server) == 0


def test_failed_tasks_leave_nothing_on_s3(server):
    """After an error, finished files, a file that is being uploaded in parts, and the upload itself are gone."""
    storage = Storage.of("s3a://lake/tables/failed", server.get)
    for limits in ({"max_rows": 5_000}, {"max_bytes": 1 << 30}):
        plan = tasks.plan("", {("v",)}, location=storage, compression="none", **limits)
        rows = (batch.select(["v"]) for batch in batches(25_000, error=ValueError("no more")))
        with pytest.raises(ValueError, match="no more"):
            write_files(plan, rows)
        assert listed(storage) == []
        assert uploads(storage, server) == 0


def test_a_bucket_that_is_not_there(server):
    """A bucket that does not exist is one error with the location and the server's reason."""
    storage = Storage.of("s3a://nowhere/t", server.get)
    with pytest.raises(TableError, match="cannot write to s3://nowhere/t: NO_SUCH_BUCKET: check the bucket"):
        tasks.run(tasks.plan("", {("v",)}, location=storage), [batch.select(["v"]) for batch in batches(1000)])


# ------------------------------------------------------------------------------------------------------- what is sent to it


class Wire:
    """The same server on another port, as an S3 endpoint and as an HTTP proxy; `seen` has every request that arrived."""

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import WSGIRequestHandler, make_server

        class Silent(WSGIRequestHandler):
            def log(self, *_):
                pass

        self.app = DomainDispatcherApplication(create_backend_app)
        self.seen: list[dict[str, str]] = []
        self.answer = None
        """Answers requests in place of the server, if set."""
        self.server = make_server("127.0.0.1", 0, self.request, threaded=True, request_handler=Silent)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def request(self, environ, respond):
        headers = {name[5:].replace("_", "-").lower(): text for name, text in environ.items() if name.startswith("HTTP_")}
        self.seen.append({"method": environ["REQUEST_METHOD"], "url": environ["RAW_URI"], **headers})
        return (self.answer or self.app)(environ, respond)

    def write(self, table="s3a://lake/tables/wire", **settings):
        """A file written with settings of S3A."""
        given = {f"fs.s3a.{name.replace('_', '.')}": value for name, value in settings.items()}
        storage = Storage.of(table, {**KEYS, "fs.s3a.path.style.access": "true", "fs.s3a.attempts.maximum": "1", **given}.get)
        self.seen.clear()
        plan = tasks.plan("", {("v",)}, location=storage)
        return storage, tasks.run(plan, [batch.select(["v"]) for batch in batches(1000)])


@pytest.fixture(scope="module")
def wire(server):
    running = Wire()
    yield running
    running.server.shutdown()


@pytest.fixture
def endpoint(wire):
    yield f"http://127.0.0.1:{wire.server.server_port}"
    wire.answer = None


def test_ownership_and_identity_on_the_wire(wire, endpoint):
    """The ACL goes with every object, and the region and the session token are those of the settings."""
    storage, adds = wire.write(
        endpoint=endpoint, acl_default="BucketOwnerFullControl", endpoint_region="eu-west-3", session_token="the-token"
    )
    begun = [request for request in wire.seen if request["url"].endswith("?uploads")]
    assert len(begun) == len(adds) == 1
    assert begun[0]["x-amz-acl"] == "bucket-owner-full-control"
    assert {request["x-amz-security-token"] for request in wire.seen} == {"the-token"}
    assert all("Credential=the-key/" in request["authorization"] for request in wire.seen)
    assert all("/eu-west-3/s3/aws4_request" in request["authorization"] for request in wire.seen)
    assert storage.open().get_file_info(f"{storage.root}/{adds[0]['path']}").size == adds[0]["size"]


def test_a_proxy(wire, endpoint):
    """With a proxy every request goes to it, for the host of the endpoint, with the user's name and password."""
    wire.write(
        endpoint="http://s3.eu-west-1.amazonaws.com", path_style_access="false", proxy_host="127.0.0.1",
        proxy_port=endpoint.rpartition(":")[2], proxy_username="me", proxy_password="secret",
    )  # fmt: skip
    assert len(wire.seen) >= 3
    assert {request["url"].partition("/tables")[0] for request in wire.seen} == {"http://lake.s3.eu-west-1.amazonaws.com"}
    assert {request["proxy-authorization"] for request in wire.seen} == {"Basic bWU6c2VjcmV0"}
    assert all("/eu-west-1/s3/aws4_request" in request["authorization"] for request in wire.seen)


def test_patience(wire, endpoint):
    """A request is tried as often as the setting says, and given up when the server is silent for as long as it says."""

    def busy(_, respond):
        respond("503 Service Unavailable", [("Content-Length", "0")])
        return [b""]

    def silent(environ, respond):
        time.sleep(2)
        return busy(environ, respond)

    wire.answer = busy
    with pytest.raises(OSError, match="503"):
        wire.write(endpoint=endpoint, attempts_maximum="2")
    assert [request["method"] for request in wire.seen].count("POST") == 2
    wire.answer = silent
    with pytest.raises(OSError, match="transferred the last 1 seconds"):
        wire.write(endpoint=endpoint, connection_timeout="1s")


def test_a_bucket_in_another_region(wire, endpoint):
    """If AWS answers that the bucket is in another region, the error names the setting to change."""

    def moved(_, respond):
        respond("301 Moved Permanently", [("Content-Length", "0"), ("x-amz-bucket-region", "eu-north-1")])
        return [b""]

    wire.answer = moved
    with pytest.raises(TableError, match=r"another region \(HTTP status 301\): set fs\.s3a\.endpoint\.region to it$"):
        wire.write(endpoint=endpoint, endpoint_region="us-east-1")


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
from delta_variant import hadoop
from delta_variant.errors import DeltaVariantError

settings, packages, table, store = json.loads(sys.argv[1])
builder = (
    SparkSession.builder.master("local[1]").config("spark.driver.memory", "1g").config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2").config("spark.databricks.delta.snapshotPartitions", "1")
    .config("spark.default.parallelism", "2")
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
    try:
        dv.write(rows(5, 5).withColumn("v", F.expr("if(id > 7, raise_error('no more'), v)")), table, storage_options=keys)
    except Exception as error:
        done.append("no more" in str(error))
    same(range(5))
    for target, options in ("s3a://nowhere/t", {}), (table, {"fs.s3a.encryption.algorithm": "AES256"}):
        try:
            dv.write(rows(0, 1), target, storage_options={**keys, **options})
        except DeltaVariantError as error:
            done.append(type(error).__name__)

    source = table.rpartition("/")[0] + "/texts"
    texts = spark.range(50).selectExpr("concat('{\\"n\\":', id, '}') value")
    texts.write.options(**keys).option("compression", "gzip").text(source)
    done.append(dv.ingest(spark, source, table + "-json", path_column="file", storage_options=keys).rows)
    done.append(dv.ingest(spark, source + "/part*", table + "-json", path_column="file", storage_options=keys).skipped)
    loaded = spark.read.format("delta").options(**keys).load(table + "-json")
    done.append([loaded.selectExpr("sum(v:n::int)").first()[0], loaded.where("file LIKE 's3a://lake/%.gz'").count()])

    variants = spark.range(50).selectExpr("id % 2 p", "parse_json(concat('{\\"n\\":', id, '}')) v")
    variants.write.options(**keys).partitionBy("p").parquet(table + "-files")
    done.append(dv.convert(spark, table + "-files", table + "-converted", storage_options=keys).rows)
    done.append(dv.convert(spark, table + "-files", table + "-converted", storage_options=keys).skipped > 1)
    loaded = spark.read.format("delta").options(**keys).load(table + "-converted")
    done.append(loaded.where("p = 1").selectExpr("sum(v:n::int)").first()[0])

    # Keys in a credential store, of which Hadoop alone knows how to read it.
    conf = spark._jsc.hadoopConfiguration()
    conf.set("hadoop.security.credential.provider.path", store)
    (alias,) = spark._jvm.org.apache.hadoop.security.alias.CredentialProviderFactory.getProviders(conf)
    for key, value in keys.items():
        letters = spark.sparkContext._gateway.new_array(spark._jvm.char, len(value))
        for i, letter in enumerate(value):
            letters[i] = letter
        alias.createCredentialEntry(key.replace("s3a.", "s3a.bucket.lake."), letters)
    alias.flush()
    conf.unset("hadoop.security.credential.provider.path")
    stored = {"fs.s3a.security.credential.provider.path": store}
    done.append(dv.write(rows(0, 3), table + "-stored", storage_options=stored).rows)
    path = spark._jvm.org.apache.hadoop.fs.Path(table)
    conf.set("fs.s3a.bucket.lake.security.credential.provider.path", store)
    found = hadoop.storage_of(spark, path, conf)
    done.append(sorted(key for key, value in found.options.items() if value in keys.values()))
    done.append(hadoop._bucket_region(path, conf))
    analyzed = dv.VariantTable.forPath(spark, table).analyze(paths=["v:other"])
    done.append([analyzed.bytes_read > 0, len(analyzed.failed)])
finally:
    spark.stop()
print("DONE", json.dumps(done))
"""

DONE = (
    'DONE [1, 2, true, "TableError", "UnsupportedFeatureError", 50, 2, [1225, 50], 50, true, 625, 3, '
    '["access_key", "secret_key"], "eu-north-1", [true, 0]]'
)


@pytest.mark.slow
@pytest.mark.spark
def test_tables_on_s3(jvm_environment, server, tmp_path):
    """A table on S3 is written, appended to and overwritten with keys in `storage_options` only, and survives a failing task;
    files on S3 are ingested and converted.

    Settings that cannot be followed are refused. Keys are found in a credential store too, and the region as S3A finds it.
    """
    table = "s3a://lake/tables/spark"
    arguments = json.dumps([server, PACKAGES, table, f"localjceks://file{tmp_path}/keys.jceks"])
    environment = {**jvm_environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", SESSION, arguments], env=environment, text=True, capture_output=True, check=False
    )
    assert done.stdout.splitlines()[-1:] == [DONE], done.stderr[-5000:]
    assert "the-secret" not in done.stdout + done.stderr
    storage = Storage.of(table, server.get)
    files = listed(storage)
    logs = [path for path in files if path.endswith(".json")]
    actions = [json.loads(line) for path in logs for line in storage.open().open_input_stream(path).read().splitlines()]
    added = {f"{storage.root}/{action['add']['path']}" for action in actions if "add" in action}
    assert added <= set(files)
    assert len(added) == 6
    assert uploads(storage, server) == 0
