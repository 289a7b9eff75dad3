package org.apache.spark.sql.delta.variant

import java.io.IOException
import java.nio.channels.ClosedByInterruptException
import java.util.{List => JList}

import scala.util.control.ControlThrowable

import org.apache.spark.{SparkException, SparkThrowable}
import org.apache.spark.api.python.PythonException
import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.delta.{DeltaConcurrentModificationException, DeltaThrowable}
import org.apache.spark.sql.delta.schema.InvariantViolationException

/** Classifies failures by themselves and their causes. */
object Failures {

  def causes(failure: Throwable): Iterator[Throwable] = Iterator.iterate(failure)(_.getCause).takeWhile(_ != null)

  /** Whether the query's thread has to end after a failure: it was interrupted, its job was cancelled, or memory ran out. */
  def stops(failure: Throwable): Boolean = Thread.currentThread().isInterrupted || causes(failure).exists {
    case _: InterruptedException | _: OutOfMemoryError | _: ClosedByInterruptException | _: ControlThrowable => true
    case known: SparkThrowable => known.getCondition == "SPARK_JOB_CANCELLED"
    case _ => false
  }

  /** The message of Python, or about Python, if a job failed in a Python worker or because none could start. */
  def ofPython(failure: Throwable): Option[String] = causes(failure).collectFirst {
    case cause: PythonException => cause.getMessage
    case cause
        if cause.getStackTrace.headOption.exists(_.getClassName.startsWith(Workers)) ||
          cause.getStackTrace.exists(_.getClassName.startsWith(s"${Workers}PythonWorkerFactory")) =>
      cause.toString
  }

  /**
   * Why the tasks of a write failed, if not because of its rows: in Python, in Batches.java but for `nextRow`, which has the
   * errors of rows, or for a reason of Spark's that is not an exception, such as a lost executor.
   */
  def ofTasks(failure: Throwable): Option[String] = {
    val isOfRows = causes(failure).exists {
      case known: SparkThrowable => known.getCondition == "TASK_WRITE_FAILED"
      case _ => false
    }
    def isOfBatches = causes(failure).exists { cause =>
      val own = cause.getStackTrace.filter(_.getClassName.endsWith("$Batches"))
      own.nonEmpty && !own.exists(_.getMethodName.startsWith("nextRow")) // Janino adds a `$` to the name
    }
    def isOfSpark = failure match {
      case aborted: SparkException => aborted.getCause == null && aborted.getCondition == null
      case _ => false
    }
    ofPython(failure).orElse(Option.when(!isOfRows && (isOfBatches || isOfSpark))(failure.toString))
  }

  /**
   * Whether a failure of a command is about the table: an error of Delta's, of the analyzer or of a file system on the driver.
   * An error of a job may be about rows, and is not one of these.
   */
  def isOfTable(failure: Throwable): Boolean = {
    val isOfRows = causes(failure).exists {
      case aborted: SparkException => String.valueOf(aborted.getMessage).startsWith("Job aborted")
      case _ => false
    }
    !isOfRows && causes(failure).exists {
      case _: DeltaThrowable | _: AnalysisException | _: IOException | _: InvariantViolationException => true
      case _ => false
    }
  }

  /** Why tasks cannot write what a call asks for; null if the failure has another cause. */
  def refusal(failure: Throwable): String =
    causes(failure).collectFirst { case refused: EveryWrite.Refused => refused.getMessage }.orNull

  /** The error condition and the SQLSTATE of a failure; empty if it has none. */
  def condition(failure: Throwable): JList[String] = {
    val known = causes(failure).collectFirst { case known: SparkThrowable if known.getCondition != null => known }
    JList.of(known.fold("")(_.getCondition), known.fold("")(known => Option(known.getSqlState).getOrElse("")))
  }

  private val Workers = "org.apache.spark.api.python."

  /** Whether a commit conflicts with another writer's. */
  def isConflict(failure: Throwable): Boolean = causes(failure).exists(_.isInstanceOf[DeltaConcurrentModificationException])

  /** Whether a job failed at a malformed Variant. */
  def isDamage(failure: Throwable): Boolean =
    causes(failure).exists(cause => Option(cause.getMessage).exists(_.contains("MALFORMED_VARIANT")))
}
