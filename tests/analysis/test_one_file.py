"""The analysis of one file, without Spark: its bounds equal those that `write` gives the same rows. test_analyze has tables."""

from __future__ import annotations

import io
import json
import math
import random
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from delta_variant import layouts, parquet, schema, shredding, stats
from delta_variant.analysis.files import analyze_file
from delta_variant.analysis.plan import AnalysisPlan, AnalyzedColumn
from delta_variant.errors import DeltaVariantError, MalformedVariantError
from delta_variant.messages import AnalyzedFile
from delta_variant.parquet.opening import CountedFile
from delta_variant.schema.of_files import Inference
from delta_variant.stats import rewriting
from delta_variant.storage import Storage
from tests.sources import broken
from tests.strategies import SPARK_SCHEMAS, SPARK_VARIANTS, column

V = ("v",)
SPARK = {"org.apache.spark.version": "4.2.0"}
ORDINARY = '{"numRecords":3,"minValues":{"id":1.10,"s":{"x":"é"}},"maxValues":{"id":1E+5},"nullCount":{"id":0}}'


def plan(paths=(), **changes):
    """A plan for the column v. paths: those asked for by name."""
    columns = (AnalyzedColumn(V, (), True, changes.pop("schema", None), tuple(paths), tuple(paths)),)
    given = {"by_name": bool(paths), "string_prefix": 32, "tags": True, "tags_only": False}
    return AnalysisPlan(Storage.of("/"), columns, **{**given, **changes})


def written(array, *, metadata=SPARK, group_bytes=1 << 20):
    """A file with the column v, as bytes."""
    batch = pa.record_batch([array], ["v"])
    sink = io.BytesIO()
    with parquet.FileWriter(sink, batch.schema, variants=[V], metadata=metadata, row_group_bytes=group_bytes) as writer:
        writer.write(batch)
    return sink.getvalue()


def by_write(array):
    """Statistics and tags that `write` gives a file with this shredded column."""
    batch = pa.record_batch([array], ["v"])
    found = stats.FileStats(batch.schema, variants=[V], indexed=[V])
    found.update(batch)
    return found.json(), found.tags()


def analyzed(data, given=None, *, plan=plan(), tags=None):  # noqa: B008  # a constant
    found = analyze_file(io.BytesIO(data), AnalyzedFile(0, "", given, tags or {}), plan, Inference())
    assert found is not None
    return found


def bounds(found):
    """The bounds of v, decoded: (minima, maxima)."""
    texts = [json.loads(found.stats).get(side, {}).get("v") for side in ("minValues", "maxValues")]
    return tuple({} if text is None else stats.decode_bounds(text) for text in texts)


def without_nulls(text):
    """Statistics without the null counts, of which a footer has only those of typed columns."""
    found = json.loads(text)
    return {side: found.get(side, {}) for side in ("minValues", "maxValues")}, found["numRecords"]


@settings(max_examples=150, deadline=None)
@given(st.lists(SPARK_VARIANTS, min_size=1, max_size=30), SPARK_SCHEMAS, st.sampled_from([SPARK, {}]), st.booleans())
def test_shredded_files_have_the_bounds_of_write(rows, wanted, metadata, small):
    """Footers and typed columns give the bounds and tags that `write` computes from the values (B5, B2, M2)."""
    assume(not pa.types.is_null(wanted))  # plain files are those of the next test
    array = shredding.shred(column([*rows, "SQL NULL"]), wanted)
    nulls = json.dumps({"nullCount": {"v": 1}})
    found = analyzed(written(array, metadata=metadata, group_bytes=200 if small else 1 << 20), nulls)
    wanted_stats, tags = by_write(array)
    if found.tags[stats.BOUNDS_TAG] == stats.TYPED_TAG_VALUE and not metadata:
        return  # paths that Spark may misread are in the tag: `test_what_spark_may_misread`
    assert without_nulls(found.stats) == without_nulls(wanted_stats)
    if found.source != "footer":
        return
    assert {name: text for name, text in found.tags.items() if name == stats.NONNULL_TAG} == {
        name: text for name, text in tags.items() if name == stats.NONNULL_TAG
    }


