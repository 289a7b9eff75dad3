package org.apache.spark.sql.delta.variant

import org.apache.spark.sql.execution.{SparkPlan, UnionExec, WholeStageCodegenExec}
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec

/** The last step of a plan, which tasks take in Spark's place: they get what it starts from. */
trait LastStep {

  /** The plan without its last step; None if that is another one by now, since adaptive execution may change plans. */
  final def in(plan: SparkPlan): Option[SparkPlan] = plan match {
    case adaptive: AdaptiveSparkPlanExec => in(adaptive.finalPhysicalPlan)
    case stage @ WholeStageCodegenExec(last) => replaced(last).map(WholeStageCodegenExec(_)(stage.codegenStageId))
    case union: UnionExec =>
      val each = union.children.flatMap(in)
      Option.when(each.size == union.children.size)(union.copy(children = each))
    case last => replaced(last)
  }

  /** The step with other columns in the places of those that tasks make. */
  protected def replaced(plan: SparkPlan): Option[SparkPlan]
}

object LastStep {

  /** The last step of a plan that has not run. */
  def of(plan: SparkPlan): SparkPlan = plan match {
    case adaptive: AdaptiveSparkPlanExec => of(adaptive.inputPlan)
    case WholeStageCodegenExec(last) => last
    case last => last
  }
}
