package delta_variant;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.variant.IsValidVariant;
import org.apache.spark.sql.catalyst.expressions.variant.SchemaOfVariant;
import org.apache.spark.sql.catalyst.expressions.variant.VariantGet;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.DeltaColumnMapping$;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.expressions.DecodeNestedZ85EncodedVariant;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.VariantType;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.unsafe.types.VariantVal;
import scala.collection.immutable.Seq;

/**
 * What the log of one table version knows about its Variant paths, as Catalyst expressions.
 *
 * There is one row per file: `path`, `mark` (the value of the marker; NULL without one), `nonnull` and `times` (the VARIANTs in
 * the tags of these names), `rows` (the number of rows), and for each VARIANT column with statistics, in the order of `columns`,
 * `min0`, `max0`, `min1` and so on: Variant objects {normalized path: bound} (Delta variantShredding, "Statistics for Variant
 * Columns"). Damaged values are NULL. Janino compiles this file: no generics, no lambdas.
 */
public class Bounds {
  private static final String TAGS_ONLY = "delta_variant.tagsOnly";  // a table property (protocol/README.md, M4)
  private static final int FIRST = 5;  // columns of a row before those of the minima and maxima
  private final Snapshot snapshot;
  private final String marker;  // name of the tag that says that this package computed the bounds
  private final List markerValues;  // the values that it may have, as literals
  private final String nonNull;  // name of the tag for paths that the protocol gives no bounds
  private final String times;  // name of the tag for strings that spell times
  private final List columns = new ArrayList();
  private final int indexed;  // how many of them Delta keeps statistics of; those of the others are in tags only

  public Bounds(Snapshot snapshot, String marker, Seq markerValues, String nonNull, String times) {
    this.snapshot = snapshot;
    this.marker = marker;
    this.markerValues = literals(scala.jdk.javaapi.CollectionConverters.asJava(markerValues));
    this.nonNull = nonNull;
    this.times = times;
    StructType stats = snapshot.statsSchema();
    if (stats.getFieldIndex("minValues").isDefined()) {
      find((StructType) stats.apply("minValues").dataType(), new ArrayList());
    }
    indexed = columns.size();
    if (snapshot.metadata().configuration().get(TAGS_ONLY).contains("true")) {
      find(snapshot.metadata().dataSchema(), new ArrayList());
    }
  }

  /** The VARIANT columns with statistics or tags, each as a List of its physical names. */
  public List columns() {
    return columns;
  }

  public Snapshot snapshot() {
    return snapshot;
  }

  /** The columns of a row as attributes, for expressions over rows that were read. */
  public static Seq attributes(int columns) {
    List row = new ArrayList();
    row.add(attribute("path", DataTypes.LongType));
    row.add(attribute("mark", DataTypes.StringType));
    row.add(attribute("nonnull", DataTypes.VariantType));
    row.add(attribute("times", DataTypes.VariantType));
    row.add(attribute("rows", DataTypes.LongType));
    for (int c = 0; c < columns; c++) {
      row.add(attribute("min" + c, DataTypes.VariantType));
      row.add(attribute("max" + c, DataTypes.VariantType));
    }
    return seq(row);
  }

  /** The Variant object with the minima of a column in such a row; null if there is none. */
  public static VariantVal least(InternalRow row, int column) {
    int index = FIRST + 2 * column;
    return row.isNullAt(index) ? null : row.getVariant(index);
  }

  public static Attribute attribute(String name, DataType type) {
    return new AttributeReference(name, type, true, Metadata.empty(), NamedExpression$.MODULE$.newExprId(), seq(new ArrayList()));
  }

  private void find(StructType struct, List outer) {
    StructField[] fields = struct.fields();
    for (int f = 0; f < fields.length; f++) {
      List names = new ArrayList(outer);
      names.add(DeltaColumnMapping$.MODULE$.getPhysicalName(fields[f]));
      if (fields[f].dataType() instanceof VariantType && !columns.contains(names)) columns.add(names);
      if (fields[f].dataType() instanceof StructType) find((StructType) fields[f].dataType(), names);
    }
  }

  // ---- the rows -------------------------------------------------------------------------------------------------

  /** The rows as a DataFrame. */
  public Dataset files() {
    LogicalPlan files = ((org.apache.spark.sql.classic.Dataset) snapshot.withStats()).logicalPlan();
    Expression path = attribute(files.output(), "path");
    Project rows = new Project(row(files.output(), path, true), files);
    return org.apache.spark.sql.classic.Dataset.ofRows(SparkSession.active(), rows);
  }

