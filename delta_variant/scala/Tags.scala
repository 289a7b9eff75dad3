package org.apache.spark.sql.delta.variant

import org.apache.spark.sql.delta.actions.AddFile

/** The tags of this package in Add actions (protocol/README.md, M1 to M3), by their names. */
object Tags {
  private val constants = Resources.constants

  /** Says that this package computed the bounds, if it has one of `markerValues`. */
  val marker: String = constants.marker
  val markerValues: Seq[String] = constants.markerValues

  /** Has the paths that the protocol gives no bounds. */
  val nonnull: String = constants.nonnull

  /** Has the bounds of strings that spell times. */
  val times: String = constants.times

  def isMarked(file: AddFile): Boolean = value(file, marker).exists(markerValues.contains(_))

  /** Whether the bounds of a file prove its typed columns. */
  def provesTypes(file: AddFile): Boolean = value(file, marker).exists(constants.typedValues.contains(_))

  /**
   * Whether each bound of a file is the value of some row, except for cut strings and the sign of zeros. This holds for files
   * with the marker and without deletion vectors.
   */
  def isExact(file: AddFile): Boolean = file.deletionVector == null && isMarked(file)

  def has(file: AddFile, tag: String): Boolean = value(file, tag).isDefined

  private def value(file: AddFile, tag: String): Option[String] = Option(file.tags).flatMap(_.get(tag))
}
