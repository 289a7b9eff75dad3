"""Samples of a VARIANT column → shredding schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from delta_variant import types as t
from delta_variant.buffers import Dictionaries, Faults, as_binary, buffers_of, flags_of, hash_table, storage_of
from delta_variant.errors import InvalidLayoutError
from delta_variant.kernels import sample as k
from delta_variant.kernels.shred import starts

Counts = npt.NDArray[np.int64]

MAX_LEAVES = 256
MIN_SHARE = 0.05
DOMINANT = 0.9
_NODES, _NAME_BYTES = 1 << 15, 1 << 20
_EXACT = (t.INT8, t.INT16, t.INT32, t.INT64, t.DECIMAL4, t.DECIMAL8, t.DECIMAL16)
_EXACT_CLASS = t.INT64
_INT64_DIGITS = 18


def infer(arrays: pa.Array | Iterable[pa.Array], max_leaves: int = MAX_LEAVES) -> pa.DataType | None:
    """The schema that suits a sample of a VARIANT column, or None where nothing is worth shredding.

    The rules. A path counts where at least one row in twenty has a value there that is not null; the budget of `max_leaves` is
    spent on the paths with the most values. A path gets a type where nine in ten of its values that are not null are of one
    class: integers and decimals of all scales are one class, `bigint` where all are integers, else decimal(18, s) or
    decimal(38, s) with the largest scale s of the sample that leaves room for its digits. Objects and arrays are entered in the
    same way. Nulls, empty objects and rare fields cost nothing: they stay in `value`. The result depends on the values of the
    sample, not on their order. Raises MalformedVariantError.
    """
    sample = Sample()
    for array in [arrays] if isinstance(arrays, pa.Array) else arrays:
        sample.add(array)
    return sample.schema(max_leaves)


@dataclass(eq=False)
class _Path:
    """What a sample holds at one path."""

    counts: Counts = field(default_factory=lambda: np.zeros(k.CLASSES, np.int64))  # by class, see kernels.sample
    whole: Counts = field(default_factory=lambda: np.zeros(40, np.int64))  # by digits in front of the point
    scales: Counts = field(default_factory=lambda: np.zeros(40, np.int64))  # by digits behind it
    fields: dict[str, _Path] = field(default_factory=dict)
    element: _Path | None = None

    def merge(self, other: _Path) -> None:
        self.counts += other.counts
        self.whole += other.whole
        self.scales += other.scales
        for name, path in other.fields.items():
            self.fields.setdefault(name, _Path()).merge(path)
        if other.element is not None:
            self.element = self.element or _Path()
            self.element.merge(other.element)

    def kind(self) -> tuple[int, int]:
        """The class that dominates the values that are not null, -1 for none; and how many values it has."""
        counts = self.counts.copy()
        counts[t.NULL] = 0
        counts[_EXACT_CLASS] = sum(int(counts[kind]) for kind in _EXACT)
        for kind in set(_EXACT) - {_EXACT_CLASS}:
            counts[kind] = 0
        kind, total = int(counts.argmax()), int(counts.sum())
        return (kind, int(counts[kind])) if total and counts[kind] >= DOMINANT * total else (-1, 0)

    def exact(self) -> pa.DataType:
        """The type of a path of exact numerics."""
        digits, scale = (int(np.flatnonzero(counts).max(initial=0)) for counts in (self.whole, self.scales))
        if not self.counts[[t.DECIMAL4, t.DECIMAL8, t.DECIMAL16]].any():
            return pa.int64()
        precision = _INT64_DIGITS if digits + scale <= _INT64_DIGITS else t.MAX_PRECISION
        return pa.decimal128(precision, max(0, min(scale, precision - digits)))

    def leaf(self, kind: int) -> pa.DataType:
        arrow = t.PRIMITIVES[kind].arrow
        return self.exact() if kind == _EXACT_CLASS else arrow


class Sample:
    """Counts of what VARIANT columns hold. Samples can be merged; the order of rows, arrays and merges does not matter."""

    def __init__(self) -> None:
        self.rows = 0
        self.root = _Path()

    def add(self, array: pa.Array) -> None:
        """Counts struct<metadata, value>, in any of its storage forms. Raises MalformedVariantError, InvalidLayoutError."""
        array, children = storage_of(array, "infer")
        if set(children) != {"metadata", "value"}:
            raise InvalidLayoutError(f"infer takes a struct<metadata: binary, value: binary>, not {array.type}")
        self.rows += len(array) - array.null_count
        offsets, data = buffers_of(as_binary(children["value"]))
        at, limit, dictionary = np.empty(len(array), np.int64), np.empty(len(array), np.int64), np.empty(len(array), np.int32)
        starts(offsets, flags_of(array), at, limit)
        faults = Faults(0)
        keys = Dictionaries.read(as_binary(children["metadata"]), at, dictionary, faults)
        used = np.array([1, 0], np.int64)
        parents, name_at, name_size = (np.full(_NODES, -1, np.int64) for _ in range(3))
        names, table = np.empty(_NAME_BYTES, np.uint8), hash_table(_NODES)
        counts, whole, scales = (np.zeros((_NODES, n), np.int64) for n in (k.CLASSES, 40, 40))
        walked = k.walk(
            data, at, limit, dictionary, keys.data, keys.start, keys.key_at, keys.key_size,
            used, parents, name_at, name_size, names, table, counts, whole, scales, faults.report,
        )  # fmt: skip
        faults.check(walked, "$")
        paths: list[_Path] = []
        for node in range(int(used[0])):
            path = _Path(counts[node], whole[node], scales[node])
            paths.append(path)
            if node == 0:
                continue
            if name_size[node] < 0:
                paths[parents[node]].element = path
            else:
                name = names[name_at[node] : name_at[node] + name_size[node]].tobytes()
                paths[parents[node]].fields[name.decode(errors="replace")] = path
        self.root.merge(paths[0])

    def merge(self, other: Sample) -> None:
        """Adds the counts of another sample."""
        self.rows += other.rows
        self.root.merge(other.root)

    def schema(self, max_leaves: int = MAX_LEAVES) -> pa.DataType | None:
        """The schema by the rules of `infer`."""
        least = max(1, MIN_SHARE * self.rows)
        leaves = sorted(_leaves(self.root, (), self.rows, least))
        chosen = {path for _, path in leaves[:max_leaves]}
        return _build(self.root, (), chosen)


_Key = tuple[tuple[bool, str], ...]
"""A path: (is it an array's element, the field's name) per step."""


def _leaves(path: _Path, key: _Key, rows: int, least: float) -> Iterator[tuple[int, _Key]]:
    """(minus the number of values, path) of every leaf that may get a type. Elements of arrays count once a row."""
    kind, count = path.kind()
    if kind < 0 or count < least:
        return
    if kind == k.OBJECTS:
        for name, child in path.fields.items():
            yield from _leaves(child, (*key, (False, name)), rows, least)
    elif kind == k.ARRAYS:
        if path.element is not None:
            yield from _leaves(path.element, (*key, (True, "")), rows, least)
    else:
        yield -min(count, rows), key


def _build(path: _Path, key: _Key, chosen: set[_Key]) -> pa.DataType | None:
    if key in chosen:
        return path.leaf(path.kind()[0])
    fields = [(name, _build(child, (*key, (False, name)), chosen)) for name, child in sorted(path.fields.items())]
    typed = [pa.field(name, schema) for name, schema in fields if schema is not None]
    if typed:
        return pa.struct(typed)
    if path.element is not None:
        element = _build(path.element, (*key, (True, "")), chosen)
        return None if element is None else pa.list_(element)
    return None
