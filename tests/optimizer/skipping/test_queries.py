"""Queries of every form: wherever a filter, a join key or an order stands, the scan opens few files."""

from __future__ import annotations

import itertools
import json
import random
import threading
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from delta_variant.explanation import explain
from delta_variant.session import enable
from delta_variant.writer import write
from tests.optimizer.skipping.asking import compared, first_rows, opened, read, rows
from tests.optimizer.skipping.tables import EVENT, copied, create, json_files
from tests.support import SOAK, collected, deltas_own_files, generated, prepared, scans, share

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]


def test_views_joins_unions_and_subqueries(spark, table):
    """A scan is pruned in views, on both sides of joins, in unions and in subquery expressions."""
    read(spark, table).createOrReplaceTempView("events")
    spark.sql("create or replace temp view firsts as select id, v:id::int n from events where v:id::int < 30")
    spark.conf.set("spark.sql.adaptive.enabled", "false")  # so that the executed plan shows its scans
    try:
        everything = [
            ("select id from firsts where n = 5", [5], [1]),
            ("select a.id from events a join events b on a.id = b.id where a.v:id::int = 5 and b.v:o.x::int < -3", [5], [1, 5]),
            (
                "select id from events where v:id::int = 5 union all select id from events where v:id::int > 45",
                [5, 46, 47, 48, 49],
                [1, 1],
            ),
            ("select id from events where id in (select id from events where v:id::int = 5)", [5], [5, 1]),
        ]
        df = spark.sql(" union all ".join(f"select {n} q, id from ({query})" for n, (query, _, _) in enumerate(everything)))
        assert sorted(collected(df)) == [(n, id_) for n, (_, wanted, _) in enumerate(everything) for id_ in wanted]
        assert opened(df) == [count for _, _, files in everything for count in files]
        for query, wanted in [
            ("select id from events where v:id::int = (select max(v:id::int) from events where v:id::int < 10)", 9),
            ("select id from events e where exists (select 1 from events f where f.id = e.id and f.v:id::int = 5)", 5),
        ]:
            df = spark.sql(query)
            assert rows(df) == [(wanted,)]
            assert 1 in [scan.files_after_bounds for scan in scans(df)], query
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")


