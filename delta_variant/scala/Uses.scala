package org.apache.spark.sql.delta.variant

import java.util.IdentityHashMap

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression
import org.apache.spark.sql.catalyst.expressions.variant.{VariantExplode, VariantGet}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.util.QuotingUtils
import org.apache.spark.sql.execution.datasources.{LogicalRelation, VariantMetadata}
import org.apache.spark.sql.types._

/**
 * The uses of one scan's VARIANTs in a plan.
 *
 * Only nodes between the scan and the root can use them. `nodes` reverses what PushVariantIntoScan did, so that each use of a
 * path is a VariantGet again, on a column or on a field of a struct. The projections and filters directly above the scan are
 * its chain, and so are the nodes that explode arrays; a Variant that leaves the chain is followed further up.
 */
final class Uses(root: LogicalPlan, relation: LogicalRelation) {
  import Uses._

  private val unpush = new Unpush(relation)
  private val refs = mutable.Map.empty[ExprId, FieldRef]
  private val found = mutable.LinkedHashMap.empty[Use, Seen]
  private val numbers = mutable.LinkedHashMap.empty[PathOf, Int]
  private var reason: Option[String] = None

  /** The scan as it was before PushVariantIntoScan. */
  val scan: LogicalRelation = unpush.scan

  /** From the node above the scan up to the root. */
  val nodes: IndexedSeq[Node] = above(root, relation).fold(Vector.empty[Node])(_._2)

  /** How many of the nodes are the chain: the first ones. */
  val chain: Int = nodes.segmentLength(node => isChain(node.plan))

  for (case column: AttributeReference <- scan.output if Columns.hasVariant(column.dataType))
    refs(column.exprId) = FieldRef(column.exprId, Nil)(column, column.dataType, elementOf = None)

  /** How many of the nodes see the Variants. This visits them, which fills the maps above. */
  val last: Int = {
    val sight = nodes.zipWithIndex.iterator.map { case (Node(plan, _), number) =>
      visit(plan, above = number >= chain, first = number == chain) && carriers(plan.output).nonEmpty
    }
    val seeing = sight.takeWhile(identity).size
    if (seeing == nodes.size) visitAll(nodes.lastOption.fold[LogicalPlan](scan)(_.plan).output, above = false, everyRow = false)
    math.min(seeing + 1, nodes.size)
  }

  /** All uses, and those that have a path, with those of the fields of structs. */
  val all: Seq[Use] = found.keys.toSeq
  val ofPaths: Seq[Use] = all.filter(_.path.isDefined).flatMap(_.withFields).distinct

  /** The paths, in the order of their numbers. */
  val paths: IndexedSeq[PathOf] = numbers.keys.toIndexedSeq

  def number(path: PathOf): Int = numbers(path)

  /** Whether a node above the chain has the use. */
  def isAbove(use: Use): Boolean = found(use).above

  /** Whether the plan computes the value of a use for every row that leaves the chain. */
  def isOfEveryRow(use: Use): Boolean = found(use).everyRow

  /** Why no path can be read from a typed column. */
  def obstacle: Option[String] = reason.orElse(all.collectFirst {
    case use if use.isObject && use.fails && isAbove(use) && !isOfEveryRow(use) =>
      "a struct is asked for above a join or an aggregate"
  })

  /** Whether rows depend on how they are spread over partitions, which a union of scans changes. */
  def dependsOnPartitions: Boolean =
    nodes.exists(node => node.plan.isInstanceOf[Sample] || !Relations.isDeterministic(node.plan))

  /** The columns with VARIANTs that leave the chain, so that the plan above sees them. */
  val carried: Seq[Attribute] =
    if (chain == nodes.size) Nil else carriers(if (chain == 0) scan.output else nodes(chain - 1).plan.output)

  // ---- the nodes ----------------------------------------------------------------------------------------------------

