package delta_variant;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.aggregate.*;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.PushVariantIntoScan$;
import org.apache.spark.sql.types.DataTypes;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.math.Ordering;

/**
 * Answers MIN and MAX of paths, and COUNT(*), over all rows of a scan. The log answers for the files with exact bounds, in
 * one row; the other files are aggregated by a query, and both are combined.
 *
 * Janino compiles this file: no generics, no lambdas.
 */
public class LogAggregates {
  private static final String ROWS = "rows";  // key of COUNT(*)

  private final Uses uses;
  private final Aggregate node;
  private final Map functions = new LinkedHashMap();  // key -> the first AggregateExpression
  private final Map requested = new LinkedHashMap();  // key of a Use -> Use
  private final Map minima = new HashMap();  // key of a Use -> internal value, over the files that the log decides
  private final Map maxima = new HashMap();
  private long rows;
  private LogicalRelation rest;

  private LogAggregates(Uses uses) {
    this.uses = uses;
    this.node = (Aggregate) uses.nodes.get(uses.chain);
  }

  /** The aggregates of a plan over a scan; null if the plan uses anything else of the scan. */
  public static LogAggregates of(Uses uses) {
    if (uses.chain == uses.nodes.size() || !(uses.nodes.get(uses.chain) instanceof Aggregate)) return null;
    for (int n = 0; n < uses.chain; n++) {
      if (!(uses.nodes.get(n) instanceof Project)) return null;
    }
    LogAggregates found = new LogAggregates(uses);
    boolean known = found.node.groupingExpressions().isEmpty() && found.add(found.node.aggregateExpressions());
    return known && !found.requested.isEmpty() ? found : null;
  }

  private boolean add(Seq expressions) {
    for (int i = 0; i < expressions.size(); i++) {
      Expression e = (Expression) expressions.apply(i);
      if (!(e instanceof AggregateExpression)) {
        if (e instanceof Attribute || !add(e.children())) return false;
        continue;
      }
      AggregateExpression function = (AggregateExpression) e;
      String key = key(function);
      if (key == null || function.isDistinct() || function.filter().isDefined()) return false;
      if (!functions.containsKey(key)) functions.put(key, function);
      Uses.Use use = use(function);
      if (use != null) requested.put(use.key(), use);
    }
    return true;
  }

  /** A text that is equal for equal functions; null for functions other than MIN, MAX and COUNT(*). */
  private String key(AggregateExpression function) {
    AggregateFunction of = function.aggregateFunction();
    if (of instanceof Count) {
      for (int c = 0; c < of.children().size(); c++) {
        Object child = of.children().apply(c);
        if (!(child instanceof Literal) || ((Literal) child).value() == null) return null;
      }
      return ROWS;
    }
    if (!(of instanceof Min) && !(of instanceof Max)) return null;
    Uses.Use use = use(function);
    return use == null || use.path == null ? null : (of instanceof Min ? "min " : "max ") + use.key();
  }

  private Uses.Use use(AggregateExpression function) {
    if (function.aggregateFunction() instanceof Count) return null;
    Expression argument = (Expression) function.aggregateFunction().children().apply(0);
    for (int n = uses.chain - 1; n >= 0; n--) {
      argument = (Expression) argument.transform(new Named((Project) uses.nodes.get(n)));
    }
    return uses.use(argument);
  }

  /** Replaces the names of a projection by their expressions. */
  private static class Named extends scala.runtime.AbstractPartialFunction {
    private final Map values = new HashMap();  // ExprId -> Expression

    Named(Project node) {
      for (int c = 0; c < node.projectList().size(); c++) {
        Object column = node.projectList().apply(c);
        if (column instanceof Alias) values.put(((Alias) column).exprId(), ((Alias) column).child());
      }
    }

    public boolean isDefinedAt(Object e) {
      return e instanceof Attribute && values.containsKey(((Attribute) e).exprId());
    }

    public Object applyOrElse(Object e, scala.Function1 otherwise) {
      return isDefinedAt(e) ? values.get(((Attribute) e).exprId()) : otherwise.apply(e);
    }
  }

  /** The Uses whose MIN or MAX is requested, in the order of the bounds for `decide`. */
  public List requested() {
    return new ArrayList(requested.values());
  }

  // ---- the log ----------------------------------------------------------------------------------------------------

  /**
   * Aggregates the bounds of the files that the log decides, and returns the other files. `bounds` are those of the reply
   * (delta_variant/skipping/extremes.py): for each Use the smallest and the largest value, and last the number of rows.
   */
  public List decide(List files, FileBounds known, Tree.Values[] bounds, SkipFiles skipping) {
    List others = new ArrayList();
    List requested = requested();
    synchronized (known) {
      for (int f = 0; f < files.size(); f++) {
        AddFile file = (AddFile) files.get(f);
        int number = skipping.isExact(file) ? known.number(file.path()) : -1;
        boolean decided = number >= 0;
        for (int b = 0; b < bounds.length && decided; b++) decided = isKnown(bounds[b].get(number));
        if (!decided) {
          others.add(file);
          continue;
        }
        rows += ((Number) bounds[bounds.length - 1].get(number)).longValue();
        for (int u = 0; u < requested.size(); u++) {
          String key = ((Uses.Use) requested.get(u)).key();
          keep(minima, key, bounds[2 * u].get(number), bounds[2 * u].order());
          keep(maxima, key, bounds[2 * u + 1].get(number), bounds[2 * u + 1].order().reverse());
        }
      }
    }
    return others;
  }

