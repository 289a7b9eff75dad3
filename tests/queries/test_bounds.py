"""Query predicate → bounds predicate, without Spark: truth tables, and a brute-force oracle over generated files."""

from __future__ import annotations

import operator
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_variant import messages as m
from delta_variant.queries.bounds import ROWS_CANNOT_MATCH, ROWS_MIGHT_MATCH, LogContents, Projection
from delta_variant.queries.bounds import translate as translated
from delta_variant.queries.casts import keeps_order
from delta_variant.queries.findings import verdicts
from delta_variant.queries.predicates import (
    And,
    Comparison,
    Constants,
    In,
    NotNull,
    Or,
    Other,
    Path,
    StartsWith,
    Unknown,
    leaves,
    merged,
    negate,
)
from delta_variant.queries.requests import MAX_BOUNDS, MAX_COMPARISONS, answer
from delta_variant.stats import BOUNDS_TAG

if TYPE_CHECKING:
    from delta_variant.queries.predicates import Predicate

A = Path(("v",), ("a",), "bigint", name="v")
B = Path(("v",), ("b",), "bigint", name="v")
UNKNOWN = Unknown("some reason")
LOG = LogContents((("v",),))
UNMARKED, TRUSTED, COUNTED = replace(LOG, marked=False), replace(LOG, trust_all=True), replace(LOG, nonnull=True)
S = Path(("v",), ("s",), "string", name="v")
FLAG = Path(("v",), ("flag",), "boolean", name="v")
OPS = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
MIN_MAX = {"min": 0, "max": 1}
NO_VALUES = (None, None, "counted")  # the tag says that every row is null or lacks the path


LISTED: dict[Constants, int] = {}
"""The constants of all tests and their numbers."""


def constants(of, *texts):
    """What Catalyst calls a Literal, or several of one type; None is NULL."""
    some = tuple(text for text in texts if text is not None)
    unnumbered = Constants(of, some, len(some), None in texts)
    return replace(unnumbered, number=LISTED.setdefault(unnumbered, len(LISTED)))


def translate(predicate, log):
    """The predicate on bounds without the bounds that it compares, and why parts are not used."""
    return translated(predicate, Projection(log))


def big(*values):
    return constants("bigint", *(None if value is None else str(value) for value in values))


def text(value):
    return constants("string", None if value is None else value.encode().hex())


def flag(value):
    return constants("boolean", {None: None, True: "true", False: "false"}[value])


READ = {"string": bytes.fromhex, "boolean": "true".__eq__}


def values_of(*lists):
    return [READ.get(part.type, int)(text) for part in lists for text in part.texts]


def value_of(constant):
    return None if constant.null else values_of(constant)[0]


def starts(value, prefix):
    return None if value is None or prefix is None else value.startswith(prefix)


def compare(op, left, right):
    if op.endswith("startswith"):
        return kleene_not(starts(left, right)) if op.startswith("NOT") else starts(left, right)
    if op == "<=>":
        return left == right
    return None if left is None or right is None else OPS[op](left, right)


def kleene_not(value):
    return None if value is None else not value


def kleene_and(values):
    return False if False in values else None if None in values else True


def kleene_or(values):
    return True if True in values else None if None in values else False


def on_bounds(found: m.FilePredicate, projection: Projection, file: dict[Path, tuple[int | None, int | None]]) -> bool | None:
    """SQL's answer for one file; test_tree.py proves that the JVM gives the same."""
    bounds, lists = list(projection.bounds), list(LISTED)

    def bound(number):
        side, path = bounds[number]
        return file.get(path, (None, None))[MIN_MAX[side]]

    match found:
        case m.Compare(op, number, constant):
            return compare(op, bound(number), value_of(lists[constant]))
        case m.HasPrefix(number, constant, negated):
            return compare("NOT startswith" if negated else "startswith", bound(number), value_of(lists[constant]))
        case m.Between(low, high, some):
            assert [bounds[low], bounds[high]] == [("min", bounds[low][1]), ("max", bounds[low][1])]
            values = values_of(*(lists[number] for number in some))
            among = [kleene_and([compare("<=", bound(low), one), compare(">=", bound(high), one)]) for one in values]
            return kleene_or(among)
        case m.Differs(low, high, some):
            assert [bounds[low], bounds[high]] == [("min", bounds[low][1]), ("max", bounds[low][1])]
            others = [compare("<>", bound(low), value) for value in values_of(*(lists[number] for number in some))]
            return kleene_or([compare("<>", bound(low), bound(high)), kleene_and(others)])
        case m.OtherColumns():
            return file["other"]
        case m.HasValues(number):
            side, path = bounds[number]
            assert side == "values"
            return file.get(path, (None, None)) != NO_VALUES
        case m.AllOf(parts):
            return kleene_and([on_bounds(part, projection, file) for part in parts])
        case m.AnyOf(parts):
            return kleene_or([on_bounds(part, projection, file) for part in parts])


