"""Hadoop's settings of storage: which options they give pyarrow, and which settings are refused."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from xml.etree import ElementTree as ET

import pyspark
import pytest
from pyarrow import fs

from delta_variant.errors import TableError, UnsupportedFeatureError
from delta_variant.storage import Storage, azure, gcs, s3
from tests.s3 import KEYS

S3A, SDK = "org.apache.hadoop.fs.s3a.", "software.amazon.awssdk.auth.credentials."
PAIR = {"access_key": "the-key", "secret_key": "the-secret"}
MINIO = {"endpoint_override": "minio:9000", "scheme": "https", "force_virtual_addressing": True, "region": "us-east-2"}
INSTANCE, ROLE = f"{S3A}auth.IAMInstanceCredentialsProvider", f"{S3A}auth.AssumedRoleCredentialProvider"
SIMPLE = f"{S3A}SimpleAWSCredentialsProvider"
# Settings of S3A without their prefix, and the options of pyarrow, besides the region that S3A falls back to.
SETTINGS = {
    "nothing": ({}, {}),
    "keys": ({}, PAIR),
    "session token": ({"session.token": "t"}, {**PAIR, "session_token": "t"}),
    "half a key": ({"secret.key": ""}, {}),
    "per bucket": ({"bucket.lake.access.key": "other", "bucket.else.secret.key": "x"}, {**PAIR, "access_key": "other"}),
    "per bucket, empty": ({"endpoint": "minio:9000", "bucket.lake.endpoint": ""}, PAIR),
    "endpoint": ({"endpoint": "minio:9000"}, {**PAIR, **MINIO}),
    "endpoint without TLS": (
        {"endpoint": "minio:9000", "connection.ssl.enabled": "false", "path.style.access": "true"},
        {**PAIR, **MINIO, "scheme": "http", "force_virtual_addressing": False},
    ),
    "endpoint with a scheme": (
        {"endpoint": "http://h:1", "endpoint.region": "eu-west-3", "path.style.access": "TRUE"},
        {**PAIR, "endpoint_override": "h:1", "scheme": "http", "force_virtual_addressing": False, "region": "eu-west-3"},
    ),
    "AWS by region": (
        {"endpoint": "s3.eu-central-1.amazonaws.com"},
        {**PAIR, **MINIO, "endpoint_override": "s3.eu-central-1.amazonaws.com", "region": "eu-central-1"},
    ),
    "AWS, central": ({"endpoint": "s3.amazonaws.com", "endpoint.region": "ap-south-1"}, {**PAIR, "region": "ap-south-1"}),
    "region of the SDK": ({"endpoint.region": ""}, {**PAIR, "region": None}),
    "proxy": (
        {"proxy.host": "p", "proxy.port": "3128", "proxy.username": "me", "proxy.password": "the-secret"},
        {**PAIR, "proxy_options": {"scheme": "http", "host": "p", "port": 3128, "username": "me", "password": "the-secret"}},
    ),
    "proxy with TLS": (
        {"proxy.host": "p", "proxy.ssl.enabled": "true"},
        {**PAIR, "proxy_options": {"scheme": "https", "host": "p", "port": 443}},
    ),
    "patience": (
        {"connection.establish.timeout": "30s", "connection.timeout": "2500", "attempts.maximum": "5"},
        {**PAIR, "connect_timeout": 30, "request_timeout": 2.5, "attempts": 5},
    ),
    "ACL": (
        {"acl.default": "BucketOwnerFullControl"},
        {**PAIR, "default_metadata": {"ACL": "bucket-owner-full-control", "Content-Type": "application/octet-stream"}},
    ),
    "anonymous": ({"aws.credentials.provider": f"{S3A}AnonymousAWSCredentialsProvider"}, {"anonymous": True}),
    "keys without their token": (
        {"session.token": "t", "aws.credentials.provider": SIMPLE}, PAIR,
    ),
    "keys before the instance": ({"aws.credentials.provider": f"{SIMPLE}, {INSTANCE}"}, PAIR),
    "no keys before anonymous access": (
        {"access.key": "", "aws.credentials.provider": f"{SIMPLE},{S3A}AnonymousAWSCredentialsProvider"},
        {"anonymous": True},
    ),
    "instance": ({"aws.credentials.provider": INSTANCE}, {}),
    "environment": ({"aws.credentials.provider": f"\n {SDK}EnvironmentVariableCredentialsProvider\n"}, {"environment": True}),
    "role": (
        {
            "aws.credentials.provider": ROLE, "assumed.role.arn": "arn:aws:iam::1:role/r",
            "assumed.role.session.name": "me", "assumed.role.session.duration": "30m",
            "assumed.role.credentials.provider": f"{SDK}EnvironmentVariableCredentialsProvider,{INSTANCE}",
        },
        {"role_arn": "arn:aws:iam::1:role/r", "session_name": "me", "load_frequency": 1800},
    ),
    "what tunes S3A alone": (
        {"threads.max": "9", "committer.name": "magic", "fast.upload.buffer": "bytebuffer", "audit.enabled": "false"}, PAIR,
    ),
}  # fmt: skip


def of(settings, location="s3a://lake/t", **more):
    """The storage of a location, with all settings listed."""
    return Storage.of(location, settings.get, settings, **more)


def s3a(settings):
    """Settings of S3A with keys, under their full names."""
    return {f"fs.s3a.{name}": value for name, value in settings.items()}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_s3(name, monkeypatch):
    """Settings of S3A become the options by which pyarrow does the same, and pyarrow accepts them."""
    settings, options = SETTINGS[name]
    storage = of({**(KEYS if name != "nothing" else {}), **s3a(settings)})
    expected = {"region": "us-east-2", **options}
    assert storage.options == {key: value for key, value in expected.items() if value is not None}
    assert pickle.loads(pickle.dumps(storage)) == storage
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    if name != "role":  # which asks AWS for the role
        assert isinstance(storage.open(), fs.S3FileSystem)


def test_keys_of_the_environment(monkeypatch):
    """The provider of the environment takes keys from the environment of the task, and raises an error if there are none."""
    storage = of({"fs.s3a.aws.credentials.provider": f"{SDK}EnvironmentVariableCredentialsProvider"})
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(TableError, match=r"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set where the tasks run"):
        storage.open()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-there")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "too")
    assert s3.arguments(storage.options) == {"region": "us-east-2", "access_key": "from-there", "secret_key": "too"}


# The region of an endpoint: what AwsHostNameUtils of the AWS SDK 2.35.4, which S3A asks, gave for each of them.
REGIONS = {
    "s3.eu-west-1.amazonaws.com": "eu-west-1", "https://s3.eu-west-1.amazonaws.com": "eu-west-1",
    "s3-eu-west-1.amazonaws.com": "eu-west-1", "s3.dualstack.eu-west-1.amazonaws.com": "eu-west-1",
    "s3-fips.us-gov-west-1.amazonaws.com": "us-gov-west-1", "s3-fips.dualstack.us-east-1.amazonaws.com": "us-east-1",
    "s3.cn-north-1.amazonaws.com.cn": "cn-north-1", "https://s3express-use1-az4.us-east-1.amazonaws.com": "us-east-1",
    "s3.us-iso-east-1.c2s.ic.gov": "us-iso-east-1", "s3.fr-par.scw.cloud": "fr-par",
    "s3.eusc-de-east-1.amazonaws.eu": "eusc-de-east-1",
    "minio:9000": None, "http://s3.minio.local": None, "storage.googleapis.com": None, "127.0.0.1:9000": None,
}  # fmt: skip


def test_region():
    """The region comes from the setting, the endpoint or AWS, in this order, and is us-east-2 otherwise, as with S3A."""
    assert {endpoint: s3.region_of(endpoint) for endpoint in REGIONS} == REGIONS
    assert s3.region_of("https://bucket.vpce-1a-2b.s3.us-east-1.vpce.amazonaws.com") == "us-east-1"  # S3A's own pattern
    asked: list[str] = []

    def bucket_region():
        asked.append("bucket")
        return "eu-north-1"

    def region(settings):
        return of(s3a(settings), bucket_region=bucket_region).options.get("region")

    assert [region({}), region({"endpoint": "s3.amazonaws.com", "endpoint.region": ""})] == ["eu-north-1", "eu-north-1"]
    assert asked == ["bucket", "bucket"]
    assert region({"cross.region.access.enabled": "false"}) == "us-east-2"
    assert region({"endpoint": "minio:9000"}) == "us-east-2"
    assert region({"endpoint": "s3.eu-west-1.amazonaws.com", "endpoint.region": "eu-west-2"}) == "eu-west-2"
    assert region({"endpoint.region": ""}) is None
    assert asked == ["bucket", "bucket"]


HOST = "acct.dfs.core.windows.net"
LOCATIONS = {s3: "s3a://lake/t", gcs: "gs://lake/t", azure: f"abfss://box@{HOST}/t"}
PREFIXES = {s3: "fs.s3a.", gcs: "fs.gs.", azure: "fs.azure."}
REFUSED = [(module, name, *entry) for module in LOCATIONS for name, entry in module.REFUSED.items()]


@pytest.mark.parametrize(("module", "name", "harmless", "advice"), REFUSED, ids=lambda value: str(value)[:60])
def test_what_is_refused(module, name, harmless, advice):
    """A setting that pyarrow cannot follow is refused by its full name, with the way out and without its value."""
    location, key = LOCATIONS[module], PREFIXES[module] + name
    particular = {s3: f"fs.s3a.bucket.lake.{name}", gcs: f"google.cloud.{name}", azure: f"{key}.{HOST}"}[module]
    for given in (key, particular):
        with pytest.raises(
            UnsupportedFeatureError, match=rf"^{given} is set for {location}, .* follow it: {advice}, or"
        ) as error:
            Storage.of(location, {given: "the-value"}.get)
        assert "the-value" not in str(error.value)
    for value in ("", harmless, harmless.upper()):
        assert of({key: value}, location).options == of({}, location).options


@pytest.mark.parametrize(
    ("location", "settings", "message"),
    [
        ("s3a://b/t", {"fs.s3a.future.encryption.mode": "x"}, r"^fs\.s3a\.future\.encryption\.mode is set .*: unset it"),
        ("s3a://b/t", {"fs.s3a.bucket.b.some.token": "x"}, r"^fs\.s3a\.bucket\.b\.some\.token is set"),
        ("s3a://b/t", {"fs.s3a.aws.credentials.provider": "com.example.VaultProvider"}, r"= com\.example\.VaultProvider is"),
        ("s3a://b/t", {"fs.s3a.aws.credentials.provider": "x.SimpleAWSCredentialsProvider"}, "use keys, the environment"),
        ("s3a://b/t", {"fs.s3a.aws.credentials.provider": SIMPLE}, "set fs.s3a.access.key and"),
        (
            "s3a://b/t", {**KEYS, "fs.s3a.aws.credentials.provider": f"{INSTANCE},{SIMPLE}"},
            "put keys, a role or anonymous access before",
        ),
        (
            "s3a://b/t", {"fs.s3a.aws.credentials.provider": ROLE, **KEYS},
            r"= org\S*\.AssumedRoleCredentialProvider is .*: set fs\.s3a\.assumed\.role\.credentials\.provider to",
        ),
        (
            "s3a://b/t",
            {
                "fs.s3a.aws.credentials.provider": ROLE, "fs.s3a.assumed.role.arn": "arn:x",
                "fs.s3a.assumed.role.credentials.provider": INSTANCE, "fs.s3a.assumed.role.policy": "{}",
            },
            "^fs.s3a.assumed.role.policy is set .*: attach",
        ),
        ("s3a://b/t", {"fs.s3a.acl.default": "Everybody"}, "default = Everybody is set .* use one of Private, PublicRead"),
        ("s3a://b/t", {"hadoop.security.credential.provider.path": "jceks://file/x"}, "^hadoop.security.credential"),
        ("s3://b/t", {"fs.s3.impl": "com.amazon.ws.emr.EmrFileSystem"}, r"^fs\.s3\.impl = com\.amazon\S* is .*S3AFileSystem"),
        ("s3a://the-key:the-secret@b/t", {}, "^the location has keys in it: set fs.s3a.access.key"),
        ("gs://b/t", {"fs.gs.auth.type": "USER_CREDENTIALS"}, "= USER_CREDENTIALS is .*GOOGLE_APPLICATION_CREDENTIALS"),
        ("gs://b/t", {"fs.gs.auth.service.account.json.keyfile": "/k"}, "^fs.gs.auth.service.account.json.keyfile is set"),
        ("gs://b/t", {"google.cloud.auth.service.account.enable": "false"}, "^google.cloud.auth.service.account.enable is set"),
        ("gs://b/t", {"fs.gs.auth.impersonation.service.account.for.user.me": "x"}, "for.user.me is set"),
        (f"abfss://c@{HOST}/t", {f"fs.azure.account.auth.type.{HOST}": "Custom"}, rf"auth\.type\.{HOST} = Custom is set"),
        (f"abfss://c@{HOST}/t", {"fs.azure.account.auth.type": "SAS"}, "= SAS is set"),
        (
            f"abfss://c@{HOST}/t",
            {"fs.azure.account.auth.type": "OAuth", "fs.azure.account.oauth.provider.type": "com.example.Tokens"},
            r"provider\.type = com\.example\.Tokens is set",
        ),
        (
            f"abfss://c@{HOST}/t",
            {
                "fs.azure.account.oauth2.client.endpoint": "https://login.chinacloudapi.cn/t/oauth2/token",
                "fs.azure.account.oauth2.client.id": "i", "fs.azure.account.oauth2.client.secret": "s",
            },
            r"^fs\.azure\.account\.oauth2\.client\.endpoint is set .*: use login\.microsoftonline\.com",
        ),
    ],
)  # fmt: skip
def test_what_is_refused_for_its_value_or_its_sound(location, settings, message):
    """Providers and values that pyarrow cannot replace are refused, and unknown settings that sound like security."""
    with pytest.raises(UnsupportedFeatureError, match=message) as error:
        of(settings, location)
    assert not any(secret in str(error.value) for secret in ("the-key", "the-secret"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"connection.timeout": "soon"}, "connection.timeout, .* not a duration"),
        ({"attempts.maximum": "5s"}, "attempts.maximum, .* not an integer"),
    ],
)
def test_numbers(settings, message):
    """A value that is not a number or a duration is an error that names the setting."""
    with pytest.raises(TableError, match=message):
        of(s3a(settings))


def test_defaults_of_hadoop():
    """Hadoop's defaults are not refused, and settings of other buckets and accounts are ignored."""
    (jar,) = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
    properties = ET.fromstring(zipfile.ZipFile(jar).read("core-default.xml")).iter("property")
    settings = {str(item.findtext("name")): item.findtext("value") or "" for item in properties}
    assert "fs.s3a.aws.credentials.provider" in settings
    patience = {"connect_timeout": 30, "request_timeout": 200, "attempts": 5}
    others = {
        "fs.s3a.bucket.other.encryption.algorithm": "SSE-KMS", "fs.s3a.bucket.lake.house.secret.key": "x",
        "fs.azure.account.key.other.dfs.core.windows.net": "x", f"fs.azure.sas.fixed.token.else.{HOST}": "x",
    }  # fmt: skip
    assert [of({**settings, **others}, location).options for location in LOCATIONS.values()] == [
        {"region": "us-east-2", **patience}, {}, {"account_name": "acct"},
    ]  # fmt: skip


