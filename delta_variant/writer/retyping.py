"""Columns of JSON texts become VARIANT columns of the same table: the metadata of the version that has the new type.

In: a table, and which of its columns become VARIANT (`json_texts`). Out: the same metadata with these columns replaced, in an
overwrite of all rows. Delta's own overwrite of the schema would drop NOT NULL, generated columns, defaults and comments; here
every other column, the partitioning and the properties stay as they are. New columns get physical names and ids of their own.

Invariant: a change that would lose or break something is refused, by name, before anything is written.
"""

# ruff: noqa: SLF001 -- PySpark gives no public way to its JVM

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T

from delta_variant import jvm
from delta_variant.constants import PREVIEW_NAMES
from delta_variant.errors import InvalidSchemaError, UnsupportedFeatureError
from delta_variant.features import SHREDDING_PROPERTY, VARIANT_FEATURES
from delta_variant.paths import listed, parse_column, parse_column_path
from delta_variant.writer import clustering

if TYPE_CHECKING:
    from delta_variant.transaction import Transaction
    from delta_variant.writer.arguments import Request

_GENERATED = "delta.generationExpression"
_ROW_IDS = "delta.enableRowTracking"
_STATS_COLUMNS = "delta.dataSkippingStatsColumns"
_DEFAULTS = ("CURRENT_DEFAULT", "EXISTS_DEFAULT")
ELSEWHERE = "write to another table with write(table.toDF(), …, parse_json={…})"
"""What works where texts cannot become VARIANT in place."""
_OWN = ("delta.", "__")
"""What the names of metadata begin with that Delta and Spark keep about a column and its type."""


def retype(transaction: Transaction, request: Request) -> None:
    """Gives the columns of texts the type VARIANT, in this transaction.

    Raises UnsupportedFeatureError and InvalidSchemaError for what would be lost.
    """
    features = transaction.features
    features.check_writable(overwrite=True, operation="VariantTable.convert", instead=ELSEWHERE)
    features.check_no_iceberg("VariantTable.convert", ELSEWHERE)
    for field in features.schema["fields"]:
        if field["metadata"].get("delta.identity.allowExplicitInsert") is False:
            raise UnsupportedFeatureError(
                f"{features.table} has the column {field['name']} GENERATED ALWAYS AS IDENTITY, and takes no rows that have "
                f"it: {ELSEWHERE}"
            )
    for source in request.texts.columns.values():
        for reason in _uses(transaction, source.name):
            raise UnsupportedFeatureError(
                f"{reason} of {features.table} uses {source.name}, which would be VARIANT: change that first, or {ELSEWHERE}"
            )
    if features.properties.get(_ROW_IDS, "").lower() == "true":
        raise UnsupportedFeatureError(
            f"{features.table} has row ids ({_ROW_IDS} = true), and all rows would get new ones: set the property to false, or "
            f"{ELSEWHERE}"
        )
    columns = {source.name: name for name, source in request.texts.columns.items()}
    fields = [_field(field, columns) for field in features.schema["fields"]]
    if request.texts.corrupt is not None:
        fields.append({"name": request.texts.corrupt, "type": "string", "nullable": True, "metadata": {}})
    properties = {}
    if request.shred is not False and SHREDDING_PROPERTY not in features.properties:
        properties[SHREDDING_PROPERTY] = "true"
    if features.names.isdisjoint(VARIANT_FEATURES):
        properties["delta.feature.variantType"] = "supported"
    is_preview = features.shredding_feature.endswith("-preview")
    with jvm.settings(transaction.spark, {PREVIEW_NAMES: str(is_preview).lower()}):
        transaction.replace_metadata(json.dumps({"type": "struct", "fields": fields}), properties)


def _field(field: dict[str, Any], columns: dict[str, str]) -> dict[str, Any]:
    name = columns.get(field["name"])
    if name is None:
        return field
    metadata = {key: value for key, value in field["metadata"].items() if not key.startswith(_OWN)}
    return field | {"name": name, "type": "variant", "metadata": metadata}


def _uses(transaction: Transaction, column: str) -> Iterator[str]:
    """What uses a column, for messages. Raises InvalidSchemaError for a partition column."""
    features = transaction.features
    if column in features.partition_by:
        raise InvalidSchemaError(f"{column} is a partition column of {features.table} and cannot be VARIANT")
    yield from _expressions(transaction, column)
    (field,) = (field for field in features.schema["fields"] if field["name"] == column)
    if any(key in field["metadata"] for key in _DEFAULTS):
        yield f"the default value of {column}"
    if any(key.startswith(_GENERATED) for key in field["metadata"]):
        yield f"the generated column {column}"
    for key in (_STATS_COLUMNS, clustering.CLUSTER_BY_PROPERTY):
        named = [parse_column_path(text)[0][0] for text in listed(features.properties.get(key, ""))]
        if column.lower() in map(str.lower, named):
            yield f"the property {key}"
    if column.lower() in {parse_column(name)[0].lower() for name in transaction.clustering_columns}:
        yield "the clustering"


def _expressions(transaction: Transaction, column: str) -> list[str]:
    """The CHECK constraints, invariants and generated columns whose expressions use a column, for messages."""
    session = transaction.spark._jsparkSession
    parser = session.sessionState().sqlParser()
    with jvm.delta_errors("reading the constraints of the table"):
        constraints = jvm.scala_object(transaction.spark, "org.apache.spark.sql.delta.constraints.Constraints")
        expressions = [
            (f"the CHECK constraint {one.name()}", one.expression())
            for one in jvm.items(constraints.getAll(transaction.delta.metadata(), session))
            if one.getClass().getSimpleName() != "NotNull"
        ]
        expressions += [
            (f"the generated column {field.name}", parser.parseExpression(field.metadata[_GENERATED]))
            for field in T.StructType.fromJson(dict(transaction.features.schema))
            if _GENERATED in field.metadata
        ]
        return [name for name, expression in expressions if column.lower() in _names(expression)]


def _names(expression: Any) -> set[str]:
    """The parts, in lower case, of the names of columns in an expression of the parser."""
    leaves = jvm.items(expression.collectLeaves())
    columns = [leaf for leaf in leaves if leaf.getClass().getSimpleName() == "UnresolvedAttribute"]
    return {part.lower() for column in columns for part in jvm.items(column.nameParts())}
