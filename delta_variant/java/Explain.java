package delta_variant;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.delta.spark.internal.v2.catalog.DeltaV2Table;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationRef;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.delta.commands.cdc.DeltaCDFRelationBase;
import org.apache.spark.sql.delta.files.TahoeFileIndex;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.columnar.CachedRDDBuilder;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.datasources.CatalogFileIndex;
import org.apache.spark.sql.execution.datasources.DataSource;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.PartitioningAwareFileIndex;
import org.apache.spark.sql.execution.datasources.v2.ChangelogTable;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.streaming.runtime.StreamingRelation;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * The data for `explain`: the Delta scans of a plan, with what the rules did to them (Scans), and the other leaves of the plan
 * that read a Delta table, or that have VARIANT columns. The rules leave those alone; `other` says what they are.
 *
 *     dsv2      a scan by Delta's DSv2 reader          stream   a source of a stream, whose plan is made for each batch
 *     cache     rows in Spark's cache                  static   a table beside a stream, likewise
 *     changes   a change data feed                     files    files that are not those of a Delta table
 *     rdd       a checkpoint, a batch of a stream      rows     anything else, which `by` names
 *
 * Janino compiles this file: no generics, no lambdas.
 */
public class Explain {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final ArrayNode scans = JSON.createArrayNode();
  private String inside;  // `cache` or `static`, if the plan is not one that Spark is about to run

  /** The scans of the query, planned anew under the session's current rules, as a JSON array. */
  public String explain(Dataset query) {
    LogicalPlan analyzed = query.queryExecution().analyzed();
    if (analyzed.isStreaming()) {
      inside = "static";
      return planned(analyzed);
    }
    Scans.EXPLAINING.set(Boolean.TRUE);
    try {
      return planned(Dataset.ofRows(query.sparkSession(), analyzed).queryExecution().optimizedPlan());
    } finally {
      Scans.EXPLAINING.remove();
    }
  }

  /** The scans of an optimized plan, as a JSON array. */
  public String planned(LogicalPlan plan) {
    describe(plan);
    return scans.toString();
  }

  private void describe(LogicalPlan plan) {
    if (plan.children().isEmpty()) leaf(plan);
    for (Iterator i = plan.children().iterator(); i.hasNext(); ) describe((LogicalPlan) i.next());
    for (Iterator i = plan.subqueries().iterator(); i.hasNext(); ) describe((LogicalPlan) i.next());
  }

  private void leaf(LogicalPlan plan) {
    if (plan instanceof LogicalRelation) {
      relation((LogicalRelation) plan);
    } else if (plan instanceof InMemoryRelation) {
      cached((InMemoryRelation) plan);
    } else if (plan instanceof DataSourceV2ScanRelation) {
      table(plan, ((DataSourceV2ScanRelation) plan).relation().table());
    } else if (plan instanceof DataSourceV2Relation) {
      table(plan, ((DataSourceV2Relation) plan).table());
    } else if (plan instanceof StreamingRelationV2) {
      StreamingRelationV2 stream = (StreamingRelationV2) plan;
      if (stream.table() instanceof DeltaV2Table || hasVariant(plan)) other(stream.table().name(), "stream", null);
    } else if (plan instanceof StreamingRelation) {
      DataSource source = ((StreamingRelation) plan).dataSource();
      if (((StreamingRelation) plan).sourceName().equals("delta") || hasVariant(plan)) {
        other(name(source.catalogTable(), (String) source.options().getOrElse("path", new Nothing())), "stream", null);
      }
    } else if (plan instanceof LocalRelation) {
      String logged = Scans.outcome(plan, Scans.READING);
      if (logged != null) add((ObjectNode) Scans.node(logged));
    } else if (!(plan instanceof CTERelationRef) && hasVariant(plan)) {
      other(plan.nodeName(), plan instanceof LogicalRDD ? "rdd" : "rows", plan.nodeName());
    }
  }

  private void relation(LogicalRelation scan) {
    if (scan.relation() instanceof HadoopFsRelation) {
      FileIndex files = ((HadoopFsRelation) scan.relation()).location();
      if (files instanceof TahoeFileIndex && inside == null) {
        add(Scans.describe(scan));
      } else if (files instanceof TahoeFileIndex) {
        other(name(scan.catalogTable(), ((TahoeFileIndex) files).path().toString()), inside, null);
      } else if (hasVariant(scan)) {
        Seq paths = files.rootPaths();
        String more = paths.size() > 1 ? " and others" : "";
        boolean plain = files instanceof PartitioningAwareFileIndex || files instanceof CatalogFileIndex;
        other(name(scan.catalogTable(), paths.isEmpty() ? scan.nodeName() : paths.apply(0) + more), plain ? "files" : "rows",
            files.getClass().getSimpleName());
      }
    } else if (scan.relation() instanceof DeltaCDFRelationBase) {
      String path = ((DeltaCDFRelationBase) scan.relation()).deltaLog().dataPath().toString();
      other(name(scan.catalogTable(), path), "changes", null);
    } else if (hasVariant(scan)) {
      other(name(scan.catalogTable(), scan.nodeName()), "rows", scan.relation().getClass().getSimpleName());
    }
  }

  private void table(LogicalPlan plan, Table table) {
    if (table instanceof DeltaV2Table) {
      ObjectNode node = other(table.name(), inside == null ? "dsv2" : inside, null);
      if (inside == null) node.put("version", Long.parseLong(table.version()));
    } else if (table instanceof ChangelogTable) {
      other(table.name(), "changes", null);
    } else if (hasVariant(plan) || table.getClass().getName().startsWith("org.apache.spark.sql.delta.")) {
      other(table.name(), "rows", table.getClass().getSimpleName());
    }
  }

  /** The tables that were read for the rows in the cache; the cache itself if it has VARIANT columns of no table. */
  private void cached(InMemoryRelation plan) {
    CachedRDDBuilder cache = plan.cacheBuilder();
    String outside = inside;
    int before = scans.size();
    inside = "cache";
    describe(cache.logicalPlan());
    inside = outside;
    if (scans.size() == before && hasVariant(plan)) {
      other(cache.tableName().isDefined() ? (String) cache.tableName().get() : plan.nodeName(), "cache", null);
    }
  }

  private static boolean hasVariant(LogicalPlan plan) {
    for (Iterator i = plan.output().iterator(); i.hasNext(); ) {
      if (Scans.hasVariant(((Attribute) i.next()).dataType())) return true;
    }
    return false;
  }

  /** What `getOrElse` of a Scala map gives for a missing key. */
  private static class Nothing extends scala.runtime.AbstractFunction0 {
    public Object apply() {
      return "";
    }
  }

  private static String name(Option table, String otherwise) {
    return table.isDefined() ? ((CatalogTable) table.get()).identifier().unquotedString() : otherwise;
  }

  /** Adds a scan that the rules leave alone. by: the class of Spark or of a library that reads the rows. */
  private ObjectNode other(String table, String what, String by) {
    ObjectNode node = JSON.createObjectNode().put("table", table).put("other", "cache".equals(inside) ? inside : what);
    if (by != null) node.put("by", by);
    scans.add(node);
    return node;
  }

  /** Adds a scan, unless it is there already: typed reading makes several relations of one scan. */
  private void add(ObjectNode node) {
    for (int s = 0; node.has("reading") && s < scans.size(); s++) {
      if (node.get("reading").equals(Bounds.item(scans, s).get("reading"))) return;
    }
    scans.add(node);
  }
}
