"""The demo: a real feed in three tables, three questions, the files that each opens and the seconds it takes, and a picture.

The feed is written by this package, shredded and plain, and by delta-spark, shredded. delta-spark's table is written and
queried in a session without the rules of this package, so its figures are those of Spark and Delta alone. Seconds are the
median of three runs after a warm-up; the tables take turns.
"""

from __future__ import annotations

import json
import shlex
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from delta_variant.cli.feed import QUESTIONS, SHAPE, documents
from delta_variant.cli.kernels import compiled
from delta_variant.cli.picture import picture
from delta_variant.cli.shared import aligned, command, running, step
from delta_variant.errors import DeltaVariantError
from delta_variant.explanation import explain
from delta_variant.features import SHREDDING_PROPERTY
from delta_variant.paths import normalized, parse_bounded_path
from delta_variant.session import check_java, enable
from delta_variant.table import VariantTable
from delta_variant.writer import write

FILES = 20
ROUNDS = 3
PICTURES = ("event:properties.time", "event:properties.mag")


@dataclass(frozen=True)
class _Asked:
    """A table, and the session that it is asked in."""

    name: str
    path: str
    spark: SparkSession

    def frame(self, sql: str) -> DataFrame:
        return self.spark.sql(sql.format(table=f"delta.`{self.path}`"))


