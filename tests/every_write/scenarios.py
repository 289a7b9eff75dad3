"""The cases of Delta's own tests as statements for `test_scenarios`, each for twin tables.

`make test` leaves out the statements in `in_soak`, of which others nearby show the same.
"""

from __future__ import annotations

from collections.abc import Callable

from delta import DeltaTable
from delta.tables import IdentityGenerator
from pyspark.sql import DataFrame, DataFrameWriter
from pyspark.sql import functions as F

from tests.every_write.twins import Scenario, Step, Twin, documents
from tests.support import SOAK


def of(*steps: Step, **others) -> Scenario:
    return Scenario(steps, **others)


def in_soak(*steps: Step) -> tuple[Step, ...]:
    """Steps of `make soak` alone."""
    return steps if SOAK else ()


COLUMNS = "id BIGINT, v VARIANT, s STRING"
FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
NO_VECTORS = {"delta.enableDeletionVectors": "false"}
TRACKED = {"delta.enableRowTracking": "true"}
GENERATED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""Settings with which a task that asks whether there is a row computes the row."""
BY_NAME, BY_ID = ({"delta.columnMapping.mode": mode} for mode in ("name", "id"))
WIDENING = {"delta.enableTypeWidening": "true"}
# Without it Spark 4.2 cannot cast what it reads from a shredded VARIANT.
GENERATED = {"spark.sql.codegen.factoryMode": "FALLBACK"}
EVOLVING = {"spark.databricks.delta.schema.autoMerge.enabled": "true"}


def table(columns: str = COLUMNS, clauses: str = "", name: str = "t", **properties: str) -> str:
    """CREATE TABLE; with VARIANT columns, files are shredded."""
    if "VARIANT" in columns:
        properties = {"delta.enableVariantShredding": "true"} | properties
    texts = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    return f"CREATE TABLE {name} ({columns}) USING delta {clauses}" + (f" TBLPROPERTIES ({texts});" if texts else ";")


def create_generated(twin: Twin) -> None:
    builder = DeltaTable.create(twin.session).tableName("t")
    for name, kind in {"id": "BIGINT", "v": "VARIANT", "at": "TIMESTAMP"}.items():
        builder = builder.addColumn(name, kind)
    builder = builder.addColumn("twice", "BIGINT", generatedAlwaysAs="id * 2").addColumn(
        "day", "DATE", generatedAlwaysAs="CAST(at AS DATE)"
    )
    builder.partitionedBy("day").property("delta.enableChangeDataFeed", "true").execute()


def register_functions(twin: Twin) -> None:
    twin.session.udf.register("inverse", lambda x: 6 // x, "bigint")


def create_identity(twin: Twin) -> None:
    builder = DeltaTable.create(twin.session).tableName("t").addColumn("v", "VARIANT").addColumn("s", "STRING")
    builder = builder.addColumn("a", "BIGINT", generatedAlwaysAs=IdentityGenerator(start=10, step=-3))
    builder.addColumn("d", "BIGINT", generatedByDefaultAs=IdentityGenerator()).property(
        "delta.enableRowTracking", "true"
    ).execute()


def frame(twin: Twin, query: str) -> DataFrame:
    return twin.session.sql(documents(query))


def writer(twin: Twin, query: str, **options: str) -> DataFrameWriter:
    return frame(twin, query).write.format("delta").options(**options)


def target(twin: Twin) -> DeltaTable:
    return DeltaTable.forName(twin.session, "t")


def streamed(
    twin: Twin,
    name: str,
    change: Callable[[DataFrame], DataFrame],
    checkpoint: str = "append",
    mode: str = "append",
    *,
    each: bool = False,
) -> None:
    """All of the table `source` as a stream into a table; `each` merges each batch into it."""
    df = change(twin.session.readStream.option("maxFilesPerTrigger", "1").table("source"))
    sink = (
        df.writeStream.outputMode(mode)
        .option("checkpointLocation", f"{twin.directory}/checkpoints/{checkpoint}")
        .trigger(availableNow=True)
    )
    path = f"{twin.directory}/{name}"

    def upsert(batch: DataFrame, number: int) -> None:
        goal = DeltaTable.createIfNotExists(batch.sparkSession).location(path).addColumns(batch.schema).execute()
        goal.alias("t").merge(batch.alias("q"), "t.id = q.id - 1").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    query = sink.foreachBatch(upsert).start() if each else sink.format("delta").start(path)
    query.awaitTermination()


def merge(source: str, clauses: str, condition: str = "t.id = q.id", into: str = "INTO t") -> str:
    return f"MERGE {into} USING ({source}) q ON {condition} {clauses};"


def fill(first: int, last: int, tasks: int = 1, more: str = "") -> str:
    return f"INSERT INTO t SELECT id, doc(id), concat('s', id % 3){more} FROM range({first}, {last}, 1, {tasks});"


UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
CHANGES = "SELECT id, doc(id * 10) AS v, 'merged' AS s FROM range(15, 25, 1, 1)"
COMMANDS = (
    fill(0, 10) + fill(10, 20, 2),
    """UPDATE t SET s = 'updated' WHERE id = 3;
    UPDATE t SET v = doc(id + 100), s = concat(s, '!') WHERE id BETWEEN 8 AND 12;
    UPDATE t SET s = 'never' WHERE id = 99;
    DELETE FROM t WHERE id IN (4, 11);
    DELETE FROM t WHERE v:k::INT = 6 OR s IS NULL;
    DELETE FROM t WHERE id = 99;""",
    merge(
        CHANGES,
        """WHEN MATCHED AND t.id = 16 THEN DELETE WHEN MATCHED AND q.id = 17 THEN UPDATE SET s = concat(t.s, q.s)
        WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND q.id < 23 THEN INSERT * WHEN NOT MATCHED THEN INSERT (id,
            s) VALUES (q.id, 'new')
        WHEN NOT MATCHED BY SOURCE AND t.id = 1 THEN UPDATE SET s = 'alone' WHEN NOT MATCHED BY SOURCE AND t.id = 2 THEN
            DELETE""",
    ),
    merge("SELECT id, doc(id) AS v, 'inserted' AS s FROM range(22, 28, 1, 1)", "WHEN NOT MATCHED THEN INSERT *"),
    "OPTIMIZE t;",
)
MORE_COMMANDS = (
    *in_soak(merge("SELECT id FROM range(3)", "WHEN MATCHED THEN DELETE")),
    merge("SELECT id FROM range(100, 103)", "WHEN MATCHED THEN UPDATE SET s = 'never'"),
    merge("SELECT id FROM range(5, 7) UNION ALL SELECT 5", "WHEN MATCHED THEN UPDATE SET s = 'twice'"),
    merge("SELECT id FROM range(5, 7) UNION ALL SELECT 5", "WHEN MATCHED THEN DELETE"),
    merge("SELECT id FROM range(3)", "WHEN NOT MATCHED BY SOURCE THEN DELETE", "false"),
    "UPDATE t SET missing = 1; UPDATE t SET id = 'x';",
    fill(0, 4),
    "UPDATE t SET id = id / 0; DELETE FROM t WHERE id / 0 = 1; UPDATE t SET s = v:s::STRING; DELETE FROM t;",
)
SCENARIOS: dict[str, Scenario] = {}

# DELETE, UPDATE, MERGE and OPTIMIZE, on tables of each kind
SCENARIOS |= {
    "commands": of(
        table(**NO_VECTORS), COMMANDS[0], *in_soak(COMMANDS[1]), COMMANDS[2], *in_soak(*COMMANDS[3:]), *MORE_COMMANDS
    ),
    "commands, vectors": of(table(**VECTORS), *COMMANDS, "REORG TABLE t APPLY (PURGE)"),
    "commands, feed, vectors, row ids, names": of(table(**FEED, **VECTORS, **TRACKED, **BY_NAME), *COMMANDS),
    "commands, feed, row ids, ids, partitions": of(
        table(clauses="PARTITIONED BY (s)", **FEED, **TRACKED, **BY_ID, **NO_VECTORS), *COMMANDS
    ),
    "commands, files of Delta": of(
        *COMMANDS[1:],
        made_by_delta=(table(**FEED, **TRACKED), *COMMANDS[:1]),
    ),
}

# INSERT
SCENARIOS |= {
    "insert": of(
        table()
        + """INSERT INTO t VALUES (1, doc(1), 'a'), (2, NULL, NULL), (NULL, doc(3), '');
        INSERT INTO t SELECT id, doc(id), concat('s', id) FROM range(10);
        INSERT INTO t (s, id) VALUES ('b', 4);
        INSERT INTO t BY NAME SELECT 'c' AS s, 5L AS id, doc(5) AS v;
        INSERT INTO t SELECT id, doc(id), 'none' FROM range(10) WHERE id < 0;
        INSERT INTO t SELECT * FROM t WHERE id > 5 ORDER BY id DESC;
        INSERT INTO t SELECT 1;
        INSERT INTO t SELECT 1, 2, 3, 4;
        INSERT INTO t BY NAME SELECT 1 AS other;
        INSERT INTO t (id, id) VALUES (1, 2);
        INSERT INTO t VALUES ('x', NULL, NULL);
        INSERT INTO t VALUES (1, 'no variant', NULL);
        INSERT INTO missing VALUES (1);
        TRUNCATE TABLE t"""
    ),
    "nested columns of a query": of(
        table("id BIGINT, st STRUCT<a: INT, b: STRUCT<c: VARIANT, d: BIGINT>>, l ARRAY<STRUCT<x: BIGINT, y: STRING>>")
        + """INSERT INTO t BY NAME SELECT named_struct('b', named_struct('d', 1, 'c', doc(1)), 'a', 2L) AS st, 1 AS id;
        INSERT INTO t SELECT 2, named_struct('q', 1L, 'r', named_struct('s', doc(2), 't', 2)), NULL;
        INSERT INTO t SELECT 3, named_struct('a', 1, 'b', named_struct('c', doc(2))), NULL;
        INSERT INTO t SELECT 3, NULL, array(named_struct('x', 1, 'y', 2), NULL);
        INSERT INTO t SELECT 4, named_struct('a', 5000000000, 'b', NULL), NULL;
        UPDATE t SET st.b.d = 5, l = array(named_struct('y', 'b', 'x', 1)) WHERE id < 3;"""
        + merge("SELECT 1 AS id, named_struct('a', 9) AS st", "WHEN MATCHED THEN UPDATE SET st.a = q.st.a, l = NULL")
    ),
    "functions of a query": of(
        table("id BIGINT, v VARIANT, s STRING", **TRACKED),
        register_functions,
        """INSERT INTO t SELECT id, doc(id), concat(spark_partition_id(), ' ', monotonically_increasing_id())
            FROM range(0, 6, 1, 2);
        INSERT INTO t SELECT inverse(id), doc(id), input_file_name() FROM range(1, 3);
        INSERT INTO t SELECT inverse(id), doc(id), NULL FROM range(0, 3);
        INSERT INTO t SELECT id, doc(id), s FROM (SELECT id, explode(array('a', 'b')) AS s FROM range(2)) LIMIT 3;
        INSERT INTO t SELECT max(id), parse_json(concat('[', max(id), ']')), s FROM t GROUP BY s HAVING max(id) > 1;
        INSERT INTO t WITH w AS (SELECT id FROM range(2)) SELECT a.id, doc(a.id), b.id FROM w a CROSS JOIN w b;
        INSERT INTO t SELECT 1 / (id - 3), NULL, NULL FROM range(6) DISTRIBUTE BY id;
        CACHE TABLE t;
        INSERT INTO t SELECT max(id) + 50, NULL, NULL FROM t;
        SELECT count(*) FROM t;
        UNCACHE TABLE t""",
    ),
    "errors inside the query": of(
        table("id INT, v VARIANT")
        + """INSERT INTO t SELECT 1 / (id - 3), NULL FROM range(6);
        INSERT INTO t SELECT CAST(concat('x', id) AS INT), NULL FROM range(6);
        INSERT INTO t SELECT id * 1000000000, NULL FROM range(6);
        INSERT INTO t SELECT id, parse_json(concat('{', id)) FROM range(6);
        INSERT INTO t SELECT id, to_variant_object(map(1, id)) FROM range(6);
        INSERT INTO t SELECT raise_error(concat('no ', id)), NULL FROM range(3);
        INSERT INTO t SELECT assert_true(id < 1), NULL FROM range(3);
        INSERT INTO t SELECT element_at(array(1), CAST(id AS INT) + 1), NULL FROM range(3);
        INSERT INTO t SELECT (SELECT id FROM range(2)), NULL;"""
        + table("id INT, v VARIANT, p INT", "PARTITIONED BY (p)", name="u")
        + "INSERT INTO u SELECT 1 / (id - 4), NULL, id % 2 FROM range(6)",
        settings=GENERATED,
    ),
    "settings of the session": of(
        table("id INT, v VARIANT, t TIMESTAMP")
        + """INSERT INTO t SELECT id * 1000000000, NULL, NULL FROM range(6);
        INSERT INTO t SELECT CAST(concat('x', id) AS INT), parse_json(CAST(1 / 0 AS STRING)), NULL FROM range(3);
        INSERT INTO t SELECT id, to_variant_object(named_struct('t', CAST('2024-03-10 02:30:00' AS TIMESTAMP))),
            CAST('1850-01-01 00:00:01' AS TIMESTAMP) FROM range(3);
        UPDATE t SET t = CAST('2024-11-03 01:30:00' AS TIMESTAMP) WHERE id = 1;""",
        settings={
            "spark.sql.ansi.enabled": "false",
            "spark.sql.storeAssignmentPolicy": "LEGACY",
            "spark.sql.session.timeZone": "America/Los_Angeles",
        },
    ),
    "defaults": of(
        table(
            "id BIGINT, n INT DEFAULT 6 * 7, v VARIANT, s STRING DEFAULT concat('a', 'b'), d DATE DEFAULT DATE'2024-01-01'",
            **{"delta.feature.allowColumnDefaults": "supported"},
        )
        + """INSERT INTO t (id) VALUES (1), (2);
        INSERT INTO t (id, s) SELECT id, DEFAULT FROM range(3);
        INSERT INTO t VALUES (3, DEFAULT, doc(3), DEFAULT, DEFAULT);
        UPDATE t SET n = DEFAULT, s = 'x' WHERE id = 3;""",
        *in_soak("UPDATE t SET s = DEFAULT WHERE id = 3"),
        merge(
            "SELECT 3 AS id UNION SELECT 4",
            "WHEN MATCHED THEN UPDATE SET n = DEFAULT WHEN NOT MATCHED THEN INSERT (id, n, s) VALUES (q.id, DEFAULT, 'm')",
        )
        + """ALTER TABLE t ALTER COLUMN n SET DEFAULT 7;
        INSERT INTO t (id) VALUES (5);""",
        *in_soak("ALTER TABLE t ALTER COLUMN n DROP DEFAULT; INSERT INTO t (id) VALUES (6)"),
        "INSERT OVERWRITE t (id) VALUES (7)",
    ),
}

# INSERT OVERWRITE, replaceWhere, CREATE TABLE AS SELECT, REPLACE TABLE
SCENARIOS |= {
    "overwrite": of(
        table("id BIGINT, v VARIANT, p STRING, q INT", "PARTITIONED BY (p, q)", **FEED)
        + """INSERT INTO t SELECT id, doc(id), concat('p', id % 2), id % 3 FROM range(0, 12, 1, 1);
        INSERT OVERWRITE t PARTITION (p = 'p0', q = 1) SELECT 100, doc(100);
        INSERT OVERWRITE t PARTITION (p = 'p1', q) SELECT 101, doc(101), 2;
        INSERT INTO t PARTITION (p = 'p2', q = 5) VALUES (5, NULL);
        INSERT INTO t REPLACE WHERE p = 'p0' SELECT id, doc(id), 'p0', 9 FROM range(2);
        INSERT INTO t REPLACE WHERE p = 'p0' SELECT 1, doc(1), 'p9', 9;
        INSERT INTO t REPLACE WHERE id = 5 SELECT 5, doc(55), 'p5', 5;
        INSERT INTO t REPLACE WHERE id > 100 AND v:k::INT > 5 SELECT 102, doc(102), 'p5', 5;""",
        *in_soak(
            """INSERT INTO t REPLACE WHERE id = 5 SELECT 6, doc(55), 'p5', 5;
            INSERT INTO t REPLACE WHERE id = 77 SELECT id, doc(id), 'p5', 5 FROM range(10) WHERE id > 10;
            INSERT OVERWRITE t SELECT id, doc(id), 'p', 1 FROM range(3)"""
        ),
        "INSERT OVERWRITE t SELECT id, doc(id), 'p', 1 FROM range(3) WHERE id > 3",
    ),
    "overwrite dynamically": of(
        table("id BIGINT, v VARIANT, p STRING, q INT", "PARTITIONED BY (p, q)")
        + """INSERT INTO t SELECT id, doc(id), concat('p', id % 2), id % 3 FROM range(0, 12, 1, 1);
        INSERT OVERWRITE t SELECT id, doc(id), 'p1', 1 FROM range(3);
        INSERT OVERWRITE t PARTITION (p = 'p0', q) SELECT 101, doc(101), 2;
        INSERT OVERWRITE t SELECT id, doc(id), 'p', 1 FROM range(3) WHERE id > 3""",
        lambda twin: writer(
            twin, "SELECT 7L AS id, doc(7) AS v, 'p7' AS p, 7 AS q", partitionOverwriteMode="static"
        ).insertInto("t", True),
        settings={"spark.sql.sources.partitionOverwriteMode": "dynamic"},
    ),
    "overwrite with options": of(
        table() + fill(0, 10),
        lambda twin: (
            writer(twin, "SELECT 5L AS id, doc(50) AS v, 'x' AS s", replaceWhere="id >= 5").mode("overwrite").saveAsTable("t")
        ),
        lambda twin: (
            writer(twin, "SELECT 1L AS id, doc(50) AS v, 'x' AS s", replaceWhere="id >= 5").mode("overwrite").saveAsTable("t")
        ),
        lambda twin: writer(twin, "SELECT 1 AS other").mode("overwrite").saveAsTable("t"),
        *in_soak(lambda twin: writer(twin, "SELECT 1 AS other").mode("append").saveAsTable("t")),
        lambda twin: writer(twin, "SELECT 1 AS id").mode("error").save(f"{twin.directory}/t"),
        lambda twin: writer(twin, "SELECT 1 AS id").mode("ignore").save(f"{twin.directory}/t"),
        lambda twin: (
            writer(twin, "SELECT 1L AS id, doc(1) AS w", mergeSchema="true").mode("append").save(f"{twin.directory}/t")
        ),
        lambda twin: (
            writer(twin, "SELECT 1L AS id, doc(1) AS v", userMetadata="said", dataChange="true")
            .mode("overwrite")
            .save(f"{twin.directory}/t")
        ),
        lambda twin: (
            writer(twin, "SELECT 9L AS id, doc(9) AS v, 'p' AS p", overwriteSchema="true")
            .mode("overwrite")
            .partitionBy("p")
            .saveAsTable("t")
        ),
        lambda twin: (
            writer(twin, "SELECT 1L AS id, doc(1) AS v, 'p' AS p", txnAppId="a", txnVersion="1").mode("append").saveAsTable("t")
        ),
        lambda twin: (
            writer(twin, "SELECT 1L AS id, doc(1) AS v, 'p' AS p", txnAppId="a", txnVersion="1").mode("append").saveAsTable("t")
        ),
        *in_soak(lambda twin: frame(twin, "SELECT 2L AS id, doc(1) AS v, 'p' AS p").writeTo("t").append()),
        lambda twin: frame(twin, "SELECT 3L AS id, doc(1) AS v, 'p' AS p").writeTo("t").overwrite(F.col("p") == "p"),
        lambda twin: frame(twin, "SELECT 4L AS id, doc(1) AS v, 'q' AS p").writeTo("t").overwritePartitions(),
        lambda twin: frame(twin, "SELECT 5L AS id, doc(1) AS v, 'q' AS p").writeTo("t").using("delta").createOrReplace(),
    ),
    "create and replace": of(
        """CREATE TABLE t USING delta PARTITIONED BY (p) TBLPROPERTIES ('delta.enableVariantShredding' = 'true',
            'a' = 'b') COMMENT 'c'
            AS SELECT id, doc(id) AS v, id % 2 AS p FROM range(5);
        CREATE TABLE t USING delta AS SELECT 1 AS id;
        CREATE TABLE IF NOT EXISTS t USING delta AS SELECT 1 AS id;
        REPLACE TABLE t USING delta AS SELECT id, doc(id) AS w FROM range(3);
        CREATE OR REPLACE TABLE t USING delta CLUSTER BY (id) AS SELECT id, doc(id) AS v FROM range(0, 4, 1, 1);
        CREATE OR REPLACE TABLE t USING delta AS SELECT id FROM range(3) WHERE id > 3;""",
        *in_soak("CREATE OR REPLACE TABLE t (id BIGINT NOT NULL, v VARIANT) USING delta"),
        """CREATE OR REPLACE TABLE t USING delta AS SELECT id, id AS ID FROM range(3);
        CREATE OR REPLACE TABLE t USING delta AS SELECT id AS `a b` FROM range(3);
        REPLACE TABLE missing USING delta AS SELECT 1 AS id;
        CREATE TABLE u USING delta LOCATION '{dir}/u' TBLPROPERTIES ('delta.columnMapping.mode' = 'name')
            AS SELECT id AS `a b;c`, doc(id) AS `v=` FROM range(3)""".replace("b;c", "b,c"),
        lambda twin: writer(twin, "SELECT 1L AS id, doc(1) AS v").partitionBy("id").saveAsTable("w"),
        lambda twin: writer(twin, "SELECT 1L AS id, doc(1) AS v").save(f"{twin.directory}/x"),
        tables=("t", "u", "w", "x"),
    ),
}

# schema evolution
SCENARIOS |= {
    "merge evolves the schema": of(
        table(**FEED, **NO_VECTORS) + fill(0, 6),
        merge("SELECT id, doc(id) AS w, 'new' AS s, 1 AS n FROM range(4, 8)", UPSERT, into="WITH SCHEMA EVOLUTION INTO t"),
        *in_soak(
            merge(
                "SELECT id, named_struct('a', id, 'b', doc(id)) AS st FROM range(7, 9)",
                UPSERT,
                into="WITH SCHEMA EVOLUTION INTO t",
            ),
        ),
        merge(
            "SELECT id, named_struct('b', doc(id), 'c', array(named_struct('x', id))) AS st FROM range(8, 10)",
            UPSERT,
            into="WITH SCHEMA EVOLUTION INTO t",
        ),
        merge(
            "SELECT id, named_struct('c', array(named_struct('x', id, 'y', 1))) AS st FROM range(8, 11)",
            "WHEN MATCHED THEN UPDATE SET st = q.st WHEN NOT MATCHED THEN INSERT (id, st) VALUES (q.id, q.st)"
            " WHEN NOT MATCHED BY SOURCE AND t.id = 0 THEN DELETE",
            into="WITH SCHEMA EVOLUTION INTO t",
        ),
        merge("SELECT id, 'x' AS n FROM range(8, 11)", UPSERT, into="WITH SCHEMA EVOLUTION INTO t"),
        *in_soak(merge("SELECT id, 1 AS other FROM range(8, 11)", UPSERT)),
        merge("SELECT id, 1 AS other FROM range(8, 11)", "WHEN MATCHED THEN UPDATE SET other = 1"),
    ),
    "evolving by a setting": of(
        table("id INT, v VARIANT") + "INSERT INTO t SELECT id, doc(id) FROM range(3);",
        "INSERT INTO t BY NAME SELECT 1 AS id, doc(1) AS w, map('a', named_struct('x', 1)) AS m;",
        "INSERT INTO t SELECT 1, doc(1), doc(2), map('a', named_struct('x', 1, 'y', 2)), 'extra' AS e;",
        merge("SELECT id, array(doc(id)) AS l FROM range(4)", UPSERT),
        lambda twin: frame(twin, "SELECT 1 AS id, NULL AS nothing").write.format("delta").mode("append").saveAsTable("t"),
        lambda twin: frame(twin, "SELECT 1 AS ID, 2.5 AS f").write.format("delta").mode("append").saveAsTable("t"),
        settings=EVOLVING,
    ),
    "type widening": of(
        table(
            "id BIGINT, v VARIANT, b TINYINT, f FLOAT, d DATE, n DECIMAL(5, 2), st STRUCT<x: SHORT>, z TIMESTAMP_NTZ",
            **WIDENING,
            **NO_VECTORS,
        )
        + """INSERT INTO t SELECT id, doc(id), id, id, DATE'2024-01-01', id, named_struct('x', id) FROM range(4);
        ALTER TABLE t ALTER COLUMN b TYPE INT;
        ALTER TABLE t ALTER COLUMN f TYPE DOUBLE;
        ALTER TABLE t ALTER COLUMN d TYPE TIMESTAMP_NTZ;
        ALTER TABLE t ALTER COLUMN n TYPE DECIMAL(10, 4);
        ALTER TABLE t ALTER COLUMN st.x TYPE INT;
        INSERT INTO t SELECT id, doc(id), 100000, 1e300, TIMESTAMP_NTZ'2024-01-01 12:00:00', 1.2345, named_struct('x',
            100000) FROM range(4, 6);
        UPDATE t SET s = 1; UPDATE t SET b = 7 WHERE id = 1;"""
        + merge("SELECT 2 AS id, 3000000000 AS b", "WHEN MATCHED THEN UPDATE SET *", into="WITH SCHEMA EVOLUTION INTO t")
        + "OPTIMIZE t"
    ),
}

# constraints, generated and identity columns
SCENARIOS |= {
    "not null": of(
        table(
            "id BIGINT NOT NULL, v VARIANT NOT NULL, st STRUCT<a: INT NOT NULL, b: VARIANT>, p INT NOT NULL",
            "PARTITIONED BY (p)",
        )
        + """INSERT INTO t VALUES (1, doc(1), named_struct('a', 1, 'b', NULL), 1);
        INSERT INTO t VALUES (NULL, doc(1), named_struct('a', 1, 'b', NULL), 1);
        INSERT INTO t SELECT id, doc(id), named_struct('a', nullif(CAST(id AS INT), 3), 'b', NULL), 1 FROM range(5);
        INSERT INTO t SELECT id, CASE WHEN id < 3 THEN doc(id) END, named_struct('a', 1, 'b', NULL), 1 FROM range(5);
        INSERT INTO t SELECT id, doc(id), NULL, 2 FROM range(3);
        INSERT INTO t SELECT id, doc(id), named_struct('a', 1, 'b', NULL), nullif(id, 2) FROM range(3);
        INSERT INTO t (v, p) VALUES (doc(1), 1);
        INSERT INTO t VALUES (1, parse_json('null'), named_struct('a', 1, 'b', doc(1)), 1);
        UPDATE t SET v = NULL;""",
        *in_soak(
            """INSERT INTO t (id, p) VALUES (1, 1);
            UPDATE t SET id = NULL WHERE id = 1;
            UPDATE t SET st.a = NULL WHERE id = 1"""
        ),
        merge("SELECT 1 AS id", "WHEN MATCHED THEN UPDATE SET id = NULL")
        + merge("SELECT 70 AS id", "WHEN NOT MATCHED THEN INSERT (id, p) VALUES (q.id, 1)")
        + """ALTER TABLE t ALTER COLUMN id DROP NOT NULL;
        INSERT INTO t VALUES (NULL, doc(1), named_struct('a', 1, 'b', NULL), 1)""",
    ),
    "checks": of(
        table("id BIGINT, v VARIANT, s STRING, d DATE, st STRUCT<a: INT>, l ARRAY<INT>")
        + """INSERT INTO t (id, v) VALUES (1, doc(1));
        ALTER TABLE t ADD CONSTRAINT small CHECK (id > 5);
        ALTER TABLE t ADD CONSTRAINT small CHECK (id < 10);
        ALTER TABLE t ADD CONSTRAINT `odd name` CHECK (coalesce(s, 'a') RLIKE '^[a-z]*$' AND coalesce(st.a,
            0) >= 0 OR size(l) > 3);
        INSERT INTO t SELECT id, doc(id), 'x', NULL, named_struct('a', 1), array(1) FROM range(10);
        INSERT INTO t (id, v) SELECT id, doc(id) FROM range(8, 12);
        INSERT INTO t (id, v, s) VALUES (1, doc(1), 'X1');""",
        *in_soak("INSERT INTO t (id, v, st) SELECT 1, doc(1), named_struct('a', -1)"),
        """INSERT INTO t (id, v) SELECT NULL, doc(1);
        UPDATE t SET id = id + 5;""",
        *in_soak("UPDATE t SET id = 9 WHERE id = 8"),
        merge("SELECT 9 AS id", "WHEN MATCHED THEN UPDATE SET id = 10") + "INSERT OVERWRITE t (id, v) VALUES (11, doc(1))",
        *in_soak("ALTER TABLE t ADD CONSTRAINT fails CHECK (1 / (id - 3) > -5)"),
        """DELETE FROM t WHERE id = 3;
        ALTER TABLE t ADD CONSTRAINT fails CHECK (1 / (id - 3) > -5);
        INSERT INTO t (id, v) VALUES (3, doc(1));""",
        *in_soak("ALTER TABLE t DROP CONSTRAINT small; INSERT INTO t (id, v) VALUES (30, doc(1))"),
    ),
    "checks of a path": of(
        table()
        + fill(0, 3)
        + """ALTER TABLE t ADD CONSTRAINT small CHECK (variant_get(v, '$.k', 'int') < 2);
        ALTER TABLE t ADD CONSTRAINT known CHECK (variant_get(v, '$.k', 'int') < 10);
        INSERT INTO t (id, v) VALUES (1, doc(1)), (1, doc(77));
        INSERT INTO t (id) VALUES (1);
        UPDATE t SET v = doc(10) WHERE v:k::INT = 2""",
        settings=GENERATED,
    ),
    "lengths": of(
        table("id BIGINT, v VARIANT, c CHAR(3), d VARCHAR(3), st STRUCT<c: VARCHAR(2)>, p CHAR(2)", "PARTITIONED BY (p)")
        + """INSERT INTO t VALUES (1, doc(1), 'a', 'abc', named_struct('c', 'ab'), 'p'), (2, NULL, 'ab ', 'ab  ', NULL, NULL);
        INSERT INTO t VALUES (1, doc(1), 'abc   ', 'a', NULL, 'p');
        INSERT INTO t VALUES (1, doc(1), 'abcd', 'a', NULL, 'p');
        INSERT INTO t VALUES (1, doc(1), 'a', 'abcd', NULL, 'p');
        INSERT INTO t VALUES (1, doc(1), 'a', 'abc', named_struct('c', 'abc'), 'p');
        INSERT INTO t VALUES (1, doc(1), 'a', 'abc', NULL, 'ppp');
        UPDATE t SET d = 'abcd' WHERE id = 1;
        UPDATE t SET c = 'b' WHERE c = 'a'"""
    ),
    "generated columns": of(
        create_generated,
        """INSERT INTO t (id, v, at) SELECT id, doc(id), timestamp_seconds(1700000000 + id * 40000) FROM range(5);
        INSERT INTO t (id, v, at, twice) VALUES (7, doc(7), TIMESTAMP'2024-02-03 04:05:06', 14);
        INSERT INTO t (id, v, at, twice) VALUES (7, doc(7), TIMESTAMP'2024-02-03 04:05:06', 15);
        INSERT INTO t (id) VALUES (8);
        INSERT INTO t SELECT * FROM t WHERE id = 1;
        UPDATE t SET id = 100 WHERE id = 2;
        UPDATE t SET twice = 5 WHERE id = 1;""",
        *in_soak("UPDATE t SET at = TIMESTAMP'2030-01-01 00:00:00' WHERE id = 3"),
        merge(
            "SELECT id, doc(id) AS v FROM range(3, 6)",
            "WHEN MATCHED THEN UPDATE SET v = q.v, id = q.id + 10 WHEN NOT MATCHED THEN INSERT (id, v) VALUES (q.id, q.v)",
        )
        + merge("SELECT id, doc(id) AS v, TIMESTAMP'2024-01-01 00:00:00' AS at FROM range(1, 3)", UPSERT),
        *in_soak("OPTIMIZE t"),
        lambda twin: (
            writer(twin, "SELECT 9L AS id, doc(9) AS v, TIMESTAMP'2024-01-01 00:00:00' AS at").mode("append").saveAsTable("t")
        ),
        lambda twin: writer(twin, "SELECT 9L AS id, 19L AS twice").mode("append").saveAsTable("t"),
    ),
    "identity columns": of(
        create_identity,
        """INSERT INTO t (v, s) SELECT doc(id), concat('s', id) FROM range(0, 5, 1, 1);
        INSERT INTO t (v) SELECT doc(id) FROM range(0, 4, 1, 2);
        INSERT INTO t (a, v) VALUES (5, doc(5));
        INSERT INTO t (d, v) VALUES (1000, doc(5)), (-7, NULL);
        UPDATE t SET a = 5;""",
        *in_soak("UPDATE t SET s = 'u' WHERE d = 1"),
        merge(
            "SELECT 's1' AS s UNION SELECT 'new'",
            "WHEN MATCHED THEN UPDATE SET v = doc(9) WHEN NOT MATCHED THEN INSERT (s) VALUES (q.s)",
            "t.s = q.s",
        )
        + """ALTER TABLE t ALTER COLUMN d SYNC IDENTITY;
        INSERT INTO t (s) VALUES ('after');
        INSERT OVERWRITE t (s) VALUES ('again'), ('more');""",
        *in_soak(
            "DELETE FROM t WHERE s = 'again'; OPTIMIZE t",
            lambda twin: writer(twin, "SELECT doc(9) AS v").mode("append").saveAsTable("t"),
        ),
    ),
}

# column mapping, row tracking, Iceberg
NESTED = (
    "id BIGINT, v VARIANT, st STRUCT<a: INT, w: VARIANT, `d e`: ARRAY<STRUCT<x: INT>>>, m MAP<STRING, STRUCT<y: INT>>, p STRING"
)
NESTED_ROWS = (
    "INSERT INTO t SELECT id, doc(id), named_struct('a', id, 'w', doc(id), 'd e', array(named_struct('x', id))),"
    " map('k', named_struct('y', id)), concat('p', id % 2) FROM range({}, {}, 1, 1);"
)


def mapped(**mode: str) -> Scenario:
    """Names, nested ones and those of partitions, change, and columns are dropped and come back."""
    return of(
        table(NESTED, "PARTITIONED BY (p)", **mode, **FEED, **NO_VECTORS)
        + NESTED_ROWS.format(0, 4)
        + """ALTER TABLE t RENAME COLUMN id TO `the id, (new)`;
        ALTER TABLE t RENAME COLUMN st.a TO b;
        ALTER TABLE t RENAME COLUMN p TO `q=`;
        ALTER TABLE t RENAME COLUMN v TO variant;"""
        + NESTED_ROWS.format(4, 8)
        + """UPDATE t SET st.b = 7, variant = doc(1) WHERE `the id, (new)` = 1;
        DELETE FROM t WHERE st.b = 2;
        ALTER TABLE t ADD COLUMNS (a INT, st.z VARIANT);
        ALTER TABLE t ALTER COLUMN a FIRST;
        INSERT INTO t (a, variant) VALUES (1, doc(5)), (2, NULL);
        OPTIMIZE t""",
        changes_from=9,
    )


SCENARIOS |= {
    "mapped by name": mapped(**BY_NAME),
    "mapped by id": mapped(**BY_ID),
    "mapped later": of(
        table(NESTED.replace("d e", "d"), **TRACKED)
        + NESTED_ROWS.format(0, 4)
        + "ALTER TABLE t SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name');"
        "ALTER TABLE t DROP COLUMN st; ALTER TABLE t DROP COLUMN v; ALTER TABLE t ADD COLUMNS (v VARIANT, "
        "st STRUCT<w: VARIANT>);"
        "INSERT INTO t (id, v, st) SELECT 1, doc(1), named_struct('w', doc(2)); UPDATE t SET v = st.w; "
        "REORG TABLE t APPLY (PURGE)",
    ),
    "row ids": of(
        table(**TRACKED, **NO_VECTORS)
        + fill(0, 5)
        + fill(5, 10, 2)
        + """UPDATE t SET s = 'x' WHERE id = 7;
        DELETE FROM t WHERE id = 1;
        INSERT INTO t SELECT * FROM t WHERE id > 7;"""
        + merge(
            "SELECT id, doc(id) AS v, 'm' AS s FROM range(8, 12, 1, 1)",
            UPSERT.replace("MATCHED THEN UPDATE", "MATCHED AND q.id < 9 THEN UPDATE"),
        )
        + """OPTIMIZE t ZORDER BY (id);
        INSERT OVERWRITE t SELECT * FROM t WHERE id < 5;
        ALTER TABLE t SET TBLPROPERTIES ('delta.enableRowTracking' = 'false');
        INSERT INTO t VALUES (70, NULL, NULL);
        UPDATE t SET s = 'y' WHERE id = 70;
        REPLACE TABLE t USING delta TBLPROPERTIES ('delta.enableRowTracking' = 'true') AS SELECT id,
            doc(id) AS v FROM range(3)"""
    ),
    "row ids of an older table": of(
        "UPDATE t SET s = 'x' WHERE id = 2;" + fill(5, 8) + "OPTIMIZE t; ",
        made_by_delta=(table() + fill(0, 5) + "ALTER TABLE t SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",),
    ),
    "Iceberg": of(
        table(
            "id BIGINT, s STRING, t TIMESTAMP, st STRUCT<a: INT>, l ARRAY<INT>, m MAP<STRING, INT>, p INT",
            "PARTITIONED BY (p)",
            **{"delta.enableIcebergCompatV2": "true", "delta.columnMapping.mode": "name"},
            **NO_VECTORS,
        )
        + """INSERT INTO t SELECT id, concat('s', id), timestamp_seconds(id), named_struct('a', id), array(id), map('k',
            id), id % 2 FROM range(6);
        UPDATE t SET s = 'x' WHERE id = 1;
        DELETE FROM t WHERE id = 2;
        INSERT INTO t (id) VALUES (100);
        OPTIMIZE t;
        ALTER TABLE t ADD COLUMNS (v VARIANT)"""
    ),
    "materialized partition columns": of(
        table(
            "id BIGINT, v VARIANT, p STRING, q DATE",
            "PARTITIONED BY (p, q)",
            **{"delta.enableMaterializePartitionColumnsFeature": "true"},
            **NO_VECTORS,
        )
        + """INSERT INTO t SELECT id, doc(id), concat('p', id % 2), date_add(DATE'2024-01-01',
            CAST(id % 2 AS INT)) FROM range(6);
        UPDATE t SET id = 7 WHERE id = 1;
        OPTIMIZE t"""
    ),
}

# partitions
PARTITION_TYPES = {
    "b": "BOOLEAN", "i": "INT", "h": "SMALLINT", "f": "DOUBLE", "n": "DECIMAL(10, 2)", "d": "DATE", "t": "TIMESTAMP",
    "z": "TIMESTAMP_NTZ", "s": "STRING",
}  # fmt: skip
PARTITION_VALUES = (
    "true, 1, 2, 0.5, 1.50, DATE'2024-02-29', TIMESTAMP'2024-01-01 00:00:00.123456', TIMESTAMP_NTZ'0001-01-01 00:00:00', 'a'",
    "false, -1, NULL, -0.0, -0.05, DATE'0001-01-01', TIMESTAMP'1969-12-31 23:59:59', TIMESTAMP_NTZ'2024-01-01 00:00:00', ''",
    "NULL, NULL, 0, double('NaN'), NULL, NULL, NULL, NULL, NULL",
    "true, 1, 1, 1e300, 99999999.99, DATE'9999-12-31', TIMESTAMP'9999-12-31 23:59:59.999999', NULL, 'a/b=c %25 :é?*\"''{}'",
    "true, 1, 1, double('-Infinity'), 0, NULL, NULL, NULL, ' '",
)
SCENARIOS |= {
    "partitions of every type": of(
        table(
            "id BIGINT, v VARIANT, " + ", ".join(f"{name} {kind}" for name, kind in PARTITION_TYPES.items()),
            f"PARTITIONED BY ({', '.join(PARTITION_TYPES)})",
            **FEED,
            **NO_VECTORS,
        )
        + "".join(f"INSERT INTO t VALUES (1, doc(1), {values}), (2, NULL, {values});" for values in PARTITION_VALUES)
        + "INSERT INTO t SELECT * FROM t; UPDATE t SET id = 3 WHERE b AND id = 1;",
        *in_soak("DELETE FROM t WHERE id = 2 AND s = ''"),
        "OPTIMIZE t WHERE s = 'a'",
        settings={"spark.sql.session.timeZone": "Asia/Kathmandu"},
    ),
    "one partition of each type": of(
        *(
            f"CREATE TABLE p_{name} USING delta PARTITIONED BY (p) AS SELECT id, doc(id) AS v, "
            f"CAST(p AS {PARTITION_TYPES[name]}) AS p FROM range(2),"
            f" VALUES {values} AS q(p)"
            for name, values in {
                "t": "('2024-03-10 02:30:00'), ('1582-10-10 00:00:00.5'), (NULL)",
                "s": "(''), ('a'), (' b '), ('c\\nd'), (NULL)",
                "n": "('1'), ('1.000'), (NULL)",
            }.items()
        ),
        tables=("p_t", "p_s", "p_n"),
        settings={"spark.sql.session.timeZone": "Europe/Berlin"},
    ),
    "UTC partitions off": of(
        table("id BIGINT, v VARIANT, p TIMESTAMP", "PARTITIONED BY (p)")
        + "INSERT INTO t SELECT id, doc(id), timestamp_seconds(id) FROM range(2); UPDATE t SET v = NULL WHERE id = 1;",
        settings={
            "spark.sql.session.timeZone": "Asia/Tokyo",
            "spark.databricks.delta.write.utcTimestampPartitionValues": "false",
        },
        delta="partition values of timestamps in local time",
    ),
    "binary partitions": of(
        table("id BIGINT, v VARIANT, p BINARY", "PARTITIONED BY (p)")
        + "INSERT INTO t VALUES (1, doc(1), X'41'), (2, NULL, NULL);",
        delta="partition column p is BINARY",
    ),
    "partitions with NUL": of(
        table("id BIGINT, v VARIANT, p STRING", "PARTITIONED BY (p)")
        + "INSERT INTO t SELECT id, doc(id), concat('a', chr(id)) FROM range(0, 3, 1, 1)",
        delta="partition column p has the character NUL",
    ),
    "many partitions": of(
        "CREATE TABLE t USING delta PARTITIONED BY (p) AS SELECT id, doc(id) AS v, id % 60 AS p FROM range(0, 120, 1, 1); "
        "OPTIMIZE t WHERE p < 3;"
        "UPDATE t SET v = doc(1) WHERE p < 20 AND id > 60"
    ),
    "empty strings and NULL are one partition": of(
        table("id BIGINT, v VARIANT, p STRING, q INT", "PARTITIONED BY (p, q)")
        + "INSERT INTO t SELECT id, doc(id), IF(id % 2 = 0, '', NULL), id % 3 FROM range(0, 12, 1, 1);"
        "INSERT INTO t SELECT id, doc(id), IF(id % 2 = 0, '', NULL), id % 3 FROM range(0, 12, 1, 1) ORDER BY 3, 4;"
        "UPDATE t SET p = IF(id % 2 = 0, '', NULL) WHERE id > 6;"
        "CREATE TABLE one (id BIGINT, v VARIANT, p STRING) USING delta PARTITIONED BY (p);"
        "INSERT INTO one SELECT id, doc(id), nullif(elt(id % 3 + 1, 'a', '', '-'), '-') FROM range(0, 12, 1, 1)"
        "  ORDER BY 3 DESC NULLS FIRST;"
        "INSERT INTO one VALUES (1, doc(1), '__HIVE_DEFAULT_PARTITION__'), (2, doc(2), NULL)",
        tables=("t", "one"),
    ),
    "random prefixes": of(
        table(
            "id BIGINT, v VARIANT, p INT",
            "PARTITIONED BY (p)",
            **{"delta.randomizeFilePrefixes": "true", "delta.randomPrefixLength": "3"},
            **FEED,
        )
        + "INSERT INTO t SELECT id, doc(id), id % 2 FROM range(4); UPDATE t SET id = 9 WHERE id = 1; OPTIMIZE t"
    ),
}

# files: their number, order, compression, statistics
SCENARIOS |= {
    "rows in a file": of(
        table("id BIGINT, v VARIANT, p INT", "PARTITIONED BY (p)")
        + "INSERT INTO t SELECT id, doc(id), id % 2 FROM range(0, 12, 1, 1);",
        lambda twin: (
            writer(twin, "SELECT id, doc(id) AS v, 1 AS p FROM range(0, 10, 1, 1)", maxRecordsPerFile="3")
            .mode("append")
            .saveAsTable("t")
        ),
        lambda twin: (
            writer(twin, "SELECT id, doc(id) AS v, 2 AS p FROM range(0, 3, 1, 1)", compression="zstd")
            .mode("append")
            .saveAsTable("t")
        ),
        lambda twin: (
            writer(twin, "SELECT id, doc(id) AS v, 2 AS p FROM range(0, 3, 1, 1)", compression="no such")
            .mode("append")
            .saveAsTable("t")
        ),
        settings={"spark.sql.files.maxRecordsPerFile": "4"},
    ),
    "order of a query": of(
        table("id BIGINT, v VARIANT, p INT", "PARTITIONED BY (p)", **TRACKED)
        + """INSERT INTO t SELECT id, doc(id), id % 2 FROM range(0, 9, 1, 1) ORDER BY id % 2, id DESC;
        INSERT INTO t SELECT id, doc(id), id % 2 FROM range(0, 9, 1, 1) SORT BY hash(id);
        INSERT INTO t SELECT id, doc(id), id % 2 FROM range(0, 9, 1, 3) DISTRIBUTE BY id % 2 SORT BY id DESC"""
    ),
    "optimized writes": of(
        table(
            "id BIGINT, v VARIANT, p INT",
            "PARTITIONED BY (p)",
            **{"delta.autoOptimize.optimizeWrite": "true"},
            **FEED,
            **NO_VECTORS,
        )
        + "INSERT INTO t SELECT id, doc(id), id % 3 FROM range(0, 30, 1, 4); UPDATE t SET v = doc(5) WHERE id % 10 = 0;"
        + merge("SELECT id, doc(id) AS v, 7 AS p FROM range(25, 40, 1, 3)", UPSERT),
        lambda twin: (
            writer(twin, "SELECT id, doc(id) AS v, 1 AS p FROM range(0, 8, 1, 3)", optimizeWrite="false")
            .mode("append")
            .saveAsTable("t")
        ),
    ),
    "auto compaction": of(
        table(**{"delta.autoOptimize.autoCompact": "true"})
        + fill(0, 3, 3)
        + fill(3, 6, 3)
        + "UPDATE t SET s = 'x' WHERE id = 1;",
        settings={"spark.databricks.delta.autoCompact.minNumFiles": "4"},
    ),
    "optimize": of(
        table("id BIGINT, v VARIANT, p INT", "PARTITIONED BY (p)", **FEED)
        + "INSERT INTO t SELECT id, doc(id), id % 2 FROM range(0, 12, 1, 3); DELETE FROM t WHERE id = 5;"
        """OPTIMIZE t WHERE p = 0;
        OPTIMIZE t ZORDER BY (id);
        OPTIMIZE t;
        OPTIMIZE t ZORDER BY (p);
        OPTIMIZE t ZORDER BY (missing);
        OPTIMIZE t WHERE id = 5"""
    ),
    "liquid clustering": of(
        table(clauses="CLUSTER BY (id, s)", **TRACKED, **VECTORS) + fill(0, 6, 2) + fill(6, 9) + "OPTIMIZE t;",
        *in_soak("OPTIMIZE t; DELETE FROM t WHERE id = 3"),
        """ALTER TABLE t CLUSTER BY (s);
        INSERT INTO t VALUES (100, doc(1), 'z');
        OPTIMIZE t FULL;
        ALTER TABLE t CLUSTER BY NONE;""",
        *in_soak("INSERT INTO t VALUES (101, doc(1), 'z')"),
        """ALTER TABLE t CLUSTER BY (v);
        OPTIMIZE t ZORDER BY (id)""",
    ),
    "few statistics": of(
        table(
            "s STRING, v VARIANT, st STRUCT<a: INT, w: VARIANT, b: STRING>, id BIGINT",
            **{"delta.dataSkippingNumIndexedCols": "3"},
        )
        + """INSERT INTO t SELECT repeat(concat('é', id), 40), doc(id), named_struct('a', id, 'w', doc(id), 'b', NULL),
            id FROM range(3);
        ALTER TABLE t SET TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '0');
        INSERT INTO t (id) VALUES (1);
        ALTER TABLE t SET TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '-1');
        INSERT INTO t (id, s) VALUES (1, repeat('\\uD83D\\uDE00', 40));
        ALTER TABLE t SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'id,st.b');
        INSERT INTO t (id, st) SELECT 1, named_struct('a', 1, 'w', doc(1), 'b', 'text');
        ALTER TABLE t SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = '');
        INSERT INTO t (id) VALUES (1)"""
    ),
    "properties of files": of(
        table(
            "id BIGINT, v VARIANT, s STRING, p INT",
            "PARTITIONED BY (p)",
            **{"delta.dataSkippingStringPrefixLength": "4", "delta.writePartitionColumnsToParquet": "true"},
            **{"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpointInterval": "2"},
        )
        + "INSERT INTO t SELECT id, doc(id), concat('text ', id), id % 2 FROM range(0, 6, 1, 2);"
        "UPDATE t SET s = 'other' WHERE id = 1;"
        "OPTIMIZE t; ALTER TABLE t SET TBLPROPERTIES ('delta.dataSkippingStringPrefixLength' = '0');"
        "INSERT INTO t VALUES (1, NULL, 'a', 1)",
        settings={"spark.databricks.delta.history.metricsEnabled": "false"},
    ),
    "old dates and formats": of(
        table("id BIGINT, v VARIANT, d DATE, t TIMESTAMP")
        + """INSERT INTO t VALUES (1, NULL, DATE'1500-01-01', NULL);
        INSERT INTO t VALUES (1, NULL, NULL, TIMESTAMP'1500-01-01 00:00:00');
        INSERT INTO t VALUES (1, doc(1), DATE'2000-01-01', TIMESTAMP'2000-01-01 00:00:00')""",
        settings={
            "spark.sql.parquet.datetimeRebaseModeInWrite": "EXCEPTION",
            "spark.sql.parquet.int96RebaseModeInWrite": "EXCEPTION",
            "spark.sql.parquet.outputTimestampType": "INT96",
            "spark.sql.parquet.writeLegacyFormat": "true",
        },
        delta="the session refuses old dates",
    ),
    "replace on": of(
        table() + fill(0, 6),
        lambda twin: (
            writer(twin, "SELECT 1L AS id, doc(7) AS v, 'x' AS s", replaceUsing="id").mode("overwrite").saveAsTable("t")
        ),
        lambda twin: (
            writer(twin, "SELECT 2L AS id, doc(7) AS v, 'x' AS s", replaceOn="t.id = s.id", targetAlias="t")
            .mode("overwrite")
            .saveAsTable("t")
        ),
    ),
    "no statistics": of(
        table(**VECTORS) + fill(0, 3) + "DELETE FROM t WHERE id = 1; UPDATE t SET s = 'x' WHERE id = 2; OPTIMIZE t",
        settings={"spark.databricks.delta.stats.collect": "false"},
    ),
    "types": of(
        table(
            "v VARIANT, b BOOLEAN, i TINYINT, h SMALLINT, n INT, l BIGINT, f FLOAT, d DOUBLE, c DECIMAL(38, 10), "
            "e DECIMAL(9, 2), s STRING,"
            " x BINARY, dt DATE, ts TIMESTAMP, tz TIMESTAMP_NTZ, st STRUCT<a: INT, `b.c`: STRING>, ar ARRAY<VARIANT>, "
            "m MAP<STRING, VARIANT>,"
            " iv STRUCT<v: VARIANT>"
        )
        + """INSERT INTO t SELECT doc(id), id % 2 = 0, id, id, id, id, id, id / 3, id / 7, id, concat('s', id),
            CAST(concat('b', id) AS BINARY),
            date_add(DATE'1960-01-01', CAST(id * 9999 AS INT)), timestamp_micros(id * 123456789123 - 99999),
                CAST(timestamp_micros(id * 9) AS TIMESTAMP_NTZ),
            named_struct('a', id, 'b.c', 'x'), array(doc(id), NULL), map('k', doc(id)), named_struct('v',
                doc(id)) FROM range(5);
        INSERT INTO t (f, d) VALUES (float('NaN'), double('NaN')), (-0.0, -0.0), (float('Infinity'), double('-Infinity'));
        INSERT INTO t (s) VALUES (''), (NULL), ('\\u0000'), (repeat('\\uFFFF', 50));
        INSERT INTO t (dt, ts) VALUES (DATE'0001-01-01', TIMESTAMP'0001-01-02 00:00:00'), (DATE'1582-10-10',
            TIMESTAMP'1582-10-10 00:00:00');
        INSERT INTO t (v) VALUES (parse_json('[1, {"a": null}]')), (parse_json('null')),
            (to_variant_object(named_struct('d', DATE'2024-01-01')));
        INSERT INTO t (n) SELECT NULL WHERE false;
        UPDATE t SET ar = array(v), iv.v = parse_json('1') WHERE l = 2"""
    ),
    "types that tables cannot have": of(
        """CREATE TABLE t (i INTERVAL DAY TO SECOND, v VARIANT) USING delta;
        CREATE TABLE t (s STRING COLLATE UNICODE, v VARIANT) USING delta;
        CREATE TABLE t USING delta AS SELECT INTERVAL '1' DAY AS i;
        CREATE TABLE t USING delta AS SELECT array(NULL) AS n, 1 AS id;
        CREATE TABLE t USING delta AS SELECT NULL AS n, 1 AS id, named_struct('x', NULL, 'y', 1) AS st"""
    ),
    "append only": of(
        table(**{"delta.appendOnly": "true"})
        + fill(0, 3)
        + "DELETE FROM t WHERE id = 1; UPDATE t SET s = 'x'; INSERT OVERWRITE t VALUES (1, NULL, NULL); OPTIMIZE t"
    ),
    "old protocol": of(
        table("id BIGINT, s STRING", **{"delta.minReaderVersion": "1", "delta.minWriterVersion": "2"}, **NO_VECTORS)
        + "INSERT INTO t SELECT id, 's' FROM range(4); UPDATE t SET s = 'x' WHERE id = 1; OPTIMIZE t; "
        "ALTER TABLE t SET TBLPROPERTIES"
        " ('delta.enableChangeDataFeed' = 'true'); UPDATE t SET s = 'y' WHERE id = 2; "
        "ALTER TABLE t ADD COLUMNS (v VARIANT); INSERT INTO t VALUES (1, 's', doc(1))"
    ),
    "commit times, checkpoints": of(
        table(**{"delta.enableInCommitTimestamps": "true", "delta.checkpointPolicy": "v2", "delta.checkpointInterval": "2"})
        + fill(0, 3)
        + fill(3, 6)
        + "UPDATE t SET s = 'x' WHERE id = 4; INSERT INTO t VALUES (9, doc(9), 's');"
        "ALTER TABLE t DROP FEATURE inCommitTimestamp; DELETE FROM t WHERE id = 0"
    ),
    "errors of several rows": of(
        table("id BIGINT NOT NULL, v VARIANT, x DOUBLE")
        + """ALTER TABLE t ADD CONSTRAINT small CHECK (id < 4);
        INSERT INTO t SELECT id, parse_json(IF(id = 1, '{', '1')), 1 / (id - 3) FROM range(0, 4, 1, 1);
        INSERT INTO t SELECT id, parse_json(IF(id = 1, '{', '1')), 1 FROM range(0, 6, 1, 1);
        INSERT INTO t SELECT nullif(id, 2), parse_json(IF(id = 1, '{', '1')), 1 FROM range(0, 4, 1, 1);
        INSERT INTO t SELECT nullif(id, 2), parse_json(IF(id = 3, '{', '1')), 1 FROM range(0, 4, 1, 1);
        INSERT INTO t SELECT id, parse_json('1'), 1 / (id - 3) FROM range(0, 4, 1, 1)"""
    ),
    "column mapping dropped": of(
        table(**BY_NAME)
        + fill(0, 6)
        + """ALTER TABLE t RENAME COLUMN v TO w; ALTER TABLE t ADD COLUMNS (v VARIANT);
        INSERT INTO t VALUES (9, doc(9), 's', doc(8)); ALTER TABLE t DROP FEATURE columnMapping;
        UPDATE t SET s = 'x' WHERE id = 1"""
    ),
    "clones": of(
        table(**FEED)
        + fill(0, 3)
        + "CREATE TABLE u SHALLOW CLONE t; UPDATE u SET s = 'x' WHERE id = 1; INSERT INTO u VALUES (9, doc(9), 's'); "
        "OPTIMIZE u",
        tables=("t", "u"),
    ),
    "DeltaTable": of(
        table(**FEED) + fill(0, 6),
        lambda twin: target(twin).update("id = 1", {"s": "'updated'", "v": "parse_json('[1]')"}),
        lambda twin: target(twin).delete("id = 2"),
        lambda twin: (
            target(twin)
            .alias("t")
            .merge(frame(twin, CHANGES).alias("q"), "t.id = q.id - 13")
            .whenMatchedUpdate(set={"s": "q.s"})
            .whenNotMatchedInsertAll()
            .whenNotMatchedBySourceDelete("t.id = 5")
            .execute()
        ),
        lambda twin: target(twin).optimize().executeZOrderBy("id"),
        lambda twin: target(twin).optimize().where("id = 1").executeCompaction(),
        "DESCRIBE HISTORY t LIMIT 0",
    ),
}

# streams
SCENARIOS |= {
    "stream": of(
        "CREATE TABLE source (id BIGINT, v VARIANT) USING delta; INSERT INTO source SELECT id, doc(id) FROM range(0, 3, 1, "
        "1); INSERT INTO source SELECT id, doc(id) FROM range(3, 6, 1, 1);",
        table("id BIGINT, v VARIANT, p BIGINT", "PARTITIONED BY (p)", **FEED),
        lambda twin: streamed(twin, "t", lambda df: df.withColumn("p", F.col("id") % 2)),
        "INSERT INTO source SELECT id, doc(id) FROM range(6, 8, 1, 1);",
        lambda twin: streamed(twin, "t", lambda df: df.withColumn("p", F.col("id") % 2)),
        lambda twin: streamed(twin, "t", lambda df: df.withColumn("extra", F.lit(1)), "schema"),
        lambda twin: streamed(twin, "t", lambda df: df.selectExpr("1 / (id - 3) AS id", "v", "1L AS p"), "fails"),
        *in_soak(lambda twin: streamed(twin, "t", lambda df: df.selectExpr("id", "v", "raise_error('no') AS p"), "fails")),
        lambda twin: streamed(
            twin, "counts", lambda df: df.groupBy((F.col("id") % 2).alias("k")).count(), "complete", "complete"
        ),
        tables=("source", "t", "counts"),
    ),
    "stream into MERGE": of(
        "CREATE TABLE source (id BIGINT, v VARIANT) USING delta; INSERT INTO source SELECT id, doc(id) FROM range(0, 3, 1, 1);"
        "INSERT INTO source SELECT id, doc(id) FROM range(2, 6, 1, 1)",
        lambda twin: streamed(twin, "t", lambda df: df, "each", each=True),
        tables=("source", "t"),
    ),
}


ALONE = {
    *("commands, vectors", "commands, files of Delta", "overwrite dynamically", "mapped by name", "row ids of an older table"),
    *("one partition of each type", "no statistics", "old protocol", "commit times, checkpoints", "clones", "DeltaTable"),
    *("checks of a path", "stream into MERGE", "row ids", "mapped later", "random prefixes", "types that tables cannot have"),
    *("append only", "functions of a query", "properties of files", "commands, feed, row ids, ids, partitions"),
}
"""Only `make soak` runs these, of which others have most."""
