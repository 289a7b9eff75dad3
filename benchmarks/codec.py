"""`shred` and `unshred` on one thread, beside pyarrow writing and reading the same column: python -m benchmarks.codec [ROWS]
The bounds of times in strings, beside pyarrow parsing them: python -m benchmarks.codec times

All leaves of the events are typed. The four steps run in alternation; medians of seven rounds after one to warm up. pyarrow is
the machine's yardstick: the ratios hold where absolute figures differ. Small batches run many times a round. Then flat objects
of 4 to 256 leaves, half of them integers and half strings, for the cost of a leaf.
"""

import io
import statistics
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.events import events, session
from delta_variant import binary, schema, shredding
from delta_variant.stats.values import Extremes, Times

ROUNDS = 7
COUNTS = (1, 100, 1_000, 10_000, 100_000)
LEAVES = (4, 16, 64, 256)
ROWS_AT_LEAST = 100_000
CALLS_AT_MOST = 200


def seconds(action, times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        action()
    return (time.perf_counter() - start) / times


def medians(steps, rows) -> dict[str, list[float]]:
    """Seconds of each round, by step; the steps run in alternation."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for round_ in range(ROUNDS + 1):
        for name, step in steps.items():
            taken = seconds(step, min(-(-ROWS_AT_LEAST // rows), CALLS_AT_MOST))
            if round_:
                times[name].append(taken)
    return times


def spelled() -> None:
    """Strings that spell times, in the order of time, as statistics take them: the extremes of the strings and of the times."""
    pa.set_cpu_count(1)
    micros = 1_700_000_000_000_000 + np.cumsum(np.random.default_rng(0).integers(0, 2_000_000, 1_000_000))
    utc = pa.array(micros, pa.timestamp("us"))
    forms = {
        "2023-11-14T22:13:20.123Z": pc.strftime(utc.cast(pa.timestamp("ms"), safe=False), "%Y-%m-%dT%H:%M:%SZ"),
        "2023-11-14 22:13:20": pc.strftime(utc.cast(pa.timestamp("s"), safe=False), "%Y-%m-%d %H:%M:%S"),
        "2023-11-14": pc.strftime(utc, "%Y-%m-%d"),
        "no time": pa.repeat("no time at all, but a text", len(utc)),
    }
    for form, texts in forms.items():
        steps = {
            "times": lambda texts=texts: Times().add(texts),
            "strings": lambda texts=texts: Extremes(texts.type).add(texts),
        }
        if form[0] == "2":
            kind = pa.timestamp("us", "UTC" if form[-1] == "Z" else None)
            steps["pyarrow"] = lambda texts=texts, kind=kind: pc.min_max(texts.cast(kind))
        taken = {name: statistics.median(runs) / len(texts) * 1e9 for name, runs in medians(steps, len(texts)).items()}
        print(f"{form:25}", "  ".join(f"{name} {cost:5.1f} ns" for name, cost in taken.items()), "a string")


def main() -> None:
    if sys.argv[1:] == ["times"]:
        spelled()
        return
    rows = int(sys.argv[1].replace("_", "")) if len(sys.argv) > 1 else 1_000_000
    spark = session(**{"spark.driver.maxResultSize": "4g"})
    column = events(spark, rows).select("v").toArrow().column("v").combine_chunks()
    spark.stop()
    column = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
    pa.set_cpu_count(1)
    as_type = schema.infer(column.slice(0, 8192))
    assert as_type is not None
    for count in [*(n for n in COUNTS if n < rows), rows]:
        batch = column.slice(0, count)
        stored = shredding.shred(batch, as_type)
        table = pa.table({"v": stored})
        assert stored.field("value").null_count == count
        file = io.BytesIO()
        steps = {
            "shred": lambda batch=batch: shredding.shred(batch, as_type),
            "write": lambda table=table, file=file: (file.seek(0), pq.write_table(table, file, compression="zstd")),
            "unshred": lambda stored=stored: shredding.unshred(stored),
            "read": lambda file=file: pq.read_table(io.BytesIO(file.getvalue()), use_threads=False),
        }
        times = medians(steps, count)
        median = {name: statistics.median(runs) for name, runs in times.items()}
        figures = "  ".join(f"{name} {median[name] / count * 1e9:5.0f} ns/row" for name in steps)
        print(f"{count:>9,} rows  {figures}  {count / median['shred']:>9,.0f} and {count / median['unshred']:>9,.0f} rows/s")
        for ours, theirs in (("shred", "write"), ("unshred", "read")):
            ratio = statistics.median(a / b for a, b in zip(times[ours], times[theirs], strict=True))
            print(f"{'':15} {ours} / {theirs} = {ratio:.2f}")
    for leaves in LEAVES:
        batch, as_type = flat(leaves)
        stored = shredding.shred(batch, as_type)
        steps = {"shred": lambda: shredding.shred(batch, as_type), "unshred": lambda: shredding.unshred(stored)}  # noqa: B023
        times = medians(steps, len(batch))
        cost = {name: statistics.median(runs) / len(batch) / leaves * 1e9 for name, runs in times.items()}
        print(f"{leaves:>9} leaves  shred {cost['shred']:.1f} ns/leaf  unshred {cost['unshred']:.1f} ns/leaf")


def flat(leaves: int) -> tuple[pa.StructArray, pa.StructType]:
    """20,000 objects of so many leaves, and their schema."""
    rows, random = 20_000, np.random.default_rng(0)
    as_type = pa.struct([(f"field_{i:03}", pa.string() if i % 2 else pa.int64()) for i in range(leaves)])
    names = sorted(field.name for field in as_type)
    groups = []
    for field in as_type:
        numbers = pa.array(random.integers(0, 1 << 40, rows))
        typed = numbers.cast(field.type)
        groups.append(pa.StructArray.from_arrays([pa.nulls(rows, pa.binary()), typed], ["value", "typed_value"]))
    metadata = pa.repeat(pa.scalar(binary.encode_metadata(names)), rows)
    typed_value = pa.StructArray.from_arrays(groups, [field.name for field in as_type])
    stored = pa.StructArray.from_arrays([metadata, typed_value], ["metadata", "typed_value"])
    return shredding.unshred(stored), as_type


if __name__ == "__main__":
    main()
