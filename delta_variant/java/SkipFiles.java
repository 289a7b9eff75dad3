package delta_variant;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.variant.VariantGet;
import org.apache.spark.sql.catalyst.planning.PhysicalOperation$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.catalyst.trees.TreePattern$;
import org.apache.spark.sql.delta.DeltaColumnMapping$;
import org.apache.spark.sql.delta.DeltaParquetFileFormat;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.files.TahoeBatchFileIndex;
import org.apache.spark.sql.delta.files.TahoeFileIndex;
import org.apache.spark.sql.delta.stats.DeltaScan;
import org.apache.spark.sql.delta.stats.PreparedDeltaFileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.VariantType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * The part of skipping that has to be Java: it finds a prepared Delta scan under a filter on a VARIANT column, hands
 * the filter to Python as JSON, and drops the files for which the SQL predicate that comes back is FALSE.
 *
 * Only PreparedDeltaFileIndex is replaced. Whatever goes wrong, the plan given is the plan returned; interruption and
 * cancellation go through. Janino compiles this file: no generics, no lambdas.
 */
public class SkipFiles extends Rule {
  public static final String NAME = "delta_variant.SkipFiles";
  private static final String PUSHED = "__VARIANT_METADATA_KEY";  // Spark's PushVariantIntoScan marks its fields so
  private static final String TRUST_ALL = "spark.delta_variant.trustAllBounds";
  // Delta keeps its state in 50 partitions whatever the size of the table: 50 tasks cost more than a few thousand files.
  private static final int FILES_PER_TASK = 2000;
  private static final TreeNodeTag OUTCOME = new TreeNodeTag(NAME);  // on a LogicalRelation: what Python answered, JSON
  private static final ThreadLocal BUSY = new ThreadLocal();  // the rule plans a query of its own
  private static final ObjectMapper JSON = new ObjectMapper();

  private final java.util.function.UnaryOperator translate;  // request JSON -> {"sql": text or null, "reasons": [...]}
  private final java.util.function.Consumer warn;
  private final String tag;  // the tag, and its value, of an Add whose bounds were computed from values
  private final String tagValue;
  private final Map found;  // the session settings that delta_variant.enable changed, as they were

  public SkipFiles(java.util.function.UnaryOperator translate, java.util.function.Consumer warn, String tag,
      String tagValue, Map found) {
    this.translate = translate;
    this.warn = warn;
    this.tag = tag;
    this.tagValue = tagValue;
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
      warn.accept(String.valueOf(failure));
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
    Map columns = variantColumns(scan, source);
    ArrayNode conditions = JSON.createArrayNode();
    for (Iterator i = filters.iterator(); i.hasNext(); ) {
      Expression filter = (Expression) i.next();
      if (!(filter instanceof IsNotNull) && readsVariant(filter, columns)) conditions.add(json(filter, columns));
    }
    if (conditions.isEmpty() || prepared.files().isEmpty()) return scan;

    Snapshot snapshot = prepared.scannedSnapshot();
    ObjectNode request = JSON.createObjectNode();
    request.set("filters", conditions);
    request.set("bounded", bounded(snapshot.statsSchema(), columns));
    request.put("marked", hasMarked(prepared.files()));
    request.put("trust_all", Boolean.parseBoolean(conf().getConfString(TRUST_ALL, "false")));
    ObjectNode outcome = (ObjectNode) JSON.readTree((String) translate.apply(request.toString()));
    LogicalRelation result = scan;
    if (outcome.hasNonNull("sql")) {
      Set dropped = dropped(snapshot, outcome.get("sql").asText(), jobs);
      if (!dropped.isEmpty()) {
        List kept = new ArrayList();
        for (Iterator i = prepared.files().iterator(); i.hasNext(); ) {
          AddFile file = (AddFile) i.next();
          if (!dropped.contains(file.path())) kept.add(file);
        }
        SkippedFileIndex left = new SkippedFileIndex(index, (Seq) seq(kept).distinct());
        HadoopFsRelation narrowed = source.copy(left, source.partitionSchema(), source.dataSchema(),
            source.bucketSpec(), source.fileFormat(), source.options(), source.sparkSession());
        result = scan.copy(narrowed, scan.output(), scan.catalogTable(), scan.isStreaming(), scan.stream());
      }
    }
    result.setTagValue(OUTCOME, outcome.toString());
    return result;
  }

  private boolean hasMarked(Seq files) {
    for (Iterator i = files.iterator(); i.hasNext(); ) {
      scala.collection.immutable.Map tags = ((AddFile) i.next()).tags();
      if (tags != null && tags.contains(tag) && tagValue.equals(tags.apply(tag))) return true;
    }
    return false;
  }

