"""Damages files and logs and reads them, in a process of its own: `python -m tests.damaged_files.inputs BASE SEED START STOP`.

BASE is a table (`tables.build`). Each number from START to STOP is one damaged input, and depends on SEED and the
number alone. A line on standard output says which number is about to run; others say what was wrong with it. The parent notices
if the process dies or hangs (`test_damaged_files`).

What has to hold: each reader gives the right rows, or an error of this package.

* Pages with checksums: nothing else. The index of values and `_last_checkpoint`: no error either.
* Footers, page headers and pages without checksums: damage can give another valid file. Then the rows must be those that
  pyarrow reads from the same bytes. The log: the rows must be those of the files that it lists, read by `json` and pyarrow.
* A `where` leaves the rows that Arrow's filter leaves. A row with a changed value may be missing, if statistics say that there
  is no such value; if statistics were damaged, rows may be others: no reader can know. Bounds of `analyze` are the right ones,
  unless statistics or values are others.
* Arrays from IPC: what the codec returns is valid.
"""

from __future__ import annotations

import contextlib
import json
import random
import resource
import shutil
import sys
import tempfile
import traceback
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import delta_variant as dv
from delta_variant import binary, shredding
from delta_variant.analysis.task import analyze_messages
from delta_variant.errors import DeltaVariantError
from delta_variant.membership import sidecars
from delta_variant.messages import AnalysisReport, AnalyzedFile, decoded, encoded
from delta_variant.parquet_files.reader import ParquetFiles, Reader
from delta_variant.parquet_files.spark_schema import merged
from delta_variant.pieces import Piece
from delta_variant.storage import Storage
from tests.damaged_files import damage
from tests.damaged_files.tables import DELETED, FILES, INDEXED, SCHEMA, SHREDDED, analysis

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

COLUMNS = {
    "n": "n", "s": "s", "id": "try_variant_get(v, '$.id', 'bigint')", "k": "try_variant_get(v, '$.k', 'string')", "o": "v:o",
    "a": "v:o.a", "st": "st.b",
}  # fmt: skip
FILTERS: list[tuple[str, Callable[[], pc.Expression]]] = [
    ("try_variant_get(v, '$.id', 'bigint') >= 40 AND n <> 45", lambda: (pc.field("id") >= 40) & (pc.field("n") != 45)),
    ("try_variant_get(v, '$.k', 'string') = 'k3'", lambda: pc.field("k") == "k3"),
    ("n < 15 OR s = 's71'", lambda: (pc.field("n") < 15) | (pc.field("s") == "s71")),
    ("s IS NULL", lambda: pc.field("s").is_null()),
]
GROWTH = 1 << 30
"""The bytes by which the memory of a process may grow."""


# ---- rows ------------------------------------------------------------------------------------------------------------


def rows_of(table: pa.Table) -> list[str]:
    """The rows as texts, with Variants decoded, in an order that depends on the rows alone."""
    columns = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.columns]
    return sorted(
        repr(_decoded(row)) for row in pa.table(columns, table.column_names).to_pylist()
    )  # Python's times end in 9999


def _decoded(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"metadata", "value"}:
            return binary.decode(**value)
        return {key: _decoded(inner) for key, inner in value.items()}
    return [_decoded(inner) for inner in value] if isinstance(value, list | tuple) else value


def by_pyarrow(path: Path, deleted: Collection[int] = ()) -> pa.Table:
    """The rows of a file as pyarrow reads them, but for those deleted, v rebuilt by the codec alone. Raises what they raise.

    Statistics are left out: pyarrow reads no file with bounds that are too short for their type, which this package leaves out.
    """
    data = pa.BufferReader(damage.without_statistics(path.read_bytes()))
    table = pq.ParquetFile(data, arrow_extensions_enabled=False).read()
    if deleted:
        table = table.filter(pa.array([row not in deleted for row in range(table.num_rows)], pa.bool_()))
    for number, name in enumerate(table.column_names):
        if name == "v":
            table = table.set_column(number, "v", shredding.unshred(table.column(number).combine_chunks()))
    return table


class Wrong(Exception):  # noqa: N818  # a finding
    """A reader gave something that it must not give."""


# ---- inputs ----------------------------------------------------------------------------------------------------------


