"""configure, enable, disable: what they change, what they leave, and what they say when they cannot."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from delta_variant import explanation, jvm, messages
from delta_variant import session as session_module
from delta_variant.errors import DeltaVariantWarning, SessionError
from delta_variant.queries import requests
from delta_variant.session import check_java, configure, disable, enable
from tests.session.state import LIMIT, SETTINGS, rules, settings


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """A session of its own in the same JVM."""
    return spark.newSession()


def test_configure_keeps_what_is_there():
    """The user's packages, extensions and catalog stay; Delta's are added once, its catalog only if there is none."""
    builder = (
        SparkSession.builder.config("spark.jars.packages", "org.example:one:1")
        .config("spark.sql.extensions", "org.example.Extension")
        .config("spark.sql.catalog.spark_catalog", "org.example.Catalog")
    )
    options = configure(configure(builder), packages=["org.example:two:2"])._options
    packages = options["spark.jars.packages"].split(",")
    assert {"org.example:one:1", "org.example:two:2"} < set(packages)
    assert len([name for name in packages if name.startswith("io.delta:delta-spark")]) == 1
    assert options["spark.sql.extensions"] == "org.example.Extension,io.delta.sql.DeltaSparkSessionExtension"
    assert options["spark.sql.catalog.spark_catalog"] == "org.example.Catalog"
    assert configure(SparkSession.builder)._options["spark.sql.catalog.spark_catalog"].endswith("DeltaCatalog")


def test_configure_keeps_the_defaults(monkeypatch, tmp_path):
    """What spark-defaults.conf sets is kept as if the builder had it, as Spark reads the file; the builder comes first."""
    text = "# spark.sql.extensions a.B\nspark.jars.packages  org.example:one:1,\\\n  org.example:two:2\n"
    (tmp_path / "spark-defaults.conf").write_text(text + " spark.sql.catalog.spark_catalog = a.Catalog \n\nspark.x: y z")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert session_module.defaults()["spark.x"] == "y z"
    options = configure(SparkSession.Builder(), packages=["org.example:three:3"])._options
    assert options["spark.jars.packages"].split(",")[1:] == [f"org.example:{name}" for name in ("one:1", "two:2", "three:3")]
    assert options["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"
    assert "spark.sql.catalog.spark_catalog" not in options
    options = configure(SparkSession.Builder().config("spark.jars.packages", "org.example:four:4"))._options
    assert options["spark.jars.packages"].split(",")[1:] == ["org.example:four:4"]
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "none"))
    assert session_module.defaults() == {}


def test_local_workers_run_this_python(monkeypatch):
    """Workers of a local master run this Python, unless the user has set one; nothing is set for a cluster."""
    monkeypatch.setenv("PYSPARK_PYTHON", "python3.11")
    configure(SparkSession.builder.master("local[2]"))
    assert os.environ["PYSPARK_PYTHON"] == "python3.11"
    monkeypatch.delenv("PYSPARK_PYTHON")
    configure(SparkSession.builder.master("spark://example.org:7077"))
    assert "PYSPARK_PYTHON" not in os.environ
    configure(SparkSession.builder.master("local[2]"))
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_local_logs_have_few_partitions(monkeypatch):
    """With a local master a log's state has as many partitions as there are cores; a number that the user set stays."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    key = "spark.databricks.delta.snapshotPartitions"
    assert configure(SparkSession.Builder().master("local[2]"))._options[key] == str(os.cpu_count())
    assert configure(SparkSession.Builder().master("local[2]").config(key, "7"))._options[key] == "7"
    assert key not in configure(SparkSession.Builder().master("spark://example.org:7077"))._options


@pytest.mark.spark
def test_enable_twice_and_disable(session):
    """Enable is idempotent, and disable restores the settings as they were, set or not."""
    before = settings(session)
    enable(session)
    enable(session)
    assert settings(session) == ["100", "true", "false"]
    assert rules(session) == ["delta_variant.SkipFiles", "delta_variant.TypedScans"]
    disable(session)
    assert settings(session) == before
    assert rules(session) == []
    disable(session)
    assert settings(session) == before


@pytest.mark.spark
def test_the_users_limit_stays(session):
    """A number of paths per Variant that the user chose is neither overwritten nor lost."""
    session.conf.set(LIMIT, "7")
    session.conf.set(SETTINGS[2], "true")
    enable(session)
    assert settings(session) == ["7", "true", "false"]
    disable(session)
    assert settings(session) == ["7", None, "true"]


@pytest.mark.spark
def test_what_changed_since_stays(session):
    """Disable restores the settings that are as enable set them, and leaves those that were changed since."""
    before = settings(session)
    enable(session)
    session.conf.set(LIMIT, "5")
    session.conf.unset(SETTINGS[1])
    disable(session)
    assert settings(session) == ["5", None, before[2]]


def nothing_proved(_request):
    return messages.PruneReply(None, (), (), None)


