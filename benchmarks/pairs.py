"""Each pair of Spark and Delta, beside that pair alone: python -m benchmarks.pairs [ROWS [ROUNDS]]

For each pair, in an environment of its own below `.pins` (`tests.versions`), in enabled and plain sessions in alternation:

    INSERT      of 300,000 events from Parquet files, as in `every_write`; the ratio of seconds, the median over three rounds
    JSONBench   the sum over the five queries of `jsonbench` on 300,000 documents, of which the table in the plain session was
                written by Delta. Spark 4.0 shreds nothing by itself

Ratios above 1: the enabled session is faster. The table of docs/reference/support.md has them.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import every_write, jsonbench
from benchmarks.events import session
from tests.pins import PAIRS
from tests.versions import other_pair

ROWS, ROUNDS = 300_000, 3


def main() -> None:
    own = [int(number) for number in sys.argv[1:3]]
    rows, rounds = [*own, *(ROWS, ROUNDS)[len(own) :]]
    for pair, python in [*((pair, other_pair(*pair)) for pair in PAIRS), (("4.2.0", "4.4.0"), sys.executable)]:
        command = [python, "-m", "benchmarks.pairs", str(rows), str(rounds), "this"]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        print(output.rpartition("\n{")[0])
        found = json.loads(output.splitlines()[-1])
        print(*pair, *(f"{name} {ratio:.2f}" for name, ratio in found.items()), flush=True)


def this(rows: int, rounds: int) -> dict[str, float]:
    """The ratios of the pair in this environment."""
    on = session(**{"spark.sql.variant.allowReadingShredded": "true", "spark.databricks.delta.snapshotPartitions": "2"})
    off = on.newSession()
    with tempfile.TemporaryDirectory(prefix="delta-variant-pairs-") as folder:
        ways = [every_write.Way("enabled", on), every_write.Way("plain", off)]
        _, costs = every_write.from_files(ways, Path(folder), rows, rounds)
        ratios = [theirs.seconds / ours.seconds for ours, theirs in zip(costs["enabled"], costs["plain"], strict=True)]
        documents = Path(folder, "jsonbench")
        documents.mkdir()
        sums = jsonbench.compared(jsonbench.load(on, off, documents, rows, others=False))
        jsonbench.show("sum", sums)
    return {"INSERT": statistics.median(ratios), "JSONBench": sums["scan"] / sums["typed"]}


if __name__ == "__main__":
    if sys.argv[3:] == ["this"]:
        print(json.dumps(this(*map(int, sys.argv[1:3]))))
    else:
        main()
