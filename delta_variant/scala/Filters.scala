package org.apache.spark.sql.delta.variant

import java.util.HexFormat

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.variant.VariantGet
import org.apache.spark.sql.catalyst.util.QuotingUtils
import org.apache.spark.sql.delta.{DeltaColumnMapping, DeltaParquetFileFormat}
import org.apache.spark.sql.execution.datasources.{HadoopFsRelation, LogicalRelation, VariantMetadata}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/**
 * The filters of one scan, from Catalyst expressions to messages for delta_variant/queries/requests.py.
 *
 * Compared expressions and constants are numbered: each distinct expression is listed once, and the values of constants (the
 * whole list of an IN under one number) stay in the JVM.
 */
final class Filters(scan: LogicalRelation) {
  import Filters._

  private val columns: Map[ExprId, StructField] = fieldsWithVariants(scan)
  private val numbers = mutable.Map.empty[Expression, Int]
  private val compared = mutable.ArrayBuffer.empty[Messages.Operand]
  private val values = mutable.ArrayBuffer.empty[Array[Any]]
  private val ordinary = mutable.ArrayBuffer.empty[Expression]
  private val named = mutable.Map.empty[String, DataType]

  /** The distinct expressions that the filters compare. */
  def operands: Seq[Messages.Operand] = compared.toSeq

  /** The values of each constant, without NULLs, as Catalyst holds them. */
  def constants: IndexedSeq[Array[Any]] = values.toIndexedSeq

  /** The operands of AND and OR that use no VARIANT, by their numbers. */
  def others: Seq[Expression] = ordinary.toSeq

  /** The types of the operands and of the expressions inside them, by their names. */
  def types: Map[String, DataType] = named.toMap

  /** The filters that use a VARIANT. */
  def messages(filters: Seq[Expression]): Seq[Messages.Filter] =
    if (columns.isEmpty) Nil else filters.map(message).filterNot(_ == Messages.Aside())

  /** Whether an expression uses a VARIANT. */
  def readsVariant(expression: Expression): Boolean = {
    val fields = expression.references.toSeq.flatMap(column => columns.get(column.exprId))
    fields.exists(_.dataType == VariantType) ||
    fields.nonEmpty && (variant(expression).isDefined || expression.children.exists(readsVariant))
  }

  // ---- filters ------------------------------------------------------------------------------------------------------

  private def message(filter: Expression): Messages.Filter = filter match {
    case other if !readsVariant(other) => Messages.Aside()
    case and: And => Messages.And(parts(and, { case And(left, right) => Seq(left, right) }, And(_, _)))
    case or: Or => Messages.Or(parts(or, { case Or(left, right) => Seq(left, right) }, Or(_, _)))
    case Not(part) => Messages.Not(message(part))
    case comparison: BinaryComparison => Messages.Comparison(comparison.symbol, side(comparison.left), side(comparison.right))
    case StartsWith(value, prefix) => Messages.StartsWith(side(value), side(prefix))
    case Like(value, Literal(pattern, dataType), escape) =>
      val prefix = Option(pattern).map(text => beforeWildcard(text.toString, escape)).orNull
      Messages.Like(side(value), constant(Array[Any](prefix), dataType))
    case IsNotNull(value) =>
      if (variant(value).isDefined) Messages.Aside() else Messages.IsNotNull(side(value)) // Delta's own skipping
    case IsNull(value) => if (variant(value).isDefined) Messages.Aside() else Messages.IsNull(side(value))
    case In(value, list) => Messages.In(side(value), constants(list, value.dataType))
    case InSet(value, set) => Messages.In(side(value), constant(set.toArray, value.dataType))
    case other if other.dataType == BooleanType =>
      side(other) match {
        case value: Messages.OperandNumber => Messages.Comparison("=", value, constant(Array[Any](true), BooleanType))
        case _ => Messages.Unknown(text(other))
      }
    case other => Messages.Unknown(text(other))
  }

  /**
   * The operands of a chain of ANDs or of ORs, however deep it is, from left to right. Operands on ordinary columns become one
   * operand at the end.
   */
  private def parts(
      chain: Expression,
      split: PartialFunction[Expression, Seq[Expression]],
      join: (Expression, Expression) => Expression): Seq[Messages.Filter] = {
    val operands = mutable.ArrayBuffer.empty[Expression]
    val open = mutable.Stack(chain)
    while (open.nonEmpty) {
      val next = open.pop()
      split.lift(next).fold[Unit](operands += next)(inner => inner.reverse.foreach(open.push))
    }
    val (plain, reading) = operands.toSeq.partition(operand => !readsVariant(operand) && isPlain(operand))
    reading.map(message) ++ plain.reduceLeftOption(join).map(other)
  }

  private def other(filter: Expression): Messages.Filter = {
    if (!ordinary.contains(filter)) ordinary += filter
    Messages.Ordinary(ordinary.indexOf(filter), text(filter))
  }

