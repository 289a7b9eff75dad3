package org.apache.spark.sql.delta.variant

import scala.annotation.tailrec
import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.objects.NewInstance
import org.apache.spark.sql.catalyst.expressions.variant.VariantGet
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.delta.{DeltaParquetFileFormat, NoMapping}
import org.apache.spark.sql.delta.actions.AddFile
import org.apache.spark.sql.execution.datasources.{LogicalRelation, PushVariantIntoScan}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.VariantVal

/**
 * The plan that reads paths of one scan from typed columns.
 *
 * The chain above the scan is repeated for each group of files, and once more for the files of Spark's scan, in a union. Where
 * the chain explodes a Variant, it explodes a typed column of arrays. Every use of a Variant above the chain becomes a column of
 * that union: in the type asked for, if its cast cannot fail or is made for every row anyway; otherwise as VARIANT, or, if all
 * files are in one group and the path has no residuals, as the typed column itself, and the cast stays where it was.
 *
 * @param steps of each path
 */
final class TypedPlan(
    uses: Uses,
    files: PlannedFiles,
    steps: Map[PathOf, Seq[Messages.Step]],
    groups: Seq[TypedPlan.FileGroup]) {
  import TypedPlan._

  private val alone: Option[TypedFiles] = groups match { // all files have the paths in columns of the same types
    case Seq(group: TypedFiles) => Some(group)
    case _ => None
  }
  private val leaving = mutable.LinkedHashMap.empty[Any, Alias] // by a Use or a PathOf: what leaves the chain
  private val exports = mutable.Map.empty[Use, Expression] // of the uses above the chain, over such an Alias

  /** The plan, and the relations in it, in the order of the groups. */
  def plan: (LogicalPlan, Seq[LogicalRelation]) = {
    uses.carried.filter(column => uses.refOf(column).exists(_.isVariant)).foreach(addExports)
    val branches = groups.zipWithIndex.map { case (group, number) => branch(group, isRenamed = number > 0) }
    val union = if (branches.size == 1) branches.head else Union(branches, byName = false, allowMissingCol = false)
    val whole = uses.nodes.zipWithIndex.drop(uses.chain).foldLeft(union) { case (below, (Uses.Node(node, child), number)) =>
      over(if (number < uses.last && uses.carried.nonEmpty) exporting(node) else node, child, below)
    }
    check(whole, uses.nodes.lastOption.fold[LogicalPlan](uses.scan)(_.plan))
    (whole, branches.map(Relations.scanIn))
  }

  private def over(node: LogicalPlan, child: Int, plan: LogicalPlan): LogicalPlan = node match {
    case generate: Generate => requiring(generate, plan).withNewChildren(Seq(plan))
    case other => Relations.withChild(other, child, plan)
  }

  /** Generate lists the columns that it drops by number. It drops the columns in place of Variants if it drops all Variants. */
  private def requiring(node: Generate, plan: LogicalPlan): Generate = {
    val (dropped, kept) = node.child.output.zipWithIndex.partition { case (_, number) =>
      node.unrequiredChildIndex.contains(number)
    }
    val keepsVariants = kept.exists { case (column, _) => uses.refOf(column).isDefined }
    val ids = dropped.map(_._1.exprId).toSet ++ (if (keepsVariants) Nil else leaving.values.map(_.exprId))
    node.copy(unrequiredChildIndex = plan.output.indices.filter(number => ids(plan.output(number).exprId)))
  }

  // ---- above the chain ----------------------------------------------------------------------------------------------

  /** Adds what leaves the chain in place of a Variant, for the uses above the chain. */
  private def addExports(column: Attribute): Unit =
    for (use <- uses.all if uses.isAbove(use) && uses.refOf(column).contains(use.variant)) {
      val only = alone.filter(group => use.pathOf.forall(path => group.residuals(path).isEmpty && !group.isObject(path)))
      exports.getOrElseUpdate(use,
        (use.pathOf, only) match {
          // The column is NULL in the rows that an outer join adds.
          case (None, _) => EqualNullSafe(exported(use, IsNotNull(column), "present"), Literal.TrueLiteral)
          // A column, not a constant: Spark makes no join key of a comparison with a constant.
          case (Some(path), Some(group)) if group.dataType(path) == NullType =>
            exported(use, Literal(null, use.dataType), path.path)
          case (Some(path), Some(group)) =>
            answer(exported(path, leaf(retyped(column, group), path, group), path.path), use, group.cast(use))
          case (Some(path), None) if !use.fails => exported(use, get(column, path.path, use), path.path)
          // The cast is made above the chain's filters. Spark's scan would make it below them.
          case (Some(path), None) if uses.isOfEveryRow(use) => exported(use, get(asVariant(column, use), "$", use), path.path)
          case (Some(path), None) => get(exported(path, asVariant(column, use), path.path), "$", use)
        })
    }

  private def exported(key: Any, value: => Expression, name: String): Attribute =
    leaving.getOrElseUpdate(key, Alias(value, name)()).toAttribute

  /** A node above the chain, with the exported columns in place of Variants. */
  private def exporting(node: LogicalPlan): LogicalPlan = {
    val fresh = node match {
      case Project(list, child) =>
        val isVariant = list.map(column => uses.refOf(withoutAlias(column)).isDefined)
        Project(passing(list, isVariant).map(_.asInstanceOf[NamedExpression]), child)
      case expand: Expand => // ROLLUP and the like
        val isVariant = expand.output.indices.map(uses.carries(expand, _))
        val output = passing(expand.output, isVariant).map(_.asInstanceOf[Attribute])
        Expand(expand.projections.map(passing(_, isVariant)), output, expand.child)
      case other => other
    }
    fresh.transformExpressions(Function.unlift { expression =>
      uses.use(expression).map(exports(_)).map(value => if (expression.isInstanceOf[IsNull]) Not(value) else value)
    })
  }

  /** Columns with the exported ones in place of Variants. */
  private def passing(columns: Seq[Expression], isVariant: Seq[Boolean]): Seq[Expression] = {
    val others = columns.zip(isVariant).collect { case (column, false) => column }
    if (others.size == columns.size) others else others ++ leaving.values.map(_.toAttribute)
  }

  // ---- one group ----------------------------------------------------------------------------------------------------

  private def branch(group: FileGroup, isRenamed: Boolean): LogicalPlan = {
    val chain = uses.nodes.take(uses.chain).foldLeft[LogicalPlan](relation(group)) { (plan, node) =>
      (group, node.plan) match {
        case (typed: TypedFiles, generate @ uses.Exploded(array, variant)) => explode(generate, array, variant, typed, plan)
        case (typed: TypedFiles, other) => over(other.transformExpressions(onTyped(typed)), 0, plan)
        case (_: SparkFiles, other) => over(other.transformExpressions(late), 0, plan)
      }
    }
    val top =
      if (uses.carried.isEmpty) chain
      else {
        val columns = Project(chain.output.filter(uses.refOf(_).isEmpty) ++ leaving.values, chain)
        group match {
          case typed: TypedFiles => columns.transformExpressions(onTyped(typed))
          case _: SparkFiles => columns
        }
      }
    val plan = if (isRenamed) renamed(top) else top
    group match {
      case _: TypedFiles => plan
      case _: SparkFiles => PushVariantIntoScan(plan)
    }
  }

  /** The node that explodes an array, over its typed column. The elements are structs with their typed columns. */
  private def explode(node: Generate, array: PathOf, variant: Expression, group: TypedFiles, plan: LogicalPlan): LogicalPlan = {
    val (position, key, value) = Uses.columns(node)
    val element = retyped(value, group).asInstanceOf[Attribute].withNullability(true)
    val outer = retyped(variant, group)
    val elements = group.dataType(array) match {
      case _: ArrayType => withMetadata(typedColumn(outer, array), element.dataType.asInstanceOf[StructType], outer)
      case _ => Literal(null, ArrayType(element.dataType)) // no row has an array there
    }
    val typed = requiring(node, plan)
      .copy(generator = PosExplode(elements), qualifier = None, generatorOutput = Seq(position, element), child = plan)
    val noKey = Alias(Literal(null, key.dataType), key.name)(key.exprId, key.qualifier)
    val added = typed.qualifiedGeneratorOutput // nullable in an outer join
    Project(typed.requiredChildOutput ++ Seq(added.head, noKey, added.last), typed)
  }

  /** The elements of an array as structs of that type, in which the `metadata` of their Variant may be. */
  private def withMetadata(array: Expression, element: StructType, variant: Expression): Expression =
    if (!element.exists(_.name == Metadata)) array
    else {
      val columns = element.map {
        case StructField(Metadata, _, _, _) => ArrayRepeat(LogStatistics.field(variant, Metadata), Size(array))
        case field => fieldOfElements(array, field.name)
      }
      ArraysZip(columns, element.map(field => Literal(field.name)))
    }

  /** Casts that stay above the filters of the chain: PushVariantIntoScan would move them below. */
  private def late: PartialFunction[Expression, Expression] = {
    case expression if uses.isAboveScan(expression) =>
      val use = uses.use(expression).get
      get(asVariant(use.child, use), "$", use)
  }

  /** The same plan with expression ids of its own. */
  private def renamed(plan: LogicalPlan): LogicalPlan = {
    val ids = mutable.Map.empty[ExprId, ExprId]
    def fresh(id: ExprId) = ids.getOrElseUpdate(id, NamedExpression.newExprId)
    def of(plan: LogicalPlan): LogicalPlan = plan match {
      case relation: LogicalRelation =>
        relation.copy(output = relation.output.map(column => column.withExprId(fresh(column.exprId))))
      case other =>
        val node = other.transformExpressions {
          case column: AttributeReference => column.withExprId(fresh(column.exprId))
          case alias: Alias =>
            alias.copy()(fresh(alias.exprId), alias.qualifier, alias.explicitMetadata, alias.nonInheritableMetadataKeys)
        }
        Relations.withChild(node, 0, of(other.children.head)) // with its columns in their order
    }
    of(plan)
  }

  // ---- expressions on typed columns ---------------------------------------------------------------------------------

  private def onTyped(group: TypedFiles): PartialFunction[Expression, Expression] = Function.unlift {
    case column: AttributeReference => uses.refOf(column).map(_ => retyped(column, group))
    case expression =>
      uses.use(expression) match {
        case None => compared(expression, group)
        case Some(Use(_, None, _, _, _)) => Some(expression) // whether the struct in place of the VARIANT is NULL
        case Some(use) => Some(value(retyped(use.child, group), use, use.pathOf.get, group))
      }
  }

  /**
   * A comparison of integers with constants, made on the column itself, so that Spark can push it down to Parquet: the cast
   * between the two types changes no value. None if the expression is not such a comparison.
   */
  private def compared(expression: Expression, group: TypedFiles): Option[Expression] = expression match {
    case _: BinaryComparison | _: In =>
      val sides = expression.children.filterNot(_.isInstanceOf[Literal]).map(uses.use)
      for {
        use <- Some(sides).collect { case Seq(Some(use)) => use }
        path <- use.pathOf
        if use.dataType.isInstanceOf[IntegralType] && group.cast(use) == Safe && group.residuals(path).isEmpty
        column = leaf(retyped(use.child, group), path, group)
        values = expression.children.map {
          case literal: Literal => constant(literal, use.dataType, column.dataType)
          case _ => Some(column)
        }
        if values.forall(_.isDefined)
      } yield expression.withNewChildren(values.flatten.toIndexedSeq)
    case _ => None
  }

  private def retyped(expression: Expression, group: TypedFiles): Expression = expression.transform {
    case column: AttributeReference if uses.refOf(column).isDefined =>
      column.withDataType(dataType(uses.refOf(column).get, group))
  }

  /** The value of a path, in the struct in place of its Variant: from the typed column, or else from a residual. */
  private def value(variant: Expression, use: Use, path: PathOf, group: TypedFiles): Expression = {
    val residuals = group.residuals(path).map(_ - path.variant.keys(steps).size)

    // From the struct to which `length` steps lead.
    def from(outer: Expression, length: Int): Expression = {
      val rest = steps(path).drop(length)
      lazy val column = LogStatistics.field(outer, Typed)
      def below =
        if (residuals.exists(_ > length)) from(inside(column, rest.head), length + 1)
        else if (group.isObject(path)) structOf(variant, use, path, group)
        else answer(leaf(variant, path, group), use, group.cast(use))
      def residual = {
        val bytes = Seq(outer -> Value, variant -> Metadata).map { case (struct, name) => LogStatistics.field(struct, name) }
        get(NewInstance(classOf[VariantVal], bytes, VariantType), pathText(rest), use)
      }
      if (!residuals.contains(length)) below
      else if (group.dataType(path) == NullType) residual
      else If(IsNotNull(column), below, residual)
    }

    from(variant, 0)
  }

  /** The struct that is asked for where a path has an object. */
  private def structOf(variant: Expression, use: Use, path: PathOf, group: TypedFiles): Expression = {
    val fields = use.fields.flatMap { case (name, field) =>
      Seq(Literal(name), value(variant, field, field.pathOf.get, group))
    }
    If(IsNotNull(typedColumn(variant, path)), CreateNamedStruct(fields), Literal(null, use.dataType))
  }

  /** The typed column of a path, or its elements in it, in the struct in place of its Variant. */
  private def leaf(variant: Expression, path: PathOf, group: TypedFiles): Expression =
    if (group.dataType(path) == NullType) Literal(null, NullType)
    else {
      val leaf = elements(typedColumn(variant, path))
      leaf.dataType match {
        // Spark's Parquet filters fail if a constant has more bytes than the file's decimals. A Coalesce gets no such filter.
        case decimal: DecimalType if decimal.precision > Decimal.MAX_LONG_DIGITS => Coalesce(Seq(leaf))
        case _ => leaf
      }
    }

  private def typedColumn(variant: Expression, path: PathOf): Expression =
    steps(path).foldLeft(LogStatistics.field(variant, Typed)) { (column, step) =>
      LogStatistics.field(inside(column, step), Typed)
    }

  // ---- the relation -------------------------------------------------------------------------------------------------

  /** The type of a column or field in the files of a group: in place of a VARIANT, a struct of the typed columns that are used. */
  private def dataType(ref: FieldRef, group: TypedFiles): DataType = ref.dataType match {
    case VariantType =>
      val place = ref.keys(steps)
      val leaves =
        leavesOf(ref.root, group).collect { case (keys, leaf) if keys.startsWith(place) => keys.drop(place.size) -> leaf }
      val columns = nested(leaves)
      val hasResiduals = uses.paths.exists(path => path.variant.isIn(ref) && group.residuals(path).nonEmpty)
      // `metadata` is NULL where the Variant is.
      if (leaves.isEmpty || hasResiduals) columns.add(Metadata, BinaryType) else columns
    case struct: StructType =>
      StructType(struct.fields.zipWithIndex.map { case (field, number) =>
        field.copy(dataType = dataType(ref.field(number), group))
      })
    case other => other
  }

  /**
   * The leaves of a VARIANT of the scan. A leaf of type NULL is a `value`: a residual, or, if no other leaf does it, the one by
   * which the elements of an array are counted.
   */
  private def leavesOf(root: FieldRef, group: TypedFiles): Seq[(Seq[Option[String]], DataType)] = {
    val paths = uses.paths.filter(_.variant.root == root)
    val columns = paths.filterNot(path => group.isObject(path) || group.dataType(path) == NullType).map { path =>
      leafOf(path.keys(steps), group.dataType(path))
    }.distinct
    val needed = columns.filterNot { case (keys, leaf) =>
      leaf == NullType && columns.exists { case (others, other) => others.startsWith(keys) && (others, other) != (keys, leaf) }
    }
    val residuals = for (path <- paths; length <- group.residuals(path))
      yield path.keys(steps).take(length) -> NullType
    (needed ++ residuals).distinct
  }

  private def relation(group: FileGroup): LogicalRelation = group match {
    case SparkFiles(some) => Relations.over(uses.scan, files.narrowed(some))
    case typed: TypedFiles =>
      val source = Relations.source(uses.scan)
      val output = uses.scan.output.map(column => retyped(column, typed).asInstanceOf[AttributeReference])
      val types = output.map(column => column.name -> column.dataType).toMap
      val read = source.copy(
        location = files.narrowed(typed.files, typed.share(output.map(_.dataType.defaultSize).sum)),
        dataSchema = withTypes(source.dataSchema)(field => types.getOrElse(field.name, field.dataType)),
        fileFormat = mapped(source.fileFormat.asInstanceOf[DeltaParquetFileFormat], types),
        options = source.options.updated(IgnoreAnnotation, "true"))(source.sparkSession)
      uses.scan.copy(relation = read, output = output)
  }
}

