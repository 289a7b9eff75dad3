package org.apache.spark.sql.delta.variant

import java.util.{List => JList, Map => JMap}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.catalog.CatalogTable
import org.apache.spark.sql.classic.{DataFrame, Dataset, SparkSession}
import org.apache.spark.sql.delta.{DeltaLog, DeltaOperations, RowTracking}
import org.apache.spark.sql.delta.actions.AddFile

/**
 * One transaction that puts files with the same rows in the place of others, by the steps of Delta's OPTIMIZE: `dataChange` is
 * false, so that it conflicts only with writers that remove or change the same files. Not thread-safe.
 */
final class Rewrite(
    spark: SparkSession,
    users: SparkSession,
    log: DeltaLog,
    entry: Option[CatalogTable],
    mode: String,
    options: JMap[String, String],
    partitionBy: JList[String],
    properties: JMap[String, String])
    extends Write(spark, users, log, entry, mode, options, partitionBy, properties) {

  private var old: Seq[AddFile] = Nil

  /** A row for each file of the partitions that `where` selects: the columns of its Add action, with parsed statistics. */
  def files(where: String): DataFrame = AddFiles.of(
    transaction.metadata, transaction.snapshot.withStats.asInstanceOf[Dataset[_]],
    AddFiles.predicates(spark, transaction.metadata, where))

  /**
   * The rows of these files, as many of them as the snapshot still has. With row tracking there are two more columns, which
   * keep the rows' ids (PROTOCOL.md, "Row Tracking").
   */
  def open(paths: JList[String]): DataFrame = {
    val snapshot = transaction.snapshot
    old = AddFiles.at(snapshot, paths)
    transaction.trackFilesRead(old)
    val rows = transaction.deltaLog.createDataFrame(snapshot, old, actionTypeOpt = Some("Optimize"))
    (if (keepsRowIds) RowTracking.preserveRowTrackingColumns(rows, snapshot) else rows).asInstanceOf[DataFrame]
  }

  private def keepsRowIds: Boolean = RowTracking.isEnabled(transaction.protocol, transaction.metadata)

  def opened: Int = old.size

  def openedBytes: Long = PlannedFiles.bytes(old)

  /**
   * Commits the new files in the place of the old ones.
   *
   * @param reorganizes DESCRIBE HISTORY shows REORG, not OPTIMIZE
   * @param where the predicate on partition columns, or null
   * @param clusterBy what the rows are ordered by
   * @param tags more tags for the new files
   */
  def replace(reorganizes: Boolean, where: String, clusterBy: JList[String], tags: JMap[String, String]): Unit = {
    val now = System.currentTimeMillis()
    val added =
      actions.toSeq.map(_.asInstanceOf[AddFile]).map(add => AddFiles.copy(add, add.stats, add.tagsOrEmpty ++ tags.asScala))
    actions.clear()
    actions ++= added
    actions ++= old.map(_.removeWithTimestamp(now, dataChange = false))
    val sizes = added.map(_.size).sorted
    val quartiles = Seq("minFileSize", "p25FileSize", "p50FileSize", "p75FileSize", "maxFileSize").zipWithIndex.map {
      case (name, quarter) => name -> (if (sizes.isEmpty) 0L else sizes((sizes.size - 1) * quarter / 4))
    }
    registerMetrics(quartiles.toMap ++ Map(
      "numAddedFiles" -> added.size.toLong,
      "numAddedBytes" -> sizes.sum,
      "numRemovedFiles" -> old.size.toLong,
      "numRemovedBytes" -> openedBytes,
      "numDeletionVectorsRemoved" -> old.count(_.deletionVector != null).toLong))
    val predicates = AddFiles.predicates(spark, transaction.metadata, where)
    val operation =
      if (reorganizes) DeltaOperations.Reorg(predicates, applyPurge = false)
      else DeltaOperations.Optimize(predicates, clusterBy.asScala.toSeq, auto = false, clusterBy = None, isFull = false)
    commit(operation, if (keepsRowIds) RowTracking.addPreservedRowTrackingTagIfNotSet(transaction.snapshot) else Map.empty)
  }
}
