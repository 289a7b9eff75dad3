package org.apache.spark.sql.delta.variant

import java.io.{FileNotFoundException, IOException}
import java.lang.ref.WeakReference
import java.nio.{ByteBuffer, ByteOrder}
import java.util.IdentityHashMap
import java.util.concurrent.{Callable, ExecutionException, Executors}

import scala.jdk.CollectionConverters._
import scala.util.Using

import com.google.common.cache.Cache
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, Path}
import org.apache.parquet.HadoopReadOptions
import org.apache.parquet.example.data.Group
import org.apache.parquet.example.data.simple.convert.GroupRecordConverter
import org.apache.parquet.hadoop.ParquetFileReader
import org.apache.parquet.hadoop.util.HadoopInputFile
import org.apache.parquet.io.ColumnIOFactory
import org.apache.spark.sql.catalyst.expressions.XXH64
import org.apache.spark.sql.delta.Snapshot
import org.apache.spark.sql.delta.actions.AddFile
import org.apache.spark.sql.types.Decimal
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

/**
 * The index of values of one path: filters that say that a value is not in a file (delta_variant/membership;
 * protocol/README.md, "The index of values").
 *
 * A filter counts for the table and the Add action that it was made for: the directory stays when a log is deleted, and the
 * next table in its place may have other files under the same names.
 *
 * The files of the index are listed once for a table version, and those that are new are read, when the first comparison asks.
 * They are kept until an hour after their last use, up to KeptBytes for all tables. An index of more than MaxBytes is not read.
 * A file that cannot be read has no filters.
 */
final class ValueIndex(
    snapshot: Snapshot,
    files: Seq[AddFile],
    numbers: FileBounds,
    member: Messages.Member,
    kept: ValueIndex.Kept) extends Membership {
  import ValueIndex._

  private val hashes = new IdentityHashMap[Array[Any], Array[Long]]
  private var isRead = false
  private lazy val known: PathIndex = {
    isRead = true
    PathIndex.of(snapshot, member.path, kept)
  }

  /** The filters that answer what is asked, by the number of their file. */
  private lazy val filters: Array[Filter] = {
    val found = new Array[Filter](numbers.size)
    if (known.filters.nonEmpty) {
      for {
        file <- files
        filter <- known.filters.get(file.path) if filter.isOf(file) && filter.answers(member.scale)
        number = numbers.number(file.path) if number >= 0
      } found(number) = filter
    }
    found
  }

  override def hasFilters: Boolean = filters.exists(_ != null)

  override def of(file: Int, values: Array[Any]): Int = {
    val filter = filters(file)
    if (filter == null) FilePredicates.Null
    else {
      val wanted = hashes.computeIfAbsent(values, _.map(hash))
      var at = 0
      while (at < wanted.length && !filter.contains(wanted(at))) at += 1
      if (at < wanted.length) FilePredicates.True else FilePredicates.False
    }
  }

  /** Why the index is not used, if it was asked. */
  def reason: Option[String] = if (isRead) known.reason else None
}

object ValueIndex {
  private val Directory = "_delta_variant_index"
  private val Application = "delta_variant.index" // of the transaction identifier of tables with an index
  private val VersionKey = "delta_variant.index" // keys in the footers of its files
  private val TableKey = "delta_variant.table"
  private val PathKey = "delta_variant.path"
  private val Format = "2"
  private val MaxBytes = 128L << 20
  private val KeptBytes = 256L << 20
  private val AtOnce = 16
  private val MaxWords = 1 << 24

  /** By directory and id of the table. */
  type Kept = Cache[String, PathIndex]

  def kept(): Kept = Shared.cache[PathIndex](KeptBytes)(_.bytes + 1024)

  /**
   * Whether a table may have an index. If only a job over the log could tell, the answer is yes: listing a directory takes less
   * time.
   */
  def isAnnounced(snapshot: Snapshot): Boolean = snapshot.setTransactionsIfKnown.forall(_.exists(_.appId == Application))

