"""The order of an object's fields: Spark finds every key in what this package writes, and this package in what others write.

Spark 4.2 looks a key up in an object of 32 or more fields by binary search, in the order of Java's strings, which is that of
UTF-16. The encoding specification has the order of the names' UTF-8 bytes. `tests.layouts.writing.encode` writes either.
"""

import functools
import json
import random
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import VariantVal

import delta_variant as dv
from delta_variant import binary, layouts, paths, schema, shredding
from delta_variant.errors import DeltaVariantError, MalformedVariantError
from delta_variant.kernels.validate import MAX_DEPTH
from tests.contents import read
from tests.layouts.writing import Writer, encode, names_in, utf16
from tests.strategies import column, same, values
from tests.support import collected

pytestmark = pytest.mark.interpreted

EDGES = ["\ud7ff", "\ue000", "\uefff", "\uf000", "\uffe5", "\U00010000", "\U0001f600", "\U0010ffff", "\x7f", "é"]
KEYS = st.one_of(st.text(st.sampled_from(EDGES), max_size=3), st.text(st.sampled_from("kl"), min_size=6, max_size=8))
KEYS = st.one_of(KEYS, st.builds("".join, st.tuples(st.sampled_from(["k" * 7, "k" * 8, "k" * 20]), KEYS)))
OBJECTS = st.recursive(
    st.integers(0, 300),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=6)),
    max_leaves=25,
)
ROWS = st.lists(st.one_of(OBJECTS, st.just("SQL NULL")), max_size=8)
SCHEMAS = st.dictionaries(
    KEYS, st.sampled_from([pa.int64(), pa.string(), pa.list_(pa.struct([("k", pa.int64())]))]), min_size=1, max_size=3
).map(lambda fields: pa.struct(list(fields.items())))


def wide(rng, least=32):
    """An object of at least so many fields, whose keys UTF-8 and UTF-16 order differently."""
    some = [rng.choice(("", "k", "k" * 8)) + rng.choice(EDGES) + rng.choice(("", "x", *EDGES)) for _ in range(least)]
    keys = list(dict.fromkeys(["\U0001f600", "\uffe5", *some, *(f"k{n}" for n in range(least))]))[
        : rng.randrange(least, least + 9)
    ]
    rng.shuffle(keys)
    return {key: n for n, key in enumerate(keys)}


def foreign(rows, rng=None, order=str.encode):
    """A VARIANT column as another engine writes it: fields in the order of the specification, or in another."""
    found = []
    for row in rows:
        if row == "SQL NULL":
            found.append(None)
        else:
            names = names_in(row)
            found.append({"metadata": binary.encode_metadata(names), "value": encode(row, names, rng, order)})
    return pa.array(found, shredding.UNSHREDDED)


def is_ordered(value):
    """Whether all objects in a Variant, as `decode` gives it, have their fields in the order of Java's strings."""
    if isinstance(value, dict):
        return list(value) == sorted(value, key=utf16) and all(map(is_ordered, value.values()))
    return not isinstance(value, list) or all(map(is_ordered, value))


def check(array, rows):
    """The Variants are these, with the fields of all objects in order."""
    array.validate(full=True)
    found = values(array)
    assert len(found) == len(rows)
    for one, row in zip(found, rows, strict=True):
        assert same(one, row)
        assert is_ordered(one)


@given(ROWS)
def test_what_is_made_here(rows):
    """`encode` and `parse_json` write the fields of all objects in the order of UTF-16 (E6)."""
    check(column(rows), rows)
    check(binary.parse_json(pa.array([None if row == "SQL NULL" else json.dumps(row) for row in rows], pa.string())), rows)


@given(ROWS, SCHEMAS, st.one_of(st.none(), st.randoms(use_true_random=False)))
def test_what_others_wrote(rows, as_type, rng):
    """Variants in the order of UTF-8 bytes are read, split and rebuilt as the same Variants in the order of UTF-16 (E6)."""
    theirs = foreign(rows, rng)
    check(shredding.plain(theirs), rows)
    check(shredding.unshred(theirs), rows)
    shredded = shredding.shred(theirs, as_type)
    check(shredding.unshred(shredded), rows)
    for row in shredded.to_pylist():  # what is left in `value`, at the root and below
        if row is not None and row["value"] is not None:
            assert is_ordered(binary.decode(row["metadata"], row["value"]))
    if len(rows) > 2:
        check(shredding.plain(theirs[1:-1]), rows[1:-1])
        check(shredding.unshred(theirs[1:]), rows[1:])
        check(shredding.unshred(shredding.shred(theirs[1:-1], as_type)), rows[1:-1])


