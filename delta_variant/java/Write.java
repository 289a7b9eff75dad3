package delta_variant;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.Path;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.PythonRDD;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeAndComment;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.CommittedTransaction;
import org.apache.spark.sql.delta.DeltaConcurrentModificationException;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.DeltaOperations;
import org.apache.spark.sql.delta.DeltaOptions;
import org.apache.spark.sql.delta.OptimisticTransaction;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.actions.Action$;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.actions.SetTransaction;
import org.apache.spark.sql.delta.commands.CreateDeltaTableCommand;
import org.apache.spark.sql.delta.commands.TableCreationModes$Create$;
import org.apache.spark.sql.delta.commands.WriteIntoDelta;
import org.apache.spark.sql.delta.hooks.AutoCompact$;
import org.apache.spark.sql.execution.CacheManager;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.WholeStageCodegenEvaluatorFactory;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics;
import org.apache.spark.sql.types.StructType;
import scala.Function0;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * One write by the steps of Delta's WriteIntoDelta, except for its files: each step is Delta's own method, called in Delta's
 * order by delta_variant/transaction.py. protocol/README.md lists them.
 *
 * Add and Remove actions are made and kept on this side, since there may be hundreds of thousands of them. Not thread-safe.
 * Janino compiles this file: no generics, no lambdas.
 */
public class Write {
  private static final String NAME = "delta_variant.write";
  private static final String APPLICATION_OF_SESSION = "spark.databricks.delta.write.txnAppId";
  private static final ObjectMapper JSON = new ObjectMapper();

  private final WriteIntoDelta command;
  protected final OptimisticTransaction transaction;
  private final SparkSession users;  // its settings may hold a transaction identifier, which Delta resets there
  protected final ArrayList actions = new ArrayList();
  private SetTransaction announced = null;
  private boolean hasFiles = false;
  private boolean conflict = false;
  private String replaced = null;  // the predicate of what `removeRows` and `removeFiles` removed

  /**
   * Starts a transaction on the newest snapshot. spark: the write's own session. users: the session of the rows. entry: the
   * table in the catalog, if it is there. mode, options: those of DataFrameWriter. partitionBy, properties: for a new table.
   */
  public Write(SparkSession spark, SparkSession users, DeltaLog log, Option entry, String mode, Map options,
      List partitionBy, Map properties) {
    this.users = users;
    transaction = log.startTransaction(entry, none());
    command = new WriteIntoDelta(log, SaveMode.valueOf(mode), new DeltaOptions(map(options), spark.sessionState().conf()),
        seq(partitionBy), map(properties), spark.emptyDataFrame(), entry, none(), false);
  }

  public OptimisticTransaction transaction() {
    return transaction;
  }

  private static Option none() {
    return Option.empty();
  }

  protected static Seq seq(List values) {
    return scala.jdk.javaapi.CollectionConverters.asScala(values).toIndexedSeq();
  }

  private static scala.collection.immutable.Map map(Map values) {
    return scala.collection.immutable.Map$.MODULE$.from(scala.jdk.javaapi.CollectionConverters.asScala(values));
  }

  private void addAll(scala.collection.IterableOnce added) {
    for (Iterator i = added.iterator(); i.hasNext(); ) actions.add(i.next());
  }

  /** The version of this write's application that the table has, if that is this write's version or a later one; else null. */
  public Long executedVersion() {
    if (!command.hasBeenExecuted(transaction, users, Option.apply(command.options()))) return null;
    Option application = command.options().txnAppId();
    String id = application.isDefined() ? (String) application.get() : users.conf().get(APPLICATION_OF_SESSION);
    return Long.valueOf(transaction.txnVersion(id));
  }

  public boolean canMergeSchema() {
    return command.canMergeSchema();
  }

  /** Merges the schema of the rows into the table's, replaces the table's, or checks that both agree, as the options say. */
  public void updateMetadata(StructType schema) {
    boolean first = transaction.canUpdateMetadata();
    boolean overwrite = command.mode() == SaveMode.Overwrite;
    command.updateMetadata(command.data().sparkSession(), transaction, schema, command.partitionColumns(),
        command.configuration(), overwrite, false);
    addAll(command.getNewDomainMetadata(
        transaction, first, overwrite && !command.options().isInsertAtomicReplaceOp(), none()));
  }

