"""Skipping inside Spark: which files a query opens, and that its rows are those it gives without skipping."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import logging
import random
import re
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from delta_variant import jvm
from delta_variant.messages import Bound, Compare, PruneReply
from delta_variant.queries import requests
from delta_variant.queries.casts import kinds_for
from delta_variant.report import Report, explain, has_rules
from delta_variant.session import disable, enable
from delta_variant.stats import BOUNDS_TAG, BOUNDS_TAG_VALUE, TIMES_TAG
from delta_variant.table import VariantTable
from delta_variant.types import INTEGERS
from delta_variant.writer import write
from tests.support import SOAK, collected, deltas_own_files, forget, generated, prepared, scans, share, without_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]

EVENT = """to_variant_object(named_struct(
    'id', id, 'small', cast(id as smallint), 'dec', cast(id + 0.25 as decimal(10,2)), 'd', cast(id as double),
    's', concat('k', lpad(cast(id as string), 3, '0')), 'day', date_add(date'2024-01-01', cast(id as int)),
    'ts', timestamp_micros(id * 1000001), 'ntz', cast(timestamp_micros(id * 1000001) as timestamp_ntz),
    'o', named_struct('x', -id)))"""


@pytest.fixture(scope="module", autouse=True)
def _module(spark: SparkSession) -> Iterator[None]:
    yield
    disable(spark)


@pytest.fixture(autouse=True)
def _skipping(spark: SparkSession, _module: None) -> None:
    if not has_rules(spark):
        enable(spark)


def create(spark, path, columns="id long, v variant", partition_by="", **properties):
    properties = {"delta.enableVariantShredding": "true", **properties}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    spark.sql(f"create table delta.`{path}` ({columns}) using delta {partition_by} tblproperties ({listed})")
    return str(path)


def events(spark, path, rows=50, files=5, **properties):
    """`rows` events in `files` files of delta-spark that hold consecutive ids, in one commit."""
    source = spark.range(0, rows, 1, files).selectExpr("id", f"{EVENT} v")
    properties = {"delta.enableVariantShredding": "true", **properties}
    with deltas_own_files(spark):
        source.write.format("delta").options(**properties).save(str(path))
    return str(path)


@pytest.fixture(scope="module")
def small(spark, tmp_path_factory) -> str:
    """Twenty events in two files; tests work on copies."""
    enable(spark)
    return events(spark, tmp_path_factory.mktemp("tables") / "small", rows=20, files=2)


def copied(table, path):
    shutil.copytree(table, path)
    return str(path)


def json_files(spark, files) -> DataFrame:
    """The column v with a partition, which becomes a file, for each list of JSON texts; `file` has its number."""
    texts = spark.range(0, len(files), 1, len(files)).select(F.col("id").alias("file"), F.explode(F.lit(files)[F.col("id")]))
    return texts.selectExpr("file", "parse_json(col) v")


def append_json(spark, path, files):
    """One commit of delta-spark with a file for each list of JSON texts."""
    with deltas_own_files(spark):
        json_files(spark, files).select("v").write.format("delta").mode("append").save(str(path))


def mark(spark, path, values=(BOUNDS_TAG_VALUE,)):
    """Gives every Add action of the log the marker, which says that its bounds were computed from the values.

    values: of the marker, in the order of the files, and from the first one again.
    """
    value = itertools.cycle(values)
    for log in Path(path, "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                action["add"]["tags"] = {**(action["add"].get("tags") or {}), BOUNDS_TAG: next(value)}
        log.write_text("".join(json.dumps(action) + "\n" for action in actions))
        log.with_name(f".{log.name}.crc").unlink(missing_ok=True)
    forget(spark)


@pytest.fixture(scope="module")
def table(spark, tmp_path_factory) -> str:
    enable(spark)
    path = events(spark, tmp_path_factory.mktemp("tables") / "events")
    disable(spark)
    return path


@pytest.fixture(scope="module")
def marked(spark, tmp_path_factory) -> str:
    enable(spark)
    path = events(spark, tmp_path_factory.mktemp("tables") / "marked")
    disable(spark)
    mark(spark, path)
    return path


def read(spark, path) -> DataFrame:
    return spark.read.format("delta").load(path)


def opened(df: DataFrame) -> list[int]:
    """Files that each scan of an executed query opened, by Spark's own count."""
    leaves = df._jdf.queryExecution().executedPlan().collectLeaves()
    metrics = [leaves.apply(i).metrics() for i in range(leaves.size())]
    return [found.apply("numFiles").value() for found in metrics if found.contains("numFiles")]


def rows(df: DataFrame):
    return sorted(collected(df), key=repr)


def compared(spark, make):
    """The rows of the query that `make` returns, after comparison with its rows without the rules, and the query."""
    df = make()
    with_skipping = rows(df)
    with without_rules(spark):
        assert with_skipping == rows(make())
    return with_skipping, df


class Answer(NamedTuple):
    """What a predicate gave."""

    found: list[Any]
    """The rows with the rules."""
    wanted: list[Any]
    """The rows without them."""
    files: int | None
    """How many files were opened with the rules; None if Spark found that a predicate of the same query matches no row."""
    matching: int
    """How many files have these rows."""


def answers(spark, table, predicates, value="id") -> dict[str, Answer]:
    """Asks for `value` in the rows that match each predicate, a dozen predicates in one query.

    Without the rules, one query evaluates all predicates for every row. With them another one does, for the predicates that
    rule no file out: `make soak` alone has queries that filter by these.
    """
    listed = ", ".join(f"({text}) p{n}" for n, text in enumerate(predicates))
    whole = f"select {value} r, {{}} f, {listed} from delta.`{table}`"
    with without_rules(spark):
        wanted = collected(spark.sql(whole.format("_metadata.file_path")))
    everywhere = collected(spark.sql(prepared(spark, whole.format("1"))))
    found = [[row.r for row in everywhere if row[f"p{n}"]] for n in range(len(predicates))]
    files: list[int | None] = [None] * len(predicates)

    def union(some):
        branches = [f"select {n} q, {value} r from delta.`{table}` where {predicates[n]}" for n in some]
        return spark.sql(prepared(spark, " union all ".join(branches)))

    for start in range(0, len(predicates), 12):
        some = range(len(predicates))[start : start + 12]
        planned = scans(union(some))
        known = len(planned) == len(some)
        narrowed = [
            n for at, n in enumerate(some) if SOAK or not known or planned[at].files_after_bounds < planned[at].files_total
        ]
        if known:
            files[start : start + 12] = [scan.files_after_bounds for scan in planned]
        if not narrowed:
            continue
        df = union(narrowed)
        rows = collected(df)
        counted = opened(df)
        for at, n in enumerate(narrowed):
            found[n] = [row.r for row in rows if row.q == n]
            if len(counted) == len(narrowed):  # typed reading makes two scans of one
                files[n] = counted[at]
    matching = [[row for row in wanted if row[f"p{n}"]] for n in range(len(predicates))]
    return {
        text: Answer(sorted(found[n]), sorted(row.r for row in matching[n]), files[n], len({row.f for row in matching[n]}))
        for n, text in enumerate(predicates)
    }


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


@pytest.fixture(params=["true", "false"])
def plan_form(spark, request) -> Iterator[str]:
    """Both forms in which a plan holds a path: fields that Spark pushed into the scan, and variant_get as written."""
    spark.conf.set("spark.sql.variant.pushVariantIntoScan", request.param)
    yield request.param
    spark.conf.unset("spark.sql.variant.pushVariantIntoScan")


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


