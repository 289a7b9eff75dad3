"""A query's predicate on Variant paths → a predicate on the bounds in the Delta log. Pure: no Spark, no JVM.

predicates   what the query asks ─▶ translation ─▶ bounds: SQL, FALSE where no row of the file can match
                                         casts: which bounds answer which question
                                 ─▶ verdicts: the same, question by question, for people
"""

from delta_variant.skipping.bounds import (
    ROWS_CANNOT_MATCH,
    ROWS_MIGHT_MATCH,
    AllOf,
    AnyOf,
    Bounds,
    Check,
    HasValues,
    Log,
    OtherColumns,
    OtherThan,
)
from delta_variant.skipping.casts import keeps_order
from delta_variant.skipping.predicates import (
    And,
    Comparison,
    In,
    Leaf,
    Literal,
    NotNull,
    Or,
    Other,
    Path,
    Predicate,
    StartsWith,
    Unknown,
    leaves,
    negate,
)
from delta_variant.skipping.translation import translate
from delta_variant.skipping.verdicts import Finding, finding, verdicts

__all__ = [
    "ROWS_CANNOT_MATCH",
    "ROWS_MIGHT_MATCH",
    "AllOf",
    "And",
    "AnyOf",
    "Bounds",
    "Check",
    "Comparison",
    "Finding",
    "HasValues",
    "In",
    "Leaf",
    "Literal",
    "Log",
    "NotNull",
    "Or",
    "Other",
    "OtherColumns",
    "OtherThan",
    "Path",
    "Predicate",
    "StartsWith",
    "Unknown",
    "finding",
    "keeps_order",
    "leaves",
    "negate",
    "translate",
    "verdicts",
]