PLACES = [
    ("select n from (select v:id::int as n, id from events) e where n = 5", [1]),
    ("with c as (select v as x from events) select x:id::int from c where x:id::int = 5", [1]),
    ("with c as (select variant_get(v, '$.o', 'variant') o from events) select o:x::int from c where o:x::int = -45", [1]),
    ("select s.w:id::int from (select named_struct('w', v) s from events) where s.w:id::int = 5", [1]),
    ("select n from second where n = 5", [1]),
    ("select n from (select v:id::int n from events union all select v:id::int from events) where n = 5", [1, 1]),
    ("select n from (select v:id::int n from events union select w:id::int from pairs) where n = 5", [1, 1]),
    ("select a.id from events a left join events b on a.id = b.id and b.v:id::int = 5 where a.v:id::int < 10", [1, 1]),
    ("select a.id from events a left semi join events b on a.id = b.id and b.v:id::int = 5", [1, 5]),
    ("select a.id from events a join pairs b on a.v:id::int = b.w:id::int where b.w:id::int = 5", [1, 5]),
    ("select v:id::int % 2 k, count(*) from events where v:id::int < 10 group by 1", [1]),
    ("select n, count(*) from (select v:id::int n from events) group by n having n = 5", [1]),
    ("select n from (select v:id::int n, rank() over (partition by v:id::int order by id) r from events) where n = 5", [1]),
    ("select id from events where v:id::int < 10 order by v:ts::timestamp limit 3", [1]),
    ("select id, x from events lateral view explode(array(1, 2)) t as x where v:id::int = 5", [1]),
    ("select id from pairs where v:id::int < 20 and w:id::int > 15", [1]),
    ("select id from pairs where v:id::int = w:id::int and v:id::int = 5", [1]),
    ("select id from named where v:id::int = 5", [1]),
    ("select id from spark_catalog.default.stored where n = 5", [1]),
    ("select (select max(w:id::int) from pairs where w:id::int < 10) m, id from events where v:id::int > 45", [1, 1]),
    ("select id from events where v:id::int = 5 or v:id::int in (select 45)", [5]),
    ("select id, w from events join (values (5, 'a'), (17, 'b'), (null, 'c')) s(i, w) on v:id::int = i", [2]),
    ("select id, w from (select id, v:dec::decimal(10,2) k from events) join (values (5.25)) s(w) on k = w and id < w", [1]),
    ("select id, w from (select id, v:s::string k from events) join (values ('k005')) s(w) on k = w", [5]),  # no marker
    ("select i, id from (values (5), (500)) s(i) left join events on v:id::int = i and v:d::double < 9", [1]),
    ("select i, id from events right join (values (5), (500)) s(i) on v:id::int = i", [1]),
    ("select i, id from events left join (values (5), (500)) s(i) on v:id::int = i", [5]),
    ("select i, id from events full join (values (5), (500)) s(i) on v:id::int = i", [5]),
    ("select i from (values (5), (500)) s(i) left anti join events on v:id::int = i", [1]),
    ("select id from events left anti join (values (5), (500)) s(i) on v:id::int = i", [5]),
    ("select id from events where v:id::int in (select i from (values (5), (500)) s(i))", [1]),
    ("select id from events where v:id::int not in (select i from (values (5), (500)) s(i))", [5]),
    ("select id from events join (values (5), (45)) s(i) on v:id::int = i join (values (-45)) t(j) on v:o.x::int = j", [1]),
    ("select id from events join (values (5.0D), (45.0D)) s(i) on v:d::double = i", [5]),
    ("select id from events where v:id::int < 10 and (id in (select id from pairs) or id = 3)", [1, 2]),
    ("select id, monotonically_increasing_id() from events join (values (5)) s(i) on v:id::int = i", [1]),
    (
        "select n, id from (select monotonically_increasing_id() n, id, v from events) join (values (5)) s(i) on v:id::int = i",
        [5],
    ),
]


@pytest.fixture(scope="module")
def places(spark, table, tmp_path_factory) -> Iterator[None]:
    enable(spark)  # so that `pairs` has bounds
    pairs = str(tmp_path_factory.mktemp("places") / "pairs")
    source = spark.range(0, 20, 1, 2).selectExpr("id", f"{EVENT} v", f"{EVENT} w")
    with deltas_own_files(spark):
        source.write.format("delta").option("delta.enableVariantShredding", "true").save(pairs)
    for name, path in (("events", table), ("pairs", pairs)):
        spark.sql(prepared(spark, f"select * from delta.`{path}`")).createOrReplaceTempView(name)
    spark.sql("create or replace temp view first as select id, v:id::int n from events where v:id::int < 30")
    spark.sql("create or replace temp view second as select n from first where id < 50")
    spark.sql(f"create table named using delta location '{table}'")
    spark.sql("create view stored as select id, v:id::int n from named")
    yield
    spark.sql("drop view stored")
    spark.sql("drop table named")


def test_wherever_the_filter_stands(spark, places, plan_form, caplog):
    """Filters and join keys prune scans through aliases, CTEs, views, unions, joins, aggregates and subqueries (Q5)."""
    shared = share(PLACES, 2, int(plan_form == "false"))
    everything = " union all ".join(f"select {n}, hash(*) from ({query})" for n, (query, _) in enumerate(shared))
    found, df = compared(spark, lambda: spark.sql(everything))
    assert found
    kept = iter([scan.files_after_bounds for scan in scans(df)])
    for query, files in shared:
        assert sorted(itertools.islice(kept, len(files))) == files, query
    assert not list(kept)
    assert "runs without" not in caplog.text


