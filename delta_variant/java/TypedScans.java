package delta_variant;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.delta.DeltaColumnMapping$;
import org.apache.spark.sql.delta.DeltaParquetFileFormat;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.files.TahoeFileIndex;
import org.apache.spark.sql.delta.stats.DeltaScan;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.VariantType;
import scala.collection.immutable.Seq;

/**
 * The optimizer rule for typed reading. It finds the Delta scans whose VARIANTs a plan uses by path (Uses), answers MIN, MAX
 * and COUNT(*) from the log where possible (LogAggregates), groups the files by the types that the log or their footers prove
 * for these paths (FileBounds, Footers), and replaces the scan by a plan that reads the typed columns (TypedPlan).
 *
 * On any failure the rule returns the plan that it got; interruption and cancellation are passed on. Janino compiles this
 * file: no generics, no lambdas.
 */
public class TypedScans extends Rule implements Scans.Visit {
  private static final String SETTING = "spark.delta_variant.typedReading";
  private static final String FOOTER_BYTES = "spark.delta_variant.footerBytes";  // footers of smaller files are not read
  private static final String DEFAULT_BYTES = "262144";  // Spark's scan of fewer bytes takes no longer than the footer
  private static final long MAX_LEAVES = 4000000;  // types of paths in all files of a scan: a few seconds, the first time
  private static final AtomicLong SCANS = new AtomicLong();
  private static final ObjectMapper JSON = new ObjectMapper();

  private final java.util.function.UnaryOperator decide;  // request JSON -> reply JSON
  private final java.util.function.BiConsumer tell;  // subject, text
  private final SkipFiles skipping;
  private final String marker;  // name of the tag that says that this package computed the bounds
  private final Seq typedMarkers;  // the values with which bounds prove typed columns

  public TypedScans(java.util.function.UnaryOperator decide, java.util.function.BiConsumer tell, SkipFiles skipping,
      String marker, Seq typedMarkers) {
    this.marker = marker;
    this.typedMarkers = typedMarkers;
    this.decide = decide;
    this.tell = tell;
    this.skipping = skipping;
  }

  public String ruleName() {
    return Scans.READING;
  }

  public TreeNode apply(TreeNode plan) {
    boolean on = Boolean.parseBoolean(conf().getConfString(SETTING, "true"));
    return on ? Scans.apply(this, (LogicalPlan) plan, tell, "reading") : plan;
  }

  public LogicalPlan visited(LogicalPlan plan) throws Exception {
    List scans = new ArrayList();
    scans(plan, scans);
    for (int s = 0; s < scans.size(); s++) {
      try {
        plan = typed(plan, (LogicalRelation) scans.get(s), scans);
      } catch (Throwable failure) {
        if (FileBounds.stops(failure)) org.apache.spark.unsafe.Platform.throwException(failure);
        Scans.report(failure, tell, "reading");
      }
    }
    return Scans.subqueries(plan, this);
  }

  private static void scans(LogicalPlan plan, List found) {
    if (plan instanceof LogicalRelation && isOpen((LogicalRelation) plan)) found.add(plan);
    for (scala.collection.Iterator i = plan.children().iterator(); i.hasNext(); ) scans((LogicalPlan) i.next(), found);
  }

  /** Whether a relation is a Delta scan with VARIANTs that the rule has not visited yet. */
  private static boolean isOpen(LogicalRelation scan) {
    boolean variants = false;
    for (scala.collection.Iterator i = scan.output().iterator(); i.hasNext() && !variants; ) {
      variants = Scans.hasVariant(((Attribute) i.next()).dataType());
    }
    return variants && index(scan) != null && Scans.outcome(scan, Scans.READING) == null;
  }

  private static TahoeFileIndex index(LogicalRelation scan) {
    if (!(scan.relation() instanceof HadoopFsRelation)) return null;
    HadoopFsRelation source = (HadoopFsRelation) scan.relation();
    boolean delta = source.fileFormat().getClass() == DeltaParquetFileFormat.class;
    return delta && Scans.prepared(source.location()) != null ? (TahoeFileIndex) source.location() : null;
  }

  // ---- one scan ---------------------------------------------------------------------------------------------------