def a_defect(_request):
    raise ValueError("a defect")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("broken", "cause"), [(nothing_proved, r"opened \[2, 2\] of 2 files, and only 1 can match"), (a_defect, "a defect")]
)
def test_a_rule_that_does_not_skip_is_not_installed(session, monkeypatch, broken, cause):
    """Enable tests the rule on a plan of its own; if that fails, the session stays as it was, and the error says why."""
    before = settings(session)
    monkeypatch.setattr(requests, "answer", broken)
    with pytest.raises(SessionError, match=rf"Spark 4\.2.* with Delta 4\.4.*{cause}"):
        enable(session)
    assert (rules(session), settings(session)) == ([], before)


@pytest.mark.spark
def test_the_dsv2_reader_is_named(session):
    """Enable warns of Delta's DSv2 reader if the session reads all tables with it, once; it says nothing of the other modes."""
    for mode in ("NONE", "AUTO"):
        session.conf.set(explanation.READER, mode)
        enable(session)  # a warning would be an error
        disable(session)
    session.conf.set(explanation.READER, "STRICT")
    with pytest.warns(DeltaVariantWarning, match=r"v2\.enableMode is STRICT .* Set it to AUTO .* or NONE") as told:
        enable(session)
    assert [Path(one.filename) for one in told] == [Path(__file__)]
    enable(session)
    assert session.conf.get(explanation.READER) == "STRICT"
    disable(session)


@pytest.mark.spark
def test_one_session_and_its_clones(session):
    """A clone of a session, as a stream gets it, has the rules; another session does not."""
    enable(session)
    assert not explanation.has_rules(session.newSession())
    clone = session._jsparkSession.cloneSession()
    assert clone.experimental().extraOptimizations().size() == 2
    disable(session)


@pytest.mark.spark
def test_other_rules_stay(session):
    """Rules that others put into the session are left where they are."""
    enable(session)
    ours = session._jsparkSession.experimental().extraOptimizations().apply(0)
    disable(session)
    other = jvm.load_class(session, "org.apache.spark.sql.catalyst.optimizer.CombineUnions$").getField("MODULE$").get(None)
    jvm.set_rules(session, [other, ours])
    disable(session)
    assert rules(session) == [other.ruleName()]


@pytest.mark.spark
def test_jvm_values(spark):
    """Python values become Scala collections and options, and classes are found by name."""
    assert jvm.items(jvm.scala_seq(spark, ["a", 2])) == ["a", 2]
    assert jvm.scala_map(spark, {"a": 1}).apply("a") == 1
    assert jvm.scala_option(spark).isEmpty()
    assert jvm.scala_option(spark, "x").get() == "x"
    assert jvm.load_class(spark, "org.apache.spark.sql.delta.DeltaOperations$Write").getSimpleName() == "Write"


@pytest.mark.spark
def test_workers_get_no_jars(spark, monkeypatch):
    """The path of Python workers has what `--py-files` added, and not the JARs of `spark.jars.packages`."""
    monkeypatch.setattr(spark.sparkContext, "_python_includes", ["a.zip", "b.jar", "c.whl", "d.jar"])
    assert list(jvm.python_function(spark, print).pythonIncludes()) == ["a.zip", "c.whl"]


@pytest.mark.spark
def test_classes_of_the_package(spark):
    """A JVM loads the JAR once, however many threads ask for it. Classes are constructed, and singletons found, by name."""
    with ThreadPoolExecutor(4) as pool:
        found = [loaded.loader.hashCode() for loaded in pool.map(lambda _: jvm.loaded(spark), range(4))]
    assert len(set(found)) == 1
    failure = jvm.construct(spark, "Messages$Failure", "TableError", "é")
    text = jvm.companion(spark, "Messages").encoded(failure)
    assert json.loads(text) == {"name": "TableError", "text": "é"}


def test_connect_is_refused():
    """A session without a driver JVM in this process gets one sentence that says what is needed."""

    class Connect:
        """Stands for pyspark.sql.connect.session.SparkSession, which wants a server."""

    for refuse in (enable, disable):
        with pytest.raises(SessionError, match="classic Spark session"):
            refuse(Connect())


@pytest.mark.parametrize(
    ("banner", "message"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "is version 11: install Java 17"),
        ('java version "1.8.0_401"', "is version 8: install Java 17"),
        ("something else", "does not tell its version: install Java 17"),
        ('openjdk version "17.0.15" 2025-04-15', None),
        ('openjdk version "21" 2023-09-19', None),
    ],
)
def test_check_java(tmp_path, monkeypatch, banner, message):
    """A Java that is too old or tells no version is an error that says what to install; 17 and newer pass."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{banner}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if message is None:
        check_java()
    else:
        with pytest.raises(SessionError, match=message):
            check_java()


def test_no_java(tmp_path, monkeypatch):
    """Without Java, the error says what was not found and what to install, whether JAVA_HOME is set or not."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SessionError, match=f"{Path(tmp_path, 'bin', 'java')} was not found: install Java 17"):
        check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SessionError, match="java was not found: install Java 17"):
        check_java()
