"""The clauses of protocol/README.md and the tests that prove them name each other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PROTOCOL = (TESTS.parent / "protocol" / "README.md").read_text(encoding="utf-8")
ID = r"[A-Z]\d+(?:\.\d+)?"
CLAUSE = re.compile(rf"^(?:\* )?\*\*({ID})\*\* ", re.MULTILINE)
NAMED_TEST = re.compile(r"`((?:\w+/)*test_\w+\.py)::(test_\w+)`")
NAMED_CLAUSES = re.compile(rf"\(({ID}(?:, {ID})*)\)\.")


def clauses() -> dict[str, str]:
    """The text of each clause by its id. A clause ends at the next one, or at a heading."""
    _, *parts = CLAUSE.split(PROTOCOL)
    return {number: text.split("\n## ")[0] for number, text in zip(parts[::2], parts[1::2], strict=True)}


def named_clauses() -> dict[tuple[str, str], set[str]]:
    """The ids of the clauses that the docstring of each test function names, by file and function."""
    found = {}
    for path in TESTS.rglob("test_*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                lists = NAMED_CLAUSES.findall(ast.get_docstring(node) or "")
                found[path.relative_to(TESTS).as_posix(), node.name] = {number for text in lists for number in text.split(", ")}
    return found


def test_clauses_and_tests_name_each_other():
    """Each test that the protocol names exists, and names the clauses that name it; each clause that a test names exists."""
    tests, texts = named_clauses(), clauses()
    assert set(NAMED_TEST.findall(PROTOCOL)) <= tests.keys()
    named = {(test, number) for number, text in texts.items() for test in NAMED_TEST.findall(text)}
    assert named
    assert not [(test, number) for test, number in named if number not in tests[test]]
    assert set().union(*tests.values()) <= texts.keys()
