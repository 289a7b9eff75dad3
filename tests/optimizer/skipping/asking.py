"""Queries, their rows without the rules, and the files that they open."""

from __future__ import annotations

from typing import Any, NamedTuple

from pyspark.sql import DataFrame

from tests.support import SOAK, collected, prepared, scans, without_rules


def read(spark, path) -> DataFrame:
    return spark.read.format("delta").load(path)


def opened(df: DataFrame) -> list[int]:
    """Files that each scan of an executed query opened, by Spark's own count."""
    leaves = df._jdf.queryExecution().executedPlan().collectLeaves()
    metrics = [leaves.apply(i).metrics() for i in range(leaves.size())]
    return [found.apply("numFiles").value() for found in metrics if found.contains("numFiles")]


def rows(df: DataFrame):
    return sorted(collected(df), key=repr)


def compared(spark, make):
    """The rows of the query that `make` returns, after comparison with its rows without the rules, and the query."""
    df = make()
    with_skipping = rows(df)
    with without_rules(spark):
        assert with_skipping == rows(make())
    return with_skipping, df


class Answer(NamedTuple):
    """What a predicate gave."""

    found: list[Any]
    """The rows with the rules."""
    wanted: list[Any]
    """The rows without them."""
    files: int | None
    """How many files were opened with the rules; None if Spark found that a predicate of the same query matches no row."""
    matching: int
    """How many files have these rows."""


def answers(spark, table, predicates, value="id") -> dict[str, Answer]:
    """Asks for `value` in the rows that match each predicate, a dozen predicates in one query.

    Without the rules, one query evaluates all predicates for every row. With them another one does, for the predicates that
    rule no file out: `make soak` alone has queries that filter by these.
    """
    listed = ", ".join(f"({text}) p{n}" for n, text in enumerate(predicates))
    whole = f"select {value} r, {{}} f, {listed} from delta.`{table}`"
    with without_rules(spark):
        wanted = collected(spark.sql(whole.format("_metadata.file_path")))
    everywhere = collected(spark.sql(prepared(spark, whole.format("1"))))
    found = [[row.r for row in everywhere if row[f"p{n}"]] for n in range(len(predicates))]
    files: list[int | None] = [None] * len(predicates)

    def union(some):
        branches = [f"select {n} q, {value} r from delta.`{table}` where {predicates[n]}" for n in some]
        return spark.sql(prepared(spark, " union all ".join(branches)))

    for start in range(0, len(predicates), 12):
        some = range(len(predicates))[start : start + 12]
        planned = scans(union(some))
        known = len(planned) == len(some)
        narrowed = [
            n for at, n in enumerate(some) if SOAK or not known or planned[at].files_after_bounds < planned[at].files_total
        ]
        if known:
            files[start : start + 12] = [scan.files_after_bounds for scan in planned]
        if not narrowed:
            continue
        df = union(narrowed)
        rows = collected(df)
        counted = opened(df)
        for at, n in enumerate(narrowed):
            found[n] = [row.r for row in rows if row.q == n]
            if len(counted) == len(narrowed):  # typed reading makes two scans of one
                files[n] = counted[at]
    matching = [[row for row in wanted if row[f"p{n}"]] for n in range(len(predicates))]
    return {
        text: Answer(sorted(found[n]), sorted(row.r for row in matching[n]), files[n], len({row.f for row in matching[n]}))
        for n, text in enumerate(predicates)
    }


def first_rows(spark, queries):
    """The scans of a union of the queries, after comparison of its rows with those without the rules."""
    branches = [f"select {n} q, hash(*) r from ({query})" for n, query in enumerate(queries)]
    together = prepared(spark, " union all ".join(branches))
    _, df = compared(spark, lambda: spark.sql(together))
    return scans(df)
