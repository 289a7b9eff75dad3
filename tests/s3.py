"""A local S3 server."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pyarrow import fs

from delta_variant.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS = {"fs.s3a.access.key": "the-key", "fs.s3a.secret.key": "the-secret"}
LOCAL = {"fs.s3a.endpoint": "http://127.0.0.1:9000", "fs.s3a.path.style.access": "true", **KEYS}


@contextlib.contextmanager
def server() -> Iterator[dict[str, str]]:
    """The settings of an S3 server that has the bucket `lake`, in eu-north-1."""
    from moto.server import ThreadedMotoServer

    running = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    settings = {**LOCAL, "fs.s3a.endpoint": f"http://{host}:{port}"}
    north = {**settings, "fs.s3a.endpoint.region": "eu-north-1"}
    files = fs.S3FileSystem(**Storage.of("s3a://lake", north.get).options, allow_bucket_creation=True)
    files.create_dir("lake")
    try:
        yield settings
    finally:
        running.stop()
