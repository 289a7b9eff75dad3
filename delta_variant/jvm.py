"""The bridge to the driver's JVM: everything that depends on py4j's internals is here.

In: a classic Spark session and Python values. Out: JVM objects. Each call crosses a socket and takes about 0.2 ms, so these
functions are not for loops over files; `items` and `scala_seq` are for the arguments of one call.

The package's own classes are in a JAR (`jars`). The first call of `construct` or `companion` in a JVM loads it, by a class
loader whose parent sees the JARs of `spark.jars.packages`.

Invariant: a JVM loads one JAR, however many threads ask for it. A restarted SparkContext in the same JVM has the same classes.
"""

# ruff: noqa: SLF001 -- PySpark gives no public way to its JVM

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import RDD
from pyspark.core.rdd import _wrap_function
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.serializers import CPickleSerializer, NoOpSerializer
from pyspark.sql import DataFrame, SparkSession

from delta_variant import jars
from delta_variant.errors import SessionError, TableError
from delta_variant.version import __version__

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_loaded: weakref.WeakKeyDictionary[Any, Loaded] = weakref.WeakKeyDictionary()
"""By gateway, which stands for one JVM."""
_lock = threading.Lock()
_patching = threading.Lock()
# The traceback of a Python worker in which this package, or a module of it, cannot be imported.
_NOT_LOADED = re.compile(
    r"^(?:ModuleNotFoundError|ImportError|AttributeError: Can't get attribute)[^\n]*\bdelta_variant\b"
    r'|File "[^"\n]*\bdelta_variant[/\\][^"\n]*", line \d+, in <module>\n',
    re.MULTILINE,
)
PACKAGE = "org.apache.spark.sql.delta.variant"
SHIPPING = (
    "install the same version in the executors' Python, which PYSPARK_PYTHON names, or ship it with the job: the wheel, "
    "renamed to .zip, by --py-files, or a whole environment by --archives (docs/how-to/cluster.md)"
)
NO_DELTA = "this session has no Delta Lake: make it with delta_variant.configure(SparkSession.builder).getOrCreate()"
_PYTHON_UTILS = "org.apache.spark.api.python.PythonUtils"


@dataclass(frozen=True)
class Loaded:
    """This package's classes in a JVM."""

    jar: jars.Jar
    loader: Any
    """Their class loader."""


def classic(spark: SparkSession) -> SparkSession:
    """Returns the session if it is a classic one that is running. Raises SessionError otherwise."""
    session = getattr(spark, "_jsparkSession", None)
    if session is None:
        raise SessionError(
            f"{type(spark).__module__}.{type(spark).__name__} has no driver JVM in this process: delta-variant needs a "
            "classic Spark session (SparkSession.builder.master(...), not .remote(...))"
        )
    if spark.sparkContext._jsc is None:
        raise SessionError("this Spark session has been stopped: get a new one with SparkSession.builder.getOrCreate()")
    return spark


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Sets session settings for the duration of a `with` block, and restores or unsets them afterwards."""
    before = {key: spark.conf.get(key, None) for key in values}
    try:
        for key, value in values.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            spark.conf.unset(key) if old is None else spark.conf.set(key, old)


def python_session(spark: SparkSession, java: Any) -> SparkSession:
    """A session of the JVM in which `spark` is, as one of Python."""
    with _patching:
        to_df = RDD.toDF  # which every new session replaces
        session = SparkSession(spark.sparkContext, java)
        RDD.toDF = to_df  # type: ignore[method-assign]
    return session


@contextmanager
def cloned_session(spark: SparkSession) -> Iterator[SparkSession]:
    """A clone of the session, with settings of its own, that is the active session of this thread in a `with` block.

    It starts with the session's settings, temporary views, functions and optimizer rules. `interruptAll` of the session ends
    the jobs of the clone, too.
    """
    clone = python_session(spark, classic(spark)._jsparkSession.cloneSession())
    sessions, context = static(spark, "org.apache.spark.sql.classic.SparkSession"), spark.sparkContext
    before, tag = sessions.getActiveSession(), spark._jsparkSession.sessionJobTag()
    is_new = tag not in context.getJobTags()
    context.addJobTag(tag)
    sessions.setActiveSession(clone._jsparkSession)
    try:
        yield clone
    finally:
        if is_new:
            context.removeJobTag(tag)
        sessions.setActiveSession(before.get()) if before.isDefined() else sessions.clearActiveSession()


@contextmanager
def delta_errors(doing: str) -> Iterator[None]:
    """Turns exceptions of Delta and Spark on the driver into TableErrors that have `doing` and their message."""
    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise TableError(f"{doing} failed: {message(error)}") from error


def message(error: Exception) -> str:
    """The message of an exception of the JVM or of a Python worker, without its stack trace."""
    cause = getattr(error, "java_exception", None)
    return cleaned(str(error) if cause is None else str(cause.getMessage() or cause))


def cleaned(text: str) -> str:
    """The message of an exception without its stack trace."""
    text = re.split("\n\nJVM stacktrace:|\n\tat |;\n'", text, maxsplit=1)[0].strip()  # the last begins a plan
    return not_loaded(text) or text


def not_loaded(text: str) -> str | None:
    """Advice, if a text has the traceback of a Python worker that could not load this package; else None."""
    if not _NOT_LOADED.search(text):
        return None
    return f"the executors cannot load delta-variant {__version__}, which the driver runs ({raised(text)}): {SHIPPING}"


def raised(text: str) -> str:
    """The error of a Python worker, without its traceback and what Spark adds to it."""
    return [line for line in text.splitlines() if line.strip() and not line[0].isspace()][-1]


def scala_seq(spark: SparkSession, values: Iterable[Any]) -> Any:
    """A Scala immutable Seq of the values, by one call for each value."""
    return static(spark, _PYTHON_UTILS).toSeq(list(values))


def scala_map(spark: SparkSession, mapping: Mapping[str, Any]) -> Any:
    """A Scala immutable Map, by one call for each entry."""
    return static(spark, _PYTHON_UTILS).toScalaMap(dict(mapping))


def scala_option(spark: SparkSession, value: Any = None) -> Any:
    """Scala's Some(value), or its None for None."""
    return static(spark, "scala.Option").apply(value)


