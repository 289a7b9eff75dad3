package delta_variant;

import com.google.common.cache.Cache;
import com.google.common.cache.CacheBuilder;
import com.google.common.cache.Weigher;
import com.google.common.collect.Interner;
import com.google.common.collect.Interners;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.column.statistics.Statistics;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.parquet.hadoop.metadata.FileMetaData;
import org.apache.parquet.hadoop.metadata.ParquetMetadata;
import org.apache.parquet.hadoop.util.HadoopInputFile;
import org.apache.parquet.schema.GroupType;
import org.apache.parquet.schema.LogicalTypeAnnotation;
import org.apache.parquet.schema.PrimitiveType;
import org.apache.parquet.schema.Type;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.files.TahoeFileIndex;

/**
 * Proofs from Parquet footers: the types of typed columns that hold every value of their path. A path is proven if its
 * `value`, and each `value` above it, holds at most JSON nulls in every row group. In files of Spark and of this package
 * those above may hold anything (VariantShredding, "Objects").
 *
 * Footers are read on the driver, several at a time, and are cached until an hour after their last use, since the files of a
 * table never change. Janino compiles this file: no generics, no lambdas.
 */
public class Footers {
  private static final int AT_ONCE = 16;
  private static final int MAX_FILES = 1000;  // new footers that one query reads; the next query reads the next ones
  private static final long MAX_SECONDS = 60;  // that a query waits for footers
  private static final int MAX_LEAVES = 400000;  // in the cache
  private static final Cache FILES = CacheBuilder.newBuilder().maximumWeight(MAX_LEAVES).weigher(new Weight())
      .expireAfterAccess(1, TimeUnit.HOURS).build();  // table, and name, size and time of a file -> Known
  private static final Interner SHAPES = Interners.newWeakInterner();  // most files of a table have the same leaves
  private static final ThreadPoolExecutor THREADS = threads();
  private static final String WRITER = "org.apache.spark.version";  // a key of files that Spark or this package wrote
  private static final String REBASED = "org.apache.spark.legacyDateTime";
  private static final String CLOSED = "{}";  // an object with typed fields only, or a JSON null
  private static final String OPEN = "";  // nothing is proven: values of any type
  private static final List FIELDS = Arrays.asList(new Object[] {"metadata", "value", "typed_value"});

  /**
   * By file, what its footer says of paths, for `type` and `width`. Null for files of fewer than `minBytes` bytes, and for
   * those whose footers were not read.
   */
  public static Map[] of(TahoeFileIndex index, List files, long minBytes) throws InterruptedException {
    Map[] found = new Map[files.size()];
    Future[] pending = new Future[files.size()];
    String table = index.path() + "\n" + index.metadata().id();  // another table may take its place, with the same files' names
    Configuration configuration = null;
    int submitted = 0;
    for (int f = 0; f < found.length; f++) {
      AddFile file = (AddFile) files.get(f);
      if (file.size() < minBytes) continue;
      String key = table + "\n" + file.path() + "\n" + file.size() + "\n" + file.modificationTime();
      Known known = (Known) FILES.getIfPresent(key);
      if (known != null) found[f] = known.leaves;
      if (known != null || submitted == MAX_FILES) continue;
      if (configuration == null) configuration = index.deltaLog().newDeltaHadoopConf();
      pending[f] = THREADS.submit(new Read(key, index.absolutePath(file.path()), file, configuration));
      submitted++;
    }
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(MAX_SECONDS);
    try {
      for (int f = 0; f < found.length; f++) {
        try {
          if (pending[f] != null) found[f] = (Map) pending[f].get(Math.max(0, end - System.nanoTime()), TimeUnit.NANOSECONDS);
        } catch (ExecutionException unreadable) {
          // Spark's scan reads this file, and says why it cannot.
        } catch (TimeoutException late) {
          // Spark's scan reads this file, which is no slower than waiting.
        }
      }
    } finally {
      for (int f = 0; f < found.length; f++) {
        if (pending[f] != null) pending[f].cancel(true);
      }
    }
    return found;
  }

  /**
   * The type of a path's typed column by what a footer says (Leaves; it tells whether some rows have a JSON null instead). VOID
   * if no row has the path, and null if neither is proven.
   */
  public static String type(Map footer, List column, List keys) {
    String known = null;
    int length = keys.size();
    while (length >= 0 && known == null) known = (String) footer.get(key(column, keys.subList(0, length--)));
    if (known == null || known.equals(OPEN)) return null;
    if (length + 1 < keys.size()) return Leaves.VOID;
    return known.equals(CLOSED) ? null : known;
  }

