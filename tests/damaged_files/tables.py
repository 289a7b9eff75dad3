"""The table that tests damage, made without Spark: files of several writers, deletion vectors, checkpoints, an index."""

from __future__ import annotations

import datetime as dt
import json
import uuid
import zlib
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

import delta_variant as dv
from delta_variant import shredding, z85
from delta_variant.analysis.plan import AnalysisPlan, AnalyzedColumn
from delta_variant.analysis.task import analyze_messages
from delta_variant.membership import data_files, sidecars
from delta_variant.membership.plan import DataFile, IndexedColumn, IndexPlan
from delta_variant.messages import AnalysisReport, AnalyzedFile, decoded, encoded
from delta_variant.storage import Storage

if TYPE_CHECKING:
    from pathlib import Path

ROWS, FILES = 24, 4
FEATURES = ["variantType", "variantShredding", "deletionVectors", "v2Checkpoint"]
SCHEMA = {
    "n": "long", "s": "string", "f": "double", "d": "decimal(12,2)", "t": "timestamp", "v": "variant", "p": "string",
    "l": {"type": "array", "elementType": "integer", "containsNull": True},
    "m": {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True},
    "st": {"type": "struct", "fields": [
        {"name": "a", "type": "integer", "nullable": True, "metadata": {}},
        {"name": "b", "type": "string", "nullable": True, "metadata": {}},
    ]},
}  # fmt: skip
SHREDDED = "id bigint, k string, o struct<a int, b array<string>>, d decimal(9,2), t timestamp"
INDEXED = (("v",), ("k",))
TABLE_ID = "t"


def rows_from(start: int) -> pa.Table:
    """The rows of a file, numbered from `start`."""
    numbers = range(start, start + ROWS)
    moment = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)
    documents: list[Any] = [
        {
            "id": n,
            "k": f"k{n % 7}",
            "o": {"a": n % 3, "b": [n, str(n)]},
            "d": Decimal(n) / 4,
            "t": moment + dt.timedelta(n),
            "x": "y",
        }
        for n in numbers
    ]
    documents[7], documents[11] = {"id": "no number", "k": None}, [1, {"id": 2}]
    variants = dv.arrow.VariantArray.from_pylist(documents).storage
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "s": [f"s{n}" if n % 5 else None for n in numbers],
            "f": [n / 7 for n in numbers],
            "d": pa.array([Decimal(n) / 4 for n in numbers], pa.decimal128(12, 2)),
            "t": pa.array([moment + dt.timedelta(hours=n) for n in numbers], pa.timestamp("us", "UTC")),
            "l": pa.array([[n, None] if n % 3 else None for n in numbers], pa.list_(pa.int32())),
            "m": pa.array([[(f"a{n % 4}", n)] for n in numbers], pa.map_(pa.string(), pa.int32())),
            "st": pa.array([{"a": n, "b": f"b{n}"} for n in numbers], pa.struct({"a": pa.int32(), "b": pa.string()})),
            "v": variants,
        }
    )


def _write(table: pa.Table, path: Path, number: int) -> None:
    if number == 0:  # by this package, several row groups
        column = table.schema.get_field_index("v")
        shredded = shredding.shred(table.column("v").combine_chunks(), SHREDDED)
        table = table.set_column(column, "v", shredded)
        footer = {"org.apache.spark.version": "4.2.0"}
        with dv.parquet.FileWriter(path, table.schema, variants=[("v",)], row_group_bytes=4000, metadata=footer) as writer:
            writer.write(table.combine_chunks().to_batches()[0])
    elif number == 1:
        pq.write_table(
            table,
            path,
            row_group_size=10,
            data_page_version="2.0",
            compression="gzip",
            write_page_checksum=True,
            write_page_index=True,
        )
    elif number == 2:  # without checksums and dictionaries
        options = {"use_dictionary": False, "data_page_size": 200, "write_page_index": True}
        pq.write_table(table, path, row_group_size=10, compression="none", **options)
    else:
        connection = duckdb.connect()
        connection.register("rows", table.drop_columns(["v", "m"]))
        connection.execute(f"copy rows to '{path}' (format parquet)")


def _vector(root: Path, rows: list[int], *, inline: bool) -> dict[str, Any]:
    data = (1681511377).to_bytes(4, "little") + BitMap64(rows).serialize()
    described = {"sizeInBytes": len(data), "cardinality": len(rows)}
    if inline:
        return {"storageType": "i", "pathOrInlineDv": z85.encode(data + bytes(-len(data) % 4)), **described}
    name = uuid.UUID(int=5)
    file = b"\x01" + len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")
    (root / f"deletion_vector_{name}.bin").write_bytes(file)
    return {"storageType": "u", "pathOrInlineDv": z85.encode(name.bytes), "offset": 1, **described}