def items(seq: Any) -> list[Any]:
    """The elements of a Scala Seq, by one call for each: for small sequences only."""
    return [seq.apply(i) for i in range(seq.size())]


def versions(spark: SparkSession) -> tuple[str, str | None]:
    """The versions of Spark and of Delta Lake in the JVM; None for Delta if the session does not have it."""
    try:
        delta = scala_object(spark, "io.delta.package").VERSION()
    except Py4JJavaError:
        delta = None
    return spark.version, delta


def static(spark: SparkSession, name: str) -> JavaClass:
    """A Java class by its name, for its static methods and its constructor.

    `_jvm.org.apache…` would be slower: py4j asks the JVM at every dot, and the JVM looks for a class of that name in every JAR.
    """
    gateway: Any = classic(spark).sparkContext._gateway
    return JavaClass(name, gateway._gateway_client)


def data_type(spark: SparkSession, kind: DataType) -> Any:
    """A Spark type as the DataType of the JVM."""
    return static(spark, "org.apache.spark.sql.types.DataType").fromJson(kind.json())


def data_frame(spark: SparkSession, plan: Any) -> DataFrame:
    """A DataFrame of the session over a logical plan."""
    return DataFrame(static(spark, "org.apache.spark.sql.classic.Dataset").ofRows(spark._jsparkSession, plan), spark)


def python_function(spark: SparkSession, function: Callable[[int, Iterator[bytes]], Iterator[bytes]]) -> Any:
    """A Python function for a PythonRDD. It takes the number of a task and its byte arrays, and yields byte arrays.

    Workers get no JARs. PySpark puts those of `spark.jars.packages` on their path, and Python reads the directory of each in
    each new worker, which takes 0.27 s for Delta's.
    """
    found: Any = _wrap_function(spark.sparkContext, function, NoOpSerializer(), NoOpSerializer())
    found.pythonIncludes().retainAll([name for name in spark.sparkContext._python_includes or () if not name.endswith(".jar")])
    return found


def pickled(function: Callable[[int, Iterator[bytes]], Iterator[bytes]]) -> bytes:
    """A function for `python_function` as Python workers get it: the command of a PythonFunction."""
    serializer = NoOpSerializer()
    return bytes(CPickleSerializer().dumps((function, None, serializer, serializer)))  # type: ignore[no-untyped-call]


def load_class(spark: SparkSession, name: str) -> Any:
    """The java.lang.Class of a binary name (`a.b.C$D`), including classes in JARs of `spark.jars.packages`."""
    return _loader(spark).loadClass(name)


def scala_object(spark: SparkSession, name: str) -> Any:
    """A Scala singleton object by its full name, including those in JARs of `spark.jars.packages`."""
    return _singleton(_loader(spark), name)


def construct(spark: SparkSession, name: str, *arguments: Any) -> Any:
    """A new object of one of this package's classes (`SkipFiles`), by its only public constructor. Raises SessionError as
    `loaded`."""
    values = static(spark, "java.util.ArrayList")()
    for argument in arguments:
        values.add(argument)
    return loaded(spark).loader.loadClass(f"{PACKAGE}.{name}").getConstructors()[0].newInstance(values.toArray())


