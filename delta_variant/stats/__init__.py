"""What the Delta log knows about one file: rows, nulls, smallest and largest values, and the bounds of Variant paths.

    record batches ─▶ FileStats ─┬─▶ ordinary columns: minValues, maxValues, nullCount, as Delta defines them
                                 └─▶ VARIANT columns: {path: value} ─▶ Variant object ─▶ Z85 text, in minValues and maxValues,
                                                      or in a tag where the protocol has no place

Source: Delta PROTOCOL, "Per-file Statistics"; variantShredding, "Statistics for Variant Columns".

Invariants: bounds come from the values, never from footers. A bound never excludes a row: what is unknown, or has no exact
form in the log, has no bound.
"""

from delta_variant.stats.bounds import decode_bounds, encode_bounds
from delta_variant.stats.files import FileStats, indexed_columns
from delta_variant.stats.tags import (
    BOUNDS_TAG,
    BOUNDS_TAG_VALUE,
    BOUNDS_TAG_VALUES,
    MAX_TAGGED_FILES,
    NONNULL_TAG,
    TYPED_TAG_VALUE,
    place,
)

__all__ = [
    "BOUNDS_TAG",
    "BOUNDS_TAG_VALUE",
    "BOUNDS_TAG_VALUES",
    "MAX_TAGGED_FILES",
    "NONNULL_TAG",
    "TYPED_TAG_VALUE",
    "FileStats",
    "decode_bounds",
    "encode_bounds",
    "indexed_columns",
    "place",
]
