package delta_variant;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.unsafe.types.UTF8String;
import scala.math.Ordering;

/**
 * A predicate on bounds (delta_variant/skipping/bounds.py), evaluated for one file after the other: FALSE, NULL or TRUE.
 *
 * The compared values come from Spark's expressions, and are compared in Spark's order of their type. Janino compiles this
 * file: no generics, no lambdas.
 */
public abstract class Tree {
  public static final int FALSE = -1;
  public static final int NULL = 0;
  public static final int TRUE = 1;

  /** FALSE, NULL or TRUE for the file with this number. */
  public abstract int of(int file);

  /** The values of one bound, by file; null where it is unknown. */
  public abstract static class Values {
    public abstract Object get(int file);

    /** The order of the values. */
    public abstract Ordering order();
  }

  /** Which files may have rows with a value at one path, by the index of values (Index). */
  public abstract static class Members {
    /** FALSE if no row of the file has one of these values, NULL if that is not known. */
    public abstract int of(int file, Object[] values);

    /** Whether anything is known of any file. */
    public abstract boolean some();
  }

  /** A tree that asks no index. */
  public static Tree of(JsonNode tree, Values[] bounds, List constants, boolean[][] others) {
    return of(tree, bounds, constants, others, new Members[0]);
  }

  /**
   * The tree of a reply. `constants` are Object[] without nulls. `others` says for each predicate on ordinary columns, and
   * each file, whether Delta's data skipping keeps the file; it is null if Delta was not asked.
   */
  public static Tree of(JsonNode tree, Values[] bounds, List constants, boolean[][] others, Members[] members) {
    String op = Bounds.item(tree, 0).asText();
    if (op.equals("all") || op.equals("any")) {
      Tree[] parts = new Tree[tree.size() - 1];
      for (int p = 0; p < parts.length; p++) parts[p] = of(Bounds.item(tree, p + 1), bounds, constants, others, members);
      return new Joined(parts, op.equals("all") ? FALSE : TRUE);
    }
    if (op.equals("other")) return new Other(others == null ? null : others[Bounds.item(tree, 1).asInt()]);
    if (op.equals("member")) return new Member(members[Bounds.item(tree, 1).asInt()], values(Bounds.item(tree, 2), constants));
    Values first = bounds[Bounds.item(tree, 1).asInt()];
    if (op.equals("values")) return new Truth(first);
    if (op.equals("between") || op.equals("differs")) {
      Object[] sorted = sorted(Bounds.item(tree, 3), constants, first.order(), op.equals("differs"));
      Values second = bounds[Bounds.item(tree, 2).asInt()];
      return op.equals("between") ? (Tree) new Between(first, second, sorted) : new Differs(first, second, sorted);
    }
    Object constant = ((Object[]) constants.get(Bounds.item(tree, 2).asInt()))[0];
    if (op.endsWith("startswith")) return new StartsWith(first, (UTF8String) constant, op.startsWith("NOT") ? FALSE : TRUE);
    return new Check(first, op, constant);
  }

  private static Object[] values(JsonNode numbers, List constants) {
    List values = new ArrayList();
    for (int n = 0; n < numbers.size(); n++) {
      values.addAll(Arrays.asList((Object[]) constants.get(Bounds.item(numbers, n).asInt())));
    }
    return values.toArray();
  }

  /**
   * The values of these constants, sorted. Spark's InSet distinguishes -0.0 and 0.0, while a bound of zero stands for either:
   * the zeros of a list are therefore left out where its values are excluded.
   */
  private static Object[] sorted(JsonNode numbers, List constants, Ordering order, boolean excluded) {
    List values = new ArrayList();
    for (int n = 0; n < numbers.size(); n++) {
      Object[] some = (Object[]) constants.get(Bounds.item(numbers, n).asInt());
      for (int v = 0; v < some.length; v++) {
        boolean zero = some[v] instanceof Number && ((Number) some[v]).doubleValue() == 0;
        boolean floating = some[v] instanceof Double || some[v] instanceof Float;
        if (!excluded || some.length == 1 || !floating || !zero) values.add(some[v]);
      }
    }
    Object[] sorted = values.toArray();
    Arrays.sort(sorted, order);
    return sorted;
  }

