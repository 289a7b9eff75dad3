"""`VariantTable.drop_feature`: the table feature for shredding goes out of the protocol, which delta-spark refuses.

In: a table. Out: a table without shredded files and bounds of VARIANT columns, whose protocol does not name the feature.
Source: Delta PROTOCOL, "Table Features" and "Checkpoint Protection": readers that do not know a reader-writer feature
must not have to read a version that needs it, so there are checkpoints that they never go behind, and the protocol protects
these.
"""

# ruff: noqa: SLF001 -- PySpark gives no public way to its JVM

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # what PySpark programs call it

from delta_variant import jvm
from delta_variant.analysis import inspected, remove_bounds
from delta_variant.errors import TableError
from delta_variant.features import SHREDDING_FEATURES, SHREDDING_PROPERTY
from delta_variant.progress import Progress
from delta_variant.rewriting.driver import TRIES, is_shredded, reorganize
from delta_variant.transaction import Table, bounded_columns


def drop_feature(table: Table, progress: Callable[[Progress], object] | None) -> int:
    """Drops the feature, as `VariantTable.drop_feature` says. table: in a session of its own."""
    spark, features = table.spark, table.features(to_change=True)
    names = sorted(features.names & SHREDDING_FEATURES)
    if not names:
        raise TableError(f"the protocol of {table.name} does not name the feature variantShredding: there is nothing to drop")
    instead = f"copy the rows with CREATE TABLE … USING delta AS SELECT * FROM {table.name}"  # noqa: S608  # a message
    features.check_writable(overwrite=False, operation="drop_feature", instead=instead)
    if features.properties.get(SHREDDING_PROPERTY) == "true":
        with jvm.delta_errors(f"altering {table.name}"):
            spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('{SHREDDING_PROPERTY}' = 'false')")
    for name in names:
        version = _dropped(table, name, progress)
    return version


def _dropped(table: Table, name: str, progress: Callable[[Progress], object] | None) -> int:
    for _ in range(TRIES):
        reorganize(table, None, progress, shreds=False)
        remove_bounds(table)
        with jvm.delta_errors(f"writing checkpoints of {table.name}"):
            entry = jvm.scala_option(table.spark, table.entry)
            steps = jvm.construct(table.spark, "DropFeature", table.spark._jsparkSession, table.log, entry)
        traces = _traces(table, steps.snapshot())
        if not traces:
            with jvm.delta_errors(f"dropping the feature {name} of {table.name}"):
                return int(steps.commit(name, SHREDDING_PROPERTY))
    raise TableError(
        f"{table.name} keeps the feature {name}: other writers have added files with shredded columns or bounds meanwhile "
        f"({', '.join(traces[:3])}): stop them, and call drop_feature again"
    )


def _traces(table: Table, snapshot: Any) -> list[str]:
    """The files of a version that need the feature: with bounds of VARIANT columns in the log, or with shredded columns."""
    with jvm.delta_errors(f"reading the log of {table.name}"):
        statistics = table.statistics(snapshot)
        fields = [F.col(f"{side}{column}") for column in range(len(bounded_columns(statistics))) for side in ("min", "max")]
        bounded = reduce(or_, (field.isNotNull() for field in fields), F.lit(False))
        files = DataFrame(statistics.files(), table.spark)
        found = {row.path: row.bounded for row in files.select("path", bounded.alias("bounded")).collect()}
    with jvm.delta_errors(f"reading the files of {table.name}"):
        shredded = inspected(table, list(found)).where(is_shredded()).select("file").distinct().collect()
    return sorted({*(path for path, has_bounds in found.items() if has_bounds), *(row.file for row in shredded)})
