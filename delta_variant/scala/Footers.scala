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
 * Footers of Parquet files, which tell the columns that hold the values of paths. They are read on the driver, several at a time,
 * and are cached until an hour after their last use, since the files of a table never change.
 */
final class Footers {
  import Footers._

  private val footers = Interners.newWeakInterner[Footer]() // most files of a table have the same columns
  private val files = Shared.cache[WeighedFooter](MaxPlaces)(_.weight) // by table, and name, size and time of a file
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
      val own = new Places(reader.getFooter).found
      val footer = footers.intern(own)
      val known = new WeighedFooter(footer, if (footer eq own) 1 + own.places.size else 1)
      files.put(key, known)
      known.footer
    }
  }
}

object Footers {
  private val AtOnce = 16
  private val MaxFiles = 1000 // new footers that one query reads; the next query reads the next ones
  private val MaxSeconds = 60L // that a query waits for footers
  private val MaxPlaces = 400000L // in the cache
  private val Writer = "org.apache.spark.version" // a key of files that Spark or this package wrote
  private val Rebased = "org.apache.spark.legacyDateTime"
  val Element: Option[String] = None // a step of a path, which is a key or leads to any element of an array
  private val Floating = Set("float", "double") // Spark's filters lose NaN and zeros to others' statistics and dictionaries
  private val GroupFields = Set("metadata", "value", "typed_value") // VariantShredding, "Value Shredding"

  private final class WeighedFooter(val footer: Footer, val weight: Int)

  /** A path in a VARIANT column. */
  private final case class ColumnSteps(column: Seq[String], steps: Seq[Option[String]])

  /**
   * A group with `value` and `typed_value`.
   *
   * @param hasJsonNulls whether its `value` may hold JSON nulls
   * @param hasOthers whether its `value` may hold anything else
   */
  private final case class Place(typed: Content, hasJsonNulls: Boolean, hasOthers: Boolean)

  /** The `typed_value` of a group. */
  private sealed trait Content
  private case object Unknown extends Content
  private case object TypedObject extends Content
  private final case class TypedArray(isCounted: Boolean) extends Content // isCounted: the elements have a `value`
  private final case class Primitive(name: String) extends Content // as LeafTypes names it

  /**
   * The columns that hold the values of a path.
   *
   * @param name the type of the typed column (LeafTypes), VOID if there is none
   * @param residuals each `value` column that holds values of the path too: how many steps lead to its group
   */
  final case class PathColumns(name: String, residuals: Seq[Int])

  /** What a footer tells of the columns that hold the values of paths. */
  final class Footer private[Footers] (private[Footers] val places: Map[ColumnSteps, Place], private val isTrusted: Boolean) {

    /**
     * The columns that hold every value of a path; None if these are not known.
     *
     * @param isVariant whether the path is asked for as VARIANT, for which a JSON null is not NULL
     */
    def columns(
        path: PathOf, column: Seq[String], steps: Seq[Option[String]], isVariant: Boolean): Option[PathColumns] = {
      def place(length: Int) = places.get(ColumnSteps(column, steps.take(length)))

      // Whether the `value` of a place holds anything that the query tells from NULL.
      def hasValues(here: Place) = here.hasOthers || isVariant && here.hasJsonNulls

      // From the group to which `length` steps lead. above: the residuals above it.
      def from(length: Int, here: Place, above: Seq[Int]): Option[PathColumns] = {
        def residuals(hasValues: Boolean) = if (hasValues) above :+ length else above
        val next = if (length < steps.size) place(length + 1) else None
        (here.typed, next) match {
          case (Unknown, _) => None
          // Spark and this package write no value with a typed column into the `value` above it.
          case (_, Some(inner)) => from(length + 1, inner, residuals(here.hasOthers && !isTrusted))
          case (Primitive(name), _) if length == steps.size =>
            // A filter reaches no column that has residuals (protocol/README.md, F5).
            val isUnsafe = Floating(name) && !steps.contains(Element)
            Some(PathColumns(name, residuals(hasValues(here) || isUnsafe)))
          case (TypedArray(isCounted), _) if length == steps.size =>
            elements(steps :+ Element).orElse(Option.when(path.isExploded && isCounted)(LeafTypes.Void)).map { name =>
              PathColumns(LeafTypes.array(name), residuals(hasValues(here)))
            }
          case (TypedObject, _) if length == steps.size && path.isObject =>
            Some(PathColumns(LeafTypes.Object, residuals(here.hasOthers)))
          case _ if length == steps.size => None
          // No typed column has the path. Where the struct of an object is NULL, the `value` columns above it would be asked.
          case (typed, _) =>
            Option.when(above.isEmpty && (!here.hasOthers || isTrusted || typed == TypedObject)) {
              PathColumns(LeafTypes.Void, residuals(here.hasOthers))
            }
        }
      }

      // The type that all elements of an array have. A cast of each by itself would be slower than Spark's scan.
      def elements(inner: Seq[Option[String]]): Option[String] =
        places.get(ColumnSteps(column, inner)).filterNot(hasValues).map(_.typed).flatMap {
          case Primitive(name) => Some(name)
          case _: TypedArray => elements(inner :+ Element).map(LeafTypes.array)
          case _ => None
        }

      place(0).flatMap(from(0, _, Nil))
    }

