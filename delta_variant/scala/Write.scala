package org.apache.spark.sql.delta.variant

import java.lang.{Long => JLong}
import java.net.URI
import java.util.{List => JList, Map => JMap}

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.spark.api.python.PythonFunction
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{AnalysisException, SaveMode}
import org.apache.spark.sql.catalyst.{InternalRow, TableIdentifier}
import org.apache.spark.sql.catalyst.catalog.{CatalogStorageFormat, CatalogTable, CatalogTableType}
import org.apache.spark.sql.catalyst.expressions.{Ascending, Attribute, NullsFirst}
import org.apache.spark.sql.classic.{DataFrame, Dataset, SparkSession}
import org.apache.spark.sql.delta.{DeltaLog, DeltaOperations, DeltaOptions, OptimisticTransaction, Snapshot}
import org.apache.spark.sql.delta.actions.{Action, AddFile, SetTransaction}
import org.apache.spark.sql.delta.commands.{CreateDeltaTableCommand, TableCreationModes, WriteIntoDelta}
import org.apache.spark.sql.delta.hooks.AutoCompact
import org.apache.spark.sql.execution.{LogicalRDD, SQLExecution}
import org.apache.spark.sql.execution.metric.SQLMetrics
import org.apache.spark.sql.types.StructType

/**
 * One write by the steps of Delta's WriteIntoDelta, except for its files: each step is Delta's own method, called in Delta's
 * order by delta_variant/transaction.py. protocol/README.md lists them.
 *
 * Add and Remove actions are made and kept on this side, since there may be hundreds of thousands of them. Not thread-safe. To
 * make one starts a transaction on the newest snapshot.
 *
 * @param spark the write's own session
 * @param users the session of the rows, whose settings may hold a transaction identifier, which Delta resets there
 * @param entry the table in the catalog, if it is there
 * @param mode and `options`: those of DataFrameWriter
 * @param partitionBy and `properties`: for a new table
 */
