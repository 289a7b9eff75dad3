"""`dataset`: DuckDB, Polars and pyarrow find the rows that they find in a table in memory, and read no more than they need."""

from __future__ import annotations

import math
import pickle
import re
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import delta_variant as dv
from delta_variant import errors, stats
from delta_variant.queries import arrow_filters
from delta_variant.scanning import files as files_module
from tests.by_hand import FIELD, VARIANTS, by_hand, commit
from tests.strategies import column
from tests.support import SOAK, length, no_thread_is_left, opened_files, share
from tests.versions import needs_duckdb

F = pc.field
EXAMPLES = length("DELTA_VARIANT_EXAMPLES", 10, 300)
UTC = timezone.utc


VARIANT_IN_DUCKDB = int(duckdb.__version__.split(".")[0]) >= 2


@pytest.fixture(autouse=True)
def unregistered():
    """Other tests must not find the extension type registered."""
    yield
    with suppress(pa.ArrowKeyError):
        pa.unregister_extension_type("arrow.parquet.variant")


def structs(**fields: str) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"name": name, "type": kind, **FIELD} for name, kind in fields.items()]}


SCHEMA: dict[str, Any] = {
    "i": "long", "h": "byte", "x": "double", "r": "float", "m": "decimal(9,2)", "t": "string", "day": "date", "at": "timestamp",
    "local": "timestamp_ntz", "b": "boolean", "raw": "binary", "s": structs(y="integer", z="string"), "v": "variant",
}  # fmt: skip
ARROW: dict[str, pa.DataType] = {
    "i": pa.int64(), "h": pa.int8(), "x": pa.float64(), "r": pa.float32(), "m": pa.decimal128(9, 2), "t": pa.string(),
    "day": pa.date32(), "at": pa.timestamp("us", "UTC"), "local": pa.timestamp("us"), "b": pa.bool_(), "raw": pa.binary(),
    "s": pa.struct([("y", pa.int32()), ("z", pa.string())]),
}  # fmt: skip
COLUMNS = {
    **{name: name for name in SCHEMA},
    "a": "try_variant_get(v, '$.a', 'bigint')", "p q": "try_variant_get(v, '$.o.t', 'string')",
    "d": "try_variant_get(v, '$.d', 'double')", "s.y": "s.y", "vm": "try_variant_get(v, '$.m', 'decimal(9,2)')",
    "ts": "try_variant_get(v, '$.ts', 'timestamp')",
}  # fmt: skip
PLAIN = {**ARROW, "a": pa.int64(), "p q": pa.string(), "d": pa.float64(), "s.y": pa.int32(), "vm": pa.decimal128(9, 2),
         "ts": pa.timestamp("us", "UTC")}  # fmt: skip
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
TEXTS = ["", "a", "ab", "it's", 'q"\\n\n', "é\U0001f600", "\U0001f600", "\uffff", "12", "z"]
VALUES: dict[str, list[Any]] = {
    "i": [0, 1, -5, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)], "h": [0, 1, -128, 127],
    "x": [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 0.1, 2.0**53], "r": [0.0, -0.0, 1.5, math.nan, 0.10000000149011612],
    "m": [Decimal("0.00"), Decimal("1.10"), Decimal("-1.10"), Decimal("9999999.99")], "t": TEXTS,
    "day": [date(2024, 1, 1), date(1969, 12, 31), date(1, 1, 1), date(9999, 12, 31)],
    "at": [NOON, NOON + timedelta(microseconds=1), NOON + timedelta(milliseconds=1), NOON - timedelta(days=20000)],
    "b": [True, False], "raw": [b"", b"\0x", b"\xff"],
}  # fmt: skip
VALUES["local"] = [value.replace(tzinfo=None) for value in VALUES["at"]]
VALUES |= {"a": VALUES["i"], "p q": TEXTS, "d": VALUES["x"], "s.y": [0, 1, 7], "vm": VALUES["m"], "ts": VALUES["at"]}
NO_NAN = {name: [v for v in some if not (isinstance(v, float) and math.isnan(v))] for name, some in VALUES.items()}


def missing_or(some: list[Any]) -> st.SearchStrategy[Any]:
    """One of some values, or nothing: rows of Variants lack the key, columns have NULL."""
    return st.one_of(st.none(), st.sampled_from(some))