def companion(spark: SparkSession, name: str) -> Any:
    """One of this package's Scala singleton objects (`AddFiles`). Raises SessionError as `loaded`."""
    return _singleton(loaded(spark).loader, f"{PACKAGE}.{name}")


def loaded(spark: SparkSession) -> Loaded:
    """This package's classes, from a JAR that is compiled if there is none.

    Raises SessionError if the session has no Delta Lake, and if the sources do not compile against its Spark and Delta.
    """
    gateway: Any = classic(spark).sparkContext._gateway
    with _lock:
        if gateway not in _loaded:
            _loaded[gateway] = Loaded(*_classes(spark))
        return _loaded[gateway]


def is_loaded(spark: SparkSession) -> bool:
    """Whether the JVM has this package's classes, by this process or by a JAR of the session."""
    return classic(spark).sparkContext._gateway in _loaded or _own_jar(spark) is not None


def rules(spark: SparkSession) -> list[Any]:
    """The optimizer rules that were added to the session, in order. Raises SessionError on Spark Connect."""
    return items(classic(spark)._jsparkSession.experimental().extraOptimizations())


def set_rules(spark: SparkSession, rules: list[Any]) -> None:
    """Replaces the optimizer rules that were added to the session."""
    experimental = spark._jsparkSession.experimental()
    getattr(experimental, "extraOptimizations_$eq")(scala_seq(spark, rules))


def start_callbacks(spark: SparkSession) -> None:
    """Lets the JVM call Python objects that have a class `Java` with `implements`. A second call does nothing."""
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]


def _loader(spark: SparkSession) -> Any:
    """The class loader that sees the JARs of `spark.jars.packages`."""
    return static(spark, "java.lang.Thread").currentThread().getContextClassLoader()


def _classes(spark: SparkSession) -> tuple[jars.Jar, Any]:
    """The JAR and the class loader of this package's classes. A JAR that the session brings (`--jars`) is used if it has these
    sources and versions, and hidden if not."""
    gateway: Any = spark.sparkContext._gateway
    versions, own = _versions(spark), _own_jar(spark)
    if own is not None and own[1] == (jars.digest(), versions.spark, versions.delta):
        return jars.Jar(own[0]), _loader(spark)
    jar = jars.found(versions) or jars.compiled(versions, *_compiler(spark))
    urls = gateway.new_array(static(spark, "java.net.URL"), 1)
    urls[0] = static(spark, "java.io.File")(str(jar.path)).toURI().toURL()
    kind = "java.net.URLClassLoader" if own is None else "org.apache.spark.util.ChildFirstURLClassLoader"
    return jar, static(spark, kind)(urls, _loader(spark))


def _own_jar(spark: SparkSession) -> tuple[Path, tuple[str, ...]] | None:
    """The JAR of this package on the session's class path, with the digest of its sources and the versions that it is for."""
    loader = _loader(spark)
    try:
        place = loader.loadClass(f"{PACKAGE}.Extensions").getProtectionDomain().getCodeSource().getLocation()
    except Py4JJavaError:
        return None
    found = _singleton(loader, f"{PACKAGE}.Resources").constants()
    return Path(static(spark, "java.io.File")(place.toURI()).getPath()), (found.digest(), found.spark(), found.delta())


def _singleton(loader: Any, name: str) -> Any:
    return loader.loadClass(f"{name}$").getField("MODULE$").get(None)


def _versions(spark: SparkSession) -> jars.Versions:
    found, delta = versions(spark)
    if delta is None:
        raise SessionError(NO_DELTA)
    return jars.Versions(found, delta, static(spark, "scala.util.Properties").versionNumberString())


def _compiler(spark: SparkSession) -> tuple[Path, list[str]]:
    """The driver's Java, and the class path for the compiler: that of the JVM, and the JARs of its class loaders."""
    system = static(spark, "java.lang.System")
    home, here = Path(system.getProperty("java.home")), system.getProperty("user.dir")
    entries = str(system.getProperty("java.class.path")).split(system.getProperty("path.separator"))
    with_urls, file = load_class(spark, "java.net.URLClassLoader"), static(spark, "java.io.File")
    loader = _loader(spark)
    while with_urls.isInstance(loader):
        entries += [file(url.toURI()).getPath() for url in loader.getURLs() if url.getProtocol() == "file"]
        loader = loader.getParent()
    return home / "bin" / "java", [str(Path(here, entry)) for entry in entries if entry]
