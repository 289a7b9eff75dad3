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
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.VariantType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * The filters of one scan, Catalyst expressions, as JSON that delta_variant/optimizer.py reads.
 *
 * Janino compiles this file: no generics, no lambdas.
 */
public class Filters {
  private static final String PUSHED = "__VARIANT_METADATA_KEY";  // Spark's PushVariantIntoScan marks its fields so
  private static final ObjectMapper JSON = new ObjectMapper();

  private final Map columns = new HashMap();  // ExprId -> the table's field, a VARIANT or a struct with one inside
  private final List others = new ArrayList();

  public Filters(LogicalRelation scan) {
    HadoopFsRelation source = (HadoopFsRelation) scan.relation();
    if (!(source.fileFormat() instanceof DeltaParquetFileFormat)) return;
    // The schema the reader finds its Parquet columns by; the relation's own schema has lost the physical names.
    StructField[] fields = ((DeltaParquetFileFormat) source.fileFormat()).referenceSchema().fields();
    for (Iterator i = scan.output().iterator(); i.hasNext(); ) {
      AttributeReference attribute = (AttributeReference) i.next();
      StructField field = child(fields, attribute.name());
      if (field != null && hasVariant(field.dataType())) columns.put(attribute.exprId(), field);
    }
  }

  /** The parts of AND and OR that ask nothing of a VARIANT, Catalyst expressions; the JSON has their numbers. */
  public List others() {
    return others;
  }

  /** Those of the filters that ask something of a VARIANT. */
  public ArrayNode json(Seq filters) {
    ArrayNode asked = JSON.createArrayNode();
    for (Iterator i = filters.iterator(); i.hasNext() && !columns.isEmpty(); ) {
      ObjectNode node = json((Expression) i.next());
      if (!node.has("aside")) asked.add(node);
    }
    return asked;
  }

  private static StructField child(StructField[] fields, String name) {
    for (int f = 0; f < fields.length; f++) {
      if (fields[f].name().equalsIgnoreCase(name)) return fields[f];
    }
    return null;
  }

  private static boolean hasVariant(DataType type) {
    if (!(type instanceof StructType)) return type instanceof VariantType;
    StructField[] fields = ((StructType) type).fields();
    for (int f = 0; f < fields.length; f++) {
      if (hasVariant(fields[f].dataType())) return true;
    }
    return false;
  }

  /** The fields of the table that lead to a column, or to a field of a struct column; false for other expressions. */
  private boolean isField(Expression e, List fields) {
    StructField field = null;
    if (e instanceof Attribute) {
      field = (StructField) columns.get(((Attribute) e).exprId());
    } else if (e instanceof GetStructField) {
      Expression struct = (Expression) e.children().apply(0);
      if (isPushed(struct.dataType()) || !isField(struct, fields)) return false;
      DataType outer = ((StructField) fields.get(fields.size() - 1)).dataType();
      if (!(outer instanceof StructType)) return false;
      String name = ((StructType) struct.dataType()).fields()[((GetStructField) e).ordinal()].name();
      field = child(((StructType) outer).fields(), name);
    }
    if (field != null) fields.add(field);
    return field != null;
  }

  /** The fields that lead to a VARIANT; null for other expressions. */
  private List variantField(Expression e) {
    List fields = new ArrayList();
    if (!isField(e, fields)) return null;
    return ((StructField) fields.get(fields.size() - 1)).dataType() instanceof VariantType ? fields : null;
  }

  private static boolean isPushed(DataType type) {
    if (!(type instanceof StructType)) return false;
    StructField[] fields = ((StructType) type).fields();
    return fields.length > 0 && fields[0].metadata().contains(PUSHED);
  }

