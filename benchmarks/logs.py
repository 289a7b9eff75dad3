"""Delta logs of any length without data files: what planning costs depends on the log alone.

File number n has ROWS rows, whose ids, from n * ROWS on, are in the ordinary column `id` and on eleven paths of the VARIANT
column `v`.
"""

import base64
import functools
import json
import random
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from delta_variant.paths import normalized
from delta_variant.stats import BOUNDS_TAG, BOUNDS_TAG_VALUE, encode_bounds

ROWS = 1000
MARK = {BOUNDS_TAG: BOUNDS_TAG_VALUE}
_PATHS = ("id", "actor.id", "amount", "payload.size", "repo.id", "score", "size", "ts", "ttl", "x", "y")

Tags = Callable[[int], dict[str, str] | None]


def make_log(spark: SparkSession, table: Path, files: int, tags: Tags) -> str:
    """A table (id BIGINT, v VARIANT) of so many files, `tags` giving the tags of each, its log in one checkpoint; its path."""
    columns, properties = "id BIGINT, v VARIANT", "'delta.enableVariantShredding' = 'true'"
    spark.sql(f"CREATE TABLE delta.`{table}` ({columns}) USING delta TBLPROPERTIES ({properties})")
    with (table / "_delta_log" / f"{1:020}.json").open("w", encoding="utf-8") as commit:
        for n in range(files):
            commit.write(json.dumps({"add": {**_add(n), "tags": tags(n)}}) + "\n")
    logs = spark._jvm.org.apache.spark.sql.delta.DeltaLog  # noqa: SLF001  # no public name
    logs.clearCache()
    logs.forTable(spark._jsparkSession, str(table)).createCheckpointAtVersion(1)  # noqa: SLF001  # no public name
    logs.clearCache()
    return str(table)


def append_log(table: Path, version: int) -> None:
    """A version that adds one file to such a table."""
    add = json.dumps({"add": {**_add(1_000_000 + version), "tags": MARK}})
    (table / "_delta_log" / f"{version:020}.json").write_text(add + "\n", encoding="utf-8")


def random_text(size: int, seed: int) -> str:
    """Text that does not compress, of so many characters."""
    return base64.b85encode(random.Random(seed).randbytes(size)).decode()[:size]


@functools.cache
def _add(n: int) -> dict[str, object]:
    first, last = n * ROWS, (n + 1) * ROWS - 1
    low, high = (encode_bounds({normalized(path.split(".")): number for path in _PATHS}) for number in (first, last))
    stats = {
        "numRecords": ROWS,
        "minValues": {"id": first, "v": low},
        "maxValues": {"id": last, "v": high},
        "nullCount": {"id": 0, "v": 0},
    }
    return {
        "path": f"part-{n:05}-{random.Random(n).randbytes(16).hex()}.zstd.parquet",
        "partitionValues": {},
        "size": 1_000_000 + n,
        "modificationTime": 1_700_000_000_000 + n,
        "dataChange": True,
        "stats": json.dumps(stats),
    }
