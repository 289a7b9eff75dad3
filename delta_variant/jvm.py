"""The bridge to the driver's JVM: everything that depends on py4j's internals is here.

In: a classic Spark session and Python values. Out: JVM objects. Each call crosses a socket and takes about 0.2 ms, so these
functions are not for loops over files; `items` and `scala_seq` are for the arguments of one call.

Invariant: the Java sources in `delta_variant/java` are compiled once per JVM, by the Janino compiler that Spark ships, with
the class loader that sees the JARs of `spark.jars.packages`. A restarted SparkContext in the same JVM finds the classes; a
new JVM compiles them again.
"""

# ruff: noqa: SLF001 -- PySpark gives no public way to its JVM

from __future__ import annotations

import threading
import weakref
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark.core.rdd import _wrap_function
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame

from delta_variant.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

# gateway -> names -> class loader; a gateway stands for one JVM
_compiled: weakref.WeakKeyDictionary[Any, dict[tuple[str, ...], Any]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()
_PYTHON_UTILS = "org.apache.spark.api.python.PythonUtils"


def classic(spark: SparkSession) -> SparkSession:
    """The session given, when it is a classic one that runs; SessionError otherwise."""
    session = getattr(spark, "_jsparkSession", None)
    if session is None:
        raise SessionError(
            f"{type(spark).__module__}.{type(spark).__name__} has no driver JVM in this process: delta-variant needs a "
            "classic Spark session (SparkSession.builder.master(...), not .remote(...))"
        )
    if spark.sparkContext._jsc is None:
        raise SessionError("this Spark session has been stopped: get a new one with SparkSession.builder.getOrCreate()")
    return spark


def scala_seq(spark: SparkSession, values: Iterable[Any]) -> Any:
    """A Scala immutable Seq of the values; one call per value."""
    return static(spark, _PYTHON_UTILS).toSeq(list(values))


def scala_map(spark: SparkSession, mapping: Mapping[str, Any]) -> Any:
    """A Scala immutable Map; one call per entry."""
    return static(spark, _PYTHON_UTILS).toScalaMap(dict(mapping))


def option(spark: SparkSession, value: Any = None) -> Any:
    """Some(value), or Scala's None."""
    return static(spark, "scala.Option").apply(value)


def items(seq: Any) -> list[Any]:
    """The elements of a Scala Seq, one call each: for small sequences only."""
    return [seq.apply(i) for i in range(seq.size())]


def versions(spark: SparkSession) -> tuple[str, str | None]:
    """The versions of Spark and of Delta Lake in the JVM; None for Delta where the session does not have it."""
    try:
        delta = load_class(spark, "io.delta.package$").getField("MODULE$").get(None).VERSION()
    except Py4JJavaError:
        delta = None
    return spark.version, delta


def static(spark: SparkSession, name: str) -> JavaClass:
    """A Java class by its name, for its static methods and its constructor.

    The dotted way through py4j's packages asks the JVM at every dot, which looks for a class of that name in every JAR.
    """
    gateway: Any = classic(spark).sparkContext._gateway
    return JavaClass(name, gateway._gateway_client)


def data_type(spark: SparkSession, kind: DataType) -> Any:
    """The JVM's DataType."""
    return static(spark, "org.apache.spark.sql.types.DataType").fromJson(kind.json())


def data_frame(spark: SparkSession, plan: Any) -> DataFrame:
    """A DataFrame of the session over a logical plan."""
    return DataFrame(static(spark, "org.apache.spark.sql.classic.Dataset").ofRows(spark._jsparkSession, plan), spark)


def python_function(spark: SparkSession, function: Callable[[int, Iterator[bytes]], Iterator[bytes]]) -> Any:
    """A function for a PythonRDD: from the number of a task and its byte arrays to byte arrays."""
    return _wrap_function(spark.sparkContext, function, NoOpSerializer(), NoOpSerializer())


def load_class(spark: SparkSession, name: str) -> Any:
    """The java.lang.Class of that binary name (`a.b.C$D`), JARs of `spark.jars.packages` included."""
    return _loader(spark).loadClass(name)


def java_class(spark: SparkSession, *names: str) -> Any:
    """The java.lang.Class `delta_variant.<last name>`, compiled once per JVM from `delta_variant/java/<name>.java`.

    Several names: each file is compiled against those before it.
    """
    gateway = spark.sparkContext._gateway
    with _lock:
        loaders = _compiled.setdefault(gateway, {(): _loader(spark)})
        for count, name in enumerate(names, 1):
            if names[:count] not in loaders:
                compiler = static(spark, "org.codehaus.janino.SimpleCompiler")()
                compiler.setParentClassLoader(loaders[names[: count - 1]])
                compiler.cook(java_source(name))
                loaders[names[:count]] = compiler.getClassLoader()
        return loaders[names].loadClass(f"delta_variant.{names[-1]}")


def java_source(name: str) -> str:
    """The text of `delta_variant/java/<name>.java`."""
    return files("delta_variant").joinpath("java").joinpath(f"{name}.java").read_text(encoding="utf-8")


def construct(spark: SparkSession, java_class: Any, *arguments: Any) -> Any:
    """A new object of a java.lang.Class by its first public constructor."""
    values = static(spark, "java.util.ArrayList")()
    for argument in arguments:
        values.add(argument)
    return java_class.getConstructors()[0].newInstance(values.toArray())


def rules(spark: SparkSession) -> list[Any]:
    """The optimizer rules that were added to the session, in their order. Raises SessionError on Spark Connect."""
    return items(classic(spark)._jsparkSession.experimental().extraOptimizations())


def set_rules(spark: SparkSession, rules: list[Any]) -> None:
    """Replaces the optimizer rules that were added to the session."""
    experimental = spark._jsparkSession.experimental()
    getattr(experimental, "extraOptimizations_$eq")(scala_seq(spark, rules))


def start_callbacks(spark: SparkSession) -> None:
    """Let the JVM call Python objects that have a `Java` class with `implements`; does nothing the second time."""
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]


def _loader(spark: SparkSession) -> Any:
    return static(spark, "java.lang.Thread").currentThread().getContextClassLoader()
