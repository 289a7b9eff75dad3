package delta_variant;

import com.fasterxml.jackson.databind.JsonNode;
import com.google.common.cache.Cache;
import com.google.common.cache.CacheBuilder;
import com.google.common.cache.Weigher;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.util.TypeUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.stats.DeltaScan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.VariantType;
import org.apache.spark.types.variant.Variant;
import org.apache.spark.types.variant.VariantUtil;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.unsafe.types.VariantVal;
import scala.collection.immutable.Seq;
import scala.math.Ordering;

/**
 * The bounds of the files of one table version, on the driver: a column of values for each bound that queries compare.
 *
 * Small tables are read as a whole: a job collects their rows (Bounds), and a value is read from its row when a predicate
 * first compares it. For the next version, one job collects a hash of each file's log entry, and another one the rows of
 * files whose hash is new. For larger tables a job reads only the bounds that the query compares: of all files, or, if Delta
 * left few of them, of those.
 *
 * Values are kept until an hour after their last use, up to KEPT_BYTES for a table and twice that for all tables. A table
 * version that could not be read is not tried again. Janino compiles this file: no generics, no lambdas.
 */
public class FileBounds {
  private static final String KEPT_FILES = "spark.delta_variant.keptFiles";  // a small table has at most this many
  private static final int KEPT_BYTES = 16 << 20;
  private static final int FEW_FILES = 20000;  // a job can be limited to the hashes of so many files
  private static final Cache TABLES = CacheBuilder.newBuilder().maximumWeight(2L * KEPT_BYTES).weigher(new Weight())
      .expireAfterAccess(1, TimeUnit.HOURS).concurrencyLevel(1).build();  // path and version -> FileBounds
  private static final Object UNREAD = new Object();  // a value that was not read from its row yet

  private final WeakReference snapshot;
  private final String table;
  private final long version;
  private final List names;  // of the VARIANT columns
  private final long total;
  private final boolean small;
  private InternalRow[] rows;  // by file, if they are kept
  private Keys contents;  // by file, the hash of what its row was decoded from
  private Keys files;  // by file, the hash of its path
  private Set scanned;  // hashes of the paths that jobs read; null for all
  private final Map columns = new HashMap();  // text of the bound -> Column
  private String failure;

  private FileBounds(Bounds log, long total, boolean small) {
    this.snapshot = new WeakReference(log.snapshot());
    this.table = log.snapshot().path().toString();
    this.version = log.snapshot().version();
    this.names = log.columns();
    this.total = total;
    this.small = small;
  }

  /** The bounds of a scan's files. If a job fails, its exception is thrown, and later calls return an object with `failure`. */
  public static FileBounds of(Bounds log, DeltaScan scan) {
    scala.Option counted = scan.total().files();
    long total = counted.isDefined() ? ((Number) counted.get()).longValue() : log.snapshot().numOfFiles();
    boolean small = total <= Integer.parseInt(SparkSession.active().conf().get(KEPT_FILES, "5000"));
    FileBounds files = new FileBounds(log, total, small);
    FileBounds found = (FileBounds) TABLES.getIfPresent(files.key());
    if (found != null && found.snapshot.get() == log.snapshot() && found.small == small) return found;
    if (!small && scan.files().size() <= Math.min(total / 2, FEW_FILES)) {
      files.scanned = new HashSet();
      for (scala.collection.Iterator i = scan.files().iterator(); i.hasNext(); ) {
        files.scanned.add(Long.valueOf(Jobs.hash(((AddFile) i.next()).path())));
      }
      return files;
    }
    try {
      if (small) files.collect(log, files.previous());
    } catch (Throwable failure) {
      files.failed(failure);
    }
    TABLES.put(files.key(), files);
    return files;
  }

  /** The bounds of files whose rows (Bounds) are given. */
  public static FileBounds of(Bounds log, InternalRow[] rows) {
    FileBounds files = new FileBounds(log, rows.length, true);
    files.rows = rows;
    files.files = new Keys(rows, 0);
    return files;
  }

  private String key() {
    return table + "\n" + version;
  }

  /** Why the bounds could not be read; null if they could. */
  public String failure() {
    return failure;
  }

  public boolean small() {
    return small;
  }

  /** The number of a file; -1 if the file is not known. */
  public int number(String path) {
    return files.find(Jobs.hash(path));
  }

  public int size() {
    return files.keys.length;
  }

