"""Paths against ordinary columns: python -m benchmarks.reading [ROWS]

The same queries, two million events by default, in turns: paths by Spark's scan (without typed reading), paths by typed
reading, and ordinary columns with the same values. Printed are medians of three rounds after one to warm up, and their
ratios. Then a stream of three paths, and two queries of a path that has a number in place of a text in one event
of a hundred. Then what typed reading adds to planning, on 600 files, and what it leaves to Spark's scan where nothing is proven
of ten files in a hundred.
"""

import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame

import delta_variant as dv
from benchmarks.events import events, session

TYPED = "spark.delta_variant.typedReading"
ROUNDS = 3
COLUMNS = {
    "id": "v:id::bigint",
    "amount": "v:amount::decimal(18,2)",
    "type": "v:type::string",
    "repo": "v:repo.name::string",
    "size": "v:payload.size::int",
    "actor": "v:actor::struct<id bigint, login string>",
    "commits": "v:payload.commits::array<struct<sha string, n int>>",
}
ELEMENTS = {
    "sha": ("v:payload.commits[0].sha::string", "commits[0].sha"),
    "n": ("v:payload.commits[0].n::int", "commits[0].n"),
    "each": ("variant_explode(v:payload.commits) AS e", "explode(commits) AS e(value)"),
    "each sha": ("e.value:sha::string", "e.value.sha"),
    "each n": ("e.value:n::int", "e.value.n"),
}
"""Elements of arrays, as a path and of an ordinary column."""
QUERIES = {
    "sum": "SELECT sum({amount}) FROM {table}",
    "sum as double": "SELECT sum(cast({amount} AS double)) FROM {table}",
    "group": "SELECT {type} k, count(*) FROM {table} GROUP BY 1 ORDER BY 1",
    "filter": "SELECT count(*) FROM {table} WHERE {id} BETWEEN 1000 AND 1100",
    "filter and group": "SELECT {repo}, sum({size}) FROM {table} WHERE {amount} > 500 GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 10",
    "join": "SELECT count(*) FROM {table} a JOIN (SELECT DISTINCT {id} i FROM {table} WHERE {size} = 7) b ON {id} = b.i",
    "extremes": "SELECT min({id}), max({amount}), count(*) FROM {table}",
    "element": "SELECT sum({n}), min({sha}) FROM {table}",
    "struct": "SELECT sum(a.id), min(a.login) FROM (SELECT {actor} a FROM {table})",
    "exploded": "SELECT sum({each n}), min({each sha}), count(*) FROM {table}, LATERAL {each}",
    "last of an order": "SELECT {id} FROM {table} ORDER BY {id} DESC LIMIT 10",
}
STREAM = ["id", "type", "amount"]
"""The columns that a stream reads."""
ODD = {"another type": QUERIES["group"], "filter on it": "SELECT count(*) FROM {table} WHERE {type} = '3'"}
"""Queries of values of another type."""


def median(actions: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, float]:
    """Seconds of each action, in turns, and all results equal."""
    taken: dict[str, list[float]] = {name: [] for name in actions}
    for round_ in range(1 + rounds):
        results = []
        for name, action in actions.items():
            start = time.perf_counter()
            results.append(action())
            if round_:
                taken[name].append(time.perf_counter() - start)
        assert all(result == results[0] for result in results)
    return {name: statistics.median(runs) for name, runs in taken.items()}


