package org.apache.spark.sql.delta.variant

import org.apache.spark.network.util.JavaUtils
import org.apache.spark.sql.catalyst.expressions.{
  Alias, Attribute, CaseWhen, CreateNamedStruct, Expression, ExprId, FileSourceMetadataAttribute, GetStructField, If, Literal,
  NamedExpression
}
import org.apache.spark.sql.catalyst.plans.FullOuter
import org.apache.spark.sql.catalyst.plans.logical.{Filter, Join, LogicalPlan, Project, Repartition, SubqueryAlias}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.delta.{DeletionVectorsTableFeature, DeltaColumnMapping, DeltaLog, DeltaParquetFileFormat}
import org.apache.spark.sql.delta.actions.{AddFile, Metadata, Protocol}
import org.apache.spark.sql.delta.files.TahoeBatchFileIndex
import org.apache.spark.sql.execution.{FileSourceScanExec, QueryExecution, SparkPlan}
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec
import org.apache.spark.sql.execution.datasources.{FileFormat, HadoopFsRelation, LogicalRelation}
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat
import org.apache.spark.sql.execution.exchange.{BroadcastExchangeLike, ShuffleExchangeLike}
import org.apache.spark.sql.execution.joins.CartesianProductExec
import org.apache.spark.sql.types.{LongType, StringType, StructType, VariantType}

/**
 * Late materialization of VARIANT columns that a command copies from the files it rewrites: its rows have the file and the row
 * index of a Variant, and tasks read the column there (delta_variant/writer/late.py). Spark's scan, which rebuilds Variants
 * row by row, has only the columns that the command uses.
 *
 * @param execution of the plan whose output has a `RowType` in place of each of these columns
 * @param columns the indexes of the columns in the plan's output
 */
final class LateVariants(val execution: QueryExecution, val columns: Seq[Int])

object LateVariants {

  /** The value of a late column in a row: the place of its Variant or, if `file` is null, the Variant itself. */
  val RowType: StructType = new StructType().add("file", StringType).add("row", LongType).add("variant", VariantType)

  private val PlaceType = StructType(RowType.take(2))
  private val MetadataFields = Seq(FileFormat.FILE_PATH, ParquetFileFormat.ROW_INDEX)

  /** The setting for the smallest size of a statement's files for which columns come late. */
  private val LeastBytes = "spark.delta_variant.lateMaterializationBytes"

  /**
   * A VARIANT column in two parts. A row has at most one of them.
   *
   * @param column the name of the column of the scan whose Variants the places have
   */
  private final case class Parts(column: String, place: Option[Expression], variant: Option[Expression])

  /**
   * The plan with the late columns, if it has some.
   *
   * Tasks read a file from its beginning to its end. If rows are shuffled between the scan and the write, each task would read
   * every file.
   *
   * @param metadata those that the new files follow: DROP FEATURE columnMapping gives columns other names in files
   * @param isFree whether nothing but the task needs a column of the output, by its index
   */
  def of(execution: QueryExecution, log: DeltaLog, metadata: Metadata, isFree: Int => Boolean): Option[LateVariants] =
    if (Pairs.isOfStream(execution)) None
    else {
      val session = execution.sparkSession.asInstanceOf[SparkSession]
      val (below, parts) = rewritten(
        execution.analyzed, scan => if (isRewritten(scan, log, session)) copied(scan, metadata) else Nil)
      val output = execution.analyzed.output
      val columns = output.indices.filter { index =>
        parts.get(output(index).exprId).exists(_.column.equalsIgnoreCase(output(index).name)) && isFree(index)
      }
      if (columns.isEmpty) None
      else {
        val list = output.zipWithIndex.map {
          case (column, index) if columns.contains(index) => Alias(rejoined(parts(column.exprId)), column.name)()
          case (column, _) => column
        }
        val late = session.sessionState.executePlan(Project(list, below))
        Option.when(!isShuffled(late.executedPlan))(new LateVariants(late, columns))
      }
    }

  private def leastBytes(session: SparkSession): Long =
    JavaUtils.byteStringAsBytes(session.conf.get(LeastBytes, "1m"))