  /** AND, which the first FALSE decides, or OR, which the first TRUE decides. */
  private static class Joined extends Tree {
    private final Tree[] parts;
    private final int decisive;

    Joined(Tree[] parts, int decisive) {
      this.parts = parts;
      this.decisive = decisive;
    }

    public int of(int file) {
      int result = -decisive;
      for (int p = 0; p < parts.length; p++) {
        int part = parts[p].of(file);
        if (part == decisive) return decisive;
        if (part == NULL) result = NULL;
      }
      return result;
    }
  }

  private static class Other extends Tree {
    private final boolean[] kept;

    Other(boolean[] kept) {
      this.kept = kept;
    }

    public int of(int file) {
      return kept == null || kept[file] ? NULL : FALSE;
    }
  }

  private static class Member extends Tree {
    private final Members members;
    private final Object[] values;

    Member(Members members, Object[] values) {
      this.members = members;
      this.values = values;
    }

    public int of(int file) {
      return members.of(file, values);
    }
  }

  private static class Truth extends Tree {
    private final Values values;

    Truth(Values values) {
      this.values = values;
    }

    public int of(int file) {
      Object value = values.get(file);
      return value == null ? NULL : value.equals(Boolean.TRUE) ? TRUE : FALSE;
    }
  }

  private static class Check extends Tree {
    private final Values values;
    private final Object constant;
    private final Ordering order;
    private final int wanted;  // the sign of value - constant for which the comparison is TRUE
    private final boolean equal;  // whether it is TRUE for equal values too

    Check(Values values, String op, Object constant) {
      this.values = values;
      this.constant = constant;
      this.order = values.order();
      this.wanted = op.charAt(0) == '<' ? -1 : 1;
      this.equal = op.length() == 2;
    }

    public int of(int file) {
      Object value = values.get(file);
      if (value == null) return NULL;
      int sign = Integer.signum(order.compare(value, constant));
      return sign == wanted || sign == 0 && equal ? TRUE : FALSE;
    }
  }

  private static class StartsWith extends Tree {
    private final Values values;
    private final UTF8String prefix;
    private final int yes;  // the result if the value starts with the prefix

    StartsWith(Values values, UTF8String prefix, int yes) {
      this.values = values;
      this.prefix = prefix;
      this.yes = yes;
    }

    public int of(int file) {
      Object value = values.get(file);
      return value == null ? NULL : ((UTF8String) value).startsWith(prefix) ? yes : -yes;
    }
  }

  /** A comparison of both bounds of a path with a list of constants. */
  private abstract static class Listed extends Tree {
    protected final Values low;
    protected final Values high;
    protected final Object[] sorted;
    protected final Ordering order;

    Listed(Values low, Values high, Object[] sorted) {
      this.low = low;
      this.high = high;
      this.sorted = sorted;
      this.order = low.order();
    }

    /** The index of the first of the sorted values that is not below this one; their number if all are below. */
    protected int notBelow(Object value) {
      int from = 0;
      int to = sorted.length;
      while (from < to) {
        int middle = (from + to) >>> 1;
        if (order.compare(sorted[middle], value) < 0) from = middle + 1;
        else to = middle;
      }
      return from;
    }
  }

  /** Whether a constant lies between two bounds. If any does, so does the smallest one that is not below the lower bound. */
  private static class Between extends Listed {
    Between(Values low, Values high, Object[] sorted) {
      super(low, high, sorted);
    }

    public int of(int file) {
      Object from = low.get(file);
      Object to = high.get(file);
      int index = from == null ? 0 : notBelow(from);
      if (index == sorted.length) return FALSE;
      if (to != null && order.compare(sorted[index], to) > 0) return FALSE;
      return from == null || to == null ? NULL : TRUE;
    }
  }

  /** Whether two bounds allow values other than the constants. */
  private static class Differs extends Listed {
    Differs(Values low, Values high, Object[] sorted) {
      super(low, high, sorted);
    }

    public int of(int file) {
      Object from = low.get(file);
      if (from == null) return NULL;
      int index = notBelow(from);
      if (index == sorted.length || order.compare(sorted[index], from) != 0) return TRUE;
      Object to = high.get(file);
      return to == null ? NULL : order.compare(from, to) == 0 ? FALSE : TRUE;
    }
  }
}
