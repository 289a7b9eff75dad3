package org.apache.spark.sql.delta.variant

import java.lang.reflect.InvocationTargetException

import org.apache.parquet.schema.LogicalTypeAnnotation
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.catalog.CatalogTable
import org.apache.spark.sql.catalyst.expressions.{Expression, IsNotNull, Literal, RuntimeReplaceable, TryEval}
import org.apache.spark.sql.catalyst.expressions.variant.SchemaOfVariant
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.connector.catalog.Table
import org.apache.spark.sql.delta.{
  CommittedTransaction, DeltaConfig, DeltaConfigs, DeltaLog, OptimisticTransaction, TableFeature
}
import org.apache.spark.sql.delta.actions.{Action, DropTableFeatureUtils, Metadata, Protocol}
import org.apache.spark.sql.delta.commands.WriteIntoDelta
import org.apache.spark.sql.delta.constraints.{Constraint, Constraints}
import org.apache.spark.sql.delta.sources.DeltaSQLConf
import org.apache.spark.sql.delta.stats.StatsCollectionUtils
import org.apache.spark.sql.execution.{CacheManager, QueryExecution}
import org.apache.spark.sql.execution.datasources.DataSource
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.types.StructType

/**
 * The differences between the versions of Spark and Delta that a session can have (delta_variant/pairs.py). All other sources
 * compile against each of them. Classes and methods are looked up by name; version numbers are never compared.
 */
object Pairs {

  // ---- Spark ----------------------------------------------------------------------------------------------------------------

  /** Whether a plan is that of a stream's batch. Spark 4.1 moved the class to another package, like the next one. */
  def isOfStream(execution: QueryExecution): Boolean = is(execution, "IncrementalExecution")

  /** A stream that Spark reads by a source of version 1: the source's table, and its name. */
  object Stream {
    def unapply(plan: LogicalPlan): Option[(DataSource, String)] = plan match {
      case stream: Product if is(plan, "StreamingRelation") =>
        Some((stream.productElement(0).asInstanceOf[DataSource], stream.productElement(1).asInstanceOf[String]))
      case _ => None
    }
  }

  /** Whether a table is the result of a query for changes, which Spark 4.2 introduced. */
  def isOfChanges(table: Table): Boolean = is(table, "ChangelogTable")

  /** Completes the Observations of a session by a query that has run. Spark 4.2 made the method public. */
  def complete(observations: AnyRef, execution: QueryExecution): Unit = call[Unit](observations, Seq("tryComplete"), execution)

  /** Whether a VARIANT is intact, as an expression. Spark has one from 4.2 on; before, computing its schema reads all of it. */
  def isValid(variant: Expression): Expression =
    made[RuntimeReplaceable]("org.apache.spark.sql.catalyst.expressions.variant.IsValidVariant", variant).map(_.replacement)
      .getOrElse(IsNotNull(TryEval(new SchemaOfVariant(variant).replacement)))

  /**
   * Whether Spark reads files with Parquet's logical type VARIANT: Spark 4.0 fails at their footers. Its class loader is asked,
   * since Delta's dependencies can bring a newer Parquet, which Spark does not use.
   */
  lazy val readsVariantAnnotation: Boolean = {
    val known = classOf[LogicalTypeAnnotation]
    try { known.getClassLoader.loadClass(s"${known.getName}$$VariantLogicalTypeAnnotation"); true }
    catch { case _: ClassNotFoundException => false }
  }

  /** Whether `parse_json` validates Unicode, by its last arguments. Spark before 4.2 has none for it, and does not validate. */
  def validatesUnicode(last: Seq[Expression]): Option[Boolean] = last match {
    case Nil => Some(false)
    case Seq(Literal(validates: Boolean, _)) => Some(validates)
    case _ => None
  }

  /** The version of the table that is read by Spark's interfaces of version 2; Spark's has the method from 4.1 on. */
  def version(table: Table): Option[Long] = call[String](table, Seq("version")).flatMap(Option(_)).map(_.toLong)

  /** Has Spark read anew what it has cached of a table by its name, from Spark 4.1 on. */
  def recache(cache: CacheManager, spark: SparkSession, name: Seq[String]): Unit =
    call[Unit](cache, Seq("recacheTableOrView"), spark, name, Boolean.box(false))

  // ---- Delta ----------------------------------------------------------------------------------------------------------------

  /** Whether Delta's reader for Spark's interfaces of version 2 reads a table. Delta 4.3 renamed the class. */
  def isV2(table: Table): Boolean = is(table, "DeltaV2Table", "SparkTable") && table.getClass.getName.startsWith("io.delta.")

  /**
   * Whether data files have partition columns: if a feature asks for it, and from Delta 4.4 on unless a property denies it.
   * Delta 4.0 does not have the feature.
   */
  def hasPartitionColumns(protocol: Protocol, metadata: Metadata): Boolean =
    TableFeature.featureNameToFeature("materializePartitionColumns").exists(protocol.isFeatureSupported) ||
      call[DeltaConfig[Option[Boolean]]](DeltaConfigs, Seq("WRITE_PARTITION_COLUMNS_TO_PARQUET"))
        .exists(_.fromMetaData(metadata).getOrElse(true))