  /** The bytes that Spark's estimates assume for a row's values at the paths with bounds of a file; 0 if that is not known. */
  public synchronized int width(String path) {
    int file = rows == null ? -1 : number(path);
    if (file < 0 || rows[file] == null) return 0;
    int width = 0;
    for (int c = 0; c < names.size(); c++) {
      VariantVal least = Bounds.least(rows[file], c);
      if (least == null) continue;
      Variant object = new Variant(least.getValue(), least.getMetadata());
      for (int i = 0; object.getType() == VariantUtil.Type.OBJECT && i < object.objectSize(); i++) {
        width += Leaves.size(Leaves.type(object.getFieldAtIndex(i).value.getValue()));
      }
    }
    return width;
  }

  private void failed(Throwable failure) {
    if (!stops(failure)) {
      this.failure = String.valueOf(failure);
      TABLES.put(key(), this);
    }
    org.apache.spark.unsafe.Platform.throwException(failure);
  }

  /** Whether the query's thread has to end after a failure: it was interrupted, its job was cancelled, or memory ran out. */
  public static boolean stops(Throwable failure) {
    if (Thread.currentThread().isInterrupted()) return true;
    for (Throwable t = failure; t != null; t = t.getCause()) {
      if (t instanceof InterruptedException || t instanceof OutOfMemoryError || t instanceof ThreadDeath
          || t instanceof java.nio.channels.ClosedByInterruptException) return true;
      if (t instanceof org.apache.spark.SparkThrowable
          && "SPARK_JOB_CANCELLED".equals(((org.apache.spark.SparkThrowable) t).getCondition())) return true;
    }
    return false;
  }

  // ---- small tables ---------------------------------------------------------------------------------------------

  /** The newest version of the same table whose rows are kept, if any. */
  private FileBounds previous() {
    FileBounds latest = null;
    for (Iterator i = TABLES.asMap().values().iterator(); i.hasNext(); ) {
      FileBounds other = (FileBounds) i.next();
      boolean same = other.rows != null && other.table.equals(table) && other.names.equals(names);
      if (same && (latest == null || latest.version < other.version)) latest = other;
    }
    return latest;
  }

  private void collect(Bounds log, FileBounds previous) {
    Jobs jobs = new Jobs(log, total);
    InternalRow[] state = jobs.state();
    long bytes = 0;
    for (int f = 0; f < state.length; f++) {
      if (!state[f].isNullAt(2)) bytes += state[f].getInt(2);
    }
    files = new Keys(state, 0);
    if (bytes > KEPT_BYTES) return;  // a job will read the bounds that a query compares
    contents = new Keys(state, 1);
    int[] known = new int[state.length];  // by file, the number of its row in the previous version; -1 if it is new
    Set unknown = new HashSet();
    for (int f = 0; f < known.length; f++) {
      known[f] = previous == null ? -1 : previous.contents.find(contents.keys[f]);
      if (known[f] < 0) unknown.add(Long.valueOf(files.keys[f]));
    }
    InternalRow[] all = new InternalRow[state.length];
    for (int f = 0; f < all.length; f++) all[f] = known[f] < 0 ? null : previous.rows[known[f]];
    if (!unknown.isEmpty()) {
      InternalRow[] read = jobs.rows(unknown.size() > all.length / 2 ? null : unknown);
      for (int r = 0; r < read.length; r++) {
        int file = files.find(read[r].getLong(0));
        if (file >= 0) all[file] = read[r];
      }
    }
    rows = all;
    if (previous != null) keep(previous, known);
  }

  /** Takes over the columns of the previous version, with the values that were read. */
  private void keep(FileBounds previous, int[] known) {
    synchronized (previous) {
      for (Iterator i = previous.columns.entrySet().iterator(); i.hasNext(); ) {
        Map.Entry entry = (Map.Entry) i.next();
        Column old = (Column) entry.getValue();
        Column column = new Column(old.bound, rows.length);
        for (int f = 0; f < known.length; f++) {
          if (known[f] >= 0) column.values[f] = old.values[known[f]];
        }
        columns.put(entry.getKey(), column);
      }
    }
  }

  // ---- columns --------------------------------------------------------------------------------------------------

