"""Tasks of the writer without Spark: a plan, batches as Spark delivers them, and what became of them."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from delta_variant import binary, errors, shredding
from delta_variant.storage import Storage
from delta_variant.writer.plan import Plan
from delta_variant.writer.task import write_files


def plan(directory: Path | str, variants: set[tuple[str, ...]], **changes) -> Plan:
    """A plan for a table without partitions, in a directory that exists."""
    given = {
        "location": Storage.of(str(directory)), "variants": frozenset(variants), "not_null": (), "partition_by": (),
        "timestamps": frozenset(), "shredding_schemas": {}, "infer": True, "compression": "zstd", "max_rows": None,
        "max_bytes": 128 << 20,
        "footer": {}, "num_indexed": 32, "stats_columns": None, "string_prefix": 32, "tight_bounds": False,
    }  # fmt: skip
    return Plan(**{**given, **changes})


def run(plan: Plan, batches: list[pa.RecordBatch]) -> list[dict]:
    """The Add actions, with their statistics decoded, and what the task reported beside them. Raises what it reported."""
    reports = write_files(plan, iter(batches))
    for report in reports:
        if "error" in report:
            name, message = report["error"]
            raise getattr(errors, name)(message)
    adds = [json.loads(report["add"])["add"] for report in reports]
    return [{**report, **add, "stats": json.loads(add["stats"])} for add, report in zip(adds, reports, strict=True)]


def schema(plan: Plan, add: dict) -> pa.Schema:
    """The physical schema of a local file."""
    return pq.read_schema(Path(plan.location.root, unquote(add["path"])))


def compile_kernels(directory: Path) -> None:
    """Compiles the kernels that most tests use, or loads them: in a clean checkout each Python worker would compile them."""
    compile_write(directory)
    compile_unshred()


def compile_write(directory: Path) -> None:
    texts = [json.dumps({"id": n, "s": f"x{n}", "o": {"a": n / 4, "l": [1, "x", None]}, "b": True}) for n in range(200)]
    run(plan(directory, {("v",)}), [pa.RecordBatch.from_arrays([binary.parse_json(pa.array(texts))], ["v"])])


def compile_unshred() -> None:
    group = pa.struct([pa.field("metadata", pa.binary(), nullable=False), ("value", pa.binary()), ("typed_value", pa.int64())])
    rows = [(b"\x01\0\0", None, 1), (b"\x01\0\0", b"\x0c\x01", None)]
    shredding.unshred(pa.array([dict(zip(group.names, row, strict=True)) for row in rows], group))
