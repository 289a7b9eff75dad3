package org.apache.spark.sql.delta.variant

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.variant.{SchemaOfVariant, VariantGet}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Project}
import org.apache.spark.sql.classic.{DataFrame, Dataset, SparkSession}
import org.apache.spark.sql.delta.{DeltaColumnMapping, Snapshot}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.VariantVal

/**
 * What the log of one table version knows about its Variant paths, as Catalyst expressions.
 *
 * There is one row per file: `path`, `mark` (the value of the marker; NULL without one), `nonnull` and `times` (the VARIANTs in
 * the tags of these names), `rows` (the number of rows), and for each VARIANT column with statistics, in the order of
 * `columns`, `min0`, `max0`, `min1` and so on: Variant objects {normalized path: bound} (Delta variantShredding, "Statistics
 * for Variant Columns"). Damaged values are NULL.
 */
final class LogStatistics(val snapshot: Snapshot) {
  import LogStatistics._

  private val schema = if (Pairs.readsBounds) snapshot.statsSchema else withBounds(snapshot)

  // Delta keeps statistics of these; bounds of the others are in tags only.
  private val indexed: Seq[Seq[String]] =
    schema.find(_.name == "minValues").toSeq.flatMap(least => variants(least.dataType, Nil)).distinct

  /** The VARIANT columns with statistics or tags, by their physical names. */
  val columns: Seq[Seq[String]] = {
    val tagged = snapshot.metadata.configuration.get(TagsOnly).contains("true")
    if (tagged) (indexed ++ variants(snapshot.metadata.dataSchema, Nil)).distinct else indexed
  }

  /** The same for Python. */
  def columnNames: String = Messages.encoded(Messages.ColumnNames(columns))

  /**
   * The files with their statistics as structs, as `Snapshot.withStats` has them. If Delta leaves out bounds of VARIANTs there,
   * they come from the JSON statistics in the log.
   */
  def withStats: Dataset[_] =
    if (Pairs.readsBounds) snapshot.withStats.asInstanceOf[Dataset[_]]
    else {
      val session = SparkSession.active
      def replaced(files: LogicalPlan)(stats: Attribute => Expression) = Project(
        files.output.map(column => if (column.name == "stats") Alias(stats(column), "stats")() else column), files)
      val texts = snapshot.allFiles.toDF().asInstanceOf[DataFrame].logicalPlan
      val zone = Some(session.sessionState.conf.sessionLocalTimeZone)
      Dataset.ofRows(session, replaced(replaced(texts)(new JsonToStructs(schema, Map.empty, _, zone)))(fromTexts))
    }

  /** The rows as a DataFrame, in which `path` is the path of a file. */
  def files: DataFrame = {
    val files = withStats.logicalPlan
    Dataset.ofRows(SparkSession.active, Project(row(files.output, column(files.output, "path"), checked = true), files))
  }

  /**
   * Rows with the columns of `Snapshot.withStats`, and beside them bounds as VARIANTs, named by their numbers. Bounds of a column
   * without a number are NULL.
   */
  def beside(files: DataFrame, bounds: Seq[Messages.Bound]): DataFrame = {
    val plan = files.queryExecution.analyzed
    val known = row(plan.output, column(plan.output, "path"), checked = true)
    val found = bounds.zipWithIndex.map { case (bound, number) =>
      val value = if (bound.column < 0) NoVariant else LogStatistics.found(bound.side, bound, known.map(_.toAttribute))
      Alias(value, number.toString)()
    }
    Dataset.ofRows(files.sparkSession, Project(plan.output ++ found, Project(plan.output ++ known, plan)))
  }

  /**
   * The columns of a row, as expressions over the columns of `Snapshot.withStats`. If not `checked`, to read damaged values is
   * an error.
   */
  def row(files: Seq[Attribute], path: Expression, checked: Boolean): Seq[NamedExpression] = {
    def tag(name: String) = ElementAt(column(files, "tags"), Literal(name), failOnError = false)
    def intact(variant: Expression) = if (checked) If(Pairs.isValid(variant), variant, NoVariant) else variant
    val stats = column(files, "stats")
    val known = In(tag(Tags.marker), Tags.markerValues.map(Literal(_)))
    val counted = stats.dataType.asInstanceOf[StructType].exists(_.name == "numRecords")
    def bound(side: String, names: Seq[String]) =
      if (indexed.contains(names)) intact(names.foldLeft(field(stats, side))(field)) else NoVariant
    Seq(
      Alias(path, "path")(),
      Alias(If(known, tag(Tags.marker), Literal(null, StringType)), "mark")(),
      Alias(intact(variant(tag(Tags.nonnull))), "nonnull")(),
      Alias(intact(variant(tag(Tags.times))), "times")(),
      Alias(if (counted) field(stats, "numRecords") else Literal(null, LongType), "rows")()) ++
      columns.zipWithIndex.flatMap { case (names, number) =>
        Seq(Alias(bound("minValues", names), s"min$number")(), Alias(bound("maxValues", names), s"max$number")())
      }
  }

