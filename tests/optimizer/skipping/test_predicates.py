"""Predicates on paths: which files a query opens, and that it has the rows that it has without skipping."""

from __future__ import annotations

import functools
import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from delta_variant.explanation import explain
from delta_variant.session import enable
from delta_variant.writer import write
from tests.optimizer.skipping.asking import Answer, answers, read, rows
from tests.optimizer.skipping.tables import json_files
from tests.support import SOAK, collected, prepared, scans, without_rules

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]


PREDICATES = [
    ("variant_get(v, '$.id', 'long') = 5", 1),
    ("variant_get(v, '$.id', 'int') < 10", 1),
    ("variant_get(v, '$.id', 'int') <= 10", 2),
    ("variant_get(v, '$.id', 'int') > 39", 1),
    ("variant_get(v, '$.id', 'int') >= 39", 2),
    ("5 > variant_get(v, '$.id', 'int')", 1),
    ("variant_get(v, '$.id', 'int') <=> 5", 1),
    ("try_variant_get(v, '$.id', 'smallint') between 8 and 12", 2),
    ("v:id::int in (1, 2, 45)", 2),
    ("v:id::int in (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 45)", 3),
    ("cast(v:id as bigint) = 5 or v:o.x::int = -45", 2),
    ("v:id::int = 5 and v:o.x::int = -45", 0),
    ("v:id::int = 5 and length(v:s::string) = 4", 1),
    ("v:id::int = 5 or length(v:s::string) = 5", 5),
    ("variant_get(v, '$.o', 'variant'):x::int = -45", 1),
    ("variant_get(v, \"$['o']['x']\", 'int') = -45", 1),
    ("v:id::double > 47.5", 1),
    ("v:id::float > 47.5", 1),
    ("v:id::decimal(5,1) = 5.0", 1),
    ("v:small::tinyint = 5", 1),
    ("v:dec::decimal(10,2) = 5.25", 1),
    ("v:dec::decimal(10,1) = 5.3", 1),
    ("v:dec::int = 5", 1),
    ("v:dec::double >= 49.25", 1),
    ("v:day::date = date'2024-01-06'", 1),
    ("v:ts::timestamp = timestamp_micros(5000005)", 1),
    ("v:ts::timestamp < timestamp_micros(5000005)", 1),
    ("v:ntz::timestamp_ntz > timestamp_ntz'1970-01-01 00:00:48'", 1),
    ("v:id::timestamp < timestamp_seconds(10)", 1),
    ("v:ts::bigint < 10", 1),
    ("v:day::timestamp_ntz < timestamp_ntz'2024-01-11 00:00:00'", 1),
    ("cast(v:ntz::timestamp_ntz as date) > date'1970-01-01'", 0),
    ("v:id::int <> 5", 5),
    ("v:id::int not in (1, 2, 3)", 5),
    ("v:id::boolean", 5),
    ("v:day::timestamp < timestamp'2024-01-11 00:00:00'", 5),
    ("v:ts::date > date'1970-01-01'", 5),
    ("v:ts::timestamp_ntz < timestamp_ntz'1970-01-01 00:00:01'", 5),
    ("v:ntz::timestamp < timestamp'1970-01-01 00:00:01'", 5),
    ("v:id::string = '5'", 5),
    ("v:day::string = '2024-01-06'", 5),
    ("v:nothing::int = 5", 5),
    ("v:id::int = 1000", 0),
    ("not (v:id::int >= 5)", 1),
    ("case when v:id::int = 5 then true end", 5),
]


@pytest.fixture(scope="module")
def asked(spark, table) -> dict[str, Answer]:
    enable(spark)
    return answers(spark, table, [predicate for predicate, _ in PREDICATES])


@pytest.mark.parametrize(("predicate", "files"), PREDICATES)
def test_predicates(asked, predicate, files):
    """Each form of predicate opens the expected number of files, and gives the rows it gives without skipping (Q1, Q3)."""
    answer = asked[predicate]
    assert answer.files == files
    assert answer.found == answer.wanted


@pytest.mark.parametrize("plan_form", ["false"], indirect=True)
def test_without_push_down(spark, table, plan_form):
    """A predicate opens as few files if Spark leaves variant_get in the plan instead of pushing it into the scan (Q1)."""
    some = dict(PREDICATES[:17:4])
    found = answers(spark, table, list(some))
    assert {predicate: answer.files for predicate, answer in found.items()} == some
    assert all(answer.found == answer.wanted for answer in found.values())


KEYS = ("n", "s", "f", "d", 'q"q')
GROUPS = [
    [(5, "abc", True, 1.5, 1), (5, "abcd", True, 1.75, 1)],
    [(5, "abz", False, 2, 3), (6, "abz", True, 9, 3)],
    [(7, "b", False, 1.5, 3), (7, "b", False, 1.5, 4), ()],
    [(7, "abc" + "x" * 60, True, 0.25, 0), (7, "abc" + "x" * 70)],
    [(5, "c", True, 1.5, 2), ()],
    [(None, None, None, None, None), (5, "abc", True, 1.5, 1)],
    [(None, None, None, None, None), ()],
]
SHAPE = 'n int, s string, f boolean, d decimal(4,2), `q"q` int'


