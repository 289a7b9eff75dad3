"""Builds the metadata of rows in Spark's first layout, which has no metadata column.

In: a tree of groups whose values are metadata ‖ value. Out: the metadata of each row, with the names that the row uses in its
bytes and in its columns, and the same tree with values whose ids refer to this metadata. Source: Spark's first layout, "Parquet
Layout". Invariant: the metadata of a row is the smallest sorted dictionary of the names that its Variant uses, as
`binary.encode` makes it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delta_variant.buffers import (
    NO_FLAGS,
    PADDING,
    Bytes,
    Dictionaries,
    Faults,
    Int32s,
    Int64s,
    binary_array,
    buffers_of,
    flags_of,
)
from delta_variant.errors import InvalidLayoutError
from delta_variant.kernels import rekey as k
from delta_variant.kernels.shred import gather
from delta_variant.kernels.validate import MAX_DEPTH, validate
from delta_variant.layouts.groups import Group
from delta_variant.shredding.names import Used


@dataclass(eq=False)
class _Values:
    """One untyped_value column: where each value starts (-1: null) and ends, and the dictionary stored with it."""

    group: Group
    data: Bytes
    at: Int64s
    limit: Int64s
    dictionary: Int32s
    keys: Dictionaries
    rank: Int64s  # by key, the number of its name
    containers: int = 0

    @classmethod
    def read(cls, group: Group) -> _Values:
        """Splits and validates the values of a group. Raises MalformedVariantError."""
        assert group.value is not None
        offsets, data = buffers_of(group.value)
        valid, count, faults = flags_of(group.value), len(group.value), Faults(0)
        starts = np.empty(2 * count + 1, np.int32)
        faults.check(k.split(data, offsets, valid, starts, faults.report), group.path)
        halves = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(starts), pa.py_buffer(data)])
        at, limit = starts[1::2].astype(np.int64), starts[2::2].astype(np.int64)
        if len(valid):
            at[valid == 0] = -1
        metadata_at, number = np.full(2 * count, -1, np.int64), np.empty(2 * count, np.int32)
        metadata_at[::2] = at
        keys = Dictionaries.read(halves, metadata_at, number, faults)
        dictionary = np.ascontiguousarray(number[::2])
        source = (data, at, limit, dictionary, keys.start, *keys.numbers, 0)
        faults.check(validate(*source, MAX_DEPTH, faults.report), group.path)
        return cls(group, data, at, limit, dictionary, keys, np.empty(0, np.int64))

    def texts(self) -> pa.Array:
        """The text of each key in the dictionaries."""
        return _gathered(self.data, self.keys.key_at, self.keys.key_size)

    def pairs(self, names: int) -> Int64s:
        """row * names + rank, for each name that a value uses. names: the number of distinct names."""
        faults, stamp = Faults(0), np.full(len(self.rank), -1, np.int64)
        room = int((self.limit - self.at)[self.at >= 0].sum()) // 3
        pairs, found = np.empty(room, np.int64), np.zeros(2, np.int64)
        source = (self.data, self.at, self.limit, self.dictionary, self.keys.start, self.rank, self.group.rows)
        faults.check(k.mark(*source, names, stamp, pairs, found, faults.report), self.group.path)
        self.containers = int(found[1])
        return pairs[: found[0]]

    def rewrite(self, start: Int64s, ranks: Int64s) -> None:
        """Replaces the group's values by values with new ids. ranks[start[row]:start[row + 1]] are the names of a row."""
        largest, inner = np.empty(self.containers, np.int64), np.empty(self.containers, np.int64)
        size = np.empty(len(self.at), np.int64)
        source = (self.data, self.at, self.limit, self.dictionary, self.keys.start, self.rank, self.group.rows)
        shape = (start, ranks, largest, inner)
        k.measure_values(*source, *shape, size)
        offsets, out = _room(size)
        k.write_values(*source, *shape, offsets, out)
        self.group.value = binary_array(offsets, out, (self.at >= 0).view(np.uint8), pa.binary())


def give_metadata(root: Group, names: list[str], used: Used) -> pa.Array:
    """Builds the metadata of each row, and replaces the values in the tree by values with ids that refer to it.

    names, used: the names of the typed columns and the rows that use them, as `shredding.names.used_names` returns them. Raises
    MalformedVariantError.
    """
    columns = [_Values.read(group) for group in root.walk() if group.value is not None]
    texts = pa.concat_arrays([pa.array([name.encode() for name in names], pa.large_binary()), *(c.texts() for c in columns)])
    encoded = texts.dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary)
    rank = np.empty(len(order), np.int64)
    rank[np.asarray(order)] = np.arange(len(order))
    ranks = rank[np.asarray(encoded.indices)]
    distinct, at = max(1, len(order)), len(names)
    rows, typed = np.nonzero(used)
    pairs = [rows * distinct + ranks[typed]]
    for column in columns:
        column.rank = np.ascontiguousarray(ranks[at : at + len(column.keys.key_at)])
        at += len(column.rank)
        pairs.append(column.pairs(distinct))
    unique = np.sort(np.concatenate(pairs))
    unique = unique[np.flatnonzero(np.diff(unique, prepend=-1))]  # np.unique takes five times as long
    start = np.searchsorted(unique, np.arange(len(root.rows) + 1) * distinct).astype(np.int64)
    unique %= distinct  # now the ranks
    metadata = _metadata(start, unique, encoded.dictionary.take(order))
    for column in columns:
        column.rewrite(start, unique)
    return metadata


def _metadata(start: Int64s, ranks: Int64s, names: pa.Array) -> pa.Array:
    name_at, data = buffers_of(names)
    size = np.empty(len(start) - 1, np.int64)
    k.measure_metadata(start, ranks, name_at, size)
    offsets, out = _room(size)
    k.write_metadata(start, ranks, name_at, data, offsets, out)
    return binary_array(offsets, out, NO_FLAGS, pa.binary())


def _room(size: Int64s) -> tuple[Int32s, Bytes]:
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(size)])
    if offsets[-1] > np.iinfo(np.int32).max - PADDING:
        raise InvalidLayoutError("the Variants of one batch take more than 2 GiB: read smaller batches")
    return offsets.astype(np.int32), np.empty(int(offsets[-1]) + PADDING, np.uint8)


def _gathered(data: Bytes, at: Int64s, size: Int64s) -> pa.Array:
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(size)])
    out = np.empty(int(offsets[-1]) + PADDING, np.uint8)
    gather(data, at, offsets, out)
    return pa.Array.from_buffers(pa.large_binary(), len(at), [None, pa.py_buffer(offsets), pa.py_buffer(out)])