@st.composite
def files(draw: st.DrawFn, values: dict[str, list[Any]] = VALUES, most: int = 6) -> list[pa.Table]:
    """The rows of some files. Each has few different values, so that bounds rule some out."""
    tables = []
    for _ in range(draw(st.integers(1, 3))):
        size = draw(st.integers(1, most))
        some = {name: draw(st.lists(st.sampled_from(values[name]), min_size=1, max_size=2)) for name in values}

        def rows(name: str, size: int = size, some: dict[str, list[Any]] = some) -> list[Any]:
            return draw(st.lists(missing_or(some[name]), min_size=size, max_size=size))

        found: dict[str, Any] = {name: pa.array(rows(name), ARROW[name]) for name in ARROW if name != "s"}
        ys, zs, gone = rows("s.y"), rows("t"), draw(st.lists(st.booleans(), min_size=size, max_size=size))
        found["s"] = pa.array([None if no else {"y": y, "z": z} for y, z, no in zip(ys, zs, gone, strict=True)], ARROW["s"])
        keys = {"a": rows("a"), "d": rows("d"), "m": rows("vm"), "ts": rows("ts"), "o": [{"t": text} for text in rows("p q")]}
        odd = draw(st.lists(st.sampled_from([None, None, "text", [1], "SQL NULL"]), min_size=size, max_size=size))
        variants = [
            one if one is not None else {key: some[row] for key, some in keys.items() if some[row] is not None}
            for row, one in enumerate(odd)
        ]
        tables.append(pa.table({name: found[name] if name in found else column(variants) for name in SCHEMA}))
    return tables


def added(table: pa.Table, shape: str) -> tuple[pa.Table, dict[str, Any]]:
    """A file with the statistics that this package's writers give it, if `v` is shredded so."""
    at = table.schema.get_field_index("v")
    [batch] = table.set_column(at, "v", dv.shredding.shred(table["v"].combine_chunks(), shape)).combine_chunks().to_batches()
    leaves = stats.indexed_columns(batch.schema, [("v",)])
    found = stats.FileStats(batch.schema, variants=[("v",)], indexed=leaves)
    found.update(batch)
    return table, {"stats": found.json(), "tags": {stats.BOUNDS_TAG: stats.BOUNDS_TAG_VALUE, **found.tags()}}


def made(root: Path, tables: list[pa.Table]) -> Path:
    """A table of SCHEMA."""
    both = {"readerFeatures": ["variantType", "timestampNtz"], "writerFeatures": ["variantType", "timestampNtz"]}
    shape = "a bigint, d double, m decimal(9,2), ts timestamp, o struct<t: string>"
    return by_hand(root, SCHEMA, [added(table, shape) for table in tables], protocol={**VARIANTS, **both})


def listed(table: pa.Table) -> list[str]:
    """Rows, with NaN equal to NaN."""
    return [repr(row) for row in table.to_pylist()]


# ---- filters of pyarrow ----------------------------------------------------------------------------------------------


@st.composite
def literals(draw: st.DrawFn, name: str) -> pa.Scalar:
    """A literal for a column, mostly of its type."""
    kind, value = PLAIN[name], draw(st.sampled_from(VALUES[name]))
    others: list[pa.DataType] = {
        "i": [pa.int8(), pa.uint64(), pa.float64(), pa.decimal128(20, 1)], "x": [pa.float32(), pa.int64()],
        "r": [pa.float64(), pa.int16()], "m": [pa.decimal128(12, 4), pa.float64(), pa.int8()], "t": [pa.large_string()],
        "at": [pa.timestamp(unit, "UTC") for unit in ("s", "ms", "ns")], "day": [pa.timestamp("us")],
        "local": [pa.timestamp(unit) for unit in ("s", "ms", "ns")],
    }.get(name, [kind])  # fmt: skip
    if draw(st.integers(0, 9)) == 0:
        return pa.scalar(None, kind)  # with NULL as a large_string, pyarrow 26 ends the process
    if draw(st.integers(0, 3)) == 0:
        with suppress(pa.ArrowException, ValueError, TypeError):
            return pa.scalar(value, kind).cast(draw(st.sampled_from(others)))
    return pa.scalar(value, kind)


@st.composite
def leaves(draw: st.DrawFn) -> pc.Expression:
    name = draw(st.sampled_from([name for name in PLAIN if name != "s"]))
    ref = F("s", "y") if name == "s.y" and draw(st.booleans()) else F(name)
    form = draw(st.integers(0, 11))
    if form == 0:
        return ref.is_null(nan_is_null=draw(st.booleans()))
    if form == 1:
        return draw(st.sampled_from([ref.is_valid(), F("v").is_null(), F("s").is_valid()]))
    if form == 2:
        some = pa.array(draw(st.lists(missing_or(VALUES[name]), max_size=3)), PLAIN[name])
        listed_ = pc.is_in(ref, options=pc.SetLookupOptions(some, skip_nulls=draw(st.booleans())))
        return pc.if_else(ref.is_valid(), listed_, pa.scalar(None, pa.bool_())) if draw(st.booleans()) else listed_
    if form == 3:
        return draw(st.sampled_from([F("b"), pc.scalar(True), pc.scalar(pa.scalar(None, pa.bool_())), F("b") == F("b")]))
    if form == 4:
        return pc.starts_with(
            F(draw(st.sampled_from(["t", "p q"]))), draw(st.sampled_from(TEXTS)), ignore_case=draw(st.booleans())
        )
    if form == 5:
        return F("i").cast(pa.float64()) > draw(st.sampled_from([0.0, 2.0**53]))
    constant = pc.scalar(draw(literals(name)))
    sides = (ref, constant) if draw(st.booleans()) else (constant, ref)
    return getattr(sides[0], draw(st.sampled_from(["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"])))(sides[1])


