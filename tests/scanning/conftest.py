"""Tables that several modules read."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.by_hand import by_hand


@pytest.fixture
def numbers(tmp_path) -> Path:
    """Two files, n from 0 to 4 and from 5 to 9."""
    tables = [pa.table({"n": pa.array(range(start, start + 5), pa.int64())}) for start in (0, 5)]
    stats = [{"stats": json.dumps({"numRecords": 5, "minValues": {"n": s}, "maxValues": {"n": s + 4}})} for s in (0, 5)]
    return by_hand(tmp_path / "numbers", {"n": "long"}, zip(tables, stats, strict=True))
