/*
 * Rows in, Arrow record batches out, each as one message of Arrow's IPC format in a row of one BINARY column. The batches
 * of mapInArrow take longer, since the bytes of a batch are counted after every row, and Variants are copied once more.
 *
 * This is the body of a class. In every executor, Spark's code generator adds the head and compiles it, so executors need no
 * JAR of ours. A batch has the columns of references[0], a StructType, as pyspark.sql.pandas.types has them in Arrow.
 * references[1] is null, or a location: then a row that fails fails as in Spark's tasks that write there. The names of Spark
 * that are not qualified are those that the generator imports.
 */

/** The rows and bytes after which a batch ends; its last row may exceed the bytes. Smaller batches cost more in the task. */
private static final int MAX_ROWS = 16384;
private static final int MAX_BYTES = 8 << 20;

public Object generate(Object[] references) {
  return new Batches((org.apache.spark.sql.types.StructType) references[0], (String) references[1]);
}

private static final class Batches extends org.apache.spark.sql.execution.BufferedRowIterator {
  private final org.apache.spark.sql.types.StructType schema;
  private final String location;
  private final Column[] columns;
  private org.apache.spark.sql.catalyst.expressions.UnsafeProjection unsafe;
  private scala.collection.Iterator rows;
  // Spark's write names errors of rows TASK_WRITE_FAILED, except for the first row of a task other than the first: it asks for
  // that row beforehand. This is whether such a row is still to come.
  private boolean begins;
  private byte[] last = new byte[0];  // the last message, which is consumed before the next one is asked for

  Batches(org.apache.spark.sql.types.StructType schema, String location) {
    this.schema = schema;
    this.location = location;
    columns = columns(schema);
  }

  public void init(int partition, scala.collection.Iterator[] inputs) {
    partitionIndex = partition;
    rows = inputs[0];
    begins = partition != 0;
  }

  /** The next row; null behind the last one. */
  private InternalRow nextRow() {
    if (begins && !rows.hasNext()) return null;
    begins = false;
    try {
      return rows.hasNext() ? (InternalRow) rows.next() : null;
    } catch (Throwable failure) {
      boolean isForSpark = location == null || failure instanceof org.apache.spark.shuffle.FetchFailedException;
      Platform.throwException(isForSpark ? failure
          : org.apache.spark.sql.errors.QueryExecutionErrors$.MODULE$.taskFailedWhileWritingRowsError(location, failure));
      return null;
    }
  }

  protected void processNext() throws java.io.IOException {
    int count = 0;
    long bytes = 0;
    while (count < MAX_ROWS && bytes < MAX_BYTES) {
      InternalRow given = nextRow();
      if (given == null) break;
      UnsafeRow row = unsafe(given);
      for (int c = 0; c < columns.length; c++) columns[c].add(row, row.getBaseObject(), row.getBaseOffset(), c);
      bytes += row.getSizeInBytes();
      count++;
    }
    if (count > 0) append(new org.apache.spark.sql.catalyst.expressions.GenericInternalRow(new Object[] {message(count)}));
  }

  private UnsafeRow unsafe(InternalRow row) {
    if (row instanceof UnsafeRow) return (UnsafeRow) row;
    if (unsafe == null) unsafe = org.apache.spark.sql.catalyst.expressions.UnsafeProjection$.MODULE$.create(schema);
    return unsafe.apply(row);
  }

  private byte[] message(int count) {
    Message message = new Message();
    for (int c = 0; c < columns.length; c++) columns[c].end(message);
    last = message.bytes(count, last);
    return last;
  }
}

/** A record batch as an IPC message: the metadata of its columns, in depth-first order, then their buffers. */
private static final class Message {
  private final java.util.ArrayList nodes = new java.util.ArrayList();  // {rows, nulls} of a column
  private final java.util.ArrayList arrays = new java.util.ArrayList();
  private final java.util.ArrayList ranges = new java.util.ArrayList();  // {offset in the body, bytes} of an array
  private long size = 0;

  void node(int rows, int nulls) {
    nodes.add(new long[] {rows, nulls});
  }

  void buffer(byte[] array, long bytes) {
    arrays.add(array);
    ranges.add(new long[] {size, bytes});
    size += bytes + 7 & -8;
  }

