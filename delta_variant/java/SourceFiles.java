package delta_variant;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.InMemoryFileIndex;
import org.apache.spark.sql.execution.datasources.NoopCache$;
import org.apache.spark.sql.execution.datasources.PartitionPath;
import org.apache.spark.sql.execution.datasources.PartitionSpec;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;

/**
 * Lists the files that `ingest` and `convert` read, with Spark's own listing and naming of directories.
 *
 * The scan of `binaryFile` has the same columns and leaves out empty files, and its job takes 0.1 s. Janino compiles this file:
 * no generics, no lambdas.
 */
public class SourceFiles {
  private static final String LOG = "_delta_log";

  private final SparkSession spark;
  private final Map options;
  private final ArrayNode files = new ObjectMapper().createArrayNode();
  private final List named = new ArrayList();
  private final List directories = new ArrayList();

  public SourceFiles(SparkSession spark, Map options) {
    this.spark = spark;
    this.options = options;
  }

  /**
   * The files at paths and globs and below directories, as JSON: for each its path, its size, the milliseconds since 1970 of its
   * last change, and whether it is named itself. A string in their place is a path or glob without files or directories.
   */
  public String list(List sources) throws Exception {
    find(sources);
    for (Iterator i = named.iterator(); i.hasNext(); ) add((FileStatus) i.next(), true);
    if (!directories.isEmpty()) addAll(below(directories, true, options, Option.empty()), new ArrayList(), null);
    return files.toString();
  }

  /**
   * As `list`, with the columns that Spark finds in the names of directories: `files`, each with the values of these columns as
   * text or null, or with null if it is in no such directory; `schema`, the columns; `directories` and, of these, `tables`, which
   * are Delta tables. types: columns and their types in DDL; Spark infers the others. A single glob is searched for directories from
   * its first wildcard on.
   */
  public String listFolders(List sources, String types) throws Exception {
    find(sources);
    ObjectNode found = new ObjectMapper().createObjectNode();
    found.set("files", files);
    ArrayNode searched = found.putArray("directories");
    ArrayNode tables = found.putArray("tables");
    Configuration conf = spark.sessionState().newHadoopConfWithOptions(options);
    List roots = new ArrayList(directories);
    for (Iterator i = directories.iterator(); i.hasNext(); ) {
      Path path = (Path) i.next();
      searched.add(path.toString());
      if (path.getFileSystem(conf).exists(new Path(path, LOG))) tables.add(path.toString());
    }
    List paths = new ArrayList();
    for (Iterator i = named.iterator(); i.hasNext(); ) {
      FileStatus file = (FileStatus) i.next();
      roots.add(file.getPath());
      paths.add(file.getPath());
    }
    if (roots.isEmpty()) return found.toString();
    Map parameters = options;
    String first = (String) sources.get(0);
    int wildcard = first.split("[*?\\[{]", 2)[0].length();
    int end = first.lastIndexOf('/', wildcard);
    if (sources.size() == 1 && wildcard < first.length() && end > 0) {
      parameters = (Map) parameters.updated("basePath", first.substring(0, end));
    }
    Option given = types.isEmpty() ? Option.empty() : Option.apply(StructType.fromDDL(types));
    InMemoryFileIndex index = below(roots, false, parameters, given);
    PartitionSpec spec = index.partitionSpec();
    StructType columns = spec.partitionColumns();
    found.put("schema", columns.json());
    if (columns.isEmpty()) index = below(roots, true, options, Option.empty());
    HashMap values = new HashMap();
    String zone = spark.sessionState().conf().sessionLocalTimeZone();
    for (scala.collection.Iterator i = spec.partitions().iterator(); i.hasNext(); ) {
      PartitionPath partition = (PartitionPath) i.next();
      values.put(partition.path(), texts(partition.values(), columns, zone));
    }
    addAll(index, paths, columns.isEmpty() ? null : values);
    return found.toString();
  }

  private static ArrayNode texts(InternalRow row, StructType columns, String zone) {
    ArrayNode texts = new ObjectMapper().createArrayNode();
    for (int c = 0; c < columns.length(); c++) {
      DataType type = columns.apply(c).dataType();
      Object value = row.isNullAt(c) ? null : row.get(c, type);
      Object text = new Cast(new Literal(value, type), DataTypes.StringType, Option.apply(zone)).eval(null);
      texts.add(text == null ? null : text.toString());
    }
    return texts;
  }

  /** Sorts what is at paths and globs into files and directories. */
  private void find(List sources) throws Exception {
    Configuration conf = spark.sessionState().newHadoopConfWithOptions(options);
    for (Iterator i = sources.iterator(); i.hasNext(); ) {
      String source = (String) i.next();
      Path path = new Path(source);
      FileStatus[] found = path.getFileSystem(conf).globStatus(path);
      if (found == null || found.length == 0) files.add(source);
      for (int f = 0; found != null && f < found.length; f++) {
        if (found[f].isDirectory()) directories.add(found[f].getPath());
        else named.add(found[f]);
      }
    }
  }

  private InMemoryFileIndex below(List paths, boolean recursive, Map parameters, Option schema) {
    if (recursive) parameters = (Map) parameters.updated("recursiveFileLookup", "true");
    Seq roots = scala.jdk.javaapi.CollectionConverters.asScala(paths).toIndexedSeq();
    return new InMemoryFileIndex(spark, roots, parameters, schema, NoopCache$.MODULE$, Option.empty(), Option.empty());
  }

  /** Adds the files of a listing. paths: those that are named. values: of the columns of directories; null without such. */
  private void addAll(InMemoryFileIndex index, List paths, HashMap values) {
    for (scala.collection.Iterator i = index.allFiles().iterator(); i.hasNext(); ) {
      FileStatus file = (FileStatus) i.next();
      ArrayNode added = add(file, paths.contains(file.getPath()));
      if (values != null) added.add((ArrayNode) values.get(file.getPath().getParent()));
    }
  }

  private ArrayNode add(FileStatus file, boolean isNamed) {
    ArrayNode added = files.addArray();
    return added.add(file.getPath().toString()).add(file.getLen()).add(file.getModificationTime()).add(isNamed);
  }
}