def on_row(predicate: Predicate, row: dict[Path, int | None]) -> bool | None:
    match predicate:
        case Comparison(op, path, constant):
            return compare(op, row[path], value_of(constant))
        case In(path, some, negated):
            values = [*values_of(*some), *[None] * any(part.null for part in some)]
            found = kleene_or([compare("=", row[path], value) for value in values])
            return kleene_not(found) if negated else found
        case StartsWith(path, prefix, negated):
            return compare("NOT startswith" if negated else "startswith", row[path], value_of(prefix))
        case NotNull(path):
            return row[path] is not None
        case And(parts):
            return kleene_and([on_row(part, row) for part in parts])
        case Or(parts):
            return kleene_or([on_row(part, row) for part in parts])
        case Unknown():
            return True  # the worst it can be


def decide(predicate: Predicate, file: dict[Path, tuple[int | None, int | None]], log: LogContents = LOG) -> bool | None:
    projection = Projection(log)
    found, _ = translated(predicate, projection)
    assert used_by(found) == set(range(len(projection.bounds)))
    return on_bounds(found, projection, file)


def used_by(found: m.FilePredicate) -> set[int]:
    """The numbers of the bounds that a predicate compares."""
    match found:
        case m.AllOf(parts) | m.AnyOf(parts):
            return set().union(*map(used_by, parts))
        case m.Compare(_, bound) | m.HasPrefix(bound) | m.HasValues(bound):
            return {bound}
        case m.Between(low, high) | m.Differs(low, high):
            return {low, high}
    return set()


@pytest.mark.parametrize(
    ("op", "answers"),
    # literal 5 against bounds:  [1,4]  [1,5]  [5,5]  [5,9]  [6,9]  [1,9]  [1,?]  [6,?]  [?,4]  [?,9]  [?,?]
    [
        ("=", (False, True, True, True, False, True, None, False, False, None, None)),
        ("<=>", (False, True, True, True, False, True, None, False, False, None, None)),
        ("<>", (True, True, False, True, True, True, True, True, None, None, None)),
        ("<", (True, True, False, False, False, True, True, False, None, None, None)),
        ("<=", (True, True, True, True, False, True, True, False, None, None, None)),
        (">", (False, False, False, True, True, True, None, None, False, True, None)),
        (">=", (False, True, True, True, True, True, None, None, False, True, None)),
    ],
)
def test_comparison(op, answers):
    """Each operator gives TRUE, FALSE or NULL for every position of the bounds, missing ones included (Q1)."""
    n = None
    bounds = [(1, 4), (1, 5), (5, 5), (5, 9), (6, 9), (1, 9), (1, n), (6, n), (n, 4), (n, 9), (n, n)]
    assert tuple(decide(Comparison(op, A, big(5)), {A: pair}) for pair in bounds) == answers


@pytest.mark.parametrize(
    ("literals", "answers"),
    # bounds:       [1,4]  [3,3]  [5,5]  [3,5]  [5,?]  [6,?]  [?,5]  [?,?]
    [
        ((5,), (True, True, False, True, None, True, None, None)),
        ((3, 5), (True, False, False, True, None, True, None, None)),
        ((), (True, True, True, True, True, True, True, True)),
        ((3, None), (False, False, False, False, False, False, False, False)),
    ],
)
def test_not_in(literals, answers):
    """NOT IN is FALSE if both bounds are one value of the list, and for every file if the list has a NULL (Q1)."""
    n = None
    bounds = [(1, 4), (3, 3), (5, 5), (3, 5), (5, n), (6, n), (n, 5), (n, n)]
    predicate = negate(In(A, (big(*literals),)))
    assert tuple(decide(predicate, {A: pair}) for pair in bounds) == answers


@pytest.mark.parametrize(
    ("predicate", "answers"),
    # bounds:                              [F,F]  [F,T]  [T,T]  [F,?]  [T,?]  [?,F]  [?,T]  [?,?]
    [
        (Comparison("=", FLAG, flag(True)), (False, True, True, None, None, False, True, None)),
        (Comparison("=", FLAG, flag(False)), (True, True, False, True, False, None, None, None)),
        (Comparison("<>", FLAG, flag(True)), (True, True, False, True, False, None, None, None)),
        (Comparison("<>", FLAG, flag(False)), (False, True, True, None, None, False, True, None)),
        (Comparison("<", FLAG, flag(True)), (True, True, False, True, False, None, None, None)),
        (In(FLAG, (flag(True), flag(None))), (False, True, True, None, None, False, True, None)),
    ],
)
def test_booleans(predicate, answers):
    """Comparisons of booleans rule files out by their bounds, in which false is below true (Q1)."""
    n = None
    bounds = [(False, False), (False, True), (True, True), (False, n), (True, n), (n, False), (n, True), (n, n)]
    found = [decide(predicate, {FLAG: pair}) for pair in bounds]
    assert [answer is not False for answer in found] == [answer is not False for answer in answers]


