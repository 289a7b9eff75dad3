"""Makes the plan of a write from Delta's request, and the PySpark function that carries it out in tasks.

In: what Delta's transaction knows of the table, the columns of its rows, in the names and the order of
`scala/WritingTransaction.scala`, and what a call of `write` asks for. Out: the plan that every task gets, and the pickled
function. The rows have passed Delta's own checks, so tasks check nothing but what the encoding and Parquet require.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from delta_variant import jvm, mapping, pairs, stats
from delta_variant.errors import DeltaVariantError, UnsupportedFeatureError
from delta_variant.features import TableFeatures
from delta_variant.membership.sidecars import APPLICATION
from delta_variant.messages import ClusterReply, ClusterRequest, WriteReply, WriteRequest
from delta_variant.paths import ColumnPath, listed, quoted
from delta_variant.stats.files import column_names
from delta_variant.storage import Storage
from delta_variant.writer import clustering, file_sizes, indexing, shredding_schemas
from delta_variant.writer.arguments import CLUSTER_BY_OPTION, SHRED, Request, sparks_codec
from delta_variant.writer.column_types import check_types, leaves
from delta_variant.writer.partitions import check_ascii
from delta_variant.writer.plan import Plan
from delta_variant.writer.row_sources import LateVariants, ParsedTexts, RowSource
from delta_variant.writer.shredding_schemas import Shred
from delta_variant.writer.task import write_messages

if TYPE_CHECKING:
    from delta_variant.writer.task_events import EventSender

_FIELD_ID = "parquet.field.id"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The version that a worker must have to run a function that is pickled here."""
WHOLE = 1 << 62
"""The size after which a file ends: a task of Delta's writes one file, however large."""
_UNKNOWN = 1 << 31
"""The files of a table whose log would have to be read to count them."""


def plan(request: WriteRequest, location: Storage, asked: Request | None = None) -> Plan:
    """The plan of a write. asked: what a call of `write` asks for; None for a command of Delta's.

    Raises InvalidSchemaError, InvalidPathError, UnsupportedFeatureError and TableError for what tasks do not write, and for
    arguments, options and properties that do not fit the table.
    """
    table, columns, by = features(request), _struct(request.columns), request.partition_by
    table.check_writable()
    check_types(columns)
    schema, physical = mapping.schemas(table.schema)
    for field in physical:
        if field.name in by and isinstance(field.dataType, T.BinaryType):
            raise UnsupportedFeatureError(f"partition column {field.name} is BINARY: choose another column")
    if not request.names_unicode:
        check_ascii("/".join([location.root, *by]))
    asked = asked or _command(request)
    option, closes_given = shred_option(table)
    shred = option if asked.shred == "auto" and asked.has_new_rows else asked.shred
    cluster_by = asked.cluster_by or listed(table.properties.get(CLUSTER_BY_OPTION, ""))
    given = shredding_schemas.given(shred, schema, table.properties)
    if shred not in ("auto", False):
        table.check_shredding(", or leave out shred=")
    data = T.StructType([field for field in physical if field.name not in by])
    stored = {path for path, kind in leaves(data) if isinstance(kind, T.VariantType)}
    variants = frozenset(path for path, kind in leaves(columns) if isinstance(kind, T.VariantType))
    if not variants <= stored:
        raise UnsupportedFeatureError("VARIANT columns of the rows are not those of the table")
    paths = mapping.physical_paths(table.schema)
    first = shredding_schemas.first_bounds(schema, table.properties, cluster_by)
    to_index = shredding_schemas.paths_of(schema, table.properties, indexing.BLOOM)
    budget = indexing.share(None, table.properties)
    files = _UNKNOWN if request.files is None else request.files
    max_bytes = file_sizes.target_bytes(table.properties)
    ids: dict[ColumnPath, int] = {(field.name,): field.metadata[_FIELD_ID] for field in columns if _FIELD_ID in field.metadata}
    return Plan(
        location=location,
        variants=variants,
        partition_by=by,
        timestamps=frozenset(f.name for f in physical if isinstance(f.dataType, T.TimestampType)),
        shredding_schemas={paths[path]: kind for path, kind in given.items() if table.shredding and paths[path] in variants},
        infer=shred == "auto" and table.shredding and bool(variants),
        closes_given=closes_given,
        compression=asked.compression,
        max_rows=asked.max_rows,
        max_bytes=asked.max_bytes or max_bytes,
        footer={"org.apache.spark.version": request.spark},  # without this key Spark shifts or refuses old dates
        annotates=request.annotates,
        names_unicode=request.names_unicode,
        string_prefix=request.string_prefix,
        with_statistics=frozenset(_with_statistics(table, data, stored, paths)),
        tight_bounds="deletionVectors" in table.names,
        tags=files < stats.MAX_TAGGED_FILES,
        field_ids={**ids, **mapping.field_ids(table.schema)},
        random_prefix=table.random_prefix,
        first_bounds={paths[path]: keys for path, keys in first.items()},
        index=indexing.plan(location, table, to_index, budget, files) if to_index else None,
        sources=_sources(request, location, table, columns, asked),
        identity_columns=request.identity_columns,
    )