  /** The name of the table feature for shredding. Delta 4.0 knows only that of its preview. */
  lazy val shreddingFeature: String =
    Seq("variantShredding", "variantShredding-preview").find(TableFeature.featureNameToFeature(_).isDefined).get

  /** A struct whose Variants are Z85 texts, with the Variants of these texts. From Delta 4.1 on, it has an expression for it. */
  def fromTexts(struct: Expression): Option[Expression] =
    made[Expression]("org.apache.spark.sql.delta.expressions.DecodeNestedZ85EncodedVariant", struct)

  /** Whether `Snapshot.withStats` has the bounds of VARIANT columns, as VARIANTs. */
  lazy val readsBounds: Boolean = fromTexts(Literal(null, new StructType)).isDefined

  /** The version that a transaction has committed. Delta 4.0 has no method `getCommitted`. */
  def committed(transaction: OptimisticTransaction): Option[Long] =
    call[Option[CommittedTransaction]](transaction, Seq("getCommitted", "committed")).get.map(_.committedVersion)

  /** The metric of an expression that counts rows. Delta 4.0 has only the first of them. */
  def counter(expression: Expression): Option[SQLMetric] =
    if (is(expression, "IncrementMetric", "ConditionalIncrementMetric")) call[SQLMetric](expression, Seq("metric")) else None

  /** The actions of all versions in the log. From Delta 4.1 on, the method takes the table's entry in the catalog. */
  def changes(log: DeltaLog, entry: Option[CatalogTable]): Iterator[(Long, Seq[Action])] = {
    val entries = if (log.getClass.getMethods.exists(method => method.getName == "getChanges" && method.getParameterCount == 2))
      Nil
    else Seq(entry)
    call[Iterator[(Long, Seq[Action])]](log, Seq("getChanges"), (Long.box(0) +: entries) :+ Boolean.box(false): _*).get
  }

  /** Refuses constraints that cannot be checked, as Delta does from 4.1 on. */
  def validate(spark: SparkSession, constraints: Seq[Constraint], log: DeltaLog, metadata: Metadata): Unit =
    call[Unit](Constraints, Seq("validateCheckConstraints"), spark, constraints, log, metadata.schema)

  /** How many characters of a string statistics keep. From Delta 4.1 on, a table can have a number of its own. */
  def stringPrefix(spark: SparkSession, metadata: Metadata): Int =
    call[Int](StatsCollectionUtils, Seq("getDataSkippingStringPrefixLength"), spark, metadata)
      .getOrElse(spark.sessionState.conf.getConf(DeltaSQLConf.DATA_SKIPPING_STRING_PREFIX_LENGTH))

  /** How many checkpoints precede the commit that drops a feature. In Delta 4.0 the number is private to a command. */
  def barrierCheckpoints: Int = call[Int](DropTableFeatureUtils, Seq("NUMBER_OF_BARRIER_CHECKPOINTS")).getOrElse(3)

  /** Registers Delta's counts of the rows that an overwrite of some rows removes. Delta 4.3 renamed the method. */
  def registerReplaced(
      command: WriteIntoDelta,
      spark: SparkSession,
      transaction: OptimisticTransaction,
      added: Seq[Action],
      removed: Seq[Action]): Unit =
    call[Unit](command, Seq("registerInsertReplaceMetrics", "registerReplaceWhereMetrics"), spark, transaction, added, removed)

  // ---- look-ups by name ------------------------------------------------------------------------------------------------------

  private def is(value: AnyRef, names: String*): Boolean =
    Iterator.iterate[Class[_]](value.getClass)(_.getSuperclass).takeWhile(_ != null)
      .exists(of => names.contains(of.getSimpleName))

  /**
   * What the first of these methods that an object has returns; None if it has none. Throws IllegalStateException if it has them
   * with other numbers of parameters.
   */
  private def call[T](on: AnyRef, names: Seq[String], arguments: AnyRef*): Option[T] =
    names.map(name =>
      on.getClass.getMethods.toSeq.filter(method => method.getName == name || method.getName.endsWith(s"$$$$$name")))
      .find(_.nonEmpty).map { methods =>
        val method = methods.find(_.getParameterCount == arguments.size).getOrElse(
          throw new IllegalStateException(s"${methods.head} does not take ${arguments.size} arguments"))
        try method.invoke(on, arguments: _*).asInstanceOf[T]
        catch { case failure: InvocationTargetException => throw failure.getCause }
      }

  /** An object of a class; None if there is none of this name. */
  private def made[T](name: String, arguments: AnyRef*): Option[T] =
    try Some(getClass.getClassLoader.loadClass(name).getConstructors.head.newInstance(arguments: _*).asInstanceOf[T])
    catch { case _: ClassNotFoundException => None }
}
