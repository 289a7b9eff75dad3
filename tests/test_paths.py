"""Paths: RFC 9535 normalized paths and Spark's variant_get syntax."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_variant import paths
from delta_variant.errors import InvalidPathError, InvalidSchemaError

# RFC 9535, section 2.7 and table 20.
NORMALIZED = [
    ((), "$"),
    (("a",), "$['a']"),
    (("a", "b"), "$['a']['b']"),
    (("\u000b",), "$['\\u000b']"),
    (("\b\t\n\f\r",), "$['\\b\\t\\n\\f\\r']"),
    (("'", "\\", '"'), "$['\\'']['\\\\']['\"']"),
    (("é", "日本", "😀"), "$['é']['日本']['😀']"),
    (("a.b", ""), "$['a.b']['']"),
]


@pytest.mark.parametrize(("keys", "text"), NORMALIZED)
def test_normalized_paths_are_those_of_the_rfc(keys, text):
    """Keys have the RFC's normalized path, and the path gives the keys."""
    assert paths.normalized(keys) == text
    assert paths.parse_normalized(text) == keys


@given(st.lists(st.text()).map(tuple))
def test_normalized_paths_round_trip(keys):
    """parse_normalized inverts normalized for all keys."""
    assert paths.parse_normalized(paths.normalized(keys)) == keys


@pytest.mark.parametrize("text", ["", "a", "$.a", "$['a", '$["a"]', "$[0]", "$['\\x']", "$['\\u0041']", "$['\n']", "$['a'] "])
def test_other_texts_are_not_normalized_paths(text):
    """What the RFC's grammar does not produce is refused, with the text in the message."""
    with pytest.raises(InvalidPathError) as e:
        paths.parse_normalized(text)
    assert repr(text) in str(e.value)


VARIANT_PATHS = [
    ("$", ()),
    ("$.a", ("a",)),
    ("$.a.b c", ("a", "b c")),
    ("$['a']", ("a",)),
    ('$["a.b"][3].c', ("a.b", 3, "c")),
    ("$[0][1]", (0, 1)),
    ("$.it's", ("it's",)),
    ('$["it\'s"]', ("it's",)),
    ("$.é", ("é",)),
    ("$['']", ("",)),
    ("$.a b . c", ("a b ", " c")),
    ("$['a?'][007]", ("a?", 7)),
]


@pytest.mark.parametrize(("text", "steps"), VARIANT_PATHS)
def test_variant_paths(text, steps):
    """Every form that Spark's variant_get accepts gives its keys and indexes."""
    assert paths.parse_variant_path(text) == steps


@pytest.mark.parametrize(
    "text", ["", "a", "$a", "$.", "$..a", "$[a]", "$[-1]", "$['a\"]", "$[99999999999]", "$['a'", "$ .a", "$[ 1]"]
)
def test_invalid_variant_paths(text):
    """What Spark refuses is refused."""
    with pytest.raises(InvalidPathError):
        paths.parse_variant_path(text)


@pytest.mark.spark
def test_spark_agrees_about_variant_paths(spark):
    """A path reads with Spark what its keys and indexes say, and Spark refuses what is refused here."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    document = '{" c":1,"a":{"b c":2},"a.b":[0,1,2,{"c":4}],"":5,"a b ":{" c":6},"a?":[0,1,2,3,4,5,6,7],"it\'s":8,"\u00e9":9}'
    one = spark.range(1).select(F.parse_json(F.lit(document)).alias("v"))

    def read(path):
        return one.select(F.to_json(F.variant_get("v", path, "variant"))).first()[0]

    found = [read(path) for path, _ in VARIANT_PATHS]
    whole = read("$")
    assert found == [whole, '{"b c":2}', "2", '{"b c":2}', "4", None, "8", "8", "9", "5", "6", "7"]
    for path in ("", "a", "$a", "$.", "$[a]", "$[-1]", "$['a'", "$ .a", "$[ 1]"):
        with pytest.raises(PySparkException):
            read(path)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("v", ("v",)), ("s.w", ("s", "w")), ("`a.b`.c", ("a.b", "c")), ("a b.`c``d`", ("a b", "c`d")), ("`x`", ("x",)),
        ("S.`x y`", ("S", "x y")),
    ],
)  # fmt: skip
def test_names_of_columns(text, names):
    """Dots lead into structs, special names are in backquotes, and `dotted` is the inverse of `parse_column`."""
    assert paths.parse_column(text) == names
    assert paths.parse_column(paths.dotted(names)) == names


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "`a", "a`b", "`a`b"])
def test_names_of_columns_refused(text):
    """Text that is no column name is an error that shows how to write one."""
    with pytest.raises(InvalidSchemaError, match=r"write a\.b, with odd names in backquotes"):
        paths.parse_column(text)


COLUMN_PATHS = [
    ("v", ("v",), None),
    ("s.w", ("s", "w"), None),
    ("v:id", ("v",), "$.id"),
    ("v:$.id", ("v",), "$.id"),
    ("v:", ("v",), "$"),
    ("v:['a:b'].c", ("v",), "$['a:b'].c"),
    ("s.w:[0]", ("s", "w"), "$[0]"),
    ("`a.b`.w:x", ("a.b", "w"), "$.x"),
    ("`a:b`", ("a:b",), None),
    ("`a``:b`:`c`", ("a`:b",), "$.c"),
    ("v:`two words`.`it``s`[0].`é`", ("v",), "$.two words.it`s[0].é"),
    (r"v:['a\b']", ("v",), r"$['a\b']"),
    ("v:['`a`.`b`']", ("v",), "$['`a`.`b`']"),
    ("v:$.`c`", ("v",), "$.`c`"),
    ("naïve column:id", ("naïve column",), "$.id"),
]


@pytest.mark.parametrize(("text", "column", "path"), COLUMN_PATHS)
def test_columns_and_paths_into_them(text, column, path):
    """The first colon outside of backquotes ends the column. The path may begin with `$`, where backquotes mean nothing."""
    assert paths.parse_column_path(text) == (column, path)


@given(st.lists(st.text(min_size=1), min_size=1).map(tuple))
def test_columns_round_trip(column):
    """parse_column inverts dotted for all names, also where a path follows."""
    assert paths.parse_column(paths.dotted(column)) == column
    assert paths.parse_column_path(paths.dotted(column) + ":x") == (column, "$.x")


@pytest.mark.parametrize("text", ["v:id::bigint", "v:a.b::string", "v:['a'].b::int"])
def test_paths_with_types(text):
    """A type behind a path is refused where paths have none; a key may have colons in it."""
    with pytest.raises(InvalidPathError, match="has a type"):
        paths.parse_column_path(text)
    assert paths.parse_column_path("v:['a::b'].`c::d`") == (("v",), "$['a::b'].c::d")


@pytest.mark.parametrize(
    ("text", "error"),
    [("", InvalidSchemaError), ("a.", InvalidSchemaError), (".a", InvalidSchemaError), ("`a", InvalidSchemaError),
     (":id", InvalidSchemaError), ("v:a..b", InvalidPathError), ("v:a[", InvalidPathError), ("v:`a", InvalidPathError),
     ("v:`a`b", InvalidPathError), ("v:``", InvalidPathError), ("v:`a.b`", InvalidPathError), ("v:`a[0]`.c", InvalidPathError)],
)  # fmt: skip
def test_what_is_neither_column_nor_path(text, error):
    """An invalid column and an invalid path raise different errors."""
    with pytest.raises(error, match="is not"):
        paths.parse_column_path(text)