VALUES = {
    "exact": """cast(-9223372036854775808 as decimal(38,9)), -2147483649, -2147483648, -32769, -129, -128.5, -1.5, -1, -0.5,
        -0.000000001, 0, 0.000000001, 0.4, 0.5, 1, 1.4, 1.45, 1.5, 2, 9.99, 12.345, 127, 127.5, 128, 255.5, 32767, 32768,
        16777216, 16777217, 2147483647, 2147483648, 9223372036854, 9223372036855, 9007199254740993, 9223372036854775807,
        99999999999999999999""",
    "approximate": """double('-Infinity'), -1e308D, -9.3e18D, -2147483649D, -129D, -1.5D, -1e-300D, -0D, 0D, 1e-300D, 0.05D,
        0.15D, 0.5D, 1.45D, 1.5D, 9.994D, 127.5D, 128D, 32768D, 16777217D, 2147483647.5D, 9.2e12D, 9.3e12D,
        9007199254740993D, 9223372036854775807D, 1e19D, 1e38D, 1e39D, 1e308D, double('Infinity')""",
    "boolean": "false, true",
    "timestamp": """timestamp_micros(-9223372036854775808), timestamp_seconds(-2147483649), timestamp_micros(-1500000),
        timestamp_micros(-1), timestamp_micros(0), timestamp_micros(1), timestamp_micros(999999), timestamp_seconds(1),
        timestamp_seconds(127.9), timestamp_seconds(128), timestamp_seconds(32768), timestamp_seconds(1162089059),
        timestamp_seconds(1162089061), timestamp_seconds(2147483648), timestamp_micros(9223372036854775807)""",
    "date": """date_from_unix_date(-5000000), date'0001-01-01', date'1582-10-04', date'1582-10-15', date'1969-12-31',
        date'1970-01-01', date'2006-10-28', date'2006-10-29', date'2006-10-30', date'9999-12-31',
        date_from_unix_date(9000000)""",
    "timestamp_ntz": """timestamp_ntz'0001-01-01 00:00:00', timestamp_ntz'1582-10-10 01:00:00',
        timestamp_ntz'1969-12-31 23:59:59.999999', timestamp_ntz'1970-01-01 00:00:00',
        timestamp_ntz'1970-01-01 23:59:59.999999',
        timestamp_ntz'2006-10-29 00:00:30', timestamp_ntz'2006-10-29 00:01:00', timestamp_ntz'9999-12-31 23:59:59'""",
    "string": "'', 'a', 'ab', 'b', '\u00e9', '\uffff', '\U0001f600'",
}


KINDS = {"exact": {"integer", "decimal"}, "approximate": {"float", "double"}}
"""Rows of the table of casts whose values are one list here."""


