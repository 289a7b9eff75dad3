"""Paths: RFC 9535 normalized paths and Spark's variant_get syntax."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_variant import paths
from delta_variant.errors import InvalidPathError

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
    """Each key has exactly one normalized text, and each text one meaning."""
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
