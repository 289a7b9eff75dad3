package delta_variant;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.variant.VariantGet;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.VariantMetadata;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.VariantType;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * The uses of one scan's VARIANTs in a plan.
 *
 * Only nodes between the scan and the root can use them. `nodes` reverses what PushVariantIntoScan did, so that each use of a
 * path is a VariantGet again, on a column or on a field of a struct. The projections and filters directly above the scan are
 * its chain; a Variant that leaves the chain is followed further up. Janino compiles this file: no generics, no lambdas.
 */
public class Uses {
  /** The location of a VARIANT, or of a struct that contains one: a column of the scan, or a field inside it. */
  public static class Place {
    public final AttributeReference column;
    public final List ordinals;
    public final DataType type;

    Place(AttributeReference column, List ordinals, DataType type) {
      this.column = column;
      this.ordinals = ordinals;
      this.type = type;
    }

    public boolean isVariant() {
      return type instanceof VariantType;
    }

    public Place field(int ordinal) {
      List deeper = new ArrayList(ordinals);
      deeper.add(Integer.valueOf(ordinal));
      return new Place(column, deeper, ((StructType) type).fields()[ordinal].dataType());
    }

    /** Equal for equal places. */
    public String key() {
      return column.exprId().id() + ordinals.toString();
    }
  }

  /** A use of a VARIANT by path: `variant_get`, a cast, IS NULL or IS NOT NULL. */
  public static class Use {
    public final Place variant;
    public final Expression child;  // the expression of the VARIANT in the use
    public final String path;  // null for IS NULL and IS NOT NULL
    public final DataType type;  // the requested type
    public final boolean fails;  // a value that does not fit into the type raises an error; if false, it gives NULL
    public final Option zone;
    public int number;  // of the path, in `paths`
    public boolean above;  // a node above the chain has this use
    public boolean everyRow;  // the plan computes its value for every row that leaves the chain

    Use(Place variant, Expression child, String path, DataType type, boolean fails, Option zone) {
      this.variant = variant;
      this.child = child;
      this.path = path;
      this.type = type;
      this.fails = fails;
      this.zone = zone;
    }

    /** Equal for uses that have the same value in every row. */
    public String key() {
      return variant.key() + path + "\n" + type.json() + fails + zone;
    }
  }

  // Aggregate functions that evaluate their argument for every row.
  private static final List EVERY_ROW = java.util.Arrays.asList(new Object[] {"sum", "min", "max", "avg"});

  public final LogicalRelation scan;
  public final List nodes = new ArrayList();  // LogicalPlans from the one above the scan up to the root
  public final List children = new ArrayList();  // which child of each node the one before it is, Integers
  public final int chain;  // how many of the nodes belong to the chain
  public final Map paths = new LinkedHashMap();  // key -> the first Use of a path
  public final Map uses = new LinkedHashMap();  // key -> Use
  public int last;  // the number of nodes that see the Variants
  private final Unpush unpush = new Unpush();
  private final Map places = new HashMap();  // ExprId -> Place
  private String whole;

  public Uses(LogicalPlan root, LogicalRelation scan) {
    this.scan = unpush.relation(scan);
    collect(root, scan);
    for (Iterator i = this.scan.output().iterator(); i.hasNext(); ) {
      AttributeReference column = (AttributeReference) i.next();
      if (Scans.hasVariant(column.dataType())) places.put(column.exprId(), new Place(column, new ArrayList(), column.dataType()));
    }
    int length = 0;
    while (length < nodes.size() && isChain((LogicalPlan) nodes.get(length))) length++;
    this.chain = length;
    last = 0;
    boolean visible = true;
    for (; last < nodes.size() && visible; last++) {
      LogicalPlan node = (LogicalPlan) nodes.get(last);
      visible = visit(node, last >= chain, last == chain) && !carriers(node.output()).isEmpty();
    }
    if (visible) visitOutput(nodes.isEmpty() ? this.scan : (LogicalPlan) nodes.get(last - 1), false);
  }

  /** Whether rows depend on how they are spread over partitions, which a union of scans changes. */
  public boolean dependsOnPartitions() {
    for (int n = 0; n < nodes.size(); n++) {
      if (nodes.get(n) instanceof Sample || !Scans.isDeterministic((LogicalPlan) nodes.get(n))) return true;
    }
    return false;
  }

  /** Why no path can be read from a typed column; null if paths can be. */
  public String whole() {
    return whole;
  }

