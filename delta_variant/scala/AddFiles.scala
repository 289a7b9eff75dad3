package org.apache.spark.sql.delta.variant

import java.util.{List => JList}

import org.apache.spark.sql.{AnalysisException, Row}
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.plans.logical.Filter
import org.apache.spark.sql.classic.{DataFrame, Dataset, SparkSession}
import org.apache.spark.sql.delta.{DeltaLog, DeltaTableUtils, Snapshot}
import org.apache.spark.sql.delta.actions.{AddFile, Metadata}
import org.apache.spark.sql.functions.col

/** Chooses Add actions by `where`, a predicate on partition columns, and copies them. */
object AddFiles {

  /**
   * The resolved predicate; none for null. Delta would take a predicate with an unresolved name that has a dot for one on rows,
   * which every file might satisfy. Throws IllegalArgumentException for another predicate.
   */
  def predicates(spark: SparkSession, metadata: Metadata, where: String): Seq[Expression] = Option(where).toSeq.map { text =>
    val refused = s"where='$text' is not a predicate on the partition columns (${metadata.partitionColumns.mkString(", ")})"
    val partitions = spark.createDataFrame(JList.of[Row](), metadata.partitionSchema)
    val condition =
      try {
        partitions.where(text).queryExecution.analyzed match {
          case Filter(condition, _) => condition
          case other => throw new IllegalStateException(s"not a filter: $other")
        }
      } catch {
        case unresolved: AnalysisException =>
          throw new IllegalArgumentException(s"$refused: ${unresolved.getMessage}", unresolved)
      }
    if (!DeltaTableUtils.isPredicatePartitionColumnsOnly(condition, metadata.partitionColumns, spark)) {
      throw new IllegalArgumentException(refused)
    }
    condition
  }

  /** The Add actions, or rows with their columns, of the partitions for which the predicates are true. */
  def of(metadata: Metadata, files: Dataset[_], predicates: Seq[Expression]): DataFrame =
    if (predicates.isEmpty) files.toDF()
    else DeltaLog.filterFileList(metadata.partitionSchema, files.toDF(), predicates).asInstanceOf[DataFrame]

  /** The Add actions of data files. Files that the version does not have are left out. */
  def at(snapshot: Snapshot, paths: Seq[String]): Seq[AddFile] =
    snapshot.allFiles.filter(col("path").isin(paths: _*)).collect().toSeq

  /** The same file with other statistics and tags, and `dataChange` = false. */
  def copy(file: AddFile, stats: String, tags: Map[String, String]): AddFile =
    file.copy(dataChange = false, stats = stats, tags = if (tags.isEmpty) null else tags)
}