  /**
   * The columns of a row, as expressions over the columns of `Snapshot.withStats`. With `checked`, damaged values are NULL;
   * without it, reading them fails.
   */
  public Seq row(Seq files, Expression path, boolean checked) {
    Expression stats = attribute(files, "stats");
    List row = new ArrayList();
    row.add(named(path, "path"));
    Expression known = new In(tag(files, marker), seq(markerValues));
    row.add(named(new If(known, tag(files, marker), literal(null, DataTypes.StringType)), "mark"));
    row.add(named(intact(decoded(tag(files, nonNull)), checked), "nonnull"));
    row.add(named(intact(decoded(tag(files, times)), checked), "times"));
    boolean counted = ((StructType) stats.dataType()).getFieldIndex("numRecords").isDefined();
    row.add(named(counted ? field(stats, "numRecords") : literal(null, DataTypes.LongType), "rows"));
    for (int c = 0; c < columns.size(); c++) {
      row.add(named(bound(stats, "minValues", c, checked), "min" + c));
      row.add(named(bound(stats, "maxValues", c, checked), "max" + c));
    }
    return seq(row);
  }

  private Expression bound(Expression stats, String side, int column, boolean checked) {
    if (column >= indexed) return literal(null, DataTypes.VariantType);
    return intact(field(stats, side, (List) columns.get(column)), checked);
  }

  /** The fields of an Add action in `Snapshot.stateDF` that the file's row depends on: equal fields give equal bounds. */
  public List contents(Expression add) {
    List parts = new ArrayList();
    parts.add(field(add, "path"));
    parts.add(field(add, "stats"));
    parts.add(entry(field(add, "tags"), marker));
    parts.add(entry(field(add, "tags"), nonNull));
    parts.add(entry(field(add, "tags"), times));
    return parts;
  }

  private static Expression tag(Seq files, String name) {
    return entry(attribute(files, "tags"), name);
  }

  private static Expression entry(Expression map, String key) {
    return new ElementAt(map, text(key), scala.Option.empty(), false);
  }

  /** The Variant of a Z85 text, by the expression that decodes Delta's bounds. It takes a struct of Variants that hold text. */
  private static Expression decoded(Expression text) {
    Expression variant = new Cast(text, DataTypes.VariantType, scala.Option.empty(), EvalMode.ANSI());
    return field(new DecodeNestedZ85EncodedVariant(new CreateNamedStruct(seq(text("tag"), variant))), "tag");
  }

  private static Expression intact(Expression variant, boolean checked) {
    return checked ? new If(new IsValidVariant(variant).replacement(), variant, literal(null, DataTypes.VariantType)) : variant;
  }

  // ---- one bound ------------------------------------------------------------------------------------------------

  /**
   * The expression that reads a bound from a row. Its JSON is described in delta_variant/skipping/bounds.py, Projection;
   * `types` has the types that it names. There are two more sides: `leaf` (delta_variant/reading/requests.py) is the minimum
   * or else the maximum, as VARIANT, in files where the marker has the given value; `rows` is the number of rows in the file.
   */
  public static Expression read(JsonNode bound, Seq row, Map types, String zone) {
    String side = bound.get("side").asText();
    if (side.equals("rows")) return attribute(row, "rows");
    if (side.equals("values")) return hasValues(bound, row);
    if (side.equals("kind")) return kind(new Coalesce(seq(found("min", bound, row), found("max", bound, row))));
    if (side.equals("leaf")) {
      Expression hasMarker = new EqualTo(attribute(row, "mark"), text(bound.get("mark").asText()));
      Expression either = new Coalesce(seq(found("min", bound, row), found("max", bound, row)));
      return new If(hasMarker, either, literal(null, DataTypes.VariantType));
    }
    Expression variant = found(side, bound, row);
    Expression kind = kind(variant);
    Expression counts = new Or(new In(kind, texts(bound.get("kinds"))),
        new And(new IsNotNull(attribute(row, "mark")), new In(kind, texts(bound.get("marked")))));
    DataType type = (DataType) types.get(item(bound.get("types"), 0).asText());
    Expression value = new VariantGet(variant, text("$"), type, false, scala.Option.apply(zone));
    value = new If(counts, value, literal(null, type));
    if (!bound.get("times").isNull()) value = new Coalesce(seq(value, time(side, bound, row, type)));
    for (int t = 1; t < bound.get("types").size(); t++) {
      value = new Cast(value, (DataType) types.get(item(bound.get("types"), t).asText()), scala.Option.apply(zone), EvalMode.TRY());
    }
    return value;
  }

  /** The minimum or maximum of a path as VARIANT, whatever its type; NULL if there is none. */
  private static Expression found(String side, JsonNode bound, Seq row) {
    Expression object = attribute(row, side + bound.get("column").asInt());
    Expression inStatistics = get(object, new String[] {bound.get("key").asText()}, "", DataTypes.VariantType, "UTC");
    if (bound.get("tag").isNull()) return inStatistics;
    return new Coalesce(seq(inStatistics, tagged(bound, row, side.equals("min") ? "[2]" : "[3]", DataTypes.VariantType)));
  }

  private static Expression tagged(JsonNode bound, Seq row, String suffix, DataType type) {
    return get(attribute(row, "nonnull"), steps(bound.get("tag")), suffix, type, "UTC");
  }

  private static String[] steps(JsonNode place) {
    return new String[] {item(place, 0).asText(), item(place, 1).asText()};
  }

