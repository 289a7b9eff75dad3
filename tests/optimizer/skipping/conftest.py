"""The session and the tables of the tests of skipping."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delta_variant.explanation import has_rules
from delta_variant.session import disable, enable
from tests.optimizer.skipping.tables import events, mark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module", autouse=True)
def _module(spark: SparkSession) -> Iterator[None]:
    yield
    disable(spark)


@pytest.fixture(autouse=True)
def _skipping(spark: SparkSession, _module: None) -> None:
    if not has_rules(spark):
        enable(spark)


@pytest.fixture(scope="session")
def small(spark, tmp_path_factory) -> str:
    """Twenty events in two files; tests work on copies."""
    enable(spark)
    return events(spark, tmp_path_factory.mktemp("tables") / "small", rows=20, files=2)


@pytest.fixture(scope="session")
def table(spark, tmp_path_factory) -> str:
    """Fifty events in five files, which no test changes."""
    enable(spark)
    path = events(spark, tmp_path_factory.mktemp("tables") / "events")
    disable(spark)
    return path


@pytest.fixture(scope="session")
def marked(spark, tmp_path_factory) -> str:
    """The same with the marker, which no test changes."""
    enable(spark)
    path = events(spark, tmp_path_factory.mktemp("tables") / "marked")
    disable(spark)
    mark(spark, path)
    return path


@pytest.fixture(params=["true", "false"])
def plan_form(spark, request) -> Iterator[str]:
    """Both forms in which a plan holds a path: fields that Spark pushed into the scan, and variant_get as written."""
    spark.conf.set("spark.sql.variant.pushVariantIntoScan", request.param)
    yield request.param
    spark.conf.unset("spark.sql.variant.pushVariantIntoScan")
