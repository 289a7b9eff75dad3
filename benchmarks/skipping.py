"""Skipping: what it costs, and what it gains: python -m benchmarks.skipping [PART ...]

    unhelped   queries for which nothing can be skipped, skipping on against off, on 10 and on 100 small files
    long       planning of long predicates, skipping on against off: 600 small files, decided on the driver and by a job
    commit     planning of the first query after a commit of one file, skipping on against off: a log of 5,000 files
    point      one row by a path against one row by an ordinary column, which delta-spark skips by itself: 100 small files
    many       one row by a path, skipping on against delta-spark alone: 1,000 files
    commands   DELETE, UPDATE and MERGE of one row by a path, skipping on against delta-spark alone: 1,000 files
    log        deciding on a log of 100,000 files against what delta-spark takes for an ordinary column: time and driver memory
    tags       planning of delta-spark, without skipping, on logs of 2,000 and 30,000 files by the size of the Adds' tags

All parts without an argument. What is compared runs in turns, in an order that rotates, and is printed with the quartiles;
ratios and differences are medians over the rounds, pair by pair. Skipping is on in one session and off in its sibling.
"""

import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import delta_variant as dv
from benchmarks.events import events, session
from benchmarks.logs import MARK, ROWS, append_log, make_log, random_text
from delta_variant.stats import NONNULL_TAG

WARM_UP, ROUNDS = 6, 21
LONG_FILES = 600
ROWS_A_FILE = {10: 200, 100: 200, LONG_FILES: 50, 1000: 2000}
SAMPLED_PLANS = 3

Actions = dict[str, Callable[[], object]]


def long_predicates() -> dict[str, str]:
    """By what they are made of. Numbers are all over the ids of 600 files, and beyond."""

    def joined(word: str, term: str, count: int) -> str:
        return f" {word} ".join(term.format(n * 331) for n in range(count))

    def listed(count: int, literal: str = "{}") -> str:
        return ", ".join(literal.format(n * 331) for n in range(count))

    return {
        "one comparison": "v:id::int = 5",
        "OR of 500": joined("OR", "v:id::int = {}", 500),
        "OR of 500 strings": joined("OR", "v:actor.login::string = 'user{}'", 500),
        "AND of 100 <>": joined("AND", "v:id::int <> {}", 100),
        "OR of 100 pairs": joined("OR", "(v:id::int = {0} AND v:actor.login::string = 'user{0}')", 100),
        "OR of 100 ranges": joined("OR", "v:id::int BETWEEN {0} AND {0} + 3", 100),
        "IN of 1,000": f"v:id::int IN ({listed(1_000)})",
        "IN of 10,000": f"v:id::int IN ({listed(10_000)})",
        "IN of 10,000 strings": f"""v:actor.login::string IN ({listed(10_000, "'user{}'")})""",
        "OR of 200, no bounds": joined("OR", "v:nothing::int = {}", 200),
    }


def in_turns(actions: Actions, rounds: int = ROUNDS, before: Callable[[], object] = lambda: None) -> dict[str, list[float]]:
    """Milliseconds of every round of each action, after the rounds to warm up."""
    taken: dict[str, list[float]] = {name: [] for name in actions}
    names = list(actions)
    for round_ in range(WARM_UP + rounds):
        for i in range(len(names)):
            name = names[(round_ + i) % len(names)]
            before()
            start = time.perf_counter()
            actions[name]()
            if round_ >= WARM_UP:
                taken[name].append((time.perf_counter() - start) * 1000)
    return taken


def show(taken: dict[str, list[float]], base: str) -> None:
    """Medians and quartiles, and each against the base, pair by pair."""
    for name, runs in taken.items():
        low, middle, high = statistics.quantiles(runs, n=4)
        line = f"    {name:24} {middle:8.1f} ms  ({low:.1f} to {high:.1f})"
        if name != base:
            pairs = list(zip(runs, taken[base], strict=True))
            difference, ratio = statistics.median(a - b for a, b in pairs), statistics.median(a / b for a, b in pairs)
            line += f"  {difference:+8.1f} ms  {(ratio - 1) * 100:+6.1f} %  ratio {ratio:.3f}"
        print(line, flush=True)