class Write(
    spark: SparkSession,
    users: SparkSession,
    log: DeltaLog,
    entry: Option[CatalogTable],
    mode: String,
    options: JMap[String, String],
    partitionBy: JList[String],
    properties: JMap[String, String]) {
  import Write._

  val transaction: OptimisticTransaction = log.startTransaction(entry)
  private val steps = {
    val asked = new DeltaOptions(options.asScala.toMap, spark.sessionState.conf)
    new Steps(transaction, SaveMode.valueOf(mode), asked, partitionBy.asScala.toSeq, properties.asScala.toMap, spark, entry)
  }
  protected val actions = mutable.ArrayBuffer.empty[Action]
  private var announced: Option[SetTransaction] = None
  private var hasFiles = false
  private var hasConflict = false
  private var replaced: Option[String] = None // the predicate of what `removeRows` and `removeFiles` removed

  /** The version of this write's application that the table has, if that is this write's version or a later one; else null. */
  def executedVersion: JLong =
    if (!steps.isExecuted(users)) null
    else transaction.txnVersion(steps.options.txnAppId.getOrElse(users.conf.get(ApplicationOfSession)))

  def canMergeSchema: Boolean = steps.mergesSchema

  /** Merges the schema of the rows into the table's, replaces the table's, or checks that both agree, as the options say. */
  def updateMetadata(schema: StructType): Unit = actions ++= steps.changeMetadata(schema)

  /** The rows of the snapshot, which the transaction thereby reads: from the files, whatever Spark has cached of the table. */
  def rows: DataFrame =
    transaction.deltaLog.createDataFrame(transaction.snapshot, transaction.filterFiles()).asInstanceOf[DataFrame]

  /** Makes the directories of a new table. */
  def createLog(): Unit = if (transaction.readVersion < 0) transaction.deltaLog.createLogDirectoriesIfNotExists()

  // ---- the job ------------------------------------------------------------------------------------------------------

  /** A DataFrame with these columns and no rows. Its plan is a leaf, in whose place `run` puts the rows. */
  def placeholder(schema: StructType): DataFrame =
    spark.internalCreateDataFrame(spark.sparkContext.emptyRDD[InternalRow], schema)

  /** The sort keys of `source` before the first that is not a column. */
  def ordering(source: DataFrame): String = OptimisticTransaction.withActive(transaction) {
    val plan = source.queryExecution.executedPlan
    val columns = plan.output.map(_.exprId)
    val keys = plan.outputOrdering.map(order => order -> order.child).map {
      case (order, column: Attribute) =>
        Messages.SortKey(columns.indexOf(column.exprId), order.direction == Ascending, order.nullOrdering == NullsFirst)
      case _ => Messages.SortKey(-1, ascending = true, nullsFirst = true)
    }
    Messages.encoded(keys.takeWhile(_.column >= 0))
  }

  /**
   * Runs the job, and returns the totals of its reports. The rows of `source` are planned and run in their own session, as one
   * execution, which the listeners and observations of that session see. This transaction is then Delta's active one, so what
   * the rows read from the table is recorded.
   *
   * @param rows a DataFrame over the placeholder of `source`
   * @param task a PySpark function from record batches to WriteReport (delta_variant/writer/task.py)
   * @param batches the source of a class body that makes record batches of its rows (Batches.java)
   */
  final def run(source: DataFrame, rows: DataFrame, task: PythonFunction, batches: String): String = {
    val execution = source.queryExecution
    OptimisticTransaction.withActive(transaction) {
      SQLExecution.withNewExecutionId(execution, Some(Name)) {
        val reports = WriteFiles.run(rows.sparkSession, under(rows, execution.toRdd), rows.schema, task, batches)
        Messages.encoded(written(reports))
      }
    }
  }

  /** Keeps the Add actions of the reports, of which there may be many. Returns the totals, or the first error. */
  private def written(reports: Iterator[Messages.WriteReport]): Messages.Written = {
    var totals = Messages.Written(0, 0, 0, Nil, 0, Map.empty, None)
    val shredded = mutable.ArrayBuffer.empty[Seq[String]]
    for (report <- reports if totals.error.isEmpty) {
      totals = totals.copy(
        files = totals.files + report.add.size,
        rows = totals.rows + report.rows,
        bytes = totals.bytes + report.size,
        leftPlain = totals.leftPlain + (if (report.leftPlain) 1 else 0),
        malformed = report.malformed.foldLeft(totals.malformed) { case (all, (file, count)) =>
          all.updated(file, all.getOrElse(file, 0L) + count)
        },
        error = report.error)
      actions ++= report.add.map(Action.fromJson)
      if (report.add.isDefined) shredded += report.shredded
    }
    if (totals.error.isEmpty) {
      registerMetrics(Map("numFiles" -> totals.files, "numOutputRows" -> totals.rows, "numOutputBytes" -> totals.bytes))
      hasFiles = totals.files > 0
    }
    totals.copy(shredded = shredded.toSeq)
  }

  /** Registers what DESCRIBE HISTORY shows as operationMetrics. */
  protected def registerMetrics(metrics: Map[String, Long]): Unit =
    transaction.registerSQLMetrics(spark,
      metrics.map { case (name, value) =>
        val metric = SQLMetrics.createMetric(spark.sparkContext, name)
        metric.set(value)
        name -> metric
      })

  // ---- removed files ------------------------------------------------------------------------------------------------

  /** Removes every file of the snapshot. The transaction thereby reads the whole table, so it conflicts with appends. */
  def removeAll(): Unit = remove(transaction.filterFiles())

  /** Removes the files that a predicate on partition columns selects; the transaction reads these files. */
  def removeWhere(predicate: String): Unit =
    remove(transaction.filterFiles(AddFiles.predicates(spark, transaction.metadata, predicate)))

  /** Removes the old files of the partitions to which `run` added files. */
  def removePartitions(): Unit =
    remove(transaction.filterFiles(actions.collect { case add: AddFile => add }.toSeq))

  /** Removes the rows that have one of these texts in a column, by Delta's DELETE. */
  def removeRows(column: String, values: JList[String]): Unit = {
    val removed = new Replace(spark, transaction).rows(Replace.among(column, values))
    steps.replaces(actions.toSeq, removed)
    actions ++= removed
    replaced = Some(Replace.shownRows(column, values))
  }

  /** Removes data files. Returns false if the table does not have all of them any more, with all of their rows. */
  def removeFiles(paths: JList[String]): Boolean = {
    val files = new Replace(spark, transaction).files(paths)
    files.foreach { files =>
      val removed = removals(files)
      steps.replaces(actions.toSeq, removed)
      steps.removes(removed)
      actions ++= removed
      replaced = Some(Replace.shownFiles(paths))
    }
    files.isDefined
  }

  private def removals(files: Seq[AddFile]): Seq[Action] = {
    val now = System.currentTimeMillis()
    files.map(_.removeWithTimestamp(now))
  }

  private def remove(files: Seq[AddFile]): Unit = {
    val removed = removals(files)
    steps.removes(removed)
    actions ++= removed
  }

  // ---- the commit ---------------------------------------------------------------------------------------------------

  /**
   * Commits transaction identifiers with the rest. Returns those that the table has already. Delta refuses the commit if
   * another writer commits one of them in between.
   */
  def identify(identifiers: String): String = {
    val now = Some(System.currentTimeMillis())
    val wanted = Messages.decoded[Messages.Identifiers](identifiers).versions
    val there = wanted.keys.map(application => application -> transaction.txnVersion(application)).filter(_._2 >= 0).toMap
    actions ++= wanted.map { case (application, version) => SetTransaction(application, version, now) }
    Messages.encoded(Messages.Identifiers(there))
  }

  /**
   * Commits the first transaction identifier of an application with the rest, if the table has none. The transaction does not
   * read it, so that no other writer conflicts.
   */
  def announce(application: String): Unit = {
    val isKnown = transaction.readVersion >= 0 && transaction.snapshot.transactions.contains(application)
    if (!isKnown) announced = Some(SetTransaction(application, 0, Some(System.currentTimeMillis())))
  }

  /** Commits. createsName: whether the commit is recorded as the creation of a table by name, and not as a write. */
  def commit(createsName: Boolean): Unit = {
    if (hasFiles) transaction.registerPostCommitHook(AutoCompact)
    actions ++= steps.identifier(users)
    if (createsName) transaction.removeExistsDefaultFromSchema()
    val operation =
      if (createsName) DeltaOperations.CreateTable(transaction.metadata, isManaged = true, asSelect = true) else this.operation
    try commit(operation, Map.empty)
    finally if (version >= 0) recache()
  }

  /**
   * Has Spark read anew what it has cached of the table, as the commands do that write to Delta tables: plans that read its
   * directory, under whatever name, and for Delta's DSv2 reader, which has no directory, plans that read its name.
   */
  private def recache(): Unit = {
    val cache = users.sharedState.cacheManager
    if (!cache.isEmpty) {
      val path = transaction.deltaLog.dataPath
      try cache.recacheByPath(users, path, path.getFileSystem(transaction.deltaLog.newDeltaHadoopConf()))
      catch {
        // A plan with columns that the table has no longer. Spark has dropped all such plans before it planned the first anew.
        case _: AnalysisException =>
      }
      transaction.catalogTable.foreach(table => cache.recacheTableOrView(users, table.identifier.nameParts, false))
    }
  }

  /** Commits the actions. tags: those of the CommitInfo. */
  protected def commit(operation: DeltaOperations.Operation, tags: Map[String, String]): Unit =
    try transaction.commitIfNeeded((actions ++= announced).toSeq, operation, tags)
    catch {
      case failure: Throwable =>
        hasConflict = Failures.isConflict(failure)
        throw failure
    }

  private def operation: DeltaOperations.Operation = {
    val isDynamic = steps.mode == SaveMode.Overwrite && steps.options.isDynamicPartitionOverwriteMode
    DeltaOperations.Write(
      if (replaced.isEmpty) steps.mode else SaveMode.Overwrite,
      Some(steps.partitionColumns),
      replaced.orElse(steps.options.replaceWhere),
      steps.options.userMetadata,
      Option.when(isDynamic)(true),
      Option.when(steps.overwritesSchema)(true),
      Option.when(steps.mergesSchema)(true))
  }

  /** Puts a new table, which is committed at `location`, into the catalog as a managed table, as saveAsTable does. */
  def register(name: TableIdentifier, location: URI): Unit = {
    val storage = CatalogStorageFormat.empty.copy(locationUri = Some(location))
    val table = CatalogTable(
      name, CatalogTableType.MANAGED, storage, new StructType, provider = Some("delta"), tracksPartitionsInCatalog = true)
    new Registration(table).register(spark, transaction.getCommitted.get.postCommitSnapshot)
  }

  /** The version that was committed; -1 before the commit. */
  def version: Long = transaction.getCommitted.fold(-1L)(_.committedVersion)

  /** Whether the commit failed because it conflicts with another writer's commit. */
  def conflict: Boolean = hasConflict
}