  /**
   * The message, in an array that is up to a sixteenth longer. `last` is used again if it has the right length, because to
   * allocate megabytes is costly.
   */
  byte[] bytes(int rows, byte[] last) {
    com.google.flatbuffers.FlatBufferBuilder head = new com.google.flatbuffers.FlatBufferBuilder(1024);
    org.apache.arrow.flatbuf.RecordBatch.startNodesVector(head, nodes.size());
    for (int n = nodes.size() - 1; n >= 0; n--) {
      long[] node = (long[]) nodes.get(n);
      org.apache.arrow.flatbuf.FieldNode.createFieldNode(head, node[0], node[1]);
    }
    int allNodes = head.endVector();
    org.apache.arrow.flatbuf.RecordBatch.startBuffersVector(head, ranges.size());
    for (int r = ranges.size() - 1; r >= 0; r--) {
      long[] range = (long[]) ranges.get(r);
      org.apache.arrow.flatbuf.Buffer.createBuffer(head, range[0], range[1]);
    }
    int allBuffers = head.endVector();
    int batch = org.apache.arrow.flatbuf.RecordBatch.createRecordBatch(head, rows, allNodes, allBuffers, 0, 0);
    head.finish(org.apache.arrow.flatbuf.Message.createMessage(head, org.apache.arrow.flatbuf.MetadataVersion.V5,
        org.apache.arrow.flatbuf.MessageHeader.RecordBatch, batch, size, 0));
    byte[] metadata = head.sizedByteArray();
    int body = 8 + (metadata.length + 7 & -8);
    long step = Math.max(8, Long.highestOneBit(body + size) >> 4);
    int length = Math.toIntExact((body + size + step - 1) / step * step);
    byte[] message = last.length == length ? last : new byte[length];
    Platform.putInt(message, Platform.BYTE_ARRAY_OFFSET, -1);
    Platform.putInt(message, Platform.BYTE_ARRAY_OFFSET + 4, body - 8);
    System.arraycopy(metadata, 0, message, 8, metadata.length);
    for (int r = 0; r < ranges.size(); r++) {
      long[] range = (long[]) ranges.get(r);
      if (range[1] > 0) System.arraycopy(arrays.get(r), 0, message, body + (int) range[0], (int) range[1]);
    }
    return message;
  }
}

/** The array, or a longer one with its first `used` bytes if it has less than `wanted`. */
private static byte[] grown(byte[] array, int used, long wanted) {
  if (wanted <= array.length) return array;
  byte[] grown = new byte[(int) Math.min(Math.max(wanted, 2L * array.length), Math.max(wanted, Integer.MAX_VALUE - 15))];
  System.arraycopy(array, 0, grown, 0, used);
  return grown;
}

/** The array to use for the next batch. A very large one, which some large row needed, is not kept. */
private static byte[] kept(byte[] array) {
  return array.length > 2 * MAX_BYTES ? new byte[0] : array;
}

private static Column[] columns(org.apache.spark.sql.types.StructType struct) {
  Column[] columns = new Column[struct.length()];
  for (int c = 0; c < columns.length; c++) columns[c] = column(struct.apply(c).dataType());
  return columns;
}

private static Column column(org.apache.spark.sql.types.DataType type) {
  if (type instanceof org.apache.spark.sql.types.VariantType) return new Variant();
  if (type instanceof org.apache.spark.sql.types.StringType) return new Bytes();
  if (type instanceof org.apache.spark.sql.types.BinaryType) return new Bytes();
  if (type instanceof org.apache.spark.sql.types.BooleanType) return new Bits();
  if (type instanceof org.apache.spark.sql.types.DecimalType) {
    return new Decimal16((org.apache.spark.sql.types.DecimalType) type);
  }
  if (type instanceof org.apache.spark.sql.types.StructType) {
    return new Struct(columns((org.apache.spark.sql.types.StructType) type));
  }
  if (type instanceof org.apache.spark.sql.types.ArrayType) {
    return new List(column(((org.apache.spark.sql.types.ArrayType) type).elementType()));
  }
  if (type instanceof org.apache.spark.sql.types.MapType) {
    org.apache.spark.sql.types.MapType map = (org.apache.spark.sql.types.MapType) type;
    return new Entries(column(map.keyType()), column(map.valueType()));
  }
  if (type instanceof org.apache.spark.sql.types.UserDefinedType) {
    return column(((org.apache.spark.sql.types.UserDefinedType) type).sqlType());
  }
  if (type instanceof org.apache.spark.sql.types.NumericType || type instanceof org.apache.spark.sql.types.DatetimeType) {
    return new Fixed(type.defaultSize());
  }
  throw new IllegalArgumentException("a column of type " + type.sql() + " cannot be converted to Arrow");
}