OAUTH = {"id": "i", "secret": "s", "endpoint": "https://login.microsoftonline.com/tenant/oauth2/token"}
CLIENT = {f"account.oauth2.client.{key}": value for key, value in OAUTH.items()}
MANAGED = {"account.auth.type": "OAuth", "account.oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2.MsiTokenProvider"}
AZURE = {
    "key": ({"account.key": "a2V5", "sas.fixed.token": "sas"}, {"account_key": "a2V5"}),
    "key of the account": ({"account.key": "no", f"account.key.{HOST}": "a2V5"}, {"account_key": "a2V5"}),
    "token": ({"sas.fixed.token": "?sas"}, {"sas_token": "sas"}),
    "token, said": ({"account.auth.type": "SAS", "account.key": "no", "sas.fixed.token": "sas"}, {"sas_token": "sas"}),
    "token of the container": ({"sas.fixed.token": "no", f"sas.fixed.token.box.{HOST}": "sas"}, {"sas_token": "sas"}),
    "client": (CLIENT, {"client_id": "i", "client_secret": "s", "tenant_id": "tenant"}),
    "client, said": (
        {**CLIENT, "account.auth.type": "oauth", "account.key": "no"},
        {"client_id": "i", "client_secret": "s", "tenant_id": "tenant"},
    ),
    "managed identity": ({**MANAGED, **CLIENT}, {"client_id": "i"}),
    "managed identity of the machine": (MANAGED, {}),
}


