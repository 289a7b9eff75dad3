"""The paths whose values are indexed (`membership`), and the plan of it for tasks.

In: the table's properties, or the paths that `analyze` is asked for. Out: the plan. The property
`delta_variant.bloom.<column>` has paths in the syntax of `variant_get`, separated by commas. Every write by this package then
writes filters for them. `bloom` is the word that users know: the filters are ribbon filters. `delta_variant.indexBudget` is the
share of a file's bytes that they may take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from delta_variant import mapping
from delta_variant.errors import TableError
from delta_variant.membership.plan import IndexedColumn, IndexPlan
from delta_variant.membership.ribbon import MAX_COLUMNS
from delta_variant.paths import ColumnPath
from delta_variant.storage import Storage

if TYPE_CHECKING:
    from delta_variant.features import TableFeatures

BLOOM = "delta_variant.bloom."
"""Begins the properties with the paths of a VARIANT column (`shredding_schemas.paths_of`)."""
BUDGET = 0.01
"""The share of a data file's bytes that its filters may take, if nothing else is said."""
_BUDGET = "delta_variant.indexBudget"


def share(budget: float | None, properties: Mapping[str, str]) -> float:
    """The share of a file's bytes that its filters may take: the argument, the property, or BUDGET. Raises TableError."""
    given: object = properties.get(_BUDGET) if budget is None else budget
    try:
        found = BUDGET if given is None else float(str(given))
    except ValueError:
        found = 0.0
    if not 0 < found <= 1:
        name = f"table property {_BUDGET}" if budget is None else "budget"
        raise TableError(f"{name}={given} is not a share of the data's size: choose one above 0 and up to 1, such as 0.01")
    return found


def plan(
    location: Storage, features: TableFeatures, paths: Mapping[ColumnPath, Sequence[ColumnPath]], budget: float, files: int
) -> IndexPlan:
    """The plan for tasks. paths: by the logical names of their columns. files: how many the table has."""
    physical = mapping.physical_paths(features.schema)
    ids = mapping.ids_in_files(features)
    columns = []
    for logical, keys in paths.items():
        names = physical[logical]
        columns.append(IndexedColumn(names, ids(names), tuple(dict.fromkeys(keys))))
    return IndexPlan(location, features.id, tuple(columns), budget, min(MAX_COLUMNS, max(8, max(1, files).bit_length() + 2)))
