"""Five queries after JSONBench, on generated documents like its own: python -m benchmarks.jsonbench [ROWS]

Side by side on the same documents, a million by default, in turns: Spark's scan over delta-spark's own shredded table, typed
reading over the table of this package, DuckDB over the files of that table, the same questions of a table of ordinary columns,
and ClickHouse's JSON type without hints or a sorting key, where the package chdb is installed, as `make bench` does. Printed
are the seconds of hot runs (the median of three after one to warm up), ratios, sums, what the tables take on disk and how long
they took to write. These are no results of JSONBench (https://github.com/ClickHouse/JSONBench): the documents are made up, with
kinds, collections and users in about its proportions, and its questions are worded anew, so that every engine here takes them.
"""

import importlib.util
import json
import random
import shutil
import string
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import SparkSession

import delta_variant as dv
from benchmarks.events import session
from benchmarks.reading import median

COLLECTIONS = {
    "app.bsky.feed.like": 448_944,
    "app.bsky.graph.follow": 360_374,
    "app.bsky.feed.post": 90_816,
    "app.bsky.feed.repost": 70_000,
    "app.bsky.graph.block": 15_000,
    "app.bsky.graph.listitem": 4_000,
    "app.bsky.actor.profile": 3_200,
    "app.bsky.feed.threadgate": 1_000,
    "app.bsky.feed.postgate": 400,
    "app.bsky.graph.list": 300,
    "chat.bsky.actor.declaration": 30,
    "": 5_328,  # no commit
}
HOUR = 3_600_000_000
START = 1_732_206_349_000_000
WORDS = ["people", "here", "post", "about", "art", "cats", "music", "news", "games", "weather", "coffee", "books", "today"]
LETTERS = string.ascii_lowercase + "234567"

PATHS = {"collection": "commit.collection", "operation": "commit.operation", "kind": "kind", "did": "did", "time_us": "time_us"}
CREATED = "{kind} = 'commit' AND {operation} = 'create'"
QUERIES = {
    "count by collection": "SELECT {collection} AS event, count(*) AS c FROM {table} GROUP BY 1 ORDER BY c DESC, 1",
    "distinct users": "SELECT {collection} AS event, count(*) AS c, count(DISTINCT {did}) AS users FROM {table} WHERE "
    + CREATED + " GROUP BY 1 ORDER BY c DESC, 1",
    "by hour": "SELECT {collection} AS event, hour({moment}) AS h, count(*) AS c FROM {table} WHERE " + CREATED
    + " AND {collection} IN ('app.bsky.feed.post', 'app.bsky.feed.repost', 'app.bsky.feed.like') GROUP BY 1, 2 ORDER BY 2, 1",
    "first posters": "SELECT {did} AS person, min({time_us}) AS moment FROM {table} WHERE " + CREATED
    + " AND {collection} = 'app.bsky.feed.post' GROUP BY 1 ORDER BY moment, 1 LIMIT 3",
    "longest spans": "SELECT {did} AS person, max({time_us}) - min({time_us}) AS span FROM {table} WHERE " + CREATED
    + " AND {collection} = 'app.bsky.feed.post' GROUP BY 1 ORDER BY span DESC, 1 LIMIT 3",
}  # fmt: skip


