package org.apache.spark.sql.delta.variant

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.{Max, Min}
import org.apache.spark.sql.catalyst.expressions.variant.VariantGet
import org.apache.spark.sql.catalyst.plans._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.execution.LogicalRDD
import org.apache.spark.sql.types._

/**
 * What the operators above a scan require of its rows: a row that does not meet a requirement cannot change the result of the
 * plan.
 *
 * A join requires of one side a predicate, or that an expression has one of the other side's keys; keys are read only where
 * that is cheap. ORDER BY with LIMIT requires the first rows of its order.
 *
 * @param isNumbered the plan may number its rows; the numbers change if rows that do not meet the demands are left out
 * @param limit how many rows are required, the first ones in `order` if that is set; 0 for all rows
 */
final case class Demands private (all: Seq[Demands.Demand], isNumbered: Boolean, limit: Int, order: Option[SortOrder])
    extends AliasHelper {
  import Demands._

  // ---- down the plan ------------------------------------------------------------------------------------------------

  /** The demands of a node on the rows of a child, if these are the demands on the node's own rows. */
  def of(node: LogicalPlan, child: Int): Demands = node match {
    case join: Join => ofJoin(join, child)
    case LocalLimit(Literal(count: Int, _), _) => Empty.copy(limit = count)
    case Sort(first +: _, true, _, _) if limit > 0 && order.isEmpty => copy(order = Some(first))
    case filter: Filter if !isEmpty => ofFilter(filter.condition)
    case project: Project if !isEmpty => ofProject(project)
    case _ => Empty
  }

  private def isEmpty: Boolean = all.isEmpty && limit == 0

  /**
   * A filter may remove the first rows of an order, so ORDER BY with LIMIT demands nothing below it. If the filter removes only
   * the rows in which the ordered value is NULL, it is as if NULLs came last.
   */
  private def ofFilter(condition: Expression): Demands =
    if (!condition.deterministic) Empty
    else {
      val last = order.filter(sort => isNotNull(condition, sort.child)).map(_.copy(nullOrdering = NullsLast))
      copy(limit = if (last.isDefined) limit else 0, order = last)
    }

  private def ofJoin(join: Join, child: Int): Demands = {
    val isInner = join.joinType == Inner || join.joinType == Cross
    val isRestricted = join.joinType match { // rows of the child without a partner are not in the result
      case Inner | Cross | LeftSemi => true
      case LeftOuter | LeftAnti => child == 1
      case RightOuter => child == 0
      case _ => false
    }
    if (!isRestricted) Empty
    else {
      val (mine, other) = (join.children(child), join.children(1 - child))
      val passed = if (isInner) all.filter(demand => isOf(demand.expression, mine)) else Nil
      Demands(passed ++ join.condition.toSeq.flatMap(conjuncts(_, mine, other)), isNumbered, 0, None)
    }
  }

  private def ofProject(project: Project): Demands = {
    val aliases = getAliasMap(project)
    val below =
      all.map(demand => demand.copy(expression = replaceAlias(demand.expression, aliases))).filter(_.expression.deterministic)
    val isSame = project.expressions.forall(_.deterministic)
    val ordered = order.map(sort => sort.copy(child = replaceAlias(sort.child, aliases)))
    Demands(below, isNumbered || !isSame, if (isSame) limit else 0, if (isSame) ordered else None)
  }

  // ---- at the scan --------------------------------------------------------------------------------------------------

  /**
   * The demands that use a VARIANT, as filters of the scan. A demand whose keys cannot be read is left out. A filter above may
   * remove the row that fails; if none does, the query fails by itself.
   *
   * @param isCommand whether DELETE, UPDATE or MERGE looks for its rows
   */
  def filters(scan: Filters, isCommand: Boolean): Seq[Expression] =
    if (isNumbered && !isCommand) Nil
    else all.filter(demand => scan.readsVariant(demand.expression)).flatMap { demand =>
      try demand.keys.fold(Option(demand.expression))(_.filter(demand.expression, isCommand))
      catch { case failure: Throwable if !Failures.stops(failure) => None }
    }

  /**
   * The order whose first rows are demanded, `limit` of them; None if there is none, or if bounds cannot tell where these rows
   * are: NULLs that come first have no bounds, and bounds of strings may be cut.
   */
  def first(scan: Filters): Option[SortOrder] = order.filter { sort =>
    sort.nullOrdering == NullsLast && scan.readsVariant(sort.child) && isOrdered(sort.child.dataType) &&
    !sort.child.dataType.isInstanceOf[StringType]
  }
}

object Demands extends PredicateHelper {

  /** A predicate; with `keys`, an expression that has one of the other side's keys. Both are over the columns of the plan. */
  final case class Demand(expression: Expression, keys: Option[Keys] = None)

  val Empty: Demands = Demands(Nil, isNumbered = false, 0, None)

  private def conjuncts(condition: Expression, mine: LogicalPlan, other: LogicalPlan): Seq[Demand] =
    splitConjunctivePredicates(condition).flatMap {
      case own if isOf(own, mine) => Seq(Demand(own))
      case EqualTo(left, right) =>
        Seq(left -> right, right -> left).collect {
          case (side, key) if isOf(side, mine) && isOf(key, other) => Demand(side, Some(Keys(key, other)))
        }
      case _ => Nil
    }

