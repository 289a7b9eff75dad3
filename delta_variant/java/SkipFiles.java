package delta_variant;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Descending$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.planning.PhysicalOperation$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.files.TahoeFileIndex;
import org.apache.spark.sql.delta.stats.DeltaScan;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal$;
import org.apache.spark.sql.types.DecimalType;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * The optimizer rule for data skipping. It finds the prepared Delta scans below a filter on a VARIANT column, sends the filter
 * to Python as JSON (Filters), evaluates the predicate on bounds that comes back (Tree) over the bounds in the log (FileBounds),
 * and removes the files for which it is FALSE from the scan.
 *
 * Only scans that Delta plans file by file are changed (Scans). On any failure the rule returns the plan that it got;
 * interruption and cancellation are passed on. Janino compiles this file: no generics, no lambdas.
 */
public class SkipFiles extends Rule {
  private static final String TRUST_ALL = "spark.delta_variant.trustAllBounds";
  private static final String LOG_SCANS = "spark.delta_variant.logScans";
  private static final ObjectMapper JSON = new ObjectMapper();

  private final java.util.function.UnaryOperator decide;  // request JSON -> reply JSON
  private final java.util.function.BiConsumer tell;  // subject, text
  private final String marker;  // name of the tag that says that this package computed the bounds
  private final Seq markerValues;  // the values that it may have
  private final String nonNull;  // name of the tag for paths that the protocol gives no bounds
  private final String times;  // name of the tag for strings that spell times
  private final Map found;  // the session settings that delta_variant.enable changed, as they were

  public SkipFiles(java.util.function.UnaryOperator decide, java.util.function.BiConsumer tell, String marker, Seq markerValues,
      String nonNull, String times, Map found) {
    this.decide = decide;
    this.tell = tell;
    this.marker = marker;
    this.markerValues = markerValues;
    this.nonNull = nonNull;
    this.times = times;
    this.found = found;
  }

  public String ruleName() {
    return Scans.SKIPPING;
  }

  public Map found() {
    return found;
  }

  public TreeNode apply(TreeNode plan) {
    return Scans.apply(new Walk(this, new IdentityHashMap()), (LogicalPlan) plan, tell, "skipping");
  }

  /** The plan that `apply` gives if the log has these rows for this scan. Throws failures that `apply` would only tell. */
  public LogicalPlan visit(LogicalPlan plan, DeltaScan scan, InternalRow[] rows) throws Exception {
    Map read = new IdentityHashMap();
    read.put(scan, FileBounds.of(log(scan.scannedSnapshot()), rows));
    return visit(plan, read);
  }

  public Bounds log(Snapshot snapshot) {
    return new Bounds(snapshot, marker, markerValues, nonNull, times);
  }

  // ---- the walk -----------------------------------------------------------------------------------------------

  private LogicalPlan visit(LogicalPlan plan, Map read) throws Exception {
    return Scans.subqueries(pruned(plan, Demands.NONE, read), new Walk(this, read));
  }

  private LogicalPlan pruned(LogicalPlan plan, Demands demands, Map read) throws Exception {
    LogicalPlan result = plan;
    scala.Tuple3 operation = (scala.Tuple3) PhysicalOperation$.MODULE$.unapply(plan).get();
    LogicalRelation scan = preparedScan((LogicalPlan) operation._3());
    if (scan != null) {
      for (LogicalPlan node = plan; node != scan; node = (LogicalPlan) node.children().apply(0)) demands = demands.of(node, 0);
      LogicalRelation pruned = prune(scan, (Seq) operation._2(), demands, read);
      if (pruned != scan) result = replace(result, scan, pruned);
      return result;
    }
    List children = new ArrayList();
    boolean changed = false;
    for (int c = 0; c < plan.children().size(); c++) {
      LogicalPlan child = (LogicalPlan) plan.children().apply(c);
      LogicalPlan visited = pruned(child, demands.of(plan, c), read);
      changed |= visited != child;
      children.add(visited);
    }
    if (changed) result = (LogicalPlan) plan.withNewChildren(Bounds.seq(children));
    return result;
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
    Object location = ((HadoopFsRelation) scan.relation()).location();
    return Scans.prepared(location) != null && Scans.outcome(scan, Scans.SKIPPING) == null ? scan : null;
  }

