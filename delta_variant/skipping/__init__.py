"""A query's predicate on Variant paths → a predicate on the bounds in the Delta log. Pure: no Spark, no JVM.

requests     a scan's filters, as JSON ─▶ predicates: what the query asks
                                              │ translation; casts: which bounds answer which question
             what Java evaluates, as JSON ◀─ bounds: a tree that is FALSE where no row of the file can match
                                             verdicts: the same, question by question, for people
             what MIN and MAX ask ─▶ extremes: the bounds that answer it
"""

from delta_variant.skipping.bounds import (
    ROWS_CANNOT_MATCH,
    ROWS_MIGHT_MATCH,
    AllOf,
    AnyOf,
    Between,
    Bounds,
    Check,
    HasValues,
    Log,
    OtherColumns,
    OtherThan,
    Projection,
)
from delta_variant.skipping.casts import keeps_order
from delta_variant.skipping.extremes import extremes
from delta_variant.skipping.predicates import (
    And,
    Comparison,
    Constants,
    In,
    Leaf,
    NotNull,
    Or,
    Other,
    Path,
    Predicate,
    StartsWith,
    Unknown,
    leaves,
    merged,
    negate,
)
from delta_variant.skipping.requests import MAX_QUESTIONS, answer, questions
from delta_variant.skipping.translation import translate
from delta_variant.skipping.verdicts import Finding, finding, verdicts

__all__ = [
    "MAX_QUESTIONS",
    "ROWS_CANNOT_MATCH",
    "ROWS_MIGHT_MATCH",
    "AllOf",
    "And",
    "AnyOf",
    "Between",
    "Bounds",
    "Check",
    "Comparison",
    "Constants",
    "Finding",
    "HasValues",
    "In",
    "Leaf",
    "Log",
    "NotNull",
    "Or",
    "Other",
    "OtherColumns",
    "OtherThan",
    "Path",
    "Predicate",
    "Projection",
    "StartsWith",
    "Unknown",
    "answer",
    "extremes",
    "finding",
    "keeps_order",
    "leaves",
    "merged",
    "negate",
    "questions",
    "translate",
    "verdicts",
]
