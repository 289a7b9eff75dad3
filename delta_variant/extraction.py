"""Columns that come out of the documents of files: `ingest(columns={"day": "v:created_at::date"})`.

In: pieces of files of JSON, one in each row. Out: rows with the documents as VARIANT, and the columns. Tasks read the pieces
(`json_files`) and give the documents to Spark, whose own expressions compute the columns: casts, errors and the time zone are
those of a query. The rows are then written as those of any DataFrame, so the columns may be partition columns, and constraints
may use them and the documents.
"""

# ruff: noqa: SLF001 -- PySpark gives no public way to its JVM

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pyarrow as pa
from pyspark import Accumulator, AccumulatorParam, TaskContext
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # what PySpark programs call it
from pyspark.sql import types as T

from delta_variant import pairs
from delta_variant.errors import InvalidSchemaError
from delta_variant.json_files import JsonFiles
from delta_variant.json_files.documents import Reader
from delta_variant.pieces import PIECE

Counts = dict[tuple[int, str], int]
"""How many malformed documents each task left out, by task and file. A task that runs again gives the same counts."""


class _Counts(AccumulatorParam[Counts]):
    def zero(self, value: Counts) -> Counts:  # noqa: ARG002  # Spark's signature
        return {}

    def addInPlace(self, value1: Counts, value2: Counts) -> Counts:  # noqa: N802
        return value1 | value2


def documents(pieces: DataFrame, reading: JsonFiles) -> tuple[DataFrame, Callable[[], Counter[str]]]:
    """A row for each document: the columns of its piece, with the document in place of the piece.

    The function returns how many malformed documents the tasks left out, by file, when the job has ended.
    """
    kinds = [T.StructField(f.name, T.VariantType() if f.name == PIECE else f.dataType) for f in pieces.schema]
    schema = T.StructType(kinds)
    counts = pieces.sparkSession.sparkContext.accumulator({}, _Counts())
    rows = partial(_rows, reading, pairs.arrow_schema(schema), counts)

    def malformed() -> Counter[str]:
        found: Counter[str] = Counter()
        for (_, name), count in counts.value.items():
            found[name] += count
        return found

    return pieces.mapInArrow(rows, schema), malformed


def _rows(
    reading: JsonFiles, schema: pa.Schema, counts: Accumulator[Counts], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    malformed: Counter[str] = Counter()
    index = schema.get_field_index(PIECE)
    kind = schema.field(index).type
    for batch in Reader(reading).batches(batches, PIECE, malformed):
        columns = batch.columns
        columns[index] = pa.StructArray.from_arrays([columns[index].field(field.name) for field in kind], fields=list(kind))
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
    context = TaskContext.get()
    assert context is not None
    counts.add({(context.partitionId(), name): count for name, count in malformed.items()})


def check(rows: DataFrame, columns: Mapping[str, str]) -> None:
    """Raises InvalidSchemaError for anything but an expression that computes one value from one row."""
    analyzed = rows._jdf.queryExecution().analyzed()
    for name, expression in columns.items():
        told = f"columns: {name}={expression!r} is not an expression over {', '.join(rows.columns)}"
        try:
            plan = computed(rows, {name: expression})._jdf.queryExecution().analyzed()
        except (AnalysisException, ParseException) as error:
            raise InvalidSchemaError(f"{told}: {str(error).strip().splitlines()[0]}") from error
        # Generators, aggregates and window functions have nodes of their own, below the projection or in its place.
        if plan.getClass().getSimpleName() != "Project" or not plan.child().fastEquals(analyzed):
            raise InvalidSchemaError(
                f"{told} with one value for each row, out of this row: load the documents without it, and compute it in a "
                "query of the table"
            )


def computed(rows: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """The rows with further columns, whose expressions are given in SQL."""
    return rows.select("*", *(F.expr(expression).alias(name) for name, expression in columns.items()))
