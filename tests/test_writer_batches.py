"""The two ways in which rows reach Python: what is written is the same, and large values do not make large batches."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from delta_variant.transaction import settings
from delta_variant.writer import batches, job, write
from delta_variant.writer.task import LARGE
from tests.test_writer import canonical, read

pytestmark = pytest.mark.spark

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"


@pytest.fixture
def ways(monkeypatch):
    """The bytes of a batch that each job of a write asked for; batches of few rows and bytes."""
    monkeypatch.setattr(batches, "BATCH_ROWS", 16)
    monkeypatch.setattr(batches, "BATCH_BYTES", 2_000)
    seen, run = [], job._run

    def recorded(df, plan, table, names, batch):
        seen.append(batch[BYTES])
        return run(df, plan, table, names, batch)

    monkeypatch.setattr(job, "_run", recorded)
    return seen


def rows(spark, count=200):
    return spark.range(0, count, 1, 3).selectExpr(
        "id", "concat('text ', id) s", "parse_json(concat('{\"n\":', id, '}')) v", "named_struct('w', parse_json('[1]')) st",
        "cast(null as binary) b",
    )  # fmt: skip


@pytest.mark.parametrize("column", ["s", "v", "st", "b", "none"])
def test_large_values(spark, tmp_path, ways, column):
    """A batch over the limit, whichever column makes it so, sends the job the other way; without one it goes one way."""
    large = {
        "s": "repeat('x', 3000)", "v": "parse_json(concat('\"', repeat('x', 3000), '\"'))",
        "st": "named_struct('w', parse_json(concat('\"', repeat('x', 3000), '\"')))", "b": "cast(repeat('x', 3000) as binary)",
    }  # fmt: skip
    df = rows(spark)
    if column != "none":
        df = df.withColumn(column, F.expr(f"CASE WHEN id = 150 THEN {large[column]} ELSE {column} END"))
    assert write(df, tmp_path / "t").rows == 200
    assert canonical(read(spark, tmp_path / "t")) == canonical(df)
    assert ways == ([batches._UNLIMITED] if column == "none" else [batches._UNLIMITED, "64m"])
    committed = spark.read.format("delta").load(str(tmp_path / "t")).inputFiles()
    assert len(committed) == 3


def test_many_values_that_are_large_together(spark, tmp_path, ways):
    """The limit is of a batch, not of a value, and is counted anew for each batch."""
    together = spark.range(0, 64, 1, 1).selectExpr("id", "parse_json(concat('\"', repeat('x', 100), '\"')) v")
    write(together, tmp_path / "below")  # 16 values of 105 bytes
    assert ways == [batches._UNLIMITED]
    above = together.withColumn("s", F.expr("repeat('y', 30)"))
    write(above, tmp_path / "above")
    assert ways[1:] == [batches._UNLIMITED, "64m"]
    assert canonical(read(spark, tmp_path / "above")) == canonical(above)


def test_sizes_that_nobody_knows(spark, tmp_path, ways):
    """Arrays, maps, and a session that says how many bytes a batch has, go by bytes at once."""
    write(rows(spark, 5).withColumn("a", F.expr("array(s)")), tmp_path / "a")
    write(rows(spark, 5).withColumn("m", F.expr("map(s, id)")), tmp_path / "m")
    with settings(spark, {BYTES: "1m"}):
        write(rows(spark, 5), tmp_path / "t")
    write(spark.range(5), tmp_path / "id")
    assert ways == ["64m", "64m", "1m", "64m"]


def test_the_mark_as_a_value(spark, tmp_path, ways):
    """Rows that hold the very text of the mark are written like others."""
    df = spark.createDataFrame([(1, f'"{LARGE}"'), (2, "2")], "id int, s string").selectExpr("id", "parse_json(s) v")
    write(df, tmp_path / "t")
    assert canonical(read(spark, tmp_path / "t")) == canonical(df)
    assert ways == [batches._UNLIMITED, "64m"]
