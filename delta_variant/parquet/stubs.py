"""Stubs of closed objects: a key without a column of its own gets a stub, so that no object keeps a residual.

A stub is a field of a shredded object, with a `value` and a `typed_value`. Its type is that of most values of the key in the
first row group that has the key, if this is bigint, double, string or boolean. Otherwise it is boolean, because DuckDB needs a
`typed_value`. If all keys of an object have columns, the `value` of the object is null in every row of the file. Only then do
DuckDB and typed reading in Spark read a path of the object from its typed column.

In: the row groups of one file, before pyarrow writes them. Out: the same rows without the residuals that are moved into stubs,
and the stubs' column chunks. pyarrow does not know the stubs. It has one schema for all row groups, but a key may come up in
any of them; and it takes 20 ns a row for a column that is all null. So the chunks are written here, after those of pyarrow, and
the footer gets them at the end (`footer.with_fields`). Source: VariantShredding, "Objects".

Invariants: the Variants stay the same. A key that has a stub is in the `value` of its object in no row of the file. Objects in
arrays stay as they are, because their columns have repetition levels.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delta_variant import nested, schema
from delta_variant import types as t
from delta_variant.buffers import NO_FLAGS, Faults, Flags, Variants, both, buffers_of, flags_of, hash_table
from delta_variant.errors import InvalidSchemaError
from delta_variant.kernels.sample import count_fields
from delta_variant.parquet import chunks
from delta_variant.parquet.chunks import Chunk, Levels
from delta_variant.parquet.footer import Names, NewField
from delta_variant.paths import dotted
from delta_variant.shredding.shredder import shred_valid

MAX_STUBS = 192
"""The most stubs of a file."""

SHARE = 1 / 500
"""The bytes that the stubs of a row group may take, for each of its Arrow bytes. In files, documents take a fifth of their
Arrow bytes."""

_STUB_BYTES = 320  # a stub takes so many in a row group, with the footer
_RUN_BYTES = 3  # a value takes so many in levels if its neighbours have none, or the reverse, unless levels are packed
_NAME_BYTES = 256  # the limit for a key: the footer has its name twice for each row group
_FIRST_ROWS = 4096  # so many rows with a residual show the types of keys
_CELLS = 1 << 20  # stubs times rows that are shredded at once
_KEPT_BYTES = 8 << 20  # the limit for flags that are kept for keys that come up later
_KINDS = (pa.bool_(), pa.int64(), pa.float64(), pa.string())
_LEAVES = ("value", "typed_value")

Rows = npt.NDArray[np.int64]
Values = tuple[Rows, pa.ChunkedArray]
"""The values of a column in a row group, and the numbers of their rows."""


@dataclass(eq=False)
class Stub:
    """A stub: the type of its typed column, and the chunks of `value` and `typed_value` in each row group."""

    kind: pa.DataType
    chunks: list[tuple[Chunk, Chunk]]


@dataclass(eq=False)
class Struct:
    """A struct that may be null, inside others. names: those that lead to it."""

    names: Names
    around: Struct | None
    flags: Flags = field(default_factory=lambda: NO_FLAGS)  # the rows of a row group that have it; empty if all have
    kept: list[bytes | None] = field(default_factory=list)  # the flags of each row group as bits; None if they are those around

    def levels(self, rows: int, group: int | None = None) -> Levels:
        """The definition levels in the row group at hand, or in an earlier one."""
        levels: Levels = np.zeros(rows, np.uint8) if self.around is None else self.around.levels(rows, group)
        flags = self.flags if group is None else self._earlier(rows, group)
        levels += flags if len(flags) else np.uint8(1)
        return levels

    @property
    def depth(self) -> int:
        """The definition level of rows that have it."""
        return 1 + (0 if self.around is None else self.around.depth)

    def _earlier(self, rows: int, group: int) -> Flags:
        bits = self.kept[group]
        if bits is not None:
            return np.unpackbits(np.frombuffer(bits, np.uint8), count=rows, bitorder="little")
        return NO_FLAGS if self.around is None else self.around._earlier(rows, group)  # noqa: SLF001  # of its own class


@dataclass(eq=False)
class Object(Struct):
    """A shredded object, whose struct is its `typed_value`, and its stubs. variant: the names that lead to its column."""

    variant: Names = ()
    fields: tuple[str, ...] = ()
    is_open: bool = False  # whether it gets no more stubs, because some row group may have residuals with the keys
    stubs: dict[str, Stub] = field(default_factory=dict)  # by key


class Stubs:
    """The stubs of some VARIANT columns of one file, which close their objects, row group by row group.

    schema: that of the file without stubs. variants: the columns, each as the names that lead to it, through structs only.
    sink: the file, which gets the column chunks. compression, codec: that of its pages, as a number in Parquet and in pyarrow.
    Raises InvalidSchemaError for other names.
    """

    def __init__(
        self, schema: pa.Schema, variants: Collection[Names], sink: pa.NativeFile, compression: int, codec: pa.Codec | None
    ) -> None:
        self._compression = compression
        self._structs = [found for names in sorted(variants) for found in _structs(schema, names)]
        self.objects = [found for found in self._structs if isinstance(found, Object)]
        self._writer = chunks.ChunkWriter(sink, codec)
        self._count = self._kept = 0
        self._rows: list[int] = []  # of each row group
        self._values: dict[Object, dict[tuple[str, str], Values]] = {}

    def moved(self, batches: list[pa.RecordBatch], size: int) -> list[pa.RecordBatch]:
        """The rows of a row group, with keys of residuals moved into stubs. `write` follows when pyarrow has written them.

        size: the mean of the Arrow bytes of the row groups so far, this one included.

        An object stays open if its new keys take more than there is room for, if a name is long, or if other readers could
        not read it (`schema.infer`, rule 6). It and the objects inside it get no more stubs. Raises MalformedVariantError for a
        residual whose fields are malformed; their values are not looked into.
        """
        rows = sum(batch.num_rows for batch in batches)
        if self._rows:
            self._keep()
        for found in self._structs:
            own = _flags(batches, found.names)
            around = NO_FLAGS if found.around is None else found.around.flags
            found.flags = both(around, own) if len(own) else around
        self._values = {}
        for found in self.objects:
            parent = found.around
            found.is_open |= isinstance(parent, Object) and parent.is_open
            if found.is_open and not found.stubs:
                continue
            parts = _residuals(batches, found)
            if parts:
                new = None if found.is_open else self._new_keys(found, parts, rows, size)
                found.is_open = new is None
                if new:
                    self._add(found, _kinds(parts, new))
                if found.stubs:
                    batches, self._values[found] = _moved(batches, found, parts)
        self._rows.append(rows)
        return batches

    def _new_keys(self, found: Object, parts: list[_Residuals], rows: int, size: int) -> list[str] | None:
        """The keys of residuals that get stubs; None if they take too much, or others cannot read some."""
        most = MAX_STUBS - self._count
        counts: Counter[str] = Counter()
        for part in parts:
            counts.update(part.keys(most + len(found.stubs)))
            if len(counts) > most + len(found.stubs):
                return None
        new = sorted(counts.keys() - found.stubs.keys())
        packed = rows * (found.depth + 1).bit_length() // 8
        levels = {key: min(_RUN_BYTES * min(counts[key], rows - counts[key]), packed) for key in new}
        taken = sum(_STUB_BYTES + 2 * len(key) + levels[key] for key in new)
        names = [*found.fields, *found.stubs, *new]
        is_readable = len({name.casefold() for name in names}) == len(names) and all(key and "\0" not in key for key in new)
        fits = self._count * _STUB_BYTES + taken <= size * SHARE and all(len(key.encode()) <= _NAME_BYTES for key in new)
        return new if not new or (is_readable and fits) else None

    def _add(self, found: Object, kinds: Mapping[str, pa.DataType]) -> None:
        """Adds stubs of some types to an object, with chunks for the row groups that are written."""
        stubs = [Stub(kind, []) for kind in kinds.values()]
        for group, rows in enumerate(self._rows):
            levels = chunks.encoded(found.levels(rows, group), found.depth + 1)
            nulls = iter(self._writer.nulls(levels, rows, len(_LEAVES) * len(stubs)))
            for stub, value, typed in zip(stubs, nulls, nulls, strict=True):
                stub.chunks.append((value, typed))
        found.stubs |= dict(zip(kinds, stubs, strict=True))
        self._count += len(stubs)

    def _keep(self) -> None:
        """Keeps the flags of the last row group for keys that come up later. If all are too large, no object gets new keys."""
        for struct in self._structs:
            around = NO_FLAGS if struct.around is None else struct.around.flags
            struct.kept.append(None if struct.flags is around else np.packbits(struct.flags, bitorder="little").tobytes())
            self._kept += len(struct.kept[-1] or b"")
        if self._kept > _KEPT_BYTES:
            for struct in self._structs:
                struct.kept.clear()
            for found in self.objects:
                found.is_open = True

    def write(self) -> None:
        """Writes the column chunks of the stubs, after pyarrow has written those of the row group."""
        rows = self._rows[-1]
        for found in self.objects:
            if found.stubs:
                levels, highest, values = found.levels(rows), found.depth + 1, self._values.get(found, {})
                nulls = iter(
                    self._writer.nulls(chunks.encoded(levels, highest), rows, len(_LEAVES) * len(found.stubs) - len(values))
                )
                for key, stub in found.stubs.items():
                    value, typed = (
                        self._chunk(levels, highest, values[key, leaf]) if (key, leaf) in values else next(nulls)
                        for leaf in _LEAVES
                    )
                    stub.chunks.append((value, typed))

    def _chunk(self, levels: Levels, highest: int, values: Values) -> Chunk:
        rows, column = values
        defined = levels.copy()
        defined[rows] = highest
        return self._writer.values(defined, highest, column)

    def finish(self) -> None:
        """Writes the offset indexes of the stubs, before pyarrow writes those of its columns."""
        self._writer.finish()

    def fields(self) -> dict[Names, list[NewField]]:
        """The stubs as the footer needs them, by the names of their objects."""
        return {
            found.names: [_field((*found.names, key), stub, self._compression) for key, stub in found.stubs.items()]
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


def _structs(schema: pa.Schema, names: Names) -> Iterator[Struct]:
    """The structs that may be null on the way to a VARIANT column, and its shredded objects, an object before those inside."""
    kind, around = pa.struct(list(schema)), None
    for at, name in enumerate(names, 1):
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            raise InvalidSchemaError(f"{dotted(names)} is not a VARIANT column at the top or in structs")
        if kind.field(name).nullable:
            around = Struct(names[:at], around)
            yield around
        kind = kind.field(name).type

    def inside(group: pa.StructType, path: Names, around: Struct | None) -> Iterator[Struct]:
        value, typed = (group.get_field_index(name) for name in _LEAVES)
        if typed >= 0 and pa.types.is_struct(group[typed].type):
            path = (*path, "typed_value")
            if value >= 0 and group[value].type == pa.binary() and group[value].nullable and group[typed].nullable:
                around = Object(path, around, variant=names, fields=tuple(child.name for child in group[typed].type))
                yield around
                for child in group[typed].type:
                    if not child.nullable:  # as VariantShredding requires
                        yield from inside(child.type, (*path, child.name), around)

    if pa.types.is_struct(kind) and kind.get_field_index("metadata") >= 0 and kind.field("metadata").type == pa.binary():
        yield from inside(kind, names, around)


def _flags(batches: list[pa.RecordBatch], names: Names) -> Flags:
    """Which rows of a field are not null, by its own flags; empty if all are not."""
    flags = [(flags_of(nested.column(batch, names)), batch.num_rows) for batch in batches]
    if not any(len(own) for own, _ in flags):
        return NO_FLAGS
    return np.concatenate([own if len(own) else np.ones(rows, np.uint8) for own, rows in flags])


@dataclass(frozen=True, eq=False)
class _Residuals:
    """The residuals of an object in one batch, which are valid: `shred` has made them."""

    batch: int  # its number
    first: int  # the number of its first row in the row group
    rows: Rows  # that have a residual, by their numbers in the batch
    variants: Variants

    def keys(self, most: int) -> dict[str, int]:
        """How many residuals have each key. There are more keys, and larger counts, if there are more than `most`."""
        faults, found, keys = Faults(0), self.variants, self.variants.keys
        data, start, size = keys.data, keys.key_at, keys.key_size
        source = (found.data, found.at, found.limit, found.dictionary, data, keys.start, start, size)
        name_of_key = np.full(len(start), -1, np.int64)
        first, counts = np.zeros((2, most + 1), np.int64)
        names = faults.check(count_fields(*source, name_of_key, hash_table(most + 1), first, counts, faults.report), "$")
        named = zip(first[:names].tolist(), counts[:names].tolist(), strict=True)
        return {data[start[key] : start[key] + size[key]].tobytes().decode(): count for key, count in named}


def _residuals(batches: list[pa.RecordBatch], found: Object) -> list[_Residuals]:
    """The residuals of an object: what is in `value` of rows that have its `typed_value`. Batches without any are left out."""
    parts, first = [], 0
    for number, batch in enumerate(batches):
        value = nested.column(batch, (*found.names[:-1], "value"))
        if value.null_count < len(value):
            flags = both(flags_of(value), found.flags[first : first + len(value)])
            rows = np.flatnonzero(flags) if len(flags) else np.arange(len(value))
            ends, data = buffers_of(value)
            rows = rows[ends[rows + 1] > ends[rows]]
            rows = rows[data[ends[rows]] & 3 == t.OBJECT]
            if len(rows):
                valid = np.zeros(len(value), np.uint8)
                valid[rows] = 1
                metadata = nested.column(batch, (*found.variant, "metadata"))
                parts.append(_Residuals(number, first, rows, Variants.open(metadata, value, valid, Faults(0)).take(rows)))
        first += len(value)
    return parts


def _kinds(parts: list[_Residuals], keys: Collection[str]) -> dict[str, pa.DataType]:
    """The types of typed columns for keys of residuals, which follow from the first rows of each batch."""
    sample = schema.Sample(depth=1)
    for part in parts:
        sample.add_variants(part.variants.take(slice(_FIRST_ROWS)), Faults(0))
    found = sample.schema_of([(key,) for key in keys])
    kinds = {} if found is None else {child.name: child.type for child in found}
    return {key: kinds[key] if kinds.get(key) in _KINDS else pa.bool_() for key in keys}


def _moved(
    batches: list[pa.RecordBatch], found: Object, parts: list[_Residuals]
) -> tuple[list[pa.RecordBatch], dict[tuple[str, str], Values]]:
    """The batches without the values of stubs in the residuals of an object, and these values by key and column."""
    kinds = pa.struct([pa.field(key, stub.kind) for key, stub in found.stubs.items()])
    step = max(1, _CELLS // len(found.stubs))
    moved = list(batches)
    values: defaultdict[tuple[str, str], tuple[list[Rows], list[pa.Array]]] = defaultdict(lambda: ([], []))
    for part in parts:
        left = []
        for start in range(0, len(part.rows), step):
            some = slice(start, start + step)
            value, typed = shred_valid(part.variants.take(some), kinds)
            left.append(value)
            at = part.first + part.rows[some]
            for key, group in zip(found.stubs, nested.arrays(typed), strict=True):
                for leaf, column in zip(_LEAVES, nested.arrays(group), strict=True):
                    if column.null_count < len(column):
                        flags = flags_of(column)
                        rows, arrays = values[key, leaf]
                        rows.append(at[np.flatnonzero(flags)] if len(flags) else at)
                        arrays.append(column.drop_null())
        names = (*found.names[:-1], "value")
        moved[part.batch] = _replaced(batches[part.batch], names, part.rows, pa.concat_arrays(left))
    return moved, {key: (np.concatenate(rows), pa.chunked_array(arrays)) for key, (rows, arrays) in values.items()}


def _replaced(batch: pa.RecordBatch, names: Names, rows: Rows, values: pa.Array) -> pa.RecordBatch:
    """The batch with other values at some rows of a field of structs."""
    is_replaced = np.zeros(batch.num_rows, np.bool_)
    is_replaced[rows] = True

    def within(array: pa.Array, names: Names) -> pa.Array:
        if not names:
            if values.null_count == len(values) == len(array) - array.null_count:
                return pa.nulls(len(array), array.type)
            return pc.replace_with_mask(array, pa.array(is_replaced), values)
        parts = zip(array.type, nested.arrays(array), strict=True)
        inside = [within(part, names[1:]) if kind.name == names[0] else part for kind, part in parts]
        return nested.rebuilt(array, array.type, inside)

    columns = list(batch.columns)
    at = batch.schema.get_field_index(names[0])
    columns[at] = within(columns[at], names[1:])
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