  /** The fields of an Add action in `Snapshot.stateDF` that the file's row depends on: equal fields give equal bounds. */
  def contents(add: Expression): Seq[Expression] =
    Seq(field(add, "path"), field(add, "stats")) ++
      Seq(Tags.marker, Tags.nonnull, Tags.times).map(tag => ElementAt(field(add, "tags"), Literal(tag), failOnError = false))
}

object LogStatistics {
  private val TagsOnly = "delta_variant.tagsOnly" // a table property (protocol/README.md, M4)
  private val NoVariant = Literal(null, VariantType)
  private val Fixed =
    Seq("path" -> LongType, "mark" -> StringType, "nonnull" -> VariantType, "times" -> VariantType, "rows" -> LongType)

  /** The columns of a row as attributes, for expressions over rows that jobs have read: `path` is the hash of the path. */
  def attributes(columns: Int): Seq[Attribute] =
    (Fixed ++ (0 until columns).flatMap(number => Seq(s"min$number" -> VariantType, s"max$number" -> VariantType))).map {
      case (name, dataType) => AttributeReference(name, dataType)()
    }

  /** The Variant object with the minima of a column in such a row; None if there is none. */
  def least(row: InternalRow, column: Int): Option[VariantVal] = {
    val index = Fixed.size + 2 * column
    if (row.isNullAt(index)) None else Some(row.getVariant(index))
  }

  def column(output: Seq[Attribute], name: String): Attribute =
    output.find(_.name == name).getOrElse(throw new IllegalStateException(s"$name is not in $output"))

  def field(struct: Expression, name: String): Expression =
    GetStructField(struct, struct.dataType.asInstanceOf[StructType].fieldIndex(name), Some(name))

  private def variants(dataType: DataType, outer: Seq[String]): Seq[Seq[String]] = dataType match {
    case VariantType => Seq(outer)
    case struct: StructType =>
      struct.fields.toSeq.flatMap(field => variants(field.dataType, outer :+ DeltaColumnMapping.getPhysicalName(field)))
    case _ => Nil
  }

  /** Delta's schema of statistics, with bounds for each VARIANT column whose nulls it counts. */
  private def withBounds(snapshot: Snapshot): StructType = {
    def has(dataType: DataType, names: Seq[String]): Boolean = (dataType, names) match {
      case (struct: StructType, name +: rest) => struct.find(_.name == name).exists(field => has(field.dataType, rest))
      case _ => names.isEmpty
    }
    def added(to: StructType, names: Seq[String]): StructType = {
      val (before, rest) = to.fields.span(_.name != names.head)
      val inner = rest.headOption.fold(new StructType)(_.dataType.asInstanceOf[StructType])
      val field = StructField(names.head, if (names.tail.isEmpty) VariantType else added(inner, names.tail))
      StructType(before ++ (field +: rest.drop(1)))
    }
    val counted = variants(snapshot.metadata.dataSchema, Nil).filter(names => has(snapshot.statsSchema, "nullCount" +: names))
    counted.flatMap(names => Seq("minValues", "maxValues").map(_ +: names)).foldLeft(snapshot.statsSchema)(added)
  }

  /** Statistics whose VARIANTs are Z85 texts, with the Variants of these texts. */
  private def fromTexts(statistics: Expression): Expression = statistics.dataType match {
    case struct: StructType =>
      val fields = struct.names.toSeq.flatMap(name => Seq(Literal(name), fromTexts(field(statistics, name))))
      If(IsNull(statistics), Literal(null, struct), CreateNamedStruct(fields))
    case VariantType => variant(Cast(statistics, StringType, Some("UTC")))
    case _ => statistics
  }

  /** The Variant of a Z85 text. Delta's expression takes a struct of Variants that hold text. */
  private def variant(text: Expression): Expression =
    Pairs.fromTexts(CreateNamedStruct(Seq(Literal("tag"), Cast(text, VariantType, None, EvalMode.ANSI))))
      .fold(Z85.variant(text))(field(_, "tag"))

  // ---- one bound ----------------------------------------------------------------------------------------------------

