"""The command's group: its commands, its help, and how errors end it.

In: arguments. Out: an exit code. 0: done. 1: an error that this package, Spark or Delta explains, or a problem that `doctor`
found. 2: wrong arguments. 3: an error that nobody foresaw. 130: interrupted. An error is one line; `--debug` shows the trace
and Spark's messages.
"""

from __future__ import annotations

import errno
import io
import sys
import traceback
import warnings
from importlib import import_module
from typing import Any

import click

from delta_variant.cli.shared import DEBUG, debug_option, first_line
from delta_variant.errors import DeltaVariantError, DeltaVariantWarning
from delta_variant.version import __version__

SECTIONS = {
    "First": {
        "demo": ("demo", "Write a real feed, and ask it three questions."),
        "doctor": ("doctor", "Check this machine, and suggest a fix for each problem."),
    },
    "Load": {
        "ingest": ("load", "JSON files into a table."),
        "convert": ("load", "Parquet files, or columns of JSON texts, into a table."),
    },
    "Look": {
        "stats": ("look", "The bounds of each path, and how many files a look-up opens."),
        "inspect": ("look", "How many values are in typed columns, and how many in the residual."),
        "explain": ("look", "The files that a query opens, and why."),
    },
    "Improve": {
        "analyze": ("improve", "Bounds, and an index, for files that lack them."),
        "optimize": ("improve", "Cluster files so that look-ups open fewer of them."),
    },
    "Serve": {
        "jar": ("servers", "The JAR for spark-sql, servers, and drivers without Python."),
    },
}
"""The commands in the order of the help: the module that has the command, and one line about it."""

HELP = """Shredded VARIANT columns for PySpark and Delta Lake.

\b
  delta-variant demo
  delta-variant ingest 'logs/*.json.gz' tables/logs
  delta-variant stats tables/logs
  delta-variant explain "SELECT v:msg::string FROM logs WHERE v:id::int = 5" \\
    --table logs=tables/logs
  delta-variant optimize tables/logs --cluster-by v:id

A table is a path with a slash (tables/logs, s3a://lake/logs) or a name in Spark's catalog. A path in a Variant is written with
its column: v:actor.id. Each command has examples: delta-variant COMMAND --help.
"""
EPILOG = """Results go to standard output, as JSON with --json; progress and errors go to standard error.

\b
Exit codes:
  0    done
  1    an error that says what to do, or a problem that doctor found
  2    wrong arguments
  3    an unforeseen error: run the command again with --debug
  130  interrupted
\b
Environment:
  SPARK_MASTER         the master that commands run on; local[*] by default
  DELTA_VARIANT_DEBUG  1: as --debug
"""


class _Group(click.Group):
    """Imports a command when it is called, and ends it with one line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [name for commands in SECTIONS.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        for commands in SECTIONS.values():
            if cmd_name in commands:
                module = import_module(f"delta_variant.cli.{commands[cmd_name][0]}")
                command: click.Command = getattr(module, f"{cmd_name}_command")
                return command
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, line) for name, (_, line) in commands.items()], col_max=10)

    def invoke(self, ctx: click.Context) -> Any:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # names that the encoding of the output lacks
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _warn
                return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            click.echo("Interrupted", err=True)
            ctx.exit(130)
        except Exception as error:  # noqa: BLE001  # what is unforeseen ends in one line too
            if ctx.meta.get(DEBUG):
                traceback.print_exc()
            code, line = told(error)
            click.echo(f"Error: {line}", err=True)
            ctx.exit(code)


def told(error: Exception) -> tuple[int, str]:
    """The exit code for an error, and the line that tells it."""
    pyspark: Any = sys.modules.get("pyspark.errors")
    if isinstance(error, DeltaVariantError):
        return 1, first_line(error)
    if pyspark and isinstance(error, pyspark.PySparkException) and not isinstance(error, pyspark.UnknownException):
        return 1, first_line(error)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return 1, f"{first_line(error)}: make room, or write the output elsewhere"
    return 3, f"{type(error).__name__}: {first_line(error)} (--debug shows the trace)"


def _warn(message: Warning | str, category: type[Warning], *_where: Any, **_more: Any) -> None:
    """Shows warnings of this package as a line; those of other packages are for programmers."""
    if issubclass(category, DeltaVariantWarning):
        click.echo(f"Warning: {message}", err=True)


@click.group(cls=_Group, help=HELP, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@debug_option
@click.version_option(__version__, prog_name="delta-variant")
def main() -> None:
    """The group has no options of its own beside `--debug`, which commands have too."""
