"""What this package does on the pair of Spark and Delta of its environment: python -m pytest tests/pair.py

`test_other_pairs` and `pins` run it in environments that have other pairs. The statements run in an enabled session, and their
results are compared with those of a plain session, which is asked once for all tables of the same rows.
"""

from __future__ import annotations

import json
import re
import shutil

import pyspark
import pytest

import delta_variant as dv
from delta_variant import jvm
from delta_variant.constants import READS_SHREDDED
from delta_variant.session import round_trip
from delta_variant.stats import BOUNDS_TAG
from tests.logs import live
from tests.support import share

pytestmark = pytest.mark.spark
ROWS = 40_000  # enough for files that are shredded
SHREDDED = "TBLPROPERTIES ('delta.enableVariantShredding' = 'true')"
DOCUMENTS = (  # `m` has numbers and a text
    "SELECT id, parse_json(replace(to_json(named_struct('n', id, 's', concat('text ', id), 'x', id % 7, 'm', id % 9, "
    f"'o', struct(id % 3 AS k), 't', array('a', concat('b', id % 5)))), '\"m\":4', '\"m\":\"four\"')) v FROM range({ROWS})"
)
QUERIES = [
    "SELECT id FROM {} WHERE v:n::bigint = 5",
    "SELECT count(*) FROM {} WHERE v:n::int BETWEEN 100 AND 199",
    "SELECT v:x::int x, count(*), sum(v:n::double) FROM {} GROUP BY ALL ORDER BY x",
    "SELECT min(v:n::bigint), max(v:n::bigint), count(*) FROM {}",
    "SELECT id FROM {} WHERE v:s::string LIKE 'text 39%' ORDER BY id",
    "SELECT v:o.k::int k, max(v:s::string) FROM {} WHERE v:n::bigint >= 3000 GROUP BY ALL ORDER BY k",
    "SELECT id, cast(v AS string) AS text FROM {} ORDER BY v:n::bigint DESC LIMIT 3",
    "SELECT a.id FROM {0} a JOIN (VALUES (7), (8)) b(n) ON a.v:n::bigint = b.n ORDER BY a.id",
    "SELECT v:m::string m, count(*), max(v:n::bigint) FROM {} GROUP BY ALL ORDER BY m",
    "SELECT variant_get(v, '$.o', 'struct<k int, x string>') o, count(*) FROM {} GROUP BY ALL ORDER BY o",
    "SELECT v:t[1]::string t, count(*), max(size(v:t::array<string>)) FROM {} GROUP BY ALL ORDER BY t",
    "SELECT cast(value AS string), max(pos) FROM {}, LATERAL variant_explode(variant_get(v, '$.t')) GROUP BY 1 ORDER BY 1",
]


def asked(text):
    """A statement, for Spark before 4.1 without `v:a.b::type`."""
    if pyspark.__version__ >= "4.1":
        return text
    return re.sub(r"((?:\w+\.)?v):([\w.\[\]]+)::([\w<>]+)", r"variant_get(\1, '$.\2', '\3')", text)


@pytest.fixture(scope="module")
def enabled(spark):
    """An enabled session, whose JVM has a plain one, too."""
    own = spark.newSession()
    dv.enable(own)
    print("\n{} with Delta {}".format(*jvm.versions(own)))
    return own


@pytest.fixture(scope="module")
def plain(spark):
    session = spark.newSession()
    session.conf.set(READS_SHREDDED, "true")  # which is not the default of Spark 4.0
    return session


@pytest.fixture(scope="module")
def table(enabled, tmp_path_factory):
    """A table of eight files that an INSERT wrote."""
    name = f"delta.`{tmp_path_factory.mktemp('tables')}/t`"
    enabled.sql(f"CREATE TABLE {name} (id BIGINT, v VARIANT) USING delta {SHREDDED}")
    enabled.sql(f"INSERT INTO {name} SELECT /*+ REPARTITION_BY_RANGE(8, id) */ * FROM ({DOCUMENTS})")
    return name


@pytest.fixture(scope="module")
def expected(plain, table):
    """The rows of each query in a plain session."""
    return answers(plain, table)


def answers(session, table, queries=QUERIES):
    return [session.sql(asked(query.format(table))).collect() for query in queries]


def location(table):
    return table.split("`")[1]


def adds(table):
    """The Add actions of the files that a table has."""
    return list(live(location(table)).values())


def opened(enabled, query):
    [scan] = dv.explain(enabled.sql(asked(query))).scans
    return scan.files_after_bounds, scan.files_typed


def test_round_trip(enabled):
    """What `doctor` tries, and `enable` on newer versions, works on this pair."""
    assert round_trip(enabled) == 2


def test_insert(enabled, table, expected):
    """INSERT writes this package's files with bounds; queries skip, read typed columns, and give Spark's rows."""
    files = adds(table)
    assert len(files) == 8
    assert all(BOUNDS_TAG in add["tags"] and "v" in json.loads(add["stats"])["minValues"] for add in files)
    assert answers(enabled, table) == expected
    assert opened(enabled, QUERIES[0].format(table)) == (1, 1)
    assert opened(enabled, QUERIES[2].format(table)) == (8, 8)
    enabled.conf.set("spark.delta_variant.footerBytes", "0")
    for query in QUERIES[-4:]:
        assert opened(enabled, query.format(table)) == (8, 8)
    assert answers(enabled, table, QUERIES[-4:]) == expected[-4:]
    enabled.conf.unset("spark.delta_variant.footerBytes")