@pytest.mark.parametrize("name", AZURE)
def test_settings_of_azure(name):
    """The identity is the one that ABFS would take; the setting of the container goes before the account's and the general."""
    settings, options = AZURE[name]
    storage = of({f"fs.azure.{key}": value for key, value in settings.items()}, LOCATIONS[azure])
    assert storage.options == {"account_name": "acct", **options}


def test_settings_of_other_clouds():
    """Accounts of other clouds keep their hosts; the endpoint and the identity of GCS reach pyarrow."""
    assert of({}, "abfss://box@acct.dfs.core.usgovcloudapi.net/t").options == {
        "account_name": "acct",
        "dfs_storage_authority": ".dfs.core.usgovcloudapi.net",
        "blob_storage_authority": ".blob.core.usgovcloudapi.net",
    }
    settings = {"fs.gs.storage.root.url": "http://localhost:4443", "fs.gs.auth.type": "UNAUTHENTICATED"}
    options = {"anonymous": True, "endpoint_override": "localhost:4443", "scheme": "http"}
    assert of(settings, "gs://b/t").options == options
    settings = {"fs.gs.auth.type": "APPLICATION_DEFAULT", "fs.gs.auth.impersonation.service.account": "other@x"}
    assert of(settings, "gs://b/t").options == {"target_service_account": "other@x"}


