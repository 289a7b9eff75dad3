"""Typed reading inside Spark: queries give what Spark's scan gives, and read paths from typed columns."""

from __future__ import annotations

import datetime as dt
import functools
import json
import re
import shutil
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType

import delta_variant as dv
from delta_variant import explanation, jvm
from delta_variant.messages import FileGroup, GroupsRequest, Leaf, PathUse
from delta_variant.queries.casts import reading
from delta_variant.queries.typed import MAX_GROUPS, groups
from tests.strategies import column
from tests.support import SOAK, collected, deltas_own_files, generated, prepared, scans, share, viewed
from tests.typed_tables import ASKED, VALUES, made

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.interpreted

TYPED = "spark.delta_variant.typedReading"
FOOTERS = "spark.delta_variant.footerBytes"
PUSH = "spark.sql.variant.pushVariantIntoScan"
SOME = range(1, 1000)
"""At least one file."""

# ---- decisions -------------------------------------------------------------------------------------------------------


def test_casts_between_numbers_are_safe_where_the_digits_fit():
    """A cast between exact numbers is safe if the target has room for all digits, and checked otherwise (T5)."""
    of_int = {"int": "as is", "bigint": "safe", "smallint": "checked", "decimal(10,0)": "safe", "decimal(11,2)": "checked"}
    assert {asked: reading("int", asked) for asked in of_int} == of_int
    of_decimal = {"decimal(18,4)": "safe", "decimal(18,1)": "checked", "decimal(8,2)": "checked", "bigint": "checked"}
    assert {asked: reading("decimal(9,2)", asked) for asked in of_decimal} == of_decimal


def test_integers_that_have_room_fit_into_smaller_types():
    """A cast to a smaller integer type is safe if the file's bounds fit into it."""
    casts = {asked: reading("bigint", asked, "smallint") for asked in ("tinyint", "smallint", "int", "bigint", "string")}
    assert casts == {"tinyint": "checked", "smallint": "safe", "int": "safe", "bigint": "as is", "string": "safe"}


def test_groups_are_few():
    """Of too many combinations of column types, those with the fewest bytes are left to Spark's scan (T4)."""
    asked = tuple(FileGroup((Leaf(f"decimal(18,{scale})", None),), bytes=scale) for scale in range(MAX_GROUPS + 2))
    reply = groups(GroupsRequest((PathUse(0, "double"),), asked))
    assert [group.number for group in reply.groups] == list(range(MAX_GROUPS + 1, 1, -1))


# ---- values ----------------------------------------------------------------------------------------------------------


ZONES = ["America/St_Johns", "Asia/Kathmandu"]
AT_ONCE = 4 if SOAK else len(VALUES)
"""How many keys one query asks for."""
IN_ZONES = [
    (keys[at : at + AT_ONCE], zone)
    for number, zone in enumerate(ZONES)
    for keys in [share(VALUES, 2, number)]
    for at in range(0, len(keys), AT_ONCE)
]


def asked_of(key: str, parts: int = 2) -> list[str]:
    """The types that a test asks for at a key: in `make test` a part of them, which differs from key to key."""
    return share(ASKED, parts, list(VALUES).index(key) % parts)


@pytest.fixture(scope="module")
def values(spark, tmp_path_factory) -> Iterator[str]:
    """A file with a key for each type: row n has the n-th value of each type. Then a row without values, and a NULL row."""
    root = tmp_path_factory.mktemp("values")
    longest = max(len(some) for _, some in VALUES.values())
    rows = [{key: some[row % len(some)] for key, (_, some) in VALUES.items()} for row in range(longest)]
    path = made(spark, root / "t", [[*rows, {}, "SQL NULL"]], pa.struct([(key, kind) for key, (kind, _) in VALUES.items()]))
    dv.enable(spark)
    yield path
    dv.disable(spark)


def both(
    spark: SparkSession,
    query: str,
    *,
    typed: int | range | list[int | None] | None = None,
    logged: int | None = None,
) -> Any:
    """The rows or the error of a query, after comparison with Spark's scan.

    typed: how many files are read from typed columns, a number or a range of numbers; a list of them for each scan. logged: for
    how many files the log gives MIN and MAX.
    """
    found, df = compared(spark, prepared(spark, query))
    if isinstance(typed, list):
        files = [scan.files_typed for scan in scans(df)]
        assert [None if one is None else file for one, file in zip(typed, files, strict=True)] == typed, dv.explain(df)
    elif typed is not None:
        numbers = typed if isinstance(typed, range) else [typed]
        assert sum(scan.files_typed for scan in scans(df)) in numbers, dv.explain(df)
    if logged is not None:
        assert sum(scan.files_from_log for scan in scans(df)) == logged, dv.explain(df)
    return found


def compared(spark: SparkSession, query: str) -> tuple[list[str] | str, DataFrame]:
    """The rows or the error of a query, after comparison with Spark's scan, and the query."""
    spark.conf.set(TYPED, "false")
    expected = outcome(spark.sql(query))
    spark.conf.set(TYPED, "true")
    df = spark.sql(query)
    found = outcome(df)
    assert found == expected, query
    return found, df


def together(spark: SparkSession, queries: Iterable[str]) -> list[list[explanation.Scan]]:
    """The scans of each query, after comparison of its rows with those of Spark's scan. Four queries are asked as one.

    Alone each is a job more; Spark plans thirteen as one in half as much time again as in fours.
    """
    listed = [prepared(spark, query) for query in queries]
    branches = [f"select {n} q, to_json(struct(*)) r from ({query}) t" for n, query in enumerate(listed)]
    for start in range(0, len(branches), 4):
        rows, _ = compared(spark, " union all ".join(branches[start : start + 4]))
        assert isinstance(rows, list), rows
    return [scans(spark.sql(query)) for query in listed]


def outcome(df: DataFrame) -> list[str] | str:
    try:
        return sorted(map(repr, collected(df)))
    except (PySparkException, Py4JJavaError) as error:
        # How the message shows the value differs between Spark's scan and `variant_get` elsewhere.
        refused = re.search(r"\[INVALID_VARIANT_CAST\] The variant value `.*` (cannot be cast into .*)", str(error), re.DOTALL)
        return f"INVALID_VARIANT_CAST: {refused[1].splitlines()[0]}" if refused else str(error)


def text(expression: str, asked: str) -> str:
    return expression if asked == "variant" else f"cast({expression} as string)"


@pytest.mark.spark
@pytest.mark.parametrize(("keys", "zone"), IN_ZONES)
def test_every_type_as_every_other(spark, values, keys, zone):
    """From a typed column of any type, for any type asked for, `try_variant_get` gives what Spark's scan gives (T1, T5)."""
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        pairs = [(key, asked) for key in keys for asked in asked_of(key)]
        gets = [text(f"try_variant_get(v, '$.{key}', '{asked}')", asked) for key, asked in pairs]
        listed = ", ".join(f"{get} c{n}" for n, get in enumerate(gets))
        both(spark, f"select id, {listed} from delta.`{values}`", typed=1)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.fixture(scope="module")
def failing(spark, values) -> dict[str, list[tuple[str, int]]]:
    """For each key the types to which a cast of its values fails, and the first row in which it does."""
    pairs = [(key, asked) for key in VALUES for asked in ASKED]
    fails = [
        f"try_variant_get(v, '$.{key}', '{asked}') is null and variant_get(v, '$.{key}') is not null" for key, asked in pairs
    ]
    rows = collected(spark.sql(f"select id, {', '.join(fails)} from delta.`{values}` where v is not null order by id"))
    first = {pair: next((row.id for row in rows if row[at]), None) for at, pair in enumerate(pairs, start=1)}
    return {key: [(asked, first[key, asked]) for asked in ASKED if first[key, asked] is not None] for key in VALUES}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("key", VALUES)