@pytest.mark.parametrize("vectors", [False, True], ids=["copies", "deletion vectors"])
def test_changes(enabled, plain, tmp_path, vectors):
    """UPDATE, DELETE, MERGE and OPTIMIZE write this package's files, and leave the rows that they leave in a plain session."""
    properties = f"'delta.enableVariantShredding' = 'true', 'delta.enableDeletionVectors' = '{str(vectors).lower()}'"
    names = [f"delta.`{tmp_path}/{kind}`" for kind in ("enabled", "plain")]
    steps = [
        "CREATE TABLE {} (id BIGINT, v VARIANT) USING delta TBLPROPERTIES (" + properties + ")",
        "INSERT INTO {} SELECT /*+ REPARTITION_BY_RANGE(4, id) */ * FROM (" + DOCUMENTS + ")",
        "UPDATE {} SET v = parse_json('{{\"n\": -1}}') WHERE v:n::bigint = 17",
        "DELETE FROM {} WHERE v:n::bigint BETWEEN 1000 AND 1009",
        (
            "MERGE INTO {} t USING (SELECT 3999 n UNION ALL SELECT 50000) s ON t.v:n::bigint = s.n "
            "WHEN MATCHED THEN UPDATE SET id = 0 WHEN NOT MATCHED THEN INSERT (id, v) VALUES (n, parse_json('{{\"n\": 7}}'))"
        ),
        "OPTIMIZE {}",
    ]
    for session, name in zip((enabled, plain), names, strict=True):
        for step in steps:
            session.sql(asked(step.format(name)))
    rows = [plain.sql(f"SELECT id, to_json(v) v FROM {name}") for name in names]
    assert rows[0].exceptAll(rows[1]).collect() == []
    assert [each.count() for each in rows] == [ROWS - 10 + 1] * 2
    some = share(QUERIES, 4)
    assert answers(enabled, names[0], some) == answers(plain, names[0], some)
    assert all(BOUNDS_TAG in add["tags"] for add in adds(names[0]))


def test_write_and_optimize(enabled, plain, expected, tmp_path):
    """`write` clusters and shreds by a schema; `optimize` clusters by another path."""
    name = f"delta.`{tmp_path}/t`"
    rows = enabled.sql(DOCUMENTS).repartition(3)
    dv.write(rows, location(name), shred={"v": "n bigint, s string"}, cluster_by=["v:x"], max_rows_per_file=5000)
    assert answers(enabled, name) == expected
    dv.VariantTable.forPath(enabled, location(name)).optimize(cluster_by=["v:n"], max_file_size=100_000)
    assert opened(enabled, QUERIES[0].format(name))[0] == 1
    assert answers(enabled, name) == answers(plain, name) == expected


def test_unshred_and_shred(enabled, plain, expected, tmp_path):
    """`unshred` and `shred` rewrite a table."""
    name = f"delta.`{tmp_path}/t`"
    dv.write(enabled.sql(DOCUMENTS).repartition(3), location(name), shred={"v": "n bigint, s string"})
    variants = dv.VariantTable.forPath(enabled, location(name))
    variants.disable_shredding()
    variants.unshred()
    assert answers(enabled, name) == expected
    variants.enable_shredding()
    variants.shred()
    assert answers(enabled, name) == answers(plain, name) == expected


def test_analyze(enabled, plain, expected, tmp_path):
    """`analyze` gives bounds and an index to the files of Delta's own writer."""
    name = f"delta.`{tmp_path}/t`"
    plain.sql(f"CREATE TABLE {name} (id BIGINT, v VARIANT) USING delta")
    plain.sql(f"INSERT INTO {name} SELECT /*+ REPARTITION_BY_RANGE(8, id) */ * FROM ({DOCUMENTS})")
    assert opened(enabled, QUERIES[0].format(name))[0] == 8
    variants = dv.VariantTable.forPath(enabled, location(name))
    assert variants.analyze().files == 8
    assert opened(enabled, QUERIES[0].format(name))[0] == 1
    variants.analyze(bloom=["v:s"], budget=0.5)
    assert opened(enabled, f"SELECT id FROM {name} WHERE v:s::string = 'text 77'")[0] == 1
    assert answers(enabled, name) == expected


def test_bounds_after_deletes(enabled, tmp_path):
    """Files whose rows Delta has marked as deleted have bounds, which Delta 4.0 drops, after `analyze`."""
    name = f"delta.`{tmp_path}/t`"
    vectors = SHREDDED.replace(")", ", 'delta.enableDeletionVectors' = 'true')")
    enabled.sql(f"CREATE TABLE {name} (id BIGINT, v VARIANT) USING delta {vectors}")
    enabled.sql(f"INSERT INTO {name} SELECT /*+ REPARTITION_BY_RANGE(2, id) */ * FROM ({DOCUMENTS})")
    enabled.sql(f"DELETE FROM {name} WHERE id IN (1, 39999)")
    dv.VariantTable.forPath(enabled, location(name)).analyze()
    assert [("deletionVector" in add, "v" in json.loads(add["stats"])["minValues"]) for add in adds(name)] == [(True, True)] * 2
    assert opened(enabled, QUERIES[0].format(name))[0] == 1


