"""Query predicate → bounds predicate, without Spark: truth tables, and a brute-force oracle over generated files."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_variant.optimizer import answer
from delta_variant.skipping import (
    BOUNDS_TAG,
    ROWS_CANNOT_MATCH,
    ROWS_MIGHT_MATCH,
    AllOf,
    And,
    AnyOf,
    Check,
    Comparison,
    In,
    Literal,
    Or,
    Path,
    Unknown,
    keeps_order,
    translate,
)

if TYPE_CHECKING:
    from delta_variant.skipping import Bounds, Predicate

A = Path(("v",), ("a",), "bigint", name="v")
B = Path(("v",), ("b",), "bigint", name="v")
UNKNOWN = Unknown("some reason")
OPS = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
MIN_MAX = {"min": 0, "max": 1}


def big(value):
    return Literal("bigint", None if value is None else str(value))


def compare(op, left, right):
    return None if left is None or right is None else OPS[op](left, right)


def kleene_and(values):
    return False if False in values else None if None in values else True


def kleene_or(values):
    return True if True in values else None if None in values else False


def on_bounds(bounds: Bounds, file: dict[Path, tuple[int | None, int | None]]) -> bool | None:
    """SQL's answer: what Spark computes for one file."""
    match bounds:
        case Check(side, path, op, literal):
            return compare(op, file.get(path, (None, None))[MIN_MAX[side]], int(literal.text))
        case AllOf(parts):
            return kleene_and([on_bounds(part, file) for part in parts])
        case AnyOf(parts):
            return kleene_or([on_bounds(part, file) for part in parts])


def on_row(predicate: Predicate, row: dict[Path, int | None]) -> bool | None:
    match predicate:
        case Comparison(op, path, literal):
            return compare(op, row[path], None if literal.text is None else int(literal.text))
        case In(path, literals):
            return kleene_or([on_row(Comparison("=", path, literal), row) for literal in literals])
        case And(parts):
            return kleene_and([on_row(part, row) for part in parts])
        case Or(parts):
            return kleene_or([on_row(part, row) for part in parts])
        case Unknown():
            return True  # the worst it can be


def decide(predicate: Predicate, file: dict[Path, tuple[int | None, int | None]]) -> bool | None:
    return on_bounds(translate(predicate, {("v",)})[0], file)


@pytest.mark.parametrize(
    ("op", "answers"),
    # literal 5 against bounds:  [1,4]  [1,5]  [5,5]  [5,9]  [6,9]  [1,9]  [1,?]  [6,?]  [?,4]  [?,9]  [?,?]
    [
        ("=", (False, True, True, True, False, True, None, False, False, None, None)),
        ("<", (True, True, False, False, False, True, True, False, None, None, None)),
        ("<=", (True, True, True, True, False, True, True, False, None, None, None)),
        (">", (False, False, False, True, True, True, None, None, False, True, None)),
        (">=", (False, True, True, True, True, True, None, None, False, True, None)),
    ],
)
def test_comparison(op, answers):
    """Each operator against every position of the bounds: < needs the minimum alone, > the maximum, = either."""
    n = None
    bounds = [(1, 4), (1, 5), (5, 5), (5, 9), (6, 9), (1, 9), (1, n), (6, n), (n, 4), (n, 9), (n, n)]
    assert tuple(decide(Comparison(op, A, big(5)), {A: pair}) for pair in bounds) == answers


YES, NO, MAYBE = (1, 9), (6, 9), (None, None)  # bounds on which `= 5` gives TRUE, FALSE and NULL


@pytest.mark.parametrize(
    ("left", "right", "both", "either"),
    [
        (YES, YES, True, True),
        (YES, NO, False, True),
        (YES, MAYBE, None, True),
        (NO, YES, False, True),
        (NO, NO, False, False),
        (NO, MAYBE, False, None),
        (MAYBE, YES, None, True),
        (MAYBE, NO, False, None),
        (MAYBE, MAYBE, None, None),
    ],
)
def test_and_or(left, right, both, either):
    """AND and OR follow SQL's three values: one side proves an AND FALSE, an OR takes both."""
    parts = (Comparison("=", A, big(5)), Comparison("=", B, big(5)))
    file = {A: left, B: right}
    assert decide(And(parts), file) is both
    assert decide(Or(parts), file) is either


def test_unknown_parts():
    """An unknown part of an AND leaves the other side its proof; an unknown part of an OR takes it away."""
    known = Comparison("=", A, big(5))
    for bounds, expected in ((YES, True), (NO, False), (MAYBE, None)):
        assert decide(And((UNKNOWN, known)), {A: bounds}) is expected
        assert decide(And((known, UNKNOWN)), {A: bounds}) is expected
    assert translate(Or((known, UNKNOWN)), {("v",)}) == (ROWS_MIGHT_MATCH, ["some reason"])
    assert translate(Or((known, Unknown())), {("v",)})[0] == ROWS_MIGHT_MATCH
    assert translate(And((UNKNOWN, UNKNOWN)), {("v",)})[0] == ROWS_MIGHT_MATCH


