package org.apache.spark.sql.delta.variant

import java.nio.charset.StandardCharsets.UTF_8

import org.apache.spark.api.python.{PythonFunction, PythonRDD}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.Encoders
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.codegen.CodeAndComment
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.WholeStageCodegenEvaluatorFactory
import org.apache.spark.sql.execution.metric.SQLMetrics
import org.apache.spark.sql.types.StructType

/** The job of a write: rows in, data files out, in tasks of Python (delta_variant/writer/task.py). */
object WriteFiles {

  /**
   * Runs the tasks, and returns their reports.
   *
   * @param task a PySpark function from record batches to WriteReports
   * @param location for the errors of rows, which are then those of Spark's tasks that write there
   */
  def run(
      spark: SparkSession,
      rows: RDD[InternalRow],
      schema: StructType,
      task: PythonFunction,
      location: Option[String] = None): Iterator[Messages.WriteReport] = {
    val reports = new PythonRDD(batches(spark, rows, schema, location), task, false, false).collect()
    reports.iterator.map(report => Messages.decoded[Messages.WriteReport](new String(report, UTF_8)))
  }

  /**
   * The record batches of rows. They are made in the executors: Spark sends their source (Batches.java) there and compiles it.
   * The executors also compile the code that takes the byte arrays out of the rows that this source yields.
   */
  def batches(
      spark: SparkSession,
      rows: RDD[InternalRow],
      schema: StructType,
      location: Option[String]): RDD[Array[Byte]] = {
    val duration = SQLMetrics.createTimingMetric(rows.sparkContext, "duration")
    val code = Right(new CodeAndComment(Resources.batches, Map.empty))
    val batches = rows.mapPartitionsWithEvaluator(new WholeStageCodegenEvaluatorFactory(code, duration,
        Array[Any](schema, location.orNull)))
    // Dataset.rdd is an execution of its own. At its end Spark takes the tags of the session, by which users cancel jobs, from
    // this thread, although the execution of the write goes on.
    val tags = rows.sparkContext.getJobTags()
    try spark.internalCreateDataFrame(batches, new StructType().add("batch", "binary")).as(Encoders.BINARY).rdd
    finally tags.foreach(rows.sparkContext.addJobTag)
  }
}
