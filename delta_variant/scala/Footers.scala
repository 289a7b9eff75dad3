package org.apache.spark.sql.delta.variant

import java.util.Locale
import java.util.concurrent.{CompletableFuture, ExecutionException, Future, TimeUnit, TimeoutException}

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Using

import com.google.common.collect.Interners
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, Path}
import org.apache.parquet.column.statistics.Statistics
import org.apache.parquet.hadoop.ParquetFileReader
import org.apache.parquet.hadoop.metadata.ParquetMetadata
import org.apache.parquet.hadoop.util.HadoopInputFile
import org.apache.parquet.schema.{GroupType, LogicalTypeAnnotation, PrimitiveType, Type}
import org.apache.parquet.schema.LogicalTypeAnnotation._
import org.apache.parquet.schema.PrimitiveType.PrimitiveTypeName
import org.apache.spark.sql.delta.actions.AddFile
import org.apache.spark.sql.delta.files.TahoeFileIndex
import org.apache.spark.util.ThreadUtils

/**
 * Footers of Parquet files, which prove types of typed columns. They are read on the driver, several at a time, and are cached
 * until an hour after their last use, since the files of a table never change.
 */
final class Footers {
  import Footers._

  private val shapes = Interners.newWeakInterner[Map[ColumnSteps, Proven]]() // most files of a table have the same leaves
  private val files = Shared.cache[WeighedFooter](MaxLeaves)(_.weight) // by table, and name, size and time of a file
  private lazy val threads = ThreadUtils.newDaemonCachedThreadPool("delta-variant footers", AtOnce, keepAliveSeconds = 10)

  /** The footers of files. None for files of fewer than `minBytes` bytes, and for those whose footers were not read. */
  def of(index: TahoeFileIndex, wanted: Seq[AddFile], minBytes: Long): Seq[Option[Footer]] = {
    val table = s"${index.path}\n${index.metadata.id}" // another table may take its place, with the same files' names
    lazy val configuration = index.deltaLog.newDeltaHadoopConf()
    var submitted = 0
    val found: Seq[Option[Future[Footer]]] = wanted.map { file =>
      val key = s"$table\n${file.path}\n${file.size}\n${file.modificationTime}"
      if (file.size < minBytes) None
      else Option(files.getIfPresent(key)).map(known => CompletableFuture.completedFuture(known.footer)).orElse {
        Option.when(submitted < MaxFiles) {
          submitted += 1
          val (path, settings) = (index.absolutePath(file.path), configuration)
          threads.submit(() => read(key, path, file, settings))
        }
      }
    }
    val end = System.nanoTime() + TimeUnit.SECONDS.toNanos(MaxSeconds)
    try found.map(_.flatMap(arrived(_, end)))
    finally found.flatten.foreach(_.cancel(true))
  }

  /**
   * None if the footer is late or cannot be read. Spark's scan then reads the file, which is no slower than waiting, and
   * reports a damaged one.
   */
  private def arrived(footer: Future[Footer], end: Long): Option[Footer] =
    try Some(footer.get(math.max(0, end - System.nanoTime()), TimeUnit.NANOSECONDS))
    catch { case _: ExecutionException | _: TimeoutException => None }

  private def read(key: String, path: Path, file: AddFile, configuration: Configuration): Footer = {
    val status = new FileStatus(file.size, false, 1, 0, file.modificationTime, path)
    Using.resource(ParquetFileReader.open(HadoopInputFile.fromStatus(status, configuration))) { reader =>
      val leaves = new Leaves(reader.getFooter).found
      val shape = shapes.intern(leaves)
      val known = new WeighedFooter(new Footer(shape), if (shape eq leaves) 1 + leaves.size else 1)
      files.put(key, known)
      known.footer
    }
  }
}

object Footers {
  private val AtOnce = 16
  private val MaxFiles = 1000 // new footers that one query reads; the next query reads the next ones
  private val MaxSeconds = 60L // that a query waits for footers
  private val MaxLeaves = 400000L // in the cache
  private val Writer = "org.apache.spark.version" // a key of files that Spark or this package wrote
  private val Rebased = "org.apache.spark.legacyDateTime"
  val Element: Option[String] = None // a step of a path, which is a key or leads to any element of an array
  private val GroupFields = Set("metadata", "value", "typed_value") // VariantShredding, "Value Shredding"

  private final class WeighedFooter(val footer: Footer, val weight: Int)