object Write {
  private val Name = "delta_variant.write"
  private val ApplicationOfSession = "spark.databricks.delta.write.txnAppId"

  /** Delta's own steps, most of which are protected there. */
  private final class Steps(
      transaction: OptimisticTransaction,
      saveMode: SaveMode,
      asked: DeltaOptions,
      partitionBy: Seq[String],
      properties: Map[String, String],
      spark: SparkSession,
      entry: Option[CatalogTable])
      extends WriteIntoDelta(
        transaction.deltaLog, saveMode, asked, partitionBy, properties, spark.emptyDataFrame, entry) {

    def mergesSchema: Boolean = canMergeSchema
    def overwritesSchema: Boolean = canOverwriteSchema
    def isExecuted(users: SparkSession): Boolean = hasBeenExecuted(transaction, users, Some(options))
    def identifier(users: SparkSession): Option[SetTransaction] = createSetTransaction(users, deltaLog, Some(options))
    def removes(actions: Seq[Action]): Unit = registerOverwriteRemoveMetrics(spark, transaction, actions)
    def replaces(added: Seq[Action], removed: Seq[Action]): Unit =
      registerInsertReplaceMetrics(spark, transaction, added, removed)

    def changeMetadata(schema: StructType): Seq[Action] = {
      val isFirst = transaction.canUpdateMetadata
      val isOverwrite = mode == SaveMode.Overwrite
      updateMetadata(spark, transaction, schema, partitionColumns, properties, isOverwrite, rearrangeOnly = false)
      getNewDomainMetadata(transaction, isFirst, isOverwrite && !options.isInsertAtomicReplaceOp, None)
    }
  }

  private final class Registration(entry: CatalogTable)
      extends CreateDeltaTableCommand(entry, None, SaveMode.ErrorIfExists, None, TableCreationModes.Create) {
    def register(spark: SparkSession, snapshot: Snapshot): Unit = updateCatalog(spark, entry, snapshot, None, false)
  }

  /** The result of a plan in which these rows take the place of its leaf. */
  private def under(plan: DataFrame, rows: RDD[InternalRow]): RDD[InternalRow] = plan.queryExecution.analyzed match {
    case _: LogicalRDD => rows
    case whole =>
      val spark = plan.sparkSession
      val above = whole.transformUp { case leaf: LogicalRDD =>
        LogicalRDD(leaf.output, rows, leaf.outputPartitioning, leaf.outputOrdering, isStreaming = false)(spark)
      }
      Dataset.ofRows(spark, above).queryExecution.toRdd
  }
}
