package org.apache.spark.sql.delta.variant

import org.apache.spark.sql.catalyst.expressions.{
  Alias, Ascending, Attribute, AttributeMap, Empty2Null, Expression, NamedExpression, NullsFirst, NullsLast, SortOrder
}
import org.apache.spark.sql.catalyst.optimizer.CollapseProject
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Project, RebalancePartitions, RepartitionByExpression, Sort}
import org.apache.spark.sql.classic.{DataFrame, Dataset, SparkSession}
import org.apache.spark.sql.functions.expr
import org.apache.spark.sql.types.StringType

/** The order of the rows of a write, and which task gets them. */
object Clustering {

  /**
   * The rows in the order of keys: each task gets a range of them, so that files cover narrow ranges.
   *
   * @param partitioning the partition columns, which come before the keys
   * @param keys as SQL expressions over the columns
   * @param bytes about how many a task is to get
   */
  def clustered(rows: DataFrame, partitioning: Seq[String], keys: Seq[String], bytes: Long): DataFrame = {
    val last = LastColumns.of(rows, partitioning)
    val resolved = rows.select(keys.map(expr): _*).queryExecution.analyzed.asInstanceOf[Project].projectList
    val computed = resolved.zipWithIndex.map {
      case (Alias(key, _), index) => Alias(last.underneath(key), s"delta_variant key $index")()
      case (key, index) => Alias(last.underneath(key), s"delta_variant key $index")()
    }
    val order = partitionKeys(last.named(partitioning)).map(SortOrder(_, Ascending, NullsFirst, Nil)) ++
      computed.map(key => SortOrder(key.toAttribute, Ascending, NullsLast, Nil))
    val ranges = RepartitionByExpression(order, Project(last.below.output ++ computed, last.below), None, Some(bytes))
    last.above(Sort(order, global = false, ranges))
  }

  /** The keys by which rows of one partition are together, as Spark has them: an empty string is in the partition of NULL. */
  def partitionKeys(columns: Seq[Expression]): Seq[Expression] =
    columns.map(column => if (column.dataType == StringType && column.nullable) Empty2Null(column) else column)

  /**
   * The rows, with the rows of a partition together, in their order. If the rows are sorted by partition, or if Delta computes
   * a partition column, they stay as they are.
   *
   * @param rebalances whether Spark gathers the rows of a partition first
   */
  def gathered(rows: DataFrame, partitioning: Seq[String], rebalances: Boolean, bytes: Long): DataFrame = {
    val last = LastColumns.of(rows, partitioning)
    val by = last.named(partitioning)
    val order = rows.queryExecution.analyzed.outputOrdering.takeWhile(_.child.isInstanceOf[Attribute])
      .map(key => key.copy(child = last.underneath(key.child), sameOrderExpressions = Nil))
    def isPartition(key: SortOrder) = by.exists(_.semanticEquals(key.child))
    if (by.size < partitioning.size || by.isEmpty || order.take(by.size).count(isPartition) == by.size) rows
    else {
      val keys = partitionKeys(by)
      val together = if (rebalances) RebalancePartitions(keys, last.below, None, Some(bytes)) else last.below
      last.above(Sort(
          keys.map(SortOrder(_, Ascending, NullsFirst, Nil)) ++ order.filterNot(isPartition), global = false, together))
    }
  }

  /**
   * The columns that a plan computes last, and the plan below them. These columns are computed after the exchange of rows, so
   * that JSON texts go through the exchange, and tasks parse them (`JsonTexts`).
   */
  private final class LastColumns(session: SparkSession, columns: Seq[NamedExpression], val below: LogicalPlan) {
    private val made = AttributeMap(columns.collect { case alias @ Alias(of, _) => alias.toAttribute -> of })
    private val resolver = session.sessionState.conf.resolver

    def underneath(key: Expression): Expression = key.transform { case column: Attribute => made.getOrElse(column, column) }

    def named(names: Seq[String]): Seq[Expression] =
      names.flatMap(name => columns.find(column => resolver(column.name, name)).map(column => underneath(column.toAttribute)))

    def above(plan: LogicalPlan): DataFrame = Dataset.ofRows(session, Project(columns, plan))
  }

  private object LastColumns {

    /** If partition columns, which rows are sorted by, are computed last, the whole plan is below. */
    def of(rows: DataFrame, partitioning: Seq[String]): LastColumns = {
      val session = rows.sparkSession.asInstanceOf[SparkSession]
      val resolver = session.sessionState.conf.resolver
      CollapseProject(rows.queryExecution.analyzed) match {
        case Project(columns, below)
            if columns.forall(_.deterministic) && columns.filter(column =>
              partitioning.exists(resolver(_, column.name))).forall {
              case _: Attribute | Alias(_: Attribute, _) => true
              case _ => false
            } =>
          new LastColumns(session, columns, below)
        case whole => new LastColumns(session, whole.output, whole)
      }
    }
  }
}