  /**
   * The rows of the snapshot, which the transaction thereby reads. They are read from the files, whatever Spark has cached of the
   * table.
   */
  public org.apache.spark.sql.Dataset rows() {
    return transaction.deltaLog().createDataFrame(transaction.snapshot(), transaction.filterFiles(), false, none());
  }

  /** Makes the directories of a new table. */
  public void createLog() {
    if (transaction.readVersion() < 0) transaction.deltaLog().createLogDirectoriesIfNotExists();
  }

  // ---- the job --------------------------------------------------------------------------------------------------

  private static final scala.reflect.ClassTag ROW = scala.reflect.ClassTag$.MODULE$.apply(InternalRow.class);

  /** A DataFrame with these columns and no rows. Its plan is a leaf, in whose place `run` puts the rows. */
  public static Dataset placeholder(SparkSession spark, StructType schema) {
    return spark.internalCreateDataFrame(spark.sparkContext().emptyRDD(ROW), schema, false);
  }

  /** The sort keys of `source` before the first that is not a column: [index of the column, ascending, nulls first] each. */
  public String ordering(final Dataset source) {
    final ArrayNode keys = JSON.createArrayNode();
    OptimisticTransaction.withActive(transaction, false, new scala.runtime.AbstractFunction0() {
      public Object apply() {
        List columns = new ArrayList();
        SparkPlan plan = source.queryExecution().executedPlan();
        for (Iterator i = plan.output().iterator(); i.hasNext(); ) {
          columns.add(((Attribute) i.next()).exprId());
        }
        for (Iterator i = plan.outputOrdering().iterator(); i.hasNext(); ) {
          SortOrder order = (SortOrder) i.next();
          if (!(order.child() instanceof Attribute)) break;
          int index = columns.indexOf(((Attribute) order.child()).exprId());
          if (index < 0) break;
          keys.addArray().add(index).add("ASC".equals(order.direction().sql()))
              .add("NULLS FIRST".equals(order.nullOrdering().sql()));
        }
        return null;
      }
    });
    return keys.toString();
  }

  /**
   * Runs the job. The rows of `source` are planned and run in their own session, as one execution, which the listeners and
   * observations of that session see. This transaction is then Delta's active one, so what the rows read from the table is
   * recorded.
   *
   * rows: a DataFrame over the placeholder of `source`. batches: the source of a class body that makes record batches of its
   * rows (Batches.java). task: a PySpark function from record batches to the reports of delta_variant/writer/task.py. Returns
   * the totals of the reports, as JSON.
   */
  public String run(final Dataset source, final Dataset rows, final PythonFunction task, final String batches) {
    transaction.hasWritten_$eq(true);
    final QueryExecution execution = source.queryExecution();
    final Function0 job = new scala.runtime.AbstractFunction0() {
      public Object apply() {
        RDD messages = batches(under(rows, execution.toRdd()), rows.schema(), batches, rows.sparkSession());
        try {
          return totals((byte[][]) new PythonRDD(messages, task, false, false).collect());
        } catch (java.io.IOException notJson) {
          org.apache.spark.unsafe.Platform.throwException(notJson);
          return null;
        }
      }
    };
    return (String) OptimisticTransaction.withActive(transaction, false, new scala.runtime.AbstractFunction0() {
      public Object apply() {
        return SQLExecution.withNewExecutionId(execution, Option.apply(NAME), job);
      }
    });
  }