  /** The paths of the files that the bounds rule out: the predicate is FALSE, not NULL. */
  private static Set dropped(Snapshot snapshot, String sql, Map jobs) {
    List key = new ArrayList();
    key.add(snapshot.path().toString());
    key.add(Long.valueOf(snapshot.version()));
    key.add(sql);
    Set paths = (Set) jobs.get(key);
    if (paths == null) {
      paths = new HashSet();
      Dataset files = snapshot.withStats().where("NOT (" + sql + ")").select("path", new String[0]);
      int tasks = 1 + (int) Math.min(snapshot.numOfFiles() / FILES_PER_TASK, 10000);
      for (java.util.Iterator i = files.coalesce(tasks).collectAsList().iterator(); i.hasNext(); ) {
        paths.add(((Row) i.next()).getString(0));
      }
      jobs.put(key, paths);
    }
    return paths;
  }

  /** ExprId -> the table's field for each column the scan reads that is a VARIANT or a struct with one inside. */
  private static Map variantColumns(LogicalRelation scan, HadoopFsRelation source) {
    Map columns = new HashMap();
    if (!(source.fileFormat() instanceof DeltaParquetFileFormat)) return columns;
    // The schema the reader finds its Parquet columns by; the relation's own schema has lost the physical names.
    StructField[] fields = ((DeltaParquetFileFormat) source.fileFormat()).referenceSchema().fields();
    for (Iterator i = scan.output().iterator(); i.hasNext(); ) {
      AttributeReference attribute = (AttributeReference) i.next();
      StructField field = child(fields, attribute.name());
      if (field != null && hasVariant(field.dataType())) columns.put(attribute.exprId(), field);
    }
    return columns;
  }

  private static StructField child(StructField[] fields, String name) {
    for (int f = 0; f < fields.length; f++) {
      if (fields[f].name().equalsIgnoreCase(name)) return fields[f];
    }
    return null;
  }

  private static boolean hasVariant(DataType type) {
    if (!(type instanceof StructType)) return type instanceof VariantType;
    StructField[] fields = ((StructType) type).fields();
    for (int f = 0; f < fields.length; f++) {
      if (hasVariant(fields[f].dataType())) return true;
    }
    return false;
  }

  /** The fields of the table that lead to a column, or to a field of a struct column; false for other expressions. */
  private static boolean isField(Expression e, Map columns, List fields) {
    StructField field = null;
    if (e instanceof Attribute) {
      field = (StructField) columns.get(((Attribute) e).exprId());
    } else if (e instanceof GetStructField) {
      Expression struct = (Expression) e.children().apply(0);
      if (isPushed(struct.dataType()) || !isField(struct, columns, fields)) return false;
      DataType outer = ((StructField) fields.get(fields.size() - 1)).dataType();
      if (!(outer instanceof StructType)) return false;
      String name = ((StructType) struct.dataType()).fields()[((GetStructField) e).ordinal()].name();
      field = child(((StructType) outer).fields(), name);
    }
    if (field != null) fields.add(field);
    return field != null;
  }

  /** The fields that lead to a VARIANT; null for other expressions. */
  private static List variantField(Expression e, Map columns) {
    List fields = new ArrayList();
    if (!isField(e, columns, fields)) return null;
    return ((StructField) fields.get(fields.size() - 1)).dataType() instanceof VariantType ? fields : null;
  }

  private static boolean isPushed(DataType type) {
    if (!(type instanceof StructType)) return false;
    StructField[] fields = ((StructType) type).fields();
    return fields.length > 0 && fields[0].metadata().contains(PUSHED);
  }

  private static boolean readsVariant(Expression expression, Map columns) {
    if (columns.isEmpty()) return false;
    boolean structs = false;
    for (Iterator i = expression.references().iterator(); i.hasNext(); ) {
      StructField field = (StructField) columns.get(((Attribute) i.next()).exprId());
      if (field != null && field.dataType() instanceof VariantType) return true;
      structs |= field != null;
    }
    if (!structs) return false;
    if (variantField(expression, columns) != null) return true;
    for (Iterator i = expression.children().iterator(); i.hasNext(); ) {
      if (readsVariant((Expression) i.next(), columns)) return true;
    }
    return false;
  }

  /** Which VARIANT columns have bounds as VARIANT in Delta's parsed statistics. */
  private static ArrayNode bounded(StructType stats, Map columns) {
    ArrayNode result = JSON.createArrayNode();
    StructField bounds = child(stats.fields(), "minValues");
    for (java.util.Iterator i = new HashSet(columns.values()).iterator(); bounds != null && i.hasNext(); ) {
      String name = DeltaColumnMapping$.MODULE$.getPhysicalName((StructField) i.next());
      StructField[] fields = ((StructType) bounds.dataType()).fields();
      for (int f = 0; f < fields.length; f++) {
        if (fields[f].name().equals(name)) addBounded(fields[f], JSON.createArrayNode(), result);
      }
    }
    return result;
  }

  private static void addBounded(StructField field, ArrayNode outer, ArrayNode result) {
    ArrayNode names = outer.deepCopy().add(field.name());
    if (field.dataType() instanceof VariantType) result.add(names);
    if (!(field.dataType() instanceof StructType)) return;
    StructField[] fields = ((StructType) field.dataType()).fields();
    for (int f = 0; f < fields.length; f++) addBounded(fields[f], names, result);
  }

