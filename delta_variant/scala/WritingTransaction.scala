package org.apache.spark.sql.delta.variant

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.api.python.PythonFunction
import org.apache.spark.sql.Dataset
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{
  Alias, Ascending, Attribute, Cast, Empty2Null, GetStructField, Literal, SortOrder, UnixMicros
}
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap
import org.apache.spark.sql.classic.{DataFrame, SparkSession}
import org.apache.spark.sql.delta._
import org.apache.spark.sql.delta.actions.{Action, AddFile, FileAction, SetTransaction}
import org.apache.spark.sql.delta.commands.cdc.CDCReader
import org.apache.spark.sql.delta.constraints.{Constraint, Constraints, DeltaInvariantCheckerExec}
import org.apache.spark.sql.delta.files.TransactionalWrite
import org.apache.spark.sql.delta.hooks.AutoCompact
import org.apache.spark.sql.delta.perf.DeltaOptimizedWriterExec
import org.apache.spark.sql.delta.schema.{InnerInvariantViolationException, SchemaUtils}
import org.apache.spark.sql.delta.sources.DeltaSQLConf
import org.apache.spark.sql.execution.{CollectMetricsExec, ProjectExec, SortExec, SparkPlan, SQLExecution}
import org.apache.spark.sql.execution.adaptive.{AdaptiveSparkPlanExec, QueryStageExec}
import org.apache.spark.sql.execution.datasources.{BasicWriteJobStatsTracker, BasicWriteTaskStats, V1WritesUtils}
import org.apache.spark.sql.execution.exchange.Exchange
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.{
  DataType, DateType, MetadataBuilder, NullType, StringType, StructField, StructType, TimestampType
}
import org.apache.spark.unsafe.types.UTF8String
import org.apache.spark.util.{AccumulatorContext, SerializableConfiguration}

/**
 * A transaction of Delta's whose data files are ours, if the session asks for it (`EveryWrite.of`).
 *
 * `writeFiles` is the one place where Delta's commands turn rows into files. It takes the steps of Delta's TransactionalWrite
 * and calls Delta's own methods, but it runs a job of ours instead of DeltaFileFormatWriter. Delta writes what the tasks cannot
 * write.
 */
