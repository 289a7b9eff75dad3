package org.apache.spark.sql.delta.variant

import java.util.concurrent.atomic.AtomicLong
import java.util.function.{BiConsumer, UnaryOperator}

import scala.reflect.ClassTag
import scala.util.control.NonFatal

import org.slf4j.LoggerFactory

/**
 * Calls from the rules and the writes to Python (delta_variant/answers.py): to the Python driver by py4j (PythonDriver), or, without
 * one, to a process of our own (PythonProcess). Messages are the same.
 */
abstract class Python {

  /** The reply to a request, both as JSON. Throws if Python raises, or cannot answer. */
  protected def reply(request: String): String

  /** Passes on a subject and a text. */
  protected def pass(about: String, text: String): Unit

  final def ask[Reply: ClassTag](request: Messages.Request[Reply]): Reply =
    Messages.decoded[Reply](reply(Messages.encoded(request)))

  /** Tells of a failure, after which a query runs without a rule. */
  final def tell(about: String, failure: String): Unit =
    try pass(about, failure)
    catch {
      case NonFatal(_) => Python.log.warn(s"$about stepped aside: $failure") // Python is gone
    }

  /** Shows what the rules did for a scan, in sessions that ask for it. */
  final def show(scan: Messages.ScanReport): Unit = pass("scan", Messages.encoded(scan))
}

object Python {
  private[variant] val log = LoggerFactory.getLogger("delta_variant")
}

/**
 * The Python driver (delta_variant/callbacks.py).
 *
 * A request is sent in chunks that are small enough for py4j to write each to its socket at once. py4j's writer has a buffer of
 * 8 KiB, and its socket waits for the other side's acknowledgment before it sends the rest, which takes 40 ms for every longer
 * text.
 *
 * @param decide a chunk of a request => the reply, after the last chunk
 * @param listener gets a subject and a text
 */
final class PythonDriver(decide: UnaryOperator[String], listener: BiConsumer[String, String]) extends Python {
  private val numbers = new AtomicLong

  override protected def reply(request: String): String = {
    val number = numbers.incrementAndGet()
    val chunks = request.grouped(PythonDriver.Chunk).toIndexedSeq
    chunks.init.foreach(chunk => decide.apply(s"$number more $chunk"))
    decide.apply(s"$number last ${chunks.last}")
  }

  override protected def pass(about: String, text: String): Unit = listener.accept(about, text)
}

private object PythonDriver {
  private val Chunk = 6000 // characters, all of them ASCII; py4j doubles backslashes
}
