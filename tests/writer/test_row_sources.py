"""Sources of the rows of a write: whatever Spark sends, a task writes the rows that it stands for."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from contextlib import nullcontext
from threading import Thread, active_count

import pyarrow as pa
import pytest

from delta_variant import parquet
from delta_variant.errors import InvalidJsonError
from delta_variant.json_files import JsonFiles
from delta_variant.messages import TextColumns
from delta_variant.parquet_files.reader import ParquetFiles
from delta_variant.pieces import PIECE, Piece
from delta_variant.storage import Storage
from delta_variant.writer.blocks import pieces_of
from delta_variant.writer.row_sources import JsonPieces, LateVariants, ParquetPieces, ParsedTexts, SortedBlocks, ahead
from delta_variant.writer.task import write_files
from tests import tasks
from tests.strategies import column, values

ROWS = [{"n": n, "s": f"x{n}"} for n in range(40)]
TEXTS = [json.dumps(row) for row in ROWS]
SPARKS = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])


def texts(folder) -> tuple[tuple, pa.RecordBatch]:
    return (ParsedTexts(TextColumns(("v",), None, True, False, True)),), pa.record_batch({"v": TEXTS})


def json_pieces(folder) -> tuple[tuple, pa.RecordBatch]:
    (folder / "f.json").write_text("\n".join(TEXTS))
    files = JsonFiles((Storage.of(str(folder)),), "lines", None, 1 << 20, fails=True, allow_duplicate_keys=False)
    return (JsonPieces(files, "v"),), pa.record_batch({"v": [piece(folder / "f.json")]})


def parquet_pieces(folder) -> tuple[tuple, pa.RecordBatch]:
    parquet.write_table(pa.table({"v": column(ROWS)}), folder / "f.parquet")
    files = ParquetFiles((Storage.of(str(folder)),), None, frozenset())
    return (ParquetPieces(files, schema=pa.schema([("v", SPARKS)])),), pa.record_batch({PIECE: [piece(folder / "f.parquet")]})


def blocks(folder) -> tuple[tuple, pa.RecordBatch]:
    rows = pa.table({"v": column(ROWS), "delta_variant key 0": pa.array(range(len(ROWS)))})
    schema = pa.schema([("v", rows.schema.field("v").type)])
    return (SortedBlocks(schema=schema),), pa.record_batch({PIECE: pa.concat_arrays(list(pieces_of(rows, 0, 0)))})


def late(folder) -> tuple[tuple, pa.RecordBatch]:
    parquet.write_table(pa.table({"v": column(ROWS)}), folder / "f.parquet")
    kind = pa.struct([("file", pa.string()), ("row", pa.int64()), ("variant", SPARKS)])
    places = [{"file": f"file://{folder}/f.parquet", "row": row, "variant": None} for row in range(len(ROWS))]
    return (LateVariants(Storage.of(str(folder)), {"v": ()}),), pa.record_batch({"v": pa.array(places, kind)})


def piece(path) -> str:
    return Piece(0, str(path), path.name, path.stat().st_size).json()


@pytest.mark.parametrize("made", [texts, json_pieces, parquet_pieces, blocks, late])
def test_every_source_makes_the_rows(tmp_path, made):
    """A task that gets a source with its plan, pickled as Spark sends it, writes the rows that the batches stand for."""
    (tmp_path / "source").mkdir()
    (tmp_path / "table").mkdir()
    sources, batch = made(tmp_path / "source")
    plan = pickle.loads(pickle.dumps(tasks.plan(tmp_path / "table", {("v",)}, sources=sources)))
    [add] = tasks.run(plan, [batch])
    table = parquet.read_table(tmp_path / "table" / add["path"])
    assert values(table["v"].combine_chunks()) == ROWS


def test_malformed_documents_are_counted(tmp_path):
    """Documents that a source leaves out are in a report of their own, by file."""
    (tmp_path / "f.json").write_text('{"n": 1}\n{\n[\n')
    files = JsonFiles((Storage.of(str(tmp_path)),), "lines", None, 1 << 20, fails=False, allow_duplicate_keys=False)
    plan = tasks.plan(tmp_path, {("v",)}, sources=(JsonPieces(files, "v"),))
    rows, left_out = write_files(plan, iter([pa.record_batch({"v": [piece(tmp_path / "f.json")]})]))
    assert (rows.rows, left_out.add, left_out.malformed) == (1, None, {"f.json": 2})


def test_the_row_of_a_malformed_text(tmp_path):
    """The error shows each column of the row once; Spark sends partition columns a second time, as text at the end."""
    (source,), _ = texts(tmp_path)
    batch = pa.RecordBatch.from_arrays([pa.array([7]), pa.array(["{"]), pa.array(["1"])], names=["p", "v", "p"])
    with pytest.raises(InvalidJsonError, match=r"with values: - p : 7 - v : \{; on_error"):
        list(source.rows(iter([batch]), Counter()))


@pytest.mark.parametrize("has_threads", [True, False])
@pytest.mark.parametrize("error", [None, InvalidJsonError("malformed")])
def test_batches_that_are_read_ahead(monkeypatch, has_threads, error):
    """Batches arrive in their order, and an error after those before it; also if the system has no more threads."""

    def source():
        yield from range(5)
        if error is not None:
            raise error

    def start(_):
        raise RuntimeError("can't start new thread")

    if not has_threads:
        monkeypatch.setattr(Thread, "start", start)
    found = []
    with nullcontext() if error is None else pytest.raises(InvalidJsonError):
        for batch in ahead(source()):
            found.append(batch)  # noqa: PERF402  # an error leaves what came before
    assert found == list(range(5))


def test_no_thread_reads_on_when_a_task_has_failed():
    """The worker's next task reads from the same pipe: a reader that is left ends its thread before the task ends."""
    before = active_count()
    batches = ahead(iter(range(9)))
    assert next(batches) == 0
    assert active_count() == before + 1
    batches.close()
    assert active_count() == before