@pytest.fixture(scope="module")
def groups(spark, tmp_path_factory) -> str:
    """A file for each of GROUPS, written by this package; the paths of the last two are only in the tag for nulls."""
    path = tmp_path_factory.mktemp("tables") / "groups"
    texts = [[json.dumps(dict(zip(KEYS, values, strict=False))) for values in group] for group in GROUPS]
    write(json_files(spark, texts[:-1]).select("v"), path)
    write(json_files(spark, texts[-1:]).select("v"), path, shred={"v": SHAPE})
    return str(path)


MUST = [
    "v:n::int is not null",
    "v:n is not null and v:s::string is not null",
    "v:n::int <> 5",
    "not (v:n::int = 7)",
    "v:n::int not in (5, 9)",
    "v:n::int not in (5, 7)",
    "v:n::int not in (1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13)",
    "v:n::double <> 5",
    "v:d::int <> 1",
    "v:d::decimal(5,0) <> 2",
    "not (v:n::int = 5 or v:d::int = 1)",
    "not (v:n::int = 5 and v:f::boolean)",
    "v:s::string like 'abc%'",
    "v:s::string like 'abc_%'",
    "startswith(v:s::string, 'abz')",
    "v:s::string like concat('abc', repeat('x', 50), '%')",
    "v:s::string not like 'abc%'",
    "not startswith(v:s::string, 'b')",
    "v:s::string <> 'b'",
    "v:f::boolean",
    "not v:f::boolean",
    "v:f::boolean = false",
    "v:f::boolean <=> true",
    "v:f::boolean <> true and v:n::int = 7",
    "v:f::string = 'true'",
    "v:f::int = 0",
    "variant_get(v, '$[\\'q\"q\\']', 'int') = 2",
    "variant_get(v, '$.q\"q', 'int') <> 1",
]


MUST_IN = {"true": MUST, "false": MUST[::3]}
"""The predicates that are asked in each form of a plan."""


@pytest.fixture(scope="module")
def musts(spark, groups) -> Callable[[str], dict[str, Answer]]:
    """The answers in the form of a plan that is set now, asked for once."""
    return functools.cache(lambda form: answers(spark, groups, MUST_IN[form], "to_json(v)"))


@pytest.mark.parametrize(
    ("predicate", "plan_form"), [(p, form) for form, some in MUST_IN.items() for p in some], indirect=["plan_form"]
)
def test_exactly_the_files_it_must(musts, predicate, plan_form):
    """A query opens the files with matching rows and no others, except one more for LIKE 'abc_%' (Q1, Q2, Q4)."""
    answer = musts(plan_form)[predicate]
    assert answer.found == answer.wanted
    more = predicate == "v:s::string like 'abc_%'"  # bounds decide by the prefix abc, and one file has this text alone
    assert answer.files == answer.matching + more


LONG = {  # with the number of files that are opened, and the rows
    "OR of equalities": (" or ".join(f"v:id::int = {n}" for n in [*range(500, 900), 7, 45]), 2, [7, 45]),
    "AND of inequalities": (" and ".join(f"v:id::int <> {n}" for n in range(100) if n != 5), 5, [5]),
    "OR of pairs": (
        " or ".join(f"(v:id::int = {n} and v:s::string = 'k{n:03d}')" for n in [*range(200, 300), 7, 45]),
        2,
        [7, 45],
    ),
    "OR of ranges": (
        " or ".join(f"v:id::int between {n} and {n + 1}" for n in [*range(200, 300), 9, 45]),
        3,
        [9, 10, 45, 46],
    ),
    "IN of strings": (f"v:s::string in ({', '.join(repr(f'k{n}') for n in [*range(1000, 1400), '007', '045'])})", 2, [7, 45]),
    "NOT IN": (f"v:id::int not in ({', '.join(map(str, range(1, 500)))})", 5, [0]),
}


@pytest.mark.parametrize("name", LONG)
def test_long_predicates(spark, marked, name):
    """Predicates of hundreds of terms keep only files that can match, on the driver and by a job."""
    predicate, files, found = LONG[name]
    query = prepared(spark, f"select id from delta.`{marked}` where {predicate}")
    for kept in ("5000", "0"):
        spark.conf.set("spark.delta_variant.keptFiles", kept)
        df = spark.sql(query)
        [scan] = explain(df).scans
        assert scan.files_after_bounds == files
        # Only the first of many questions are counted, and `explain` says so.
        assert len(scan.findings) <= 128
        assert ("not counted" in str(scan.reasons)) == ("pairs" in name or "ranges" in name)
        assert name != "OR of pairs" or {finding.files_ruled_out for finding in scan.findings} == {5}
    spark.conf.unset("spark.delta_variant.keptFiles")
    assert sorted(row.id for row in collected(df)) == found


