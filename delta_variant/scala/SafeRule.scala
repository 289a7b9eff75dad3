package org.apache.spark.sql.delta.variant

import java.lang.Boolean.parseBoolean
import java.util.IdentityHashMap

import org.apache.spark.sql.catalyst.expressions.SubqueryExpression
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.PLAN_EXPRESSION

/**
 * An optimizer rule that no query needs: if it fails, the plan stays as it is, and Python is told. Interruption and
 * cancellation are passed on.
 *
 * @param about the subject of what Python is told
 */
abstract class SafeRule(override val ruleName: String, about: String, python: Python) extends Rule[LogicalPlan] {

  protected def rewritten(plan: LogicalPlan): LogicalPlan

  final override def apply(plan: LogicalPlan): LogicalPlan =
    if (Shared.ruling.isRaised || !Enabled.is(conf.getConfString(_, _))) plan
    else Shared.ruling.during(orElse(plan)(rewritten(plan)))

  /** The result of a step, or, if it fails, the value from before. */
  protected final def orElse[T](before: T)(step: => T): T =
    try step
    catch {
      case failure: Throwable if !Failures.stops(failure) =>
        python.tell(about, failure.toString)
        before
    }

  /** Visits the plans inside subquery expressions, which PrepareDeltaScan prepares together with the main plan. */
  protected final def inSubqueries(plan: LogicalPlan)(visit: LogicalPlan => LogicalPlan): LogicalPlan =
    if (!plan.containsPattern(PLAN_EXPRESSION)) plan
    else {
      val visited = new IdentityHashMap[LogicalPlan, LogicalPlan] // a filter's subquery occurs in each scan of a union
      plan.transformAllExpressions { case subquery: SubqueryExpression =>
        val inner = visited.computeIfAbsent(subquery.plan, before => visit(before))
        if (inner eq subquery.plan) subquery else subquery.withNewPlan(inner)
      }
    }
}

/** The setting with which a session that has the rules, or would get them at its next query, does without this package. */
object Enabled {
  private val Setting = "spark.delta_variant.enabled"

  /** setting: the value of a session's setting, or a default. */
  def is(setting: (String, String) => String): Boolean = parseBoolean(setting(Setting, "true"))
}
