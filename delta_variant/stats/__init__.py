"""What the Delta log has about one file: row count, null counts, minima and maxima, and the bounds of Variant paths.

    record batches ─▶ FileStats ─┬─▶ ordinary columns: minValues, maxValues, nullCount, as Delta defines them
                                 └─▶ VARIANT columns: {path: value} ─▶ Variant object ─▶ Z85 text, in minValues and maxValues,
                                                      or in a tag if the protocol allows no bounds, or none of this kind

Source: Delta PROTOCOL, "Per-file Statistics"; variantShredding, "Statistics for Variant Columns".

Invariants: bounds are computed from the values. The bounds of an existing file may be taken from its footer, if the footer
proves that they are the same (`parquet.statistics`). A bound never excludes a row: a value that is unknown, or has no exact
form in the log, gives no bound.
"""

from delta_variant.constants import (
    BOUNDS_TAG,
    BOUNDS_TAG_VALUE,
    BOUNDS_TAG_VALUES,
    NONNULL_TAG,
    TIMES_TAG,
    TYPED_TAG_VALUE,
)
from delta_variant.stats.bounds import EncodedBounds, decode_bounds, encode_bounds
from delta_variant.stats.files import FileStats, indexed_columns
from delta_variant.stats.tags import MAX_TAGGED_FILES, PLAIN_TAG, TAGS_ONLY, place

__all__ = [
    "BOUNDS_TAG",
    "BOUNDS_TAG_VALUE",
    "BOUNDS_TAG_VALUES",
    "MAX_TAGGED_FILES",
    "NONNULL_TAG",
    "PLAIN_TAG",
    "TAGS_ONLY",
    "TIMES_TAG",
    "TYPED_TAG_VALUE",
    "EncodedBounds",
    "FileStats",
    "decode_bounds",
    "encode_bounds",
    "indexed_columns",
    "place",
]