FIRST = [
    ("select id from {} order by v:id::int desc limit 3", 3),
    ("select to_json(v) from {} order by v:dec::decimal(10,2) desc limit 2", 2),
    ("select id, v:ts::timestamp t from {} order by t desc, id limit 1", 1),
    ("select n from (select v:day::date n, id from {}) order by n desc limit 2", 2),
    ("select id from {} order by v:id::bigint nulls last limit 2", 2),
    ("select id from {} where v:id::int is not null order by v:id::int limit 2", 2),
    ("select id from {} order by try_variant_get(v, '$.d', 'int') desc limit 1", 1),
    ("select id, to_json(v) from (select id, v from {} order by v:id::int desc limit 4) where v:id::int > 30", 4),
    ("select id from {} order by v:id::int limit 2", 5),  # rows without the path come first
    ("select id from {} order by v:id::int desc limit 11", 5),  # the log knows one row of each file
    ("select id from {} where id % 2 = 1 order by v:id::int desc limit 1", 5),
    ("select id from {} order by v:s::string desc limit 1", 5),  # may be cut
    ("select id from {} order by -v:id::int limit 1", 5),
    ("select id, rand() > 2 r from {} order by v:id::int desc limit 1", 1),
]


def test_first_rows_of_an_order(spark, marked):
    """ORDER BY with LIMIT keeps only files that can have one of the first rows (Q6)."""
    queries = [query.format(f"delta.`{marked}`") for query, _ in FIRST]
    assert [scan.files_after_bounds for scan in first_rows(spark, queries)] == [files for _, files in FIRST]


@pytest.mark.slow
def test_first_rows_of_any_table(spark, tmp_path):
    """ORDER BY with LIMIT gives the keys it gives without skipping, whatever types, NULLs and deleted rows files have (Q6)."""
    rng = random.Random(7)
    path = create(spark, tmp_path / "t", **{"delta.enableDeletionVectors": "true"})
    values = {
        "integers": lambda: rng.randrange(-30, 30),
        "decimals": lambda: rng.randrange(-300, 300) / 10,
        "doubles": lambda: rng.choice([1e300, -1e300, 2.5, -0.0, 0.0]),
        "texts": lambda: rng.choice(["5", "-7.5", "x"]),
        "nothing": lambda: None,
    }
    written: dict[str, dict[int, list[str]]] = {"as decimals": {}, "as inferred": {}, "by delta-spark": {}}
    for number in range(14 if SOAK else 8):
        kinds = rng.choices(list(values), [6, 4, 1, 1, 1], k=rng.choice([1, 1, 1, 2]))
        documents = [{"n": values[rng.choice(kinds)]()} if rng.random() < 0.9 else {} for _ in range(6)]
        how = "by delta-spark" if rng.random() >= 0.8 else "as decimals" if "decimals" in kinds else "as inferred"
        written[how][number] = list(map(json.dumps, documents))
    for how, files in written.items():
        frame = json_files(spark, list(files.values())).selectExpr(f"array({', '.join(map(str, files))})[file] + 0L id", "v")
        if how == "by delta-spark":
            with deltas_own_files(spark):
                frame.write.format("delta").mode("append").save(path)
        else:
            write(frame, path, shred={"v": "n decimal(18,2)"} if how == "as decimals" else "auto")
    with generated(spark):
        spark.sql(f"delete from delta.`{path}` where id % 3 = 0 and try_variant_get(v, '$.n', 'int') > 10")
    kinds, orders = ("int", "decimal(2,0)", "double", "timestamp"), ("desc", "asc nulls last", "asc", "desc nulls first")
    asked = share(itertools.product(kinds, orders, (1, 4)), 3)
    form = f"select try_variant_get(v, '$.n', '{{}}') k from delta.`{path}` order by k {{}} limit {{}}"
    found = first_rows(spark, [form.format(*each) for each in asked])
    assert len(found) == len(asked)
    assert sum(scan.files_after_bounds < scan.files_total for scan in found) > 2


