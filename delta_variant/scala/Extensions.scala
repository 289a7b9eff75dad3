package org.apache.spark.sql.delta.variant

import scala.util.control.NonFatal

import org.apache.spark.SPARK_VERSION
import org.apache.spark.sql.SparkSessionExtensions
import org.slf4j.LoggerFactory

/**
 * The class for the setting spark.sql.extensions where no Python driver calls delta_variant.enable: in spark-sql, in the Thrift
 * and Connect servers that Spark's scripts start, in Scala drivers. Every session gets what `enable` gives, from its first
 * query on.
 *
 * No session fails because of it: without Delta, or with versions that the JAR was not compiled for, the log says so, and
 * sessions stay as they are. This class therefore does not use Delta's classes, and uses no class that does until the versions
 * are compared.
 */
final class Extensions extends (SparkSessionExtensions => Unit) {
  private val log = LoggerFactory.getLogger("delta_variant")

  override def apply(extensions: SparkSessionExtensions): Unit =
    try {
      val made = Resources.constants
      if (made.spark == SPARK_VERSION && made.delta == delta) NewSessions.offer(extensions)
      else
        log.warn(
          s"delta_variant does nothing in this session, which runs Spark $SPARK_VERSION with Delta $delta: its JAR is for Spark " +
            s"${made.spark} with Delta ${made.delta}, and the command delta-variant jar makes others")
    } catch {
      case failure @ (NonFatal(_) | _: LinkageError) => log.warn(s"delta_variant does nothing in this session: $failure")
    }

  /** The version of Delta, by reflection: the compiler would copy the constant into this class. */
  private def delta: String =
    try {
      val found = Class.forName("io.delta.package$", true, getClass.getClassLoader)
      found.getMethod("VERSION").invoke(found.getField("MODULE$").get(null)).toString
    } catch { case _: ClassNotFoundException => "(none)" }
}
