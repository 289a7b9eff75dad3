package org.apache.spark.sql.delta.variant

import org.apache.spark.sql.catalyst.catalog.CatalogTable
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.delta.{CheckpointProtectionTableFeature, DeltaLog, DeltaOperations, Snapshot}
import org.apache.spark.sql.delta.actions.DropTableFeatureUtils
import org.apache.spark.sql.delta.catalog.DeltaTableV2

/**
 * Takes a reader-writer feature out of the protocol of a table that has no trace of it any more. The steps are those of Delta's
 * DROP FEATURE with protected checkpoints: checkpoints, a commit that changes the protocol and protects them, and one more
 * checkpoint. Clients that do not know the feature never read the log before the protected checkpoints.
 *
 * The constructor makes the checkpoints, and starts the transaction on their last version.
 */
final class DropFeature(spark: SparkSession, log: DeltaLog, entry: Option[CatalogTable]) {
  private val table = DeltaTableV2(spark, log.dataPath, entry, options = log.options)

  for (_ <- 0 until Pairs.barrierCheckpoints) {
    if (!DropTableFeatureUtils.createEmptyCommitAndCheckpoint(table, System.nanoTime(), retryOnFailure = true)) {
      throw new IllegalStateException("a checkpoint could not be written")
    }
  }

  private val transaction = log.startTransaction(entry)
  transaction.filterFiles() // so that it conflicts with every commit that adds files

  def snapshot: Snapshot = transaction.snapshot

  /** Commits the protocol without the feature, and the metadata without its property. Returns the version. */
  def commit(feature: String, property: String): Long = {
    val protocol = transaction.protocol.denormalized.withFeature(CheckpointProtectionTableFeature)
    transaction.updateProtocol(protocol.copy(
        readerFeatures = protocol.readerFeatures.map(_ - feature),
        writerFeatures = protocol.writerFeatures.map(_ - feature)))
    val metadata = transaction.metadata.copy(configuration = transaction.metadata.configuration - property)
    transaction.updateMetadata(
      CheckpointProtectionTableFeature.metadataWithCheckpointProtection(metadata, transaction.readVersion + 1))
    val version = transaction.commit(Nil, DeltaOperations.DropTableFeature(feature, truncateHistory = false))
    DropTableFeatureUtils.createCheckpointWithRetries(table, System.nanoTime())
    version
  }
}
