"""Z85, against the RFC's example, against Python's own where it has one, and by its inverse."""

from __future__ import annotations

import base64
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_variant import z85
from delta_variant.errors import MalformedVariantError

words = st.binary(max_size=40).map(lambda data: data + bytes(-len(data) % 4))


def test_the_example_of_the_rfc():
    """The eight bytes of ZeroMQ RFC 32 are the text HelloWorld (B1)."""
    data = bytes.fromhex("864FD26FB559F75B")
    assert z85.encode(data) == "HelloWorld"
    assert z85.decode("HelloWorld") == data


@given(words)
def test_decode_is_the_inverse_of_encode(data):
    """Any bytes whose number is a multiple of 4 come back, and their text needs no escape in JSON."""
    text = z85.encode(data)
    assert z85.decode(text) == data
    assert len(text) * 4 == len(data) * 5
    assert not set(text) & set('"\\')


@pytest.mark.skipif(sys.version_info < (3, 13), reason="base64 knows Z85 from Python 3.13 on")
@given(words)
def test_python_has_the_same_digits(data):
    """The text is the one of Python's own implementation."""
    assert z85.encode(data) == base64.z85encode(data).decode()


@pytest.mark.parametrize("data", [b"a", b"abc", b"abcde"])
def test_bytes_that_do_not_fill_groups_are_refused(data):
    """Bytes whose number is not a multiple of 4 are refused, since Z85 has no padding."""
    with pytest.raises(MalformedVariantError, match="multiple of 4"):
        z85.encode(data)


@pytest.mark.parametrize("text", ["HelloWorl", "Hello Worl", "Hell\\", "Hellé", "#####", "%nSc1"])
def test_other_text_is_refused(text):
    """A wrong length, a character that is no digit, or a number above four bytes is one error."""
    with pytest.raises(MalformedVariantError):
        z85.decode(text)


def test_the_largest_group():
    """Four bytes of ones are the largest number that decodes."""
    assert z85.decode("%nSc0") == b"\xff\xff\xff\xff"


@given(st.text(max_size=20))
def test_any_text_decodes_or_raises_one_error(text):
    """Any text is decoded to bytes that encode to the same text, or raises MalformedVariantError."""
    try:
        data = z85.decode(text)
    except MalformedVariantError:
        return
    assert z85.encode(data) == text