  /**
   * A plan as it was before PushVariantIntoScan, and the nodes from the one above the scan up to it; None if it lacks the scan.
   */
  private def above(plan: LogicalPlan, leaf: LogicalPlan): Option[(LogicalPlan, Vector[Node])] =
    if (plan eq leaf) Some((scan, Vector.empty))
    else {
      plan.children.iterator.zipWithIndex.flatMap { case (child, number) =>
        above(child, leaf).map(number -> _)
      }.nextOption().map {
        case (child, (before, below)) =>
          val node = if (unpush.isNeeded) Relations.withChild(plan.transformExpressions(unpush.rule), child, before) else plan
          (node, below :+ Node(node, child))
      }
    }

  /**
   * Whether a cast that can fail is made above the filters of the chain, though Spark's scan has other uses of the column. This
   * happens in a plan that PushVariantIntoScan has seen twice, such as that of a DataFrame over an optimized plan.
   */
  def isAboveScan(expression: Expression): Boolean =
    unpush.isNeeded && !unpush.made(expression) &&
      use(expression).exists { use =>
        use.path.isDefined && use.fails && use.variant.elementOf.isEmpty && (use.child eq expression.children.head)
      }

  // ---- the uses -----------------------------------------------------------------------------------------------------

  /** The column or field that an expression refers to. */
  def refOf(expression: Expression): Option[FieldRef] = expression match {
    case column: Attribute => refs.get(column.exprId)
    case GetStructField(struct, ordinal, _) => refOf(struct).filterNot(_.isVariant).map(_.field(ordinal))
    case _ => None
  }

  private object Variant {
    def unapply(expression: Expression): Option[FieldRef] = refOf(expression).filter(_.isVariant)
  }

  /** The use that an expression is. */
  def use(expression: Expression): Option[Use] = expression match {
    case IsNotNull(child @ Variant(ref)) => Some(Use(ref, None, BooleanType, fails = false, None)(child))
    case IsNull(child @ Variant(ref)) => Some(Use(ref, None, BooleanType, fails = false, None)(child))
    case get @ VariantGet(child @ Variant(ref), Literal(path, _), _, fails, zone) if path != null =>
      Some(Use(ref, Some(path.toString), get.dataType, fails, zone)(child))
    // TypedPlan gives a use that can fail this form, so that Spark's scan reads the path as VARIANT.
    case get @ VariantGet(inner: VariantGet, path, _, fails, zone) if path.semanticEquals(Literal("$")) =>
      ofVariant(inner, get.dataType, fails, zone)
    case cast: Cast if cast.dataType != VariantType =>
      val fails = cast.evalMode != EvalMode.TRY
      cast.child match {
        case child @ Variant(ref) => Some(Use(ref, Some("$"), cast.dataType, fails, cast.timeZoneId)(child))
        case inner: VariantGet => ofVariant(inner, cast.dataType, fails, cast.timeZoneId)
        case _ => None
      }
    case _ => None
  }

  /** The use that a cast is, if its child is a use that gives a VARIANT. */
  private def ofVariant(inner: Expression, dataType: DataType, fails: Boolean, zone: Option[String]): Option[Use] =
    use(inner).filter(_.dataType == VariantType).map(of => Use(of.variant, of.path, dataType, fails, zone)(of.child))

  /** A node that gives the elements of an array as rows: the array, and the expression of the VARIANT in which it is. */
  object Exploded {
    def unapply(node: Generate): Option[(PathOf, Expression)] = node.generator match {
      case VariantExplode(child @ Variant(ref)) => Some(PathOf(ref, "$", isExploded = true) -> child)
      case VariantExplode(child) =>
        for (use <- use(child) if use.dataType == VariantType; path <- use.path)
          yield PathOf(use.variant, path, isExploded = true) -> use.child
      case _ => None
    }
  }