@given(ROWS, SCHEMAS)
def test_residuals_of_others(rows, as_type):
    """Residuals in the order of UTF-8 bytes become objects in the order of UTF-16, in every layout (S7)."""
    for names in (("value",), ("variant_value",), ("variant_value", "object", "array"), ("untyped_value", "object", "array")):
        writer = Writer(*names, own=names[0] == "untyped_value", order=str.encode)
        check(layouts.unshred(writer.write(shredding.shred(column(rows), as_type), rows)), rows)


@given(ROWS, st.one_of(st.none(), st.randoms(use_true_random=False)))
def test_what_is_in_order_stays(rows, rng):
    """Variants in the order of UTF-16 keep their bytes, however their values are arranged (E6)."""
    theirs = foreign(rows, rng, utf16)
    assert shredding.plain(theirs) is theirs
    assert shredding.unshred(theirs).equals(theirs)


@pytest.mark.parametrize("count", [31, 32, 255, 256, 2_000])
def test_objects_of_any_size(count):
    """Objects are put in order whatever the widths of their counts, ids and offsets (E6)."""
    rng = random.Random(count)
    rows = [wide(rng, count), [{"in": wide(rng, count)}]]
    check(shredding.unshred(foreign(rows)), rows)
    check(shredding.plain(foreign(rows, rng)), rows)


def test_dictionaries_of_many_rows():
    """Rows with keys of one kind only, and rows that need no change, are kept beside those that do (E6)."""
    rows = [
        {"\uffe5": n, "z": 1} if n % 3 == 0 else {"\U0001f600": n, "z": [n]} if n % 3 == 1 else "SQL NULL" for n in range(999)
    ]
    assert shredding.plain(foreign(rows)).equals(foreign(rows))
    rows[500] = {"\uffe5": 1, "\U0001f600": {"a": {"\U0001f600": 2, "\ue000": 3}}}
    check(shredding.plain(foreign(rows)), rows)
    check(shredding.unshred(foreign(rows)), rows)


@given(st.lists(OBJECTS, min_size=1, max_size=3), st.data())
def test_malformed_bytes(rows, data):
    """Malformed Variants with keys of both kinds raise an error of this package, or are read as `decode` does (E6)."""
    broken = []
    for row in foreign([{"\uffe5": row, "\U0001f600": row} for row in rows]).to_pylist():
        value = bytearray(row["value"])
        for _ in range(data.draw(st.integers(1, 3))):
            value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
        broken.append({"metadata": row["metadata"], "value": bytes(value)})
    array = pa.array(broken, shredding.UNSHREDDED)
    for action in (shredding.plain, shredding.unshred, lambda column: shredding.unshred(shredding.shred(column, "k bigint"))):
        try:
            found = values(action(array))
        except DeltaVariantError:
            continue
        for one, row in zip(found, broken, strict=True):
            assert same(one, binary.decode(**row))