  /**
   * The columns of these bounds. Read their values only while holding the lock of this object. If the job fails, its exception
   * is thrown, and `of` will return an object with `failure`.
   */
  public Tree.Values[] read(Bounds log, JsonNode bounds, Map types, String zone) {
    List all = new ArrayList();
    List missing = new ArrayList();
    for (int b = 0; b < bounds.size(); b++) {
      Jobs.Bound bound = new Jobs.Bound(Bounds.item(bounds, b), types, zone);
      all.add(bound);
      synchronized (this) {
        if (!columns.containsKey(bound.text)) missing.add(bound);
      }
    }
    InternalRow[] read = null;
    try {
      if (rows == null && (!missing.isEmpty() || files == null)) read = new Jobs(log, total).values(missing, scanned);
    } catch (Throwable failure) {
      failed(failure);
    }
    return publish(all, missing, read);
  }

  private synchronized Tree.Values[] publish(List all, List missing, InternalRow[] read) {
    if (files == null) files = new Keys(read, 0);
    for (int m = 0; m < missing.size(); m++) {
      Column column = new Column((Jobs.Bound) missing.get(m), size());
      for (int r = 0; read != null && r < read.length; r++) {
        int file = files.find(read[r].getLong(0));
        Object value = read[r].isNullAt(m + 1) ? null : read[r].get(m + 1, column.type);
        if (file >= 0) column.values[file] = column.kept(value);
      }
      columns.put(column.bound.text, column);
    }
    Tree.Values[] result = new Tree.Values[all.size()];
    for (int b = 0; b < result.length; b++) result[b] = (Column) columns.get(((Jobs.Bound) all.get(b)).text);
    if (bytes() > KEPT_BYTES) columns.clear();
    return result;
  }

  private long bytes() {
    long bytes = (24L + 32L * columns.size()) * (files == null ? 0 : size());
    for (int r = 0; rows != null && r < rows.length; r++) {
      if (rows[r] != null) bytes += 64 + ((UnsafeRow) rows[r]).getSizeInBytes();
    }
    return bytes;
  }

  /** The values of one bound. Expressions keep state while they are evaluated, so only one thread at a time may read values. */
  private class Column extends Tree.Values {
    final Jobs.Bound bound;
    final Object[] values;
    final DataType type;
    private final Expression read;
    private final Ordering order;

    Column(Jobs.Bound bound, int size) {
      this.bound = bound;
      Seq row = Bounds.attributes(names.size());
      Expression value = bound.over(row);
      this.type = value.dataType();
      this.order = type instanceof VariantType ? null : TypeUtils.getInterpretedOrdering(type);
      this.read = (Expression) BindReferences$.MODULE$.bindReference(value, new package$AttributeSeq(row), false);
      this.values = new Object[size];
      if (rows != null) java.util.Arrays.fill(values, UNREAD);
    }

    public Object get(int file) {
      Object value = values[file];
      if (value == UNREAD) {
        value = rows[file] == null ? null : kept(read.eval(rows[file]));
        values[file] = value;
      }
      return value;
    }

    /** What is kept of a value: the type of a Variant; a copy of a string, which otherwise refers to its row. */
    Object kept(Object value) {
      if (value instanceof VariantVal) return Leaves.type(((VariantVal) value).getValue());
      return value instanceof UTF8String ? ((UTF8String) value).clone() : value;
    }

    public Ordering order() {
      return order;
    }
  }

  /** An index of 64-bit keys to the numbers of their rows. A key that occurs twice is not found. */
  private static class Keys {
    final long[] keys;
    private final int[] slots;

    Keys(InternalRow[] rows, int column) {
      this.keys = new long[rows.length];
      for (int r = 0; r < rows.length; r++) keys[r] = rows[r].getLong(column);
      this.slots = new int[Integer.highestOneBit(keys.length + 1) * 4];  // a row's number + 1; negative if the key occurs twice
      for (int k = 0; k < keys.length; k++) {
        int slot = slot(keys[k]);
        slots[slot] = slots[slot] == 0 ? k + 1 : -Math.abs(slots[slot]);
      }
    }

    /** The slot of a key, or the free one where it would be. */
    private int slot(long key) {
      int slot = (int) (key ^ key >>> 32) & slots.length - 1;
      while (slots[slot] != 0 && keys[Math.abs(slots[slot]) - 1] != key) slot = slot + 1 & slots.length - 1;
      return slot;
    }

    int find(long key) {
      return Math.max(slots[slot(key)], 0) - 1;
    }
  }

  public static class Weight implements Weigher {
    public int weigh(Object key, Object files) {
      synchronized (files) {
        return (int) Math.min(((FileBounds) files).bytes() + 1, Integer.MAX_VALUE);
      }
    }
  }
}