  /**
   * The plan in which one scan is read from typed columns, as far as possible. If the log answers for some of its files, the
   * scan of the others is added to `open`.
   */
  private LogicalPlan typed(LogicalPlan plan, LogicalRelation scan, List open) throws Exception {
    Uses uses = new Uses(plan, scan);
    if (uses.paths.isEmpty()) return plan;
    ObjectNode outcome = JSON.createObjectNode().put("scan", SCANS.incrementAndGet());
    String logged = Scans.outcome(scan, Scans.LOGGED);
    if (logged != null) outcome.put("logged", Integer.parseInt(logged));
    if (uses.whole() != null) return unchanged(plan, scan, outcome, uses.whole());
    TahoeFileIndex index = index(scan);
    DeltaScan prepared = Scans.prepared(index);
    List files = Scans.files(index);
    Bounds log = skipping.log(prepared.scannedSnapshot());
    DeltaParquetFileFormat format = (DeltaParquetFileFormat) ((HadoopFsRelation) scan.relation()).fileFormat();
    outcome.put("files", files.size());
    if ((long) files.size() * uses.paths.size() > MAX_LEAVES) {
      return unchanged(plan, scan, outcome, uses.paths.size() + " paths are too many for " + files.size() + " files");
    }
    LogAggregates aggregates = logged != null || Scans.isCommand(index) ? null : LogAggregates.of(uses);
    if (aggregates != null && Decision.anyTag(files, marker, null)) {
      LogicalPlan fromLog = fromLog(aggregates, scan, files, log, format, outcome, open);
      if (fromLog != null) return fromLog;
    }
    JsonNode proofs = proofs(uses, log, format);
    if (proofs.has("reasons")) return unchanged(plan, scan, outcome, proofs.get("reasons"));
    String[][] types = new String[files.size()][2 * uses.paths.size()];
    FileBounds known = null;
    if (!proofs.get("bounds").isEmpty() && Decision.anyTag(files, marker, typedMarkers)) {
      known = FileBounds.of(log, prepared);
      if (known.failure() != null) {
        return unchanged(plan, scan, outcome, "the bounds of this version could not be read: " + known.failure());
      }
      byLog(known, log, proofs, files, types);
    }
    Map[] footers = hasFooters(format, prepared) ? byFooters(uses, index, proofs, files, types) : new Map[types.length];

    Map kinds = new LinkedHashMap();  // types of the leaves -> List of AddFiles
    List widths = new ArrayList();  // by kind, the width of its first file
    List others = new ArrayList();
    int[] proven = new int[uses.paths.size()];
    for (int f = 0; f < types.length; f++) {
      for (int p = 0; p < proven.length; p++) {
        if (types[f][2 * p] != null) proven[p]++;
      }
      if (!isProven(types[f])) {
        others.add(files.get(f));
        continue;
      }
      List kind = Arrays.asList(types[f]);
      if (!kinds.containsKey(kind)) widths.add(Integer.valueOf(width((AddFile) files.get(f), footers[f], known)));
      listed(kinds, kind).add(files.get(f));
    }
    outcome.set("paths", described(uses, proven));
    LogicalPlan result = kinds.isEmpty() ? plan : replaced(plan, scan, uses, proofs, kinds, widths, others, outcome);
    Scans.setOutcome(scan, Scans.READING, outcome.toString());
    return result;
  }

  /** The plan in which the log answers for the files that it decides; null if it decides none. */
  private LogicalPlan fromLog(LogAggregates aggregates, LogicalRelation scan, List files, Bounds log, DeltaParquetFileFormat format,
      ObjectNode outcome, List open) throws Exception {
    ObjectNode request = JSON.createObjectNode().put("ask", "extremes");
    request.set("columns", JSON.valueToTree(log.columns()));
    ArrayNode paths = request.putArray("paths");
    Map types = new HashMap();
    List requested = aggregates.requested();
    for (int u = 0; u < requested.size(); u++) {
      Uses.Use use = (Uses.Use) requested.get(u);
      path(paths, use, format).put("type", use.type.catalogString());
      types.put(use.type.catalogString(), use.type);
    }
    JsonNode bounds = ask(request).get("bounds");
    if (bounds.isEmpty()) return null;
    TahoeFileIndex index = index(scan);
    FileBounds known = FileBounds.of(log, Scans.prepared(index));
    if (known.failure() != null) return null;
    Tree.Values[] values = known.read(log, bounds, types, conf().sessionLocalTimeZone());
    List others = aggregates.decide(files, known, values, skipping);
    int decided = files.size() - others.size();
    if (decided == 0) return null;
    if (others.isEmpty()) {
      ObjectNode node = Scans.describe(scan).put("bounds", 0);
      return aggregates.plan(node.put("reading", outcome.put("files", 0).put("logged", decided).toString()).toString());
    }
    LogicalPlan plan = aggregates.plan(Scans.over(aggregates.scan(), Scans.narrowed(index, others)));
    LogicalRelation rest = aggregates.rest();
    Scans.setOutcome(rest, Scans.SKIPPING, Scans.outcome(scan, Scans.SKIPPING));
    Scans.setOutcome(rest, Scans.LOGGED, String.valueOf(decided));
    open.add(rest);
    return plan;
  }

