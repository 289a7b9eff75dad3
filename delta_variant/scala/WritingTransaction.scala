package org.apache.spark.sql.delta.variant

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.api.python.PythonFunction
import org.apache.spark.sql.Dataset
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Alias, Ascending, Attribute, Cast, Empty2Null, Literal, SortOrder, UnixMicros}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.delta._
import org.apache.spark.sql.delta.actions.{Action, AddFile, FileAction, SetTransaction}
import org.apache.spark.sql.delta.commands.cdc.CDCReader
import org.apache.spark.sql.delta.constraints.{Constraint, Constraints, DeltaInvariantCheckerExec}
import org.apache.spark.sql.delta.files.TransactionalWrite
import org.apache.spark.sql.delta.hooks.AutoCompact
import org.apache.spark.sql.delta.metric.{ConditionalIncrementMetric, IncrementMetric}
import org.apache.spark.sql.delta.perf.DeltaOptimizedWriterExec
import org.apache.spark.sql.delta.schema.{InnerInvariantViolationException, SchemaUtils}
import org.apache.spark.sql.delta.sources.DeltaSQLConf
import org.apache.spark.sql.delta.stats.StatsCollectionUtils
import org.apache.spark.sql.execution.{ProjectExec, SortExec, SparkPlan, SQLExecution}
import org.apache.spark.sql.execution.adaptive.{AdaptiveSparkPlanExec, QueryStageExec}
import org.apache.spark.sql.execution.datasources.{BasicWriteJobStatsTracker, BasicWriteTaskStats, V1WritesUtils}
import org.apache.spark.sql.execution.exchange.Exchange
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.{
  DataType, DateType, MetadataBuilder, NullType, StringType, StructField, StructType, TimestampType
}
import org.apache.spark.unsafe.types.UTF8String
import org.apache.spark.util.SerializableConfiguration

/**
 * A transaction of Delta's whose data files are ours, if the session asks for it (`EveryWrite.of`).
 *
 * `writeFiles` is the one place where Delta's commands turn rows into files. Its steps are those of Delta's TransactionalWrite,
 * by Delta's own methods, except for the job, in whose place DeltaFileFormatWriter stands there. What the tasks cannot write,
 * Delta writes.
 */
