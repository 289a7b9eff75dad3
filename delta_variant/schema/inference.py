"""Samples of a VARIANT column → shredding schema.

In: any number of struct<metadata, value> arrays. A `Sample` keeps only counts by path. Out: an Arrow type for
`shredding.shred`. Source: VariantShredding leaves the choice of a schema to the writer; the rules are in `infer`. Invariant: a
result passes `schema.check`, and depends on the rows of a sample, not on their order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from delta_variant import types as t
from delta_variant.buffers import (
    Bytes,
    Faults,
    Int32s,
    Int64s,
    Variants,
    as_binary,
    flags_of,
    hash_table,
    storage_of,
)
from delta_variant.errors import InvalidLayoutError
from delta_variant.kernels import sample as k

MAX_LEAVES = 256
RARE = 20
"""A path must be in one row of this many. Files of wide objects are smallest with 20 (`python -m benchmarks.inference`)."""

MOSTLY_NULL = 200
"""One value of this many must have the type. From about 300 on, fields that are otherwise null take more space with columns."""

MISFIT = 8
"""A value in an array that does not fit its type takes the space of this many digits more than in the column.

Files of arrays of decimals are smallest with 2 to 8 (`python -m benchmarks.inference`).
"""

MAX_ARRAYS = 12
"""The limit for arrays within arrays.