/** A validity bitmap, or the values of a BOOLEAN column: one bit per row. */
private static final class Bitmap {
  private byte[] bits = new byte[MAX_ROWS / 8];

  void set(int row, boolean value) {
    int index = row >>> 3;
    if (index >= bits.length) bits = grown(bits, bits.length, index + 1);
    int bit = 1 << (row & 7);
    bits[index] = (byte) (value ? bits[index] | bit : bits[index] & ~bit);
  }

  void end(Message message, int rows) {
    message.buffer(bits, rows + 7 >>> 3);
    bits = kept(bits);
  }
}

/** The values of a column in a batch. */
private abstract static class Column {
  protected int rows = 0;
  private int nulls = 0;
  private final Bitmap valid = new Bitmap();

  /**
   * Adds a field of an UnsafeRow or an element of an UnsafeArrayData. base, offset: where the row or the array begins. at: the
   * index of the field or the element.
   */
  final void add(org.apache.spark.sql.catalyst.expressions.SpecializedGetters from, Object base, long offset, int at) {
    if (from.isNullAt(at)) {
      addNull();
      return;
    }
    value(from, base, offset, at);
    present();
  }

  final void addNull() {
    valid.set(rows, false);
    addDefault();
    rows++;
    nulls++;
  }

  /** Counts a row whose value was added. */
  protected final void present() {
    valid.set(rows, true);
    rows++;
  }

  /** Puts the column into the message and empties it for the next batch. */
  final void end(Message message) {
    message.node(rows, nulls);
    valid.end(message, nulls == 0 ? 0 : rows);
    values(message);
    rows = nulls = 0;
  }

  /** Adds a value that is not null. */
  protected abstract void value(
      org.apache.spark.sql.catalyst.expressions.SpecializedGetters from, Object base, long offset, int at);

  /** Adds the value that stands in the buffers for a null. */
  protected abstract void addDefault();

  /** Puts the buffers of the values, and the children, into the message. */
  protected abstract void values(Message message);
}

private static final class Bits extends Column {
  private final Bitmap bits = new Bitmap();

  protected void value(org.apache.spark.sql.catalyst.expressions.SpecializedGetters from, Object base, long offset, int at) {
    bits.set(rows, from.getBoolean(at));
  }

  protected void addDefault() {
    bits.set(rows, false);
  }

  protected void values(Message message) {
    bits.end(message, rows);
  }
}

/** Numbers, dates and times, as they are in the row. */
private static class Fixed extends Column {
  private final int width;
  protected byte[] data = new byte[0];

  Fixed(int width) {
    this.width = width;
  }

  protected void value(org.apache.spark.sql.catalyst.expressions.SpecializedGetters from, Object base, long offset, int at) {
    long target = reserve();
    if (width == 8) Platform.putLong(data, target, from.getLong(at));
    else if (width == 4) Platform.putInt(data, target, from.getInt(at));
    else if (width == 2) Platform.putShort(data, target, from.getShort(at));
    else Platform.putByte(data, target, from.getByte(at));
  }

  protected void addDefault() {
    reserve();
  }

  /** Makes room for the value of a row, and returns its offset for Platform. */
  protected final long reserve() {
    data = grown(data, rows * width, (rows + 1L) * width);
    return Platform.BYTE_ARRAY_OFFSET + (long) rows * width;
  }

  protected void values(Message message) {
    message.buffer(data, (long) rows * width);
    data = kept(data);
  }
}

/** Decimals, as 16 bytes. */
private static final class Decimal16 extends Fixed {
  private final boolean small;

  Decimal16(org.apache.spark.sql.types.DecimalType type) {
    super(16);
    small = type.precision() <= 18;
  }

  protected void value(org.apache.spark.sql.catalyst.expressions.SpecializedGetters from, Object base, long offset, int at) {
    long target = reserve();
    if (small) {
      long value = from.getLong(at);
      Platform.putLong(data, target, value);
      Platform.putLong(data, target + 8, value >> 63);
    } else {
      byte[] value = from.getBinary(at);  // the most significant byte first
      for (int b = 0; b < 16; b++) {
        Platform.putByte(data, target + b, b < value.length ? value[value.length - 1 - b] : (byte) (value[0] >> 7));
      }
    }
  }
}

/** Values of any length, one after the other, and the offsets at which they end. */
private abstract static class Sized extends Column {
  private byte[] ends = new byte[4];

  /** The length of all values so far. */
  protected abstract int length();