  // ---- Catalyst expressions as JSON; delta_variant/skipping.py reads it ----------------------------------------

  private static ObjectNode json(Expression e, Map columns) {
    ObjectNode node = JSON.createObjectNode();
    List variant = variantField(e, columns);
    if (variant != null) {
      List names = new ArrayList();
      ArrayNode column = node.putArray("column");
      for (int f = 0; f < variant.size(); f++) {
        names.add(((StructField) variant.get(f)).name());
        column.add(DeltaColumnMapping$.MODULE$.getPhysicalName((StructField) variant.get(f)));
      }
      node.put("name", String.join(".", names));
    } else if (e instanceof And || e instanceof Or) {
      node.put("op", e instanceof And ? "and" : "or");
      addOperands(e, e.getClass(), node.putArray("args"), columns);
    } else if (e instanceof BinaryComparison || e instanceof StartsWith || e instanceof Like || e instanceof Not) {
      node.put("op", e instanceof BinaryComparison ? ((BinaryComparison) e).symbol()
          : e instanceof StartsWith ? "startswith" : e instanceof Like ? "like" : "not");
      if (e instanceof Like) node.put("escape", String.valueOf(((Like) e).escapeChar()));
      ArrayNode args = node.putArray("args");
      for (Iterator i = e.children().iterator(); i.hasNext(); ) args.add(json((Expression) i.next(), columns));
    } else if (e instanceof In || e instanceof InSet) {
      node.put("op", "in");
      ArrayNode args = node.putArray("args");
      Expression value = (Expression) e.children().apply(0);
      args.add(json(value, columns));
      Iterator i = e instanceof In ? ((In) e).list().iterator() : ((InSet) e).hset().iterator();
      while (i.hasNext()) {
        Object item = i.next();
        args.add(json(e instanceof In ? (Expression) item : new Literal(item, value.dataType()), columns));
      }
    } else if (e instanceof Literal) {
      node.put("type", e.dataType().catalogString());
      node.put("literal", literal(((Literal) e).value()));
    } else if (e instanceof Cast) {
      node.put("type", e.dataType().catalogString());
      node.set("cast", json((Expression) e.children().apply(0), columns));
    } else if (e instanceof VariantGet && ((VariantGet) e).path() instanceof Literal) {
      node.put("type", e.dataType().catalogString());
      node.put("path", String.valueOf(((Literal) ((VariantGet) e).path()).value()));
      node.set("get", json((Expression) e.children().apply(0), columns));
    } else if (e instanceof GetStructField && isPushed(((Expression) e.children().apply(0)).dataType())) {
      StructType pushed = (StructType) ((Expression) e.children().apply(0)).dataType();
      StructField field = pushed.fields()[((GetStructField) e).ordinal()];
      node.put("type", field.dataType().catalogString());
      node.put("path", field.metadata().getMetadata(PUSHED).getString("path"));
      node.set("get", json((Expression) e.children().apply(0), columns));
    } else {
      String text = e.toString().replaceAll("#\\d+L?", "");
      node.put("unknown", text.length() > 120 ? text.substring(0, 117) + "..." : text);
    }
    if (e instanceof IsNotNull || !readsVariant(e, columns)) node.put("aside", true);
    return node;
  }

  /** The operands of a chain of ANDs or of ORs, left to right, however deep the chain is. */
  private static void addOperands(Expression chain, Class kind, ArrayNode operands, Map columns) {
    ArrayDeque open = new ArrayDeque();
    open.push(chain);
    while (!open.isEmpty()) {
      Expression e = (Expression) open.pop();
      if (e.getClass() == kind) {
        open.push(e.children().apply(1));
        open.push(e.children().apply(0));
      } else {
        operands.add(json(e, columns));
      }
    }
  }

  /** Text that names the value exactly: strings as hex of their bytes, dates and timestamps as days and microseconds. */
  private static String literal(Object value) {
    if (value == null) return null;
    if (value instanceof UTF8String) return java.util.HexFormat.of().formatHex(((UTF8String) value).getBytes());
    if (value instanceof org.apache.spark.sql.types.Decimal) {
      return ((org.apache.spark.sql.types.Decimal) value).toJavaBigDecimal().toPlainString();
    }
    return value.toString();
  }

  // ---- explain ------------------------------------------------------------------------------------------------

  /** The Delta scans of the query, planned anew under the session's present rules, as a JSON array. */
  public String describe(org.apache.spark.sql.classic.Dataset query) {
    ArrayNode scans = JSON.createArrayNode();
    LogicalPlan analyzed = query.queryExecution().analyzed();
    describe(org.apache.spark.sql.classic.Dataset.ofRows(query.sparkSession(), analyzed).queryExecution().optimizedPlan(), scans);
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
