"""The package on other pairs of Spark and Delta than that of this environment: the oldest, and that of managed platforms.

`make pins` runs the same for every pair (`tests/pins.py`).
"""

from __future__ import annotations

import pytest

from tests.versions import other_pair, run_tests

PAIRS = [("4.0.1", "4.2.0"), ("4.1.1", "4.2.0")]

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("spark", "delta"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_pair(spark, delta):
    """Writes, skipping, typed reading, DML, `analyze` and `optimize` work, and rows are those of a plain session."""
    run_tests(other_pair(spark, delta), "tests/pair.py")