def test_long_bounds(enabled, tmp_path):
    """The names of bounds have more than 255 bytes together, and are those of a field of a struct; damaged minima are none."""
    name, keys = f"delta.`{tmp_path}/t`", [f"a_rather_long_key_{number}" for number in range(20)]
    fields = ", ".join(f"'{key}', id + {number}" for number, key in enumerate(keys))
    enabled.sql(f"CREATE TABLE {name} (id BIGINT, s STRUCT<w: VARIANT>) USING delta {SHREDDED}")
    enabled.sql(
        f"INSERT INTO {name} SELECT /*+ REPARTITION_BY_RANGE(4, id) */ id, "
        f"named_struct('w', parse_json(to_json(named_struct({fields})))) FROM range(20000)"
    )
    query = f"SELECT id FROM {{}} WHERE variant_get(s.w, '$.{keys[-1]}', 'bigint') = 12345"
    assert opened(enabled, query.format(name))[0] == 1
    log = tmp_path / "t" / "_delta_log"
    texts = [json.loads(add["stats"])["minValues"]["s"]["w"] for add in adds(name)]
    for file in log.glob("*.json"):
        found = file.read_text()
        for text in texts:
            found = found.replace(text, "~" * len(text))
        file.write_text(found)
    for file in log.glob("*.crc"):
        file.unlink()
    copy = f"delta.`{shutil.copytree(tmp_path / 't', tmp_path / 'copy')}`"
    assert opened(enabled, query.format(copy))[0] == 2  # by their maxima
    assert [row[0] for row in enabled.sql(query.format(copy)).collect()] == [12345 - 19]


def test_files_of_delta(enabled, plain, expected, tmp_path):
    """Queries on shredded files of Delta's own writer give the rows of a plain session."""
    name = f"delta.`{tmp_path}/t`"
    plain.sql(f"CREATE TABLE {name} (id BIGINT, v VARIANT) USING delta {SHREDDED}")
    plain.sql(f"INSERT INTO {name} {DOCUMENTS}")
    assert answers(enabled, name) == expected


def test_ingest_and_streams(enabled, plain, tmp_path):
    """`ingest` loads JSON; a stream of Delta's writes this package's files."""
    (tmp_path / "rows.json").write_text("\n".join(json.dumps({"n": n}) for n in range(100)))
    dv.ingest(enabled, str(tmp_path / "rows.json"), str(tmp_path / "loaded"))
    hits = enabled.sql(asked(f"SELECT v:n::int FROM delta.`{tmp_path}/loaded` WHERE v:n::int > 97 ORDER BY 1"))
    assert [row[0] for row in hits.collect()] == [98, 99]
    enabled.sql(f"CREATE TABLE delta.`{tmp_path}/copied` (v VARIANT) USING delta {SHREDDED}")
    stream = enabled.readStream.format("delta").load(str(tmp_path / "loaded")).selectExpr("v")
    writer = stream.writeStream.format("delta").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start(str(tmp_path / "copied")).awaitTermination()
    assert plain.read.format("delta").load(str(tmp_path / "copied")).count() == 100
    assert all(BOUNDS_TAG in add["tags"] for add in adds(f"delta.`{tmp_path}/copied`"))


def test_a_stream_that_reads(enabled, tmp_path):
    """A stream reads a path from its typed column, and reports the rows that it has read."""
    name = f"delta.`{tmp_path}/t`"
    dv.write(enabled.sql(DOCUMENTS).coalesce(1), location(name), shred={"v": "n bigint, s string"})
    with jvm.settings(enabled, {"spark.delta_variant.footerBytes": "0"}):
        stream = enabled.readStream.format("delta").load(location(name)).selectExpr(asked("v:n::bigint") + " n")
        query = stream.writeStream.format("memory").queryName("numbers").trigger(availableNow=True).start()
        query.awaitTermination()
    assert [scan.files_typed for scan in dv.explain(query).scans] == [1]
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == ROWS
    assert enabled.sql("SELECT sum(n) FROM numbers").first()[0] == sum(range(ROWS))


def test_drop_feature(enabled, tmp_path):
    """The feature for shredding is dropped from the protocol, and comes back."""
    name = f"delta.`{tmp_path}/t`"
    dv.write(enabled.sql(DOCUMENTS), location(name), shred={"v": "n bigint"})
    variants = dv.VariantTable.forPath(enabled, location(name))
    variants.drop_feature()
    assert enabled.sql(asked(f"SELECT count(*) FROM {name} WHERE v:n::bigint < 10")).first()[0] == 10
    variants.enable_shredding()
    variants.shred()
    assert opened(enabled, QUERIES[2].format(name))[1] > 0
