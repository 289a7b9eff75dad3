package org.apache.spark.sql.delta.variant

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.datasources.{FileIndex, HadoopFsRelation, LogicalRelation}

/** Helpers for relations and nodes of plans: what they have, and copies with another part. */
object Relations {

  /** The file relation of a scan. */
  def source(scan: LogicalRelation): HadoopFsRelation = scan.relation.asInstanceOf[HadoopFsRelation]

  /** The scan with its files replaced by those of another index. */
  def over(scan: LogicalRelation, files: FileIndex): LogicalRelation =
    scan.copy(relation = source(scan).copy(location = files)(source(scan).sparkSession))

  /** The first scan in a plan. */
  def scanIn(plan: LogicalPlan): LogicalRelation = plan.collectFirst { case scan: LogicalRelation => scan }.get

  /** The node with one of its children replaced by a plan. */
  def withChild(node: LogicalPlan, child: Int, plan: LogicalPlan): LogicalPlan =
    node.withNewChildren(node.children.updated(child, plan))

  /** Whether a node always computes the same for the same rows. */
  def isDeterministic(node: LogicalPlan): Boolean = node.expressions.forall(_.deterministic)
}
