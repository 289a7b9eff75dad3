package org.apache.spark.sql.delta.variant

import java.util.concurrent.atomic.AtomicLong
import java.util.function.{BiConsumer, UnaryOperator}

import scala.reflect.ClassTag
import scala.util.control.NonFatal

import org.slf4j.LoggerFactory

/**
 * Calls from the rules to Python (delta_variant/optimizer.py).
 *
 * A request is sent in pieces that are small enough for py4j to write each to its socket at once. py4j's writer has a buffer of
 * 8 KiB, and its socket waits for the other side's acknowledgment before it sends the rest, which takes 40 ms for every longer
 * text.
 *
 * @param decide a piece of a request => the reply, after the last piece
 * @param listener what it is about, and a text
 */
final class Python(decide: UnaryOperator[String], listener: BiConsumer[String, String]) {
  private val numbers = new AtomicLong

  def ask[Reply: ClassTag](request: Messages.Request[Reply]): Reply = {
    val number = numbers.incrementAndGet()
    val pieces = Messages.encoded(request).grouped(Python.Piece).toIndexedSeq
    pieces.init.foreach(piece => decide.apply(s"$number more $piece"))
    Messages.decoded[Reply](decide.apply(s"$number last ${pieces.last}"))
  }

  /** Tells of a failure, after which a query runs without a rule. */
  def tell(about: String, failure: String): Unit =
    try listener.accept(about, failure)
    catch {
      case NonFatal(_) => LoggerFactory.getLogger("delta_variant").warn(s"$about stepped aside: $failure") // Python is gone
    }

  /** Shows what the rules did for a scan, in sessions that ask for it. */
  def show(scan: Messages.ScanReport): Unit = listener.accept("scan", Messages.encoded(scan))
}

private object Python {
  private val Piece = 6000 // characters, all of them ASCII; py4j doubles backslashes
}