  private def rejoined(parts: Parts): Expression = {
    val fields =
      PlaceType.indices.map(GetStructField(parts.place.get, _)) :+ parts.variant.getOrElse(Literal(null, VariantType))
    struct(RowType.names.toSeq.zip(fields))
  }

  private def isShuffled(plan: SparkPlan): Boolean = plan match {
    case adaptive: AdaptiveSparkPlanExec => isShuffled(adaptive.initialPlan)
    case broadcast: BroadcastExchangeLike => broadcast.exists(hasPlaces)
    case _: ShuffleExchangeLike | _: CartesianProductExec => true
    case other => other.children.exists(isShuffled)
  }

  private def hasPlaces(plan: SparkPlan): Boolean = plan match {
    case scan: FileSourceScanExec => scan.requiredSchema.fieldNames.contains(ParquetFileFormat.ROW_INDEX_TEMPORARY_COLUMN_NAME)
    case _ => false
  }

  private type Rewritten = (LogicalPlan, Map[ExprId, Parts])

  /**
   * The plan with more columns in its output, and the parts of those VARIANT columns of its output that may come late. At any
   * other node than those here, no column comes late: the node may use the column, or divide the rows anew.
   */
  private def rewritten(plan: LogicalPlan, copied: LogicalRelation => Seq[Attribute]): Rewritten = {
    def over(child: LogicalPlan)(made: Rewritten => Rewritten): Rewritten = {
      val below = rewritten(child, copied)
      if (below._2.isEmpty) (plan, Map.empty) else made(below)
    }
    plan match {
      case scan: LogicalRelation =>
        val columns = copied(scan)
        val placed = for {
          all <- Option.when(columns.nonEmpty)(withRowIndex(scan).withMetadataColumns())
          place <- placeIn(all)
        } yield (all, place)
        placed.fold[Rewritten]((plan, Map.empty)) { case (all, place) =>
          val (added, parts) = named(Parts("", Some(place), None))
          (Project(all.output ++ added, all), columns.map(column => column.exprId -> parts.copy(column = column.name)).toMap)
        }
      case Project(list, child) =>
        over(child) { case (below, inside) =>
          val made = list.filter(_.dataType == VariantType).map { column =>
            column.exprId -> partsOf(column, inside)
          }.collect { case (id, parts) if parts.place.isDefined => id -> named(parts) }
          (Project(list ++ made.flatMap(_._2._1), below), made.map { case (id, (_, parts)) => id -> parts }.toMap)
        }
      case filter: Filter => over(filter.child) { case (below, inside) => (filter.copy(child = below), inside) }
      case alias: SubqueryAlias => over(alias.child) { case (below, inside) => (alias.copy(child = below), inside) }
      case coalesce @ Repartition(_, false, child) =>
        over(child) { case (below, inside) => (coalesce.copy(child = below), inside) }
      case join: Join if join.joinType != FullOuter => // whose rows are shuffled
        val (left, ofLeft) = rewritten(join.left, copied)
        val (right, ofRight) = rewritten(join.right, copied)
        (join.copy(left = left, right = right), ofLeft ++ ofRight)
      case other => (other, Map.empty)
    }
  }

  /** The place of a row, if the metadata of the scan have it. */
  private def placeIn(scan: LogicalRelation): Option[Expression] =
    scan.output.collectFirst { case FileSourceMetadataAttribute(column) => column }.flatMap { metadata =>
      val names = metadata.dataType.asInstanceOf[StructType].fieldNames
      Option.when(MetadataFields.forall(names.contains(_))) {
        struct(PlaceType.names.toSeq.zip(MetadataFields.map(name => GetStructField(metadata, names.indexOf(name)))))
      }
    }

  /** Columns for the parts, which may be null above an outer join. */
  private def named(parts: Parts): (Seq[NamedExpression], Parts) = {
    def attribute(column: NamedExpression) = column.toAttribute.withNullability(true)
    val place = parts.place.map(Alias(_, "place")())
    val variant = parts.variant.map(Alias(_, "variant")())
    ((place ++ variant).toSeq, Parts(parts.column, place.map(attribute), variant.map(attribute)))
  }