ORDINARY = [
    ("v:id::int = 5 or id = 37", 2),
    ("(v:id::int = 5 and id < 30) or id in (48, 49)", 2),
    ("v:id::int = 5 or id = 37 and v:d::double > 1", 2),
    ("v:id::int = 5 or id % 7 = 1", 5),
    ("v:id::int = 5 or id < 0", 1),
    ("v:nothing::int = 5 or id < 0", 5),
    ("not (v:id::int <> 5 and id <> 37)", 2),
    ("v:id::int = 5 or id = (select max(id) from range(38))", 5),
    ("v:id::int = 5 or id + rand() < 0", 5),
]


@pytest.fixture(scope="module")
def without(spark, marked) -> dict[str, list[Any]]:
    """The rows of each of ORDINARY without the rules, asked for by one query."""
    listed = ", ".join(f"({predicate}) p{n}" for n, (predicate, _) in enumerate(ORDINARY))
    with without_rules(spark):
        found = rows(spark.sql(f"select id, {listed} from delta.`{marked}`"))
    return {predicate: [row.id for row in found if row[f"p{n}"]] for n, (predicate, _) in enumerate(ORDINARY)}


@pytest.mark.parametrize(("predicate", "files"), ORDINARY)
def test_ordinary_columns_beside_paths(spark, marked, without, predicate, files):
    """In an OR, Delta's skipping decides for ordinary columns; a part that neither can decide keeps every file."""
    df = read(spark, marked).where(predicate).selectExpr("id")
    assert sorted(row.id for row in collected(df)) == sorted(without[predicate])
    assert scans(df)[0].files_after_bounds == files


def test_many_questions_about_ordinary_columns(spark, marked):
    """Delta is not asked about ordinary columns if that takes more than four jobs and saves little; `explain` says so."""
    pairs = [f"(v:id::int = {i} and id % 100 = {i} and id < {i + 1})" for i in range(3, 48, 5)]
    for count, files in ((1, 1), (9, 5)):
        df = read(spark, marked).where(" or ".join(pairs[:count]))
        assert explain(df).scans[0].files_after_bounds == files
    ordinary = [f"(v:id::int = {i} or id = {i + 1})" for i in range(3, 48, 5)]
    for count, asked in ((3, True), (9, False)):
        [scan] = explain(read(spark, marked).where(" and ".join(ordinary[:count]))).scans
        assert ("Delta was not asked" in "".join(scan.reasons)) != asked


def test_paths_with_nulls(spark, tmp_path):
    """The tag `delta_variant.nonnull` rules files out for paths with JSON nulls, and for IS NOT NULL (Q4)."""
    path = str(tmp_path / "t")
    nulls = "if(id < 20 or id % 3 = 0, 'null', cast(id as string))"
    other = "if(id = 5, '\"x\"', cast(id as string))"
    text = f"concat('{{\"a\":', {nulls}, ',\"d\":', {other}, if(id < 30, '', ',\"c\": null'), '}}')"
    write(
        spark.range(0, 100, 1, 1).selectExpr(f"parse_json({text}) v"),
        path,
        max_rows_per_file=10,
        shred={"v": "a int, c int, d int"},
    )
    expected = {  # how many files are opened
        "v:a::int = 50": 1,
        "v:a::int < 30": 1,
        "v:a::bigint in (1, 50, 98)": 2,
        "v:a::int is not null": 8,
        "v:a is not null": 10,
        "v:c::int is not null": 0,
        "v:c is not null": 7,
        "v:c::int >= 0 or v:a::int > 95": 1,
        "try_variant_get(v, '$.d', 'int') < 10": 1,
        "v:a::int is null": 10,
        "not (v:a::int >= 30)": 1,
        "v:a.b::int = 1": 10,
    }
    found = answers(spark, path, list(expected), "to_json(v)")
    assert {predicate: answer.files for predicate, answer in found.items()} == expected
    assert all(answer.found == answer.wanted for answer in found.values())


@pytest.mark.slow
def test_random_conjunctions(spark, marked):
    """AND, OR and NOT of random comparisons give the rows they give without skipping."""
    choose = random.Random(11)
    atoms = ["v:id::int {op} {n}", "v:o.x::bigint {op} -{n}", "v:dec::decimal(10,2) {op} {n}", "v:s::string {op} 'k0{n}'"]
    atoms += ["id {op} {n}", "v:nothing::int {op} {n}", "v:d::double {op} {n}", "v:id::int in ({n}, 3, null)"]

    def make(depth):
        if depth == 0 or choose.random() < 0.3:
            return choose.choice(atoms).format(op=choose.choice(["=", "<", "<=", ">", ">=", "<>"]), n=choose.randint(0, 49))
        return f"{choose.choice(['', 'not '])}({make(depth - 1)} {choose.choice(['and', 'or'])} {make(depth - 1)})"

    for predicate, answer in answers(spark, marked, [make(3) for _ in range(25 if SOAK else 12)]).items():
        assert answer.found == answer.wanted, predicate
