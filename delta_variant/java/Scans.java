package delta_variant;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionSet;
import org.apache.spark.sql.catalyst.expressions.ExpressionSet$;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.catalyst.trees.TreePattern$;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.files.TahoeBatchFileIndex;
import org.apache.spark.sql.delta.files.TahoeFileIndex;
import org.apache.spark.sql.delta.stats.DataSize;
import org.apache.spark.sql.delta.stats.DeltaDataSkippingType;
import org.apache.spark.sql.delta.stats.DeltaScan;
import org.apache.spark.sql.delta.stats.PreparedDeltaFileIndex;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.VariantMetadata;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.VariantType;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * The Delta scans of a plan, for both rules: their files, and what a rule did to them.
 *
 * Janino compiles this file: no generics, no lambdas.
 */
public class Scans {
  public static final String SKIPPING = "delta_variant.SkipFiles";  // the names of the rules
  public static final String READING = "delta_variant.TypedScans";
  public static final String LOGGED = "delta_variant.LogAggregates";  // the number of files that the log answered for
  private static final ThreadLocal BUSY = new ThreadLocal();  // set while a rule runs, which may plan queries of its own
  public static final ThreadLocal EXPLAINING = new ThreadLocal();  // set while `explain` plans a query
  private static final ObjectMapper JSON = new ObjectMapper();

  /** What a rule did to a scan, as JSON; null if it did nothing. */
  public static String outcome(LogicalPlan scan, String rule) {
    scala.Option outcome = scan.getTagValue(new TreeNodeTag(rule));
    return outcome.isDefined() ? (String) outcome.get() : null;
  }

  public static void setOutcome(LogicalPlan scan, String rule, String outcome) {
    if (outcome != null) scan.setTagValue(new TreeNodeTag(rule), outcome);
  }

  /** A rule: returns the plan that replaces a plan. */
  public interface Visit {
    LogicalPlan visited(LogicalPlan plan) throws Exception;
  }

  /**
   * The plan after the rule. If the rule fails, the plan stays as it is, and `tell` gets the failure. Interruption and
   * cancellation are passed on.
   */
  public static LogicalPlan apply(Visit rule, LogicalPlan plan, java.util.function.BiConsumer tell, String about) {
    if (BUSY.get() != null) return plan;
    BUSY.set(Boolean.TRUE);
    try {
      return rule.visited(plan);
    } catch (Throwable failure) {
      if (FileBounds.stops(failure)) org.apache.spark.unsafe.Platform.throwException(failure);
      report(failure, tell, about);
      return plan;
    } finally {
      BUSY.remove();
    }
  }

  public static void report(Throwable failure, java.util.function.BiConsumer tell, String about) {
    try {
      tell.accept(about, String.valueOf(failure));
    } catch (Throwable pythonIsGone) {
      LoggerFactory.getLogger("delta_variant").warn(about + " stepped aside: " + failure);
    }
  }

  /** Visits the plans inside subquery expressions, which PrepareDeltaScan prepares together with the main plan. */
  public static LogicalPlan subqueries(LogicalPlan plan, Visit rule) {
    boolean some = plan.containsPattern(TreePattern$.MODULE$.PLAN_EXPRESSION());
    return some ? (LogicalPlan) plan.transformAllExpressions(new Subqueries(rule)) : plan;
  }

  private static class Subqueries extends scala.runtime.AbstractPartialFunction {
    private final Visit rule;
    private final Map plans = new IdentityHashMap();  // old -> visited: a filter's subquery occurs in each scan of a union

    Subqueries(Visit rule) {
      this.rule = rule;
    }

    public boolean isDefinedAt(Object expression) {
      return expression instanceof SubqueryExpression;
    }

    public Object applyOrElse(Object expression, scala.Function1 otherwise) {
      if (!isDefinedAt(expression)) return otherwise.apply(expression);
      SubqueryExpression subquery = (SubqueryExpression) expression;
      LogicalPlan old = (LogicalPlan) subquery.plan();
      try {
        if (!plans.containsKey(old)) plans.put(old, rule.visited(old));
        LogicalPlan visited = (LogicalPlan) plans.get(old);
        return visited == old ? subquery : subquery.withNewPlan(visited);
      } catch (Exception failure) {
        org.apache.spark.unsafe.Platform.throwException(failure);
        return null;
      }
    }
  }

