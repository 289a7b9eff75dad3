package delta_variant;

import java.util.ArrayList;
import org.apache.spark.sql.delta.OptimisticTransaction;
import org.apache.spark.sql.delta.actions.Action$;
import org.apache.spark.sql.delta.actions.AddFile;

/**
 * The actions of one commit. Files come and go by the hundred thousand: their actions are made and kept on this side,
 * and Python sends text and reads totals. One thread at a time.
 */
public class Actions {
  private final ArrayList actions = new ArrayList();
  private long removedFiles = 0;
  private long removedBytes = 0;

  /** Actions in JSON, one a line. */
  public void add(String lines) {
    String[] parts = lines.split("\n");
    for (int i = 0; i < parts.length; i++) {
      actions.add(Action$.MODULE$.fromJson(parts[i]));
    }
  }

  /** The removal of every file the transaction sees; it thereby reads the whole table, and conflicts with appends. */
  public void removeAll(OptimisticTransaction transaction) {
    remove(transaction.filterFiles());
  }

  /** The removal of the files that predicates on partition columns select, which are what the transaction reads. */
  public void removeWhere(OptimisticTransaction transaction, scala.collection.immutable.Seq predicates) {
    remove(transaction.filterFiles(predicates, false));
  }

  /** The removal of the files of the partitions that files were added to; call it after `add`. */
  public void removePartitions(OptimisticTransaction transaction) {
    remove(transaction.filterFiles(seq()));
  }

  private void remove(scala.collection.immutable.Seq removed) {
    long now = System.currentTimeMillis();
    scala.collection.Iterator files = removed.iterator();
    while (files.hasNext()) {
      AddFile file = (AddFile) files.next();
      actions.add(file.removeWithTimestamp(now, true));
      removedFiles += 1;
      removedBytes += file.size();
    }
  }

  public long removedFiles() {
    return removedFiles;
  }

  public long removedBytes() {
    return removedBytes;
  }

  public scala.collection.immutable.Seq seq() {
    return scala.jdk.javaapi.CollectionConverters.asScala((java.util.List) actions).toIndexedSeq();
  }
}
