"""Rows with the paths of an index of values, and the files of the index."""

from __future__ import annotations

from pathlib import Path

from delta_variant.membership import sidecars as index_files

FILES, ROWS = 20, 4000
DOCUMENT = (
    "struct(sha1(cast(id AS string)) AS cid, id * 7919 % 4001 AS n, id % 4 AS few, "
    "struct(cast(id * 31 % 4001 / 100BD AS decimal(10,2)) AS price) AS o)"
)


def rows(spark, first=0, last=ROWS, files=FILES):
    """Rows with these ids, in random order of every path, in so many tasks."""
    return spark.range(first, last, 1, files).selectExpr("id", f"parse_json(to_json({DOCUMENT})) AS v")


def sidecars(path):
    return sorted((Path(path) / index_files.DIRECTORY).rglob("*.parquet"))