  private def isOf(expression: Expression, plan: LogicalPlan): Boolean =
    Filters.isPlain(expression) && expression.references.nonEmpty && expression.references.subsetOf(plan.outputSet)

  // ---- filters that remove NULLs ------------------------------------------------------------------------------------

  /**
   * Whether a condition says that a value is not NULL. It may also say so of what the value is computed from, and of nothing
   * else.
   */
  private def isNotNull(condition: Expression, value: Expression): Boolean = {
    val parts = Iterator.iterate(Option(value))(_.flatMap(computedFrom)).takeWhile(_.isDefined).flatten.map(text).toSeq
    val stated = splitConjunctivePredicates(condition).map {
      case IsNotNull(child) => parts.indexOf(text(child))
      case _ => -1
    }
    stated.forall(_ >= 0) && stated.contains(0)
  }

  private def computedFrom(expression: Expression): Option[Expression] = expression match {
    case Cast(child, _, _, _) => Some(child)
    case get: VariantGet => Some(get.child)
    case GetStructField(child, _, _) => Some(child)
    case _ => None
  }

  /** A text that is equal for equal expressions on a VARIANT, whether or not PushVariantIntoScan moved them to the scan. */
  private def text(expression: Expression): String = expression match {
    case cast: Cast => s"${text(cast.child)}::${cast.dataType.sql}"
    case VariantGet(child, path: Literal, dataType, _, _) => s"${text(child)}:$path::${dataType.sql}"
    case Columns.Pushed(variant, pushed, dataType) =>
      if (pushed.path == "$" && dataType == VariantType) text(variant) else s"${text(variant)}:${pushed.path}::${dataType.sql}"
    case other => other.canonicalized.toString
  }

  // ---- keys of the other side ---------------------------------------------------------------------------------------

  private val MaxKeys = 10000 // of more keys, only the range is demanded
  private val SmallBytes = 10L << 20 // of a table that is read for its keys; what Spark broadcasts by default

  /** The keys that an expression over the columns of the other side gives. */
  final case class Keys(key: Expression, side: LogicalPlan) {

    /**
     * The filter that a value is one of the keys or, if they are many, in their range. None if it would take long to find the
     * keys, or if there are none.
     */
    def filter(value: Expression, isCommand: Boolean): Option[Expression] = {
      val (source, key, condition) = below(side, this.key, Literal.TrueLiteral)
      val isReadable = source.isInstanceOf[LocalRelation] || isCommand && isCheap(source)
      if (!isOrdered(key.dataType) || !Filters.isPlain(key) || source.isStreaming || !isReadable) None
      else {
        val named = Alias(key, "key")()
        val keys = Project(Seq(named), Filter(condition, source))
        val some = rows(Limit(Literal(MaxKeys + 1), keys))
        if (some.length <= MaxKeys) {
          val values = some.filterNot(_.isNullAt(0)).map(row => Literal(row.copy().get(0, key.dataType), key.dataType))
          Option.when(values.nonEmpty)(In(value, values.toSeq))
        } else {
          val ends =
            Seq(new Min(named.toAttribute), new Max(named.toAttribute)).map(end => Alias(end.toAggregateExpression(), "end")())
          val range = rows(Aggregate(Nil, ends, keys)).head
          def end(number: Int) = Literal(range.get(number, key.dataType), key.dataType)
          Option.when(!range.isNullAt(0))(And(GreaterThanOrEqual(value, end(0)), LessThanOrEqual(value, end(1))))
        }
      }
    }

    /**
     * The plan below projections and filters, with the key and the filters over its columns. Filters that are not plain are
     * left out, which gives more keys: MERGE counts the rows of its source in a filter.
     */
    private def below(plan: LogicalPlan, key: Expression, condition: Expression): (LogicalPlan, Expression, Expression) =
      plan match {
        case filter: Filter =>
          below(filter.child, key, if (Filters.isPlain(filter.condition)) And(filter.condition, condition) else condition)
        case project: Project =>
          val aliases = getAliasMap(project)
          val found = replaceAlias(condition, aliases)
          below(project.child, replaceAlias(key, aliases), if (found.deterministic) found else Literal.TrueLiteral)
        case source => (source, key, condition)
      }
  }

  private def isOrdered(dataType: DataType): Boolean = dataType match {
    case _: IntegralType | _: DecimalType | StringType | DateType | TimestampType | TimestampNTZType => true
    case _ => false
  }

  /** Whether a plan gives the same rows each time, with little work: a small Delta table, or a checkpoint. */
  private def isCheap(side: LogicalPlan): Boolean = side match {
    case rows: LogicalRDD => rows.rdd.isCheckpointed
    case PlannedScan(_, files) => files.bytes <= SmallBytes
    case _ => false
  }

  private def rows(plan: LogicalPlan): Array[InternalRow] =
    Dataset.ofRows(SparkSession.active, plan).queryExecution.executedPlan.executeCollect()
}