  // ---- the sides of a comparison ------------------------------------------------------------------------------------

  private def side(expression: Expression): Messages.Side = expression match {
    case Literal(value, dataType) => constant(Array[Any](value), dataType)
    case known if numbers.contains(known) => Messages.OperandNumber(numbers(known))
    case other =>
      operand(other) match {
        case unknown: Messages.Unknown => unknown
        case found =>
          compared += found
          numbers(other) = compared.size - 1
          Messages.OperandNumber(compared.size - 1)
      }
  }

  private def operand(expression: Expression): Messages.Operand = expression match {
    case Variant(fields) =>
      Messages.Column(fields.map(DeltaColumnMapping.getPhysicalName), QuotingUtils.quoted(fields.map(_.name).toArray))
    case VariantGet(child, Literal(path, _), dataType, _, _) =>
      inside(expression, child, dataType)(Messages.Get(_, String.valueOf(path), _))
    case Columns.Pushed(child, pushed, dataType) => inside(expression, child, dataType)(Messages.Get(_, pushed.path, _))
    case cast: Cast => inside(expression, cast.child, cast.dataType)(Messages.CastOf(_, _))
    case _ => Messages.Unknown(text(expression))
  }

  private def inside(whole: Expression, child: Expression, dataType: DataType)(
      message: (Messages.Operand, String) => Messages.Operand): Messages.Operand = operand(child) match {
    case _: Messages.Unknown => Messages.Unknown(text(whole))
    case of =>
      named(dataType.catalogString) = dataType
      message(of, dataType.catalogString)
  }

  /** The table's fields that lead to a VARIANT, if the expression is one. */
  private def variant(expression: Expression): Option[Seq[StructField]] =
    fields(expression).filter(_.last.dataType == VariantType)

  private object Variant {
    def unapply(expression: Expression): Option[Seq[StructField]] = variant(expression)
  }

  /** The table's fields that lead to a column, or to a field of a struct column. */
  private def fields(expression: Expression): Option[Seq[StructField]] = expression match {
    case column: Attribute => columns.get(column.exprId).map(Seq(_))
    case GetStructField(struct, ordinal, _) if !VariantMetadata.isVariantStruct(struct.dataType) =>
      for {
        outer <- fields(struct)
        schema <- Option(outer.last.dataType).collect { case schema: StructType => schema }
        field <- Columns.field(schema, struct.dataType.asInstanceOf[StructType](ordinal).name)
      } yield outer :+ field
    case _ => None
  }

  private def constants(list: Seq[Expression], dataType: DataType): Messages.Side =
    list.collectFirst { case item if !item.isInstanceOf[Literal] => Messages.Unknown(text(item)) }
      .getOrElse[Messages.Side](constant(list.collect { case Literal(value, _) => value }.toArray, dataType))

  private def constant(all: Array[Any], dataType: DataType): Messages.Constant = {
    val some = all.filter(_ != null)
    values += some
    Messages.Constant(values.size - 1, dataType.catalogString, some.take(Shown).map(shown).toSeq, some.length,
      some.length < all.length)
  }
}

object Filters {
  private val Shown = 5 // constants of a list that `explain` shows
  private val ShownBytes = 64 // of a string that it shows
  private val ShownText = 120 // characters of an expression

  /** Whether an expression is the same for the same row, whenever it is evaluated. */
  def isPlain(expression: Expression): Boolean = expression.deterministic && !SubqueryExpression.hasSubquery(expression)

  /**
   * The columns of a scan that are VARIANTs or have one inside, as fields of the schema by which the reader finds Parquet
   * columns.
   */
  private def fieldsWithVariants(scan: LogicalRelation): Map[ExprId, StructField] = scan.relation match {
    case HadoopFsRelation(_, _, _, _, format: DeltaParquetFileFormat, _) =>
      val found = for {
        column <- scan.output
        field <- Columns.field(format.referenceSchema, column.name) if Columns.hasVariant(field.dataType)
      } yield column.exprId -> field
      found.toMap
    case _ => Map.empty
  }

  private def beforeWildcard(pattern: String, escape: Char): UTF8String =
    UTF8String.fromString(pattern.takeWhile(char => char != '%' && char != '_' && char != escape))

  private def text(expression: Expression): String = {
    val text = expression.toString.replaceAll("#\\d+L?", "")
    if (text.length > ShownText) text.take(ShownText - 3) + "..." else text
  }

  /** A value as text: a string as the hex of its bytes, a date as days, a timestamp as microseconds. */
  private def shown(value: Any): String = value match {
    case string: UTF8String =>
      val bytes = string.getBytes
      HexFormat.of.formatHex(bytes, 0, math.min(bytes.length, ShownBytes))
    case decimal: Decimal => decimal.toJavaBigDecimal.toPlainString
    case other => other.toString
  }
}
