package delta_variant;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.DeltaOperations;
import org.apache.spark.sql.delta.RowTracking$;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.functions;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * One transaction that puts files with the same rows in the place of others, by the steps of Delta's OPTIMIZE: `dataChange` is
 * false, so that it conflicts only with writers that remove or change the same files. Not thread-safe. Janino compiles this
 * file: no generics, no lambdas.
 */
public class Rewrite extends Write {
  private final SparkSession spark;
  private AddFile[] old = new AddFile[0];

  public Rewrite(SparkSession spark, SparkSession users, DeltaLog log, Option entry, String mode, Map options,
      List partitionBy, Map properties) {
    super(spark, users, log, entry, mode, options, partitionBy, properties);
    this.spark = spark;
  }

  /** A row for each file of the partitions that `where` selects: the columns of its Add action, with parsed statistics. */
  public org.apache.spark.sql.Dataset files(String where) {
    return AddFiles.of(transaction.metadata(), (Dataset) transaction.snapshot().withStats(),
        AddFiles.predicates(spark, transaction.metadata(), where)).toDF();
  }

  /**
   * The rows of these files, as many of them as the snapshot still has. With row tracking there are two more columns, which keep
   * the rows' ids (PROTOCOL.md, "Row Tracking").
   */
  public Dataset open(List paths) {
    Snapshot snapshot = transaction.snapshot();
    Object[] found = (Object[]) snapshot.allFiles().filter(functions.col("path").isin(paths.toArray())).collect();
    old = (AddFile[]) Arrays.copyOf(found, found.length, AddFile[].class);
    Seq files = seq(Arrays.asList(old));
    transaction.trackFilesRead(files);
    Dataset rows = (Dataset) transaction.deltaLog().createDataFrame(snapshot, files, false, Option.apply("Optimize"));
    return keepsRowIds() ? (Dataset) RowTracking$.MODULE$.preserveRowTrackingColumns(rows, snapshot) : rows;
  }

  private boolean keepsRowIds() {
    return RowTracking$.MODULE$.isEnabled(transaction.protocol(), transaction.metadata());
  }

  public int opened() {
    return old.length;
  }

  public long openedBytes() {
    long bytes = 0;
    for (int f = 0; f < old.length; f++) bytes += old[f].size();
    return bytes;
  }

  /**
   * Commits the new files in the place of the old ones. reorganizes: DESCRIBE HISTORY shows REORG, not OPTIMIZE. where: the
   * predicate on partition columns, or null. clusterBy: what the rows are ordered by. tags: more tags for the new files.
   */
  public void replace(boolean reorganizes, String where, List clusterBy, Map tags) {
    long now = System.currentTimeMillis();
    List added = new ArrayList();
    long[] sizes = new long[actions.size()];
    long bytes = 0;
    for (int a = 0; a < actions.size(); a++) {
      AddFile file = (AddFile) actions.get(a);
      Map all = new HashMap(scala.jdk.javaapi.CollectionConverters.asJava(file.tagsOrEmpty()));
      all.putAll(tags);
      added.add(AddFiles.copy(file, file.stats(), all));
      sizes[a] = file.size();
      bytes += file.size();
    }
    actions.clear();
    actions.addAll(added);
    int vectors = 0;
    for (int f = 0; f < old.length; f++) {
      actions.add(old[f].removeWithTimestamp(now, false));
      if (old[f].deletionVector() != null) vectors++;
    }
    Arrays.sort(sizes);
    Map metrics = new HashMap();
    metrics.put("numAddedFiles", Long.valueOf(added.size()));
    metrics.put("numAddedBytes", Long.valueOf(bytes));
    metrics.put("numRemovedFiles", Long.valueOf(old.length));
    metrics.put("numRemovedBytes", Long.valueOf(openedBytes()));
    metrics.put("numDeletionVectorsRemoved", Long.valueOf(vectors));
    String[] names = {"minFileSize", "p25FileSize", "p50FileSize", "p75FileSize", "maxFileSize"};
    for (int n = 0; n < names.length; n++) {
      metrics.put(names[n], Long.valueOf(sizes.length == 0 ? 0 : sizes[(sizes.length - 1) * n / 4]));
    }
    registerMetrics(metrics);
    Seq predicates = AddFiles.predicates(spark, transaction.metadata(), where);
    DeltaOperations.Operation operation = reorganizes
        ? (DeltaOperations.Operation) new DeltaOperations.Reorg(predicates, false)
        : new DeltaOperations.Optimize(predicates, seq(clusterBy), false, Option.empty(), false);
    scala.collection.immutable.Map none = scala.collection.immutable.Map$.MODULE$.empty();
    commit(operation, keepsRowIds() ? RowTracking$.MODULE$.addPreservedRowTrackingTagIfNotSet(transaction.snapshot(), none) : none);
  }
}
