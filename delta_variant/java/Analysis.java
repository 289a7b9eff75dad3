package delta_variant;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.PythonRDD;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.DeltaConcurrentModificationException;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.DeltaOperations;
import org.apache.spark.sql.delta.OptimisticTransaction;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.actions.SetTransaction;
import org.apache.spark.sql.functions;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * The files of a table whose statistics are computed anew, batch by batch: the Add actions of a batch, the job that reads the
 * files, and the commit of the same actions with other statistics and tags, as Delta's own recomputation of statistics has it
 * (StatisticsCollection.recompute): each action as it was, with `dataChange` = false.
 *
 * Add actions are kept on this side, since there may be many. Not thread-safe. Janino compiles this file: no generics, no
 * lambdas.
 */
public class Analysis {
  private static final int TASKS_PER_CORE = 4;
  private static final int TRIES = 10;
  private static final String APPLICATION = "delta_variant.analyze";  // its transaction identifier, protocol/README.md, W4
  private static final ObjectMapper JSON = new ObjectMapper();

  private final SparkSession spark;
  private final DeltaLog log;
  private final Option entry;
  private final Column wanted;  // over the columns of Add actions
  private Seq predicates;
  private int batches = 1;
  private Snapshot snapshot;
  private int batch;
  private List adds;  // the Add actions of the batch
  private Map changed;  // path -> the same action with other statistics and tags

  /**
   * entry: the table in the catalog. marker, markerValues: the tag of files that are left out unless `all`.
   */
  public Analysis(SparkSession spark, DeltaLog log, Option entry, String marker, List markerValues, boolean all) {
    this.spark = spark;
    this.log = log;
    this.entry = entry;
    Column value = functions.col("tags").getItem(marker);
    wanted = all ? functions.lit(Boolean.TRUE) : value.isNull().or(functions.not(value.isin(markerValues.toArray())));
  }

  private static Seq seq(List values) {
    return scala.jdk.javaapi.CollectionConverters.asScala(values).toIndexedSeq();
  }

  /** The Add actions that are to be looked at, in a version of the table. */
  private Dataset files(Snapshot snapshot) {
    Dataset files = snapshot.allFiles().filter(wanted);
    if (predicates.isEmpty()) return files;
    org.apache.spark.sql.classic.Dataset all = (org.apache.spark.sql.classic.Dataset) files;
    return AddFiles.of(snapshot.metadata(), all, predicates).as(all.encoder());
  }

  /** The Add actions of a batch, which the hashes of their paths decide. */
  private List adds(Snapshot snapshot, int batch) {
    Column hash = functions.pmod(functions.xxhash64(new Column[] {functions.col("path")}), functions.lit(Integer.valueOf(batches)));
    return java.util.Arrays.asList((Object[]) files(snapshot).filter(hash.equalTo(Integer.valueOf(batch))).collect());
  }

  /**
   * Divides the files into batches of about `size`. where: a predicate on partition columns; null for all files. Returns the
   * number of batches and the files' number and bytes, as JSON.
   */
  public String start(int size, String where) {
    snapshot = log.update(false, Option.empty(), entry);
    predicates = AddFiles.predicates(spark, snapshot.metadata(), where);
    Row totals = (Row) files(snapshot).agg(functions.count("*"), new Column[] {functions.sum("size")}).first();
    batches = (int) Math.max(1, (totals.getLong(0) + size - 1) / size);
    return JSON.createObjectNode().put("batches", totals.getLong(0) == 0 ? 0 : batches).put("files", totals.getLong(0))
        .put("bytes", totals.isNullAt(1) ? 0 : totals.getLong(1)).toString();
  }

  /** Throws IllegalArgumentException if `where` is not a predicate on the partition columns. */
  public void check(String where) {
    AddFiles.predicates(spark, log.update(false, Option.empty(), entry).metadata(), where);
  }

  /** The Add actions of all batches, as a DataFrame. */
  public Dataset listed() {
    return files(snapshot).toDF();
  }

  /**
   * Commits the next transaction identifier of this application, or only the first one if there is nothing new. Such a commit
   * conflicts with no other one, since it has read nothing. Returns its version, -1 without one.
   */
  public long announce(String application, boolean isNew) {
    Option last = log.update(false, Option.empty(), entry).transactions().get(application);
    if (last.isDefined() && !isNew) return -1;
    long next = last.isDefined() ? ((Number) last.get()).longValue() + 1 : 0;
    List actions = new ArrayList();
    actions.add(new SetTransaction(application, next, Option.apply(Long.valueOf(System.currentTimeMillis()))));
    OptimisticTransaction transaction = log.startTransaction(entry, Option.empty());
    return transaction.commit(seq(actions), new DeltaOperations.ComputeStats(seq(new ArrayList())));
  }