EXPRESSIONS = st.recursive(
    leaves(), lambda inner: st.one_of(st.builds(lambda a: ~a, inner), st.builds(lambda a, b: a & b, inner, inner),
                                      st.builds(lambda a, b: a | b, inner, inner)), max_leaves=6,
)  # fmt: skip
GENERATED = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow,
                                                                 HealthCheck.data_too_large, HealthCheck.large_base_example],
)  # fmt: skip


@GENERATED
@given(files(), st.lists(EXPRESSIONS, min_size=5, max_size=12))
def test_filters_of_pyarrow(tmp_path, tables, expressions):
    """A filter leaves the rows that pyarrow's filter leaves of the whole table, whatever is pushed, projected and counted."""
    root = made(Path(tempfile.mkdtemp(dir=tmp_path)) / "t", tables)
    rows = dv.dataset(root, COLUMNS)
    whole = rows.to_table()
    assert whole.num_rows == sum(table.num_rows for table in tables)
    for expression in expressions:
        try:
            want = whole.filter(expression)
        except pa.ArrowException:  # types that pyarrow does not compare, or numbers that it cannot cast
            continue
        assert listed(rows.to_table(filter=expression)) == listed(want), expression
        assert rows.to_table(["v", "p q"], expression).equals(want.select(["v", "p q"])), expression
        assert rows.count_rows(filter=expression) == want.num_rows, expression
        assert rows.to_table([], expression).num_rows == want.num_rows, expression


def every_leaf() -> list[pc.Expression]:
    """Each comparison of each column with each of its values, and lists of one, with and without NULL."""
    found = [pc.starts_with(F(name), text) for name in ("t", "p q") for text in TEXTS]
    for name, kind in PLAIN.items():
        found += [F(name).is_null(), F(name).is_valid()]
        for value in VALUES.get(name, []):
            constant = pa.scalar(value, kind)
            found += [getattr(F(name), f"__{op}__")(constant) for op in ("eq", "ne", "lt", "le", "gt", "ge")]
            found += [F(name).isin(pa.array(some, kind)) for some in ([value], [value, None])]
    noon = 1_704_110_400
    numbers = {"s": [0, noon], "ms": [noon * 1000, noon * 1000 + 1], "ns": [noon * 10**9, noon * 10**9 + 1]}
    units = [pa.scalar(n, pa.timestamp(unit, "UTC")) for unit, some in numbers.items() for n in some]
    return [*found, *(op(F("at"), pc.scalar(time)) for time in units for op in (pc.equal, pc.less, pc.greater_equal))]


