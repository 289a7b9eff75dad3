"""`binary.parse_json` beside Spark's `parse_json`, DuckDB and Polars: python -m benchmarks.json_text [MIB [SET…]]

Each set has so many MiB of texts, 16 by default. All run on one thread, in alternation; medians of five rounds after one to
warm up, and ratios within rounds. Spark's time is that of a query over cached texts that writes the Variants nowhere, less that
of the same query with their lengths. DuckDB and Polars read the texts as newline-delimited JSON into columns, from a file and
from memory, Polars with types given. They have no columns for `keys`, take ten seconds for `deep`, and get `pretty` on one line
per text.
"""

import hashlib
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import resources
from itertools import cycle
from pathlib import Path

os.environ["POLARS_MAX_THREADS"] = "1"

import duckdb
import polars as pl
import pyarrow as pa
import zstandard
from pyspark.sql import SparkSession

from benchmarks.jsonbench import documents
from delta_variant import binary

ROUNDS = 5
WORDS = ["alpha", "beta", "line\nbreak", 'quo"ted', "back\\slash", "tab\t", "é", "日本"]


def dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def events() -> Iterator[str]:
    """As benchmarks.events has them: 15 leaves, one of them in an array of objects."""
    n = 0
    while True:
        n += 1
        user, repo = n * 7919 % 1000003, n * 31 % 50021
        commit = {"sha": hashlib.md5(str(n).encode()).hexdigest(), "n": n % 3}
        yield dump(
            {"ts": f"2023-11-14T{n // 3600 % 24:02}:{n // 60 % 60:02}:{n % 60:02}.000Z", "id": n, "type": f"Event{n % 17}"}
            | {"actor": {"id": user, "login": f"user{user}"}, "repo": {"id": repo, "name": f"org/repo{repo}"}}
            | {"public": n % 10 != 0, "score": n * 0.37, "amount": round(n * 0.01, 2)}
            | {"payload": {"size": n % 100, "ref": f"refs/heads/b{n % 300}", "commits": [commit]}}
        )


def feed() -> Iterator[str]:
    """The bundled feed, over and over."""
    packed = resources.files("delta_variant").joinpath("data/earthquakes.ndjson.zst").read_bytes()
    return cycle(zstandard.ZstdDecompressor().decompress(packed).decode().splitlines())


def made(make: Callable[[random.Random], object]) -> Iterator[str]:
    rng = random.Random(1)
    while True:
        yield dump(make(rng))


def wide(rng: random.Random) -> object:
    return {f"field_{k:03}": rng.randrange(1 << 40) if k % 2 else str(rng.randrange(1 << 40)) for k in range(200)}


def deep(rng: random.Random) -> object:
    value: object = rng.randrange(1000)
    for k in range(30):
        value = {"child": value, "n": k}
    return value


def escapes(rng: random.Random) -> object:
    return {"text": " ".join(rng.choices(WORDS, k=30)), "inner": dump({"a": rng.choices(WORDS, k=5)})}


def numbers(rng: random.Random) -> object:
    return {"x": [rng.uniform(-1e3, 1e3) for _ in range(40)], "n": [rng.randrange(1 << 50) for _ in range(20)]}


def doubles(rng: random.Random) -> object:
    return {"x": [rng.uniform(-1, 1) * 10 ** rng.randrange(-30, -5) for _ in range(60)]}


def keys(rng: random.Random) -> object:
    return {f"user{rng.randrange(10_000)}": {"seen": rng.randrange(1000)} for _ in range(20)}


SETS: dict[str, Callable[[], Iterator[str]]] = {
    "events": events,
    "feed": feed,
    "bluesky": lambda: map(dump, documents(200_000)),
    "pretty": lambda: (json.dumps(json.loads(text), indent=2) for text in events()),
    "wide": lambda: made(wide),
    "deep": lambda: made(deep),
    "escapes": lambda: made(escapes),
    "numbers": lambda: made(numbers),
    "doubles": lambda: made(doubles),
    "keys": lambda: made(keys),
}


WITHOUT_COLUMNS = {"keys", "deep"}


def some(texts: Iterator[str], size: int) -> list[str]:
    """As many texts as have `size` bytes."""
    found: list[str] = []
    while size > 0 and (text := next(texts, None)) is not None:
        found.append(text)
        size -= len(text.encode())
    return found


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def noop(spark: SparkSession, expression: str) -> None:
    spark.table("texts").selectExpr(f"{expression} AS v").write.format("noop").mode("overwrite").save()


def main() -> None:
    size = int(sys.argv[1]) << 20 if len(sys.argv) > 1 else 16 << 20
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    duck = duckdb.connect(config={"threads": 1})
    file = Path(tempfile.mkdtemp(prefix="delta-variant-json-"), "texts.ndjson")
    for name in sys.argv[2:] or SETS:
        texts = SETS[name]
        column = pa.array(some(texts(), size))
        count = sum(len(text.as_py().encode()) for text in column)
        spark.createDataFrame(pa.table({"t": column})).coalesce(1).cache().createOrReplaceTempView("texts")
        steps: dict[str, Callable[[], object]] = {
            "ours": lambda column=column: binary.parse_json(column),
            "spark": lambda: noop(spark, "parse_json(t)"),
            "scan": lambda: noop(spark, "length(t)"),
        }
        if name not in WITHOUT_COLUMNS:
            file.write_text("\n".join(dump(json.loads(t.as_py())) if name == "pretty" else t.as_py() for t in column) + "\n")
            raw, types = file.read_bytes(), pl.read_ndjson(file).schema
            read = f"CREATE OR REPLACE TEMP TABLE t AS SELECT * FROM read_json('{file}', format='newline_delimited')"
            steps["duckdb"] = lambda read=read: duck.execute(read)
            steps["polars"] = lambda raw=raw, types=types: pl.read_ndjson(raw, schema=types)
        times = [{step: seconds(action) for step, action in steps.items()} for _ in range(ROUNDS + 1)][1:]
        for taken in times:
            taken["spark"] -= taken.pop("scan")
        median = {step: statistics.median(taken[step] for taken in times) for step in times[0]}
        ratio = {step: statistics.median(taken[step] / taken["ours"] for taken in times) for step in times[0]}
        rates = "  ".join(f"{step} {count / median[step] / 1e6:4.0f} MB/s" for step in median)
        print(
            f"{name:8} {rates}  {'  '.join(f'{step} / ours = {ratio[step]:.1f}' for step in ratio if step != 'ours')}",
            flush=True,
        )
        spark.catalog.uncacheTable("texts")
    spark.stop()


if __name__ == "__main__":
    main()
