"""Where the files of a table go: a location and Hadoop's settings → a pyarrow file system that tasks can open.

In: the location as Delta has it, a URI of Hadoop, and a function that looks one of Hadoop's settings up. Out: `Storage`, which
is data and goes to the tasks; each of them opens it for itself. Files are written by pyarrow, the log by Delta through Hadoop,
with one set of settings: those of `fs.s3a.*` (also per bucket), `fs.gs.*` and `fs.azure.*`, as Hadoop's S3A, the GCS connector
and ABFS document them. Without keys the cloud's own default credentials count, as they do there.

Invariant: secrets reach the file system and nothing else: no message, no repr.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyarrow import fs

from delta_variant.errors import TableError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Setting = Callable[[str], str | None]

_SCHEMES = {"file": "file", "s3": "s3", "s3a": "s3", "gs": "gs", "abfs": "abfs", "abfss": "abfs"}
_FILE_SYSTEMS = {"s3": "S3FileSystem", "gs": "GcsFileSystem", "abfs": "AzureFileSystem"}
_LOCATION = re.compile(r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?(?://(?P<host>[^/]*))?(?P<path>.*)", re.DOTALL)
_AWS_REGION = re.compile(r"s3[.-](?:dualstack\.)?([a-z]{2}[a-z0-9-]*-\d)\.amazonaws\.com")

_ROOM, _ACCESS = "make room there", "give the user that the tasks run as the right to write there"
_LASTING = {
    errno.ENOSPC: _ROOM, errno.EDQUOT: _ROOM, errno.EFBIG: _ROOM,
    errno.EACCES: _ACCESS, errno.EPERM: _ACCESS, errno.EROFS: _ACCESS,
}  # fmt: skip
_AWS_LASTING = re.compile(
    r"AWS Error (ACCESS_DENIED|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN_ID|SIGNATURE_DOES_NOT_MATCH|NO_SUCH_BUCKET)"
)


@dataclass(frozen=True)
class Storage:
    """A directory and how to reach it."""

    scheme: str
    """file, s3, gs or abfs."""
    root: str
    """The directory, as pyarrow names it: a path, or bucket/path."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Arguments for pyarrow's file system."""

    @classmethod
    def of(cls, location: str, setting: Setting = lambda _: None) -> Storage:
        """The storage of a location: /a/path, file:/a/path, s3a://bucket/path, gs://…, abfs://container@account/….

        location: not percent-encoded, as Hadoop's Path prints it. setting: the value of one of Hadoop's settings, or None.
        UnsupportedFeatureError for another scheme.
        """
        match = _LOCATION.fullmatch(location)
        assert match is not None
        given = (match["scheme"] or "file").lower()
        scheme, host, path = _SCHEMES.get(given), match["host"] or "", match["path"].strip("/")
        if scheme is None or (scheme != "file" and not hasattr(fs, _FILE_SYSTEMS[scheme])):
            raise UnsupportedFeatureError(
                f"{location} is on {given}: storage, and delta_variant.write writes to {', '.join(_SCHEMES)}, as far as this "
                "pyarrow does"
            )
        if scheme == "file":
            return cls(scheme, match["path"].rstrip("/") or "/")
        if scheme == "abfs":
            container, _, account = host.partition("@")
            return cls(scheme, f"{container}/{path}".rstrip("/"), _azure(account, setting))
        options = _s3(host, setting) if scheme == "s3" else _gcs(setting)
        return cls(scheme, f"{host}/{path}".rstrip("/"), options)

    def open(self) -> fs.FileSystem:
        """The file system, in which `root` is the directory."""
        if self.scheme == "file":
            return fs.LocalFileSystem()
        return getattr(fs, _FILE_SYSTEMS[self.scheme])(**self.options)

    @property
    def name(self) -> str:
        """The directory, for messages."""
        return self.root if self.scheme == "file" else f"{self.scheme}://{self.root}"

    @property
    def has_directories(self) -> bool:
        """Whether a directory has to be made before there are files in it; object stores have none."""
        return self.scheme == "file"

    def explained(self, error: OSError) -> TableError | None:
        """The error for what trying again will not change: no room, no right, no such bucket; None for anything else."""
        code = error.errno if error.errno is not None else -1
        refused = _AWS_LASTING.search(str(error))
        if code not in _LASTING and not refused:
            return None
        reason, advice = (refused[1], "check the bucket, its policy and the credentials") if refused else ("", "")
        if not refused:
            reason, advice = os.strerror(code), _LASTING[code]
        return TableError(f"cannot write to {self.name}: {reason}: {advice}")


def _s3(bucket: str, setting: Setting) -> dict[str, Any]:
    """Hadoop's S3A: `fs.s3a.bucket.<bucket>.*` goes before `fs.s3a.*`."""

    def option(name: str) -> str | None:
        return (setting(f"fs.s3a.bucket.{bucket}.{name}") or setting(f"fs.s3a.{name}") or "").strip() or None

    options: dict[str, Any] = {}
    access, secret, token = option("access.key"), option("secret.key"), option("session.token")
    providers = [name.strip().rpartition(".")[2] for name in (option("aws.credentials.provider") or "").split(",")]
    if access and secret:
        options |= {"access_key": access, "secret_key": secret}
        if token:
            options["session_token"] = token
    elif providers[0].startswith("Anonymous"):
        options["anonymous"] = True
    elif providers[0].startswith("AssumedRole"):
        raise UnsupportedFeatureError(
            f"fs.s3a.aws.credentials.provider = {providers[0]}: delta_variant.write takes keys, anonymous access or "
            "the default credentials of AWS"
        )
    endpoint, region = option("endpoint"), option("endpoint.region")
    known = _AWS_REGION.search(endpoint or "")
    if endpoint and not known and "amazonaws.com" not in endpoint:
        parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
        secure = (option("connection.ssl.enabled") or "true").lower() == "true"
        options["endpoint_override"] = parts.netloc
        options["scheme"] = parts.scheme or ("https" if secure else "http")
        # With an endpoint of one's own pyarrow writes http://endpoint/bucket, which is what path style means.
        options["force_virtual_addressing"] = (option("path.style.access") or "false").lower() != "true"
        region = region or "us-east-1"
    region = region or (known[1] if known else None)
    if region:
        options["region"] = region
    return options


def _gcs(setting: Setting) -> dict[str, Any]:
    """The GCS connector for Hadoop."""
    options: dict[str, Any] = {}
    if setting("fs.gs.auth.type") == "UNAUTHENTICATED":
        options["anonymous"] = True
    endpoint = setting("fs.gs.storage.root.url")
    if endpoint:
        parts = urlsplit(endpoint)
        options |= {"endpoint_override": parts.netloc, "scheme": parts.scheme}
    return options


def _azure(account: str, setting: Setting) -> dict[str, Any]:
    """Hadoop's ABFS: settings that end in the account go before those without."""

    def option(name: str) -> str | None:
        return setting(f"fs.azure.{name}.{account}") or setting(f"fs.azure.{name}")

    options: dict[str, Any] = {"account_name": account.partition(".")[0]}
    key, token = option("account.key"), option("sas.fixed.token")
    client, secret = option("account.oauth2.client.id"), option("account.oauth2.client.secret")
    if key:
        options["account_key"] = key
    elif token:
        options["sas_token"] = token
    elif client and secret:
        tenant = urlsplit(option("account.oauth2.client.endpoint") or "").path.split("/")[1:2]
        options |= {"client_id": client, "client_secret": secret, "tenant_id": "".join(tenant)}
    return options