final class WritingTransaction(plain: OptimisticTransaction)
    extends OptimisticTransaction(plain.deltaLog, plain.catalogTable, plain.snapshot) {
  import WritingTransaction._

  @volatile private var announced: Option[String] = None

  override def writeFiles(
      input: Dataset[_],
      options: Option[DeltaOptions],
      isOptimize: Boolean,
      additional: Seq[Constraint]): Seq[FileAction] = {
    def byDelta = super.writeFiles(input, options, isOptimize, additional)
    EveryWrite.of(input.sparkSession, metadata).fold(byDelta) { writes =>
      val rows = new Rows(input, options, additional)
      val files = rows.tasks(writes).flatMap { tasks =>
        hasWritten = true
        announced = announced.orElse(tasks.announces)
        rows.write(writes, tasks.function, isOptimize)
      }
      files match {
        case Right(files) => files
        case Left(reason) =>
          writes.tell(deltaLog.dataPath, reason)
          byDelta
      }
    }
  }

  /** Commits the first transaction identifier of the index of values, if the files have one. */
  override protected def prepareCommit(actions: Seq[Action], operation: DeltaOperations.Operation): Seq[Action] = {
    val first = announced.filterNot(application => readVersion >= 0 && snapshot.transactions.contains(application))
    super.prepareCommit(actions ++ first.map(SetTransaction(_, 0, Some(System.currentTimeMillis()))), operation)
  }

  /** The rows of a write, normalized as Delta does it. */
  private final class Rows(input: Dataset[_], options: Option[DeltaOptions], additional: Seq[Constraint]) {
    private val session = input.sparkSession.asInstanceOf[SparkSession]
    private val (data, partitionSchema) = performCDCPartition(input)
    private val (execution, output, generated, fromData) = normalizeData(deltaLog, options, data)
    private val identityColumns = trackHighWaterMarks.getOrElse(fromData)
    private val partitioning = getPartitioningColumns(partitionSchema, output)
    private val constraints = {
      val all = Constraints.getAll(metadata, session) ++ generated ++ additional
      Constraints.validateCheckConstraints(session, all, deltaLog, metadata.schema)
      all
    }
    private val stored = output.filterNot(partitioning.contains)
    private val missing = {
      val names = output.map(_.name).toSet
      getStatsSchema(output, partitionSchema)._2.filterNot(column => names(column.name) || column.dataType == NullType)
    }
    private val materialized = {
      val isAsked = IcebergCompat.isAnyEnabled(metadata) ||
        protocol.isFeatureSupported(MaterializePartitionColumnsTableFeature) ||
        DeltaConfigs.WRITE_PARTITION_COLUMNS_TO_PARQUET.fromMetaData(metadata).getOrElse(true)
      if (isAsked) partitioning.filter(_.name != IsChange) else Nil
    }

    /** The columns of files, by their physical names: those of the rows, those that they lack, and partition columns. */
    private val columns = StructType((stored ++ missing ++ materialized).map { column =>
      val id = new MetadataBuilder
      if (column.metadata.contains(FieldId)) id.putLong(FieldId, column.metadata.getLong(FieldId))
      StructField(column.name, SchemaUtils.typeAsNullable(column.dataType), nullable = true, id.build())
    })

    /** VARIANT columns in whose place tasks get JSON texts, and their names. */
    private lazy val texts = JsonTexts.of(execution.executedPlan, constraints)
    private lazy val textNames = texts.fold(Seq.empty[String])(_.columns.map(output(_).name))

    /** The columns that tasks get: those of files, then the partition values as text. */
    private def rowSchema = StructType(
      columns.map(column => if (textNames.contains(column.name)) column.copy(dataType = StringType) else column) ++
        partitioning.map(column => StructField(column.name, StringType)))

    /** The tasks, or the reason why Delta has to make the files. */
    def tasks(writes: EveryWrite): Either[EveryWrite.Reason, EveryWrite.Tasks] =
      try reasonForDelta.map(EveryWrite.Reason(_, isFailure = false)).toLeft(()).flatMap(_ => asked(writes))
      catch {
        case failure: Throwable if NonFatal(failure) && !Failures.stops(failure) =>
          Left(EveryWrite.Reason(failure.toString, isFailure = true))
      }

    private def asked(writes: EveryWrite): Either[EveryWrite.Reason, EveryWrite.Tasks] =
      writes.tasks(new EveryWrite.Storage(deltaLog.dataPath, hadoopConf))(number =>
        Messages.WriteRequest(
          number,
          deltaLog.dataPath.toString,
          protocol.json,
          metadata.json,
          columns.json,
          partitioning.map(_.name),
          steps,
          texts.map(t => Messages.TextColumns(textNames, t.fails, t.allowDuplicateKeys, t.validateUnicode)),
          option(DeltaOptions.COMPRESSION).orElse(setting("spark.sql.parquet.compression.codec")),
          option(DeltaOptions.MAX_RECORDS_PER_FILE).map(_.toLong).getOrElse(session.sessionState.conf.maxRecordsPerFile),
          StatsCollectionUtils.getDataSkippingStringPrefixLength(session, metadata),
          if (readVersion < 0) Some(0) else snapshot.checksumOpt.map(_.numFiles)))

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

    /** By the physical name of an identity column whose highest value is recorded: whether its values grow. */
    private def steps: Map[String, Boolean] = metadata.schema.filter(column => identityColumns(column.name)).map { column =>
      DeltaColumnMapping.getPhysicalName(column) -> (column.metadata.getLong(sources.DeltaSourceUtils.IDENTITY_INFO_STEP) > 0)
    }.toMap

    /** The new files; or why tasks failed, if not because of the rows. */
    def write(writes: EveryWrite, task: PythonFunction, isOptimize: Boolean): Either[EveryWrite.Reason, Seq[FileAction]] =
      SQLExecution.withNewExecutionId(execution, Some("deltaTransactionalWrite")) {
        val counted = new Counted(execution.executedPlan, isRunAgain = execution eq input.queryExecution)
        texts.fold(Option(execution.executedPlan))(_.in(execution.executedPlan)) match {
          case None => Left(EveryWrite.Reason("adaptive execution moved a column that tasks were to parse", isFailure = false))
          case Some(plan) =>
            val reports = run(writes, task, checked(plan, isOptimize))
            if (reports.isLeft) counted.restore()
            reports.map(done(_, isOptimize))
        }
      }

    private def run(
        writes: EveryWrite, task: PythonFunction, plan: SparkPlan): Either[EveryWrite.Reason, Seq[Messages.WriteReport]] =
      try {
        val rows = plan.execute()
        Right(WriteFiles.run(session, rows, rowSchema, task, writes.batches, Some(deltaLog.dataPath.toString)).toSeq)
      } catch {
        case InnerInvariantViolationException(violation) => throw violation
        // A failure of Python may be one of the user's functions, whose errors are then those of Delta's own write.
        case failure: Throwable if NonFatal(failure) && !Failures.stops(failure) =>
          Failures.ofTasks(failure).map(EveryWrite.Reason(_, isFailure = true)).toLeft(throw failure)
      }

    /** The plan with the checks of the table, sorted by partition, and with the columns that tasks get. */
    private def checked(plan: SparkPlan, isOptimize: Boolean): SparkPlan = {
      val checked =
        DeltaInvariantCheckerExec(session, convertEmptyToNullIfNeeded(plan, partitioning, constraints), constraints)
      val isOptimized = !isOptimize && options.flatMap(_.optimizeWrite).getOrElse(
        TransactionalWrite.shouldOptimizeWrite(metadata, session.sessionState.conf))
      val rows = if (isOptimized) DeltaOptimizedWriterExec(checked, metadata.partitionColumns, deltaLog) else checked
      if (partitioning.isEmpty && missing.isEmpty) rows else projected(sorted(rows))
    }

    /** What the plan gives for a column of `output`: the plan may have other expression ids (SPARK-21165). */
    private def in(plan: SparkPlan)(column: Attribute): Attribute = plan.output(output.indexWhere(_.exprId == column.exprId))

    private def sorted(plan: SparkPlan): SparkPlan = {
      val keys = partitioning.map(in(plan))
      if (keys.isEmpty || V1WritesUtils.isOrderingMatched(keys, finalPlan(plan).outputOrdering)) plan
      else SortExec(keys.map(SortOrder(_, Ascending)), global = false, plan)
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
      ProjectExec(stored.map(in(plan)) ++ absent ++ kept ++ texts, plan)
    }

    private def done(reports: Seq[Messages.WriteReport], isOptimize: Boolean): Seq[FileAction] = {
      val hasStatistics = session.sessionState.conf.getConf(DeltaSQLConf.DELTA_COLLECT_STATS)
      val version = IcebergCompat.anyEnabled(metadata).map(_.version).filter(_ >= 2)
      val files = reports.flatMap(_.add).map(Action.fromJson).map {
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
        val marks = reports.flatMap(_.marks.get(name))
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
  private val IsChange = CDCReader.CDC_PARTITION_COL
  private val FieldId = DeltaColumnMapping.PARQUET_FIELD_ID_METADATA_KEY
  private val CompatTag = AddFile.Tags.ICEBERG_COMPAT_VERSION.name

  private val Rebasing = Seq(SQLConf.PARQUET_REBASE_MODE_IN_WRITE, SQLConf.PARQUET_INT96_REBASE_MODE_IN_WRITE)

  private def hasDates(kind: DataType): Boolean =
    SchemaUtils.typeExistsRecursively(kind)(part => part == DateType || part == TimestampType)

  /**
   * The counters that Delta's MERGE, UPDATE and DELETE have in their plans, as they are before the plan is run.
   *
   * @param isRunAgain whether Delta would run this plan itself, and then what is behind its exchanges would not run again
   */
  private final class Counted(plan: SparkPlan, isRunAgain: Boolean) {
    private val before = counters(plan).distinct.map(counter => counter -> counter.value)

    def restore(): Unit = before.foreach { case (counter, value) => counter.set(value) }

    private def counters(plan: SparkPlan): Seq[SQLMetric] = plan match {
      case adaptive: AdaptiveSparkPlanExec => counters(if (isRunAgain) adaptive.finalPhysicalPlan else adaptive.inputPlan)
      case _: Exchange | _: QueryStageExec if isRunAgain => Nil
      case node =>
        val own = node.expressions.flatMap(_.collect {
          case counter: IncrementMetric => counter.metric
          case counter: ConditionalIncrementMetric => counter.metric
        })
        own ++ node.children.flatMap(counters)
    }
  }
}