  /** Adds the uses of a node. Returns whether the nodes above it can see the Variants. */
  private def visit(node: LogicalPlan, above: Boolean, first: Boolean): Boolean = node match {
    case generate @ Exploded(array, _) if !above =>
      val (_, _, element) = columns(generate)
      refs(element.exprId) = FieldRef(element.exprId, Nil)(element, element.dataType, Some(array))
      add(array)
      true
    case Project(list, _) =>
      list.foreach {
        case alias: Alias =>
          refOf(alias.child).filter(ref => Columns.hasVariant(ref.dataType)).fold(visit(alias, above, everyRow = false)) {
            ref =>
              if (above && !alias.child.isInstanceOf[Attribute]) giveUp(inside(ref))
              refs(alias.exprId) = ref
          }
        case column =>
          if (!refOf(column).exists(ref => Columns.hasVariant(ref.dataType))) visit(column, above, everyRow = false)
      }
      true
    case aggregate: Aggregate =>
      visitAll(aggregate.groupingExpressions, above, first)
      visitAll(aggregate.aggregateExpressions, above, everyRow = false)
      if (first) visitFunctions(aggregate.aggregateExpressions)
      false
    case expand: Expand =>
      for (column <- expand.output.indices if !carries(expand, column); projection <- expand.projections)
        visit(projection(column), above, everyRow = false)
      true
    case _ =>
      visitAll(node.expressions, above, everyRow = false)
      val passes = isPassing(node)
      if (!passes) node.children.foreach(child => visitAll(child.output, above = true, everyRow = false))
      passes
  }

  /** Whether a column of an Expand (ROLLUP and the like) is the same VARIANT, or struct with one, in all projections. */
  def carries(node: Expand, column: Int): Boolean = {
    val output = node.output(column)
    refOf(output).isDefined && node.projections.forall(projection => output.semanticEquals(projection(column)))
  }

  private def visitAll(expressions: Seq[Expression], above: Boolean, everyRow: Boolean): Unit =
    expressions.foreach(visit(_, above, everyRow))

  /** Adds the uses that aggregate functions evaluate for every row. Others stop at the first value or have several children. */
  private def visitFunctions(expressions: Seq[Expression]): Unit = expressions.foreach {
    case function: AggregateExpression =>
      val isOfEveryRow = function.filter.isEmpty && EveryRow(function.aggregateFunction.prettyName)
      if (isOfEveryRow) visitAll(function.aggregateFunction.children, above = true, everyRow = true)
    case other => visitFunctions(other.children)
  }

  /** Adds the uses in an expression. everyRow: whether its value is computed for every row that leaves the chain. */
  private def visit(expression: Expression, above: Boolean, everyRow: Boolean): Unit =
    (use(expression), refOf(expression)) match {
      // A column leaves the chain for each use of a VARIANT column. Structs cannot leave it, so fields have no use above.
      case (Some(use), _) if above && !use.child.isInstanceOf[Attribute] => giveUp(inside(use.variant))
      case (Some(use), _) => add(use, above, everyRow)
      case (None, Some(ref)) if Columns.hasVariant(ref.dataType) => giveUp(s"the whole of ${ref.name} is asked for")
      case (None, Some(ref)) => if (above) giveUp(inside(ref))
      case (None, None) =>
        visitAll(expression.children, above, everyRow && (expression.isInstanceOf[Cast] || expression.isInstanceOf[Alias]))
    }

  private def giveUp(why: String): Unit = if (reason.isEmpty) reason = Some(why)

  private def add(use: Use, above: Boolean, everyRow: Boolean): Unit = {
    // Spark 4.2's scan of a shredded VARIANT fails for such a type, so the cast must not come closer to it.
    if (use.dataType.sql.contains(" COLLATE ")) giveUp("a string with a collation is asked for")
    val seen = found.getOrElseUpdate(use, new Seen)
    seen.above |= above
    seen.everyRow |= everyRow
    use.withFields.flatMap(_.pathOf).foreach(add)
  }

