package delta_variant;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.CoalesceExec;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.Seq;

/**
 * The Spark jobs that read the log of one table version, from the state that Delta keeps in memory.
 *
 * Their physical plans are made here, as projections over Delta's own plan: to analyze, optimize and compile them would take
 * longer than the jobs of small tables. Expressions are interpreted, so predicates of any length stay clear of the limits of
 * generated code. Files are identified by the 64-bit hash of their path. Janino compiles this file: no generics, no lambdas.
 */
public class Jobs {
  private static final long SEED = 42;
  private static final String CODEGEN = "spark.sql.codegen.factoryMode";
  // Delta keeps its state in 50 partitions, whatever the size of the table. 50 tasks cost more than 10,000 files.
  private static final int FILES_PER_TASK = 10000;
  private static final String DAMAGED = "MALFORMED_VARIANT";

  private final Bounds log;
  private final long files;

  public Jobs(Bounds log, long files) {
    this.log = log;
    this.files = files;
  }

  /** A row per file: the hash of its path, the hash of `Bounds.contents`, and the length of its statistics as text. */
  public InternalRow[] state() {
    SparkPlan state = plan(log.snapshot().stateDF());
    Attribute add = Bounds.attribute(state.output(), "add");
    List row = new ArrayList();
    row.add(Bounds.named(hash(log.contents(add).subList(0, 1)), "path"));
    row.add(Bounds.named(hash(log.contents(add)), "contents"));
    row.add(Bounds.named(new OctetLength(Bounds.field(add, "stats")), "bytes"));
    return run(new ProjectExec(Bounds.seq(row), new FilterExec(new IsNotNull(add), state)));
  }

  /** The rows (Bounds) of the files with these hashes, or of all files if `hashes` is null. Damaged values are NULL. */
  public InternalRow[] rows(Set hashes) {
    return run(rows(hashes, true));
  }

  /** For the files with these hashes, or for all: the hash of the path and the values of these bounds (Bound). */
  public InternalRow[] values(List bounds, Set hashes) {
    try {
      return run(values(rows(hashes, false), bounds));
    } catch (Throwable failure) {
      // Bounds are checked for damage only if a damaged one made the job fail: the check takes as long as the rest.
      for (Throwable t = failure; t != null; t = t.getCause()) {
        if (String.valueOf(t.getMessage()).contains(DAMAGED)) return run(values(rows(hashes, true), bounds));
      }
      org.apache.spark.unsafe.Platform.throwException(failure);
      return null;
    }
  }

  private SparkPlan rows(Set hashes, boolean checked) {
    SparkPlan files = plan(log.snapshot().withStats());
    List path = new ArrayList();
    path.add(Bounds.attribute(files.output(), "path"));
    Expression hash = hash(path);
    Seq row = log.row(files.output(), hash, checked);
    if (hashes != null) {
      files = new FilterExec(new InSet(hash, scala.jdk.javaapi.CollectionConverters.asScala(hashes).toSet()), files);
    }
    return new ProjectExec(row, files);
  }

  private static SparkPlan values(SparkPlan rows, List bounds) {
    List row = new ArrayList();
    row.add(Bounds.attribute(rows.output(), "path"));
    for (int b = 0; b < bounds.size(); b++) {
      row.add(Bounds.named(((Bound) bounds.get(b)).over(rows.output()), "bound" + b));
    }
    return new ProjectExec(Bounds.seq(row), rows);
  }

  private static SparkPlan plan(Dataset rows) {
    return ((org.apache.spark.sql.classic.Dataset) rows).queryExecution().executedPlan();
  }

  /** The hash of a path, as it is in the rows of these jobs. */
  public static long hash(String path) {
    return XxHash64Function.hash(UTF8String.fromString(path), DataTypes.StringType, SEED);
  }

  /** The expression that computes such a hash of one or more values. */
  public static Expression hash(List parts) {
    return new XxHash64(Bounds.seq(parts), SEED);
  }

  private InternalRow[] run(SparkPlan plan) {
    SparkContext context = SparkSession.active().sparkContext();
    String before = context.getLocalProperty(CODEGEN);
    context.setLocalProperty(CODEGEN, "NO_CODEGEN");
    try {
      return new CoalesceExec(1 + (int) Math.min(files / FILES_PER_TASK, 10000), plan).executeCollect();
    } finally {
      context.setLocalProperty(CODEGEN, before);
    }
  }

  /** A bound as the reply describes it (delta_variant/skipping/bounds.py, Projection), with the types that it names. */
  public static class Bound {
    public final String text;
    private final JsonNode json;
    private final Map types;
    private final String zone;

    public Bound(JsonNode json, Map types, String zone) {
      this.text = zone + json;
      this.json = json;
      this.types = types;
      this.zone = zone;
    }

    public Expression over(Seq row) {
      return Bounds.read(json, row, types, zone);
    }
  }
}