def test_data_files():
    """The path of an Add action, relative or a URI, percent-encoded, is the file that pyarrow's file system opens."""
    local, s3a = Storage.of("/data/t"), Storage.of("s3a://lake/t", {"fs.s3a.endpoint": "http://localhost:1"}.get)
    assert local.file("p=a%20b/f.parquet") == "/data/t/p=a b/f.parquet"
    assert local.file("file:/data/other%25/f.parquet") == "/data/other%/f.parquet"
    assert local.file("file:///data/other%25/f.parquet") == "/data/other%/f.parquet"
    assert s3a.file("f.parquet") == "lake/t/f.parquet"
    assert s3a.file("s3a://lake/other/f%20g.parquet") == "lake/other/f g.parquet"
    assert s3a.file("/other/f%20g.parquet") == "lake/other/f g.parquet"
    with pytest.raises(TableError, match="another storage system"):
        local.file("s3a://lake/f.parquet")


def test_names_of_one_data_file():
    """All absolute names of a file are one, as Delta writes them in other actions than others; relative names stay."""
    local, s3a = Storage.of("/data/t"), Storage.of("s3a://lake/t", {}.get, {})
    assert len({local.canonical(path) for path in ("/d/a%20b", "file:/d/a%20b", "file:///d/a b")}) == 1
    assert len({s3a.canonical(path) for path in ("/d/f", "s3a://lake/d/f", "s3://lake/d/f")}) == 1
    assert local.canonical("s3a://lake/f") == "s3a://lake/f"
    assert local.canonical("p=a%20b/f.parquet") == "p=a%20b/f.parquet"