  /**
   * The first or the last of the times that the strings at a path spell, as a value of this type; NULL if the file has none in
   * the tag, whose array delta_variant/stats/tags.py describes.
   *
   * A local time is an instant only in some time zone, and java.time has none beyond 18 hours from UTC: the first instant is
   * not before that of +18:00, the last not after that of -18:00. With `exact`, these wider bounds are left out.
   */
  private static Expression time(String side, JsonNode bound, Seq row, DataType type) {
    boolean first = side.equals("min");
    Expression times = attribute(row, "times");
    String[] steps = steps(bound.get("times"));
    String instant = first ? "[0]" : "[1]";
    Expression value;
    Expression counts = new IsNotNull(attribute(row, "mark"));
    if (type.equals(DataTypes.TimestampType)) {
      value = get(times, steps, instant, type, first ? "+18:00" : "-18:00");
      Expression kind = kind(get(times, steps, instant, DataTypes.VariantType, "UTC"));
      if (bound.get("exact").asBoolean()) counts = new And(counts, new EqualTo(kind, text("TIMESTAMP")));
    } else {
      Expression local = get(times, steps, first ? "[2]" : "[3]", type, "UTC");
      value = new Coalesce(seq(local, get(times, steps, instant, type, "UTC")));
    }
    return new If(counts, value, literal(null, type));
  }

  private static Expression kind(Expression variant) {
    Expression schema = new SchemaOfVariant(variant).replacement();
    return new SubstringIndex(schema, text("("), literal(Integer.valueOf(1), DataTypes.IntegerType));
  }

  private static Expression hasValues(JsonNode bound, Seq row) {
    Expression counts = tagged(bound, row, "", DataTypes.createArrayType(DataTypes.VariantType));
    Expression values = new Not(new EqualTo(new Size(counts, false), literal(Integer.valueOf(2), DataTypes.IntegerType)));
    if (!item(bound.get("types"), bound.get("types").size() - 1).asText().equals("variant")) return values;
    Expression nulls = tagged(bound, row, "[0]", DataTypes.LongType);
    return new Or(values, new GreaterThan(nulls, literal(Long.valueOf(0), DataTypes.LongType)));
  }

  /**
   * The value at these keys of a Variant. Spark's path syntax has no escapes, and a key may have quotes of both kinds: a key
   * with double quotes is looked up in a map.
   */
  private static Expression get(Expression variant, String[] keys, String suffix, DataType type, String zone) {
    StringBuilder path = new StringBuilder("$");
    for (int k = 0; k < keys.length; k++) {
      if (keys[k].indexOf('"') < 0) {
        path.append("[\"").append(keys[k]).append("\"]");
      } else {
        DataType map = DataTypes.createMapType(DataTypes.StringType, DataTypes.VariantType);
        variant = entry(new VariantGet(variant, text(path.toString()), map, false, scala.Option.apply("UTC")), keys[k]);
        path.setLength(1);
      }
    }
    return new VariantGet(variant, text(path + suffix), type, false, scala.Option.apply(zone));
  }

  // ---- expressions ----------------------------------------------------------------------------------------------

  /** `JsonNode.get` with a cast, since Janino finds two methods of that name for an int. */
  public static JsonNode item(JsonNode array, int number) {
    return (JsonNode) array.get(number);
  }

  public static Seq seq(List values) {
    return scala.jdk.javaapi.CollectionConverters.asScala(values).toIndexedSeq();
  }

  private static Seq seq(Expression first, Expression second) {
    return seq(Arrays.asList(new Object[] {first, second}));
  }

  public static Attribute attribute(Seq output, String name) {
    for (int i = 0; i < output.size(); i++) {
      if (((Attribute) output.apply(i)).name().equals(name)) return (Attribute) output.apply(i);
    }
    throw new IllegalStateException(name + " is not in " + output);
  }

  public static Expression field(Expression struct, String name) {
    return new GetStructField(struct, ((StructType) struct.dataType()).fieldIndex(name), scala.Option.apply(name));
  }

  private static Expression field(Expression struct, String first, List names) {
    Expression value = field(struct, first);
    for (int n = 0; n < names.size(); n++) value = field(value, (String) names.get(n));
    return value;
  }

  public static NamedExpression named(Expression value, String name) {
    Seq none = seq(new ArrayList());
    return new Alias(value, name, NamedExpression$.MODULE$.newExprId(), none, scala.Option.empty(), none);
  }

  public static Literal literal(Object value, DataType type) {
    return new Literal(value, type);
  }

  private static Literal text(String text) {
    return new Literal(UTF8String.fromString(text), DataTypes.StringType);
  }

  private static List literals(Iterable texts) {
    List literals = new ArrayList();
    for (java.util.Iterator i = texts.iterator(); i.hasNext(); ) literals.add(text((String) i.next()));
    return literals;
  }

  private static Seq texts(JsonNode names) {
    List texts = new ArrayList();
    for (int n = 0; n < names.size(); n++) texts.add(text(item(names, n).asText()));
    return seq(texts);
  }
}
