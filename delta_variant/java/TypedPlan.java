package delta_variant;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.variant.VariantGet;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.delta.DeltaParquetFileFormat;
import org.apache.spark.sql.delta.actions.Metadata;
import org.apache.spark.sql.delta.files.TahoeFileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.PushVariantIntoScan$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.NullType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.VariantType;
import scala.collection.immutable.Seq;

/**
 * The plan that reads paths of one scan from typed columns.
 *
 * The chain above the scan is repeated for each group of files, and once more for the files of Spark's scan, in a union.
 * Every use of a Variant above the chain becomes a column of that union: in the type asked for, if its cast cannot fail or is
 * made for every row anyway; otherwise as VARIANT, or, if all files are in one group, as the typed column itself, and the
 * cast stays where it was. Janino compiles this file: no generics, no lambdas.
 */
public class TypedPlan {
  private static final String IGNORE_ANNOTATION = "spark.sql.parquet.ignoreVariantAnnotation";
  private static final String MAPPING = "delta.columnMapping.";
  private static final int ROW = 8;  // bytes that Spark's estimates add to the columns of a row
  private static final String TYPED = "typed_value";  // VariantShredding, "Value Shredding"
  private static final String METADATA = "metadata";

  /** Files that have the paths in columns of the same types or, if `types` is null, the files of Spark's scan. */
  public static class Group {
    final List files;  // AddFiles
    final int width;  // bytes that Spark's estimates assume for a row in the Variants of a file; 0 if that is not known
    final DataType[] types;  // by path
    final JsonNode casts;  // by use, without those that have no path

    public Group(List files, int width, JsonNode types, JsonNode casts) {
      this.files = files;
      this.width = width;
      this.casts = casts;
      this.types = types == null ? null : new DataType[types.size()];
      for (int t = 0; types != null && t < types.size(); t++) {
        this.types[t] = Leaves.dataType(Bounds.item(types, t).get("type").asText());
      }
    }
  }

  private final Uses uses;
  private final Map keys;  // key of a path -> List of its keys
  private final List groups;
  private final boolean alone;  // all files have the paths in columns of the same types
  private final List relations = new ArrayList();
  private final Map exported = new LinkedHashMap();  // key of what leaves the chain -> Alias
  private final Map exports = new HashMap();  // key of a Use above -> Expression over such an Alias

  public TypedPlan(Uses uses, Map keys, List groups) {
    this.uses = uses;
    this.keys = keys;
    this.groups = groups;
    this.alone = groups.size() == 1;
  }

  /** The LogicalRelations of the plan, in the order of the groups. */
  public List relations() {
    return relations;
  }

  public LogicalPlan plan() {
    List carried = uses.carried();
    for (int c = 0; c < carried.size(); c++) {
      if (uses.place((Attribute) carried.get(c)).isVariant()) export((Attribute) carried.get(c));
    }
    List branches = new ArrayList();
    for (int g = 0; g < groups.size(); g++) branches.add(branch((Group) groups.get(g), g > 0, carried));
    LogicalPlan plan = alone ? (LogicalPlan) branches.get(0) : new Union(Bounds.seq(branches), false, false);
    for (int n = uses.chain; n < uses.nodes.size(); n++) {
      LogicalPlan node = (LogicalPlan) uses.nodes.get(n);
      boolean sees = n < uses.last && !carried.isEmpty();
      if (sees && node instanceof Project) node = new Project(passed(((Project) node).projectList()), ((Project) node).child());
      if (sees && node instanceof Expand) node = passed((Expand) node);
      LogicalPlan fresh = sees ? (LogicalPlan) node.transformExpressions(new Above()) : node;
      plan = over(fresh, ((Integer) uses.children.get(n)).intValue(), plan);
    }
    check(plan, uses.nodes.isEmpty() ? uses.scan : (LogicalPlan) uses.nodes.get(uses.nodes.size() - 1));
    return plan;
  }

  /** Throws an exception if a plan does not give the columns of the plan before it. */
  public static void check(LogicalPlan plan, LogicalPlan before) {
    List columns = columns(before);
    if (!plan.resolved()) throw new IllegalStateException("the plan is not resolved: " + plan);
    if (!columns(plan).equals(columns)) throw new IllegalStateException("the columns " + columns + " became " + columns(plan));
  }

