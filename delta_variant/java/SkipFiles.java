package delta_variant;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.planning.PhysicalOperation$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.catalyst.trees.TreePattern$;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.files.TahoeBatchFileIndex;
import org.apache.spark.sql.delta.files.TahoeFileIndex;
import org.apache.spark.sql.delta.stats.DeltaScan;
import org.apache.spark.sql.delta.stats.PreparedDeltaFileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * The part of skipping that has to be Java: it finds a prepared Delta scan under a filter on a VARIANT column, hands
 * the filter to Python as JSON (Filters), and drops the files for which the SQL predicate that comes back is FALSE
 * (Bounds).
 *
 * Only PreparedDeltaFileIndex is replaced. Whatever goes wrong, the plan given is the plan returned; interruption and
 * cancellation go through. Janino compiles this file: no generics, no lambdas.
 */
public class SkipFiles extends Rule {
  public static final String NAME = "delta_variant.SkipFiles";
  private static final String TRUST_ALL = "spark.delta_variant.trustAllBounds";
  private static final TreeNodeTag OUTCOME = new TreeNodeTag(NAME);  // on a LogicalRelation: what Python answered, JSON
  private static final ThreadLocal BUSY = new ThreadLocal();  // the rule plans a query of its own
  private static final ThreadLocal EXPLAINING = new ThreadLocal();  // whoever plans wants to know why
  private static final ObjectMapper JSON = new ObjectMapper();

  private final java.util.function.UnaryOperator translate;  // request JSON -> {"sql": text or null, ...}
  private final java.util.function.BiConsumer tell;  // level, text
  private final String[] tags;  // the mark and its value, the tag for what the protocol has no bounds for
  private final Map found;  // the session settings that delta_variant.enable changed, as they were

  public SkipFiles(java.util.function.UnaryOperator translate, java.util.function.BiConsumer tell, String mark,
      String markValue, String nonNull, Map found) {
    this.translate = translate;
    this.tell = tell;
    this.tags = new String[] {mark, markValue, nonNull};
    this.found = found;
  }

  public String ruleName() {
    return NAME;
  }

  public Map found() {
    return found;
  }

  public TreeNode apply(TreeNode plan) {
    if (BUSY.get() != null) return plan;
    BUSY.set(Boolean.TRUE);
    try {
      return visit((LogicalPlan) plan, new HashMap());
    } catch (Throwable failure) {
      if (stops(failure)) org.apache.spark.unsafe.Platform.throwException(failure);
      report(failure);
      return plan;
    } finally {
      BUSY.remove();
    }
  }

  private static boolean stops(Throwable failure) {
    if (Thread.currentThread().isInterrupted()) return true;
    for (Throwable t = failure; t != null; t = t.getCause()) {
      if (t instanceof InterruptedException || t instanceof OutOfMemoryError || t instanceof ThreadDeath
          || t instanceof java.nio.channels.ClosedByInterruptException) return true;
      if (t instanceof org.apache.spark.SparkThrowable
          && "SPARK_JOB_CANCELLED".equals(((org.apache.spark.SparkThrowable) t).getCondition())) return true;
    }
    return false;
  }

  private void report(Throwable failure) {
    try {
      tell.accept("warning", String.valueOf(failure));
    } catch (Throwable pythonIsGone) {
      log().warn("delta_variant skipped no files: " + failure);
    }
  }

  // ---- the walk -----------------------------------------------------------------------------------------------

  private LogicalPlan visit(LogicalPlan plan, Map jobs) throws Exception {
    LogicalPlan result = plan;
    scala.Tuple3 operation = (scala.Tuple3) PhysicalOperation$.MODULE$.unapply(plan).get();
    LogicalRelation scan = preparedScan((LogicalPlan) operation._3());
    if (scan != null) {
      LogicalRelation pruned = prune(scan, (Seq) operation._2(), jobs);
      if (pruned != scan) result = replace(result, scan, pruned);
      return hasSubquery(plan) ? (LogicalPlan) result.transformAllExpressions(new Subqueries(this, jobs)) : result;
    }
    List children = new ArrayList();
    boolean changed = false;
    for (Iterator i = plan.children().iterator(); i.hasNext(); ) {
      LogicalPlan child = (LogicalPlan) i.next();
      LogicalPlan visited = visit(child, jobs);
      changed |= visited != child;
      children.add(visited);
    }
    if (changed) result = (LogicalPlan) plan.withNewChildren(seq(children));
    return hasSubquery(plan) ? (LogicalPlan) result.transformExpressions(new Subqueries(this, jobs)) : result;
  }

  private static boolean hasSubquery(LogicalPlan plan) {
    return plan.containsPattern(TreePattern$.MODULE$.PLAN_EXPRESSION());
  }

