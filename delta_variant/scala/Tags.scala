package org.apache.spark.sql.delta.variant

import org.apache.spark.sql.delta.actions.AddFile

/**
 * The tags of this package in Add actions (protocol/README.md, M1 to M3), by their names.
 *
 * @param marker says that this package computed the bounds, if it has one of `markerValues`
 * @param typedValues with these values it also says that every path with bounds is in a typed column
 * @param nonnull has the paths that the protocol gives no bounds
 * @param times has the bounds of strings that spell times
 */
final class Tags(
    val marker: String,
    val markerValues: Seq[String],
    typedValues: Seq[String],
    val nonnull: String,
    val times: String) {

  def isMarked(file: AddFile): Boolean = value(file, marker).exists(markerValues.contains(_))

  /** Whether the bounds of a file prove its typed columns. */
  def provesTypes(file: AddFile): Boolean = value(file, marker).exists(typedValues.contains(_))

  /**
   * Whether each bound of a file is the value of some row, except for cut strings and the sign of zeros. This holds for files
   * with the marker and without deletion vectors.
   */
  def isExact(file: AddFile): Boolean = file.deletionVector == null && isMarked(file)

  def has(file: AddFile, tag: String): Boolean = value(file, tag).isDefined

  private def value(file: AddFile, tag: String): Option[String] = Option(file.tags).flatMap(_.get(tag))
}

object Tags {
  private val constants = Resources.constants

  val ours: Tags = {
    import constants._
    new Tags(marker, markerValues, typedValues, nonnull, times)
  }
}