@pytest.mark.parametrize(
    ("low", "high", "starts", "starts_not"),
    [
        ("a", "ab\U0010ffff", True, True),
        ("a", "aba", False, True),
        ("ab", "ab", False, True),
        ("abc", "abc", True, False),
        ("abc", "abcz\U0010ffff", True, False),
        ("abb\U0010ffff", "abd", True, True),
        ("abc\U0010ffff", "b", True, True),
        ("abd", "abe", False, True),
        ("b", "c", False, True),
        ("", "\U0010ffff", True, True),
        ("abc", None, None, None),
        ("abd", None, False, True),
        (None, "abb", False, True),
        (None, "abc", None, None),
        (None, None, None, None),
    ],
)
def test_prefixes(low, high, starts, starts_not):
    """A prefix predicate and its NOT give TRUE, FALSE or NULL for every position of the bounds, missing ones included (Q2)."""
    file = {S: tuple(None if bound is None else bound.encode() for bound in (low, high))}
    assert decide(StartsWith(S, text("abc")), file) is starts
    assert decide(negate(StartsWith(S, text("abc"))), file) is starts_not


TEXTS = st.text("ab\u00e9\U0010ffff", max_size=4)


@given(st.lists(TEXTS, min_size=1, max_size=4), TEXTS, st.integers(0, 3), st.booleans())
def test_prefixes_never_lose_a_row(texts, prefix, cut, negated):
    """A prefix predicate is never FALSE on cut bounds if a row matches; on the bounds of one value it is exact (Q2)."""
    values = sorted(value.encode() for value in texts)
    low, high = values[0].decode()[:cut], values[-1].decode()
    high = high if len(high) <= cut else high[:cut] + "\U0010ffff"
    predicate = StartsWith(S, text(prefix), negated)
    matches = [on_row(predicate, {S: value}) for value in values]
    cut_bounds = (low.encode(), high.encode() if high.encode() >= values[-1] else None)
    if decide(predicate, {S: cut_bounds}) is False:
        assert True not in matches
    assert decide(predicate, {S: (values[0], values[0])}) is matches[0]


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
    """An unknown part of an AND is left out; an unknown part of an OR keeps every file."""
    known = Comparison("=", A, big(5))
    for bounds, expected in ((YES, True), (NO, False), (MAYBE, None)):
        assert decide(And((UNKNOWN, known)), {A: bounds}) is expected
        assert decide(And((known, UNKNOWN)), {A: bounds}) is expected
    assert translate(Or((known, UNKNOWN)), LOG) == (ROWS_MIGHT_MATCH, ["some reason"])
    assert translate(Or((known, Unknown())), LOG)[0] == ROWS_MIGHT_MATCH
    assert translate(And((UNKNOWN, UNKNOWN)), LOG)[0] == ROWS_MIGHT_MATCH


def test_other_columns():
    """Delta's answer for ordinary columns is one more part of an AND or OR; its negation is unknown."""
    known = Comparison("=", A, big(5))
    either, both = Or((known, Other(0, "(id = 1)"))), And((known, Other(0, "(id = 1)")))
    for answer_of_delta in (None, False):
        file = {"other": answer_of_delta}
        assert decide(either, file | {A: NO}) is answer_of_delta
        assert decide(either, file | {A: YES}) is True
        assert decide(both, file | {A: NO}) is False
        assert decide(both, file | {A: YES}) is answer_of_delta
    assert m.OtherColumns(0) in translate(either, LOG)[0].parts
    assert translate(Or((known, negate(Other(0, "(id = 1)")))), LOG)[0] == ROWS_MIGHT_MATCH


def test_null_literals():
    """A comparison with NULL is never TRUE; a NULL in an IN list adds nothing to it."""
    assert translate(Comparison("=", A, big(None)), LOG)[0] == ROWS_CANNOT_MATCH
    assert translate(In(A, (big(None),)), LOG)[0] == ROWS_CANNOT_MATCH
    for low, high in ((1, 4), (1, 9), (6, 9), (None, 4), (None, None)):
        assert decide(In(A, (big(None, 5),)), {A: (low, high)}) is decide(In(A, (big(5),)), {A: (low, high)})
    assert translate(Comparison("<>", A, big(None)), LOG)[0] == ROWS_CANNOT_MATCH
    assert translate(StartsWith(S, text(None)), LOG)[0] == ROWS_CANNOT_MATCH
    assert translate(negate(StartsWith(S, text(None))), LOG)[0] == ROWS_CANNOT_MATCH
    assert translate(And((UNKNOWN, Comparison("<", A, big(None)))), LOG)[0] == ROWS_CANNOT_MATCH
    assert translate(Or((Comparison("=", A, big(None)), UNKNOWN)), LOG)[0] == ROWS_MIGHT_MATCH


