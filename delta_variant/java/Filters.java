package delta_variant;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.variant.VariantGet;
import org.apache.spark.sql.delta.DeltaColumnMapping$;
import org.apache.spark.sql.delta.DeltaParquetFileFormat;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.VariantMetadata;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.VariantType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * The filters of one scan, Catalyst expressions, as JSON for delta_variant/skipping/requests.py.
 *
 * Compared expressions and constants are numbered: each distinct expression is listed once, and the values of constants (the
 * whole list of an IN under one number) stay on this side. Janino compiles this file: no generics, no lambdas.
 */
public class Filters {
  private static final int SHOWN = 5;  // constants of a list that `explain` shows
  private static final int SHOWN_BYTES = 64;  // of a string that it shows
  private static final ObjectMapper JSON = new ObjectMapper();

  private final Map columns = new HashMap();  // ExprId -> the table's field, a VARIANT or a struct with one inside
  private final List others = new ArrayList();  // Expressions on ordinary columns
  private final Map numbers = new HashMap();  // Expression -> Integer
  private final ArrayNode operands = JSON.createArrayNode();
  private final List constants = new ArrayList();  // Object[]
  private final Map types = new HashMap();  // name -> DataType

  public Filters(LogicalRelation scan) {
    HadoopFsRelation source = (HadoopFsRelation) scan.relation();
    if (!(source.fileFormat() instanceof DeltaParquetFileFormat)) return;
    // The schema by which the reader finds Parquet columns. The relation's own schema has lost the physical names.
    StructType schema = ((DeltaParquetFileFormat) source.fileFormat()).referenceSchema();
    for (Iterator i = scan.output().iterator(); i.hasNext(); ) {
      AttributeReference attribute = (AttributeReference) i.next();
      StructField field = Scans.field(schema, attribute.name());
      if (field != null && Scans.hasVariant(field.dataType())) columns.put(attribute.exprId(), field);
    }
  }

  /** The operands of AND and OR that use no VARIANT, as Catalyst expressions. The JSON refers to them by number. */
  public List others() {
    return others;
  }

  /** The distinct expressions that the filters compare. */
  public ArrayNode operands() {
    return operands;
  }

  /** The values of each constant, without NULLs, as Catalyst holds them. */
  public List constants() {
    return constants;
  }

  /** The types of the operands and of the expressions inside them, by their names. */
  public Map types() {
    return types;
  }

  /** The filters that use a VARIANT, as JSON. */
  public ArrayNode json(Seq filters) {
    ArrayNode nodes = JSON.createArrayNode();
    for (Iterator i = filters.iterator(); i.hasNext() && !columns.isEmpty(); ) {
      ObjectNode node = json((Expression) i.next());
      if (!node.has("aside")) nodes.add(node);
    }
    return nodes;
  }

  /** Whether an expression is a column, or a field of a struct column. Adds the table's fields that lead to it to `fields`. */
  private boolean isField(Expression e, List fields) {
    StructField field = null;
    if (e instanceof Attribute) {
      field = (StructField) columns.get(((Attribute) e).exprId());
    } else if (e instanceof GetStructField) {
      Expression struct = (Expression) e.children().apply(0);
      if (VariantMetadata.isVariantStruct(struct.dataType()) || !isField(struct, fields)) return false;
      DataType outer = ((StructField) fields.get(fields.size() - 1)).dataType();
      if (!(outer instanceof StructType)) return false;
      String name = ((StructType) struct.dataType()).fields()[((GetStructField) e).ordinal()].name();
      field = Scans.field((StructType) outer, name);
    }
    if (field != null) fields.add(field);
    return field != null;
  }

  /** The table's fields that lead to a VARIANT; null if the expression is something else. */
  private List variantField(Expression e) {
    List fields = new ArrayList();
    if (!isField(e, fields)) return null;
    return ((StructField) fields.get(fields.size() - 1)).dataType() instanceof VariantType ? fields : null;
  }

