"""Closed objects: a key without a column of its own gets a stub, so that no object keeps a residual.

A stub is a field of a shredded object, with a `value` and a `typed_value`. Its type is that of most values of the key in the
row group where the key comes up first, if this is bigint, double, string or boolean. Otherwise it is boolean, because DuckDB
asks for a `typed_value`. If all keys of an object have columns, the `value` of the object is null in every row of the file.
DuckDB and typed reading in Spark ask for this before they read a path of the file from its typed column.

In: the row groups of one file, before pyarrow writes them. Out: the same rows without the residuals that are moved into stubs,
and the stubs' column chunks. pyarrow does not know the stubs. It has one schema for all row groups, but a key may come up in
any of them; and it takes 20 ns a row for a column that is all null. So the chunks are written here, after those of pyarrow, and
the footer gets them at the end (`footer.with_fields`). Source: VariantShredding, "Objects".

Invariants: the Variants stay the same. A key that has a stub is in the `value` of its object in no row of the file. Objects in
arrays stay as they are, because their columns have repetition levels.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delta_variant import nested, schema, shredding
from delta_variant.buffers import NO_FLAGS, Faults, Flags, Variants, both, flags_of
from delta_variant.kernels.sample import mark_fields
from delta_variant.parquet import chunks
from delta_variant.parquet.footer import NewField

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from delta_variant.parquet.chunks import Chunk, Levels
    from delta_variant.parquet.footer import Names

MAX_STUBS = 192
"""The most stubs of a file."""

BYTES_PER_STUB = 256 << 10
"""The Arrow bytes that a row group must have for each stub of the file.