@pytest.mark.parametrize("keys", [["a", "b"], ["a", "\uffe5", "\U0001f600"]], ids=["plain", "mixed"])
@pytest.mark.parametrize("kind", ["objects", "lists", "a field beside"])
@pytest.mark.parametrize("typed", [1, 5, 60])
def test_depth(keys, kind, typed):
    """A Variant may have as many levels as `validate` takes, however many of them are typed; one more is an error (E6)."""
    metadata = binary.encode_metadata(keys)

    def built(levels):
        value = b"\x0c\x01"
        for _ in range(levels - (kind == "a field beside")):
            value = bytes([15, 1]) + (0).to_bytes(4, "little") + len(value).to_bytes(4, "little") + value
        group = pa.array([value], pa.binary())
        if kind == "a field beside":  # an object whose field b is in `value` and a in typed_value
            beside = bytes([2 | 3 << 2, 1, 1]) + (0).to_bytes(4, "little") + len(value).to_bytes(4, "little") + value
            inner = pa.StructArray.from_arrays([pa.StructArray.from_arrays([pa.array([1])], ["typed_value"])], ["a"])
            group = pa.StructArray.from_arrays([pa.array([beside], pa.binary()), inner], ["value", "typed_value"])
        else:
            group = pa.StructArray.from_arrays([group], ["value"])
        for _ in range(typed):
            if kind == "lists":
                group = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), group)
            else:
                group = pa.StructArray.from_arrays([group], ["a"])
            group = pa.StructArray.from_arrays([group], ["typed_value"])
        return pa.StructArray.from_arrays([pa.array([metadata], pa.binary()), *group.flatten()],
                                          ["metadata", *group.type.names])  # fmt: skip

    array = shredding.unshred(built(MAX_DEPTH - typed))
    shredding.validate(array)
    as_type = shredding.schema_of(built(1).type)
    assert shredding.unshred(shredding.shred(array, as_type)).equals(array)
    for levels in (MAX_DEPTH - typed + 1, MAX_DEPTH):
        with pytest.raises(MalformedVariantError, match="nested too deeply"):
            shredding.unshred(built(levels))


def test_values_that_overlap():
    """An object within the bytes of a string is not changed, nor are these: a Variant of such values is malformed (E6)."""
    keys = ["\uffe5", "\U0001f600"]
    inner = encode(dict.fromkeys(keys, 1), keys, None, str.encode)
    text = binary.encode("x" + inner.decode("ascii") + "x" * 9)[1]
    body = text + bytes(len(inner))  # as many bytes as both fields have
    value = bytes([2, 2, 1, 0, 0, 2, len(body)]) + body  # the first field is the text, the second the object in it
    array = pa.array([{"metadata": binary.encode_metadata(keys), "value": value}], shredding.UNSHREDDED)
    assert binary.decode(**array[0].as_py())[keys[0]] == dict.fromkeys(keys, 1)
    for action in (shredding.plain, shredding.unshred, lambda column: shredding.shred(column, "k int")):
        with pytest.raises(MalformedVariantError, match="overlap"):
            action(array)


# ------------------------------------------------------------------------------------------------------------------- Spark

SHAPE = "k0 bigint, `\uffe5` bigint, `in` struct<k1: bigint, `\U0001f600`: bigint>"
ASKED = ["\U0001f600", "\uffe5", "\ue000", "\U0010ffff", "k\U0001f600", "k\uffe5", "k\uffe5\U0001f600", "k0", "k1", "none"]


def documents():
    """Objects of 32 or more fields at the root, in a field that is an object, and in an array."""
    rng = random.Random(0)
    keys = [*ASKED[:-1], *(f"k{n}" for n in range(2, 36))]

    def some():
        chosen = [*ASKED[:2], *rng.sample(keys[2:], rng.randrange(30, 40))]
        rng.shuffle(chosen)
        return {key: rng.randrange(300) for key in chosen}

    return [{**some(), "in": some(), "of": [some()]} for _ in range(5)]


PATHS = [(*place, key) for place, keys in (((), ASKED), (("in",), ASKED[:3]), (("of", 0), ASKED[:3])) for key in keys]


def spelled(keys):
    """A path as `variant_get` takes it."""
    return "$" + "".join(f"[{key}]" if isinstance(key, int) else paths.step(key) for key in keys)


def at(value, keys):
    """The value at a path, None if there is none."""
    for key in keys:
        value = value[key] if isinstance(key, int) or key in value else None
    return value


def as_rows(array):
    """The Variants of a column, for createDataFrame."""
    return [(n, VariantVal(row["value"], row["metadata"])) for n, row in enumerate(array.to_pylist())]


