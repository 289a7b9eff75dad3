"""Hadoop's side of a table's storage: a path and its Configuration in the JVM → `Storage`.

Settings cross py4j as one text, not one by one. Hadoop reads credential stores (`hadoop.security.credential.provider.path`
and S3A's own); their entries take precedence over plain settings, as in Hadoop's `Configuration.getPassword`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from delta_variant import jvm
from delta_variant.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STORE = "hadoop.security.credential.provider.path"
_S3A_STORES = ("fs.s3a.security.credential.provider.path", "fs.s3a.bucket.{}.security.credential.provider.path")
_PREFIXES = ("fs.", "google.cloud.", "hadoop.security.credential.")


def storage_of(spark: SparkSession, path: Any, conf: Any) -> Storage:
    """The storage of a path.

    path: Hadoop's Path. conf: its Configuration, which this function may change. Raises UnsupportedFeatureError for what
    `Storage.of` refuses, and an error of py4j's for a credential store that cannot be read.
    """
    location, uri = str(path), path.toUri()
    if uri.getScheme() in (None, "file"):
        return Storage.of(location)
    settings = _settings(spark, conf)
    stores = [settings.pop(_STORE, "").strip()]
    if uri.getScheme() in ("s3", "s3a"):  # S3A looks into its own stores first; those of the bucket replace its general ones
        general, of_bucket = (settings.pop(name.format(uri.getHost()), None) for name in _S3A_STORES)
        stores.insert(0, ((general if of_bucket is None else of_bucket) or "").strip())
    if any(stores):
        conf.set(_STORE, ",".join(filter(None, stores)))
        settings |= _secrets(spark, conf)
    return Storage.of(location, settings.get, settings, lambda: _bucket_region(path, conf))


def _settings(spark: SparkSession, conf: Any) -> dict[str, str]:
    """The settings of file systems and their credentials, with variables substituted."""
    mapper = jvm.static(spark, "com.fasterxml.jackson.databind.ObjectMapper")()
    texts = {prefix: mapper.writeValueAsString(conf.getPropsWithPrefix(prefix)) for prefix in _PREFIXES}
    return {prefix + name: value for prefix, text in texts.items() for name, value in json.loads(text).items()}


def _secrets(spark: SparkSession, conf: Any) -> dict[str, str]:
    """The entries of the credential stores for file systems. If several stores have a name, the first of them counts."""
    providers = jvm.static(spark, "org.apache.hadoop.security.alias.CredentialProviderFactory")
    secrets: dict[str, str] = {}
    for store in providers.getProviders(conf):
        for name in store.getAliases():
            if name.startswith(("fs.", "google.")) and name not in secrets:
                secrets[name] = "".join(store.getCredentialEntry(name).getCredential())
    return secrets


def _bucket_region(path: Any, conf: Any) -> str | None:
    """The region in which S3A finds the bucket when it requests its metadata; None if the request fails."""
    try:
        region = path.getFileSystem(conf).getS3AInternals().getBucketMetadata().bucketRegion()
    except Py4JError:
        return None
    return None if region is None else str(region)
