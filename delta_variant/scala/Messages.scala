package org.apache.spark.sql.delta.variant

import java.lang.{Long => JLong}

import com.fasterxml.jackson.annotation.{JsonSubTypes, JsonTypeInfo}
import com.fasterxml.jackson.core.json.JsonWriteFeature
import com.fasterxml.jackson.databind.{DeserializationFeature, PropertyNamingStrategies, SerializationFeature}
import com.fasterxml.jackson.databind.annotation.JsonDeserialize
import com.fasterxml.jackson.databind.json.JsonMapper
import com.fasterxml.jackson.module.scala.{ClassTagExtensions, DefaultScalaModule}

import scala.reflect.ClassTag

/**
 * The messages between Python and the JVM, as JSON. Each class is a dataclass of the same name in delta_variant/messages.py,
 * whose fields have the same names in snake case; docs/explanation/architecture.md lists who sends what.
 *
 * A class of a sealed trait is sent with its name in the field `is`. Scala's generics forget primitive types, so Jackson is
 * told of Longs.
 */
object Messages {
  private val json = JsonMapper.builder()
    .addModule(DefaultScalaModule)
    .propertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE)
    .enable(JsonWriteFeature.ESCAPE_NON_ASCII)
    .disable(SerializationFeature.FAIL_ON_EMPTY_BEANS)
    .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES)
    .build() :: ClassTagExtensions

  def encoded(message: Any): String = json.writeValueAsString(message)

  def decoded[M: ClassTag](text: String): M = json.readValue[M](text)

  // ---- what both sides share: Python puts it into the JAR ----------------------------------------------------

  /** The sources and versions of a JAR, the settings of an enabled session, and the tags of Add actions (Tags). */
  final case class Constants(
      version: String, // of this package
      digest: String, // of the sources: JAR and Python fit if it is the same
      spark: String,
      delta: String,
      settings: Map[String, String],
      defaults: Map[String, String], // of settings that stay if they are there
      marker: String,
      markerValues: Seq[String],
      typedValues: Seq[String],
      nonnull: String,
      times: String)

  // ---- the rules ask Python: a request, and the reply to it ---------------------------------------------------------

  @JsonTypeInfo(use = JsonTypeInfo.Id.SIMPLE_NAME, property = "is")
  sealed trait Request[Reply]

  /**
   * Which files can match? `columns` have bounds; what follows `files` is that of delta_variant/queries/bounds.py, LogContents.
   */
  final case class PruneRequest(
      operands: Seq[Operand], // the distinct expressions that the filters compare
      filters: Seq[Filter],
      columns: Seq[Seq[String]],
      files: Int,
      marked: Boolean,
      nonnull: Boolean,
      times: Boolean,
      index: Boolean, // whether the table may have an index of values
      exact: Boolean,
      trustAll: Boolean,
      explain: Boolean) extends Request[PruneReply]

  /**
   * The predicate that a file must not fail, or None if nothing can be proven; what the predicate reads; and with `explain`,
   * what it proves.
   */
  final case class PruneReply(
      predicate: Option[FilePredicate],
      bounds: Seq[Bound],
      members: Seq[Member],
      explanation: Option[Explanation])

  /**
   * For `explain`: the predicates on paths, why parts of them are not used, and how to tell what each question proves of a
   * file.
   */
  final case class Explanation(predicates: Seq[String], reasons: Seq[String], verdicts: Seq[Verdict])

  /** How to tell what a question proves of a file (delta_variant/queries/findings.py). */
  final case class Verdict(
      number: Int, // of the question
      tree: FilePredicate,
      bounds: FilePredicate, // without the index of values
      member: Option[Indexed], // the question for the index
      question: FilePredicate,
      kind: Option[Int], // the number of the bound that is the type of the path's bound
      kinds: Seq[String],
      marked: Seq[String])

  /** Which bounds answer MIN and MAX of these paths? */
  final case class ExtremesRequest(columns: Seq[Seq[String]], paths: Seq[TypedPath]) extends Request[ExtremesReply]

  /** For each path its minimum and its maximum, and last the number of rows; empty if one of the paths has no such bounds. */
  final case class ExtremesReply(bounds: Seq[Bound])

  /** Which bounds prove that these paths are in typed columns? */
  final case class ProofsRequest(columns: Seq[Seq[String]], paths: Seq[UsedPath], uses: Seq[PathUse])
      extends Request[ProofsReply]

  /** By path, the bounds that prove its typed column; or the reasons why no path can be read from one. */
  final case class ProofsReply(bounds: Seq[Bound], proofs: Seq[Proof], reasons: Seq[String])

  /** How are files with these typed columns read? */
  final case class GroupsRequest(uses: Seq[PathUse], groups: Seq[FileGroup]) extends Request[GroupsReply]

  /** The groups that are read from typed columns. Spark's scan reads the other files. */
  final case class GroupsReply(groups: Seq[Group])

  // ---- a transaction asks Python ------------------------------------------------------------------------------------

  /** How do tasks write the rows of Delta's command? (delta_variant/writer/every_write.py) */
  final case class WriteRequest(
      location: String,
      protocol: String, // Delta's JSON, as that of the metadata
      metadata: String,
      columns: String, // those of files, by their physical names, as a StructType in JSON
      sentColumns: String, // those that tasks get: what they make columns of, and the partition values as text
      partitionBy: Seq[String], // physical names, behind that of Delta's column that marks change data
      identityColumns: Map[String, Boolean], // physical names; whether tasks report the highest value, or else the lowest one
      texts: Option[TextColumns],
      fromPieces: Seq[String], // the columns that tasks read from pieces of files or blocks, which are in the first column sent
      late: Seq[String], // the VARIANT columns of files that tasks read from older files (LateVariants.RowType)
      isCall: Boolean, // of `write`
      settings: Map[String, String], // the session's, as the names of options
      options: Map[String, String], // those whose names begin with "delta_variant."
      compression: Option[String],
      maxRows: Long, // 0 for no limit
      stringPrefix: Int,
      files: Option[Long], // of the table; None if the log would have to be read for it
      spark: String, // its version
      annotates: Boolean, // whether VARIANT groups of files get the logical type, which this Spark reads
      namesUnicode: Boolean, // whether Java finds files whose names are not ASCII
      storage: StorageSettings,
      workers: Workers)
      extends Request[WriteReply]

  /** How are new rows sorted? columns: those of the rows, as JSON. keys: columns and paths, separated by commas. */
  final case class ClusterRequest(protocol: String, metadata: String, columns: String, keys: String)
      extends Request[ClusterReply]

  /** SQL expressions, and about how many bytes a task is to get; or the reason why there are none. */
  final case class ClusterReply(keys: Seq[String], bytes: Long, reason: String)

  /** Columns of JSON texts that become VARIANTs, the column that gets malformed ones, and the options of Spark's parse_json. */
  final case class TextColumns(
      columns: Seq[String], corrupt: Option[String], fails: Boolean, allowDuplicateKeys: Boolean, validateUnicode: Boolean)

  /**
   * Hadoop's settings for the file system of a location, with the entries of credential stores. region: that of the bucket, ""
   * if AWS does not tell it, None if AWS was not asked.
   */
  final case class StorageSettings(settings: Map[String, String], region: Option[String])

  /** What the JVM knows of the Python that runs tasks (Workers). */
  final case class Workers(
      python: String, // the command
      isLocal: Boolean, // whether tasks run on the driver's machine
      versions: Option[Seq[String]], // of this package, as tasks told; None if they were not asked, empty if that failed
      failure: Option[String], // why tasks that were asked failed
      hasFailed: Boolean) // whether tasks of a write have failed since

  /**
   * One of three answers. The tasks: a pickled PySpark function in base64, the version of Python that it is for, and the
   * application whose first transaction identifier is committed with the files. Or the reason why Delta has to write the files,
   * and whether the user should act on it. Or what the request lacks: the `versions`, for which there is a function, or the
   * `region`.
   */
  final case class WriteReply(
      task: Option[String],
      python: String,
      announces: Option[String],
      reason: String,
      isFailure: Boolean,
      probe: Option[String],
      wantsRegion: Boolean)

  // ---- the filters of a scan ----------------------------------------------------------------------------------------

  /** An expression that a filter compares: a VARIANT column, by its physical names; a path of one; a cast. */
  @JsonTypeInfo(use = JsonTypeInfo.Id.SIMPLE_NAME, property = "is")
  sealed trait Operand
  final case class Column(column: Seq[String], name: String) extends Operand
  final case class Get(of: Operand, path: String, `type`: String) extends Operand
  final case class CastOf(of: Operand, `type`: String) extends Operand

  /** A side of a comparison: an operand, by its number, or a constant. */
  @JsonTypeInfo(use = JsonTypeInfo.Id.SIMPLE_NAME, property = "is")
  sealed trait Side
  final case class OperandNumber(operand: Int) extends Side

  /**
   * A constant, or a list of them, whose values stay in the JVM: the first of them as text, and how many there are, without
   * NULLs.
   */
  final case class Constant(number: Int, `type`: String, texts: Seq[String], size: Int, hasNull: Boolean) extends Side

  /** A filter on a VARIANT. */
  @JsonTypeInfo(use = JsonTypeInfo.Id.SIMPLE_NAME, property = "is")
  sealed trait Filter
  final case class And(parts: Seq[Filter]) extends Filter
  final case class Or(parts: Seq[Filter]) extends Filter
  final case class Not(part: Filter) extends Filter
  final case class Comparison(op: String, left: Side, right: Side) extends Filter // op: = <=> < <= > >=
  final case class StartsWith(value: Side, prefix: Side) extends Filter
  final case class Like(value: Side, prefix: Constant) extends Filter // prefix: before the first wildcard or escape
  final case class IsNull(value: Side) extends Filter
  final case class IsNotNull(value: Side) extends Filter
  final case class In(value: Side, list: Side) extends Filter
  final case class Ordinary(number: Int, text: String) extends Filter // on ordinary columns, in an AND or OR
  final case class Aside() extends Filter // for which bounds are not asked

  /** An expression that the filters above do not have. */
  final case class Unknown(text: String) extends Operand with Side with Filter

  // ---- predicates on bounds -----------------------------------------------------------------------------------------

  /**
   * A predicate on what the log says of one file: FALSE if no row can match, NULL if that is not known. Bounds, constants,
   * paths of the index and predicates on ordinary columns have numbers.
   */
  @JsonTypeInfo(use = JsonTypeInfo.Id.SIMPLE_NAME, property = "is")
  @JsonSubTypes(Array(
      new JsonSubTypes.Type(classOf[AllOf]),
      new JsonSubTypes.Type(classOf[AnyOf]),
      new JsonSubTypes.Type(classOf[Compare]),
      new JsonSubTypes.Type(classOf[HasPrefix]),
      new JsonSubTypes.Type(classOf[Between]),
      new JsonSubTypes.Type(classOf[Differs]),
      new JsonSubTypes.Type(classOf[HasValues]),
      new JsonSubTypes.Type(classOf[Indexed]),
      new JsonSubTypes.Type(classOf[OtherColumns])))
  sealed trait FilePredicate
  final case class AllOf(parts: Seq[FilePredicate]) extends FilePredicate // of nothing, TRUE
  final case class AnyOf(parts: Seq[FilePredicate]) extends FilePredicate // of nothing, FALSE
  final case class Compare(op: String, bound: Int, constant: Int) extends FilePredicate // op: < <= > >=
  final case class HasPrefix(bound: Int, constant: Int, negated: Boolean) extends FilePredicate
  final case class Between(low: Int, high: Int, constants: Seq[Int]) extends FilePredicate // a constant is between two bounds
  final case class Differs(low: Int, high: Int, constants: Seq[Int]) extends FilePredicate // bounds allow other values
  final case class HasValues(bound: Int) extends FilePredicate // some row has the path
  final case class Indexed(member: Int, constants: Seq[Int]) extends FilePredicate // a row may have one, by the index of values
  final case class OtherColumns(number: Int) extends FilePredicate // what Delta's data skipping says of `Ordinary`

  /** What is read from the log for a path (delta_variant/queries/bounds.py, Projection). */
  final case class Bound(
      side: String, // min, max, kind, leaf, values, rows
      column: Int, // number of the VARIANT column; -1 for `rows`
      key: String, // normalized path, by which statistics have bounds
      tag: Option[Seq[String]], // where the tag for paths without bounds has the path
      times: Option[Seq[String]], // where the tag for strings that spell times has the path
      exact: Boolean, // whether wider bounds than the values are left out
      kinds: Seq[String], // the types of bounds that count in every file
      marked: Seq[String], // and those that count in files with the marker
      types: Seq[String], // the type that the path is read as, and those that it is cast to
      mark: String) // of `leaf`: the value of the marker that proves a typed column

  /** A path in the index of values, and the decimal places of the numbers that it is compared with; -1 for strings. */
  final case class Member(path: String, scale: Int)

  // ---- typed reading ------------------------------------------------------------------------------------------------

  /** A path as `variant_get` has it, in the column of these physical names, as a value of a type. */
  final case class TypedPath(column: Seq[String], path: String, `type`: String)

  /**
   * A path that a plan uses. name: that of its column in the query. array: the number of the path to the array in whose elements
   * it is.
   */
  final case class UsedPath(column: Seq[String], name: String, path: String, array: Option[Int])

  /** A use of a path, by its number, as a value of a type. */
  final case class PathUse(path: Int, `type`: String)

  /** The steps of a path, and numbers of bounds: the one whose type is that of the typed column, and its smallest integer. */
  final case class Proof(steps: Seq[Step], leaf: Option[Int], range: Option[Int])

  /** A step of a path: the key of an object, or the index of an element. */
  final case class Step(key: Option[String], index: Option[Int])

  /** Files in which the paths are in typed columns of the same types, and how many bytes they have. */
  final case class FileGroup(leaves: Seq[Leaf], bytes: Long)

  /** The type of a path's typed column, and the smallest type that can hold its integers, if that is known. */
  final case class Leaf(`type`: String, room: Option[String])

  /** A group of files, by its number, and the casts by which its columns answer each use (delta_variant/queries/casts). */
  final case class Group(number: Int, casts: Seq[String])

  // ---- Python asks: explain -----------------------------------------------------------------------------------------

  /**
   * A scan of a plan. other: why the rules leave it alone (Explain). Counts are of files: all, left by Delta, left by bounds.
   */
  final case class ScanReport(
      table: String,
      version: Option[Long],
      total: Option[Long],
      delta: Option[Int],
      bounds: Option[Int],
      skipping: Option[Skipping],
      reading: Option[Reading],
      other: Option[String],
      by: Option[String])

  /**
   * What data skipping did for a scan. proves: whether there was a predicate on bounds. tally: None if bounds could not be
   * read, empty if there were none to read.
   */
  final case class Skipping(
      proves: Boolean,
      predicates: Seq[String],
      reasons: Seq[String],
      request: Option[PruneRequest], // with `explain`
      tally: Option[Seq[Tally]])

  /** How many files got a verdict on a question. */
  final case class Tally(question: Int, verdict: String, files: Int)

  /**
   * What typed reading did for a scan. logged: the files that the log answered for. typed: those that are read from typed
   * columns.
   */
  final case class Reading(scan: Long, files: Int, logged: Int, typed: Int, paths: Seq[ProvenPath], reasons: Seq[String])

  /** A path of a scan (UsedPath), and in how many files its typed column is proven. */
  final case class ProvenPath(name: String, path: String, array: Option[Int], files: Int)

  // ---- Python asks: writing -----------------------------------------------------------------------------------------

  /** A task's report on a file that it wrote, an error, or documents that it left out (delta_variant/writer/task.py). */
  final case class WriteReport(
      add: Option[String], // the Add action, or for change data the AddCDCFile action
      rows: Long,
      size: Long,
      shredded: Seq[String], // columns
      leftPlain: Boolean,
      @JsonDeserialize(contentAs = classOf[JLong]) malformed: Map[String, Long], // documents by file
      @JsonDeserialize(contentAs = classOf[JLong]) highWaterMarks: Map[String, Long], // of identity columns
      error: Option[Failure])

  final case class Failure(name: String, text: String)

  /** The totals of the reports of a job. */
  final case class Written(
      files: Int,
      rows: Long,
      bytes: Long,
      shredded: Seq[Seq[String]],
      leftPlain: Int,
      malformed: Map[String, Long])

  /**
   * What a call of `write` adds to Delta's commit.
   *
   * identifiers: transaction identifiers. known: those of them that the table may have. again: whether it may have all of them.
   * removal: the other rows that go. pieces: "json" if the rows are pieces of JSON files; "rows" if they may be pieces of
   * Parquet files, or blocks; else "".
   */
  final case class Additions(
      @JsonDeserialize(contentAs = classOf[JLong]) identifiers: Map[String, Long],
      @JsonDeserialize(contentAs = classOf[JLong]) known: Map[String, Long],
      again: Boolean,
      removal: Option[Removal],
      pieces: String)

  /** The rows that have one of the texts in a column; without a column, the data files with these paths. */
  final case class Removal(column: Option[String], texts: Seq[String])

  /** Transaction identifiers: versions by application. */
  final case class Identifiers(@JsonDeserialize(contentAs = classOf[JLong]) versions: Map[String, Long])

  /** VARIANT columns, by their physical names. */
  final case class ColumnNames(columns: Seq[Seq[String]])

  /** Data files, by the paths of their Add actions. */
  final case class FilePaths(paths: Seq[String])

  /** The files that may have one of the texts in a column. */
  final case class Candidates(column: String, texts: Seq[String])

  /**
   * The files that a transaction is to rewrite.
   *
   * @param actions the JSON of their Add actions, without statistics
   */
  final case class OpenedFiles(count: Int, bytes: Long, actions: Option[Seq[String]])

  /** The files at paths and globs and below directories. unmatched: paths and globs without files and directories. */
  final case class Listing(
      files: Seq[SourceFile],
      unmatched: Seq[String],
      schema: Option[String], // the columns that Spark finds in the names of directories, as JSON
      directories: Seq[String],
      tables: Seq[String]) // directories that are Delta tables

  /**
   * modified: milliseconds since 1970. named: whether a path or glob names it. values: of the columns in the names of
   * directories, as text; None if it is in no such directory.
   */
  final case class SourceFile(path: String, size: Long, modified: Long, named: Boolean, values: Option[Seq[Option[String]]])

  /** The loads whose data files have rows of source files; those that the log does not have; and the log's first version. */
  final case class FoundLoads(loads: Seq[Load], missing: Seq[String], oldest: Long)

  /** fault: why its data files may have other rows. identifiers: versions by application. files: paths of data files. */
  final case class Load(version: Long, fault: Option[String], identifiers: Map[String, Long], files: Seq[String])

  // ---- Python asks: analyze -----------------------------------------------------------------------------------------

  /** The number of batches, and the number and the size of the files in them. */
  final case class AnalysisSize(batches: Int, files: Long, bytes: Long)

  /** What a task is told of a file: its number in the batch, and its Add action. */
  final case class AnalyzedFile(file: Int, path: String, stats: Option[String], tags: Map[String, String])

  /** A task's report on a file: nothing, its failure, or its statistics and tags and what they were computed from. */
  final case class AnalysisReport(
      file: Int,
      read: Long, // bytes
      failed: Option[String],
      stats: Option[String],
      tags: Map[String, String],
      rows: Long,
      source: String)

  /** The totals of a batch. read: bytes. failed: by path. sources: numbers of files. */
  final case class AnalyzedBatch(
      files: Int,
      read: Long,
      rows: Long,
      bytes: Long,
      failed: Map[String, String],
      sources: Map[String, Int])

  /** The commit of a batch: its version, -1 without one, and the files that other writers have changed or removed since. */
  final case class Committed(version: Long, files: Int, changed: Seq[String])
}
