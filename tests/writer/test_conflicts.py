"""Two writers at once: `write` ends as delta-spark's writer does, beside every operation of delta-spark, in both orders.

The writer that starts first is held just before its commit, by an observer of Delta's transactions, until the other has
committed. So each has read the table without the other's rows, whatever the timing.
"""

from __future__ import annotations

import itertools
import shutil
from functools import partial

import pytest

from delta_variant.writer import write
from tests.contents import canonicals, read
from tests.gates import both, commits
from tests.support import SOAK

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.interpreted]


# ---- what writers do, to a table of the partitions p = 0, 1, 2 with two files each ---------------------------------------

ROWS = "id, id % 3 p, 'old' who"


def new(spark, where: str = "true"):
    return spark.range(100, 112, 1, 1).selectExpr("id", "id % 3 p", "'new' who").where(where)


def missing(spark, path):
    """The rows of `new` whose ids the table lacks."""
    return new(spark).join(read(spark, path), "id", "left_anti").coalesce(1)


def copied(spark, path):
    """A partition of the table once more."""
    return read(spark, path).where("p = 1").selectExpr("id + 1000 id", "p", "'new' who").coalesce(1)


def moved(spark, path):
    """The rows of a partition, to take the place of another."""
    return read(spark, path).where("p = 2").selectExpr("id", "1L p", "who").coalesce(1)


OURS = {
    "append": lambda spark, path: (new(spark), "append", {}),
    "append missing": lambda spark, path: (missing(spark, path), "append", {}),
    "append a copy": lambda spark, path: (copied(spark, path), "append", {}),
    "overwrite": lambda spark, path: (new(spark), "overwrite", {}),
    "replaceWhere": lambda spark, path: (new(spark, "p = 1"), "overwrite", {"replace_where": "p = 1"}),
    "replaceWhere reading": lambda spark, path: (moved(spark, path), "overwrite", {"replace_where": "p = 1"}),
    "dynamic": lambda spark, path: (new(spark, "p = 1"), "overwrite", {"partition_overwrite": "dynamic"}),
    "dynamic reading": lambda spark, path: (moved(spark, path), "overwrite", {"partition_overwrite": "dynamic"}),
}  # fmt: skip
_OPTIONS = {"replace_where": "replaceWhere", "partition_overwrite": "partitionOverwriteMode"}

THEIRS = {
    "append to 1": lambda spark, path: new(spark, "p = 1").write.format("delta").mode("append").save(path),
    "append to 0": lambda spark, path: new(spark, "p = 0").write.format("delta").mode("append").save(path),
    "DELETE in 1": lambda spark, path: spark.sql(f"DELETE FROM delta.`{path}` WHERE p = 1 AND id < 5"),
    "DELETE of 0": lambda spark, path: spark.sql(f"DELETE FROM delta.`{path}` WHERE p = 0"),
    "UPDATE in 1": lambda spark, path: spark.sql(f"UPDATE delta.`{path}` SET who = 'updated' WHERE p = 1 AND id < 5"),
    "MERGE": lambda spark, path: spark.sql(
        f"MERGE INTO delta.`{path}` t USING (SELECT 4L id, 1L p) s ON t.id = s.id AND t.p = s.p "
        "WHEN MATCHED THEN UPDATE SET who = 'merged'"
    ),
    "OPTIMIZE": lambda spark, path: spark.sql(f"OPTIMIZE delta.`{path}` WHERE p = 1"),
}  # fmt: skip


def by_us(spark, path: str, case: str) -> None:
    df, mode, options = OURS[case](spark, path)
    write(df, path, mode, **options)


def by_delta(spark, path: str, case: str) -> None:
    df, mode, options = OURS[case](spark, path)
    df.write.format("delta").mode(mode).options(**{_OPTIONS[name]: value for name, value in options.items()}).save(path)


@pytest.fixture(scope="module")
def base(spark, tmp_path_factory):
    """Three partitions of two files."""
    path = tmp_path_factory.mktemp("conflicts") / "base"
    for start in (0, 6):
        part = spark.range(start, start + 6, 1, 1).selectExpr("id", "id % 3 p", "'old' who")
        part.write.format("delta").mode("append").partitionBy("p").save(str(path))
    return path


ORDERS = ("first", "second")
ALL = itertools.product(OURS, ORDERS, THEIRS)
SOME = zip(OURS, itertools.cycle(ORDERS), itertools.cycle(THEIRS))
"""Our operation, its order, and theirs. `make test` runs each operation once, in both orders by turns."""


@pytest.mark.parametrize(("ours", "order", "theirs"), list(ALL if SOAK else SOME))
def test_ends_as_with_deltas_writer(spark, gate, base, tmp_path, ours, order, theirs):
    """`write` ends as delta-spark's writer does in its place: with the same success or conflict, rows and commits (W2)."""
    found, tables = [], []
    for writer in (by_us, by_delta):
        path = str(tmp_path / writer.__name__)
        shutil.copytree(base, path)
        actions = [partial(writer, spark, path, ours), partial(THEIRS[theirs], spark, path)]
        found.append((both(spark, gate, path, *(actions if order == "first" else actions[::-1])), commits(path)))
        tables.append(read(spark, path).select("id", "p", "who"))
    assert found[0] == found[1]
    rows, expected = canonicals(*tables)
    assert rows == expected
    print(f"{ours:20} {order:6} beside {theirs:11} {', '.join(found[0][0])}")
