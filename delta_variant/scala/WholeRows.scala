package org.apache.spark.sql.delta.variant

import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, ExprId, Literal, NamedExpression}
import org.apache.spark.sql.execution.{ProjectExec, SparkPlan}
import org.apache.spark.sql.execution.python.MapInArrowExec
import org.apache.spark.sql.types.DataType

/**
 * Rows that a plan makes in its last step, by mapInArrow, of pieces of Parquet files (delta_variant/conversion.py) or of sorted
 * blocks (delta_variant/writer/blocks.py): tasks get the pieces or blocks and read them. Below mapInArrow, the first column has
 * the pieces or blocks. The other columns are also the last ones above it.
 *
 * @param columns the indexes, in the plan's output, of the columns that tasks read; the first gets the pieces
 * @param kind the type of the column with the pieces
 */
final case class WholeRows(columns: Seq[Int], kind: DataType) extends LastStep {

  protected def replaced(plan: SparkPlan): Option[SparkPlan] =
    WholeRows.chosen(plan).filter(_ => WholeRows.of(plan).contains(this)).map {
      case (chosen, map) =>
        val below = WholeRows.kept(map)
        ProjectExec(
          chosen.zipWithIndex.map {
            case (column, index) if columns.head == index => Alias(map.child.output.head, column.name)()
            case (column, index) if columns.contains(index) => Alias(Literal(null, column.dataType), column.name)()
            case (column, _) => Alias(below(column.exprId), column.name)()
          }, map.child)
    }
}

object WholeRows {

  /** The columns of a plan that are columns of mapInArrow under their own names, and mapInArrow. */
  private def chosen(plan: SparkPlan): Option[(Seq[Attribute], MapInArrowExec)] = plan match {
    case map: MapInArrowExec => Some((map.output, map))
    case ProjectExec(list, map: MapInArrowExec) =>
      val names = map.output.map(column => column.exprId -> column).toMap
      val columns = list.collect {
        case column: Attribute => column
        case Alias(column: Attribute, name) if column.name == name => names(column.exprId)
      }
      Option.when(columns.size == list.size)((columns, map))
    case _ => None
  }

  /** The columns below mapInArrow that are there above it, too. */
  private def kept(map: MapInArrowExec): Map[ExprId, NamedExpression] = {
    val below = map.child.output.tail
    map.output.takeRight(below.size).map(_.exprId).zip(below).toMap
  }

  def of(plan: SparkPlan): Option[WholeRows] = chosen(LastStep.of(plan)).flatMap { case (columns, map) =>
    val read = columns.zipWithIndex.collect { case (column, index) if !kept(map).contains(column.exprId) => index }
    Option.when(read.nonEmpty)(WholeRows(read, map.child.output.head.dataType))
  }
}