def test_null_literals():
    """A comparison with NULL is never TRUE; a NULL in an IN list adds nothing to it."""
    assert translate(Comparison("=", A, big(None)), {("v",)})[0] == ROWS_CANNOT_MATCH
    assert translate(In(A, (big(None),)), {("v",)})[0] == ROWS_CANNOT_MATCH
    assert translate(In(A, (big(None), big(5))), {("v",)}) == translate(In(A, (big(5),)), {("v",)})
    assert translate(And((UNKNOWN, Comparison("<", A, big(None)))), {("v",)})[0] == ROWS_CANNOT_MATCH
    assert translate(Or((Comparison("=", A, big(None)), UNKNOWN)), {("v",)})[0] == ROWS_MIGHT_MATCH


def test_long_in_list():
    """An IN of many values becomes few ranges, and still proves what lies outside them."""
    predicate = In(A, tuple(big(value) for value in [*range(0, 100_000, 10), 10**12]))
    bounds, _ = translate(predicate, {("v",)})
    assert isinstance(bounds, AnyOf)
    assert len(bounds.parts) <= 64
    assert decide(predicate, {A: (500, 500)}) is True
    assert decide(predicate, {A: (10**9, 10**10)}) in (True, False)
    assert decide(predicate, {A: (-5, -1)}) is False
    assert decide(predicate, {A: (10**12 + 1, 10**13)}) is False


VALUES = st.none() | st.integers(-3, 3)
LEAVES = st.one_of(
    st.builds(Comparison, st.sampled_from(sorted(OPS)), st.sampled_from([A, B]), VALUES.map(big)),
    st.builds(In, st.sampled_from([A, B]), st.lists(VALUES.map(big), min_size=1, max_size=4).map(tuple)),
)


def trees(leaves):
    parts = lambda children: st.lists(children, min_size=1, max_size=3).map(tuple)  # noqa: E731  # a strategy
    return st.recursive(leaves, lambda children: st.builds(And, parts(children)) | st.builds(Or, parts(children)))


def bounds_of(rows, kept):
    file = {}
    for path in (A, B):
        values = [row[path] for row in rows if row[path] is not None]
        low, high = (min(values), max(values)) if values else (None, None)
        file[path] = (low if kept[path, "min"] else None, high if kept[path, "max"] else None)
    return file


ROWS = st.lists(st.fixed_dictionaries({A: VALUES, B: VALUES}), max_size=5)
KEPT = st.fixed_dictionaries({(path, side): st.booleans() for path in (A, B) for side in ("min", "max")})


@given(trees(LEAVES | st.just(UNKNOWN)), ROWS, KEPT)
def test_never_loses_a_row(predicate, rows, kept):
    """FALSE on a file's bounds, some of which may be missing, means that no row of the file makes the predicate TRUE."""
    if decide(predicate, bounds_of(rows, kept)) is False:
        assert True not in [on_row(predicate, row) for row in rows]


@given(trees(LEAVES), st.fixed_dictionaries({A: st.integers(-3, 3), B: st.integers(-3, 3)}))
def test_exact_for_one_row(predicate, row):
    """A file of one row with all its bounds is kept exactly if the row matches."""
    file = bounds_of([row], dict.fromkeys([(A, "min"), (A, "max"), (B, "min"), (B, "max")], True))
    assert (decide(predicate, file) is not False) == (on_row(predicate, row) is True)


@pytest.mark.parametrize(
    ("path", "literal", "reason"),
    [
        (Path(("w",), ("a",), "bigint"), big(5), "no Variant bounds for column w"),
        (Path(("v",), ("a",), "boolean"), Literal("boolean", "true"), "read as boolean"),
        (Path(("v",), ("a",), "variant"), big(5), "read as variant"),
        (Path(("v",), ('a"b',), "bigint"), big(5), "double quote"),
        (Path(("v",), ("a",), "bigint"), Literal("int", "5"), "compared with a int"),
        (Path(("v",), ("a",), "string"), Literal("string collate UTF8_LCASE", "61"), "compared with a string collate"),
        (Path(("v",), ("a",), "timestamp_ntz"), Literal("timestamp_ntz", str(10**18)), "outside the years"),
    ],
)
def test_what_cannot_be_used(path, literal, reason):
    """Whatever the bounds cannot decide keeps the file, and says why."""
    bounds, reasons = translate(Comparison("=", path, literal), {("v",)})
    assert bounds == ROWS_MIGHT_MATCH
    assert reason in reasons[0]


