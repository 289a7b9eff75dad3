"""What all commands share: options, a Spark session, progress, and tables of text.

The messages of a session's JVM and of its Python workers go to a temporary file, and with `--debug` to standard error. Modules
that need PySpark are imported inside functions, since `--help` and `doctor` must work without it.
"""

# ruff: noqa: PLC0415 -- see above

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from delta_variant.errors import SessionError

if TYPE_CHECKING:
    from delta_variant.table import VariantTable

DEBUG = "delta_variant.debug"
"""The key under which click's contexts keep whether `--debug` was given."""


def _remember(context: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        context.meta[DEBUG] = True


debug_option = click.option(
    "--debug", is_flag=True, envvar="DELTA_VARIANT_DEBUG", expose_value=False, is_eager=True, callback=_remember,
    help="Show the trace of an error, and Spark's messages.",
)  # fmt: skip


def pairs(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """The values of an option that is given as name=value, any number of times."""
    for text in texts:
        if "=" not in text:
            raise click.BadParameter(f"{text} is not name=value")
    return dict(text.split("=", 1) for text in texts)


_conf_option = click.option("--conf", multiple=True, callback=pairs, help="A setting of Spark's: name=value.")


def command(name: str, *examples: str, result: str = "the result") -> Callable[[Callable[..., None]], click.Command]:
    """A decorator that makes a command with examples in its help, and with the options that all commands have."""
    epilog = "\b\n" + "\n".join(["Examples:", *(f"  {example}" for example in examples)])
    json_option = click.option("--json", "as_json", is_flag=True, help=f"Print {result} as JSON.")

    def decorate(function: Callable[..., None]) -> click.Command:
        return click.command(name, epilog=epilog)(_conf_option(json_option(debug_option(function))))

    return decorate


# ---- errors ------------------------------------------------------------------------------------------------------------------


def is_debug() -> bool:
    """Whether `--debug` was given, to the group or to the command."""
    return bool(click.get_current_context().meta.get(DEBUG))


def first_line(error: Exception) -> str:
    """An error in one line: the first one of its message, or the first two if the first one ends with a colon."""
    text = str(error)
    if "py4j" in sys.modules and type(error).__module__.startswith("py4j"):
        from delta_variant import jvm

        text = jvm.message(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    return " ".join(lines[:2] if lines[0].endswith(":") else lines[:1])


# ---- the session -------------------------------------------------------------------------------------------------------------


@contextmanager
def running(name: str, settings: Mapping[str, str], log_file: Path | None = None) -> Iterator[Any]:
    """Starts Spark for a command, yields the session, and stops it.

    log_file: for Spark's messages, by default a temporary one. Raises SessionError if Java is missing or Spark does not
    start.
    """
    from delta_variant.session import check_java

    check_java()
    with tempfile.TemporaryDirectory(prefix="delta-variant-") as folder:
        file = log_file or Path(folder, "spark.log")
        with step(starting(settings)):
            spark = started(name, settings, file)
        try:
            yield spark
        finally:
            with quiet(file):
                spark.stop()


def started(name: str, settings: Mapping[str, str], log_file: Path) -> Any:
    """A session whose messages go to a file. Raises SessionError, with what the file says, if Spark does not start."""
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    from delta_variant.session import configure

    if not is_debug():  # PySpark would print every error of Spark with its trace, handled or not
        PySparkLogger.getLogger("SQLQueryContextLogger").setLevel("CRITICAL")

    builder = (
        SparkSession.builder.appName(f"delta-variant {name}")
        .master(os.environ.get("SPARK_MASTER", "local[*]"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with quiet(log_file):
            spark = configure(builder).getOrCreate()
    except Exception as error:
        raise SessionError(
            f"Spark did not start: {_reason(log_file) or first_line(error)}: ask delta-variant doctor"
        ) from error
    spark.sparkContext.setLogLevel("WARN" if is_debug() else "ERROR")
    return spark


def _reason(log_file: Path) -> str | None:
    """The exception that ended a JVM, by its messages."""
    lines = log_file.read_text(errors="replace").splitlines() if log_file.exists() else []
    return next((line.split(" ", 4)[-1] for line in lines if line.startswith("Exception in thread")), None)


def delta_jar(settings: Mapping[str, str]) -> Path | None:
    """Delta's JAR on the class path, or in Ivy's cache, to which Spark downloads it. None if it is not there yet.

    Raises SessionError if there is none for the installed versions.
    """
    from delta_variant import pairs
    from delta_variant.session import defaults

    delta = pairs.delta({**defaults(), **settings})
    if isinstance(delta, Path):
        return delta
    _, name, version = delta.split(":")
    folders = [Path(settings["spark.jars.ivy"])] if "spark.jars.ivy" in settings else list(Path.home().glob(".ivy2*"))
    return next((file for folder in folders for file in folder.glob(f"jars/io.delta_{name}-{version}.jar")), None)


def starting(settings: Mapping[str, str]) -> str:
    """The line that is shown while Spark starts."""
    return "Starting Spark" if delta_jar(settings) else "Starting Spark, which downloads Delta's JARs once (90 MB)"


@contextmanager
def quiet(log_file: Path) -> Iterator[None]:
    """Sends the standard streams of this process, and of a JVM that it starts, to a file; with `--debug`, to standard error.

    Ivy writes to standard output, which is for results.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(stream) for stream in (1, 2)]
    with log_file.open("ab") as file:
        target = kept[1] if is_debug() else file.fileno()
        for stream in (1, 2):
            os.dup2(target, stream)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for stream, own in zip((1, 2), kept, strict=True):
            os.dup2(own, stream)
            os.close(own)


def table_of(spark: Any, table: str) -> VariantTable:
    """The table that an argument names."""
    from delta_variant.table import VariantTable

    return VariantTable.forPath(spark, table) if "/" in table else VariantTable.forName(spark, table)


# ---- progress and results ----------------------------------------------------------------------------------------------------


@contextmanager
def step(what: str) -> Iterator[Callable[[str], None]]:
    """Shows a line while a step runs, and how long it took. Yields a function that shows how far it is."""
    done, start = threading.Event(), time.monotonic()
    state = [what]
    terminal = os.fdopen(os.dup(2), "w") if sys.stderr.isatty() and not is_debug() else None

    def turn() -> None:
        for symbol in itertools.cycle("|/-\\"):
            if terminal is None or done.wait(0.2):
                return
            terminal.write(f"\r\033[K{symbol} {state[0]} … {time.monotonic() - start:.0f} s ")
            terminal.flush()

    thread = threading.Thread(target=turn, daemon=True)
    if terminal is None:
        click.echo(f"{what} …", err=True)
    thread.start()

    def show(how_far: str) -> None:
        state[0] = f"{what}: {how_far}"
        if terminal is None:
            click.echo(state[0], err=True)

    try:
        yield show
    finally:
        done.set()
        thread.join()
        if terminal is not None:
            terminal.write(f"\r\033[K{what}: {time.monotonic() - start:.1f} s\n")
            terminal.close()


def aligned(rows: Sequence[Mapping[str, Any]], indent: str = "") -> str:
    """Rows as lines of text with a header. Numbers are to the right; None is empty."""
    if not rows:
        return ""
    cells = [list(rows[0]), *(["" if value is None else _shown(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [all(row[name] is None or _is_number(row[name]) for row in rows) for name in rows[0]]
    lines = ("  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)) for line in cells)
    return "\n".join((indent + line).rstrip() for line in lines)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
