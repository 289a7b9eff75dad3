package org.apache.spark.sql.delta.variant

import org.apache.spark.sql.catalyst.expressions.{Expression, GetStructField}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.datasources.VariantMetadata
import org.apache.spark.sql.types.{DataType, StructField, StructType, VariantType}

/** Columns with VARIANTs. */
object Columns {

  /** Whether a column is a VARIANT, even one that PushVariantIntoScan turned into a struct, or a struct that contains one. */
  def hasVariant(dataType: DataType): Boolean = dataType match {
    case VariantType => true
    case struct: StructType =>
      VariantMetadata.isVariantStruct(struct) || struct.fields.exists(field => hasVariant(field.dataType))
    case _ => false
  }

  def hasVariant(plan: LogicalPlan): Boolean = plan.output.exists(column => hasVariant(column.dataType))

  /** A path that PushVariantIntoScan has moved to the scan: the struct in place of the VARIANT, the path, and the type. */
  object Pushed {
    def unapply(expression: Expression): Option[(Expression, VariantMetadata, DataType)] = expression match {
      case get: GetStructField if VariantMetadata.isVariantStruct(get.child.dataType) =>
        val field = get.childSchema(get.ordinal)
        Some((get.child, VariantMetadata.fromMetadata(field.metadata), field.dataType))
      case _ => None
    }
  }

  /** The field of a struct with that name, whatever its case. */
  def field(struct: StructType, name: String): Option[StructField] = struct.fields.find(_.name.equalsIgnoreCase(name))
}
