package delta_variant;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.types.*;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * What joins demand of the rows of one of their sides: a row that does not meet it changes nothing in what the join gives.
 *
 * A demand is a predicate, or that an expression has one of the values that the join's other side has for its key. These are
 * looked up where that costs little. Janino compiles this file: no generics, no lambdas.
 */
public class Demands {
  public static final Demands NONE = new Demands(new ArrayList(), false);
  private static final int MAX_KEYS = 10000;  // of more of them the smallest and the largest are demanded
  private static final long SMALL_BYTES = 10 << 20;  // of a table that is read for its keys, as Spark broadcasts by default

  /** On the columns of the plan that `Demands` is of. */
  private static class Demand {
    final Expression expression;  // a predicate, unless there is a key
    final Expression key;  // of the other side
    final LogicalPlan side;

    Demand(Expression expression, Expression key, LogicalPlan side) {
      this.expression = expression;
      this.key = key;
      this.side = side;
    }
  }

  private final List demands;
  private final boolean numbered;  // rows that do not meet them may change numbers that the plan gives to others

  private Demands(List demands, boolean numbered) {
    this.demands = demands;
    this.numbered = numbered;
  }

  // ---- down the plan ----------------------------------------------------------------------------------------------

  /** What a node demands of the rows of a child, if these are demanded of its own. */
  public Demands of(LogicalPlan node, int child) {
    if (node instanceof Join) return of((Join) node, child);
    if (demands.isEmpty()) return NONE;
    if (node instanceof Filter) return ((Filter) node).condition().deterministic() ? this : NONE;
    return node instanceof Project ? of((Project) node) : NONE;
  }

  private Demands of(Join join, int child) {
    String type = join.joinType().sql();
    boolean inner = type.equals("INNER") || type.equals("CROSS");
    boolean semi = type.equals("LEFT SEMI");
    boolean demanded = inner || semi || (child == 0 ? type.equals("RIGHT OUTER") : type.equals("LEFT OUTER") || type.equals("LEFT ANTI"));
    if (!demanded) return NONE;
    LogicalPlan mine = (LogicalPlan) join.children().apply(child);
    LogicalPlan other = (LogicalPlan) join.children().apply(1 - child);
    List found = new ArrayList();
    for (int d = 0; inner && d < demands.size(); d++) {
      if (isOf(((Demand) demands.get(d)).expression, mine)) found.add(demands.get(d));
    }
    if (join.condition().isDefined()) conjuncts((Expression) join.condition().get(), mine, other, found);
    return new Demands(found, numbered);
  }

  private static void conjuncts(Expression condition, LogicalPlan mine, LogicalPlan other, List found) {
    if (condition instanceof And) {
      conjuncts(((And) condition).left(), mine, other, found);
      conjuncts(((And) condition).right(), mine, other, found);
    } else if (isOf(condition, mine)) {
      found.add(new Demand(condition, null, null));
    } else if (condition instanceof EqualTo) {
      Expression left = ((EqualTo) condition).left();
      Expression right = ((EqualTo) condition).right();
      if (isOf(left, mine) && isOf(right, other)) found.add(new Demand(left, right, other));
      if (isOf(right, mine) && isOf(left, other)) found.add(new Demand(right, left, other));
    }
  }

  private static boolean isOf(Expression e, LogicalPlan plan) {
    return e.deterministic() && !e.references().isEmpty() && e.references().subsetOf(plan.outputSet())
        && !SubqueryExpression$.MODULE$.hasSubquery(e);
  }

  private Demands of(Project project) {
    Below below = new Below(project);
    List found = new ArrayList();
    for (int d = 0; d < demands.size(); d++) {
      Demand demand = (Demand) demands.get(d);
      Expression expression = (Expression) demand.expression.transform(below);
      if (expression.deterministic()) found.add(new Demand(expression, demand.key, demand.side));
    }
    return new Demands(found, numbered || !isDeterministic(project));
  }

  private static boolean isDeterministic(LogicalPlan node) {
    for (Iterator i = node.expressions().iterator(); i.hasNext(); ) {
      if (!((Expression) i.next()).deterministic()) return false;
    }
    return true;
  }

  /** What a projection's columns are below it. */
  private static class Below extends scala.runtime.AbstractPartialFunction {
    private final Map values = new HashMap();  // ExprId -> Expression

    Below(Project project) {
      for (Iterator i = project.projectList().iterator(); i.hasNext(); ) {
        Object e = i.next();
        if (e instanceof Alias) values.put(((Alias) e).exprId(), ((Alias) e).child());
      }
    }

