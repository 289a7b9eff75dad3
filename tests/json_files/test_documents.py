"""Files of JSON documents, read in pieces and blocks: every document once, whatever its form and wherever a block ends."""

from __future__ import annotations

import bz2
import gzip
import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delta_variant import binary
from delta_variant.errors import TableError
from delta_variant.json_files import JsonFiles, forms, is_known, texts
from delta_variant.json_files import documents as documents_module
from delta_variant.json_files.documents import Malformed, Reader
from delta_variant.kernels.lines import line_ends
from delta_variant.kernels.scan import PADDING
from delta_variant.pieces import Piece
from delta_variant.storage import Storage
from tests.support import length

COMPRESS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstandard.ZstdCompressor().compress}

scalars = (
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=12) | st.sampled_from(['"', "\\", "]},[{"])
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4), max_leaves=12
)
documents = st.lists(values, max_size=12)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of a few bytes, so that every document meets their ends."""
    monkeypatch.setattr(texts, "BLOCK", 7)
    monkeypatch.setattr(texts, "_TAIL", 3)
    monkeypatch.setattr(forms, "_PEEKED", 5)
    monkeypatch.setattr(forms, "_DOCUMENTS", 2)
    monkeypatch.setattr(texts, "_ELEMENTS", 2)


def read(path, form="auto", records=None, max_bytes=1 << 20, size=None) -> tuple[list[object], list[Malformed]]:
    """The documents of a file, as Python values in order, and what is malformed. size: the size of pieces."""
    files = JsonFiles((Storage.of(str(path.parent)),), form, records, max_bytes, fails=False, allow_duplicate_keys=False)
    whole = Piece(0, str(path), path.name, path.stat().st_size)
    step = size or max(1, whole.size)
    pieces = [
        Piece(0, str(path), path.name, whole.size, start, None if start + step >= whole.size else start + step)
        for start in range(0, max(1, whole.size), step)
    ]
    reader, found, malformed = Reader(files), [], []
    for piece in pieces:
        for variants, bad in reader.documents(piece):
            found += [binary.decode(**variant) for variant in variants.to_pylist()]
            malformed += bad
    return found, malformed


def dumped(value: object, indent: int | None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


EXAMPLES = length("DELTA_VARIANT_EXAMPLES", 40, 300)
tries = settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])


@tries
@given(
    documents, st.sampled_from(["\n", "\r\n", "\n \n\n"]), st.booleans(), st.booleans(), st.sampled_from([None, 1, 2, 5, 16])
)
def test_lines(tmp_path, rows, separator, ends, mark, size):
    """Each line that is not blank is a row, in pieces of any size, with or without a byte order mark and a last line break."""
    text = separator.join(dumped(row, None) for row in rows) + (separator if ends else "")
    (tmp_path / "f.jsonl").write_bytes(b"\xef\xbb\xbf" * mark + text.encode("utf-8", "surrogatepass"))
    assert read(tmp_path / "f.jsonl", "lines", size=size) == (rows, [])


@tries
@given(documents, st.sampled_from([None, 1]), st.sampled_from(sorted(COMPRESS)))
def test_elements_of_an_array(tmp_path, rows, indent, suffix):
    """A top-level array has a row for each element, in lines or not, compressed or not, found by itself or asked for."""
    path = tmp_path / f"f.json{suffix}"
    path.write_bytes(COMPRESS[suffix](b" \n" + dumped(rows, indent).encode("utf-8", "surrogatepass")))
    for form in ("auto", "array"):
        assert read(path, form) == (rows, [])


@tries
@given(
    st.lists(st.tuples(documents | st.none(), values, values), min_size=1, max_size=3),
    st.sampled_from([("Records",), ("a", 'b"c')]),
)
def test_elements_inside_documents(tmp_path, parts, keys):
    """records= finds the array at its path in each document of a file, and nothing else; it tells documents that have none."""
    rows, without, text = [], [], ""
    for own, before, after in parts:
        inner: object = own
        for key in reversed(keys):
            siblings = {"x": before, key + "s": [1], "y": {key: [2]}}
            inner = {**siblings, **({} if inner is None else {key: inner}), "z": after}
        text += (one := dumped(inner, None)) + "\n"
        rows += own or []
        without += [one.encode("utf-8", "surrogatepass")] if own is None else []
    (tmp_path / "f.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    found, malformed = read(tmp_path / "f.json", records=keys)
    assert (found, [bad.text for bad in malformed]) == (rows, without)


@tries
@given(values, st.sampled_from([None, 2]))
def test_a_file_is_a_document(tmp_path, row, indent):
    """format="document" takes the whole file for one row."""
    (tmp_path / "f.json").write_bytes(dumped(row, indent).encode("utf-8", "surrogatepass"))
    assert read(tmp_path / "f.json", "document") == ([row], [])


@tries
@given(st.lists(st.sampled_from(['{"id": 1}', '{"id":', "", "  ", "[1, 2", '"' + "x" * 30 + '"', "nul"]), max_size=10))
def test_malformed_lines(tmp_path, lines):
    """A malformed or long line is told with its number, its first byte and its text; the others are rows."""
    (tmp_path / "f.jsonl").write_text("\n".join(lines))
    rows, malformed = read(tmp_path / "f.jsonl", "lines", max_bytes=20)
    assert rows == [{"id": 1} for line in lines if line == '{"id": 1}']
    starts = [sum(len(line) + 1 for line in lines[:number]) for number in range(len(lines))]
    wanted = [(n + 1, starts[n], line) for n, line in enumerate(lines) if line.strip() and line != '{"id": 1}']
    assert [(bad.line, bad.offset) for bad in malformed] == [(line, start) for line, start, _ in wanted]
    for bad, (_, _, text) in zip(malformed, wanted, strict=True):
        assert text.encode().startswith(bad.text)
        assert bad.text == text.encode() or bad.reason.startswith("longer than")


SEPARATORS = ["", " ", "\n", "\r\n", " \n\t", "\n\n", "\x1e", "\n\x1e"]
containers = values.filter(lambda value: isinstance(value, list | dict))


@tries
@given(
    st.lists(st.tuples(containers, st.sampled_from([None, None, 1, 0]), st.sampled_from(SEPARATORS)), max_size=8),
    st.sampled_from(["", "\ufeff", "\n ", "\x1e"]), st.sampled_from(sorted(COMPRESS)), st.sampled_from([None, 1, 2, 5, 16]),
)  # fmt: skip
def test_adjacent_documents(tmp_path, parts, before, suffix, size):
    """format="adjacent": each document is a row with its line, whatever stands between them, in pieces of any size."""
    text = before + "".join(dumped(value, indent) + separator for value, indent, separator in parts)
    path = tmp_path / f"f.json{suffix}"
    path.write_bytes(COMPRESS[suffix](text.encode("utf-8", "surrogatepass")))
    rows = [value for value, _, _ in parts]
    assert read(path, "adjacent", size=None if suffix else size) == (rows, [])
    found = [(line, offset) for line, offset in places(path, "adjacent")]
    assert found == expected_places(text)


# Texts without a record separator, the documents in them, and where what is malformed begins; 20 bytes are too long.
CHUNKS = [
    ('{"ok": 1}', [{"ok": 1}], []), ('{"ok": 2}\n', [{"ok": 2}], []), ("7", [7], []), ("tru", [], [0]), ('"x', [], [0]),
    ("a" * 30, [], [0]), ("a" * 90 + ',"x"', [], [0]), ("a" * 15 + ',"x"', [], [0]),
    ("a" * 90 + '\n{"ok": 3}', [{"ok": 3}], [0]),
    ("1 2,3", [1], [2]), ("1 " + "2" * 90 + ",3", [1], [2]), ('{"ok": 4}, {"x": 1}', [{"ok": 4}], [9]), ("}", [], [0]),
    ('"' + "y" * 90 + '"{"ok": 5}', [{"ok": 5}], [0]), ('{"a": "' + "y" * 90, [], [0]), ("[" * 90, [], [0]), ("[1", [], [0]),
    ("[" + "1, " * 30 + '1]\n{"ok": 6}', [{"ok": 6}], [0]), ("[" + "1, " * 30 + "1]}", [], [0, 93]),
]  # fmt: skip


@tries
@given(st.lists(st.sampled_from(CHUNKS), max_size=6), st.sampled_from(["\x1e", "\n\x1e"]), st.integers(1, 64), st.booleans())
def test_each_adjacent_document_once(tmp_path, monkeypatch, chunks, separator, block, ends):
    """Every document is a row, or malformed, exactly once, wherever a block ends and however much is wrong before it."""
    monkeypatch.setattr(texts, "BLOCK", block)
    text, rows, bad = separator, [], []
    for chunk, own, starts in chunks:
        rows += own
        bad += [len(text) + start for start in starts]
        text += chunk + separator
    (tmp_path / "f.json").write_text(text if ends or not chunks else text.removesuffix(separator))
    found, malformed = read(tmp_path / "f.json", "adjacent", max_bytes=20)
    assert (found, [each.offset for each in malformed]) == (rows, bad)


def places(path, form) -> list[tuple[int, int]]:
    """The line and the byte of each document of a file."""
    files = JsonFiles((Storage.of(str(path.parent)),), form, None, 1 << 20, fails=False, allow_duplicate_keys=False)
    piece = Piece(0, str(path), path.name, path.stat().st_size)
    found = []
    for block in texts.texts(piece, files, files.storages[0].open()):
        found += [(int(line), block.offset + int(at)) for line, at in zip(block.line, block.at, strict=True)]
    return found


def expected_places(text: str) -> list[tuple[int, int]]:
    """The same, by Python's decoder."""
    found, at = [], 0
    while True:
        while at < len(text) and text[at] in "\ufeff \t\r\n\x1e":
            at += 1
        if at == len(text):
            return found
        found.append((text.count("\n", 0, at) + 1, len(text[:at].encode("utf-8", "surrogatepass"))))
        _, at = json.JSONDecoder(strict=False).raw_decode(text, at)