object TypedPlan {
  private val IgnoreAnnotation = "spark.sql.parquet.ignoreVariantAnnotation"
  private val Mapping = "delta.columnMapping."
  private val RowBytes = 8 // that Spark's estimates add to the columns of a row
  private val Typed = "typed_value" // VariantShredding, "Value Shredding"
  private val Metadata = "metadata"
  private val Value = "value"
  private val AsIs = "as is" // these are casts of delta_variant/queries/casts
  private val Safe = "safe"
  private val Checked = "checked"
  private val ByVariant = "by variant"

  /** Files of one branch of the plan. */
  sealed trait FileGroup {
    def files: Seq[AddFile]
  }

  /** Files that Spark's scan reads. */
  final case class SparkFiles(files: Seq[AddFile]) extends FileGroup

  /**
   * Files that have the paths in columns of the same types.
   *
   * @param residuals of each path, the `value` columns that hold values of it (Footers.PathColumns)
   * @param width bytes that Spark's estimates assume for a row in the Variants of a file; 0 if that is not known
   */
  final case class TypedFiles(
      files: Seq[AddFile],
      width: Int,
      dataType: Map[PathOf, DataType],
      residuals: Map[PathOf, Seq[Int]],
      casts: Map[Use, String])
      extends FileGroup {

    /** Whether each field of the path has a path of its own. */
    def isObject(path: PathOf): Boolean = dataType(path).isInstanceOf[StructType]

    def cast(use: Use): String = casts.getOrElse(use, ByVariant) // a value that leaves the chain as VARIANT

    /** The share of its files' bytes that a relation reads, as Spark would estimate it for a projection of ordinary columns. */
    def share(bytes: Int): Double =
      (RowBytes + bytes) / (RowBytes + bytes + math.max(width - dataType.values.map(_.defaultSize).sum, 0)).toDouble
  }

