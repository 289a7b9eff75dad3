package delta_variant;

import com.google.common.cache.Cache;
import com.google.common.cache.CacheBuilder;
import com.google.common.cache.Weigher;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BindReferences$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.InterpretedPredicate;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.package$AttributeSeq;
import org.apache.spark.sql.catalyst.optimizer.ConstantFolding$;
import org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.expressions.DecodeNestedZ85EncodedVariant;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.VariantType;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.unsafe.types.VariantVal;

/**
 * What the log of one table version knows of its Variant paths, a row per file: `path`, `marked` (the bounds were
 * computed from values), `nonnull` (the VARIANT of the tag for what the protocol has no bounds for), and for each
 * VARIANT column with statistics, in the order of `columns`, `min0`, `max0`, `min1`, and so on. What is damaged is NULL.
 *
 * The rows of small tables are kept, decoded, as long as Delta keeps the snapshot: a Spark job takes longer than asking
 * a few thousand of them. Larger tables are asked by a job. Janino compiles this file: no generics, no lambdas.
 */
public class Bounds {
  private static final String KEPT_FILES = "spark.delta_variant.keptFiles";  // at most, of one table
  private static final int KEPT_BYTES = 16 << 20;  // at most, of one table
  // Delta keeps its state in 50 partitions whatever the size of the table: 50 tasks cost more than 10,000 files.
  private static final int FILES_PER_TASK = 10000;
  private static final String DAMAGED = "MALFORMED_VARIANT";
  private static final Object TOO_LARGE = new Object();
  private static final Cache ROWS = CacheBuilder.newBuilder().weakKeys().concurrencyLevel(1)
      .maximumWeight(2L * KEPT_BYTES).weigher(new Weight()).build();  // Snapshot -> InternalRow[], or TOO_LARGE

  private final Snapshot snapshot;
  private final String mark;  // the tag of a file whose bounds were computed from values, and its value
  private final String markValue;
  private final String nonNull;  // the tag for what the protocol has no bounds for
  private final List columns = new ArrayList();

  public Bounds(Snapshot snapshot, String mark, String markValue, String nonNull) {
    this.snapshot = snapshot;
    this.mark = mark;
    this.markValue = markValue;
    this.nonNull = nonNull;
    StructType stats = snapshot.statsSchema();
    if (stats.getFieldIndex("minValues").isDefined()) {
      find((StructType) stats.apply("minValues").dataType(), new ArrayList());
    }
  }

  /** Lists of names, those that the files use. */
  public List columns() {
    return columns;
  }

  private void find(StructType struct, List outer) {
    StructField[] fields = struct.fields();
    for (int f = 0; f < fields.length; f++) {
      List names = new ArrayList(outer);
      names.add(fields[f].name());
      if (fields[f].dataType() instanceof VariantType) columns.add(names);
      if (fields[f].dataType() instanceof StructType) find((StructType) fields[f].dataType(), names);
    }
  }

  private static Column bound(String side, List names, boolean checked) {
    StringBuilder name = new StringBuilder("stats.").append(side);
    for (Iterator i = names.iterator(); i.hasNext(); ) {
      name.append(".`").append(((String) i.next()).replace("`", "``")).append("`");
    }
    return functions.expr(checked ? "CASE WHEN is_valid_variant(" + name + ") THEN " + name + " END" : name.toString());
  }

  /** A tag in Z85, decoded by the expression that decodes Delta's bounds: a struct of Variants that hold text. */
  private static Column nonNull(String tag, boolean checked) {
    Column text = functions.expr("named_struct('tag', CAST(try_element_at(tags, '" + tag + "') AS VARIANT))");
    Expression decoded = new DecodeNestedZ85EncodedVariant(ExpressionUtils.expression(text));
    Column variant = ExpressionUtils.column(decoded).getField("tag");
    return checked ? functions.when(functions.is_valid_variant(variant), variant) : variant;
  }

  /** The rows as a DataFrame. */
  public Dataset files() {
    return files(true);
  }

  private Dataset files(boolean checked) {
    List selected = new ArrayList();
    selected.add(functions.col("path"));
    selected.add(functions.expr("try_element_at(tags, '" + mark + "') <=> '" + markValue + "'").as("marked"));
    selected.add(nonNull(nonNull, checked).as("nonnull"));
    for (int c = 0; c < columns.size(); c++) {
      selected.add(bound("minValues", (List) columns.get(c), checked).as("min" + c));
      selected.add(bound("maxValues", (List) columns.get(c), checked).as("max" + c));
    }
    return snapshot.withStats().select((Column[]) selected.toArray(new Column[0]));
  }

  private StructType schema(int others) {
    StructType schema = new StructType().add("path", "string").add("marked", "boolean").add("nonnull", "variant");
    for (int c = 0; c < columns.size(); c++) schema = schema.add("min" + c, "variant").add("max" + c, "variant");
    for (int o = 0; o < others; o++) schema = schema.add("other" + o, "boolean");
    return schema;
  }

  /**
   * The paths of the files that might match: where the predicate is TRUE or NULL. `other0` and so on are predicates on
   * ordinary columns, Catalyst expressions: FALSE where Delta's own skipping rules the file out, which it is asked only of
   * tables whose rows are kept.
   */
  public Set matching(String sql, List others) throws Exception {
    String predicate = "coalesce(" + sql + ", true)";
    InternalRow[] rows = kept();
    if (rows == null) return matchingByJob(predicate, others.size());
    InterpretedPredicate matches = predicate(predicate, others.size());
    Set[] left = new Set[others.size()];  // a null: whatever the file, the answer is NULL
    Set atMost = matching(rows, matches, left);
    if (left.length == 0) return atMost;
    java.util.Arrays.fill(left, new HashSet());
    if (matching(rows, matches, left).size() == atMost.size()) return atMost;  // spares Delta's jobs
    for (int o = 0; o < left.length; o++) left[o] = left((Expression) others.get(o));
    return matching(rows, matches, left);
  }