  private def add(path: PathOf): Unit = numbers.getOrElseUpdate(path, numbers.size)

  private def carriers(output: Seq[Attribute]): Seq[Attribute] = output.filter(refOf(_).isDefined)
}

object Uses {

  /** A node of the plan, and which of its children is the one below. */
  final case class Node(plan: LogicalPlan, child: Int)

  private final class Seen {
    var above = false
    var everyRow = false
  }

  // Aggregate functions that evaluate their argument for every row.
  private val EveryRow = Set("sum", "min", "max", "avg", "collect_list", "collect_set")

  /** The columns that `variant_explode` adds: position, key and value. */
  def columns(node: Generate): (Attribute, Attribute, Attribute) =
    (node.generatorOutput(0), node.generatorOutput(1), node.generatorOutput(2))

  /** A key as `variant_get` reads it in a path; None for a key that no path can have. */
  def keyText(key: String): Option[String] =
    if (!key.contains("'")) Some(s"['$key']")
    else if (!key.contains("\"")) Some(s"""["$key"]""")
    else Option.when(!key.exists(".[".contains(_)))(s".$key")

  private def isChain(node: LogicalPlan): Boolean = node match {
    case _: Project | _: Filter | Generate(_: VariantExplode, _, _, _, _, _) => Relations.isDeterministic(node)
    case _ => false
  }

  /** Whether a node passes on the columns of its children. */
  private def isPassing(node: LogicalPlan): Boolean = node match {
    case _: Filter | _: Sort | _: Join | _: GlobalLimit | _: LocalLimit | _: Offset | _: Window | _: Sample | _: Generate |
        _: RepartitionOperation => true
    case _ => false
  }

  private def inside(ref: FieldRef): String = s"a field of the struct ${ref.column.name} is used above a join or an aggregate"

  /** Reverses what PushVariantIntoScan did to a scan and to the expressions above it. */
  private final class Unpush(relation: LogicalRelation) {
    private val gets = new IdentityHashMap[Expression, VariantGet] // the VariantGets that Spark's scan made

    // The columns that PushVariantIntoScan made, as they were before.
    private val columns: Map[ExprId, AttributeReference] = relation.output.flatMap { column =>
      val before = original(column.dataType)
      Option.when(before != column.dataType)(column.exprId -> column.withDataType(before).newInstance())
    }.toMap

    def isNeeded: Boolean = columns.nonEmpty

    val scan: LogicalRelation =
      if (!isNeeded) relation
      else {
        val source = Relations.source(relation)
        val before = source.copy(dataSchema = original(source.dataSchema).asInstanceOf[StructType])(source.sparkSession)
        relation.copy(relation = before, output = relation.output.map(column => columns.getOrElse(column.exprId, column)))
      }

    /** Whether an expression is a VariantGet that Spark's scan made. */
    def made(expression: Expression): Boolean = gets.containsKey(expression)

    def rule: PartialFunction[Expression, Expression] = {
      case column: AttributeReference if columns.contains(column.exprId) => columns(column.exprId)
      case Columns.Pushed(struct, pushed, dataType) if isPushed(struct) =>
        val variant = struct.transform(rule)
        if (pushed.path == "$" && dataType == VariantType) variant
        else {
          val get = VariantGet(variant, Literal(pushed.path), dataType, pushed.failOnError, Some(pushed.timeZoneId))
          gets.put(get, get)
          get
        }
    }

    private def isPushed(struct: Expression): Boolean = struct match {
      case column: AttributeReference => columns.contains(column.exprId)
      case GetStructField(outer, _, _) => isPushed(outer)
      case _ => false
    }

    private def original(dataType: DataType): DataType = dataType match {
      case pushed: StructType if VariantMetadata.isVariantStruct(pushed) => VariantType
      case struct: StructType => StructType(struct.fields.map(field => field.copy(dataType = original(field.dataType))))
      case other => other
    }
  }
}

