"""`shred` and `unshred` on one thread, beside pyarrow writing and reading the same column: python -m benchmarks.codec [ROWS]

All leaves of the events are typed. The four steps run in alternation; medians of seven rounds after one to warm up. pyarrow is
the machine's yardstick: the ratios hold where absolute figures differ.
"""

import io
import statistics
import time

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.events import events, rows_wanted, session
from delta_variant import schema, shredding

ROUNDS = 7
COUNTS = (1_000, 10_000, 100_000)


def seconds(action) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def main() -> None:
    rows = rows_wanted()
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
        times: dict[str, list[float]] = {name: [] for name in steps}
        for round_ in range(ROUNDS + 1):
            for name, step in steps.items():
                taken = seconds(step)
                if round_:
                    times[name].append(taken)
        median = {name: statistics.median(runs) for name, runs in times.items()}
        figures = "  ".join(f"{name} {median[name] / count * 1e9:5.0f} ns/row" for name in steps)
        print(f"{count:>9,} rows  {figures}  {count / median['shred']:>9,.0f} and {count / median['unshred']:>9,.0f} rows/s")
        for ours, theirs in (("shred", "write"), ("unshred", "read")):
            ratio = statistics.median(a / b for a, b in zip(times[ours], times[theirs], strict=True))
            print(f"{'':15} {ours} / {theirs} = {ratio:.2f}")


if __name__ == "__main__":
    main()