def test_equalities_become_one_list():
    """In an OR, equalities and INs on one path are one IN; in an AND, inequalities and NOT INs one NOT IN; others stay."""
    equal, unequal = (Comparison(op, A, big(5)) for op in ("=", "<>"))
    listed, excluded = In(A, (big(6, 7),)), In(A, (big(6, 7),), negated=True)
    elsewhere, below = Comparison("=", B, big(5)), Comparison("<", A, big(1))
    assert merged(Or((equal, below, Or((listed, elsewhere))))) == Or((In(A, (big(5), big(6, 7))), below, elsewhere))
    assert merged(And((unequal, And((excluded, equal))))) == And((In(A, (big(5), big(6, 7)), negated=True), equal))
    assert merged(Or((equal, unequal))) == Or((equal, unequal))
    assert merged(Or((equal, equal))) == In(A, (big(5), big(5)))
    assert merged(And((Or((equal,)), UNKNOWN))) == And((equal, UNKNOWN))
    other_type = replace(A, type="int")
    assert merged(Or((equal, replace(equal, path=other_type)))) == Or((equal, replace(equal, path=other_type)))


VALUES = st.none() | st.integers(-3, 3)
LEAVES = st.one_of(
    st.builds(Comparison, st.sampled_from(sorted(OPS)), st.sampled_from([A, B]), VALUES.map(big)),
    st.builds(
        In, st.sampled_from([A, B]), st.lists(VALUES, min_size=1, max_size=4).map(lambda some: (big(*some),)), st.booleans()
    ),
)
NOT_NULL = st.builds(NotNull, st.sampled_from([A, B]))
NULL_SAFE = st.builds(Comparison, st.just("<=>"), st.sampled_from([A, B]), st.integers(-3, 3).map(big))


def trees(leaves):
    parts = lambda children: st.lists(children, min_size=1, max_size=3).map(tuple)  # noqa: E731  # a strategy
    return st.recursive(leaves, lambda children: st.builds(And, parts(children)) | st.builds(Or, parts(children)))


def bounds_of(rows, kept):
    file = {}
    for path in (A, B):
        values = [row[path] for row in rows if row[path] is not None]
        low, high = (min(values), max(values)) if values else (None, None)
        file[path] = (low if kept[path, "min"] else None, high if kept[path, "max"] else None)
        if not values and kept[path, "min"]:
            file[path] = NO_VALUES
    return file


ROWS = st.lists(st.fixed_dictionaries({A: VALUES, B: VALUES}), max_size=5)
KEPT = st.fixed_dictionaries({(path, side): st.booleans() for path in (A, B) for side in ("min", "max")})


@given(trees(LEAVES | NULL_SAFE | NOT_NULL | st.just(UNKNOWN)), ROWS, KEPT, st.sampled_from([LOG, COUNTED]))
def test_never_loses_a_row(predicate, rows, kept, log):
    """If a predicate is FALSE on a file's bounds, of which some may be missing, it is TRUE for no row of the file (Q1)."""
    if decide(predicate, bounds_of(rows, kept), log) is False:
        assert True not in [on_row(predicate, row) for row in rows]


@given(trees(LEAVES), st.fixed_dictionaries({A: st.integers(-3, 3), B: st.integers(-3, 3)}))
def test_exact_for_one_row(predicate, row):
    """A file of one row with all its bounds is kept exactly if the row matches (Q1)."""
    file = bounds_of([row], dict.fromkeys([(A, "min"), (A, "max"), (B, "min"), (B, "max")], True))
    assert (decide(predicate, file) is not False) == (on_row(predicate, row) is True)


@given(trees(LEAVES | NOT_NULL), st.fixed_dictionaries({A: VALUES, B: VALUES}))
def test_exact_where_values_are_counted(predicate, row):
    """A file of one row, whose paths may be null and counted in the tag, is kept exactly if the row matches (Q4)."""
    file = {path: NO_VALUES if value is None else (value, value) for path, value in row.items()}
    assert (decide(predicate, file, COUNTED) is not False) == (on_row(predicate, row) is True)


@given(trees(LEAVES), st.fixed_dictionaries({A: VALUES, B: VALUES}))
def test_not_goes_inward(predicate, row):
    """NOT, moved inward to the comparisons, is SQL's NOT: TRUE and FALSE change places, NULL stays (Q1)."""
    assert on_row(negate(predicate), row) is kleene_not(on_row(predicate, row))


