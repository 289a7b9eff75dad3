"""Assertions in helpers of the tests fail with their values, as those in test modules do."""

import pytest

pytest.register_assert_rewrite("tests")
