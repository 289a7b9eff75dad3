"""Pairs of Spark and Delta, without a session: which are supported, and the JAR of Delta that `configure` takes."""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from delta_variant import pairs
from delta_variant.errors import SessionError
from delta_variant.session import configure

PACKAGES = "spark.jars.packages"


@pytest.mark.parametrize(
    ("spark", "delta", "expected"),
    [
        ("4.0.1", "4.0.1", "delta-spark_2.13:4.0.1"),
        ("4.0.1", "4.4.0", "delta-spark_4.0_2.13:4.4.0"),
        ("4.1.1", "4.2.0", "delta-spark_4.1_2.13:4.2.0"),
        ("4.1.1-amzn-0", None, "delta-spark_4.1_2.13:4.4.0"),
        ("4.2.0", "4.4.0", "delta-spark_4.2_2.13:4.4.0"),
        ("4.3.0", "4.5.0", "delta-spark_4.3_2.13:4.5.0"),
    ],
)
def test_the_jar_that_fits(spark, delta, expected):
    """Delta's JAR is the one for this PySpark and this delta-spark; the newest one if delta-spark is not installed."""
    assert pairs.coordinate(spark, delta) == f"io.delta:{expected}"


@pytest.mark.parametrize(("spark", "delta", "first"), [("4.2.0", "4.2.0", "4.4"), ("4.1.1", "4.0.1", "4.2")])
def test_no_jar_fits(spark, delta, first):
    """A delta-spark that has no JAR for this PySpark is named, with the one to install."""
    with pytest.raises(SessionError, match=rf"Delta {delta} has no JAR for Spark {spark}: .* {first} or newer"):
        pairs.coordinate(spark, delta)


@pytest.mark.parametrize(("spark", "delta"), [("3.5.5", "4.4.0"), ("4.3.0", None), ("4.3.0", "4.4.0")])
def test_no_jar_fits_this_spark(spark, delta):
    """A Spark for which Delta has published no JAR is named, with the pair to install."""
    with pytest.raises(SessionError, match=rf"has no JAR for Spark {spark}: pip install 'delta-variant\[spark\]'"):
        pairs.coordinate(spark, delta)


def test_supported_versions():
    """Older versions, and Delta 4.1, are an error that names them and those supported; newer ones are told from the tested."""
    for supported in (("4.0.1", "4.0.1"), ("4.1.1", "4.2.0"), ("4.1.1-amzn-0", "4.2.0-amzn-0"), ("4.2.7", "4.4.1")):
        assert not pairs.is_newer(*supported)
    for newer in (("4.3.0", "4.4.0"), ("4.2.0", "4.5.0-SNAPSHOT"), ("4.20.0", "4.4.0"), ("5.0.0", "5.0.0")):
        assert pairs.is_newer(*newer)
    for refused in (
        *(("4.0.0", "4.2.0"), ("4.0.1", "4.0.0"), ("4.0.1", "4.1.0"), ("4.1.1", "4.1.0"), ("3.5.3", "3.3.0")),
        *(("4.1.1", "4.0.1"), ("4.2.0", "4.0.1")),
    ):
        with pytest.raises(SessionError, match=r"Spark {} with Delta {}: .* Spark 4\.0\.1 to 4\.2 with".format(*refused)):
            pairs.is_newer(*refused)


def test_without_delta_sparks_python(monkeypatch):
    """`configure` needs no Python package of Delta's: without one it takes the newest JAR for this PySpark."""
    monkeypatch.setitem(sys.modules, "delta", None)
    monkeypatch.setattr(pairs, "installed", lambda _: None)
    assert configure(SparkSession.Builder())._options[PACKAGES] == pairs.coordinate(pyspark.__version__, None)


def test_a_platforms_jar_stays(monkeypatch, tmp_path):
    """Nothing is downloaded where Delta's JAR is among Spark's, or where a setting names it; other packages stay."""
    jar = tmp_path / "jars" / "delta-spark_4.1_2.13-4.2.0.jar"
    jar.parent.mkdir()
    jar.touch()
    builder = SparkSession.Builder
    for key, value in (("spark.jars", f"/a.jar,file://{jar}"), ("spark.driver.extraClassPath", f"/lib/a.jar:{jar.parent}/*")):
        assert pairs.delta({key: value}) == jar
        assert PACKAGES not in configure(builder().config(key, value))._options
    elsewhere = {"spark.jars": f"s3://bucket/{jar.name},{tmp_path}/{jar.name}"}
    assert pairs.delta(elsewhere) == pairs.coordinate(pyspark.__version__, pairs.installed("delta-spark"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert pairs.delta({}) == jar
    assert PACKAGES not in configure(builder())._options
    assert configure(builder().config(PACKAGES, "org.example:one:1"))._options[PACKAGES] == "org.example:one:1"


def test_a_named_jar_stays():
    """A version of Delta that the builder names is kept, and no other one is added."""
    named = "org.example:one:1,io.delta:delta-spark_4.2_2.13:4.4.0"
    assert configure(SparkSession.Builder().config(PACKAGES, named))._options[PACKAGES] == named
    assert pairs.delta({PACKAGES: named}) == named.split(",")[1]


def test_sparks_home(monkeypatch):
    """Spark is where SPARK_HOME says, or where PySpark is installed."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert pairs.spark_home() == Path(pyspark.__file__).parent
    assert pairs.installed("pyspark") == pyspark.__version__
    assert pairs.installed("no-such-package") is None
