"""Skipping loses no row: generated tables and predicates, compared with a session without skipping.

For each table, an aggregation without skipping finds the files in which a row matches a predicate. A query with this predicate
must plan to open all of them. Some of the predicates also run as whole queries: a query that succeeds without skipping has the
same rows with it. A pair is one predicate on one table.

A cast that fails makes a query fail, so the aggregation uses the same predicate with try_variant_get and try_cast. If the query
succeeds, both predicates are TRUE for the same rows. A lost file is an error only if the query succeeds without skipping.

Most tables have files and row groups of a few rows. One table in six has large files too, of several row groups, in which types
change and new paths appear after the rows that a writer samples to choose a shredding schema.

`make test` checks the same 200 pairs each time, on a table with small files and on one with large files too. `make soak` checks
up to 20,000. For any number of others, from another seed:

    NEVER_WRONG_PAIRS=1000000 NEVER_WRONG_SEED=1 python -m pytest -s tests/optimizer/test_skipping_generated.py

Delta runs a job over the log for every filtered scan. To save these jobs, the predicates of a table are planned over one scan
that Delta has prepared for all files, in which the rule sees what it sees in separate queries. Whole queries run Delta's job.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import random
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

import delta_variant as dv
from delta_variant import jvm
from delta_variant.errors import DeltaVariantError
from delta_variant.schema import infer
from tests.strategies import column
from tests.support import deltas_own_files, length

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PAIRS = length("NEVER_WRONG_PAIRS", 160, 20_000)
SEED = length("NEVER_WRONG_SEED", 101, 101)
PER_TABLE, PER_LARGE_TABLE = (1000, 200) if PAIRS >= 10_000 else (80, 40)
LARGE = 6  # one table in six has large files too
WHOLE = length("NEVER_WRONG_WHOLE", 3, 10)  # of a table's predicates that run as whole queries
PER_PLAN = 50  # predicates planned as one query, a UNION ALL
PER_AGGREGATION = 100
SOURCES = [
    "{}",
    "(select * from {})",
    "(select id, p, v, named_struct('w', s.w) s from {})",
    "(select * from {} where v is not null or p >= 0)",
]
PUSH = "spark.sql.variant.pushVariantIntoScan"

# ------------------------------------------------------------------------------------------------------------- values

POSITIONS = 180
_MOMENTS = [
    dt.datetime(1, 1, 1, 0, 5),
    dt.datetime(1582, 10, 3, 22, 10),  # the last days of the Julian calendar
    dt.datetime(1883, 11, 18, 16, 20),  # New York leaves its local mean time
    dt.datetime(1970, 1, 1),
    dt.datetime(2006, 10, 29, 1, 40),  # St John's sets its clocks back a minute after midnight, across the date
    dt.datetime(2024, 3, 10, 5, 50),  # New York, an hour that is not there
    dt.datetime(2024, 11, 3, 4, 30),  # New York, an hour that is there twice
    dt.datetime(2024, 12, 31, 12),
    dt.datetime(9999, 12, 31, 19, 30),
]
_STEPS = POSITIONS // len(_MOMENTS)
_SCALES = [1, 3, 250, 40_000, 10**8, 5 * 10**16]
_FAR_DATES = [np.datetime64("-0044-03-15"), np.datetime64("12024-02-29"), dt.date(1582, 10, 4), dt.date(1582, 10, 15)]
_INSTANTS = [dt.datetime.min, dt.datetime.max, dt.datetime(1500, 2, 28, 23, 59, 59, 999999), dt.datetime(2024, 3, 10, 2, 30)]
_INTEGERS = [0, -1, 127, 128, -129, 2**15, 2**24 + 1, -(2**31) - 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]
EXTREMES: dict[str, list[Any]] = {
    "int": _INTEGERS,
    "exact": [Decimal("9" * 38), Decimal("-0." + "9" * 38), Decimal("1E-20"), Decimal("5.00"), Decimal("5.05"), 5, *_INTEGERS],
    "double": [math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 1.7e308, 3.5e38, 16777217.0, 2.0**63, 5.0],
    "float": [np.float32(x) for x in (math.nan, math.inf, -math.inf, -0.0, 1e-45, 3.4e38, 0.1, 5)],
    "string": ["", " ", "\0", "A", "a", "é", "\uffff", "\U0010ffff" * 3, "\U0010ffff" * 33, "z" * 40, "k" * 5000, "5", " 5 "]
    + ["5.0", "1e3", "NaN", "true", "2024-03-10", "2006-10-29 00:00:30", "%", "_", "it's", "back\\slash", "k0%"],
    "spelled": [
        "0001-01-01T00:00:00+18:00",
        "9999-12-31 23:59:59.9999999-18:00",
        "2024-02-29",
        "2023-02-29",
        "0000-01-01",
        "soon",
    ]
    + [
        "2024-11-21T24:00:00Z",
        "2024-11-21T23:59:60Z",
        "2024-11-21T16:09:37z",
        " 2024-11-21",
        "2024-11-21T16:09",
        "12024-02-29",
    ],
    "date": [dt.date.min, dt.date.max, *_FAR_DATES],
    "timestamp": [moment.replace(tzinfo=dt.timezone.utc) for moment in _INSTANTS],
    "timestamp_ntz": _INSTANTS,
    "boolean": [True, False],
    "binary": [b"", b"\xff" * 40, b"\0"],
}
KINDS = list(EXTREMES)
OTHERS: list[Any] = [{}, {"x": 5}, [], [5], [{"x": 1}], True, "other", 5, 7.25, "x" * 5000]
STYLES: dict[str, Callable[[int, Spot], str]] = {
    "short": lambda at, spot: f"k{at:03d}",
    "cut": lambda at, spot: f"thirty characters to start with{at:03d} and more"[: 31 if at % 3 == 0 else None],
    "number": lambda at, spot: str((at - 90) * spot.scale),
    "moment": lambda at, spot: str(spot.moment(at)),
    "wide": lambda at, spot: chr(0x3A9 + at) * (1 + at % 40),
    "astral": lambda at, spot: "\ud7ff\U00010000\U0010ffff\uffff"[at // 45] + f"{at:03d}",
}
SPELLINGS: dict[str, Callable[[random.Random, dt.datetime], str]] = {
    "zero": lambda rng, at: at.isoformat(rng.choice("T ")) + rng.choice(["Z", "Z", ".25Z", ".1234567Z", "+00:00", " UTC"]),
    "offset": lambda rng, at: at.isoformat(rng.choice("T ")) + rng.choice(["Z", "+05:45", "-0330", "+18", "-18:00"]),
    "local": lambda rng, at: at.isoformat(rng.choice("T ")) + rng.choice(["", "", ".5"]),
    "date": lambda rng, at: str(at.date()),
    "any": lambda rng, at: at.isoformat() + rng.choice(["", "Z"]),
}


@dataclass(frozen=True)
class Spot:
    """A path of a table. Each kind has a value for each position from 0 to 179, ascending if the kind has an order."""

    column: str
    keys: tuple[str, ...]
    kind: str
    scale: int
    minutes: int
    style: str
    spelling: str

    def moment(self, at: int) -> dt.datetime:
        return _MOMENTS[at // _STEPS] + dt.timedelta(minutes=self.minutes * (at % _STEPS))

    def value(self, rng: random.Random, kind: str, at: int) -> Any:
        number = (at - 90) * self.scale
        match kind:
            case "int":
                return number
            case "exact":
                return rng.choice([number, Decimal(number) + Decimal(rng.randrange(1000)).scaleb(-rng.randrange(4))])
            case "double":
                return number + rng.choice([0.0, 0.1, 0.25])
            case "float":
                return np.float32(number + rng.choice([0.0, 0.1, 0.25]))
            case "string":
                return STYLES[self.style](at, self)
            case "spelled":
                return SPELLINGS[self.spelling](rng, self.moment(at))
            case "date":
                return self.moment(at).date()
            case "timestamp":
                return self.moment(at).replace(tzinfo=dt.timezone.utc)
            case "timestamp_ntz":
                return self.moment(at)
            case "boolean":
                return at >= POSITIONS // 2
        return bytes([at])

    def any(self, rng: random.Random, kind: str) -> Any:
        return rng.choice(EXTREMES[kind]) if rng.random() < 0.15 else self.value(rng, kind, rng.randrange(POSITIONS))


# ------------------------------------------------------------------------------------------------------------- tables

KEYS = [("a",), ("b",), ("c",), ("o", "x"), ("o", "y"), ("k.d",), ("it's",), ("é b",), ("back\\slash", "\u0007"), ()]
LATE = ("late",)  # a path of large files only
HEAD, TAIL, DISTINCT = 4200, 300, 60  # rows of a large file: delta-spark looks at 4,096 to choose a schema
RATES: Sequence[Sequence[float]] = ((0, 0, 0.05, 0.3), (0, 0, 0.3), (0, 0, 0, 0.2), (*[0] * 8, 0.15))
"""Rates of extremes, missing paths, nulls and values of other types."""
ZONES = ["UTC", "America/New_York", "America/St_Johns", "Asia/Kathmandu", "Pacific/Apia", "+05:30"]
# Every query is planned once, on a few rows: compiling it takes longer than all the rest.
SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}


@dataclass
class Table:
    """One table, and the settings under which it is made and queried."""

    seed: int
    path: Path
    change: float = 0.25  # the chance that a file has another kind of values at a path
    rates: Sequence[Sequence[float]] = RATES
    kinds: Sequence[str] = ()  # the kinds of values; empty for all of them, some more often than others
    rng: random.Random = field(init=False)
    settings: dict[str, str] = field(init=False)
    spots: list[Spot] = field(init=False)
    history: list[str] = field(default_factory=list)
    rows: int = 0
    files: int = 0

    def __post_init__(self) -> None:
        self.rng = rng = random.Random(self.seed)
        self.settings = {
            "spark.sql.session.timeZone": rng.choice(ZONES),
            "spark.sql.ansi.enabled": rng.choice(["true", "true", "false"]),
            "spark.sql.timestampType": rng.choice(["TIMESTAMP_LTZ", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"]),
            PUSH: rng.choice(["true", "true", "false"]),
            # The bounds are read by a job or on the driver.
            "spark.delta_variant.keptFiles": rng.choice(["0", "5000"]),
            **SMALL,
        }
        self.spots = [
            Spot(name, keys, rng.choice(self.kinds or (KINDS[:-2] if rng.random() < 0.9 else KINDS[-2:])), *self._grid())
            for name, some in (("v", [*KEYS, LATE]), ("s.w", KEYS[:4:3]))
            for keys in some
        ]

    def _grid(self) -> tuple[int, int, str, str]:
        rng = self.rng
        return rng.choice(_SCALES), rng.choice([1, 7, 13]), rng.choice([*STYLES]), rng.choice([*SPELLINGS])

    @property
    def ansi(self) -> bool:
        return self.settings["spark.sql.ansi.enabled"] == "true"

    @property
    def large(self) -> bool:
        return self.seed % LARGE == 0

    @property
    def name(self) -> str:
        return f"delta.`{self.path}`"

    def build(self, session: SparkSession, off: SparkSession) -> None:
        """Makes about ten files by this package and by delta-spark, shredded or not, with bounds or without.

        Then indexes the paths of every second table, runs DML by either of them, and perhaps `analyze`.
        """
        rng = self.rng
        mapping, partitioned = rng.choice([*["none"] * 6, "name", "id"]), rng.random() < 0.25
        properties = {
            "delta.enableVariantShredding": "true",
            "delta.enableDeletionVectors": rng.choice(["true", "false"]),
            "delta.columnMapping.mode": mapping,
            "delta.checkpoint.writeStatsAsStruct": "true",
            "delta.checkpointInterval": rng.choice(["2", "10"]),
        }
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        session.sql(
            f"create table {self.name} (id bigint, p int, v variant, s struct<w: variant>) using delta "
            f"{'partitioned by (p)' if partitioned else ''} tblproperties ({listed})"
        )
        self.history.append(f"{properties}, partitioned: {partitioned}")
        writers = ["ours", "ours", "native"]
        self._append(session, writers[0], 4, shredded=True)
        if rng.random() < 0.15:
            self.history.append("optimize")
            with self._either(session):
                session.sql(f"optimize {self.name}").collect()
        self._append(session, "native", 3, shredded=True)
        self._append(session, rng.choice(writers), 1, shredded=rng.random() < 0.5)
        for writer in [*writers[:1], "native"] * self.large:
            self._append(session, writer, 1, shredded=True, large=True)
        if self.seed % 2:
            paths = [f"{spot.column}:$" + "".join(map(_step, spot.keys)) for spot in self.spots]
            indexed = dv.VariantTable.forPath(session, self.path).analyze(bloom=paths, budget=1.0).indexed
            self.history.append(f"index: {indexed}")
            assert indexed.filters, f"seed {self.seed}: {self.history}"
            assert not indexed.failed, f"seed {self.seed}: {self.history}"
        for _ in range(rng.choice([0, 1, 1, 2])):
            self._change(session, off)
        if rng.random() < 0.4:
            done = dv.VariantTable.forPath(session, self.path).analyze()
            self.history.append(f"analyze: {done}")
            assert not done.failed, f"seed {self.seed}: {self.history}"

    def _append(self, session: SparkSession, writer: str, files: int, *, shredded: bool, large: bool = False) -> None:
        size = HEAD + TAIL if large else self.rng.randrange(6, 25)
        frame, shapes = self._frame(session, files, size, large=large)
        self.history.append(f"{writer}: {files} files of {size} rows, property {shredded}")
        if not shredded:
            session.sql(f"alter table {self.name} set tblproperties ('delta.enableVariantShredding' = 'false')")
        if writer == "ours":
            # Inference leaves small files plain.
            given = {name: shape for name, shape in shapes.items() if shape is not None}
            dv.write(frame, self.path, max_rows_per_file=size, shred=given if shredded and self.rng.random() < 0.8 else "auto")
        else:
            # Row groups of a few rows: delta-spark merges the bounds in their footers.
            rows = self.rng.choice([500, 4300]) if large else self.rng.choice([4, 1000])
            session.conf.set("parquet.block.row.count.limit", str(rows))
            with deltas_own_files(session):
                frame.write.format("delta").mode("append").option("maxRecordsPerFile", size).save(str(self.path))
        if not shredded:
            session.sql(f"alter table {self.name} set tblproperties ('delta.enableVariantShredding' = 'true')")

    def _frame(self, session: SparkSession, files: int, size: int, *, large: bool) -> tuple[DataFrame, dict[str, Any]]:
        """The rows of some files, in one task and in their order, and the schema inferred from one of the files, by column.

        Each file has its own range, kind and gaps at each path.
        """
        variants: dict[str, list[pa.Array]] = {"v": [], "s.w": []}
        for name, chunks in variants.items():
            spots = [spot for spot in self.spots if spot.column == name]
            for _ in range(files):
                chunks.extend(self._large(spots) if large else [column(self._documents(spots, size))])
        ids = range(self.rows, self.rows + files * size)
        numbers = [self.files + file for file in range(files) for _ in range(size)]
        self.rows += len(numbers)
        self.files += files
        source = f"{self.path}-{self.rows}.parquet"
        columns = [pa.array(ids, pa.int64()), pa.array(numbers, pa.int32()), *map(pa.concat_arrays, variants.values())]
        dv.parquet.write_table(pa.table(columns, ["id", "p", "v", "w"]), source)
        frame = session.read.parquet(source).selectExpr("id", "p", "v", "named_struct('w', w) s").coalesce(1)
        return frame, {name: infer(self.rng.choice(chunks)) for name, chunks in variants.items()}

    def _large(self, spots: Sequence[Spot]) -> list[pa.Array]:
        """The rows of a large file: a few documents, repeated, and at its end a few others."""
        rest = [spot for spot in spots if spot.keys != LATE]
        head = column(self._documents(self.rng.choice([rest, spots]), DISTINCT))
        tail = column(self._documents(spots, DISTINCT, change=0.5))
        return [rows.take(pa.array([n % DISTINCT for n in range(size)])) for rows, size in ((head, HEAD), (tail, TAIL))]

    def _documents(self, spots: Sequence[Spot], size: int, change: float | None = None) -> list[Any]:
        """Documents whose values at a path lie in one range; with the probability `change` they are of another kind."""
        rng = self.rng
        made: list[Any] = [{} for _ in range(size)]
        for spot in spots:
            kind = spot.kind if rng.random() >= (self.change if change is None else change) else rng.choice(KINDS)
            start, width = rng.randrange(POSITIONS), rng.choice([1, 3, 10, 60])
            extreme, missing, null, other = map(rng.choice, self.rates)
            if not spot.keys and rng.random() < 0.85:
                continue  # Variants that are scalars are rare
            if spot.keys == LATE and size != DISTINCT:
                continue
            for row in range(size):
                value = spot.value(rng, kind, min(start + rng.randrange(width), POSITIONS - 1))
                if rng.random() < extreme:
                    value = rng.choice(EXTREMES[kind])
                if rng.random() < other:
                    value = rng.choice(OTHERS)
                if rng.random() < null:
                    value = None
                if rng.random() >= missing:
                    made[row] = _put(made[row], spot.keys, value)
        nulls = rng.choice([0, 0.1])
        return ["SQL NULL" if rng.random() < nulls else document for document in made]

    def _either(self, session: SparkSession) -> AbstractContextManager[None]:
        """A statement of Delta's whose files are those of this package or of Delta."""
        by_delta = self.rng.random() < 0.5
        self.history.append(f"files of Delta: {by_delta}")
        return deltas_own_files(session) if by_delta else nullcontext()

    def _change(self, session: SparkSession, off: SparkSession) -> None:
        """Runs DML with skipping, and checks how many rows it affects."""
        rng = self.rng
        where = rng.choice([f"id % 7 = {rng.randrange(7)}", Predicates(self).tree(1).safe])
        action = rng.choice(["delete", "update", "merge"])
        try:
            rows = off.sql(f"select count(*) from {self.name} where {where}").first()[0]
        except (PySparkException, Py4JJavaError):
            return
        if action == "delete":
            statement = f"delete from {self.name} where {where}"
        elif action == "update":
            statement = f"update {self.name} set v = to_variant_object(named_struct('a', 5, 'b', 'x')) where {where}"
        else:
            statement = (
                f"merge into {self.name} using (select id i from {self.name} where {where}) on id = i "
                "when matched then update set s = named_struct('w', v)"
            )
        self.history.append(statement)
        with self._either(session):
            changed = session.sql(statement).first()
        assert changed["num_affected_rows"] == rows, f"seed {self.seed}: {self.history}"


