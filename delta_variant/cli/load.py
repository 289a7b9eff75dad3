"""The commands that load files into tables: ingest, convert."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from delta_variant.cli.shared import command, pairs, running, step, table_of
from delta_variant.conversion import convert
from delta_variant.ingestion import ingest
from delta_variant.json_files import FORMS
from delta_variant.loading import Loaded
from delta_variant.reloading import CHOICES

changed_option = click.option(
    "--changed", type=click.Choice(CHOICES), default="skip", show_default=True,
    help="What happens to files that have changed since the table took them; reload replaces their rows.",
)  # fmt: skip


@command(
    "ingest",
    "delta-variant ingest 'logs/*.json.gz' tables/logs",
    "delta-variant ingest logs/day=* tables/logs --folder day=date --bad-records tables/logs_bad",
    "delta-variant ingest trail/ tables/trail --records '$.Records' --path-column file",
    "delta-variant ingest feed/ tables/feed --columns day=v:created_at::date --partition-by day",
)
@click.argument("source", nargs=-1, required=True)
@click.argument("target")
@click.option("--column", default="v", show_default=True, help="The VARIANT column that gets the documents.")
@click.option("--format", "format_", type=click.Choice(FORMS), default="auto", show_default=True)
@click.option("--records", help="The path to an array inside each document whose elements are the rows, such as $.Records.")
@click.option("--path-column", help="A column for the URI of the file.")
@click.option("--modified-column", help="A column for the modification time of the file.")
@click.option("--constant", multiple=True, callback=pairs, help="A column with the same text in all rows: name=value.")
@click.option("--folder", multiple=True, callback=pairs, help="A partition directory (day=…) to load as a column: name=type.")
@click.option("--columns", multiple=True, callback=pairs, help="A column extracted from the document: day=v:created_at::date.")
@click.option("--partition-by", multiple=True, help="A partition column of a new table.")
@click.option("--bad-records", help="A table for malformed documents. Without it, the first one is an error.")
@changed_option
@click.option("--force", is_flag=True, help="Also load files that were loaded before.")
@click.option("--max-document-bytes", type=int, help="The size of the longest document; 16 MiB by default.")
def ingest_command(
    source: tuple[str, ...], target: str, format_: Any, constant: dict[str, str], folder: dict[str, str],
    partition_by: tuple[str, ...], max_document_bytes: int | None, conf: dict[str, str], as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Load files of JSON documents into a Delta table, one row for each document.

    SOURCE: files, directories and globs, plain or compressed. TARGET: a path, or the name of a table. Files that the table has
    from an earlier call are left out.
    """
    if max_document_bytes is not None:
        options["max_document_bytes"] = max_document_bytes
    with running("ingest", conf) as spark, step("Loading") as show:
        done = ingest(
            spark, source, target, format=format_, constants=constant, folders=folder, partition_by=partition_by,
            progress=lambda p: show(f"{p.files:,} of {p.files_total:,} files, {p.rows:,} rows"), **options,
        )  # fmt: skip
    if as_json:
        click.echo(json.dumps(asdict(done)))
        return
    _show_loaded(done, target, "load", ".json, .jsonl or .ndjson", reloads=options["changed"] == "reload")
    if done.bad:
        click.echo(f"{done.bad:,} malformed documents are in {options['bad_records']}")


@command(
    "convert",
    "delta-variant convert s3a://lake/spark-4.0/ tables/events",
    "delta-variant convert drafts/day=* tables/events --folder day=date --cluster-by v:actor.id",
    "delta-variant convert tables/logs --parse-json v=value --corrupt _corrupt",
)
@click.argument("source", nargs=-1)
@click.argument("target")
@click.option(
    "--column", "columns", multiple=True, help="A VARIANT column; by default all that are annotated or look like one."
)
@click.option("--drop", multiple=True, help="A column to leave out.")
@click.option("--folder", "folders", multiple=True, callback=pairs, help="A type for a partition directory: name=type.")
@click.option("--partition-by", multiple=True, help="A partition column of a new table; by default the partition directories.")
@click.option("--cluster-by", multiple=True, help="A column or path by which the rows are sorted, such as v:actor.id.")
@click.option("--path-column", help="A column for the URI of the file.")
@click.option("--modified-column", help="A column for the modification time of the file.")
@changed_option
@click.option("--force", is_flag=True, help="Also load files that were loaded before.")
@click.option("--parse-json", multiple=True, callback=pairs, help="Without SOURCE: parse a STRING column: v=value.")
@click.option("--corrupt", help="With --parse-json: a column for malformed texts. Without it, the first one is an error.")
def convert_command(
    source: tuple[str, ...], target: str, columns: tuple[str, ...], partition_by: tuple[str, ...], cluster_by: tuple[str, ...],
    parse_json: dict[str, str], corrupt: str | None, conf: dict[str, str], as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Load Parquet files with Variants in any layout into a Delta table, or make VARIANT columns of a table's JSON texts.

    SOURCE: files, directories and globs. TARGET: a path, or the name of a table. Files that the table has from an earlier call
    are left out.
    """
    if bool(source) == bool(parse_json) or (corrupt and not parse_json):
        raise click.UsageError("name SOURCE and TARGET, or a table and --parse-json")
    if parse_json and (columns or partition_by or any({**options, "changed": options["changed"] != "skip"}.values())):
        raise click.UsageError("with --parse-json there are only --cluster-by and --corrupt")
    with running("convert", conf) as spark, step("Converting") as show:
        done: Any
        if parse_json:
            done = table_of(spark, target).convert(parse_json, cluster_by=cluster_by, corrupt=corrupt)
        else:
            done = convert(
                spark, source, target, columns=columns or None, partition_by=partition_by or None, cluster_by=cluster_by,
                progress=lambda p: show(f"{p.files:,} of {p.files_total:,} files, {p.rows:,} rows"), **options,
            )  # fmt: skip
    if as_json:
        click.echo(json.dumps(asdict(done)))
    elif parse_json:
        click.echo(f"{target} is at version {done.version}: {done.rows:,} rows in {done.files:,} files, {done.bytes:,} bytes")
    else:
        _show_loaded(done, target, "convert", ".parquet, .parq or .pq", reloads=options["changed"] == "reload")


def _changed(done: Loaded) -> str:
    return f", and {done.changed:,} of them have changed since" if done.changed else ""


def _show_loaded(done: Loaded, target: str, verb: str, suffixes: str, *, reloads: bool) -> None:
    if done.version is None:
        click.echo(f"nothing to {verb}: {target} has all {done.skipped:,} files{'' if reloads else _changed(done)}")
        return
    click.echo(
        f"{target} is at version {done.version}: {done.rows:,} rows of {done.files:,} files, {done.bytes_read:,} bytes read, "
        f"{done.bytes_written:,} written"
    )
    if reloads and done.changed:
        click.echo(f"{done.changed:,} files have changed since they were loaded, and were loaded again")
    if done.skipped:
        click.echo(f"{done.skipped:,} files were there already{'' if reloads else _changed(done)}")
    if done.ignored:
        click.echo(f"{done.ignored:,} files are not {suffixes} and were left out: name them to {verb} them")