  private static class Walk implements Scans.Visit {
    private final SkipFiles rule;
    private final Map read;

    Walk(SkipFiles rule, Map read) {
      this.rule = rule;
      this.read = read;
    }

    public LogicalPlan visited(LogicalPlan plan) throws Exception {
      return rule.visit(plan, read);
    }
  }

  // ---- one scan -----------------------------------------------------------------------------------------------

  private LogicalRelation prune(LogicalRelation scan, Seq filters, Demands demands, Map read) throws Exception {
    TahoeFileIndex index = (TahoeFileIndex) ((HadoopFsRelation) scan.relation()).location();
    Filters scanFilters = new Filters(scan);
    List demanded = demands.filters(scanFilters, Scans.isCommand(index));
    ArrayNode conditions = scanFilters.json((Seq) filters.concat(Bounds.seq(demanded)));
    SortOrder order = demands.first(scanFilters);
    if (conditions.isEmpty() && order == null) return scan;
    DeltaScan prepared = Scans.prepared(index);
    List files = Scans.files(index);
    Bounds log = log(prepared.scannedSnapshot());
    Expression first = order == null ? null : first(new Filters(scan), order, demands.limit(), prepared, files, log, read);
    if (first != null) conditions.addAll(scanFilters.json(Bounds.seq(Collections.singletonList(first))));
    if (conditions.isEmpty() || files.isEmpty()) return scan;

    boolean logged = Boolean.parseBoolean(conf().getConfString(LOG_SCANS, "false"));
    ObjectNode outcome = ask(scanFilters, conditions, log, files, false, logged || Scans.explaining());
    LogicalRelation result = scan;
    if (!outcome.withArray("bounds").isEmpty() || !outcome.withArray("members").isEmpty()) {
      FileBounds known = known(log, prepared, read);
      if (known.failure() == null) {
        Tree.Values[] bounds = known.read(log, outcome.get("bounds"), scanFilters.types(), conf().sessionLocalTimeZone());
        Index[] indexes = new Index[outcome.get("members").size()];
        for (int m = 0; m < indexes.length; m++) {
          indexes[m] = new Index(prepared.scannedSnapshot(), files, known, Bounds.item(outcome.get("members"), m));
        }
        Decision decision = new Decision(prepared, files, known, bounds, indexes, scanFilters);
        List left = outcome.hasNonNull("tree") ? decision.left(outcome.get("tree")) : null;
        // Without any file, the plan would end before MERGE has counted the rows of its source.
        if (left != null && left.isEmpty() && Scans.isCommand(index)) left.add(files.get(0));
        if (left != null && left.size() < files.size()) result = Scans.over(scan, Scans.narrowed(index, left));
        if (outcome.has("reasons") && decision.sparesDelta()) {
          outcome.withArray("reasons").add(
              "Delta was not asked about ordinary columns in an OR, because that would take longer than it saves");
        }
        for (int m = 0; m < indexes.length && outcome.has("reasons"); m++) {
          if (indexes[m].reason() != null) outcome.withArray("reasons").add(indexes[m].reason());
        }
        if (outcome.has("verdicts")) outcome.set("tally", decision.tally(outcome.get("verdicts"), marker, markerValues));
      } else if (outcome.has("reasons")) {
        outcome.withArray("reasons").add("the bounds of this version could not be read: " + known.failure());
      }
    }
    Scans.setOutcome(result, Scans.SKIPPING, outcome.toString());
    if (logged) {
      tell.accept("scan", Scans.describe(result).toString());
    }
    return result;
  }

