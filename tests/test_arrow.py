"""The extension type arrow.parquet.variant: its storage types, Arrow's worked examples, and exchange with other libraries."""

from __future__ import annotations

import datetime as dt
import io
import json
import pickle
import struct
import subprocess
import sys
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather

from delta_variant import arrow, binary, schema, shredding
from delta_variant import types as t
from delta_variant.arrow import VariantArray, VariantType
from delta_variant.errors import InvalidLayoutError, UnsupportedFeatureError
from delta_variant.parquet import write_table
from tests.strategies import SCHEMAS, VARIANTS, column, same, values
from tests.versions import needs_duckdb


@pytest.fixture(scope="module", autouse=True)
def registered():
    pa.register_extension_type(VariantType())
    yield
    pa.unregister_extension_type(arrow.NAME)


REQUIRED = pa.field("metadata", pa.binary(), False)
VALUE = pa.field("value", pa.binary())

ROWS = [
    {"id": 1, "tags": ["a", "b"], "at": {"x": 1.5}},
    {"id": "one", "tags": ["c", None, 3], "rest": [True]},
    "SQL NULL",
    None,
    {"id": -7, "tags": [], "at": {"x": None, "y": b"\0"}},
    "a string, and longer than the twelve bytes that a view keeps in itself",
    {},
]
AS_TYPE = "id bigint, tags array<string>, at struct<x: double, y: binary>"


def typed(array):
    return VariantType(array.type).wrap_array(array)


def natural(rows):
    """What to_pylist makes of rows: NULL and a Variant null are both None."""
    return [None if isinstance(row, str) and row == "SQL NULL" else row for row in rows]


def both_kinds():
    """The rows as an unshredded and as a shredded column of the extension type."""
    plain = column(ROWS)
    return [typed(plain), typed(shredding.shred(plain, AS_TYPE))]


KINDS = pytest.mark.parametrize("array", both_kinds(), ids=["unshredded", "shredded"])


# -------------------------------------------------------------------------------------------------------------- the type


def group(typed_value):
    return pa.struct([VALUE, ("typed_value", typed_value)])


def groups(**types):
    return pa.struct([pa.field(name, group(kind), False) for name, kind in types.items()])


def listed(element, list_type=pa.list_):
    return list_type(pa.field("element", element, False))


def encoded_type(kind):
    return pa.field("metadata", kind, False)


GROUP = group(pa.string())
TOGETHER = groups(  # Arrow's "Putting it all together"
    event_type=pa.string(),
    event_ts=pa.timestamp("us", "UTC"),
    location=groups(longitude=pa.float64(), latitude=pa.float64()),
    tags=listed(GROUP),
)
ALLOWED = [
    pa.struct([REQUIRED, VALUE]),
    pa.struct([VALUE, REQUIRED]),
    pa.struct([encoded_type(pa.dictionary(pa.int8(), pa.binary())), ("value", pa.binary_view())]),
    pa.struct([encoded_type(pa.run_end_encoded(pa.int16(), pa.binary())), ("value", pa.large_binary())]),
    pa.struct([REQUIRED, VALUE, ("typed_value", pa.int64())]),
    pa.struct([("typed_value", pa.uuid()), REQUIRED]),
    pa.struct([REQUIRED, VALUE, ("typed_value", listed(GROUP))]),
    pa.struct([REQUIRED, VALUE, ("typed_value", listed(GROUP, pa.large_list_view))]),
    pa.struct([REQUIRED, VALUE, ("typed_value", groups(event_type=pa.string(), event_ts=pa.timestamp("us", "UTC")))]),
    pa.struct([REQUIRED, VALUE, ("typed_value", TOGETHER)]),
]


def shredded_as(typed_value):
    return pa.struct([REQUIRED, VALUE, ("typed_value", typed_value)])


REFUSED = [
    (pa.binary(), r"at \$: .* a struct"),
    (pa.struct([]), r"at \$: .* a struct"),
    (pa.struct([REQUIRED]), r"at \$: .* value and typed_value"),
    (pa.struct([VALUE]), r"at \$: .* metadata"),
    (pa.struct([VALUE, ("Metadata", pa.binary())]), r"at \$: .* metadata"),
    (pa.struct([REQUIRED, VALUE, ("extra", pa.binary())]), r"at \$: .* extra"),
    (pa.struct([REQUIRED, VALUE, VALUE]), r"at \$: a group"),
    (pa.struct([("metadata", pa.string()), VALUE]), r"at \$: metadata is binary, not"),
    (pa.struct([("metadata", pa.dictionary(pa.int8(), pa.string())), VALUE]), r"at \$: metadata is binary, not"),
    (pa.struct([REQUIRED, ("value", pa.string())]), r"at \$: value is .* not string"),
    (shredded_as(pa.uint32()), r"at \$: .* uint32"),
    (shredded_as(pa.timestamp("ms")), r"at \$: .* timestamp\[ms\]"),
    (shredded_as(pa.list_(pa.string())), r"at \$\[\*\]: a group"),
    (shredded_as(pa.list_(GROUP, 2)), r"at \$: .* fixed_size_list"),
    (shredded_as(pa.struct([])), r"at \$: an object needs fields"),
    (shredded_as(pa.struct([("a", pa.int64())])), r"at \$.a: a group"),
    (shredded_as(pa.struct([("a", pa.struct([REQUIRED, VALUE]))])), r"at \$.a: a group"),
    (shredded_as(pa.struct([("a", pa.struct([("value", pa.string())]))])), r"at \$.a: value is .* not string"),
]