  /** The result of a plan in which these rows take the place of its leaf. */
  private static RDD under(final Dataset plan, final RDD rows) {
    LogicalPlan analyzed = plan.queryExecution().analyzed();
    if (analyzed instanceof LogicalRDD) return rows;
    LogicalPlan whole = (LogicalPlan) analyzed.transformUp(new scala.runtime.AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return node instanceof LogicalRDD;
      }

      public Object applyOrElse(Object node, scala.Function1 otherwise) {
        if (!isDefinedAt(node)) return otherwise.apply(node);
        LogicalRDD leaf = (LogicalRDD) node;
        return new LogicalRDD(leaf.output(), rows, leaf.outputPartitioning(), leaf.outputOrdering(), false, leaf.stream(),
            plan.sparkSession(), none(), none());
      }
    });
    return Dataset.ofRows(plan.sparkSession(), whole).queryExecution().toRdd();
  }

  /**
   * The record batches of rows, each a byte[]. They are made in the executors: Spark sends the source there and compiles it.
   * It also compiles there the code that takes the arrays out of the rows that the source yields.
   */
  public static RDD batches(RDD rows, StructType schema, String source, SparkSession spark) {
    CodeAndComment code = new CodeAndComment(source, map(new HashMap()));
    SQLMetric duration = SQLMetrics.createTimingMetric(rows.sparkContext(), "duration", -1);
    RDD batches = rows.mapPartitionsWithEvaluator(
        new WholeStageCodegenEvaluatorFactory(new scala.util.Right(code), duration, new Object[] {schema}), ROW);
    return spark.internalCreateDataFrame(batches, new StructType().add("batch", "binary"), false).as(Encoders.BINARY()).rdd();
  }

  /** Keeps the Add actions of the reports. Returns the totals, or the first error, as JSON. */
  private String totals(byte[][] reports) throws java.io.IOException {
    int files = 0;
    long rows = 0;
    long bytes = 0;
    int plain = 0;
    ObjectNode totals = JSON.createObjectNode();
    ArrayNode shredded = totals.putArray("shredded");
    for (int r = 0; r < reports.length; r++) {
      JsonNode report = JSON.readTree(reports[r]);
      if (report.has("error")) return totals.set("error", report.get("error")).toString();
      if (report.has("malformed")) {
        ObjectNode all = totals.withObject("/malformed");
        for (java.util.Iterator i = report.get("malformed").fields(); i.hasNext(); ) {
          Map.Entry file = (Map.Entry) i.next();
          String name = (String) file.getKey();
          all.put(name, all.path(name).asLong() + ((JsonNode) file.getValue()).asLong());
        }
        continue;
      }
      files++;
      actions.add(Action$.MODULE$.fromJson(report.get("add").asText()));
      rows += report.get("rows").asLong();
      bytes += report.get("size").asLong();
      shredded.add(report.get("shredded"));
      if (report.get("left_plain").asBoolean()) plain++;
    }
    Map metrics = new HashMap();
    metrics.put("numFiles", Long.valueOf(files));
    metrics.put("numOutputRows", Long.valueOf(rows));
    metrics.put("numOutputBytes", Long.valueOf(bytes));
    registerMetrics(metrics);
    hasFiles = files > 0;
    return totals.put("files", files).put("rows", rows).put("bytes", bytes).put("left_plain", plain).toString();
  }

  /** Registers what DESCRIBE HISTORY shows as operationMetrics. */
  protected void registerMetrics(Map metrics) {
    SparkSession spark = (SparkSession) command.data().sparkSession();
    Map registered = new HashMap();
    for (java.util.Iterator i = metrics.entrySet().iterator(); i.hasNext(); ) {
      Map.Entry metric = (Map.Entry) i.next();
      SQLMetric registeredMetric = SQLMetrics.createMetric(spark.sparkContext(), (String) metric.getKey());
      registeredMetric.set(((Long) metric.getValue()).longValue());
      registered.put(metric.getKey(), registeredMetric);
    }
    transaction.registerSQLMetrics(spark, map(registered));
  }

  // ---- removed files ----------------------------------------------------------------------------------------------

  /** Removes every file of the snapshot. The transaction thereby reads the whole table, so it conflicts with appends. */
  public void removeAll() {
    remove(transaction.filterFiles());
  }

  /** Removes the files that a predicate on partition columns selects; the transaction reads these files. */
  public void removeWhere(String predicate) {
    SparkSession spark = (SparkSession) command.data().sparkSession();
    remove(transaction.filterFiles(AddFiles.predicates(spark, transaction.metadata(), predicate), false));
  }

  /** Removes the old files of the partitions to which `run` added files. */
  public void removePartitions() {
    List added = new ArrayList();
    for (java.util.Iterator i = actions.iterator(); i.hasNext(); ) {
      Object action = i.next();
      if (action instanceof AddFile) added.add(action);
    }
    remove(transaction.filterFiles(seq(added)));
  }

  /** Removes the rows that have one of these texts in a column, by Delta's DELETE. */
  public void removeRows(String column, List values) {
    SparkSession spark = (SparkSession) command.data().sparkSession();
    Expression condition = Replace.among(column, values);
    List removed = new Replace(spark, transaction).rows(condition);
    command.registerInsertReplaceMetrics(spark, transaction, seq(actions), seq(removed));
    actions.addAll(removed);
    replaced = Replace.shown(column, values);
  }

  /** Removes data files. Returns false if the table does not have all of them any more, with all of their rows. */
  public boolean removeFiles(List paths) {
    SparkSession spark = (SparkSession) command.data().sparkSession();
    List files = new Replace(spark, transaction).files(paths);
    if (files == null) return false;
    List removed = new ArrayList();
    long now = System.currentTimeMillis();
    for (int f = 0; f < files.size(); f++) removed.add(((AddFile) files.get(f)).removeWithTimestamp(now, true));
    command.registerInsertReplaceMetrics(spark, transaction, seq(actions), seq(removed));
    command.registerOverwriteRemoveMetrics(spark, transaction, seq(removed));
    actions.addAll(removed);
    replaced = Replace.shown(null, paths);
    return true;
  }

  private void remove(Seq files) {
    long now = System.currentTimeMillis();
    List removed = new ArrayList();
    for (Iterator i = files.iterator(); i.hasNext(); ) removed.add(((AddFile) i.next()).removeWithTimestamp(now, true));
    command.registerOverwriteRemoveMetrics(command.data().sparkSession(), transaction, seq(removed));
    actions.addAll(removed);
  }

  // ---- the commit ---------------------------------------------------------------------------------------------------

  /**
   * Commits transaction identifiers with the rest. identifiers: JSON, the versions by application. Returns those that the table
   * has already, as JSON. Delta refuses the commit if another writer commits one of them in between.
   */
  public String identify(String identifiers) throws java.io.IOException {
    ObjectNode there = JSON.createObjectNode();
    Option now = Option.apply(Long.valueOf(System.currentTimeMillis()));
    for (java.util.Iterator i = JSON.readTree(identifiers).fields(); i.hasNext(); ) {
      Map.Entry identifier = (Map.Entry) i.next();
      String application = (String) identifier.getKey();
      long known = transaction.txnVersion(application);
      if (known >= 0) there.put(application, known);
      actions.add(new SetTransaction(application, ((JsonNode) identifier.getValue()).asLong(), now));
    }
    return there.toString();
  }

  /**
   * Commits the first transaction identifier of an application with the rest, if the table has none. The transaction does not
   * read it, so that no other writer conflicts.
   */
  public void announce(String application) {
    Option known = transaction.readVersion() < 0 ? none() : transaction.snapshot().transactions().get(application);
    Option now = Option.apply(Long.valueOf(System.currentTimeMillis()));
    if (known.isEmpty()) announced = new SetTransaction(application, 0L, now);
  }

  /** Commits. createsName: whether the commit is recorded as the creation of a table by name, and not as a write. */
  public void commit(boolean createsName) {
    if (hasFiles) transaction.registerPostCommitHook(AutoCompact$.MODULE$);
    Option identifier = command.createSetTransaction(users, transaction.deltaLog(), Option.apply(command.options()));
    addAll(identifier);
    if (createsName) transaction.removeExistsDefaultFromSchema();
    DeltaOperations.Operation operation = createsName
        ? (DeltaOperations.Operation) new DeltaOperations.CreateTable(transaction.metadata(), true, true, none())
        : write();
    try {
      commit(operation, scala.collection.immutable.Map$.MODULE$.empty());
    } finally {
      if (version() >= 0) recache();
    }
  }

  /**
   * Has Spark read anew what it has cached of the table, as the commands do that write to Delta tables: plans that read its
   * directory, under whatever name, and for Delta's DSv2 reader, which has no directory, plans that read its name.
   */
  private void recache() {
    CacheManager cache = users.sharedState().cacheManager();
    if (cache.isEmpty()) return;
    Path path = transaction.deltaLog().dataPath();
    try {
      cache.recacheByPath(users, path, path.getFileSystem(transaction.deltaLog().newDeltaHadoopConf()));
    } catch (Throwable failure) {
      // A plan with columns that the table has no longer. Spark has dropped all of these plans before it planned the first anew.
      if (!(failure instanceof AnalysisException)) org.apache.spark.unsafe.Platform.throwException(failure);
    }
    Option entry = transaction.catalogTable();
    if (entry.isDefined()) cache.recacheTableOrView(users, ((CatalogTable) entry.get()).identifier().nameParts(), false);
  }

  /** Commits the actions. tags: those of the CommitInfo. */
  protected void commit(DeltaOperations.Operation operation, scala.collection.immutable.Map tags) {
    if (announced != null) actions.add(announced);
    try {
      transaction.commitIfNeeded(seq(actions), operation, tags);
    } catch (Throwable failure) {
      for (Throwable t = failure; t != null; t = t.getCause()) conflict |= t instanceof DeltaConcurrentModificationException;
      org.apache.spark.unsafe.Platform.throwException(failure);
    }
  }

  private DeltaOperations.Operation write() {
    boolean dynamic = command.mode() == SaveMode.Overwrite && command.options().isDynamicPartitionOverwriteMode();
    SaveMode mode = replaced == null ? command.mode() : SaveMode.Overwrite;
    Option predicate = replaced == null ? command.options().replaceWhere() : Option.apply(replaced);
    return new DeltaOperations.Write(mode, Option.apply(command.partitionColumns()), predicate,
        command.options().userMetadata(), trueOrNone(dynamic), trueOrNone(command.canOverwriteSchema()),
        trueOrNone(command.canMergeSchema()), none(), none());
  }

  private static Option trueOrNone(boolean option) {
    return option ? Option.apply(Boolean.TRUE) : none();
  }

  /** Puts a new table, which is committed at `location`, into the catalog as a managed table, as saveAsTable does. */
  public void register(SparkSession spark, TableIdentifier name, java.net.URI location) {
    CatalogStorageFormat empty = CatalogStorageFormat.empty();
    CatalogStorageFormat storage = empty.copy(Option.apply(location), empty.inputFormat(), empty.outputFormat(),
        empty.serde(), empty.compressed(), empty.properties(), empty.serdeName());
    CatalogTable table = new CatalogTable(name, CatalogTableType.MANAGED(), storage, new StructType(),
        Option.apply("delta"), CatalogTable.$lessinit$greater$default$6(), none(), CatalogTable.$lessinit$greater$default$8(),
        CatalogTable.$lessinit$greater$default$9(), CatalogTable.$lessinit$greater$default$10(),
        CatalogTable.$lessinit$greater$default$11(), CatalogTable.$lessinit$greater$default$12(), none(), none(), none(),
        none(), CatalogTable.$lessinit$greater$default$17(), true, CatalogTable.$lessinit$greater$default$19(),
        CatalogTable.$lessinit$greater$default$20(), none(), none());
    Option committed = transaction.getCommitted();
    Snapshot snapshot = ((CommittedTransaction) committed.get()).postCommitSnapshot();
    new CreateDeltaTableCommand(table, none(), SaveMode.ErrorIfExists, none(), TableCreationModes$Create$.MODULE$, false,
        seq(new ArrayList()), none(), false, none()).updateCatalog(spark, table, snapshot, none(), false, none());
  }

  /** The version that was committed; -1 before the commit. */
  public long version() {
    Option committed = transaction.getCommitted();
    return committed.isDefined() ? ((CommittedTransaction) committed.get()).committedVersion() : -1;
  }

  /** Whether the commit failed because it conflicts with another writer's commit. */
  public boolean conflict() {
    return conflict;
  }
}
