"""The command `delta-variant`: what the package does, from a shell.

Each command is a function here. Its results go to standard output, its progress to standard error. An error of this package
ends a command with the error's message and exit code 1.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

import click
import zstandard

from delta_variant.analysis import BUDGET, Indexed
from delta_variant.conversion import convert
from delta_variant.errors import DeltaVariantError
from delta_variant.ingestion import ingest
from delta_variant.parquet import inspect
from delta_variant.report import explain
from delta_variant.session import check_java, configure, enable
from delta_variant.sources import Loaded
from delta_variant.table import VariantTable
from delta_variant.writer import write


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except DeltaVariantError as e:
            raise click.ClickException(str(e)) from e


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="delta-variant")
def main() -> None:
    """Shredded VARIANT columns for PySpark and Delta Lake."""


STARTING = "Starting Spark (the first time it downloads Delta's JARs, 90 MB)"

# ---------------------------------------------------------------------------------------------------------------- ingest


def _pairs(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """The values of an option that is given as name=value, any number of times."""
    for text in texts:
        if "=" not in text:
            raise click.BadParameter(f"{text} is not name=value")
    return dict(text.split("=", 1) for text in texts)


@main.command("ingest", epilog="Example: delta-variant ingest 'logs/*.json.gz' tables/logs --bad-records tables/logs_bad")
@click.argument("source", nargs=-1, required=True)
@click.argument("target")
@click.option("--column", default="v", show_default=True, help="The VARIANT column that gets the documents.")
@click.option(
    "--format", "format_", type=click.Choice(["auto", "lines", "array", "document"]), default="auto", show_default=True
)
@click.option("--records", help="The path to an array inside each document whose elements are the rows, such as $.Records.")
@click.option("--path-column", help="A column for the URI of the file.")
@click.option("--modified-column", help="A column for the modification time of the file.")
@click.option("--constant", multiple=True, callback=_pairs, help="A column with the same text in all rows: name=value.")
@click.option("--folder", multiple=True, callback=_pairs, help="A column from the folders of the path: name=type.")
@click.option("--partition-by", multiple=True, help="A partition column of a new table.")
@click.option("--bad-records", help="A table for malformed documents. Without it, the first one is an error.")
@click.option("--force", is_flag=True, help="Read files that the table has had too.")
@click.option("--max-document-bytes", type=int, help="The size of the longest document; 16 MiB by default.")
@click.option("--conf", multiple=True, callback=_pairs, help="A setting of Spark's: name=value.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
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
    with _running("ingest", conf) as (spark, log), _step("Loading") as show, _quiet(log):
        done = ingest(
            spark, source, target, format=format_, constants=constant, folders=folder, partition_by=partition_by,
            progress=lambda p: show(f"{p.files:,} of {p.files_total:,} files, {p.rows:,} rows"), **options,
        )  # fmt: skip
    if as_json:
        click.echo(json.dumps(asdict(done)))
        return
    _show_loaded(done, target, "load", ".json, .jsonl or .ndjson")
    if done.bad:
        click.echo(f"{done.bad:,} malformed documents are in {options['bad_records']}")


# --------------------------------------------------------------------------------------------------------------- convert


@main.command("convert", epilog="Example: delta-variant convert old/ tables/new; delta-variant convert t --parse-json v=value")
@click.argument("source", nargs=-1)
@click.argument("target")
@click.option(
    "--column", "columns", multiple=True, help="A VARIANT column; by default all that are annotated or look like one."
)
@click.option("--drop", multiple=True, help="A column that the table does not get.")
@click.option("--folder", "folders", multiple=True, callback=_pairs, help="The type of a column of directories: name=type.")
@click.option("--partition-by", multiple=True, help="A partition column of a new table; by default the columns of directories.")
@click.option("--cluster-by", multiple=True, help="A column or path by which the rows are sorted, such as v:actor.id.")
@click.option("--force", is_flag=True, help="Read files that the table has had too.")
@click.option("--parse-json", multiple=True, callback=_pairs, help="Without SOURCE: a VARIANT column of texts: v=value.")
@click.option("--corrupt", help="With --parse-json: a column for malformed texts. Without it, the first one is an error.")
@click.option("--conf", multiple=True, callback=_pairs, help="A setting of Spark's: name=value.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
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
    if parse_json and (columns or partition_by or any(options.values())):
        raise click.UsageError("with --parse-json there are only --cluster-by and --corrupt")
    with _running("convert", conf) as (spark, log), _step("Converting") as show, _quiet(log):
        done: Any
        if parse_json:
            done = _table(spark, target).convert(parse_json, cluster_by=cluster_by, corrupt=corrupt)
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
        _show_loaded(done, target, "convert", ".parquet, .parq or .pq")


def _show_loaded(done: Loaded, target: str, verb: str, suffixes: str) -> None:
    if done.version is None:
        click.echo(f"nothing to {verb}: {target} has all {done.skipped:,} files")
        return
    click.echo(
        f"{target} is at version {done.version}: {done.rows:,} rows of {done.files:,} files, {done.bytes_read:,} bytes read, "
        f"{done.bytes_written:,} written"
    )
    if done.skipped:
        click.echo(f"{done.skipped:,} files were there already")
    if done.ignored:
        click.echo(f"{done.ignored:,} files are not {suffixes} and were left out: name them to {verb} them")


# --------------------------------------------------------------------------------------------------------------- analyze


@main.command(
    "analyze", epilog="Example: delta-variant analyze tables/events --path v:actor.id --where \"day >= '2026-11-01'\""
)
@click.argument("table")
@click.option("--column", "columns", multiple=True, help="A VARIANT column; by default all that have statistics.")
@click.option("--path", "paths", multiple=True, help="A path that is to have bounds in every file, such as v:actor.id.")
@click.option("--where", help="A predicate on partition columns.")
@click.option("--bloom", multiple=True, help="A path whose values are to be looked up, such as v:commit.cid.")
@click.option("--budget", type=float, default=BUDGET, show_default=True, help="The share of a file that its filters may take.")
@click.option("--tags-only", is_flag=True, help="Put bounds into tags, so that the table needs no table feature.")
@click.option("--conf", multiple=True, callback=_pairs, help="A setting of Spark's: name=value.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def analyze_command(
    table: str, columns: tuple[str, ...], paths: tuple[str, ...], where: str | None, conf: dict[str, str],
    tags_only: bool, as_json: bool, bloom: tuple[str, ...], budget: float,
) -> None:  # fmt: skip
    """Give exact bounds to the files of a table that lack them, without rewriting data.

    TABLE: a path with a slash, or the name of a table.
    """
    with _running("analyze", conf) as (spark, log), _step("Analyzing") as show, _quiet(log):
        done = _table(spark, table).analyze(
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
        if not columns and not paths:
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


# -------------------------------------------------------------------------------------------------------------- optimize


@main.command("optimize", epilog="Example: delta-variant optimize tables/events --cluster-by v:actor.id --cluster-by v:ts")
@click.argument("table")
@click.option("--cluster-by", "keys", multiple=True, help="A path or a column; by default those stored with the table.")
@click.option("--where", help="A predicate on partition columns.")
@click.option("--max-file-size", type=int, help="The size of new files in bytes.")
@click.option("--conf", multiple=True, callback=_pairs, help="A setting of Spark's: name=value.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def optimize_command(
    table: str, keys: tuple[str, ...], where: str | None, max_file_size: int | None, conf: dict[str, str], as_json: bool,
) -> None:  # fmt: skip
    """Write files of a table anew so that each holds a narrow range of the keys, and put small files together.

    TABLE: a path with a slash, or the name of a table.
    """
    with _running("optimize", conf) as (spark, log), _step("Optimizing") as show, _quiet(log):
        done = _table(spark, table).optimize(
            keys or None, where, max_file_size, progress=lambda p: show(f"{p.files:,} of {p.files_total:,} files")
        )
    if as_json:
        click.echo(json.dumps(asdict(done)))
        return
    if done.version is None:
        click.echo(f"nothing to do: {table} is in order")
        return
    click.echo(
        f"{table} is at version {done.version}: {done.files_added:,} files in the place of {done.files_removed:,}, "
        f"{done.bytes_added:,} bytes of {done.bytes_removed:,}; {done.files_kept:,} files were in order"
    )


# --------------------------------------------------------------------------------------------------------------- inspect


@main.command("inspect", epilog="Example: delta-variant inspect tables/events; delta-variant inspect part-00000.parquet")
@click.argument("place")
@click.option("--conf", multiple=True, callback=_pairs, help="A setting of Spark's: name=value.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def inspect_command(place: str, conf: dict[str, str], as_json: bool) -> None:
    """Show what typed columns hold, for each path of the shredding schemas.

    PLACE: a Parquet file, the path of a table with a slash, or the name of a table. For a file no Spark is started.
    """
    if place.endswith(".parquet"):
        for column in inspect(place):
            _show(asdict(column), [asdict(path) for path in column.paths], as_json=as_json)
        return
    with _running("inspect", conf) as (spark, log), _step("Reading footers"), _quiet(log):
        rows = [row.asDict() for row in _table(spark, place).inspect().collect()]
    rows.sort(key=lambda row: (row["file"], row["column"] or "", row["path"] or ""))
    whole = ("file", "column", "layout", "schema", "rows", "error")
    for values, paths in itertools.groupby(rows, lambda row: {key: row[key] for key in whole}):
        listed = [{key: value for key, value in row.items() if key not in whole} for row in paths]
        _show(values, listed, as_json=as_json)


def _show(column: dict[str, Any], paths: list[dict[str, Any]], *, as_json: bool) -> None:
    """Prints a VARIANT column of a file, and its paths as a table."""
    if as_json:
        click.echo(json.dumps({**column, "paths": paths}))
        return
    click.echo(", ".join(f"{key}: {value}" for key, value in column.items() if value is not None and key != "paths"))
    if paths:
        table = [list(paths[0]), *([("" if value is None else str(value)) for value in path.values()] for path in paths)]
        widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
        for line in table:
            click.echo("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _table(spark: Any, table: str) -> VariantTable:
    return VariantTable.forPath(spark, table) if "/" in table else VariantTable.forName(spark, table)


# ------------------------------------------------------------------------------------------------------------------ demo

FILES = 20

SHAPE = (
    "id string, geometry struct<coordinates: array<decimal(18,7)>>, "
    "properties struct<mag: decimal(18,2), magType: string, net: string, place: string, time: bigint, updated: bigint>"
)
"""The shredding schema of the demo. With shred="auto" its small files would stay plain, because they are smaller so."""

QUERIES = (
    (
        "Time window: what shook between 06:00 and 12:00 UTC on 4 February 2018?",
        """
        SELECT count(*) AS quakes, max(variant_get(event, '$.properties.mag', 'decimal(4,2)')) AS strongest
        FROM {table}
        WHERE variant_get(event, '$.properties.time', 'bigint')
              BETWEEN unix_millis(TIMESTAMP '2018-02-04 06:00:00Z') AND unix_millis(TIMESTAMP '2018-02-04 12:00:00Z')""",
    ),
    (
        "Magnitude: which were the strongest, from 6 up?",
        """
        SELECT timestamp_millis(event:properties.time::bigint) AS at, event:properties.mag::decimal(4,2) AS mag,
               event:properties.place::string AS place
        FROM {table}
        WHERE event:properties.mag::decimal(4,2) >= 6.0 ORDER BY mag DESC, at""",
    ),
    (
        "Region by network: what did the University of Utah (uu) locate on the first two days?",
        """
        SELECT event:properties.magType::string AS scale, count(*) AS quakes,
               max(event:properties.mag::decimal(4,2)) AS strongest
        FROM {table}
        WHERE event:properties.net::string = 'uu'
              AND event:properties.time::bigint < unix_millis(TIMESTAMP '2018-02-02 00:00:00Z')
        GROUP BY scale ORDER BY quakes DESC""",
    ),
)


@main.command(epilog="Example: SPARK_MASTER=spark://host:7077 delta-variant demo --path s3a://bucket/demo")
@click.option("--path", help="Where the tables go: a directory or a URI; a new temporary directory by default.")
@click.option("--conf", multiple=True, callback=_pairs, help="A setting of Spark's: name=value.")
def demo(path: str | None, conf: dict[str, str]) -> None:
    """Write a real earthquake feed, shredded and plain, query it, and count the files that are opened.

    It runs on the Spark master of the environment variable SPARK_MASTER, local[*] without it.
    """
    check_java()
    remote = path is not None and "://" in path
    folder = Path(path if path and not remote else tempfile.mkdtemp(prefix="delta-variant-demo-")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    log, base = folder / "spark.log", str(path).rstrip("/") if remote else str(folder)
    tables = {"true": f"{base}/earthquakes", "false": f"{base}/earthquakes_plain"}
    settings = {"spark.sql.session.timeZone": "UTC", "spark.sql.warehouse.dir": str(folder / "warehouse")}
    with _step(STARTING), _quiet(log):
        spark = _session("demo", {**settings, "spark.sql.shuffle.partitions": "4", **conf})
        enable(spark)
    try:
        feed = _feed(spark)
        for shredding, table in tables.items():
            note = " (the first time it compiles the kernels)" if shredding == "true" else ""
            with _step(f"Writing {feed.count():,} earthquakes, delta.enableVariantShredding = {shredding}{note}"):
                spark.sql(
                    f"CREATE TABLE IF NOT EXISTS delta.`{table}` (event VARIANT) USING delta "
                    f"TBLPROPERTIES ('delta.enableVariantShredding' = '{shredding}')"
                )
                commit = write(feed, table, mode="overwrite", shred={"event": SHAPE} if shredding == "true" else "auto")
            how = f"shredded: {', '.join(commit.shredded)}" if commit.shredded else "plain, as the property demands"
            click.echo(
                f"{table}\n  version {commit.version}, {commit.rows:,} rows in {commit.files} files, {commit.bytes:,} bytes"
            )
            click.echo(f"  {how}")
        for title, sql in QUERIES:
            _query(spark, title, sql, tables)
        click.echo(f"\nThe shredded table is {tables['true']}, an ordinary Delta table; Spark's log is {log}.")
    finally:
        with _quiet(log):
            spark.stop()


def _query(spark: Any, title: str, sql: str, tables: dict[str, str]) -> None:
    click.secho(f"\n{title}", bold=True)
    click.echo("\n".join(line[8:] for line in sql.splitlines()[1:]).format(table="earthquakes") + "\n")
    with _step("Asking"):
        frames = {shredding: spark.sql(sql.format(table=f"delta.`{table}`")) for shredding, table in tables.items()}
        answer = frames["true"].toPandas()
        scans = {shredding: explain(df).scans[0] for shredding, df in frames.items()}
    click.echo("\n".join(f"  {line}" for line in answer.to_string(index=False).splitlines()))
    for shredding, scan in scans.items():
        layout = "shredded" if shredding == "true" else "plain"
        click.echo(f"  {layout}: opened {scan.files_after_bounds} of {scan.files_total} files")


def _feed(spark: Any) -> Any:
    """The bundled feed as a VARIANT column, in about twenty ranges of time."""
    from pyspark.sql import functions as F  # noqa: PLC0415  # takes half a second, which `--help` need not wait for

    packed = resources.files("delta_variant").joinpath("data/earthquakes.ndjson.zst").read_bytes()
    lines = zstandard.ZstdDecompressor().decompress(packed).decode().splitlines()
    event = F.parse_json("line").alias("event")
    time_ = F.expr("variant_get(event, '$.properties.time', 'bigint')")
    feed = spark.createDataFrame([(line,) for line in lines], "line string").select(event)
    return feed.repartitionByRange(FILES, time_).sortWithinPartitions(time_)


def _session(command: str, settings: dict[str, str]) -> Any:
    from pyspark.sql import SparkSession  # noqa: PLC0415  # see _feed

    builder = (
        SparkSession.builder.appName(f"delta-variant {command}")
        .master(os.environ.get("SPARK_MASTER", "local[*]"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextmanager
def _running(command: str, settings: dict[str, str]) -> Iterator[tuple[Any, Path]]:
    """Starts Spark for a command, and stops it. Yields the session and the file for its messages."""
    check_java()
    with tempfile.TemporaryDirectory(prefix="delta-variant-") as folder:
        log = Path(folder, "spark.log")
        with _step(STARTING), _quiet(log):
            spark = _session(command, settings)
        try:
            yield spark, log
        finally:
            with _quiet(log):
                spark.stop()


@contextmanager
def _quiet(log: Path) -> Iterator[None]:
    """Sends standard error of this process, and of the JVM that it starts, to a file; shows the file if the block fails."""
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    except Exception:
        os.write(kept, log.read_bytes())
        raise
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextmanager
def _step(what: str) -> Iterator[Callable[[str], None]]:
    """Shows a line while a step runs, and how long it took. Yields a function that shows how far it is."""
    done, start = threading.Event(), time.monotonic()
    state = [what]
    terminal = os.fdopen(os.dup(2), "w") if sys.stderr.isatty() else None

    def turn() -> None:
        for symbol in itertools.cycle("|/-\\"):
            if terminal is None or done.wait(0.2):
                return
            terminal.write(f"\r{symbol} {state[0]} … {time.monotonic() - start:.0f} s ")
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
