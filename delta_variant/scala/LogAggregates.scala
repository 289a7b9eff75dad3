package org.apache.spark.sql.delta.variant

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.delta.actions.AddFile
import org.apache.spark.sql.execution.datasources.{LogicalRelation, PushVariantIntoScan}
import org.apache.spark.sql.types.LongType

/**
 * Answers MIN and MAX of paths, and COUNT(*), over all rows of a scan. The log answers for the files with exact bounds, in one
 * row; the other files are aggregated by a query, and both are combined.
 */
final class LogAggregates private (uses: Uses, node: Aggregate, found: Seq[(LogAggregates.Key, AggregateFunction)]) {
  import LogAggregates._

  private val keys: Seq[Key] = found.map(_._1)
  private val functions: Map[Key, AggregateFunction] = found.toMap

  /** The uses whose MIN or MAX is requested, in the order of the bounds for `decide`. */
  val requested: Seq[Use] = keys.collect { case End(use, _) => use }.distinct

  /** The scan as it was before PushVariantIntoScan. */
  def scan: LogicalRelation = uses.scan

  // ---- the log ------------------------------------------------------------------------------------------------------

  /** The answer of the log for some files, and the files for which it has none. */
  final class Answer private[LogAggregates] (values: Map[Key, Any], val others: Seq[AddFile]) {

    /** The plan without the scan, which the log answers for all of its files. */
    def plan(described: Messages.ScanReport): LogicalPlan = {
      val row = this.row
      row.setTagValue(Outcomes.Answered, described)
      above(Project(replaced(row.output)((_, column) => column), row))
    }

    /** The plan that combines the answer with a scan of the other files, and that scan in it. */
    def plan(rest: LogicalRelation): (LogicalPlan, LogicalRelation) = {
      val below =
        uses.nodes.take(uses.chain).foldLeft[LogicalPlan](rest)((plan, node) => Relations.withChild(node.plan, 0, plan))
      val columns = keys.collect { case end: End => (end: Key) -> Alias(functions(end).children.head, "value")() }.toMap
      val partial = keys.map { key =>
        Alias(columns.get(key).fold(functions(key))(column => key.over(column.toAttribute)).toAggregateExpression(),
          "partial")()
      }
      val others = PushVariantIntoScan(Aggregate(Nil, partial, Project(keys.flatMap(columns.get), below)))
      val both = Union(Seq(row, others), byName = false, allowMissingCol = false)
      val whole = Aggregate(Nil, replaced(both.output)((key, column) => key.combined(column)), both)
      (above(whole), Relations.scanIn(others))
    }

    /** One row, with a column for each function. */
    private def row: LocalRelation = {
      val columns = keys.map {
        case Rows => AttributeReference("logged", LongType, nullable = false)()
        case End(use, _) => AttributeReference("logged", use.dataType)()
      }
      new LocalRelation(columns, Seq(InternalRow.fromSeq(keys.map(values))))
    }
  }

  /**
   * Aggregates the bounds of the files that the log decides. bounds: those of the reply (delta_variant/queries/requests.py):
   * for each use the smallest and the largest value, and last the number of rows.
   */
  def decide(files: Seq[AddFile], known: FileBounds, bounds: IndexedSeq[BoundValues]): Answer = known.synchronized {
    val numbered = files.map(file => file -> (if (Tags.isExact(file)) known.number(file.path) else -1))
    val (decided, others) = numbered.partition { case (_, number) =>
      number >= 0 && bounds.forall(bound => isKnown(bound.of(number)))
    }
    val numbers = decided.map { case (_, number) => number }
    val ends = for ((use, at) <- requested.zipWithIndex; isLeast <- Seq(true, false)) yield {
      val bound = bounds(2 * at + (if (isLeast) 0 else 1))
      val order = if (isLeast) bound.ordering else bound.ordering.reverse
      (End(use, isLeast): Key) -> numbers.map(bound.of).minOption(order).orNull
    }
    val rows = numbers.map(bounds.last.of(_).asInstanceOf[Long]).sum
    new Answer(ends.toMap + (Rows -> rows), others.map { case (file, _) => file })
  }