def found_by_spark(frames):
    """By name, what Spark finds at the paths in the rows of each frame, in the order of n, asked as one query."""
    asked = [F.variant_get("v", spelled(keys), "int").alias(f"p{k}") for k, keys in enumerate(PATHS)]
    asked.append(F.schema_of_variant("v").alias("schema"))  # which refuses objects of any size in another order
    frames = [frame.select(F.lit(name).alias("name"), "n", *asked) for name, frame in frames.items()]
    rows = sorted(collected(functools.reduce(DataFrame.unionAll, frames)))
    return {name: [tuple(row[2:-1]) for row in rows if row.name == name] for name in {row.name for row in rows}}


@pytest.mark.spark
def test_spark_finds_every_key(spark, tmp_path):
    """Spark finds every key of large objects in a table, whatever wrote their bytes and whichever call the table (E6)."""
    rows = documents()
    n = pa.array(range(len(rows)), pa.int32())
    made = {name: str(tmp_path / name) for name in ("parsed", "split", "copied", "converted", "shredded", "unshredded")}
    texts = [(k, json.dumps(row, ensure_ascii=False)) for k, row in enumerate(rows)]
    dv.write(spark.createDataFrame(texts, "n int, v string").coalesce(1), made["parsed"], parse_json={"v": "v"}, shred=False)
    theirs = spark.createDataFrame(as_rows(foreign(rows)), "n int, v variant").coalesce(1)
    dv.write(theirs, made["split"], shred={"v": SHAPE})
    dv.write(theirs, made["copied"], shred=False)
    (tmp_path / "files").mkdir()
    split = Writer("value", order=str.encode).write(shredding.shred(column(rows), schema.parse(SHAPE)), rows)
    for name, variants in (("plain", foreign(rows[:2])), ("split", split[2:])):
        table = pa.table({"n": n[:2] if name == "plain" else n[2:], "v": variants})
        pq.write_table(table, tmp_path / "files" / f"{name}.parquet", store_schema=False)
    dv.convert(spark, tmp_path / "files", made["converted"])
    theirs.write.format("delta").save(made["shredded"])
    rewritten = dv.VariantTable.forPath(spark, made["shredded"])
    rewritten.enable_shredding()
    rewritten.shred()
    shutil.copytree(made["shredded"], made["unshredded"])
    dv.VariantTable.forPath(spark, made["unshredded"]).unshred()
    frames = {name: read(spark, path) for name, path in made.items()}
    for name, array in (("encoded", column(rows)), ("read", shredding.unshred(foreign(rows)))):
        frames[name] = spark.createDataFrame(as_rows(array), "n int, v variant")
    expected = [tuple(at(row, keys) for keys in PATHS) for row in rows]
    for name, found in found_by_spark(frames).items():
        assert found == expected, name
    parsed = {row.n: row.v for row in read(spark, made["parsed"]).collect()}
    spark_s = spark.createDataFrame(texts, "n int, j string").select("n", F.parse_json("j").alias("v")).collect()
    for row in spark_s:
        assert (bytes(parsed[row.n].metadata), bytes(parsed[row.n].value)) == (bytes(row.v.metadata), bytes(row.v.value))


@pytest.mark.spark
def test_keys_in_tables_of_others(spark, tmp_path):
    """`scan` finds every key of large objects in tables of other writers, whose objects have either order (E6)."""
    rows = documents()
    expected = [tuple(at(row, keys) for keys in PATHS) for row in rows]
    asked = {f"p{k}": f"v:{spelled(keys)[1:].removeprefix('.')}::int" for k, keys in enumerate(PATHS)}
    for order, shredded in ((str.encode, "false"), (utf16, "false"), (utf16, "true")):
        path = str(tmp_path / f"{order.__name__}-{shredded}")
        theirs = spark.createDataFrame(as_rows(foreign(rows, None, order)), "n int, v variant").coalesce(1)
        theirs.write.format("delta").option("delta.enableVariantShredding", shredded).save(path)
        found = dv.scan(path, {"n": "n", **asked}).read_all().sort_by("n").to_pylist()
        assert [tuple(row[text] for text in asked) for row in found] == expected
        (one,) = dv.scan(path, ["n"], where=f"{asked['p0']} = {rows[3][ASKED[0]]} and n = 3").read_all()["n"].to_pylist()
        assert one == 3
        assert [binary.decode(**row) for row in dv.scan(path).read_all().sort_by("n")["v"].to_pylist()] == rows