class Bench:
    def __init__(self) -> None:
        self.on = session(**{"spark.driver.memory": "4g"})
        self.off = self.on.newSession()
        self.work = Path(tempfile.mkdtemp(prefix="delta-variant-skipping-"))

    def table(self, files: int) -> str:
        """Files of consecutive ids, written by this package, in `id` and at the path `id`."""
        path = self.work / f"files-{files}"
        if not path.exists():
            self.on.sql(
                f"CREATE TABLE delta.`{path}` (id LONG, v VARIANT) USING delta "
                "TBLPROPERTIES ('delta.enableVariantShredding' = 'true')"
            )
            dv.write(events(self.on, files * ROWS_A_FILE[files]), path, max_rows_per_file=ROWS_A_FILE[files])
        return str(path)

    def query(self, spark: SparkSession, path: str, predicate: str | None) -> DataFrame:
        df = spark.read.format("delta").load(path)
        return df if predicate is None else df.where(predicate)

    def run(self, spark: SparkSession, path: str, predicate: str) -> Callable[[], object]:
        return lambda: self.query(spark, path, predicate).select("id").collect()

    def plan(self, spark: SparkSession, path: str, predicate: str | None) -> Callable[[], object]:
        return lambda: self.query(spark, path, predicate)._jdf.queryExecution().optimizedPlan()  # noqa: SLF001  # no public name

    def partitions(self, count: str) -> None:
        """Of the state of the tables read from now on: Delta's 50 are 50 tasks, 0.3 s on two cores, for every query."""
        for spark in (self.on, self.off):
            spark.conf.set("spark.databricks.delta.snapshotPartitions", count)

    def unhelped(self) -> None:
        """The second run with skipping off tells how much of a difference is noise."""
        for files in (10, 100):
            path = self.table(files)
            for why, predicate in (
                ("bounds that overlap", "v:payload.size::int = 5"),
                ("no bounds", "v:nothing::int = 5"),
                ("not understood", "length(v:actor.login::string) = 4"),
                ("only <>", "v:id::long <> 5"),
            ):
                print(f"  {files} files, {why}: {predicate}")
                off = self.run(self.off, path, predicate)
                show(in_turns({"off": off, "off again": off, "on": self.run(self.on, path, predicate)}), "off")

    def long(self) -> None:
        """The state of the log is in two partitions: where Delta's own part is short, ours weighs most."""
        self.partitions("2")
        path = self.table(LONG_FILES)
        for kept, where in (("5000", "on the driver"), ("0", "by a job")):
            self.on.conf.set("spark.delta_variant.keptFiles", kept)
            for name, predicate in long_predicates().items():
                print(f"  {LONG_FILES} files, decided {where}, {name}")
                show(in_turns({key: self.plan(getattr(self, key), path, predicate) for key in ("off", "on")}, 9), "off")
        self.on.conf.unset("spark.delta_variant.keptFiles")
        self.partitions("50")

    def commit(self) -> None:
        """Each query is the first of its version. Delta reads the version before it is planned, for both."""
        self.partitions("2")
        path = make_log(self.on, self.work / "commits", 5_000, lambda _: MARK)
        number = count(2)

        def another() -> None:
            append_log(Path(path), next(number))
            self.plan(self.off, path, None)()

        print("  5,000 files without data, the first query after a commit of one file, planning")
        plans = {key: self.plan(getattr(self, key), path, "v:id::long = 7") for key in ("off", "on")}
        show(in_turns(plans, before=another), "off")
        self.partitions("50")

    def point(self) -> None:
        path, id_ = self.table(100), 50 * ROWS_A_FILE[100] + 7
        print(f"  100 files, id {id_}")
        column, by_path = f"id = {id_}", f"v:id::long = {id_}"
        show(in_turns({"column": self.run(self.off, path, column), "path": self.run(self.on, path, by_path)}), "column")

    def many(self) -> None:
        self.partitions("2")
        path, id_ = self.table(1000), 500 * ROWS_A_FILE[1000] + 7
        print(f"  1,000 files, id {id_}")
        predicate = f"v:id::long = {id_}"
        taken = in_turns({"path": self.run(self.on, path, predicate), "delta-spark": self.run(self.off, path, predicate)}, 7)
        show(taken, "path")
        self.partitions("50")

    def commands(self) -> None:
        """Each statement changes a row of its own, by deletion vectors, so that finding it weighs most.

        Delta makes the files in both sessions: `on` differs in skipping alone.
        """
        self.partitions("2")
        self.on.conf.set("spark.delta_variant.everyWrite", "off")
        table = f"delta.`{self.table(1000)}`"
        self.on.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
        ids = count(1000, 1777)
        for name, statement in (
            ("DELETE", "DELETE FROM {0} WHERE v:id::long = {1}"),
            ("UPDATE", "UPDATE {0} SET id = -1 WHERE v:id::long = {1}"),
            ("MERGE", "MERGE INTO {0} t USING (SELECT {1}L i) s ON t.v:id::long = s.i WHEN MATCHED THEN DELETE"),
        ):
            print(f"  1,000 files, {name} of one row")
            run = {
                key: lambda spark=spark, statement=statement: spark.sql(statement.format(table, next(ids)))
                for key, spark in (("on", self.on), ("delta-spark", self.off))
            }
            show(in_turns(run, 5), "on")
        self.on.conf.unset("spark.delta_variant.everyWrite")
        self.partitions("50")

    def log(self) -> None:
        """Every second file has the mark. The state of the log is in memory: the rounds to warm up read it."""
        path, id_ = make_log(self.on, self.work / "log", 100_000, lambda n: MARK if n % 2 else None), 70_000 * ROWS + 7
        predicate = f"v:id::long = {id_}"
        plans = {
            "column": self.plan(self.off, path, f"id = {id_}"),
            "path, off": self.plan(self.off, path, predicate),
            "path, on": self.plan(self.on, path, predicate),
        }
        print("  100,000 files without data, planning")
        taken = in_turns(plans, before=self.on._jvm.System.gc)  # noqa: SLF001  # no public name
        show(taken, "column")
        decided = [on - off for on, off in zip(taken["path, on"], taken["path, off"], strict=True)]
        ratio = statistics.median(d / c for d, c in zip(decided, taken["column"], strict=True))
        print(f"    deciding (on - off)      {statistics.median(decided):8.1f} ms, of delta-spark's for a column: {ratio:.3f}")
        self._memory(plans)

    def _memory(self, plans: Actions) -> None:
        """Live heap while and after planning, in MiB over what is live before; executors are in the same heap.

        A second thread collects garbage all the while: what a collection leaves at any moment was needed then.
        """
        print("  driver memory, MiB        at most while planning   kept by the plan   kept after it")
        over: dict[str, list[float]] = {}
        for name, plan in plans.items():
            peaks, held, left = [], [], []
            for _ in range(SAMPLED_PLANS):
                before, samples, done = self._live(), [0.0], threading.Event()
                sampler = threading.Thread(target=self._sample, args=(samples, done))
                sampler.start()
                planned = plan()
                done.set()
                sampler.join()
                peaks.append(max(samples) - before)
                held.append(self._live() - before)
                del planned
                left.append(self._live() - before)
            over[name] = [max(peaks), statistics.median(held), statistics.median(left)]
            print(f"    {name:24} {over[name][0]:21.1f} {over[name][1]:18.1f} {over[name][2]:15.1f}", flush=True)
        differences = [on - off for on, off in zip(over["path, on"], over["path, off"], strict=True)]
        print(f"    {'on - off':24} {differences[0]:21.1f} {differences[1]:18.1f} {differences[2]:15.1f}")

    def _sample(self, samples: list[float], done: threading.Event) -> None:
        while not done.is_set():
            samples.append(self._live(1))

    def _live(self, collections: int = 3) -> float:
        jvm = self.on._jvm  # noqa: SLF001  # no public name
        runtime = jvm.Runtime.getRuntime()
        for _ in range(collections):  # what py4j and Spark's cleaner let go takes more than one
            jvm.System.gc()
        return (runtime.totalMemory() - runtime.freeMemory()) / 2**20

    def tags(self) -> None:
        """With the state of the log in few partitions, where the tags weigh most."""
        self.partitions("2")
        for files in (2_000, 30_000):
            paths = {"none": make_log(self.on, self.work / f"tags-{files}-none", files, lambda _: None)}
            for size in (0, 128, 256, 464):
                paths[f"mark and {size} bytes" if size else "mark"] = make_log(
                    self.on,
                    self.work / f"tags-{files}-{size}",
                    files,
                    lambda n, size=size: {**MARK, NONNULL_TAG: random_text(size, n)} if size else MARK,
                )
            print(f"  {files:,} files without data, planning without a filter")
            plans = {name: self.plan(self.off, path, None) for name, path in paths.items()}
            show(in_turns(plans, before=self.on._jvm.System.gc), "none")  # noqa: SLF001  # no public name
        self.partitions("50")


def main() -> None:
    bench = Bench()
    parts = {part: getattr(bench, part) for part in ("unhelped", "long", "commit", "point", "many", "commands", "log", "tags")}
    for part in sys.argv[1:] or parts:
        print(part)
        parts[part]()
    bench.on.stop()
    shutil.rmtree(bench.work)


if __name__ == "__main__":
    main()