  /** Throws an exception if a plan does not give the columns of the plan before it. */
  def check(plan: LogicalPlan, before: LogicalPlan): Unit = {
    def columns(plan: LogicalPlan) = plan.output.map(column => s"$column ${column.dataType.asNullable.sql}")
    if (!plan.resolved) throw new IllegalStateException(s"the plan is not resolved: $plan")
    if (columns(plan) != columns(before))
      throw new IllegalStateException(s"the columns ${columns(before)} became ${columns(plan)}")
  }

  private def withoutAlias(column: Expression): Expression = column match {
    case alias: Alias => alias.child
    case other => other
  }

  private def get(variant: Expression, path: String, use: Use): Expression =
    VariantGet(variant, Literal(path), use.dataType, use.fails, use.zone)

  private def asVariant(variant: Expression, use: Use): Expression =
    VariantGet(variant, Literal(use.path.get), VariantType, failOnError = false, use.zone)

  /** An expression on a typed column that gives what Spark's cast from VARIANT gives (delta_variant/queries/casts). */
  private def answer(column: Expression, use: Use, how: String): Expression =
    if (column.dataType == NullType) Literal(null, use.dataType)
    else if (how == AsIs && column.dataType == use.dataType) column // one of arrays may be asked for without NULL elements
    else {
      val isCastable = Cast.canAnsiCast(column.dataType, use.dataType)
      val areIntegers = column.dataType.isInstanceOf[IntegralType] && use.dataType.isInstanceOf[IntegralType]
      // If all integers fit into the type, Spark's fastest cast gives the same.
      val mode = if (how == Safe && areIntegers) EvalMode.LEGACY else EvalMode.TRY
      def value = Cast(column, use.dataType, use.zone, mode)
      def exact = {
        val variant = Cast(column, VariantType, use.zone, EvalMode.ANSI)
        if (use.dataType == VariantType) variant else get(variant, "$", use)
      }
      how match {
        case Safe | Checked if !isCastable => exact
        case Safe => value
        case Checked => if (use.fails) Coalesce(Seq(value, exact)) else value
        case _ => exact
      }
    }