DELETED = {2: [1, 5, 20], 3: [0, 2]}
"""The rows that deletion vectors delete, by file."""


def analysis(root: Path) -> AnalysisPlan:
    """The analysis of the table's column v."""
    return AnalysisPlan(Storage.of(str(root)), (AnalyzedColumn(("v",), (), True, None, (), ()),), False, 32, True, False)


def build(root: Path) -> None:
    """Makes the table."""
    log = root / "_delta_log"
    (log / "_sidecars").mkdir(parents=True)
    adds = []
    location = Storage.of(str(root))
    writer = sidecars.Sidecars(location, location.open(), TABLE_ID)
    plan = IndexPlan(location, TABLE_ID, (IndexedColumn(INDEXED[0], (), (INDEXED[1],)),), 0.5, 60)
    for number in range(FILES):
        path, start = root / f"{number}.parquet", number * ROWS
        _write(rows_from(start), path, number)
        stats = {"numRecords": ROWS, "minValues": {"n": start}, "maxValues": {"n": start + ROWS - 1}, "nullCount": {"n": 0}}
        message = AnalyzedFile(number, path.name, json.dumps(stats), {})
        [analyzed] = analyze_messages(analysis(root), 0, iter([encoded(message).encode()]))
        report = decoded(AnalysisReport, analyzed)
        add = {
            "path": path.name, "partitionValues": {"p": "xy"[number % 2]}, "size": path.stat().st_size, "modificationTime": 0,
            "dataChange": True, "stats": report.stats or message.stats, "tags": report.tags,
        }  # fmt: skip
        if number in DELETED:
            add["deletionVector"] = _vector(root, DELETED[number], inline=number == 3)
        adds.append(add)
        with path.open("rb") as source:
            writer.add(data_files.index_file(source, DataFile(path.name, add["size"], 0), plan, plan.paths))
    writer.flush()
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": FEATURES, "writerFeatures": FEATURES}
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in SCHEMA.items()]
    metadata = {
        "id": TABLE_ID, "format": {"provider": "parquet", "options": {}}, "partitionColumns": ["p"], "configuration": {},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
    }  # fmt: skip
    other = {**adds[0], "path": "removed.parquet"}
    commits: list[list[dict[str, Any]]] = [
        [{"protocol": protocol}, {"metaData": metadata}, {"add": adds[0]}, {"add": other}],
        [{"add": adds[1]}, {"remove": {"path": "removed.parquet", "dataChange": True, "deletionTimestamp": 0}}],
        [{"add": adds[2]}],
        [{"add": adds[3]}],
    ]
    for version, actions in enumerate(commits):
        (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))
    first = [{"protocol": protocol}, {"metaData": metadata}, {"add": adds[0]}, {"add": adds[1]}]
    _checkpoint(first, log / f"{1:020}.checkpoint.parquet")
    sidecar = log / "_sidecars" / f"{uuid.UUID(int=1)}.parquet"
    _checkpoint([{"add": add} for add in adds[:3]], sidecar)
    listed = {"path": sidecar.name, "sizeInBytes": sidecar.stat().st_size, "modificationTime": 0}
    second = [{"checkpointMetadata": {"version": 2}}, {"protocol": protocol}, {"metaData": metadata}, {"sidecar": listed}]
    (log / f"{2:020}.checkpoint.{uuid.UUID(int=2)}.json").write_text("\n".join(map(json.dumps, second)))
    (log / "_last_checkpoint").write_text(json.dumps({"version": 2, "size": 4}))


_TEXTS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
    }
)
_CHECKPOINT = pa.schema({
    "protocol": pa.struct({
        "minReaderVersion": pa.int32(), "minWriterVersion": pa.int32(), "readerFeatures": pa.list_(pa.string()),
        "writerFeatures": pa.list_(pa.string()),
    }),
    "metaData": pa.struct({
        "id": pa.string(), "format": pa.struct({"provider": pa.string(), "options": _TEXTS}), "schemaString": pa.string(),
        "partitionColumns": pa.list_(pa.string()), "configuration": _TEXTS,
    }),
    "add": pa.struct({
        "path": pa.string(), "partitionValues": _TEXTS, "size": pa.int64(), "modificationTime": pa.int64(),
        "dataChange": pa.bool_(), "stats": pa.string(), "tags": _TEXTS, "deletionVector": _VECTOR,
    }),
})  # fmt: skip


def _checkpoint(actions: list[dict[str, Any]], path: Path) -> None:
    table = pa.Table.from_pylist([{name: _pairs(value) for name, value in action.items()} for action in actions], _CHECKPOINT)
    pq.write_table(table, path, compression="snappy", write_page_checksum=True)


def _pairs(action: Any) -> Any:
    maps = ("partitionValues", "tags", "configuration")
    return {name: list(value.items()) if name in maps else value for name, value in action.items()}
