"""Hadoop's S3A → arguments of `pyarrow.fs.S3FileSystem`.

Source: the settings that S3A documents in Hadoop 3.5 (core-default.xml, `Constants`). `fs.s3a.bucket.<bucket>.*` takes
precedence over `fs.s3a.*`. Settings that pyarrow supports are passed on. Settings that decide about encryption, ownership,
billing, credentials or location, and that pyarrow cannot follow, are refused by name; so are unknown settings whose names
suggest one of these. All other settings tune S3A's own client (buffers, threads, listing, its own retries, committers,
checksums, logging), which does not write data files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs

from delta_variant.errors import TableError
from delta_variant.storage.settings import Settings

FALLBACK_REGION = "us-east-2"
"""The region that S3A signs for if neither a setting nor the endpoint names one."""

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
# The lists of providers that AWS's default chain can replace. That chain asks the environment first.
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
# Name: the value that changes nothing and is allowed, and the advice in the message.
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
# Names that match but have no effect: S3A reads them only together with a setting that is refused, or does not read them.
_WITHOUT_MEANING = ("assumed.role.*", "auth.profile.*", "access.grants.fallback.to.iam", "s3guard.*", "bucket.*", "audit.*")

_VPC_ENDPOINT = re.compile(r"^(?:.+\.)?([a-z0-9-]+)\.vpce\.amazonaws\.(?:com|com\.cn)$")
_AMAZON_ENDPOINT = re.compile(r"^(?:.+\.)?s3[.-]([a-z0-9-]+)$")
_OTHER_ENDPOINT = re.compile(r"^(?:.+\.)?s3[.-]([a-z0-9-]+)\.")


def options(settings: Settings, bucket_region: Callable[[], str | None]) -> dict[str, Any]:
    """The options of a `Storage`, from which `arguments` makes the arguments of S3FileSystem.

    bucket_region: asks AWS for the region of the bucket; None if AWS does not tell. Raises UnsupportedFeatureError for settings
    that pyarrow cannot follow.
    """
    settings.refuse(REFUSED)
    settings.refuse_unknown((*HONOURED, *REFUSED, *_WITHOUT_MEANING), _SENSITIVE, "unset it, for this bucket at least")
    chosen: dict[str, Any] = {**_credentials(settings), **_endpoint(settings, bucket_region), **_proxy(settings)}
    acl = settings.get("acl.default")
    if acl:
        if acl not in _ACLS:
            raise settings.refused("acl.default", f"use one of {', '.join(_ACLS)}", shown=True)
        # If there is default metadata, pyarrow sets no content type; this is the one that S3A sets.
        chosen["default_metadata"] = {"ACL": _ACLS[acl], "Content-Type": "application/octet-stream"}
    durations = {"connect_timeout": "connection.establish.timeout", "request_timeout": "connection.timeout"}
    chosen |= {argument: seconds for argument, name in durations.items() if (seconds := settings.seconds(name))}
    attempts = settings.number("attempts.maximum")
    return chosen | ({"attempts": attempts} if attempts else {})


def arguments(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of S3FileSystem, made in the process that opens it.

    `attempts` becomes a retry strategy, which would lose its number if it were sent to a task. For `environment`, the keys are
    read from this process's environment: pyarrow would look further and might find others. Raises TableError if they are not
    set.
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
    """The arguments for credentials: those of the first provider that has any."""
    name = "aws.credentials.provider"
    keys = {argument: settings.get(key) or "" for argument, key in (("access_key", "access.key"), ("secret_key", "secret.key"))}
    token = settings.get("session.token")
    asked: list[str] = []
    for provider in _providers(settings, name) or _DEFAULT_PROVIDERS:
        has_keys = provider in ("keys", "temporary keys") and all(keys.values()) and (provider == "keys" or token)
        if (has_keys or provider in ("anonymous", "role")) and asked:
            # Only the executor knows whether the environment or the instance has credentials.
            raise settings.refused(
                name, "put keys, a role or anonymous access before the environment and the instance", shown=True
            )
        if has_keys:
            return {**keys, "session_token": token} if provider == "temporary keys" else keys
        if provider == "anonymous":
            return {"anonymous": True}
        if provider == "role":
            return _role(settings)
        if provider in ("environment", "chain"):
            asked.append(provider)
    if not asked:
        raise settings.refused(name, "set fs.s3a.access.key and fs.s3a.secret.key, which it asks for", shown=True)
    return {"environment": True} if set(asked) == {"environment"} else {}


def _providers(settings: Settings, name: str) -> list[str]:
    """The providers that a setting lists, by the short names of _PROVIDERS."""
    classes = [text.strip() for text in (settings.get(name) or "").split(",") if text.strip()]
    if any(text not in _PROVIDERS for text in classes):
        raise settings.refused(name, _OTHER_CREDENTIALS, shown=True)
    return [_PROVIDERS[text] for text in classes]


def _role(settings: Settings) -> dict[str, Any]:
    """The arguments for S3A's AssumedRoleCredentialProvider. pyarrow asks for the role with AWS's default chain."""
    if _providers(settings, "assumed.role.credentials.provider") not in _CHAINS:
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


def _endpoint(settings: Settings, bucket_region: Callable[[], str | None]) -> dict[str, Any]:
    """The arguments for endpoint and region, as S3A's DefaultS3ClientFactory finds them.

    The region comes from the setting, or else from the endpoint's name. With AWS's own endpoint it is otherwise the region of
    the bucket, which S3A learns from AWS. The last resort is us-east-2. If the setting is empty, the SDK decides: environment,
    profile.
    """
    endpoint, region = settings.get("endpoint") or "", settings.get("endpoint.region")
    chosen: dict[str, Any] = {}
    if endpoint.endswith("s3.amazonaws.com"):
        endpoint, region = "", region or None
    if endpoint:
        parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
        secure = settings.flag("connection.ssl.enabled", default=True)
        chosen["endpoint_override"] = parts.netloc
        chosen["scheme"] = parts.scheme or ("https" if secure else "http")
        # With an endpoint that is given, pyarrow writes http://endpoint/bucket, which is path style.
        chosen["force_virtual_addressing"] = not settings.flag("path.style.access", default=False)
        region = region or region_of(endpoint) or region
    elif region is None and settings.flag("cross.region.access.enabled", default=True):
        region = bucket_region()
    region = FALLBACK_REGION if region is None else region
    return {**chosen, "region": region} if region else chosen


def region_of(endpoint: str) -> str | None:
    """The region that S3A finds in the name of an endpoint: a VPC endpoint, else one of AWS, else `s3.<region>.…`; or None."""
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
