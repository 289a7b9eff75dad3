"""The five queries of JSONBench on documents like its own: python -m benchmarks.jsonbench [ROWS]

Side by side on the same documents, a million by default, in turns: Spark's scan over delta-spark's own shredded table, typed
reading over the table of this package, and the same questions of a table of ordinary columns. Printed are the seconds of hot
runs (the median of three after one to warm up), the ratios, the sums, what the tables take on disk and how long they took to
write. The documents are made up; kinds, collections and users follow the marginals that JSONBench publishes.
"""

import json
import random
import shutil
import statistics
import string
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import delta_variant as dv
from benchmarks.events import session

RUNS = 3
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

# What is asked: of Variants, and of the ordinary columns of the same names.
FIELDS = {
    "collection": "v:commit.collection::string",
    "operation": "v:commit.operation::string",
    "kind": "v:kind::string",
    "did": "v:did::string",
    "time_us": "v:time_us::bigint",
}
CREATED = "{kind} = 'commit' AND {operation} = 'create'"
QUERIES = {
    "count by collection": "SELECT {collection} event, count(*) c FROM {table} GROUP BY 1 ORDER BY c DESC, 1",
    "distinct users": "SELECT {collection} event, count(*) c, count(DISTINCT {did}) users FROM {table} WHERE " + CREATED
    + " GROUP BY 1 ORDER BY c DESC, 1",
    "by hour": "SELECT {collection} event, hour(timestamp_micros({time_us})) h, count(*) c FROM {table} WHERE " + CREATED
    + " AND {collection} IN ('app.bsky.feed.post', 'app.bsky.feed.repost', 'app.bsky.feed.like') GROUP BY 1, 2 ORDER BY 2, 1",
    "first posters": "SELECT {did} user, min(timestamp_micros({time_us})) first FROM {table} WHERE " + CREATED
    + " AND {collection} = 'app.bsky.feed.post' GROUP BY 1 ORDER BY first, 1 LIMIT 3",
    "longest spans": "SELECT {did} user, max({time_us}) - min({time_us}) span FROM {table} WHERE " + CREATED
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


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def load(on: SparkSession, off: SparkSession, work: Path, rows: int) -> dict[str, tuple[SparkSession, str, dict[str, str]]]:
    """The tables: the session that asks, the table, and what it is asked for each field."""
    source = work / "documents"
    source.mkdir()
    for part in range(4):
        with (source / f"{part}.json").open("w") as file:
            file.writelines(json.dumps(document) + "\n" for document in documents(rows // 4, part))
    parsed = off.read.text(str(source)).selectExpr("parse_json(value) v")
    shredded = "USING delta TBLPROPERTIES ('delta.enableVariantShredding' = 'true')"
    for name in ("spark", "typed"):
        on.sql(f"CREATE TABLE delta.`{work / name}` (v VARIANT) {shredded}")
    columns = [f"{asked} {name}" for name, asked in FIELDS.items()]
    seconds = {
        "spark": timed(lambda: parsed.write.format("delta").mode("append").save(str(work / "spark")))[0],
        "typed": timed(lambda: dv.write(parsed, work / "typed"))[0],
        "columns": timed(lambda: parsed.selectExpr(*columns).write.format("delta").save(str(work / "columns")))[0],
    }
    for name, taken in seconds.items():
        size = sum(file.stat().st_size for file in (work / name).glob("*.parquet")) / 2**20
        print(f"  {name:8} written in {taken:6.1f} s, {size:7.1f} MiB")
    return {
        "spark": (off, f"delta.`{work / 'spark'}`", FIELDS),
        "typed": (on, f"delta.`{work / 'typed'}`", FIELDS),
        "columns": (off, f"delta.`{work / 'columns'}`", {name: name for name in FIELDS}),
    }


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    on = session(**{"spark.driver.memory": "4g", "spark.databricks.delta.snapshotPartitions": "2"})
    work = Path(tempfile.mkdtemp(prefix="delta-variant-jsonbench-"))
    tables = load(on, on.newSession(), work, rows)
    sums = dict.fromkeys(tables, 0.0)
    for name, query in QUERIES.items():
        taken: dict[str, list[float]] = {table: [] for table in tables}
        answers = {}
        for run in range(1 + RUNS):
            for table, (spark, place, fields) in tables.items():
                text = query.format(table=place, **fields)
                seconds, answers[table] = timed(spark.sql(text).collect)
                if run:
                    taken[table].append(seconds)
        assert answers["typed"] == answers["columns"] == answers["spark"], name
        medians = {table: statistics.median(runs) for table, runs in taken.items()}
        sums = {table: sums[table] + medians[table] for table in tables}
        show(name, medians)
    show("sum", sums)
    on.stop()
    shutil.rmtree(work)


def show(name: str, seconds: dict[str, float]) -> None:
    listed = "  ".join(f"{table} {taken:6.2f} s" for table, taken in seconds.items())
    faster, ordinary = seconds["spark"] / seconds["typed"], seconds["typed"] / seconds["columns"]
    print(f"  {name:20} {listed}  {faster:5.1f} times faster, {ordinary:4.2f} of ordinary columns", flush=True)


if __name__ == "__main__":
    main()
