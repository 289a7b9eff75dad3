package org.apache.spark.sql.delta.variant

import java.nio.charset.StandardCharsets.UTF_8
import java.util.WeakHashMap

import org.apache.spark.SparkContext
import org.apache.spark.api.python.{PythonFunction, PythonRDD}

/**
 * What is known of the Python that runs the tasks of a SparkContext: whether it has this package, and which version. Python
 * decides what follows from it (delta_variant/writer/every_write.py).
 */
final class Workers {
  private var versions: Option[Seq[String]] = None
  private var failure: Option[String] = None
  private var hasFailed = false

  def known(context: SparkContext, python: String): Messages.Workers = synchronized {
    Messages.Workers(python, context.master.startsWith("local"), versions, failure, hasFailed)
  }

  /** Tasks of a write failed, perhaps by a function of the user's. The next write asks again. */
  def failed(): Unit = synchronized {
    versions = None
    hasFailed = true
  }

  /** Asks as many tasks as can run at once for the version, unless another thread has done so meanwhile. */
  def probed(context: SparkContext, python: String, task: PythonFunction): Messages.Workers = synchronized {
    try {
      if (versions.isEmpty) {
        hasFailed = false
        val count = context.defaultParallelism
        val slots = context.parallelize(Seq.fill(count)(Array.emptyByteArray), count)
        val found = new PythonRDD(slots, task, false, false).collect()
        versions = Some(found.map(new String(_, UTF_8)).distinct.toSeq)
      }
      known(context, python)
    } catch {
      case failed: Throwable if !Failures.stops(failed) =>
        failure = Some(Failures.ofPython(failed).getOrElse(failed.toString))
        known(context, python).copy(versions = Some(Nil))
    }
  }
}

object Workers {
  private val all = new WeakHashMap[SparkContext, Workers]

  def of(context: SparkContext): Workers = all.synchronized(all.computeIfAbsent(context, _ => new Workers))
}
