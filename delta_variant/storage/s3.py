"""Hadoop's S3A → arguments of `pyarrow.fs.S3FileSystem`.

Source: the settings that S3A documents in Hadoop 3.5 (core-default.xml, `Constants`), of which `fs.s3a.bucket.<bucket>.*` goes
before `fs.s3a.*`. What pyarrow can do is passed on. What decides encryption, ownership, billing, credentials or the place of
the bytes, and pyarrow cannot do, is refused by its name, and so is a name that sounds like it and is not known here. Everything
else tunes S3A's own client (buffers, threads, listing, retries of its own, committers, checksums, logging), and data files are
not written by it.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyarrow import fs

from delta_variant.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delta_variant.storage.settings import Settings

FALLBACK_REGION = "us-east-2"
"""The region that S3A signs for where neither a setting nor the endpoint names one."""

_S3A, _SDK, _SDK_1 = "org.apache.hadoop.fs.s3a.", "software.amazon.awssdk.auth.credentials.", "com.amazonaws.auth."
_PROVIDERS = {
    f"{_S3A}TemporaryAWSCredentialsProvider": "temporary keys",
    f"{_S3A}SimpleAWSCredentialsProvider": "keys",
    f"{_S3A}AnonymousAWSCredentialsProvider": "anonymous",
    f"{_SDK}AnonymousCredentialsProvider": "anonymous",
    f"{_SDK_1}AnonymousAWSCredentials": "anonymous",
    f"{_SDK}EnvironmentVariableCredentialsProvider": "environment",
    f"{_SDK_1}EnvironmentVariableCredentialsProvider": "environment",
    f"{_S3A}auth.IAMInstanceCredentialsProvider": "chain",
    f"{_SDK}InstanceProfileCredentialsProvider": "chain",
    f"{_SDK}ContainerCredentialsProvider": "chain",
    f"{_SDK}WebIdentityTokenFileCredentialsProvider": "chain",
    f"{_SDK}DefaultCredentialsProvider": "chain",
    f"{_SDK_1}EC2ContainerCredentialsProviderWrapper": "chain",
    f"{_SDK_1}InstanceProfileCredentialsProvider": "chain",
    f"{_S3A}auth.AssumedRoleCredentialProvider": "role",
}
_DEFAULT_PROVIDERS = ("temporary keys", "keys", "environment", "chain")
# The default chain of AWS stands for these two in this order: it asks the environment first.
_CHAINS = (["environment", "chain"], ["chain"])
_OTHER_CREDENTIALS = (
    "use keys, the environment, the credentials of the instance or the container, a role assumed with those, or anonymous "
    "access"
)
_ACLS = {
    "Private": "private", "PublicRead": "public-read", "PublicReadWrite": "public-read-write",
    "AuthenticatedRead": "authenticated-read", "AwsExecRead": "aws-exec-read", "BucketOwnerRead": "bucket-owner-read",
    "BucketOwnerFullControl": "bucket-owner-full-control", "LogDeliveryWrite": "log-delivery-write",
}  # fmt: skip

HONOURED = (
    "access.key", "secret.key", "session.token", "aws.credentials.provider", "assumed.role.arn", "assumed.role.external.id",
    "assumed.role.session.name", "assumed.role.session.duration", "assumed.role.credentials.provider", "endpoint",
    "endpoint.region", "cross.region.access.enabled", "path.style.access", "connection.ssl.enabled", "acl.default",
    "proxy.host", "proxy.port", "proxy.username", "proxy.password", "proxy.ssl.enabled", "connection.establish.timeout",
    "connection.timeout", "attempts.maximum",
)  # fmt: skip
_ENCRYPTION = "unset it and make the encryption the default of the bucket"
_SIGNING = "leave signing to the AWS SDK"
_KEYS_ELSEWHERE = "give the keys in another way, such as fs.s3a.access.key and fs.s3a.secret.key"
_STORE = "give the keys in settings"
_NTLM = "use a proxy without NTLM"
# name: the value that changes nothing, and the way out
REFUSED = {
    "encryption.algorithm": ("", _ENCRYPTION),
    "encryption.key": ("", _ENCRYPTION),
    "encryption.context": ("", _ENCRYPTION),
    "encryption.cse.kms.region": ("", _ENCRYPTION),
    "encryption.cse.custom.keyring.class.name": ("", _ENCRYPTION),
    "encryption.cse.v1.compatibility.enabled": ("false", _ENCRYPTION),
    "server-side-encryption-algorithm": ("", _ENCRYPTION),
    "server-side-encryption.key": ("", _ENCRYPTION),
    "create.storage.class": ("standard", "unset it and let a lifecycle rule of the bucket move the objects"),
    "object.content.encoding": ("", "unset it"),
    "requester.pays.enabled": ("false", "write to a bucket whose owner pays"),
    "custom.signers": ("", _SIGNING),
    "signing-algorithm": ("", _SIGNING),
    "s3.signing-algorithm": ("", _SIGNING),
    "sts.signing-algorithm": ("", _SIGNING),
    "http.signer.enabled": ("false", _SIGNING),
    "http.signer.class": ("", _SIGNING),
    "client.s3.custom.headers": ("", "unset it"),
    "client.sts.custom.headers": ("", "unset it"),
    "audit.execution.interceptors": ("", "unset it"),
    "audit.request.handlers": ("", "unset it"),
    "s3.client.factory.impl": (f"{_S3A}DefaultS3ClientFactory", "unset it"),
    "aws.credentials.provider.mapping": ("", "name the classes in fs.s3a.aws.credentials.provider"),
    "security.credential.provider.path": ("", _STORE),
    "delegation.token.binding": ("", _KEYS_ELSEWHERE),
    "access.grants.enabled": ("false", _KEYS_ELSEWHERE),
    "accesspoint.arn": ("", "name the bucket itself"),
    "accesspoint.required": ("false", "name the bucket itself"),
    "endpoint.fips": ("false", "set fs.s3a.endpoint to the FIPS endpoint of the region"),
    "proxy.domain": ("", _NTLM),
    "proxy.workstation": ("", _NTLM),
    "multipart.uploads.enabled": ("true", "use a store that takes uploads in parts"),
}
_SENSITIVE = re.compile(
    r"encrypt|credential|secret|token|passw|kms|keyring|signer|signing|\bacl\b|\bauth\b|\brole\b|identity|delegation|"
    r"access\.?grants|access\.?point|requester|storage\.class|custom\.headers|interceptor|proxy|fips"
)
# Of these, what S3A reads only together with something that is refused, or no longer.
_WITHOUT_MEANING = ("assumed.role.*", "auth.profile.*", "access.grants.fallback.to.iam", "s3guard.*", "bucket.*", "audit.*")

_VPC_ENDPOINT = re.compile(r"^(?:.+\.)?([a-z0-9-]+)\.vpce\.amazonaws\.(?:com|com\.cn)$")
_AMAZON_ENDPOINT = re.compile(r"^(?:.+\.)?s3[.-]([a-z0-9-]+)$")
_OTHER_ENDPOINT = re.compile(r"^(?:.+\.)?s3[.-]([a-z0-9-]+)\.")


def options(settings: Settings, bucket_region: Callable[[], str | None]) -> dict[str, Any]:
    """What `arguments` takes. bucket_region: asks AWS where the bucket is; None where it does not say."""
    settings.refuse(REFUSED)
    settings.refuse_unknown((*HONOURED, *REFUSED, *_WITHOUT_MEANING), _SENSITIVE, "unset it, for this bucket at least")
    chosen: dict[str, Any] = {**_credentials(settings), **_place(settings, bucket_region), **_proxy(settings)}
    acl = settings.get("acl.default")
    if acl:
        if acl not in _ACLS:
            raise settings.refused("acl.default", f"use one of {', '.join(_ACLS)}", shown=True)
        # With metadata of its own a file gets no content type from pyarrow; this is the one that S3A sets.
        chosen["default_metadata"] = {"ACL": _ACLS[acl], "Content-Type": "application/octet-stream"}
    durations = {"connect_timeout": "connection.establish.timeout", "request_timeout": "connection.timeout"}
    chosen |= {argument: seconds for argument, name in durations.items() if (seconds := settings.seconds(name))}
    attempts = settings.number("attempts.maximum")
    return chosen | ({"attempts": attempts} if attempts else {})


def arguments(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of S3FileSystem in the process that opens it.

    `attempts` becomes a retry strategy, which loses its number on the way to a task. For `environment` the keys are those of
    this process's environment alone, where pyarrow would look further and might find other ones; TableError without them.
    """
    given = dict(chosen)
    attempts = given.pop("attempts", None)
    if attempts:
        given["retry_strategy"] = fs.AwsStandardS3RetryStrategy(max_attempts=attempts)
    if given.pop("environment", False):
        names = {"access_key": "AWS_ACCESS_KEY_ID", "secret_key": "AWS_SECRET_ACCESS_KEY", "session_token": "AWS_SESSION_TOKEN"}
        keys = {argument: os.environ.get(name) for argument, name in names.items()}
        if not keys["access_key"] or not keys["secret_key"]:
            raise TableError(
                "fs.s3a.aws.credentials.provider says that the keys are in the environment, and AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY are not set where the tasks run: set them for the executors too"
            )
        given |= {argument: key for argument, key in keys.items() if key}
    return given


