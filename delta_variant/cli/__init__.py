"""The command `delta-variant`: what the package does, from a shell.

    group    the command itself: which commands there are, and what becomes of their errors
    shared   what all commands use: options, a session, progress, tables of text
    demo     a real feed, written and queried; `feed` has its data, `picture` draws ranges as text
    doctor   checks the machine and the session; `kernels` compiles the codec
    load     ingest, convert
    look     stats, inspect, explain
    improve  analyze, optimize
    servers  jar

Results go to standard output, progress and errors to standard error. A module is imported when one of its commands is called,
so that `--help` is quick and `doctor` runs where PySpark does not.
"""

from delta_variant.cli.group import main

__all__ = ["main"]
