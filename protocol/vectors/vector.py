"""Vectors: a column and what a reader must make of it; how they become the files of a folder; words for writing them down.

In: Arrow columns and hexadecimal, both written by hand. Out: a Parquet or Arrow file for each, and one `expected.json`.
Invariant: nothing here or in the `cases` uses delta_variant, or encodes, shreds or reads a Variant in another way.
"""

from __future__ import annotations

import json
import re
import struct
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Row = tuple[str, str, str] | None
"""metadata, value (both in the notation of `h`), JSON text; None: the row is NULL."""

LAYOUT, MALFORMED = "layout", "malformed"


@dataclass(frozen=True)
class Vector:
    """One vector; `protocol/vectors/README.md` explains the fields that go into `expected.json`."""

    name: str
    source: str
    why: str
    column: pa.Array
    rows: Sequence[Row] | None = None
    error: str = ""
    otherwise: Sequence[Row] | str = ""  # a second outcome that the text allows: rows, or "error"
    compare: str = "bytes"
    required: bool = False  # the column itself is not nullable
    variant: bool = True  # the group carries the VARIANT logical type
    options: dict[str, Any] = field(default_factory=dict)  # of pyarrow's writer
    decimal: tuple[int, int] | None = None  # precision and scale to put on typed_value, which pyarrow writes as bare bytes
    arrow: bool = False  # an IPC file instead of Parquet


def write(vectors: Sequence[Vector], folder: Path) -> None:
    """Writes the vectors of a folder anew, and removes the files of those that it has no more."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("*.parquet"), *folder.glob("*.arrow")):
        old.unlink()
    for vector in vectors:
        table = pa.table([vector.column], pa.schema([pa.field("v", vector.column.type, not vector.required)]))
        (_write_arrow if vector.arrow else _write_parquet)(vector, table, folder)
    expected = ",\n".join(f'"{vector.name}": {_expected(vector)}' for vector in vectors)
    (folder / "expected.json").write_text("{\n" + textwrap.indent(expected, "  ") + "\n}\n", encoding="utf-8")


def _write_arrow(vector: Vector, table: pa.Table, folder: Path) -> None:
    extension = {"ARROW:extension:name": "arrow.parquet.variant", "ARROW:extension:metadata": ""}
    schema = pa.schema([table.schema.field("v").with_metadata(extension)])
    with pa.OSFile(str(folder / f"{vector.name}.arrow"), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_table(table.cast(schema))


def _write_parquet(vector: Vector, table: pa.Table, folder: Path) -> None:
    sink = pa.BufferOutputStream()
    options = {"compression": "none", "write_statistics": False, "store_schema": False, "store_decimal_as_integer": True}
    pq.write_table(table, sink, **options | vector.options)
    data = sink.getvalue().to_pybytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[start:-8]
    if vector.decimal:
        footer = _with_decimal(footer, *vector.decimal)
    if vector.variant:
        footer = _with_variant(footer)
    (folder / f"{vector.name}.parquet").write_bytes(data[:start] + footer + struct.pack("<I", len(footer)) + b"PAR1")


def _with_variant(footer: bytes) -> bytes:
    """Gives the group v the type VARIANT(1), which pyarrow cannot write, in Thrift's compact protocol.

    It is field 10 of the SchemaElement, a union holding field 16 holding field 1, behind its name and number of children.
    """
    found = re.search(rb"\x18\x01v\x15.(?=\0)", footer, re.DOTALL)
    assert found
    return footer[: found.end()] + h("5c 0c20 1301 00 00") + footer[found.end() :]


def _with_decimal(footer: bytes, precision: int, scale: int) -> bytes:
    """Gives the leaf typed_value, an INT64 or a BYTE_ARRAY, the type DECIMAL: fields 6 to 8, behind its name."""
    decimal = struct.pack("6B", 0x25, 5 << 1, 0x15, scale << 1, 0x15, precision << 1)
    return footer.replace(b"\x18\x0btyped_value\0", b"\x18\x0btyped_value" + decimal + b"\0", 1)


def _expected(vector: Vector) -> str:
    parts = [f'  "source": {json.dumps(vector.source)}', f'  "why": {json.dumps(vector.why, ensure_ascii=False)}']
    if vector.error:
        parts.append(f'  "error": "{vector.error}"')
    if vector.compare != "bytes":
        parts.append(f'  "compare": "{vector.compare}"')
    if vector.rows is not None:
        parts.append(_rows("rows", vector.rows))
    if vector.otherwise:
        parts.append('  "otherwise": "error"' if vector.otherwise == "error" else _rows("otherwise", vector.otherwise))
    return "{\n" + ",\n".join(parts) + "\n}"


def _rows(key: str, rows: Sequence[Any]) -> str:
    lines = [
        "null" if row is None else f'{{"metadata": "{h(row[0]).hex()}", "value": "{h(row[1]).hex()}", "json": {row[2]}}}'
        for row in rows
    ]
    return f'  "{key}": [\n    ' + ",\n    ".join(lines) + "\n  ]"


# --------------------------------------------------------------------------------------------------------- for the cases


def h(text: str) -> bytes:
    """Bytes from hexadecimal with spaces at will and text between single quotes, as in 0d 'n/a'."""
    return bytes.fromhex(re.sub("'([^']*)'", lambda quoted: quoted[1].encode().hex(), text))


def i64(number: int) -> str:
    """An int64 in the notation of `h`."""
    return "18" + struct.pack("<q", number).hex()


def group(typed: pa.DataType | None, *, value: bool = True, name: str = "value") -> pa.StructType:
    """struct<value, typed_value>; name: what the layout calls the first."""
    fields = [pa.field(name, pa.binary())] if value else []
    return pa.struct([*fields, pa.field("typed_value", typed)] if typed is not None else fields)


def variant(typed: pa.DataType | None, *, value: bool = True, name: str = "value") -> pa.StructType:
    """struct<metadata not null, value, typed_value>."""
    return pa.struct([pa.field("metadata", pa.binary(), False), *group(typed, value=value, name=name)])


def required(**fields: pa.DataType) -> pa.StructType:
    """A group of required fields."""
    return pa.struct([pa.field(name, kind, False) for name, kind in fields.items()])


def elements(kind: pa.DataType, *, nullable: bool = False) -> pa.ListType:
    """A three-level list, of required elements unless told otherwise."""
    return pa.list_(pa.field("element", kind, nullable))


Shredded = dict[str, Any]

MISSING: Shredded = {"value": None, "typed_value": None}


def row(metadata: str, value: str | None = None, typed: Any = None) -> Shredded:
    """A row of a column, value in the notation of `h`."""
    return {"metadata": h(metadata), **binary(value), "typed_value": typed}


def binary(value: str | None, typed: Any = None) -> Shredded:
    """A group whose value is set."""
    return {"value": None if value is None else h(value), "typed_value": typed}


def typed(value: Any) -> Shredded:
    """A group whose typed_value is set."""
    return {"value": None, "typed_value": value}