  /** The bytes that Spark's estimates assume for a row in the typed columns of a file. */
  public static int width(Map footer) {
    int width = 0;
    for (Iterator i = footer.values().iterator(); i.hasNext(); ) {
      String type = (String) i.next();
      if (!type.equals(OPEN) && !type.equals(CLOSED)) width += Leaves.size(type);
    }
    return width;
  }

  private static List key(List column, List keys) {
    return Arrays.asList(new Object[] {column, keys});
  }

  private static class Known {
    final Map leaves;
    final int weight;

    Known(Map leaves) {
      this.leaves = (Map) SHAPES.intern(leaves);
      this.weight = this.leaves == leaves ? 1 + leaves.size() : 1;
    }
  }

  private static class Weight implements Weigher {
    public int weigh(Object key, Object known) {
      return ((Known) known).weight;
    }
  }

  private static ThreadPoolExecutor threads() {
    ThreadPoolExecutor threads = new ThreadPoolExecutor(AT_ONCE, AT_ONCE, 10, TimeUnit.SECONDS, new LinkedBlockingQueue(), new Daemons());
    threads.allowCoreThreadTimeOut(true);
    return threads;
  }

  private static class Daemons implements java.util.concurrent.ThreadFactory {
    public Thread newThread(Runnable work) {
      Thread thread = new Thread(work, "delta-variant footers");
      thread.setDaemon(true);
      return thread;
    }
  }

  private static class Read implements Callable {
    private final String key;
    private final Path path;
    private final AddFile file;
    private final Configuration configuration;

    Read(String key, Path path, AddFile file, Configuration configuration) {
      this.key = key;
      this.path = path;
      this.file = file;
      this.configuration = configuration;
    }

    public Object call() throws Exception {
      FileStatus status = new FileStatus(file.size(), false, 1, 0, file.modificationTime(), path);
      ParquetFileReader reader = ParquetFileReader.open(HadoopInputFile.fromStatus(status, configuration));
      try {
        Known known = new Known(new Footers(reader.getFooter()).leaves);
        FILES.put(key, known);
        return known.leaves;
      } finally {
        reader.close();
      }
    }
  }

  // ---- one footer -------------------------------------------------------------------------------------------------

  private final Map leaves = new HashMap();  // key of a path -> name of a type, CLOSED or OPEN
  private final Set some = new HashSet();  // paths of columns that may have a value, Lists
  private final Set others = new HashSet();  // paths of columns that may have a value other than a JSON null, Lists
  private final boolean trusted;  // Spark or this package wrote the file: no `value` has a field that is typed
  private final boolean corrected;  // and did not rebase dates and times to another calendar: Spark reads them as they are

  private Footers(ParquetMetadata footer) {
    FileMetaData file = footer.getFileMetaData();
    Map kept = file.getKeyValueMetaData();
    this.trusted = kept.containsKey(WRITER);
    this.corrected = trusted && !kept.containsKey(REBASED);
    for (int b = 0; b < footer.getBlocks().size(); b++) {
      List columns = ((BlockMetaData) footer.getBlocks().get(b)).getColumns();
      for (int c = 0; c < columns.size(); c++) {
        ColumnChunkMetaData column = (ColumnChunkMetaData) columns.get(c);
        Statistics statistics = column.getStatistics();
        List path = Arrays.asList(column.getPath().toArray());
        boolean nulls = statistics != null && statistics.isNumNullsSet() && statistics.getNumNulls() == column.getValueCount();
        if (!nulls) some.add(path);
        if (!nulls && !(isJsonNull(statistics, true) && isJsonNull(statistics, false))) others.add(path);
      }
    }
    columns(file.getSchema(), new ArrayList());
  }

  /** Whether a bound is the one byte that encodes a JSON null (VariantEncoding, "Encoding types"). */
  private static boolean isJsonNull(Statistics statistics, boolean least) {
    if (statistics == null || !statistics.hasNonNullValue()) return false;
    byte[] bound = least ? statistics.getMinBytes() : statistics.getMaxBytes();
    return bound.length == 1 && bound[0] == 0;
  }

  private static List with(List path, String name) {
    List longer = new ArrayList(path);
    longer.add(name);
    return longer;
  }