    override def equals(other: Any): Boolean = other match {
      case that: Footer => isTrusted == that.isTrusted && places == that.places
      case _ => false
    }

    override def hashCode: Int = places.hashCode

    /** The bytes that Spark's estimates assume for a row in the typed columns of the file. */
    def width: Int = places.values.collect { case Place(Primitive(name), _, _) => LeafTypes.size(name) }.sum
  }

  /** The places in the VARIANT columns of one file. */
  private final class Places(footer: ParquetMetadata) {
    private val places = mutable.Map.empty[ColumnSteps, Place]
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

    def found: Footer = new Footer(places.toMap, isTrusted)

    /** Whether both bounds are the one byte that encodes a JSON null (VariantEncoding, "Encoding types"). */
    private def isJsonNull(statistics: Statistics[_]): Boolean =
      statistics != null && statistics.hasNonNullValue &&
        Seq(statistics.getMinBytes, statistics.getMaxBytes).forall(bound => bound.length == 1 && bound(0) == 0)

    private def fields(group: GroupType): Seq[Type] = group.getFields.asScala.toSeq

    /** The group that a field is; None for a primitive and a repeated field. */
    private def group(field: Type): Option[GroupType] =
      Option.when(!field.isPrimitive && !field.isRepetition(Type.Repetition.REPEATED))(field.asGroupType)

    /** Adds the places of the VARIANT columns in a schema or a struct. */
    private def addColumns(struct: GroupType, path: Seq[String]): Unit =
      for (field <- fields(struct); column <- group(field)) {
        val here = path :+ column.getName
        if (column.containsField("metadata") && column.containsField("typed_value")) addPlace(column, here, here, Nil)
        else if (column.getLogicalTypeAnnotation == null) addColumns(column, here)
      }

    /** Adds a group with `value` and `typed_value`, and those inside it. */
    private def addPlace(outer: GroupType, path: Seq[String], column: Seq[String], steps: Seq[Option[String]]): Unit = {
      val isKnown = fields(outer).forall(field => GroupFields(field.getName)) && outer.containsField("typed_value")
      val value = path :+ "value"
      val typed = if (isKnown) content(outer.getType("typed_value"), path :+ "typed_value", column, steps) else Unknown
      places(ColumnSteps(column, steps)) = Place(typed, some(value), others(value))
    }

    private def content(typed: Type, path: Seq[String], column: Seq[String], steps: Seq[Option[String]]): Content =
      typed match {
        case repeated if repeated.isRepetition(Type.Repetition.REPEATED) => Unknown
        case leaf: PrimitiveType => typeName(leaf).fold[Content](Unknown)(Primitive)
        case list if list.getLogicalTypeAnnotation != null =>
          elementOf(list).fold[Content](Unknown) { element =>
            addPlace(element, path ++ Seq("list", "element"), column, steps :+ Element)
            TypedArray(isCounted = element.containsField("value"))
          }
        case other =>
          val inside = fields(other.asGroupType)
          // Spark's reader does not distinguish names by case.
          if (inside.map(_.getName.toLowerCase(Locale.ROOT)).distinct.size < inside.size) Unknown
          else {
            for (field <- inside) {
              val deeper = steps :+ Some(field.getName)
              group(field) match {
                case Some(inner) => addPlace(inner, path :+ field.getName, column, deeper)
                case None => places(ColumnSteps(column, deeper)) = Place(Unknown, hasJsonNulls = false, hasOthers = false)
              }
            }
            TypedObject
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

    /** The name of a leaf's type (LeafTypes); None for types that Spark would read wrongly. */
    private def typeName(leaf: PrimitiveType): Option[String] =
      (leaf.getLogicalTypeAnnotation, leaf.getPrimitiveTypeName) match {
        case (null, PrimitiveTypeName.BOOLEAN) => Some("boolean")
        case (null, PrimitiveTypeName.INT32) => Some("int")
        case (null, PrimitiveTypeName.INT64) => Some("bigint")
        case (null, PrimitiveTypeName.FLOAT) => Some("float")
        case (null, PrimitiveTypeName.DOUBLE) => Some("double")
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