  private static LogicalPlan replace(LogicalPlan plan, LogicalPlan old, LogicalPlan fresh) {
    if (plan == old) return fresh;
    List children = new ArrayList();
    for (Iterator i = plan.children().iterator(); i.hasNext(); ) {
      children.add(replace((LogicalPlan) i.next(), old, fresh));
    }
    return (LogicalPlan) plan.withNewChildren(seq(children));
  }

  private static Seq seq(List values) {
    return scala.jdk.javaapi.CollectionConverters.asScala(values).toIndexedSeq();
  }

  private static LogicalRelation preparedScan(LogicalPlan plan) {
    if (!(plan instanceof LogicalRelation)) return null;
    LogicalRelation scan = (LogicalRelation) plan;
    if (!(scan.relation() instanceof HadoopFsRelation)) return null;
    return ((HadoopFsRelation) scan.relation()).location() instanceof PreparedDeltaFileIndex ? scan : null;
  }

  /** Visits the plans inside subquery expressions, which PrepareDeltaScan prepares together with the main plan. */
  private static class Subqueries extends scala.runtime.AbstractPartialFunction {
    private final SkipFiles rule;
    private final Map jobs;

    Subqueries(SkipFiles rule, Map jobs) {
      this.rule = rule;
      this.jobs = jobs;
    }

    public boolean isDefinedAt(Object expression) {
      return expression instanceof SubqueryExpression;
    }

    public Object applyOrElse(Object expression, scala.Function1 otherwise) {
      if (!isDefinedAt(expression)) return otherwise.apply(expression);
      SubqueryExpression subquery = (SubqueryExpression) expression;
      LogicalPlan old = (LogicalPlan) subquery.plan();
      try {
        LogicalPlan visited = rule.visit(old, jobs);
        return visited == old ? subquery : subquery.withNewPlan(visited);
      } catch (Exception failure) {
        org.apache.spark.unsafe.Platform.throwException(failure);
        return null;
      }
    }
  }

  // ---- one scan -----------------------------------------------------------------------------------------------

  private LogicalRelation prune(LogicalRelation scan, Seq filters, Map jobs) throws Exception {
    if (scan.getTagValue(OUTCOME).isDefined()) return scan;
    HadoopFsRelation source = (HadoopFsRelation) scan.relation();
    PreparedDeltaFileIndex index = (PreparedDeltaFileIndex) source.location();
    DeltaScan prepared = index.preparedScan();
    Filters asked = new Filters(scan);
    ArrayNode conditions = asked.json(filters);
    if (conditions.isEmpty() || prepared.files().isEmpty()) return scan;

    Snapshot snapshot = prepared.scannedSnapshot();
    Bounds bounds = new Bounds(snapshot, tags[0], tags[1], tags[2]);
    ObjectNode request = JSON.createObjectNode();
    request.set("filters", conditions);
    request.set("columns", JSON.valueToTree(bounds.columns()));
    request.put("marked", anyTag(prepared.files(), tags[0], tags[1]));
    request.put("nonnull", anyTag(prepared.files(), tags[2], null));
    request.put("trust_all", Boolean.parseBoolean(conf().getConfString(TRUST_ALL, "false")));
    request.put("explain", EXPLAINING.get() != null);
    ObjectNode outcome = (ObjectNode) JSON.readTree((String) translate.apply(request.toString()));
    LogicalRelation result = scan;
    if (outcome.hasNonNull("sql")) {
      Set matching = matching(bounds, snapshot, outcome.get("sql").asText(), asked.others(), jobs);
      List kept = new ArrayList();
      for (Iterator i = prepared.files().iterator(); i.hasNext(); ) {
        AddFile file = (AddFile) i.next();
        if (matching.contains(file.path())) kept.add(file);
      }
      if (kept.size() < prepared.files().size()) {
        SkippedFileIndex left = new SkippedFileIndex(index, (Seq) seq(kept).distinct());
        HadoopFsRelation narrowed = source.copy(left, source.partitionSchema(), source.dataSchema(),
            source.bucketSpec(), source.fileFormat(), source.options(), source.sparkSession());
        result = scan.copy(narrowed, scan.output(), scan.catalogTable(), scan.isStreaming(), scan.stream());
      }
    }
    if (outcome.hasNonNull("verdicts")) outcome.set("tally", tally(bounds, prepared, outcome.get("verdicts").asText()));
    result.setTagValue(OUTCOME, outcome.toString());
    if (outcome.path("log").asBoolean()) {
      tell.accept("debug", describe(result, (TahoeFileIndex) ((HadoopFsRelation) result.relation()).location()).toString());
    }
    return result;
  }

  private static boolean anyTag(Seq files, String tag, String value) {
    for (Iterator i = files.iterator(); i.hasNext(); ) {
      scala.collection.immutable.Map tags = ((AddFile) i.next()).tags();
      if (tags != null && tags.contains(tag) && (value == null || value.equals(tags.apply(tag)))) return true;
    }
    return false;
  }