  /** The columns with VARIANTs that leave the chain, so that the plan above sees them: Attributes. */
  public List carried() {
    return chain == nodes.size() ? new ArrayList() : carriers(chain == 0 ? scan.output() : ((LogicalPlan) nodes.get(chain - 1)).output());
  }

  private static boolean isChain(LogicalPlan node) {
    return (node instanceof Project || node instanceof Filter) && Scans.isDeterministic(node);
  }

  /** Adds the nodes above the scan as they were before PushVariantIntoScan. Returns the plan, or null if it lacks the scan. */
  private LogicalPlan collect(LogicalPlan plan, LogicalPlan leaf) {
    if (plan == leaf) return scan;
    List inner = new ArrayList();
    for (Iterator i = plan.children().iterator(); i.hasNext(); ) inner.add(i.next());
    for (int child = 0; child < inner.size(); child++) {
      LogicalPlan before = collect((LogicalPlan) inner.get(child), leaf);
      if (before == null) continue;
      inner.set(child, before);
      LogicalPlan node = plan;
      if (!unpush.columns.isEmpty()) node = (LogicalPlan) plan.transformExpressions(unpush).withNewChildren(Bounds.seq(inner));
      nodes.add(node);
      children.add(Integer.valueOf(child));
      return node;
    }
    return null;
  }

  // ---- what PushVariantIntoScan did -------------------------------------------------------------------------------

  /**
   * Whether a cast that can fail is made above the filters of the chain, though Spark's scan has other uses of the column: in a
   * plan that PushVariantIntoScan has seen twice, as that of a DataFrame over an optimized plan.
   */
  public boolean isAboveScan(Expression e) {
    Use use = unpush.columns.isEmpty() || unpush.gets.containsKey(e) ? null : use(e);
    return use != null && use.path != null && use.fails && use.child == e.children().apply(0);
  }

  private static class Unpush extends scala.runtime.AbstractPartialFunction {
    final Map columns = new HashMap();  // ExprId of a column that PushVariantIntoScan made -> AttributeReference before
    final Map gets = new IdentityHashMap();  // the VariantGets that Spark's scan made

    LogicalRelation relation(LogicalRelation scan) {
      HadoopFsRelation source = (HadoopFsRelation) scan.relation();
      List output = new ArrayList();
      for (Iterator i = scan.output().iterator(); i.hasNext(); ) {
        AttributeReference column = (AttributeReference) i.next();
        DataType type = original(column.dataType());
        if (type != column.dataType()) {
          AttributeReference before = (AttributeReference) column.withDataType(type).newInstance();
          columns.put(column.exprId(), before);
          column = before;
        }
        output.add(column);
      }
      if (columns.isEmpty()) return scan;
      StructType schema = (StructType) original(source.dataSchema());
      return Scans.over(scan, source.location(), schema, source.fileFormat(), source.options(), Bounds.seq(output));
    }

    private static DataType original(DataType type) {
      if (VariantMetadata.isVariantStruct(type)) return DataTypes.VariantType;
      if (!(type instanceof StructType)) return type;
      StructField[] fields = ((StructType) type).fields();
      StructField[] before = new StructField[fields.length];
      boolean changed = false;
      for (int f = 0; f < fields.length; f++) {
        DataType inner = original(fields[f].dataType());
        changed |= inner != fields[f].dataType();
        before[f] = new StructField(fields[f].name(), inner, fields[f].nullable(), fields[f].metadata());
      }
      return changed ? new StructType(before) : type;
    }

    public boolean isDefinedAt(Object e) {
      if (e instanceof AttributeReference) return columns.containsKey(((AttributeReference) e).exprId());
      if (!(e instanceof GetStructField) || !VariantMetadata.isVariantStruct(((GetStructField) e).child().dataType())) return false;
      Expression root = ((GetStructField) e).child();
      while (root instanceof GetStructField) root = ((GetStructField) root).child();
      return isDefinedAt(root);
    }

    public Object applyOrElse(Object e, scala.Function1 otherwise) {
      if (!isDefinedAt(e)) return otherwise.apply(e);
      if (e instanceof AttributeReference) return columns.get(((AttributeReference) e).exprId());
      GetStructField get = (GetStructField) e;
      StructField field = ((StructType) get.child().dataType()).fields()[get.ordinal()];
      VariantMetadata pushed = VariantMetadata.fromMetadata(field.metadata());
      Expression variant = (Expression) get.child().transform(this);
      if (pushed.path().equals("$") && field.dataType() instanceof VariantType) return variant;
      Literal path = Literal$.MODULE$.apply(pushed.path());
      VariantGet made = new VariantGet(variant, path, field.dataType(), pushed.failOnError(), Option.apply(pushed.timeZoneId()));
      gets.put(made, path);
      return made;
    }
  }