@pytest.mark.slow
def test_every_leaf(tmp_path):
    """A comparison and NOT of it leave the rows that pyarrow leaves, whatever the value is: NaN, -0.0, NULL, the largest.

    `make test` asks one of the two of each."""
    count = max(map(len, VALUES.values())) + 1

    def rows(name: str) -> list[Any]:
        return [VALUES[name][row] if row < len(VALUES[name]) else None for row in range(count)]

    found: dict[str, Any] = {name: pa.array(rows(name), ARROW[name]) for name in ARROW if name != "s"}
    found["s"] = pa.array([{"y": y, "z": None} for y in rows("s.y")], ARROW["s"])
    keys = {"a": rows("a"), "d": rows("d"), "m": rows("vm"), "ts": rows("ts"), "o": [{"t": text} for text in rows("p q")]}
    found["v"] = column([{key: some[row] for key, some in keys.items() if some[row] is not None} for row in range(count)])
    dataset = dv.dataset(made(tmp_path / "t", [pa.table({name: found[name] for name in SCHEMA})]), COLUMNS)
    whole = dataset.to_table()
    values = {output.name: output.value for output in dataset._query.outputs}
    pushes = 0
    for number, leaf in enumerate(every_leaf()):
        for expression in share((leaf, ~leaf), 2, number // 7 % 2):
            pushes += arrow_filters.predicate_of(expression, values) is not None
            assert dataset.to_table(["i"], expression)["i"] == whole.filter(expression)["i"], expression
    assert pushes > (800 if SOAK else 400)


@pytest.mark.parametrize(
    ("expression", "pushes"),
    [
        (F("i") > 1, True),
        (pc.scalar(1) == F("i"), True), (F("i") == 1.5, False), (F("m") == 1, True), (F("m") > 1.5, False),
        (F("x") > 1.5, True), (~(F("x") > 1.5), False), (~(F("x") < 1.5), True), (F("x") == pc.scalar(math.nan), False),
        (F("x") == 1, True),
        (F("r") == 0.1, False), (F("r") == 0.5, True), (F("i").isin([1, None]), True), (~F("i").isin([1]), False),
        (F("x").isin(pa.array([1], pa.int8())), False), (F("at") == pa.scalar(1, pa.timestamp("ns", "UTC")), False),
        (F("at") == pa.scalar(1, pa.timestamp("ms", "UTC")), True), (F("local") == pa.scalar(2**62, pa.timestamp("s")), False),
        (F("b"), True), (~F("b"), True), (F("s", "y") == 1, True), (F("s").is_valid(), False), (F("v").is_null(), False),
        (F("x").is_null(nan_is_null=True), False), (F("i").cast("string") == "1", False), (F("i") == F("a"), False),
        (pc.starts_with(F("t"), "a"), True), (pc.starts_with(F("t"), "a", ignore_case=True), False), (F("t") == "'\"\\", True),
        ((F("i") == F("a")) & (F("i") > 1), True), ((F("i") == F("a")) | (F("i") > 1), False),
        (~((F("i") == F("a")) | (F("i") > 1)), True), (pc.field(0) == 1, False), (F("raw") == b"\0", True),
    ],
)  # fmt: skip
def test_what_is_pushed(tmp_path, expression, pushes):
    """Each form is used for skipping, or left to the filter."""
    rows = dv.dataset(made(tmp_path / "t", []), COLUMNS)
    columns = {output.name: output.value for output in rows._query.outputs}
    assert (arrow_filters.predicate_of(expression, columns) is not None) == pushes


def test_long_and_deep_filters(tmp_path):
    """Filters of any length and depth give rows; what is too deep is not pushed."""
    rows = dv.dataset(made(tmp_path / "t", [])).filter(F("i") >= 0)
    chain = F("i") == 0
    for number in range(1, 300):
        chain = chain | (F("i") == number)
    deep = F("b")
    for _ in range(400):
        deep = ~deep
    for expression in (chain, deep, F("i").isin(list(range(20_000)))):
        assert rows.to_table(filter=expression).num_rows == 0


# ---- DuckDB and Polars -----------------------------------------------------------------------------------------------


def quoted(value: Any, kind: pa.DataType) -> str:
    """A literal of DuckDB."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return "'" + "".join(f"\\x{byte:02x}" for byte in value) + "'::blob"
    name = {pa.date32(): "date", pa.timestamp("us"): "timestamp", pa.timestamp("us", "UTC"): "timestamptz"}.get(kind)
    if name:
        return f"'{value}'::{name}"
    return f"'{value}'::{'float' if kind == pa.float32() else 'double'}" if isinstance(value, float) else str(value)


@st.composite
def sql(draw: st.DrawFn, depth: int = 2) -> str:
    """A predicate of DuckDB."""
    if depth and draw(st.booleans()):
        parts = [draw(sql(depth - 1)) for _ in range(2)]
        return draw(st.sampled_from(["({}) AND ({})", "({}) OR ({})", "NOT ({})"])).format(*parts)
    name = draw(st.sampled_from([name for name in PLAIN if name != "s"]))
    ref = "s.y" if name == "s.y" and draw(st.booleans()) else f'"{name}"'
    some = [quoted(draw(st.sampled_from(VALUES[name])), PLAIN[name]) for _ in range(3)]
    forms = [
        *(f"{{}} {op} {{}}" for op in ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM")),
        "{} IN ({}, {}, {})", "{} NOT IN ({}, {})", "{} BETWEEN {} AND {}", "{} IS NULL", "{} IS NOT NULL", "{} IN ({}, NULL)",
    ]  # fmt: skip
    if name in ("t", "p q"):
        forms += ["{} LIKE 'a%'", "starts_with({}, {})", "{} LIKE '%a'"]
    return draw(st.sampled_from([*forms, "{} = {}"])).format(ref, *some)


@needs_duckdb(2, "finds no NaN in a pyarrow dataset by > and >=")
@GENERATED
@given(files(), st.lists(sql(), min_size=5, max_size=12))
def test_queries_of_duckdb(tmp_path, tables, predicates):
    """DuckDB finds the rows in the dataset that it finds in a table in memory, NaN included."""
    rows = dv.dataset(made(Path(tempfile.mkdtemp(dir=tmp_path)) / "t", tables), COLUMNS)
    memory = rows.to_table(columns=[name for name in COLUMNS if name != "v"])  # DuckDB finds it by its name
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'America/New_York'")
        connection.register("rows", rows)
        connection.register("memory", memory)
        connection.execute("CREATE TABLE own AS SELECT * FROM memory")
        for text in predicates:
            query = f'SELECT i, "p q", x FROM {{}} WHERE {text}'
            want = sorted(map(repr, connection.execute(query.format("own")).fetchall()))  # for DuckDB's ORDER BY, 0.0 is -0.0
            assert sorted(map(repr, connection.execute(query.format("rows")).fetchall())) == want, text
            [count] = connection.execute(f"SELECT count(*) FROM rows WHERE {text}").fetchall()
            assert count == (len(want),), text


@st.composite
def of_polars(draw: st.DrawFn, depth: int = 2) -> pl.Expr:
    """A predicate of Polars."""
    if depth and draw(st.booleans()):
        one, other = draw(of_polars(depth - 1)), draw(of_polars(depth - 1))
        return draw(st.sampled_from([one & other, one | other, ~one]))
    name = draw(st.sampled_from([name for name in PLAIN if name != "s"]))
    value, others = draw(st.sampled_from(NO_NAN[name])), draw(st.lists(missing_or(NO_NAN[name]), max_size=3))
    col = pl.col(name)
    forms = [col == value, col != value, col < value, col <= value, col > value, col >= value, col.is_null(), col.is_not_null(),
             col.is_between(pl.lit(value), pl.lit(value)), col.eq_missing(value)]  # fmt: skip
    if name in ("i", "t", "a", "p q"):
        forms.append(col.is_in(others) & col.is_not_null())  # pyarrow's is_in is false for NULL, and NOT of it true
    if name in ("t", "p q"):
        forms.append(col.str.starts_with(value))
    return draw(st.sampled_from([*forms, pl.col("b"), ~pl.col("b")]))


@GENERATED
@given(files(NO_NAN), st.lists(of_polars(), min_size=5, max_size=12))
def test_queries_of_polars(tmp_path, tables, predicates):
    """Polars finds the rows that it finds in a table in memory, but for NaN, and NULL by NOT IN: pyarrow has other rules."""
    names = [name for name in COLUMNS if name not in ("v", "s")]
    rows = dv.dataset(made(Path(tempfile.mkdtemp(dir=tmp_path)) / "t", tables), {name: COLUMNS[name] for name in names})
    memory, lazy = pl.from_arrow(rows.to_table()), pl.scan_pyarrow_dataset(rows)
    assert isinstance(memory, pl.DataFrame)
    for predicate in predicates:
        want = memory.filter(predicate).select("t", "x", "a")
        assert lazy.filter(predicate).select("t", "x", "a").collect().equals(want), str(predicate)


# ---- what is read ------------------------------------------------------------------------------------------------------


@pytest.fixture
def events(tmp_path) -> Path:
    """Four files with n and v:a of 0 to 4, 5 to 9 …, and v:kind."""
    tables = []
    for start in range(0, 20, 5):
        numbers = range(start, start + 5)
        table = pa.table(
            {
                "n": pa.array(numbers, pa.int64()),
                "v": column([{"a": n, "kind": f"k{n % 2}", "o": {"b c": n * 2}} for n in numbers]),
                "odd name": [f"x{n:02}" for n in numbers],
            }
        )
        tables.append(added(table, "a bigint, kind string, o struct<`b c`: bigint>"))
    return by_hand(tmp_path / "events", {"n": "long", "v": "variant", "odd name": "string"}, tables, protocol=VARIANTS)


NAMED = {"actor": "v:a::bigint", "kind": "v:kind::string", "n": "n", "v": "v", "odd name": "`odd name`", "b": "v:o.`b c`::int"}


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    """The files that are opened."""
    return opened_files(monkeypatch)


QUERIES = {
    "actor >= 7 AND actor < 9": (["1.parquet"], [7, 8]),
    "actor IN (3, 19)": (["0.parquet", "3.parquet"], [3, 19]),
    "actor = 100": ([], []),
    "\"odd name\" = 'x12'": (["2.parquet"], [12]),
    "n = 2 OR b = 38": (["0.parquet", "3.parquet"], [2, 19]),
    "actor IS NULL": (["0.parquet", "1.parquet", "2.parquet", "3.parquet"], []),
}


EITHER = pytest.param("n = 2 OR b = 38", marks=needs_duckdb(2, "evaluates OR over two columns itself"))


@pytest.mark.parametrize("where", [EITHER if where in EITHER.values else where for where in QUERIES])
def test_files_that_are_opened_for_duckdb(events, opened, where):
    """A filter on a path that is a column opens only the files that can match, at every query."""
    rows = dv.dataset(events, NAMED)  # noqa: F841  # DuckDB finds it by its name
    for _ in range(2):
        opened.clear()
        assert [n for (n,) in duckdb.sql(f"SELECT n FROM rows WHERE {where} ORDER BY n").fetchall()] == QUERIES[where][1]
        assert sorted(opened) == QUERIES[where][0]


def test_plans(events, opened):
    """DuckDB's EXPLAIN and Polars' explain show the filter and the columns that they hand over."""
    rows = dv.dataset(events, NAMED)
    [(_, plan)] = duckdb.sql("EXPLAIN SELECT kind FROM rows WHERE actor > 17").fetchall()
    assert re.search(r'"?actor"? ?> ?17', plan)
    assert "Projections" in plan
    assert not opened
    lazy = pl.scan_pyarrow_dataset(rows).filter(pl.col("actor") > 17).select("kind")
    assert re.search(r'SELECTION: .*col\("actor"\).* > .*17', lazy.explain())
    assert "PROJECT 2/6 COLUMNS" in lazy.explain()
    assert lazy.collect()["kind"].to_list() == ["k0", "k1"]
    assert opened == ["3.parquet"]


def test_columns_that_are_read(events, monkeypatch):
    """Only the columns of the answer and of the filter are read, the former in row groups with matches only."""
    read: list[list[str]] = []
    before = files_module.OpenFile._read

    def counting(self, number, count, numbers, first):
        paths = [self.parquet.metadata.schema.column(leaf).path for leaf in sorted(numbers)]
        read.append([path for path in paths if path.endswith("typed_value") or "." not in path])
        return before(self, number, count, numbers, first)

    monkeypatch.setattr(files_module.OpenFile, "_read", counting)
    rows = dv.dataset(events, NAMED)
    assert rows.to_table(["kind"], F("actor") == 7)["kind"].to_pylist() == ["k1"]
    a, kind = "v.typed_value.a.typed_value", "v.typed_value.kind.typed_value"
    assert read == [[a], [a, kind]]  # the filter is evaluated again
    read.clear()
    assert rows.to_table({"more": pc.add(F("n"), 1)}, F("n") > 17)["more"].to_pylist() == [19, 20]
    assert read == [["n"]]
    read.clear()
    assert (rows.count_rows(), rows.to_table([]).num_rows, rows.to_table([], F("n") == 100).num_rows) == (20, 20, 0)
    assert not any(read)


def test_row_groups(tmp_path, monkeypatch):
    """Row groups that a footer rules out are not read."""
    rows = [{"a": n, "s": f"x{n:03}"} for n in range(100)]
    table = pa.table({"v": dv.shredding.shred(column(rows), "a int, s string")})
    root = by_hand(tmp_path / "t", {"v": "variant"}, [], protocol=VARIANTS)
    pq.write_table(table, root / "x.parquet", row_group_size=10)
    add = {"path": "x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    commit(root, 1, [{"add": add}])
    read: list[int] = []
    before = files_module.OpenFile._read
    monkeypatch.setattr(
        files_module.OpenFile, "_read", lambda self, number, *more: read.append(number) or before(self, number, *more)
    )
    found = dv.dataset(root, {"a": "v:a::bigint", "s": "v:s::string"})  # noqa: F841  # DuckDB finds it by its name
    assert duckdb.sql("SELECT s FROM found WHERE a BETWEEN 57 AND 58").fetchall() == [("x057",), ("x058",)]
    assert set(read) == {5}


# ---- the object --------------------------------------------------------------------------------------------------------


def test_variants(events):
    """A VARIANT is the extension type, from which DuckDB reads paths; the version stays the same when the table changes."""
    rows = dv.dataset(events)
    assert isinstance(rows, ds.Dataset)
    assert rows.schema.field("v").type == dv.arrow.VariantType()
    commit(events, 1, [{"remove": {"path": "0.parquet", "dataChange": True}}])
    query = "SELECT v.o['b c'], v.kind::varchar, typeof(v) FROM rows WHERE v.a::int IN (2, 12) AND n < 10"
    assert not VARIANT_IN_DUCKDB or duckdb.sql(query).fetchall() == [(4, "k0", "VARIANT")]
    assert (rows.count_rows(), dv.dataset(events).count_rows(), dv.dataset(events, version=0).count_rows()) == (20, 15, 20)
    assert rows.to_table(["n", "v"]).to_pandas()["n"].tolist() == list(range(20))


def test_variants_inside(tmp_path):
    """VARIANTs in structs, lists and maps are the extension type as well."""
    variants = column([{"a": 1}, None, "SQL NULL", [2]])
    several = pa.ListArray.from_arrays(pa.array([0, 1, 1, 3, 4], pa.int32()), variants)
    pairs = pa.MapArray.from_arrays(pa.array([0, 2, 2, 3, 4], pa.int32()), pa.array(["x", "y", "z", "w"]), variants)
    struct = pa.StructArray.from_arrays([variants], ["w"], mask=pa.array([False, False, True, False]))
    schema = {
        "s": structs(w="variant"), "l": {"type": "array", "elementType": "variant", "containsNull": True},
        "m": {"type": "map", "keyType": "string", "valueType": "variant", "valueContainsNull": True},
    }  # fmt: skip
    root = by_hand(tmp_path / "t", schema, [(pa.table({"s": struct, "l": several, "m": pairs}), {})], protocol=VARIANTS)
    rows = dv.dataset(root)
    kinds = [
        rows.schema.field("s").type.field("w").type,
        rows.schema.field("l").type.value_type,
        rows.schema.field("m").type.item_type,
    ]
    assert kinds == [dv.arrow.VariantType()] * 3
    found = rows.to_table(filter=F("l").is_valid())
    found.validate(full=True)
    assert found["l"].to_pylist() == [[{"a": 1}], [], [None, None], [[2]]]
    assert found["s"].to_pylist() == [{"w": {"a": 1}}, {"w": None}, None, {"w": [2]}]
    assert not VARIANT_IN_DUCKDB or duckdb.sql("SELECT s.w.a FROM rows LIMIT 1").fetchall() == [(1,)]


def test_methods_of_pyarrow(events):
    """What pyarrow's class has gives the rows of the version, or an error that says what to use; nothing ends the process."""
    rows = dv.dataset(events, NAMED)
    some = rows.filter(F("n") > 3).filter(F("n") < 8)
    assert some.head(2, columns=["n"])["n"].to_pylist() == [4, 5]
    assert rows.head(0).num_rows == 0
    assert rows.head(1, columns={"kind": F("n"), "n": F("kind")}).to_pylist() == [{"kind": 0, "n": "k0"}]
    assert rows.head(1, columns=["n", "kind", "n"]).column_names == ["n", "kind", "n"]
    assert some.take(pa.array([0, 3]))["n"].to_pylist() == [4, 7]
    for indices in ([3, 0, 0], np.array([2, 1], np.uint8), pa.array([1, None]), pa.array([], pa.int64())):
        assert some.take(indices).equals(some.to_table().take(indices))
    for indices in ([0, 100], [-1]):
        with pytest.raises(pa.lib.ArrowIndexError, match="out of bounds"):
            some.take(indices)
    assert sum(batch.num_rows for batch in some.to_batches(columns=["v"], batch_size=2)) == 4
    assert some.scanner(columns=["kind"]).projected_schema.names == ["kind"]
    assert [part.scanner(rows.schema, columns=["n"]).count_rows() for part in some.get_fragments(F("n") > 5)] == [3]
    scanner = some.scanner(columns=["n"])
    assert scanner.to_table() == scanner.to_reader().read_all()
    copy = pickle.loads(pickle.dumps(some))
    assert copy.to_table() == some.to_table()
    assert "version=0" in repr(copy)
    for part in rows.get_fragments():
        assert pickle.loads(pickle.dumps(part)).scanner().to_table() == part.scanner().to_table()
    for call in (lambda: rows.join(rows, "n"), lambda: rows.sort_by("n"), lambda: rows.replace_schema(rows.schema)):
        with pytest.raises(errors.UnsupportedFeatureError, match="to_table"):
            call()
    own = {name for name in dir(ds.Dataset) if not name.startswith("_")}
    by_scanner = {"count_rows", "head", "take", "to_batches", "to_table"}
    harmless = {"schema", "partition_expression"}
    assert own - by_scanner - harmless <= set(vars(type(rows)))
    with pytest.raises(FileNotFoundError, match="scanner"):
        ds.Scanner.from_dataset(rows).to_table()
    with pytest.raises(errors.UnsupportedFeatureError, match="to_table"):
        ds.dataset([rows, rows])
    with pytest.raises(FileNotFoundError, match="scanner"):
        ds.UnionDataset(rows.schema, [rows, rows]).to_table()


@pytest.mark.parametrize("form", ["parquet", "ipc"])
def test_write_dataset_of_pyarrow(events, tmp_path, form):
    """`write_dataset` refuses the dataset, and says what to pass instead, which it writes."""
    dataset = dv.dataset(events, {"id": "v:id::bigint"})
    with pytest.raises(errors.UnsupportedFeatureError, match=r"dataset\.scanner\(\)\.to_reader\(\)"):
        ds.write_dataset(dataset, tmp_path / "d", format=form)
    ds.write_dataset(dataset.scanner().to_reader(), tmp_path / "d", format=form)
    assert ds.dataset(tmp_path / "d", format=form).count_rows() == dataset.count_rows()


def test_what_is_refused(events):
    """Columns that are not there are errors of this package; filters that pyarrow cannot compute are pyarrow's own."""
    rows = dv.dataset(events, NAMED)
    for call in (lambda: rows.to_table(["m"]), lambda: rows.to_table(filter=F("m") == 1), lambda: rows.scanner({"x": F("m")})):
        with pytest.raises(errors.TableError, match="there is no column m in the dataset: there are actor, kind"):
            call()
    for filter_ in (F("n") == "x", F("n") + 1):
        with pytest.raises(pa.ArrowException):
            rows.scanner(filter=filter_)
    with pytest.raises(errors.TableError, match="there is no column m"):
        dv.dataset(events, ["m"])
    with pytest.raises(errors.TableError, match="is not a Delta table"):
        dv.dataset(events / "nothing")


def test_errors_of_rows(events):
    """An error about a value says what scan says."""
    rows = dv.dataset(events, {"n": "n", "k": "v:kind::int"})
    assert rows.to_table(["n"]).num_rows == 20
    with pytest.raises(errors.CastError, match=r"parquet: v:kind::int: a value cannot be cast to int"):
        rows.to_table()
    with pytest.raises(duckdb.Error, match="a value cannot be cast to int"):
        duckdb.sql("SELECT * FROM rows").fetchall()
    (events / "3.parquet").unlink()
    with pytest.raises(errors.TableError, match=r"3\.parquet is gone"):
        rows.to_table(["n"])


def test_queries_at_a_time(events):
    """Queries in threads do not disturb each other, and one that is left ends its threads."""
    rows = dv.dataset(events, NAMED)
    found: list[int] = []

    def query(number: int) -> None:
        found.append(rows.count_rows(filter=F("n") < number))

    threads = [threading.Thread(target=query, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(8))
    assert duckdb.sql("SELECT * FROM rows LIMIT 1").fetchall()
    reader = rows.scanner().to_reader()
    reader.read_next_batch()
    del reader
    assert no_thread_is_left()


def test_batches_are_read_when_they_are_asked_for(tmp_path, monkeypatch):
    """A slow reader holds a few batches in memory, not the table."""
    read: list[int] = []
    before = files_module.OpenFile._output
    monkeypatch.setattr(files_module.OpenFile, "_output", lambda self, rows: read.append(rows.count) or before(self, rows))
    table = pa.table({"n": pa.array(range(100_000), pa.int64())})
    root = by_hand(tmp_path / "t", {"n": "long"}, [])
    pq.write_table(table, root / "x.parquet", row_group_size=1000)
    add = {"path": "x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    commit(root, 1, [{"add": add}])
    reader = dv.dataset(root).scanner(filter=F("n") >= 0).to_reader()
    reader.read_next_batch()
    time.sleep(0.3)
    assert len(read) < 10
    assert reader.read_all().num_rows == 99_000


def test_needs_no_spark(events):
    """`dataset` imports neither PySpark nor py4j, and `scan` does not register the extension type."""
    code = (
        f"import sys, pyarrow as pa, delta_variant as dv; dv.scan({str(events)!r}).read_all(); "
        f"print('delta_variant.arrow' in sys.modules, dv.dataset({str(events)!r}).count_rows(), "
        "'pyspark' in sys.modules or 'py4j' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "20", "False"]


def test_a_stream_that_is_queried_twice(events):
    """DuckDB says that a stream of scan is read once; the dataset answers each time."""
    reader = dv.scan(events, ["n"])  # noqa: F841  # DuckDB finds it by its name
    assert duckdb.sql("SELECT count(*) FROM reader").fetchall() == [(20,)]
    if VARIANT_IN_DUCKDB:  # 2.0 and later
        with pytest.raises(duckdb.Error, match="consumed"):
            duckdb.sql("SELECT count(*) FROM reader").fetchall()
    rows = dv.dataset(events, ["n"])  # noqa: F841
    for _ in range(3):
        assert duckdb.sql("SELECT sum(n) FROM rows").fetchall() == [(190,)]
