"""The line through everything: write with this package, query with plain SQL, count the files opened."""

import pytest

import delta_variant as dv
from benchmarks.events import events


def opened(df):
    """Files that the scan of an executed query read, by Spark's own metric, and the rows."""
    rows = df.collect()
    leaves = df._jdf.queryExecution().executedPlan().collectLeaves()
    return leaves.apply(0).metrics().apply("numFiles").value(), rows


@pytest.mark.spark
@pytest.mark.slow
def test_a_point_query_opens_one_file_of_a_hundred(spark, tmp_path):
    """One million events in 100 files ordered by id: with skipping a point query opens 1, without 100, same rows."""
    table = str(tmp_path / "events")
    commit = dv.write(events(spark, 1_000_000, partitions=4), table, max_rows_per_file=10_000)
    assert (commit.version, commit.files, commit.rows, commit.shredded) == (0, 100, 1_000_000, ("v",))
    query = f"SELECT id, to_json(v) AS v FROM delta.`{table}` WHERE variant_get(v, '$.id', 'long') = 5"
    without, expected = opened(spark.sql(query))
    dv.enable(spark)
    try:
        files, rows = opened(spark.sql(query))
        (scan,) = dv.explain(spark.sql(query)).scans
    finally:
        dv.disable(spark)
    assert (files, without) == (1, 100)
    assert rows == expected
    assert [row.id for row in rows] == [5]
    assert (scan.files_total, scan.files_after_delta, scan.files_after_bounds) == (100, 100, 1)


@pytest.mark.spark
def test_the_feed_is_written_and_read_back(spark, feed, tmp_path):
    """Every record of the feed that `write` shredded comes back from Spark as the same Variant."""
    from tests.strategies import same, values

    source, table = str(tmp_path / "source"), str(tmp_path / "table")
    dv.parquet.write_table(_table(feed), f"{source}.parquet")
    frame = spark.read.parquet(f"{source}.parquet")
    commit = dv.write(frame, table)
    assert commit.shredded == ("v",)
    back = spark.read.format("delta").load(table).orderBy("n").select("v").collect()
    found = [dv.binary.decode(bytes(row.v.metadata), bytes(row.v.value)) for row in back]
    assert all(map(same, found, values(feed)))


def _table(feed):
    import pyarrow as pa

    return pa.table({"n": range(len(feed)), "v": feed})