def _credentials(settings: Settings) -> dict[str, Any]:
    """The providers in their order: the first that has credentials counts."""
    name = "aws.credentials.provider"
    keys = {argument: settings.get(key) or "" for argument, key in (("access_key", "access.key"), ("secret_key", "secret.key"))}
    token = settings.get("session.token")
    asked: list[str] = []
    for kind in _kinds(settings, name) or _DEFAULT_PROVIDERS:
        has_keys = kind in ("keys", "temporary keys") and all(keys.values()) and (kind == "keys" or token)
        if (has_keys or kind in ("anonymous", "role")) and asked:
            # Whether the environment or the instance has credentials, only the executor knows.
            raise settings.refused(
                name, "put keys, a role or anonymous access before the environment and the instance", shown=True
            )
        if has_keys:
            return {**keys, "session_token": token} if kind == "temporary keys" else keys
        if kind == "anonymous":
            return {"anonymous": True}
        if kind == "role":
            return _role(settings)
        if kind in ("environment", "chain"):
            asked.append(kind)
    if not asked:
        raise settings.refused(name, "set fs.s3a.access.key and fs.s3a.secret.key, which it asks for", shown=True)
    return {"environment": True} if set(asked) == {"environment"} else {}


def _kinds(settings: Settings, name: str) -> list[str]:
    classes = [text.strip() for text in (settings.get(name) or "").split(",") if text.strip()]
    if any(text not in _PROVIDERS for text in classes):
        raise settings.refused(name, _OTHER_CREDENTIALS, shown=True)
    return [_PROVIDERS[text] for text in classes]