  /** Whether an expression uses a VARIANT. */
  public boolean readsVariant(Expression expression) {
    boolean structs = false;
    for (Iterator i = expression.references().iterator(); i.hasNext(); ) {
      StructField field = (StructField) columns.get(((Attribute) i.next()).exprId());
      if (field != null && field.dataType() instanceof VariantType) return true;
      structs |= field != null;
    }
    if (!structs) return false;
    if (variantField(expression) != null) return true;
    for (Iterator i = expression.children().iterator(); i.hasNext(); ) {
      if (readsVariant((Expression) i.next())) return true;
    }
    return false;
  }

  private ObjectNode json(Expression e) {
    ObjectNode node = JSON.createObjectNode();
    if (!readsVariant(e)) return node.put("aside", true);
    if (e instanceof And || e instanceof Or) {
      node.put("op", e instanceof And ? "and" : "or");
      addOperands(e, e.getClass(), node.putArray("args"));
    } else if (e instanceof Not) {
      node.put("op", "not").putArray("args").add(json((Expression) e.children().apply(0)));
    } else if (e instanceof BinaryComparison || e instanceof StartsWith) {
      ArrayNode args = node.put("op", e instanceof StartsWith ? "startswith" : ((BinaryComparison) e).symbol()).putArray("args");
      for (Iterator i = e.children().iterator(); i.hasNext(); ) args.add(side((Expression) i.next()));
    } else if (e instanceof Like && e.children().apply(1) instanceof Literal) {
      Object pattern = ((Literal) e.children().apply(1)).value();
      Object prefix = pattern == null ? null : fixed((UTF8String) pattern, ((Like) e).escapeChar());
      DataType type = ((Expression) e.children().apply(1)).dataType();
      node.put("op", "like").putArray("args").add(side((Expression) e.children().apply(0))).add(constant(new Object[] {prefix}, type));
    } else if (e instanceof IsNotNull || e instanceof IsNull) {
      Expression value = (Expression) e.children().apply(0);
      if (variantField(value) != null) return node.put("aside", true);  // of the whole Variant: Delta's own skipping
      node.put("op", e instanceof IsNotNull ? "isnotnull" : "isnull").putArray("args").add(side(value));
    } else if (e instanceof In || e instanceof InSet) {
      Expression value = (Expression) e.children().apply(0);
      node.put("op", "in").putArray("args").add(side(value)).add(list(e, value.dataType()));
    } else if (e.dataType() instanceof BooleanType && side(e).has("operand")) {
      node.put("op", "=").putArray("args").add(side(e)).add(constant(new Object[] {Boolean.TRUE}, e.dataType()));
    } else {
      node.put("unknown", text(e));
    }
    return node;
  }

  /** The part of a LIKE pattern before its first wildcard or escape. */
  private static UTF8String fixed(UTF8String pattern, char escape) {
    String text = pattern.toString();
    int end = 0;
    while (end < text.length() && text.charAt(end) != '%' && text.charAt(end) != '_' && text.charAt(end) != escape) end++;
    return UTF8String.fromString(text.substring(0, end));
  }

  private ObjectNode list(Expression in, DataType type) {
    List values = new ArrayList();
    Iterator i = in instanceof In ? ((In) in).list().iterator() : ((InSet) in).hset().iterator();
    while (i.hasNext()) {
      Object item = i.next();
      if (in instanceof In && !(item instanceof Literal)) return JSON.createObjectNode().put("unknown", text((Expression) item));
      values.add(in instanceof In ? ((Literal) item).value() : item);
    }
    return constant(values.toArray(), type);
  }

  /** One side of a comparison: a constant, or the number of an expression on a VARIANT. */
  private ObjectNode side(Expression e) {
    if (e instanceof Literal) return constant(new Object[] {((Literal) e).value()}, e.dataType());
    Integer number = (Integer) numbers.get(e);
    if (number == null) {
      ObjectNode operand = operand(e);
      if (operand.has("unknown")) return operand;
      number = Integer.valueOf(operands.size());
      operands.add(operand);
      numbers.put(e, number);
    }
    return JSON.createObjectNode().put("operand", number);
  }