  /**
   * A bound as an expression over a row: a value of the last of its types for the sides `min` and `max`, the name of a type for
   * `kind`, a VARIANT of that type for `leaf` if the file has the bound's mark, a BOOLEAN for `values`, the number of rows for
   * `rows`.
   *
   * @param types the types that the bound names
   */
  def value(bound: Messages.Bound, row: Seq[Attribute], types: Map[String, DataType], zone: String): Expression = {
    def either = Coalesce(Seq(found("min", bound, row), found("max", bound, row)))
    bound.side match {
      case "rows" => column(row, "rows")
      case "values" => hasValues(bound, row)
      case "kind" => kind(either)
      case "leaf" => If(EqualTo(column(row, "mark"), Literal(bound.mark)), either, NoVariant)
      case side =>
        val variant = found(side, bound, row)
        val names = kind(variant)
        val counts = Or(
          In(names, bound.kinds.map(Literal(_))),
          And(IsNotNull(column(row, "mark")), In(names, bound.marked.map(Literal(_)))))
        val first = types(bound.types.head)
        val stated = If(counts, VariantGet(variant, Literal("$"), first, failOnError = false, Some(zone)), Literal(null, first))
        val spelled = bound.times.map(place => time(side, place, bound.exact, row, first))
        bound.types.tail.foldLeft[Expression](spelled.fold[Expression](stated)(value => Coalesce(Seq(stated, value)))) {
          (value, name) => Cast(value, types(name), Some(zone), EvalMode.TRY)
        }
    }
  }

  /** The minimum or maximum of a path as VARIANT, whatever its type; NULL if there is none. */
  def found(side: String, bound: Messages.Bound, row: Seq[Attribute]): Expression = {
    val inStatistics = get(column(row, side + bound.column), Seq(bound.key), "", VariantType)
    bound.tag.fold(inStatistics) { place =>
      Coalesce(Seq(inStatistics, get(column(row, "nonnull"), place, if (side == "min") "[2]" else "[3]", VariantType)))
    }
  }

  /**
   * The first or the last of the times that the strings at a path spell, as a value of this type; NULL if the file has none in
   * the tag, whose array delta_variant/stats/tags.py describes.
   *
   * A local time is an instant only in some time zone, and java.time has none beyond 18 hours from UTC: the first instant is
   * not before that of +18:00, the last not after that of -18:00. With `exact`, these wider bounds are left out.
   */
  private def time(side: String, place: Seq[String], exact: Boolean, row: Seq[Attribute], dataType: DataType): Expression = {
    val first = side == "min"
    val times = column(row, "times")
    val instant = if (first) "[0]" else "[1]"
    val marked = IsNotNull(column(row, "mark"))
    if (dataType == TimestampType) {
      val isInstant = EqualTo(kind(get(times, place, instant, VariantType)), Literal("TIMESTAMP"))
      val value = get(times, place, instant, dataType, if (first) "+18:00" else "-18:00")
      If(if (exact) And(marked, isInstant) else marked, value, Literal(null, dataType))
    } else {
      val local = get(times, place, if (first) "[2]" else "[3]", dataType)
      If(marked, Coalesce(Seq(local, get(times, place, instant, dataType))), Literal(null, dataType))
    }
  }

  private def kind(variant: Expression): Expression =
    SubstringIndex(new SchemaOfVariant(variant).replacement, Literal("("), Literal(1))

  private def hasValues(bound: Messages.Bound, row: Seq[Attribute]): Expression = {
    val place = bound.tag.getOrElse(throw new IllegalStateException(s"no tag has values: $bound"))
    val counts = get(column(row, "nonnull"), place, "", ArrayType(VariantType))
    val values = Not(EqualTo(Size(counts, legacySizeOfNull = false), Literal(2)))
    if (bound.types.last != "variant") values
    else Or(values, GreaterThan(get(column(row, "nonnull"), place, "[0]", LongType), Literal(0L)))
  }

  /**
   * The value at these keys of a Variant. Spark's path syntax has no escapes, and a key may have quotes of both kinds: a key
   * with double quotes is looked up in a map.
   */
  private def get(
      variant: Expression, keys: Seq[String], suffix: String, dataType: DataType, zone: String = "UTC"): Expression = {
    def read(from: Expression, path: String, as: DataType) =
      VariantGet(from, Literal(path), as, failOnError = false, Some(zone))
    val (from, path) = keys.foldLeft((variant, "$")) {
      case ((from, path), key) if !key.contains('"') => (from, s"""$path["$key"]""")
      case ((from, path), key) =>
        (ElementAt(read(from, path, MapType(StringType, VariantType)), Literal(key), failOnError = false), "$")
    }
    read(from, path + suffix, dataType)
  }
}