def test_dataframes(spark, table, plan_form):
    """Queries in the DataFrame API are pruned, and a query on a cached DataFrame gives the rows of the cached plan."""
    events = read(spark, table)
    value = F.variant_get(F.col("v"), "$.id", "int")
    filtered = events.withColumn("n", value).withColumn("m", F.col("n") + 1).where(F.col("n") == 5).select("m")
    for df in (
        filtered,
        events.alias("e").where(F.try_variant_get("e.v", "$.id", "long").isin(5, 6)).select("id"),
        events.where(value.between(3, 5) & ~(value == 4)).select("id"),
    ):
        found = rows(df)
        assert opened(df) == [1]
        assert found
    below = events.where(value < 20).select("id", "v")
    assert [scan.files_after_bounds for scan in explain(below).scans] == [2]
    cached = below.cache()
    with generated(spark):
        assert cached.count() == 20
        assert [row.id for row in cached.where(value == 5).collect()] == [5]
    cached.unpersist()


def test_exchanges_are_reused(spark, table):
    """Spark recognizes two equal pruned scans: a self-join shuffles the table once."""
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        few = lambda: read(spark, table).where("v:id::int < 20").selectExpr("id", "v:id::int n")  # noqa: E731  # two equal scans
        joined = few().join(few().withColumnRenamed("n", "m"), "id")
        assert len(collected(joined)) == 20
        assert "ReusedExchange" in joined._jdf.queryExecution().executedPlan().toString()
        assert opened(joined) == [2]
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


@pytest.mark.slow
def test_data_manipulation(spark, table, tmp_path):
    """UPDATE, DELETE, MERGE and INSERT with predicates on paths change the rows that match, and no others."""
    text_of = dict(rows(read(spark, table).selectExpr("id", "to_json(v)")))
    path = copied(table, tmp_path / "t")
    changed = f"delta.`{path}`"
    spark.sql(f"update {changed} set id = -id where v:id::int = 5")
    spark.sql(f"delete from {changed} where v:id::int in (7, 45)")
    spark.sql(
        f"merge into {changed} t using (select id, v from {changed} where v:id::int < 3) s on t.v:id::int = s.v:id::int "
        "when matched then update set id = s.id + 1000"
    )
    spark.sql(f"insert into {changed} select id + 500, v from {changed} where v:id::int = 25")
    moved = {5: -5, 0: 1000, 1: 1001, 2: 1002}
    expected = [(moved.get(n, n), text_of[n]) for n in range(50) if n not in {7, 45}] + [(525, text_of[25])]
    assert sorted(collected(read(spark, path).selectExpr("id", "to_json(v)"))) == sorted(expected)


def test_streams(spark, tmp_path, table):
    """A stream with a filter on a path, joined to a static table with another filter, gives all its rows."""
    static = read(spark, table).where("v:id::int < 5").selectExpr("id")
    stream = spark.readStream.format("delta").load(table).where("v:o.x::int > -25").select("id", "v").join(static, "id")
    out = stream.select("id").writeStream.format("parquet").option("path", str(tmp_path / "out"))
    with generated(spark):
        out.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start().awaitTermination()
    assert sorted(row.id for row in spark.read.parquet(str(tmp_path / "out")).collect()) == [0, 1, 2, 3, 4]


def test_several_threads(spark, table):
    """Queries planned in several threads at once each give their own rows and open one file."""
    found: dict[int, list[int]] = {}

    def ask(value):
        df = read(spark, table).where(f"v:id::int = {value}").select("id")
        found[value] = [row.id for row in df.collect()] + opened(df)

    threads = [threading.Thread(target=ask, args=(value,)) for value in (5, 25, 45)]
    with generated(spark):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {value: [value, 1] for value in (5, 25, 45)}
