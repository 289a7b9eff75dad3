"""The commands that make look-ups open fewer files: analyze, optimize."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from delta_variant.analysis import Indexed
from delta_variant.cli.shared import command, running, step, table_of


@command(
    "analyze",
    "delta-variant analyze tables/events",
    "delta-variant analyze tables/events --path v:actor.id --where \"day >= '2026-11-01'\"",
    "delta-variant analyze tables/events --bloom v:commit.cid",
)
@click.argument("table")
@click.option("--column", "columns", multiple=True, help="A VARIANT column; by default all that have statistics.")
@click.option("--path", "paths", multiple=True, help="A path that is to have bounds in every file, such as v:actor.id.")
@click.option("--where", help="A predicate on partition columns.")
@click.option("--bloom", multiple=True, help="A path to index for look-ups by = or IN, such as v:commit.cid.")
@click.option("--budget", type=float, help="The share of a file that its filters may take; 0.01, or that of the table.")
@click.option("--tags-only", is_flag=True, help="Put bounds into tags, so that the table needs no table feature.")
def analyze_command(
    table: str, columns: tuple[str, ...], paths: tuple[str, ...], where: str | None, conf: dict[str, str],
    tags_only: bool, as_json: bool, bloom: tuple[str, ...], budget: float | None,
) -> None:  # fmt: skip
    """Give exact bounds to the files of a table that lack them, without rewriting data.

    TABLE: a path with a slash, or the name of a table.
    """
    with running("analyze", conf) as spark, step("Analyzing") as show:
        done = table_of(spark, table).analyze(
            columns or None, paths or None, where, tags_only=tags_only, bloom=bloom or None, budget=budget,
            progress=lambda p: show(f"{p.files:,} of {p.files_total:,} files"),
        )  # fmt: skip
    if as_json:
        click.echo(json.dumps(asdict(done)))
        return
    if done.feature:
        click.echo(f"{table} has got the table feature {done.feature}")
    if done.indexed:
        _show_indexed(table, done.indexed)
        if bloom and not columns and not paths:
            return
    click.echo(
        f"{table}: bounds for {done.files:,} files, {done.from_footers:,} of them from footers alone; {done.bytes_read:,} of "
        f"{done.bytes:,} bytes read"
    )
    if done.changed:
        click.echo(f"{len(done.changed):,} files were changed by another writer meanwhile and left out: run the command again")
    for file, reason in done.failed.items():
        click.echo(f"{file} was left out: {reason}", err=True)


def _show_indexed(table: str, done: Indexed) -> None:
    share = 100 * done.bytes / max(1, done.bytes_data)
    click.echo(f"{table}: {done.filters:,} filters for {done.files:,} files, {done.bytes:,} bytes, {share:.2f} % of the data")
    for path, files in done.no_room.items():
        click.echo(f"{path}: no room for a filter in {files:,} files: raise --budget, or name fewer paths")
    for path, files in done.mixed.items():
        click.echo(f"{path}: values of several types, or of one that has no filters, in {files:,} files")
    for file, reason in done.failed.items():
        click.echo(f"{file} was left out: {reason}", err=True)


@command(
    "optimize",
    "delta-variant optimize tables/events --cluster-by v:actor.id",
    "delta-variant optimize tables/events --cluster-by v:actor.id --cluster-by v:ts",
    "delta-variant optimize tables/events",
)
@click.argument("table")
@click.option("--cluster-by", "keys", multiple=True, help="A path or a column; by default those stored with the table.")
@click.option("--where", help="A predicate on partition columns.")
@click.option("--max-file-size", type=int, help="The size of new files in bytes.")
def optimize_command(
    table: str, keys: tuple[str, ...], where: str | None, max_file_size: int | None, conf: dict[str, str], as_json: bool,
) -> None:  # fmt: skip
    """Rewrite files of a table so that each holds a narrow range of the keys, and put small files together.

    TABLE: a path with a slash, or the name of a table.
    """
    with running("optimize", conf) as spark, step("Optimizing") as show:
        done = table_of(spark, table).optimize(
            keys or None, where, max_file_size, progress=lambda p: show(f"{p.files:,} of {p.files_total:,} files")
        )
    if as_json:
        click.echo(json.dumps(asdict(done)))
        return
    if done.version is None:
        click.echo(f"nothing to do: {table} is in order")
        return
    click.echo(
        f"{table} is at version {done.version}: {done.files_added:,} files in place of {done.files_removed:,}, "
        f"{done.bytes_added:,} bytes of {done.bytes_removed:,}; {done.files_kept:,} files were in order"
    )