class Inputs:
    """Damages a copy of the table, once for each input, and reads it."""

    def __init__(self, base: Path, root: Path) -> None:
        shutil.copytree(base, root, dirs_exist_ok=True)
        self.root, self.log = root, root / "_delta_log"
        self.bytes = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
        self.data = [root / f"{number}.parquet" for number in range(FILES)]
        self.index = next(iter((root / sidecars.directory(*INDEXED)).iterdir()))
        self.counts: Counter[str] = Counter()
        self.schema = merged([(str(path), self._reader(None).columns(_piece(path))) for path in self.data])
        self.good = {
            "all": dv.scan(root).read_all(),
            "some": dv.scan(root, COLUMNS).read_all(),
            **{f"read {path.name}": dv.parquet.read_table(path) for path in self.data},
            **{f"convert {path.name}": self._converted(path) for path in self.data},
            **{f"analyze {path.name}": self._analyzed(path) for path in self.data},
        }
        self.rows = {path.name: self._kept(path) for path in self.data}
        self.kinds: dict[str, tuple[int, Callable[[random.Random], None]]] = {
            "footer": (8, lambda rng: self.file(rng, damage.of_footer)),
            "page": (6, lambda rng: self.file(rng, damage.of_page)),
            "file": (3, lambda rng: self.file(rng, damage.of_bytes)),
            "array": (2, self.array),
            "deletion vector": (1, self.vector),
            "commit": (4, self.commit),
            "checkpoint": (2, lambda rng: self.checkpoint(rng, self.log / f"{1:020}.checkpoint.parquet")),
            "checkpoint in JSON": (1, lambda rng: self.checkpoint(rng, next(self.log.glob("*.checkpoint.*.json")))),
            "sidecar of a checkpoint": (2, lambda rng: self.checkpoint(rng, next((self.log / "_sidecars").iterdir()))),
            "_last_checkpoint": (1, lambda rng: self.harmless(rng, self.log / "_last_checkpoint", damage.of_json)),
            "index of values": (
                2, lambda rng: self.harmless(rng, self.index, rng.choice([damage.of_footer, damage.of_page, damage.of_bytes]))
            ),
        }  # fmt: skip

    def run(self, rng: random.Random) -> str:
        """One input. Returns its kind."""
        weights = [weight for weight, _ in self.kinds.values()]
        [kind] = rng.choices(list(self.kinds), weights)
        try:
            self.kinds[kind][1](rng)
        finally:
            for path, data in self.bytes.items():
                if not path.exists() or path.read_bytes() != data:
                    path.write_bytes(data)
        return kind

    # ---- readers

    def outcome(self, what: str, read: Callable[[], Any]) -> Any:
        """What a reader gives; None for an error of this package. Raises Wrong for any other."""
        try:
            found = read()
        except DeltaVariantError as error:
            self.counts[f"{what}: {type(error).__name__}"] += 1
            return None
        except Exception as error:
            raise Wrong(f"{what}: {type(error).__name__}: {error}\n{traceback.format_exc(limit=-8)}") from error
        return found

    def same(self, what: str, found: pa.Table | None, *expected: Callable[[], Any]) -> None:
        """Compares rows with those of the undamaged file, and else with others, which may raise."""
        if found is None:
            return
        good, reader = self.good[what], what.partition(" ")[0]
        if found.schema.equals(good.schema) and found.equals(good):
            self.counts[f"{reader}: right rows"] += 1
            return
        rows = self.outcome(what, lambda: rows_of(found))
        if rows is None or rows == rows_of(good):
            self.counts[f"{reader}: right rows"] += 1
            return
        for others in expected:
            with contextlib.suppress(Exception):
                if rows == others():
                    self.counts[f"{reader}: rows of other valid bytes"] += 1
                    return
        raise Wrong(f"{what}: wrong rows, {len(rows)} for {good.num_rows}: {_difference(rows, rows_of(good))}")

    def _kept(self, path: Path) -> pa.Table:
        """The rows of a data file that are not deleted, in the schema of all files."""
        return _projected(by_pyarrow(path, DELETED.get(int(path.stem), ())), self.schema)

    def _reader(self, schema: pa.Schema | None) -> Reader:
        return Reader(ParquetFiles((Storage.of("/"),), frozenset({("v",)}), frozenset(), schema))

    def _converted(self, path: Path) -> pa.Table:
        return pa.Table.from_batches(list(self._reader(self.schema).rows(_piece(path))), self.schema)

    def _analyzed(self, path: Path) -> AnalysisReport:
        message = encoded(AnalyzedFile(0, path.name, None, {})).encode()
        [report] = analyze_messages(analysis(self.root), 0, iter([message]))
        return replace(decoded(AnalysisReport, report), read=0)

    def scans(self, rng: random.Random, statistics_lie: Callable[[], bool] = lambda: False, **expected: Any) -> None:
        """`scan` of the table, whole or with a predicate."""
        if rng.random() < 0.5:
            whole = self.outcome("all", lambda: dv.scan(self.root).read_all())
            if whole is not None and not (statistics_lie() and whole.num_rows == self.good["all"].num_rows):
                self.same("all", whole, *expected.get("whole", ()))
            return
        where, expression = rng.choice(FILTERS)
        some = self.outcome("some", lambda: dv.scan(self.root, COLUMNS).read_all())
        found = self.outcome("some where", lambda: dv.scan(self.root, COLUMNS, where).read_all())
        if some is None or found is None:
            return
        left, wanted = (
            Counter(self.outcome("rows", lambda: rows_of(found)) or ()),
            self.outcome("rows", lambda: rows_of(some.filter(expression()))),
        )
        if wanted is None:
            return
        more, less = left - Counter(wanted), Counter(wanted) - left
        if more or less:
            if not more and not less.keys() & set(rows_of(self.good["some"])):
                self.counts["where: changed rows skipped by statistics"] += 1
                return
            if statistics_lie():
                self.counts["where: rows by statistics that lie"] += 1
                return
            raise Wrong(f"where {where}: {_difference(sorted(left.elements()), wanted)}")

    def table(self, files: list[tuple[str, str | None]], rows: dict[str, pa.Table]) -> list[str]:
        """The rows of the table from those of its files, which are given with the value of the partition column."""
        found: list[str] = []
        for name, partition in files:
            table = rows[name].append_column("p", pa.repeat(pa.scalar(partition, pa.string()), rows[name].num_rows))
            found += rows_of(table.select(list(SCHEMA)))
        return sorted(found)

    # ---- kinds

    def file(self, rng: random.Random, method: Callable[[random.Random, bytes], bytes]) -> None:
        """A damaged data file."""
        path = rng.choice(self.data)
        data = method(rng, self.bytes[path])
        path.write_bytes(data)

        def lie() -> bool:
            return damage.statistics(data) != damage.statistics(self.bytes[path])

        self.outcome("inspect", lambda: dv.parquet.inspect(path))

        def whole() -> list[str]:
            rows = {**self.rows, path.name: self._kept(path)}
            return self.table([(name, "xy"[number % 2]) for number, name in enumerate(rows)], rows)

        self.same(
            f"read {path.name}", self.outcome("read", lambda: dv.parquet.read_table(path)), lambda: rows_of(by_pyarrow(path))
        )
        if rng.random() < 0.5:
            self.scans(rng, lie, whole=(whole,))
        elif rng.random() < 0.5:
            self.converted(path)
        else:
            self.analyzed(path, lie)

    def converted(self, path: Path) -> None:
        """`convert` of a damaged file."""
        found = self.outcome("convert", lambda: self._converted(path))
        try:
            _ = found is None or found.validate(full=True)
        except pa.ArrowInvalid:  # strings that are not UTF-8: Spark has them as they are
            self.counts["convert: strings that are not UTF-8"] += 1
            return
        self.same(f"convert {path.name}", found, lambda: rows_of(_projected(by_pyarrow(path), self.schema)))

    def analyzed(self, path: Path, lie: Callable[[], bool]) -> None:
        """`analyze` of a damaged file."""
        report = self.outcome("analyze", lambda: self._analyzed(path))
        good = self.good[f"analyze {path.name}"]
        if report is not None and report != good and report.failed is None:
            is_other = lie() or self._other_variants(path)
            self.counts["analyze: bounds of other valid bytes"] += 1
            if not is_other:
                raise Wrong(f"analyze: {report} for {good}")
        elif report is not None:
            self.counts["analyze: failed" if report != good else "analyze: right bounds"] += 1

    def _other_variants(self, path: Path) -> bool:
        """Whether pyarrow reads other values in v, or cannot read v whole."""
        try:
            column = pq.ParquetFile(path, arrow_extensions_enabled=False).read(["v"]).column("v").to_pylist()
        except Exception:  # noqa: BLE001  # whatever pyarrow raises
            return True
        path.write_bytes(self.bytes[path])
        return column != pq.ParquetFile(path, arrow_extensions_enabled=False).read(["v"]).column("v").to_pylist()

    def array(self, rng: random.Random) -> None:
        """An array whose buffers an IPC message gets wrong: each function of the codec raises, or ends with a valid array."""
        whole = self.good["read 0.parquet"].column("v").combine_chunks()
        column: Any = whole if rng.random() < 0.5 else shredding.shred(whole, SHREDDED)
        kind = rng.choice([None, pa.large_binary(), pa.binary_view()])
        if kind is not None and column is whole:
            column = pa.StructArray.from_arrays(
                [whole.field(name).cast(kind) for name in ("metadata", "value")], ["metadata", "value"]
            )
        if column is whole and rng.random() < 0.5:  # a draft of the specification, and Spark's first layout
            halves = [whole.field(name).to_pylist() for name in ("metadata", "value")]
            if rng.random() < 0.5:
                column = pa.StructArray.from_arrays(
                    [whole.field("metadata"), whole.field("value")], ["metadata", "variant_value"]
                )
            else:
                column = pa.StructArray.from_arrays([pa.array(map(bytes.__add__, *halves), pa.binary())], ["untyped_value"])
        column = column.slice(rng.randrange(3), rng.choice([1, 5, len(column)]))
        texts = pa.array([f'{{"a": {n}}}' for n in range(len(column))])
        names, columns = ["v", "t"], [column, texts.cast(rng.choice([pa.string(), pa.large_string(), pa.string_view()]))]
        batch = pa.record_batch(columns, names)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        data = bytearray(sink.getvalue().to_pybytes())
        start = batch.schema.serialize().size
        for _ in range(rng.choice([1, 2, 8])):
            at = rng.randrange(start, len(data)) & ~3
            data[at : at + 4] = rng.choice(
                [
                    b"\xff\xff\xff\xff",
                    b"\0\0\0\x7f",
                    rng.randbytes(4),
                    b"\0\0\0\0",
                    (1 << rng.randrange(30)).to_bytes(4, "little"),
                ]
            )
        try:
            [found] = pa.ipc.open_stream(pa.py_buffer(bytes(data))).read_all().to_batches()
        except Exception:  # noqa: BLE001  # the caller's own
            self.counts["array: refused by pyarrow"] += 1
            return
        variants = found.column(0)
        calls: list[tuple[str, Callable[[], Any]]] = [
            ("unshred", lambda: shredding.unshred(variants)),
            ("layouts.unshred", lambda: dv.layouts.unshred(variants)),
            ("to_json", lambda: dv.arrow.to_json(variants)),
            ("write_table", lambda: dv.parquet.write_table(pa.Table.from_batches([found]), self.root / "out.parquet")),
        ]
        if len(found.schema.field(0).type) == 2:
            calls += [
                ("shred", lambda: shredding.shred(variants, SHREDDED)),
                ("validate", lambda: shredding.validate(variants)),
                ("infer", lambda: dv.schema.infer(variants)),
            ]
        calls.append(("parse_json", lambda: binary.parse_json(found.column(1))))
        for what, call in calls:
            result = self.outcome(what, call)
            if isinstance(result, pa.Array):
                self.outcome(f"the result of {what}", lambda result=result: result.validate(full=True))

    def vector(self, rng: random.Random) -> None:
        """A damaged file of deletion vectors."""
        [path] = self.root.glob("*.bin")
        path.write_bytes(damage.of_bytes(rng, self.bytes[path]))
        self.scans(rng)

    def harmless(self, rng: random.Random, path: Path, method: Callable[[random.Random, bytes], bytes]) -> None:
        """Damage of what `scan` can do without: the rows are right."""
        path.write_bytes(method(rng, self.bytes[path]))
        before = dict(self.counts)
        self.scans(rng)
        errors = {name for name, count in self.counts.items() if count != before.get(name) and "Error" in name}
        if errors:
            raise Wrong(f"{path.name}: {errors}")

    def commit(self, rng: random.Random) -> None:
        """A damaged commit; checkpoints are there or not."""
        version = rng.randrange(4)
        path = self.log / f"{version:020}.json"
        path.write_bytes(damage.of_json(rng, self.bytes[path]))
        if rng.random() < 0.6:
            for checkpoint in self.log.glob("*.checkpoint.*"):
                if version < 3:
                    checkpoint.unlink()
        self.logs(rng)

    def checkpoint(self, rng: random.Random, path: Path) -> None:
        """A damaged checkpoint, which is the newest; the commits before it are there or not."""
        data = self.bytes[path]
        if path.suffix == ".json":
            path.write_bytes(damage.of_json(rng, data))
        else:
            path.write_bytes(rng.choice([damage.of_footer, damage.of_page, damage.of_bytes])(rng, data))
            if path.name.endswith(".checkpoint.parquet"):
                next(self.log.glob("*.checkpoint.*.json")).unlink()
        if rng.random() < 0.5:
            (self.log / f"{0:020}.json").unlink()
        self.logs(rng)

    def logs(self, rng: random.Random) -> None:
        """Reads a table with a damaged log."""
        adds = None
        with contextlib.suppress(Exception):
            adds = self._replayed()
        originals = {add["path"]: add for add in self._adds()}
        if adds is None or not all(
            add["path"] in originals and add.get("deletionVector") == originals[add["path"]].get("deletionVector")
            for add in adds
        ):
            self.counts["log: of another table"] += 1
            for where in (None, FILTERS[0][0]):
                self.outcome("another table", lambda where=where: dv.scan(self.root, COLUMNS, where).read_all())
                self.outcome("another table", lambda: dv.scan(self.root).read_all())
            return
        lie = any(add.get(name) != originals[add["path"]].get(name) for add in adds for name in ("stats", "tags", "size"))

        def whole() -> list[str]:
            return self.table([(add["path"], (add.get("partitionValues") or {}).get("p") or None) for add in adds], self.rows)

        self.scans(rng, lambda: lie, whole=(whole,))

    def _adds(self) -> list[dict[str, Any]]:
        texts = [data for path, data in self.bytes.items() if path.parent == self.log and path.stem.isdigit()]
        actions = [json.loads(line) for text in texts for line in text.splitlines()]
        return [action["add"] for action in actions if action.get("add", {}).get("path", "removed")[0] != "r"]

    def _replayed(self) -> list[dict[str, Any]] | None:
        """The Adds of the newest version, if the log has the table's metadata and protocol; read by json and pyarrow alone."""
        state: dict[str, Any] = {}
        adds: dict[str, Any] = {}
        first = 0
        for name, version in ((f"{2:020}.checkpoint.{uuid.UUID(int=2)}.json", 2), (f"{1:020}.checkpoint.parquet", 1)):
            path = self.log / name
            if path.exists():
                with contextlib.suppress(Exception):
                    found = _lines(path) if path.suffix == ".json" else pq.read_table(path).to_pylist(maps_as_pydicts="strict")
                    for action in list(found):
                        if action.get("sidecar"):
                            found += pq.read_table(self.log / "_sidecars" / action["sidecar"]["path"]).to_pylist(
                                maps_as_pydicts="strict"
                            )
                    new: dict[str, Any] = {}
                    _apply(state, new, found)
                    if "metaData" in state:
                        adds, first = new, version + 1
                        break
        commits = [self.log / f"{version:020}.json" for version in range(first, 4)]
        for commit in commits:
            _apply(state, adds, _lines(commit))
        good: dict[str, Any] = {}
        _apply(good, {}, [json.loads(line) for line in self.bytes[self.log / f"{0:020}.json"].splitlines()])
        for kind in ("metaData", "protocol"):
            if any(state[kind].get(name) != value for name, value in good[kind].items()):
                return None
        return list(adds.values())