A stub takes some 320 bytes of each row group, and 256 KiB of documents some 50 KB: stubs make a file at most 1 % larger.
"""

_FIRST_ROWS = 4096  # with a residual, which show whether there are too many keys, and the types of the others
_NAME_BYTES = 256  # of a key: its name is in the footer twice for each row group
_KEPT_BYTES = 8 << 20  # of levels, which are kept for keys that come up later
_KINDS = (pa.bool_(), pa.int64(), pa.float64(), pa.string())
_LEAVES = ("value", "typed_value")

Rows = npt.NDArray[np.int64]
Values = tuple[Rows, pa.Array]
"""The values of a column in a row group, and the numbers of their rows."""


@dataclass(eq=False)
class Stub:
    """A stub: the type of its typed column, and the chunks of `value` and `typed_value` in each row group."""

    kind: pa.DataType
    chunks: list[tuple[Chunk, Chunk]]


@dataclass(eq=False)
class Object:
    """A shredded object of a file, and its stubs. names: those that lead to its typed_value; variant: to its VARIANT column."""

    variant: Names
    names: Names
    fields: tuple[str, ...]
    depth: int  # the definition level of rows that have the object
    is_open: bool = False  # whether it gets no more stubs, because some row group may have residuals with the keys
    stubs: dict[str, Stub] = field(default_factory=dict)  # by key
    levels: list[tuple[bytes, int]] = field(default_factory=list)  # of each row group: as in a page, and the number of rows


class Closing:
    """Closes the objects of some VARIANT columns of one file, row group by row group.

    schema: that of the file without stubs. variants: the columns, each as the names that lead to it, through structs only.
    sink: the file, which gets the column chunks. codec: that of its pages.
    """

    def __init__(self, schema: pa.Schema, variants: Collection[Names], sink: pa.NativeFile, codec: pa.Codec | None) -> None:
        self.objects = [found for names in sorted(variants) for found in _objects(schema, names)]
        self._writer = chunks.ChunkWriter(sink, codec)
        self._kept = 0
        self._levels: list[Levels] = []
        self._values: list[dict[tuple[str, str], Values]] = []

    def close(self, batches: list[pa.RecordBatch], size: int) -> list[pa.RecordBatch]:
        """The rows of a row group with keys of residuals in stubs. `write` must be called when pyarrow has written these rows.

        size: the mean of the Arrow bytes of the row groups so far, this one included.

        An object stays open if its new keys are more than the file has room for, if a name is long, or if other readers could
        not read it (`schema.infer`, rule 6). It and the objects inside it get no more stubs.
        """
        self._levels, self._values = [], []
        for found in self.objects:
            parts = [_Residuals.of(batch, found) for batch in batches]
            values: dict[tuple[str, str], Values] = {}
            if any(len(part.rows) for part in parts):
                around = [other for other in self.objects if found.names[: len(other.names)] == other.names]
                new = None if any(other.is_open for other in around) else self._new_keys(found, parts, size)
                found.is_open = new is None
                for key, kind in _kinds(parts, new or ()).items():
                    earlier = [self._writer.nulls(*levels, len(_LEAVES)) for levels in found.levels]
                    found.stubs[key] = Stub(kind, [(value, typed) for value, typed in earlier])
                if found.stubs:
                    batches, values = _moved(batches, found, parts)
            self._levels.append(np.concatenate([_levels(batch, found.names) for batch in batches]))
            self._values.append(values)
        return batches

    def _new_keys(self, found: Object, parts: list[_Residuals], size: int) -> list[str] | None:
        """The keys of residuals that get stubs; None if they are too many, too long, or some that others cannot read."""
        room = min(MAX_STUBS, size // BYTES_PER_STUB) - sum(len(other.stubs) for other in self.objects)
        keys: set[str] = set()
        for part in parts:
            for rows in (slice(_FIRST_ROWS), slice(_FIRST_ROWS, None)):
                keys |= part.keys(rows, room + len(found.stubs))
                if len(keys - found.stubs.keys()) > room:
                    return None
        new = sorted(keys - found.stubs.keys())
        names = [*found.fields, *found.stubs, *new]
        is_readable = len({name.casefold() for name in names}) == len(names) and all(key and "\0" not in key for key in new)
        return new if is_readable and all(len(key.encode()) <= _NAME_BYTES for key in new) else None

    def write(self) -> None:
        """Writes the column chunks of the stubs, after pyarrow has written those of the row group."""
        for found, levels, values in zip(self.objects, self._levels, self._values, strict=True):
            highest = found.depth + 1
            encoded = chunks.encoded(levels, highest)
            nulls = iter(self._writer.nulls(encoded, len(levels), 2 * len(found.stubs) - len(values)))
            for key, stub in found.stubs.items():
                value, typed = (
                    self._chunk(levels, highest, values[key, leaf]) if (key, leaf) in values else next(nulls)
                    for leaf in _LEAVES
                )
                stub.chunks.append((value, typed))
            self._keep(found, encoded, len(levels))

    def _keep(self, found: Object, levels: bytes, rows: int) -> None:
        """Keeps the levels of an object for keys that come up later; if all of them are too large, no object gets new keys."""
        self._kept += len(levels)
        if self._kept <= _KEPT_BYTES:
            found.levels.append((levels, rows))
        else:
            for other in self.objects:
                other.is_open, other.levels = True, []

    def _chunk(self, levels: Levels, highest: int, values: Values) -> Chunk:
        rows, column = values
        defined = levels.copy()
        defined[rows] = highest
        return self._writer.values(defined, highest, column)

    def fields(self, codec: int) -> dict[Names, list[NewField]]:
        """The stubs as the footer needs them, by the names of their objects. codec: its number in Parquet."""
        return {
            found.names: [_field((*found.names, key), stub, codec) for key, stub in found.stubs.items()]
            for found in self.objects
            if found.stubs
        }


def _field(names: Names, stub: Stub, codec: int) -> NewField:
    """A stub's schema elements and ColumnChunks. names: those that lead to it."""
    kinds = dict(zip(_LEAVES, (pa.binary(), stub.kind), strict=True))
    described = [
        [
            (chunk.described((*names, leaf), kind, codec), chunk.uncompressed, chunk.size)
            for (leaf, kind), chunk in zip(kinds.items(), pair, strict=True)
        ]
        for pair in stub.chunks
    ]
    return NewField([chunks.group(names[-1], len(kinds)), *(chunks.leaf(*leaf) for leaf in kinds.items())], described)


def _objects(schema: pa.Schema, names: Names) -> Iterator[Object]:
    """The shredded objects of a VARIANT column, an object before those inside it."""
    kind, depth = pa.struct(list(schema)), 0
    for name in names:
        depth += kind.field(name).nullable
        kind = kind.field(name).type

    def inside(group: pa.StructType, path: Names, depth: int) -> Iterator[Object]:
        at = group.get_field_index("typed_value")
        if at >= 0 and pa.types.is_struct(group[at].type):
            path, depth, typed = (*path, "typed_value"), depth + group[at].nullable, group[at].type
            yield Object(names, path, tuple(child.name for child in typed), depth)
            for child in typed:
                yield from inside(child.type, (*path, child.name), depth + child.nullable)

    yield from inside(kind, names, depth)


def _chain(batch: pa.RecordBatch, names: Names) -> Iterator[tuple[pa.Field, pa.Array]]:
    """The fields and the arrays that lead to a field of structs."""
    yield batch.schema.field(names[0]), batch.column(names[0])
    array = batch.column(names[0])
    for name in names[1:]:
        kind, array = array.type.field(name), array.field(name)
        yield kind, array


