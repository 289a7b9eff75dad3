package org.apache.spark.sql.delta.variant

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

  /** The field of a struct with that name, whatever its case. */
  def field(struct: StructType, name: String): Option[StructField] = struct.fields.find(_.name.equalsIgnoreCase(name))
}