  private ObjectNode constant(Object[] values, DataType type) {
    List some = new ArrayList();
    ArrayNode texts = JSON.createArrayNode();
    for (int v = 0; v < values.length; v++) {
      if (values[v] == null) continue;
      some.add(values[v]);
      if (texts.size() < SHOWN) texts.add(literal(values[v]));
    }
    constants.add(some.toArray());
    ObjectNode node = JSON.createObjectNode().put("constant", constants.size() - 1).put("type", type.catalogString());
    node.set("texts", texts);
    if (some.size() > texts.size()) node.put("size", some.size());
    if (some.size() < values.length) node.put("null", true);
    return node;
  }

  private ObjectNode operand(Expression e) {
    ObjectNode node = JSON.createObjectNode();
    List variant = variantField(e);
    if (variant != null) {
      List names = new ArrayList();
      ArrayNode column = node.putArray("column");
      for (int f = 0; f < variant.size(); f++) {
        names.add(((StructField) variant.get(f)).name());
        column.add(DeltaColumnMapping$.MODULE$.getPhysicalName((StructField) variant.get(f)));
      }
      return node.put("name", String.join(".", names));
    }
    String path = null;
    if (e instanceof VariantGet && ((VariantGet) e).path() instanceof Literal) {
      path = String.valueOf(((Literal) ((VariantGet) e).path()).value());
    } else if (e instanceof GetStructField && VariantMetadata.isVariantStruct(((Expression) e.children().apply(0)).dataType())) {
      StructType pushed = (StructType) ((Expression) e.children().apply(0)).dataType();
      path = VariantMetadata.fromMetadata(pushed.fields()[((GetStructField) e).ordinal()].metadata()).path();
    } else if (!(e instanceof Cast)) {
      return node.put("unknown", text(e));
    }
    ObjectNode inner = operand((Expression) e.children().apply(0));
    if (inner.has("unknown")) return node.put("unknown", text(e));
    types.put(e.dataType().catalogString(), e.dataType());
    node.put("type", e.dataType().catalogString());
    if (path != null) node.put("path", path);
    return (ObjectNode) node.set(path == null ? "cast" : "get", inner);
  }

  /**
   * Adds the operands of a chain of ANDs or of ORs, however deep it is, from left to right. Those on ordinary columns become
   * one operand at the end.
   */
  private void addOperands(Expression chain, Class operator, ArrayNode args) {
    Expression ordinary = null;
    ArrayDeque open = new ArrayDeque();
    open.push(chain);
    while (!open.isEmpty()) {
      Expression e = (Expression) open.pop();
      if (e.getClass() == operator) {
        open.push(e.children().apply(1));
        open.push(e.children().apply(0));
      } else if (readsVariant(e)) {
        args.add(json(e));
      } else if (!e.deterministic() || SubqueryExpression$.MODULE$.hasSubquery(e)) {
        args.addObject().put("aside", true);
      } else if (ordinary == null) {
        ordinary = e;
      } else {
        ordinary = chain instanceof And ? (Expression) new And(ordinary, e) : new Or(ordinary, e);
      }
    }
    if (ordinary != null) args.add(other(ordinary));
  }

  private ObjectNode other(Expression e) {
    if (!others.contains(e)) others.add(e);
    return JSON.createObjectNode().put("other", others.indexOf(e)).put("text", text(e));
  }

  private static String text(Expression e) {
    String text = e.toString().replaceAll("#\\d+L?", "");
    return text.length() > 120 ? text.substring(0, 117) + "..." : text;
  }

  /** A value as text: a string as the hex of its bytes, a date as days, a timestamp as microseconds. */
  private static String literal(Object value) {
    if (value instanceof UTF8String) {
      byte[] bytes = ((UTF8String) value).getBytes();
      return java.util.HexFormat.of().formatHex(bytes, 0, Math.min(bytes.length, SHOWN_BYTES));
    }
    if (value instanceof org.apache.spark.sql.types.Decimal) {
      return ((org.apache.spark.sql.types.Decimal) value).toJavaBigDecimal().toPlainString();
    }
    return value.toString();
  }
}