  /**
   * Sets the types that the log proves: by file, for each path the type of its column, and the smallest type that can hold its
   * integers. A type that is not proven stays null.
   */
  private void byLog(FileBounds known, Bounds log, JsonNode proofs, List files, String[][] types) throws Exception {
    Map requested = new HashMap();
    requested.put("bigint", DataTypes.LongType);
    Tree.Values[] bounds = known.read(log, proofs.get("bounds"), requested, conf().sessionLocalTimeZone());
    JsonNode leaves = proofs.get("leaves");
    synchronized (known) {
      for (int f = 0; f < types.length; f++) {
        int file = known.number(((AddFile) files.get(f)).path());
        for (int p = 0; p < leaves.size() && file >= 0; p++) {
          if (!Bounds.item(leaves, p).isNull()) types[f][2 * p] = (String) bounds[Bounds.item(leaves, p).asInt()].get(file);
          JsonNode range = Bounds.item(proofs.get("ranges"), p);
          if (range.isNull()) continue;
          types[f][2 * p + 1] = Leaves.room((Long) bounds[range.asInt()].get(file), (Long) bounds[range.asInt() + 1].get(file));
        }
      }
    }
  }

  /**
   * Whether footers can prove types: files may be shredded, and columns are found by name. With column mapping by id, other
   * writers may use any names.
   */
  private static boolean hasFooters(DeltaParquetFileFormat format, DeltaScan prepared) {
    scala.collection.immutable.Set features = prepared.scannedSnapshot().protocol().readerAndWriterFeatureNames();
    boolean shredded = features.contains("variantShredding") || features.contains("variantShredding-preview");
    return shredded && !format.columnMappingMode().name().equals("id");
  }

  /** Sets the types that footers prove where the log proves none. Returns by file what its footer says; null if not read. */
  private Map[] byFooters(Uses uses, TahoeFileIndex index, JsonNode proofs, List files, String[][] types) throws Exception {
    List numbers = new ArrayList();
    List unproven = new ArrayList();
    for (int f = 0; f < types.length; f++) {
      if (isProven(types[f])) continue;
      numbers.add(Integer.valueOf(f));
      unproven.add(files.get(f));
    }
    List columns = new ArrayList();
    List keys = new ArrayList();
    for (int p = 0; p < uses.paths.size(); p++) {
      columns.add(texts(Bounds.item(proofs.get("columns"), p)));
      keys.add(texts(Bounds.item(proofs.get("keys"), p)));
    }
    Map[] read = Footers.of(index, unproven, Long.parseLong(conf().getConfString(FOOTER_BYTES, DEFAULT_BYTES)));
    boolean[] nullsCount = new boolean[keys.size()];  // by path: requested as VARIANT, for which a JSON null is not NULL
    for (Iterator i = uses.uses.values().iterator(); i.hasNext(); ) {
      Uses.Use use = (Uses.Use) i.next();
      if (use.path != null) nullsCount[use.number] |= use.type instanceof VariantType;
    }
    Map[] footers = new Map[types.length];
    for (int r = 0; r < read.length; r++) {
      int file = ((Integer) numbers.get(r)).intValue();
      footers[file] = read[r];
      String[] found = types[file];
      for (int p = 0; p < keys.size() && read[r] != null; p++) {
        if (found[2 * p] != null) continue;
        String type = Footers.type(read[r], (List) columns.get(p), (List) keys.get(p));
        if (type != null && !(nullsCount[p] && Leaves.hasJsonNulls(type))) found[2 * p] = Leaves.withoutJsonNulls(type);
      }
    }
    return footers;
  }

  private static int width(AddFile file, Map footer, FileBounds known) {
    return footer != null ? Footers.width(footer) : known != null ? known.width(file.path()) : 0;
  }

  private static boolean isProven(String[] types) {
    for (int t = 0; t < types.length; t += 2) {
      if (types[t] == null) return false;
    }
    return true;
  }

  private static List texts(JsonNode array) {
    List texts = new ArrayList();
    for (int i = 0; i < array.size(); i++) texts.add(Bounds.item(array, i).asText());
    return texts;
  }

  private static List listed(Map lists, Object key) {
    if (!lists.containsKey(key)) lists.put(key, new ArrayList());
    return (List) lists.get(key);
  }

