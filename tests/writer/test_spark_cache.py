"""Spark's cache: after a write of this package, cached tables and DataFrames have the rows that the table has."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from delta_variant.conversion import convert
from delta_variant.errors import DeltaVariantWarning
from delta_variant.ingestion import ingest
from delta_variant.scanning.reader import scan
from delta_variant.table import VariantTable
from delta_variant.writer import foreach_batch, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]

_NUMBERS = itertools.count()


def rows(spark: SparkSession, start: int, end: int) -> DataFrame:
    return spark.range(start, end, 1, 1).selectExpr(
        "id", "id % 2 p", "to_json(named_struct('n', id)) text", "parse_json('{}') v"
    )


@pytest.fixture(scope="module")
def base(spark, tmp_path_factory) -> Path:
    """A table with 10 rows in two partitions."""
    path = tmp_path_factory.mktemp("cache") / "base"
    write(rows(spark, 0, 10), path, partition_by=["p"])
    return path


@pytest.fixture
def table(spark, base, tmp_path) -> Iterator[tuple[str, Path]]:
    """A copy of the table, by its name and its path."""
    name, path = f"cached{next(_NUMBERS)}", tmp_path / "t"
    shutil.copytree(base, path)
    spark.sql(f"CREATE TABLE {name} USING delta LOCATION '{path}'")
    yield name, path
    spark.catalog.clearCache()
    spark.sql(f"DROP TABLE {name}")


def streamed(spark: SparkSession, path: Path) -> None:
    folder = path.parent / "arriving"
    rows(spark, 10, 13).write.parquet(str(folder))
    stream = spark.readStream.schema("id bigint, p bigint, text string, v variant").parquet(str(folder))
    query = stream.writeStream.foreachBatch(foreach_batch(path, app_id="query"))
    query.option("checkpointLocation", str(path.parent / "checkpoint")).trigger(availableNow=True).start().awaitTermination()


def ingested(spark: SparkSession, path: Path) -> None:
    file = path.parent / "a.json"
    file.write_text('{"n": 10}\n{"n": 11}\n')
    ingest(spark, file, path, constants={"id": 10, "p": 0})


def converted(spark: SparkSession, path: Path) -> None:
    folder = path.parent / "parquet"
    rows(spark, 10, 13).write.parquet(str(folder))
    convert(spark, folder, path)


WRITES: dict[str, Callable[[SparkSession, str, Path], object]] = {
    "Delta's own": lambda spark, _, path: rows(spark, 10, 13).write.format("delta").mode("append").save(str(path)),
    "append by name": lambda spark, name, _: write(rows(spark, 10, 13), name),
    "append by path": lambda spark, _, path: write(rows(spark, 10, 13), path),
    "columns that the table lacks": lambda spark, name, _: write(
        rows(spark, 10, 13).selectExpr("*", "1 more"), name, merge_schema=True
    ),
    "overwrite": lambda spark, name, _: write(rows(spark, 3, 5), name, "overwrite"),
    "overwrite of some partitions": lambda spark, name, _: write(
        rows(spark, 20, 25).where("p = 1"), name, "overwrite", replace_where="p = 1"
    ),
    "overwrite of the schema": lambda spark, name, _: write(
        spark.range(3).selectExpr("id", "'x' other"), name, "overwrite", overwrite_schema=True
    ),
    "a stream": lambda spark, _, path: streamed(spark, path),
    "ingest": lambda spark, _, path: ingested(spark, path),
    "convert": lambda spark, _, path: converted(spark, path),
    "VariantTable.convert": lambda spark, name, _: VariantTable.forName(spark, name).convert({"text": "text"}),
    "read, modify, overwrite": lambda spark, name, _: write(spark.table(name).where("id > 4"), name, "overwrite"),
}


def forms(spark: SparkSession, name: str, path: Path) -> dict[str, DataFrame]:
    """Queries that have the ids of the table, each another plan; the last has their number."""
    return {
        "name": spark.table(name).select("id"),
        "path": spark.read.format("delta").load(str(path)).select("id"),
        "quoted path": spark.sql(f"SELECT id FROM delta.`{path}`"),
        "view": spark.table(f"view_of_{name}").select("id"),
        "filter": spark.table(name).where("id >= 0").select("id"),
        "aggregate": spark.sql(f"SELECT count(id) id FROM {name}"),
    }


def is_cached(df: DataFrame) -> bool:
    return "InMemoryRelation" in df._jdf.queryExecution().withCachedData().toString()


@pytest.mark.parametrize("kind", WRITES)
def test_cached_rows_follow_a_write(spark, table, kind):
    """What is cached by name, path or view has the rows of the table after a write, in every session (W7)."""
    name, path = table
    other = spark.newSession()
    for session in (spark, other):
        session.sql(f"CREATE TEMP VIEW view_of_{name} AS SELECT * FROM {name} WHERE p IS NOT NULL")
    spark.sql(f"CACHE TABLE {name}")
    for df in forms(spark, name, path).values():
        df.cache().count()
    assert all(is_cached(df) for session in (spark, other) for df in forms(session, name, path).values())
    WRITES[kind](spark, name, path)
    expected = sorted(scan(path, ["id"]).read_all().column("id").to_pylist())
    assert expected != list(range(10)) or kind == "VariantTable.convert"
    for session, chosen in ((spark, slice(None)), (other, slice(-2, None))):
        if "schema" in kind or kind == "VariantTable.convert":  # a view with its own copy of the old columns
            session.sql(f"CREATE OR REPLACE TEMP VIEW view_of_{name} AS SELECT * FROM {name}")
        found = {form: sorted(row.id for row in df.collect()) for form, df in list(forms(session, name, path).items())[chosen]}
        assert found.pop("aggregate") == [len(expected)]
        assert found == dict.fromkeys(found, expected)


def test_texts_in_place_are_those_of_the_snapshot(spark, table, base, tmp_path):
    """`VariantTable.convert` keeps rows that another application has added since the table was cached (W7)."""
    name, path = table
    spark.table(name).cache().count()
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(base, elsewhere)
    write(rows(spark, 10, 17), elsewhere)
    for file in elsewhere.rglob("*"):
        there = path / file.relative_to(elsewhere)
        if file.is_file() and not there.exists():
            shutil.copy(file, there)
    assert is_cached(spark.table(name))
    VariantTable.forName(spark, name).convert({"parsed": "text"})
    found = scan(path, {"id": "id", "n": "parsed:n::bigint"}).read_all()
    assert sorted(found.column("id").to_pylist()) == list(range(17))
    assert found.column("n") == found.column("id")


def test_batches_left_out_are_told(spark, tmp_path):
    """A stream with a new checkpoint and an old app_id has a warning for each batch that is left out, and for no other one."""
    source, target = tmp_path / "source", tmp_path / "t"
    source.mkdir()

    def run(checkpoint: str, *numbers: int) -> None:
        for number in numbers:
            (source / f"{number}.json").write_text(json.dumps({"n": number}))
        query = spark.readStream.option("maxFilesPerTrigger", "1").text(str(source)).writeStream
        query = query.foreachBatch(foreach_batch(target, app_id="query", parse_json={"v": "value"}))
        query.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start().awaitTermination()

    run("first", 0, 1)
    with pytest.warns(DeltaVariantWarning) as told:
        run("second", 2)
    texts = [str(warning.message) for warning in told]
    assert len(texts) == 2
    assert "batch 0 of app_id='query' was not written" in texts[0]
    assert "choose another app_id" in texts[0]
    assert "right after a restart" not in texts[0]
    assert "batch 1 of app_id='query' was not written" in texts[1]
    assert "right after a restart" in texts[1]
    numbers = scan(target, {"n": "v:n::int"}).read_all().column("n").to_pylist()
    assert len(numbers) == 3
