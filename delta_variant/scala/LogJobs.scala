package org.apache.spark.sql.delta.variant

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.execution.{CoalesceExec, FilterExec, ProjectExec, SparkPlan}
import org.apache.spark.sql.types.{DataType, StringType}
import org.apache.spark.unsafe.types.UTF8String

/**
 * The Spark jobs that read the log of one table version, from the state that Delta keeps in memory.
 *
 * Their physical plans are made here, as projections over Delta's own plan: to analyze, optimize and compile them would take
 * longer than the jobs of small tables. Expressions are interpreted, so predicates of any length stay clear of the limits of
 * generated code. Files are identified by the 64-bit hash of their path.
 *
 * @param files how many files the version has
 */
final class LogJobs(log: LogStatistics, files: Long) {
  import LogJobs._
  import LogStatistics.{column, field}

  /** A row per file: the hash of its path, the hash of `LogStatistics.contents`, and the length of its statistics as text. */
  def state(): Array[InternalRow] = {
    val state = plan(log.snapshot.stateDF)
    val add = column(state.output, "add")
    val contents = log.contents(add)
    val row = Seq("path" -> hash(contents.take(1)), "contents" -> hash(contents), "bytes" -> OctetLength(field(add, "stats")))
    run(ProjectExec(row.map { case (name, value) => Alias(value, name)() }, FilterExec(IsNotNull(add), state)))
  }

  /** The rows (LogStatistics) of the files with these hashes, or of all files. Damaged values are NULL. */
  def rows(hashes: Option[Set[Long]]): Array[InternalRow] = run(rows(hashes, checked = true))

  /** For the files with these hashes, or for all: the hash of the path and the values of these bounds. */
  def values(bounds: Seq[TypedBound], hashes: Option[Set[Long]]): Array[InternalRow] = {
    def read(checked: Boolean) = {
      val files = rows(hashes, checked)
      val values = bounds.zipWithIndex.map { case (bound, number) => Alias(bound.over(files.output), s"bound$number")() }
      run(ProjectExec(column(files.output, "path") +: values, files))
    }
    // Bounds are checked for damage only if a damaged one made the job fail: the check takes as long as the rest.
    try read(checked = false)
    catch { case failure: Throwable if Failures.isDamage(failure) => read(checked = true) }
  }

  private def rows(hashes: Option[Set[Long]], checked: Boolean): SparkPlan = {
    val files = plan(log.withStats)
    val path = hash(Seq(column(files.output, "path")))
    val some = hashes.fold(files)(wanted => FilterExec(InSet(path, wanted.toSet[Any]), files))
    ProjectExec(log.row(files.output, path, checked), some)
  }

  private def run(plan: SparkPlan): Array[InternalRow] = {
    val context = SparkSession.active.sparkContext
    val before = context.getLocalProperty(CodegenMode)
    context.setLocalProperty(CodegenMode, "NO_CODEGEN")
    try CoalesceExec(1 + math.min(files / FilesPerTask, 10000).toInt, plan).executeCollect()
    finally context.setLocalProperty(CodegenMode, before)
  }
}

/** A bound, with the types that it names. */
final case class TypedBound(bound: Messages.Bound, types: Map[String, DataType], zone: String) {
  override lazy val hashCode: Int = (bound, types, zone).hashCode // columns of values are looked up by it

  def over(row: Seq[Attribute]): Expression = LogStatistics.value(bound, row, types, zone)
}

object TypedBound {
  def all(bounds: Seq[Messages.Bound], types: Map[String, DataType], zone: String): Seq[TypedBound] =
    bounds.map(bound => TypedBound(bound, types.view.filterKeys(bound.types.contains(_)).toMap, zone))
}

object LogJobs {
  private val Seed = 42L
  private val CodegenMode = "spark.sql.codegen.factoryMode"
  // Delta keeps its state in 50 partitions, whatever the size of the table. 50 tasks cost more than 10,000 files.
  private val FilesPerTask = 10000

  /** The hash of a path, as it is in the rows of these jobs. */
  def hash(path: String): Long = XxHash64Function.hash(UTF8String.fromString(path), StringType, Seed)

  /** The expression that computes such a hash of one or more values. */
  def hash(parts: Seq[Expression]): Expression = XxHash64(parts, Seed)

  private def plan(rows: org.apache.spark.sql.Dataset[_]): SparkPlan = rows.asInstanceOf[Dataset[_]].queryExecution.executedPlan
}