  /** A path in a VARIANT column. */
  private final case class ColumnSteps(column: Seq[String], steps: Seq[Option[String]])

  /** What is proven of the values at a path. */
  private sealed trait Proven
  private case object Anything extends Proven
  private case object ObjectOrJsonNull extends Proven // an object with typed fields only, or a JSON null
  private final case class ArrayOrJsonNull(isCounted: Boolean) extends Proven // of elements of no one type, with a `value`
  private final case class Typed(name: String) extends Proven // as LeafTypes names it

  /** What a footer proves: the types of typed columns that hold every value of their path. */
  final class Footer private[Footers] (leaves: Map[ColumnSteps, Proven]) {

    /**
     * The type of a path's typed column (LeafTypes; it tells whether some rows have a JSON null instead). VOID if no row has
     * the path, and None if neither is proven. isExploded: whether any array will do, as its values are not read.
     */
    def typeOf(column: Seq[String], steps: Seq[Option[String]], isExploded: Boolean): Option[String] =
      steps.inits.map(some => some.size -> leaves.get(ColumnSteps(column, some))).collectFirst {
        case (length, Some(proven)) => (length == steps.size, proven)
      }.flatMap {
        case (_, Anything) => None
        case (isWhole, _) if !isWhole => Some(LeafTypes.Void)
        case (_, Typed(name)) => Some(name)
        case (_, ArrayOrJsonNull(isCounted)) if isExploded && isCounted => Some(LeafTypes.array(LeafTypes.Void))
        case _ => None
      }

    /** The bytes that Spark's estimates assume for a row in the typed columns of the file. */
    def width: Int = leaves.values.collect { case Typed(name) if !LeafTypes.isArray(name) => LeafTypes.size(name) }.sum
  }

  /**
   * The leaves of the VARIANT columns of one file. A path is proven if its `value`, and each `value` above it, holds at most
   * JSON nulls in every row group. In files of Spark and of this package those above may hold anything (VariantShredding,
   * "Arrays", "Objects").
   */
  private final class Leaves(footer: ParquetMetadata) {
    private val leaves = mutable.Map.empty[ColumnSteps, Proven]
    private val kept = footer.getFileMetaData.getKeyValueMetaData
    private val isTrusted =
      kept.containsKey(Writer) // Spark or this package wrote the file: no `value` has a field or an array that is typed
    private val isCorrected = isTrusted && !kept.containsKey(Rebased) // and its dates and times are not of another calendar
    private val some = mutable.Set.empty[Seq[String]] // paths of columns that may have a value
    private val others = mutable.Set.empty[Seq[String]] // and of those that may have a value other than a JSON null

    for (block <- footer.getBlocks.asScala; column <- block.getColumns.asScala) {
      val statistics: Statistics[_] = column.getStatistics
      val path = column.getPath.toArray.toSeq
      val isNull = statistics != null && statistics.isNumNullsSet && statistics.getNumNulls == column.getValueCount
      if (!isNull) some += path
      if (!isNull && !isJsonNull(statistics)) others += path
    }
    addColumns(footer.getFileMetaData.getSchema, Nil)

    def found: Map[ColumnSteps, Proven] = leaves.toMap

    /** Whether both bounds are the one byte that encodes a JSON null (VariantEncoding, "Encoding types"). */
    private def isJsonNull(statistics: Statistics[_]): Boolean =
      statistics != null && statistics.hasNonNullValue &&
        Seq(statistics.getMinBytes, statistics.getMaxBytes).forall(bound => bound.length == 1 && bound(0) == 0)

    private def fields(group: GroupType): Seq[Type] = group.getFields.asScala.toSeq

    /** The group that a field is; None for a primitive and a repeated field. */
    private def group(field: Type): Option[GroupType] =
      Option.when(!field.isPrimitive && !field.isRepetition(Type.Repetition.REPEATED))(field.asGroupType)

    /** Adds the leaves of the VARIANT columns in a schema or a struct. */
    private def addColumns(struct: GroupType, path: Seq[String]): Unit =
      for (field <- fields(struct); column <- group(field)) {
        val here = path :+ column.getName
        if (column.containsField("metadata") && column.containsField("typed_value")) addLeaves(column, here, here, Nil)
        else if (column.getLogicalTypeAnnotation == null) addColumns(column, here)
      }