  /** Whether a bound is there and exact. Bounds do not tell the sign of a floating-point zero (protocol/README.md, B3). */
  private static boolean isKnown(Object value) {
    boolean approximate = value instanceof Double || value instanceof Float;
    return value != null && !(approximate && ((Number) value).doubleValue() == 0);
  }

  private static void keep(Map values, String key, Object value, Ordering order) {
    Object before = values.get(key);
    if (before == null || order.compare(value, before) < 0) values.put(key, value);
  }

  // ---- the plan ---------------------------------------------------------------------------------------------------

  /** The plan without the scan, if the log decides all of its files. `outcome` is what `explain` shows of the scan. */
  public LogicalPlan plan(String outcome) {
    LocalRelation row = row();
    Scans.setOutcome(row, Scans.READING, outcome);
    return above(new Project(replaced(row.output(), false), row));
  }

  /** The scan as it was before PushVariantIntoScan. */
  public LogicalRelation scan() {
    return uses.scan;
  }

  /** The scan of the other files in the result of `plan`. */
  public LogicalRelation rest() {
    return rest;
  }

  /** The plan that combines the log's answer with a scan of the other files. */
  public LogicalPlan plan(LogicalRelation others) {
    LogicalPlan plan = others;
    for (int n = 0; n < uses.chain; n++) plan = Scans.with((LogicalPlan) uses.nodes.get(n), 0, plan);
    List values = new ArrayList();
    List partial = new ArrayList();
    for (Iterator i = functions.values().iterator(); i.hasNext(); ) {
      AggregateExpression function = (AggregateExpression) i.next();
      AggregateFunction of = function.aggregateFunction();
      if (!(of instanceof Count)) {
        NamedExpression value = Bounds.named((Expression) of.children().apply(0), "value");
        values.add(value);
        of = over(of, value.toAttribute());
      }
      partial.add(Bounds.named(of.toAggregateExpression(), "partial"));
    }
    Seq none = Bounds.seq(new ArrayList());
    plan = new Aggregate(none, Bounds.seq(partial), new Project(Bounds.seq(values), plan), Option.empty());
    List both = new ArrayList();
    both.add(row());
    plan = (LogicalPlan) PushVariantIntoScan$.MODULE$.apply(plan);
    rest = (LogicalRelation) plan.collectLeaves().apply(0);
    both.add(plan);
    Union union = new Union(Bounds.seq(both), false, false);
    return above(new Aggregate(none, replaced(union.output(), true), union, Option.empty()));
  }

  private static AggregateFunction over(AggregateFunction of, Expression value) {
    return of instanceof Min ? (AggregateFunction) new Min(value) : new Max(value);
  }

  /** The log's answer: one row, with a column for each function. */
  private LocalRelation row() {
    List columns = new ArrayList();
    List values = new ArrayList();
    for (Iterator i = functions.entrySet().iterator(); i.hasNext(); ) {
      Map.Entry function = (Map.Entry) i.next();
      Uses.Use use = use((AggregateExpression) function.getValue());
      columns.add(Bounds.attribute("logged", use == null ? DataTypes.LongType : use.type).withNullability(use != null));
      boolean least = ((String) function.getKey()).startsWith("min ");
      values.add(use == null ? (Object) Long.valueOf(rows) : (least ? minima : maxima).get(use.key()));
    }
    List row = java.util.Collections.singletonList(InternalRow.fromSeq(Bounds.seq(values)));
    return new LocalRelation(Bounds.seq(columns), Bounds.seq(row), false, Option.empty());
  }

  /** The aggregate's columns, computed from the columns of `row`, or of several such rows. */
  private Seq replaced(Seq columns, boolean several) {
    List replaced = new ArrayList();
    for (int i = 0; i < node.aggregateExpressions().size(); i++) {
      replaced.add(((Expression) node.aggregateExpressions().apply(i)).transform(new Replaced(columns, several)));
    }
    return Bounds.seq(replaced);
  }

  private class Replaced extends scala.runtime.AbstractPartialFunction {
    private final Map values = new HashMap();

    Replaced(Seq columns, boolean several) {
      int number = 0;
      for (Iterator i = functions.entrySet().iterator(); i.hasNext(); number++) {
        Map.Entry function = (Map.Entry) i.next();
        AggregateFunction of = ((AggregateExpression) function.getValue()).aggregateFunction();
        Expression value = (Expression) columns.apply(number);
        if (several && of instanceof Count) {
          List sum = new ArrayList();
          sum.add(new Sum(value).toAggregateExpression());
          sum.add(Bounds.literal(Long.valueOf(0), DataTypes.LongType));
          value = new Coalesce(Bounds.seq(sum));
        } else if (several) {
          value = over(of, value).toAggregateExpression();
        }
        values.put(function.getKey(), value);
      }
    }

    public boolean isDefinedAt(Object e) {
      return e instanceof AggregateExpression && values.containsKey(key((AggregateExpression) e));
    }

    public Object applyOrElse(Object e, scala.Function1 otherwise) {
      return isDefinedAt(e) ? values.get(key((AggregateExpression) e)) : otherwise.apply(e);
    }
  }

  private LogicalPlan above(LogicalPlan plan) {
    TypedPlan.check(plan, node);
    for (int n = uses.chain + 1; n < uses.nodes.size(); n++) {
      plan = Scans.with((LogicalPlan) uses.nodes.get(n), ((Integer) uses.children.get(n)).intValue(), plan);
    }
    return plan;
  }
}
