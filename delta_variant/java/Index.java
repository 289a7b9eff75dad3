package delta_variant;

import com.fasterxml.jackson.databind.JsonNode;
import com.google.common.cache.Cache;
import com.google.common.cache.CacheBuilder;
import com.google.common.cache.Weigher;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.lang.ref.WeakReference;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.HadoopReadOptions;
import org.apache.parquet.column.page.PageReadStore;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.example.data.simple.convert.GroupRecordConverter;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.util.HadoopInputFile;
import org.apache.parquet.io.ColumnIOFactory;
import org.apache.parquet.io.RecordReader;
import org.apache.parquet.schema.MessageType;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.actions.SetTransaction;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * The index of values of one path: filters that say that a value is not in a file (delta_variant/membership; protocol/README.md,
 * "The index of values").
 *
 * A filter counts for the table and the Add action that it was made for: the directory stays when a log is deleted, and the next
 * table in its place may have other files under the same names.
 *
 * The files of the index are listed once for a table version, and those that are new are read, when the first comparison asks.
 * They are kept until an hour after their last use, up to KEPT_BYTES for all tables. An index of more than MAX_BYTES is not
 * read. A file that cannot be read has no filters. Janino compiles this file: no generics, no lambdas.
 */
public class Index extends Tree.Members {
  private static final String DIRECTORY = "_delta_variant_index";
  private static final String APPLICATION = "delta_variant.index";  // of the transaction identifier of tables with an index
  private static final String VERSION = "delta_variant.index";  // keys in the footers of its files
  private static final String TABLE = "delta_variant.table";
  private static final String PLACE = "delta_variant.path";
  private static final String FORMAT = "2";
  private static final long MAX_BYTES = 128 << 20;
  private static final long KEPT_BYTES = 256 << 20;
  private static final int AT_ONCE = 16;
  private static final int MAX_WORDS = 1 << 24;
  private static final Map OUTDATED = new HashMap();  // what was read of a file of another table or version
  private static final Cache TABLES = CacheBuilder.newBuilder().maximumWeight(KEPT_BYTES).weigher(new Weight())
      .expireAfterAccess(1, TimeUnit.HOURS).concurrencyLevel(1).build();  // directory and id of the table -> Known

  private final Snapshot snapshot;
  private final List files;  // AddFiles
  private final FileBounds numbers;
  private final String place;
  private final int scale;  // of the numbers that are asked for; -1 for strings
  private final Map hashes = new IdentityHashMap();  // Object[] -> long[]
  private Filter[] filters;  // by file; null before they are read

  /** member: a path as delta_variant/skipping/bounds.py, Projection, describes it. */
  public Index(Snapshot snapshot, List files, FileBounds numbers, JsonNode member) {
    this.snapshot = snapshot;
    this.files = files;
    this.numbers = numbers;
    this.place = member.get("place").asText();
    this.scale = member.get("scale").asInt();
  }

  /** Whether a table may have an index. If only a job over the log could tell, it may: to list a directory takes less. */
  public static boolean announced(Snapshot snapshot) {
    Option known = snapshot.setTransactionsIfKnown();
    if (known.isEmpty()) return true;
    for (Iterator i = ((Seq) known.get()).iterator(); i.hasNext(); ) {
      if (((SetTransaction) i.next()).appId().equals(APPLICATION)) return true;
    }
    return false;
  }

  public boolean some() {
    Filter[] filters = filters();
    for (int f = 0; f < filters.length; f++) {
      if (filters[f] != null) return true;
    }
    return false;
  }

  public int of(int file, Object[] values) {
    Filter filter = filters()[file];
    if (filter == null) return Tree.NULL;
    long[] hashes = (long[]) this.hashes.get(values);
    if (hashes == null) {
      hashes = new long[values.length];
      for (int v = 0; v < hashes.length; v++) hashes[v] = hash(values[v]);
      this.hashes.put(values, hashes);
    }
    for (int h = 0; h < hashes.length; h++) {
      if (filter.contains(hashes[h])) return Tree.TRUE;
    }
    return Tree.FALSE;
  }

  /** Why the index is not used; null if it is. */
  public String reason() {
    return filters == null ? null : known.reason;
  }

  private Known known;

