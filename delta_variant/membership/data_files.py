"""The filters of one data file (`membership`): from typed columns, or from the whole VARIANT column.

In: a data file. Out: an entry of the index for each path that is asked for. Source: `protocol/README.md`, "The index of
values".

A typed column is read alone if the footer proves that it holds every value of its path. Otherwise the VARIANT column is read
as a whole, and the path is shredded in memory by the type that its values have.

Invariants: a filter has every value of its path that is not a JSON null. Memory is bounded by a batch of 8 MiB and 32 bytes
for each distinct value.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa

from delta_variant import nested, schema, shredding
from delta_variant.locating import naming
from delta_variant.membership import ribbon, sidecars
from delta_variant.membership.plan import DataFile, IndexPlan, Path
from delta_variant.membership.sidecars import Entry
from delta_variant.membership.values import Values, kind_of
from delta_variant.parquet import columns
from delta_variant.parquet.statistics import Footer
from delta_variant.paths import ColumnPath, dotted
from delta_variant.stats.variants import json_nulls


def index_file(source: Any, file: DataFile, plan: IndexPlan, lacking: Collection[Path]) -> dict[Path, Entry]:
    """The entries of a file. A column that the file lacks has none.

    source: the open file. file: what the log has of it. lacking: the paths for which the index has no entry of this file.
    """
    opened = columns.opened(source)
    groups = {column.names: columns.group_of(opened.schema_arrow, column.names, column.ids) for column in plan.columns}
    parquet = columns.Columns(opened, {group for group in groups.values() if group is not None})
    footer, found = Footer(parquet.metadata), {}
    for column in plan.columns:
        group = groups[column.names]
        for keys in column.paths:
            if group is not None and (column.names, keys) in lacking:
                with naming(f"column {dotted(group)}"):
                    found[column.names, keys] = _values(parquet, group, keys, footer)
    return _entries(found, file, plan)


def _entries(found: Mapping[Path, Values | None], file: DataFile, plan: IndexPlan) -> dict[Path, Entry]:
    """Filters that fit together into the room of the file. Filters of few values leave room for the others."""
    paths = len(plan.paths)
    room = file.size * plan.budget - sidecars.ENTRY_SIZE * paths
    entries, left = {}, paths - len(found) + sum(values is not None for values in found.values())
    room *= left / paths
    for path, values in sorted(found.items(), key=lambda item: 0 if item[1] is None else len(item[1].hashes)):
        if values is None or len(values.hashes) > ribbon.MAX_VALUES:
            entries[path] = Entry(file, plan.budget, "mixed")
            continue
        count = len(values.hashes)
        shape = ribbon.shape(count, max(0, int(room / left)), plan.max_columns)
        if shape is None:
            entries[path] = Entry(file, plan.budget, "small", values=count)
        else:
            data = ribbon.build(values.hashes, *shape)
            entries[path] = Entry(file, plan.budget, values.kind, values.scale, count, shape[0], data)
            room -= len(data)
        left -= 1
    return entries


def _values(parquet: columns.Columns, group: ColumnPath, keys: ColumnPath, footer: Footer) -> Values | None:
    """The values of a path; None if they can have no filter."""
    for column in parquet.typed_columns(group):
        if column.keys == keys and footer.is_proven(column):
            kind = kind_of(column.kind)
            if kind is None:
                return None
            values = Values(kind)
            for batch in parquet.batches([column.number]):
                names = (*group, "typed_value", *(name for key in keys for name in (key, "typed_value")))
                if not values.add(nested.in_batch(batch, names)):
                    return None
            return values
    return _shredded(parquet, group, keys)


def _shredded(parquet: columns.Columns, group: ColumnPath, keys: ColumnPath) -> Values | None:
    """The values of a path from whole Variants."""
    sample = schema.Sample(depth=len(keys))
    for rows in parquet.variants(group):
        sample.add(rows)
    wanted = sample.schema_of([keys])
    kind = wanted and kind_of(_leaf(wanted, keys))
    if kind is None:
        return None
    values = Values(kind)
    for rows in parquet.variants(group):
        array = nested.field_at(shredding.shred(rows, wanted), tuple(name for key in keys for name in ("typed_value", key)))
        if json_nulls(nested.field_at(array, ("value",))) is None or not values.add(nested.field_at(array, ("typed_value",))):
            return None
    return values


def _leaf(data_type: pa.DataType, keys: ColumnPath) -> pa.DataType:
    for key in keys:
        data_type = data_type.field(key).type
    return data_type
