package org.apache.spark.sql.delta.variant

import java.util.ConcurrentModificationException

import org.apache.spark.sql.SaveMode
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.delta.{DeltaOperations, DeltaOptions, OptimisticTransaction}
import org.apache.spark.sql.delta.actions.{Action, AddFile, SetTransaction}
import org.apache.spark.sql.delta.commands.WriteIntoDelta
import org.apache.spark.sql.execution.QueryExecution

/**
 * A call of `write`: its additions to the commit of Delta's command, and its outcome. Not thread-safe.
 *
 * @param users the session of the rows, whose clone runs the command
 * @param asked its additions, as Messages.Additions
 */
final class Call(users: SparkSession, asked: String) {
  private val additions = Messages.decoded[Messages.Additions](asked)
  private var transaction: Option[WritingTransaction] = None
  private var totals = Messages.Written(0, 0, 0, Nil, 0, Map.empty)
  private var reported: Option[Messages.Failure] = None
  private var hasConflict = false
  private var commits = false

  /**
   * A transaction makes the files of the call. It thereby reads the identifiers that it commits, so that Delta refuses the
   * commit if another writer commits one of them in between.
   */
  def begin(by: WritingTransaction): Unit = {
    transaction = Some(by)
    val there = Identifiers.of(by, additions.identifiers.keys)
    if (there != additions.known && !additions.again) {
      hasConflict = true
      throw new ConcurrentModificationException("another writer has committed the same input in between")
    }
  }

  /** Completes the Observations of the caller's session when the rows have been computed. Its clone does not know them. */
  def observe(execution: QueryExecution): Unit = Pairs.complete(users.observationManager, execution)

  /** Whether the rows may be pieces or blocks with rows of all columns (`WholeRows`). */
  def hasWholeRows: Boolean = additions.pieces == "rows"

  /** Whether the rows are pieces of JSON files, of which Spark knows nothing. */
  def hasDocuments: Boolean = additions.pieces == "json"

  /** Counts the reports of files, and not those of change data. Throws if one is an error. */
  def count(written: Seq[(Messages.WriteReport, Option[Action])]): Unit = {
    val reports = written.map(_._1)
    val files = written.collect { case (report, Some(_: AddFile)) => report }
    for (error <- reports.flatMap(_.error).headOption) {
      reported = Some(error)
      throw new Call.Failed(error)
    }
    totals = Messages.Written(
      files = files.size,
      rows = files.map(_.rows).sum,
      bytes = files.map(_.size).sum,
      shredded = files.map(_.shredded).distinct,
      leftPlain = files.count(_.leftPlain),
      malformed = reports.flatMap(_.malformed).groupMapReduce(_._1)(_._2)(_ + _))
  }

  /** The actions that are committed with the new files: identifiers, and the removal of other rows. */
  def actions(spark: SparkSession, by: OptimisticTransaction, added: Seq[Action]): Seq[Action] = {
    commits = true
    val now = Some(System.currentTimeMillis())
    val identifiers = additions.identifiers.toSeq.map { case (application, version) =>
      SetTransaction(application, version, now)
    }
    identifiers ++ additions.removal.fold(Seq.empty[Action]) { removal =>
      val replace = new Replace(spark, by)
      val removed = removal.column match {
        case Some(column) => replace.rows(Replace.among(column, removal.texts))
        case None =>
          val files = replace.files(removal.texts).getOrElse {
            hasConflict = true
            throw new ConcurrentModificationException("another writer has changed files that were to be replaced")
          }
          files.map(_.removeWithTimestamp(now.get))
      }
      new Call.Metrics(spark, by).register(added, removed, isWhole = removal.column.isEmpty)
      removed
    }
  }

  /** How DESCRIBE HISTORY shows the commit. */
  def operation(of: DeltaOperations.Operation): DeltaOperations.Operation = (of, additions.removal) match {
    case (write: DeltaOperations.Write, Some(removal)) =>
      val shown = removal.column.fold(Replace.shownFiles(removal.texts))(Replace.shownRows(_, removal.texts))
      write.copy(mode = SaveMode.Overwrite, predicate = Some(shown))
    case _ => of
  }

  /** The totals of the files. */
  def written: String = Messages.encoded(totals)

  /** The error that a task reported; null if none did. */
  def error: String = reported.map(Messages.encoded(_)).orNull

  /** Whether a transaction began to make files. None begins if the table has the application's version already. */
  def hasBegun: Boolean = transaction.isDefined

  /** Whether the commit began, and files may be in it, even if it failed. */
  def isCommitting: Boolean = commits

  /** The version that was committed; -1 without a commit. */
  def version: Long = transaction.flatMap(Pairs.committed).getOrElse(-1L)

  /** The commit failed. */
  def failed(failure: Throwable): Unit = hasConflict ||= Failures.isConflict(failure)

  /** Whether the call, or its commit, conflicts with another writer's. */
  def conflict: Boolean = hasConflict
}

object Call {

  /** A task reported an error. */
  final class Failed(error: Messages.Failure) extends RuntimeException(s"${error.name}: ${error.text}")

  /** Delta's counts of removed rows, which are protected there. */
  private final class Metrics(spark: SparkSession, transaction: OptimisticTransaction)
      extends WriteIntoDelta(
        transaction.deltaLog, SaveMode.Overwrite, new DeltaOptions(Map.empty[String, String], spark.sessionState.conf), Nil,
        Map.empty,
        spark.emptyDataFrame) {
    def register(added: Seq[Action], removed: Seq[Action], isWhole: Boolean): Unit = {
      Pairs.registerReplaced(this, spark, transaction, added, removed)
      if (isWhole) registerOverwriteRemoveMetrics(spark, transaction, removed)
    }
  }
}