def _role(settings: Settings) -> dict[str, Any]:
    """S3A's AssumedRoleCredentialProvider. pyarrow asks for the role with the default chain of AWS."""
    if _kinds(settings, "assumed.role.credentials.provider") not in _CHAINS:
        instance = f"{_S3A}auth.IAMInstanceCredentialsProvider"
        advice = f"set fs.s3a.assumed.role.credentials.provider to {instance}, so that the instance assumes the role"
        raise settings.refused("aws.credentials.provider", advice, shown=True)
    settings.refuse({
        "assumed.role.policy": ("", "attach the policy to the role"),
        "assumed.role.sts.endpoint": ("", "unset it"),
    })  # fmt: skip
    arguments = {
        "role_arn": settings.get("assumed.role.arn"),
        "session_name": settings.get("assumed.role.session.name"),
        "external_id": settings.get("assumed.role.external.id"),
        "load_frequency": int(settings.seconds("assumed.role.session.duration", "s") or 3600),
    }
    if not arguments["role_arn"]:
        raise settings.refused("aws.credentials.provider", "set fs.s3a.assumed.role.arn, which it asks for", shown=True)
    return {argument: value for argument, value in arguments.items() if value}


def _place(settings: Settings, bucket_region: Callable[[], str | None]) -> dict[str, Any]:
    """Endpoint and region, as S3A's DefaultS3ClientFactory finds them.

    The region is the setting; else what the endpoint names; else, with AWS's own endpoint, that of the bucket, to which S3A
    follows AWS; else us-east-2. A setting that is empty leaves it to the SDK: environment, profile.
    """
    endpoint, region = settings.get("endpoint") or "", settings.get("endpoint.region")
    place: dict[str, Any] = {}
    if endpoint.endswith("s3.amazonaws.com"):
        endpoint, region = "", region or None
    if endpoint:
        parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
        secure = settings.flag("connection.ssl.enabled", default=True)
        place["endpoint_override"] = parts.netloc
        place["scheme"] = parts.scheme or ("https" if secure else "http")
        # With an endpoint of one's own pyarrow writes http://endpoint/bucket, which is what path style means.
        place["force_virtual_addressing"] = not settings.flag("path.style.access", default=False)
        region = region or region_of(endpoint) or region
    elif region is None and settings.flag("cross.region.access.enabled", default=True):
        region = bucket_region()
    region = FALLBACK_REGION if region is None else region
    return {**place, "region": region} if region else place


def region_of(endpoint: str) -> str | None:
    """The region that the name of an endpoint tells S3A: VPC endpoints, then AWS's names, then `s3.<region>.…` of others."""
    found = _VPC_ENDPOINT.search(endpoint)
    if found:
        return found[1]
    if endpoint.endswith(".amazonaws.com"):
        host = endpoint.removesuffix(".amazonaws.com")
        found = _AMAZON_ENDPOINT.search(host)
        return found[1] if found else host.rpartition(".")[2]
    found = _OTHER_ENDPOINT.search(endpoint)
    return found[1] if found else None


def _proxy(settings: Settings) -> dict[str, Any]:
    host = settings.get("proxy.host")
    if not host:
        return {}
    scheme = "https" if settings.flag("proxy.ssl.enabled", default=False) else "http"
    port = settings.number("proxy.port") or (443 if scheme == "https" else 80)
    user, password = settings.get("proxy.username"), settings.get("proxy.password")
    login = {"username": user, "password": password} if user and password else {}
    return {"proxy_options": {"scheme": scheme, "host": host, "port": port, **login}}