@pytest.mark.parametrize("storage", ALLOWED, ids=str)
def test_storage_of_the_specification(storage):
    """Every storage type that the specification and its examples list is accepted, and is serialized to an empty string."""
    kind = VariantType(storage)
    assert (kind.storage_type, kind.extension_name) == (storage, "arrow.parquet.variant")
    assert kind.__arrow_ext_serialize__() == b""
    assert kind == VariantType(storage)


@pytest.mark.parametrize(("storage", "message"), REFUSED, ids=lambda part: str(part)[:60])
def test_other_storage_is_refused(storage, message):
    """Any other storage type, with unsigned integers for example, is an error that names the path and the type (A2)."""
    with pytest.raises(InvalidLayoutError, match=message):
        VariantType(storage)


def test_schemas_of_shredding_have_storage():
    """The storage type of any shredding schema is accepted by the extension type."""

    @given(SCHEMAS)
    def check(as_type):
        VariantType(shredding.storage_type(as_type))

    check()


def ipc(array):
    sink, batch = io.BytesIO(), pa.record_batch([array], ["v"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_all()["v"].combine_chunks()


def feathered(array):
    sink = io.BytesIO()
    feather.write_feather(pa.table({"v": array}), sink)
    return feather.read_table(sink)["v"].combine_chunks()


def sliced(array):
    return pa.concat_arrays([array[3:], array, array[:2]])[len(array) - 3 : -2]


def nested(array):
    """The array after it went through IPC inside a list inside a struct."""
    lists = pa.ListArray.from_arrays(pa.array([0, len(array)], pa.int32()), array)
    return ipc(pa.StructArray.from_arrays([lists], ["l"])).field("l").flatten()


JOURNEYS = {
    "IPC": ipc,
    "Feather": feathered,
    "C data interface": lambda array: pa.Array._import_from_c_capsule(*array.__arrow_c_array__()),
    "pickle": lambda array: pickle.loads(pickle.dumps(array)),
    "slice and concat": sliced,
    "chunked": lambda array: pa.chunked_array([array[:2], array[2:2], array[2:]]).combine_chunks(),
    "take": lambda array: array.take(pa.array(range(len(array)))[::-1]).take(pa.array(range(len(array)))[::-1]),
    "filter": lambda array: array.filter(pa.array([True] * len(array))),
    "nested": nested,
    "pandas": lambda array: pa.array(pd.Series(array, dtype=pd.ArrowDtype(array.type))),
    "record batch": lambda array: pa.Table.from_batches([pa.record_batch({"v": array})]).column("v").chunk(0),
}


@KINDS
@pytest.mark.parametrize("journey", JOURNEYS.values(), ids=JOURNEYS)
def test_the_type_survives(array, journey):
    """Type, NULLs and values survive IPC, Feather, the C data interface, pickle, pandas, and slicing, taking and filtering."""
    arrived = journey(array)
    assert type(arrived) is VariantArray
    assert arrived.type == array.type
    assert arrived.is_null().equals(array.is_null())
    assert all(map(same, arrived.to_pylist(), natural(ROWS)))


@KINDS
def test_python_values(array):
    """to_pylist and as_py give Python values, in chunked arrays, structs, lists and scalars too."""
    wanted = natural(ROWS)
    assert all(map(same, array.to_pylist(), wanted))
    assert all(map(same, [scalar.as_py() for scalar in array], wanted))
    assert all(map(same, pa.chunked_array([array[:3], array[3:]]).to_pylist(), wanted))
    rows = pa.StructArray.from_arrays([array], ["v"])
    assert all(map(same, [row["v"] for row in rows.to_pylist()], wanted))
    lists = pa.ListArray.from_arrays(pa.array([0, len(array)], pa.int32()), array)
    assert all(map(same, lists.to_pylist()[0], wanted))
    again = VariantArray.from_pylist(list(array))
    assert again.is_null().equals(array.is_null())
    assert all(map(same, again.to_pylist(), wanted))


def test_types_are_keys():
    """Types that are equal have one hash, also if the elements of their lists have other names, and so have schemas."""
    storage = shredding.storage_type(schema.parse("array<int>"))
    group = storage.field("typed_value").type.value_type
    lists = [pa.list_(pa.field(name, group)) for name in ("element", "item")]
    types = [VariantType(pa.struct([*list(storage)[:2], pa.field("typed_value", kind)])) for kind in lists]
    assert types[0] == types[1]
    assert len(set(types)) == 1
    assert hash(pa.schema([("v", types[0])])) == hash(pa.schema([("v", types[0])]))


@given(st.lists(st.one_of(VARIANTS, st.none()), max_size=6))
def test_from_python_values(rows):
    """to_pylist gives what from_pylist got; None becomes NULL, and a None inside a value a Variant null."""
    array = VariantArray.from_pylist(rows)
    array.validate(full=True)
    assert type(array) is VariantArray
    assert array.is_null().to_pylist() == [row is None for row in rows]
    encoded = [row if row is None else binary.decode(*binary.encode(row)) for row in rows]
    assert all(map(same, array.to_pylist(), encoded))


# ---------------------------------------------------------------------------------------------------------- registration


def marked(array):
    """The array in a stream as any producer of the extension type writes it: the type is in the field's metadata."""
    marks = {"ARROW:extension:name": "arrow.parquet.variant", "ARROW:extension:metadata": ""}
    batch = pa.record_batch([array], pa.schema([pa.field("v", array.type, metadata=marks)]))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def test_columns_of_other_producers_get_the_type():
    """A column marked with the canonical name and an empty metadata string arrives as a VariantArray."""
    arrived = pa.ipc.open_stream(marked(column(ROWS))).read_all()["v"].chunk(0)
    assert type(arrived) is VariantArray
    assert all(map(same, arrived.to_pylist(), natural(ROWS)))


def test_a_wrong_storage_in_a_stream_is_refused():
    """A stream whose column cannot be a Variant is an error, not a column with a false type."""
    with pytest.raises(InvalidLayoutError, match=r"at \$: value is .* not int64"):
        pa.ipc.open_stream(marked(pa.array([{"metadata": b"", "value": 1}], pa.struct([REQUIRED, ("value", pa.int64())]))))


TWICE = """
import importlib, io, sys
import pyarrow as pa, pyarrow.dataset as ds, pyarrow.parquet as pq
from delta_variant import arrow, errors
old, guards = arrow.VariantType(), (pq.ParquetWriter.__init__, ds._filesystemdataset_write)
importlib.reload(arrow)
assert guards == (pq.ParquetWriter.__init__, ds._filesystemdataset_write)
array = pa.ipc.open_stream(sys.stdin.buffer.read()).read_all()["v"]
assert type(array.chunk(0)) is arrow.VariantArray
for kind in (old, array.type):
    try:
        pq.ParquetWriter(io.BytesIO(), pa.schema([("v", kind)]))
    except errors.UnsupportedFeatureError:
        print(array.to_pylist())
"""


FOREIGN = """
import pyarrow as pa

class Foreign(pa.ExtensionType):
    def __init__(self, storage):
        super().__init__(storage, "arrow.parquet.variant")
    def __arrow_ext_serialize__(self):
        return b""
    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        return cls(storage)

pa.register_extension_type(Foreign(pa.struct([])))

import sys
from delta_variant import arrow
array = pa.ipc.open_stream(sys.stdin.buffer.read()).read_all()["v"]
assert type(array.type) is Foreign
assert type(arrow.unshredded(array).type) is arrow.VariantType
print(arrow.unshredded(array).to_pylist())
"""


def run(program):
    """What a program prints that runs in its own process and reads a stream of one marked column."""
    stream = marked(column([{"a": 1}]))
    return (
        subprocess.run([sys.executable, "-c", program], input=stream, capture_output=True, check=True).stdout.decode().strip()
    )


def test_registration_is_idempotent():
    """Importing the module registers the type; importing it again neither fails nor wraps pyarrow's writers twice (A1)."""
    assert run(TWICE).splitlines() == ["[{'a': 1}]"] * 2


def test_a_type_that_is_registered_already_stays():
    """If another library has registered the name first, streams have its type, and the functions here accept its arrays."""
    assert run(FOREIGN) == "[{'a': 1}]"


# -------------------------------------------------------------------------------------------------------- Parquet and pyarrow


@KINDS
def test_pyarrow_s_parquet_writers_refuse(array, tmp_path):
    """pyarrow's Parquet writers, which would crash, raise an error that names the column and what to use, at any depth."""
    table = pa.table({"id": range(len(array)), "v": array})
    inner = pa.table({"s": pa.StructArray.from_arrays([table["v"].chunk(0)], ["x"])})
    lists = pa.table({"l": pa.ListArray.from_arrays(pa.array([0, len(array)], pa.int32()), array)})
    for data in (table, inner, lists):
        for write in (
            lambda data: pq.write_table(data, io.BytesIO()),
            lambda data: pq.ParquetWriter(io.BytesIO(), schema=data.schema),
            lambda data: ds.write_dataset(data, tmp_path / "d", format="parquet"),
            lambda data: pq.write_to_dataset(data, tmp_path / "d"),
        ):
            with pytest.raises(UnsupportedFeatureError, match=f"column {data.column_names[-1]} .*delta_variant.parquet"):
                write(data)
    ds.write_dataset(table, tmp_path / "d", format="ipc")
    assert ds.dataset(tmp_path / "d", format="ipc").to_table().equals(table)
    pq.write_table(pa.table({"v": array.storage}), tmp_path / "f")
    assert pq.read_table(tmp_path / "f")["v"].chunk(0).equals(array.storage)


@pytest.mark.skipif(int(pa.__version__.split(".")[0]) < 24, reason="pyarrow gives annotated columns no type yet")
@KINDS
def test_pyarrow_reads_annotated_columns_as_the_type(array, tmp_path):
    """pyarrow reads VARIANT columns as the extension type, and as their storage, whole or in part, if such types are off."""
    write_table(pa.table({"v": array.storage}), tmp_path / "f")
    read = pq.read_table(tmp_path / "f")["v"].chunk(0)
    assert type(read) is VariantArray
    assert all(map(same, read.to_pylist(), natural(ROWS)))
    for name in ("v", "v.value"):
        plain = pq.ParquetFile(tmp_path / "f", arrow_extensions_enabled=False).read(columns=[name])
        assert plain.schema.field("v").type.get_field_index("value") >= 0


# ------------------------------------------------------------------------------------------------------------- whole columns


@given(st.lists(st.one_of(VARIANTS, st.just("SQL NULL")), max_size=6), SCHEMAS)
def test_json_of_columns(rows, as_type):
    """The JSON of a column, shredded or in chunks, is that of its values one by one; a NULL row gives NULL."""
    plain = column(rows)
    wanted = [None if row is None else binary.to_json(**row) for row in plain.to_pylist()]
    assert arrow.to_json(plain).to_pylist() == wanted
    assert arrow.to_json(pa.chunked_array([typed(plain)[1:], typed(plain)[:1]])).to_pylist() == wanted[1:] + wanted[:1]
    shredded = shredding.shred(plain, as_type)
    put_together = [None if row is None else binary.to_json(**row) for row in shredding.unshred(shredded).to_pylist()]
    assert arrow.to_json(typed(shredded)).to_pylist() == put_together
    assert arrow.to_json(plain).type == pa.string()


@KINDS
def test_unshredded_columns(array):
    """`unshredded` gives the extension type over binary metadata and value, for arrays and for any number of chunks."""
    plain = arrow.unshredded(array)
    assert plain.type == VariantType()
    assert plain.type.storage_type == shredding.UNSHREDDED
    assert all(map(same, values(plain.storage), ROWS))
    chunked = arrow.unshredded(pa.chunked_array([array, array[1:]]))
    assert chunked.type == VariantType()
    assert chunked.num_chunks == 2
    assert arrow.unshredded(pa.chunked_array([], array.type)).equals(pa.chunked_array([], VariantType()))
    assert arrow.to_json(pa.chunked_array([], array.type)).equals(pa.chunked_array([], pa.string()))


# ------------------------------------------------------------------------------------------------------------- other libraries

QUAKES = [
    {"place": "Alaska", "mag": Decimal("2.1"), "tags": ["felt", "reviewed"]},
    {"place": "Chile", "mag": 6, "tsunami": True},
    "SQL NULL",
    {"place": "Nevada", "mag": None},
]


def quakes():
    """A shredded column, as a reader of Parquet files would hand it over."""
    return typed(shredding.shred(column(QUAKES), "place string, mag decimal(9,2)"))


@needs_duckdb(2, "takes the extension type for its storage")
def test_duckdb_over_arrow():
    """DuckDB reads an unshredded column of the extension type as its VARIANT, and returns its VARIANTs as that type."""
    events = pa.table({"id": [1, 2, 3, 4], "v": arrow.unshredded(quakes())})

    connection = duckdb.connect()
    connection.register("events", events)
    large = connection.sql("SELECT id, v.place::VARCHAR AS place FROM events WHERE v.mag::DOUBLE > 2 ORDER BY id")
    assert large.fetchall() == [(1, "Alaska"), (2, "Chile")]

    made = connection.sql("SELECT {'id': id, 'place': v.place}::VARIANT AS v FROM events ORDER BY id").to_arrow_table()
    assert made["v"].type.extension_name == "arrow.parquet.variant"
    assert made["v"].to_pylist()[:2] == [{"id": 1, "place": "Alaska"}, {"id": 2, "place": "Chile"}]


def test_duckdb_from_a_parquet_file(tmp_path):
    """DuckDB reads VARIANT columns of files, shredded ones too."""
    write_table(pa.table({"v": quakes().storage}), tmp_path / "quakes.parquet")

    rows = duckdb.sql(f"SELECT typeof(v), v.mag::DOUBLE FROM '{tmp_path}/quakes.parquet' WHERE v.place::VARCHAR = 'Chile'")
    assert rows.fetchall() == [("VARIANT", 6.0)]


def test_duckdb_as_json():
    """DuckDB extracts paths from the JSON text of a column."""
    events = pa.table({"v": arrow.to_json(quakes())})

    connection = duckdb.connect()
    connection.register("events", events)
    assert connection.sql("SELECT v ->> '$.place' FROM events WHERE (v ->> '$.mag')::DOUBLE > 6 - 1").fetchall() == [("Chile",)]


def test_polars_carries_the_type():
    """Polars keeps the extension type while it filters and sorts by other columns, and returns it."""
    frame = pl.DataFrame(pa.table({"id": [1, 2, 3, 4], "v": quakes()}))

    back = frame.filter(pl.col("id") != 3).sort("id", descending=True).to_arrow()
    assert type(back["v"].type) is VariantType
    assert [row["place"] for row in back["v"].to_pylist()] == ["Nevada", "Chile", "Alaska"]


def test_polars_as_json():
    """Polars extracts paths from the JSON text of a column."""
    frame = pl.DataFrame({"v": pl.Series(arrow.to_json(quakes()))})

    mag = frame.select(pl.col("v").str.json_path_match("$.mag").cast(pl.Decimal(9, 2)))["mag" if "mag" in frame else "v"]
    assert mag.to_list() == [Decimal("2.10"), Decimal("6.00"), None, None]
    place = frame["v"].str.json_decode(pl.Struct({"place": pl.String})).struct.field("place")
    assert place.to_list() == ["Alaska", "Chile", None, "Nevada"]


def test_polars_reads_typed_columns():
    """The typed columns of a shredded Variant are ordinary Polars columns below the extension type's storage."""
    frame = pl.DataFrame(pa.table({"v": quakes()}))

    place = frame["v"].ext.storage().struct.field("typed_value").struct.field("place").struct.field("typed_value")
    assert place.to_list() == ["Alaska", "Chile", None, "Nevada"]


def test_pandas_keeps_the_type():
    """With ArrowDtype a pandas column keeps the type; its elements are Python values, and it goes back to Arrow unchanged."""
    table = pa.table({"v": quakes()})
    frame = table.to_pandas(types_mapper=pd.ArrowDtype)

    assert frame["v"].iloc[0] == {"place": "Alaska", "mag": Decimal("2.10"), "tags": ["felt", "reviewed"]}
    assert [quake["place"] for quake in frame["v"].dropna()] == ["Alaska", "Chile", "Nevada"]
    assert pa.Table.from_pandas(frame)["v"].combine_chunks().equals(table["v"].combine_chunks())


def test_pandas_objects_and_json():
    """A column becomes Python values, or JSON text, in an ordinary pandas Series."""
    objects = pd.Series(quakes().to_pylist())
    assert objects[1]["tsunami"] is True
    assert objects.isna().tolist() == [False, False, True, False]

    texts = arrow.to_json(quakes()).to_pandas()
    assert json.loads(texts[0])["tags"] == ["felt", "reviewed"]
    assert texts[2] is None


# ------------------------------------------------------------------------------------------------- Arrow's worked examples
# The buffers of "Canonical Extension Examples", as printed there, with arbitrary bytes where it says "unspecified". Misprints
# are corrected, and the docstrings list them.

BINARY, STRING = pa.binary(), pa.string()


def bits(*octets):
    """A validity bitmap of bytes as the text prints them, most significant bit first, padded with zeros."""
    return pa.py_buffer(bytes(int(octet, 2) for octet in octets).ljust(64, b"\0"))


def unspecified(data):
    return pa.py_buffer(data + b"\xa5" * (-len(data) % 64))


def int32s(*numbers):
    return unspecified(struct.pack(f"<{len(numbers)}i", *numbers))


def int64s(*numbers):
    return unspecified(struct.pack(f"<{len(numbers)}q", *numbers))


def from_buffers(kind, length, nulls, *buffers, children=None):
    array = pa.Array.from_buffers(kind, length, list(buffers), null_count=nulls, children=children)
    array.validate(full=True)
    return array


def test_simple_shredding():
    """The buffers of Arrow's "Simple Shredding" give 34, NULL, "n/a" and 100.

    Corrected: the bits of the validity bitmap are printed in reverse, which makes the third row NULL instead of the second. The
    header of the short string "n/a" is printed as 0x13, an array; 3 << 2 | 1 is 13 in decimal, 0x0D.

    Without the validity bitmap, the second row is a Variant null.
    """
    metadata = from_buffers(BINARY, 4, 0, None, int32s(0, 2, 4, 6, 8), unspecified(bytes.fromhex("0100010001000100")))
    value = from_buffers(BINARY, 4, 2, bits("00000110"), int32s(0, 0, 1, 5, 5), unspecified(bytes.fromhex("000D6E2F61")))
    typed_value = from_buffers(pa.int64(), 4, 2, bits("00001001"), int64s(34, 0, 0, 100))
    kind = pa.struct([REQUIRED, VALUE, ("typed_value", pa.int64())])
    array = from_buffers(kind, 4, 1, bits("00001101"), children=[metadata, value, typed_value])
    assert values(shredding.unshred(array)) == [34, "SQL NULL", "n/a", 100]
    present = from_buffers(kind, 4, 0, None, children=[metadata, value, typed_value])
    assert values(shredding.unshred(present)) == [34, None, "n/a", 100]
    assert typed(present).to_pylist() == [34, None, "n/a", 100]


def test_shredding_an_array():
    """The buffers of Arrow's "Shredding an Array" give three arrays of genres and a NULL row.

    Corrected: the null count of `value` is printed as 1, and is 3 by the bitmap beside it.
    """
    metadata = from_buffers(BINARY, 4, 0, None, int32s(0, 2, 4, 6, 8), unspecified(bytes.fromhex("0100010001000100")))
    value = from_buffers(BINARY, 4, 3, bits("00001000"), int32s(0, 0, 0, 0, 1), unspecified(b"\0"))
    element_value = from_buffers(BINARY, 7, 6, bits("00001000"), int32s(0, 0, 0, 0, 1, 1, 1, 1), unspecified(b"\0"))
    texts = unspecified(b"comedydramahorrorcomedydramaromance")
    element_typed = from_buffers(STRING, 7, 1, bits("01110111"), int32s(0, 6, 11, 17, 17, 23, 28, 35), texts)
    element = from_buffers(GROUP, 7, 0, None, children=[element_value, element_typed])
    lists = pa.list_(pa.field("element", GROUP, False))
    typed_value = from_buffers(lists, 4, 1, bits("00000111"), int32s(0, 2, 4, 7, 7), children=[element])
    kind = pa.struct([REQUIRED, VALUE, ("typed_value", lists)])
    array = from_buffers(kind, 4, 1, bits("00000111"), children=[metadata, value, typed_value])
    wanted = [["comedy", "drama"], ["horror", None], ["comedy", "drama", "romance"], "SQL NULL"]
    assert values(shredding.unshred(array)) == wanted
    assert typed(array).to_pylist() == natural(wanted)


def encoded(*rows):
    """The offsets and the bytes of encoded values; None takes no bytes."""
    parts = [b"" if row is None else binary.encode(row)[1] for row in rows]
    return int32s(*np.cumsum([0, *map(len, parts)])), unspecified(b"".join(parts))


def test_shredding_an_object():
    """The buffers of Arrow's "Shredding an Object" give its ten rows, although their metadata lacks the shredded names.

    Corrected: the sixth object names `event_ts` twice, the first time for `event_type`. `event_type.value` is set in the sixth
    row, as its offsets say, and not in the seventh, as its bitmap says. The buffers have "user@email.com" for the
    "user@example.com" of the series.
    """
    keys = [b"\1\0", b"\1\1\0\5email", b"\1\1\0\x09error_msg", b"\1\0", b"\1\1\0\5click", *[b"\1\0"] * 5]
    offsets = int32s(0, 2, 11, 24, 26, 35, 37, 39, 41, 43, 45)
    metadata = from_buffers(BINARY, 10, 0, None, offsets, unspecified(b"".join(keys)))
    rest = [{"email": "user@example.com"}, {"error_msg": "malformed..."}, "malformed: not an object", {"click": "_button"}]
    written = encoded(None, *rest, None, None, None, None, None)
    null = pa.py_buffer(written[1].to_pybytes().rstrip(b"\xa5") + b"\0")
    ends = np.frombuffer(written[0], np.int32)[:11].copy()
    ends[9:] += 1
    value = from_buffers(BINARY, 10, 5, bits("00011110", "00000001"), int32s(*ends), null)

    type_value = from_buffers(
        BINARY, 10, 9, bits("00100000", "00000000"), int32s(0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1), unspecified(b"\0")
    )
    type_offsets = int32s(0, 4, 9, 9, 9, 9, 9, 13, 13, 13, 13)
    type_typed = from_buffers(STRING, 10, 7, bits("01000011", "00000000"), type_offsets, unspecified(b"nooploginnoop"))
    event_type = from_buffers(GROUP, 10, 0, None, children=[type_value, type_typed])

    late = encoded(*[None] * 6, "2024-10-24", *[None] * 3)
    ts_value = from_buffers(BINARY, 10, 9, bits("01000000", "00000000"), *late)
    x = 0x5A5A5A5A5A5A5A5A  # "unspecified"
    stamps = int64s(1729794114937, 1729794146402, x, x, 1729794240241, 1729794954163, x, x, x, x)
    ts_typed = from_buffers(pa.timestamp("us", "UTC"), 10, 6, bits("00110011", "00000000"), stamps)
    ts_group = pa.struct([VALUE, ("typed_value", pa.timestamp("us", "UTC"))])
    event_ts = from_buffers(ts_group, 10, 0, None, children=[ts_value, ts_typed])

    objects = pa.struct([pa.field("event_type", GROUP, False), pa.field("event_ts", ts_group, False)])
    typed_value = from_buffers(objects, 10, 3, bits("11110111", "00000000"), children=[event_type, event_ts])
    kind = pa.struct([REQUIRED, VALUE, ("typed_value", objects)])
    array = from_buffers(kind, 10, 1, bits("11111111", "00000001"), children=[metadata, value, typed_value])

    def at(micros):
        return dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(microseconds=micros)

    wanted = [
        {"event_type": "noop", "event_ts": at(1729794114937)},
        {"event_type": "login", "event_ts": at(1729794146402), "email": "user@example.com"},
        {"error_msg": "malformed..."},
        "malformed: not an object",
        {"event_ts": at(1729794240241), "click": "_button"},
        {"event_type": None, "event_ts": at(1729794954163)},
        {"event_type": "noop", "event_ts": "2024-10-24"},
        {},
        None,
        "SQL NULL",
    ]
    assert values(shredding.unshred(array)) == wanted
    assert typed(array).to_pylist() == natural(wanted)


# ----------------------------------------------------------------------------------------------------- storage alternatives

BINARIES = [pa.binary(), pa.large_binary(), pa.binary_view()]
STRINGS = [pa.string(), pa.large_string(), pa.string_view()]
LISTS = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view]
INDEXES = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
RUN_ENDS = [pa.int16(), pa.int32(), pa.int64()]
ENCODINGS = [None, *INDEXES, *(("runs", kind) for kind in RUN_ENDS)]


def stored(array, binary_type, string_type, list_type, turned):
    """The array in other forms of binary, string and list; with `turned`, the fields of its structs are in reverse."""
    kind, form = array.type, (binary_type, string_type, list_type, turned)
    if pa.types.is_struct(kind):
        order = range(kind.num_fields)[:: -1 if turned else 1]
        children = [stored(array.field(i), *form) for i in order]
        fields = [kind.field(i).with_type(child.type) for i, child in zip(order, children, strict=True)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
    if pa.types.is_list(kind):
        assert array.offset == 0
        elements, ends = stored(array.values, *form), np.asarray(array.offsets)
        built = list_type(kind.value_field.with_type(elements.type))
        width = np.int64 if isinstance(built, pa.LargeListType | pa.LargeListViewType) else np.int32
        parts = [ends] if list_type in LISTS[:2] else [ends[:-1], np.diff(ends)]
        buffers = [array.buffers()[0], *(pa.py_buffer(part.astype(width)) for part in parts)]
        return pa.Array.from_buffers(built, len(array), buffers, children=[elements])
    return array.cast({pa.binary(): binary_type, pa.string(): string_type}.get(kind, kind))


def encoded_metadata(metadata, encoding):
    """Metadata dictionary-encoded with an index type, run-end-encoded with a type of run ends, or as it is."""
    if encoding is None:
        return metadata
    texts = metadata.to_pylist()
    if isinstance(encoding, tuple):
        ends = [i + 1 for i in range(len(texts)) if i + 1 == len(texts) or texts[i] != texts[i + 1]]
        runs = [texts[end - 1] for end in ends]
        return pa.RunEndEncodedArray.from_arrays(pa.array(ends, encoding[1]), pa.array(runs, metadata.type))
    distinct = sorted(set(texts) - {None})
    indexes = [None if text is None else distinct.index(text) for text in texts]
    return pa.DictionaryArray.from_arrays(pa.array(indexes, encoding), pa.array(distinct, metadata.type))


def restored(array, binary_type=BINARIES[0], string_type=STRINGS[0], list_type=LISTS[0], encoding=None, turned=False):
    """A VARIANT column in another storage; a slice, so that no offset is 0."""
    built = stored(pa.concat_arrays([array[-1:], array, array[:1]]), binary_type, string_type, list_type, turned)
    children = [built.field(i) for i in range(built.type.num_fields)]
    at = built.type.get_field_index("metadata")
    children[at] = encoded_metadata(children[at], encoding)
    fields = [field.with_type(child.type) for field, child in zip(built.type, children, strict=True)]
    whole = pa.StructArray.from_arrays(children, fields=fields, mask=built.is_null())
    whole.validate(full=True)
    return typed(whole[1 : 1 + len(array)])


FORMS = (
    [{"binary_type": kind, "encoding": encoding} for kind in BINARIES for encoding in ENCODINGS]
    + [{"string_type": kind} for kind in STRINGS]
    + [{"list_type": kind} for kind in LISTS]
    + [{"turned": True}]
)


def shown(form):
    return " ".join(getattr(part, "__name__", str(part)) for part in form.values())


@pytest.mark.parametrize("form", FORMS, ids=shown)
def test_every_storage(form):
    """Any form of binary, string and list, encoding of metadata and order of fields gives the same columns and schema (A1)."""
    plain = column(ROWS)
    shredded = shredding.shred(plain, AS_TYPE)
    assert shredding.unshred(restored(shredded, **form)).equals(shredding.unshred(shredded))
    stored = restored(plain, **form)
    assert shredding.unshred(stored).equals(shredding.unshred(plain))
    assert shredding.shred(stored, AS_TYPE).equals(shredded)
    assert schema.infer(stored) == schema.infer(plain)


@pytest.mark.parametrize(
    "form", [{"encoding": pa.int8()}, {"encoding": ("runs", pa.int32())}, {"list_type": pa.list_view}], ids=shown
)
def test_storage_of_many_rows(form):
    """A column of more rows than one chunk is unshredded to the same rows in another storage form."""
    plain = column(ROWS).take(pa.array(np.arange(40_000) % len(ROWS)))
    shredded = shredding.shred(plain, AS_TYPE)
    assert shredding.unshred(restored(shredded, **form)).equals(shredding.unshred(shredded))


@given(
    st.lists(st.one_of(VARIANTS, st.just("SQL NULL")), min_size=1, max_size=6),
    SCHEMAS,
    st.fixed_dictionaries(
        {
            "binary_type": st.sampled_from(BINARIES),
            "string_type": st.sampled_from(STRINGS),
            "list_type": st.sampled_from(LISTS),
            "encoding": st.sampled_from(ENCODINGS),
            "turned": st.booleans(),
        }
    ),
)
def test_any_column_in_any_storage(rows, as_type, form):
    """unshred and shred give the same columns for any Variants, any shredding schema and any mixture of storage forms."""
    plain = column(rows)
    shredded = shredding.shred(plain, as_type)
    assert shredding.unshred(restored(shredded, **form)).equals(shredding.unshred(shredded))
    assert shredding.shred(restored(plain, **form), as_type).equals(shredded)


UUID = bytes(range(16))
NOON = dt.datetime(2024, 10, 24, 12, 0, 0, 123456)
LEAVES = [
    (pa.bool_(), [True, False, None], t.TRUE),
    (pa.int8(), [1, -128, None], t.INT8),
    (pa.int16(), [1, -(2**15), None], t.INT16),
    (pa.int32(), [1, -(2**31), None], t.INT32),
    (pa.int64(), [1, -(2**63), None], t.INT64),
    (pa.float32(), [1.5, -0.0, None], t.FLOAT),
    (pa.float64(), [1.5, -0.0, None], t.DOUBLE),
    (pa.decimal32(9, 2), [Decimal("1.00"), Decimal("-9999999.99"), None], t.DECIMAL4),
    (pa.decimal64(18, 2), [Decimal("1.00"), Decimal("-9999999999999999.99"), None], t.DECIMAL8),
    (pa.decimal128(9, 2), [Decimal("1.00"), Decimal("-9999999.99"), None], t.DECIMAL4),
    (pa.decimal128(18, 2), [Decimal("1.00"), Decimal("-9999999999999999.99"), None], t.DECIMAL8),
    (pa.decimal128(38, 2), [Decimal("1.00"), Decimal("-1.10"), None], t.DECIMAL16),
    (pa.decimal256(38, 2), [Decimal("1.00"), Decimal("-1.10"), None], t.DECIMAL16),
    (pa.date32(), [dt.date(2024, 10, 24), dt.date(1, 1, 1), None], t.DATE),
    (pa.time64("us"), [dt.time(12, 0, 0, 1), dt.time(0), None], t.TIME),
    (pa.timestamp("us", "UTC"), [NOON.replace(tzinfo=dt.timezone.utc), None], t.TIMESTAMP),
    (pa.timestamp("us"), [NOON, None], t.TIMESTAMP_NTZ),
    (pa.timestamp("ns", "UTC"), [pd.Timestamp("2024-10-24 12:00:00.123456789", tz="UTC"), None], t.TIMESTAMP_NANOS),
    (pa.timestamp("ns"), [pd.Timestamp("2024-10-24 12:00:00.123456789"), None], t.TIMESTAMP_NTZ_NANOS),
    *((kind, [b"\0\1", b"x" * 70, None], t.BINARY) for kind in BINARIES),
    *((kind, ["", "é" * 40, None], t.STRING) for kind in STRINGS),
    (pa.binary(16), [UUID, None], t.UUID),
    (pa.uuid(), [UUID, None], t.UUID),
]


@pytest.mark.parametrize(
    ("kind", "leaves", "type_id"), LEAVES, ids=lambda part: str(part) if isinstance(part, pa.DataType) else ""
)
def test_every_shredded_type(kind, leaves, type_id):
    """Each Arrow type of a `typed_value` is read as the Variant primitive of the specification's table, with its value (A2)."""
    typed_value = pa.array(leaves * 2, kind)[1 : 1 + len(leaves)]
    wanted = (leaves * 2)[1 : 1 + len(leaves)]
    metadata = pa.array([b"\1\0\0"] * len(wanted), pa.binary())
    array = pa.StructArray.from_arrays([metadata, typed_value], fields=[REQUIRED, pa.field("typed_value", kind)])
    unshredded = shredding.unshred(typed(array))
    for row, leaf in zip(unshredded.to_pylist(), wanted, strict=True):
        header = row["value"][0]
        if leaf is None:
            assert row["value"] == b"\0"
            continue
        if type_id == t.STRING and len(leaf.encode()) <= t.SHORT_STRING_MAX:
            assert header & 3 == t.SHORT_STRING
        else:
            assert header & 3 == t.PRIMITIVE
            assert header >> 2 == (t.FALSE if leaf is False else type_id)
        decoded = binary.decode(**row)
        assert (decoded.bytes if type_id == t.UUID else decoded) == leaf
        assert str(decoded) == str(leaf) or type_id in (t.UUID, t.BINARY)  # -0.0, and the scale of a decimal


def test_list_views_in_any_order():
    """List views may be in any order, overlap and leave gaps, and a NULL view may point at anything."""
    element = pa.StructArray.from_arrays(
        [pa.array([None, None, None, b"\0"], pa.binary_view()), pa.array(["a", "b", "c", None], pa.string_view())],
        fields=[pa.field("value", pa.binary_view()), pa.field("typed_value", pa.string_view())],
    )
    for kind, index in ((pa.ListViewArray, pa.int32()), (pa.LargeListViewArray, pa.int64())):
        offsets, sizes = pa.array([3, 0, 0, 2, 1, 0], index), pa.array([1, 2, 2, 2, 0, 4], index)
        lists = kind.from_arrays(offsets, sizes, element, mask=pa.array([False, False, False, False, False, True]))
        value = pa.array([None] * 5 + [b"\0"], pa.binary())
        array = pa.StructArray.from_arrays(
            [pa.array([b"\1\0\0"] * 6, pa.binary()), value, lists],
            fields=[REQUIRED, VALUE, pa.field("typed_value", lists.type)],
        )
        wanted = [[None], ["a", "b"], ["a", "b"], ["c", None], [], None]
        assert values(shredding.unshred(typed(array))) == wanted
        assert values(shredding.unshred(typed(array)[2:5])) == wanted[2:5]


def test_lists_of_views_of_lists():
    """List views inside large lists are read, in slices too."""
    rows = [{"a": [[1, 2], [], ["x"]]}, {"a": [[3], None]}, "SQL NULL", {"a": [[]]}, {"a": 1}]
    shredded = shredding.shred(column(rows), "a array<array<bigint>>")

    def mixed(kind, depth=0):
        if pa.types.is_struct(kind):
            return pa.struct([field.with_type(mixed(field.type, depth)) for field in kind])
        if pa.types.is_list(kind):
            make = (pa.large_list, pa.list_view)[depth]
            return make(kind.value_field.with_type(mixed(kind.value_type, depth + 1)))
        return kind

    array = pa.array(shredded.to_pylist(), mixed(shredded.type))
    assert values(shredding.unshred(typed(array)[1:])) == values(shredding.unshred(shredded))[1:] == rows[1:]


def test_encoded_metadata_of_views():
    """Metadata may be run-end-encoded binary views, and NULL rows may lack it."""
    texts = pa.array([b"\1\0\0", None, b"\1\1\0\1a"], pa.binary_view())
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 4], pa.int16()), texts)
    value = pa.array([b"\0", b"\x0c\1", None, binary.encode({"a": 1})[1]], pa.large_binary())
    array = pa.StructArray.from_arrays(
        [value, runs], fields=[pa.field("value", value.type), REQUIRED.with_type(runs.type)], mask=pc.is_null(value)
    )
    assert values(shredding.unshred(array)) == [None, 1, "SQL NULL", {"a": 1}]
    assert values(shredding.unshred(array[1:])) == [1, "SQL NULL", {"a": 1}]


@pytest.mark.parametrize("name", ["metadata", "value"])
def test_what_is_no_binary_is_refused(name):
    """metadata or value of another type than binary raises InvalidLayoutError, without the extension type too."""
    kind = pa.struct([field if field.name != name else field.with_type(pa.string()) for field in (REQUIRED, VALUE)])
    array = pa.array([{"metadata": b"\1\0\0", "value": b"\0"}], pa.struct([REQUIRED, VALUE])).cast(kind)
    for call in (shredding.unshred, lambda array: shredding.shred(array, "bigint"), arrow.to_json, arrow.unshredded):
        with pytest.raises(InvalidLayoutError, match="not string"):
            call(array)