def _levels(batch: pa.RecordBatch, names: Names) -> Levels:
    """The definition levels of a struct within structs."""
    levels, valid = np.zeros(batch.num_rows, np.uint8), NO_FLAGS
    for kind, array in _chain(batch, names):
        if kind.nullable:
            valid = both(valid, flags_of(array))
            levels += valid if len(valid) else 1
    return levels


@dataclass(frozen=True)
class _Residuals:
    """The residuals of an object in one batch, as Variants, and the numbers of their rows."""

    rows: Rows
    variants: pa.StructArray

    @classmethod
    def of(cls, batch: pa.RecordBatch, found: Object) -> _Residuals:
        arrays = [array for _, array in _chain(batch, found.names)]
        group, typed = arrays[-2:]
        at = group.type.get_field_index("value")
        if at < 0 or group.field(at).null_count == len(group):
            return cls(np.empty(0, np.int64), pa.nulls(0, shredding.UNSHREDDED))
        value = group.field(at)
        has_both: Flags = both(flags_of(value), flags_of(typed))
        rows = np.flatnonzero(has_both) if len(has_both) else np.arange(len(value))
        taken = [column.take(pa.array(rows)) for column in (arrays[len(found.variant) - 1].field("metadata"), value)]
        return cls(rows, pa.StructArray.from_arrays(taken, fields=list(shredding.UNSHREDDED)))

    def keys(self, rows: slice, most: int) -> set[str]:
        """The keys of the residuals in some of the rows. There may be more if there are more than `most`."""
        some = self.variants[rows]
        found = Variants.open(some.field("metadata"), some.field("value"), NO_FLAGS, Faults(0))
        name_of_key, key_of_name = found.keys.names
        seen: Flags = np.zeros(len(key_of_name), np.uint8)
        mark_fields(found.data, found.at, found.limit, found.dictionary, found.keys.start, name_of_key, most, seen)
        start, size, data = found.keys.key_at, found.keys.key_size, found.keys.data
        keys = key_of_name[np.flatnonzero(seen)].tolist()
        return {data[start[key] : start[key] + size[key]].tobytes().decode() for key in keys}


def _kinds(parts: list[_Residuals], keys: Collection[str]) -> dict[str, pa.DataType]:
    """The types of typed columns for keys of residuals, which follow from the first rows of each batch."""
    if not keys:
        return {}
    sample = schema.Sample()
    for part in parts:
        sample.add(part.variants[:_FIRST_ROWS])
    found = sample.schema_of([(key,) for key in keys])
    kinds = {} if found is None else {child.name: child.type for child in found}
    return {key: kinds[key] if kinds.get(key) in _KINDS else pa.bool_() for key in keys}


def _moved(
    batches: list[pa.RecordBatch], found: Object, parts: list[_Residuals]
) -> tuple[list[pa.RecordBatch], dict[tuple[str, str], Values]]:
    """The batches without the values of stubs in the residuals of an object, and these values by key and column."""
    kinds = pa.struct([pa.field(key, stub.kind) for key, stub in found.stubs.items()])
    moved: list[pa.RecordBatch] = []
    values: defaultdict[tuple[str, str], tuple[list[Rows], list[pa.Array]]] = defaultdict(lambda: ([], []))
    before = 0
    for batch, part in zip(batches, parts, strict=True):
        rest = batch
        if len(part.rows):
            shredded = shredding.shred(part.variants, kinds)
            for key, group in zip(found.stubs, nested.arrays(shredded.field("typed_value")), strict=True):
                for leaf, column in zip(_LEAVES, nested.arrays(group), strict=True):
                    if column.null_count < len(column):
                        flags = flags_of(column)
                        rows, arrays = values[key, leaf]
                        rows.append((part.rows[np.flatnonzero(flags)] if len(flags) else part.rows) + before)
                        arrays.append(column.drop_null())
            rest = _replaced(batch, (*found.names[:-1], "value"), part.rows, shredded.field("value"))
        moved.append(rest)
        before += batch.num_rows
    return moved, {key: (np.concatenate(rows), pa.concat_arrays(arrays)) for key, (rows, arrays) in values.items()}


def _replaced(batch: pa.RecordBatch, names: Names, rows: Rows, values: pa.Array) -> pa.RecordBatch:
    """The batch with other values at some rows of a field of structs."""
    is_replaced = np.zeros(batch.num_rows, np.bool_)
    is_replaced[rows] = True

    def within(array: pa.Array, names: Names) -> pa.Array:
        if not names:
            return pc.replace_with_mask(array, pa.array(is_replaced), values)
        parts = zip(array.type, nested.arrays(array), strict=True)
        inside = [within(part, names[1:]) if kind.name == names[0] else part for kind, part in parts]
        return nested.rebuilt(array, array.type, inside)

    columns = list(batch.columns)
    at = batch.schema.get_field_index(names[0])
    columns[at] = within(columns[at], names[1:])
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