  protected abstract void contents(Message message);

  /** Stores the offset at which the value of a row ends. */
  protected final void ended() {
    long position = (rows + 1L) * 4;
    ends = grown(ends, (int) position, position + 4);
    Platform.putInt(ends, Platform.BYTE_ARRAY_OFFSET + position, length());
  }

  protected void addDefault() {
    ended();
  }

  protected void values(Message message) {
    message.buffer(ends, (rows + 1L) * 4);
    ends = ends.length > 2 * MAX_BYTES ? new byte[4] : ends;
    contents(message);
  }
}

/** Strings and binaries. */
private static final class Bytes extends Sized {
  private byte[] data = new byte[0];
  private int used = 0;

  protected void value(org.apache.spark.sql.catalyst.expressions.SpecializedGetters from, Object base, long offset, int at) {
    long offsetAndSize = from.getLong(at);  // of UnsafeRow: the offset in the row, then the size
    copy(base, offset + (offsetAndSize >>> 32), (int) offsetAndSize);
  }

  private void copy(Object base, long from, int size) {
    data = grown(data, used, (long) used + size);
    Platform.copyMemory(base, from, data, Platform.BYTE_ARRAY_OFFSET + used, size);
    used += size;
    ended();
  }

  /** Adds a value of a column that has no nulls. */
  void append(Object base, long from, int size) {
    copy(base, from, size);
    present();
  }

  protected int length() {
    return used;
  }

  protected void contents(Message message) {
    message.buffer(data, used);
    data = kept(data);
    used = 0;
  }
}

/** A struct of two binaries. An UnsafeRow holds a Variant as the size of its value, the value, and the metadata. */
private static final class Variant extends Column {
  private final Bytes value = new Bytes();
  private final Bytes metadata = new Bytes();

  protected void value(org.apache.spark.sql.catalyst.expressions.SpecializedGetters from, Object base, long offset, int at) {
    long offsetAndSize = from.getLong(at);
    long start = offset + (offsetAndSize >>> 32);
    int size = Platform.getInt(base, start);
    value.append(base, start + 4, size);
    metadata.append(base, start + 4 + size, (int) offsetAndSize - 4 - size);
  }

  protected void addDefault() {
    value.append(null, 0, 0);
    metadata.append(null, 0, 0);
  }

  protected void values(Message message) {
    value.end(message);
    metadata.end(message);
  }
}

private static final class Struct extends Column {
  private final Column[] children;

  Struct(Column[] children) {
    this.children = children;
  }

  protected void value(org.apache.spark.sql.catalyst.expressions.SpecializedGetters from, Object base, long offset, int at) {
    UnsafeRow row = (UnsafeRow) from.getStruct(at, children.length);
    for (int c = 0; c < children.length; c++) children[c].add(row, row.getBaseObject(), row.getBaseOffset(), c);
  }

  protected void addDefault() {
    for (int c = 0; c < children.length; c++) children[c].addNull();
  }

  protected void values(Message message) {
    for (int c = 0; c < children.length; c++) children[c].end(message);
  }
}

private static void addAll(UnsafeArrayData from, Column to) {
  for (int i = 0; i < from.numElements(); i++) to.add(from, from.getBaseObject(), from.getBaseOffset(), i);
}

private static final class List extends Sized {
  private final Column elements;

  List(Column elements) {
    this.elements = elements;
  }

  protected void value(org.apache.spark.sql.catalyst.expressions.SpecializedGetters from, Object base, long offset, int at) {
    addAll((UnsafeArrayData) from.getArray(at), elements);
    ended();
  }

  protected int length() {
    return elements.rows;
  }

  protected void contents(Message message) {
    elements.end(message);
  }
}

/** A map: a list of structs of a key and a value, which are never null themselves. */
private static final class Entries extends Sized {
  private final Column keys;
  private final Column items;

  Entries(Column keys, Column items) {
    this.keys = keys;
    this.items = items;
  }

  protected void value(org.apache.spark.sql.catalyst.expressions.SpecializedGetters from, Object base, long offset, int at) {
    UnsafeMapData map = (UnsafeMapData) from.getMap(at);
    addAll(map.keyArray(), keys);
    addAll(map.valueArray(), items);
    ended();
  }

  protected int length() {
    return keys.rows;
  }

  protected void contents(Message message) {
    message.node(keys.rows, 0);
    message.buffer(new byte[0], 0);
    keys.end(message);
    items.end(message);
  }
}
