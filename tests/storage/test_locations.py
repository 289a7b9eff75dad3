"""Storage: locations, secrets, and writing to a local S3 server. test_settings tests the settings."""

from __future__ import annotations

import json
import os
import pickle
import threading
import time

import pyarrow as pa
import pytest
from pyarrow import fs

import delta_variant as dv
from delta_variant import hadoop, jvm
from delta_variant.binary import parse_json
from delta_variant.errors import TableError, UnsupportedFeatureError
from delta_variant.storage import Storage
from delta_variant.writer.task import write_files
from tests import tasks
from tests.s3 import KEYS, LOCAL
from tests.support import collected

pytestmark = pytest.mark.interpreted


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


@pytest.fixture
def keys(spark, server):
    """The keys of the server, for `storage_options`; the session has all other settings of it."""
    settings = spark._jsc.hadoopConfiguration()
    endpoint = {key: value for key, value in server.items() if not key.endswith(".key")}
    for key, value in endpoint.items():
        settings.set(key, value)
    yield {key: value for key, value in server.items() if key not in endpoint}
    for key in endpoint:
        settings.unset(key)


def rows(spark, start: int, count: int):
    return spark.range(start, start + count, 1, 2).selectExpr(
        "id", "id % 2 p", "parse_json(concat('{\"n\":', id, '}')) v", "named_struct('w', parse_json(cast(id as string))) s"
    )


def ids(spark, table: str, keys: dict[str, str]) -> list[int]:
    """The ids of the table's rows, whose other columns are what `rows` makes of them."""
    frame = spark.read.format("delta").options(**keys).load(table)
    found = sorted(map(tuple, collected(frame.selectExpr("id", "p", "v:n::bigint", "s.w::bigint"))))
    assert found == [(i, i % 2, i, i) for i, *_ in found]
    return [i for i, *_ in found]


@pytest.mark.spark
def test_tables_on_s3(spark, server, keys):
    """A table on S3 is written, appended to and overwritten with keys in `storage_options` only, and survives a failing task.

    Settings that cannot be followed are refused.
    """
    table = "s3a://lake/tables/spark"
    dv.write(rows(spark, 0, 10), table, storage_options=keys, partition_by=["p"])
    assert dv.write(rows(spark, 10, 10), table, storage_options=keys).version == 1
    assert ids(spark, table, keys) == [*range(20)]
    assert dv.write(rows(spark, 0, 5), table, "overwrite", storage_options=keys).version == 2
    with pytest.raises(Exception, match="no more") as raised:
        dv.write(
            rows(spark, 5, 5).selectExpr("id", "p", "if(id > 7, raise_error('no more'), v) v", "s"), table, storage_options=keys
        )
    assert "the-secret" not in str(raised.value)
    assert ids(spark, table, keys) == [*range(5)]
    with pytest.raises(TableError, match="nowhere"):
        dv.write(rows(spark, 0, 1), "s3a://nowhere/t", storage_options=keys)
    with pytest.raises(UnsupportedFeatureError, match=r"fs\.s3a\.encryption\.algorithm"):
        dv.write(rows(spark, 0, 1), table, storage_options={**keys, "fs.s3a.encryption.algorithm": "AES256"})

    storage = Storage.of(table, server.get)
    files = listed(storage)
    logs = [path for path in files if path.endswith(".json")]
    actions = [json.loads(line) for path in logs for line in storage.open().open_input_stream(path).read().splitlines()]
    added = {f"{storage.root}/{action['add']['path']}" for action in actions if "add" in action}
    assert added <= set(files)
    assert len(added) == 6
    assert uploads(storage, server) == 0


@pytest.mark.spark
def test_files_on_s3_are_ingested_and_converted(spark, keys):
    """JSON and Parquet files of a bucket become tables there, each file once, with keys in `storage_options` only."""
    texts, table = "s3a://lake/texts", "s3a://lake/tables/json"
    lines = spark.range(50).selectExpr("concat('{\"n\":', id, '}') value")
    lines.coalesce(2).write.options(**keys).option("compression", "gzip").text(texts)
    assert dv.ingest(spark, texts, table, path_column="file", storage_options=keys).rows == 50
    assert dv.ingest(spark, texts + "/part*", table, path_column="file", storage_options=keys).skipped == 2
    loaded = spark.read.format("delta").options(**keys).load(table)
    assert collected(loaded.selectExpr("sum(v:n::int)", "count_if(file LIKE 's3a://lake/%.gz')")) == [(1225, 50)]

    files, table = "s3a://lake/files", "s3a://lake/tables/converted"
    variants = spark.range(50).selectExpr("id % 2 p", "parse_json(concat('{\"n\":', id, '}')) v")
    variants.write.options(**keys).partitionBy("p").parquet(files)
    assert dv.convert(spark, files, table, storage_options=keys).rows == 50
    assert dv.convert(spark, files, table, storage_options=keys).skipped > 1
    loaded = spark.read.format("delta").options(**keys).load(table)
    assert collected(loaded.where("p = 1").selectExpr("sum(v:n::int)")) == [(625,)]


@pytest.mark.spark
def test_keys_in_a_credential_store(spark, keys, tmp_path):
    """Keys are found in a credential store, which Hadoop alone knows how to read, and the region as S3A finds it."""
    table, store = "s3a://lake/tables/stored", f"localjceks://file{tmp_path}/keys.jceks"
    conf, gateway = spark._jsc.hadoopConfiguration(), spark.sparkContext._gateway
    conf.set("hadoop.security.credential.provider.path", store)
    (alias,) = spark._jvm.org.apache.hadoop.security.alias.CredentialProviderFactory.getProviders(conf)
    conf.unset("hadoop.security.credential.provider.path")
    for key, value in keys.items():
        letters = gateway.new_array(spark._jvm.char, len(value))
        for i, letter in enumerate(value):
            letters[i] = letter
        alias.createCredentialEntry(key.replace("s3a.", "s3a.bucket.lake."), letters)
    alias.flush()
    of_bucket = "fs.s3a.bucket.lake.security.credential.provider.path"
    stored = {of_bucket.replace(".bucket.lake", ""): store}
    assert dv.write(rows(spark, 0, 3), table, storage_options=stored).rows == 3
    conf.set(of_bucket, store)
    try:
        path = spark._jvm.org.apache.hadoop.fs.Path(table)
        found = hadoop.storage_of(spark, path, conf)
        assert {key for key, value in found.options.items() if value in keys.values()} == {"access_key", "secret_key"}
        assert jvm.construct(spark, "HadoopSettings", path, conf).region().get() == "eu-north-1"
        analyzed = dv.VariantTable.forPath(spark, table).analyze(paths=["v:other"])
        assert (analyzed.bytes_read > 0, analyzed.failed) == (True, {})
    finally:
        conf.unset(of_bucket)
