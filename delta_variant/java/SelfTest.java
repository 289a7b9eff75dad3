package delta_variant;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.variant.VariantGet;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.DummySnapshot;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.actions.Action$;
import org.apache.spark.sql.delta.actions.Metadata;
import org.apache.spark.sql.delta.actions.Protocol;
import org.apache.spark.sql.delta.stats.DataSize;
import org.apache.spark.sql.delta.stats.DeltaDataSkippingType;
import org.apache.spark.sql.delta.stats.DeltaScan;
import org.apache.spark.sql.delta.stats.PreparedDeltaFileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation$;
import org.apache.spark.sql.execution.datasources.PushVariantIntoScan$;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.types.variant.Variant;
import org.apache.spark.types.variant.VariantBuilder;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.unsafe.types.VariantVal;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * Checks that the rule works in a session: plans a query on a table of two files that exist only here, in both forms in which
 * a plan can hold a path. No job runs. Janino compiles this file: no generics, no lambdas.
 */
public class SelfTest {
  private static final String PROTOCOL = "{\"protocol\":{\"minReaderVersion\":3,\"minWriterVersion\":7,\"readerFeatures\":"
      + "[\"variantType\",\"variantShredding\"],\"writerFeatures\":[\"variantType\",\"variantShredding\"]}}";
  private static final String METADATA = "{\"metaData\":{\"id\":\"self-test\",\"format\":{\"provider\":\"parquet\",\"options\":{}},"
      + "\"schemaString\":\"{\\\"type\\\":\\\"struct\\\",\\\"fields\\\":[{\\\"name\\\":\\\"v\\\",\\\"type\\\":\\\"variant\\\","
      + "\\\"nullable\\\":true,\\\"metadata\\\":{}}]}\",\"partitionColumns\":[],\"configuration\":{}}}";
  private static final int FILES = 2;

  /** How many of the two files the query opens in each form. One of the files can match. Throws what the rule throws. */
  public int[] files(SkipFiles rule, SparkSession session) throws Exception {
    Path path = new Path("file:" + System.getProperty("java.io.tmpdir"), "delta_variant-self-test");
    DeltaLog log = DeltaLog.forTable(session, path);
    Metadata metadata = (Metadata) Action$.MODULE$.fromJson(METADATA);
    Protocol protocol = (Protocol) Action$.MODULE$.fromJson(PROTOCOL);
    Snapshot snapshot = new DummySnapshot(log.logPath(), log, metadata, Option.empty(), Option.apply(protocol));
    DeltaScan scan = scan(snapshot);
    PreparedDeltaFileIndex index = new PreparedDeltaFileIndex(session, log, path, Option.empty(), scan, Option.empty());
    HadoopFsRelation relation = new HadoopFsRelation(index, new StructType(), metadata.schema(), Option.empty(),
        log.fileFormat(protocol, metadata), scala.collection.immutable.Map$.MODULE$.empty(), session);
    LogicalPlan query = query(LogicalRelation$.MODULE$.apply(relation, false));
    LogicalPlan pushed = (LogicalPlan) PushVariantIntoScan$.MODULE$.apply(query);
    InternalRow[] rows = rows(rule.log(snapshot));
    return new int[] {opened(rule.visit(query, scan, rows)), opened(rule.visit(pushed, scan, rows))};
  }

  private static int opened(LogicalPlan plan) {
    LogicalRelation read = (LogicalRelation) plan.collectLeaves().apply(0);
    return ((HadoopFsRelation) read.relation()).location().inputFiles().length;
  }

  /** WHERE variant_get(v, '$.a', 'int') = 1. */
  private static LogicalPlan query(LogicalRelation table) {
    Expression path = Literal$.MODULE$.apply("$.a");
    Expression variant = (Expression) table.output().apply(0);
    Expression value = new VariantGet(variant, path, DataTypes.IntegerType, true, Option.apply("UTC"));
    Expression condition = new EqualTo(value, Literal$.MODULE$.apply(Integer.valueOf(1)));
    return new Project(Bounds.seq(new ArrayList()), new Filter(condition, table));
  }

  private static DeltaScan scan(Snapshot snapshot) {
    List files = new ArrayList();
    for (int n = 1; n <= FILES; n++) {
      files.add(Action$.MODULE$.fromJson("{\"add\":{\"path\":\"" + n + "\",\"partitionValues\":{},\"size\":1,"
          + "\"modificationTime\":1,\"dataChange\":true}}"));
    }
    Option two = Option.apply(Long.valueOf(FILES));
    DataSize size = new DataSize(two, Option.empty(), two, Option.empty());
    ExpressionSet none = ExpressionSet$.MODULE$.apply();
    return new DeltaScan(snapshot.version(), Bounds.seq(files), size, size, size, snapshot, none, none, none,
        scala.collection.immutable.Set$.MODULE$.empty(), none, 0L, DeltaDataSkippingType.dataSkippingOnlyV1());
  }

  /** Rows of the log: at the path `a`, file 1 has the value 1 and file 2 the value 2. */
  private static InternalRow[] rows(Bounds log) throws java.io.IOException {
    StructType bounds = new StructType().add("v", DataTypes.VariantType);
    StructType stats = new StructType().add("minValues", bounds).add("maxValues", bounds);
    List files = new ArrayList();
    files.add(Bounds.attribute("path", DataTypes.StringType));
    files.add(Bounds.attribute("tags", DataTypes.createMapType(DataTypes.StringType, DataTypes.StringType)));
    files.add(Bounds.attribute("stats", stats));
    Seq output = Bounds.seq(files);
    Seq columns = log.row(output, Jobs.hash(files.subList(0, 1)), true);
    Seq bound = BindReferences$.MODULE$.bindReferences(columns, new package$AttributeSeq(output));
    InternalRow[] rows = new InternalRow[FILES];
    for (int n = 1; n <= FILES; n++) {
      Variant variant = VariantBuilder.parseJson("{\"$['a']\":" + n + "}", false);
      InternalRow both = row(new Object[] {new VariantVal(variant.getValue(), variant.getMetadata())});
      InternalRow file = row(new Object[] {UTF8String.fromString(String.valueOf(n)), null, row(new Object[] {both, both})});
      rows[n - 1] = InterpretedUnsafeProjection.createProjection(bound).apply(file);
    }
    return rows;
  }

  private static InternalRow row(Object[] values) {
    return new GenericInternalRow(values);
  }
}