/**
 * The location of a VARIANT, or of a struct that contains one: a column of the scan, a field inside it, or a column of the
 * elements of an array in such a VARIANT.
 *
 * @param elementOf the array
 */
final case class FieldRef(id: ExprId, ordinals: Seq[Int])(
    val column: Attribute,
    val dataType: DataType,
    val elementOf: Option[PathOf]) {

  def isVariant: Boolean = dataType == VariantType

  def field(ordinal: Int): FieldRef =
    FieldRef(id, ordinals :+ ordinal)(column, dataType.asInstanceOf[StructType](ordinal).dataType, elementOf)

  /** The VARIANT of the scan in which it is. */
  def root: FieldRef = elementOf.fold(this)(_.variant.root)

  /** Whether it is that one, or in the elements of an array in it. */
  def isIn(other: FieldRef): Boolean = this == other || elementOf.exists(_.variant.isIn(other))

  /** The keys that lead to it from that VARIANT. steps: of each path. */
  def keys(steps: PathOf => Seq[Messages.Step]): Seq[Option[String]] =
    elementOf.fold(Seq.empty[Option[String]])(_.keys(steps) :+ Footers.Element)

  /** The names that queries use. */
  def names: Seq[String] = {
    val fields = ordinals.scanLeft((column.name, column.dataType)) { case ((_, struct), ordinal) =>
      val field = struct.asInstanceOf[StructType](ordinal)
      (field.name, field.dataType)
    }
    fields.map { case (name, _) => name }
  }

  def name: String = QuotingUtils.quoted(names.toArray)

  /** The fields of a schema that lead to it. */
  def fields(schema: StructType): Seq[StructField] = {
    def named(struct: DataType, name: String) = Columns.field(struct.asInstanceOf[StructType], name).getOrElse {
      throw new IllegalStateException(s"$name is not in ${struct.simpleString}")
    }
    val first = named(schema, names.head)
    names.tail.scanLeft(first)((outer, name) => named(outer.dataType, name))
  }
}

/**
 * A path of a VARIANT.
 *
 * @param isExploded it is asked for the elements of the array there, and not for its value
 * @param isObject it is asked for as a struct, whose fields have paths of their own
 */
final case class PathOf(variant: FieldRef, path: String, isExploded: Boolean = false, isObject: Boolean = false) {

  /** The keys that lead to it from a VARIANT of the scan. steps: of each path. */
  def keys(steps: PathOf => Seq[Messages.Step]): Seq[Option[String]] = variant.keys(steps) ++ steps(this).map(_.key)
}

/**
 * A use of a VARIANT by path: `variant_get`, a cast, or, without a path, IS NULL or IS NOT NULL. Equal uses have the same value
 * in every row.
 *
 * @param fails a value that does not fit into the type raises an error; else it gives NULL
 * @param child the expression of the VARIANT in the use
 */
final case class Use(variant: FieldRef, path: Option[String], dataType: DataType, fails: Boolean, zone: Option[String])(
    val child: Expression) {
  def pathOf: Option[PathOf] = path.map(PathOf(variant, _, isObject = isObject))

  /** If a struct is asked for, by name the uses that its fields are; none if it is not the same as a struct of these uses. */
  val fields: Seq[(String, Use)] = (dataType, path) match {
    case (StructType(fields), Some(path))
        if fields.forall(field => field.nullable && field.metadata == Metadata.empty) &&
          fields.distinctBy(_.name).length == fields.length =>
      val inside = for (field <- fields.toSeq; key <- Uses.keyText(field.name))
        yield field.name -> Use(variant, Some(path + key), field.dataType, fails, zone)(child)
      if (inside.size == fields.length) inside else Nil
    case _ => Nil
  }

  def isObject: Boolean = fields.nonEmpty

  /** The use, and those of the fields at all levels. */
  def withFields: Seq[Use] = this +: fields.flatMap { case (_, field) => field.withFields }
}