final class WritingTransaction(started: OptimisticTransaction)
    extends OptimisticTransaction(started.deltaLog, started.catalogTable, started.snapshot) {
  import WritingTransaction._

  @volatile private var announced: Option[String] = None
  @volatile private var call: Option[Call] = None

  override def writeFiles(
      input: Dataset[_],
      options: Option[DeltaOptions],
      isOptimize: Boolean,
      additional: Seq[Constraint]): Seq[FileAction] = {
    def byDelta = super.writeFiles(input, options, isOptimize, additional)
    EveryWrite.of(input.sparkSession, metadata).fold(byDelta) { writes =>
      // Delta's commands have options for new rows, and none for rows that they only copy.
      val asked = writes.call.filter(_ => options.isDefined)
      asked.foreach { asked =>
        call = Some(asked)
        asked.begin(this)
      }
      val rows: Dataset[_] =
        if (isOptimize || asked.exists(_.hasDocuments)) input
        else
          try ordered(writes, input, options, asked)
          catch {
            case failure: Throwable if asked.isEmpty && !Failures.stops(failure) =>
              writes.python.tell("order", s"the rows of a statement to ${deltaLog.dataPath} are not clustered: $failure")
              input
          }
      def instead(reason: EveryWrite.Reason) = {
        if (asked.isDefined) throw new EveryWrite.Refused(reason.text)
        writes.logReason(deltaLog.dataPath, reason)
        byDelta
      }
      new Rows(writes, rows, options, isOptimize, additional, asked).files(instead)
    }
  }

  /** The value of an option of ours, of the table's property or of the session's setting of that name. */
  private def ours(name: String, session: SparkSession, options: Option[DeltaOptions]): Option[String] =
    options.flatMap(_.options.get(name)).orElse(metadata.configuration.get(name)).orElse(session.conf.getOption(s"spark.$name"))

  /**
   * New rows in the order of the keys that somebody asked for. Without keys, a call of `write` keeps the rows of a partition
   * together. The rows of a stream stay as they are: their plan is bound to it.
   */
  private def ordered(
      writes: EveryWrite, input: Dataset[_], options: Option[DeltaOptions], call: Option[Call]): Dataset[_] = {
    val session = input.sparkSession.asInstanceOf[SparkSession]
    val keys = options.flatMap(_ => ours(ClusterBy, session, options)).getOrElse("")
    val isGathered = call.exists(!_.hasWholeRows) && metadata.partitionColumns.nonEmpty
    if (keys.isEmpty && !isGathered || Pairs.isOfStream(input.queryExecution)) input
    else {
      val rows = input.asInstanceOf[DataFrame]
      val reply = writes.python.ask[Messages.ClusterReply](
        Messages.ClusterRequest(protocol.json, metadata.json, input.schema.json, keys))
      if (reply.reason.nonEmpty)
        writes.python.tell("order", s"the rows of a statement to ${deltaLog.dataPath} are not clustered: ${reply.reason}")
      if (reply.keys.nonEmpty) Clustering.clustered(rows, metadata.partitionColumns, reply.keys, reply.bytes)
      else if (isGathered && reply.bytes > 0) {
        val setting = session.conf.getOption("spark.databricks.delta.optimizeWrite.enabled")
        val rebalances = setting.orElse(metadata.configuration.get("delta.autoOptimize.optimizeWrite"))
        Clustering.gathered(rows, metadata.partitionColumns, !rebalances.exists(_.equalsIgnoreCase("false")), reply.bytes)
      } else input
    }
  }

  /**
   * Adds to the commit: the first transaction identifier of the index of values, if new files have filters, and the actions of
   * a call of `write`.
   */
  override protected def commitImpl(
      actions: Seq[Action],
      operation: DeltaOperations.Operation,
      canSkipEmptyCommits: Boolean,
      tags: Map[String, String]): Option[Long] = {
    val first = announced.filter { application =>
      actions.exists(_.isInstanceOf[AddFile]) && !(readVersion >= 0 && snapshot.transactions.contains(application))
    }
    val all = actions ++ first.map(SetTransaction(_, 0, Some(System.currentTimeMillis()))) ++
      call.fold(Seq.empty[Action])(_.actions(spark.asInstanceOf[SparkSession], this, actions))
    try super.commitImpl(all, call.fold(operation)(_.operation(operation)), canSkipEmptyCommits, tags)
    catch {
      case failure: Throwable =>
        call.foreach(_.failed(failure))
        throw failure
    }
  }

  /** The rows of a write, normalized as Delta does it. */
  private final class Rows(
      writes: EveryWrite,
      input: Dataset[_],
      options: Option[DeltaOptions],
      isOptimize: Boolean,
      additional: Seq[Constraint],
      call: Option[Call]) {
    private val session = input.sparkSession.asInstanceOf[SparkSession]
    private val (data, partitionSchema) = performCDCPartition(input)
    private val (normalized, output, generated, fromData) = normalizeData(deltaLog, options, data)
    private def isChecked = isOptimize && call.exists(_.hasWholeRows) // rows of the table itself; tasks make some columns
    private val identityColumns = trackHighWaterMarks.getOrElse(fromData)
    private val partitioning = getPartitioningColumns(partitionSchema, output)
    private val constraints = if (isChecked) Nil
    else {
      val all = Constraints.getAll(metadata, session) ++ generated ++ additional
      Pairs.validate(session, all, deltaLog, metadata)
      all
    }
    private val stored = output.filterNot(partitioning.contains)
    private val missing = {
      val names = output.map(_.name).toSet
      getStatsSchema(output, partitionSchema)._2.filterNot(column => names(column.name) || column.dataType == NullType)
    }
    private val materialized = {
      val isAsked = IcebergCompat.isAnyEnabled(metadata) ||
        Pairs.hasPartitionColumns(protocol, metadata)
      if (isAsked) partitioning.filter(_.name != IsChange) else Nil
    }

    /** The columns of files, by their physical names: those of the rows, those that they lack, and partition columns. */
    private val columns = StructType((stored ++ missing ++ materialized).map { column =>
      val id = new MetadataBuilder
      if (column.metadata.contains(FieldId)) id.putLong(FieldId, column.metadata.getLong(FieldId))
      StructField(column.name, SchemaUtils.typeAsNullable(column.dataType), nullable = true, id.build())
    })

    /** Whether Delta has the rows shuffled, so that files get larger. */
    private lazy val isOptimized = !isOptimize && options.flatMap(_.optimizeWrite).getOrElse(
      TransactionalWrite.shouldOptimizeWrite(metadata, session.sessionState.conf))

    /** VARIANT columns that tasks read from the files that are rewritten. */
    private def late: Option[LateVariants] = if (isLate) foundLate else None
    private var isLate = !isOptimized
    private lazy val foundLate =
      try LateVariants.of(normalized, deltaLog, metadata, isFree)
      catch {
        case failure: Throwable if !Failures.stops(failure) =>
          tellLate(failure.toString)
          None
      }

    /** Whether nothing but the task needs a column of the output. Constraints have logical names, and `output` physical ones. */
    private def isFree(index: Int): Boolean = {
      val name = normalized.analyzed.output(index).name
      stored.contains(output(index)) && !constraints.exists(JsonTexts.isOver(_, name, fails = false))
    }

    private def tellLate(reason: String): Unit = writes.python.tell("late", s"${deltaLog.dataPath}\n$reason")

    private def execution = late.fold(normalized)(_.execution)

    /** What tasks make of other columns: Variants of JSON texts, or rows of pieces of files. */
    private def lastStep: Option[LastStep] = if (isThere) found else None
    private var isThere = true
    private lazy val found =
      if (call.exists(_.hasWholeRows) && constraints.isEmpty && metadata.columnMappingMode == NoMapping)
        WholeRows.of(execution.executedPlan).filter(_.columns.forall(index => stored.contains(output(index))))
      else JsonTexts.of(execution.executedPlan, constraints)

    private def wholeRows: Option[WholeRows] = lastStep.collect { case rows: WholeRows => rows }
    private def texts: Option[JsonTexts] = lastStep.collect { case texts: JsonTexts => texts }
    private def lateNames = late.fold(Seq.empty[String])(_.columns.map(output(_).name))
    private def textNames = texts.fold(Seq.empty[String])(_.columns.map(output(_).name))
    private def fromPieces: Seq[Attribute] = wholeRows.fold(Seq.empty[Attribute])(_.columns.map(output))

    /** The columns that tasks get: pieces; columns of files; and the partition values as text. */
    private def rowSchema = {
      val names = fromPieces.map(_.name)
      StructType(
        wholeRows.toSeq.map(rows => StructField(names.head, rows.kind)) ++
          columns.filterNot(column => names.contains(column.name)).map { column =>
            if (textNames.contains(column.name)) column.copy(dataType = StringType)
            else if (lateNames.contains(column.name)) column.copy(dataType = LateVariants.RowType)
            else column
          } ++
          partitioning.map(column => StructField(column.name, StringType)))
    }

    /**
     * The new files.
     *
     * @param instead makes them if tasks cannot. If tasks have failed, it runs within their execution: an Observation and the
     *                progress of a stream have the rows of the execution that ends first.
     */
    def files(instead: EveryWrite.Reason => Seq[FileAction]): Seq[FileAction] = tasks match {
      case Left(reason) => instead(reason)
      case Right(tasks) =>
        hasWritten = true
        announced = announced.orElse(tasks.announces)
        SQLExecution.withNewExecutionId(execution, Some("deltaTransactionalWrite")) {
          val plan = execution.executedPlan
          val counted = new Counted(plan, isRunAgain = execution eq input.queryExecution)
          lastStep.fold(Option(plan))(_.in(plan)).flatMap { plan =>
            val reports =
              try Some(run(tasks.function, checked(plan)))
              catch { case failure: Throwable if mayFollowText(failure) => None }
              finally call.foreach(_.observe(execution))
            if (!reports.exists(_.isRight)) counted.restore()
            reports.map(_.map(done))
          } match {
            case Some(Right(files)) => files
            case Some(Left(reason)) if late.isEmpty => instead(reason)
            case Some(Left(reason)) => // a file that only Spark can read, perhaps
              tellLate(reason.text)
              isLate = false
              files(instead)
            case None =>
              // Adaptive execution has chosen another step; or Spark is to parse texts with its rows, and says which failed.
              isThere = false
              files(instead)
          }
        }
    }

    /** Whether a row failed that may be behind a malformed text: rows are read ahead of the texts that tasks parse. */
    private def mayFollowText(failure: Throwable): Boolean =
      call.isEmpty && texts.exists(_.fails) && !Failures.stops(failure)

    /** The tasks, or the reason why Delta has to make the files. */
    private def tasks: Either[EveryWrite.Reason, EveryWrite.Tasks] =
      try reasonForDelta.map(EveryWrite.Reason(_, isFailure = false)).toLeft(()).flatMap(_ => asked)
      catch {
        case failure: Throwable if call.isEmpty && !Failures.stops(failure) =>
          Left(EveryWrite.Reason(failure.toString, isFailure = true))
      }

    private def asked: Either[EveryWrite.Reason, EveryWrite.Tasks] = {
      val context = session.sparkContext
      val storage = new HadoopSettings(deltaLog.dataPath, hadoopConf)
      writes.tasks(
        context,
        storage,
        Messages.WriteRequest(
          deltaLog.dataPath.toString,
          protocol.json,
          metadata.json,
          columns.json,
          rowSchema.json,
          partitioning.map(_.name),
          steps,
          texts.map { texts =>
            Messages.TextColumns(
              textNames, texts.corrupt.map(output(_).name), texts.fails, texts.allowDuplicateKeys, texts.validateUnicode)
          },
          fromPieces.map(_.name),
          lateNames,
          call.isDefined,
          session.conf.getAll.collect { case (name, value) if name.startsWith(s"spark.$Ours") => name.substring(6) -> value },
          options.fold(Map.empty[String, String])(_.options.asInstanceOf[CaseInsensitiveMap[String]].originalMap.filter(
              _._1.toLowerCase.startsWith(Ours))),
          option(DeltaOptions.COMPRESSION).orElse(setting("spark.sql.parquet.compression.codec")),
          option(DeltaOptions.MAX_RECORDS_PER_FILE).map(_.toLong).getOrElse(session.sessionState.conf.maxRecordsPerFile),
          Pairs.stringPrefix(session, metadata),
          if (readVersion < 0) Some(0) else snapshot.checksumOpt.map(_.numFiles),
          session.version,
          Pairs.readsVariantAnnotation,
          storage.namesUnicode,
          storage.settings,
          writes.workers(context)))
    }

    /** Hadoop's settings for Delta's own files: those of the session, the properties of the table, and options. */
    private def hadoopConf: Configuration =
      session.sessionState.newHadoopConfWithOptions(metadata.configuration ++ deltaLog.options)

    private def reasonForDelta: Option[String] = {
      val conf = session.sessionState.conf
      if (stored.isEmpty) Some("the rows have no columns")
      else if (deltaDataSubdir.isDefined) Some("the session has Delta write data files to a directory of their own")
      else if (!conf.getConf(DeltaSQLConf.UTC_TIMESTAMP_PARTITION_VALUES) && partitioning.exists(_.dataType == TimestampType))
        Some("the session has Delta write partition values of timestamps in local time")
      else if (Rebasing.exists(conf.getConf(_).toString == "EXCEPTION") && stored.exists(column => hasDates(column.dataType)))
        Some("the session refuses old dates, by datetimeRebaseModeInWrite or int96RebaseModeInWrite")
      else Option(hadoopConf.get("parquet.crypto.factory.class")).map(name => s"Parquet files are encrypted ($name)")
    }

    private def option(name: String): Option[String] =
      options.flatMap(_.options.collectFirst { case (key, value) if key.equalsIgnoreCase(name) => value })

    private def setting(name: String): Option[String] =
      if (session.sessionState.conf.contains(name)) Some(session.conf.get(name)) else None

    /** The identity columns whose highest value is recorded, by physical name, and whether their values grow. */
    private def steps: Map[String, Boolean] = metadata.schema.filter(column => identityColumns(column.name)).map { column =>
      DeltaColumnMapping.getPhysicalName(column) -> (column.metadata.getLong(sources.DeltaSourceUtils.IDENTITY_INFO_STEP) > 0)
    }.toMap

    /** The reports of tasks; or why they failed, if not because of the rows. */
    private def run(task: PythonFunction, plan: SparkPlan): Either[EveryWrite.Reason, Seq[Messages.WriteReport]] =
      try {
        val rows = plan.execute()
        val location = if (call.isDefined) None else Some(deltaLog.dataPath.toString) // whose errors rows then have
        Right(WriteFiles.run(session, rows, rowSchema, task, location).toSeq)
      } catch {
        case InnerInvariantViolationException(violation) => throw violation
        // A failure of Python may be one of the user's functions, whose errors are then those of Delta's own write.
        case failure: Throwable if call.isEmpty && !Failures.stops(failure) =>
          Failures.ofTasks(failure).map(writes.failed(session.sparkContext, _)).toLeft(throw failure)
      }

    /** The plan with the checks of the table, sorted by partition, and with the columns that tasks get. */
    private def checked(plan: SparkPlan): SparkPlan = {
      val checked =
        DeltaInvariantCheckerExec(session, convertEmptyToNullIfNeeded(plan, partitioning, constraints), constraints)
      val rows = if (isOptimized) DeltaOptimizedWriterExec(checked, metadata.partitionColumns, deltaLog) else checked
      if (partitioning.isEmpty && missing.isEmpty && fromPieces.isEmpty) rows
      else projected(if (!isOptimized && isSorted(plan)) rows else sorted(rows))
    }

    /** What the plan gives for a column of `output`: the plan may have other expression ids (SPARK-21165). */
    private def in(plan: SparkPlan)(column: Attribute): Attribute = plan.output(output.indexWhere(_.exprId == column.exprId))

    /** Whether the rows are sorted by partition. As for Delta, this may be before empty strings become NULL. */
    private def isSorted(plan: SparkPlan): Boolean = {
      val columns = partitioning.map(in(plan))
      val order = finalPlan(plan).outputOrdering
      Seq(columns, Clustering.partitionKeys(columns)).exists(V1WritesUtils.isOrderingMatched(_, order))
    }

    private def sorted(plan: SparkPlan): SparkPlan =
      if (partitioning.isEmpty) plan
      else {
        val places = late.toSeq.flatMap(_.columns.take(1)).flatMap { index =>
          Seq(GetStructField(plan.output(index), 0), GetStructField(plan.output(index), 1)) // as tasks read them
        }
        val partitions = Clustering.partitionKeys(partitioning.map(in(plan)))
        SortExec((partitions ++ places).map(SortOrder(_, Ascending)), global = false, plan)
      }

    /** The plan without the nodes of adaptive execution, which do not know the order of their rows (SPARK-40588). */
    private def finalPlan(plan: SparkPlan): SparkPlan = plan match {
      case adaptive: AdaptiveSparkPlanExec => adaptive.finalPhysicalPlan
      case other => other.withNewChildren(other.children.map(finalPlan))
    }

    /** The columns of files, then the partition values as text. */
    private def projected(plan: SparkPlan): SparkPlan = {
      val zone = Some(session.sessionState.conf.sessionLocalTimeZone)
      val absent = missing.map(column => Alias(Literal(null, SchemaUtils.typeAsNullable(column.dataType)), column.name)())
      val texts = partitioning.map { column =>
        val value = in(plan)(column)
        val text = value.dataType match {
          case TimestampType => Cast(UnixMicros(value), StringType, zone)
          case StringType => Empty2Null(value)
          case _ => Cast(value, StringType, zone)
        }
        Alias(text, column.name)()
      }
      val kept = materialized.map { column =>
        val value = in(plan)(column)
        if (value.dataType == StringType) Alias(Empty2Null(value), column.name)() else value
      }
      val own = fromPieces.take(1) ++ stored.filterNot(fromPieces.contains)
      ProjectExec(own.map(in(plan)) ++ absent ++ kept ++ texts, plan)
    }

    private def done(reports: Seq[Messages.WriteReport]): Seq[FileAction] = {
      val hasStatistics = session.sessionState.conf.getConf(DeltaSQLConf.DELTA_COLLECT_STATS)
      val version = IcebergCompat.anyEnabled(metadata).map(_.version).filter(_ >= 2)
      val written = reports.map(report => report -> report.add.map(Action.fromJson))
      call.foreach(_.count(written))
      val files = written.flatMap(_._2).map {
        case add: AddFile =>
          val marked = version.fold(add.tags) { number =>
            add.tagsOrEmpty + (CompatTag -> number.toString)
          }
          if (hasStatistics) add.copy(tags = marked)
          else add.copy(tags = version.fold[Map[String, String]](null)(_ => marked.filter(_._1 == CompatTag)), stats = null)
        case other => other.asInstanceOf[FileAction]
      }
      register(reports, files)
      if (files.nonEmpty && !isOptimize) registerPostCommitHook(AutoCompact)
      for ((name, grows) <- steps) {
        val marks = reports.flatMap(_.highWaterMarks.get(name))
        if (marks.nonEmpty) updatedIdentityHighWaterMarks.append(name -> (if (grows) marks.max else marks.min))
      }
      val (adds, changes) = files.partition(_.isInstanceOf[AddFile])
      adds ++ changes
    }

    /** Registers the metrics of the write as Spark counts them: if the first task has no rows, it writes an empty file. */
    private def register(reports: Seq[Messages.WriteReport], files: Seq[FileAction]): Unit =
      if (session.conf.get(DeltaSQLConf.DELTA_HISTORY_METRICS_ENABLED)) {
        val conf = new SerializableConfiguration(deltaLog.newDeltaHadoopConf())
        val tracker = new BasicWriteJobStatsTracker(conf, BasicWriteJobStatsTracker.metrics)
        registerSQLMetrics(session, tracker.driverSideMetrics)
        val hasEmpty = partitioning.isEmpty && !files.exists(file => new Path(file.path).getName.startsWith("part-00000-"))
        val partitions = files.map(file => (file.isInstanceOf[AddFile], file.partitionValues)).distinct.map {
          case (isAdd, values) =>
            InternalRow.fromSeq(isAdd +: values.toSeq.sortBy(_._1).map(value => UTF8String.fromString(value._2)))
        }
        val written = BasicWriteTaskStats(
          if (partitioning.isEmpty) Nil else partitions, files.size + (if (hasEmpty) 1 else 0), reports.map(_.size).sum,
          reports.map(_.rows).sum)
        tracker.processStats(Seq(written), 0)
        IdentityColumn.logTableWrite(snapshot, identityColumns, Some(written.numRows))
      }
  }
}