@pytest.mark.parametrize("kind", VALUES)
def test_casts_keep_order(spark, kind):
    """No cast in the table of casts reverses the order of two values, or gives other values in another time zone (Q3)."""
    types = (*INTEGERS, "decimal(3,1)", "float", "double", "boolean", "string", "date", "timestamp", "timestamp_ntz")
    asked = [of for of in types if KINDS.get(kind, {kind}).intersection(kinds_for(of))]
    columns = {f"c{at}": f"try_variant_get(v, '$', '{of}')" for at, of in enumerate(asked)}
    exact = {f"c{at}": f"unix_micros(c{at})" if of == "timestamp" else f"c{at}" for at, of in enumerate(asked)}
    seen = []
    try:
        for zone in ("America/St_Johns", "Pacific/Apia"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            variants = ", ".join(f"cast({value} as variant)" for value in re.split(r",\s+", VALUES[kind]))
            values = spark.sql(f"select posexplode(array({variants})) as (i, v)")
            cast = values.selectExpr("i", *(f"{e} {c}" for c, e in columns.items()))
            if not seen:
                cast.createOrReplaceTempView("casts")
                wrong = ", ".join(f"count_if(a.{c} > b.{c}) {c}" for c in columns)
                found = spark.sql(f"select {wrong} from casts a join casts b on a.i < b.i").first().asDict()
                assert found == dict.fromkeys(columns, 0), asked
            seen.append(sorted(cast.selectExpr("i", *(f"cast({e} as string) {c}" for c, e in exact.items())).collect()))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert seen[0] == seen[1]
    assert all(any(row[c] is not None for row in seen[0]) for c in columns)


def test_clock_changes(spark, tmp_path):
    """Casts between instants and local times, which clock changes reorder, open every file (Q3)."""
    starts = (1162087200, 1162089060, 1162090860)  # around 2006-10-29 00:01 in St. John's, which was then 23:01 again
    times = spark.range(0, 9, 1, 3).selectExpr(f"array{starts}[int(id / 3)] + id % 3 * 600 id")
    times = times.selectExpr("id", "timestamp_seconds(id) ts", "cast(timestamp_seconds(id) as timestamp_ntz) ntz")
    path = str(tmp_path / "clocks")
    shredded = times.selectExpr("id", "to_variant_object(named_struct('ts', ts, 'ntz', ntz)) v").write.format("delta")
    with deltas_own_files(spark):
        shredded.option("delta.enableVariantShredding", "true").save(path)
    spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    try:
        predicates = [
            "v:ts::date = date'2006-10-28'",
            "v:ts::timestamp_ntz < timestamp_ntz'2006-10-28 23:30:00'",
            "v:ntz::timestamp < timestamp_seconds(1162100000)",
        ]
        found = answers(spark, path, predicates)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    for predicate, answer in found.items():
        assert (answer.files, answer.found) == (3, answer.wanted), predicate


def test_collations(spark, marked):
    """A predicate under another collation than UTF8_BINARY, on either side, opens every file (Q2)."""
    predicates = [
        "collate(v:s::string, 'UTF8_LCASE') = 'K005'",
        "v:s::string = 'K005' collate UTF8_LCASE",
        "startswith(collate(v:s::string, 'UTF8_LCASE'), 'K005')",
    ]
    for predicate, answer in answers(spark, marked, predicates).items():
        assert (answer.found, answer.wanted, answer.files) == ([5], [5], 5), predicate


@pytest.fixture(scope="module")
def in_structs(spark, tmp_path_factory) -> Callable[[str], tuple[str, dict[str, str]]]:
    """Makes a table with VARIANT columns in structs for a mode of column mapping, once; also gives the names of its columns."""
    return functools.cache(lambda mapping: made_in_structs(spark, tmp_path_factory.mktemp("structs") / mapping, mapping))


def made_in_structs(spark, path, mapping):
    columns = "id long, s struct<x int, v variant, o struct<v variant, w variant>>"
    path = create(spark, path, columns, **{"delta.columnMapping.mode": mapping})
    inner = f"named_struct('v', cast(-id as variant), 'w', {EVENT})"
    source = spark.range(0, 40, 1, 4).selectExpr("id", f"named_struct('x', cast(1 as int), 'v', {EVENT}, 'o', {inner}) s")
    with deltas_own_files(spark):
        source.write.format("delta").mode("append").save(path)
    names = {"v": "s.v", "w": "s.o.w", "o": "s.o"}
    if mapping != "none":
        spark.sql(f"alter table delta.`{path}` rename column s.v to `new v`")
        spark.sql(f"alter table delta.`{path}` rename column s.o to p")
        names = {"v": "s.`new v`", "w": "s.p.w", "o": "s.p"}
    return path, names


@pytest.mark.parametrize(
    ("plan_form", "mapping"), share(itertools.product(["true", "false"], ["none", "name", "id"]), 2), indirect=["plan_form"]
)
def test_variants_in_structs(spark, in_structs, plan_form, mapping):
    """Bounds of a VARIANT inside structs are found, with column mapping also after a rename."""
    path, names = in_structs(mapping)
    expected = {
        "{v}:id::int = 5": 1,
        "{w}:o.x::int = -25": 1,
        "{o}.v::int = -35": 1,
        "{v}:id::int < 20 and {w}:id::int > 15": 1,
        "s.x = 1 and {v}:id::int = 5": 1,
        "{v}:nothing::int = 5": 4,
    }
    found = answers(spark, path, [predicate.format(**names) for predicate in expected])
    assert [answer.files for answer in found.values()] == list(expected.values())
    assert all(answer.found == answer.wanted for answer in found.values())


def test_strings_and_doubles_need_the_mark(spark, table, marked):
    """String and floating-point bounds count only in files with the marker, unless the session trusts all bounds (M1)."""
    predicates = {"v:s::string = 'k005'": [5], "v:s::string in ('k005', 'k006')": [5, 6], "v:d::double < 0.5": [0]}

    def files(path):
        found = answers(spark, path, list(predicates))
        assert {predicate: answer.found for predicate, answer in found.items()} == predicates
        return [answer.files for answer in found.values()]

    assert files(table) == [5, 5, 5]
    assert files(marked) == [1, 1, 1]
    spark.conf.set("spark.delta_variant.trustAllBounds", "true")
    try:
        assert files(table) == [1, 1, 1]
    finally:
        spark.conf.unset("spark.delta_variant.trustAllBounds")


@pytest.mark.slow
def test_types_that_differ_from_file_to_file(spark, tmp_path):
    """Random comparisons on a path whose type differs from file to file give the rows that they give without skipping."""
    path = create(spark, tmp_path / "mixed", "v variant")
    columns = [
        ["1", "5", "7"],
        ["2.5", "5.0", "1e3"],
        ['"5"', '"abc"', '"7"'],
        ['"5"', "5"],
        ["null", "6"],
        ["300", "70000", "5000000000"],
        ["-2.25", "5.05", "99999.5"],
        ["{}", "3"],
        ["[5]"],
        ["true"],
        ["0.0e0", "-0.0e0"],
    ]
    typed = ["date'2024-01-05'", "timestamp'2024-01-05 00:00:00'", "timestamp_ntz'2024-01-05 00:00:00'"]
    typed += ["double('nan')", "float(5)", "cast(5 as tinyint)", "cast('inf' as double)"]
    files = [[f"parse_json({text!r})" for text in texts] for texts in columns]
    files += [[f"cast({expression} as variant)"] for expression in typed]
    values = ", ".join(f"array({', '.join(values)})" for values in files)
    apart = spark.range(0, len(files), 1, len(files)).selectExpr(f"explode(array({values})[id]) x")
    with deltas_own_files(spark):
        apart.selectExpr("to_variant_object(named_struct('x', x)) v").write.format("delta").mode("append").save(path)
    mark(spark, path)
    literals = {
        **{kind: ["5", "7", "-2", "100"] for kind in ("tinyint", "smallint", "int", "bigint")},
        "decimal(6,1)": ["5.0", "5.1", "2.5", "-2.3"],
        "float": ["5", "2.5", "float('nan')", "-0.0"],
        "boolean": ["true", "false"],
        "double": ["5", "1000", "double('nan')", "-0.0D", "double('inf')"],
        "string": ["'5'", "'7'", "'abc'", "'2024-01-05'"],
        "date": ["date'2024-01-05'", "date'2024-01-06'"],
        "timestamp": ["timestamp'2024-01-05 00:00:00'", "timestamp'2024-01-05 00:00:00.000001'"],
        "timestamp_ntz": ["timestamp_ntz'2024-01-05 00:00:00'"],
    }
    choose = random.Random(7)
    ops = ("=", "<", ">", "<>")
    questions = [(kind, op, literal) for kind, values in literals.items() for op in ops for literal in values]
    predicates = [
        f"try_variant_get(v, '$.x', '{kind}') {op} cast({literal} as {kind})"
        for kind, op, literal in choose.sample(questions, 40 if SOAK else 24)
    ]
    found = answers(spark, path, predicates, "to_json(v)")
    for predicate, answer in found.items():
        assert answer.found == answer.wanted, predicate
    assert len(read(spark, path).inputFiles()) == len(files)
    assert sum(answer.files < len(files) for answer in found.values()) > len(found) / 2


def test_keys_of_every_kind(spark, tmp_path):
    """Bounds are found for keys with quotes, dots, control and other characters, whatever order UTF-8 has them in (E6)."""
    path = create(spark, tmp_path / "keys", "v variant")
    keys = ["a", "a.b", "a b", "it's", "back\\slash", "é", "\u96ea", "new\nline", "\u0007", "`t`", "%", "$", "[0]"]
    keys += ['q"q', "']['", "\U0001f600", "\u2028", "\u007f", "\uffe5"]
    keys += [f"\uffe5{n}" for n in range(31 - len(keys))]  # with one more, the bounds are objects that Spark searches by order
    append_json(spark, path, [[json.dumps(dict.fromkeys([*keys, "both'\""], value))] for value in (1, 2)])
    asked = []
    for key in keys:
        quote = "'" if '"' in key else '"'
        spoken = f"$[{quote}{key}{quote}]".replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
        asked.append(f"variant_get(v, '{spoken}', 'int') = 2")
    for predicate, answer in answers(spark, path, [*asked, "variant_get(v, '$.both\\'\"', 'int') = 2"], "1").items():
        assert (answer.found, answer.wanted, answer.files) == ([1], [1], 1), predicate


def test_scalar_root(spark, tmp_path):
    """A Variant that is a scalar has its bounds under the root path."""
    path = create(spark, tmp_path / "scalars", "v variant")
    append_json(spark, path, [["1"], ["2"]])
    df = read(spark, path).where("v::int = 2")
    assert (len(collected(df)), opened(df)) == (1, [1])


def test_files_without_bounds_stay(spark, small, tmp_path):
    """A file written without bounds is opened by every query."""
    path = copied(small, tmp_path / "some")
    disable(spark)
    spark.range(100, 110, 1, 1).selectExpr("id", f"{EVENT} v").write.format("delta").mode("append").save(path)
    enable(spark)
    df = read(spark, path).where("v:id::int = 5")
    assert (len(collected(df)), opened(df)) == (1, [2])
    df = read(spark, path).where("v:id::int = 105")
    assert (len(collected(df)), opened(df)) == (1, [1])


def test_views_joins_unions_and_subqueries(spark, table):
    """A scan is pruned in views, on both sides of joins, in unions and in subquery expressions."""
    read(spark, table).createOrReplaceTempView("events")
    spark.sql("create or replace temp view firsts as select id, v:id::int n from events where v:id::int < 30")
    spark.conf.set("spark.sql.adaptive.enabled", "false")  # so that the executed plan shows its scans
    try:
        everything = [
            ("select id from firsts where n = 5", [5], [1]),
            ("select a.id from events a join events b on a.id = b.id where a.v:id::int = 5 and b.v:o.x::int < -3", [5], [1, 5]),
            (
                "select id from events where v:id::int = 5 union all select id from events where v:id::int > 45",
                [5, 46, 47, 48, 49],
                [1, 1],
            ),
            ("select id from events where id in (select id from events where v:id::int = 5)", [5], [5, 1]),
        ]
        df = spark.sql(" union all ".join(f"select {n} q, id from ({query})" for n, (query, _, _) in enumerate(everything)))
        assert sorted(collected(df)) == [(n, id_) for n, (_, wanted, _) in enumerate(everything) for id_ in wanted]
        assert opened(df) == [count for _, _, files in everything for count in files]
        for query, wanted in [
            ("select id from events where v:id::int = (select max(v:id::int) from events where v:id::int < 10)", 9),
            ("select id from events e where exists (select 1 from events f where f.id = e.id and f.v:id::int = 5)", 5),
        ]:
            df = spark.sql(query)
            assert rows(df) == [(wanted,)]
            assert 1 in [scan.files_after_bounds for scan in scans(df)], query
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")


PLACES = [
    ("select n from (select v:id::int as n, id from events) e where n = 5", [1]),
    ("with c as (select v as x from events) select x:id::int from c where x:id::int = 5", [1]),
    ("with c as (select variant_get(v, '$.o', 'variant') o from events) select o:x::int from c where o:x::int = -45", [1]),
    ("select s.w:id::int from (select named_struct('w', v) s from events) where s.w:id::int = 5", [1]),
    ("select n from second where n = 5", [1]),
    ("select n from (select v:id::int n from events union all select v:id::int from events) where n = 5", [1, 1]),
    ("select n from (select v:id::int n from events union select w:id::int from pairs) where n = 5", [1, 1]),
    ("select a.id from events a left join events b on a.id = b.id and b.v:id::int = 5 where a.v:id::int < 10", [1, 1]),
    ("select a.id from events a left semi join events b on a.id = b.id and b.v:id::int = 5", [1, 5]),
    ("select a.id from events a join pairs b on a.v:id::int = b.w:id::int where b.w:id::int = 5", [1, 5]),
    ("select v:id::int % 2 k, count(*) from events where v:id::int < 10 group by 1", [1]),
    ("select n, count(*) from (select v:id::int n from events) group by n having n = 5", [1]),
    ("select n from (select v:id::int n, rank() over (partition by v:id::int order by id) r from events) where n = 5", [1]),
    ("select id from events where v:id::int < 10 order by v:ts::timestamp limit 3", [1]),
    ("select id, x from events lateral view explode(array(1, 2)) t as x where v:id::int = 5", [1]),
    ("select id from pairs where v:id::int < 20 and w:id::int > 15", [1]),
    ("select id from pairs where v:id::int = w:id::int and v:id::int = 5", [1]),
    ("select id from named where v:id::int = 5", [1]),
    ("select id from spark_catalog.default.stored where n = 5", [1]),
    ("select (select max(w:id::int) from pairs where w:id::int < 10) m, id from events where v:id::int > 45", [1, 1]),
    ("select id from events where v:id::int = 5 or v:id::int in (select 45)", [5]),
    ("select id, w from events join (values (5, 'a'), (17, 'b'), (null, 'c')) s(i, w) on v:id::int = i", [2]),
    ("select id, w from (select id, v:dec::decimal(10,2) k from events) join (values (5.25)) s(w) on k = w and id < w", [1]),
    ("select id, w from (select id, v:s::string k from events) join (values ('k005')) s(w) on k = w", [5]),  # no marker
    ("select i, id from (values (5), (500)) s(i) left join events on v:id::int = i and v:d::double < 9", [1]),
    ("select i, id from events right join (values (5), (500)) s(i) on v:id::int = i", [1]),
    ("select i, id from events left join (values (5), (500)) s(i) on v:id::int = i", [5]),
    ("select i, id from events full join (values (5), (500)) s(i) on v:id::int = i", [5]),
    ("select i from (values (5), (500)) s(i) left anti join events on v:id::int = i", [1]),
    ("select id from events left anti join (values (5), (500)) s(i) on v:id::int = i", [5]),
    ("select id from events where v:id::int in (select i from (values (5), (500)) s(i))", [1]),
    ("select id from events where v:id::int not in (select i from (values (5), (500)) s(i))", [5]),
    ("select id from events join (values (5), (45)) s(i) on v:id::int = i join (values (-45)) t(j) on v:o.x::int = j", [1]),
    ("select id from events join (values (5.0D), (45.0D)) s(i) on v:d::double = i", [5]),
    ("select id from events where v:id::int < 10 and (id in (select id from pairs) or id = 3)", [1, 2]),
    ("select id, monotonically_increasing_id() from events join (values (5)) s(i) on v:id::int = i", [1]),
    (
        "select n, id from (select monotonically_increasing_id() n, id, v from events) join (values (5)) s(i) on v:id::int = i",
        [5],
    ),
]


@pytest.fixture(scope="module")
def places(spark, table, tmp_path_factory) -> Iterator[None]:
    enable(spark)  # so that `pairs` has bounds
    pairs = str(tmp_path_factory.mktemp("places") / "pairs")
    source = spark.range(0, 20, 1, 2).selectExpr("id", f"{EVENT} v", f"{EVENT} w")
    with deltas_own_files(spark):
        source.write.format("delta").option("delta.enableVariantShredding", "true").save(pairs)
    for name, path in (("events", table), ("pairs", pairs)):
        spark.sql(prepared(spark, f"select * from delta.`{path}`")).createOrReplaceTempView(name)
    spark.sql("create or replace temp view first as select id, v:id::int n from events where v:id::int < 30")
    spark.sql("create or replace temp view second as select n from first where id < 50")
    spark.sql(f"create table named using delta location '{table}'")
    spark.sql("create view stored as select id, v:id::int n from named")
    yield
    spark.sql("drop view stored")
    spark.sql("drop table named")


def test_wherever_the_filter_stands(spark, places, plan_form, caplog):
    """Filters and join keys prune scans through aliases, CTEs, views, unions, joins, aggregates and subqueries (Q5)."""
    shared = share(PLACES, 2, int(plan_form == "false"))
    everything = " union all ".join(f"select {n}, hash(*) from ({query})" for n, (query, _) in enumerate(shared))
    found, df = compared(spark, lambda: spark.sql(everything))
    assert found
    kept = iter([scan.files_after_bounds for scan in scans(df)])
    for query, files in shared:
        assert sorted(itertools.islice(kept, len(files))) == files, query
    assert not list(kept)
    assert "runs without" not in caplog.text


FIRST = [
    ("select id from {} order by v:id::int desc limit 3", 3),
    ("select to_json(v) from {} order by v:dec::decimal(10,2) desc limit 2", 2),
    ("select id, v:ts::timestamp t from {} order by t desc, id limit 1", 1),
    ("select n from (select v:day::date n, id from {}) order by n desc limit 2", 2),
    ("select id from {} order by v:id::bigint nulls last limit 2", 2),
    ("select id from {} where v:id::int is not null order by v:id::int limit 2", 2),
    ("select id from {} order by try_variant_get(v, '$.d', 'int') desc limit 1", 1),
    ("select id, to_json(v) from (select id, v from {} order by v:id::int desc limit 4) where v:id::int > 30", 4),
    ("select id from {} order by v:id::int limit 2", 5),  # rows without the path come first
    ("select id from {} order by v:id::int desc limit 11", 5),  # the log knows one row of each file
    ("select id from {} where id % 2 = 1 order by v:id::int desc limit 1", 5),
    ("select id from {} order by v:s::string desc limit 1", 5),  # may be cut
    ("select id from {} order by -v:id::int limit 1", 5),
    ("select id, rand() > 2 r from {} order by v:id::int desc limit 1", 1),
]


def test_first_rows_of_an_order(spark, marked):
    """ORDER BY with LIMIT keeps only files that can have one of the first rows (Q6)."""
    queries = [query.format(f"delta.`{marked}`") for query, _ in FIRST]
    assert [scan.files_after_bounds for scan in first_rows(spark, queries)] == [files for _, files in FIRST]


def first_rows(spark, queries):
    """The scans of a union of the queries, after comparison of its rows with those without the rules."""
    branches = [f"select {n} q, hash(*) r from ({query})" for n, query in enumerate(queries)]
    together = prepared(spark, " union all ".join(branches))
    _, df = compared(spark, lambda: spark.sql(together))
    return scans(df)


@pytest.mark.slow
def test_first_rows_of_any_table(spark, tmp_path):
    """ORDER BY with LIMIT gives the keys it gives without skipping, whatever types, NULLs and deleted rows files have (Q6)."""
    rng = random.Random(7)
    path = create(spark, tmp_path / "t", **{"delta.enableDeletionVectors": "true"})
    values = {
        "integers": lambda: rng.randrange(-30, 30),
        "decimals": lambda: rng.randrange(-300, 300) / 10,
        "doubles": lambda: rng.choice([1e300, -1e300, 2.5, -0.0, 0.0]),
        "texts": lambda: rng.choice(["5", "-7.5", "x"]),
        "nothing": lambda: None,
    }
    written: dict[str, dict[int, list[str]]] = {"as decimals": {}, "as inferred": {}, "by delta-spark": {}}
    for number in range(14 if SOAK else 8):
        kinds = rng.choices(list(values), [6, 4, 1, 1, 1], k=rng.choice([1, 1, 1, 2]))
        documents = [{"n": values[rng.choice(kinds)]()} if rng.random() < 0.9 else {} for _ in range(6)]
        how = "by delta-spark" if rng.random() >= 0.8 else "as decimals" if "decimals" in kinds else "as inferred"
        written[how][number] = list(map(json.dumps, documents))
    for how, files in written.items():
        frame = json_files(spark, list(files.values())).selectExpr(f"array({', '.join(map(str, files))})[file] + 0L id", "v")
        if how == "by delta-spark":
            with deltas_own_files(spark):
                frame.write.format("delta").mode("append").save(path)
        else:
            write(frame, path, shred={"v": "n decimal(18,2)"} if how == "as decimals" else "auto")
    with generated(spark):
        spark.sql(f"delete from delta.`{path}` where id % 3 = 0 and try_variant_get(v, '$.n', 'int') > 10")
    kinds, orders = ("int", "decimal(2,0)", "double", "timestamp"), ("desc", "asc nulls last", "asc", "desc nulls first")
    asked = share(itertools.product(kinds, orders, (1, 4)), 3)
    form = f"select try_variant_get(v, '$.n', '{{}}') k from delta.`{path}` order by k {{}} limit {{}}"
    found = first_rows(spark, [form.format(*each) for each in asked])
    assert len(found) == len(asked)
    assert sum(scan.files_after_bounds < scan.files_total for scan in found) > 2


def test_dataframes(spark, table, plan_form):
    """Queries in the DataFrame API are pruned, and a query on a cached DataFrame gives the rows of the cached plan."""
    events = read(spark, table)
    value = F.variant_get(F.col("v"), "$.id", "int")
    filtered = events.withColumn("n", value).withColumn("m", F.col("n") + 1).where(F.col("n") == 5).select("m")
    for df in (
        filtered,
        events.alias("e").where(F.try_variant_get("e.v", "$.id", "long").isin(5, 6)).select("id"),
        events.where(value.between(3, 5) & ~(value == 4)).select("id"),
    ):
        found = rows(df)
        assert opened(df) == [1]
        assert found
    below = events.where(value < 20).select("id", "v")
    assert [scan.files_after_bounds for scan in explain(below).scans] == [2]
    cached = below.cache()
    with generated(spark):
        assert cached.count() == 20
        assert [row.id for row in cached.where(value == 5).collect()] == [5]
    cached.unpersist()


def test_exchanges_are_reused(spark, table):
    """Spark recognizes two equal pruned scans: a self-join shuffles the table once."""
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        few = lambda: read(spark, table).where("v:id::int < 20").selectExpr("id", "v:id::int n")  # noqa: E731  # two equal scans
        joined = few().join(few().withColumnRenamed("n", "m"), "id")
        assert len(collected(joined)) == 20
        assert "ReusedExchange" in joined._jdf.queryExecution().executedPlan().toString()
        assert opened(joined) == [2]
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


@pytest.mark.slow
def test_data_manipulation(spark, table, tmp_path):
    """UPDATE, DELETE, MERGE and INSERT with predicates on paths change the rows that match, and no others."""
    text_of = dict(rows(read(spark, table).selectExpr("id", "to_json(v)")))
    path = copied(table, tmp_path / "t")
    changed = f"delta.`{path}`"
    spark.sql(f"update {changed} set id = -id where v:id::int = 5")
    spark.sql(f"delete from {changed} where v:id::int in (7, 45)")
    spark.sql(
        f"merge into {changed} t using (select id, v from {changed} where v:id::int < 3) s on t.v:id::int = s.v:id::int "
        "when matched then update set id = s.id + 1000"
    )
    spark.sql(f"insert into {changed} select id + 500, v from {changed} where v:id::int = 25")
    moved = {5: -5, 0: 1000, 1: 1001, 2: 1002}
    expected = [(moved.get(n, n), text_of[n]) for n in range(50) if n not in {7, 45}] + [(525, text_of[25])]
    assert sorted(collected(read(spark, path).selectExpr("id", "to_json(v)"))) == sorted(expected)


def test_deletion_vectors(spark, tmp_path):
    """Rows deleted by deletion vectors stay deleted in pruned scans."""
    path = events(spark, tmp_path / "dv", **{"delta.enableDeletionVectors": "true"})
    spark.sql(f"delete from delta.`{path}` where id % 2 = 0")
    df = read(spark, path).where("v:id::int between 4 and 7").select("id")
    assert ([row.id for row in rows(df)], opened(df)) == ([5, 7], [1])


def test_partitions(spark, tmp_path):
    """Partition filters, static and dynamic, and path predicates narrow the same scan."""
    path = create(spark, tmp_path / "parts", "id long, p int, v variant", "partitioned by (p)")
    source = spark.range(0, 40, 1, 4).selectExpr("id", "cast(id % 2 as int) p", f"{EVENT} v")
    with deltas_own_files(spark):
        source.write.format("delta").mode("append").save(path)
    df = read(spark, path).where("p = 1 and v:id::int < 20").select("id")
    assert (len(collected(df)), opened(df)) == (10, [2])
    read(spark, path).createOrReplaceTempView("parts")
    join = "select a.id from parts a join (select 1 p) b on a.p = b.p where a.v:id::int < 20"
    assert [row.id for row in sorted(collected(spark.sql(join)))] == list(range(1, 20, 2))


def test_column_mapping(spark, tmp_path):
    """Bounds are found under the physical name of a renamed column."""
    path = events(spark, tmp_path / "mapped", **{"delta.columnMapping.mode": "name"})
    spark.sql(f"alter table delta.`{path}` rename column v to w")
    df = read(spark, path).where("w:id::int = 5")
    assert (len(collected(df)), opened(df)) == (1, [1])


def test_checkpoints_and_time_travel(spark, tmp_path):
    """Bounds are read from checkpoints with statistics as structs, and in older versions of the table."""
    properties = {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpointInterval": "1"}
    path = events(spark, tmp_path / "checkpointed", **properties)
    spark.sql(f"delete from delta.`{path}` where id >= 30")
    assert list(Path(path, "_delta_log").glob("*.checkpoint.parquet"))
    forget(spark)
    df = read(spark, path).where("v:id::int > 45")
    assert (len(collected(df)), opened(df)) == (0, [0])
    df = spark.read.format("delta").option("versionAsOf", 0).load(path).where("v:id::int > 45")
    assert (len(collected(df)), opened(df)) == (4, [1])


def test_streams(spark, tmp_path, table):
    """A stream with a filter on a path, joined to a static table with another filter, gives all its rows."""
    static = read(spark, table).where("v:id::int < 5").selectExpr("id")
    stream = spark.readStream.format("delta").load(table).where("v:o.x::int > -25").select("id", "v").join(static, "id")
    out = stream.select("id").writeStream.format("parquet").option("path", str(tmp_path / "out"))
    with generated(spark):
        out.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start().awaitTermination()
    assert sorted(row.id for row in spark.read.parquet(str(tmp_path / "out")).collect()) == [0, 1, 2, 3, 4]


def test_several_threads(spark, table):
    """Queries planned in several threads at once each give their own rows and open one file."""
    found: dict[int, list[int]] = {}

    def ask(value):
        df = read(spark, table).where(f"v:id::int = {value}").select("id")
        found[value] = [row.id for row in df.collect()] + opened(df)

    threads = [threading.Thread(target=ask, args=(value,)) for value in (5, 25, 45)]
    with generated(spark):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {value: [value, 1] for value in (5, 25, 45)}


def test_a_job_decides_as_the_driver_does(spark, marked):
    """A job over the bounds, as for large tables, keeps the files that the driver keeps for small tables."""
    predicates = ["v:id::int = 5", "v:s::string like 'k01%'", "v:d::double in (3, 37.0)"]
    predicates += ["v:day::date >= '2024-02-04' or v:ntz::timestamp_ntz < '1970-01-01 00:00:10'", "v:nothing::int = 1"]
    form = f"select 1 from delta.`{marked}` where "
    queries = [prepared(spark, form + predicate) for predicate in predicates]
    # Delta keeps all files, or a few.
    queries += [f"{form}id >= {first} and v:id::int in (5, 45)" for first in (0, 30)]
    files = []
    for kept in ("5000", "0", "0"):
        spark.conf.set("spark.delta_variant.keptFiles", kept)
        files.append([scan.files_after_bounds for scan in scans(spark.sql(" union all ".join(queries)))])
    spark.conf.unset("spark.delta_variant.keptFiles")
    assert files[0] == files[1] == files[2] == [1, 1, 2, 3, 5, 2, 1]


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


def test_zeros_that_spark_holds_apart(spark, tmp_path):
    """A NOT IN with a zero rules nothing out: Spark's long NOT IN tells -0.0 from 0.0, which bounds do not."""
    path = create(spark, tmp_path / "zeros", "v variant")
    append_json(spark, path, [['{"d": -0.0e0}']])
    mark(spark, path)
    excluded = ", ".join(f"{n}.0D" for n in range(20))
    expected = {f"v:d::double not in ({excluded})": 1, "v:d::double <> 0.0D": 0, "v:d::double not in (0.0D, 1.0D)": 1}
    for predicate, answer in answers(spark, path, list(expected), "to_json(v)").items():
        assert (answer.files, answer.found) == (expected[predicate], answer.wanted), predicate


# ---- what is kept from one table version to the next -----------------------------------------------------------------


def kept_rows(spark, path):
    """The rows of the log that the driver has cached of a table's newest version."""
    name = jvm.static(spark, "org.apache.hadoop.fs.Path")(f"file:{path}", "_delta_log").toString()
    of_table = [files for files in jvm.loaded(spark).shared.bounds().asMap().values() if files.version().table() == name]
    newest = max(of_table, key=lambda files: files.version().number())
    return list(newest.rows().get())


def count_same(spark, before, after):
    """How many Java objects are in both lists of rows."""
    same = spark._jvm.java.lang.System.identityHashCode
    return len({same(row) for row in before} & {same(row) for row in after})


def test_a_commit_costs_its_own_files(spark, tmp_path):
    """The first query after a commit decodes the bounds of the files whose paths, statistics or tags are new, and no others."""
    path = events(spark, tmp_path / "growing", rows=40, files=4, **{"delta.enableDeletionVectors": "true"})

    def ask(predicate="v:id::int = 5"):
        df = read(spark, path).where(predicate).select("id")
        return [row.id for row in rows(df)], opened(df)[0]

    def decoded(change, *asked):
        before = kept_rows(spark, path)
        change()
        found = ask(*asked)
        after = kept_rows(spark, path)
        return found, len(after) - count_same(spark, before, after)

    more = spark.range(100, 110, 1, 1).selectExpr("id", f"{EVENT} v")
    assert ask() == ([5], 1)
    assert decoded(lambda: more.write.format("delta").mode("append").save(path)) == (([5], 1), 1)
    gone = "id in (25, 33) or id between 10 and 19"  # two files get deletion vectors, one is removed
    assert decoded(lambda: spark.sql(f"delete from delta.`{path}` where {gone}")) == (([5], 1), 2)
    assert decoded(lambda: mark(spark, path)) == (([5], 1), 4)
    of_two = [read(spark, path).where(predicate) for predicate in ("v:id::int = 105", "v:s::string = 'k105'")]
    df = of_two[0].unionAll(of_two[1]).unionAll(read(spark, path).where("v:id::int = 33")).select("id")
    assert ([row.id for row in rows(df)], opened(df)) == ([105, 105], [1, 1, 1])
    assert decoded(lambda: spark.sql(f"restore table delta.`{path}` to version as of 0"), "v:id::int = 33")[0] == ([33], 1)


def test_values_of_the_mark(spark, table, tmp_path):
    """The marker counts with the values 1 and 2 and with no other, on the driver and by a job (M1)."""
    path = copied(table, tmp_path / "marks")
    mark(spark, path, ["1", "3", "2", "4", "x"])
    [log] = Path(path, "_delta_log").glob("*.json")
    adds = [action["add"] for action in map(json.loads, log.read_text().splitlines()) if "add" in action]
    values = {unquote(add["path"]): add["tags"][BOUNDS_TAG] for add in adds}
    for kept in ("5000", "0"):
        spark.conf.set("spark.delta_variant.keptFiles", kept)
        kept_files = read(spark, path).where("v:s::string = 'x'").inputFiles()
        assert {Path(unquote(file)).name for file in kept_files} == {name for name, value in values.items() if value > "2"}
    spark.conf.unset("spark.delta_variant.keptFiles")


def test_residuals_over_4_kib(spark, tmp_path):
    """delta-spark gives a path no bounds if a residual over 4 KiB leaves a row group without its null count (M1)."""
    path = create(spark, tmp_path / "residuals")
    odd = "case id when 4500 then -7.5D when 4600 then null else 0D end"
    huge = "to_variant_object(named_struct('a', repeat('x', 5000), 'b', id))"
    other = f"to_variant_object(named_struct('a', {odd}, 'b', id))"
    usual = "to_variant_object(named_struct('a', id, 'b', id))"
    value = f"case when id in (4501, 4790) then {huge} when id in (4500, 4600) then {other} else {usual} end v"
    spark.conf.set("parquet.block.row.count.limit", "500")
    with deltas_own_files(spark):
        spark.range(0, 4800, 1, 1).selectExpr("id", value).write.format("delta").mode("append").save(path)
    spark.conf.unset("parquet.block.row.count.limit")
    assert [row.path for row in VariantTable.forPath(spark, path).stats().collect()] == ["$['b']"]
    negative = "try_variant_get(v, '$.a', 'double') < 0"
    expected = {negative: [4500], "try_variant_get(v, '$.a', 'int') = -7": [4500], "v:b::int = 5000": []}
    found = answers(spark, path, list(expected))
    assert {predicate: answer.found for predicate, answer in found.items()} == expected


def test_statistics_that_change_in_place(spark, small, tmp_path):
    """A file whose statistics change in the log is skipped by the new ones: cached bounds are not found by the path alone."""
    path = copied(small, tmp_path / "changing")
    assert explain(read(spark, path).where("v:id::int = 5")).scans[0].files_after_bounds == 1
    for log in Path(path, "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                stats = json.loads(action["add"]["stats"])
                action["add"]["stats"] = json.dumps({key: stats[key] for key in stats if key not in {"minValues", "maxValues"}})
        log.write_text("".join(json.dumps(action) + "\n" for action in actions))
        log.with_name(f".{log.name}.crc").unlink(missing_ok=True)
    forget(spark)
    assert explain(read(spark, path).where("v:id::int = 5")).scans[0].files_after_bounds == 2


def test_a_version_that_cannot_be_read_is_not_tried_again(spark, small, tmp_path, monkeypatch, caplog):
    """If a version's bounds cannot be read, all files are opened with one warning, and the next version is skipped again."""
    path = copied(small, tmp_path / "broken")
    spark.conf.set("spark.delta_variant.keptFiles", "0")
    right = requests.answer

    def wrong(request):
        reply = right(request)
        return replace(reply, bounds=tuple(replace(bound, column=99) for bound in reply.bounds))

    monkeypatch.setattr(requests, "answer", wrong)
    with caplog.at_level(logging.WARNING, "delta_variant"):
        for _ in range(2):
            df = read(spark, path).where("v:id::int = 5")
            assert (len(collected(df)), opened(df)) == (1, [2])
            monkeypatch.setattr(requests, "answer", right)
    assert len([record for record in caplog.records if record.name == "delta_variant"]) == 1
    [scan] = explain(read(spark, path).where("v:id::int = 5")).scans
    assert "the bounds of this version could not be read" in scan.reasons[-1]
    append_json(spark, path, [['{"id": 100}']])
    assert explain(read(spark, path).where("v:id::int = 5")).scans[0].files_after_bounds == 1
    spark.conf.unset("spark.delta_variant.keptFiles")


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


@pytest.mark.parametrize(
    "reply",
    [None, PruneReply(Compare("<", 0, 0), (Bound("min"),), (), None), "not an object"],
    ids=["error", "no such bound", "text"],
)
def test_failures_step_aside(spark, small, tmp_path, monkeypatch, caplog, reply):
    """If Python fails or its reply cannot be used, the query opens every file, with one warning."""
    path = copied(small, tmp_path / "t")

    def broken(_request):
        if reply is None:
            raise ValueError("a defect")
        return reply

    monkeypatch.setattr(requests, "answer", broken)
    with caplog.at_level(logging.WARNING, "delta_variant"):
        df = read(spark, path).where("v:id::int = 5")
        assert (len(collected(df)), opened(df)) == (1, [2])
    assert len([record for record in caplog.records if record.name == "delta_variant"]) == 1


def test_other_queries_do_not_call_python(spark, table, tmp_path, monkeypatch):
    """A query without a Delta scan that has a filter on a VARIANT is planned without Python."""
    asked = []
    monkeypatch.setattr(requests, "answer", asked.append)
    read(spark, table).write.parquet(str(tmp_path / "p"))
    for df in (
        read(spark, table),
        read(spark, table).where("id = 5"),
        read(spark, table).where("id > 5 and v is not null").groupBy("id").count(),
        spark.read.parquet(str(tmp_path / "p")).where("v:id::int = 5"),
        spark.range(10).selectExpr("to_variant_object(struct(id)) v").where("v:id::int = 5"),
    ):
        collected(df)
    assert asked == []


def test_cancellation_goes_through(spark, table, monkeypatch):
    """Cancelling a query while the job over the bounds waits cancels the query; it does not go on without skipping."""
    right, planning, done = requests.answer, threading.Event(), threading.Event()
    spark.conf.set("spark.delta_variant.keptFiles", "0")
    forget(spark)

    def occupied(_):
        time.sleep(20)
        return iter(())

    def slow(request):
        """Gives the answer once both cores are busy."""
        busy = threading.Thread(
            target=lambda: suppressed(spark.sparkContext.parallelize(range(2), 2).mapPartitions(occupied).collect)
        )
        busy.start()
        while len(spark.sparkContext.statusTracker().getActiveJobsIds()) == 0:
            done.wait(0.05)
        planning.set()
        return right(request)

    def suppressed(run):
        spark.sparkContext.setJobGroup("busy", "keeps both cores busy")
        with contextlib.suppress(Exception):
            run()

    monkeypatch.setattr(requests, "answer", slow)
    outcome: list[object] = []

    def ask():
        spark.sparkContext.setJobGroup("to-be-cancelled", "a query whose job over the bounds waits")
        try:
            outcome.append(len(read(spark, table).where("v:id::int = 5").collect()))
        except Exception as error:  # noqa: BLE001  # PySpark does not convert this one
            outcome.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert planning.wait(60)
    while thread.is_alive():
        done.wait(0.1)
        spark.sparkContext.cancelJobGroup("to-be-cancelled")
    spark.sparkContext.cancelJobGroup("busy")
    spark.conf.unset("spark.delta_variant.keptFiles")
    assert "SPARK_JOB_CANCELLED" in str(outcome[0])
    monkeypatch.setattr(requests, "answer", right)
    assert explain(read(spark, table).where("v:id::int = 5")).scans[0].files_after_bounds == 1


def test_explain(spark, table):
    """Explain tells what is left of the files after Delta and after the bounds, and why not fewer, without running."""
    read(spark, table).createOrReplaceTempView("events")
    [scan] = explain(spark.sql("select * from events where v:id::int = 5 and id < 20")).scans
    assert (scan.files_total, scan.files_after_delta, scan.files_after_bounds) == (5, 2, 1)
    assert (scan.version, scan.predicates, scan.reasons) == (0, ("v:id::int = 5",), ())
    [finding] = scan.findings
    assert (finding.predicate, finding.path, finding.files_ruled_out, finding.reasons) == ("v:id::int = 5", "v:id", 1, ())
    [scan] = explain(spark.sql("select * from events where v:s::string = 'x' or id = 4")).scans
    assert (scan.files_after_delta, scan.files_after_bounds) == (5, 5)
    assert BOUNDS_TAG in scan.reasons[0]
    [scan] = explain(spark.sql("select * from events")).scans
    assert scan.reasons == ("the query has no filter on a Variant path here",)
    report = explain(spark.sql("select 1 from events a, events b where a.v:id::int = b.id and a.v:ts::timestamp < now()"))
    assert len(report.scans) == 2
    lines = str(report).splitlines()
    end = lines[0].index("after bounds") + len("after bounds")
    assert [line[:end].split()[-1] for line in lines[1:] if line[:end].strip()] == ["5", "5"]
    disable(spark)
    [scan] = explain(spark.sql("select * from events where v:id::int = 5")).scans
    assert scan.files_after_delta == scan.files_after_bounds == 5
    assert scan.reasons == ("delta_variant.enable(spark) was not called",)


def test_explain_counts_files(spark, tmp_path, caplog):
    """`explain` says of each question how many files it rules out alone, and why not more; logScans logs the same."""
    create(spark, tmp_path / "t", "v variant")
    files = [['{"a": 1}'], ['{"a": 9}'], ['{"a": "x"}'], ['{"a": 1}', '{"a": "x"}'], ['{"b": 1}'], ['{"a": 5000000000}']]
    append_json(spark, tmp_path / "t", files)
    query = "v:a::int = 9 and v:a::string >= 'w'"
    with caplog.at_level(logging.DEBUG):
        [scan] = explain(read(spark, str(tmp_path / "t")).where(query)).scans
        assert not [record for record in caplog.records if record.name == "delta_variant"]
        spark.conf.set("spark.delta_variant.logScans", "true")
        read(spark, str(tmp_path / "t")).where(query).inputFiles()
        spark.conf.unset("spark.delta_variant.logScans")
    first, second = scan.findings
    assert (first.files_ruled_out, second.files_ruled_out) == (1, 0)
    assert first.reasons == (
        "string bounds for v:a, which is compared as int, in 1 of 6 files",
        "no bounds for v:a in 2 of 6 files",
        "bounds for v:a that do not fit int in 1 of 6 files",
    )
    assert "v:a::string: string bounds count only in files whose Add has the tag delta_variant.bounds" in second.reasons[0]
    assert scan.reasons == (*second.reasons, *first.reasons)
    assert "v:a::int = 9: rules out 1 of 6 files" in str(Report([scan]))
    assert "v:a::int = 9: rules out 1 of 6 files" in caplog.text


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


SPELLED = """to_json(named_struct(
    'z', replace(t, ' ', 'T') || if(id % 3 = 0, 'Z', '.5Z'), 'o', t || if(id % 2 = 0, '+02:00', '-0330'), 'l', t,
    'd', substr(t, 1, 10), 'n', if(id % 5 = 0, null, t || ' UTC'), 'x', if(id = 30, 'soon', t || 'Z'),
    's', named_struct('q"q', t)))"""


def spelled(spark, path, **properties):
    """Six files of a day each, by the hour, in strings; clocks in St. John's were set back in the third of these nights."""
    create(spark, path, "id long, v variant", **properties)
    times = spark.range(0, 144, 1, 1).selectExpr("id", "timestamp_ntz'2006-10-27 00:00:00' + make_interval(0, 0, 0, 0, id) t")
    write(
        times.selectExpr("id", "cast(t as string) t").selectExpr("id", f"parse_json({SPELLED}) v"), path, max_rows_per_file=24
    )
    return str(path)


@pytest.fixture(scope="module")
def in_strings(spark, tmp_path_factory) -> str:
    return spelled(spark, tmp_path_factory.mktemp("tables") / "spelled")


INSTANT = "timestamp'2006-10-29 {}Z'"
TIMES = [  # with the number of files that are opened; 0: those with matching rows, and no others
    (f"v:z::timestamp >= {INSTANT.format('05:00:00')} and v:z::timestamp < {INSTANT.format('07:00:00')}", 0),
    (f"variant_get(v, '$.z', 'timestamp') between {INSTANT.format('22:59:59')} and {INSTANT.format('23:30:00')}", 0),
    (f"v:z::timestamp = {INSTANT.format('06:00:00')}", 0),
    (f"try_variant_get(v, '$.z', 'timestamp') in ({INSTANT.format('06:00:00')}, {INSTANT.format('23:00:00.5')})", 0),
    ("v:z::date = date'2006-10-29'", 0),
    ("v:d::date <> date'2006-10-29'", 0),
    ("v:z::timestamp_ntz <= timestamp_ntz'2006-10-27 00:00:00'", 0),
    ("v:z::timestamp_ntz::date > date'2006-10-31'", 0),
    (f"v:o::timestamp < {INSTANT.format('00:00:00')}", 0),
    ("v:o::date = date'2006-10-29'", 0),
    ("v:o::timestamp_ntz >= timestamp_ntz'2006-11-01 00:00:00'", 0),
    ("v:l::timestamp_ntz between timestamp_ntz'2006-10-29 00:00:00' and timestamp_ntz'2006-10-29 03:00:00'", 0),
    ("v:l::date in (date'2006-10-27', date'2006-11-01')", 0),
    (f"v:l::timestamp = {INSTANT.format('14:30:00')}", 3),  # a zone may be as far as 18 hours from UTC
    (f"v:l::timestamp < {INSTANT.format('05:00:00')}", 3),
    ("v:d::date = date'2006-10-29'", 0),
    ("v:d::timestamp_ntz > timestamp_ntz'2006-10-31 12:00:00'", 0),
    ("v:d::timestamp < timestamp'2006-10-27 12:00:00Z'", 2),
    (f"v:n::timestamp < {INSTANT.format('00:00:00')}", 0),
    (f"try_variant_get(v, '$.x', 'timestamp') > {INSTANT.format('00:00:00')}", 5),
    (f"cast(v:z::string as timestamp) < {INSTANT.format('00:00:00')}", 0),
    (f"to_timestamp(v:z::string) > {INSTANT.format('23:00:00')}", 0),
    (f"try_to_timestamp(v:n::string) > {INSTANT.format('23:00:00')}", 0),
    ("to_date(v:z::string) = date'2006-10-29'", 0),
    ("not (v:z::string::date <> date'2006-10-29')", 0),
    ("variant_get(v, '$.s[\\'q\"q\\']', 'date') = date'2006-10-29'", 0),
]


@pytest.mark.parametrize(("zone", "plan_form"), [("UTC", "true"), ("America/St_Johns", "false")], indirect=["plan_form"])
def test_times_in_strings(spark, in_strings, zone, plan_form):
    """Casts of strings to dates and timestamps open the files with matching rows, in every time zone (Q8).

    Files are opened beside them if a string without an offset is compared with an instant, or if one string is no time.
    """
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        shared = TIMES if zone != "UTC" else share(TIMES, 2)
        found = answers(spark, in_strings, [predicate for predicate, _ in shared])
        for predicate, files in shared:
            answer = found[predicate]
            assert answer.found == answer.wanted, predicate
            assert answer.files == (files or answer.matching), predicate
            assert answer.files < 6, predicate
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_strings_without_the_tag_of_times(spark, tmp_path):
    """Without the tag or the marker every file is opened, and `explain` says why; one file without them is opened (Q8)."""
    path = spelled(spark, tmp_path / "t")
    asked = [f"v:z::{cast} < {INSTANT.format('00:00:00')}" for cast in ("timestamp", "string::timestamp")]
    log = Path(path, "_delta_log", "00000000000000000001.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    adds = [action["add"] for action in actions if "add" in action]

    def left(tags, described=scans):
        for add, kept in zip(adds, tags, strict=True):
            add["tags"] = kept
        log.write_text("".join(json.dumps(action) + "\n" for action in actions))
        log.with_name(f".{log.name}.crc").unlink(missing_ok=True)
        forget(spark)
        df = spark.sql(" union all ".join(f"select id from delta.`{path}` where {predicate}" for predicate in asked))
        assert rows(df) == sorted([(n,) for n in range(48)] * 2, key=repr)
        found = described(df)
        return [scan.files_after_bounds for scan in found], [scan.reasons for scan in found]

    whole = [add["tags"] for add in adds]
    reasons = lambda df: explain(df).scans  # noqa: E731
    assert left(whole, reasons) == ([2, 2], [(), ()])
    assert left([{BOUNDS_TAG: whole[0][BOUNDS_TAG]}, *whole[1:5], {}])[0] == [3, 3]
    assert left([{TIMES_TAG: tags[TIMES_TAG]} for tags in whole])[0] == [6, 6]
    files, [path_reasons, text_reasons] = left([{BOUNDS_TAG: tags[BOUNDS_TAG]} for tags in whole], reasons)
    assert files == [6, 6]
    assert path_reasons == (f"strings at v:z, of which the tag {TIMES_TAG} has no bounds, in 6 of 6 files",)
    [text_reason] = text_reasons
    assert f"times in strings count only in files whose Add has the tag {TIMES_TAG}" in text_reason
    files, _ = left([{**tags, TIMES_TAG: "damaged"} for tags in whole])
    assert files == [6, 6]


def test_times_in_strings_after_changes(spark, tmp_path):
    """Files that DELETE left with a deletion vector keep the tag; files of Delta's UPDATE and OPTIMIZE are opened (Q8)."""
    path = spelled(spark, tmp_path / "t", **{"delta.enableDeletionVectors": "true"})
    table = f"delta.`{path}`"
    query = lambda: read(spark, path).where("v:z::date = date'2006-10-29'").select("id")  # noqa: E731
    spark.sql(f"delete from {table} where v:z::timestamp between {INSTANT.format('00:00:00')} and {INSTANT.format('12:00:00')}")
    df = query()
    assert (sorted(row.id for row in collected(df)), opened(df)) == ([*range(61, 72)], [1])
    with deltas_own_files(spark):
        spark.sql(
            f"""update {table} set v = parse_json('{{"z": "2006-10-29T05:00:00+10:00"}}') where v:z::date = date'2006-10-27'"""
        )
    df = query()
    assert (sorted(row.id for row in collected(df)), opened(df)) == ([*range(24), *range(61, 72)], [2])
    with deltas_own_files(spark):
        spark.sql(f"optimize {table}").collect()
    assert sorted(row.id for row in collected(query())) == [*range(24), *range(61, 72)]


def test_times_in_strings_of_joins_and_orders(spark, in_strings):
    """Joins with constants and ORDER BY with LIMIT use exact bounds of strings; wider ones only where they may be (Q6, Q8)."""
    values = "(values (timestamp'2006-10-29 06:00:00Z'), (timestamp'2006-10-29 09:00:00Z')) k(t)"
    table = f"delta.`{in_strings}`"
    asked = {
        f"select id from {table} join {values} on v:z::timestamp = t": 1,
        f"select id from {table} left semi join {values} on cast(v:z::string as timestamp) = t": 1,
        f"select id from {table} order by v:z::timestamp desc limit 2": 2,
        f"select id from {table} order by v:z::string::timestamp nulls last limit 1": 1,
        f"select id from {table} order by v:o::timestamp_ntz desc limit 1": 1,
        f"select id from {table} order by v:l::timestamp_ntz desc limit 1": 1,
        f"select id from {table} order by v:l::timestamp desc limit 1": 6,
        f"select v:d::date from {table} order by v:d::date desc limit 1": 1,
    }
    assert [scan.files_after_bounds for scan in first_rows(spark, list(asked))] == list(asked.values())


def test_explain_of_scans_that_delta_does_not_prepare(spark, table):
    """If Delta's skipping is off, the counts of files are unknown, and `explain` shows a question mark."""
    spark.conf.set("spark.databricks.delta.stats.skipping", "false")
    try:
        report = explain(read(spark, table).where("v:id::int = 5"))
    finally:
        spark.conf.unset("spark.databricks.delta.stats.skipping")
    assert report.scans[0].files_after_bounds is None
    assert "?" in str(report)


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
