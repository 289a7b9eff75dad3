package org.apache.spark.sql.delta.variant

import java.util.{LinkedHashMap, List => JList, Map => JMap}
import java.util.concurrent.TimeoutException

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.plans.logical.{Command, LocalRelation, LogicalPlan}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.delta.files.TahoeFileIndex
import org.apache.spark.sql.execution.QueryExecution
import org.apache.spark.sql.execution.datasources.{HadoopFsRelation, LogicalRelation}
import org.apache.spark.sql.util.QueryExecutionListener

/**
 * The queries over Delta tables with VARIANT columns that a session has run: the last `Most` different ones, as analyzed plans,
 * which `VariantTable.advise` plans again. Commands are left out, since planning one may run it. So are streams, and plans that
 * contain many rows.
 */
final class Queries extends QueryExecutionListener {
  import Queries._

  // Canonical plan -> plan, the last used one at the end.
  private val kept = new LinkedHashMap[LogicalPlan, LogicalPlan](16, 0.75f, true) {
    override protected def removeEldestEntry(eldest: JMap.Entry[LogicalPlan, LogicalPlan]): Boolean = size > Most
  }

  override def onSuccess(name: String, execution: QueryExecution, nanoseconds: Long): Unit = {
    val plan = execution.analyzed
    if (!plan.exists(isOther) && plan.collectWithSubqueries { case leaf if readsVariants(leaf) => leaf }.nonEmpty) {
      val canonical = plan.canonicalized
      kept.synchronized(kept.put(canonical, plan))
    }
  }

  override def onFailure(name: String, execution: QueryExecution, failure: Exception): Unit = ()

  /** The plans of the queries that have ended. Spark tells of them in a thread of its own, for which this waits a while. */
  def plans(session: SparkSession): JList[LogicalPlan] = {
    try session.sparkContext.listenerBus.waitUntilEmpty(2000)
    catch { case _: TimeoutException => } // the last queries may be missing
    kept.synchronized(kept.values.asScala.toList).asJava
  }
}

object Queries {
  private val Most = 50
  private val MaxLocalRows = 1000

  private def isOther(plan: LogicalPlan): Boolean = plan match {
    case _: Command => true
    case rows: LocalRelation => rows.data.size > MaxLocalRows
    case _ => plan.isStreaming
  }

  private def readsVariants(plan: LogicalPlan): Boolean = plan match {
    case LogicalRelation(HadoopFsRelation(_: TahoeFileIndex, _, _, _, _, _), _, _, _, _) => Columns.hasVariant(plan)
    case _ => false
  }
}
