"""The index of values without Spark: hashes, filters, the files of the index, and the filters of one data file."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_variant import parquet, schema, shredding
from delta_variant.membership import ribbon, sidecars
from delta_variant.membership.data_files import index_file
from delta_variant.membership.plan import DataFile, IndexedColumn, IndexPlan
from delta_variant.membership.sidecars import Entry
from delta_variant.membership.values import Values, hash_numbers, hash_strings
from delta_variant.storage import Storage
from tests.strategies import DECIMALS, INTEGERS, KEYS, SPARK_VARIANTS, TEXTS, column

V, TABLE = ("v",), "f3a0c1de"
XXH64 = {
    "": 0xEF46DB3751D8E999,
    "a": 0xD24EC4F1A98C6E5B,
    "abc": 0x44BC2CF5AD770999,
    "Nobody inspects the spammish repetition": 0xFBCEA83C8A378BF1,
}


def test_hashes_of_strings():
    """The hash of a string is XXH64 of its bytes with the seed 0, whatever stands before it in the array (I2)."""
    for kind in (pa.string(), pa.large_string()):
        array = pa.array(["x", *XXH64], kind).slice(1)
        assert hash_strings(array).tolist() == list(XXH64.values())
    assert hash_strings(pa.array([b"\xff"], pa.binary()).view(pa.string())) is None


@given(st.lists(DECIMALS | INTEGERS.map(Decimal), min_size=1, max_size=8))
def test_hashes_of_numbers(numbers):
    """Numbers have the same hash if they are equal, and only then, whatever their type and scale (I2)."""
    seen: dict[int, Decimal] = {}
    for number in numbers:
        _, digits, exponent = number.as_tuple()
        hashes = set()
        for more in (0, 1, 3):
            scale = -exponent + more
            precision = max(len(digits) + more, scale)
            for make, most in ((pa.decimal32, 9), (pa.decimal64, 18), (pa.decimal128, 38), (pa.decimal256, 76)):
                if scale >= 0 and precision <= min(most, 38):
                    hashes.add(int(hash_numbers(pa.array([number], make(precision, scale)))[0]))
        if number == int(number) and abs(number) < 2**63:
            kinds = [
                pa.int64(),
                *[kind for kind, bits in ((pa.int8(), 7), (pa.int16(), 15), (pa.int32(), 31)) if abs(number) < 2**bits],
            ]
            hashes |= {int(hash_numbers(pa.array([int(number)], kind))[0]) for kind in kinds}
        assert len(hashes) <= 1
        for found in hashes:
            assert seen.setdefault(found, number) == number


def test_scales_of_numbers():
    """The scale is the number of decimal places that the values need (I2)."""
    for texts, scale in ((["5.00", "-7.0"], 0), (["5.00", "5.10"], 1), (["0.001", "5"], 3), (["0." + "1" * 38], 38)):
        values = Values("exact")
        assert values.add(pa.array([None, *map(Decimal, texts)]))
        assert values.scale == scale


@settings(max_examples=50)
@given(st.sets(st.integers(0, 2**64 - 1), max_size=300), st.integers(0, 2000), st.integers(2, 20))
def test_no_false_negatives(hashes, size, most):
    """A filter contains all that it was built of, and takes no more than its room (I3)."""
    distinct = np.array(sorted(hashes), np.uint64)
    shape = ribbon.shape(len(distinct), size, most)
    if shape is None:
        assert size < 2 * 8 * (len(distinct) * 1.1 / 64 + 1)
        return
    data = ribbon.build(distinct, *shape)
    assert len(data) <= size
    assert ribbon.contains(data, shape[0], distinct).all()
    assert ribbon.build(distinct, *shape) == data


@pytest.mark.parametrize("bits", [2.6, 3.0, 5.5, 7.9, 11.0])
@pytest.mark.parametrize(("count", "at_most"), [(300, 2.0), (2_000, 1.2), (20_000, 1.2)])
def test_false_positives(count, at_most, bits):
    """As many foreign values pass as the theory has it, half of them in each column, or a fifth more (I3)."""
    hashes = np.random.default_rng(count).integers(0, 2**64, count + 2_000_000, np.uint64)
    words, total = ribbon.shape(count, int(count * bits / 8), 60)
    data = ribbon.build(hashes[:count], words, total)
    found = ribbon.contains(data, words, hashes[count:]).mean()
    columns, longer = divmod(total, words)
    share = max(0, 64 * longer - 63) / (64 * words - 63)
    expected = (1 - share / 2) / 2**columns
    assert found < at_most * expected + 3 * (expected / 2_000_000) ** 0.5
    assert found > 0.9 * expected - 3 * (expected / 2_000_000) ** 0.5
    assert 8 * len(data) / count <= bits


# ---- the files of the index ----------------------------------------------------------------------------------------------


def entries(count=20):
    hashes = np.random.default_rng(1).integers(0, 2**64, 100, np.uint64)
    data = ribbon.build(hashes, *ribbon.shape(100, 150, 20))
    return [Entry(DataFile(f"part-{n}.parquet", n, 1 << n), 0.01, "exact", 2, 100, 2, data) for n in range(count)]


def written(folder, table=TABLE, keys=("a", "b"), given=None):
    """Writes a file of the index, and returns its path."""
    location = Storage.of(str(folder))
    before = set(folder.rglob("*.parquet"))
    size = sidecars.Sidecars(location, location.open(), table).write((V, keys), given or entries())
    [path] = set(folder.rglob("*.parquet")) - before
    assert path.stat().st_size == size
    return path


def read(folder, keys=("a", "b"), table=TABLE, **arguments):
    location = Storage.of(str(folder))
    return list(sidecars.Sidecars(location, location.open(), table).entries((V, keys), **arguments))


def test_entries_come_back(tmp_path):
    """What is written is read, with or without filters; another path has none of it (I1)."""
    assert read(tmp_path) == []
    written(tmp_path)
    assert read(tmp_path, filters=True) == entries()
    assert [entry.filter for entry in read(tmp_path)] == [None] * 20
    assert read(tmp_path, ("a",)) == []


@pytest.mark.parametrize("damage", range(40))
def test_damaged_files(tmp_path, damage):
    """A file of the index that is cut or changed anywhere has its entries as they were, or none (I1)."""
    path = written(tmp_path)
    data = bytearray(path.read_bytes())
    at = len(data) * damage // 40
    path.write_bytes(data[:at] if damage % 2 else data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
    assert read(tmp_path, filters=True) in ([], entries())


CHANGES = {
    b"delta_variant.index": b"1",
    b"delta_variant.table": b"another",
    b"delta_variant.path": sidecars.path_text(V, ("a",)).encode(),
}


def test_files_of_other_versions(tmp_path):
    """A file of another version, of another table, and one of another path, are left out (I1)."""
    path = written(tmp_path)
    table = pq.read_table(path)
    for key, value in CHANGES.items():
        pq.write_table(table.replace_schema_metadata({**table.schema.metadata, key: value}), path)
        assert read(tmp_path) == []
    pq.write_table(table, path)
    assert read(tmp_path, filters=True) == entries()
    assert read(tmp_path, table="another") == []


def test_entries_without_their_fields(tmp_path):
    """An entry that lacks a number is left out (I1)."""
    path = written(tmp_path)
    table = pq.read_table(path)
    for name in ("scale", "words", "size"):
        at = table.schema.get_field_index(name)
        nulls = pc.if_else(pa.array([n == 7 for n in range(20)]), None, table[name])
        pq.write_table(table.set_column(at, table.schema.field(name), nulls), path)
        assert read(tmp_path, filters=True) == [entry for n, entry in enumerate(entries()) if n != 7]


@pytest.mark.parametrize("many", [0, 16])
def test_outdated_files_are_deleted(tmp_path, monkeypatch, many):
    """Files of other tables and of older versions are deleted a day after they were written, and no others (I1)."""
    monkeypatch.setattr(sidecars, "MANY", many)
    location, given = Storage.of(str(tmp_path)), entries()
    mine, theirs, young = written(tmp_path), written(tmp_path, "theirs"), written(tmp_path, "young")
    damaged, newer, older = (written(tmp_path) for _ in range(3))
    damaged.write_bytes(b"PAR1")
    for path, version in ((newer, b"3"), (older, b"1")):
        table = pq.read_table(path)
        columns = table if path is newer else table.drop_columns(["time"])
        pq.write_table(columns.replace_schema_metadata({**table.schema.metadata, b"delta_variant.index": version}), path)
    for path in {mine, theirs, damaged, newer, older}:
        os.utime(path, (0, 0))
    sidecars.Sidecars(location, location.open(), TABLE).compact((V, ("a", "b")), {entry.file for entry in given})
    left = set(tmp_path.rglob("*.parquet"))
    assert not left & {theirs, older}
    assert left >= {young, damaged, newer}
    assert len(left) == 4
    assert (mine in left) == (many > 0)
    assert read(tmp_path, filters=True) == given


def test_put_together(tmp_path, monkeypatch):
    """Of the entries of a data file the largest stays; those of another file of its name, size or time go (I1)."""
    monkeypatch.setattr(sidecars, "MANY", 1)
    location, given = Storage.of(str(tmp_path)), entries(4)
    small = [replace(entry, kind="small", filter=None) for entry in given]
    other = [replace(entry, file=entry.file._replace(time=0)) for entry in given]
    other += [replace(entry, file=entry.file._replace(size=99)) for entry in given]
    for each in (small, given[:3], other):
        os.utime(written(tmp_path, given=each), (0, 0))
    sidecars.Sidecars(location, location.open(), TABLE).compact((V, ("a", "b")), {entry.file for entry in given})
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
    assert sorted(read(tmp_path, filters=True), key=lambda entry: entry.file) == [*given[:3], small[3]]


# ---- one data file -------------------------------------------------------------------------------------------------------


def indexed(array, *keys, shredded=None, budget=1.0, size=1_000_000, group_bytes=1 << 20):
    """The entries of a file with the column v, by path. keys: those of the paths."""
    batch = pa.record_batch([array if shredded is None else shredding.shred(array, shredded)], ["v"])
    sink = io.BytesIO()
    given = {"variants": [V], "metadata": {"org.apache.spark.version": "4.2.0"}, "row_group_bytes": group_bytes}
    with parquet.FileWriter(sink, batch.schema, **given) as writer:
        writer.write(batch)
    plan = IndexPlan(Storage.of("/"), TABLE, (IndexedColumn(V, (), keys),), budget, 20)
    found = index_file(io.BytesIO(sink.getvalue()), DataFile("f", size, 0), plan, {(V, path) for path in keys})
    return {path: found[V, path] for path in keys}


def at(document, keys):
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def hash_of(value):
    if isinstance(value, str):
        return hash_strings(pa.array([value]))
    return hash_numbers(pa.array([Decimal(value)]))


def is_kind(value, kind):
    return isinstance(value, str) if kind == "string" else isinstance(value, int | Decimal) and not isinstance(value, bool)


@settings(max_examples=60)
@given(
    st.lists(st.dictionaries(KEYS, TEXTS | INTEGERS | DECIMALS | SPARK_VARIANTS, max_size=3), min_size=1, max_size=12),
    st.booleans(),
)
def test_every_value_is_in_the_filter(documents, is_shredded):
    """A filter has every value of its path, and there is one only if all values are strings, or all are exact numbers (I2)."""
    array = column(documents)
    shape = schema.infer(array) if is_shredded else None
    paths = [("a",), ("b",), ("id",), ("a", "b")]
    for keys, entry in indexed(array, *paths, shredded=shape).items():
        values = [value for value in (at(document, keys) for document in documents) if value is not None]
        if entry.kind == "mixed":
            continue
        assert all(is_kind(value, entry.kind) for value in values), (keys, entry)
        for value in values:
            assert ribbon.contains(entry.filter, entry.words, hash_of(value)).all()
            assert entry.kind == "string" or -Decimal(value).normalize().as_tuple().exponent <= entry.scale


MIXED = [
    [{"a": 1}, {"a": "1"}],
    [{"a": 1}] * 9 + [{"a": 1.5}],
    [{"a": "x"}] * 9 + [{"a": {"b": 1}}],
    [{"a": "x"}] * 9 + [{"a": ["x"]}],
    [{"a": True}],
    [{"a": 0.5}],
]


@pytest.mark.parametrize("documents", MIXED, ids=str)
@pytest.mark.parametrize(
    "shredded", [None, pa.struct({"a": pa.string()}), pa.struct({"a": pa.int64()}), pa.struct({"a": pa.float64()})], ids=str
)
def test_values_of_several_types(documents, shredded):
    """A path with values of another type than strings, or than exact numbers, in one row only, has no filter (I2)."""
    [entry] = indexed(column(documents), ("a",), shredded=shredded).values()
    assert (entry.kind, entry.filter) == ("mixed", None)


def test_nulls_and_rows_without_the_path():
    """JSON nulls, SQL NULLs and rows without the path are no values, in typed columns and without (I2)."""
    documents = [{"a": "x"}, {"a": None}, {}, 5, [{"a": "y"}], {"a": "z"}]
    for shredded in (None, pa.struct({"a": pa.string()})):
        [entry] = indexed(column([*documents, "SQL NULL"]), ("a",), shredded=shredded).values()
        assert (entry.kind, entry.values) == ("string", 2)


def test_room():
    """Filters of a file share its room; a path of few values leaves room for others; without room there is none (I3)."""
    documents = [{"few": f"k{n % 3}", "many": f"id-{n}"} for n in range(4000)]
    both = indexed(column(documents), ("few",), ("many",), budget=0.01, size=500_000)
    few, many = both["few",], both["many",]
    assert many.values == 4000
    assert 3000 < len(many.filter) + len(few.filter) <= 5000 - 2 * sidecars.ENTRY_SIZE
    [entry] = indexed(column(documents), ("many",), budget=0.01, size=100_000).values()
    assert (entry.kind, entry.values, entry.filter) == ("small", 4000, None)
