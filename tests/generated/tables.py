"""Tables with documents that a seed chooses: types, files and writers of every kind."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from packaging.version import Version
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

import delta_variant as dv
from delta_variant.constants import READS_SHREDDED
from delta_variant.paths import object_keys
from delta_variant.schema import infer
from tests.generated.predicates import Predicates
from tests.generated.values import EXTREMES, KINDS, OTHERS, POSITIONS, SCALES, SPELLINGS, STYLES, Spot
from tests.strategies import column
from tests.support import deltas_own_files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from delta_variant.paths import Keys


LARGE = 6  # one table in six has large files too
PUSH = "spark.sql.variant.pushVariantIntoScan"


ELEMENTS: list[Keys] = [("d", 0), ("e", 0, "x"), ("f", 0, 1)]
"""Paths through arrays. Each is in a table once more with the next index, and values of the same kind."""
KEYS: list[Keys] = [
    ("a",),
    ("b",),
    ("c",),
    ("o", "x"),
    ("o", "y"),
    ("k.d",),
    ("it's",),
    ("é b",),
    ("back\\slash", "\u0007"),
    (),
]
LATE = ("late",)  # a path of large files only
HEAD, TAIL, DISTINCT = 4200, 300, 60  # rows of a large file: delta-spark looks at 4,096 to choose a schema
RATES: Sequence[Sequence[float]] = ((0, 0, 0.05, 0.3), (0, 0, 0.3), (0, 0, 0, 0.2), (*[0] * 8, 0.15))
"""Rates of extremes, missing paths, nulls and values of other types."""
ZONES = ["UTC", "America/New_York", "America/St_Johns", "Asia/Kathmandu", "Pacific/Apia", "+05:30"]
NEEDS_CODEGEN = Version(pyspark.__version__) < Version("4.2")
"""Whether Spark cannot read a VARIANT column of a file with a deletion vector without generated code."""
SHREDS_NOTHING = Version(pyspark.__version__) < Version("4.1")
"""Whether files of Spark are never shredded, and may be too small for filters."""
NO_MAPPED_PATHS = Version(pyspark.__version__) < Version("4.1")
"""Whether Delta cannot read a table with column mapping if Spark's scan is to extract paths."""
# Every query is planned once, on a few rows: compiling it takes longer than all the rest.
SMALL = {
    "spark.sql.codegen.wholeStage": str(NEEDS_CODEGEN).lower(),
    "spark.sql.codegen.factoryMode": "FALLBACK" if NEEDS_CODEGEN else "NO_CODEGEN",
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
    elements: list[Spot] = field(init=False)  # those of the spots that are in arrays
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
            READS_SHREDDED: "true",  # which is not the default of Spark 4.0
            **SMALL,
        }
        spots = [
            Spot(name, keys, rng.choice(self.kinds or (KINDS[:-2] if rng.random() < 0.9 else KINDS[-2:])), *self._grid())
            for name, some in (("v", [*KEYS, LATE, *ELEMENTS]), ("s.w", [*KEYS[:4:3], ELEMENTS[0]]))
            for keys in some
        ]
        self.elements = [spot for spot in spots if spot.is_element]
        self.elements += [
            replace(spot, keys=tuple(key + 1 if isinstance(key, int) else key for key in spot.keys)) for spot in self.elements
        ]
        self.spots = [spot for spot in spots if not spot.is_element] + self.elements

    def _grid(self) -> tuple[int, int, str, str]:
        rng = self.rng
        return rng.choice(SCALES), rng.choice([1, 7, 13]), rng.choice([*STYLES]), rng.choice([*SPELLINGS])

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
        if NO_MAPPED_PATHS and self.settings[PUSH] == "true":
            mapping = "none"
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
            objects = [(spot.column, keys) for spot in self.spots if (keys := object_keys(spot.keys)) is not None]
            paths = [f"{name}:$" + "".join(map(_step, keys)) for name, keys in objects]
            indexed = dv.VariantTable.forPath(session, self.path).analyze(bloom=paths, budget=1.0).indexed
            self.history.append(f"index: {indexed}")
            assert indexed.filters or (SHREDS_NOTHING and indexed.no_room), f"seed {self.seed}: {self.history}"
            assert not indexed.failed, f"seed {self.seed}: {self.history}"
        for _ in range(rng.choice([0, 1, 1, 2])):
            self._change(session, off)
        if rng.random() < 0.4:
            done = dv.VariantTable.forPath(session, self.path).analyze()
            self.history.append(f"analyze: {done}")
            assert not done.failed, f"seed {self.seed}: {self.history}"

    def alike(self, session: SparkSession) -> Path:
        """Another table with these columns, of three files of this package with the same shredding schema."""
        size = self.rng.randrange(6, 25)
        frame, shapes = self._frame(session, 3, size, large=False)
        path = self.path.with_name(f"{self.path.name}-alike")
        given = {name: shape for name, shape in shapes.items() if shape is not None}
        dv.write(frame, path, max_rows_per_file=size, shred=given or "auto")
        return path

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
        pq.write_table(pa.table(columns, ["id", "p", "v", "w"]), source)  # Spark 4.0 cannot read the logical type VARIANT
        read = session.read.schema("id bigint, p int, v variant, w variant").parquet(source)
        frame = read.selectExpr("id", "p", "v", "named_struct('w', w) s").coalesce(1)
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


def _put(document: Any, keys: Keys, value: Any) -> Any:
    if not keys:
        return value
    first, *rest = keys
    container: Any = [] if rest and isinstance(rest[0], int) else {}
    if isinstance(first, int) and isinstance(document, list):
        elements = [*document, *[None] * (first - len(document)), *[container] * (first >= len(document))]
        elements[first] = _put(elements[first], tuple(rest), value)
        return elements
    if isinstance(first, str) and isinstance(document, dict):
        return {**document, first: _put(document.get(first, container), tuple(rest), value)}
    return document
