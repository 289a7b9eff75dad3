"""The tasks that sort the rows of files by keys: parts of files → sorted blocks of rows.

The first stage of an external merge sort; `writer.blocks` has the second, and `source` runs both. A task reads its parts with
`scanning`, computes the keys from their columns, sorts as many rows as take `BLOCK_BYTES`, and makes one block of those that
each new file gets. Spark would rebuild each Variant, compute its keys, send it and sort it as a row of its own.

Each new file has a range of positions. With one key, a row's position is its key. With several keys, it is the row's place on a
Hilbert curve through the space of the keys. Each key is divided into ranges of about as many rows. The ends of ranges come
from a sample, for which tasks read the keys alone.

Invariants: a row is in the first range whose end is not below its position. Memory holds a few times `BLOCK_BYTES`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from delta_variant.buffers import Int64s
from delta_variant.errors import DeltaVariantError
from delta_variant.features import TableFeatures
from delta_variant.paths import parse_column_path, parse_variant_path
from delta_variant.pieces import spans
from delta_variant.queries import casts, fields
from delta_variant.queries.evidence import TableFacts
from delta_variant.queries.expressions import Column, Get, SortNumber
from delta_variant.queries.fields import Struct
from delta_variant.scanning.files import FileReader, Output, Query
from delta_variant.scanning.log import File
from delta_variant.storage import Storage
from delta_variant.version import __version__, check_version
from delta_variant.writer.blocks import BLOCK, FILE, KEY, block_of, order_of, pieces_of

BLOCK_BYTES = 16 << 20
PART_BYTES = 64 << 20
"""About how many bytes of files a task reads at least, unless there are more cores than such tasks."""
RANGES_BITS = 10
"""The values of each of several keys are divided into 2^10 ranges, or fewer, as far as places are numbers of 63 bits."""
_WEIGHT, _PLACE = "delta_variant weight", f"{KEY}place"


@dataclass(frozen=True)
class Sorting:
    """How files are read and their rows sorted, the same for all tasks."""

    query: Query
    """The columns of the table, and those of keys behind them."""
    partition_by: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]
    """The columns of each key."""
    ranges: tuple[pa.Table, ...] = ()
    """The ends of the ranges of each key, ascending; none if there is one key."""
    ends: pa.Table | None = None
    """The ends of the new files' ranges of positions, ascending, for all files but the last; None for one file."""
    version: str = __version__
    """The version of this package on the driver."""

    @classmethod
    def of(cls, features: TableFeatures, storage: Storage, cluster_by: Sequence[str], timezone: str) -> Sorting | None:
        """How tasks sort the rows of a table; None if Spark has to do it. timezone: that of the session."""
        try:
            at = casts.zone(timezone)
            schema = fields.parse(features.schema, mapped=False)
            columns = [Output(one.name, Column(fields.resolved(schema, [one.name]))) for one in schema.fields]
            keys = [_key(schema, text, number) for number, text in enumerate(cluster_by)]
        except DeltaVariantError:
            return None
        outputs = [*columns, *(output for key in keys for output in key)]
        if _bits(len(keys)) < 1 or not all(isinstance(output.value.kind, pa.DataType) for output in outputs[len(columns) :]):
            return None  # places would have too many bits; pyarrow does not sort by structs and arrays
        facts = TableFacts(schema, frozenset(features.partition_by), at)
        system: Any = None  # each task opens its own
        query = Query(storage, system, facts, by_id=False, outputs=tuple(outputs), predicate=None)
        return cls(query, features.partition_by, tuple(tuple(output.name for output in key) for key in keys))

    @property
    def position(self) -> list[str]:
        """The columns by which rows are sorted."""
        return [*self.partition_by, *(self.keys[0] if len(self.keys) == 1 else [_PLACE])]

    @property
    def ranges_of_key(self) -> int:
        """Into how many ranges the values of a key are divided; 1 if there is one key."""
        return 1 << _bits(len(self.keys)) if len(self.keys) > 1 else 1

    @property
    def of_keys(self) -> Sorting:
        """The sorting of rows with keys and partition columns alone."""
        names = {*self.partition_by, *(name for key in self.keys for name in key)}
        outputs = tuple(output for output in self.query.outputs if output.name in names)
        return replace(self, query=replace(self.query, outputs=outputs))

    def with_ranges(self, sample: pa.Table, ranges: int) -> Sorting:
        """The sorting into so many new files. sample: rows as `sampled` makes them."""
        found = self
        if len(self.keys) > 1:
            found = replace(found, ranges=tuple(_ends(sample, list(key), self.ranges_of_key) for key in self.keys))
        return replace(found, ends=_ends(found.placed(sample), found.position, ranges)) if ranges > 1 else found

    def placed(self, rows: pa.Table) -> pa.Table:
        """The rows with their positions. With several keys, the columns of keys are left out."""
        if len(self.keys) == 1:
            return rows
        points = np.empty((len(self.keys), rows.num_rows), np.int64)
        for point, names, ends in zip(points, self.keys, self.ranges, strict=True):
            order, numbers = _ranks(rows.select(names), ends)
            point[order] = numbers
        places = hilbert(points, _bits(len(self.keys)))
        return rows.drop_columns([name for names in self.keys for name in names]).append_column(_PLACE, pa.array(places))


