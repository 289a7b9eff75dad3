package org.apache.spark.sql.delta.variant

import java.util.{List => JList, Map => JMap}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.{AnalysisException, SaveMode}
import org.apache.spark.sql.catalyst.catalog.CatalogTable
import org.apache.spark.sql.classic.{DataFrame, SparkSession}
import org.apache.spark.sql.delta.{DeltaLog, DeltaOperations, DeltaOptions, OptimisticTransaction, RowTracking}
import org.apache.spark.sql.delta.actions.{Action, AddFile}
import org.apache.spark.sql.delta.commands.WriteIntoDelta
import org.apache.spark.sql.execution.metric.SQLMetrics

/**
 * One transaction for what Delta has no command for: to rewrite chosen files, or all rows with another schema. Not
 * thread-safe. The constructor starts the transaction on the newest snapshot.
 *
 * @param spark the session of a call of `write`, if files are written
 * @param entry the table in the catalog, if it is there
 */
final class Rewrite(spark: SparkSession, log: DeltaLog, entry: Option[CatalogTable]) {
  val transaction: OptimisticTransaction = log.startTransaction(entry)
  private var old: Seq[AddFile] = Nil

  /** Which of these transaction identifiers the snapshot has, with their versions. */
  def identifiers(asked: String): String =
    Messages.encoded(Messages.Identifiers(Identifiers.of(transaction,
          Messages.decoded[Messages.Identifiers](asked).versions.keys)))

  /**
   * A row for each file of the partitions that `where` selects: the columns of its Add action, with parsed statistics, and the
   * bounds as VARIANTs, named by their numbers.
   */
  def files(where: String, statistics: LogStatistics, bounds: JList[String]): DataFrame = {
    val files = AddFiles.of(
      transaction.metadata, statistics.withStats,
      AddFiles.predicates(spark, transaction.metadata, where))
    statistics.beside(files, bounds.asScala.toSeq.map(Messages.decoded[Messages.Bound](_)))
  }

  /** The rows of the snapshot, which the transaction thereby reads. They come from the files, never from Spark's cache. */
  def rows: DataFrame = log.createDataFrame(transaction.snapshot, transaction.filterFiles()).asInstanceOf[DataFrame]

  /**
   * The rows of these files. Files that have left the snapshot are left out. With row tracking there are two more columns,
   * which keep the rows' ids (PROTOCOL.md, "Row Tracking").
   */
  def open(asked: String): DataFrame = {
    val snapshot = transaction.snapshot
    old = AddFiles.at(snapshot, Messages.decoded[Messages.FilePaths](asked).paths)
    transaction.trackFilesRead(old)
    val rows = log.createDataFrame(snapshot, old, actionTypeOpt = Some("Optimize"))
    (if (keepsRowIds) RowTracking.preserveRowTrackingColumns(rows, snapshot) else rows).asInstanceOf[DataFrame]
  }

  /** The opened files, with their actions if they are asked for and if tasks may read the files. */
  def opened(withActions: Boolean): String = {
    val areRead = withActions && !keepsRowIds && LateVariants.areRead(old, spark)
    val actions = Option.when(areRead)(old.map(_.copy(stats = null).json))
    Messages.encoded(Messages.OpenedFiles(old.size, PlannedFiles.bytes(old), actions))
  }

  private def keepsRowIds: Boolean = RowTracking.isEnabled(transaction.protocol, transaction.metadata)