@given(trees(LEAVES | NULL_SAFE | NOT_NULL), st.fixed_dictionaries({A: VALUES, B: VALUES}))
def test_merging_keeps_the_rows(predicate, row):
    """A merged predicate is TRUE for the same rows, and has no more comparisons."""
    assert (on_row(merged(predicate), row) is True) == (on_row(predicate, row) is True)
    assert len(list(leaves(merged(predicate)))) <= len(list(leaves(predicate)))


@given(trees(LEAVES | NULL_SAFE), st.fixed_dictionaries({A: VALUES, B: VALUES}))
def test_not_of_null_safe_equality_is_unknown(predicate, row):
    """NOT <=> is TRUE for rows without the path, so the NOT of a predicate with <=> loses none of the rows that match (Q1)."""
    if on_row(predicate, row) is False:
        assert on_row(negate(predicate), row) is True


@pytest.mark.parametrize(
    ("path", "constant", "reason"),
    [
        (Path(("w",), ("a",), "bigint"), big(5), "no Variant bounds for column w"),
        (Path(("v",), ("a",), "binary"), constants("binary", "00"), "read as binary"),
        (Path(("v",), ("a",), "string collate UTF8_LCASE"), constants("string collate UTF8_LCASE", "61"), "read as string"),
        (Path(("v",), ("a",), "variant"), big(5), "read as variant"),
        (Path(("v",), ("a",), "bigint"), constants("int", "5"), "compared with a int"),
        (Path(("v",), ("a",), "string"), constants("string collate UTF8_LCASE", "61"), "compared with a string collate"),
    ],
)
def test_what_cannot_be_used(path, constant, reason):
    """A comparison that bounds cannot decide keeps every file, and a reason says why."""
    bounds, reasons = translate(Comparison("=", path, constant), LOG)
    assert bounds == ROWS_MIGHT_MATCH
    assert reason in reasons[0]


def projected(predicate, log):
    """The bounds that a predicate compares, as the JVM reads them."""
    projection = Projection(log)
    translated(predicate, projection)
    return projection.read()


def test_marks():
    """String, boolean and floating-point bounds count only in files with the marker; other kinds need none (M1)."""
    string = Comparison("=", Path(("v",), ("a",), "string"), constants("string", "61"))
    double = Comparison("=", Path(("v",), ("a",), "double"), constants("double", "1.0"))
    assert translate(string, UNMARKED)[0] == ROWS_MIGHT_MATCH
    assert BOUNDS_TAG in translate(string, UNMARKED)[1][0]
    assert translate(double, UNMARKED)[0] != ROWS_MIGHT_MATCH  # its bounds may be exact numerics
    boolean = Comparison("=", FLAG, flag(True))
    assert BOUNDS_TAG in translate(boolean, UNMARKED)[1][0]
    for predicate in (string, double, boolean, StartsWith(S, text("a")), negate(string)):
        assert all(bound.marked for bound in projected(predicate, LOG))
        assert not any(bound.marked for bound in projected(predicate, TRUSTED))
    [low, _] = projected(Comparison("=", A, big(5)), LOG)
    assert "BIGINT" in low.kinds
    assert "DOUBLE" in low.marked


@pytest.mark.parametrize(
    ("asked", "used"),
    [
        *((kind, "BIGINT DECIMAL DOUBLE FLOAT BOOLEAN TIMESTAMP") for kind in ("tinyint", "bigint", "decimal(9,2)", "float")),
        ("boolean", "BOOLEAN"),
        ("string", "STRING BOOLEAN"),
        ("date", "DATE TIMESTAMP_NTZ"),
        ("timestamp", "TIMESTAMP BIGINT DECIMAL DOUBLE FLOAT"),
        ("timestamp_ntz", "TIMESTAMP_NTZ DATE"),
    ],
)
def test_kinds_of_bounds(asked, used):
    """For each type asked for, only bounds of the kinds in the table of casts are used (Q3)."""
    [bound] = projected(Comparison("<", Path(("v",), ("a",), asked), constants(asked, "5")), TRUSTED)
    assert sorted(bound.kinds) == sorted(used.split())


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
        ("timestamp", "timestamp_ntz", False),
        ("timestamp_ntz", "date", True),
        ("date", "timestamp_ntz", True),
        ("string", "string collate UTF8_LCASE", False),
    ],
)
def test_casts_on_top(source, target, expected):
    """Only casts that neither fail nor change the order are applied to bounds."""
    assert keeps_order(source, target) is expected