  private LogicalPlan replaced(LogicalPlan plan, LogicalRelation scan, Uses uses, JsonNode proofs, Map kinds, List widths,
      List others, ObjectNode outcome) throws Exception {
    ObjectNode request = JSON.createObjectNode().put("ask", "groups");
    request.set("uses", requested(uses));
    List members = new ArrayList(kinds.values());
    ArrayNode described = request.putArray("kinds");
    for (Iterator i = kinds.entrySet().iterator(); i.hasNext(); ) {
      Map.Entry kind = (Map.Entry) i.next();
      ArrayNode leaves = described.addObject().put("bytes", Decision.bytes((List) kind.getValue())).putArray("leaves");
      List types = (List) kind.getKey();
      for (int t = 0; t < types.size(); t += 2) {
        leaves.addObject().put("type", (String) types.get(t)).put("room", (String) types.get(t + 1));
      }
    }
    JsonNode reply = ask(request).get("groups");

    List groups = new ArrayList();
    int read = 0;
    for (int g = 0; g < reply.size(); g++) {
      JsonNode group = Bounds.item(reply, g);
      int kind = group.get("kind").asInt();
      List files = (List) members.set(kind, new ArrayList());
      JsonNode types = Bounds.item(request.get("kinds"), kind).get("leaves");
      groups.add(new TypedPlan.Group(files, ((Integer) widths.get(kind)).intValue(), types, group.get("casts")));
      read += files.size();
    }
    for (int m = 0; m < members.size(); m++) others.addAll((List) members.get(m));
    if (!others.isEmpty()) groups.add(new TypedPlan.Group(others, 0, null, null));

    if (groups.size() > 1 && !Scans.isCommand(index(scan)) && uses.dependsOnPartitions()) {
      outcome.putArray("reasons").add("the query's rows depend on how they are spread over partitions");
      return plan;
    }
    Map keys = new HashMap();
    int number = 0;
    for (Iterator i = uses.paths.keySet().iterator(); i.hasNext(); number++) {
      keys.put(i.next(), texts(Bounds.item(proofs.get("keys"), number)));
    }
    TypedPlan typed = new TypedPlan(uses, keys, groups);
    LogicalPlan result = typed.plan();
    outcome.put("typed", read);
    for (int r = 0; r < typed.relations().size(); r++) {
      LogicalRelation relation = (LogicalRelation) typed.relations().get(r);
      Scans.setOutcome(relation, Scans.READING, outcome.toString());
      Scans.setOutcome(relation, Scans.SKIPPING, Scans.outcome(scan, Scans.SKIPPING));
    }
    return result;
  }

  /** The paths by name, with the number of files in which each is proven. */
  private static ArrayNode described(Uses uses, int[] proven) {
    ArrayNode paths = JSON.createArrayNode();
    for (Iterator i = uses.paths.values().iterator(); i.hasNext(); ) {
      Uses.Use use = (Uses.Use) i.next();
      paths.addObject().put("name", Uses.name(use.variant)).put("path", use.path).put("files", proven[use.number]);
    }
    return paths;
  }

  private static ArrayNode requested(Uses uses) {
    ArrayNode requested = JSON.createArrayNode();
    for (Iterator i = uses.uses.values().iterator(); i.hasNext(); ) {
      Uses.Use use = (Uses.Use) i.next();
      if (use.path != null) requested.addObject().put("path", use.number).put("type", use.type.catalogString());
    }
    return requested;
  }

  private JsonNode proofs(Uses uses, Bounds log, DeltaParquetFileFormat format) throws Exception {
    ObjectNode request = JSON.createObjectNode().put("ask", "proofs");
    request.set("columns", JSON.valueToTree(log.columns()));
    request.set("uses", requested(uses));
    ArrayNode paths = request.putArray("paths");
    for (Iterator i = uses.paths.values().iterator(); i.hasNext(); ) path(paths, (Uses.Use) i.next(), format);
    return ask(request);
  }

  private static ObjectNode path(ArrayNode paths, Uses.Use use, DeltaParquetFileFormat format) {
    List fields = Uses.fields(use.variant, format.referenceSchema());
    ObjectNode path = paths.addObject().put("path", use.path).put("name", Uses.name(use.variant));
    ArrayNode column = path.putArray("column");
    for (int f = 0; f < fields.size(); f++) column.add(DeltaColumnMapping$.MODULE$.getPhysicalName((StructField) fields.get(f)));
    return path;
  }

  private JsonNode ask(ObjectNode request) throws Exception {
    return JSON.readTree(Question.ask(decide, request.toString()));
  }

  /** The plan as it is; `explain` shows the reason. */
  private static LogicalPlan unchanged(LogicalPlan plan, LogicalRelation scan, ObjectNode outcome, String reason) {
    return unchanged(plan, scan, outcome, JSON.createArrayNode().add(reason));
  }

  private static LogicalPlan unchanged(LogicalPlan plan, LogicalRelation scan, ObjectNode outcome, JsonNode reasons) {
    outcome.set("reasons", reasons);
    Scans.setOutcome(scan, Scans.READING, outcome.toString());
    return plan;
  }
}
