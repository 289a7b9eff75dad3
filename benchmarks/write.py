"""`write` against delta-spark with bounds on: python -m benchmarks.write [ROWS]

Both write the same VARIANT column, read from the same unshredded Parquet files, into a new table with
delta.enableVariantShredding = true, zstd both, in alternation; the medians of seven rounds after two to warm up are compared.
"""

import shutil
import statistics
import tempfile
import time
from pathlib import Path

import delta_variant as dv
from benchmarks.events import events, rows_wanted, session

WARM_UP, ROUNDS = 2, 7


def main() -> None:
    rows = rows_wanted()
    work = Path(tempfile.mkdtemp(prefix="delta-variant-write-"))
    spark = session()
    source = str(work / "source")
    spark.conf.set("spark.sql.variant.writeShredding.enabled", "false")
    events(spark, rows).write.parquet(source)
    spark.conf.set("spark.sql.variant.writeShredding.enabled", "true")

    def ours(table: Path) -> None:
        dv.write(spark.read.parquet(source), table)

    def delta_spark(table: Path) -> None:
        spark.read.parquet(source).write.format("delta").mode("append").save(str(table))

    seconds: dict[str, list[float]] = {"write": [], "delta-spark": []}
    size: dict[str, int] = {}
    for round_ in range(WARM_UP + ROUNDS):
        for name, action in (("write", ours), ("delta-spark", delta_spark)):
            table = work / name
            shutil.rmtree(table, ignore_errors=True)
            spark.sql(
                f"CREATE TABLE delta.`{table}` (id LONG, v VARIANT) USING delta "
                "TBLPROPERTIES ('delta.enableVariantShredding' = 'true')"
            )
            start = time.perf_counter()
            action(table)
            if round_ >= WARM_UP:
                seconds[name].append(time.perf_counter() - start)
            size[name] = sum(file.stat().st_size for file in table.glob("*.parquet"))
            assert spark.read.format("delta").load(str(table)).count() == rows
    for name, runs in seconds.items():
        median = statistics.median(runs)
        print(f"{name:12} {median:6.2f} s  {rows / median:>10,.0f} rows/s  {size[name] / rows:6.1f} bytes/row")
    ratio = statistics.median(b / a for a, b in zip(seconds["write"], seconds["delta-spark"], strict=True))
    print(f"{'ratio':12} {ratio:6.2f} (median of {ROUNDS} pairs, {rows:,} rows)")
    spark.stop()
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