def documents(rows: int, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Some 450 bytes each, the same for the same seed."""
    rng = random.Random(seed)

    def text(size: int) -> str:
        return "".join(rng.choices(LETTERS, k=size))

    users = ["did:plc:" + text(24) for _ in range(max(10, rows // 4))]
    names, weights = list(COLLECTIONS), list(COLLECTIONS.values())
    for row, collection in enumerate(rng.choices(names, weights, k=rows)):
        user = users[int(rng.paretovariate(0.9)) % len(users)] if rng.random() < 0.5 else rng.choice(users)
        head = {"did": user, "time_us": START + row * HOUR // rows + rng.randrange(1000)}
        if not collection:
            yield head | {"kind": "identity", "identity": {"did": user, "seq": row, "handle": text(8)}}
            continue
        operation = rng.choices(["create", "delete", "update"], [94, 5, 1])[0]
        commit: dict[str, Any] = {"rev": text(13), "operation": operation, "collection": collection, "rkey": text(13)}
        if operation != "delete":
            record: dict[str, Any] = {"$type": collection, "createdAt": f"2024-11-21T16:{row % 60:02d}:00.{row % 1000:03d}Z"}
            if collection == "app.bsky.feed.post":
                record |= {
                    "text": " ".join(rng.choices(WORDS, k=rng.randrange(3, 40))),
                    "langs": [rng.choice(["en", "ja", "pt"])],
                }
            elif "feed" in collection:
                record["subject"] = {"cid": "bafyrei" + text(52), "uri": f"at://{rng.choice(users)}/post/{text(13)}"}
            else:
                record["subject"] = rng.choice(users)
            commit |= {"record": record, "cid": "bafyrei" + text(52)}
        yield head | {"kind": "commit", "commit": commit}


class Engine:
    """A table, and how it is asked: forms of a path as text and as an integer, and of an integer as a moment."""

    def __init__(self, run: Callable[[str], list[Any]], table: str, text: str, integer: str, moment: str) -> None:
        self.run, self.table, self.moment = run, table, moment
        forms = {name: integer if name == "time_us" else text for name in PATHS}
        self.fields = {name: forms[name].format(path=path, name=name) for name, path in PATHS.items()}

    def ask(self, query: str) -> Callable[[], object]:
        moment = self.moment.format(self.fields["time_us"])
        text = query.format(table=self.table, moment=moment, **self.fields)
        return lambda: [tuple(map(str, row)) for row in self.run(text)]


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def load(on: SparkSession, off: SparkSession, work: Path, rows: int, *, others: bool = True) -> dict[str, Engine]:
    """Writes the tables, and prints what that took. others: whether there are engines beside Spark."""
    source = work / "documents"
    source.mkdir()
    for part in range(4):
        with (source / f"{part}.json").open("w") as file:
            file.writelines(json.dumps(document) + "\n" for document in documents(rows // 4, part))
    parsed = off.read.text(str(source)).selectExpr("parse_json(value) v")
    shredded = "USING delta TBLPROPERTIES ('delta.enableVariantShredding' = 'true')"
    for name in ("scan", "typed"):
        on.sql(f"CREATE TABLE delta.`{work / name}` (v VARIANT) {shredded}")
    # Spark 4.0 has no v:path::type.
    path = ("variant_get(v, '$.{path}', 'string')", "variant_get(v, '$.{path}', 'bigint')")
    moment = "timestamp_micros({})"
    engines = {
        "scan": Engine(lambda text: off.sql(text).collect(), f"delta.`{work / 'scan'}`", *path, moment),
        "typed": Engine(lambda text: on.sql(text).collect(), f"delta.`{work / 'typed'}`", *path, moment),
        "columns": Engine(lambda text: off.sql(text).collect(), f"delta.`{work / 'columns'}`", "{name}", "{name}", moment),
    }
    columns = [f"{asked} {name}" for name, asked in engines["scan"].fields.items()]
    seconds = {
        "scan": timed(lambda: parsed.write.format("delta").mode("append").save(str(work / "scan")))[0],
        "typed": timed(lambda: dv.write(parsed, work / "typed"))[0],
        "columns": timed(lambda: parsed.selectExpr(*columns).write.format("delta").save(str(work / "columns")))[0],
    }
    if others:
        duck = duckdb.connect(config={"threads": 2})
        files = f"read_parquet('{work / 'typed'}/*.parquet')"
        engines["duckdb"] = Engine(
            lambda text: duck.sql(text).fetchall(), files, "v.{path}::varchar", "v.{path}::bigint", "make_timestamp({})"
        )
    if others and importlib.util.find_spec("chdb"):
        from chdb.session import Session  # noqa: PLC0415  # an extra

        (work / "clickhouse").mkdir()
        house = Session(str(work / "clickhouse"))
        house.query("CREATE DATABASE bench; USE bench; SET max_threads = 2")
        house.query("CREATE TABLE bench.documents (v JSON) ENGINE = MergeTree ORDER BY tuple()")
        insert = (
            f"INSERT INTO bench.documents SELECT json FROM file('{source}/*.json', 'JSONAsObject') SETTINGS max_threads = 2"
        )
        seconds["clickhouse"] = timed(lambda: house.query(insert))[0]
        engines["clickhouse"] = Engine(
            lambda text: json.loads(str(house.query(text + " SETTINGS max_threads = 2", "JSONCompact")))["data"],
            "bench.documents",
            "v.{path}.:String",
            "v.{path}.:Int64",
            "fromUnixTimestamp64Micro({}, 'UTC')",
        )
    for name, taken in seconds.items():
        size = sum(file.stat().st_size for file in (work / name).rglob("*") if file.is_file() and not file.is_symlink()) / 2**20
        print(f"  {name:10} written in {taken:6.1f} s, {size:7.1f} MiB")
    return engines


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    on = session(**{"spark.driver.memory": "4g", "spark.databricks.delta.snapshotPartitions": "2"})
    work = Path(tempfile.mkdtemp(prefix="delta-variant-jsonbench-"))
    show("sum", compared(load(on, on.newSession(), work, rows)))
    on.stop()
    shutil.rmtree(work)


def compared(engines: dict[str, Engine]) -> dict[str, float]:
    """The sums of seconds over the queries, which are printed."""
    sums = dict.fromkeys(engines, 0.0)
    for name, query in QUERIES.items():
        medians = median({engine: asked.ask(query) for engine, asked in engines.items()})
        sums = {engine: sums[engine] + medians[engine] for engine in engines}
        show(name, medians)
    return sums


def show(name: str, seconds: dict[str, float]) -> None:
    listed = "  ".join(f"{engine} {taken:6.2f} s" for engine, taken in seconds.items())
    faster, ordinary = seconds["scan"] / seconds["typed"], seconds["typed"] / seconds["columns"]
    print(
        f"  {name:20} {listed}  typed {faster:5.1f} times faster than the scan, {ordinary:4.2f} of ordinary columns", flush=True
    )


if __name__ == "__main__":
    main()
