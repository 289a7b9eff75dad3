"""Delta's own statements in an enabled session and in a plain one: python -m benchmarks.every_write [PART [ROWS [ROUNDS]]]

The two sessions are in one JVM and run the same statements in alternation, on tables with delta.enableVariantShredding = true;
`not shredded` is the plain session on a table without. For each way: the median of its seconds; the median of the processor
seconds of the JVM and of all Python processes, which other work on the machine disturbs less; and the table's bytes and files
in the end, some of which may be as they were. Ratios are medians over pairs; above 1, the enabled session is faster, or needs
less of the processors. Each part has a process of its own. For Linux.

    insert    INSERT of 1,000,000 events from Parquet files, and from memory
    texts     INSERT … SELECT parse_json(value) of their JSON texts
    changes   UPDATE, DELETE, MERGE, OPTIMIZE and OPTIMIZE ZORDER BY of a table of 2,000,000 events in 32 files
    few       UPDATE, DELETE and MERGE of the same with deletion vectors
    compact   OPTIMIZE of 2,000,000 events in 100 files
    stream    a stream of batches of 1,000 events: the time of a batch
    ten       a write of ten rows, once warm
    first     the first write of a process, of ten rows, and what it consists of
    ordinary  INSERT of 1,000,000 rows without a VARIANT column, and a write of ten rows
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.events import EVENT, events, session
from delta_variant.cli.kernels import compiled

ROWS = {
    "insert": 1_000_000,
    "texts": 1_000_000,
    "changes": 2_000_000,
    "few": 2_000_000,
    "compact": 2_000_000,
    "stream": 1_000,
    "ten": 10,
    "first": 10,
    "ordinary": 1_000_000,
}
ROUNDS = {"insert": 5, "texts": 5, "changes": 3, "few": 3, "compact": 3, "stream": 3, "ten": 40, "first": 3, "ordinary": 7}
FILES, MANY_FILES, BATCHES, FEW_WARM_UP = 32, 100, 20, 15
SHREDDED = "'delta.enableVariantShredding' = 'true'"
COLUMNS = "id LONG, n INT, v VARIANT"
ORDINARY = "id LONG, n INT, name STRING, score DOUBLE, at TIMESTAMP"
CHANGES = {
    "UPDATE": "UPDATE {} SET n = n + 1 WHERE id % 1000 = 3",
    "DELETE": "DELETE FROM {} WHERE id % 1000 = 4",
    "MERGE": "MERGE INTO {} t USING changes s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
}
OPTIMIZE = {"OPTIMIZE": "OPTIMIZE {}", "OPTIMIZE ZORDER BY": "OPTIMIZE {} ZORDER BY (n)"}
FIRST = {
    "delta": "Delta's own",
    "ours": "enabled",
    "workers": "enabled, after a job of Python workers",
    "kernels": "enabled, after these have loaded the kernels",
    "statement": "enabled, after Delta's own write into another table",
}


@dataclass(frozen=True)
class Way:
    """A session, and the properties of the tables that it writes."""

    name: str
    spark: SparkSession
    properties: str = SHREDDED

    def table(self, path: Path, columns: str = COLUMNS, *properties: str) -> str:
        """Creates an empty table. Returns its name in SQL."""
        given = ", ".join(filter(None, (self.properties, *properties)))
        self.spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta{f' TBLPROPERTIES ({given})' if given else ''}")
        return f"delta.`{path}`"


def sessions() -> list[Way]:
    enabled = session()
    plain = enabled.newSession()
    return [Way("enabled", enabled), Way("plain", plain), Way("not shredded", plain, "")]


@dataclass(frozen=True)
class Cost:
    seconds: float
    processor: float
    """Seconds of all processes that are there in the end."""


def timed(action: Callable[[], object]) -> Cost:
    before, start = processor_seconds(), time.perf_counter()
    action()
    seconds = time.perf_counter() - start
    return Cost(seconds, sum(spent - before.get(process, 0) for process, spent in processor_seconds().items()))


def processor_seconds() -> dict[int, float]:
    """Of this process and of its descendants, each."""
    parents, seconds = {}, {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields, process = file.read_text().rpartition(")")[2].split(), int(file.parent.name)
            parents[process] = int(fields[1])
            seconds[process] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def is_ours(process: int) -> bool:
        return process == os.getpid() or (process in parents and is_ours(parents[process]))

    return {process: spent for process, spent in seconds.items() if is_ours(process)}


def alternating(runs: Mapping[str, Callable[[], Cost]], rounds: int, warm_up: int = 1) -> dict[str, list[Cost]]:
    """What each run costs in each round but those to warm up. Every other round begins with the last run."""
    costs: dict[str, list[Cost]] = {name: [] for name in runs}
    for round_ in range(warm_up + rounds):
        for name in list(runs)[:: -1 if round_ % 2 else 1]:
            cost = runs[name]()
            if round_ >= warm_up:
                costs[name].append(cost)
    return costs


def show(title: str, costs: Mapping[str, Sequence[Cost]], notes: Mapping[str, str]) -> None:
    """A line for each way. The first is compared with the others."""
    print(title)
    [own, *_] = costs.values()
    for name, runs in costs.items():
        seconds, processor = (statistics.median(values) for values in zip(*map(astuple, runs), strict=True))
        line = f"  {name:13}{seconds:8.3f} s, processor {processor:7.2f} s {notes[name]}"
        if runs is not own:
            pairs = list(zip(own, runs, strict=True))
            ratio = statistics.median(other.seconds / mine.seconds for mine, other in pairs)
            slower = 1000 * statistics.median(mine.seconds - other.seconds for mine, other in pairs)
            less = statistics.median(other.processor / mine.processor for mine, other in pairs)
            line += f"  {ratio:5.2f} times ({slower:+.0f} ms), processor {less:.2f}"
        print(line, flush=True)


def files(spark: SparkSession, table: str) -> str:
    """How many files a table has, their bytes, and how many of them Delta's writer made."""
    paths = [Path(path.removeprefix("file:")) for path in spark.table(table).inputFiles()]
    others = sum(not str(pq.read_metadata(path).created_by).startswith("parquet-cpp-arrow") for path in paths)
    size = sum(path.stat().st_size for path in paths)
    return f"{size:>12,} bytes, {len(paths):3} files, {others:3} by Delta"


