"""Values and paths of every kind: what bounds say of them is true of the rows."""

from __future__ import annotations

import functools
import itertools
import json
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from delta_variant.queries.casts import kinds_for
from delta_variant.stats import BOUNDS_TAG
from delta_variant.table import VariantTable
from delta_variant.types import INTEGERS
from tests.optimizer.skipping.asking import answers, opened, read
from tests.optimizer.skipping.tables import EVENT, append_json, copied, create, mark
from tests.support import SOAK, collected, deltas_own_files, share

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.spark, pytest.mark.interpreted]


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


def test_zeros_that_spark_holds_apart(spark, tmp_path):
    """A NOT IN with a zero rules nothing out: Spark's long NOT IN tells -0.0 from 0.0, which bounds do not."""
    path = create(spark, tmp_path / "zeros", "v variant")
    append_json(spark, path, [['{"d": -0.0e0}']])
    mark(spark, path)
    excluded = ", ".join(f"{n}.0D" for n in range(20))
    expected = {f"v:d::double not in ({excluded})": 1, "v:d::double <> 0.0D": 0, "v:d::double not in (0.0D, 1.0D)": 1}
    for predicate, answer in answers(spark, path, list(expected), "to_json(v)").items():
        assert (answer.files, answer.found) == (expected[predicate], answer.wanted), predicate


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
