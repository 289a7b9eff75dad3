"""Tables that `analyze` and `optimize` work on, and the writers beside them."""

from __future__ import annotations

import delta_variant as dv
from tests.support import SOAK, without_rules

DOCUMENT = "struct(id, concat('n', id) AS name, id * 1.5 AS price, CASE WHEN id % 4 = 0 THEN struct(id % 7 AS k) END AS o)"
ROWS = ("id AS n", "id DIV 10 AS p", f"parse_json(to_json({DOCUMENT})) AS v")
SHAPE = "id bigint, name string, price decimal(18,2), o struct<k: bigint>"


def rows(spark, first=0, last=40):
    """Rows with these ids, ten a file."""
    return spark.range(first, last, 1, (last - first) // 10).selectExpr(*ROWS)


def create(spark, path, *, shredding="true", columns="n bigint, p bigint, v variant", more=""):
    spark.conf.set("spark.databricks.delta.variantShredding.forceUsePreviewTableFeature", "false")
    properties = f"TBLPROPERTIES ('delta.enableVariantShredding' = '{shredding}')" if shredding else ""
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta {more} {properties}")


def by_delta(spark, path, df=None):
    """Rows that delta-spark writes: shredded if the property says so, without bounds."""
    (rows(spark) if df is None else df).write.format("delta").mode("append").save(str(path))


def rows_with_files(spark, path, columns="n, p, v"):
    """The rows of a table with their files, by Spark's own scan."""
    with without_rules(spark):
        return spark.sql(f"SELECT _metadata.file_name AS file, {columns} FROM delta.`{path}`").collect()


def rows_of(spark, path):
    """The rows of a table, by Spark's own scan."""
    with without_rules(spark):
        return sorted(map(tuple, spark.sql(f"SELECT n, v::string FROM delta.`{path}`").collect()))


OTHERS = {
    "append": lambda spark, path: by_delta(spark, path, rows(spark, 40, 50)),
    "our append": lambda spark, path: dv.write(rows(spark, 40, 50), path),
    "overwrite": lambda spark, path: rows(spark, 40, 50).write.format("delta").mode("overwrite").save(path),
    "DELETE": lambda spark, path: spark.sql(f"DELETE FROM delta.`{path}` WHERE n BETWEEN 3 AND 12"),
    "UPDATE": lambda spark, path: spark.sql(f"UPDATE delta.`{path}` SET v = parse_json('{{\"id\": 25}}') WHERE n = 3"),
    "MERGE": lambda spark, path: spark.sql(
        f"MERGE INTO delta.`{path}` t USING (SELECT 14L n) s ON t.n = s.n WHEN MATCHED THEN UPDATE SET p = 99"
    ),
    "OPTIMIZE": lambda spark, path: spark.sql(f"OPTIMIZE delta.`{path}`"),
    "analyze": lambda spark, path: dv.VariantTable.forPath(spark, path).analyze(),
    "ALTER TABLE": lambda spark, path: spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('x' = 'y')"),
    "RESTORE": lambda spark, path: spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF 1"),
}  # fmt: skip


DELETION_VECTORS = ["true", "false"] if SOAK else ["true"]


def two_commits(spark, path, deletion_vectors):
    """Four files of delta-spark in two commits, with deletion vectors or not: "true" or "false"."""
    more = f"TBLPROPERTIES ('delta.enableVariantShredding' = 'true', 'delta.enableDeletionVectors' = '{deletion_vectors}')"
    create(spark, path, shredding=None, more=more)
    by_delta(spark, path, rows(spark, 0, 20))
    by_delta(spark, path, rows(spark, 20, 40))
    return path


def documents_by_id(spark):
    """The documents of the rows that a test can meet, by their ids."""
    return {row.n: document for row, document in ((row, documents([row])[0]) for row in rows(spark, 0, 60).collect())}


def documents_after(texts, other, *, done):
    """The documents of `two_commits` after the other writer, if it is done. Before RESTORE, the table has some more."""
    before = {n: texts[n] for n in [*range(40), *(range(50, 60) if other == "RESTORE" else ())]}
    new = {n: texts[n] for n in range(40, 50)}
    changed = {
        "append": before | new,
        "our append": before | new,
        "overwrite": new,
        "DELETE": {n: document for n, document in before.items() if not 3 <= n <= 12},
        "UPDATE": before | {3: (3, 0, '{"id":25}')},
        "MERGE": before | {14: (14, 99, texts[14][2])},
        "RESTORE": {n: texts[n] for n in range(20)},
    }
    return sorted((changed.get(other, before) if done else before).values())


def documents(found):
    return sorted((row.n, row.p, row.v.toJson()) for row in found)
