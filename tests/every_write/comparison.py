"""What two tables are compared by: their rows, and the actions of their commits."""

from __future__ import annotations

import json
import re
from collections import Counter
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, StructType, VariantType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame


_UNIQUE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|#\d+L?")
_EXACT = re.compile(r"BIGINT|DECIMAL\(\d+,\d+\)")
_DIGITS = Context(prec=100)
_OF_FILES = re.compile("Bytes|Size|Ms$|Skipping")
"""Metrics of sizes and times, and of files that were skipped."""


def rows(df: DataFrame, metadata: list[str] | None = None) -> list[tuple[Any, ...]]:
    """The rows in an order of their own, with each Variant as JSON and its schema, in which exact numbers are of one type."""
    names, found = [*_texts(df.schema, "")], []
    for row in df.selectExpr(*names, *(metadata or [])).collect():
        values = list(row)
        for at, name in enumerate(names):
            if values[at] is not None and name.startswith("to_json"):
                values[at] = json.loads(values[at], parse_int=_number, parse_float=_number)
            elif values[at] is not None and name.startswith("schema_of_variant"):
                values[at] = _EXACT.sub("EXACT", values[at])
        found.append(tuple(values))
    return sorted(found, key=repr)


def _number(text: str) -> Decimal:
    return Decimal(text).normalize(_DIGITS)


def _texts(schema: StructType, parent: str) -> Iterator[str]:
    for field in schema.fields:
        name = f"{parent}`{field.name}`"
        if isinstance(field.dataType, VariantType):
            yield from (f"to_json({name})", f"schema_of_variant({name})")
        elif isinstance(field.dataType, StructType):
            yield f"{name} is null"
            yield from _texts(field.dataType, f"{name}.")
        elif isinstance(field.dataType, ArrayType):
            yield f"transform({name}, x -> schema_of_variant(x) || to_json(x))"
        else:
            yield f"cast({name} as string)"


def normalized(commit: list[dict[str, Any]], *, in_order: bool) -> list[str]:
    """What two commits of the same statement have in common: all but names, sizes, times, tags and bounds.

    in_order: whether files have the same rows, not only their sum.
    """
    files: Counter[str] = Counter()
    others = []
    for action in commit:
        ((kind, body),) = action.items()
        if kind in ("add", "remove", "cdc"):
            rows = {"rows": json.loads(body.get("stats") or "{}").get("numRecords")}
            rows["deleted"] = (body.get("deletionVector") or {}).get("cardinality")
            known = {key: body.get(key) for key in ("dataChange", "defaultRowCommitVersion", "clusteringProvider")}
            values = sorted(map(str, (body.get("partitionValues") or {}).values()))
            if in_order:
                known |= {"baseRowId": body.get("baseRowId"), **rows}
            else:
                files.update({f"{key} of {kind} {values}": count for key, count in rows.items() if count})
            files[f"{kind} {values} {known}"] += 1
        elif kind == "commitInfo":
            metrics = {key: value for key, value in body.get("operationMetrics", {}).items() if not _OF_FILES.search(key)}
            keys = ("operation", "operationParameters", "isolationLevel", "isBlindAppend", "readVersion")
            others.append((kind, {key: body.get(key) for key in keys}, metrics))
        elif kind == "metaData":
            others.append(
                (kind, {key: body.get(key) for key in ("schemaString", "partitionColumns", "configuration", "format")})
            )
        elif kind == "protocol":
            others.append((kind, {key: sorted(value) if isinstance(value, list) else value for key, value in body.items()}))
        else:
            others.append((kind, body))
    return sorted(f"{count} {file}" for file, count in files.items()) + [_UNIQUE.sub("…", repr(other)) for other in others]