  private ObjectNode ask(Filters filters, ArrayNode conditions, Bounds log, List files, boolean exact, boolean explain)
      throws Exception {
    ObjectNode request = JSON.createObjectNode().put("ask", "files");
    request.set("operands", filters.operands());
    request.set("filters", conditions);
    request.set("columns", JSON.valueToTree(log.columns()));
    request.put("files", files.size());
    request.put("marked", Decision.anyTag(files, marker, markerValues));
    request.put("nonnull", Decision.anyTag(files, nonNull, null));
    request.put("times", Decision.anyTag(files, times, null));
    request.put("index", !exact && files.size() > 1 && Index.announced(log.snapshot()));
    request.put("exact", exact);
    request.put("trust_all", Boolean.parseBoolean(conf().getConfString(TRUST_ALL, "false")));
    request.put("explain", explain);
    return (ObjectNode) JSON.readTree(Question.ask(decide, request.toString()));
  }

  private static FileBounds known(Bounds log, DeltaScan prepared, Map read) throws Exception {
    if (!read.containsKey(prepared)) read.put(prepared, FileBounds.of(log, prepared));
    return (FileBounds) read.get(prepared);
  }

  /**
   * The filter that ORDER BY with LIMIT n implies: a value is not behind the n-th of the bounds of exact files, in that order.
   * Each of these bounds is the value of some row, so the n-th row of the result is not behind it. Null if there are fewer.
   */
  private Expression first(Filters filters, SortOrder order, int limit, DeltaScan prepared, List files, Bounds log, Map read)
      throws Exception {
    List exact = new ArrayList();
    for (int f = 0; f < files.size(); f++) {
      AddFile file = (AddFile) files.get(f);
      if (isExact(file)) exact.add(file);
    }
    if (exact.size() < limit) return null;
    boolean descending = order.direction() instanceof Descending$;
    Expression any = compared(order, zero(order.child().dataType()));  // any constant: only the bounds of the reply are used
    ArrayNode asked = filters.json(Bounds.seq(Collections.singletonList(any)));
    JsonNode bounds = ask(filters, asked, log, files, true, false).path("bounds");
    FileBounds known = bounds.isEmpty() ? null : known(log, prepared, read);
    if (known == null || known.failure() != null) return null;
    Tree.Values[] columns = known.read(log, bounds, filters.types(), conf().sessionLocalTimeZone());
    int side = 0;
    while (side < columns.length && !Bounds.item(bounds, side).get("side").asText().equals(descending ? "max" : "min")) side++;
    if (side == columns.length) return null;
    List values = new ArrayList();
    synchronized (known) {
      for (int f = 0; f < exact.size(); f++) {
        int number = known.number(((AddFile) exact.get(f)).path());
        Object value = number < 0 ? null : columns[side].get(number);
        if (value != null) values.add(value);
      }
    }
    if (values.size() < limit) return null;
    values.sort(descending ? columns[side].order().reverse() : columns[side].order());
    return compared(order, new Literal(values.get(limit - 1), order.child().dataType()));
  }

  /**
   * Whether each bound of a file is the value of some row, except for cut strings and the sign of zeros. This holds for files
   * with the marker and without deletion vectors.
   */
  public boolean isExact(AddFile file) {
    return Decision.hasTag(file, marker, markerValues) && file.deletionVector() == null;
  }

  private static Literal zero(DataType type) {
    Object zero = type instanceof DateType ? Integer.valueOf(0) : Leaves.integer(0, type);
    if (type instanceof DecimalType) zero = Decimal$.MODULE$.apply(0);
    return new Literal(zero == null ? Long.valueOf(0) : zero, type);
  }

  private static Expression compared(SortOrder order, Expression last) {
    boolean descending = order.direction() instanceof Descending$;
    return descending ? (Expression) new GreaterThanOrEqual(order.child(), last) : new LessThanOrEqual(order.child(), last);
  }
}
