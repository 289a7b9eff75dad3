package org.apache.spark.sql.delta.variant

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.trees.TreeNodeTag

/** What the rules did to a scan, in tags of its node. */
object Outcomes {
  val Skipping = TreeNodeTag[Messages.Skipping]("delta_variant.skipping")
  val Reading = TreeNodeTag[Messages.Reading]("delta_variant.reading")

  /** The number of files that the log answered for. */
  val Logged = TreeNodeTag[Int]("delta_variant.logged")

  /** On the rows that replace a scan: the scan. */
  val Answered = TreeNodeTag[Messages.ScanReport]("delta_variant.answered")

  def copy[T](from: LogicalPlan, to: LogicalPlan, tag: TreeNodeTag[T]): Unit =
    from.getTagValue(tag).foreach(to.setTagValue(tag, _))
}