  /** The parts of an expression that passes on what it is made of. */
  private def partsOf(expression: Expression, inside: Map[ExprId, Parts]): Parts = expression match {
    case column: Attribute if inside.contains(column.exprId) => inside(column.exprId)
    case Alias(made, _) => partsOf(made, inside)
    case Literal(null, _) => Parts("", None, None)
    case If(condition, yes, no) if isRepeatable(condition) =>
      combined(Seq(yes, no), inside)(values => If(condition, values.head, values.last))
    case CaseWhen(branches, otherwise) if branches.forall(branch => isRepeatable(branch._1)) =>
      val conditions = branches.map(_._1)
      combined(branches.map(_._2) ++ otherwise, inside) { values =>
        CaseWhen(conditions.zip(values), if (otherwise.isEmpty) None else Some(values.last))
      }
    case other => Parts("", None, Some(other))
  }

  /**
   * The parts of a choice between values. There are no places if they would be those of several columns, or if a value is
   * computed from a column that may come late, since the scan has to read that column anyway.
   */
  private def combined(values: Seq[Expression], inside: Map[ExprId, Parts])(choice: Seq[Expression] => Expression): Parts = {
    val parts = values.map(partsOf(_, inside))
    def part(of: Parts => Option[Expression], absent: Expression): Option[Expression] =
      Option.when(parts.exists(of(_).isDefined))(choice(parts.map(of(_).getOrElse(absent))))
    val columns = parts.filter(_.place.isDefined).map(_.column).distinct
    if (columns.size != 1 || parts.flatMap(_.variant).exists(_.references.exists(column => inside.contains(column.exprId))))
      Parts("", None, Some(choice(values)))
    else Parts(columns.head, part(_.place, Literal(null, PlaceType)), part(_.variant, Literal(null, VariantType)))
  }

  /** Whether an expression may be evaluated twice for a row: it gives the same, and counts nothing. */
  private def isRepeatable(expression: Expression): Boolean =
    expression.deterministic && !expression.exists(Pairs.counter(_).isDefined)

  /**
   * The scan with the index of rows among its metadata, which Delta's file format has for tables with deletion vectors or row
   * ids. Nothing else of the format looks at this feature: deletion vectors are those of the file index.
   */
  private def withRowIndex(scan: LogicalRelation): LogicalRelation = {
    val source = Relations.source(scan)
    source.fileFormat match {
      case format: DeltaParquetFileFormat if !format.metadataSchemaFields.contains(ParquetFileFormat.ROW_INDEX_FIELD) =>
        val other = format.copy(protocol = format.protocol.merge(Protocol.forTableFeature(DeletionVectorsTableFeature)))
        scan.copy(relation = source.copy(fileFormat = other)(source.sparkSession))
      case _ => scan
    }
  }

  /** Whether a scan reads files of the table that is written, and tasks may read them. */
  private def isRewritten(scan: LogicalRelation, log: DeltaLog, session: SparkSession): Boolean = scan.relation match {
    case HadoopFsRelation(files: TahoeBatchFileIndex, _, _, _, _, _) =>
      files.path == log.dataPath && areRead(files.addFiles, session)
    case _ => false
  }

  /** The VARIANT columns of a scan that its files have under the names and ids of the new files. */
  private def copied(scan: LogicalRelation, metadata: Metadata): Seq[Attribute] = Relations.source(scan).fileFormat match {
    case format: DeltaParquetFileFormat if format.metadata.columnMappingMode == metadata.columnMappingMode =>
      def inFiles(of: Metadata, name: String) = of.schema.find(_.name.equalsIgnoreCase(name)).map { field =>
        val id = Option.when(DeltaColumnMapping.hasColumnId(field))(DeltaColumnMapping.getColumnId(field))
        (DeltaColumnMapping.getPhysicalName(field), id)
      }
      scan.output.filter { column =>
        column.dataType == VariantType && inFiles(format.metadata, column.name) == inFiles(metadata, column.name)
      }
    case _ => Nil
  }

  /** Whether tasks may read files of a table: all are in its own directory, and they are enough. */
  def areRead(files: Seq[AddFile], session: SparkSession): Boolean =
    PlannedFiles.bytes(files) >= leastBytes(session) &&
      files.forall(file => !file.pathAsUri.isAbsolute && !file.path.startsWith("/"))

  private def struct(fields: Seq[(String, Expression)]): Expression =
    CreateNamedStruct(fields.flatMap { case (name, field) => Seq(Literal(name), field) })
}
