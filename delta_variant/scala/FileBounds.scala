package org.apache.spark.sql.delta.variant

import java.lang.ref.WeakReference

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import com.google.common.cache.Cache
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{BindReferences, UnsafeRow}
import org.apache.spark.sql.catalyst.util.TypeUtils
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.delta.Snapshot
import org.apache.spark.sql.delta.stats.DeltaScan
import org.apache.spark.types.variant.{Variant, VariantUtil}
import org.apache.spark.unsafe.types.{UTF8String, VariantVal}

/**
 * The bounds of the files of one table version, on the driver: a column of values for each bound that queries compare.
 *
 * Small tables are read as a whole: a job collects their rows (LogStatistics), and a value is read from its row when a
 * predicate first compares it. For the next version, one job collects a hash of each file's log entry, and another one the rows
 * of files whose hash is new. For larger tables a job reads only the bounds that the query compares: of all files, or, if Delta
 * left few of them, of those.
 *
 * Values are kept until an hour after their last use, up to KeptBytes for a table and twice that for all tables. A table
 * version that could not be read is not tried again.
 *
 * @param isSmall whether the table has so few files that it is read as a whole
 * @param scanned hashes of the paths that jobs read; None for all
 */
final class FileBounds private (private[variant] val version: FileBounds.Version, total: Long, val isSmall: Boolean,
    kept: FileBounds.Kept, scanned: Option[Set[Long]] = None) {
  import FileBounds._

  private[variant] var rows: Option[Array[InternalRow]] = None // by file, null for a file that a job did not find
  private var contents = Keys.none // by file, the hash of what its row was decoded from
  private var files: Option[Keys] = None // by file, the hash of its path
  private val columns = mutable.Map.empty[TypedBound, Column]
  private var reason: Option[String] = None

  /** Why the bounds could not be read. */
  def failure: Option[String] = reason

  /** The number of a file; -1 if the file is not known. */
  def number(path: String): Int = files.fold(-1)(_.find(LogJobs.hash(path)))

  def size: Int = files.fold(0)(_.keys.length)

  /** The bytes that Spark's estimates assume for a row's values at the paths with bounds of a file; 0 if that is not known. */
  def width(path: String): Int = synchronized {
    val row = rows.flatMap(_.lift(number(path))).flatMap(Option(_))
    row.fold(0)(row => version.columns.indices.flatMap(LogStatistics.least(row, _)).map(width).sum)
  }

  private def width(least: VariantVal): Int = {
    val found = new Variant(least.getValue, least.getMetadata)
    if (found.getType != VariantUtil.Type.OBJECT) 0
    else (0 until found.objectSize).flatMap(at => LeafTypes.ofValue(found.getFieldAtIndex(at).value.getValue)).map(
      LeafTypes.size).sum
  }

  /**
   * The result of a job. If it fails, its exception is thrown, and later calls of `FileBounds.of` return an object with
   * `failure`.
   */
  private def job[T](read: => T): T =
    try read
    catch {
      case failure: Throwable if !Failures.stops(failure) =>
        reason = Some(failure.toString)
        kept.put(version.key, this)
        throw failure
    }

  // ---- small tables -------------------------------------------------------------------------------------------------

  /** The newest version of the same table whose rows are kept, if any. */
  private def previous: Option[FileBounds] =
    kept.asMap.values.asScala.filter(other => other.rows.isDefined && other.version.isSameTable(version)).maxByOption(
      _.version.number)

  private def collect(log: LogStatistics): Unit = {
    val before = previous
    val jobs = new LogJobs(log, total)
    val state = jobs.state()
    val found = new Keys(state, 0)
    files = Some(found)
    val bytes = state.iterator.map(row => if (row.isNullAt(2)) 0L else row.getInt(2).toLong).sum
    if (bytes <= KeptBytes) { // else a job will read the bounds that a query compares
      contents = new Keys(state, 1)
      val known = contents.keys.map(key => before.fold(-1)(_.contents.find(key))) // by file, the number of its row before
      val all = known.map(row => if (row < 0) null else before.get.rows.get(row))
      val unknown = known.indices.filter(known(_) < 0).map(found.keys(_)).toSet
      if (unknown.nonEmpty) {
        for (row <- jobs.rows(if (unknown.size > all.length / 2) None else Some(unknown))) {
          val file = found.find(row.getLong(0))
          if (file >= 0) all(file) = row
        }
      }
      rows = Some(all)
      before.foreach(takeOver(_, known))
    }
  }

  /** Takes over the columns of the previous version, with the values that were read. */
  private def takeOver(before: FileBounds, known: Array[Int]): Unit = before.synchronized {
    for ((bound, old) <- before.columns) {
      val column = new Column(bound)
      for (file <- known.indices if known(file) >= 0) column.values(file) = old.values(known(file))
      columns(bound) = column
    }
  }

  // ---- columns ------------------------------------------------------------------------------------------------------

  /** The columns of these bounds. Read their values only while holding the lock of this object. */
  def read(log: LogStatistics, bounds: Seq[TypedBound]): IndexedSeq[BoundValues] = {
    val (there, missing) = synchronized {
      val (there, missing) = bounds.distinct.partition(columns.contains)
      (there.map(bound => bound -> columns(bound)).toMap, missing)
    }
    val isNeeded = rows.isEmpty && (missing.nonEmpty || files.isEmpty)
    val read = if (isNeeded) job(new LogJobs(log, total).values(missing, scanned)) else Array.empty[InternalRow]
    synchronized {
      val known = files.getOrElse(new Keys(read, 0))
      files = Some(known)
      for ((bound, number) <- missing.zipWithIndex) {
        val column = new Column(bound)
        for (row <- read) {
          val file = known.find(row.getLong(0))
          if (file >= 0 && !row.isNullAt(number + 1)) column.values(file) = column.kept(row.get(number + 1, column.dataType))
        }
        columns(bound) = column
      }
      val result = bounds.map(bound => there.getOrElse(bound, columns(bound))).toIndexedSeq // others may have cleared `columns`
      if (bytes > KeptBytes) columns.clear()
      result
    }
  }

  private def bytes: Long = {
    val ofRows = rows.fold(0L)(_.iterator.collect { case row: UnsafeRow => 64L + row.getSizeInBytes }.sum)
    (24L + 32L * columns.size) * size + ofRows
  }

  /** The values of one bound. Expressions keep state while they are evaluated, so only one thread at a time may read values. */
  private final class Column(bound: TypedBound) extends BoundValues {
    private val row = LogStatistics.attributes(version.columns.size)
    private val expression = BindReferences.bindReference(bound.over(row), row)
    val dataType = expression.dataType
    val values: Array[Any] = Array.fill(FileBounds.this.size)(if (rows.isDefined) Unread else null)
    override lazy val ordering: Ordering[Any] = TypeUtils.getInterpretedOrdering(dataType)

    override def of(file: Int): Any = {
      val value = values(file)
      if (value.asInstanceOf[AnyRef] ne Unread) value
      else {
        val row = rows.get(file)
        val read = if (row == null) null else kept(expression.eval(row))
        values(file) = read
        read
      }
    }

    /**
     * A value as it is kept: the type instead of a Variant, null for a type that Spark lacks; and a copy of a string, which
     * would refer to its row.
     */
    def kept(value: Any): Any = value match {
      case variant: VariantVal => LeafTypes.ofValue(variant.getValue).orNull
      case string: UTF8String => string.clone()
      case other => other
    }
  }
}

