"""The public function `scan`: from its arguments to a stream over files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from delta_variant.queries.pruning import Where
from delta_variant.queries.sql import parse_column_text, parse_where, without_type
from delta_variant.scanning.files import FileReader, Output, Query
from delta_variant.scanning.index import Index
from delta_variant.scanning.log import File, Log, Snapshot
from delta_variant.scanning.stream import in_order
from delta_variant.stats import BOUNDS_TAG, TYPED_TAG_VALUE
from delta_variant.storage import Storage

Finished = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_AT_ONCE = 16
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def scan(
    path: str | os.PathLike[str],
    columns: Sequence[str] | Mapping[str, str] | None = None,
    where: str | None = None,
    *,
    version: int | None = None,
    timestamp: str | datetime | None = None,
    timezone: str = "UTC",
    storage_options: Mapping[str, str] | None = None,
) -> pa.RecordBatchReader:
    r"""The rows of a Delta table, without Spark, as a stream of Arrow record batches.

    path: a directory, or a location as Spark has it (s3a://, gs://, abfss://).

    columns: names of columns and of fields (`s.a`), and paths of VARIANT columns (`v:actor.id`, `v:actor.id::bigint`,
    `try_variant_get(v, '$.actor.id', 'bigint')`). A list names each column of the result by its text without the type; a dict
    has its names as keys, and takes the place of AS. None: all columns. An empty list: rows without columns.

    Names, paths and strings are read as Spark's SQL reads them, here and in where. Names other than letters of ASCII, digits
    and _ stand in backquotes, and so may keys: `` v:`a key` ``. Any key that is not blank may stand in brackets and single
    quotes, where no character but the quote is special: `v:['a.b']`, `v:['C:\temp']`. A number in brackets is an index:
    `v:tags[0]`. Spark has no other forms behind a colon. The path of `variant_get` is a string, with its escapes:
    `'$["two words"].tags[0]'`, and there double quotes and empty keys are allowed. Paths are case-sensitive, columns are not.

    where: a predicate of Spark SQL: AND, OR, NOT, = <> <=> < <= > >=, IN, BETWEEN, IS NULL, LIKE, startswith, over columns,
    fields, `v:path::type`, `variant_get` and `try_variant_get`, casts and literals. The rows are exactly those for which Spark,
    in its default ANSI mode, finds it true. Files and row groups whose statistics rule that out are not read, nor are files
    that the index of values rules out (`VariantTable.analyze`).

    version, timestamp: an older version of the table, by its number, or the newest at a time: a datetime, or a text that Spark
    casts to TIMESTAMP. timezone: the time zone of the session in Spark, for casts between local times and instants, and for a
    timestamp without a zone. storage_options: Hadoop's settings, as for `write` (`fs.s3a.endpoint`).

    Returns a reader with the columns asked for. Rows come file by file, in the order of each file. Types are the table's:
    decimal128, timestamps in microseconds (TIMESTAMP in UTC), CHAR padded. A VARIANT is
    struct<metadata: binary not null, value: binary not null>, as in `parquet.read_table`. A path with a type has that type. A
    path without one gets the type of its typed columns, if they hold all its values in every file that is read
    (protocol/README.md, T1 to T3) and have a common type: the larger of integers, floats or decimals, or a decimal of up to 38
    digits for integers and decimals. A JSON null is then NULL. Otherwise the path is VARIANT. For paths without a type, the
    footers of these files are read before the stream begins.

    Memory holds a few batches of about 8 MiB for each of as many files as there are cores, and the log of the version. A reader
    that is closed or dropped ends its threads. A reader is read once: DuckDB 2.0 refuses to query it again, others find
    no rows. `dataset` is for more queries.

    Raises TableError for a table, a version or a column that is not there, arguments of another type, and a damaged log;
    InvalidPathError for text that is not a path in Spark; UnsupportedFeatureError for a reader feature, a type or a predicate
    that is not supported; CastError for a literal that cannot be cast. While the reader is read, with the name of the file:
    TableError for a file that is gone or damaged; UnsupportedFeatureError for an encrypted file and for a string that is not
    UTF-8, which Spark may store but Arrow cannot hold: select other columns. With the column or path that was asked for, and
    the row of the file, from 0, too: CastError for a value that Spark cannot cast (`try_variant_get` gives NULL),
    InvalidLayoutError and MalformedVariantError for a VARIANT that the specification does not allow.

    >>> import delta_variant as dv, duckdb
    >>> reader = dv.scan("events", ["v:kind", "v:id::bigint"], where="v:id::bigint < 5")
    >>> duckdb.sql('SELECT "v:kind", count(*) FROM reader GROUP BY ALL ORDER BY ALL').fetchall()
    [('like', 1), ('view', 4)]
    """
    if not isinstance(where, str | None):
        raise TableError(f"where is a text, a predicate of Spark SQL, not {where!r}")
    query, snapshot = opened(path, columns, version, timestamp, timezone, storage_options)
    if where is not None:
        query = replace(query, predicate=Where(parse_where(where, query.facts.schema, query.facts.at), query.facts))
    files = matching(query, snapshot.files, snapshot)
    query = with_types(query, files)
    return pa.RecordBatchReader.from_batches(query.schema, batches(query, files))


def opened(
    path: str | os.PathLike[str],
    columns: Sequence[str] | Mapping[str, str] | None,
    version: int | None,
    timestamp: str | datetime | None,
    timezone: str,
    storage_options: Mapping[str, str] | None,
) -> tuple[Query, Snapshot]:
    """The columns of a version, without a predicate, and what the log says of the version."""
    at, storage = casts.zone(timezone), _storage(path, dict(storage_options or {}))
    system = storage.open()
    snapshot = Log(storage, system).snapshot(version, timestamp, at)
    facts, outputs = TableFacts(snapshot.schema, snapshot.partition_columns, at), _outputs(columns, snapshot.schema, at)
    return Query(storage, system, facts, snapshot.mapping == "id", outputs, None), snapshot


def batches(query: Query, files: Sequence[File], finished: Finished = lambda found: found) -> Iterator[pa.RecordBatch]:
    """The rows of files, in their order. finished: what is made of the batches of each file, in its thread."""
    return in_order([partial(_read, FileReader(query, file), finished) for file in files], max(2, os.cpu_count() or 2))


def _read(reader: FileReader, finished: Finished) -> Iterator[pa.RecordBatch]:
    return finished(reader.batches())


def _storage(path: str | os.PathLike[str], options: dict[str, str]) -> Storage:
    location = os.fspath(path)
    if not _SCHEME.match(location) or re.match(r"[A-Za-z]:[\\/]", location):
        return Storage.of(str(Path(location).absolute()))
    return Storage.of(location, options.get, options)


def _outputs(columns: Sequence[str] | Mapping[str, str] | None, schema: Struct, at: object) -> tuple[Output, ...]:
    if columns is None:
        return tuple(Output(field.name, Column(resolved(schema, [field.name]))) for field in schema.fields)
    if isinstance(columns, str):
        raise TableError(f"columns is a list of names, not {columns!r}: write [{columns!r}]")
    texts = list(columns.items() if isinstance(columns, Mapping) else columns)
    if not all(isinstance(text, str) for item in texts for text in (item if isinstance(item, tuple) else (item,))):
        raise TableError(f"columns is a list of texts, or a dict from names to texts, not {columns!r}")
    named = columns if isinstance(columns, Mapping) else {without_type(text): text for text in columns}
    if len(named) < len(columns):
        raise TableError("two columns of the result have the same name: pass columns as a dict from names to columns")
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
    for place, (number, value) in enumerate(open_):
        kind = common([kinds[place] for kinds in found])
        if kind is not None:
            outputs[number] = replace(outputs[number], value=replace(value, kind=kind))
    return replace(query, outputs=tuple(outputs))


def _kinds(query: Query, paths: Sequence[Get], file: File) -> list[pa.DataType | None]:
    """The type of the typed column of each path in a file; None if it does not hold all values."""
    evidence, footer = LogEvidence(file, query.facts), FileReader(query, file).places()
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