def content(spark: SparkSession, table: str) -> tuple[object, ...]:
    columns = ", ".join(f"{column}::string" for column in spark.table(table).columns)
    return tuple(spark.sql(f"SELECT count(*), bit_xor(xxhash64({columns})) FROM {table}").first())


def equal(ways: Sequence[Way], tables: Mapping[str, str]) -> None:
    """Fails if the tables have other rows. A plain session reads all of them."""
    rows = {content(ways[1].spark, tables[way.name]) for way in ways}
    assert len(rows) == 1, rows


def numbered(spark: SparkSession, rows: int, partitions: int) -> DataFrame:
    return events(spark, rows, partitions).select("id", F.expr("int(id % 10)").alias("n"), "v")


def inserts(ways: list[Way], work: Path, title: str, query: str, columns: str, rounds: int) -> dict[str, list[Cost]]:
    """One INSERT into new tables, and what it costs."""
    tables: dict[str, str] = {}

    def insert(way: Way) -> Cost:
        shutil.rmtree(work / way.name, ignore_errors=True)
        tables[way.name] = way.table(work / way.name, columns)
        return timed(lambda: way.spark.sql(f"INSERT INTO {tables[way.name]} {query}"))

    costs = alternating({way.name: lambda way=way: insert(way) for way in ways}, rounds)
    show(title, costs, {way.name: files(way.spark, tables[way.name]) for way in ways})
    equal(ways, tables)
    return costs


def insert(work: Path, rows: int, rounds: int) -> None:
    ways = sessions()
    plain, query = ways[1].spark, from_files(ways, work, rows, rounds)[0]
    plain.sql(f"CACHE TABLE kept AS {query}")  # all sessions of a JVM use what one has cached
    inserts(ways, work, f"INSERT of {rows:,} events from memory", query, "id LONG, v VARIANT", rounds)


def from_files(ways: list[Way], work: Path, rows: int, rounds: int) -> tuple[str, dict[str, list[Cost]]]:
    """An INSERT of events from Parquet files: its query, and what it costs."""
    plain, source = ways[1].spark, work / "source"
    plain.conf.set("spark.sql.variant.writeShredding.enabled", "false")
    events(plain, rows, 4).write.parquet(str(source))
    plain.conf.unset("spark.sql.variant.writeShredding.enabled")
    query = f"TABLE parquet.`{source}`"
    title = f"INSERT of {rows:,} events from Parquet files"
    return query, inserts(ways, work, title, query, "id LONG, v VARIANT", rounds)


def texts(work: Path, rows: int, rounds: int) -> None:
    ways, source = sessions(), work / "source"
    ways[1].spark.range(0, rows, 1, 4).select(F.expr(EVENT)).write.text(str(source))
    query = f"SELECT parse_json(value) AS v FROM text.`{source}`"
    inserts(ways, work, f"INSERT … SELECT parse_json(value) of {rows:,} texts", query, "v VARIANT", rounds)