@tries
@given(st.lists(st.tuples(values, st.sampled_from([" ", "\n", "\x1e", "\t\n"])), max_size=8))
def test_adjacent_scalars(tmp_path, parts):
    """Numbers and literals between blanks, and strings, are documents too."""
    text = "".join(dumped(value, None) + separator for value, separator in parts)
    (tmp_path / "f.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    assert read(tmp_path / "f.json", "adjacent") == ([value for value, _ in parts], [])
    (tmp_path / "f.json").write_bytes(text.rstrip(" \n\t\x1e").encode("utf-8", "surrogatepass"))
    assert read(tmp_path / "f.json", "adjacent") == ([value for value, _ in parts], [])


@tries
@given(
    st.lists(st.tuples(containers.filter(bool), st.sampled_from(["", " ", "\n", "\r\n"])), min_size=1, max_size=8),
    st.sampled_from([None, 1, 2, 5, 16]), st.booleans(),
)  # fmt: skip
def test_adjacent_documents_are_found(tmp_path, parts, size, indent):
    """format="auto": documents that begin with an object are rows, on one line or on many, whatever the size of a piece."""
    parts = [({"a": 1}, parts[0][1]), *parts]
    text = "".join(dumped(value, 1 if indent else None) + separator for value, separator in parts)
    (tmp_path / "f.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    assert read(tmp_path / "f.json", size=size) == ([value for value, _ in parts], [])


@tries
@given(
    st.lists(
        st.sampled_from([
            '{"id": 1}', '{"id": 1}', '{"id":', "", '{"id": {', "[1, 2", '"xxxx"', "nul", "1 2", "{}x", "}",
            '{"a":1}{"b":2}{"c":', '{"a":1}{"b":2}{"c":"', '{"id": NaN, "b": "c',
        ]),
        max_size=10,
    ),
    st.sampled_from([None, 1, 3, 10]),
)  # fmt: skip
def test_lines_stay_lines(tmp_path, lines, size):
    """Malformed lines among good ones, the first one too, are the same by format="auto" as by format="lines"."""
    lines = ['{"id": 0}' if not lines or lines[0][:1] != "{" else lines[0], *lines, '{"id": 2}', '{"id": 3}']
    (tmp_path / "f.jsonl").write_text("\n".join(lines))
    assert read(tmp_path / "f.jsonl", "auto", size=size) == read(tmp_path / "f.jsonl", "lines", size=size)


def test_lines_of_several_documents(tmp_path):
    """A line that is several complete objects or arrays is as many rows, in order; any other line is one, or malformed."""
    lines = [
        '{"a":1}', '{"a":2}{"a":3} [4]', "", '{"a":5}', "[6][7]\t\r", '{"a":8}{"a":', '{"a":9}{"a":NaN}{"a":1}', "1 2",
        '"x""y"', '{"a":10}7', '{"a":11},{"a":12}', '{"a":13}{"a":13}', '{"a":14}',
    ]  # fmt: skip
    (tmp_path / "f.jsonl").write_text("\n".join(lines))
    rows, malformed = read(tmp_path / "f.jsonl")
    flat = [row["a"] if isinstance(row, dict) else row[0] for row in rows]
    assert flat == [1, 2, 3, 4, 5, 6, 7, 13, 13, 14]
    assert [bad.line for bad in malformed] == [6, 7, 8, 9, 10, 11]
    assert [bad.text.decode() for bad in malformed] == [lines[bad.line - 1] for bad in malformed]
    assert (malformed[1].reason, malformed[1].byte) == ("a value is NaN, which JSON lacks", 12)
    assert {bad.reason for i, bad in enumerate(malformed) if i != 1} == {AFTER}


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ('{"a": 1}\n', "lines"),
        ('{"a": 1}{"a": 1}\n{"a": 1}\n', "lines"),
        ('{"a": 1} {"a": 1}\r\n \n\n', "adjacent"),
        ('{"a": 1}{"a": 1}{"a": ', "adjacent"),
        ('{"a": 1}{"a": ', "lines"),
        ('{"a": 1}{"a": 1}{"a":\n{"a": 1}\n{"a": 1}\n', "lines"),
        ('{"a": 1}{"a": 1}{"a": "\n{"a": 1}\n{"a": 1}\n', "lines"),
        ('{"a": 1}{"a": 1}{"a":\n' + '{"a": 1}\n' * 30, "lines"),
        ('{"a": 1}{"a": 1}{"a":\n \n', "adjacent"),
        ('{"a": 1}{"a": 1}' + '{"a": "' + "x" * 60 + '",\n"b": "' + "x" * 20 + '"}\n' + '{"a": 1}\n' * 9, "adjacent"),
        ('{"a": 1}{"a": 1}, {"a": 1}', "lines"),
        ('{"a": NaN, "b": {"c": 1}\n{"a": 2}}\n{"a": 3}\n', "lines"),
        ('{"a": NaN, "b": "\n{"a": "}"}\n{"a": 3}\n', "lines"),
        ('{"a":\n[1' + "0" * 60 + ', NaN], "a": 1}', "adjacent"),
        ('{"a": 1} 2', "lines"),
        ('{"a": 1}{"a"}', "lines"),
        ('\ufeff \n{"a":\n1}', "adjacent"),
        ('{"a":\n1\n{"a": 1}\n}\n', "lines"),
        ('{"a":\n{"a": 1}\n{"a": 1}\n', "lines"),
        ('{"a":\n1,\n"a": 1}', "adjacent"),
        ('{"a":\n[NaN, Infinity]}', "adjacent"),
        ('{"a": 1}{"a":\n1}{"a": 1}', "adjacent"),
        ('{"a": 1}' * 5 + '{"a": "' + "x" * 100 + '"}{"a": 1}\n{"a": 1}', "adjacent"),
        ('{"a": "' + "x" * 100 + '"}{"a": 1}\n{"a": 1}', "lines"),
        ('{"a":\n"' + "x" * 100 + '"}{"a": 1}\n{"a": 1}', "lines"),
        ('[{"a": 1}][{"a": 1}]', "array"),
        ('1\n{"a": 1}{"a": 1}', "lines"),
        ('\x1e{"a": 1}\n\x1e{"a": 1}\n', "adjacent"),
        ("", "lines"),
    ],
)  # fmt: skip
def test_what_auto_finds(tmp_path, text, form):
    """A file is of lines unless its beginning leaves no doubt: a document over several lines, several on the only line."""
    (tmp_path / "f.json").write_bytes(text.encode())
    files = JsonFiles((Storage.of(str(tmp_path)),), "auto", None, 100, fails=False, allow_duplicate_keys=False)
    piece = Piece(0, str(tmp_path / "f.json"), "f", len(text.encode()))
    with texts._Source(piece, files.storages[0].open()) as source:
        assert forms.form_of(source, files) == form


