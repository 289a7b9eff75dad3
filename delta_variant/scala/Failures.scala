package org.apache.spark.sql.delta.variant

import java.nio.channels.ClosedByInterruptException

import scala.util.control.ControlThrowable

import org.apache.spark.SparkThrowable
import org.apache.spark.sql.delta.DeltaConcurrentModificationException

/** What a failure is, by itself and its causes. */
object Failures {

  def causes(failure: Throwable): Iterator[Throwable] = Iterator.iterate(failure)(_.getCause).takeWhile(_ != null)

  /** Whether the query's thread has to end after a failure: it was interrupted, its job was cancelled, or memory ran out. */
  def stops(failure: Throwable): Boolean = Thread.currentThread().isInterrupted || causes(failure).exists {
    case _: InterruptedException | _: OutOfMemoryError | _: ClosedByInterruptException | _: ControlThrowable => true
    case known: SparkThrowable => known.getCondition == "SPARK_JOB_CANCELLED"
    case _ => false
  }

  /** Whether a commit conflicts with another writer's. */
  def isConflict(failure: Throwable): Boolean = causes(failure).exists(_.isInstanceOf[DeltaConcurrentModificationException])

  /** Whether a job failed at a malformed Variant. */
  def isDamage(failure: Throwable): Boolean =
    causes(failure).exists(cause => Option(cause.getMessage).exists(_.contains("MALFORMED_VARIANT")))
}
