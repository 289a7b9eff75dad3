"""End to end: write with this package, query with plain SQL, count the opened files."""

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import delta_variant as dv
from benchmarks.events import events
from tests.strategies import SPARK_VARIANTS, column, same, values
from tests.support import SOAK, generated

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]


def opened(df):
    """Files that the scan of an executed query read, by Spark's own metric, and the rows."""
    rows = df.collect()
    leaves = df._jdf.queryExecution().executedPlan().collectLeaves()
    return leaves.apply(0).metrics().apply("numFiles").value(), rows


@pytest.mark.slow
def test_a_point_query_opens_one_file_of_a_hundred(spark, tmp_path):
    """On 100 files ordered by id, a point query opens 1 file with skipping and 100 without, and gives the same rows.

    The table has 50,000 rows, and a million in `make soak`.
    """
    table = str(tmp_path / "events")
    rows_per_file = 10_000 if SOAK else 500
    commit = dv.write(events(spark, 100 * rows_per_file, partitions=4), table, max_rows_per_file=rows_per_file)
    assert (commit.version, commit.files, commit.rows, commit.shredded) == (0, 100, 100 * rows_per_file, ("v",))
    query = f"SELECT id, to_json(v) AS v FROM delta.`{table}` WHERE variant_get(v, '$.id', 'long') = 5"
    with generated(spark):
        without, expected = opened(spark.sql(query))
        dv.enable(spark)
        try:
            files, rows = opened(found := spark.sql(query))
            (scan,) = dv.explain(found).scans
        finally:
            dv.disable(spark)
    assert (files, without) == (1, 100)
    assert rows == expected
    assert [row.id for row in rows] == [5]
    assert (scan.files_total, scan.files_after_delta, scan.files_after_bounds) == (100, 100, 1)


def written_and_read(spark, folder, column):
    """The Variants of a column after `write`, in its order, as Spark reads them; the commit."""
    number = len(list(folder.iterdir()))
    source, table = str(folder / f"{number}.parquet"), str(folder / f"{number}")
    dv.parquet.write_table(pa.table({"n": pa.array(range(len(column)), pa.int64()), "v": column}), source)
    shape = dv.schema.infer(column)  # given, because inference leaves small files plain
    commit = dv.write(spark.read.parquet(source), table, shred="auto" if shape is None else {"v": shape})
    back = spark.read.format("delta").load(table).orderBy("n").select("v").collect()
    return [None if row.v is None else (bytes(row.v.metadata), bytes(row.v.value)) for row in back], commit


def test_the_feed_is_written_and_read_back(spark, feed, tmp_path):
    """Every record of the feed that `write` shredded comes back from Spark as the same Variant."""
    found, commit = written_and_read(spark, tmp_path, feed)
    assert commit.shredded == ("v",)
    assert all(map(same, [dv.binary.decode(*row) for row in found], values(feed)))


@pytest.mark.slow
@settings(max_examples=20 if SOAK else 3, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(rows=st.lists(st.one_of(SPARK_VARIANTS, st.just("SQL NULL")), min_size=20, max_size=60))
def test_generated_variants_are_written_and_read_back(spark, tmp_path, rows):
    """Generated Variants, NULL among them, come back: exact numerics by numeric value, everything else by type and value."""
    found, _ = written_and_read(spark, tmp_path, column(rows))
    for row, value in zip(found, rows, strict=True):
        assert value == "SQL NULL" if row is None else same(dv.binary.decode(*row), value)
