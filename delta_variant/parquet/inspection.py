"""How a file stores its VARIANT columns, by its footer alone: layout, shredding schema, and what is in typed columns.

In: a Parquet file. Out: for each VARIANT column, and each path of its shredding schema, how many values are in the typed column
and how many beside it, and their sizes. Source: VariantShredding; Parquet, `Statistics`.

Invariant: nothing but the footer is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from delta_variant import layouts, shredding
from delta_variant import schema as schemas
from delta_variant.layouts.recognition import DRAFT, FIRST, layout_of
from delta_variant.locating import naming
from delta_variant.parquet import footer as footers
from delta_variant.parquet.columns import Columns, leaf_count, opened
from delta_variant.parquet.statistics import Footer
from delta_variant.paths import ColumnPath, dotted, normalized

_LAYOUTS = {None: "final", DRAFT: "draft", FIRST: "first"}


@dataclass(frozen=True)
class InspectedPath:
    """One path of a shredding schema."""

    path: str
    """A normalized path; `[*]` stands for the elements of an array."""
    type: str
    """The type of its typed column, or `object` or `array`."""
    typed: int | None
    """How many values are in the typed column; None for objects and arrays, and if the footer does not say."""
    residual: int | None
    """How many values are in `value`: of another type, JSON nulls, or objects with fields that have no typed column."""
    bytes: int
    """The compressed size of the typed column."""
    residual_bytes: int
    is_proven: bool
    """Whether the footer proves that queries may read the path from its typed column."""
    is_open: bool = False
    """Whether an object has more than JSON nulls in its `value`, such as fields without columns."""


@dataclass(frozen=True)
class InspectedColumn:
    """A VARIANT column of a file."""

    column: str
    layout: str
    """final, draft (VariantShredding before its adoption) or first (Spark's first layout)."""
    is_annotated: bool
    """Whether the file gives the column the VARIANT logical type."""
    schema: str | None
    """The shredding schema as DDL, which `write(shred=…)` takes; None for a plain column and for older layouts."""
    rows: int
    bytes: int
    """The compressed size of the column."""
    residual_bytes: int
    """Of that, what is in the `value`s."""
    is_ours: bool
    """Whether `write` or a command of an enabled session wrote the file."""
    paths: tuple[InspectedPath, ...]


def inspect(path: str | os.PathLike[str] | Any) -> tuple[InspectedColumn, ...]:
    """The VARIANT columns of a Parquet file.

    path: a path, or an open binary file. Columns are those with the VARIANT logical type, and those of any layout that
    `layouts` recognizes, at the top and in structs. Raises DamagedFileError for a file that is damaged or not Parquet,
    InvalidLayoutError for a layout or types that Variant does not have, and UnsupportedFeatureError for encrypted columns.

    >>> import pyarrow as pa, delta_variant as dv
    >>> table = pa.table({"v": dv.arrow.VariantArray.from_pylist([{"id": 1}, {"id": "x"}])})
    >>> dv.parquet.write_table(table, "events.parquet", shred={"v": "id bigint"})
    >>> [column] = dv.parquet.inspect("events.parquet")
    >>> column.schema, [(path.path, path.typed, path.residual) for path in column.paths]
    ('id bigint', [('$', None, 0), ("$['id']", 1, 1)])
    """
    if hasattr(path, "read"):
        return tuple(_columns(path))
    with naming(path), pa.OSFile(str(path)) as source:
        return tuple(_columns(source))


def _columns(source: Any) -> Iterator[InspectedColumn]:
    data = footers.of(source)
    file, annotated = opened(source, data), footers.variant_groups(data)
    found = [names for field in file.schema_arrow for names in _variants(field.type, (field.name,), annotated)]
    columns = Columns(file, found)
    footer = Footer(columns.metadata)
    for names in found:
        kind, leaves = columns.group(names), columns.leaves(names)
        assert kind is not None
        with naming(f"column {dotted(names)}"):
            words = layout_of(kind)
            is_shredded = words is None and kind.get_field_index("typed_value") >= 0
            schema = schemas.ddl(shredding.schema_of(kind)) if is_shredded else None
        size = sum(map(columns.size, leaves))
        proven = {column.number for column in columns.typed_columns(names) if footer.is_proven(column)}
        paths = tuple(_paths(kind, leaves.start, "$", columns, footer, proven)) if is_shredded else ()
        yield InspectedColumn(
            dotted(names),
            _LAYOUTS[words],
            names in annotated,
            schema,
            columns.metadata.num_rows,
            size,
            sum(path.residual_bytes for path in paths) if is_shredded else size,
            footer.is_ours,
            paths,
        )


def _variants(kind: pa.DataType, names: ColumnPath, annotated: set[ColumnPath]) -> Iterator[ColumnPath]:
    """The VARIANT columns at the top and in structs."""
    if layouts.is_variant(kind, annotated=names in annotated):
        yield names
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _variants(field.type, (*names, field.name), annotated)


def _paths(
    group: pa.DataType, first: int, path: str, columns: Columns, footer: Footer, proven: set[int]
) -> Iterator[InspectedPath]:
    """The paths of a group of `value` and `typed_value`. first: the number of its first leaf column; proven: typed columns."""
    numbers: dict[str, int] = {}
    for field in group:
        numbers[field.name] = first
        first += leaf_count(field.type)
    value = numbers.get("value")
    residual = 0 if value is None else _values(footer, value)
    residual_bytes = 0 if value is None else columns.size(value)
    if "typed_value" not in numbers:
        yield InspectedPath(path, "variant", None, residual, 0, residual_bytes, is_proven=False)
        return
    typed, at = group.field(group.get_field_index("typed_value")).type, numbers["typed_value"]
    if not (pa.types.is_struct(typed) or schemas.is_list(typed)):
        size = columns.size(at)
        yield InspectedPath(path, schemas.ddl(typed), _values(footer, at), residual, size, residual_bytes, at in proven)
        return
    kind = "object" if pa.types.is_struct(typed) else "array"
    is_open = kind == "object" and value is not None and footer.residual(value) == "values"
    yield InspectedPath(path, kind, None, residual, 0, residual_bytes, is_proven=False, is_open=is_open)
    if kind == "array":
        yield from _paths(typed.value_type, at, f"{path}[*]", columns, footer, proven)
        return
    for field in typed:
        yield from _paths(field.type, at, path + normalized([field.name]).removeprefix("$"), columns, footer, proven)
        at += leaf_count(field.type)


def _values(footer: Footer, number: int) -> int | None:
    """How many values a leaf column has; None if the footer does not say."""
    nulls = footer.null_count(number)
    return None if nulls is None else footer.count(number) - nulls