  /** The same integer in another type; None if the literal is not of the type `from`, or the other type cannot hold it. */
  private def constant(literal: Literal, from: DataType, to: DataType): Option[Literal] = literal match {
    case Literal(value: Number, `from`) => LeafTypes.integer(value.longValue, to).map(Literal(_, to))
    case _ => None
  }

  /** The field or the element of a typed column to which a step leads. */
  private def inside(column: Expression, step: Messages.Step): Expression = step match {
    case Messages.Step(Some(key), _) => LogStatistics.field(column, key)
    case Messages.Step(_, index) => GetArrayItem(column, Literal(index.get), failOnError = false)
  }

  /** The values of a typed column of arrays, each of whose elements is a struct with a typed column. Others stay as they are. */
  private def elements(column: Expression): Expression = column.dataType match {
    case ArrayType(struct: StructType, _) =>
      val values = fieldOfElements(column, Typed)
      struct(Typed).dataType match {
        case inner: ArrayType =>
          val element = NamedLambdaVariable("element", inner, nullable = true)
          ArrayTransform(values, LambdaFunction(elements(element), Seq(element)))
        case _ => values
      }
    case _ => column
  }

  private def fieldOfElements(array: Expression, name: String): Expression = {
    val struct = array.dataType.asInstanceOf[ArrayType].elementType.asInstanceOf[StructType]
    GetArrayStructFields(array, struct(name), struct.fieldIndex(name), struct.size, containsNull = true)
  }

