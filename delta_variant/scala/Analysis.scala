package org.apache.spark.sql.delta.variant

import java.nio.charset.StandardCharsets.UTF_8

import scala.annotation.tailrec
import scala.util.Random

import org.apache.spark.api.python.{PythonFunction, PythonRDD}
import org.apache.spark.sql.catalyst.catalog.CatalogTable
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.classic.{DataFrame, Dataset, SparkSession}
import org.apache.spark.sql.delta.{DeltaLog, DeltaOperations, Snapshot}
import org.apache.spark.sql.delta.actions.{AddFile, SetTransaction}
import org.apache.spark.sql.execution.SQLExecution
import org.apache.spark.sql.functions.{col, count, lit, not, pmod, sum, xxhash64}

/**
 * Computes statistics of a table's files anew, batch by batch: it chooses the Add actions of a batch, runs the job that reads
 * the files, and commits the same actions with other statistics and tags. As in Delta's own recomputation of statistics
 * (StatisticsCollection.recompute), actions otherwise stay as they were, with `dataChange` = false.
 *
 * Add actions stay in the JVM, since there may be many. Not thread-safe.
 *
 * @param entry the table in the catalog
 * @param all whether files with the marker are included
 */
final class Analysis(
    spark: SparkSession,
    log: DeltaLog,
    entry: Option[CatalogTable],
    all: Boolean) {
  import Analysis._

  private val wanted = { // over the columns of Add actions
    val value = col("tags").getItem(Tags.marker)
    if (all || !Pairs.readsBounds) lit(true) // Delta drops bounds that it does not read
    else value.isNull || not(value.isin(Tags.markerValues: _*))
  }
  private var predicates: Seq[Expression] = Nil
  private var batches = 1
  private var snapshot: Snapshot = _
  private var batch = 0
  private var adds: Seq[AddFile] = Nil // of the batch
  private var changed: Map[String, AddFile] = Map.empty // by path, the same action with other statistics and tags

  private def newest: Snapshot = log.update(catalogTableOpt = entry)

  /** The Add actions that are to be looked at, in a version of the table. */
  private def files(snapshot: Snapshot): Dataset[AddFile] = {
    val files = snapshot.allFiles.filter(wanted).asInstanceOf[Dataset[AddFile]]
    if (predicates.isEmpty) files
    else AddFiles.of(snapshot.metadata, files, predicates).as[AddFile](files.encoder).asInstanceOf[Dataset[AddFile]]
  }

  /** The Add actions of a batch, which the hashes of their paths decide. */
  private def addsOf(snapshot: Snapshot, batch: Int): Seq[AddFile] =
    files(snapshot).filter(pmod(xxhash64(col("path")), lit(batches)) === batch).collect().toSeq

  /** Divides the files into batches of about `size`. where: a predicate on partition columns; null for all files. */
  def start(size: Int, where: String): String = {
    snapshot = newest
    predicates = AddFiles.predicates(spark, snapshot.metadata, where)
    val totals = files(snapshot).agg(count("*"), sum("size")).first()
    val number = totals.getLong(0)
    batches = math.max(1, (number + size - 1) / size).toInt
    Messages.encoded(Messages.AnalysisSize(if (number == 0) 0 else batches, number,
        if (totals.isNullAt(1)) 0 else totals.getLong(1)))
  }

  /** Throws IllegalArgumentException if `where` is not a predicate on the partition columns. */
  def check(where: String): Unit = AddFiles.predicates(spark, newest.metadata, where): Unit

  /** The Add actions of all batches. */
  def listed: DataFrame = files(snapshot).toDF()

  /**
   * Commits the next transaction identifier of this application; if nothing is new, only if there is none yet. Such a commit
   * has read nothing, so it conflicts with no other one. Returns its version, -1 without a commit.
   */
  def announce(application: String, isNew: Boolean): Long = {
    val last = newest.transactions.get(application)
    if (last.isDefined && !isNew) -1
    else {
      val next = SetTransaction(application, last.fold(0L)(_ + 1), Some(System.currentTimeMillis()))
      log.startTransaction(entry).commit(Seq(next), DeltaOperations.ComputeStats(Nil))
    }
  }

  /**
   * Reads the files of a batch, and returns the totals.
   *
   * @param task a PySpark function from AnalyzedFile to AnalysisReport (delta_variant/analysis/task.py)
   */
  def run(batch: Int, task: PythonFunction): String = {
    this.batch = batch
    snapshot = newest
    adds = addsOf(snapshot, batch)
    val messages = adds.zipWithIndex.map { case (file, number) =>
      Messages.encoded(Messages.AnalyzedFile(number, file.path, Option(file.stats), file.tagsOrEmpty)).getBytes(UTF_8)
    }
    val reports =
      if (messages.isEmpty) Seq.empty[Messages.AnalysisReport]
      else {
        val mixed = new Random(0).shuffle(messages) // so that tasks have equal parts of large files
        val context = spark.sparkContext
        val tasks = math.min(messages.size, TasksPerCore * context.defaultParallelism)
        val job = new PythonRDD(context.parallelize(mixed, tasks), task, false, false)
        SQLExecution.withSessionTagsApplied(spark)(job.collect()).toSeq.map { report =>
          Messages.decoded[Messages.AnalysisReport](new String(report, UTF_8))
        }
      }
    val (failed, read) = reports.partition(_.failed.isDefined)
    val done = read.filter(_.stats.isDefined)
    changed =
      done.map(report => adds(report.file).path -> AddFiles.copy(adds(report.file), report.stats.get, report.tags)).toMap
    Messages.encoded(Messages.AnalyzedBatch(
        files = adds.size,
        read = reports.map(_.read).sum,
        rows = done.map(_.rows).sum,
        bytes = adds.map(_.size).sum,
        failed = failed.map(report => adds(report.file).path -> report.failed.get).toMap,
        sources = done.groupMapReduce(_.source)(_ => 1)(_ + _)))
  }

  /** Commits the changed actions of the batch. An action that another writer has changed or removed since is left out. */
  def commit(): String =
    Messages.encoded(committed(adds.filter(file => changed.contains(file.path)), snapshot, Nil, attempt = 1))

  @tailrec
  private def committed(mine: Seq[AddFile], read: Snapshot, left: Seq[String], attempt: Int): Messages.Committed =
    if (mine.isEmpty) Messages.Committed(-1, 0, left)
    else {
      val transaction = log.startTransaction(entry)
      val isStale = transaction.readVersion != read.version
      val now = if (isStale) addsOf(transaction.snapshot, batch).toSet else mine.toSet
      val (same, gone) = mine.partition(now.contains)
      val all = left ++ gone.map(_.path)
      val version =
        if (same.isEmpty) None
        else {
          transaction.trackFilesRead(same)
          // Delta sees no conflict between two commits that add the same file, so two analyses conflict by this identifier.
          val identifier =
            SetTransaction(Application, transaction.txnVersion(Application) + 1, Some(System.currentTimeMillis()))
          try Some(transaction.commit(same.map(file => changed(file.path)) :+ identifier,
                DeltaOperations.ComputeStats(predicates)))
          catch {
            // Another writer has removed or changed one of the files in between: the next attempt leaves it out.
            case failure: Throwable if attempt < Tries && Failures.isConflict(failure) => None
          }
        }
      version match {
        case Some(version) => Messages.Committed(version, same.size, all)
        case None => committed(same, if (isStale) transaction.snapshot else read, all, attempt + 1)
      }
    }
}

object Analysis {
  private val TasksPerCore = 4
  private val Tries = 10
  private val Application = "delta_variant.analyze" // its transaction identifier, protocol/README.md, W4
}
