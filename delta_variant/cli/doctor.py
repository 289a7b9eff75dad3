"""The command `doctor`: checks, in the order in which they depend on each other, and what to do about each problem.

In: this machine. Out: one line for each check. A check returns what it found, or raises `_Problem` with what to do. A check
that needs another one is skipped if that one finds a problem. Only the standard library and click are imported with this
module: it must run where PySpark, numba or Delta are missing.
"""

# ruff: noqa: PLC0415 -- see above

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import click

from delta_variant.cli.shared import command, delta_jar, first_line, quiet, started, starting, step
from delta_variant.errors import SessionError
from delta_variant.version import __version__

_DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_REINSTALL = "pip install --force-reinstall delta-variant"

_SLOW = {"kernels", "Spark", "Python workers", "JAR", "rules", "round trip"}


@dataclass(frozen=True)
class Check:
    """What a check found."""

    name: str
    state: Literal["ok", "problem", "skipped"]
    found: str
    advice: str | None = None
    """What to do about a problem."""


class _Problem(Exception):  # noqa: N818  # it ends a check, not the command
    """What is wrong, and what to do."""

    def __init__(self, found: str, advice: str) -> None:
        super().__init__(found)
        self.advice = advice


@dataclass
class _Machine:
    """What the checks share."""

    settings: Mapping[str, str]
    log: Path
    spark: Any = None
    checks: list[Check] = field(default_factory=list)


