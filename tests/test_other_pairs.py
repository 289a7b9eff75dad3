"""The package on other pairs of Spark and Delta than that of this environment: the oldest, and that of managed platforms.

`make test` runs a few tests of `tests/pair.py`, `make soak` all of them. `make pins` runs these and more for every pair
(`tests/pins.py`).
"""

from __future__ import annotations

import pytest

from tests.support import SOAK
from tests.versions import other_pair, run_tests

PAIRS = [("4.0.1", "4.0.1"), ("4.1.1", "4.2.0")]
FEW = ["test_insert", "test_changes[deletion vectors]", "test_analyze", "test_write_and_optimize"]
TESTS = ["tests/pair.py"] if SOAK else [f"tests/pair.py::{name}" for name in FEW]

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("spark", "delta"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_pair(spark, delta):
    """Writes, skipping, typed reading, DML, `analyze` and `optimize` work, and rows are those of a plain session."""
    run_tests(other_pair(spark, delta), *TESTS)