Spark takes 9 seconds for a row with 20 of them, DuckDB 14 seconds for one with 24, and each further array doubles the time.
"""

MAX_PATHS = 1 << 15
_CELLS = 1 << 20
_INTEGERS = (t.INT8, t.INT16, t.INT32, t.INT64)
_EXACT = (*_INTEGERS, t.DECIMAL4, t.DECIMAL8, t.DECIMAL16)

Counts = npt.NDArray[np.int64]


def infer(arrays: pa.Array | pa.ChunkedArray | Iterable[pa.Array], max_leaves: int = MAX_LEAVES) -> pa.DataType | None:
    """The shredding schema that suits a sample of a VARIANT column; None if nothing is worth shredding.

    arrays: struct<metadata: binary, value: binary>, one array or several. max_leaves: the limit for typed columns. Raises
    MalformedVariantError, InvalidLayoutError. The rules are:

    1. A path counts if at least one row in 20 has it, null or not; inside an array, also at least one element in 20.
    2. It gets a type if more than half of its values that are not null fit that type; the others stay in `value`. Paths below
       it count only if more than half of these values are objects, or more than half are arrays.
    3. Integers and decimals of all scales are one class. Their type is the first of bigint, decimal(18, s) and decimal(38, s),
       with the smallest s, that fits all such values of the sample. A path has bounds in the Delta log only if nothing stays
       in `value`, and bounds are worth 16 bytes instead of 8 for a value. If no type fits all, it is the first of those that
       fit the most values, so that an outlier that fits no type has no influence. Paths through arrays have no bounds: of
       the types that fit more than half of the values, they get the first that takes the fewest digits. A value of a smaller
       scale takes a zero for each missing place, and a value that does not fit takes eight digits. Integers of any width
       become bigint, so that files agree. Types of other classes take only values of their own type.
    4. Nulls, empty objects and arrays, and rare fields get no column and influence no type. A path that is mostly null gets its
       type if at least one value in 200 has it.
    5. If there are more than `max_leaves` paths, those with the most values of their type are kept; a path in an array counts
       for at most as many values as there are rows. Among equals, paths in fewer arrays come first, then those with more
       values, then the order of names decides.
    6. Fields that other readers cannot read stay in `value`: those whose names are empty or contain a NUL; of an object's
       fields whose names differ only in case, all but the most frequent; and paths through more than 12 arrays or more than 32
       levels.

    Up to 32,768 different paths are counted exactly. If one array has more, or all arrays together have, the paths in fewer
    than n rows are dropped, where n is the smallest power of two that leaves few enough. The order of rows never matters.

    >>> import delta_variant as dv
    >>> events = dv.arrow.VariantArray.from_pylist([{"id": 1, "actor": {"name": "x"}}, {"id": 2}])
    >>> print(dv.schema.infer(events))
    struct<actor: struct<name: string>, id: int64>
    """
    sample = Sample()
    several = arrays.chunks if isinstance(arrays, pa.ChunkedArray) else [arrays] if isinstance(arrays, pa.Array) else arrays
    for array in several:
        sample.add(array)
    return sample.schema(max_leaves)


class Sample:
    """Counts the paths and types in VARIANT columns; counts of several samples can be merged.

    depth: how many levels of objects and arrays are entered; deeper paths are not counted. Of more than 32,768 paths only the
    frequent ones are kept (see `infer`).

    >>> import delta_variant as dv
    >>> sample = dv.schema.Sample()
    >>> sample.add(dv.arrow.VariantArray.from_pylist([{"id": 1}, {"id": 2}]))
    >>> sample.rows, str(sample.schema())
    (2, 'struct<id: int64>')
    """

    # Path 0 is the column. The key of a path is its parent's number and a name, None for the elements of an array. Parents have
    # lower numbers than their children.

    def __init__(self, depth: int = k.MAX_DEPTH) -> None:
        self.rows = 0
        self._depth = min(depth, k.MAX_DEPTH)
        self._keys: list[tuple[int, bytes | None]] = [(-1, None)]
        self._number = {self._keys[0]: 0}
        self._in_rows = np.zeros(1, np.int64)
        self._counts = np.zeros((1, k.COLUMNS), np.int64)

    def add(self, array: pa.Array) -> None:
        """Counts an array of struct<metadata, value> in any of its storage forms.

        Raises MalformedVariantError, InvalidLayoutError.
        """
        array, children = storage_of(array, "infer")
        if set(children) != {"metadata", "value"}:
            raise InvalidLayoutError(f"infer takes a struct<metadata: binary, value: binary>, not {array.type}")
        faults = Faults(0)
        self.add_variants(
            Variants.open(as_binary(children["metadata"]), as_binary(children["value"]), flags_of(array), faults), faults
        )

    def add_variants(self, rows: Variants, faults: Faults) -> None:
        """Counts the Variants of some rows, which report to `faults`. Raises MalformedVariantError."""
        keys = rows.keys
        column = (rows.data, rows.at, rows.limit, rows.dictionary, keys.data, keys.start, keys.key_at, keys.key_size)
        self._add(*_tree(column, self._depth, faults))
        self.rows += int(np.count_nonzero(rows.at >= 0))

    def merge(self, other: Sample) -> None:
        self.rows += other.rows
        self._add(other._keys, other._in_rows, other._counts)

    def schema(self, max_leaves: int = MAX_LEAVES) -> pa.DataType | None:
        """The shredding schema by the rules of `infer`; None if nothing is worth shredding."""
        leaves = self._leaves()
        types = {leaf.number: leaf.type for leaf in sorted(leaves, key=lambda leaf: leaf.rank)[:max_leaves]}
        children: defaultdict[int, dict[bytes | None, pa.DataType]] = defaultdict(dict)
        for number in range(len(self._keys) - 1, -1, -1):
            typed = types.get(number)
            if number in children:
                inner = children.pop(number)
                typed = pa.list_(inner[None]) if None in inner else _object(inner)
            if typed is not None:
                parent, name = self._keys[number]
                children[parent][name] = typed
        return children[-1].get(None)

    def schema_of(self, paths: Iterable[tuple[str, ...]]) -> pa.DataType | None:
        """The shredding schema of these paths alone, however rare they are, with the types that most of their values have.

        Paths are left out that have no value, mostly objects or arrays, or no type that fits more than half of their values.
        None if nothing is left.
        """
        tree: dict[str, Any] = {}
        for keys in sorted(paths):
            number = 0
            for key in keys:
                number = self._number.get((number, key.encode()), -1)
            mostly = None if number < 0 else _Values.of(self._counts[number].tolist()).mostly
            if isinstance(mostly, pa.DataType):
                if not keys:
                    return mostly
                node = tree
                for key in keys[:-1]:
                    node = node.setdefault(key, {})
                node[keys[-1]] = mostly
        return _nested(tree) if tree else None

    def _add(self, keys: list[tuple[int, bytes | None]], in_rows: Counts, counts: Counts) -> None:
        numbers = [0]
        for parent, name in keys[1:]:
            key = (numbers[parent], name)
            number = self._number.setdefault(key, len(self._keys))
            if number == len(self._keys):
                self._keys.append(key)
            numbers.append(number)
        grown, known = len(self._keys), len(self._in_rows)
        self._in_rows = np.concatenate([self._in_rows, np.zeros(grown - known, np.int64)])
        self._counts = np.concatenate([self._counts, np.zeros((grown - known, k.COLUMNS), np.int64)])
        self._in_rows[numbers] += in_rows
        self._counts[numbers] += counts
        if grown > MAX_PATHS:
            self._forget_rare()

    def _forget_rare(self) -> None:
        least = 2
        while np.count_nonzero(self._in_rows >= least) > MAX_PATHS:
            least *= 2
        kept = self._in_rows >= least  # parents of kept paths are kept: a path is in no more rows than its parent
        new = np.cumsum(kept) - 1
        keys = [self._keys[old] for old in np.flatnonzero(kept)[1:]]
        self._keys = [self._keys[0], *((int(new[parent]), name) for parent, name in keys)]
        self._number = {key: number for number, key in enumerate(self._keys)}
        self._in_rows, self._counts = self._in_rows[kept], self._counts[kept]

    def _leaves(self) -> list[_Leaf]:
        """The paths that get a type by the rules of `infer`, before `max_leaves` applies."""
        frequent = np.flatnonzero(self._in_rows * RARE >= max(1, self.rows)).tolist()
        within = self._within_arrays(frequent)
        values = {number: _Values.of(self._counts[number].tolist(), number in within) for number in frequent}
        readable = self._readable([number for number in frequent if values[number].mostly is not None])
        leaves: list[_Leaf] = []
        entered = {-1: _Container(k.ARRAYS, (), -1, self.rows)}  # the column itself: its rows are the elements
        for number in sorted(readable):
            parent, name = self._keys[number]
            if parent not in entered or (name is None) != (entered[parent].kind == k.ARRAYS):
                continue
            around, here = entered[parent], values[number]
            path = (*around.path, name or b"")
            arrays, slots = (around.arrays + 1, here.count) if name is None else (around.arrays, around.slots)
            if here.count * RARE < slots or arrays > MAX_ARRAYS:
                continue
            if isinstance(here.mostly, int):
                entered[number] = _Container(here.mostly, path, arrays, slots)
            elif here.mostly is not None and here.fitting * MOSTLY_NULL >= here.count:
                rank = (-min(here.fitting, self.rows), arrays, -here.fitting, path)
                leaves.append(_Leaf(rank, number, here.mostly))
        return leaves

    def _within_arrays(self, numbers: list[int]) -> set[int]:
        """Those of some paths that go through an array. numbers: ascending, and with a path those on the way to it."""
        within: set[int] = set()
        for number in numbers:
            parent, name = self._keys[number]
            if number and (name is None or parent in within):
                within.add(number)
        return within

    def _readable(self, numbers: list[int]) -> set[int]:
        """The paths whose names every reader can read. DuckDB drops or changes the others."""
        best: dict[tuple[int, str | None], tuple[int, bytes | None, int]] = {}
        for number in numbers:
            parent, name = self._keys[number]
            if name is None or (name and b"\0" not in name):
                folded = (parent, None if name is None else name.decode().lower())
                candidate = (-int(self._in_rows[number]), name, number)
                best[folded] = min(best.get(folded, candidate), candidate)
        return {number for _, _, number in best.values()}


@dataclass(frozen=True)
class _Container:
    """An object or an array whose children count."""

    kind: int  # OBJECTS or ARRAYS
    path: tuple[bytes, ...]
    arrays: int  # number of arrays around it
    slots: int  # rows of the sample, or elements of the innermost array


@dataclass(frozen=True)
class _Leaf:
    """A path that can get a typed column; the lowest ranks come first."""

    rank: tuple[int, int, int, tuple[bytes, ...]]
    number: int
    type: pa.DataType


@dataclass(frozen=True)
class _Values:
    """The values of a path."""

    count: int  # nulls included
    mostly: pa.DataType | int | None = None  # OBJECTS, ARRAYS or the type that more than half of the values not null fit
    fitting: int = 0  # how many values that is

    @classmethod
    def of(cls, counts: list[int], within_arrays: bool = False) -> _Values:
        classes = counts[: k.CLASSES]
        count, classes[t.NULL] = sum(classes), 0
        half = sum(classes) / 2
        if sum(classes[kind] for kind in _EXACT) > half:
            mostly, fitting = _exact(counts, half, within_arrays)
        else:
            fitting = max(classes)
            kind = classes.index(fitting)
            mostly = kind if kind in (k.OBJECTS, k.ARRAYS) else t.PRIMITIVES[kind].arrow
        return cls(count, mostly, fitting) if fitting > half else cls(count)


def _exact(counts: list[int], half: float, within_arrays: bool) -> tuple[pa.DataType, int]:
    """The type for exact numerics, and how many values fit it. half: half of the values that are not null."""
    narrow_scales, narrow_digits, wide_scales, wide_digits = (
        np.array(counts[start:stop]) for start, stop in pairwise((*k.DIGITS, k.COLUMNS))
    )
    wide_scales[: k.NARROW + 1] += narrow_scales
    wide_digits[: k.NARROW + 1] += narrow_digits
    fitting = np.array(
        [
            sum(counts[kind] for kind in _INTEGERS),
            *_fitting(narrow_scales, narrow_digits),
            *_fitting(wide_scales, wide_digits),
        ]
    )
    if within_arrays:
        zeros = np.array([0, *_zeros(narrow_scales), *_zeros(wide_scales)])
        first = int(np.argmin(np.where(fitting > half, zeros - fitting * MISFIT, np.inf)))
    else:
        first = int(np.argmax(fitting))
    if first == 0:
        kind = pa.int64()
    elif first <= k.NARROW + 1:
        kind = pa.decimal128(k.NARROW, first - 1)
    else:
        kind = pa.decimal128(t.MAX_PRECISION, first - k.NARROW - 2)
    return kind, int(fitting[first])


def _fitting(scales: Counts, digits: Counts) -> Counts:
    """For each s, how many values of at most p = len(scales) - 1 digits fit a decimal(p, s).

    These are the values of a scale up to s, without those of more than p - s digits before the point.
    """
    too_long = np.cumsum(digits[::-1]) - digits[::-1]
    return np.cumsum(scales) - too_long


def _zeros(scales: Counts) -> Counts:
    """For each s, how many zeros the values of a smaller scale get behind their digits."""
    fewer = np.cumsum(scales)
    return np.cumsum(fewer) - fewer


def _object(fields: dict[bytes | None, pa.DataType]) -> pa.StructType:
    return pa.struct([(name.decode(), kind) for name, kind in sorted(fields.items()) if name is not None])


def _nested(tree: dict[str, Any]) -> pa.StructType:
    return pa.struct([(name, _nested(kind) if isinstance(kind, dict) else kind) for name, kind in sorted(tree.items())])


_Column = tuple[Bytes, Int64s, Int64s, Int32s, Bytes, Int64s, Int64s, Int64s]
_Tree = tuple[list[tuple[int, bytes | None]], Counts, Counts]
_NONE = np.empty(0, np.int64)


def _tree(column: _Column, depth: int, faults: Faults) -> _Tree:
    """The paths of a column, as in `Sample`: (keys, number of rows, counts).

    column: (data, at, limit, dictionary) of the Variants, and (data, start, at, size) of the keys of their dictionaries.
    """
    found = _walk(column, _NONE, 0, depth, faults)
    if found is not None:
        return found
    cells, seen = np.zeros(_CELLS, np.int64), np.full(_CELLS, -1, np.int64)
    no_counts = np.empty((0, k.COLUMNS), np.int64)
    faults.check(k.walk(*column, *[_NONE] * 6, 0, depth, cells, seen, no_counts, faults.report), "$")
    least = 2
    while np.count_nonzero(cells >= least) > MAX_PATHS:
        least *= 2
    while (found := _walk(column, cells, least, depth, faults)) is None:
        least *= 2
    return found


def _walk(column: _Column, cells: Counts, least: int, depth: int, faults: Faults) -> _Tree | None:
    parents, name_at, name_size, seen = (np.full(MAX_PATHS, -1, np.int64) for _ in range(4))
    cell_of, rows, counts = (np.zeros(shape, np.int64) for shape in (MAX_PATHS, MAX_PATHS, (MAX_PATHS, k.COLUMNS)))
    tree = (parents, name_at, name_size, hash_table(MAX_PATHS), cells, cell_of, least)
    found = faults.check(k.walk(*column, *tree, depth, rows, seen, counts, faults.report), "$")
    if not found:
        return None
    key_data = column[4]
    nodes = zip(parents[:found].tolist(), name_at.tolist(), name_size.tolist(), strict=False)
    keys = [(parent, None if size < 0 else key_data[at : at + size].tobytes()) for parent, at, size in nodes]
    return keys, rows[:found], counts[:found]