@command(
    "demo", "delta-variant demo", "delta-variant demo --path ./demo",
    "SPARK_MASTER=spark://host:7077 delta-variant demo --path s3a://bucket/demo",
)  # fmt: skip
@click.option("--path", help="Where the tables go: a directory or a URI; a new temporary directory by default.")
def demo_command(path: str | None, conf: dict[str, str], as_json: bool) -> None:
    """Write a real earthquake feed, shredded and plain, and ask it three questions, beside delta-spark.

    It shows the answers, the files that each table's query opens, the seconds it takes, and the ranges of the files. It runs on
    the Spark master of the environment variable SPARK_MASTER, local[*] without it.
    """
    check_java()
    is_local = path is None or "://" not in path
    folder = Path(path if path and is_local else tempfile.mkdtemp(prefix="delta-variant-demo-")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    home = str(folder) if is_local else str(path).rstrip("/")
    texts = documents()
    with step("Compiling kernels, once, or loading them"):
        kernels = compiled(texts, SHAPE)
    if kernels.compiled:
        kept = (
            f"they are kept in {kernels.directory}"
            if kernels.directory
            else "no cache can be written: ask delta-variant doctor"
        )
        click.echo(f"Compiled {kernels.compiled} kernels, once, in {kernels.seconds:.0f} s; {kept}", err=True)
    settings = {
        "spark.sql.session.timeZone": "UTC", "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "4",
        "spark.databricks.delta.snapshotPartitions": "1",  # logs of 20 files; Delta's default on a cluster is 50 tasks a query
        **conf,
    }  # fmt: skip
    with running("demo", settings, folder / "spark.log") as spark:
        result = _Demo(spark, folder, home, silent=as_json).run(texts)
    if as_json:
        click.echo(json.dumps({"folder": home, "kernels": asdict(kernels), **result}, default=str))


class _Demo:
    def __init__(self, spark: SparkSession, folder: Path, home: str, *, silent: bool) -> None:
        """folder: for files of this machine. home: the directory or URI of the tables."""
        self.folder, self.silent = folder, silent
        with step("Enabling data skipping"):
            enable(spark)
            alone = spark.newSession()  # without the rules
        self.ours = _Asked("delta-variant, shredded", f"{home}/earthquakes", spark)
        self.plain = _Asked("delta-variant, plain", f"{home}/earthquakes_plain", spark)
        self.peer = _Asked("delta-spark, shredded", f"{home}/earthquakes_delta_spark", alone)

    def say(self, text: str = "", *, bold: bool = False) -> None:
        if not self.silent:
            click.secho(text, bold=bold)

    def run(self, texts: list[str]) -> dict[str, Any]:
        tables = [self.write(asked, texts) for asked in (self.ours, self.plain, self.peer)]
        self.say(aligned(tables))
        questions = [self.ask(title, sql) for title, sql in QUESTIONS]
        self.say(f"\nSeconds: the median of {ROUNDS} runs after one to warm up, the tables in turns.")
        self.pictures()
        self.say(_NEXT.format(command=called(), table=shlex.quote(self.ours.path), log=self.folder / "spark.log"))
        return {"tables": tables, "questions": questions}

    # ---- writing -------------------------------------------------------------------------------------------------------------

    def write(self, asked: _Asked, texts: list[str]) -> dict[str, Any]:
        """Writes a table, and tells what became of it. The property decides whether files are shredded."""
        is_on = asked is not self.plain
        rows = _feed(asked.spark, texts)
        with step(f"Writing {len(texts):,} earthquakes: {asked.name} ({SHREDDING_PROPERTY} = {str(is_on).lower()})"):
            asked.spark.sql(
                f"CREATE TABLE IF NOT EXISTS delta.`{asked.path}` (event VARIANT) USING delta "
                f"TBLPROPERTIES ('{SHREDDING_PROPERTY}' = '{str(is_on).lower()}')"
            )
            if asked is self.peer:
                rows.write.format("delta").mode("overwrite").save(asked.path)
            else:
                write(rows, asked.path, mode="overwrite", shred={"event": SHAPE} if is_on else "auto")
        detail: Any = asked.spark.sql(f"DESCRIBE DETAIL delta.`{asked.path}`").first()
        return {"table": asked.name, "path": asked.path, "files": detail.numFiles, "bytes": detail.sizeInBytes}

    # ---- asking --------------------------------------------------------------------------------------------------------------

    def ask(self, title: str, sql: str) -> dict[str, Any]:
        """Asks all tables a question, and tells what they opened."""
        self.say(f"\n{title}", bold=True)
        shown = "\n".join(line[8:] for line in sql.splitlines()[1:]).format(table="earthquakes")
        self.say(shown + "\n")
        asked = (self.ours, self.plain, self.peer)
        taken: dict[str, list[float]] = {one.name: [] for one in asked}
        answers: dict[str, list[Any]] = {}
        with step("Asking each table four times"):
            for _ in range(1 + ROUNDS):
                for one in asked:
                    start = time.perf_counter()
                    answers[one.name] = one.frame(sql).collect()
                    taken[one.name].append(time.perf_counter() - start)
            scans = {one.name: explain(one.frame(sql)).scans[0] for one in asked}
        if any(answer != answers[self.ours.name] for answer in answers.values()):
            raise DeltaVariantError(f"the tables give different answers to {title!r}, which is a defect: please report it")
        rows = [row.asDict() for row in answers[self.ours.name]]
        self.say(aligned(rows, "  ") + "\n")
        results = [
            {
                "table": name,
                "opened": scan.files_after_bounds,
                "files": scan.files_total,
                "seconds": round(statistics.median(taken[name][1:]), 3),
            }
            for name, scan in scans.items()
        ]
        for result in results:
            self.say(
                f"  {result['table']:24} opened {result['opened']:>2} of {result['files']} files  {result['seconds']:6.2f} s"
            )
        return {"question": title, "sql": shown, "answer": rows, "tables": results}

    # ---- the picture -----------------------------------------------------------------------------------------------------

    def pictures(self) -> None:
        """Draws the ranges of the files on two paths: one is in order, one is not."""
        if self.silent:
            return
        table = VariantTable.forPath(self.ours.spark, self.ours.path)
        with step("Reading the bounds"):
            ends = (F.try_variant_get(side, F.lit("$"), "double") for side in ("min", "max"))
            bounds = [tuple(row) for row in table.stats().select("path", *ends).collect()]
        for path in PICTURES:
            of_path = normalized(parse_bounded_path(path)[1])
            ranges = [(low, high) for found, low, high in bounds if found == of_path and None not in (low, high)]
            self.say(f"\n{path}: the range of each file, from its smallest to its largest value\n", bold=True)
            for line in picture(ranges):
                self.say(f"  │{line}│")
        self.say("\nThe files are in the order of time, so few hold a given hour. Their magnitudes overlap.")
        try:
            figure = table.plot(PICTURES[0])
        except DeltaVariantError:
            return  # without matplotlib
        figure.savefig(self.folder / "layout.png")
        self.say(f"The same with matplotlib: {self.folder / 'layout.png'}")


def _feed(spark: SparkSession, texts: list[str]) -> DataFrame:
    """The bundled feed as a VARIANT column, in about twenty ranges of time."""
    event = F.parse_json("line").alias("event")
    at = F.expr("variant_get(event, '$.properties.time', 'bigint')")
    feed = spark.createDataFrame([(line,) for line in texts], "line string").select(event)
    return feed.repartitionByRange(FILES, at).sortWithinPartitions(at)


def called() -> str:
    """The command as it can be typed here: after `make demo` it is in a virtual environment that is not on the PATH."""
    script, name = Path(sys.argv[0]), "delta-variant"
    found = shutil.which(name)
    if script.name != name or not script.exists() or (found is not None and script.samefile(found)):
        return name
    return shlex.quote(str(script))


_NEXT = """
What to try next:
  {command} stats {table} --path event:properties.time
  {command} explain "SELECT event:id::string FROM quakes WHERE event:properties.mag::double > 6" \\
    --table quakes={table}
  {command} inspect {table}
  {command} optimize {table} --cluster-by event:properties.mag
  {command} ingest YOUR/*.json tables/yours
In Python: docs/quickstart.ipynb and docs/tutorial.md. The tables are ordinary Delta tables. Spark's log is {log}."""