def _key(schema: Struct, text: str, number: int) -> list[Output]:
    """The columns of a key, as `writer.clustering.keys` has them."""
    names, path = parse_column_path(text)
    column, name = fields.resolved(schema, names), f"{KEY}{number}"
    if path is None:
        return [Output(name, Column(column))]
    value = Get(column, parse_variant_path(path), pa.string(), strict=False)
    return [Output(f"{name} number", SortNumber(value)), Output(f"{name} text", value)]


def parts(action: str) -> list[tuple[str, int]]:
    """The parts of a file, as `_read` takes them, and their bytes."""
    add = json.loads(action)["add"]
    size = int(add["size"])
    return [(json.dumps([add, start, end]), (size if end is None else end) - start) for start, end in spans(size, PART_BYTES)]


def sampled(sorting: Sorting, most: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task that takes a sample of each part, of `most` rows at most, each with the number of rows that it stands for."""
    check_version(sorting.version)
    for part, found in _read(sorting.query, batches):
        rows = pa.Table.from_batches(found, sorting.query.schema)
        chosen = np.random.default_rng(zlib.crc32(part.encode())).permutation(rows.num_rows)[:most]
        weights = np.full(len(chosen), rows.num_rows / max(1, len(chosen)))
        sample = rows.take(pa.array(chosen)).append_column(_WEIGHT, pa.array(weights))
        yield pa.RecordBatch.from_pydict({BLOCK: pa.array([block_of(sample).to_pybytes()], pa.binary())})


def sorted_blocks(sorting: Sorting, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task of the first stage. In: batches with parts of files. Out: FILE, a piece in BLOCK, and the partition columns.

    Raises what `FileReader.batches` does, and RuntimeError for another version of this package.
    """
    check_version(sorting.version)
    context = TaskContext.get()
    task, number = context.partitionId() if context else 0, count()
    pending: list[pa.RecordBatch] = []
    size = 0
    for _, found in _read(sorting.query, batches):
        for batch in found:
            pending.append(batch)
            size += batch.nbytes
            if size >= BLOCK_BYTES:
                yield from _blocks(pending, sorting, (task, next(number)))
                size = 0
    if pending:
        yield from _blocks(pending, sorting, (task, next(number)))


def _read(query: Query, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, Iterator[pa.RecordBatch]]]:
    """Each part of a file, and its rows."""
    query = replace(query, system=query.storage.open())
    for batch in batches:
        for part in batch.column(0).to_pylist():
            add, start, end = json.loads(part)
            yield part, FileReader(query, File.of(add)).batches(start, end)