  /** The steps to a leaf of Parquet: those to a column, and for an array one to its elements. An element has no key. */
  @tailrec
  private def leafOf(steps: Seq[Option[String]], column: DataType): (Seq[Option[String]], DataType) = column match {
    case ArrayType(element, _) => leafOf(steps :+ None, element)
    case leaf => steps -> leaf
  }

  /** The struct of a Variant in which these steps lead to typed columns, or, for a leaf of type NULL, to the column `value`. */
  private def nested(leaves: Seq[(Seq[Option[String]], DataType)]): StructType = {
    def after(step: Option[String]) = nested(leaves.collect { case (`step` +: steps, leaf) => steps -> leaf })
    val (values, columns) = leaves.partition(_ == Nil -> NullType)
    val typed = columns.map(_._1.headOption).distinct match {
      case Seq() => None
      case Seq(None) if columns.size == 1 => Some(columns.head._2)
      case Seq(Some(None)) => Some(ArrayType(after(None)))
      case firsts if firsts.forall(_.exists(_.isDefined)) =>
        Some(StructType(firsts.flatten.flatten.map(key => StructField(key, after(Some(key))))))
      case _ => throw new IllegalStateException(s"a path has columns of several kinds: $leaves")
    }
    StructType(values.map(_ => StructField(Value, BinaryType)) ++ typed.map(StructField(Typed, _)))
  }

