package org.apache.spark.sql.delta.variant

import java.util.{Locale, UUID}

import org.apache.spark.sql.catalyst.expressions.{AttributeReference, ExprId, Expression, ExpressionSet}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.delta.Snapshot
import org.apache.spark.sql.delta.actions.AddFile
import org.apache.spark.sql.delta.files.{TahoeBatchFileIndex, TahoeFileIndex}
import org.apache.spark.sql.delta.stats.{DataSize, DeltaDataSkippingType, DeltaScan, PreparedDeltaFileIndex}
import org.apache.spark.sql.execution.datasources.{FileIndex, HadoopFsRelation, LogicalRelation}

/**
 * The files of a scan that Delta plans file by file.
 *
 * @param scan what Delta's own data skipping left
 */
final case class PlannedFiles(index: TahoeFileIndex, scan: DeltaScan, purpose: PlannedFiles.Purpose) {
  import PlannedFiles._

  /** Whether DELETE, UPDATE or MERGE looks for its rows in them. */
  def isCommand: Boolean = purpose == OfCommand

  /** Whether they are the files of a stream's batch. The snapshot may be older than they are. */
  def isStream: Boolean = purpose == OfStream

  def snapshot: Snapshot = scan.scannedSnapshot

  /** The files that are left: each once, but in a batch of a stream as often as the log has added it. */
  lazy val all: IndexedSeq[AddFile] = {
    val listed = index match {
      case list: TahoeBatchFileIndex => list.addFiles
      case _ => scan.files
    }
    (if (isStream) listed else listed.distinct).toIndexedSeq
  }

  def bytes: Long = PlannedFiles.bytes(all)

  /**
   * An index with some of the files. A query reads this share of their bytes, which the planner takes for the size of the
   * relation.
   */
  def narrowed(some: Seq[AddFile], share: Double = 1): TahoeFileIndex =
    new NarrowedFileIndex(index, scan, purpose, some, share)
}

object PlannedFiles {

  /** What reads the files. */
  sealed trait Purpose
  case object OfQuery extends Purpose
  case object OfCommand extends Purpose
  case object OfStream extends Purpose

  private val Streaming = "streaming" // Delta's name for the list of a stream

  /** None for an index of another kind. */
  def of(index: FileIndex): Option[PlannedFiles] = index match {
    case narrowed: NarrowedFileIndex => Some(PlannedFiles(narrowed, narrowed.scan, narrowed.purpose))
    case prepared: PreparedDeltaFileIndex => Some(PlannedFiles(prepared, prepared.preparedScan, OfQuery))
    // DELETE, UPDATE and MERGE look for their rows in such a list, and a stream has one for each batch.
    case list: TahoeBatchFileIndex if list.getClass == classOf[TahoeBatchFileIndex] =>
      Option(list.snapshot).collect { case snapshot: Snapshot =>
        PlannedFiles(list, scan(snapshot, list.addFiles), if (list.actionType == Streaming) OfStream else OfCommand)
      }
    case _ => None
  }

  /** The scan of these files, as if Delta had planned it without data skipping. */
  def scan(snapshot: Snapshot, files: Seq[AddFile]): DeltaScan = {
    val unknown = DataSize(None, None, None, None)
    val none = ExpressionSet()
    new DeltaScan(snapshot.version, files, unknown, unknown, unknown)(
      snapshot, none, none, none, Set.empty, none, 0, DeltaDataSkippingType.noSkippingV1)
  }

  def bytes(files: Iterable[AddFile]): Long = files.iterator.map(_.size).sum
}

/** A scan of a Delta table that is planned file by file, and its files. */
object PlannedScan {
  def unapply(plan: LogicalPlan): Option[(LogicalRelation, PlannedFiles)] = plan match {
    case scan: LogicalRelation =>
      Option(scan.relation).collect { case source: HadoopFsRelation => source.location }.flatMap(PlannedFiles.of).map(scan -> _)
    case _ => None
  }
}

/** The files that are left. Equal if table, version and files are equal, so that Spark reuses exchanges over equal scans. */
final class NarrowedFileIndex(
    index: TahoeFileIndex,
    val scan: DeltaScan,
    val purpose: PlannedFiles.Purpose,
    files: Seq[AddFile],
    share: Double)
    extends TahoeBatchFileIndex(index.spark, "batch", files, index.deltaLog, index.path, scan.scannedSnapshot, false) {

  override lazy val sizeInBytes: Long = math.ceil(PlannedFiles.bytes(files) * share).toLong

  /** Delta has applied the partition filters that it prepared the scan with. Only others have to be applied here. */
  override def matchingFiles(partitionFilters: Seq[Expression], dataFilters: Seq[Expression]): Seq[AddFile] =
    if (partitionFilters.forall(isApplied)) addFiles else super.matchingFiles(partitionFilters, dataFilters)

  /** Whether Delta has applied a filter. Columns are compared by name: the scans of a union have their own expression ids. */
  private def isApplied(filter: Expression): Boolean = {
    val applied = scan.allFilters
    // A filter without columns is in the plan above the scan as well.
    filter.references.isEmpty || applied.contains(filter) || {
      val named = NarrowedFileIndex.byName(filter)
      applied.exists(other => named.semanticEquals(NarrowedFileIndex.byName(other)))
    }
  }

  override def equals(other: Any): Boolean = other match {
    case that: NarrowedFileIndex => path == that.path && version == that.version && addFiles == that.addFiles
    case _ => false
  }

  override def hashCode: Int = (path, version, addFiles.size).hashCode
}

private object NarrowedFileIndex {
  private val Names = new UUID(0, 0)

  /** Makes expressions on columns of the same name equal, whatever the ids and qualifiers of the columns. */
  private def byName(expression: Expression): Expression = expression.transform { case column: AttributeReference =>
    val name = column.name.toLowerCase(Locale.ROOT)
    column.withName(name).withQualifier(Nil).withExprId(ExprId(name.hashCode, Names))
  }
}