def test_errors_are_those_of_sparks_scan(spark, values, failing, key):
    """A cast that fails on Spark's scan fails with typed reading too, with the same condition and type in its message (T5)."""
    table, failing = f"delta.`{values}`", failing[key]
    spark.sparkContext.setLogLevel("OFF")
    chosen = (
        {failing[0], failing[len(failing) // 2], failing[-1]} if SOAK else {failing[list(VALUES).index(key) % len(failing)]}
    )
    for asked, row in chosen:
        value = text(f"variant_get(v, '$.{key}', '{asked}')", asked)
        error = both(spark, f"select {value} from {table} where id = {row}")
        assert "INVALID_VARIANT_CAST" in error
    spark.sparkContext.setLogLevel("ERROR")


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_keys_of_any_kind(spark, tmp_path, mode):
    """Keys that are special to Parquet, to paths or to this package are read from typed columns, with column mapping too."""
    keys = [
        "k.d",
        "it's",
        "é b",
        "value",
        "typed_value",
        "metadata",
        "`",
        "a`b",
        "list",
        "element",
        "id",
        "V",
        "",
        "$",
        "\\",
        "x y",
    ]
    rows = [{key: n * 100 + row for n, key in enumerate(keys)} for row in range(3)]
    shape = pa.struct([(key, pa.int32()) for key in keys])
    path = made(spark, tmp_path / "t", [rows], shape, **{"delta.columnMapping.mode": mode})
    dv.enable(spark)
    asked = share(keys, 3, ["none", "name", "id"].index(mode))
    steps = [f'$["{key}"]'.replace("\\", "\\\\").replace("'", "\\'") for key in asked]
    queries = [f"select try_variant_get(v, '{step}', 'int') + 1 x from delta.`{path}`" for step in steps]
    found = both(spark, " union all ".join(queries), typed=[1] * len(asked))
    assert found == sorted(f"Row(x={row[key] + 1})" for row in rows for key in asked)
    dv.disable(spark)


@pytest.mark.spark
def test_names_that_differ_by_case(spark, tmp_path):
    """A file with typed fields whose names differ only by case is left to Spark's scan, whatever `caseSensitive` is (M1)."""
    rows = [{"a": n, "A": str(n), "o": {"b": n}} for n in range(3)]
    shape = pa.struct([("a", pa.int32()), ("A", pa.string()), ("o", pa.struct([("b", pa.int32())]))])
    path = made(spark, tmp_path / "t", [rows], shape)
    dv.enable(spark)
    for sensitive in ("false", "true"):
        spark.conf.set("spark.sql.caseSensitive", sensitive)
        found = together(
            spark, (f"select {asked} c from delta.`{path}`" for asked in ("v:a::int", "v:A::string", "v:o.b::int"))
        )
        assert [scan.files_typed for [scan] in found] == [0, 0, 0]
    dv.disable(spark)
    spark.conf.unset("spark.sql.caseSensitive")


# ---- footers ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def footers(spark) -> Iterator[None]:
    """The rules are on, and footers of files of any size are read."""
    spark.conf.set(FOOTERS, "0")
    dv.enable(spark)
    yield
    dv.disable(spark)
    spark.conf.unset(FOOTERS)


def unmarked(spark: SparkSession, path: Any, name: str = "unmarked") -> str:
    """A copy of the table without statistics and tags, as another writer might leave it."""
    copy = f"{path}-{name}"
    shutil.copytree(path, copy)
    for log in Path(copy, "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                action["add"] = {key: value for key, value in action["add"].items() if key not in {"stats", "tags"}}
        log.write_text("".join(json.dumps(action) + "\n" for action in actions))
        log.with_name(f".{log.name}.crc").unlink(missing_ok=True)
        log.with_suffix(".crc").unlink(missing_ok=True)
    return copy


@pytest.fixture(scope="module")
def unmarked_values(spark, values) -> str:
    return unmarked(spark, values)


@pytest.mark.spark
def test_footers_prove_every_type(spark, unmarked_values, footers):
    """Footers prove paths of any type, in a file without statistics and tags in the log (T2)."""
    table = f"delta.`{unmarked_values}`"

    def same(keys: list[str]) -> None:
        pairs = [(key, asked) for key in keys for asked in asked_of(key, 4)]
        gets = [text(f"try_variant_get(v, '$.{key}', '{asked}')", asked) for key, asked in pairs]
        both(spark, f"select id, {', '.join(gets)} from {table}", typed=1)

    keys = list(VALUES)
    for start in range(0, len(keys), AT_ONCE):
        same(keys[start : start + AT_ONCE])
    both(spark, f"select {', '.join(f'typeof(v:{key})' for key in VALUES)} from {table}")


@pytest.mark.spark
def test_filters_on_any_column(spark, values, unmarked_values, footers):
    """Filters with constants of any size, on columns that the log or a footer proves, give the rows of Spark's scan."""
    constants = {
        **dict.fromkeys(
            ("decimal16", "short8", "short16"), ("decimal(38,3)", ["1.5", "99999999999999999999999999999999999.999"])
        ),
        "string": ("string", ["'5'", "''"]),
        "int": ("bigint", ["7", "99999999999"]),
    }
    conditions = [
        f"delta.`{table}` where v:{key}::{asked} {sign} cast({constant} as {asked})"
        for key, (asked, listed) in constants.items()
        for table in (values, unmarked_values) for constant in listed for sign in ("=", "<")
    ]  # fmt: skip
    query = " union all ".join(
        f"select {number} q, id from {condition}" for number, condition in share(enumerate(conditions), 3)
    )
    assert isinstance(both(spark, query), list)


RESIDUALS = {  # rows; the paths whose columns are known; other paths, if the writer is known
    "none": ([{"a": 1, "o": {"b": "x"}}, {"o": {}}, {}], {"a", "o.b", "o.z", "z", "a.z"}, set()),
    "another type": ([{"a": "1", "o": {"b": "x"}}, {"a": 1}], {"a", "o.b", "o.z", "z"}, {"a.z"}),
    "JSON nulls": ([{"a": None, "o": {"b": "x"}}, {"a": 1, "o": None}, None], {"a", "o.b", "o.z", "z", "a.z"}, set()),
    "another field": ([{"a": 1, "o": {"b": "x", "z": 1}}, {"a": 1}], {"a", "z", "a.z", "o.b", "o.z"}, set()),
    "another field above": ([{"a": 1, "z": 1, "o": {"b": "x"}}, {"a": 1}], {"a", "o.b", "z"}, {"a.z", "o.z"}),
    "no object": ([{"a": 1, "o": 5}, {"a": 1, "o": {"b": "x"}}], {"a", "a.z", "z", "o.b", "o.z"}, set()),
    "no object above": ([{"a": 1, "o": {"b": "x"}}, 5], {"a", "o.b", "z"}, {"a.z", "o.z"}),
    "SQL NULL": ([{"a": 1, "o": {"b": "x"}}, "SQL NULL"], {"a", "o.b", "o.z", "z", "a.z"}, set()),
}


@pytest.fixture(scope="module")
def residuals(spark, tmp_path_factory) -> Callable[[str, bool], str]:
    """A view of the file of a case of RESIDUALS."""
    shape = pa.struct([("a", pa.int32()), ("o", pa.struct([("b", pa.string())]))])
    path = tmp_path_factory.mktemp("residuals") / "t"
    return cases(spark, path, {case: rows for case, (rows, _, _) in RESIDUALS.items()}, shape)


def cases(spark: SparkSession, path: Path, listed: dict[str, list[Any]], shape: pa.DataType) -> Callable[[str, bool], str]:
    """Views of files without statistics and tags. By the case whose rows it has, and whether its writer is known."""
    rows = [(number, row) for number, some in enumerate(listed.values()) for row in some]
    ids, numbers = pa.array(range(len(rows)), pa.int64()), pa.array([number for number, _ in rows], pa.int32())
    dv.parquet.write_table(pa.table({"id": ids, "p": numbers, "v": column([row for _, row in rows])}), f"{path}.parquet")
    source = spark.read.parquet(f"{path}.parquet").coalesce(1)
    dv.write(source, path, partition_by=["p"], shred={"v": shape})
    table = unmarked(spark, path)
    [log] = Path(table, "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for add in [action["add"] for action in actions if "add" in action]:
        data = Path(table, add["path"]).read_bytes()
        assert b"org.apache.spark.version" in data
        other = str(Path(add["path"]).with_name(f"other-{Path(add['path']).name}"))
        Path(table, other).write_bytes(data.replace(b"org.apache.spark.version", b"com.example.tool.version"))
        partition = {"p": str(int(add["partitionValues"]["p"]) + len(listed))}
        actions.append({"add": {**add, "path": other, "partitionValues": partition}})
    assert len(actions) > 2 * len(listed)
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))

    def view(case: str, known: bool) -> str:
        partition = list(listed).index(case) + len(listed) * (not known)
        return viewed(spark, f"select id, v from delta.`{table}` where p = {partition}")

    return functools.cache(view)


@pytest.mark.spark
@pytest.mark.parametrize("known", [True, False], ids=["known writer", "any writer"])
def test_what_footers_prove_beside_residuals(spark, residuals, footers, known):
    """A footer tells the columns of a path: its typed column, its own `value` and those above it (T2, T3, T8).

    The residual of a path without a typed column is read if the writer is known, or if an object is beside it and no residual
    is above it.
    """
    queries = (  # with the same columns, so that one query can ask them all
        "select {2} q, id, v:{0} c, null s, null n from {1}",
        "select {2} q, id, null c, v:{0}::string s, try_variant_get(v, '$.{0}', 'int') n from {1}",
        "select {2} q, 0 id, null c, null s, null n from {1} where v:{0}::string < 'y'",
    )
    everywhere = "select {2} q, id, null c, concat(v is null, v is not null) s, v:z::int n from {1}"
    several = "v:z::int is null and v:a::string < 'y'"
    several = f"select {{2}} q, id, null c, concat_ws(' ', v:z::string, v:a::string) s, v:o.z::int n from {{1}} where {several}"
    branches: list[str] = []
    expected: list[int | None] = []
    for number, (case, (_, always, more)) in enumerate(RESIDUALS.items()):
        if not more and known not in share((True, False), 2, number % 2):
            continue  # in `make test` these cases, in which the writer does not matter, have one
        view, proven = residuals(case, known), always | more if known else always
        keys = ("a", "o.b", "o.z", "z", "a.z")
        asked = [
            pair
            for at, key in enumerate(keys)
            for pair in share([(key, query) for query in queries], 3, (number + at + known) % 3)
        ]
        for key, query in [*asked, *share([("z", everywhere), ("", several)], 2, int(known))]:
            branches.append(query.format(key, view, len(branches)))
            expected.append(int(key in proven) if key else None)
        if "z" in always:
            join = f"select a.id, b.id from {view} a left join range(9) b on a.v:z::bigint = b.id"
            plan = spark.sql(join)._jdf.queryExecution().sparkPlan()
            assert "NestedLoop" not in plan.toString(), case
    assert isinstance(both(spark, " union all ".join(branches), typed=expected), list)


@pytest.mark.spark
def test_footers_of_other_writers(spark, tmp_path, footers):
    """Footers prove paths in files that delta-spark has inserted, and in files of this package that it has rewritten (T2)."""
    table = f"delta.`{made(spark, tmp_path / 't', [[event(n) for n in range(40)]] * 2, EVENTS)}`"
    with deltas_own_files(spark):
        spark.sql(f"insert into {table} select id + 1000, v from {table} where id < 30")
        spark.sql(f"delete from {table} where id = 45")
    queries = [
        f"select sum(v:n::int), max(v:s::string) from {table}",
        f"select id, v:o.x, v:o.d::double, v:kind from {table} where v:n::int > 9",
    ]
    assert [scan.files_typed for [scan] in together(spark, queries)] == [3, 3]
    with deltas_own_files(spark):
        spark.sql(f"optimize {table}")
    assert [scan.files_typed for [scan] in together(spark, queries)] == [1, 1]


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["name", "id"])
def test_footers_of_mapped_columns(spark, tmp_path, footers, mode):
    """Footers prove paths of columns mapped by name, in structs and after a rename too, and none of columns mapped by id."""
    path = tmp_path / "t"
    properties = {"delta.enableVariantShredding": "true", "delta.columnMapping.mode": mode}
    json_text = '\'{"a": \' || id || \', "b": {"c": "x\' || id || \'"}}\''
    source = spark.range(0, 20, 1, 1).selectExpr("id", f"named_struct('w', parse_json({json_text})) s")
    with deltas_own_files(spark):
        source.write.format("delta").options(**properties).save(str(path))
    both(spark, f"select id, s.w:a::int, s.w:b.c::string from delta.`{path}`", typed=mode == "name")
    spark.sql(f"alter table delta.`{path}` rename column s to t")
    both(spark, f"select id, t.w:a::int, t.w:b.c::string from delta.`{path}`", typed=mode == "name")


@pytest.mark.spark
def test_paths_beyond_the_bounds(spark, tmp_path, footers):
    """In a file with the marker and more paths than have bounds, the footer proves the others (T2)."""
    rows = [{f"k{n:02d}": n for n in range(60)}] * 3
    table = made(spark, tmp_path / "t", [rows], pa.struct([(key, pa.int16()) for key in rows[0]]))
    both(spark, f"select {', '.join(f'v:{key}::int' for key in rows[0])} from delta.`{table}`", typed=1)


@pytest.mark.spark
def test_the_planner_expects_the_size_of_ordinary_columns(spark, tmp_path, footers):
    """Spark estimates the same share of the files' size for a path as for an ordinary column, and chooses joins by that."""
    event = "named_struct('a', id, 'o', named_struct('b', id, 'c', string(id)), 'd', cast(id as decimal(20,2)))"
    plain = tmp_path / "columns"
    spark.range(100).selectExpr(f"{event} e").selectExpr("e.a", "e.o.*", "e.d").coalesce(1).write.format("delta").save(
        str(plain)
    )
    path = tmp_path / "t"
    shape = "a bigint, o struct<b bigint, c string>, d decimal(20,2)"
    dv.write(spark.range(100).selectExpr(f"to_variant_object({event}) v").coalesce(1), path, shred={"v": shape})
    for paths, columns in (
        ("v:a::bigint", "a"),
        ("v:o.c::string, v:d::decimal(20,2)", "c, d"),
        ("v:a::bigint, v:o.b::bigint", "a, b"),
    ):
        expected = expected_share(spark.sql(prepared(spark, f"select {columns} from delta.`{plain}`")), plain)
        found = expected_share(spark.sql(prepared(spark, f"select {paths} from delta.`{path}`")), path)
        assert found == pytest.approx(expected, rel=0.02)
    copy = Path(unmarked(spark, path))
    assert expected_share(spark.sql(f"select v:o.c::string from delta.`{copy}`"), copy) < 0.5


def expected_share(df: Any, table: Path) -> float:
    """The size that Spark estimates for a query, as a share of the table's files."""
    expected = int(str(df._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    return expected / sum(file.stat().st_size for file in table.glob("*.parquet"))


# ---- arrays ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def arrays(spark, tmp_path_factory) -> str:
    """A file with an array for each type. Rows have zero to three elements, some of them NULL, or no arrays."""
    path = tmp_path_factory.mktemp("arrays") / "t"
    longest = max(len(some) for _, some in VALUES.values())
    rows: list[Any] = [
        {key: [some[(row + at) % len(some)] for at in range(row % 4)] for key, (_, some) in VALUES.items()}
        for row in range(longest + 1)
    ]
    rows += [{key: [None, some[0]] for key, (_, some) in VALUES.items()}, dict.fromkeys(VALUES), {}, "SQL NULL"]
    return made(spark, path, [rows], pa.struct([(key, pa.list_(kind)) for key, (kind, _) in VALUES.items()]))


@pytest.mark.spark
@pytest.mark.parametrize("key", VALUES)
def test_arrays_of_every_type(spark, arrays, footers, key):
    """From an array of any type, an element, a missing one, and all of them as an array are what Spark's scan gives (T6)."""
    gets = [
        f"cast(try_variant_get(v, '$.{key}{step}', '{form.format(asked)}') as string)"
        for asked in asked_of(key)
        if asked != "variant"
        for step, form in (("[1]", "{}"), ("[3]", "{}"), ("", "{}"), ("", "array<{}>"))
    ]
    both(spark, f"select id, v:{key}[0], {', '.join(gets)} from delta.`{arrays}`", typed=1)
    for get in (f"v:{key}", f"v:{key}::array<variant>"):  # a JSON null in an array is not NULL
        both(spark, f"select {get} from delta.`{arrays}`", typed=0)


@pytest.mark.spark
def test_errors_in_arrays_are_those_of_sparks_scan(spark, arrays, footers):
    """A cast that fails for an element fails for an array of it too, and not for rows that a filter excludes (T5, T6)."""
    spark.sparkContext.setLogLevel("OFF")
    for asked in ("int", "date", "decimal(5,1)"):
        for get in (f"v:string[1]::{asked}", f"v:string::array<{asked}>", f"v:int[0]::array<{asked}>"):
            query = f"select {get} from delta.`{arrays}` where "
            assert "INVALID_VARIANT_CAST" in both(spark, query + "id < 100", typed=1)
            empty = both(spark, query + "v:int[0]::int is null and id < 9", typed=1)
            assert len(empty) == 3
            assert isinstance(empty, list)
    spark.sparkContext.setLogLevel("ERROR")


OF_ARRAYS = {  # paths, and the types asked for
    **dict.fromkeys(("t[0]", "t[0].x", "t.x", "m[0][1]", "o[0].x", "o[0].t[0]", "o[0].z", "z[0]"), "string"),
    **dict.fromkeys(("t", "m[2]", "o[0].t"), "array<string>"),
    "m": "array<array<int>>",
}
ELEMENTS = {  # rows; the paths whose columns are known; other paths, if the writer is known
    "all typed": (
        [{"t": ["a", None], "m": [[1, 2], [], [3]], "o": [{"x": 1, "t": ["b"]}, {"x": 2}]}, {"t": [], "o": []}, {"t": None}],
        {*OF_ARRAYS},
        set(),
    ),
    "another type": (
        [{"t": ["a", 5], "o": [{"x": "1", "t": [5]}], "m": [[1], 5]}],
        OF_ARRAYS.keys() - {"t", "t[0].x", "m", "o[0].t"},
        {"t[0].x"},
    ),
    "no array": (
        [{"t": "a", "m": [5], "o": {"x": 1}}, {"t": ["a"], "m": 5}],
        OF_ARRAYS.keys() - {"t[0].x", "t.x", "o[0].z", "m"},
        {"t[0].x", "t.x", "o[0].z"},
    ),
    "another field": ([{"t": ["a"], "o": [{"x": 1, "z": 2}]}], {*OF_ARRAYS}, set()),
    "no object above": (
        [{"t": ["a"]}, ["b"], 5],
        OF_ARRAYS.keys() - {"t[0].x", "t.x", "o[0].z"},
        {"t[0].x", "t.x", "o[0].z"},
    ),
}


@pytest.fixture(scope="module")
def elements(spark, tmp_path_factory) -> Callable[[str, bool], str]:
    """A view of the file of a case of ELEMENTS."""
    inner = pa.struct([("x", pa.int32()), ("t", pa.list_(pa.string()))])
    shape = pa.struct([("t", pa.list_(pa.string())), ("m", pa.list_(pa.list_(pa.int8()))), ("o", pa.list_(inner))])
    path = tmp_path_factory.mktemp("elements") / "t"
    return cases(spark, path, {case: rows for case, (rows, _, _) in ELEMENTS.items()}, shape)


@pytest.mark.spark
@pytest.mark.parametrize("known", [True, False], ids=["known writer", "any writer"])
def test_what_footers_prove_of_arrays(spark, elements, footers, known):
    """A footer tells the columns of a path through arrays: the typed column and all `value` columns on the way, those of the
    elements included. Other paths are in the residual of a list or a primitive only if the writer is known (T3, T6, T8)."""
    branches: list[str] = []
    expected: list[int | None] = []
    for case, (_, always, more) in ELEMENTS.items():
        for path, asked in OF_ARRAYS.items():
            get = f"cast(try_variant_get(v, '$.{path}', '{asked}') as string)"
            branches.append(f"select {len(branches)} q, id, {get} from {elements(case, known)}")
            expected.append(int(path in (always | more if known else always)))
    assert isinstance(both(spark, " union all ".join(branches), typed=expected), list)


@pytest.mark.spark
def test_arrays_of_other_writers(spark, tmp_path, footers):
    """Arrays that delta-spark shredded are read from typed columns, those at the root and of mapped columns too. Lists in the
    form of old Hive versions are left to Spark's scan (T6)."""
    queries = [
        "select id, v:t[1]::string, v:o[0].x::bigint, v:t::array<string> from {}",
        "select explode(v:m[1]::array<int>), v:m::array<array<int>> from {} where array_contains(v:t::array<string>, 'a7')",
        "select id, variant_get(w, '$[2]', 'int'), w::array<int> from {}",
        "select id, e.value::int, f.value:x::bigint from {}, lateral variant_explode(w) e, lateral variant_explode(v:o) f",
    ]
    columns = 'parse_json(\'{"t": ["a\' || id || \'", "b"], "m": [[1], [\' || id || \', 2]], "o": [{"x": 1}]}\') v'
    source = spark.range(0, 20, 1, 1).selectExpr("id", columns, "parse_json('[1, 2, ' || id || ']') w")
    for mode, legacy in (("none", False), ("name", False), ("none", True)):
        table = tmp_path / f"{mode}-{legacy}"
        properties = {"delta.enableVariantShredding": "true", "delta.columnMapping.mode": mode}
        with deltas_own_files(spark), jvm.settings(spark, {"spark.sql.parquet.writeLegacyFormat": str(legacy).lower()}):
            source.write.format("delta").options(**properties).save(str(table))
        found = together(spark, (query.format(f"delta.`{table}`") for query in queries))
        assert [scan.files_typed for [scan] in found] == [int(not legacy)] * len(queries)


@pytest.mark.spark
def test_elements_that_may_not_be_null(spark, arrays, footers):
    """An array can be asked for with a type that excludes NULL elements, which no SQL text can name."""
    asked, found = ArrayType(LongType(), containsNull=False), []
    for typed in ("false", "true"):
        spark.conf.set(TYPED, typed)
        table = spark.table(viewed(spark, f"select id, v from delta.`{arrays}` where id < 8"))
        df = table.select(F.expr("v:bigint").try_cast(asked))
        assert sum(scan.files_typed for scan in scans(df)) == (typed == "true")
        found.append(outcome(df))
    assert found[0] == found[1]
    assert len(found[0]) == 8
    assert isinstance(found[0], list)


# ---- exploded arrays -------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_exploded_arrays_of_every_type(spark, arrays, footers):
    """`variant_explode` and `variant_explode_outer` give the elements of arrays of any type that Spark's scan gives (T7)."""
    queries = []
    for number, key in enumerate(share(VALUES, 2)):
        gets = [f"cast(try_variant_get(value, '$', '{asked}') as string)" for asked in asked_of(key) if asked != "variant"]
        explode = f"variant_explode{'_outer' * (number % 2)}"
        queries.append(f"select id, pos, key, array({', '.join(gets)}) c from delta.`{arrays}`, lateral {explode}(v:{key})")
    assert [scan.files_typed for [scan] in together(spark, queries)] == [1] * len(queries)


OF_EXPLODED = {  # an array and a path of its elements, or no path; the type asked for
    ("t", "$"): "string",
    ("t", None): "",
    ("m", "$[1]"): "int",
    ("m", None): "",
    ("o", "$.x"): "int",
    ("o", "$.t"): "array<string>",
    ("o", "$.z"): "int",
    ("o", None): "",
    ("z", "$"): "string",
}
EXPLODED = {  # cases of ELEMENTS: what is known in files of any writer, and in those of a known one
    "all typed": ({*OF_EXPLODED}, set()),
    "another type": (OF_EXPLODED.keys() - {("o", "$.t")}, set()),
    "no array": ({("z", "$")}, set()),
    "another field": ({*OF_EXPLODED}, set()),
    "no object above": (set(), OF_EXPLODED.keys() - {("z", "$")}),
}


@pytest.mark.spark
@pytest.mark.parametrize("known", [True, False], ids=["known writer", "any writer"])
def test_what_footers_prove_of_exploded_arrays(spark, elements, footers, known):
    """An array is exploded from its typed column if no row has another value there: an object gives rows for its fields. Its
    elements may have any types if only their number is asked for, and residuals elsewhere (T7, T8)."""
    branches: list[str] = []
    expected: list[int | None] = []
    for case, (always, more) in EXPLODED.items():
        for (array, path), asked in OF_EXPLODED.items():
            get = f"cast(try_variant_get(value, '{path}', '{asked}') as string)" if path else "null"
            exploded = f"{elements(case, known)}, lateral variant_explode(v:{array})"
            branches.append(f"select {len(branches)} q, id, pos, key, {get} from {exploded}")
            expected.append(int((array, path) in (always | more if known else always)))
    assert isinstance(both(spark, " union all ".join(branches), typed=expected), list)


BASKET = pa.struct([("n", pa.int64()), ("s", pa.string()), ("t", pa.list_(pa.string()))])
BASKETS = pa.struct([("n", pa.int64()), ("t", pa.list_(pa.string())), ("o", pa.list_(BASKET))])


def basket(n: int) -> Any:
    lines = [{"n": n + k, "s": k if (n + k) % 5 == 4 else f"word {k}", "t": ["a", f"b{n}"][: k % 3]} for k in range(n % 4)]
    return {"n": n, "t": ["x", None, f"y{n}"][: n % 4], "o": [*lines, None, {}] if n % 5 else None if n % 2 else []}


@pytest.fixture(scope="module")
def baskets(spark, tmp_path_factory) -> Iterator[str]:
    """Files with deleted rows: two whose arrays have other types, one of delta-spark, one without arrays, and one that is not
    shredded."""
    path = tmp_path_factory.mktemp("exploded") / "t"
    made(spark, path, [[basket(n) for n in range(30)]], BASKETS, **{"delta.enableDeletionVectors": "true"})
    narrow = pa.struct([("n", pa.int16()), ("o", pa.list_(pa.struct([("n", pa.int16()), ("s", pa.string())])))])
    rows = spark.read.format("delta").load(str(path)).coalesce(1)
    dv.write(rows.selectExpr("id + 100 id", "v").where("v:o[0].t is null"), path, shred={"v": narrow})
    with deltas_own_files(spark):
        spark.sql(f"insert into delta.`{path}` select id + 200, v from delta.`{path}` where id < 30 and id > 20")
    dv.write(spark.sql("select 300L id, parse_json('{\"n\": 5}') v"), path, shred={"v": pa.struct([("n", pa.int8())])})
    dv.write(rows.selectExpr("id + 400 id", "v"), path, shred=False)
    spark.sql(f"delete from delta.`{path}` where id % 10 = 3")
    dv.enable(spark)
    yield str(path)
    dv.disable(spark)


OF_BASKETS = [
    "select id, pos, key, value:s::string from {}, lateral variant_explode(v:o)",
    "select id, pos, key, value:n::double from {}, lateral variant_explode_outer(v:o) where value is null or value:n::int > 9",
    "select e.value:s::string k, count(*), sum(e.value:n::double) from {}, lateral variant_explode(v:o) e group by 1",
    "select id, f.pos, f.value::string from {}, lateral variant_explode(v:o) e, lateral variant_explode_outer(e.value:t) f",
    "select count(*), max(pos) from {}, lateral variant_explode(v:o)",
    "select count(*) n, max(pos), max(v:o[1].s::string) from {}, lateral variant_explode_outer(v:o)",
    "select id, a.value:n::int, b.value::string from {}, lateral variant_explode(v:o) a, lateral variant_explode(v:t) b",
    "select id, a.value:n::int, b.value:s::string from {}, lateral variant_explode(v:o) a, lateral variant_explode(v:o) b",
    "select id, e.value:missing::int, e.value:s::string from (select id, v w from {}), lateral variant_explode(w:o) e",
    "select x from (select value:s::string x from {}, lateral variant_explode(v:o) limit 1000) where x like 'w%'",
    "select id, row_number() over (partition by value:s::string order by id, pos) from {}, lateral variant_explode(v:o)",
    "select x:s::string, x is null from {} left join (select value x from {}, lateral variant_explode(v:o)) on x:n::int = id",
    "select id, pos, value::struct<n int, s string> from {}, lateral variant_explode(v:o)",
    "select id, pos, v:n::int from {}, lateral variant_explode_outer(v:n)",
    "select id, pos, v:n::int from {}, lateral variant_explode(v:n)",
]
LEFT_OF_BASKETS = [
    "select value from {}, lateral variant_explode(v:o)",
    "select id, key, value::string from {}, lateral variant_explode(v)",
]


@pytest.mark.spark
@pytest.mark.slow
def test_wherever_an_array_is_exploded(spark, baskets, footers):
    """Elements, elements of elements, and their number are those of Spark's scan, wherever a query uses them, if some files of
    the table are read from typed columns (T7)."""
    queries = [query.replace("{}", f"delta.`{baskets}`") for query in share(OF_BASKETS, 2)]
    for query, scanned in zip(queries, together(spark, queries), strict=True):
        assert sum(scan.files_typed for scan in scanned) in SOME, query


@pytest.mark.spark
def test_exploded_rows_lack_what_is_not_used(spark, baskets, footers):
    """In every group of files, the rows of an array do not repeat the columns that only the array is read from (T7)."""
    query = spark.sql(f"select id, value:s::string from delta.`{baskets}`, lateral variant_explode(v:o)")
    plan = query._jdf.queryExecution().optimizedPlan().toString()
    exploding = [line for line in plan.splitlines() if "Generate posexplode" in line]
    assert len(exploding) > 1
    assert all(re.search(r"\), \[\d+\], ", line) for line in exploding)  # the numbers of the columns that are dropped


@pytest.mark.spark
def test_what_is_left_to_sparks_scan_of_exploded_arrays(spark, baskets, footers):
    """Whole elements and the fields of objects are left to Spark's scan (T4, T7)."""
    queries = [query.replace("{}", f"delta.`{baskets}`") for query in LEFT_OF_BASKETS]
    for query, [scan] in zip(queries, together(spark, queries), strict=True):
        assert scan.files_typed == 0, query


@pytest.mark.spark
def test_errors_in_exploded_arrays_are_those_of_sparks_scan(spark, baskets, footers):
    """A cast of an element fails as by Spark's scan, and not for elements and rows that a filter excludes (T5, T7)."""
    spark.sparkContext.setLogLevel("OFF")
    query = f"select value:s::int from delta.`{baskets}`, lateral variant_explode(v:o) where "
    assert "INVALID_VARIANT_CAST" in both(spark, query + "id < 200", typed=SOME)
    for filtered in ("id < 100 and v:n::int < 1", "pos > 5", "value:n::int < 0"):
        assert isinstance(both(spark, query + filtered, typed=SOME), list)
    spark.sparkContext.setLogLevel("ERROR")


# ---- values of other types -------------------------------------------------------------------------------------------

MISFITS: list[Any] = [None, "text", "5", 7, Decimal("-0.5"), 1e300, True, dt.date(2024, 2, 29), {"x": 1, "y": [None]}, [1, "2"]]


@pytest.fixture(scope="module")
def misfits(spark, tmp_path_factory) -> str:
    """A file with a key for each type, and an array of it at `of_` and the key. Every second value, and the last element of
    every second array, are of another type."""
    rows: list[Any] = []
    for row in range(2 * len(MISFITS)):
        scalars = {
            key: MISFITS[(row // 2 + at) % len(MISFITS)] if row % 2 else some[row // 2 % len(some)]
            for at, (key, (_, some)) in enumerate(VALUES.items())
        }
        arrays = {
            f"of_{key}": MISFITS[row // 4] if row % 4 == 3 else [some[0], scalars[key], some[-1]][: row % 5]
            for key, (_, some) in VALUES.items()
        }
        rows.append(scalars | arrays)
    fields = [field for key, (kind, _) in VALUES.items() for field in ((key, kind), (f"of_{key}", pa.list_(kind)))]
    return made(spark, tmp_path_factory.mktemp("misfits") / "t", [[*rows, "SQL NULL"]], pa.struct(fields))


@pytest.mark.spark
@pytest.mark.parametrize(
    "keys", [list(VALUES)[at : at + AT_ONCE // 2] for at in range(0, len(VALUES), AT_ONCE // 2)], ids="-".join
)
def test_values_of_other_types(spark, misfits, footers, keys):
    """Values that do not fit into the typed column of their path are read from the residual beside it, as any type (T8)."""
    pairs = [(key, asked) for key in keys for asked in asked_of(key)]
    gets = [text(f"try_variant_get(v, '$.{key}', '{asked}')", asked) for key, asked in pairs]
    gets += [text(f"try_variant_get(v, '$.of_{key}[1]', '{asked}')", asked) for key, asked in pairs]
    gets += [f"v:of_{key}[1].x::string" for key in keys]
    both(spark, f"select id, {', '.join(gets)} from delta.`{misfits}`", typed=1)


@pytest.mark.spark
def test_errors_of_residuals_are_those_of_sparks_scan(spark, misfits, footers):
    """A cast of a value in a residual fails as by Spark's scan, and not for rows that a filter excludes (T8)."""
    spark.sparkContext.setLogLevel("OFF")
    for get in ("v:int::int", "v:of_int[0]::array<int>", "v:of_int[1]::date"):
        query = f"select id, {get} from delta.`{misfits}` where "
        assert "INVALID_VARIANT_CAST" in both(spark, query + "id >= 0", typed=1)
        assert isinstance(both(spark, query + "v:boolean::string = 'true' and id < 1", typed=1), list)
    spark.sparkContext.setLogLevel("ERROR")


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["none", "name"])
def test_keys_in_residuals(spark, tmp_path, footers, mode):
    """Keys without a typed column are read from the residual of their object, whatever characters they have (T8)."""
    keys = ["plain", "k.d", "it's", 'a "b"', "it's\"", "what?", "[0]", " x ", "é", "value", "`", "\\", "$", "", "KNOWN", "*"]
    rows = [{"o": {"known": row} | {key: [n, {key: row}] for n, key in enumerate(keys)}} for row in range(3)]
    shape = pa.struct([("o", pa.struct([("known", pa.int32())]))])
    path = made(spark, tmp_path / "t", [rows], shape, **{"delta.columnMapping.mode": mode})
    steps = [f".{key}" if "'" in key and '"' in key else f"['{key}']" if '"' in key else f'["{key}"]' for key in keys]
    steps = [step.replace("\\", "\\\\").replace("'", "\\'") for step in steps]
    gets = [f"variant_get(v, '$.o{step}[0]', 'int') + variant_get(v, '$.o{step}[1]{step}', 'int')" for step in steps]
    found = both(spark, f"select array(v:o.known::int, {', '.join(gets)}) x from delta.`{path}`", typed=1)
    assert found == [f"Row(x={[row, *(n + row for n in range(len(keys)))]})" for row in range(3)]


def odd_event(n: int) -> Any:
    odd = {"n": n + Decimal("0.5"), "s": n, "o": n} if n % 4 == 3 else {"kind": 5, "o": [n]} if n % 4 == 2 else {}
    return event(n) | odd


@pytest.mark.spark
@pytest.mark.slow
def test_wherever_a_value_of_another_type_is_used(spark, tmp_path, footers):
    """Wherever a query uses a path, values in residuals are those of Spark's scan (T8)."""
    path = made(spark, tmp_path / "t", [[odd_event(n) for n in range(start, start + 40)] for start in (0, 40)], EVENTS)
    spark.sparkContext.setLogLevel("OFF")
    queries = [query.replace("{}", f"delta.`{path}`") for query in share([*QUERIES, *EXCLUDED], 2, 1)]
    found = together(spark, queries)
    spark.sparkContext.setLogLevel("ERROR")
    for query, scanned in zip(queries, found, strict=True):
        assert "to_json" in query or sum(scan.files_typed for scan in scanned) in SOME, query


# ---- plans -----------------------------------------------------------------------------------------------------------

NESTED = pa.struct([("x", pa.int32()), ("d", pa.decimal128(18, 2))])
EVENTS = pa.struct([("n", pa.int64()), ("s", pa.string()), ("kind", pa.string()), ("o", NESTED)])


def event(n: int) -> Any:
    document = {"n": n, "s": str(n) if n % 2 else f"word {n}", "kind": "number" if n % 2 else "word"}
    return document | {"o": {"x": n % 7, "d": Decimal(n).scaleb(-2)}} if n % 5 else document


@pytest.fixture(scope="module")
def typed(spark, tmp_path_factory) -> Iterator[str]:
    """Two files in which every path is proven."""
    files = [[event(n) for n in range(start, start + 40)] for start in (0, 40)]
    path = made(spark, tmp_path_factory.mktemp("plans") / "typed", files, EVENTS)
    dv.enable(spark)
    yield path
    dv.disable(spark)


@pytest.fixture(scope="module")
def mixed(spark, tmp_path_factory) -> Iterator[str]:
    """Five files with deleted rows: two can be read from typed columns, in the others types differ or nothing is proven."""
    narrow = pa.struct([("n", pa.int16()), ("s", pa.string()), ("kind", pa.string()), ("o", NESTED)])
    path = tmp_path_factory.mktemp("plans") / "mixed"
    made(spark, path, [[event(n) for n in range(40)]], EVENTS, **{"delta.enableDeletionVectors": "true"})
    dv.write(spark.read.format("delta").load(str(path)).selectExpr("id + 100 id", "v").coalesce(1), path, shred={"v": narrow})
    odd = 'select 200, parse_json(\'{"n": 1.5, "s": 7, "kind": "number", "o": 5}\') union all select 201, null'
    for rows in (odd, f"select id + 300, v from delta.`{path}` where id < 20"):
        with deltas_own_files(spark):
            spark.sql(f"insert into delta.`{path}` {rows}")
    dv.write(spark.sql(f"select id + 400 id, v from delta.`{path}` where id < 20"), path, shred=False)
    spark.sql(f"delete from delta.`{path}` where id % 10 = 3")
    dv.enable(spark)
    yield str(path)
    dv.disable(spark)


@pytest.fixture(scope="module")
def partly(spark, typed, tmp_path_factory) -> str:
    """The two files of `typed`, one file written by delta-spark, and one whose row with the largest number is deleted."""
    path = tmp_path_factory.mktemp("plans") / "partly"
    files = [[event(n) for n in range(start, start + 40)] for start in (0, 40, 80)]
    made(spark, path, files, EVENTS, **{"delta.enableDeletionVectors": "true"})
    spark.sql(f"delete from delta.`{path}` where id = 119")
    with deltas_own_files(spark):
        spark.sql(f"insert into delta.`{path}` select id - 20, v from delta.`{path}` where id between 100 and 104")
    return str(path)


QUERIES = [
    "select id, v:n, v:s::string, v:o.x::int from {}",
    "select sum(v:n::int), max(v:o.d::decimal(18,2)), count(distinct v:s::string) from {}",
    "select v:kind::string k, count(*), sum(v:n::double) from {} where v:n::double > 7 group by 1",
    "select v:kind::string k, count(*) filter (where v:o.x::double > 3) from {} group by v:kind::string having count(*) > 1",
    "select id from {} order by v:s::string, id limit 9",
    "select id, row_number() over (partition by v:kind::string order by v:n::double, id) from {}",
    "select a.id, b.id from {} a join {} b on a.v:n::double = b.v:o.x::double",
    "select a.id, b.v:s::string, b.v is null, b.v is not null from {} a left join {} b on a.id = b.id - 5",
    "select id from {} where v:n::double in (select v:o.x::double from {} where v:kind::string = 'word')",
    "select id from {} t where exists (select 1 from {} u where u.v:n::double = t.id and u.v:kind::string = 'number')",
    "select id, (select max(u.v:n::double) from {} u) m from {} t where t.v:n::double > (select min(v:n::double) from {}) + 30",
    "with c as (select id, v:n::double n, v from {}) select c.n, d.n, c.v:s::string from c join c d on c.id = d.id + 1",
    "select id, v:n::double x from {} union all select id, v:o.x::double from {}",
    "select id, e from {} lateral view explode(array(v:n::double, v:o.x::double)) as e",
    "select case when v:kind::string = 'number' then v:s::double end from {}",
    "select coalesce(v:missing::string, v:s::string) from {}",
    "select id, v:n::double, _metadata.file_name is null, _metadata.file_size > 0 from {}",
    "select typeof(v:n), schema_of_variant(v:n), to_json(v:o.x), is_variant_null(v:n) from {}",
    "select distinct v:o.x::string from {} where v is not null and v:s::string like 'w%'",
    "select count(*) from (select v:n::double n from {} limit 1000) where n > 3",
    "select w:n::double from (select id, v w from {} where id > 5) where w:kind::string = 'word'",
    "select id from {} where v:o.x::bigint > 2 and v:n::int < 30",
    "select try_variant_get(v, '$.s', 'int'), try_cast(v:s as int), try_cast(v:s as binary) from {}",
    "select first(v:n::double) over (order by id rows between 1 preceding and current row) from {}",
    "select v:kind::string, id % 2, sum(v:n::double), max(v:o.x::double) from {} group by cube(v:kind::string, id % 2)",
    "select count(distinct v:s::string), count(distinct v:o.x::double), sum(v:n::double) from {}",
]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "queries"),
    # In `make test` one table for each query.
    [("mixed", share(QUERIES, 2, 1)), ("typed", share(QUERIES, 2))],
    ids=["mixed", "typed"],
)
def test_wherever_the_use_stands(spark, request, table, queries):
    """Wherever a query uses a path, its rows are those of Spark's scan, and at least one file is read by typed columns (T4)."""
    path = request.getfixturevalue(table)
    found = together(spark, (query.replace("{}", f"delta.`{path}`") for query in queries))
    for query, scanned in zip(queries, found, strict=True):
        assert ":missing" in query or sum(scan.files_typed for scan in scanned) in SOME, query


LEFT = [
    "select v from {}",
    "select v:n::int, v from {}",
    "select to_json(v) from {}",
    "select v:o from {}",
    "select v:tags[0]::int from {}",
    "select v:missing::int from {}",
    "select id from {} where v is not null",
    "select cast(v as map<string, variant>) from {}",
    "select id from {}",
]


@pytest.mark.spark
def test_what_is_left_to_sparks_scan(spark, typed):
    """Objects, whole Variants and unproven paths are left to Spark's scan, and the plan has no typed column (T4)."""
    queries = [query.format(f"delta.`{typed}`") for query in LEFT]
    for query, [scan] in zip(queries, together(spark, queries), strict=True):
        assert scan.files_typed == 0, query
        assert "typed_value" not in spark.sql(prepared(spark, query))._jdf.queryExecution().optimizedPlan().toString()


DECIDED = {  # key of VALUES: the types asked for in which the log answers
    "tinyint": ["bigint", "double", "decimal(38,10)"],
    "smallint": ["bigint", "double", "decimal(38,10)"],
    "int": ["bigint", "double", "decimal(38,10)"],
    "bigint": ["bigint", "double", "decimal(38,10)"],
    "decimal4": ["decimal(9,2)", "bigint", "double"],
    "decimal8": ["decimal(18,4)", "bigint"],
    "decimal16": ["decimal(38,10)"],
    "short4": ["decimal(9,1)", "double"],
    "short8": ["decimal(18,3)"],
    "short16": ["decimal(38,3)"],
    "float": ["float", "double"],
    "double": ["double"],
    "boolean": ["boolean", "int"],
    "string": [],
    "date": ["date", "timestamp_ntz"],
    "timestamp": ["timestamp"],
    "timestamp_ntz": ["timestamp_ntz", "date"],
}


@pytest.mark.spark
@pytest.mark.parametrize("keys", [list(VALUES)[at : at + AT_ONCE] for at in range(0, len(VALUES), AT_ONCE)])
def test_extremes_of_every_type(spark, values, keys):
    """MIN and MAX are those of Spark's scan, and come from the log if the cast keeps the order and all values fit (Q7)."""
    decided = [(key, asked) for key in keys for asked in DECIDED[key]]
    others = [
        (key, asked) for key in keys for asked in share(ASKED[:-4], 4, list(VALUES).index(key) % 4) if asked not in DECIDED[key]
    ]
    for pairs, logged in ((decided, 1), (others, 0)):
        gets = [f"try_variant_get(v, '$.{key}', '{asked}')" for key, asked in pairs]
        query = f"select {', '.join(f'min({get}), max({get})' for get in gets)}, count(*) from delta.`{values}`"
        names = [f"c{n}" for n in range(2 * len(gets) + 1)]
        both(
            spark,
            f"select {', '.join(map('cast({} as string)'.format, names))} from ({query}) t({', '.join(names)})",
            logged=logged,
        )
    for key in keys:  # the log answers for all aggregates of a query or for none: the others of each key, which need not run
        gets = [f"try_variant_get(v, '$.{key}', '{asked}')" for other, asked in others if other == key]
        listed = ", ".join(f"min({get}), max({get})" for get in gets)
        [scan] = scans(spark.sql(prepared(spark, f"select {listed} from delta.`{values}`")))
        assert scan.files_from_log == 0, key


EXTREMES = {
    "select min(v:n::int), max(v:n::int), count(*) from {}": 1,
    "select max(v:o.d::decimal(18,2)) - min(v:o.d::decimal(18,2)) + 1 span, max(v:o.d::decimal(18,2)) from {}": 1,
    "select a.m, b.id from (select max(v:n::decimal(18,2)) m, count(1) c from {}) a join {} b on b.id < a.m - 70": 1,
    "select id from {} where id = (select min(v:n::bigint) + count(*) from {})": 1,
    "select max(n) from (select id, w:n::smallint n from (select id, v w from {}))": 1,
    "select min(v:o.x::int), min(v:n::tinyint) from {} having count(*) > 0": 1,
    "select min(v:n::int), max(try_variant_get(v, '$.n', 'int')), min(variant_get(v, '$[\"n\"]', 'int')) from {}": 1,
    "select id from {} where v:n::int > (select max(v:n::int) - 9 from {})": 1,
    "select max(v:n::int) from {} where id >= 0": 0,
    "select max(v:n::int) from {} group by id % 2": 0,
    "select max(v:n::int), sum(v:n::int) from {}": 0,
    "select max(v:n::int), count(v:n::int) from {}": 0,
    "select max(v:n::int) filter (where v:n::int < 5) from {}": 0,
    "select max(v:n::int), max(v:s::string) from {}": 0,
    "select max(v:n::int), max(v:missing::int) from {}": 0,
    "select max(v:n::int + 1), max(id) from {}": 0,
    "select max(n) from (select v:n::int n from {} limit 1000)": 0,
}


@pytest.mark.spark
def test_extremes_from_the_log(spark, typed, partly):
    """MIN, MAX and COUNT(*) of the files that the log decides come from it; the other files are read (Q7)."""
    for number, table in enumerate((typed, partly)):  # in `make test` one table for each query
        queries = share(EXTREMES, 2, number)
        found = together(spark, (query.replace("{}", f"delta.`{table}`") for query in queries))
        for query, scanned in zip(queries, found, strict=True):
            assert sum(scan.files_from_log for scan in scanned) == 2 * EXTREMES[query], query


@pytest.mark.spark
def test_extremes_of_files_that_lose_rows(spark, typed, tmp_path):
    """MIN and MAX read files with a deletion vector, whose bounds may be of deleted rows, and files with a zero bound (Q7)."""
    files = [[{"n": n, "x": float(n // 10)} for n in range(start, start + 10)] for start in (0, 10, 20)]
    shape = pa.struct([("n", pa.int64()), ("x", pa.float64())])
    path = made(spark, tmp_path / "t", files, shape, **{"delta.enableDeletionVectors": "true"})
    table = f"delta.`{path}`"
    for decided in ((3, 2), (1, 0)):
        asked = ("min(v:n::int), max(v:n::int), count(*)", "min(v:x::double), max(v:x::double)")
        found = together(spark, (f"select {extremes} from {table}" for extremes in asked))
        assert tuple(scan.files_from_log for [scan] in found) == decided
        if decided == (3, 2):
            spark.sql(f"delete from {table} where id in (10, 29)")


@pytest.mark.spark
def test_extremes_of_times_in_strings(spark, tmp_path):
    """MIN and MAX of strings that spell times come from the log, except those whose bounds are wider in some zones (Q7)."""
    files = [
        [
            {"z": f"2024-11-21T0{n}:00:00{'.5' * (n % 2)}{'+02:00' if n > 4 else 'Z'}", "l": f"2024-11-2{n}", "x": "2024"}
            for n in some
        ]
        for some in ((3, 1, 2), (7, 6, 5))
    ]
    table = f"delta.`{made(spark, tmp_path / 't', files)}`"
    cases = (
        ("min(v:z::timestamp), max(v:z::timestamp), min(v:z::timestamp_ntz), max(v:z::timestamp_ntz), count(*)", 2),
        ("max(v:z::date), min(try_variant_get(v, '$.l', 'date')), max(v:l::timestamp_ntz)", 2),
        ("max(v:l::timestamp)", 0),
        ("max(v:x::timestamp)", 0),
        ("min(v:z::string)", 0),
    )
    for number, zone in enumerate(("UTC", "America/St_Johns")):
        spark.conf.set("spark.sql.session.timeZone", zone)
        shared = share(cases, 2, number)
        found = together(spark, (f"select {asked} from {table}" for asked, _ in shared))
        assert [scan.files_from_log for [scan] in found] == [logged for _, logged in shared]
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.spark
def test_what_is_not_proven_goes_through_sparks_scan(spark, mixed):
    """`explain` counts the files that are read by typed columns, and says in how many files each path is proven."""
    [scan] = dv.explain(spark.sql(f"select sum(v:n::int), max(v:s::string) from delta.`{mixed}` where id <> 200")).scans
    assert (scan.files_after_bounds, scan.files_typed, scan.typed_paths) == (5, 2, ("v:n", "v:s"))
    assert scan.typed_reasons == tuple(f"v:{key}: a typed column is proven in 2 of 5 files" for key in "ns")


EXCLUDED = (
    "select sum(v:s::int) from {} where v:kind::string = 'number'",
    "select a.v:s::int from {} a join {} b on a.id = b.id and a.v:kind::string = 'number'",
    "select if(v:kind::string = 'number', v:s::int, -1) from {}",
    "select sum(if(v:kind::string = 'number', v:s::int, -1)) from {} t join (select 1 one) on t.id >= one",
    "select sum(v:s::int) filter (where v:kind::string = 'number') from {}",
    "select sum(v:s::int) from (select * from {} order by id limit 50) where v:kind::string = 'number'",
    "select id from {} order by id, v:s::int limit 3",
    "select count(first) from (select id % 2, first(v:s::int) first from {} where id % 2 = 1 group by 1)",
    # Spark's scan makes this cast below the filter if it is in the plan of the table, but not in that of `prepared`.
    "select id, variant_get(v, '$.s', 'int') from {} where v:kind::string = 'number'",
)


@pytest.mark.spark
def test_no_error_is_new(spark, typed, mixed):
    """No cast is made, and no error raised, for rows that a filter, a join or a condition of the query excludes."""
    spark.sparkContext.setLogLevel("OFF")
    # Delta cannot skip files by this predicate.
    tables = [f"(select * from delta.`{path}` where id % 1000 not between 200 and 299)" for path in (typed, mixed)]
    for number, push in enumerate(("true", "false")):
        spark.conf.set(PUSH, push)
        # In `make test` one table and one form of the plan for each query.
        together(
            spark,
            (query.replace("{}", table) for at, table in enumerate(tables) for query in share(EXCLUDED, 4, number + 2 * at)),
        )
        for table in share(tables, 2, number):
            assert "INVALID_VARIANT_CAST" in both(spark, f"select sum(v:s::int) from {table}")
    spark.conf.unset(PUSH)
    spark.sparkContext.setLogLevel("ERROR")


@pytest.mark.spark
def test_strings_with_a_collation(spark, mixed):
    """Such a cast stays above Spark's scan, which cannot read the type from a shredded VARIANT (T4)."""
    table, small = f"delta.`{mixed}`", "try_cast(b.v:s as string) < 'S2' collate UTF8_LCASE"
    joined = f"from {table} a left join {table} b on a.id = b.id - 5"
    queries = (f"select a.id, if(not ({small}), b.v:kind::string, 'x') {joined}", f"select count({small}) {joined}")
    assert {scan.files_typed for scanned in together(spark, queries) for scan in scanned} == {0}


@pytest.mark.spark
def test_partitions_decide(spark, typed, mixed):
    """TABLESAMPLE, whose rows depend on the partitions, is read by typed columns only if one scan reads all files."""
    sample = "select count(v:n::double) from delta.`{}` tablesample (50 percent) repeatable (42)"
    both(spark, sample.format(typed), typed=2)
    both(spark, sample.format(mixed), typed=0)


@pytest.mark.spark
def test_the_switch(spark, typed):
    """With the setting off, and in a session without the rules, a plan has no typed columns."""
    query = f"select sum(v:n::int) from delta.`{typed}`"
    plans = {}
    for name, setting in (("on", "true"), ("off", "false")):
        spark.conf.set(TYPED, setting)
        plans[name] = spark.sql(query)._jdf.queryExecution().optimizedPlan().toString()
    spark.conf.unset(TYPED)
    without = spark.newSession().sql(query)._jdf.queryExecution().optimizedPlan().toString()
    assert "typed_value" in plans["on"]
    assert "typed_value" not in plans["off"] + without
    assert len(plans["off"].splitlines()) == len(without.splitlines())


@pytest.mark.spark
def test_filters_reach_the_row_groups(spark, tmp_path):
    """A filter on a path reaches the row groups: a query on one large sorted file reads under a third of its rows."""
    path = str(tmp_path / "t")
    spark.sql(f"create table delta.`{path}` (v variant) using delta tblproperties ('delta.enableVariantShredding' = 'true')")
    event = "to_variant_object(named_struct('n', id, 's', concat('k', lpad(id, 7, '0')), 'pad', uuid())) v"
    with generated(spark):
        dv.write(spark.range(0, 1_200_000, 1, 1).selectExpr(event), path)
    dv.enable(spark)
    for asked in (
        "v:n::bigint = 15000",
        "v:n::int < 15",
        "15 > v:n::int",
        "v:n::bigint in (15000, 15001)",
        "v:s::string = 'k15000'",
    ):
        df = spark.sql(f"select count(*) from delta.`{path}` where {asked}")
        collected(df)
        assert read_rows(df) < 400_000, asked
    dv.disable(spark)


def read_rows(df: Any) -> int:
    """The number of rows that the scans of an executed query gave."""
    plan = df._jdf.queryExecution().executedPlan()
    if plan.nodeName() == "AdaptiveSparkPlan":
        plan = plan.executedPlan()

    def scans(node: Any) -> Iterator[Any]:
        children = [node.children().apply(at) for at in range(node.children().size())]
        children += [node.plan()] if node.nodeName().endswith("QueryStage") else []
        if node.nodeName().startswith("Scan"):
            yield node
        for child in children:
            yield from scans(child)

    return sum(scan.metrics().apply("numOutputRows").value() for scan in scans(plan))


# ---- structs ---------------------------------------------------------------------------------------------------------

OF_STRUCTS = {  # a path, and the type asked for
    "o.b": ("o", "struct<b string>"),
    "o.b, o.p.q": ("o", "struct<b int, p struct<q double, z int>>"),
    "o.p": ("o.p", "struct<q bigint>"),
    "o.b, o.z": ("o", "struct<z int, b string>"),
    "o.z": ("o", "struct<z int>"),
    "root": ("", "struct<o struct<b string>>"),
    "root, z": ("", "struct<z int, o struct<b string>>"),
    "a": ("a", "struct<b int>"),
    "z": ("z", "struct<b int, p struct<q double>>"),
    "b.map": ("o", "struct<b string, p map<string, int>>"),
}
LEFT_OF_STRUCTS = {"o.z", "b.map"}
STRUCTS = {  # rows; the structs whose columns are known only if the writer is
    "none": ([{"a": 1, "o": {"b": "x", "p": {"q": 1}}}, {"o": {}}, {}], set()),
    "another type": ([{"o": {"b": 5, "p": {"q": "1"}}}, {"o": {"b": "7", "p": 5}}, {"o": {"b": [1], "p": None}}], set()),
    "another field": (
        [{"o": {"b": "x", "z": 1, "p": {"z": 2}}, "z": {"b": 1, "p": {"q": "x"}}}, {"o": {"z": 7}, "z": 5}],
        {"o.b, o.z", "o.b, o.p.q"},
    ),
    "no object": (
        [{"a": {"b": 1}, "o": 5}, {"a": 1, "o": [{"b": 1}]}, {"o": None}, {"o": {"b": "x", "p": {"q": 1}}}, "SQL NULL", None],
        {"o.b, o.p.q"},
    ),
    "no object above": (
        [{"o": {"b": "x", "p": {"q": 1}}}, 5, [{"o": {"b": "y"}}], {"o": {"b": "z"}}],
        {"o.b, o.z", "o.b, o.p.q"},
    ),
}


@pytest.fixture(scope="module")
def structs(spark, tmp_path_factory) -> Callable[[str, bool], str]:
    """A view of the file of a case of STRUCTS."""
    inner = pa.struct([("b", pa.string()), ("p", pa.struct([("q", pa.int64())]))])
    path = tmp_path_factory.mktemp("structs") / "t"
    shape = pa.struct([("a", pa.int32()), ("o", inner)])
    return cases(spark, path, {case: rows for case, (rows, _) in STRUCTS.items()}, shape)


@pytest.mark.spark
@pytest.mark.parametrize("known", [True, False], ids=["known writer", "any writer"])
def test_what_footers_prove_of_structs(spark, structs, footers, known):
    """A struct is read from the columns of its fields if each of them is known, and at least one is a typed column (T9)."""
    branches: list[str] = []
    expected: list[int | None] = []
    for case, (_, if_known) in STRUCTS.items():
        for name, (path, asked) in OF_STRUCTS.items():
            get = f"try_variant_get(v, '${'.' * bool(path)}{path}', '{asked}')"
            branches.append(
                f"select {len(branches)} q, id, {get} is null n, cast({get} as string) s from {structs(case, known)}"
            )
            expected.append(int(name not in LEFT_OF_STRUCTS and (known or name not in if_known)))
    assert isinstance(both(spark, " union all ".join(branches), typed=expected), list)


@pytest.mark.spark
def test_structs_of_every_type(spark, misfits, footers):
    """The fields of structs have the values of Spark's scan, as any type, from typed columns and from residuals (T8, T9)."""
    gets, shown = [], []
    for number in range(max(len(asked_of(key)) for key in VALUES)):
        asked = {key: asked_of(key)[number % len(asked_of(key))] for key in VALUES}
        fields = ", ".join(f"{key} {kind}" for key, kind in asked.items())
        gets.append(f"try_variant_get(v, '$', 'struct<{fields}>') s{number}")
        shown += [f"s{number} is null", *(text(f"s{number}.{key}", kind) for key, kind in asked.items())]
    both(spark, f"select id, {', '.join(shown)} from (select id, {', '.join(gets)} from delta.`{misfits}`)", typed=1)


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["none", "name"])
def test_keys_of_structs(spark, tmp_path, footers, mode):
    """The fields of structs may have any names that a path can have. Others, two of one name, and fields with a comment are
    left to Spark (T9)."""
    keys = ["plain", "k.d", "it's", 'a "b"', "it's\"", "[0]", " x ", "é", "value", "\\", "$", "KNOWN", "*"]
    rows = [{"o": {"known": row} | {key: {key: row + n} for n, key in enumerate(keys)}} for row in range(3)]
    shape = pa.struct([("o", pa.struct([("known", pa.int32()), *((key, pa.struct([(key, pa.int64())])) for key in keys[:6])]))])
    path = made(spark, tmp_path / "t", [rows], shape, **{"delta.columnMapping.mode": mode})

    def asked(names: list[str]) -> str:
        fields = ", ".join(f"`{name}` struct<`{name}`: int>" for name in names)
        return f"struct<known int, {fields}>".replace("\\", "\\\\").replace("'", "\\'")

    get = f"select id, to_json(variant_get(v, '$.o', '{{}}')) from delta.`{path}`"
    assert len(both(spark, get.format(asked(keys)), typed=1)) == 3
    commented = asked(["plain"]).replace("known int", "known int comment \\'c\\'")
    for refused in (asked(["it's \".", "plain"]), asked(["plain", "plain"]), commented):
        assert len(both(spark, get.format(refused), typed=0)) == 3


OF_EVENTS = [
    "select id, try_variant_get(v, '$.o', 'struct<x int, d decimal(18,2)>') o, v:kind::string from {}",
    "select id, v::struct<n double, kind string, s string> from {} where v:kind::string in ('number', 'word')",
    "select o.x, count(*), max(o.d) from (select v:o::struct<x int, d double> o from {} where id <> 200) group by o.x",
    "select o, count(*) from (select try_variant_get(v, '$.o', 'struct<x int, d double>') o from {}) group by o",
    "select id from {} where try_variant_get(v, '$.o', 'struct<x int>').x > 3 and v::struct<kind string>.kind < 'o'",
    "select id from {} order by try_variant_get(v, '$.o', 'struct<d double, x int>') desc, id limit 20",
    "select v:kind::string, size(collect_list(v:o::struct<x int>)) from {} where id <> 200 group by 1",
    "select a.id, b.id, try_variant_get(b.v, '$.o', 'struct<x int>') from {} a left join {} b on a.id = b.id + 7",
    "select a.id from {} a join {} b on try_variant_get(a.v, '$.o', 'struct<x int>') = named_struct('x', b.v:n::int % 7)",
    "select id, row_number() over (partition by try_variant_get(v, '$.o', 'struct<x int>') order by id) from {}",
    "select id, v:o::struct<x int, d double> from {} where id <> 200 union all select id, null from {}",
    "select max(try_variant_get(v, '$.o', 'struct<x int, d double>')), min(v:o::struct<x int>) from {} where id <> 200",
    "select id, case when v:kind::string = 'word' then v:o::struct<d string> end from {} where id <> 200",
    "select id, try_variant_get(v, '$.o', 'struct<x int, y int>').y, try_variant_get(v, '$', 'struct<n int>').n from {}",
]


@pytest.mark.spark
@pytest.mark.slow
def test_wherever_a_struct_is_asked_for(spark, mixed, footers):
    """Wherever a query uses a struct, it is that of Spark's scan, if some files are read from typed columns (T9)."""
    queries = [query.replace("{}", f"delta.`{mixed}`") for query in OF_EVENTS]
    for query, scanned in zip(queries, together(spark, queries), strict=True):
        assert sum(scan.files_typed for scan in scanned) in SOME, query


@pytest.mark.spark
def test_errors_in_structs_are_those_of_sparks_scan(spark, mixed, footers):
    """A cast of a field, or of a value that is no object, fails as by Spark's scan, and not for rows that a filter or a join
    excludes (T9)."""
    spark.sparkContext.setLogLevel("OFF")
    for get, excluded in (("v:o::struct<x int>", "id <> 200"), ("v::struct<kind string, s int>", "v:kind::string = 'number'")):
        query = f"select id, {get} from delta.`{mixed}`"
        assert "INVALID_VARIANT_CAST" in both(spark, query, typed=SOME)
        assert isinstance(both(spark, f"{query} where {excluded}", typed=SOME), list)
    above = f"select a.id, b.v:o::struct<x int> from delta.`{mixed}` a join delta.`{mixed}` b on a.id = b.id and a.id < 5"
    assert isinstance(both(spark, above), list)
    spark.sparkContext.setLogLevel("ERROR")
