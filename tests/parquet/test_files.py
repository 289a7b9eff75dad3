"""Parquet files: the annotation, the footer, encodings, row groups, failures, and whole tables."""

from __future__ import annotations

import datetime as dt
import gc
import hashlib
import io
import math
from decimal import Decimal
from functools import partial
from threading import Thread

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_variant import nested, shredding
from delta_variant.arrow import VariantType
from delta_variant.errors import DeltaVariantError, InvalidLayoutError, InvalidSchemaError, UnsupportedFeatureError
from delta_variant.kernels.thrift import STRUCT, value_end
from delta_variant.parquet import FileWriter, encodings, footer, read_table, write_table
from tests.strategies import DECIMALS, SCHEMAS, SPARK_SCHEMAS, VARIANTS, column, same, values
from tests.versions import PYARROW, needs_pyarrow

PLAIN = shredding.UNSHREDDED
V = ("v",)


def write(path, table, variants=(), **options):
    with FileWriter(path, table.schema, variants=variants, **options) as writer:
        for batch in table.to_batches():
            writer.write(batch)
    return writer.close()


def footer_columns(path):
    """The column chunks of the first row group, by their path in the schema."""
    group = pq.read_metadata(path).row_group(0)
    return {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}


# -------------------------------------------------------------------------------------------------------- the annotation


def test_the_annotation_is_found_by_path(tmp_path):
    """Only the groups at the given paths are annotated, not groups of the same name elsewhere; the table reads back (F1)."""
    array = column([{"a": 1}, None, "SQL NULL"])
    inner = pa.StructArray.from_arrays([array, array], ["v", "w"])
    lists = pa.array([[1], [], [2]], pa.list_(pa.int64()))
    table = pa.table({"v": inner, "w": array, "x": lists, "s": pa.StructArray.from_arrays([inner], ["v"])})
    groups = {("v", "v"), ("s", "v", "w")}
    size = write(tmp_path / "f", table, groups)
    assert size == (tmp_path / "f").stat().st_size
    assert footer.variant_groups(footer.of(io.BytesIO((tmp_path / "f").read_bytes()))) == groups
    assert pq.read_table(tmp_path / "f").cast(table.schema).equals(table)


def test_annotates(tmp_path):
    """Without `annotates`, the same column chunks are written, and the schema lacks the logical type only."""
    table = pa.table({"v": shredding.shred(column([{"a": 1, "b": "x"}, None, "SQL NULL"]), "a bigint")})
    with_it, without = tmp_path / "with it", tmp_path / "without"
    write(with_it, table, [V])
    write(without, table, [V], annotates=False)
    footers = [footer.of(io.BytesIO(path.read_bytes())) for path in (with_it, without)]
    assert list(map(footer.variant_groups, footers)) == [{V}, set()]
    assert footers[0] == footer.annotated(footers[1], [V])


def test_footers_end_with_their_last_byte(tmp_path):
    """The Thrift walk over a footer ends at its last byte, and finds no end in any truncated footer."""
    array = column([{"a": i, "d": i / 3, "t": f"t{i}", "l": [True, {"b": False}]} for i in range(50)])
    shredded = shredding.shred(array, "a bigint, d double, t string, l array<boolean>")
    write(tmp_path / "f", pa.table({"v": shredded, "w": array}), {V, ("w",)}, metadata={"k": "v" * 200})
    whole = footer.of(io.BytesIO((tmp_path / "f").read_bytes()))
    assert value_end(whole, 0, STRUCT) == len(whole)
    assert {value_end(whole[:size], 0, STRUCT) for size in range(len(whole))} == {-1}


def test_groups_inside_lists_and_maps(tmp_path):
    """VARIANTs in arrays and maps are annotated, by their path in the Parquet schema."""
    array = column([1, 2])
    listed = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), array)
    mapped = pa.MapArray.from_arrays(pa.array([0, 2], pa.int32()), pa.array(["k", "l"]), array)
    groups = {("l", "list", "element"), ("m", "key_value", "value")}
    write(tmp_path / "f", pa.table({"l": listed, "m": mapped}), groups)
    assert footer.variant_groups(footer.of(io.BytesIO((tmp_path / "f").read_bytes()))) == groups


def test_duckdb_finds_the_columns(tmp_path):
    """DuckDB finds a VARIANT in an annotated group, shredded or not, and reads its values (F1)."""
    array = column([{"id": i, "name": f"n{i}", "rest": [i]} for i in range(3)])
    shredded = shredding.shred(array, "id bigint, name string")
    write(tmp_path / "f", pa.table({"p": array, "v": shredded}), {("p",), V})
    rows = duckdb.sql(
        f"select typeof(p), typeof(v), v.id::bigint, p.name::varchar, v.rest[1]::int from read_parquet('{tmp_path / 'f'}')"
    )
    assert rows.fetchall() == [("VARIANT", "VARIANT", i, f"n{i}", i) for i in range(3)]


names = st.sampled_from(["a", "b", "metadata", "value", "list", "v", "é", "a.b"])
types = st.recursive(
    st.sampled_from([pa.int64(), pa.string(), pa.float64(), pa.decimal128(20, 2), pa.timestamp("us", "UTC"), PLAIN]),
    lambda inner: st.one_of(
        st.dictionaries(names, inner, min_size=1, max_size=3).map(lambda fields: pa.struct(list(fields.items()))),
        inner.map(pa.list_),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
    ),
    max_leaves=6,
)