  /** The steps as `variant_get` reads them. */
  private def pathText(steps: Seq[Messages.Step]): String = steps.map {
    case Messages.Step(Some(key), _) => Uses.keyText(key).get
    case Messages.Step(_, index) => s"[${index.get}]"
  }.mkString("$", "", "")

  private def withTypes(schema: StructType)(dataType: StructField => DataType): StructType =
    StructType(schema.fields.map(field => field.copy(dataType = dataType(field))))

  /** Column mapping looks each field up in the table's schema. There, typed columns get the names that they have in files. */
  private def mapped(format: DeltaParquetFileFormat, types: Map[String, DataType]): DeltaParquetFileFormat =
    if (format.columnMappingMode == NoMapping) format
    else {
      val schema =
        withTypes(format.referenceSchema)(field => types.get(field.name).fold(field.dataType)(mappedType(_, field.dataType)))
      // Field ids end at the VARIANT. Files of this package have the physical names too, in both modes.
      val settings = format.metadata.configuration.updated(s"${Mapping}mode", "name")
      format.copy(metadata = format.metadata.copy(schemaString = schema.json, configuration = settings))
    }

  /** The type that the table has, with what is read in place of Variants. */
  private def mappedType(read: DataType, table: DataType): DataType = (read, table) match {
    case (typed: StructType, VariantType) => named(typed)
    case (read: StructType, table: StructType) =>
      withTypes(table)(field =>
        read.find(_.name == field.name).fold(field.dataType)(found => mappedType(found.dataType, field.dataType)))
    case _ => table
  }

  private def named(struct: StructType): StructType = StructType(struct.fields.map { field =>
    val dataType = field.dataType match {
      case inner: StructType => named(inner)
      case ArrayType(inner: StructType, containsNull) => ArrayType(named(inner), containsNull)
      case other => other
    }
    val names = new MetadataBuilder().putLong(s"${Mapping}id", 0).putString(s"${Mapping}physicalName", field.name).build()
    StructField(field.name, dataType, nullable = true, names)
  })
}
