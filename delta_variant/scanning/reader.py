"""The public function `scan`: from its arguments to a stream over files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import pyarrow as pa

from delta_variant.errors import TableError, UnsupportedFeatureError
from delta_variant.queries.pruning import Where
from delta_variant.queries.sql import parse_where
from delta_variant.scanning.query import batches, matching, opened, with_types


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
    `try_variant_get(v, '$.actor.id', 'bigint')`). A list names each column of the result by its text without the type; the
    keys of a dict are the names of the result. None: all columns. An empty list: rows without columns.

    Names, paths and strings are read as Spark's SQL reads them, here and in where. Names other than letters of ASCII, digits
    and _ stand in backquotes, and so may keys: `` v:`a key` ``. Any key that is not blank may stand in brackets and single
    quotes, where no character but the quote is special: `v:['a.b']`, `v:['C:\temp']`. A number in brackets is an index:
    `v:tags[0]`. Spark allows no other form after a colon. The path of `variant_get` is a string, with its escapes:
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
    that is dropped ends its threads and closes its files; `close()` alone does not, since pyarrow does not pass it on. A reader
    is read once: DuckDB 2.0 refuses to query it again, others find no rows. `dataset` is for more queries.

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
        value = parse_where(where, query.facts.schema, query.facts.at)
        try:
            query = replace(query, predicate=Where(value, query.facts))
        except RecursionError:
            raise UnsupportedFeatureError(f"{where!r} is nested too deep: write it with fewer levels") from None
    files = matching(query, snapshot.files, snapshot)
    query = with_types(query, files)
    return pa.RecordBatchReader.from_batches(query.schema, batches(query, files))