@command("doctor", "delta-variant doctor", "delta-variant doctor --json > report.json", result="the checks")
@click.pass_context
def doctor_command(context: click.Context, conf: dict[str, str], as_json: bool) -> None:
    """Check Python, packages, Java, Spark, Delta, compiled kernels and classes; write and query a test table;
    suggest a fix for each problem.

    The exit code is 1 if there is a problem. --conf sets Spark's settings for the test session.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="delta-variant-"))
        machine = _Machine(conf, Path(folder, "spark.log"))
        try:
            for name, needs, check in CHECKS:
                _run(machine, name, needs, check)
                if not as_json:
                    _show(machine.checks[-1])
        finally:
            if machine.spark is not None:
                with quiet(machine.log):
                    machine.spark.stop()
    problems = [check for check in machine.checks if check.state == "problem"]
    if as_json:
        about = {"delta_variant": __version__, "python": platform.python_version(), "system": platform.platform()}
        click.echo(json.dumps({"ok": not problems, **about, "checks": [asdict(check) for check in machine.checks]}))
    else:
        click.echo(f"{len(problems)} of {len(machine.checks)} checks found a problem" if problems else "All is well")
    context.exit(1 if problems else 0)


def _run(machine: _Machine, name: str, needs: tuple[str, ...], check: Callable[[_Machine], str]) -> None:
    failed = next((one.name for one in machine.checks if one.name in needs and one.state != "ok"), None)
    if failed:
        machine.checks.append(Check(name, "skipped", f"needs {failed}"))
        return
    shown = {
        "Spark": starting(machine.settings),
        "kernels": "Loading kernels, or compiling them once",
        "JAR": "Loading the JAR, or compiling it once",
    }
    try:
        with step(shown.get(name, f"Checking {name}")) if name in _SLOW else nullcontext():
            machine.checks.append(Check(name, "ok", check(machine)))
    except _Problem as problem:
        machine.checks.append(Check(name, "problem", str(problem), problem.advice))
    except SessionError as error:
        machine.checks.append(Check(name, "problem", " ".join(error.text.split()), error.advice or _REINSTALL))
    except Exception as error:  # noqa: BLE001  # a check of its own kind ends, the others go on
        found = f"{type(error).__name__}: {first_line(error)}"
        machine.checks.append(Check(name, "problem", found, "run delta-variant --debug doctor, and report what it shows"))


def _show(check: Check) -> None:
    colour = {"ok": "green", "problem": "red", "skipped": "yellow"}[check.state]
    advice = f": {check.advice}" if check.advice else ""
    click.echo(f"{click.style(check.state.ljust(8), fg=colour)} {check.name.ljust(15)} {check.found}{advice}")


# ---- without a session -------------------------------------------------------------------------------------------------------


def _python(_machine: _Machine) -> str:
    from packaging.specifiers import SpecifierSet

    found = platform.python_version()
    needed = str(metadata.metadata("delta-variant")["Requires-Python"])
    if not SpecifierSet(needed).contains(found, prereleases=True):
        raise _Problem(f"{found}, and delta-variant needs {needed}", "make a virtual environment with such a Python")
    return f"{found}, {sys.executable}"


def _packages(_machine: _Machine) -> str:
    from packaging.requirements import Requirement

    installed = metadata.version("delta-variant")
    if installed != __version__:
        raise _Problem(f"delta-variant is {__version__} here and {installed} in its metadata", _REINSTALL)
    wrong, right = [], []
    for requirement in map(Requirement, metadata.requires("delta-variant") or []):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        if requirement.specifier.contains(version, prereleases=True):
            right.append(f"{requirement.name} {version}")
        else:
            wrong.append(f"{requirement.name} is {version}, not {requirement.specifier}")
    if wrong:
        raise _Problem(", ".join(wrong), _REINSTALL)
    return ", ".join([f"delta-variant {__version__}", *right])


def _pair(machine: _Machine) -> str:
    from delta_variant import pairs

    try:
        import pyspark
    except ImportError:
        raise _Problem("there is no PySpark", pairs.EXTRA) from None
    from delta_variant.session import defaults

    python = pairs.installed("delta-spark")
    found = f"pyspark {pyspark.__version__}, {'no delta-spark' if python is None else f'delta-spark {python}'}"
    delta = pairs.delta({**defaults(), **machine.settings})
    if isinstance(delta, str):
        pairs.is_newer(pyspark.__version__, delta.rsplit(":", 1)[1])
    return f"{found}, Delta's JAR {'that fits is' if isinstance(delta, str) else 'is on the class path:'} {delta}"


def _java(_machine: _Machine) -> str:
    from delta_variant.session import check_java

    return check_java()


def _kernel_cache(_machine: _Machine) -> str:
    from delta_variant.kernels import compiler, texts  # noqa: F401  # a kernel

    place = compiler.cache_directory()
    if place is None:
        raise _Problem(
            "no directory can be written to, so each Python worker compiles the kernels again",
            "set NUMBA_CACHE_DIR to a directory that you own, on the driver and the executors",
        )
    return place


def _kernels(_machine: _Machine) -> str:
    from delta_variant.cli.feed import SHAPE, documents
    from delta_variant.cli.kernels import compiled

    kernels = compiled(documents(), SHAPE)
    if kernels.compiled:
        return f"{kernels.compiled} compiled now, in {kernels.seconds:.0f} s, for later use; {kernels.loaded} loaded"
    return f"{kernels.loaded} loaded in {kernels.seconds:.1f} s"


# ---- the session -------------------------------------------------------------------------------------------------------------


def _spark(machine: _Machine) -> str:
    jar = delta_jar(machine.settings)
    try:
        machine.spark = started("doctor", machine.settings, machine.log)
    except SessionError as error:
        found = first_line(error).removesuffix(": ask delta-variant doctor")
        log = machine.log.read_text(errors="replace") if machine.log.exists() else ""
        if "unresolved dependency" in log or "UNRESOLVED DEPENDENCIES" in log:
            raise _Problem(
                "Delta's JARs cannot be downloaded",
                "allow access to Maven Central, name a mirror (--conf spark.jars.repositories=URL, or a file for "
                "spark.jars.ivySettings), or copy the directory ~/.ivy2.5.2 from a machine that has them",
            ) from error
        raise _Problem(found, "run delta-variant --debug doctor to see Spark's messages") from error
    return f"{machine.spark.version}, master {machine.spark.sparkContext.master}, Delta's JAR {jar or 'downloaded now'}"


def _delta(machine: _Machine) -> str:
    from delta_variant import jvm, pairs

    version = jvm.versions(machine.spark)[1]
    if version is None:
        raise _Problem("the session has no Delta Lake", "make sessions with delta_variant.configure(SparkSession.builder)")
    python = pairs.installed("delta-spark")
    if python not in (None, version):
        raise _Problem(
            f"the session has Delta {version}, and the Python package is delta-spark {python}",
            "leave Delta's JAR to delta_variant.configure: take it from spark.jars, spark.jars.packages and the class path",
        )
    return version


def _extension(machine: _Machine) -> str:
    key = "spark.sql.extensions"
    value = machine.spark.conf.get(key, "")
    if _DELTA_EXTENSION not in value:
        raise _Problem(f"{key} is {value!r}", f"add {_DELTA_EXTENSION}, as delta_variant.configure does")
    return str(value)


def _catalog(machine: _Machine) -> str:
    key = "spark.sql.catalog.spark_catalog"
    value = machine.spark.conf.get(key, "")
    if value != _DELTA_CATALOG:
        raise _Problem(f"{key} is {value!r}, so names of tables may not find Delta tables", f"set it to {_DELTA_CATALOG}")
    return str(value)


def _workers(machine: _Machine) -> str:
    here = platform.python_version_tuple()[:2]
    python = os.environ.get("PYSPARK_PYTHON", "python3")
    advice = f"set PYSPARK_PYTHON to a Python {'.'.join(here)} that has delta-variant {__version__}, on every executor"
    try:
        [(executable, version)] = machine.spark.sparkContext.parallelize([0], 1).map(_about).collect()
    except Exception as error:
        text = str(error)
        lines = [line.strip() for line in text.splitlines() if "Error: " in line or "Exception: " in line or "MISMATCH" in line]
        raise _Problem(f"Python workers ({python}) fail: {lines[-1] if lines else first_line(error)}", advice) from error
    if version != __version__:
        raise _Problem(f"Python workers ({executable}) have delta-variant {version}", advice)
    return f"{executable}, delta-variant {version}"


def _about(_row: int) -> tuple[str, str]:
    return sys.executable, __version__


class _Echo:
    """A Python object that the JVM calls."""

    def apply(self, text: str) -> str:
        return f"{text} heard"

    class Java:
        implements = ("java.util.function.UnaryOperator",)


def _callbacks(machine: _Machine) -> str:
    from py4j.protocol import Py4JError

    from delta_variant import jvm

    try:
        jvm.start_callbacks(machine.spark)
        heard = jvm.static(machine.spark, "java.util.Optional").of("call").map(_Echo()).get()
    except (Py4JError, OSError) as error:
        raise _Problem(
            f"the JVM cannot call Python: {first_line(error)}",
            "let processes of this machine connect to each other on 127.0.0.1, or start the session anew",
        ) from error
    port = machine.spark.sparkContext._gateway.get_callback_server().get_listening_port()  # noqa: SLF001  # no public name
    return f"the JVM calls Python on port {port}: {heard}"


def _jar(machine: _Machine) -> str:
    from delta_variant import jvm

    jar = jvm.loaded(machine.spark).jar
    return f"{jar.path}, " + ("found" if jar.seconds is None else f"compiled now, in {jar.seconds:.0f} s, for later use")


def _rules(machine: _Machine) -> str:
    from delta_variant.session import enable

    enable(machine.spark)
    return "a test query skips the file that it should"


def _round_trip(machine: _Machine) -> str:
    from delta_variant.session import round_trip

    return f"{round_trip(machine.spark)} files written, 1 of them opened by a query"


CHECKS: tuple[tuple[str, tuple[str, ...], Callable[[_Machine], str]], ...] = (
    ("Python", (), _python),
    ("packages", (), _packages),
    ("PySpark", (), _pair),
    ("Java", ("PySpark",), _java),
    ("kernel cache", (), _kernel_cache),
    ("kernels", ("kernel cache",), _kernels),
    ("Spark", ("packages", "PySpark", "Java"), _spark),
    ("Delta Lake", ("Spark",), _delta),
    ("SQL extension", ("Spark",), _extension),
    ("catalog", ("Spark",), _catalog),
    ("Python workers", ("Spark",), _workers),
    ("callbacks", ("Spark",), _callbacks),
    ("JAR", ("Spark", "Delta Lake"), _jar),
    ("rules", ("Spark", "callbacks", "JAR"), _rules),
    ("round trip", ("Spark", "Delta Lake", "SQL extension", "catalog", "Python workers", "rules"), _round_trip),
)
"""Name, the checks that must be ok before it, and the function."""
