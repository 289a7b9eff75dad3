"""Schema evolution: the schemas of a table and of the rows → the schema of the next version.

In: both schemas. Out: the table's schema with the columns and fields that only the rows have, nullable and at the end, also
in structs, arrays and maps; and with wider types if the table has type widening (PROTOCOL.md, "Type Widening"). Delta
merges the schemas once more, refuses changes that generated columns and constraints depend on, and records the change.

Invariant: no type is narrowed, and no column is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import types as t

from delta_variant import jvm
from delta_variant.errors import InvalidSchemaError
from delta_variant.writer.alignment import storable_schema, type_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delta_variant.transaction import Transaction


def evolve(spark: SparkSession, schema: t.StructType, transaction: Transaction) -> None:
    """Add the columns and the wider types of the rows to the table, in this transaction, if the write may change its schema.

    schema: that of the rows. Raises InvalidSchemaError for a wider type if the table has no type widening, and TableError for
    changes that Delta refuses.
    """
    if not transaction.merges_schema:
        transaction.update_metadata(None)
        return
    features = transaction.features
    table = t.StructType.fromJson(dict(features.schema))
    merged = _Merge(spark, transaction, features.table).of(storable_schema(schema), table, ())
    transaction.update_metadata(None if merged == table else storable_schema(merged))


class _Merge:
    """Merges the types of the rows into those of a table."""

    def __init__(self, spark: SparkSession, transaction: Transaction, table: str) -> None:
        self._table = table
        self._spark = spark
        self._widening = jvm.scala_object(spark, "org.apache.spark.sql.delta.TypeWidening")
        delta = transaction.delta
        self._widens = bool(self._widening.isEnabled(delta.protocol(), delta.metadata()))

    def of(self, rows: t.DataType, table: t.DataType, path: tuple[str, ...]) -> Any:
        if isinstance(rows, t.StructType) and isinstance(table, t.StructType):
            given = {field.name.lower(): field for field in rows}
            fields = []
            for field in table:
                new = given.pop(field.name.lower(), None)
                merged = field.dataType if new is None else self.of(new.dataType, field.dataType, (*path, field.name))
                fields.append(t.StructField(field.name, merged, field.nullable, field.metadata))
            return t.StructType([*fields, *given.values()])
        if isinstance(rows, t.ArrayType) and isinstance(table, t.ArrayType):
            return t.ArrayType(self.of(rows.elementType, table.elementType, (*path, "element")), table.containsNull)
        if isinstance(rows, t.MapType) and isinstance(table, t.MapType):
            key = self.of(rows.keyType, table.keyType, (*path, "key"))
            return t.MapType(key, self.of(rows.valueType, table.valueType, (*path, "value")), table.valueContainsNull)
        return rows if self._is_wider(rows, table, path) else table

    def _is_wider(self, rows: t.DataType, table: t.DataType, path: tuple[str, ...]) -> bool:
        if rows == table or not isinstance(rows, t.AtomicType) or not isinstance(table, t.AtomicType):
            return False
        # `align` reports types that neither fit nor are wider.
        if not self._widening.isTypeChangeSupportedForSchemaEvolution(
            jvm.data_type(self._spark, table), jvm.data_type(self._spark, rows), False
        ):
            return False
        if not self._widens:
            raise InvalidSchemaError(
                f"column {'.'.join(path)} is {type_name(rows)} in the DataFrame and {type_name(table)} in {self._table}, which "
                "has no type widening: cast the column, or set the table property delta.enableTypeWidening to true"
            )
        return True
