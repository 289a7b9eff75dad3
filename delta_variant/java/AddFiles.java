package delta_variant;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.DeltaLog$;
import org.apache.spark.sql.delta.DeltaTableUtils;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.actions.Metadata;
import scala.collection.immutable.Seq;

/** Add actions: chosen by `where`, a predicate on partition columns, and copied. Janino compiles this file: no generics. */
public class AddFiles {
  private static Seq seq(List values) {
    return scala.jdk.javaapi.CollectionConverters.asScala(values).toIndexedSeq();
  }

  /**
   * The predicate, resolved; empty for null. Delta would take one with an unresolved name that has a dot for a predicate on rows,
   * which every file might satisfy.
   */
  public static Seq predicates(SparkSession spark, Metadata metadata, String where) {
    List conditions = new ArrayList();
    if (where == null) return seq(conditions);
    Dataset partitions = (Dataset) spark.createDataFrame(new ArrayList(), metadata.partitionSchema());
    String refused = "where='" + where + "' is not a predicate on the partition columns ("
        + metadata.partitionColumns().mkString(", ") + ")";
    Expression condition;
    try {
      condition = ((Filter) ((Dataset) partitions.where(where)).queryExecution().analyzed()).condition();
    } catch (Throwable unresolved) {
      if (!(unresolved instanceof AnalysisException)) org.apache.spark.unsafe.Platform.throwException(unresolved);
      throw new IllegalArgumentException(refused + ": " + unresolved.getMessage(), unresolved);
    }
    if (!DeltaTableUtils.isPredicatePartitionColumnsOnly(condition, metadata.partitionColumns(), spark)) {
      throw new IllegalArgumentException(refused);
    }
    conditions.add(condition);
    return seq(conditions);
  }

  /** The Add actions, or rows with their columns, of the partitions for which the predicates are true. */
  public static org.apache.spark.sql.Dataset of(Metadata metadata, Dataset files, Seq predicates) {
    if (predicates.isEmpty()) return files;
    return DeltaLog$.MODULE$.filterFileList(metadata.partitionSchema(), files.toDF(), predicates, seq(new ArrayList()), true);
  }

  /** The same file with other statistics and tags, and `dataChange` = false. */
  public static AddFile copy(AddFile file, String stats, Map tags) {
    scala.collection.immutable.Map map = tags.isEmpty() ? null
        : scala.collection.immutable.Map$.MODULE$.from(scala.jdk.javaapi.CollectionConverters.asScala(tags));
    return file.copy(file.path(), file.partitionValues(), file.size(), file.modificationTime(), false, stats, map,
        file.deletionVector(), file.baseRowId(), file.defaultRowCommitVersion(), file.clusteringProvider(),
        file.copy$default$12(), file.copy$default$13());
  }
}
