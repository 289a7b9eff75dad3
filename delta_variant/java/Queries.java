package delta_variant;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.concurrent.TimeoutException;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.files.TahoeFileIndex;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.util.QueryExecutionListener;
import scala.collection.Iterator;

/**
 * The queries over Delta tables with VARIANT columns that a session has run: the last MOST different ones, as analyzed plans,
 * which `VariantTable.advise` plans again. Commands and streams are not among them, since to plan a command may run it, nor is
 * what has many rows in its plan. Janino compiles this file: no generics, no lambdas.
 */
public class Queries implements QueryExecutionListener {
  private static final int MOST = 50;
  private static final int MAX_LOCAL_ROWS = 1000;

  private final LinkedHashMap plans = new LinkedHashMap(16, 0.75f, true);  // canonical plan -> plan, the last used one at the end

  /** Starts to listen to a session. */
  public Queries(SparkSession session) {
    session.listenerManager().register(this);
  }

  /** Ends it. */
  public void end(SparkSession session) {
    session.listenerManager().unregister(this);
  }

  public void onSuccess(String name, QueryExecution execution, long nanoseconds) {
    LogicalPlan plan = execution.analyzed();
    if (isOther(plan) || !readsVariants(plan)) return;
    Object canonical = plan.canonicalized();
    synchronized (plans) {
      plans.put(canonical, plan);
      if (plans.size() > MOST) plans.remove(plans.keySet().iterator().next());
    }
  }

  public void onFailure(String name, QueryExecution execution, Exception failure) {}

  /** The plans of the queries that have ended. Spark tells of them in a thread of its own, for which this waits a while. */
  public List plans(SparkSession session) {
    try {
      session.sparkContext().listenerBus().waitUntilEmpty(2000);
    } catch (TimeoutException busy) {
      // the last queries may be missing
    }
    synchronized (plans) {
      return new ArrayList(plans.values());
    }
  }

  private static boolean isOther(LogicalPlan plan) {
    if (plan instanceof Command || plan.isStreaming()) return true;
    if (plan instanceof LocalRelation && ((LocalRelation) plan).data().size() > MAX_LOCAL_ROWS) return true;
    for (Iterator i = plan.children().iterator(); i.hasNext(); ) {
      if (isOther((LogicalPlan) i.next())) return true;
    }
    return false;
  }

  private static boolean readsVariants(LogicalPlan plan) {
    if (plan instanceof LogicalRelation && ((LogicalRelation) plan).relation() instanceof HadoopFsRelation
        && ((HadoopFsRelation) ((LogicalRelation) plan).relation()).location() instanceof TahoeFileIndex) {
      for (Iterator i = plan.output().iterator(); i.hasNext(); ) {
        if (Scans.hasVariant(((Attribute) i.next()).dataType())) return true;
      }
    }
    for (Iterator i = plan.children().iterator(); i.hasNext(); ) {
      if (readsVariants((LogicalPlan) i.next())) return true;
    }
    for (Iterator i = plan.subqueries().iterator(); i.hasNext(); ) {
      if (readsVariants((LogicalPlan) i.next())) return true;
    }
    return false;
  }
}