  private static List columns(LogicalPlan plan) {
    List columns = new ArrayList();
    for (int i = 0; i < plan.output().size(); i++) {
      Attribute column = (Attribute) plan.output().apply(i);
      columns.add(column + " " + column.dataType().asNullable().sql());
    }
    return columns;
  }

  private LogicalPlan over(LogicalPlan node, int child, LogicalPlan plan) {
    return Scans.with(node instanceof Generate ? requiring((Generate) node, plan) : node, child, plan);
  }

  /** Generate lists the columns that it drops by number. It drops the columns in place of Variants if it drops all Variants. */
  private Generate requiring(Generate node, LogicalPlan plan) {
    Set dropped = new HashSet();
    boolean variants = false;
    for (int i = 0; i < node.child().output().size(); i++) {
      Attribute column = (Attribute) node.child().output().apply(i);
      if (node.unrequiredChildIndex().contains(Integer.valueOf(i))) dropped.add(column.exprId());
      else variants |= uses.place(column) != null;
    }
    for (Iterator i = exported.values().iterator(); !variants && i.hasNext(); ) dropped.add(((NamedExpression) i.next()).exprId());
    List numbers = new ArrayList();
    for (int i = 0; i < plan.output().size(); i++) {
      if (dropped.contains(((Attribute) plan.output().apply(i)).exprId())) numbers.add(Integer.valueOf(i));
    }
    return node.copy(node.generator(), Bounds.seq(numbers), node.outer(), node.qualifier(), node.generatorOutput(), node.child());
  }

  // ---- above the chain --------------------------------------------------------------------------------------------

  /** Adds what leaves the chain in place of a Variant, for the uses above the chain. */
  private void export(Attribute variant) {
    String place = uses.place(variant).key();
    for (Iterator i = uses.uses.values().iterator(); i.hasNext(); ) {
      Uses.Use use = (Uses.Use) i.next();
      if (!use.above || !use.variant.key().equals(place) || exports.containsKey(use.key())) continue;
      Expression value;
      if (use.path == null) {
        // The column is NULL in the rows that an outer join adds.
        value = new EqualNullSafe(exported(use.key(), new IsNotNull(variant), "present"), Literal$.MODULE$.TrueLiteral());
      } else if (alone && ((Group) groups.get(0)).types[use.number] instanceof NullType) {
        // A column, not a constant: Spark makes no join key of a comparison with a constant.
        value = exported(use.key(), new Literal(null, use.type), use.path);
      } else if (alone) {
        Group group = (Group) groups.get(0);
        value = answer(exported(place + use.path, leaf(retyped(variant, group), use, group), use.path), use, cast(use, group));
      } else if (!use.fails) {
        value = exported(use.key(), get(variant, use.path, use), use.path);
      } else if (use.everyRow) {
        // The cast is made above the chain's filters. Spark's scan would make it below them.
        value = exported(use.key(), get(path(variant, use), "$", use), use.path);
      } else {
        Expression path = path(variant, use);
        value = get(exported(place + use.path, path, use.path), "$", use);
      }
      exports.put(use.key(), value);
    }
  }

  private Attribute exported(String key, Expression value, String name) {
    if (!exported.containsKey(key)) exported.put(key, Bounds.named(value, name));
    return ((NamedExpression) exported.get(key)).toAttribute();
  }

  private static Expression get(Expression variant, String path, Uses.Use use) {
    return new VariantGet(variant, text(path), use.type, use.fails, use.zone);
  }

  private static Expression path(Expression variant, Uses.Use use) {
    return new VariantGet(variant, text(use.path), DataTypes.VariantType, false, use.zone);
  }

  private static Literal text(String text) {
    return Literal$.MODULE$.apply(text);
  }

  /** The columns of a projection above the chain, with the exported columns in place of Variants. */
  private Seq passed(Seq list) {
    List passed = new ArrayList();
    boolean variants = false;
    for (int i = 0; i < list.size(); i++) {
      Expression e = (Expression) list.apply(i);
      if (uses.place(e instanceof Alias ? ((Alias) e).child() : e) == null) passed.add(e);
      else variants = true;
    }
    for (Iterator i = exported.values().iterator(); variants && i.hasNext(); ) passed.add(((NamedExpression) i.next()).toAttribute());
    return Bounds.seq(passed);
  }

