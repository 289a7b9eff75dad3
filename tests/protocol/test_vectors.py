"""The golden vectors of `protocol/vectors`: as this package, DuckDB and Spark read them, and as the generator writes them."""

import json
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_variant import binary, parquet, shredding
from delta_variant.errors import InvalidLayoutError, MalformedVariantError
from protocol.vectors.generate import generate
from tests.strategies import same
from tests.vectors import EXPECTED, FILES, VECTORS
from tests.versions import needs_duckdb, needs_pyarrow

ERRORS = {"layout": InvalidLayoutError, "malformed": MalformedVariantError}


def read(name):
    """The rows of column v, by the reader of its file."""
    path = FILES[name]
    if path.suffix == ".arrow":
        column = pa.ipc.open_file(path).read_all().column("v").combine_chunks()
        column = shredding.unshred(column.chunk(0) if isinstance(column, pa.ChunkedArray) else column)
    else:
        column = parquet.read_table(path).column("v").combine_chunks()
    assert column.type == shredding.UNSHREDDED
    return column.to_pylist()


def opened(path):
    """The Parquet file as it is stored, whichever extension types are registered."""
    return pq.ParquetFile(path, arrow_extensions_enabled=False)


def hexadecimal(rows):
    return [None if row is None else (row["metadata"].hex(), row["value"].hex()) for row in rows]


def decoded(rows):
    """Python values of rows in hexadecimal; the string SQL NULL for a NULL row."""
    return [
        "SQL NULL" if row is None else binary.decode(bytes.fromhex(row["metadata"]), bytes.fromhex(row["value"]))
        for row in rows
    ]


@pytest.mark.parametrize("name", EXPECTED)
def test_vector(name):
    """Reading a vector gives the expected Variants, by bytes, or by value if metadata is missing; or the expected error."""
    wanted = EXPECTED[name]
    if "error" in wanted:
        with pytest.raises(ERRORS[wanted["error"]]):
            read(name)
    elif wanted.get("compare") == "value":
        found = ["SQL NULL" if row is None else binary.decode(row["metadata"], row["value"]) for row in read(name)]
        assert len(found) == len(wanted["rows"])
        assert all(map(same, found, decoded(wanted["rows"])))
    else:
        assert hexadecimal(read(name)) == [None if row is None else (row["metadata"], row["value"]) for row in wanted["rows"]]


@pytest.mark.parametrize("name", [name for name in EXPECTED if name.startswith("encoding/malformed-")])
def test_malformed_bytes_do_not_decode(name):
    """decode and to_json refuse the malformed bytes that are refused in a column."""
    (row,) = opened(FILES[name]).read().column("v").to_pylist()
    for use in (binary.decode, binary.to_json):
        with pytest.raises(MalformedVariantError):
            use(row["metadata"], row["value"])


@pytest.mark.parametrize("name", EXPECTED)
def test_expected_bytes_are_what_they_say(name):
    """The bytes that a vector expects are well-formed and have the JSON beside them, and its keys are the documented ones."""
    wanted = EXPECTED[name]
    outcomes = [wanted.get("rows", []), [] if wanted.get("otherwise", "error") == "error" else wanted["otherwise"]]
    assert wanted["why"]
    assert wanted["source"]
    assert wanted.keys() <= {"source", "why", "error", "compare", "rows", "otherwise"}
    assert ("error" in wanted) != ("rows" in wanted)
    assert wanted.get("error", "layout") in ERRORS
    for row in (row for rows in outcomes for row in rows if row is not None and name != "shredding/invalid-4-as-printed"):
        text = binary.to_json(bytes.fromhex(row["metadata"]), bytes.fromhex(row["value"]))
        assert json.loads(text, parse_float=Decimal) == row["json"]