@pytest.mark.parametrize("code", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("form", ["auto", "lines", "array", "adjacent", "document"])
def test_other_encodings(tmp_path, code, form):
    """A file of another encoding is one malformed document whose reason names it, in all pieces together."""
    (tmp_path / "f.json").write_bytes('{"é": 1}\n{"é": 2}\n'.encode(code))
    found, (bad,) = read(tmp_path / "f.json", form, size=9 if form in ("auto", "lines") else None)
    assert (found, bad.line, bad.offset, bad.text) == ([], 1, 0, (tmp_path / "f.json").read_bytes())
    assert bad.reason == f"the file is UTF-{code[4:6]}: convert it to UTF-8"


@pytest.mark.parametrize("zeros", [b"\0", b"\0\0", b"\0\0\0"])
@pytest.mark.parametrize("first", [b'{"a": 1}', b"1", b""])
def test_zeros_are_no_encoding(tmp_path, zeros, first):
    """Zeros before a text of UTF-8 make its first line malformed, and no other."""
    (tmp_path / "f.jsonl").write_bytes(zeros + first + b'\n{"b": 1}\n')
    found, (bad,) = read(tmp_path / "f.jsonl")
    assert (found, bad.line, bad.text) == ([{"b": 1}], 1, zeros + first)


def test_many_blanks_before_the_first_document(tmp_path, monkeypatch):
    """The bytes before the first document are copied once each, however small the steps are in which they are read."""
    monkeypatch.setattr(forms, "_PEEKED", 64)
    (tmp_path / "f.json").write_bytes(b" " * 64_000 + b'{"a": 1}{"a": 2}')
    files = JsonFiles((Storage.of(str(tmp_path)),), "auto", None, 1 << 20, fails=False, allow_duplicate_keys=False)
    piece = Piece(0, str(tmp_path / "f.json"), "f", 64_016)

    class Counted(np.ndarray):
        """Bytes that count those that are copied out of them."""

        copied = 0

        def tobytes(self, *arguments):
            Counted.copied += self.size
            return super().tobytes(*arguments)

    with texts._Source(piece, files.storages[0].open()) as source:
        source.data = np.empty(100_000, np.uint8).view(Counted)
        assert forms.form_of(source, files) == "adjacent"
    assert 64_000 <= Counted.copied < 3 * 64_000


def test_bytes_that_are_not_utf8(tmp_path):
    """They are malformed, at the byte that is not UTF-8; Spark replaces them by U+FFFD."""
    (tmp_path / "f.jsonl").write_bytes('{"a": "caf\u00e9"}\n{"\u00e9": 1}\n{"b": 1}\n'.encode("latin-1"))
    found, malformed = read(tmp_path / "f.jsonl")
    assert found == [{"b": 1}]
    assert [(bad.line, bad.byte, bad.reason.partition(" (")[0]) for bad in malformed] == [
        (1, 10, "a byte is not UTF-8"), (2, 2, "a byte is not UTF-8"),
    ]  # fmt: skip


def test_malformed_elements(tmp_path):
    """An element that is malformed, empty or long is told with its line, and so is a file that ends inside the array."""
    (tmp_path / "f.json").write_text('[1,\n{"a" 2},\n,"' + "x" * 30 + '",\n3,\n{"b": [4')
    rows, malformed = read(tmp_path / "f.json", max_bytes=20)
    assert rows == [1, 3]
    reasons = [(bad.line, bad.reason.split("=")[0]) for bad in malformed]
    assert reasons == [
        (2, "a colon is expected after a key"), (3, "there is no value"), (3, "longer than max_document_bytes"),
        (5, "the file ends inside a document"),
    ]  # fmt: skip


def test_the_error_for_a_long_document_names_the_limit(tmp_path):
    """A document longer than the limit may be well-formed: its error says which limit to raise, and where it begins."""
    (tmp_path / "f.json").write_text('{"a": 1}\n"' + "x" * 30 + '"\n')
    _, [long] = read(tmp_path / "f.json", max_bytes=20)
    message = "line 2: a document longer than max_document_bytes=20: raise that limit; bad_records="
    assert f"f.json, {message}" in str(long.error(2, "lines"))


RECORDS = ("Records",)
NO_ARRAY, UNBALANCED = "the document has no array at $.Records", "its braces and brackets do not match"
OPEN, AFTER = "the file ends inside a document", "there is text after the value"
BETWEEN = "text between documents"


@pytest.mark.parametrize(
    ("text", "form", "records", "rows", "malformed"),
    [
        ('{"a": 1}{"a": 2}\n{"a": 3} \t\r\n', "lines", None, [{"a": 3}], [(1, 0, '{"a": 1}{"a": 2}', AFTER)]),
        ('{"a": 1}\r{"a": 2}\r', "lines", None, [], [(1, 0, '{"a": 1}\r{"a": 2}\r', AFTER)]),
        ("[1 2, 3\n]", "array", None, [3], [(1, 1, "1 2", AFTER)]),
        ("1\n2\n", "document", None, [], [(1, 0, "1\n2\n", AFTER)]),
        ("[1, 2]\n[3]\n", "auto", None, [1, 2], [(2, 7, "[3]\n", 'text after the array; format="adjacent" is for')]),
        ("[1]\n]", "array", None, [1], [(2, 4, "]", "text after the array")]),
        ('\n{"a": [1]}', "array", None, [], [(2, 1, '{"a": [1]}', "the file is not an array")]),
        ("[1}, 2]", "array", None, [2], [(1, 1, "1}", "a blank is expected")]),
        ("[1, \x01 2]", "array", None, [1], [(1, 4, "\x01 2", "a value is expected")]),
        ('{"x": [1]}\n{"Records": [1]}\n', "lines", RECORDS, [1], [(1, 0, '{"x": [1]}', NO_ARRAY)]),
        ('{"Records": [1]}\n{"Records": {}} ', "lines", RECORDS, [1], [(2, 17, '{"Records": {}}', NO_ARRAY)]),
        ('{"Rec\\u006frds": [1]}{"Records": [2]}', "auto", RECORDS, [2], [(1, 0, '{"Rec\\u006frds": [1]}', NO_ARRAY)]),
        ('[{"Records": [1]}]', "auto", RECORDS, [], [(1, 0, '[{"Records": [1]}]', NO_ARRAY)]),
        ('{"x": [1}, "Records": [2]}', "auto", RECORDS, [], [(1, 0, '{"x": [1}', UNBALANCED)]),
        ('{"Records": [1], "x": {]}\n{"Records": [2]}', "auto", RECORDS, [1], [(1, 0, '{"Records": [1], "x": {]', UNBALANCED)]),
        ('{"Records": [1]}\n 7 {"Records": []}', "auto", RECORDS, [1], [(2, 18, '7 {"Records": []}', "text between")]),
        ('{"Records": [1]}\n\n{"x": 5, "Records": ', "auto", RECORDS, [1], [(3, 18, '{"x": 5, "Records": ', OPEN)]),
        ('{"Records": [1,\n{"y": [2]', "auto", RECORDS, [1], [(2, 16, '{"y": [2]', OPEN)]),
        ('{"x": ' + "[" * 200 + "]" * 200 + ', "Records": [1]}', "auto", RECORDS, [1], []),
        ('{"a": 1}{"a": 2,}{"a": 3}', "adjacent", None, [{"a": 1}, {"a": 3}], [(1, 8, '{"a": 2,}', "a key in double")]),
        ('{"a": 1}\n{"a":\n2}, {"a": 3}', "adjacent", None, [{"a": 1}, {"a": 2}], [(3, 17, ', {"a": 3}', BETWEEN)]),
        ('{"a": 1}}\n{"a": 2}\n', "adjacent", None, [{"a": 1}], [(1, 8, '}\n{"a": 2}\n', BETWEEN)]),
        ('{"a": 1}}\n\x1e{"a": 2}\n', "adjacent", None, [{"a": 1}, {"a": 2}], [(1, 8, "}\n", BETWEEN)]),
        ('\x1e{"a": 1\n\x1e{"a": 2}', "adjacent", None, [{"a": 2}], [(1, 1, '{"a": 1\n', "the text ends")]),
        ('\x1e{"a": "1\n\x1e{"a": 2}\x1e"x\x1e3', "adjacent", None, [{"a": 2}, 3], [
            (1, 1, '{"a": "1\n', "a control character"), (2, 20, '"x', "the text ends"),
        ]),
        ('[1]\n{"a": [{}\n\n{"a": 3}', "adjacent", None, [[1]], [(2, 4, '{"a": [{}\n\n{"a": 3}', OPEN)]),
        ("1 2,3\n4", "adjacent", None, [1], [(1, 2, "2,3\n4", BETWEEN)]),
        ('"a""b"true nul 5x 1{"a": 1}', "adjacent", None, ["a", "b", True], [
            (1, 11, "nul", "true, false"), (1, 15, "5x", "a blank is expected"), (1, 18, '1{"a": 1}', BETWEEN),
        ]),
        ('{"a": "' + "x" * 20 + '"}{"a": 2}', "adjacent", None, [{"a": "x" * 20}, {"a": 2}], []),
        ('{"a": 1}\n\ufeff{"a": 2}', "adjacent", None, [{"a": 1}], [(2, 9, '\ufeff{"a": 2}', BETWEEN)]),
        ('{"a": 1}\n{"a": 2}{"a": 3}', "adjacent", RECORDS, [], [
            (1, 0, '{"a": 1}', NO_ARRAY), (2, 9, '{"a": 2}', NO_ARRAY), (2, 17, '{"a": 3}', NO_ARRAY)
        ]),
        *(("\ufeff \n\r\n", form, None, [], []) for form in ("auto", "lines", "array", "adjacent", "document")),
        ("\ufeff \n\r\n", "auto", RECORDS, [], []),
    ],
)  # fmt: skip
def test_broken_structures(tmp_path, text, form, records, rows, malformed):
    """No part of a file is lost in silence: what is no document is told, with its line, its first byte and its text."""
    (tmp_path / "f.json").write_bytes(text.encode())
    found, bad = read(tmp_path / "f.json", form, records)
    assert found == rows
    assert [(each.line, each.offset, each.text.decode()) for each in bad] == [wanted[:3] for wanted in malformed]
    for each, (*_, reason) in zip(bad, malformed, strict=True):
        assert each.reason.startswith(reason)


def test_what_a_piece_reads(tmp_path, monkeypatch):
    """A piece does not read a long line that belongs to the next one, nor keep more of a long line than its beginning."""
    (tmp_path / "f.jsonl").write_text("[1]\n[2]\n" + '"' + "x" * 5000 + '"\n[3]\n')
    size = (tmp_path / "f.jsonl").stat().st_size
    files = JsonFiles((Storage.of(str(tmp_path)),), "lines", None, 100, fails=False, allow_duplicate_keys=False)
    counts, read_more = [0], texts._Source.read

    def counted(source, wanted):
        counts[0] += (got := read_more(source, wanted))
        return got

    monkeypatch.setattr(texts._Source, "read", counted)
    found = list(Reader(files).documents(Piece(0, f"{tmp_path}/f.jsonl", "f", size, 0, 8)))
    assert (sum(len(variants) for variants, _ in found), [bad for _, bad in found if bad]) == (2, [])
    assert counts[0] < 30
    monkeypatch.setattr(texts, "BLOCK", 1 << 20)
    monkeypatch.setattr(documents_module, "KEPT", 64)
    found = list(Reader(files).documents(Piece(0, f"{tmp_path}/f.jsonl", "f", size, 8, None)))
    assert sum(len(variants) for variants, _ in found) == 1
    assert [(bad.offset, len(bad.text)) for _, malformed in found for bad in malformed] == [(8, 64)]


def test_errors_of_storage(tmp_path):
    """What a second attempt cannot mend is TableError, so that Spark does not try again; anything else stays OSError."""
    path = tmp_path / "f.json.gz"
    path.write_bytes(gzip.compress(b"1\n")[:-4])
    files = JsonFiles((Storage.of(str(tmp_path)),), "lines", None, 100, fails=False, allow_duplicate_keys=False)
    good = Piece(0, str(path), "f", path.stat().st_size)
    for piece, message in (
        (good, "cannot read f: Truncated compressed stream"),
        (replace(good, size=5), "had 5 bytes when it was listed"),
        (replace(good, path=str(tmp_path / "gone")), "cannot read f: .*No such file"),
    ):
        with pytest.raises(TableError, match=message):
            list(Reader(files).documents(piece))
    with pytest.raises(OSError, match=r"cannot read f: .*directory"):
        list(Reader(files).documents(replace(good, path=str(tmp_path))))


def test_batches(tmp_path, monkeypatch):
    """Small pieces share batches, and no batch has more rows than it should; other columns keep the values of their piece."""
    monkeypatch.setattr(documents_module, "_ROWS", 3)
    monkeypatch.setattr(documents_module, "_BATCH_ROWS", 4)
    monkeypatch.setattr(texts, "BLOCK", 1 << 20)
    pieces = []
    for number, count in enumerate((1, 1, 1, 8, 0, 2)):
        (tmp_path / f"{number}").write_text(f"{number}\n" * count)
        pieces.append(Piece(0, f"{tmp_path}/{number}", f"{number}", 2 * count).json())
    files = JsonFiles((Storage.of(str(tmp_path)),), "lines", None, 9, fails=True, allow_duplicate_keys=False)
    rows = pa.record_batch({"n": pa.array(range(6), pa.int64()), "v": pieces})
    batches = list(Reader(files).batches(iter([rows]), "v", Counter()))
    assert [batch.num_rows for batch in batches] == [6, 5, 2]
    found = [(n, binary.decode(**v)) for batch in batches for n, v in zip(*map(pa.Array.to_pylist, batch.columns), strict=True)]
    assert found == [(n, n) for n in (0, 1, 2, *[3] * 8, 5, 5)]
    (tmp_path / "f.json").write_text("")
    assert read(tmp_path / "f.json", "array") == ([], [])


@given(st.lists(st.sampled_from([b"\n", b"\r", b"\x8a", b"*", b"x" * 31]), max_size=80).map(b"".join), st.data())
def test_line_ends(text, data):
    """A block's newlines are found wherever it begins and ends, and none of those behind it."""
    at = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(at, len(text)))
    found = np.empty(end - at, np.int64)
    count = line_ends(np.frombuffer(text + b"\n" * PADDING, np.uint8), at, end, found)
    assert found[:count].tolist() == [i for i in range(at, end) if text[i] == ord("\n")]


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst"])
def test_compressed_files(tmp_path, suffix):
    """Files of several compressed parts are read to their end; one that is cut off is an error, and not a shorter file."""
    path = tmp_path / f"f.jsonl{suffix}"
    parts = [COMPRESS[suffix](f'{{"id": {n}}}\n'.encode() * 50) for n in range(3)]
    path.write_bytes(b"".join(parts))
    assert read(path)[0] == [{"id": n} for n in range(3) for _ in range(50)]
    path.write_bytes(b"".join(parts)[:-5])
    with pytest.raises(TableError, match=r"cannot read f.jsonl"):
        read(path)


def test_names_of_files():
    """Files are known by their suffix, compressed or not."""
    assert all(map(is_known, ["a.json", "a.JSONL.gz", "a.ndjson.zst", "b.json.bz2"]))
    assert not any(map(is_known, ["a.parquet", "json", "a.json.tmp", "a.csv.gz"]))
