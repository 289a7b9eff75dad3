"""What `scan` and `dataset` read: their arguments → `Query`, the files that can match, and the types of paths without one.

In: a location, a version, and columns as texts. Out: the columns, bound to the schema of the version; the files of the log that
bounds and the index of values keep; and the batches of files, several files at a time, in order.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

import pyarrow as pa

from delta_variant import types as t
from delta_variant.errors import TableError
from delta_variant.queries import casts
from delta_variant.queries.evidence import LogEvidence, TableFacts
from delta_variant.queries.expressions import Column, Get
from delta_variant.queries.fields import Struct, Variant, resolved
from delta_variant.queries.lexing import SURROGATE
from delta_variant.queries.sql import parse_column_text, without_type
from delta_variant.scanning.files import FileReader, Output, Query
from delta_variant.scanning.index import Index
from delta_variant.scanning.log import File, Log, Snapshot
from delta_variant.scanning.stream import in_order
from delta_variant.stats import BOUNDS_TAG, TYPED_TAG_VALUE
from delta_variant.storage import Storage

Finished = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_AT_ONCE = 16
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def opened(
    path: str | os.PathLike[str],
    columns: Sequence[str] | Mapping[str, str] | None,
    version: int | None,
    timestamp: str | datetime | None,
    timezone: str,
    storage_options: Mapping[str, str] | None,
) -> tuple[Query, Snapshot]:
    """The columns of a version, without a predicate, and what the log says of the version."""
    if not isinstance(storage_options, Mapping | None):
        raise TableError(f"storage_options is a dict from Hadoop's settings to their values, not {storage_options!r}")
    at, storage = casts.zone(timezone), _storage(path, dict(storage_options or {}))
    system = storage.open()
    snapshot = Log(storage, system).snapshot(version, timestamp, at)
    facts, outputs = TableFacts(snapshot.schema, snapshot.partition_columns, at), _outputs(columns, snapshot.schema, at)
    return Query(storage, system, facts, snapshot.mapping == "id", outputs, None), snapshot


def batches(query: Query, files: Sequence[File], finished: Finished = lambda found: found) -> Iterator[pa.RecordBatch]:
    """The rows of files, in their order. finished: what is made of the batches of each file, in its thread."""

    def read(reader: FileReader) -> Iterator[pa.RecordBatch]:
        return finished(reader.batches())

    return in_order([partial(read, FileReader(query, file)) for file in files], max(2, os.cpu_count() or 2))


def _storage(path: str | os.PathLike[str], options: dict[str, str]) -> Storage:
    location = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(location, str) or "\0" in location or SURROGATE.search(location):
        raise TableError(f"path is a directory or a location, as text without NUL or half a surrogate, not {path!r}")
    if not _SCHEME.match(location) or re.match(r"[A-Za-z]:[\\/]", location):
        return Storage.of(re.sub("^/+", "/", str(Path(location).absolute())))  # which keeps two slashes
    return Storage.of(location, options.get, options)


def _outputs(columns: Sequence[str] | Mapping[str, str] | None, schema: Struct, at: object) -> tuple[Output, ...]:
    if columns is None:
        return tuple(Output(field.name, Column(resolved(schema, [field.name]))) for field in schema.fields)
    if isinstance(columns, str):
        raise TableError(f"columns is a list of names, not {columns!r}: write [{columns!r}]")
    if not isinstance(columns, Collection):
        raise TableError(f"columns is a list of names, or a dict from names to columns, not {columns!r}")
    texts = list(columns.items() if isinstance(columns, Mapping) else columns)
    if not all(isinstance(text, str) for item in texts for text in (item if isinstance(item, tuple) else (item,))):
        raise TableError(f"columns is a list of texts, or a dict from names to texts, not {columns!r}")
    named = columns if isinstance(columns, Mapping) else {without_type(text): text for text in columns}
    if len(named) < len(columns):
        raise TableError("two columns of the result have the same name: pass columns as a dict from names to columns")
    if odd := [name for name in named if SURROGATE.search(name)]:
        raise TableError(f"{odd[0]!r} is not a valid column name: it has half a surrogate pair")
    return tuple(Output(name, parse_column_text(text, schema, at)) for name, text in named.items())  # type: ignore[arg-type]


def matching(query: Query, files: Sequence[File], snapshot: Snapshot) -> Sequence[File]:
    """The files that can have matching rows."""
    if query.predicate is None:
        return files
    index = Index(query.storage, query.system, str(snapshot.metadata.get("id")))
    return [file for file in files if query.predicate.may_match(LogEvidence(file, query.facts, partial(index.may_have, file)))]


# ---- types of paths -------------------------------------------------------------------------------------------------


def with_types(query: Query, files: Sequence[File]) -> Query:
    """The query with the types that all files prove, for paths without a type."""
    open_ = [
        (number, output.value)
        for number, output in enumerate(query.outputs)
        if isinstance(output.value, Get)
        and isinstance(output.value.kind, Variant)
        and output.value.strict
        and output.value.keys
    ]
    outputs = list(query.outputs)
    if not open_ or not files:
        return query
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(partial(_kinds, query, [value for _, value in open_]), files))
    for (number, value), kinds in zip(open_, zip(*found, strict=True), strict=True):
        kind = common(kinds)
        if kind is not None:
            outputs[number] = replace(outputs[number], value=replace(value, kind=kind))
    return replace(query, outputs=tuple(outputs))


def _kinds(query: Query, paths: Sequence[Get], file: File) -> list[pa.DataType | None]:
    """The type of the typed column of each path in a file; None if it does not hold all values."""
    evidence, footer = LogEvidence(file, query.facts), FileReader(query, file).schema()
    marked = file.tags.get(BOUNDS_TAG) == TYPED_TAG_VALUE
    return [
        footer.typed(path.fields, path.keys, by_log=marked and evidence.has_bounds(path.fields, path.keys)) for path in paths
    ]


def common(kinds: Sequence[pa.DataType | None]) -> pa.DataType | None:
    """The type that holds the values of all typed columns exactly; None if there is none.

    >>> common([pa.int8(), pa.int32(), pa.null()]), common([pa.int32(), pa.decimal128(9, 2)]), common([pa.string(), pa.int8()])
    (DataType(int32), Decimal128Type(decimal128(12, 2)), None)
    """
    whole: pa.DataType = pa.null()
    for kind in kinds:
        found = None if kind is None else _two(whole, kind if pa.types.is_null(kind) else t.read_as(kind))
        if found is None:
            return None
        whole = found
    return None if pa.types.is_null(whole) else whole


def _two(one: pa.DataType, other: pa.DataType | None) -> pa.DataType | None:
    if other is None or pa.types.is_null(one):
        return other
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_floating(one) and pa.types.is_floating(other):
        return pa.float64()
    found = t.wider(one, other) if t.is_exact(one) and t.is_exact(other) else None
    return None if found is None or pa.types.is_decimal256(found) else found
