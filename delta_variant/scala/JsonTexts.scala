package org.apache.spark.sql.delta.variant

import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute
import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, Expression, Literal, NamedExpression}
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke
import org.apache.spark.sql.catalyst.expressions.variant.VariantExpressionEvalUtils
import org.apache.spark.sql.delta.constraints.{Constraint, Constraints}
import org.apache.spark.sql.execution.{ProjectExec, SparkPlan, WholeStageCodegenExec}
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec
import org.apache.spark.sql.types.StringType

/**
 * VARIANT columns that a plan makes of JSON texts in its last step, by `parse_json` or `try_parse_json`: tasks get the texts in
 * their place, and parse and shred them at once.
 *
 * @param columns the indexes of the columns in the plan's output
 */
final case class JsonTexts(columns: Seq[Int], fails: Boolean, allowDuplicateKeys: Boolean, validateUnicode: Boolean) {

  /** The plan with the texts; None if its last step is another one by now, since adaptive execution may change plans. */
  def in(plan: SparkPlan): Option[SparkPlan] = plan match {
    case adaptive: AdaptiveSparkPlanExec => in(adaptive.finalPhysicalPlan)
    case stage @ WholeStageCodegenExec(last: ProjectExec) => texts(last).map(WholeStageCodegenExec(_)(stage.codegenStageId))
    case last: ProjectExec => texts(last)
    case _ => None
  }

  private def texts(last: ProjectExec): Option[ProjectExec] =
    if (!columns.forall(last.projectList.lift(_).exists(JsonTexts.Parse.unapply(_).exists(_._2 == options)))) None
    else
      Some(last.copy(projectList = last.projectList.zipWithIndex.map {
        case (JsonTexts.Parse(text, _), column) if columns.contains(column) => Alias(text, last.projectList(column).name)()
        case (other, _) => other
      }))

  private def options = (fails, allowDuplicateKeys, validateUnicode)
}

object JsonTexts {

  /** A column that is a parsed text: the text, and whether malformed ones fail, duplicate keys are allowed, Unicode is validated. */
  private object Parse {
    def unapply(column: NamedExpression): Option[(Expression, (Boolean, Boolean, Boolean))] = column match {
      case Alias(call: StaticInvoke, _)
          if call.staticObject == VariantExpressionEvalUtils.getClass && call.functionName == "parseJson" =>
        call.arguments match {
          case Seq(text, Literal(duplicates: Boolean, _), Literal(fails: Boolean, _), Literal(unicode: Boolean, _))
              if text.dataType == StringType =>
            Some((text, (fails, duplicates, unicode)))
          case _ => None
        }
      case _ => None
    }
  }

  /** The columns that tasks can parse: those whose options are those of the first one, and that no constraint uses. */
  def of(plan: SparkPlan, constraints: Seq[Constraint]): Option[JsonTexts] = plan match {
    case adaptive: AdaptiveSparkPlanExec => of(adaptive.inputPlan, constraints)
    case WholeStageCodegenExec(last: ProjectExec) => of(last, constraints)
    case last: ProjectExec =>
      val used = constraints.flatMap(names).map(_.toLowerCase).toSet
      val parsed = last.projectList.zipWithIndex.collect {
        case (column @ Parse(_, options), index) if !used(column.name.toLowerCase) => index -> options
      }
      parsed.headOption.map { case (_, options @ (fails, duplicates, unicode)) =>
        JsonTexts(parsed.collect { case (index, `options`) => index }, fails, duplicates, unicode)
      }
    case _ => None
  }

  private def names(constraint: Constraint): Seq[String] = constraint match {
    case Constraints.NotNull(column) => column.take(1)
    case Constraints.Check(_, expression) =>
      expression.collect {
        case column: UnresolvedAttribute => column.nameParts.head
        case column: Attribute => column.name
      }
  }
}