  /** The filters that answer what is asked, by the number of their file. */
  private Filter[] filters() {
    if (filters != null) return filters;
    try {
      known = Known.of(snapshot, place);
    } catch (Exception failure) {
      Platform.throwException(failure);
    }
    Filter[] found = new Filter[numbers.size()];
    for (int f = 0; f < files.size() && !known.filters.isEmpty(); f++) {
      AddFile file = (AddFile) files.get(f);
      Filter filter = (Filter) known.filters.get(file.path());
      boolean same = filter != null && filter.size == file.size() && filter.time == file.modificationTime();
      int number = same ? numbers.number(file.path()) : -1;
      if (number >= 0 && (scale < 0 ? filter.scale < 0 : filter.scale >= 0 && filter.scale <= scale)) found[number] = filter;
    }
    filters = found;
    return filters;
  }

  // ---- hashes ---------------------------------------------------------------------------------------------------

  /** The hash of a string, an integer or a decimal as Catalyst holds it. */
  public static long hash(Object value) {
    if (value instanceof UTF8String) return XXH64.hashUTF8String((UTF8String) value, 0);
    BigDecimal number = value instanceof Decimal ? ((Decimal) value).toJavaBigDecimal() : BigDecimal.valueOf(((Number) value).longValue());
    number = number.stripTrailingZeros();
    if (number.scale() < 0) number = number.setScale(0);
    byte[] digits = number.unscaledValue().toByteArray();  // big-endian
    byte[] bytes = new byte[17];
    Arrays.fill(bytes, 0, 16, (byte) (number.signum() < 0 ? -1 : 0));
    for (int d = 0; d < digits.length; d++) bytes[d] = digits[digits.length - 1 - d];
    bytes[16] = (byte) number.scale();
    return XXH64.hashUnsafeBytes(bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length, 0);
  }

  /** A ribbon filter (delta_variant/kernels/filters.py). */
  public static class Filter {
    final long size;  // of the data file
    final long time;  // its modification time
    final int scale;  // the decimal places of its numbers; -1 for strings
    private final int words;
    private final long[] columns;

    public Filter(long size, long time, int scale, int words, byte[] bytes) {
      this.size = size;
      this.time = time;
      this.scale = scale;
      this.words = words;
      this.columns = new long[bytes.length / 8];
      ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer().get(columns);
    }

    public boolean contains(long hash) {
      long rows = 64L * words - 63;
      long start = (hash >>> 32) * rows + ((hash & 0xFFFFFFFFL) * rows >>> 32) >>> 32;
      long equation = (hash ^ hash >>> 30) * 0xBF58476D1CE4E5B9L;
      equation = (equation ^ equation >>> 27) * 0x94D049BB133111EBL;
      equation = equation ^ equation >>> 31 | 1;
      int shift = (int) (start & 63);
      int next = shift == 0 ? 0 : 1;
      for (int word = (int) (start >>> 6); word + next < columns.length; word += words) {
        long bits = columns[word] >>> shift;
        if (shift != 0) bits |= columns[word + 1] << 64 - shift;
        if ((Long.bitCount(bits & equation) & 1) != 0) return false;
      }
      return true;
    }
  }

  // ---- the files of the index -----------------------------------------------------------------------------------

  /** What the index has of one path, for one version of a table. */
  private static class Known {
    final WeakReference snapshot;
    final Map sidecars = new HashMap();  // name, size and time of a file -> Map of its filters, by data file; empty if it is unreadable
    final Map filters = new HashMap();  // data file -> Filter
    long bytes;
    String reason;

    Known(Snapshot snapshot) {
      this.snapshot = new WeakReference(snapshot);
    }

    static Known of(Snapshot snapshot, String place) throws Exception {
      String name = String.format("%016x", new Object[] {Long.valueOf(XXH64.hashUTF8String(UTF8String.fromString(place), 0))});
      Path directory = new Path(new Path(snapshot.deltaLog().dataPath(), DIRECTORY), name);
      String table = snapshot.metadata().id();
      String key = directory + "\n" + table;
      Known before = (Known) TABLES.getIfPresent(key);
      if (before != null && before.snapshot.get() == snapshot) return before;
      Known known = new Known(snapshot);
      known.read(directory, snapshot.deltaLog().newDeltaHadoopConf(), before, table, place);
      TABLES.put(key, known);
      return known;
    }