def _blocks(batches: list[pa.RecordBatch], sorting: Sorting, order: tuple[int, int]) -> Iterator[pa.RecordBatch]:
    """The rows in pieces of blocks; each new file gets a block of each partition. Empties the list."""
    rows = sorting.placed(pa.Table.from_batches(batches).combine_chunks())
    batches.clear()
    order_of_rows, numbers = _ranks(rows.select(sorting.position), sorting.ends)
    rows = rows.take(pa.array(order_of_rows)).combine_chunks()
    changes = numbers[1:] != numbers[:-1]
    for name in sorting.partition_by:
        codes = rows[name].combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()
        changes |= codes[1:] != codes[:-1]
    kept = _with_plain_keys(rows.drop_columns([*sorting.partition_by]))
    for start, end in pairwise([0, *(np.flatnonzero(changes) + 1).tolist(), rows.num_rows]):
        first = rows.slice(start, 1)
        partitions = {name: first[name].combine_chunks() for name in sorting.partition_by}
        for piece in pieces_of(kept.slice(start, end - start), *order):
            yield pa.RecordBatch.from_pydict({FILE: pa.array([numbers[start]], pa.int32()), BLOCK: piece, **partitions})


def _with_plain_keys(rows: pa.Table) -> pa.Table:
    """The rows with numbers in place of times in keys, which Python compares fast."""
    for number, column in enumerate(rows.schema):
        if column.name.startswith(KEY) and pa.types.is_temporal(column.type):
            kind = pa.int64() if column.type.bit_width == 64 else pa.int32()
            rows = rows.set_column(number, column.name, rows.column(number).cast(kind))
    return rows


def _ranks(rows: pa.Table, ends: pa.Table | None) -> tuple[Int64s, Int64s]:
    """The order of rows by all of their columns and, in that order, the numbers of their ranges: how many ends are below."""
    both = rows if ends is None else pa.concat_tables([rows, ends.select(rows.column_names)])
    order = np.asarray(order_of(both.combine_chunks(), both.column_names))
    is_end = order >= rows.num_rows
    return order[~is_end].astype(np.int64), np.cumsum(is_end)[~is_end]


def _ends(sample: pa.Table, names: list[str], ranges: int) -> pa.Table:
    """The ends of all ranges but the last, so that ranges have about as many rows."""
    values = sample.select(names).combine_chunks()
    order = np.asarray(order_of(values, names))
    weights = np.cumsum(sample[_WEIGHT].to_numpy()[order])
    whole = weights[-1] if len(weights) else 0
    at = np.searchsorted(weights, np.arange(1, ranges) * (whole / ranges) - whole * 1e-9)
    return values.take(pa.array(order[at[at < len(order)]]))


def _bits(keys: int) -> int:
    return min(RANGES_BITS, 63 // keys)


def hilbert(points: Int64s, bits: int) -> Int64s:
    """The places of points on a Hilbert curve: points that are next to each other on it differ by 1 in one dimension.

    points: a row for each dimension, with integers of so many bits. Source: J. Skilling, "Programming the Hilbert curve", AIP
    Conference Proceedings 707 (2004).
    """
    x = points.astype(np.int64)
    for bit in range(bits - 1, 0, -1):
        low = (1 << bit) - 1
        for i in range(len(x)):
            is_set = (x[i] >> bit & 1).astype(np.bool_)
            swapped = np.where(is_set, 0, (x[0] ^ x[i]) & low)
            x[0] ^= np.where(is_set, low, swapped)
            x[i] ^= swapped
    for i in range(1, len(x)):
        x[i] ^= x[i - 1]
    turned = np.zeros_like(x[0])
    for bit in range(bits - 1, 0, -1):
        turned ^= np.where(x[-1] >> bit & 1, (1 << bit) - 1, 0)
    x ^= turned
    place: Int64s = np.zeros_like(x[0])
    for bit in range(bits - 1, -1, -1):
        for axis in x:
            place = place << 1 | axis >> bit & 1
    return place