def groups_of(kind, names):
    if kind == PLAIN:
        yield names
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from groups_of(field.type, (*names, field.name))
    elif pa.types.is_list(kind):
        yield from groups_of(kind.value_type, (*names, "list", "element"))
    elif pa.types.is_map(kind):
        yield from groups_of(kind.item_type, (*names, "key_value", "value"))


@settings(max_examples=50)
@given(st.dictionaries(names, types, min_size=1, max_size=20), st.data())
def test_any_schema_can_be_annotated(fields, data):
    """For any nesting of groups, exactly the chosen groups are annotated, and pyarrow reads the same schema (F1)."""
    schema = pa.schema(list(fields.items()))
    groups = [group for field in schema for group in groups_of(field.type, (field.name,))]
    chosen = set(data.draw(st.lists(st.sampled_from(groups), unique=True))) if groups else set()
    plain, annotated = io.BytesIO(), io.BytesIO()
    for sink, variants in ((plain, ()), (annotated, chosen)):
        write(sink, schema.empty_table(), variants)
    _, found = footer.split(annotated.getvalue())
    assert footer.variant_groups(found) == chosen
    assert footer.annotated(footer.split(plain.getvalue())[1], chosen) == found
    assert pq.read_schema(annotated).equals(pq.read_schema(plain))


def test_a_group_that_is_not_there_is_refused(tmp_path):
    """A path that leads to no VARIANT is an error, and no file is created."""
    schema = pa.schema([("a", pa.int64()), ("v", pa.struct([("x", PLAIN)]))])
    for group in (("a",), V, ("w",), ("x",)):
        with pytest.raises(InvalidSchemaError, match="not a VARIANT"):
            FileWriter(tmp_path / "f", schema, variants=[group])
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------------------ what the footer holds


FLOATS = [1.5, math.nan, -0.0, None, math.inf]


def test_footer_bounds_of_floats(tmp_path):
    """A column with a NaN has no minimum, maximum and column index in that row group, wherever the column is (F5).

    Other row groups have them, with a zero minimum as -0.0 and a zero maximum as 0.0. Null counts are always there.
    """
    floats = pa.array(FLOATS, pa.float32())
    doubles = floats.cast(pa.float64())
    halves = np.array([0.0 if x is None else x for x in FLOATS], np.float16)
    columns = {
        "v": shredding.shred(column([{"f": x, "i": 1} for x in FLOATS]), "f double, i bigint"),
        "f": floats,
        "d": doubles,
        "h": pa.array(halves, mask=np.array([x is None for x in FLOATS])),
        "l": pa.ListArray.from_arrays(pa.array(range(6), pa.int32()), doubles),
        "m": pa.MapArray.from_arrays(pa.array(range(6), pa.int32()), pa.array(["k"] * 5), doubles),
        "s": pa.StructArray.from_arrays([floats], ["f"]),
    }
    write(tmp_path / "f", pa.table(columns), {V}, row_group_bytes=1)
    metadata = pq.read_metadata(tmp_path / "f")
    assert metadata.num_row_groups == len(FLOATS)
    for number, value in enumerate(FLOATS):
        group = metadata.row_group(number)
        chunks = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
        has_nan, is_null = value is not None and math.isnan(value), value is None
        for name in ("v.typed_value.f.typed_value", "f", "d", "h", "l.list.element", "m.key_value.value", "s.f"):
            chunk = chunks[name]
            assert chunk.statistics.has_min_max == (not has_nan and not is_null)
            assert chunk.has_column_index == (not has_nan)
            if chunk.statistics.has_min_max and name != "h":  # which pyarrow shows as bytes
                found = chunk.statistics.min, chunk.statistics.max
                assert found[0] <= value <= found[1]
                assert found == (value, value) or (math.isinf(value) and PYARROW < 25)  # which states the largest number
                assert value != 0 or [*map(str, found)] == ["-0.0", "0.0"]
        assert chunks["d"].statistics.null_count == is_null
        assert chunks["v.typed_value.i.typed_value"].statistics.max == 1
        assert all(chunk.has_offset_index for chunk in chunks.values())


def test_footer_bounds_of_variants(tmp_path):
    """The metadata of a VARIANT has no statistics; `value` has, and so has an ordinary column called metadata (F5)."""
    array = shredding.shred(column([{"i": 1}, {"j": 2}]), "i bigint")
    write(tmp_path / "f", pa.table({"v": array, "metadata": pa.array(["a", "b"])}), {V})
    columns = footer_columns(tmp_path / "f")
    assert {name for name, chunk in columns.items() if not chunk.is_stats_set} == {"v.metadata"}
    assert columns["v.value"].statistics.null_count == 1
    assert columns["v.typed_value.i.typed_value"].statistics.null_count == 1


def test_names_that_pyarrow_cannot_tell_apart(tmp_path):
    """The column `a.b`, whose path is written like that of the field b of a, has no statistics, and both read back (F5)."""
    doubles, integers = pa.array([1.5, 1.0]), pa.array([1, 2])
    table = pa.table({"a.b": doubles, "a": pa.StructArray.from_arrays([integers], ["b"])})
    write(tmp_path / "f", table)
    group = pq.read_metadata(tmp_path / "f").row_group(0)
    assert not group.column(0).is_stats_set
    assert pq.read_table(tmp_path / "f").equals(table)


