package org.apache.spark.sql.delta.variant

import org.apache.spark.sql.types._

/**
 * The types of typed columns, by their names in Spark SQL, which delta_variant/queries/casts uses too. The type of a column of
 * arrays is that of its elements in an array. An array whose elements have no one type is an array of VOID, of which no element
 * is read.
 */
object LeafTypes {

  /** The type of a path that no row has. */
  val Void = "void"

  /** The type of an object, of whose fields each has a path of its own. */
  val Object = "struct<>"

  private val Arrays = "array<(.+)>".r
  private val Decimals = raw"decimal\((\d+),(\d+)\)".r
  private val Decimal4 = 8
  private val Digits = Array(9, 18, 38) // of decimal4, decimal8, decimal16

  // By the type id of VariantEncoding, "Encoding types".
  private val Primitives: Array[Option[String]] = Array(
    None, Some("boolean"), Some("boolean"), Some("tinyint"), Some("smallint"), Some("int"), Some("bigint"), Some("double"),
    None, None,
    None, Some("date"), Some("timestamp"), Some("timestamp_ntz"), Some("float"), Some("binary"), Some("string"))

  private val ByName: Map[String, DataType] = Seq(
    BooleanType, ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, DateType, TimestampType, TimestampNTZType,
    BinaryType, StringType, NullType, StructType(Nil)).map(known => known.catalogString -> known).toMap

  private val DecimalNames = Digits.map(digits => Array.tabulate(digits + 1)(scale => s"decimal($digits,$scale)"))

  /** The type of a Variant's value; None if it is not a primitive, or Spark lacks the type. */
  def ofValue(value: Array[Byte]): Option[String] = {
    val id = value(0) >> 2 & 63
    value(0) & 3 match {
      case 1 => Some("string")
      case 0 if id >= Decimal4 && id < Decimal4 + Digits.length => decimal(id - Decimal4, value(1) & 255)
      case 0 if id < Primitives.length => Primitives(id)
      case _ => None
    }
  }

  /** The type of a decimal of 4, 8 or 16 bytes (`width` 0, 1 or 2); None if the scale exceeds its digits. */
  def decimal(width: Int, scale: Int): Option[String] = DecimalNames(width).lift(scale)

  /** The integer type with this many bits. */
  def ofBits(bits: Int): String = bits match {
    case 8 => "tinyint"
    case 16 => "smallint"
    case 32 => "int"
    case _ => "bigint"
  }

  /** The smallest integer type that can hold both values. */
  def room(least: Long, most: Long): String =
    if (least.isValidByte && most.isValidByte) "tinyint"
    else if (least.isValidShort && most.isValidShort) "smallint"
    else if (least.isValidInt && most.isValidInt) "int"
    else "bigint"

  /** The value as an integer of that type; None if the type cannot hold it, or is not an integer type. */
  def integer(value: Long, dataType: DataType): Option[Any] = dataType match {
    case LongType => Some(value)
    case IntegerType if value.isValidInt => Some(value.toInt)
    case ShortType if value.isValidShort => Some(value.toShort)
    case ByteType if value.isValidByte => Some(value.toByte)
    case _ => None
  }

  def array(name: String): String = s"array<$name>"

  def isArray(name: String): Boolean = name.startsWith("array<")

  /** The bytes that Spark's estimates assume for a value of the type. */
  def size(name: String): Int = dataType(name).defaultSize

  /** The Spark type of that name. */
  def dataType(name: String): DataType = name match {
    case Arrays(element) => ArrayType(dataType(element))
    case Decimals(digits, scale) => DecimalType(digits.toInt, scale.toInt)
    case _ => ByName(name)
  }
}