def _step(key: str) -> str:
    return f'["{key}"]' if "'" in key else f"['{key}']"


def _put(document: Any, keys: tuple[str, ...], value: Any) -> Any:
    if not keys:
        return value
    if not isinstance(document, dict):
        return document
    return {**document, keys[0]: _put(document.get(keys[0], {}), keys[1:], value)}


# --------------------------------------------------------------------------------------------------------- predicates

INTEGERS = ("tinyint", "smallint", "int", "bigint")
DECIMALS = ("decimal(38,0)", "decimal(38,10)", "decimal(10,2)", "decimal(5,1)")
NUMBERS = (*INTEGERS, *DECIMALS, "float", "double")
MOMENTS = ("date", "timestamp", "timestamp_ntz")
TYPES = (*NUMBERS, "string", *MOMENTS, "boolean")
NATURAL: dict[str, Sequence[str]] = {
    "int": NUMBERS,
    "exact": NUMBERS,
    "double": ("double", "float", "decimal(38,10)", "int"),
    "float": ("double", "float"),
    "string": ("string",),
    "spelled": ("string", *MOMENTS, *MOMENTS),
    "date": MOMENTS,
    "timestamp": MOMENTS,
    "timestamp_ntz": MOMENTS,
    "boolean": ("boolean", "int"),
    "binary": ("binary", "string"),
}
CASTS: dict[str, Sequence[str]] = {  # what ANSI allows
    **dict.fromkeys(NUMBERS, (*NUMBERS, *NUMBERS, "string", "boolean", "timestamp")),
    "string": TYPES,
    "date": ("timestamp", "timestamp_ntz", "string"),
    "timestamp": ("date", "timestamp_ntz", "string", "bigint", "double", "decimal(38,10)"),
    "timestamp_ntz": ("date", "timestamp", "string"),
    "boolean": ("int", "bigint", "double", "string"),
    "binary": ("string",),
}
_KIND_OF = {**dict.fromkeys(INTEGERS, "int"), **dict.fromkeys(DECIMALS, "exact")}
_SUFFIXES = {"Y": 2**7, "S": 2**15, "L": 2**63}


