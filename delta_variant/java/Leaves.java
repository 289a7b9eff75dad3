package delta_variant;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/**
 * The types of typed columns, by their names in Spark SQL, which delta_variant/reading/casts.py uses too.
 *
 * Janino compiles this file: no generics, no lambdas.
 */
public class Leaves {
  public static final String VOID = "void";  // of a path that no row has
  private static final String OR_JSON_NULL = "?";  // after a type: some rows have a JSON null at the path instead
  private static final String[] PRIMITIVES = {null, "boolean", "boolean", "tinyint", "smallint", "int", "bigint", "double", null,
      null, null, "date", "timestamp", "timestamp_ntz", "float", "binary", "string"};
  private static final String[] INTEGERS = {"tinyint", "smallint", "int"};
  private static final int[] BITS = {8, 16, 32};
  private static final int DECIMAL4 = 8;
  private static final int[] DIGITS = {9, 18, 38};  // of decimal4, decimal8, decimal16

  /** The type of a Variant's value (VariantEncoding, "Encoding types"); null if it is no primitive, or Spark lacks the type. */
  public static String type(byte[] value) {
    int basic = value[0] & 3;
    int id = value[0] >> 2 & 63;
    if (basic == 1) return "string";
    if (basic != 0 || id >= PRIMITIVES.length) return null;
    if (id < DECIMAL4 || id >= DECIMAL4 + DIGITS.length) return PRIMITIVES[id];
    return decimal(id - DECIMAL4, value[1] & 255);
  }

  /** The type of a decimal of 4, 8 or 16 bytes (`width` 0, 1 or 2); null if the scale exceeds its digits. */
  public static String decimal(int width, int scale) {
    return scale > DIGITS[width] ? null : ("decimal(" + DIGITS[width] + "," + scale + ")").intern();
  }

  /** The integer type with this many bits. */
  public static String integer(int bits) {
    for (int t = 0; t < BITS.length; t++) {
      if (BITS[t] == bits) return INTEGERS[t];
    }
    return "bigint";
  }

  /** The smallest integer type that can hold both values; null if one of them is unknown. */
  public static String room(Long least, Long most) {
    if (least == null || most == null) return null;
    for (int t = 0; t < BITS.length; t++) {
      long limit = 1L << BITS[t] - 1;
      if (least.longValue() >= -limit && most.longValue() < limit) return INTEGERS[t];
    }
    return "bigint";
  }

  /** The value as an integer of that type; null if the type cannot hold it, or is not an integer type. */
  public static Object integer(long value, DataType type) {
    if (type.equals(DataTypes.LongType)) return Long.valueOf(value);
    if (type.equals(DataTypes.IntegerType) && value == (int) value) return Integer.valueOf((int) value);
    if (type.equals(DataTypes.ShortType) && value == (short) value) return Short.valueOf((short) value);
    if (type.equals(DataTypes.ByteType) && value == (byte) value) return Byte.valueOf((byte) value);
    return null;
  }

  public static String withJsonNulls(String type) {
    return type + OR_JSON_NULL;
  }

  public static boolean hasJsonNulls(String type) {
    return type.endsWith(OR_JSON_NULL);
  }

  public static String withoutJsonNulls(String type) {
    return hasJsonNulls(type) ? type.substring(0, type.length() - OR_JSON_NULL.length()).intern() : type;
  }

  /** The bytes that Spark's estimates assume for a value of a type; 0 for null. */
  public static int size(String type) {
    return type == null ? 0 : dataType(withoutJsonNulls(type)).defaultSize();
  }

  /** The Spark type of that name. */
  public static DataType dataType(String name) {
    if (name.startsWith("decimal")) {
      int comma = name.indexOf(',');
      int digits = Integer.parseInt(name.substring(name.indexOf('(') + 1, comma));
      return DataTypes.createDecimalType(digits, Integer.parseInt(name.substring(comma + 1, name.length() - 1)));
    }
    switch (name) {
      case "boolean": return DataTypes.BooleanType;
      case "tinyint": return DataTypes.ByteType;
      case "smallint": return DataTypes.ShortType;
      case "int": return DataTypes.IntegerType;
      case "bigint": return DataTypes.LongType;
      case "float": return DataTypes.FloatType;
      case "double": return DataTypes.DoubleType;
      case "date": return DataTypes.DateType;
      case "timestamp": return DataTypes.TimestampType;
      case "timestamp_ntz": return DataTypes.TimestampNTZType;
      case "binary": return DataTypes.BinaryType;
      case "string": return DataTypes.StringType;
      case VOID: return DataTypes.NullType;
      default: throw new IllegalArgumentException(name);
    }
  }
}
