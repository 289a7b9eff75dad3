"""Where the files of a table go: a location and Hadoop's settings → a pyarrow file system that tasks can open.

In: the location as Delta has it, a Hadoop URI, and Hadoop's settings. Out: `Storage`, which is data and is sent to the tasks;
each task opens it for itself. pyarrow writes the data files, and Delta writes the log through Hadoop, both with the same
settings: those of S3A (`s3`), of the GCS connector (`gcs`) and of ABFS (`azure`). Without keys, both use the cloud's default
credentials.

Invariants: settings that decide about encryption, ownership, billing, credentials or location are followed or refused,
never ignored. Secrets reach the file system and nothing else: no message, no repr.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from pyarrow import fs

from delta_variant.errors import TableError, UnsupportedFeatureError
from delta_variant.storage import azure, gcs, s3
from delta_variant.storage.settings import Setting, Settings

_SCHEMES = {"file": "file", "s3": "s3", "s3a": "s3", "gs": "gs", "abfs": "abfs", "abfss": "abfs"}
_FILE_SYSTEMS = {"s3": "S3FileSystem", "gs": "GcsFileSystem", "abfs": "AzureFileSystem"}
_LOCATION = re.compile(r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?(?://(?P<host>[^/]*))?(?P<path>.*)", re.DOTALL)
# The full names of settings, the most specific first. {0} is what stands before the @ in the host of a location, {1} the rest.
_FORMS = {
    "s3": ("fs.s3a.bucket.{1}.{{}}", "fs.s3a.{{}}"),
    "gs": ("fs.gs.{{}}", "google.cloud.{{}}"),
    "abfs": ("fs.azure.{{}}.{0}.{1}", "fs.azure.{{}}.{1}", "fs.azure.{{}}"),
}
# The file systems of Hadoop whose settings this package knows.
_IMPLEMENTATIONS = {
    "s3": ("org.apache.hadoop.fs.s3a.S3AFileSystem",),
    "gs": ("org.apache.hadoop.fs.gs.GoogleHadoopFileSystem", "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem"),
    "abfs": tuple(f"org.apache.hadoop.fs.azurebfs.{name}FileSystem" for name in ("AzureBlob", "SecureAzureBlob")),
}

_ROOM, _ACCESS = "make room there", "give the user that the tasks run as the right to write there"
_LASTING = {
    errno.ENOSPC: _ROOM, errno.EDQUOT: _ROOM, errno.EFBIG: _ROOM,
    errno.EACCES: _ACCESS, errno.EPERM: _ACCESS, errno.EROFS: _ACCESS,
}  # fmt: skip
_AWS_LASTING = re.compile(
    r"AWS Error (ACCESS_DENIED|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN_ID|SIGNATURE_DOES_NOT_MATCH|NO_SUCH_BUCKET)"
)

# What pyarrow's errors contain if AWS says that the bucket is in another region.
_AWS_ELSEWHERE = re.compile(r"HTTP status 301|the region '[^']*' is wrong; expecting '[^']*'|the bucket is located in '[^']*'")
_CREDENTIAL_STORE = {"hadoop.security.credential.provider.path": ("", "give the keys in settings")}


@dataclass(frozen=True)
class Storage:
    """A directory, and how to open its file system."""

    scheme: str
    """file, s3, gs or abfs."""
    root: str
    """The directory as pyarrow names it: a path, or bucket/path."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Arguments for pyarrow's file system, in a form that can be sent to tasks (`s3.arguments`)."""

    @classmethod
    def of(
        cls,
        location: str,
        setting: Setting = lambda _: None,
        names: Collection[str] = (),
        bucket_region: Callable[[], str | None] = lambda: None,
    ) -> Storage:
        """The storage of a location: /a/path, file:/a/path, s3a://bucket/path, gs://…, abfs://container@account/….

        location: not percent-encoded, as Hadoop's Path prints it. setting: returns the value of one of Hadoop's settings, or
        None. names: the names of all settings that are set, to find those that this package does not know. bucket_region: asks
        AWS for the region of the bucket. Raises UnsupportedFeatureError for another scheme, and for a setting that pyarrow
        cannot follow; TableError for a location without a bucket.
        """
        match = _LOCATION.fullmatch(location)
        assert match is not None
        given = (match["scheme"] or "file").lower()
        scheme, host, path = _SCHEMES.get(given), match["host"] or "", match["path"].strip("/")
        if scheme is None or (scheme != "file" and not hasattr(fs, _FILE_SYSTEMS[scheme])):
            raise UnsupportedFeatureError(
                f"{location} is on {given}: storage, and delta-variant supports {', '.join(_SCHEMES)}, as far as the "
                "installed pyarrow does: choose another location"
            )
        if scheme == "file":
            return cls(scheme, match["path"].rstrip("/") or "/")
        container, _, account = host.rpartition("@")
        if not account or (scheme == "abfs" and not container):
            form = "container@account" if scheme == "abfs" else "bucket"
            raise TableError(f"{location} has no {form}: write it as {given}://{form}/path")
        plain = Settings(location, setting, names, ("{}",))
        implementation = plain.get(f"fs.{given}.impl")
        if implementation and implementation not in _IMPLEMENTATIONS[scheme]:
            raise plain.refused(f"fs.{given}.impl", f"use {_IMPLEMENTATIONS[scheme][0]}", shown=True)
        plain.refuse(_CREDENTIAL_STORE)
        if scheme == "s3" and container:
            raise UnsupportedFeatureError("the location has keys in it: set fs.s3a.access.key and fs.s3a.secret.key instead")
        settings = replace(plain, forms=tuple(form.format(container, account) for form in _FORMS[scheme]))
        if scheme == "s3":
            options = s3.options(settings, bucket_region)
        else:
            options = azure.options(account, settings) if scheme == "abfs" else gcs.options(settings)
        return cls(scheme, f"{container or account}/{path}".rstrip("/"), options)

    def open(self) -> fs.FileSystem:
        """Opens the file system, in which `root` is the directory. Raises TableError as `s3.arguments` does."""
        if self.scheme == "file":
            return fs.LocalFileSystem()
        arguments = s3.arguments(self.options) if self.scheme == "s3" else self.options
        return getattr(fs, _FILE_SYSTEMS[self.scheme])(**arguments)

    def file(self, path: str) -> str:
        """A data file as the file system names it.

        path: as an Add action has it, percent-encoded: relative to the directory, or a URI. Raises TableError for a file in
        another storage system.
        """
        absolute = self._absolute(path)
        return f"{self.root}/{unquote(path)}" if absolute is None else absolute

    def canonical(self, path: str) -> str:
        """A text that is the same for all absolute names of a data file. Delta compares relative paths as they are."""
        try:
            absolute = self._absolute(path)
        except TableError:
            return path
        return path if absolute is None else f"{self.scheme}:{absolute}"

    def _absolute(self, path: str) -> str | None:
        """A data file as the file system names it; None for a relative path."""
        match = _LOCATION.fullmatch(path)
        assert match is not None
        name = unquote(match["path"])
        if match["scheme"] is None and not name.startswith("/"):
            return None
        if match["scheme"] is not None and _SCHEMES.get(match["scheme"].lower()) != self.scheme:
            raise TableError(f"{path} is in another storage system than its table")
        if self.scheme == "file":
            return name
        container, _, account = (match["host"] or self.root.partition("/")[0]).rpartition("@")
        return f"{container or account}{name}"

    @property
    def name(self) -> str:
        """The directory, for messages."""
        return self.root if self.scheme == "file" else f"{self.scheme}://{self.root}"

    @property
    def has_directories(self) -> bool:
        """Whether directories have to be created before files; object stores have no directories."""
        return self.scheme == "file"

    def explained(self, error: OSError) -> TableError | None:
        """The error for a failure that would occur again: no space, no permission, no such bucket; None for all others."""
        text = str(error)
        refused, elsewhere = _AWS_LASTING.search(text), _AWS_ELSEWHERE.search(text)
        if elsewhere:
            reason, advice = f"the bucket is in another region ({elsewhere[0]})", "set fs.s3a.endpoint.region to it"
        elif refused:
            reason, advice = refused[1], "check the bucket, its policy and the credentials"
        elif error.errno in _LASTING:
            reason, advice = os.strerror(error.errno), _LASTING[error.errno]
        else:
            return None
        return TableError(f"cannot write to {self.name}: {reason}: {advice}")
