"""Statistics in footers and page indexes, as readers use them: whatever they rule out, every matching row is found.

Oracles: Spark's vectorized and its row-based reader, DuckDB and pyarrow, against Python's own comparisons.
"""

from __future__ import annotations

import math

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from delta_variant import jvm, shredding
from delta_variant.parquet import FileWriter

INF, NAN = math.inf, math.nan
PAGE = 20_000  # rows; pyarrow's default
GROUPS = [
    [*np.arange(100) * 0.25 + 100, NAN],  # the sample that decides the encoding of column p: no value twice
    [-0.0, -0.0, None],
    [0.0, 0.0, 0.0],
    [1.5, NAN, 2.5],
    [NAN, NAN, None],
    [INF, -INF, None],
    [None, None],
    [-1.5, -0.0, -0.5],
    [3.5, 4.5, 5.5],
    [1.0] * PAGE + [2.0, NAN] * (PAGE // 2) + [7.0] * PAGE,
    [1.0] * PAGE + [-0.0] * PAGE + [None] * PAGE + [9.0] * 3,
]  # fmt: skip
COLUMNS = ("d", "p", "f", "v.typed_value.d.typed_value", "v.typed_value.f.typed_value")
SCHEMA = """d double, p double, f float, v struct<metadata: binary, value: binary, typed_value: struct<
    d: struct<value: binary, typed_value: double>, f: struct<value: binary, typed_value: float>>>"""
PREDICATES = [
    (">", 6.0), ("=", -0.0), ("=", 0.0), ("in", (-0.0, NAN)), ("<=", -0.0), ("is not null", None),
    (">=", 0.0), ("=", NAN), (">", INF), ("<", -INF), ("=", 7.0), ("<>", 1.0), ("is null", None),
]  # fmt: skip
EVERYTHING = [(name, *one) for name in COLUMNS[:3] for one in PREDICATES]


def batch(values: list, *, plain: bool) -> pa.RecordBatch:
    """The values as ordinary columns and in a shredded VARIANT; with `plain`, d and f repeat one value, and p does not."""
    doubles = pa.array(values, pa.float64())
    floats = doubles.cast(pa.float32())
    storage = shredding.storage_type(pa.struct([("d", pa.float64()), ("f", pa.float32())]))
    missing = pa.nulls(len(values), pa.binary())
    fields = storage.field("typed_value").type
    typed = [
        pa.StructArray.from_arrays([missing, x], fields=list(f.type)) for f, x in zip(fields, (doubles, floats), strict=True)
    ]
    metadata = pa.array([bytes([0x11, 2, 0, 1, 2]) + b"df"] * len(values), pa.binary())
    v = pa.StructArray.from_arrays(
        [metadata, missing, pa.StructArray.from_arrays(typed, fields=list(fields))], fields=list(storage)
    )
    repeated = pa.array([100.0] * len(values)) if plain else doubles
    return pa.RecordBatch.from_arrays([repeated, doubles, repeated.cast(pa.float32()), v], names=["d", "p", "f", "v"])


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("floats") / "floats.parquet"
    with FileWriter(path, batch([], plain=False).schema, variants={("v",)}) as writer:
        for number, values in enumerate(GROUPS):
            writer.write(batch(values, plain=number == 0))
            writer._write_row_group()
    return path


def column_values(name: str) -> list:
    first = [100.0] * len(GROUPS[0]) if name in ("d", "f") else GROUPS[0]
    return [x for values in (first, *GROUPS[1:]) for x in values]


def holds(value, op, constant) -> bool:
    """Spark's order of doubles: NaN equals itself and is the largest, and the zeros are equal."""
    if value is None or op in ("is null", "is not null"):
        return (value is None) == (op == "is null")
    if op == "in":
        return any(holds(value, "=", one) for one in constant)
    a, b = ((math.isnan(x), 0 if math.isnan(x) else x) for x in (value, constant))
    return {"=": a == b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "<>": a != b}[op]


def sql(op, constant, literal) -> str:
    if constant is None:
        return op
    texts = [literal(x) for x in (constant if op == "in" else [constant])]
    return f"{op} ({', '.join(texts)})" if op == "in" else f"{op} {texts[0]}"


def count(name, op, constant) -> int:
    return sum(holds(value, op, constant) for value in column_values(name))


def test_the_file_has_what_is_to_be_tested(file):
    """One column has dictionaries and one has not; only chunks without a NaN have bounds and a column index (F5)."""
    metadata = pq.read_metadata(file)
    assert metadata.num_row_groups == len(GROUPS)
    for number in range(metadata.num_row_groups):
        columns = {c.path_in_schema: c for c in map(metadata.row_group(number).column, range(metadata.num_columns))}
        assert columns["d"].has_dictionary_page
        assert not columns["p"].has_dictionary_page
        for name in COLUMNS:
            values = np.array([GROUPS[number] if number or name not in ("d", "f") else [100.0]], np.float64)
            known = values[~np.isnan(values)]
            has_nan = NAN in [x for x in (GROUPS[number] if number or name not in ("d", "f") else []) if x is not None]
            chunk = columns[name]
            assert chunk.statistics.null_count == sum(x is None for x in GROUPS[number])
            assert chunk.has_offset_index
            assert chunk.has_column_index == (not has_nan)
            assert chunk.statistics.has_min_max == (not has_nan and len(known) > 0)
            if chunk.statistics.has_min_max:
                assert (chunk.statistics.min, chunk.statistics.max) == (known.min(), known.max())


@pytest.mark.spark
@pytest.mark.parametrize(("vectorized", "few"), [("true", 6), ("false", 2)])
def test_spark_finds_every_row(spark, file, vectorized, few):
    """Comparisons that Spark pushes down to row groups, dictionaries and pages find every matching row (F5)."""
    asked = [(name, *one) for name in COLUMNS for one in (PREDICATES[:few] if name in ("d", "p") else PREDICATES[:2])]

    def literal(x: float) -> str:
        return f"double('{x}')"

    queries = (f"SELECT {i} n, count(*) c FROM floats WHERE {one[0]} {sql(*one[1:], literal)}" for i, one in enumerate(asked))
    reading = {
        "spark.sql.parquet.enableVectorizedReader": vectorized,
        "spark.sql.parquet.ignoreVariantAnnotation": "true",
        "spark.sql.codegen.wholeStage": "false",  # compiling the scans takes longer than running them
    }
    with jvm.settings(spark, reading):
        rows = spark.read.schema(SCHEMA).parquet(str(file))
        rows.createOrReplaceTempView("floats")
        plan = rows.where("v.typed_value.d.typed_value = 1.0d")._jdf.queryExecution().toString()
        assert "EqualTo(v.typed_value.d.typed_value,1.0)" in plan
        found = spark.sql(" UNION ALL ".join(queries)).collect()
    counts = [row.c for row in sorted(found)]
    assert list(zip(asked, counts, strict=True)) == [(one, count(*one)) for one in asked]


@pytest.mark.spark
def test_parquet_finds_the_page_indexes(spark, file):
    """parquet-mr finds the page indexes by the edited footer: pages of 20,000 rows, with bounds if there is no NaN (F5)."""
    hadoop = spark._jvm.org.apache.hadoop
    source = spark._jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(
        hadoop.fs.Path(str(file)), hadoop.conf.Configuration()
    )
    reader = spark._jvm.org.apache.parquet.hadoop.ParquetFileReader.open(source)
    try:
        for number in (len(GROUPS) - 2, len(GROUPS) - 1):
            for chunk in reader.getFooter().getBlocks()[number].getColumns():
                if chunk.getPath().toDotString() not in COLUMNS:
                    continue
                pages = reader.readOffsetIndex(chunk)
                starts = [pages.getFirstRowIndex(page) for page in range(pages.getPageCount())]
                assert starts == [PAGE * page for page in range(-(-len(GROUPS[number]) // PAGE))]
                index = reader.readColumnIndex(chunk)
                if number == len(GROUPS) - 2:
                    assert index is None
                    continue
                assert list(index.getNullPages()) == [False, False, True, False]
                size = 4 if chunk.getPath().toDotString() in ("f", "v.typed_value.f.typed_value") else 8
                for bounds in (index.getMinValues(), index.getMaxValues()):
                    assert [bound.remaining() for bound in bounds] == [size, size, 0, size]
    finally:
        reader.close()


def test_duckdb_and_pyarrow_find_every_row(file):
    """The comparisons find every matching row in DuckDB and pyarrow, which use the statistics in their own ways (F5)."""

    def literal(x: float) -> str:
        return f"'{x}'::double"

    def ask(name, op, constant):
        return f"SELECT count(*) FROM '{file}' WHERE {name} {sql(op, constant, literal)}"

    counts = duckdb.sql(" UNION ALL ".join(f"SELECT ({ask(*one)})" for one in EVERYTHING)).fetchall()
    found = [(one, n) for one, (n,) in zip(EVERYTHING, counts, strict=True)]
    assert found == [(one, count(*one)) for one in EVERYTHING]
    table = ds.dataset(file, format="parquet")
    comparisons = {
        "=": pc.equal,
        "<": pc.less,
        "<=": pc.less_equal,
        ">": pc.greater,
        ">=": pc.greater_equal,
        "<>": pc.not_equal,
    }
    for name, op, constant in EVERYTHING:
        if op in comparisons and not math.isnan(constant):  # pyarrow does not order NaN as Spark does
            wanted = pc.sum(comparisons[op](pa.array(column_values(name), pa.float64()), constant)).as_py() or 0
            assert table.count_rows(filter=comparisons[op](pc.field(name), pa.scalar(constant))) == wanted, (name, op, constant)
