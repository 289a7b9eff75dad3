package org.apache.spark.sql.delta.variant

import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute
import org.apache.spark.sql.catalyst.expressions.{Expression, In, IsNull, Literal, Or}
import org.apache.spark.sql.catalyst.plans.logical.{DeleteFromTable, Filter, LogicalPlan}
import org.apache.spark.sql.classic.{DataFrame, SparkSession}
import org.apache.spark.sql.delta.OptimisticTransaction
import org.apache.spark.sql.delta.actions.{Action, AddCDCFile, AddFile}
import org.apache.spark.sql.delta.commands.DeleteCommand
import org.apache.spark.sql.execution.datasources.LogicalRelation

/** What a reload replaces in a transaction: rows by the values of a column, which is Delta's DELETE, or whole data files. */
final class Replace(spark: SparkSession, transaction: OptimisticTransaction) {
  import Replace._

  private def analyzed(plan: LogicalPlan): LogicalPlan = {
    val analyzer = spark.sessionState.analyzer
    val result = analyzer.execute(plan)
    analyzer.checkAnalysis(result)
    result
  }

  private def relation: LogicalPlan = LogicalRelation(transaction.deltaLog.createRelation(
      snapshotToUseOpt = Some(transaction.snapshot), catalogTableOpt = transaction.catalogTable))

  /**
   * The actions of a DELETE of the rows for which a condition is true, by the steps of WriteIntoDelta.removeFiles. Rows of the
   * change data feed are left out: the new files have none, and a commit has such rows for all of its changes or for none
   * (PROTOCOL.md, "Add CDC File").
   */
  def rows(condition: Expression): Seq[Action] = OptimisticTransaction.withActive(transaction) {
    val command = analyzed(DeleteFromTable(relation, condition)).asInstanceOf[DeleteCommand]
    val (actions, _) = command.performDelete(spark, transaction.deltaLog, transaction)
    actions.filterNot(_.isInstanceOf[AddCDCFile])
  }

  /** The rows of the files that may have one of these values in a column, or null. */
  def candidates(asked: String): DataFrame = {
    val Messages.Candidates(column, values) = Messages.decoded[Messages.Candidates](asked)
    val condition = Or(among(column, values), IsNull(attribute(column)))
    analyzed(Filter(condition, relation)) match {
      case Filter(resolved, _) => read(transaction.filterFiles(Seq(resolved)))
      case other => throw new IllegalStateException(s"not a filter: $other")
    }
  }

  private def read(files: Seq[AddFile]): DataFrame =
    transaction.deltaLog.createDataFrame(transaction.snapshot, files).asInstanceOf[DataFrame]

  /** The rows of these data files; null if one is gone, or lost rows. */
  def open(asked: String): DataFrame = files(Messages.decoded[Messages.FilePaths](asked).paths).map(read).orNull

  /** The Add actions of these data files, which the transaction then has read; None if one is gone, or lost rows. */
  def files(paths: Seq[String]): Option[Seq[AddFile]] = {
    val files = AddFiles.at(transaction.snapshot, paths).filter(_.deletionVector == null)
    Option.when(files.size >= paths.size) {
      transaction.trackFilesRead(files)
      files
    }
  }
}

object Replace {
  private val Shown = 3

  /** Begins the predicate in the CommitInfo of a commit that replaces whole data files; `Loads` knows it by that. */
  val Whole = "_metadata.file_path IN ("

  private def attribute(column: String): Expression = UnresolvedAttribute(Seq(column))

  /** `column IN (values)`, for texts. */
  def among(column: String, values: Seq[String]): Expression = In(attribute(column), values.map(Literal(_)))

  /** The predicates for the CommitInfo, with the first texts only: there may be very many. */
  def shownRows(column: String, values: Seq[String]): String = shown(among(column, _).sql, values)
  def shownFiles(paths: Seq[String]): String = shown(_.mkString(s"$Whole'", "', '", "')"), paths)

  private def shown(text: Seq[String] => String, values: Seq[String]): String = {
    val first = text(values.take(Shown))
    if (values.size > Shown) s"$first and ${values.size - Shown} more" else first
  }
}
