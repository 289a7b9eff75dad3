"""Which peers are installed. The oldest that the package supports cannot do all that the tests ask of the newest."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

PYARROW = int(pa.__version__.partition(".")[0])
DUCKDB = int(duckdb.__version__.partition(".")[0])


def needs_pyarrow(version: int, why: str) -> pytest.MarkDecorator:
    """Skips a test, or a case of one, with an older pyarrow. why: what the older one cannot do."""
    return pytest.mark.skipif(version > PYARROW, reason=f"pyarrow before {version} {why}")


def needs_duckdb(version: int, why: str) -> pytest.MarkDecorator:
    """Skips a test with an older DuckDB. why: what the older one cannot do."""
    return pytest.mark.skipif(version > DUCKDB, reason=f"DuckDB before {version} {why}")