def test_key_value_pairs_and_field_ids(tmp_path):
    """The footer has the caller's pairs and the schema's field ids, and no Arrow schema."""
    field = pa.field("i", pa.int32(), metadata={"PARQUET:field_id": "7"})
    table = pa.table([pa.array([1], pa.int32())], schema=pa.schema([field], metadata={"pandas": "{}"}))
    write(tmp_path / "f", table, metadata={"org.apache.spark.version": "4.2.0"})
    assert pq.read_metadata(tmp_path / "f").metadata == {b"org.apache.spark.version": b"4.2.0"}
    assert pq.read_schema(tmp_path / "f").field("i").metadata == {b"PARQUET:field_id": b"7"}


def test_physical_types(tmp_path):
    """Decimals up to 18 digits are integers, timestamps are microseconds and never INT96, lists are list/element."""
    now = dt.datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=dt.timezone.utc)
    table = pa.table(
        {
            "d9": pa.array([Decimal("1.50")], pa.decimal128(9, 2)),
            "d18": pa.array([Decimal("1.50")], pa.decimal128(18, 2)),
            "d38": pa.array([Decimal("1.50")], pa.decimal128(38, 2)),
            "t": pa.array([now], pa.timestamp("us", "UTC")),
            "l": pa.array([[1]]),
        }
    )
    write(tmp_path / "f", table)
    kinds = {name: chunk.physical_type for name, chunk in footer_columns(tmp_path / "f").items()}
    assert kinds == {"d9": "INT32", "d18": "INT64", "d38": "FIXED_LEN_BYTE_ARRAY", "t": "INT64", "l.list.element": "INT64"}
    assert "MICROS" in str(pq.ParquetFile(tmp_path / "f").schema).upper()
    assert pq.read_table(tmp_path / "f").cast(table.schema).equals(table)


@pytest.mark.parametrize(
    ("compression", "codec"),
    [("zstd", "ZSTD"), ("snappy", "SNAPPY"), ("GZIP", "GZIP"), ("none", "UNCOMPRESSED"), (None, "UNCOMPRESSED")],
)
def test_compression(tmp_path, compression, codec):
    """Columns are compressed with the codec asked for."""
    write(tmp_path / "f", pa.table({"a": [1, 2]}), compression=compression)
    assert footer_columns(tmp_path / "f")["a"].compression == codec


