"""Late materialization: rows that say where their Variants are, and the Variants that tasks read there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import delta_variant as dv
from delta_variant.errors import DamagedFileError, TableError
from delta_variant.parquet.files import FileWriter
from delta_variant.shredding.reshredder import reshred
from delta_variant.storage import Storage
from delta_variant.writer import late
from delta_variant.writer.physical_columns import is_shredded, unshredded
from tests.strategies import column, trees, values
from tests.support import SOAK

NAMES = ("a", "b=1/b c", "c%20é")
"""Files of a table: below a directory of a partition, and with characters that a URI encodes."""
ROWS = 40
LEAST_BYTES = "spark.delta_variant.lateMaterializationBytes"


def places(rows) -> pa.RecordBatch:
    """A batch as Spark sends it. rows: for each (URI, index of the row), or a Variant."""
    given = [(None, None, row) if not isinstance(row, tuple) else (*row, "SQL NULL") for row in rows]
    variants = column([variant for _, _, variant in given])
    variants = pa.StructArray.from_arrays(  # with null children where it is null
        [pa.array([row and row[name] for row in variants.to_pylist()], pa.binary()) for name in ("value", "metadata")],
        ["value", "metadata"],
        mask=variants.is_null(),
    )
    files, numbers = pa.array([file for file, _, _ in given], pa.string()), pa.array([row for _, row, _ in given], pa.int64())
    array = pa.StructArray.from_arrays([files, numbers, variants], ["file", "row", "variant"])
    return pa.record_batch([pa.array(range(len(rows))), array], ["number", "v"])


def read(folder, batches, ids=()) -> pa.Table:
    """The rows of all batches, with their Variants. A column that is shredded as in a file has the columns of its Variants."""
    found = []
    for batch in late.materialized(iter(batches), Storage.of(str(folder)), {"v": ids}):
        variants = unshredded(batch.column("v"))
        if is_shredded(batch.column("v")):
            for schema in (pa.int64(), dv.schema.parse("a bigint"), dv.schema.parse("a string, b array<bigint>, c bigint")):
                shredded = reshred(batch.column("v"), schema)
                shredded.validate(full=True)
                assert shredded.to_pylist() == dv.shredding.shred(variants, schema).to_pylist()
        found.append(batch.set_column(1, "v", variants))
    return pa.Table.from_batches(found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("late")


def uri(folder, name: str) -> str:
    return f"file://{quote(f'{folder}/{name}.parquet')}"


def write(folder, name: str, array: pa.Array, shred=None, row_group_rows: int = 7) -> None:
    """A file with many row groups."""
    path = folder / f"{name}.parquet"
    path.parent.mkdir(exist_ok=True)
    array = dv.shredding.shred(array, shred) if shred else array
    batch = pa.record_batch([pa.array(range(len(array))), array], ["id", "v"])
    with FileWriter(
        path, batch.schema, variants={("v",)}, row_group_bytes=max(1, batch.nbytes * row_group_rows // ROWS)
    ) as file:
        for start in range(0, len(array), row_group_rows):
            file.write(batch.slice(start, row_group_rows))


variant = trees(st.one_of(st.none(), st.booleans(), st.integers(-100, 100), st.text(max_size=5)))


@pytest.fixture(params=[1, late._LEAST_ROWS], ids=["short runs", "long runs"])
def runs(request, monkeypatch):
    """The least mean length of runs of rows in one shredding schema that stay shredded."""
    monkeypatch.setattr(late, "_LEAST_ROWS", request.param)


@pytest.mark.usefixtures("runs")
@settings(max_examples=40 if SOAK else 15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_variants_of_any_rows(folder, data):
    """Rows of several files, in any order and in any batches, and beside Variants that are there, have the Variants of their
    files, whatever the shredding schema of a file."""
    known = {}
    for name in NAMES:
        documents = data.draw(st.lists(st.one_of(variant, st.just("SQL NULL")), min_size=1, max_size=ROWS))
        schema = data.draw(st.sampled_from([None, "a bigint", "a string, b array<bigint>", "variant"]))
        write(folder, name, column(documents), schema)
        known |= {(uri(folder, name), row): document for row, document in enumerate(documents)}
    rows = data.draw(st.lists(st.one_of(st.sampled_from(sorted(known)), variant, st.just("SQL NULL")), min_size=1, max_size=90))
    if data.draw(st.booleans()):
        rows = [row for row in rows if isinstance(row, tuple)] or rows
    if data.draw(st.booleans()):
        rows.sort(key=str)
    cut = data.draw(st.integers(0, len(rows)))
    table = read(folder, [places(part) for part in (rows[:cut], rows[cut:]) if part])
    expected = [known[row] if isinstance(row, tuple) else row for row in rows]
    assert values(table["v"].combine_chunks()) == values(column(expected))
    assert table["number"].to_pylist() == [*range(cut), *range(len(rows) - cut)]


def test_columns_that_stay_shredded(folder, monkeypatch):
    """Rows of a file stay in its shredding schema as long as they are in order and one in four has no residual at most."""
    monkeypatch.setattr(late, "_LEAST_ROWS", 1)
    documents = [{"a": n} for n in range(ROWS)]
    for name, rows, schema in (
        ("first", documents, "a bigint"),
        ("second", [*documents[:-4], *["x"] * 4], "a bigint, b string"),
        ("third", [*documents[:8], *["x"] * 32], "a bigint"),
    ):
        write(folder, name, column(rows), schema, row_group_rows=ROWS)
    rows = [(uri(folder, name), row) for name in ("first", "second", "third") for row in range(ROWS)]
    storage = Storage.of(str(folder))
    for order, expected in ((rows, [True, True, False]), (rows[::-1], [False])):
        parts = list(late.materialized(iter([places(order)]), storage, {"v": ()}))
        assert [is_shredded(part["v"]) for part in parts] == expected
    assert values(read(folder, [places(rows)])["v"].combine_chunks()) == [
        *documents, *documents[:-4], *["x"] * 4, *documents[:8], *["x"] * 32
    ]  # fmt: skip


def test_a_column_that_a_file_lacks(folder):
    """Rows of a file that was written before the column was there are NULL."""
    write(folder, "older", column([1, 2]))
    table = dv.parquet.read_table(folder / "older.parquet").drop_columns(["v"])
    dv.parquet.write_table(table, folder / "older.parquet")
    assert read(folder, [places([(uri(folder, "older"), 0), {"a": 1}, (uri(folder, "older"), 1)])])["v"].null_count == 2


def test_a_column_in_another_case(folder):
    """A file that has the column in another case was read by Spark, which by default takes it for the same."""
    write(folder, "upper", column([1, 2]))
    table = dv.parquet.read_table(folder / "upper.parquet").rename_columns(["id", "V"])
    dv.parquet.write_table(table, folder / "upper.parquet")
    assert values(read(folder, [places([(uri(folder, "upper"), 1)])])["v"].combine_chunks()) == [2]


def test_many_columns_of_many_files(folder):
    """With several columns, a slice has rows of no more files than can be open, and each file is opened once."""
    names = [f"many{number}" for number in range(20)]
    for name in names:
        array = column([name, name])
        batch = pa.record_batch([array, array], ["v", "w"])
        with FileWriter(folder / f"{name}.parquet", batch.schema, variants={("v",), ("w",)}) as file:
            file.write(batch)
    both = places([(uri(folder, name), row) for name in names for row in (0, 1)])
    both = both.append_column("w", both.column("v"))
    parts = list(late.materialized(iter([both]), Storage.of(str(folder)), {"v": (), "w": ()}))
    assert [part.num_rows for part in parts] == [16, 16, 8]
    for name in ("v", "w"):
        assert [value for part in parts for value in values(part[name])] == [name for name in names for _ in range(2)]


def test_files_that_are_read_by_id(folder):
    """With field ids, a column is found by its id and not by its name."""
    array = column([1, 2])
    schema = pa.schema([pa.field("x", array.type, metadata={b"PARQUET:field_id": b"7"}), ("v", pa.int64())])
    with FileWriter(folder / "ids.parquet", schema, variants={("x",)}) as file:
        file.write(pa.record_batch([array, pa.array([0, 0])], schema=schema))
    table = read(folder, [places([(uri(folder, "ids"), 1)])], ids=(7,))
    assert values(table["v"].combine_chunks()) == values(column([2]))


def test_slices_follow_the_size_of_variants(folder, monkeypatch):
    """The rows of a batch come in parts of about `SLICE_BYTES`, also if later Variants are larger; a row is never divided."""
    monkeypatch.setattr(late, "SLICE_BYTES", 5000)
    monkeypatch.setattr(late, "_MOST_BYTES", 20_000)
    documents = ["x" * 100] * ROWS + ["x" * 1000] * ROWS + ["x" * 30_000] * 3
    write(folder, "growing", column(documents))
    rows = [(uri(folder, "growing"), row) for row in range(len(documents))]
    batches = iter([places(rows[:ROWS]), places(rows[ROWS:])])
    parts = list(late.materialized(batches, Storage.of(str(folder)), {"v": ()}))
    assert [value for part in parts for value in values(part["v"])] == documents
    assert all(part.nbytes < 20_000 or part.num_rows == 1 for part in parts)
    assert len(parts) < ROWS


def test_each_row_group_is_read_once(folder, monkeypatch):
    """Rows in the order of the file read each row group once, and leave out those without rows."""
    read_groups = []
    batches = dv.parquet.columns.Columns.batches

    def counted(self, numbers, row_groups=None, **options):
        for number in row_groups:
            read_groups.append(number)
            yield from batches(self, numbers, [number], **options)

    monkeypatch.setattr(dv.parquet.columns.Columns, "batches", counted)
    write(folder, "groups", column(list(range(ROWS))), row_group_rows=5)
    wanted = [*range(12), *range(31, ROWS)]
    rows = [(uri(folder, "groups"), row) for row in wanted]
    table = pa.concat_tables([read(folder, [places(rows[:9]), places(rows[9:])])])
    assert values(table["v"].combine_chunks()) == values(column(wanted))
    assert read_groups == [0, 1, 2, 6, 7]


def test_errors(folder):
    """A damaged file, a file that is gone and a row that a file does not have are errors."""
    write(folder, "damaged", column([1, 2]))
    path = folder / "damaged.parquet"
    row = (uri(folder, "damaged"), 5)
    with pytest.raises(TableError, match="no row 5"):
        read(folder, [places([row])])
    path.write_bytes(path.read_bytes()[:-20] + bytes(20))
    with pytest.raises(DamagedFileError):
        read(folder, [places([row])])
    path.unlink()
    with pytest.raises(FileNotFoundError):
        read(folder, [places([row])])


STATEMENTS = {
    "DELETE FROM {t} WHERE id % 3 = 0": "place",
    "DELETE FROM {t} WHERE v:n::bigint = 5": "place and column",
    "UPDATE {t} SET id = id + 100 WHERE id % 3 = 0": "place",
    "UPDATE {t} SET v = parse_json('[1]') WHERE id % 3 = 0": "place",
    "MERGE INTO {t} t USING (SELECT 3 id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = -1": "place",
    "OPTIMIZE {t}": "place",
    "UPDATE {t} SET v = w, w = v WHERE id % 3 = 0": "column",
    "UPDATE {t} SET w = v, v = NULL WHERE id % 3 = 0": "place and column",
    "UPDATE {t} SET v = CASE WHEN id % 3 = 0 THEN w WHEN id % 3 = 1 THEN v END": "place and column",
    "UPDATE {t} SET v = to_variant_object(named_struct('was', v)) WHERE id % 3 = 0": "place and column",
    "MERGE INTO {t} t USING (SELECT 3 id, parse_json('1') v) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v "
    "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)": "column",
}
"""What Spark's scan has: the place of a row, or a VARIANT column, or both."""


