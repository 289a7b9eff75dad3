package org.apache.spark.sql.delta.variant

import org.apache.spark.sql.catalyst.catalog.CatalogTable
import org.apache.spark.sql.catalyst.plans.logical.{CTERelationRef, LocalRelation, LogicalPlan}
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.classic.{DataFrame, Dataset}
import org.apache.spark.sql.connector.catalog.Table
import org.apache.spark.sql.delta.commands.cdc.CDCReader
import org.apache.spark.sql.delta.files.TahoeFileIndex
import org.apache.spark.sql.delta.variant.Messages.ScanReport
import org.apache.spark.sql.execution.LogicalRDD
import org.apache.spark.sql.execution.columnar.InMemoryRelation
import org.apache.spark.sql.execution.datasources._
import org.apache.spark.sql.execution.datasources.v2.{DataSourceV2Relation, DataSourceV2ScanRelation}

/**
 * The data for `explain`: the Delta scans of a plan, with what the rules did to them, and the other leaves of the plan that
 * read a Delta table, or that have VARIANT columns. The rules leave those alone; `other` says what they are.
 *
 *     dsv2      a scan by Delta's DSv2 reader          stream   a source of a stream, whose plan is made for each batch
 *     cache     rows in Spark's cache                  static   a table beside a stream, likewise
 *     changes   a change data feed                     batch    the scan of such a source in the plan of a batch
 *     rdd       a checkpoint, a batch in foreachBatch  files    files that are not those of a Delta table
 *                                                      rows     anything else, which `by` names
 */
object Explain {

  /** The scans of a query, planned again under the session's current rules. */
  def explain(query: DataFrame): String = {
    val analyzed = query.queryExecution.analyzed
    if (analyzed.isStreaming) described(analyzed, inside = Some("static"))
    else Shared.explaining.during(planned(Dataset.ofRows(query.sparkSession, analyzed).queryExecution.optimizedPlan))
  }

  /** The scans of an optimized plan. */
  def planned(plan: LogicalPlan): String = described(plan, inside = None)

  private def described(plan: LogicalPlan, inside: Option[String]): String = {
    val all = new Leaves(inside).of(plan)
    // Typed reading makes several relations of one scan.
    val (typed, others) = all.zipWithIndex.partition { case (scan, _) => scan.reading.isDefined }
    val distinct = typed.distinctBy { case (scan, _) => scan.reading }
    Messages.encoded((distinct ++ others).sortBy(_._2).map(_._1))
  }

  /** A Delta scan of a plan, with what the rules did to it. */
  def described(scan: LogicalRelation): ScanReport = {
    val index = Relations.source(scan).location.asInstanceOf[TahoeFileIndex]
    val files = PlannedFiles.of(index)
    val reading = scan.getTagValue(Outcomes.Reading)
    ScanReport(
      table = name(scan.catalogTable, index.path.toString),
      version = Some(index.version),
      total = files.filterNot(_.isStream).map(_.snapshot.numOfFiles),
      delta = files.map(_.scan.files.distinct.size),
      bounds = reading.map(_.files).orElse(files.map(_.all.size)),
      skipping = scan.getTagValue(Outcomes.Skipping),
      reading = reading,
      other = files.filter(_.isStream).map(_ => "batch"),
      by = None)
  }

  private def name(table: Option[CatalogTable], otherwise: => String): String =
    table.fold(otherwise)(_.identifier.unquotedString)

  /** The leaves of a plan. inside: `cache` or `static`, if the plan is not one that Spark is about to run. */
  private final class Leaves(inside: Option[String]) {

    def of(plan: LogicalPlan): Seq[ScanReport] =
      (if (plan.children.isEmpty) leaf(plan) else Nil) ++ (plan.children ++ plan.subqueries).flatMap(of)

    private def leaf(plan: LogicalPlan): Seq[ScanReport] = plan match {
      case scan: LogicalRelation => relation(scan)
      case rows: InMemoryRelation => cached(rows)
      case scan: DataSourceV2ScanRelation => table(scan, scan.relation.table)
      case relation: DataSourceV2Relation => table(relation, relation.table)
      case stream: StreamingRelationV2 if Pairs.isV2(stream.table) || Columns.hasVariant(stream) =>
        Seq(other(stream.table.name, "stream"))
      case Pairs.Stream(source, of) if of == "delta" || Columns.hasVariant(plan) =>
        Seq(other(name(source.catalogTable, source.options.getOrElse("path", "")), "stream"))
      case _: StreamingRelationV2 | Pairs.Stream(_, _) | _: CTERelationRef => Nil
      case rows: LocalRelation => rows.getTagValue(Outcomes.Answered).toSeq
      case rdd: LogicalRDD if Columns.hasVariant(rdd) => Seq(other(rdd.nodeName, "rdd", Some(rdd.nodeName)))
      case rows if Columns.hasVariant(rows) => Seq(other(rows.nodeName, "rows", Some(rows.nodeName)))
      case _ => Nil
    }

    private def relation(scan: LogicalRelation): Seq[ScanReport] = scan.relation match {
      case HadoopFsRelation(index: TahoeFileIndex, _, _, _, _, _) =>
        Seq(inside.fold(described(scan))(other(name(scan.catalogTable, index.path.toString), _)))
      case HadoopFsRelation(index, _, _, _, _, _) if Columns.hasVariant(scan) =>
        val paths = index.rootPaths
        val more = if (paths.size > 1) " and others" else ""
        val what = index match {
          case _: PartitioningAwareFileIndex | _: CatalogFileIndex => "files"
          case _ => "rows"
        }
        val shown = paths.headOption.fold(scan.nodeName)(path => s"$path$more")
        Seq(other(name(scan.catalogTable, shown), what, Some(index.getClass.getSimpleName)))
      case changes: CDCReader.DeltaCDFRelation =>
        Seq(other(name(scan.catalogTable, changes.snapshotWithSchemaMode.snapshot.deltaLog.dataPath.toString), "changes"))
      case rows if Columns.hasVariant(scan) =>
        Seq(other(name(scan.catalogTable, scan.nodeName), "rows", Some(rows.getClass.getSimpleName)))
      case _ => Nil
    }

    private def table(plan: LogicalPlan, table: Table): Seq[ScanReport] = table match {
      case _ if Pairs.isV2(table) =>
        Seq(inside.fold(other(table.name, "dsv2").copy(version = Pairs.version(table)))(other(table.name, _)))
      case _ if Pairs.isOfChanges(table) => Seq(other(table.name, "changes"))
      case _ if Columns.hasVariant(plan) || table.getClass.getName.startsWith("org.apache.spark.sql.delta.") =>
        Seq(other(table.name, "rows", Some(table.getClass.getSimpleName)))
      case _ => Nil
    }

    /** The tables that were read for the rows in the cache; the cache itself if it has VARIANT columns of no table. */
    private def cached(rows: InMemoryRelation): Seq[ScanReport] = {
      val cache = rows.cacheBuilder
      val read = new Leaves(Some("cache")).of(cache.logicalPlan)
      if (read.isEmpty && Columns.hasVariant(rows)) Seq(other(cache.tableName.getOrElse(rows.nodeName), "cache")) else read
    }

    /** A scan that the rules leave alone. by: the class of Spark or of a library that reads the rows. */
    private def other(table: String, what: String, by: Option[String] = None): ScanReport =
      ScanReport(
        table, version = None, total = None, delta = None, bounds = None, skipping = None, reading = None,
        other = Some(inside.filter(_ == "cache").getOrElse(what)), by = by)
  }
}