  // ---- the uses ---------------------------------------------------------------------------------------------------

  /** The place that an expression refers to; null if it refers to none. */
  public Place place(Expression e) {
    if (e instanceof Attribute) return (Place) places.get(((Attribute) e).exprId());
    if (!(e instanceof GetStructField)) return null;
    Place struct = place(((GetStructField) e).child());
    return struct == null || struct.isVariant() ? null : struct.field(((GetStructField) e).ordinal());
  }

  private Place variant(Expression e) {
    Place place = place(e);
    return place != null && place.isVariant() ? place : null;
  }

  /** The use that an expression is; null if it is something else. */
  public Use use(Expression e) {
    if (e instanceof IsNotNull || e instanceof IsNull) {
      Expression child = (Expression) e.children().apply(0);
      Place variant = variant(child);
      return variant == null ? null : new Use(variant, child, null, DataTypes.BooleanType, false, Option.empty());
    }
    if (e instanceof VariantGet && ((VariantGet) e).path() instanceof Literal) {
      VariantGet get = (VariantGet) e;
      Place variant = variant(get.child());
      Object path = ((Literal) get.path()).value();
      if (variant != null && path != null) {
        return new Use(variant, get.child(), path.toString(), get.dataType(), get.failOnError(), get.timeZoneId());
      }
    }
    // TypedPlan gives a use that can fail this form, so that Spark's scan reads the path as VARIANT.
    boolean twice = e instanceof VariantGet && ((VariantGet) e).child() instanceof VariantGet;
    if (twice && ((VariantGet) e).path().semanticEquals(Literal$.MODULE$.apply("$"))) {
      Use of = use(((VariantGet) e).child());
      if (of == null || !(of.type instanceof VariantType)) return null;
      return new Use(of.variant, of.child, of.path, e.dataType(), ((VariantGet) e).failOnError(), ((VariantGet) e).timeZoneId());
    }
    if (!(e instanceof Cast) || e.dataType() instanceof VariantType) return null;
    Cast cast = (Cast) e;
    boolean fails = !cast.evalMode().equals(EvalMode.TRY());
    Place variant = variant(cast.child());
    if (variant != null) return new Use(variant, cast.child(), "$", cast.dataType(), fails, cast.timeZoneId());
    Use of = cast.child() instanceof VariantGet ? use(cast.child()) : null;
    if (of == null || !(of.type instanceof VariantType)) return null;
    return new Use(of.variant, of.child, of.path, cast.dataType(), fails, cast.timeZoneId());
  }

  /** Adds the uses of a node. Returns whether the nodes above it can see the Variants. */
  private boolean visit(LogicalPlan node, boolean above, boolean first) {
    if (node instanceof Project) {
      for (Iterator i = ((Project) node).projectList().iterator(); i.hasNext(); ) {
        Expression e = (Expression) i.next();
        Place place = place(e instanceof Alias ? ((Alias) e).child() : e);
        if (place == null || !Scans.hasVariant(place.type)) {
          visit(e, above, false);
        } else if (e instanceof Alias) {
          if (above && !(((Alias) e).child() instanceof Attribute)) giveUp(inside(place));
          places.put(((Alias) e).exprId(), place);
        }
      }
      return true;
    }
    if (node instanceof Aggregate) {
      visitAll(((Aggregate) node).groupingExpressions(), above, first);
      visitAll(((Aggregate) node).aggregateExpressions(), above, false);
      if (first) functions(((Aggregate) node).aggregateExpressions());
      return false;
    }
    if (node instanceof Expand) {
      Expand expand = (Expand) node;
      for (int c = 0; c < expand.output().size(); c++) {
        if (carries(expand, c)) continue;
        for (Iterator i = expand.projections().iterator(); i.hasNext(); ) visit((Expression) ((Seq) i.next()).apply(c), above, false);
      }
      return true;
    }
    visitAll(node.expressions(), above, false);
    if (passes(node)) return true;
    for (Iterator i = node.children().iterator(); i.hasNext(); ) visitOutput((LogicalPlan) i.next(), true);
    return false;
  }

  /** Whether a column of an Expand (ROLLUP and the like) is the same VARIANT, or struct with one, in all projections. */
  public boolean carries(Expand node, int column) {
    Attribute output = (Attribute) node.output().apply(column);
    boolean carries = place(output) != null;
    for (Iterator i = node.projections().iterator(); i.hasNext(); ) carries &= output.semanticEquals((Expression) ((Seq) i.next()).apply(column));
    return carries;
  }