  // ---- the plan -----------------------------------------------------------------------------------------------------

  /** The aggregate's columns, with these in place of its functions. */
  private def replaced(columns: Seq[Attribute])(value: (Key, Attribute) => Expression): Seq[NamedExpression] = {
    val values = keys.zip(columns).map { case (key, column) => key -> value(key, column) }.toMap
    node.aggregateExpressions.map { column =>
      val over = column.transform(Function.unlift {
        case function: AggregateExpression => key(uses, function).flatMap(values.get)
        case _ => None
      })
      over.asInstanceOf[NamedExpression]
    }
  }

  private def above(plan: LogicalPlan): LogicalPlan = {
    TypedPlan.check(plan, node)
    uses.nodes.drop(uses.chain + 1).foldLeft(plan)((below, node) => Relations.withChild(node.plan, node.child, below))
  }
}

object LogAggregates extends AliasHelper {

  /** What an aggregate function computes. Equal for equal functions. */
  private sealed trait Key {

    /** The function over another column. */
    def over(column: Expression): AggregateFunction

    /** The function of all rows, from a column of partial results. */
    def combined(column: Expression): Expression
  }

  private case object Rows extends Key {
    override def over(column: Expression): AggregateFunction = Sum(column)
    override def combined(column: Expression): Expression = Coalesce(Seq(over(column).toAggregateExpression(), Literal(0L)))
  }

  private final case class End(use: Use, isLeast: Boolean) extends Key {
    override def over(column: Expression): AggregateFunction = if (isLeast) Min(column) else Max(column)
    override def combined(column: Expression): Expression = over(column).toAggregateExpression()
  }

  /** The aggregates of a plan over a scan; None if the plan uses anything else of the scan. */
  def of(uses: Uses): Option[LogAggregates] = uses.nodes.lift(uses.chain).map(_.plan).flatMap {
    case node: Aggregate
        if node.groupingExpressions.isEmpty && uses.nodes.take(uses.chain).forall(_.plan.isInstanceOf[Project]) =>
      functions(uses, node.aggregateExpressions).filter(_.exists(_._1 != Rows)).map { found =>
        new LogAggregates(uses, node, found.distinctBy(_._1))
      }
    case _ => None
  }

  /** The functions in expressions; None if these have columns outside of functions, or other functions. */
  private def functions(uses: Uses, expressions: Seq[Expression]): Option[Seq[(Key, AggregateFunction)]] = {
    val each = expressions.map {
      case function: AggregateExpression => key(uses, function).map(key => Seq(key -> function.aggregateFunction))
      case _: Attribute => None
      case other => functions(uses, other.children)
    }
    Option.when(each.forall(_.isDefined))(each.flatten.flatten)
  }

  /** None for functions other than MIN and MAX of a path, and COUNT(*). */
  private def key(uses: Uses, function: AggregateExpression): Option[Key] =
    if (function.isDistinct || function.filter.isDefined) None
    else function.aggregateFunction match {
      case Count(values) => Option.when(values.forall { case Literal(value, _) => value != null; case _ => false })(Rows)
      case Min(argument) => use(uses, argument).map(End(_, isLeast = true))
      case Max(argument) => use(uses, argument).map(End(_, isLeast = false))
      case _ => None
    }

  /** The use that an argument is, by the expressions of the projections above the scan. */
  private def use(uses: Uses, argument: Expression): Option[Use] = {
    val below = uses.nodes.take(uses.chain).map(_.plan).reverse.foldLeft(argument) {
      case (expression, project: Project) => replaceAlias(expression, getAliasMap(project))
      case (expression, _) => expression
    }
    uses.use(below).filter(_.path.isDefined)
  }

  /** Whether a bound is there and exact. Bounds do not tell the sign of a floating-point zero (protocol/README.md, B3). */
  private def isKnown(value: Any): Boolean = value match {
    case null => false
    case number: Double => number != 0
    case number: Float => number != 0
    case _ => true
  }
}
