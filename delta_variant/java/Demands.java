package delta_variant;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.catalyst.expressions.variant.VariantGet;
import org.apache.spark.sql.catalyst.plans.*;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.VariantMetadata;
import org.apache.spark.sql.types.*;
import scala.Option;
import scala.collection.Iterator;

/**
 * What the operators above a scan require of its rows: a row that does not meet a requirement cannot change the result of the
 * plan.
 *
 * A join requires of one side a predicate, or that an expression has one of the other side's keys; keys are read only where
 * that is cheap. ORDER BY with LIMIT requires the first rows of its order. Janino compiles this file: no generics, no
 * lambdas.
 */
public class Demands {
  public static final Demands NONE = new Demands(new ArrayList(), false, 0, null);
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
  private final int limit;  // so many rows, the first ones in an order once there is one; 0 for all
  private final SortOrder order;

  private Demands(List demands, boolean numbered, int limit, SortOrder order) {
    this.demands = demands;
    this.numbered = numbered;
    this.limit = limit;
    this.order = order;
  }

  // ---- down the plan ----------------------------------------------------------------------------------------------

  /** What a node demands of the rows of a child, if these are demanded of its own. */
  public Demands of(LogicalPlan node, int child) {
    if (node instanceof Join) return of((Join) node, child);
    if (node instanceof LocalLimit) return of((LocalLimit) node);
    if (node instanceof Sort) return of((Sort) node);
    if (demands.isEmpty() && limit == 0) return NONE;
    if (node instanceof Filter) return of((Filter) node);
    return node instanceof Project ? of((Project) node) : NONE;
  }

  private static Demands of(LocalLimit node) {
    if (!(node.limitExpr() instanceof Literal)) return NONE;
    return new Demands(new ArrayList(), false, ((Number) ((Literal) node.limitExpr()).value()).intValue(), null);
  }

  private Demands of(Sort sort) {
    if (limit == 0 || order != null || !sort.global()) return NONE;
    return new Demands(demands, numbered, limit, (SortOrder) sort.order().apply(0));
  }

  /** A filter leaves fewer rows than the order has first ones, unless it asks no more than that these are there. */
  private Demands of(Filter filter) {
    if (!filter.condition().deterministic()) return NONE;
    if (order == null) return new Demands(demands, numbered, 0, null);
    boolean there = isThere(filter.condition(), order.child());
    SortOrder last = new SortOrder(order.child(), order.direction(), NullsLast$.MODULE$, order.sameOrderExpressions());
    return new Demands(demands, numbered, there ? limit : 0, there ? last : null);
  }

  /** Whether a condition is that a value is not NULL, and no more than that what it is computed from is not. */
  private static boolean isThere(Expression condition, Expression value) {
    List parts = new ArrayList();
    for (Expression of = value; of != null; ) {
      parts.add(text(of));
      boolean step = of instanceof Cast || of instanceof VariantGet || of instanceof GetStructField;
      of = step ? (Expression) of.children().apply(0) : null;
    }
    List asked = new ArrayList();
    for (; condition instanceof And; condition = ((And) condition).left()) asked.add(((And) condition).right());
    asked.add(condition);
    boolean itself = false;
    for (int a = 0; a < asked.size(); a++) {
      if (!(asked.get(a) instanceof IsNotNull)) return false;
      int part = parts.indexOf(text(((IsNotNull) asked.get(a)).child()));
      if (part < 0) return false;
      itself |= part == 0;
    }
    return itself;
  }

  /** Equal for what is the same of a VARIANT, whether PushVariantIntoScan has brought it to the scan or not. */
  private static String text(Expression e) {
    if (e instanceof Cast) return text(((Cast) e).child()) + "::" + e.dataType().sql();
    if (e instanceof VariantGet && ((VariantGet) e).path() instanceof Literal) {
      return text(((VariantGet) e).child()) + ":" + ((VariantGet) e).path() + "::" + e.dataType().sql();
    }
    if (!(e instanceof GetStructField) || !VariantMetadata.isVariantStruct(((GetStructField) e).child().dataType())) {
      return String.valueOf(e.canonicalized());
    }
    Expression variant = ((GetStructField) e).child();
    StructField field = ((StructType) variant.dataType()).fields()[((GetStructField) e).ordinal()];
    String path = VariantMetadata.fromMetadata(field.metadata()).path();
    return path.equals("$") && field.dataType() instanceof VariantType ? text(variant) : text(variant) + ":" + path + "::" + e.dataType().sql();
  }

  private Demands of(Join join, int child) {
    JoinType type = join.joinType();
    boolean inner = type instanceof Inner$ || type instanceof Cross$;
    boolean kept = child == 0 ? type instanceof LeftOuter$ || type instanceof LeftAnti$ : type instanceof RightOuter$;
    boolean known = inner || kept || type instanceof LeftSemi$ || type instanceof LeftOuter$ || type instanceof RightOuter$ || type instanceof LeftAnti$;
    if (kept || !known) return NONE;
    LogicalPlan mine = (LogicalPlan) join.children().apply(child);
    LogicalPlan other = (LogicalPlan) join.children().apply(1 - child);
    List found = new ArrayList();
    for (int d = 0; inner && d < demands.size(); d++) {
      if (isOf(((Demand) demands.get(d)).expression, mine)) found.add(demands.get(d));
    }
    if (join.condition().isDefined()) conjuncts((Expression) join.condition().get(), mine, other, found);
    return new Demands(found, numbered, 0, null);
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
    return isPlain(e) && !e.references().isEmpty() && e.references().subsetOf(plan.outputSet());
  }

  private static boolean isPlain(Expression e) {
    return e.deterministic() && !SubqueryExpression$.MODULE$.hasSubquery(e);
  }

  private Demands of(Project project) {
    Below below = new Below(project);
    List found = new ArrayList();
    for (int d = 0; d < demands.size(); d++) {
      Demand demand = (Demand) demands.get(d);
      Expression expression = (Expression) demand.expression.transform(below);
      if (expression.deterministic()) found.add(new Demand(expression, demand.key, demand.side));
    }
    boolean same = Scans.isDeterministic(project);
    SortOrder ordered = order == null ? null : (SortOrder) order.transform(below);
    return new Demands(found, numbered || !same, same ? limit : 0, same ? ordered : null);
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
      try {
        Expression filter = demand.key == null ? demand.expression : among(demand, command);
        if (filter != null) filters.add(filter);
      } catch (Throwable failure) {
        // The query meets it again, if it does: a filter above may keep it from the row that fails.
        if (FileBounds.stops(failure)) org.apache.spark.unsafe.Platform.throwException(failure);
      }
    }
    return filters;
  }

  /**
   * What the rows that an order has first are compared with, and how many there are; null where nothing in their order can be known:
   * NULLs that come first have no bounds, those of strings may be cut.
   */
  public SortOrder first(Filters asked) {
    boolean known = order != null && order.nullOrdering() instanceof NullsLast$ && asked.readsVariant(order.child());
    DataType type = known ? order.child().dataType() : DataTypes.StringType;
    return isOrdered(type) && !(type instanceof StringType) ? order : null;
  }

  public int limit() {
    return limit;
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
        Expression condition = ((Filter) side).condition();
        if (isPlain(condition)) filter = new And(condition, filter);
        continue;
      }
      Below below = new Below((Project) side);
      key = (Expression) key.transform(below);
      filter = (Expression) filter.transform(below);
      if (!filter.deterministic()) filter = Literal$.MODULE$.TrueLiteral();
    }
    if (!isPlain(key) || side.isStreaming() || !(side instanceof LocalRelation || command && isCheap(side))) return null;
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
