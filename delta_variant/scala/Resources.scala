package org.apache.spark.sql.delta.variant

import java.nio.charset.StandardCharsets.UTF_8

/** The files of the JAR beside classes (delta_variant/jars.py). */
object Resources {

  /** The body of a class that makes record batches of rows, which executors compile. */
  val batches: String = text("Batches.java")

  /** The constants that Python and the JVM share. */
  val constants: Messages.Constants = Messages.decoded[Messages.Constants](text("constants.json"))

  private def text(name: String): String = {
    val stream = getClass.getResourceAsStream(name)
    try new String(stream.readAllBytes(), UTF_8)
    finally stream.close()
  }
}
