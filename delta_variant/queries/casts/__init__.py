"""Spark's casts between the types of Variants.

table     for each pair of types: whether bounds answer, how a typed column answers, and which kernel casts Arrow arrays
arrays    the kernels
values    the casts of single values, for pairs without a kernel; Spark's dates, times and time zones in strings
"""

from delta_variant.queries.casts.arrays import array_of, cast, cast_one, texts, values_of
from delta_variant.queries.casts.table import KINDS, TIMES, castable, keeps_order, kind_of, kinds_for, reading
from delta_variant.queries.casts.values import EXACT, INSTANT, LOCAL, timestamp_of, zone

__all__ = [
    "EXACT", "INSTANT", "KINDS", "LOCAL", "TIMES", "array_of", "cast", "cast_one", "castable", "keeps_order", "kind_of",
    "kinds_for", "reading", "texts", "timestamp_of", "values_of", "zone",
]  # fmt: skip