@pytest.fixture(scope="module")
def sessions(spark):
    sessions = {"plain": spark.newSession(), "late": spark.newSession()}
    sessions["late"].conf.set(LEAST_BYTES, "0")
    dv.enable(sessions["late"])
    yield sessions
    dv.disable(sessions["late"])


def run(session, table: str, statement: str, changes: Sequence[str] = ()) -> tuple[str, list]:
    """Runs a statement on a new table that was changed. Returns what Spark's scan had of VARIANT columns, and the rows."""
    store = session._jsparkSession.sharedState().statusStore()
    document = "to_variant_object(named_struct('n', id, 's', repeat('x', int(id) % 5))) v"
    rows = session.range(0, 60, 1, 2).selectExpr("id", document, "parse_json(string(-id)) w")
    rows.write.format("delta").save(table)
    for change in changes:
        session.sql(change.format(t=f"delta.`{table}`"))
    bus = session.sparkContext._jsc.sc().listenerBus()
    bus.waitUntilEmpty()
    earlier = store.executionsList().last().executionId()
    session.sql(statement.format(t=f"delta.`{table}`")).collect()
    bus.waitUntilEmpty()
    executions, plans = store.executionsList().reverseIterator(), ""  # the store drops the oldest ones
    while (execution := executions.next()).executionId() > earlier:
        plans += execution.physicalPlanDescription()
    places = re.findall("ReadSchema: (.*_tmp_metadata_row_index.*)", plans)
    scan = "column" if not places else "place and column" if any("v:struct" in place for place in places) else "place"
    return scan, sorted(session.sql(f"SELECT id, to_json(v), to_json(w) FROM delta.`{table}`").collect())