  /** The hash of a string, an integer or a decimal as Catalyst holds it. */
  def hash(value: Any): Long = value match {
    case string: UTF8String => XXH64.hashUTF8String(string, 0)
    case decimal: Decimal => hash(decimal.toJavaBigDecimal)
    case number: Number => hash(java.math.BigDecimal.valueOf(number.longValue))
    case other => throw new IllegalArgumentException(s"values of this type are not indexed: $other")
  }

  private def hash(exact: java.math.BigDecimal): Long = {
    val stripped = exact.stripTrailingZeros
    val number = if (stripped.scale < 0) stripped.setScale(0) else stripped
    val digits = number.unscaledValue.toByteArray.reverse // little-endian
    val sign: Byte = if (number.signum < 0) -1 else 0
    val bytes = digits.padTo(16, sign) :+ number.scale.toByte
    XXH64.hashUnsafeBytes(bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length, 0)
  }

  /**
   * A ribbon filter (delta_variant/kernels/ribbon.py) of a data file, whose size and modification time it has.
   *
   * @param scale the decimal places of its numbers; -1 for strings
   */
  final class Filter(size: Long, time: Long, scale: Int, words: Int, bytes: Array[Byte]) {
    private val columns = new Array[Long](bytes.length / 8)
    ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer.get(columns)

    def isOf(file: AddFile): Boolean = file.size == size && file.modificationTime == time

    /** Whether its values can equal those that are asked for: strings, or numbers of so many places. */
    def answers(asked: Int): Boolean = if (asked < 0) scale < 0 else scale >= 0 && scale <= asked

    def contains(hash: Long): Boolean = {
      val rows = 64L * words - 63
      val start = (hash >>> 32) * rows + ((hash & 0xffffffffL) * rows >>> 32) >>> 32
      var equation = (hash ^ hash >>> 30) * 0xbf58476d1ce4e5b9L
      equation = (equation ^ equation >>> 27) * 0x94d049bb133111ebL
      equation = equation ^ equation >>> 31 | 1
      val shift = (start & 63).toInt
      val next = if (shift == 0) 0 else 1
      var word = (start >>> 6).toInt
      var holds = true
      while (holds && word + next < columns.length) {
        val low = columns(word) >>> shift
        val bits = if (shift == 0) low else low | columns(word + 1) << 64 - shift
        holds = (java.lang.Long.bitCount(bits & equation) & 1) == 0
        word += words
      }
      holds
    }
  }

  // ---- the files of the index ---------------------------------------------------------------------------------------

  /** The filters in one file of the index, by data file. isOutdated: it is of another table or version. */
  private final case class Sidecar(filters: Map[String, Filter], isOutdated: Boolean = false)

  /** What the index has of one path, for one version of a table. sidecars: by name, size and time of a file. */
  final class PathIndex private[ValueIndex] (
      private[ValueIndex] val snapshot: WeakReference[Snapshot],
      private[ValueIndex] val sidecars: Map[String, Sidecar],
      val bytes: Long,
      tooLarge: Option[String]) {

    /** By data file. */
    val filters: Map[String, Filter] = sidecars.values.foldLeft(Map.empty[String, Filter])(_ ++ _.filters)

    def reason: Option[String] = tooLarge.orElse {
      Option.when(filters.isEmpty && sidecars.values.exists(_.isOutdated)) {
        "the index has filters of another table or of an older version at this path: call analyze(bloom=…)"
      }
    }
  }

  private object PathIndex {
    def of(snapshot: Snapshot, path: String, kept: Kept): PathIndex = {
      val name = f"${XXH64.hashUTF8String(UTF8String.fromString(path), 0)}%016x"
      val directory = new Path(new Path(snapshot.deltaLog.dataPath, Directory), name)
      val table = snapshot.metadata.id
      val key = s"$directory\n$table"
      val before = Option(kept.getIfPresent(key))
      before.filter(_.snapshot.get eq snapshot).getOrElse {
        val known = read(snapshot, directory, before.fold(Map.empty[String, Sidecar])(_.sidecars), IndexedPath(table, path))
        kept.put(key, known)
        known
      }
    }