  /** Whether a node always computes the same for the same rows. */
  public static boolean isDeterministic(LogicalPlan node) {
    for (Iterator i = node.expressions().iterator(); i.hasNext(); ) {
      if (!((Expression) i.next()).deterministic()) return false;
    }
    return true;
  }

  // ---- columns ----------------------------------------------------------------------------------------------------

  /** Whether a column is a VARIANT, even one that PushVariantIntoScan turned into a struct, or a struct that contains one. */
  public static boolean hasVariant(DataType type) {
    if (!(type instanceof StructType)) return type instanceof VariantType;
    if (VariantMetadata.isVariantStruct(type)) return true;
    StructField[] fields = ((StructType) type).fields();
    for (int f = 0; f < fields.length; f++) {
      if (hasVariant(fields[f].dataType())) return true;
    }
    return false;
  }

  /** The field of a struct with that name, whatever its case; null if there is none. */
  public static StructField field(StructType struct, String name) {
    StructField[] fields = struct.fields();
    for (int f = 0; f < fields.length; f++) {
      if (fields[f].name().equalsIgnoreCase(name)) return fields[f];
    }
    return null;
  }

  /** The node with one of its children replaced by a plan. */
  public static LogicalPlan with(LogicalPlan node, int child, LogicalPlan plan) {
    List children = new ArrayList();
    for (int c = 0; c < node.children().size(); c++) children.add(c == child ? plan : node.children().apply(c));
    return (LogicalPlan) node.withNewChildren(Bounds.seq(children));
  }

  /** The scan with its files replaced by these. */
  public static LogicalRelation over(LogicalRelation scan, TahoeFileIndex files) {
    HadoopFsRelation source = (HadoopFsRelation) scan.relation();
    return over(scan, files, source.dataSchema(), source.fileFormat(), source.options(), scan.output());
  }

  public static LogicalRelation over(LogicalRelation scan, FileIndex files, StructType schema, FileFormat format,
      scala.collection.immutable.Map options, Seq output) {
    HadoopFsRelation source = (HadoopFsRelation) scan.relation();
    HadoopFsRelation copy = source.copy(files, source.partitionSchema(), schema, source.bucketSpec(), format, options, source.sparkSession());
    return scan.copy(copy, output, scan.catalogTable(), scan.isStreaming(), scan.stream());
  }

  // ---- files ------------------------------------------------------------------------------------------------------

  /** The scan that Delta prepared for a file index; null for indexes of other kinds. */
  public static DeltaScan prepared(Object index) {
    if (index instanceof PreparedDeltaFileIndex) return ((PreparedDeltaFileIndex) index).preparedScan();
    if (index instanceof SkippedFileIndex) return ((SkippedFileIndex) index).prepared;
    if (!isCommand(index)) return null;
    TahoeBatchFileIndex given = (TahoeBatchFileIndex) index;
    Snapshot snapshot = (Snapshot) given.snapshot();
    DataSize unknown = new DataSize(Option.empty(), Option.empty(), Option.empty(), Option.empty());
    ExpressionSet none = ExpressionSet$.MODULE$.apply();
    return new DeltaScan(snapshot.version(), given.addFiles(), unknown, unknown, unknown, snapshot, none, none, none,
        scala.collection.immutable.Set$.MODULE$.empty(), none, 0, DeltaDataSkippingType.noSkippingV1());
  }

  /** Whether a file index is a list of files in which DELETE, UPDATE or MERGE looks for its rows. */
  public static boolean isCommand(Object index) {
    if (index instanceof SkippedFileIndex) return ((SkippedFileIndex) index).command;
    return index.getClass() == TahoeBatchFileIndex.class && ((TahoeBatchFileIndex) index).snapshot() instanceof Snapshot
        && !((TahoeBatchFileIndex) index).actionType().equals("streaming");
  }

  /** The AddFiles of an index that has a prepared scan, each once. */
  public static List files(TahoeFileIndex index) {
    Seq files = index instanceof TahoeBatchFileIndex ? ((TahoeBatchFileIndex) index).addFiles() : prepared(index).files();
    return new ArrayList(scala.jdk.javaapi.CollectionConverters.asJava((Seq) files.distinct()));
  }

  /** An index with some of the files of another one, as `files` gives them. */
  public static TahoeFileIndex narrowed(TahoeFileIndex index, List files) {
    return narrowed(index, files, 1);
  }

