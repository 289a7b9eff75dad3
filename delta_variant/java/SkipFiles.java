package delta_variant;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
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
 * the filter to Python as JSON (Filters), and drops the files for which the predicate on bounds that comes back (Tree) is
 * FALSE (FileBounds).
 *
 * Only PreparedDeltaFileIndex is replaced. Whatever goes wrong, the plan given is the plan returned; interruption and
 * cancellation go through. Janino compiles this file: no generics, no lambdas.
 */
public class SkipFiles extends Rule {
  public static final String NAME = "delta_variant.SkipFiles";
  private static final String TRUST_ALL = "spark.delta_variant.trustAllBounds";
  private static final String LOG_SCANS = "spark.delta_variant.logScans";
  private static final TreeNodeTag OUTCOME = new TreeNodeTag(NAME);  // on a LogicalRelation: what Python answered, JSON
  private static final ThreadLocal BUSY = new ThreadLocal();  // the rule plans a query of its own
  private static final ThreadLocal EXPLAINING = new ThreadLocal();  // whoever plans wants to know why
  private static final ObjectMapper JSON = new ObjectMapper();

  private final java.util.function.UnaryOperator translate;  // request JSON -> reply JSON
  private final java.util.function.BiConsumer tell;  // level, text
  private final String mark;  // the tag of files whose bounds were computed from values
  private final Seq marks;  // and its values
  private final String nonNull;  // the tag for what the protocol has no bounds for
  private final Map found;  // the session settings that delta_variant.enable changed, as they were