    private def read(snapshot: Snapshot, directory: Path, before: Map[String, Sidecar], path: IndexedPath): PathIndex = {
      val configuration = snapshot.deltaLog.newDeltaHadoopConf()
      val weak = new WeakReference(snapshot)
      val listed = list(directory, configuration)
      val bytes = listed.map(_.getLen).sum
      if (bytes > MaxBytes) {
        val reason = s"the index has $bytes bytes at this path, and the driver reads at most $MaxBytes"
        return new PathIndex(weak, Map.empty, 0, Some(reason))
      }
      val (old, fresh) = listed.map(file => key(file) -> file).partition { case (key, _) => before.contains(key) }
      val read = sidecars(fresh.map { case (_, file) => file }, path, configuration)
      new PathIndex(weak, old.map { case (key, _) => key -> before(key) }.toMap ++ fresh.map(_._1).zip(read), bytes, None)
    }

    private def key(file: FileStatus): String = s"${file.getPath.getName}\n${file.getLen}\n${file.getModificationTime}"

    private def list(directory: Path, configuration: Configuration): Seq[FileStatus] =
      try {
        directory.getFileSystem(configuration).listStatus(directory).toSeq.filter { file =>
          val name = file.getPath.getName
          file.isFile && !name.startsWith(".") && name.endsWith(".parquet")
        }
      } catch { case _: FileNotFoundException => Nil }

    private def sidecars(files: Seq[FileStatus], path: IndexedPath, configuration: Configuration): Seq[Sidecar] =
      if (files.isEmpty) Nil
      else {
        val threads = Executors.newFixedThreadPool(math.min(AtOnce, files.size))
        try {
          val reads = files.map(file => (() => path.read(file, configuration)): Callable[Sidecar])
          threads.invokeAll(reads.asJava).asScala.toSeq.map { read =>
            try read.get
            catch {
              case unreadable: ExecutionException if !unreadable.getCause.isInstanceOf[Error] =>
                Sidecar(Map.empty) // damaged, or of another format: its data files are kept
            }
          }
        } finally threads.shutdownNow()
      }
  }

  /** A path in the index of a table. */
  private final case class IndexedPath(table: String, path: String) {

    /** Reads the filters of one file. Pages have checksums, which the reader verifies. */
    def read(file: FileStatus, configuration: Configuration): Sidecar = {
      val options = new HadoopReadOptions.Builder(configuration).usePageChecksumVerification(true).build()
      Using.resource(ParquetFileReader.open(HadoopInputFile.fromStatus(file, configuration), options)) { reader =>
        val footer = reader.getFooter.getFileMetaData
        val about = footer.getKeyValueMetaData
        if (about.get(VersionKey) != Format || about.get(TableKey) != table) Sidecar(Map.empty, isOutdated = true)
        else if (about.get(PathKey) != path) Sidecar(Map.empty)
        else {
          val schema = footer.getSchema
          Sidecar(Iterator.continually(reader.readNextRowGroup()).takeWhile(_ != null).flatMap { pages =>
            val rows = new ColumnIOFactory().getColumnIO(schema).getRecordReader(pages, new GroupRecordConverter(schema))
            Iterator.range(0L, pages.getRowCount, 1L).flatMap(_ => filter(rows.read()))
          }.toMap)
        }
      }
    }

    private def filter(row: Group): Option[(String, Filter)] =
      Option.when(row.getFieldRepetitionCount("filter") > 0) {
        val bytes = row.getBinary("filter", 0).getBytes
        val words = row.getInteger("words", 0)
        val scale = row.getString("kind", 0) match {
          case "exact" => row.getInteger("scale", 0)
          case "string" => -1
          case other => throw new IOException(s"not a filter: $other")
        }
        if (words < 1 || words > MaxWords || bytes.length % 8 != 0) throw new IOException("not a filter")
        row.getString("path", 0) -> new Filter(row.getLong("size", 0), row.getLong("time", 0), scale, words, bytes)
      }
  }
}