  /** The same for each projection of an Expand (ROLLUP and the like), and for its output. */
  private Expand passed(Expand node) {
    List projections = new ArrayList();
    for (int p = 0; p <= node.projections().size(); p++) {
      Seq given = p < node.projections().size() ? (Seq) node.projections().apply(p) : node.output();
      List passed = new ArrayList();
      boolean variants = false;
      for (int c = 0; c < given.size(); c++) {
        if (!uses.carries(node, c)) passed.add(given.apply(c));
        else variants = true;
      }
      for (Iterator i = exported.values().iterator(); variants && i.hasNext(); ) passed.add(((NamedExpression) i.next()).toAttribute());
      projections.add(Bounds.seq(passed));
    }
    Seq output = (Seq) projections.remove(projections.size() - 1);
    return new Expand(Bounds.seq(projections), output, node.child());
  }

  private class Above extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object e) {
      return e instanceof Expression && uses.use((Expression) e) != null;
    }

    public Object applyOrElse(Object e, scala.Function1 otherwise) {
      Uses.Use use = e instanceof Expression ? uses.use((Expression) e) : null;
      if (use == null) return otherwise.apply(e);
      Expression value = (Expression) exports.get(use.key());
      return e instanceof IsNull ? new Not(value) : value;
    }
  }

  /** Casts that stay above the filters of the chain: PushVariantIntoScan would move them below. */
  private class Late extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object e) {
      return uses.isAboveScan((Expression) e);
    }

    public Object applyOrElse(Object e, scala.Function1 otherwise) {
      if (!isDefinedAt(e)) return otherwise.apply(e);
      Uses.Use use = uses.use((Expression) e);
      return get(path(use.child, use), "$", use);
    }
  }

  // ---- one group --------------------------------------------------------------------------------------------------

  private LogicalPlan branch(Group group, boolean renamed, List carried) {
    LogicalPlan plan = relation(group);
    for (int n = 0; n < uses.chain; n++) {
      LogicalPlan node = (LogicalPlan) uses.nodes.get(n);
      node = (LogicalPlan) node.transformExpressions(group.types == null ? new Late() : new Typed(group));
      plan = over(node, 0, plan);
    }
    if (!carried.isEmpty()) {
      List columns = new ArrayList();
      for (int c = 0; c < plan.output().size(); c++) {
        if (uses.place((Attribute) plan.output().apply(c)) == null) columns.add(plan.output().apply(c));
      }
      columns.addAll(exported.values());
      Project top = new Project(Bounds.seq(columns), plan);
      plan = group.types == null ? top : (LogicalPlan) top.transformExpressions(new Typed(group));
    }
    if (renamed) plan = renamed(plan);
    if (group.types == null) plan = (LogicalPlan) PushVariantIntoScan$.MODULE$.apply(plan);
    relations.add(plan.collectLeaves().apply(0));
    return plan;
  }

  /** The same plan with expression ids of its own. */
  private LogicalPlan renamed(LogicalPlan plan) {
    return renamed(plan, new Renamed());
  }

  private LogicalPlan renamed(LogicalPlan plan, Renamed ids) {
    if (plan instanceof LogicalRelation) {
      LogicalRelation relation = (LogicalRelation) plan;
      List output = new ArrayList();
      for (int i = 0; i < relation.output().size(); i++) {
        AttributeReference column = (AttributeReference) relation.output().apply(i);
        output.add(column.withExprId(ids.of(column.exprId())));
      }
      return relation.copy(relation.relation(), Bounds.seq(output), relation.catalogTable(), relation.isStreaming(), relation.stream());
    }
    return over((LogicalPlan) plan.transformExpressions(ids), 0, renamed((LogicalPlan) plan.children().apply(0), ids));
  }

  private static class Renamed extends scala.runtime.AbstractPartialFunction {
    private final Map ids = new HashMap();

    ExprId of(ExprId id) {
      if (!ids.containsKey(id)) ids.put(id, NamedExpression$.MODULE$.newExprId());
      return (ExprId) ids.get(id);
    }

    public boolean isDefinedAt(Object e) {
      return e instanceof AttributeReference || e instanceof Alias;
    }

    public Object applyOrElse(Object e, scala.Function1 otherwise) {
      if (e instanceof AttributeReference) return ((AttributeReference) e).withExprId(of(((AttributeReference) e).exprId()));
      if (!(e instanceof Alias)) return otherwise.apply(e);
      return ((Alias) e).withExprId(of(((Alias) e).exprId()));
    }
  }

  // ---- expressions on typed columns -------------------------------------------------------------------------------

  private class Typed extends scala.runtime.AbstractPartialFunction {
    private final Group group;

    Typed(Group group) {
      this.group = group;
    }

    public boolean isDefinedAt(Object e) {
      return typed((Expression) e) != null;
    }

    public Object applyOrElse(Object e, scala.Function1 otherwise) {
      Expression typed = typed((Expression) e);
      return typed == null ? otherwise.apply(e) : typed;
    }

    private Expression typed(Expression e) {
      if (e instanceof AttributeReference) return uses.place(e) == null ? null : retyped(e, group);
      Uses.Use use = uses.use(e);
      if (use == null) return compared(e, group);
      if (use.path == null) return e;  // whether the struct in place of the VARIANT is NULL
      return answer(leaf(retyped(use.child, group), use, group), use, cast(use, group));
    }
  }

  /**
   * A comparison of integers with constants, made on the column itself, so that Spark can push it down to Parquet: the cast
   * between the two types changes no value. Null if the expression is no such comparison.
   */
  private Expression compared(Expression e, Group group) {
    if (!(e instanceof BinaryComparison) && !(e instanceof In)) return null;
    Uses.Use use = null;
    for (int c = 0; c < e.children().size(); c++) {
      Expression child = (Expression) e.children().apply(c);
      if (child instanceof Literal) continue;
      if (use != null) return null;
      use = uses.use(child);
      if (use == null || use.path == null || !(use.type instanceof IntegralType)) return null;
    }
    if (use == null || !cast(use, group).equals("safe")) return null;
    Expression leaf = leaf(retyped(use.child, group), use, group);
    List children = new ArrayList();
    for (int c = 0; c < e.children().size(); c++) {
      Expression child = (Expression) e.children().apply(c);
      Expression side = child instanceof Literal ? constant((Literal) child, use.type, leaf.dataType()) : leaf;
      if (side == null) return null;
      children.add(side);
    }
    return (Expression) e.withNewChildren(Bounds.seq(children));
  }

  /** The same integer in another type; null if the literal is not of the type `from`, or the other type cannot hold it. */
  private static Literal constant(Literal literal, DataType from, DataType to) {
    if (literal.value() == null || !literal.dataType().equals(from)) return null;
    Object same = Leaves.integer(((Number) literal.value()).longValue(), to);
    return same == null ? null : new Literal(same, to);
  }

  private class Retyped extends scala.runtime.AbstractPartialFunction {
    private final Group group;

    Retyped(Group group) {
      this.group = group;
    }

    public boolean isDefinedAt(Object e) {
      return e instanceof AttributeReference && uses.place((Expression) e) != null;
    }

    public Object applyOrElse(Object e, scala.Function1 otherwise) {
      if (!isDefinedAt(e)) return otherwise.apply(e);
      return ((AttributeReference) e).withDataType(type(uses.place((Expression) e), group));
    }
  }

  private Expression retyped(Expression e, Group group) {
    return (Expression) e.transform(new Retyped(group));
  }

  private String cast(Uses.Use use, Group group) {
    Iterator i = uses.uses.values().iterator();
    for (int n = 0; i.hasNext(); ) {
      Uses.Use other = (Uses.Use) i.next();
      if (other.path == null) continue;
      if (other.key().equals(use.key())) return Bounds.item(group.casts, n).asText();
      n++;
    }
    return "by variant";  // a value that leaves the chain as VARIANT
  }

  /** An expression on a typed column that gives what Spark's cast from VARIANT gives (delta_variant/reading/casts.py). */
  private static Expression answer(Expression column, Uses.Use use, String how) {
    if (column.dataType() instanceof NullType) return new Literal(null, use.type);
    if (how.equals("as is")) return column;
    boolean castable = Cast.canAnsiCast(column.dataType(), use.type);
    boolean integers = column.dataType() instanceof IntegralType && use.type instanceof IntegralType;
    // If all integers fit into the type, Spark's fastest cast gives the same.
    Expression value = new Cast(column, use.type, use.zone, how.equals("safe") && integers ? EvalMode.LEGACY() : EvalMode.TRY());
    if (castable && (how.equals("safe") || how.equals("checked") && !use.fails)) return value;
    Expression variant = new Cast(column, DataTypes.VariantType, use.zone, EvalMode.ANSI());
    Expression exact = use.type instanceof VariantType ? variant : get(variant, "$", use);
    List both = new ArrayList();
    both.add(value);
    both.add(exact);
    return castable && how.equals("checked") ? new Coalesce(Bounds.seq(both)) : exact;
  }

  /** The typed column of a path, in the struct in place of its Variant. */
  private Expression leaf(Expression variant, Uses.Use use, Group group) {
    String place = use.variant.key() + use.path;
    int number = ((Uses.Use) uses.paths.get(place)).number;
    if (group.types[number] instanceof NullType) return new Literal(null, DataTypes.NullType);
    List path = (List) keys.get(place);
    Expression leaf = Bounds.field(variant, TYPED);
    for (int k = 0; k < path.size(); k++) leaf = Bounds.field(Bounds.field(leaf, (String) path.get(k)), TYPED);
    // Spark's Parquet filters fail if a constant has more bytes than the file's decimals. A Coalesce gets no such filter.
    boolean bytes = leaf.dataType() instanceof DecimalType && ((DecimalType) leaf.dataType()).precision() > 18;
    return bytes ? new Coalesce(Bounds.seq(java.util.Collections.singletonList(leaf))) : leaf;
  }

  // ---- the relation -----------------------------------------------------------------------------------------------

  /** The type of a place in the files of a group. */
  private DataType type(Uses.Place place, Group group) {
    if (place.isVariant()) return group(place, group);
    StructField[] fields = ((StructType) place.type).fields();
    StructField[] typed = new StructField[fields.length];
    for (int f = 0; f < fields.length; f++) {
      Uses.Place inner = place.field(f);
      boolean struct = inner.isVariant() || inner.type instanceof StructType;
      DataType type = struct ? type(inner, group) : inner.type;
      typed[f] = new StructField(fields[f].name(), type, fields[f].nullable(), fields[f].metadata());
    }
    return new StructType(typed);
  }

  /** The struct of a Variant's typed columns that are used; if none is, of `metadata`, which is NULL where the Variant is. */
  private DataType group(Uses.Place variant, Group group) {
    Object tree = null;
    for (Iterator i = uses.paths.values().iterator(); i.hasNext(); ) {
      Uses.Use use = (Uses.Use) i.next();
      if (use.variant.key().equals(variant.key()) && !(group.types[use.number] instanceof NullType)) {
        tree = grown(tree, (List) keys.get(variant.key() + use.path), 0, group.types[use.number]);
      }
    }
    return tree == null ? new StructType().add(METADATA, DataTypes.BinaryType, true) : group(tree);
  }

  private static Object grown(Object tree, List path, int at, DataType leaf) {
    if (at == path.size()) {
      if (tree != null && !tree.equals(leaf)) throw new IllegalStateException("a path has fields and a value: " + path);
      return leaf;
    }
    if (tree instanceof DataType) throw new IllegalStateException("a path has fields and a value: " + path);
    Map fields = tree == null ? new LinkedHashMap() : (Map) tree;
    fields.put(path.get(at), grown(fields.get(path.get(at)), path, at + 1, leaf));
    return fields;
  }

  private static StructType group(Object tree) {
    if (tree instanceof DataType) return new StructType().add(TYPED, (DataType) tree, true);
    StructType object = new StructType();
    for (Iterator i = ((Map) tree).entrySet().iterator(); i.hasNext(); ) {
      Map.Entry field = (Map.Entry) i.next();
      object = object.add((String) field.getKey(), group(field.getValue()), true);
    }
    return new StructType().add(TYPED, object, true);
  }

  private LogicalRelation relation(Group group) {
    LogicalRelation scan = uses.scan;
    HadoopFsRelation source = (HadoopFsRelation) scan.relation();
    TahoeFileIndex index = (TahoeFileIndex) source.location();
    if (group.types == null) return Scans.over(scan, Scans.narrowed(index, group.files));
    List output = new ArrayList();
    Map types = new HashMap();
    int bytes = 0;
    for (int i = 0; i < scan.output().size(); i++) {
      Expression column = retyped((Expression) scan.output().apply(i), group);
      output.add(column);
      types.put(((Attribute) column).name(), column.dataType());
      bytes += column.dataType().defaultSize();
    }
    DeltaParquetFileFormat format = (DeltaParquetFileFormat) source.fileFormat();
    scala.collection.immutable.Map options = (scala.collection.immutable.Map) source.options().updated(IGNORE_ANNOTATION, "true");
    StructType schema = schema(source.dataSchema(), types, false);
    return Scans.over(scan, Scans.narrowed(index, group.files, share(bytes, group)), schema, mapped(format, types), options,
        Bounds.seq(output));
  }

  /** The share of its files' bytes that a relation reads, as Spark would estimate it for a projection of ordinary columns. */
  private static double share(int bytes, Group group) {
    int unread = group.width;
    for (int t = 0; t < group.types.length; t++) unread -= group.types[t].defaultSize();
    return (ROW + bytes) / (double) (ROW + bytes + Math.max(unread, 0));
  }

  private static StructType schema(StructType schema, Map types, boolean mapped) {
    StructField[] fields = schema.fields();
    StructField[] typed = new StructField[fields.length];
    for (int f = 0; f < fields.length; f++) {
      DataType type = types.containsKey(fields[f].name()) ? (DataType) types.get(fields[f].name()) : fields[f].dataType();
      if (mapped) type = mapped(type, fields[f].dataType());
      typed[f] = new StructField(fields[f].name(), type, fields[f].nullable(), fields[f].metadata());
    }
    return new StructType(typed);
  }

  /** Column mapping looks each field up in the table's schema. There, typed columns get the names that they have in files. */
  private static DeltaParquetFileFormat mapped(DeltaParquetFileFormat format, Map types) {
    Metadata table = format.metadata();
    if (format.columnMappingMode().name().equals("none")) return format;
    // Field ids end at the VARIANT. Files of this package have the physical names too, in both modes.
    scala.collection.immutable.Map settings = (scala.collection.immutable.Map) table.configuration().updated(MAPPING + "mode", "name");
    Metadata typed = table.copy(table.id(), table.name(), table.description(), table.format(),
        schema(format.referenceSchema(), types, true).json(), table.partitionColumns(), settings, table.createdTime());
    return format.copy(format.protocol(), typed, format.nullableRowTrackingConstantFields(),
        format.nullableRowTrackingGeneratedFields(), format.optimizationsEnabled(), format.tablePath(), format.isCDCRead());
  }

  /** The type that the table has, with what is read in place of Variants. */
  private static DataType mapped(DataType type, DataType table) {
    if (table instanceof VariantType) return type instanceof StructType ? named((StructType) type) : table;
    if (!(type instanceof StructType) || !(table instanceof StructType)) return table;
    StructField[] fields = ((StructType) table).fields();
    StructField[] typed = new StructField[fields.length];
    for (int f = 0; f < fields.length; f++) {
      boolean read = ((StructType) type).getFieldIndex(fields[f].name()).isDefined();
      DataType inner = read ? mapped(((StructType) type).apply(fields[f].name()).dataType(), fields[f].dataType()) : fields[f].dataType();
      typed[f] = new StructField(fields[f].name(), inner, fields[f].nullable(), fields[f].metadata());
    }
    return new StructType(typed);
  }

  private static StructType named(StructType type) {
    StructField[] fields = type.fields();
    StructField[] named = new StructField[fields.length];
    for (int f = 0; f < fields.length; f++) {
      String name = fields[f].name();
      DataType inner = fields[f].dataType() instanceof StructType ? named((StructType) fields[f].dataType()) : fields[f].dataType();
      named[f] = new StructField(name, inner, true, new MetadataBuilder().putLong(MAPPING + "id", 0).putString(MAPPING + "physicalName", name).build());
    }
    return new StructType(named);
  }
}
