"""The commands that look at tables and queries: stats, inspect, explain. They change nothing."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from delta_variant.cli.shared import aligned, command, pairs, running, step, table_of
from delta_variant.errors import TableError
from delta_variant.explanation import Report, explain, query
from delta_variant.parquet import inspect
from delta_variant.paths import dotted, normalized, parse_bounded_path, parse_normalized, quoted, steps
from delta_variant.session import enable

# ---- stats -------------------------------------------------------------------------------------------------------------------


@command(
    "stats",
    "delta-variant stats tables/events",
    "delta-variant stats tables/events --path v:actor.id --files",
    "delta-variant stats tables/events --where \"day >= '2026-11-01'\" --json",
    result="each line",
)
@click.argument("table")
@click.option("--path", "paths", multiple=True, help="A path to show, such as v:actor.id; by default all.")
@click.option("--where", help="A predicate on partition columns, which chooses files.")
@click.option("--files", "by_file", is_flag=True, help="A line for each file and path.")
def stats_command(
    table: str, paths: tuple[str, ...], where: str | None, by_file: bool, conf: dict[str, str], as_json: bool,
) -> None:  # fmt: skip
    """Show the bounds of each path in the log: its type, its range, how many files have bounds, and how many a look-up opens.

    TABLE: a path with a slash, or the name of a table. A look-up opens few files if the files' ranges overlap little; optimize
    --cluster-by reduces the overlap for a path. The number is the median over the smallest and largest values of the files.
    """
    chosen = [parse_bounded_path(path) for path in paths]
    with running("stats", conf) as spark, step("Reading the log"):
        looked_at = table_of(spark, table)
        rows = _rows(looked_at.stats(where) if by_file else looked_at.summary(where), chosen)
    for row in rows:
        row["path"] = _written(row.pop("column"), row["path"])
    order = ["path", "type", "min", "max", *(["file", "source"] if by_file else ["files", "files_total", "opened"])]
    listed = sorted(({key: row[key] for key in order} for row in rows), key=lambda row: (row["path"], row.get("file", "")))
    if as_json:
        for row in listed:
            click.echo(
                json.dumps({**row, **{side: None if row[side] is None else json.loads(row[side]) for side in ("min", "max")}})
            )
        return
    if not listed:
        click.echo(f"{table} has no bounds for {', '.join(paths) or 'any path'}: delta-variant analyze {table} gives it some")
        return
    for row in listed:
        row |= {side: None if row[side] is None else _short(row[side]) for side in ("min", "max")}
        if not by_file:
            row["files"] = f"{row['files']:,} of {row.pop('files_total'):,}"
            row["a look-up opens"] = row.pop("opened")
    click.echo(aligned(listed))


def _rows(found: DataFrame, paths: Sequence[tuple[tuple[str, ...], tuple[str, ...]]]) -> list[dict[str, Any]]:
    """The rows of some paths, with bounds as JSON."""
    condition: Column | None = None
    for column, keys in paths:
        of_path = (F.lower("column") == dotted(column).lower()) & (F.col("path") == normalized(keys))
        condition = of_path if condition is None else condition | of_path
    found = found if condition is None else found.where(condition)
    return [row.asDict() for row in found.withColumns({side: F.to_json(side) for side in ("min", "max")}).collect()]


def _written(column: str, path: str) -> str:
    """A path as arguments have it: v:actor.id."""
    keys = parse_normalized(path)
    return f"{column}:{steps(keys)}" if keys else column


def _short(text: str) -> str:
    return text if len(text) <= 32 else text[:31] + "…"


# ---- inspect -----------------------------------------------------------------------------------------------------------------


@command(
    "inspect",
    "delta-variant inspect part-00000.parquet",
    "delta-variant inspect tables/events",
    "delta-variant inspect tables/events --json | jq '.paths[].residual'",
    result="each VARIANT column of a file",
)
@click.argument("place")
def inspect_command(place: str, conf: dict[str, str], as_json: bool) -> None:
    """Show what typed columns hold, for each path of the shredding schemas.

    PLACE: a Parquet file, the path of a table with a slash, or the name of a table. For a file no Spark is started.
    """
    if place.endswith(".parquet") and not Path(place).is_dir():  # a table may have such a name, too
        try:
            columns = inspect(place)
        except UnicodeEncodeError as error:
            advice = "rename it, or set LC_ALL=C.UTF-8"
            raise TableError(f"{place} cannot be read, since its name is not UTF-8 here: {advice}") from error
        except OSError as error:
            raise TableError(f"{place} cannot be read: {error}") from error
        for column in columns:
            _show(asdict(column), [asdict(path) for path in column.paths], as_json=as_json)
        if not columns and not as_json:
            click.echo(f"{place} has no VARIANT columns")
        return
    with running("inspect", conf) as spark, step("Reading footers"):
        rows = [row.asDict() for row in table_of(spark, place).inspect().collect()]
    rows.sort(key=lambda row: (row["file"], row["column"] or "", row["path"] or ""))
    whole = ("file", "column", "layout", "schema", "rows", "ours", "error")
    for values, paths in itertools.groupby(rows, lambda row: {key: row[key] for key in whole}):
        listed = [{key: value for key, value in row.items() if key not in whole} for row in paths]
        _show(values, listed, as_json=as_json)
    if not rows and not as_json:
        click.echo(f"{place} has no files with VARIANT columns")


def _show(column: dict[str, Any], paths: list[dict[str, Any]], *, as_json: bool) -> None:
    """Prints a VARIANT column of a file, and its paths as a table."""
    if as_json:
        click.echo(json.dumps({**column, "paths": paths}))
        return
    click.echo(", ".join(f"{key}: {value}" for key, value in column.items() if value is not None and key != "paths"))
    if paths:
        click.echo(aligned(paths, "  "))


# ---- explain -----------------------------------------------------------------------------------------------------------------


@command(
    "explain",
    "delta-variant explain 'SELECT v FROM delta.`/data/events` WHERE v:id::int = 5'",
    "delta-variant explain 'SELECT v FROM e WHERE v:id::int = 5' --table e=tables/events",
)
@click.argument("sql")
@click.option("--table", "tables", multiple=True, callback=pairs, help="A name for the table at a path: name=path.")
def explain_command(sql: str, tables: dict[str, str], conf: dict[str, str], as_json: bool) -> None:
    """Show for each scan of a query how many files it opens, how they are read, and why no more is pruned. The query is not
    run.

    SQL: a query. Commands such as INSERT and DELETE are refused.
    """
    with running("explain", conf) as spark, step("Planning"):
        enable(spark)
        for name, path in tables.items():
            table_of(spark, path if "/" in path else f"./{path}").toDF().createOrReplaceTempView(quoted(name))
        report = explain(query(spark, sql))
    click.echo(json.dumps({"scans": list(_scans(report))}) if as_json else report)


def _scans(report: Report) -> Iterable[dict[str, Any]]:
    for scan in report.scans:
        yield {**vars(scan), "findings": [asdict(finding) for finding in scan.findings], "typed_files": dict(scan.typed_files)}