  private boolean readsVariant(Expression expression) {
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
    List variant = variantField(e);
    if (variant != null) {
      List names = new ArrayList();
      ArrayNode column = node.putArray("column");
      for (int f = 0; f < variant.size(); f++) {
        names.add(((StructField) variant.get(f)).name());
        column.add(DeltaColumnMapping$.MODULE$.getPhysicalName((StructField) variant.get(f)));
      }
      node.put("name", String.join(".", names));
    } else if (e instanceof And || e instanceof Or) {
      node.put("op", e instanceof And ? "and" : "or");
      addOperands(e, e.getClass(), node.putArray("args"));
    } else if (e instanceof BinaryComparison || e instanceof StartsWith || e instanceof Like || e instanceof Not) {
      node.put("op", e instanceof BinaryComparison ? ((BinaryComparison) e).symbol()
          : e instanceof StartsWith ? "startswith" : e instanceof Like ? "like" : "not");
      if (e instanceof Like) node.put("escape", String.valueOf(((Like) e).escapeChar()));
      ArrayNode args = node.putArray("args");
      for (Iterator i = e.children().iterator(); i.hasNext(); ) args.add(json((Expression) i.next()));
    } else if (e instanceof IsNotNull || e instanceof IsNull) {
      ObjectNode value = json((Expression) e.children().apply(0));
      if (value.has("column")) node.put("aside", true);  // whether the Variant itself is NULL: Delta's own skipping asks it
      node.put("op", e instanceof IsNotNull ? "isnotnull" : "isnull").putArray("args").add(value);
    } else if (e instanceof In || e instanceof InSet) {
      node.put("op", "in");
      ArrayNode args = node.putArray("args");
      Expression value = (Expression) e.children().apply(0);
      args.add(json(value));
      Iterator i = e instanceof In ? ((In) e).list().iterator() : ((InSet) e).hset().iterator();
      while (i.hasNext()) {
        Object item = i.next();
        args.add(json(e instanceof In ? (Expression) item : new Literal(item, value.dataType())));
      }
    } else if (e instanceof Literal) {
      node.put("type", e.dataType().catalogString());
      node.put("literal", literal(((Literal) e).value()));
    } else if (e instanceof Cast) {
      node.put("type", e.dataType().catalogString());
      node.set("cast", json((Expression) e.children().apply(0)));
    } else if (e instanceof VariantGet && ((VariantGet) e).path() instanceof Literal) {
      node.put("type", e.dataType().catalogString());
      node.put("path", String.valueOf(((Literal) ((VariantGet) e).path()).value()));
      node.set("get", json((Expression) e.children().apply(0)));
    } else if (e instanceof GetStructField && isPushed(((Expression) e.children().apply(0)).dataType())) {
      StructType pushed = (StructType) ((Expression) e.children().apply(0)).dataType();
      StructField field = pushed.fields()[((GetStructField) e).ordinal()];
      node.put("type", field.dataType().catalogString());
      node.put("path", field.metadata().getMetadata(PUSHED).getString("path"));
      node.set("get", json((Expression) e.children().apply(0)));
    } else {
      node.put("unknown", text(e));
    }
    if (!readsVariant(e)) node.put("aside", true);
    return node;
  }

  /** The operands of a chain of ANDs or of ORs, left to right, however deep the chain is. */
  private void addOperands(Expression chain, Class kind, ArrayNode operands) {
    ArrayDeque open = new ArrayDeque();
    open.push(chain);
    while (!open.isEmpty()) {
      Expression e = (Expression) open.pop();
      if (e.getClass() == kind) {
        open.push(e.children().apply(1));
        open.push(e.children().apply(0));
      } else {
        operands.add(readsVariant(e) ? json(e) : other(e));
      }
    }
  }

  private ObjectNode other(Expression e) {
    ObjectNode node = JSON.createObjectNode();
    if (!e.deterministic() || SubqueryExpression$.MODULE$.hasSubquery(e)) return node.put("aside", true);
    others.add(e);
    return node.put("other", others.size() - 1).put("text", text(e));
  }

  private static String text(Expression e) {
    String text = e.toString().replaceAll("#\\d+L?", "");
    return text.length() > 120 ? text.substring(0, 117) + "..." : text;
  }

  /** Text that names the value exactly: strings as hex of their bytes, dates and timestamps as days and microseconds. */
  private static String literal(Object value) {
    if (value == null) return null;
    if (value instanceof UTF8String) return java.util.HexFormat.of().formatHex(((UTF8String) value).getBytes());
    if (value instanceof org.apache.spark.sql.types.Decimal) {
      return ((org.apache.spark.sql.types.Decimal) value).toJavaBigDecimal().toPlainString();
    }
    return value.toString();
  }
}