  /**
   * Writes rows in place of the opened files, by the steps of Delta's OPTIMIZE: `dataChange` is false, so that the commit
   * conflicts only with writers that remove or change the same files.
   *
   * @param reorganizes DESCRIBE HISTORY shows REORG, not OPTIMIZE
   * @param where the predicate on partition columns, or null
   * @param clusterBy what the rows are ordered by
   * @param tags more tags for the new files
   * @param bytes about how many a task is to get of the rows of a partition; 0 if they stay as they are
   */
  def replace(
      rows: DataFrame,
      reorganizes: Boolean,
      where: String,
      clusterBy: JList[String],
      tags: JMap[String, String],
      bytes: Long): Unit = {
    val now = System.currentTimeMillis()
    val columns = transaction.metadata.partitionColumns
    val gathered = if (bytes > 0) Clustering.gathered(rows, columns, rebalances = true, bytes) else rows
    val added =
      transaction.writeFiles(gathered, Some(deltaOptions(Map.empty)), isOptimize = true, Nil).collect { case add: AddFile =>
        AddFiles.copy(add, add.stats, add.tagsOrEmpty ++ tags.asScala)
      }
    val removed = old.map(_.removeWithTimestamp(now, dataChange = false))
    val sizes = added.map(_.size).sorted
    val quartiles = Seq("minFileSize", "p25FileSize", "p50FileSize", "p75FileSize", "maxFileSize").zipWithIndex.map {
      case (name, quarter) => name -> (if (sizes.isEmpty) 0L else sizes((sizes.size - 1) * quarter / 4))
    }
    val metrics = quartiles.toMap ++ Map(
      "numAddedFiles" -> added.size.toLong,
      "numAddedBytes" -> sizes.sum,
      "numRemovedFiles" -> old.size.toLong,
      "numRemovedBytes" -> PlannedFiles.bytes(old),
      "numDeletionVectorsRemoved" -> old.count(_.deletionVector != null).toLong)
    transaction.registerSQLMetrics(spark,
      metrics.map { case (name, value) =>
        val metric = SQLMetrics.createMetric(spark.sparkContext, name)
        metric.set(value)
        name -> metric
      })
    val predicates = AddFiles.predicates(spark, transaction.metadata, where)
    val operation =
      if (reorganizes) DeltaOperations.Reorg(predicates, applyPurge = false)
      else DeltaOperations.Optimize(predicates, clusterBy.asScala.toSeq, auto = false, clusterBy = None, isFull = false)
    commit(
      added ++ removed, operation,
      if (keepsRowIds) RowTracking.addPreservedRowTrackingTagIfNotSet(transaction.snapshot) else Map.empty)
  }

  private def deltaOptions(options: Map[String, String]) = new DeltaOptions(options, spark.sessionState.conf)

  /** Writes rows in place of all others, by the steps of Delta's WriteIntoDelta. */
  def overwrite(rows: DataFrame, asked: JMap[String, String]): Unit = {
    val options = deltaOptions(asked.asScala.toMap + (DeltaOptions.PARTITION_OVERWRITE_MODE_OPTION -> "static"))
    val columns = transaction.metadata.partitionColumns
    val command = WriteIntoDelta(log, SaveMode.Overwrite, options, columns, Map.empty, rows, entry)
    val data = command.writeAndReturnCommitData(transaction, spark)
    val operation = DeltaOperations.Write(SaveMode.Overwrite, Some(columns), userMetadata = options.userMetadata)
    commit(data.actions, operation, data.stringTags)
  }

  private def commit(actions: Seq[Action], operation: DeltaOperations.Operation, tags: Map[String, String]): Unit =
    try transaction.commitIfNeeded(actions, operation, tags)
    finally if (Pairs.committed(transaction).isDefined) recache()

  /** Has Spark read anew what it has cached of the table, as Delta's commands do. */
  private def recache(): Unit = {
    val cache = spark.sharedState.cacheManager
    if (!cache.isEmpty) {
      try cache.recacheByPath(spark, log.dataPath, log.dataPath.getFileSystem(log.newDeltaHadoopConf()))
      catch {
        // A cached plan has columns that the table lacks by now. Spark dropped all plans of the table before it planned this
        // one anew.
        case _: AnalysisException =>
      }
      transaction.catalogTable.foreach(table => Pairs.recache(cache, spark, table.identifier.nameParts))
    }
  }
}

/** Transaction identifiers: versions by application. */
object Identifiers {

  /** Which of them the snapshot of a transaction has. The transaction thereby reads them all. */
  def of(transaction: OptimisticTransaction, applications: Iterable[String]): Map[String, Long] =
    applications.map(application => application -> transaction.txnVersion(application)).filter(_._2 >= 0).toMap
}