  public SkipFiles(java.util.function.UnaryOperator translate, java.util.function.BiConsumer tell, String mark, Seq marks,
      String nonNull, Map found) {
    this.translate = translate;
    this.tell = tell;
    this.mark = mark;
    this.marks = marks;
    this.nonNull = nonNull;
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
      return visit((LogicalPlan) plan, new IdentityHashMap());
    } catch (Throwable failure) {
      if (FileBounds.stops(failure)) org.apache.spark.unsafe.Platform.throwException(failure);
      report(failure);
      return plan;
    } finally {
      BUSY.remove();
    }
  }

  private void report(Throwable failure) {
    try {
      tell.accept("warning", String.valueOf(failure));
    } catch (Throwable pythonIsGone) {
      log().warn("delta_variant skipped no files: " + failure);
    }
  }

  /** What `apply` makes of a plan over this scan if the log has these rows. Raises what `apply` would step aside for. */
  public LogicalPlan visit(LogicalPlan plan, DeltaScan scan, InternalRow[] rows) throws Exception {
    Map read = new IdentityHashMap();
    read.put(scan, FileBounds.of(log(scan.scannedSnapshot()), rows));
    return visit(plan, read);
  }

  public Bounds log(Snapshot snapshot) {
    return new Bounds(snapshot, mark, marks, nonNull);
  }

  // ---- the walk -----------------------------------------------------------------------------------------------

  private LogicalPlan visit(LogicalPlan plan, Map read) throws Exception {
    LogicalPlan result = plan;
    scala.Tuple3 operation = (scala.Tuple3) PhysicalOperation$.MODULE$.unapply(plan).get();
    LogicalRelation scan = preparedScan((LogicalPlan) operation._3());
    if (scan != null) {
      LogicalRelation pruned = prune(scan, (Seq) operation._2(), read);
      if (pruned != scan) result = replace(result, scan, pruned);
      return hasSubquery(plan) ? (LogicalPlan) result.transformAllExpressions(new Subqueries(this, read)) : result;
    }
    List children = new ArrayList();
    boolean changed = false;
    for (Iterator i = plan.children().iterator(); i.hasNext(); ) {
      LogicalPlan child = (LogicalPlan) i.next();
      LogicalPlan visited = visit(child, read);
      changed |= visited != child;
      children.add(visited);
    }
    if (changed) result = (LogicalPlan) plan.withNewChildren(Bounds.seq(children));
    return hasSubquery(plan) ? (LogicalPlan) result.transformExpressions(new Subqueries(this, read)) : result;
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
    return (LogicalPlan) plan.withNewChildren(Bounds.seq(children));
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
    private final Map read;

    Subqueries(SkipFiles rule, Map read) {
      this.rule = rule;
      this.read = read;
    }

    public boolean isDefinedAt(Object expression) {
      return expression instanceof SubqueryExpression;
    }

    public Object applyOrElse(Object expression, scala.Function1 otherwise) {
      if (!isDefinedAt(expression)) return otherwise.apply(expression);
      SubqueryExpression subquery = (SubqueryExpression) expression;
      LogicalPlan old = (LogicalPlan) subquery.plan();
      try {
        LogicalPlan visited = rule.visit(old, read);
        return visited == old ? subquery : subquery.withNewPlan(visited);
      } catch (Exception failure) {
        org.apache.spark.unsafe.Platform.throwException(failure);
        return null;
      }
    }
  }

  // ---- one scan -----------------------------------------------------------------------------------------------

  private LogicalRelation prune(LogicalRelation scan, Seq filters, Map read) throws Exception {
    if (scan.getTagValue(OUTCOME).isDefined()) return scan;
    HadoopFsRelation source = (HadoopFsRelation) scan.relation();
    PreparedDeltaFileIndex index = (PreparedDeltaFileIndex) source.location();
    DeltaScan prepared = index.preparedScan();
    Filters asked = new Filters(scan);
    ArrayNode conditions = asked.json(filters);
    if (conditions.isEmpty() || prepared.files().isEmpty()) return scan;

    Bounds log = log(prepared.scannedSnapshot());
    boolean logged = Boolean.parseBoolean(conf().getConfString(LOG_SCANS, "false"));
    ObjectNode request = JSON.createObjectNode();
    request.set("operands", asked.operands());
    request.set("filters", conditions);
    request.set("columns", JSON.valueToTree(log.columns()));
    request.put("files", prepared.files().size());
    request.put("marked", anyTag(prepared.files(), mark, marks));
    request.put("nonnull", anyTag(prepared.files(), nonNull, null));
    request.put("trust_all", Boolean.parseBoolean(conf().getConfString(TRUST_ALL, "false")));
    request.put("explain", logged || EXPLAINING.get() != null);
    ObjectNode outcome = (ObjectNode) JSON.readTree((String) translate.apply(request.toString()));
    LogicalRelation result = scan;
    if (!outcome.withArray("bounds").isEmpty()) {
      FileBounds files = (FileBounds) read.get(prepared);
      if (files == null) files = FileBounds.of(log, prepared);
      read.put(prepared, files);
      if (files.failure() == null) {
        Tree.Values[] bounds = files.read(log, outcome.get("bounds"), asked.types(), conf().sessionLocalTimeZone());
        Decision decision = new Decision(prepared, files, bounds, asked);
        if (outcome.hasNonNull("tree")) result = narrowed(scan, decision.left(outcome.get("tree")));
        if (outcome.has("reasons") && decision.sparesDelta()) {
          outcome.withArray("reasons").add("Delta was not asked of ordinary columns beside OR: that would take longer than it spares");
        }
        if (outcome.has("verdicts")) outcome.set("tally", decision.tally(outcome.get("verdicts"), mark, marks));
      } else if (outcome.has("reasons")) {
        outcome.withArray("reasons").add("the bounds of this version could not be read: " + files.failure());
      }
    }
    result.setTagValue(OUTCOME, outcome.toString());
    if (logged) {
      tell.accept("scan", describe(result, (TahoeFileIndex) ((HadoopFsRelation) result.relation()).location()).toString());
    }
    return result;
  }

  private static LogicalRelation narrowed(LogicalRelation scan, List left) {
    HadoopFsRelation source = (HadoopFsRelation) scan.relation();
    PreparedDeltaFileIndex index = (PreparedDeltaFileIndex) source.location();
    if (left.size() == index.preparedScan().files().size()) return scan;
    SkippedFileIndex files = new SkippedFileIndex(index, (Seq) Bounds.seq(left).distinct());
    HadoopFsRelation narrowed = source.copy(files, source.partitionSchema(), source.dataSchema(), source.bucketSpec(),
        source.fileFormat(), source.options(), source.sparkSession());
    return scan.copy(narrowed, scan.output(), scan.catalogTable(), scan.isStreaming(), scan.stream());
  }

  private static boolean anyTag(Seq files, String tag, Seq values) {
    for (Iterator i = files.iterator(); i.hasNext(); ) {
      if (Decision.hasTag((AddFile) i.next(), tag, values)) return true;
    }
    return false;
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