@needs_pyarrow(23, "has no write_time_adjusted_to_utc")
def test_the_generator_gives_these_files(tmp_path):
    """Generating again gives the same folders, expectations, schemas and values."""
    generate(tmp_path)
    made = {path.relative_to(tmp_path): path for path in tmp_path.rglob("*") if path.is_file()}
    assert made.keys() == {path.relative_to(VECTORS) for path in VECTORS.glob("*/*.*") if path.suffix not in (".py", ".pyc")}
    for name, there in made.items():
        here = VECTORS / name
        if name.suffix == ".json":
            assert here.read_bytes() == there.read_bytes()
        elif name.suffix == ".arrow":
            assert pa.ipc.open_file(here).read_all().equals(pa.ipc.open_file(there).read_all())
        else:
            files = [opened(path) for path in (here, there)]
            assert len({str(file.schema).partition("\n")[2] for file in files}) == 1
            assert len({repr(file.read().to_pylist()) for file in files}) == 1  # NaN and NaT equal nothing


# ---------------------------------------------------------------------------------------------- other implementations

FINAL = [name for name in EXPECTED if name.split("/")[0] in ("encoding", "scalars", "shredding")]
VALID = [name for name in FINAL if "rows" in EXPECTED[name] and EXPECTED[name].get("otherwise") != "error"]
DUCKDB_CANNOT = {
    "encoding/newer-primitives": "Python's datetimes have no nanoseconds",
    "scalars/timestamp-nanos": "Python's datetimes have no nanoseconds",
    "scalars/timestamp-ntz-nanos": "Python's datetimes have no nanoseconds",
    "shredding/elements-without-value": "an internal error",
    "shredding/empty-name": "not supported by it",
    "shredding/fields-without-value": "the column's group must have a value",
    "shredding/other-order-of-fields": "metadata and value must be the first fields",
    "shredding/without-value": "the column's group must have a value",
}
SPARK_CANNOT = {
    "scalars/time": "Variants have no times in Spark 4.2",
    "scalars/timestamp-nanos": "nor nanoseconds",
    "scalars/timestamp-ntz-nanos": "nor nanoseconds",
    "scalars/uuid": "nor UUIDs",
    "shredding/event-missing": "missing where a value is required is an error",
    "shredding/missing-at-the-top": "missing where a value is required is an error",
    "shredding/missing-element": "missing where a value is required is an error",
}


def plain(value):
    """A Python value as DuckDB gives it: one float for both, and None for NULL and null."""
    if isinstance(value, dict):
        return {key: plain(child) for key, child in value.items()}
    if isinstance(value, list):
        return [plain(child) for child in value]
    return None if isinstance(value, str) and value == "SQL NULL" else float(value) if isinstance(value, np.float32) else value


@needs_duckdb(2, "does not read empty dictionaries and arrays of Variants")
@pytest.mark.parametrize("name", [name for name in VALID if name not in DUCKDB_CANNOT])
def test_duckdb_agrees(name):
    """DuckDB reads from every valid file what the vector expects."""
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        found = connection.execute("select v from read_parquet(?)", [str(FILES[name])]).fetchall()
    wanted = plain(decoded(EXPECTED[name]["rows"]))
    assert len(found) == len(wanted)
    assert all(same(value, one) for (value,), one in zip(found, wanted, strict=True))


@pytest.mark.spark
def test_spark_agrees(spark):
    """Spark reads from every valid file what the vector expects, from all of them in one query."""
    names = [name for name in VALID if name not in SPARK_CANNOT]
    frame = spark.read.parquet(*(str(FILES[name]) for name in names))
    rows = frame.selectExpr("v", "_metadata.file_path AS file", "_metadata.row_index AS row").collect()
    found = {name: [] for name in names}
    for row in sorted(rows, key=lambda row: row.row):
        found["/".join(row.file.removesuffix(".parquet").split("/")[-2:])].append(row.v)
    for name, variants in found.items():
        values = ["SQL NULL" if v is None else binary.decode(bytes(v.metadata), bytes(v.value)) for v in variants]
        wanted = decoded(EXPECTED[name]["rows"])
        assert len(values) == len(wanted), name
        assert all(map(same, values, wanted)), name
