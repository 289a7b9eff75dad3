"""The class `VariantTable`: a table's bounds as data and as a picture."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

import delta_variant as dv
from delta_variant import stats
from delta_variant.errors import DeltaVariantError, InvalidPathError, TableError

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]

ROWS = "parse_json(to_json(struct(id, struct(concat('n', id DIV 20) AS name) AS `a.b`))) AS v"


def append(spark, path, first, last):
    """A file of rows with these ids."""
    return dv.write(spark.range(first, last, 1, 1).selectExpr("id AS n", ROWS), path)


@pytest.fixture(scope="module")
def path(spark, tmp_path_factory):
    """Four files of this package, two of which overlap, and one of delta-spark without bounds."""
    path = str(tmp_path_factory.mktemp("table") / "events")
    ids = spark.range(0, 40, 1, 1).selectExpr("if(id DIV 10 = 2, id + 5, id) AS id")  # from 0, 10, 25 and 30 on
    assert dv.write(ids.selectExpr("id AS n", ROWS), path, max_rows_per_file=10).files == 4
    spark.range(40, 50, 1, 1).selectExpr("id AS n", ROWS).write.format("delta").mode("append").save(path)
    return path


def lines(figure):
    """(row, from, to) of every line."""
    segments = [segment for lines in figure.axes[0].collections for segment in lines.get_segments()]
    return sorted((int(start[1]), float(start[0]), float(end[0])) for start, end in segments)


def test_stats(spark, path):
    """`stats` has a row for each file and path with bounds, which are the extremes that Spark finds in the file."""
    table = dv.VariantTable.forPath(spark, path)
    bounds = table.stats().selectExpr("*", "min::string AS low", "max::string AS high").collect()
    assert {(row.column, row.source) for row in bounds} == {("v", "delta-variant")}
    found = {(row.file, row.path, row.type, row.low, row.high) for row in bounds}
    in_files = (
        table.toDF()
        .selectExpr("_metadata.file_name AS file", "n", "v:id::bigint AS id", "v:['a.b'].name::string AS name")
        .groupBy("file")
        .agg({"id": "min", "n": "max", "name": "min"})
        .where("`min(id)` < 40")
        .collect()
    )
    names = {row.file: row["min(name)"] for row in in_files}
    assert found == {(row.file, "$['id']", "BIGINT", str(row["min(id)"]), str(row["max(n)"])) for row in in_files} | {
        (file, "$['a.b']['name']", "STRING", name, "n1" if name == "n1" else name) for file, name in names.items()
    }


def test_types_of_stats(spark, tmp_path):
    """The type of bounds is the one that both fit."""
    texts = ['{"price": 0.5, "n": 1}', '{"price": 74.75, "n": 300}']
    rows = spark.createDataFrame([(text,) for text in texts], "j string").coalesce(1).selectExpr("parse_json(j) AS v")
    dv.write(rows, str(tmp_path / "t"), shred={"v": "price decimal(18,2), n int"})
    table = dv.VariantTable.forPath(spark, tmp_path / "t")
    for found in (table.stats(), table.summary()):
        types = {row.path: row.type for row in found.collect()}
        assert types == {"$['n']": "BIGINT", "$['price']": "DECIMAL(4,2)"}


def test_arguments_of_other_types(spark, path, tmp_path):
    """What is no DataFrame, no mapping and no schema is an error of this package."""
    table = dv.VariantTable.forPath(spark, path)
    for call, message in (
        (lambda: dv.explain("SELECT 1"), r"explain\(spark.sql"),
        (lambda: dv.write(pa.table({"a": [1]}), tmp_path / "t"), "not a Table"),
        (lambda: dv.write(table.toDF(), tmp_path / "t", shred={"v": None}), "the schema of v is an Arrow type or a text"),
        (lambda: table.convert("v"), "must map VARIANT columns"),
    ):
        with pytest.raises(DeltaVariantError, match=message):
            call()


def test_relative_paths(spark, tmp_path):
    """A table at a relative path is the one that Spark writes there, for all that is done with it."""
    path = os.path.relpath(tmp_path / "t", spark._jvm.System.getProperty("user.dir"))
    spark.range(0, 3, 1, 1).selectExpr("id", "parse_json('{\"a\": 1}') AS v").write.format("delta").save(path)
    table = dv.VariantTable.forPath(spark, path)
    table.enable_shredding()
    table.analyze()
    table.cluster_by(["v:a"])
    assert [dv.VariantTable.forPath(spark, one).toDF().count() for one in (path, tmp_path / "t")] == [3, 3]
    assert [row.path for row in table.stats().collect()] == ["$['a']"]


def test_stats_of_paths_with_nulls(spark, tmp_path):
    """`stats` also has paths with nulls, whose bounds are in the tag `delta_variant.nonnull`."""
    texts = ['{"a": 1, "o": {"it\'s": null}}', '{"a": null, "o": {"it\'s": "x"}}', '{"a": -2, "n": null, "o": {}}']
    rows_of = spark.createDataFrame([(text,) for text in texts], "j string").coalesce(1)
    rows_of = rows_of.selectExpr("parse_json(j) AS v", "parse_json(if(j LIKE '%x%', 'null', '7')) AS w")
    dv.write(rows_of, str(tmp_path / "t"), shred={"v": "a int, n int, o struct<`it's`: string>"})
    found = (
        dv.VariantTable.forPath(spark, tmp_path / "t")
        .stats()
        .selectExpr("column", "path", "type", "min::string", "max::string", "source")
    )
    assert sorted(map(tuple, found.collect())) == [
        ("v", "$['a']", "BIGINT", "-2", "1", "tag"),
        ("v", "$['o']['it\\'s']", "STRING", "x", "x", "tag"),
    ]


def test_large_tables_get_no_more_tags(spark, tmp_path, monkeypatch):
    """A table that has MAX_TAGGED_FILES files gets only the marker."""
    monkeypatch.setattr(stats, "MAX_TAGGED_FILES", 1)
    rows_of = spark.range(1).selectExpr("""parse_json('{"a": null, "t": "2024-11-21"}') AS v""")
    for _ in range(2):
        dv.write(rows_of, str(tmp_path / "t"), shred={"v": "a int, t string"})
    commits = [(tmp_path / "t" / "_delta_log" / f"{version:020}.json").read_text() for version in (0, 1)]
    tags = stats.BOUNDS_TAG, stats.NONNULL_TAG, stats.TIMES_TAG
    assert [[tag in text for tag in tags] for text in commits] == [[True, True, True], [True, False, False]]


def test_renamed_columns(spark, tmp_path):
    """With column mapping, `stats`, `inspect` and `plot` use the name that queries use, and find the bounds by it."""
    path = str(tmp_path / "renamed")
    dv.write(spark.range(0, 3, 1, 1).selectExpr("id AS n", ROWS), path, shred={"v": "id bigint"})
    for change in ("SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')", "RENAME COLUMN v TO `w.x`"):
        spark.sql(f"ALTER TABLE delta.`{path}` {change}")
    table = dv.VariantTable.forPath(spark, path)
    assert {row.column for row in table.stats().collect()} == {"`w.x`"}
    assert len(lines(table.plot("`W.x`:id"))) == 1
    [ids] = table.inspect().where("path = \"$['id']\"").collect()
    assert (ids.column, ids.min, ids.max, ids.proven) == ("`w.x`", "0", "2", True)


def test_columns_with_dots(spark, tmp_path):
    """The bounds of a column whose name has a dot are not taken for those of a field of a struct."""
    rows_of = spark.range(3).selectExpr("parse_json('1') AS `s.w`", "struct(parse_json('5') AS w) AS s")
    dv.write(rows_of, tmp_path / "t", shred={"`s.w`": "int", "s.w": "int"})
    bounds = dv.VariantTable.forPath(spark, tmp_path / "t").summary().selectExpr("column", "min::int", "max::int")
    assert sorted(map(tuple, bounds.collect())) == [("`s.w`", 1, 1), ("s.w", 5, 5)]


def test_by_name(spark, path):
    """A table is found by its name in the catalog, and a missing one is an error."""
    spark.sql(f"CREATE TABLE IF NOT EXISTS variant_events USING delta LOCATION '{path}'")
    try:
        assert dv.VariantTable.forName(spark, "variant_events").toDF().count() == 50
    finally:
        spark.sql("DROP TABLE variant_events")
    for missing in (
        lambda: dv.VariantTable.forName(spark, "variant_events"),
        lambda: dv.VariantTable.forPath(spark, "/no/table"),
    ):
        with pytest.raises(TableError, match="is not a Delta table"):
            missing()


def test_plot(spark, path, tmp_path):
    """The picture has a line for each file with bounds, from its minimum to its maximum, and says how many overlap."""
    figure = dv.VariantTable.forPath(spark, path).plot("v:id")
    assert lines(figure) == [(0, 0, 9), (1, 10, 19), (2, 25, 34), (3, 30, 39)]
    assert figure.axes[0].get_title() == "v:id: bounds of 4 of 5 files, at most 2 overlap"
    figure.savefig(tmp_path / "ids.png")
    assert (tmp_path / "ids.png").read_bytes().startswith(b"\x89PNG")


def test_plot_of_strings_and_of_open_ranges(spark, path, tmp_path):
    """Strings are on the axis in their order, and a file without a maximum has a line of its own kind."""
    texts = dv.VariantTable.forPath(spark, path).plot("v:['a.b'].name")
    assert [label.get_text() for label in texts.axes[0].get_xticklabels()] == ["n0", "n1"]
    assert lines(texts) == [(0, 0, 0), (1, 0, 0), (2, 1, 1), (3, 1, 1)]
    high = chr(0x10FFFF) * 40
    for text in ("a", high):
        rows = spark.createDataFrame([(text,)], "s string").selectExpr("to_variant_object(struct(s)) AS v")
        dv.write(rows, str(tmp_path / "open"))
    figure = dv.VariantTable.forPath(spark, tmp_path / "open").plot("v:s")
    assert [len(lines.get_segments()) for lines in figure.axes[0].collections] == [1, 1]


@pytest.mark.parametrize(
    ("asked", "error"),
    [("v", InvalidPathError), ("v:a[0]", InvalidPathError), ("v:nothing", TableError), ("n:id", TableError)],
)
def test_plot_of_nothing(spark, path, asked, error):
    """A path that is invalid, leads through an array or has no bounds is an error that names it."""
    with pytest.raises(error, match=asked.replace("[", r"\[")):
        dv.VariantTable.forPath(spark, path).plot(asked)
