package delta_variant;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.OptimisticTransaction;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.actions.AddCDCFile;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.commands.DeleteCommand;
import org.apache.spark.sql.execution.datasources.LogicalRelation$;
import org.apache.spark.sql.functions;
import scala.Function0;
import scala.Option;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * What a reload replaces in a transaction: rows by the values of a column, which is Delta's DELETE, or whole data files. Janino
 * compiles this file: no generics, no lambdas.
 */
public class Replace {
  private static final int SHOWN = 3;

  /** Begins the predicate in the CommitInfo of a commit that replaces whole data files; `Loads` knows it by that. */
  public static final String WHOLE = "_metadata.file_path IN (";

  private final SparkSession spark;
  private final OptimisticTransaction transaction;

  public Replace(SparkSession spark, OptimisticTransaction transaction) {
    this.spark = spark;
    this.transaction = transaction;
  }

  private static Seq seq(List values) {
    return scala.jdk.javaapi.CollectionConverters.asScala(values).toIndexedSeq();
  }

  /** `column IN (values)`, for texts. */
  public static Expression among(String column, List values) {
    List literals = new ArrayList();
    for (int v = 0; v < values.size(); v++) literals.add(Literal$.MODULE$.apply(values.get(v)));
    return new In(attribute(column), seq(literals));
  }

  /** The predicate for the CommitInfo, with the first texts only: there may be very many. column: null for paths of data files. */
  public static String shown(String column, List values) {
    List first = values.subList(0, Math.min(SHOWN, values.size()));
    String text = column == null ? WHOLE + "'" + String.join("', '", first) + "')" : among(column, first).sql();
    return values.size() > SHOWN ? text + " and " + (values.size() - SHOWN) + " more" : text;
  }

  private static Expression attribute(String column) {
    List parts = new ArrayList();
    parts.add(column);
    return new UnresolvedAttribute(seq(parts));
  }

  private LogicalPlan relation() {
    return LogicalRelation$.MODULE$.apply(transaction.deltaLog().createRelation(
        seq(new ArrayList()), Option.apply(transaction.snapshot()), transaction.catalogTable(), false), false);
  }

  /**
   * The actions of a DELETE of the rows for which a condition is true, by the steps of WriteIntoDelta.removeFiles. Rows of the
   * change data feed are left out: the new files have none, and a commit has such rows for all of its changes or for none
   * (PROTOCOL.md, "Add CDC File").
   */
  public List rows(final Expression condition) {
    final List actions = new ArrayList();
    final Function0 delete = new scala.runtime.AbstractFunction0() {
      public Object apply() {
        LogicalPlan plan = new DeleteFromTable(relation(), condition);
        LogicalPlan command = (LogicalPlan) spark.sessionState().analyzer().execute(plan);
        spark.sessionState().analyzer().checkAnalysis(command);
        Tuple2 done = ((DeleteCommand) command).performDelete(spark, transaction.deltaLog(), transaction);
        for (Iterator i = ((Seq) done._1()).iterator(); i.hasNext(); ) {
          Object action = i.next();
          if (!(action instanceof AddCDCFile)) actions.add(action);
        }
        return null;
      }
    };
    OptimisticTransaction.withActive(transaction, false, delete);
    return actions;
  }

  /** The rows of the files that may have one of these values in a column, or null. */
  public Dataset candidates(String column, List values) {
    Expression condition = new Or(among(column, values), new IsNull(attribute(column)));
    Filter found = (Filter) spark.sessionState().analyzer().execute(new Filter(condition, relation()));
    List conditions = new ArrayList();
    conditions.add(found.condition());
    return read(transaction.filterFiles(seq(conditions), false));
  }

  private Dataset read(Seq files) {
    return (Dataset) transaction.deltaLog().createDataFrame(transaction.snapshot(), files, false, Option.empty());
  }

  /** The rows of these data files; null if one is gone, or lost rows. */
  public Dataset open(List paths) {
    List files = files(paths);
    return files == null ? null : read(seq(files));
  }

  /** The Add actions of these data files, which the transaction then has read; null if one is gone, or lost rows. */
  public List files(List paths) {
    Snapshot snapshot = transaction.snapshot();
    Object[] found = (Object[]) snapshot.allFiles().filter(functions.col("path").isin(paths.toArray())).collect();
    List files = new ArrayList();
    for (int f = 0; f < found.length; f++) {
      if (((AddFile) found[f]).deletionVector() == null) files.add(found[f]);
    }
    if (files.size() < paths.size()) return null;
    transaction.trackFilesRead(seq(files));
    return files;
  }
}