  /** The same, if only this share of the bytes is read. The planner takes these bytes for the size of the relation. */
  public static TahoeFileIndex narrowed(TahoeFileIndex index, List files, double share) {
    return new SkippedFileIndex(index, prepared(index), Bounds.seq(files), share);
  }

  /** Makes expressions on columns of the same name equal, whatever the ids and qualifiers of the columns. */
  private static class ByName extends scala.runtime.AbstractPartialFunction {
    private static final java.util.UUID NAMES = new java.util.UUID(0, 0);

    public boolean isDefinedAt(Object e) {
      return e instanceof AttributeReference;
    }

    public Object applyOrElse(Object e, scala.Function1 otherwise) {
      if (!isDefinedAt(e)) return otherwise.apply(e);
      AttributeReference column = (AttributeReference) e;
      String name = column.name().toLowerCase(java.util.Locale.ROOT);
      AttributeReference named = (AttributeReference) column.withName(name).withQualifier(Bounds.seq(new ArrayList()));
      return named.withExprId(new ExprId(name.hashCode(), NAMES));
    }
  }

  /** The files that are left. Equal if table, version and files are equal, so that Spark reuses exchanges over equal scans. */
  public static class SkippedFileIndex extends TahoeBatchFileIndex {
    final DeltaScan prepared;
    final boolean command;
    private final double share;

    SkippedFileIndex(TahoeFileIndex index, DeltaScan prepared, Seq files, double share) {
      super(index.spark(), "batch", files, index.deltaLog(), index.path(), prepared.scannedSnapshot(), false);
      this.prepared = prepared;
      this.command = isCommand(index);
      this.share = share;
    }

    public long sizeInBytes() {
      return (long) Math.ceil(super.sizeInBytes() * share);
    }

    /** Delta has applied the partition filters that it prepared the scan with. Only others have to be applied here. */
    public Seq matchingFiles(Seq partitionFilters, Seq dataFilters) {
      for (Iterator i = partitionFilters.iterator(); i.hasNext(); ) {
        if (!applied((Expression) i.next())) return super.matchingFiles(partitionFilters, dataFilters);
      }
      return addFiles();
    }

    /** Whether Delta has applied a filter. Columns are compared by name: the scans of a union have their own expression ids. */
    private boolean applied(Expression filter) {
      // A filter without columns is in the plan above the scan as well.
      if (filter.references().isEmpty() || prepared.allFilters().contains(filter)) return true;
      Expression named = (Expression) filter.transform(new ByName());
      for (Iterator i = prepared.allFilters().iterator(); i.hasNext(); ) {
        if (named.semanticEquals((Expression) ((Expression) i.next()).transform(new ByName()))) return true;
      }
      return false;
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

  // ---- explain ------------------------------------------------------------------------------------------------

  public static boolean explaining() {
    return EXPLAINING.get() != null;
  }

  /** A Delta scan of a plan, with what the rules did to it. */
  public static ObjectNode describe(LogicalRelation scan) {
    TahoeFileIndex index = (TahoeFileIndex) ((HadoopFsRelation) scan.relation()).location();
    ObjectNode node = JSON.createObjectNode();
    node.put("table", scan.catalogTable().isDefined()
        ? ((org.apache.spark.sql.catalyst.catalog.CatalogTable) scan.catalogTable().get()).identifier().unquotedString()
        : index.path().toString());
    node.put("version", index.version());
    DeltaScan prepared = prepared(index);
    if (prepared != null) {
      int left = ((Seq) prepared.files().distinct()).size();
      node.put("total", prepared.scannedSnapshot().numOfFiles());
      node.put("delta", left);
      node.put("bounds", index instanceof SkippedFileIndex ? files(index).size() : left);
    }
    String skipping = outcome(scan, SKIPPING);
    if (skipping != null) node.put("outcome", skipping);
    String reading = outcome(scan, READING);
    if (reading != null) node.put("reading", reading).put("bounds", files(reading, node.has("bounds") ? node.get("bounds").asInt() : 0));
    return node;
  }

  /** The number of files in a scan's outcome; `otherwise` if the outcome does not say. */
  private static int files(String outcome, int otherwise) {
    JsonNode node = node(outcome);
    return node.has("files") ? node.get("files").asInt() : otherwise;
  }

  /** An outcome, as it was set. */
  public static JsonNode node(String outcome) {
    try {
      return (JsonNode) JSON.readTree(outcome);
    } catch (java.io.IOException impossible) {
      throw new IllegalStateException(impossible);
    }
  }
}
