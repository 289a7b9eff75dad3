"""The columns of a Parquet file as Spark has them, and the columns of many files.

In: an open file. Out: an Arrow schema with the types that PySpark has for Spark's: VARIANT is `VARIANT`, and every column and
field may be null. Source of the types: Spark's ParquetToSparkSchemaConverter. Files may lack columns and fields that others
have; those of one name, without regard to case, must have one type, as in Spark's `mergeSchema`.

Invariant: a column that Spark could not read with all its values is refused, by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa
import pyarrow.parquet as pq

from delta_variant import layouts, nested
from delta_variant import types as t
from delta_variant.errors import InvalidLayoutError, InvalidSchemaError
from delta_variant.layouts.recognition import layout_of
from delta_variant.parquet.columns import leaf_count
from delta_variant.parquet.fitting import VARIANT, is_marked_variant
from delta_variant.parquet.footer import Names
from delta_variant.paths import ColumnPath, dotted

_TIMESTAMP = pa.timestamp("us", "UTC")

_TYPES = {
    **{kind: kind for kind in (pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())},
    **dict.fromkeys([pa.string(), pa.large_string(), pa.string_view()], pa.string()),
    **dict.fromkeys([pa.binary(), pa.large_binary(), pa.binary_view()], pa.binary()),
    **dict.fromkeys([pa.date32(), pa.date64()], pa.date32()),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.null(): pa.null(),
}
"""The types that do not depend on parameters."""


class FileColumns:
    """The columns of an open file.

    annotated: the groups that carry the VARIANT logical type. asked: those that are VARIANT, in lower case; None for those that
    are annotated or have the structure of a layout. dropped: columns that are left out, in lower case. Raises
    InvalidSchemaError, with the column, for types that Spark does not have and for names that differ only by case.
    """

    def __init__(
        self,
        file: pq.ParquetFile,
        annotated: Collection[Names],
        asked: Collection[ColumnPath] | None,
        dropped: Collection[str],
    ) -> None:
        self._schema, self._annotated, self._asked, self._leaf = file.schema, annotated, asked, 0
        self.variants: set[Names] = set()
        """The VARIANT groups."""
        fields = []
        _check_names((field for field in file.schema_arrow if field.name.lower() not in dropped), ())
        for field in file.schema_arrow:
            if field.name.lower() in dropped:
                self._leaf += leaf_count(field.type)
            else:
                fields.append(pa.field(field.name, self._of(field.type, (field.name,))))
        self.schema = pa.schema(fields)

    def _of(self, kind: pa.DataType, names: Names) -> pa.DataType:
        asked = self._asked is None or tuple(map(str.lower, names)) in self._asked
        if asked and self._asked is not None:
            try:
                layout_of(kind)
            except InvalidLayoutError as error:
                raise InvalidLayoutError(f"columns: {dotted(names)}: {error}") from None
        if asked and (self._asked is not None or layouts.is_variant(kind, annotated=names in self._annotated)):
            self.variants.add(names)
            self._leaf += leaf_count(kind)
            return VARIANT
        if nested.is_nested(kind):
            _check_names(kind if pa.types.is_struct(kind) else (), names)
            return nested.optional(kind, [self._of(field.type, path) for path, field in nested.children(kind, names)])
        column = self._schema.column(self._leaf)
        self._leaf += 1
        found = _leaf(kind, column.physical_type, column.logical_type.type)
        if found is None:
            nanoseconds = pa.types.is_timestamp(kind)
            advice = "write it with microseconds" if nanoseconds else "write it with another type"
            raise InvalidSchemaError(
                f"column {dotted(names)} is {kind}, which Spark does not have: {advice}, or drop the column"
            )
        return found


def _check_names(fields: Iterable[pa.Field], names: Names) -> None:
    seen = set()
    for field in fields:
        if field.name.lower() in seen:
            name = dotted((*names, field.name))
            raise InvalidSchemaError(f"two columns are called {name}, and Delta ignores the case of names: rename or drop them")
        seen.add(field.name.lower())


def _leaf(kind: pa.DataType, physical: str, logical: str) -> pa.DataType | None:
    """Spark's type for a leaf column; None if it has none."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if logical == "UUID":  # Spark refuses the file
        return None
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if physical == "INT96":  # pyarrow has no zone for it; Spark takes it for an instant
        return _TIMESTAMP
    if logical == "ENUM":
        return pa.string()
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= t.MAX_PRECISION:
        return pa.decimal128(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return pa.timestamp("us") if kind.tz is None else _TIMESTAMP
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return _TYPES.get(kind)


def merged(files: Iterable[tuple[str, pa.Schema]]) -> pa.Schema:
    """The columns of all files, in the order in which they appear first.

    files: their names and their columns. Raises InvalidSchemaError for columns of different types, with both files, and for
    columns that have no type because they are null in every file.
    """
    whole = _Merge()
    kind = pa.struct([])
    for name, schema in files:
        kind = whole.of(kind, pa.struct(list(schema)), (), name)
    for path, inner in nested.leaves(kind, (), is_marked_variant):
        if pa.types.is_null(inner):
            raise InvalidSchemaError(f"column {dotted(path)} is null in every file and has no type: drop the column")
    return pa.schema(list(kind))


class _Merge:
    """Merges types, and keeps for each path the file in which it was found first."""

    def __init__(self) -> None:
        self._first: dict[ColumnPath, str] = {}

    def of(self, known: pa.DataType, new: pa.DataType, path: ColumnPath, file: str) -> pa.DataType:
        if known.equals(new, check_metadata=True) or pa.types.is_null(new):
            return known
        if pa.types.is_null(known):
            self._first[path] = file
            return new
        if all(pa.types.is_struct(kind) and not is_marked_variant(kind) for kind in (known, new)):
            fields = {field.name.lower(): field for field in known}
            for field in new:
                name = field.name.lower()
                own = (*path, name)
                if name in fields:
                    fields[name] = fields[name].with_type(self.of(fields[name].type, field.type, own, file))
                else:
                    self._first[own] = file
                    fields[name] = field
            return pa.struct(list(fields.values()))
        if known.id == new.id and (pa.types.is_list(known) or pa.types.is_map(known)):
            both = zip(nested.children(known, path), nested.children(new), strict=True)
            return nested.optional(known, [self.of(field.type, other.type, own, file) for (own, field), (_, other) in both])
        first = next(self._first[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self._first)
        hint = ": columns=[…] says which columns are VARIANT" if is_marked_variant(known) or is_marked_variant(new) else ""
        raise InvalidSchemaError(
            f"column {dotted(path)} is {_shown(known)} in {first} and {_shown(new)} in {file}: convert the files of one "
            f"schema at a time, or drop the column{hint}"
        )


def _shown(kind: pa.DataType) -> str:
    return "VARIANT" if is_marked_variant(kind) else str(kind)


def variants(schema: pa.Schema) -> list[ColumnPath]:
    """The VARIANT columns of a schema and those inside its columns, in lower case."""
    leaves = nested.leaves(pa.struct(list(schema)), (), is_marked_variant)
    return [tuple(map(str.lower, path)) for path, kind in leaves if is_marked_variant(kind)]
