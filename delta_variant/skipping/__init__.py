"""Data skipping: a query's predicate on Variant paths → a predicate on the bounds in the Delta log. Pure: no Spark, no JVM.

requests     filters of a scan ─▶ predicates: comparisons of Variant paths
                                      │ translation; casts: which bounds answer which question
             reply for the JVM ◀─ messages.FilePredicate: FALSE if no row of the file can match
                                  bounds: the bounds that it compares, by number
                                  verdicts: what each comparison proves, for `explain`
             MIN and MAX of paths ─▶ extremes: the bounds that answer them
"""

from delta_variant.skipping.bounds import ROWS_CANNOT_MATCH, ROWS_MIGHT_MATCH, Log, Projection
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
    "And",
    "Comparison",
    "Constants",
    "Finding",
    "In",
    "Leaf",
    "Log",
    "NotNull",
    "Or",
    "Other",
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