object FileBounds {
  private val KeptFiles = "spark.delta_variant.keptFiles" // a small table has at most this many
  private val KeptBytes = 16 << 20
  private val FewFiles = 20000 // a job can be limited to the hashes of so many files
  private val Unread = new Object // a value that was not read from its row yet

  /** By table and version. */
  type Kept = Cache[String, FileBounds]

  def kept(): Kept = Shared.cache[FileBounds](2L * KeptBytes)(files => files.synchronized(files.bytes) + 1)

  /** A version of a table, whose snapshot Delta may drop. columns: the VARIANT columns. */
  private[variant] final class Version(val table: String, val number: Long, val columns: Seq[Seq[String]],
      snapshot: WeakReference[Snapshot]) {
    def key: String = s"$table\n$number"
    def isOf(other: Snapshot): Boolean = snapshot.get eq other
    def isSameTable(other: Version): Boolean = table == other.table && columns == other.columns
  }

  private def versionOf(log: LogStatistics): Version =
    new Version(log.snapshot.path.toString, log.snapshot.version, log.columns, new WeakReference(log.snapshot))

  /** The bounds of a scan's files. If a job fails, its exception is thrown, and later calls return an object with `failure`. */
  def of(log: LogStatistics, scan: DeltaScan, kept: Kept): FileBounds = {
    val total = scan.total.files.getOrElse(log.snapshot.numOfFiles)
    val isSmall = total <= SparkSession.active.conf.get(KeptFiles, "5000").toInt
    val mine = versionOf(log)
    Option(kept.getIfPresent(mine.key)).filter(found =>
      found.version.isOf(log.snapshot) && found.isSmall == isSmall).getOrElse {
      val areFew = !isSmall && scan.files.size <= math.min(total / 2, FewFiles)
      val scanned = Option.when(areFew)(scan.files.iterator.map(file => LogJobs.hash(file.path)).toSet)
      val files = new FileBounds(mine, total, isSmall, kept, scanned)
      if (isSmall) files.job(files.collect(log))
      if (!areFew) kept.put(mine.key, files)
      files
    }
  }

  /** The bounds of files whose rows (LogStatistics) are given. */
  def of(log: LogStatistics, rows: Array[InternalRow]): FileBounds = {
    val files = new FileBounds(versionOf(log), rows.length, isSmall = true, kept())
    files.rows = Some(rows)
    files.files = Some(new Keys(rows, 0))
    files
  }

  /** An index of 64-bit keys, in a column of rows, to the numbers of their rows. A key that occurs twice is not found. */
  private final class Keys(rows: Array[InternalRow], column: Int) {
    val keys: Array[Long] = rows.map(_.getLong(column))
    private val slots =
      new Array[Int](Integer.highestOneBit(keys.length + 1) * 4) // a row's number + 1; negative if the key occurs twice

    for (key <- keys.indices) {
      val at = slot(keys(key))
      slots(at) = if (slots(at) == 0) key + 1 else -math.abs(slots(at))
    }

    /** The slot of a key, or the free one where it would be. */
    private def slot(key: Long): Int = {
      var at = (key ^ key >>> 32).toInt & slots.length - 1
      while (slots(at) != 0 && keys(math.abs(slots(at)) - 1) != key) at = at + 1 & slots.length - 1
      at
    }

    def find(key: Long): Int = math.max(slots(slot(key)), 0) - 1
  }

  private object Keys {
    val none = new Keys(Array.empty, 0)
  }
}
