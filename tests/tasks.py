"""Tasks of the writer without Spark: a plan, batches as Spark delivers them, and what became of them."""

from __future__ import annotations

import io
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from delta_variant import binary, buffers, errors, shredding
from delta_variant.parquet import footer
from delta_variant.storage import Storage
from delta_variant.writer.plan import Plan
from delta_variant.writer.task import write_files


def plan(directory: Path | str, variants: set[tuple[str, ...]], **changes) -> Plan:
    """A plan for a table without partitions, in a directory that exists."""
    given = {"location": Storage.of(str(directory)), "variants": frozenset(variants), "infer": True}
    return Plan(**{**given, **changes})


def run(plan: Plan, batches: list[pa.RecordBatch]) -> list[dict]:
    """The Add actions, with their statistics decoded, and what the task reported beside them. Raises what it reported."""
    reports = write_files(plan, iter(batches))
    for report in reports:
        if report.error is not None:
            raise getattr(errors, report.error.name)(report.error.text)
    adds = [json.loads(report.add)["add"] for report in reports]
    return [{**asdict(report), **add, "stats": json.loads(add["stats"])} for add, report in zip(adds, reports, strict=True)]


def schema(plan: Plan, add: dict) -> pa.Schema:
    """The physical schema of a local file."""
    return pq.read_schema(Path(plan.location.root, unquote(add["path"])))


def compile_kernels() -> None:
    """Compiles the kernels that most tests use, or loads them: in a clean checkout each Python worker would compile them."""
    texts = [json.dumps({"id": n, "s": f"x{n}", "o": {"a": n / 4, "l": [1, "x", None]}, "b": True}) for n in range(200)]
    variants = binary.parse_json(_array([text.encode() for text in texts], pa.string()))
    with tempfile.TemporaryDirectory() as directory:
        run(plan(directory, {("v",)}), [pa.RecordBatch.from_arrays([variants], ["v"])])
        for path in Path(directory).rglob("*.parquet"):
            footer.of(io.BytesIO(path.read_bytes()))
    columns = [_array([b"\x01\0\0"] * 2), _array([None, b"\x0c\x01"])]
    numbers = pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.arange(1, 3))])
    fields = [
        pa.field("metadata", pa.binary(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("typed_value", pa.int64()),
    ]
    shredding.unshred(pa.StructArray.from_arrays([*columns, numbers], fields=fields))


def _array(values: list[bytes | None], kind: pa.DataType | None = None) -> pa.Array:
    """A binary array. `pa.array` imports pandas, which the writer does not, and each process of `tests.daemon` would."""
    offsets = np.cumsum([0, *(len(value or b"") for value in values)], dtype=np.int32)
    data = np.frombuffer(b"".join(filter(None, values)), np.uint8)
    valid = np.array([value is not None for value in values], np.uint8)
    return buffers.binary_array(offsets, data, valid, kind or pa.binary())


if __name__ == "__main__":
    compile_kernels()
