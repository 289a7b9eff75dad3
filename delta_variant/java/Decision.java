package delta_variant;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.stats.DeltaScan;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * Decides which of a scan's files stay after data skipping, and for `explain`, why.
 *
 * Janino compiles this file: no generics, no lambdas.
 */
public class Decision {
  // Delta runs a job for each predicate on ordinary columns. More than a few, or any on a large table, have to save the query
  // so many bytes each.
  private static final int FEW_PREDICATES = 4;
  private static final long PREDICATE_BYTES = 16 << 20;

  private final DeltaScan scan;
  private final List all;  // AddFiles
  private final FileBounds files;
  private final Tree.Values[] bounds;
  private final Tree.Members[] members;
  private final Filters filters;
  private boolean spares;

  public Decision(DeltaScan scan, List all, FileBounds files, Tree.Values[] bounds, Tree.Members[] members, Filters filters) {
    this.scan = scan;
    this.all = all;
    this.files = files;
    this.bounds = bounds;
    this.members = members;
    this.filters = filters;
  }

  /** The files for which the tree is TRUE or NULL. Delta is asked about ordinary columns only if that can rule out enough. */
  public List left(JsonNode tree) throws InterruptedException {
    List left = left(tree, null);
    Set others = new TreeSet();
    others(tree, others);
    if (others.isEmpty()) return left;
    boolean[][] delta = new boolean[filters.others().size()][files.size()];
    long saved = bytes(left) - bytes(left(tree, delta));  // at most, if Delta ruled out every file
    boolean cheap = files.small() && others.size() <= FEW_PREDICATES;
    spares = saved > 0 && !cheap && saved <= PREDICATE_BYTES * others.size();
    if (saved == 0 || spares) return left;
    for (java.util.Iterator o = others.iterator(); o.hasNext(); ) {
      int other = ((Integer) o.next()).intValue();
      Seq predicate = Bounds.seq(Collections.singletonList(filters.others().get(other)));
      for (Iterator i = scan.scannedSnapshot().filesForScan(predicate, false).files().iterator(); i.hasNext(); ) {
        int file = files.number(((AddFile) i.next()).path());
        if (file >= 0) delta[other][file] = true;
      }
    }
    return left(tree, delta);
  }

  /** Whether Delta was not asked about ordinary columns, because that would take longer than it saves. */
  public boolean sparesDelta() {
    return spares;
  }

  /** Adds the numbers of the predicates on ordinary columns that a tree refers to. */
  private static void others(JsonNode tree, Set numbers) {
    if (Bounds.item(tree, 0).asText().equals("other")) numbers.add(Integer.valueOf(Bounds.item(tree, 1).asInt()));
    for (int p = 1; p < tree.size(); p++) {
      if (Bounds.item(tree, p).size() > 0 && Bounds.item(Bounds.item(tree, p), 0).isTextual()) others(Bounds.item(tree, p), numbers);
    }
  }

  /** The size of some AddFiles, in bytes. */
  public static long bytes(List files) {
    long bytes = 0;
    for (int f = 0; f < files.size(); f++) bytes += ((AddFile) files.get(f)).size();
    return bytes;
  }

  private List left(JsonNode json, boolean[][] delta) throws InterruptedException {
    Tree tree = Tree.of(json, bounds, filters.constants(), delta, members);
    List left = new ArrayList();
    synchronized (files) {
      for (int f = 0; f < all.size(); f++) {
        if (Thread.currentThread().isInterrupted()) throw new InterruptedException();
        AddFile file = (AddFile) all.get(f);
        int number = files.number(file.path());
        if (number < 0 || tree.of(number) != Tree.FALSE) left.add(file);
      }
    }
    return left;
  }

  /** [number of the question, verdict, number of files] for each question and verdict (delta_variant/skipping/verdicts.py). */
  public ArrayNode tally(JsonNode questions, String marker, Seq markerValues) {
    ArrayNode result = new ObjectMapper().createArrayNode();
    for (int q = 0; q < questions.size(); q++) {
      JsonNode question = Bounds.item(questions, q);
      Tree out = tree(question.get("tree"));
      Tree maybe = tree(question.get("question"));
      Tree byBounds = tree(question.get("bounds"));
      Tree member = question.hasNonNull("member") ? tree(question.get("member")) : null;
      Map counts = new TreeMap();
      synchronized (files) {
        for (int f = 0; f < all.size(); f++) {
          AddFile file = (AddFile) all.get(f);
          int number = files.number(file.path());
          if (number < 0) continue;
          String verdict = undecided(number, question, hasTag(file, marker, markerValues));
          if (out.of(number) == Tree.FALSE) verdict = byBounds.of(number) == Tree.FALSE ? "out" : "index";
          else if (member != null && member.of(number) == Tree.NULL && isIndexed(question)) verdict = "unindexed";
          else if (maybe.of(number) == Tree.TRUE) verdict = "maybe";
          Integer before = (Integer) counts.get(verdict);
          counts.put(verdict, Integer.valueOf(before == null ? 1 : before.intValue() + 1));
        }
      }
      for (java.util.Iterator i = counts.entrySet().iterator(); i.hasNext(); ) {
        Map.Entry count = (Map.Entry) i.next();
        result.addArray().add(question.get("number")).add((String) count.getKey()).add((Integer) count.getValue());
      }
    }
    return result;
  }

  private Tree tree(JsonNode tree) {
    return Tree.of(tree, bounds, filters.constants(), null, members);
  }

  /** Whether the index has filters for the path of a question. */
  private boolean isIndexed(JsonNode question) {
    return members[Bounds.item(question.get("member"), 1).asInt()].some();
  }

  /** The verdict on a file for which the question is neither FALSE nor TRUE. */
  private String undecided(int file, JsonNode question, boolean marked) {
    if (question.get("kind").isNull()) return "other";
    Object kind = bounds[question.get("kind").asInt()].get(file);
    if (kind == null) return "none";
    if (contains(question.get("kinds"), kind.toString())) return "other";
    if (!contains(question.get("marked"), kind.toString())) return kind.toString();
    return marked ? "other" : "unmarked";
  }

  private static boolean contains(JsonNode names, String name) {
    for (int n = 0; n < names.size(); n++) {
      if (Bounds.item(names, n).asText().equals(name)) return true;
    }
    return false;
  }

  /** Whether one of the AddFiles has the tag, with one of `values`, or any value if `values` is null. */
  public static boolean anyTag(List files, String tag, Seq values) {
    for (int f = 0; f < files.size(); f++) {
      if (hasTag((AddFile) files.get(f), tag, values)) return true;
    }
    return false;
  }

  /** Whether a file has the tag, with one of `values`, or any value if `values` is null. */
  public static boolean hasTag(AddFile file, String tag, Seq values) {
    scala.collection.immutable.Map tags = file.tags();
    return tags != null && tags.contains(tag) && (values == null || values.contains(tags.apply(tag)));
  }
}