    private void read(Path directory, Configuration configuration, Known before, String table, String place) throws Exception {
      FileStatus[] listed;
      try {
        listed = directory.getFileSystem(configuration).listStatus(directory);
      } catch (FileNotFoundException none) {
        return;
      }
      List reads = new ArrayList();
      for (int f = 0; f < listed.length; f++) {
        String name = listed[f].getPath().getName();
        if (!listed[f].isFile() || name.startsWith(".") || !name.endsWith(".parquet")) continue;
        bytes += listed[f].getLen();
        String key = name + "\n" + listed[f].getLen() + "\n" + listed[f].getModificationTime();
        Map read = before == null ? null : (Map) before.sidecars.get(key);
        if (read == null) reads.add(new Read(key, listed[f], configuration, table, place));
        else sidecars.put(key, read);
      }
      if (bytes > MAX_BYTES) {
        reason = "the index has " + bytes + " bytes at this path, and the driver reads at most " + MAX_BYTES;
        sidecars.clear();
        bytes = 0;
        return;
      }
      if (!reads.isEmpty()) {
        ExecutorService threads = Executors.newFixedThreadPool(Math.min(AT_ONCE, reads.size()));
        try {
          List done = threads.invokeAll(reads);
          for (int r = 0; r < reads.size(); r++) sidecars.put(((Read) reads.get(r)).key, found((Future) done.get(r)));
        } finally {
          threads.shutdownNow();
        }
      }
      boolean outdated = false;
      for (java.util.Iterator i = sidecars.values().iterator(); i.hasNext(); ) {
        Map read = (Map) i.next();
        outdated |= read == OUTDATED;
        filters.putAll(read);
      }
      if (outdated && filters.isEmpty()) {
        reason = "the index has filters of another table or of an older version at this path: call analyze(bloom=…)";
      }
    }

    private static Map found(Future read) throws InterruptedException {
      try {
        return (Map) read.get();
      } catch (ExecutionException unreadable) {
        if (unreadable.getCause() instanceof Error) Platform.throwException(unreadable.getCause());
        return new HashMap();  // damaged, or of another format: its data files are kept
      }
    }
  }

  private static class Weight implements Weigher {
    public int weigh(Object key, Object known) {
      return (int) Math.min(((Known) known).bytes + 1024, Integer.MAX_VALUE);
    }
  }

  /** Reads the filters of one file. Pages have checksums, which the reader verifies. */
  private static class Read implements Callable {
    final String key;
    private final FileStatus file;
    private final Configuration configuration;
    private final String table;
    private final String place;

    Read(String key, FileStatus file, Configuration configuration, String table, String place) {
      this.key = key;
      this.file = file;
      this.configuration = configuration;
      this.table = table;
      this.place = place;
    }

    public Object call() throws Exception {
      Map found = new HashMap();
      HadoopReadOptions.Builder options = new HadoopReadOptions.Builder(configuration);
      options.usePageChecksumVerification(true);
      ParquetFileReader reader = ParquetFileReader.open(HadoopInputFile.fromStatus(file, configuration), options.build());
      try {
        Map about = reader.getFooter().getFileMetaData().getKeyValueMetaData();
        if (!FORMAT.equals(about.get(VERSION)) || !table.equals(about.get(TABLE))) return OUTDATED;
        if (!place.equals(about.get(PLACE))) return found;
        MessageType schema = reader.getFooter().getFileMetaData().getSchema();
        for (PageReadStore pages = reader.readNextRowGroup(); pages != null; pages = reader.readNextRowGroup()) {
          RecordReader rows = new ColumnIOFactory().getColumnIO(schema).getRecordReader(pages, new GroupRecordConverter(schema));
          for (long r = 0; r < pages.getRowCount(); r++) add((Group) rows.read(), found);
        }
      } finally {
        reader.close();
      }
      return found;
    }

    private static void add(Group row, Map found) throws IOException {
      if (row.getFieldRepetitionCount("filter") == 0) return;
      byte[] bytes = row.getBinary("filter", 0).getBytes();
      String kind = row.getString("kind", 0);
      int words = row.getInteger("words", 0);
      boolean isNumber = kind.equals("exact");
      if (!isNumber && !kind.equals("string") || words < 1 || words > MAX_WORDS || bytes.length % 8 != 0) {
        throw new IOException("not a filter");
      }
      int scale = isNumber ? row.getInteger("scale", 0) : -1;
      Filter filter = new Filter(row.getLong("size", 0), row.getLong("time", 0), scale, words, bytes);
      found.put(row.getString("path", 0), filter);
    }
  }
}
