"""The shredding schema of each file of a task, inferred from the first rows of the file.

In: samples of a VARIANT column. Out: shredding schemas.

Inferred schemas of different files should agree, because bounds can only be compared between types of one class. Integers of
every width become bigint, and integers and decimals are one class (`inference`). Numbers can still go wrong: if the sampled
rows miss a file's largest precision or scale, some values do not fit the column, and the path loses its bounds. A task
therefore keeps its counts from file to file, and numbers get the type that fits those of all files so far. A stored schema
avoids this altogether.

Invariant: Spark can read every schema that this module returns.
"""

from __future__ import annotations

import pyarrow as pa

from delta_variant import nested
from delta_variant import types as t
from delta_variant.paths import ColumnPath
from delta_variant.schema.inference import Sample
from delta_variant.schema.rules import is_list

SAMPLE_ROWS, SAMPLE_BYTES = 8192, 16 << 20
"""The limits of the sample from which a shredding schema is inferred: rows and bytes at the start of a file."""


def shreddable(schema: pa.Schema, variants: frozenset[ColumnPath]) -> list[ColumnPath]:
    """The VARIANT columns that can be shredded: those at the top level and in structs."""
    return [path for path in nested.columns(schema, variants) if path in variants]


class Inference:
    """Shredding schemas for the files of one task, inferred from their first rows and from the numbers of earlier files."""

    def __init__(self) -> None:
        self._seen: dict[ColumnPath, Sample] = {}

    def schema(self, path: ColumnPath, rows: pa.ChunkedArray) -> pa.DataType | None:
        """The shredding schema of a column in a file that begins with these rows; None if no path is worth shredding.

        Raises MalformedVariantError.
        """
        sample = Sample()
        sample.add(rows.combine_chunks())  # to merge the paths of chunks takes ten times as long if names are data
        schema = _readable(sample.schema())
        if path not in self._seen:
            self._seen[path] = sample
            return schema
        self._seen[path].merge(sample)
        known = self._seen[path].schema()
        return schema if schema is None or known is None else _agreed(schema, known)


def _agreed(schema: pa.DataType, known: pa.DataType) -> pa.DataType:
    """The schema with the number types of `known`, which fits all files so far."""
    if pa.types.is_struct(schema) and pa.types.is_struct(known):
        types = {field.name: field.type for field in known}
        return pa.struct([(f.name, _agreed(f.type, types[f.name]) if f.name in types else f.type) for f in schema])
    if is_list(schema) and is_list(known):
        return pa.list_(_agreed(schema.value_type, known.value_type))
    return known if t.is_exact(schema) and t.is_exact(known) else schema


def named_apart(schema: pa.DataType) -> bool:
    """Whether no two fields of an object have names that differ only by case.

    Spark's Parquet reader may take one such field for the other.
    """
    if pa.types.is_struct(schema):
        names = {field.name.casefold() for field in schema}
        return len(names) == schema.num_fields and all(named_apart(field.type) for field in schema)
    return not is_list(schema) or named_apart(schema.value_type)


def _readable(schema: pa.DataType | None) -> pa.DataType | None:
    """The schema without the leaves that Spark cannot read; their values stay in `value`."""
    if schema is None:
        return None
    if pa.types.is_struct(schema):
        fields = [(field.name, _readable(field.type)) for field in schema]
        kept = [(name, data_type) for name, data_type in fields if data_type is not None]
        return pa.struct(kept) if kept else None
    if is_list(schema):
        element = _readable(schema.value_type)
        return None if element is None else pa.list_(element)
    return schema if is_readable(schema) else None


def is_readable(leaf: pa.DataType) -> bool:
    return t.read_as(leaf) is not None