@settings(max_examples=60, deadline=None)
@given(st.lists(SPARK_VARIANTS, min_size=1, max_size=30))
def test_plain_files_have_the_bounds_of_write(rows):
    """A plain column is shredded in memory as `write` would shred it, and has the bounds and tags of that (B5, F6)."""
    array = column([*rows, "SQL NULL"])
    found = analyzed(written(array))
    wanted = schema.infer(array)
    expected, tags = by_write(shredding.shred(array, wanted)) if wanted is not None else ('{"numRecords":0}', {})
    assert bounds(found) == tuple(
        stats.decode_bounds(text) if text else {}
        for text in (json.loads(expected).get(side, {}).get("v") for side in ("minValues", "maxValues"))
    ) or any(math.isnan(v) for v in bounds(found)[1].values() if isinstance(v, float))
    assert found.tags == {stats.BOUNDS_TAG: stats.BOUNDS_TAG_VALUE, **tags}
    assert found.source == "values"


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 1000), st.data(), st.integers(1, 4))
def test_the_row_of_an_error(rows, data, groups):
    """An error about a value names the column and the row of the file, in whatever row group and batch."""
    at = data.draw(st.integers(0, rows - 1))
    sink = io.BytesIO()
    pq.write_table(broken(rows, at, "byte"), sink, row_group_size=-(-rows // groups))
    with pytest.raises(MalformedVariantError, match=rf"^column v: .*\(at \$.*, row {at}\)$"):
        analyzed(sink.getvalue())


def test_a_footer_is_enough():
    """Of a shredded file the footer alone is read: 64 KiB at the end, whatever the size of the file."""
    rng = random.Random(0)
    rows = [{"id": i, "name": f"n{i}", "at": Decimal(i) / 4, "noise": rng.randbytes(200).hex()} for i in range(20_000)]
    array = shredding.shred(column(rows), "id bigint, name string, at decimal(18,2)")
    data = written(array, group_bytes=4 << 20)
    with CountedFile(pa.BufferReader(data)) as source:
        found = analyze_file(source, AnalyzedFile(0, "", None, {}), plan(), Inference())
        assert source.count <= 1 << 16 < len(data) // 50
    assert found.source == "footer"
    assert found.tags[stats.BOUNDS_TAG] == stats.TYPED_TAG_VALUE
    assert without_nulls(found.stats) == without_nulls(by_write(array)[0])


def test_statistics_of_other_columns_are_kept_byte_for_byte():
    """Numbers keep their digits and members their order; only the column's own bounds are replaced."""
    data = written(shredding.shred(column([{"id": 5}, {"id": 7}, {}]), "id bigint"))
    found = analyzed(data, ORDINARY).stats
    low, high = (stats.encode_bounds({"$['id']": pa.scalar(n, pa.int64())}) for n in (5, 7))
    expected = ORDINARY.replace('"é"}}', f'"é"}},"v":"{low}"}}').replace("1E+5}", f'1E+5,"v":"{high}"}}')
    assert found == expected
    again = analyzed(data, found.replace(low, "old")).stats
    assert again == expected
    assert rewriting.replaced(expected, {("minValues", "v"): None, ("maxValues", "v"): None}) == ORDINARY


@pytest.mark.parametrize("text", ["[1]", "{", '{"minValues" {}}', '{"a":1 "b":2}', "x"])
def test_damaged_statistics(text):
    """Statistics that are no JSON object are an error of the file."""
    data = written(shredding.shred(column([{"id": 5}]), "id bigint"))
    with pytest.raises(DeltaVariantError, match="statistics in the log"):
        analyzed(data, text)


def test_paths_that_are_asked_for():
    """A path asked for by name has bounds beyond the 32, in files that have bounds for others, and from residuals (B5)."""
    rows = [{f"c{n:02}": n for n in range(40)} | {"rare": i} | ({"odd": i} if not i % 40 else {}) for i in range(80)]
    array = shredding.shred(column(rows), pa.struct([(f"c{n:02}", pa.int64()) for n in range(40)]))
    data = written(array)
    first = analyzed(data)
    assert len(bounds(first)[0]) == 32
    asked = [("c39",), ("rare",), ("odd",), ("nowhere",)]
    second = analyzed(data, first.stats, plan=plan(asked), tags=first.tags)
    lows, highs = bounds(second)
    assert set(lows) == set(bounds(first)[0]) | {"$['c39']", "$['rare']", "$['odd']"}
    assert (lows["$['rare']"], highs["$['rare']"], highs["$['odd']"]) == (0, 79, 40)
    assert second.source == "values"
    assert second.tags[stats.BOUNDS_TAG] == stats.BOUNDS_TAG_VALUE, "not every path with bounds is in a typed column"
    again = analyze_file(io.BytesIO(data), AnalyzedFile(0, "", second.stats, second.tags), plan(asked), Inference())
    assert again is None, "nothing changes"
    only = analyzed(data, plan=plan([("c39",)]))
    assert len(bounds(only)[0]) == 33
    assert only.source == "footer"
    assert only.tags[stats.BOUNDS_TAG] == stats.TYPED_TAG_VALUE


def test_times_of_paths_that_are_asked_for():
    """Strings are read for their times if they are asked for, and once they are in the tag they stay there (M3)."""
    rows = [{"at": f"2026-11-{day:02}T00:00:00Z", "id": day} for day in range(1, 20)]
    data = written(shredding.shred(column(rows), "at string, id bigint"))
    assert stats.TIMES_TAG not in analyzed(data).tags
    found = analyzed(data, plan=plan([("at",)]))
    assert found.source == "columns"
    assert found.tags[stats.TIMES_TAG] == by_write(shredding.shred(column(rows), "at string, id bigint"))[1][stats.TIMES_TAG]
    more = analyzed(data, found.stats.replace("numRecords", "n"), plan=plan([("other",)]), tags=found.tags)
    assert more.tags[stats.TIMES_TAG] == found.tags[stats.TIMES_TAG]


def test_what_spark_may_misread():
    """Zeros in another writer's FLOAT and DOUBLE are in the tag, so that the marker can say that the rest is typed (M1)."""
    rows = [{"f": 0.0, "g": 1.5, "d": "x", "id": 1}, {"f": 2.0, "g": 2.5, "d": "y", "id": 2}]
    array = shredding.shred(column(rows), "f double, g double, d string, id bigint")
    ours, others = analyzed(written(array)), analyzed(written(array, metadata={}))
    assert set(bounds(ours)[0]) == {"$['f']", "$['g']", "$['d']", "$['id']"}
    assert stats.NONNULL_TAG not in ours.tags
    assert set(bounds(others)[0]) == {"$['g']", "$['d']", "$['id']"}
    assert stats.decode_bounds(others.tags[stats.NONNULL_TAG]) == {"$['v']": {"['f']": [0, 0, -0.0, 2.0]}}
    assert others.tags[stats.BOUNDS_TAG] == stats.TYPED_TAG_VALUE
    untagged = analyzed(written(array, metadata={}), plan=plan(tags=False))
    assert set(bounds(untagged)[0]) == set(bounds(ours)[0]), "no bound is lost where tags have no room"
    assert untagged.tags == {stats.BOUNDS_TAG: stats.BOUNDS_TAG_VALUE}


def test_names_that_differ_by_case():
    """Spark's reader takes one such field for the other, so the marker does not say that paths are typed (M1)."""
    array = shredding.shred(column([{"id": 1, "ID": 2}]), "id bigint, ID bigint")
    found = analyzed(written(array))
    assert bounds(found)[0] == {"$['id']": 1, "$['ID']": 2}
    assert found.tags[stats.BOUNDS_TAG] == stats.BOUNDS_TAG_VALUE


def test_row_groups_without_a_minimum():
    """A row group whose footer has no minimum, as one with a NaN or a string over 4 KiB, is read (B5)."""
    rows = [{"s": "b", "f": 1.0}, {"s": "a" * 5000, "f": math.nan}, {"s": "c", "f": 3.0}]
    array = shredding.shred(column(rows), "s string, f double")
    found = analyzed(written(array, group_bytes=1))
    assert found.source == "columns"
    lows, highs = bounds(found)
    assert (lows["$['s']"], highs["$['s']"]) == ("a" * 32, "c")
    assert "$['f']" not in lows
    [parent] = stats.decode_bounds(found.tags[stats.NONNULL_TAG]).values()
    assert parent["['f']"][:3] == [0, 0, 1.0]


@pytest.mark.parametrize(("kind", "last"), [("double", math.inf), ("float", -math.inf), ("double", 1.0)])
def test_row_groups_of_infinities(kind, last):
    """Row groups of infinities alone, for which old footers have the largest number, give what `write` gives (B5)."""
    rows = [{"f": np.float32(x) if kind == "float" else x} for x in (math.inf, -math.inf, last)]
    array = shredding.shred(column(rows), f"f {kind}")
    for part in (array, array[:1], array[1:2]):
        assert without_nulls(analyzed(written(part, group_bytes=1)).stats) == without_nulls(by_write(part)[0])


def test_objects_above_in_value():
    """Another writer may leave an object as a whole in `value`; its paths then have no bounds (B5, B2)."""
    array = shredding.shred(column([{"a": {"b": 1}}, {"a": {"b": 5}}]), "a struct<b: bigint>")
    whole = column([{"b": 9}]).field("value")[0].as_py()
    group = array.field("typed_value").field("a")
    value, typed = pa.array([None, whole]), group.field("typed_value")
    inner = pa.StructArray.from_arrays([typed.field("b")], fields=list(typed.type), mask=pa.array([False, True]))
    a = pa.StructArray.from_arrays([value, inner], fields=[pa.field("value", pa.binary()), pa.field("typed_value", inner.type)])
    outer = pa.StructArray.from_arrays([a], fields=[pa.field("a", a.type, nullable=False)])
    metadata = array.field("metadata")
    odd = pa.StructArray.from_arrays(
        [metadata, array.field("value"), outer],
        fields=[array.type.field(0), array.type.field(1), pa.field("typed_value", outer.type)],
    )
    found = analyzed(written(odd, metadata={}))
    assert bounds(found) == ({}, {})
    assert found.source == "columns"


def test_older_layouts():
    """A column in the draft's layout is read as a whole."""
    metadata, value = (column([{"id": 7}]).field(name) for name in ("metadata", "value"))
    draft = pa.StructArray.from_arrays([metadata, value], ["metadata", "variant_value"])
    assert layouts.is_variant(draft.type)
    sink = io.BytesIO()
    pq.write_table(pa.table({"v": draft}), sink)
    found = analyzed(sink.getvalue())
    assert bounds(found) == ({"$['id']": 7}, {"$['id']": 7})
    assert (found.source, found.tags[stats.BOUNDS_TAG]) == ("values", stats.BOUNDS_TAG_VALUE)


def test_files_of_duckdb(tmp_path):
    """DuckDB's shredded files have the extremes that DuckDB finds in them."""
    path = tmp_path / "d.parquet"
    duckdb.sql(
        f"copy (select {{id: i::int, name: 'n' || i, big: (i * 1.5)::decimal(18,2)}}::variant v from range(1000) t(i)) "
        f"to '{path}' (format parquet, row_group_size 300, "
        "shredding {v: 'struct(id int, name varchar, big decimal(18,2))'})"
    )
    found = analyzed(path.read_bytes())
    low, high = bounds(found)
    assert low == {"$['id']": 0, "$['name']": "n0", "$['big']": Decimal(0)}
    assert high == {"$['id']": 999, "$['name']": "n999", "$['big']": Decimal("1498.50")}
    assert found.source in ("footer", "columns")
    assert found.tags[stats.BOUNDS_TAG] == stats.TYPED_TAG_VALUE


def test_a_column_that_the_file_lacks():
    """A file from before the column was added is marked and has no bounds."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2]}), sink)
    found = analyzed(sink.getvalue(), '{"numRecords":2}')
    assert (found.stats, dict(found.tags)) == ('{"numRecords":2}', {stats.BOUNDS_TAG: stats.TYPED_TAG_VALUE})


def test_files_with_the_marker_are_left_alone():
    """Without names a file with the marker is not opened; other tags of a file are kept."""
    assert analyze_file(None, AnalyzedFile(0, "", ORDINARY, {stats.BOUNDS_TAG: "2"}), plan(), Inference()) is None
    data = written(shredding.shred(column([{"id": 5}]), "id bigint"))
    found = analyzed(data, ORDINARY, tags={"ZCUBE_ID": "x", stats.BOUNDS_TAG: "9"})
    assert found.tags == {"ZCUBE_ID": "x", stats.BOUNDS_TAG: "2"}


def test_tags_only():
    """With tags alone, statistics get no bounds, and lose those of others; the tag has all of them (M4)."""
    data = written(shredding.shred(column([{"id": 5}, {"id": 6}]), "id bigint"))
    found = analyzed(data, '{"numRecords":2,"minValues":{"v":"x"}}', plan=plan(tags_only=True))
    assert found.stats == '{"numRecords":2,"minValues":{}}'
    assert stats.decode_bounds(found.tags[stats.NONNULL_TAG]) == {"$['v']": {"['id']": [0, 0, 5, 6]}}
    assert found.tags[stats.BOUNDS_TAG] == stats.BOUNDS_TAG_VALUE


def test_malformed_variants():
    """Malformed bytes in a plain file are an error of the file."""
    bad = pa.array([{"metadata": b"\x01\x00\x00", "value": b"\x02\x01\x00"}], shredding.UNSHREDDED)
    with pytest.raises(MalformedVariantError):
        analyzed(written(bad))