  /** Whether a node passes on the columns of its children. */
  private static boolean passes(LogicalPlan node) {
    return node instanceof Filter || node instanceof Sort || node instanceof Join || node instanceof GlobalLimit
        || node instanceof LocalLimit || node instanceof Offset || node instanceof Window || node instanceof Sample
        || node instanceof Generate || node instanceof RepartitionOperation;
  }

  private void visitAll(Seq expressions, boolean above, boolean everyRow) {
    for (Iterator i = expressions.iterator(); i.hasNext(); ) visit((Expression) i.next(), above, everyRow);
  }

  /** Adds the uses that aggregate functions evaluate for every row. Others stop at the first value or have several children. */
  private void functions(Seq expressions) {
    for (Iterator i = expressions.iterator(); i.hasNext(); ) {
      Expression e = (Expression) i.next();
      if (!(e instanceof AggregateExpression)) {
        functions(e.children());
      } else if (((AggregateExpression) e).filter().isEmpty() && EVERY_ROW.contains(((AggregateExpression) e).aggregateFunction().prettyName())) {
        visitAll(((AggregateExpression) e).aggregateFunction().children(), true, true);
      }
    }
  }

  /** Adds the uses in an expression. `everyRow`: whether its value is computed for every row that leaves the chain. */
  private void visit(Expression e, boolean above, boolean everyRow) {
    Use use = use(e);
    Place place = place(e);
    // A column leaves the chain for each use of a VARIANT column. Structs cannot leave it, so fields have no use above.
    boolean field = use != null ? !(use.child instanceof Attribute) : place != null && !Scans.hasVariant(place.type);
    if (above && field) {
      giveUp(inside(use != null ? use.variant : place));
    } else if (use != null) {
      add(use, above, everyRow);
    } else if (place != null) {
      if (Scans.hasVariant(place.type)) giveUp("the whole of " + name(place) + " is asked for");
    } else {
      visitAll(e.children(), above, everyRow && (e instanceof Cast || e instanceof Alias));
    }
  }

  private static String inside(Place place) {
    return "a field of the struct " + place.column.name() + " is used above a join or an aggregate";
  }

  private void giveUp(String reason) {
    if (whole == null) whole = reason;
  }

  private void add(Use use, boolean above, boolean everyRow) {
    // Spark 4.2's scan of a shredded VARIANT fails for such a type, so the cast must not come closer to it.
    if (use.type.sql().contains(" COLLATE ")) giveUp("a string with a collation is asked for");
    Use known = (Use) uses.get(use.key());
    if (known == null) uses.put(use.key(), known = use);
    known.above |= above;
    known.everyRow |= everyRow;
    if (use.path == null) return;
    String path = use.variant.key() + use.path;
    if (!paths.containsKey(path)) {
      use.number = paths.size();
      paths.put(path, use);
    }
    known.number = ((Use) paths.get(path)).number;
  }

  /** Visits the columns of a plan, which are used as they are. */
  private void visitOutput(LogicalPlan plan, boolean above) {
    visitAll(plan.output(), above, false);
  }

  private List carriers(Seq output) {
    List carriers = new ArrayList();
    for (Iterator i = output.iterator(); i.hasNext(); ) {
      Attribute column = (Attribute) i.next();
      if (place(column) != null) carriers.add(column);
    }
    return carriers;
  }

  /** The names that queries use, joined by dots. */
  public static String name(Place place) {
    StringBuilder name = new StringBuilder(place.column.name());
    DataType type = place.column.dataType();
    for (int o = 0; o < place.ordinals.size(); o++) {
      StructField field = ((StructType) type).fields()[((Integer) place.ordinals.get(o)).intValue()];
      name.append('.').append(field.name());
      type = field.dataType();
    }
    return name.toString();
  }

  /** The fields of a schema that lead to a Variant of the scan. */
  public static List fields(Place variant, StructType schema) {
    List fields = new ArrayList();
    DataType type = variant.column.dataType();
    StructField field = named(schema, variant.column.name());
    fields.add(field);
    for (int o = 0; o < variant.ordinals.size(); o++) {
      StructField step = ((StructType) type).fields()[((Integer) variant.ordinals.get(o)).intValue()];
      field = named((StructType) field.dataType(), step.name());
      fields.add(field);
      type = step.dataType();
    }
    return fields;
  }

  private static StructField named(StructType schema, String name) {
    StructField field = Scans.field(schema, name);
    if (field == null) throw new IllegalStateException(name + " is not in " + schema.simpleString());
    return field;
  }
}