@pytest.mark.spark
@pytest.mark.parametrize("statement", STATEMENTS)
def test_statements(sessions, tmp_path, statement):
    """Spark's scan has the place of a row where a statement only copies its Variant, if rows are not shuffled. The rows that it
    leaves are those of a plain session."""
    (scan, rows), (_, expected) = (run(sessions[kind], str(tmp_path / kind), statement) for kind in ("late", "plain"))
    assert scan == STATEMENTS[statement]
    assert rows == expected


@pytest.mark.spark
def test_checks_of_mapped_columns(sessions, tmp_path):
    """With column mapping, NOT NULL and CHECK constraints know the columns of rows by their logical names."""
    changes = (
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "ALTER TABLE {t} RENAME COLUMN id TO key",
        "ALTER TABLE {t} ADD COLUMNS (id BIGINT)",
        "UPDATE {t} SET id = key",
        "ALTER TABLE {t} ADD CONSTRAINT small CHECK (id + key < 1000)",
    )
    statement = "UPDATE {t} SET id = id + 100 WHERE key % 3 = 0"
    (scan, rows), (_, expected) = (run(sessions[kind], str(tmp_path / kind), statement, changes) for kind in ("late", "plain"))
    assert (scan, rows) == ("place", expected)


@pytest.mark.spark
def test_joins_that_shuffle(sessions, tmp_path):
    """Rows of a sort-merge join bring their Variants: the planner adds its shuffles last."""
    session = sessions["late"]
    session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    statement = "MERGE INTO {t} t USING (SELECT id FROM range(3, 5)) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = -s.id"
    scan, rows = run(session, str(tmp_path / "t"), statement)
    session.conf.unset("spark.sql.autoBroadcastJoinThreshold")
    assert (scan, len(rows)) == ("column", 60)


@pytest.mark.spark
def test_small_statements(sessions, tmp_path):
    """Files below the size that a setting names are read by Spark's scan; and so are all if the setting is no size."""
    statement = "DELETE FROM {t} WHERE id % 3 = 0"
    session = sessions["late"]
    for value in ("1m", "large"):
        session.conf.set(LEAST_BYTES, value)
        scan, rows = run(session, str(tmp_path / value), statement)
        assert (scan, len(rows)) == ("column", 40)
    session.conf.set(LEAST_BYTES, "0")
