"""Who wrote the data files of a table."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq

from tests import logs

OURS, DELTA = "ours", "Delta"


def writers(path: str) -> list[str]:
    """Who wrote each of the data files, the oldest version first."""
    return [writer(path, add) for add in logs.actions(path, "add")]


def writer(path: str, add: dict) -> str:
    created_by = pq.read_metadata(Path(path, unquote(add["path"]))).created_by
    return {"parquet-cpp-arrow": OURS, "parquet-mr": DELTA}[created_by.split(" ")[0]]
