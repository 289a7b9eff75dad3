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
  private static final int MAX_KEYS = 10000;  // of more keys, only the range is demanded
  private static final long SMALL_BYTES = 10 << 20;  // of a table that is read for its keys; what Spark broadcasts by default

  /** One requirement: a predicate, or that an expression has one of the other side's keys. */
  private static class Demand {
    final Expression expression;  // the predicate if there is no key; over the columns of the plan
    final Expression key;  // over the columns of the other side
    final LogicalPlan side;  // the other side

    Demand(Expression expression, Expression key, LogicalPlan side) {
      this.expression = expression;
      this.key = key;
      this.side = side;
    }
  }

  private final List demands;
  // The plan may number its rows. These numbers change if rows that do not meet the demands are left out.
  private final boolean numbered;
  private final int limit;  // so many rows are required, the first ones in `order` if that is set; 0 for all rows
  private final SortOrder order;

  private Demands(List demands, boolean numbered, int limit, SortOrder order) {
    this.demands = demands;
    this.numbered = numbered;
    this.limit = limit;
    this.order = order;
  }

  // ---- down the plan ----------------------------------------------------------------------------------------------

  /** What a node demands of the rows of a child, if these are the demands on the rows of the node. */
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

  /**
   * A filter may remove the first rows of an order, so ORDER BY with LIMIT demands nothing below it. If the filter removes only
   * the rows in which the ordered value is NULL, it is as if NULLs came last.
   */
  private Demands of(Filter filter) {
    if (!filter.condition().deterministic()) return NONE;
    if (order == null) return new Demands(demands, numbered, 0, null);
    boolean notNull = isNotNull(filter.condition(), order.child());
    SortOrder last = new SortOrder(order.child(), order.direction(), NullsLast$.MODULE$, order.sameOrderExpressions());
    return new Demands(demands, numbered, notNull ? limit : 0, notNull ? last : null);
  }

  /** Whether a condition says that a value is not NULL, and nothing else but that what it is computed from is not NULL. */
  private static boolean isNotNull(Expression condition, Expression value) {
    List parts = new ArrayList();
    for (Expression of = value; of != null; ) {
      parts.add(text(of));
      boolean step = of instanceof Cast || of instanceof VariantGet || of instanceof GetStructField;
      of = step ? (Expression) of.children().apply(0) : null;
    }
    List terms = new ArrayList();
    for (; condition instanceof And; condition = ((And) condition).left()) terms.add(((And) condition).right());
    terms.add(condition);
    boolean itself = false;
    for (int t = 0; t < terms.size(); t++) {
      if (!(terms.get(t) instanceof IsNotNull)) return false;
      int part = parts.indexOf(text(((IsNotNull) terms.get(t)).child()));
      if (part < 0) return false;
      itself |= part == 0;
    }
    return itself;
  }

  /** A text that is equal for equal expressions on a VARIANT, whether or not PushVariantIntoScan moved them to the scan. */
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
    boolean preserved = child == 0 ? type instanceof LeftOuter$ || type instanceof LeftAnti$ : type instanceof RightOuter$;
    boolean known = inner || preserved || type instanceof LeftSemi$ || type instanceof LeftOuter$ || type instanceof RightOuter$
        || type instanceof LeftAnti$;
    if (preserved || !known) return NONE;
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

  /** Replaces the columns of a projection by what they are computed from. */
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

  /** The demands that use a VARIANT, as filters of the scan. `command`: whether DELETE, UPDATE or MERGE looks for its rows. */
  public List filters(Filters scan, boolean command) {
    List filters = new ArrayList();
    for (int d = 0; d < demands.size() && (command || !numbered); d++) {
      Demand demand = (Demand) demands.get(d);
      if (!scan.readsVariant(demand.expression)) continue;
      try {
        Expression filter = demand.key == null ? demand.expression : among(demand, command);
        if (filter != null) filters.add(filter);
      } catch (Throwable failure) {
        // Not raised here: a filter above may keep the query from the row that fails. If none does, the query fails itself.
        if (FileBounds.stops(failure)) org.apache.spark.unsafe.Platform.throwException(failure);
      }
    }
    return filters;
  }

  /**
   * The order whose first rows are demanded, `limit` of them; null if there is none, or if bounds cannot tell where these rows
   * are: NULLs that come first have no bounds, and bounds of strings may be cut.
   */
  public SortOrder first(Filters scan) {
    boolean known = order != null && order.nullOrdering() instanceof NullsLast$ && scan.readsVariant(order.child());
    DataType type = known ? order.child().dataType() : DataTypes.StringType;
    return isOrdered(type) && !(type instanceof StringType) ? order : null;
  }

  public int limit() {
    return limit;
  }

  /**
   * The filter that the expression has one of the other side's keys or, if they are many, a value in their range. Null if they
   * take long to find, or if there are none.
   */
  private static Expression among(Demand demand, boolean command) {
    Expression key = demand.key;
    if (!isOrdered(key.dataType())) return null;
    Expression filter = Literal$.MODULE$.TrueLiteral();
    LogicalPlan side = demand.side;
    for (; side instanceof Project || side instanceof Filter; side = (LogicalPlan) side.children().apply(0)) {
      if (side instanceof Filter) {
        // Other filters are left out, which gives more keys: MERGE counts the rows of its source in a filter.
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

  /** Whether a plan gives the same rows each time, with little work: a small Delta table, or a checkpoint. */
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