def statements(
    work: Path, rows: int, rounds: int, texts: Mapping[str, str], partitions: int = FILES, *, vectors: bool = False
) -> None:
    """Each statement, on copies of a table that the same way has written. vectors: whether it has deletion vectors."""
    ways, properties = sessions(), f"'delta.enableDeletionVectors' = '{str(vectors).lower()}'"
    plain = ways[1].spark
    changed = numbered(plain, rows + rows // 100, 2).where(f"id % 100 = 7 OR id >= {rows}").withColumn("n", F.col("n") + 5)
    changed.write.parquet(str(work / "changes"))
    bases: dict[str, str] = {}
    for way in ways:
        way.spark.read.parquet(str(work / "changes")).createOrReplaceTempView("changes")
        bases[way.name] = way.table(work / "base" / way.name, COLUMNS, properties)
        numbered(way.spark, rows, partitions).write.format("delta").mode("append").save(str(work / "base" / way.name))
    print(f"tables of {rows:,} events", properties)
    for way in ways:
        print(f"  {way.name:14}{files(way.spark, bases[way.name])}")
    for title, statement in texts.items():
        tables: dict[str, str] = {}

        def run(way: Way, statement: str = statement, tables: dict[str, str] = tables) -> Cost:
            path = Path(tempfile.mkdtemp(dir=work))  # Delta keeps the log of a path
            if way.name in tables:
                shutil.rmtree(tables[way.name].split("`")[1])
            shutil.copytree(work / "base" / way.name, path, copy_function=os.link, dirs_exist_ok=True)
            tables[way.name] = f"delta.`{path}`"
            way.spark.table(tables[way.name]).inputFiles()  # so that its log is read
            return timed(lambda: way.spark.sql(statement.format(tables[way.name])))

        costs = alternating({way.name: lambda way=way: run(way) for way in ways}, rounds)
        show(f"{title} of {rows:,} events", costs, {way.name: files(way.spark, tables[way.name]) for way in ways})
        equal(ways, tables)


def changes(work: Path, rows: int, rounds: int) -> None:
    statements(work, rows, rounds, CHANGES | OPTIMIZE)


def few(work: Path, rows: int, rounds: int) -> None:
    statements(work, rows, rounds, CHANGES, vectors=True)


def compact(work: Path, rows: int, rounds: int) -> None:
    statements(work, rows, rounds, {"OPTIMIZE": OPTIMIZE["OPTIMIZE"]}, MANY_FILES)


def stream(work: Path, rows: int, rounds: int) -> None:
    ways, source, tables = sessions(), work / "source", {}
    events(ways[1].spark, rows * BATCHES, BATCHES).write.parquet(str(source))

    def run(way: Way) -> Cost:
        path = Path(tempfile.mkdtemp(dir=work))
        tables[way.name] = way.table(path, "id LONG, v VARIANT")
        reader = way.spark.readStream.schema("id LONG, v VARIANT").option("maxFilesPerTrigger", 1)
        writer = reader.parquet(str(source)).writeStream.format("delta").option("checkpointLocation", f"{path}/_checkpoint")
        query = writer.trigger(availableNow=True).start(str(path))
        cost = timed(query.awaitTermination)
        batches = [each["durationMs"]["triggerExecution"] for each in query.recentProgress if each["numInputRows"]]
        assert len(batches) == BATCHES
        return Cost(statistics.median(batches) / 1000, cost.processor / BATCHES)

    costs = alternating({way.name: lambda way=way: run(way) for way in ways}, rounds)
    show(f"a batch of {rows:,} events", costs, {way.name: files(way.spark, tables[way.name]) for way in ways})
    equal(ways, tables)


def ten(work: Path, rows: int, rounds: int) -> None:
    ways = sessions()
    small(ways, work, rows, rounds, "id LONG, v VARIANT", "SELECT id, parse_json(to_json(struct(id, id % 17 AS kind))) AS v")


def small(ways: list[Way], work: Path, rows: int, rounds: int, columns: str, query: str) -> None:
    """Writes of few rows into tables that remain: by SQL, and by a DataFrame."""
    tables = {way.name: way.table(work / f"small {way.name}", columns) for way in ways}

    def by_sql(way: Way) -> Cost:
        return timed(lambda: way.spark.sql(f"INSERT INTO {tables[way.name]} {query} FROM range({rows})"))

    def by_frame(way: Way) -> Cost:
        data = way.spark.sql(f"{query} FROM range({rows})").coalesce(1)
        return timed(lambda: data.write.format("delta").mode("append").save(str(work / f"small {way.name}")))

    for title, run in (("INSERT", by_sql), ("DataFrameWriter", by_frame)):
        costs = alternating({way.name: lambda way=way, run=run: run(way) for way in ways}, rounds, FEW_WARM_UP)
        show(f"{rows} rows once warm, {title}", costs, {way.name: files(way.spark, tables[way.name]) for way in ways})
    equal(ways, tables)


def first(_: Path, rows: int, rounds: int) -> None:
    """Each kind of first write in a new process, in alternation."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def run(kind: str) -> dict[str, float]:
        command = [sys.executable, "-m", "benchmarks.every_write", f"first-{kind}", str(rows), "1"]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
        found: dict[str, float] = json.loads(output.splitlines()[-1])
        return found

    run("ours")  # so that modules and kernels are compiled, and kept on disk
    parts: dict[str, list[dict[str, float]]] = {kind: [] for kind in FIRST}
    for round_ in range(rounds):
        for kind in list(FIRST)[:: -1 if round_ % 2 else 1]:
            parts[kind].append(run(kind))
    print(f"the first write of a process, {rows} rows; seconds, medians of {rounds} processes")
    for kind, found in parts.items():
        medians = {name: statistics.median(each[name] for each in found) for name in found[0]}
        print(f"  {FIRST[kind]:55}" + "".join(f"  {name} {seconds:5.2f}" for name, seconds in medians.items()))


def first_of(kind: str, work: Path, rows: int) -> None:
    """Prints the seconds of one kind of first write, and of what is before and after it."""
    start = time.perf_counter()
    enabled = session()
    took = {"session and enable": time.perf_counter() - start}
    own = Way("enabled", enabled)
    plain = Way("plain", enabled.newSession())
    way = plain if kind == "delta" else own
    before: dict[str, Callable[[], object]] = {
        "workers": lambda: enabled.range(2).rdd.map(lambda row: row).count(),
        "kernels": lambda: (
            enabled.range(0, 2, 1, 2).rdd.map(lambda _: compiled(['{"id": 1, "kind": 2}'], "id BIGINT").place).count()
        ),
        "statement": lambda: inserted(plain, work / "other", rows),
    }
    took["before"] = timed(before.get(kind, lambda: None)).seconds
    cost = inserted(way, work / "table", rows)
    took |= {"first": cost.seconds, "its processor": cost.processor, "second": inserted(way, work / "table", rows).seconds}
    print(json.dumps(took))


def inserted(way: Way, path: Path, rows: int) -> Cost:
    name = f"delta.`{path}`" if path.exists() else way.table(path, "id LONG, v VARIANT")
    query = "SELECT id, parse_json(to_json(struct(id, id % 17 AS kind))) AS v"
    return timed(lambda: way.spark.sql(f"INSERT INTO {name} {query} FROM range(0, {rows}, 1, 2)"))


def ordinary(work: Path, rows: int, rounds: int) -> None:
    ways = [Way(way.name, way.spark, "") for way in sessions()[:2]]
    query = "SELECT id, int(id % 10) AS n, concat('name', id % 1009) AS name, id * 0.5D AS score, timestamp_seconds(id) AS at"
    plain = ways[1].spark
    plain.sql(f"{query} FROM range(0, {rows}, 1, 4)").write.parquet(str(work / "source"))
    inserts(ways, work, f"INSERT of {rows:,} rows without a VARIANT", f"TABLE parquet.`{work / 'source'}`", ORDINARY, rounds)
    small(ways, work, 10, ROUNDS["ten"], ORDINARY, query)


PARTS = {
    "insert": insert,
    "texts": texts,
    "changes": changes,
    "few": few,
    "compact": compact,
    "stream": stream,
    "ten": ten,
    "first": first,
    "ordinary": ordinary,
}


def main() -> None:
    if len(sys.argv) < 2:
        for part in PARTS:
            subprocess.run([sys.executable, "-m", "benchmarks.every_write", part], check=True)
        return
    part, *numbers = sys.argv[1:]
    name, _, kind = part.partition("-")
    rows, rounds = [int(number.replace("_", "")) for number in numbers] + [ROWS[name], ROUNDS[name]][len(numbers) :]
    with tempfile.TemporaryDirectory(prefix="delta-variant-every-write-") as folder:
        work = Path(folder)
        if kind:
            first_of(kind, work, rows)
        else:
            PARTS[name](work, rows, rounds)
        if active := SparkSession.getActiveSession():
            active.stop()


if __name__ == "__main__":
    main()