def test_levels_of_compression(tmp_path):
    """With zstd, the bytes of Variants are compressed as pyarrow does at level 3, other columns as it does at level 1."""
    texts = [f"event {i} of user {i * i % 1009}" for i in range(5000)]  # no dictionaries
    objects = [{"text": text, f"key {i}": i, "more": texts[i // 2]} for i, text in enumerate(texts)]
    table = pa.table({"s": texts, "v": shredding.shred(column(objects), "text string")})
    write(tmp_path / "ours", table, variants=[V])
    found = {name: chunk.total_compressed_size for name, chunk in footer_columns(tmp_path / "ours").items()}
    sizes = []
    for level in (1, 3):
        alike = {"use_dictionary": False, "write_page_checksum": True, "write_page_index": True}
        pq.write_table(table, tmp_path / "theirs", compression="zstd", compression_level=level, **alike)
        sizes.append({name: chunk.total_compressed_size for name, chunk in footer_columns(tmp_path / "theirs").items()})
    for name in ("s", "v.typed_value.text.typed_value"):
        assert found[name] == sizes[0][name] != sizes[1][name]
    for name in ("v.metadata", "v.value"):
        assert found[name] == sizes[1][name] != sizes[0][name]


@pytest.mark.parametrize("compression", ["foo", "", "lzo", {"a": "zstd"}])
def test_compressions_that_do_not_exist(tmp_path, compression):
    """Another compression is refused with the names of those that there are, and no file is created."""
    table = pa.table({"a": [1]})
    for call in (write_table, partial(FileWriter, schema=table.schema)):
        with pytest.raises(UnsupportedFeatureError, match="not one of none, snappy"):
            call(*([table] if call is write_table else []), tmp_path / "f", compression=compression)
    assert not list(tmp_path.iterdir())


# --------------------------------------------------------------------------------------------------------------- encodings

ROWS = 20_000
RANDOM = np.random.default_rng(0)
COLUMNS = {
    "ascending": (pa.array(range(ROWS)), "DELTA_BINARY_PACKED"),
    "few integers": (pa.array(RANDOM.integers(0, 50, ROWS)), "DICTIONARY"),
    "wide integers, repeated": (pa.array((np.arange(5000) * (2**62 // 5000))[RANDOM.integers(0, 5000, ROWS)]), "DICTIONARY"),
    "narrow integers, repeated": (pa.array(RANDOM.integers(0, 20_000, ROWS)), "DELTA_BINARY_PACKED"),
    "int8": (pa.array(RANDOM.integers(-128, 127, ROWS), pa.int8()), "DICTIONARY"),
    "times": (pa.array(np.arange(ROWS) * 10**6, pa.timestamp("us")), "DELTA_BINARY_PACKED"),
    "dates": (pa.array(np.arange(ROWS), pa.int32()).cast(pa.date32()), "DELTA_BINARY_PACKED"),
    "decimals": (pa.array([Decimal(i).scaleb(-2) for i in range(ROWS)], pa.decimal128(18, 2)), "DELTA_BINARY_PACKED"),
    "long decimals": (pa.array([Decimal(i) for i in range(ROWS)], pa.decimal128(38, 0)), "PLAIN"),
    "few strings": (pa.array([f"s{i % 300}" for i in range(ROWS)]), "DICTIONARY"),
    "unique strings": (pa.array([f"s{i}" for i in range(ROWS)]), "PLAIN"),
    "hashes": (pa.array([hashlib.sha256(b"%d" % i).hexdigest() for i in range(ROWS)]), "DELTA_LENGTH_BYTE_ARRAY"),
    "digests": (pa.array([hashlib.sha256(b"%d" % i).digest() for i in range(ROWS)]), "DELTA_LENGTH_BYTE_ARRAY"),
    "doubles": (pa.array(RANDOM.random(ROWS)), "PLAIN"),
    "nulls": (pa.nulls(ROWS, pa.binary()), "DICTIONARY"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_the_encoding_follows_from_the_values(name):
    """Repeated values get a dictionary, other integers are packed, values of one length are stored without it, others plain."""
    array, expected = COLUMNS[name]
    sample = encodings.sample([pa.record_batch([array], ["x"])], pa.schema([("x", array.type)]))
    assert len(sample) <= encodings.SAMPLE_ROWS + encodings.SAMPLE_BATCHES
    assert encodings.encoding(sample.field(0)) == expected


def with_gaps(array):
    return pc.if_else(pa.array(np.random.default_rng(1).random(len(array)) < 0.2), pa.nulls(len(array), array.type), array)


def test_every_encoding_is_read_back(tmp_path):
    """DuckDB and pyarrow give the values that went in, nulls included."""
    table = pa.table({name: with_gaps(array) for name, (array, _) in COLUMNS.items()})
    write(tmp_path / "f", table)
    assert pq.read_table(tmp_path / "f").cast(table.schema).equals(table)
    assert duckdb.sql(f"from read_parquet('{tmp_path / 'f'}')").to_arrow_table().cast(table.schema).equals(table)


# ------------------------------------------------------------------------------------------------- row groups and failures


def test_row_groups_are_bounded(tmp_path):
    """Small batches are collected and large ones are cut, so that no row group is much larger than asked, and none is empty."""
    table = pa.table({"i": range(100_000)})
    for rows in (1000, 100_000):
        with FileWriter(tmp_path / "f", table.schema, row_group_bytes=80_000) as writer:
            for batch in table.to_batches(max_chunksize=rows):
                writer.write(batch)
        metadata = pq.read_metadata(tmp_path / "f")
        assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [10_000] * 10
        assert pq.read_table(tmp_path / "f").equals(table)


def test_rows_leave_memory_with_their_row_group():
    """Row groups are written while rows are added, long before the file is closed: memory holds two."""
    sink = io.BytesIO()
    batch = pa.record_batch({"x": RANDOM.random(10_000)})
    with FileWriter(sink, batch.schema, row_group_bytes=160_000) as writer:
        sizes = []
        for _ in range(10):
            writer.write(batch)
            sizes.append(sink.tell())
            assert writer.buffered_bytes <= 2 * 160_000
            assert writer.flushed_bytes + writer.buffered_bytes == len(sizes) * 80_000
    assert sizes[2] > 0
    assert sizes[8] > 2 * sizes[2]
    assert not sink.closed
    assert writer.close() == len(sink.getvalue())


def test_a_file_without_rows(tmp_path):
    """A file without rows can be read, and has the schema and the annotation."""
    schema = pa.schema([("v", PLAIN), ("i", pa.int64())])
    with FileWriter(tmp_path / "f", schema, variants={V}) as writer:
        writer.write(pa.RecordBatch.from_pylist([], schema))
    assert footer.variant_groups(footer.of(io.BytesIO((tmp_path / "f").read_bytes()))) == {V}
    assert pq.read_table(tmp_path / "f").num_rows == 0


def fail_midway(sink):
    batch = pa.record_batch({"a": [1]})
    with FileWriter(sink, batch.schema, row_group_bytes=1) as writer:
        writer.write(batch)
        writer.write(batch)
        raise ZeroDivisionError


def test_an_error_removes_the_file(tmp_path):
    """A file opened by path is deleted after an error in the block, and after a batch of another schema."""
    with pytest.raises(ZeroDivisionError):
        fail_midway(tmp_path / "f")
    assert not list(tmp_path.iterdir())
    batch = pa.record_batch({"a": [1]})
    writer = FileWriter(tmp_path / "f", batch.schema)
    with pytest.raises(InvalidSchemaError, match="schema"):
        writer.write(pa.record_batch({"b": [1]}))
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="closed"):
        writer.write(batch)


def test_a_writer_that_is_dropped_leaves_no_file(tmp_path):
    """A file whose writer is neither closed nor aborted is removed, and an open sink gets no footer."""
    batch = pa.record_batch({"x": RANDOM.random(10_000)})
    sink = io.BytesIO()
    for target in (tmp_path / "f", sink):
        writer = FileWriter(target, batch.schema, row_group_bytes=80_000)
        for _ in range(4):
            writer.write(batch)
        del writer
        gc.collect()
    assert not list(tmp_path.iterdir())
    assert len(sink.getvalue()) > 80_000
    with pytest.raises(pa.ArrowInvalid):
        pq.ParquetFile(sink)


def test_int96(tmp_path):
    """Timestamps as INT96, of which some have no nanoseconds in 64 bits, are instants in microseconds."""
    moments = pa.array([-62135596800000000, 0, 253402300799000000], pa.timestamp("us"))
    pq.write_table(pa.table({"t": moments}), tmp_path / "f", use_deprecated_int96_timestamps=True)
    assert read_table(tmp_path / "f")["t"].combine_chunks().equals(moments)


def test_a_file_is_written_without_threads(tmp_path, monkeypatch):
    """If the system has no more threads, row groups are encoded one after the other."""

    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", start)
    batch = pa.record_batch({"x": RANDOM.random(10_000)})
    with FileWriter(tmp_path / "f", batch.schema, row_group_bytes=80_000) as writer:
        for _ in range(4):
            writer.write(batch)
    monkeypatch.undo()
    assert pq.read_table(tmp_path / "f").equals(pa.Table.from_batches([batch] * 4))


def test_an_error_leaves_an_open_sink_without_a_footer():
    """After an error, a sink that the caller opened stays open, and its content is no Parquet file."""
    sink = io.BytesIO()
    with pytest.raises(ZeroDivisionError):
        fail_midway(sink)
    assert len(sink.getvalue()) > len(footer.MAGIC)
    with pytest.raises(pa.ArrowInvalid):
        pq.ParquetFile(sink)


class FullDisk(io.BytesIO):
    """A file that takes so many bytes."""

    def __init__(self, room):
        super().__init__()
        self.room = room

    def write(self, data):
        if self.tell() + len(data) > self.room:
            raise OSError(28, "No space left on device")
        return super().write(data)


def test_a_full_disk_is_the_error_the_caller_sees():
    """An error of the sink is raised as it is, by write or by close, and the writer is closed: in the first row group, in one
    that is encoded beside the next, and in the last."""
    batch = pa.record_batch({"x": RANDOM.random(10_000)})
    for room, row_group_bytes in ((50_000, 80_000), (200_000, 80_000), (50_000, 1 << 20)):
        writer = FileWriter(FullDisk(room), batch.schema, row_group_bytes=row_group_bytes)
        with pytest.raises(OSError, match="No space left"):  # noqa: PT012  # either call may be the one
            for _ in range(5):
                writer.write(batch)
            writer.close()
        with pytest.raises(ValueError, match="closed"):
            writer.write(batch)


# ------------------------------------------------------------------------------------------------------------ whole tables

ROWS_OF_FILE = [{"id": 1, "name": "a", "tags": ["x", None]}, {"id": "one"}, None, "SQL NULL", {"name": "é", "more": {"k": 2}}]


@pytest.mark.parametrize(
    "shred", [None, "auto", {"v": "id bigint, name string, tags array<string>"}, {"v": pa.struct([("id", pa.int64())])}]
)
def test_a_table_comes_back(tmp_path, shred):
    """Whatever the shredding, the Variants and the other columns are the ones written, in their order."""
    table = pa.table({"before": range(5), "v": column(ROWS_OF_FILE), "after": ["a", None, "c", "d", "e"]})
    write_table(table, tmp_path / "f", shred=shred)
    back = read_table(tmp_path / "f")
    assert back.column_names == table.column_names
    assert back.schema.field("v").type == PLAIN
    assert back.drop_columns("v").equals(table.drop_columns("v"))
    assert all(map(same, values(back["v"].combine_chunks()), ROWS_OF_FILE))
    assert ("typed_value" in str(pq.read_schema(tmp_path / "f"))) == (shred is not None)


@settings(max_examples=50)
@given(rows=st.lists(st.one_of(VARIANTS, st.just("SQL NULL")), min_size=1, max_size=8), schema=SCHEMAS)
def test_any_table_comes_back(tmp_path_factory, rows, schema):
    """A table of any Variants, shredded to any schema, comes back; keys with dots and empty keys are among them."""
    path = tmp_path_factory.getbasetemp() / "any.parquet"
    write_table(pa.table({"v": column(rows)}), path, shred={"v": schema})
    assert all(map(same, values(read_table(path)["v"].combine_chunks()), rows))


def without_empty_values(array):
    """A shredded column whose groups have no `value` where it is null in all rows and a `typed_value` is beside it."""
    names = [name[-1] for name, _ in nested.children(array.type)]
    parts = dict(zip(names, map(without_empty_values, nested.arrays(array)), strict=True))
    if names == ["value", "typed_value"] and parts["value"].null_count == len(array):
        del parts["value"]
    if not parts:
        return array
    inside = list(parts.values())
    if not pa.types.is_struct(array.type):
        return nested.rebuilt(array, nested.with_types(array.type, [part.type for part in inside]), inside)
    kind = pa.struct([array.type.field(name).with_type(part.type) for name, part in parts.items()])
    return nested.rebuilt(array, kind, inside)


ORDERS = st.fixed_dictionaries(
    {}, optional={"a": st.fixed_dictionaries({}, optional={"b": st.lists(st.text(max_size=2), max_size=2)}), "price": DECIMALS}
)


@settings(max_examples=100)
@given(
    rows=st.lists(st.one_of(ORDERS, VARIANTS, st.just("SQL NULL")), min_size=1, max_size=6),
    schema=st.one_of(st.just("a struct<b array<string>>, price decimal(9,2)"), SPARK_SCHEMAS),
)
def test_files_of_others_with_groups_without_values(tmp_path_factory, rows, schema):
    """Groups may lack `value`, and decimals have any physical type, also where objects and Variants are missing (F1)."""
    path = tmp_path_factory.getbasetemp() / "groups.parquet"
    shredded = without_empty_values(shredding.shred(column(rows), schema))
    table = pa.table({"v": nested.without_nulls_below_nulls(shredded, pa.field("v", shredded.type))})
    for as_integers in (False, True):
        pq.write_table(table, path, store_decimal_as_integer=as_integers)
        assert all(map(same, values(read_table(path)["v"].combine_chunks()), rows))


@settings(max_examples=50)
@given(
    rows=st.lists(VARIANTS, min_size=1, max_size=4),
    places=st.lists(st.one_of(st.none(), st.just(0), st.integers(0, 3)), min_size=1, max_size=8),
    schema=st.one_of(st.none(), SCHEMAS),
)
def test_nulls_that_pyarrow_makes(tmp_path_factory, rows, places, schema):
    """A NULL is written as one whatever pyarrow's kernels leave below it: in columns, structs and lists."""
    path = tmp_path_factory.getbasetemp() / "nulls.parquet"
    whole = column(rows) if schema is None else shredding.shred(column(rows), schema)
    places = [place if place is None or place < len(rows) else None for place in places]
    taken = whole.take(pa.array(places, pa.int64()))
    expected = ["SQL NULL" if place is None else rows[place] for place in places]
    inside = pa.StructArray.from_arrays([taken], ["v"])
    for shred in (None, "auto", {"v": "a bigint, b array<string>"}):
        write_table(pa.table({"v": taken, "s": inside}), path, shred=shred)
        back = read_table(path).combine_chunks()
        for found in (back["v"].chunk(0), back["s"].chunk(0).field("v")):
            assert all(map(same, values(found), expected))
    write_table(pa.table({"l": pa.ListArray.from_arrays(pa.array([0, len(places)], pa.int32()), taken)}), path)
    assert all(map(same, values(read_table(path)["l"].combine_chunks().flatten()), expected))


def with_metadata(variants, form):
    """Variants whose metadata has another form."""
    metadata = form(variants.field("metadata"))
    fields = [pa.field("metadata", metadata.type, nullable=False), variants.type.field("value")]
    return pa.StructArray.from_arrays([metadata, variants.field("value")], fields=fields, mask=variants.is_null())


def test_nulls_of_other_origins(tmp_path):
    """NULLs of `pa.nulls`, if_else, a promoting concat_tables and the extension type are written, beside other columns."""
    one = column([{"a": 1}])
    made = {
        "nulls": pa.nulls(2, PLAIN),
        "if_else": pc.if_else(pa.array([True, False]), column([{"a": 1}, 2]), pa.scalar(None, PLAIN)),
        "concat_arrays": pa.concat_arrays([one, pa.nulls(1, PLAIN)]),
        "concat_tables": pa.concat_tables([pa.table({"v": one}), pa.table({"i": [2]})], promote_options="default")["v"],
        "extension": VariantType().wrap_array(pa.nulls(2, PLAIN)),
        "dictionary": with_metadata(column([1, 2]), pc.dictionary_encode).take(pa.array([None, 1])),
        "run ends": with_metadata(column([1, 2]).take(pa.array([None, 1])), pc.run_end_encode),
        "required structs": pa.nulls(2, pa.struct([pa.field("k", pa.struct([pa.field("l", pa.uuid(), False)]), False)])),
    }
    write_table(pa.table(made), tmp_path / "f")
    back = read_table(tmp_path / "f")
    for name, array in made.items():
        assert back[name].is_null().to_pylist() == array.is_null().to_pylist()
        assert back[name][0].as_py() == array[0].as_py()


@pytest.mark.parametrize("binary", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_forms_of_variant_columns(tmp_path, binary):
    """Children in either order and in any form of binary are written as metadata, value; slices keep their rows (F1)."""
    rows = column([{"a": i} for i in range(6)])
    swapped = pa.StructArray.from_arrays(
        [rows.field("value").cast(binary), rows.field("metadata").cast(binary)], ["value", "metadata"]
    )
    for shred in (None, "auto", {"v": "a bigint"}):
        write_table(pa.table({"v": swapped}).slice(2, 3), tmp_path / "f", shred=shred)
        assert [field.name for field in pq.read_schema(tmp_path / "f").field("v").type][:2] == ["metadata", "value"]
        assert values(read_table(tmp_path / "f")["v"].combine_chunks()) == [{"a": 2}, {"a": 3}, {"a": 4}]


def test_a_shredded_column_is_written_as_it_is(tmp_path):
    """An array that is shredded already keeps its layout, or gets another one if asked."""
    shredded = shredding.shred(column([{"a": 1, "b": 2}]), "a bigint")
    for shred, fields in ((None, ["a"]), ("auto", ["a"]), ({"v": "b bigint"}, ["b"])):
        write_table(pa.table({"v": shredded}), tmp_path / "f", shred=shred)
        typed = pq.read_schema(tmp_path / "f").field("v").type.field("typed_value").type
        assert [field.name for field in typed] == fields
        assert values(read_table(tmp_path / "f")["v"].combine_chunks()) == [{"a": 1, "b": 2}]


def test_variants_inside_other_columns(tmp_path):
    """VARIANTs in structs, lists and maps are annotated, and unshredded when read; nulls around them stay."""
    shredded = shredding.shred(column([{"a": 1}, {"a": "x"}, "SQL NULL"]), "a bigint")
    mask = pa.array([False, True, False])
    table = pa.table(
        {
            "s": pa.StructArray.from_arrays([pa.array([1, 2, 3]), shredded], ["i", "v"], mask=mask),
            "l": pa.ListArray.from_arrays(pa.array([0, 2, None, 3], pa.int32()), shredded),
            "m": pa.MapArray.from_arrays(pa.array([0, 1, 1, 3], pa.int32()), pa.array(["k", "l", "m"]), shredded),
        }
    )
    write_table(table, tmp_path / "f")
    assert len(footer.variant_groups(footer.of(io.BytesIO((tmp_path / "f").read_bytes())))) == 3
    back = read_table(tmp_path / "f")
    assert back["s"].is_null().to_pylist() == [False, True, False]
    assert values(back["s"].combine_chunks().field("v"))[0] == {"a": 1}
    assert [None if row is None else len(row) for row in back["l"].to_pylist()] == [2, 1, None]
    assert values(back["l"].combine_chunks().flatten()) == [{"a": 1}, {"a": "x"}, "SQL NULL"]
    assert values(back["m"].combine_chunks().items) == [{"a": 1}, {"a": "x"}, "SQL NULL"]


@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param(pa.list_, id="list"),
        pytest.param(pa.large_list, id="large_list"),
        pytest.param(pa.list_view, id="list_view", marks=needs_pyarrow(25, "does not write list views")),
        pytest.param(pa.large_list_view, id="large_list_view", marks=needs_pyarrow(25, "does not write list views")),
        pytest.param(lambda kind: pa.list_(kind, 1), id="fixed_size_list"),
    ],
)
def test_variants_inside_lists_of_every_form(tmp_path, wrap):
    """Variants are unshredded in every form of list that pyarrow restores from the Arrow schema; other types are kept."""
    shredded = shredding.shred(column([{"a": 1}, {"a": "x"}, {"a": None}]), "a decimal(9,2)")
    lists = pa.array([[row] for row in shredded.to_pylist()], wrap(pa.field("element", shredded.type)))
    table = pa.table({"l": lists, "n": pa.array([1, 2, 3], pa.uint32()), "v": shredded})
    pq.write_table(table, tmp_path / "f")
    found = read_table(tmp_path / "f")
    assert found.schema.field("n").type == pa.uint32()
    assert [len(row) for row in found["l"].to_pylist()] == [1, 1, 1]
    assert values(found["l"].combine_chunks().flatten()) == [{"a": 1}, {"a": "x"}, {"a": None}]
    assert values(found["v"].combine_chunks()) == [{"a": 1}, {"a": "x"}, {"a": None}]


@pytest.mark.parametrize("rows", [3, 30_000])
def test_views(tmp_path, rows):
    """Columns of views are written and read, inside structs, lists and maps too, also where no view points to a buffer."""
    values = {"s": [None, "x", "y" * 20], "b": [b"", None, b"z"], "l": [["x", None], None, []], "m": [None, [("k", "x")], []]}
    text = pa.string_view()
    kinds = {"s": text, "b": pa.binary_view(), "l": pa.list_(pa.struct([("t", text)])), "m": pa.map_(text, text)}
    values["l"] = [row and [{"t": text} for text in row] for row in values["l"]]
    table = pa.table({name: pa.array(column * (rows // 3), kinds[name]) for name, column in values.items()})
    write_table(table, tmp_path / "f")
    assert read_table(tmp_path / "f").to_pydict() == table.to_pydict()


def test_list_views(tmp_path):
    """Columns of list views are written, in any order of the views, and slices of them, inside maps and other lists too."""
    starts, sizes = pa.array([4, 0, 0, 1], pa.int32()), pa.array([2, 0, 3, 2], pa.int32())
    views = pa.ListViewArray.from_arrays(starts, sizes, pa.array(["a", "b", None, "c", "d", "e"], pa.string_view()))
    inside = [pa.MapArray.from_arrays([0, 1, 4], ["k"] * 4, views), pa.FixedSizeListArray.from_arrays(views, 2)]
    for part in (views, views[1:], views[2:3], views[:0], *inside, *(array[1:] for array in inside)):
        write_table(pa.table({"l": part}), tmp_path / "f")
        assert read_table(tmp_path / "f")["l"].to_pylist() == part.to_pylist()


def test_a_file_without_the_annotation(tmp_path):
    """Without the annotation, a group with the fields of a layout is a VARIANT, and one that only resembles it is not."""
    shredded = shredding.shred(column([{"a": 1}]), "a bigint")
    other = pa.array([{"metadata": "text", "value": b"x"}])
    pq.write_table(pa.table({"v": shredded, "w": other}), tmp_path / "f")
    back = read_table(tmp_path / "f")
    assert values(back["v"].combine_chunks()) == [{"a": 1}]
    assert back["w"].to_pylist() == other.to_pylist()


def test_more_than_one_row_group(tmp_path):
    """The rows of all row groups are read in their order."""
    shredded = shredding.shred(column([{"a": i} for i in range(100)]), "a bigint")
    write_batches = pa.table({"v": shredded}).to_batches(max_chunksize=10)
    with FileWriter(tmp_path / "f", write_batches[0].schema, variants={V}, row_group_bytes=1) as writer:
        for batch in write_batches:
            writer.write(batch)
    assert pq.read_metadata(tmp_path / "f").num_row_groups > 5
    assert values(read_table(tmp_path / "f")["v"].combine_chunks()) == [{"a": i} for i in range(100)]


def test_a_table_without_rows(tmp_path):
    """An empty table keeps its columns."""
    write_table(pa.table({"v": column([]), "a": pa.array([], pa.int64())}), tmp_path / "f", shred={"v": "a bigint"})
    back = read_table(tmp_path / "f")
    assert back.num_rows == 0
    assert back.schema.field("v").type == PLAIN


@pytest.mark.parametrize(
    "shred", [{"w": "a bigint"}, {"i": "a bigint"}, "always", {"v": "a nonsense"}, True, False, ["v"], {"v": None}]
)
def test_what_cannot_be_shredded(tmp_path, shred):
    """A column that is missing or no VARIANT, and an invalid schema, raise InvalidSchemaError and leave no file."""
    with pytest.raises(InvalidSchemaError):
        write_table(pa.table({"v": column([1]), "i": [1]}), tmp_path / "f", shred=shred)
    assert not list(tmp_path.iterdir())


def test_what_is_no_table(tmp_path):
    """Rows that are no table of Arrow are an error that says what they are."""
    with pytest.raises(InvalidLayoutError, match="not a RecordBatch"):
        write_table(pa.record_batch({"i": [1]}), tmp_path / "f")
    assert not list(tmp_path.iterdir())


def test_columns_of_one_name(tmp_path):
    """Two columns of one name are written as they are, and cannot be shredded, since schemas are given by name."""
    table = pa.Table.from_arrays([column([{"a": 1}]), column([{"a": 2}]), column([{"a": 3}])], ["v", "v", "w"])
    for shred in ("auto", {"v": "a bigint"}):
        with pytest.raises(InvalidSchemaError, match="v is the name of more than one column"):
            write_table(table, tmp_path / "f", shred=shred)
        assert not list(tmp_path.iterdir())
    for shred in (None, {"w": "a bigint"}):
        write_table(table, tmp_path / "f", shred=shred)
        assert [values(column.combine_chunks()) for column in read_table(tmp_path / "f").columns] == [
            [{"a": n}] for n in (1, 2, 3)
        ]


def test_malformed_variants_leave_no_file(tmp_path):
    """Malformed bytes that are found while shredding raise DeltaVariantError, and no file is left."""
    broken = pa.array([{"metadata": b"\x01\x00\x00", "value": b"\x02\x09\x00"}], PLAIN)
    with pytest.raises(DeltaVariantError):
        write_table(pa.table({"v": broken}), tmp_path / "f", shred={"v": "a bigint"})
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------------------------------------- Spark


@pytest.mark.spark
@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_spark_reads_every_encoding(spark, tmp_path, vectorized):
    """Both of Spark's readers give the values that went in, for every encoding and with nulls, and find the VARIANT."""
    columns = {name: with_gaps(array) for name, (array, _) in COLUMNS.items()}
    columns |= {
        f"{kind}": with_gaps(pa.array([i % 100 for i in range(ROWS)], kind)) for kind in (pa.int8(), pa.int16(), pa.int32())
    }
    ordinary = pa.table({name.replace(" ", "_").replace(",", ""): array for name, array in columns.items()})
    rows = [{"i": i, "s": f"s{i}", "f": i / 3, "d": Decimal(i).scaleb(-2)} for i in range(ROWS)]
    variant = shredding.shred(column(rows), "i bigint, s string, f double, d decimal(18,2)")
    write(tmp_path / "f.parquet", ordinary.append_column("v", variant), {V}, metadata={"org.apache.spark.version": "4.2.0"})
    gets = [f"variant_get(v, '$.{name}', '{kind}') {name}" for name, kind in
            (("i", "long"), ("s", "string"), ("f", "double"), ("d", "decimal(18,2)"))]  # fmt: skip
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
    try:
        frame = spark.read.parquet(str(tmp_path / "f.parquet"))
        assert frame.schema["v"].dataType.simpleString() == "variant"
        assert frame.drop("v").toArrow().cast(ordinary.schema).equals(ordinary)
        assert frame.selectExpr(gets).toArrow().to_pylist() == rows
    finally:
        spark.conf.unset("spark.sql.parquet.enableVectorizedReader")


@pytest.mark.spark
def test_spark_does_not_lose_rows_to_a_nan(spark, tmp_path):
    """Spark finds a NaN by a comparison that only NaN satisfies: no statistics let it drop the row group (F5)."""
    table = pa.table({"d": [1.0, math.nan], "f": pa.array([1.0, math.nan], pa.float32())})
    write(tmp_path / "f.parquet", table)
    frame = spark.read.parquet(str(tmp_path / "f.parquet"))
    assert frame.where("d > 5").count() == 1
    assert frame.where("f > 5").count() == 1
