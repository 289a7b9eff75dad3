package delta_variant;

import java.util.ArrayList;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.CheckpointProtectionTableFeature$;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.DeltaOperations;
import org.apache.spark.sql.delta.OptimisticTransaction;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.actions.DropTableFeatureUtils$;
import org.apache.spark.sql.delta.actions.Metadata;
import org.apache.spark.sql.delta.actions.Protocol;
import org.apache.spark.sql.delta.catalog.DeltaTableV2;
import org.apache.spark.sql.delta.catalog.DeltaTableV2$;
import scala.Option;
import scala.collection.immutable.Map;
import scala.collection.immutable.Set;

/**
 * Takes a reader-writer feature out of the protocol of a table that has no trace of it any more, by the steps of Delta's DROP
 * FEATURE with protected checkpoints: checkpoints that clients which do not know the feature never go behind, one commit that
 * changes the protocol and protects them, and one more checkpoint. Janino compiles this file: no generics, no lambdas.
 */
public class DropFeature {
  private final DeltaTableV2 table;
  private final OptimisticTransaction transaction;

  /** Makes the checkpoints, and starts the transaction on the version that they end with. */
  public DropFeature(SparkSession spark, DeltaLog log, Option entry) {
    table = DeltaTableV2$.MODULE$.apply(spark, log.dataPath(), entry, Option.empty(), log.options(), Option.empty());
    DropTableFeatureUtils$ steps = DropTableFeatureUtils$.MODULE$;
    for (int c = 0; c < steps.NUMBER_OF_BARRIER_CHECKPOINTS(); c++) {
      if (!steps.createEmptyCommitAndCheckpoint(table, System.nanoTime(), true)) {
        throw new IllegalStateException("a checkpoint could not be written");
      }
    }
    transaction = log.startTransaction(entry, Option.empty());
    transaction.filterFiles();  // so that it conflicts with every commit that adds files
  }

  public Snapshot snapshot() {
    return transaction.snapshot();
  }

  /** Commits the protocol without the feature, and the metadata without its property. Returns the version. */
  public long commit(String feature, String property) {
    Protocol with = transaction.protocol().denormalized().withFeature(CheckpointProtectionTableFeature$.MODULE$);
    transaction.updateProtocol(with.copy(with.minReaderVersion(), with.minWriterVersion(),
        without(with.readerFeatures(), feature), without(with.writerFeatures(), feature)));
    Metadata metadata = transaction.metadata();
    Map properties = (Map) metadata.configuration().removed(property);
    metadata = metadata.copy(metadata.id(), metadata.name(), metadata.description(), metadata.format(), metadata.schemaString(),
        metadata.partitionColumns(), properties, metadata.createdTime());
    transaction.updateMetadata(
        CheckpointProtectionTableFeature$.MODULE$.metadataWithCheckpointProtection(metadata, transaction.readVersion() + 1), false);
    scala.collection.immutable.Seq none = scala.jdk.javaapi.CollectionConverters.asScala(new ArrayList()).toIndexedSeq();
    long version = transaction.commit(none, new DeltaOperations.DropTableFeature(feature, false));
    DropTableFeatureUtils$.MODULE$.createCheckpointWithRetries(table, System.nanoTime());
    return version;
  }

  private static Option without(Option features, String feature) {
    return features.isEmpty() ? features : Option.apply(((Set) features.get()).excl(feature));
  }
}