class Sql(NamedTuple):
    """A piece of a query, and the same with casts that cannot fail."""

    asked: str
    safe: str

    @classmethod
    def of(cls, form: str, *parts: Sql | str) -> Sql:
        both = [part if isinstance(part, Sql) else cls(part, part) for part in parts]
        return cls(form.format(*(part.asked for part in both)), form.format(*(part.safe for part in both)))


class Predicates:
    """Generates predicates on one table."""

    def __init__(self, table: Table) -> None:
        self.table, self.rng = table, table.rng

    def tree(self, depth: int) -> Sql:
        choice = self.rng.random()
        if depth == 0 or choice < 0.4:
            return self.atom()
        if choice < 0.52:
            return Sql.of("not ({})", self.tree(depth - 1))
        return Sql.of(self.rng.choice(["({} and {})", "({} or {})"]), self.tree(depth - 1), self.tree(depth - 1))

    def atom(self) -> Sql:
        forms = [self.comparison, self.member, self.between, self.text, self.null, self.ordinary, self.odd, self.constant]
        return self.rng.choices(forms, [45, 14, 9, 9, 6, 4, 12, 1])[0]()

    # -- operands

    def operand(self, types: Sequence[str] = TYPES) -> tuple[Sql, str, Spot]:
        """A path read as one of the types, mostly that of its values; this type; and the path."""
        rng, spot = self.rng, self.rng.choice(self.table.spots)
        for _ in range(20):
            if set(NATURAL[spot.kind]) & set(types):
                break
            spot = rng.choice(self.table.spots)
        natural = [kind for kind in NATURAL[spot.kind] if kind in types]
        kind = rng.choice(natural if natural and rng.random() < 0.8 else types)
        if rng.random() < 0.8:
            return self.get(spot, kind), kind, spot
        first = rng.choice(NATURAL[spot.kind])
        chain = [first]
        if rng.random() < 0.3:
            chain.append(rng.choice(CASTS[first]))
        if kind not in CASTS[chain[-1]]:
            return self.get(spot, kind), kind, spot
        found = self.get(spot, first)
        for target in [*chain[1:], kind]:
            found = self.cast(found, target)
        return found, kind, spot

    def type(self, kind: str) -> str:
        other = self.table.settings["spark.sql.timestampType"] == "TIMESTAMP_NTZ"
        return "timestamp_ltz" if kind == "timestamp" and other else kind

    def get(self, spot: Spot, kind: str) -> Sql:
        rng, kind = self.rng, self.type(kind)
        name, keys = spot.column, spot.keys
        simple = all(key.isascii() and key.isidentifier() for key in keys)
        if simple and keys and rng.random() < 0.5:
            found = f"{name}:{'.'.join(keys)}"
        elif not keys:
            found = name
        else:
            if len(keys) > 1 and rng.random() < 0.3:
                name, keys = f"variant_get({name}, {self.steps(keys[:1])}, 'variant')", keys[1:]
            steps = self.steps(keys)
            form = rng.randrange(3)
            if form == 0:
                return Sql(f"variant_get({name}, {steps}, '{kind}')", f"try_variant_get({name}, {steps}, '{kind}')")
            if form == 1:
                return Sql.of("{}", f"try_variant_get({name}, {steps}, '{kind}')")
            found = f"variant_get({name}, {steps}, 'variant')"
        safe = f"try_cast({found} as {kind})"
        return Sql(rng.choice([f"{found}::{kind}", f"cast({found} as {kind})", safe]), safe)

    def steps(self, keys: Sequence[str]) -> str:
        text = "$"
        for key in keys:
            quote = '"' if "'" in key else self.rng.choice("\"'")
            dotted = not set(".[") & set(key) and self.rng.random() < 0.6
            text += f".{key}" if dotted else f"[{quote}{key}{quote}]"
        return string(text)

    def cast(self, value: Sql, kind: str) -> Sql:
        kind = self.type(kind)
        if self.rng.random() < 0.3:
            return Sql.of("try_cast({} as " + kind + ")", value)
        return Sql(f"cast({value.asked} as {kind})", f"{'try_' * self.table.ansi}cast({value.safe} as {kind})")

    # -- literals

    def literal(self, kind: str, spot: Spot) -> str:
        """A literal to compare a value of the type with, often of another type that Spark casts."""
        rng = self.rng
        if rng.random() < 0.02:
            return rng.choice(["null", f"cast(null as {self.type(kind)})"])
        if kind in NUMBERS:
            if rng.random() < 0.2:
                kind = rng.choice(["int", "decimal(10,2)", "double", "float"])
            value = spot.any(rng, _KIND_OF.get(kind, kind))
            return f"'{value}'" if rng.random() < 0.03 and kind in INTEGERS and value in range(100) else constant(rng, value)
        if kind == "string" and spot.kind == "spelled":
            kind = "spelled"
        if kind in MOMENTS and rng.random() < 0.2:
            kind = rng.choice(MOMENTS)
            if rng.random() < 0.3:
                return f"'{spot.moment(rng.randrange(POSITIONS)).date()}'"
        return constant(rng, spot.any(rng, kind))

    # -- atoms

    def comparison(self) -> Sql:
        value, kind, spot = self.operand()
        sides = [value, self.literal(kind, spot)]
        if self.rng.random() < 0.2:
            sides.reverse()
        return Sql.of("({} " + self.rng.choice(["=", "=", "=", "<", "<=", ">", ">=", "<=>", "<>"]) + " {})", *sides)

    def member(self) -> Sql:
        value, kind, spot = self.operand()
        count = self.rng.choice([1, 2, 3, 5, 12, 30, 90])
        if count > 10 and self.rng.random() < 0.7:  # close together, so that something can be skipped
            start = self.rng.randrange(POSITIONS - 10)
            kinds = _KIND_OF.get(kind, kind)
            listed = [constant(self.rng, spot.value(self.rng, kinds, start + at % 10)) for at in range(count)]
        else:
            listed = [self.literal(kind, spot) for _ in range(count)]
        return Sql.of("({} " + self.rng.choice(["in", "in", "in", "not in"]) + " ({}))", value, ", ".join(listed))

    def between(self) -> Sql:
        value, kind, spot = self.operand()
        form = self.rng.choice(["({} between {} and {})", "({} not between {} and {})", "({0} >= {1} and {0} < {2})"])
        return Sql.of(form, value, self.literal(kind, spot), self.literal(kind, spot))

    def text(self) -> Sql:
        rng = self.rng
        value, _, spot = self.operand(("string",))
        text = spot.any(rng, "string")
        start = text[: rng.randrange(len(text[:40]) + 1)]
        if rng.random() < 0.4:
            function = rng.choice(["startswith", "startswith", "startswith", "endswith", "contains", "instr"])
            return Sql.of("({}({}, {})" + " > 0" * (function == "instr") + ")", function, value, string(start))
        escaped = re.sub(r"([%_\\])", r"\\\1", start)
        pattern = rng.choice(["{}%", "{}%", "{}%", "%{}%", "%{}", "{}", "{}_%", "{}%x", "_{}%"]).format(escaped)
        return Sql.of("({} " + rng.choice(["like", "like", "like", "not like", "ilike"]) + " {})", value, string(pattern))

    def null(self) -> Sql:
        value, _, spot = self.operand()
        if self.rng.random() < 0.4:
            value = Sql.of("variant_get({}, {}, 'variant')", spot.column, self.steps(spot.keys))
        return Sql.of(self.rng.choice(["({} is null)", "({} is not null)"]), value)

    def ordinary(self) -> Sql:
        name, most = self.rng.choice([("id", self.table.rows), ("p", self.table.files)])
        return Sql.of("({} {} {})", name, self.rng.choice(["=", "<", ">=", "<>"]), str(self.rng.randrange(most)))

    def odd(self) -> Sql:
        """What looks like a comparison with a path and must not be taken for one."""
        rng, spot = self.rng, self.rng.choice(self.table.spots)
        value, kind, place = self.operand()
        against = self.literal(kind, place)
        compared = Sql.of("({} " + rng.choice(["=", "<", ">", "<=>", "<>"]) + " {})", value, against)
        number, text = self.get(spot, "double"), self.get(spot, "string")
        size = constant(rng, spot.any(rng, "double"))
        same = self.get(rng.choice(self.table.spots), kind)
        whole = Sql.of("variant_get({}, {}, 'variant')", spot.column, self.steps(spot.keys))
        forms: list[Callable[[], Sql]] = [
            lambda: Sql.of("(coalesce({}, {}) = {})", value, against, against),
            lambda: Sql.of("(if({}, {}, {}) = {})", compared, value, against, against),
            lambda: Sql.of("(case when {} then true end)", compared),
            lambda: Sql.of("(case when {} then false else {} end)", self.comparison(), compared),
            lambda: Sql.of("(nullif({}, {}) is null)", value, against),
            lambda: Sql.of("({} " + rng.choice(["<=> true", "<=> false", "= false", "is not true", "is null"]) + ")", compared),
            lambda: Sql.of("({} " + rng.choice(["<>", "<=>"]) + " {})", compared, self.comparison()),
            lambda: Sql.of("(-({}) < {})", number, size),
            lambda: Sql.of("(abs({}) > {})", number, size),
            lambda: Sql.of("({} - 1.5D >= {})", number, size),
            lambda: Sql.of("(greatest({}, {}) = {})", value, same, against),
            lambda: Sql.of("(upper({}) = {})", text, string(STYLES[spot.style](5, spot).upper())),
            lambda: Sql.of("(length({}) > 3)", text),
            lambda: Sql.of("(collate({}, 'UTF8_LCASE') = {})", text, string(spot.any(rng, "string").upper())),
            lambda: Sql.of("({} < {} collate UTF8_LCASE)", text, string(spot.any(rng, "string").upper())),
            lambda: Sql.of("({} " + rng.choice(["=", "<=", "<=>"]) + " {})", value, same),
            lambda: Sql.of("({} = id)", self.get(spot, "bigint")),
            lambda: Sql.of("(is_variant_null({}))", whole),
            lambda: Sql.of("(schema_of_variant({}) = 'BIGINT')", whole),
            lambda: Sql.of("(to_json({}) = '5')", whole),
            lambda: Sql.of("(try_variant_get({}, '$.c[0]', 'int') = 5)", spot.column),
        ]
        return rng.choice(forms)()

    def constant(self) -> Sql:
        return Sql.of(
            "{}", self.rng.choice(["(1 = 1)", "(5 < 3)", "cast(null as boolean)", "('a' = 'b')", "(cast(null as int) = 5)"])
        )