def test_each_bound_is_named_once():
    """A bound that a tree compares several times is read once, and named by its place in the log, its key and its casts."""
    weird = Path(("weird`name",), ("it's", "b\\s"), "int", ("bigint",))
    log = replace(COUNTED, columns=(("v",), ("weird`name",)))
    either = Or((Comparison("<", weird, big(1)), Comparison("<", weird, big(-1)), Comparison(">", A, big(5))))
    found = {(bound.side, bound.column): bound for bound in projected(either, log)}
    assert set(found) == {("min", 1), ("values", 1), ("max", 0), ("values", 0)}
    low = found["min", 1]
    assert low.key == "$['it\\'s']['b\\\\s']"
    assert low.tag == ("$['weird`name']['it\\'s']", "['b\\\\s']")
    assert low.types == ("int", "bigint")
    assert found["max", 0].types == ("bigint",)


def test_budget():
    """Parts of a query beyond the budget are left out, and the reply says so; an IN of any length is one comparison."""

    def asked(filters, *operands, **known):
        return answer(request(filters, *operands, **known))

    def equal(operand, number):
        return m.Comparison("=", m.OperandNumber(operand), lit(str(number)))

    def pair(number):
        return m.And((m.Comparison(">", m.OperandNumber(0), lit(number)), equal(0, number)))

    def either(parts):
        return asked(m.Or(tuple(parts)), read("$.a"))

    assert either(equal(0, number) for number in range(MAX_COMPARISONS * 2)).predicate
    many = either(pair(number) for number in range(MAX_COMPARISONS))
    assert many.predicate is None
    assert many.bounds  # to explain
    assert "too many for 10 files" in many.explanation.reasons[0]
    paths = [read(f"$.p{number}") for number in range(MAX_BOUNDS)]
    wide = request(m.Or(tuple(equal(number, 5) for number in range(MAX_BOUNDS))), *paths)
    assert answer(wide).predicate is None
    both = answer(replace(wide, filters=(*wide.filters, equal(0, 5))))
    [used] = both.predicate.parts  # the other part of the AND is used
    assert (type(used), [both.bounds[number].key for number in (used.low, used.high)]) == (m.Between, ["$['p0']"] * 2)
    others = m.And((m.Or(tuple(map(pair, range(MAX_COMPARISONS // 2)))), m.Ordinary(0, "p > 1")))
    beyond = asked(others, read("$.a"))
    assert beyond.predicate
    assert "contains p > 1: 1 comparisons, with the 2,000 of earlier predicates," in beyond.explanation.reasons[0]
    assert asked(pair(1), read("$.a"), files=10**9).predicate is None


@given(trees(LEAVES | NULL_SAFE | NOT_NULL | st.just(UNKNOWN)), st.sampled_from([LOG, COUNTED, replace(COUNTED, index=2)]))
def test_bounds_that_no_predicate_compares_are_not_read(predicate, log):
    """What is left out of a predicate leaves no bounds behind that would be read for it, nor paths of the index."""
    projection = Projection(log)
    before = translated(Comparison("<", B, big(0)), projection)[0]
    found, _ = translated(predicate, projection)
    assert used_by(found) | used_by(before) == set(range(len(projection.bounds)))
    assert {part.member for part in parts_of(found) if isinstance(part, m.Indexed)} == set(range(len(projection.members)))


def parts_of(found: m.FilePredicate) -> list[m.FilePredicate]:
    """The predicates in a predicate that are no AND and no OR."""
    return [one for part in found.parts for one in parts_of(part)] if isinstance(found, m.AllOf | m.AnyOf) else [found]


def test_not_null():
    """IS NOT NULL of a path needs the tag that counts rows without it; beside a comparison of the path it is left out (Q4)."""
    node = m.IsNotNull(read())
    assert ask(node).predicate is None
    assert "tag delta_variant.nonnull" in ask(node).explanation.reasons[0]
    reply = ask(node, nonnull=True)
    assert reply.explanation.predicates == ("v:a::bigint IS NOT NULL",)
    assert reply.predicate == m.AllOf((m.HasValues(0),))
    asked = request(m.IsNotNull(m.OperandNumber(0)), read(), nonnull=True)
    above = m.Comparison(">", m.OperandNumber(0), lit("5"))
    assert answer(replace(asked, filters=(*asked.filters, above))).explanation.predicates == ("v:a::bigint > 5",)
    assert translate(negate(NotNull(A)), COUNTED)[0] == ROWS_MIGHT_MATCH


def test_times_in_strings():
    """For a path asked for as a time the tag of times counts beside other bounds; for a string that is cast, alone (Q8)."""
    path, cast = read("$.a", "timestamp"), m.CastOf(read("$.a", "string"), "timestamp")
    path, cast = (m.Comparison("<", side, lit(0, of="timestamp")) for side in (path, cast))
    assert ask(path).explanation.predicates == ("v:a::timestamp < 1970-01-01 00:00:00Z",)
    assert ask(cast).explanation.predicates == ("v:a::string::timestamp < 1970-01-01 00:00:00Z",)
    [without, _], [bound, _], [text, _] = ask(path).bounds, ask(path, times=True).bounds, ask(cast, times=True).bounds
    assert (without.times, bound.times, text.times) == (None, *[("$['v']", "['a']")] * 2)
    assert (without.kinds, bound.kinds, text.kinds) == (*[("BIGINT", "DECIMAL", "TIMESTAMP")] * 2, ())
    assert (bound.types, text.types, text.marked) == (("timestamp",), ("timestamp",), ())
    assert ask(cast).predicate is None
    assert "tag delta_variant.times" in ask(cast).explanation.reasons[0]
    other = m.Comparison("<", m.CastOf(read("$.a", "string"), "int"), lit(0, of="int"))
    assert "a cast to int can fail" in ask(other, times=True).explanation.reasons[0]


def test_verdicts_are_asked_for_what_bounds_can_answer():
    """A question that no bounds can answer has no verdict."""
    useless = Comparison("=", replace(A, type="binary"), constants("binary", "00"))
    assert verdicts([useless], Projection(LOG)) == ()
    [found] = verdicts([useless, Comparison("=", A, big(5))], Projection(LOG))
    assert found.number == 1


@pytest.mark.parametrize(
    ("path", "scale"),
    [
        (S, -1),
        (A, 0),
        (replace(A, type="tinyint", casts=("int", "decimal(12,2)")), 0),
        (replace(A, type="decimal(38,10)"), 10),
        (replace(A, type="decimal(5,1)", casts=("decimal(10,2)",)), 1),
        (replace(A, casts=("double",)), None),
        (replace(A, type="double"), None),
        (replace(S, type="timestamp", text=True), None),
        (replace(S, type="string collate UTF8_LCASE"), None),
        (replace(S, type="date"), None),
        (FLAG, None),
    ],
    ids=str,
)
def test_types_that_the_index_answers(path, scale):
    """The index is asked where a cast keeps different values apart; the scale of numbers is that of the first cast (I4)."""
    value = Constants(path.result, ("5",))
    indexed = replace(LOG, index=10)
    for leaf in (Comparison("=", path, value), Comparison("<=>", path, value), In(path, (value,))):
        projection = Projection(indexed)
        found, _ = translated(leaf, projection)
        assert [part.constants for part in parts_of(found) if isinstance(part, m.Indexed)] == [(0,)] * (scale is not None)
        assert [member.scale for member in projection.asked()] == [scale] * (scale is not None)
        assert not any(isinstance(part, m.Indexed) for part in parts_of(translate(leaf, LOG)[0]))


def test_comparisons_that_the_index_does_not_answer():
    """The index is not asked for other comparisons, for NULL, for constants of other types, and for too many of them (I4)."""
    indexed = replace(LOG, index=10)
    values = big(*range(6))
    leaves = [Comparison(op, A, big(5)) for op in ("<", "<=", ">", ">=", "<>")] + [In(A, (big(5),), negated=True), NotNull(A)]
    leaves += [
        Comparison("=", A, big(None)),
        Comparison("=", A, constants("int", "5")),
        In(A, (values, values)),
        In(A, (big(None),)),
    ]
    for leaf in leaves:
        assert not any(isinstance(part, m.Indexed) for part in parts_of(translate(leaf, indexed)[0]))


def test_constants_read_well():
    """Constants print as a person would write them, whatever their range."""
    assert str(constants("string", "c3a9")) == "'é'"
    assert str(constants("date", "19782")) == "2024-02-29"
    assert str(constants("date", "99999999")) == "day 99999999"
    assert str(constants("timestamp", "1000001")) == "1970-01-01 00:00:01.000001Z"
    assert str(constants("timestamp", str(2**62))) == f"{2**62} us"
    assert str(big(None)) == "NULL"
    assert str(In(A, (big(0, 1), big(*range(2, 9), None)))) == "v:a::bigint IN (0, 1, 2, 3, 4, ..., NULL)"
    assert str(Path(("v",), ("a b", "c"), "int")) == "v:['a b'].c::int"


def request(one, *operands, **known):
    """A scan's request with one filter."""
    flags = {"marked": True, "nonnull": False, "times": False, "index": False, "exact": False, "trust_all": False}
    return m.PruneRequest(operands, (one,), (("v",), ("s", "v")), **{"files": 10, **flags, "explain": True, **known})


def ask(one, **known):
    """The reply to a filter; its operands are replaced by their numbers, as the JVM does it."""
    operands = []

    def numbered(part):
        if isinstance(part, m.Column | m.Get | m.CastOf):
            operands.append(part)
            return m.OperandNumber(len(operands) - 1)
        if isinstance(part, tuple):
            return tuple(map(numbered, part))
        return type(part)(*(numbered(getattr(part, each.name)) for each in fields(part))) if is_dataclass(part) else part

    whole = numbered(one)
    return answer(request(whole, *operands, **known))


V = m.Column(("v",), "v")


def read(path="$.a", of="bigint"):
    return m.Get(V, path, of)


def lit(*values, of="bigint"):
    found = constants(of, *(None if value is None else str(value) for value in values))
    return m.Constant(found.number, of, found.texts, found.size, found.null)


def text_of(value):
    return lit(value.encode().hex(), of="string")


def is_true(side):
    return m.Comparison("=", side, lit("true", of="boolean"))


STRING, FLAGGED = read(of="string"), read(of="boolean")


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (m.Comparison(">", read(), lit("5")), "v:a::bigint > 5"),
        (m.Comparison(">", lit("5"), read()), "v:a::bigint < 5"),
        (m.Comparison("<=>", lit("5"), read()), "v:a::bigint <=> 5"),
        (m.Not(m.Comparison("=", read(), lit("5"))), "v:a::bigint <> 5"),
        (m.Not(m.Comparison("<", lit("5"), read())), "v:a::bigint <= 5"),
        (m.Not(m.In(read(), lit("5", "6"))), "v:a::bigint NOT IN (5, 6)"),
        (
            m.Not(m.And((m.Comparison("<", read(), lit("5")), is_true(FLAGGED)))),
            "(v:a::bigint >= 5 OR v:a::boolean <> true)",
        ),
        (is_true(FLAGGED), "v:a::boolean = true"),
        (m.Not(is_true(FLAGGED)), "v:a::boolean <> true"),
        (m.StartsWith(STRING, text_of("ab")), "startswith(v:a::string, 'ab')"),
        (m.Not(m.StartsWith(STRING, text_of("ab"))), "NOT startswith(v:a::string, 'ab')"),
        (
            m.Or((m.Like(STRING, text_of("ab")), is_true(FLAGGED))),
            "((startswith(v:a::string, 'ab') AND ...) OR v:a::boolean = true)",
        ),
        (m.Comparison("=", m.Get(m.Column(("s", "v"), "s.v"), "$.a", "bigint"), lit("5")), "s.v:a::bigint = 5"),
        (m.In(read(), lit("5", "6")), "v:a::bigint IN (5, 6)"),
        (m.Comparison("=", m.CastOf(read(of="variant"), "int"), lit("5", of="int")), "v:a::int = 5"),
        (m.Comparison("=", m.CastOf(read(of="int"), "bigint"), lit("5")), "v:a::int::bigint = 5"),
        (m.Comparison("=", m.Get(read(of="variant"), "$['b']", "bigint"), lit("5")), "v:a.b::bigint = 5"),
        (m.Comparison("=", m.CastOf(V, "bigint"), lit("5")), "v:$::bigint = 5"),
    ],
)
def test_requests(one, expected):
    """Each form in which Spark's plan holds a predicate on a path becomes the same small predicate."""
    reply = ask(one)
    assert reply.explanation.predicates == (expected,)
    assert reply.explanation.reasons == ()
    assert reply.predicate


@pytest.mark.parametrize(
    "one",
    [
        m.Comparison("=", read(), read("$.b")),
        m.Comparison("=", lit("5"), lit("5")),
        m.Comparison("<=>", read(), lit(None)),
        m.Comparison("!=", read(), lit("5")),
        m.Comparison("=", read("$.a[0]"), lit("5")),
        m.Comparison("=", read("$..a"), lit("5")),
        m.Comparison("=", m.Get(read(), "$.b", "bigint"), lit("5")),
        m.Comparison("=", m.CastOf(read(of="bigint"), "int"), lit("5", of="int")),
        m.In(read(), m.Unknown("id")),
        m.Comparison("=", m.Unknown("abs(v.0)"), lit("5")),
        m.Unknown("(NOT (v.0 = 5))"),
        m.Not(m.Comparison("=", m.Unknown("abs(v.0)"), lit("5"))),
        m.Not(m.Unknown("abs(v.0)")),
        m.IsNull(read()),
        m.IsNotNull(m.Unknown("abs(v.0)")),
        m.IsNotNull(lit("5")),
        m.Not(m.Comparison("<=>", read(), lit("5"))),
        m.Like(STRING, text_of("")),
        m.StartsWith(text_of("abc"), STRING),
        m.In(lit("5"), read()),
    ],
)
def test_requests_that_prove_nothing(one):
    """A form that is not understood keeps every file, and one reason says why."""
    reply = ask(one)
    assert reply.predicate is None
    assert reply.explanation.predicates == ()
    assert len(reply.explanation.reasons) == 1
    assert not reply.bounds
