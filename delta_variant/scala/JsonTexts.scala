package org.apache.spark.sql.delta.variant

import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute
import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, CaseWhen, Expression, IsNull, Literal, NamedExpression}
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke
import org.apache.spark.sql.catalyst.expressions.variant.VariantExpressionEvalUtils
import org.apache.spark.sql.delta.constraints.{Constraint, Constraints}
import org.apache.spark.sql.execution.{ProjectExec, SparkPlan, UnionExec}
import org.apache.spark.sql.types.StringType

/**
 * VARIANT columns that a plan makes of JSON texts in its last steps, by `parse_json` or `try_parse_json`: tasks get the texts in
 * their place, and parse and shred them at once.
 *
 * @param columns the indexes of the columns in the plan's output
 * @param corrupt the index of a column with the text where `try_parse_json` gives NULL; only if there is one VARIANT column
 */
final case class JsonTexts(
    columns: Seq[Int], corrupt: Option[Int], fails: Boolean, allowDuplicateKeys: Boolean, validateUnicode: Boolean)
    extends LastStep {
  import JsonTexts._

  protected def replaced(plan: SparkPlan): Option[SparkPlan] = {
    val texts = columns.flatMap(index => made(plan, index).collect { case Parsed(text, `options`) => index -> text })
    val isThere = texts.size == columns.size && corrupt.forall(corruptOf(plan, columns.head).contains(_))
    Option.when(isThere)(remade(plan, texts.toMap ++ corrupt.map(_ -> Literal(null, StringType))))
  }

  private val options: Options = (fails, allowDuplicateKeys, validateUnicode)
}

object JsonTexts {
  private type Options = (Boolean, Boolean, Boolean) // malformed texts fail, duplicate keys are allowed, Unicode is validated

  private object Parsed {
    def unapply(expression: Expression): Option[(Expression, Options)] = expression match {
      case call: StaticInvoke
          if call.staticObject == VariantExpressionEvalUtils.getClass && call.functionName == "parseJson" =>
        call.arguments match {
          case Seq(text, Literal(duplicates: Boolean, _), Literal(fails: Boolean, _), unicode @ _*)
              if text.dataType == StringType =>
            Pairs.validatesUnicode(unicode).map(validates => (text, (fails, duplicates, validates)))
          case _ => None
        }
      case _ => None
    }
  }

  /** A column that is one of those below, under whatever name. */
  private object Passed {
    def unapply(column: NamedExpression): Option[Attribute] = column match {
      case below: Attribute => Some(below)
      case Alias(below: Attribute, _) => Some(below)
      case _ => None
    }
  }

  /** The expression of a column in the last projection that computes it, if the projections above only pass it on. */
  private def made(plan: SparkPlan, index: Int): Option[Expression] = plan match {
    case ProjectExec(list, below) =>
      list.lift(index).flatMap {
        case Passed(column) if list.count(_.references.contains(column)) == 1 =>
          made(below, below.output.indexWhere(_.exprId == column.exprId))
        case Alias(expression, _) => Some(expression)
        case _ => None
      }
    case _ => None
  }

  /** The plan with columns that are made of other expressions. */
  private def remade(plan: SparkPlan, changes: Map[Int, Expression]): SparkPlan = plan match {
    case ProjectExec(list, below) =>
      val passed = changes.keys.toSeq.flatMap { index =>
        Passed.unapply(list(index)).map(column => index -> below.output.indexWhere(_.exprId == column.exprId))
      }.toMap
      val under = if (passed.isEmpty) below else remade(below, passed.map { case (index, at) => at -> changes(index) })
      val columns = list.zipWithIndex.map {
        case (column, index) if passed.contains(index) => Alias(under.output(passed(index)), column.name)()
        case (column, index) if changes.contains(index) => Alias(changes(index), column.name)()
        case (column, _) => column
      }
      ProjectExec(columns, under)
    case other => throw new IllegalStateException(s"not a projection: ${other.nodeName}")
  }

  /** The index of the column that has the text of the column at `index` where that is NULL. */
  private def corruptOf(plan: SparkPlan, index: Int): Option[Int] = made(plan, index).collect { case Parsed(text, options) =>
    plan.output.indices.find { other =>
      made(plan, other).exists {
        case CaseWhen(Seq((IsNull(Parsed(tested, `options`)), shown)), None) =>
          text.semanticEquals(tested) && text.semanticEquals(shown)
        case _ => false
      }
    }
  }.flatten

  /** The columns that tasks can parse: those whose options are those of the first one, and that no constraint uses. */
  def of(plan: SparkPlan, constraints: Seq[Constraint]): Option[JsonTexts] = LastStep.of(plan) match {
    case UnionExec(children) =>
      val each = children.map(of(_, constraints)).distinct
      if (each.size == 1) each.head else None
    case last =>
      val columns = last.output
      def isFree(index: Int, fails: Boolean) = !constraints.exists(isOver(_, columns(index).name, fails))
      val found = columns.indices.flatMap { index =>
        made(last, index).collect { case Parsed(_, options) if isFree(index, options._1) => index -> options }
      }
      found.headOption.map { case (_, options @ (fails, duplicates, unicode)) =>
        val parsed = found.collect { case (index, `options`) => index }
        val corrupt = if (fails || parsed.size > 1) None else corruptOf(last, parsed.head).filter(isFree(_, fails = false))
        JsonTexts(parsed, corrupt, fails, duplicates, unicode)
      }
  }

  /**
   * Whether a constraint needs the Variants of a column. NOT NULL does not if malformed texts fail: a text is then NULL where
   * its Variant is.
   */
  def isOver(constraint: Constraint, column: String, fails: Boolean): Boolean = constraint match {
    case Constraints.NotNull(path) => !fails && path.head.equalsIgnoreCase(column)
    case Constraints.Check(_, expression) =>
      expression.exists {
        case used: UnresolvedAttribute => used.nameParts.head.equalsIgnoreCase(column)
        case used: Attribute => used.name.equalsIgnoreCase(column)
        case _ => false
      }
  }
}