def _projected(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a table in the types of a schema, null where it lacks one."""
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, field.type))
        else:
            column = table.column(field.name)
            columns.append(column if field.name == "v" else column.cast(field.type))
    return pa.table(columns, names=schema.names)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines() if line.strip()]


def _apply(state: dict[str, Any], adds: dict[str, Any], actions: list[dict[str, Any]]) -> None:
    added = []
    for action in actions:
        for kind in ("metaData", "protocol"):
            if action.get(kind) is not None:
                state[kind] = action[kind]
        if action.get("remove") is not None:
            adds.pop(action["remove"]["path"], None)
        if action.get("add") is not None:
            added.append(action["add"])
    adds.update({add["path"]: add for add in added})


def _piece(path: Path) -> Piece:
    return Piece(0, str(path), path.name, path.stat().st_size)


def _difference(found: list[str], wanted: list[str]) -> str:
    more, less = (Counter(found) - Counter(wanted)), (Counter(wanted) - Counter(found))
    return f"found {[*more][:2]} and not {[*less][:2]}"[:1500]


def main(base: str, seed: str, start: str, stop: str) -> None:
    """Runs some inputs."""
    limit = 12 << 30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    kinds: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="delta-variant-fuzz-") as folder:
        inputs = Inputs(Path(base), Path(folder, "table"))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in range(int(start), int(stop)):
            print(number, flush=True)
            try:
                kinds[inputs.run(random.Random(f"{seed}/{number}"))] += 1
            except Wrong as error:
                print(json.dumps({"wrong": str(error)}), flush=True)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
        if grown > GROWTH:
            print(json.dumps({"wrong": f"the memory has grown by {grown} bytes"}), flush=True)
    print(json.dumps({"kinds": kinds, "counts": inputs.counts}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
