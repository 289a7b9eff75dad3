"""Hadoop's side of a table's storage: a path and its Configuration in the JVM → `Storage`.

All settings cross py4j as one text. Credential stores (`hadoop.security.credential.provider.path` and S3A's own) are read by
Hadoop; what they hold goes before plain settings, as in Hadoop's `Configuration.getPassword`.
"""

# ruff: noqa: SLF001 -- PySpark gives no public way to its JVM

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from delta_variant import jvm
from delta_variant.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STORE = "hadoop.security.credential.provider.path"


def storage_of(spark: SparkSession, path: Any, conf: Any) -> Storage:
    """The storage of a path. conf: a Configuration that may be changed.

    UnsupportedFeatureError for what `Storage.of` refuses; an error of py4j's for a credential store that cannot be read.
    """
    location = str(path)
    if path.toUri().getScheme() in (None, "file"):
        return Storage.of(location)
    settings = _settings(spark, conf)
    host = path.toUri().getHost()
    # As S3A has it: its own stores before Hadoop's.
    names = (f"fs.s3a.bucket.{host}.security.credential.provider.path", "fs.s3a.security.credential.provider.path", _STORE)
    stores = [store for name in names if (store := settings.pop(name, "").strip())]
    if stores:
        conf.set(_STORE, ",".join(stores))
        settings |= _secrets(spark, conf)
    return Storage.of(location, settings.get, settings, lambda: _bucket_region(path, conf))


def _settings(spark: SparkSession, conf: Any) -> dict[str, str]:
    """Every setting, with its variables filled in."""
    mapper = jvm.classic(spark)._jvm.com.fasterxml.jackson.databind.ObjectMapper()
    found: dict[str, str] = json.loads(mapper.writeValueAsString(conf.getPropsWithPrefix("")))
    return found


def _secrets(spark: SparkSession, conf: Any) -> dict[str, str]:
    """What the credential stores hold for file systems; the first store that has a name counts."""
    factory = jvm.classic(spark)._jvm.org.apache.hadoop.security.alias.CredentialProviderFactory
    secrets: dict[str, str] = {}
    for store in factory.getProviders(conf):
        for name in store.getAliases():
            if name.startswith(("fs.", "google.")) and name not in secrets:
                secrets[name] = "".join(store.getCredentialEntry(name).getCredential())
    return secrets


def _bucket_region(path: Any, conf: Any) -> str | None:
    """Where S3A finds the bucket, by the request for its metadata; None where that is not allowed."""
    try:
        region = path.getFileSystem(conf).getS3AInternals().getBucketMetadata().bucketRegion()
    except Py4JError:
        return None
    return None if region is None else str(region)