    /** Adds the leaves of a group with `value` and `typed_value`. */
    private def addLeaves(outer: GroupType, path: Seq[String], column: Seq[String], steps: Seq[Option[String]]): Unit = {
      val place = ColumnSteps(column, steps)
      leaves(place) = Anything
      val known = fields(outer).forall(field => GroupFields(field.getName)) && outer.containsField("typed_value")
      val hasResidual = outer.containsField("value") && some(path :+ "value")
      val isClosed = !hasResidual || !others(path :+ "value")
      def of(name: String) = Typed(if (hasResidual) LeafTypes.withJsonNulls(name) else name)
      if (known) outer.getType("typed_value") match {
        case repeated if repeated.isRepetition(Type.Repetition.REPEATED) =>
        case leaf: PrimitiveType =>
          if (isClosed) typeName(leaf, isElement = steps.contains(Element)).foreach(name => leaves(place) = of(name))
        case _ if !isClosed && !isTrusted => // of another writer, whose `value` may hold typed fields and arrays too
        case list if list.getLogicalTypeAnnotation != null =>
          for (element <- elementOf(list)) {
            val elements = steps :+ Element
            addLeaves(element, path ++ Seq("typed_value", "list", "element"), column, elements)
            if (isClosed) leaves(place) = leaves(ColumnSteps(column, elements)) match {
              case Typed(name) => of(LeafTypes.array(name))
              case _ => ArrayOrJsonNull(isCounted = element.containsField("value"))
            }
          }
        case typed =>
          val inside = fields(typed.asGroupType)
          // Spark's reader does not distinguish names by case.
          if (inside.map(_.getName.toLowerCase(Locale.ROOT)).distinct.size == inside.size) {
            if (isClosed) leaves(place) = ObjectOrJsonNull
            for (field <- inside) {
              val deeper = steps :+ Some(field.getName)
              group(field) match {
                case Some(inner) => addLeaves(inner, path :+ "typed_value" :+ field.getName, column, deeper)
                case None => leaves(ColumnSteps(column, deeper)) = Anything
              }
            }
          }
      }
    }

    /** The group of the elements of a list; None if it is not a list of the form that writers have to use today. */
    private def elementOf(list: Type): Option[GroupType] = list.getLogicalTypeAnnotation match {
      case _: ListLogicalTypeAnnotation =>
        for {
          Seq(repeated) <- Some(fields(list.asGroupType))
          if repeated.getName == "list" && repeated.isRepetition(Type.Repetition.REPEATED) && !repeated.isPrimitive
          Seq(element) <- Some(fields(repeated.asGroupType)) if element.getName == "element"
          inner <- group(element)
        } yield inner
      case _ => None
    }

    /** The name of a leaf's type (LeafTypes); None for types that Spark would read or filter wrongly. */
    private def typeName(leaf: PrimitiveType, isElement: Boolean): Option[String] =
      (leaf.getLogicalTypeAnnotation, leaf.getPrimitiveTypeName) match {
        case (null, PrimitiveTypeName.BOOLEAN) => Some("boolean")
        case (null, PrimitiveTypeName.INT32) => Some("int")
        case (null, PrimitiveTypeName.INT64) => Some("bigint")
        // Others' statistics and dictionaries lose NaN and zeros to Spark's filters, which elements do not have
        // (protocol/README.md, F5).
        case (null, PrimitiveTypeName.FLOAT) => Option.when(isElement)("float")
        case (null, PrimitiveTypeName.DOUBLE) => Option.when(isElement)("double")
        case (null, _) => None
        case (_: StringLogicalTypeAnnotation, _) => Some("string")
        case (_: DateLogicalTypeAnnotation, _) => Option.when(isCorrected)("date")
        case (integer: IntLogicalTypeAnnotation, _) => Option.when(integer.isSigned)(LeafTypes.ofBits(integer.getBitWidth))
        case (time: TimestampLogicalTypeAnnotation, _) if time.getUnit == LogicalTypeAnnotation.TimeUnit.MICROS =>
          if (!time.isAdjustedToUTC) Some("timestamp_ntz") else Option.when(isCorrected)("timestamp")
        case (decimal: DecimalLogicalTypeAnnotation, PrimitiveTypeName.INT32) => LeafTypes.decimal(0, decimal.getScale)
        case (decimal: DecimalLogicalTypeAnnotation, PrimitiveTypeName.INT64) => LeafTypes.decimal(1, decimal.getScale)
        case (decimal: DecimalLogicalTypeAnnotation, _) => LeafTypes.decimal(2, decimal.getScale)
        case _ => None
      }
  }
}