private object WritingTransaction {
  private val ClusterBy = "delta_variant.cluster_by"
  private val Ours = "delta_variant."
  private val IsChange = CDCReader.CDC_PARTITION_COL
  private val FieldId = DeltaColumnMapping.PARQUET_FIELD_ID_METADATA_KEY
  private val CompatTag = AddFile.Tags.ICEBERG_COMPAT_VERSION.name

  private val Rebasing = Seq(SQLConf.PARQUET_REBASE_MODE_IN_WRITE, SQLConf.PARQUET_INT96_REBASE_MODE_IN_WRITE)

  private def hasDates(kind: DataType): Boolean =
    SchemaUtils.typeExistsRecursively(kind)(part => part == DateType || part == TimestampType)

  /**
   * What a plan has counted before it is run: its metrics, and the counters that Delta's MERGE, UPDATE and DELETE have in it.
   * `restore` also sets its observed metrics to zero.
   *
   * @param isRunAgain whether Delta would run this plan itself afterwards, without the parts behind its exchanges
   */
  private final class Counted(plan: SparkPlan, isRunAgain: Boolean) {
    private val before =
      nodes(plan, adaptive => if (isRunAgain) adaptive.finalPhysicalPlan else adaptive.inputPlan).flatMap(counters).distinct
        .map(counter => counter -> counter.value)

    def restore(): Unit = {
      before.foreach { case (counter, value) => counter.set(value) }
      nodes(plan, _.executedPlan).collect { case node: CollectMetricsExec =>
        AccumulatorContext.get(node.accumulatorId).foreach(_.reset())
      }
    }

    private def nodes(plan: SparkPlan, ofAdaptive: AdaptiveSparkPlanExec => SparkPlan): Seq[SparkPlan] = plan match {
      case adaptive: AdaptiveSparkPlanExec => nodes(ofAdaptive(adaptive), ofAdaptive)
      case _: Exchange | _: QueryStageExec if isRunAgain => Nil
      case stage: QueryStageExec => nodes(stage.plan, ofAdaptive)
      case node => node +: node.children.flatMap(nodes(_, ofAdaptive))
    }

    private def counters(node: SparkPlan): Seq[SQLMetric] =
      node.metrics.values.toSeq ++ node.expressions.flatMap(_.flatMap(Pairs.counter(_)))
  }
}
