package org.apache.spark.sql.delta.variant

import java.lang.Boolean.parseBoolean
import java.util.{IdentityHashMap, Map => JMap}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{
  Descending, Expression, GreaterThanOrEqual, LessThanOrEqual, Literal, SortOrder
}
import org.apache.spark.sql.catalyst.planning.PhysicalOperation
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.delta.actions.AddFile
import org.apache.spark.sql.delta.stats.DeltaScan
import org.apache.spark.sql.execution.datasources.LogicalRelation

/**
 * The optimizer rule for data skipping. It finds the prepared Delta scans below a filter on a VARIANT column, sends the filter
 * to Python (Filters), evaluates the predicate on bounds that comes back (FilePredicates) over the bounds in the log
 * (FileBounds), and removes the files for which it is FALSE from the scan. Only scans that Delta plans file by file are changed
 * (PlannedFiles).
 *
 * @param previous the session settings that delta_variant.enable changed, as they were
 * @param writes what the session's writes need: a session has the rule if and only if it is enabled
 */
final class SkipFiles(python: Python, val previous: JMap[String, String], val writes: EveryWrite)
    extends SafeRule(SkipFiles.Name, "skipping", python) with EveryWrite.Session {
  import SkipFiles._

  /** The rule for another session, which had these settings. */
  def restoring(previous: JMap[String, String]): SkipFiles = new SkipFiles(python, previous, writes)

  override protected def rewritten(plan: LogicalPlan): LogicalPlan = new Walk(new IdentityHashMap).visit(plan)

  /** The plan that `apply` gives if the log has these rows for this scan. Throws failures that `apply` would only report to Python. */
  def skipped(plan: LogicalPlan, scan: DeltaScan, rows: Array[InternalRow]): LogicalPlan = {
    val known = new IdentityHashMap[DeltaScan, FileBounds]
    known.put(scan, FileBounds.of(new LogStatistics(scan.scannedSnapshot), rows))
    new Walk(known).visit(plan)
  }

  /** One run of the rule. read: the bounds that it has read, by scan. */
  private final class Walk(read: IdentityHashMap[DeltaScan, FileBounds]) {

    def visit(plan: LogicalPlan): LogicalPlan = inSubqueries(pruned(plan, Demands.Empty))(visit)

    private def pruned(plan: LogicalPlan, demands: Demands): LogicalPlan = plan match {
      case PhysicalOperation(_, filters, PlannedScan(scan, files))
          if !files.isStream && scan.getTagValue(Outcomes.Skipping).isEmpty =>
        val above = Iterator.iterate(plan)(_.children.head).takeWhile(_ ne scan)
        val narrowed = new OneScan(scan, files).pruned(filters, above.foldLeft(demands)(_.of(_, 0)))
        if (narrowed eq scan) plan else plan.transformUp { case leaf if leaf eq scan => narrowed }
      case _ =>
        plan.withNewChildren(plan.children.zipWithIndex.map { case (child, number) => pruned(child, demands.of(plan, number)) })
    }

    // ---- one scan ---------------------------------------------------------------------------------------------------

    private final class OneScan(scan: LogicalRelation, files: PlannedFiles) {
      private lazy val log = new LogStatistics(files.snapshot)

      def pruned(conditions: Seq[Expression], demands: Demands): LogicalRelation = {
        val filters = new Filters(scan)
        val asked = filters.messages(conditions ++ demands.filters(filters, files.isCommand))
        val ordered = demands.first(filters).flatMap(first(_, demands.limit))
        val all = asked ++ filters.messages(ordered.toSeq)
        if (all.isEmpty || files.all.isEmpty) scan
        else if (!parseBoolean(conf.getConfString(Setting, "true"))) {
          scan.setTagValue(
            Outcomes.Skipping, Messages.Skipping(false, Nil, Seq(s"the session has $Setting = false"), None, Some(Nil)))
          scan
        } else {
          val isLogged = parseBoolean(conf.getConfString(LogScans, "false"))
          val (result, outcome) = narrowed(filters, request(filters, all, explain = isLogged || Shared.explaining.isRaised))
          result.setTagValue(Outcomes.Skipping, outcome)
          if (isLogged) python.show(Explain.described(result))
          result
        }
      }

      private def narrowed(filters: Filters, request: Messages.PruneRequest): (LogicalRelation, Messages.Skipping) = {
        val reply = python.ask[Messages.PruneReply](request)
        val explanation = reply.explanation.getOrElse(Messages.Explanation(Nil, Nil, Nil))
        val outcome = Messages.Skipping(
          reply.predicate.isDefined, explanation.predicates, explanation.reasons, Option.when(request.explain)(request),
          Some(Nil))
        def because(more: Seq[String]) = outcome.copy(reasons = if (request.explain) outcome.reasons ++ more else Nil)
        if (reply.bounds.isEmpty && reply.members.isEmpty) (scan, outcome)
        else {
          val known = bounds
          known.failure match {
            case Some(failure) =>
              (scan, because(Seq(s"the bounds of this version could not be read: $failure")).copy(tally = None))
            case None =>
              val indexes = reply.members.map(new ValueIndex(files.snapshot, files.all, known, _, Shared.indexes)).toIndexedSeq
              val facts = Facts(values(known, reply.bounds, filters), filters.constants, indexes)
              val decision = new Decision(files, known, facts, filters)
              val result = reply.predicate.fold(scan)(predicate => over(decision.left(predicate)))
              val reasons = Option.when(decision.sparesDelta)(Spared).toSeq ++ indexes.flatMap(_.reason)
              (result, because(reasons).copy(tally = Some(decision.tally(explanation.verdicts))))
          }
        }
      }

      private def over(left: Seq[AddFile]): LogicalRelation = {
        // Without any file, the plan would end before MERGE has counted the rows of its source.
        val some = if (left.isEmpty && files.isCommand) files.all.take(1) else left
        if (some.size == files.all.size) scan else Relations.over(scan, files.narrowed(some))
      }

      private def request(filters: Filters, conditions: Seq[Messages.Filter], exact: Boolean = false,
          explain: Boolean = false) =
        Messages.PruneRequest(
          operands = filters.operands,
          filters = conditions,
          columns = log.columns,
          files = files.all.size,
          marked = files.all.exists(Tags.isMarked),
          nonnull = files.all.exists(Tags.has(_, Tags.nonnull)),
          times = files.all.exists(Tags.has(_, Tags.times)),
          index = !exact && files.all.size > 1 && ValueIndex.isAnnounced(files.snapshot),
          exact = exact,
          trustAll = parseBoolean(conf.getConfString(TrustAll, "false")),
          explain = explain)

      private def bounds: FileBounds = read.computeIfAbsent(files.scan, FileBounds.of(log, _, Shared.bounds))

      private def values(known: FileBounds, bounds: Seq[Messages.Bound], filters: Filters): IndexedSeq[BoundValues] =
        known.read(log, TypedBound.all(bounds, filters.types, conf.sessionLocalTimeZone))

      /**
       * The filter that ORDER BY with LIMIT n implies: a value is not behind the n-th of the bounds of exact files, in that
       * order. Each of these bounds is the value of some row, so the n-th row of the result is not behind it. None if there are
       * fewer.
       */
      private def first(order: SortOrder, limit: Int): Option[Expression] = {
        val exact = files.all.filter(Tags.isExact)
        if (exact.size < limit) None
        else {
          val filters = new Filters(scan)
          // With any constant: only the bounds of the reply are used.
          val conditions = filters.messages(Seq(notBehind(order, Literal.default(order.child.dataType))))
          val reply = python.ask[Messages.PruneReply](request(filters, conditions, exact = true))
          val isDescending = order.direction == Descending
          val side = reply.bounds.indexWhere(_.side == (if (isDescending) "max" else "min"))
          if (side < 0 || bounds.failure.isDefined) None
          else {
            val known = bounds
            val column = values(known, reply.bounds, filters)(side)
            val ordering = if (isDescending) column.ordering.reverse else column.ordering
            val ends = known.synchronized {
              exact.map(file => known.number(file.path)).filter(_ >= 0).map(column.of).filter(_ != null)
            }
            ends.sorted(ordering).lift(limit - 1).map(last => notBehind(order, Literal(last, order.child.dataType)))
          }
        }
      }
    }
  }
}

object SkipFiles {
  val Name = "delta_variant.SkipFiles"
  private val Setting = "spark.delta_variant.dataSkipping"
  private val TrustAll = "spark.delta_variant.trustAllBounds"
  private val LogScans = "spark.delta_variant.logScans"
  private val Spared = "Delta was not asked about ordinary columns in an OR, because that would take longer than it saves"

  private def notBehind(order: SortOrder, last: Expression): Expression =
    if (order.direction == Descending) GreaterThanOrEqual(order.child, last) else LessThanOrEqual(order.child, last)
}