def string(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0") + "'"


def constant(rng: random.Random, value: Any) -> str:
    """SQL for a value."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        suffix = rng.choice([""] * 6 + [suffix for suffix, limit in _SUFFIXES.items() if -limit < value < limit])
        return f"{value}{suffix}" if value != -(2**63) else "(-9223372036854775807 - 1)"
    if isinstance(value, Decimal):
        return f"{value:f}BD"
    if isinstance(value, np.float32):
        return f"cast('{value}' as float)"
    if isinstance(value, float):
        return f"{value!r}D" if math.isfinite(value) else f"double('{value}')"
    if isinstance(value, str):
        return string(value)
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, np.datetime64):
        return f"date_from_unix_date({int(value.astype(np.int64))})"
    if isinstance(value, dt.datetime):
        text = value.replace(tzinfo=None).isoformat(" ")
        return f"timestamp'{text}Z'" if value.tzinfo else f"timestamp_ntz'{text}'"
    return f"date'{value.isoformat()}'"


# -------------------------------------------------------------------------------------------------------------- check


class Check:
    """Checks the predicates on one table in both sessions."""

    def __init__(self, table: Table, on: SparkSession, off: SparkSession) -> None:
        self.table, self.on, self.off = table, on, off
        self.counts: Counter[str] = Counter(tables=1)
        self.wrong: list[str] = []
        trees = [Predicates(table).tree(3) for _ in range(PER_LARGE_TABLE if table.large else PER_TABLE)]
        # Most queries with casts that can fail do fail on these tables, and then there is little to compare.
        self.predicates = [tree if table.rng.random() < 0.3 else Sql(tree.safe, tree.safe) for tree in trees]
        self.matching: dict[int, set[str]] = {}
        self.kept: dict[int, set[str]] = {}
        self.files: set[str] = set()

    def run(self) -> None:
        everything = range(len(self.predicates))
        prepared = self.on.sql(f"select * from {self.table.name}")._jdf.queryExecution().optimizedPlan()
        dataset = jvm.static(self.on, "org.apache.spark.sql.classic.Dataset").ofRows(self.on._jsparkSession, prepared)
        DataFrame(dataset, self.on).createOrReplaceTempView("prepared")
        self._apart(everything, PER_AGGREGATION, self._aggregate, self._refuse)
        self._apart(self.matching, PER_PLAN, self._plan, self._fail)
        self.counts["pairs"] = len(self.kept)
        self.counts["decisions"] = len(self.kept) * len(self.files)
        for number, kept in self.kept.items():
            matching = self.matching[number]
            self.counts["without a match"] += len(self.files - matching)
            self.counts["skipped"] += len(self.files - kept)
            if not matching <= kept:
                self._confirm(number, matching - kept)
        for number in self.table.rng.sample(sorted(self.kept), min(WHOLE, len(self.kept))):
            self._whole(number)

    def _apart(self, numbers: Iterable[int], size: int, action: Callable, failed: Callable) -> None:
        """Runs the action on `size` predicates at a time. If one fails, it halves their number until this one is alone."""
        numbers = list(numbers)
        for some in [numbers[at : at + size] for at in range(0, len(numbers), size)]:
            try:
                action(some)
            except (PySparkException, Py4JJavaError) as error:
                if len(some) == 1:
                    failed(some[0], error)
                else:
                    self._apart(some, -(-len(some) // 2), action, failed)

    def _aggregate(self, numbers: list[int]) -> None:
        listed = ", ".join(f"bool_or({self.predicates[number].safe})" for number in numbers)
        self.off.conf.set(PUSH, "false")
        try:
            rows = self.off.sql(
                f"select element_at(split(_metadata.file_path, '/'), -1), {listed} from {self.table.name} group by 1"
            ).collect()
        finally:
            self.off.conf.set(PUSH, self.table.settings[PUSH])
        self.files = {row[0] for row in rows}
        for at, number in enumerate(numbers):
            self.matching[number] = {row[0] for row in rows if row[at + 1]}

    def _refuse(self, number: int, error: Exception) -> None:
        self.counts["refused by Spark"] += 1
        print(f"seed {self.table.seed}, Spark refuses {self.predicates[number].safe}: {str(error)[:300]}")

    def _plan(self, numbers: list[int]) -> None:
        """Reads the kept files from the optimized plan, which has no branch that Spark proves empty."""
        branches = []
        for number in numbers:
            source = SOURCES[number % len(SOURCES)].format("prepared")
            branches.append(f"select {number} q from {source} where {self.predicates[number].asked}")
        plan = self.on.sql(" union all ".join(branches))._jdf.queryExecution().optimizedPlan()
        kept: dict[int, set[str]] = {number: set() for number in numbers}
        for branch in _branches(plan):
            found = re.search(r"\b(\d+) AS q#", branch.expressions().mkString(" "))
            leaves = branch.collectLeaves()
            if found and leaves.size() and leaves.apply(0).nodeName().startswith("LogicalRelation"):
                paths = leaves.apply(0).relation().location().inputFiles()
                kept[int(found[1])] |= {unquote(path.rsplit("/", 1)[-1]) for path in paths}
        self.kept |= kept

    def _fail(self, number: int, error: Exception) -> None:
        """Planning failed with skipping."""
        if isinstance(self._rows(self.off, number), list):
            self._report(number, f"fails to plan with skipping only: {error}")
        else:
            self.counts["fail with and without"] += 1

    def _rows(self, session: SparkSession, number: int) -> list[Any] | str:
        """The rows of the query, or its error."""
        query = f"select id, p, to_json(v) j from {self.table.name} where {self.predicates[number].asked}"
        try:
            return sorted(session.sql(query).collect(), key=repr)
        except (PySparkException, Py4JJavaError) as error:
            return str(error)

    def _whole(self, number: int) -> None:
        without, found = self._rows(self.off, number), self._rows(self.on, number)
        self.counts["whole queries"] += 1
        self.counts["whole queries that fail without skipping"] += isinstance(without, str)
        if isinstance(without, list) and without != found:
            self._report(number, f"rows without skipping: {without}\n  with: {found}")

    def _confirm(self, number: int, lost: set[str]) -> None:
        without = self._rows(self.off, number)
        if isinstance(without, str):
            self.counts["files too few where the query fails"] += 1
            return
        found = self._rows(self.on, number)
        if without == found:  # Spark's own pushdown of the path changes the rows
            self.counts["files too few for the rows without push-down"] += 1
            print(f"seed {self.table.seed}, only without push-down: {self.predicates[number].asked}")
            return
        rows = f"{len(without)} rows without skipping, with: {len(found) if isinstance(found, list) else found}"
        self._report(number, f"{rows}; files too few: {sorted(lost)}", lost)

    def _report(self, number: int, text: str, lost: Iterable[str] = ()) -> None:
        table, predicate = self.table, self.predicates[number]
        lines = [f"seed {table.seed}: {text}", f"where {predicate.asked}", f"safe: {predicate.safe}", str(table.settings)]
        lines += table.history
        for name in sorted(lost)[:1]:
            rows = self.off.sql(
                f"select id, to_json(v), to_json(s.w), schema_of_variant(v) from {table.name} "
                f"where _metadata.file_path like '%{name}' and {predicate.safe}"
            ).collect()
            lines += [f"{name}:", *map(str, rows[:3]), *_statistics(table.path, name)]
        self.wrong.append("\n  ".join(lines))
        print(self.wrong[-1])


def _branches(plan: Any) -> Iterator[Any]:
    """The plans under a UNION ALL. Typed reading may have put another union in the place of one."""
    if plan.nodeName() == "Union":
        for at in range(plan.children().size()):
            yield from _branches(plan.children().apply(at))
    else:
        yield plan


def _statistics(path: Path, name: str) -> Iterator[str]:
    """Tags, number of rows and bounds of a file in the log."""
    for log in sorted((path / "_delta_log").glob("*.json")):
        for action in map(json.loads, log.read_text().splitlines()):
            if "add" in action and unquote(action["add"]["path"]).endswith(name):
                stats = json.loads(action["add"]["stats"])
                yield f"{log.name}: tags {action['add'].get('tags')}, {stats.get('numRecords')} rows"
                for side in ("minValues", "maxValues"):
                    for column_name, text in stats.get(side, {}).items():
                        try:
                            yield f"{side}.{column_name} {dv.stats.decode_bounds(text)}"
                        except (DeltaVariantError, TypeError, AttributeError):
                            yield f"{side}.{column_name} {text}"


def check(spark: SparkSession, seed: int, root: Path, **options: Any) -> Check:
    """Makes one table and checks predicates on it."""
    on, off = spark.newSession(), spark.newSession()
    table = Table(seed, root / f"t{seed}", **options)
    for session in (on, off):
        for key, value in table.settings.items():
            session.conf.set(key, value)
    dv.enable(on)
    try:
        table.build(on, off)
        checked = Check(table, on, off)
        checked.run()
        return checked
    finally:
        dv.disable(on)


def checked(spark: SparkSession, seeds: Iterable[int], root: Path, **options: Any) -> Counter[str]:
    """Checks a table for each seed, and returns the counts of all."""
    spark.sparkContext.setLogLevel("OFF")  # tasks fail where a cast does
    with ThreadPoolExecutor(2) as threads:
        checks = list(threads.map(lambda seed: check(spark, seed, root, **options), seeds))
    spark.sparkContext.setLogLevel("ERROR")
    counts = sum((one.counts for one in checks), Counter())
    wrong = [text for one in checks for text in one.wrong]
    print(f"NEVER_WRONG_SEED={SEED}: {dict(counts)}")
    assert not wrong, "\n\n".join(wrong[:20])
    return counts


def test_never_wrong(spark, tmp_path):
    """Every file with a row that matches is opened; a query that succeeds without skipping has the same rows with it."""
    print(f"NEVER_WRONG_SEED={SEED}")
    counts = checked(spark, range(SEED, SEED + -(-PAIRS // PER_TABLE)), tmp_path)
    assert counts["skipped"] > counts["without a match"] / 10
    assert counts["refused by Spark"] < counts["pairs"] / 50


def test_never_wrong_about_times_in_strings(spark, tmp_path):
    """The same holds if every path has strings that spell times, of one form in most files, in any session time zone (Q8)."""
    seeds = [seed for seed in range(SEED, SEED + PAIRS) if seed % LARGE][: -(-PAIRS // 500)]
    counts = checked(
        spark, seeds, tmp_path, kinds=["spelled"], change=0.0, rates=((0, 0, 0, 0.02), *RATES[1:3], (0, 0, 0, 0.05))
    )
    assert counts["skipped"] > counts["without a match"] / 20  # half of the files are delta-spark's, and have no tag