  /**
   * Reads the files of a batch. task: a PySpark function from the messages of delta_variant/analysis/task.py to its reports.
   * Returns their totals, as JSON.
   */
  public String run(int batch, PythonFunction task) throws java.io.IOException {
    this.batch = batch;
    snapshot = log.update(false, Option.empty(), entry);
    adds = adds(snapshot, batch);
    changed = new HashMap();
    ObjectNode totals = JSON.createObjectNode().put("files", adds.size());
    ObjectNode failed = totals.putObject("failed");
    ObjectNode sources = totals.putObject("sources");
    long read = 0;
    long rows = 0;
    long bytes = 0;
    List messages = new ArrayList();
    for (int f = 0; f < adds.size(); f++) {
      AddFile file = (AddFile) adds.get(f);
      bytes += file.size();
      ObjectNode message = JSON.createObjectNode().put("file", f).put("path", file.path()).put("stats", file.stats());
      ObjectNode tags = message.putObject("tags");
      for (scala.collection.Iterator i = file.tagsOrEmpty().iterator(); i.hasNext(); ) {
        scala.Tuple2 tag = (scala.Tuple2) i.next();
        tags.put((String) tag._1(), (String) tag._2());
      }
      messages.add(JSON.writeValueAsBytes(message));
    }
    if (!messages.isEmpty()) {
      Collections.shuffle(messages, new java.util.Random(0));  // so that tasks have equal parts of large files
      JavaSparkContext context = JavaSparkContext.fromSparkContext(spark.sparkContext());
      int tasks = Math.min(messages.size(), TASKS_PER_CORE * context.defaultParallelism());
      byte[][] reports = (byte[][]) new PythonRDD(context.parallelize(messages, tasks).rdd(), task, false, false).collect();
      for (int r = 0; r < reports.length; r++) {
        JsonNode report = JSON.readTree(reports[r]);
        AddFile file = (AddFile) adds.get(report.get("file").asInt());
        read += report.get("read").asLong();
        if (report.has("failed")) {
          failed.set(file.path(), report.get("failed"));
        } else if (report.has("stats")) {
          changed.put(file.path(), with(file, report));
          rows += report.get("rows").asLong();
          String source = report.get("source").asText();
          sources.put(source, sources.path(source).asInt() + 1);
        }
      }
    }
    return totals.put("read", read).put("rows", rows).put("bytes", bytes).toString();
  }

  private static AddFile with(AddFile file, JsonNode report) {
    Map tags = new HashMap();
    for (java.util.Iterator i = report.get("tags").fields(); i.hasNext(); ) {
      Map.Entry tag = (Map.Entry) i.next();
      tags.put(tag.getKey(), ((JsonNode) tag.getValue()).asText());
    }
    return AddFiles.copy(file, report.get("stats").asText(), tags);
  }

  /**
   * Commits the changed actions of the batch. An action that another writer has changed or removed since is left out. Returns the
   * version, -1 if there was nothing to commit, the number of files committed, and the paths of those left out, as JSON.
   */
  public String commit() {
    ObjectNode done = JSON.createObjectNode().put("version", -1).put("files", 0);
    ArrayNode left = done.putArray("changed");
    Snapshot read = snapshot;
    List mine = new ArrayList();
    for (int f = 0; f < adds.size(); f++) {
      if (changed.containsKey(((AddFile) adds.get(f)).path())) mine.add(adds.get(f));
    }
    for (int attempt = 1; !mine.isEmpty(); attempt++) {
      OptimisticTransaction transaction = log.startTransaction(entry, Option.empty());
      if (transaction.readVersion() != read.version()) {
        read = transaction.snapshot();
        Set now = new HashSet(adds(read, batch));
        List same = new ArrayList();
        for (int f = 0; f < mine.size(); f++) {
          if (now.contains(mine.get(f))) same.add(mine.get(f));
          else left.add(((AddFile) mine.get(f)).path());
        }
        mine = same;
        if (mine.isEmpty()) break;
      }
      transaction.trackFilesRead(seq(mine));
      List actions = new ArrayList();
      for (int f = 0; f < mine.size(); f++) actions.add(changed.get(((AddFile) mine.get(f)).path()));
      // Delta sees no conflict between two commits that add the same file, so that two analyses need this one.
      long earlier = transaction.txnVersion(APPLICATION);
      actions.add(new SetTransaction(APPLICATION, earlier + 1, Option.apply(Long.valueOf(System.currentTimeMillis()))));
      try {
        long version = transaction.commit(seq(actions), new DeltaOperations.ComputeStats(predicates));
        return done.put("version", version).put("files", mine.size()).toString();
      } catch (Throwable failure) {
        // Another writer has removed or changed one of the files in between: the next attempt leaves it out.
        if (attempt == TRIES || !isConflict(failure)) org.apache.spark.unsafe.Platform.throwException(failure);
      }
    }
    return done.toString();
  }

  private static boolean isConflict(Throwable failure) {
    for (Throwable t = failure; t != null; t = t.getCause()) {
      if (t instanceof DeltaConcurrentModificationException) return true;
    }
    return false;
  }
}
