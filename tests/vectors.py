"""The golden vectors of `protocol/vectors`, by folder and name: `encoding/strings`."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parent.parent / "protocol" / "vectors"

EXPECTED: dict[str, dict[str, Any]] = {
    f"{path.parent.name}/{name}": expected
    for path in sorted(VECTORS.glob("*/expected.json"))
    for name, expected in sorted(json.loads(path.read_text(encoding="utf-8"), parse_float=Decimal).items())
}
"""What a reader must make of each vector."""

FILES = {name: next(VECTORS.glob(f"{name}.*")) for name in EXPECTED}
"""The file of each vector, Parquet or Arrow."""