  private static Set matching(InternalRow[] rows, InterpretedPredicate matches, Set[] left) throws Exception {
    Set paths = new HashSet();
    for (int r = 0; r < rows.length; r++) {
      if (Thread.currentThread().isInterrupted()) throw new InterruptedException();
      String path = rows[r].getUTF8String(0).toString();
      Object[] answers = new Object[left.length];
      for (int o = 0; o < left.length; o++) answers[o] = left[o] == null || left[o].contains(path) ? null : Boolean.FALSE;
      if (matches.eval(new JoinedRow(rows[r], new GenericInternalRow(answers)))) paths.add(path);
    }
    return paths;
  }

  /** Whether bounds are damaged is asked only where one of them made the job fail: it takes as long as the rest. */
  private Set matchingByJob(String predicate, int others) {
    try {
      return matching(files(false), predicate, others);
    } catch (Throwable failure) {
      for (Throwable t = failure; t != null; t = t.getCause()) {
        if (String.valueOf(t.getMessage()).contains(DAMAGED)) return matching(files(true), predicate, others);
      }
      org.apache.spark.unsafe.Platform.throwException(failure);
      return null;
    }
  }

  private Set matching(Dataset asked, String predicate, int others) {
    for (int o = 0; o < others; o++) asked = asked.withColumn("other" + o, functions.lit(null).cast("boolean"));
    Set paths = new HashSet();
    Iterator rows = collected(asked.where(predicate).select("path", new String[0]));
    while (rows.hasNext()) paths.add(((Row) rows.next()).getString(0));
    return paths;
  }

  /** The paths of the files that Delta's own skipping leaves. */
  private Set left(Expression predicate) {
    List one = new ArrayList();
    one.add(predicate);
    Set paths = new HashSet();
    scala.collection.Iterator files =
        snapshot.filesForScan(scala.jdk.javaapi.CollectionConverters.asScala(one).toIndexedSeq(), false).files().iterator();
    while (files.hasNext()) paths.add(((AddFile) files.next()).path());
    return paths;
  }

  /** How many of these files (paths; all if null) have which verdict: rows of number, verdict and count. */
  public List tally(String verdicts, List paths) {
    Dataset asked = files();
    if (paths != null) {
      Dataset wanted = snapshot.spark().createDataset(paths, Encoders.STRING()).toDF(new String[] {"path"});
      asked = asked.join(wanted, (String[]) new String[] {"path"}, "left_semi");
    }
    Dataset each = asked.select(new Column[] {functions.expr(verdicts).as("found")});
    return each.groupBy(new Column[] {functions.col("found.number"), functions.col("found.verdict")}).count().collectAsList();
  }

  private Iterator collected(Dataset rows) {
    return rows.coalesce(1 + (int) Math.min(snapshot.numOfFiles() / FILES_PER_TASK, 10000)).collectAsList().iterator();
  }

  private InterpretedPredicate predicate(String sql, int others) {
    Dataset rows = (Dataset) SparkSession.active().createDataFrame(new ArrayList(), schema(others));
    LogicalPlan plan = rows.where(sql).queryExecution().analyzed();
    plan = (LogicalPlan) ConstantFolding$.MODULE$.apply(ReplaceExpressions$.MODULE$.apply(plan));
    Filter filter = (Filter) plan;
    package$AttributeSeq row = new package$AttributeSeq(filter.child().output());
    return new InterpretedPredicate((Expression) BindReferences$.MODULE$.bindReference(filter.condition(), row, false));
  }

  /** The rows on the driver; null where they are too many or too large. */
  private InternalRow[] kept() {
    if (snapshot.numOfFiles() > Integer.parseInt(SparkSession.active().conf().get(KEPT_FILES, "5000"))) return null;
    Object rows = ROWS.getIfPresent(snapshot);
    if (rows == null) {
      rows = internal(collected(files()));
      if (new Weight().weigh(snapshot, rows) > KEPT_BYTES) rows = TOO_LARGE;
      ROWS.put(snapshot, rows);
    }
    return rows == TOO_LARGE ? null : (InternalRow[]) rows;
  }

  private static InternalRow[] internal(Iterator rows) {
    List result = new ArrayList();
    while (rows.hasNext()) {
      Row row = (Row) rows.next();
      Object[] values = new Object[row.size()];
      for (int i = 0; i < values.length; i++) {
        Object value = row.get(i);
        values[i] = value instanceof String ? UTF8String.fromString((String) value) : value;
      }
      result.add(new GenericInternalRow(values));
    }
    return (InternalRow[]) result.toArray(new InternalRow[0]);
  }

  /** Bytes that the rows hold, about. */
  public static class Weight implements Weigher {
    public int weigh(Object snapshot, Object rows) {
      if (rows == TOO_LARGE) return 1;
      long bytes = 0;
      InternalRow[] array = (InternalRow[]) rows;
      for (int r = 0; r < array.length; r++) {
        for (int i = 0; i < array[r].numFields(); i++) {
          Object value = ((GenericInternalRow) array[r]).genericGet(i);
          bytes += 48;
          if (value instanceof UTF8String) bytes += ((UTF8String) value).numBytes();
          if (value instanceof VariantVal) {
            bytes += ((VariantVal) value).getValue().length + ((VariantVal) value).getMetadata().length;
          }
        }
      }
      return (int) Math.min(bytes, Integer.MAX_VALUE);
    }
  }
}