def _command(request: WriteRequest) -> Request:
    """What a command of Delta's asks for."""
    max_rows = request.max_rows if request.max_rows > 0 else None
    return Request("append", compression=sparks_codec(request.compression), max_rows=max_rows, max_bytes=WHOLE)


def shred_option(table: TableFeatures) -> tuple[Shred, bool]:
    """How the options say that columns are shredded, and whether objects of given schemas are closed."""
    value = table.properties.get(SHRED, "auto").lower()
    if value not in ("auto", "closed", "false"):
        raise UnsupportedFeatureError(f"{SHRED}={value!r} is not one of auto, closed, false")
    return False if value == "false" else "auto", value == "closed"


def _sources(
    request: WriteRequest, location: Storage, table: TableFeatures, columns: T.StructType, asked: Request
) -> tuple[RowSource, ...]:
    """What tasks make rows of; nothing if they get the rows."""
    ids = mapping.ids_in_files(table)
    late = [LateVariants(location, {name: ids((name,)) for name in request.late})] if request.late else []
    texts = [ParsedTexts(request.texts)] if request.texts else []
    pieces = asked.pieces and asked.pieces.planned(request, pairs.arrow_schema(columns))
    if pieces is None:
        return (*late, *texts)
    if request.identity_columns:
        raise UnsupportedFeatureError(
            f"{table.table} has the identity column {', '.join(request.identity_columns)}, and all rows of a file would get "
            "one value: write the files to another table, and its rows to this one"
        )
    return (*late, pieces)


def _with_statistics(
    features: TableFeatures,
    data: T.StructType,
    variants: Collection[ColumnPath],
    physical_paths: Mapping[ColumnPath, ColumnPath],
) -> list[ColumnPath]:
    """The leaf columns that get statistics, by their physical names, as the table's properties say.

    data: the columns of the table without the partition columns, by their physical names.
    """
    count = int(features.properties.get("delta.dataSkippingNumIndexedCols", "32"))
    named = features.properties.get("delta.dataSkippingStatsColumns")
    if named is not None:
        folded = {tuple(map(str.lower, logical)): physical for logical, physical in physical_paths.items()}
        paths = [folded.get(parts, parts) for parts in column_names(named)]
        named = ",".join(".".join(map(quoted, path)) for path in paths)
    return stats.indexed_columns(pairs.arrow_schema(data), variants, count, named)


def reply(request: WriteRequest, plan: Plan, events: EventSender | None) -> WriteReply:
    """The function for a plan. events: what it sends its events to; without it, an error fails the job."""
    task = partial(write_messages, plan, pairs.arrow_schema(_struct(request.sent_columns)), events)
    return WriteReply(encoded(task), PYTHON, APPLICATION if plan.index else None)


def encoded(function: Callable[[int, Iterator[bytes]], Iterator[bytes]]) -> str:
    """A function of tasks, as WriteReply has it."""
    return base64.b64encode(jvm.pickled(function)).decode()


def features(request: WriteRequest) -> TableFeatures:
    """The table features, with our options and the session's settings as properties: an option goes before a property."""
    found = TableFeatures.from_json(f"delta.{quoted(request.location)}", request.protocol, request.metadata)
    return replace(found, properties={**request.settings, **found.properties, **request.options})


def _struct(text: str) -> T.StructType:
    return T.StructType.fromJson(json.loads(text))


def cluster(request: ClusterRequest) -> ClusterReply:
    """The keys by which new rows are sorted. If a text names no key, there are none, and the reply has the reason."""
    table = TableFeatures.from_json("the table", request.protocol, request.metadata)
    task_bytes = 0
    try:
        task_bytes = file_sizes.target_bytes(table.properties)
        keys = clustering.keys(_struct(request.columns), listed(request.keys))
    except DeltaVariantError as error:
        return ClusterReply((), task_bytes, str(error))
    return ClusterReply(tuple(keys), task_bytes, "")