class Bench:
    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.spark = session(**{"spark.driver.memory": "4g", "spark.databricks.delta.snapshotPartitions": "2"})
        self.work = Path(tempfile.mkdtemp(prefix="delta-variant-reading-"))

    def table(self, name: str) -> str:
        path = self.work / name
        shredded = "USING delta TBLPROPERTIES ('delta.enableVariantShredding' = 'true')"
        self.spark.sql(f"CREATE TABLE delta.`{path}` (id LONG, v VARIANT) {shredded}")
        return f"delta.`{path}`"

    def ask(self, typed: bool, query: str) -> Callable[[], object]:
        def run() -> object:
            self.spark.conf.set(TYPED, str(typed).lower())
            return self.spark.sql(query).collect()

        return run

    def paths(self, name: str, rows: DataFrame, queries: dict[str, str]) -> None:
        table = self.table(name)
        dv.write(rows, table)
        columns = f"delta.`{self.work / name}-columns`"
        named = [f"{asked} {name}" for name, asked in COLUMNS.items()]
        self.spark.table(table).selectExpr(*named).write.format("delta").save(f"{self.work / name}-columns")
        for form, query in queries.items():
            asked = query.format(table=table, **COLUMNS, **{name: path for name, (path, _) in ELEMENTS.items()})
            ordinary = {name: name for name in COLUMNS} | {name: column for name, (_, column) in ELEMENTS.items()}
            actions = {
                "scan": self.ask(False, asked),
                "typed": self.ask(True, asked),
                "columns": self.ask(True, query.format(table=columns, **ordinary)),
            }
            show(form, median(actions))

    def stream(self, name: str) -> None:
        """Streams of three paths of the events, and of ordinary columns with the same values."""
        paths = [f"{COLUMNS[column]} {column}" for column in STREAM]
        actions = {
            "scan": self.streamed(False, name, paths),
            "typed": self.streamed(True, name, paths),
            "columns": self.streamed(True, f"{name}-columns", STREAM),
        }
        show("stream", median(actions))

    def streamed(self, typed: bool, name: str, columns: list[str]) -> Callable[[], object]:
        def run() -> object:
            self.spark.conf.set(TYPED, str(typed).lower())
            stream = self.spark.readStream.format("delta").load(f"{self.work / name}").selectExpr(*columns)
            query = stream.writeStream.format("noop").trigger(availableNow=True).start()
            query.awaitTermination()
            return sum(progress["numInputRows"] for progress in query.recentProgress)

        return run

    def odd_events(self) -> DataFrame:
        """Events, one in a hundred of which has a number at `type`."""
        number = r"""regexp_replace(to_json(v), '"type":"Event([0-9]+)"', '"type":$1')"""
        return events(self.spark, self.rows, 4).selectExpr("id", f"if(id % 100 = 3, parse_json({number}), v) v")

    def planning(self) -> None:
        table = self.table("files")
        dv.write(
            events(self.spark, 600 * 50, 1),
            table,
            max_rows_per_file=50,
            shred={"v": "id bigint, type string, amount decimal(18,2)"},
        )
        for name, query in (
            ("one path", f"SELECT sum(v:id::bigint) FROM {table}"),
            (
                "three paths",
                f"SELECT v:type::string, sum(v:id::int), max(v:amount::double) FROM {table} WHERE id > 5 GROUP BY 1",
            ),
            ("the whole", f"SELECT v FROM {table} WHERE v:id::bigint = 5"),
        ):
            taken = median({key: self.plan(key == "typed", query) for key in ("without", "typed")}, 15)
            without, typed = (1000 * taken[key] for key in ("without", "typed"))
            print(
                f"  planning, 600 files, {name:12} {without:6.1f} ms, typed {typed:6.1f} ms ({typed - without:+.1f} ms)",
                flush=True,
            )

    def plan(self, typed: bool, query: str) -> Callable[[], object]:
        def run() -> None:
            self.spark.conf.set(TYPED, str(typed).lower())
            self.spark.sql(query)._jdf.queryExecution().executedPlan()  # noqa: SLF001  # no public name

        return run

    def unproven(self) -> None:
        """Of a hundred files ten are plain: the time of Spark's scan over them is what is left of it."""
        table, each = self.table("unproven"), self.rows // 200
        dv.write(events(self.spark, 90 * each, 1), table, max_rows_per_file=each)
        dv.write(events(self.spark, 10 * each, 1), table, max_rows_per_file=each, shred=False)
        query = f"SELECT sum({COLUMNS['amount']}) FROM {table}"
        taken = median({"scan": self.ask(False, query), "typed": self.ask(True, query)})
        scan, typed = taken["scan"], taken["typed"]
        print(f"  100 files, 10 of them plain: scan {scan:5.2f} s, typed {typed:5.2f} s ({typed / scan:.2f} of the scan)")


def show(name: str, seconds: dict[str, float]) -> None:
    listed = "  ".join(f"{key} {taken:5.2f} s" for key, taken in seconds.items())
    faster, ordinary = seconds["scan"] / seconds["typed"], seconds["typed"] / seconds["columns"]
    print(f"  {name:18} {listed}  {faster:5.1f} times faster, {ordinary:4.2f} of ordinary columns", flush=True)


def main() -> None:
    bench = Bench(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000)
    bench.paths("events", events(bench.spark, bench.rows, 4), QUERIES)
    bench.stream("events")
    bench.paths("odd", bench.odd_events(), ODD)
    bench.planning()
    bench.unproven()
    bench.spark.stop()
    shutil.rmtree(bench.work)


if __name__ == "__main__":
    main()