    public boolean isDefinedAt(Object e) {
      return e instanceof AttributeReference && values.containsKey(((AttributeReference) e).exprId());
    }

    public Object applyOrElse(Object e, scala.Function1 otherwise) {
      return isDefinedAt(e) ? values.get(((AttributeReference) e).exprId()) : otherwise.apply(e);
    }
  }

  // ---- at the scan ------------------------------------------------------------------------------------------------

  /** Those that ask something of a VARIANT, as filters of the scan. `command`: DELETE, UPDATE or MERGE looks for its rows. */
  public List filters(Filters asked, boolean command) {
    List filters = new ArrayList();
    for (int d = 0; d < demands.size() && (command || !numbered); d++) {
      Demand demand = (Demand) demands.get(d);
      if (!asked.readsVariant(demand.expression)) continue;
      Expression filter = demand.key == null ? demand.expression : among(demand, command);
      if (filter != null) filters.add(filter);
    }
    return filters;
  }

  /** That the expression has one of the values of the other side's key; null where these are too dear to find, or too many. */
  private static Expression among(Demand demand, boolean command) {
    Expression key = demand.key;
    if (!isOrdered(key.dataType())) return null;
    Expression filter = Literal$.MODULE$.TrueLiteral();
    LogicalPlan side = demand.side;
    for (; side instanceof Project || side instanceof Filter; side = (LogicalPlan) side.children().apply(0)) {
      if (side instanceof Filter) {
        // Without a filter there are more keys, and MERGE counts its source's rows in one.
        if (((Filter) side).condition().deterministic()) filter = new And(filter, ((Filter) side).condition());
        continue;
      }
      Below below = new Below((Project) side);
      key = (Expression) key.transform(below);
      filter = (Expression) filter.transform(below);
      if (!filter.deterministic()) filter = Literal$.MODULE$.TrueLiteral();
    }
    if (!key.deterministic() || !(side instanceof LocalRelation || command && isCheap(side))) return null;
    NamedExpression named = Bounds.named(key, "key");
    LogicalPlan keys = new Project(Bounds.seq(java.util.Collections.singletonList(named)), new Filter(filter, side));
    InternalRow[] some = rows((LogicalPlan) Limit$.MODULE$.apply(Literal$.MODULE$.apply(Integer.valueOf(MAX_KEYS + 1)), keys));
    List values = new ArrayList();
    if (some.length <= MAX_KEYS) {
      for (int r = 0; r < some.length; r++) {
        if (!some[r].isNullAt(0)) values.add(new Literal(some[r].copy().get(0, key.dataType()), key.dataType()));
      }
      return values.isEmpty() ? null : new In(demand.expression, Bounds.seq(values));
    }
    values.add(Bounds.named(aggregate(new Min(named.toAttribute())), "smallest"));
    values.add(Bounds.named(aggregate(new Max(named.toAttribute())), "largest"));
    InternalRow range = rows(new Aggregate(Bounds.seq(new ArrayList()), Bounds.seq(values), keys, Option.empty()))[0];
    if (range.isNullAt(0)) return null;
    Expression from = new Literal(range.get(0, key.dataType()), key.dataType());
    Expression to = new Literal(range.get(1, key.dataType()), key.dataType());
    return new And(new GreaterThanOrEqual(demand.expression, from), new LessThanOrEqual(demand.expression, to));
  }

  private static boolean isOrdered(DataType type) {
    return type instanceof IntegralType || type instanceof DecimalType || type.equals(DataTypes.StringType) || type instanceof DateType
        || type instanceof TimestampType || type instanceof TimestampNTZType;
  }

  /** Whether a plan gives the same rows each time, after little work: those of a small Delta table, or kept by Spark. */
  private static boolean isCheap(LogicalPlan side) {
    if (side instanceof LogicalRDD) return ((LogicalRDD) side).rdd().isCheckpointed();
    if (!(side instanceof LogicalRelation) || !(((LogicalRelation) side).relation() instanceof HadoopFsRelation)) return false;
    Object location = ((HadoopFsRelation) ((LogicalRelation) side).relation()).location();
    return Scans.prepared(location) != null
        && Decision.bytes(Scans.files((org.apache.spark.sql.delta.files.TahoeFileIndex) location)) <= SMALL_BYTES;
  }

  private static Expression aggregate(org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction function) {
    return function.toAggregateExpression();
  }

  private static InternalRow[] rows(LogicalPlan plan) {
    SparkSession session = (SparkSession) SparkSession.active();
    return Dataset.ofRows(session, plan).queryExecution().executedPlan().executeCollect();
  }
}
