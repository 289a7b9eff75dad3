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
]


@pytest.mark.parametrize(("text", "steps"), VARIANT_PATHS)
def test_variant_paths(text, steps):
    """Every form that Spark's variant_get accepts gives its keys and indexes."""
    assert paths.parse_variant_path(text) == steps


@pytest.mark.parametrize("text", ["", "a", "$a", "$.", "$..a", "$[a]", "$[-1]", "$['a\"]", "$[99999999999]", "$['a'"])
def test_invalid_variant_paths(text):
    """What Spark refuses is refused."""
    with pytest.raises(InvalidPathError):
        paths.parse_variant_path(text)