  /** Adds the leaves of the VARIANT columns in a schema or a struct. */
  private void columns(GroupType struct, List path) {
    for (int f = 0; f < struct.getFieldCount(); f++) {
      Type column = struct.getType(f);
      if (column.isPrimitive() || column.isRepetition(Type.Repetition.REPEATED)) continue;
      GroupType group = column.asGroupType();
      List here = with(path, column.getName());
      if (group.containsField("metadata") && group.containsField("typed_value")) {
        leaves(group, here, here, new ArrayList());
      } else if (group.getLogicalTypeAnnotation() == null) {
        columns(group, here);
      }
    }
  }

  /** Adds the leaves of a group with `value` and `typed_value`. */
  private void leaves(GroupType group, List path, List column, List keys) {
    leaves.put(key(column, keys), OPEN);
    Type typed = group.containsField("typed_value") ? group.getType("typed_value") : null;
    for (int f = 0; f < group.getFieldCount(); f++) {
      if (!FIELDS.contains(group.getFieldName(f))) return;
    }
    if (typed == null || typed.isRepetition(Type.Repetition.REPEATED)) return;
    boolean hasResidual = group.containsField("value") && some.contains(with(path, "value"));
    boolean closed = !hasResidual || !others.contains(with(path, "value"));
    if (typed.isPrimitive()) {
      String type = type(typed.asPrimitiveType());
      if (type != null && closed) leaves.put(key(column, keys), hasResidual ? Leaves.withJsonNulls(type) : type);
      return;
    }
    // A list; or an object of another writer, whose `value` may hold typed fields too.
    if (typed.getLogicalTypeAnnotation() != null || !closed && !trusted) return;
    GroupType object = typed.asGroupType();
    Set names = new HashSet();
    for (int f = 0; f < object.getFieldCount(); f++) names.add(object.getFieldName(f).toLowerCase(Locale.ROOT));
    if (names.size() < object.getFieldCount()) return;  // Spark's reader does not distinguish names by case
    if (closed) leaves.put(key(column, keys), CLOSED);
    for (int f = 0; f < object.getFieldCount(); f++) {
      Type field = object.getType(f);
      List deeper = with(keys, field.getName());
      if (field.isPrimitive() || field.isRepetition(Type.Repetition.REPEATED)) leaves.put(key(column, deeper), OPEN);
      else leaves(field.asGroupType(), with(with(path, "typed_value"), field.getName()), column, deeper);
    }
  }

  /** The name of a leaf's type (Leaves); null for types that Spark would read or filter wrongly. */
  private String type(PrimitiveType leaf) {
    LogicalTypeAnnotation logical = leaf.getLogicalTypeAnnotation();
    String physical = leaf.getPrimitiveTypeName().name();
    if (logical == null) {
      switch (physical) {
        case "BOOLEAN": return "boolean";
        case "INT32": return "int";
        case "INT64": return "bigint";
        // FLOAT and DOUBLE: other writers' statistics and dictionaries lose NaN and zeros to Spark's filters (protocol/README.md, F5).
        default: return null;
      }
    }
    if (logical instanceof LogicalTypeAnnotation.StringLogicalTypeAnnotation) return "string";
    if (logical instanceof LogicalTypeAnnotation.DateLogicalTypeAnnotation) return corrected ? "date" : null;
    if (logical instanceof LogicalTypeAnnotation.IntLogicalTypeAnnotation) {
      LogicalTypeAnnotation.IntLogicalTypeAnnotation integer = (LogicalTypeAnnotation.IntLogicalTypeAnnotation) logical;
      return integer.isSigned() ? Leaves.integer(integer.getBitWidth()) : null;
    }
    if (logical instanceof LogicalTypeAnnotation.TimestampLogicalTypeAnnotation) {
      LogicalTypeAnnotation.TimestampLogicalTypeAnnotation time = (LogicalTypeAnnotation.TimestampLogicalTypeAnnotation) logical;
      if (time.getUnit() != LogicalTypeAnnotation.TimeUnit.MICROS) return null;
      return time.isAdjustedToUTC() ? corrected ? "timestamp" : null : "timestamp_ntz";
    }
    if (logical instanceof LogicalTypeAnnotation.DecimalLogicalTypeAnnotation) {
      int scale = ((LogicalTypeAnnotation.DecimalLogicalTypeAnnotation) logical).getScale();
      return Leaves.decimal(physical.equals("INT32") ? 0 : physical.equals("INT64") ? 1 : 2, scale);
    }
    return null;
  }
}
