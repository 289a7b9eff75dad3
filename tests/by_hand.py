"""Tables whose log tests write by hand, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import delta_variant as dv

if TYPE_CHECKING:
    from collections.abc import Iterable


VARIANTS = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["variantType"], "writerFeatures": ["variantType"]}
FIELD = {"nullable": True, "metadata": {}}


def by_hand(
    root: Path,
    schema: dict[str, Any],
    files: Iterable[tuple[pa.Table, dict[str, Any]]],
    *,
    protocol: Any = None,
    **metadata: Any,
) -> Path:
    """A table with these files; `schema` maps names to Delta's types, and each file has the fields of its Add action."""
    log = root / "_delta_log"
    log.mkdir(parents=True)
    fields = [{"name": name, "type": kind, **FIELD} for name, kind in schema.items()]
    actions: list[dict[str, Any]] = [
        {"protocol": protocol or {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "t", "format": {"provider": "parquet"}, "partitionColumns": [], "configuration": {},
                "schemaString": json.dumps({"type": "struct", "fields": fields}), **metadata,
            }
        },
    ]  # fmt: skip
    for number, (table, add) in enumerate(files):
        path = root / f"{number}.parquet"
        dv.parquet.write_table(table, path, shred="auto")
        size = path.stat().st_size
        actions.append(
            {"add": {"path": path.name, "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": True, **add}}
        )
    commit(root, 0, actions)
    return root


def commit(root: Path, version: int, actions: list[dict[str, Any]]) -> None:
    (root / "_delta_log" / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))