def test_marks():
    """String bounds, and floating-point ones, count only in marked files; other kinds need no mark."""
    string = Comparison("=", Path(("v",), ("a",), "string"), Literal("string", "61"))
    double = Comparison("=", Path(("v",), ("a",), "double"), Literal("double", "1.0"))
    assert translate(string, {("v",)}, marked=False)[0] == ROWS_MIGHT_MATCH
    assert BOUNDS_TAG in translate(string, {("v",)}, marked=False)[1][0]
    assert translate(double, {("v",)}, marked=False)[0] != ROWS_MIGHT_MATCH  # its bounds may be exact numerics
    for predicate in (string, double):
        bounds = translate(predicate, {("v",)})[0]
        assert BOUNDS_TAG in bounds.sql()
        assert BOUNDS_TAG not in bounds.sql(trust_all=True)
    assert BOUNDS_TAG not in translate(Comparison("=", A, big(5)), {("v",)})[0].sql()


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("int", "bigint", True),
        ("bigint", "int", False),
        ("int", "double", True),
        ("bigint", "double", True),
        ("float", "double", True),
        ("double", "float", False),
        ("decimal(10,2)", "double", True),
        ("decimal(10,2)", "decimal(12,4)", True),
        ("decimal(10,2)", "decimal(12,5)", False),
        ("decimal(10,2)", "decimal(12,1)", False),
        ("int", "decimal(10,0)", True),
        ("bigint", "decimal(18,0)", False),
        ("string", "int", False),
        ("int", "string", False),
        ("timestamp", "date", False),
        ("date", "timestamp", False),
        ("string", "string collate UTF8_LCASE", False),
    ],
)
def test_casts_on_top(source, target, expected):
    """Only casts that neither fail nor change the order are taken through to the bounds."""
    assert keeps_order(source, target) is expected


def test_sql_quotes_everything():
    """Keys, names and strings reach Spark's parser in forms that no setting of the session can change."""
    path = Path(("weird`name",), ("it's", "b\\s"), "string")
    sql = translate(Comparison("=", path, Literal("string", "27")), {("weird`name",)})[0].sql()
    assert "stats.minValues.`weird``name`" in sql
    assert "CAST(X'27' AS STRING)" in sql
    key = """$["$['it\\'s']['b\\\\s']"]"""
    assert f"CAST(X'{key.encode().hex()}' AS STRING)" in sql
    assert "'timestamp_ltz'" in Check("min", Path(("v",), (), "timestamp"), "<", Literal("timestamp", "0")).sql()


def test_literals_read_well():
    """Literals print as a person would write them, whatever their range."""
    assert str(Literal("string", "c3a9")) == "'é'"
    assert str(Literal("date", "19782")) == "2024-02-29"
    assert str(Literal("timestamp", "1000001")) == "1970-01-01 00:00:01.000001Z"
    assert str(Literal("timestamp", str(2**62))) == f"{2**62} us"
    assert str(big(None)) == "NULL"
    assert str(In(A, tuple(map(big, range(9))))) == "v:a::bigint IN (0, 1, 2, 3, 4, ...)"
    assert str(Path(("v",), ("a b", "c"), "int")) == "v:['a b'].c::int"


def read(path="$.a", of="bigint"):
    return {"get": {"column": ["v"], "name": "v"}, "path": path, "type": of}


def lit(value, of="bigint"):
    return {"literal": value, "type": of}


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({"op": ">", "args": [read(), lit("5")]}, "v:a::bigint > 5"),
        ({"op": ">", "args": [lit("5"), read()]}, "v:a::bigint < 5"),
        ({"op": "<=>", "args": [lit("5"), read()]}, "v:a::bigint = 5"),
        ({"op": "in", "args": [read(), lit("5"), lit("6")]}, "v:a::bigint IN (5, 6)"),
        ({"op": "=", "args": [{"cast": read(of="variant"), "type": "int"}, lit("5", "int")]}, "v:a::int = 5"),
        ({"op": "=", "args": [{"cast": read(of="int"), "type": "bigint"}, lit("5")]}, "v:a::int::bigint = 5"),
        (
            {"op": "=", "args": [{"get": read(of="variant"), "path": "$['b']", "type": "bigint"}, lit("5")]},
            "v:a.b::bigint = 5",
        ),
        ({"op": "=", "args": [{"cast": {"column": ["v"], "name": "v"}, "type": "bigint"}, lit("5")]}, "v:$::bigint = 5"),
    ],
)
def test_requests(node, expected):
    """Each form in which Spark's plan holds a predicate on a path becomes the same small predicate."""
    reply = answer({"filters": [node], "bounded": [["v"]], "marked": True, "trust_all": False})
    assert reply["predicates"] == [expected]
    assert reply["reasons"] == []
    assert reply["sql"]


@pytest.mark.parametrize(
    "node",
    [
        {"op": "=", "args": [read(), read("$.b")]},
        {"op": "=", "args": [lit("5"), lit("5")]},
        {"op": "<=>", "args": [read(), lit(None)]},
        {"op": "=", "args": [read("$.a[0]"), lit("5")]},
        {"op": "=", "args": [read("$..a"), lit("5")]},
        {"op": "=", "args": [{"cast": read(of="bigint"), "type": "int"}, lit("5", "int")]},
        {"op": "in", "args": [read(), lit("5"), {"unknown": "id"}]},
        {"op": "=", "args": [{"unknown": "abs(v.0)"}, lit("5")]},
        {"unknown": "(NOT (v.0 = 5))"},
        read(of="boolean"),
    ],
)
def test_requests_that_prove_nothing(node):
    """A form that is not understood keeps every file and tells why."""
    reply = answer({"filters": [node], "bounded": [["v"]], "marked": True, "trust_all": False})
    assert reply["sql"] is None
    assert reply["predicates"] == []
    assert len(reply["reasons"]) == 1