  /** The same question of the same table version is asked once a plan. */
  private static Set matching(Bounds bounds, Snapshot snapshot, String sql, List others, Map jobs) throws Exception {
    List key = new ArrayList();
    key.add(snapshot.path().toString());
    key.add(Long.valueOf(snapshot.version()));
    key.add(sql);
    for (int o = 0; o < others.size(); o++) key.add(((Expression) others.get(o)).canonicalized());
    Set paths = (Set) jobs.get(key);
    if (paths == null) {
      paths = bounds.matching(sql, others);
      jobs.put(key, paths);
    }
    return paths;
  }

  /** [number, verdict, files] for each verdict on the files that Delta left. */
  private static ArrayNode tally(Bounds bounds, DeltaScan prepared, String verdicts) {
    List paths = null;
    if (prepared.files().size() < prepared.scannedSnapshot().numOfFiles()) {
      paths = new ArrayList();
      for (Iterator i = prepared.files().iterator(); i.hasNext(); ) paths.add(((AddFile) i.next()).path());
    }
    ArrayNode result = JSON.createArrayNode();
    for (java.util.Iterator i = bounds.tally(verdicts, paths).iterator(); i.hasNext(); ) {
      Row row = (Row) i.next();
      result.addArray().add(row.getInt(0)).add(row.getString(1)).add(row.getLong(2));
    }
    return result;
  }

  // ---- explain ------------------------------------------------------------------------------------------------

  /** The Delta scans of the query, planned anew under the session's present rules, as a JSON array. */
  public String describe(org.apache.spark.sql.classic.Dataset query) {
    ArrayNode scans = JSON.createArrayNode();
    LogicalPlan analyzed = query.queryExecution().analyzed();
    EXPLAINING.set(Boolean.TRUE);
    try {
      describe(org.apache.spark.sql.classic.Dataset.ofRows(query.sparkSession(), analyzed).queryExecution().optimizedPlan(), scans);
    } finally {
      EXPLAINING.remove();
    }
    return scans.toString();
  }

  private static void describe(LogicalPlan plan, ArrayNode scans) {
    if (plan instanceof LogicalRelation && ((LogicalRelation) plan).relation() instanceof HadoopFsRelation) {
      Object location = ((HadoopFsRelation) ((LogicalRelation) plan).relation()).location();
      if (location instanceof TahoeFileIndex) scans.add(describe((LogicalRelation) plan, (TahoeFileIndex) location));
    }
    for (Iterator i = plan.children().iterator(); i.hasNext(); ) describe((LogicalPlan) i.next(), scans);
    for (Iterator i = plan.subqueries().iterator(); i.hasNext(); ) describe((LogicalPlan) i.next(), scans);
  }

  private static ObjectNode describe(LogicalRelation scan, TahoeFileIndex index) {
    ObjectNode node = JSON.createObjectNode();
    node.put("table", scan.catalogTable().isDefined()
        ? ((org.apache.spark.sql.catalyst.catalog.CatalogTable) scan.catalogTable().get()).identifier().unquotedString()
        : index.path().toString());
    node.put("version", index.version());
    DeltaScan prepared = null;
    if (index instanceof PreparedDeltaFileIndex) prepared = ((PreparedDeltaFileIndex) index).preparedScan();
    if (index instanceof SkippedFileIndex) prepared = ((SkippedFileIndex) index).prepared;
    if (prepared != null) {
      int left = ((Seq) prepared.files().distinct()).size();
      node.put("total", prepared.scannedSnapshot().numOfFiles());
      node.put("delta", left);
      node.put("bounds", index instanceof SkippedFileIndex ? ((SkippedFileIndex) index).addFiles().size() : left);
    }
    if (scan.getTagValue(OUTCOME).isDefined()) node.put("outcome", (String) scan.getTagValue(OUTCOME).get());
    return node;
  }

  /** The files that are left. Equal by table, version and files, so that exchanges over equal scans are reused. */
  public static class SkippedFileIndex extends TahoeBatchFileIndex {
    final DeltaScan prepared;

    SkippedFileIndex(PreparedDeltaFileIndex index, Seq files) {
      super(index.spark(), "batch", files, index.deltaLog(), index.path(), index.preparedScan().scannedSnapshot(), false);
      prepared = index.preparedScan();
    }

    /** Delta has applied its partition filters to these files; only one that it has not seen has to be applied. */
    public Seq matchingFiles(Seq partitionFilters, Seq dataFilters) {
      for (Iterator i = partitionFilters.iterator(); i.hasNext(); ) {
        if (!prepared.allFilters().contains((Expression) i.next())) {
          return super.matchingFiles(partitionFilters, dataFilters);
        }
      }
      return addFiles();
    }

    public boolean equals(Object other) {
      if (!(other instanceof SkippedFileIndex)) return false;
      SkippedFileIndex that = (SkippedFileIndex) other;
      return path().equals(that.path()) && version() == that.version() && addFiles().equals(that.addFiles());
    }

    public int hashCode() {
      return 31 * path().hashCode() + Long.hashCode(version()) + addFiles().size();
    }
  }
}
